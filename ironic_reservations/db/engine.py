# SPDX-License-Identifier: Apache-2.0
"""The connection to Ironic's database."""

import contextlib
import functools
import threading
import time

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

_lock = threading.Lock()
_engine = None


class _ThreadState(threading.local):
    """What a thread has while it is in ``retry``."""

    connection = None
    #: On time.monotonic(); None outside of a run.
    deadline = None


_thread = _ThreadState()

#: How often a request tries again to reach the database, within a third of a
#: second: while that is away, nobody is to wait for a worker in vain.
_RECONNECTS = 5

#: Seconds for which a statement waits for a row that another transaction has
#: locked.
_LOCK_WAIT = 3

#: Seconds after which a thread that waits for a connection looks at the time.
_POOL_WAIT = 0.2


def retry(function):
    """Run a function again when the database aborted it.

    It is run again after a deadlock until the request's deadline, and a few
    times after a lost connection. The decorator goes *outside* of the
    transaction. The function that it wraps must bear being run twice, also
    when the COMMIT of the first run went through unnoticed.

    A run uses one connection for all that it does, and has it before it takes
    any lock of the process, so that a thread with such a lock never waits for
    the connection of another thread that waits for the lock. A wrapped
    function that another one calls is part of the outer run.

    :raises: what the last run raised.
    """
    def run(*args, **kwargs):
        with _acquire_connection() as _thread.connection:
            try:
                return function(*args, **kwargs)
            finally:
                _thread.connection = None

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if _thread.connection is not None:
            return function(*args, **kwargs)
        attempt = db_api.wrap_db_retry(
            max_retries=1000, retry_interval=0.01, inc_retry_interval=True,
            max_retry_interval=0.2, exception_checker=_RetryPolicy())(run)
        _thread.deadline = time.monotonic() + conf.CONF.reservations.deadline
        try:
            return attempt(*args, **kwargs)
        except (db_exc.DBNonExistentTable, sa.exc.ProgrammingError):
            # Say what to do about it.
            tables.check_tables(get_engine())
            raise
        finally:
            _thread.deadline = None
    return wrapper


class _RetryPolicy:
    """Says of each error of one request whether it may be run again."""

    def __init__(self):
        self._lost = 0

    def __call__(self, error):
        if isinstance(error, db_exc.DBConnectionError):
            self._lost += 1
            # Always try again once: a pooled connection may have died while
            # idle, and however long it takes to find that out, a new one may
            # do. One that is refused its writes is told no other thing soon.
            return self._lost == 1 or (
                self._lost <= _RECONNECTS and not _is_past_deadline()
                and _find_error_number(
                    error.inner_exception) not in _READ_ONLY)
        if not _is_conflict(error):
            return False
        metrics.count_conflict()
        return not _is_past_deadline()


def _acquire_connection():
    """A connection; where all are taken, the first that is given back.

    It is waited for until the deadline, not for as long as SQLAlchemy's pool
    waits: what has lost its connection, or has waited for a lock, has less
    time left than what has just come.

    :raises: sqlalchemy.exc.TimeoutError.
    """
    while True:
        try:
            return get_engine().connect()
        except sa.exc.TimeoutError:
            if _is_past_deadline():
                raise


def _is_conflict(error):
    """Whether a transaction was aborted because of another one."""
    return (isinstance(error, db_exc.DBDeadlock)
            or _is_snapshot_conflict(error)
            # SQLite, when another process writes for longer than the busy
            # timeout.
            or isinstance(error, (db_exc.DBError, sa.exc.OperationalError))
            and 'database is locked' in str(error))


def _is_snapshot_conflict(error):
    """Whether a row was changed since a transaction began to read.

    MariaDB says so with innodb_snapshot_isolation, its default from 11.8 on:
    "Record has changed since last read". Newer versions of oslo.db call it a
    deadlock.
    """
    return _find_error_number(error) == 1020


def _find_error_number(error):
    """The database's own number of an error; None where it has none."""
    arguments = getattr(getattr(error, 'orig', None), 'args', ())
    return arguments[0] if arguments else None


def _find_seconds_left():
    """Seconds until the deadline of the run; None where there is no run."""
    if _thread.deadline is None:
        return None
    return max(0, _thread.deadline - time.monotonic())


def _is_past_deadline():
    return _find_seconds_left() == 0


@contextlib.contextmanager
def acquire_lock(lock):
    """Hold a lock of the process, and wait for it until the deadline only.

    The thread that holds it may be waiting for the database. Where that does
    not answer, the other threads do not wait as long as this one does.

    :param lock: threading.Lock.
    :raises: DeadlineExceeded.
    """
    left = _find_seconds_left()
    if not lock.acquire(timeout=-1 if left is None else left):
        raise exception.DeadlineExceeded(
            'The database does not answer another request, for whose result '
            'this one waits; try again.')
    try:
        yield
    finally:
        lock.release()


def check_deadline(why='What the request needs is being taken or changed by '
                       'others at the moment; try again.'):
    """Go on only while the request has time left.

    Whatever a request does again, because others were faster or have changed
    what it had read, it asks here before.

    :raises: DeadlineExceeded.
    """
    if _is_past_deadline():
        raise exception.DeadlineExceeded(why)


def _has_lost_first_connection(error):
    """Whether the connection was lost on which the schema is checked.

    SQLAlchemy asks an engine's first connection what server it is, before it
    belongs to the pool. If it is lost there, it cannot be invalidated, and
    SQLAlchemy raises an error of its own. Where it reads what a table has, it
    does not ask oslo.db to make an error of its own.
    """
    return (isinstance(error, NotImplementedError
                       | sa.exc.ResourceClosedError)
            or getattr(error, 'connection_invalidated', False))


def get_engine():
    """The engine on ``[database] connection``, its schema checked once.

    Nothing connects before the first call, so that a server may fork after
    it has loaded the application.

    :raises: as ``checked``; DeadlineExceeded when another thread is still
        connecting.
    """
    global _engine
    if _engine is None:
        with acquire_lock(_lock):
            if _engine is None:
                _engine = create_checked_engine()
    return _engine


def create_checked_engine():
    """A new engine on ``[database] connection``, its schema checked.

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


def fetch_rows(query, values=None):
    """All that a query finds, in the data as they are now."""
    connection = _use_connection()
    found = connection.execute(query, values).all()
    # A transaction that writes begins with its write, and SQLite's writers
    # wait for every reader that has not ended.
    connection.rollback()
    connection.info[_ENDED] = True
    return found


def fetch_current_rows(query, values=None):
    """The same, and what other members of a cluster have committed."""
    with cluster.wait_for_commits(_use_connection()):
        return fetch_rows(query, values)


@contextlib.contextmanager
def transaction():
    """A transaction that writes; its connection."""
    connection = _use_connection()
    with connection.begin():
        yield connection
    connection.info[_ENDED] = True


def _use_connection():
    """The connection of the run, about to be used."""
    _thread.connection.info.pop(_ENDED, None)
    return _thread.connection


def create_engine():
    """An engine on ``[database] connection``, its schema unchecked."""
    if not conf.CONF.database.connection:
        raise exception.DatabaseNotReady(
            '[database] connection is not set.')
    url = sa.make_url(conf.CONF.database.connection)
    # MariaDB's own name for the same driver, by which neither oslo.db nor
    # what stands here for "mysql" would know it.
    url = url.set(drivername=url.drivername.replace('mariadb', 'mysql', 1))
    if url.get_backend_name() == 'mysql':
        # Ironic's documented URL says utf8, which has no room for all of
        # Unicode; what we store and compare may be any of it.
        url = url.update_query_dict({'charset': 'utf8mb4'})
    url = url.update_query_dict({'plugin': _PLUGIN}, append=True)
    facade = enginefacade.transaction_context()
    # No waiting for a database that is away: the caller is told.
    facade.configure(connection=url.render_as_string(hide_password=False),
                     max_retries=0, thread_checkin=False)
    engine = facade.writer.get_engine()
    sa.event.listen(engine, 'reset', _reset_connection)
    if url.get_backend_name() == 'mysql':
        sa.event.listen(engine, 'connect', _set_up_session)
    return engine


class _Pool(sa.engine.CreateEnginePlugin):
    """A pool without round trips of its own, two for each request.

    It gives up its connections to a server that has become read-only. What
    meets a lost connection is run again (see retry), and only what has
    not ended is rolled back (see _reset).
    """

    def __init__(self, url, kwargs):
        super().__init__(url, kwargs)
        kwargs |= {'pool_pre_ping': False, 'pool_reset_on_return': None}
        if url.get_backend_name() == 'mysql':
            # See _connect. (Those to SQLite are not counted.)
            kwargs['pool_timeout'] = _POOL_WAIT

    def engine_created(self, engine):
        # Here it is asked before oslo.db, which ends the asking when it
        # raises an error that it does not know.
        sa.event.listen(engine, 'handle_error', _leave_read_only)

    def update_url(self, url):
        return url


_PLUGIN = 'ironic_reservations'
dialects.plugins.register(_PLUGIN, __name__, '_Pool')


# A connection's info has this key while its last transaction has ended, and
# without an error.
_ENDED = 'ironic_reservations.ended'


def _reset_connection(connection, record, state):
    """Let nothing stay open on a connection that goes back to the pool."""
    if not record.info.pop(_ENDED, False):
        connection.rollback()


# ER_OPTION_PREVENTS_STATEMENT, with --read-only or --super-read-only. With
# --innodb-read-only ER_OPEN_AS_READONLY of MariaDB, ER_CANT_LOCK of MySQL, and
# ER_READ_ONLY_MODE, of which both make a warning beside that error; clients of
# Amazon Aurora heed it as an error, too.
_READ_ONLY = {1290, 1036, 1015, 1836}


def _leave_read_only(context):
    """Connect again where a server does not take writes any more.

    After a failover the address of the primary leads to another server, but
    the pool's connections to the former one stay open and would be refused
    for ever. Where the server is the same, it is as one that is away.
    """
    if _find_error_number(context.sqlalchemy_exception) in _READ_ONLY:
        context.is_disconnect = True


def _set_up_session(connection, record):
    with connection.cursor() as cursor:
        # MySQL cuts a list of traits at 1,024 bytes by default, and waits 50
        # seconds for a row that another transaction has locked.
        cursor.execute('SET SESSION group_concat_max_len = 1048576, '
                       f'innodb_lock_wait_timeout = {_LOCK_WAIT}')
