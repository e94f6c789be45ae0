# SPDX-License-Identifier: Apache-2.0
"""Create, show and release a reservation."""

import datetime
import uuid

import pytest

from tests.api.test_list import KEYS
from tests.common import contract
from tests.common import request_keys

OURS = '/v1/reservations'

NODE = {'properties': {'memory_mb': 1024, 'cpus': 8, 'local_gb': 100,
                       'cpu_arch': 'x86_64', 'capabilities': 'gpus:4,uefi'},
        'traits': ['CUSTOM_NVME']}
POOL = [{**NODE, 'name': f'pool-{number}'} for number in range(5)]


@pytest.mark.on('sqlite', 'server')
def test_hold(ironic, pool, node_class):
    instance_uuid = str(uuid.uuid4())
    response = ironic.http.post(OURS, json={
        **request_keys.values(), 'instance_uuid': instance_uuid,
        'rxtx_factor': 1.0, 'expires_in': None,
        'extra_specs': {'capabilities': 'uefi', 'hw:cpu_policy': 'shared',
                        'capabilities:gpus': '>= 2',
                        'trait:CUSTOM_NVME': 'required'},
        'image': {'id': 'i-1', 'properties': {'hw_architecture': 'x86_64'},
                  'min_ram': 0, 'min_disk': 0},
        'resource_class': node_class, 'shard': None})
    contract.check(response, 201)
    reservation = response.json()
    assert reservation.pop('ignored') == ['hw:cpu_policy']
    assert list(reservation) == [*KEYS, 'more_notices']
    url = f'{ironic.url}{OURS}/{instance_uuid}'
    assert response.headers['Location'] == url
    assert reservation['links'] == [{'rel': 'self', 'href': url}]
    node = next(node for node in pool if node.id == reservation['node_uuid'])
    created_at = datetime.datetime.fromisoformat(reservation['created_at'])
    assert abs(datetime.datetime.now(datetime.UTC)
               - created_at) < datetime.timedelta(minutes=10)
    outside = request_keys.values(is_in_spec=False)
    del outside['expires_in']
    assert reservation.items() >= {
        'instance_uuid': instance_uuid, 'node_uuid': node.id,
        'node_name': node.name, 'state': 'reserved',
        'provision_state': 'available', 'resource_class': node_class,
        'expires_at': None, 'updated_at': None, **outside}.items()
    spec = reservation['request_spec']
    assert not set(spec) & {'instance_uuid', 'expires_in', *outside}
    expected = request_keys.values(is_in_spec=True)
    del expected['shard'], expected['resource_class']
    assert spec.items() >= expected.items()
    assert spec['extra_specs']['hw:cpu_policy'] == 'shared'
    assert ironic.show(instance_uuid) == reservation
    assert ironic.show(instance_uuid.upper()) == reservation
    for name in 'request_spec', 'notices', 'more_notices':
        del reservation[name]
    assert ironic.list(resource_class=node_class) == [reservation]

    assert ironic.find_instance(node.id) == instance_uuid

    ironic.delete(instance_uuid)
    ironic.delete(instance_uuid, 404)
    ironic.show(instance_uuid, 404)
    assert ironic.find_instance(node.id) is None
    assert not ironic.list(resource_class=node_class)


def test_instance_uuid_is_generated_and_lower_case(
        ironic, pool, node_class):
    one = ironic.create(resource_class=node_class)
    two = ironic.create(resource_class=node_class, instance_uuid=None)
    assert str(uuid.UUID(one['instance_uuid'])) == one['instance_uuid']
    assert one['instance_uuid'] != two['instance_uuid']
    assert one['node_uuid'] != two['node_uuid']
    upper = str(uuid.uuid4()).upper()
    hold = ironic.create(resource_class=node_class, instance_uuid=upper)
    assert hold['instance_uuid'] == upper.lower()
    assert ironic.find_instance(hold['node_uuid']) == upper.lower()
    ironic.delete(upper)


def test_all_nodes_of_the_pool(ironic, pool, node_class):
    holds = [ironic.create(resource_class=node_class) for _ in pool]
    assert ({hold['node_uuid'] for hold in holds}
            == {node.id for node in pool})
    response = ironic.http.post(OURS, json={'resource_class': node_class})
    contract.check(response, 422)
    assert 'Retry-After' not in response.headers
    ironic.delete(holds[0]['instance_uuid'])
    hold = ironic.create(resource_class=node_class)
    assert hold['node_uuid'] == holds[0]['node_uuid']


# One case for each part of a request: tests/unit/test_matching.py has all.
@pytest.mark.parametrize('body, status', [
    ({'memory_mb': 1024, 'vcpus': 8, 'root_gb': 99, 'swap': 1024}, 201),
    ({'image': {'properties': {'trait:CUSTOM_GPU': 'required'}}}, 422),
    ({'extra_specs': {'capabilities:gpus': '> 4'}}, 422),
    ({'extra_specs': {'reservations:candidate_nodes': 'pool-1, pool-2'}},
     201),
], ids=str)
def test_matching(ironic, pool, node_class, body, status):
    ironic.create(status, resource_class=node_class, **body)


def test_resource_class_as_nova_spells_it(ironic, pool, node_class):
    normal = 'CUSTOM_' + node_class.upper().replace('.', '_')
    ironic.create(resource_class=normal)
    hold = ironic.create(extra_specs={f'resources:{normal}': '1'})
    assert hold['resource_class'] == node_class


def test_candidates_by_name_and_uuid(ironic, pool, node_class):
    one = ironic.create(candidate_nodes=['pool-3'])
    assert one['node_name'] == 'pool-3'
    two = ironic.create(candidate_nodes=[pool[1].id.upper()])
    assert two['node_uuid'] == pool[1].id
    ironic.create(422, candidate_nodes=['pool-3', pool[1].id])


def test_best_fit(ironic, resource_class):
    nodes = [{'resource_class': resource_class,
              'properties': {'memory_mb': memory, 'cpus': 1, 'local_gb': 1}}
             for memory in (4096, 1024, 2048, 8192)]
    with ironic.fleet(*nodes) as fleet:
        sizes = {node.id: node.properties['memory_mb'] for node in fleet}
        holds = [ironic.create(resource_class=resource_class, memory_mb=1500)
                 for _ in range(3)]
        assert [sizes[hold['node_uuid']] for hold in holds] == [
            2048, 4096, 8192]
        ironic.create(422, resource_class=resource_class, memory_mb=1500)


def test_urls_behind_a_proxy(start, pool, node_class):
    proxy = {'X-Forwarded-Proto': 'https',
             'X-Forwarded-Host': 'baremetal.example',
             'X-Forwarded-Prefix': '/baremetal'}
    with start({'oslo_middleware': {
            'enable_proxy_headers_parsing': True}}) as application:
        response = application.http.post(
            OURS, json={'resource_class': node_class}, headers=proxy)
        contract.check(response, 201)
        assert response.headers['Location'] == (
            'https://baremetal.example/baremetal/v1/reservations/'
            + response.json()['instance_uuid'])


def test_every_caller_of_noauth_is_an_admin(ironic, pool, node_class):
    hold = ironic.create(resource_class=node_class, project_id='p',
                         user_id='u', host='h')
    response = ironic.http.get(
        f'{OURS}/{hold["instance_uuid"]}', headers={
            'X-Auth-Token': 'nonsense', 'Authorization': 'Basic nonsense'})
    contract.check(response, 200)
