# SPDX-License-Identifier: Apache-2.0
"""Ironic's door with the fence, and behind it what notes what it sees."""

import contextlib
import copy
import io

from ironic_reservations import middleware
from tests.common import answers
from tests.common import application
from tests.common import service

NAME = 'X-OpenStack-Ironic-Reservation'
VARIABLE = 'HTTP_X_OPENSTACK_IRONIC_RESERVATION'
FENCE = f'{NAME}s-Fence'


class Ironic:
    """Ironic's application: it sees environments, and reads no body."""

    def __init__(self):
        self.seen = []

    def __call__(self, environ, start_response):
        # Which versions it has is asked of it at first.
        if environ['PATH_INFO'] != '/v1/':
            self.seen.append(environ)
        start_response('202 Accepted', [('X-Of-Ironic', 'yes')])
        return [b'seen']


class Unread(io.BytesIO):
    """A body that must not be read."""

    def read(self, *args):
        raise AssertionError('The body was read')

    readline = readlines = __iter__ = read


class Door(service.Http):
    """Ironic's API with the fence, as clients and as servers see it."""

    def __init__(self, url, behind):
        super().__init__(url)
        self.behind = behind
        self.application = middleware.ReservationsMiddleware(behind)

    @property
    def seen(self):
        return [(each['REQUEST_METHOD'], each['PATH_INFO'])
                for each in self.behind.seen]

    def call(self, path, header, method='PUT', **environ):
        """What a server gets: status, headers and body of the answer."""
        found = []

        def start(status, headers, exc_info=None):
            found.extend((int(status[:3]), dict(headers)))

        environ = {
            'REQUEST_METHOD': method, 'PATH_INFO': path, 'SCRIPT_NAME': '',
            'QUERY_STRING': '', 'SERVER_NAME': 'localhost',
            'SERVER_PORT': '80', 'SERVER_PROTOCOL': 'HTTP/1.1',
            'wsgi.url_scheme': 'http', 'wsgi.input': Unread(),
            'wsgi.version': (1, 0), VARIABLE: header, **environ}
        self.environ, self.before = environ, copy.copy(environ)
        answer = self.application(environ, start)
        return *found, b''.join(answer)


@contextlib.contextmanager
def opened():
    """The door of such an Ironic."""
    behind = Ironic()
    with application.serve(behind) as url:
        yield Door(url, behind)


def of(held, **more):
    """The header for a reservation; None leaves a key out."""
    said = {'instance': held['instance_uuid'], 'host': 'compute-1', **more}
    return '; '.join(f'{name}={value}' for name, value in said.items()
                     if value is not None)


def power(held):
    return f'/v1/nodes/{held["node_uuid"]}/states/power'


def send(door, held, method='PUT', path=None, **said):
    return door.request(method, path or power(held), json={'target': 'x'},
                        headers={NAME: of(held, **said)})


def let_in(door, response):
    assert response.status_code == 202, response.text
    assert response.headers['X-Of-Ironic'] == 'yes'
    assert response.headers[FENCE] == '1'
    assert len(door.seen) == 1
    door.behind.seen.clear()


def refused(door, response, status):
    """The text of a refusal, of which Ironic has seen nothing."""
    fault = answers.check(response, status)
    assert response.headers[FENCE] == '1'
    assert door.seen == []
    return fault
