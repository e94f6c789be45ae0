# SPDX-License-Identifier: Apache-2.0
"""The WSGI stack of the API: ``make_app`` builds all of it.

Ironic's own middleware does not serve us, because Ironic puts plugins
outside of it. So the same libraries stand here once more, set up as Ironic
sets them up.
"""

from keystonemiddleware import auth_token
from oslo_middleware import base
from oslo_middleware import basic_auth
from oslo_middleware import cors
from oslo_middleware import http_proxy_to_wsgi

from ironic_reservations import conf
from ironic_reservations import metrics
from ironic_reservations.api import access
from ironic_reservations.api import errors
from ironic_reservations.api import limits
from ironic_reservations.api import routes
from ironic_reservations.api import version
from ironic_reservations.matching import explanation
from ironic_reservations.reservations import quotas

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
            [*(expose_headers or []), *_VERSION_HEADERS,
             version.OWN_HEADER])), **kwargs)

    def __call__(self, environ, start_response):
        if 'HTTP_ORIGIN' in environ and (
                environ['REQUEST_METHOD'] != 'OPTIONS'
                or 'HTTP_ACCESS_CONTROL_REQUEST_METHOD' in environ):
            return super().__call__(environ, start_response)
        # The caller is no page in a browser. The parent would answer each
        # OPTIONS as if it were one, and copy each response.
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


def make_app(ironic, gate):
    """Make the application that serves /v1/reservations.

    A request passes through the lines below from the last to the first.

    :param ironic: Ironic's WSGI application, which is asked for its range of
        API versions.
    :param gate: middleware that answers the questions of the fence.
    """
    metrics.start_counting(explanation.CAUSES)
    quotas.check_installed()
    app = _audit(routes.Application())
    # Inside of the authentication, so that the body of a request without a
    # valid identity is not read.
    app = limits.Limits(app)
    # Outside of the limits: the fence asks about bodies of Ironic's.
    app = gate(app)
    # Inside of the authentication, because oslo.middleware's basic_auth
    # answers 401 to any exception that passes through it:
    # https://opendev.org/openstack/oslo.middleware/src/branch/master/oslo_middleware/basic_auth.py
    app = errors.Errors(app)
    app = _authenticate(app)
    # Outside of the authentication, which reads headers, too.
    app = limits.Headers(app)
    # Outside of the authentication, so that its refusals get Ironic's form.
    app = errors.ErrorEnvelope(app)
    # Outside of the errors, because they bear the version headers too.
    app = version.ApiVersion(app, ironic)
    proxy = http_proxy_to_wsgi.HTTPProxyToWSGI(app, conf.CONF)
    if conf.CONF.oslo_middleware.enable_proxy_headers_parsing:
        app = proxy
    # Outside of the authentication, because a browser's preflight request
    # bears no token, and because a page may read only such errors as bear the
    # CORS headers.
    app = _Cors(app, conf.CONF)
    app = limits.EndOfChunked(app)
    app = access.AccessLog(app)
    return access.RequestId(app, conf.CONF)


def _audit(app):
    """Wrap an application in Ironic's audit, if [audit] enabled is set.

    It names the caller, so it is inside of the authentication. It may parse
    the body, so it is inside of the limits.
    """
    if not conf.CONF.audit.enabled:
        return app
    # Only those who want an audit need it, and it takes long to import.
    from keystonemiddleware import audit
    return audit.AuditMiddleware(
        errors.Errors(app), audit_map_file=conf.CONF.audit.audit_map_file,
        ignore_req_list=conf.CONF.audit.ignore_req_list)


def _authenticate(app):
    """Wrap an application in what [DEFAULT] auth_strategy names."""
    if conf.CONF.auth_strategy == 'keystone':
        return auth_token.AuthProtocol(app, {'oslo_config_config': conf.CONF})
    if conf.CONF.auth_strategy == 'http_basic':
        return _BasicAuth(app)
    return app
