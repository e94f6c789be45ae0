# SPDX-License-Identifier: Apache-2.0
"""Names of Nova that the driver uses; their differences in older releases.

As a program this prints the tests to run with an older release, as a regular
expression for stestr, or the older releases::

    python tests/nova/seams.py 33
    python tests/nova/seams.py
"""

import ast
import functools
import pathlib
import re
import sys
import sysconfig

TREE = pathlib.Path(__file__).parents[2]

#: The installed release, and the releases that tools/suite.sh unpacks.
NEWEST, *OLDER = '34.0.0', '33.0.2', '32.2.1', '31.3.1'

PARENT = 'nova.virt.ironic.driver.IronicDriver'
MANAGER = 'nova.compute.manager.ComputeManager'
TRACKER = 'nova.compute.resource_tracker.ResourceTracker'

#: In place of names: all methods of a class, and all its methods that call a
#: method of the driver that ours overrides.
METHODS, CALLERS = 'def', 'self.driver'

ALL = 33, 32, 31

SMOKE = 'test_smoke.TestReservationsDriver.test_boot_and_delete'
_POWER = 'test_lifecycle.TestHardware.test_power_rescue_and_consoles'
_STOP = 'test_standby.TestStandby.test_clean_stop'
_RESTART = 'test_restart.TestOlderNova.test_build'
_METHODS = 'test_assumptions.TestSignatures.test_public_methods'

#: A module or class, and names in it. Where older releases lack these names or
#: have other code than the newest one: those releases, and tests of that.
TABLE = (
    (PARENT, METHODS),
    (MANAGER, CALLERS),
    (TRACKER, CALLERS),
    ('nova.api.openstack.api_version_request', 'APIVersionRequest'),
    ('nova.api.openstack.wsgi.Request', 'is_legacy_v2'),
    ('nova.api.wsgi', 'Middleware Request'),
    ('nova.availability_zones', 'get_host_availability_zone'),
    ('nova.compute.build_results', 'FAILED_BY_POLICY'),
    ('nova.compute.instance_actions', 'CREATE DELETE REBUILD'),
    (MANAGER, '_build_failed _build_succeeded _cleanup_allocated_networks '
     '_cleanup_volumes _do_build_and_run_instance '
     '_ensure_existing_node_identity _init_instance '
     '_nil_out_instance_obj_host_and_node _notify_about_instance_usage '
     '_notify_instance_rebuild_error _set_instance_obj_error_state '
     '_update_instance_after_spawn _update_scheduler_instance_info '
     'stop_instance'),
    (TRACKER, '_update'),
    ('nova.compute.task_states', 'DELETING POWERING_OFF REBOOTING '
     'REBOOTING_HARD REBUILDING REBUILD_SPAWNING SPAWNING '
     'hard_reboot_states soft_reboot_states'),
    ('nova.compute.utils', 'EventReporter add_instance_fault_from_exc '
     'is_volume_backed_instance notify_about_instance_create '
     'notify_about_instance_rebuild'),
    ('nova.compute.vm_states', 'ACTIVE BUILDING DELETED ERROR '
     'SHELVED_OFFLOADED STOPPED allow_resource_removal'),
    ('nova.context',
     'RequestContext get_admin_context scatter_gather_skip_cell0'),
    ('nova.exception', 'BuildAbortException ComputeHostNotFound '
     'ComputeResourcesUnavailable ImageUnacceptable '
     'InstanceActionEventNotFound InstanceDeployFailure '
     'InstanceEvacuateNotSupported InstanceFaultRollback '
     'InstanceGroupNotFound InstanceNotFound InstancePowerOffFailure '
     'InstanceUnacceptable InvalidArchitectureName InvalidConfiguration '
     'NotFound ResourceProviderRetrievalFailed '
     'ResourceProviderUpdateConflict ServiceUnavailable VirtDriverNotReady'),
    ('nova.objects.compute_node.ComputeNode',
     'get_by_host_and_nodename get_by_nodename get_by_uuid'),
    ('nova.objects.fields.Architecture', 'canonicalize'),
    ('nova.objects.fields.HVType', 'BAREMETAL IRONIC'),
    ('nova.objects.fields.NotificationPhase', 'END ERROR'),
    ('nova.objects.fields.VMMode', 'HVM'),
    ('nova.objects.instance.Instance', 'get_by_uuid get_network_info '
     'image_meta name refresh save'),
    ('nova.objects.instance.InstanceList',
     'get_by_filters get_by_host get_by_host_and_node'),
    ('nova.objects.instance_action.InstanceAction',
     'action_finish action_start'),
    ('nova.objects.instance_action.InstanceActionEvent',
     'event_finish_with_failure'),
    ('nova.objects.instance_group.InstanceGroup', 'get_by_instance_uuid'),
    ('nova.objects.request_spec.RequestSpec', 'get_by_instance_uuid'),
    ('nova.objects.service.Service',
     'get_by_compute_host get_by_host_and_binary'),
    ('nova.policies.servers', 'REQUESTED_DESTINATION SERVERS'),
    ('nova.scheduler.client.report.SchedulerReportClient',
     'delete_allocation_for_instance get get_allocations_for_provider_tree '
     'get_allocs_for_consumer put put_allocations'),
    ('nova.scheduler.filters', 'all_filters'),
    ('nova.scheduler.filters.affinity_filter', 'ServerGroupAffinityFilter '
     'ServerGroupAntiAffinityFilter _GroupAffinityFilter '
     '_GroupAntiAffinityFilter'),
    ('nova.scheduler.utils', '_get_group_details'),
    ('nova.servicegroup.api.API', 'service_is_up'),
    ('nova.utils', 'SM_IMAGE_PROP_PREFIX get_image_from_system_metadata '
     'synchronized'),
    ('nova.virt.driver.ComputeDriver', 'cleanup_host get_host_ip_addr '
     'get_nodenames_by_uuid get_num_instances instance_exists '
     'node_is_available'),
    ('nova.virt.hardware', 'InstanceInfo'),
    ('nova.virt.ironic.driver', 'IRONIC_API_VERSION map_power_state'),
    ('nova.virt.ironic.ironic_states', 'ACTIVE AVAILABLE DEPLOYFAIL '
     'DEPLOYING ENROLL ERROR INSPECTFAIL INSPECTING INSPECTWAIT MANAGEABLE '
     'POWER_OFF POWER_ON VERIFYING'),
    ('nova.virt.node', 'LOCAL_NODE_UUID get_local_node_uuid '
     'read_local_node_uuid'),
    # A module has another name.
    ('nova.api.openstack.wsgi.Request', 'set_api_version_request', (31,),
     'test_named_node.TestNamedNode.test_hypervisor'),
    # An exception of eventlet.
    (MANAGER, '_unshelve_instance', (31,),
     'test_lifecycle.TestHardware.test_volumes_and_shelving'),
    # Shares are attached by other functions.
    (MANAGER, '_power_off_instance _power_on _reboot_instance '
     'rescue_instance', ALL, _POWER),
    (MANAGER, '_shutdown_instance', ALL,
     'test_fence.TestFormerHost.test_writes_and_shows_nothing'),
    # More errors end a build.
    (MANAGER, '_build_and_run_instance', (32, 31),
     'test_failures.TestHold.test_no_node_anywhere'),
    (MANAGER, '_build_resources', (32, 31),
     'test_failed_nodes.TestNode.test_late_cleanup'),
    # Interrupted operations are not completed, so none of these is called.
    (MANAGER, '_delete_instance', (32, 31), _RESTART),
    ('nova.manager.Manager', '__init__', ALL, _RESTART),
    ('nova.objects.block_device.BlockDeviceMappingList',
     'get_by_instance_uuid', ALL, _RESTART),
    ('nova.objects.instance_action.InstanceActionList',
     'get_by_instance_uuid', ALL, _RESTART),
    # The driver is not given all instances, and evacuated instances are
    # destroyed, whatever the driver returns.
    (MANAGER, 'init_host', ALL,
     'test_many_servers.TestServersAreKept.test_unfinished_evacuation '
     'test_move.TestMove.test_return_after_a_build_was_ended '
     'test_restart.TestOlderNova.test_queued_build '
     'test_standby.TestStandby.test_power_event_during_a_reboot '
     'test_standby.TestStandby.test_queue '
     'test_standby.TestStandby.test_lost_queue'),
    ('nova.virt.driver.ComputeDriver', 'process_instances_at_startup', ALL,
     'test_many_servers.TestStart.test_power_states_after_the_start '
     f'{_RESTART}'),
    # One node after the other.
    (MANAGER, 'update_available_resource', ALL,
     'test_fallback.TestWithoutReservations.test_row_per_node'),
    # All providers instead of the host's.
    (TRACKER, '_update_to_placement', ALL,
     'test_lifecycle.TestInventory.test_classes_and_traits_change'),
    ('nova.scheduler.utils', 'resources_from_flavor', ALL,
     'test_many_servers.TestServersAreKept.test_allocation_is_restored'),
    # Start and end of a process.
    ('nova.service.Service', 'start', ALL,
     'test_assumptions.TestAssumptions.test_waiting_host_does_nothing_else '
     'test_standby.TestStandby.test_service_is_created_during_the_wait'),
    ('nova.service.Service', 'stop', ALL, _STOP),
    (MANAGER, 'cleanup_host', ALL, _STOP),
    # The driver's list of power states serves one of these.
    (MANAGER, '_sync_power_states', ALL,
     'test_many_servers.TestPowerStates.test_one_list_serves_a_sync'),
    # Another function makes the list.
    ('nova.objects.compute_node.ComputeNodeList', 'get_all_by_host', ALL,
     SMOKE),
    (PARENT, 'get_num_instances', ALL,
     'test_lifecycle.TestRequests.test_request_spec'),
    # An image of unknown type ends a build.
    (PARENT, 'spawn', (32, 31),
     'test_failed_nodes.TestNode.test_deploy_fails'),
    # Another list of Ironic's states.
    (PARENT, 'destroy', (32, 31),
     'test_failures.TestHost.test_reservation_is_lost'),
    (PARENT, 'unrescue', (32, 31), _POWER),
    # There is no graphical console.
    (PARENT, 'get_vnc_console _get_vnc_console', (32, 31), _POWER),
    # The cache of interfaces that were detached.
    (MANAGER, '_process_instance_vif_deleted_event', ALL,
     'test_lifecycle.TestHardware.test_interfaces_and_config_drive'),
    # The driver has a rebuild of its own.
    (MANAGER, '_rebuild_default_impl', (31,), ''),
    # Nothing calls these: bare metal servers are not migrated or resized.
    (MANAGER, 'pre_live_migration _do_pre_live_migration revert_resize',
     ALL, ''),
)


@functools.cache
def module(release, name):
    """Parse a module of a release."""
    root = (pathlib.Path(sysconfig.get_path('purelib')) if release == NEWEST
            else TREE / '.tox' / 'nova' / release)
    path = root.joinpath(*name.split('.'))
    if path.is_dir():
        path /= '__init__'
    tree = ast.parse(path.with_suffix('.py').read_text())
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)
                      ) and ast.get_docstring(node, clean=False) is not None:
            node.body[0] = ast.Pass()
    return tree


def members(release, owner):
    """Return the syntax trees in a module or class, by name."""
    name, dot, last = owner.rpartition('.')
    tree = (members(release, name)[last] if last[0].isupper()
            else module(release, owner))
    return {getattr(target, 'id', None) or target.name: node
            for node in tree.body for target in getattr(
                node, 'targets', [node])
            if isinstance(target, (ast.Name, ast.FunctionDef, ast.ClassDef))}


def code(release, owner, name):
    """Return the source text of a name without comments; None without it."""
    node = members(release, owner).get(name)
    # Nova 34 writes two decorators as one.
    return node and ast.unparse(node).replace(
        '@base.remotable_classmethod', '@classmethod\n@base.remotable')


def parameters(release, owner, name):
    """Return the names of a function's parameters, and how many have defaults.

    None if it is no function, or not in the release.
    """
    args = getattr(members(release, owner).get(name), 'args', None)
    return args and (
        [arg.arg for arg in ast.walk(args) if isinstance(arg, ast.arg)],
        len(args.defaults), args.kw_defaults.count(None))


def expand():
    """Return the table as a dict of (releases, tests) by (owner, name)."""
    overrides = re.findall(r'^    def (\w+)\(', (
        TREE / 'nova_driver/driver.py').read_text(), re.MULTILINE)
    calls = re.compile(rf'self\.driver\.({"|".join(overrides)})\b')
    rows = {}
    for owner, names, *difference in TABLE:
        if names in (METHODS, CALLERS):
            names = ' '.join(
                name for release in (NEWEST, *OLDER)
                for name, node in members(release, owner).items()
                if isinstance(node, ast.FunctionDef)
                and (names == METHODS or calls.search(ast.unparse(node))))
        rows |= {(owner, name): tuple(difference) or ((), '')
                 for name in names.split()}
    return rows


def differing(owner, name):
    """Return the numbers of the older releases in which a name differs."""
    return tuple(int(release[:2]) for release in OLDER
                 if code(release, owner, name) != code(NEWEST, owner, name))


def tests(number):
    """Return the tests to run with an older release, sorted.

    Differences that two older releases share are tested with the first of them
    only.
    """
    first = OLDER[0]
    release, = (name for name in OLDER if name.startswith(f'{number}.'))
    return sorted({SMOKE, _METHODS, *(
        test for seam, (releases, names) in expand().items()
        if number in releases and (
            release == first or code(release, *seam) != code(first, *seam))
        for test in names.split())})


if __name__ == '__main__':
    if sys.argv[1:]:
        print('|'.join(name.replace('.', r'\.') + r'(\[|$)'
                       for name in tests(int(sys.argv[1]))))
    else:
        print(*OLDER, sep='\n')
