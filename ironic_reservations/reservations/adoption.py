# SPDX-License-Identifier: Apache-2.0
"""Adopts nodes: makes the reservation of a node that carries an instance."""

from collections.abc import Mapping
from typing import Any

from oslo_db import exception as db_exc

from ironic_reservations import events
from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import node_rows
from ironic_reservations.db import reservation_rows
from ironic_reservations.fleet import search
from ironic_reservations.matching import request_spec
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import transaction

# Columns that a repeated adoption replaces, because a rebuild changes them.
_REFRESHED = ('host', 'project_id', 'user_id', 'request_spec', 'group_id',
              'domain', 'segment')


def adopt_instance(instance_uuid: str, spec: request_spec.RequestSpec,
                   assignment: values.Assignment, holder: str | None = None,
                   group: values.GroupRequest | None = None
                   ) -> tuple[values.Reservation, bool]:
    """Make the reservation of the node that already carries an instance.

    Writes nothing to the node. A repeated adoption by the same host stores
    the new request spec, and the project and the user if they are given.

    :param spec: is stored, and not compared with the node.
    :param holder: process that must hold the lease of the assignment's host;
        None if the request does not name one.
    :param group: group that the reservation joins, without regard to the
        group's policy, unless it is a member of a group already; or None.
    :returns: the reservation, and whether this call has made it.
    :raises: NotFound if no node carries the instance; Conflict if another host
        holds it, if the node is in transition or has an Ironic allocation, or
        if the group differs; PreconditionFailed if the holder does not hold
        the host's lease; DeadlineExceeded.
    """
    columns = {**vars(assignment), 'request_spec': spec.canonical}

    def attempt(run: transaction.Run) -> tuple[values.Reservation, bool]:
        for reservation in lookup.find_carriers([instance_uuid]):
            if reservation.is_expired:
                expiry.expire_or_purge([instance_uuid])
                raise transaction.ConcurrentChange()
            _check(instance_uuid, reservation, assignment.host)
            is_member = reservation.group_uuid is not None
            # The segment of a member may be full.
            place = membership.Place.clear(
                None if is_member and group and group.segment is not None
                else group)
            if is_member:
                # It keeps its group and its domain.
                place = membership.Place()
            return _write(run, instance_uuid, reservation, columns,
                          place), reservation.id is None
        raise exception.NotFound(f'No node carries instance {instance_uuid}.')

    return transaction.run_request(
        attempt, values.Actor(assignment.host, holder))


def _check(instance_uuid: str, reservation: values.Reservation,
           host: str | None) -> None:
    """Check that a host may adopt an instance.

    :param reservation: without an ``id``, the node alone.
    :raises: Conflict.
    """
    if (None not in (reservation.id, reservation.host, host)
            and reservation.host != host):
        raise lookup.make_conflict(instance_uuid)
    if reservation.lock is not None:
        raise exception.Conflict(
            f'The node of instance {instance_uuid} is locked by a conductor; '
            f'try again.')
    if reservation.provision_state not in values.AT_REST:
        raise exception.Conflict(
            f'The node of instance {instance_uuid} is '
            f'{reservation.provision_state}; it can be adopted while it is '
            f'one of {", ".join(values.AT_REST)}.')
    if reservation.is_allocated:
        raise exception.Conflict(
            f'The node of instance {instance_uuid} has an Ironic '
            f'allocation, and cannot be adopted.')


def _write(run: transaction.Run, instance_uuid: str,
           reservation: values.Reservation, columns: Mapping[str, Any],
           place: membership.Place) -> values.Reservation:
    """Insert or refresh a reservation, in one transaction.

    :param reservation: without an ``id``, the node alone.
    :returns: the reservation after the change.
    :raises: ConcurrentChange.
    """
    rows = engine.fetch_rows(node_rows.select_carrier(
        str(reservation.instance_uuid)))
    if not rows:
        raise transaction.ConcurrentChange()
    [node] = [search.make_node(row._mapping) for row in rows]
    is_new = reservation.id is None
    try:
        with transaction.begin(run) as tx:
            group_id = place.join(tx)
            columns = {**columns, **place.make_columns(group_id, node)}
            if is_new:
                tx.write_one(reservation_rows.adopt_node(
                    node.id, instance_uuid.lower(), values.AT_REST, columns))
            else:
                changes = {name: columns[name] for name in _REFRESHED
                           if columns.get(name) is not None}
                tx.write_one(reservation_rows.update_rows(
                    [reservation.id], values.AT_REST,
                    {**changes, 'lease': None}, reservation.host))
            reservation = tx.read_reservation(
                reservation_rows.is_instance(instance_uuid))
            tx.emit(events.OfReservation(
                events.ADOPTED if is_new else events.CHANGED, reservation))
        return reservation
    except db_exc.DBDuplicateEntry:
        # A concurrent request has created the group, or there is a stale row
        # of this node or instance.
        expiry.clear_duplicate(run, [instance_uuid], [node.id])
