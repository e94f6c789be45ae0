# SPDX-License-Identifier: Apache-2.0
"""Rows whose nodes have moved on: they are invisible, and in no one's way."""

import uuid

import pytest

from ironic_reservations import exception
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import values

pytestmark = pytest.mark.on('sqlite', 'server')

INSTANCE = '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'
HOST_2 = values.Assignment(host='compute-2')
GOLD = {'resource_class': 'gold', 'memory_mb': 1000}


@pytest.fixture
def stale(fleet):
    """A node whose instance is gone, by Ironic's hand, and that is free."""
    fleet.node_id = fleet.node()
    fleet.hold(INSTANCE, **GOLD)
    fleet.edit(fleet.node_id, instance_uuid=None)
    return fleet


def test_stale_row_is_invisible(stale):
    assert len(stale.rows) == 1
    assert lookup.find_reservations() == []
    with pytest.raises(exception.NotFound):
        lookup.get_reservation(INSTANCE)


def test_stale_row_is_purged_by_a_delete(stale):
    with pytest.raises(exception.NotFound):
        releases.release_reservation(INSTANCE)
    assert stale.rows == []


def test_stale_row_is_purged_by_a_sweep(stale):
    assert expiry.sweep() == (0, 1)
    assert stale.rows == []


def test_stale_row_of_the_node_is_in_nobodys_way(stale):
    other = str(uuid.uuid4())
    assert stale.hold(other, **GOLD)[1]
    assert stale.held == {stale.node_id: other}


def test_stale_row_of_the_instance_is_in_nobodys_way(stale):
    """It holds anew, and may get the same node or another."""
    old, = stale.rows
    held, created = stale.hold(INSTANCE, **GOLD)
    assert created and held.id > old.id
    assert stale.held == {stale.node_id: INSTANCE}


def test_stale_rows_of_all_nodes_and_the_instance(fleet):
    ids = fleet.add({}, {}, {})
    for node_id in ids:
        fleet.stale(node_id=node_id)
    fleet.stale(instance_uuid=INSTANCE, node_id=max(ids) + 1)
    held, created = fleet.hold(INSTANCE, **GOLD)
    assert created and fleet.carried == {held.node_id: INSTANCE}
    assert [row.instance_uuid for row in fleet.rows
            if row.node_id == held.node_id] == [INSTANCE]


def test_stale_row_is_not_revived_by_another_request(stale):
    """What it asked for then is not what is asked for now."""
    held, created = stale.hold(INSTANCE, owner=HOST_2, memory_mb=1)
    assert created and held.host == 'compute-2'


def test_node_that_carries_another_instance(stale):
    other = str(uuid.uuid4())
    stale.edit(stale.node_id, instance_uuid=other)
    assert lookup.find_reservations() == []
    with pytest.raises(exception.NotFound):
        releases.release_reservation(INSTANCE)
    assert stale.rows == []
    assert stale[stale.node_id].instance_uuid == other


def test_node_that_another_has_given_the_instance(fleet):
    """Nova's old driver did: no reservation of ours, and no second node."""
    node_id = fleet.node(instance_uuid=INSTANCE)
    fleet.node()
    with pytest.raises(exception.Conflict):
        fleet.hold(INSTANCE, **GOLD)
    with pytest.raises(exception.NotFound):
        releases.release_reservation(INSTANCE)
    assert fleet.carried == {node_id: INSTANCE} and fleet.rows == []


def test_stale_row_whose_instance_another_node_carries(stale):
    """The reservation does not follow its instance to another node."""
    carrier = stale.node(instance_uuid=INSTANCE)
    assert lookup.find_reservations() == []
    with pytest.raises(exception.Conflict):
        stale.hold(INSTANCE, **GOLD)
    with pytest.raises(exception.NotFound):
        releases.release_reservation(INSTANCE)
    assert stale.carried == {carrier: INSTANCE}


def test_deleted_node(fleet):
    node_id = fleet.node()
    fleet.hold(INSTANCE, **GOLD)
    fleet.delete(node_id)
    assert lookup.find_reservations() == []
    fleet.node()
    assert fleet.hold(INSTANCE, **GOLD)[1]


def test_ids_are_never_used_again(fleet):
    fleet.node()
    seen = []
    for _ in range(3):
        seen.append(fleet.hold(INSTANCE, **GOLD)[0].id)
        releases.release_reservation(INSTANCE)
    assert len(set(seen)) == 3 and seen == sorted(seen)
