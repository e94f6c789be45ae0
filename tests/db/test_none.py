# SPDX-License-Identifier: Apache-2.0
"""When a request is told that there is no node, and when it goes on."""

import time
import uuid

import pytest

from ironic_reservations import exception
from ironic_reservations.fleet import count as fleets
from ironic_reservations.fleet import profiles
from ironic_reservations.fleet import shelf
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import holds
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import values
from tests.db import conftest


@pytest.fixture
def after_count(monkeypatch):
    """Lets something happen right after each fresh count, in turn."""
    def set_(*actions):
        fresh, left = fleets.fresh, list(actions)

        def count(candidates=(), since=None):
            counted = fresh(candidates, since)
            if left:
                left.pop(0)()
            return counted

        monkeypatch.setattr(fleets, 'fresh', count)
        # Nothing is known before.
        monkeypatch.setattr(fleets, 'recent',
                            lambda: (profiles.Fleet(()), False))
        return left
    return set_


def test_what_was_counted_for_a_request_is_not_counted_again(fleet,
                                                             monkeypatch):
    fleet.node()
    monkeypatch.setattr(fleets, 'recent',
                        lambda: (fleets.at_most(0)[0], True))
    with fleet.statements('AS nodes') as counts:
        with pytest.raises(exception.NoMatchingNode):
            fleet.hold(memory_mb=10 ** 9)
    assert len(counts) == 1


def test_lock_that_comes_after_the_count(fleet, after_count):
    """It is worth another try."""
    node_id = fleet.node()
    after_count(lambda: fleet.edit(node_id, reservation='conductor-1'))
    with pytest.raises(exception.NoMatchingNode) as caught:
        fleet.hold()
    assert caught.value.retry
    assert caught.value.explanation['eliminated'] == [
        {'by': 'locked', 'nodes': 1}]


def test_node_that_is_taken_after_the_count(fleet, after_count):
    node_id = fleet.node()
    after_count(lambda: fleet.edit(
        node_id, instance_uuid=str(uuid.uuid4())))
    with pytest.raises(exception.NoMatchingNode) as caught:
        fleet.hold()
    assert caught.value.explanation == {
        'considered': 1, 'eliminated': [{'by': 'reserved', 'nodes': 1}]}


def test_node_that_is_edited_after_the_count(fleet, after_count):
    """It was free all the time, and fits."""
    node_id = fleet.node()

    def edit():
        fleet.edit(node_id, properties={'memory_mb': 1025})

    left = after_count(edit, edit)
    assert fleet.hold(memory_mb=1000)[0].node_id == node_id
    assert left == []


def test_node_that_lapses_and_is_given_back_after_the_count(
        fleet, after_count):
    """The first search has come too early for it."""
    node_id = fleet.node()
    fleet.hold()
    fleet.lapse()
    after_count(expiry.sweep)
    assert fleet.hold()[0].node_id == node_id


def test_malformed_properties_are_told_of(fleet):
    """The database reads a size in them, and Python none."""
    fleet.node(properties='{"memory_mb": 4096, "cpu_arch": 64}')
    matcher = conftest.matcher(extra_specs={'capabilities:cpu_arch': '64'})
    began = time.monotonic()
    with pytest.raises(exception.NoMatchingNode) as caught:
        holds.hold_node(matcher, obtain.Request(
            ('5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e',), values.Assignment()))
    assert time.monotonic() - began < 5
    assert caught.value.explanation['considered'] == sum(
        each['nodes'] for each in caught.value.explanation['eliminated'])


def test_what_another_request_has_from_the_shelf_is_found(fleet,
                                                          monkeypatch):
    """A repeat takes a node from the shelf, and then leaves it free."""
    fleet.add({}, {})
    fleet.hold()
    counted = fleets.fresh()
    monkeypatch.setattr(fleets, 'recent', lambda: (counted, False))
    monkeypatch.setattr(fleets, 'fresh', lambda candidates, since: counted)
    [profile] = counted.profiles
    # Whoever asks the shelf finds that its turn is over.
    monkeypatch.setattr(shelf.Shelf, 'nodes', lambda *_: iter(()))
    assert shelf.of(profile)
    assert fleet.hold()[1]


def test_words_of_a_request_are_no_error_of_the_database(fleet):
    """SQLite says this when another writes, and then it is tried again."""
    fleet.node()
    with fleet.statements('AS alike') as counts:
        with pytest.raises(exception.NoMatchingNode):
            fleet.hold(extra_specs={
                'capabilities:x': 'database is locked'})
    assert len(counts) <= 2


def test_deadline_ends_the_giving_back(fleet, option):
    option(deadline=1)
    fleet.add(*[{}] * 30)
    for _ in range(30):
        fleet.hold()
    fleet.lapse()
    with fleet.before('DELETE FROM reservations',
                      lambda: time.sleep(0.1), times=30) as begun:
        with pytest.raises(exception.DeadlineExceeded):
            fleet.hold(resource_class='silver')
    assert len(begun) < 30


def test_deadline_ends_the_trying(fleet, option):
    """Each node is changed just before it would be held."""
    option(deadline=1)
    ids = fleet.add(*[{}] * 12)

    def change():
        time.sleep(0.3)
        for node_id in ids:
            fleet.edit(node_id, maintenance=True)

    with fleet.before('UPDATE nodes SET instance_uuid', change,
                      times=12) as tried:
        with pytest.raises(exception.DeadlineExceeded):
            fleet.hold()
    assert len(tried) < 12
