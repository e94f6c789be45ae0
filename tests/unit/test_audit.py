# SPDX-License-Identifier: Apache-2.0
"""Findings of the audit, and the agreement of the four services."""

import re
import types

import pytest

from ironic_reservations.osc.audit import kinds
from ironic_reservations.osc.audit import reader
from ironic_reservations.osc.audit import repairs
from ironic_reservations.osc.audit.snapshot import Cloud
from ironic_reservations.osc.audit.snapshot import ComputeNode
from ironic_reservations.osc.audit.snapshot import Finding
from ironic_reservations.osc.audit.snapshot import Node
from ironic_reservations.osc.audit.snapshot import Pool
from ironic_reservations.osc.audit.snapshot import Reservation
from ironic_reservations.osc.audit.snapshot import Server

# A cloud without findings: compute-1 and compute-2 have one row and one server
# each. The node "free" has no instance.
SERVERS = {'server-1': Server('compute-1', 'compute-1', 'ACTIVE'),
           'server-2': Server('compute-2', 'compute-2', 'ACTIVE')}
RESERVATIONS = {'server-1': Reservation('node-1', 'compute-1', 'active'),
                'server-2': Reservation('node-2', 'compute-2', 'active')}
NODES = {'node-1': Node('one', 'server-1', 'active'),
         'node-2': Node('two', 'server-2', 'active'),
         'free': Node(None, None, 'available')}
COMPUTE_NODES = {'row-1': ComputeNode('compute-1', 'compute-1'),
                 'row-2': ComputeNode('compute-2', 'compute-2')}
# The compute node of host compute-1 where it is down, and of its node-1.
DOWN = ComputeNode('compute-1', 'compute-1', is_down=True)
OLD = ComputeNode('compute-1', 'node-1')
OVERDUE = Node(None, None, 'available', has_overdue_notice=True)
BROKEN = Node(None, None, 'cleaning', cordon_project='east')
PREPARED = Node(None, None, 'available', cleaning=('clean a', 'clean b'))
ALLOCATIONS = {'server-1': {'row-1'}, 'server-2': {'row-2'}}

# The same, with server-1 and its host on rows per node.
PER_NODE = {'servers': {'server-1': Server('compute-1', 'node-1', 'ACTIVE')},
            'compute_nodes': {'row-1': None, 'node-1': OLD,
                              'free': ComputeNode('compute-1', 'free')},
            'allocations': {'server-1': None},
            'providers': {'row-2', 'node-1', 'free'}}


def cloud(providers=None, **changes):
    """Return the cloud with other values; None removes a key."""
    agreeing = {'servers': SERVERS, 'reservations': RESERVATIONS,
                'nodes': NODES, 'compute_nodes': COMPUTE_NODES,
                'allocations': ALLOCATIONS, 'pools': {}}
    roots = {uuid: uuid for uuid in providers or ('row-1', 'row-2')
             } | {'child-1': 'row-1', 'child-2': 'row-2'}
    return Cloud(providers=roots, **{
        name: {key: value for key, value in (
            agreeing[name] | changes.get(name, {})).items()
            if value is not None} for name in agreeing})


def change(server=None, reservation=None, node=None, **more):
    """Return changes of server-1, of its reservation and of its node."""
    return {name: {key: before._replace(**fields)}
            for name, key, before, fields in (
                ('servers', 'server-1', SERVERS['server-1'], server),
                ('reservations', 'server-1', RESERVATIONS['server-1'],
                 reservation),
                ('nodes', 'node-1', NODES['node-1'], node)) if fields} | more


NO_SERVER, NO_RESERVATION, NO_MACHINE = (
    {'servers': {'server-1': None}}, {'reservations': {'server-1': None}},
    {'nodes': {'node-1': Node('one', None, 'available')}})
NO_ALLOCATION = {'allocations': {'server-1': None}}
# The node of server-1 in a pool.
IN_POOL = {'pools': {'node-1': Pool('pool-1', 'east')}}
# A server that has never had a host, or has left it.
NOWHERE = {'host': None, 'compute_node': None}


AGREEING = {
    'all': {},
    'nothing': {name: dict.fromkeys(values) for name, values in (
        ('servers', SERVERS), ('reservations', RESERVATIONS),
        ('nodes', NODES), ('compute_nodes', COMPUTE_NODES),
        ('allocations', ALLOCATIONS))},
    # A build, from the scheduler's choice to the deployment.
    'chosen': change(NOWHERE | {'status': 'BUILD', 'task': 'scheduling'},
                     **NO_RESERVATION, **NO_MACHINE),
    'claimed': change({'status': 'BUILD', 'task': 'spawning'},
                      **NO_RESERVATION, **NO_MACHINE),
    'held': change({'status': 'BUILD', 'task': 'spawning'},
                   {'state': 'reserved'}, {'state': 'available'}),
    'held by the host before': change(
        NOWHERE | {'status': 'BUILD', 'task': 'spawning'},
        {'state': 'reserved'}, {'state': 'available'}),
    'between two hosts': change(
        {'status': 'BUILD'}, {'host': 'compute-2', 'state': 'reserved'},
        {'state': 'available'}),
    'deploying': change({'status': 'BUILD', 'task': 'spawning'},
                        {'state': 'deploying'}, {'state': 'deploying'}),
    'hold of which only the node was read': change(
        {'status': 'BUILD', 'task': 'spawning'}, None,
        {'state': 'available'}, **NO_RESERVATION),
    'failed and to be cleaned up': change(
        {'status': 'BUILD', 'task': 'spawning'}, {'state': 'error'},
        {'state': 'deploy failed'}),
    'failed build': change(NOWHERE | {'status': 'ERROR'}, **NO_RESERVATION,
                           **NO_MACHINE, **NO_ALLOCATION),
    'build whose host died': change(
        {'status': 'ERROR'}, **NO_RESERVATION, **NO_MACHINE),
    # Actions of a user.
    'stopped': change({'status': 'SHUTOFF'}),
    'rescued': change({'status': 'RESCUE'}, None, {'state': 'rescue'}),
    'rebuilt': change({'status': 'REBUILD', 'task': 'rebuild_spawning'},
                      {'state': 'deploying'}, {'state': 'rebuild'},
                      **NO_ALLOCATION),
    'shelved': change(NOWHERE | {'status': 'SHELVED_OFFLOADED'},
                      **NO_RESERVATION, **NO_MACHINE, **NO_ALLOCATION),
    'failed evacuation': change(
        {'status': 'REBUILD', 'task': 'rebuilding'},
        allocations={'server-1': {'row-1', 'row-2'}}),
    # Blazar's class is allocated from a child of the host's provider.
    'on two providers of one host': {
        'allocations': {'server-1': {'row-1', 'child-1'}}},
    # A deletion, from the tear-down to the cleaning.
    'torn down': change({'task': 'deleting'}, {'state': 'releasing'},
                        {'state': 'deleting'}),
    'torn down after the node was read': change(
        {'task': 'deleting'}, None, None, **NO_RESERVATION),
    'cleaning': change({'task': 'deleting'}, None,
                       {'instance': None, 'state': 'cleaning'},
                       **NO_RESERVATION),
    'deleted': {**NO_SERVER, **NO_RESERVATION, **NO_MACHINE, **NO_ALLOCATION},
    # Nodes that somebody is about to deploy.
    'allocated': {'nodes': {'free': Node(None, 'own', 'available', True)}},
    'prepared and being cleaned': {'nodes': {
        'free': PREPARED._replace(state='cleaning')}},
    'prepared and held since': {
        'nodes': {'free': PREPARED._replace(instance='own')},
        'reservations': {'own': Reservation('free', None, 'reserved')}},
    # Nodes that Nova does not use.
    'leased': change(None, {'state': 'reserved', 'host': None},
                     {'state': 'available'}, **NO_SERVER, **NO_ALLOCATION),
    'deployed by the owner of the reservation': change(
        None, {'host': None}, None, **NO_SERVER, **NO_ALLOCATION),
    'deployed by the owner of the allocation': change(
        None, None, {'has_allocation': True}, **NO_SERVER, **NO_RESERVATION,
        **NO_ALLOCATION),
    'virtual machine': {'servers': {
        'vm': Server('kvm-1', 'kvm-1.example.org', 'ACTIVE')}},
    # Nova does not know at the moment.
    'cell that is down': {'servers': {
        'server-1': Server(None, None, 'UNKNOWN')}},
    'cell that is down, and no reservation': {**NO_RESERVATION, 'servers': {
        'server-1': Server(None, None, 'UNKNOWN')}},
    # The reservations of earlier servers remain.
    'host that was switched back': PER_NODE,
    'host that was switched back, and a server since': {
        **PER_NODE, 'servers': {
            **PER_NODE['servers'],
            'server-3': Server('compute-1', 'free', 'ACTIVE')},
        'nodes': {'free': Node(None, 'server-3', 'active')}},
    'hosts without servers, one with rows per node': {
        'compute_nodes': {'row-3': ComputeNode('compute-3', 'free')},
        'providers': {'row-1', 'row-2', 'row-3'}},
    'server in a pool of its project': change(
        None, {'project': 'east'}, {'lessee': 'west'}, **IN_POOL),
    'leased node in a pool': {**PER_NODE, **IN_POOL, 'nodes': {
        'node-1': Node('one', 'server-1', 'active', lessee='east')}},
    'server of an unknown project in a pool': IN_POOL,
    'free and deleted nodes in a pool': {
        'nodes': {'free': Node(None, None, 'available', lessee='west')},
        'pools': dict.fromkeys(['free', 'gone'], Pool('pool-1', 'east'))},
}


@pytest.mark.parametrize('changes', AGREEING.values(), ids=AGREEING)
def test_agreeing_services(changes):
    assert kinds.find_findings(cloud(**changes)) == []


ONE = 'server-1', 'node-1', 'compute-1'
DISAGREEING = [
    ('lapsed-touched', *ONE, change(
        {'status': 'BUILD', 'task': 'spawning'},
        {'state': 'reserved', 'is_expired': True}, {'state': 'available'})),
    ('lapsed-touched', 'server-1', 'node-1', None, change(
        None, {'state': 'reserved', 'is_expired': True, 'host': None},
        {'state': 'available'}, **NO_SERVER, **NO_ALLOCATION)),
    ('failed', *ONE, change({'status': 'ERROR'}, {'state': 'error'},
                            {'state': 'deploy failed'})),
    ('unavailable', *ONE, change(None, {'state': 'unavailable'},
                                 {'state': 'manageable'})),
    ('no-server', *ONE, {**NO_SERVER, **NO_ALLOCATION}),
    ('no-reservation', *ONE, NO_RESERVATION),
    ('no-reservation', *ONE, change({'task': 'rebooting'},
                                    **NO_RESERVATION)),
    ('no-reservation', *ONE, change({'status': 'ERROR'}, **NO_RESERVATION)),
    ('no-reservation', 'server-1', None, 'compute-1',
     {**NO_RESERVATION, **NO_MACHINE}),
    ('no-allocation', *ONE, NO_ALLOCATION),
    ('no-allocation', *ONE, {'allocations': {'server-1': set()}}),
    # The allocations name another host, two hosts, or the row of a node.
    *(('wrong-allocation', *ONE, {'allocations': {'server-1': providers}})
      for providers in ({'row-2'}, {'row-1', 'row-2'}, {'node-1'},
                        {'row-1', 'child-2'})),
    *(('wrong-allocation', 'gone', None, 'compute-2',
       {'allocations': {'gone': providers}})
      for providers in ({'row-2'}, {'child-2'}, {'row-2', 'child-2'})),
    ('lost-build', 'server-1', None, 'compute-1', change(
        NOWHERE | {'status': 'BUILD', 'task': 'scheduling'},
        compute_nodes={'row-1': DOWN},
        **NO_RESERVATION, **NO_MACHINE)),
    ('lost-build', 'server-1', None, 'compute-1', change(
        {'status': 'BUILD', 'task': 'networking'},
        compute_nodes={'row-1': DOWN},
        **NO_RESERVATION, **NO_MACHINE)),
    ('wrong-host', *ONE, change(None, {'host': 'compute-2'})),
    ('wrong-host', *ONE, change(None, {'host': None})),
    ('wrong-host', 'server-1', 'node-1', None,
     change(NOWHERE | {'status': 'ERROR'}, **NO_ALLOCATION)),
    # Before a migration, servers need no reservation.
    ('per-node-row', *ONE, {**PER_NODE, **NO_RESERVATION}),
    ('per-node-row', *ONE, {**PER_NODE, **NO_RESERVATION, 'servers': {
        'server-1': Server('compute-1', 'node-1', 'ACTIVE', 'rebooting')}}),
    ('per-node-row', *ONE, change(
        {'compute_node': 'node-1'}, **NO_RESERVATION,
        compute_nodes={'node-1': OLD})),
    # The server has lost its machine.
    ('no-reservation', 'server-1', None, 'compute-1',
     {**PER_NODE, **NO_RESERVATION, **NO_MACHINE}),
    # Ironic or Nova no longer has the node.
    ('per-node-row', *ONE, {**PER_NODE, 'nodes': {'node-1': None}}),
    ('per-node-row', *ONE, {**PER_NODE, 'compute_nodes': {'row-1': None},
                            'providers': None}),
    # During a migration. The lists lack the allocation of the node's provider,
    # which may be known nevertheless.
    *(('per-node-row', *ONE, {**PER_NODE, 'providers': None, 'compute_nodes': {
        'node-1': OLD},
        'allocations': {'server-1': providers}})
      for providers in (None, {'node-1'}, {'row-1'}, {'node-1', 'row-1'})),
    ('orphan-node', 'server-1', 'node-1', None,
     {**NO_SERVER, **NO_RESERVATION, **NO_ALLOCATION}),
    ('orphan-node', None, 'free', None,
     {'nodes': {'free': Node(None, None, 'service')}}),
    ('orphan-node', 'gone', 'free', 'compute-3',
     {'nodes': {'free': Node(None, 'gone', 'active')},
      'compute_nodes': {'free': ComputeNode('compute-3', 'free')}}),
    ('unknown-instance', 'unknown', 'free', None,
     {'nodes': {'free': Node(None, 'unknown', 'available')}}),
    ('prepared', None, 'free', None, {'nodes': {'free': PREPARED}}),
    ('pool-conflict', *ONE, change(
        None, {'project': 'west'}, {'lessee': 'east'}, **IN_POOL)),
    ('pool-conflict', 'server-1', 'node-1', 'compute-1', {
        **PER_NODE, **IN_POOL, 'nodes': {
            'node-1': Node('one', 'server-1', 'active', lessee='west')}}),
    ('pool-conflict', 'server-1', 'node-1', None, change(
        None, {'host': None, 'project': 'west'}, **NO_SERVER,
        **NO_ALLOCATION, **IN_POOL)),
    # Deployed by a host with one compute node per node; Ironic sets no lessee.
    ('pool-conflict', 'server-1', 'node-1', 'compute-1', {
        **PER_NODE, **IN_POOL, 'servers': {'server-1': Server(
            'compute-1', 'node-1', 'ACTIVE', project='west')}}),
    ('overdue-notice', None, 'free', None, {'nodes': {'free': OVERDUE}}),
    # The server runs.
    ('overdue-notice', None, 'node-1', None, change(
        None, None, {'has_overdue_notice': True})),
    ('project-cordon', None, 'free', None, {'nodes': {'free': BROKEN}}),
    ('stale-row', None, 'node-1', 'compute-1',
     {'compute_nodes': {'node-1': OLD}}),
    ('stale-row', None, 'free', None,
     {'providers': {'row-1', 'row-2', 'free'}}),
]


@pytest.mark.parametrize(('kind', 'instance', 'node', 'host', 'changes'),
                         DISAGREEING)
def test_findings(kind, instance, node, host, changes):
    audited_cloud = cloud(**changes)
    finding = Finding(kind, instance, node, host)
    assert kinds.find_findings(audited_cloud) == [finding]
    if host:
        assert kinds.find_findings(audited_cloud, host) == [finding]
    assert kinds.find_findings(audited_cloud, 'compute-9') == []
    advice = kinds.describe_action(audited_cloud, finding)
    assert advice and 'None' not in advice


def test_every_kind_is_in_the_table():
    assert {row[0] for row in DISAGREEING} == set(kinds.KINDS)


def test_one_finding_per_server():
    """The machine first, the reservation, the allocation, then the pool."""
    wrong_cloud = cloud(**change(
        None, {'host': 'compute-2', 'project': 'west'}, **NO_ALLOCATION,
        **IN_POOL))
    assert kinds.find_findings(wrong_cloud) == [Finding('wrong-host', *ONE)]
    assert [finding.kind for finding in kinds.find_all_findings(
        wrong_cloud)] == ['wrong-host', 'no-allocation', 'pool-conflict']


# The advice after a change of the cloud.
ADVICE = [
    ('unless the machine is in use: openstack server delete server-1',
     change({'status': 'ERROR'}, {'state': 'error'},
            {'state': 'deploy failed'})),
    ('unless the machine is in use: openstack baremetal node undeploy one',
     change(None, {'state': 'error'}, {'state': 'deploy failed'},
            **NO_SERVER)),
    ('openstack baremetal node provide one',
     change(None, {'state': 'unavailable'}, {'state': 'manageable'})),
    ('openstack baremetal node manage one',
     change(None, {'state': 'unavailable'}, {'state': 'clean failed'})),
    ('wait: node one is cleaning',
     change(None, {'state': 'unavailable'}, {'state': 'cleaning'})),
    (kinds.REPAIR, NO_RESERVATION),
    (kinds.REPAIR, NO_ALLOCATION),
    (kinds.REPAIR, change(None, {'state': 'reserved'},
                          {'state': 'available'}, **NO_SERVER)),
    ('unless host compute-9 belongs to another Nova: openstack baremetal '
     'reservation delete --all-projects server-1',
     change(None, {'state': 'reserved', 'host': 'compute-9'},
            {'state': 'available'}, **NO_SERVER)),
    ('wait: host compute-1 tears it down; if it does not, and the machine is '
     'not in use: openstack baremetal node undeploy one', {**NO_SERVER}),
    ('start nova-compute on host compute-1, which tears it down; without '
     'that host, and if the machine is not in use: openstack baremetal node '
     'undeploy one', {**NO_SERVER, 'compute_nodes': {'row-1': DOWN}}),
    # It may run on a machine that the restored database does not name.
    ("no reservation and no machine; if Ironic's database was restored, see "
     '"Restore a database"', {**NO_RESERVATION, **NO_MACHINE}),
    ('bring its node, which is deploy failed, back to active; if that is '
     'impossible: openstack server delete server-1',
     change(None, None, {'state': 'deploy failed'}, **NO_RESERVATION)),
    ('unless the machine is in use: openstack server delete server-1',
     change({'status': 'BUILD', 'task': 'spawning'},
            {'state': 'reserved', 'is_expired': True},
            {'state': 'available'})),
    ('start nova-compute on host compute-1, which builds it; if that is '
     'impossible: openstack baremetal reservation move --from compute-1 '
     '--to HOST', change(
         NOWHERE | {'status': 'BUILD', 'task': 'scheduling'},
         compute_nodes={'row-1': DOWN}, **NO_RESERVATION, **NO_MACHINE)),
    ('unless the machine is in use: openstack baremetal node undeploy one',
     {**NO_SERVER, **NO_RESERVATION}),
    ('unless the machine is in use: openstack baremetal node undeploy one',
     {**NO_SERVER, **NO_RESERVATION, **NO_ALLOCATION}),
    ('unless it belongs to a virtual machine: openstack resource provider '
     'allocation delete gone', {'allocations': {'gone': {'row-1', 'kvm'}}}),
    # Its host is up and would never give it up.
    ('openstack baremetal reservation set server-1 --host compute-1 --force',
     change(None, {'host': 'compute-2'})),
    ('wait: host compute-2 takes it over; if it does not, its log says why',
     change(None, {'host': 'compute-2'}, compute_nodes={
         'row-1': DOWN})),
    ('openstack baremetal reservation set server-1 --host compute-1 --force',
     change(None, {'host': None}, compute_nodes={
         'row-1': DOWN})),
    ('unless the machine is in use: openstack server delete server-1',
     change(NOWHERE | {'status': 'ERROR'}, **NO_ALLOCATION)),
    # Its disk is in an image, and the host has not undeployed its node.
    ('unless the machine is in use: openstack baremetal node undeploy one',
     change(NOWHERE | {'status': 'SHELVED_OFFLOADED'}, **NO_ALLOCATION)),
    ('unless Nova is moving the server: openstack resource provider '
     'allocation unset --provider row-2 server-1',
     {'allocations': {'server-1': {'row-1', 'row-2'}}}),
    ('unless somebody is about to deploy it: openstack baremetal node unset '
     'one --instance-uuid', {
         **NO_SERVER, **NO_RESERVATION, **NO_ALLOCATION, **NO_MACHINE,
         'nodes': {'node-1': Node('one', 'unknown', 'available')}}),
    ('unless somebody is about to deploy it: clean a; clean b',
     {'nodes': {'free': PREPARED}}),
    ('unless pool pool-1 can wait until the instance is deleted: openstack '
     'baremetal reservation pool replace pool-1 one', change(
         None, {'project': 'west'}, **IN_POOL)),
    ('close it if the work is done, or set another due time: openstack '
     'baremetal reservation notice list --overdue --node free',
     {'nodes': {'free': OVERDUE}}),
    ('repair the machine, which project east has reported: openstack '
     'baremetal reservation notice list --state open --node free',
     {'nodes': {'free': BROKEN}}),
    ('wait: host compute-1 is migrating; its log says how many servers are '
     'left. After migrating back, this is shown until Nova has deleted the '
     'host\'s former compute node, a minute or two',
     {**PER_NODE, 'compute_nodes': {'node-1': OLD}}),
]


@pytest.mark.parametrize(('advice', 'changes'), ADVICE)
def test_advice_for_findings(advice, changes):
    wrong_cloud = cloud(**changes)
    finding, *_ = kinds.find_findings(wrong_cloud)
    assert kinds.describe_action(wrong_cloud, finding) == advice


def test_conditions_come_before_a_command_that_destroys():
    destroys = re.compile(
        'openstack (server delete|baremetal node undeploy|baremetal '
        'reservation (delete|move|pool replace)|resource provider allocation)')
    commands = [advice for advice, _ in ADVICE if destroys.search(advice)]
    assert len(commands) >= 13
    for advice in commands:
        condition, command = advice.split(': openstack ')[-2:]
        assert re.search('unless|if|without', condition)
        assert ';' not in command


def test_build_that_was_given_up():
    """Nova still lists it on its host, where it needs nothing."""
    assert kinds.find_findings(cloud(**change(
        {'status': 'ERROR'}, **NO_RESERVATION, **NO_ALLOCATION,
        **NO_MACHINE))) == []


def test_finding_belongs_to_both_hosts():
    wrong_cloud = cloud(**change(None, {'host': 'compute-2'}))
    for host in 'compute-1', 'compute-2':
        assert kinds.find_findings(wrong_cloud, host) == [
            Finding('wrong-host', *ONE)]


HELD = {'state': 'reserved'}, {'state': 'available'}
STRANGER = {'allocations': {'gone': {'row-2'}}}
PROVIDER = {'providers': {'row-1', 'row-2', 'free'}}

#: Kinds that have a repair, and whether it is made.
REPAIRS = [
    ('no-server', True, change(None, *HELD, **NO_SERVER, **NO_ALLOCATION)),
    ('no-server', False, {**NO_SERVER, **NO_ALLOCATION}),
    *(('no-server', False, change(None, {'state': state}, **NO_SERVER,
                                  **NO_ALLOCATION))
      for state in ('deploying', 'releasing', 'error', 'unavailable')),
    # The host may belong to another Nova.
    ('no-server', False, change(
        None, HELD[0] | {'host': 'compute-9'}, HELD[1], **NO_SERVER,
        **NO_ALLOCATION)),
    *(('no-reservation', True, change({'status': status}, None,
                                      {'state': state}, **NO_RESERVATION))
      for status, state in (('ACTIVE', 'active'), ('ERROR', 'active'),
                            ('RESCUE', 'rescue'))),
    ('no-reservation', False, change({'task': 'rebooting'},
                                     **NO_RESERVATION)),
    # The deployed image is lost, or may be.
    *(('no-reservation', False, change(None, None, {'state': state},
                                       **NO_RESERVATION))
      for state in ('available', 'manageable', 'deploy failed', 'error')),
    ('no-reservation', False, {**NO_RESERVATION, **NO_MACHINE}),
    ('no-reservation', False, change(NOWHERE, **NO_RESERVATION)),
    ('no-allocation', True, NO_ALLOCATION),
    ('no-allocation', False, change(None, {'host': 'compute-2'},
                                    **NO_ALLOCATION)),
    ('no-allocation', False, {**NO_RESERVATION, **NO_ALLOCATION}),
    ('wrong-allocation', True, {'allocations': {'server-1': {'row-2'}}}),
    ('wrong-allocation', True, {'allocations': {'server-1': {'node-1'}}}),
    ('wrong-allocation', False,
     {'allocations': {'server-1': {'row-1', 'row-2'}}}),
    ('wrong-allocation', False,
     {'allocations': {'server-1': {'row-2', 'child-2'}}}),
    ('wrong-allocation', True, {'allocations': {'gone': {'child-2'}}}),
    ('wrong-allocation', False, change(
        None, {'host': 'compute-2'},
        allocations={'server-1': {'row-2'}})),
    ('wrong-allocation', False, {**PER_NODE, 'allocations': {
        'server-1': {'row-2'}}}),
    ('wrong-allocation', True, STRANGER),
    # One provider is the host of a virtual machine.
    ('wrong-allocation', False, {'allocations': {'gone': {'row-2', 'kvm'}}}),
    # Its machine is held or deployed.
    ('wrong-allocation', False, NO_SERVER),
    ('wrong-allocation', False, {**NO_SERVER, **NO_RESERVATION}),
    ('wrong-allocation', False, {**NO_SERVER, **NO_MACHINE}),
    ('stale-row', True, PROVIDER),
    ('stale-row', False, {'compute_nodes': {'node-1': OLD}}),
]


@pytest.mark.parametrize(('kind', 'may_repair', 'changes'), REPAIRS)
def test_allowed_repairs(kind, may_repair, changes):
    wrong_cloud = cloud(**changes)
    finding, = [finding for finding in kinds.find_all_findings(wrong_cloud)
                if finding.kind == kind]
    assert kinds.KINDS[kind].may_repair(wrong_cloud, finding) == may_repair


def test_every_repair_is_in_the_table():
    assert {row[0] for row in REPAIRS} == {
        name for name, kind in kinds.KINDS.items() if kind.repair}


@pytest.mark.parametrize(('extra_specs', 'image', 'resources'), [
    ({}, {'id': 'x'}, {'VCPU': 2, 'MEMORY_MB': 512, 'DISK_GB': 14}),
    ({}, '', {'VCPU': 2, 'MEMORY_MB': 512, 'DISK_GB': 4}),
    ({'resources:VCPU': '0', 'resources:MEMORY_MB': '0',
      'resources:DISK_GB': '0', 'resources:CUSTOM_GOLD': '1',
      'trait:CUSTOM_GOLD': 'required', 'capabilities:x': '1'}, '',
     {'CUSTOM_GOLD': 1}),
    ({'resources1:DISK_GB': '1', 'resources_a:DISK_GB': '2'}, '',
     {'VCPU': 2, 'MEMORY_MB': 512, 'DISK_GB': 3}),
])
def test_resources_of_an_allocation(extra_specs, image, resources):
    flavor = {'vcpus': 2, 'ram': 512, 'disk': 10, 'ephemeral': 2,
              'swap': 1025, 'extra_specs': extra_specs}
    server = {'flavor': flavor, 'image': image}
    assert repairs.sum_resources(server) == resources


def test_row_in_a_cell_that_does_not_answer():
    service = types.SimpleNamespace(status='UNKNOWN')
    sdk = types.SimpleNamespace(
        compute=types.SimpleNamespace(services=lambda: [service]))
    command = types.SimpleNamespace(app=types.SimpleNamespace(
        client_manager=types.SimpleNamespace(sdk_connection=sdk)))
    with pytest.raises(repairs.Refusal, match='a cell does not respond'):
        kinds.KINDS['stale-row'].repair(command, None, Finding(
            'stale-row', None, 'free', None))


def test_stale_compute_node_whose_node_was_deleted():
    """Nova and Ironic no longer have it when the repair reads it again."""
    missing = types.SimpleNamespace(
        get=lambda *args, **kwargs: types.SimpleNamespace(status_code=404))
    sdk = types.SimpleNamespace(compute=missing, placement=missing)
    command = types.SimpleNamespace(app=types.SimpleNamespace(
        client_manager=types.SimpleNamespace(sdk_connection=sdk)))
    stale_cloud = cloud(
        compute_nodes={'node-9': ComputeNode('compute-1', 'node-9')})
    finding, = kinds.find_findings(stale_cloud)
    assert finding == Finding('stale-row', None, 'node-9', 'compute-1')
    details = reader.Reader(command, None).read_details(stale_cloud, finding)
    assert details.cloud.nodes == {}
