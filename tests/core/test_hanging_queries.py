# SPDX-License-Identifier: Apache-2.0
"""Waits for results of another thread of the process, and their end."""

import concurrent.futures
import contextlib
import socket
import threading
import time

from oslo_db import exception as db_exc
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations.db import engine
from ironic_reservations.db import node_counts
from ironic_reservations.fleet import counts
from ironic_reservations.fleet import profiles
from ironic_reservations.reservations import expiry
from tests.common import application
from tests.common import fleets

SMALL_POOL = {'database': {'max_pool_size': 1, 'max_overflow': 0}}


def test_first_count_of_a_process(fleet, option):
    """There is no earlier count that the second request could use."""
    option(deadline=1)
    is_running, answer = threading.Event(), threading.Event()

    def count_slowly():
        is_running.set()
        assert answer.wait(20)
        return profiles.Fleet(())

    latest = counts.Latest(lambda: iter([(count_slowly, False)]))
    with another(engine.retry(latest.get_recent)) as first:
        assert is_running.wait(30)
        with pytest.raises(exception.DeadlineExceeded):
            engine.retry(latest.get_recent)()
        assert not first.done()
        answer.set()
        assert first.result(60)[0] is latest.get_recent()[0]


def test_fleet_that_takes_too_long_to_count(fleet, option, monkeypatch):
    """A request for the whole count fails; other requests use a part."""
    fleet.add(*[{}] * 4)
    option(deadline=1)
    monkeypatch.setattr(node_counts, 'PAGE', 1)
    monkeypatch.setattr(counts, 'AT_ONCE', 0)
    parts = []

    def slowly():
        for part in counts.count_parts():
            parts.append(part)
            time.sleep(0.6)
            yield part

    latest = counts.Latest(slowly)
    with pytest.raises(exception.DeadlineExceeded, match='counted'):
        engine.retry(latest.get_fleet)(0)
    number = len(parts)
    assert number < 3
    # The next request continues this count.
    assert engine.retry(latest.get_recent)()[0].total == number + 1


def test_first_connection_of_a_process(option, monkeypatch):
    """The server accepts it, but never sends a byte."""
    option(deadline=1)
    with socket.create_server(('127.0.0.1', 0)) as server, \
            application.set_options({'database': {
                'connection': 'mysql+pymysql://ironic@127.0.0.1:'
                f'{server.getsockname()[1]}/ironic?read_timeout=5'}}):
        with another(expiry.find_overdue) as first:
            connection, _ = server.accept()
            with connection, pytest.raises(exception.DeadlineExceeded):
                expiry.find_overdue()
            assert not first.done()
            server.close()
            with pytest.raises(db_exc.DBConnectionError):
                first.result(60)


@pytest.mark.on('server')
def test_no_connection_left(database, monkeypatch, option):
    option(deadline=1)
    with application.set_options(SMALL_POOL):
        small = fleets.connect(database.url)
    monkeypatch.setattr(engine, 'get_engine', lambda: small)
    is_running, answer = threading.Event(), threading.Event()

    @engine.retry
    def hang():
        is_running.set()
        assert answer.wait(20)

    with another(hang) as first:
        assert is_running.wait(30)
        with pytest.raises(sa.exc.TimeoutError):
            expiry.find_overdue()
        assert not first.done()
        answer.set()
        first.result(60)
    assert expiry.find_overdue() == []
    small.dispose()


@pytest.mark.on('server')
def test_connection_lost_and_none_left(database, monkeypatch, option):
    """A retry waits only for the remaining time of its request."""
    option(deadline=2)
    with application.set_options(SMALL_POOL):
        small = fleets.connect(database.url)
    monkeypatch.setattr(engine, 'get_engine', lambda: small)
    runs = []

    @engine.retry
    def lose():
        runs.append(lose)
        time.sleep(1.5)
        raise db_exc.DBConnectionError()

    with another(lose) as loser:
        while not runs:
            time.sleep(0.01)
        # This gets the connection as soon as the other thread has lost it.
        engine.retry(lambda: time.sleep(2))()
        with pytest.raises(sa.exc.TimeoutError):
            loser.result(60)
    assert len(runs) == 1
    small.dispose()


@contextlib.contextmanager
def another(function):
    """Run a function in a thread; yield its future."""
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        yield executor.submit(function)
