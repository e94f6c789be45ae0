# SPDX-License-Identifier: Apache-2.0
"""Bytes that are hardly HTTP, with a real web server."""

import socket

import psutil
import pytest

from tests.common import answers
from tests.common import bad_requests

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
    answers.check(ironic.http.get(f'{OURS}?limit=1'), 200)
    assert ironic.workers() == workers


def chunks(*parts):
    yield from parts


@pytest.mark.parametrize('chunk', [b'x' * (LIMIT + 1), b'[' * 100000])
def test_body_of_unknown_length_is_bounded(ironic, same_state, chunk):
    response = ironic.http.post(OURS, data=chunks(b'{"name": "', chunk),
                                headers={'Content-Type': 'application/json'})
    assert 'body' in answers.check(response, 413)


def test_body_of_unknown_length_is_checked(ironic, same_state):
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
    response = ironic.http.post(OURS, json=bad_requests.body_with())
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
def test_hardly_http(ironic, same_state, request_bytes):
    answer = exchange(ironic, request_bytes)
    # Much of this the web server refuses before it reaches us.
    assert not answer or answer.split(b' ')[1][:1] in b'45', answer
    if b'Content-Length: -1' in request_bytes:
        assert answer.split(b' ')[1] == b'400', answer
    assert not answers.LEAK.search(answer.decode('latin-1'))
    if b'Ironic-API-Version' in answer:
        assert answer.split(b' ')[1][:1] == b'4', answer


def test_huge_body(ironic, same_state):
    head = RAW_POST + b'Content-Length: 50000000\r\n\r\n'
    try:
        answer = exchange(ironic, head + b'[' * 5000000)
    except (BrokenPipeError, ConnectionResetError):
        return  # Refused and hung up before we had said it all.
    assert not answer or b' 413 ' in answer.partition(b'\r\n')[0]


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
    """Ironic's server reads a chunk whole, whatever we do; then it goes."""
    process, chunk = psutil.Process(ironic.process.pid), 50 * 2 ** 20
    body = CHUNKED + b'%x\r\n' % chunk + b'[' * chunk + b'\r\n0\r\n\r\n'
    answers.check(ironic.http.get(f'{OURS}?limit=1'), 200)
    before = process.memory_info().rss
    for _ in range(6):
        assert b' 413 ' in exchange(ironic, body).partition(b'\r\n')[0]
    # One of them may be there until its connection ends.
    assert process.memory_info().rss - before < 2 * chunk


@pytest.mark.long
def test_body_that_stalls(ironic, same_state):
    """One answer, and the end of the connection."""
    for body in (b'Content-Length: 100\r\n\r\n{"a"',
                 b'Transfer-Encoding: chunked\r\n\r\n10\r\n{"a"'):
        with socket.create_connection(('127.0.0.1', ironic.port), 60) as peer:
            peer.sendall(RAW_POST + body)
            answer = b''
            while part := peer.recv(65536):
                answer += part
        assert answer.count(b'HTTP/1.1 ') == 1, answer
        assert answer.startswith(b'HTTP/1.1 408 '), answer


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
def test_nothing_of_a_body_is_the_next_request(ironic, same_state, head,
                                               body):
    """Whether or not anybody reads it: there is one answer, and no more."""
    answer = exchange(ironic, head + body)
    assert answer.count(b'HTTP/1.1 ') == 1, answer
    assert b'\r\nConnection: close\r\n' in answer
