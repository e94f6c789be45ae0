# SPDX-License-Identifier: Apache-2.0
"""Explains which nodes a request would match, without holding one."""

import dataclasses
from typing import Any

from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations import verdicts
from ironic_reservations.db import engine
from ironic_reservations.fleet import capacity
from ironic_reservations.fleet import counts
from ironic_reservations.matching import group_policy
from ironic_reservations.reservations import goals
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import quotas


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
    fleet = counts.get_fresh_fleet(
        matcher.spec.candidate_nodes, use=matcher.use)
    usage = limits.count_usage()
    goal = (goals.Goal(matcher, usage=usage,
                       place=membership.Place.load(group))
            if group is None or members is None else goals.Goal(
                matcher, members, group_policy.find_levels(group), usage))
    return DryRun(goal.explain(fleet), capacity.list_matching_rows(
        goal.narrow(fleet), fleet))
