# SPDX-License-Identifier: Apache-2.0
"""Upgrades: the check of flavors, and tables older than 1.0.0."""

import pathlib
import re
import shlex

import fixtures

from tests.common import command
from tests.common import programs
from tests.nova import audits
from tests.nova import faults
from tools import services

PAGE = pathlib.Path(__file__).parents[2] / 'doc/source/how-to/upgrade.rst'
#: A URL where no service is.
NOTHING = 'http://127.0.0.1:9'


class TestOlderTables(audits.Command, faults.TestCase):

    fleet = [faults.NODE] * 2

    def test_servers_keep_their_machines(self):
        """The steps that the commands print."""
        self.start_compute('compute-1')
        servers = self.boot_many(2, self.flavor())
        nodes = {server['id']: self.ironic.node_of(server).id
                 for server in servers}
        self.sql("UPDATE reservations_alembic_version "
                 "SET version_num = '5f0c2e8d7b16'")
        sentence = self.run_on_host('dbsync', 'upgrade', status=2)
        self.assertRegex(sentence, '^Our tables, at 5f0c2e8d7b16, are older')
        check = self.run_on_host('status', 'upgrade', 'check', status=2)
        # The table of the checks breaks lines.
        self.assertIn(self.join(sentence), self.join(check))
        self.assertEqual({*nodes}, {
            row['instance_uuid'] for row in self.ironic.reservations()})
        self.stop_compute('compute-1')
        # Most older tables also lack columns.
        self.sql('ALTER TABLE reservations_notices DROP COLUMN due_at')
        check = self.run_on_host('status', 'upgrade', 'check', status=2)
        self.assertEqual(2, self.join(check).count(self.join(sentence)))
        self.assertIn('2 reservations are live', self.run_on_host(
            'dbsync', 'drop', '--yes', status=2))
        for args in ('drop', '--force', '--yes'), ('upgrade',):
            self.run_on_host('dbsync', *args)
        self.run_on_host('status', 'upgrade', 'check', status=1)
        self.start_compute('compute-1')
        self.assertIn('baremetal reservation audit --repair', sentence)
        self.assertEqual(0, self.command('audit', '--repair').returncode)
        self.assertEqual(nodes, {
            row['instance_uuid']: row['node_uuid']
            for row in self.ironic.reservations()})
        self.assert_findings()
        self.act(servers[0], 'reboot', 'ACTIVE', type='HARD')
        self.delete(*servers)

    def run_on_host(self, name, *args, status=0):
        return programs.run(
            services.program(f'ironic-reservations-{name}'), '--config-file',
            self.ironic.conf_file, *args, status=status)

    @staticmethod
    def join(text):
        return re.sub(r'[\s|]+', '', text)


class TestRefusedFlavors(audits.Command, faults.TestCase):
    """The commands in doc/source/how-to/upgrade.rst."""

    fleet = [faults.NODE]

    def test_refused_flavors_commands(self):
        good = self.flavor(), self.flavor('silver')
        bad = self.flavor(**{'reservations:candidate_node': 'node-1'})
        misspelt = self.flavor(**{'capabilites:rack': 'r1'})
        ours = {*good, bad, misspelt}
        [(list_, explain, pattern)] = re.findall(
            r'^   for flavor in \$\(openstack (.*)\); do\n'
            r' +openstack (.*) "\$flavor" 2>&1 >/dev/null \|\n'
            r" +grep -E '(.*)' \| sed ", PAGE.read_text(), re.MULTILINE)
        for login in self.log_in():
            flavors = self.run_in(login, *shlex.split(list_)).stdout.split()
            self.assertLessEqual(ours, {*flavors})
            lines = [(flavor, line) for flavor in ours
                     for line in self.run_in(
                         login, *shlex.split(explain),
                         flavor).stderr.splitlines()
                     if re.search(pattern, line)]
            self.assertEqual({bad, misspelt}, {flavor for flavor, _ in lines})
            self.assertIn('did you mean reservations:candidate_nodes?',
                          dict(lines)[bad])
            self.assertIn('capabilites:rack', dict(lines)[misspelt])

    def log_in(self):
        """Return both logins of the page, which replace an old API."""
        variable, key = re.findall(r'``(\w+_endpoint_override)``',
                                   PAGE.read_text(), re.IGNORECASE)
        url = {variable: self.ironic.url}
        openrc = self.make_environment(OS_ENDPOINT=NOTHING, **url)
        clouds = pathlib.Path(self.useFixture(fixtures.TempDir()).path,
                              'clouds.yaml')
        # The variable has no effect in the other login.
        without = command.use_cloud(
            self.make_environment(OS_ENDPOINT=NOTHING), clouds)
        result = self.run_in({**without, **url}, 'baremetal', 'node', 'list')
        self.assertIn(NOTHING, result.stderr)
        cloud = command.use_cloud(openrc, clouds)
        self.assertIn(f'"{key}": "{self.ironic.url}"', clouds.read_text())
        return openrc, cloud
