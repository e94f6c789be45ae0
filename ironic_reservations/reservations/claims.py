# SPDX-License-Identifier: Apache-2.0
"""Claims a reservation that no host has, with its node, for an instance.

A claim names the UUID of the reservation's instance, or of a group with a
member that satisfies the request. The new reservation replaces the old one in
one transaction, so that the node is never free in between.
"""

from collections.abc import Callable
from collections.abc import Iterator
import random

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import node_counts
from ironic_reservations.fleet import explanation
from ironic_reservations.fleet import search
from ironic_reservations.reservations import holds
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import quotas
from ironic_reservations.reservations import transaction


def claim_reservation(
        uuid: str, matcher: matching.Matcher, request: obtain.Request,
        authorize: Callable[[values.Reservation], None],
        segment: int | None = None
) -> tuple[values.Reservation, bool]:
    """Turn a reservation that no host has into that of an instance.

    :param uuid: UUID of the reservation's instance, or of a group.
    :param matcher: the node must satisfy it.
    :param request: has one instance. The reservation must belong to the
        project of its assignment.
    :param authorize: raises if the caller may not release the reservation.
    :param segment: number of a segment of the group; None for any member.
    :returns: the new reservation, and whether this call has made it.
    :raises: NotFound if the project has no such reservation or group;
        Conflict if a host has it, or no member of the group can be claimed,
        or the instance already holds a node; NoMatchingNode if the request
        does not match; PreconditionFailed if the holder does not hold the
        host's lease; DeadlineExceeded.
    """
    def find_result(run: transaction.Run) -> values.Reservation | None:
        # After a claim, the claimed reservation no longer exists.
        return holds.find_repeat(run, matcher, request)

    def list_choices(usage: quotas.Usage, search_failed: bool
                     ) -> Iterator[obtain.Choice]:
        for node, reservation in _find_matches(matcher, _find_claimable(
                uuid, request.assignment.project_id, segment)):
            authorize(reservation)
            # It is replaced in its domain and needs no other place.
            yield obtain.Choice([obtain.Pick(
                request.instances[0], node, reservation)])

    return obtain.obtain_nodes(matcher, request, find_result, list_choices,
                               holds.take_one)


def _find_matches(matcher: matching.Matcher,
                  claimable: list[values.Reservation]
                  ) -> list[tuple[matching.Node, values.Reservation]]:
    """Return reservations that satisfy the request, the best rank first.

    :returns: empty if concurrent requests have claimed those that matched.
    :raises: NoMatchingNode.
    """
    reservations = {reservation.id: reservation for reservation in claimable}
    rows = []
    for row in engine.fetch_rows(*node_counts.select_held_nodes(
            list(reservations), conf.CONF.reservations.avoid_failed)):
        columns = dict(row._mapping)
        reason = columns.pop('reason')
        reservation = reservations[columns.pop('reservation_id')]
        rows.append((search.make_node(columns), reservation, reason))
    matches = [(node, reservation) for node, reservation, reason in rows
               if reason is None and matcher.is_visible(node)
               and matcher.matches(node)]
    if not matches and len(rows) == len(reservations):
        raise exception.NoMatchingNode(explanation.make_verdict(
            matcher, matcher.explain(
                (node, reason, 1) for node, _, reason in rows)))
    random.shuffle(matches)
    matches.sort(key=lambda match: matcher.rank(match[0]))
    return matches


def _find_claimable(uuid: str, project_id: str | None, segment: int | None
                    ) -> list[values.Reservation]:
    """Return the reservations that a UUID names and that can be claimed.

    :raises: NotFound, Conflict.
    """
    reservations = lookup.find_by_uuid(uuid, project_id)
    if not reservations:
        raise exception.NotFound(
            f'No reservation or group {uuid} could be found.')
    name = uuid
    if segment is not None:
        name = f'{uuid}:{segment}'
        reservations = [
            reservation for reservation in reservations
            if reservation.group_uuid == uuid
            and reservation.segment == segment]
        if not reservations:
            raise exception.Conflict(
                f'Segment {segment} of {uuid} has no members to claim.')
    claimable = [reservation for reservation in reservations
                 if reservation.host is None
                 and reservation.state == 'reserved']
    if not claimable:
        raise exception.Conflict(
            f'No reservation of {name} can be claimed: a compute host holds '
            f'it, or its node is no longer available.')
    return claimable
