# SPDX-License-Identifier: Apache-2.0
"""Leases: a dead client leaks no node, a live one loses none.

Time is the database's, in steps of a second.
"""

import concurrent.futures
import configparser
import contextlib
import datetime
import random
import socket
import subprocess
import threading
import time
import types
import uuid

import pytest
import requests

from tests.functional import answers
from tests.functional import conftest
from tools import services

OURS = '/v1/reservations'
LATEST = {conftest.API_VERSION: 'latest'}
INSTANCE_INFO = [{'op': 'add', 'path': '/instance_info/image_source',
                  'value': 'http://127.0.0.1/image'}]
NO_INSTANCE_INFO = [{'op': 'remove', 'path': '/instance_info'}]

#: How long everybody goes at the nodes, per database.
SECONDS = 20


@pytest.fixture(scope='module')
def node_class():
    return f'test-{uuid.uuid4().hex}'


@pytest.fixture(scope='module')
def pool(ironic, node_class):
    with ironic.fleet(*[{'resource_class': node_class,
                         'properties': {'memory_mb': 1024}}] * 3) as nodes:
        yield nodes


@pytest.fixture(autouse=True)
def given_back(request):
    yield
    if 'pool' in request.fixturenames:
        ironic = request.getfixturevalue('ironic')
        answers.execute(
            ironic, "UPDATE nodes SET provision_state = 'available', "
            "power_state = 'power off', instance_uuid = NULL, "
            "maintenance = :no, reservation = NULL, instance_info = '{}' "
            'WHERE resource_class = :c',
            c=request.getfixturevalue('node_class'), no=False)
        answers.execute(ironic, 'DELETE FROM reservations')
        for node in request.getfixturevalue('pool'):
            for kind in 'ports', 'portgroups', 'volume/targets':
                remove_all(ironic, kind, node.id)


def remove_all(ironic, kind, node_uuid):
    response = ironic.http.get(f'/v1/{kind}', params={'node': node_uuid})
    for each in response.json()[kind.rpartition('/')[2]]:
        ironic.http.delete(f'/v1/{kind}/{each["uuid"]}')


@pytest.fixture
def request_(node_class):
    """A request with a lease, for an instance of its own."""
    return {'resource_class': node_class, 'host': 'compute-1',
            'instance_uuid': str(uuid.uuid4()), 'expires_in': 3600}


def create(ironic, status=201, **body):
    response = ironic.http.post(OURS, json=body)
    answers.check(response, status)
    return response.json()


def show(ironic, instance_uuid, status=200):
    response = ironic.http.get(f'{OURS}/{instance_uuid}')
    answers.check(response, status)
    return response.json()


def listed(ironic, **query):
    response = ironic.http.get(OURS, params=query)
    answers.check(response, 200)
    return [each['instance_uuid']
            for each in response.json()['reservations']]


def delete(ironic, instance_uuid, status=204, **query):
    answers.check(ironic.http.delete(f'{OURS}/{instance_uuid}',
                                     params=query), status)


def counted(ironic, node_class, host='compute-1'):
    """Free and held nodes of the class."""
    response = ironic.http.get(
        f'{OURS}/capacity', headers={'Cache-Control': 'no-cache'},
        params={'resource_class': node_class, 'host': host})
    answers.check(response, 200)
    row, = response.json()['capacity']
    assert row['total'] == 3
    return row['free'], row['held']


def carried(ironic, node_uuid):
    """The instance that a node carries, straight from the database."""
    return answers.execute(ironic, 'SELECT instance_uuid FROM nodes '
                                   'WHERE uuid = :u', u=node_uuid)[0][0]


def set_node(ironic, node_uuid, **columns):
    for name, value in columns.items():
        answers.execute(
            ironic, f'UPDATE nodes SET {name} = :value WHERE uuid = :uuid',
            value=value, uuid=node_uuid)


def clock(ironic, seconds=0):
    """The database's time, as SQL."""
    if ironic.database_url.startswith('sqlite'):
        return (f"strftime('%Y-%m-%d %H:%M:%S.000000', 'now', "
                f"'{seconds} seconds')")
    return f'DATE_ADD(UTC_TIMESTAMP(), INTERVAL {seconds} SECOND)'


def now(ironic):
    text = str(answers.execute(ironic, f'SELECT {clock(ironic)}')[0][0])
    return datetime.datetime.fromisoformat(text).replace(
        tzinfo=datetime.UTC)


def expiry(reservation):
    return datetime.datetime.fromisoformat(reservation['expires_at'])


def lapse(ironic, instance_uuid):
    """Let a lease be over this second."""
    answers.execute(ironic, 'UPDATE reservations SET expires_at = '
                            f'{clock(ironic)} WHERE instance_uuid = :i',
                    i=instance_uuid)


def until(condition, what):
    """Wait, at most for so long that something must be wrong."""
    for _ in range(300):
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(what)


# What may be asked for

@pytest.mark.parametrize('seconds', [0, -1, True, False, '3', 1.5, 86401,
                                     2 ** 31 - 1, 2 ** 31, 10 ** 30, [1],
                                     {}], ids=str)
def test_bad_lease(ironic, pool, request_, seconds):
    before = answers.state(ironic)
    response = ironic.http.post(OURS, json={**request_,
                                            'expires_in': seconds})
    assert answers.check(response, 400).startswith('expires_in: must be')
    assert answers.state(ironic) == before


@pytest.mark.parametrize('seconds', [1, 600, 86400])
def test_expires_at_is_on_the_databases_clock(ironic, pool, request_,
                                              seconds):
    lease = datetime.timedelta(seconds=seconds)
    before = now(ironic)
    held = create(ironic, **{**request_, 'expires_in': seconds})
    # A lease of a second may be over and begun again when it is shown.
    assert before + lease <= expiry(held) <= now(ironic) + lease
    assert expiry(held).utcoffset() == datetime.timedelta(0)
    (stored,), = answers.execute(ironic, 'SELECT expires_at '
                                         'FROM reservations')
    assert str(stored)[:19] == f'{expiry(held):%Y-%m-%d %H:%M:%S}'


def test_lease_is_no_part_of_what_is_wanted(ironic, pool, request_):
    held = create(ironic, **request_)
    assert 'expires_in' not in held['request_spec']
    again = create(ironic, 200, **{**request_, 'expires_in': 9})
    assert again['node_uuid'] == held['node_uuid']


@pytest.mark.parametrize('body', [{}, {'expires_in': None}], ids=str)
def test_no_lease_by_default(ironic, pool, request_, body):
    del request_['expires_in']
    assert create(ironic, **request_, **body)['expires_at'] is None


@pytest.fixture(scope='module')
def configured(ironic, start_uwsgi, tmp_path_factory):
    """Starts the application with other leases: a context manager."""
    @contextlib.contextmanager
    def start(**options):
        conf = configparser.RawConfigParser()
        conf.read(ironic.conf_file)
        conf['reservations'] = options
        conf_file = tmp_path_factory.mktemp('leases') / 'ironic.conf'
        with open(conf_file, 'w') as f:
            conf.write(f)
        with start_uwsgi(types.SimpleNamespace(conf_file=str(conf_file)),
                         processes=1) as alone:
            yield alone
    return start


@pytest.mark.parametrize('options, default', [
    ({'default_lease': 30, 'max_lease': 60}, 30),
    ({'default_lease': 3000, 'max_lease': 60}, 60)], ids=str)
def test_options(ironic, pool, request_, configured, options, default):
    del request_['expires_in']
    with configured(**options) as alone:
        for body, seconds in (({}, default), ({'expires_in': None}, default),
                              ({'expires_in': 60}, 60),
                              ({'expires_in': 1000}, None),
                              ({'expires_in': 61}, None)):
            request_['instance_uuid'] = str(uuid.uuid4())
            before = now(ironic)
            response = alone.http.post(OURS, json={**request_, **body})
            if seconds is None:
                assert answers.check(response, 400) == (
                    'expires_in: must be at most 60')
                continue
            answers.check(response, 201)
            lease = datetime.timedelta(seconds=seconds)
            assert (before + lease <= expiry(response.json())
                    <= now(ironic) + lease)
            response = alone.http.post(OURS, json={**request_, **body})
            answers.check(response, 200)


# Renewal

def test_renewal(ironic, pool, request_):
    held = create(ironic, **{**request_, 'expires_in': 10})
    before = now(ironic)
    renewed = create(ironic, 200, **request_)
    assert expiry(renewed) >= before + datetime.timedelta(seconds=3600)
    assert renewed['updated_at'] is not None
    same = {'node_uuid', 'instance_uuid', 'created_at', 'host', 'state'}
    assert {key: renewed[key] for key in same} == {
        key: held[key] for key in same}
    assert show(ironic, held['instance_uuid']) == renewed
    # A shorter one is as good.
    assert expiry(create(ironic, 200, **{
        **request_, 'expires_in': 20})) < expiry(renewed)


def test_move_to_another_host_renews(ironic, pool, node_class, request_):
    held = create(ironic, **{**request_, 'expires_in': 10})
    moved = create(ironic, 200, **{**request_, 'host': 'compute-2'})
    assert moved['node_uuid'] == held['node_uuid']
    assert moved['host'] == 'compute-2'
    assert expiry(moved) > expiry(held)
    assert counted(ironic, node_class, 'compute-1') == (2, 0)
    assert counted(ironic, node_class, 'compute-2') == (2, 1)


def test_renewal_of_another_request_is_none(ironic, pool, request_):
    held = create(ironic, **request_)
    create(ironic, 409, **{**request_, 'memory_mb': 1, 'expires_in': 9})
    assert show(ironic, held['instance_uuid']) == held


def test_renewal_after_the_deploy_has_begun(ironic, pool, request_):
    held = create(ironic, **request_)
    set_node(ironic, held['node_uuid'], provision_state='deploying')
    lapse(ironic, held['instance_uuid'])
    again = create(ironic, 200, **request_)
    assert again['node_uuid'] == held['node_uuid']
    assert again['state'] == 'deploying'
    create(ironic, 409, **{**request_, 'host': 'compute-2'})


# The end

def test_gone_from_that_second_on(ironic, pool, node_class, request_):
    held = create(ironic, **{**request_, 'expires_in': 2})
    ident = held['instance_uuid']
    assert counted(ironic, node_class) == (2, 1)
    until(lambda: now(ironic) >= expiry(held), 'the clock stands still')
    show(ironic, ident, 404)
    assert listed(ironic, resource_class=node_class) == []
    assert listed(ironic, node=held['node_uuid']) == []
    assert listed(ironic, host='compute-1') == []
    assert counted(ironic, node_class) == (3, 0)
    response = ironic.http.post(f'{OURS}?dry_run=true',
                                json={'resource_class': node_class})
    assert response.json()['matching_nodes'] == 3
    answers.check(ironic.http.get(OURS, params={'marker': ident}), 400)
    # Reading gives nothing back.
    assert carried(ironic, held['node_uuid']) == ident


def test_there_until_then(ironic, pool, node_class, request_):
    held = create(ironic, **{**request_, 'expires_in': 2})
    seen = 0
    while True:
        response = ironic.http.get(f'{OURS}/{held["instance_uuid"]}')
        if now(ironic) >= expiry(held):
            break
        answers.check(response, 200)
        seen += 1
    assert seen


def test_next_request_gives_it_back(ironic, pool, node_class, request_):
    held = create(ironic, **request_)
    lapse(ironic, held['instance_uuid'])
    answers.check(ironic.http.post(OURS, json={
        'resource_class': 'of-no-node'}), 422)
    assert carried(ironic, held['node_uuid']) is None
    assert not answers.execute(ironic, 'SELECT * FROM reservations')


def test_all_nodes_lapsed_serve_the_next(ironic, pool, node_class,
                                         request_):
    for _ in pool:
        held = create(ironic, **{**request_,
                                 'instance_uuid': str(uuid.uuid4())})
        lapse(ironic, held['instance_uuid'])
    taken = {create(ironic, **{**request_, 'instance_uuid':
                               str(uuid.uuid4())})['node_uuid']
             for _ in pool}
    assert len(taken) == 3
    create(ironic, 422, resource_class=node_class)


def test_late_renewal_is_a_new_reservation(ironic, pool, request_):
    held = create(ironic, **request_)
    lapse(ironic, held['instance_uuid'])
    again = create(ironic, 201, **request_)
    assert again['instance_uuid'] == held['instance_uuid']
    assert again['updated_at'] is None
    (count,), = answers.execute(ironic, 'SELECT COUNT(*) FROM nodes '
                                        'WHERE instance_uuid IS NOT NULL '
                                        'AND resource_class = :c',
                                c=request_['resource_class'])
    assert count == 1


def test_another_request_for_a_lapsed_instance(ironic, pool, request_):
    held = create(ironic, **request_)
    lapse(ironic, held['instance_uuid'])
    create(ironic, 201, **{**request_, 'memory_mb': 1})


@pytest.mark.parametrize('query', [{}, {'host': 'compute-1'}], ids=str)
def test_late_release_gives_it_back(ironic, pool, request_, query):
    held = create(ironic, **request_)
    lapse(ironic, held['instance_uuid'])
    delete(ironic, held['instance_uuid'], 404, **query)
    assert carried(ironic, held['node_uuid']) is None
    assert not answers.execute(ironic, 'SELECT * FROM reservations')


def test_release_leaves_nothing_on_the_connection(ironic, pool, request_):
    """What follows a 204 is taken for the beginning of the next answer."""
    held = create(ironic, **request_)
    with socket.create_connection(('127.0.0.1', ironic.port), 60) as client:
        client.sendall(f'DELETE {OURS}/{held["instance_uuid"]} HTTP/1.1\r\n'
                       'Host: ironic\r\nConnection: close\r\n\r\n'.encode())
        answer = b''.join(iter(lambda: client.recv(65536), b''))
    head, _, body = answer.partition(b'\r\n\r\n')
    assert head.startswith(b'HTTP/1.1 204 ')
    assert body == b''


def test_release_after_a_tear_down_purges(ironic, pool, request_):
    held = create(ironic, **request_)
    set_node(ironic, held['node_uuid'], instance_uuid=None)
    delete(ironic, held['instance_uuid'], 404)
    assert not answers.execute(ironic, 'SELECT * FROM reservations')


# Touched nodes

def ids_of(ironic, table, ident):
    return answers.execute(ironic, f'SELECT id FROM {table} '
                                   'WHERE uuid = :u', u=ident)[0][0]


def with_instance_info(ironic, node_uuid):
    path = f'/v1/nodes/{node_uuid}'
    assert ironic.http.patch(path, json=INSTANCE_INFO).status_code == 200
    return lambda: ironic.http.patch(path, json=NO_INSTANCE_INFO)


def with_vif_of(kind):
    """The noop network keeps no VIFs, other networks keep them so."""
    def touch(ironic, node_uuid):
        body = {'node_uuid': node_uuid, 'address': ':'.join(
            f'{random.randrange(256):02x}' for _ in range(6))}
        response = ironic.http.post(f'/v1/{kind}', json=body)
        assert response.status_code == 201, response.text
        ident = response.json()['uuid']
        statement = f'UPDATE {kind} SET internal_info = :v WHERE uuid = :u'
        answers.execute(ironic, statement, u=ident,
                        v='{"tenant_vif_port_id": "a-port"}')
        return lambda: answers.execute(ironic, statement, u=ident, v='{}')
    return touch


def with_volume_target(ironic, node_uuid):
    response = ironic.http.post('/v1/volume/targets', json={
        'node_uuid': node_uuid, 'volume_type': 'iscsi', 'boot_index': 0,
        'volume_id': str(uuid.uuid4())})
    assert response.status_code == 201, response.text
    path = f'/v1/volume/targets/{response.json()["uuid"]}'

    def clean():
        # Not of a node that is powered on.
        response = ironic.http.delete(path)
        assert response.status_code == 204, response.text
    return clean


def with_lock(ironic, node_uuid):
    set_node(ironic, node_uuid, reservation='conductor-1')
    return lambda: set_node(ironic, node_uuid, reservation=None)


TOUCHES = {'instance_info': with_instance_info, 'port': with_vif_of('ports'),
           'port group': with_vif_of('portgroups'),
           'volume target': with_volume_target, 'lock': with_lock}


def manage(ironic, *args):
    return subprocess.run(
        [services.program('ironic-reservations-manage'), '--config-file',
         ironic.conf_file, *args], capture_output=True, text=True,
        timeout=120)


@pytest.mark.parametrize('touch', TOUCHES)
def test_touched_node_is_kept(ironic, pool, node_class, request_, touch):
    held = create(ironic, **request_)
    ident, node_uuid = held['instance_uuid'], held['node_uuid']
    others = [create(ironic, resource_class=node_class) for _ in pool[1:]]
    clean = TOUCHES[touch](ironic, node_uuid)
    lapse(ironic, ident)
    # It stays visible, is nobody else's, and nobody gives it back.
    assert show(ironic, ident)['state'] == 'reserved'
    assert ident in listed(ironic, resource_class=node_class)
    assert counted(ironic, node_class) == (0, 1)
    create(ironic, 422, resource_class=node_class)
    assert manage(ironic, 'sweep').returncode == 0
    assert carried(ironic, node_uuid) == ident
    audit = manage(ironic, 'audit')
    assert audit.returncode == 1
    assert ident in audit.stdout and node_uuid in audit.stdout
    # Until somebody has cleaned it: then it is over, as its lease is.
    clean()
    until(lambda: ironic.http.get(
        f'/v1/nodes/{node_uuid}').json()['reservation'] is None,
        'the node stays locked')
    show(ironic, ident, 404)
    assert manage(ironic, 'audit').returncode == 0
    again = create(ironic, resource_class=node_class)
    assert again['node_uuid'] == node_uuid
    assert len(others) == 2


def test_touched_node_can_be_renewed_and_released(ironic, pool, request_):
    held = create(ironic, **request_)
    clean = with_instance_info(ironic, held['node_uuid'])
    lapse(ironic, held['instance_uuid'])
    renewed = create(ironic, 200, **request_)
    assert renewed['node_uuid'] == held['node_uuid']
    assert expiry(renewed) > now(ironic)
    lapse(ironic, held['instance_uuid'])
    clean()
    delete(ironic, held['instance_uuid'], 404)


def test_deployed_node_outlives_its_lease(ironic, resource_class, request_):
    """And its tear-down is its end."""
    request_['resource_class'] = resource_class
    with ironic.fleet({'resource_class': resource_class}) as (node,):
        held = create(ironic, **request_)
        ident, path = held['instance_uuid'], f'/v1/nodes/{node.id}'

        def target(state):
            response = ironic.http.put(f'{path}/states/provision',
                                       json={'target': state})
            assert response.status_code == 202, response.text

        assert ironic.http.patch(
            path, json=INSTANCE_INFO).status_code == 200
        target('active')
        ironic.settle([node], provision_state='active')
        lapse(ironic, ident)
        assert manage(ironic, 'sweep').returncode == 0
        answers.check(ironic.http.post(OURS, json={
            'resource_class': resource_class}), 422)
        assert show(ironic, ident)['state'] == 'active'
        delete(ironic, ident, 409)
        # Not the audit's business either: it is at work.
        assert ident not in manage(ironic, 'audit').stdout
        assert create(ironic, 200, **request_)['node_uuid'] == node.id
        target('deleted')
        ironic.settle([node], provision_state='available')
        show(ironic, ident, 404)
        assert create(ironic, **request_)['node_uuid'] == node.id
        delete(ironic, ident)


@pytest.mark.parametrize('columns', [
    {'maintenance': True}, {'instance_info': None},
    {'power_state': 'power on'}], ids=str)
def test_these_are_no_touch(ironic, pool, request_, columns):
    held = create(ironic, **request_)
    set_node(ironic, held['node_uuid'], **columns)
    lapse(ironic, held['instance_uuid'])
    show(ironic, held['instance_uuid'], 404)
    create(ironic, 422, resource_class='of-no-node')
    assert carried(ironic, held['node_uuid']) is None


# Races

def call(url, method, path, body=None):
    return requests.request(method, url + path, json=body, headers=LATEST,
                            timeout=60)


class Race:
    """What goes on at once, and what was seen."""

    def __init__(self, ironic, alone, node_class):
        self.ironic, self.node_class = ironic, node_class
        self.urls = [ironic.url, alone.url]
        self.end = time.monotonic() + SECONDS
        self.done = threading.Event()
        self.torn_down = set()
        self.finished = set()
        self.rounds = {}

    def ours(self, method, path='', body=None):
        response = call(random.choice(self.urls), method, OURS + path, body)
        # Nobody's time is short enough for a 5xx.
        assert response.status_code < 500, response.text
        return response

    def until_the_end(self):
        while time.monotonic() < self.end and not self.done.is_set():
            yield

    def sees(self, sql, **values):
        return answers.execute(self.ironic, sql, **values)

    def still(self, node_uuid, expires_at):
        """Whether it is before a time, and what the node carries then."""
        stored = datetime.datetime.fromisoformat(expires_at)
        (before, instance_uuid), = self.sees(
            f'SELECT {clock(self.ironic)} < :at, instance_uuid '
            'FROM nodes WHERE uuid = :u', u=node_uuid,
            at=f'{stored:%Y-%m-%d %H:%M:%S}.000000')
        return before, instance_uuid

    # Who takes part

    def observe(self):
        """Whatever happens, nodes and reservations agree."""
        for _ in self.until_the_end():
            alone = self.sees(
                'SELECT nodes.uuid, nodes.instance_uuid FROM nodes '
                'LEFT JOIN reservations ON node_id = nodes.id AND '
                'reservations.instance_uuid = nodes.instance_uuid '
                'WHERE resource_class = :c AND nodes.instance_uuid '
                'IS NOT NULL AND reservations.id IS NULL', c=self.node_class)
            assert not alone, f'held without a reservation: {alone}'
            self.finished.update(row[0] for row in self.sees(
                'SELECT reservations.instance_uuid FROM reservations '
                'LEFT JOIN nodes ON node_id = nodes.id AND '
                'reservations.instance_uuid = nodes.instance_uuid '
                'WHERE nodes.id IS NULL'))
            time.sleep(0.01)

    def sweep(self):
        for _ in self.until_the_end():
            swept = manage(self.ironic, 'sweep')
            assert swept.returncode == 0, swept.stderr

    def ask(self):
        """For what there is not: that gives back in passing."""
        for _ in self.until_the_end():
            assert self.ours('POST', body={
                'resource_class': 'of-no-node'}).status_code == 422
            time.sleep(0.02)

    def steal(self):
        """Hold what is free, and let go of it."""
        for _ in self.until_the_end():
            response = self.ours('POST', body={
                'resource_class': self.node_class, 'expires_in': 1})
            if response.status_code == 201:
                held = response.json()
                before, instance_uuid = self.still(held['node_uuid'],
                                                   held['expires_at'])
                if before and instance_uuid != held['instance_uuid']:
                    # Only a tear-down may have ended it.
                    assert held['instance_uuid'] in self.torn_down
                self.ours('DELETE', f'/{held["instance_uuid"]}')
            time.sleep(random.uniform(0.1, 0.4))

    def build(self, node_uuid):
        """Hold one node, and do something as the lease runs out."""
        path = f'/v1/nodes/{node_uuid}'
        for _ in self.until_the_end():
            body = {'candidate_nodes': [node_uuid], 'expires_in': 1,
                    'instance_uuid': str(uuid.uuid4()), 'host': 'compute-1'}
            response = self.ours('POST', body=body)
            if response.status_code != 201:
                assert response.status_code == 422, response.text
                time.sleep(0.05)
                continue
            held = response.json()
            assert held['node_uuid'] == node_uuid
            act = random.choice([self.renew, self.renew, self.release,
                                 self.prepare, self.deploy, self.lock])
            # The database is on this machine, and so is its clock.
            left = expiry(held).timestamp() - time.time()
            time.sleep(max(0, left + random.uniform(-0.6, 0.05)))
            self.rounds[act.__name__] = self.rounds.get(act.__name__, 0) + 1
            act(body, held, path)
            self.clean(body['instance_uuid'], path)

    def renew(self, body, held, path):
        response = self.ours('POST', body={**body, 'expires_in': 2})
        if response.status_code == 422:
            return  # The thief was faster.
        assert response.status_code in (200, 201), response.text
        held = response.json()
        self.rounds['renewed'] = self.rounds.get('renewed', 0) + (
            response.status_code == 200)
        while True:
            before, instance_uuid = self.still(held['node_uuid'],
                                               held['expires_at'])
            if not before:
                return
            assert instance_uuid == body['instance_uuid'], (
                'an acknowledged lease was not honoured', held)
            time.sleep(0.02)

    def release(self, body, held, path):
        response = self.ours('DELETE', f'/{body["instance_uuid"]}')
        assert response.status_code in (204, 404, 409), response.text
        if response.status_code != 409:
            assert self.ours('GET', f'/{body["instance_uuid"]}'
                             ).status_code == 404
            (count,), = self.sees('SELECT COUNT(*) FROM nodes '
                                  'WHERE instance_uuid = :i',
                                  i=body['instance_uuid'])
            assert count == 0

    def prepare(self, body, held, path):
        response = call(self.ironic.url, 'PATCH', path, INSTANCE_INFO)
        if response.status_code == 200:
            self.must_stay(body, held, path)

    def deploy(self, body, held, path):
        response = call(self.ironic.url, 'PUT', f'{path}/states/provision',
                        {'target': 'active'})
        if response.status_code == 202:
            self.must_stay(body, held, path)

    def lock(self, body, held, path):
        call(self.ironic.url, 'PUT', f'{path}/states/power',
             {'target': random.choice(['power on', 'power off'])})

    def must_stay(self, body, held, path):
        """What has begun on a held node keeps it held, also when late."""
        ident = body['instance_uuid']
        before, instance_uuid = self.still(held['node_uuid'],
                                           held['expires_at'])
        if not before and instance_uuid != ident:
            return  # Given back before: a client that has been asleep.
        assert instance_uuid == ident
        self.rounds['kept'] = self.rounds.get('kept', 0) + 1
        while self.still(held['node_uuid'], held['expires_at'])[0]:
            time.sleep(0.05)
        for _ in range(10):
            assert carried(self.ironic, held['node_uuid']) == ident, (
                'given back with its traces')
            assert self.ours('GET', f'/{ident}').status_code == 200
            time.sleep(0.05)

    def clean(self, ident, path):
        """As a host cleans up, whatever it has come to."""
        for _ in range(600):
            node = call(self.ironic.url, 'GET', path).json()
            if node.get('reservation') or 'provision_state' not in node:
                pass
            elif node['provision_state'] in ('active', 'deploy failed',
                                             'error'):
                # Ironic takes the node from whoever holds it.
                self.torn_down.add(node['instance_uuid'])
                call(self.ironic.url, 'PUT', f'{path}/states/provision',
                     {'target': 'deleted'})
            elif node['provision_state'] != 'available':
                pass
            elif node['instance_info']:
                call(self.ironic.url, 'PATCH', path, NO_INSTANCE_INFO)
            else:
                status = self.ours('DELETE', f'/{ident}').status_code
                assert status in (204, 404, 409)
                if status != 409:
                    return
            time.sleep(0.05)
        raise AssertionError(f'the node does not come to rest: {node}')


@pytest.fixture(scope='module')
def alone(ironic, start_uwsgi):
    with start_uwsgi(ironic, processes=3) as alone:
        yield alone


@pytest.mark.long
def test_races(ironic, alone, resource_class):
    """Expiry against renewal, release, a deploy and a conductor's lock."""
    with ironic.fleet(*[{'resource_class': resource_class}] * 6) as nodes:
        race = Race(ironic, alone, resource_class)
        jobs = [(race.observe,), (race.sweep,), (race.ask,), (race.steal,),
                *((race.build, node.id) for node in nodes)]
        with concurrent.futures.ThreadPoolExecutor(len(jobs)) as executor:
            futures = [executor.submit(*job) for job in jobs]
            concurrent.futures.wait(
                futures, return_when=concurrent.futures.FIRST_EXCEPTION)
            race.done.set()
        for future in futures:
            future.result()
        # Not one of all has ended in another way than it may.
        assert race.finished <= race.torn_down
        ironic.settle(nodes, provision_state='available')
        # What is left lapses, and nothing is left of it.
        until(lambda: not listed(ironic, resource_class=resource_class),
              'a lease does not end')
        assert manage(ironic, 'sweep').returncode == 0
        assert answers.execute(
            ironic, 'SELECT uuid FROM nodes WHERE resource_class = :c '
            'AND instance_uuid IS NOT NULL', c=resource_class) == []
        assert answers.execute(ironic, 'SELECT * FROM reservations') == []
        taken = {create(ironic, resource_class=resource_class)['node_uuid']
                 for _ in nodes}
        assert taken == {node.id for node in nodes}
        answers.execute(ironic, 'DELETE FROM reservations')
        # The race was one: each has happened, and often.
        assert race.rounds.keys() >= {'renew', 'release', 'prepare',
                                      'deploy', 'lock', 'kept'}
