# SPDX-License-Identifier: Apache-2.0
"""Tracks the free nodes of each domain, to choose the members of a group.

The numbers are those of a count, corrected by what this process has learned
since. They may be outdated: they decide only where to look first. A group is
planned without suspect nodes first, and with them if the rest is not
sufficient.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import random
import threading

from ironic_reservations import matching
from ironic_reservations.db import engine
from ironic_reservations.db import row_locks
from ironic_reservations.fleet import comparison
from ironic_reservations.fleet import profiles
from ironic_reservations.fleet import search
from ironic_reservations.matching import group_plan
from ironic_reservations.matching import group_policy

#: Number of nodes to read for each domain in addition to those to hold,
#: because some of them may be taken by now.
SPARE = 16

#: Number of times that nodes are read again after a concurrent request has
#: taken one of them, before the group is looked up again.
MAX_LOST = 16

#: Number of suspect nodes that a search reads for a group before it uses them.
MAX_SUSPECTS = 1024

#: Maximum number of requests whose domains are cached for a count.
MAX_CACHED = 32


def find_members(matcher: matching.Matcher, fleet: profiles.Fleet,
                 levels: group_policy.Levels, members: int
                 ) -> Iterator[list[matching.Node]]:
    """Yield nodes for all members, at first without suspect ones.

    Before others, it tries with nodes of the project's pools alone. The order
    of candidates precedes suspicion, and a soft policy.

    :param matcher: without a policy.
    :returns: nodes in the order of segments.
    """
    is_ordered = bool(matcher.spec.candidate_order)
    if (is_ordered and levels.inner_by is None
            and levels.policy not in group_policy.HARD):
        levels = group_policy.Levels()
    ownerships = [matcher.ownership]
    if (not is_ordered and matcher.use == matching.TO_HOLD
            and fleet.has_pool(matcher.ownership.project_id)):
        ownerships.insert(0, dataclasses.replace(
            matcher.ownership, kind='pool'))
    for with_suspects in [True] if is_ordered else [False, True]:
        for ownership in ownerships:
            yield from get_domains(
                dataclasses.replace(matcher, ownership=ownership), fleet,
                levels, with_suspects).find_members(members)
        if not fleet.suspects:
            break


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
        # Nodes of fleet.holds by id, with the domain from which they were
        # subtracted; None for nodes that do not match.
        self._subtractions: dict[int, group_policy.Domain | None] = {}
        self._domains = comparison.find_free_nodes(
            matcher, comparison.find_profiles(matcher, fleet, *levels.keys),
            levels)
        self._room = dict(group_plan.count_room(self._domains))

    def count_room(self) -> group_plan.InnerRoom:
        """Return the capacity of each domain."""
        with self._lock:
            self._apply_holds()
            return dict(self._room)

    def find_members(self, members: int) -> Iterator[list[matching.Node]]:
        """Yield nodes for all members, those in the best domains first.

        A domain whose nodes were lost to concurrent requests is read again,
        because it may have more free nodes. A domain with too few nodes is
        corrected, so that the next plan uses other domains.
        """
        for _ in range(MAX_LOST):
            while (plan := group_plan.plan_segments(
                    self._levels, _shuffle(self.count_room()), members)):
                nodes = self.choose_nodes(plan)
                if all(len(nodes[name]) == number
                       for name, number in plan.items()):
                    break
                engine.check_deadline()
            else:
                return
            yield [node for batch in nodes.values() for node in batch]

    def _apply_holds(self) -> None:
        """Subtract nodes that were held, and add nodes that were released."""
        for node_id in self._subtractions.keys() - self._holds.keys():
            name = self._subtractions.pop(node_id)
            if name is not None:
                self._set_number(name, self._domains[name].number + 1)
        for node_id in self._holds.keys() - self._subtractions.keys():
            node = self._holds.get(node_id)
            name = None if node is None else self._find_domain(node)
            self._subtractions[node_id] = name
            if name is not None:
                self._set_number(name, self._domains[name].number - 1)

    def _find_domain(self, node: matching.Node) -> group_policy.Domain | None:
        """Return the domain of a node that counts as free."""
        if not (self._matcher.is_visible(node)
                and self._matcher.matches(node)):
            return None
        name = self._levels.find_domain(node)
        domain = self._domains.get(name)
        return name if domain and domain.number > 0 else None

    def _set_number(self, name: group_policy.Domain, number: int) -> None:
        domain = self._domains[name]
        domain.number = number
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

    def choose_nodes(self, plan: Mapping[group_policy.Domain, int]
                     ) -> dict[group_policy.Domain, list[matching.Node]]:
        """Read the free nodes of the domains of a plan, as they are now.

        :param plan: number of members by domain.
        :returns: the nodes to hold by domain, the best fit first. A domain
            that has fewer than planned is corrected.
        """
        ids = {name: self._list_ids(name) for name in plan}
        nodes: dict[group_policy.Domain, dict[int, matching.Node]] = {
            name: {} for name in plan}
        suspects = 0
        # A domain with many suspect nodes may not have enough nodes without
        # them.
        while suspects < MAX_SUSPECTS and (batch := [
                node_id for name, number in plan.items()
                if len(nodes[name]) < number
                for node_id in _pop_ids(ids[name], number + SPARE)]):
            for node in search.read_nodes(self._matcher, batch):
                if node.suspect or row_locks.is_avoided(node.id):
                    self._suspects.add(node.id)
                    if not self._with_suspects:
                        suspects += 1
                        continue
                name = self._levels.find_domain(node)
                if name in plan and len(nodes[name]) < plan[name]:
                    nodes[name][node.id] = node
        with self._lock:
            # The nodes that this process holds are not among them.
            self._apply_holds()
            for name, number in plan.items():
                if len(nodes[name]) < number:
                    self._set_number(name, len(nodes[name]))
        return {name: [*by_id.values()] for name, by_id in nodes.items()}


def _shuffle(domains: group_plan.InnerRoom) -> group_plan.InnerRoom:
    """Return domains in random order.

    Otherwise all processes would use the same of equally good domains, and
    compete for their nodes.
    """
    names = random.sample([*domains], len(domains))
    return {name: domains[name] for name in names}


def _pop_ids(ids: list[int], number: int) -> list[int]:
    first, ids[:number] = ids[:number], []
    return first
