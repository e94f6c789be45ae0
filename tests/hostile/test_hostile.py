# SPDX-License-Identifier: Apache-2.0
"""Random requests to a real Ironic.

IRONIC_RESERVATIONS_HOSTILE_REQUESTS is the number of requests that each test
sends. They are the same each time, unless IRONIC_RESERVATIONS_HOSTILE_SEED is
another number or "random".
"""

import base64
import collections
import contextlib
import http.client
import io
import os
import pathlib
import random
import socket
import time
import types
import uuid

import bcrypt
import psutil
import pytest
import requests

from ironic_reservations.api import limits
from tests.common import contract
from tests.common import programs
from tests.common import service
from tests.hostile import generator
from tools import openapi
from tools import services

CREDENTIALS = 'Basic ' + base64.b64encode(b'admin:secret').decode()
WRONG = [None, 'Basic x', 'Bearer x', CREDENTIALS[:-4],
         'Basic ' + base64.b64encode(b'admin:' + b'x' * 300).decode()]

#: Seconds between two packets of a slow request.
SLOW = 0.02

#: A request that is sent directly after another one.
GET = (b'GET /v1/reservations?limit=1 HTTP/1.1\r\nHost: x\r\n'
       b'Authorization: ' + CREDENTIALS.encode() + b'\r\n\r\n')

CONFIGURATION = pathlib.Path(__file__).parent / 'schemathesis.toml'

#: Maximum growth of the service in bytes.
GROWTH = 64 * 2 ** 20


@pytest.fixture(scope='module')
def how_many():
    return int(os.environ.get('IRONIC_RESERVATIONS_HOSTILE_REQUESTS', 2000))


@pytest.fixture
def pick():
    seed = os.environ.get('IRONIC_RESERVATIONS_HOSTILE_SEED', '0')
    if seed == 'random':
        seed = random.randrange(2 ** 32)
    print(f'IRONIC_RESERVATIONS_HOSTILE_SEED={seed}')
    return random.Random(int(seed))


@contextlib.contextmanager
def serving(directory, database_url, config):
    with services.ironic(directory, database_url, services.free_port(),
                         config, kill=True) as running:
        ironic = service.Ironic(running)
        ironic.http.headers['Authorization'] = CREDENTIALS
        yield ironic


@pytest.fixture
def without_authentication(tmp_path):
    with serving(tmp_path, f'sqlite:///{tmp_path}/ironic.sqlite',
                 {}) as ironic:
        yield ironic


@pytest.fixture
def password_options(tmp_path):
    users = tmp_path / 'htpasswd'
    users.write_bytes(b'admin:' + bcrypt.hashpw(b'secret', bcrypt.gensalt(4)))
    return {'DEFAULT': {'auth_strategy': 'http_basic',
                        'http_basic_auth_user_file': users}}


@pytest.fixture
def with_passwords(tmp_path, server_url, password_options):
    with services.database(server_url) as url, serving(
            tmp_path, url, password_options) as ironic:
        yield ironic


@pytest.fixture
def alone(without_authentication):
    """The application alone under uWSGI, with the same database."""
    ironic = without_authentication
    with services.uwsgi('ironic_reservations.wsgi:application',
                        ironic.conf_file, services.free_port(),
                        processes=2) as running:
        yield service.Ironic(running)


class Answers(io.BufferedReader):
    """The responses on one connection."""

    def close(self):
        """Keep the stream open for the next response."""


class Stranger:
    """Sends requests on a connection that is kept as long as possible."""

    def __init__(self, port):
        self._port, self._peer, self._answers = port, None, None

    def send(self, message, packets=1, then=b''):
        """Send a request, and return the response, or None.

        The server may have closed the connection after the last response.

        :param packets: number of packets, sent slowly if there are several.
        :param then: a GET that is sent directly after it.
        """
        is_reused = self._peer is not None
        response = self._send(message, packets, then)
        if response is None and is_reused:
            return self._send(message, packets, then)
        return response

    def _send(self, message, packets, then):
        try:
            if self._peer is None:
                self._peer = socket.create_connection(
                    ('127.0.0.1', self._port), 60)
                self._answers = Answers(socket.SocketIO(self._peer, 'r'))
            data = bytes(message) + then
            size = -(-len(data) // packets)
            for first in range(0, len(data), size):
                self._peer.sendall(data[first:first + size])
                time.sleep(SLOW * (packets > 1))
            response = self._receive(message.method.upper())
        except (ConnectionError, http.client.HTTPException):
            self.close()
            return None
        if then and self._peer is not None:
            # It has a response of its own, or none at all.
            with contextlib.suppress(ConnectionError,
                                     http.client.BadStatusLine):
                contract.check(self._receive('GET'))
        if message.is_broken:
            self.close()
        return response

    def _receive(self, method):
        answer = http.client.HTTPResponse(
            types.SimpleNamespace(makefile=lambda mode: self._answers),
            method=method)
        answer.begin()
        response = requests.Response()
        response._content = answer.read()
        response.status_code = answer.status
        response.headers.update(answer.getheaders())
        response.request = types.SimpleNamespace(method=method)
        if answer.will_close:
            self.close()
        return response

    def close(self):
        if self._peer is not None:
            self._peer.close()
            self._peer = None


def is_refusal(response):
    return response is None or response.status_code >= 400


def judge(message, response, is_authorized, verbatim):
    """Check the response to a request against the contract.

    :param verbatim: whether the server passes the request on unchanged. uWSGI
        gives the application an empty body instead of a chunked one, and
        resolves ".." in a path.
    """
    if not verbatim and (message.is_chunked or '..' in message.path
                         or '%2e' in message.path or '//' in message.path):
        return
    if message.is_broken or not generator.is_ours(message):
        return
    if message.method == 'post':
        # The server does not know this method.
        assert is_refusal(response)
        return
    if response is None:
        # If a body is not read completely, the response may be lost.
        assert (message.is_chunked
                or len(message.body or b'') > limits.MAX_BODY)
        return
    contract.check(response)
    if not is_authorized:
        # The version is checked before the credentials.
        assert response.status_code in (401, 406), response.text
        return
    is_refused = generator.verdict(message)
    if is_refused is not None:
        assert (response.status_code not in (200, 201, 409, 412, 422)
                ) is is_refused, (
            f'{response.status_code} {response.text}')


def besiege(ironic, pick, how_many, passwords=False, verbatim=True):
    enrol(ironic)
    stranger, before = Stranger(ironic.port), hold(ironic)
    grown_from = None
    seen = collections.Counter()
    for number in range(how_many):
        message = generator.request(pick)
        is_authorized = not passwords or pick.random() < 0.8
        if passwords:
            header = CREDENTIALS if is_authorized else pick.choice(WRONG)
            if header:
                message.headers['Authorization'] = header
        kind = pick.random()
        response = stranger.send(
            message, packets=5 if kind < 0.01 else 1,
            then=GET if not message.is_broken and 0.01 < kind < 0.05 else b'')
        try:
            judge(message, response, is_authorized, verbatim)
        except AssertionError as error:
            error.add_note(f'{number}: {bytes(message)[:2000]}')
            raise
        if response is not None and response.status_code == 201:
            # Its lease may be one second.
            reservation = response.json()
            ironic.delete(reservation.get('instance_uuid')
                          or f'groups/{reservation["uuid"]}', (204, 404))
        elif not is_refusal(response) and message.method in (
                'POST', 'PUT', 'PATCH', 'DELETE'):
            # It may have changed a reservation or a host lease.
            before = hold(ironic)
        assert ironic.state() == before, bytes(message)[:2000]
        seen[None if response is None else response.status_code] += 1
        if number == how_many // 3:
            grown_from = memory(ironic)
    stranger.close()
    print(seen)
    assert ironic.process.poll() is None
    assert memory(ironic) - grown_from < GROWTH
    # Otherwise most requests would be refused for the same reason.
    assert {200, 201, 400, 404, 405, 406, 409, 412, 413, 415, 422} <= (
        seen.keys())


def memory(ironic):
    """Return the resident bytes of all processes of the service."""
    process = psutil.Process(ironic.process.pid)
    return sum(child.memory_info().rss for child in (
        process, *process.children(recursive=True)))


def hold(ironic):
    """Hold a node for the known instance, and return the state.

    An adopted reservation has another request spec.
    """
    ironic.delete(generator.KNOWN, (204, 404))
    ironic.create(instance_uuid=generator.KNOWN,
                  resource_class=generator.NODE_CLASS, host='compute-1')
    return ironic.state()


def enrol(ironic):
    """Insert three nodes."""
    for number in (1, 2, 3):
        ironic.execute(
            'INSERT INTO nodes (uuid, name, driver, provision_state, '
            'power_state, maintenance, resource_class, conductor_group, '
            'properties, instance_info) VALUES (:u, :n, :d, :p, :o, :m, :c, '
            "'', :s, '{}')", u=str(uuid.uuid4()), n=f'hostile-{number}',
            d='fake-hardware', p='available', o='power off', m=False,
            c=generator.NODE_CLASS, s='{"memory_mb": 1024}')


@pytest.mark.timeout(3600)
def test_without_authentication(without_authentication, pick, how_many):
    besiege(without_authentication, pick, how_many)


@pytest.mark.timeout(3600)
def test_with_passwords(with_passwords, pick, how_many):
    besiege(with_passwords, pick, how_many, passwords=True)


@pytest.mark.timeout(3600)
def test_application_alone(alone, pick, how_many):
    workers = alone.workers()
    besiege(alone, pick, how_many, verbatim=False)
    assert alone.workers() == workers


@pytest.mark.timeout(3600)
def test_openapi(tmp_path, password_options, pick, how_many):
    """Schemathesis derives requests and their responses from the document."""
    with serving(tmp_path, f'sqlite:///{tmp_path}/ironic.sqlite',
                 password_options) as ironic:
        enrol(ironic)
        print(programs.run(
            services.program('schemathesis'), '--config-file', CONFIGURATION,
            'run', openapi.PATH, '--url', ironic.url,
            '--auth', 'admin:secret', '--max-examples', str(how_many // 200),
            '--seed', str(pick.randrange(2 ** 32)), '--no-color',
            cwd=tmp_path))
        assert ironic.process.poll() is None
