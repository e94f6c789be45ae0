# SPDX-License-Identifier: Apache-2.0
"""Explains which nodes a request would match, without holding one."""

import dataclasses
from typing import Any

from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations import verdicts
from ironic_reservations.db import engine
from ironic_reservations.fleet import capacity
from ironic_reservations.fleet import comparison
from ironic_reservations.fleet import counts
from ironic_reservations.fleet import explanation
from ironic_reservations.matching import group_policy
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import quotas
from ironic_reservations.reservations import recounts


@dataclasses.dataclass(frozen=True)
class DryRun:
    """The result of a dry run.

    :param profiles: the capacity rows of the matching nodes, the best fit
        first.
    """

    verdict: verdicts.Verdict
    profiles: list[dict[str, Any]]


@engine.retry
def dry_run(matcher: matching.Matcher, limits: quotas.Limits,
            group: values.GroupRequest | None = None,
            members: int | None = None) -> DryRun:
    """Return the verdict on the fleet as it is now.

    :param group: group that the node would join, or None.
    :param members: number of members of a new group; None for one node.
    """
    candidates = matcher.spec.candidate_nodes
    fleet = (counts.get_fresh_fleet(candidates) if matcher.pool_project is None
             else counts.get_pool_fleet(candidates))
    usage = limits.count_usage()
    if group is None or members is None:
        matcher = membership.Place.load(group).narrow(matcher, fleet)
        verdict = recounts.explain_hold(matcher, usage, fleet)
        if verdict.quota is None and verdict.is_enough:
            verdict = explanation.explain_request(usage.narrow(matcher), fleet)
    else:
        verdict = recounts.explain_group(
            matcher, usage, fleet, group_policy.find_levels(group), members)
    return DryRun(verdict, capacity.list_matching_rows(
        comparison.find_profiles(matcher, fleet), matcher.fit_alone))
