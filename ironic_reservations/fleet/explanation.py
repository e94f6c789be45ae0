# SPDX-License-Identifier: Apache-2.0
"""Explains which nodes match a request, and why the others do not."""

import dataclasses
import re

from ironic_reservations import matching
from ironic_reservations import verdicts
from ironic_reservations.fleet import comparison
from ironic_reservations.fleet import profiles
from ironic_reservations.matching import group_plan
from ironic_reservations.matching import group_policy
from ironic_reservations.matching import nodes

#: The cause if the caller sees no node.
NO_NODES = 'no nodes'

#: The cause if the quota of the project is exceeded.
QUOTA = 'quota'

#: All causes that ``find_cause`` may return.
CAUSES = (
    'candidate_nodes', 'conductor_group', 'shard', 'resource_class',
    'hypervisor_type', 'resources', 'memory_mb', 'vcpus', 'local_gb', 'image',
    'trait', 'capabilities', 'dedicated', 'ownership', 'lessee', 'group',
    'members', QUOTA,
    *(reason for reason in nodes.REASONS if reason != nodes.CLAIMABLE),
    nodes.MALFORMED, NO_NODES)


def explain_request(matcher: matching.Matcher,
                    fleet: profiles.Fleet) -> verdicts.Verdict:
    """Return which nodes of a fleet match, and why the others do not."""
    return make_verdict(matcher, comparison.explain_fleet(matcher, fleet),
                        comparison.count_matches(
                            comparison.find_profiles(matcher, fleet)))


def make_verdict(matcher: matching.Matcher,
                 explanation: verdicts.Explanation,
                 matching_nodes: int = 0) -> verdicts.Verdict:
    """Return the verdict on a request for one node."""
    return verdicts.Verdict(
        matching_nodes, explanation,
        # A lock is the last reason: the node matches otherwise, and locks are
        # short.
        retry=nodes.LOCKED in explanation.eliminated,
        reach=matcher.reach,
        ignored=matcher.spec.ignored)


def explain_group(matcher: matching.Matcher, fleet: profiles.Fleet,
                  levels: group_policy.Levels, members: int
                  ) -> verdicts.Verdict:
    """Return whether a fleet has room for a new group, and why not.

    If there is too little room, the explanation also counts the nodes that
    match.

    :param members: number of members in the request.
    """
    verdict = explain_request(matcher, fleet)
    matches = comparison.find_profiles(matcher, fleet, *levels.keys)
    room = group_plan.count_room(
        comparison.find_free_nodes(matcher, matches, levels))
    available = group_plan.count_members(levels, room)
    eliminated = dict(verdict.explanation.eliminated)
    nearest = _find_nearest(matcher, fleet, levels, matches)
    if nearest and nearest.nodes <= available:
        nearest = None
    level = None
    if available < members:
        policy, by = _find_failing_level(levels, room, members)
        if verdict.matching_nodes:
            eliminated[group_policy.name_policy(policy, by) if by
                       else f'members={members}'] = verdict.matching_nodes
        level = by if levels.inner_by else None
        nearest = _find_best_domain(levels, room) or nearest
        if nodes.MALFORMED in eliminated:
            # It remains the last cause.
            eliminated[nodes.MALFORMED] = eliminated.pop(nodes.MALFORMED)
    return dataclasses.replace(
        verdict,
        explanation=dataclasses.replace(
            verdict.explanation, eliminated=eliminated, nearest=nearest),
        members=verdicts.Room(members, available),
        segment_size=levels.segment_size if levels.inner_by else None,
        level=level,
        domains=tuple(
            (levels.show_domain(domain), capacity.free)
            for domain, capacity in sorted(
                room.items(), key=lambda item: (-item[1].free, str(item[0])))
        ) if levels.keys else ())


def _find_failing_level(levels: group_policy.Levels,
                        room: group_plan.InnerRoom, members: int
                        ) -> tuple[str | None, str | None]:
    """Return the policy and the key of the level that has too little room.

    It is the inner one if there would be too few segments under any policy.
    """
    if levels.inner_by is None:
        return levels.policy, levels.by
    anywhere = group_plan.count_members(
        levels._replace(policy=group_policy.SOFT_SPREAD), room)
    if levels.by is None or anywhere < members:
        return 'segment', levels.inner_by
    return levels.policy, levels.by


def _find_best_domain(levels: group_policy.Levels,
                      room: group_plan.InnerRoom) -> verdicts.Nearest | None:
    """Return the domain that has room for most members or segments.

    :returns: None if the group needs more than one domain.
    """
    by, size = levels.by or levels.inner_by, levels.segment_size
    if by is None or not (levels.inner_by
                          or levels.policy == group_policy.PACK):
        return None
    outer_room = (
        group_plan.sum_segments(levels, room) if levels.by else
        {inner: capacity._replace(free=capacity.free // size)
         for (_, inner), capacity in room.items()})
    best = min(((-capacity.free, domain)
                for domain, capacity in outer_room.items()
                if domain is not None and capacity.free), default=None)
    return best and verdicts.Nearest(
        by, -best[0] * size, best[1], -best[0] if levels.inner_by else None)


def _find_nearest(matcher: matching.Matcher, fleet: profiles.Fleet,
                  levels: group_policy.Levels,
                  matches: list[comparison.Match]) -> verdicts.Nearest | None:
    """Return the constraint without which most members could be held.

    :param matches: matches with this constraint.
    :returns: None if no constraint is the only one that eliminates a node.
    """
    near_misses = comparison.find_near_misses(matcher, fleet, *levels.keys)
    members = {
        name: group_plan.count_members(
            levels, group_plan.count_room(comparison.find_free_nodes(
                matcher, matches + more, levels)))
        for name, more in near_misses.items() if more}
    best = max(members, key=members.__getitem__, default=None)
    return None if best is None else verdicts.Nearest(best, members[best])


def find_cause(explanation: verdicts.Explanation) -> str:
    """Return the cause of a refusal, which never contains a client's text.

    It is the reason why most of the nodes that satisfy all constraints cannot
    be held. If no node does, it is the constraint that eliminated the last
    nodes.

    :returns: one of ``CAUSES``: the key of a constraint, or one of
        ``nodes.REASONS``.
    """
    steps = explanation.eliminated
    if not steps:
        return NO_NODES
    last = [*steps][-1]
    if last in nodes.REASONS:
        last = max((name for name in steps if name in nodes.REASONS),
                   key=steps.__getitem__)
    match = re.match('[a-z_ ]+', last)
    return match[0] if match else NO_NODES
