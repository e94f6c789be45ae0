# SPDX-License-Identifier: Apache-2.0
"""Adds nodes to a pool, removes them, and replaces one by another."""

from collections.abc import Callable
import dataclasses

from oslo_db import exception as db_exc

from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import pool_rows
from ironic_reservations.fleet import search
from ironic_reservations.matching import group_policy
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import goals
from ironic_reservations.reservations import pools
from ironic_reservations.reservations import transaction


def add_node(uuid: str, name: str, authorize: Callable[[values.Pool], None],
             reach: values.Ownership = values.ALL) -> values.Pool:
    """Let a node join a pool. The pool's request and policy do not matter.

    :param name: UUID or name of the node.
    :param authorize: raises if the caller may not do this.
    :param reach: that of the caller.
    :raises: NotFound; InvalidInput if there is no such node; Conflict if it
        does not qualify and has no reservation of the project, or is in a
        pool; DeadlineExceeded; what ``authorize`` raises.
    """
    def attempt(run: transaction.Run) -> values.Pool:
        pool = pools.get_pool(uuid, authorize)
        node = _find_node(name, reach)
        if any(other.id == node.id for other in pool.nodes):
            if run.unsure:
                # The COMMIT whose response was lost has succeeded.
                return pool
            raise exception.Conflict(
                f'Node {name} is already in pool {pool.uuid}.')
        return _insert(run, pool, node)

    return transaction.run_request(attempt)


def _find_node(name: str, reach: values.Ownership) -> matching.Node:
    """Return the node with a UUID or a name.

    :raises: InvalidInput if the caller sees no such node.
    """
    for row in engine.fetch_rows(pool_rows.select_node(name)):
        node = search.make_node(row._mapping)
        # Some databases regard names as equal that differ.
        if _is_named(node, name) and reach.covers(*node.projects):
            return node
    raise exception.InvalidInput(
        'node', 'must be the UUID or the name of a node', got=name)


def _is_named(node: matching.Node | values.PoolNode, name: str) -> bool:
    return name == node.name or name.lower() == node.uuid.lower()


def _insert(run: transaction.Run, pool: values.Pool, node: matching.Node
            ) -> values.Pool:
    """Insert the row of a node in one transaction.

    :raises: Conflict, ConcurrentChange.
    """
    conflict = exception.Conflict(
        f'Node {node.name or node.uuid} cannot join the pool: it must be in '
        f'no pool, and either free and not leased by another project, or '
        f'reserved by project {pool.project_id}.')
    try:
        with transaction.begin(run) as tx:
            tx.write_one(
                pool_rows.admit_node(node.id, node.uuid, str(pool.project_id)),
                error=transaction.NodeLost)
            tx.execute(pool_rows.INSERT_NODES, [pools.make_row(
                pool.id, node, group_policy.find_levels(pool),
                reason='add')])
            tx.write_one(pool_rows.update_pool(pool))
            return pools.read_back(tx, 'update', pool_rows.has_uuid(pool.uuid),
                                   arrivals=[node.uuid])
    except transaction.NodeLost:
        # A concurrent request may have expired the reservation of the node.
        if expiry.expire_leases() or not run.tries:
            raise transaction.ConcurrentChange() from None
        raise conflict from None
    except db_exc.DBDuplicateEntry:
        if engine.fetch_rows(pool_rows.select_pools(
                pool_rows.has_node(node.uuid))):
            raise conflict from None
        pools.purge(node_ids=[node.id])
        raise transaction.ConcurrentChange() from None


def replace_node(pool: values.Pool, name: str, matcher: matching.Matcher,
                 must_be_idle: bool = False) -> values.Pool:
    """Remove a node from a pool, and add another one in its domain.

    :param pool: as it was read, with its nodes.
    :param name: UUID or name of the node to remove.
    :param matcher: of the pool's request. Its ``use`` is to join.
    :param must_be_idle: whether the node to remove must carry no instance.
    :raises: NotFound if there is no such pool or node; Conflict if the node is
        not idle; NoMatchingNode; DeadlineExceeded.
    """
    old, levels = _find_member(pool, name), group_policy.find_levels(pool)
    if levels.keys:
        matcher = dataclasses.replace(matcher, policy=group_policy.Policy(
            levels, segment_domain=levels.split_domain(old.domain)))

    goal, finder = goals.Goal(matcher), goals.Search()

    def attempt(run: transaction.Run) -> values.Pool:
        current = pools.get_pool(pool.uuid)
        if current.id != pool.id:
            raise exception.NotFound.of(pool.title)
        if run.unsure and all(node.id != old.id for node in current.nodes):
            # The COMMIT whose response was lost has succeeded.
            return current
        _find_member(current, name)
        if must_be_idle:
            # A node with an expired reservation is idle.
            expiry.expire_leases()
            if not engine.fetch_rows(pool_rows.select_idle(old)):
                raise exception.Conflict(
                    f'Node {name} carries an instance, so the project would '
                    f'keep it in addition to its replacement. Delete the '
                    f'server or release the reservation first, or ask an '
                    f'operator to replace the node.')
        return transaction.write_first(
            finder.find(goal), lambda nodes: _swap(
                run, current, old, nodes[0], matcher, must_be_idle))

    return transaction.run_request(attempt)


def _find_member(pool: values.Pool, name: str) -> values.PoolNode:
    """Return the node of a pool with a UUID or a name.

    :raises: NotFound.
    """
    for node in pool.nodes:
        if _is_named(node, name):
            return node
    raise exception.NotFound(f'Node {name} is not in pool {pool.uuid}.')


def _swap(run: transaction.Run, pool: values.Pool, old: values.PoolNode,
          new: matching.Node, matcher: matching.Matcher,
          must_be_idle: bool) -> values.Pool:
    """Replace a node in one transaction.

    :raises: NodeLost; ConcurrentChange, also if the node is no longer idle.
    """
    levels = group_policy.find_levels(pool)
    try:
        with transaction.begin(run) as tx:
            for node_id in sorted((new.id, old.id)):
                if node_id != old.id:
                    pools.join_node(tx, new, matcher, levels)
                elif must_be_idle:
                    tx.write_one(pool_rows.touch_idle(old))
            tx.write_one(pool_rows.delete_nodes(pool.id, [old.id]))
            tx.execute(pool_rows.INSERT_NODES, [pools.make_row(
                pool.id, new, levels, old.segment, 'replace', old.uuid)])
            tx.write_one(pool_rows.update_pool(pool))
            return pools.read_back(
                tx, 'update', pool_rows.has_uuid(pool.uuid),
                arrivals=[new.uuid], departures=[old.uuid])
    except db_exc.DBDuplicateEntry:
        pools.purge(node_ids=[new.id])
        raise transaction.ConcurrentChange() from None


def remove_node(uuid: str, name: str, authorize: Callable[[values.Pool], None]
                ) -> None:
    """Remove a node from a pool, and delete the pool with its last node.

    :param name: UUID or name of the node, which keeps its instance.
    :param authorize: raises if the caller may not do this.
    :raises: NotFound if there is no such pool or node; DeadlineExceeded; what
        ``authorize`` raises.
    """
    def attempt(run: transaction.Run) -> None:
        try:
            pool = pools.get_pool(uuid, authorize)
            node = _find_member(pool, name)
        except exception.NotFound:
            if run.unsure:
                # The COMMIT whose response was lost has succeeded.
                return
            raise
        if len(pool.nodes) == 1:
            pools.delete_rows(run, pool)
            return
        with transaction.begin(run) as tx:
            tx.write_one(pool_rows.delete_nodes(pool.id, [node.id]))
            tx.write_one(pool_rows.update_pool(pool))
            pools.read_back(tx, 'update', pool_rows.has_uuid(uuid),
                            departures=[node.uuid])

    transaction.run_request(attempt)
