# SPDX-License-Identifier: Apache-2.0
"""The statements on the table ``reservations_groups``."""

import sqlalchemy as sa

from ironic_reservations.db import expressions
from ironic_reservations.db import functions
from ironic_reservations.db import models

nodes = models.nodes
reservations = models.reservations
groups = models.groups

_UUID = sa.bindparam('uuid', type_=sa.String)

#: A group, and a row for each that is or was a member: the group's columns,
#: ``member`` (its id, NULL where there is none), ``live`` (whether it counts)
#: and ``domain``.
GROUP = sa.select(
    *groups.c, reservations.c.id.label('member'), reservations.c.domain,
    sa.and_(nodes.c.id.is_not(None), expressions.LIVE).label('live'),
).select_from(groups.outerjoin(
    reservations, reservations.c.group_id == groups.c.id
).outerjoin(nodes, expressions.CARRIED)).where(groups.c.uuid == _UUID)


def select_group(uuid):
    """The row of a group."""
    return sa.select(groups).where(groups.c.uuid == uuid)


_HAS_MEMBERS = sa.exists().where(
    reservations.c.group_id == groups.c.id, expressions.CARRIED,
    expressions.LIVE
).correlate(groups)


def select_live_groups(restricted_to, marker, limit):
    """The groups that have members, in order of id.

    :param restricted_to: only those of this project; None for all.
    :param marker: only those behind the group of this id; None for all.
    :param limit: how many at most.
    """
    query = sa.select(groups).where(_HAS_MEMBERS)
    if restricted_to is not None:
        query = query.where(
            expressions.equals_text(groups.c.project_id, restricted_to))
    if marker is not None:
        query = query.where(groups.c.id > marker)
    return query.order_by(groups.c.id).limit(limit)


# The bytes of a domain, because two texts that differ in trailing spaces alone
# are equal to MariaDB.
_DOMAIN = sa.cast(reservations.c.domain, sa.LargeBinary)


def select_domains(group_ids):
    """How many members groups have in each domain.

    :returns: rows of a group's id, a domain or None, and the number.
    """
    return sa.select(
        reservations.c.group_id, sa.func.min(reservations.c.domain),
        sa.func.count()
    ).join_from(reservations, nodes, expressions.CARRIED).where(
            expressions.LIVE, reservations.c.group_id.in_(group_ids)).group_by(
                reservations.c.group_id, _DOMAIN)


#: A group's row.
INSERT_GROUP = sa.insert(groups).values(
    generation=0, created_at=functions.utcnow())

_AS_READ_GROUP = sa.and_(
    groups.c.id == sa.bindparam('group_id', type_=sa.Integer),
    groups.c.generation == sa.bindparam('as_read', type_=sa.BigInteger))

#: Add members to a group as it was read, or touch no row.
#:
#: UPDATE reservations_groups SET generation = generation + 1
#: WHERE id = :group_id AND generation = :as_read
GROW = sa.update(groups).where(_AS_READ_GROUP).values(
    generation=groups.c.generation + 1)

_EMPTY = ~sa.exists().where(
    reservations.c.group_id == groups.c.id).correlate(groups)

_GROUP = groups.c.id == sa.bindparam('of_group', type_=sa.Integer)

#: Have all who take members out of a group, or into it, wait for each other.
#:
#: UPDATE reservations_groups SET generation = generation + 1
#: WHERE id = :of_group
SHRINK = sa.update(groups).where(_GROUP).values(
    generation=groups.c.generation + 1)

#: Delete a group if no row is left of its members, or touch no row.
DELETE_EMPTY_GROUP = sa.delete(groups).where(_GROUP, _EMPTY)

#: Delete a group as it was read if no row is left of its members, or touch
#: no row.
DELETE_UNCHANGED_GROUP = sa.delete(groups).where(_AS_READ_GROUP, _EMPTY)

#: The groups of whose members no row is left, as ids and generations.
EMPTY_GROUPS = sa.select(groups.c.id, groups.c.generation).where(_EMPTY)


def bind_group(group):
    """The values of the two statements that compare a group as it was read.

    :param group: membership.Group, or a row of ``EMPTY_GROUPS``.
    """
    return {'group_id': group.id, 'as_read': group.generation}
