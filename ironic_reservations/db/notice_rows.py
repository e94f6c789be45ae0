# SPDX-License-Identifier: Apache-2.0
"""Statements on notices, the table ``reservations_notices``."""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
from typing import Any

from oslo_utils import uuidutils
import sqlalchemy as sa

from ironic_reservations import values
from ironic_reservations.db import expressions
from ironic_reservations.db import functions
from ironic_reservations.db import models

nodes = models.nodes
notices = models.notices
pools = models.pools
pool_nodes = models.pool_nodes
reservations = models.reservations

#: Insert a notice.
INSERT = sa.insert(notices).values(created_at=functions.utcnow())

#: Columns that are times, and all that are more than texts.
TIMES = frozenset(field.name
                  for field in dataclasses.fields(values.NoticeTimes))
EFFECTS = TIMES | {'cordon'}

#: Number of notices that a reservation or a node of a pool shows.
SHOWN = 32

# The node of the notice exists. A node that was enrolled again under its UUID
# is another node.
_HAS_NODE = nodes.c.id.is_not(None)

#: The notice has not ended, but its node no longer exists.
LOST = sa.and_(expressions.NOTICE_ENDS_LATER, sa.not_(_HAS_NODE))

_STATES = {'planned': sa.and_(_HAS_NODE, expressions.NOTICE_PLANNED),
           'open': sa.and_(_HAS_NODE, expressions.NOTICE_OPEN),
           'closed': sa.or_(sa.not_(expressions.NOTICE_ENDS_LATER),
                            sa.not_(_HAS_NODE))}

# The database's clock has reached the time at which the work should be done.
_OVERDUE = sa.and_(_STATES['open'], sa.func.coalesce(
    notices.c.due_at <= functions.utcnow(), sa.false()))

_STATE = sa.case(*((condition, name) for name, condition in _STATES.items()))

_IS_FAILED_BUILD = notices.c.is_failed_build == sa.true()
_IS_NO_FAILED_BUILD = notices.c.is_failed_build == sa.false()

#: A project has reported a fault of the node, with a cordon that is open.
IS_PROJECT_CORDON = sa.and_(
    _HAS_NODE, expressions.IS_CORDON,
    notices.c.project_id.is_not(None), _IS_NO_FAILED_BUILD)

# Notices with their nodes, which may have been deleted.
_NOTICES = notices.outerjoin(nodes, expressions.NOTICE_ON_NODE)


def select_notices(*where: sa.ColumnElement[bool],
                   reach: values.Ownership = values.ALL) -> sa.Select[Any]:
    """Select notices with their state and their nodes, in order of id.

    SELECT ..., state, overdue, node_name, node_owner FROM reservations_notices
    LEFT JOIN nodes ON nodes.id = node_id AND nodes.uuid = node_uuid
    WHERE ... ORDER BY id

    :param where: conditions on the notices and their nodes.
    :param reach: if it is limited, only notices that its project may see:
        those on nodes that it owns, its own, and on nodes that it has reserved
        or has in a pool those of operators and owners, except those of failed
        builds.
    """
    query = sa.select(
        *(column for column in notices.c if column.name != 'node_name'),
        sa.case((_HAS_NODE, nodes.c.name),
                else_=notices.c.node_name).label('node_name'),
        nodes.c.owner.label('node_owner'), _HAS_NODE.label('has_node'),
        _STATE.label('state'), _OVERDUE.label('overdue'),
    ).order_by(notices.c.id)
    if not reach.is_limited:
        return query.select_from(_NOTICES).where(*where)
    ids = _select_visible(where, reach.project_id)
    return query.select_from(_NOTICES.join(ids, ids.c.id == notices.c.id))


def _select_visible(where: Collection[sa.ColumnElement[bool]],
                    project_id: str | None) -> sa.Subquery:
    """Select the ids of the notices that a project may see."""
    is_public = sa.and_(notices.c.project_id.is_(None), _IS_NO_FAILED_BUILD)
    # A union, because each of its parts can use an index.
    return sa.union(*(
        sa.select(notices.c.id).select_from(source).where(*conditions, *where)
        for source, *conditions in (
            (_NOTICES, expressions.equals_text(nodes.c.owner, project_id)),
            (_NOTICES, has_text('project_id', project_id),
             _IS_NO_FAILED_BUILD),
            (_NOTICES.join(reservations, sa.and_(expressions.CARRIED,
                                                 expressions.LIVE)),
             expressions.equals_text(reservations.c.project_id, project_id),
             is_public),
            (_NOTICES.join(pool_nodes, expressions.IN_POOL).join(
                pools, sa.and_(pools.c.id == pool_nodes.c.pool_id,
                               expressions.POOL_LIVE)),
             expressions.equals_text(pools.c.project_id, project_id),
             is_public)))).subquery()


def select_on_nodes(node_ids: Collection[int],
                    reach: values.Ownership) -> sa.Select[Any]:
    """Select the first planned and open notices of each of some nodes.

    Open cordons come first, then the newest. Only the ids of the others are
    read, to count them.

    :returns: rows of ``select_notices`` and ``total``, the number of such
        notices that the node has and the caller may see.
    """
    visible: sa.FromClause = _NOTICES
    where = affects(node_ids)
    if reach.is_limited:
        ids = _select_visible([where], reach.project_id)
        visible, where = notices.join(ids, ids.c.id == notices.c.id), sa.true()
    places = sa.select(
        notices.c.id,
        sa.func.row_number().over(
            partition_by=notices.c.node_id, order_by=(
                sa.case((expressions.IS_CORDON, 0), else_=1),
                notices.c.id.desc())).label('place'),
        sa.func.count().over(partition_by=notices.c.node_id).label('total'),
    ).select_from(visible).where(where).subquery()
    return select_notices(places.c.place <= SHOWN).add_columns(
        places.c.total).join(places, places.c.id == notices.c.id).order_by(
            None).order_by(places.c.place)


def select_full(node_ids: Collection[int], limit: int) -> sa.Select[Any]:
    """Select the names of nodes with at least a number of notices.

    :param limit: number of planned and open ones; those of failed builds do
        not count.
    """
    name = sa.func.coalesce(nodes.c.name, nodes.c.uuid)
    return sa.select(name).select_from(_NOTICES).where(
        affects(node_ids), sa.not_(_IS_FAILED_BUILD)
    ).group_by(nodes.c.id, name).having(
        sa.func.count() >= limit).order_by(nodes.c.id)


def is_in_state(state: str) -> sa.ColumnElement[bool]:
    """Return the condition that a notice is in a state."""
    return _STATES[state]


def is_overdue(text: str) -> sa.ColumnElement[bool]:
    """Return the condition that a notice is overdue, or not ("false")."""
    return _OVERDUE if text.lower() == 'true' else sa.not_(_OVERDUE)


def has_text(name: str, text: str | None) -> sa.ColumnElement[bool]:
    """Return the condition that a column of notices has exactly a text."""
    return expressions.equals_text(notices.c[name], text)


def is_on_node(name: str) -> sa.ColumnElement[bool]:
    """Return the condition that a notice is on a node, by UUID or name.

    A deleted node is known by its UUID and its last name.
    """
    if uuidutils.is_uuid_like(name):
        return expressions.is_uuid(notices.c.node_uuid, name)
    return sa.or_(
        expressions.equals_text(nodes.c.name, name),
        sa.and_(sa.not_(_HAS_NODE), has_text('node_name', name)))


def affects(node_ids: Iterable[int]) -> sa.ColumnElement[bool]:
    """Return the condition that a notice of some nodes is not closed."""
    return sa.and_(notices.c.node_id.in_(node_ids), _HAS_NODE,
                   expressions.NOTICE_ENDS_LATER)


def select_holders(node_ids: Iterable[int]) -> sa.Select[Any]:
    """Select the live reservations of some nodes: project and instance."""
    return sa.select(
        reservations.c.node_id, reservations.c.project_id,
        reservations.c.instance_uuid,
    ).join_from(reservations, nodes, expressions.CARRIED).where(
        expressions.LIVE, nodes.c.id.in_(node_ids))


def has_id(ids: Iterable[int]) -> sa.ColumnElement[bool]:
    """Return the condition that a notice is one of these."""
    return notices.c.id.in_(ids)


def is_after(notice_id: int) -> sa.ColumnElement[bool]:
    """Return the condition that a notice was created after a given one."""
    return notices.c.id > notice_id


def select_faults(project_id: str | None, node_uuids: Collection[str],
                  uuid: str) -> sa.Select[Any]:
    """Select a planned or open fault that a project has reported of nodes.

    :param uuid: of the notices that do not count.
    """
    return sa.select(notices.c.uuid, notices.c.node_uuid).join_from(
        notices, nodes, expressions.NOTICE_ON_NODE
    ).where(
        has_text('project_id', project_id), _IS_NO_FAILED_BUILD,
        notices.c.kind == 'fault',
        notices.c.node_uuid.in_(node_uuids), notices.c.uuid != uuid,
        expressions.NOTICE_ENDS_LATER
    ).limit(1)


def is_failed_build_on(node_id: int, node_uuid: str
                       ) -> sa.ColumnElement[bool]:
    """Return the condition that a node has an open notice of failed builds."""
    return sa.and_(notices.c.node_id == node_id,
                   notices.c.node_uuid == node_uuid,
                   _IS_FAILED_BUILD, expressions.NOTICE_OPEN)


#: Count the nodes with an open notice of a failed build.
COUNT_FAILED_BUILDS = sa.select(
    sa.func.count(notices.c.node_id.distinct())
).join_from(notices, nodes, expressions.NOTICE_ON_NODE).where(
    _IS_FAILED_BUILD, expressions.NOTICE_OPEN)


def count_cordons(project_id: str | None) -> sa.Select[Any]:
    """Count the planned and the open reports of a project with a cordon."""
    return sa.select(sa.func.count()).select_from(
        notices.join(nodes, expressions.NOTICE_ON_NODE)).where(
        has_text('project_id', project_id), _IS_NO_FAILED_BUILD,
        notices.c.cordon == sa.true(), expressions.NOTICE_ENDS_LATER)


def later_end(seconds: int) -> sa.ColumnElement[Any]:
    """Return the end of a notice, or a number of seconds from now if later."""
    end = functions.seconds_from_now(seconds)
    return sa.case((notices.c.ends_at > end, notices.c.ends_at), else_=end)


def update_notice(notice: values.Notice, changes: Mapping[str, Any],
                  has_effect: bool) -> sa.Update:
    """Change a notice.

    UPDATE reservations_notices SET ... WHERE id = :id
      [AND <planned or open> AND cordon, <its times> = <as read>
       AND EXISTS <its node>]

    :param has_effect: whether not only texts change.
    """
    where = [notices.c.id == notice.id]
    if has_effect:
        where += [expressions.NOTICE_ENDS_LATER, *(
            notices.c[name] == getattr(notice, name)
            for name in EFFECTS),
            sa.exists().where(expressions.NOTICE_ON_NODE).correlate(notices)]
    return sa.update(notices).where(*where).values(
        {**changes, 'updated_at': functions.utcnow()})


def end(ids: Iterable[int]) -> sa.Update:
    """Let notices end now, unless they have ended before."""
    return sa.update(notices).where(
        has_id(ids), expressions.NOTICE_ENDS_LATER).values(
        ends_at=functions.utcnow(), updated_at=functions.utcnow())


#: Select the names of nodes with an open cordon, or the UUIDs of nodes without
#: a name.
CORDONED_NODES = sa.select(sa.func.coalesce(nodes.c.name, nodes.c.uuid)).where(
    expressions.CORDONED).order_by(nodes.c.name, nodes.c.uuid)

#: Count the planned and the open notices by kind and state.
COUNT = sa.select(
    notices.c.kind, _STATE.label('state'), sa.func.count()
).join_from(notices, nodes, expressions.NOTICE_ON_NODE).where(
    expressions.NOTICE_ENDS_LATER).group_by(notices.c.kind, _STATE)

#: Count the overdue notices by kind.
COUNT_OVERDUE = sa.select(
    notices.c.kind, sa.func.count().label('number')
).join_from(notices, nodes, expressions.NOTICE_ON_NODE).where(
    _OVERDUE).group_by(notices.c.kind)
