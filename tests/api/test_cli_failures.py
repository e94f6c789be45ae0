# SPDX-License-Identifier: Apache-2.0
"""The openstack command when requests fail."""

import http.server
import logging
import re
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


@pytest.mark.parametrize('option', ['project', 'user', 'instance-uuid'])
def test_empty_value(ironic, option):
    """A script with an unset variable makes no reservation for its user."""
    with ironic.fleet({'resource_class': CLASS}) as [node]:
        result = run(ironic.url, 'create', '--resource-class', CLASS,
                     f'--{option}', '')
        assert result.returncode == 2
        assert (f'error: argument --{option}: must not be empty\n'
                in result.stderr)
        assert ironic.find_instance(node.id) is None


def test_group_of_another_project(ironic):
    with ironic.fleet(*[{'resource_class': CLASS}] * 2) as [node, _]:
        member = ironic.create(
            resource_class=CLASS, candidate_nodes=[node.id],
            project_id='team-a', group={'uuid': UNKNOWN})['instance_uuid']
        own = ironic.create(resource_class=CLASS)['instance_uuid']
        name_team = 'belongs to project team-a: add --project team-a'
        for args, ident, advice in (
                ('--group', UNKNOWN, name_team),
                ('--dry-run --group', UNKNOWN, name_team),
                ('--segment 0 --group', UNKNOWN, name_team),
                ('--project team-b --group', UNKNOWN, name_team),
                ('--claim', UNKNOWN, name_team),
                ('--claim', member, name_team),
                ('--project team-a --claim', own,
                 'belongs to no project: omit --project')):
            error = get_error(run(
                ironic.url, 'create', '--resource-class', CLASS,
                *args.split(), ident))
            assert error.splitlines()[-1] == f'{ident} {advice}'
        success = run(ironic.url, 'create', '--project', 'team-a', '--claim',
                      member, '--resource-class', CLASS)
        assert success.returncode == 0, success.stderr


def test_lease_that_is_too_long(ironic):
    """The error names the option, not the key of the request."""
    with ironic.fleet({'resource_class': CLASS}):
        instance = ironic.create(resource_class=CLASS)['instance_uuid']
        for verb in (['create', '--resource-class', CLASS],
                     ['create', '--resource-class', CLASS, '--dry-run'],
                     ['group', 'create', '--resource-class', CLASS,
                      '--members', '1'], ['set', instance]):
            error = get_error(run(ironic.url, *verb, '--expires-in', '9999d'))
            assert error.splitlines()[-1].startswith('--expires-in: must be ')


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


@pytest.mark.parametrize('args', [
    ['cordon', 'node-1'], ['notice', 'create', '--kind', 'fault', 'node-1']])
def test_lost_connection_of_a_notice(server, args):
    """The command names the UUID that it has made."""
    hint, error = get_error(run(server.url, *args)).splitlines()
    ident, = re.findall('notice ([0-9a-f-]{36}) may or may not exist', hint)
    assert hint.endswith(f'Check with "openstack baremetal reservation '
                         f'notice list --uuid {ident}".')
    assert 'Connection aborted' in error
    assert server.requests == ['POST']


def test_lost_connection_of_a_pool(server):
    hint, error = get_error(run(
        server.url, 'pool', 'create', '--ram', '1', '--members', '1',
        '--project', 'p', '--uuid', UNKNOWN)).splitlines()
    assert f'No response: pool {UNKNOWN} may or may not exist' in hint
    assert f'pool show {UNKNOWN}"' in hint
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
    'audit', 'create --ram 1 --dry-run',
    'notice list', f'notice set {UNKNOWN} --no-end', 'notice close a b',
    'pool list', f'pool show {UNKNOWN}', f'pool set {UNKNOWN} --no-expiry',
    'pool create --ram 1 --members 1 --project p', f'pool delete {UNKNOWN}',
    f'pool add {UNKNOWN} a b', f'pool remove {UNKNOWN} a',
    f'pool replace {UNKNOWN} a',
    'notice create --kind fault a', 'cordon a', 'uncordon a b', 'report a'])
def test_ironic_without_the_plugin(args):
    with interceptor.RequestsInterceptor(
            lambda: stock_ironic, f'{uuid.uuid4()}.test', 80) as url:
        assert get_error(run(url, *args.split())) == (
            f'Ironic at {url} has no reservations: its API plugin of '
            'ironic-reservations is not enabled.\n')
