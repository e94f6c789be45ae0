# SPDX-License-Identifier: Apache-2.0
"""Pools: /v1/reservations/pools."""

import uuid

import pytest

from tests.common import contract
from tests.common.service import make_patch

OURS = '/v1/reservations'
POOLS = f'{OURS}/pools'
RACK = 'capability:rack'


@pytest.fixture
def nodes(ironic, node_class):
    """Six equal nodes, three of them in rack r1 and three in r2."""
    with ironic.fleet(*(
            {'name': f'{node_class}-{number}', 'resource_class': node_class,
             'properties': {'memory_mb': 1024,
                            'capabilities': f'rack:r{1 + number // 3}'}}
            for number in range(6))) as nodes:
        yield nodes


@pytest.fixture
def call(ironic):
    """Sends a request about pools; returns JSON, or the fault."""
    def call(method, path='', status=200, json=None, **query):
        response = ironic.http.request(
            method, f'{POOLS}{path}', json=json, params=query)
        fault = contract.check(response, status)
        return fault if fault is not None or status == 204 else (
            response.json())
    return call


@pytest.fixture
def create(call, nodes, node_class):
    """Creates a pool of project p."""
    def create(members=2, status=201, dry_run=False, **body):
        return call('POST', '', status, {
            'project_id': 'p', 'members': members,
            'request': {'resource_class': node_class}, **body},
            **({'dry_run': 'true'} if dry_run else {}))
    return create


@pytest.fixture
def names(nodes):
    """Returns the places in "nodes" of the nodes of a pool."""
    def names(pool):
        return [int(node['name'].rpartition('-')[2])
                for node in pool['nodes']]
    return names


def expire(ironic, pool):
    ironic.execute('UPDATE reservations_pools SET expires_at = '
                   f'{ironic.clock()} WHERE uuid = :u', u=pool['uuid'])


@pytest.mark.on('sqlite', 'server')
def test_pool(ironic, create, call, node_class):
    name = str(uuid.uuid4()).upper()
    expires_at = ironic.from_now()
    pool = create(uuid=name, policy='pack', by=RACK, expires_at=expires_at,
                  description='Q1', request={'resource_class': node_class,
                                             'memory_mb': 512})
    node = pool['nodes'][0]
    assert pool == {
        'uuid': name.lower(), 'project_id': 'p', 'policy': 'pack', 'by': RACK,
        'levels': None, 'description': 'Q1', 'expires_at': expires_at,
        'created_at': pool['created_at'], 'updated_at': None,
        'request': {'resource_class': node_class, 'memory_mb': 512},
        'summary': {'total': 2, 'free': 2, 'reserved': 0, 'taken': 0,
                    'out_of_service': 0, 'healthy': 2},
        'nodes': [node, {**pool['nodes'][1], 'domain': node['domain']}]}
    assert node == {
        'uuid': node['uuid'], 'name': node['name'],
        'resource_class': node_class, 'domain': node['domain'],
        'segment': None, 'joined_at': pool['created_at'], 'reason': 'create',
        'replaces': None, 'state': 'free', 'health': None,
        'instance_uuid': None, 'notices': [], 'more_notices': 0}
    assert call('GET', f'/{name}') == pool
    brief = {key: value for key, value in pool.items()
             if key not in ('nodes', 'request')}
    assert call('GET') == {'pools': [brief]}


@pytest.mark.on('sqlite', 'server')
def test_repeat(nodes, create, call, node_class):
    name = str(uuid.uuid4())
    pool = create(uuid=name, description='first')
    call('DELETE', f'/{name}/nodes/{pool["nodes"][0]["uuid"]}', 204)
    # It is the pool as it is now, and changes nothing.
    again = create(status=200, uuid=name, description='second')
    assert again == call('GET', f'/{name}')
    assert (again['summary']['total'], again['description']) == (1, 'first')
    for difference, other in {
            'members': {'members': 3},
            'project_id': {'project_id': 'q', 'members': 3},
            'policy': {'policy': 'pack', 'by': RACK},
            'levels': {'levels': [{'by': RACK, 'policy': 'pack',
                                   'segment': 1}]},
            'request': {'request': {'resource_class': node_class,
                                    'memory_mb': 1}}}.items():
        fault = create(status=409, uuid=name, **other)
        assert fault.endswith(f'with another value of {difference}.')
    assert call('GET', f'/{name}') == again


@pytest.mark.parametrize('policy, places', [
    ('pack', [{0, 1, 2}, {3, 4, 5}]), ('soft-pack', [{0, 1, 2}, {3, 4, 5}])])
def test_policy(create, names, policy, places):
    assert set(names(create(3, policy=policy, by=RACK))) in places


def test_spread(create):
    pool = create(2, policy='spread', by=RACK)
    assert {node['domain'] for node in pool['nodes']} == {'r1', 'r2'}
    fault = create(3, 422, policy='spread', by=RACK)
    assert fault is not None


def test_segments(create, call, names):
    levels = [{'by': RACK, 'policy': 'pack', 'segment': 2}]
    pool = create(4, levels=levels)
    assert pool['levels'] == levels
    segments = {}
    for node in pool['nodes']:
        segments.setdefault(node['segment'], []).append(node['domain'])
    assert sorted(segments.values()) == [[['r1']] * 2, [['r2']] * 2]
    old = pool['nodes'][0]
    pool = call('POST', f'/{pool["uuid"]}/nodes', json={
        'replaces': old['name']})
    assert old['uuid'] not in [node['uuid'] for node in pool['nodes']]
    assert [sorted((node['segment'], node['domain'])
                   for node in pool['nodes'])] == [sorted(
                       (segment, [domain]) for segment, domain in zip(
                           (old['segment'],) * 2 + (1 - old['segment'],) * 2,
                           (old['domain'] * 2
                            + ['r1' if old['domain'] == ['r2'] else 'r2'] * 2),
                           strict=True))]


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('columns, by', [
    ({'lessee': 'q'}, 'lessee'), ({'maintenance': True}, 'maintenance'),
    ({'provision_state': 'cleaning'}, 'not available'),
    ({'instance_info': '{"a": 1}'}, 'prepared'), ({'reservation': 'c'}, None),
    ({'lessee': 'p'}, None)])
def test_node_that_qualifies(ironic, nodes, create, columns, by):
    for node in nodes:
        ironic.set_node(node.id, **columns)
    if by is None:
        assert create(6)['summary']['total'] == 6
        return
    response = ironic.http.post(POOLS, json={
        'project_id': 'p', 'members': 1,
        'request': {'resource_class': nodes[0].resource_class}})
    contract.check(response, 422)
    eliminated = response.json()['explanation']['eliminated']
    assert {'by': by, 'nodes': 6} in eliminated
    assert response.json()['members'] == {'wanted': 1, 'available': 0}


@pytest.mark.on('sqlite', 'server')
def test_nodes_are_in_one_pool(ironic, create, node_class, nodes):
    create(4)
    body = {'project_id': 'p', 'members': 3,
            'request': {'resource_class': node_class}}
    response = ironic.http.post(f'{POOLS}?dry_run=true', json=body)
    contract.check(response, 200)
    dry_run = response.json()
    assert (dry_run['members'], dry_run['matching_nodes']) == (
        {'wanted': 3, 'available': 2}, 2)
    response = ironic.http.post(POOLS, json=body)
    contract.check(response, 422)
    assert response.json()['explanation'] == dry_run['explanation']
    assert {'by': 'pool', 'nodes': 4} in dry_run['explanation']['eliminated']
    create(2, project_id='q')


def test_dry_run_holds_nothing(create, call):
    create(2, 200, dry_run=True)
    create(2, 400, dry_run=True, expires_at='2020-01-01T00:00:00Z')
    assert call('GET') == {'pools': []}


@pytest.mark.on('sqlite', 'server')
def test_expiry(ironic, create, call, nodes):
    pool = create(6, expires_at=ironic.from_now())
    expire(ironic, pool)
    for method, path, json in (
            ('GET', '', None), ('DELETE', '', None),
            ('PATCH', '', make_patch(expires_at=None)),
            ('POST', '/nodes', {'node': nodes[0].name}),
            ('POST', '/nodes', {'replaces': nodes[0].name}),
            ('DELETE', f'/nodes/{nodes[0].name}', None)):
        call(method, f'/{pool["uuid"]}{path}', 404, json)
    assert call('GET') == {'pools': []}
    assert call('GET', node=nodes[0].name) == {'pools': []}
    # The UUID and the nodes can be used again; this purges the rows.
    again = create(6, uuid=pool['uuid'], project_id='q')
    assert again['project_id'] == 'q'
    assert len(ironic.execute(
        'SELECT node_id FROM reservations_pool_nodes')) == 6


@pytest.mark.on('sqlite', 'server')
def test_expiry_from_now(ironic, create):
    """A repeat changes nothing, whenever it is."""
    body = {'uuid': str(uuid.uuid4()), 'expires_at': {'in': 3600}}
    assert 3540 < ironic.seconds_left(create(**body)) <= 3600
    ironic.execute('UPDATE reservations_pools SET expires_at = '
                   + ironic.clock(60))
    assert ironic.seconds_left(create(status=200, **body)) <= 60


@pytest.mark.on('sqlite', 'server')
def test_update(ironic, create, call):
    expires_at, later = ironic.from_now(), ironic.from_now(7200)
    pool = create(expires_at=expires_at)
    path = f'/{pool["uuid"]}'
    pool = call('PATCH', path, json=make_patch(
        expires_at=later, description='x'))
    assert (pool['expires_at'], pool['description']) == (later, 'x')
    assert pool['updated_at'] is not None
    assert call('GET', path) == pool
    pool = call('PATCH', path, json=make_patch(
        expires_at=None, description=None))
    assert (pool['expires_at'], pool['description']) == (None, None)
    for seconds in 3600, 7200:
        pool = call('PATCH', path, json=make_patch(expires_at={'in': seconds}))
        assert seconds - 60 < ironic.seconds_left(pool) <= seconds
    for value in ('2001-01-01T00:00:00Z', {'in': 0},
                  '2999-01-01T00:00:00', 'soon'):
        call('PATCH', path, 400, make_patch(expires_at=value))
        create(1, 400, expires_at=value)
    for body in ([], make_patch(project_id='q'), make_patch(members=3)):
        call('PATCH', path, 400, body)
    for name in 'expires_at', 'description':
        assert call('PATCH', path, 400, [
            {'op': 'replace', 'path': f'/{name}', 'value': None}]) == (
            f'{name}: must not be null; to remove it, use the op "remove"')


def test_delete(ironic, create, call):
    pool = create()
    instance = ironic.create(candidate_nodes=[pool['nodes'][0]['uuid']],
                             project_id='p')
    call('DELETE', f'/{pool["uuid"]}', 204)
    call('DELETE', f'/{pool["uuid"]}', 404)
    assert ironic.show(instance['instance_uuid'])['node_uuid'] == (
        pool['nodes'][0]['uuid'])
    assert not ironic.execute('SELECT node_id FROM reservations_pool_nodes')


# Nodes

@pytest.mark.on('sqlite', 'server')
def test_add(ironic, nodes, create, call, names):
    path = f'/{create(1)["uuid"]}'
    rest = [node for node in nodes if node.name not in [
        member['name'] for member in call('GET', path)['nodes']]]
    mine = ironic.create(candidate_nodes=[rest[0].id], project_id='p')
    other = ironic.create(candidate_nodes=[rest[1].id], project_id='q')
    ironic.set_node(rest[2].id, lessee='q')
    ironic.set_node(rest[3].id, maintenance=True)
    pool = call('POST', f'{path}/nodes', json={'node': rest[0].id.upper()})
    [node] = [node for node in pool['nodes']
              if node['uuid'] == rest[0].id]
    assert (node['state'], node['instance_uuid'], node['segment']) == (
        'reserved', mine['instance_uuid'], None)
    assert (node['reason'], node['replaces'], node['joined_at']) == (
        'add', None, pool['updated_at'])
    assert pool['summary'] == {
        'total': 2, 'free': 1, 'reserved': 1, 'taken': 0,
        'out_of_service': 0, 'healthy': 2}
    for taken in rest[:4]:
        call('POST', f'{path}/nodes', 409, {'node': taken.name})
    ironic.delete(other['instance_uuid'])
    # The request does not matter, and a conductor's lock neither.
    ironic.set_node(rest[1].id, resource_class='other', reservation='c')
    pool = call('POST', f'{path}/nodes', json={'node': rest[1].name})
    assert pool['summary']['total'] == 3
    assert call('POST', f'/{create(1, project_id="q")["uuid"]}/nodes', 409, {
        'node': rest[1].name})
    call('POST', f'{path}/nodes', 400, {'node': 'nonsense'})


def test_add_after_the_expiry_of_another_pool(ironic, nodes, create, call):
    first = create(5, expires_at=ironic.from_now())
    second = create(1, project_id='q')
    expire(ironic, first)
    call('POST', f'/{second["uuid"]}/nodes',
         json={'node': first['nodes'][0]['uuid']})
    assert len(ironic.execute(
        'SELECT node_id FROM reservations_pool_nodes')) == 2


@pytest.mark.on('sqlite', 'server')
def test_replace(ironic, nodes, create, call):
    pool = create(2, policy='pack', by=RACK)
    path = f'/{pool["uuid"]}/nodes'
    old, other = pool['nodes']
    server = ironic.create(candidate_nodes=[old['uuid']], project_id='p')
    pool = call('POST', path, json={'replaces': old['name']})
    assert {node['domain'] for node in pool['nodes']} == {old['domain']}
    assert other['uuid'] in [node['uuid'] for node in pool['nodes']]
    assert old['uuid'] not in [node['uuid'] for node in pool['nodes']]
    ironic.show(server['instance_uuid'])
    call('POST', path, 404, {'replaces': old['name']})
    # The rack has three nodes, of which a server keeps one.
    fault = call('POST', path, 422, {'replaces': other['uuid']})
    assert f'group:domain={RACK}={old["domain"]} eliminates 3, ' in fault
    assert call('GET', f'/{pool["uuid"]}') == pool


def test_replace_without_a_policy(create, call, nodes):
    pool = create(5)
    old = pool['nodes'][0]
    pool = call('POST', f'/{pool["uuid"]}/nodes', json={
        'replaces': old['uuid'].upper()})
    assert pool['summary']['total'] == 5
    assert {node.id for node in nodes} - {
        node['uuid'] for node in pool['nodes']} == {old['uuid']}


@pytest.mark.on('sqlite', 'server')
def test_reasons(ironic, create, call):
    """Each node says since when and why it is in the pool."""
    pool = create(2)
    path = f'/{pool["uuid"]}/nodes'
    for table in 'pools', 'pool_nodes':
        ironic.execute(f'UPDATE reservations_{table} SET created_at = '
                       f'{ironic.clock(-3600)}')
    stays, old = call('GET', f'/{pool["uuid"]}')['nodes']
    assert stays['joined_at'] == old['joined_at'] < pool['created_at']
    for _ in range(2):
        pool = call('POST', path, json={'replaces': old['name']})
        [new] = [node for node in pool['nodes']
                 if node['name'] != stays['name']]
        assert (new['reason'], new['replaces'], new['joined_at']) == (
            'replace', old['uuid'], pool['updated_at'])
        assert stays in pool['nodes']
        old = new
    # A node that returns has joined again.
    call('DELETE', f'{path}/{old["name"]}', 204)
    pool = call('POST', path, json={'node': old['name']})
    [node] = [node for node in pool['nodes'] if node['name'] == old['name']]
    assert (node['reason'], node['replaces']) == ('add', None)


@pytest.mark.on('sqlite', 'server')
def test_remove(ironic, create, call):
    pool = create(2)
    path = f'/{pool["uuid"]}'
    first, last = pool['nodes']
    call('DELETE', f'{path}/nodes/{first["name"]}', 204)
    call('DELETE', f'{path}/nodes/{first["name"]}', 404)
    assert call('GET', path)['summary']['total'] == 1
    # A pool without nodes is deleted.
    call('DELETE', f'{path}/nodes/{last["uuid"]}', 204)
    call('GET', path, 404)
    assert not ironic.execute('SELECT id FROM reservations_pools')


@pytest.mark.parametrize('body', [
    {}, {'node': 'a', 'replaces': 'b'}, {'node': None}, {'node': 3},
    {'node': ''}, {'nodes': ['a']}, []])
def test_bad_change_of_nodes(create, call, body):
    call('POST', f'/{create(1)["uuid"]}/nodes', 400, body)


# Lists

@pytest.mark.on('sqlite', 'server')
def test_list(create, call, names):
    pools = [create(1, project_id=project) for project in 'pqp']
    uuids = [pool['uuid'] for pool in pools]

    def find(**query):
        return [pool['uuid'] for pool in call('GET', **query)['pools']]

    assert find() == uuids
    assert find(project_id='p') == [uuids[0], uuids[2]]
    assert find(project_id='P') == find(node='nonsense') == []
    node = pools[1]['nodes'][0]
    assert find(node=node['name']) == find(node=node['uuid'].upper()) == [
        uuids[1]]
    page = call('GET', limit=1)
    assert [pool['uuid'] for pool in page['pools']] == uuids[:1]
    marker = page['next'].rpartition('marker=')[2]
    call('DELETE', f'/{uuids[0]}', 204)
    assert find(marker=marker) == find(marker=uuids[1])[:0] + uuids[1:]
    assert find(marker=uuids[1]) == uuids[2:]
    call('GET', '', 400, marker=str(uuid.uuid4()))


def test_health_of_nodes(ironic, nodes, create, call):
    pool = create(6)
    ironic.set_node(nodes[0].id, maintenance=True)
    notice = ironic.http.post(f'{OURS}/notices', json={
        'kind': 'fault', 'nodes': [nodes[1].id]}).json()['notices'][0]
    pool = call('GET', f'/{pool["uuid"]}')
    assert pool['summary'] == {
        'total': 6, 'free': 5, 'reserved': 0, 'taken': 0,
        'out_of_service': 1, 'healthy': 4}
    assert call('GET')['pools'][0]['summary'] == pool['summary']
    by_uuid = {node['uuid']: node for node in pool['nodes']}
    assert by_uuid[nodes[1].id]['notices'] == [notice]
    assert by_uuid[nodes[0].id]['state'] == 'out_of_service'


# Effect

@pytest.mark.on('sqlite', 'server')
def test_other_projects_get_no_node(ironic, nodes, create, node_class):
    create(6)
    for body, number in (({'resource_class': node_class}, 6),
                         ({'candidate_nodes': [nodes[0].name]}, 1)):
        for query, status in ('', 422), ('?dry_run=true', 200):
            response = ironic.http.post(
                f'{OURS}{query}', json={**body, 'project_id': 'q'})
            contract.check(response, status)
            assert {'by': 'pool', 'nodes': number} in (
                response.json()['explanation']['eliminated'])
    row, = ironic.http.get(f'{OURS}/capacity', params={
        'resource_class': node_class, 'by': 'pool_project_id'}
    ).json()['capacity']
    assert (row['pool_project_id'], row['total'], row['free']) == ('p', 6, 6)


@pytest.mark.on('sqlite', 'server')
def test_repair(ironic, nodes, create, call, node_class):
    """A node in a pool of another project replaces no member."""
    request = {'resource_class': node_class}
    response = ironic.http.post(f'{OURS}/groups', json={
        'members': 3, 'project_id': 'q', 'request': request,
        'levels': [{'by': RACK, 'policy': 'pack', 'segment': 3}]})
    contract.check(response, 201)
    group = response.json()
    member = group['reservations'][0]
    ironic.delete(member['instance_uuid'])
    for project_id, status in ('p', 422), ('q', 201):
        pool = create(1, project_id=project_id, request={
            'candidate_nodes': [member['node_uuid']]})
        response = ironic.http.post(OURS, json={
            **request, 'project_id': 'q',
            'group': {'uuid': group['uuid'], 'segment': 0}})
        contract.check(response, status)
        if status == 422:
            assert {'by': 'pool', 'nodes': 1} in (
                response.json()['explanation']['eliminated'])
            call('DELETE', f'/{pool["uuid"]}', 204)
    assert response.json()['node_uuid'] == member['node_uuid']
