# SPDX-License-Identifier: Apache-2.0
"""What a request would find, and why not more: for dry runs and refusals."""

from ironic_reservations import capacity
from ironic_reservations import exception
from ironic_reservations import fleet
from ironic_reservations import matching
from ironic_reservations.db import engine

#: What somebody is told who sees no node at all. It is as a rule a compute
#: service whose user was given a project instead of the system.
SEES_NONE = (' A project sees the nodes that it owns or leases; compute '
             'services need a user with system scope, or with the service '
             'role in the service project if '
             'rbac_service_role_elevated_access is set.')

#: Why a node cannot be held that Python reads otherwise than the database.
MALFORMED = 'malformed properties'


def verdict(matcher, counted):
    """What matches in a fleet, and why the rest does not.

    :param matcher: matching.Matcher.
    :param counted: fleet.Fleet.
    :returns: dict of ``matching_nodes`` (how many could be held this very
        moment), ``profiles`` (those of the matching nodes, with all of their
        nodes) and ``explanation`` (see matching.Matcher.explain).
    """
    fitting = matcher.matching(counted.profiles)
    return {
        'matching_nodes': sum(profile.available for profile in fitting),
        'profiles': capacity.rows(fitting),
        'explanation': matcher.explain(
            (profile.node, reason, nodes) for profile in counted.profiles
            for reason, nodes in profile.counts.items()),
    }


@engine.retry
def dry_run(matcher):
    """The ``verdict`` on the fleet as it is now."""
    return verdict(matcher, fleet.fresh(matcher.spec.candidate_nodes))


def refusal(found, restricted_to):
    """The error that says why there is no node.

    :param restricted_to: the project to which the caller is bound, or None.
    :param found: the ``verdict``, on a fleet that was counted after the
        request came. What it counts as matching and no search finds has
        properties that are no sizes and capabilities, such as a number
        where a text belongs.
    :returns: exception.NoMatchingNode.
    """
    why, eliminated = found['explanation'], found['explanation']['eliminated']
    if found['matching_nodes']:
        eliminated = [*eliminated, {'by': MALFORMED,
                                    'nodes': found['matching_nodes']}]
    told = ', '.join(f'{each["by"]} eliminates {each["nodes"]}'
                     for each in eliminated[:5])
    return exception.NoMatchingNode(
        f'No free node matches the request: of {why["considered"]} nodes, '
        f'{told or "none can be seen"}'
        + (', and more.' if len(eliminated) > 5 else '.')
        + ('' if why['considered'] or restricted_to is None else SEES_NONE),
        {**why, 'eliminated': eliminated},
        # A lock is the last reason of all: a node that it eliminates would
        # match otherwise, and locks are over in a moment.
        retry=any(each['by'] == matching.LOCKED for each in eliminated))
