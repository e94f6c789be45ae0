# SPDX-License-Identifier: Apache-2.0
"""The whole WSGI stack in one function."""

from keystonemiddleware import auth_token
from oslo_middleware import basic_auth
from oslo_middleware import cors
from oslo_middleware import http_proxy_to_wsgi
from oslo_middleware import request_id

from ironic_reservations.api import controllers
from ironic_reservations.api import errors
from ironic_reservations.api import limits
from ironic_reservations.api import version
from ironic_reservations.conf import CONF

_VERSION_HEADERS = [version.HEADER, version.MIN_HEADER, version.MAX_HEADER]


class _Cors(cors.CORS):
    simple_headers = [*cors.CORS.simple_headers, 'X-Auth-Token',
                      *_VERSION_HEADERS]

    def __call__(self, environ, start_response):
        if 'HTTP_ORIGIN' in environ or environ['REQUEST_METHOD'] == 'OPTIONS':
            return super().__call__(environ, start_response)
        # No browser asks: spare everybody else what follows.
        return self.application(environ, start_response)


class _BasicAuth(basic_auth.BasicAuthMiddleware):

    def format_exception(self, e):
        response = super().format_exception(e)
        # As Ironic does: a browser asks its user then.
        response.www_authenticate = ('Basic', {'realm': 'Baremetal API'})
        return response


class _RequestId(request_id.RequestId):
    # Ironic's historical name of the header, beside x-openstack-request-id.
    compat_headers = ['openstack-request-id']


def make_app(ironic=None):
    """The application that serves /v1/reservations.

    A request passes from the last line to the first.

    :param ironic: Ironic's WSGI application when we run inside it.
    """
    app = controllers.Application()
    # Behind the authentication: a stranger's body is not even read.
    app = limits.Limits(app)
    # Inside of the authentication, since basic_auth takes an exception from
    # within for a refusal of its own ...
    app = errors.Errors(app)
    app = _authenticate(app)
    # ... and outside of it, for what it refuses.
    app = errors.ErrorEnvelope(app)
    # Every answer tells the versions, a refusal too.
    app = version.ApiVersion(app, ironic)
    proxy = http_proxy_to_wsgi.HTTPProxyToWSGI(app, CONF)
    if CONF.oslo_middleware.enable_proxy_headers_parsing:
        app = proxy
    app = _RequestId(app, CONF)
    # Outermost: a browser's preflight has no token, and its errors must be
    # readable to the page that asked.
    cors.set_defaults(allow_methods=['GET', 'POST', 'DELETE'],
                      expose_headers=_VERSION_HEADERS)
    return _Cors(app, CONF)


def _authenticate(app):
    """Ironic's own ways, as [DEFAULT] auth_strategy says."""
    if CONF.auth_strategy == 'keystone':
        return auth_token.AuthProtocol(app, {'oslo_config_config': CONF})
    if CONF.auth_strategy == 'http_basic':
        CONF.set_override('http_basic_auth_user_file',
                          CONF.http_basic_auth_user_file,
                          group='oslo_middleware')
        return _BasicAuth(app)
    return app
