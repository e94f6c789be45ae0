# SPDX-License-Identifier: Apache-2.0
"""Tables and columns that only some releases of Ironic have."""

import uuid

import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import node_rows
from ironic_reservations.db import tables
from ironic_reservations.fleet import capacity
from ironic_reservations.fleet import counts
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import releases
from tests.common import fleets

pytestmark = pytest.mark.on('sqlite', 'server')

GOLD = {'resource_class': 'gold'}


@pytest.fixture
def old_fleet(new_database, monkeypatch):
    """Nodes of Ironic before 34.0, and node_history of Ironic before 39.0.

    Neither has ``instance_name``.
    """
    yield from change_schema(new_database, monkeypatch, OldFleet, (
        'ALTER TABLE nodes DROP COLUMN health',
        'ALTER TABLE nodes DROP COLUMN instance_name',
        'ALTER TABLE node_history DROP COLUMN state'))


@pytest.fixture
def new_fleet(new_database, monkeypatch):
    """Nodes of an Ironic that has deferred actions."""
    yield from change_schema(new_database, monkeypatch, fleets.Fleet, (
        'CREATE TABLE deferred_actions (uuid VARCHAR(36), '
        'node_id INTEGER, state VARCHAR(255))',))


def change_schema(new_database, monkeypatch, fleet_class, statements):
    with new_database(complete=True) as database:
        with database.engine.begin() as connection:
            for statement in statements:
                connection.execute(sa.text(statement))
        tables.check_tables(database.engine)
        monkeypatch.setattr(engine, 'get_engine', lambda: database.engine)
        monkeypatch.setattr(counts, 'get_recent_fleet', fleets.recount)
        yield fleet_class(database.engine)


class OldFleet(fleets.Fleet):

    @staticmethod
    def _make_free_node():
        fields = fleets.Fleet._make_free_node()
        del fields['health']
        return fields


def test_nodes_are_counted_and_held(old_fleet):
    ids = old_fleet.add({}, {'maintenance': True})
    reservation, _ = old_fleet.hold(**GOLD)
    assert reservation.node_id == ids[0]
    row, = capacity.list_rows(0, capacity.Filter())[0]
    assert row.content['out_of_service'] == row.content['reserved'] == 1


def test_health_is_unknown(old_fleet):
    old_fleet.add({}, {})
    group = old_fleet.hold_group(2)
    assert [member.health for member in group.members] == [None, None]
    assert lookup.get_reservation(
        group.members[0].instance_uuid).health is None
    group, = groups.find_groups(9)
    assert group.health == {} and group.places.total() == 2


def test_nodes_are_released(old_fleet):
    """By a request, and when a lease expires."""
    old_fleet.add({})
    reservation, _ = old_fleet.hold(lease=60)
    releases.release_reservation(reservation.instance_uuid)
    old_fleet.hold(lease=60)
    old_fleet.expire_leases()
    assert expiry.sweep() == (1, 0)
    assert old_fleet.instances == {}


# The name of an instance belongs to its project; the next project must not
# read it.
NAME = {'instance_name': 'of-a-tenant'}


@pytest.fixture
def named_hold(fleet):
    """A hold with a lease, of a node with the name of an instance."""
    fleet.node_id = fleet.add_node(**NAME)
    fleet.hold(fleets.INSTANCE, owner=values.Assignment(), lease=60, **GOLD)
    assert fleet[fleet.node_id].instance_name is None
    fleet.set_node(fleet.node_id, **NAME)
    return fleet


def test_release_clears_the_name(named_hold):
    releases.release_reservation(fleets.INSTANCE)
    assert named_hold[named_hold.node_id].instance_name is None


def test_expiry_clears_the_name(named_hold):
    named_hold.expire_leases()
    assert expiry.sweep() == (1, 0)
    assert named_hold[named_hold.node_id].instance_name is None


def test_claim_clears_the_name(named_hold):
    named_hold.claim(fleets.INSTANCE, str(uuid.uuid4()))
    assert named_hold[named_hold.node_id].instance_name is None


def test_failed_release_keeps_the_name(named_hold):
    named_hold.set_node(named_hold.node_id, provision_state='active')
    with pytest.raises(exception.Conflict):
        releases.release_reservation(fleets.INSTANCE)
    assert named_hold[named_hold.node_id].instance_name == 'of-a-tenant'


def test_purge_writes_nothing_to_the_node(named_hold):
    """The node may carry another instance."""
    named_hold.set_node(named_hold.node_id, instance_uuid=str(uuid.uuid4()))
    before = named_hold[named_hold.node_id]
    assert expiry.purge() == 1
    assert named_hold[named_hold.node_id] == before


def test_event_type_shows_failed_deployments(old_fleet):
    bad, good, other = old_fleet.add(*(
        {'properties': {'memory_mb': memory}} for memory in (1, 2, 3)))
    for node_id, event_type in (bad, 'deploying'), (good, 'available'):
        old_fleet.insert_row('node_history', node_id, severity='ERROR',
                             event_type=event_type,
                             created_at=sa.func.current_timestamp())
    assert [old_fleet.hold(**GOLD)[0].node_id for _ in range(3)] == [
        good, other, bad]


def test_node_with_an_open_deferred_action_is_not_held(new_fleet):
    states = ['RUNNING', None, 'COMPLETED', 'FAILED']
    ids = new_fleet.add(*({} for _ in states))
    for node_id, state in zip(ids, states, strict=True):
        new_fleet.insert_row('deferred_actions', node_id, state=state)
    # A completed action does not hide an open one.
    new_fleet.insert_row('deferred_actions', ids[0], state='COMPLETED')
    assert {new_fleet.hold(**GOLD)[0].node_id for _ in range(2)} == {*ids[2:]}
    with pytest.raises(exception.NoMatchingNode) as error:
        new_fleet.hold(**GOLD)
    assert fleets.present(error)['explanation']['eliminated'] == [
        {'by': 'reserved', 'nodes': 2}, {'by': 'deferred action', 'nodes': 2}]
    row, = capacity.list_rows(0, capacity.Filter())[0]
    assert row.content['out_of_service'] == 2


def test_deferred_action_that_starts_after_the_search(new_fleet, monkeypatch):
    """The guard of the hold detects it."""
    ids = new_fleet.add({}, {})
    hold = node_rows.hold_node

    def begin(node, *args):
        if not actions:
            actions.append(node.id)
            new_fleet.insert_row('deferred_actions', node.id, state='NEW')
        return hold(node, *args)

    actions = []
    monkeypatch.setattr(node_rows, 'hold_node', begin)
    node_id = new_fleet.hold(**GOLD)[0].node_id
    assert {node_id, *actions} == {*ids}
