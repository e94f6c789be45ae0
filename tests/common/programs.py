# SPDX-License-Identifier: Apache-2.0
"""Programs that tests run to their end."""

import subprocess


def run(*command, **kwargs):
    """What a program has said, which must have ended well."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False, **kwargs)
    assert done.returncode == 0, done.stdout
    return done.stdout
