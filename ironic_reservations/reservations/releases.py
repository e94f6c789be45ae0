# SPDX-License-Identifier: Apache-2.0
"""Releases reservations, as long as nothing is deployed to their nodes."""

from collections.abc import Callable
from collections.abc import Sequence

from ironic_reservations import context
from ironic_reservations import events
from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import node_rows
from ironic_reservations.db import reservation_rows
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import transaction


def release_reservation(
        instance_uuid: str,
        authorize: Callable[[values.Reservation], None] = context.allow_all,
        actor: values.Actor = values.NOBODY,
        reach: values.Ownership = values.ALL
) -> None:
    """Release the reservation of an instance.

    :param authorize: raises if the caller may not release the reservation.
    :param actor: if it names a host, only this host's reservation is released.
    :param reach: that of the caller. A project-scoped caller cannot release an
        available node on which a build may be about to start, because a host
        holds it or something has begun on it. Other callers can, and they can
        release a node in maintenance in any state.
    :raises: NotFound; Conflict if the node's state, lock or allocation
        forbids it; PreconditionFailed if the actor does not hold the host's
        lease; what ``authorize`` raises.
    """
    def attempt(run: transaction.Run) -> None:
        try:
            reservation = expiry.get_or_purge(instance_uuid, authorize,
                                              expiry.expire_or_purge)
        except exception.NotFound:
            if run.unsure:
                return  # An attempt of this request has released it.
            raise
        if actor.host not in (None, reservation.host):
            raise exception.NotFound.of(
                f'reservation of instance {instance_uuid}')
        check_releasable(reservation, reach)
        write_release(run, [reservation], reach)

    transaction.run_request(attempt, actor)


def check_releasable(reservation: values.Reservation, reach: values.Ownership
                     ) -> None:
    """Check that a reservation may be released.

    :param reach: that of the caller.
    :raises: Conflict.
    """
    node = f'Node {reservation.node_uuid}'
    if reservation.lock is not None:
        raise exception.Conflict(
            f'{node} is locked by a conductor; try again.')
    if not (reservation.provision_state in values.RELEASABLE
            or reservation.maintenance and not reach.is_limited):
        raise exception.Conflict(
            f'{node} is {reservation.provision_state}; a reservation can be '
            f'released while nothing is deployed to its node.')
    if reservation.is_allocated:
        raise exception.Conflict(f'{node} has an allocation; delete that.')
    if (reach.is_limited and reservation.provision_state == 'available'
            and (reservation.is_touched or reservation.host is not None)):
        raise exception.Conflict(
            f'{node} is held by a compute host, or work on it has begun: a '
            f'server may be about to be built there.')


def write_release(run: transaction.Run,
                  reservations: Sequence[values.Reservation],
                  reach: values.Ownership) -> None:
    """Release reservations in one transaction.

    :param reservations: all of one group or of none, sorted by the ids of
        their nodes.
    :param reach: that of the caller.
    :raises: ConcurrentChange if one of them has changed since it was read;
        DeadlineExceeded, between two of them.
    """
    statement, parameters = node_rows.release_nodes(
        reservations, values.RELEASABLE, reach)
    with transaction.begin(run) as tx:
        for number, row in enumerate(parameters):
            if number:
                # The statement may have to wait for each of them.
                engine.check_deadline()
            tx.write_one(statement, row)
        expiry.delete_rows(
            tx, reservation_rows.delete_unmoved_rows(*reservations),
            reservations, 'release')
        for reservation in reservations:
            tx.emit(events.OfReservation(events.RELEASED, reservation))
