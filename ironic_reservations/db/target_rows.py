# SPDX-License-Identifier: Apache-2.0
"""Statements on the nodes that a request for notices names."""

from collections.abc import Collection
import re
from typing import Any

import sqlalchemy as sa

from ironic_reservations import values
from ironic_reservations.db import expressions
from ironic_reservations.db import functions
from ironic_reservations.db import models

nodes = models.nodes
node_traits = models.node_traits
reservations = models.reservations


def select_targets(*where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Select nodes, with the projects of reservations and pools, by id."""
    return sa.select(
        nodes.c.id, nodes.c.uuid, nodes.c.name,
        nodes.c.owner.label('node_owner'), nodes.c.lessee,
        expressions.POOL_PROJECT.label('pool_project'),
        reservations.c.project_id.label('holder'),
        sa.case((reservations.c.id.is_not(None), nodes.c.provision_state)
                ).label('provision_state'),
    ).outerjoin_from(nodes, reservations, sa.and_(
        expressions.CARRIED, expressions.LIVE)
    ).where(*where).order_by(nodes.c.id)


def has_id(ids: Collection[int]) -> sa.ColumnElement[bool]:
    """Return the condition that a node is one of these."""
    return nodes.c.id.in_(ids)


def select_facts(by: str, value: str, reach: values.Ownership, after: int,
                 limit: int) -> sa.Select[Any]:
    """Select the facts of nodes whose domain may have a value, by id.

    :param by: key of the domain; see ``group_policy.find_domain``.
    :param reach: if it is limited, only nodes that its project owns, has
        reserved or has in a pool.
    :param after: only nodes with larger ids.
    """
    query = sa.select(*expressions.FACTS).where(
        nodes.c.id > after).order_by(nodes.c.id).limit(limit)
    if reach.is_limited:
        query = query.where(sa.or_(
            expressions.equals_text(nodes.c.owner, reach.project_id),
            nodes.c.id.in_(sa.select(reservations.c.node_id).where(
                expressions.equals_text(
                    reservations.c.project_id, reach.project_id))),
            nodes.c.id.in_(sa.select(models.pool_nodes.c.node_id).join_from(
                models.pool_nodes, models.pools,
                models.pools.c.id == models.pool_nodes.c.pool_id
            ).where(expressions.equals_text(
                models.pools.c.project_id, reach.project_id)))))
    if by == 'conductor_group':
        return query.where(functions.same_text(
            sa.func.lower(nodes.c.conductor_group), value))
    if by == 'shard':
        return query.where(expressions.equals_text(nodes.c.shard, value))
    if by.startswith('trait:'):
        return query.where(sa.exists().where(
            node_traits.c.node_id == nodes.c.id,
            functions.same_text(node_traits.c.trait, value)))
    # JSON escapes other characters, a capability without a value has the value
    # "true", and an architecture has several names.
    if (re.fullmatch(r'[\w.:/ -]+', value, re.ASCII)
            and value != 'true' and by != 'capability:cpu_arch'):
        query = query.where(nodes.c.properties.contains(
            value, autoescape=True))
    return query
