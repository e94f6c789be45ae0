# SPDX-License-Identifier: Apache-2.0
"""Makes a read on a member of a Galera cluster wait for other members.

Operators may configure this for all reads, with ``mysql_wsrep_sync_wait = 1``.
Otherwise only reads that must not be stale wait.
"""

from collections.abc import Iterator
import contextlib

import sqlalchemy as sa

#: The bit of wsrep_sync_wait that makes reads wait.
WAIT_FOR_READS = 1

# Key in a connection's info: the session's wsrep_sync_wait, or None if the
# server is not a member of a cluster.
_SYNC_WAIT = 'ironic_reservations.sync_wait'


@contextlib.contextmanager
def wait_for_commits(connection: sa.Connection) -> Iterator[None]:
    """Make reads in this context wait for the commits of other members.

    :param connection: must not be in a transaction.
    """
    bits = _get_sync_wait(connection)
    if bits is None or bits & WAIT_FOR_READS:
        yield
        return
    _set_sync_wait(connection, bits | WAIT_FOR_READS)
    try:
        yield
    finally:
        _set_sync_wait(connection, bits)


def _get_sync_wait(connection: sa.Connection) -> int | None:
    """Return the value of _SYNC_WAIT; queries it once for each connection."""
    if _SYNC_WAIT not in connection.info:
        variables = {} if connection.dialect.name != 'mysql' else dict(
            connection.exec_driver_sql(
                'SHOW SESSION VARIABLES WHERE Variable_name IN '
                "('wsrep_on', 'wsrep_sync_wait')").tuples().all())
        connection.rollback()
        connection.info[_SYNC_WAIT] = (
            int(variables['wsrep_sync_wait'])
            if variables.get('wsrep_on') == 'ON' else None)
    bits: int | None = connection.info[_SYNC_WAIT]
    return bits


def _set_sync_wait(connection: sa.Connection, bits: int) -> None:
    connection.exec_driver_sql(f'SET SESSION wsrep_sync_wait = {bits}')
    connection.rollback()
