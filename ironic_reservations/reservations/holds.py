# SPDX-License-Identifier: Apache-2.0
"""Holds a node for one instance, the best fit that is free."""

import time
from typing import Any

from ironic_reservations import events
from ironic_reservations import matching
from ironic_reservations import metrics
from ironic_reservations import values
from ironic_reservations.db import reservation_rows
from ironic_reservations.reservations import goals
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import transaction
from ironic_reservations.reservations import updates


def hold_node(matcher: matching.Matcher, request: obtain.Request
              ) -> tuple[values.Reservation, bool]:
    """Hold the best fitting free node that satisfies a request.

    A repeated request for the same instance with the same request spec
    returns its reservation, renews the lease, and changes the host to the one
    that it names.

    :param matcher: requirements of the request. For a project-scoped caller, a
        repeat returns only a reservation of the caller's project, and only
        while the project may use the node.
    :param request: has one instance.
    :returns: the reservation, and whether this call has made it.
    :raises: NoMatchingNode if a count of the fleet that began after the
        request has none; Conflict if the instance holds a node for a different
        request or group, or its deployment has begun on another host;
        QuotaExceeded if only the quota prevents a new reservation;
        PreconditionFailed if the holder does not hold the host's lease;
        DeadlineExceeded.
    """
    start = time.monotonic()
    [instance_uuid] = request.instances
    joins_segment = (request.group is not None
                     and request.group.segment is not None)
    search = goals.Search()

    def find(run: transaction.Run) -> values.Reservation | None:
        # A failed attempt shows that the request may be repeated: the
        # instance is a unique key. A repeat would find its segment full.
        return (find_repeat(run, matcher, request)
                if run.tries or joins_segment else None)

    def make(run: transaction.Run) -> values.Reservation:
        goal = goals.Goal(matcher, usage=request.count_usage(run),
                          place=membership.Place.clear(request.group))
        return transaction.write_first(
            search.find(goal), lambda nodes: hold_pick(
                run, matcher, request, obtain.Pick(instance_uuid, nodes[0]),
                goal.place))

    reservation, is_new = transaction.find_or_make(find, make, request.actor)
    if is_new:
        metrics.record_hold(time.monotonic() - start)
    return reservation, is_new


def hold_pick(run: transaction.Run, matcher: matching.Matcher,
              request: obtain.Request, pick: obtain.Pick,
              place: membership.Place, waits: bool = False
              ) -> values.Reservation:
    """Hold one node; see ``obtain.hold_picks``."""
    with obtain.hold_picks(run, matcher, request, [pick], place, waits) as (
            _, [reservation]):
        return reservation


def find_repeat(run: transaction.Run, matcher: matching.Matcher,
                request: obtain.Request) -> values.Reservation | None:
    """Return the reservation that the instance already has, or None.

    Nova builds an instance on one host at a time, so the later host is right
    as long as no work on the node has begun.

    :raises: Conflict if the request may not have it; ConcurrentChange if it
        has just changed.
    """
    [instance_uuid] = request.instances
    for reservation in lookup.find_carriers([instance_uuid]):
        if reservation.is_expired:
            return None
        moves = request.assignment.host not in (None, reservation.host)
        if not _is_repeat(matcher, request, reservation) or (
                moves and reservation.state != 'reserved'):
            raise lookup.make_conflict(instance_uuid)
        return _renew(run, matcher, request, reservation, moves)
    return None


def _is_repeat(matcher: matching.Matcher, request: obtain.Request,
               reservation: values.Reservation) -> bool:
    """Return whether a reservation is the result of an equal request."""
    return (reservation.id is not None
            and reservation.request_spec == matcher.spec.canonical
            and matcher.reach.has_project(reservation.project_id)
            and request.project_id in (None, reservation.project_id)
            and (not matcher.reach.is_limited
                 or matcher.ownership.covers(*reservation.node_projects))
            and reservation.state in ('reserved', 'deploying', 'active'))


def _renew(run: transaction.Run, matcher: matching.Matcher,
           request: obtain.Request, reservation: values.Reservation,
           moves: bool) -> values.Reservation:
    """Renew the lease of a reservation, and store the host of the request.

    :param moves: whether that is another host.
    """
    if not moves and not updates.is_renewable(
            reservation, request.lease, matcher.reach):
        return reservation
    changes: dict[str, Any] = {'lease': request.lease}
    if request.assignment.host is not None:
        changes['host'] = request.assignment.host
    return updates.write_changes(
        run, reservation, changes,
        events.MOVED if moves else events.RENEWED,
        None if matcher.reach.is_limited else reservation_rows.ANY_HOST)
