# SPDX-License-Identifier: Apache-2.0
"""Idle and slow clients of the documented setup."""

import contextlib
import json
import pathlib
import resource
import socket
import uuid

import pytest
import requests

from ironic_reservations import conf
from tests.common import servers
from tests.survival import clients
from tools import services

EXAMPLES = pathlib.Path(__file__).parents[2] / 'doc/source/examples'
IDLE, SLOW = 1000, 100
SPEC = {'resource_class': 'gold', 'memory_mb': 512}


def write_config(name, directory, **replacements):
    """Write a file of the documentation with other addresses."""
    text = (EXAMPLES / name).read_text()
    for old, new in replacements.items():
        assert old in text
        text = text.replace(old, new)
    path = directory / name
    path.write_text(text)
    return str(path)


@pytest.fixture
def fleet(create_schema, tmp_path):
    fleet = create_schema(f'sqlite:///{tmp_path}/ironic.sqlite')
    fleet.fill(1010)
    fleet.execute('UPDATE nodes SET instance_uuid = uuid WHERE id <= 1000')
    fleet.execute(
        'INSERT INTO reservations (instance_uuid, node_id, node_uuid, '
        'request_spec, created_at) SELECT uuid, id, uuid, :spec, '
        'CURRENT_TIMESTAMP FROM nodes WHERE id <= 1000',
        {'spec': json.dumps({'name': 'x' * 1000})})
    return fleet


@pytest.fixture
def proxy(fleet, conf_file, tmp_path):
    """The port of HAProxy in front of uWSGI."""
    front, back, ironic = (services.free_port() for _ in range(3))
    uwsgi = write_config('uwsgi.ini', tmp_path, **{
        '127.0.0.1:6386': f'127.0.0.1:{back}'})
    haproxy = write_config('haproxy.cfg', tmp_path, **{
        '127.0.0.1:6380': f'127.0.0.1:{front}',
        '127.0.0.1:6386': f'127.0.0.1:{back}',
        '127.0.0.1:6385': f'127.0.0.1:{ironic}'})
    with services.running(
            [services.program('uwsgi'), '--ini', uwsgi],
            f'{tmp_path}/uwsgi.log', f'http://127.0.0.1:{back}',
            {conf.FILES_VARIABLE: conf_file(str(fleet.engine.url))}), \
        services.running(
            [servers.find_program('haproxy'), '-db', '-f', haproxy],
            f'{tmp_path}/haproxy.log', f'http://127.0.0.1:{front}'):
        yield front


@pytest.fixture
def connect(proxy):
    """Return a function that opens a connection until the end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as stack:
        def open_one():
            sock = stack.enter_context(socket.socket())
            # A small buffer for unread data.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(60)
            sock.connect(('127.0.0.1', proxy))
            return sock
        yield open_one
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def get(limit):
    return (f'GET {clients.OURS}?limit={limit} HTTP/1.1\r\n'
            'Host: localhost\r\n')


POST = (f'POST {clients.OURS} HTTP/1.1\r\nHost: localhost\r\n'
        'Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n')

#: Incomplete requests of slow clients; the last reads no response.
PARTIAL = ['GET /v1/', get(1), POST, POST + '{"memory_mb": ',
           POST.replace('1000', '60000') + 20000 * ' ', get(1000) + '\r\n']


def test_idle_and_slow_clients(proxy, connect):
    def use(sock):
        sock.sendall(f'{get(1)}\r\n'.encode())
        assert sock.recv(4096).startswith(b'HTTP/1.1 200')

    idle = []
    for _ in range(IDLE):
        idle.append(connect())
        use(idle[-1])
    for text in PARTIAL * (SLOW // len(PARTIAL)):
        connect().sendall(text.encode())

    url = f'http://127.0.0.1:{proxy}{clients.OURS}'
    for _ in range(20):
        instance = str(uuid.uuid4())
        answer = requests.post(url, timeout=10, json={
            **SPEC, 'instance_uuid': instance})
        assert answer.status_code == 201
        answer = requests.delete(f'{url}/{instance}', timeout=10)
        assert answer.status_code == 204
    # Idle connections can still be used, as long as HAProxy keeps them.
    for sock in idle[-100:]:
        use(sock)
