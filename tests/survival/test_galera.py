# SPDX-License-Identifier: Apache-2.0
"""A Galera cluster of three members, written to on all of them."""

import collections
import concurrent.futures
import contextlib
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
    """The same where who asks may have so many nodes, and no more."""
    with start_apis(application=limited.APPLICATION, auth_strategy='keystone',
                    config=limited.CONFIG) as apis:
        yield apis


@pytest.fixture(autouse=True)
def all_alive(galera):
    """Whatever a test has left of the cluster, the next has all of it."""
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
    """How many transactions the cluster has refused or aborted."""
    return sum(int(member.status(name)) for member in galera.members
               for name in ('local_cert_failures', 'local_bf_aborts'))


def agree(galera, holds):
    held, *others = [fleet.check(holds) for fleet in galera.fleets]
    assert others == [held] * len(others)


# Against each other

def test_writers_on_all_members(galera, apis, fleet, seconds):
    before = conflicts(galera)
    crowd = clients.Crowd(urls(apis), SPEC)
    with crowd:
        crowd.work(seconds)
        # This is what the test is about.
        servers.wait(lambda: conflicts(galera) > before, 'they have met')
    agree(galera, crowd.holds)
    assert crowd.seen[201] and crowd.seen[204], crowd.seen


def test_one_instance_is_asked_for_on_all_members(galera, apis, seconds):
    galera.fleets[0].fill(3)
    seen = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(6) as executor:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            body = {**SPEC, 'instance_uuid': str(uuid.uuid4())}
            found = list(executor.map(
                lambda api, body=body: call('POST', api, body=body),
                apis * 2))
            statuses = {answer.status_code for answer in found}
            seen.update(answer.status_code for answer in found)
            assert statuses <= {200, 201, 409, 503}, statuses
            nodes = {answer.json()['node_uuid'] for answer in found
                     if answer.status_code < 300}
            assert [*galera.fleets[1].held().items()] == [
                (body['instance_uuid'], *nodes)]
            path = f'/{body["instance_uuid"]}'
            found = list(executor.map(
                lambda api, path=path: call('DELETE', api, path), apis * 2))
            statuses = {answer.status_code for answer in found}
            assert statuses <= {204, 404, 409, 503}, statuses
            while call('GET', apis[0], path).status_code != 404:
                call('DELETE', apis[0], path)
    assert seen[201] and seen[200], seen


@pytest.fixture
def racks(galera):
    """30 nodes in six racks."""
    fleet = galera.fleets[0]
    fleet.fill(30, racks=6, owner=limited.PROJECT)
    return fleet


def test_groups_on_all_members(galera, apis, racks, seconds):
    before = conflicts(galera)
    crowd = clients.Crowd(urls(apis), SPEC, kind=clients.GroupClient,
                          fleet=racks, shared=clients.shared())
    clients.work_with_groups(crowd, racks, seconds, lambda: servers.wait(
        lambda: conflicts(galera) > before, 'they have met'))
    agree(galera, crowd.holds)
    assert not crowd.seen[503], crowd.seen


def test_groups_are_joined_one_by_one(galera, apis, racks, seconds):
    before = conflicts(galera)
    clients.join_one_by_one(urls(apis), racks, SPEC, seconds)
    assert conflicts(galera) > before


def test_members_are_claimed_at_once(apis, racks):
    clients.claim_at_once(urls(apis), racks, SPEC)


class Limited(clients.GroupClient):
    """Its project may have fewer nodes than are free."""

    REFUSED = 403
    ACTIONS = clients.Client.ACTIONS | {'create': 2, 'end': 2, 'list': 4}
    WITH_HOLD = clients.Client.WITH_HOLD

    def check_refusal(self, told):
        assert told['quota']['limit'] == limited.LIMIT

    def list(self):
        assert len(super().list()) <= limited.LIMIT


def check_limit(apis, holds):
    """At no time were there more, and all of it can be had."""
    changes = sorted((when, change) for hold in holds if hold.node
                     for when, change in ((hold.told, 1), (hold.ends, -1)))
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
        servers.wait(lambda: conflicts(galera) > before, 'they have met')
    check_end(galera, limited_apis, crowd, Limited)


def edit(member, stop):
    """Change nodes as fast as they may be; how often."""
    done = 0
    with member.connect() as connection, connection.cursor() as cursor:
        while not stop.is_set():
            memory = random.choice((256, 1024))
            # The number makes each of them another text.
            properties = {'memory_mb': memory, 'number': random.random()}
            with contextlib.suppress(pymysql.err.OperationalError):
                cursor.execute(
                    'UPDATE nodes SET properties = %s '
                    'WHERE instance_uuid IS NULL ORDER BY RAND() LIMIT 1',
                    [json.dumps(properties)])
                connection.commit()
                done += 1
    return done


def test_nodes_are_edited_on_another_member(galera, apis, seconds):
    fleet = galera.fleets[0]
    fleet.fill(12)
    before = conflicts(galera)
    stop = threading.Event()
    with concurrent.futures.ThreadPoolExecutor() as executor:
        edits = [executor.submit(edit, member, stop)
                 for member in galera.members[1:]]
        crowd = clients.Crowd([apis[0].url], SPEC, may_fail=True,
                              leases=[None])
        try:
            with crowd:
                crowd.work(seconds)
                servers.wait(lambda: conflicts(galera) > before,
                             'they have met')
        finally:
            stop.set()
    agree(galera, crowd.holds)
    taken = fleet.execute('SELECT properties FROM audit '
                          'WHERE held IS NOT NULL')
    assert taken
    for properties, in taken:
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
    """End the leases of hosts, which other members write at the same time."""
    galera.members[0].sql(
        'UPDATE reservations_hosts SET expires_at = UTC_TIMESTAMP()')


def test_host_has_one_holder(galera, apis):
    """Asked for on all members at once, also when it is over."""
    won = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(6) as executor:
        for _ in range(20):
            holders = [str(uuid.uuid4()) for _ in range(6)]
            seen = list(executor.map(be_host, apis * 2, holders))
            assert sorted(seen) == [200] + [409] * 5, seen
            won[seen.index(200) % 3] += 1
            found = call('GET', apis[1], '/hosts').json()['hosts']
            assert [each['holder'] for each in found] == [
                holders[seen.index(200)]]
            end_leases(galera)
    assert len(won) > 1, won


def write_as(api, holder, seen, stop):
    """Hold and release until it is refused, and on.

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
    """Nothing is changed by it once another is the host."""
    before, total = str(uuid.uuid4()), collections.Counter()
    end_leases(galera)
    assert be_host(apis[0], before) == 200
    met = conflicts(galera)
    for number in range(6):
        holder, stop = str(uuid.uuid4()), threading.Event()
        seen = [[] for _ in range(4)]
        with concurrent.futures.ThreadPoolExecutor(4) as executor:
            writers = [
                executor.submit(write_as, api, before, each, stop)
                for api, each in zip(
                    (apis * 2)[number % 3 + 1:][:2] * 2, seen, strict=True)]
            try:
                time.sleep(0.5)
                end_leases(galera)
                assert be_host(apis[number % 3], holder) == 200
                held = galera.fleets[number % 3].held()
                servers.wait(lambda seen=seen: all(
                    each[-1:] == [412] for each in seen), 'all are refused')
            finally:
                stop.set()
            for future in writers:
                future.result()
            for each in seen:
                total.update(each)
                assert each[-1] == 412
        assert [each.held() for each in galera.fleets] == [held] * 3
        before = holder
    assert total[201] and total[204] and total[412], total
    # This is what the test is about.
    assert conflicts(galera) > met


# Members that die

def workers(apis):
    return [child.pid for api in apis
            for child in psutil.Process(api.process.pid).children()]


def all_work(apis):
    """Every worker answers, as many of them as there are."""
    with concurrent.futures.ThreadPoolExecutor(12) as executor:
        for answer in executor.map(lambda api: call('GET', api), apis * 4):
            assert answer.status_code == 200, answer.text


class Claimer(clients.GroupClient):
    """It holds groups, and claims; no conductor of a member works for it."""

    WITH_HOLD = {name: often for name, often
                 in clients.GroupClient.WITH_HOLD.items()
                 if name != 'tear_down'}


def make_crowd(apis, kind):
    return clients.Crowd(urls(apis), SPEC, kind=kind, leases=[None],
                         fleet=None, shared=clients.shared())


#: A Claimer does also what a plain client does.
KINDS = Claimer, Limited


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def asked(request, kind):
    """The APIs that clients of the kind ask."""
    return request.getfixturevalue(
        'limited_apis' if kind is Limited else 'apis')


def check_end(galera, apis, crowd, kind):
    agree(galera, crowd.holds)
    if kind is Limited:
        check_limit(apis, crowd.holds)
        assert crowd.seen[403], crowd.seen


@pytest.mark.parametrize('kind, empty', [
    *((kind, True) for kind in KINDS), (Claimer, False)], indirect=['kind'],
    ids=lambda each: {True: 'empty', False: 'late'}.get(each)
    or each.__name__)
def test_members_are_killed(galera, asked, racks, seconds, kind, empty):
    """One that comes back empty has another as donor, which stands still."""
    before = workers(asked)
    victims = itertools.cycle(reversed(galera.members))
    crowd = make_crowd(asked, kind)
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
            all_work(asked)
    check_end(galera, asked, crowd, kind)
    assert crowd.seen[503] and crowd.seen[201], crowd.seen
    assert workers(asked) == before


def test_quorum_is_lost(galera, asked, racks, kind):
    before = workers(asked)
    survivor, *others = galera.members
    crowd = make_crowd(asked, kind)
    with crowd:
        crowd.work(1)
        for member in others:
            member.kill()
        servers.wait(lambda: survivor.status('cluster_status') != 'Primary',
                     'loss of quorum')
        calls = itertools.product(asked, (
            ('POST', ''), ('GET', ''), ('GET', '/capacity'),
            ('GET', f'/{uuid.uuid4()}'), ('DELETE', f'/{uuid.uuid4()}')))
        with concurrent.futures.ThreadPoolExecutor(15) as executor:
            for answer in executor.map(
                    # Within seconds, says the time-out.
                    lambda each: call(each[1][0], each[0], each[1][1], SPEC,
                                      timeout=PATIENCE), calls):
                assert answer.status_code == 503
                assert int(answer.headers['Retry-After'])
        assert {healthy(api) for api in asked} == {False}
        for member in others:
            member.join(galera.members)
        for member in galera.members:
            member.wait()
        all_work(asked)
        assert {healthy(api) for api in asked} == {True}
        crowd.work(1)
    check_end(galera, asked, crowd, kind)
    assert workers(asked) == before


# What has happened on another member

@pytest.fixture
def careless(galera, start_api):
    """Does without what the documentation recommends."""
    with start_api(galera.members[1].url) as api:
        yield api


@contextlib.contextmanager
def lagging(member):
    """Let a member know nothing of what the others do meanwhile."""
    with member.connect() as connection, connection.cursor() as cursor:
        cursor.execute('FLUSH TABLES WITH READ LOCK')
        yield
        cursor.execute('UNLOCK TABLES')


def test_none_is_not_stale(galera, apis, careless):
    galera.fleets[0].fill(1, provision_state='manageable')
    # Whatever they make ready is ready.
    for api in careless, apis[1]:
        assert call('POST', api, body=SPEC).status_code == 422
    with concurrent.futures.ThreadPoolExecutor() as executor:
        with lagging(galera.members[1]):
            galera.members[0].sql(
                "UPDATE nodes SET provision_state = 'available'")
            # This is what it protects from.
            assert call('POST', careless, body=SPEC).status_code == 422
            future = executor.submit(call, 'POST', apis[1], body=SPEC)
            concurrent.futures.wait([future], timeout=2)
        assert future.result().status_code == 201


def test_fence_is_not_stale(galera, apis, careless, fleet):
    """Whether or not other reads wait for what the others have written.

    Here is no Ironic behind it, so that what is let in is not found.
    """
    held = call('POST', apis[0], body={**SPEC, 'host': 'h'}).json()

    def enter(api):
        return requests.put(
            f'{api.url}/v1/nodes/{held["node_uuid"]}/states/power',
            timeout=60, headers={
                'X-OpenStack-Ironic-Reservation':
                f'instance={held["instance_uuid"]}; host=h'}).status_code

    for api in careless, apis[1]:
        assert enter(api) == 404
        with concurrent.futures.ThreadPoolExecutor() as executor:
            with lagging(galera.members[1]):
                galera.members[0].sql("UPDATE reservations SET host = 'x'")
                future = executor.submit(enter, api)
                concurrent.futures.wait([future], timeout=2)
                # The others do not wait because this one has.
                assert call('GET', careless, f'/{held["instance_uuid"]}'
                            ).json()['host'] == 'h'
            assert future.result() == 412
        galera.members[0].sql("UPDATE reservations SET host = 'h'")
        servers.wait(lambda api=api: enter(api) == 404, 'what was')


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
def test_upgrade_check_tells(galera, conf_file, options, expected):
    found = subprocess.run(
        [services.program('ironic-reservations-status'), '--config-file',
         conf_file(galera.members[0].url, **options), 'upgrade', 'check'],
        stdout=subprocess.PIPE, text=True, check=False)
    lines = found.stdout.splitlines()
    [check] = [number for number, line in enumerate(lines)
               if 'Check: Stale reads' in line]
    assert expected in lines[check + 1]
    assert ('mysql_wsrep_sync_wait' in found.stdout) == (options == {})


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
