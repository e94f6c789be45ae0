# SPDX-License-Identifier: Apache-2.0
"""Leases: a dead client leaks no node, a live one loses none.

Time is the database's, in steps of a second.
"""

import datetime
import uuid

import pytest

from tests.common import answers
from tests.common import service

OURS = '/v1/reservations'
POOL = [{'properties': {'memory_mb': 1024}}] * 3


@pytest.fixture
def request_(node_class):
    """A request with a lease, for an instance of its own."""
    return {'resource_class': node_class, 'host': 'compute-1',
            'instance_uuid': str(uuid.uuid4()), 'expires_in': 3600}


def counted(ironic, node_class, host='compute-1'):
    """Free and held nodes of the class."""
    row, = ironic.capacity(resource_class=node_class, host=host)
    assert row['total'] == 3
    return row['free'], row['held']


# What may be asked for


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('seconds', [1, 600, 86400])
def test_expires_at_is_on_the_databases_clock(ironic, pool, request_,
                                              seconds):
    lease = datetime.timedelta(seconds=seconds)
    before = ironic.now()
    held = ironic.create(**{**request_, 'expires_in': seconds})
    # A lease of a second may be over and begun again when it is shown.
    assert before + lease <= service.get_expiry(held) <= ironic.now() + lease
    assert service.get_expiry(held).utcoffset() == datetime.timedelta(0)
    (stored,), = ironic.execute('SELECT expires_at FROM reservations')
    assert (str(stored)[:19]
            == f'{service.get_expiry(held):%Y-%m-%d %H:%M:%S}')


@pytest.mark.parametrize('body', [{}, {'expires_in': None}], ids=str)
def test_no_lease_by_default(ironic, pool, request_, body):
    del request_['expires_in']
    assert ironic.create(**request_, **body)['expires_at'] is None


@pytest.mark.parametrize('options, default', [
    ({'default_lease': 30, 'max_lease': 60}, 30),
    ({'default_lease': 3000, 'max_lease': 60}, 60)], ids=str)
def test_options(ironic, pool, request_, start, options, default):
    del request_['expires_in']
    with start({'reservations': options}) as alone:
        for body, seconds in (({}, default), ({'expires_in': None}, default),
                              ({'expires_in': 60}, 60),
                              ({'expires_in': 1000}, None),
                              ({'expires_in': 61}, None)):
            request_['instance_uuid'] = str(uuid.uuid4())
            before = ironic.now()
            response = alone.http.post(OURS, json={**request_, **body})
            if seconds is None:
                assert answers.check(response, 400) == (
                    'expires_in: must be at most 60 (1m), see '
                    '[reservations] max_lease')
                continue
            answers.check(response, 201)
            lease = datetime.timedelta(seconds=seconds)
            assert (before + lease <= service.get_expiry(response.json())
                    <= ironic.now() + lease)
            response = alone.http.post(OURS, json={**request_, **body})
            answers.check(response, 200)


# Renewal


@pytest.mark.on('sqlite', 'server')
def test_renewal(ironic, pool, request_):
    held = ironic.create(**{**request_, 'expires_in': 10})
    before = ironic.now()
    renewed = ironic.create(200, **request_)
    assert (service.get_expiry(renewed)
            >= before + datetime.timedelta(seconds=3600))
    assert renewed['updated_at'] is not None
    same = {'node_uuid', 'instance_uuid', 'created_at', 'host', 'state'}
    assert {key: renewed[key] for key in same} == {
        key: held[key] for key in same}
    assert ironic.show(held['instance_uuid']) == renewed
    # A shorter one is as good.
    assert service.get_expiry(ironic.create(200, **{
        **request_, 'expires_in': 20})) < service.get_expiry(renewed)


# The end


@pytest.mark.on('sqlite', 'server')
def test_there_until_that_second(ironic, pool, node_class, request_):
    """And gone from then on."""
    held = ironic.create(**{**request_, 'expires_in': 2})
    ident, seen = held['instance_uuid'], 0
    assert counted(ironic, node_class) == (2, 1)
    while True:
        response = ironic.http.get(f'{OURS}/{ident}')
        if ironic.now() >= service.get_expiry(held):
            break
        answers.check(response, 200)
        seen += 1
    assert seen
    ironic.show(ident, 404)
    assert ironic.list(resource_class=node_class) == []
    assert ironic.list(node=held['node_uuid']) == []
    assert ironic.list(host='compute-1') == []
    assert counted(ironic, node_class) == (3, 0)
    response = ironic.http.post(f'{OURS}?dry_run=true',
                                json={'resource_class': node_class})
    assert response.json()['matching_nodes'] == 3
    answers.check(ironic.http.get(OURS, params={'marker': ident}), 400)
    # Reading gives nothing back.
    assert ironic.find_instance(held['node_uuid']) == ident


@pytest.mark.parametrize('more', [{}, {'memory_mb': 1}], ids=str)
def test_late_renewal_is_a_new_reservation(ironic, pool, request_, more):
    """Whether or not it asks for the same."""
    held = ironic.create(**request_)
    ironic.expire(held['instance_uuid'])
    again = ironic.create(201, **request_, **more)
    assert again['instance_uuid'] == held['instance_uuid']
    assert again['updated_at'] is None
    (count,), = ironic.execute('SELECT COUNT(*) FROM nodes '
                               'WHERE instance_uuid IS NOT NULL '
                               'AND resource_class = :c',
                       c=request_['resource_class'])
    assert count == 1


@pytest.mark.parametrize('query', [{}, {'host': 'compute-1'}], ids=str)
def test_late_release_gives_it_back(ironic, pool, request_, query):
    held = ironic.create(**request_)
    ironic.expire(held['instance_uuid'])
    ironic.delete(held['instance_uuid'], 404, **query)
    assert ironic.find_instance(held['node_uuid']) is None
    assert not ironic.rows()


def test_touched_node_can_be_renewed_and_released(ironic, pool, request_):
    held = ironic.create(**request_)
    ironic.set_node(held['node_uuid'], instance_info='{"a": "b"}')
    ironic.expire(held['instance_uuid'])
    renewed = ironic.create(200, **request_)
    assert renewed['node_uuid'] == held['node_uuid']
    assert service.get_expiry(renewed) > ironic.now()
    ironic.expire(held['instance_uuid'])
    ironic.set_node(held['node_uuid'], instance_info='{}')
    ironic.delete(held['instance_uuid'], 404)


def test_lease_of_what_is_in_use_is_forgotten(ironic, pool, request_):
    """Or whoever looks for lapsed ones would read every instance."""
    held = ironic.create(**request_)
    ironic.set_node(held['node_uuid'], provision_state='active')
    ironic.expire(held['instance_uuid'])
    # All that has lapsed is given back before this is said.
    ironic.create(422, memory_mb=10 ** 9)
    (stored,), = ironic.execute('SELECT expires_at FROM reservations')
    assert stored is None
    assert ironic.find_instance(held['node_uuid']) == held['instance_uuid']
