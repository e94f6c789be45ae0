# SPDX-License-Identifier: Apache-2.0
"""The standalone application, for any WSGI server, next to an older Ironic.

A proxy routes /v1/reservations to it. It also serves /healthcheck if
``[healthcheck] enabled`` is set; all other paths are a 404. It reads the
configuration files in the environment variable
``OS_IRONIC_RESERVATIONS_CONFIG_FILES``, by default /etc/ironic/ironic.conf.
It opens no connection before the first request, so that a server may load it
before it forks its workers.
"""

from collections.abc import Iterable
from wsgiref import types

from oslo_middleware import healthcheck

from ironic_reservations import conf
from ironic_reservations import middleware
from ironic_reservations.api import errors

_HEALTH = '/healthcheck'


def _make_fallback() -> types.WSGIApplication:
    """Return the application that serves the paths of Ironic."""
    not_found: types.WSGIApplication = errors.make_envelope(404, 'Not Found')
    if not conf.CONF.healthcheck.enabled:
        return not_found
    check: types.WSGIApplication = healthcheck.Healthcheck(
        not_found, conf.CONF)

    def app(environ: types.WSGIEnvironment,
            start_response: types.StartResponse) -> Iterable[bytes]:
        path = environ.get('PATH_INFO', '').rstrip('/')
        return (check if path == _HEALTH else not_found)(
            environ, start_response)

    return app


conf.load_from_environment()

application = middleware.ReservationsMiddleware(_make_fallback())
