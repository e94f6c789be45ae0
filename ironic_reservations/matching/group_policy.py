# SPDX-License-Identifier: Apache-2.0
"""Near or apart: which domain the members of a group go to. Pure functions.

A *domain* is what the nodes of a rack, a conductor group or a shard have in
common. The policy of a group says whether its members share a domain. It
comes before the fit: the best fitting node is one of the right domain.
"""

import collections
import dataclasses
import functools
import heapq
import math
import random

from ironic_reservations import constants
from ironic_reservations import text
from ironic_reservations.matching import constraints
from ironic_reservations.matching import node as nodes

SPREAD, PACK, SOFT_SPREAD, SOFT_PACK = constants.POLICIES

#: A node without a domain cannot be a member under these.
HARD = (SPREAD, PACK)

#: What ``by`` may be, beside ``capability:NAME``.
COLUMNS = ('conductor_group', 'shard')
CAPABILITY = 'capability:'


@functools.lru_cache(maxsize=128)
def capability_of(by):
    """The name of the capability whose values are the domains, or None.

    An architecture is a property of its own: see matching.Node.capability.
    """
    if by is None or not by.startswith(CAPABILITY):
        return None
    name = by.removeprefix(CAPABILITY)
    return None if name == 'cpu_arch' else name


def stated(value):
    """The domain of a node that has this value; None where it states none."""
    return nodes.readable(value) or None


def domain(node, by):
    """The domain of a node, or None when it states none.

    :param node: matching.Node.
    :param by: ``capability:NAME`` or one of ``COLUMNS``; None where a group
        has no policy, and all nodes are alike.
    """
    if by is None:
        return None
    if by.startswith(CAPABILITY):
        return stated(node.capability(by.removeprefix(CAPABILITY)))
    value = getattr(node, by) or None
    # Groups of conductors that differ by case alone are the same to Ironic.
    return value.lower() if value and by == 'conductor_group' else value


@dataclasses.dataclass(frozen=True)
class Policy:
    """Where the next member of a group goes.

    :param policy: one of ``constants.POLICIES``.
    :param by: see ``domain``.
    :param members: pairs of a domain and how many members are there.
    :param room: how many nodes match and are free, by domain.
    """

    policy: str
    by: str
    members: tuple[tuple[str | None, int], ...] = ()
    room: dict = dataclasses.field(default_factory=dict, compare=False)

    @functools.cached_property
    def _members(self):
        return dict(self.members)

    @property
    def name(self):
        """What an explanation calls it."""
        return name_of(self.policy, self.by)

    @property
    def constraint(self):
        """The constraints.Constraint that it is."""
        name = capability_of(self.by)
        allows = (lambda node: self._allows(domain(node, self.by))
                  ) if name is None else (
            lambda value: self._allows(stated(value)))
        return constraints.Constraint(self.name, allows, name)

    def _allows(self, where):
        if self.policy not in HARD:
            return True
        if where is None:
            return False
        if self.policy == SPREAD:
            return where not in self._members
        return not self._members or where in self._members

    def rank(self, where):
        """What comes before the fit: of several domains the least is best."""
        if self.policy in HARD:
            return ()
        members = self._members.get(where, 0)
        return (where is None,
                members if self.policy == SOFT_SPREAD else -members)

    def rank_among_equals(self, where):
        """What comes after the fit: the least is best.

        A pack that grows one by one begins where there is most room for it.
        """
        if self.policy not in (PACK, SOFT_PACK):
            return ()
        return (-self.room.get(where, 0),)


def name_of(policy, by):
    """What an explanation calls a policy, such as group:pack=capability:rack.
    """
    return text.escape_controls(f'group:{policy}={by}')


@dataclasses.dataclass(frozen=True)
class Capacity:
    """What a domain has for the members of a group.

    :param free: how many nodes that match could be held.
    :param fit: how badly the best of them fits: see matching.Matcher.fit.
    """

    free: int
    fit: tuple


def asks_for_room(policy, members):
    """Whether it matters to a policy where there is room for more members.

    :param members: what has members already, by domain.
    """
    return policy == SOFT_PACK or policy == PACK and not members


def capacities(matches, by, fit, left=lambda resource_class: math.inf):
    """The Capacity of each domain in which nodes could be held, as a dict.

    :param matches: what Matcher.matching returns, for this ``by``.
    :param fit: function of a matching.Node, equal within a profile group.
    :param left: function of a resource class: how many more nodes of it may
        be held.
    """
    by_class, found, fits = collections.Counter(), collections.Counter(), {}
    for kind, profiles in matches:
        fits_so, resource_class = fit(kind.node), kind.node.resource_class
        for profile in profiles:
            if available := profile.available:
                where = profile.domain(by)
                by_class[where, resource_class] += available
                fits[where] = min(fits.get(where, fits_so), fits_so)
    for (where, resource_class), number in by_class.items():
        found[where] += min(number, left(resource_class))
    return {where: Capacity(number, fits[where])
            for where, number in found.items()}


def available(policy, by_domain):
    """How many members a group may have that begins now.

    :param policy: one of ``constants.POLICIES``, or None.
    :param by_domain: what ``capacities`` returns.
    """
    stated = [room.free for where, room in by_domain.items()
              if where is not None]
    if policy == SPREAD:
        return len(stated)
    if policy == PACK:
        return max(stated, default=0)
    return sum(room.free for room in by_domain.values())


def plan(policy, by_domain, members):
    """How many members go to which domain, when all of them are held at once.

    :param policy: one of ``constants.POLICIES``, or None.
    :param by_domain: what ``capacities`` returns.
    :param members: how many there are, at least 1.
    :returns: dict of domains and numbers; None where there is no room.
    """
    if available(policy, by_domain) < members:
        return None
    # Equally good domains come in random order, or every process would want
    # the same nodes.
    stated = [where for where in by_domain if where is not None]
    random.shuffle(stated)
    return _PLANS[policy](stated, by_domain, members)


def _anywhere(stated, by_domain, members):
    # Without a policy all nodes are in one domain, that of no name.
    return {None: members}


def _spread(stated, by_domain, members):
    best = sorted(stated, key=lambda where: by_domain[where].fit)
    return dict.fromkeys(best[:members], 1)


def _pack(stated, by_domain, members):
    """The domain with the fewest free nodes in which all fit."""
    return {min((where for where in stated
                 if by_domain[where].free >= members),
                key=lambda where: (by_domain[where].free,
                                   by_domain[where].fit)): members}


def _soft_spread(stated, by_domain, members):
    """One after the other to the domain that has the fewest."""
    chosen = collections.Counter()
    heap = [(0, by_domain[where].fit, turn, where)
            for turn, where in enumerate(stated)]
    heapq.heapify(heap)
    while heap and members:
        number, *rest, where = heapq.heappop(heap)
        chosen[where] += 1
        members -= 1
        if chosen[where] < by_domain[where].free:
            heapq.heappush(heap, (number + 1, *rest, where))
    return _with_rest(chosen, members)


def _soft_pack(stated, by_domain, members):
    """The domains with most free nodes, and for the rest the tightest."""
    chosen = {}
    fullest = sorted(stated, key=lambda where: -by_domain[where].free)
    for number, where in enumerate(fullest):
        if members and by_domain[where].free >= members:
            where = min((each for each in fullest[number:]
                         if by_domain[each].free >= members),
                        key=lambda each: (by_domain[each].free,
                                          by_domain[each].fit))
            return {**chosen, where: members}
        chosen[where] = by_domain[where].free
        members -= chosen[where]
    return _with_rest(chosen, members)


def _with_rest(chosen, members):
    """Those that have no room in a domain go where none is stated."""
    return {**chosen, **({None: members} if members else {})}


_PLANS = {None: _anywhere, SPREAD: _spread, PACK: _pack,
          SOFT_SPREAD: _soft_spread, SOFT_PACK: _soft_pack}
