# SPDX-License-Identifier: Apache-2.0
"""Counts the nodes of each hardware profile in the database.

The nodes of a hardware profile have the same facts (``expressions.PROFILE``).
They are counted by the reason why they cannot be held.
"""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
import functools
import random
import re
import typing
from typing import Any

import sqlalchemy as sa

from ironic_reservations import matching
from ironic_reservations.constants import PROVISION_STATES
from ironic_reservations.db import engine
from ironic_reservations.db import expressions
from ironic_reservations.db import functions
from ironic_reservations.db import models

nodes = models.nodes
node_traits = models.node_traits
reservations = models.reservations

_EXPIRED_NODES = sa.select(reservations.c.node_id).join_from(
    reservations, nodes, expressions.CARRIED
).where(expressions.EXPIRED).correlate(None)

_CLAIMABLE_NODES = sa.select(reservations.c.node_id).join_from(
    reservations, nodes, expressions.CLAIMABLE).correlate(None)

# Conditions of nodes that cannot be held, by reason. If several are true, the
# first in ``matching.REASONS`` counts.
_CONDITIONS: dict[str, sa.ColumnElement[bool]] = {
    # Ironic's allocations set the instance, too.
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
    matching.LOCKED: nodes.c.reservation.is_not(None),
}

#: Number of ids that a statement counts. Its temporary table fits in memory,
#: in the default ``tmp_table_size`` of 16 MiB. On disk, a million nodes would
#: take five times the CPU time. Nor does a request wait long for a page.
PAGE = 100_000

#: Up to this number of ids, ``texts_repeat`` would take longer than it saves.
FEW = 3000

# Number of nodes in the sample of ``texts_repeat``, and the maximum share of
# distinct texts. A fleet with 16,000 texts has that share.
_SAMPLE_SIZE, _MAX_DISTINCT = 1000, 0.97


def _find_first(reasons: Iterable[str]) -> sa.ColumnElement[Any]:
    """Return the first of these reasons that applies to a node, or NULL."""
    return sa.case(*((_CONDITIONS[reason], sa.literal(reason))
                     for reason in reasons), else_=sa.null())


_REASON = _find_first(matching.REASONS)

# 1 for a node that is being deployed, in use or being torn down, with or
# without an instance, or on which that failed for its instance; otherwise 0.
_TAKEN = sa.case((sa.or_(
    nodes.c.provision_state.in_(
        state for name in ('deploying', 'active', 'releasing')
        for state in PROVISION_STATES[name]),
    sa.and_(_REASON.in_((matching.ALLOCATED, matching.RESERVED)),
            nodes.c.provision_state.in_(PROVISION_STATES['error']))), 1),
    else_=0)

#: Facts that are equal for all nodes of a profile group.
FACTS = tuple(name for name in expressions.PROFILE if name != 'capabilities')


class NodeCount(typing.NamedTuple):
    """A number of nodes that are equal in the first six fields.

    :param facts: their facts in the database, by the names of
        ``expressions.PROFILE`` without ``capabilities``.
    :param capabilities: text of their property of that name, or None.
    :param candidate: UUID and name, if it is a single node that is among the
        candidates; otherwise None.
    :param reason: why they cannot be held, one of ``matching.REASONS``; None
        if they can.
    :param taken: 1 if they are in use, being deployed or being torn down;
        otherwise 0.
    :param host: the compute host that holds them, if requested.
    :param ids: their ids, separated by commas; a number if it is one.
    """

    facts: dict[str, str | None]
    capabilities: str | None
    candidate: tuple[str, str | None] | None
    reason: str | None
    taken: int
    host: str | None
    nodes: int
    ids: str | int


def count_pages(candidates: Collection[Collection[str]] = (),
                with_hosts: bool = False, resource_class: str | None = None
                ) -> Iterator[tuple[list[NodeCount], bool]]:
    """Count the nodes of each hardware profile, one page of ids at a time.

    A single statement counts a page, so that all numbers in it are from the
    same moment. A node has one id, so it is counted once, however long the
    caller waits before the next page.

    :param candidates: sets of UUIDs and names. A node in one of them is
        counted separately.
    :param with_hosts: whether to count the nodes of each host separately.
    :param resource_class: in normal form; count only the nodes of this class.
    :returns: iterator of pairs: counts, of which several may differ only in
        their nodes; and whether there is another page.
    """
    statement = select_counts(candidates, with_hosts, texts_repeat(),
                              _find_spellings(resource_class))
    make_facts = functools.cache(_make_facts)
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
            make_facts(*texts), decode_text(capabilities),
            uuid and (uuid, name), reason, taken, decode_text(host), number,
            ids,
        ) for (*texts, capabilities, reason, taken, number, ids, uuid, name,
               host) in rows], begin is not None


def _find_spellings(resource_class: str | None) -> list[str] | None:
    """Return the spellings of a class in the fleet.

    SELECT DISTINCT resource_class FROM nodes

    :returns: None if no class is given. Names with spaces or accents are
        always included: the database may regard them as equal to others, of
        which it then returns only one.
    """
    if resource_class is None:
        return None
    return [name for (name,) in engine.fetch_rows(
        sa.select(nodes.c.resource_class).distinct())
        if name is not None and (
            matching.has_class(name, resource_class)
            or not re.fullmatch(r'[\w.-]*', name, re.ASCII))]


def _make_facts(*texts: bytes | str | None) -> dict[str, str | None]:
    return dict(zip(FACTS, map(functions.decode_text, texts), strict=True))


def select_held_nodes(reservation_ids: Collection[int | None]
                      ) -> sa.Select[Any]:
    """Select the nodes of reservations.

    :returns: statement whose rows have ``expressions.FACTS``,
        ``reservation_id``, and ``reason``: why the node could not be held
        without this reservation; None if it could.
    """
    return sa.select(
        *expressions.FACTS, _find_first(
            reason for reason in matching.REASONS
            if reason not in (matching.CLAIMABLE, matching.RESERVED)
        ).label('reason'),
        reservations.c.id.label('reservation_id'),
    ).join_from(reservations, nodes, expressions.CARRIED).where(
        reservations.c.id.in_(reservation_ids))


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
            for *part, taken, number in _count_groups(
                nodes, nodes.c.resource_class, nodes.c.conductor_group,
                nodes.c.shard, _REASON, _TAKEN)]


def count_by_host() -> list[tuple[Any, ...]]:
    """Count the live reservations of each host.

    SELECT host, provision_state, COUNT(*) FROM reservations JOIN nodes ...
    GROUP BY host, provision_state

    :returns: tuples of host, provision state of the nodes, and the number.
    """
    return _count_groups(reservations.join(nodes, sa.and_(expressions.CARRIED,
                                                     expressions.LIVE)),
                    reservations.c.host, nodes.c.provision_state)


def _count_groups(source: sa.FromClause, *columns: sa.ColumnElement[Any]
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
    return distinct < sample * _MAX_DISTINCT


def select_counts(candidates: Collection[Collection[str]], with_hosts: bool,
                  by_text: bool, classes: Collection[str] | None = None
                  ) -> sa.Select[Any]:
    """Count a page; see ``count_pages``.

    SELECT STRAIGHT_JOIN resource_class, ...,
           JSON_VALUE(properties, '$.cpus'), ...,
           (SELECT GROUP_CONCAT(trait ...)), ..., CASE ... END AS reason,
           alike.nodes, alike.ids
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
    :param classes: count only the nodes of these classes; None for all.
    """
    source: sa.FromClause
    if by_text:
        groups = _select_groups(candidates, with_hosts, classes)
        source = groups.join(nodes, nodes.c.id == groups.c.first)
        counts = [groups.c.nodes, groups.c.ids]
    else:
        source = nodes
        counts = [sa.literal_column('1'), nodes.c.id]
    columns: list[sa.ColumnElement[Any]] = [
        functions.as_bytes(expressions.PROFILE[name])
        for name in (*FACTS, 'capabilities')]
    columns += [_REASON, _TAKEN, *counts]
    columns += [sa.case((_is_candidate(candidates), nodes.c[name]),
                        else_=sa.null())
                if candidates else sa.null() for name in ('uuid', 'name')]
    columns.append(functions.as_bytes(reservations.c.host) if with_hosts
                   else sa.null())
    if with_hosts:
        source = _join_reservations(source)
    statement = sa.select(*(
        column.label(f'column_{number}')
        for number, column in enumerate(columns)
    )).prefix_with('STRAIGHT_JOIN', dialect='mysql').select_from(source)
    return statement if by_text else statement.where(_is_counted(classes))


def _select_groups(candidates: Collection[Collection[str]], with_hosts: bool,
                   classes: Collection[str] | None) -> sa.Subquery:
    """Group nodes by their properties and by why they cannot be held.

    SELECT COUNT(*) AS nodes, MIN(id) AS first, GROUP_CONCAT(id) AS ids
    FROM nodes LEFT JOIN (
        SELECT node_id, <digest of GROUP_CONCAT(trait)> AS digest
        FROM node_traits WHERE node_id BETWEEN :begin AND :end
        GROUP BY node_id) AS node_digests ON node_id = id
    WHERE [resource_class IN (...) AND] id BETWEEN :begin AND :end
    GROUP BY <digest of resource_class, ..., node_digests.digest, the reason,
              and the properties>
    """
    digests = _select_digests(classes)
    columns = [*(nodes.c[name] for name in _COLUMN_FACTS),
               sa.func.hex(digests.c.digest), _REASON, _TAKEN,
               nodes.c.properties]
    if candidates:
        columns.append(sa.case((_is_candidate(candidates), nodes.c.uuid),
                               else_=sa.null()))
    if with_hosts:
        columns.append(reservations.c.host)
    source = nodes.outerjoin(digests, digests.c.node_id == nodes.c.id)
    return sa.select(
        sa.func.count().label('nodes'), sa.func.min(nodes.c.id).label('first'),
        sa.func.group_concat(nodes.c.id).label('ids'),
    ).select_from(
        _join_reservations(source) if with_hosts else source
    ).where(_is_counted(classes)).group_by(
        functions.digest(*columns)).subquery('alike')


_COLUMN_FACTS = ('resource_class', 'conductor_group', 'shard', 'owner',
                 'lessee')


def _is_in_page(node_id: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """Return the condition that a node is in the page."""
    return node_id.between(sa.bindparam('begin', type_=sa.Integer),
                           sa.bindparam('end', type_=sa.Integer))


def _is_counted(classes: Collection[str] | None) -> sa.ColumnElement[bool]:
    """Return the condition that a node is in the page, and of these classes.

    :param classes: see ``select_counts``.
    """
    in_page = _is_in_page(nodes.c.id)
    return in_page if classes is None else sa.and_(
        nodes.c.resource_class.in_(classes), in_page)


def _select_digests(classes: Collection[str] | None) -> sa.Subquery:
    """Select the digest of the traits of each node.

    :param classes: see ``select_counts``.
    """
    statement = sa.select(node_traits.c.node_id, functions.digest(
        sa.func.group_concat(node_traits.c.trait)).label('digest')
    ).group_by(node_traits.c.node_id)
    if classes is None:
        # Otherwise MariaDB sorts the traits for a plan that it then drops.
        statement = statement.with_hint(
            node_traits, 'IGNORE INDEX FOR JOIN (PRIMARY)', 'mysql'
        ).where(_is_in_page(node_traits.c.node_id))
    else:
        # Traits of other classes are not read.
        statement = statement.join(
            nodes, nodes.c.id == node_traits.c.node_id
        ).where(_is_counted(classes))
    return statement.subquery('node_digests')


def _is_candidate(
        candidates: Collection[Collection[str]]) -> sa.ColumnElement[bool]:
    return sa.or_(*map(expressions.is_named, candidates))


def _join_reservations(source: sa.FromClause) -> sa.Join:
    """Join nodes with their live reservations, if they have any."""
    return source.outerjoin(reservations,
                            sa.and_(expressions.CARRIED, expressions.LIVE))
