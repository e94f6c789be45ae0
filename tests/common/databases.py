# SPDX-License-Identifier: Apache-2.0
"""The databases that tests use, and the creation of Ironic's schema.

Tests run on SQLite and on a database server: MariaDB, or MySQL with the option
``--server``, with which only those tests run that need a server.

The schema, with our tables, is created once per run and then copied, because
Ironic's command takes many seconds. A copy takes a second on a server, and
almost no time on SQLite.
"""

import contextlib
import fcntl
import json
import pathlib
import shutil
from unittest import mock

import sqlalchemy as sa

from tools import services


def choose(metafunc, fixture, scope):
    """Run a test on the databases that its mark ``on`` names.

    The default is SQLite, because most results do not depend on the database.
    Tests of texts, numbers, times and constraints run on both:
    ``@pytest.mark.on('sqlite', 'server')``. Tests of concurrent transactions
    need a server, because SQLite has one writer. ``'mariadb'`` is for features
    that MySQL lacks.

    :param fixture: the fixture that takes the name of a database, unless the
        test parametrizes it.
    """
    definition = metafunc.definition
    if fixture in metafunc.fixturenames and not any(
            mark.args[0] == fixture
            for mark in definition.iter_markers('parametrize')):
        mark = definition.get_closest_marker('on')
        metafunc.parametrize(fixture, mark.args if mark else ['sqlite'],
                             indirect=True, scope=scope)


def needs_server(item):
    """Return whether a test uses a database server."""
    callspec = getattr(item, 'callspec', None)
    return 'server_url' in item.fixturenames or callspec is not None and any(
        value in ('server', 'utf8') for value in callspec.params.values()
        if isinstance(value, str))


def create_sqlite(directory, path):
    """Create a SQLite database with the schema in a file; return its URL.

    :param directory: for the original, common to all workers of this run.
    """
    original = pathlib.Path(directory, 'schema.sqlite')
    with _locked(original):
        if not original.exists():
            new = pathlib.Path(f'{original}.new')
            _create_schema(new, f'sqlite:///{new}')
            new.rename(original)
    shutil.copyfile(original, path)
    return f'sqlite:///{path}'


@contextlib.contextmanager
def on_server(directory, server_url):
    """Create a database with the schema on a server; yield its URL.

    :param directory: for the original, common to all workers of this run.
    :param server_url: see the fixture ``server_url``.
    """
    with services.database(server_url) as url:
        create(directory, url)
        yield url


def create(directory, url):
    """Create the schema in an empty database of a server."""
    with _connect(url) as connection:
        # The two do not accept all statements of each other.
        name = 'mariadb' if connection.dialect.is_mariadb else 'mysql'
    original = pathlib.Path(directory, f'schema.{name}')
    with _locked(original):
        if not original.exists():
            new = pathlib.Path(f'{original}.new')
            _create_schema(new, url)
            new.write_text(json.dumps(list(_dump_statements(url))))
            new.rename(original)
            return
    with _connect(url) as connection:
        # The tables are created in the order of their names.
        connection.exec_driver_sql('SET foreign_key_checks = 0')
        for statement, values in json.loads(original.read_text()):
            connection.exec_driver_sql(statement, tuple(values))


def skip_fsync(engine):
    """Do not wait for the disk, because no database outlives its tests."""
    if engine.name == 'sqlite':
        sa.event.listen(engine, 'connect', lambda connection, _: (
            connection.execute('PRAGMA synchronous = OFF')))
        # Connections in the pool do not have it.
        engine.dispose()


def keep_connections():
    """Let oslo.db keep connections to SQLite: a context manager.

    Otherwise it opens one for each transaction, and each reads the schema.
    """
    return mock.patch('oslo_db.sqlalchemy.engines.pool.NullPool',
                      sa.pool.QueuePool)


@contextlib.contextmanager
def _locked(path):
    """Let one worker at a time check whether the original exists."""
    with open(f'{path}.lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _connect(url):
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        yield connection


def _create_schema(path, url):
    """Run the commands of Ironic and ours that create the schema.

    :param path: prefix of their files.
    """
    conf_file = services.write_conf(f'{path}.conf', {
        'DEFAULT': services.FAKE_HARDWARE, 'database': {'connection': url}})
    services.create_schema(conf_file, f'{path}.log')


def _dump_statements(url):
    """Yield statements that copy a database of a server, and their values.

    It has few rows, for Alembic's revisions.
    """
    with _connect(url) as connection:
        for table in sa.inspect(connection).get_table_names():
            _, statement = connection.exec_driver_sql(
                f'SHOW CREATE TABLE {table}').one()
            yield statement.replace('%', '%%'), ()
            for row in connection.exec_driver_sql(f'SELECT * FROM {table}'):
                marks = ', '.join(['%s'] * len(row))
                yield f'INSERT INTO {table} VALUES ({marks})', tuple(row)
