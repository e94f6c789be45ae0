# SPDX-License-Identifier: Apache-2.0
"""python-ironicclient with a real Ironic; test_sdk.py tests openstacksdk."""

from ironicclient import client as ironicclient
from ironicclient import exc as ironicclient_exc
from keystoneauth1 import noauth
from keystoneauth1 import session as ks_session
import pytest
import requests

from tests.common import service

OURS = service.OURS
POOL = [{}] * 3


@pytest.fixture
def statuses():
    """Return the list that collects the statuses of all responses."""
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
    response, hold = ironic_client.json_request(
        'POST', OURS, body={'resource_class': node_class})
    assert response.status_code == 201
    url = f'{OURS}/{hold["instance_uuid"]}'
    assert ironic_client.json_request('GET', url)[1] == hold
    _, page = ironic_client.json_request('GET', OURS)
    del hold['request_spec'], hold['notices'], hold['more_notices']
    assert hold in page['reservations']
    ironic_client.raw_request('DELETE', url)
    with pytest.raises(ironicclient_exc.NotFound,
                       match=hold['instance_uuid']):
        ironic_client.json_request('GET', url)
    with pytest.raises(ironicclient_exc.BadRequest, match='^foo: '):
        ironic_client.json_request('POST', OURS, body={'foo': 1})


def test_ironicclient_does_not_repeat_a_refused_request(
        ironic_client, statuses, pool, node_class):
    with pytest.raises(ironicclient_exc.HTTPClientError) as error:
        ironic_client.json_request('POST', OURS, body={
            'resource_class': node_class, 'memory_mb': 99999})
    assert error.value.http_status == 422
    assert 'No free node' in str(error.value)
    assert statuses.count(422) == 1
