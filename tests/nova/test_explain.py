# SPDX-License-Identifier: Apache-2.0
"""The command "explain", and commands with a server's name."""

import json
import uuid

from tests.nova import audits
from tests.nova import base
from tests.nova import faults

SPREAD = 'group:spread=capability:rack'


class TestCase(audits.Command, faults.TestCase):

    fleet = [faults.rack_node('r1', name='old', traits=['CUSTOM_OLD']),
             faults.rack_node('r1', name='new'),
             faults.rack_node('r2', name='newer')]

    def setUp(self):
        super().setUp()
        self.flags(group='reservations', server_group_by='capability:rack',
                   server_metadata=['claim', 'candidate_nodes', 'trait'])
        self.start_compute(base.HOSTS[0])
        self.gold = self.flavor()

    def explain(self, server, status=1, stderr=''):
        """Return the columns about a server."""
        result = self.command('explain', server['id'])
        self.assertEqual((status, stderr), (result.returncode, result.stderr))
        return json.loads(result.stdout)

    def error(self, *args):
        result = self.command(*args, as_json=False)
        self.assertEqual((1, ''), (result.returncode, result.stdout))
        return result.stderr


class TestExplain(TestCase):

    @base.smoke
    def test_group(self):
        group = self.server_group('anti-affinity')
        self.flags(group='workarounds', disable_group_policy_check_upcall=True)
        # No member of the group has a rack yet.
        first = self.boot(self.gold, 'ERROR', group, metadata={
            'reservations:candidate_nodes': 'nothing'})
        columns = self.explain(first, stderr=(
            'No node nothing was found. Known: new, newer, old.\n'))
        self.assertEqual(
            'spread, not considered: no member has a machine, and only the '
            'compute hosts know the domain ([reservations] server_group_by)',
            columns['group'])
        self.assertEqual([{'by': 'candidate_nodes', 'nodes': 3}],
                         columns['explanation']['eliminated'])
        self.hold(resource_class='gold', candidate_nodes=['newer'], group={
            'uuid': group, 'policy': 'spread', 'by': 'capability:rack'},
            project_id=faults.PROJECT)
        second = self.boot(self.gold, 'ERROR', group, metadata={
            'reservations:candidate_nodes': 'newer'})
        columns = self.explain(second)
        self.assertEqual('spread by capability:rack, members in r2: 1',
                         columns['group'])
        self.assertEqual(0, columns['matching_nodes'])
        self.assertIn({'by': SPREAD, 'nodes': 1},
                      columns['explanation']['eliminated'])

    def test_pool(self):
        """A server takes a machine of its project's pool, or of no pool."""
        self.create_pool('old')
        self.create_pool('new', project_id=faults.OTHER_PROJECT)
        # The trait makes the first one the worst fit.
        servers = [self.boot(self.gold) for _ in range(2)]
        self.assertEqual(['old', 'newer'], [
            self.explain(server, status=0)['node_name'] for server in servers])
        server = self.boot(self.gold, 'ERROR')
        self.assert_aborted(server, 'no matching node is free (pool)')
        columns = self.explain(server)
        self.assertEqual(
            [{'by': 'pool', 'nodes': 1}, {'by': 'reserved', 'nodes': 2}],
            columns['explanation']['eliminated'])
        # Its project's machine is free again.
        self.delete(servers[0])
        self.wait_for_free_nodes()
        columns = self.explain(server, status=0)
        self.assertEqual(1, columns['matching_nodes'])

    def test_claim(self):
        claim = str(uuid.uuid4())
        flavor = self.flavor(**{'trait:CUSTOM_OLD': 'required'})
        server = self.boot(flavor, 'ERROR', metadata={
            'reservations:claim': claim})
        request = {'instance_uuid': claim, 'project_id': faults.PROJECT}
        other = faults.OTHER_PROJECT
        for candidate, more, text, causes in (
                (None, {}, f'No reservation or group {claim} could be found.',
                 None),
                ('old', {'project_id': other}, f'{claim} belongs to project '
                                               f'{other}', None),
                ('old', {'host': 'another'}, f'No reservation of {claim} can '
                                             f'be claimed: ', None),
                ('new', {}, '', [{'by': 'trait:CUSTOM_OLD=required',
                                  'nodes': 1}]),
                ('old', {}, '', [])):
            if candidate:
                self.hold(candidate_nodes=[candidate], **request | more)
            columns = self.explain(server, status=0 if causes == [] else 1)
            self.assertIn(server['id'], columns['fault'])
            self.assertEqual(causes == [], columns['matching_nodes'] == 1)
            self.assertTrue(columns.get('claim', '').startswith(text))
            self.assertEqual(
                causes, columns.get('explanation', {}).get('eliminated'))
            if candidate:
                self.ironic.delete(claim)
        # The reservations of a group.
        self.ironic.http.post('/v1/reservations/groups', json={
            'uuid': claim, 'members': 3, 'project_id': faults.PROJECT,
            'request': {'resource_class': 'gold'}}).raise_for_status()
        columns = self.explain(server, status=0)
        self.assertEqual(1, columns['matching_nodes'])
        self.assertEqual(3, columns['explanation']['considered'])
        # The option describes the same claim.
        result = self.command('explain', '--claim', claim,
                              '--resource-class', 'gold')
        self.assertEqual((1, f'{claim} belongs to project '), (
            result.returncode,
            json.loads(result.stdout)['claim'][:len(claim) + 20]))
        self.ironic.execute('UPDATE nodes SET maintenance = 1')
        columns = self.explain(server, status=1)
        self.assertIn('maintenance', [
            cause['by'] for cause in columns['explanation']['eliminated']])
        self.ironic.execute('UPDATE nodes SET maintenance = 0')

    def test_claim_of_a_segment(self):
        group = str(uuid.uuid4())
        [member] = self.ironic.http.post('/v1/reservations/groups', json={
            'uuid': group, 'members': 1, 'project_id': faults.PROJECT,
            'levels': [{'by': 'capability:rack', 'policy': 'pack',
                        'segment': 1}],
            'request': {'candidate_nodes': ['new']}}).json()['reservations']
        flavor = self.flavor(**{'trait:CUSTOM_OLD': 'required'})
        for segment, text in (
                (0, ''), (1, f'Segment 1 of {group} has no members to claim')):
            server = self.boot(flavor, 'ERROR', metadata={
                'reservations:claim': f'{group}:{segment}'})
            columns = self.explain(server, status=1)
            self.assertTrue(columns.get('claim', '').startswith(text))
            self.assertEqual('explanation' in columns, segment == 0)

    def test_metadata(self):
        server = self.boot(self.gold, 'ERROR', metadata={
            'reservations:trait:CUSTOM_OLD': 'forbidden',
            'reservations:candidate_nodes': 'old', 'reservation:claim': 'x',
            'other': 'x'})
        columns = self.explain(server, stderr=(
            'Metadata reservation:claim is ignored (did you mean '
            'reservations:claim?)\n'))
        self.assertEqual(
            {'candidate_nodes': 2, 'trait:CUSTOM_OLD=forbidden': 1},
            {row['by']: row['nodes']
             for row in columns['explanation']['eliminated']})


class TestFaults(TestCase):

    def test_node_is_named(self):
        server = self.boot(self.gold, 'ERROR', availability_zone='nova::old')
        columns = self.explain(server, status=0, stderr=(
            "The request names old, which is no compute node of Nova. If it "
            "is a node of Ironic, name it in the metadata "
            "reservations:candidate_nodes, or install the filter of Nova's "
            "API.\n"))
        self.assertIn('No such host', columns['fault'])

    def test_attempts(self):
        self.flags(max_attempts=2, group='scheduler')
        self.start_compute(base.HOSTS[1])
        self.disable_retries()
        self.wire.on(*faults.HOLD, faults.cut, times=999)
        server = self.boot(self.gold, 'ERROR')
        self.wire.heal()
        columns = self.explain(server, status=0, stderr=(
            'Nova gave up after 2 attempts: see [scheduler] max_attempts, '
            'which nova-scheduler and nova-conductor read, each in its own '
            'nova.conf.\n'))
        self.assertIn('Exceeded max scheduling attempts 2 for instance',
                      columns['fault'])


class TestNames(TestCase):

    @base.smoke
    def test_unique_name(self):
        server = self.boot(self.gold, name='web.1')
        for verb in 'show', 'explain':
            result = self.command(verb, 'web.1')
            self.assertEqual('', result.stderr)
            self.assertEqual(server['id'],
                             json.loads(result.stdout)['instance_uuid'])
        # A user without access to all projects can use it.
        admin, self.user = self.user, {
            **self.user, 'X-Roles': 'member,reader',
            'X-Auth-Project-Id': faults.PROJECT}
        self.assertEqual(0, self.command('show', 'web.1').returncode)
        self.user = admin
        # It is no regular expression.
        self.assertEqual('No node web-1 was found.\n',
                         self.error('show', 'web-1'))
        self.assertEqual('No node newerr was found. Did you mean newer?\n',
                         self.error('show', 'newerr'))
        self.assertIn('HTTP 409', self.error('set', 'web.1', '--no-expiry'))
        self.assertIn('HTTP 409', self.error('delete', 'web.1'))
        server = self.boot(self.flavor('none'), 'ERROR', name='nodeless')
        self.assertIn(f'No reservation of instance {server["id"]} could be ',
                      self.error('delete', 'nodeless'))

    def test_ambiguous_name(self):
        uuids = sorted(server['id'] for server in self.boot_many(
            2, self.gold, name='web'))
        servers = ', '.join(f'server {uuid_}' for uuid_ in uuids)
        error = ('2 servers or nodes have the name web; use a UUID: '
                 f'{servers}\n')
        for args in (['show', 'web'], ['set', 'web', '--no-expiry'],
                     ['explain', 'web']):
            self.assertEqual(error, self.error(*args))
        self.assertEqual(f'web: {error}', self.error('delete', 'web'))
        # A server has the name of another server's node.
        node = self.ironic.node_of({'id': uuids[0]}).name
        other = self.boot(self.gold, name=node)['id']
        self.assertEqual(
            f'2 servers or nodes have the name {node}; use a UUID: instance '
            f'{uuids[0]}, server {other}\n',
            self.error('set', node, '--no-expiry'))
        self.assertEqual(uuids[0], json.loads(
            self.command('show', node).stdout)['instance_uuid'])
