# SPDX-License-Identifier: Apache-2.0
"""Statements on groups, the table ``reservations_groups``."""

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from ironic_reservations import values
from ironic_reservations.db import expressions
from ironic_reservations.db import functions
from ironic_reservations.db import models

nodes = models.nodes
reservations = models.reservations
groups = models.groups

_UUID = sa.bindparam('uuid', type_=sa.String)

#: Select a group with a row for each present and former member: the group's
#: columns, ``member`` (id, NULL if there is none), ``live``, ``domain`` and
#: ``segment``.
GROUP = sa.select(
    *groups.c, reservations.c.id.label('member'), reservations.c.domain,
    reservations.c.segment,
    sa.and_(nodes.c.id.is_not(None), expressions.LIVE).label('live'),
).select_from(groups.outerjoin(
    reservations, reservations.c.group_id == groups.c.id
).outerjoin(nodes, expressions.CARRIED)).where(groups.c.uuid == _UUID)


def select_group(uuid: str) -> sa.Select[Any]:
    """Select the row of a group."""
    return sa.select(groups).where(groups.c.uuid == uuid)


_HAS_MEMBERS = sa.exists().where(
    reservations.c.group_id == groups.c.id, expressions.CARRIED,
    expressions.LIVE
).correlate(groups)


def select_live_groups(reach: values.Ownership, marker: int | None,
                       limit: int) -> sa.Select[Any]:
    """Select the groups that have members, in order of id.

    :param reach: if it is limited, only groups of its project.
    :param marker: only groups after this id; None for all.
    :param limit: maximum number of groups.
    """
    query = sa.select(groups).where(_HAS_MEMBERS)
    if reach.is_limited:
        query = query.where(
            expressions.equals_text(groups.c.project_id, reach.project_id))
    if marker is not None:
        query = query.where(groups.c.id > marker)
    return query.order_by(groups.c.id).limit(limit)


# Bytes of a domain, because MariaDB ignores trailing spaces in texts.
_DOMAIN = sa.cast(reservations.c.domain, sa.LargeBinary)


def select_places(group_ids: Iterable[int]) -> sa.Select[Any]:
    """Count the members of groups by segment and domain.

    :returns: rows of a group's id, a segment or None, a domain or None, and
        the number.
    """
    return sa.select(
        reservations.c.group_id, reservations.c.segment,
        sa.func.min(reservations.c.domain), sa.func.count()
    ).join_from(reservations, nodes, expressions.CARRIED).where(
        expressions.LIVE, reservations.c.group_id.in_(group_ids)
    ).group_by(reservations.c.group_id, reservations.c.segment, _DOMAIN)


def select_health(group_ids: Iterable[int]) -> sa.Select[Any]:
    """Count the members of groups by the health of their nodes.

    :returns: rows of a group's id, a health or None, and the number.
    """
    health = functions.optional(nodes.c.health)
    return sa.select(
        reservations.c.group_id, health, sa.func.count()
    ).join_from(reservations, nodes, expressions.CARRIED).where(
        expressions.LIVE, reservations.c.group_id.in_(group_ids)
    ).group_by(reservations.c.group_id, health)


#: Insert a group.
INSERT_GROUP = sa.insert(groups).values(
    generation=0, created_at=functions.utcnow())

_IS_UNCHANGED = sa.and_(
    groups.c.id == sa.bindparam('group_id', type_=sa.Integer),
    groups.c.generation == sa.bindparam(
        'known_generation', type_=sa.BigInteger))

#: Add members to a group, unless it has changed since it was read.
#:
#: UPDATE reservations_groups SET generation = generation + 1
#: WHERE id = :group_id AND generation = :known_generation
GROW = sa.update(groups).where(_IS_UNCHANGED).values(
    generation=groups.c.generation + 1)

#: Change the description of a group.
DESCRIBE = sa.update(groups).where(
    groups.c.id == sa.bindparam('group', type_=sa.Integer)).values(
        description=sa.bindparam('text', type_=sa.String))

_IS_EMPTY = ~sa.exists().where(
    reservations.c.group_id == groups.c.id).correlate(groups)

_GROUP = groups.c.id == sa.bindparam('group', type_=sa.Integer)

#: Make a request that removes members wait for other changes of the group.
#:
#: UPDATE reservations_groups SET generation = generation + 1
#: WHERE id = :group
SHRINK = sa.update(groups).where(_GROUP).values(
    generation=groups.c.generation + 1)

#: Delete a group, unless it has a row of a member.
DELETE_EMPTY_GROUP = sa.delete(groups).where(_GROUP, _IS_EMPTY)

#: Delete a group, unless it has a row of a member or has changed since it was
#: read.
DELETE_UNCHANGED_GROUP = sa.delete(groups).where(_IS_UNCHANGED, _IS_EMPTY)

#: Select the ids and generations of groups without rows of members.
EMPTY_GROUPS = sa.select(groups.c.id, groups.c.generation).where(_IS_EMPTY)


def bind_group(group: sa.Row[Any] | values.Group) -> dict[str, Any]:
    """Return the parameters for ``GROW`` and ``DELETE_UNCHANGED_GROUP``.

    :param group: for example, a row of ``EMPTY_GROUPS``.
    """
    return {'group_id': group.id, 'known_generation': group.generation}
