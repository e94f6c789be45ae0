# SPDX-License-Identifier: Apache-2.0
"""Compares nodes with a request: do they match, how well, and why not."""

import collections
from collections.abc import Callable
from collections.abc import Iterable
import dataclasses
import functools
import itertools
import operator
import typing
from typing import Any

from ironic_reservations.matching import constraints
from ironic_reservations.matching import group_policy
from ironic_reservations.matching import nodes
from ironic_reservations.matching import request_spec

if typing.TYPE_CHECKING:
    from ironic_reservations.fleet import profiles as fleets
    from ironic_reservations.reservations import quotas

#: A profile group, and those of its profiles that match.
Match = tuple['fleets.ProfileGroup', list['fleets.Profile']]

#: A capability, and a function that returns whether a value is allowed.
_Check = tuple[str, Callable[[Any], bool]]


@dataclasses.dataclass(frozen=True)
class Matcher:
    """The requirements of a request, and the restrictions of its caller.

    :param restricted_to: the caller's project, if the caller may use only the
        nodes that it owns or leases; None for a caller who may use all nodes.
    :param unowned: whether a project-scoped caller may also use nodes that
        nobody owns or leases.
    :param ownership: requirement of the request, for a caller who wants only
        some of the nodes that it may use.
    :param used_up: limits that the caller's project has reached.
    :param policy: policy of the group that the node is for, if it has one.
    :param dedicated: traits, or prefixes that end with ``*``. A node with
        such traits matches only if the request requires each of them.
    """

    spec: request_spec.RequestSpec
    restricted_to: str | None = None
    unowned: bool = False
    ownership: constraints.Ownership | None = None
    used_up: frozenset['quotas.UsedUp'] = frozenset()
    policy: group_policy.Policy | None = None
    dedicated: tuple[str, ...] = ()

    @functools.cached_property
    def constraints(self) -> list[constraints.Constraint]:
        """Return all constraints on the node."""
        result = constraints.list_constraints(self.spec)
        if self.dedicated:
            result.append(constraints.Dedicated.from_patterns(
                self.dedicated, self.spec.required_traits))
        if self.ownership is not None:
            result.append(self.ownership.constraint)
        if self.policy is not None:
            result += self.policy.constraints
        return result + [limit.constraint for limit in sorted(self.used_up)]

    @functools.cached_property
    def _group_checks(self) -> list[Callable[[nodes.Node], bool]]:
        """Return the functions that are equal for a whole profile group."""
        return [constraint.allows for constraint in self.constraints
                if constraint.capability is None]

    @functools.cached_property
    def _capabilities(self) -> set[str]:
        """Return the names of the capabilities in the request."""
        names = {name for name, _ in self.spec.capabilities}
        return names | {'boot_mode'} if self.spec.boot_mode else names

    def is_visible(self, node: nodes.Node) -> bool:
        """Return whether the caller may see and use a node."""
        return nodes.is_visible(node.owner, node.lessee, self.restricted_to,
                                self.unowned)

    @property
    def holds_unowned(self) -> bool:
        """Return whether a project-scoped caller accepts unowned nodes.

        With the ownership ``project`` it sees them, but does not accept them.
        """
        return self.unowned and self.ownership is None

    def matches(self, node: nodes.Node) -> bool:
        """Return whether a node satisfies all constraints."""
        for constraint in self.constraints:
            if not constraint.is_satisfied_by(node):
                return False
        return True

    def find_profiles(self, fleet: 'fleets.Fleet', *by: str) -> list[Match]:
        """Return the profiles of a fleet that match and that the caller sees.

        If all profiles of a profile group match, and their domains make no
        difference, they are replaced by one that stands for the whole group.

        :param by: keys of the domains of a group of reservations, if they
            matter; see ``group_policy.find_domain``.
        """
        matches: list[Match] = []
        checks = self._list_checks()
        for group in fleet.groups:
            if self.is_visible(group.node) and all(
                    allows(group.node) for allows in self._group_checks):
                matches += [
                    (group, _separate_domains(group, profiles, by))
                    for results, profiles in _split_group(group, checks)
                    if all(results)]
        return matches

    def find_near_misses(self, fleet: 'fleets.Fleet',
                         *by: str) -> dict[str, list[Match]]:
        """Return the profiles that only one constraint eliminates.

        :param by: see ``find_profiles``.
        :returns: matches by the name of that constraint, in the order of the
            constraints.
        """
        checks = self._list_checks()
        names = [constraint.name for constraint in self.constraints
                 if constraint.capability is not None]
        near_misses: dict[str, list[Match]] = {
            constraint.name: [] for constraint in self.constraints}
        for group in fleet.groups:
            if not self.is_visible(group.node):
                continue
            group_unmet = {name for constraint in self.constraints
                           if constraint.capability is None
                           for name in constraint.list_unmet(group.node)}
            if len(group_unmet) > 1:
                continue
            for results, profiles in _split_group(group, checks):
                unmet = group_unmet.union(itertools.compress(
                    names, map(operator.not_, results)))
                if len(unmet) == 1:
                    near_misses.setdefault(unmet.pop(), []).append(
                        (group, _separate_domains(group, profiles, by)))
        return near_misses

    def _list_checks(self) -> list[_Check]:
        """Return the constraints on capabilities, with a cache for each."""
        return [(constraint.capability, functools.cache(constraint.allows))
                for constraint in self.constraints
                if constraint.capability is not None]

    def fit(self, node: nodes.Node) -> tuple[Any, ...]:
        """Return how badly a node fits. The lowest value is best.

        :returns: the sum of (size - requested size) / requested size over the
            requested sizes, the number of traits and capabilities that are
            not requested, and the node's memory, CPUs and disk. For a group
            of reservations, the ranks of its policy come first and last.
        """
        alone = self.fit_alone(node)
        return alone if self.policy is None else self.fit_in(
            self.policy.levels.find_domain(node), alone)

    def fit_alone(self, node: nodes.Node) -> tuple[Any, ...]:
        """Return the ``fit`` without the ranks of a policy.

        It is equal for all nodes of a profile group.
        """
        oversize = sum((node.sizes[name] - size) / size
                       for name, size in self.spec.sizes if size)
        extras = (len(node.traits - self.spec.required_traits)
                  + len(node.capabilities.keys() - self._capabilities))
        return (oversize, extras, *node.sizes.values())

    def fit_in(self, domain: group_policy.Domain,
               alone: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the ``fit`` of a node in a domain.

        :param alone: its ``fit_alone``.
        """
        if self.policy is None:
            return alone
        return (*self.policy.rank(domain), *alone,
                *self.policy.rank_among_equals(domain))

    def explain_fleet(self, fleet: 'fleets.Fleet') -> dict[str, Any]:
        """Explain why nodes of a fleet do not match; see ``explain``."""
        checks = self._list_checks()
        return self.explain(
            (node, reason, number)
            for group in fleet.groups if self.is_visible(group.node)
            for _, profiles in _split_group(group, checks)
            # The constraints are equal for all of these profiles.
            for node in [group.node if profiles[0] is group.whole
                         else profiles[0].node]
            for profile in profiles
            for reason, number in profile.counts.items())

    def explain(self, groups: Iterable[tuple[nodes.Node, str | None, int]]
                ) -> dict[str, Any]:
        """Explain why nodes do not match, as data for people and programs.

        :param groups: a Node, why nodes like it cannot be held (one of
            ``REASONS``; None if they can), and their number. Groups that the
            caller may not see are ignored.
        :returns: ``considered``, a number of nodes; ``eliminated``, which
            counts each node once, for the first constraint that it does not
            satisfy, otherwise for the reason why it cannot be held; and
            ``nearest``, the constraint without which most nodes could be
            held, and their total number. It is absent if no constraint makes
            a difference.
        """
        names = list(dict.fromkeys(
            constraint.name for constraint in self.constraints))
        counts: collections.Counter[str] = collections.Counter()
        nearest: collections.Counter[str] = collections.Counter()
        considered = matching = 0
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
            if reason == nodes.CLAIMABLE:
                # Only a claim distinguishes these two.
                reason = nodes.RESERVED
            if unmet:
                counts[unmet[0]] += count
            elif reason:
                counts[reason] += count
            else:
                matching += count
            if len(unmet) == 1 and not reason:
                nearest[unmet[0]] += count
        # The dedicated traits of the nodes.
        names += sorted(counts.keys() - {*names, *nodes.REASONS})
        order = [*names, *nodes.REASONS]
        explanation: dict[str, Any] = {
            'considered': considered,
            'eliminated': [{'by': name, 'nodes': counts[name]}
                           for name in order if counts[name]]}
        best = max(names, key=lambda name: nearest[name], default='')
        if nearest[best]:
            explanation['nearest'] = {'by': best,
                                      'nodes': matching + nearest[best]}
        return explanation


def _separate_domains(group: 'fleets.ProfileGroup',
                      profiles: list['fleets.Profile'],
                      by: Iterable[str]) -> list['fleets.Profile']:
    """Return profiles whose nodes have one domain each."""
    if profiles == [group.whole] and any(
            map(group_policy.find_capability, by)):
        return group.profiles
    return profiles


def _split_group(
        group: 'fleets.ProfileGroup', checks: list[_Check]
) -> Iterable[tuple[tuple[bool, ...], list['fleets.Profile']]]:
    """Divide the profiles of a profile group by the results of checks.

    :returns: pairs of results and profiles. If the results are equal for all
        profiles, the only profile stands for the whole group.
    """
    parts = collections.defaultdict(list)
    differ = any(len(group.values(name)) > 1 for name, _ in checks)
    for profile in group.profiles if differ else [group.whole]:
        parts[tuple(allows(profile.capabilities.get(name))
                    for name, allows in checks)].append(profile)
    if len(parts) == 1:
        return [(results, [group.whole]) for results in parts]
    return parts.items()
