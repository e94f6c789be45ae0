# SPDX-License-Identifier: Apache-2.0
"""Statements on the table ``reservations``."""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
import functools
from typing import Any

import sqlalchemy as sa

from ironic_reservations import values
from ironic_reservations.db import expressions
from ironic_reservations.db import functions
from ironic_reservations.db import host_rows
from ironic_reservations.db import models

nodes = models.nodes
reservations = models.reservations
groups = models.groups

#: Insert a row.
INSERT = sa.insert(reservations)

#: The columns of a new row.
COLUMNS = tuple(name for name in reservations.c.keys()
                if name not in ('id', 'updated_at'))


def adopt_node(node_id: int, instance_uuid: str, states: Collection[str],
               columns: Mapping[str, Any]) -> sa.Insert:
    """Insert the reservation of a node that already carries an instance.

    INSERT INTO reservations (instance_uuid, node_id, node_uuid, ...)
    SELECT :i, id, uuid, ... FROM nodes USE INDEX (PRIMARY)
    WHERE id = :n AND LOWER(instance_uuid) = :i AND allocation_id IS NULL
      AND reservation IS NULL AND provision_state IN (...)

    Finding the node by its id locks it in the same order as Ironic's
    statements. Finding it by instance_uuid would cause deadlocks.

    :param instance_uuid: in lower case.
    :param states: provision states in which it may be adopted.
    :param columns: values of ``host``, ``project_id``, ``user_id`` and
        ``request_spec``, and the columns of a group.
    """
    return sa.insert(reservations).from_select(
        ['instance_uuid', 'node_id', 'node_uuid', 'created_at', *columns],
        sa.select(sa.literal(instance_uuid), nodes.c.id, nodes.c.uuid,
                  functions.utcnow(), *(
                      sa.literal(value, reservations.c[name].type)
                      for name, value in columns.items())
                  ).where(nodes.c.id == node_id,
                          expressions.carries(instance_uuid),
                          nodes.c.allocation_id.is_(None),
                          expressions.UNLOCKED,
                          nodes.c.provision_state.in_(states)
                          ).with_hint(nodes, 'USE INDEX (PRIMARY)',
                                      dialect_name='mysql'))


#: Columns and expressions by the attributes of values.Reservation.
VIEW: dict[str, Any] = {
    **{column.name: column for column in reservations.c},
    # As the node spells it.
    'instance_uuid': sa.case(
        (expressions.carries(reservations.c.instance_uuid),
         nodes.c.instance_uuid), else_=reservations.c.instance_uuid),
    'group_uuid': groups.c.uuid, 'group_policy': groups.c.policy,
    'group_by': groups.c.by,
    'group_segment_levels': groups.c.segment_levels,
    'node_name': nodes.c.name,
    'node_owner': nodes.c.owner, 'node_lessee': nodes.c.lessee,
    'pool_project_id': expressions.POOL_PROJECT,
    'provision_state': nodes.c.provision_state,
    'resource_class': nodes.c.resource_class,
    'maintenance': nodes.c.maintenance,
    'health': functions.optional(nodes.c.health),
    'has_notices': sa.exists().where(
        expressions.NOTICE_ON_NODE, expressions.NOTICE_ENDS_LATER
    ).correlate(nodes),
    'lock': nodes.c.reservation,
    'is_allocated': nodes.c.allocation_id.is_not(None),
    'is_touched': sa.func.coalesce(expressions.TOUCHED, sa.false()),
    'is_expired': sa.func.coalesce(expressions.EXPIRED, sa.false()),
}

_BRIEF = tuple(name for name in VIEW
               if name not in ('request_spec', 'has_notices'))

#: The length of a reservation's request spec, as ``spec_length``.
SPEC_LENGTH = sa.func.length(reservations.c.request_spec).label('spec_length')


def _select_view(source: sa.FromClause, names: Iterable[str] | None = None
                 ) -> sa.Select[Any]:
    """Select the attributes of values.Reservation.

    :param source: a join of reservations and nodes.
    :param names: keys of ``VIEW``; None for all except the request spec, which
        is much longer than the rest, and ``has_notices``: both are rarely
        needed in lists.
    """
    return sa.select(*(
        VIEW[name].label(name) for name in (_BRIEF if names is None else names)
    )).select_from(source.outerjoin(
        groups, groups.c.id == reservations.c.group_id))


def select_carriers(*instance_uuids: str) -> sa.Select[Any]:
    """Select the nodes that carry instances, with reservations if they exist.

    SELECT ... FROM nodes LEFT JOIN reservations
      ON node_id = nodes.id AND reservations.instance_uuid = ...
    WHERE nodes.instance_uuid IN (...)
    """
    names = [name for name in VIEW if name != 'instance_uuid']
    return _select_view(
        nodes.outerjoin(reservations, expressions.CARRIED), names
    ).add_columns(nodes.c.instance_uuid).where(
                     expressions.is_uuid(nodes.c.instance_uuid,
                                         *instance_uuids))


def select_live(reach: values.Ownership = values.ALL,
                names: Iterable[str] | None = None) -> sa.Select[Any]:
    """Select the live reservations with their nodes.

    :param reach: if it is limited, only reservations of its project, and
        those on nodes that the project owns.
    :param names: see ``_select_view``.
    """
    source = reservations.join(nodes, expressions.CARRIED)
    if reach.is_limited:
        # A union, because each of its parts can use an index.
        ids = sa.union(
            sa.select(reservations.c.id).where(
                expressions.equals_text(
                    reservations.c.project_id, reach.project_id)),
            sa.select(reservations.c.id).join(
                nodes, expressions.CARRIED).where(
                    expressions.equals_text(nodes.c.owner, reach.project_id))
        ).subquery()
        source = source.join(ids, ids.c.id == reservations.c.id)
    return _select_view(source, names).where(expressions.LIVE)


#: Count the reservations that are not stale.
COUNT_CARRIED = sa.select(sa.func.count()).select_from(
    reservations.join(nodes, expressions.CARRIED))


def select_past_lease(limit: int | None = None) -> sa.Select[Any]:
    """Select reservations past their lease, expired or not, in random order.
    """
    return _select_view(reservations.join(nodes, expressions.CARRIED)).where(
        expressions.PAST_LEASE).order_by(sa.func.random()).limit(limit)


def select_overdue(states: Collection[str]) -> sa.Select[Any]:
    """Select reservations past their lease on whose node work has begun.

    :param states: provision states in which the lease does not matter, because
        the node is being deployed, in use or being torn down.
    """
    return _select_view(reservations.join(nodes, expressions.CARRIED)).where(
        expressions.PAST_LEASE, expressions.TOUCHED,
        sa.func.coalesce(nodes.c.provision_state, '').not_in(states),
    ).order_by(reservations.c.expires_at, reservations.c.id)


@functools.cache
def select_fenced(has_target: bool, has_holder: bool) -> sa.Select[Any]:
    """Select the reservation by which a host holds a node for an instance.

    SELECT ..., EXISTS (<the host's lease>) FROM reservations JOIN nodes ...
    WHERE instance_uuid = :instance AND host = :host_name
      AND nodes.uuid IN (:node) AND <live>
      AND NOT EXISTS (SELECT 1 FROM volume_targets
                      WHERE uuid IN (:target) AND node_id != nodes.id)

    ``:node`` and ``:target`` are lists of spellings. Ironic reports a volume
    target that does not exist.

    The statement is cached, because building it takes as long as executing it.

    :param has_target: whether there is a volume target, which must not belong
        to another node.
    :param has_holder: whether ``is_host`` depends on ``:holder_id`` having the
        host lease.
    """
    def bind(name: str, expanding: bool = False) -> sa.BindParameter[str]:
        return sa.bindparam(name, type_=sa.String, expanding=expanding)

    is_host = host_rows.SELECT_HOST_LEASE.exists() if has_holder else sa.true()
    query = select_live(names=('instance_uuid', 'project_id', 'node_owner')
                 ).add_columns(is_host.label('is_host')).where(
                     reservations.c.instance_uuid == bind('instance'),
                     column_is('host', bind('host_name')),
                     nodes.c.uuid.in_(bind('node', expanding=True)))
    if not has_target:
        return query
    targets = models.volume_targets
    return query.where(~sa.exists().where(
        targets.c.uuid.in_(bind('target', expanding=True)),
        targets.c.node_id != nodes.c.id
    ).correlate(nodes))


def select_members(group_id: int, after: int = -1, limit: int | None = None,
                   names: Iterable[str] | None = None) -> sa.Select[Any]:
    """Select the live members of a group in the order of their nodes' ids.

    :param after: only members whose node has a higher id.
    :param limit: maximum number of members; None for all.
    :param names: see ``_select_view``.
    """
    return select_live(names=names).where(
        reservations.c.group_id == group_id, reservations.c.node_id > after
    ).order_by(reservations.c.node_id).limit(limit)


def select_group_rows(group_id: int) -> sa.Select[Any]:
    """Select all rows of a group, also expired and stale ones."""
    return _select_view(reservations.outerjoin(
        nodes, nodes.c.id == reservations.c.node_id)).where(
            reservations.c.group_id == group_id)


def select_request_specs(reservation_ids: Iterable[int]) -> sa.Select[Any]:
    """Select the request specs of reservations, with their ids."""
    return sa.select(reservations.c.id, reservations.c.request_spec).where(
        reservations.c.id.in_(reservation_ids))


def is_instance(uuid: str) -> sa.ColumnElement[bool]:
    """Return the condition that a reservation is of an instance."""
    return reservations.c.instance_uuid == uuid.lower()


def column_is(name: str, value: Any) -> sa.ColumnElement[bool]:
    """Return the condition that a column in ``VIEW`` has a value.

    For the instance see ``is_instance``.
    """
    return expressions.equals_text(VIEW[name], value)


def belongs_to_project(project_id: str | None) -> sa.ColumnElement[bool]:
    """Return the condition that a reservation is of a project, or of none."""
    column = reservations.c.project_id
    return (column.is_(None) if project_id is None
            else expressions.equals_text(column, project_id))


def is_in_states(states: Collection[str] | None,
                 known_states: Mapping[str, Collection[str]]
                 ) -> sa.ColumnElement[bool]:
    """Return the condition that a node is in one of some provision states.

    :param states: None for all states that are not in ``known_states``.
    """
    state = nodes.c.provision_state
    if states is not None:
        return state.in_(states)
    return sa.or_(state.is_(None), state.not_in(
        [name for names in known_states.values() for name in names]))


#: Select the resource classes of all nodes, as bytes.
NODE_CLASSES = sa.select(
    functions.as_bytes(nodes.c.resource_class)).distinct()


def has_class(names: Iterable[str]) -> sa.ColumnElement[bool]:
    """Return the condition that a node has one of some resource classes.

    :param names: as the nodes spell them.
    """
    return sa.or_(sa.false(), *(
        column_is('resource_class', name) for name in names))


#: Like values.Reservation.effective_expiry.
_EFFECTIVE_EXPIRY = sa.case((nodes.c.provision_state == 'available',
                             reservations.c.expires_at))


def expires_before(moment: int | datetime.datetime
                   ) -> sa.ColumnElement[bool]:
    """Return the condition that a reservation expires before a time.

    :param moment: in seconds from now, or a time in UTC.
    """
    return _EFFECTIVE_EXPIRY < (
        functions.seconds_from_now(moment) if isinstance(moment, int)
        else moment)


#: Substitutes for NULL in sort order, by column, on all databases and pages.
NULL_VALUES: dict[str, Any] = {column.name: {
    sa.DateTime: datetime.datetime.min, sa.Integer: 0}.get(
        type(column.type), '') for column in reservations.c}


def order_rows(query: sa.Select[Any], order: Mapping[str, str],
               after: Sequence[Any] | None) -> sa.Select[Any]:
    """Sort a query by columns, and begin after a row.

    :param order: see lookup.find_reservations.
    :param after: values of the row, in the same order, or None.
    """
    columns = [sa.func.coalesce(
        _EFFECTIVE_EXPIRY if name == 'expires_at' else reservations.c[name],
        NULL_VALUES[name], type_=reservations.c[name].type) for name in order]
    query = query.order_by(*(
        getattr(column, direction)()
        for column, direction in zip(columns, order.values(), strict=True)))
    if after is None:
        return query
    same: list[sa.ColumnElement[bool]] = []
    later: list[sa.ColumnElement[bool]] = []
    for column, direction, value in zip(
            columns, order.values(), after, strict=True):
        later.append(sa.and_(
            *same, column > value if direction == 'asc' else column < value))
        same.append(column == value)
    return query.where(sa.or_(*later))


# The node does not carry the instance.
_STALE = ~sa.exists().where(expressions.CARRIED).correlate(reservations)


def select_stale(instance_uuids: Collection[str],
                 node_ids: Collection[int]) -> sa.Select[Any]:
    """Select stale rows with their node.

    Selects the rows of these instances and nodes; all if both are empty.
    """
    query = _select_view(reservations.outerjoin(
        nodes, nodes.c.id == reservations.c.node_id)).where(_STALE)
    if not (instance_uuids or node_ids):
        return query
    return query.where(sa.or_(
        reservations.c.instance_uuid.in_(
            [uuid.lower() for uuid in instance_uuids]),
        reservations.c.node_id.in_(node_ids)))


def delete_stale_row(reservation: values.Reservation) -> sa.Delete:
    """Delete a row unless its node carries its instance again."""
    return delete_rows(reservation).where(_STALE)


#: Argument of ``update_rows``: any host, or none.
ANY_HOST = object()


def update_rows(reservation_ids: Collection[int | None],
                states: Collection[str] | None, changes: Mapping[str, Any],
                host: object = ANY_HOST) -> sa.Update:
    """Change the rows of live reservations.

    UPDATE reservations SET host = :h, expires_at = ... WHERE id IN (...)
      AND <the host holds it>
      AND EXISTS (SELECT 1 FROM nodes WHERE <it carries this>
                  AND provision_state IN (...) AND <not expired>)

    An expired or stale reservation is not changed, because other requests may
    have seen already that it does not exist.

    :param states: provision states in which they may be changed; None for any.
    :param changes: values by column. ``lease`` is in seconds; None for a
        reservation that does not expire.
    :param host: the host that must hold them; None for no host.
    """
    columns: dict[str, Any] = {'updated_at': functions.utcnow(), **changes}
    if 'lease' in changes:
        columns['expires_at'] = _make_expiry(columns.pop('lease'))
    conditions = [expressions.CARRIED, expressions.LIVE]
    if states is not None:
        conditions.append(nodes.c.provision_state.in_(states))
    statement = sa.update(reservations).where(
        reservations.c.id.in_(reservation_ids),
        sa.exists().where(*conditions).correlate(reservations)
    ).values(columns)
    return (statement if host is ANY_HOST
            else statement.where(_is_held_by(host)))


def _make_expiry(seconds: int | None) -> sa.ColumnElement[Any]:
    return functions.seconds_from_now(seconds) if seconds else sa.null()


def _is_held_by(host: object) -> sa.ColumnElement[bool]:
    return (reservations.c.host.is_(None) if host is None
            else expressions.equals_text(reservations.c.host, host))


def clear_leases(states: Collection[str]) -> sa.Update:
    """Clear ``expires_at`` of reservations past their lease on deployed nodes.

    Their lease has no effect.

    :param states: provision states from which a node cannot become available
        without losing its instance.
    """
    return sa.update(reservations).where(
        expressions.PAST_LEASE,
        sa.exists().where(
            expressions.CARRIED, nodes.c.provision_state.in_(states)
        ).correlate(reservations),
    ).values(expires_at=None)


def delete_rows(*rows: values.Reservation) -> sa.Delete:
    """Delete rows that are still in the group in which they were read.

    :param rows: reservations of one group, or of none.
    """
    return sa.delete(reservations).where(
        reservations.c.id.in_([row.id for row in rows]),
        reservations.c.group_id.is_not_distinct_from(rows[0].group_id))


#: A write that changes nothing, because no id is negative.
DELETE_NOTHING = sa.delete(reservations).where(reservations.c.id == -1)


def delete_unmoved_rows(*rows: values.Reservation) -> sa.Delete:
    """Like ``delete_rows``, but only rows whose host has not changed."""
    ids: dict[str | None, list[int | None]] = {}
    for row in rows:
        ids.setdefault(row.host, []).append(row.id)
    return delete_rows(*rows).where(sa.or_(*(
        sa.and_(_is_held_by(host), reservations.c.id.in_(host_ids))
        for host, host_ids in ids.items())))


def delete_expired_row(reservation: values.Reservation) -> sa.Delete:
    """Delete a row unless its lease was renewed."""
    return delete_rows(reservation).where(expressions.PAST_LEASE)
