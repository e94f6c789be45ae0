# SPDX-License-Identifier: Apache-2.0
"""Logs and counts each request, in the format of Ironic's own log.

Ironic's middleware for it (``ironic/api/middleware/request_log.py``) is inside
the plugins and does not see our requests.
"""

from collections.abc import Iterable
import time
from typing import Any
import urllib.parse
from wsgiref import types

from oslo_context import context as oslo_context
from oslo_log import log
from oslo_middleware import request_id
import webob

from ironic_reservations import context
from ironic_reservations import metrics
from ironic_reservations.shared import text

LOG = log.getLogger(__name__)

#: Key of the WSGI environment of a request that is passed on to Ironic, which
#: logs it.
PASSED_ON = 'ironic_reservations.passed_on'

#: Key of the WSGI environment: a RequestContext with the request's id and
#: without a caller.
CONTEXT = 'ironic_reservations.context'


class RequestId(request_id.RequestId):
    """Adds the request's id to the response headers and to the log."""

    # Ironic's older name of the header x-openstack-request-id.
    compat_headers = ['openstack-request-id']
    application: types.WSGIApplication

    def __call__(self, environ: types.WSGIEnvironment,
                 start_response: types.StartResponse) -> Iterable[bytes]:
        # The parent's method would read the whole response into memory.
        self.set_global_req_id(webob.Request(environ))
        new_id = environ[request_id.ENV_REQUEST_ID] = (
            oslo_context.generate_request_id())

        def start(status: str, headers: list[tuple[str, str]],
                  *exc_info: Any) -> Any:
            return start_response(status, [*headers, *(
                (name, new_id) for name in (
                    request_id.HTTP_RESP_HEADER_REQUEST_ID,
                    *self.compat_headers))], *exc_info)

        return self.application(environ, start)


class AccessLog:
    """Middleware that logs and counts each request."""

    def __init__(self, app: types.WSGIApplication) -> None:
        self.app = app

    def __call__(self, environ: types.WSGIEnvironment,
                 start_response: types.StartResponse) -> Iterable[bytes]:
        start_time = time.monotonic()
        status: str | None = None
        # Otherwise lines that this thread logs before it knows the caller
        # would carry the context of its previous request.
        environ[CONTEXT] = context.RequestContext(
            request_id=environ[request_id.ENV_REQUEST_ID])

        def start(line: str, *args: Any) -> Any:
            nonlocal status
            status = line.partition(' ')[0]
            return start_response(line, *args)

        try:
            return self.app(environ, start)
        finally:
            if PASSED_ON not in environ:
                _log_request(environ, status, time.monotonic() - start_time)


def _log_request(environ: types.WSGIEnvironment, status: str | None,
                 seconds: float) -> None:
    metrics.count_request(environ['REQUEST_METHOD'], status)
    LOG.info('%(address)s - %(method)s %(path)s - %(status)s '
             '(%(duration).2fms)', {
                 # The client's address if proxies are trusted, because
                 # HTTPProxyToWSGI replaces the proxy's address by it.
                 'address': text.escape_controls(
                     environ.get('REMOTE_ADDR') or 'unknown'),
                 'method': text.escape_controls(environ['REQUEST_METHOD']),
                 'path': _quote_path(environ), 'status': status,
                 'duration': 1000 * seconds})


def _quote_path(environ: types.WSGIEnvironment) -> str:
    """Return the path and the query as in a URL."""
    path = urllib.parse.quote(environ.get('PATH_INFO', ''),
                              encoding='latin-1')
    query = environ.get('QUERY_STRING')
    return f'{path}?{text.escape_controls(query)}' if query else path
