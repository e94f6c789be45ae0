# SPDX-License-Identifier: Apache-2.0
"""The life of a reservation in a real Ironic: hold, deploy, tear down."""

import uuid

import bcrypt
import openstack
import pytest
import tenacity

from tests.common import contract
from tests.common import service

OURS = service.OURS
NODE = {'properties': {'memory_mb': 1024, 'cpus': 8, 'local_gb': 100,
                       'cpu_arch': 'x86_64', 'capabilities': 'gpus:4,uefi'},
        'traits': ['CUSTOM_NVME']}
BOTH = pytest.mark.parametrize('ironic', ['sqlite', 'server'], indirect=True)
POOL = [{**NODE, 'name': f'pool-{number}'} for number in range(2)]


def get_node(ironic, reservation):
    """Return the node as Ironic's own API shows it."""
    return ironic.http.get(f'/v1/nodes/{reservation["node_uuid"]}').json()


def test_hold(ironic, pool, node_class):
    instance_uuid = str(uuid.uuid4())
    response = ironic.http.post(OURS, json={
        'instance_uuid': instance_uuid, 'host': 'compute-1',
        'memory_mb': 512, 'resource_class': node_class, 'project_id': 'p-1',
        'extra_specs': {'trait:CUSTOM_NVME': 'required'}})
    contract.check(response, 201)
    hold = response.json()
    assert response.headers['Location'] == (
        f'{ironic.url}{OURS}/{instance_uuid}')
    assert hold['node_uuid'] in {node.id for node in pool}
    assert ironic.show(instance_uuid) == hold
    assert get_node(ironic, hold)['instance_uuid'] == instance_uuid
    result = ironic.http.get('/v1/nodes', params={
        'instance_uuid': instance_uuid}).json()['nodes']
    assert [node['uuid'] for node in result] == [hold['node_uuid']]
    ironic.delete(instance_uuid)
    ironic.show(instance_uuid, 404)
    assert get_node(ironic, hold)['instance_uuid'] is None


def test_instance_uuid_as_nova_patches_it(ironic, pool, node_class):
    hold = ironic.create(resource_class=node_class)

    def patch(value):
        return ironic.http.patch(
            f'/v1/nodes/{hold["node_uuid"]}',
            json=[{'op': 'add', 'path': '/instance_uuid', 'value': value}])

    assert patch(hold['instance_uuid']).status_code == 200
    assert patch(str(uuid.uuid4())).status_code == 409
    assert ironic.show(hold['instance_uuid'])['state'] == 'reserved'


def test_held_node_is_not_allocated(ironic, pool, node_class):
    holds = [ironic.create(resource_class=node_class) for _ in pool[1:]]
    free, = {node.id for node in pool} - {hold['node_uuid'] for hold in holds}

    def allocate():
        name = ironic.http.post('/v1/allocations', json={
            'resource_class': node_class}).json()['uuid']
        return wait(lambda: ironic.http.get(
            f'/v1/allocations/{name}').json(),
            lambda allocation: allocation['state'] != 'allocating')

    one, two = allocate(), allocate()
    assert (one['state'], one['node_uuid']) == ('active', free)
    assert two['state'] == 'error'
    # An allocated node is not held either, whatever its instance_uuid.
    ironic.create(422, resource_class=node_class)
    ironic.set_node(free, instance_uuid=None)
    ironic.create(422, resource_class=node_class)
    for allocation in one, two:
        assert ironic.http.delete(
            f'/v1/allocations/{allocation["uuid"]}').status_code == 204


def wait(read, condition):
    """Poll until a condition holds for a value; return the value."""
    return tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda value: not condition(value)),
        wait=tenacity.wait_fixed(0.1), stop=tenacity.stop_after_delay(60),
    )(read)


def set_provision_state(ironic, reservation, target):
    response = ironic.http.put(
        f'/v1/nodes/{reservation["node_uuid"]}/states/provision',
        json={'target': target})
    assert response.status_code == 202, response.text


def wait_for_state(ironic, reservation, state):
    return wait(lambda: ironic.show(reservation['instance_uuid']),
                lambda result: result['state'] == state)


def test_manage_and_provide(ironic, resource_class):
    with ironic.fleet({**NODE, 'resource_class': resource_class}):
        hold = ironic.create(resource_class=resource_class)
        set_provision_state(ironic, hold, 'manage')
        wait_for_state(ironic, hold, 'unavailable')
        ironic.create(409, resource_class=resource_class,
                      instance_uuid=hold['instance_uuid'])
        set_provision_state(ironic, hold, 'provide')
        wait_for_state(ironic, hold, 'reserved')
        set_provision_state(ironic, hold, 'manage')
        wait_for_state(ironic, hold, 'unavailable')
        wait(lambda: get_node(ironic, hold),
             lambda node: node['reservation'] is None)
        ironic.delete(hold['instance_uuid'])


@BOTH
def test_active_in_maintenance(ironic, resource_class):
    with ironic.fleet({**NODE, 'resource_class': resource_class}):
        hold = ironic.create(resource_class=resource_class)
        set_provision_state(ironic, hold, 'active')
        wait_for_state(ironic, hold, 'active')
        wait(lambda: get_node(ironic, hold),
             lambda node: node['reservation'] is None)
        assert 'active' in ironic.delete(hold['instance_uuid'], 409)
        url = f'/v1/nodes/{hold["node_uuid"]}/maintenance'
        assert ironic.http.put(url, json={}).status_code == 202
        ironic.delete(hold['instance_uuid'])
        assert get_node(ironic, hold)['instance_uuid'] is None


def test_preflight_of_a_dashboard(ironic):
    response = ironic.http.options(OURS, headers={
        'Origin': 'http://dashboard.example',
        'Access-Control-Request-Method': 'POST'})
    assert response.status_code == 200
    assert (response.headers['Access-Control-Allow-Origin']
            == 'http://dashboard.example')


@pytest.mark.long
def test_http_basic(start_ironic, resource_class, tmp_path):
    users = tmp_path / 'htpasswd'
    users.write_text('admin:' + bcrypt.hashpw(
        b'secret', bcrypt.gensalt(4)).decode() + '\n')
    with start_ironic(config={'DEFAULT': {
            'auth_strategy': 'http_basic',
            'http_basic_auth_user_file': users}}) as ironic:
        for auth in None, ('admin', 'wrong'):
            contract.check(ironic.http.post(
                OURS, auth=auth, data=b'[' * 60000), 401)
        ironic.http.auth = ('admin', 'secret')
        ironic.baremetal = openstack.connect(
            load_envvars=False, load_yaml_config=False,
            auth_type='http_basic', endpoint=ironic.url, username='admin',
            password='secret').baremetal
        with ironic.fleet({'resource_class': resource_class}):
            hold = ironic.create(resource_class=resource_class, host='h',
                                 project_id='p')
            assert hold['project_id'] == 'p'
            contract.check(ironic.http.get(OURS, params={'foo': '1'}), 400)
            ironic.create(422, resource_class=resource_class)
            contract.check(ironic.http.post(OURS, data='{'), 415)
            ironic.delete(hold['instance_uuid'])
