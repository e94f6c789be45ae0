# SPDX-License-Identifier: Apache-2.0
"""Clients of the exporter that are slow, or several at a time."""

import contextlib
import socket
import threading

import pytest
import requests

from ironic_reservations.cmd import exporter


def hello(environ, start_response):
    start_response('200 OK', [('Content-Type', 'text/plain')])
    return [b'hello']


@contextlib.contextmanager
def serving(app, address='127.0.0.1', **options):
    with exporter.make_server(address, 0, app, **options) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


def get(port, host='127.0.0.1'):
    return requests.get(f'http://{host}:{port}/metrics', timeout=60)


def test_stalled_client_is_disconnected(capfd):
    with serving(hello, timeout=0.1) as port, socket.create_connection(
            ('127.0.0.1', port), timeout=60) as client:
        client.sendall(b'GET')
        assert client.recv(1) == b''
        assert get(port).text == 'hello'
    assert capfd.readouterr() == ('', '')


def test_stalled_clients_delay_no_other():
    with serving(hello) as port, contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.create_connection(
                ('127.0.0.1', port), timeout=60)).sendall(b'GET')
        assert get(port).text == 'hello'


def test_ipv6():
    try:
        socket.create_server(('::1', 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f'no IPv6: {error}')
    with serving(hello, '::1') as port:
        assert get(port, '[::1]').text == 'hello'


def test_one_scrape_at_a_time():
    scraping, go_on = threading.Event(), threading.Event()

    def slow(environ, start_response):
        scraping.set()
        go_on.wait(60)
        return hello(environ, start_response)

    responses = []
    with serving(exporter.serialize_scrapes(slow, patience=0.1)) as port:
        first = threading.Thread(target=lambda: responses.append(get(port)))
        first.start()
        scraping.wait(60)
        second = get(port)
        assert (second.status_code, second.headers['Retry-After']) == (
            503, '5')
        go_on.set()
        first.join()
        assert get(port).text == responses[0].text == 'hello'
