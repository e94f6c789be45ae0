# SPDX-License-Identifier: Apache-2.0
"""Compares nodes with a request: do they match, how well, and why not."""

import collections
from collections.abc import Iterable
import dataclasses
import functools
from typing import Any

from ironic_reservations import values
from ironic_reservations import verdicts
from ironic_reservations.matching import constraints
from ironic_reservations.matching import group_policy
from ironic_reservations.matching import nodes
from ironic_reservations.matching import request_spec


@dataclasses.dataclass(frozen=True)
class Matcher:
    """The requirements of a request, and the restrictions of its caller.

    :param reach: the nodes that the caller sees.
    :param ownership: the nodes that the request may hold; within ``reach``.
    :param used_up: names of limits of the caller's project without room for
        the request; see ``resources.limit_names``.
    :param policy: policy of the group that the node is for, if it has one.
    :param dedicated: traits, or prefixes that end with ``*``. A node with
        such traits matches only if the request requires each of them.
    :param use: what the nodes are for.
    :param avoid: UUIDs of nodes, in lower case, to hold after all others.
    """

    spec: request_spec.RequestSpec
    reach: values.Ownership = values.ALL
    ownership: values.Ownership = values.ALL
    used_up: frozenset[str] = frozenset()
    policy: group_policy.Policy | None = None
    dedicated: tuple[str, ...] = ()
    use: nodes.Use = nodes.TO_HOLD
    avoid: frozenset[str] = frozenset()

    @functools.cached_property
    def constraints(self) -> list[constraints.Constraint]:
        """Return all constraints on the node."""
        result = constraints.list_constraints(self.spec)
        if self.dedicated:
            result.append(constraints.Dedicated.from_patterns(
                self.dedicated, self.spec.required_traits))
        if self.ownership.is_limited:
            result.append(constraints.make_ownership(self.ownership))
        if self.use.pool_project is not None:
            result.append(constraints.make_lessee(self.use.pool_project))
        elif self.use == nodes.TO_HOLD:
            result.append(constraints.make_pool(self.ownership.project_id))
        if self.policy is not None:
            result += self.policy.constraints
        return result + list(map(constraints.make_quota, sorted(self.used_up)))

    @functools.cached_property
    def _capabilities(self) -> set[str]:
        """Return the names of the capabilities in the request."""
        names = {name for name, _ in self.spec.capabilities}
        return names | {'boot_mode'} if self.spec.boot_mode else names

    def is_visible(self, node: nodes.Node) -> bool:
        """Return whether the caller sees a node."""
        return self.reach.covers(*node.projects)

    def matches(self, node: nodes.Node) -> bool:
        """Return whether a node satisfies all constraints."""
        for constraint in self.constraints:
            if not constraint.is_satisfied_by(node):
                return False
        return True

    def rank(self, node: nodes.Node) -> tuple[Any, ...]:
        """Return the rank of a node that matches. The lowest value is best.

        The order of the candidates precedes suspicion, and that the fit.
        """
        suspicion = (2 if self.avoid and str(node.uuid).lower() in self.avoid
                     else node.suspect)
        return (*self._find_place(node), suspicion, self.fit(node))

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        """Return the places of ordered candidates by name and UUID."""
        places: dict[str, int] = {}
        for place, name in enumerate(self.spec.candidate_order):
            # UUIDs are compared in lower case, names as they are.
            for spelling in name, name.lower():
                places.setdefault(spelling, place)
        return places

    def _find_place(self, node: nodes.Node) -> tuple[int, ...]:
        """Return the place of a node among ordered candidates, if any."""
        if not self._places:
            return ()
        return (min(self._places.get(name, len(self._places)) for name in (
            node.name or '', str(node.uuid).lower())),)

    def fit(self, node: nodes.Node) -> tuple[Any, ...]:
        """Return how badly a node fits. The lowest value is best.

        :returns: whether the node is in no pool of the project, the sum of
            (size - requested size) / requested size over the requested sizes,
            the number of traits and capabilities that are not requested, and
            the node's memory, CPUs and disk. For a group of reservations, the
            ranks of its policy come second and last.
        """
        alone = self.fit_alone(node)
        return alone if self.policy is None else self.fit_in(
            self.policy.levels.find_domain(node), alone)

    def fit_alone(self, node: nodes.Node) -> tuple[Any, ...]:
        """Return the ``fit`` without the ranks of a policy.

        It is equal for all nodes of a profile group, as each candidate has its
        own. The places of ordered candidates come first.
        """
        oversize = sum((node.sizes[name] - size) / size
                       for name, size in self.spec.sizes if size)
        extras = (len(node.traits - self.spec.required_traits)
                  + len(node.capabilities.keys() - self._capabilities))
        is_foreign = (node.pool_project_id is None
                      or node.pool_project_id != self.ownership.project_id)
        return (*self._find_place(node), is_foreign, oversize, extras,
                *node.sizes.values())

    def fit_in(self, domain: group_policy.Domain,
               alone: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the ``fit`` of a node in a domain.

        :param alone: its ``fit_alone``.
        """
        if self.policy is None:
            return alone
        # The place, and whether the node is in no pool of the project.
        first = 1 + bool(self._places)
        return (*alone[:first], *self.policy.rank(domain), *alone[first:],
                *self.policy.rank_among_equals(domain))

    def explain(self, groups: Iterable[tuple[nodes.Node, str | None, int]]
                ) -> verdicts.Explanation:
        """Explain why nodes do not match.

        :param groups: a Node, why nodes like it cannot be held (one of
            ``REASONS`` or ``MALFORMED``; None if they can), and their number.
            Groups that the caller may not see are ignored.
        """
        names = list(dict.fromkeys(
            constraint.name for constraint in self.constraints))
        counts: collections.Counter[str] = collections.Counter()
        nearest: collections.Counter[str] = collections.Counter()
        considered = matching = 0
        ownership = [constraints.make_ownership(self.ownership).name]
        project = self.ownership.project_id
        secrets = {*ownership, constraints.make_pool(project).name}
        names_seen: set[str | None] = set()
        uuids_seen: set[str] = set()
        last, unmet = None, list[str]()
        for node, reason, count in groups:
            if not self.is_visible(node):
                continue
            considered += count
            # The groups of a profile, one for each reason, are consecutive.
            if node is not last:
                last, unmet = node, list(dict.fromkeys(
                    name for constraint in self.constraints
                    for name in constraint.list_unmet(node)))
                # The project of the request may not learn of other nodes.
                if self.spec.candidate_nodes and (
                        project is None or project in node.projects
                        or secrets.isdisjoint(unmet)):
                    names_seen.add(node.name)
                    uuids_seen.add(str(node.uuid).lower())
            if reason == nodes.CLAIMABLE:
                # Only a claim distinguishes these two.
                reason = nodes.RESERVED
            # The lessee of a node may be the project of its instance.
            if unmet and not (unmet == ownership
                              and reason in nodes.WITH_INSTANCE):
                counts[unmet[0]] += count
            elif reason:
                counts[reason] += count
            else:
                matching += count
            if len(unmet) == 1 and not reason:
                nearest[unmet[0]] += count
        # The dedicated traits of the nodes.
        reasons = *nodes.REASONS, nodes.MALFORMED
        names += sorted(counts.keys() - {*names, *reasons})
        order = [*names, *reasons]
        best = max(names, key=lambda name: nearest[name], default='')
        return verdicts.Explanation(
            considered,
            {name: counts[name] for name in order if counts[name]},
            verdicts.Nearest(best, matching + nearest[best])
            if nearest[best] else None,
            # A claim reads only the nodes that it could claim.
            () if self.use == nodes.TO_CLAIM else tuple(sorted(
                name for candidates in self.spec.candidate_nodes
                if names_seen.isdisjoint(candidates)
                and uuids_seen.isdisjoint(map(str.lower, candidates))
                for name in candidates)))
