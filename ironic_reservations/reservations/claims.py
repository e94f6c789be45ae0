# SPDX-License-Identifier: Apache-2.0
"""Claims a reservation that no host has, with its node, for an instance.

A claim names the UUID of the reservation's instance, or of a group with a
member that satisfies the request. The new reservation replaces the old one in
one transaction, so that the node is never free in between.
"""

from collections.abc import Callable
from collections.abc import Iterator
import random

from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations.db import counting
from ironic_reservations.db import engine
from ironic_reservations.fleet import search
from ironic_reservations.matching import explanation
from ironic_reservations.reservations import holds
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import values


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
    return obtain.obtain_nodes(
        _Claim(uuid, matcher, request, authorize, segment))


class _Claim(holds.OneNode):
    """A request for a node that is already reserved.

    The new reservation replaces a member of the group in the same domain, so
    it needs no separate place.
    """

    # After a claim, the claimed reservation no longer exists.
    checks_repeat_first = True

    def __init__(self, uuid: str, matcher: matching.Matcher,
                 request: obtain.Request,
                 authorize: Callable[[values.Reservation], None],
                 segment: int | None) -> None:
        super().__init__(matcher, request)
        self._uuid, self._segment = uuid, segment
        self._authorize = authorize

    @property
    def _name(self) -> str:
        return (self._uuid if self._segment is None
                else f'{self._uuid}:{self._segment}')

    def list_picks(self) -> Iterator[list[obtain.Pick]]:
        """See obtain.Operation.

        :raises: NotFound, Conflict, NoMatchingNode.
        """
        for node, reservation in self._find_matches():
            self._authorize(reservation)
            yield [obtain.Pick(self.instance_uuid, node, reservation)]

    def _find_matches(self
                      ) -> list[tuple[matching.Node, values.Reservation]]:
        """Return reservations that satisfy the request, the best fit first.

        :returns: empty if concurrent requests have claimed those that matched.
        """
        matcher = self.matcher
        reservations = {reservation.id: reservation
                        for reservation in self._find_claimable()}
        rows = []
        for row in engine.fetch_rows(
                counting.select_held_nodes(list(reservations))):
            columns = dict(row._mapping)
            reason = columns.pop('reason')
            reservation = reservations[columns.pop('reservation_id')]
            rows.append((search.make_node(columns), reservation, reason))
        matches = [(node, reservation) for node, reservation, reason in rows
                   if reason is None and matcher.is_visible(node)
                   and matcher.matches(node)]
        if not matches and len(rows) == len(reservations):
            raise explanation.make_refusal({
                'matching_nodes': 0, 'explanation': matcher.explain(
                    (node, reason, 1) for node, _, reason in rows)},
                matcher)
        random.shuffle(matches)
        matches.sort(key=lambda match: matcher.fit(match[0]))
        return matches

    def _find_claimable(self) -> list[values.Reservation]:
        """Return the reservations that the UUID names and that can be claimed.

        :raises: NotFound, Conflict.
        """
        reservations = lookup.find_by_uuid(
            self._uuid, self.request.assignment.project_id)
        if not reservations:
            raise exception.NotFound(
                f'No reservation or group {self._uuid} could be found.')
        if self._segment is not None:
            reservations = [
                reservation for reservation in reservations
                if reservation.group_uuid == self._uuid
                and reservation.segment == self._segment]
            if not reservations:
                raise exception.Conflict(
                    f'Segment {self._segment} of {self._uuid} has no members '
                    f'to claim.')
        claimable = [reservation for reservation in reservations
                     if reservation.host is None
                     and reservation.state == 'reserved']
        if not claimable:
            raise exception.Conflict(
                f'No reservation of {self._name} can be claimed: a compute '
                f'host holds it, or its node is no longer available.')
        return claimable
