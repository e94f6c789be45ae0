# SPDX-License-Identifier: Apache-2.0
"""Counts the fleet for a search, and recounts it before a refusal.

A request is refused only by a count that began after the request, and only
after all reservations that are past their leases have expired. If such a count
has matching nodes, but the search finds none, they are read again: this read
shows whether they have malformed properties, or are excluded by the quota, or
were taken in between, in which case the request searches again.
"""

from collections.abc import Callable
import dataclasses
import time

from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import verdicts
from ironic_reservations.fleet import comparison
from ironic_reservations.fleet import counts
from ironic_reservations.fleet import explanation
from ironic_reservations.fleet import profiles
from ironic_reservations.fleet import search
from ironic_reservations.matching import group_policy
from ironic_reservations.matching import request_spec
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import quotas
from ironic_reservations.shared import resources

#: Number of times that a request searches again because concurrent requests
#: have taken the nodes that a fresh count calls free.
MAX_TAKEN = 3

#: Why nodes cannot be held that concurrent requests or conductors have taken.
TAKEN = {matching.ALLOCATED, matching.RESERVED, matching.LOCKED}

#: Maximum number of reservations that a request expires when it has counted
#: the fleet.
EXPIRED_AT_ONCE = 20


def explain_hold(matcher: matching.Matcher, usage: quotas.Usage,
                 fleet: profiles.Fleet) -> verdicts.Verdict:
    """Return the verdict on a request for one node.

    :param matcher: as the policy of its group narrows it.
    """
    verdict = explanation.explain_request(matcher, fleet)
    narrow_matcher = usage.narrow(matcher)
    if not verdict.is_enough or comparison.count_matches(
            comparison.find_profiles(narrow_matcher, fleet)):
        return verdict
    return dataclasses.replace(
        explanation.explain_request(narrow_matcher, fleet),
        quota=usage.explain(comparison.find_profiles(matcher, fleet), 1))


def explain_group(matcher: matching.Matcher, usage: quotas.Usage,
                  fleet: profiles.Fleet, levels: group_policy.Levels,
                  members: int) -> verdicts.Verdict:
    """Return the verdict on a new group.

    :param members: number of members in the request.
    """
    verdict = explanation.explain_group(matcher, fleet, levels, members)
    if usage.limits.project_id is None:
        return verdict
    limited_verdict = dataclasses.replace(verdict, members=verdicts.Room(
        members, usage.count_available(matcher, fleet, levels)))
    if not verdict.is_enough or limited_verdict.is_enough:
        return limited_verdict
    quota = usage.explain(comparison.find_profiles(matcher, fleet), members)
    if quota is None:
        return verdict
    return dataclasses.replace(
        limited_verdict, quota=quota,
        explanation=dataclasses.replace(verdict.explanation, eliminated={
            **verdict.explanation.eliminated,
            f'quota:{quota.resource}': verdict.matching_nodes}))


#: Returns the matcher of nodes that the policy of a group allows, and the
#: verdict on a fleet.
Explain = Callable[[profiles.Fleet], tuple[matching.Matcher, verdicts.Verdict]]


class Finder:
    """Counts the fleet for the searches of one request.

    :param counts_candidates: whether to count the nodes that the request
        names before the first search, which otherwise needs no count.
    :param for_pool: whether to count which nodes can join a pool.
    """

    def __init__(self, spec: request_spec.RequestSpec, explain: Explain,
                 counts_candidates: bool = False, for_pool: bool = False
                 ) -> None:
        self._spec, self._explain = spec, explain
        self._for_pool = for_pool
        self._counts_candidates = counts_candidates
        self._start = time.monotonic()
        self._fleet: profiles.Fleet | None = None
        # Whether the fleet was counted for this request.
        self._is_fresh = False
        # Number of times that the nodes of a fresh count were taken before the
        # search found them.
        self._taken = 0

    def next_fleet(self, search_failed: bool) -> profiles.Fleet:
        """Return the count of the fleet to search next.

        :param search_failed: whether the last search has yielded nothing. The
            fleet is then counted again.
        :raises: NoMatchingNode; QuotaExceeded if only a limit excludes nodes.
        """
        if self._fleet is None:
            self._fleet = self._count()
        elif search_failed:
            if self._is_fresh:
                self._check_nodes(self._fleet)
            self._fleet = self._recount()
        return self._fleet

    def _count(self) -> profiles.Fleet:
        if self._for_pool:
            expiry.expire_leases()
            self._is_fresh = True
            return counts.get_pool_fleet(self._spec.candidate_nodes)
        if not self._spec.candidate_nodes:
            fleet, is_new = counts.get_recent_fleet()
            if is_new:
                expiry.expire_leases(EXPIRED_AT_ONCE)
            return fleet
        if not self._counts_candidates:
            return profiles.Fleet(())
        self._is_fresh = True
        return counts.get_fresh_fleet(self._spec.candidate_nodes)

    def _recount(self) -> profiles.Fleet:
        expiry.expire_leases()
        fleet = counts.get_pool_fleet(self._spec.candidate_nodes) if (
            self._for_pool) else counts.get_fresh_fleet(
                self._spec.candidate_nodes,
                None if self._is_fresh else self._start)
        self._is_fresh = True
        _, verdict = self._explain(fleet)
        # Whether the quota alone is the cause is decided by reading the nodes.
        if not verdict.is_enough and verdict.quota is None:
            raise exception.NoMatchingNode(dataclasses.replace(
                verdict, retry=verdict.retry or self._taken > 0))
        return fleet

    def _check_nodes(self, fleet: profiles.Fleet) -> None:
        """Read the nodes of a fresh count after a search found none of them.

        :raises: NoMatchingNode, QuotaExceeded; nothing if the request should
            search again.
        """
        matcher, verdict = self._explain(fleet)
        if not verdict.is_enough and verdict.quota is None:
            return
        current_fleet, mismatches = search.read_matches(matcher, fleet)
        _, current = self._explain(current_fleet)
        if current.is_enough:
            return
        is_taken = not TAKEN.isdisjoint(current.explanation.eliminated)
        if is_taken and self._taken < MAX_TAKEN:
            self._taken += 1
            return
        # Another limit allows nodes of other classes, which were taken.
        if current.quota is not None and (
                not is_taken or current.quota.resource
                in resources.limit_names(self._spec.resource_class)):
            raise exception.QuotaExceeded(current.quota)
        raise exception.NoMatchingNode(explanation.correct_verdict(
            explanation.explain_request(matcher, fleet), current, mismatches,
            is_taken))
