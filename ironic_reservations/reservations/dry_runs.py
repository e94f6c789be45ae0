# SPDX-License-Identifier: Apache-2.0
"""What a request would find if it were to hold a node."""

from ironic_reservations.db import engine
from ironic_reservations.fleet import capacity
from ironic_reservations.fleet import counts
from ironic_reservations.matching import explanation
from ironic_reservations.reservations import membership


@engine.retry
def dry_run(matcher, quota, group=None, members=None):
    """The verdict of ``explanation`` on the fleet as it is now.

    It also has ``profiles``: those of the matching nodes, with all of their
    nodes, as ``capacity`` shows them, and the best fit first. If the request
    has extra specs that are not compared with nodes, it has ``ignored``. If
    only the quota prevents a hold, it has ``quota``: see
    exception.QuotaExceeded.

    :param quota: quota.Quota.
    :param group: membership.Named of which the node is to be a member, or
        None.
    :param members: how many new members the group is to have at once; None
        where it is but one more.
    """
    counted = counts.get_fresh_fleet(matcher.spec.candidate_nodes)
    quota.refresh()
    if members is None:
        place = membership.Place.find(group, end=False)
        matcher = place.narrow(matcher, counted)
        found = explanation.explain_request(quota.narrow(matcher), counted)
        refused = not found['matching_nodes']
    else:
        found = explanation.explain_group(matcher, counted, group, members)
        before = found['members']['available']
        available = min(before, quota.available(matcher, counted, group))
        found['members']['available'] = available
        refused = available < members <= before
    if refused:
        quota.refuse(matcher.find_profiles(counted), members or 1)
    found['profiles'] = capacity.list_matching_rows(
        matcher.find_profiles(counted), matcher.fit_alone)
    if quota.refusal:
        found['quota'] = quota.refusal.quota
    if matcher.spec.ignored:
        found['ignored'] = matcher.spec.ignored
    return found
