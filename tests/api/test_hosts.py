# SPDX-License-Identifier: Apache-2.0
"""The leases of compute hosts, and the writes that they fence."""

import datetime
import urllib.parse
import uuid

import pytest

from tests.common import answers
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
    """The lease, or an error's text."""
    response = ironic.http.put(path(host),
                               json={'holder': holder, 'ttl': ttl})
    fault = answers.check(response, status)
    return response.json() if fault is None else fault


def give_up(ironic, status=204, holder=ONE, host='compute-1'):
    return answers.check(ironic.http.delete(
        path(host), params={'holder': holder}), status)


def leases(ironic, **query):
    response = ironic.http.get(HOSTS, params=query)
    answers.check(response, 200)
    return response.json()['hosts']


def end(ironic, seconds=0):
    """Let leases be over this second, or so many from now."""
    ironic.execute('UPDATE reservations_hosts '
                   f'SET expires_at = {ironic.clock(seconds)}')


def forget(ironic, status=204, host='compute-1'):
    return answers.check(ironic.http.delete(path(host)), status)


def holder_of(ironic, host='compute-1'):
    lease, = leases(ironic, host=host)
    return lease['holder']


# The lease

@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('ttl', [10, 30, 600, 30.0])
def test_lease(ironic, ttl):
    lease = put(ironic, ttl=ttl)
    assert lease.keys() == {'host', 'holder', 'expires_at'}
    assert (lease['host'], lease['holder']) == ('compute-1', ONE)
    assert ttl - 5 <= ironic.seconds_left(lease) <= ttl
    listed, = leases(ironic)
    assert lease.items() <= listed.items() and listed['live'] is True
    assert listed['updated_at'] is None
    began = datetime.datetime.fromisoformat(listed['created_at'])
    assert service.get_expiry(lease) == began + datetime.timedelta(seconds=ttl)


def test_another_waits(ironic):
    lease = put(ironic)
    assert '2' in put(ironic, 409, OTHER)
    assert holder_of(ironic) == ONE
    # Whatever is left of it.
    end(ironic, 60)
    put(ironic, 409, OTHER)
    assert put(ironic, ttl=600)['expires_at'] > lease['expires_at']
    put(ironic, 409, OTHER)


# What an operator wants to know

def told(ironic, host='compute-1'):
    lease, = leases(ironic, host=host)
    return lease['standbys'], lease['reservations']


@pytest.mark.on('sqlite', 'server')
def test_who_waits(ironic):
    put(ironic)
    assert told(ironic) == (0, 0)
    for _ in range(3):
        put(ironic, 409, OTHER)
    assert told(ironic) == (1, 0)
    put(ironic, 409, str(uuid.uuid4()), ttl=600)
    assert told(ironic) == (2, 0)
    # Of another host, however much it sounds alike.
    put(ironic, host='COMPUTE-1')
    assert told(ironic, 'COMPUTE-1') == (0, 0)
    # One of them has died, and is known to for a ttl of its own.
    ironic.execute('UPDATE reservations_standbys SET expires_at = '
                   f'{ironic.clock()} WHERE holder = :h', h=OTHER)
    assert told(ironic) == (1, 0)
    put(ironic, 409, OTHER)
    assert told(ironic) == (2, 0)
    # Its successor waits no more, and nothing is kept of the dead.
    end(ironic)
    put(ironic, holder=OTHER)
    assert told(ironic) == (1, 0)
    assert len(ironic.execute('SELECT * FROM reservations_standbys')) == 1


def test_who_waits_is_noted_twice_in_its_time(ironic):
    """It asks every other second, and each write is one of a cluster."""
    put(ironic)

    def left():
        (text,), = ironic.execute(
            'SELECT expires_at FROM reservations_standbys')
        return text

    put(ironic, 409, OTHER)
    ironic.execute('UPDATE reservations_standbys '
                   f'SET expires_at = {ironic.clock(20)}')
    noted = left()
    put(ironic, 409, OTHER)
    assert left() == noted
    ironic.execute('UPDATE reservations_standbys '
                   f'SET expires_at = {ironic.clock(14)}')
    put(ironic, 409, OTHER)
    assert left() > noted


@pytest.mark.on('sqlite', 'server')
def test_what_it_holds(ironic, resource_class):
    put(ironic)
    put(ironic, host='compute-2')
    with ironic.fleet(*[{**each, 'resource_class': resource_class}
                        for each in POOL]):
        first, second = (ironic.create(
            resource_class=resource_class, host='compute-1', expires_in=60)
            for _ in range(2))
        ironic.create(resource_class=resource_class)
        assert told(ironic) == (0, 2)
        assert told(ironic, 'compute-2') == (0, 0)
        ironic.expire(first['instance_uuid'])
        ironic.set_node(second['node_uuid'], instance_uuid=None)
        assert told(ironic) == (0, 0)


def test_since(ironic):
    """It is not the renewal that counts, nor the end of a lease."""
    put(ironic)
    ironic.execute('UPDATE reservations_hosts SET '
                   f'created_at = {ironic.clock(-100)}')
    before, = leases(ironic)
    end(ironic)
    put(ironic)
    after, = leases(ironic)
    assert after['since'] == before['since'] == before['created_at']
    end(ironic)
    put(ironic, holder=OTHER)
    assert leases(ironic)[0]['since'] > before['since']


@pytest.mark.on('sqlite', 'server')
def test_host_is_forgotten(ironic):
    forget(ironic, 404)
    put(ironic)
    assert 'lease is over' in forget(ironic, 409)
    assert holder_of(ironic) == ONE
    end(ironic)
    forget(ironic)
    assert leases(ironic) == []
    forget(ironic, 404)


@pytest.mark.on('sqlite', 'server')
def test_another_takes_over_what_is_over(ironic):
    put(ironic)
    put(ironic)
    ironic.execute('UPDATE reservations_hosts SET '
                   f'created_at = {ironic.clock(-100)}')
    end(ironic)
    assert [each['live'] for each in leases(ironic)] == [False]
    lease = put(ironic, holder=OTHER)
    assert lease['holder'] == OTHER
    assert 25 <= ironic.seconds_left(lease) <= 30
    listed, = leases(ironic)
    assert listed['live'] is True and listed['updated_at'] is None
    # It was not the host before.
    began = datetime.datetime.fromisoformat(listed['created_at'])
    assert service.get_expiry(lease) == began + datetime.timedelta(seconds=30)
    put(ironic, 409)


def test_renewal(ironic):
    put(ironic)
    first, = leases(ironic)
    ironic.execute('UPDATE reservations_hosts SET '
                   f'created_at = {ironic.clock(-100)}')
    put(ironic, ttl=60)
    listed, = leases(ironic)
    assert 55 <= ironic.seconds_left(listed) <= 60
    assert listed['updated_at'] is not None
    # It has had it since then.
    assert listed['created_at'] < first['created_at']


def test_renewal_after_the_end(ironic):
    """Nobody has taken over, so nothing has happened meanwhile."""
    put(ironic)
    end(ironic, -1000)
    assert 25 <= ironic.seconds_left(put(ironic)) <= 30
    put(ironic, 409, OTHER)


def test_clock_that_was_set_back(ironic):
    """A dead process does not keep its host until the old time is back."""
    put(ironic)
    end(ironic, 3600)
    assert [each['live'] for each in leases(ironic)] == [False]
    # Who lives and writes does not notice.
    ironic.create(422, resource_class='none', host='compute-1', holder=ONE)
    put(ironic, holder=OTHER)
    put(ironic, 409)


def test_give_up(ironic):
    put(ironic)
    give_up(ironic, 412, OTHER)
    assert holder_of(ironic) == ONE
    give_up(ironic, holder=ONE.upper())
    assert leases(ironic) == []
    give_up(ironic, 404)
    give_up(ironic, 404, host='nobody')
    put(ironic, holder=OTHER)
    give_up(ironic, 412)
    end(ironic)
    # What is over can be given up by its holder alone, too.
    give_up(ironic, 412)
    give_up(ironic, holder=OTHER)


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('one, other', [
    ('compute-1', 'compute-2'), ('compute-1', 'Compute-1'),
    ('compute-1', 'compute-1.example.org'), ('compute', 'comput\u00e9'),
    ('a', ' a')])
def test_hosts_are_others(ironic, one, other):
    put(ironic, host=one)
    put(ironic, holder=OTHER, host=other)
    assert {each['host']: each['holder'] for each in leases(ironic)} == {
        one: ONE, other: OTHER}
    assert holder_of(ironic, other) == OTHER
    give_up(ironic, holder=OTHER, host=other)
    assert holder_of(ironic, one) == ONE


@pytest.mark.on('sqlite', 'server')
def test_space_at_the_end_is_another_host(ironic, held):
    """In the path it is refused, because MariaDB would not tell the two."""
    put(ironic)
    ironic.create(412, resource_class=held['resource_class'],
                  host='compute-1 ', holder=ONE)
    assert leases(ironic, host='compute-1 ') == []


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('host', [
    'c', 'c' * 255, 'compute-1.rack-7.example.org', 'a.json', 'hosts',
    'capacity', str(uuid.UUID(int=1)), 'a b', 'a%2Fb', 'a+b', 'a;b=c', 'a?b#c',
    "a' OR 1=1 --", '%', '_', '\u6f22' * 255, '\U0001f600'])
def test_names(ironic, host):
    assert put(ironic, host=host)['host'] == host
    put(ironic, host=host)
    put(ironic, 409, OTHER, host=host)
    assert holder_of(ironic, host) == ONE
    give_up(ironic, host=host)
    assert leases(ironic) == []


def test_slash_at_the_end(ironic):
    answers.check(ironic.http.put(f'{path("compute-1")}/', json={
        'holder': ONE, 'ttl': 30}), 200)
    assert ironic.http.get(f'{HOSTS}/').json() == (
        ironic.http.get(HOSTS).json())


def test_holder_is_a_uuid_however_it_is_spelled(ironic):
    assert put(ironic, holder=ONE.upper())['holder'] == ONE
    assert put(ironic)['holder'] == ONE


@pytest.mark.on('sqlite', 'server')
def test_list(ironic):
    names = ['compute-10', 'compute-2', 'compute-1', 'Compute-3', 'a']
    for name in names:
        put(ironic, host=name)
    names.sort()
    assert [each['host'] for each in leases(ironic)] == names
    assert [each['host'] for each in leases(
        ironic, marker='compute-1')] == names[3:]
    # A host that was given up since the page before.
    assert [each['host'] for each in leases(
        ironic, marker='b', limit=2)] == names[2:4]
    assert leases(ironic, host='compute') == []
    assert [[each['host'] for each in page] for page in ironic.pages(
        HOSTS, 'hosts', limit=2)] == [names[:2], names[2:4], names[4:]]


# The fence

@pytest.fixture
def held(ironic, pool, node_class):
    return ironic.create(resource_class=node_class, host='compute-1',
                         expires_in=100)


def hold(held, query, **more):
    return 'POST', '', query, {
        'resource_class': held['resource_class'], **more}


def writes(held):
    """What a compute host writes, with its holder: method, path, ..."""
    item = f'/{held["instance_uuid"]}'
    query = {'host': 'compute-1', 'holder': ONE}
    return {
        'hold': hold(held, {}, **query),
        'renew': hold(held, {}, **query, expires_in=50,
                      instance_uuid=held['instance_uuid']),
        'adopt': ('POST', '', {'adopt': 'true'}, {
            **query, 'instance_uuid': held['instance_uuid'], 'vcpus': 1}),
        'lease': ('PATCH', item, query, RENEW),
        'move': ('PATCH', item, query, MOVE),
        'release': ('DELETE', item, query, None),
    }


WRITES = ['hold', 'renew', 'adopt', 'lease', 'move', 'release']


def send(ironic, held, write):
    method, item, query, body = writes(held)[write]
    return ironic.http.request(method, OURS + item, params=query, json=body)


def changed(ironic, before):
    return ironic.state() != before


@pytest.mark.parametrize('write', WRITES)
def test_holder_writes(ironic, held, write):
    put(ironic)
    before = ironic.state()
    answers.check(send(ironic, held, write), (200, 201, 204))
    assert changed(ironic, before)
    # As if it had not said so; its lease is as it was.
    lease, = leases(ironic)
    assert lease['updated_at'] is None


def nobody(ironic):
    """Nobody has ever been the host."""


def over(ironic):
    put(ironic)
    end(ironic)


def anothers(ironic):
    put(ironic, holder=OTHER)


def taken_over(ironic):
    over(ironic)
    put(ironic, holder=OTHER)


def given_up(ironic):
    put(ironic)
    give_up(ironic)


def of_another_host(ironic):
    put(ironic, host='compute-2')


def of_almost_that_host(ironic):
    put(ironic, host='Compute-1')


@pytest.mark.parametrize('become', [
    nobody, over, anothers, taken_over, given_up, of_another_host,
    of_almost_that_host], ids=lambda become: become.__name__)
@pytest.mark.parametrize('write', WRITES)
def test_nobody_else_writes(ironic, held, write, become):
    become(ironic)
    before = ironic.state()
    fault = answers.check(send(ironic, held, write), 412)
    assert 'compute-1' in fault and ONE in fault
    assert not changed(ironic, before)


@pytest.mark.parametrize('write', WRITES)
def test_who_does_not_say_it_is_not_fenced(ironic, held, write):
    put(ironic, holder=OTHER)
    method, item, query, body = writes(held)[write]
    for each in (query, body):
        if isinstance(each, dict):
            each.pop('holder', None)
    answers.check(ironic.http.request(
        method, OURS + item, params=query, json=body), (200, 201, 204))


@pytest.mark.parametrize('more, status', [
    ({'resource_class': 'none'}, 422),
    ({'name': 'another spec'}, 409),
    ({}, 200)])
def test_stale_holder_is_told_so_first(ironic, held, more, status):
    """Whatever else there would be to say, that it is no host any more."""
    ironic.set_node(held['node_uuid'], provision_state='active')
    body = {'resource_class': held['resource_class'], 'host': 'compute-1',
            'holder': ONE, 'instance_uuid': held['instance_uuid'], **more}
    if status == 422:
        body['instance_uuid'] = None
    anothers(ironic)
    ironic.create(412, **body)
    ironic.create(status, **{**body, 'holder': OTHER.upper()})


@pytest.mark.parametrize('method, body', [('PATCH', RENEW), ('DELETE', None)])
def test_unknown_instance(ironic, method, body):
    item = f'{OURS}/{uuid.uuid4()}'
    for holder, status in (ONE, 404), (OTHER, 412):
        put(ironic)
        answers.check(ironic.http.request(method, item, json=body, params={
            'host': 'compute-1', 'holder': holder}), status)


def test_dry_run_writes_nothing_and_is_not_fenced(ironic, held):
    answers.check(ironic.http.post(f'{OURS}?dry_run=true', json={
        'resource_class': held['resource_class'], 'host': 'compute-1',
        'holder': ONE}), 200)


def test_holder_is_no_part_of_what_is_wanted(ironic, held):
    put(ironic)
    body = {'resource_class': held['resource_class'], 'host': 'compute-1',
            'instance_uuid': held['instance_uuid']}
    again = ironic.create(200, **body, holder=ONE)
    assert again['request_spec'] == held['request_spec']
    end(ironic)
    put(ironic, holder=OTHER)
    # A cast that was queued for the dead one is done by its successor.
    assert ironic.create(200, **body, holder=OTHER)['node_uuid'] == (
        held['node_uuid'])
    ironic.delete(held['instance_uuid'], host='compute-1', holder=OTHER)


def test_repeat_that_moves_is_the_new_hosts(ironic, held):
    put(ironic, host='compute-2')
    body = {'resource_class': held['resource_class'], 'host': 'compute-2',
            'instance_uuid': held['instance_uuid']}
    before = ironic.state()
    ironic.create(412, **body, holder=OTHER)
    assert not changed(ironic, before)
    assert ironic.create(200, **body, holder=ONE)['host'] == 'compute-2'


def test_host_adopts_what_no_host_has(ironic, pool, node_class):
    """What was reserved without a host, and what was adopted for none."""
    put(ironic)
    held = ironic.create(resource_class=node_class)
    carried = str(uuid.uuid4())
    ironic.set_node(next(each.id for each in pool
                         if each.id != held['node_uuid']),
                    instance_uuid=carried, provision_state='active')
    for instance_uuid, adopted in (held['instance_uuid'], 200), (carried, 201):
        body = {'instance_uuid': instance_uuid}
        answers.check(ironic.http.post(f'{OURS}?adopt=true', json=body),
                      adopted)
        body['host'] = 'compute-1'
        before = ironic.state()
        fault = answers.check(ironic.http.post(
            f'{OURS}?adopt=true', json={**body, 'holder': OTHER}), 412)
        assert 'compute-1' in fault
        assert not changed(ironic, before)
        response = ironic.http.post(f'{OURS}?adopt=true',
                                    json={**body, 'holder': ONE})
        answers.check(response, 200)
        assert response.json()['host'] == 'compute-1'
