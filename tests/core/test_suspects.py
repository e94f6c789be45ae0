# SPDX-License-Identifier: Apache-2.0
"""Suspect nodes are held after all others that match."""

import datetime
import uuid

import pytest

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.fleet import counts
from ironic_reservations.fleet import domains
from ironic_reservations.fleet import shelf
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import releases
from tests.common import fleets

PAST, FUTURE = datetime.datetime(2001, 1, 2), datetime.datetime(2999, 1, 1)


def make_node(memory=1024, rack=None):
    return {'properties': {'memory_mb': memory, **(
        {'capabilities': f'rack:{rack}'} if rack else {})}}


def hold_all(fleet, number, **body):
    """Hold nodes one after another; return their ids."""
    return [fleet.hold(memory_mb=1000, **body)[0].node_id
            for _ in range(number)]


def create_group(members, policy=None, levels=None, uuid_=fleets.GROUP,
                 **body):
    """Hold all members of a group at once; return the ids of their nodes."""
    by = policy and 'capability:rack'
    group, _ = groups.create_group(
        fleets.matcher(**{'memory_mb': 1000, **body}), obtain.Request(
            tuple(str(uuid.uuid4()) for _ in range(members)),
            values.Assignment(), digest='digest',
            group=values.GroupRequest(uuid_, policy, by, levels)))
    return {member.node_id for member in group.members}


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('notice, is_suspect', [
    ({}, True), ({'starts_at': FUTURE}, True), ({'ends_at': FUTURE}, True),
    ({'ends_at': PAST}, False),
    ({'node_uuid': fleets.INSTANCE}, False),
], ids=['open', 'planned', 'with an end', 'closed', 'another node'])
def test_node_with_a_notice(fleet, notice, is_suspect):
    best, other = fleet.add(make_node(1024), make_node(4096))
    fleet.add_notice(best, **notice)
    assert hold_all(fleet, 2) == ([other, best] if is_suspect
                                  else [best, other])


@pytest.mark.parametrize('racks', [False, True], ids=['class', 'racks'])
def test_few_good_nodes_among_many(fleet, use_count, racks):
    """The best fit has more suspect nodes than a page."""
    bad = fleet.add(*[make_node(1024, f'r{number % 50}' * racks)
                      for number in range(300)])
    good = fleet.add(*[make_node(4096)] * 3)
    for node_id in bad:
        fleet.set_node(node_id, health='Warning')
    use_count(counts.get_fresh_fleet())
    node_ids = hold_all(fleet, 5)
    assert {*node_ids[:3]} == {*good}
    assert {*node_ids[3:]} < {*bad}


def test_good_node_that_is_free_again(fleet, use_count):
    """It was taken since the count, and precedes suspect ones."""
    bad, good = fleet.add(make_node(1024), make_node(4096))
    fleet.set_node(bad, health='Warning')
    use_count(counts.get_fresh_fleet())
    for _ in range(3):
        reservation, _ = fleet.hold(memory_mb=1000)
        assert reservation.node_id == good
        releases.release_reservation(reservation.instance_uuid)


def test_better_suspect_that_is_free_again(fleet, use_count):
    best, worse, _ = fleet.add(*map(make_node, (1024, 2048, 4096)))
    for node_id in best, worse:
        fleet.set_node(node_id, health='Warning')
    use_count(counts.get_fresh_fleet())
    hold_all(fleet, 1)
    for _ in range(2):
        reservation, _ = fleet.hold(memory_mb=1000)
        assert reservation.node_id == best
        releases.release_reservation(reservation.instance_uuid)


@pytest.mark.on('sqlite', 'server')
def test_notice_after_the_node_was_read(fleet, use_count):
    """The node is on the shelf of this process."""
    ids = fleet.add(*[make_node()] * 3)
    use_count(counts.get_fresh_fleet())
    [first] = hold_all(fleet, 1)
    bad, good = {*ids} - {first}
    fleet.add_notice(bad)
    assert hold_all(fleet, 2) == [good, bad]


def test_statements_of_a_hold_that_knows_a_suspect(fleet, use_count):
    bad, *_ = fleet.add(make_node(1024), *[make_node(4096)] * shelf.PAGE)
    fleet.set_node(bad, health='Warning')
    use_count(counts.get_fresh_fleet())
    hold_all(fleet, 1)
    with fleet.statements('SELECT nodes') as statements:
        hold_all(fleet, 1)
    assert len(statements) <= 1


def test_candidates(fleet):
    names = [f'n{number}' for number in range(3)]
    ids = fleet.add(*({**make_node(1024 * (number + 1)), 'name': name}
                      for number, name in enumerate(names)))
    fleet.add_notice(ids[0])
    assert hold_all(fleet, 3, candidate_nodes=names) == [
        ids[1], ids[2], ids[0]]


# Nodes that a request avoids

@pytest.mark.parametrize('names', [{}, {'candidate_nodes': ['a', 'b', 'c']}],
                         ids=['fleet', 'candidates'])
def test_avoided_nodes_are_last(fleet, names):
    """After suspect nodes: an instance tries each node once."""
    best, suspect, failure = fleet.add(
        *({**make_node(memory), 'name': name} for memory, name in (
            (4096, 'a'), (2048, 'b'), (1024, 'c'))))
    fleet.add_notice(suspect)
    avoid = [fleet[failure].uuid]
    assert hold_all(fleet, 3, avoid=avoid, **names) == [
        best, suspect, failure]


def test_avoided_nodes_by_fit(fleet):
    ids = fleet.add(*map(make_node, (1024, 2048, 4096)))
    avoid = [fleet[node_id].uuid for node_id in ids[:2]]
    assert hold_all(fleet, 3, avoid=avoid) == [ids[2], *ids[:2]]


def test_other_requests_do_not_avoid_it(fleet, use_count):
    """The equal request before has read it and left it."""
    best, *others = fleet.add(make_node(1024), *[make_node(4096)] * 3)
    use_count(counts.get_fresh_fleet())
    assert hold_all(fleet, 1, avoid=[fleet[best].uuid])[0] in others
    assert hold_all(fleet, 1) == [best]


def test_statements_of_a_hold_after_one_that_avoids_nodes(fleet, use_count):
    bad, *_ = fleet.add(*[make_node(1024)] * shelf.PAGE)
    use_count(counts.get_fresh_fleet())
    hold_all(fleet, 1, avoid=[fleet[bad].uuid])
    with fleet.statements('SELECT nodes') as statements:
        hold_all(fleet, 1)
    assert not statements


def test_claim_of_a_group(fleet):
    ids = fleet.add(*map(make_node, (1024, 2048, 4096)))
    fleet.hold_group(3)
    fleet.add_notice(ids[0])
    node_ids = [fleet.claim(fleets.GROUP, str(uuid.uuid4()))[0].node_id
                for _ in ids]
    assert node_ids == [ids[1], ids[2], ids[0]]


def test_claim_avoids_nodes(fleet):
    ids = fleet.add(*map(make_node, (1024, 2048)))
    fleet.hold_group(2)
    reservation, _ = fleet.claim(fleets.GROUP, str(uuid.uuid4()),
                                 avoid=[fleet[ids[0]].uuid])
    assert reservation.node_id == ids[1]


# Groups

@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('policy', [
    None, 'spread', 'pack', 'soft-spread', 'soft-pack'])
def test_group_avoids_suspect_nodes(fleet, policy):
    """Two of three racks have the good nodes that it needs."""
    ids = fleet.add(*(make_node(memory, rack) for memory, rack in (
        (1024, 'r1'), (1024, 'r1'), (4096, 'r2'), (4096, 'r2'),
        (4096, 'r2'), (4096, 'r3'))))
    for node_id in ids[:2]:
        fleet.add_notice(node_id)
    assert create_group(2, policy) <= {*ids[2:]}


@pytest.mark.parametrize('policy, members', [
    (None, 4), ('spread', 3), ('pack', 2), ('soft-spread', 4),
    ('soft-pack', 4)])
def test_group_with_suspect_nodes(fleet, policy, members):
    """It uses as few of them as possible, and only if necessary."""
    ids = fleet.add(*(make_node(1024, rack) for rack in (
        'r1', 'r1', 'r2', 'r2', 'r3')))
    bad = {ids[0], ids[2], ids[4]}
    for node_id in bad:
        fleet.add_notice(node_id)
    good = {*ids} - bad
    node_ids = create_group(members, policy)
    assert len(node_ids) == members
    # A pack has one good node in a rack; the other policies have both.
    assert len(node_ids & good) == (1 if policy == 'pack' else 2)


def test_segments(fleet):
    levels = ('[{"by": "capability:rack", "policy": "pack", "segment": 2}]')
    ids = fleet.add(*(make_node(1024, rack) for rack in (
        'r1', 'r1', 'r2', 'r2', 'r2', 'r3', 'r3')))
    fleet.add_notice(ids[0])
    fleet.add_notice(ids[2])
    node_ids = create_group(4, levels=levels)
    assert node_ids == {*ids[3:]}


def test_group_among_many_suspect_nodes(fleet, use_count, monkeypatch):
    """A group is not the first that reads all of them."""
    monkeypatch.setattr(domains, 'MAX_SUSPECTS', 40)
    bad = fleet.add(*[make_node(1024)] * 300)
    for node_id in bad:
        fleet.set_node(node_id, health='Warning')
    use_count(counts.get_fresh_fleet())
    with fleet.statements('AS suspect') as statements:
        assert create_group(2) < {*bad}
    assert len(statements) == 4
    good = fleet.add(*[make_node(1024)] * 2)
    use_count(counts.get_fresh_fleet())
    monkeypatch.setattr(domains, 'MAX_SUSPECTS', 1000)
    assert create_group(3, uuid_=fleets.INSTANCE) > {*good}


def test_statements_of_a_group_without_suspects(fleet, use_count):
    ids = fleet.add(*[make_node()] * 7)
    use_count(counts.get_fresh_fleet())
    with fleet.statements('AS suspect') as statements:
        create_group(3)
    assert len(statements) == 1
    # Concurrent requests take the nodes that it has left.
    for node_id in {*ids} - fleet.holds.keys():
        fleet.set_node(node_id, maintenance=True)
    with fleet.statements('AS suspect') as statements:
        with pytest.raises(exception.NoMatchingNode):
            create_group(3, uuid_=fleets.INSTANCE)
    assert len(statements) == 1


@pytest.mark.parametrize('policy', ['soft-spread', 'soft-pack', 'pack'])
def test_members_one_by_one(fleet, policy):
    """A hard policy holds; suspicion precedes a soft one."""
    ids = fleet.add(*(make_node(1024, rack) for rack in (
        'r1', 'r1', 'r1', 'r2', 'r2')))
    bad = {ids[0], ids[1]}
    for node_id in bad:
        fleet.add_notice(node_id)
    group = values.GroupRequest(fleets.GROUP, policy, 'capability:rack')
    node_ids = hold_all(fleet, 2 if policy == 'pack' else 5, group=group)
    if policy == 'pack':
        # The rack with the most room.
        assert node_ids[0] == ids[2] and node_ids[1] in bad
    else:
        assert {*node_ids[3:]} == bad
