# SPDX-License-Identifier: Apache-2.0
"""A node that carries an instance already gets a reservation."""

from oslo_db import exception as db_exc

from ironic_reservations import events
from ironic_reservations import exception
from ironic_reservations.db import engine
from ironic_reservations.db import node_rows
from ironic_reservations.db import reservation_rows
from ironic_reservations.fleet import search
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import transaction
from ironic_reservations.reservations import values


def adopt(instance_uuid, spec, assignment, holder=None, group=None):
    """Make a reservation of the node that carries an instance already.

    Nothing of the node is written. Adopting again for the same host stores
    the request spec anew, and the project and user if they are named: a
    rebuild may have changed them.

    :param spec: request_spec.RequestSpec, with which the node is not
        compared.
    :param assignment: values.Assignment.
    :param holder: when given, only while the host's lease is this holder's.
    :param group: membership.Named of which the reservation is a member from
        now on, whatever the group's policy says of the node, unless it is a
        member of one already; or None.
    :returns: the Reservation, and True when this call has made it.
    :raises: NotFound when no node carries the instance; Conflict when another
        host holds it, or the node is at work or has an allocation, or the
        group is another one; PreconditionFailed when the host is not the
        holder's; DeadlineExceeded.
    """
    columns = {**vars(assignment), 'request_spec': spec.canonical}

    def attempt(run):
        for carried in lookup.carried(instance_uuid):
            if carried.is_expired:
                expiry.forget(instance_uuid)
                raise lookup.not_found(instance_uuid)
            _check(instance_uuid, carried, assignment.host)
            place = membership.Place.find(group)
            if carried.group_uuid:
                # A member of a group stays one, and where it was.
                place = membership.Place()
            return _write(run, instance_uuid, carried, columns,
                          place), carried.id is None
        raise exception.NotFound(f'No node carries instance {instance_uuid}.')

    return transaction.attempts(
        attempt, values.Actor(assignment.host, holder))


def _check(instance_uuid, carried, host):
    """Raise unless a host may adopt an instance.

    :param carried: Reservation, with the node alone where there is none yet.
    :raises: Conflict.
    """
    if None not in (carried.id, carried.host, host) and carried.host != host:
        raise lookup.in_use(instance_uuid)
    if carried.lock is not None:
        raise exception.Conflict(
            f'The node of instance {instance_uuid} is locked by a conductor; '
            f'try again.')
    if carried.provision_state not in values.AT_REST:
        raise exception.Conflict(
            f'The node of instance {instance_uuid} is '
            f'{carried.provision_state}; it can be adopted while the node is '
            f'at rest.')
    if carried.is_allocated:
        raise exception.Conflict(
            f'The node of instance {instance_uuid} has an allocation of '
            f'Ironic\'s, which holds it.')


def _write(run, instance_uuid, carried, columns, place):
    """Insert or refresh a reservation, in one transaction.

    :param carried: Reservation, with the node alone where there is none yet.
    :param columns: dict.
    :returns: the Reservation as it is then.
    :raises: Again.
    """
    rows = engine.fetch_rows(node_rows.select_carrier(instance_uuid))
    [node] = [search.make_node(row._mapping) for row in rows] or [None]
    if node is None:
        raise transaction.Again()
    try:
        with transaction.write(run) as tx:
            group = place.join(tx)
            columns = {**columns, **place.columns(group, node)}
            if carried.id is None:
                tx.one(reservation_rows.adopt_node(
                    node.id, instance_uuid, values.AT_REST, columns))
            else:
                named = {name: value for name, value in columns.items()
                         if value is not None}
                tx.one(reservation_rows.update_row(
                    carried.id, values.AT_REST, {**named, 'lease': None},
                    carried.host))
            adopted = tx.read('instance_uuid', instance_uuid)
            tx.emits(events.ADOPTED if carried.id is None
                     else events.REFRESHED, adopted)
        return adopted
    except db_exc.DBDuplicateEntry:
        # Another request has begun the group, or a row whose node has moved
        # on stands in the way.
        expiry.forget(instance_uuid, node_ids=[node.id])
        raise transaction.Again()
