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

from ironic_reservations.db import expressions
from ironic_reservations.db import functions
from ironic_reservations.db import models

if typing.TYPE_CHECKING:
    from ironic_reservations import matching
    from ironic_reservations.reservations import values

nodes = models.nodes
node_traits = models.node_traits
node_history = models.node_history

# Provision states of a node during a deployment, and after a failed one:
# Ironic's history has either for an error in a deployment.
_DEPLOYMENT = ('deploying', 'wait call-back', 'deploy hold', 'deploy failed')

_STATE = functions.optional(node_history.c.state)

# 1 for a node whose history has a failed deployment in the last seconds (any
# error, if it does not record the provision state); otherwise 0. It is not an
# EXISTS, because MariaDB would turn that into a join with the whole history.
# MariaDB executes this subquery for each node, by the index on node_id.
_HISTORY = sa.func.coalesce(sa.select(sa.literal_column('1')).where(
    node_history.c.node_id == nodes.c.id,
    node_history.c.severity == 'ERROR',
    node_history.c.created_at > functions.seconds_from_now(
        sa.bindparam('failed_since', type_=sa.Integer)),
    sa.or_(_STATE.is_(None), _STATE.in_(_DEPLOYMENT)),
).limit(1).scalar_subquery(), 0)


def _has_failed(with_history: bool) -> sa.ColumnElement[int]:
    """Return 1 for a node to hold after its equals, otherwise 0.

    :param with_history: whether to read its history.
    """
    return sa.case((expressions.AILING, 1),
                   else_=_HISTORY if with_history else sa.literal_column('0'))


def _is_visible(unowned: bool) -> sa.ColumnElement[bool]:
    """Return the condition of matching.is_visible for a project."""
    owners: list[sa.ColumnElement[bool]] = [
        functions.same_text(column, sa.bindparam('restricted_to',
                                                 type_=sa.String))
        for column in (nodes.c.owner, nodes.c.lessee)]
    if unowned:
        owners.append(sa.and_(nodes.c.owner.is_(None),
                              nodes.c.lessee.is_(None)))
    return sa.or_(*owners)


def select_by_ids(ids: Iterable[int], avoid_failed: int
                  ) -> tuple[sa.Select[Any], dict[str, Any]]:
    """Select those of some nodes that are free.

    SELECT <the facts>, CASE WHEN <ailing> THEN 1 ELSE ... END AS failed
    FROM nodes WHERE id IN (...) AND <free> AND reservation IS NULL

    :param avoid_failed: seconds after an error in which a node counts as
        failed; 0 to ignore errors.
    :returns: the statement and its parameters.
    """
    return _select_by_ids(bool(avoid_failed)), {
        'ids': list(ids), 'failed_since': -avoid_failed}


@functools.cache
def _select_by_ids(with_history: bool) -> sa.Select[Any]:
    # As parameters, the ids would take the client three times as long.
    return _select_free(with_history, nodes.c.id.in_(sa.bindparam(
        'ids', expanding=True, literal_execute=True)))


def select_candidates(candidates: Iterable[Iterable[str]], avoid_failed: int
                      ) -> tuple[sa.Select[Any], dict[str, Any]]:
    """Select those of the candidates of a request that are free.

    :param candidates: sets of UUIDs and names. A node must be in each.
    :param avoid_failed: see ``select_by_ids``.
    """
    return _select_free(
        bool(avoid_failed), *map(expressions.is_named, candidates)
    ), {'failed_since': -avoid_failed}


def _select_free(with_history: bool, *where: sa.ColumnElement[bool]
                 ) -> sa.Select[Any]:
    return sa.select(
        *expressions.FACTS, _has_failed(with_history).label('failed')
    ).where(*where, *expressions.FREE, expressions.UNLOCKED)


def hold_node(node: 'matching.Node', matcher: 'matching.Matcher',
              instance_uuid: str, claim_id: int | None = None,
              domain_traits: Mapping[str, str | None] = {}
              ) -> tuple[sa.Update, dict[str, Any]]:
    """Hold a node if it is unchanged and free; otherwise change no row.

    UPDATE nodes USE INDEX (PRIMARY)
    SET instance_uuid = :i, updated_at = <now, readable from the reply>
    WHERE id = :n AND <free> AND reservation IS NULL AND <the caller's>
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

    :param node: satisfies the request.
    :param claim_id: id of the reservation to claim, which holds the node; None
        for a free node.
    :param domain_traits: by a prefix, the only trait of the node that has it;
        None if none or several have it.
    :returns: the statement and its parameters.
    """
    spec, restricted_to = matcher.spec, matcher.restricted_to
    required = spec.required_traits.union(
        filter(None, domain_traits.values()))
    return (_hold_node(restricted_to is not None, matcher.unowned,
                  matcher.ownership is not None, bool(required),
                  bool(spec.forbidden_traits), matcher.dedicated,
                  claim_id is not None,
                  tuple(trait is not None
                        for trait in domain_traits.values())),
            {'node_id': node.id, 'instance': instance_uuid,
             'restricted_to': restricted_to,
             **{f'read_{name}': getattr(node, name)
                for name in _GUARDS + _OWNER_GUARDS},
             'required': list(required), 'how_many': len(required),
             **{f'prefix_{number}': prefix
                for number, prefix in enumerate(domain_traits)},
             'forbidden': list(spec.forbidden_traits),
             'claimed': claim_id})


# Columns that the hold compares byte for byte with the values that the search
# has read; owner and lessee only if the request requires an ownership.
_GUARDS = ('uuid', 'resource_class', 'conductor_group', 'shard', 'name',
           'properties')
_OWNER_GUARDS = ('owner', 'lessee')


@functools.cache
def _hold_node(is_restricted: bool, unowned: bool, has_ownership: bool,
               has_required: bool, has_forbidden: bool,
               dedicated_patterns: tuple[str, ...], is_claim: bool,
               have_domain: tuple[bool, ...]) -> sa.Update:
    where: list[sa.ColumnElement[bool]] = [
        nodes.c.id == sa.bindparam('node_id'), expressions.UNLOCKED]
    where += ((*expressions.ELIGIBLE, expressions.CLAIMABLE_BY_ID) if is_claim
              else expressions.FREE)
    if is_restricted:
        where.append(_is_visible(unowned))
    guards = _GUARDS + (_OWNER_GUARDS if has_ownership else ())
    where += [functions.same_text(nodes.c[name], sa.bindparam(
        f'read_{name}', type_=sa.Text)) for name in guards]
    has_node = node_traits.c.node_id == nodes.c.id
    if has_required:
        where.append(sa.select(sa.func.count()).where(
            has_node,
            node_traits.c.trait.in_(sa.bindparam('required', expanding=True))
        ).scalar_subquery() == sa.bindparam('how_many'))
    for number, has_domain in enumerate(have_domain):
        prefix = sa.bindparam(f'prefix_{number}', type_=sa.String)
        traits = sa.select(sa.func.count()).where(
            has_node, sa.func.substr(
                node_traits.c.trait, 1, sa.func.length(prefix)) == prefix
        ).scalar_subquery()
        where.append(traits == 1 if has_domain else traits != 1)
    if has_forbidden:
        where.append(~sa.exists().where(has_node, node_traits.c.trait.in_(
            sa.bindparam('forbidden', expanding=True))))
    if dedicated_patterns:
        where.append(~sa.exists().where(
            has_node, sa.or_(*map(_fits_pattern, dedicated_patterns)),
            node_traits.c.trait.not_in(
                sa.bindparam('required', expanding=True))))
    return sa.update(nodes).where(*where).values(
        instance_uuid=sa.bindparam('instance'),
        updated_at=functions.readable_utcnow(),
    ).with_hint('USE INDEX (PRIMARY)', dialect_name='mysql')


def _fits_pattern(pattern: str) -> sa.ColumnElement[bool]:
    """Return the condition that a trait is, or begins with, a pattern."""
    trait = node_traits.c.trait
    if pattern.endswith('*'):
        return trait.startswith(pattern[:-1], autoescape=True)
    return trait == pattern


def select_carrier(instance_uuid: str) -> sa.Select[Any]:
    """Select the facts of the node that carries an instance."""
    return sa.select(*expressions.FACTS).where(
        nodes.c.instance_uuid == instance_uuid)


def _release_node(*where: sa.ColumnElement[bool]) -> sa.Update:
    return sa.update(nodes).where(
        nodes.c.id == sa.bindparam('node_id', type_=sa.Integer),
        nodes.c.instance_uuid == sa.bindparam('instance', type_=sa.String),
        expressions.UNLOCKED, *where,
    ).values(instance_uuid=None, updated_at=functions.utcnow())


def release_nodes(reservations: 'Sequence[values.Reservation]',
                  states: Collection[str], is_restricted: bool
                  ) -> tuple[sa.Update, list[dict[str, Any]]]:
    """Take instances off their nodes, one by one, if their state permits it.

    UPDATE nodes SET instance_uuid = NULL WHERE id = :n
      AND instance_uuid = :i AND reservation IS NULL
      AND allocation_id IS NULL AND provision_state IN (...)

    :param states: provision states in which nodes may be released.
    :param is_restricted: whether each node must be in the state in which it
        was read, and untouched if that is ``available``. Otherwise maintenance
        permits any state.
    :returns: the statement, and its parameters for each reservation.
    """
    state = nodes.c.provision_state
    permits = (
        sa.and_(state == sa.bindparam('known_state', type_=sa.String),
                sa.or_(state != 'available', ~expressions.TOUCHED))
        if is_restricted else
        sa.or_(state.in_(states), nodes.c.maintenance == sa.true()))
    return (_release_node(nodes.c.allocation_id.is_(None), permits),
            [{**_bind_node(reservation),
              **({'known_state': reservation.provision_state} if is_restricted
                 else {})} for reservation in reservations])


def release_untouched_node(reservation: 'values.Reservation'
                           ) -> tuple[sa.Update, dict[str, Any]]:
    """Release a node from its instance if no work on it has begun.

    UPDATE nodes SET instance_uuid = NULL WHERE id = :n
      AND instance_uuid = :i AND reservation IS NULL AND <untouched>
    """
    return _release_node(~expressions.TOUCHED), _bind_node(reservation)


def _bind_node(reservation: 'values.Reservation') -> dict[str, Any]:
    return {'node_id': reservation.node_id,
            'instance': reservation.instance_uuid}
