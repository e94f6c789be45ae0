# SPDX-License-Identifier: Apache-2.0
"""A client of the fence, in front of an Ironic that records its requests."""

import contextlib
import copy
import io

from ironic_reservations import middleware
from tests.common import application
from tests.common import contract
from tests.common import service

NAME = 'X-OpenStack-Ironic-Reservation'
VARIABLE = 'HTTP_X_OPENSTACK_IRONIC_RESERVATION'
FENCE = f'{NAME}s-Fence'


class Ironic:
    """Records the environment of each request, and reads no body."""

    def __init__(self):
        self.environs = []

    def __call__(self, environ, start_response):
        # The first request to the application makes it ask for versions.
        if environ['PATH_INFO'] != '/v1/':
            self.environs.append(environ)
        start_response('202 Accepted', [('X-Ironic', 'yes')])
        return [b'seen']


class Unread(io.BytesIO):
    """A body that must not be read."""

    def read(self, *args):
        raise AssertionError('The body was read')

    readline = readlines = __iter__ = read


class Client(service.Http):
    """Sends requests through the fence by HTTP, or as a WSGI server does.

    :param ironic: the application behind the fence.
    :ivar environ: of the last call(), and ``before``, a copy of its begin.
    """

    def __init__(self, url, ironic):
        super().__init__(url)
        self.ironic = ironic
        self.app = middleware.ReservationsMiddleware(ironic)

    def call(self, path, header, method='PUT', **environ):
        """Call the application; return the response's status and headers."""
        calls = []

        def start(status, headers, exc_info=None):
            calls.append((int(status[:3]), dict(headers)))

        self.environ = {
            'REQUEST_METHOD': method, 'PATH_INFO': path, 'SCRIPT_NAME': '',
            'QUERY_STRING': '', 'SERVER_NAME': 'localhost',
            'SERVER_PORT': '80', 'SERVER_PROTOCOL': 'HTTP/1.1',
            'wsgi.url_scheme': 'http', 'wsgi.input': Unread(),
            'wsgi.version': (1, 0), VARIABLE: header, **environ}
        self.before = copy.copy(self.environ)
        response = self.app(self.environ, start)
        b''.join(response)
        getattr(response, 'close', lambda: None)()
        call, = calls
        return call

    def send_for(self, reservation, method='PUT', path=None, **keys):
        return self.request(
            method, path or power_path(reservation), json={'target': 'x'},
            headers={NAME: make_header(reservation, **keys)})

    def accept(self, *args, **keys):
        """Send a request that Ironic has to receive."""
        self.check_accepted(self.send_for(*args, **keys))

    def refuse(self, status, *args, **keys):
        """Send a request that must not reach Ironic; return the error."""
        return self.check_refused(self.send_for(*args, **keys), status)

    def check_accepted(self, response):
        assert response.status_code == 202, response.text
        assert response.headers['X-Ironic'] == 'yes'
        assert response.headers[FENCE] == '1'
        assert len(self.ironic.environs) == 1
        self.ironic.environs.clear()

    def check_refused(self, response, status):
        """Return the text of a refusal."""
        fault = contract.check(response, status)
        assert response.headers[FENCE] == '1'
        assert self.ironic.environs == []
        return fault


@contextlib.contextmanager
def serve():
    """Serve such an Ironic behind the fence; yields a Client."""
    ironic = Ironic()
    with application.serve(ironic) as url:
        yield Client(url, ironic)


def make_header(reservation, **keys):
    """Return the header for a reservation; None leaves a key out."""
    keys = {'instance': reservation['instance_uuid'], 'host': 'compute-1',
            **keys}
    return '; '.join(f'{name}={value}' for name, value in keys.items()
                     if value is not None)


def power_path(reservation):
    return f'/v1/nodes/{reservation["node_uuid"]}/states/power'
