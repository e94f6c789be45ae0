# SPDX-License-Identifier: Apache-2.0
"""Chooses the domains of the members of a group.

A *domain* is a rack, a conductor group or a shard. The policy of a group says
whether its members share a domain. It takes precedence over the fit: a node
in the right domain is better than one that fits better.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import functools
import heapq
import math
import random
import typing
from typing import Any

from ironic_reservations import constants
from ironic_reservations import text
from ironic_reservations.matching import constraints
from ironic_reservations.matching import nodes

if typing.TYPE_CHECKING:
    from ironic_reservations.matching import matcher

SPREAD, PACK, SOFT_SPREAD, SOFT_PACK = constants.POLICIES

#: Policies under which a node without a domain cannot be a member.
HARD = (SPREAD, PACK)

#: Values of ``by``, besides ``capability:NAME``.
COLUMNS = ('conductor_group', 'shard')
CAPABILITY = 'capability:'


@functools.lru_cache(maxsize=128)
def find_capability(by: str | None) -> str | None:
    """Return the capability whose values are the domains, or None.

    The architecture is not a capability: see matching.Node.capability.
    """
    if by is None or not by.startswith(CAPABILITY):
        return None
    name = by.removeprefix(CAPABILITY)
    return None if name == 'cpu_arch' else name


def parse_domain(value: str | None) -> str | None:
    """Return the domain in the value of a capability, or None."""
    return nodes.drop_long_value(value) or None


def find_domain(node: nodes.Node, by: str | None) -> str | None:
    """Return the domain of a node, or None if it has none.

    :param by: ``capability:NAME`` or one of ``COLUMNS``; None if the group
        has no policy, so that domains make no difference.
    """
    if by is None:
        return None
    if by.startswith(CAPABILITY):
        return parse_domain(node.capability(by.removeprefix(CAPABILITY)))
    value = getattr(node, by) or None
    # Ironic ignores the case of conductor groups.
    return value.lower() if value and by == 'conductor_group' else value


@dataclasses.dataclass(frozen=True)
class Policy:
    """The policy of a group, which chooses a domain for the next member.

    :param policy: one of ``constants.POLICIES``.
    :param by: see ``find_domain``.
    :param members: domains with their number of members.
    :param room: number of matching free nodes by domain.
    """

    policy: str
    by: str
    members: tuple[tuple[str | None, int], ...] = ()
    room: Mapping[str | None, int] = dataclasses.field(
        default_factory=dict, compare=False)

    @functools.cached_property
    def _members(self) -> dict[str | None, int]:
        return dict(self.members)

    @property
    def name(self) -> str:
        """Return its name in explanations."""
        return name_policy(self.policy, self.by)

    @property
    def constraint(self) -> constraints.Constraint:
        """Return the constraint on nodes."""
        name = find_capability(self.by)
        allows: Callable[[Any], bool] = (
            lambda node: self._allows(find_domain(node, self.by))
        ) if name is None else (
            lambda value: self._allows(parse_domain(value)))
        return constraints.Constraint(self.name, allows, name)

    def _allows(self, domain: str | None) -> bool:
        if self.policy not in HARD:
            return True
        if domain is None:
            return False
        if self.policy == SPREAD:
            return domain not in self._members
        return not self._members or domain in self._members

    def rank(self, domain: str | None) -> tuple[Any, ...]:
        """Return a rank that precedes the fit. The lowest value is best."""
        if self.policy in HARD:
            return ()
        members = self._members.get(domain, 0)
        return (domain is None,
                members if self.policy == SOFT_SPREAD else -members)

    def rank_among_equals(self, domain: str | None) -> tuple[int, ...]:
        """Return a rank that follows the fit. The lowest value is best.

        A pack whose members are added one by one begins in the domain with
        the most room.
        """
        if self.policy not in (PACK, SOFT_PACK):
            return ()
        return (-self.room.get(domain, 0),)


def name_policy(policy: str, by: str | None) -> str:
    """Return the name of a policy in explanations.

    An example is ``group:pack=capability:rack``.
    """
    return text.escape_controls(f'group:{policy}={by}')


@dataclasses.dataclass(frozen=True)
class Capacity:
    """The nodes of a domain that could become members of a group.

    :param free: number of matching nodes that can be held.
    :param fit: lowest ``matching.Matcher.fit`` of these nodes.
    """

    free: int
    fit: tuple[Any, ...]


#: Capacities by domain.
Room = Mapping[str | None, Capacity]

#: Numbers of members by domain.
Plan = dict[str | None, int]


def needs_room(policy: str | None, members: object) -> bool:
    """Return whether the next member depends on the room in each domain.

    :param members: numbers of members by domain; false if there are none.
    """
    return policy == SOFT_PACK or policy == PACK and not members


def count_room(matches: 'Iterable[matcher.Match]', by: str | None,
               fit: Callable[[nodes.Node], tuple[Any, ...]],
               remaining: Callable[[str | None], float] = (
                   lambda resource_class: math.inf)) -> Room:
    """Return the capacity of each domain in which nodes can be held.

    :param matches: result of ``Matcher.find_profiles`` for this ``by``.
    :param fit: function of a node, equal for the nodes of a profile group.
    :param remaining: function that returns how many more nodes of a resource
        class may be held.
    """
    by_class: collections.Counter[
        tuple[str | None, str | None]] = collections.Counter()
    free: collections.Counter[str | None] = collections.Counter()
    fits: dict[str | None, tuple[Any, ...]] = {}
    for group, profiles in matches:
        group_fit, resource_class = fit(group.node), group.node.resource_class
        for profile in profiles:
            if available := profile.available:
                domain = profile.find_domain(by)
                by_class[domain, resource_class] += available
                fits[domain] = min(fits.get(domain, group_fit), group_fit)
    for (domain, resource_class), number in by_class.items():
        free[domain] += int(min(number, remaining(resource_class)))
    return {domain: Capacity(number, fits[domain])
            for domain, number in free.items()}


def count_available(policy: str | None, room: Room) -> int:
    """Return how many members a new group can have.

    :param policy: one of ``constants.POLICIES``, or None.
    """
    numbers = [capacity.free for domain, capacity in room.items()
               if domain is not None]
    if policy == SPREAD:
        return len(numbers)
    if policy == PACK:
        return max(numbers, default=0)
    return sum(capacity.free for capacity in room.values())


def plan_members(policy: str | None, room: Room, members: int) -> Plan | None:
    """Return how many members of a new group go to each domain.

    :param policy: one of ``constants.POLICIES``, or None.
    :param members: number of members, at least 1.
    :returns: None if there is not enough room.
    """
    if count_available(policy, room) < members:
        return None
    # Equally good domains are tried in random order. Otherwise all processes
    # would compete for the same nodes.
    domains = [domain for domain in room if domain is not None]
    random.shuffle(domains)
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
    None: _place_anywhere, SPREAD: _spread, PACK: _pack,
    SOFT_SPREAD: _soft_spread, SOFT_PACK: _soft_pack}
