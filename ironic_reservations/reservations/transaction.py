# SPDX-License-Identifier: Apache-2.0
"""The retry loop and the transaction for all writes of this package.

A request reads first, and then writes all its changes in one transaction.
Each statement of the transaction names the values that were read. If one
changes no row, because a concurrent request was faster, the transaction is
rolled back, and the request starts over, until its deadline.

All transactions lock in the same order, so that of two that need the same
rows one waits for the other. A deadlock is rare, and is retried:

    the project -> nodes by id -> the group -> rows -> the fence or the count

The rows include those of notices and of pools. The rows of a pool's nodes are
written before the pool, because the statement that holds a node reads them in
this order.

There are exceptions. A new pool is inserted before the rows of its nodes,
which contain its id. An adoption writes the group before it inserts its row
by a SELECT from ``nodes``. A renewal, and the statement that clears the
leases of deployed nodes, lock a row before its node. The end of a stale row
writes the group, and locks the row before its node. The fence and the count
never meet, because a request that names a holder names a host, and a request
that names a host is not counted against a quota.

If a transaction decides on what another one writes, one of them has to wait or
to start over, on every member of a cluster. Therefore both write a row of the
same table, or a letter gives the reason why they need not. The table lists the
functions that begin transactions, the tables that these write, in order and
without the fence, and the tables that they read to decide, but may leave
unchanged. Tables in brackets are not always written; ``+`` is for tables into
which a transaction may only insert a row, for which no other one waits.

================================ =========================== ==================
function                         writes                      decides on
================================ =========================== ==================
adoption._write                  [+groups] +reservations     nodes(r)
expiry._execute                  [groups] [reservations]     nodes(r)
                                                             reservations(m)
expiry._remove                   [nodes] [groups] +history   nodes(r)
                                 reservations [groups]
group_updates.update_group       [groups] [reservations]     nodes(r)
host_leases._record_standby      standbys
host_leases.acquire_lease        +hosts [standbys]           hosts(w)
host_leases.delete_expired_lease hosts
host_leases.give_up_lease        hosts
notices._end_lost                notices(g)
notices._insert                  [projects] [nodes]          nodes(e)
                                 +notices(k)                 notices(p)
                                                             pool_nodes(o)
                                                             pools(o)
                                                             reservations(o)
notices._mark_node               [projects] +notices(g)      nodes(e)
                                                             notices(p)
notices._record_failed_build     notices(g)                  nodes(e)
notice_updates._change           [nodes] notices(k)          nodes(e)
notice_updates._cordon           projects nodes notices(k)   pool_nodes pools
                                                             reservations(n)
notice_updates._schedule         [nodes] notices(k)          nodes(e)
                                                             pool_nodes(o)
                                                             pools(o)
                                                             reservations(o)
obtain.hold_picks                [projects] nodes [+groups]  notices pool_nodes
                                 [+history] +reservations    pools
                                                             reservations(p)
pool_nodes._insert               nodes +pool_nodes pools     notices
                                                             reservations(n)
pool_nodes._swap                 nodes pool_nodes pools      notices
pool_nodes.remove_node           pool_nodes(g) pools(g)
pools._insert                    nodes +pools +pool_nodes    notices
pools._purge_node                pool_nodes(g)
pools.delete_rows                pool_nodes(g) pools(g)
pools.update_pool                [nodes] pools(k)
releases.write_release           nodes [groups] +history
                                 reservations [groups]
transaction.delete_old           [notices(g)] [history]
updates.write_changes            reservations                nodes(r)
================================ =========================== ==================

(e) It decides only on whether the node exists, which Ironic alone changes.
(g) It only gives: it keeps no request off a node.
(k) If it newly keeps requests off nodes, it writes their rows first.
(m) It deletes a group without members. A new member writes the group's row.
(n) A write that ends a live reservation writes its node, too. An adoption,
    which may change its project, depends neither on pools nor on notices.
(o) It writes the nodes of cordons before it reads this. Nothing depends on
    which project has the node of another notice.
(p) It counts what a project has. All writes that such a limit can refuse
    write the project's row before they count.
(r) A write that takes a node from a reservation also writes the row of the
    reservation. A hold of the node fails on a unique key of that row.
(w) It reads the row that it has just written.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import datetime
import functools
from typing import Any
from typing import TypeVar

from oslo_db import exception as db_exc
from oslo_log import log
import sqlalchemy as sa

from ironic_reservations import conf
from ironic_reservations import events
from ironic_reservations import exception
from ironic_reservations import metrics
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import expressions
from ironic_reservations.db import functions
from ironic_reservations.db import history_rows
from ironic_reservations.db import host_rows
from ironic_reservations.db import node_rows
from ironic_reservations.db import project_rows
from ironic_reservations.db import reservation_rows
from ironic_reservations.db import row_locks
from ironic_reservations.fleet import counts

LOG = log.getLogger(__name__)

#: Number of rows that one transaction of a sweep deletes.
DELETED_AT_ONCE = 1000

Choice = TypeVar('Choice')
Result = TypeVar('Result')


class ConcurrentChange(Exception):
    """A concurrent request has changed what was read: read it again."""


class NodeLost(Exception):
    """A concurrent request has taken or locked the node: try the next one."""


class Run:
    """A request from its first attempt to its result.

    Deadlocks and lost connections end an attempt, but not the run.

    :ivar actor: the compute host that sends the request.
    :ivar tries: number of attempts that have ended without a result.
    :ivar duplicates: number of attempts that a duplicate key has ended.
    :ivar unsure: whether the response to a COMMIT was lost, so that the
        changes of this request may be committed already.
    """

    def __init__(self, actor: values.Actor) -> None:
        self.actor = actor
        self.tries = self.duplicates = 0
        self.unsure = False


def run_request(attempt: Callable[[Run], Result],
                actor: values.Actor = values.NOBODY) -> Result:
    """Call a function until it returns, within the deadline of the request.

    :param attempt: function that reads again each time it is called. It
        raises ConcurrentChange if a concurrent request has changed what it
        has read.
    :returns: what the attempt returns.
    :raises: PreconditionFailed if the actor does not hold the host's lease;
        what the attempt raises; DeadlineExceeded; OutcomeUnknown if the actor
        has lost the lease after the response to a COMMIT was lost.
    """
    run = Run(actor)

    @engine.retry
    def repeat() -> Result:
        if not run.unsure:
            _check_holder(actor)
        while True:
            try:
                return attempt(run)
            except ConcurrentChange:
                engine.check_deadline()
            except exception.PreconditionFailed as error:
                if run.unsure:
                    # A 412 would say that nothing was changed.
                    raise exception.OutcomeUnknown() from error
                raise
            finally:
                run.tries += 1

    return repeat()


def find_or_make(find: Callable[[Run], Result | None],
                 make: Callable[[Run], Result],
                 actor: values.Actor = values.NOBODY) -> tuple[Result, bool]:
    """Find the result of an equal request, or make it; see ``run_request``.

    :param find: returns None if there is none.
    :returns: the result, and whether this call has made it.
    """
    def attempt(run: Run) -> tuple[Result, bool]:
        result = find(run)
        if result is not None:
            return result, False
        try:
            return make(run), True
        except (exception.NotFound, exception.Conflict,
                exception.NoMatchingNode, exception.QuotaExceeded):
            # An equal request may have got the nodes since the first look.
            result = find(run)
            if result is None:
                raise
            return result, False

    return run_request(attempt, actor)


def write_first(choices: Iterable[Choice], write: Callable[[Choice], Result]
                ) -> Result:
    """Write the first choice whose nodes no concurrent request takes.

    :param write: raises NodeLost if it has lost one of them.
    :returns: its result.
    :raises: ConcurrentChange if no choice is left.
    """
    for choice in choices:
        try:
            return write(choice)
        except NodeLost:
            engine.check_deadline()
    raise ConcurrentChange()


class Transaction:
    """A transaction that writes: see ``begin``.

    :ivar events: to emit after the COMMIT.
    """

    def __init__(self, connection: sa.Connection, actor: values.Actor
                 ) -> None:
        self.connection = connection
        self.events: list[events.Event] = []
        self._actor, self._passed_fence = actor, False

    def execute(self, statement: sa.Executable, parameters: Any = None
                ) -> sa.CursorResult[Any]:
        """Run a statement."""
        return self.connection.execute(statement, parameters)

    @functools.cached_property
    def now(self) -> datetime.datetime:
        """The time of the database, the same for the whole transaction."""
        now: datetime.datetime = self.execute(functions.NOW).scalar_one()
        return now

    def insert(self, statement: sa.Insert, row: dict[str, Any]) -> int:
        """Insert a row, and return its id."""
        row_id: int
        [row_id] = self.execute(statement, row).inserted_primary_key or [0]
        return row_id

    def write_one(self, statement: sa.Executable, parameters: Any = None,
                  error: type[Exception] = ConcurrentChange
                  ) -> sa.CursorResult[Any]:
        """Run a statement that must change a row.

        :param error: class of the exception to raise if it changes none,
            because a concurrent request was faster.
        """
        result = self.execute(statement, parameters)
        if not result.rowcount:
            metrics.count_conflict()
            LOG.debug('Conflict: %s', error.__doc__)
            raise error()
        return result

    def write_node(self, statement: sa.Executable, parameters: dict[str, Any],
                   waits: bool = False) -> sa.CursorResult[Any]:
        """Run a statement that must change a node.

        It does not wait for a locked node if this request has lost one, or
        if this process has lost this one a short time ago: see ``row_locks``.

        :param parameters: include the ``node_id``.
        :param waits: whether to wait until the deadline, in further attempts.
        :raises: NodeLost if it changes no row, or times out.
        """
        if waits:
            return self.write_one(statement, parameters, NodeLost)
        node_id = parameters['node_id']
        try:
            if engine.get_lost_nodes() or row_locks.is_avoided(node_id):
                row_locks.lock_at_once(self.connection, node_id)
            return self.write_one(statement, parameters, NodeLost)
        except (db_exc.DBError, sa.exc.OperationalError) as error:
            if not row_locks.is_timeout(error):
                raise
            metrics.count_conflict()
            row_locks.record(node_id)
            raise NodeLost() from error

    def read_reservation(self, condition: sa.ColumnElement[bool]
                         ) -> values.Reservation:
        """Return a reservation as it is in the transaction.

        Write nothing after it, because the fence is the last write.

        :param condition: true for at most one reservation.
        :raises: ConcurrentChange if there is none that counts.
        """
        self.check_fence()
        query = reservation_rows.select_live(names=reservation_rows.VIEW)
        for row in self.execute(query.where(condition)):
            return values.Reservation(**row._mapping)
        raise ConcurrentChange()

    def emit(self, *new: events.Event) -> None:
        """Emit events after the transaction is committed."""
        self.events += new

    def record_end(self, reservations: Sequence[values.Reservation],
                   ended_by: str) -> None:
        """Copy rows that are about to be deleted to the history.

        :param reservations: all of one group, or of none.
        :param ended_by: one of ``constants.ENDS``.
        """
        if conf.CONF.reservations.history:
            self.execute(history_rows.copy_rows(reservations, ended_by))

    def touch_nodes(self, nodes: Iterable[tuple[int, str]]) -> None:
        """Make concurrent holds of nodes conflict with this transaction.

        A write that newly keeps requests off nodes calls it first. One of the
        two then waits for the other or starts over, on every member of a
        cluster; a hold that comes second finds what keeps it off.

        :param nodes: ids and UUIDs. A node that was deleted is left out.
        """
        for node_id, uuid in sorted(nodes):
            # Each statement may wait for a lock.
            engine.check_deadline()
            self.execute(node_rows.TOUCH_NODE,
                         {'node_id': node_id, 'read_uuid': uuid})

    def write_project(self, project_id: str | None) -> None:
        """Write the row of a project, so that its transactions wait.

        The first one inserts it, and fails if another does so first.
        """
        project = {'project': project_id}
        if not self.execute(project_rows.WRITE_PROJECT, project).rowcount:
            self.execute(project_rows.INSERT_PROJECT, project)

    def check_fence(self) -> None:
        """Check that the actor still holds the host's lease.

        Writes the lease, so that of this transaction and one that takes the
        lease over, one waits for the other or is aborted, also if they run on
        two members of a Galera cluster. It is the last write before the
        COMMIT, because all transactions of the host wait for the lease's row,
        and because a transaction that waits for nothing after it cannot cause
        a deadlock.

        :raises: PreconditionFailed.
        """
        if self._actor.holder is None or self._passed_fence:
            return
        if not self.execute(host_rows.FENCE,
                            host_rows.bind_holder(*self._actor)).rowcount:
            raise make_lease_error(self._actor)
        self._passed_fence = True


@contextlib.contextmanager
def begin(run: Run) -> Iterator[Transaction]:
    """Begin a transaction that writes.

    It ends with the fence, and its events are emitted after the COMMIT. An
    exception rolls it back.
    """
    committing = False
    try:
        with engine.transaction() as connection:
            transaction = Transaction(connection, run.actor)
            yield transaction
            transaction.check_fence()
            committing = True
    except db_exc.DBConnectionError:
        if committing:
            run.unsure = True
            _record_pools(transaction)
            LOG.warning(
                'The response to a COMMIT was lost; retrying, which finds out '
                'what was committed for %s', ', '.join(dict.fromkeys(
                    event.subject for event in transaction.events)))
        raise
    _record_pools(transaction)
    for event in transaction.events:
        if isinstance(event, events.OfReservation) and event.kind in (
                events.RELEASED, events.EXPIRED):
            counts.record_release(event.reservation.node_id)
        event.emit()


def find_time(name: str, time: values.Time | None, now: datetime.datetime
              ) -> datetime.datetime | None:
    """Return a time of a request in UTC.

    :param name: its key in the request.
    :param now: see ``Transaction.now``.
    :raises: InvalidInput if no date can hold it.
    """
    if not isinstance(time, datetime.timedelta):
        return time
    try:
        return now + time
    except OverflowError:
        raise exception.InvalidInput(name, 'is out of range')


def delete_old(time: sa.Column[Any], days: int) -> int:
    """Delete the rows whose time is some days ago; return their number.

    A transaction deletes ``DELETED_AT_ONCE`` of them.
    """
    def attempt(run: Run) -> int:
        ids = [row.id for row in engine.fetch_rows(
            expressions.select_old(time, days, DELETED_AT_ONCE))]
        if ids:
            with begin(run) as tx:
                tx.execute(expressions.delete_ids(time, ids))
        return len(ids)

    total = 0
    while number := run_request(attempt):
        total += number
    return total


def _record_pools(tx: Transaction) -> None:
    """Make the next request count the fleet if nodes have joined or left."""
    if any(isinstance(event, events.OfPool)
           and (event.arrivals or event.departures) for event in tx.events):
        counts.record_pools()


def read_reservations(query: sa.Select[Any]) -> list[values.Reservation]:
    """Run a query of columns of ``reservation_rows.VIEW``."""
    return [values.Reservation(**row._mapping)
            for row in engine.fetch_rows(query)]


def _check_holder(actor: values.Actor) -> None:
    """Check at the start of a request that the actor holds the host's lease.

    The request may end before it reaches the fence, and a Galera member waits
    for the writes of other members when it reads, not when it updates
    (``mysql_wsrep_sync_wait = 1``).

    :raises: PreconditionFailed.
    """
    if actor.holder is not None and not engine.fetch_rows(
            host_rows.SELECT_HOST_LEASE, host_rows.bind_holder(*actor)):
        raise make_lease_error(actor)


def make_lease_error(actor: values.Actor) -> exception.PreconditionFailed:
    """Return the error for an actor that does not hold the host's lease."""
    return exception.PreconditionFailed(
        f'Process {actor.holder} does not have the lease of host '
        f'{actor.host}, or the lease has expired.')
