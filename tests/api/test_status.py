# SPDX-License-Identifier: Apache-2.0
"""The checks of "upgrade check", in the process of the tests.

tests/core/test_migrations.py runs the command, with and without our tables.
"""

import contextlib
import os
import re
import subprocess
from unittest import mock

from keystoneauth1 import exceptions as ks_exc
import pytest
import sqlalchemy as sa

from ironic_reservations.cmd import status
from ironic_reservations.db import engine
from tests.common import application
from tests.common import keystones
from tests.common import programs
from tests.common import proxies
from tests.common import servers
from tools import services

RULE = 'baremetal:reservation:'
TOTAL = keystones.TOTAL
QUOTA = {'reservations': {'quota': 'unified_limits'}}


@pytest.fixture
def check(ironic, keystone, capsys):
    """Runs all checks; returns the status, and {check: (result, details)}.

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
def test_projects_without_a_limit(check, options, expected):
    result, details = check({'reservations': options})[1]['Projects']
    assert result == expected
    assert ('require_lease' in details) == (expected == 'Warning')


@pytest.mark.parametrize('rule, changes, expected', [
    ('!', {}, 'Success'), ('role:member', {}, 'Warning'),
    ('project_id:pool', {}, 'Warning'), ('role:member', QUOTA, 'Success'),
], ids=str)
def test_unowned_nodes(check, policy, rule, changes,
                       expected):
    policy({f'{RULE}create_unowned': rule})
    result, details = check(changes)[1]['Unowned nodes']
    assert result == expected
    assert ('create_unowned' in details) == (expected == 'Warning')


def test_prepared_nodes(check, ironic):
    """Only available nodes without an instance count."""
    info = '{"image_source": "x"}'
    for columns, number in [
            ({}, 0), ({'instance_info': info}, 2),
            ({'provision_state': 'active', 'instance_info': info}, 0)]:
        with ironic.fleet({'resource_class': 'a', **columns},
                          {'resource_class': 'a', **columns},
                          {'resource_class': 'a'}):
            result, details = check({})[1]['Prepared nodes']
        assert result == ('Warning' if number else 'Success')
        assert (f'{number} available nodes carry an instance_info'
                in details) == bool(number)


@pytest.mark.on('server')
@pytest.mark.parametrize('statement, expected', [
    ('group_concat_max_len', [
        'group_concat_max_len', 'innodb_lock_wait_timeout',
        'lock_wait_timeout']),
    ('idle_transaction_timeout', ['idle_transaction_timeout']),
    ('ISOLATION LEVEL', ['transactions']), ('no SET', [])], ids=str)
def test_session_variables(check, ironic, statement, expected):
    """A proxy may answer SET itself, as ProxySQL does for some variables."""
    [[version]] = ironic.execute('SELECT VERSION()')
    if statement == 'idle_transaction_timeout' and 'MariaDB' not in version:
        expected = []
    with proxies.proxy(ironic.database_url, lambda text: (
            proxies.DONE if text.startswith(b'SET SESSION')
            and statement.encode() in text else None)) as proxy:
        result, details = check({'database': {'connection': proxy.url}})[1][
            'Session variables']
    assert (proxy.seen[proxies.DONE] > 0) == (statement != 'no SET')
    assert result == ('Warning' if expected else 'Success')
    assert re.findall(r'(\w+) is \S+ (?:\S+ )?instead of', details) == (
        expected)


@pytest.mark.on('server')
@pytest.mark.parametrize('value', [0, 1, 2])
def test_durability(check, ironic, value):
    try:
        ironic.execute(f'SET GLOBAL innodb_flush_log_at_trx_commit = {value}')
        result, details = check({})[1]['Durability']
    finally:
        ironic.execute('SET GLOBAL innodb_flush_log_at_trx_commit = 1')
    assert result == ('Success' if value == 1 else 'Warning')
    [[host]] = ironic.execute('SELECT @@hostname')
    assert value == 1 or (
        f'commit is {value} on the member' in details and host in details)


@pytest.mark.on('server')
def test_durability_that_cannot_be_read(check, monkeypatch):
    """As through a proxy that does not know the variable."""
    monkeypatch.setattr(status, '_FLUSH', 'no_such_variable')
    result, details = check({})[1]['Durability']
    assert result == 'Warning'
    assert 'no_such_variable cannot be read on the member' in details


def test_format_of_the_binary_log(check):
    """MariaDB refuses our writes with STATEMENT alone."""
    with servers.alone('--log-bin=binlog') as server:
        options = {'database': {'connection': server.url}}
        server.sql('CREATE TABLE t (i INT)')
        for value in 'ROW', 'MIXED', 'STATEMENT':
            server.sql(f'SET GLOBAL binlog_format = {value}')
            is_bad = value == 'STATEMENT'
            result, details = check(options)[1]['Durability']
            assert result == ('Warning' if is_bad else 'Success')
            assert is_bad == ('binlog_format is STATEMENT on the' in details)
            with application.set_options(options):
                own = engine.create_engine()
            with pytest.raises(sa.exc.OperationalError, match='1665') if (
                    is_bad) else contextlib.nullcontext(), own.begin() as (
                        connection):
                connection.exec_driver_sql('INSERT INTO t VALUES (1)')
            own.dispose()


#: As openstack-helm writes it: only the logger of Ironic has a handler.
LOGGING = """
[loggers]
keys = root, ironic{keys}
[handlers]
keys = stdout, null
[formatters]
keys = default
[logger_root]
level = WARNING
handlers = null
[logger_ironic]
level = INFO
handlers = stdout
qualname = ironic
{logger}
[handler_null]
class = logging.NullHandler
args = ()
[handler_stdout]
class = {handler}
args = (sys.stdout,)
formatter = default
[formatter_default]
format = %(message)s
"""


@pytest.mark.parametrize('level, handler, expected', [
    (None, 'StreamHandler', 'Warning'), ('INFO', 'StreamHandler', 'Success'),
    ('CRITICAL', 'StreamHandler', 'Warning'),
    ('nonsense', 'StreamHandler', 'Failure'),
    # A library that is not installed here, and one that refuses the arguments.
    ('INFO', 'fluent.handler.FluentHandler', 'Failure'),
    ('INFO', 'FileHandler', 'Failure')])
def test_logging(ironic, tmp_path, level, handler, expected):
    path = tmp_path / 'logging.conf'
    path.write_text(LOGGING.format(
        handler=handler, keys=', ours' if level else '', logger=(
            f'[logger_ours]\nlevel = {level}\nhandlers = stdout\n'
            'qualname = ironic_reservations') if level else ''))
    output = programs.run(
        services.program('ironic-reservations-status'), '--config-file',
        services.write_conf(tmp_path / 'ironic.conf', {
            'DEFAULT': {'log_config_append': path},
            'database': {'connection': ironic.database_url}}),
        'upgrade', 'check', status=2 if expected == 'Failure' else 1)
    [result] = re.findall(r'Check: Logging *\|\n\| Result: (\w+)', output)
    assert result == expected


def test_policy_rules(check, policy):
    policy(dict.fromkeys((f'{RULE}creat', f'{RULE}list_all',
                          'baremetal:node:create'), '!'))
    code, results = check({})
    assert code == 1
    for name in ('Database schema', 'Database revision', 'Stale reads',
                 'Session variables', 'Durability', 'Clocks'):
        assert results[name][0] == 'Success'
    for name in 'Policy rules', 'Service role':
        assert results[name][0] == 'Warning'
    assert f'rules that do not exist: {RULE}creat ' in results[
        'Policy rules'][1]


@pytest.mark.parametrize('connection', [
    'sqlite:///{}/no/such.sqlite', 'sqlite:///{}/empty.sqlite', None,
    'mysql+pymysql://root:secret@localhost/x?unix_socket={}/nobody'])
def test_without_a_database(check, tmp_path, connection):
    code, results = check({'database': {
        'connection': connection and connection.format(tmp_path)}})
    assert code == 2
    assert results['Database schema'][0] == 'Failure'
    assert 'API plugin' in results and 'secret' not in str(results)


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


def test_keystone_failure(check, keystone):
    with mock.patch.object(keystone.mock_conn, 'registered_limits',
                           side_effect=ks_exc.ConnectFailure):
        code, results = check(QUOTA)
    assert code == 2 and results['Quota'][0] == 'Failure'


def test_quota_without_its_library(tmp_path):
    """The extra "quota" is not installed, in a separate process."""
    (tmp_path / 'oslo_limit.py').write_text('raise ImportError\n')
    path = tmp_path / 'ironic.conf'
    path.write_text('[reservations]\nquota = unified_limits\n')
    result = subprocess.run(
        [services.program('ironic-reservations-status'), '--config-file',
         path, 'upgrade', 'check'], stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
        env={**os.environ, 'PYTHONPATH': str(tmp_path)})
    assert re.search(
        'Check: Quota Result: Failure .*run "pip install oslo.limit"',
        re.sub(r'[\s|+-]+', ' ', result.stdout))
