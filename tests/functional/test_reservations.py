# SPDX-License-Identifier: Apache-2.0
"""The main road: hold a node, see it, deploy to it, let it go."""

import datetime
import itertools
import pathlib
import subprocess
import uuid

import bcrypt
from ironicclient import client as ironicclient
from ironicclient import exc as ironicclient_exc
from keystoneauth1 import noauth
from keystoneauth1 import session as ks_session
import openstack
from openstack import exceptions as sdk_exc
from openstack import resource
import pytest
import requests
import tenacity

from tests.functional import answers
from tests.functional import conftest
from tools import services

OURS = '/v1/reservations'
KEYS = ['instance_uuid', 'node_uuid', 'node_name', 'host', 'state',
        'provision_state', 'resource_class', 'project_id', 'user_id',
        'request_spec', 'expires_at', 'created_at', 'updated_at', 'links']

NODE = {'properties': {'memory_mb': 1024, 'cpus': 8, 'local_gb': 100,
                       'cpu_arch': 'x86_64', 'capabilities': 'gpus:4,uefi'},
        'traits': ['CUSTOM_NVME']}


@pytest.fixture(scope='module')
def node_class():
    return f'test-{uuid.uuid4().hex}'


@pytest.fixture(scope='module')
def pool(ironic, node_class):
    """Five equal nodes."""
    with ironic.fleet(*(
            {**NODE, 'name': f'pool-{number}', 'resource_class': node_class}
            for number in range(5))) as nodes:
        yield nodes


@pytest.fixture(autouse=True)
def given_back(request):
    """Whatever a test has made of the nodes of the pool."""
    yield
    if 'pool' in request.fixturenames:
        give_back(request.getfixturevalue('ironic'),
                  request.getfixturevalue('node_class'))


def give_back(ironic, node_class):
    answers.execute(
        ironic, "UPDATE nodes SET provision_state = 'available', "
        "power_state = 'power off', maintenance = :no, retired = :no, "
        'reservation = NULL, parent_node = NULL, instance_uuid = NULL '
        'WHERE resource_class = :c', c=node_class, no=False)
    answers.execute(ironic, 'DELETE FROM reservations')


def new_uuid():
    return str(uuid.uuid4())


def create(ironic, status=201, **body):
    """POST; returns the reservation, or an error's text."""
    response = ironic.http.post(OURS, json=body)
    fault = answers.check(response, status)
    return response.json() if fault is None else fault


def show(ironic, instance_uuid, status=200):
    response = ironic.http.get(f'{OURS}/{instance_uuid}')
    fault = answers.check(response, status)
    return response.json() if fault is None else fault


def delete(ironic, instance_uuid, status=204, **query):
    return answers.check(ironic.http.delete(
        f'{OURS}/{instance_uuid}', params=query), status)


def listed(ironic, **query):
    response = ironic.http.get(OURS, params=query)
    answers.check(response, 200)
    return response.json()['reservations']


def node_of(ironic, reservation):
    """The node as Ironic's own API shows it."""
    return ironic.http.get(f'/v1/nodes/{reservation["node_uuid"]}').json()


def set_node(ironic, node_uuid, **columns):
    """Put a node into a state that is hard to come by, or does not stay."""
    for name, value in columns.items():
        answers.execute(
            ironic, f'UPDATE nodes SET {name} = :value WHERE uuid = :uuid',
            value=value, uuid=node_uuid)


# Hold, show, release

def test_hold(ironic, pool, node_class):
    instance_uuid = new_uuid()
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
    assert show(ironic, instance_uuid) == held
    assert show(ironic, instance_uuid.upper()) == held
    assert listed(ironic, resource_class=node_class) == [held]

    assert node_of(ironic, held)['instance_uuid'] == instance_uuid
    found = ironic.http.get('/v1/nodes', params={
        'instance_uuid': instance_uuid}).json()['nodes']
    assert [each['uuid'] for each in found] == [node.id]

    delete(ironic, instance_uuid)
    delete(ironic, instance_uuid, 404)
    show(ironic, instance_uuid, 404)
    assert node_of(ironic, held)['instance_uuid'] is None
    assert not listed(ironic, resource_class=node_class)


def test_instance_uuid_is_generated_and_lower_case(
        ironic, pool, node_class):
    one = create(ironic, resource_class=node_class)
    two = create(ironic, resource_class=node_class, instance_uuid=None)
    assert str(uuid.UUID(one['instance_uuid'])) == one['instance_uuid']
    assert one['instance_uuid'] != two['instance_uuid']
    assert one['node_uuid'] != two['node_uuid']
    upper = new_uuid().upper()
    held = create(ironic, resource_class=node_class, instance_uuid=upper)
    assert held['instance_uuid'] == upper.lower()
    assert node_of(ironic, held)['instance_uuid'] == upper.lower()
    delete(ironic, upper)


def test_pool_is_used_up(ironic, pool, node_class):
    held = [create(ironic, resource_class=node_class) for _ in pool]
    assert ({each['node_uuid'] for each in held}
            == {node.id for node in pool})
    response = ironic.http.post(OURS, json={'resource_class': node_class})
    answers.check(response, 422)
    assert 'Retry-After' not in response.headers
    delete(ironic, held[0]['instance_uuid'])
    again = create(ironic, resource_class=node_class)
    assert again['node_uuid'] == held[0]['node_uuid']


@pytest.mark.parametrize('body, status', [
    ({'memory_mb': 1024, 'vcpus': 8, 'root_gb': 100}, 201),
    ({'memory_mb': 1025}, 422),
    ({'vcpus': 9}, 422),
    ({'root_gb': 99, 'swap': 1024}, 201),
    ({'root_gb': 99, 'swap': 1025}, 422),
    ({'root_gb': 50, 'ephemeral_gb': 51}, 422),
    ({'image': {'min_ram': 1024, 'min_disk': 100}}, 201),
    ({'image': {'min_ram': 1025}}, 422),
    ({'image': {'min_disk': 101}}, 422),
    ({'memory_mb': 4096, 'extra_specs': {'resources:MEMORY_MB': '0'}}, 201),
    ({'memory_mb': 1023, 'extra_specs': {'reservations:match': 'exact'}},
     422),
    ({'memory_mb': 1024, 'extra_specs': {'reservations:match': 'exact'}},
     201),
    ({'extra_specs': {'trait:CUSTOM_NVME': 'required'}}, 201),
    ({'extra_specs': {'trait:CUSTOM_NVME': 'forbidden'}}, 422),
    ({'extra_specs': {'trait1:CUSTOM_NVME': 'forbidden'}}, 422),
    ({'extra_specs': {'reservations:trait:CUSTOM_NVME': 'forbidden'}}, 422),
    ({'extra_specs': {'trait:CUSTOM_GPU': 'required'}}, 422),
    ({'extra_specs': {'trait:CUSTOM_GPU': 'forbidden'}}, 201),
    ({'image': {'properties': {'trait:CUSTOM_GPU': 'required'}}}, 422),
    ({'extra_specs': {'capabilities': 'uefi,gpus:4'}}, 201),
    ({'extra_specs': {'capabilities': 'uefi,gpus:5'}}, 422),
    ({'extra_specs': {'capabilities:gpus': '>= 4'}}, 201),
    ({'extra_specs': {'capabilities:gpus': '> 4'}}, 422),
    ({'extra_specs': {'capabilities:gpus': '<or> 3 <or> 4'}}, 201),
    ({'extra_specs': {'capabilities:raid': '>= 4'}}, 422),
    ({'extra_specs': {'cpu_arch': 'amd64'}}, 201),
    ({'image': {'properties': {'hw_architecture': 'aarch64'}}}, 422),
    ({'image': {'properties': {'img_hv_type': 'baremetal'}}}, 201),
    ({'image': {'properties': {'img_hv_type': 'qemu'}}}, 422),
    ({'image': {'properties': {'hw_firmware_type': 'bios'}}}, 201),
    ({'conductor_group': ''}, 201),
    ({'conductor_group': 'rack-7'}, 422),
    ({'shard': 's'}, 422),
    ({'candidate_nodes': ['pool-3', 'elsewhere']}, 201),
    ({'candidate_nodes': ['elsewhere']}, 422),
    ({'extra_specs': {'reservations:candidate_nodes': 'pool-1, pool-2'}},
     201),
    ({'extra_specs': {'quota:x': 'y', 'hw:mem_page_size': 'large'}}, 201),
], ids=str)
def test_matching(ironic, pool, node_class, body, status):
    create(ironic, status, resource_class=node_class, **body)


def test_resource_class_as_nova_spells_it(ironic, pool, node_class):
    normal = 'CUSTOM_' + node_class.upper().replace('-', '_')
    create(ironic, resource_class=normal)
    held = create(ironic, extra_specs={f'resources:{normal}': '1'})
    assert held['resource_class'] == node_class


def test_candidates_by_name_and_uuid(ironic, pool, node_class):
    one = create(ironic, candidate_nodes=['pool-3'])
    assert one['node_name'] == 'pool-3'
    two = create(ironic, candidate_nodes=[pool[1].id.upper()])
    assert two['node_uuid'] == pool[1].id
    create(ironic, 422, candidate_nodes=['pool-3', pool[1].id])


def test_best_fit(ironic, node_class):
    nodes = [{'resource_class': node_class,
              'properties': {'memory_mb': memory, 'cpus': 1, 'local_gb': 1}}
             for memory in (4096, 1024, 2048, 8192)]
    with ironic.fleet(*nodes) as created:
        sizes = {node.id: node.properties['memory_mb'] for node in created}
        held = [create(ironic, resource_class=node_class, memory_mb=1500)
                for _ in range(3)]
        assert [sizes[each['node_uuid']] for each in held] == [
            2048, 4096, 8192]
        create(ironic, 422, resource_class=node_class, memory_mb=1500)
    answers.execute(ironic, 'DELETE FROM reservations')


@pytest.mark.parametrize('columns', [
    {'maintenance': True}, {'retired': True}, {'power_state': None},
    {'provision_state': 'manageable'}, {'provision_state': 'cleaning'},
    {'provision_state': 'active'}, {'parent_node': str(uuid.UUID(int=1))},
    {'instance_uuid': str(uuid.UUID(int=1))},
], ids=str)
def test_node_that_may_not_be_held(ironic, pool, node_class, columns):
    set_node(ironic, pool[0].id, **columns)
    response = ironic.http.post(OURS, json={
        'candidate_nodes': [pool[0].id], 'resource_class': node_class})
    answers.check(response, 422)
    assert 'Retry-After' not in response.headers
    assert not listed(ironic, resource_class=node_class)


def test_old_nulls_are_no_maintenance(ironic, pool, node_class):
    set_node(ironic, pool[0].id, maintenance=None, retired=None)
    create(ironic, candidate_nodes=[pool[0].id])


def test_locked_nodes_are_worth_another_try(ironic, pool, node_class):
    for node in pool:
        set_node(ironic, node.id, reservation='conductor-1')
    response = ironic.http.post(OURS, json={'resource_class': node_class})
    answers.check(response, 422)
    assert response.headers['Retry-After'] == '1'
    response = ironic.http.post(OURS, json={'resource_class': node_class,
                                            'memory_mb': 4096})
    answers.check(response, 422)
    assert 'Retry-After' not in response.headers
    set_node(ironic, pool[2].id, reservation=None)
    held = create(ironic, resource_class=node_class)
    assert held['node_uuid'] == pool[2].id


# Repeats

SPEC = {'memory_mb': 512, 'extra_specs': {'capabilities': 'uefi'}}


@pytest.mark.parametrize('spelling', [
    {}, {'memory_mb': 512.0}, {'swap': 0}, {'swap': None, 'shard': None},
    {'image': {}}, {'image': {'properties': {}, 'min_ram': 0}},
    {'rxtx_factor': 1}, {'rxtx_factor': 1.0},
    {'extra_specs': {'capabilities': 'uefi', 'trait:X': None}},
    {'project_id': 'other'}, {'user_id': 'other'},
], ids=str)
def test_repeat_is_the_same_reservation(ironic, pool, node_class, spelling):
    body = {**SPEC, 'resource_class': node_class, 'host': 'compute-1',
            'instance_uuid': new_uuid(), 'project_id': 'p', 'user_id': 'u'}
    held = create(ironic, **body)
    response = ironic.http.post(OURS, json={**body, **spelling})
    answers.check(response, 200)
    assert response.json() == held
    assert len(listed(ironic, resource_class=node_class)) == 1


def test_repeat_moves_to_the_host_named_last(ironic, pool, node_class):
    body = {**SPEC, 'resource_class': node_class,
            'instance_uuid': new_uuid()}
    held = create(ironic, **body, host='compute-1')
    moved = create(ironic, 200, **body, host='compute-2')
    assert moved['host'] == 'compute-2'
    assert moved['node_uuid'] == held['node_uuid']
    assert moved['created_at'] == held['created_at']
    assert moved['updated_at'] is not None
    assert show(ironic, body['instance_uuid']) == moved
    # Whoever does not say a host leaves the one that there is.
    assert create(ironic, 200, **body)['host'] == 'compute-2'
    assert create(ironic, 200, **body, host=None)['host'] == 'compute-2'
    # The late clean-up of the first host finds nothing of its own.
    delete(ironic, body['instance_uuid'], 404, host='compute-1')
    assert show(ironic, body['instance_uuid'])['host'] == 'compute-2'
    delete(ironic, body['instance_uuid'], host='compute-2')
    assert len(answers.execute(ironic, 'SELECT * FROM reservations')) == 0


def test_delete_for_a_host_of_what_has_none(ironic, pool, node_class):
    held = create(ironic, resource_class=node_class)
    delete(ironic, held['instance_uuid'], 404, host='compute-1')
    delete(ironic, held['instance_uuid'])


@pytest.mark.parametrize('change', [
    {'memory_mb': 256}, {'memory_mb': None}, {'name': 'other'},
    {'flavorid': 'x'}, {'vcpu_weight': 1}, {'conductor_group': ''},
    {'extra_specs': {}}, {'candidate_nodes': ['pool-0']},
    {'image': {'id': 'x'}}, {'memory_mb': 9999999},
], ids=str)
def test_another_spec_of_the_same_instance(ironic, pool, node_class, change):
    body = {**SPEC, 'resource_class': node_class, 'host': 'compute-1',
            'instance_uuid': new_uuid()}
    held = create(ironic, **body)
    create(ironic, 409, **{**body, **change})
    assert show(ironic, body['instance_uuid']) == held


def test_conflicts_do_not_tell_why(ironic, pool, node_class):
    instance_uuid = new_uuid()
    body = {'resource_class': node_class, 'instance_uuid': instance_uuid,
            'host': 'secret-host', 'project_id': 'secret-project'}
    held = create(ironic, **body)
    texts = {create(ironic, 409, **{**body, 'name': 'other'})}
    for state in ('deploying', 'active'):
        set_node(ironic, held['node_uuid'], provision_state=state)
        create(ironic, 200, **body)
        create(ironic, 200, **{**body, 'host': None})
        texts.add(create(ironic, 409, **{**body, 'host': 'compute-2'}))
    for state in ('deleting', 'deploy failed', 'manageable', 'cleaning'):
        set_node(ironic, held['node_uuid'], provision_state=state)
        texts.add(create(ironic, 409, **body))
    # Held by somebody who did not come through us.
    delete_row = 'DELETE FROM reservations WHERE instance_uuid = :i'
    set_node(ironic, held['node_uuid'], provision_state='available')
    answers.execute(ironic, delete_row, i=instance_uuid)
    texts.add(create(ironic, 409, **body))
    assert len(texts) == 1, texts
    text, = texts
    for secret in ('secret', held['node_uuid'], held['node_name'],
                   node_class):
        assert secret not in text


def test_after_a_release_all_is_new(ironic, pool, node_class):
    body = {'resource_class': node_class, 'instance_uuid': new_uuid()}
    create(ironic, **body)
    delete(ironic, body['instance_uuid'])
    create(ironic, **body, memory_mb=1)


# Stale rows

def test_node_taken_away_ends_the_reservation(ironic, pool, node_class):
    body = {'resource_class': node_class, 'instance_uuid': new_uuid(),
            'candidate_nodes': [pool[0].id]}
    create(ironic, **body)
    set_node(ironic, pool[0].id, instance_uuid=None)
    show(ironic, body['instance_uuid'], 404)
    assert not listed(ironic, resource_class=node_class)
    delete(ironic, body['instance_uuid'], 404)
    assert not answers.execute(ironic, 'SELECT * FROM reservations')


def test_stale_rows_are_not_in_the_way(ironic, pool, node_class):
    first = create(ironic, candidate_nodes=[pool[0].id],
                   instance_uuid=new_uuid())
    second = create(ironic, candidate_nodes=[pool[1].id],
                    instance_uuid=new_uuid())
    for node in pool[:2]:
        set_node(ironic, node.id, instance_uuid=None)
    # One row is of the node, the other of the instance.
    held = create(ironic, candidate_nodes=[pool[0].id],
                  instance_uuid=second['instance_uuid'])
    assert show(ironic, second['instance_uuid']) == held
    show(ironic, first['instance_uuid'], 404)
    assert len(answers.execute(ironic, 'SELECT * FROM reservations')) == 1


def test_moved_instance_is_no_reservation(ironic, pool, node_class):
    held = create(ironic, candidate_nodes=[pool[0].id])
    set_node(ironic, pool[0].id, instance_uuid=None)
    set_node(ironic, pool[1].id, instance_uuid=held['instance_uuid'])
    show(ironic, held['instance_uuid'], 404)
    delete(ironic, held['instance_uuid'], 404)
    assert ironic.http.get(
        f'/v1/nodes/{pool[1].id}').json()['instance_uuid'] == (
            held['instance_uuid'])


# States and release

STATES = {
    'available': 'reserved', 'deploying': 'deploying',
    'wait call-back': 'deploying', 'deploy hold': 'deploying',
    'active': 'active', 'rescue': 'active', 'rescuing': 'active',
    'rescue wait': 'active', 'unrescuing': 'active', 'service': 'active',
    'servicing': 'active', 'service wait': 'active', 'deleting': 'releasing',
    'deploy failed': 'error', 'error': 'error', 'manageable': 'unavailable',
    'enroll': 'unavailable', 'verifying': 'unavailable',
    'cleaning': 'unavailable', 'clean wait': 'unavailable',
    'clean failed': 'unavailable', 'inspecting': 'unavailable',
    'inspect wait': 'unavailable', 'inspect failed': 'unavailable',
}
RELEASABLE = ('available', 'manageable', 'enroll', 'clean failed',
              'inspect failed')


@pytest.mark.parametrize('provision_state', STATES)
def test_state(ironic, pool, node_class, provision_state):
    state = STATES[provision_state]
    held = create(ironic, resource_class=node_class)
    set_node(ironic, held['node_uuid'], provision_state=provision_state)
    found = show(ironic, held['instance_uuid'])
    assert found['state'] == state
    assert found['provision_state'] == provision_state
    for other in ('reserved', 'deploying', 'active', 'releasing', 'error',
                  'unavailable'):
        assert listed(ironic, state=other, resource_class=node_class) == (
            [found] if other == state else [])


@pytest.mark.parametrize('provision_state', STATES)
@pytest.mark.parametrize('maintenance', [False, True])
@pytest.mark.parametrize('lock', [None, 'conductor-1'])
def test_release(ironic, pool, node_class, provision_state, maintenance,
                 lock):
    held = create(ironic, resource_class=node_class)
    set_node(ironic, held['node_uuid'], provision_state=provision_state,
             maintenance=maintenance, reservation=lock)
    allowed = lock is None and (
        maintenance or provision_state in RELEASABLE)
    delete(ironic, held['instance_uuid'], 204 if allowed else 409)
    (carried,), = answers.execute(
        ironic, 'SELECT instance_uuid FROM nodes WHERE uuid = :u',
        u=held['node_uuid'])
    assert carried == (None if allowed else held['instance_uuid'])
    show(ironic, held['instance_uuid'], 404 if allowed else 200)


# Lists

@pytest.fixture
def five(ironic, pool, node_class):
    """Reservations that differ in what a list can ask for."""
    return [create(ironic, resource_class=node_class,
                   candidate_nodes=[f'pool-{number}'], **body)
            for number, body in enumerate((
                {'host': 'b', 'project_id': 'p1', 'user_id': 'u2'},
                {'host': 'a', 'project_id': 'p2', 'user_id': 'u1'},
                {'host': 'B', 'project_id': 'p1'},
                {'host': 'a', 'user_id': 'u2'},
                {}))]


def test_list_filters(ironic, five, node_class):
    def found(**query):
        reservations = listed(ironic, resource_class=node_class, **query)
        return [five.index(each) for each in reservations]

    assert found() == [0, 1, 2, 3, 4]
    assert found(host='a') == [1, 3]
    assert found(host='b') == [0]
    assert found(host='B') == [2]
    assert found(host='c') == []
    assert found(host='a ') == []
    assert found(project_id='p1') == [0, 2]
    assert found(project_id='p1', host='b') == [0]
    assert found(node='pool-4') == [4]
    assert found(node=five[3]['node_uuid']) == [3]
    assert found(node='nobody') == []
    assert found(state='reserved') == [0, 1, 2, 3, 4]
    set_node(ironic, five[1]['node_uuid'], provision_state='active')
    assert [each['instance_uuid'] for each in listed(
        ironic, state='active', resource_class=node_class, host='a')] == [
            five[1]['instance_uuid']]
    assert listed(ironic, resource_class='elsewhere') == []
    assert listed(ironic) == listed(ironic, resource_class=node_class)


def pages(ironic, url):
    """Follow next to the end."""
    while url:
        response = ironic.http.get(url)
        answers.check(response, 200)
        page = response.json()
        yield page['reservations']
        url = page.get('next')


@pytest.mark.parametrize('sort_key', [
    'id', 'instance_uuid', 'node_uuid', 'host', 'project_id', 'user_id',
    'created_at', 'updated_at', 'expires_at'])
def test_list_is_sorted_over_its_pages(ironic, five, node_class, sort_key):
    expected = sorted(range(5), key=lambda number: (
        five[number].get(sort_key) or '', number))
    for sort_dir, limit in itertools.product(('asc', 'desc'), (1, 2, 5, 6)):
        found = list(pages(
            ironic, f'{OURS}?resource_class={node_class}'
            f'&sort_key={sort_key}&sort_dir={sort_dir}&limit={limit}'))
        assert [len(page) for page in found] == (
            [limit] * (5 // limit) + [5 % limit] * bool(5 % limit))
        order = [five.index(each) for page in found for each in page]
        assert order == expected[::1 if sort_dir == 'asc' else -1]


def test_next_keeps_what_was_asked(ironic, five, node_class):
    response = ironic.http.get(OURS, params={
        'resource_class': node_class, 'limit': 1, 'host': 'a',
        'fields': 'host,node_name', 'sort_dir': 'desc'})
    page = response.json()
    assert page['next'].startswith(f'{ironic.url}{OURS}?')
    last = ironic.http.get(page['next']).json()
    assert 'next' not in last
    assert set(last['reservations'][0]) == {'host', 'node_name', 'links'}
    assert last['reservations'][0]['links'] == five[1]['links']


def test_marker(ironic, five, node_class):
    found = listed(ironic, resource_class=node_class,
                   marker=five[2]['instance_uuid'])
    assert found == five[3:]
    assert listed(ironic, resource_class=node_class,
                  marker=five[2]['instance_uuid'].upper()) == five[3:]


@pytest.mark.parametrize('fields', [
    *KEYS, 'host,state', 'state, host', ','.join(KEYS)])
def test_fields(ironic, five, node_class, fields):
    # Ironic's own resources always show their links, too.
    wanted = {field.strip() for field in fields.split(',')} | {'links'}
    whole = five[0]
    expected = {key: whole[key] for key in wanted}
    assert listed(ironic, host='b', fields=fields) == [expected]
    response = ironic.http.get(f'{OURS}/{whole["instance_uuid"]}',
                               params={'fields': fields})
    answers.check(response, 200)
    assert response.json() == expected


# With Ironic's own calls

def test_instance_uuid_as_nova_patches_it(ironic, pool, node_class):
    held = create(ironic, resource_class=node_class)

    def patch(value):
        return ironic.http.patch(
            f'/v1/nodes/{held["node_uuid"]}',
            json=[{'op': 'add', 'path': '/instance_uuid', 'value': value}])

    assert patch(held['instance_uuid']).status_code == 200
    assert patch(new_uuid()).status_code == 409
    assert show(ironic, held['instance_uuid'])['state'] == 'reserved'


def test_held_node_is_not_allocated(ironic, pool, node_class):
    held = [create(ironic, resource_class=node_class) for _ in pool[1:]]
    free, = {node.id for node in pool} - {each['node_uuid'] for each in held}

    def allocate():
        name = ironic.http.post('/v1/allocations', json={
            'resource_class': node_class}).json()['uuid']
        return wait(lambda: ironic.http.get(
            f'/v1/allocations/{name}').json(),
            lambda allocation: allocation['state'] != 'allocating')

    one, two = allocate(), allocate()
    assert (one['state'], one['node_uuid']) == ('active', free)
    assert two['state'] == 'error'
    # And an allocated node is not held, whatever its instance_uuid.
    create(ironic, 422, resource_class=node_class)
    set_node(ironic, free, instance_uuid=None)
    create(ironic, 422, resource_class=node_class)
    for allocation in one, two:
        assert ironic.http.delete(
            f'/v1/allocations/{allocation["uuid"]}').status_code == 204


def wait(look, until):
    """Look again and again until what is seen is as wanted."""
    return tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda seen: not until(seen)),
        wait=tenacity.wait_fixed(0.1), stop=tenacity.stop_after_delay(60),
    )(look)


def set_provision_state(ironic, reservation, target):
    response = ironic.http.put(
        f'/v1/nodes/{reservation["node_uuid"]}/states/provision',
        json={'target': target})
    assert response.status_code == 202, response.text


def wait_for_state(ironic, reservation, state):
    return wait(lambda: show(ironic, reservation['instance_uuid']),
                lambda found: found['state'] == state)


def test_manage_and_provide(ironic, node_class):
    with ironic.fleet({**NODE, 'resource_class': node_class}):
        held = create(ironic, resource_class=node_class)
        set_provision_state(ironic, held, 'manage')
        wait_for_state(ironic, held, 'unavailable')
        create(ironic, 409, resource_class=node_class,
               instance_uuid=held['instance_uuid'])
        set_provision_state(ironic, held, 'provide')
        wait_for_state(ironic, held, 'reserved')
        set_provision_state(ironic, held, 'manage')
        wait_for_state(ironic, held, 'unavailable')
        wait(lambda: node_of(ironic, held),
             lambda node: node['reservation'] is None)
        delete(ironic, held['instance_uuid'])


def test_active_in_maintenance(ironic, node_class):
    with ironic.fleet({**NODE, 'resource_class': node_class}):
        held = create(ironic, resource_class=node_class)
        set_provision_state(ironic, held, 'active')
        wait_for_state(ironic, held, 'active')
        wait(lambda: node_of(ironic, held),
             lambda node: node['reservation'] is None)
        assert 'active' in delete(ironic, held['instance_uuid'], 409)
        url = f'/v1/nodes/{held["node_uuid"]}/maintenance'
        assert ironic.http.put(url, json={}).status_code == 202
        delete(ironic, held['instance_uuid'])
        assert node_of(ironic, held)['instance_uuid'] is None


# A server of our own: slow hardware, a dashboard, a proxy in front

@pytest.fixture(scope='module')
def slow_ironic(start_ironic):
    with start_ironic(config={
            'fake': {'deploy_delay': '3'},
            'cors': {'allowed_origin': 'http://dashboard.example'},
            'oslo_middleware': {'enable_proxy_headers_parsing': 'true'},
            'api': {'max_limit': 3},
    }) as ironic:
        yield ironic


def test_life_of_a_deployed_node(slow_ironic, node_class):
    ironic = slow_ironic
    body = {'resource_class': node_class, 'host': 'compute-1',
            'instance_uuid': new_uuid()}
    with ironic.fleet({**NODE, 'resource_class': node_class}):
        held = create(ironic, **body)
        set_provision_state(ironic, held, 'active')
        deploying = wait_for_state(ironic, held, 'deploying')
        assert deploying['provision_state'] == 'deploying'
        delete(ironic, held['instance_uuid'], 409)
        assert create(ironic, 200, **body)['node_uuid'] == held['node_uuid']
        create(ironic, 409, **{**body, 'host': 'compute-2'})
        wait_for_state(ironic, held, 'active')
        wait(lambda: node_of(ironic, held),
             lambda node: node['reservation'] is None)
        delete(ironic, held['instance_uuid'], 409)
        create(ironic, 200, **body)
        set_provision_state(ironic, held, 'deleted')
        wait_for_state(ironic, held, 'releasing')
        delete(ironic, held['instance_uuid'], 409)
        create(ironic, 409, **body)
        wait(lambda: ironic.http.get(f'{OURS}/{held["instance_uuid"]}'),
             lambda response: response.status_code == 404)
        delete(ironic, held['instance_uuid'], 404)
        wait(lambda: node_of(ironic, held),
             lambda node: (node['provision_state'] == 'available'
                           and node['reservation'] is None))
        assert node_of(ironic, held)['instance_uuid'] is None
        again = create(ironic, **body)
        assert again['node_uuid'] == held['node_uuid']


def test_preflight_of_a_dashboard(slow_ironic):
    origin = {'Origin': 'http://dashboard.example'}
    for method in 'GET', 'POST', 'DELETE':
        response = slow_ironic.http.options(OURS, headers={
            **origin, 'Access-Control-Request-Method': method,
            'Access-Control-Request-Headers':
            'X-Auth-Token,Content-Type,X-OpenStack-Ironic-API-Version'})
        assert response.status_code == 200
        assert (response.headers['Access-Control-Allow-Origin']
                == origin['Origin'])
        assert method in response.headers['Access-Control-Allow-Methods']
        allowed = response.headers['Access-Control-Allow-Headers'].lower()
        assert 'x-openstack-ironic-api-version' in allowed
    for path, status in ((OURS, 200), (f'{OURS}/x', 400)):
        response = slow_ironic.http.get(path, headers=origin)
        answers.check(response, status)
        assert (response.headers['Access-Control-Allow-Origin']
                == origin['Origin'])
        exposed = response.headers['Access-Control-Expose-Headers']
        assert 'X-OpenStack-Ironic-API-Version' in exposed
    response = slow_ironic.http.get(OURS, headers={
        'Origin': 'http://elsewhere.example'})
    assert 'Access-Control-Allow-Origin' not in response.headers


def test_urls_behind_a_proxy(slow_ironic, node_class):
    proxy = {'X-Forwarded-Proto': 'https',
             'X-Forwarded-Host': 'baremetal.example',
             'X-Forwarded-Prefix': '/baremetal'}
    with slow_ironic.fleet({'resource_class': node_class}):
        response = slow_ironic.http.post(
            OURS, json={'resource_class': node_class}, headers=proxy)
        answers.check(response, 201)
        assert response.headers['Location'] == (
            'https://baremetal.example/baremetal/v1/reservations/'
            + response.json()['instance_uuid'])


def test_limit_is_capped(slow_ironic, node_class):
    with slow_ironic.fleet(*[{'resource_class': node_class}] * 4):
        for _ in range(4):
            create(slow_ironic, resource_class=node_class)
        for query in '', '&limit=1000':
            found = list(pages(
                slow_ironic, f'{OURS}?resource_class={node_class}{query}'))
            assert [len(page) for page in found] == [3, 1]


# Authentication

@pytest.fixture(scope='module')
def basic_ironic(start_ironic, tmp_path_factory):
    users = tmp_path_factory.mktemp('auth') / 'htpasswd'
    users.write_text('admin:' + bcrypt.hashpw(
        b'secret', bcrypt.gensalt(4)).decode() + '\n')
    with start_ironic(config={'DEFAULT': {
            'auth_strategy': 'http_basic',
            'http_basic_auth_user_file': users}}) as ironic:
        yield ironic


@pytest.mark.parametrize('auth', [None, ('admin', 'wrong'), ('x', 'secret')])
@pytest.mark.parametrize('method, path', [
    ('GET', OURS), ('POST', OURS), ('GET', f'{OURS}/{uuid.UUID(int=1)}'),
    ('DELETE', f'{OURS}/{uuid.UUID(int=1)}'), ('PUT', OURS)])
def test_http_basic_refuses_strangers(basic_ironic, auth, method, path):
    response = basic_ironic.http.request(
        method, path, auth=auth, json={'resource_class': 'x'})
    answers.check(response, 401)


def test_stranger_does_not_send_us_looking(basic_ironic):
    response = basic_ironic.http.post(
        OURS, data=b'[' * 60000, headers={'Content-Type': 'text/plain'})
    answers.check(response, 401)


def test_http_basic_lets_its_users_in(basic_ironic, node_class):
    http = conftest.Http(basic_ironic.url)
    http.auth = ('admin', 'secret')
    baremetal = openstack.connect(
        load_envvars=False, load_yaml_config=False, auth_type='http_basic',
        endpoint=basic_ironic.url, username='admin',
        password='secret').baremetal
    nodes = services.enrol(baremetal, [{'resource_class': node_class}])
    response = http.post(OURS, json={
        'resource_class': node_class, 'host': 'h', 'project_id': 'p'})
    answers.check(response, 201)
    assert response.json()['project_id'] == 'p'
    answers.check(http.get(OURS, params={'foo': '1'}), 400)
    answers.check(http.post(OURS, json={'resource_class': node_class}), 422)
    answers.check(http.post(OURS, data='{'), 415)
    answers.check(http.delete(
        f'{OURS}/{response.json()["instance_uuid"]}'), 204)
    services.remove(baremetal, nodes)


def test_noauth_takes_every_caller_for_an_admin(ironic, pool, node_class):
    held = create(ironic, resource_class=node_class, project_id='p',
                  user_id='u', host='h')
    response = ironic.http.get(
        f'{OURS}/{held["instance_uuid"]}', headers={
            'X-Auth-Token': 'nonsense', 'Authorization': 'Basic nonsense'})
    answers.check(response, 200)


# Without the table, without the database

def drop_table(ironic):
    for table in 'reservations', 'reservations_alembic_version':
        answers.execute(ironic, f'DROP TABLE {table}')


def dbsync(ironic):
    subprocess.run([services.program('ironic-reservations-dbsync'),
                    '--config-file', ironic.conf_file, 'upgrade'],
                   check=True, capture_output=True)


@pytest.fixture
def without_table(ironic):
    drop_table(ironic)
    yield
    dbsync(ironic)


def assert_unavailable(ironic):
    for method, path in (('GET', OURS), ('POST', OURS),
                         ('GET', f'{OURS}/{new_uuid()}'),
                         ('DELETE', f'{OURS}/{new_uuid()}')):
        response = ironic.http.request(
            method, path, json={'resource_class': 'x'}
            if method == 'POST' else None)
        answers.check(response, 503)
        assert int(response.headers['Retry-After']) > 0
    # What is wrong with a request is said all the same.
    answers.check(ironic.http.post(OURS, json={'foo': 1}), 400)


def test_table_lost_on_the_way(ironic, pool, without_table):
    assert_unavailable(ironic)
    nodes = ironic.http.get('/v1/nodes')
    assert nodes.status_code == 200
    assert {node.id for node in pool} <= {
        node['uuid'] for node in nodes.json()['nodes']}
    response = ironic.http.patch(
        f'/v1/nodes/{pool[0].id}',
        json=[{'op': 'add', 'path': '/extra/a', 'value': 'b'}])
    assert response.status_code == 200
    dbsync(ironic)
    answers.check(ironic.http.get(OURS), 200)


def test_table_that_was_never_there(start_uwsgi, ironic, pool, node_class,
                                    without_table):
    # Processes that have not seen the database before.
    with start_uwsgi(ironic, processes=2) as alone:
        assert_unavailable(alone)
        assert 'run "ironic-reservations-dbsync upgrade"' in pathlib.Path(
            alone.log).read_text()
        dbsync(ironic)
        for _ in range(8):
            held = create(alone, resource_class=node_class)
            delete(alone, held['instance_uuid'])


@pytest.mark.long
def test_database_that_cannot_be_reached(tmp_path):
    conf_file = tmp_path / 'ironic.conf'
    conf_file.write_text(
        '[DEFAULT]\nauth_strategy = noauth\n'
        '[database]\nconnection = mysql+pymysql://root:secret@localhost/x'
        f'?unix_socket={tmp_path}/nobody\n')
    with services.uwsgi('ironic_reservations.wsgi:application',
                        str(conf_file), services.free_port(),
                        processes=1) as service:
        alone = conftest.Ironic(service)
        response = alone.http.post(OURS, json={'resource_class': 'x'})
        text = answers.check(response, 503)
        assert int(response.headers['Retry-After']) > 0
        assert 'secret' not in text and str(tmp_path) not in text
        answers.check(alone.http.post(OURS, json={'foo': 'x'}), 400)


# Clients

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


# The application alone

@pytest.fixture(scope='module')
def alone(ironic, start_uwsgi):
    with start_uwsgi(ironic) as alone:
        yield alone


def test_application_alone(ironic, alone, pool, node_class):
    body = {'resource_class': node_class, 'host': 'h',
            'instance_uuid': new_uuid()}
    response = alone.http.post(OURS, json=body)
    answers.check(response, 201)
    held = response.json()
    assert response.headers['Location'] == (
        f'{alone.url}{OURS}/{body["instance_uuid"]}')
    links = held.pop('links')
    of_ironic = show(ironic, body['instance_uuid'])
    assert of_ironic.pop('links') != links
    assert of_ironic == held
    # Repeats may come either way.
    assert create(ironic, 200, **body)['node_uuid'] == held['node_uuid']
    assert node_of(ironic, held)['instance_uuid'] == body['instance_uuid']
    assert len(listed(alone, resource_class=node_class)) == 1
    create(alone, 409, **body, memory_mb=1)
    create(alone, 422, resource_class='elsewhere')
    answers.check(alone.http.put(OURS), 405)
    delete(alone, body['instance_uuid'])
    show(alone, body['instance_uuid'], 404)


@pytest.mark.parametrize('path', ['/', '/v1', '/v1/nodes', '/v2/reservations',
                                  '/v1/reservationsandmore'])
def test_application_alone_has_nothing_else(alone, path):
    assert alone.http.get(path).status_code == 404


@pytest.mark.parametrize('data, status', [
    (b'[' * 50000, 400), (b'{"a": "' + b'\\"' * 30000, 400), (b'', 400),
    (b' ' * 65537, 413), (b'{"foo": 1}', 400)])
def test_application_alone_withstands(alone, data, status):
    workers = answers.workers(alone)
    for _ in range(8):
        answers.check(alone.http.post(
            OURS, data=data, headers={'Content-Type': 'application/json'}),
            status)
    answers.check(alone.http.get(OURS), 200)
    assert answers.workers(alone) == workers


def test_application_alone_tells_the_versions(alone, ironic):
    for name in answers.VERSION_HEADERS:
        assert (alone.http.get(OURS).headers[name]
                == ironic.http.get(OURS).headers[name])
    response = alone.http.get(OURS, headers={
        'X-OpenStack-Ironic-API-Version': 'x'})
    answers.check(response, 406)
