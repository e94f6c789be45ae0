# SPDX-License-Identifier: Apache-2.0
"""Leases: default, renewal, expiry."""

import datetime
import uuid

import pytest

from tests.common import contract
from tests.common import service

OURS = '/v1/reservations'
POOL = [{'properties': {'memory_mb': 1024}}] * 3


@pytest.fixture
def request_(node_class):
    """A request with a lease, for a new instance."""
    return {'resource_class': node_class, 'host': 'compute-1',
            'instance_uuid': str(uuid.uuid4()), 'expires_in': 3600}


def count_nodes(ironic, node_class, host='compute-1'):
    """Count the free and the held nodes of the class."""
    row, = ironic.capacity(resource_class=node_class, host=host)
    assert row['total'] == 3
    return row['free'], row['held']


# expires_in

@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('seconds', [1, 600, 86400])
def test_expires_at_uses_the_clock_of_the_database(ironic, pool, request_,
                                                   seconds):
    lease = datetime.timedelta(seconds=seconds)
    before = ironic.now()
    hold = ironic.create(**{**request_, 'expires_in': seconds})
    # The clock may have advanced by the time of the response.
    assert before + lease <= service.get_expiry(hold) <= ironic.now() + lease
    assert service.get_expiry(hold).utcoffset() == datetime.timedelta(0)
    (expires_at,), = ironic.execute('SELECT expires_at FROM reservations')
    assert (str(expires_at)[:19]
            == f'{service.get_expiry(hold):%Y-%m-%d %H:%M:%S}')


@pytest.mark.parametrize('body', [{}, {'expires_in': None}], ids=str)
def test_no_lease_by_default(ironic, pool, request_, body):
    del request_['expires_in']
    assert ironic.create(**request_, **body)['expires_at'] is None


@pytest.mark.parametrize('options, default', [
    ({'default_lease': 30, 'max_lease': 60}, 30),
    ({'default_lease': 3000, 'max_lease': 60}, 60)], ids=str)
def test_options(ironic, pool, request_, start, options, default):
    del request_['expires_in']
    with start({'reservations': options}) as application:
        for body, seconds in (({}, default), ({'expires_in': None}, default),
                              ({'expires_in': 60}, 60),
                              ({'expires_in': 1000}, None),
                              ({'expires_in': 61}, None)):
            request_['instance_uuid'] = str(uuid.uuid4())
            before = ironic.now()
            response = application.http.post(OURS, json={**request_, **body})
            if seconds is None:
                assert contract.check(response, 400) == (
                    'expires_in: must be at most 60 (1m), see '
                    f'[reservations] max_lease; got {body["expires_in"]}')
                continue
            contract.check(response, 201)
            lease = datetime.timedelta(seconds=seconds)
            assert (before + lease <= service.get_expiry(response.json())
                    <= ironic.now() + lease)
            response = application.http.post(OURS, json={**request_, **body})
            contract.check(response, 200)


# Renewal

@pytest.mark.on('sqlite', 'server')
def test_renewal(ironic, pool, request_):
    hold = ironic.create(**{**request_, 'expires_in': 10})
    before = ironic.now()
    renewal = ironic.create(200, **request_)
    assert (service.get_expiry(renewal)
            >= before + datetime.timedelta(seconds=3600))
    assert renewal['updated_at'] is not None
    same = {'node_uuid', 'instance_uuid', 'created_at', 'host', 'state'}
    assert {key: renewal[key] for key in same} == {
        key: hold[key] for key in same}
    assert ironic.show(hold['instance_uuid']) == renewal
    # A renewal may shorten the lease.
    assert service.get_expiry(ironic.create(200, **{
        **request_, 'expires_in': 20})) < service.get_expiry(renewal)


# Expiry

@pytest.mark.on('sqlite', 'server')
def test_expiry(ironic, pool, node_class, request_):
    """Until that second requests find the reservation, and then no more."""
    hold = ironic.create(**{**request_, 'expires_in': 2})
    instance_uuid, seen = hold['instance_uuid'], 0
    assert count_nodes(ironic, node_class) == (2, 1)
    while True:
        response = ironic.http.get(f'{OURS}/{instance_uuid}')
        if ironic.now() >= service.get_expiry(hold):
            break
        contract.check(response, 200)
        seen += 1
    assert seen
    ironic.show(instance_uuid, 404)
    assert ironic.list(resource_class=node_class) == []
    assert ironic.list(node=hold['node_uuid']) == []
    assert ironic.list(host='compute-1') == []
    assert count_nodes(ironic, node_class) == (3, 0)
    response = ironic.http.post(f'{OURS}?dry_run=true',
                                json={'resource_class': node_class})
    assert response.json()['matching_nodes'] == 3
    contract.check(
        ironic.http.get(OURS, params={'marker': instance_uuid}), 400)
    # Reading does not free the node.
    assert ironic.find_instance(hold['node_uuid']) == instance_uuid


@pytest.mark.parametrize('more', [{}, {'memory_mb': 1}], ids=str)
def test_late_renewal_is_a_new_reservation(ironic, pool, request_, more):
    """Even if it repeats the request."""
    hold = ironic.create(**request_)
    ironic.expire(hold['instance_uuid'])
    renewal = ironic.create(201, **request_, **more)
    assert renewal['instance_uuid'] == hold['instance_uuid']
    assert renewal['updated_at'] is None
    (count,), = ironic.execute('SELECT COUNT(*) FROM nodes '
                               'WHERE instance_uuid IS NOT NULL '
                               'AND resource_class = :c',
                               c=request_['resource_class'])
    assert count == 1


@pytest.mark.parametrize('query', [{}, {'host': 'compute-1'}], ids=str)
def test_late_release_frees_the_node(ironic, pool, request_, query):
    hold = ironic.create(**request_)
    ironic.expire(hold['instance_uuid'])
    ironic.delete(hold['instance_uuid'], 404, **query)
    assert ironic.find_instance(hold['node_uuid']) is None
    assert not ironic.rows()


def test_touched_node_can_be_renewed_and_released(ironic, pool, request_):
    hold = ironic.create(**request_)
    ironic.set_node(hold['node_uuid'], instance_info='{"a": "b"}')
    ironic.expire(hold['instance_uuid'])
    renewal = ironic.create(200, **request_)
    assert renewal['node_uuid'] == hold['node_uuid']
    assert service.get_expiry(renewal) > ironic.now()
    ironic.expire(hold['instance_uuid'])
    ironic.set_node(hold['node_uuid'], instance_info='{}')
    ironic.delete(hold['instance_uuid'], 404)


def test_lease_of_a_deployed_node_is_deleted(ironic, pool, request_):
    """Otherwise the search for expired leases would read every instance."""
    hold = ironic.create(**request_)
    ironic.set_node(hold['node_uuid'], provision_state='active')
    ironic.expire(hold['instance_uuid'])
    # Expired reservations are purged before this refusal.
    ironic.create(422, memory_mb=10 ** 9)
    (expires_at,), = ironic.execute('SELECT expires_at FROM reservations')
    assert expires_at is None
    assert ironic.find_instance(hold['node_uuid']) == hold['instance_uuid']
