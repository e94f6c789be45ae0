# SPDX-License-Identifier: Apache-2.0
"""The libraries that others use, against a real Ironic."""

from ironicclient import client as ironicclient
from ironicclient import exc as ironicclient_exc
from keystoneauth1 import noauth
from keystoneauth1 import session as ks_session
from openstack import exceptions as sdk_exc
from openstack import resource
import pytest
import requests

from tests.common import service

OURS = service.OURS
POOL = [{}] * 3


class Reservation(resource.Resource):
    """What a user of the SDK has to write."""

    resources_key = 'reservations'
    base_path = '/reservations'
    allow_create = allow_fetch = allow_delete = allow_list = True
    create_method = 'POST'
    _query_mapping = resource.QueryParameters('host', 'state')
    instance_uuid = resource.Body('instance_uuid', alternate_id=True)
    node_uuid = resource.Body('node_uuid')
    resource_class = resource.Body('resource_class')
    host = resource.Body('host')
    state = resource.Body('state')


def test_openstacksdk(ironic, pool, node_class):
    baremetal = ironic.baremetal
    held = Reservation.new(resource_class=node_class,
                           host='sdk').create(baremetal)
    assert held.state == 'reserved'
    assert held.id == held.instance_uuid
    found = list(Reservation.list(baremetal, host='sdk'))
    assert [each.node_uuid for each in found] == [held.node_uuid]
    others = [Reservation.new(resource_class=node_class,
                              host='sdk').create(baremetal)
              for _ in range(2)]
    found = list(Reservation.list(baremetal, host='sdk', limit=1))
    assert [each.id for each in found] == [
        each.id for each in (held, *others)]
    assert Reservation.existing(
        instance_uuid=held.id).fetch(baremetal).state == 'reserved'
    held.delete(baremetal)
    with pytest.raises(sdk_exc.NotFoundException, match=held.id):
        Reservation.existing(instance_uuid=held.id).fetch(baremetal)
    with pytest.raises(sdk_exc.BadRequestException, match='state'):
        list(Reservation.list(baremetal, state='gone'))
    with pytest.raises(sdk_exc.HttpException) as raised:
        Reservation.new(resource_class='elsewhere').create(baremetal)
    assert raised.value.status_code == 422


@pytest.fixture
def statuses():
    """Those of all answers that python-ironicclient gets in a test."""
    return []


@pytest.fixture
def ironic_client(ironic, statuses):
    session = requests.Session()
    session.hooks['response'].append(
        lambda response, **kwargs: statuses.append(response.status_code))
    client = ironicclient.get_client(
        1, session=ks_session.Session(
            noauth.NoAuth(endpoint=ironic.url), session=session))
    return client.http_client


def test_ironicclient(ironic_client, pool, node_class):
    response, held = ironic_client.json_request(
        'POST', OURS, body={'resource_class': node_class})
    assert response.status_code == 201
    url = f'{OURS}/{held["instance_uuid"]}'
    assert ironic_client.json_request('GET', url)[1] == held
    _, found = ironic_client.json_request('GET', OURS)
    del held['request_spec']
    assert held in found['reservations']
    ironic_client.raw_request('DELETE', url)
    with pytest.raises(ironicclient_exc.NotFound,
                       match=held['instance_uuid']):
        ironic_client.json_request('GET', url)
    with pytest.raises(ironicclient_exc.BadRequest, match='^foo: '):
        ironic_client.json_request('POST', OURS, body={'foo': 1})


def test_ironicclient_does_not_repeat_what_nothing_matches(
        ironic_client, statuses, pool, node_class):
    with pytest.raises(ironicclient_exc.HTTPClientError) as raised:
        ironic_client.json_request('POST', OURS, body={
            'resource_class': node_class, 'memory_mb': 99999})
    assert raised.value.http_status == 422
    assert 'No free node' in str(raised.value)
    assert statuses.count(422) == 1
