# SPDX-License-Identifier: Apache-2.0
"""Holds one node for one instance, the best fit there is."""

import time

from ironic_reservations import events
from ironic_reservations import metrics
from ironic_reservations.db import reservation_rows
from ironic_reservations.fleet import search
from ironic_reservations.matching import explanation
from ironic_reservations.matching import is_visible
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import searching
from ironic_reservations.reservations import updates


def hold(matcher, request):
    """Hold a node that satisfies a request, the best fit there is.

    Asking again for the same instance and the same request spec gives the
    node that is held already, begins its lease anew, and moves it to another
    host if one is named.

    :param matcher: matching.Matcher of the request. A caller who is bound to
        a project is given only that project's reservation again, and only on
        a node that the project may still use.
    :param request: obtain.Request of one instance.
    :returns: the Reservation, and True when this call has made it.
    :raises: NoMatchingNode when the fleet, counted after the request came,
        has none; Conflict when the instance holds a node for something else,
        or its node has gone too far to be moved, or the group is another
        one; QuotaExceeded when nothing else is in the way of a new one;
        PreconditionFailed when the host is not the holder's;
        DeadlineExceeded.
    """
    began = time.monotonic()
    reservation, created = obtain.obtain(_Hold(matcher, request))
    if created:
        metrics.record_hold(time.monotonic() - began)
    return reservation, created


class OneNode(obtain.Ask):
    """What a hold and a claim have in common."""

    def __init__(self, matcher, request):
        super().__init__(matcher, request)
        self.instance_uuid, = request.instances

    def known(self, run):
        """The answer to a request whose instance holds a node already.

        Nova builds an instance on one host at a time, so the later host is
        right as long as nothing has begun on the node.

        :returns: None when it holds none.
        :raises: Conflict when it holds one that this request may not have;
            Again when it has just lost it.
        """
        for held in lookup.carried(self.instance_uuid):
            if held.is_expired:
                return None
            self._check(held)
            return self._repeat(run, held)
        return None

    def _check(self, held):
        """Raise unless a reservation is what the request asks for."""
        matcher = self.matcher
        if (held.id is None
                or held.request_spec != matcher.spec.canonical
                or matcher.restricted_to not in (None, held.project_id)
                or self.request.project_id not in (None, held.project_id)
                or not is_visible(held.node_owner, held.node_lessee,
                                  matcher.restricted_to,
                                  matcher.holds_unowned)
                or held.state not in ('reserved', 'deploying', 'active')
                or not (self._is_host_of(held) or held.state == 'reserved')):
            raise lookup.in_use(self.instance_uuid)

    def _is_host_of(self, held):
        return self.request.assignment.host in (None, held.host)

    def _repeat(self, run, held):
        request, moves = self.request, not self._is_host_of(held)
        restricted = self.matcher.restricted_to is not None
        if not moves and (run.unsure or not updates.is_renewable(
                held, request.lease, restricted)):
            return held, False
        changes = {'lease': request.lease}
        if request.assignment.host is not None:
            changes['host'] = request.assignment.host
        return updates.change(
            run, held, changes, events.MOVED if moves else events.RENEWED,
            None if restricted else reservation_rows.ANY_HOST), False

    def answer(self, tx, reservations, picks):
        """See obtain.Ask."""
        [reservation], [pick] = reservations, picks
        if pick.claimed:
            tx.emits(events.CLAIMED, pick.claimed)
        tx.emits(events.HELD, reservation)
        return reservation


class _Hold(OneNode):
    """An ask for one node, found by a search."""

    def __init__(self, matcher, request):
        super().__init__(matcher, request)
        self._finder = searching.Finder(matcher, request.quota)

    def sets(self):
        """See obtain.Ask."""
        finder = self._finder
        self.place = membership.Place.find(self.request.group)
        finder.prepare(self._judge)
        in_vain = True
        for node in search.find_nodes(self._narrowed(), finder.counted,
                                  thorough=finder.fresh):
            in_vain = False
            yield [obtain.Pick(self.instance_uuid, node)]
        finder.in_vain = in_vain

    def _narrowed(self):
        """Return the Matcher of nodes that quota and policy allow."""
        return self.place.narrow(self.request.quota.narrow(self.matcher),
                                 self._finder.counted)

    def _judge(self):
        verdict = explanation.explain_request(self._narrowed(),
                                              self._finder.counted)
        return verdict, verdict['matching_nodes'] > 0
