# SPDX-License-Identifier: Apache-2.0
"""What is searched is counted anew before a request is told of no node.

Only a count that is younger than the request may say that there is none, and
only after all that has lapsed was given back. Where such a count has a node
that the search then does not find, the node was locked, changed or given back
in between, and the fleet is counted again.
"""

import time

from ironic_reservations.fleet import count
from ironic_reservations.fleet import explanation
from ironic_reservations.reservations import expiry

#: After so many searches in vain, all by fresh counts of the same nodes, it is
#: assumed that Python and the database read the properties of these nodes
#: differently, and the request is refused with "malformed properties".
IN_VAIN = 3

#: A request that has counted the fleet gives back so many lapsed leases.
LAPSED_AT_ONCE = 20


class Searched:
    """An ask whose nodes are found by a search: see ``obtain``.

    :ivar counted: profiles.Fleet by which to search; None where the request
        names its nodes, and they were not counted yet.
    :ivar fresh: whether it was counted for this request.
    :ivar in_vain: whether the last search came to its end and has found
        nothing.
    """

    def __init__(self):
        self.counted, self.fresh, self.in_vain = None, False, False
        self._began = time.monotonic()
        self._counted_before, self._times = None, 0

    def narrowed(self):
        """The Matcher of nodes that quota and policy allow."""
        return self.place.narrow(self.quota.narrow(self.matcher),
                                 self.counted)

    def verdict(self):
        """What matches in what was counted.

        :returns: the verdict of ``explanation``, and whether it is enough.
        """
        raise NotImplementedError()

    def prepare(self):
        """Have a count to search by; after a search in vain, a fresh one.

        :raises: NoMatchingNode; QuotaExceeded where nodes were passed over.
        """
        self.quota.check_choice(self.matcher.spec)
        if self.in_vain:
            self._recount()
            # A search that something ends early is not in vain.
            self.in_vain = False
        elif self.counted is None and not self.matcher.spec.candidate_nodes:
            self.counted, just_now = count.recent()
            if just_now:
                expiry.give_back_lapsed(LAPSED_AT_ONCE)

    def _recount(self):
        expiry.give_back_lapsed()
        self.counted = count.fresh(self.matcher.spec.candidate_nodes,
                                   None if self.fresh else self._began)
        self.fresh = True
        found, enough = self.verdict()
        counted = found['matching_nodes'], found.get('domains')
        # Another request that takes and gives back nodes while they are
        # searched for is no reason to say that there are none.
        alike = counted == self._counted_before or self.quota.refusal
        self._times = self._times + 1 if alike else 0
        self._counted_before = counted
        if not enough or self._times >= IN_VAIN:
            raise self.quota.refusal or explanation.refusal(
                found, self.matcher)
