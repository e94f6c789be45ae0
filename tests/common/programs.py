# SPDX-License-Identifier: Apache-2.0
"""Programs that tests run to their end."""

import re
import subprocess
import sys

from tests.common import next_version

#: ironic-reservations-dbsync of an invented next release.
NEXT_DBSYNC = sys.executable, '-m', next_version.__name__


def run(*command, status=0, **kwargs):
    """Run a program, check its exit status, and return its output."""
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False, **kwargs)
    assert result.returncode == status, result.stdout
    return result.stdout


def upgrade_together(*conf_files):
    """Upgrade to the next release by several processes.

    :returns: the begin of the output and the exit status of each.
    """
    processes = [subprocess.Popen(
        [*NEXT_DBSYNC, '--config-file', path, 'upgrade'],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for path in conf_files]
    results = []
    for process in processes:
        output, _ = process.communicate(timeout=120)
        line, = [line for line in output.splitlines() if ' INFO ' not in line]
        begin = re.match('done|Another process is upgrading|.*', line)[0]
        results.append((begin, process.returncode))
    return results
