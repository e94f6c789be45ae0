# SPDX-License-Identifier: Apache-2.0
"""Counts the nodes of each hardware profile in the database.

The nodes of a hardware profile have the same facts (``expressions.PROFILE``).
They are counted by the reason that keeps them from being held.
"""

import functools
import random
import typing

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

# What is true of a node that cannot be held, by the reason. Where several are
# true the first of ``matching.REASONS`` counts.
_APPLIES = {
    # An allocation of Ironic's sets the instance, too.
    matching.ALLOCATED: nodes.c.allocation_id.is_not(None),
    # It is reserved, and an instance may take it over.
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

#: So many ids are counted by one statement. What the database keeps of their
#: nodes meanwhile has room in its memory: less than the 16 MiB that
#: ``tmp_table_size`` is by default. Beyond that it goes to the disk, and a
#: million nodes take five times the processor time. And no request waits long
#: for a page.
PAGE = 100_000

#: Among so few ids the texts are not looked at: it takes longer than it saves.
FEW = 3000

# How many nodes show whether the texts of their properties repeat, and how
# many of them may be different. So many are where the fleet has 16,000 texts.
_SAMPLE_SIZE, _DIFFERENT = 1000, 0.97


def _find_first(reasons):
    """The first of these reasons that applies to a node, or NULL."""
    return sa.case(*((_APPLIES[reason], sa.literal(reason))
                     for reason in reasons), else_=sa.null())


_REASON = _find_first(matching.REASONS)

# 1 for a node that is being deployed, in use or being torn down, whether or
# not an instance still has it, and for one on which that failed for its
# instance; else 0.
_TAKEN = sa.case((sa.or_(
    nodes.c.provision_state.in_(
        state for name in ('deploying', 'active', 'releasing')
        for state in PROVISION_STATES[name]),
    sa.and_(_REASON.in_((matching.ALLOCATED, matching.RESERVED)),
            nodes.c.provision_state.in_(PROVISION_STATES['error']))), 1),
    else_=0)

#: The facts in which all nodes of a profile group are equal.
FACTS = tuple(name for name in expressions.PROFILE if name != 'capabilities')


class NodeCount(typing.NamedTuple):
    """Nodes that are equal in all that follows.

    :param facts: what the database has of each of them, by the names of
        ``expressions.PROFILE`` without ``capabilities``: texts, or None.
    :param capabilities: the text of their property of that name, or None.
    :param candidate: UUID and name of the only node that this is, if it is
        among the candidates; else None.
    :param reason: why they cannot be held, one of ``matching.REASONS``;
        None: they can.
    :param taken: 1 where they are in use, being deployed or being torn down;
        else 0.
    :param host: the compute host that holds them, if hosts were asked for.
    :param nodes: how many they are.
    :param first: the least of their ids.
    :param last: the greatest of their ids.
    """

    facts: dict
    capabilities: str | None
    candidate: tuple | None
    reason: str | None
    taken: int
    host: str | None
    nodes: int
    first: int
    last: int


def count_pages(candidates=(), with_hosts=False):
    """Count the nodes of each hardware profile, one page of ids at a time.

    A single statement counts a page, so that all numbers in it are of the
    same moment. A node has one id, and so is counted once, however long the
    next page is waited for.

    :param candidates: sets of UUIDs and names. A node that is in one of them
        is counted by itself.
    :param with_hosts: whether to tell apart, too, which host holds them.
    :returns: iterator of pairs: a list of NodeCount, of which several may
        differ in nothing but their nodes; and whether there is another page.
    """
    statement = select_counts(candidates, with_hosts, texts_repeat())
    facts = functools.cache(_make_facts)
    as_text = functools.cache(functions.decode_text)
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
            facts(*values), as_text(capabilities), uuid and (uuid, name),
            reason, taken, as_text(host), number, first, last,
        ) for (*values, capabilities, reason, taken, number, first, last,
               uuid, name, host) in rows], begin is not None


def _make_facts(*values):
    return dict(zip(FACTS, map(functions.decode_text, values), strict=True))


def select_held_nodes(reservation_ids):
    """The nodes of reservations: a statement.

    :returns: rows of all that matching reads, of ``reservation_id``, and of
        ``reason``: why the node could not be held if it were let go; None if
        it could.
    """
    return sa.select(
        *expressions.FACTS, _find_first(
            reason for reason in matching.REASONS
            if reason not in (matching.CLAIMABLE, matching.RESERVED)
        ).label('reason'),
        reservations.c.id.label('reservation_id'),
    ).join_from(reservations, nodes, expressions.CARRIED).where(
        reservations.c.id.in_(reservation_ids))


def count_by_partition():
    """Count the nodes of each resource class, conductor group and shard.

    SELECT resource_class, conductor_group, shard, CASE ... END AS reason,
           CASE ... END AS taken, COUNT(*) AS nodes
    FROM nodes
    GROUP BY resource_class, conductor_group, shard, reason, taken

    It reads no properties, and takes a fraction of the time of ``pages``.

    :returns: list of tuples of resource class, conductor group, shard,
        ``reason`` and ``taken`` (see ``NodeCount``), and the number.
    """
    return [(*part, int(taken), number)
            for *part, taken, number in _count_groups(
                nodes, nodes.c.resource_class, nodes.c.conductor_group,
                nodes.c.shard, _REASON, _TAKEN)]


def count_by_host():
    """How many reservations count for each host.

    SELECT host, provision_state, COUNT(*) FROM reservations JOIN nodes ...
    GROUP BY host, provision_state

    :returns: list of tuples of host, the nodes' provision state, the number.
    """
    return _count_groups(reservations.join(nodes, sa.and_(expressions.CARRIED,
                                                     expressions.LIVE)),
                    reservations.c.host, nodes.c.provision_state)


def _count_groups(source, *columns):
    keys = [functions.as_bytes(column).label(f'key_{number}')
            for number, column in enumerate(columns)]
    query = sa.select(*keys, sa.func.count()).select_from(source).group_by(
        *(sa.literal_column(key.name) for key in keys))
    return [(*map(functions.decode_text, key), number)
            for *key, number in engine.fetch_rows(query)]


def texts_repeat():
    """Whether many nodes have the same text of properties.

    They have not where a property is each node's own, such as a serial
    number. Some random nodes show it well enough.

    SELECT COUNT(*), COUNT(DISTINCT <digest of the properties>)
    FROM nodes WHERE id IN (...)
    """
    [(first, last)] = engine.fetch_rows(sa.select(sa.func.min(nodes.c.id),
                                            sa.func.max(nodes.c.id)))
    if first is None or last - first < FEW:
        return False
    ids = random.sample(range(first, last + 1), _SAMPLE_SIZE)
    [(looked_at, different)] = engine.fetch_rows(sa.select(
        sa.func.count(),
        sa.func.count(sa.distinct(functions.digest(nodes.c.properties))),
    ).where(nodes.c.id.in_(ids)))
    return different < looked_at * _DIFFERENT


def select_counts(candidates, with_hosts, by_text):
    """The statement that counts a page; ``pages`` runs it.

    SELECT STRAIGHT_JOIN resource_class, ...,
           JSON_VALUE(properties, '$.cpus'), ...,
           (SELECT GROUP_CONCAT(trait ...)), ..., CASE ... END AS reason,
           alike.nodes, alike.first, alike.last
    FROM (<groups of equal nodes: see _alike()>) AS alike
    JOIN nodes ON nodes.id = alike.first

    One node of each group tells the facts. Texts that differ may mean the
    same, such as {"cpus": 4} and {"cpus": 4, "model": 1}, so that several
    rows may have the same facts. They are not grouped once more, because the
    database sorts rows of so many texts on its disk: where each rack has
    profiles of its own that takes longer than all the rest. Without
    STRAIGHT_JOIN MariaDB reads all nodes and looks for the group of each.

    :param by_text: whether nodes are told apart by the text of their
        properties. It is quicker, because little JSON is read then, unless
        most nodes have a text of their own.
    """
    groups = _select_groups(candidates, with_hosts, by_text)
    source = groups.join(nodes, nodes.c.id == groups.c.first)
    columns = [functions.as_bytes(expressions.PROFILE[name])
               for name in (*FACTS, 'capabilities')]
    columns += [_REASON, _TAKEN, groups.c.nodes, groups.c.first, groups.c.last]
    columns += [sa.case((_is_candidate(candidates), nodes.c[name]),
                        else_=sa.null())
                if candidates else sa.null() for name in ('uuid', 'name')]
    columns.append(functions.as_bytes(reservations.c.host) if with_hosts
                   else sa.null())
    if with_hosts:
        source = _with_reservations(source)
    return sa.select(*(
        column.label(f'column_{number}')
        for number, column in enumerate(columns)
    )).prefix_with('STRAIGHT_JOIN', dialect='mysql').select_from(source)


def _select_groups(candidates, with_hosts, by_text):
    """Nodes by hardware profile, and by the reason why they cannot be held.

    SELECT COUNT(*) AS nodes, MIN(id) AS first, MAX(id) AS last
    FROM nodes LEFT JOIN (
        SELECT node_id, <digest of GROUP_CONCAT(trait)> AS digest
        FROM node_traits WHERE node_id BETWEEN :begin AND :end
        GROUP BY node_id) AS of_node ON node_id = id
    WHERE id BETWEEN :begin AND :end
    GROUP BY <digest of resource_class, ..., of_node.digest, the reason, and
              the properties or what is read from them>
    """
    columns = [*(column for name, column in expressions.PROFILE.items()
                 if name not in (*_PROPERTY_FACTS, 'traits')),
               sa.func.hex(_NODE_TRAITS.c.digest), _REASON, _TAKEN]
    columns += ([nodes.c.properties] if by_text else
                [expressions.PROFILE[name] for name in _PROPERTY_FACTS])
    if candidates:
        columns.append(sa.case((_is_candidate(candidates), nodes.c.uuid),
                               else_=sa.null()))
    if with_hosts:
        columns.append(reservations.c.host)
    source = nodes.outerjoin(_NODE_TRAITS,
                             _NODE_TRAITS.c.node_id == nodes.c.id)
    return sa.select(
        sa.func.count().label('nodes'), sa.func.min(nodes.c.id).label('first'),
        sa.func.max(nodes.c.id).label('last'),
    ).select_from(
        _with_reservations(source) if with_hosts else source
    ).where(_in_page(nodes.c.id)).group_by(
        functions.digest(*columns)).subquery('alike')


_PROPERTY_FACTS = ('memory_mb', 'cpus', 'local_gb', 'cpu_arch', 'capabilities',
                  'irregular_properties')


def _in_page(node_id):
    """The condition that a node is in the page: see ``pages``."""
    return node_id.between(*(sa.bindparam(name, type_=sa.Integer)
                             for name in ('begin', 'end')))


_NODE_TRAITS = sa.select(
    node_traits.c.node_id,
    functions.digest(
        sa.func.group_concat(node_traits.c.trait)).label('digest'),
    # Left to itself MariaDB sorts the traits for a plan that it then drops.
).with_hint(node_traits, 'IGNORE INDEX FOR JOIN (PRIMARY)', 'mysql').where(
    _in_page(node_traits.c.node_id)
).group_by(node_traits.c.node_id).subquery('of_node')


def _is_candidate(candidates):
    return sa.or_(*map(expressions.is_named, candidates))


def _with_reservations(source):
    """Each node with the reservation that counts, if it has one."""
    return source.outerjoin(reservations,
                            sa.and_(expressions.CARRIED, expressions.LIVE))
