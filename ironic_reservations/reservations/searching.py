# SPDX-License-Identifier: Apache-2.0
"""Counts the fleet for a search, and recounts it before a refusal.

A request is refused only by a count that began after the request, and only
after all reservations that are past their leases have expired. If such a count
has a matching node that the search does not find, the node was locked, changed
or freed in between, and the fleet is counted again.
"""

from collections.abc import Callable
import time
from typing import Any

from ironic_reservations import matching
from ironic_reservations.fleet import counts
from ironic_reservations.fleet import profiles
from ironic_reservations.matching import explanation
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import quotas

#: Number of unsuccessful searches by equal fresh counts after which Python and
#: the database are assumed to read the properties of these nodes differently.
#: The request is then refused because of "malformed properties".
IN_VAIN = 3

#: Maximum number of reservations that a request expires when it has counted
#: the fleet.
EXPIRED_AT_ONCE = 20

#: Returns the verdict of ``explanation`` on the counted fleet, and whether
#: there are enough nodes.
Judge = Callable[[], tuple[dict[str, Any], bool]]


class Finder:
    """Counts the fleet for the searches of one request.

    :ivar fleet: the count to search by; None if the request names its nodes
        and they were not counted yet.
    :ivar is_fresh: whether the fleet was counted for this request.
    :ivar in_vain: whether the last search ended without a node.
    """

    def __init__(self, matcher: matching.Matcher, quota: quotas.Quota
                 ) -> None:
        self._matcher, self._quota = matcher, quota
        self.fleet: profiles.Fleet | None = None
        self.is_fresh, self.in_vain = False, False
        self._start = time.monotonic()
        self._last_counts: object = None
        self._repeats = 0

    def prepare(self, judge: Judge) -> None:
        """Count the fleet before a search, after a search in vain again.

        :raises: NoMatchingNode; QuotaExceeded if nodes were excluded by a
            limit.
        """
        if self.in_vain:
            self._recount(judge)
            # A search that an error ends early is not in vain.
            self.in_vain = False
        elif self.fleet is None and not self._matcher.spec.candidate_nodes:
            self.fleet, is_new = counts.get_recent_fleet(
                self._matcher.spec.resource_class)
            if is_new:
                expiry.expire_leases(EXPIRED_AT_ONCE)

    def get_fleet(self) -> profiles.Fleet:
        """Return the count of a fleet that was counted."""
        if self.fleet is None:
            raise RuntimeError('The fleet was not counted')
        return self.fleet

    def count_candidates(self) -> None:
        """Count the nodes that the request names, if it names any."""
        candidates = self._matcher.spec.candidate_nodes
        if candidates and self.fleet is None:
            self.fleet = counts.get_fresh_fleet(candidates)
            self.is_fresh = True

    def _recount(self, judge: Judge) -> None:
        expiry.expire_leases()
        self.fleet = counts.get_fresh_fleet(
            self._matcher.spec.candidate_nodes,
            None if self.is_fresh else self._start)
        self.is_fresh = True
        verdict, is_enough = judge()
        numbers = verdict['matching_nodes'], verdict.get('domains')
        # Different counts mean that concurrent requests hold and release
        # nodes. That is no reason to refuse the request.
        is_equal = numbers == self._last_counts or self._quota.refusal
        self._repeats = self._repeats + 1 if is_equal else 0
        self._last_counts = numbers
        if not is_enough or self._repeats >= IN_VAIN:
            raise self._quota.refusal or explanation.make_refusal(
                verdict, self._matcher)
