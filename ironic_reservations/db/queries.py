# SPDX-License-Identifier: Apache-2.0
"""The statements, as functions of what they are about."""

import datetime

import sqlalchemy as sa

from ironic_reservations.db import functions
from ironic_reservations.db import models

nodes = models.nodes
node_traits = models.node_traits
reservations = models.reservations

#: What matching reads of a node, in the order of ``matching.Node``.
FACTS = (nodes.c.id, nodes.c.uuid, nodes.c.name, nodes.c.resource_class,
         nodes.c.properties, nodes.c.conductor_group, nodes.c.shard,
         nodes.c.owner, nodes.c.lessee)

_SIZE_KEYS = {'memory_mb': '$.memory_mb', 'vcpus': '$.cpus',
              'local_gb': '$.local_gb'}

UNLOCKED = nodes.c.reservation.is_(None)

#: A node may be held: Ironic's own rule for its allocations, and not retired.
#: NULL alone in instance_uuid says little: a tear-down clears it early.
FREE = (
    nodes.c.provision_state == 'available',
    nodes.c.instance_uuid.is_(None),
    nodes.c.allocation_id.is_(None),
    sa.or_(nodes.c.maintenance.is_(None), nodes.c.maintenance == sa.false()),
    sa.or_(nodes.c.retired.is_(None), nodes.c.retired == sa.false()),
    nodes.c.power_state.is_not(None),
    nodes.c.parent_node.is_(None),
)

# A reservation counts while its node carries its instance. The node is found
# by its id, so that the differing collations of the two columns cost nothing.
LIVE = sa.and_(nodes.c.id == reservations.c.node_id,
               nodes.c.instance_uuid == reservations.c.instance_uuid)

_STALE = ~sa.exists().where(LIVE).correlate(reservations)


def visible_to(project_id):
    """Nodes that a project may use; all of them for None."""
    if project_id is None:
        return ()
    return (sa.or_(nodes.c.owner == project_id,
                   nodes.c.lessee == project_id),)


def trait_constraints(spec):
    """The traits that the request requires and forbids.

    EXISTS (SELECT 1 FROM node_traits
            WHERE node_id = nodes.id AND trait = :t) AND NOT EXISTS (...)
    """
    def has(trait):
        return sa.exists().where(node_traits.c.node_id == nodes.c.id,
                                 node_traits.c.trait == trait)
    return ([has(trait) for trait in sorted(spec.required_traits)]
            + [~has(trait) for trait in sorted(spec.forbidden_traits)])


def narrow(spec, resource_classes, conductor_groups):
    """What SQL can say of a request: true wherever matching says yes.

    :param resource_classes: the spellings, in the database, of the class
        asked for; None for any.
    :param conductor_groups: likewise.
    """
    asked = trait_constraints(spec)
    if resource_classes is not None:
        asked.append(nodes.c.resource_class.in_(resource_classes))
    if conductor_groups is not None:
        asked.append(nodes.c.conductor_group.in_(conductor_groups))
    if spec.shard is not None:
        asked.append(nodes.c.shard == spec.shard)
    for candidates in spec.candidate_nodes:
        asked.append(sa.or_(nodes.c.uuid.in_(candidates),
                            nodes.c.name.in_(candidates)))
    compare = (functions.maybe_equal if spec.exact
               else functions.maybe_at_least)
    # A size of 0 is for matching: a malformed property counts as 0, which
    # SQL may read as something else.
    asked += [compare(nodes.c.properties, _SIZE_KEYS[name], size)
              for name, size in spec.sizes if size]
    asked += [functions.maybe_at_least(nodes.c.properties, _SIZE_KEYS[name],
                                       size)
              for name, size in spec.minimums if size]
    return asked


def spellings(column):
    """The distinct values of a column; an index holds them together."""
    return sa.select(column).distinct().where(column.is_not(None))


def id_range():
    return sa.select(sa.func.min(nodes.c.id), sa.func.max(nodes.c.id))


def page(where, first, last, limit):
    """Nodes with ids from first to last, in order of id."""
    return sa.select(*FACTS).where(
        nodes.c.id.between(first, last), *where
    ).order_by(nodes.c.id).limit(limit)


def traits_of(ids):
    return sa.select(node_traits.c.node_id, node_traits.c.trait).where(
        node_traits.c.node_id.in_(ids))


def hold(node, spec, project_id, instance_uuid):
    """The guarded update that makes a node somebody's, or touches no row.

    UPDATE nodes SET instance_uuid = :i, updated_at = UTC_TIMESTAMP()
    WHERE id = :n AND <free> AND reservation IS NULL AND <the caller's>
      AND <class, group, shard, name and properties, byte for byte, as read>
      AND EXISTS / NOT EXISTS (SELECT 1 FROM node_traits ...)

    The properties as read stand for every constraint on them: no JSON is
    parsed in an UPDATE, where a malformed number is an error.

    :param node: a matching.Node that satisfies the request.
    """
    as_read = [functions.same_text(nodes.c[name], getattr(node, name))
               for name in ('resource_class', 'conductor_group', 'shard',
                            'name', 'properties')]
    return sa.update(nodes).where(
        nodes.c.id == node.id, *FREE, UNLOCKED, *visible_to(project_id),
        *as_read, *trait_constraints(spec),
    ).values(instance_uuid=instance_uuid, updated_at=functions.utcnow())


def insert(**values):
    return sa.insert(reservations).values(
        created_at=functions.utcnow(), **values)


def holder(instance_uuid):
    """The node that carries an instance, and its reservation if it has one.

    SELECT ... FROM nodes LEFT JOIN reservations
      ON node_id = nodes.id AND reservations.instance_uuid = ...
    WHERE nodes.instance_uuid = :i
    """
    return _view(nodes.outerjoin(reservations, LIVE)).where(
        nodes.c.instance_uuid == instance_uuid)


def live(limited_to=None):
    """The reservations that count, each with its node."""
    query = _view(reservations.join(nodes, LIVE))
    return query if limited_to is None else query.where(
        reservations.c.project_id == limited_to)


def column(name):
    """What a list may be filtered by."""
    return (nodes if name == 'resource_class' else reservations).c[name]


def in_states(wanted, known):
    """Nodes in the wanted provision states; in no known one for None."""
    state = nodes.c.provision_state
    if wanted is not None:
        return state.in_(wanted)
    return sa.or_(state.is_(None), state.not_in(
        [name for names in known.values() for name in names]))


def is_node(ident):
    return sa.or_(nodes.c.uuid == ident, nodes.c.name == ident)


def ordered(query, sort_key, sort_dir, after):
    """Order by a column and then by id, from behind a row.

    NULL sorts as the least value, on every database and across pages.
    """
    column, key = reservations.c[sort_key], reservations.c.id
    least = {sa.DateTime: datetime.datetime.min, sa.Integer: 0}.get(
        type(column.type), '')
    column = sa.func.coalesce(column, least, type_=column.type)
    if after is not None:
        value = getattr(after, sort_key)
        value = least if value is None else value
        query = query.where(
            sa.or_(column > value, sa.and_(column == value, key > after.id))
            if sort_dir == 'asc' else
            sa.or_(column < value, sa.and_(column == value, key < after.id)))
    direction = sa.asc if sort_dir == 'asc' else sa.desc
    return query.order_by(direction(column), direction(key))


def _view(joined):
    return sa.select(
        *(column for column in reservations.c if column.name != 'id'),
        reservations.c.id.label('id'),
        nodes.c.id.label('carrier_id'),
        nodes.c.name.label('node_name'),
        nodes.c.provision_state, nodes.c.resource_class,
        nodes.c.maintenance, nodes.c.reservation.label('lock'),
    ).select_from(joined)


def purge(instance_uuid, node_id):
    """Delete an instance's and a node's row if the two have parted."""
    return sa.delete(reservations).where(
        sa.or_(reservations.c.instance_uuid == instance_uuid,
               reservations.c.node_id == node_id),
        _STALE)


def move(reservation_id, host):
    """Give a reservation to another host while nothing has begun.

    UPDATE reservations SET host = :h WHERE id = :r AND EXISTS (SELECT 1
      FROM nodes WHERE <it carries this> AND provision_state = 'available')
    """
    return sa.update(reservations).where(
        reservations.c.id == reservation_id,
        sa.exists().where(LIVE, nodes.c.provision_state == 'available'
                          ).correlate(reservations),
    ).values(host=host, updated_at=functions.utcnow())


def release(node_id, instance_uuid, states, forced):
    """Take an instance off its node if the node's state allows it.

    UPDATE nodes SET instance_uuid = NULL WHERE id = :n
      AND instance_uuid = :i AND provision_state IN (...)
      AND reservation IS NULL

    :param states: provision states in which it may be released.
    :param forced: whether maintenance allows it in any state.
    """
    allowed = nodes.c.provision_state.in_(states)
    if forced:
        allowed = sa.or_(allowed, nodes.c.maintenance == sa.true())
    return sa.update(nodes).where(
        nodes.c.id == node_id, nodes.c.instance_uuid == instance_uuid,
        allowed, UNLOCKED,
    ).values(instance_uuid=None, updated_at=functions.utcnow())


def delete(reservation_id, host):
    """Delete a row, of a certain host if one is named."""
    statement = sa.delete(reservations).where(
        reservations.c.id == reservation_id)
    return statement if host is None else statement.where(
        reservations.c.host == host)
