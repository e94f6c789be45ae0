# SPDX-License-Identifier: Apache-2.0
"""Which process is a compute host: each host's lease has one holder.

Several processes may be ready to be the same compute host, one in the place
of the other. The one that holds the host's lease is the host. It renews the
lease, and names itself in whatever it writes through this API; once another
has taken the lease over, none of its writes succeeds any more.
"""

import dataclasses
import datetime

from oslo_db import exception as db_exc
from oslo_log import log

from ironic_reservations import exception
from ironic_reservations.db import engine
from ironic_reservations.db import queries

LOG = log.getLogger(__name__)

#: Seconds that a lease may last: at least, and at most.
MIN_TTL, MAX_TTL = 10, 600


@dataclasses.dataclass(frozen=True)
class Lease:
    """Who is a compute host, and until when.

    :param holder: UUID that the process has chosen for itself.
    :param live: whether nobody else may take the lease over now.
    :param created_at: when this holder has taken it.
    :param updated_at: when this holder has renewed it last, or None.
    """

    host: str
    holder: str
    live: bool
    expires_at: datetime.datetime
    created_at: datetime.datetime
    updated_at: datetime.datetime | None


@engine.retry
def find(limit, marker=None, host=None):
    """Leases in the order of their hosts, those that are over among them.

    :param limit: how many at most.
    :param marker: the last host of the page before.
    :param host: only of this host.
    :returns: list of Lease.
    """
    return _leases(queries.host_leases(MAX_TTL, host, marker).limit(limit))


@engine.retry
def hold(host, holder, ttl):
    """Be a host, or stay it, for some time from now.

    Who has let the lease end gets it again if nobody has taken it meanwhile.

    :param ttl: seconds.
    :returns: Lease.
    :raises: Conflict while the lease of another is live; DeadlineExceeded.
    """
    while True:
        # It is read first because those who wait for a lease ask all the
        # time, and an UPDATE would lock it against its holder.
        before = _get(host)
        if before and before.live and before.holder != holder:
            raise exception.Conflict(
                f'Host {host} is held by another process until '
                f'{before.expires_at} UTC.')
        lease = _hold(before, host, holder, ttl)
        if lease is not None:
            if before is None or before.holder != holder:
                LOG.info('Host %(host)s is held by %(holder)s; before by '
                         '%(before)s', {
                             'host': host, 'holder': holder,
                             'before': before and before.holder})
            return lease
        engine.check_deadline()


def _hold(before, host, holder, ttl):
    """One transaction; None when the lease is no longer as it was read."""
    try:
        with engine.transaction() as connection:
            if not connection.execute(
                    queries.new_host(host, holder, ttl) if before is None else
                    queries.renew_host(host, holder, ttl)
                    if before.holder == holder else
                    queries.take_host(host, before.holder, holder, ttl,
                                      MAX_TTL)).rowcount:
                return None
            row = connection.execute(queries.host_leases(MAX_TTL, host)).one()
    except db_exc.DBDuplicateEntry:
        return None
    return Lease(**row._mapping)


def give_up(host, holder):
    """Be a host no longer, so that another need not wait to be it.

    :raises: NotFound when nobody is; PreconditionFailed when another is.
    """
    given_up = False

    @engine.retry
    def attempt():
        nonlocal given_up
        while True:
            lease = _get(host)
            if lease is None or lease.holder != holder:
                if given_up:
                    return  # Our own COMMIT went through unnoticed.
                if lease is None:
                    raise exception.NotFound(f'Nobody holds host {host}.')
                raise _not_held(host, holder)
            with engine.transaction() as connection:
                given_up = connection.execute(
                    queries.delete_host(host, holder)).rowcount > 0
            if given_up:
                return
            engine.check_deadline()

    attempt()
    LOG.info('Host %(host)s is given up by %(holder)s',
             {'host': host, 'holder': holder})


def check(host, holder):
    """Refuse a request of who is not the host.

    A request begins with it, because it may end before it comes to the
    ``fence``, and because a Galera member waits for what others have written
    where it reads, not where it updates (``mysql_wsrep_sync_wait = 1``).

    :param holder: None for a caller who does not say it, and is not refused.
    :raises: PreconditionFailed.
    """
    if holder is not None and not engine.rows(
            queries.HOLDS_HOST, queries.of_holder(host, holder)):
        raise _not_held(host, holder)


def fence(connection, host, holder):
    """Let a transaction that writes go through only while it is the host's.

    It writes the lease, so that either the transaction or one that takes the
    lease over waits for the other, or is aborted, also where they meet on two
    members of a Galera cluster. It is the last statement before the COMMIT,
    because the host's other transactions wait for the lease's row meanwhile,
    and because who waits for nothing else cannot be in a deadlock.

    :param holder: see ``check``.
    :raises: PreconditionFailed, to be raised through the transaction.
    """
    if holder is not None and not connection.execute(
            queries.FENCE, queries.of_holder(host, holder)).rowcount:
        raise _not_held(host, holder)


def _leases(query):
    return [Lease(**row._mapping) for row in engine.rows(query)]


def _get(host):
    """The Lease of a host, or None."""
    return next(iter(_leases(queries.host_leases(MAX_TTL, host))), None)


def _not_held(host, holder):
    return exception.PreconditionFailed(
        f'Host {host} is not held by {holder}, or its lease is over.')
