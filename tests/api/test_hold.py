# SPDX-License-Identifier: Apache-2.0
"""Hold a node, see it, let it go."""

import datetime
import uuid

import pytest

from tests.api.test_list import KEYS
from tests.common import answers

OURS = '/v1/reservations'

NODE = {'properties': {'memory_mb': 1024, 'cpus': 8, 'local_gb': 100,
                       'cpu_arch': 'x86_64', 'capabilities': 'gpus:4,uefi'},
        'traits': ['CUSTOM_NVME']}
POOL = [{**NODE, 'name': f'pool-{number}'} for number in range(5)]


@pytest.mark.on('sqlite', 'server')
def test_hold(ironic, pool, node_class):
    instance_uuid = str(uuid.uuid4())
    response = ironic.http.post(OURS, json={
        'instance_uuid': instance_uuid, 'host': 'compute-1',
        'memory_mb': 512, 'vcpus': 8, 'root_gb': 20, 'ephemeral_gb': 10,
        'swap': 2, 'vcpu_weight': None, 'rxtx_factor': 1.0,
        'name': 'bm.small', 'flavorid': 'f-1',
        'extra_specs': {'capabilities': 'uefi', 'hw:cpu_policy': 'shared',
                        'capabilities:gpus': '>= 2',
                        'trait:CUSTOM_NVME': 'required'},
        'image': {'id': 'i-1', 'properties': {'hw_architecture': 'x86_64'},
                  'min_ram': 0, 'min_disk': 0},
        'resource_class': node_class, 'shard': None,
        'project_id': 'p-1', 'user_id': 'u-1'})
    answers.check(response, 201)
    held = response.json()
    assert list(held) == KEYS
    url = f'{ironic.url}{OURS}/{instance_uuid}'
    assert response.headers['Location'] == url
    assert held['links'] == [{'rel': 'self', 'href': url}]
    node = next(node for node in pool if node.id == held['node_uuid'])
    created_at = datetime.datetime.fromisoformat(held['created_at'])
    assert abs(datetime.datetime.now(datetime.UTC)
               - created_at) < datetime.timedelta(minutes=10)
    assert {key: held[key] for key in KEYS[:9] + KEYS[10:11]} == {
        'instance_uuid': instance_uuid, 'node_uuid': node.id,
        'node_name': node.name, 'host': 'compute-1', 'state': 'reserved',
        'provision_state': 'available', 'resource_class': node_class,
        'project_id': 'p-1', 'user_id': 'u-1', 'expires_at': None}
    assert held['updated_at'] is None
    spec = held['request_spec']
    assert not set(spec) & {'instance_uuid', 'host', 'project_id', 'user_id'}
    assert spec['name'] == 'bm.small'
    assert spec['flavorid'] == 'f-1'
    assert spec['extra_specs']['hw:cpu_policy'] == 'shared'
    assert ironic.show(instance_uuid) == held
    assert ironic.show(instance_uuid.upper()) == held
    del held['request_spec']
    assert ironic.listed(resource_class=node_class) == [held]

    assert ironic.carried(node.id) == instance_uuid

    ironic.delete(instance_uuid)
    ironic.delete(instance_uuid, 404)
    ironic.show(instance_uuid, 404)
    assert ironic.carried(node.id) is None
    assert not ironic.listed(resource_class=node_class)


def test_instance_uuid_is_generated_and_lower_case(
        ironic, pool, node_class):
    one = ironic.create(resource_class=node_class)
    two = ironic.create(resource_class=node_class, instance_uuid=None)
    assert str(uuid.UUID(one['instance_uuid'])) == one['instance_uuid']
    assert one['instance_uuid'] != two['instance_uuid']
    assert one['node_uuid'] != two['node_uuid']
    upper = str(uuid.uuid4()).upper()
    held = ironic.create(resource_class=node_class, instance_uuid=upper)
    assert held['instance_uuid'] == upper.lower()
    assert ironic.carried(held['node_uuid']) == upper.lower()
    ironic.delete(upper)


def test_urls_behind_a_proxy(configured, pool, node_class):
    proxy = {'X-Forwarded-Proto': 'https',
             'X-Forwarded-Host': 'baremetal.example',
             'X-Forwarded-Prefix': '/baremetal'}
    with configured({'oslo_middleware': {
            'enable_proxy_headers_parsing': True}}) as behind:
        response = behind.http.post(
            OURS, json={'resource_class': node_class}, headers=proxy)
        answers.check(response, 201)
        assert response.headers['Location'] == (
            'https://baremetal.example/baremetal/v1/reservations/'
            + response.json()['instance_uuid'])
