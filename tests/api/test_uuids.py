# SPDX-License-Identifier: Apache-2.0
"""UUIDs of nodes and instances in another case than Ironic stores them.

Ironic stores both as its clients sent them.
"""

import time
import uuid

import pytest

from tests.api import fence_client
from tests.common import command
from tests.common import contract
from tests.common import service

OURS = service.OURS

POOL = [{'name': name, 'id': str(uuid.uuid4()).upper()}
        for name in ('node-a', 'node-b')]

INSTANCE = 'abcdefab-cdef-4abc-8def-abcdefabcdef'
EARLIER = 'abcdefab-cdef-4abc-8def-abcdefabcdee'

pytestmark = pytest.mark.on('sqlite', 'server')


@pytest.fixture
def capitals(ironic, pool):
    """The UUID of an instance that a deployed node carries, in capitals."""
    ironic.set_node(pool[0].id, instance_uuid=INSTANCE.upper(),
                    provision_state='active')
    return INSTANCE.upper()


def adopt(ironic, instance_uuid, status=201):
    response = ironic.http.post(f'{OURS}?adopt=true', json={
        'instance_uuid': instance_uuid, 'host': 'compute-1', 'memory_mb': 5})
    contract.check(response, status)
    return response.json()


@pytest.fixture(params=['lower', 'upper'])
def instance(ironic, capitals, request):
    """The UUID of an adopted instance, in both spellings."""
    reservation = adopt(ironic, capitals.lower())
    # Responses show it as Ironic stores it.
    assert reservation['instance_uuid'] == capitals
    assert reservation['links'][0]['href'].endswith(capitals)
    return getattr(capitals, request.param)()


@pytest.mark.parametrize('spell', [str.lower, str.upper])
def test_adoption(ironic, capitals, spell):
    check_adoption(ironic, capitals, spell(capitals))


@pytest.mark.on('server')
def test_adoption_in_mixed_case(ironic, capitals):
    """SQLite need not find it."""
    check_adoption(ironic, capitals, capitals.title())


def check_adoption(ironic, capitals, instance_uuid):
    reservation = adopt(ironic, instance_uuid)
    assert reservation['instance_uuid'] == capitals
    assert reservation['state'] == 'active'
    assert adopt(ironic, instance_uuid.lower(), 200)['updated_at']
    assert len(ironic.rows()) == 1


def test_reads(ironic, pool, instance, capitals):
    reservation = ironic.show(instance)
    assert reservation['instance_uuid'] == capitals
    for name in 'request_spec', 'notices', 'more_notices':
        del reservation[name]
    for query in ({}, {'node': pool[0].id.lower()}, {'node': pool[0].id},
                  {'sort_key': 'instance_uuid'}):
        assert ironic.list(**query) == [reservation]
    assert ironic.list(marker=instance) == []
    assert ironic.list(sort_key='instance_uuid', marker=instance) == []


def test_list_is_sorted_without_regard_to_case(ironic, pool, instance,
                                               capitals, node_class):
    other = ironic.create(resource_class=node_class, instance_uuid=EARLIER)
    pages = ironic.pages(OURS, 'reservations', sort_key='instance_uuid',
                         limit=1)
    assert [row['instance_uuid'] for page in pages for row in page] == [
        other['instance_uuid'], capitals]


def test_changes(ironic, instance, capitals):
    path = f'{OURS}/{instance}'
    for query, body in (
            ({}, [{'op': 'add', 'path': '/description', 'value': 'x'}]),
            ({'host': 'compute-1'},
             [{'op': 'replace', 'path': '/host', 'value': 'compute-2'}])):
        response = ironic.http.patch(path, params=query, json=body)
        contract.check(response, 200)
        assert response.json()['instance_uuid'] == capitals
    assert ironic.show(instance)['host'] == 'compute-2'


def test_repeated_post(ironic, pool, instance, capitals):
    response = ironic.http.post(OURS, json={
        'instance_uuid': instance, 'host': 'compute-1', 'memory_mb': 5})
    contract.check(response, 200)
    assert response.json()['instance_uuid'] == capitals
    ironic.create(409, instance_uuid=instance, host='compute-1', memory_mb=6)
    assert ironic.find_instance(pool[1].id) is None


def test_release(ironic, pool, instance):
    ironic.set_node(pool[0].id, provision_state='available')
    ironic.delete(instance, 404, host='compute-2')
    ironic.delete(instance, host='compute-1')
    assert ironic.find_instance(pool[0].id) is None
    assert not ironic.rows()
    ironic.show(instance, 404)


def test_expiry(ironic, pool, instance, capitals):
    ironic.set_node(pool[0].id, provision_state='available')
    ironic.expire(capitals.lower())
    ironic.show(instance, 404)
    ironic.delete(instance, 404)
    assert ironic.find_instance(pool[0].id) is None
    assert not ironic.rows()


def test_purge(ironic, pool, instance):
    ironic.set_node(pool[0].id, instance_uuid=None)
    ironic.show(instance, 404)
    assert not ironic.rows()


def test_claim(ironic, pool, node_class):
    hold = ironic.create(resource_class=node_class)
    source = hold['instance_uuid'].upper()
    ironic.set_node(hold['node_uuid'], instance_uuid=source)
    claim = ironic.create(claim=source, host='compute-1')
    assert claim['node_uuid'] == hold['node_uuid']
    assert ironic.find_instance(hold['node_uuid']) == claim['instance_uuid']


def test_group(ironic, pool, node_class):
    response = ironic.http.post(f'{OURS}/groups', json={
        'members': 2, 'request': {'resource_class': node_class}})
    contract.check(response, 201)
    path = f'{OURS}/groups/{response.json()["uuid"]}'
    first, second = response.json()['reservations']
    spelling = first['instance_uuid'].upper()
    ironic.set_node(first['node_uuid'], instance_uuid=spelling)
    members = ironic.http.get(path).json()['reservations']
    assert [member['instance_uuid'] for member in members] == [
        spelling, second['instance_uuid']]
    for marker in spelling, spelling.lower():
        rest = ironic.http.get(path, params={'marker': marker}).json()
        assert rest['reservations'] == members[1:]
    assert ironic.http.delete(path).status_code == 204
    assert ironic.find_instance(first['node_uuid']) is None


@pytest.mark.parametrize('spell', [str.lower, str.upper])
def test_hold_of_an_instance_that_a_node_carries(ironic, pool, capitals,
                                                 node_class, spell):
    """Without a reservation. Ironic's unique key forbids two such nodes."""
    ironic.show(capitals, 404)
    ironic.create(409, instance_uuid=spell(capitals),
                  resource_class=node_class)
    assert ironic.find_instance(pool[1].id) is None


def test_conflict_that_does_not_pass(ironic, pool, node_class):
    """It is reported at once, although no row that explains it is found.

    SQLite does not find the node by another spelling, but the row of the
    reservation has the same instance.
    """
    hold = ironic.create(resource_class=node_class, instance_uuid=INSTANCE)
    ironic.set_node(hold['node_uuid'], instance_uuid=INSTANCE.title())
    start = time.monotonic()
    ironic.create(409, resource_class=node_class, name='other',
                  instance_uuid=INSTANCE)
    adopt(ironic, INSTANCE, 404 if ironic.is_sqlite else 200)
    assert time.monotonic() < start + 5
    assert len(ironic.rows()) == 1


# Nodes

@pytest.mark.parametrize('spell', [str.lower, str.upper])
@pytest.mark.parametrize('key', ['candidate_nodes', 'extra_specs'])
def test_candidates(ironic, pool, node_class, spell, key):
    names = [spell(pool[1].id)]
    reservation = ironic.create(resource_class=node_class, **{
        'candidate_nodes': {key: names},
        'extra_specs': {key: {
            'reservations:candidate_nodes': names[0]}}}[key])
    assert reservation['node_uuid'] == pool[1].id


@pytest.mark.parametrize('name', ['Node-a', 'NODE-A'])
def test_names_are_case_sensitive(ironic, pool, node_class, name):
    ironic.create(422, candidate_nodes=[name])
    ironic.create(candidate_nodes=['node-a'])
    assert ironic.list(node=name) == []
    assert len(ironic.list(node='node-a')) == 1


def test_fence(ironic, pool, instance):
    hold = {'instance_uuid': instance, 'host': 'compute-1'}
    with fence_client.serve() as client:
        for node in pool[0].id, pool[0].id.lower():
            client.accept(hold, path=f'/v1/nodes/{node}/states/power')
            client.accept(hold, 'POST', '/v1/volume/targets', node=node)
        client.refuse(412, hold, path=f'/v1/nodes/{pool[1].id.lower()}')


# Without dashes: Ironic accepts this spelling, and may have both

TWIN = str(uuid.uuid4())


@pytest.fixture
def twins(ironic, node_class):
    """The UUIDs of two nodes, which differ only in dashes."""
    uuids = TWIN.replace('-', ''), TWIN
    with ironic.fleet(*({'id': uuid_, 'resource_class': node_class}
                        for uuid_ in uuids)):
        yield uuids


@pytest.fixture(params=[0, 1], ids=['undashed', 'dashed'])
def twin(twins, request):
    """The UUID of one of them, and that of the other one."""
    return twins[request.param], twins[1 - request.param]


def test_reservation_of_a_twin(ironic, twin):
    node, other = twin
    hold = ironic.create(candidate_nodes=[node], host='compute-1')
    assert hold['node_uuid'] == node
    for spell in str.lower, str.upper:
        ironic.create(422, candidate_nodes=[spell(node)])
        assert len(ironic.list(node=spell(node))) == 1
    assert ironic.list(node=other) == []
    ironic.delete(hold['instance_uuid'])
    for ident, number in (node, 1), (other, 0):
        response = ironic.http.get(f'{OURS}/history', params={'node': ident})
        contract.check(response, 200)
        assert len(response.json()['history']) == number


def test_fence_of_a_twin(ironic, twin):
    node, other = twin
    hold = ironic.create(candidate_nodes=[node], host='compute-1')
    target = str(uuid.uuid4())
    targets = '/v1/volume/targets'
    with fence_client.serve() as client:
        for spell in str.lower, str.upper:
            client.accept(hold, path=f'/v1/nodes/{spell(node)}/vifs')
            client.refuse(412, hold, path=f'/v1/nodes/{spell(other)}/vifs')
            for uuid_ in target, target.replace('-', ''):
                client.accept(hold, 'DELETE', f'{targets}/{uuid_}',
                              node=spell(node))
            client.refuse(412, hold, 'POST', targets, node=spell(other))
        client.refuse(
            400, hold, path=f'/v1/nodes/{node}/validate?node_uuid={other}')


def test_notices_of_a_twin(ironic, twin):
    node, other = twin
    notices = f'{OURS}/notices'
    response = ironic.http.post(notices, json={
        'kind': 'maintenance', 'nodes': [node.upper()]})
    contract.check(response, 201)
    notice, = response.json()['notices']
    assert notice['node_uuid'] == node
    path = f'{notices}/{notice["uuid"]}'
    ironic.create(422, candidate_nodes=[node])
    ironic.create(candidate_nodes=[other])
    for ident, number, status in (node, 1, 200), (other, 0, 404):
        response = ironic.http.get(notices, params={'node': ident})
        contract.check(response, 200)
        assert len(response.json()['notices']) == number
        contract.check(ironic.http.patch(path, params={'node': ident}, json=[
            {'op': 'add', 'path': '/ticket', 'value': 'x'}]), status)


def test_pool_of_a_twin(ironic, twin):
    node, other = twin
    pools = f'{OURS}/pools'
    response = ironic.http.post(pools, json={
        'project_id': 'p', 'members': 1,
        'request': {'candidate_nodes': [node]}})
    contract.check(response, 201)
    path = f'{pools}/{response.json()["uuid"]}'
    for ident, number, status in (node, 1, 200), (other, 0, 400):
        response = ironic.http.get(pools, params={'node': ident})
        contract.check(response, 200)
        assert len(response.json()['pools']) == number
        contract.check(ironic.http.get(path, params={'marker': ident}),
                       status)
    contract.check(ironic.http.delete(f'{path}/nodes/{other}'), 404)
    contract.check(ironic.http.post(f'{path}/nodes', json={
        'node': other.upper()}), 200)
    contract.check(ironic.http.delete(f'{path}/nodes/{node.upper()}'), 204)
    nodes = ironic.http.get(path).json()['nodes']
    assert [row['uuid'] for row in nodes] == [other]
    contract.check(ironic.http.delete(path), 204)


def test_commands_on_a_twin(ironic, twin):
    """They find the node, and not the other one."""
    node, other = twin

    def run(*args):
        result = command.run(ironic.url, 'baremetal', 'reservation', *args)
        return result.returncode, result.stdout

    hold = ironic.create(candidate_nodes=[node])
    for args in (['show', node], ['list', '--node', node], ['history', node],
                 ['report', node], ['cordon', node.upper()],
                 ['notice', 'list', '--node', node, '--state', 'open'],
                 ['uncordon', node], ['delete', node]):
        status, text = run(*args, *(['-f', 'json'] if args[0] in (
            'show', 'list', 'history', 'notice') else []))
        assert status == 0, args
        assert args[0] not in ('show', 'list', 'history') or (
            hold['instance_uuid'] in text)
        assert other not in text
    for args in ['show', other], ['uncordon', other]:
        assert run(*args)[0] == 1
    assert ironic.find_instance(node) is None
