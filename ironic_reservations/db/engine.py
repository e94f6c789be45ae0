# SPDX-License-Identifier: Apache-2.0
"""Connects to Ironic's database, and retries after conflicts."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import functools
import threading
import time
from typing import Any
from typing import ParamSpec
from typing import TypeVar

from oslo_db import api as db_api
from oslo_db import exception as db_exc
from oslo_db.sqlalchemy import enginefacade
import sqlalchemy as sa
from sqlalchemy import dialects

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations import metrics
from ironic_reservations.db import cluster
from ironic_reservations.db import tables

_P = ParamSpec('_P')
_R = TypeVar('_R')

_lock = threading.Lock()
_engine: sa.Engine | None = None


class _ThreadState(threading.local):
    """The state of a thread while it is in ``retry``."""

    connection: sa.Connection | None = None
    #: time.monotonic(); None outside of ``retry``.
    deadline: float | None = None
    #: See ``row_locks``.
    lost_nodes: frozenset[int] = frozenset()
    #: Whether statements wait for a row.
    waits: bool = True


_thread = _ThreadState()

#: Number of times that a request tries to reconnect to the database, within a
#: third of a second. Keep this short: waiting clients occupy workers.
_RECONNECTS = 5

#: Seconds for which a statement waits for a row that another transaction has
#: locked, and for a table, which a backup or a migration may have locked.
_LOCK_WAIT, _TABLE_WAIT = 3, 5

#: Seconds after which MariaDB ends a transaction without statements, such as
#: that of a process that is stopped.
_IDLE = 15

#: Isolation of transactions on MariaDB and MySQL.
ISOLATION = 'READ COMMITTED'

#: Seconds after which a thread waiting for a connection checks its deadline.
_POOL_WAIT = 0.2


def retry(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Retry a function when the database aborts it.

    It is retried after a deadlock until the request's deadline, and a few
    times after a lost connection. Apply the decorator *outside* of the
    transaction. The function must be safe to run twice, even if the first run
    has committed and the response to the COMMIT was lost.

    A run uses one connection, and acquires it before any lock of the process.
    Otherwise it could wait for the connection of a thread that waits for its
    lock. Calls may nest: an inner call is part of the outer run.

    :raises: the exception of the last run.
    """
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with _acquire_connection() as _thread.connection:
            try:
                return function(*args, **kwargs)
            finally:
                _thread.connection = None

    @functools.wraps(function)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if _thread.connection is not None:
            return function(*args, **kwargs)
        attempt: Callable[_P, _R] = db_api.wrap_db_retry(
            max_retries=1000, retry_interval=0.01, inc_retry_interval=True,
            max_retry_interval=0.2, exception_checker=_RetryPolicy())(run)
        _thread.deadline = time.monotonic() + conf.CONF.reservations.deadline
        _thread.lost_nodes = frozenset()
        try:
            return attempt(*args, **kwargs)
        except (db_exc.DBNonExistentTable, sa.exc.ProgrammingError):
            # Explain the remedy.
            tables.check_tables(get_engine())
            raise
        finally:
            _thread.deadline = None
    return wrapper


class _RetryPolicy:
    """Decides whether one request is retried after an error."""

    def __init__(self) -> None:
        self._disconnects = 0

    def __call__(self, error: Exception) -> bool:
        if isinstance(error, db_exc.DBConnectionError):
            self._disconnects += 1
            # Always retry once: a pooled connection may have died while idle,
            # and noticing that may have taken until the deadline. A server
            # that has become read-only stays so for a while.
            return self._disconnects == 1 or (
                self._disconnects <= _RECONNECTS
                and not _is_past_deadline()
                and get_error_number(error) not in _READ_ONLY)
        if not is_conflict(error):
            return False
        metrics.count_conflict()
        return not _is_past_deadline()


def _acquire_connection() -> sa.Connection:
    """Return a connection. If all are in use, wait for one until the deadline.

    A request that has lost its connection, or has waited for a lock, has less
    time left than a new one, so SQLAlchemy's fixed timeout is not suitable.

    :raises: sqlalchemy.exc.TimeoutError.
    """
    while True:
        try:
            return get_engine().connect()
        except sa.exc.TimeoutError:
            if _is_past_deadline():
                raise


# Errors of MariaDB because another transaction has changed a row: "Record has
# changed since last read", at REPEATABLE READ, which a proxy may enforce, with
# innodb_snapshot_isolation, its default since 11.8 (newer versions of oslo.db
# convert it to a deadlock); and "Can't find record", from a SELECT that groups
# or sorts, and then reads by its position a row that has been removed.
_CHANGED_ROWS = {1020, 1032}


def is_conflict(error: Exception) -> bool:
    """Return whether a transaction was aborted because of a concurrent one."""
    return (isinstance(error, db_exc.DBDeadlock)
            or get_error_number(error) in _CHANGED_ROWS
            # SQLite, when another process writes for longer than the busy
            # timeout.
            or isinstance(error, (db_exc.DBError, sa.exc.OperationalError))
            and 'database is locked' in str(error))


def get_error_number(error: BaseException | None) -> object:
    """Return the database's number of an error, or None."""
    error = getattr(error, 'inner_exception', error)
    arguments = getattr(getattr(error, 'orig', None), 'args', ())
    return arguments[0] if arguments else None


def get_lost_nodes() -> frozenset[int]:
    """Return the ids of the nodes that this run no longer waits for."""
    return _thread.lost_nodes


def add_lost_node(node_id: int) -> None:
    """See ``row_locks``."""
    _thread.lost_nodes |= {node_id}


@contextlib.contextmanager
def without_waiting() -> Iterator[None]:
    """Let statements fail at once if a row is locked."""
    _thread.waits = False
    try:
        yield
    finally:
        _thread.waits = True


def _get_seconds_left() -> float | None:
    """Return the seconds until the deadline; None outside of ``retry``."""
    if _thread.deadline is None:
        return None
    return max(0, _thread.deadline - time.monotonic())


def _is_past_deadline() -> bool:
    return _get_seconds_left() == 0


@contextlib.contextmanager
def acquire_lock(lock: threading.Lock) -> Iterator[None]:
    """Hold a lock of the process. Wait for it until the deadline only.

    The thread that holds it may be waiting for a database that does not
    respond, for longer than the other threads may wait.

    :raises: DeadlineExceeded.
    """
    seconds = _get_seconds_left()
    if not lock.acquire(timeout=-1 if seconds is None else seconds):
        raise exception.DeadlineExceeded(
            'Timed out waiting for a concurrent database query; try again.')
    try:
        yield
    finally:
        lock.release()


def check_deadline(
        message: str = 'Conflicts with concurrent requests; try again.'
) -> None:
    """Raise an exception if the request has no time left.

    Call it before each retry after a conflict with a concurrent request.

    :raises: DeadlineExceeded.
    """
    if _is_past_deadline():
        raise exception.DeadlineExceeded(message)


def _has_lost_first_connection(error: BaseException) -> bool:
    """Return whether the connection was lost while the schema was checked.

    SQLAlchemy queries an engine's first connection for the server's version
    before the pool owns it. If it is lost then, it cannot be invalidated, and
    SQLAlchemy raises another exception. Exceptions from reading the schema
    are not converted by oslo.db.
    """
    return (isinstance(error, NotImplementedError
                       | sa.exc.ResourceClosedError)
            or getattr(error, 'connection_invalidated', False))


def get_engine() -> sa.Engine:
    """Return the engine of ``[database] connection``, with a checked schema.

    Nothing connects before the first call, so that a server can fork after it
    has loaded the application.

    :raises: as ``create_checked_engine``; DeadlineExceeded when another thread
        is still connecting.
    """
    global _engine
    if _engine is None:
        with acquire_lock(_lock):
            if _engine is None:
                _engine = create_checked_engine()
    return _engine


def create_checked_engine() -> sa.Engine:
    """Return a new engine of ``[database] connection``. Check its schema.

    :raises: DatabaseNotReady when a table or column is missing.
    """
    engine = create_engine()
    try:
        tables.check_tables(engine)
    except BaseException as error:
        engine.dispose()
        if _has_lost_first_connection(error):
            raise db_exc.DBConnectionError(error) from error
        raise
    return engine


def fetch_rows(query: sa.Executable, values: Mapping[str, Any] | None = None
               ) -> Sequence[sa.Row[Any]]:
    """Return all rows of a query, as they are now."""
    connection = _use_connection()
    rows = connection.execute(query, values).all()
    # A transaction that writes must begin with its write, and SQLite's writers
    # wait for every open read transaction.
    connection.rollback()
    connection.info[_ENDED] = True
    return rows


def fetch_current_rows(query: sa.Executable,
                       values: Mapping[str, Any] | None = None
                       ) -> Sequence[sa.Row[Any]]:
    """Like ``fetch_rows``, but include commits of other cluster members."""
    with cluster.wait_for_commits(_use_connection()):
        return fetch_rows(query, values)


@contextlib.contextmanager
def transaction() -> Iterator[sa.Connection]:
    """Open a transaction that writes, and yield its connection."""
    connection = _use_connection()
    with connection.begin():
        yield connection
    connection.info[_ENDED] = True


def _use_connection() -> sa.Connection:
    """Return the connection of this run, and mark it as used."""
    connection = _thread.connection
    if connection is None:
        raise RuntimeError('Statements must run inside of engine.retry')
    connection.info.pop(_ENDED, None)
    return connection


def create_engine(waits_for_tables: bool = False) -> sa.Engine:
    """Return a new engine of ``[database] connection``, unchecked.

    :param waits_for_tables: whether statements wait for locked tables as long
        as the server lets them.
    """
    if not conf.CONF.database.connection:
        raise exception.DatabaseNotReady(
            '[database] connection is not set.')
    url = sa.make_url(conf.CONF.database.connection)
    # MariaDB's name of the same driver, which neither oslo.db nor our checks
    # for "mysql" recognize.
    url = url.set(drivername=url.drivername.replace('mariadb', 'mysql', 1))
    if url.get_backend_name() == 'mysql':
        # Ironic's documented URL says utf8, which cannot represent all of
        # Unicode. We store and compare any text.
        url = url.update_query_dict({'charset': 'utf8mb4'})
    url = url.update_query_dict({'plugin': _PLUGIN}, append=True)
    facade = enginefacade.transaction_context()
    # Do not wait for an unreachable database: report it to the client.
    facade.configure(connection=url.render_as_string(hide_password=False),
                     max_retries=0, thread_checkin=False)
    engine: sa.Engine = facade.writer.get_engine()
    sa.event.listen(engine, 'reset', _reset_connection)
    if url.get_backend_name() == 'mysql':
        sa.event.listen(engine, 'connect', functools.partial(
            _set_up_session, waits_for_tables))
        sa.event.listen(engine, 'before_cursor_execute', _limit_wait)
    return engine


class _Pool(sa.engine.CreateEnginePlugin):
    """A pool that saves two round trips for each request.

    It drops connections to a server that has become read-only. Requests that
    use a lost connection are retried (see ``retry``), and only transactions
    that have not ended are rolled back (see ``_reset_connection``).
    """

    def __init__(self, url: sa.URL, kwargs: dict[str, Any]) -> None:
        super().__init__(url, kwargs)
        kwargs |= {'pool_pre_ping': False, 'pool_reset_on_return': None}
        if url.get_backend_name() == 'mysql':
            # See _acquire_connection. (SQLite's pool has no limit.)
            kwargs['pool_timeout'] = _POOL_WAIT
            # Otherwise InnoDB locks the gaps that the condition of a guarded
            # update reads, such as that for the ports of all later nodes.
            kwargs['isolation_level'] = ISOLATION

    def engine_created(self, engine: sa.Engine) -> None:
        # This listener must precede oslo.db's, which raises an exception for
        # errors that it does not know, and so skips later listeners.
        sa.event.listen(engine, 'handle_error', _drop_read_only)

    def update_url(self, url: sa.URL) -> sa.URL:
        return url


_PLUGIN = 'ironic_reservations'
dialects.plugins.register(_PLUGIN, __name__, '_Pool')


# Key in a connection's info, present while its last transaction has ended
# without an error.
_ENDED = 'ironic_reservations.ended'


def _reset_connection(connection: Any, record: Any, state: Any) -> None:
    """Roll back an open transaction when a connection returns to the pool."""
    if not record.info.pop(_ENDED, False):
        connection.rollback()


# ER_OPTION_PREVENTS_STATEMENT, with --read-only or --super-read-only. With
# --innodb-read-only, MariaDB's ER_OPEN_AS_READONLY and MySQL's ER_CANT_LOCK,
# and ER_READ_ONLY_MODE, which both add as a warning, and which clients of
# Amazon Aurora treat as an error.
_READ_ONLY = {1290, 1036, 1015, 1836}


def _drop_read_only(context: sa.engine.ExceptionContext) -> None:
    """Reconnect if a server no longer accepts writes.

    After a failover, the address of the primary leads to another server, but
    the pool's connections to the former one stay open and would fail forever.
    If it is still the same server, it is treated as unreachable.
    """
    if get_error_number(context.sqlalchemy_exception) in _READ_ONLY:
        context.is_disconnect = True


def get_session_variables() -> dict[str, int]:
    """Return the variables of MariaDB and MySQL that new sessions set.

    MySQL has no ``idle_transaction_timeout``.
    """
    # By default, MySQL truncates a list of traits, or of the ids of a page of
    # the count, at 1,024 bytes, and waits 50 seconds for a row that another
    # transaction has locked, and a year for a table.
    return {'group_concat_max_len': 2097152,
            'innodb_lock_wait_timeout': _LOCK_WAIT,
            'lock_wait_timeout': _TABLE_WAIT,
            'idle_transaction_timeout': _IDLE}


def _set_up_session(waits_for_tables: bool, connection: Any, record: Any
                    ) -> None:
    variables = get_session_variables()
    idle = variables.pop('idle_transaction_timeout')
    if waits_for_tables:
        del variables['lock_wait_timeout']
    with connection.cursor() as cursor:
        cursor.execute('SET SESSION ' + ', '.join(
            f'{name} = {value}' for name, value in variables.items()))
        # MySQL does not have it, and a proxy may refuse it.
        with contextlib.suppress(connection.Error):
            cursor.execute(f'SET SESSION idle_transaction_timeout = {idle}')


# Key in a connection's info: its innodb_lock_wait_timeout, if it is another
# than that of new connections.
_WAIT = 'ironic_reservations.lock_wait'


def _limit_wait(connection: sa.Connection, cursor: Any, *args: Any) -> None:
    """Let no statement wait for a row beyond the deadline."""
    seconds = _get_seconds_left()
    wait = _LOCK_WAIT if seconds is None else min(_LOCK_WAIT, int(seconds))
    if not _thread.waits:
        wait = 0
    if not wait and not getattr(connection.dialect, 'is_mariadb', False):
        # MySQL waits for at least a second.
        wait = 1
    if connection.info.get(_WAIT, _LOCK_WAIT) != wait:
        # Stored first, because this function is also called for the statement.
        # SQLAlchemy handles errors of a connection's methods only.
        connection.info[_WAIT] = wait
        connection.exec_driver_sql(
            f'SET SESSION innodb_lock_wait_timeout = {wait}')
