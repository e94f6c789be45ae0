# SPDX-License-Identifier: Apache-2.0
"""Our tables are taken out of Ironic's database, and created again."""

import io
import types

from alembic import command
from alembic import script
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations.cmd import dbsync
from ironic_reservations.db import models
from ironic_reservations.db import tables
from ironic_reservations.reservations import expiry
from tests.common import fleets

pytestmark = pytest.mark.on('sqlite', 'server')

OURS = {*models.Base.metadata.tables, models.VERSION_TABLE}


@pytest.fixture
def ready_database(database):
    """The database, whose tables are restored at the end."""
    yield database
    upgrade(database)
    tables.check_tables(database.engine)


def upgrade(database):
    with database.engine.connect() as connection:
        command.upgrade(dbsync.make_config(connection), 'head')


def drop(database, yes=True, force=False):
    """Run the command, and return its exit status."""
    with database.engine.connect() as connection:
        return dbsync.drop(connection,
                           types.SimpleNamespace(yes=yes, force=force))


def find_tables(database):
    return OURS & {*sa.inspect(database.engine).get_table_names()}


def read_schema(database):
    """Return the revision and the columns, indexes and keys of our tables.

    MySQL reports the character set of some columns besides their collation.
    """
    inspector = sa.inspect(database.engine)
    with database.engine.connect() as connection:
        revision = connection.execute(sa.text(
            f'SELECT * FROM {models.VERSION_TABLE}')).all()
    return revision, {name: [sorted(
        str(item).replace("charset='utf8mb4', ", '') for item in items)
        for items in (
            inspector.get_columns(name), inspector.get_indexes(name),
            inspector.get_unique_constraints(name))] for name in OURS}


def find_ironic_tables(database):
    return {*sa.inspect(database.engine).get_table_names()} - OURS


# The commands do the same in any process.
@pytest.mark.on('server')
def test_drop_and_upgrade_commands(ready_database):
    before = read_schema(ready_database)
    others = find_ironic_tables(ready_database)
    output = ready_database.run('ironic-reservations-dbsync', 'drop', '--yes')
    assert '10 tables dropped' in output
    assert find_tables(ready_database) == set()
    assert find_ironic_tables(ready_database) == others
    # Standard input is empty.
    output = ready_database.run('ironic-reservations-dbsync', 'drop')
    assert 'nothing to drop' in output
    for args in ['--revision', newest()], []:
        output = ready_database.run(
            'ironic-reservations-dbsync', 'upgrade', *args)
        assert output.endswith(f'done, at {newest()}\n')
        # The output is no terminal.
        assert f'{newest()}: ' not in output
    assert read_schema(ready_database) == before
    assert find_ironic_tables(ready_database) == others


def newest():
    return script.ScriptDirectory.from_config(
        dbsync.make_config(None)).get_current_head()


def test_steps_are_shown_on_a_terminal(ready_database, monkeypatch, capsys):
    assert drop(ready_database) == 0
    capsys.readouterr()
    monkeypatch.setattr('sys.stderr.isatty', lambda: True, raising=False)
    with ready_database.engine.connect() as connection:
        dbsync.upgrade(connection, types.SimpleNamespace(revision=None))
    output = capsys.readouterr()
    assert output.err.splitlines()[-1].startswith(f'{newest()}: ')
    assert output.out == f'done, at {newest()}\n'


@pytest.mark.parametrize('answer, is_confirmed', [
    ('y\n', True), ('Yes\n', True), ('n\n', False), ('\n', False),
    ('', False)], ids=repr)
def test_drop_asks(ready_database, monkeypatch, capsys, answer, is_confirmed):
    monkeypatch.setattr('sys.stdin', io.StringIO(answer))
    assert drop(ready_database, yes=False) == (0 if is_confirmed else 1)
    assert find_tables(ready_database) == (set() if is_confirmed else OURS)
    output = capsys.readouterr().out
    assert all(name in output for name in OURS) and '[y/N]' in output


def test_live_reservations(fleet, ready_database):
    node_id = fleet.add_node()
    fleet.hold(fleets.INSTANCE)
    with pytest.raises(exception.Conflict, match='1 reservations are live'):
        drop(ready_database)
    assert find_tables(ready_database) == OURS
    assert drop(ready_database, force=True) == 0
    assert find_tables(ready_database) == set()
    # Ironic's tables are left alone.
    assert fleet.instances == {node_id: fleets.INSTANCE}


def test_pools(fleet, ready_database):
    fleet.add_pool('p', fleet.add_node())
    with pytest.raises(exception.Conflict, match='1 pools exist'):
        drop(ready_database)
    assert find_tables(ready_database) == OURS
    assert drop(ready_database, force=True) == 0
    assert find_tables(ready_database) == set()


def test_expired_pools(fleet, ready_database):
    fleet.add_pool('p', fleet.add_node(), seconds=0)
    assert drop(ready_database) == 0


def test_cordons(fleet, ready_database, monkeypatch, capsys):
    """They do not prevent the drop, but the operator reads what is lost."""
    monkeypatch.setattr(dbsync, '_MAX_NAMES', 2)
    names = [fleet.add_node(name=name) for name in ('n2', 'n1', 'n3', 'n4')]
    for node_id in names[0], *names[:2]:
        fleet.cordon(node_id)
    monkeypatch.setattr('sys.stdin', io.StringIO('n'))
    assert drop(ready_database, yes=False) == 1
    line, question = capsys.readouterr().out.split('\n', 1)
    assert line == 'The open cordons of 2 nodes end: n1, n2'
    assert question.startswith('Drop the tables')
    fleet.cordon(names[2])
    assert drop(ready_database) == 0
    assert capsys.readouterr().out.startswith(
        'The open cordons of 3 nodes end: n1, n2 ...\n')
    assert drop(ready_database) == 0
    assert 'cordons' not in capsys.readouterr().out


def test_expired_reservations(fleet, ready_database):
    """Otherwise their nodes would keep their instances."""
    fleet.add_node()
    fleet.hold()
    fleet.expire_leases()
    with pytest.raises(exception.Conflict, match='sweep'):
        drop(ready_database)
    assert expiry.sweep() == (1, 0)
    assert drop(ready_database) == 0


def test_stale_reservations(fleet, ready_database):
    node_id = fleet.add_node()
    fleet.hold()
    fleet.set_node(node_id, instance_uuid=None)
    assert drop(ready_database) == 0
    assert find_tables(ready_database) == set()


@pytest.mark.parametrize('missing', [
    # Tables that an operator has dropped by hand.
    (models.VERSION_TABLE, 'reservations', 'reservations_hosts'),
    (models.VERSION_TABLE, 'reservations'),
    # An upgrade that was interrupted before it had noted its revision.
    (models.VERSION_TABLE,), (models.VERSION_TABLE, 'reservations_projects'),
], ids=', '.join)
@pytest.mark.parametrize('how', ['upgrade', 'drop'])
def test_missing_tables(ready_database, missing, how):
    before = read_schema(ready_database)
    with ready_database.engine.begin() as connection:
        for name in missing:
            connection.execute(sa.text(f'DROP TABLE {name}'))
    if how == 'drop':
        assert drop(ready_database) == 0
        assert find_tables(ready_database) == set()
    upgrade(ready_database)
    assert read_schema(ready_database) == before


def test_missing_index(ready_database):
    """MariaDB creates each index separately after the table."""
    before = read_schema(ready_database)
    with ready_database.engine.begin() as connection:
        connection.execute(sa.text(f'DROP TABLE {models.VERSION_TABLE}'))
        for table, index in (
                ('reservations', 'reservations_host_idx'),
                ('reservations_groups', 'reservations_groups_project_id_idx'),
                ('reservations', 'reservations_group_id_idx')):
            connection.execute(sa.text(f'DROP INDEX {index}' + (
                '' if ready_database.engine.name == 'sqlite'
                else f' ON {table}')))
    upgrade(ready_database)
    assert read_schema(ready_database) == before


def test_reservations_without_groups(fleet, ready_database):
    """The tables of groups, which most queries need, were dropped by hand."""
    fleet.add_node()
    fleet.hold(fleets.INSTANCE)
    with ready_database.engine.begin() as connection:
        for name in 'reservations_groups', 'reservations_projects':
            connection.execute(sa.text(f'DROP TABLE {name}'))
    with pytest.raises(exception.Conflict):
        drop(ready_database)
    assert drop(ready_database, force=True) == 0
    assert find_tables(ready_database) == set()


@pytest.mark.parametrize('name, column', [
    ('reservations', 'request_spec'), ('reservations_groups', 'generation')])
def test_foreign_table_of_the_same_name(ready_database, name, column):
    """An upgrade does not build on a table that no upgrade has left."""
    assert drop(ready_database) == 0
    with ready_database.engine.begin() as connection:
        connection.execute(sa.text(f'CREATE TABLE {name} (id INTEGER)'))
    with pytest.raises(exception.DatabaseNotReady) as error:
        upgrade(ready_database)
    assert f'table {name} lacks' in str(error.value)
    assert column in str(error.value)
    assert 'ironic-reservations-dbsync drop' in str(error.value)
    assert drop(ready_database) == 0
