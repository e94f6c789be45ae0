# SPDX-License-Identifier: Apache-2.0
"""Reads notices: lists, those of some nodes, and their numbers."""

from collections.abc import Collection
from collections.abc import Mapping

import sqlalchemy as sa

from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import notice_rows


def read_notices(*where: sa.ColumnElement[bool],
                 reach: values.Ownership = values.ALL,
                 limit: int | None = None) -> list[values.Notice]:
    """Return notices in the order of creation.

    :param reach: that of the caller.
    """
    return [values.Notice(**row._mapping) for row in engine.fetch_rows(
        notice_rows.select_notices(
            *where, reach=reach).limit(limit))]


@engine.retry
def find_position(uuid: str, reach: values.Ownership) -> list[int]:
    """Return the id of the last notice with a UUID; empty without one."""
    return [notice.id for notice in read_notices(
        notice_rows.has_text('uuid', uuid), reach=reach)][-1:]


@engine.retry
def find_notices(filters: Mapping[str, str], reach: values.Ownership,
                 after: int | None, limit: int) -> list[values.Notice]:
    """Return a page of notices, in the order of creation.

    :param filters: values of ``uuid``, ``node`` (UUID or name), ``kind``,
        ``state``, ``ticket``, ``overdue`` and ``project_id``.
    :param reach: that of the caller.
    :param after: id of the last notice of the page before.
    """
    conditions = {'node': notice_rows.is_on_node,
                  'state': notice_rows.is_in_state,
                  'overdue': notice_rows.is_overdue}
    where = [conditions[name](value) if name in conditions
             else notice_rows.has_text(name, value)
             for name, value in filters.items()]
    if after is not None:
        where.append(notice_rows.is_after(after))
    return read_notices(*where, reach=reach, limit=limit)


@engine.retry
def find_on_nodes(node_ids: Collection[int], reach: values.Ownership
                  ) -> dict[int, values.NodeNotices]:
    """Return the planned and the open notices of nodes, by the node's id.

    :param reach: that of the caller.
    """
    notices: dict[int, values.NodeNotices] = {}
    for row in engine.fetch_rows(
            notice_rows.select_on_nodes(node_ids, reach)):
        columns = dict(row._mapping)
        total = columns.pop('total')
        rows = (*notices.get(row.node_id, values.NodeNotices()).shown,
                values.Notice(**columns))
        notices[row.node_id] = values.NodeNotices(rows, total - len(rows))
    return notices


@engine.retry
def find_overdue() -> list[values.Notice]:
    """Return the overdue notices, in the order of creation."""
    return read_notices(notice_rows.is_overdue('true'))


@engine.retry
def find_project_cordons() -> list[values.Notice]:
    """Return the open cordons of projects, in the order of creation."""
    return read_notices(notice_rows.IS_PROJECT_CORDON)


@engine.retry
def count_notices() -> dict[tuple[str, str], int]:
    """Return the numbers of planned and open notices by kind and state."""
    return {(kind, state): number for kind, state, number
            in engine.fetch_rows(notice_rows.COUNT)}


@engine.retry
def count_overdue() -> dict[str, int]:
    """Return the numbers of overdue notices by kind."""
    return {row.kind: row.number
            for row in engine.fetch_rows(notice_rows.COUNT_OVERDUE)}


@engine.retry
def count_failed_builds() -> int:
    """Return the number of nodes with an open notice of a failed build."""
    [[number]] = engine.fetch_rows(notice_rows.COUNT_FAILED_BUILDS)
    return int(number)
