# SPDX-License-Identifier: Apache-2.0
"""Builds the WSGI stack of the API.

Ironic's own middleware does not serve us, because Ironic places plugins
outside it. So the stack contains the same libraries, configured as in Ironic.
"""

from collections.abc import Iterable
import functools
from typing import Any
from wsgiref import types

import bcrypt
from keystonemiddleware import auth_token
from oslo_log import log
from oslo_middleware import base
from oslo_middleware import basic_auth
from oslo_middleware import cors
from oslo_middleware import http_proxy_to_wsgi
import webob

from ironic_reservations import conf
from ironic_reservations import metrics
from ironic_reservations.api import access
from ironic_reservations.api import errors
from ironic_reservations.api import fence
from ironic_reservations.api import limits
from ironic_reservations.api import routes
from ironic_reservations.api import version
from ironic_reservations.fleet import explanation
from ironic_reservations.reservations import quotas
from ironic_reservations.shared import text

LOG = log.getLogger(__name__)

_VERSION_HEADERS = [version.HEADER, version.MIN_HEADER, version.MAX_HEADER]


class _Cors(cors.CORS):
    """CORS as configured for Ironic in ``[cors]``, with the version headers.

    Ironic adds these headers by ``cors.set_defaults``. We do not, because that
    changes the defaults of every CORS middleware of the process.
    """

    # Headers that a page may send.
    simple_headers = [*cors.CORS.simple_headers, 'X-Auth-Token',
                      *_VERSION_HEADERS]
    application: types.WSGIApplication

    def add_origin(self, allowed_origin: list[str],
                   allow_credentials: bool = True,
                   expose_headers: list[str] | None = None,
                   *args: Any, **kwargs: Any) -> None:
        """Allow web pages to read the version headers."""
        super().add_origin(
            allowed_origin, allow_credentials, list(dict.fromkeys(
                [*(expose_headers or []), *_VERSION_HEADERS,
                 version.OWN_HEADER])), *args, **kwargs)

    def __call__(self, environ: types.WSGIEnvironment,
                 start_response: types.StartResponse) -> Iterable[bytes]:
        if 'HTTP_ORIGIN' in environ and (
                environ['REQUEST_METHOD'] != 'OPTIONS'
                or 'HTTP_ACCESS_CONTROL_REQUEST_METHOD' in environ):
            parent: types.WSGIApplication = super().__call__
            return parent(environ, start_response)
        # The client is not a page in a browser. The parent would take every
        # OPTIONS for a preflight request, and copy every response.
        return self.application(environ, start_response)


@functools.lru_cache(maxsize=256)
def _check_password(password: bytes, digest: bytes) -> bool:
    """Check a password; bcrypt takes up to a quarter of a second for it."""
    return bcrypt.checkpw(password, digest)


class _BasicAuth(basic_auth.BasicAuthMiddleware):
    """Basic authentication with the file that Ironic's option names.

    As in Ironic, each request reads the file, but bcrypt checks a password
    only once.
    """

    application: types.WSGIApplication

    def __init__(self, app: types.WSGIApplication) -> None:
        # Not the parent's __init__, which reads the file's name from
        # [oslo_middleware] of the global configuration.
        base.ConfigurableMiddleware.__init__(self, app, conf.CONF)
        self.auth_file = conf.CONF.http_basic_auth_user_file
        basic_auth.validate_auth_file(self.auth_file)

    def __call__(self, environ: types.WSGIEnvironment,
                 start_response: types.StartResponse) -> Iterable[bytes]:
        try:
            name, password = basic_auth.parse_token(
                basic_auth.parse_header(environ))
            if not _check_password(password, self._read_digest(name)):
                LOG.info('Password for %s does not match', name)
                raise webob.exc.HTTPUnauthorized()
        except Exception as error:
            refusal: types.WSGIApplication = self.format_exception(error)
            return refusal(environ, start_response)
        environ.update(HTTP_X_USER=name, HTTP_X_USER_NAME=name)
        return self.application(environ, start_response)

    def _read_digest(self, name: str) -> bytes:
        """Return the digest of the password of a user.

        :raises: HTTPUnauthorized, HTTPBadRequest.
        """
        try:
            with open(self.auth_file) as file:
                for entry in map(str.strip, file):
                    if entry.startswith(f'{name}:'):
                        return basic_auth.parse_entry(entry)[1]
        except OSError as error:
            LOG.error('Cannot read the file of passwords: %s', error)
            raise webob.exc.HTTPBadRequest('Problem reading auth file')
        LOG.info('User %s not found', text.escape_controls(name))
        raise webob.exc.HTTPUnauthorized()

    def format_exception(self, e: Exception) -> webob.Response:
        response = super().format_exception(e)
        # As in Ironic, this header makes a browser ask for a password.
        response.www_authenticate = ('Basic', {'realm': 'Baremetal API'})
        return response


def make_app(ironic: types.WSGIApplication) -> types.WSGIApplication:
    """Return the application that serves /v1/reservations.

    A request passes through the lines below from the last to the first.

    :param ironic: Ironic's application, which gives its API versions.
    """
    metrics.start_counting(explanation.CAUSES)
    quotas.check_installed()
    app = _add_audit(routes.Application())
    # Inside the authentication, so that the body of an unauthenticated request
    # is not read.
    app = limits.BodyLimits(app)
    # Outside the limits, which do not apply to requests to Ironic.
    app = fence.Gate(app)
    app = errors.Errors(app)
    app = _add_authentication(app)
    # Outside the authentication, because it reads headers.
    app = limits.HeaderLimits(app)
    # Outside the authentication, so that its refusals get Ironic's format.
    app = errors.ErrorEnvelope(app)
    # Outside the errors, which also need the version headers.
    app = version.ApiVersion(app, ironic)
    proxy = http_proxy_to_wsgi.HTTPProxyToWSGI(app, conf.CONF)
    if conf.CONF.oslo_middleware.enable_proxy_headers_parsing:
        app = proxy
    # Outside the authentication, because a browser's preflight request has no
    # token, and because a page can only read errors with the CORS headers.
    app = _Cors(app, conf.CONF)
    app = limits.CloseAfterChunks(app)
    app = access.AccessLog(app)
    return access.RequestId(app, conf.CONF)


def _add_audit(app: types.WSGIApplication) -> types.WSGIApplication:
    """Wrap an application in Ironic's audit if [audit] enabled is set.

    It is inside the authentication because it logs the caller, and inside the
    limits because it may parse the body.
    """
    if not conf.CONF.audit.enabled:
        return app
    # Imported here because it takes long, and the audit is optional.
    from keystonemiddleware import audit
    auditor: types.WSGIApplication = audit.AuditMiddleware(
        errors.Errors(app), audit_map_file=conf.CONF.audit.audit_map_file,
        ignore_req_list=conf.CONF.audit.ignore_req_list)
    return auditor


def _add_authentication(app: types.WSGIApplication) -> types.WSGIApplication:
    """Wrap an application in the authentication of [DEFAULT] auth_strategy."""
    if conf.CONF.auth_strategy == 'keystone':
        keystone: types.WSGIApplication = auth_token.AuthProtocol(
            app, {'oslo_config_config': conf.CONF})
        return keystone
    if conf.CONF.auth_strategy == 'http_basic':
        return _BasicAuth(app)
    return app
