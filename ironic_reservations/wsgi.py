# SPDX-License-Identifier: Apache-2.0
"""The application alone, for any WSGI server, beside an older Ironic.

A proxy routes /v1/reservations to it. Here, /healthcheck is answered if
[healthcheck] enabled is set, and every other path is a 404. It reads the files
that the environment variable
``OS_IRONIC_RESERVATIONS_CONFIG_FILES`` names, else /etc/ironic/ironic.conf,
and connects to nothing before the first request, so that a server may fork
its workers after it has loaded the application.
"""

from ironic_reservations import conf
from ironic_reservations import health
from ironic_reservations import middleware

conf.load_from_environment()

application = middleware.ReservationsMiddleware(health.make_app())
