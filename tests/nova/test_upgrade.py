# SPDX-License-Identifier: Apache-2.0
"""The commands in doc/source/how-to/upgrade.rst find refused flavors."""

import pathlib
import re
import shlex

from tests.nova import audits
from tests.nova import faults

PAGE = pathlib.Path(__file__).parents[2] / 'doc/source/how-to/upgrade.rst'


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
        flavors = self.openstack(*shlex.split(list_)).stdout.split()
        self.assertLessEqual(ours, {*flavors})
        lines = [(flavor, line) for flavor in ours
                 for line in self.openstack(
                     *shlex.split(explain), flavor).stderr.splitlines()
                 if re.search(pattern, line)]
        self.assertEqual({bad, misspelt}, {flavor for flavor, _ in lines})
        self.assertIn('did you mean reservations:candidate_nodes?',
                      dict(lines)[bad])
        self.assertIn('capabilites:rack', dict(lines)[misspelt])
