# SPDX-License-Identifier: Apache-2.0
"""A database that does not answer delays only the requests that use it."""

import concurrent.futures
import contextlib
import threading

import pytest
import sqlalchemy as sa

from ironic_reservations.db import engine
from tests.common import answers
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


@pytest.mark.parametrize('method, path, containing', [
    # A page of the nodes of a hardware profile.
    ('POST', OURS, 'BETWEEN'),
    # The count of the fleet.
    ('GET', f'{OURS}/capacity', 'AS column_0'),
], ids=['shelf', 'count'])
def test_others_are_answered_at_their_deadline(
        ironic, pool, node_class, start, method, path, containing):
    def ask(url):
        return service.Http(url).request(
            method, path, headers=service.FRESH,
            json={'resource_class': node_class} if method == 'POST' else None)

    # The first count of a process takes another path.
    ironic.capacity()
    with start({'reservations': {'deadline': 1}}) as application, \
            hang_at(containing) as (is_sent, may_answer), \
            concurrent.futures.ThreadPoolExecutor(1) as executor:
        one = executor.submit(ask, application.url)
        assert is_sent.wait(30)
        other = ask(application.url)
        # The first one hangs for as long as the database does.
        assert not one.done()
        may_answer.set()
        assert 'try again' in answers.check(other, 503)
        assert other.headers['Retry-After'] == '5'
        answers.check(one.result(60), (200, 201))
        # The refused request has no lasting effect.
        answers.check(ask(application.url), (200, 201))
