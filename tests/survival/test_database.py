# SPDX-License-Identifier: Apache-2.0
"""A database that dies, is cut off, is full, or whose clock jumps."""

import collections
import concurrent.futures
import os
import random
import resource
import tempfile
import time
import uuid

import psutil
import pytest
import sqlalchemy as sa

from tests.common import exporting
from tests.common import proxies
from tests.common import servers
from tests.survival import clients
from tests.survival.clients import call
from tests.survival.clients import healthy

SPEC = {'resource_class': 'gold', 'memory_mb': 512}
PROCESSES = 4
NODES = {'resource_class': 'gold', 'conductor_group': '', 'shard': '',
         'state': 'free'}


def workers(api):
    return [child.pid for child in psutil.Process(api.process.pid).children()]


@pytest.fixture(scope='module')
def fleet(create_schema, mariadb):
    return create_schema(mariadb.url)


# It dies

@pytest.fixture(scope='module')
def mysql(create_schema):
    with servers.alone(kind=servers.MySQL) as server:
        yield server, create_schema(server.url)


@pytest.fixture(params=['mariadb', 'mysql'])
def mortal(request):
    """A server that can be killed, and the fleet in it."""
    if request.param == 'mysql':
        return request.getfixturevalue('mysql')
    return tuple(map(request.getfixturevalue, ('mariadb', 'fleet')))


def test_server_is_killed(mortal, start_api, seconds):
    """The server dies during COMMITs."""
    server, fleet = mortal
    fleet.fill(40)
    with start_api(server.url, PROCESSES) as api:
        before = workers(api)

        def kill():
            server.kill()
            server.start()
            server.wait()
            with concurrent.futures.ThreadPoolExecutor(8) as executor:
                for answer in executor.map(call, ['GET'] * 8, [api] * 8):
                    assert answer.status_code == 200
            crowd.work(1)

        crowd = clients.Crowd([api], SPEC)
        with crowd:
            crowd.work(1)
            crowd.work(seconds, kill)
        fleet.check(crowd)
        assert workers(api) == before
    assert crowd.seen[201] and crowd.seen[204], crowd.seen


def test_exporter_outlives_mariadb(mariadb, fleet, conf_file, tmp_path):
    """The exporter reports the outage, and recovers by itself."""
    fleet.fill(40)
    with exporting.exporter(conf_file(mariadb.url), tmp_path) as exporter:
        for _ in range(2):
            assert exporter.value('up') == 1
            assert exporter.value('nodes', **NODES) == 40
            mariadb.kill()
            assert exporter.value('up') == 0
            assert exporter.value('nodes', **NODES) is None
            mariadb.start()
            mariadb.wait()
        assert exporter.value('nodes', **NODES) == 40


# Its connections are cut

def cut_at_commit(statement):
    return (random.choice([proxies.UNHEARD, proxies.UNANSWERED])
            if statement == b'COMMIT' and random.random() < 0.1 else None)


def test_connections_are_cut_at_commit(mariadb, fleet, start_api, seconds):
    fleet.fill(40)
    with proxies.proxy(mariadb.url, cut_at_commit) as proxy, \
            start_api(proxy.url, PROCESSES) as api:
        crowd = clients.Crowd([api], SPEC)
        with crowd:
            crowd.work(seconds)
        fleet.check(crowd)
    assert proxy.seen[proxies.UNHEARD] and proxy.seen[proxies.UNANSWERED]
    assert crowd.seen[201] and crowd.seen[204], crowd.seen
    # No client has noticed.
    assert not crowd.seen['lost'] and not crowd.seen[503], crowd.seen


# It is full

def test_disk_is_full(tmp_path, create_schema, start_api):
    path = tmp_path / 'ironic.sqlite'
    fleet = create_schema(f'sqlite:///{path}')
    fleet.fill(40)
    # Large rows.
    body = {**SPEC, 'extra_specs': {f'quota:{number}': 'x' * 1024
                                    for number in range(40)}}

    def limit(size):
        for worker in workers(api):
            resource.prlimit(worker, resource.RLIMIT_FSIZE, (size, -1))

    with start_api(f'sqlite:///{path}') as api:
        instances = [call('POST', api, body=body).json()['instance_uuid']]
        limit(path.stat().st_size + 200 * 1024)
        other = {**body, 'instance_uuid': str(uuid.uuid4())}
        for _ in range(20):
            answer = call('POST', api, body=other)
            if answer.status_code != 201:
                break
            instances.append(other['instance_uuid'])
            other['instance_uuid'] = str(uuid.uuid4())
        assert answer.status_code == 503
        assert int(answer.headers['Retry-After'])
        # The refusal leaves no trace, and nothing else is lost.
        assert set(fleet.holds()) == set(instances)
        rows = call('GET', api).json()['reservations']
        assert {row['instance_uuid'] for row in rows} == set(instances)
        assert call('DELETE', api, f'/{instances.pop()}').status_code == 204
        assert call('POST', api, body=other).status_code == 201
        limit(-1)
        for _ in range(10):
            assert call('POST', api, body=body).status_code == 201
        assert len(fleet.holds()) == len(instances) + 11


# It takes no writes

ACCOUNT = 'ironic:secret'


@pytest.fixture(params=['mariadb', 'mysql'])
def writable(request, create_schema):
    """The URL of a server, its fleet, and a function to make it read-only.

    MariaDB lets administrators write anyway; our user is not one.
    """
    if request.param == 'mariadb':
        server, fleet = map(request.getfixturevalue, ('mariadb', 'fleet'))
        server.sql("CREATE OR REPLACE USER 'ironic' IDENTIFIED BY 'secret'")
        server.sql("GRANT ALL ON ironic.* TO 'ironic'")
        ours, option = server.url.replace('root', ACCOUNT), 'read_only'
    else:
        server, fleet = request.getfixturevalue('mysql')
        ours, option = server.url, 'super_read_only'
    fleet.fill(40)

    def set_writable(writable):
        server.sql(f'SET GLOBAL {option} = {int(not writable)}')

    yield ours, fleet, set_writable
    set_writable(True)


def check_refused(api, method, path, body):
    """Check that a write is refused with a 503 within seconds."""
    began = time.monotonic()
    answer = call(method, api, path, body)
    assert answer.status_code == 503, answer.text
    assert int(answer.headers['Retry-After'])
    assert 'cannot use its database' in answer.text
    assert time.monotonic() - began < 5


def test_primary_becomes_read_only(writable, start_api, seconds):
    """Reads continue, and writes are refused until it is writable."""
    url, fleet, set_writable = writable
    with start_api(url, PROCESSES) as api:
        before = workers(api)
        crowd = clients.Crowd([api], SPEC)
        [response] = clients.at_once(
            [api.url], ('POST', clients.OURS, {'json': SPEC}),
            request=crowd.recorder.request)
        reservation = response.json()
        path = f'/{reservation["instance_uuid"]}'
        writes = (('POST', '', SPEC), ('DELETE', path, None),
                  ('POST', '/groups', {'uuid': str(uuid.uuid4()),
                                       'members': 2, 'request': SPEC}))

        def pause():
            set_writable(False)
            for write in writes:
                check_refused(api, *write)
            assert call('GET', api, path).status_code == 200
            assert not healthy(api)
            set_writable(True)
            assert healthy(api)
            crowd.work(0.5)

        with crowd:
            crowd.work(seconds, pause)
        fleet.check_history(crowd.recorder, crowd.apis)
        assert call('DELETE', api, path).status_code == 204
        fleet.check_holds([*crowd.holds, clients.Hold(
            reservation['instance_uuid'], {'expires_in': None},
            reservation['node_uuid'],
            confirmed_at=0, ends=0,
            is_released=True)])
        assert workers(api) == before
    assert crowd.seen[503] and crowd.seen[201] and crowd.seen[204]


@pytest.mark.parametrize('writable', ['mariadb'], indirect=True)
def test_name_of_the_primary_leads_to_another(mariadb, writable, start_api):
    """Workers reconnect after the primary was demoted.

    Here the new primary is the same server, which accepts writes on new
    connections.
    """
    url, fleet, set_writable = writable
    with start_api(url, PROCESSES) as api:
        # All workers are connected.
        with concurrent.futures.ThreadPoolExecutor(8) as executor:
            assert {answer.status_code for answer in executor.map(
                lambda _: call('POST', api, body=SPEC), range(16))} == {201}
        set_writable(False)
        mariadb.sql("GRANT READ_ONLY ADMIN ON *.* TO 'ironic'")
        for _ in range(8):
            assert call('POST', api, body=SPEC).status_code == 201


def test_storage_is_read_only(mortal, start_api):
    """As with ``innodb_read_only``, and on readers of Amazon Aurora.

    The name then resolves to the writable server.
    """
    server, fleet = mortal
    fleet.fill(40)
    with servers.copied(server, '--innodb-read-only') as reader, \
            proxies.proxy(reader.url) as proxy, \
            start_api(proxy.url, PROCESSES) as api:
        check_refused(api, 'POST', '', SPEC)
        assert not healthy(api)
        # All workers are connected.
        with concurrent.futures.ThreadPoolExecutor(8) as executor:
            assert {answer.status_code for answer in executor.map(
                lambda _: call('GET', api), range(16))} == {200}
        proxy.database = sa.make_url(server.url)
        for _ in range(8):
            assert call('POST', api, body=SPEC).status_code == 201


# Its clock jumps

class Unsure(clients.Client):
    """Holds for an hour, and expects its leases to expire at any time."""

    def _post(self, hold):
        super()._post(hold)
        hold.ends = 0


@pytest.fixture(scope='module')
def clock(start_mariadb, create_schema, start_api):
    """An API, its fleet, and a function that shifts the clock by seconds."""
    library = servers.find_program('/usr/lib/*/faketime/libfaketimeMT.so.1')
    with tempfile.NamedTemporaryFile('w', prefix='survival-') as file:
        # MariaDB runs as another user.
        os.chmod(file.name, 0o644)

        def set_clock(seconds):
            file.seek(0)
            file.truncate()
            file.write(f'{seconds:+}')
            file.flush()

        set_clock(0)
        with start_mariadb(env={
                'LD_PRELOAD': library, 'FAKETIME_NO_CACHE': '1',
                'FAKETIME_TIMESTAMP_FILE': file.name,
                # Time-outs are not affected, as on a real machine.
                'FAKETIME_DONT_FAKE_MONOTONIC': '1'}) as server:
            fleet = create_schema(server.url)
            with start_api(server.url, PROCESSES) as api:
                yield api, fleet, set_clock


@pytest.fixture
def jumping(clock):
    """The same, with the right time and without host leases."""
    _, fleet, set_clock = clock
    set_clock(0)
    fleet.execute('DELETE FROM reservations_hosts')
    return clock


def test_clock_jumps_under_load(jumping, seconds):
    api, fleet, set_clock = jumping
    fleet.fill(60)
    crowd = clients.Crowd([api], SPEC, may_fail=True, leases=[None])
    crowd.clients += [Unsure([api], crowd.recorder, SPEC, may_fail=True,
                             leases=[3600]) for _ in range(4)]
    def find_expired():
        """Return the instances that lost nodes without a release."""
        rows = fleet.execute('SELECT held_before FROM audit '
                             'WHERE held_before IS NOT NULL')
        return {name for name, in rows} & {
            hold.instance_uuid for hold in crowd.holds
            if hold.has_lease and not hold.is_released}

    def jump():
        set_clock(random.randint(-9999, 9999))

    with crowd:
        crowd.work(seconds, jump)
        # An expired node is used only if no node is free, which takes long on
        # a slow machine.
        servers.wait(lambda: crowd.check() or jump() or find_expired(),
                     'an expiry')
    fleet.check_holds(crowd.holds)


def test_clock_is_set_back(jumping):
    api, fleet, set_clock = jumping
    fleet.fill(1)
    first, second = ({**SPEC, 'instance_uuid': str(uuid.uuid4()),
                      'expires_in': 600} for _ in range(2))
    path = f'/{first["instance_uuid"]}'
    assert call('POST', api, body=first).status_code == 201
    assert call('POST', api, body=second).status_code == 422
    set_clock(3600)
    assert call('GET', api, path).status_code == 404
    assert call('POST', api, body=second).status_code == 201
    # The first instance does not get the node back.
    set_clock(0)
    assert call('GET', api, path).status_code == 404
    assert call('POST', api, body=first).status_code == 422
    assert list(fleet.holds()) == [second['instance_uuid']]


def be_host(api, holder):
    return call('PUT', api, '/hosts/compute-1',
                {'holder': holder, 'ttl': 600}).status_code


def hold_as(api, holder):
    """Hold a node as a holder, and release it without one."""
    answer = call('POST', api, body={**SPEC, 'host': 'compute-1',
                                     'holder': holder})
    if answer.status_code == 201:
        call('DELETE', api, f'/{answer.json()["instance_uuid"]}')
    return answer.status_code


def test_hosts_when_the_clock_is_set(jumping):
    """A lease expires, also if its end is too far in the future."""
    api, fleet, set_clock = jumping
    fleet.fill(1)
    one, other = str(uuid.uuid4()), str(uuid.uuid4())
    assert be_host(api, one) == 200
    assert be_host(api, other) == 409
    assert hold_as(api, one) == 201
    set_clock(3600)
    assert hold_as(api, one) == 412
    assert be_host(api, other) == 200
    assert be_host(api, one) == 409
    assert hold_as(api, one) == 412
    assert hold_as(api, other) == 201
    # No process waits an hour for a host that may be dead.
    set_clock(0)
    assert hold_as(api, other) == 201
    assert be_host(api, one) == 200
    assert hold_as(api, other) == 412
    assert be_host(api, other) == 409
    assert hold_as(api, one) == 201


def test_hosts_when_the_clock_jumps(jumping, seconds):
    """A former holder writes nothing after another process took over."""
    api, fleet, set_clock = jumping
    fleet.fill(20)
    end = time.monotonic() + max(seconds, 10)
    #: By process: when it requested the lease and when it had it, and when it
    #: had the lease and when it began a write that succeeded.
    terms, writes = collections.defaultdict(list), collections.defaultdict(
        list)
    refusals = []

    def compete(holder):
        while time.monotonic() < end:
            start = time.monotonic()
            if be_host(api, holder) == 200:
                sure = time.monotonic()
                terms[holder].append((start, sure))
                time.sleep(random.uniform(0, 0.3))
                began = time.monotonic()
                status = hold_as(api, holder)
                if status == 201:
                    writes[holder].append((sure, began))
                else:
                    assert status == 412
                    refusals.append(holder)
            time.sleep(random.uniform(0, 0.05))

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        processes = [pool.submit(compete, str(uuid.uuid4()))
                     for _ in range(6)]
        while time.monotonic() < end:
            set_clock(random.choice([-4000, -700, 0, 700, 4000]))
            time.sleep(0.2)
        for process in processes:
            process.result()
    assert len(writes) > 1 and refusals
    assert not [
        (holder, other) for holder, own in writes.items()
        for other, others in terms.items() if other != holder
        for (sure, began) in own for (start, was) in others
        if sure < start and was < began]
