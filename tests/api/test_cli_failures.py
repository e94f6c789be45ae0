# SPDX-License-Identifier: Apache-2.0
"""The openstack command when requests fail."""

import datetime
import http.server
import ipaddress
import json
import logging
import os
import re
import signal
import socket
import ssl
import threading
import uuid

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from ironicclient import exc
from keystoneauth1 import exceptions as ksa_exc
import pytest
import webob
import webob.dec
from wsgi_intercept import interceptor
from wsgi_intercept import requests_intercept

from ironic_reservations.api import access
from ironic_reservations.osc import client
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


@pytest.mark.parametrize('value', ['', ' \u3000'])
@pytest.mark.parametrize('option', ['project', 'user', 'host',
                                    'candidate-node', 'instance-uuid'])
def test_blank_value(ironic, option, value):
    """A script with an unset variable makes no reservation for its user."""
    with ironic.fleet({'resource_class': CLASS}) as [node]:
        result = run(ironic.url, 'create', '--resource-class', CLASS,
                     f'--{option}', value)
        assert result.returncode == 2
        assert (f'error: argument --{option}: must not be blank\n'
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
                self.server.pause()
                if isinstance(self.connection, ssl.SSLSocket):
                    # This is not TLS.
                    os.write(self.connection.fileno(), b'broken' * 9)
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
        server.requests, server.pause = [], lambda: None
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
    assert 'Remote end closed connection without response' in error
    assert server.requests == ['POST']


@pytest.mark.parametrize('args', [
    ['cordon', 'node-1'], ['notice', 'create', '--kind', 'fault', 'node-1']])
def test_lost_connection_of_a_notice(server, args):
    """The command names the UUID that it has made."""
    hint, error = get_error(run(server.url, *args)).splitlines()
    ident, = re.findall('notice ([0-9a-f-]{36}) may or may not exist', hint)
    assert hint.endswith(f'Check with "openstack baremetal reservation '
                         f'notice list --uuid {ident}".')
    assert 'Remote end closed connection without response' in error
    assert server.requests == ['POST']


def test_lost_connection_of_a_pool(server):
    hint, error = get_error(run(
        server.url, 'pool', 'create', '--ram', '1', '--members', '1',
        '--project', 'p', '--uuid', UNKNOWN)).splitlines()
    assert f'No response: pool {UNKNOWN} may or may not exist' in hint
    assert f'pool show {UNKNOWN}"' in hint
    assert 'Remote end closed connection without response' in error
    assert server.requests == ['POST']


def test_lost_connection_of_a_get(server):
    result = run(server.url, 'capacity', '-f', 'json')
    assert (result.returncode, result.stdout.strip(), result.stderr) == (
        0, '[]', 'No nodes found.\n')
    assert server.requests == ['GET', 'GET']


def test_lost_connection_of_a_change(server):
    assert 'Remote end closed connection without response' in get_error(
        run(server.url, 'host', 'delete', 'compute-1'))
    assert server.requests == ['DELETE']


@pytest.fixture
def silence(server):
    """Let the server read the first request, call a function, and wait."""
    end = threading.Event()

    def silence(act=lambda: None):
        server.pause = lambda: (act(), end.wait(60))
    yield silence
    end.set()


@pytest.mark.usefixtures('real_connections')
def test_timeout_of_a_response(server, silence):
    silence()
    hint, error = get_error(run(
        server.url, 'create', '--ram', '1', OS_API_TIMEOUT='2')).splitlines()
    assert hint.startswith('No response: instance ')
    assert error == f'Request to {server.url}/v1/reservations timed out'
    assert server.requests == ['POST']


@pytest.mark.usefixtures('real_connections')
def test_interrupted_create(server, silence):
    silence(lambda: signal.pthread_kill(threading.main_thread().ident,
                                        signal.SIGINT))
    result = run(server.url, 'create', '--ram', '1')
    assert (result.returncode, result.stdout) == (130, '')
    assert result.stderr.startswith('No response: instance ')
    assert server.requests == ['POST']


@pytest.mark.usefixtures('real_connections')
def test_timeout_of_a_connection():
    """Nobody accepts connections, and the first one fills the queue."""
    with socket.create_server(('127.0.0.1', 0), backlog=0) as listener:
        for scheme, reason, hints in (
                ('https', ': The handshake operation timed out', 1),
                ('http', '', 0)):
            url = f'{scheme}://127.0.0.1:{listener.getsockname()[1]}'
            *others, error = get_error(run(
                url, 'create', '--ram', '1', OS_API_TIMEOUT='0.3')
            ).splitlines()
            assert error == (
                f'Request to {url}/v1/reservations timed out{reason}')
            assert len(others) == hints


@pytest.mark.usefixtures('real_connections')
@pytest.mark.parametrize('scheme', ['http', 'https'])
def test_proxy_that_is_not_reached(server, scheme):
    url = f'{scheme}://127.0.0.1:{server.server_port}'
    assert get_error(run(
        url, 'create', '--ram', '1', no_proxy='', NO_PROXY='',
        **{f'{scheme}_proxy': 'http://127.0.0.1:1'})) == (
            f'Unable to establish connection to {url}/v1/reservations: '
            'Unable to connect to proxy: Connection refused\n')
    assert server.requests == []


def test_error_during_another():
    """A request whose cause is the error of an earlier one."""
    def refuse():
        try:
            raise ConnectionRefusedError(111, 'Connection refused')
        except OSError as error:
            raise ksa_exc.ConnectFailure(f'Cannot connect to x: {error}')

    with pytest.raises(ksa_exc.ConnectFailure) as failure:
        try:
            raise exc.NotFound('No group')
        except exc.NotFound:
            refuse()
    assert client.format_error(failure.value) == (
        'Cannot connect to x: Connection refused')


@pytest.fixture
def certify(server, tmp_path):
    """Return a function that gives the server a certificate; see below."""
    def certify(host, days):
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(9)
        certificate = x509.CertificateBuilder(
            name, name, key.public_key(), 1, start,
            start + datetime.timedelta(days)).add_extension(
                x509.SubjectAlternativeName([
                    x509.IPAddress(ipaddress.ip_address(host))]),
                critical=False).sign(key, hashes.SHA256())
        path = tmp_path / 'server.pem'
        path.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption()))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        return str(path)
    return certify


@pytest.fixture
def real_connections():
    """Undo the interception, whose connections have other errors."""
    requests_intercept.uninstall()
    yield
    requests_intercept.install()


@pytest.mark.usefixtures('real_connections')
@pytest.mark.parametrize(('host', 'days', 'trust', 'reason', 'hints'), [
    ('127.0.0.1', 8, True, 'certificate has expired', 0),
    ('127.0.0.1', 99, False, 'self-signed certificate', 0),
    ('127.0.0.2', 99, True, "certificate is not valid for '127.0.0.1'.", 0),
    # The server breaks the connection after it has read the request.
    ('127.0.0.1', 99, True, '', 1)])
def test_tls(server, certify, host, days, trust, reason, hints):
    path = certify(host, days)
    lines = get_error(run(
        server.url.replace('http', 'https'), 'create', '--ram', '1',
        **({'OS_CACERT': path} if trust else {}))).splitlines()
    assert len(lines) == 1 + hints
    assert lines[-1].endswith(reason)
    assert lines[-1].startswith('SSL exception connecting to https://')
    assert server.requests == ['POST'] * hints
    for line in lines[:-1]:
        assert line.startswith('No response: instance ')


@pytest.mark.usefixtures('real_connections')
@pytest.mark.parametrize(('url', 'reason', 'hints'), [
    ('http://127.0.0.1:1', ': Connection refused', 0),
    ('http://nowhere.invalid', '', 0),
    # A port without TLS may have read the request.
    ('https://127.0.0.1:%d', '', 1)])
def test_no_connection(server, url, reason, hints):
    url %= (server.server_port,) * url.count('%')
    for args in 'create --ram 1', 'list --limit 1':
        *others, error = get_error(run(url, *args.split())).splitlines()
        assert len(others) == hints * args.startswith('create')
        assert error.endswith(reason)
        assert f' {url}/v1/reservations: ' in error
        assert not re.search(r'\?|Pool|_ssl|SSL:', error)


@pytest.mark.parametrize('login', [
    {'auth_type': 'none'}, {'auth_type': 'http_basic', 'auth': {
        'username': 'u', 'password': 'p'}}], ids=str)
def test_cloud_with_the_endpoint_of_ironic_alone(ironic, tmp_path, login):
    """Without Keystone, as others write clouds.yaml."""
    path = tmp_path / 'clouds.yaml'
    cloud = {**login, 'baremetal_endpoint_override': ironic.url}
    path.write_text(json.dumps({'clouds': {
        'plain': cloud,
        'nova': {**cloud, 'compute_endpoint_override': 'http://127.0.0.1:1'},
    }}))

    def get_last_line(name, *args):
        return command.run_in(
            {'OS_CLIENT_CONFIG_FILE': str(path), 'OS_CLOUD': name},
            'baremetal', 'reservation', *args).stderr.splitlines()[-1]

    assert get_last_line('plain', 'explain', 'web') == (
        'Cannot look up server "web": there is no compute service here')
    for option, kind in ('flavor', 'compute'), ('image', 'image'):
        assert get_last_line('plain', 'create', f'--{option}', 'x') == (
            f'Cannot look up {option} "x": there is no {kind} service here')
    assert 'http://127.0.0.1:1' in get_last_line(
        'nova', 'create', '--flavor', 'x')


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
    'audit', 'create --ram 1 --dry-run', 'explain --ram 1',
    f'explain --ram 1 --claim {UNKNOWN}',
    'notice list', f'notice set {UNKNOWN} --no-end', 'notice close a b',
    'pool list', f'pool show {UNKNOWN}', f'pool set {UNKNOWN} --no-expiry',
    'pool create --ram 1 --members 1 --project p', f'pool delete {UNKNOWN}',
    f'pool add {UNKNOWN} a b', f'pool remove {UNKNOWN} a',
    f'pool replace {UNKNOWN} a',
    'notice create --kind fault a', 'cordon a', 'uncordon a b', 'report a'])
def test_ironic_without_the_plugin(args):
    with interceptor.RequestsInterceptor(
            lambda: stock_ironic, f'{uuid.uuid4()}.test', 80) as url:
        error = get_error(run(url, *args.split()))
        # This hint comes before the first request.
        assert error.removeprefix(
            'Your project can see only nodes that it owns, leases or has in a '
            'pool; Nova may use others.\n' * args.startswith('explain')) == (
            f'Ironic at {url} has no reservations: its API plugin of '
            'ironic-reservations is not enabled.\n')
