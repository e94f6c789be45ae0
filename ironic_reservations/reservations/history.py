# SPDX-License-Identifier: Apache-2.0
"""Reads and sweeps the history: the reservations that have ended.

``Transaction.record_end`` writes it.
"""

import dataclasses
import datetime
from typing import Any

from oslo_utils import uuidutils

from ironic_reservations import conf
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import history_rows
from ironic_reservations.reservations import transaction


@dataclasses.dataclass(frozen=True)
class Filters:
    """Which reservations to list; None for any.

    :param reach: that of the caller.
    :param node: UUID or name of a node. If no node that the caller sees has
        the name, nodes that had it.
    :param instance_uuid: in lower case.
    :param ended_after: in seconds before now, or a time in UTC.
    """

    reach: values.Ownership = values.ALL
    node: str | None = None
    instance_uuid: str | None = None
    project_id: str | None = None
    ended_after: int | datetime.datetime | None = None


@engine.retry
def find_ended(filters: Filters, after: tuple[datetime.datetime, int] | None,
               limit: int) -> list[values.EndedReservation]:
    """Return a page of the history, the last end first.

    :param after: time of the end, and id, of the last row of the page before.
    """
    query = history_rows.select_ended(filters.reach).limit(limit)
    if filters.node is not None:
        node = filters.node.strip()
        if not uuidutils.is_uuid_like(node):
            for uuid, *projects in engine.fetch_rows(
                    history_rows.select_named(node)):
                if filters.reach.covers(*projects):
                    node = uuid
        query = query.where(history_rows.is_node(node))
    for name in ('instance_uuid', 'project_id'):
        if (value := getattr(filters, name)) is not None:
            query = query.where(history_rows.column_is(name, value))
    if filters.ended_after is not None:
        query = query.where(history_rows.ended_after(filters.ended_after))
    if after is not None:
        query = query.where(history_rows.is_after(*after))
    return [values.EndedReservation(**row._mapping)
            for row in engine.fetch_rows(query)]


@engine.retry
def find_position(instance_uuid: str, reach: values.Ownership) -> list[Any]:
    """Return time of the end, and id, of the first reservation that ended.

    :returns: empty if none of the instance has ended.
    """
    return [value for row in engine.fetch_rows(
        history_rows.select_first(instance_uuid, reach))
        for value in (row.ended_at, row.id)]


def sweep() -> int:
    """Delete what ended long ago; return the number of reservations."""
    return transaction.delete_old(
        history_rows.history.c.ended_at, conf.CONF.reservations.history)
