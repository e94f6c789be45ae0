# SPDX-License-Identifier: Apache-2.0
"""One loop and one transaction, by which this package writes everything.

A request reads what it needs, and writes all that it changes in one
transaction. Each of its statements names what was read; where one of them
touches no row, because another request was faster, nothing is written, and
the request begins anew until its deadline.

Transactions lock in the same order, so that of two that need the same rows
one waits for the other; a deadlock is rare, and is run again:

    the project -> nodes by id -> the group -> rows -> the fence, or the count

Some do not keep to it. An adoption writes the group before it inserts its row
by a SELECT from ``nodes``. A renewal, and the statement that ends the leases
of deployed nodes, lock a row before its node. The deletion of a stale row
writes the group before it reads the node. The fence and the count never meet,
because a request that names a holder names a host, and one that names a host
is not counted against a quota.
"""

import contextlib

from oslo_db import exception as db_exc
from oslo_log import log

from ironic_reservations import events
from ironic_reservations import exception
from ironic_reservations import metrics
from ironic_reservations.db import engine
from ironic_reservations.db import host_rows
from ironic_reservations.db import reservation_rows
from ironic_reservations.reservations import values

LOG = log.getLogger(__name__)


class Again(Exception):
    """Another request has changed what was read: read it again."""


class NodeLost(Exception):
    """Another request has taken the node: try the next one."""


class Run:
    """A request from its first attempt to its answer.

    It outlives deadlocks and lost connections, which end an attempt.

    :ivar actor: values.Actor.
    :ivar tries: how many attempts have ended without an answer.
    :ivar unsure: whether the response to a COMMIT was lost, so that what this
        request writes may be committed already.
    """

    def __init__(self, actor):
        self.actor = actor
        self.tries = 0
        self.unsure = False


def attempts(attempt, actor=values.NOBODY):
    """Call a function until it answers, within the deadline of the request.

    :param attempt: function of a Run, which reads anew each time that it is
        called. It raises Again where what it has read was changed meanwhile.
    :param actor: values.Actor.
    :returns: what the attempt returns.
    :raises: PreconditionFailed when the actor is not the host; what the
        attempt raises; DeadlineExceeded; OutcomeUnknown when the actor is no
        longer the host and the response to a COMMIT was lost before.
    """
    run = Run(actor)

    @engine.retry
    def go_on():
        if not run.unsure:
            _check_holder(actor)
        while True:
            try:
                return attempt(run)
            except Again:
                engine.check_deadline()
            except exception.PreconditionFailed as error:
                if run.unsure:
                    # Refused with 412 it would mean that nothing has changed.
                    raise exception.OutcomeUnknown() from error
                raise
            finally:
                run.tries += 1

    return go_on()


class Transaction:
    """A transaction that writes: see ``write``.

    :ivar events: pairs of an event and its Reservation, to emit after the
        COMMIT.
    """

    def __init__(self, connection, actor):
        self.connection = connection
        self.events = []
        self._actor, self._fenced = actor, False

    def execute(self, statement, parameters=None):
        return self.connection.execute(statement, parameters)

    def one(self, statement, parameters=None, error=Again):
        """Run a statement that must touch a row.

        :param error: the class of what is raised where it touches none,
            because another request was faster.
        """
        result = self.execute(statement, parameters)
        if not result.rowcount:
            metrics.count_conflict()
            LOG.debug('Another request was faster: %s', error.__doc__)
            raise error()
        return result

    def read(self, column, value):
        """The Reservation whose column is this, as it is in the transaction.

        Nothing is written afterwards: the snapshot that this read begins is
        older than what others commit from here on, and MariaDB 11.8 refuses
        to write a row that was changed since (error 1020).

        :raises: Again when none counts.
        """
        self.fence()
        query = reservation_rows.select_live(names=reservation_rows.VIEW)
        for row in self.execute(query.where(
                reservation_rows.column_is(column, value))):
            return values.Reservation(**row._mapping)
        raise Again()

    def emits(self, event, reservation):
        """Emit an event once the transaction is committed."""
        self.events.append((event, reservation))

    def fence(self):
        """Let the transaction go through only while the actor is the host.

        It writes the lease, so that either the transaction or one that takes
        the lease over waits for the other, or is aborted, also where they
        meet on two members of a Galera cluster. It is the last write before
        the COMMIT, because the host's other transactions wait for the lease's
        row meanwhile, and because a transaction that waits for nothing else
        afterwards cannot be in a deadlock.

        :raises: PreconditionFailed.
        """
        if self._actor.holder is None or self._fenced:
            return
        if not self.execute(host_rows.FENCE,
                            host_rows.bind_holder(*self._actor)).rowcount:
            raise not_held(self._actor)
        self._fenced = True


@contextlib.contextmanager
def write(run):
    """A transaction that writes for a request.

    It ends with the fence, and its events are emitted after the COMMIT. An
    exception rolls it back.

    :param run: Run.
    :returns: context manager of a Transaction.
    """
    committing = False
    try:
        with engine.transaction() as connection:
            transaction = Transaction(connection, run.actor)
            yield transaction
            transaction.fence()
            committing = True
    except db_exc.DBConnectionError:
        if committing:
            run.unsure = True
            LOG.warning(
                'The response to a COMMIT was lost; trying again, which finds '
                'what was committed for instance %s', ', '.join({
                    held.instance_uuid: None
                    for _, held in transaction.events}))
        raise
    for event, reservation in transaction.events:
        events.emit(event, reservation)


def read(query, parameters=None):
    """The Reservations that a query of the columns in VIEW finds, as of now.

    :returns: list.
    """
    return [values.Reservation(**row._mapping)
            for row in engine.fetch_rows(query, parameters)]


def _check_holder(actor):
    """Refuse a request of a process that is not the host.

    A request begins with it, because it may end before it comes to the
    fence, and because a Galera member waits for what others have written
    where it reads, not where it updates (``mysql_wsrep_sync_wait = 1``).

    :raises: PreconditionFailed.
    """
    if actor.holder is not None and not engine.fetch_rows(
            host_rows.SELECT_HOST_LEASE, host_rows.bind_holder(*actor)):
        raise not_held(actor)


def not_held(actor):
    return exception.PreconditionFailed(
        f'Host {actor.host} is not held by {actor.holder}, or its lease is '
        f'over.')
