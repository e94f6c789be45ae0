# SPDX-License-Identifier: Apache-2.0
"""Facts of nodes, and conditions on nodes and reservations."""

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from ironic_reservations import conf
from ironic_reservations.db import functions
from ironic_reservations.db import models

nodes = models.nodes
reservations = models.reservations

#: All columns that matching reads, by the names of ``matching.Node``.
FACTS = (nodes.c.id, nodes.c.uuid, nodes.c.name, nodes.c.properties,
         nodes.c.resource_class, nodes.c.conductor_group, nodes.c.shard,
         nodes.c.owner, nodes.c.lessee, functions.trait_set().label('traits'))

#: The facts that make a hardware profile: no request can tell apart two nodes
#: with equal values of all of them.
PROFILE: dict[str, sa.ColumnElement[Any]] = {
    **{name: nodes.c[name] for name in
       ('resource_class', 'conductor_group', 'shard', 'owner', 'lessee')},
    **{name: functions.property_text(nodes.c.properties,
                              sa.literal_column(f"'$.{name}'"))
       for name in ('memory_mb', 'cpus', 'local_gb', 'cpu_arch',
                    'capabilities')},
    'traits': functions.trait_set(),
    'irregular_properties': functions.irregular_properties(nodes.c.properties),
}

UNLOCKED = nodes.c.reservation.is_(None)

_HEALTH = functions.optional(nodes.c.health)

#: The node's health is one of [reservations] refuse_health, which is read when
#: a statement is executed.
UNHEALTHY = _HEALTH.in_(sa.bindparam(
    'refuse_health', expanding=True, type_=sa.String,
    callable_=lambda: conf.CONF.reservations.refuse_health))

#: Ironic has an unfinished action for the node.
DEFERRED = functions.if_present(
    sa.exists().where(
        models.deferred_actions.c.node_id == nodes.c.id,
        sa.func.coalesce(models.deferred_actions.c.state, '').not_in(
            ('COMPLETED', 'FAILED'))).correlate(nodes),
    sa.literal_column('deferred_actions.state'))

#: Ironic reports a problem with the node's health.
AILING = sa.func.coalesce(_HEALTH, 'OK') != 'OK'

#: The node can be held, except that an instance may already have it. This is
#: Ironic's rule for allocations, and "not retired".
ELIGIBLE = (
    nodes.c.provision_state == 'available',
    nodes.c.allocation_id.is_(None),
    sa.or_(nodes.c.maintenance.is_(None), nodes.c.maintenance == sa.false()),
    sa.or_(nodes.c.retired.is_(None), nodes.c.retired == sa.false()),
    nodes.c.power_state.is_not(None),
    nodes.c.parent_node.is_(None),
    sa.or_(_HEALTH.is_(None), sa.not_(UNHEALTHY)),
    sa.not_(DEFERRED),
)

#: The node can be held. ``instance_uuid`` is NULL earlier, because tear-down
#: clears it before the node is available again.
FREE = (nodes.c.instance_uuid.is_(None), *ELIGIBLE)

#: The node carries the reservation's instance; otherwise the row is stale. The
#: node is found by its id, because the collations of the two columns of UUIDs
#: differ.
CARRIED = sa.and_(nodes.c.id == reservations.c.node_id,
                  nodes.c.instance_uuid == reservations.c.instance_uuid)


def _has_row(table: sa.Table,
             *where: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Return the condition that the node has a row in one of Ironic's tables.

    ``correlate`` makes it the node of the outermost statement. Otherwise
    SQLAlchemy would add ``nodes`` to a subquery of a subquery, which would
    then match rows of any node, and which MySQL refuses in an UPDATE of
    ``nodes`` (error 1093).
    """
    return sa.exists().where(table.c.node_id == nodes.c.id,
                             *where).correlate(nodes)


def _has_vif(table: sa.Table) -> sa.ColumnElement[bool]:
    return _has_row(table, sa.or_(
        table.c.internal_info.like('%vif_port_id%'),
        table.c.extra.like('%vif_port_id%')))


#: Work has begun on the held node. Its reservation does not expire, because a
#: node that is partly prepared for one tenant must not go to another.
TOUCHED = sa.or_(
    sa.func.coalesce(nodes.c.provision_state, '') != 'available',
    nodes.c.reservation.is_not(None),
    sa.func.coalesce(nodes.c.instance_info, '').not_in(('', '{}')),
    _has_vif(models.ports), _has_vif(models.portgroups),
    _has_row(models.volume_targets),
)

#: The reservation is past its lease.
PAST_LEASE = reservations.c.expires_at <= functions.utcnow()

#: The reservation has expired: it is past its lease, and no work has begun on
#: its node. No read returns it, and the node counts as free.
EXPIRED = sa.and_(CARRIED, PAST_LEASE, ~TOUCHED)

#: The reservation has not expired.
LIVE = sa.or_(reservations.c.expires_at.is_(None), ~PAST_LEASE, TOUCHED)

#: An instance may claim the reservation: see ``claims``.
CLAIMABLE = sa.and_(CARRIED, LIVE, reservations.c.host.is_(None))

#: The reservation with the id ``:claimed`` is claimable.
CLAIMABLE_BY_ID = sa.exists().where(
    CLAIMABLE, reservations.c.id == sa.bindparam('claimed', type_=sa.Integer)
).correlate(nodes)


def equals_text(column: sa.Column[Any],
                text: Any) -> sa.ColumnElement[bool]:
    """Return the condition that a column has exactly this text.

    The first comparison uses the column's index. The second is needed for our
    tables, too, because utf8mb4_bin ignores trailing spaces.

    :param text: a text or an expression.
    """
    same = functions.same_text(column, text)
    if column.table is nodes and isinstance(text, str) and not _is_bmp(text):
        return same
    return sa.and_(column == text, same)


def _is_bmp(text: str) -> bool:
    """Return whether MySQL's utf8mb3 has all characters of a text.

    In an old cloud, Ironic's columns have that character set. MySQL refuses to
    compare them with other characters (error 3854); MariaDB does not.
    """
    return all(character <= '\uffff' for character in text)


def is_named(candidates: Iterable[str]) -> sa.ColumnElement[bool]:
    """Return the condition that a node's UUID or name is a candidate.

    Names of nodes in Ironic have only letters, digits and ``-._~``.
    """
    names = list(filter(_is_bmp, candidates))
    return sa.or_(nodes.c.uuid.in_(names), nodes.c.name.in_(names))
