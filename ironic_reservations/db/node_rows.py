# SPDX-License-Identifier: Apache-2.0
"""Statements on Ironic's nodes: select free ones, hold them, release them.

Statements of every hold are built once for each of their shapes, and take
their values as parameters, because building such a statement takes SQLAlchemy
longer than executing it takes the database.
"""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import typing
from typing import Any

import sqlalchemy as sa

from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.db import expressions
from ironic_reservations.db import functions
from ironic_reservations.db import models

nodes = models.nodes
node_traits = models.node_traits
node_history = models.node_history
reservations = models.reservations

# Provision states of a node during a deployment, and after a failed one:
# Ironic's history has either for an error in a deployment.
_DEPLOYMENT = ('deploying', 'wait call-back', 'deploy hold', 'deploy failed')

# What Ironic records before release 39, which has no states. It also records
# other errors, such as that of a VIF, with the state of the node.
_DEPLOYING = 'deploying'

_STATE = functions.optional(node_history.c.state)

# 1 for a node whose history has a failed deployment in the last seconds;
# otherwise 0. It is not an EXISTS, because MariaDB would turn that into a join
# with the whole history. MariaDB executes this subquery for each node, by the
# index on node_id.
_HISTORY = sa.func.coalesce(sa.select(sa.literal_column('1')).where(
    node_history.c.node_id == nodes.c.id,
    node_history.c.severity == 'ERROR',
    node_history.c.created_at > functions.seconds_from_now(
        sa.bindparam('failed_since', type_=sa.Integer)),
    sa.case((_STATE.is_(None), node_history.c.event_type == _DEPLOYING),
            else_=_STATE.in_(_DEPLOYMENT)),
).limit(1).scalar_subquery(), 0)


def is_suspect(with_history: bool) -> sa.ColumnElement[int]:
    """Return 1 for a node to try after all others, otherwise 0.

    The statement has the parameter ``failed_since``: minus the seconds after
    an error in which a node is suspect.

    :param with_history: whether to read its history.
    """
    return sa.case((sa.or_(expressions.AILING, expressions.NOTICED), 1),
                   else_=_HISTORY if with_history else sa.literal_column('0'))


# The project of a request.
_PROJECT = sa.bindparam('project', type_=sa.String)


def _is_covered(kind: str) -> sa.ColumnElement[bool]:
    """Return the condition that ``values.Ownership.covers`` a node.

    :param kind: that of the ownership; its project is ``:project``.
    """
    owners: list[sa.ColumnElement[bool]] = [
        functions.same_text(column, _PROJECT)
        for column in (nodes.c.owner, nodes.c.lessee)]
    owners.append(expressions.is_in_pool(_PROJECT))
    if kind == 'project_or_none':
        owners.append(sa.and_(nodes.c.owner.is_(None),
                              nodes.c.lessee.is_(None)))
    return sa.or_(*owners)


def select_by_ids(ids: Iterable[int], avoid_failed: int,
                  use: matching.Use = matching.TO_HOLD
                  ) -> tuple[sa.Select[Any], dict[str, Any]]:
    """Select the nodes with some ids that are free.

    SELECT <the facts>, CASE WHEN <ailing or noticed> THEN 1 ELSE ... END
           AS suspect
    FROM nodes WHERE id IN (...) AND <free> AND reservation IS NULL

    :param avoid_failed: seconds after an error in which a node is suspect; 0
        to ignore errors.
    :param use: what the nodes are for.
    :returns: the statement and its parameters.
    """
    return _select_by_ids(bool(avoid_failed), use.reasons), {
        'ids': list(ids), 'failed_since': -avoid_failed}


@functools.cache
def _select_by_ids(with_history: bool, reasons: tuple[str, ...]
                   ) -> sa.Select[Any]:
    # As parameters, the ids would take the client three times as long.
    return _select_free(with_history, nodes.c.id.in_(sa.bindparam(
        'ids', expanding=True, literal_execute=True)), reasons)


def select_candidates(candidates: Iterable[Iterable[str]], avoid_failed: int,
                      use: matching.Use = matching.TO_HOLD
                      ) -> tuple[sa.Select[Any], dict[str, Any]]:
    """Select the candidates of a request that are free.

    :param candidates: sets of UUIDs and names. A node must be in each.
    :param avoid_failed: see ``select_by_ids``; also ``use``.
    """
    return _select_free(
        bool(avoid_failed),
        sa.and_(*map(expressions.is_named, candidates)), use.reasons
    ), {'failed_since': -avoid_failed}


def _select_free(with_history: bool, where: sa.ColumnElement[bool],
                 reasons: tuple[str, ...]) -> sa.Select[Any]:
    return sa.select(
        *expressions.FACTS, expressions.HEALTH.label('health'),
        is_suspect(with_history).label('suspect'),
        expressions.MENTIONS_VIF.label('mentions_vif')
    ).where(where, *(condition for reason, condition in (
        (matching.LOCKED, expressions.UNLOCKED),
        (matching.POOLED, sa.not_(expressions.POOLED))) if reason in reasons),
        *expressions.FREE)


def hold_node(node: matching.Node, matcher: matching.Matcher,
              instance_uuid: str, claim_id: int | None = None,
              domain_traits: Mapping[str, str | None] = {}
              ) -> tuple[sa.Update, dict[str, Any]]:
    """Hold a node if it is unchanged and free; otherwise change no row.

    UPDATE nodes USE INDEX (PRIMARY)
    SET instance_uuid = :i, updated_at = <now, readable from the reply>,
        instance_name = NULL
    WHERE id = :n AND <free> AND reservation IS NULL AND <the ownership>
      AND (SELECT 1 FROM reservations_pool_nodes, reservations_pools
           WHERE <the node's, not expired> AND project_id != :project
           LIMIT 1) IS NULL
      AND <uuid, class, group, shard, name and properties as read>
      AND (SELECT COUNT(*) FROM node_traits
           WHERE node_id = nodes.id AND trait IN (...)) = <how many>
      AND NOT EXISTS (SELECT 1 FROM node_traits WHERE ... trait IN (...))
      AND NOT EXISTS (SELECT 1 FROM node_traits WHERE ...
                      trait LIKE ... AND trait NOT IN (...))

    Comparing the properties with those that were read replaces all constraints
    on them. So an UPDATE parses no JSON, where a malformed number is an error.
    The index is named because comparing all indexes on the columns of the
    conditions would take the database longer than finding a row by its id.

    A node that was not suspect when it was read must not have a notice by now,
    because the search would then prefer another node.

    :param node: satisfies the request.
    :param claim_id: id of the reservation to claim, which holds the node; None
        for a free node.
    :param domain_traits: by a prefix, the only trait of the node that has it;
        None if none or several have it.
    :returns: the statement and its parameters.
    """
    shape, parameters = _find_guards(node, matcher, domain_traits)
    return _hold_node(shape, claim_id is not None), {
        **parameters, 'instance': instance_uuid, 'claimed': claim_id}


def join_pool(node: matching.Node, matcher: matching.Matcher,
              domain_traits: Mapping[str, str | None]
              ) -> tuple[sa.Update, dict[str, Any]]:
    """Touch a node that joins a pool if it is unchanged and qualifies.

    UPDATE nodes USE INDEX (PRIMARY) SET updated_at = <another time>
    WHERE id = :n AND <free> AND (lessee IS NULL OR lessee = :project)
      AND <the conditions of the request, as in hold_node>

    A conductor may have locked it. That no pool has it is not a condition: the
    primary key of the rows of pools decides.

    :param matcher: its ``use`` is to join.
    :param domain_traits: see ``hold_node``.
    :returns: the statement and its parameters.
    """
    shape, parameters = _find_guards(node, matcher, domain_traits)
    return _join_pool(shape), {
        **parameters, 'pool_project': matcher.use.pool_project}


def _find_guards(node: matching.Node, matcher: matching.Matcher,
                 domain_traits: Mapping[str, str | None]
                 ) -> 'tuple[_Shape, dict[str, Any]]':
    spec, ownership = matcher.spec, matcher.ownership
    required = spec.required_traits.union(
        filter(None, domain_traits.values()))
    return _Shape(
        ownership.kind, bool(required), bool(spec.forbidden_traits),
        matcher.dedicated, bool(node.suspect), bool(node.mentions_vif),
        tuple(trait is not None for trait in domain_traits.values())
    ), {'node_id': node.id, 'project': ownership.project_id,
        **{f'read_{name}': getattr(node, name) for name in _GUARDS},
        'required': list(required), 'how_many': len(required),
        **{f'prefix_{number}': prefix
           for number, prefix in enumerate(domain_traits)},
        'forbidden': list(spec.forbidden_traits)}


# Columns that the hold compares byte for byte with the values that the search
# has read.
_GUARDS = ('uuid', 'resource_class', 'conductor_group', 'shard', 'name',
           'properties')


class _Shape(typing.NamedTuple):
    """What distinguishes the conditions of requests, besides parameters.

    :param ownership: kind of the request's ownership.
    :param dedicated: patterns; see ``matching.Matcher``.
    :param is_suspect: whether the node may have a notice.
    :param mentions_vif: see ``matching.Node``.
    :param has_trait: for each prefix, whether exactly one trait of the node
        has it.
    """

    ownership: str
    has_required: bool
    has_forbidden: bool
    dedicated: tuple[str, ...]
    is_suspect: bool
    mentions_vif: bool
    has_trait: tuple[bool, ...]


@functools.cache
def _hold_node(shape: _Shape, is_claim: bool) -> sa.Update:
    return expressions.UpdateNode(nodes).where(
        nodes.c.id == sa.bindparam('node_id'), expressions.UNLOCKED,
        *((expressions.CLAIMABLE_BY_ID,) if is_claim else (
            nodes.c.instance_uuid.is_(None),
            sa.not_(expressions.PREPARED if shape.mentions_vif
                    else expressions.MAYBE_PREPARED),
            sa.not_(expressions.is_in_pool(_PROJECT, other_projects=True)))),
        *_list_guards(shape),
        functions.unless_in_capitals(sa.bindparam('instance', type_=sa.String))
    ).values(
        instance_uuid=sa.bindparam('instance'),
        updated_at=functions.readable_utcnow(),
    ).with_hint('USE INDEX (PRIMARY)', dialect_name='mysql')


#: A time for ``updated_at``. Galera does not replicate an UPDATE that changes
#: nothing, so it always differs from the old one.
ANOTHER_TIME = sa.case(
    (nodes.c.updated_at == functions.utcnow(), functions.seconds_from_now(1)),
    else_=functions.utcnow())


@functools.cache
def _join_pool(shape: _Shape) -> sa.Update:
    return sa.update(nodes).where(
        nodes.c.id == sa.bindparam('node_id'),
        nodes.c.instance_uuid.is_(None), sa.not_(expressions.PREPARED),
        sa.or_(nodes.c.lessee.is_(None), functions.same_text(
            nodes.c.lessee, sa.bindparam('pool_project', type_=sa.String))),
        *_list_guards(shape)
    ).values(updated_at=ANOTHER_TIME).with_hint(
        'USE INDEX (PRIMARY)', dialect_name='mysql')


#: Make a hold of a node, and a write that keeps holds off it, conflict on
#: every member of a cluster: see ``transaction``.
#:
#: UPDATE nodes SET updated_at = CASE WHEN updated_at = <now>
#:   THEN <now> + 1 second ELSE <now> END
#: WHERE id = :node_id AND uuid = :read_uuid
TOUCH_NODE = sa.update(nodes).where(
    nodes.c.id == sa.bindparam('node_id', type_=sa.Integer),
    nodes.c.uuid == sa.bindparam('read_uuid', type_=sa.String)
).values(updated_at=ANOTHER_TIME)


def _list_guards(shape: _Shape) -> list[sa.ColumnElement[bool]]:
    """Return the conditions on a node, except how it must be free."""
    # A node without notices has no cordon.
    where = [*expressions.ALLOWED, sa.not_(
        expressions.CORDONED if shape.is_suspect else expressions.NOTICED)]
    if shape.ownership != 'any':
        where.append(_is_covered(shape.ownership))
    where += [functions.same_text(nodes.c[name], sa.bindparam(
        f'read_{name}', type_=sa.Text)) for name in _GUARDS]
    has_node = node_traits.c.node_id == nodes.c.id
    if shape.has_required:
        where.append(sa.select(sa.func.count()).where(
            has_node,
            node_traits.c.trait.in_(sa.bindparam('required', expanding=True))
        ).scalar_subquery() == sa.bindparam('how_many'))
    for number, has_trait in enumerate(shape.has_trait):
        prefix = sa.bindparam(f'prefix_{number}', type_=sa.String)
        traits = sa.select(sa.func.count()).where(
            has_node, sa.func.substr(
                node_traits.c.trait, 1, sa.func.length(prefix)) == prefix
        ).scalar_subquery()
        where.append(traits == 1 if has_trait else traits != 1)
    if shape.has_forbidden:
        where.append(~sa.exists().where(has_node, node_traits.c.trait.in_(
            sa.bindparam('forbidden', expanding=True))))
    if shape.dedicated:
        where.append(~sa.exists().where(
            has_node, sa.or_(*map(_fits_pattern, shape.dedicated)),
            node_traits.c.trait.not_in(
                sa.bindparam('required', expanding=True))))
    return where


def _fits_pattern(pattern: str) -> sa.ColumnElement[bool]:
    """Return the condition that a trait is, or begins with, a pattern."""
    trait = node_traits.c.trait
    if pattern.endswith('*'):
        return trait.startswith(pattern[:-1], autoescape=True)
    return trait == pattern


def select_nodes(ids: Collection[int]) -> sa.Select[Any]:
    """Select the facts of nodes, whether or not they are free."""
    return sa.select(
        *expressions.FACTS, expressions.HEALTH.label('health'),
        sa.literal_column('0').label('suspect')).where(nodes.c.id.in_(ids))


def select_carrier(instance_uuid: str) -> sa.Select[Any]:
    """Select the facts of the node that carries an instance.

    :param instance_uuid: as the node spells it.
    """
    return sa.select(*expressions.FACTS).where(
        nodes.c.instance_uuid == instance_uuid)


def _release_node(*where: sa.ColumnElement[bool]) -> sa.Update:
    return expressions.UpdateNode(nodes).where(
        nodes.c.id == sa.bindparam('node_id', type_=sa.Integer),
        expressions.carries(sa.bindparam('instance', type_=sa.String)),
        expressions.UNLOCKED, *where,
    ).values(instance_uuid=None, updated_at=functions.utcnow())


def release_nodes(reservations: Sequence[values.Reservation],
                  states: Collection[str], reach: values.Ownership
                  ) -> tuple[sa.Update, list[dict[str, Any]]]:
    """Take instances off their nodes, one by one, if their state permits it.

    UPDATE nodes SET instance_uuid = NULL, instance_name = NULL, ...
    WHERE id = :n AND LOWER(instance_uuid) = :i AND reservation IS NULL
      AND allocation_id IS NULL AND provision_state IN (...)

    :param states: provision states in which nodes may be released.
    :param reach: if it is limited, each node must be in the state in which it
        was read, and untouched if that is ``available``. Otherwise maintenance
        permits any state.
    :returns: the statement, and its parameters for each reservation.
    """
    state = nodes.c.provision_state
    permits = (
        sa.and_(state == sa.bindparam('known_state', type_=sa.String),
                sa.or_(state != 'available', ~expressions.TOUCHED))
        if reach.is_limited else
        sa.or_(state.in_(states), nodes.c.maintenance == sa.true()))
    return (_release_node(nodes.c.allocation_id.is_(None), permits),
            [{**_bind_node(reservation),
              **({'known_state': reservation.provision_state}
                 if reach.is_limited else {})}
             for reservation in reservations])


def release_untouched_node(reservation: values.Reservation
                           ) -> tuple[sa.Update, dict[str, Any]]:
    """Release a node from its instance if no work on it has begun.

    UPDATE nodes SET instance_uuid = NULL, instance_name = NULL, ...
    WHERE id = :n AND LOWER(instance_uuid) = :i AND reservation IS NULL
      AND <untouched>
    """
    return _release_node(~expressions.TOUCHED), _bind_node(reservation)


def _bind_node(reservation: values.Reservation) -> dict[str, Any]:
    return {'node_id': reservation.node_id,
            'instance': str(reservation.instance_uuid).lower()}
