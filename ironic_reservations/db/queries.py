# SPDX-License-Identifier: Apache-2.0
"""The statements, as functions of what they are about.

Those that every hold needs come with their values beside them. SQLAlchemy
takes longer to put such a statement together than the database takes to run
it: there is one of each shape, built once.
"""

import datetime
import functools

import sqlalchemy as sa

from ironic_reservations.db import functions as fn
from ironic_reservations.db import models

nodes = models.nodes
node_history = models.node_history
node_traits = models.node_traits
reservations = models.reservations
groups = models.groups
_projects = models.projects
_hosts = models.host_leases

#: What matching reads of a node, by the names of ``matching.Node``: what
#: nodes of one hardware profile differ in, and all.
OWN_FACTS = (nodes.c.id, nodes.c.uuid, nodes.c.name, nodes.c.properties)
FACTS = (*OWN_FACTS, nodes.c.resource_class, nodes.c.conductor_group,
         nodes.c.shard, nodes.c.owner, nodes.c.lessee,
         fn.trait_set().label('traits'))

#: How many hardware profiles a statement tells from each other at most.
_PROFILES = 20

#: 1 for a node in whose history Ironic has noted an error since so many
#: seconds, else 0. It is no EXISTS, which MariaDB would turn into a join with
#: the whole history: this one it asks for each node, by the index on that.
_FAILED = sa.func.coalesce(sa.select(sa.literal_column('1')).where(
    node_history.c.node_id == nodes.c.id,
    node_history.c.severity == 'ERROR',
    node_history.c.created_at > fn.seconds_from_now(
        sa.bindparam('failed_since', type_=sa.Integer)),
).limit(1).scalar_subquery(), 0)

UNLOCKED = nodes.c.reservation.is_(None)

#: A node is as one that may be held, whether or not it is.
HELD = (
    nodes.c.provision_state == 'available',
    nodes.c.allocation_id.is_(None),
    sa.or_(nodes.c.maintenance.is_(None), nodes.c.maintenance == sa.false()),
    sa.or_(nodes.c.retired.is_(None), nodes.c.retired == sa.false()),
    nodes.c.power_state.is_not(None),
    nodes.c.parent_node.is_(None),
)

#: A node may be held: Ironic's own rule for its allocations, and not retired.
#: NULL alone in instance_uuid says little: a tear-down clears it early.
FREE = (nodes.c.instance_uuid.is_(None), *HELD)

# A reservation counts while its node carries its instance. The node is found
# by its id, so that the differing collations of the two columns cost nothing.
CARRIED = sa.and_(nodes.c.id == reservations.c.node_id,
                  nodes.c.instance_uuid == reservations.c.instance_uuid)

_STALE = ~sa.exists().where(CARRIED).correlate(reservations)


def _of_node(table, *where):
    """Whether a node has such a row in a table of Ironic's.

    The node is the one of the statement around it, in however many
    subqueries this stands: left to itself SQLAlchemy would name ``nodes``
    again in the second, which then asks whether any node has such a row, and
    which MySQL refuses in an UPDATE of ``nodes`` (error 1093).
    """
    return sa.exists().where(table.c.node_id == nodes.c.id,
                             *where).correlate(nodes)


def _has_vif(table):
    return _of_node(table, sa.or_(
        table.c.internal_info.like('%vif_port_id%'),
        table.c.extra.like('%vif_port_id%')))


#: Something has begun on a held node: its reservation does not lapse, lest a
#: tenant's half-prepared node go to another.
TOUCHED = sa.or_(
    sa.func.coalesce(nodes.c.provision_state, '') != 'available',
    nodes.c.reservation.is_not(None),
    sa.func.coalesce(nodes.c.instance_info, '').not_in(('', '{}')),
    _has_vif(models.ports), _has_vif(models.portgroups),
    _of_node(models.volume_targets),
)

_EXPIRED = reservations.c.expires_at <= fn.utcnow()

#: The lease is over: gone from every read, the node counts as free.
LAPSED = sa.and_(CARRIED, _EXPIRED, ~TOUCHED)

LIVE = sa.or_(reservations.c.expires_at.is_(None), ~_EXPIRED, TOUCHED)

#: An instance may take it over: see claims.
CLAIMABLE = sa.and_(CARRIED, LIVE, reservations.c.host.is_(None))

#: The same of the one reservation that an instance is about to take over.
CLAIMABLE_BY_ID = sa.exists().where(
    CLAIMABLE, reservations.c.id == sa.bindparam('claimed', type_=sa.Integer)
).correlate(nodes)


def equal(column, text):
    """Whether a column is the very text, for which its index is used.

    utf8mb4_bin of our own table, too, ignores trailing spaces.
    """
    return sa.and_(column == text, fn.same_text(column, text))


# Nodes that a project may use.
_VISIBLE = sa.or_(*(
    fn.same_text(column, sa.bindparam('restricted_to', type_=sa.String))
    for column in (nodes.c.owner, nodes.c.lessee)))


def named(candidates):
    """Nodes whose UUID or name is among the given ones."""
    return sa.or_(nodes.c.uuid.in_(candidates), nodes.c.name.in_(candidates))


#: What makes a hardware profile, as the database has it.
PROFILE = {
    **{name: nodes.c[name] for name in
       ('resource_class', 'conductor_group', 'shard', 'owner', 'lessee')},
    **{name: fn.property_text(nodes.c.properties,
                              sa.literal_column(f"'$.{name}'"))
       for name in ('memory_mb', 'cpus', 'local_gb', 'cpu_arch',
                    'capabilities')},
    'traits': fn.trait_set(),
    'irregular_properties': fn.irregular_properties(nodes.c.properties),
}

_SHARED = models.fleet_count
_THE_ROW = _SHARED.c.id == 1


def shared_count():
    """The newest count that a worker of any API host has published: a row."""
    return sa.select(
        _SHARED.c.counted_at, _SHARED.c.cost,
        (fn.epoch() - _SHARED.c.counted_at).label('age')).where(_THE_ROW)


def shared_profiles():
    """What that worker has counted, and when it did: a row."""
    return sa.select(_SHARED.c.counted_at, _SHARED.c.profiles).where(_THE_ROW)


def begin_count(seconds):
    """Become the one worker that counts, or touch no row.

    UPDATE reservations_fleet SET counting_until = <now> + :seconds
    WHERE id = 1 AND <nobody is counting>

    A time that is further away was written before the clock was set back.
    """
    left = _SHARED.c.counting_until - fn.epoch()
    return sa.update(_SHARED).where(
        _THE_ROW, sa.or_(left <= 0, left > seconds),
    ).values(counting_until=fn.epoch() + seconds)


def publish_count(profiles, cost):
    """Publish a count that has just ended, and let others count again.

    :param profiles: text.
    :param cost: seconds that it took.
    """
    return sa.update(_SHARED).where(_THE_ROW).values(
        **_published(profiles, cost))


def first_count(profiles, cost):
    """The same where nothing was published yet."""
    return sa.insert(_SHARED).values(id=1, **_published(profiles, cost))


def _published(profiles, cost):
    return {'counted_at': fn.epoch() - cost, 'cost': cost,
            'counting_until': 0, 'profiles': profiles}


def in_profiles(profiles):
    """Nodes of some hardware profiles.

    :param profiles: the facts of each, as ``counting`` gave them. Of many
        profiles only the resource classes are compared, because a statement
        cannot be arbitrarily long; the caller sorts the others out.
    """
    if len(profiles) > _PROFILES:
        return sa.or_(*(
            nodes.c.resource_class == name if name is not None
            else nodes.c.resource_class.is_(None)
            for name in {profile['resource_class'] for profile in profiles}))
    return sa.or_(*map(_in_profile, profiles))


def _in_profile(profile):
    # What is cheap to compare stands first, because the database compares in
    # this order and stops at the first difference.
    return sa.and_(*(
        equal(column, profile[name])
        if name == 'resource_class' and profile[name] is not None
        else fn.same_text(column, profile[name])
        for name, column in PROFILE.items()))


def page(where, restricted_to, first, last, limit, failed, avoid_failed):
    """Free nodes with ids from first to last, in order of id.

    :param where: what else is asked of them.
    :param restricted_to: only nodes of this project; None for all.
    :param failed: only those that have failed lately, or only the others;
        None for all.
    :param avoid_failed: seconds for which a node counts as ``failed`` after
        an error.
    :returns: the statement and its values.
    """
    statement = _page((*FACTS, _FAILED.label('failed')), where, failed)
    if restricted_to is not None:
        statement = statement.where(_VISIBLE)
    return statement, {'restricted_to': restricted_to, 'first': first,
                       'last': last, 'page': limit,
                       'failed_since': -avoid_failed}


def page_of_profile(profile, first, last, limit, failed, avoid_failed):
    """The same of one hardware profile, whose facts ``counting`` gave.

    Only those columns are read in which its nodes differ.
    """
    return (_page_of_profile(profile['resource_class'] is not None, failed),
            {'first': first, 'last': last, 'page': limit,
             'failed_since': -avoid_failed,
             **{f'profile_{name}': value for name, value in profile.items()}})


@functools.cache
def _page_of_profile(classified, failed):
    profile = {name: sa.bindparam(f'profile_{name}', type_=sa.Text)
               for name in PROFILE}
    if not classified:
        profile['resource_class'] = None
    return _page(OWN_FACTS, _in_profile(profile), failed)


def _page(columns, where, failed):
    first, last, limit = (sa.bindparam(name, type_=sa.Integer)
                          for name in ('first', 'last', 'page'))
    if failed is not None:
        where = sa.and_(where, _FAILED == int(failed))
    return sa.select(*columns).where(
        nodes.c.id.between(first, last), *FREE, UNLOCKED, where,
    ).order_by(nodes.c.id).limit(limit)


def hold(node, matcher, instance_uuid, claimed=None):
    """The guarded update that makes a node somebody's, or touches no row.

    UPDATE nodes USE INDEX (PRIMARY)
    SET instance_uuid = :i, updated_at = <now, readable from the reply>
    WHERE id = :n AND <free> AND reservation IS NULL AND <the caller's>
      AND <uuid, class, group, shard, name and properties as read>
      AND (SELECT COUNT(*) FROM node_traits
           WHERE node_id = nodes.id AND trait IN (...)) = <how many>
      AND NOT EXISTS (SELECT 1 FROM node_traits WHERE ... trait IN (...))

    The properties as they were read stand for every constraint on them: so
    no JSON is parsed in an UPDATE, where a malformed number is an error. The
    index is named because the database would otherwise weigh all those that
    the conditions touch, which takes longer than to find one row by its id.

    :param node: a matching.Node that satisfies the request.
    :param matcher: the request's matching.Matcher.
    :param claimed: the id of the reservation that holds the node and ends,
        if the node is not to be free.
    :returns: the statement and its values.
    """
    spec, restricted_to = matcher.spec, matcher.restricted_to
    return (_hold(restricted_to is not None, matcher.ownership is not None,
                  bool(spec.required_traits), bool(spec.forbidden_traits),
                  claimed is not None),
            {'node_id': node.id, 'instance': instance_uuid,
             'restricted_to': restricted_to,
             **{f'read_{name}': getattr(node, name)
                for name in _AS_READ + _OWNERS_AS_READ},
             'required': list(spec.required_traits),
             'how_many': len(spec.required_traits),
             'forbidden': list(spec.forbidden_traits),
             'claimed': claimed})


# Compared byte for byte with what was read.
_AS_READ = ('uuid', 'resource_class', 'conductor_group', 'shard', 'name',
            'properties')
_OWNERS_AS_READ = ('owner', 'lessee')


@functools.cache
def _hold(restricted, owned, requiring, forbidding, claiming):
    where = [nodes.c.id == sa.bindparam('node_id'), UNLOCKED]
    where += (*HELD, CLAIMABLE_BY_ID) if claiming else FREE
    if restricted:
        where.append(_VISIBLE)
    as_read = _AS_READ + (_OWNERS_AS_READ if owned else ())
    where += [fn.same_text(nodes.c[name], sa.bindparam(
        f'read_{name}', type_=sa.Text)) for name in as_read]
    of_node = node_traits.c.node_id == nodes.c.id
    if requiring:
        where.append(sa.select(sa.func.count()).where(
            of_node,
            node_traits.c.trait.in_(sa.bindparam('required', expanding=True))
        ).scalar_subquery() == sa.bindparam('how_many'))
    if forbidding:
        where.append(~sa.exists().where(of_node, node_traits.c.trait.in_(
            sa.bindparam('forbidden', expanding=True))))
    return sa.update(nodes).where(*where).values(
        instance_uuid=sa.bindparam('instance'), updated_at=fn.utcnow_told(),
    ).with_hint('USE INDEX (PRIMARY)', dialect_name='mysql')


#: A reservation's row.
INSERT = sa.insert(reservations)


def carrying(instance_uuid):
    """All that matching reads of the node that carries an instance."""
    return sa.select(*FACTS).where(nodes.c.instance_uuid == instance_uuid)


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
                          nodes.c.allocation_id.is_(None), UNLOCKED,
                          nodes.c.provision_state.in_(states)
                          ).with_hint(nodes, 'USE INDEX (PRIMARY)',
                                      dialect_name='mysql'))


def carrier(instance_uuid):
    """The node that carries an instance, and its reservation if it has one.

    SELECT ... FROM nodes LEFT JOIN reservations
      ON node_id = nodes.id AND reservations.instance_uuid = ...
    WHERE nodes.instance_uuid = :i
    """
    return _view(nodes.outerjoin(reservations, CARRIED), VIEW).where(
        nodes.c.instance_uuid == instance_uuid)


def live(restricted_to=None, names=None):
    """The reservations that count, each with its node.

    :param restricted_to: only those of this project, and those on nodes that
        it owns; None for all.
    :param names: what to read of them: see ``_view``.
    """
    joined = reservations.join(nodes, CARRIED)
    if restricted_to is not None:
        # A union, because each part of it has an index of its own.
        seen = sa.union(
            sa.select(reservations.c.id).where(
                equal(reservations.c.project_id, restricted_to)),
            sa.select(reservations.c.id).join(nodes, CARRIED).where(
                equal(nodes.c.owner, restricted_to))).subquery()
        joined = joined.join(seen, seen.c.id == reservations.c.id)
    return _view(joined, names).where(LIVE)


#: How many reservations there are whose nodes carry their instances.
COUNT_CARRIED = sa.select(sa.func.count()).select_from(
    reservations.join(nodes, CARRIED))


def expired(limit=None):
    """Reservations whose lease is over, lapsed or not, in random order."""
    return _view(reservations.join(nodes, CARRIED)).where(
        _EXPIRED).order_by(sa.func.random()).limit(limit)


def overdue(at_work):
    """Reservations past their lease whose node something has begun on.

    :param at_work: provision states in which Ironic or an instance is at
        work, and the lease is nobody's business.
    """
    return _view(reservations.join(nodes, CARRIED)).where(
        _EXPIRED, TOUCHED,
        sa.func.coalesce(nodes.c.provision_state, '').not_in(at_work),
    ).order_by(reservations.c.expires_at, reservations.c.id)


def column_is(name, value):
    """Reservations whose column is this, or their node's or their group's."""
    column = {'resource_class': nodes.c.resource_class,
              'group_uuid': groups.c.uuid}.get(name)
    return equal(reservations.c[name] if column is None else column, value)


def of_project(project_id):
    """A project's reservations; for None, those that are no project's."""
    column = reservations.c.project_id
    return column.is_(None) if project_id is None else equal(column,
                                                             project_id)


def in_states(wanted, known):
    """Nodes in the wanted provision states; in no known one for None."""
    state = nodes.c.provision_state
    if wanted is not None:
        return state.in_(wanted)
    return sa.or_(state.is_(None), state.not_in(
        [name for names in known.values() for name in names]))


def is_node(ident):
    return sa.or_(nodes.c.uuid == ident, nodes.c.name == ident)


#: As reservations.Reservation.ends_at.
_ENDS_AT = sa.case((nodes.c.provision_state == 'available',
                    reservations.c.expires_at))


def ordered(query, order, after):
    """Order by columns and then by id, from behind a row.

    NULL sorts as the least value, on every database and across pages.

    :param order: see reservations.find. Rows that are equal in all of it are
        in the order of their ids, in the direction of the last.
    :param after: the row, or None.
    """
    same, behind = [], []
    for name, direction in {
            **order, 'id': order.get('id', [*order.values()][-1])}.items():
        column = _ENDS_AT if name == 'expires_at' else reservations.c[name]
        least = {sa.DateTime: datetime.datetime.min, sa.Integer: 0}.get(
            type(column.type), '')
        column = sa.func.coalesce(column, least, type_=column.type)
        query = query.order_by(getattr(column, direction)())
        if after is not None:
            value = getattr(
                after, 'ends_at' if name == 'expires_at' else name)
            value = least if value is None else value
            behind.append(sa.and_(*same, column > value if direction == 'asc'
                                  else column < value))
            same.append(column == value)
    return query.where(sa.or_(*behind)) if behind else query


#: All that a reservations.Reservation has, by the names of its attributes.
VIEW = {
    **{column.name: column for column in reservations.c},
    'group_uuid': groups.c.uuid, 'group_policy': groups.c.policy,
    'group_by': groups.c.by, 'node_name': nodes.c.name,
    'node_owner': nodes.c.owner, 'node_lessee': nodes.c.lessee,
    'provision_state': nodes.c.provision_state,
    'resource_class': nodes.c.resource_class,
    'maintenance': nodes.c.maintenance, 'lock': nodes.c.reservation,
    'allocated': nodes.c.allocation_id.is_not(None),
    'touched': sa.func.coalesce(TOUCHED, sa.false()),
    'lapsed': sa.func.coalesce(LAPSED, sa.false()),
}

_BRIEF = tuple(name for name in VIEW if name != 'request_spec')

#: How long a reservation's request spec is, as ``spec_length``.
SPEC_LENGTH = sa.func.length(reservations.c.request_spec).label('spec_length')


def _view(joined, names=None):
    """What a reservations.Reservation is made of.

    :param names: which of ``VIEW`` to read. None for all but the request
        spec, which is many times as long as all the rest, and of use to few
        who read more than one reservation.
    """
    return sa.select(*(
        VIEW[name].label(name) for name in (_BRIEF if names is None else names)
    )).select_from(joined.outerjoin(
        groups, groups.c.id == reservations.c.group_id))


def request_specs(reservation_ids):
    """The request specs of some reservations, with their ids."""
    return sa.select(reservations.c.id, reservations.c.request_spec).where(
        reservations.c.id.in_(reservation_ids))


def stale(instance_uuid=None, node_id=None):
    """Rows whose node no longer carries their instance, with that node.

    :param instance_uuid: only this instance's row,
    :param node_id: or this node's; None and None for all.
    """
    query = _view(reservations.outerjoin(
        nodes, nodes.c.id == reservations.c.node_id)).where(_STALE)
    if instance_uuid is None:
        return query
    return query.where(sa.or_(
        reservations.c.instance_uuid == instance_uuid,
        reservations.c.node_id == node_id))


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
                  AND provision_state IN (...) AND <not lapsed>)

    What others have seen gone does not come back.

    :param states: provision states in which it may be changed; None for any.
    :param changes: dict of columns and their values, and of ``lease`` in
        seconds, which is None for no end.
    :param host: that must hold it; None for no host.
    """
    values = {'updated_at': fn.utcnow(), **changes}
    if 'lease' in changes:
        values['expires_at'] = _lease(values.pop('lease'))
    counts = [CARRIED, LIVE]
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
            else equal(reservations.c.host, host))


def end_leases(states):
    """Forget the leases that are over where a deployment stands instead.

    :param states: provision states out of which a node does not become
        available without losing its instance.
    """
    return sa.update(reservations).where(
        _EXPIRED,
        sa.exists().where(CARRIED, nodes.c.provision_state.in_(states)
                          ).correlate(reservations),
    ).values(expires_at=None)


def _let_go(*where):
    return sa.update(nodes).where(
        nodes.c.id == sa.bindparam('node_id', type_=sa.Integer),
        nodes.c.instance_uuid == sa.bindparam('instance', type_=sa.String),
        UNLOCKED, *where,
    ).values(instance_uuid=None, updated_at=fn.utcnow())


def release(held, states, bound):
    """Take instances off their nodes, one by one, where the state allows it.

    UPDATE nodes SET instance_uuid = NULL WHERE id = :n
      AND instance_uuid = :i AND reservation IS NULL
      AND allocation_id IS NULL AND provision_state IN (...)

    :param held: reservations.Reservations.
    :param states: provision states in which they may be released.
    :param bound: whether each must be in the state in which it was read, and
        untouched if that is ``available``. If not, maintenance allows it in
        any state.
    :returns: the statement, and its values for each.
    """
    state = nodes.c.provision_state
    allowed = (
        sa.and_(state == sa.bindparam('as_read', type_=sa.String),
                sa.or_(state != 'available', ~TOUCHED))
        if bound else
        sa.or_(state.in_(states), nodes.c.maintenance == sa.true()))
    return (_let_go(nodes.c.allocation_id.is_(None), allowed),
            [{**_node(each), 'as_read': each.provision_state} if bound
             else _node(each) for each in held])


def give_back(held):
    """Take an instance off its node if nothing has begun on it.

    UPDATE nodes SET instance_uuid = NULL WHERE id = :n
      AND instance_uuid = :i AND reservation IS NULL AND <untouched>
    """
    return _let_go(~TOUCHED), _node(held)


def _node(held):
    return {'node_id': held.node_id, 'instance': held.instance_uuid}


def delete(*held):
    """Delete rows that are still of the group that they were read in.

    :param held: reservations.Reservations of one group, or of none.
    """
    return sa.delete(reservations).where(
        reservations.c.id.in_([each.id for each in held]),
        reservations.c.group_id.is_not_distinct_from(held[0].group_id))


#: A write that changes nothing, because no id is negative.
DELETE_NOTHING = sa.delete(reservations).where(reservations.c.id == -1)


def delete_of_hosts(*held):
    """The same of those that are still the hosts' that they were read of."""
    ids = {}
    for each in held:
        ids.setdefault(each.host, []).append(each.id)
    return delete(*held).where(sa.or_(*(
        sa.and_(_held_by(host), reservations.c.id.in_(of_host))
        for host, of_host in ids.items())))


def delete_expired(held):
    """Delete a row unless its lease was renewed."""
    return delete(held).where(_EXPIRED)


# Groups

_UUID = sa.bindparam('uuid', type_=sa.String)

#: A group, and a row for each that is or was a member: the group's columns,
#: ``member`` (its id, NULL where there is none), ``live`` (whether it counts)
#: and ``domain``.
GROUP = sa.select(
    *groups.c, reservations.c.id.label('member'), reservations.c.domain,
    sa.and_(nodes.c.id.is_not(None), LIVE).label('live'),
).select_from(groups.outerjoin(
    reservations, reservations.c.group_id == groups.c.id
).outerjoin(nodes, CARRIED)).where(groups.c.uuid == _UUID)


def group(uuid):
    """The row of a group."""
    return sa.select(groups).where(groups.c.uuid == uuid)


_HAS_MEMBERS = sa.exists().where(
    reservations.c.group_id == groups.c.id, CARRIED, LIVE).correlate(groups)


def live_groups(restricted_to, marker, limit):
    """The groups that have members, in order of id.

    :param restricted_to: only those of this project; None for all.
    :param marker: only those behind the group of this id; None for all.
    :param limit: how many at most.
    """
    query = sa.select(groups).where(_HAS_MEMBERS)
    if restricted_to is not None:
        query = query.where(equal(groups.c.project_id, restricted_to))
    if marker is not None:
        query = query.where(groups.c.id > marker)
    return query.order_by(groups.c.id).limit(limit)


def members(group_id):
    """The members of a group in order of their nodes."""
    return live().where(
        reservations.c.group_id == group_id).order_by(reservations.c.node_id)


#: The very text of a domain: those that differ in trailing spaces are equal
#: to MariaDB.
_DOMAIN = sa.cast(reservations.c.domain, sa.LargeBinary)


def domains(group_ids):
    """How many members groups have in each domain.

    :returns: rows of a group's id, a domain or None, and the number.
    """
    return sa.select(
        reservations.c.group_id, sa.func.min(reservations.c.domain),
        sa.func.count()).join_from(reservations, nodes, CARRIED).where(
            LIVE, reservations.c.group_id.in_(group_ids)).group_by(
                reservations.c.group_id, _DOMAIN)


def some_members(group_id, behind, limit):
    """Some of a group's, those behind a node of this id."""
    return members(group_id).where(
        reservations.c.node_id > behind).limit(limit)


#: A group's row.
INSERT_GROUP = sa.insert(groups).values(generation=0, created_at=fn.utcnow())

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
END_GROUP = sa.delete(groups).where(_GROUP, _EMPTY)

#: Delete a group as it was read if no row is left of its members, or touch
#: no row.
DELETE_GROUP = sa.delete(groups).where(_AS_READ_GROUP, _EMPTY)

#: The groups of whose members no row is left, as ids and generations.
EMPTY_GROUPS = sa.select(groups.c.id, groups.c.generation).where(_EMPTY)


def of_group(group_id, names=None):
    """All rows of a group, those that count no more among them."""
    return _view(reservations.outerjoin(
        nodes, nodes.c.id == reservations.c.node_id), names).where(
            reservations.c.group_id == group_id)




def as_read(group):
    """The values of the two statements that compare a group as it was read.

    :param group: membership.Group, or a row of ``EMPTY_GROUPS``.
    """
    return {'group_id': group.id, 'as_read': group.generation}


# Quotas

_OF_PROJECT = sa.bindparam('of_project', type_=sa.String)

#: Write the row of a project, or touch none.
#:
#: UPDATE reservations_projects SET serial = serial + 1
#: WHERE project_id = :of_project
WRITE_PROJECT = sa.update(_projects).where(
    _projects.c.project_id == _OF_PROJECT
).values(serial=_projects.c.serial + 1)

#: The row of a project that has none.
NEW_PROJECT = sa.insert(_projects).values(project_id=_OF_PROJECT, serial=0)

#: How many reservations of a project count, by resource class.
USED = sa.select(nodes.c.resource_class, sa.func.count()).join_from(
    reservations, nodes, CARRIED).where(
        equal(reservations.c.project_id, _OF_PROJECT), LIVE
).group_by(nodes.c.resource_class)


# The leases of compute hosts

def host_leases(longest, host=None, marker=None):
    """The leases of hosts in the order of their names, as ``hosts.Lease``.

    :param longest: see ``_live_host``.
    :param host: only this one's.
    :param marker: only of those behind this host.
    """
    query = sa.select(
        _hosts.c.host, _hosts.c.holder, _hosts.c.expires_at,
        _hosts.c.created_at, _hosts.c.updated_at,
        _live_host(longest).label('live')).order_by(_hosts.c.host)
    if host is not None:
        query = query.where(equal(_hosts.c.host, host))
    return query if marker is None else query.where(_hosts.c.host > marker)


def _live_host(longest):
    """Leases that nobody else may take over.

    :param longest: seconds that a lease may last. One that lasts longer was
        written before the clock was set back; it is not to keep a host
        without a process for as long as that.
    """
    return sa.and_(_hosts.c.expires_at > fn.utcnow(),
                   _hosts.c.expires_at <= fn.seconds_from_now(longest))


def new_host(host, holder, ttl):
    """Lease a host that nobody holds."""
    return sa.insert(_hosts).values(
        host=host, holder=holder, expires_at=fn.seconds_from_now(ttl),
        serial=0, created_at=fn.utcnow())


def renew_host(host, holder, ttl):
    """Let a lease last for so many seconds from now, be it over or not."""
    return _lease_host(host, holder, ttl).values(updated_at=fn.utcnow())


def take_host(host, before, holder, ttl, longest):
    """Take a lease over that has ended, or touch no row.

    UPDATE reservations_hosts
    SET holder = :holder, expires_at = <now> + :ttl, serial = serial + 1, ...
    WHERE host = :host AND holder = :before AND NOT <live>
    """
    return _lease_host(host, before, ttl).where(
        sa.not_(_live_host(longest))).values(
            holder=holder, created_at=fn.utcnow(), updated_at=None)


def _lease_host(host, holder, ttl):
    return sa.update(_hosts).where(_held_host(host, holder)).values(
        expires_at=fn.seconds_from_now(ttl), serial=_hosts.c.serial + 1)


def delete_host(host, holder):
    """Delete a lease of this holder."""
    return sa.delete(_hosts).where(_held_host(host, holder))


def _held_host(host, holder):
    return sa.and_(equal(_hosts.c.host, host), _hosts.c.holder == holder)


def of_holder(host, holder):
    """The values for the two statements below."""
    return {'of_host': host, 'of_holder': holder}


_HOLDS = sa.and_(_held_host(sa.bindparam('of_host', type_=sa.String),
                            sa.bindparam('of_holder', type_=sa.String)),
                 _hosts.c.expires_at > fn.utcnow())

#: Whether a holder has a host's lease, and it is not over.
HOLDS_HOST = sa.select(_hosts.c.serial).where(_HOLDS)

#: The same, certain until the COMMIT; see hosts.fence.
#:
#: UPDATE reservations_hosts SET serial = serial + 1
#: WHERE host = :of_host AND holder = :of_holder AND expires_at > <now>
FENCE = sa.update(_hosts).where(_HOLDS).values(serial=_hosts.c.serial + 1)
