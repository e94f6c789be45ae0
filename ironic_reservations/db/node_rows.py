# SPDX-License-Identifier: Apache-2.0
"""The statements on Ironic's nodes: pages of free ones, the hold, the release.

Each statement that every hold needs is built once for each of its shapes and
takes its values beside it, because SQLAlchemy needs longer to put such a
statement together than the database needs to run it.
"""

import functools

import sqlalchemy as sa

from ironic_reservations.db import expressions
from ironic_reservations.db import functions
from ironic_reservations.db import models

nodes = models.nodes
node_traits = models.node_traits
node_history = models.node_history

# Where a node is while it is deployed, and where a failure has left it: the
# history of Ironic may say either of an error in a deployment.
_DEPLOYMENT = ('deploying', 'wait call-back', 'deploy hold', 'deploy failed')

_STATE = functions.optional(node_history.c.state)

# 1 for a node in whose history Ironic has noted since so many seconds that a
# deployment has failed, or, where it does not say in which state the node was,
# any error; else 0. It is not an EXISTS, because MariaDB would turn that into
# a join with the whole history. MariaDB runs this subquery for each node, by
# the history's index on node_id.
_HISTORY = sa.func.coalesce(sa.select(sa.literal_column('1')).where(
    node_history.c.node_id == nodes.c.id,
    node_history.c.severity == 'ERROR',
    node_history.c.created_at > functions.seconds_from_now(
        sa.bindparam('failed_since', type_=sa.Integer)),
    sa.or_(_STATE.is_(None), _STATE.in_(_DEPLOYMENT)),
).limit(1).scalar_subquery(), 0)


def _has_failed(with_history):
    """1 for a node that is to be held after its equals, else 0.

    :param with_history: whether its history makes a difference.
    """
    return sa.case((expressions.AILING, 1),
                   else_=_HISTORY if with_history else sa.literal_column('0'))



def _is_visible(unowned):
    """The nodes that a project may use: see matching.is_visible."""
    whose = [functions.same_text(column, sa.bindparam('restricted_to',
                                               type_=sa.String))
             for column in (nodes.c.owner, nodes.c.lessee)]
    if unowned:
        whose.append(sa.and_(nodes.c.owner.is_(None),
                             nodes.c.lessee.is_(None)))
    return sa.or_(*whose)


# The facts of a profile that can be long, or each node's own.
_LONG = ('capabilities', 'traits', 'irregular_properties')


def is_in_profiles(profiles):
    """Nodes of some hardware profiles.

    One profile is compared in all of its facts. Of several, which may be
    thousands, each fact is compared with all values that they have of it, and
    a long one only where they all have the same: a statement cannot be
    arbitrarily long. It then finds nodes of other profiles, too, and the
    caller sorts these out.

    :param profiles: the facts of each: see profiles.Profile.
    """
    where = []
    # What is cheap to compare stands first, because the database compares in
    # this order and stops at the first difference.
    for name, column in expressions.PROFILE.items():
        if any(name not in profile for profile in profiles):
            continue
        values = {profile[name] for profile in profiles}
        if len(values) > 1:
            if name not in _LONG:
                where.append(_is_one_of(column, values))
        elif name == 'resource_class' and values != {None}:
            where.append(expressions.equals_text(column, *values))
        else:
            where.append(functions.same_text(column, *values))
    return sa.and_(*where)


def _is_one_of(column, values):
    found = column.in_(values - {None})
    return sa.or_(found, column.is_(None)) if None in values else found


def select_page(where, matcher, first, last, limit, failed, avoid_failed):
    """Free nodes with ids from first to last, in order of id.

    :param where: what else is asked of them.
    :param matcher: matching.Matcher, for the nodes that its caller may use.
    :param failed: only those that have failed lately, or only the others;
        None for all.
    :param avoid_failed: seconds for which a node counts as ``failed`` after
        an error; 0 where errors make no difference.
    :returns: the statement and its values.
    """
    has_failed = _has_failed(bool(avoid_failed))
    statement = _select_page(
        (*expressions.FACTS, has_failed.label('failed')), where, failed,
        has_failed)
    if matcher.restricted_to is not None:
        statement = statement.where(_is_visible(matcher.unowned))
    return statement, {'restricted_to': matcher.restricted_to, 'first': first,
                       'last': last, 'page': limit,
                       'failed_since': -avoid_failed}


def select_profile_page(profile, first, last, limit, failed, avoid_failed):
    """The same of one hardware profile, by its facts.

    Only those columns are read in which its nodes differ.
    """
    return (_select_profile_page(profile['resource_class'] is not None,
                             'capabilities' in profile, failed,
                             bool(avoid_failed)),
            {'first': first, 'last': last, 'page': limit,
             'failed_since': -avoid_failed,
             **{f'profile_{name}': value for name, value in profile.items()}})


@functools.cache
def _select_profile_page(classified, of_capabilities, failed, with_history):
    profile = {name: sa.bindparam(f'profile_{name}', type_=sa.Text)
               for name in expressions.PROFILE
               if of_capabilities or name != 'capabilities'}
    if not classified:
        profile['resource_class'] = None
    return _select_page(expressions.OWN_FACTS, is_in_profiles([profile]),
                        failed, _has_failed(with_history))


def _select_page(columns, where, failed, has_failed):
    first, last, limit = (sa.bindparam(name, type_=sa.Integer)
                          for name in ('first', 'last', 'page'))
    if failed is not None:
        where = sa.and_(where, has_failed == int(failed))
    return sa.select(*columns).where(
        nodes.c.id.between(first, last), *expressions.FREE,
        expressions.UNLOCKED, where,
    ).order_by(nodes.c.id).limit(limit)


def hold_node(node, matcher, instance_uuid, claimed=None):
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
    return (_hold_node(restricted_to is not None, matcher.unowned,
                  matcher.ownership is not None, bool(spec.required_traits),
                  bool(spec.forbidden_traits),
                  claimed is not None),
            {'node_id': node.id, 'instance': instance_uuid,
             'restricted_to': restricted_to,
             **{f'read_{name}': getattr(node, name)
                for name in _AS_READ + _OWNERS_AS_READ},
             'required': list(spec.required_traits),
             'how_many': len(spec.required_traits),
             'forbidden': list(spec.forbidden_traits),
             'claimed': claimed})


# The columns of the node that the hold compares byte for byte with what the
# search has read; owner and lessee only where the request names an ownership.
_AS_READ = ('uuid', 'resource_class', 'conductor_group', 'shard', 'name',
            'properties')
_OWNERS_AS_READ = ('owner', 'lessee')


@functools.cache
def _hold_node(restricted, unowned, owned, requiring, forbidding, claiming):
    where = [nodes.c.id == sa.bindparam('node_id'), expressions.UNLOCKED]
    where += ((*expressions.ELIGIBLE, expressions.CLAIMABLE_BY_ID) if claiming
              else expressions.FREE)
    if restricted:
        where.append(_is_visible(unowned))
    as_read = _AS_READ + (_OWNERS_AS_READ if owned else ())
    where += [functions.same_text(nodes.c[name], sa.bindparam(
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
        instance_uuid=sa.bindparam('instance'),
        updated_at=functions.readable_utcnow(),
    ).with_hint('USE INDEX (PRIMARY)', dialect_name='mysql')


def select_carrier(instance_uuid):
    """All that matching reads of the node that carries an instance."""
    return sa.select(*expressions.FACTS).where(
        nodes.c.instance_uuid == instance_uuid)


def _release_node(*where):
    return sa.update(nodes).where(
        nodes.c.id == sa.bindparam('node_id', type_=sa.Integer),
        nodes.c.instance_uuid == sa.bindparam('instance', type_=sa.String),
        expressions.UNLOCKED, *where,
    ).values(instance_uuid=None, updated_at=functions.utcnow())


def release_nodes(held, states, restricted):
    """Take instances off their nodes, one by one, where the state allows it.

    UPDATE nodes SET instance_uuid = NULL WHERE id = :n
      AND instance_uuid = :i AND reservation IS NULL
      AND allocation_id IS NULL AND provision_state IN (...)

    :param held: values.Reservations.
    :param states: provision states in which they may be released.
    :param restricted: whether each must be in the state in which it was read,
        and untouched if that is ``available``. If not, maintenance allows it
        in any state.
    :returns: the statement, and its values for each.
    """
    state = nodes.c.provision_state
    allowed = (
        sa.and_(state == sa.bindparam('as_read', type_=sa.String),
                sa.or_(state != 'available', ~expressions.TOUCHED))
        if restricted else
        sa.or_(state.in_(states), nodes.c.maintenance == sa.true()))
    return (_release_node(nodes.c.allocation_id.is_(None), allowed),
            [{**_bind_node(each), 'as_read': each.provision_state}
             if restricted
             else _bind_node(each) for each in held])


def release_untouched_node(held):
    """Take an instance off its node if nothing has begun on it.

    UPDATE nodes SET instance_uuid = NULL WHERE id = :n
      AND instance_uuid = :i AND reservation IS NULL AND <untouched>
    """
    return _release_node(~expressions.TOUCHED), _bind_node(held)


def _bind_node(held):
    return {'node_id': held.node_id, 'instance': held.instance_uuid}
