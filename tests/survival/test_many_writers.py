# SPDX-License-Identifier: Apache-2.0
"""Eight processes on one database, and workers that die."""

import contextlib
import random

import psutil
import pytest

from tests.survival import clients
from tests.survival import servers

SPEC = {'resource_class': 'gold', 'memory_mb': 512}
PROCESSES = 8


def test_all_that_clients_do(fleet, start_api, database_url, seconds):
    # With leases that end, there may be more to hold than there is.
    fleet.fill(20)
    with start_api(database_url, PROCESSES) as api:
        crowd = clients.Crowd([api.url], SPEC, may_fail=True)
        with crowd:
            crowd.work(seconds, fleet.held)
        fleet.check(crowd.holds)
    assert crowd.seen[201] and crowd.seen[204], crowd.seen
    assert any(hold.lapses for hold in crowd.holds)


@pytest.fixture
def slow(fleet):
    """A hold takes its time between its statements, where SQL can wait."""
    if fleet.engine.dialect.name == 'sqlite':
        yield
        return
    fleet.execute('CREATE TRIGGER slow BEFORE INSERT ON reservations '
                  'FOR EACH ROW DO SLEEP(0.05)')
    yield
    fleet.execute('DROP TRIGGER slow')


def test_workers_are_killed(fleet, slow, start_api, database_url, seconds):
    fleet.fill(40)
    killed = set()

    def workers():
        alive = []
        for child in psutil.Process(api.process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.status() != psutil.STATUS_ZOMBIE:
                    alive.append(child)
        return alive

    def kill():
        alive = workers()
        # uWSGI takes up to a second to notice, and some are to work on.
        if len(alive) > PROCESSES / 2:
            victim = random.choice(alive)
            victim.kill()
            killed.add(victim.pid)

    with start_api(database_url, PROCESSES) as api:
        crowd = clients.Crowd([api.url], SPEC)
        with crowd:
            crowd.work(seconds, kill)
        fleet.check(crowd.holds)
        servers.wait(lambda: len(workers()) == PROCESSES, 'all workers back')
    assert killed
    assert crowd.seen['lost'] and crowd.seen[201], crowd.seen
