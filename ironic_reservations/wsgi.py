# SPDX-License-Identifier: Apache-2.0
"""The application alone, for any WSGI server, beside an older Ironic.

A proxy routes /v1/reservations to it. Here, /healthcheck is answered if
[healthcheck] enabled is set, and every other path is a 404. It reads the files
that the environment variable
``OS_IRONIC_RESERVATIONS_CONFIG_FILES`` names, else /etc/ironic/ironic.conf,
and connects to nothing before the first request, so that a server may fork
its workers after it has loaded the application.
"""

from oslo_middleware import healthcheck
import webob.dec

from ironic_reservations import conf
from ironic_reservations import middleware
from ironic_reservations.api import errors

_HEALTH = '/healthcheck'


def _answer_others():
    """Return the application for all other paths, where no Ironic is."""
    not_found = errors.envelope(404, 'Not Found')
    if not conf.CONF.healthcheck.enabled:
        return not_found
    check = healthcheck.Healthcheck(not_found, conf.CONF)

    @webob.dec.wsgify
    def app(request):
        # webob's path_info would decode the path, which may be no text.
        path = request.environ.get('PATH_INFO', '').rstrip('/')
        return check if path == _HEALTH else not_found

    return app


conf.load_from_environment()

application = middleware.ReservationsMiddleware(_answer_others())
