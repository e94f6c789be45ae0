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
from ironic_reservations.shared import resources


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

#: Numbers of nodes that may still be held, by name of a limit of a resource
#: class.
Limits = Mapping[str, int]


class FreeNodes:
    """The nodes of a domain that can be held.

    :ivar numbers: number of nodes by resource class.
    :ivar ids: their ids by fit; see ``matching.Matcher.fit``.
    """

    def __init__(self) -> None:
        self.numbers: collections.Counter[str | None] = collections.Counter()
        self.ids: dict[tuple[Any, ...], array.array[int]] = (
            collections.defaultdict(lambda: array.array('I')))

    def count_capacity(self) -> Capacity:
        """Return the capacity of the domain."""
        return Capacity(self.numbers.total(), min(self.ids))

    def reduce(self, numbers: Mapping[str | None, int]) -> 'FreeNodes':
        """Return the domain with fewer nodes.

        :param numbers: number of nodes by resource class.
        """
        domain = FreeNodes()
        domain.numbers, domain.ids = collections.Counter(numbers), self.ids
        return domain


def allot(domains: Mapping[group_policy.Domain, FreeNodes],
          levels: group_policy.Levels, limits: Limits
          ) -> Mapping[group_policy.Domain, FreeNodes]:
    """Divide what a quota leaves of resource classes among the domains.

    No plan for the result exceeds the quota. If the quota limits one class,
    the result has room for as many members as possible.
    """
    if not limits:
        return domains
    scopes: dict[str | None, dict[group_policy.Domain, FreeNodes]] = (
        collections.defaultdict(dict))
    for name, domain in domains.items():
        # A pack is in one outer domain, which may use all that is left.
        scopes[name[0] if levels.policy == group_policy.PACK else None][
            name] = domain
    return {name: domains[name].reduce(numbers)
            for scope in scopes.values()
            for name, numbers in _allot(scope, levels, limits).items()}


def _allot(domains: Mapping[group_policy.Domain, FreeNodes],
           levels: group_policy.Levels, limits: Limits
           ) -> dict[group_policy.Domain, collections.Counter[str | None]]:
    """Return the number of nodes of each class that a domain may use.

    Each step adds the cheapest member or segment: the one that needs the
    fewest nodes of limited classes.
    """
    shares, size = _Shares(domains, limits), levels.segment_size
    is_spread = levels.policy == group_policy.SPREAD
    sizes = {name: domain.numbers.total() for name, domain in domains.items()}
    segments: collections.Counter[str | None] = collections.Counter()
    heap: list[tuple[Any, ...]] = []

    def push(turn: int, name: group_policy.Domain) -> None:
        outer, inner = name
        if (outer is None and levels.policy in group_policy.HARD
                or inner is None and levels.inner_by is not None):
            return
        number, part = divmod(shares.numbers[name].total(), size)
        segments[outer] = max(segments[outer], number)
        preference = (-sizes[name] if levels.policy == group_policy.SOFT_PACK
                      else number)
        heapq.heappush(heap, (size - part, outer is None, preference,
                              min(domains[name].ids), turn, name))

    for turn, name in enumerate(domains):
        push(turn, name)
    while heap:
        cost, *_, turn, name = heapq.heappop(heap)
        if is_spread and segments[name[0]]:
            continue
        if shares.take(name, cost):
            push(turn, name)
    if is_spread:
        # Prefer nodes that fit better than nodes of other classes.
        for name in sorted(domains, key=lambda name: min(domains[name].ids)):
            shares.take(name, size)
    return shares.numbers


class _Shares:
    """The nodes of each domain that a plan may use.

    :ivar numbers: numbers of nodes by resource class.
    """

    def __init__(self, domains: Mapping[group_policy.Domain, FreeNodes],
                 limits: Limits) -> None:
        totals = collections.Counter[str]()
        for domain in domains.values():
            for resource_class, number in domain.numbers.items():
                totals[find_limit(resource_class)] += number
        self._budgets = {limit: number for limit, number in limits.items()
                         if number < totals[limit]}
        self.numbers: dict[
            group_policy.Domain, collections.Counter[str | None]] = {}
        # Nodes of limited classes that are not yet in "numbers".
        self._rest: dict[
            group_policy.Domain, collections.Counter[str | None]] = {}
        for name, domain in domains.items():
            self.numbers[name], self._rest[name] = (
                collections.Counter({
                    resource_class: number for resource_class, number in
                    domain.numbers.items() if is_limited == (
                        find_limit(resource_class) in self._budgets)})
                for is_limited in (False, True))

    def take(self, name: group_policy.Domain, number: int) -> bool:
        """Let a domain use more nodes of limited classes.

        :returns: False if it has too few, or a limit does not allow them.
        """
        share: collections.Counter[str | None] = collections.Counter()
        budgets, rest = dict(self._budgets), self._rest[name]
        for resource_class in sorted(rest, key=lambda resource_class: -budgets[
                find_limit(resource_class)]):
            limit = find_limit(resource_class)
            share[resource_class] = min(number - share.total(),
                                        rest[resource_class], budgets[limit])
            budgets[limit] -= share[resource_class]
        if share.total() < number:
            return False
        self._budgets = budgets
        self.numbers[name] += share
        self._rest[name] = rest - share
        return True


def find_limit(resource_class: str | None) -> str:
    """Return the name of the limit of a resource class; '' without a class."""
    return ''.join(resources.limit_names(resource_class)[1:])


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


class GroupPlan(typing.NamedTuple):
    """Where the members of a new group go.

    :param members: number of members by domain.
    :param free: nodes of each domain that may be used.
    """

    members: dict[group_policy.Domain, int]
    free: Mapping[group_policy.Domain, FreeNodes]
    limits: Limits

    def allows(self, name: group_policy.Domain, resource_class: str | None,
               number: int) -> bool:
        """Return whether a domain may use another node of a class.

        :param number: number of such nodes that it uses already.
        """
        return (find_limit(resource_class) not in self.limits
                or number < self.free[name].numbers[resource_class])


def plan_group(domains: Mapping[group_policy.Domain, FreeNodes],
               levels: group_policy.Levels, members: int, limits: Limits
               ) -> GroupPlan | None:
    """Return where the members of a new group go.

    :param members: number of members, a multiple of the size of a segment.
    :returns: None if there is not enough room.
    """
    free = allot(domains, levels, limits)
    plan = plan_segments(levels, count_room(free), members)
    return None if plan is None else GroupPlan(plan, free, limits)


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
