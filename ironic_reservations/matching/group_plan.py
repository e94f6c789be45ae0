# SPDX-License-Identifier: Apache-2.0
"""Chooses how many members of a new group go to each domain.

The first of equally good domains is used.
"""

import array
import collections
from collections.abc import Callable
from collections.abc import Mapping
import heapq
import typing
from typing import Any

from ironic_reservations.matching import group_policy


class Capacity(typing.NamedTuple):
    """The nodes of a domain that could become members of a group.

    :param free: number of matching nodes that can be held, or of segments.
    :param fit: lowest ``matching.Matcher.fit`` of these nodes.
    """

    free: int
    fit: tuple[Any, ...]


#: Capacities by outer domain, in members or in segments.
Room = Mapping[str | None, Capacity]

#: Numbers of members or segments by outer domain.
Plan = dict[str | None, int]

#: Capacities by outer and inner domain, in members.
InnerRoom = Mapping[group_policy.Domain, Capacity]


class FreeNodes:
    """The nodes of a domain that can be held.

    :ivar number: how many there are.
    :ivar ids: their ids by fit; see ``matching.Matcher.fit``.
    """

    def __init__(self) -> None:
        self.number = 0
        self.ids: dict[tuple[Any, ...], array.array[int]] = (
            collections.defaultdict(lambda: array.array('I')))

    def count_capacity(self) -> Capacity:
        """Return the capacity of the domain."""
        return Capacity(self.number, min(self.ids))


def count_room(domains: Mapping[group_policy.Domain, FreeNodes]) -> InnerRoom:
    """Return the capacity of each domain."""
    return {name: domain.count_capacity() for name, domain in domains.items()}


def sum_segments(levels: group_policy.Levels, room: InnerRoom) -> Room:
    """Return the capacity of each outer domain, in segments.

    A segment is in one inner domain. Without segments, each member counts as
    one.
    """
    if levels.inner_by is None:
        return {outer: capacity for (outer, _), capacity in room.items()
                if capacity.free}
    free: collections.Counter[str | None] = collections.Counter()
    fits: dict[str | None, tuple[Any, ...]] = {}
    for (outer, inner), capacity in room.items():
        number = capacity.free // levels.segment_size
        if inner is not None and number > 0:
            free[outer] += number
            fits[outer] = min(fits.get(outer, capacity.fit), capacity.fit)
    return {outer: Capacity(number, fits[outer])
            for outer, number in free.items()}


def count_available(policy: str | None, room: Room) -> int:
    """Return how many members, or segments, a new group can have.

    :param policy: one of ``constants.POLICIES``, or None.
    """
    numbers = [capacity.free for domain, capacity in room.items()
               if domain is not None]
    if policy == group_policy.SPREAD:
        return len(numbers)
    if policy == group_policy.PACK:
        return max(numbers, default=0)
    return sum(capacity.free for capacity in room.values())


def count_members(levels: group_policy.Levels, room: InnerRoom) -> int:
    """Return how many members a new group can have."""
    return levels.segment_size * count_available(
        levels.policy, sum_segments(levels, room))


def plan_segments(levels: group_policy.Levels, room: InnerRoom, members: int
                  ) -> dict[group_policy.Domain, int] | None:
    """Return how many members of a new group go to each domain.

    Each outer domain uses its fullest inner domains that have room for a
    segment, so that the remaining ones stay whole.

    :param members: number of members, a multiple of the size of a segment.
    :returns: None if there is not enough room.
    """
    size = levels.segment_size
    plan = plan_members(levels.policy, sum_segments(levels, room),
                        members // size)
    if plan is None:
        return None
    if levels.inner_by is None:
        return {(outer, None): number for outer, number in plan.items()}
    domains = sorted(
        (domain for domain, capacity in room.items()
         if domain[0] in plan and domain[1] is not None
         and capacity.free >= size),
        key=lambda domain: (room[domain].free, room[domain].fit))
    inner_plan: dict[group_policy.Domain, int] = {}
    for domain in domains:
        number = min(plan[domain[0]], room[domain].free // size)
        if number:
            plan[domain[0]] -= number
            inner_plan[domain] = number * size
    return inner_plan


def plan_members(policy: str | None, room: Room, members: int) -> Plan | None:
    """Return how many members or segments go to each outer domain.

    :param policy: one of ``constants.POLICIES``, or None.
    :param members: number of members, at least 1.
    :returns: None if there is not enough room.
    """
    if count_available(policy, room) < members:
        return None
    domains = [domain for domain in room if domain is not None]
    return _PLANS[policy](domains, room, members)


def _place_anywhere(domains: list[str], room: Room, members: int) -> Plan:
    # Without a policy, all nodes are in the domain None.
    return {None: members}


def _spread(domains: list[str], room: Room, members: int) -> Plan:
    best = sorted(domains, key=lambda domain: room[domain].fit)
    return dict.fromkeys(best[:members], 1)


def _pack(domains: list[str], room: Room, members: int) -> Plan:
    """Use the domain with the fewest free nodes that has room for all."""
    return {min((domain for domain in domains
                 if room[domain].free >= members),
                key=lambda domain: (room[domain].free,
                                    room[domain].fit)): members}


def _soft_spread(domains: list[str], room: Room, members: int) -> Plan:
    """Add each member to a domain that has the fewest members."""
    plan: collections.Counter[str | None] = collections.Counter()
    heap = [(0, room[domain].fit, turn, domain)
            for turn, domain in enumerate(domains)]
    heapq.heapify(heap)
    while heap and members:
        number, fit, turn, domain = heapq.heappop(heap)
        plan[domain] += 1
        members -= 1
        if plan[domain] < room[domain].free:
            heapq.heappush(heap, (number + 1, fit, turn, domain))
    return _add_rest(plan, members)


def _soft_pack(domains: list[str], room: Room, members: int) -> Plan:
    """Fill the domains with the most room, and put the rest in the tightest.
    """
    plan: Plan = {}
    largest = sorted(domains, key=lambda domain: -room[domain].free)
    for number, domain in enumerate(largest):
        if members and room[domain].free >= members:
            tightest = min((other for other in largest[number:]
                            if room[other].free >= members),
                           key=lambda other: (room[other].free,
                                              room[other].fit))
            return {**plan, tightest: members}
        plan[domain] = room[domain].free
        members -= plan[domain]
    return _add_rest(plan, members)


def _add_rest(plan: Plan, members: int) -> Plan:
    """Add members without room in a domain to nodes without a domain."""
    return {**plan, **({None: members} if members else {})}


_PLANS: dict[str | None, Callable[[list[str], Room, int], Plan]] = {
    None: _place_anywhere,
    group_policy.SPREAD: _spread,
    group_policy.PACK: _pack,
    group_policy.SOFT_SPREAD: _soft_spread,
    group_policy.SOFT_PACK: _soft_pack,
}
