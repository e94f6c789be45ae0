# SPDX-License-Identifier: Apache-2.0
"""PATCH: changes of the host and of the lease."""

import uuid

import pytest

from tests.common import application
from tests.common import contract
from tests.common import personas
from tests.common import service
from tests.common.bad_requests import host
from tests.common.bad_requests import lease
from tests.common.bad_requests import op

POOL = [{'properties': {'memory_mb': 1024}}] * 2
OURS = service.OURS


def patch(ironic, hold, status, *ops, **query):
    """Return the reservation, or the text of the error."""
    response = ironic.http.patch(f'{OURS}/{hold["instance_uuid"]}',
                                 json=list(ops), params=query)
    fault = contract.check(response, status)
    return response.json() if fault is None else fault


@pytest.fixture
def hold(ironic, pool, node_class):
    return ironic.create(resource_class=node_class, host='compute-1',
                         expires_in=100)


def is_unchanged(hold, now):
    return {**now, 'updated_at': hold['updated_at'],
            'expires_at': hold['expires_at'], 'host': hold['host']} == hold


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('kind', ['add', 'replace'])
def test_lease(ironic, hold, kind):
    now = patch(ironic, hold, 200, op(kind, '/expires_in', 1000))
    assert 990 <= ironic.seconds_left(now) <= 1000
    assert is_unchanged(hold, now) and now['host'] == 'compute-1'
    assert now['updated_at'] is not None
    assert ironic.show(hold['instance_uuid']) == now


def test_no_lease(ironic, hold):
    now = patch(ironic, hold, 200, op('remove', '/expires_in'))
    assert now['expires_at'] is None
    # A value is ignored.
    patch(ironic, hold, 200, op('remove', '/expires_in', 5))


def test_host(ironic, hold):
    now = patch(ironic, hold, 200, host('compute-2'))
    assert now['host'] == 'compute-2'
    assert now['expires_at'] == hold['expires_at']
    assert is_unchanged(hold, now)
    ironic.delete(hold['instance_uuid'], 404, host='compute-1')
    ironic.delete(hold['instance_uuid'], host='compute-2')


@pytest.mark.on('sqlite', 'server')
def test_description(ironic, hold, node_class):
    """It changes in every state, and belongs to no identity."""
    assert hold['description'] is None
    for kind, text in ('add', 'burn-in'), ('replace', ''), ('add', 'x' * 255):
        now = patch(ironic, hold, 200, op(kind, '/description', text))
        assert now['description'] == text
        assert {**now, 'description': None, 'updated_at': None} == hold
    repeat = ironic.create(200, resource_class=node_class, host='compute-1',
                           instance_uuid=hold['instance_uuid'],
                           description='another')
    assert repeat['description'] == text
    ironic.set_node(hold['node_uuid'], provision_state='active')
    patch(ironic, hold, 409, op('add', '/description', 'y'), lease(50))
    assert ironic.show(hold['instance_uuid'])['description'] == text
    now = patch(ironic, hold, 200, op('remove', '/description'))
    assert now['description'] is None
    patch(ironic, hold, 404, op('remove', '/description'), host='compute-2')


def test_both_in_order(ironic, hold):
    now = patch(ironic, hold, 200, host('compute-2'), lease(10),
                host('compute-3'), lease(1000.0))
    assert now['host'] == 'compute-3'
    assert ironic.seconds_left(now) > 900


def test_with_the_current_host(ironic, hold):
    """A late renewal does not affect a hold of another host."""
    before = ironic.state()
    patch(ironic, hold, 404, lease(50), host='compute-2')
    patch(ironic, hold, 404, host('compute-3'), host='compute-2')
    assert ironic.state() == before
    patch(ironic, hold, 200, host('compute-2'), host='compute-1')
    before = ironic.state()
    patch(ironic, hold, 404, lease(50), host='compute-1')
    patch(ironic, hold, 404, host('compute-3'), host='compute-1')
    assert ironic.state() == before
    patch(ironic, hold, 200, lease(50), host='compute-2')


@pytest.mark.parametrize('state', ['deploying', 'active', 'rescue',
                                   'deploy failed', 'deleting', 'manageable'])
def test_states(ironic, hold, state):
    """Reservations in all states have a host, only holds have a lease."""
    ironic.set_node(hold['node_uuid'], provision_state=state)
    before = ironic.state()
    for lease_op in lease(50), op('remove', '/expires_in'):
        assert state in patch(ironic, hold, 409, lease_op)
        patch(ironic, hold, 409, host('compute-2'), lease_op)
    assert ironic.state() == before
    assert patch(ironic, hold, 200, host('compute-2'))['host'] == 'compute-2'
    assert ironic.find_instance(hold['node_uuid']) == hold['instance_uuid']


def test_locked_node(ironic, hold):
    """A lock is no obstacle, because the node is not changed."""
    ironic.set_node(hold['node_uuid'], reservation='conductor')
    patch(ironic, hold, 200, lease(50), host('compute-2'))


def test_no_such_reservation(ironic, hold):
    other = {'instance_uuid': str(uuid.uuid4())}
    patch(ironic, other, 404, lease(50))
    ironic.expire(hold['instance_uuid'])
    # An expired reservation cannot be renewed.
    for patch_op in lease(50), host('compute-2'):
        patch(ironic, hold, 404, patch_op)
    ironic.set_node(hold['node_uuid'], instance_uuid=None)
    patch(ironic, hold, 404, host('compute-2'))


# Callers

@pytest.fixture
def a_hold(cloud):
    """A hold of project A without a host."""
    return cloud.hold('a-member', **personas.ANY,
                      instance_uuid=str(uuid.uuid4()), expires_in=100)


def patch_as(cloud, persona, hold, status, *ops):
    return contract.check(cloud.request(
        persona, 'PATCH', f'{OURS}/{hold["instance_uuid"]}',
        json=list(ops)), status)


def test_project(cloud, a_hold):
    patch_as(cloud, 'a-member', a_hold, 200, lease(50))
    patch_as(cloud, 'a-member', a_hold, 200, op('remove', '/expires_in'))
    patch_as(cloud, 'a-member', a_hold, 403, host('compute-1'))
    patch_as(cloud, 'a-reader', a_hold, 403, lease(50))
    patch_as(cloud, 'b-member', a_hold, 404, lease(50))


def test_require_lease(cloud, a_hold):
    with application.set_options({'reservations': {'require_lease': True}}):
        fault = patch_as(cloud, 'a-member', a_hold, 400,
                         op('remove', '/expires_in'))
        assert fault.startswith('expires_in: is required, because '
                                '[reservations] require_lease is set; ')
        patch_as(cloud, 'a-member', a_hold, 200, lease(50))
        patch_as(cloud, 'system-admin', a_hold, 200,
                 op('remove', '/expires_in'))
