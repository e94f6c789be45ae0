# SPDX-License-Identifier: Apache-2.0
"""Our table in Ironic's database: how it comes, goes, and stays apart."""

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
from ironic_reservations.db import tables as db_tables

pytestmark = pytest.mark.on('sqlite', 'server')

OURS = {*models.Base.metadata.tables, models.VERSION_TABLE}


@pytest.fixture
def empty(new_database):
    with new_database() as database:
        yield database


@pytest.fixture
def stock(database):
    """An Ironic's database before we came."""
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
    """From the first to the last."""
    tree = script.ScriptDirectory.from_config(dbsync.make_config(None))
    return [found.revision for found in tree.walk_revisions()][::-1]


def tables(database):
    return set(sa.inspect(database.engine).get_table_names())


def schema(database):
    """Everything that the database knows of its tables but ours."""
    inspector = sa.inspect(database.engine)
    return {name: [str(found) for found in (
        *inspector.get_columns(name), inspector.get_pk_constraint(name),
        *inspector.get_foreign_keys(name),
        *sorted(inspector.get_indexes(name), key=str),
        *sorted(inspector.get_unique_constraints(name), key=str))]
        for name in tables(database) - OURS}


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

    def include_object(self, object_, name, type_, reflected, compare_to):
        return not (type_ == 'table' and name == models.VERSION_TABLE)

    def addCleanup(self, function):
        """The whole database goes away."""

    def fail(self, message):
        pytest.fail(message)


def test_models_are_what_the_migrations_make(empty):
    ModelsSync(empty).test_models_sync()


def test_unsynchronized_models_are_seen(empty):
    """The comparison above is not blind."""
    migrate(empty, 'head')
    with empty.engine.begin() as connection:
        connection.execute(sa.DDL(
            'DROP INDEX reservations_host_idx' + (
                '' if empty.engine.name == 'sqlite' else ' ON reservations')))
    with pytest.raises(pytest.fail.Exception, match='reservations_host_idx'):
        ModelsSync(empty).test_models_sync()


def test_options_of_the_table(empty):
    """What autogenerate does not compare."""
    migrate(empty, 'head')
    with empty.engine.connect() as connection:
        if connection.dialect.name == 'sqlite':
            created = connection.scalar(sa.text(
                "SELECT sql FROM sqlite_master WHERE name = 'reservations'"))
            assert 'AUTOINCREMENT' in created
        else:
            created = connection.execute(sa.text(
                'SHOW CREATE TABLE reservations')).one()[1]
            assert 'ENGINE=InnoDB' in created
            assert 'COLLATE=utf8mb4_bin' in created


def test_every_revision_up_and_down(stock):
    before = schema(stock)
    for revision in revisions():
        migrate(stock, revision)
        migrate(stock, '-1', command.downgrade)
        migrate(stock, revision)
    assert OURS <= tables(stock)
    migrate(stock, 'base', command.downgrade)
    assert tables(stock) & OURS <= {models.VERSION_TABLE}
    migrate(stock, 'head')
    assert OURS <= tables(stock)
    assert schema(stock) == before


def test_our_tables_have_no_tie_to_ironics(database):
    inspector = sa.inspect(database.engine)
    for table in models.Base.metadata.tables:
        assert inspector.get_foreign_keys(table) == []


def test_dbsync(stock):
    """What the commands do, in this process."""
    def run(name, revision=None):
        _, function = dbsync.COMMANDS[name]
        said = io.StringIO()
        with stock.engine.connect() as connection, \
                contextlib.redirect_stdout(said):
            function(connection, types.SimpleNamespace(revision=revision))
        return said.getvalue()

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
def test_ironics_own_revision_is_untouched(stock):
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
def test_ironic_upgrades_beside_our_table(database):
    before = schema(database)
    database.run('ironic-dbsync', 'upgrade')
    database.run('ironic-status', 'upgrade', 'check')
    assert schema(database) == before
    assert OURS <= tables(database)


@pytest.mark.on('server')
def test_upgrade_check(stock):
    def check(status):
        found = stock.run('ironic-reservations-status', 'upgrade', 'check',
                          status=status)
        return dict(re.findall(r'Check: (.*?) *\|\n\| Result: (\w+)', found))

    ready = {'Database schema': 'Success', 'Database revision': 'Success',
             # The configuration of these tests does not name it.
             'Stale reads': 'Success', 'Clocks': 'Success',
             'Policy rules': 'Success', 'Service role': 'Warning',
             'Quota': 'Success', 'Projects': 'Warning',
             'Unowned nodes': 'Success', 'API plugin': 'Warning'}
    assert check(2) == {**ready, 'Database schema': 'Failure',
                        'Database revision': 'Failure'}
    migrate(stock, 'head')
    assert check(1) == ready


# Not ready

def problems(database):
    return list(db_tables.problems(database.engine))


def test_complete_schema_is_ready(database):
    assert problems(database) == []
    db_tables.check(database.engine)


def test_missing_table_of_ours(stock, caplog):
    problem, *_ = found = problems(stock)
    assert len(found) == len(models.Base.metadata.tables)
    assert all('ironic-reservations-dbsync upgrade' in each
               for each in found)
    with pytest.raises(exception.DatabaseNotReady) as caught:
        db_tables.check(stock.engine)
    # The operator reads what to do, the client nothing of the inside.
    assert problem in caplog.text
    assert 'table' not in str(caught.value)
    migrate(stock, 'head')
    db_tables.check(stock.engine)


def test_missing_tables_of_ironic(empty):
    migrate(empty, 'head')
    with pytest.raises(exception.DatabaseNotReady):
        db_tables.check(empty.engine)
    assert any('nodes' in problem and 'ironic-dbsync' in problem
               for problem in problems(empty))


@pytest.mark.parametrize('table, column', [
    ('reservations', 'request_spec'), ('node_traits', 'trait'),
    ('nodes', 'power_state')])
def test_missing_column(empty, table, column):
    """A table that another version has left, or not made yet."""
    everything = sa.MetaData()
    for each in (*models.ironic.sorted_tables,
                 *models.Base.metadata.sorted_tables):
        sa.Table(each.name, everything, *(
            sa.Column(found.name, found.type, primary_key=found.primary_key)
            for found in each.columns
            if (each.name, found.name) != (table, column)))
    everything.create_all(empty.engine)
    with pytest.raises(exception.DatabaseNotReady):
        db_tables.check(empty.engine)
    problem, = problems(empty)
    assert table in problem and column in problem
