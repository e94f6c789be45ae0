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

#: After so many searches in vain, all by fresh counts of the same nodes, the
#: properties of these are taken for something that Python reads otherwise
#: than the database does.
IN_VAIN = 3

#: How many lapsed leases the request ends that counts the fleet anew.
AT_ONCE = 10


class Searched:
    """An ask whose nodes are found by a search: see ``obtain``.

    :ivar counted: count.Fleet by which to search; None where the request
        names its nodes, and they were not counted yet.
    :ivar fresh: whether it was counted for this request.
    :ivar found: whether the last search has found anything.
    """

    def __init__(self):
        self.counted, self.fresh, self.found = None, False, True
        self._began = time.monotonic()
        self._counted_before, self._in_vain = None, 0

    def narrowed(self):
        """The Matcher of nodes that quota and policy allow."""
        return self.place.narrow(self.quota.narrow(self.matcher),
                                 self.counted)

    def verdict(self):
        """What matches in what was counted.

        :returns: the verdict of ``explanation``, and whether it is enough.
        """
        raise NotImplementedError()

    def prepare(self, run):
        """Have a count to search by; after a search in vain, a fresh one.

        :raises: NoMatchingNode; QuotaExceeded where nodes were passed over.
        """
        self.quota.check_choice(self.matcher.spec)
        if run.tries and not self.found:
            self._recount()
        elif self.counted is None and not self.matcher.spec.candidate_nodes:
            self.counted = count.recent(
                lambda: expiry.give_back_lapsed(AT_ONCE))
        self.found = False

    def _recount(self):
        expiry.give_back_lapsed()
        self.counted = count.fresh(self.matcher.spec.candidate_nodes,
                                   None if self.fresh else self._began)
        self.fresh = True
        found, enough = self.verdict()
        counted = found['matching_nodes'], found.get('domains')
        # A request that takes and gives back nodes while they are searched
        # for is no reason to say that there are none.
        self._in_vain += counted == self._counted_before
        self._counted_before = counted
        if not enough or self._in_vain >= IN_VAIN:
            raise self.quota.refusal or explanation.refusal(
                found, self.matcher.restricted_to)
