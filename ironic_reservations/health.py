# SPDX-License-Identifier: Apache-2.0
"""Health check for oslo.middleware: whether a node can be held.

Ironic serves /healthcheck without authentication. With
``[healthcheck] backends = reservations`` it includes this check.
"""

from typing import Any

from oslo_log import log
from oslo_middleware.healthcheck import pluginbase

from ironic_reservations import conf
from ironic_reservations.db import engine
from ironic_reservations.db import reservation_rows

LOG = log.getLogger(__name__)


class Backend(pluginbase.HealthcheckBaseExtension):
    """Checks that the database accepts writes to ``reservations``."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # Ironic may create the check before it loads the plugin, or without
        # loading it.
        conf.register_opts()

    def healthcheck(self, server_port: int) -> pluginbase.HealthcheckResult:
        try:
            _write_nothing()
        except Exception as error:
            LOG.error('The table of reservations cannot be written to: %s',
                      error)
            return pluginbase.HealthcheckResult(
                available=False, reason='RESERVATIONS DATABASE UNAVAILABLE',
                details='The table of reservations cannot be written to.')
        return pluginbase.HealthcheckResult(
            available=True, reason='OK',
            details='The table of reservations can be written to.')


@engine.retry
def _write_nothing() -> None:
    """Execute a DELETE on ``reservations`` that matches no row.

    It fails on a cluster member without a quorum, on a read-only database,
    and without the table. ``SELECT 1`` works on all of them.
    """
    with engine.transaction() as connection:
        connection.execute(reservation_rows.DELETE_NOTHING)
