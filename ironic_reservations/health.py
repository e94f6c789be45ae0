# SPDX-License-Identifier: Apache-2.0
"""The health check of oslo.middleware that asks whether we can hold a node.

Ironic answers /healthcheck itself, in front of its authentication. With
``[healthcheck] backends = reservations`` it asks this, too.
"""

from oslo_log import log
from oslo_middleware.healthcheck import pluginbase

from ironic_reservations import conf
from ironic_reservations.db import engine
from ironic_reservations.db import reservation_rows

LOG = log.getLogger(__name__)


class Backend(pluginbase.HealthcheckBaseExtension):
    """Checks that the database accepts a write to ``reservations``."""

    def __init__(self, *args):
        super().__init__(*args)
        # Ironic may ask before it loads the plugin, or without doing so.
        conf.register_opts()

    def healthcheck(self, server_port):
        try:
            _write_nothing()
        except Exception as error:
            LOG.error('No node can be held: %s', error)
            return pluginbase.HealthcheckResult(
                available=False, reason='RESERVATIONS DATABASE UNAVAILABLE',
                details='The table of reservations cannot be written to.')
        return pluginbase.HealthcheckResult(
            available=True, reason='OK',
            details='The table of reservations can be written to.')


@engine.retry
def _write_nothing():
    """Write to ``reservations``, but to none of its rows.

    A cluster member without a quorum, a read-only database and one without
    the table refuse this. ``SELECT 1`` works on all of them.
    """
    with engine.transaction() as connection:
        connection.execute(reservation_rows.DELETE_NOTHING)
