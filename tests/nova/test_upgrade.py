# SPDX-License-Identifier: Apache-2.0
"""Refused flavors are found as doc/source/upgrade.rst says it."""

import pathlib
import re
import shlex

from tests.nova import faults
from tests.nova import test_audit

PAGE = pathlib.Path(__file__).parents[2] / 'doc' / 'source' / 'upgrade.rst'


class TestRefusedFlavors(test_audit.Command, faults.TestCase):

    fleet = [faults.NODE]

    def test_as_the_page_says(self):
        ours = accepted, unmatched, refused, ignored = (
            self.flavor(), self.flavor('silver'),
            self.flavor(**{'reservations:candidate_node': 'node-1'}),
            self.flavor(**{'capabilites:rack': 'r1'}))
        [(list_, explain, pattern)] = re.findall(
            r'^   for flavor in \$\(openstack (.*)\); do\n'
            r' +openstack (.*) "\$flavor" 2>&1 >/dev/null \|\n'
            r" +grep -E '(.*)' \| sed ", PAGE.read_text(), re.MULTILINE)
        flavors = self.openstack(*shlex.split(list_)).stdout.split()
        self.assertTrue({*ours} <= {*flavors})
        lines = [(flavor, line) for flavor in ours
                 for line in self.openstack(
                     *shlex.split(explain), flavor).stderr.splitlines()
                 if re.search(pattern, line)]
        self.assertEqual({refused, ignored}, {flavor for flavor, _ in lines})
        self.assertIn('did you mean reservations:candidate_nodes?',
                      dict(lines)[refused])
        self.assertIn('capabilites:rack', dict(lines)[ignored])
