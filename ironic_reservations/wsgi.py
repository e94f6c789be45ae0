# SPDX-License-Identifier: Apache-2.0
"""The standalone application, for any WSGI server, next to an older Ironic.

A proxy routes /v1/reservations to it. It also serves /healthcheck if
``[healthcheck] enabled`` is set; all other paths are a 404. It reads the
configuration files in the environment variable
``OS_IRONIC_RESERVATIONS_CONFIG_FILES``, by default /etc/ironic/ironic.conf.
It opens no connection before the first request, so that a server may load it
before it forks its workers.
"""

from wsgiref import types

from oslo_middleware import healthcheck
import webob
import webob.dec

from ironic_reservations import conf
from ironic_reservations import middleware
from ironic_reservations.api import errors

_HEALTH = '/healthcheck'


def _make_fallback() -> types.WSGIApplication:
    """Return the application that serves the paths of Ironic."""
    not_found = errors.make_envelope(404, 'Not Found')
    if not conf.CONF.healthcheck.enabled:
        return not_found
    check = healthcheck.Healthcheck(not_found, conf.CONF)

    @webob.dec.wsgify
    def app(request: webob.Request) -> types.WSGIApplication:
        # webob's path_info would decode the path, which may not be UTF-8.
        path = request.environ.get('PATH_INFO', '').rstrip('/')
        return check if path == _HEALTH else not_found

    return app


conf.load_from_environment()

application = middleware.ReservationsMiddleware(_make_fallback())
