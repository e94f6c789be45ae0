# SPDX-License-Identifier: Apache-2.0
"""Chooses the domains of the members of a group.

A *domain* is a rack, a conductor group or a shard. The policy of a group says
whether its members share a domain. It takes precedence over the fit: a node
in the right domain is better than one that fits better.

The members of a group may be divided into *segments* of equal size. Each
segment is in one inner domain, such as a rack, and the policy says whether
segments share an outer domain, such as a pod.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import functools
import heapq
import json
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

#: Values of ``by``, besides ``capability:NAME`` and ``trait:PREFIX``.
COLUMNS = ('conductor_group', 'shard')
CAPABILITY = 'capability:'
TRAIT = 'trait:'


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

    :param by: ``capability:NAME``, ``trait:PREFIX`` or one of ``COLUMNS``;
        None if the group has no policy, so that domains make no difference.
    """
    if by is None:
        return None
    if by.startswith(TRAIT):
        traits = [trait for trait in node.traits
                  if trait.startswith(by.removeprefix(TRAIT))]
        return traits[0] if len(traits) == 1 else None
    if by.startswith(CAPABILITY):
        return parse_domain(node.capability(by.removeprefix(CAPABILITY)))
    value = getattr(node, by) or None
    # Ironic ignores the case of conductor groups.
    return value.lower() if value and by == 'conductor_group' else value


#: The outer and the inner domain of a node; see ``Levels``.
Domain = tuple[str | None, str | None]


class Levels(typing.NamedTuple):
    """The policy of a group, and the keys of its domains.

    :param policy: one of ``constants.POLICIES`` for members, or for segments;
        None if they may be anywhere.
    :param by: key of the outer domains, see ``find_domain``; None without a
        policy.
    :param inner_by: key of the domains of segments; None without segments.
    :param segment: number of members in each segment; 1 without segments.
    """

    policy: str | None = None
    by: str | None = None
    inner_by: str | None = None
    segment: int = 1

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys of the domains, the outer one first."""
        return tuple(filter(None, (self.by, self.inner_by)))

    def find_domain(self, find: Callable[[str | None], str | None]) -> Domain:
        """Return the outer and the inner domain of a node or a profile.

        :param find: returns the domain by a key.
        """
        return find(self.by), find(self.inner_by)

    def show_domain(self, domain: Domain) -> Any:
        """Return a domain as the API shows it: a list if it has segments."""
        return (domain[0] if self.inner_by is None
                else list(domain[-len(self.keys):]))

    def join_domain(self, domain: Domain) -> str | None:
        """Return the text of a domain, which rows of members have."""
        value = self.show_domain(domain)
        return json.dumps(value) if self.inner_by else value

    def split_domain(self, text: str | None) -> Domain:
        """Return the domain that a text of ``join_domain`` names."""
        if self.inner_by is None:
            return text, None
        outer, inner = [None, *json.loads(text or '[null]')][-2:]
        return outer, inner


@functools.lru_cache(maxsize=128)
def parse_levels(text: str) -> Levels:
    """Return the Levels of a group with segments.

    :param text: JSON list of its one or two levels.
    """
    outer, inner = [{}, *json.loads(text)][-2:]
    return Levels(outer.get('policy'), outer.get('by'), inner['by'],
                  inner['segment'])


@dataclasses.dataclass(frozen=True)
class Policy:
    """The policy of a group, which chooses a domain for the next member.

    :param members: outer domains with their number of members, or of
        segments.
    :param room: number of matching free nodes by domain.
    :param segment: domain of the segment that the member joins; None if it
        has no members yet, or if the group has no segments.
    """

    levels: Levels
    members: tuple[tuple[str | None, int], ...] = ()
    room: Mapping[Domain, int] = dataclasses.field(
        default_factory=dict, compare=False)
    segment: Domain | None = None

    @functools.cached_property
    def _members(self) -> dict[str | None, int]:
        return dict(self.members)

    @property
    def constraints(self) -> list[constraints.Constraint]:
        """Return the constraints on nodes."""
        levels, result = self.levels, []
        if levels.by is not None:
            result.append(_make_constraint(
                name_policy(levels.policy if self.segment is None
                            else 'segment', levels.by), levels.by,
                self._allows))
        if levels.inner_by is not None:
            result.append(_make_constraint(
                name_policy('segment', levels.inner_by), levels.inner_by,
                self._allows_inner))
        return result

    def _allows(self, domain: str | None) -> bool:
        if self.segment is not None:
            return domain == self.segment[0]
        if self.levels.policy not in HARD:
            return True
        if domain is None:
            return False
        if self.levels.policy == SPREAD:
            return domain not in self._members
        return not self._members or domain in self._members

    def _allows_inner(self, domain: str | None) -> bool:
        return (domain is not None if self.segment is None
                else domain == self.segment[1])

    def rank(self, domain: Domain) -> tuple[Any, ...]:
        """Return a rank that precedes the fit. The lowest value is best."""
        outer, _ = domain
        rank: tuple[Any, ...] = ()
        if self.levels.policy in (SOFT_SPREAD, SOFT_PACK):
            members = self._members.get(outer, 0)
            rank = (outer is None,
                    members if self.levels.policy == SOFT_SPREAD else -members)
        if self.levels.inner_by is None or self.segment is not None:
            return rank
        # The rest of the segment should find room, too.
        return (self.room.get(domain, 0) < self.levels.segment, *rank)

    def rank_among_equals(self, domain: Domain) -> tuple[int, ...]:
        """Return a rank that follows the fit. The lowest value is best.

        A pack whose members are added one by one, and a segment, begin in the
        domain with the most room.
        """
        if (self.levels.policy not in (PACK, SOFT_PACK)
                and self.levels.inner_by is None):
            return ()
        return (-self.room.get(domain, 0),)


def _make_constraint(name: str, by: str,
                     allows: Callable[[str | None], bool]
                     ) -> constraints.Constraint:
    """Return a constraint that checks the domain of a node."""
    capability = find_capability(by)
    is_allowed: Callable[[Any], bool] = (
        lambda node: allows(find_domain(node, by))
    ) if capability is None else (lambda value: allows(parse_domain(value)))
    return constraints.Constraint(name, is_allowed, capability)


def name_policy(policy: str | None, by: str | None) -> str:
    """Return the name of a policy in explanations.

    An example is ``group:pack=capability:rack``.
    """
    return text.escape_controls(f'group:{policy}={by}')


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
InnerRoom = Mapping[Domain, Capacity]


def needs_room(levels: Levels, members: object,
               segment: Domain | None) -> bool:
    """Return whether the next member depends on the room in each domain.

    :param members: numbers of members by domain; false if there are none.
    :param segment: see ``Policy``.
    """
    if levels.inner_by is not None:
        return segment is None
    return (levels.policy == SOFT_PACK
            or levels.policy == PACK and not members)


def count_room(matches: 'Iterable[matcher.Match]', levels: Levels,
               fit: Callable[[nodes.Node], tuple[Any, ...]],
               remaining: Callable[[str | None], float] = (
                   lambda resource_class: math.inf)) -> InnerRoom:
    """Return the capacity of each domain in which nodes can be held.

    :param matches: result of ``Matcher.find_profiles`` for the keys of these
        levels.
    :param fit: function of a node, equal for the nodes of a profile group.
    :param remaining: function that returns how many more nodes of a resource
        class may be held.
    """
    by_class: collections.Counter[
        tuple[Domain, str | None]] = collections.Counter()
    free: collections.Counter[Domain] = collections.Counter()
    fits: dict[Domain, tuple[Any, ...]] = {}
    for group, profiles in matches:
        group_fit, resource_class = fit(group.node), group.node.resource_class
        for profile in profiles:
            if available := profile.available:
                domain = levels.find_domain(profile.find_domain)
                by_class[domain, resource_class] += available
                fits[domain] = min(fits.get(domain, group_fit), group_fit)
    for (domain, resource_class), number in by_class.items():
        free[domain] += int(min(number, remaining(resource_class)))
    return {domain: Capacity(number, fits[domain])
            for domain, number in free.items()}


def sum_segments(levels: Levels, room: InnerRoom) -> Room:
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
        number = capacity.free // levels.segment
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
    if policy == SPREAD:
        return len(numbers)
    if policy == PACK:
        return max(numbers, default=0)
    return sum(capacity.free for capacity in room.values())


def count_members(levels: Levels, room: InnerRoom) -> int:
    """Return how many members a new group can have."""
    return levels.segment * count_available(levels.policy,
                                            sum_segments(levels, room))


def plan_segments(levels: Levels, room: InnerRoom, members: int
                  ) -> dict[Domain, int] | None:
    """Return how many members of a new group go to each domain.

    Each outer domain uses its fullest inner domains that have room for a
    segment, so that the others stay whole.

    :param members: number of members, a multiple of the size of a segment.
    :returns: None if there is not enough room.
    """
    size = levels.segment
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
    inner_plan: dict[Domain, int] = {}
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
