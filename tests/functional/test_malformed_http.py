# SPDX-License-Identifier: Apache-2.0
"""Malformed HTTP requests to a real web server."""

import pathlib
import socket

import psutil
import pytest
import requests

from tests.common import bad_requests
from tests.common import contract

OURS, LIMIT = bad_requests.OURS, bad_requests.LIMIT


@pytest.fixture(scope='module')
def fleet(ironic):
    with bad_requests.fleet(ironic) as nodes:
        yield nodes


@pytest.fixture
def same_state(ironic, fleet):
    """Check after the test that nothing changed and no worker died."""
    before, workers = ironic.state(), ironic.workers()
    yield
    assert ironic.state() == before
    contract.check(ironic.http.get(f'{OURS}?limit=1'), 200)
    assert ironic.workers() == workers


def chunks(*parts):
    yield from parts


@pytest.mark.parametrize('chunk', [b'x' * (LIMIT + 1), b'[' * 100000])
def test_body_of_unknown_length_is_bounded(ironic, same_state, chunk):
    response = ironic.http.post(OURS, data=chunks(b'{"name": "', chunk),
                                headers={'Content-Type': 'application/json'})
    assert 'body' in contract.check(response, 413)


def test_body_of_unknown_length_is_checked(ironic, same_state):
    response = ironic.http.post(
        OURS, data=chunks(b'{"resource_class"', b': "x", "foo": 1}'),
        headers={'Content-Type': 'application/json'})
    assert 'foo' in contract.check(response, 400)


def exchange(ironic, request):
    """Send bytes to the server, and return its response."""
    with socket.create_connection(('127.0.0.1', ironic.port), 30) as peer:
        peer.sendall(request)
        peer.shutdown(socket.SHUT_WR)
        output = b''
        try:
            while part := peer.recv(65536):
                output += part
        except ConnectionResetError:
            pass
        return output


def test_nothing_follows_a_response_without_content(ironic, fleet):
    response = ironic.http.post(OURS, json=bad_requests.body_with())
    contract.check(response, 201)
    output = exchange(ironic, (
        f'DELETE {OURS}/{response.json()["instance_uuid"]} HTTP/1.1\r\n'
        f'Host: x\r\n\r\n').encode())
    head, _, rest = output.partition(b'\r\n\r\n')
    assert head.startswith(b'HTTP/1.1 204 ')
    # A client would read it as the beginning of the next response.
    assert rest == b''


RAW_POST = (b'POST /v1/reservations HTTP/1.1\r\nHost: x\r\n'
            b'Content-Type: application/json\r\n')


@pytest.mark.parametrize('request_bytes', [
    pytest.param(request_bytes, id=id) for id, request_bytes in {
        'path-not-utf-8': b'GET /v1/reservations/\xff\xfe HTTP/1.1\r\n'
                          b'Host: x\r\n\r\n',
        'query-not-utf-8': b'GET /v1/reservations?host=\xff HTTP/1.1\r\n'
                           b'Host: x\r\n\r\n',
        'length-no-number': RAW_POST + b'Content-Length: abc\r\n\r\n{}',
        'length-negative': RAW_POST + b'Content-Length: -1\r\n\r\n{}',
        'length-huge': (
            RAW_POST + b'Content-Length: ' + b'9' * 30 + b'\r\n\r\n{}'),
        'no-length': RAW_POST + b'\r\n{"resource_class": "test-input"}',
        'too-short': (
            RAW_POST + b'Content-Length: 100\r\n\r\n{"resource_class": '),
        'chunk-no-number': (
            RAW_POST + b'Transfer-Encoding: chunked\r\n\r\n'
            b'xyz\r\n{}\r\n0\r\n\r\n'),
        'unknown-coding': RAW_POST + b'Transfer-Encoding: gzip\r\n\r\n{}',
    }.items()])
def test_malformed_requests(ironic, same_state, request_bytes):
    output = exchange(ironic, request_bytes)
    # The web server itself refuses many of these requests.
    assert not output or output.split(b' ')[1][:1] in b'45', output
    if b'Content-Length: -1' in request_bytes:
        assert output.split(b' ')[1] == b'400', output
    assert not contract.LEAK.search(output.decode('latin-1'))
    if b'Ironic-API-Version' in output:
        assert output.split(b' ')[1][:1] == b'4', output


def test_huge_body(ironic, same_state):
    head = RAW_POST + b'Content-Length: 50000000\r\n\r\n'
    try:
        output = exchange(ironic, head + b'[' * 5000000)
    except (BrokenPipeError, ConnectionResetError):
        return  # The server refused it before all was sent.
    assert not output or b' 413 ' in output.partition(b'\r\n')[0]


# Chunks

CHUNKED = RAW_POST + b'Transfer-Encoding: chunked\r\n\r\n'


@pytest.mark.parametrize('size', [b'ffffffffff', b'7fffffffffffffff',
                                  b'f' * 30], ids=len)
def test_chunk_larger_than_memory(ironic, same_state, size):
    head, _, rest = exchange(ironic, CHUNKED + size + b'\r\n{}').partition(
        b'\r\n\r\n')
    assert head.split(b' ')[1] in (b'400', b'413'), head
    assert b'"error_message"' in rest and rest.count(b'HTTP/1.1') == 0


def test_refused_chunks_do_not_stay_in_memory(ironic, same_state):
    """Ironic's server reads a whole chunk in any case, and then frees it."""
    process, chunk = psutil.Process(ironic.process.pid), 50 * 2 ** 20
    body = CHUNKED + b'%x\r\n' % chunk + b'[' * chunk + b'\r\n0\r\n\r\n'
    contract.check(ironic.http.get(f'{OURS}?limit=1'), 200)
    before = process.memory_info().rss
    for _ in range(6):
        assert b' 413 ' in exchange(ironic, body).partition(b'\r\n')[0]
    # One chunk may remain until its connection is closed.
    assert process.memory_info().rss - before < 2 * chunk


@pytest.mark.long
def test_body_that_stalls(ironic, same_state):
    """There is one response, and the connection is closed."""
    for body in (b'Content-Length: 100\r\n\r\n{"a"',
                 b'Transfer-Encoding: chunked\r\n\r\n10\r\n{"a"'):
        with socket.create_connection(('127.0.0.1', ironic.port), 60) as peer:
            peer.sendall(RAW_POST + body)
            output = b''
            while part := peer.recv(65536):
                output += part
        assert output.count(b'HTTP/1.1 ') == 1, output
        assert output.startswith(b'HTTP/1.1 408 '), output


INNER = b'GET /v1/reservations HTTP/1.1\r\nHost: x\r\n\r\n'


@pytest.mark.parametrize('head', [
    CHUNKED, CHUNKED.replace(b'POST', b'GET'),
    CHUNKED.replace(b'application/json', b'text/plain'),
    CHUNKED.replace(b'Host', b'X-OpenStack-Ironic-API-Version: x\r\nHost'),
    CHUNKED.replace(b'Host', b'Content-Length: 2\r\nHost')],
    ids=['POST', 'GET', 'type', 'version', 'length'])
@pytest.mark.parametrize('body', [
    b'2\r\n{}XX' + INNER, b'zz\r\n' + INNER, b'0\r\n\r\n' + INNER,
    b'%x\r\n%s\r\n0\r\n\r\n' % (len(INNER), INNER)],
    ids=['no-end-of-chunk', 'no-size', 'whole', 'chunk'])
def test_body_is_not_read_as_the_next_request(ironic, same_state, head, body):
    """There is one response, whether or not the body is read."""
    output = exchange(ironic, head + body)
    assert output.count(b'HTTP/1.1 ') == 1, output
    assert b'\r\nConnection: close\r\n' in output


# Ironic's API under uWSGI, as other projects run it

@pytest.fixture(params=[True, False], ids=['kolla-ansible', 'openstack-helm'])
def uwsgi(request, ironic, start_uwsgi):
    with start_uwsgi(ironic, processes=2, buffer=False,
                     chunks=request.param) as uwsgi:
        yield uwsgi


@pytest.mark.long
def test_uwsgi(same_state, uwsgi):
    """No request leaves a traceback in the log."""
    for row in bad_requests.ROWS:
        if '%2e%2e' in row.path:
            continue  # uWSGI resolves it.
        try:
            contract.check(bad_requests.send(uwsgi.http, row), row.status)
        except requests.ConnectionError:
            # If a body is not read, uWSGI may reset the connection.
            assert row.status in (406, 413, (413, 415)), row.id
    for method, path, body in (
            ('POST', OURS, [b'{"resource_class": "test-input"}']),
            ('POST', OURS, None), ('GET', OURS, None), ('GET', OURS, [b'x']),
            ('DELETE', bad_requests.ITEM, None),
            ('PUT', bad_requests.HOST, [b'{}']), ('GET', f'{OURS}/x/y', None)):
        response = uwsgi.http.request(
            method, path, data=body and chunks(*body), headers={
                'Content-Type': 'application/json',
                'Transfer-Encoding': 'chunked'})
        assert 'Content-Length' in contract.check(response, 411)
        assert 'close' in response.headers['Connection']
    log = pathlib.Path(uwsgi.log).read_text()
    assert 'Traceback' not in log and 'CRITICAL' not in log
