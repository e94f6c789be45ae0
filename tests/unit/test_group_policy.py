# SPDX-License-Identifier: Apache-2.0
"""Which domain the members of a group go to, compared with all ways."""

import collections
import itertools
import types

import hypothesis
from hypothesis import strategies as st
import pytest

from ironic_reservations import matching
from ironic_reservations.matching import group_policy


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
])
def test_domain(by, fields, domain):
    assert group_policy.find_domain(node(**fields), by) == domain


def order(policy, members, room=None):
    """Shards in the order in which a policy has a node of each tried."""
    place = group_policy.Policy(policy, 'shard', tuple(members.items()),
                            room or {})
    shards = [node(shard=name) for name in ('a', 'b', 'c', None)]
    allowed = [each for each in shards
               if place.constraint.is_satisfied_by(each)]
    allowed.sort(key=lambda each: (*place.rank(each.shard),
                                   *place.rank_among_equals(each.shard)))
    return [each.shard for each in allowed]


@pytest.mark.parametrize('policy, members, room, tried', [
    ('spread', {}, None, ['a', 'b', 'c']),
    ('spread', {'b': 1}, None, ['a', 'c']),
    ('pack', {}, {'a': 1, 'b': 3, 'c': 2}, ['b', 'c', 'a']),
    ('pack', {'c': 2}, None, ['c']),
    ('soft-spread', {'a': 2, 'b': 1}, None, ['c', 'b', 'a', None]),
    ('soft-pack', {'a': 1, 'b': 2}, None, ['b', 'a', 'c', None]),
    ('soft-pack', {}, {'a': 1, 'b': 3, None: 9}, ['b', 'a', 'c', None]),
    ('soft-spread', {None: 1}, None, ['a', 'b', 'c', None]),
    ('spread', {None: 1}, None, ['a', 'b', 'c']),
    # A member that was adopted states no domain: nothing can be with it.
    ('pack', {None: 1}, None, []),
])
def test_where_one_member_goes(policy, members, room, tried):
    assert order(policy, members, room) == tried


# All at once

domains = st.dictionaries(
    st.sampled_from(['a', 'b', 'c', 'd', None]),
    st.integers(1, 4), max_size=5).map(
        lambda free: {where: group_policy.Capacity(number, (0,))
                      for where, number in free.items()})


def ways(by_domain, members):
    """All ways to have so many members in these domains, as Counters."""
    for numbers in itertools.product(*(
            range(room.free + 1) for room in by_domain.values())):
        if sum(numbers) == members:
            yield collections.Counter(dict(zip(by_domain, numbers,
                                               strict=True)))


def is_spread(way):
    return way[None] == 0 and max(way.values(), default=0) <= 1


def is_pack(way):
    return way[None] == 0 and len(+way) == 1


@hypothesis.given(domains, st.integers(1, 12))
@pytest.mark.parametrize('policy, obeys', [
    ('spread', is_spread), ('pack', is_pack),
    ('soft-spread', lambda way: True), ('soft-pack', lambda way: True)])
def test_what_is_possible_is_done(policy, obeys, by_domain, members):
    possible = [way for way in ways(by_domain, members) if obeys(way)]
    plan = group_policy.plan_members(policy, by_domain, members)
    assert (plan is not None) == bool(possible)
    available = group_policy.count_available(policy, by_domain)
    assert (available >= members) == bool(possible)
    if plan is None:
        return
    way = collections.Counter(plan)
    assert +way in [+each for each in possible]
    least = min(way_[None] for way_ in possible)
    assert way[None] == least
    possible = [each for each in possible if each[None] == least]
    stated = [number for where, number in way.items() if where is not None]
    if policy == 'soft-spread':
        # None is as even as this one: the sum of squares says so.
        assert squares(way) == min(map(squares, possible))
    if policy == 'soft-pack':
        assert len(list(filter(None, stated))) == min(map(used, possible))
    if policy == 'pack':
        [where] = plan
        assert by_domain[where].free == min(
            room.free for where, room in by_domain.items()
            if where is not None and room.free >= members)


def squares(way):
    return sum(number ** 2 for where, number in way.items()
               if where is not None)


def used(way):
    return sum(bool(number) for where, number in way.items()
               if where is not None)


@hypothesis.given(domains, st.integers(1, 12))
def test_without_a_policy(by_domain, members):
    free = sum(room.free for room in by_domain.values())
    assert group_policy.plan_members(None, by_domain, members) == (
        {None: members} if free >= members else None)


def test_spread_takes_the_best_fitting_domains():
    by_domain = {name: group_policy.Capacity(1, (fit,))
                 for name, fit in (('a', 3), ('b', 1), ('c', 2), ('d', 9))}
    assert group_policy.plan_members('spread', by_domain, 2) == {
        'b': 1, 'c': 1}


def test_tightest_for_the_rest():
    by_domain = {name: group_policy.Capacity(free, (0,))
                 for name, free in (('a', 5), ('b', 3), ('c', 2))}
    assert group_policy.plan_members('soft-pack', by_domain, 7) == {
        'a': 5, 'c': 2}


def test_rooms_count_what_can_be_held_now():
    matches = [(types.SimpleNamespace(node=node(shard=shard)), [
        types.SimpleNamespace(domain=lambda by, shard=shard: shard,
                              available=free)])
               for shard, free in (('a', 2), ('a', 1), ('b', 0), (None, 4))]
    assert group_policy.count_room(matches, 'shard', lambda node: (1,)) == {
        'a': group_policy.Capacity(3, (1,)),
        None: group_policy.Capacity(4, (1,))}
