# SPDX-License-Identifier: Apache-2.0
"""How many nodes there are of each kind, counted by the database.

Nodes are of one kind when no request can tell them apart: they have the same
facts (``expressions.PROFILE``), and the same reason keeps them from being
held.
"""

import dataclasses
import random

import sqlalchemy as sa

from ironic_reservations import matching
from ironic_reservations.db import engine
from ironic_reservations.db import expressions as expr
from ironic_reservations.db import functions as fn
from ironic_reservations.db import models

nodes = models.nodes
node_traits = models.node_traits
reservations = models.reservations

_LAPSED_NODES = sa.select(reservations.c.node_id).join_from(
    reservations, nodes, expr.CARRIED
).where(expr.LAPSED).correlate(None)

_CLAIMABLE_NODES = sa.select(reservations.c.node_id).join_from(
    reservations, nodes, expr.CLAIMABLE).correlate(None)

# What is true of a node that cannot be held, by the reason. Where several are
# true the first of ``matching.REASONS`` counts.
_APPLIES = {
    # An allocation of Ironic's sets the instance, too.
    'allocated': nodes.c.allocation_id.is_not(None),
    # It is reserved, and an instance may take it over.
    matching.CLAIMABLE: sa.and_(
        nodes.c.instance_uuid.is_not(None), *expr.ELIGIBLE, expr.UNLOCKED,
        nodes.c.id.in_(_CLAIMABLE_NODES)),
    matching.RESERVED: sa.and_(nodes.c.instance_uuid.is_not(None),
                               nodes.c.id.not_in(_LAPSED_NODES)),
    'maintenance': nodes.c.maintenance == sa.true(),
    'not available':
        sa.func.coalesce(nodes.c.provision_state, '') != 'available',
    'retired': nodes.c.retired == sa.true(),
    'power state unknown': nodes.c.power_state.is_(None),
    'child node': nodes.c.parent_node.is_not(None),
    matching.LOCKED: nodes.c.reservation.is_not(None),
}

#: Among so few ids no nodes are sampled: the statement takes longer to plan.
FEW = 3000

# How many nodes show whether sampling is worth it, and how many of them may be
# different. So many are where the fleet has 16,000 kinds of properties; with
# 22,000 kinds of 100,000 nodes both ways to count take the same time.
_LOOKED_AT, _DIFFERENT = 1000, 0.97


def _first(reasons):
    """The first of these reasons that applies to a node, or NULL."""
    return sa.case(*((_APPLIES[reason], sa.literal(reason))
                     for reason in reasons), else_=sa.null())


_REASON = _first(matching.REASONS)


@dataclasses.dataclass(frozen=True)
class Counted:
    """Nodes of one kind.

    :param facts: what the database has of each of them, by the names of
        ``expressions.PROFILE``: texts, or None.
    :param candidate: UUID and name of the only node that this is, if it is
        among the candidates; else None.
    :param reason: why they cannot be held, one of ``matching.REASONS``;
        None: they can.
    :param host: the compute host that holds them, if hosts were asked for.
    :param nodes: how many they are.
    :param first: the least of their ids.
    :param last: the greatest of their ids.
    """

    facts: dict
    candidate: tuple | None
    reason: str | None
    host: str | None
    nodes: int
    first: int
    last: int


def rows(candidates=(), with_hosts=False):
    """Count the nodes of each kind, as they are now.

    A single statement counts, so that all numbers are of the same moment.

    :param candidates: sets of UUIDs and names. A node that is in one of them
        is counted by itself.
    :param with_hosts: whether to tell apart, too, which host holds them.
    :returns: list of Counted, no two of them of the same kind.
    """
    statement = count(candidates, with_hosts,
                      by_sample=can_sample() and worth_sampling())
    return [_counted(row._mapping) for row in engine.rows(statement)]


def held_by(reservation_ids):
    """The nodes of reservations: a statement.

    :returns: rows of all that matching reads, of ``reservation_id``, and of
        ``reason``: why the node could not be held if it were let go; None if
        it could.
    """
    return sa.select(
        *expr.FACTS, _first(
            reason for reason in matching.REASONS
            if reason not in (matching.CLAIMABLE, matching.RESERVED)
        ).label('reason'),
        reservations.c.id.label('reservation_id'),
    ).join_from(reservations, nodes, expr.CARRIED).where(
        reservations.c.id.in_(reservation_ids))


def by_partition():
    """How many nodes there are in each part of the fleet.

    SELECT resource_class, conductor_group, shard, CASE ... END AS reason,
           COUNT(*) AS nodes
    FROM nodes GROUP BY resource_class, conductor_group, shard, reason

    It reads no properties, and so takes a fraction of what ``rows`` does.

    :returns: list of tuples of resource class, conductor group, shard, why
        they cannot be held (one of ``matching.REASONS``, or None) and the
        number.
    """
    return _grouped(nodes, nodes.c.resource_class, nodes.c.conductor_group,
                    nodes.c.shard, _REASON)


def by_host():
    """How many reservations count for each host.

    SELECT host, provision_state, COUNT(*) FROM reservations JOIN nodes ...
    GROUP BY host, provision_state

    :returns: list of tuples of host, the nodes' provision state, the number.
    """
    return _grouped(reservations.join(nodes, sa.and_(expr.CARRIED,
                                                     expr.LIVE)),
                    reservations.c.host, nodes.c.provision_state)


def _grouped(source, *columns):
    keys = [fn.exact(column).label(f'key_{number}')
            for number, column in enumerate(columns)]
    return [(*map(fn.as_text, key), number) for *key, number in engine.rows(
        sa.select(*keys, sa.func.count()).select_from(source).group_by(
            *(sa.literal_column(key.name) for key in keys)))]


def can_sample():
    """Whether the database can count by sample: MariaDB alone.

    SQLite lacks the functions for it, and the regular expressions of MySQL 8
    are of another kind.
    """
    return getattr(engine.get_engine().dialect, 'is_mariadb', False)


def worth_sampling():
    """Whether many nodes have the same properties, as far as they matter.

    They have not where a property is each node's own, such as the serial
    number that a vendor's inspection adds: to group by them takes longer
    than to do without. Some random nodes show it well enough.

    SELECT COUNT(*) AS looked_at, COUNT(DISTINCT <digest of the properties
    without root_device>) AS different FROM nodes WHERE id IN (...)
    """
    [(first, last)] = engine.rows(sa.select(*_NUMBERS[1:]))
    if first is None or last - first < FEW:
        return False
    ids = range(first, last + 1)
    [(looked_at, different)] = engine.rows(sa.select(
        sa.func.count(),
        sa.func.count(sa.distinct(_digest(_without_root_device()))),
    ).where(nodes.c.id.in_(random.sample(ids, min(len(ids), _LOOKED_AT)))))
    return different < looked_at * _DIFFERENT


def _counted(row):
    uuid = row.get('candidate_uuid')
    return Counted(
        facts={name: fn.as_text(row[f'fact_{name}'])
               for name in expr.PROFILE},
        candidate=None if uuid is None else (uuid, row['candidate_name']),
        reason=row['reason'], host=fn.as_text(row.get('host')),
        # A sum is a Decimal.
        nodes=int(row['nodes']), first=row['first'], last=row['last'])


def count(candidates, with_hosts, by_sample):
    """The statement that counts; ``rows`` runs it.

    SELECT resource_class AS fact_resource_class, ...,
           JSON_VALUE(properties, '$.cpus') AS fact_cpus, ...,
           (SELECT GROUP_CONCAT(trait ...)) AS fact_traits,
           CASE ... END AS reason,
           COUNT(*) AS nodes, MIN(id) AS first, MAX(id) AS last
    FROM nodes GROUP BY fact_resource_class, ..., reason

    To read JSON takes most of the time, and thousands of nodes have the very
    same. By sample, therefore, one node is read of each group of nodes whose
    columns are the same:

    SELECT STRAIGHT_JOIN <the facts and the reason>, SUM(alike.nodes) AS nodes,
           MIN(alike.first) AS first, MAX(alike.last) AS last
    FROM (<the groups: see alike()>) AS alike
    JOIN nodes ON nodes.id = alike.first
    GROUP BY fact_resource_class, ..., reason

    It groups once more because columns that differ may mean the same, such
    as {"cpus": 4} and {"cpus": 4, "serial": 1}. Without STRAIGHT_JOIN MariaDB
    reads all nodes and looks for the group of each.

    :param by_sample: MariaDB alone can: SQLite lacks the functions, and the
        regular expressions of MySQL 8 are of another kind.
    """
    keys = _keys(candidates, with_hosts)
    if by_sample:
        groups = alike(candidates, with_hosts)
        source = groups.join(nodes, nodes.c.id == groups.c.first)
        numbers = (sa.func.sum(groups.c.nodes), sa.func.min(groups.c.first),
                   sa.func.max(groups.c.last))
    else:
        source, numbers = nodes, _NUMBERS
    statement = sa.select(*keys, *_numbered(numbers)).select_from(
        _with_reservations(source) if with_hosts else source
        # By the labels, so that no expression is evaluated twice.
    ).group_by(*(sa.literal_column(key.name) for key in keys))
    return statement.prefix_with('STRAIGHT_JOIN') if by_sample else statement


def _keys(candidates, with_hosts):
    """The labelled columns in which the nodes of one kind are equal."""
    keys = [fn.exact(column).label(f'fact_{name}')
            for name, column in expr.PROFILE.items()]
    keys.append(_REASON.label('reason'))
    keys += [sa.case((_among(candidates), nodes.c[name]),
                     else_=sa.null()).label(f'candidate_{name}')
             for name in ('uuid', 'name') if candidates]
    if with_hosts:
        keys.append(fn.exact(reservations.c.host).label('host'))
    return keys


_NUMBERS = (sa.func.count(), sa.func.min(nodes.c.id), sa.func.max(nodes.c.id))


def _numbered(numbers):
    return [number.label(name) for name, number in
            zip(('nodes', 'first', 'last'), numbers, strict=True)]


def alike(candidates=(), with_hosts=False):
    """Groups of nodes whose columns, as far as they matter, are the same.

    SELECT COUNT(*) AS nodes, MIN(id) AS first, MAX(id) AS last
    FROM nodes LEFT JOIN (
        SELECT node_id, <digest of GROUP_CONCAT(trait)> AS digest
        FROM node_traits GROUP BY node_id) AS of_node ON node_id = id
    GROUP BY <digest of CONCAT_WS(',',
        QUOTE(resource_class), ..., QUOTE(of_node.digest),
        QUOTE(<the reason>), <properties without root_device>)>

    QUOTE keeps ('ab', 'c') from ('a', 'bc'), and NULL, which it does not put
    into quotes, from ''. Before properties that are NULL there is no comma.
    """
    texts = [nodes.c[name] for name in ('resource_class', 'conductor_group',
                                        'shard', 'owner', 'lessee')]
    texts += [_OF_NODE.c.digest, _REASON]
    if candidates:
        texts.append(sa.case((_among(candidates), nodes.c.id),
                             else_=sa.null()))
    if with_hosts:
        texts.append(reservations.c.host)
    source = nodes.outerjoin(_OF_NODE, _OF_NODE.c.node_id == nodes.c.id)
    return sa.select(*_numbered(_NUMBERS)).select_from(
        _with_reservations(source) if with_hosts else source
    ).group_by(_digest(sa.func.concat_ws(
        ',', *map(sa.func.quote, texts), _without_root_device()))
    ).subquery('alike')


def _digest(text):
    """A SHA-256 of 32 bytes: longer keys are not grouped in memory."""
    return sa.func.unhex(sa.func.sha2(text, 256))


_OF_NODE = sa.select(
    node_traits.c.node_id,
    _digest(sa.func.group_concat(node_traits.c.trait)).label('digest'),
    # Left to itself MariaDB sorts the traits for a plan that it then drops.
).with_hint(node_traits, 'IGNORE INDEX FOR JOIN (PRIMARY)', 'mysql').group_by(
    node_traits.c.node_id).subquery('of_node')


def _without_root_device():
    """The properties; their root_device, a disk's serial number, is emptied.

    CASE WHEN INSTR(properties, '"root_device": {') > 0 AND <they are plain>
         THEN REGEXP_REPLACE(properties, '"root_device": {...}',
                             '"root_device": {}')
         ELSE properties END

    The facts of the answer are those of the properties. Plain JSON is well
    formed and has no backslash, so that every quote in it begins or ends a
    string. The first quote of the expression begins one: if it ended one,
    the word behind it would stand outside of all strings. Hence the word is
    a key, and what its object contains is no fact. An object with another
    one in it does not match and stays as it is.
    """
    properties = fn.exact(nodes.c.properties)
    emptied = sa.func.regexp_replace(
        properties, '"root_device": [{](?:[^{}"]++|"[^"]*+")*+[}]',
        '"root_device": {}')
    plain = expr.PROFILE['irregular_properties'].is_(None)
    return sa.case(
        (sa.and_(sa.func.instr(properties, '"root_device": {') > 0, plain),
         # It is NULL where the expression exceeds a limit of the server.
         sa.func.coalesce(emptied, properties)), else_=properties)


def _among(candidates):
    return sa.or_(*map(expr.named, candidates))


def _with_reservations(source):
    """Each node with the reservation that counts, if it has one."""
    return source.outerjoin(reservations,
                            sa.and_(expr.CARRIED, expr.LIVE))
