# SPDX-License-Identifier: Apache-2.0
"""A touched node stays held after its lease, with a real Ironic."""

import uuid

import pytest

from tests.common import contract
from tests.common import service

OURS = service.OURS
INSTANCE_INFO = [{'op': 'add', 'path': '/instance_info/image_source',
                  'value': 'http://127.0.0.1/image'}]
NO_INSTANCE_INFO = [{'op': 'remove', 'path': '/instance_info'}]


@pytest.fixture
def request_(resource_class):
    """Return a request for a new instance, with a lease."""
    return {'resource_class': resource_class, 'host': 'compute-1',
            'instance_uuid': str(uuid.uuid4()), 'expires_in': 3600}


def with_instance_info(ironic, node_uuid):
    path = f'/v1/nodes/{node_uuid}'
    assert ironic.http.patch(path, json=INSTANCE_INFO).status_code == 200
    return lambda: ironic.http.patch(path, json=NO_INSTANCE_INFO)


def with_volume_target(ironic, node_uuid):
    response = ironic.http.post('/v1/volume/targets', json={
        'node_uuid': node_uuid, 'volume_type': 'iscsi', 'boot_index': 0,
        'volume_id': str(uuid.uuid4())})
    assert response.status_code == 201, response.text
    path = f'/v1/volume/targets/{response.json()["uuid"]}'

    def clean():
        # Ironic requires that the node is powered off.
        response = ironic.http.delete(path)
        assert response.status_code == 204, response.text
    return clean


def with_lock(ironic, node_uuid):
    ironic.set_node(node_uuid, reservation='conductor-1')
    return lambda: ironic.set_node(node_uuid, reservation=None)


#: Those that Ironic's API writes; tests/core/test_leases.py tests all kinds.
TOUCHES = with_instance_info, with_volume_target, with_lock


def test_touched_nodes_are_kept(ironic, resource_class):
    nodes = [{'resource_class': resource_class}] * len(TOUCHES)
    with ironic.fleet(*nodes) as nodes:
        holds = [ironic.create(candidate_nodes=[node.id], expires_in=3600,
                               host='compute-1') for node in nodes]
        idents = {hold['instance_uuid'] for hold in holds}
        cleanings = [touch(ironic, node.id) for node, touch in zip(
            nodes, TOUCHES, strict=True)]
        for ident in idents:
            ironic.expire(ident)
        # They stay visible, and are neither reassigned nor released.
        for ident in idents:
            assert ironic.show(ident)['state'] == 'reserved'
        assert idents == {row['instance_uuid'] for row in ironic.list(
            resource_class=resource_class)}
        row, = ironic.capacity(resource_class=resource_class,
                               host='compute-1')
        assert (row['free'], row['held']) == (0, len(nodes))
        ironic.create(422, resource_class=resource_class)
        assert ironic.manage('sweep').returncode == 0
        for hold in holds:
            assert (ironic.find_instance(hold['node_uuid'])
                    == hold['instance_uuid'])
        audit = ironic.manage('audit')
        assert audit.returncode == 1
        for hold in holds:
            assert hold['instance_uuid'] in audit.stdout
            assert hold['node_uuid'] in audit.stdout
        # When the changes are undone, the leases expire.
        for clean in cleanings:
            clean()
        ironic.settle(nodes)
        for ident in idents:
            ironic.show(ident, 404)
        assert ironic.manage('audit').returncode == 0
        again = {ironic.create(resource_class=resource_class)['node_uuid']
                 for _ in nodes}
        assert again == {node.id for node in nodes}


def test_deployed_node_outlives_its_lease(ironic, resource_class, request_):
    """The tear-down of the node releases it."""
    with ironic.fleet({'resource_class': resource_class}) as (node,):
        hold = ironic.create(**request_)
        ident, path = hold['instance_uuid'], f'/v1/nodes/{node.id}'

        def set_target(state):
            response = ironic.http.put(f'{path}/states/provision',
                                       json={'target': state})
            assert response.status_code == 202, response.text

        assert ironic.http.patch(
            path, json=INSTANCE_INFO).status_code == 200
        set_target('active')
        ironic.settle([node], provision_state='active')
        ironic.expire(ident)
        assert ironic.manage('sweep').returncode == 0
        contract.check(ironic.http.post(OURS, json={
            'resource_class': resource_class}), 422)
        assert ironic.show(ident)['state'] == 'active'
        ironic.delete(ident, 409)
        # The audit does not report a deployed node either.
        assert ident not in ironic.manage('audit').stdout
        assert ironic.create(200, **request_)['node_uuid'] == node.id
        ironic.create(409, **{**request_, 'host': 'compute-2'})
        set_target('deleted')
        ironic.settle([node], provision_state='available')
        ironic.show(ident, 404)
        assert ironic.create(**request_)['node_uuid'] == node.id
        ironic.delete(ident)
