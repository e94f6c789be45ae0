# SPDX-License-Identifier: Apache-2.0
"""Commands for the hosts that run Ironic's API; all read ironic.conf."""

import functools
import sys

import alembic.util
from oslo_config import cfg
from oslo_db import exception as db_exc
import sqlalchemy.exc

from ironic_reservations import exception


def command(main):
    """Let a command end with one line and 2 when it cannot do its work."""
    @functools.wraps(main)
    def wrapped():
        try:
            return main()
        except (exception.ReservationsError, alembic.util.CommandError,
                cfg.Error) as error:
            print(error, file=sys.stderr)
        except (db_exc.DBError, sqlalchemy.exc.SQLAlchemyError) as error:
            print(f'The database cannot be used: {error}', file=sys.stderr)
        return 2
    return wrapped
