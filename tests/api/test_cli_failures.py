# SPDX-License-Identifier: Apache-2.0
"""The openstack command when requests fail."""

import http.server
import logging
import threading
import uuid

import pytest
import webob
import webob.dec
from wsgi_intercept import interceptor

from ironic_reservations.api import access
from tests.common import command
from tests.common.command import get_error

CLASS = 'baremetal.cli'
UNKNOWN = '99999999-2222-4333-8444-555555555555'


def run(url, *args, **env):
    return command.run(url, 'baremetal', 'reservation', *args, **env)


@pytest.fixture
def after_refusal():
    """Calls a function as soon as a request is refused with 422."""
    class Handler(logging.Handler):
        def emit(self, record):
            if ' 422 ' in f' {record.getMessage()} ':
                self.act()

    logger, handler = logging.getLogger(access.__name__), Handler()
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)

    def after(act):
        handler.act = act
    yield after
    logger.setLevel(level)
    logger.removeHandler(handler)


def test_wait_for_a_locked_node(ironic, after_refusal):
    with ironic.fleet({'resource_class': CLASS}) as [node]:
        ironic.set_node(node.id, reservation='conductor')
        refusals = []

        def unlock():
            refusals.append(ironic.find_instance(node.id))
            ironic.set_node(node.id, reservation=None)
        after_refusal(unlock)
        result = run(ironic.url, 'create', '--resource-class', CLASS)
        assert (result.returncode, result.stderr) == (0, '')
        assert refusals == [None]
        assert ironic.find_instance(node.id)


@pytest.mark.parametrize('option', ['project', 'user'])
def test_empty_name(ironic, option):
    """A script with an unset variable makes no reservation for its user."""
    with ironic.fleet({'resource_class': CLASS}) as [node]:
        assert f'{option}_id' in get_error(run(
            ironic.url, 'create', '--resource-class', CLASS, f'--{option}',
            ''))
        assert ironic.find_instance(node.id) is None


def test_database_that_is_not_ready(ironic):
    ironic.execute('ALTER TABLE reservations RENAME TO gone')
    try:
        error = get_error(run(ironic.url, 'list'))
    finally:
        ironic.execute('ALTER TABLE gone RENAME TO reservations')
    # The lines above are the log of the application in the same process.
    *_, error = error.splitlines()
    assert error.startswith('The reservations service is not ready')
    assert error.endswith('(HTTP 503)')


class BrokenServer(http.server.BaseHTTPRequestHandler):
    """An Ironic that closes the first connection to our API."""

    def answer(self):
        if self.path.startswith('/v1/reservations'):
            self.server.requests.append(self.command)
            if len(self.server.requests) == 1:
                self.close_connection = True
                return
        self.send_response(200)
        for name in 'Minimum', 'Maximum':
            self.send_header(f'X-OpenStack-Ironic-API-{name}-Version', '1.80')
        self.send_header('Content-Type', 'application/json')
        self.end_headers()
        self.wfile.write(b'{"capacity": []}')

    do_GET = do_POST = do_PATCH = do_DELETE = answer

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with http.server.HTTPServer(('127.0.0.1', 0), BrokenServer) as server:
        server.requests = []
        server.url = f'http://127.0.0.1:{server.server_port}'
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_lost_connection_of_a_create(server):
    instance = str(uuid.uuid4())
    hint, error = get_error(run(
        server.url, 'create', '--ram', '1', '--instance-uuid', instance)
    ).splitlines()
    assert f'No response: instance {instance} ' in hint
    assert 'Connection aborted' in error
    assert server.requests == ['POST']


def test_lost_connection_of_a_get(server):
    result = run(server.url, 'capacity', '-f', 'json')
    assert (result.returncode, result.stdout.strip(), result.stderr) == (
        0, '[]', 'No nodes found.\n')
    assert server.requests == ['GET', 'GET']


def test_lost_connection_of_a_change(server):
    assert 'Connection aborted' in get_error(
        run(server.url, 'host', 'delete', 'compute-1'))
    assert server.requests == ['DELETE']


@webob.dec.wsgify
def stock_ironic(request):
    """Answer as an Ironic that does not know the path."""
    if request.path == '/':
        return webob.Response(json_body={'versions': [{
            'id': 'v1', 'status': 'CURRENT', 'min_version': '1.1',
            'version': '1.80', 'links': [
                {'rel': 'self', 'href': f'{request.host_url}/v1/'}]}]})
    return webob.Response(
        status=404, content_type='application/json',
        json_body={'error_message': '{"faultstring": "Not Found", '
                   '"faultcode": "Client", "debuginfo": null}'},
        headerlist=[(f'X-OpenStack-Ironic-API-{name}Version', '1.80')
                    for name in ('', 'Minimum-', 'Maximum-')])


@pytest.mark.parametrize('args', [
    'create --ram 1', f'show {UNKNOWN}', 'show node-1',
    f'set {UNKNOWN} --no-expiry', f'delete {UNKNOWN} node-1', 'capacity',
    'capacity list', 'host list', 'group create --ram 1 --members 2',
    'group list', f'group show {UNKNOWN}', f'group delete {UNKNOWN} {UNKNOWN}',
    'audit', 'move --from a --to b', 'create --ram 1 --dry-run'])
def test_ironic_without_the_plugin(args):
    with interceptor.RequestsInterceptor(
            lambda: stock_ironic, f'{uuid.uuid4()}.test', 80) as url:
        assert get_error(run(url, *args.split())) == (
            f'Ironic at {url} has no reservations: its API plugin of '
            'ironic-reservations is not enabled.\n')
