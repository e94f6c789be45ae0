# SPDX-License-Identifier: Apache-2.0
"""PATCH: another host, another end of the lease."""

import uuid

import pytest

from tests.common import answers
from tests.common import application
from tests.common import personas
from tests.common import service
from tests.common.bad_requests import host
from tests.common.bad_requests import lease
from tests.common.bad_requests import op

POOL = [{'properties': {'memory_mb': 1024}}] * 2
OURS = service.OURS


def patch(ironic, held, status, *ops, **query):
    """The reservation, or an error's text."""
    response = ironic.http.patch(f'{OURS}/{held["instance_uuid"]}',
                                 json=list(ops), params=query)
    fault = answers.check(response, status)
    return response.json() if fault is None else fault


@pytest.fixture
def held(ironic, pool, node_class):
    return ironic.create(resource_class=node_class, host='compute-1',
                         expires_in=100)


def unchanged(held, now):
    return {**now, 'updated_at': held['updated_at'],
            'expires_at': held['expires_at'], 'host': held['host']} == held


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('kind', ['add', 'replace'])
def test_lease(ironic, held, kind):
    now = patch(ironic, held, 200, op(kind, '/expires_in', 1000))
    assert 990 <= ironic.seconds_left(now) <= 1000
    assert unchanged(held, now) and now['host'] == 'compute-1'
    assert now['updated_at'] is not None
    assert ironic.show(held['instance_uuid']) == now


def test_no_lease(ironic, held):
    now = patch(ironic, held, 200, op('remove', '/expires_in'))
    assert now['expires_at'] is None
    # A value that it has is nobody's.
    patch(ironic, held, 200, op('remove', '/expires_in', 5))


def test_host(ironic, held):
    now = patch(ironic, held, 200, host('compute-2'))
    assert now['host'] == 'compute-2'
    assert now['expires_at'] == held['expires_at']
    assert unchanged(held, now)
    ironic.delete(held['instance_uuid'], 404, host='compute-1')
    ironic.delete(held['instance_uuid'], host='compute-2')


def test_both_in_order(ironic, held):
    now = patch(ironic, held, 200, host('compute-2'), lease(10),
                host('compute-3'), lease(1000.0))
    assert now['host'] == 'compute-3'
    assert ironic.seconds_left(now) > 900


def test_for_a_host(ironic, held):
    """A late renewal does not take back a hold that has moved on."""
    before = ironic.state()
    patch(ironic, held, 404, lease(50), host='compute-2')
    patch(ironic, held, 404, host('compute-3'), host='compute-2')
    assert ironic.state() == before
    patch(ironic, held, 200, host('compute-2'), host='compute-1')
    before = ironic.state()
    patch(ironic, held, 404, lease(50), host='compute-1')
    patch(ironic, held, 404, host('compute-3'), host='compute-1')
    assert ironic.state() == before
    patch(ironic, held, 200, lease(50), host='compute-2')


@pytest.mark.parametrize('state', ['deploying', 'active', 'rescue',
                                   'deploy failed', 'deleting', 'manageable'])
def test_states(ironic, held, state):
    """Any server changes hosts; only a hold has a lease."""
    ironic.set_node(held['node_uuid'], provision_state=state)
    before = ironic.state()
    for each in lease(50), op('remove', '/expires_in'):
        assert state in patch(ironic, held, 409, each)
        patch(ironic, held, 409, host('compute-2'), each)
    assert ironic.state() == before
    assert patch(ironic, held, 200, host('compute-2'))['host'] == 'compute-2'
    assert ironic.find_instance(held['node_uuid']) == held['instance_uuid']


def test_locked_node(ironic, held):
    """Nothing of the node changes, so its lock is nobody's business."""
    ironic.set_node(held['node_uuid'], reservation='conductor')
    patch(ironic, held, 200, lease(50), host('compute-2'))


def test_no_such_reservation(ironic, held):
    other = {'instance_uuid': str(uuid.uuid4())}
    patch(ironic, other, 404, lease(50))
    ironic.expire(held['instance_uuid'])
    # What others have seen gone does not come back.
    for each in lease(50), host('compute-2'):
        patch(ironic, held, 404, each)
    ironic.set_node(held['node_uuid'], instance_uuid=None)
    patch(ironic, held, 404, host('compute-2'))


# Whose it is


@pytest.fixture
def of_a(cloud):
    """A hold of project A that no host has."""
    return cloud.hold('a-member', **personas.ANY,
                      instance_uuid=str(uuid.uuid4()), expires_in=100)


def asked(cloud, persona, held, status, *ops):
    return answers.check(cloud.request(
        persona, 'PATCH', f'{OURS}/{held["instance_uuid"]}',
        json=list(ops)), status)


def test_project_renews_its_own(cloud, of_a):
    asked(cloud, 'a-member', of_a, 200, lease(50))
    asked(cloud, 'a-member', of_a, 200, op('remove', '/expires_in'))
    asked(cloud, 'a-member', of_a, 403, host('compute-1'))
    asked(cloud, 'a-reader', of_a, 403, lease(50))
    asked(cloud, 'b-member', of_a, 404, lease(50))


def test_project_that_must_have_leases(cloud, of_a):
    with application.set_options({'reservations': {'require_lease': True}}):
        asked(cloud, 'a-member', of_a, 400, op('remove', '/expires_in'))
        asked(cloud, 'a-member', of_a, 200, lease(50))
        asked(cloud, 'system-admin', of_a, 200, op('remove', '/expires_in'))
