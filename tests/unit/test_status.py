# SPDX-License-Identifier: Apache-2.0
"""What "upgrade check" says of the configuration alone."""

import os
import re
import subprocess

import pytest

from tools import services


def check(tmp_path, configured, name, **env):
    """The result of a check and its details, with some of ironic.conf."""
    path = tmp_path / 'ironic.conf'
    path.write_text(f'{configured}\n'
                    # Nothing answers there.
                    '[oslo_limit]\nauth_type = none\n'
                    'endpoint_override = http://127.0.0.1:1\n')
    done = subprocess.run(
        [services.program('ironic-reservations-status'), '--config-file',
         path, 'upgrade', 'check'], stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
        env={**os.environ, **env})
    [(result, details)] = re.findall(
        rf'Check: {name}.*?Result: (\w+)(.*?)\+-', done.stdout, re.DOTALL)
    return result, re.sub(r'[\s|]+', ' ', details)


@pytest.mark.parametrize('configured, expected', [
    ('', 'Warning'), ('default_lease = 60', 'Warning'),
    ('require_lease = true', 'Success'), ('quota = unified_limits', 'Success'),
])
def test_one_project_may_hold_everything(tmp_path, configured, expected):
    result, details = check(tmp_path, f'[reservations]\n{configured}',
                            'Projects')
    assert result == expected
    assert ('require_lease' in details) == (expected == 'Warning')


@pytest.mark.parametrize('rule, configured, expected', [
    ('!', '', 'Success'), ('role:member', '', 'Warning'),
    ('project_id:pool', '', 'Warning'),
    ('role:member', 'quota = unified_limits', 'Success'),
])
def test_nodes_of_nobody_without_a_quota(tmp_path, rule, configured,
                                         expected):
    (tmp_path / 'policy.yaml').write_text(
        f'baremetal:reservation:create_unowned: "{rule}"\n')
    result, details = check(tmp_path, f'[reservations]\n{configured}',
                            'Nodes of nobody')
    assert result == expected
    assert ('create_unowned' in details) == (expected == 'Warning')


def test_postgresql_is_not_supported(tmp_path):
    result, details = check(
        tmp_path, '[database]\nconnection = postgresql://ironic@127.0.0.1/i',
        'Database schema')
    assert result == 'Failure'
    assert 'postgresql is not supported' in details


def test_a_quota_lacks_its_library(tmp_path):
    """As where the extra "quota" is not installed."""
    (tmp_path / 'oslo_limit.py').write_text('raise ImportError\n')
    result, details = check(
        tmp_path, '[reservations]\nquota = unified_limits', 'Quota',
        PYTHONPATH=str(tmp_path))
    assert result == 'Failure'
    assert 'run "pip install oslo.limit"' in details
