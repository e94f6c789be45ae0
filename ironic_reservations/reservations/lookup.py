# SPDX-License-Identifier: Apache-2.0
"""Finds reservations: of an instance, of a group, or in lists."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import datetime
import math
from typing import Any

import sqlalchemy as sa

from ironic_reservations import context
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import expressions
from ironic_reservations.db import functions
from ironic_reservations.db import host_rows
from ironic_reservations.db import reservation_rows
from ironic_reservations.reservations import transaction
from ironic_reservations.shared import constants
from ironic_reservations.shared import resources

#: The values that stand for NULL when rows are sorted, by column.
NULL_VALUES = reservation_rows.NULL_VALUES


@engine.retry
def get_reservation(
        instance_uuid: str,
        authorize: Callable[[values.Reservation], None] = context.allow_all
) -> values.Reservation:
    """Return the reservation of an instance.

    :param authorize: raises if the caller may not do this to the reservation:
        NotFound if the caller may not see it.
    :raises: NotFound; what ``authorize`` raises.
    """
    reservation = _get_live(instance_uuid)
    authorize(reservation)
    return reservation


def _get_live(instance_uuid: str, reach: values.Ownership = values.ALL
              ) -> values.Reservation:
    """Return the reservation of an instance, unless it has expired.

    :param reach: that of the caller.
    :raises: NotFound.
    """
    query = reservation_rows.select_live(reach, reservation_rows.VIEW)
    for reservation in transaction.read_reservations(query.where(
            reservation_rows.is_instance(instance_uuid))):
        return reservation
    raise exception.NotFound.of(f'reservation of instance {instance_uuid}')


def make_conflict(instance_uuid: str | None) -> exception.Conflict:
    """Return the error for an instance that holds a node for another request.

    The message is the same in all cases, so that it reveals nothing.
    """
    return exception.Conflict(
        f'Instance {instance_uuid} already holds a node, for another request '
        f'or in a state that does not allow this one.')


def find_carriers(instance_uuids: Iterable[str]) -> list[values.Reservation]:
    """Return the nodes that carry instances, with their reservations.

    The ``id`` is None if a node carries an instance without a reservation.
    """
    return transaction.read_reservations(
        reservation_rows.select_carriers(*instance_uuids))


@engine.retry
def find_by_uuid(uuid: str, project_id: str | None
                 ) -> list[values.Reservation]:
    """Return a project's reservation of an instance, or a group's members.

    Only the project's own reservations decide whether the UUID is that of an
    instance or of a group, because another project can give an instance the
    UUID of this project's group.

    :param project_id: None for reservations without a project.
    :returns: reservations without their request specs.
    """
    query = reservation_rows.select_live().where(
        reservation_rows.belongs_to_project(project_id))
    return (transaction.read_reservations(query.where(
                reservation_rows.is_instance(uuid)))
            or transaction.read_reservations(query.where(
                reservation_rows.column_is('group_uuid', uuid))))


@engine.retry
def find_fenced(instance_uuid: str, node_uuid: str, target_uuid: str | None,
                actor: values.Actor
                ) -> tuple[values.Reservation | None, bool]:
    """Return the reservation that a request to Ironic names.

    Writes and locks nothing.

    :param target_uuid: a volume target, which must not belong to another
        node; None if the request has none.
    :param actor: the host that must hold the reservation.
    :returns: Reservation with its project and its node's owner, and whether
        the actor holds the host's lease; None and False if the host does not
        hold the node for the instance.
    """
    query = reservation_rows.select_fenced(
        target_uuid is not None, actor.holder is not None)
    for row in engine.fetch_current_rows(query, {
            'instance': instance_uuid,
            'node': expressions.list_spellings(node_uuid),
            'target': expressions.list_spellings(target_uuid or ''),
            **host_rows.bind_holder(*actor)}):
        columns = dict(row._mapping)
        is_host = bool(columns.pop('is_host'))
        return values.Reservation(**columns), is_host
    return None, False


def find_members(group_id: int, after: int = -1, limit: int | None = None
                 ) -> list[values.Reservation]:
    """Return live members of a group, sorted by the ids of their nodes.

    :param after: id of the node after which the page begins.
    :param limit: maximum number; None for all.
    :returns: reservations without their request specs.
    """
    return transaction.read_reservations(
        reservation_rows.select_members(group_id, after, limit))


@dataclasses.dataclass(frozen=True)
class Filters:
    """Which reservations to list; None for any.

    :param reach: that of the caller.
    :param state: one of ``constants.STATES``.
    :param node: UUID or name of a node.
    :param resource_class: in any spelling.
    :param expires_before: in seconds from now, or a time in UTC.
    """

    reach: values.Ownership = values.ALL
    state: str | None = None
    node: str | None = None
    host: str | None = None
    project_id: str | None = None
    resource_class: str | None = None
    group_uuid: str | None = None
    expires_before: int | datetime.datetime | None = None


@engine.retry
def find_reservations(
        filters: Filters = Filters(), order: Mapping[str, str] | None = None,
        after: Sequence[Any] | None = None, limit: int | None = None,
        names: Set[str] = frozenset(reservation_rows.VIEW),
        room: float = math.inf) -> list[values.Reservation]:
    """Return a page of the list of reservations.

    :param order: sort keys, the most significant first, with ``asc`` or
        ``desc``. ``id`` is one of them. None for the order of creation.
    :param after: ``get_position`` of the last row of the page before.
    :param limit: maximum number; None for all.
    :param names: attributes of a Reservation to read, besides those that
        ``get_position`` needs.
    :param room: maximum size in bytes of all request specs; the page ends
        after the request spec that exceeds it.
    """
    order = order or {'id': 'asc'}
    names = {'id', 'instance_uuid', 'provision_state'} | names | order.keys()
    query = reservation_rows.select_live(filters.reach, [
        name for name in reservation_rows.VIEW
        if name in names - {'request_spec'}])
    if filters.state is not None:
        query = query.where(reservation_rows.is_in_states(
            constants.PROVISION_STATES.get(filters.state),
            constants.PROVISION_STATES))
    if filters.node is not None:
        query = query.where(expressions.is_node(filters.node.strip()))
    if filters.resource_class is not None:
        query = query.where(reservation_rows.has_class(
            _find_spellings(filters.resource_class)))
    if filters.expires_before is not None:
        query = query.where(
            reservation_rows.expires_before(filters.expires_before))
    for name in ('host', 'project_id', 'group_uuid'):
        if (value := getattr(filters, name)) is not None:
            query = query.where(reservation_rows.column_is(name, value))
    query = reservation_rows.order_rows(query, order, after).limit(limit)
    return (_read_with_specs(query, room) if 'request_spec' in names
            else transaction.read_reservations(query))


def _find_spellings(resource_class: str) -> list[str]:
    """Return how nodes spell a resource class."""
    normal_class = resources.normalize_class(resource_class)
    names = (functions.decode_text(name) for (name,) in engine.fetch_rows(
        reservation_rows.NODE_CLASSES))
    return [name for name in names if matching.has_class(name, normal_class)]


def get_position(reservation: values.Reservation, order: Iterable[str]
                 ) -> list[Any]:
    """Return the values of a row by which a list is sorted.

    :param order: sort keys, the most significant first.
    """
    row = {name: getattr(reservation, name) for name in order}
    if 'expires_at' in row:
        row['expires_at'] = reservation.effective_expiry
    if 'instance_uuid' in row:
        row['instance_uuid'] = str(reservation.instance_uuid).lower()
    return [NULL_VALUES[name] if value is None else value
            for name, value in row.items()]


@engine.retry
def find_position(instance_uuid: str, order: Iterable[str],
                  reach: values.Ownership = values.ALL) -> list[Any]:
    """Return the ``get_position`` of the reservation of an instance.

    :returns: empty if the caller sees no such reservation.
    """
    try:
        return get_position(_get_live(instance_uuid, reach), order)
    except exception.NotFound:
        return []


def _read_with_specs(query: sa.Select[Any], room: float
                     ) -> list[values.Reservation]:
    """Return reservations with their request specs.

    The lengths of the request specs are read first.

    :param room: see ``find_reservations``.
    """
    while True:
        columns: dict[int, dict[str, Any]] = {}
        length = 0
        for row in engine.fetch_rows(
                query.add_columns(reservation_rows.SPEC_LENGTH)):
            columns[row.id] = dict(row._mapping)
            length += columns[row.id].pop('spec_length')
            if length > room:
                break
        specs = engine.fetch_rows(
            reservation_rows.select_request_specs(list(columns)))
        if len(specs) == len(columns):
            for row in specs:
                columns[row.id] |= row._mapping
            return [values.Reservation(**row) for row in columns.values()]
        # One of the rows was deleted after the first query.
        engine.check_deadline()
