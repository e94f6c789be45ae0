# SPDX-License-Identifier: Apache-2.0
"""The script that drains nodes of Slurm, with a fake scontrol."""

import os
import pathlib
import stat

import fixtures

from tests.common import command
from tests.nova import audits
from tests.nova import base
from tests.nova import faults

SCRIPT = (pathlib.Path(__file__).parents[2]
          / 'doc/source/examples/slurm_drain.py')
#: Shows the nodes in a file, and appends its updates to another.
SCONTROL = '''#!/bin/sh
cd "$(dirname "$0")"
case "$*" in
    '--oneliner show node') cat nodes;;
    *) printf '%s\\n' "$*" >> updates;;
esac
'''
OURS = ('Reason=notice of ironic-reservations: fault from 2030 '
        '[root@2026-11-30T06:00:00]')


class TestSlurm(audits.Command, base.TestCase):
    fleet = [faults.NODE] * 3
    user = {**audits.Command.user, 'X-Auth-Project-Id': faults.PROJECT}

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        program = self.folder / 'scontrol'
        program.write_text(SCONTROL)
        program.chmod(stat.S_IRWXU)

    def drain(self, states, *args, status=0):
        """Run the script; return its updates.

        :param states: the rest of the line of each node of Slurm.
        """
        (self.folder / 'nodes').write_text(''.join(
            f'NodeName={name} Arch=x86_64 CPUTot=4 {state} Partitions=gpu\n'
            for name, state in states.items()))
        updates = self.folder / 'updates'
        updates.write_text('')
        with self.credentials():
            result = command.run_script(SCRIPT, self.make_environment(
                PATH=f'{self.folder}:{os.environ["PATH"]}'), *args)
        self.assertEqual(status, result.returncode, result.stderr)
        return updates.read_text().splitlines()

    def notify(self, server, **times):
        self.ironic.http.post('/v1/reservations/notices', json={
            'nodes': [self.ironic.node_of(server).id], 'kind': 'fault',
            **times}).raise_for_status()

    def test_nodes_with_notices_are_drained(self):
        names, flavor = ['gpu-0', 'gpu-1', 'gpu-2'], self.flavor()
        first, second, third = (self.boot(flavor, name=name)
                                for name in names)
        idle = dict.fromkeys([*names, 'elsewhere'], 'State=IDLE')
        self.assertEqual([], self.drain(idle))
        self.notify(first)
        self.notify(second, starts_at={'in': 5 * 86400})
        updates = [f'update NodeName={name} State=DRAIN Reason=notice of '
                   f'ironic-reservations: fault from ' for name in names]
        self.assert_start(updates[:2], self.drain(idle))
        self.assert_start(updates[:1], self.drain(idle, '--within', '2'))
        # An administrator's reason stays, and nodes are resumed only if the
        # reason is that of the script and the machine has no notice.
        self.assertEqual(
            [f'update NodeName={names[2]} State=RESUME'],
            self.drain({names[0]: f'State=IDLE+DRAIN {OURS}',
                        names[1]: 'State=MIXED+DRAIN Reason=disk',
                        names[2]: f'State=DOWN*+DRAIN {OURS}',
                        'elsewhere': f'State=IDLE+DRAIN {OURS}'}))
        self.assertEqual([], self.drain(
            {names[2]: 'State=IDLE+DRAIN Reason=disk'}))
        self.assertEqual([], self.drain({
            names[2]: f'State=IDLE {OURS}'}))

    def assert_start(self, expected, lines):
        self.assertEqual(len(expected), len(lines), lines)
        for start, line in zip(expected, sorted(lines), strict=True):
            self.assertTrue(line.startswith(start), line)
