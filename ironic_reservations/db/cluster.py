# SPDX-License-Identifier: Apache-2.0
"""A read on a member of a Galera cluster that must not be stale.

Operators may have every read wait for what other members have committed, with
``mysql_wsrep_sync_wait = 1``. Where they have not, one that must waits alone.
"""

import contextlib

#: The bit of wsrep_sync_wait that makes reads wait.
WAIT_FOR_READS = 1

# A connection's info has by this key the session's wsrep_sync_wait, or None
# where the server is no member of a cluster.
_SYNC_WAIT = 'ironic_reservations.sync_wait'


@contextlib.contextmanager
def wait_for_commits(connection):
    """Let the reads of a connection wait while it lasts.

    :param connection: one that is in no transaction.
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


def _get_sync_wait(connection):
    """See _SYNC_WAIT; asked once of each connection."""
    if _SYNC_WAIT not in connection.info:
        found = {} if connection.dialect.name != 'mysql' else dict(
            connection.exec_driver_sql(
                'SHOW SESSION VARIABLES WHERE Variable_name IN '
                "('wsrep_on', 'wsrep_sync_wait')").all())
        connection.rollback()
        connection.info[_SYNC_WAIT] = (
            int(found['wsrep_sync_wait'])
            if found.get('wsrep_on') == 'ON' else None)
    return connection.info[_SYNC_WAIT]


def _set_sync_wait(connection, bits):
    connection.exec_driver_sql(f'SET SESSION wsrep_sync_wait = {bits}')
    connection.rollback()
