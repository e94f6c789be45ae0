# SPDX-License-Identifier: Apache-2.0
"""Commands for the hosts that run Ironic's API; all read ironic.conf.

* ``dbsync``: creates, upgrades and drops our tables.
* ``exporter``: exports the number of nodes and the workers' counters to
  Prometheus.
* ``manage``: expires, purges and audits reservations.
* ``status``: checks that an installation is ready.
"""

from collections.abc import Callable
import functools
import sys

import alembic.util
from oslo_config import cfg
from oslo_db import exception as db_exc
import sqlalchemy.exc

from ironic_reservations import exception


def describe_error(error: Exception) -> str:
    """Return an error of the database without its statement and parameters."""
    return str(error).partition('\n')[0]


def command(main: Callable[[], int | None]) -> Callable[[], int | None]:
    """Decorate the ``main`` of a command.

    If the command fails, it prints one line to standard error instead of a
    traceback, and its exit status is 2.
    """
    @functools.wraps(main)
    def run() -> int | None:
        try:
            return main()
        except (exception.ReservationsError, alembic.util.CommandError,
                cfg.Error) as error:
            print(error, file=sys.stderr)
        except (db_exc.DBError, ImportError,
                sqlalchemy.exc.SQLAlchemyError) as error:
            print(f'The database cannot be used: {describe_error(error)}',
                  file=sys.stderr)
        return 2
    return run
