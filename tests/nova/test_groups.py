# SPDX-License-Identifier: Apache-2.0
"""Server groups over racks, claims, and whose nodes a server may have."""

import pathlib
import uuid

import fixtures
from nova import objects
from nova.scheduler import host_manager
from nova.tests import fixtures as nova_fixtures
from nova.virt.ironic_reservations import filters
import oslo_messaging as messaging
import testtools

from tests.nova import base
from tests.nova import faults
from tools import services

DOCUMENTED = pathlib.Path(__file__).parents[2] / 'doc' / 'source'
PROJECT, OTHER = nova_fixtures.PROJECT_ID, uuid.uuid4().hex


def node(rack=None, **fields):
    return {**faults.NODE, **fields, 'properties': {
        **faults.NODE['properties'],
        **({'capabilities': f'rack:{rack}'} if rack else {})}}


class TestFilters(testtools.TestCase):
    """In a cloud that has hosts of other kinds, too."""

    def test_server_groups(self):
        known = {each.__name__: each for each in filters.all_filters()}
        self.assertIn('ComputeFilter', known)
        member, host = str(uuid.uuid4()), host_manager.HostState(
            'host', 'host', str(uuid.uuid4()))
        host.instances = {member: None}
        for policy, name, where in (
                ('affinity', 'ServerGroupAffinityFilter', 'elsewhere'),
                ('anti-affinity', 'ServerGroupAntiAffinityFilter', 'host')):
            spec = objects.RequestSpec(
                instance_uuid=str(uuid.uuid4()),
                instance_group=objects.InstanceGroup(
                    policy=policy, policies=[policy], rules={},
                    hosts=[where], members=[member]))
            for kind, passes in ('QEMU', False), ('ironic', True):
                host.hypervisor_type = kind
                self.assertEqual(
                    passes, known[name]().host_passes(host, spec), policy)


class TestServerGroups(faults.TestCase):
    """With the scheduler as it is documented."""

    fleet = [node(rack) for rack in ('r1', 'r1', 'r2', 'r2', 'r3', None)]

    def setUp(self):
        scheduler = services.read_conf(DOCUMENTED / 'nova-scheduler.conf')
        for name in 'available_filters', 'enabled_filters':
            self.flags(group='filter_scheduler', **{
                name: scheduler['filter_scheduler'][name].split(',')})
        self.flags(group='workarounds',
                   disable_group_policy_check_upcall=True)
        super().setUp()
        self.flags(group='reservations', server_group_by='capability:rack')
        for host in base.HOSTS[:2]:
            self.start_compute(host)
        self.gold = self.flavor()

    def group(self, policy):
        return self.api.post_server_groups(
            {'name': policy, 'policy': policy})['id']

    def boot_in(self, group, host='compute-1', status='ACTIVE'):
        return self.boot(self.gold, status, group, host=host)

    def rack(self, server):
        capabilities = self.ironic.node_of(server).properties.get(
            'capabilities', '')
        return capabilities.partition(':')[2]

    @base.smoke
    def test_affinity(self):
        group = self.group('affinity')
        # Nova's filter would refuse the other host.
        together = [self.boot_in(group, host) for host in base.HOSTS[:2]]
        [rack] = {self.rack(each) for each in together}
        self.wire.requests.clear()
        third = self.boot_in(group, status='ERROR')
        self.assert_aborted(
            third, 'no free node matches group:pack=capability:rack')
        [asked] = self.wire.sent(*faults.HOLD)
        self.assertEqual(
            {'uuid': group, 'policy': 'pack', 'by': 'capability:rack'},
            asked['group'])

    def test_anti_affinity(self):
        group = self.group('anti-affinity')
        # Nova's filter would refuse the same host.
        apart = [self.boot_in(group) for _ in range(3)]
        self.assertEqual({'r1', 'r2', 'r3'}, {
            self.rack(each) for each in apart})
        self.assert_aborted(
            self.boot_in(group, 'compute-2', 'ERROR'),
            'no free node matches group:spread=capability:rack')
        # Of no group.
        self.assertIn(self.rack(self.boot(self.gold)), ('r1', 'r2', ''))
        # It stays in the domains in which it was begun.
        self.flags(group='reservations', server_group_by='shard')
        self.assert_aborted(
            self.boot_in(group, status='ERROR'),
            f'Group {group} is in use with another policy, domain, project '
            f'or request.')

    def test_soft_policies(self):
        """Ironic weighs them."""
        for policy, meant in (('soft-affinity', 'soft-pack'),
                              ('soft-anti-affinity', 'soft-spread')):
            self.boot_in(self.group(policy))
            self.assertEqual(
                meant, self.wire.sent(*faults.HOLD)[-1]['group']['policy'])

    def test_claim(self):
        group = self.group('anti-affinity')
        self.boot_in(group)
        claimed = self.hold(resource_class='gold', project_id=PROJECT)
        server = self.boot(self.gold, group=group, metadata={
            'reservations:claim': claimed['instance_uuid']})
        self.assertEqual(claimed['node_uuid'], self.ironic.node_of(server).id)
        self.assertEqual(
            [group], [each['group']['uuid']
                      for each in self.ironic.reservations()
                      if each.get('group')])

    def test_groups_are_not_known(self):
        look_up = objects.InstanceGroup.get_by_instance_uuid

        def of_a_cell(context, instance_uuid):
            # The scheduler's call is for a user.
            if context.user_id is None:
                raise messaging.RemoteError(
                    'CantStartEngineError', 'No connection parameter')
            return look_up(context, instance_uuid)

        self.useFixture(fixtures.MonkeyPatch(
            'nova.objects.InstanceGroup.get_by_instance_uuid',
            staticmethod(of_a_cell)))
        server = self.boot_in(self.group('affinity'), status='ERROR')
        self.assert_aborted(
            server, 'its server group could not be looked up')
        self.assertIn('No connection parameter', self.log)
        self.assertEqual([], self.wire.sent(*faults.HOLD))
        # Without the option nobody looks.
        self.flags(group='reservations', server_group_by=None)
        self.boot_in(self.group('affinity'))
        [asked] = self.wire.sent(*faults.HOLD)
        self.assertNotIn('group', asked)


class TestChosen(faults.TestCase):
    """What a server's metadata says."""

    fleet = [{**node(), 'name': 'old', 'traits': ['CUSTOM_OLD']},
             {**node(), 'name': 'new', 'traits': []}]

    def setUp(self):
        super().setUp()
        for host in base.HOSTS[:2]:
            self.start_compute(host)
        self.gold = self.flavor()

    def reserve(self, name, **body):
        return self.hold(candidate_nodes=[name], **{
            'project_id': PROJECT, **body})['instance_uuid']

    def boot_with(self, status='ACTIVE', flavor=None, **metadata):
        return self.boot(flavor or self.gold, status, metadata={
            f'reservations:{key}': value for key, value in metadata.items()})

    def assert_ends(self, server, reason):
        """The build ends with this reason, at the first host."""
        self.assert_aborted(server, reason)
        self.assertEqual(1, len({body['host'] for body in self.wire.sent(
            *faults.HOLD) if body['instance_uuid'] == server['id']}))
        self.delete(server)

    def name(self, server):
        return self.ironic.node_of(server).name

    @base.smoke
    def test_claim(self):
        claimed = self.reserve('old')
        self.reserve('new', host='another')
        # What can be claimed is not reserved in Placement.
        self.run_periodic()
        server = self.boot_with(claim=claimed)
        self.assertEqual('old', self.name(server))
        [held] = self.ironic.reservations(node='old')
        self.assertEqual((server['id'], server['OS-EXT-SRV-ATTR:host']),
                         (held['instance_uuid'], held['host']))

    def test_claim_in_vain(self):
        nothing = str(uuid.uuid4())
        for claim, reason in (
                (self.reserve('old', project_id=OTHER),
                 'No reservation and no group {} could be found.'),
                (nothing, 'No reservation and no group {} could be found.'),
                ('mine', 'claim: must be a UUID such as 5a4ac6d9-0c1a-4b6d-'
                         '8d6b-0b6f0e8a2c1e')):
            self.assert_ends(self.boot_with('ERROR', claim=claim),
                             reason.format(claim))
        theirs = self.reserve('new', host='another')
        self.run_periodic()
        self.assert_ends(
            self.boot_with('ERROR', claim=theirs),
            f'Nothing of {theirs} can be claimed: a compute host has it, or '
            f'its node is no longer available.')
        self.assertEqual(2, len(self.ironic.reservations()))
        # What does not match.
        self.ironic.delete(theirs)
        claimed = self.reserve('new')
        flavor = self.flavor(**{'trait:CUSTOM_OLD': 'required'})
        self.assert_ends(
            self.boot_with('ERROR', flavor, claim=claimed),
            'no free node matches trait:CUSTOM_OLD=required')
        [held] = self.ironic.reservations(node='new')
        self.assertEqual(claimed, held['instance_uuid'])

    def test_claim_in_another_part_of_the_fleet(self):
        claimed = self.reserve('old')
        self.ironic.baremetal.update_node('new', shard='a')
        for host in base.HOSTS[:2]:
            self.restart_compute(host, ironic={'shard': 'a'})
        server = self.boot_with('ERROR', claim=claimed)
        # A host of the other part might do better.
        self.assertIn('Exhausted all hosts', server['fault']['message'])
        self.assertEqual(
            [(host, {}) for host in base.HOSTS[:2]],
            sorted((body['host'], query) for _, _, body, query
                   in self.wire.calls if body and 'claim' in body))

    def test_other_keys(self):
        for name in 'candidate_nodes', 'trait:CUSTOM_OLD':
            server = self.boot_with('ERROR', **{name: 'required'})
            self.assert_aborted(server, f'metadata reservations:{name} is not '
                                        f'allowed by [reservations] '
                                        f'server_metadata')
        self.assertEqual([], self.wire.sent(*faults.HOLD))
        self.flags(group='reservations', server_metadata=[
            'candidate_nodes', 'trait'])
        self.wait_for_free_nodes()
        for name, metadata in (
                ('old', {'candidate_nodes': 'nothing, old'}),
                ('new', {'trait:CUSTOM_OLD': 'forbidden'}),
                ('old', {'trait:CUSTOM_OLD': 'required'})):
            server = self.boot_with(**metadata)
            self.assertEqual(name, self.name(server), metadata)
            self.delete(server)
            self.wait_for_free_nodes()
        flavor = self.flavor(**{
            'reservations:trait:CUSTOM_OLD': 'forbidden'})
        self.assert_aborted(
            self.boot_with('ERROR', flavor,
                           **{'trait:CUSTOM_OLD': 'required'}),
            'reservations:trait:CUSTOM_OLD=required contradicts its flavor')

    def test_unknown_keys(self):
        metadata = {'reservations:candidate_node': 'old', 'claims': 'x',
                    'reservation:claim': 'x', 'reservations:nodes': 'old'}
        known = ('reservation:claim (did you mean reservations:claim?), '
                 'reservations:candidate_node (did you mean '
                 'reservations:candidate_nodes?), reservations:nodes')
        self.delete(self.boot(self.gold, metadata=metadata))
        self.assertEqual(1, self.log.count(
            f'Ignored unknown metadata: {known}'))
        self.wait_for_free_nodes()
        self.assert_aborted(
            self.boot_with('ERROR', self.flavor(**{
                'reservations:trait:CUSTOM_NEW': 'required'}), nodes='old'),
            'no free node matches trait:CUSTOM_NEW=required; unknown '
            'metadata: reservations:nodes')


class TestOwnership(faults.TestCase):
    fleet = [{**node(owner=OTHER), 'name': 'theirs'},
             {**node(), 'name': 'free'},
             {**node(lessee=PROJECT, shard='a'), 'name': 'ours'}]

    def boot_as(self, ownership):
        self.flags(group='reservations', ownership=ownership)
        # Ironic makes the project the lessee of where it deploys.
        return self.ironic.node_of(self.boot(self.flavor())).name

    def assert_in_vain(self):
        server = self.boot(self.flavor(), 'ERROR')
        self.assert_aborted(server, 'no free node matches ownership=project')

    def test_ownership(self):
        self.start_compute('compute-1')
        self.assertEqual('ours', self.boot_as('project'))
        self.assert_in_vain()
        self.assertEqual('free', self.boot_as('project_or_none'))
        self.assertEqual('theirs', self.boot_as('any'))
        # An Ironic that is not upgraded yet does not know the key.
        self.assertNotIn('ownership', self.wire.sent(*faults.HOLD)[-1])

    def test_whether_another_host_could_do_better(self):
        for host in base.HOSTS[:2]:
            self.start_compute(host, ironic={'shard': 'a'})
        self.boot_as('project')
        self.assert_in_vain()
