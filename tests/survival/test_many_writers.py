# SPDX-License-Identifier: Apache-2.0
"""Eight processes on one database, and workers that die."""

import concurrent.futures
import contextlib
import random
import uuid

import psutil
import pytest
import requests

from tests.common import servers
from tests.survival import clients

SPEC = {'resource_class': 'gold', 'memory_mb': 512}
PROCESSES = 8


@pytest.fixture(scope='module')
def api(start_api, fleet, database_url):
    with start_api(database_url, PROCESSES) as api:
        yield api


@pytest.fixture
def racks(fleet):
    """30 nodes in six racks."""
    fleet.fill(30, racks=6)
    return fleet


on_all = pytest.mark.parametrize(
    'database_url', ['sqlite', 'mariadb', 'snapshots'], indirect=True)
#: The others only at full length.
on_mariadb = pytest.mark.parametrize('database_url', [
    'mariadb', *(pytest.param(name, marks=pytest.mark.long)
                 for name in ('sqlite', 'snapshots'))], indirect=True)


def crowd_with_groups(api, fleet):
    return clients.Crowd([api], SPEC, kind=clients.GroupClient,
                         fleet=fleet, policies=clients.make_policies())


@on_all
def test_all_that_clients_do(racks, api, seconds):
    crowd = crowd_with_groups(api, racks)
    clients.work_with_groups(crowd, racks, seconds)
    assert not crowd.seen[503], crowd.seen
    assert any(hold.has_lease for hold in crowd.holds)


@on_all
def test_groups_are_joined_one_by_one(racks, api, seconds):
    clients.join_one_by_one([api.url], racks, SPEC, seconds)


@on_all
def test_members_are_claimed_at_once(racks, api):
    clients.claim_at_once([api.url], racks, SPEC)


@on_all
def test_racks_are_cordoned(racks, api, seconds):
    clients.cordon_racks([api.url], racks, SPEC, seconds)


@on_all
def test_groups_are_held_at_once(fleet, api):
    fleet.fill(160, racks=20)
    clients.hold_groups_at_once([api.url], fleet, SPEC)


@pytest.fixture
def deadlocks(fleet):
    """Print how many deadlocks the database has found during the test."""
    before = fleet.count_deadlocks()
    yield
    print(f'{fleet.count_deadlocks() - before} deadlocks')


@on_mariadb
@pytest.mark.usefixtures('deadlocks')
def test_pools_of_one_rack(fleet, api, seconds):
    clients.work_with_pools([api], fleet, SPEC, seconds)


@on_mariadb
@pytest.mark.usefixtures('deadlocks')
def test_pool_of_all_nodes_against_holds(fleet, api, seconds):
    clients.pool_against_holds([api.url], fleet, SPEC, seconds)


# Workers that die

@pytest.fixture
def slow(fleet):
    """Holds are slow between their statements, if SQL can wait."""
    if fleet.engine.dialect.name == 'sqlite':
        yield
        return
    fleet.execute('CREATE TRIGGER slow BEFORE INSERT ON reservations '
                  'FOR EACH ROW DO SLEEP(0.05)')
    yield
    fleet.execute('DROP TRIGGER slow')


def workers(api):
    alive = []
    for child in psutil.Process(api.process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.status() != psutil.STATUS_ZOMBIE:
                alive.append(child)
    return alive


@pytest.fixture
def kill(slow, api):
    """Return a function that kills one of the workers."""
    victims = set()

    def kill():
        alive = workers(api)
        # uWSGI takes up to a second to notice, and some must keep working.
        if len(alive) > PROCESSES / 2:
            victim = random.choice(alive)
            victim.kill()
            victims.add(victim.pid)

    yield kill
    assert victims
    servers.wait(lambda: len(workers(api)) == PROCESSES, 'all workers back')


def test_workers_are_killed(fleet, api, kill, seconds):
    fleet.fill(40)
    crowd = clients.Crowd([api], SPEC)
    with crowd:
        crowd.work(seconds, kill)
    fleet.check(crowd)
    assert crowd.seen['lost'] and crowd.seen[201], crowd.seen


def test_workers_are_killed_during_groups(racks, api, kill, seconds):
    crowd = crowd_with_groups(api, racks)
    clients.work_with_groups(crowd, racks, seconds, kill)
    assert crowd.seen['lost'], crowd.seen


@on_mariadb
def test_workers_are_killed_during_pools(fleet, api, kill, seconds):
    crowd = clients.work_with_pools([api], fleet, SPEC, seconds, kill)
    assert crowd.seen['lost'], crowd.seen


@pytest.mark.parametrize('database_url', ['mariadb'], indirect=True)
def test_worker_is_killed_while_it_holds_a_group(racks, slow, start_api,
                                                 database_url):
    """The request leaves no trace: the next one holds all nodes."""
    body = {'uuid': str(uuid.uuid4()), 'members': 30, 'request': SPEC}
    with start_api(database_url, 1) as api, \
            concurrent.futures.ThreadPoolExecutor(1) as executor:
        future = executor.submit(clients.at_once, [api.url], (
            'POST', f'{clients.OURS}/groups', {'json': body}))
        servers.wait(lambda: racks.execute(
            'SELECT id FROM information_schema.processlist '
            "WHERE state = 'User sleep'"), 'a slow statement')
        [worker] = workers(api)
        worker.kill()
        with pytest.raises(requests.ConnectionError):
            future.result()
        servers.wait(lambda: workers(api), 'a new worker')
        assert not racks.holds()
        [answer] = clients.at_once([api.url], (
            'POST', f'{clients.OURS}/groups', {'json': {
                **body, 'uuid': str(uuid.uuid4())}}))
        assert answer.status_code == 201
        assert len(racks.holds()) == racks.groups().popitem()[1].total() == 30


# Workers that are stopped

@pytest.fixture
def slow_notices(fleet):
    """The transaction of many notices takes time."""
    fleet.execute('CREATE TRIGGER slow_notices BEFORE INSERT ON '
                  'reservations_notices FOR EACH ROW DO SLEEP(0.05)')
    yield
    fleet.execute('DROP TRIGGER slow_notices')


@pytest.mark.parametrize('database_url', ['mariadb'], indirect=True)
def test_worker_is_stopped_while_it_cordons_a_rack(
        fleet, slow_notices, api, start_api, database_url):
    """Others hold nodes that fit less well than the locked ones."""
    fleet.fill(160, racks=4)
    fleet.execute("UPDATE nodes SET properties = REPLACE(properties, '1024', "
                  "'2048') WHERE properties NOT LIKE '%rack:r0,%'")
    sleeping = ('SELECT id FROM information_schema.processlist '
                "WHERE state = 'User sleep'")
    crowd = clients.Crowd([api], SPEC)
    # The first request of a worker takes longer.
    clients.at_once([api.url], *[
        ('GET', f'{clients.OURS}/capacity', {})] * 4 * PROCESSES)
    with start_api(database_url, 1) as cordoning, \
            concurrent.futures.ThreadPoolExecutor(1) as executor:
        future = executor.submit(clients.call, 'POST', cordoning, '/notices', {
            'kind': 'maintenance', 'by': {clients.BY: 'r0'}})
        servers.wait(lambda: fleet.execute(sleeping), 'a slow statement')
        [worker] = workers(cordoning)
        worker.suspend()
        try:
            servers.wait(lambda: not fleet.execute(sleeping), 'its end')
            # After 15 seconds, MariaDB ends a transaction that does nothing.
            with crowd:
                crowd.work(4)
            [(rows,)] = fleet.execute(
                'SELECT MAX(trx_rows_locked) FROM information_schema'
                '.innodb_trx')
            assert rows >= 40
            assert not future.done()
        finally:
            worker.resume()
        response = future.result()
    print(f'{crowd.seen[201]} holds, the slowest response after '
          f'{crowd.slowest:.1f} s', crowd.seen)
    assert response.status_code == 201
    assert len(response.json()['notices']) == 40
    assert crowd.seen[201] and not crowd.seen[503], crowd.seen
    fleet.check(crowd)
    assert not fleet.takings('r0')
