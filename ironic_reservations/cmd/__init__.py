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
    """Decorate a command's ``main``.

    When the command cannot do its work, it ends with exit status 2 and one
    line on standard error instead of a traceback.
    """
    @functools.wraps(main)
    def wrapped():
        try:
            return main()
        except (exception.ReservationsError, alembic.util.CommandError,
                cfg.Error) as error:
            print(error, file=sys.stderr)
        except (db_exc.DBError, ImportError,
                sqlalchemy.exc.SQLAlchemyError) as error:
            print(f'The database cannot be used: {error}', file=sys.stderr)
        return 2
    return wrapped
