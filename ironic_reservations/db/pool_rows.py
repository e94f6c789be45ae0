# SPDX-License-Identifier: Apache-2.0
"""Statements on pools: ``reservations_pools`` and ``reservations_pool_nodes``.
"""

from collections.abc import Collection
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from ironic_reservations import values
from ironic_reservations.db import expressions
from ironic_reservations.db import functions
from ironic_reservations.db import models
from ironic_reservations.db import node_counts
from ironic_reservations.db import node_rows

nodes = models.nodes
pools = models.pools
pool_nodes = models.pool_nodes
reservations = models.reservations

#: Insert a pool.
INSERT_POOL = sa.insert(pools).values(generation=0,
                                      created_at=functions.utcnow())

#: Insert nodes of a pool.
INSERT_NODES = sa.insert(pool_nodes).values(created_at=functions.utcnow())

_HAS_NODES = sa.exists().where(
    pool_nodes.c.pool_id == pools.c.id, expressions.IN_POOL).correlate(pools)


def select_pools(*where: sa.ColumnElement[bool],
                 limit: int | None = None) -> sa.Select[Any]:
    """Select pools that have not expired and have nodes, in order of id."""
    return sa.select(pools).where(
        expressions.POOL_LIVE, _HAS_NODES, *where
    ).order_by(pools.c.id).limit(limit)


def has_uuid(uuid: str) -> sa.ColumnElement[bool]:
    """Return the condition that a pool has a UUID, in lower case."""
    return pools.c.uuid == uuid


def is_of_project(project_id: str) -> sa.ColumnElement[bool]:
    """Return the condition that a pool belongs to a project."""
    return expressions.equals_text(pools.c.project_id, project_id)


def has_node(name: str) -> sa.ColumnElement[bool]:
    """Return the condition that a node is in a pool, by UUID or name."""
    return pools.c.id.in_(sa.select(pool_nodes.c.pool_id).join(
        nodes, expressions.IN_POOL).where(expressions.is_node(name)))


def is_after(pool_id: int) -> sa.ColumnElement[bool]:
    """Return the condition that a pool was created after another one."""
    return pools.c.id > pool_id


def in_pools(ids: Collection[int]) -> sa.ColumnElement[bool]:
    """Return the condition that the row belongs to one of these pools."""
    return pool_nodes.c.pool_id.in_(ids)


def select_node(name: str) -> sa.Select[Any]:
    """Select the facts of nodes whose UUID or name may be a text."""
    return sa.select(*expressions.FACTS).where(expressions.is_named([name]))


def admit_node(node_id: int, node_uuid: str, project_id: str) -> sa.Update:
    """Touch a node that joins a pool by name, if it may.

    UPDATE nodes SET updated_at = <another time>
    WHERE id = :n AND uuid = :u
      AND (<free> AND (lessee IS NULL OR lessee = :project)
           OR EXISTS (<a live reservation of the project>))
    """
    is_reserved = sa.exists().where(
        expressions.CARRIED, expressions.LIVE, expressions.equals_text(
            reservations.c.project_id, project_id)).correlate(nodes)
    return sa.update(nodes).where(
        nodes.c.id == node_id, nodes.c.uuid == node_uuid,
        sa.or_(sa.and_(*expressions.FREE, sa.or_(
            nodes.c.lessee.is_(None),
            functions.same_text(nodes.c.lessee, project_id))), is_reserved)
    ).values(updated_at=node_rows.ANOTHER_TIME)


def _is_idle(node: values.PoolNode) -> sa.ColumnElement[bool]:
    return sa.and_(nodes.c.id == node.id, nodes.c.uuid == node.uuid,
                   nodes.c.instance_uuid.is_(None))


def select_idle(node: values.PoolNode) -> sa.Select[Any]:
    """Select the id of a node if it carries no instance."""
    return sa.select(nodes.c.id).where(_is_idle(node))


def touch_idle(node: values.PoolNode) -> sa.Update:
    """Make a concurrent hold of a node conflict, if it carries no instance."""
    return sa.update(nodes).where(_is_idle(node)).values(
        updated_at=node_rows.ANOTHER_TIME)


def _is_unchanged(pool: values.Pool) -> sa.ColumnElement[bool]:
    return sa.and_(pools.c.id == pool.id,
                   pools.c.generation == pool.generation)


def update_pool(pool: values.Pool,
                changes: Mapping[str, Any] = {}) -> sa.Update:
    """Change a pool, unless it has changed since it was read, or expired.

    UPDATE reservations_pools
    SET generation = generation + 1, updated_at = <now>, ...
    WHERE id = :id AND generation = :as_read AND <not expired>
    """
    return sa.update(pools).where(
        _is_unchanged(pool), expressions.POOL_LIVE
    ).values({**changes, 'generation': pools.c.generation + 1,
              'updated_at': functions.utcnow()})


def delete_pool(pool: values.Pool) -> sa.Delete:
    """Delete a pool, unless it has changed since it was read."""
    return sa.delete(pools).where(_is_unchanged(pool))


def delete_nodes(pool_id: int,
                 node_ids: Collection[int] | None = None) -> sa.Delete:
    """Delete rows of the nodes of a pool, by default of all."""
    statement = sa.delete(pool_nodes).where(pool_nodes.c.pool_id == pool_id)
    return statement if node_ids is None else statement.where(
        pool_nodes.c.node_id.in_(node_ids))


def select_node_uuids(pool_id: int) -> sa.Select[Any]:
    """Select the UUIDs in the rows of the nodes of a pool.

    :returns: rows of ``node_uuid`` and ``is_lost``: whether the node no longer
        exists.
    """
    return sa.select(
        pool_nodes.c.node_uuid, nodes.c.id.is_(None).label('is_lost')
    ).join_from(pool_nodes, nodes, expressions.IN_POOL, isouter=True).where(
        pool_nodes.c.pool_id == pool_id).order_by(pool_nodes.c.node_id)


def select_ended(uuid: str | None = None,
                 node_ids: Collection[int] | None = None) -> sa.Select[Any]:
    """Select pools that have expired, or without nodes.

    :param uuid: only the pool with this UUID,
    :param node_ids: or with one of these nodes. By default all.
    """
    query = sa.select(pools).where(
        sa.or_(sa.not_(expressions.POOL_LIVE), sa.not_(_HAS_NODES)))
    if node_ids is None:
        return query
    return query.where(sa.or_(pools.c.uuid == uuid, pools.c.id.in_(
        sa.select(pool_nodes.c.pool_id).where(
            pool_nodes.c.node_id.in_(node_ids)))))


def select_lost_nodes(node_ids: Collection[int] | None = None
                      ) -> sa.Select[Any]:
    """Select the rows whose node no longer exists.

    :param node_ids: only rows with these ids; None for all.
    :returns: rows of the UUID and id of the pool, and of those of the node.
    """
    query = sa.select(
        pools.c.uuid, pools.c.id, pool_nodes.c.node_id, pool_nodes.c.node_uuid
    ).join_from(
        pool_nodes, pools, pools.c.id == pool_nodes.c.pool_id
    ).outerjoin(nodes, expressions.IN_POOL).where(nodes.c.id.is_(None))
    return query if node_ids is None else query.where(
        pool_nodes.c.node_id.in_(node_ids))


#: Count the pools that have not expired, for "dbsync drop".
COUNT = sa.select(sa.func.count()).select_from(pools).where(
    expressions.POOL_LIVE)

#: Select nodes of pools that carry an instance of another project: by its
#: reservation or, without one, by the lessee that Ironic sets for servers.
SELECT_CONFLICTS = sa.select(
    pools.c.uuid.label('pool'), pools.c.project_id, nodes.c.uuid,
    nodes.c.instance_uuid,
    sa.func.coalesce(reservations.c.project_id,
                     nodes.c.lessee).label('other_project')
).select_from(
    pools.join(pool_nodes, pool_nodes.c.pool_id == pools.c.id)
    .join(nodes, expressions.IN_POOL)
    .outerjoin(reservations, sa.and_(expressions.CARRIED, expressions.LIVE))
).where(
    expressions.POOL_LIVE, nodes.c.instance_uuid.is_not(None),
    sa.func.coalesce(reservations.c.project_id, nodes.c.lessee,
                     pools.c.project_id) != pools.c.project_id
).order_by(nodes.c.id)


def select_pool_nodes(*where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Select the nodes of pools, in the order of their ids.

    :returns: rows of the values of ``values.PoolNode``, with ``excluded_by``
        and ``taken`` (see ``NodeCount``) instead of the state.
    """
    return sa.select(
        pool_nodes.c.pool_id, nodes.c.id, nodes.c.uuid, nodes.c.name,
        nodes.c.resource_class, nodes.c.owner.label('node_owner'),
        pool_nodes.c.domain, pool_nodes.c.segment,
        pool_nodes.c.created_at.label('joined_at'),
        sa.func.coalesce(pool_nodes.c.reason, 'create').label('reason'),
        pool_nodes.c.replaces,
        functions.optional(nodes.c.health).label('health'),
        node_counts.HEALTHY.label('is_healthy'),
        node_counts.REASON.label('excluded_by'),
        node_counts.TAKEN.label('taken'),
        sa.case((reservations.c.id.is_not(None), nodes.c.instance_uuid),
                else_=sa.null()).label('instance_uuid'),
        reservations.c.project_id,
    ).select_from(node_counts.join_reservations(
        pool_nodes.join(nodes, expressions.IN_POOL))
    ).where(*where).order_by(nodes.c.id)


def count_pool_nodes(*where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Count the nodes of pools by reason, use and health.

    :returns: rows of the id of a pool, ``reason``, ``taken``, whether the
        nodes are healthy, and their number.
    """
    rows = sa.select(
        pool_nodes.c.pool_id, node_counts.REASON.label('reason'),
        node_counts.TAKEN.label('taken'),
        node_counts.HEALTHY.label('is_healthy')
    ).select_from(pool_nodes.join(nodes, expressions.IN_POOL)
                  ).where(*where).subquery()
    return sa.select(*rows.c, sa.func.count()).group_by(*rows.c)
