# SPDX-License-Identifier: Apache-2.0
"""The connection to Ironic's database."""

import contextlib
import functools
import threading
import time

from oslo_db import api as db_api
from oslo_db import exception as db_exc
from oslo_db.sqlalchemy import enginefacade
from oslo_log import log
import sqlalchemy as sa
from sqlalchemy import dialects

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations.db import models

LOG = log.getLogger(__name__)

_lock = threading.Lock()
_engine = None


class _Open(threading.local):
    """What a thread has open: a connection, and what will close it."""

    connection = scope = None


_open = _Open()

# The names of the indexes on Ironic's table of nodes, by engine.
_indexes = {}

#: Seconds after which a request does not try again.
_PATIENCE = 3

#: How often a request tries again to reach the database, within a third of a
#: second: while that is away, nobody is to wait for a worker in vain.
_RECONNECTS = 5


def retry(function):
    """Run a function again when the database aborted what it did.

    That is for a few seconds after a deadlock, and a few times after a lost
    connection. It goes *outside* of the transaction; what it wraps must bear
    being run twice, also when the first run's COMMIT went through unnoticed. A
    run does all that it does on one connection.
    """
    def run(*args, **kwargs):
        with _one_connection():
            return function(*args, **kwargs)

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        patient_until = time.monotonic() + _PATIENCE
        lost = 0

        def may_pass(error):
            nonlocal lost
            lost += isinstance(error, db_exc.DBConnectionError)
            if isinstance(error, db_exc.DBConnectionError) and lost == 1:
                # It was lost while it lay in the pool, and however long that
                # took to find out, a new one may do.
                return True
            return time.monotonic() < patient_until and (
                isinstance(error, db_exc.DBDeadlock)
                or isinstance(error, db_exc.DBConnectionError)
                and lost <= _RECONNECTS
                # SQLite, when another process writes for longer than the
                # busy timeout.
                or 'database is locked' in str(error))

        attempt = db_api.wrap_db_retry(
            max_retries=100, retry_interval=0.01, inc_retry_interval=True,
            max_retry_interval=0.2, exception_checker=may_pass)(run)
        try:
            return attempt(*args, **kwargs)
        except (db_exc.DBNonExistentTable, sa.exc.ProgrammingError):
            # Say what to do about it.
            check(get_engine())
            raise
    return wrapper


def get_engine():
    """The engine on ``[database] connection``, its schema checked once.

    Nothing connects before the first call, so that a server may fork after
    it has loaded the application.

    :raises: DatabaseNotReady when a table or column is missing.
    """
    global _engine
    if _engine is None:
        with _lock:
            if _engine is None:
                engine = connect()
                try:
                    check(engine)
                except BaseException:
                    engine.dispose()
                    raise
                _engine = engine
    return _engine


@contextlib.contextmanager
def _one_connection():
    """Let all that the thread does go over one connection, if it needs one."""
    if _open.scope is not None:
        yield
        return
    with contextlib.ExitStack() as _open.scope:
        try:
            yield
        finally:
            _open.connection = _open.scope = None


@contextlib.contextmanager
def connection():
    """The connection of the thread, or else one for this alone."""
    if _open.scope is None:
        with get_engine().connect() as opened:
            yield opened
        return
    if _open.connection is None:
        _open.connection = _open.scope.enter_context(get_engine().connect())
    _open.connection.info.pop(_ENDED, None)
    yield _open.connection


def rows(query, values=None):
    """All that a query finds, in the data as they are now."""
    with connection() as opened:
        found = opened.execute(query, values).all()
        # A transaction that writes begins with its write, and SQLite's
        # writers wait for every reader that has not ended.
        opened.rollback()
        opened.info[_ENDED] = True
    return found


@contextlib.contextmanager
def transaction():
    """A transaction that writes; its connection."""
    with connection() as opened:
        with opened.begin():
            yield opened
        opened.info[_ENDED] = True


def has_index(name):
    """Whether MySQL has an index of a name on Ironic's table of nodes."""
    engine = get_engine()
    if engine.dialect.name != 'mysql':
        return False
    if engine not in _indexes:
        # SQLAlchemy's inspection would want another connection, or leave this
        # one with its errors untranslated.
        _indexes[engine] = {row.name for row in rows(sa.text(
            'SELECT index_name AS name FROM information_schema.statistics '
            "WHERE table_schema = DATABASE() AND table_name = 'nodes'"))}
    return name in _indexes[engine]


def connect():
    """An engine on ``[database] connection``, its schema unchecked."""
    if not conf.CONF.database.connection:
        raise exception.DatabaseNotReady(
            '[database] connection is not set.')
    url = sa.make_url(conf.CONF.database.connection)
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
    sa.event.listen(engine, 'reset', _reset)
    if url.get_backend_name() == 'mysql':
        sa.event.listen(engine, 'connect', _set_up_session)
    return engine


class _Pool(sa.engine.CreateEnginePlugin):
    """A pool without round trips of its own, two for each request.

    What meets a lost connection is run again (see retry), and only what has
    not ended is rolled back (see _reset).
    """

    def __init__(self, url, kwargs):
        super().__init__(url, kwargs)
        kwargs |= {'pool_pre_ping': False, 'pool_reset_on_return': None}

    def update_url(self, url):
        return url


_PLUGIN = 'ironic_reservations'
dialects.plugins.register(_PLUGIN, __name__, '_Pool')


# Where a connection's last transaction has ended without an error.
_ENDED = 'ironic_reservations.ended'


def _reset(connection, record, state):
    """Let nothing stay open on a connection that goes back to the pool."""
    if not record.info.pop(_ENDED, False):
        connection.rollback()


def _set_up_session(connection, record):
    with connection.cursor() as cursor:
        # MySQL cuts a list of traits at 1,024 bytes by default, and waits 50
        # seconds for a row that another transaction has locked.
        cursor.execute('SET SESSION group_concat_max_len = 1048576, '
                       f'innodb_lock_wait_timeout = {_PATIENCE}')


def check(engine):
    """Check that the database has the columns that we stand on.

    :raises: DatabaseNotReady, after saying in the log what to do.
    """
    for problem in problems(engine):
        LOG.error('/v1/reservations cannot be served: %s', problem)
        raise exception.DatabaseNotReady(
            'The reservations service is not ready: its database schema is '
            'not up to date.')


def problems(engine):
    """What is missing in the database: sentences for an operator."""
    inspector = sa.inspect(engine)
    for table in (*models.ironic.sorted_tables, models.reservations):
        remedy = ('run "ironic-reservations-dbsync upgrade"'
                  if table is models.reservations else
                  'this is not the database of a supported Ironic, or '
                  '"ironic-dbsync upgrade" is due')
        if not inspector.has_table(table.name):
            yield f'table {table.name} is missing; {remedy}'
            continue
        present = {column['name']
                   for column in inspector.get_columns(table.name)}
        missing = [column.name for column in table.columns
                   if column.name not in present]
        if missing:
            yield (f'table {table.name} lacks {", ".join(missing)}; {remedy}')
