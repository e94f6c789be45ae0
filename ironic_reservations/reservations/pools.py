# SPDX-License-Identifier: Apache-2.0
"""Creates, finds, changes and deletes pools.

The nodes of a new pool are chosen as those of a new group: see ``groups``.
All join it in one transaction, which first changes ``updated_at`` of each, so
that it conflicts with a concurrent hold: see ``Transaction.touch_nodes``. The
write of a pool requires the generation that was read, so of two concurrent
changes one starts over.
"""

import collections
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import datetime
from typing import Any

from oslo_db import exception as db_exc
import sqlalchemy as sa

from ironic_reservations import context
from ironic_reservations import events
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import functions
from ironic_reservations.db import node_rows
from ironic_reservations.db import pool_rows
from ironic_reservations.fleet import profiles
from ironic_reservations.matching import group_policy
from ironic_reservations.reservations import goals
from ironic_reservations.reservations import transaction


@dataclasses.dataclass(frozen=True)
class Request:
    """A request for a new pool, apart from the requirements on each node.

    :param group: UUID, project, policy and description of the pool.
    :param members: number of nodes.
    :param expires_at: None for no expiry.
    :param digest: equal for equal requests.
    """

    group: values.GroupRequest
    members: int
    expires_at: values.Time | None
    digest: str


def create_pool(matcher: matching.Matcher, request: Request
                ) -> tuple[values.Pool, bool]:
    """Let nodes join a new pool, or none.

    :param matcher: each node must satisfy it. Its ``use`` is to join.
    :returns: the pool, and whether this call has made it.
    :raises: NoMatchingNode; Conflict if another pool has the UUID;
        InvalidInput if it would expire at once; DeadlineExceeded.
    """
    goal = goals.Goal(matcher, request.members,
                      group_policy.find_levels(request.group))
    search = goals.Search()

    def find(run: transaction.Run) -> values.Pool | None:
        for pool in _read(pool_rows.has_uuid(request.group.uuid)):
            if pool.request_digest != request.digest:
                raise _make_conflict(pool, matcher, request)
            return pool
        return None

    def make(run: transaction.Run) -> values.Pool:
        check_expiry(request.expires_at)
        return transaction.write_first(
            search.find(goal), lambda nodes: _insert(
                run, goal, request, nodes))

    return transaction.find_or_make(find, make)


def _make_conflict(pool: values.Pool, matcher: matching.Matcher,
                   request: Request) -> exception.Conflict:
    """Return the error for a pool with the UUID of another request.

    It reveals nothing about a pool of another project.
    """
    group = request.group
    difference = 'project_id' if pool.project_id != group.project_id else next(
        (name for name, value, other in (
            ('policy', pool.policy, group.policy), ('by', pool.by, group.by),
            ('levels', pool.segment_levels, group.segment_levels),
            ('request', pool.request_spec, matcher.spec.canonical))
         if value != other), 'members')
    return exception.Conflict(
        f'Pool {pool.uuid} already exists, and was created with another value '
        f'of {difference}.')


def _insert(run: transaction.Run, goal: goals.Goal, request: Request,
            nodes: Sequence[matching.Node]) -> values.Pool:
    """Insert a pool and its nodes in one transaction.

    :param nodes: in the order of segments.
    :raises: NodeLost, ConcurrentChange.
    """
    group, levels, matcher = request.group, goal.levels, goal.matcher
    by_id = sorted(enumerate(nodes), key=lambda item: item[1].id)
    try:
        with transaction.begin(run) as tx:
            expires_at = _find_expiry(request.expires_at, tx.now)
            for _, node in by_id:
                engine.check_deadline()
                join_node(tx, node, matcher, levels)
            pool_id = tx.insert(pool_rows.INSERT_POOL, {
                **{name: getattr(group, name) for name in (
                    'uuid', 'project_id', 'policy', 'by', 'segment_levels',
                    'description')},
                'request_spec': matcher.spec.canonical,
                'request_digest': request.digest,
                'expires_at': expires_at})
            tx.execute(pool_rows.INSERT_NODES, [
                make_row(pool_id, node, levels, levels.find_segment(number))
                for number, node in by_id])
            return read_back(tx, 'create', pool_rows.has_uuid(group.uuid),
                             arrivals=[node.uuid for _, node in by_id])
    except db_exc.DBDuplicateEntry:
        purge(group.uuid, [node.id for node in nodes])
        raise transaction.ConcurrentChange()


def join_node(tx: transaction.Transaction, node: matching.Node,
              matcher: matching.Matcher, levels: group_policy.Levels) -> None:
    """Touch a node that joins a pool, before the pool is written.

    :raises: NodeLost if it has changed, or no longer qualifies.
    """
    tx.write_node(*node_rows.join_pool(
        node, matcher, levels.find_domain_traits(node)))


def make_row(pool_id: int, node: matching.Node, levels: group_policy.Levels,
             segment: int | None = None, reason: str | None = None,
             replaces: str | None = None) -> dict[str, Any]:
    """Return the columns of the row of a pool's new node.

    :param reason: None if it joins together with the pool.
    :param replaces: UUID of the node that it replaces.
    """
    return {'node_id': node.id, 'node_uuid': node.uuid, 'pool_id': pool_id,
            'domain': levels.join_domain(levels.find_domain(node)),
            'segment': segment, 'reason': reason, 'replaces': replaces}


def read_back(tx: transaction.Transaction, action: str,
              where: sa.ColumnElement[bool], arrivals: Sequence[str] = (),
              departures: Sequence[str] = (), losses: Sequence[str] = ()
              ) -> values.Pool:
    """Return a pool as it is in the transaction, and emit an event.

    Write nothing after it: see ``Transaction.read_reservation``.

    :param action: see ``events.OfPool``; also ``arrivals``, ``departures`` and
        ``losses``.
    :raises: ConcurrentChange if it has just expired.
    """
    for pool in _read(where, execute=tx.execute):
        tx.emit(events.OfPool(action, pool, arrivals, departures, losses))
        return pool
    raise transaction.ConcurrentChange()


def _find_expiry(time: values.Time | None, now: datetime.datetime
                 ) -> datetime.datetime | None:
    """Return when a pool expires; None if it does not.

    :raises: InvalidInput if that is not in the future.
    """
    expires_at = transaction.find_time('expires_at', time, now)
    if expires_at is not None and expires_at <= now:
        raise exception.InvalidInput('expires_at', 'must be in the future',
                                     got=f'{expires_at.isoformat()}Z')
    return expires_at


@engine.retry
def check_expiry(time: values.Time | None) -> None:
    """Check that a pool would not expire at once.

    :raises: InvalidInput.
    """
    [[now]] = engine.fetch_rows(functions.NOW)
    _find_expiry(time, now)


def _read(*where: sa.ColumnElement[bool],
          execute: Callable[..., Iterable[sa.Row[Any]]] = engine.fetch_rows
          ) -> list[values.Pool]:
    """Return pools with their nodes."""
    pools = [values.Pool(**row._mapping)
             for row in execute(pool_rows.select_pools(*where))]
    nodes: dict[int, list[values.PoolNode]] = {pool.id: [] for pool in pools}
    for row in execute(pool_rows.select_pool_nodes(
            pool_rows.in_pools(nodes))) if pools else ():
        columns = dict(row._mapping)
        nodes[columns.pop('pool_id')].append(values.PoolNode(
            state=profiles.classify_node(
                columns.pop('excluded_by'), columns.pop('taken')), **columns))
    result = []
    for pool in pools:
        summary = collections.Counter(
            node.state for node in nodes[pool.id])
        summary['total'] = len(nodes[pool.id])
        summary['healthy'] = sum(
            bool(node.is_healthy) for node in nodes[pool.id])
        result.append(dataclasses.replace(
            pool, nodes=tuple(nodes[pool.id]), summary=summary))
    return result


@engine.retry
def get_pool(uuid: str,
             authorize: Callable[[values.Pool], None] = context.allow_all
             ) -> values.Pool:
    """Return a pool with its nodes.

    :param authorize: raises if the caller may not do this.
    :raises: NotFound if there is none, or it has expired; what ``authorize``
        raises.
    """
    where = pool_rows.has_uuid(uuid)
    for row in engine.fetch_rows(pool_rows.select_pools(where)):
        authorize(values.Pool(**row._mapping))
        for pool in _read(where):
            return pool
    raise exception.NotFound.of(f'pool {uuid}')


@engine.retry
def find_position(uuid: str, reach: values.Ownership) -> list[int]:
    """Return the id of a pool; empty if the caller sees no such pool."""
    return [row.id for row in engine.fetch_rows(
        pool_rows.select_pools(pool_rows.has_uuid(uuid)))
        if reach.has_project(row.project_id)]


@engine.retry
def find_pools(filters: Mapping[str, str], reach: values.Ownership,
               after: int | None, limit: int) -> list[values.Pool]:
    """Return a page of pools with their summaries, in the order of creation.

    :param filters: values of ``project_id`` and ``node`` (UUID or name).
    :param reach: that of the caller.
    :param after: id of the last pool of the page before.
    """
    conditions = {'project_id': pool_rows.is_of_project,
                  'node': pool_rows.has_node}
    where = [conditions[name](value) for name, value in filters.items()]
    if reach.is_limited:
        where.append(pool_rows.is_of_project(reach.project_id or ''))
    if after is not None:
        where.append(pool_rows.is_after(after))
    rows = engine.fetch_rows(pool_rows.select_pools(*where, limit=limit))
    summaries = _count([row.id for row in rows])
    return [values.Pool(**row._mapping, summary=summaries[row.id])
            for row in rows]


def _count(ids: Collection[int]) -> dict[int, collections.Counter[str]]:
    """Return the summaries of pools by id."""
    summaries = {pool_id: collections.Counter[str]() for pool_id in ids}
    rows = engine.fetch_rows(pool_rows.count_pool_nodes(
        pool_rows.in_pools(ids))) if ids else ()
    for pool_id, reason, taken, is_healthy, number in rows:
        summary = summaries[pool_id]
        summary['total'] += number
        summary[profiles.classify_node(reason, taken)] += number
        summary['healthy'] += number if is_healthy else 0
    return summaries


@engine.retry
def count_pools() -> list[values.Pool]:
    """Return all pools with their summaries."""
    rows = engine.fetch_rows(pool_rows.select_pools())
    summaries = _count([row.id for row in rows])
    return [values.Pool(**row._mapping, summary=summaries[row.id])
            for row in rows]


def update_pool(uuid: str, changes: Mapping[str, Any],
                authorize: Callable[[values.Pool], None]) -> values.Pool:
    """Change a pool.

    :param changes: ``expires_at`` (None for no expiry) and ``description``.
    :param authorize: raises if the caller may not do this.
    :raises: NotFound; InvalidInput; DeadlineExceeded; what ``authorize``
        raises.
    """
    def attempt(run: transaction.Run) -> values.Pool:
        pool = get_pool(uuid, authorize)
        with transaction.begin(run) as tx:
            columns = dict(changes)
            if 'expires_at' in changes:
                columns['expires_at'] = _find_expiry(
                    changes['expires_at'], tx.now)
            if _keeps_longer(pool, columns):
                tx.touch_nodes((node.id, node.uuid) for node in pool.nodes)
            tx.write_one(pool_rows.update_pool(pool, columns))
            return read_back(tx, 'update', pool_rows.has_uuid(uuid))

    return transaction.run_request(attempt)


def _keeps_longer(pool: values.Pool, changes: Mapping[str, Any]) -> bool:
    """Return whether changes postpone or remove the expiry of a pool."""
    if pool.expires_at is None or 'expires_at' not in changes:
        return False
    expires_at = changes['expires_at']
    return expires_at is None or expires_at > pool.expires_at


def delete_pool(uuid: str, authorize: Callable[[values.Pool], None]) -> None:
    """Delete a pool. Its nodes keep their instances.

    :param authorize: raises if the caller may not do this.
    :raises: NotFound; DeadlineExceeded; what ``authorize`` raises.
    """
    def attempt(run: transaction.Run) -> None:
        try:
            pool = get_pool(uuid, authorize)
        except exception.NotFound:
            if run.unsure:
                # The COMMIT whose response was lost has succeeded.
                return
            raise
        delete_rows(run, pool)

    transaction.run_request(attempt)


def delete_rows(run: transaction.Run, pool: values.Pool) -> None:
    """Delete a pool and the rows of its nodes in one transaction.

    :raises: ConcurrentChange if it has changed since it was read.
    """
    nodes = engine.fetch_rows(pool_rows.select_node_uuids(pool.id))
    with transaction.begin(run) as tx:
        tx.execute(pool_rows.delete_nodes(pool.id))
        tx.write_one(pool_rows.delete_pool(pool))
        tx.emit(events.OfPool(
            'delete', pool, departures=[row.node_uuid for row in nodes],
            losses=[row.node_uuid for row in nodes if row.is_lost]))


def purge(uuid: str | None = None,
          node_ids: Collection[int] | None = None) -> int:
    """Delete expired pools, and rows of nodes that no longer exist.

    :param uuid: only the pool with this UUID,
    :param node_ids: or with one of these nodes. By default all.
    :returns: number of deleted pools.
    """
    number = sum(_purge_pool(values.Pool(**row._mapping)) for row in _fetch(
        pool_rows.select_ended(uuid, node_ids)))
    for row in _fetch(pool_rows.select_lost_nodes(node_ids)):
        _purge_node(*row)
    return number


def _purge_pool(pool: values.Pool) -> bool:
    """Delete a pool that has expired, or has no nodes.

    :returns: False if another process has deleted it.
    """
    def attempt(run: transaction.Run) -> bool:
        with contextlib.suppress(transaction.ConcurrentChange):
            delete_rows(run, pool)
            return True
        return False

    return transaction.run_request(attempt)


def _purge_node(pool_uuid: str, pool_id: int, node_id: int, node_uuid: str
                ) -> None:
    """Delete the row of a node that no longer exists."""
    def attempt(run: transaction.Run) -> None:
        # Another process may have deleted it, or the pool.
        with contextlib.suppress(transaction.ConcurrentChange), \
                transaction.begin(run) as tx:
            tx.write_one(pool_rows.delete_nodes(pool_id, [node_id]))
            read_back(tx, 'update', pool_rows.has_uuid(pool_uuid),
                      departures=[node_uuid], losses=[node_uuid])

    transaction.run_request(attempt)


@engine.retry
def _fetch(query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
    return engine.fetch_rows(query)


@engine.retry
def find_conflicts() -> Sequence[sa.Row[Any]]:
    """Return nodes of pools that carry an instance of another project.

    :returns: rows of ``pool``, ``project_id``, ``uuid`` of the node,
        ``instance_uuid`` and ``other_project``.
    """
    return engine.fetch_rows(pool_rows.SELECT_CONFLICTS)
