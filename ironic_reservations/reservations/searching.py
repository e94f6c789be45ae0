# SPDX-License-Identifier: Apache-2.0
"""The fleet is recounted before a request is refused for lack of a node.

Only a count that is younger than the request may say that there is none, and
only after all that has lapsed was given back. Where such a count has a node
that the search then does not find, the node was locked, changed or given back
in between, and the fleet is counted again.
"""

import time

from ironic_reservations.fleet import counts
from ironic_reservations.matching import explanation
from ironic_reservations.reservations import expiry

#: After so many searches in vain, all by fresh counts of the same nodes, it is
#: assumed that Python and the database read the properties of these nodes
#: differently, and the request is refused with "malformed properties".
IN_VAIN = 3

#: A request that has counted the fleet gives back so many lapsed leases.
LAPSED_AT_ONCE = 20


class Finder:
    """Has the fleet counted for a search, and judges a search in vain.

    :param matcher: matching.Matcher of the request.
    :param quota: quota.Quota of the request.
    :ivar counted: profiles.Fleet by which to search; None where the request
        names its nodes, and they were not counted yet.
    :ivar fresh: whether it was counted for this request.
    :ivar in_vain: whether the last search came to its end without a node.
    """

    def __init__(self, matcher, quota):
        self._matcher, self._quota = matcher, quota
        self.counted, self.fresh, self.in_vain = None, False, False
        self._began = time.monotonic()
        self._counted_before, self._times = None, 0

    def prepare(self, judge):
        """Have a count to search by; after a search in vain, a fresh one.

        :param judge: function that returns the verdict of ``explanation`` on
            what was counted, and whether there are enough nodes.
        :raises: NoMatchingNode; QuotaExceeded where nodes were passed over.
        """
        if self.in_vain:
            self._recount(judge)
            # A search that something ends early is not in vain.
            self.in_vain = False
        elif self.counted is None and not self._matcher.spec.candidate_nodes:
            self.counted, just_now = counts.get_recent_fleet()
            if just_now:
                expiry.give_back_lapsed(LAPSED_AT_ONCE)

    def count_candidates(self):
        """Count the nodes that the request names, if it names any."""
        named = self._matcher.spec.candidate_nodes
        if named and self.counted is None:
            self.counted, self.fresh = counts.get_fresh_fleet(named), True

    def _recount(self, judge):
        expiry.give_back_lapsed()
        self.counted = counts.get_fresh_fleet(
            self._matcher.spec.candidate_nodes,
            None if self.fresh else self._began)
        self.fresh = True
        verdict, enough = judge()
        numbers = verdict['matching_nodes'], verdict.get('domains')
        # Another request that takes and gives back nodes while they are
        # searched for is no reason to say that there are none.
        alike = numbers == self._counted_before or self._quota.refusal
        self._times = self._times + 1 if alike else 0
        self._counted_before = numbers
        if not enough or self._times >= IN_VAIN:
            raise self._quota.refusal or explanation.make_refusal(
                verdict, self._matcher)
