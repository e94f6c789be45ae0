# SPDX-License-Identifier: Apache-2.0
"""The expressions that several statements share.

They are the facts of a node, and the conditions on nodes and reservations.
"""

import sqlalchemy as sa

from ironic_reservations import conf
from ironic_reservations.db import functions
from ironic_reservations.db import models

nodes = models.nodes
reservations = models.reservations

#: The columns in which nodes of one hardware profile differ, and then all that
#: matching reads of a node, by the names of ``matching.Node``.
OWN_FACTS = (nodes.c.id, nodes.c.uuid, nodes.c.name, nodes.c.properties)
FACTS = (*OWN_FACTS, nodes.c.resource_class, nodes.c.conductor_group,
         nodes.c.shard, nodes.c.owner, nodes.c.lessee,
         functions.trait_set().label('traits'))

#: The columns and expressions that make a hardware profile: two nodes with
#: equal values of all of them cannot be told apart by a request.
PROFILE = {
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

#: Ironic says of the node's hardware that it must not be used, in the words
#: of [reservations] refuse_health, which are read when a statement is run.
UNHEALTHY = _HEALTH.in_(sa.bindparam(
    'refuse_health', expanding=True, type_=sa.String,
    callable_=lambda: conf.CONF.reservations.refuse_health))

#: Ironic has an action for the node that it has not finished.
DEFERRED = functions.if_present(
    sa.exists().where(
        models.deferred_actions.c.node_id == nodes.c.id,
        sa.func.coalesce(models.deferred_actions.c.state, '').not_in(
            ('COMPLETED', 'FAILED'))).correlate(nodes),
    sa.literal_column('deferred_actions.state'))

#: Ironic says of it that something is wrong with it, whatever that is.
AILING = sa.func.coalesce(_HEALTH, 'OK') != 'OK'

#: The node is in a state in which it may be held, whether or not an instance
#: has it. This is Ironic's own rule for its allocations, and "not retired".
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

#: The node may be held. It is not enough that ``instance_uuid`` is NULL,
#: because a tear-down clears it before the node is available again.
FREE = (nodes.c.instance_uuid.is_(None), *ELIGIBLE)

#: The node carries the reservation's instance; while it does, the reservation
#: counts. The node is found by its id, so that the differing collations of the
#: two columns cost nothing.
CARRIED = sa.and_(nodes.c.id == reservations.c.node_id,
                  nodes.c.instance_uuid == reservations.c.instance_uuid)


def _has_row(table, *where):
    """Whether the node has such a row in one of Ironic's tables.

    ``correlate`` makes it the node of the outermost statement. Without it
    SQLAlchemy would name ``nodes`` again in a subquery of a subquery, which
    then would ask whether any node has such a row, and which MySQL refuses in
    an UPDATE of ``nodes`` (error 1093).
    """
    return sa.exists().where(table.c.node_id == nodes.c.id,
                             *where).correlate(nodes)


def _has_vif(table):
    return _has_row(table, sa.or_(
        table.c.internal_info.like('%vif_port_id%'),
        table.c.extra.like('%vif_port_id%')))


#: Something has begun on the held node. Its reservation does not expire then,
#: because a node that is half prepared for one tenant must not go to another.
TOUCHED = sa.or_(
    sa.func.coalesce(nodes.c.provision_state, '') != 'available',
    nodes.c.reservation.is_not(None),
    sa.func.coalesce(nodes.c.instance_info, '').not_in(('', '{}')),
    _has_vif(models.ports), _has_vif(models.portgroups),
    _has_row(models.volume_targets),
)

#: The reservation is past its lease.
PAST_LEASE = reservations.c.expires_at <= functions.utcnow()

#: The reservation is past its lease, and nothing has begun on its node: no
#: read shows it, and the node counts as free.
EXPIRED = sa.and_(CARRIED, PAST_LEASE, ~TOUCHED)

#: The reservation has not expired.
LIVE = sa.or_(reservations.c.expires_at.is_(None), ~PAST_LEASE, TOUCHED)

#: An instance may take the reservation over: see ``claims``.
CLAIMABLE = sa.and_(CARRIED, LIVE, reservations.c.host.is_(None))

#: The one reservation that an instance is about to take over is claimable.
CLAIMABLE_BY_ID = sa.exists().where(
    CLAIMABLE, reservations.c.id == sa.bindparam('claimed', type_=sa.Integer)
).correlate(nodes)


def equals_text(column, text):
    """Whether a column holds the very text; the column's index is used.

    The first comparison uses the index. The second is needed for our own
    tables, too, because utf8mb4_bin ignores trailing spaces.
    """
    same = functions.same_text(column, text)
    if column.table is nodes and isinstance(text, str) and not _is_bmp(text):
        return same
    return sa.and_(column == text, same)


def _is_bmp(text):
    """Whether a text has only characters that MySQL's utf8mb3 has, too.

    In an old cloud Ironic's columns have that character set. MySQL refuses to
    compare them with other characters (error 3854), MariaDB does not.
    """
    return all(character <= '\uffff' for character in text)


def is_named(candidates):
    """Nodes whose UUID or name is among the given ones.

    Ironic gives no node a name that is not of letters, digits and ``-._~``.
    """
    candidates = list(filter(_is_bmp, candidates))
    return sa.or_(nodes.c.uuid.in_(candidates), nodes.c.name.in_(candidates))
