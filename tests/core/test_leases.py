# SPDX-License-Identifier: Apache-2.0
"""Leases: expired reservations are released unless their node is in use."""

import contextlib
import uuid

import pytest

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.fleet import counts
from ironic_reservations.reservations import adoption
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import goals
from ironic_reservations.reservations import holds
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import updates
from tests.common import fleets


@pytest.mark.on('sqlite', 'server')
def test_expired_counts_as_free(fleet):
    fleet.add_node()
    fleet.hold()
    assert fleet.count_nodes(host='compute-1') == (1, 0, 1)
    fleet.expire_leases()
    assert fleet.count_nodes(host='compute-1') == (1, 1, 0)


TOUCHES = {
    'instance_info': lambda fleet, node_id: fleet.set_node(
        node_id, instance_info='{"image_source": "x"}'),
    'lock': lambda fleet, node_id: fleet.set_node(node_id, reservation='c'),
    'state': lambda fleet, node_id: fleet.set_node(
        node_id, provision_state='deploying'),
    'volume': lambda fleet, node_id: fleet.insert_row(
        'volume_targets', node_id, volume_type='iscsi',
        boot_index=0, volume_id='x'),
    **{f'{table}.{column}': lambda fleet, node_id, table=table, column=column:
       fleet.insert_row(
           table, node_id, address=str(uuid.uuid4())[:17],
           **{column: '{"tenant_vif_port_id": "x"}'
              if column == 'internal_info' else '{"vif_port_id": "x"}'})
       for table in ('ports', 'portgroups')
       for column in ('internal_info', 'extra')},
}


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('touch', TOUCHES)
def test_node_in_use_stays_held_after_the_lease(fleet, touch):
    node_id = fleet.add_node()
    reservation, _ = fleet.hold()
    TOUCHES[touch](fleet, node_id)
    fleet.expire_leases()
    assert fleet.count_nodes(host='compute-1') == (1, 0, 1)
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold()
    assert expiry.sweep() == (0, 0)
    assert lookup.get_reservation(reservation.instance_uuid).node_id == node_id
    assert fleet.holds == {node_id: reservation.instance_uuid}
    overdue = [other.instance_uuid for other in expiry.find_overdue()]
    assert overdue == ([] if touch == 'state' else [reservation.instance_uuid])


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('fields', [
    {'instance_info': None}, {'instance_info': ''}, {'instance_info': '{}'},
    {'maintenance': True}, {'retired': True}, {'power_state': 'power on'}],
    ids=str)
def test_unused_node_is_released(fleet, fields):
    node_id = fleet.add_node()
    reservation, _ = fleet.hold()
    fleet.insert_row('ports', node_id, address='x', internal_info='{}',
                     extra='{"physnet": "vif"}')
    fleet.set_node(node_id, **fields)
    fleet.expire_leases()
    with pytest.raises(exception.NotFound):
        lookup.get_reservation(reservation.instance_uuid)
    assert expiry.find_overdue() == []
    assert expiry.sweep() == (1, 0)
    assert fleet.holds == {}


INSTANCE = str(uuid.uuid4())


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('act', [expiry.sweep, lambda: hold_other()],
                         ids=['sweep', 'hold'])
def test_renewal_before_the_release(fleet, act):
    node_id = fleet.add_node()
    fleet.hold(INSTANCE)
    fleet.expire_leases()
    with fleet.before(fleets.HOLD, fleet.renew_leases):
        with contextlib.suppress(exception.NoMatchingNode):
            act()
    assert fleet.holds == {node_id: INSTANCE}
    assert lookup.get_reservation(INSTANCE).node_id == node_id


def hold_other():
    holds.hold_node(
        fleets.matcher(resource_class='gold'),
        obtain.Request((str(uuid.uuid4()),), values.Assignment('compute-2')))


@pytest.mark.on('server')
@pytest.mark.parametrize('touch', TOUCHES)
def test_use_of_the_node_before_the_release(fleet, touch):
    node_id = fleet.add_node()
    fleet.hold(INSTANCE)
    fleet.expire_leases()
    with fleet.before(fleets.HOLD, lambda: TOUCHES[touch](fleet, node_id)):
        assert expiry.sweep() == (0, 0)
    assert fleet.holds == {node_id: INSTANCE}
    assert lookup.get_reservation(INSTANCE).node_id == node_id


# Requests that find an expired reservation, which then is one again

@pytest.fixture
def expired_fleet(fleet):
    """The fleet, with an expired reservation that no host has."""
    fleet.node_id = fleet.add_node()
    fleet.hold(INSTANCE, owner=values.Assignment(project_id='p'))
    fleet.expire_leases()
    return fleet


@pytest.mark.on('server')
def test_renewal_before_its_expiry(expired_fleet):
    with expired_fleet.before(fleets.HOLD, expired_fleet.renew_leases):
        releases.release_reservation(INSTANCE)
    assert expired_fleet.holds == {}


@pytest.mark.on('server')
def test_use_of_the_node_before_its_adoption(expired_fleet):
    with expired_fleet.before(fleets.HOLD, lambda: TOUCHES['instance_info'](
            expired_fleet, expired_fleet.node_id)):
        reservation, is_new = adoption.adopt_instance(
            INSTANCE, fleets.matcher(memory_mb=1).spec,
            values.Assignment('compute-1'))
    assert (reservation.host, is_new) == ('compute-1', False)


@pytest.mark.on('server')
@pytest.mark.parametrize('act', [
    expiry.get_or_purge,
    lambda uuid: updates.update_reservation(uuid, {'description': 'x'})],
    ids=['read', 'update'])
def test_node_that_gets_its_instance_back(fleet, act):
    node_id = fleet.add_node()
    fleet.hold(INSTANCE)
    fleet.set_node(node_id, instance_uuid=None)
    with fleet.before('INSERT', lambda: fleet.set_node(
            node_id, instance_uuid=INSTANCE)):
        assert act(INSTANCE).node_id == node_id


@pytest.mark.on('server')
def test_release_before_the_renewal(fleet):
    node_id = fleet.add_node()
    first, _ = fleet.hold(INSTANCE, owner=values.Assignment('compute-1'))

    def expire():
        fleet.expire_leases()
        assert expiry.sweep() == (1, 0)

    with fleet.before('UPDATE reservations SET host', expire):
        reservation, is_new = fleet.hold(INSTANCE,
                                         owner=values.Assignment('compute-2'))
    assert is_new
    assert reservation.id > first.id
    assert reservation.host == 'compute-2'
    assert fleet.holds == {node_id: INSTANCE}


def test_holds_release_expired_nodes(fleet):
    fleet.add(*[{}] * 12)
    for _ in range(12):
        fleet.hold()
    before = set(fleet.holds.values())
    fleet.expire_leases()
    assert fleet.count_nodes() == (12, 12, 0)
    for _ in range(12):
        fleet.hold()
    assert len(fleet.holds) == 12 and not before & set(fleet.holds.values())


def test_hold_that_counts_the_fleet_releases_expired_nodes(
        fleet, use_count, monkeypatch):
    """A few at a time; a hold that does not count releases none."""
    fleet.add(*[{}] * 20)
    for _ in range(5):
        fleet.hold()
    fleet.expire_leases()
    monkeypatch.setattr(goals, 'EXPIRED_AT_ONCE', 3)
    fleet.hold()
    assert len(fleet.rows) == 3
    use_count(counts.get_fresh_fleet())
    fleet.hold()
    assert len(fleet.rows) == 4


def test_refusal_releases_all_expired_nodes(
        fleet, use_count):
    use_count(counts.get_fresh_fleet())
    fleet.add(*[{}] * 20)
    for _ in range(20):
        fleet.hold()
    fleet.expire_leases()
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold(memory_mb=9999)
    assert fleet.rows == [] and fleet.holds == {}
