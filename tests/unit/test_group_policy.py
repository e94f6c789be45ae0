# SPDX-License-Identifier: Apache-2.0
"""The domains of a group's members, compared with all possible ones."""

import array
import collections
import itertools
import types

import hypothesis
from hypothesis import strategies as st
import pytest

from ironic_reservations import matching
from ironic_reservations.fleet import comparison
from ironic_reservations.matching import group_plan
from ironic_reservations.matching import group_policy
from tests.unit import tables


def node(**fields):
    return matching.Node(id=0, uuid='', **fields)


@pytest.mark.parametrize('by, fields, domain', [
    ('capability:rack', {'properties': '{"capabilities": "rack:r1"}'}, 'r1'),
    ('capability:rack', {'properties': '{"capabilities": "rack"}'}, 'true'),
    ('capability:rack', {'properties': '{"capabilities": "rack:"}'}, None),
    ('capability:rack', {'properties': '{"capabilities": "row:r1"}'}, None),
    ('capability:rack', {'properties': None}, None),
    ('capability:Rack', {'properties': '{"capabilities": "rack:r1"}'}, None),
    ('capability:cpu_arch', {'properties': '{"cpu_arch": "amd64"}'},
     'x86_64'),
    ('conductor_group', {'conductor_group': 'Rack-1'}, 'rack-1'),
    ('conductor_group', {'conductor_group': ''}, None),
    ('shard', {'shard': 'Shard-1'}, 'Shard-1'),
    ('shard', {'shard': None}, None),
    ('shard', {'shard': ''}, None),
    (None, {'shard': 'a'}, None),
    ('trait:CUSTOM_NET_', {'traits': {'CUSTOM_NET_A', 'CUSTOM_B'}},
     'CUSTOM_NET_A'),
    ('trait:CUSTOM_NET_', {'traits': {'CUSTOM_NET_A', 'CUSTOM_NET_B'}}, None),
    ('trait:CUSTOM_NET_', {'traits': {'CUSTOM_NETGROUP'}}, None),
])
def test_domain(by, fields, domain):
    assert group_policy.find_domain(node(**fields), by) == domain


def order(policy, members, room=None):
    """Return the shards in the order in which a policy prefers them."""
    policy = group_policy.Policy(
        group_policy.Levels(policy, 'shard'), tuple(members.items()),
        {(name, None): free for name, free in (room or {}).items()})
    [constraint] = policy.constraints
    shards = [name for name in ('a', 'b', 'c', None)
              if constraint.is_satisfied_by(node(shard=name))]
    return sorted(shards, key=lambda name: (
        *policy.rank((name, None)), *policy.rank_among_equals((name, None))))


@pytest.mark.parametrize('policy, members, room, shards', [
    ('spread', {}, None, ['a', 'b', 'c']),
    ('spread', {'b': 1}, None, ['a', 'c']),
    ('pack', {}, {'a': 1, 'b': 3, 'c': 2}, ['b', 'c', 'a']),
    ('pack', {'c': 2}, None, ['c']),
    ('soft-spread', {'a': 2, 'b': 1}, None, ['c', 'b', 'a', None]),
    ('soft-pack', {'a': 1, 'b': 2}, None, ['b', 'a', 'c', None]),
    ('soft-pack', {}, {'a': 1, 'b': 3, None: 9}, ['b', 'a', 'c', None]),
    ('soft-spread', {None: 1}, None, ['a', 'b', 'c', None]),
    ('spread', {None: 1}, None, ['a', 'b', 'c']),
    # An adopted member may have no domain: no other member can join it.
    ('pack', {None: 1}, None, []),
])
def test_shards_for_one_member(policy, members, room, shards):
    assert order(policy, members, room) == shards


# All at once

domains = st.dictionaries(
    st.sampled_from(['a', 'b', 'c', 'd', None]),
    st.integers(1, 4), max_size=5).map(
        lambda free: {where: group_plan.Capacity(number, (0,))
                      for where, number in free.items()})


def list_ways(by_domain, members):
    """Yield all ways to place the members, as Counters."""
    for numbers in itertools.product(*(
            range(room.free + 1) for room in by_domain.values())):
        if sum(numbers) == members:
            yield collections.Counter(dict(zip(by_domain, numbers,
                                               strict=True)))


def is_spread(way):
    return way[None] == 0 and max(way.values(), default=0) <= 1


def is_pack(way):
    return way[None] == 0 and len(+way) == 1


@hypothesis.settings(deadline=None)
@hypothesis.given(domains, st.integers(1, 12))
@pytest.mark.parametrize('policy, obeys', [
    ('spread', is_spread), ('pack', is_pack),
    ('soft-spread', lambda way: True), ('soft-pack', lambda way: True)])
def test_plan_exists_if_possible(policy, obeys, by_domain, members):
    possible = [way for way in list_ways(by_domain, members) if obeys(way)]
    plan = group_plan.plan_members(policy, by_domain, members)
    assert (plan is not None) == bool(possible)
    available = group_plan.count_available(policy, by_domain)
    assert (available >= members) == bool(possible)
    if plan is None:
        return
    way = collections.Counter(plan)
    assert +way in [+other for other in possible]
    least = min(other[None] for other in possible)
    assert way[None] == least
    possible = [other for other in possible if other[None] == least]
    if policy == 'soft-spread':
        # The sum of squares shows that no way is more even.
        assert sum_squares(way) == min(map(sum_squares, possible))
    if policy == 'soft-pack':
        assert count_domains(way) == min(map(count_domains, possible))
    if policy == 'pack':
        [where] = plan
        assert by_domain[where].free == min(
            room.free for where, room in by_domain.items()
            if where is not None and room.free >= members)


def sum_squares(way):
    return sum(number ** 2 for where, number in way.items()
               if where is not None)


def count_domains(way):
    return sum(bool(number) for where, number in way.items()
               if where is not None)


@hypothesis.settings(deadline=None)
@hypothesis.given(domains, st.integers(1, 12))
def test_without_a_policy(by_domain, members):
    free = sum(room.free for room in by_domain.values())
    assert group_plan.plan_members(None, by_domain, members) == (
        {None: members} if free >= members else None)


def test_spread_takes_the_best_fitting_domains():
    by_domain = {name: group_plan.Capacity(1, (fit,))
                 for name, fit in (('a', 3), ('b', 1), ('c', 2), ('d', 9))}
    assert group_plan.plan_members('spread', by_domain, 2) == {
        'b': 1, 'c': 1}


def test_rest_goes_to_the_smallest_sufficient_domain():
    by_domain = {name: group_plan.Capacity(free, (0,))
                 for name, free in (('a', 5), ('b', 3), ('c', 2))}
    assert group_plan.plan_members('soft-pack', by_domain, 7) == {
        'a': 5, 'c': 2}


def test_room_counts_available_nodes():
    matches = [(types.SimpleNamespace(node=node(shard=shard)), [
        types.SimpleNamespace(
            find_domain=lambda levels, shard=shard: (shard, None),
            available=free, ids=array.array('I'))])
               for shard, free in (('a', 2), ('a', 1), ('b', 0), (None, 4))]
    matcher = matching.Matcher(tables.make_spec({'memory_mb': 1}))
    fit = matcher.fit(node())
    assert group_plan.count_room(comparison.find_free_nodes(
        matcher, matches, group_policy.Levels('pack', 'shard'))) == {
            ('a', None): group_plan.Capacity(3, fit),
            (None, None): group_plan.Capacity(4, fit)}


# Segments

inner_rooms = st.dictionaries(
    st.tuples(st.sampled_from(['a', 'b', None]),
              st.sampled_from(['x', 'y', 'z', None])),
    st.integers(1, 5), max_size=7).map(
        lambda free: {where: group_plan.Capacity(number, (0,))
                      for where, number in free.items()})


def list_segment_ways(room, size, segments):
    """Yield all ways to place segments, as Counters of inner domains."""
    places = [where for where in room if where[1] is not None]
    for numbers in itertools.product(*(
            range(room[where].free // size + 1) for where in places)):
        if sum(numbers) == segments:
            yield collections.Counter(dict(zip(places, numbers, strict=True)))


def sum_outer(way):
    """Return the number of segments in each outer domain."""
    sums = collections.Counter()
    for (outer, _), number in way.items():
        sums[outer] += number
    return sums


@hypothesis.settings(deadline=None)
@hypothesis.given(inner_rooms, st.integers(1, 3), st.integers(1, 4))
@pytest.mark.parametrize('policy, obeys', [
    ('spread', is_spread), ('pack', is_pack),
    ('soft-spread', lambda way: True), ('soft-pack', lambda way: True)])
def test_segments_compared_with_all_ways(policy, obeys, room, size, segments):
    levels = group_policy.Levels(policy, 'shard', 'conductor_group', size)
    possible = [way for way in list_segment_ways(room, size, segments)
                if obeys(sum_outer(way))]
    plan = group_plan.plan_segments(levels, room, segments * size)
    assert (plan is not None) == bool(possible)
    available = group_plan.count_members(levels, room)
    assert available % size == 0
    assert (available >= segments * size) == bool(possible)
    if plan is None:
        return
    way = collections.Counter({where: number // size
                               for where, number in plan.items()})
    assert all(number == way[where] * size for where, number in plan.items())
    assert +way in [+other for other in possible]
    outer, others = sum_outer(way), [*map(sum_outer, possible)]
    least = min(other[None] for other in others)
    assert outer[None] == least
    others = [other for other in others if other[None] == least]
    if policy == 'soft-spread':
        assert sum_squares(outer) == min(map(sum_squares, others))
    if policy == 'soft-pack':
        assert count_domains(outer) == min(map(count_domains, others))


@hypothesis.settings(deadline=None)
@hypothesis.given(inner_rooms, st.integers(1, 3), st.integers(1, 4))
def test_segments_of_one_level(room, size, segments):
    room = {(None, inner): capacity for (_, inner), capacity in room.items()}
    levels = group_policy.Levels(None, None, 'shard', size)
    plan = group_plan.plan_segments(levels, room, segments * size)
    assert (plan is not None) == bool(
        [*list_segment_ways(room, size, segments)])


def test_segments_fill_the_smallest_sufficient_domains():
    room = {('a', name): group_plan.Capacity(free, (0,))
            for name, free in (('x', 9), ('y', 4), ('z', 1))}
    levels = group_policy.Levels('pack', 'shard', 'conductor_group', 2)
    assert group_plan.plan_segments(levels, room, 6) == {
        ('a', 'y'): 4, ('a', 'x'): 2}
