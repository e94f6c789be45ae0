# SPDX-License-Identifier: Apache-2.0
"""What "upgrade check" says of the configuration alone."""

import re
import subprocess

import pytest

from tools import services


@pytest.mark.parametrize('configured, expected', [
    ('', 'Warning'), ('default_lease = 60', 'Warning'),
    ('require_lease = true', 'Success'), ('quota = unified_limits', 'Success'),
])
def test_one_project_may_hold_everything(tmp_path, configured, expected):
    path = tmp_path / 'ironic.conf'
    path.write_text(f'[reservations]\n{configured}\n'
                    # Nothing answers there.
                    '[oslo_limit]\nauth_type = none\n'
                    'endpoint_override = http://127.0.0.1:1\n')
    done = subprocess.run(
        [services.program('ironic-reservations-status'), '--config-file',
         path, 'upgrade', 'check'], stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False)
    [(result, details)] = re.findall(
        r'Check: Projects.*?Result: (\w+)(.*?)\+-', done.stdout, re.DOTALL)
    assert result == expected
    assert ('require_lease' in details) == (expected == 'Warning')
