# SPDX-License-Identifier: Apache-2.0
"""Remembers the nodes whose rows another transaction keeps locked.

A process that is stopped in a transaction, for example by SIGSTOP, keeps its
rows locked. A request that has timed out waiting for such a node has *lost*
it, and waits for no other node from then on. For a while, the requests of this
process try the node after all others.
"""

import time

import sqlalchemy as sa

from ironic_reservations.db import engine
from ironic_reservations.db import models

#: Seconds for which a process prefers other nodes.
PREFERENCE = 10

# The numbers of ER_LOCK_WAIT_TIMEOUT and MySQL's ER_LOCK_NOWAIT.
_NUMBERS = {1205, 3572}

# For each node, the time.monotonic() until which others are preferred.
_ends: dict[int, float] = {}


def is_timeout(error: Exception) -> bool:
    """Return whether a statement has timed out waiting for a lock."""
    return engine.get_error_number(error) in _NUMBERS


def lock_at_once(connection: sa.Connection, node_id: int) -> None:
    """Lock a node, or raise an error if another transaction has locked it.

    It is no guard, because the members of a cluster do not share locks.
    """
    # MariaDB has NOWAIT, too, but it would not wait for a locked table either,
    # and so lose all nodes at once.
    has_option = not getattr(connection.dialect, 'is_mariadb', False)
    with engine.without_waiting():
        connection.execute(sa.select(models.nodes.c.id).where(
            models.nodes.c.id == node_id).with_for_update(nowait=has_option))


def record(node_id: int) -> None:
    """Store that a statement has timed out waiting for a node."""
    engine.add_lost_node(node_id)
    _ends[node_id] = time.monotonic() + PREFERENCE


def is_avoided(node_id: int) -> bool:
    """Return whether this process prefers other nodes."""
    return _ends.get(node_id, 0) > time.monotonic()
