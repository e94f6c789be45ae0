# SPDX-License-Identifier: Apache-2.0
"""Counts the nodes of each hardware profile in the database.

The nodes of a hardware profile have the same facts (``expressions.PROFILE``).
They are counted by the reason why they cannot be held.
"""

import array
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import functools
import random
import typing
from typing import Any

import sqlalchemy as sa

from ironic_reservations import matching
from ironic_reservations.db import engine
from ironic_reservations.db import expressions
from ironic_reservations.db import functions
from ironic_reservations.db import models
from ironic_reservations.db import node_rows
from ironic_reservations.shared.constants import PROVISION_STATES

nodes = models.nodes
node_traits = models.node_traits
reservations = models.reservations

_EXPIRED_NODES = sa.select(reservations.c.node_id).join_from(
    reservations, nodes, expressions.CARRIED
).where(expressions.EXPIRED).correlate(None)

_CLAIMABLE_NODES = sa.select(reservations.c.node_id).join_from(
    reservations, nodes, expressions.CLAIMABLE).correlate(None)

# The database selects these once, which takes less time than an EXISTS for
# each free node.
_CORDONED_NODES = sa.select(models.notices.c.node_id).join_from(
    models.notices, nodes, expressions.NOTICE_ON_NODE
).where(expressions.IS_CORDON).correlate(None)

_NOTICED_NODES = sa.select(models.notices.c.node_id).join_from(
    models.notices, nodes, expressions.NOTICE_ON_NODE
).where(expressions.NOTICE_OPEN,
        models.notices.c.is_failed_build == sa.false()).correlate(None)

_POOLED_NODES = sa.select(models.pool_nodes.c.node_id).join_from(
    models.pool_nodes, models.pools,
    models.pools.c.id == models.pool_nodes.c.pool_id
).join(nodes, expressions.IN_POOL).where(
    expressions.POOL_LIVE).correlate(None)

# The node is not in maintenance, its health is not refused, and it has no open
# notice other than of a failed build.
HEALTHY = sa.and_(
    sa.func.coalesce(nodes.c.maintenance, sa.false()) == sa.false(),
    sa.not_(expressions.UNHEALTHY), nodes.c.id.not_in(_NOTICED_NODES))

# Conditions of nodes that cannot be held, or cannot join a pool, by reason. If
# several are true, the first in ``matching.REASONS`` counts.
_CONDITIONS: dict[str, sa.ColumnElement[bool]] = {
    # An allocation of Ironic also sets the instance.
    matching.ALLOCATED: nodes.c.allocation_id.is_not(None),
    # Reserved, and an instance may claim the reservation.
    matching.CLAIMABLE: sa.and_(
        nodes.c.instance_uuid.is_not(None), *expressions.ELIGIBLE,
        expressions.UNLOCKED,
        nodes.c.id.in_(_CLAIMABLE_NODES)),
    matching.RESERVED: sa.and_(nodes.c.instance_uuid.is_not(None),
                               nodes.c.id.not_in(_EXPIRED_NODES)),
    'maintenance': nodes.c.maintenance == sa.true(),
    'not available':
        sa.func.coalesce(nodes.c.provision_state, '') != 'available',
    'retired': nodes.c.retired == sa.true(),
    'power state unknown': nodes.c.power_state.is_(None),
    'child node': nodes.c.parent_node.is_not(None),
    'health': expressions.UNHEALTHY,
    'deferred action': expressions.DEFERRED,
    'cordoned': nodes.c.id.in_(_CORDONED_NODES),
    matching.PREPARED: expressions.PREPARED,
    matching.POOLED: nodes.c.id.in_(_POOLED_NODES),
    matching.LOCKED: nodes.c.reservation.is_not(None),
}

# The projects that have nodes in pools, by id. It is read once for a count:
# to group all nodes by it would take longer.
_POOL_PROJECTS = sa.select(
    models.pool_nodes.c.node_id, models.pools.c.project_id
).select_from(nodes).where(expressions.POOL_OF_NODE)

#: Number of ids that a statement counts. Its temporary table fits in memory,
#: in the default ``tmp_table_size`` of 16 MiB. On disk, a million nodes would
#: take five times the CPU time. A short page also keeps the wait of a request
#: short.
PAGE = 100_000

#: Up to this number of ids, ``texts_repeat`` would take longer than it saves.
FEW = 3000

# Number of nodes in the sample of ``texts_repeat``, and the maximum share of
# distinct texts. A fleet with 16,000 texts has that share.
_SAMPLE_SIZE, _MAX_DISTINCT = 1000, 0.97


def _find_first(reasons: Iterable[str], **conditions: sa.ColumnElement[bool]
                ) -> sa.ColumnElement[Any]:
    """Return the first of these reasons that applies to a node, or NULL.

    :param conditions: replace those of some reasons.
    """
    by_reason = _CONDITIONS | conditions
    return sa.case(*((by_reason[reason], sa.literal(reason))
                     for reason in reasons), else_=sa.null())


# For single nodes: it reads all that they carry.
REASON = _find_first(matching.TO_HOLD.reasons)


@dataclasses.dataclass(frozen=True)
class Scope:
    """What a count distinguishes.

    :param candidates: sets of UUIDs and names. A node in one of them is
        counted separately, with its UUID and name.
    :param use: what the nodes are for: decides why they cannot be used.
    :param with_hosts: whether to count the nodes that each host holds.
    :param with_projects: whether to count nodes with different
        ``PROJECT_FACTS`` separately.
    """

    candidates: Collection[Collection[str]] = ()
    use: matching.Use = matching.TO_HOLD
    with_hosts: bool = False
    with_projects: bool = False


DEFAULT = Scope()


def _is_in_page(node_id: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """Return the condition that a node is in the page; by default in any."""
    return node_id.between(sa.bindparam('begin', 0, sa.Integer),
                           sa.bindparam('end', 2 ** 31 - 1, sa.Integer))


def _have_instance_info() -> sa.ColumnElement[bool]:
    """Return ``expressions.has_instance_info`` in a form for many nodes.

    An index finds the nodes without an instance. The column of a deployed node
    may be long, and is not read.
    """
    others = nodes.alias('others')
    return nodes.c.id.in_(sa.select(others.c.id).where(
        _is_in_page(others.c.id), others.c.instance_uuid.is_(None),
        others.c.provision_state == 'available',
        expressions.has_instance_info(others)).correlate(None))


def _find_reason(has_info: sa.ColumnElement[bool], scope: Scope = DEFAULT
                 ) -> sa.ColumnElement[Any]:
    """Return the first reason that applies to a node, or NULL, for a count.

    It reads the ports of candidates only: to read those of all nodes would
    take half as long as the rest of the count.

    :param has_info: whether the node has an ``instance_info``.
    """
    if scope.candidates:
        has_info = sa.or_(has_info, sa.and_(_is_candidate(scope.candidates),
                                            expressions.PREPARED))
    return _find_first(scope.use.reasons, prepared=has_info)


def _is_candidate(
        candidates: Collection[Collection[str]]) -> sa.ColumnElement[bool]:
    return sa.or_(*map(expressions.is_named, candidates))


# 1 for a node that is being deployed, in use or being torn down, with or
# without an instance, or whose deployment or tear-down failed for its
# instance; otherwise 0.
TAKEN = sa.case((sa.or_(
    nodes.c.provision_state.in_(
        state for name in ('deploying', 'active', 'releasing')
        for state in PROVISION_STATES[name]),
    sa.and_(_find_first((matching.ALLOCATED, matching.CLAIMABLE,
                         matching.RESERVED)).in_(
                             (matching.ALLOCATED, matching.RESERVED)),
            nodes.c.provision_state.in_(PROVISION_STATES['error']))), 1),
    else_=0)

#: Facts that are equal for all nodes of a profile group.
FACTS = tuple(name for name in expressions.PROFILE if name != 'capabilities')

#: Further facts, of a count by project: the project that has the node, and
#: whether it can be used: ``1`` or ``0``.
PROJECT_FACTS: dict[str, sa.ColumnElement[Any]] = {
    'project_id': reservations.c.project_id,
    'healthy': sa.case((HEALTHY, sa.literal('1')), else_=sa.literal('0'))}


class NodeCount(typing.NamedTuple):
    """A number of nodes that are equal in the first six fields.

    :param facts: their facts in the database, by the names of
        ``expressions.PROFILE`` without ``capabilities``, and of
        ``PROJECT_FACTS`` if requested. And ``pool_project_id``: the project
        that has them in a pool, or None.
    :param capabilities: text of their property of that name, or None.
    :param candidate: UUID and name, if it is a single node that is among the
        candidates; otherwise None.
    :param reason: why they cannot be held, one of ``matching.REASONS`` or
        ``matching.MALFORMED``; None if they can.
    :param taken: 1 if they are in use, being deployed or being torn down;
        otherwise 0.
    :param host: the compute host that holds them, if requested.
    :param ids: their ids.
    """

    facts: dict[str, str | None]
    capabilities: str | None
    candidate: tuple[str, str | None] | None
    reason: str | None
    taken: int
    host: str | None
    nodes: int
    ids: 'array.array[int]'


def count_pages(scope: Scope = DEFAULT
                ) -> Iterator[tuple[list[NodeCount], bool]]:
    """Count the nodes of each hardware profile, one page of ids at a time.

    A single statement counts a page, so that all numbers in it are from the
    same moment. A node has one id, so it is counted once, however long the
    caller waits before the next page.

    :returns: iterator of pairs: counts, of which several may differ only in
        their nodes; and whether there is another page.
    """
    statement = select_counts(scope, texts_repeat())
    projects = dict(map(tuple, engine.fetch_rows(_POOL_PROJECTS)))
    make_facts = functools.cache(functools.partial(
        _make_facts, more=tuple(PROJECT_FACTS) if scope.with_projects else ()))
    decode_text = functools.cache(functions.decode_text)
    begin = 1
    while begin is not None:
        rows = engine.fetch_rows(statement, {'begin': begin,
                                             'end': begin + PAGE - 1})
        # Ids may have wide gaps.
        [(begin,)] = engine.fetch_rows(
            sa.select(sa.func.min(nodes.c.id)).where(
                nodes.c.id >= begin + PAGE))
        # Attributes of the rows would take three times as long.
        yield [NodeCount(
            make_facts(*texts, project_id), decode_text(capabilities),
            uuid and (uuid, name), reason, taken, decode_text(host),
            len(pool_ids), pool_ids,
        ) for (*texts, capabilities, reason, taken, ids, uuid, name, host)
               in rows
               for project_id, pool_ids in _divide_by_pool(
                   _parse_ids(ids), projects).items()], begin is not None


def _divide_by_pool(ids: 'array.array[int]', projects: Mapping[int, str]
                    ) -> Mapping[str | None, 'array.array[int]']:
    """Return ids of nodes by the project that has them in a pool, or None.

    :param projects: projects by id.
    """
    if not projects:
        return {None: ids}
    result: dict[str | None, array.array[int]] = {}
    for node_id in ids:
        result.setdefault(projects.get(node_id), array.array('I')).append(
            node_id)
    return result


def _parse_ids(ids: str | int) -> 'array.array[int]':
    """Return the ids in a text such as ``3,4``, or a single one."""
    return array.array('I', map(int, ids.split(',')) if isinstance(ids, str)
                       else (ids,))


def read_reasons(ids: Iterable[int], use: matching.Use
                 ) -> list[tuple[int, str | None]]:
    """Return the ids of the nodes that exist, each with its reason.

    :returns: see ``NodeCount.reason``.
    """
    return [(node_id, reason) for node_id, reason in engine.fetch_rows(
        sa.select(nodes.c.id, _find_first(use.reasons)).where(
            nodes.c.id.in_(list(ids))))]


def read_counts(ids: Iterable[int], use: matching.Use
                ) -> list[tuple[NodeCount, str | None]]:
    """Count some nodes one by one, and read their properties.

    SELECT resource_class, ..., JSON_VALUE(properties, '$.cpus'), ...,
           CASE ... END AS reason, id, uuid, name, properties
    FROM nodes WHERE id IN (...)

    :returns: pairs of the count of a node, which is a candidate, and the text
        of its properties at the same moment.
    """
    columns: list[sa.ColumnElement[Any]] = [
        functions.as_bytes(expressions.PROFILE[name])
        for name in (*FACTS, 'capabilities')]
    columns += [_find_first(use.reasons), expressions.POOL_PROJECT,
                *(nodes.c[name]
                  for name in ('id', 'uuid', 'name', 'properties'))]
    statement = sa.select(*(
        column.label(f'column_{number}')
        for number, column in enumerate(columns)
    )).where(nodes.c.id.in_(list(ids)))
    counts = []
    for (*texts, capabilities, reason, project_id, node_id, uuid, name,
         properties) in engine.fetch_rows(statement):
        counts.append((NodeCount(
            _make_facts(*texts, project_id),
            functions.decode_text(capabilities),
            (uuid, name), reason, 0, None, 1, _parse_ids(node_id)),
            properties))
    return counts


def _make_facts(*texts: bytes | str | None, more: tuple[str, ...] = ()
                ) -> dict[str, str | None]:
    facts = dict(zip((*FACTS, *more, 'pool_project_id'),
                     map(functions.decode_text, texts), strict=True))
    if 'project_id' in more and facts['project_id'] is None:
        facts['project_id'] = facts['pool_project_id']
    return facts


def select_held_nodes(reservation_ids: Collection[int | None],
                      avoid_failed: int
                      ) -> tuple[sa.Select[Any], dict[str, Any]]:
    """Select the nodes of reservations.

    :param avoid_failed: seconds after an error in which a node is suspect; 0
        to ignore errors.
    :returns: statement whose rows have ``expressions.FACTS``, ``suspect``,
        ``reservation_id``, and ``reason``: why the node could not be held
        without this reservation; None if it could. And its parameters.
    """
    return sa.select(
        *expressions.FACTS, expressions.HEALTH.label('health'),
        node_rows.is_suspect(bool(avoid_failed)).label('suspect'),
        _find_first(matching.TO_CLAIM.reasons).label('reason'),
        reservations.c.id.label('reservation_id'),
    ).join_from(reservations, nodes, expressions.CARRIED).where(
        reservations.c.id.in_(reservation_ids)
    ), {'failed_since': -avoid_failed}


def count_by_partition() -> list[tuple[Any, ...]]:
    """Count the nodes of each resource class, conductor group and shard.

    SELECT resource_class, conductor_group, shard, CASE ... END AS reason,
           CASE ... END AS taken, COUNT(*) AS nodes
    FROM nodes
    GROUP BY resource_class, conductor_group, shard, reason, taken

    It does not read properties, and takes a fraction of the time of
    ``count_pages``.

    :returns: tuples of resource class, conductor group, shard, ``reason`` and
        ``taken`` (see ``NodeCount``), and the number.
    """
    return [(*part, int(taken), number)
            for *part, taken, number in count_groups(
                nodes, nodes.c.resource_class, nodes.c.conductor_group,
                nodes.c.shard, _find_reason(_have_instance_info()), TAKEN)]


def count_groups(source: sa.FromClause, *columns: sa.ColumnElement[Any]
                  ) -> list[tuple[Any, ...]]:
    keys = [functions.as_bytes(column).label(f'key_{number}')
            for number, column in enumerate(columns)]
    query = sa.select(*keys, sa.func.count()).select_from(source).group_by(
        *(sa.literal_column(key.name) for key in keys))
    return [(*map(functions.decode_text, key), number)
            for *key, number in engine.fetch_rows(query)]


def texts_repeat() -> bool:
    """Return whether many nodes have the same text of properties.

    They do not if a property is unique, such as a serial number. A random
    sample of the nodes decides.

    SELECT COUNT(*), COUNT(DISTINCT <digest of the properties>)
    FROM nodes WHERE id IN (...)
    """
    [(first, last)] = engine.fetch_rows(sa.select(sa.func.min(nodes.c.id),
                                                  sa.func.max(nodes.c.id)))
    if first is None or last - first < FEW:
        return False
    ids = random.sample(range(first, last + 1), _SAMPLE_SIZE)
    [(sample, distinct)] = engine.fetch_rows(sa.select(
        sa.func.count(),
        sa.func.count(sa.distinct(functions.digest(nodes.c.properties))),
    ).where(nodes.c.id.in_(ids)))
    is_repeated: bool = distinct < sample * _MAX_DISTINCT
    return is_repeated


def select_counts(scope: Scope, by_text: bool) -> sa.Select[Any]:
    """Count a page; see ``count_pages``.

    SELECT STRAIGHT_JOIN resource_class, ...,
           JSON_VALUE(properties, '$.cpus'), ...,
           (SELECT GROUP_CONCAT(trait ...)), ..., CASE ... END AS reason,
           alike.ids
    FROM (<groups of equal nodes: see _select_groups()>) AS alike
    JOIN nodes ON nodes.id = alike.first

    The first node of each group supplies the facts. Different texts may have
    the same facts, such as {"cpus": 4} and {"cpus": 4, "model": 1}, so several
    rows may have the same facts. They are not grouped again, because the
    database would sort these long rows on disk: if each rack has its own
    profiles, that takes longer than the rest. Without STRAIGHT_JOIN, MariaDB
    reads all nodes and looks up the group of each.

    :param by_text: whether to group nodes by the text of their properties. It
        is faster, because less JSON is parsed, unless most texts are unique.
        Otherwise each node has a row.
    """
    source: sa.FromClause
    if by_text:
        groups = _select_groups(scope)
        source = groups.join(nodes, nodes.c.id == groups.c.first)
        ids: sa.ColumnElement[Any] = groups.c.ids
        has_info = expressions.has_instance_info(nodes)
    else:
        source, has_info, ids = nodes, _have_instance_info(), nodes.c.id
    columns: list[sa.ColumnElement[Any]] = [*map(functions.as_bytes, (
        *(expressions.PROFILE[name] for name in FACTS),
        *(PROJECT_FACTS.values() if scope.with_projects else ()),
        expressions.PROFILE['capabilities']))]
    columns += [_find_reason(has_info, scope), TAKEN, ids]
    columns += [sa.case((_is_candidate(scope.candidates), nodes.c[name]),
                        else_=sa.null())
                if scope.candidates else sa.null() for name in ('uuid', 'name')
                ]
    columns.append(functions.as_bytes(reservations.c.host) if scope.with_hosts
                   else sa.null())
    if scope.with_hosts or scope.with_projects:
        source = join_reservations(source)
    statement = sa.select(*(
        column.label(f'column_{number}')
        for number, column in enumerate(columns)
    )).prefix_with('STRAIGHT_JOIN', dialect='mysql').select_from(source)
    return statement if by_text else statement.where(_is_in_page(nodes.c.id))


def _select_groups(scope: Scope) -> sa.Subquery:
    """Group nodes by their properties and by why they cannot be held.

    SELECT MIN(id) AS first, GROUP_CONCAT(id) AS ids
    FROM nodes LEFT JOIN (
        SELECT node_id, <digest of GROUP_CONCAT(trait)> AS digest
        FROM node_traits WHERE node_id BETWEEN :begin AND :end
        GROUP BY node_id) AS node_digests ON node_id = id
    WHERE id BETWEEN :begin AND :end
    GROUP BY <digest of resource_class, ..., node_digests.digest, the reason,
              and the properties>
    """
    digests = _select_digests()
    columns = [*(nodes.c[name] for name in _COLUMN_FACTS),
               sa.func.hex(digests.c.digest),
               _find_reason(_have_instance_info(), scope), TAKEN,
               nodes.c.properties]
    if scope.candidates:
        columns.append(sa.case((_is_candidate(scope.candidates), nodes.c.uuid),
                               else_=sa.null()))
    if scope.with_hosts:
        columns.append(reservations.c.host)
    if scope.with_projects:
        columns += PROJECT_FACTS.values()
    source = nodes.outerjoin(digests, digests.c.node_id == nodes.c.id)
    return sa.select(
        sa.func.min(nodes.c.id).label('first'),
        sa.func.group_concat(nodes.c.id).label('ids'),
    ).select_from(
        join_reservations(source)
        if scope.with_hosts or scope.with_projects else source
    ).where(_is_in_page(nodes.c.id)).group_by(
        functions.digest(*columns)).subquery('alike')


_COLUMN_FACTS = ('resource_class', 'conductor_group', 'shard', 'owner',
                 'lessee')


def _select_digests() -> sa.Subquery:
    """Select the digest of the traits of each node."""
    return sa.select(node_traits.c.node_id, functions.digest(
        sa.func.group_concat(node_traits.c.trait)).label('digest')
    # Otherwise MariaDB sorts the traits for a plan that it then drops.
    ).with_hint(node_traits, 'IGNORE INDEX FOR JOIN (PRIMARY)', 'mysql').where(
        _is_in_page(node_traits.c.node_id)
    ).group_by(node_traits.c.node_id).subquery('node_digests')


def join_reservations(source: sa.FromClause) -> sa.Join:
    """Join nodes with their live reservations, if they have any."""
    return source.outerjoin(reservations,
                            sa.and_(expressions.CARRIED, expressions.LIVE))
