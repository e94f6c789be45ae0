# SPDX-License-Identifier: Apache-2.0
"""One line of the log for each request, in the form of Ironic's own.

And one in the sum of all requests: see ``metrics``.

Ironic's middleware for it (``ironic/api/middleware/request_log.py``) is inside
of the plugins and does not see our requests.
"""

import time
import urllib.parse

from oslo_context import context as oslo_context
from oslo_log import log
from oslo_middleware import request_id
import webob

from ironic_reservations import context
from ironic_reservations import metrics
from ironic_reservations import text

LOG = log.getLogger(__name__)


#: A key of the WSGI environment: the request goes on to Ironic, which logs it.
PASSED_ON = 'ironic_reservations.passed_on'

#: Another: the RequestContext of nobody, with the request's id.
CONTEXT = 'ironic_reservations.context'


class RequestId(request_id.RequestId):
    """The request's id in the answer's headers and in the log."""

    # Ironic's older name of the header x-openstack-request-id.
    compat_headers = ['openstack-request-id']

    def __call__(self, environ, start_response):
        # The parent's would read each answer into an object, to add to it.
        self.set_global_req_id(webob.Request(environ))
        made = environ[request_id.ENV_REQUEST_ID] = (
            oslo_context.generate_request_id())

        def start(status, headers, *exc_info):
            return start_response(status, [*headers, *(
                (name, made) for name in (
                    request_id.HTTP_RESP_HEADER_REQUEST_ID,
                    *self.compat_headers))], *exc_info)

        return self.application(environ, start)


class AccessLog:
    """Middleware that logs who has asked what, the status, and the time."""

    def __init__(self, app):
        self.app = app

    def __call__(self, environ, start_response):
        began, status = time.monotonic(), None
        # What this thread logs before it knows the caller is of this request,
        # and not of the one before.
        environ[CONTEXT] = context.RequestContext(
            request_id=environ[request_id.ENV_REQUEST_ID])

        def start(line, *args):
            nonlocal status
            status = line.partition(' ')[0]
            return start_response(line, *args)

        try:
            return self.app(environ, start)
        finally:
            if PASSED_ON not in environ:
                self._note(environ, status, time.monotonic() - began)

    @staticmethod
    def _note(environ, status, seconds):
        metrics.count_request(environ['REQUEST_METHOD'], status)
        LOG.info('%(address)s - %(method)s %(path)s - %(status)s '
                 '(%(duration).2fms)', {
                     # What a proxy says only where it is believed:
                     # HTTPProxyToWSGI has put it there then.
                     'address': text.escape_controls(
                         environ.get('REMOTE_ADDR') or 'unknown'),
                     'method': text.escape_controls(environ['REQUEST_METHOD']),
                     'path': _path(environ), 'status': status,
                     'duration': 1000 * seconds})


def _path(environ):
    """The path and the query as they stand in a URL."""
    path = urllib.parse.quote(environ.get('PATH_INFO', ''),
                              encoding='latin-1')
    query = environ.get('QUERY_STRING')
    return f'{path}?{text.escape_controls(query)}' if query else path
