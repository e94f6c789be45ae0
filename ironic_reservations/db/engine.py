# SPDX-License-Identifier: Apache-2.0
"""The connection to Ironic's database."""

import threading

from oslo_db import api as db_api
from oslo_db.sqlalchemy import enginefacade
from oslo_log import log
import sqlalchemy as sa

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations.db import models

LOG = log.getLogger(__name__)

_lock = threading.Lock()
_engine = None

#: Runs a function again when the database aborted its transaction or lost
#: the connection, for about three seconds in all. It goes *outside* the
#: transaction; what it wraps must bear being run twice, also when the first
#: run's COMMIT went through unnoticed.
retry = db_api.wrap_db_retry(
    max_retries=20, retry_interval=0.01, inc_retry_interval=True,
    max_retry_interval=0.2, retry_on_deadlock=True, retry_on_disconnect=True,
    # SQLite, when another process writes for longer than the busy timeout.
    exception_checker=lambda exc: 'database is locked' in str(exc))


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


def connect():
    """An engine on ``[database] connection``, its schema unchecked."""
    url = sa.make_url(conf.CONF.database.connection)
    if url.get_backend_name() == 'mysql':
        # Ironic's documented URL says utf8, which has no room for all of
        # Unicode; what we store and compare may be any of it.
        url = url.update_query_dict({'charset': 'utf8mb4'})
    facade = enginefacade.transaction_context()
    # No waiting for a database that is away: the caller is told.
    facade.configure(connection=url.render_as_string(hide_password=False),
                     max_retries=0, thread_checkin=False)
    engine = facade.writer.get_engine()
    if url.get_backend_name() == 'mysql':
        sa.event.listen(engine, 'connect', _long_group_concat)
    return engine


def _long_group_concat(connection, record):
    # MySQL cuts a list of traits at 1,024 bytes by default.
    with connection.cursor() as cursor:
        cursor.execute('SET SESSION group_concat_max_len = 1048576')


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
