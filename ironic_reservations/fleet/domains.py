# SPDX-License-Identifier: Apache-2.0
"""Knows the free nodes of each domain, to choose the members of a group.

The numbers are those of a count, corrected by what this process has learned
since. They may be outdated: they decide only where to look first.
"""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
import random
import threading
from typing import Any

from ironic_reservations import matching
from ironic_reservations import resources
from ironic_reservations.fleet import profiles
from ironic_reservations.fleet import search
from ironic_reservations.matching import group_plan
from ironic_reservations.matching import group_policy

#: Number of nodes to read for each domain in addition to those to hold,
#: because some of them may be taken by now.
SPARE = 16

#: Maximum number of requests whose domains are cached for a count.
MAX_CACHED = 32

def get_domains(matcher: matching.Matcher, fleet: profiles.Fleet,
                levels: group_policy.Levels) -> 'Domains':
    """Return the Domains of a request, cached for equal requests.

    :param matcher: without a policy.
    """
    cache, key = fleet.domains, (matcher, levels)
    domains = cache.get(key)
    if domains is None:
        if len(cache) >= MAX_CACHED:
            cache.clear()
        domains = cache[key] = Domains(matcher, fleet, levels)
    return domains


class Domains:
    """The free nodes that match a request, by domain.

    Threads may share it. It lasts as long as the count, which it changes in
    two ways: nodes that this process holds since are subtracted, and a domain
    in which a search has found fewer nodes has only those.
    """

    def __init__(self, matcher: matching.Matcher, fleet: profiles.Fleet,
                 levels: group_policy.Levels) -> None:
        self._matcher, self._levels = matcher, levels
        # Not the fleet, which refers to this object.
        self._holds = fleet.holds
        self._lock = threading.Lock()
        # Nodes of fleet.holds by id: the domain and the resource class of
        # which they were subtracted; None for nodes that do not match.
        self._subtractions: dict[int, tuple[
            group_policy.Domain, str | None] | None] = {}
        self._domains = group_plan.find_free_nodes(
            matcher.find_profiles(fleet, *levels.keys), levels, matcher.fit)
        # Ids of nodes that fit equally well, best fit first.
        self._ids: dict[group_policy.Domain, list[list[int]]] = {}
        self._room = dict(group_plan.count_room(self._domains))

    def count_room(self, remaining: group_plan.Remaining | None = None
                   ) -> group_plan.InnerRoom:
        """Return the capacity of each domain.

        :param remaining: None if there is no limit.
        """
        with self._lock:
            self._apply_holds()
            return (dict(self._room) if remaining is None
                    else group_plan.count_room(self._domains, remaining))

    def _apply_holds(self) -> None:
        """Subtract nodes that were held, and add those that were released."""
        holds = self._holds
        for node_id in self._subtractions.keys() - holds.keys():
            place = self._subtractions.pop(node_id)
            if place is not None:
                self._add(*place, 1)
        for node_id in holds.keys() - self._subtractions.keys():
            node = holds.get(node_id)
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
        self._room[name] = domain.count_capacity(None)

    def _correct(self, name: group_policy.Domain,
                 nodes: Iterable[matching.Node]) -> None:
        """Store that a domain has only these nodes."""
        with self._lock:
            # The nodes that this process holds are not among them.
            self._apply_holds()
            domain = self._domains[name]
            domain.numbers = collections.Counter(
                node.resource_class for node in nodes)
            self._room[name] = domain.count_capacity(None)

    def _list_ids(self, name: group_policy.Domain) -> list[int]:
        """Return the ids of a domain's nodes, the best fit first.

        Equals begin at a random place, so that processes do not compete for
        the same nodes.
        """
        if name not in self._ids:
            self._ids[name] = [
                profiles.parse_ids(texts) for _, texts in
                sorted(self._domains[name].ids.items())]
        ids: list[int] = []
        for equals in self._ids[name]:
            start = random.randrange(len(equals))
            ids += equals[start:] + equals[:start]
        return ids

    def choose_nodes(self, plan: Mapping[group_policy.Domain, int],
                     remaining: group_plan.Remaining
                     ) -> dict[group_policy.Domain,
                               list[matching.Node]] | None:
        """Read the free nodes of the domains of a plan, as they are now.

        :param plan: number of members by domain.
        :returns: the nodes to hold by domain, the best fit first. A domain
            that has fewer than planned is corrected. None if the limits do
            not allow all of them.
        """
        ids = {name: self._list_ids(name) for name in plan}
        nodes: dict[group_policy.Domain, dict[int, matching.Node]] = {
            name: {} for name in plan}
        counts: collections.Counter[Any] = collections.Counter()
        is_limited = False
        while batch := [
                node_id for name, members in plan.items()
                if len(nodes[name]) < members
                for node_id in _pop_ids(ids[name], members + SPARE)]:
            for node in search.read_nodes(self._matcher, batch):
                name = self._levels.find_domain(node)
                limits = resources.limit_names(node.resource_class)
                if name not in plan or len(nodes[name]) == plan[name]:
                    continue
                if counts[limits] < remaining(node.resource_class):
                    nodes[name][node.id] = node
                    counts[limits] += 1
                else:
                    is_limited = True
        if is_limited and any(len(nodes[name]) < members
                              for name, members in plan.items()):
            return None
        for name, members in plan.items():
            if len(nodes[name]) < members:
                self._correct(name, nodes[name].values())
        return {name: [*by_id.values()] for name, by_id in nodes.items()}


def _pop_ids(ids: list[int], number: int) -> list[int]:
    first, ids[:number] = ids[:number], []
    return first
