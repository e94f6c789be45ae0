# SPDX-License-Identifier: Apache-2.0
"""The scripts for NVIDIA's suite print what its documentation describes."""

import json
import types

import pytest

from tests.cloud.operator import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

EVENT = {'machine_id', 'status', 'message', 'category', 'action', 'ticket_id',
         'opened_at', 'updated_at', 'starts_at', 'closed_at'}
NOTIFICATION = {'machine_id', 'type', 'message', 'notified_at'}
MAILED_AT = '2098-12-31T00:00:00+00:00'
FUTURE = '2099-01-01T00:00:00Z'


@pytest.fixture
def gpus(shared_cloud):
    """Eight GPUs in each machine of two racks, as an operator records them."""
    def replace(before, after):
        shared_cloud.sql(
            'ironic', 'UPDATE nodes SET properties = '
                      'REPLACE(properties, :before, :after)',
            before=before, after=after)
    replace('pod:p1', 'gpus:8,pod:p1')
    yield
    replace('gpus:8,', '')


@pytest.fixture
def machines(shared_cloud, gpus, no_notices, reservations):
    """A segment of two machines of rack r2 that a project has."""
    project = shared_cloud.demo.current_project_id
    group = reservations.create_group(
        2, {'extra_specs': {'capabilities:rack': 'r2'}},
        project_id=project, expires_in=600, levels=[
            {'by': 'capability:rack', 'policy': 'pack', 'segment': 2}])
    for row, health in zip(group.reservations, ('OK', 'Critical'),
                           strict=True):
        set_health(shared_cloud, health, row['node_uuid'])
    yield types.SimpleNamespace(
        project=project, group=group.uuid,
        good=group.reservations[0]['node_uuid'],
        bad=group.reservations[1]['node_uuid'])
    reservations.release_group(group)
    set_health(shared_cloud, None)


def set_health(cloud, health, node='%'):
    """Set the health, for which Ironic asks the BMC."""
    cloud.sql('ironic', 'UPDATE nodes SET health = :h WHERE uuid LIKE :n',
              h=health, n=node)


def test_pinned_machines(shared_cloud, reservations, run_script):
    project = shared_cloud.demo.current_project_id
    result = run_script(
        'capacity_reservation_grouping', 'system', '--account-id', project,
        '--resource-class', 'baremetal.gold', '--resource-count', '2')
    assert result.pop('reservation_id')
    resources = result.pop('resources')
    assert len({row.pop('resource_id') for row in resources}) == 2
    assert resources == [{'resource_type': 'compute', 'account_id': project,
                          'pinned': True}] * 2
    assert result == {'account_id': project, 'pinned': True,
                      'isolation_enforced': True}
    assert not list(reservations.pools())


def test_capacity(machines, reservations, run_script):
    block = run_script(
        'topology_block_atomic_allocation', 'system', '--tenant-id',
        machines.project, '--topology-block-id', 'r1', '--requested-compute',
        '3', '--requested-network', '0', '--requested-storage', '0'
    )['topology_block']
    resources = block.pop('resources')
    assert block.pop('reservation_id')
    assert block == {
        'block_id': 'r1', 'tenant_id': machines.project,
        'allocated_as_unit': True, 'partial_allocation': False,
        'homogeneous': True, 'isolation_enforced': True,
        **dict.fromkeys(('requested', 'allocated'), {
            'compute': 3, 'network': 0, 'storage': 0})}
    assert len({row.pop('resource_id') for row in resources}) == 3
    assert resources == [{
        'resource_type': 'compute', 'tenant_id': machines.project,
        'topology_block_id': 'r1', 'performance_domain': 'r1',
        'isolation_boundary': machines.project}] * 3

    def check_numbers(user, total):
        result = run_script('query_governance_metrics', user)
        assert result['machine_count'] == total
        assert {name: row['nodes'] for name, row
                in result['metrics'].items()} == {
            'delivered': total, 'healthy': total - 1, 'reserved': 2,
            'active': 0}
        assert result['metrics']['reserved']['gpus'] == 16

    # The capacity is cached. The numbers of the project, and of all:
    eventually(lambda: check_numbers('demo', 2))
    eventually(lambda: check_numbers('system', 12))
    result = run_script('query_fleet_inventory', 'system')
    nodes = {row.pop('node_id'): row for row in result['nodes']}
    assert len(nodes) == result['nodes_checked'] == 12
    reservation, = reservations.list(node=machines.bad)
    assert nodes[machines.bad].pop('created_at')
    assert nodes.pop(machines.bad) == {
        'health_state': 'unhealthy', 'hardware_type': 'baremetal.gold',
        'instance_id': reservation.instance_uuid, 'gpu_count': 8,
        'account_id': 'default', 'project_id': machines.project,
        'in_use': False, 'region': 'RegionOne'}
    assert {row['health_state'] for row in nodes.values()} == {'healthy'}
    assert sum(row['project_id'] == '' for row in nodes.values()) == 10


def test_health(machines, run_script):
    result = run_script('query_host_health', 'demo')
    hosts = {row.pop('host_id'): row for row in result['hosts']}
    assert result['hosts_checked'] == 2
    unknown = {'chassis_serial': '', 'status': 'available',
               'observed_age_seconds': None, 'probe_ids': [],
               'components': {}, 'health_present': True}
    assert hosts == {
        machines.good: {**unknown, 'healthy': True, 'alerts': []},
        machines.bad: {**unknown, 'healthy': False, 'alerts': [{
            'id': 'health', 'target': 'BMC', 'classifications': ['Critical'],
            'message': 'The health is Critical'}]}}
    result = run_script('query_health_aggregation', 'demo')
    assert result == {'aggregation_level': 'reservation', 'groups': [{
        'group_id': machines.group, 'group_type': 'reservation',
        'name': machines.group, 'total': 2, 'healthy': 1, 'unhealthy': 1,
        'status': 'Degraded', 'unhealthy_hosts': [machines.bad]}]}


def test_return(cloud, no_notices, reservations, run_script):
    """An operator cordons the machine, and the project deletes its server."""
    server, = cloud.boot_active(1, by=cloud.demo)
    machine = reservations.show(server)
    assert run_script('return_node_maintenance', 'demo', '--instance-id',
                      server, '--operator-cloud', 'system')['operation'] == {
        'requested': True, 'accepted': True, 'instance_deleted': True,
        'machine_quarantined': True, 'instance_id': server,
        'machine_id': machine.node_uuid}
    assert not cloud.servers()

    def assert_only_cordoned():
        """The machine is clean, and nothing but the cordon keeps it back."""
        assert {row['by'] for row in reservations.dry_run(
            candidate_nodes=[machine.node_uuid])['explanation']['eliminated']
        } == {'candidate_nodes', 'cordoned'}

    eventually(assert_only_cordoned)


def test_break_fix(machines, reservations, run_script, tmp_path):
    rack = {machines.good, machines.bad}
    assert run_script('report_node_repair', 'demo', '--machine-id',
                      machines.bad)['operation'] == {
        'requested': True, 'repair_state_observed': True, 'restored': True,
        'node_id': machines.bad}
    operation = run_script('return_rack_maintenance', 'demo', '--rack-id',
                           'r2')['operation']
    assert set(operation.pop('machine_ids')) == rack
    assert operation == {'requested': True, 'accepted': True,
                         'rack_id': 'r2'}
    repairs = {row['machine_id']: row['entries'] for row in run_script(
        'query_repair_history', 'demo')['records']}
    assert rack <= repairs.keys()
    entry = repairs[machines.bad][-1]
    assert entry.keys() == EVENT
    assert (entry['status'], entry['action']) == ('closed', 'Only a test')
    assert entry['opened_at'] <= entry['updated_at'] <= entry['closed_at']
    # What the operator announces reaches the project that has the machine.
    deliveries = tmp_path / 'deliveries'
    with open(deliveries, 'w') as file:
        for kind, times in (
                ('maintenance', {'starts_at': FUTURE}), ('fault', {}),
                ('retirement', {'starts_at': FUTURE})):
            for notice in reservations.create_notices(
                    kind, by={'capability:rack': 'r2'}, description=kind,
                    ticket='T-1', **times):
                # What the example of mails records.
                print(json.dumps({
                    'delivered_at': MAILED_AT, 'uuid': notice.uuid,
                    'node_uuid': notice.node_uuid,
                    'project_id': machines.project}), file=file)
    for script, key, name, more, *args in (
            ('query_maintenance_events', 'events', 'maintenance', EVENT),
            ('query_retirement_notices', 'notices', 'retirement',
             EVENT | {'retire_after'}),
            ('query_planned_notifications', 'notifications', 'maintenance',
             NOTIFICATION | {'window_start'}, '--deliveries', deliveries),
            ('query_failure_notifications', 'notifications', 'fault',
             NOTIFICATION | {'detected_at'}, '--deliveries', deliveries)):
        result = run_script(script, 'demo', *map(str, args))
        rows = [row for row in result.pop(key) if row['message'] == name]
        assert {row['machine_id'] for row in rows} == rack
        for row in rows:
            assert row.keys() == more
        # The flag that the suite requires for this.
        assert list(result.values()) == [True]
    # The machine is replaced by the third of its rack.
    operation = run_script('request_host_replacement', 'system',
                           '--machine-id', machines.bad)['operation']
    members = {row.node_uuid for row in reservations.list(
        group=machines.group)}
    assert members == {machines.good, operation['replacement_id']}
    assert machines.bad not in members
    assert operation['node_removed_from_pool']
    assert operation['machine_id'] == machines.bad
    # The project no longer has it.
    result = run_script('report_node_repair', 'demo', '--machine-id',
                        machines.bad, status=1)
    assert 'is not reserved' in result['error']
