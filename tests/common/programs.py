# SPDX-License-Identifier: Apache-2.0
"""Programs that tests run to their end."""

import re
import subprocess

from tools import services


def run(*command, status=0, **kwargs):
    """Run a program, check its exit status, and return its output."""
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False, **kwargs)
    assert result.returncode == status, result.stdout
    return result.stdout


def upgrade_together(*conf_files):
    """Upgrade by several processes; return the output's begin and status."""
    processes = [subprocess.Popen(
        [services.program('ironic-reservations-dbsync'), '--config-file', path,
         'upgrade'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True) for path in conf_files]
    results = []
    for process in processes:
        output, _ = process.communicate(timeout=120)
        line, = [line for line in output.splitlines() if ' INFO ' not in line]
        begin = re.match('done|Another process is upgrading|.*', line)[0]
        results.append((begin, process.returncode))
    return results
