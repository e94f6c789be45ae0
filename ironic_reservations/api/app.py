# SPDX-License-Identifier: Apache-2.0
"""The whole WSGI stack in one function."""

from keystonemiddleware import auth_token
from oslo_middleware import base
from oslo_middleware import basic_auth
from oslo_middleware import cors
from oslo_middleware import http_proxy_to_wsgi
from oslo_middleware import request_id

from ironic_reservations import conf
from ironic_reservations.api import controllers
from ironic_reservations.api import errors
from ironic_reservations.api import limits
from ironic_reservations.api import version

_VERSION_HEADERS = [version.HEADER, version.MIN_HEADER, version.MAX_HEADER]


class _Cors(cors.CORS):
    """CORS as the operator has configured it for Ironic, in ``[cors]``.

    Ironic calls ``cors.set_defaults`` for its version headers. That changes
    the defaults of every CORS middleware of the process, so here a subclass
    adds them to its own.
    """

    # What a page may send.
    simple_headers = [*cors.CORS.simple_headers, 'X-Auth-Token',
                      *_VERSION_HEADERS]

    def add_origin(self, allowed_origin, expose_headers=None, **kwargs):
        """Let pages read the version headers beside those configured."""
        super().add_origin(allowed_origin, expose_headers=list(dict.fromkeys(
            [*(expose_headers or []), *_VERSION_HEADERS])), **kwargs)

    def __call__(self, environ, start_response):
        if 'HTTP_ORIGIN' in environ or environ['REQUEST_METHOD'] == 'OPTIONS':
            return super().__call__(environ, start_response)
        # The caller is no page in a browser: skip a copy of the response.
        return self.application(environ, start_response)


class _BasicAuth(basic_auth.BasicAuthMiddleware):
    """Basic authentication with the file of Ironic's own option."""

    def __init__(self, app):
        # The parent's __init__ reads [oslo_middleware] instead, and from the
        # global configuration only, so it is left out.
        base.ConfigurableMiddleware.__init__(self, app, conf.CONF)
        self.auth_file = conf.CONF.http_basic_auth_user_file
        basic_auth.validate_auth_file(self.auth_file)

    def format_exception(self, e):
        response = super().format_exception(e)
        # Ironic sends this header, which makes a browser ask for a password.
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
    proxy = http_proxy_to_wsgi.HTTPProxyToWSGI(app, conf.CONF)
    if conf.CONF.oslo_middleware.enable_proxy_headers_parsing:
        app = proxy
    app = _RequestId(app, conf.CONF)
    # Outermost: a browser's preflight has no token, and its errors must be
    # readable to the page that asked.
    return _Cors(app, conf.CONF)


def _authenticate(app):
    """Ironic's own ways, as [DEFAULT] auth_strategy says."""
    if conf.CONF.auth_strategy == 'keystone':
        return auth_token.AuthProtocol(app, {'oslo_config_config': conf.CONF})
    if conf.CONF.auth_strategy == 'http_basic':
        return _BasicAuth(app)
    return app
