# SPDX-License-Identifier: Apache-2.0
"""Programs that tests run to their end."""

import subprocess


def run(*command, status=0, **kwargs):
    """Run a program, check its exit status, and return its output."""
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False, **kwargs)
    assert result.returncode == status, result.stdout
    return result.stdout
