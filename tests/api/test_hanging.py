# SPDX-License-Identifier: Apache-2.0
"""A database that does not answer: only those wait who have asked it."""

import concurrent.futures
import contextlib
import threading

import pytest
import sqlalchemy as sa

from ironic_reservations.db import engine as db_engine
from tests.common import answers
from tests.common import service

OURS = '/v1/reservations'
POOL = [{}] * 3


@contextlib.contextmanager
def hanging(containing):
    """The next statement that contains a text is not answered for long.

    :returns: two Events: it was sent, and it is to be answered.
    """
    engine, first = db_engine.get_engine(), threading.Lock()
    asked, answered = threading.Event(), threading.Event()

    def hang(connection, cursor, text, *args):
        if containing in text and first.acquire(blocking=False):
            asked.set()
            assert answered.wait(20)

    sa.event.listen(engine, 'before_cursor_execute', hang)
    try:
        yield asked, answered
    finally:
        sa.event.remove(engine, 'before_cursor_execute', hang)


@pytest.mark.parametrize('method, path, containing', [
    # A page of the nodes of a hardware profile.
    ('POST', OURS, 'BETWEEN'),
    # The count of the fleet.
    ('GET', f'{OURS}/capacity', 'GROUP BY'),
], ids=['shelf', 'count'])
def test_others_are_answered_at_their_deadline(
        ironic, pool, node_class, start, method, path, containing):
    def ask(url):
        return service.Http(url).request(
            method, path, headers=service.FRESH,
            json={'resource_class': node_class} if method == 'POST' else None)

    # Another has asked before, lest this one be the first of the process.
    ironic.capacity()
    with start({'reservations': {'deadline': 1}}) as hurried, \
            hanging(containing) as (asked, answered), \
            concurrent.futures.ThreadPoolExecutor(1) as executor:
        one = executor.submit(ask, hurried.url)
        assert asked.wait(30)
        other = ask(hurried.url)
        # The first one hangs for as long as the database does.
        assert not one.done()
        answered.set()
        assert 'try again' in answers.check(other, 503)
        assert other.headers['Retry-After'] == '5'
        answers.check(one.result(60), (200, 201))
        # Nothing is left of the one that was refused.
        answers.check(ask(hurried.url), (200, 201))
