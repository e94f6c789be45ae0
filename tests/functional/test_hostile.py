# SPDX-License-Identifier: Apache-2.0
"""Bytes that are hardly HTTP, and bad requests, one of each kind."""

import socket

import pytest

from tests.api import bad_requests
from tests.functional import answers

OURS, LIMIT = bad_requests.OURS, bad_requests.LIMIT


@pytest.fixture(scope='module')
def fleet(ironic):
    with bad_requests.fleet(ironic) as nodes:
        yield nodes


@pytest.fixture
def untouched(ironic, fleet):
    """Nothing has changed, and nobody has died, when a test is over."""
    before, workers = ironic.state(), ironic.workers()
    yield
    assert ironic.state() == before
    answers.check(ironic.http.get(f'{OURS}?limit=1'), 200)
    assert ironic.workers() == workers


#: Of each kind of bad request one; all of them are sent in tests/api.
KINDS = (
    'unfinished', 'nothing-wanted-empty', 'unknown-key-surrogate',
    'expires_in-zero', 'memory-5000-digits', 'memory_mb-nan',
    'host-too-long', 'image.properties-nul', 'instance_uuid-undashed',
    'expression->= x', 'two-classes', 'depth-50000', 'depth-objects',
    'open-string', 'one-byte-too-long', 'brackets-too-long',
    'encoding-utf-16', 'encoding-raw-nul', 'type-none', 'type-\xff',
    'query-host=%ff', 'query-delete-host=', 'capacity-host=%00',
    'path-not-utf-8', 'path-below-far', 'path-quoted-slash',
    'method-FOO-all', 'method-PATCH-one', 'version-1.\xb2')


@pytest.mark.parametrize('row', [
    pytest.param(row, id=ascii(row.id)[1:-1])
    for row in bad_requests.ROWS if row.id in KINDS])
def test_refused(ironic, untouched, row):
    fault = answers.check(bad_requests.send(ironic.http, row), row.status)
    assert row.field is None or row.field in fault


def test_each_kind_is_there():
    assert set(KINDS) <= {row.id for row in bad_requests.ROWS}


def chunks(*parts):
    yield from parts


@pytest.mark.parametrize('chunk', [b'x' * (LIMIT + 1), b'[' * 100000])
def test_body_of_unknown_length_is_bounded(ironic, untouched, chunk):
    response = ironic.http.post(OURS, data=chunks(b'{"name": "', chunk),
                                headers={'Content-Type': 'application/json'})
    assert 'body' in answers.check(response, 413)


def test_body_of_unknown_length_is_checked(ironic, untouched):
    response = ironic.http.post(
        OURS, data=chunks(b'{"resource_class"', b': "x", "foo": 1}'),
        headers={'Content-Type': 'application/json'})
    assert 'foo' in answers.check(response, 400)


def exchange(ironic, request):
    """What the server says to bytes that are hardly HTTP."""
    with socket.create_connection(('127.0.0.1', ironic.port), 30) as peer:
        peer.sendall(request)
        peer.shutdown(socket.SHUT_WR)
        answer = b''
        try:
            while part := peer.recv(65536):
                answer += part
        except ConnectionResetError:
            pass
        return answer


def test_nothing_follows_an_answer_without_content(ironic, fleet):
    response = ironic.http.post(OURS, json=bad_requests.wanted())
    answers.check(response, 201)
    answer = exchange(ironic, (
        f'DELETE {OURS}/{response.json()["instance_uuid"]} HTTP/1.1\r\n'
        f'Host: x\r\n\r\n').encode())
    head, _, rest = answer.partition(b'\r\n\r\n')
    assert head.startswith(b'HTTP/1.1 204 ')
    # A client would take it for the beginning of the next answer.
    assert rest == b''


RAW_POST = (b'POST /v1/reservations HTTP/1.1\r\nHost: x\r\n'
            b'Content-Type: application/json\r\n')


@pytest.mark.parametrize('request_bytes', [
    pytest.param(request_bytes, id=id) for id, request_bytes in {
        'path-of-bytes': b'GET /v1/reservations/\xff\xfe HTTP/1.1\r\n'
                         b'Host: x\r\n\r\n',
        'query-of-bytes': b'GET /v1/reservations?host=\xff HTTP/1.1\r\n'
                          b'Host: x\r\n\r\n',
        'length-is-a-word': RAW_POST + b'Content-Length: abc\r\n\r\n{}',
        'length-is-negative': RAW_POST + b'Content-Length: -1\r\n\r\n{}',
        'length-is-huge': RAW_POST + b'Content-Length: ' + b'9' * 30
                          + b'\r\n\r\n{}',
        'no-length': RAW_POST + b'\r\n{"resource_class": "test-input"}',
        'too-short': RAW_POST + b'Content-Length: 100\r\n\r\n'
                     b'{"resource_class": ',
        'chunk-of-words': RAW_POST + b'Transfer-Encoding: chunked\r\n\r\n'
                          b'xyz\r\n{}\r\n0\r\n\r\n',
        'unknown-coding': RAW_POST + b'Transfer-Encoding: gzip\r\n\r\n{}',
    }.items()])
def test_hardly_http(ironic, untouched, request_bytes):
    answer = exchange(ironic, request_bytes)
    # Much of this the web server refuses before it reaches us.
    assert not answer or answer.split(b' ')[1][:1] in b'45', answer
    assert not answers.LEAK.search(answer.decode('latin-1'))
    if b'Ironic-API-Version' in answer:
        assert answer.split(b' ')[1][:1] == b'4', answer


def test_huge_body(ironic, untouched):
    head = RAW_POST + b'Content-Length: 50000000\r\n\r\n'
    try:
        answer = exchange(ironic, head + b'[' * 5000000)
    except (BrokenPipeError, ConnectionResetError):
        return  # Refused and hung up before we had said it all.
    assert not answer or b' 413 ' in answer.partition(b'\r\n')[0]
