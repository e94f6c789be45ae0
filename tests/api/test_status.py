# SPDX-License-Identifier: Apache-2.0
"""What "upgrade check" says, in this process.

That it is a command, and what it says before and after our tables are made, is
in tests/db/test_migrations.py.
"""

import os
import re
import subprocess
from unittest import mock

from keystoneauth1 import exceptions as ks_exc
import pytest

from ironic_reservations.cmd import status
from tests.common import application
from tests.common import keystone as keystones
from tools import services

RULE = 'baremetal:reservation:'
TOTAL = keystones.TOTAL
QUOTA = {'reservations': {'quota': 'unified_limits'}}


@pytest.fixture
def check(ironic, keystone, capsys):
    """Runs all checks: their status, and each one's result and details.

    :param changes: of the configuration, {group: {option: value}}.
    """
    def run(changes):
        with application.set_options({
                'DEFAULT': {'auth_strategy': 'keystone'},
                'database': {'connection': ironic.database_url},
                'oslo_limit': {'endpoint_service_type': 'baremetal'},
                **changes}):
            code = status.Checks().check()
        return code, {
            name: (result, re.sub(r'[\s|]+', ' ', details))
            for name, result, details in re.findall(
                r'Check: (.*?) *\|\n\| Result: (\w+)(.*?)\+-',
                capsys.readouterr().out, re.DOTALL)}
    return run


@pytest.mark.parametrize('options, expected', [
    ({}, 'Warning'), ({'default_lease': 60}, 'Warning'),
    ({'require_lease': True}, 'Success'),
    ({'quota': 'unified_limits'}, 'Success')], ids=str)
def test_one_project_may_hold_everything(check, options, expected):
    result, details = check({'reservations': options})[1]['Projects']
    assert result == expected
    assert ('require_lease' in details) == (expected == 'Warning')


@pytest.mark.parametrize('rule, changes, expected', [
    ('!', {}, 'Success'), ('role:member', {}, 'Warning'),
    ('project_id:pool', {}, 'Warning'), ('role:member', QUOTA, 'Success'),
], ids=str)
def test_nodes_of_nobody_without_a_quota(check, policy, rule, changes,
                                         expected):
    policy({f'{RULE}create_unowned': rule})
    result, details = check(changes)[1]['Unowned nodes']
    assert result == expected
    assert ('create_unowned' in details) == (expected == 'Warning')


def test_policies(check, policy):
    policy(dict.fromkeys((f'{RULE}creat', f'{RULE}list_all',
                          'baremetal:node:create'), '!'))
    code, found = check({})
    assert code == 1
    for name in ('Database schema', 'Database revision', 'Stale reads',
                 'Clocks'):
        assert found[name][0] == 'Success'
    assert found['Policy rules'][0] == found['Service role'][0] == 'Warning'
    assert f'rules that do not exist: {RULE}creat ' in found[
        'Policy rules'][1]


@pytest.mark.parametrize('connection', [
    'sqlite:///{}/no/such.sqlite', 'sqlite:///{}/empty.sqlite', None,
    'mysql+pymysql://root:secret@localhost/x?unix_socket={}/nobody'])
def test_without_a_database(check, tmp_path, connection):
    code, found = check({'database': {
        'connection': connection and connection.format(tmp_path)}})
    assert code == 2
    assert found['Database schema'][0] == 'Failure'
    assert 'API plugin' in found and 'secret' not in str(found)


def test_postgresql_is_not_supported(check):
    result, details = check({'database': {
        'connection': 'postgresql://ironic@127.0.0.1/i'}})[1][
            'Database schema']
    assert result == 'Failure'
    assert 'postgresql is not supported' in details


@pytest.mark.parametrize('limits, expected, words', [
    ({TOTAL: 1}, 'Success', ''),
    ({f'{TOTAL}:CUSTOM_GOLD': 1}, 'Warning', 'no registered limit')], ids=str)
def test_quota(check, keystone, limits, expected, words):
    keystone.reglimits = limits
    result, details = check(QUOTA)[1]['Quota']
    assert result == expected and words in details


def test_quota_that_cannot_be_read(check, keystone):
    with mock.patch.object(keystone.mock_conn, 'registered_limits',
                           side_effect=ks_exc.ConnectFailure):
        code, found = check(QUOTA)
    assert code == 2 and found['Quota'][0] == 'Failure'


def test_quota_lacks_its_library(tmp_path):
    """As where the extra "quota" is not installed: a process of its own."""
    (tmp_path / 'oslo_limit.py').write_text('raise ImportError\n')
    path = tmp_path / 'ironic.conf'
    path.write_text('[reservations]\nquota = unified_limits\n')
    done = subprocess.run(
        [services.program('ironic-reservations-status'), '--config-file',
         path, 'upgrade', 'check'], stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
        env={**os.environ, 'PYTHONPATH': str(tmp_path)})
    assert re.search(
        'Check: Quota Result: Failure .*run "pip install oslo.limit"',
        re.sub(r'[\s|+-]+', ' ', done.stdout))
