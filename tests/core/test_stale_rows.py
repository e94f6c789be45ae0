# SPDX-License-Identifier: Apache-2.0
"""Stale rows are invisible, and block no request."""

import uuid

import pytest

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import releases
from tests.common.fleets import GOLD
from tests.common.fleets import INSTANCE

pytestmark = pytest.mark.on('sqlite', 'server')

HOST_2 = values.Assignment(host='compute-2')


@pytest.fixture
def stale_fleet(fleet):
    """Add a free node with a row, after Ironic has removed its instance."""
    fleet.node_id = fleet.add_node()
    fleet.hold(INSTANCE, **GOLD)
    fleet.set_node(fleet.node_id, instance_uuid=None)
    return fleet


def test_stale_row_is_invisible(stale_fleet):
    assert len(stale_fleet.rows) == 1
    assert lookup.find_reservations() == []
    with pytest.raises(exception.NotFound):
        lookup.get_reservation(INSTANCE)


def test_stale_row_is_purged_by_a_delete(stale_fleet):
    with pytest.raises(exception.NotFound):
        releases.release_reservation(INSTANCE)
    assert stale_fleet.rows == []


def test_stale_row_is_purged_by_a_sweep(stale_fleet):
    assert expiry.sweep() == (0, 1)
    assert stale_fleet.rows == []


def test_stale_row_of_the_node_does_not_matter(stale_fleet):
    other = str(uuid.uuid4())
    assert stale_fleet.hold(other, **GOLD)[1]
    assert stale_fleet.holds == {stale_fleet.node_id: other}


def test_stale_row_of_the_instance_does_not_matter(stale_fleet):
    old, = stale_fleet.rows
    reservation, is_new = stale_fleet.hold(INSTANCE, **GOLD)
    assert is_new and reservation.id > old.id
    assert stale_fleet.holds == {stale_fleet.node_id: INSTANCE}


def test_stale_rows_of_all_nodes_and_the_instance(fleet):
    ids = fleet.add({}, {}, {})
    for node_id in ids:
        fleet.add_stale_row(node_id=node_id)
    fleet.add_stale_row(instance_uuid=INSTANCE, node_id=max(ids) + 1)
    reservation, is_new = fleet.hold(INSTANCE, **GOLD)
    assert is_new and fleet.instances == {reservation.node_id: INSTANCE}
    assert [row.instance_uuid for row in fleet.rows
            if row.node_id == reservation.node_id] == [INSTANCE]


def test_stale_row_is_not_revived_by_another_request(stale_fleet):
    """The old row's request and host do not matter."""
    reservation, is_new = stale_fleet.hold(INSTANCE, owner=HOST_2,
                                           memory_mb=1)
    assert is_new and reservation.host == 'compute-2'


def test_node_that_carries_another_instance(stale_fleet):
    other = str(uuid.uuid4())
    stale_fleet.set_node(stale_fleet.node_id, instance_uuid=other)
    assert lookup.find_reservations() == []
    with pytest.raises(exception.NotFound):
        releases.release_reservation(INSTANCE)
    assert stale_fleet.rows == []
    assert stale_fleet[stale_fleet.node_id].instance_uuid == other


def test_node_with_an_instance_of_another_driver(fleet):
    """The instance gets no reservation and no second node."""
    node_id = fleet.add_node(instance_uuid=INSTANCE)
    fleet.add_node()
    with pytest.raises(exception.Conflict):
        fleet.hold(INSTANCE, **GOLD)
    with pytest.raises(exception.NotFound):
        releases.release_reservation(INSTANCE)
    assert fleet.instances == {node_id: INSTANCE} and fleet.rows == []


def test_stale_row_whose_instance_another_node_carries(stale_fleet):
    """The reservation does not follow its instance to another node."""
    carrier = stale_fleet.add_node(instance_uuid=INSTANCE)
    assert lookup.find_reservations() == []
    with pytest.raises(exception.Conflict):
        stale_fleet.hold(INSTANCE, **GOLD)
    with pytest.raises(exception.NotFound):
        releases.release_reservation(INSTANCE)
    assert stale_fleet.instances == {carrier: INSTANCE}


def test_deleted_node(fleet):
    node_id = fleet.add_node()
    fleet.hold(INSTANCE, **GOLD)
    fleet.delete_node(node_id)
    assert lookup.find_reservations() == []
    fleet.add_node()
    assert fleet.hold(INSTANCE, **GOLD)[1]


def test_ids_are_never_reused(fleet):
    fleet.add_node()
    seen = []
    for _ in range(3):
        seen.append(fleet.hold(INSTANCE, **GOLD)[0].id)
        releases.release_reservation(INSTANCE)
    assert len(set(seen)) == 3 and seen == sorted(seen)
