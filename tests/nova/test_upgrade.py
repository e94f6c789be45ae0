# SPDX-License-Identifier: Apache-2.0
"""The commands in doc/source/how-to/upgrade.rst find refused flavors."""

import pathlib
import re
import shlex

import fixtures

from tests.common import command
from tests.nova import audits
from tests.nova import faults

PAGE = pathlib.Path(__file__).parents[2] / 'doc/source/how-to/upgrade.rst'
#: A URL where no service is.
NOTHING = 'http://127.0.0.1:9'


class TestRefusedFlavors(audits.Command, faults.TestCase):

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
