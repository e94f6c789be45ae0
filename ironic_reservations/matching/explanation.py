# SPDX-License-Identifier: Apache-2.0
"""Explains, for dry runs and refusals, which nodes match and why not more."""

from collections.abc import Sequence
import re
import typing
from typing import Any

from ironic_reservations import exception
from ironic_reservations.matching import group_plan
from ironic_reservations.matching import group_policy
from ironic_reservations.matching import nodes

if typing.TYPE_CHECKING:
    from ironic_reservations.fleet import profiles
    from ironic_reservations.matching import matcher as matchers

#: Added to the message for a caller who sees no node. Usually it is a compute
#: service whose user has a role in a project instead of the system.
SEES_NONE = (' A project sees the nodes that it owns or leases; compute '
             'services need a user with system scope, or with the service '
             'role in the service project if '
             'rbac_service_role_elevated_access is set.')

#: Why a node cannot be held whose properties Python and the database read
#: differently.
MALFORMED = 'malformed properties'

#: The cause if the caller sees no node.
NO_NODES = 'no nodes'

#: The cause if the quota of the project is exceeded.
QUOTA = 'quota'

#: All causes that ``find_cause`` may return.
CAUSES = (
    'candidate_nodes', 'conductor_group', 'shard', 'resource_class',
    'hypervisor_type', 'resources', 'memory_mb', 'vcpus', 'local_gb', 'image',
    'trait', 'capabilities', 'dedicated', 'ownership', 'group', 'members',
    QUOTA,
    *(reason for reason in nodes.REASONS if reason != nodes.CLAIMABLE),
    MALFORMED, NO_NODES)


def explain_request(matcher: 'matchers.Matcher',
                    fleet: 'profiles.Fleet') -> dict[str, Any]:
    """Return which nodes of a fleet match, and why the others do not.

    :returns: ``matching_nodes``, the number of nodes that can be held at the
        moment, and ``explanation``: see ``Matcher.explain``.
    """
    return {
        'matching_nodes': sum(
            profile.available
            for _, matches in matcher.find_profiles(fleet)
            for profile in matches),
        'explanation': matcher.explain_fleet(fleet),
    }


def explain_group(matcher: 'matchers.Matcher', fleet: 'profiles.Fleet',
                  levels: group_policy.Levels, members: int
                  ) -> dict[str, Any]:
    """Return whether a fleet has room for a new group, and why not.

    :param members: number of members in the request.
    :returns: the result of ``explain_request``, with ``members`` (``wanted``
        and ``available`` numbers) and ``domains``, which lists each domain
        with room as ``value`` and ``nodes``, most nodes first; for a group
        with segments also ``segments``, like ``members``. ``nearest`` in the
        explanation counts members. Without enough room, ``eliminated`` also
        counts the nodes that match, ``level`` is the key of the domains that
        have too little room for segments, and for a pack or segments
        ``nearest`` is the best domain.
    """
    answer = explain_request(matcher, fleet)
    matches = matcher.find_profiles(fleet, *levels.keys)
    room = group_plan.count_room(
        group_plan.find_free_nodes(matches, levels, matcher.fit))
    available = group_plan.count_members(levels, room)
    domains = [{'value': levels.show_domain(domain), 'nodes': capacity.free}
               for domain, capacity in sorted(
                   room.items(),
                   key=lambda item: (-item[1].free, str(item[0])))]
    answer |= {'members': {'wanted': members, 'available': available},
               'domains': domains if levels.keys else []}
    if levels.inner_by:
        answer['segments'] = {
            name: number // levels.segment_size
            for name, number in answer['members'].items()}
    explanation = answer['explanation']
    explanation.pop('nearest', None)
    name, most = _find_nearest(matcher, fleet, levels, matches)
    if most > available:
        explanation['nearest'] = {'by': name, 'nodes': most}
    if available < members:
        policy, level = _find_failing_level(levels, room, members)
        if levels.inner_by:
            answer['level'] = level
        if answer['matching_nodes']:
            explanation['eliminated'].append({
                'by': group_policy.name_policy(policy, level)
                if level else f'members={members}',
                'nodes': answer['matching_nodes']})
        best = _find_best_domain(levels, room)
        if best:
            explanation['nearest'] = best
    return answer


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
                      room: group_plan.InnerRoom) -> dict[str, Any] | None:
    """Return the domain that has room for most members or segments.

    :returns: its key and value, and the number of members that fit; None if
        the group needs more than one domain.
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
    return best and {
        'by': by, 'value': best[1], 'nodes': -best[0] * size,
        **({'segments': -best[0]} if levels.inner_by else {})}


def _find_nearest(matcher: 'matchers.Matcher', fleet: 'profiles.Fleet',
                  levels: group_policy.Levels,
                  matches: 'list[matchers.Match]') -> tuple[str | None, int]:
    """Return the constraint without which most members could be held.

    :param matches: matches with this constraint.
    :returns: its name, and the number of members without it; None and 0 if no
        constraint is the only one that eliminates a node.
    """
    near_misses = matcher.find_near_misses(fleet, *levels.keys)
    members = {
        name: group_plan.count_members(
            levels, group_plan.count_room(group_plan.find_free_nodes(
                matches + more, levels, matcher.fit)))
        for name, more in near_misses.items() if more}
    best = max(members, key=members.__getitem__, default=None)
    return (None, 0) if best is None else (best, members[best])


def make_refusal(answer: dict[str, Any], matcher: 'matchers.Matcher'
                 ) -> exception.NoMatchingNode:
    """Return the exception that explains why there is no node.

    :param answer: result of ``explain_request`` or ``explain_group``, for a
        fleet that was counted during the request. Nodes that it counts as
        matching, but that no search returns, have malformed properties, such
        as a number instead of a text.
    """
    explanation = answer['explanation']
    eliminated = explanation['eliminated']
    members: Any = answer.get('members')
    too_few = members and members['available'] < members['wanted']
    if answer['matching_nodes'] and not too_few:
        eliminated = [*eliminated, {'by': MALFORMED,
                                    'nodes': answer['matching_nodes']}]
    steps = ', '.join(f'{step["by"]} eliminates {step["nodes"]}'
                      for step in eliminated[:5])
    return exception.NoMatchingNode(
        (f'{members["available"]} of {members["wanted"]} members can be held '
         f'at once' if too_few else 'No free node matches the request')
        + f': of {explanation["considered"]} nodes, '
        + (steps or 'none can be seen')
        + (', and more.' if len(eliminated) > 5 else '.')
        + ('' if explanation['considered'] or matcher.restricted_to is None
           else SEES_NONE),
        {**explanation, 'eliminated': eliminated},
        # A lock is the last reason: the node matches otherwise, and locks are
        # short.
        retry=any(step['by'] == nodes.LOCKED for step in eliminated),
        members=members, ignored=matcher.spec.ignored,
        segments=answer.get('segments'), level=answer.get('level'))


def find_cause(explanation: dict[str, Any]) -> str:
    """Return the cause of a refusal, which never contains a client's text.

    It is the reason why most of the nodes that satisfy all constraints cannot
    be held. If no node does, it is the constraint that eliminated the last
    nodes.

    :param explanation: explanation of the refusal.
    :returns: one of ``CAUSES``: the key of a constraint, or one of
        ``nodes.REASONS``.
    """
    steps: Sequence[dict[str, Any]] = explanation['eliminated']
    if not steps:
        return NO_NODES
    last = steps[-1]
    if last['by'] in nodes.REASONS:
        last = max((step for step in steps if step['by'] in nodes.REASONS),
                   key=lambda step: step['nodes'])
    match = re.match('[a-z_ ]+', last['by'])
    return match[0] if match else NO_NODES
