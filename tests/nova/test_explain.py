# SPDX-License-Identifier: Apache-2.0
"""Commands about servers: ``explain``, and those that take a server's name."""

import json
import uuid

from tests.nova import base
from tests.nova import faults
from tests.nova import test_audit
from tests.nova import test_groups

SPREAD = 'group:spread=capability:rack'


class TestCase(test_audit.Command, faults.TestCase):

    fleet = [{**test_groups.node('r1'), 'name': 'old', 'traits': [
                  'CUSTOM_OLD']},
             {**test_groups.node('r1'), 'name': 'new'},
             {**test_groups.node('r2'), 'name': 'newer'}]

    def setUp(self):
        super().setUp()
        self.flags(group='reservations', server_group_by='capability:rack',
                   server_metadata=['claim', 'candidate_nodes', 'trait'])
        self.start_compute(base.HOSTS[0])
        self.gold = self.flavor()

    def explain(self, server, status=1, stderr=''):
        """The columns about a server, by its name or as it is."""
        done = self.command('explain', server if isinstance(server, str)
                            else server['id'])
        self.assertEqual((status, stderr), (done.returncode, done.stderr))
        return json.loads(done.stdout)

    def refused(self, *args):
        done = self.command(*args, as_json=False)
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        return done.stderr


class TestExplain(TestCase):

    def group(self, policy):
        return self.api.post_server_groups(
            {'name': policy, 'policy': policy})['id']

    @base.smoke
    def test_group(self):
        group = self.group('anti-affinity')
        self.flags(group='workarounds', disable_group_policy_check_upcall=True)
        # The rack in which a server would be is not known of its group.
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
            project_id=test_groups.PROJECT)
        second = self.boot(self.gold, 'ERROR', group, metadata={
            'reservations:candidate_nodes': 'newer'})
        columns = self.explain(second)
        self.assertEqual('spread by capability:rack, members in r2: 1',
                         columns['group'])
        self.assertEqual(0, columns['matching_nodes'])
        self.assertIn({'by': SPREAD, 'nodes': 1},
                      columns['explanation']['eliminated'])

    def test_claim(self):
        claim = str(uuid.uuid4())
        flavor = self.flavor(**{'trait:CUSTOM_OLD': 'required'})
        server = self.boot(flavor, 'ERROR', metadata={
            'reservations:claim': claim})
        reserved = {'instance_uuid': claim, 'project_id': test_groups.PROJECT}
        found = f'The project has no reservation and no group {claim}'
        for candidate, more, text in (
                (None, {}, found),
                ('old', {'project_id': test_groups.OTHER}, found),
                ('old', {'host': 'another'}, 'Nothing can be claimed: old is '
                                             'reserved and held by another'),
                ('new', {}, 'Can be claimed: new; 0 of 1 match'),
                ('old', {}, 'Can be claimed: old; 1 of 1 match')):
            if candidate:
                self.hold(candidate_nodes=[candidate], **reserved | more)
            matches = text.endswith('1 of 1 match')
            columns = self.explain(server, status=0 if matches else 1)
            self.assertEqual(server['id'] in columns['fault'], True)
            self.assertEqual((text, int(matches)), (
                columns['claim'], columns['matching_nodes']))
            self.assertEqual(
                {'considered': 1, 'eliminated': [
                    {'by': 'trait:CUSTOM_OLD=required', 'nodes': 1}]}
                if candidate == 'new' else None, columns.get('explanation'))
            if candidate:
                self.ironic.delete(claim)
        # Those of a group, of which the first has been claimed.
        self.ironic.http.post('/v1/reservations/groups', json={
            'uuid': claim, 'members': 3, 'project_id': test_groups.PROJECT,
            'request': {'resource_class': 'gold'}}).raise_for_status()
        columns = self.explain(server, status=0)
        self.assertRegex(columns['claim'], 'Can be claimed: .*; 1 of 3 match')
        self.ironic.execute('UPDATE nodes SET maintenance = 1')
        columns = self.explain(server, status=1)
        self.assertIn('in maintenance or retired', columns['claim'])
        self.ironic.execute('UPDATE nodes SET maintenance = 0')

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


class TestNames(TestCase):

    @base.smoke
    def test_of_one_server(self):
        server = self.boot(self.gold, name='web.1')
        for verb in 'show', 'explain':
            done = self.command(verb, 'web.1')
            self.assertEqual('', done.stderr)
            self.assertEqual(server['id'],
                             json.loads(done.stdout)['instance_uuid'])
        # Also to a user who may not ask for those of all projects.
        admin, self.user = self.user, {
            **self.user, 'X-Roles': 'member,reader',
            'X-Auth-Project-Id': test_groups.PROJECT}
        self.assertEqual(0, self.command('show', 'web.1').returncode)
        self.user = admin
        # No regular expression.
        self.assertEqual('There is no node web-1.\n',
                         self.refused('show', 'web-1'))
        self.assertEqual('There is no node newerr. Did you mean newer?\n',
                         self.refused('show', 'newerr'))
        self.assertIn('HTTP 409', self.refused('set', 'web.1', '--no-expiry'))
        self.assertIn('HTTP 409', self.refused('delete', 'web.1'))
        lost = self.boot(self.flavor('none'), 'ERROR', name='lost')
        self.assertIn(f'No reservation of instance {lost["id"]} could be ',
                      self.refused('delete', 'lost'))

    def test_of_several(self):
        servers = sorted(each['id'] for each in self.boot_many(
            2, self.gold, name='web'))
        listed = ', '.join(f'server {each}' for each in servers)
        twice = f'2 servers or nodes have the name web; use a UUID: {listed}\n'
        for args in (['show', 'web'], ['set', 'web', '--no-expiry'],
                     ['explain', 'web']):
            self.assertEqual(twice, self.refused(*args))
        self.assertEqual(f'web: {twice}', self.refused('delete', 'web'))
        # A server that is called like another one's node.
        node = self.ironic.node_of({'id': servers[0]}).name
        other = self.boot(self.gold, name=node)['id']
        self.assertEqual(
            f'2 servers or nodes have the name {node}; use a UUID: instance '
            f'{servers[0]}, server {other}\n',
            self.refused('set', node, '--no-expiry'))
        self.assertEqual(servers[0], json.loads(
            self.command('show', node).stdout)['instance_uuid'])
