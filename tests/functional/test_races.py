# SPDX-License-Identifier: Apache-2.0
"""Races of many clients, also with Ironic's own changes of nodes.

A trigger in the database records each node when it is taken or released, and
the tests check these records.
"""

import collections
import concurrent.futures
import itertools
import json
import random
import threading
import time
import uuid

import pytest
import sqlalchemy as sa

from tests.common import recording
from tests.common import service

OURS = '/v1/reservations'
CLIENTS = 8
NODES, REQUESTS = 24, 32
POOL = [{'properties': {'memory_mb': 1024}}] * NODES
#: Duration of a race, in seconds.
SECONDS = 8
#: Events without which a race goes on, for at most EXTRA_SECONDS: on a busy
#: machine one allocation may take as long as the race.
PENDING_EVENTS = set()
EXTRA_SECONDS = 60

#: The clients wait for each other here before they start.
BARRIER = threading.Barrier(CLIENTS, timeout=120)
RECORDER = recording.Recorder()
#: Lists of all reservations and cordons, for the checker of histories.
ALL = f'{OURS}?limit=1000'
CORDONS = f'{OURS}/notices?state=open&limit=1000'


# Functions of clients, which run in threads

def call(method, url, body=None):
    """Return the status and the content of a response."""
    response = RECORDER.request(
        method, url, json=body, timeout=120,
        headers={service.API_VERSION: 'latest'})
    return response.status_code, response.json() if response.content else None


def post_all(url, bodies):
    BARRIER.wait()
    return [call('POST', url + OURS, body) for body in bodies]


def adopt_all(url, host, instance_uuids):
    BARRIER.wait()
    return [call('POST', f'{url}{OURS}?adopt=true',
                 {'instance_uuid': instance_uuid, 'host': host})[0]
            for instance_uuid in instance_uuids]


def adopt(url, host, instance_uuids):
    """Adopt instances at random, and return them with the statuses."""
    return [(instance_uuid, call(
                'POST', f'{url}{OURS}?adopt=true',
                {'instance_uuid': instance_uuid, 'host': host})[0])
            for instance_uuid in choose_until_the_end(instance_uuids)]


def release(url, instance_uuids):
    """Release instances at random, until each was released."""
    PENDING_EVENTS.add('a release of each')
    responses, remaining = [], set(instance_uuids)
    for instance_uuid in choose_until_the_end(instance_uuids):
        status, _ = call('DELETE', f'{url}{OURS}/{instance_uuid}')
        responses.append((instance_uuid, status))
        if status == 204:
            remaining.discard(instance_uuid)
        if not remaining:
            PENDING_EVENTS.discard('a release of each')
    return responses


def tear_down(database_url, instances):
    """Take instances from their nodes like a conductor, and put them back.

    :param instances: pairs of a node's UUID and an instance's.
    """
    rounds = 0
    with service.engine(database_url).connect() as connection:
        for node, instance_uuid in choose_until_the_end(instances):
            for state, lock, instance in (
                    ('active', 'conductor', None),
                    ('deleting', 'conductor', None), ('available', None, None),
                    ('active', None, instance_uuid)):
                connection.execute(
                    sa.text('UPDATE nodes SET provision_state = :s, '
                            'reservation = :l, instance_uuid = :i '
                            'WHERE uuid = :n'),
                    {'s': state, 'l': lock, 'i': instance, 'n': node})
                connection.commit()
            rounds += 1
            time.sleep(0.02)
    return rounds


def hold_and_release(url, specs):
    """Hold and release nodes, and return the requests with the statuses."""
    results = []
    for spec in choose_until_the_end(specs):
        instance_uuid = str(uuid.uuid4())
        status, _ = call('POST', url + OURS,
                         {**spec, 'instance_uuid': instance_uuid})
        statuses = []
        if status == 201:
            time.sleep(random.uniform(0, 0.05))
            # 409 if the node is locked or in a transient state. A few
            # reservations are not released.
            while (random.random() > 0.05
                   and 204 not in statuses and len(statuses) < 50):
                statuses.append(call(
                    'DELETE', f'{url}{OURS}/{instance_uuid}')[0])
        if random.random() < 0.1:
            call('GET', url + ALL)
        results.append((instance_uuid, spec, status, statuses))
    return results


def allocate(url, resource_class):
    """Allocate nodes through Ironic, at least one of them successfully."""
    seen = []
    PENDING_EVENTS.add('an allocation')
    for _ in choose_until_the_end([None]):
        status, allocation = call('POST', f'{url}/v1/allocations',
                                  {'resource_class': resource_class})
        if status != 201:
            continue
        path = f'{url}/v1/allocations/{allocation["uuid"]}'
        for _ in range(50):
            status, allocation = call('GET', path)
            if status == 200 and allocation['state'] != 'allocating':
                seen.append(allocation['state'])
                if allocation['state'] == 'active':
                    PENDING_EVENTS.discard('an allocation')
                break
        call('DELETE', path)
    return seen


def edit(url, calls):
    """Make calls at random, and return their statuses."""
    return [call(method, url + path, body)[0]
            for method, path, body in choose_until_the_end(calls)]


def write(database_url, node_uuids):
    """Edit nodes as often as many conductors, and count the edits.

    It has the effect of a conductor's UPDATE. Edits through the API of one
    conductor are too rare to fall between the read of a node and its hold.
    """
    edits = [{'properties': json.dumps(properties(number, *sizes)),
              'shard': shard, 'maintenance': maintenance}
             for number, (sizes, shard, maintenance) in enumerate(
                 itertools.product(((500, 1), (1000, 2)), 'ab',
                                   (False, False, False, True)))]
    with service.engine(database_url).connect() as connection:
        writes = 0
        for node_uuid in choose_until_the_end(node_uuids):
            connection.execute(
                sa.text('UPDATE nodes SET properties = :properties, '
                        'shard = :shard, maintenance = :maintenance '
                        'WHERE uuid = :uuid'),
                {**random.choice(edits), 'uuid': node_uuid})
            connection.commit()
            writes += 1
            time.sleep(0.001)
    return writes


def choose_until_the_end(choices):
    """Yield random choices until the race ends."""
    BARRIER.wait()
    begin = time.monotonic()
    while time.monotonic() < begin + SECONDS + (
            EXTRA_SECONDS if PENDING_EVENTS else 0):
        yield random.choice(choices)


def pytest_generate_tests(metafunc):
    """Use MariaDB, and SQLite for one smoke test: it has one writer."""
    smoke = metafunc.function is test_one_instance_has_one_node
    metafunc.parametrize('ironic', ['sqlite', 'server'][not smoke:],
                         indirect=True)


@pytest.fixture
def clients():
    """Return a function that runs one function per client concurrently."""
    BARRIER.reset()
    PENDING_EVENTS.clear()
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as executor:
        def run(*jobs):
            assert len(jobs) == CLIENTS
            return [future.result(300) for future in
                    [executor.submit(*job) for job in jobs]]
        yield run


# Races of reservations

class Alternation:
    """The URLs of Ironic and of the standalone application, in turn."""

    def __init__(self, *urls):
        self._urls = itertools.cycle(urls)

    @property
    def url(self):
        return next(self._urls)


@pytest.fixture
def api(ironic, alone, pool):
    RECORDER.clear()
    yield Alternation(ironic.url, alone.url)
    call('GET', ironic.url + ALL)
    RECORDER.check(ironic.execute, [node.id for node in pool],
                   [ironic.log, alone.log])
    for instance_uuid, in ironic.execute(
            'SELECT instance_uuid FROM reservations'):
        status, _ = call('DELETE', f'{ironic.url}{OURS}/{instance_uuid}')
        assert status == 204


def check_agreement(ironic):
    """Check that nodes and rows agree, and return nodes by instance."""
    nodes = ironic.execute('SELECT id, uuid, instance_uuid FROM nodes '
                           'WHERE instance_uuid IS NOT NULL ORDER BY id')
    rows = ironic.execute('SELECT node_id, node_uuid, instance_uuid '
                          'FROM reservations ORDER BY node_id')
    assert nodes == rows
    return {instance_uuid: node_uuid for _, node_uuid, instance_uuid in rows}


def test_every_node_is_held_once(ironic, api, pool, node_class, clients):
    bodies = [{'resource_class': node_class, 'memory_mb': 512,
               'host': f'host-{number}', 'instance_uuid': str(uuid.uuid4())}
              for number in range(REQUESTS)]
    seen = list(itertools.chain(*clients(*(
        (post_all, api.url, bodies[number::CLIENTS])
        for number in range(CLIENTS)))))
    assert collections.Counter(status for status, _ in seen) == {
        201: NODES, 422: REQUESTS - NODES}
    nodes = {body['instance_uuid']: body['node_uuid']
             for status, body in seen if status == 201}
    assert set(nodes.values()) == {node.id for node in pool}
    assert check_agreement(ironic) == nodes


def test_one_instance_is_held_once(ironic, api, node_class, clients):
    for _ in range(5):
        body = {'resource_class': node_class,
                'instance_uuid': str(uuid.uuid4())}
        seen = list(itertools.chain(*clients(
            *((post_all, api.url, [body] * 3) for _ in range(CLIENTS)))))
        assert collections.Counter(status for status, _ in seen) == {
            201: 1, 200: 3 * CLIENTS - 1}
        node_uuid, = {content['node_uuid'] for _, content in seen}
        assert check_agreement(ironic)[body['instance_uuid']] == node_uuid
    assert len(check_agreement(ironic)) == 5


@pytest.mark.parametrize('key, status', [('name', 409), ('host', 200)])
def test_one_instance_has_one_node(ironic, api, node_class, clients, key,
                                   status):
    """Requests for one instance with different specs: one succeeds.

    Requests with different hosts succeed one after the other.
    """
    instance_uuid = str(uuid.uuid4())
    seen = clients(*(
        (post_all, api.url, [{'resource_class': node_class,
                              key: f'a-{number}',
                              'instance_uuid': instance_uuid}])
        for number in range(CLIENTS)))
    assert collections.Counter(result for (result, _), in seen) == {
        201: 1, status: CLIENTS - 1}
    assert len({content['node_uuid'] for (result, content), in seen
                if result != 409}) == 1
    assert list(check_agreement(ironic)) == [instance_uuid]


# Pools and cordons

def use_pools(url, project, spec):
    """Hold and claim nodes for a project, and pool and cordon nodes."""
    seen, instances, pools, nodes, cordons = (
        collections.Counter(), [], [], [], [])
    ours = url + OURS
    for action in choose_until_the_end([
            'hold', 'hold', 'hold', 'release', 'claim', 'pool', 'delete',
            'show', 'cordon', 'close', 'list']):
        name = str(uuid.uuid4())
        hold = {**spec, 'instance_uuid': name, 'project_id': project}
        match action:
            case 'hold':
                status, body = call('POST', ours, hold)
            case 'claim' if instances:
                status, body = call('POST', ours, {
                    **hold, 'claim': instances.pop()})
            case 'release' if instances:
                status, _ = call('DELETE', f'{ours}/{instances.pop()}')
            case 'pool':
                status, _ = call('POST', f'{ours}/pools', {
                    'uuid': name, 'project_id': project, 'members': 3,
                    'request': spec})
                pools += [name] * (status == 201)
            case 'delete' if pools:
                status, _ = call('DELETE', f'{ours}/pools/{pools.pop()}')
            case 'show' if pools:
                status, _ = call('GET', f'{ours}/pools/{pools[0]}')
            case 'cordon' if nodes:
                status, _ = call('POST', f'{ours}/notices', {
                    'uuid': name, 'kind': 'maintenance',
                    'nodes': random.sample(nodes, 1)})
                cordons += [name] * (status == 201)
            case 'close' if cordons:
                status, _ = call('PATCH', f'{ours}/notices/{cordons.pop()}', [
                    {'op': 'add', 'path': '/ends_at', 'value': 'now'}])
            case _:
                action = 'list'
                status, _ = call('GET', url + random.choice((ALL, CORDONS)))
        if action in ('hold', 'claim') and status == 201:
            instances.append(name)
            nodes.append(body['node_uuid'])
        seen[action, status] += 1
        PENDING_EVENTS.discard((action, status))
    return seen


def test_pools_and_cordons(ironic, api, node_class, clients):
    PENDING_EVENTS.update([
        ('hold', 201), ('claim', 201), ('release', 204), ('pool', 201),
        ('delete', 204), ('cordon', 201), ('close', 200)])
    try:
        total = sum(clients(*(
            (use_pools, api.url, f'project-{number % 3}',
             {'resource_class': node_class}) for number in range(CLIENTS))),
            collections.Counter())
    finally:
        for table in 'pool_nodes', 'pools', 'notices':
            ironic.execute(f'DELETE FROM reservations_{table}')
    assert {status for _, status in total} <= {200, 201, 204, 409, 422}, total
    assert not PENDING_EVENTS, total


# Adoption

@pytest.fixture
def pairs(ironic, pool):
    """Pairs of a node and its instance, without reservations."""
    pairs = [(node.id, str(uuid.uuid4())) for node in pool]
    for node, instance_uuid in pairs:
        ironic.set_node(node, instance_uuid=instance_uuid,
                        provision_state='active')
    return pairs


def test_one_host_adopts(ironic, alone, pairs, clients):
    instance_uuids = [instance for _, instance in pairs]
    seen = clients(*(
        (adopt_all, alone.url, f'host-{number}', instance_uuids)
        for number in range(CLIENTS)))
    for statuses in zip(*seen, strict=True):
        assert collections.Counter(statuses) == {201: 1, 409: CLIENTS - 1}
    assert check_agreement(ironic) == {
        instance: node for node, instance in pairs}


@pytest.mark.long
def test_adoption_during_tear_down_and_release(
        ironic, alone, pairs, clients):
    down, free = pairs[:4], pairs[4:8]
    for node, _ in free:
        ironic.set_node(node, provision_state='available')
    instance_uuids = [instance for _, instance in down + free]
    *seen, releases, rounds = clients(
        *((adopt, alone.url, f'host-{number % 2}', instance_uuids)
          for number in range(6)),
        (release, alone.url, [instance for _, instance in free]),
        (tear_down, ironic.database_url, down))
    statuses = collections.Counter(
        status for _, status in itertools.chain(*seen))
    assert set(statuses) == {200, 201, 404, 409} and rounds, statuses
    # Each reservation is released once, and not adopted afterwards.
    assert collections.Counter(
        instance for instance, status in releases if status == 204
    ) == {instance: 1 for _, instance in free}
    for node, _ in free:
        assert ironic.find_instance(node) is None
    # The nodes decide; all other rows are stale.
    for node, instance_uuid in down:
        status, body = call('GET', f'{ironic.url}{OURS}/{instance_uuid}')
        assert (status, body.get('node_uuid')) in ((200, node), (404, None))
    assert {row['instance_uuid'] for row in ironic.list()} <= {
        instance for _, instance in down}


# Renewal of a group

def renew_group(url, path):
    """Renew the leases of a group, and return the statuses.

    The members without a host have the new lease, or have joined since.
    """
    seen = collections.Counter()
    BARRIER.wait()
    end = time.monotonic() + SECONDS
    for seconds in itertools.count(1000, 1000):
        status, group = call('PATCH', url + path, [
            {'op': 'replace', 'path': '/expires_in',
             'value': seconds % 100000 + 1}])
        seen[status] += 1
        if status == 200:
            members = group['reservations']
            assert len({member['expires_at'] for member in members
                        if member['host'] is None} - {None}) <= 1, group
            # Claimed members have the lease of the claim, which is none.
            assert not any(member['expires_at'] for member in members
                           if member['host'] is not None), group
        if time.monotonic() > end and seen[200]:
            return seen


def use_group(url, group, spec):
    """Join a group, leave it, and claim its members for a host."""
    seen = collections.Counter()
    instances = []
    for action in choose_until_the_end(
            ['join', 'join', 'claim', 'release', 'list']):
        if action == 'list':
            status, _ = call('GET', url + ALL)
        elif action == 'release' and instances:
            status, _ = call('DELETE', f'{url}{OURS}/{instances.pop()}')
        elif action != 'release':
            status, body = call('POST', url + OURS, spec | (
                {'group': {'uuid': group}} if action == 'join'
                else {'claim': group, 'host': HOST}))
            if status == 201:
                instances.append(body['instance_uuid'])
        else:
            continue
        seen[action, status] += 1
    return seen


def test_group_is_renewed_while_members_come_and_go(
        ironic, api, node_class, clients):
    group = str(uuid.uuid4())
    status, _ = call('POST', f'{api.url}{OURS}/groups', {
        'uuid': group, 'members': 8,
        'request': {'resource_class': node_class}})
    assert status == 201
    renewals, *seen = clients(
        (renew_group, api.url, f'{OURS}/groups/{group}'),
        *((use_group, api.url, group, {'resource_class': node_class})
          for _ in range(CLIENTS - 1)))
    assert set(renewals) <= {200, 404, 409}, renewals
    total = sum(seen, collections.Counter())
    assert {status for _, status in total} <= {
        200, 201, 204, 404, 409, 422}, total
    for result in ('join', 201), ('claim', 201), ('release', 204):
        assert total[result], total
    check_agreement(ironic)


# Host leases

HOST = 'compute-1'


@pytest.fixture
def leases(ironic):
    """Delete all host leases before and after the test."""
    ironic.execute('DELETE FROM reservations_hosts')
    yield
    ironic.execute('DELETE FROM reservations_hosts')


def acquire_lease(url, host, holder):
    return call('PUT', f'{url}{OURS}/hosts/{host}',
                {'holder': holder, 'ttl': 600})


def put_all(url, hosts, holder):
    BARRIER.wait()
    return [acquire_lease(url, host, holder) for host in hosts]


def expire_leases(ironic):
    ironic.execute('UPDATE reservations_hosts '
                   f'SET expires_at = {ironic.clock()}')


def test_host_has_one_holder(ironic, api, clients, leases):
    """One process acquires a new lease, and one an expired lease."""
    names = [f'compute-{number}' for number in range(5)]
    holders = set()
    for _ in range(3):
        claims = [str(uuid.uuid4()) for _ in range(CLIENTS)]
        seen = clients(*((put_all, api.url, names, holder)
                         for holder in claims))
        for number, name in enumerate(names):
            assert collections.Counter(
                responses[number][0] for responses in seen) == {
                    200: 1, 409: CLIENTS - 1}
            winner, = (holder for holder, responses in zip(
                claims, seen, strict=True) if responses[number][0] == 200)
            assert ironic.execute(
                'SELECT holder FROM reservations_hosts WHERE host = :h',
                h=name) == [(winner,)]
            holders.add(winner)
        expire_leases(ironic)
    assert len(holders) >= 3


def write_until_refused(url, node_class, holder):
    """Write as a compute host until the requests are refused."""
    query = f'?host={HOST}&holder={holder}'
    seen, instances = collections.Counter(), []
    BARRIER.wait()
    end = time.monotonic() + 60
    # Other threads are refused a little later.
    while time.monotonic() < end and seen[412] < 10:
        instance = instances[0] if instances else uuid.UUID(int=1)
        path = f'{url}{OURS}/{instance}{query}'
        method, target, body = random.choice([
            ('POST', url + OURS, {'resource_class': node_class, 'host': HOST,
                                  'holder': holder}),
            ('PATCH', path, [{'op': 'replace', 'path': '/expires_in',
                              'value': random.randrange(1000, 80000)}]),
            ('DELETE', path, None)])
        status, content = call(method, target, body)
        if status == 201:
            instances.append(content['instance_uuid'])
        elif status == 204:
            instances.pop(0)
        seen[status] += 1
        # After the first refusal all are refused.
        assert seen[412] in (0, 1) or status == 412
    return seen


def take_over(url, database_url, holder):
    """Acquire the lease, and return the state after the last write."""
    BARRIER.wait()
    time.sleep(random.uniform(0.3, 0.8))
    watcher = service.Service(url, database_url, None)
    expire_leases(watcher)
    status, _ = acquire_lease(url, HOST, holder)
    assert status == 200
    return watcher.state()


def test_previous_holder_writes_nothing_after_a_takeover(
        ironic, api, node_class, clients, leases):
    before = str(uuid.uuid4())
    assert acquire_lease(api.url, HOST, before)[0] == 200
    total = collections.Counter()
    for _ in range(5):
        holder = str(uuid.uuid4())
        state, *seen = clients(
            (take_over, api.url, ironic.database_url, holder),
            *((write_until_refused, api.url, node_class, before)
              for _ in range(CLIENTS - 1)))
        assert ironic.state() == state
        for statuses in seen:
            total += statuses
            assert statuses[412] == 10
        before = holder
    assert set(total) <= {200, 201, 204, 404, 409, 412, 422}, total
    assert min(total[200], total[201], total[204]) > 0, total


# Races with all other writers

AUDIT = '''
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTO_INCREMENT, node_id INTEGER,
    held_before VARCHAR(36), held VARCHAR(36), allocation_id INTEGER,
    properties TEXT, traits TEXT, shard VARCHAR(255), retired BOOLEAN,
    maintenance BOOLEAN, provision_state VARCHAR(15),
    reservation VARCHAR(255))
'''

# It runs in the transaction that takes or releases a node.
INTO_AUDIT = '''
INSERT INTO audit (
    node_id, held_before, held, allocation_id, properties, traits, shard,
    retired, maintenance, provision_state, reservation)
VALUES (
    NEW.id, OLD.instance_uuid, NEW.instance_uuid, NEW.allocation_id,
    NEW.properties,
    (SELECT GROUP_CONCAT(trait) FROM node_traits WHERE node_id = NEW.id),
    NEW.shard, NEW.retired, NEW.maintenance, NEW.provision_state,
    NEW.reservation);
'''

TRIGGER = f'''
    CREATE TRIGGER audit_nodes AFTER UPDATE ON nodes FOR EACH ROW
    IF NOT (OLD.instance_uuid <=> NEW.instance_uuid
            AND OLD.allocation_id <=> NEW.allocation_id)
    THEN {INTO_AUDIT} END IF'''


@pytest.fixture
def audit(ironic):
    """Return a function that reads the records of nodes, in order."""
    ironic.execute(AUDIT)
    ironic.execute(TRIGGER)
    yield lambda: ironic.execute('SELECT * FROM audit ORDER BY id')
    ironic.execute('DROP TRIGGER audit_nodes')
    ironic.execute('DROP TABLE audit')


def properties(number, memory_mb, gpus):
    # The number makes each text unique.
    return {'memory_mb': memory_mb, 'capabilities': f'gpus:{gpus}',
            'number': number}


#: Request specs, and functions that check a recorded node.
SPECS = [
    ({'memory_mb': 1000},
     lambda node: json.loads(node.properties)['memory_mb'] >= 1000),
    ({'memory_mb': 500, 'extra_specs': {'reservations:match': 'exact'}},
     lambda node: json.loads(node.properties)['memory_mb'] == 500),
    ({'extra_specs': {'capabilities:gpus': '>= 2'}},
     lambda node: json.loads(node.properties)['capabilities'] == 'gpus:2'),
    ({'extra_specs': {'capabilities': 'gpus:1'}},
     lambda node: json.loads(node.properties)['capabilities'] == 'gpus:1'),
    ({'extra_specs': {'trait:CUSTOM_A': 'required'}},
     lambda node: 'CUSTOM_A' in (node.traits or '').split(',')),
    ({'extra_specs': {'trait:CUSTOM_A': 'forbidden'}},
     lambda node: 'CUSTOM_A' not in (node.traits or '').split(',')),
    ({'shard': 'a'}, lambda node: node.shard == 'a'),
]


def may_be_held(node):
    return (node.held_before is None and node.allocation_id is None
            and node.reservation is None and not node.maintenance
            and not node.retired and node.provision_state == 'available')


def edits(nodes):
    """Return calls of operators: edits, and changes of state."""
    paths = [f'/v1/nodes/{node.id}' for node in nodes]
    patches = [
        ('PATCH', path, [
            {'op': 'add', 'path': '/properties',
             'value': properties(number, *sizes)},
            {'op': 'add', 'path': '/shard', 'value': shard},
            {'op': 'add', 'path': '/retired', 'value': is_retired}])
        for path in paths
        for number, (sizes, shard, is_retired) in enumerate(itertools.product(
            ((500, 1), (1000, 2)), 'ab', (False, False, False, True)))]
    traits = [(method, f'{path}/traits/CUSTOM_A', None)
              for path in paths for method in ('PUT', 'DELETE')]
    trait_sets = [('PUT', f'{path}/traits', {'traits': names})
                  for path in paths for names in (['CUSTOM_A'], [])]
    maintenance = [(method, f'{path}/maintenance', None)
                   for path in paths for method in ('PUT', 'DELETE')]
    provision = [('PUT', f'{path}/states/provision', {'target': target})
                 for path in paths
                 for target in ('manage', 'provide', 'provide', 'provide')]
    return patches + traits * 2 + trait_sets, maintenance + provision * 2


@pytest.mark.long
def test_holds_during_all_changes_of_ironic(
        ironic, alone, audit, clients, resource_class):
    RECORDER.clear()
    with ironic.fleet(*(
            {'resource_class': resource_class, 'shard': 'a',
             'properties': properties(0, 1000, 2)} for _ in range(6))
            ) as nodes:
        matches = {json.dumps(spec): match for spec, match in SPECS}
        specs = [{**spec, 'resource_class': resource_class}
                 for spec, _ in SPECS]
        *seen, allocations, edit_statuses, move_statuses, writes = clients(
            *((hold_and_release, api.url, specs)
              for api in (ironic, ironic, alone, alone)),
            (allocate, ironic.url, resource_class),
            *((edit, ironic.url, calls) for calls in edits(nodes)),
            (write, ironic.database_url, [node.id for node in nodes]))
        seen = list(itertools.chain(*seen))
        statuses = collections.Counter(
            status for _, _, hold, releases in seen
            for status in (hold, *releases))
        assert set(statuses) <= {201, 204, 409, 422}, statuses

        results = {instance_uuid: (spec, hold, releases)
                   for instance_uuid, spec, hold, releases in seen}
        history = collections.defaultdict(list)
        for event in audit():
            history[event.node_id].append(event)
        holds, frees = collections.Counter(), collections.Counter()
        for event in itertools.chain(*history.values()):
            if event.held in results and event.held_before != event.held:
                holds[event.held] += 1
                assert may_be_held(event), event
                spec = {key: value for key, value in
                        results[event.held][0].items()
                        if key != 'resource_class'}
                assert matches[json.dumps(spec)](event), (spec, event)
            # No node is taken from its holder.
            assert None in (event.held_before, event.held) or (
                event.held_before == event.held), event
            if event.held in results:
                assert event.allocation_id is None, event
            if event.held_before in results and event.held is None:
                frees[event.held_before] += 1
        # Each hold took its node once, and each release freed it once.
        assert holds == collections.Counter(
            {name: 1 for name, (_, hold, _) in results.items()
             if hold == 201})
        assert frees == collections.Counter(
            {name: 1 for name, (_, _, releases) in results.items()
             if 204 in releases})

        remaining = set(holds) - set(frees)
        rows = ironic.execute(
            'SELECT reservations.instance_uuid FROM reservations '
            'JOIN nodes ON nodes.id = node_id AND '
            'nodes.instance_uuid = reservations.instance_uuid')
        assert {instance_uuid for instance_uuid, in rows} == remaining
        assert len(ironic.execute('SELECT id FROM reservations')) == len(
            remaining)
        for instance_uuid in remaining:
            status, _ = call('GET', f'{ironic.url}{OURS}/{instance_uuid}')
            assert status == 200

        RECORDER.check(ironic.execute, [node.id for node in nodes],
                       [ironic.log, alone.log])

        # All clients had success.
        assert statuses[201] and statuses[204], statuses
        assert 'active' in allocations
        for statuses in edit_statuses, move_statuses:
            assert any(status < 300 for status in statuses)
        assert writes
    ironic.execute('DELETE FROM reservations')
