# SPDX-License-Identifier: Apache-2.0
"""When a request is refused for lack of a node, and when it is retried."""

import time
import uuid

import pytest

from ironic_reservations import exception
from ironic_reservations.fleet import counts
from ironic_reservations.fleet import profiles
from ironic_reservations.reservations import expiry


@pytest.fixture
def after_count(monkeypatch):
    """Run an action right after each fresh count, one after the other."""
    def set_(*actions):
        fresh, remaining = counts.get_fresh_fleet, list(actions)

        def count_and_act(candidates=(), since=None):
            fleet = fresh(candidates, since)
            if remaining:
                remaining.pop(0)()
            return fleet

        monkeypatch.setattr(counts, 'get_fresh_fleet', count_and_act)
        # The first search has no count.
        monkeypatch.setattr(counts, 'get_recent_fleet',
                            lambda *_: (profiles.Fleet(()), False))
        return remaining
    return set_


def test_fresh_count_is_not_repeated(fleet, monkeypatch):
    fleet.add_node()
    monkeypatch.setattr(counts, 'get_recent_fleet',
                        lambda *_: (counts.get_fleet(0)[0], True))
    with fleet.statements('AS column_0') as statements:
        with pytest.raises(exception.NoMatchingNode):
            fleet.hold(memory_mb=10 ** 9)
    assert len(statements) == 1


def test_node_locked_after_the_count(fleet, after_count):
    """The error suggests another try."""
    node_id = fleet.add_node()
    after_count(lambda: fleet.set_node(node_id, reservation='conductor-1'))
    with pytest.raises(exception.NoMatchingNode) as error:
        fleet.hold()
    assert error.value.retry
    assert error.value.explanation['eliminated'] == [
        {'by': 'locked', 'nodes': 1}]


def test_node_taken_after_the_count(fleet, after_count):
    node_id = fleet.add_node()
    after_count(lambda: fleet.set_node(
        node_id, instance_uuid=str(uuid.uuid4())))
    with pytest.raises(exception.NoMatchingNode) as error:
        fleet.hold()
    assert error.value.explanation == {
        'considered': 1, 'eliminated': [{'by': 'reserved', 'nodes': 1}]}


def test_node_changed_after_the_count(fleet, after_count):
    """It is free all the time, and matches."""
    node_id = fleet.add_node()

    def edit():
        fleet.set_node(node_id, properties={'memory_mb': 1025})

    remaining = after_count(edit)
    assert fleet.hold(memory_mb=1000)[0].node_id == node_id
    assert remaining == []


def test_node_released_after_the_count(fleet, after_count):
    """Its reservation expires after the first search."""
    node_id = fleet.add_node()
    fleet.hold()
    fleet.expire_leases()
    after_count(expiry.sweep)
    assert fleet.hold()[0].node_id == node_id


def test_malformed_properties_are_explained(fleet):
    """The database reads a size in them, but Python does not."""
    fleet.add_node(properties='{"memory_mb": 4096, "cpu_arch": 64}')
    began = time.monotonic()
    with pytest.raises(exception.NoMatchingNode) as error:
        fleet.hold(extra_specs={'capabilities:cpu_arch': '64'})
    explanation = error.value.explanation
    assert time.monotonic() - began < 5
    assert explanation['considered'] == sum(
        entry['nodes'] for entry in explanation['eliminated'])


def test_node_on_the_shelf_of_another_request(fleet, use_count):
    """A repeat takes a node from the shelf, but does not hold it."""
    fleet.add({}, {})
    use_count(counts.get_fresh_fleet())
    instance = fleet.hold()[0].instance_uuid
    assert not fleet.hold(instance)[1]
    # The shelf has no node for this request.
    with fleet.statements('AS column_0') as statements:
        assert fleet.hold()[1]
    assert statements == []


def test_request_with_the_text_of_an_error_of_the_database(fleet):
    """Requests are retried when SQLite reports this error."""
    fleet.add_node()
    with fleet.statements('AS column_0') as statements:
        with pytest.raises(exception.NoMatchingNode):
            fleet.hold(extra_specs={
                'capabilities:x': 'database is locked'})
    assert len(statements) <= 2


def test_deadline_limits_the_release_of_expired_nodes(fleet, option):
    option(deadline=1)
    fleet.add(*[{}] * 30)
    for _ in range(30):
        fleet.hold()
    fleet.expire_leases()
    with fleet.before('DELETE FROM reservations',
                      lambda: time.sleep(0.1), times=30) as statements:
        with pytest.raises(exception.DeadlineExceeded):
            fleet.hold(resource_class='silver')
    assert len(statements) < 30


def test_deadline_limits_the_search(fleet, option):
    """Each node changes right before the hold."""
    option(deadline=1)
    ids = fleet.add(*[{}] * 12)

    def change():
        time.sleep(0.3)
        for node_id in ids:
            fleet.set_node(node_id, maintenance=True)

    with fleet.before('UPDATE nodes SET instance_uuid', change,
                      times=12) as statements:
        with pytest.raises(exception.DeadlineExceeded):
            fleet.hold()
    assert len(statements) < 12
