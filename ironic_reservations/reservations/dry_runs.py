# SPDX-License-Identifier: Apache-2.0
"""Explains which nodes a request would match, without holding one."""

from typing import Any

from ironic_reservations import matching
from ironic_reservations.db import engine
from ironic_reservations.fleet import capacity
from ironic_reservations.fleet import counts
from ironic_reservations.matching import explanation
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import quotas


@engine.retry
def dry_run(matcher: matching.Matcher, quota: quotas.Quota,
            group: membership.GroupRequest | None = None,
            members: int | None = None) -> dict[str, Any]:
    """Return the verdict of ``explanation`` on the fleet as it is now.

    :param group: group that the node would join, or None.
    :param members: number of members of a new group; None for one node.
    :returns: the verdict, and ``profiles``, the capacity rows of the matching
        nodes, the best fit first; ``ignored``, the extra specs that are not
        compared with nodes, if there are any; and ``quota`` (see
        ``exception.QuotaExceeded``) if only the quota prevents a hold.
    """
    fleet = counts.get_fresh_fleet(matcher.spec.candidate_nodes)
    quota.refresh()
    if group is None or members is None:
        place = membership.Place.load(group, remove=False)
        matcher = place.narrow(matcher, fleet)
        verdict = explanation.explain_request(quota.narrow(matcher), fleet)
        is_refused = not verdict['matching_nodes']
    else:
        levels = group.levels
        verdict = explanation.explain_group(matcher, fleet, levels, members)
        before = verdict['members']['available']
        available = min(before, quota.count_available(matcher, fleet, levels))
        verdict['members']['available'] = available
        if levels.inner_by:
            verdict['segments']['available'] = available // levels.segment_size
        is_refused = available < members <= before
    if is_refused:
        quota.refuse(matcher.find_profiles(fleet), members or 1)
    verdict['profiles'] = capacity.list_matching_rows(
        matcher.find_profiles(fleet), matcher.fit_alone)
    if quota.refusal:
        verdict['quota'] = quota.refusal.quota
    if matcher.spec.ignored:
        verdict['ignored'] = matcher.spec.ignored
    return verdict
