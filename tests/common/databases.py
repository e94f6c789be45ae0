# SPDX-License-Identifier: Apache-2.0
"""On which databases a test runs, and how these come by Ironic's schema.

They are SQLite and a database server: MariaDB, or with the option ``--server``
MySQL. Where it is given, those tests alone run that need a server, since the
others have run without it.

The schema, with our tables, is made once in a run of tests and then copied.
Ironic's own command takes many seconds to make it; a run has two databases and
several workers, and some tests want a schema of their own. A copy takes a
second on a server, and no time at all on SQLite.
"""

import contextlib
import fcntl
import json
import pathlib
import shutil

import sqlalchemy as sa

from tools import services


def choose(metafunc, fixture, scope):
    """Run a test on the databases that its mark ``on`` names.

    Without the mark it runs on SQLite, because most of what is tested is the
    same on any database. Those that hold texts, numbers and times against
    what Python makes of them, and those that look at what a database refuses,
    run on both: ``@pytest.mark.on('sqlite', 'server')``. What happens between
    two statements of a transaction is a server's: SQLite has one writer. What
    MySQL does not have is for ``'mariadb'``.

    :param fixture: the fixture that takes the name of a database. A test that
        parametrizes it by itself is left alone.
    """
    definition = metafunc.definition
    if fixture in metafunc.fixturenames and not any(
            mark.args[0] == fixture
            for mark in definition.iter_markers('parametrize')):
        mark = definition.get_closest_marker('on')
        metafunc.parametrize(fixture, mark.args if mark else ['sqlite'],
                             indirect=True, scope=scope)


def needs_server(item):
    """Whether a test works on the database server, whichever it is."""
    chosen = getattr(item, 'callspec', None)
    return 'server_url' in item.fixturenames or chosen is not None and any(
        each in ('server', 'utf8') for each in chosen.params.values()
        if isinstance(each, str))


def create_sqlite(shared, path):
    """Make a SQLite database with the schema in a file; its URL.

    :param shared: directory of all workers of this run, for the original.
    """
    original = pathlib.Path(shared, 'schema.sqlite')
    with _locked(original):
        if not original.exists():
            made = pathlib.Path(f'{original}.made')
            _make(made, f'sqlite:///{made}')
            made.rename(original)
    shutil.copyfile(original, path)
    return f'sqlite:///{path}'


@contextlib.contextmanager
def on_server(shared, server_url):
    """A new database on the server with the schema; its URL.

    :param shared: directory of all workers of this run, for the original.
    :param server_url: as the fixture ``server_url`` has it.
    """
    with services.database(server_url) as url:
        create(shared, url)
        yield url


def create(shared, url):
    """Make the schema in an empty database of a server."""
    with _connected(url) as connection:
        # Neither understands all that the other says of its tables.
        kind = 'mariadb' if connection.dialect.is_mariadb else 'mysql'
    original = pathlib.Path(shared, f'schema.{kind}')
    with _locked(original):
        if not original.exists():
            made = pathlib.Path(f'{original}.made')
            _make(made, url)
            made.write_text(json.dumps(list(_statements(url))))
            made.rename(original)
            return
    with _connected(url) as connection:
        # The tables come in the order of their names.
        connection.exec_driver_sql('SET foreign_key_checks = 0')
        for statement, values in json.loads(original.read_text()):
            connection.exec_driver_sql(statement, tuple(values))


def skip_fsync(engine):
    """Do not wait for the disk: no test's database outlives the machine."""
    if engine.name == 'sqlite':
        sa.event.listen(engine, 'connect', lambda connection, _: (
            connection.execute('PRAGMA synchronous = OFF')))


@contextlib.contextmanager
def _locked(path):
    """Let one worker at a time look whether there is an original yet."""
    with open(f'{path}.lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _connected(url):
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        yield connection


def _make(path, url):
    """Have the commands of Ironic and ours make the schema.

    :param path: what the names of their files begin with.
    """
    conf_file = services.write_conf(f'{path}.conf', {
        'DEFAULT': services.FAKE_HARDWARE, 'database': {'connection': url}})
    services.create_schema(conf_file, f'{path}.log')


def _statements(url):
    """What makes a server's database once more: statements and their values.

    The few rows are those in which Alembic keeps the revisions.
    """
    with _connected(url) as connection:
        for table in sa.inspect(connection).get_table_names():
            _, statement = connection.exec_driver_sql(
                f'SHOW CREATE TABLE {table}').one()
            yield statement.replace('%', '%%'), ()
            for row in connection.exec_driver_sql(f'SELECT * FROM {table}'):
                places = ', '.join(['%s'] * len(row))
                yield f'INSERT INTO {table} VALUES ({places})', tuple(row)
