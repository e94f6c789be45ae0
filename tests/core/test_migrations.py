# SPDX-License-Identifier: Apache-2.0
"""Our tables in Ironic's database: how they are created and removed."""

import contextlib
import hashlib
import io
import pathlib
import re
import threading
import time
import types

from alembic import autogenerate
from alembic import command
from alembic import runtime
from alembic import script
from oslo_db import exception as db_exc
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations.cmd import dbsync
from ironic_reservations.db import models
from ironic_reservations.db import tables
from tests.common import fleets
from tests.common import next_version
from tests.common import programs

pytestmark = pytest.mark.on('sqlite', 'server')

OURS = {*models.Base.metadata.tables, models.VERSION_TABLE}


@pytest.fixture
def empty(new_database):
    with new_database() as database:
        yield database


@pytest.fixture
def stock(database):
    """The database of an Ironic without the plugin."""
    remove(database)
    yield database
    remove(database)
    migrate(database, 'head')


@pytest.fixture
def next_release(stock, monkeypatch):
    """The same, with the migrations of an invented next release."""
    monkeypatch.setattr(dbsync, 'make_config', next_version.make_config)
    yield stock
    migrate(stock, 'base', command.downgrade)


def remove(database):
    ours = sa.MetaData()
    ours.reflect(database.engine, only=lambda name, _: name in OURS)
    ours.drop_all(database.engine)


def migrate(database, revision, how=command.upgrade):
    with database.engine.connect() as connection:
        how(dbsync.make_config(connection), revision)


def revisions():
    """Return all revisions, from the first to the last."""
    tree = script.ScriptDirectory.from_config(dbsync.make_config(None))
    return [item.revision for item in tree.walk_revisions()][::-1]


def find_tables(database):
    return set(sa.inspect(database.engine).get_table_names())


def read_schema(database, names=None):
    """Return the schema of tables, by default of Ironic's.

    Migrations add columns at the end, hence their order does not matter.
    """
    inspector = sa.inspect(database.engine)
    return {name: sorted(str(item) for item in (
        *inspector.get_columns(name), inspector.get_pk_constraint(name),
        *inspector.get_foreign_keys(name), *inspector.get_indexes(name),
        *inspector.get_unique_constraints(name),
        *inspector.get_check_constraints(name),
        inspector.get_table_options(name)))
        for name in names or find_tables(database) - OURS}


def find_differences(database, metadata):
    """Return the changes of Alembic that make a database match metadata."""
    with database.engine.connect() as connection:
        return autogenerate.compare_metadata(
            runtime.migration.MigrationContext.configure(connection, opts={
                'version_table': models.VERSION_TABLE, 'compare_type': True,
                'compare_server_default': True}), metadata)


def test_migrations_create_the_schema_of_the_models(new_database):
    """From scratch, and by all migrations."""
    with new_database() as scratch, new_database() as database:
        models.Base.metadata.create_all(scratch.engine)
        migrate(database, 'head')
        reflection = sa.MetaData()
        reflection.reflect(scratch.engine)
        for metadata in models.Base.metadata, reflection:
            assert find_differences(database, metadata) == []
        # Alembic ignores names of primary keys, and options of tables.
        ours = set(models.Base.metadata.tables)
        assert read_schema(database, ours) == read_schema(scratch, ours)


@pytest.mark.parametrize('statement', [
    'DROP INDEX reservations_host_idx{on}',
    'ALTER TABLE reservations_groups DROP COLUMN description',
    'ALTER TABLE reservations_hosts ADD COLUMN extra INT'])
def test_comparison_detects_a_difference(empty, statement):
    """This is a test of the comparison above."""
    migrate(empty, 'head')
    with empty.engine.begin() as connection:
        connection.execute(sa.DDL(statement.format(
            on='' if empty.engine.name == 'sqlite' else ' ON reservations')))
    assert find_differences(empty, models.Base.metadata)


#: SHA-256 of each migration, from the first to the last. From 1.0.0 on, only
#: add lines at the end: a database runs a migration only once.
DIGESTS = {
    '1c8a40f7e2d6':
        '84738ec3395f6567fee9026bc0b21b46e45987d9aed8ad7b63aa84fab098b96e',
}


def test_released_migrations_do_not_change():
    tree = script.ScriptDirectory.from_config(dbsync.make_config(None))
    migrations = [(item.revision, hashlib.sha256(
        pathlib.Path(item.path).read_bytes()).hexdigest())
        for item in tree.walk_revisions()][::-1]
    assert migrations == [*DIGESTS.items()], (
        'DIGESTS lacks a new migration, or a released one has changed')


def test_options_of_the_table(empty):
    """Autogenerate does not compare these."""
    migrate(empty, 'head')
    with empty.engine.connect() as connection:
        if connection.dialect.name == 'sqlite':
            statement = connection.scalar(sa.text(
                "SELECT sql FROM sqlite_master WHERE name = 'reservations'"))
            assert 'AUTOINCREMENT' in statement
        else:
            statement = connection.execute(sa.text(
                'SHOW CREATE TABLE reservations')).one()[1]
            assert 'ENGINE=InnoDB' in statement
            assert 'COLLATE=utf8mb4_bin' in statement


def test_every_revision_up_and_down(next_release):
    before = read_schema(next_release)
    for revision in revisions():
        migrate(next_release, revision)
        migrate(next_release, '-1', command.downgrade)
        migrate(next_release, revision)
    assert OURS <= find_tables(next_release)
    migrate(next_release, 'base', command.downgrade)
    assert find_tables(next_release) & OURS <= {models.VERSION_TABLE}
    assert read_schema(next_release) == before


def test_our_tables_have_no_foreign_keys(database):
    inspector = sa.inspect(database.engine)
    for table in models.Base.metadata.tables:
        assert inspector.get_foreign_keys(table) == []


def test_dbsync(next_release):
    """The commands, in the process of the test."""
    def run(name, revision=None):
        _, function = dbsync.COMMANDS[name]
        output = io.StringIO()
        with next_release.engine.connect() as connection, \
                contextlib.redirect_stdout(output):
            function(connection, types.SimpleNamespace(revision=revision))
        return output.getvalue()

    first, last = revisions()[0], revisions()[-1]
    assert last not in run('version')
    assert first in run('history')
    run('upgrade', first)
    assert first in run('version')
    for _ in range(2):
        run('upgrade')
        assert last in run('version')
        assert f'Revision ID: {last}' in run('current')


@pytest.mark.long
@pytest.mark.parametrize('revision', ['base', next(iter(DIGESTS))])
def test_concurrent_upgrades(next_release, revision):
    """Three processes at once."""
    migrate(next_release, 'head')
    tables = [*models.Base.metadata.tables, 'reservations_next']
    expected = read_schema(next_release, tables)
    migrate(next_release, revision, command.downgrade)
    results = programs.upgrade_together(*[next_release.conf_file] * 3)
    assert ('done', 0) in results
    assert {*results} <= {('done', 0), ('Another process is upgrading', 2)}
    assert read_schema(next_release, tables) == expected
    assert_revision(next_release)


def test_tables_of_a_later_release(next_release):
    """After the way back, this release leaves them as they are."""
    migrate(next_release, 'head')
    before = read_schema(next_release, models.Base.metadata.tables)
    assert next_release.run('ironic-reservations-dbsync', 'upgrade').endswith(
        'nothing to do: a later release has made our tables, at next\n')
    output = next_release.run('ironic-reservations-status', 'upgrade', 'check',
                              status=1)
    assert re.search(r'Database revision +\|\n\| Result: Warning', output)
    assert read_schema(next_release, models.Base.metadata.tables) == before
    assert_revision(next_release)


def assert_revision(database):
    with database.engine.connect() as connection:
        assert connection.execute(sa.text(
            f'SELECT * FROM {models.VERSION_TABLE}')).all() == [
                (revisions()[-1],)]


# On SQLite, the second process waits for the transaction of the first.
@pytest.mark.on('server')
def test_upgrade_during_the_first_step(next_release):
    """The first revision must not be recorded after that of the other."""
    def upgrade():
        assert programs.upgrade_together(next_release.conf_file) == [
            ('done', 0)]

    with fleets.Fleet(next_release.engine).before(
            f'INSERT INTO {models.VERSION_TABLE}', upgrade), \
            next_release.engine.connect() as connection:
        dbsync.upgrade(connection, types.SimpleNamespace(revision=None))
    assert_revision(next_release)


@pytest.mark.on('server')
@pytest.mark.long
@pytest.mark.parametrize('args', ['upgrade', 'drop --yes'])
def test_transaction_that_has_read_our_table(next_release, args):
    """The commands wait for it longer than any request waits for a table."""
    migrate(next_release, revisions()[0])
    # Not an engine of ours, whose idle transactions MariaDB ends earlier.
    other = sa.create_engine(next_release.url)
    with other.connect() as connection:
        connection.exec_driver_sql('SELECT COUNT(*) FROM reservations')
        timer = threading.Timer(20, connection.rollback)
        began = time.monotonic()
        timer.start()
        try:
            programs.run(*programs.NEXT_DBSYNC, '--config-file',
                         next_release.conf_file, *args.split())
        finally:
            timer.cancel()
            timer.join()
        assert time.monotonic() - began > 19
    other.dispose()
    if args == 'upgrade':
        assert_revision(next_release)
    else:
        assert not find_tables(next_release) & OURS


@pytest.mark.parametrize('is_conflict', [False, True])
def test_upgrade_that_fails(stock, monkeypatch, is_conflict):
    """It does not wait for another process, unless there may be one."""
    error = db_exc.DBDeadlock() if is_conflict else db_exc.DBError()
    monkeypatch.setattr(dbsync, '_PATIENCE', 0)
    monkeypatch.setattr(command, 'upgrade', fleets.raising(error))
    with stock.engine.connect() as connection, pytest.raises(
            exception.Conflict if is_conflict else db_exc.DBError):
        dbsync.upgrade(connection, types.SimpleNamespace(revision=None))


@pytest.mark.on('server')
def test_ironics_revision_does_not_change(stock):
    def revision():
        with stock.engine.connect() as connection:
            return connection.execute(
                sa.text('SELECT * FROM alembic_version')).all()

    before = revision()
    migrate(stock, 'head')
    assert revision() == before
    migrate(stock, 'base', command.downgrade)
    assert revision() == before


@pytest.mark.on('server')
def test_ironic_upgrades_with_our_tables(database):
    before = read_schema(database)
    database.run('ironic-dbsync', 'upgrade')
    database.run('ironic-status', 'upgrade', 'check')
    assert read_schema(database) == before
    assert OURS <= find_tables(database)


@pytest.mark.on('server')
def test_upgrade_check(stock):
    def check(status):
        output = stock.run('ironic-reservations-status', 'upgrade', 'check',
                           status=status)
        return dict(re.findall(r'Check: (.*?) *\|\n\| Result: (\w+)', output))

    ready = {'Database schema': 'Success', 'Database revision': 'Success',
             'Stale reads': 'Success', 'Session variables': 'Success',
             'Durability': 'Success', 'Clocks': 'Success',
             'Logging': 'Success', 'Policy rules': 'Success',
             'Service role': 'Warning', 'Quota': 'Success',
             'Projects': 'Warning', 'Unowned nodes': 'Success',
             'Prepared nodes': 'Success',
             # The configuration of these tests does not name it.
             'API plugin': 'Warning'}
    assert check(2) == {**ready, 'Database schema': 'Failure',
                        'Database revision': 'Failure'}
    migrate(stock, 'head')
    assert check(1) == ready


# Databases that are not ready

def problems(database):
    return list(tables.find_problems(database.engine))


def test_complete_schema_is_ready(database):
    assert problems(database) == []
    tables.check_tables(database.engine)


def test_missing_table_of_ours(stock, caplog):
    first, *_ = all_problems = problems(stock)
    assert len(all_problems) == len(models.Base.metadata.tables)
    assert all('ironic-reservations-dbsync upgrade' in problem
               for problem in all_problems)
    with pytest.raises(exception.DatabaseNotReady) as error:
        tables.check_tables(stock.engine)
    # The log says what to do; the client does not see the internals.
    assert first in caplog.text
    assert 'table' not in str(error.value)
    migrate(stock, 'head')
    tables.check_tables(stock.engine)


def test_missing_tables_of_ironic(empty):
    migrate(empty, 'head')
    with pytest.raises(exception.DatabaseNotReady):
        tables.check_tables(empty.engine)
    assert any('nodes' in problem and 'ironic-dbsync' in problem
               for problem in problems(empty))


@pytest.mark.parametrize('table, column', [
    ('reservations', 'request_spec'), ('node_traits', 'trait'),
    ('nodes', 'power_state')])
def test_missing_column(empty, table, column):
    """The table belongs to another version, or an upgrade is incomplete."""
    metadata = sa.MetaData()
    for model in (*models.ironic.sorted_tables,
                  *models.Base.metadata.sorted_tables):
        sa.Table(model.name, metadata, *(
            sa.Column(item.name, item.type, primary_key=item.primary_key)
            for item in model.columns
            if (model.name, item.name) != (table, column)))
    metadata.create_all(empty.engine)
    with pytest.raises(exception.DatabaseNotReady):
        tables.check_tables(empty.engine)
    problem, = problems(empty)
    assert table in problem and column in problem
