# SPDX-License-Identifier: Apache-2.0
"""Tracks the free nodes of each domain, to choose the members of a group.

The numbers are those of a count, corrected by what this process has learned
since. They may be outdated: they decide only where to look first. A group is
planned without suspect nodes first, and with them if the rest is not
sufficient.
"""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
import random
import threading
from typing import Any
from typing import TypeVar

from ironic_reservations import matching
from ironic_reservations.fleet import comparison
from ironic_reservations.fleet import profiles
from ironic_reservations.fleet import search
from ironic_reservations.matching import group_plan
from ironic_reservations.matching import group_policy

Value = TypeVar('Value')

#: Number of nodes to read for each domain in addition to those to hold,
#: because some of them may be taken by now.
SPARE = 16

#: Number of suspect nodes that a search reads for a group before it uses them.
MAX_SUSPECTS = 1024

#: Maximum number of requests whose domains are cached for a count.
MAX_CACHED = 32


def get_domains(matcher: matching.Matcher, fleet: profiles.Fleet,
                levels: group_policy.Levels,
                with_suspects: bool = True) -> 'Domains':
    """Return the Domains of a request, cached for equal requests.

    :param matcher: without a policy.
    :param with_suspects: whether suspect nodes may be chosen.
    """
    matcher = fleet.make_key(matcher)
    cache, key = fleet.domains, (matcher, levels, with_suspects)
    domains = cache.get(key)
    if domains is None:
        if len(cache) >= MAX_CACHED:
            cache.clear()
        domains = cache[key] = Domains(matcher, fleet, levels, with_suspects)
    return domains


class Domains:
    """The free nodes that match a request, by domain.

    Threads may share it. It lasts as long as the count, which it changes in
    two ways: nodes that this process holds since are subtracted, and a domain
    in which a search has found fewer nodes has only those.
    """

    def __init__(self, matcher: matching.Matcher, fleet: profiles.Fleet,
                 levels: group_policy.Levels, with_suspects: bool) -> None:
        self._matcher, self._levels = matcher, levels
        self._with_suspects = with_suspects
        # Not the fleet, which refers to this object.
        self._holds, self._suspects = fleet.holds, fleet.suspects
        self._lock = threading.Lock()
        # Nodes of fleet.holds by id, with the domain and the resource class
        # from which they were subtracted; None for nodes that do not match.
        self._subtractions: dict[int, tuple[
            group_policy.Domain, str | None] | None] = {}
        self._domains = comparison.find_free_nodes(
            matcher, comparison.find_profiles(matcher, fleet, *levels.keys),
            levels)
        self._room = dict(group_plan.count_room(self._domains))

    def count_room(self) -> group_plan.InnerRoom:
        """Return the capacity of each domain."""
        with self._lock:
            self._apply_holds()
            return dict(self._room)

    def plan_group(self, members: int, limits: group_plan.Limits
                   ) -> group_plan.GroupPlan | None:
        """Return where the members of a new group go.

        :returns: None if there is not enough room.
        """
        with self._lock:
            self._apply_holds()
            if limits:
                return group_plan.plan_group(
                    _shuffle(self._domains), self._levels, members, limits)
            room = _shuffle(self._room)
        plan = group_plan.plan_segments(self._levels, room, members)
        return None if plan is None else group_plan.GroupPlan(
            plan, self._domains, limits)

    def _apply_holds(self) -> None:
        """Subtract nodes that were held, and add nodes that were released."""
        for node_id in self._subtractions.keys() - self._holds.keys():
            place = self._subtractions.pop(node_id)
            if place is not None:
                self._add(*place, 1)
        for node_id in self._holds.keys() - self._subtractions.keys():
            node = self._holds.get(node_id)
            place = None if node is None else self._find_place(node)
            self._subtractions[node_id] = place
            if place is not None:
                self._add(*place, -1)

    def _find_place(self, node: matching.Node
                    ) -> tuple[group_policy.Domain, str | None] | None:
        """Return the domain and the class of a node that counts as free."""
        if not (self._matcher.is_visible(node)
                and self._matcher.matches(node)):
            return None
        name = self._levels.find_domain(node)
        domain = self._domains.get(name)
        return (name, node.resource_class) if (
            domain and domain.numbers[node.resource_class] > 0) else None

    def _add(self, name: group_policy.Domain, resource_class: str | None,
             number: int) -> None:
        domain = self._domains[name]
        domain.numbers[resource_class] += number
        self._room[name] = domain.count_capacity()

    def _correct(self, name: group_policy.Domain,
                 nodes: Iterable[matching.Node]) -> None:
        """Store that a domain has only these nodes."""
        with self._lock:
            # The nodes that this process holds are not among them.
            self._apply_holds()
            domain = self._domains[name]
            domain.numbers = collections.Counter(
                node.resource_class for node in nodes)
            self._room[name] = domain.count_capacity()

    def _list_ids(self, name: group_policy.Domain) -> list[int]:
        """Return the ids of a domain's nodes, the best fit first.

        Equals begin at a random place, so that processes do not compete for
        the same nodes. Nodes that are known as suspect come last.
        """
        ids: list[int] = []
        for _, equals in sorted(self._domains[name].ids.items()):
            start = random.randrange(len(equals))
            ids += [*equals[start:], *equals[:start]]
        if self._suspects and not self._matcher.spec.candidate_order:
            good = [node_id for node_id in ids
                    if node_id not in self._suspects]
            ids = good + ([node_id for node_id in ids
                           if node_id in self._suspects]
                          if self._with_suspects else [])
        return ids

    def choose_nodes(self, plan: group_plan.GroupPlan
                     ) -> dict[group_policy.Domain, list[matching.Node]]:
        """Read the free nodes of the domains of a plan, as they are now.

        :returns: the nodes to hold by domain, the best fit first. A domain
            that has fewer than planned is corrected.
        """
        members = plan.members
        ids = {name: self._list_ids(name) for name in members}
        nodes: dict[group_policy.Domain, dict[int, matching.Node]] = {
            name: {} for name in members}
        # Also nodes that a limit excludes.
        free = {name: dict(by_id) for name, by_id in nodes.items()}
        classes: collections.Counter[Any] = collections.Counter()
        suspects = 0
        # A domain with many suspect nodes may not have enough nodes without
        # them.
        while suspects < MAX_SUSPECTS and (batch := [
                node_id for name, number in members.items()
                if len(nodes[name]) < number
                for node_id in _pop_ids(ids[name], number + SPARE)]):
            for node in search.read_nodes(self._matcher, batch):
                if node.suspect:
                    self._suspects.add(node.id)
                    if not self._with_suspects:
                        suspects += 1
                        continue
                name = self._levels.find_domain(node)
                if name not in members or len(nodes[name]) == members[name]:
                    continue
                free[name][node.id] = node
                resource_class = node.resource_class
                if plan.allows(name, resource_class,
                               classes[name, resource_class]):
                    nodes[name][node.id] = node
                    classes[name, resource_class] += 1
        for name, number in members.items():
            if len(nodes[name]) < number:
                self._correct(name, free[name].values())
        return {name: [*by_id.values()] for name, by_id in nodes.items()}


def _shuffle(domains: Mapping[group_policy.Domain, Value]
             ) -> dict[group_policy.Domain, Value]:
    """Return domains in random order.

    Otherwise all processes would use the same of equally good domains, and
    compete for their nodes.
    """
    names = random.sample([*domains], len(domains))
    return {name: domains[name] for name in names}


def _pop_ids(ids: list[int], number: int) -> list[int]:
    first, ids[:number] = ids[:number], []
    return first
