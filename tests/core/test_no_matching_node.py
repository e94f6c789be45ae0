# SPDX-License-Identifier: Apache-2.0
"""When a request is refused for lack of a node, and when it is retried."""

import time
import uuid

import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import models
from ironic_reservations.fleet import counts
from ironic_reservations.fleet import profiles
from ironic_reservations.reservations import expiry
from tests.common import fleets
from tests.core import test_groups
from tests.core import test_quota


@pytest.fixture
def after_count(monkeypatch):
    """Run an action right after each fresh count, one after the other."""
    def set_(*actions):
        fresh, remaining = counts.get_fresh_fleet, list(actions)

        def count_and_act(*args, **kwargs):
            fleet = fresh(*args, **kwargs)
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
    assert error.value.verdict.retry
    assert fleets.present(error)['explanation']['eliminated'] == [
        {'by': 'locked', 'nodes': 1}]


def test_node_taken_after_the_count(fleet, after_count):
    node_id = fleet.add_node()
    after_count(lambda: fleet.set_node(
        node_id, instance_uuid=str(uuid.uuid4())))
    with pytest.raises(exception.NoMatchingNode) as error:
        fleet.hold()
    assert error.value.verdict.retry
    assert fleets.present(error)['explanation'] == {
        'considered': 1, 'eliminated': [{'by': 'reserved', 'nodes': 1}]}


def test_node_held_without_a_host_after_the_count(fleet, after_count):
    """Its reservation can be claimed, so the reason is another one."""
    fleet.add_node()
    after_count(lambda: fleet.hold(owner=values.Assignment()))
    with pytest.raises(exception.NoMatchingNode) as error:
        fleet.hold()
    assert error.value.verdict.retry
    assert fleets.present(error)['explanation'] == {
        'considered': 1, 'eliminated': [{'by': 'reserved', 'nodes': 1}]}


@pytest.fixture
def around_counts(monkeypatch):
    """Run one action before each fresh count, and another after it."""
    def set_(before, after):
        fresh, fleets_ = counts.get_fresh_fleet, []

        def count(candidates, *args):
            before()
            # A count of this request is repeated.
            fleets_.append(fresh(candidates))
            after()
            return fleets_[-1]

        monkeypatch.setattr(counts, 'get_fresh_fleet', count)
        monkeypatch.setattr(counts, 'get_recent_fleet',
                            lambda *_: (profiles.Fleet(()), False))
        return fleets_
    return set_


def take_and_release(fleet, around_counts, node_id, taken, free):
    """Take a node after each count, and release it before the next one."""
    return around_counts(lambda: fleet.set_node(node_id, **free),
                         lambda: fleet.set_node(node_id, **taken))


#: Concurrent changes of a node, how to revert them, and the reason in
#: explanations.
TAKEN = pytest.mark.parametrize('taken, free, reason', [
    ({'reservation': 'conductor-1'}, {'reservation': None}, 'locked'),
    ({'instance_uuid': str(uuid.uuid4())}, {'instance_uuid': None},
     'reserved'),
], ids=['locked', 'reserved'])


@pytest.mark.on('sqlite', 'server')
@TAKEN
def test_node_taken_after_each_count(fleet, around_counts, taken, free,
                                     reason):
    node_id, _ = fleet.add_node(), fleet.add_node(resource_class='silver')
    fleets_ = take_and_release(fleet, around_counts, node_id, taken, free)
    with pytest.raises(exception.NoMatchingNode) as error:
        fleet.hold()
    assert error.value.verdict.retry
    assert fleets.present(error)['explanation'] == {
        'considered': 2, 'eliminated': [
            {'by': 'resource_class=CUSTOM_GOLD', 'nodes': 1},
            {'by': reason, 'nodes': 1}],
        'nearest': {'by': 'resource_class=CUSTOM_GOLD', 'nodes': 1}}
    # It was searched again a few times.
    assert 2 < len(fleets_) < 6


@TAKEN
def test_node_of_a_group_taken_after_each_count(fleet, around_counts, taken,
                                                free, reason):
    """The numbers are from the last read."""
    rack = {'properties': {'capabilities': 'rack:r1'}}
    node_id, *_ = fleet.add(rack, rack, rack)
    take_and_release(fleet, around_counts, node_id, taken, free)
    with pytest.raises(exception.NoMatchingNode) as error:
        test_groups.create(fleet, 3, 'pack')
    assert error.value.verdict.retry
    assert fleets.present(error) == {
        'explanation': {
            'considered': 3, 'eliminated': [
                {'by': reason, 'nodes': 1},
                {'by': 'group:pack=capability:rack', 'nodes': 2}],
            'nearest': {'by': 'capability:rack', 'value': 'r1', 'nodes': 2}},
        'members': {'wanted': 3, 'available': 2}}


@TAKEN
def test_limit_and_a_node_taken_after_each_count(fleet, around_counts, taken,
                                                 free, reason):
    """Other nodes are free, and only the limit excludes them."""
    fleet.add(*[{'owner': test_quota.A}] * 2)
    test_quota.hold_node({test_quota.TOTAL: 1})
    node_id = fleet.add_node(owner=test_quota.A)
    take_and_release(fleet, around_counts, node_id, taken, free)
    for limits, limit, body in (
            ({test_quota.TOTAL: 1}, test_quota.TOTAL, {}),
            ({test_quota.TOTAL: 9, test_quota.GOLD: 1}, test_quota.GOLD,
             {'resource_class': 'gold'})):
        assert test_quota.refuse(test_quota.hold_node, limits, **body) == (
            limit, 1, 1, 1)
        assert test_quota.refuse(test_quota.create, limits, 1, **body) == (
            limit, 1, 1, 1)


def test_free_nodes_do_not_help_a_pack(fleet, around_counts):
    """The node of the right rack is taken, and another one is free."""
    node_id, *_ = fleet.add(*({'properties': {'capabilities': f'rack:{rack}'}}
                              for rack in ('r1', 'r1', 'r2')))
    group = test_groups.name_group('pack')
    first, _ = fleet.hold(group=group,
                          extra_specs={'capabilities:rack': 'r1'})
    node_id, = {row.id for row in fleet.execute(sa.text(
        "SELECT id FROM nodes WHERE properties LIKE '%r1%' "
        'AND instance_uuid IS NULL'))}
    take_and_release(fleet, around_counts, node_id,
                     {'reservation': 'conductor-1'}, {'reservation': None})
    with pytest.raises(exception.NoMatchingNode) as error:
        fleet.hold(group=group, resource_class='gold')
    assert error.value.verdict.retry
    assert fleets.present(error)['explanation']['eliminated'] == [
        {'by': 'group:pack=capability:rack', 'nodes': 1},
        {'by': 'reserved', 'nodes': 1}, {'by': 'locked', 'nodes': 1}]


def test_node_edited_after_the_count(fleet, after_count):
    """It no longer matches, but its properties are well-formed."""
    node_id = fleet.add_node(properties={'memory_mb': 4096})
    after_count(lambda: fleet.set_node(
        node_id, properties={'memory_mb': 512}))
    with pytest.raises(exception.NoMatchingNode) as error:
        fleet.hold(memory_mb=1000)
    assert not error.value.verdict.retry
    assert fleets.present(error)['explanation']['eliminated'] == [
        {'by': 'memory_mb>=1000', 'nodes': 1}]


def test_node_deleted_after_the_count(fleet, after_count):
    fleet.add_node(resource_class='silver')
    node_id = fleet.add_node()
    after_count(lambda: fleet.execute(
        sa.delete(models.nodes).where(models.nodes.c.id == node_id)))
    with pytest.raises(exception.NoMatchingNode) as error:
        fleet.hold()
    assert fleets.present(error)['explanation'] == {
        'considered': 1, 'eliminated': [
            {'by': 'resource_class=CUSTOM_GOLD', 'nodes': 1}],
        'nearest': {'by': 'resource_class=CUSTOM_GOLD', 'nodes': 1}}


def test_malformed_node_and_one_that_is_taken(fleet, around_counts):
    request = {'extra_specs': {'capabilities:cpu_arch': '64'}}
    fleet.add_node(properties='{"cpu_arch": 64}')
    node_id = fleet.add_node(properties='{"cpu_arch": "64"}')
    take_and_release(fleet, around_counts, node_id,
                     {'reservation': 'conductor-1'}, {'reservation': None})
    with pytest.raises(exception.NoMatchingNode) as error:
        fleet.hold(**request)
    assert error.value.verdict.retry
    assert fleets.present(error)['explanation'] == {
        'considered': 2, 'eliminated': [
            {'by': 'locked', 'nodes': 1},
            {'by': 'malformed properties', 'nodes': 1}]}


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


@pytest.mark.on('sqlite', 'server')
def test_malformed_properties_are_explained(fleet):
    """The database reads an architecture in them, but Python does not.

    That is seen at once.
    """
    fleet.add_node(properties='{"memory_mb": 4096, "cpu_arch": 64}')
    with fleet.statements('AS column_0') as statements, \
            pytest.raises(exception.NoMatchingNode) as error:
        fleet.hold(extra_specs={'capabilities:cpu_arch': '64'})
    assert not error.value.verdict.retry
    assert fleets.present(error)['explanation'] == {
        'considered': 1,
        'eliminated': [{'by': 'malformed properties', 'nodes': 1}]}
    # The counts of two searches, and the read.
    assert len(statements) == 3


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
