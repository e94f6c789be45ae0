# SPDX-License-Identifier: Apache-2.0
"""Holds a node for one instance, the best fit that is free."""

from collections.abc import Iterator
from collections.abc import Sequence
import time
from typing import Any

from ironic_reservations import events
from ironic_reservations import matching
from ironic_reservations import metrics
from ironic_reservations.db import reservation_rows
from ironic_reservations.fleet import search
from ironic_reservations.matching import explanation
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import searching
from ironic_reservations.reservations import transaction
from ironic_reservations.reservations import updates
from ironic_reservations.reservations import values


def hold_node(matcher: matching.Matcher, request: obtain.Request
              ) -> tuple[values.Reservation, bool]:
    """Hold the best fitting free node that satisfies a request.

    A repeated request for the same instance with the same request spec
    returns its reservation, renews the lease, and changes the host if it
    names another one.

    :param matcher: of a caller who is bound to a project, a repeated request
        returns only a reservation of that project, on a node that the project
        may still use.
    :param request: has one instance.
    :returns: the reservation, and whether this call has made it.
    :raises: NoMatchingNode if a count of the fleet that began after the
        request has none; Conflict if the instance holds a node for something
        else, or the host cannot be changed any more, or the group is another
        one; QuotaExceeded if only the quota prevents a new reservation;
        PreconditionFailed if the holder does not hold the host's lease;
        DeadlineExceeded.
    """
    start = time.monotonic()
    reservation, is_new = obtain.obtain_nodes(_Hold(matcher, request))
    if is_new:
        metrics.record_hold(time.monotonic() - start)
    return reservation, is_new


class OneNode(obtain.Operation):
    """A request for one node: the common part of a hold and a claim."""

    def __init__(self, matcher: matching.Matcher, request: obtain.Request
                 ) -> None:
        super().__init__(matcher, request)
        self.instance_uuid, = request.instances

    def find_result(self, run: transaction.Run
                    ) -> tuple[values.Reservation, bool] | None:
        """Return the reservation that the instance already has, or None.

        Nova builds an instance on one host at a time, so the later host is
        right as long as no work on the node has begun.

        :raises: Conflict if the request may not have it; ConcurrentChange if
            it has just changed.
        """
        for reservation in lookup.find_carriers([self.instance_uuid]):
            if reservation.is_expired:
                return None
            self._check(reservation)
            return self._repeat(run, reservation)
        return None

    def _check(self, reservation: values.Reservation) -> None:
        """Check that a reservation satisfies the request."""
        matcher = self.matcher
        if (reservation.id is None
                or reservation.request_spec != matcher.spec.canonical
                or matcher.restricted_to not in (None, reservation.project_id)
                or self.request.project_id not in (
                    None, reservation.project_id)
                or not matching.is_visible(
                    reservation.node_owner, reservation.node_lessee,
                    matcher.restricted_to, matcher.holds_unowned)
                or reservation.state not in ('reserved', 'deploying', 'active')
                or not (self._has_host_of(reservation)
                        or reservation.state == 'reserved')):
            raise lookup.make_conflict(self.instance_uuid)

    def _has_host_of(self, reservation: values.Reservation) -> bool:
        return self.request.assignment.host in (None, reservation.host)

    def _repeat(self, run: transaction.Run, reservation: values.Reservation
                ) -> tuple[values.Reservation, bool]:
        request, moves = self.request, not self._has_host_of(reservation)
        is_restricted = self.matcher.restricted_to is not None
        if not moves and (run.unsure or not updates.is_renewable(
                reservation, request.lease, is_restricted)):
            return reservation, False
        changes: dict[str, Any] = {'lease': request.lease}
        if request.assignment.host is not None:
            changes['host'] = request.assignment.host
        return updates.write_changes(
            run, reservation, changes,
            events.MOVED if moves else events.RENEWED,
            None if is_restricted else reservation_rows.ANY_HOST), False

    def make_result(self, tx: transaction.Transaction,
                    reservations: list[values.Reservation],
                    picks: Sequence[obtain.Pick]) -> values.Reservation:
        """See obtain.Operation."""
        [reservation], [pick] = reservations, picks
        if pick.source:
            tx.emit(events.CLAIMED, pick.source)
        tx.emit(events.HELD, reservation)
        return reservation


class _Hold(OneNode):
    """A request for one node, chosen by a search."""

    def __init__(self, matcher: matching.Matcher, request: obtain.Request
                 ) -> None:
        super().__init__(matcher, request)
        self._finder = searching.Finder(matcher, request.quota)
        # A repeated request would find its segment full.
        self.checks_repeat_first = (
            request.group is not None and request.group.segment is not None)

    def list_picks(self) -> Iterator[list[obtain.Pick]]:
        """See obtain.Operation."""
        finder = self._finder
        self.place = membership.Place.load(self.request.group)
        finder.prepare(self._judge)
        in_vain = True
        for node in search.find_nodes(self._narrow_matcher(), finder.fleet):
            in_vain = False
            yield [obtain.Pick(self.instance_uuid, node)]
        finder.in_vain = in_vain

    def _narrow_matcher(self) -> matching.Matcher:
        """Return the matcher of nodes that quota and policy allow."""
        return self.place.narrow(self.request.quota.narrow(self.matcher),
                                 self._finder.fleet)

    def _judge(self) -> tuple[dict[str, Any], bool]:
        """See searching.Finder.prepare."""
        verdict = explanation.explain_request(
            self._narrow_matcher(), self._finder.get_fleet())
        return verdict, verdict['matching_nodes'] > 0
