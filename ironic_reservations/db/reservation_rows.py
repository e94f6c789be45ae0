# SPDX-License-Identifier: Apache-2.0
"""The statements on the table ``reservations``, and the lists of its rows."""

import datetime
import functools

import sqlalchemy as sa

from ironic_reservations.db import expressions as expr
from ironic_reservations.db import functions as fn
from ironic_reservations.db import host_rows
from ironic_reservations.db import models

nodes = models.nodes
reservations = models.reservations
groups = models.groups

#: A reservation's row.
INSERT = sa.insert(reservations)

#: The columns of a row that a request gives.
COLUMNS = tuple(name for name in reservations.c.keys()
                if name not in ('id', 'updated_at'))


def adopt(node_id, instance_uuid, states, values):
    """Make the reservation of a node that carries an instance already.

    INSERT INTO reservations (instance_uuid, node_id, node_uuid, ...)
    SELECT :i, id, uuid, ... FROM nodes USE INDEX (PRIMARY)
    WHERE id = :n AND instance_uuid = :i AND allocation_id IS NULL
      AND reservation IS NULL AND provision_state IN (...)

    The node is locked by its id, in the order in which Ironic's own
    statements lock it: by its instance_uuid they would end in deadlocks.

    :param states: provision states in which it may be adopted.
    :param values: the columns ``host``, ``project_id``, ``user_id`` and
        ``request_spec``, and those of a group.
    """
    return sa.insert(reservations).from_select(
        ['instance_uuid', 'node_id', 'node_uuid', 'created_at', *values],
        sa.select(sa.literal(instance_uuid), nodes.c.id, nodes.c.uuid,
                  fn.utcnow(), *(sa.literal(value, reservations.c[name].type)
                                 for name, value in values.items())
                  ).where(nodes.c.id == node_id,
                          nodes.c.instance_uuid == instance_uuid,
                          nodes.c.allocation_id.is_(None), expr.UNLOCKED,
                          nodes.c.provision_state.in_(states)
                          ).with_hint(nodes, 'USE INDEX (PRIMARY)',
                                      dialect_name='mysql'))


#: All that a values.Reservation has, by the names of its attributes.
VIEW = {
    **{column.name: column for column in reservations.c},
    'group_uuid': groups.c.uuid, 'group_policy': groups.c.policy,
    'group_by': groups.c.by, 'node_name': nodes.c.name,
    'node_owner': nodes.c.owner, 'node_lessee': nodes.c.lessee,
    'provision_state': nodes.c.provision_state,
    'resource_class': nodes.c.resource_class,
    'maintenance': nodes.c.maintenance, 'lock': nodes.c.reservation,
    'is_allocated': nodes.c.allocation_id.is_not(None),
    'is_touched': sa.func.coalesce(expr.TOUCHED, sa.false()),
    'is_expired': sa.func.coalesce(expr.EXPIRED, sa.false()),
}

_BRIEF = tuple(name for name in VIEW if name != 'request_spec')

#: How long a reservation's request spec is, as ``spec_length``.
SPEC_LENGTH = sa.func.length(reservations.c.request_spec).label('spec_length')


def _view(joined, names=None):
    """What a values.Reservation is made of.

    :param names: which of ``VIEW`` to read. None for all but the request
        spec, which is many times as long as all the rest, and of use to few
        who read more than one reservation.
    """
    return sa.select(*(
        VIEW[name].label(name) for name in (_BRIEF if names is None else names)
    )).select_from(joined.outerjoin(
        groups, groups.c.id == reservations.c.group_id))


def carriers(*instance_uuids):
    """The nodes that carry instances, with their reservations if they have.

    SELECT ... FROM nodes LEFT JOIN reservations
      ON node_id = nodes.id AND reservations.instance_uuid = ...
    WHERE nodes.instance_uuid IN (...)
    """
    names = [name for name in VIEW if name != 'instance_uuid']
    return _view(nodes.outerjoin(reservations, expr.CARRIED), names
                 ).add_columns(nodes.c.instance_uuid).where(
                     nodes.c.instance_uuid.in_(instance_uuids))


def live(restricted_to=None, names=None):
    """The reservations that count, each with its node.

    :param restricted_to: only those of this project, and those on nodes that
        it owns; None for all.
    :param names: what to read of them: see ``_view``.
    """
    joined = reservations.join(nodes, expr.CARRIED)
    if restricted_to is not None:
        # A union, because each part of it has an index of its own.
        seen = sa.union(
            sa.select(reservations.c.id).where(
                expr.equal(reservations.c.project_id, restricted_to)),
            sa.select(reservations.c.id).join(nodes, expr.CARRIED).where(
                expr.equal(nodes.c.owner, restricted_to))).subquery()
        joined = joined.join(seen, seen.c.id == reservations.c.id)
    return _view(joined, names).where(expr.LIVE)


#: How many reservations there are whose nodes carry their instances.
COUNT_CARRIED = sa.select(sa.func.count()).select_from(
    reservations.join(nodes, expr.CARRIED))


def expired(limit=None):
    """Reservations whose lease is over, expired or not, in random order."""
    return _view(reservations.join(nodes, expr.CARRIED)).where(
        expr.PAST_LEASE).order_by(sa.func.random()).limit(limit)


def overdue(at_work):
    """Reservations past their lease whose node something has begun on.

    :param at_work: provision states in which Ironic or an instance is at
        work, and the lease is nobody's business.
    """
    return _view(reservations.join(nodes, expr.CARRIED)).where(
        expr.PAST_LEASE, expr.TOUCHED,
        sa.func.coalesce(nodes.c.provision_state, '').not_in(at_work),
    ).order_by(reservations.c.expires_at, reservations.c.id)


@functools.cache
def fenced(has_target, has_holder):
    """The reservation of an instance if a host holds a node by it.

    SELECT ..., EXISTS (<the host's lease>) FROM reservations JOIN nodes ...
    WHERE instance_uuid = :instance AND host = :of_host
      AND nodes.uuid = :node AND <live>
      AND NOT EXISTS (SELECT 1 FROM volume_targets
                      WHERE uuid = :target AND node_id != nodes.id)

    UUIDs of Ironic's are compared as Ironic itself compares them. A volume
    target that is nowhere is for Ironic to miss.

    It is made once, because to make it takes as long as to run it.

    :param has_target: whether there is a volume target, which must not be
        another node's.
    :param has_holder: whether ``is_host`` is true only while ``:of_holder``
        has the host's lease.
    """
    def given(name):
        return sa.bindparam(name, type_=sa.String)

    is_host = host_rows.HOLDS_HOST.exists() if has_holder else sa.true()
    query = live(names=('instance_uuid', 'project_id', 'node_owner')
                 ).add_columns(is_host.label('is_host')).where(
                     column_is('instance_uuid', given('instance')),
                     column_is('host', given('of_host')),
                     nodes.c.uuid == given('node'))
    if not has_target:
        return query
    targets = models.volume_targets
    return query.where(~sa.exists().where(
        targets.c.uuid == given('target'), targets.c.node_id != nodes.c.id
    ).correlate(nodes))


def members(group_id, behind, limit):
    """The live members of a group in the order of their nodes' ids.

    :param behind: only those behind a node of this id.
    :param limit: how many at most; None for all.
    """
    return live().where(
        reservations.c.group_id == group_id, reservations.c.node_id > behind
    ).order_by(reservations.c.node_id).limit(limit)


def of_group(group_id):
    """All rows of a group, those that count no more among them."""
    return _view(reservations.outerjoin(
        nodes, nodes.c.id == reservations.c.node_id)).where(
            reservations.c.group_id == group_id)


def request_specs(reservation_ids):
    """The request specs of some reservations, with their ids."""
    return sa.select(reservations.c.id, reservations.c.request_spec).where(
        reservations.c.id.in_(reservation_ids))


def column_is(name, value):
    """Reservations whose column is this, or their node's or their group's."""
    return expr.equal(VIEW[name], value)


def of_project(project_id):
    """A project's reservations; for None, those that are no project's."""
    column = reservations.c.project_id
    return (column.is_(None) if project_id is None
            else expr.equal(column, project_id))


def in_states(wanted, known):
    """Nodes in the wanted provision states; in no known one for None."""
    state = nodes.c.provision_state
    if wanted is not None:
        return state.in_(wanted)
    return sa.or_(state.is_(None), state.not_in(
        [name for names in known.values() for name in names]))


def is_node(ident):
    return expr.named([ident])


#: As values.Reservation.effective_expiry.
_ENDS_AT = sa.case((nodes.c.provision_state == 'available',
                    reservations.c.expires_at))


#: What NULL sorts as, by column, on every database and across pages.
LEAST = {column.name: {sa.DateTime: datetime.datetime.min, sa.Integer: 0}.get(
    type(column.type), '') for column in reservations.c}


def ordered(query, order, after):
    """Order by columns, from behind a row.

    :param order: see lookup.find.
    :param after: values of the row, in the same order, or None.
    """
    columns = [sa.func.coalesce(
        _ENDS_AT if name == 'expires_at' else reservations.c[name],
        LEAST[name], type_=reservations.c[name].type) for name in order]
    query = query.order_by(*(
        getattr(column, direction)()
        for column, direction in zip(columns, order.values(), strict=True)))
    if after is None:
        return query
    same, behind = [], []
    for column, direction, value in zip(
            columns, order.values(), after, strict=True):
        behind.append(sa.and_(*same, column > value if direction == 'asc'
                              else column < value))
        same.append(column == value)
    return query.where(sa.or_(*behind))


# The node no longer carries the instance.
_STALE = ~sa.exists().where(expr.CARRIED).correlate(reservations)


def stale(instance_uuids, node_ids):
    """Rows whose node no longer carries their instance, with that node.

    :param instance_uuids: only those of these instances,
    :param node_ids: or of these nodes; none of both for all.
    """
    query = _view(reservations.outerjoin(
        nodes, nodes.c.id == reservations.c.node_id)).where(_STALE)
    if not (instance_uuids or node_ids):
        return query
    return query.where(sa.or_(
        reservations.c.instance_uuid.in_(instance_uuids),
        reservations.c.node_id.in_(node_ids)))


def delete_stale(held):
    """Delete a row unless its node carries its instance again."""
    return delete(held).where(_STALE)


#: For ``update``: whichever host holds it, or none.
ANY_HOST = object()


def update(reservation_id, states, changes, host=ANY_HOST):
    """Change a row that counts.

    UPDATE reservations SET host = :h, expires_at = ... WHERE id = :r
      AND <the host holds it>
      AND EXISTS (SELECT 1 FROM nodes WHERE <it carries this>
                  AND provision_state IN (...) AND <not expired>)

    An expired or stale reservation is not changed, because others were told
    already that it is gone.

    :param states: provision states in which it may be changed; None for any.
    :param changes: dict of columns and their values, and of ``lease`` in
        seconds, which is None for no end.
    :param host: that must hold it; None for no host.
    """
    values = {'updated_at': fn.utcnow(), **changes}
    if 'lease' in changes:
        values['expires_at'] = _lease(values.pop('lease'))
    counts = [expr.CARRIED, expr.LIVE]
    if states is not None:
        counts.append(nodes.c.provision_state.in_(states))
    statement = sa.update(reservations).where(
        reservations.c.id == reservation_id,
        sa.exists().where(*counts).correlate(reservations)).values(values)
    return statement if host is ANY_HOST else statement.where(_held_by(host))


def _lease(seconds):
    return fn.seconds_from_now(seconds) if seconds else sa.null()


def _held_by(host):
    return (reservations.c.host.is_(None) if host is None
            else expr.equal(reservations.c.host, host))


def end_leases(states):
    """Clear ``expires_at`` of leases that are over on deployed nodes.

    These nodes need no lease: nothing is done when it is over.

    :param states: provision states out of which a node does not become
        available without losing its instance.
    """
    return sa.update(reservations).where(
        expr.PAST_LEASE,
        sa.exists().where(expr.CARRIED, nodes.c.provision_state.in_(states)
                          ).correlate(reservations),
    ).values(expires_at=None)


def delete(*held):
    """Delete rows that are still of the group that they were read in.

    :param held: values.Reservations of one group, or of none.
    """
    return sa.delete(reservations).where(
        reservations.c.id.in_([each.id for each in held]),
        reservations.c.group_id.is_not_distinct_from(held[0].group_id))


#: A write that changes nothing, because no id is negative.
DELETE_NOTHING = sa.delete(reservations).where(reservations.c.id == -1)


def delete_of_hosts(*held):
    """Like ``delete``, but only rows whose host is the one that was read."""
    ids = {}
    for each in held:
        ids.setdefault(each.host, []).append(each.id)
    return delete(*held).where(sa.or_(*(
        sa.and_(_held_by(host), reservations.c.id.in_(of_host))
        for host, of_host in ids.items())))


def delete_expired(held):
    """Delete a row unless its lease was renewed."""
    return delete(held).where(expr.PAST_LEASE)
