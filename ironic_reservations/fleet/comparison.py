# SPDX-License-Identifier: Apache-2.0
"""Compares a counted fleet with a request.

A request is compared with the profile groups first, and with their profiles
only in the capabilities that it requires.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
import functools
import itertools
import operator
from typing import Any

from ironic_reservations import matching
from ironic_reservations import verdicts
from ironic_reservations.fleet import profiles
from ironic_reservations.matching import group_plan
from ironic_reservations.matching import group_policy

#: A profile group, and its profiles that match.
Match = tuple[profiles.ProfileGroup, list[profiles.Profile]]

# A capability, and a function that returns whether a value is allowed.
_Check = tuple[str, Callable[[Any], bool]]


def find_profiles(matcher: matching.Matcher, fleet: profiles.Fleet,
                  *by: str) -> list[Match]:
    """Return the profiles of a fleet that match and that the caller sees.

    If all profiles of a profile group match, and their domains make no
    difference, they are replaced by one that stands for the whole group.

    :param by: keys of the domains of a group of reservations, if they matter;
        see ``group_policy.find_domain``.
    """
    matches: list[Match] = []
    checks = _list_checks(matcher)
    group_checks = [constraint.allows for constraint in matcher.constraints
                    if constraint.capability is None]
    for group in fleet.groups:
        if matcher.is_visible(group.node) and all(
                allows(group.node) for allows in group_checks):
            matches += [
                (group, _separate_domains(group, batch, by))
                for results, batch in _split_group(group, checks)
                if all(results)]
    return matches


def find_near_misses(matcher: matching.Matcher, fleet: profiles.Fleet,
                     *by: str) -> dict[str, list[Match]]:
    """Return the profiles that only one constraint eliminates.

    :param by: see ``find_profiles``.
    :returns: matches by the name of that constraint, in the order of the
        constraints.
    """
    checks = _list_checks(matcher)
    group_constraints = [constraint for constraint in matcher.constraints
                         if constraint.capability is None]
    names = [constraint.name for constraint in matcher.constraints
             if constraint.capability is not None]
    near_misses: dict[str, list[Match]] = {
        constraint.name: [] for constraint in matcher.constraints}
    for group in fleet.groups:
        if not matcher.is_visible(group.node):
            continue
        group_unmet = {name for constraint in group_constraints
                       for name in constraint.list_unmet(group.node)}
        if len(group_unmet) > 1:
            continue
        for results, batch in _split_group(group, checks):
            unmet = group_unmet.union(itertools.compress(
                names, map(operator.not_, results)))
            if len(unmet) == 1:
                near_misses.setdefault(unmet.pop(), []).append(
                    (group, _separate_domains(group, batch, by)))
    return near_misses


def explain_fleet(matcher: matching.Matcher, fleet: profiles.Fleet
                  ) -> verdicts.Explanation:
    """Explain why nodes of a fleet do not match; see ``Matcher.explain``."""
    checks = _list_checks(matcher)
    return matcher.explain(
        (node, reason, number)
        for group in fleet.groups if matcher.is_visible(group.node)
        for _, batch in _split_group(group, checks)
        # The constraints are equal for all of these profiles.
        for node in [batch[0].node]
        for profile in batch
        for reason, number in profile.counts.items())


def count_matches(matches: Iterable[Match]) -> int:
    """Return how many nodes of matching profiles can be held now."""
    return sum(profile.available for _, batch in matches for profile in batch)


def find_free_nodes(matcher: matching.Matcher, matches: Iterable[Match],
                    levels: group_policy.Levels
                    ) -> dict[group_policy.Domain, group_plan.FreeNodes]:
    """Return the nodes of each domain that can be held.

    :param matcher: without a policy.
    :param matches: result of ``find_profiles`` for the keys of these levels.
    """
    domains: dict[group_policy.Domain, group_plan.FreeNodes] = (
        collections.defaultdict(group_plan.FreeNodes))
    for group, batch in matches:
        fit = matcher.fit(group.node)
        for profile in batch:
            if profile.available:
                domain = domains[profile.find_domain(levels)]
                domain.number += profile.available
                domain.ids[fit] += profile.ids
    return dict(domains)


def _list_checks(matcher: matching.Matcher) -> list[_Check]:
    """Return the constraints on capabilities, with a cache for each."""
    return [(constraint.capability, functools.cache(constraint.allows))
            for constraint in matcher.constraints
            if constraint.capability is not None]


def _separate_domains(group: profiles.ProfileGroup,
                      batch: list[profiles.Profile],
                      by: Iterable[str]) -> list[profiles.Profile]:
    """Return profiles whose nodes have one domain each."""
    if batch == [group.whole] and any(map(group_policy.find_capability, by)):
        return group.profiles
    return batch


def _split_group(
        group: profiles.ProfileGroup, checks: list[_Check]
) -> Iterable[tuple[tuple[bool, ...], list[profiles.Profile]]]:
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
