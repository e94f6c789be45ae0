# SPDX-License-Identifier: Apache-2.0
"""Which process is a compute host: each host's lease has one holder.

Several processes may be ready to be the same compute host, one in the place
of the other. The one that holds the host's lease is the host. It renews the
lease, and names itself in whatever it writes through this API; once another
has taken the lease over, none of its writes succeeds any more: see the fence
in ``transaction``.
"""

import contextlib
import dataclasses
import datetime

from oslo_db import exception as db_exc
from oslo_log import log

from ironic_reservations import exception
from ironic_reservations.db import engine
from ironic_reservations.db import host_rows
from ironic_reservations.reservations import transaction
from ironic_reservations.reservations import values

LOG = log.getLogger(__name__)

#: Seconds that a lease may last: at least, and at most.
MIN_TTL, MAX_TTL = 10, 600


@dataclasses.dataclass(frozen=True)
class Lease:
    """Which process is a compute host, and until when.

    :param holder: UUID that the process has chosen for itself.
    :param live: whether nobody else may take the lease over now.
    :param created_at: when this holder has taken it.
    :param updated_at: when this holder has renewed it last, or None.
    :param since: when its holder has changed last, which is the same as
        ``created_at``; it and what follows are None where nobody asks.
    :param standbys: how many other processes wait for it.
    :param reservations: how many the host holds.
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
def find(limit, marker=None, host=None):
    """Leases in the order of their hosts, those that are over among them.

    :param limit: how many at most; None for all.
    :param marker: the last host of the page before.
    :param host: only of this host.
    :returns: list of Lease.
    """
    query = host_rows.select_host_lease_details(MAX_TTL, host, marker)
    return [Lease(**row._mapping)
            for row in engine.fetch_rows(query.limit(limit))]


def hold(host, holder, ttl):
    """Be a host, or stay it, for some time from now.

    A process that has let its lease end gets it again if no other has taken
    it meanwhile.

    :param ttl: seconds.
    :returns: Lease.
    :raises: Conflict while the lease of another is live; DeadlineExceeded.
    """
    def attempt(run):
        # It is read first because the processes that wait for a lease ask all
        # the time, and an UPDATE would lock it against its holder.
        before = _get(host)
        if before and before.live and before.holder != holder:
            _note_standby(run, host, holder, ttl)
            raise exception.Conflict(
                f'Host {host} is held by another process until '
                f'{before.expires_at} UTC.')
        try:
            with transaction.write(run) as tx:
                tx.one(host_rows.insert_host_lease(host, holder, ttl)
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
            raise transaction.Again()
        return before, Lease(**row._mapping)

    before, lease = transaction.attempts(attempt)
    if before is None or before.holder != holder:
        LOG.info('Host %(host)s is held by %(holder)s; before by %(before)s',
                 {'host': host, 'holder': holder,
                  'before': before and before.holder})
    return lease


def _note_standby(run, host, holder, ttl):
    """Note that a process waits, for as long as the lease that it wants.

    It asks every other second, and is noted twice in that time.
    """
    noted = engine.fetch_rows(host_rows.select_standby(host, holder, ttl // 2))
    if noted and noted[0][0]:
        return
    # Another request of the same process may have noted it just now.
    with contextlib.suppress(db_exc.DBDuplicateEntry), \
            transaction.write(run) as tx:
        if noted:
            tx.execute(host_rows.renew_standby(host, holder, ttl))
        else:
            tx.execute(host_rows.insert_standby(host, holder, ttl))
            tx.execute(host_rows.delete_standbys(host))


def forget(host):
    """Forget a host that no process is any more.

    :raises: NotFound where it is not known; Conflict while its lease is live.
    """
    def attempt(run):
        lease = _get(host)
        if lease is None:
            if run.unsure:
                return  # It is deleted.
            raise exception.NotFound(f'Nobody holds host {host}.')
        if lease.live:
            raise exception.Conflict(
                f'Host {host} is held by a process until {lease.expires_at} '
                f'UTC; only a host whose lease is over can be forgotten.')
        with transaction.write(run) as tx:
            tx.one(host_rows.delete_expired_host_lease(
                host, lease.holder, MAX_TTL))

    transaction.attempts(attempt)
    LOG.info('Host %s, whose lease was over, is forgotten', host)


def give_up(host, holder):
    """Be a host no longer, so that another need not wait to be it.

    :raises: NotFound when no process is; PreconditionFailed when another is.
    """
    def attempt(run):
        lease = _get(host)
        if lease is None or lease.holder != holder:
            if run.unsure:
                return  # It is given up.
            if lease is None:
                raise exception.NotFound(f'Nobody holds host {host}.')
            raise transaction.not_held(values.Actor(host, holder))
        with transaction.write(run) as tx:
            tx.one(host_rows.delete_host_lease(host, holder))

    transaction.attempts(attempt)
    LOG.info('Host %(host)s is given up by %(holder)s',
             {'host': host, 'holder': holder})


def _get(host):
    """The Lease of a host without what an operator wants to know, or None."""
    for row in engine.fetch_rows(host_rows.select_host_leases(MAX_TTL, host)):
        return Lease(**row._mapping)
    return None
