# SPDX-License-Identifier: Apache-2.0
"""What a request would find, and why not more: for dry runs and refusals."""

import re

from ironic_reservations import exception
from ironic_reservations.matching import group_policy
from ironic_reservations.matching import node as nodes

#: What somebody is told who sees no node at all. It is as a rule a compute
#: service whose user was given a project instead of the system.
SEES_NONE = (' A project sees the nodes that it owns or leases; compute '
             'services need a user with system scope, or with the service '
             'role in the service project if '
             'rbac_service_role_elevated_access is set.')

#: Why a node cannot be held that Python reads otherwise than the database.
MALFORMED = 'malformed properties'

#: The ``cause`` where there is no node to be seen.
NO_NODES = 'no nodes'

#: The cause where a project may have no more.
QUOTA = 'quota'

#: All that a ``cause`` may be.
CAUSES = (
    'candidate_nodes', 'conductor_group', 'shard', 'resource_class',
    'hypervisor_type', 'resources', 'memory_mb', 'vcpus', 'local_gb', 'image',
    'trait', 'capabilities', 'ownership', 'group', 'members', QUOTA,
    *(reason for reason in nodes.REASONS if reason != nodes.CLAIMABLE),
    MALFORMED, NO_NODES)


def verdict(matcher, counted):
    """What matches in a fleet, and why the rest does not.

    :param matcher: matching.Matcher.
    :param counted: profiles.Fleet.
    :returns: dict of ``matching_nodes`` (how many could be held this very
        moment) and ``explanation`` (see matching.Matcher.explain).
    """
    return {
        'matching_nodes': sum(
            profile.available for _, profiles in matcher.matching(counted)
            for profile in profiles),
        'explanation': matcher.explain_fleet(counted),
    }


def verdict_on_group(matcher, counted, group, members):
    """Whether a fleet has room for a new group, and why not.

    :param group: what has its ``policy`` and ``by``.
    :param members: how many are wanted.
    :returns: what ``verdict`` returns, with ``members`` (how many are
        ``wanted``, and how many are ``available`` by the group's policy) and
        ``domains``: a list of each that has room, as ``value`` and ``nodes``,
        most nodes first. Where there is no room, the explanation's
        ``eliminated`` counts the nodes that match, too, and its ``nearest``
        is for a pack the domain with most of them. Otherwise ``nearest``
        counts members.
    """
    found = verdict(matcher, counted)
    matches = matcher.matching(counted, group.by)
    by_domain = group_policy.capacities(matches, group.by, matcher.fit)
    available = group_policy.available(group.policy, by_domain)
    domains = [{'value': where, 'nodes': room.free}
               for where, room in sorted(
                   by_domain.items(),
                   key=lambda item: (-item[1].free, str(item[0])))]
    found |= {'members': {'wanted': members, 'available': available},
              'domains': domains if group.by else []}
    why = found['explanation']
    why.pop('nearest', None)
    name, most = _nearest(matcher, counted, group, matches)
    if most > available:
        why['nearest'] = {'by': name, 'nodes': most}
    if available < members:
        if found['matching_nodes']:
            why['eliminated'].append({
                'by': group_policy.name_of(group.policy, group.by)
                if group.policy else f'members={members}',
                'nodes': found['matching_nodes']})
        stated = [each for each in domains if each['value'] is not None]
        if group.policy == group_policy.PACK and stated:
            why['nearest'] = {'by': group.by, **stated[0]}
    return found


def _nearest(matcher, counted, group, matches):
    """Return the constraint without which most members could be held.

    :param matches: what matches with it.
    :returns: its name, and how many members that would be; None and 0 where
        no constraint is the only one that eliminates a node.
    """
    members = {
        name: group_policy.available(group.policy, group_policy.capacities(
            matches + nearly, group.by, matcher.fit))
        for name, nearly in matcher.nearly_matching(counted, group.by).items()
        if nearly}
    best = max(members, key=members.get, default=None)
    return best, members.get(best, 0)


def refusal(found, matcher):
    """The error that says why there is no node.

    :param matcher: matching.Matcher of the request.
    :param found: the ``verdict``, on a fleet that was counted after the
        request came. Nodes that it counts as matching and that no search
        finds have malformed properties, such as a number where a text
        belongs.
    :returns: exception.NoMatchingNode.
    """
    why, eliminated = found['explanation'], found['explanation']['eliminated']
    members = found.get('members')
    too_few = members and members['available'] < members['wanted']
    if found['matching_nodes'] and not too_few:
        eliminated = [*eliminated, {'by': MALFORMED,
                                    'nodes': found['matching_nodes']}]
    told = ', '.join(f'{each["by"]} eliminates {each["nodes"]}'
                     for each in eliminated[:5])
    return exception.NoMatchingNode(
        (f'{members["available"]} of {members["wanted"]} members can be held '
         f'at once' if too_few else 'No free node matches the request')
        + f': of {why["considered"]} nodes, {told or "none can be seen"}'
        + (', and more.' if len(eliminated) > 5 else '.')
        + ('' if why['considered'] or matcher.restricted_to is None
           else SEES_NONE),
        {**why, 'eliminated': eliminated},
        # A lock is the last reason of all: a node that it eliminates would
        # match otherwise, and locks are over in a moment.
        retry=any(each['by'] == nodes.LOCKED for each in eliminated),
        members=members, ignored=matcher.spec.ignored)


def cause(why):
    """What left no node: a word of ours, never one of a client's.

    It is why those nodes cannot be held that satisfy all that was asked for,
    or most of them. Where there are none, it is the constraint that came to
    the last of the nodes.

    :param why: the explanation of a refusal.
    :returns: one of ``CAUSES``: a constraint without what was asked for, or
        one of node.REASONS.
    """
    if not why['eliminated']:
        return NO_NODES
    *_, last = why['eliminated']
    if last['by'] in nodes.REASONS:
        last = max((each for each in why['eliminated']
                    if each['by'] in nodes.REASONS),
                   key=lambda each: each['nodes'])
    return re.match('[a-z_ ]+', last['by'])[0]
