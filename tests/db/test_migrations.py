# SPDX-License-Identifier: Apache-2.0
"""Our tables in Ironic's database: how they are created and removed."""

import contextlib
import io
import re
import types

from alembic import command
from alembic import script
from oslo_db.sqlalchemy import test_migrations
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations.cmd import dbsync
from ironic_reservations.db import models
from ironic_reservations.db import tables

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


def read_schema(database):
    """Return the schema of Ironic's tables."""
    inspector = sa.inspect(database.engine)
    return {name: [str(item) for item in (
        *inspector.get_columns(name), inspector.get_pk_constraint(name),
        *inspector.get_foreign_keys(name),
        *sorted(inspector.get_indexes(name), key=str),
        *sorted(inspector.get_unique_constraints(name), key=str))]
        for name in find_tables(database) - OURS}


class ModelsSync(test_migrations.ModelsMigrationsSync):
    """oslo.db's comparison, outside of its test classes."""

    def __init__(self, database):
        self._database = database

    def db_sync(self, engine):
        migrate(self._database, 'head')

    def get_engine(self):
        return self._database.engine

    def get_metadata(self):
        return models.Base.metadata

    def include_object(self, object_, name, type_, is_reflected, compare_to):
        return not (type_ == 'table' and name == models.VERSION_TABLE)

    def addCleanup(self, function):
        """Do nothing: the whole database is deleted."""

    def fail(self, message):
        pytest.fail(message)


def test_models_agree_with_the_migrations(empty):
    ModelsSync(empty).test_models_sync()


def test_comparison_detects_a_difference(empty):
    """This is a test of the comparison above."""
    migrate(empty, 'head')
    with empty.engine.begin() as connection:
        connection.execute(sa.DDL(
            'DROP INDEX reservations_host_idx' + (
                '' if empty.engine.name == 'sqlite' else ' ON reservations')))
    with pytest.raises(pytest.fail.Exception, match='reservations_host_idx'):
        ModelsSync(empty).test_models_sync()


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


def test_every_revision_up_and_down(stock):
    before = read_schema(stock)
    for revision in revisions():
        migrate(stock, revision)
        migrate(stock, '-1', command.downgrade)
        migrate(stock, revision)
    assert OURS <= find_tables(stock)
    migrate(stock, 'base', command.downgrade)
    assert find_tables(stock) & OURS <= {models.VERSION_TABLE}
    migrate(stock, 'head')
    assert OURS <= find_tables(stock)
    assert read_schema(stock) == before


def test_our_tables_have_no_foreign_keys(database):
    inspector = sa.inspect(database.engine)
    for table in models.Base.metadata.tables:
        assert inspector.get_foreign_keys(table) == []


def test_dbsync(stock):
    """The commands, in the process of the test."""
    def run(name, revision=None):
        _, function = dbsync.COMMANDS[name]
        output = io.StringIO()
        with stock.engine.connect() as connection, \
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
             'Stale reads': 'Success', 'Clocks': 'Success',
             'Policy rules': 'Success', 'Service role': 'Warning',
             'Quota': 'Success', 'Projects': 'Warning',
             'Unowned nodes': 'Success',
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
