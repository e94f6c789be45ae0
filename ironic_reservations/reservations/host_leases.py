# SPDX-License-Identifier: Apache-2.0
"""Leases of compute hosts: which process serves a host.

Several processes can be ready to serve the same compute host. The process
that holds the host's lease serves it: it renews the lease, and names itself
in each write through this API. After another process has taken the lease
over, its writes are refused: see ``transaction.Transaction.check_fence``.
"""

import contextlib
import dataclasses
import datetime

from oslo_db import exception as db_exc
from oslo_log import log

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import host_rows
from ironic_reservations.reservations import transaction
from ironic_reservations.shared import text

LOG = log.getLogger(__name__)

#: Shortest and longest duration of a lease, in seconds.
MIN_TTL, MAX_TTL = 10, 600


@dataclasses.dataclass(frozen=True)
class HostLease:
    """The lease of a compute host.

    :param holder: UUID that the process has chosen for itself.
    :param live: whether no other process may take the lease over now.
    :param created_at: when this holder acquired it.
    :param updated_at: when this holder last renewed it, or None.
    :param since: when the holder last changed, equal to ``created_at``. This
        and the following parameters are None unless they were read.
    :param standbys: number of other processes that wait for the lease.
    :param reservations: number of reservations that the host holds.
    """

    host: str
    holder: str
    live: bool
    expires_at: datetime.datetime
    created_at: datetime.datetime
    updated_at: datetime.datetime | None
    since: datetime.datetime | None = None
    standbys: int | None = None
    reservations: int | None = None


@engine.retry
def find_leases(limit: int | None, marker: str | None = None,
                host: str | None = None) -> list[HostLease]:
    """Return leases sorted by their hosts, including expired ones.

    :param limit: maximum number; None for all.
    :param marker: the last host of the page before.
    :param host: only the lease of this host.
    """
    query = host_rows.select_host_lease_details(MAX_TTL, host, marker)
    return [HostLease(**row._mapping)
            for row in engine.fetch_rows(query.limit(limit))]


def acquire_lease(host: str, holder: str, ttl: int) -> HostLease:
    """Acquire or renew the lease of a compute host.

    A process whose lease has expired acquires it again unless another process
    did so first.

    :param ttl: seconds from now until the lease expires.
    :raises: Conflict while another process holds the lease; DeadlineExceeded.
    """
    def attempt(run: transaction.Run) -> tuple[HostLease | None, HostLease]:
        # Read first, because waiting processes ask every few seconds, and an
        # UPDATE would lock the row against its holder.
        before = _get_lease(host)
        if before and before.live and before.holder != holder:
            _record_standby(run, host, holder, ttl)
            raise exception.Conflict(
                f'Another process has the lease of host {host} until '
                f'{before.expires_at} UTC.')
        try:
            with transaction.begin(run) as tx:
                tx.write_one(
                    host_rows.insert_host_lease(host, holder, ttl)
                    if before is None
                    else host_rows.renew_host_lease(host, holder, ttl)
                    if before.holder == holder
                    else host_rows.take_over_host_lease(
                        host, before.holder, holder, ttl, MAX_TTL))
                if before is None or before.holder != holder:
                    tx.execute(host_rows.delete_standbys(host, holder))
                row = tx.execute(
                    host_rows.select_host_leases(MAX_TTL, host)).one()
        except db_exc.DBDuplicateEntry:
            raise transaction.ConcurrentChange()
        return before, HostLease(**row._mapping)

    before, lease = transaction.run_request(attempt)
    if before is None or before.holder != holder:
        LOG.info('Process %(holder)s has acquired the lease of host %(host)s; '
                 'the previous holder was %(before)s',
                 {'host': text.escape_controls(host), 'holder': holder,
                  'before': before and before.holder})
    return lease


def _record_standby(run: transaction.Run, host: str, holder: str, ttl: int
                    ) -> None:
    """Record that a process waits for the lease of a host.

    The record expires after the duration of the lease. The process asks
    every other second, and its record is renewed twice in that time.
    """
    rows = engine.fetch_rows(host_rows.select_standby(host, holder, ttl // 2))
    if rows and rows[0][0]:
        return
    # A concurrent request of the same process may have inserted the row.
    with contextlib.suppress(db_exc.DBDuplicateEntry), \
            transaction.begin(run) as tx:
        if rows:
            tx.execute(host_rows.renew_standby(host, holder, ttl))
        else:
            tx.execute(host_rows.insert_standby(host, holder, ttl))
            tx.execute(host_rows.delete_standbys(host))


def delete_expired_lease(host: str) -> None:
    """Delete the expired lease of a host that no process serves.

    :raises: NotFound if there is none; Conflict if it has not expired.
    """
    def attempt(run: transaction.Run) -> None:
        lease = _get_lease(host)
        if lease is None:
            if run.unsure:
                return  # An attempt of this request has deleted it.
            raise _make_not_found(host)
        if lease.live:
            raise exception.Conflict(
                f'A process has the lease of host {host} until '
                f'{lease.expires_at} UTC; only expired leases can be deleted.')
        with transaction.begin(run) as tx:
            tx.write_one(host_rows.delete_expired_host_lease(
                host, lease.holder, MAX_TTL))

    transaction.run_request(attempt)
    LOG.info('The expired lease of host %s was deleted',
             text.escape_controls(host))


def give_up_lease(host: str, holder: str) -> None:
    """Give up the lease of a host, so that a standby can acquire it at once.

    :raises: NotFound if there is no lease; PreconditionFailed if another
        process has it.
    """
    def attempt(run: transaction.Run) -> None:
        lease = _get_lease(host)
        if lease is None or lease.holder != holder:
            if run.unsure:
                return  # An attempt of this request has given it up.
            if lease is None:
                raise _make_not_found(host)
            raise transaction.make_lease_error(values.Actor(host, holder))
        with transaction.begin(run) as tx:
            tx.write_one(host_rows.delete_host_lease(host, holder))

    transaction.run_request(attempt)
    LOG.info('Process %(holder)s has given up the lease of host %(host)s',
             {'host': text.escape_controls(host), 'holder': holder})


def _make_not_found(host: str) -> exception.NotFound:
    return exception.NotFound(f'There is no lease of host {host}.')


def _get_lease(host: str) -> HostLease | None:
    """Return the lease of a host without the counts that lists show."""
    for row in engine.fetch_rows(host_rows.select_host_leases(MAX_TTL, host)):
        return HostLease(**row._mapping)
    return None
