# SPDX-License-Identifier: Apache-2.0
"""An older Ironic, in whose tables some columns are not there yet."""

import pytest
import sqlalchemy as sa

from ironic_reservations.db import engine as db_engine
from ironic_reservations.db import tables
from ironic_reservations.fleet import capacity
from ironic_reservations.fleet import count as counts
from tests.db import conftest

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
        monkeypatch.setattr(counts, 'recent', conftest.count_again)
        yield OldFleet(database.engine)


class OldFleet(conftest.Fleet):

    @staticmethod
    def _free():
        fields = conftest.Fleet._free()
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
