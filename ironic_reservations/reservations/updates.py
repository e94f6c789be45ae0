# SPDX-License-Identifier: Apache-2.0
"""Changes the columns of a reservation."""

from collections.abc import Callable
from collections.abc import Mapping
import json
from typing import Any

from ironic_reservations import context
from ironic_reservations import events
from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import reservation_rows
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import transaction
from ironic_reservations.shared import constants


def update_reservation(
        instance_uuid: str, changes: Mapping[str, Any],
        authorize: Callable[[values.Reservation], None] = context.allow_all,
        actor: values.Actor = values.NOBODY,
        reach: values.Ownership = values.ALL
) -> values.Reservation:
    """Change a reservation.

    The node remains the same, and no table of Ironic is written.

    :param changes: values by column, which may change in any state, and
        ``lease`` in seconds from now, None for no expiry.
    :param authorize: raises if the caller may not do this.
    :param actor: if it names a host, only this host's reservation is changed.
    :param reach: that of the caller. A project-scoped caller cannot change the
        lease of a reservation that a host holds, or of a node that the project
        may no longer use.
    :returns: the reservation after the change.
    :raises: NotFound; Conflict if a lease is to change after work on the node
        has begun, or the project may no longer use the node;
        PreconditionFailed if the actor does not hold the host's lease; what
        ``authorize`` raises.
    """
    def attempt(run: transaction.Run) -> values.Reservation:
        reservation = expiry.get_or_purge(instance_uuid, authorize)
        if run.unsure and changes == {'host': reservation.host}:
            return reservation
        if actor.host not in (None, reservation.host) and not (
                run.unsure and changes.get('host') == reservation.host):
            raise exception.NotFound.of(
                f'reservation of instance {instance_uuid}')
        if 'lease' in changes:
            check_lease(reservation, reach)
        return write_changes(run, reservation, changes, _find_kind(changes),
                             reservation.host)

    return transaction.run_request(attempt, actor)


def _find_kind(changes: Mapping[str, Any]) -> events.Kind:
    """Return the event that describes changes best."""
    if 'host' in changes:
        return events.MOVED
    return events.RENEWED if 'lease' in changes else events.CHANGED


def write_changes(run: transaction.Run, reservation: values.Reservation,
                  changes: Mapping[str, Any], kind: events.Kind,
                  host: object = reservation_rows.ANY_HOST
                  ) -> values.Reservation:
    """Change a reservation that has not expired, in one transaction.

    :param changes: see ``update_reservation``.
    :param host: host that must still hold it, or None.
    :returns: the reservation after the change.
    :raises: ConcurrentChange.
    """
    with transaction.begin(run) as tx:
        tx.write_one(reservation_rows.update_rows(
            [reservation.id], constants.PROVISION_STATES['reserved']
            if 'lease' in changes else None, changes, host))
        reservation = tx.read_reservation(
            reservation_rows.column_is('id', reservation.id))
        tx.emit(events.OfReservation(kind, reservation))
    return reservation


def is_renewable(reservation: values.Reservation, lease: int | None,
                 reach: values.Ownership) -> bool:
    """Return whether a repeated request renews the lease of a reservation.

    :param lease: seconds; None for no expiry.
    :param reach: that of the caller. A project-scoped caller changes no lease
        of a host: it could end a build with a short lease, or keep the machine
        with one that does not expire.
    """
    return (reservation.state == 'reserved'
            and not (reach.is_limited and reservation.host is not None)
            and (lease is not None or reservation.expires_at is not None))


def check_lease(reservation: values.Reservation,
                reach: values.Ownership) -> None:
    """Check that the lease of a reservation may be changed.

    :param reach: that of the caller.
    :raises: Conflict.
    """
    if reservation.state != 'reserved':
        raise exception.Conflict(
            f'Node {reservation.node_uuid} is {reservation.provision_state}; '
            f'a lease can be changed only before work on the node begins.')
    if reach.is_limited and reservation.host is not None:
        raise exception.Conflict(
            f'Node {reservation.node_uuid} is held by a compute host, which '
            f'keeps its lease.')
    if reach.is_limited:
        check_may_use(reservation, json.loads(
            reservation.request_spec or '{}').get('ownership'))


def check_may_use(reservation: values.Reservation, kind: str | None) -> None:
    """Check that a project may still use the node that it has reserved.

    Otherwise a former lessee of a machine could keep it for ever by renewing
    the reservation.

    :param kind: kind of the ownership in its request; None for ``project``.
    :raises: Conflict.
    """
    ownership = values.Ownership(
        reservation.project_id,
        kind if kind == 'project_or_none' else 'project')
    if not ownership.covers(*reservation.node_projects):
        raise exception.Conflict(
            f'Project {reservation.project_id} may no longer use node '
            f'{reservation.node_uuid}; the reservation can be released, but '
            f'not renewed.')
