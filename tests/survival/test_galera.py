# SPDX-License-Identifier: Apache-2.0
"""A Galera cluster of three members, written to on all of them."""

import collections
import concurrent.futures
import contextlib
import datetime
import itertools
import json
import random
import subprocess
import threading
import time
import uuid

import psutil
import pymysql
import pytest
import requests
import tenacity

from ironic_reservations.shared import constants
from tests.common import programs
from tests.common import servers
from tests.survival import clients
from tests.survival import limited
from tests.survival.clients import call
from tests.survival.clients import healthy
from tools import services

SPEC = {'resource_class': 'gold', 'memory_mb': 512}
#: What the documentation recommends; see the test of what is stale.
RECOMMENDED = {'mysql_wsrep_sync_wait': 1}
#: [reservations] deadline, and what may come on top of it.
PATIENCE = 10 + 2


@pytest.fixture(scope='module')
def start_apis(galera, start_api):
    """Starts one on each member: a context manager."""
    @contextlib.contextmanager
    def start(**kwargs):
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(start_api(
                member.url, **RECOMMENDED, **kwargs))
                for member in galera.members]
    return start


@pytest.fixture(scope='module')
def apis(start_apis):
    with start_apis() as apis:
        yield apis


@pytest.fixture(scope='module')
def limited_apis(start_apis):
    """The same with a caller whose project has a limit."""
    with start_apis(application=limited.APPLICATION, auth_strategy='keystone',
                    config=limited.CONFIG) as apis:
        yield apis


@pytest.fixture(autouse=True)
def all_alive(galera):
    """Restart members that a test has left stopped."""
    for member in galera.members:
        if member.process is None:
            member.join(galera.members)
    for member in galera.members:
        member.wait()


@pytest.fixture
def fleet(galera):
    fleet = galera.fleets[0]
    fleet.fill(40)
    return fleet


def urls(apis):
    return [api.url for api in apis]


def conflicts(galera):
    """Return how many transactions the cluster has refused or aborted."""
    return sum(int(member.status(name)) for member in galera.members
               for name in ('local_cert_failures', 'local_bf_aborts'))


def agree(galera, crowd):
    nodes, *others = [fleet.check_holds(crowd.holds)
                      for fleet in galera.fleets]
    galera.fleets[0].check(crowd)
    assert others == [nodes] * len(others)


# Against each other

def test_writers_on_all_members(galera, apis, fleet, seconds):
    before = conflicts(galera)
    crowd = clients.Crowd(apis, SPEC)
    with crowd:
        crowd.work(seconds)
        # The test needs conflicts.
        servers.wait(lambda: conflicts(galera) > before, 'a conflict')
    agree(galera, crowd)
    assert crowd.seen[201] and crowd.seen[204], crowd.seen


def test_one_instance_is_requested_on_all_members(galera, apis, seconds):
    galera.fleets[0].fill(3)
    seen = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(6) as executor:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            body = {**SPEC, 'instance_uuid': str(uuid.uuid4())}
            responses = list(executor.map(
                lambda api, body=body: call('POST', api, body=body),
                apis * 2))
            statuses = {answer.status_code for answer in responses}
            seen.update(answer.status_code for answer in responses)
            assert statuses <= {200, 201, 409, 503}, statuses
            nodes = {answer.json()['node_uuid'] for answer in responses
                     if answer.status_code < 300}
            assert [*galera.fleets[1].holds().items()] == [
                (body['instance_uuid'], *nodes)]
            path = f'/{body["instance_uuid"]}'
            responses = list(executor.map(
                lambda api, path=path: call('DELETE', api, path), apis * 2))
            statuses = {answer.status_code for answer in responses}
            assert statuses <= {204, 404, 409, 503}, statuses
            while call('GET', apis[0], path).status_code != 404:
                call('DELETE', apis[0], path)
    assert seen[201] and seen[200], seen


def test_ends_race(galera, apis, fleet):
    """Each reservation is in the history exactly once, or still there."""
    before, seen = conflicts(galera), collections.Counter()
    barrier = threading.Barrier(8)

    def act(name, member, method, path='', body=None, statement=None):
        if statement:
            galera.fleets[member].persist(
                f'{statement} WHERE instance_uuid = :i', {'i': name})
        call(method, apis[member], path, body)

    def race(*args):
        barrier.wait(60)
        # The end with the fewest statements would always be the first.
        time.sleep(random.uniform(0, 0.1))
        act(*args)

    for turn in range(40):
        name = str(uuid.uuid4())
        path = f'/{name}'
        call('POST', apis[0], body={**SPEC, 'instance_uuid': name})
        [(row,)] = fleet.execute(
            'SELECT id FROM reservations WHERE instance_uuid = :i',
            {'i': name})
        actions = [(name, member, *action) for member in (0, 1) for action in (
            ('DELETE', path),
            ('POST', '', {**SPEC, 'claim': name, 'host': 'compute-1'}),
            ('DELETE', path, None,
             "UPDATE reservations SET expires_at = '2001-01-01'"),
            ('GET', path, None, 'UPDATE nodes SET instance_uuid = NULL'))]
        if turn < 4:
            # Each is surely the first once.
            act(*actions[turn])
        with concurrent.futures.ThreadPoolExecutor(8) as executor:
            for future in [executor.submit(race, *action)
                           for action in actions]:
                future.result()
        ends = [member.execute(
            "SELECT ended_by FROM reservations_history WHERE id = :r "
            "UNION ALL SELECT '' FROM reservations WHERE id = :r",
            {'r': row}) for member in galera.fleets]
        assert [len(rows) for rows in ends] == [1, 1, 1]
        assert ends[0] == ends[1] == ends[2]
        seen.update(ends[0][0])
        fleet.persist('DELETE FROM reservations')
        fleet.persist('UPDATE nodes SET instance_uuid = NULL')
    assert {*seen} >= {*constants.ENDS} and conflicts(galera) > before, seen


@pytest.fixture
def racks(galera):
    """30 nodes in six racks."""
    fleet = galera.fleets[0]
    fleet.fill(30, racks=6, owner=limited.PROJECT)
    return fleet


def test_groups_on_all_members(galera, apis, racks, seconds):
    before = conflicts(galera)
    crowd = clients.Crowd(apis, SPEC, kind=clients.GroupClient,
                          fleet=racks, policies=clients.make_policies())
    clients.work_with_groups(crowd, racks, seconds, lambda: servers.wait(
        lambda: conflicts(galera) > before, 'a conflict'))
    agree(galera, crowd)
    assert not crowd.seen[503], crowd.seen


def test_groups_are_joined_one_by_one(galera, apis, racks, seconds):
    before = conflicts(galera)
    clients.join_one_by_one(urls(apis), racks, SPEC, seconds)
    assert conflicts(galera) > before


def test_members_are_claimed_at_once(apis, racks):
    clients.claim_at_once(urls(apis), racks, SPEC)


def test_racks_are_cordoned(galera, apis, racks, seconds):
    before = conflicts(galera)
    # A busy machine may need more than one turn for a conflict.
    for _ in range(5):
        clients.cordon_racks(urls(apis)[:2], racks, SPEC, seconds)
        if conflicts(galera) > before:
            break
    assert conflicts(galera) > before


def test_pools_of_one_rack(galera, apis, seconds):
    before = conflicts(galera)
    crowd = clients.work_with_pools(
        apis, galera.fleets[0], SPEC, seconds)
    print(f'{conflicts(galera) - before} conflicts', crowd.seen)
    agree(galera, crowd)
    pools, *others = [fleet.pools() for fleet in galera.fleets]
    assert others == [pools] * 2


@pytest.fixture(scope='module')
def frozen_apis(galera, start_api):
    """Two APIs whose databases' clocks stand still, the first one ahead.

    With REPEATABLE READ, a hold that has read that a node is in no pool locks
    the gap. This aborts most of the holds that the change of the node aborts.
    """
    now = int(time.time())
    with contextlib.ExitStack() as stack:
        yield now, *(
            stack.enter_context(start_api(
                f'{member.url}?init_command=SET timestamp={now + ahead}, '
                "tx_isolation='READ-COMMITTED'", 1, **RECOMMENDED))
            for member, ahead in zip(galera.members[:2], (3600, 0),
                                     strict=True))


@pytest.fixture
def slow(galera):
    """Holds pause before their second statement."""
    galera.members[0].sql('CREATE TRIGGER slow BEFORE INSERT ON reservations '
                          'FOR EACH ROW DO SLEEP(10)')
    yield
    galera.members[0].sql('DROP TRIGGER slow')


def at(seconds):
    return datetime.datetime.fromtimestamp(
        seconds, datetime.UTC).strftime('%Y-%m-%dT%H:%M:%SZ')


@pytest.mark.parametrize('kind', [
    'create', 'add', 'replace', 'forever', 'postpone'])
def test_no_hold_ends_after_a_pool(galera, frozen_apis, slow, kind):
    """All writes are in one second, in which another has changed the node.

    The hold has begun before, or when the pool had expired.
    """
    now, holding, api = frozen_apis
    fleet = galera.fleets[0]
    fleet.fill(2 if kind in ('add', 'replace') else 1)
    path, body = '/pools', {'project_id': 'east', 'members': 1,
                            'request': SPEC}
    if kind != 'create':
        pool = call('POST', api, '/pools', {
            **body, 'expires_at': at(now + 1800)
            if kind in ('forever', 'postpone') else None}).json()
        [(other,)] = fleet.execute(
            'SELECT uuid FROM nodes ORDER BY uuid = :node LIMIT 1',
            {'node': pool['nodes'][0]['uuid']})
        path = f'/pools/{pool["uuid"]}'
        if kind in ('add', 'replace'):
            path += '/nodes'
            body = ({'node': other} if kind == 'add' else
                    {'replaces': pool['nodes'][0]['uuid']})
        else:
            body = [{'path': '/expires_at', **(
                {'op': 'remove'} if kind == 'forever' else
                {'op': 'add', 'value': at(now + 7200)})}]
    fleet.execute('UPDATE nodes SET updated_at = :t', {
        't': at(now).strip('Z')})
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        hold = executor.submit(call, 'POST', holding, body={
            **SPEC, 'project_id': 'west'})
        servers.wait(lambda: fleet.execute(
            'SELECT id FROM information_schema.processlist '
            "WHERE state = 'User sleep'"), 'a hold')
        answer = call('PATCH' if isinstance(body, list) else 'POST', api,
                      path, body)
        assert answer.status_code in (200, 201), answer.text
        assert hold.result().status_code == 422, hold.result().text
    assert [fleet.holds() for fleet in galera.fleets] == [{}] * 3


def test_groups_are_held_at_once(apis, racks):
    racks.fill(160, racks=20, owner=limited.PROJECT)
    clients.hold_groups_at_once(urls(apis), racks, SPEC)


class Limited(clients.GroupClient):
    """A client of a project whose limit is below the number of nodes."""

    REFUSED = 403
    ACTIONS = clients.Client.ACTIONS | {'create': 2, 'end': 2, 'list': 4}
    WITH_HOLD = clients.Client.WITH_HOLD

    def check_refusal(self, body):
        assert body['quota']['limit'] == limited.LIMIT

    def list(self):
        assert len(super().list()) <= limited.LIMIT


def check_limit(apis, holds):
    """Check that the limit was never exceeded, and can be used up."""
    changes = sorted((when, change) for hold in holds if hold.node
                     for when, change in (
                         (hold.confirmed_at, 1), (hold.ends, -1)))
    assert max(itertools.accumulate(
        change for _, change in changes)) <= limited.LIMIT
    for api in itertools.cycle(apis):
        answer = call('POST', api, body=SPEC)
        if answer.status_code == 403:
            break
        assert answer.status_code == 201, answer.text
    assert {len(call('GET', api).json()['reservations'])
            for api in apis} == {limited.LIMIT}


def test_quota_on_all_members(galera, limited_apis, racks, seconds):
    before = conflicts(galera)
    crowd = make_crowd(limited_apis, Limited)
    with crowd:
        crowd.work(seconds)
        servers.wait(lambda: conflicts(galera) > before, 'a conflict')
    check_end(galera, limited_apis, crowd, Limited)


def edit(member, stop):
    """Edit nodes as fast as possible, and return how often."""
    number = 0
    with member.connect() as connection, connection.cursor() as cursor:
        while not stop.is_set():
            memory = random.choice((256, 1024))
            # The number makes each text unique.
            properties = {'memory_mb': memory, 'number': random.random()}
            with contextlib.suppress(pymysql.err.OperationalError):
                cursor.execute(
                    'UPDATE nodes SET properties = %s '
                    'WHERE instance_uuid IS NULL ORDER BY RAND() LIMIT 1',
                    [json.dumps(properties)])
                connection.commit()
                number += 1
    return number


def test_nodes_are_edited_on_another_member(galera, apis, seconds):
    fleet = galera.fleets[0]
    fleet.fill(12)
    before = conflicts(galera)
    stop = threading.Event()
    with concurrent.futures.ThreadPoolExecutor() as executor:
        edits = [executor.submit(edit, member, stop)
                 for member in galera.members[1:]]
        crowd = clients.Crowd([apis[0]], SPEC, may_fail=True,
                              leases=[None])
        try:
            with crowd:
                crowd.work(seconds)
                servers.wait(lambda: conflicts(galera) > before,
                             'a conflict')
        finally:
            stop.set()
    agree(galera, crowd)
    rows = fleet.execute('SELECT properties FROM audit '
                         'WHERE held IS NOT NULL')
    assert rows
    for properties, in rows:
        assert json.loads(properties)['memory_mb'] >= SPEC['memory_mb']
    assert all(future.result() for future in edits)


def be_host(api, holder, host='compute-1'):
    return call('PUT', api, f'/hosts/{host}',
                {'holder': holder, 'ttl': 30}).status_code


def _lost_against_another(error):
    return (isinstance(error, pymysql.err.OperationalError)
            and error.args[0] == 1213)


@tenacity.retry(retry=tenacity.retry_if_exception(_lost_against_another),
                stop=tenacity.stop_after_attempt(50), reraise=True)
def end_leases(galera):
    """Expire host leases, which other members write at the same time."""
    galera.members[0].sql(
        'UPDATE reservations_hosts SET expires_at = UTC_TIMESTAMP()')


def test_host_has_one_holder(galera, apis):
    """Processes acquire a new or expired lease on all members at once."""
    won = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(6) as executor:
        for _ in range(20):
            holders = [str(uuid.uuid4()) for _ in range(6)]
            seen = list(executor.map(be_host, apis * 2, holders))
            assert sorted(seen) == [200] + [409] * 5, seen
            won[seen.index(200) % 3] += 1
            leases = call('GET', apis[1], '/hosts').json()['hosts']
            assert [lease['holder'] for lease in leases] == [
                holders[seen.index(200)]]
            end_leases(galera)
    assert len(won) > 1, won


def write_as(api, holder, seen, stop):
    """Hold and release until it is stopped, also after a refusal.

    :param seen: list to which the statuses are added.
    """
    query = f'?host=compute-1&holder={holder}'
    while not stop.is_set():
        answer = call('POST', api, body={**SPEC, 'host': 'compute-1',
                                         'holder': holder})
        seen.append(answer.status_code)
        if answer.status_code == 201 and random.random() < 0.8:
            seen.append(call('DELETE', api, '/' + answer.json()[
                'instance_uuid'] + query).status_code)


def test_stale_holder_writes_on_other_members(galera, apis, fleet):
    """A former holder changes nothing after another process took over."""
    before, total = str(uuid.uuid4()), collections.Counter()
    end_leases(galera)
    assert be_host(apis[0], before) == 200
    conflicts_before = conflicts(galera)
    for number in range(6):
        holder, stop = str(uuid.uuid4()), threading.Event()
        seen = [[] for _ in range(4)]
        with concurrent.futures.ThreadPoolExecutor(4) as executor:
            writers = [
                executor.submit(write_as, api, before, statuses, stop)
                for api, statuses in zip(
                    (apis * 2)[number % 3 + 1:][:2] * 2, seen, strict=True)]
            try:
                time.sleep(0.5)
                end_leases(galera)
                assert be_host(apis[number % 3], holder) == 200
                nodes = galera.fleets[number % 3].holds()
                servers.wait(lambda seen=seen: all(
                    statuses[-1:] == [412] for statuses in seen),
                    'refusals of all')
            finally:
                stop.set()
            for future in writers:
                future.result()
            for statuses in seen:
                total.update(statuses)
                assert statuses[-1] == 412
        assert [fleet_.holds() for fleet_ in galera.fleets] == [nodes] * 3
        before = holder
    assert total[201] and total[204] and total[412], total
    # The test needs conflicts.
    assert conflicts(galera) > conflicts_before


# Members that die

def workers(apis):
    return [child.pid for api in apis
            for child in psutil.Process(api.process.pid).children()]


def all_work(apis):
    """Check that all workers respond."""
    with concurrent.futures.ThreadPoolExecutor(12) as executor:
        for answer in executor.map(lambda api: call('GET', api), apis * 4):
            assert answer.status_code == 200, answer.text


class Claimer(clients.GroupClient):
    """Holds groups and claims members, and tears nothing down."""

    WITH_HOLD = {name: often for name, often
                 in clients.GroupClient.WITH_HOLD.items()
                 if name != 'tear_down'}


def make_crowd(apis, kind):
    return clients.Crowd(apis, SPEC, kind=kind, leases=[None],
                         fleet=None, policies=clients.make_policies())


#: A Claimer also does what a plain client does.
KINDS = Claimer, Limited


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def kind_apis(request, kind):
    """The APIs for clients of the kind."""
    return request.getfixturevalue(
        'limited_apis' if kind is Limited else 'apis')


def check_end(galera, apis, crowd, kind):
    agree(galera, crowd)
    if kind is Limited:
        check_limit(apis, crowd.holds)
        assert crowd.seen[403], crowd.seen


@pytest.mark.parametrize('kind, empty', [
    *((kind, True) for kind in KINDS), (Claimer, False)], indirect=['kind'],
    ids=lambda value: {True: 'empty', False: 'late'}.get(value)
    or value.__name__)
def test_members_are_killed(galera, kind_apis, racks, seconds, kind, empty):
    """A member that returns empty has a donor, which is blocked."""
    before = workers(kind_apis)
    victims = itertools.cycle(reversed(galera.members))
    crowd = make_crowd(kind_apis, kind)
    with crowd:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            crowd.work(1)
            victim = next(victims)
            victim.kill()
            crowd.work(1)
            if empty:
                victim.forget()
            victim.join(galera.members)
            victim.wait()
            all_work(kind_apis)
    check_end(galera, kind_apis, crowd, kind)
    assert crowd.seen[503] and crowd.seen[201], crowd.seen
    assert workers(kind_apis) == before


def test_quorum_is_lost(galera, kind_apis, racks, kind):
    before = workers(kind_apis)
    survivor, *others = galera.members
    crowd = make_crowd(kind_apis, kind)
    with crowd:
        crowd.work(1)
        for member in others:
            member.kill()
        servers.wait(lambda: survivor.status('cluster_status') != 'Primary',
                     'loss of quorum')
        calls = itertools.product(kind_apis, (
            ('POST', ''), ('GET', ''), ('GET', '/capacity'),
            ('GET', f'/{uuid.uuid4()}'), ('DELETE', f'/{uuid.uuid4()}')))
        with concurrent.futures.ThreadPoolExecutor(15) as executor:
            for answer in executor.map(
                    # The time-out requires a response within seconds.
                    lambda args: call(
                        args[1][0], args[0], args[1][1],
                        SPEC if args[1][0] == 'POST' else None,
                        timeout=PATIENCE), calls):
                assert answer.status_code == 503
                assert int(answer.headers['Retry-After'])
        assert {healthy(api) for api in kind_apis} == {False}
        for member in others:
            member.join(galera.members)
        for member in galera.members:
            member.wait()
        all_work(kind_apis)
        assert {healthy(api) for api in kind_apis} == {True}
        crowd.work(1)
    check_end(galera, kind_apis, crowd, kind)
    assert workers(kind_apis) == before


# Writes on another member

@pytest.fixture
def careless(galera, start_api):
    """An API without the recommended option."""
    with start_api(galera.members[1].url) as api:
        yield api


@contextlib.contextmanager
def lagging(member):
    """Let a member apply no writes of the others."""
    with member.connect() as connection, connection.cursor() as cursor:
        cursor.execute('FLUSH TABLES WITH READ LOCK')
        yield
        cursor.execute('UNLOCK TABLES')


def test_none_is_not_stale(galera, apis, careless):
    galera.fleets[0].fill(1, provision_state='manageable')
    # Connections and caches are ready.
    for api in careless, apis[1]:
        assert call('POST', api, body=SPEC).status_code == 422
    with concurrent.futures.ThreadPoolExecutor() as executor:
        with lagging(galera.members[1]):
            galera.members[0].sql(
                "UPDATE nodes SET provision_state = 'available'")
            # The option protects from this stale read.
            assert call('POST', careless, body=SPEC).status_code == 422
            future = executor.submit(call, 'POST', apis[1], body=SPEC)
            concurrent.futures.wait([future], timeout=2)
        assert future.result().status_code == 201


def test_fence_is_not_stale(galera, apis, careless, fleet):
    """The fence waits for writes of other members, without the option too.

    There is no Ironic here, so that a request that passes is a 404.
    """
    reservation = call('POST', apis[0], body={**SPEC, 'host': 'h'}).json()

    def enter(api):
        return requests.put(
            f'{api.url}/v1/nodes/{reservation["node_uuid"]}/states/power',
            timeout=60, headers={
                'X-OpenStack-Ironic-Reservation':
                f'instance={reservation["instance_uuid"]}; host=h'}
        ).status_code

    for api in careless, apis[1]:
        assert enter(api) == 404
        with concurrent.futures.ThreadPoolExecutor() as executor:
            with lagging(galera.members[1]):
                galera.members[0].sql("UPDATE reservations SET host = 'x'")
                future = executor.submit(enter, api)
                concurrent.futures.wait([future], timeout=2)
                # Other requests do not wait.
                path = f'/{reservation["instance_uuid"]}'
                assert call('GET', careless, path).json()['host'] == 'h'
            assert future.result() == 412
        galera.members[0].sql("UPDATE reservations SET host = 'h'")
        servers.wait(lambda api=api: enter(api) == 404,
                     'the former host')


def test_reservations_are_not_stale(galera, apis, careless):
    galera.fleets[0].fill(1)
    body = {**SPEC, 'instance_uuid': str(uuid.uuid4())}
    path = f'/{body["instance_uuid"]}'
    for api in careless, apis[1]:
        assert call('GET', api, path).status_code == 404
    with concurrent.futures.ThreadPoolExecutor() as executor:
        with lagging(galera.members[1]):
            assert call('POST', apis[0], body=body).status_code == 201
            assert call('GET', careless, path).status_code == 404
            future = executor.submit(call, 'GET', apis[1], path)
            concurrent.futures.wait([future], timeout=2)
        assert future.result().status_code == 200
        with lagging(galera.members[1]):
            assert call('DELETE', apis[0], path).status_code == 204
            assert call('POST', careless, body=body).status_code == 200
            future = executor.submit(call, 'POST', apis[1], body=body)
            concurrent.futures.wait([future], timeout=2)
        assert future.result().status_code == 201


@pytest.mark.parametrize('options, expected', [
    ({}, 'Result: Warning'), (RECOMMENDED, 'Result: Success')], ids=str)
def test_upgrade_check(galera, conf_file, options, expected):
    result = subprocess.run(
        [services.program('ironic-reservations-status'), '--config-file',
         conf_file(galera.members[0].url, **options), 'upgrade', 'check'],
        stdout=subprocess.PIPE, text=True, check=False)
    lines = result.stdout.splitlines()
    [check] = [number for number, line in enumerate(lines)
               if 'Check: Stale reads' in line]
    assert expected in lines[check + 1]
    assert ('mysql_wsrep_sync_wait' in result.stdout) == (options == {})


def test_tables_are_upgraded_on_two_members(galera, conf_file):
    """At once. GET_LOCK() on one member does not exclude the others."""
    members = galera.members[:2]
    members[0].sql('CREATE DATABASE upgrades')
    try:
        members[0].sql('CREATE TABLE upgrades.nodes (id INT PRIMARY KEY)')
        results = programs.upgrade_together(*[
            conf_file(member.url.replace('/ironic', '/upgrades'),
                      **RECOMMENDED) for member in members * 2])
        assert ('done', 0) in results
        assert {*results} <= {('done', 0),
                              ('Another process is upgrading', 2)}
        for member in galera.members:
            assert len(member.sql('SELECT * FROM '
                                  'upgrades.reservations_alembic_version')
                       ) == 1
    finally:
        members[0].sql('DROP DATABASE upgrades')


def test_lag_that_does_not_end(galera, apis):
    galera.fleets[0].fill(1)
    member = galera.members[1]
    option = "SET GLOBAL wsrep_provider_options = 'repl.causal_read_timeout="
    member.sql(f"{option}PT1S'")
    try:
        with lagging(member):
            galera.members[0].sql('UPDATE nodes SET maintenance = 1')
            answer = call('POST', apis[1], body=SPEC)
            assert answer.status_code == 503
            assert int(answer.headers['Retry-After'])
    finally:
        member.sql(f"{option}PT30S'")
