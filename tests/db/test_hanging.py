# SPDX-License-Identifier: Apache-2.0
"""Waits for what another thread of the process has, and their end."""

import concurrent.futures
import contextlib
import socket
import threading
import time

from oslo_db import exception as db_exc
import pytest
import sqlalchemy as sa

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations.db import counting
from ironic_reservations.db import engine
from ironic_reservations.fleet import count as counts
from ironic_reservations.fleet import profiles
from ironic_reservations.reservations import expiry
from tests.db import conftest


def test_first_count_of_a_process(fleet, option):
    """Without a count there is nothing to go on with."""
    option(deadline=1)
    asked, answered = threading.Event(), threading.Event()

    def count():
        asked.set()
        assert answered.wait(20)
        return profiles.Fleet(())

    latest = counts.Latest(lambda: iter([(count, False)]))
    with another(engine.retry(latest.recent)) as first:
        assert asked.wait(30)
        with pytest.raises(exception.DeadlineExceeded):
            engine.retry(latest.recent)()
        assert not first.done()
        answered.set()
        assert first.result(60)[0] is latest.recent()[0]


def test_fleet_that_takes_too_long_to_count(fleet, option, monkeypatch):
    """Who must have counted all of it is told so; others hold by a part."""
    fleet.add(*[{}] * 4)
    option(deadline=1)
    monkeypatch.setattr(counting, 'PAGE', 1)
    monkeypatch.setattr(counts, 'AT_ONCE', 0)
    counted = []

    def slowly():
        for part in counts.parts():
            counted.append(part)
            time.sleep(0.6)
            yield part

    latest = counts.Latest(slowly)
    with pytest.raises(exception.DeadlineExceeded, match='counted'):
        engine.retry(latest.at_most)(0)
    enough = len(counted)
    assert enough < 3
    # What is counted is not lost: the next request goes on with it.
    assert engine.retry(latest.recent)()[0].total == enough + 1


def test_first_connection_of_a_process(option, monkeypatch):
    """The host takes it, and says nothing: it is frozen."""
    option(deadline=1)
    with socket.create_server(('127.0.0.1', 0)) as server, configured(
            connection=f'mysql+pymysql://ironic@127.0.0.1:'
                       f'{server.getsockname()[1]}/ironic?read_timeout=5'):
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
    with configured(max_pool_size=1, max_overflow=0):
        small = conftest.connect(database.url)
    monkeypatch.setattr(engine, 'get_engine', lambda: small)
    asked, answered = threading.Event(), threading.Event()

    @engine.retry
    def hang():
        asked.set()
        assert answered.wait(20)

    with another(hang) as first:
        assert asked.wait(30)
        with pytest.raises(sa.exc.TimeoutError):
            expiry.find_overdue()
        assert not first.done()
        answered.set()
        first.result(60)
    assert expiry.find_overdue() == []
    small.dispose()


@pytest.mark.on('server')
def test_connection_lost_and_none_left(database, monkeypatch, option):
    """What is run again waits for what is left of its time only."""
    option(deadline=2)
    with configured(max_pool_size=1, max_overflow=0):
        small = conftest.connect(database.url)
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
        # This waits for the connection, and has it as soon as it is lost.
        engine.retry(lambda: time.sleep(2))()
        with pytest.raises(sa.exc.TimeoutError):
            loser.result(60)
    assert len(runs) == 1
    small.dispose()


@contextlib.contextmanager
def another(function):
    """A thread that runs a function: its future."""
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        yield executor.submit(function)


@contextlib.contextmanager
def configured(**options):
    """Other values of options of [database] while it lasts."""
    for name, value in options.items():
        conf.CONF.set_override(name, value, group='database')
    try:
        yield
    finally:
        for name in options:
            conf.CONF.clear_override(name, group='database')
