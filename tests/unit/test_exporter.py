# SPDX-License-Identifier: Apache-2.0
"""Clients of the exporter that are many, or slow."""

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
def serving(app, **options):
    with exporter.Server('127.0.0.1', 0, app, **options) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


def get(port):
    return requests.get(f'http://127.0.0.1:{port}/metrics', timeout=60)


def connect(port):
    return socket.create_connection(('127.0.0.1', port), timeout=60)


def ended(client):
    """Wait until the server ends a connection, and say whether it does."""
    with contextlib.suppress(ConnectionResetError):
        return client.recv(1) == b''
    return True


def test_clients_are_bounded():
    with serving(hello) as port, contextlib.ExitStack() as stack:
        for _ in range(exporter.CLIENTS):
            stack.enter_context(connect(port)).sendall(b'GET')
        assert ended(stack.enter_context(connect(port)))
        threads = [thread for thread in threading.enumerate()
                   if 'process_request' in thread.name]
        assert len(threads) == exporter.CLIENTS


@pytest.mark.parametrize('of_what', ['process_request', 'Timer'])
def test_client_for_whom_there_is_no_thread(monkeypatch, of_what):
    """It takes no other's place."""
    begin, refused = threading.Thread.start, []

    def start(thread):
        name = f'{thread.name} {type(thread).__name__}'
        if of_what in name and len(refused) < exporter.CLIENTS:
            refused.append(name)
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, 'start', start)
    with serving(hello) as port:
        for _ in range(exporter.CLIENTS):
            with connect(port) as client:
                assert ended(client)
        assert get(port).text == 'hello'


@pytest.mark.parametrize('options', [{'stalled': 0.1}, {'longest': 0.1}],
                         ids=str)
def test_slow_client_is_cut_off(options):
    with serving(hello, **options) as port, connect(port) as client:
        client.sendall(b'GET')
        assert ended(client)
        assert get(port).text == 'hello'


def test_one_scrape_at_a_time():
    scraping, go_on = threading.Event(), threading.Event()

    def slow(environ, start_response):
        scraping.set()
        go_on.wait(60)
        return hello(environ, start_response)

    found = []
    with serving(exporter.one_at_a_time(slow, patience=0.1)) as port:
        first = threading.Thread(target=lambda: found.append(get(port)))
        first.start()
        scraping.wait(60)
        second = get(port)
        assert (second.status_code, second.headers['Retry-After']) == (
            503, '5')
        go_on.set()
        first.join()
        assert get(port).text == found[0].text == 'hello'
