# SPDX-License-Identifier: Apache-2.0
"""Server groups over racks, claims, metadata and ownership of nodes."""

import pathlib
import uuid

import fixtures
from nova import objects
from nova.scheduler import host_manager
from nova.virt.ironic_reservations import filters
import oslo_messaging as messaging
import testtools

from tests.nova import base
from tests.nova import faults
from tests.nova.faults import OTHER_PROJECT
from tests.nova.faults import PROJECT
from tests.nova.faults import rack_node
from tools import services

EXAMPLES = pathlib.Path(__file__).parents[2] / 'doc/source/examples'


class TestFilters(testtools.TestCase):
    """In a cloud that also has other hypervisors."""

    def test_server_groups(self):
        classes = {cls.__name__: cls for cls in filters.all_filters()}
        self.assertIn('ComputeFilter', classes)
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
                    passes, classes[name]().host_passes(host, spec), policy)


class TestServerGroups(faults.TestCase):
    """With the documented scheduler."""

    fleet = [rack_node(rack)
             for rack in ('r1', 'r1', 'r2', 'r2', 'r3', None)]

    def setUp(self):
        scheduler = services.read_conf(EXAMPLES / 'nova-scheduler.conf')
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

    def boot_in(self, group, host='compute-1', status='ACTIVE'):
        return self.boot(self.gold, status, group, host=host)

    def rack(self, server):
        capabilities = self.ironic.node_of(server).properties.get(
            'capabilities', '')
        return capabilities.partition(':')[2]

    @base.smoke
    def test_affinity(self):
        group = self.server_group('affinity')
        # Nova's filter would refuse the other host.
        servers = [self.boot_in(group, host) for host in base.HOSTS[:2]]
        [rack] = {self.rack(server) for server in servers}
        self.wire.requests.clear()
        third = self.boot_in(group, status='ERROR')
        self.assert_aborted(
            third, 'no free node matches group:pack=capability:rack')
        [body] = self.wire.bodies(*faults.HOLD)
        self.assertEqual(
            {'uuid': group, 'policy': 'pack', 'by': 'capability:rack'},
            body['group'])

    def test_anti_affinity(self):
        group = self.server_group('anti-affinity')
        # Nova's filter would refuse the same host.
        servers = [self.boot_in(group) for _ in range(3)]
        self.assertEqual({'r1', 'r2', 'r3'}, {
            self.rack(server) for server in servers})
        self.assert_aborted(
            self.boot_in(group, 'compute-2', 'ERROR'),
            'no free node matches group:spread=capability:rack')
        # A server without a group is not affected.
        self.assertIn(self.rack(self.boot(self.gold)), ('r1', 'r2', ''))
        # The domain of a group does not change.
        self.flags(group='reservations', server_group_by='shard')
        self.assert_aborted(
            self.boot_in(group, status='ERROR'),
            f'Group {group} already exists with another policy, domain, '
            f'project or request, or with fewer members.')

    def test_pools(self):
        """Members take machines of their project's pools, or of no pool."""
        def list_rack(rack):
            return [node.id for node in self.ironic.nodes()
                    if node.properties.get('capabilities') == f'rack:{rack}']

        self.create_pool(*list_rack('r2'))
        self.create_pool(*list_rack('r3'), project_id=OTHER_PROJECT)
        group = self.server_group('affinity')
        self.assertEqual(['r2', 'r2'], [
            self.rack(self.boot_in(group)) for _ in range(2)])
        group = self.server_group('anti-affinity')
        self.assertEqual('r1', self.rack(self.boot_in(group)))
        self.assert_aborted(
            self.boot_in(group, status='ERROR'),
            'no free node matches group:spread=capability:rack')

    def test_soft_policies(self):
        """Ironic weighs them."""
        for policy, by, expected in (
                ('soft-affinity', 'capability:rack', 'soft-pack'),
                ('soft-anti-affinity', 'trait:CUSTOM_NET_', 'soft-spread')):
            self.flags(group='reservations', server_group_by=by)
            group = self.server_group(policy)
            self.boot_in(group)
            self.assertEqual(
                {'uuid': group, 'policy': expected, 'by': by},
                self.wire.bodies(*faults.HOLD)[-1]['group'])

    def test_claim(self):
        group = self.server_group('anti-affinity')
        self.boot_in(group)
        reservation = self.hold(resource_class='gold', project_id=PROJECT)
        server = self.boot(self.gold, group=group, metadata={
            'reservations:claim': reservation['instance_uuid']})
        self.assertEqual(reservation['node_uuid'],
                         self.ironic.node_of(server).id)
        self.assertEqual(
            [group], [reservation['group']['uuid']
                      for reservation in self.ironic.reservations()
                      if reservation.get('group')])

    def test_groups_cannot_be_read(self):
        original = objects.InstanceGroup.get_by_instance_uuid

        def fail_in_a_cell(context, instance_uuid):
            # The scheduler's call is for a user.
            if context.user_id is None:
                raise messaging.RemoteError(
                    'CantStartEngineError', 'No connection parameter')
            return original(context, instance_uuid)

        self.useFixture(fixtures.MonkeyPatch(
            'nova.objects.InstanceGroup.get_by_instance_uuid',
            staticmethod(fail_in_a_cell)))
        server = self.boot_in(self.server_group('affinity'), status='ERROR')
        self.assert_aborted(
            server, 'its server group could not be looked up')
        self.assertIn('No connection parameter', self.log)
        self.assertEqual([], self.wire.bodies(*faults.HOLD))
        # Without the option they are not read.
        self.flags(group='reservations', server_group_by=None)
        self.boot_in(self.server_group('affinity'))
        [body] = self.wire.bodies(*faults.HOLD)
        self.assertNotIn('group', body)


class TestMetadata(faults.TestCase):

    fleet = [{**faults.NODE, 'name': 'old', 'traits': ['CUSTOM_OLD']},
             {**faults.NODE, 'name': 'new', 'traits': []}]

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

    def assert_fails(self, server, reason):
        """Check that the build fails at the first host."""
        self.assert_aborted(server, reason)
        self.assertEqual(1, len({body['host'] for body in self.wire.bodies(
            *faults.HOLD) if body['instance_uuid'] == server['id']}))
        self.delete(server)

    def name(self, server):
        return self.ironic.node_of(server).name

    @base.smoke
    def test_claim(self):
        claim = self.reserve('old')
        self.reserve('new', host='another')
        # Nodes that can be claimed are not reserved in Placement.
        self.run_periodic()
        server = self.boot_with(claim=claim)
        self.assertEqual('old', self.name(server))
        [reservation] = self.ironic.reservations(node='old')
        self.assertEqual((server['id'], server['OS-EXT-SRV-ATTR:host']),
                         (reservation['instance_uuid'], reservation['host']))

    def test_claim_of_a_segment(self):
        for name in 'old', 'new':
            self.ironic.baremetal.update_node(name, properties={
                **faults.NODE['properties'], 'capabilities': f'rack:{name}'})
        group = str(uuid.uuid4())
        response = self.ironic.http.post('/v1/reservations/groups', json={
            'uuid': group, 'members': 2, 'project_id': PROJECT,
            'levels': [{'by': 'capability:rack', 'policy': 'pack',
                        'segment': 1}],
            'request': {'resource_class': 'gold'}})
        nodes = {row['group']['segment']: row['node_uuid']
                 for row in response.json()['reservations']}
        self.run_periodic()
        for segment in 1, 0:
            server = self.boot_with(claim=f'{group}:{segment}')
            self.assertEqual(nodes[segment], self.ironic.node_of(server).id)
        self.assert_fails(
            self.boot_with('ERROR', claim=f'{group}:2'),
            f'Segment 2 of {group} has no members to claim.')

    def test_failed_claims(self):
        nothing = str(uuid.uuid4())
        for claim, reason in (
                (self.reserve('old', project_id=OTHER_PROJECT),
                 'No reservation or group {} could be found.'),
                (nothing, 'No reservation or group {} could be found.'),
                *((claim, f'claim: must be a UUID, or the UUID of a group, '
                          f'":" and the number of a segment; got "{claim}"')
                  for claim in ('mine', f'{nothing}:one'))):
            self.assert_fails(self.boot_with('ERROR', claim=claim),
                              reason.format(claim))
        theirs = self.reserve('new', host='another')
        self.run_periodic()
        self.assert_fails(
            self.boot_with('ERROR', claim=theirs),
            f'No reservation of {theirs} can be claimed: a compute host '
            f'holds it, or its node is no longer available.')
        self.assertEqual(2, len(self.ironic.reservations()))
        # The reservation does not match the flavor.
        self.ironic.delete(theirs)
        claim = self.reserve('new')
        flavor = self.flavor(**{'trait:CUSTOM_OLD': 'required'})
        self.assert_fails(
            self.boot_with('ERROR', flavor, claim=claim),
            'no free node matches trait:CUSTOM_OLD=required')
        [reservation] = self.ironic.reservations(node='new')
        self.assertEqual(claim, reservation['instance_uuid'])

    def test_claim_in_another_part_of_the_fleet(self):
        claim = self.reserve('old')
        self.ironic.baremetal.update_node('new', shard='a')
        for host in base.HOSTS[:2]:
            self.restart_compute(host, ironic={'shard': 'a'})
        server = self.boot_with('ERROR', claim=claim)
        # A host of the other part might succeed.
        self.assertIn('Exhausted all hosts', server['fault']['message'])
        # So each asks whether the rest of the fleet would do.
        self.assertEqual(
            [(host, names) for host in base.HOSTS[:2]
             for names in ([], ['dry_run'])],
            sorted((body['host'], [*query]) for _, _, body, query
                   in self.wire.calls if body and 'claim' in body))

    def test_other_keys(self):
        for name in 'candidate_nodes', 'trait:CUSTOM_OLD':
            server = self.boot_with('ERROR', **{name: 'required'})
            self.assert_aborted(server, f'metadata reservations:{name} is not '
                                        f'allowed by [reservations] '
                                        f'server_metadata')
        self.assertEqual([], self.wire.bodies(*faults.HOLD))
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
        self.delete(self.boot(self.gold, metadata=metadata))
        self.assertEqual(1, self.log.count(
            'Ignored unknown metadata: reservation:claim (did you mean '
            'reservations:claim?), reservations:candidate_node (did you mean '
            'reservations:candidate_nodes?), reservations:nodes'))
        self.wait_for_free_nodes()
        self.assert_aborted(
            self.boot_with('ERROR', self.flavor(**{
                'reservations:trait:CUSTOM_NEW': 'required'}), nodes='old'),
            'no free node matches trait:CUSTOM_NEW=required; unknown '
            'metadata: reservations:nodes')


class TestOwnership(faults.TestCase):
    fleet = [{**faults.NODE, 'name': 'theirs', 'owner': OTHER_PROJECT},
             {**faults.NODE, 'name': 'free'},
             {**faults.NODE, 'name': 'ours', 'lessee': PROJECT, 'shard': 'a'}]

    def boot_with(self, ownership):
        """Boot a server and return the name of its node."""
        self.flags(group='reservations', ownership=ownership)
        # Ironic sets the project as the lessee of the node.
        return self.ironic.node_of(self.boot(self.flavor())).name

    def assert_no_match(self):
        server = self.boot(self.flavor(), 'ERROR')
        self.assert_aborted(server, 'no free node matches ownership=project')

    def test_ownership(self):
        self.start_compute('compute-1')
        self.assertEqual('ours', self.boot_with('project'))
        self.assert_no_match()
        self.assertEqual('free', self.boot_with('project_or_none'))
        self.assertEqual('theirs', self.boot_with('any'))

    def test_no_other_host_has_a_match(self):
        for host in base.HOSTS[:2]:
            self.start_compute(host, ironic={'shard': 'a'})
        self.boot_with('project')
        self.assert_no_match()
