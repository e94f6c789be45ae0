# SPDX-License-Identifier: Apache-2.0
"""Claims a reservation that no host has, with its node, for an instance.

A claim names the UUID of the reservation's instance, or of a group with a
member that satisfies the request. The new reservation replaces the old one in
one transaction, so that the node is never free in between.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import functools
import random

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations import verdicts
from ironic_reservations.db import engine
from ironic_reservations.db import node_counts
from ironic_reservations.fleet import capacity
from ironic_reservations.fleet import explanation
from ironic_reservations.fleet import profiles
from ironic_reservations.fleet import search
from ironic_reservations.reservations import dry_runs
from ironic_reservations.reservations import holds
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import transaction

# A node with its reservation, and why it cannot be claimed; None if it can.
_Row = tuple[matching.Node, values.Reservation, str | None]


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
    def find(run: transaction.Run) -> values.Reservation | None:
        # After a claim, the claimed reservation no longer exists.
        return holds.find_repeat(run, matcher, request)

    def make(run: transaction.Run) -> values.Reservation:
        matches, _ = _find_matches(matcher, functools.partial(
            _find_claimable, uuid, request.assignment.project_id, segment))
        return transaction.write_first(
            _list_picks(matcher, request.instances[0], matches, authorize),
            # It is replaced in its domain and needs no other place.
            lambda pick: holds.hold_pick(
                run, matcher, request, pick, membership.Place(),
                len(matches) == 1))

    return transaction.find_or_make(find, make, request.actor)


@engine.retry
def dry_run(uuid: str, matcher: matching.Matcher, project_id: str | None,
            authorize: Callable[[values.Reservation], None],
            segment: int | None = None) -> dry_runs.DryRun:
    """Return what ``claim_reservation`` would do.

    :param project_id: project of the reservation.
    :raises: NotFound, Conflict, and what ``authorize`` raises, as the claim.
    """
    matches: list[tuple[matching.Node, values.Reservation]] = []
    while not matches:
        engine.check_deadline()
        try:
            matches, rows = _find_matches(matcher, functools.partial(
                _find_claimable, uuid, project_id, segment))
        except exception.NoMatchingNode as error:
            return dry_runs.DryRun(error.verdict, [])
    _, best = matches[0]
    authorize(best)
    # The reason shows that they are reserved and can be claimed.
    counts = node_counts.read_counts([node.id for node, _ in matches],
                                     matching.TO_HOLD)
    return dry_runs.DryRun(
        _explain(matcher, rows, len(matches)), capacity.list_matching_rows(
            matcher, profiles.Fleet.from_counts(
                count for count, _ in counts)))


def _list_picks(matcher: matching.Matcher, instance_uuid: str,
                matches: list[tuple[matching.Node, values.Reservation]],
                authorize: Callable[[values.Reservation], None]
                ) -> Iterator[obtain.Pick]:
    """Yield the reservations to claim.

    :raises: DeadlineExceeded if only nodes that the request has lost are left.
    """
    for node, reservation in matches:
        authorize(reservation)
        yield obtain.Pick(instance_uuid, node, reservation)
    search.check_lost(matcher)


def _find_matches(matcher: matching.Matcher,
                  find_claimable: Callable[[], list[values.Reservation]]
                  ) -> tuple[list[tuple[matching.Node, values.Reservation]],
                             list[_Row]]:
    """Return reservations that satisfy the request, the best rank first.

    :param find_claimable: returns the reservations that can be claimed.
    :returns: the nodes and reservations, none if others can be claimed by now;
        and all that can be claimed.
    :raises: NoMatchingNode; what ``find_claimable`` raises.
    """
    reservations = {reservation.id: reservation
                    for reservation in find_claimable()}
    rows: list[_Row] = []
    for row in engine.fetch_rows(*node_counts.select_held_nodes(
            list(reservations), conf.CONF.reservations.avoid_failed)):
        columns = dict(row._mapping)
        reason = columns.pop('reason')
        reservation = reservations[columns.pop('reservation_id')]
        rows.append((search.make_node(columns), reservation, reason))
    matches = [(node, reservation) for node, reservation, reason in rows
               if reason is None and matcher.is_visible(node)
               and matcher.matches(node)]
    if not matches and reservations.keys() == {
            reservation.id for reservation in find_claimable()}:
        raise exception.NoMatchingNode(_explain(matcher, rows))
    random.shuffle(matches)
    matches.sort(key=lambda match: search.rank(matcher, match[0]))
    return matches, rows


def _explain(matcher: matching.Matcher, rows: Iterable[_Row],
             matching_nodes: int = 0) -> verdicts.Verdict:
    return explanation.make_verdict(matcher, matcher.explain(
        (node, reason, 1) for node, _, reason in rows), matching_nodes)


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
