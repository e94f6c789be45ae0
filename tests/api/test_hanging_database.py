# SPDX-License-Identifier: Apache-2.0
"""A database that does not answer delays only the requests that use it."""

import concurrent.futures
import contextlib
import threading

import pytest
import sqlalchemy as sa

from ironic_reservations.db import engine
from tests.common import contract
from tests.common import service

OURS = '/v1/reservations'
POOL = [{}] * 3


@contextlib.contextmanager
def hang_at(containing):
    """Hang at the next statement that contains a text.

    Yields two events: the statement was sent, and it may be answered.
    """
    database, first = engine.get_engine(), threading.Lock()
    is_sent, may_answer = threading.Event(), threading.Event()

    def hang(connection, cursor, text, *args):
        if containing in text and first.acquire(blocking=False):
            is_sent.set()
            assert may_answer.wait(20)

    sa.event.listen(database, 'before_cursor_execute', hang)
    try:
        yield is_sent, may_answer
    finally:
        sa.event.remove(database, 'before_cursor_execute', hang)


def test_others_are_answered_at_their_deadline(ironic, pool, start):
    """They wait for the same count of the fleet."""
    def ask(url):
        return service.Http(url).request(
            'GET', f'{OURS}/capacity', headers=service.FRESH)

    # The first count of a process takes another path.
    ironic.capacity()
    with start({'reservations': {'deadline': 1}}) as application, \
            hang_at('AS column_0') as (is_sent, may_answer), \
            concurrent.futures.ThreadPoolExecutor(1) as executor:
        one = executor.submit(ask, application.url)
        assert is_sent.wait(30)
        other = ask(application.url)
        # The first one hangs for as long as the database does.
        assert not one.done()
        may_answer.set()
        assert 'try again' in contract.check(other, 503)
        assert other.headers['Retry-After'] == '5'
        contract.check(one.result(60), 200)
        # The refused request has no lasting effect.
        contract.check(ask(application.url), 200)


def test_other_holds_do_not_wait_for_a_page_of_nodes(
        ironic, pool, node_class, start):
    def ask(url):
        return service.Http(url).request(
            'POST', OURS, json={'resource_class': node_class})

    ironic.capacity()
    with start({}) as application, \
            hang_at('nodes.id IN') as (is_sent, may_answer), \
            concurrent.futures.ThreadPoolExecutor(1) as executor:
        one = executor.submit(ask, application.url)
        assert is_sent.wait(30)
        contract.check(ask(application.url), 201)
        assert not one.done()
        may_answer.set()
        contract.check(one.result(60), 201)


@pytest.mark.on('server')
def test_only_locked_nodes_are_left(ironic, pool, node_class, start):
    """The request says so, and is not refused as one that nothing matches."""
    ironic.capacity()
    with start({'reservations': {'deadline': 2}}) as application:
        with ironic.engine.connect() as connection:
            connection.execute(sa.text(
                'SELECT id FROM nodes WHERE resource_class = :c FOR UPDATE'),
                {'c': node_class})
            for _ in range(2):
                response = application.http.post(
                    OURS, json={'resource_class': node_class})
                assert 'locked' in contract.check(response, 503)
                assert response.headers['Retry-After'] == '5'
        application.create(resource_class=node_class)


@pytest.mark.on('server')
@pytest.mark.parametrize('statement', [
    'LOCK TABLES nodes READ', 'FLUSH TABLES WITH READ LOCK'])
def test_tables_are_locked(ironic, pool, node_class, start, monkeypatch,
                           statement):
    """As by a dump that is not a single transaction."""
    database = engine.get_engine()
    monkeypatch.setattr(engine, '_TABLE_WAIT', 1)
    database.dispose()
    with start({'reservations': {'deadline': 1}}) as application:
        with ironic.engine.connect() as connection:
            connection.exec_driver_sql(statement)
            response = application.http.post(
                OURS, json={'resource_class': node_class})
            contract.check(response, 503)
            assert response.headers['Retry-After'] == '5'
            assert application.list() == []
            connection.exec_driver_sql('UNLOCK TABLES')
        application.create(resource_class=node_class)
    database.dispose()
