# SPDX-License-Identifier: Apache-2.0
"""Host leases, and the writes that require one."""

import datetime
import urllib.parse
import uuid

import pytest

from tests.common import contract
from tests.common import service

OURS = service.OURS
HOSTS = f'{OURS}/hosts'
POOL = [{'properties': {'memory_mb': 1024}}] * 3
ONE, OTHER = str(uuid.uuid4()), str(uuid.uuid4())
RENEW = [{'op': 'replace', 'path': '/expires_in', 'value': 50}]
MOVE = [{'op': 'replace', 'path': '/host', 'value': 'compute-2'}]


@pytest.fixture(autouse=True)
def no_leases(ironic):
    yield
    for table in 'hosts', 'standbys':
        ironic.execute(f'DELETE FROM reservations_{table}')


def path(host):
    return f'{HOSTS}/{urllib.parse.quote(host, safe="")}'


def put(ironic, status=200, holder=ONE, ttl=30, host='compute-1'):
    """Acquire or renew a lease; return it, or the text of the error."""
    response = ironic.http.put(path(host),
                               json={'holder': holder, 'ttl': ttl})
    fault = contract.check(response, status)
    return response.json() if fault is None else fault


def give_up(ironic, status=204, holder=ONE, host='compute-1'):
    return contract.check(ironic.http.delete(
        path(host), params={'holder': holder}), status)


def leases(ironic, **query):
    response = ironic.http.get(HOSTS, params=query)
    contract.check(response, 200)
    return response.json()['hosts']


def expire_leases(ironic, seconds=0):
    """Let leases expire now, or in some seconds."""
    ironic.execute('UPDATE reservations_hosts '
                   f'SET expires_at = {ironic.clock(seconds)}')


def delete_lease(ironic, status=204, host='compute-1'):
    return contract.check(ironic.http.delete(path(host)), status)


def find_holder(ironic, host='compute-1'):
    lease, = leases(ironic, host=host)
    return lease['holder']


# Leases

@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('ttl', [10, 30, 600, 30.0])
def test_lease(ironic, ttl):
    lease = put(ironic, ttl=ttl)
    assert lease.keys() == {'host', 'holder', 'expires_at'}
    assert (lease['host'], lease['holder']) == ('compute-1', ONE)
    assert ttl - 5 <= ironic.seconds_left(lease) <= ttl
    row, = leases(ironic)
    assert lease.items() <= row.items() and row['live'] is True
    assert row['updated_at'] is None
    began = datetime.datetime.fromisoformat(row['created_at'])
    assert service.get_expiry(lease) == began + datetime.timedelta(seconds=ttl)


def test_lease_of_another_process(ironic):
    lease = put(ironic)
    assert '2' in put(ironic, 409, OTHER)
    assert find_holder(ironic) == ONE
    # The remaining time does not matter.
    expire_leases(ironic, 60)
    put(ironic, 409, OTHER)
    assert put(ironic, ttl=600)['expires_at'] > lease['expires_at']
    put(ironic, 409, OTHER)


# Standbys, reservations and times

def count_users(ironic, host='compute-1'):
    lease, = leases(ironic, host=host)
    return lease['standbys'], lease['reservations']


@pytest.mark.on('sqlite', 'server')
def test_standbys(ironic):
    put(ironic)
    assert count_users(ironic) == (0, 0)
    for _ in range(3):
        put(ironic, 409, OTHER)
    assert count_users(ironic) == (1, 0)
    put(ironic, 409, str(uuid.uuid4()), ttl=600)
    assert count_users(ironic) == (2, 0)
    # Host names differ by case.
    put(ironic, host='COMPUTE-1')
    assert count_users(ironic, 'COMPUTE-1') == (0, 0)
    # A dead standby counts until its ttl has passed.
    ironic.execute('UPDATE reservations_standbys SET expires_at = '
                   f'{ironic.clock()} WHERE holder = :h', h=OTHER)
    assert count_users(ironic) == (1, 0)
    put(ironic, 409, OTHER)
    assert count_users(ironic) == (2, 0)
    # The new holder is no standby, and the rows of dead standbys are deleted.
    expire_leases(ironic)
    put(ironic, holder=OTHER)
    assert count_users(ironic) == (1, 0)
    assert len(ironic.execute('SELECT * FROM reservations_standbys')) == 1


def test_standby_is_written_twice_per_ttl(ironic):
    """It sends a PUT every two seconds, and writes are expensive in Galera."""
    put(ironic)

    def read_expiry():
        (text,), = ironic.execute(
            'SELECT expires_at FROM reservations_standbys')
        return text

    put(ironic, 409, OTHER)
    ironic.execute('UPDATE reservations_standbys '
                   f'SET expires_at = {ironic.clock(20)}')
    before = read_expiry()
    put(ironic, 409, OTHER)
    assert read_expiry() == before
    ironic.execute('UPDATE reservations_standbys '
                   f'SET expires_at = {ironic.clock(14)}')
    put(ironic, 409, OTHER)
    assert read_expiry() > before


@pytest.mark.on('sqlite', 'server')
def test_number_of_reservations(ironic, resource_class):
    put(ironic)
    put(ironic, host='compute-2')
    with ironic.fleet(*[{**spec, 'resource_class': resource_class}
                        for spec in POOL]):
        first, second = (ironic.create(
            resource_class=resource_class, host='compute-1', expires_in=60)
            for _ in range(2))
        ironic.create(resource_class=resource_class)
        assert count_users(ironic) == (0, 2)
        assert count_users(ironic, 'compute-2') == (0, 0)
        ironic.expire(first['instance_uuid'])
        ironic.set_node(second['node_uuid'], instance_uuid=None)
        assert count_users(ironic) == (0, 0)


def test_time_of_the_takeover(ironic):
    """A renewal does not change since, not even one after the expiry."""
    put(ironic)
    ironic.execute('UPDATE reservations_hosts SET '
                   f'created_at = {ironic.clock(-100)}')
    before, = leases(ironic)
    expire_leases(ironic)
    put(ironic)
    after, = leases(ironic)
    assert after['since'] == before['since'] == before['created_at']
    expire_leases(ironic)
    put(ironic, holder=OTHER)
    assert leases(ironic)[0]['since'] > before['since']


@pytest.mark.on('sqlite', 'server')
def test_delete_lease(ironic):
    delete_lease(ironic, 404)
    put(ironic)
    assert 'only expired leases' in delete_lease(ironic, 409)
    assert find_holder(ironic) == ONE
    expire_leases(ironic)
    delete_lease(ironic)
    assert leases(ironic) == []
    delete_lease(ironic, 404)


@pytest.mark.on('sqlite', 'server')
def test_takeover_of_an_expired_lease(ironic):
    put(ironic)
    put(ironic)
    ironic.execute('UPDATE reservations_hosts SET '
                   f'created_at = {ironic.clock(-100)}')
    expire_leases(ironic)
    assert [row['live'] for row in leases(ironic)] == [False]
    lease = put(ironic, holder=OTHER)
    assert lease['holder'] == OTHER
    assert 25 <= ironic.seconds_left(lease) <= 30
    row, = leases(ironic)
    assert row['live'] is True and row['updated_at'] is None
    # created_at is the time of the takeover.
    began = datetime.datetime.fromisoformat(row['created_at'])
    assert service.get_expiry(lease) == began + datetime.timedelta(seconds=30)
    put(ironic, 409)


def test_renewal(ironic):
    put(ironic)
    first, = leases(ironic)
    ironic.execute('UPDATE reservations_hosts SET '
                   f'created_at = {ironic.clock(-100)}')
    put(ironic, ttl=60)
    row, = leases(ironic)
    assert 55 <= ironic.seconds_left(row) <= 60
    assert row['updated_at'] is not None
    # created_at is still the time of the first lease.
    assert row['created_at'] < first['created_at']


def test_renewal_after_the_expiry(ironic):
    """An expired lease can be renewed if no other process has acquired it."""
    put(ironic)
    expire_leases(ironic, -1000)
    assert 25 <= ironic.seconds_left(put(ironic)) <= 30
    put(ironic, 409, OTHER)


def test_clock_that_was_set_back(ironic):
    """A lease with more time left than the maximum ttl counts as expired."""
    put(ironic)
    expire_leases(ironic, 3600)
    assert [row['live'] for row in leases(ironic)] == [False]
    # The holder can still write.
    ironic.create(422, resource_class='none', host='compute-1', holder=ONE)
    put(ironic, holder=OTHER)
    put(ironic, 409)


def test_give_up(ironic):
    put(ironic)
    give_up(ironic, 412, OTHER)
    assert find_holder(ironic) == ONE
    give_up(ironic, holder=ONE.upper())
    assert leases(ironic) == []
    give_up(ironic, 404)
    give_up(ironic, 404, host='nobody')
    put(ironic, holder=OTHER)
    give_up(ironic, 412)
    expire_leases(ironic)
    # Only its holder can give up an expired lease.
    give_up(ironic, 412)
    give_up(ironic, holder=OTHER)


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('one, other', [
    ('compute-1', 'compute-2'), ('compute-1', 'Compute-1'),
    ('compute-1', 'compute-1.example.org'), ('compute', 'comput\u00e9'),
    ('a', ' a')])
def test_similar_host_names(ironic, one, other):
    put(ironic, host=one)
    put(ironic, holder=OTHER, host=other)
    assert {row['host']: row['holder'] for row in leases(ironic)} == {
        one: ONE, other: OTHER}
    assert find_holder(ironic, other) == OTHER
    give_up(ironic, holder=OTHER, host=other)
    assert find_holder(ironic, one) == ONE


@pytest.mark.on('sqlite', 'server')
def test_space_at_the_end_of_a_host_name(ironic, hold):
    """A path with it is refused, because MariaDB would ignore it."""
    put(ironic)
    ironic.create(412, resource_class=hold['resource_class'],
                  host='compute-1 ', holder=ONE)
    assert leases(ironic, host='compute-1 ') == []


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('host', [
    'c', 'c' * 255, 'compute-1.rack-7.example.org', 'a.json', 'hosts',
    'capacity', str(uuid.UUID(int=1)), 'a b', 'a%2Fb', 'a+b', 'a;b=c', 'a?b#c',
    "a' OR 1=1 --", '%', '_', '\u6f22' * 255, '\U0001f600'])
def test_host_names(ironic, host):
    assert put(ironic, host=host)['host'] == host
    put(ironic, host=host)
    put(ironic, 409, OTHER, host=host)
    assert find_holder(ironic, host) == ONE
    give_up(ironic, host=host)
    assert leases(ironic) == []


def test_slash_at_the_end(ironic):
    contract.check(ironic.http.put(f'{path("compute-1")}/', json={
        'holder': ONE, 'ttl': 30}), 200)
    assert ironic.http.get(f'{HOSTS}/').json() == (
        ironic.http.get(HOSTS).json())


def test_case_of_the_holder_is_ignored(ironic):
    assert put(ironic, holder=ONE.upper())['holder'] == ONE
    assert put(ironic)['holder'] == ONE


@pytest.mark.on('sqlite', 'server')
def test_list_leases(ironic):
    names = ['compute-10', 'compute-2', 'compute-1', 'Compute-3', 'a']
    for name in names:
        put(ironic, host=name)
    names.sort()
    assert [row['host'] for row in leases(ironic)] == names
    assert [row['host'] for row in leases(
        ironic, marker='compute-1')] == names[3:]
    assert leases(ironic, host='compute') == []
    assert [[row['host'] for row in page] for page in ironic.pages(
        HOSTS, 'hosts', limit=2)] == [names[:2], names[2:4], names[4:]]


def test_marker_of_a_lease(ironic):
    """It stays valid when the lease is given up."""
    names = ['a', '\N{SNOWMAN}' * 255]
    for name in names:
        put(ironic, host=name)
    page = ironic.http.get(HOSTS, params={'limit': 1}).json()
    marker = page['next'].rpartition('marker=')[2]
    assert marker != 'a'
    contract.check(ironic.http.delete(path('a'), params={'holder': ONE}), 204)
    assert [row['host'] for row in leases(ironic, marker=marker)] == names[1:]
    # A name that no host has.
    for text in 'a', 'b', marker[:-1]:
        response = ironic.http.get(HOSTS, params={'marker': text})
        assert contract.check(response, 400).startswith('marker: ')


# Writes with a holder

@pytest.fixture
def hold(ironic, pool, node_class):
    return ironic.create(resource_class=node_class, host='compute-1',
                         expires_in=100)


def hold_request(hold, query, **more):
    return 'POST', '', query, {
        'resource_class': hold['resource_class'], **more}


def writes(hold):
    """Return the requests of a compute host: method, path, query, body."""
    item = f'/{hold["instance_uuid"]}'
    query = {'host': 'compute-1', 'holder': ONE}
    return {
        'hold': hold_request(hold, {}, **query),
        'renew': hold_request(hold, {}, **query, expires_in=50,
                              instance_uuid=hold['instance_uuid']),
        'adopt': ('POST', '', {'adopt': 'true'}, {
            **query, 'instance_uuid': hold['instance_uuid'], 'vcpus': 1}),
        'lease': ('PATCH', item, query, RENEW),
        'move': ('PATCH', item, query, MOVE),
        'release': ('DELETE', item, query, None),
    }


WRITES = ['hold', 'renew', 'adopt', 'lease', 'move', 'release']


def send(ironic, hold, write):
    method, item, query, body = writes(hold)[write]
    return ironic.http.request(method, OURS + item, params=query, json=body)


def has_changed(ironic, before):
    return ironic.state() != before


@pytest.mark.parametrize('write', WRITES)
def test_holder_writes(ironic, hold, write):
    put(ironic)
    before = ironic.state()
    contract.check(send(ironic, hold, write), (200, 201, 204))
    assert has_changed(ironic, before)
    # The lease is not renewed.
    lease, = leases(ironic)
    assert lease['updated_at'] is None


def do_nothing(ironic):
    """No process has ever acquired the lease."""


def expire(ironic):
    put(ironic)
    expire_leases(ironic)


def acquire_by_another(ironic):
    put(ironic, holder=OTHER)


def take_over(ironic):
    expire(ironic)
    put(ironic, holder=OTHER)


def acquire_and_give_up(ironic):
    put(ironic)
    give_up(ironic)


def acquire_other_host(ironic):
    put(ironic, host='compute-2')


def acquire_similar_host(ironic):
    put(ironic, host='Compute-1')


@pytest.mark.parametrize('act', [
    do_nothing, expire, acquire_by_another, take_over, acquire_and_give_up,
    acquire_other_host, acquire_similar_host], ids=lambda act: act.__name__)
@pytest.mark.parametrize('write', WRITES)
def test_other_processes_do_not_write(ironic, hold, write, act):
    act(ironic)
    before = ironic.state()
    fault = contract.check(send(ironic, hold, write), 412)
    assert 'compute-1' in fault and ONE in fault
    assert not has_changed(ironic, before)


@pytest.mark.parametrize('write', WRITES)
def test_requests_without_a_holder(ironic, hold, write):
    put(ironic, holder=OTHER)
    method, item, query, body = writes(hold)[write]
    for arguments in (query, body):
        if isinstance(arguments, dict):
            arguments.pop('holder', None)
    contract.check(ironic.http.request(
        method, OURS + item, params=query, json=body), (200, 201, 204))


@pytest.mark.parametrize('more, status', [
    ({'resource_class': 'none'}, 422),
    ({'name': 'another spec'}, 409),
    ({}, 200)])
def test_stale_holder_is_refused_first(ironic, hold, more, status):
    """This error precedes all others about the request."""
    ironic.set_node(hold['node_uuid'], provision_state='active')
    body = {'resource_class': hold['resource_class'], 'host': 'compute-1',
            'holder': ONE, 'instance_uuid': hold['instance_uuid'], **more}
    if status == 422:
        body['instance_uuid'] = None
    acquire_by_another(ironic)
    ironic.create(412, **body)
    ironic.create(status, **{**body, 'holder': OTHER.upper()})


@pytest.mark.parametrize('method, body', [('PATCH', RENEW), ('DELETE', None)])
def test_unknown_instance(ironic, method, body):
    item = f'{OURS}/{uuid.uuid4()}'
    for holder, status in (ONE, 404), (OTHER, 412):
        put(ironic)
        contract.check(ironic.http.request(method, item, json=body, params={
            'host': 'compute-1', 'holder': holder}), status)


def test_dry_run_needs_no_lease(ironic, hold):
    contract.check(ironic.http.post(f'{OURS}?dry_run=true', json={
        'resource_class': hold['resource_class'], 'host': 'compute-1',
        'holder': ONE}), 200)


def test_holder_is_no_part_of_the_request(ironic, hold):
    put(ironic)
    body = {'resource_class': hold['resource_class'], 'host': 'compute-1',
            'instance_uuid': hold['instance_uuid']}
    again = ironic.create(200, **body, holder=ONE)
    assert again['request_spec'] == hold['request_spec']
    expire_leases(ironic)
    put(ironic, holder=OTHER)
    # The successor repeats a request of the dead process.
    assert ironic.create(200, **body, holder=OTHER)['node_uuid'] == (
        hold['node_uuid'])
    ironic.delete(hold['instance_uuid'], host='compute-1', holder=OTHER)


def test_repeat_for_another_host(ironic, hold):
    put(ironic, host='compute-2')
    body = {'resource_class': hold['resource_class'], 'host': 'compute-2',
            'instance_uuid': hold['instance_uuid']}
    before = ironic.state()
    ironic.create(412, **body, holder=OTHER)
    assert not has_changed(ironic, before)
    assert ironic.create(200, **body, holder=ONE)['host'] == 'compute-2'


def test_adoption_of_reservations_without_a_host(ironic, pool, node_class):
    """A host needs its lease to adopt them."""
    put(ironic)
    hold = ironic.create(resource_class=node_class)
    instance = str(uuid.uuid4())
    ironic.set_node(next(node.id for node in pool
                         if node.id != hold['node_uuid']),
                    instance_uuid=instance, provision_state='active')
    for instance_uuid, status in (hold['instance_uuid'], 200), (instance, 201):
        body = {'instance_uuid': instance_uuid}
        contract.check(ironic.http.post(f'{OURS}?adopt=true', json=body),
                       status)
        body['host'] = 'compute-1'
        before = ironic.state()
        fault = contract.check(ironic.http.post(
            f'{OURS}?adopt=true', json={**body, 'holder': OTHER}), 412)
        assert 'compute-1' in fault
        assert not has_changed(ironic, before)
        response = ironic.http.post(f'{OURS}?adopt=true',
                                    json={**body, 'holder': ONE})
        contract.check(response, 200)
        assert response.json()['host'] == 'compute-1'
