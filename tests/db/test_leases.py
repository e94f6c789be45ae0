# SPDX-License-Identifier: Apache-2.0
"""Leases: what is over goes back to the fleet, what is touched does not."""

import contextlib
import uuid

import pytest

from ironic_reservations import exception
from ironic_reservations.fleet import count as counts
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import holds
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import searching
from ironic_reservations.reservations import values
from tests.db import conftest


@pytest.mark.on('sqlite', 'server')
def test_lapsed_counts_as_free_and_not_as_held(fleet):
    fleet.node()
    fleet.hold()
    assert fleet.capacity(host='compute-1') == (1, 0, 1)
    fleet.lapse()
    assert fleet.capacity(host='compute-1') == (1, 1, 0)


TOUCHES = {
    'instance_info': lambda fleet, node_id: fleet.edit(
        node_id, instance_info='{"image_source": "x"}'),
    'lock': lambda fleet, node_id: fleet.edit(node_id, reservation='c'),
    'state': lambda fleet, node_id: fleet.edit(
        node_id, provision_state='deploying'),
    'volume': lambda fleet, node_id: fleet.insert(
        'volume_targets', node_id, volume_type='iscsi',
        boot_index=0, volume_id='x'),
    **{f'{table}.{column}': lambda fleet, node_id, table=table, column=column:
       fleet.insert(
           table, node_id, address=str(uuid.uuid4())[:17],
              **{column: '{"tenant_vif_port_id": "x"}'
                 if column == 'internal_info' else '{"vif_port_id": "x"}'})
       for table in ('ports', 'portgroups')
       for column in ('internal_info', 'extra')},
}


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('touch', TOUCHES)
def test_touched_stays_held_whatever_the_lease(fleet, touch):
    node_id = fleet.node()
    held, _ = fleet.hold()
    TOUCHES[touch](fleet, node_id)
    fleet.lapse()
    assert fleet.capacity(host='compute-1') == (1, 0, 1)
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold()
    assert expiry.sweep() == (0, 0)
    assert lookup.get_reservation(held.instance_uuid).node_id == node_id
    assert fleet.held == {node_id: held.instance_uuid}
    overdue = [each.instance_uuid for each in expiry.find_overdue()]
    assert overdue == ([] if touch == 'state' else [held.instance_uuid])


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('fields', [
    {'instance_info': None}, {'instance_info': ''}, {'instance_info': '{}'},
    {'maintenance': True}, {'retired': True}, {'power_state': 'power on'}],
    ids=str)
def test_untouched_is_given_back(fleet, fields):
    node_id = fleet.node()
    held, _ = fleet.hold()
    fleet.insert('ports', node_id, address='x', internal_info='{}',
           extra='{"physnet": "vif"}')
    fleet.edit(node_id, **fields)
    fleet.lapse()
    with pytest.raises(exception.NotFound):
        lookup.get_reservation(held.instance_uuid)
    assert expiry.find_overdue() == []
    assert expiry.sweep() == (1, 0)
    assert fleet.held == {}


INSTANCE = str(uuid.uuid4())
#: The first statement of a give-back.
LET_GO = 'UPDATE nodes SET instance_uuid'


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('again', [
    expiry.sweep, lambda: releases.release_reservation(INSTANCE),
    lambda: hold_of_another()], ids=['sweep', 'release', 'hold'])
def test_renewal_that_is_faster_than_the_give_back(fleet, again):
    node_id = fleet.node()
    fleet.hold(INSTANCE)
    fleet.lapse()
    with fleet.before(LET_GO, fleet.renew):
        with contextlib.suppress(exception.NotFound,
                                 exception.NoMatchingNode):
            again()
    assert fleet.held == {node_id: INSTANCE}
    assert lookup.get_reservation(INSTANCE).node_id == node_id


def hold_of_another():
    holds.hold_node(
        conftest.matcher(resource_class='gold'),
        obtain.Request((str(uuid.uuid4()),), values.Assignment('compute-2')))


@pytest.mark.on('server')
@pytest.mark.parametrize('touch', TOUCHES)
def test_touch_that_is_faster_than_the_give_back(fleet, touch):
    node_id = fleet.node()
    fleet.hold(INSTANCE)
    fleet.lapse()
    with fleet.before(LET_GO, lambda: TOUCHES[touch](fleet, node_id)):
        assert expiry.sweep() == (0, 0)
    assert fleet.held == {node_id: INSTANCE}
    assert lookup.get_reservation(INSTANCE).node_id == node_id


@pytest.mark.on('server')
def test_give_back_that_is_faster_than_the_renewal(fleet):
    node_id = fleet.node()
    first, _ = fleet.hold(INSTANCE, owner=values.Assignment('compute-1'))

    def over():
        fleet.lapse()
        assert expiry.sweep() == (1, 0)

    with fleet.before('UPDATE reservations SET host', over):
        held, created = fleet.hold(INSTANCE,
                                   owner=values.Assignment('compute-2'))
    assert created
    assert held.id > first.id
    assert held.host == 'compute-2'
    assert fleet.held == {node_id: INSTANCE}


@pytest.mark.on('server')
def test_two_sweeps_at_once(fleet):
    fleet.node()
    fleet.hold(INSTANCE)
    fleet.lapse()
    with fleet.before(LET_GO, expiry.sweep):
        assert expiry.sweep() == (0, 0)
    assert fleet.held == {}


@pytest.mark.on('server')
def test_another_holds_the_node_before_the_second_give_back(fleet):
    node_id = fleet.node()
    fleet.hold(INSTANCE)
    fleet.lapse()
    with fleet.before(LET_GO, hold_of_another):
        assert expiry.sweep()[0] == 0
    (held_node, instance), = fleet.held.items()
    assert held_node == node_id and instance != INSTANCE


def test_many_lapsed_are_given_back_as_they_are_wanted(fleet):
    fleet.add(*[{}] * 12)
    for _ in range(12):
        fleet.hold()
    before = set(fleet.held.values())
    fleet.lapse()
    assert fleet.capacity() == (12, 12, 0)
    for _ in range(12):
        fleet.hold()
    assert len(fleet.held) == 12 and not before & set(fleet.held.values())


@pytest.mark.on('server')
def test_another_gives_back_the_lapsed_node_that_is_wanted(fleet):
    fleet.node()
    fleet.hold()
    fleet.lapse()
    with fleet.before(LET_GO, expiry.sweep):
        assert fleet.hold()[1]
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold()


def test_hold_that_counts_the_fleet_gives_back_what_has_lapsed(
        fleet, go_by, monkeypatch):
    """A few at a time; a hold that does not count gives nothing back."""
    fleet.add(*[{}] * 20)
    for _ in range(5):
        fleet.hold()
    fleet.lapse()
    monkeypatch.setattr(searching, 'EXPIRED_AT_ONCE', 3)
    fleet.hold()
    assert len(fleet.rows) == 3
    go_by(counts.fresh())
    fleet.hold()
    assert len(fleet.rows) == 4


def test_all_that_has_lapsed_is_given_back_before_a_refusal(
        fleet, go_by):
    go_by(counts.fresh())
    fleet.add(*[{}] * 20)
    for _ in range(20):
        fleet.hold()
    fleet.lapse()
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold(memory_mb=9999)
    assert fleet.rows == [] and fleet.held == {}
