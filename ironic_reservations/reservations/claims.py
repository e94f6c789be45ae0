# SPDX-License-Identifier: Apache-2.0
"""A reservation that nobody uses yet passes to an instance, with its node.

What is reserved today is claimed tomorrow: by the UUID of the reservation's
instance, or of a group, any fitting member of which will do. The new
reservation takes the place of the old one in one transaction, so that the
node is never free in between.
"""

import random

from ironic_reservations import exception
from ironic_reservations.db import counting
from ironic_reservations.db import engine
from ironic_reservations.fleet import search
from ironic_reservations.matching import explanation
from ironic_reservations.reservations import holds
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import obtain


def claim(uuid, matcher, request, authorize):
    """Have an instance take over a reservation that no host has yet.

    :param uuid: of the reservation's instance, or of a group.
    :param matcher: matching.Matcher that the node must satisfy.
    :param request: obtain.Request of one instance. The reservation must
        belong to the project of its assignment.
    :param authorize: called with the Reservation before it is taken over; it
        raises when the caller may not release it.
    :returns: the new Reservation, and True when this call has made it.
    :raises: NotFound when the project has no such reservation or group;
        Conflict when a host has it, or no member of the group can be claimed,
        or the instance holds a node already; NoMatchingNode when the request
        does not match; PreconditionFailed when the host is not the holder's;
        DeadlineExceeded.
    """
    return obtain.obtain(_Claim(uuid, matcher, request, authorize))


class _Claim(holds.OneNode):
    """An ask for a node that is reserved already.

    The group of the claimed reservation has as many members as before, and in
    the same domains, so that no place in it is looked for.
    """

    # A claimed reservation is gone when the request is repeated.
    asks_first = True

    def __init__(self, uuid, matcher, request, authorize):
        super().__init__(matcher, request)
        self._uuid, self._authorize = uuid, authorize

    def sets(self):
        """See obtain.Ask.

        :raises: NotFound, Conflict, NoMatchingNode.
        """
        for node, claimed in self._fitting():
            self._authorize(claimed)
            yield [obtain.Pick(self.instance_uuid, node, claimed)]

    def _fitting(self):
        """What can be claimed and satisfies the request, the best fit first.

        :returns: list of pairs of a matching.Node and its Reservation; empty
            where others have claimed what would be, since it was read.
        """
        matcher = self.matcher
        candidates = {each.id: each for each in self._candidates()}
        found = []
        for row in engine.fetch_rows(
                counting.select_held_nodes(list(candidates))):
            facts = dict(row._mapping)
            reason = facts.pop('reason')
            claimed = candidates[facts.pop('reservation_id')]
            found.append((search.make_node(facts), claimed, reason))
        fitting = [(node, claimed) for node, claimed, reason in found
                   if reason is None and matcher.is_visible(node)
                   and matcher.matches(node)]
        if not fitting and len(found) == len(candidates):
            raise explanation.make_refusal({
                'matching_nodes': 0, 'explanation': matcher.explain(
                    (node, reason, 1) for node, _, reason in found)},
                matcher)
        random.shuffle(fitting)
        fitting.sort(key=lambda pair: matcher.fit(pair[0]))
        return fitting

    def _candidates(self):
        """The Reservations that the UUID names and an instance may claim."""
        named = lookup.named(self._uuid, self.request.assignment.project_id)
        if not named:
            raise exception.NotFound(
                f'No reservation and no group {self._uuid} could be found.')
        found = [each for each in named
                 if each.host is None and each.state == 'reserved']
        if not found:
            raise exception.Conflict(
                f'Nothing of {self._uuid} can be claimed: a compute host has '
                f'it, or its node is no longer available.')
        return found
