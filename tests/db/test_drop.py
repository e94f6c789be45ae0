# SPDX-License-Identifier: Apache-2.0
"""Our tables are taken out of Ironic's database, and made anew."""

import io
import types

from alembic import command
from alembic import script
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations.cmd import dbsync
from ironic_reservations.db import models
from ironic_reservations.db import tables as db_tables
from ironic_reservations.reservations import expiry
from tests.db import conftest

pytestmark = pytest.mark.on('sqlite', 'server')

OURS = {*models.Base.metadata.tables, models.VERSION_TABLE}


@pytest.fixture
def installed(database):
    """The database, which has all tables again in the end."""
    yield database
    upgrade(database)
    db_tables.check(database.engine)


def upgrade(database):
    with database.engine.connect() as connection:
        command.upgrade(dbsync.make_config(connection), 'head')


def drop(database, yes=True, force=False):
    """What the command does; its exit status."""
    with database.engine.connect() as connection:
        return dbsync.drop(connection,
                           types.SimpleNamespace(yes=yes, force=force))


def tables(database):
    return OURS & {*sa.inspect(database.engine).get_table_names()}


def schema(database):
    """What our tables consist of, and the revision that they are at.

    MySQL names the character set of some columns, beside their collation.
    """
    inspector = sa.inspect(database.engine)
    with database.engine.connect() as connection:
        revision = connection.execute(sa.text(
            f'SELECT * FROM {models.VERSION_TABLE}')).all()
    return revision, {name: [sorted(
        str(each).replace("charset='utf8mb4', ", '') for each in found)
        for found in (
        inspector.get_columns(name), inspector.get_indexes(name),
        inspector.get_unique_constraints(name))] for name in OURS}


def ironics(database):
    return {*sa.inspect(database.engine).get_table_names()} - OURS


# What the commands do is the same in each process.
@pytest.mark.on('server')
def test_commands(installed):
    """One after the other, as an operator gives them."""
    before, others = schema(installed), ironics(installed)
    said = installed.run('ironic-reservations-dbsync', 'drop', '--yes')
    assert '6 tables dropped' in said
    assert tables(installed) == set() and ironics(installed) == others
    # Standard input is empty.
    said = installed.run('ironic-reservations-dbsync', 'drop')
    assert 'nothing to drop' in said
    for args in ['--revision', newest()], []:
        said = installed.run('ironic-reservations-dbsync', 'upgrade', *args)
        assert said.endswith(f'done, at {newest()}\n')
        # Nobody looks at a terminal.
        assert f'{newest()}: ' not in said
    assert schema(installed) == before and ironics(installed) == others


def newest():
    return script.ScriptDirectory.from_config(
        dbsync.make_config(None)).get_current_head()


def test_steps_are_told_on_a_terminal(installed, monkeypatch, capsys):
    assert drop(installed) == 0
    capsys.readouterr()
    monkeypatch.setattr('sys.stderr.isatty', lambda: True, raising=False)
    with installed.engine.connect() as connection:
        dbsync.upgrade(connection, types.SimpleNamespace(revision=None))
    said = capsys.readouterr()
    assert said.err.startswith(f'{newest()}: ')
    assert said.out == f'done, at {newest()}\n'


@pytest.mark.parametrize('answer, dropped', [
    ('y\n', True), ('Yes\n', True), ('n\n', False), ('\n', False),
    ('', False)], ids=repr)
def test_it_asks(installed, monkeypatch, capsys, answer, dropped):
    monkeypatch.setattr('sys.stdin', io.StringIO(answer))
    assert drop(installed, yes=False) == (0 if dropped else 1)
    assert tables(installed) == (set() if dropped else OURS)
    said = capsys.readouterr().out
    assert all(name in said for name in OURS) and '[y/N]' in said


def test_live_reservations(installed, fleet):
    node_id = fleet.node()
    fleet.hold(conftest.INSTANCE)
    with pytest.raises(exception.Conflict, match='1 reservations are live'):
        drop(installed)
    assert tables(installed) == OURS
    assert drop(installed, force=True) == 0
    assert tables(installed) == set()
    # Ironic's own table is not written to.
    assert fleet.carried == {node_id: conftest.INSTANCE}
    # Else there are no tables to clear.
    upgrade(installed)


def test_lapsed_reservations(installed, fleet):
    """Their nodes would keep their instances, too."""
    fleet.node()
    fleet.hold()
    fleet.lapse()
    with pytest.raises(exception.Conflict, match='sweep'):
        drop(installed)
    assert expiry.sweep() == (1, 0)
    assert drop(installed) == 0
    upgrade(installed)


def test_finished_reservations(installed, fleet):
    node_id = fleet.node()
    fleet.hold()
    fleet.edit(node_id, instance_uuid=None)
    assert drop(installed) == 0
    assert tables(installed) == set()
    upgrade(installed)


@pytest.mark.parametrize('gone', [
    # Tables that an operator has dropped by hand.
    (models.VERSION_TABLE, 'reservations', 'reservations_hosts'),
    (models.VERSION_TABLE, 'reservations'),
    # An upgrade that was interrupted before it had noted its revision.
    (models.VERSION_TABLE,), (models.VERSION_TABLE, 'reservations_projects'),
], ids=', '.join)
@pytest.mark.parametrize('how', ['upgrade', 'drop'])
def test_what_is_left_by_half(installed, gone, how):
    before = schema(installed)
    with installed.engine.begin() as connection:
        for name in gone:
            connection.execute(sa.text(f'DROP TABLE {name}'))
    if how == 'drop':
        assert drop(installed) == 0
        assert tables(installed) == set()
    upgrade(installed)
    assert schema(installed) == before


def test_missing_index(installed):
    """MariaDB makes the indexes after the table, each for itself."""
    before = schema(installed)
    with installed.engine.begin() as connection:
        connection.execute(sa.text(f'DROP TABLE {models.VERSION_TABLE}'))
        for table, index in (
                ('reservations', 'reservations_host_idx'),
                ('reservations_groups', 'reservations_groups_project_id_idx'),
                ('reservations', 'reservations_group_id_idx')):
            connection.execute(sa.text(f'DROP INDEX {index}' + (
                '' if installed.engine.name == 'sqlite' else f' ON {table}')))
    upgrade(installed)
    assert schema(installed) == before


def test_reservations_without_groups(installed, fleet):
    """The tables of groups were dropped by hand; most queries ask for them."""
    fleet.node()
    fleet.hold(conftest.INSTANCE)
    with installed.engine.begin() as connection:
        for name in 'reservations_groups', 'reservations_projects':
            connection.execute(sa.text(f'DROP TABLE {name}'))
    with pytest.raises(exception.Conflict):
        drop(installed)
    assert drop(installed, force=True) == 0
    assert tables(installed) == set()
    upgrade(installed)


@pytest.mark.parametrize('name, column', [
    ('reservations', 'request_spec'), ('reservations_groups', 'generation')])
def test_table_that_is_another_one(installed, name, column):
    """One that is no part of what an upgrade has left is not gone on from."""
    assert drop(installed) == 0
    with installed.engine.begin() as connection:
        connection.execute(sa.text(f'CREATE TABLE {name} (id INTEGER)'))
    with pytest.raises(exception.DatabaseNotReady) as caught:
        upgrade(installed)
    told = str(caught.value)
    assert f'table {name} lacks' in told and column in told
    assert 'ironic-reservations-dbsync drop' in told
    assert drop(installed) == 0
