# SPDX-License-Identifier: Apache-2.0
"""Defines in which domains the members of a group may be.

A *domain* is a rack, a conductor group or a shard. The policy of a group says
whether its members share a domain. It takes precedence over the fit: a node
in the right domain is better than one that fits better.

The members of a group may be divided into *segments* of equal size. Each
segment is in one inner domain, such as a rack, and the policy says whether
segments share an outer domain, such as a pod.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import functools
import json
import typing
from typing import Any

from ironic_reservations import values
from ironic_reservations.matching import constraints
from ironic_reservations.matching import nodes
from ironic_reservations.shared import constants
from ironic_reservations.shared import text

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
    :param segment_size: number of members in each segment; 1 without segments.
    """

    policy: str | None = None
    by: str | None = None
    inner_by: str | None = None
    segment_size: int = 1

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys of the domains, the outer one first."""
        return tuple(filter(None, (self.by, self.inner_by)))

    def find_domain(self, node: nodes.Node) -> Domain:
        """Return the outer and the inner domain of a node."""
        return find_domain(node, self.by), find_domain(node, self.inner_by)

    def find_segment(self, number: int) -> int | None:
        """Return the segment of a new member; None without segments.

        :param number: of the member.
        """
        return number // self.segment_size if self.inner_by else None

    def find_domain_traits(self, node: nodes.Node) -> dict[str, str | None]:
        """Return the traits that are domains of a node, by their prefixes.

        None for a prefix without such a trait.
        """
        return {by.removeprefix(TRAIT): find_domain(node, by)
                for by in self.keys if by.startswith(TRAIT)}

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


def find_levels(group: values.GroupRequest) -> Levels:
    """Return the policy of a group, and the keys of its domains."""
    return (Levels(group.policy, group.by) if group.segment_levels is None
            else parse_levels(group.segment_levels))


@dataclasses.dataclass(frozen=True)
class Policy:
    """The policy of a group, which chooses a domain for the next member.

    :param members: outer domains with their number of members, or of
        segments.
    :param room: number of matching free nodes by domain.
    :param segment_domain: domain of the segment that the member joins; None
        if it has no members yet, or if the group has no segments.
    """

    levels: Levels
    members: tuple[tuple[str | None, int], ...] = ()
    room: Mapping[Domain, int] = dataclasses.field(
        default_factory=dict, compare=False)
    segment_domain: Domain | None = None

    @functools.cached_property
    def _members(self) -> dict[str | None, int]:
        return dict(self.members)

    @property
    def constraints(self) -> list[constraints.Constraint]:
        """Return the constraints on nodes."""
        levels, result = self.levels, []
        outer, inner = self.segment_domain or (None, None)
        if levels.by is not None:
            result.append(_make_constraint(
                name_policy(levels.policy, levels.by)
                if self.segment_domain is None
                else name_domain(levels, levels.by, outer), levels.by,
                self._allows))
        if levels.inner_by is not None:
            result.append(_make_constraint(
                name_domain(levels, levels.inner_by, inner), levels.inner_by,
                self._allows_inner))
        return result

    def _allows(self, domain: str | None) -> bool:
        if self.segment_domain is not None:
            return domain == self.segment_domain[0]
        if self.levels.policy not in HARD:
            return True
        if domain is None:
            return False
        if self.levels.policy == SPREAD:
            return domain not in self._members
        return not self._members or domain in self._members

    def _allows_inner(self, domain: str | None) -> bool:
        return (domain is not None if self.segment_domain is None
                else domain == self.segment_domain[1])

    def rank(self, domain: Domain) -> tuple[Any, ...]:
        """Return a rank that precedes the fit. The lowest value is best."""
        outer, _ = domain
        rank: tuple[Any, ...] = ()
        if self.levels.policy in (SOFT_SPREAD, SOFT_PACK):
            members = self._members.get(outer, 0)
            rank = (outer is None,
                    members if self.levels.policy == SOFT_SPREAD else -members)
        if self.levels.inner_by is None or self.segment_domain is not None:
            return rank
        # The rest of the segment should find room, too.
        return (self.room.get(domain, 0) < self.levels.segment_size, *rank)

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


def name_domain(levels: Levels, by: str, value: str | None) -> str:
    """Return the name, in explanations, of the only domain that is allowed.

    Examples are ``group:segment=capability:rack=r3`` and, for a pool without
    segments, ``group:domain=capability:rack=r3``.

    :param value: None for any domain, or for nodes that state none.
    """
    return name_policy('segment' if levels.inner_by else 'domain',
                       by if value is None else f'{by}={value}')


def needs_room(levels: Levels, members: object,
               segment_domain: Domain | None) -> bool:
    """Return whether the next member depends on the room in each domain.

    :param members: numbers of members by domain; false if there are none.
    :param segment_domain: see ``Policy``.
    """
    if levels.inner_by is not None:
        return segment_domain is None
    return (levels.policy == SOFT_PACK
            or levels.policy == PACK and not members)
