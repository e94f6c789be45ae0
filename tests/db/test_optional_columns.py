# SPDX-License-Identifier: Apache-2.0
"""Tables and columns that only some releases of Ironic have."""

import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations.db import engine as db_engine
from ironic_reservations.db import node_rows
from ironic_reservations.db import tables
from ironic_reservations.fleet import capacity
from ironic_reservations.fleet import count as counts
from tests.common import fleets

pytestmark = pytest.mark.on('sqlite', 'server')

GOLD = {'resource_class': 'gold'}


@pytest.fixture
def old(new_database, monkeypatch):
    """Nodes of an Ironic before 34.0; and node_history of one before 39.0."""
    with new_database(complete=True) as database:
        with database.engine.begin() as connection:
            for table, column in (('nodes', 'health'),
                                  ('node_history', 'state')):
                connection.execute(sa.text(
                    f'ALTER TABLE {table} DROP COLUMN {column}'))
        tables.check(database.engine)
        monkeypatch.setattr(db_engine, 'get_engine', lambda: database.engine)
        monkeypatch.setattr(counts, 'recent', fleets.recount)
        yield OldFleet(database.engine)


class OldFleet(fleets.Fleet):

    @staticmethod
    def _make_free_node():
        fields = fleets.Fleet._make_free_node()
        del fields['health']
        return fields


def test_nodes_are_counted_held_and_released(old):
    ids = old.add({}, {'maintenance': True})
    held, _ = old.hold(**GOLD)
    assert held.node_id == ids[0]
    row, = capacity.capacity(0, capacity.Filter())[0]
    assert row.shown['out_of_service'] == row.shown['reserved'] == 1


def test_any_error_counts(old):
    ids = old.add({}, {}, {})
    for node_id in ids[:2]:
        old.insert('node_history', node_id, severity='ERROR',
                   created_at=sa.func.current_timestamp())
    assert old.hold(**GOLD)[0].node_id == ids[2]


@pytest.fixture
def newer(new_database, monkeypatch):
    """Nodes of an Ironic that has deferred actions."""
    with new_database(complete=True) as database:
        with database.engine.begin() as connection:
            connection.execute(sa.text(
                'CREATE TABLE deferred_actions (uuid VARCHAR(36), '
                'node_id INTEGER, state VARCHAR(255))'))
        tables.check(database.engine)
        monkeypatch.setattr(db_engine, 'get_engine', lambda: database.engine)
        monkeypatch.setattr(counts, 'recent', fleets.recount)
        yield fleets.Fleet(database.engine)


def test_node_with_an_open_deferred_action_is_not_held(newer):
    states = ['RUNNING', None, 'COMPLETED', 'FAILED']
    ids = newer.add(*({} for _ in states))
    for node_id, state in zip(ids, states, strict=True):
        newer.insert('deferred_actions', node_id, state=state)
    # One that was completed long ago does not hide one that is open.
    newer.insert('deferred_actions', ids[0], state='COMPLETED')
    assert {newer.hold(**GOLD)[0].node_id for _ in range(2)} == {*ids[2:]}
    with pytest.raises(exception.NoMatchingNode) as refusal:
        newer.hold(**GOLD)
    assert refusal.value.explanation['eliminated'] == [
        {'by': 'reserved', 'nodes': 2}, {'by': 'deferred action', 'nodes': 2}]
    row, = capacity.capacity(0, capacity.Filter())[0]
    assert row.shown['out_of_service'] == 2


def test_deferred_action_that_begins_after_the_search(newer, monkeypatch):
    """The guard of the hold sees it."""
    ids = newer.add({}, {})
    guarded = node_rows.hold

    def begin(node, *args):
        if not actions:
            actions.append(node.id)
            newer.insert('deferred_actions', node.id, state='NEW')
        return guarded(node, *args)

    actions = []
    monkeypatch.setattr(node_rows, 'hold', begin)
    node_id = newer.hold(**GOLD)[0].node_id
    assert {node_id, *actions} == {*ids}
