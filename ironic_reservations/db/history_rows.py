# SPDX-License-Identifier: Apache-2.0
"""Statements on the history, the table ``reservations_history``."""

from collections.abc import Sequence
import datetime
from typing import Any

import sqlalchemy as sa

from ironic_reservations import values
from ironic_reservations.db import expressions
from ironic_reservations.db import functions
from ironic_reservations.db import models

nodes = models.nodes
history = models.history
reservations = models.reservations

_COPIED = [name for name in history.c.keys() if name in reservations.c]
_GROUP = [name for name in history.c.keys() if name.startswith('group_')]


def copy_rows(rows: Sequence[values.Reservation], ended_by: str) -> sa.Insert:
    """Copy rows that the transaction is about to delete.

    INSERT IGNORE INTO reservations_history (id, ..., ended_at, ended_by)
    SELECT reservations.id, ..., UTC_TIMESTAMP(), :ended_by
    FROM reservations LEFT JOIN nodes ON nodes.id = node_id AND ...
    WHERE reservations.id IN (...) FOR UPDATE

    A copy with the same id must not prevent the end. FOR UPDATE avoids a
    deadlock of two transactions that first share the lock of a row, and then
    both delete it.

    :param rows: all of one group, or of none.
    :param ended_by: one of ``constants.ENDS``.
    """
    columns: dict[str, Any] = {
        **{name: reservations.c[name] for name in _COPIED},
        # The row of the group is not read, because that would lock it.
        **{name: sa.literal(getattr(rows[0], name), history.c[name].type)
           for name in _GROUP},
        'node_name': nodes.c.name, 'node_owner': nodes.c.owner,
        'ended_at': functions.utcnow(), 'ended_by': sa.literal(ended_by)}
    statement = sa.insert(history).from_select(
        [*columns], sa.select(*columns.values()).select_from(
            reservations.outerjoin(nodes, sa.and_(
                nodes.c.id == reservations.c.node_id,
                nodes.c.uuid == reservations.c.node_uuid))
        ).where(reservations.c.id.in_([row.id for row in rows])
                ).with_for_update())
    for dialect, prefix in (('mysql', 'IGNORE'), ('mariadb', 'IGNORE'),
                            ('sqlite', 'OR IGNORE')):
        statement = statement.prefix_with(prefix, dialect=dialect)
    return statement


def select_ended(reach: values.Ownership = values.ALL) -> sa.Select[Any]:
    """Select reservations that have ended, the last one first.

    :param reach: if it is limited, only those that ended on a node while its
        project owned it. The present values of the node are NULL if the
        project does not own it any more.
    """
    present = [nodes.c.id == history.c.node_id,
               nodes.c.uuid == history.c.node_uuid]
    where = []
    if reach.is_limited:
        present.append(expressions.equals_text(nodes.c.owner,
                                               reach.project_id))
        where.append(column_is('node_owner', reach.project_id))
    return sa.select(
        history, nodes.c.resource_class, nodes.c.maintenance,
        functions.optional(nodes.c.health).label('health'),
    ).select_from(history.outerjoin(nodes, sa.and_(*present))).where(
        *where).order_by(history.c.ended_at.desc(), history.c.id.desc())


def select_first(instance_uuid: str, reach: values.Ownership
                 ) -> sa.Select[Any]:
    """Select the reservation of an instance that ended first.

    :param reach: that of the caller.
    """
    return select_ended(reach).where(
        column_is('instance_uuid', instance_uuid)).order_by(None).order_by(
        history.c.ended_at, history.c.id).limit(1)


def column_is(name: str, text: str | None) -> sa.ColumnElement[bool]:
    """Return the condition that a column of the history has a text."""
    return expressions.equals_text(history.c[name], text)


def select_named(name: str) -> sa.Select[Any]:
    """Select UUID, owner, lessee and pool project of the node with a name.

    :returns: at most one row; see ``values.Ownership.covers``.
    """
    return sa.select(
        nodes.c.uuid, nodes.c.owner, nodes.c.lessee, expressions.POOL_PROJECT
    ).where(expressions.is_node(name))


def is_node(ident: str) -> sa.ColumnElement[bool]:
    """Return the condition that a node has this UUID, or had this name."""
    return expressions.is_node(ident, history.c.node_uuid,
                               history.c.node_name)


def ended_after(moment: int | datetime.datetime) -> sa.ColumnElement[bool]:
    """Return the condition that a reservation ended after a time.

    :param moment: in seconds before now, or a time in UTC.
    """
    return history.c.ended_at > (
        functions.seconds_from_now(-moment) if isinstance(moment, int)
        else moment)


def is_after(ended_at: datetime.datetime, row_id: int
             ) -> sa.ColumnElement[bool]:
    """Return the condition that a row comes after another in the list."""
    return sa.or_(history.c.ended_at < ended_at, sa.and_(
        history.c.ended_at == ended_at, history.c.id < row_id))
