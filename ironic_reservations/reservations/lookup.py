# SPDX-License-Identifier: Apache-2.0
"""Reservations are found here: one, those of a group, and lists."""

import dataclasses
import math

from ironic_reservations import constants
from ironic_reservations import exception
from ironic_reservations.db import engine
from ironic_reservations.db import host_rows
from ironic_reservations.db import reservation_rows
from ironic_reservations.reservations import transaction
from ironic_reservations.reservations import values

#: What NULL sorts as, by column.
LEAST = reservation_rows.LEAST


@engine.retry
def get(instance_uuid, authorize=lambda reservation: None):
    """Return the reservation of an instance.

    :param authorize: called with the Reservation; it raises when the caller
        may not do this to it, NotFound when the caller may not see it.
    :raises: NotFound; what ``authorize`` raises.
    """
    held = live(instance_uuid)
    authorize(held)
    return held


def live(instance_uuid, restricted_to=None):
    """The reservation of an instance, if it counts.

    :param restricted_to: when given, only reservations of this project and
        those on nodes that it owns.
    :raises: NotFound.
    """
    query = reservation_rows.select_live(restricted_to, reservation_rows.VIEW)
    for held in transaction.read(query.where(
            reservation_rows.column_is('instance_uuid', instance_uuid))):
        return held
    raise not_found(instance_uuid)


def not_found(instance_uuid):
    return exception.NotFound(
        f'No reservation of instance {instance_uuid} could be found.')


def in_use(instance_uuid):
    """The error for a request whose instance holds a node otherwise.

    It is one message for all cases, so that it reveals nothing.
    """
    return exception.Conflict(
        f'Instance {instance_uuid} already holds a node, for another request '
        f'or in a state that does not allow this one.')


def carried(*instance_uuids):
    """What is known of the nodes that carry instances.

    :returns: list of Reservation; the ``id`` is None where a node carries an
        instance without a reservation.
    """
    return transaction.read(reservation_rows.select_carriers(*instance_uuids))


@engine.retry
def named(uuid, project_id):
    """The live reservations of a project's instance, or else of its group.

    Those of other projects are left out before it is decided which of the
    two the UUID names, because nobody keeps another project from calling an
    instance by the UUID of this project's group.

    :param project_id: None for the reservations that are no project's.
    :returns: list of Reservation, without their request specs.
    """
    own = reservation_rows.select_live().where(
        reservation_rows.is_of_project(project_id))
    return (transaction.read(own.where(
                reservation_rows.column_is('instance_uuid', uuid)))
            or transaction.read(own.where(
                reservation_rows.column_is('group_uuid', uuid))))


@engine.retry
def fenced(instance_uuid, node_uuid, target_uuid, actor):
    """The reservation for which a request to Ironic is meant.

    Nothing is written or locked, whatever is found.

    :param target_uuid: of a volume target that must not be of another node,
        or None.
    :param actor: values.Actor, the host that must hold the reservation.
    :returns: Reservation, of which the project and the node's owner are read,
        and whether the actor is its host; None and False where the host does
        not hold the node for the instance.
    """
    query = reservation_rows.select_fenced(
        target_uuid is not None, actor.holder is not None)
    for row in engine.fetch_current_rows(query, {
            'instance': instance_uuid, 'node': node_uuid,
            'target': target_uuid, **host_rows.bind_holder(*actor)}):
        facts = dict(row._mapping)
        is_host = bool(facts.pop('is_host'))
        return values.Reservation(**facts), is_host
    return None, False


def of_group(group_id, behind=-1, limit=None):
    """The live members of a group, in the order of their nodes' ids.

    :param behind: only those behind a node of this id.
    :param limit: how many at most; None for all.
    :returns: list of Reservation, without their request specs.
    """
    return transaction.read(
        reservation_rows.select_members(group_id, behind, limit))


@dataclasses.dataclass(frozen=True)
class Filters:
    """Which reservations to list; None for any.

    :param restricted_to: only reservations of this project and those on nodes
        that it owns.
    :param state: one of ``constants.STATES``.
    :param node: UUID or name of a node.
    """

    restricted_to: str | None = None
    state: str | None = None
    node: str | None = None
    host: str | None = None
    project_id: str | None = None
    resource_class: str | None = None


@engine.retry
def find(filters=Filters(), order=None, after=None, limit=None,
         names=frozenset(reservation_rows.VIEW), room=math.inf):
    """Reservations, in order.

    :param order: dict from stored columns to ``asc`` or ``desc``; the first
        entry is the primary sort key, and ``id`` is one of them. None for the
        order in which they were made.
    :param after: ``position`` of the last one of the page before.
    :param limit: how many at most.
    :param names: the attributes of a Reservation to read, a set, besides those
        that ``position`` needs.
    :param room: how many bytes of request specs are of use; no more are read
        once there are as many.
    :returns: list of Reservation.
    """
    order = order or {'id': 'asc'}
    names = {'id', 'instance_uuid', 'provision_state'} | names | order.keys()
    query = reservation_rows.select_live(filters.restricted_to, [
        name for name in reservation_rows.VIEW
        if name in names - {'request_spec'}])
    if filters.state is not None:
        query = query.where(reservation_rows.is_in_states(
            constants.PROVISION_STATES.get(filters.state),
            constants.PROVISION_STATES))
    if filters.node is not None:
        query = query.where(reservation_rows.is_node(filters.node))
    for name in ('host', 'project_id', 'resource_class'):
        if (value := getattr(filters, name)) is not None:
            query = query.where(reservation_rows.column_is(name, value))
    query = reservation_rows.order_rows(query, order, after).limit(limit)
    return (_with_request_specs(query, room) if 'request_spec' in names
            else transaction.read(query))


def position(reservation, order):
    """Return the values by which a list is sorted, of one of its rows.

    :param order: see ``find``.
    """
    row = {name: getattr(reservation, name) for name in order}
    if 'expires_at' in row:
        row['expires_at'] = reservation.ends_at
    return [LEAST[name] if value is None else value
            for name, value in row.items()]


@engine.retry
def find_marker(instance_uuid, order, restricted_to=None):
    """Return the ``position`` of the reservation of an instance.

    :raises: InvalidInput when there is no such reservation.
    """
    try:
        return position(live(instance_uuid, restricted_to), order)
    except exception.NotFound:
        raise exception.InvalidInput(
            'marker', 'must be the instance UUID of a reservation')


def _with_request_specs(query, room):
    """Reservations, the length of whose request specs was known before.

    :param room: see ``find``.
    """
    while True:
        found, length = {}, 0
        for row in engine.fetch_rows(
                query.add_columns(reservation_rows.SPEC_LENGTH)):
            facts = found[row.id] = dict(row._mapping)
            length += facts.pop('spec_length')
            if length > room:
                break
        specs = engine.fetch_rows(reservation_rows.select_request_specs(found))
        if len(specs) == len(found):
            for row in specs:
                found[row.id] |= row._mapping
            return [values.Reservation(**facts) for facts in found.values()]
        # One of them has gone meanwhile.
        engine.check_deadline()
