# SPDX-License-Identifier: Apache-2.0
"""What projects do and see: /v1/reservations/pools with tokens."""

import pytest

from tests.common import contract

OURS = '/v1/reservations'
POOLS = f'{OURS}/pools'


@pytest.fixture
def pool(cloud):
    """The pool of project A, which has free-2, that nobody owns."""
    response = cloud.request('system-member', 'POST', POOLS, json={
        'project_id': cloud.projects['a'], 'members': 1,
        'request': {'memory_mb': 1, 'candidate_nodes': ['free-2']}})
    contract.check(response, 201)
    yield response.json()
    for table in 'pools', 'pool_nodes', 'notices':
        cloud.ironic.execute(f'DELETE FROM reservations_{table}')
    cloud.before = None


def test_readers(cloud, pool):
    path = f'{POOLS}/{pool["uuid"]}'
    for persona in 'a-reader', 'a-member', 'system-reader', 'system-admin':
        assert cloud.get(persona, path) == pool
        assert [row['uuid'] for row in cloud.get(persona, POOLS)['pools']] == [
            pool['uuid']]
    for persona in 'b-member', 'b-admin', 'service':
        cloud.call(persona, 404, 'GET', path)
        assert cloud.get(persona, POOLS) == {'pools': []}
        cloud.call(persona, 400, 'GET', f'{POOLS}?marker={pool["uuid"]}')
    assert cloud.get('b-member', POOLS, project_id=cloud.projects['a']) == {
        'pools': []}


@pytest.mark.parametrize('method, path, json', [
    ('PATCH', '', [{'op': 'add', 'path': '/description', 'value': 'x'}]),
    ('DELETE', '', None), ('POST', '/nodes', {'node': 'of-a-2'}),
    ('POST', '/nodes', {'replaces': 'free-2'}),
    ('DELETE', '/nodes/free-2', None),
], ids=['describe', 'delete', 'add', 'replace', 'remove'])
def test_writers(cloud, pool, method, path, json):
    path = f'{POOLS}/{pool["uuid"]}{path}'
    for persona in 'a-reader', 'a-admin', 'system-reader':
        cloud.call(persona, 403, method, path, json=json)
    cloud.call('b-admin', 404, method, path, json=json)
    if json != {'replaces': 'free-2'}:
        cloud.call('system-member', (200, 204), method, path, json=json)


def test_repeat_of_another_project(cloud, pool):
    cloud.call('a-admin', 403, 'POST', POOLS, json={
        'uuid': pool['uuid'], 'project_id': cloud.projects['a'], 'members': 1,
        'request': {'memory_mb': 1, 'candidate_nodes': ['free-2']}})


def test_instance_of_a_reservation_that_the_caller_may_not_see(cloud, pool):
    """Another project has the node since before it joined."""
    path = f'{POOLS}/{pool["uuid"]}'
    hold = cloud.hold('system-admin', project_id=cloud.projects['a'],
                      candidate_nodes=['free-2'])
    cloud.ironic.execute('UPDATE reservations SET project_id = :p '
                         'WHERE instance_uuid = :i', p=cloud.projects['b'],
                         i=hold['instance_uuid'])
    for persona, instance in (('a-member', None),
                              ('system-reader', hold['instance_uuid'])):
        node, = cloud.get(persona, path)['nodes']
        assert (node['state'], node['instance_uuid']) == ('reserved', instance)


def test_notices_of_nodes(cloud, pool):
    """The project sees those of operators, without their creator."""
    cloud.call('system-member', 201, 'POST', f'{OURS}/notices', json={
        'kind': 'maintenance', 'nodes': ['free-2'], 'ticket': 'T'})
    for persona in 'a-member', 'system-member':
        node, = cloud.get(persona, f'{POOLS}/{pool["uuid"]}')['nodes']
        notice, = node['notices']
        assert notice in cloud.get(persona, f'{OURS}/notices')['notices']
        assert (notice['ticket'], notice['created_by'] is None) == (
            'T', persona == 'a-member')
    assert cloud.get('b-member', f'{OURS}/notices', node='free-2') == {
        'notices': []}


def test_project_reports_a_fault_of_a_node_of_its_pool(cloud, pool):
    body = {'kind': 'fault', 'nodes': ['free-2'], 'category': 'gpu'}
    cloud.call('b-member', 400, 'POST', f'{OURS}/notices', json=body)
    cloud.call('a-reader', 403, 'POST', f'{OURS}/notices', json=body)
    cloud.call('a-member', 201, 'POST', f'{OURS}/notices', json=body)
    cloud.call('a-member', 409, 'POST', f'{OURS}/notices', json=body)
    notice, = cloud.get('a-member', f'{OURS}/notices',
                        node='free-2')['notices']
    assert notice['created_by'] == cloud.users['a-member']
    cloud.call('a-member', 403, 'POST', f'{OURS}/notices', json={
        **body, 'kind': 'maintenance'})


def test_node_in_a_pool_of_another_project(cloud, pool, policy):
    """It is no longer unowned, so it reads the same as an unknown one."""
    policy({'baremetal:reservation:create_unowned': 'role:member',
            'baremetal:reservation:pools': 'role:member'})
    cloud.call('b-member', 201, 'POST', POOLS, json={
        'project_id': cloud.projects['b'], 'members': 1,
        'request': {'candidate_nodes': ['of-b-2'], 'memory_mb': 1}})
    other, = cloud.get('b-member', POOLS)['pools']
    path = f'{POOLS}/{other["uuid"]}/nodes'
    for node, statuses in (('free-2', (400, 400)), ('nonsense', (400, 400)),
                           ('free-1', (403, 409))):
        for (url, json), status in zip((
                (f'{OURS}/notices', {'kind': 'fault', 'nodes': [node]}),
                (path, {'node': node})), statuses, strict=True):
            fault = cloud.call('b-member', status, 'POST', url, json=json)
            assert status != 400 or fault.endswith(
                f'must be the UUID or the name of a node; got "{node}"')


OWN = ('role:member and (project_id:%(reservation.project_id)s or '
       'system_scope:all)')


def test_project_that_may_replace(cloud, pool, policy):
    """The replacement is a node that the project could not see."""
    policy({'baremetal:reservation:pools_replace': OWN})
    cloud.ironic.execute(
        'UPDATE reservations_pools SET request_spec = :s',
        s='{"memory_mb": 1, "resource_class": "gold"}')
    path = f'{POOLS}/{pool["uuid"]}/nodes'
    cloud.call('a-member', 403, 'POST', path, json={'node': 'of-a-2'})
    cloud.call('b-member', 404, 'POST', path, json={'replaces': 'free-2'})
    cloud.ironic.execute("UPDATE nodes SET maintenance = 1 "
                         "WHERE name != 'free-2'")
    try:
        cloud.call('a-member', 422, 'POST', path, json={'replaces': 'free-2'})
        cloud.ironic.execute("UPDATE nodes SET maintenance = 0 "
                             "WHERE name = 'of-b-2'")
        response = cloud.request('a-member', 'POST', path, json={
            'replaces': 'free-2'})
        contract.check(response, 200)
        assert [node['name'] for node in response.json()['nodes']] == [
            'of-b-2']
    finally:
        cloud.ironic.execute('UPDATE nodes SET maintenance = 0')


@pytest.mark.on('sqlite', 'server')
def test_project_that_may_remove(cloud, pool, policy):
    """It gives machines back, and gets no other ones."""
    path = f'{POOLS}/{pool["uuid"]}/nodes'
    cloud.call('system-member', 200, 'POST', path, json={'node': 'of-b-2'})
    cloud.call('a-member', 403, 'DELETE', f'{path}/of-b-2')
    policy({'baremetal:reservation:pools_replace': OWN})
    cloud.call('a-member', 403, 'POST', path, json={'node': 'of-a-2'})
    for persona, status in (('a-reader', 403), ('b-member', 404),
                            ('b-admin', 404), ('service', 404)):
        cloud.call(persona, status, 'DELETE', f'{path}/of-b-2')
    cloud.call('a-member', 404, 'DELETE', f'{path}/of-a-2')
    # A server keeps its node.
    hold = cloud.hold('a-member', candidate_nodes=['of-b-2'])
    cloud.call('a-member', 204, 'DELETE', f'{path}/of-b-2')
    cloud.call('a-member', 200, 'GET', f'{OURS}/{hold["instance_uuid"]}')
    assert [node['name'] for node in cloud.get(
        'a-member', f'{POOLS}/{pool["uuid"]}')['nodes']] == ['free-2']
    # The rest needs the other rule.
    cloud.call('a-member', 403, 'DELETE', f'{POOLS}/{pool["uuid"]}')
    cloud.call('a-member', 403, 'PATCH', f'{POOLS}/{pool["uuid"]}', json=[
        {'op': 'add', 'path': '/description', 'value': 'x'}])
    # A pool without nodes is deleted.
    cloud.call('a-member', 204, 'DELETE', f'{path}/free-2')
    assert cloud.get('a-member', POOLS) == {'pools': []}


def test_rule_for_pools_alone(cloud, pool, policy):
    """It does not let a project remove a node."""
    policy({'baremetal:reservation:pools': OWN})
    path = f'{POOLS}/{pool["uuid"]}'
    cloud.call('a-member', 403, 'DELETE', f'{path}/nodes/free-2')
    cloud.call('a-member', 200, 'PATCH', path, json=[
        {'op': 'add', 'path': '/description', 'value': 'x'}])


def test_reasons_that_a_project_sees(cloud, pool):
    node, = cloud.get('a-reader', f'{POOLS}/{pool["uuid"]}')['nodes']
    assert (node['joined_at'], node['reason'], node['replaces']) == (
        pool['created_at'], 'create', None)


def test_project_replaces_no_machine_in_use(cloud, pool, policy):
    """It would keep both machines."""
    policy({'baremetal:reservation:pools_replace': OWN})
    path = f'{POOLS}/{pool["uuid"]}/nodes'
    hold = cloud.hold('a-member', candidate_nodes=['free-2'])
    for replaces in 'free-2', pool['nodes'][0]['uuid'].upper():
        fault = cloud.call('a-member', 409, 'POST', path, json={
            'replaces': replaces})
        assert fault.startswith(f'Node {replaces} carries an instance')
    cloud.call('a-member', 204, 'DELETE', f'{OURS}/{hold["instance_uuid"]}')
    # Its only candidate was the machine itself.
    fault = cloud.call('a-member', 422, 'POST', path, json={
        'replaces': 'free-2'})
    assert fault == ('Node free-2 cannot be replaced: no machine is free '
                     'there that fits.')
    cloud.ironic.execute(
        'UPDATE reservations_pools SET request_spec = :s',
        s='{"memory_mb": 1}')
    cloud.call('a-member', 200, 'POST', path, json={'replaces': 'free-2'})


def test_project_that_may_create(cloud, policy, pool):
    """It gets only nodes that it owns or leases, then and later."""
    policy({f'baremetal:reservation:{rule}': OWN
            for rule in ('pools', 'pools_replace')})
    body = {'project_id': cloud.projects['a'], 'members': 1,
            'request': {'resource_class': 'gold', 'memory_mb': 1}}
    cloud.call('b-member', 403, 'POST', POOLS, json=body)
    cloud.call('a-member', 422, 'POST', POOLS, json={**body, 'members': 4})
    cloud.call('a-member', 403, 'POST', POOLS, json={
        **body, 'request': {'memory_mb': 1, 'ownership': 'any'}})
    body['request']['ownership'] = None
    response = cloud.request('a-member', 'POST', POOLS, json=body)
    contract.check(response, 201)
    path = f'{POOLS}/{response.json()["uuid"]}/nodes'
    assert response.json()['request']['ownership'] == 'project'
    node = response.json()['nodes'][0]['name']
    assert node in ('of-a-2', 'leased-to-a-1', 'leased-to-a-2')
    cloud.call('a-member', 400, 'POST', path, json={'node': 'of-b-2'})
    for _ in range(3):
        response = cloud.request('a-member', 'POST', path, json={
            'replaces': node})
        contract.check(response, 200)
        node = response.json()['nodes'][0]['name']
        assert node in ('of-a-2', 'leased-to-a-1', 'leased-to-a-2')
    # Its other two nodes are in another pool then.
    cloud.call('a-member', 201, 'POST', POOLS, json={**body, 'members': 2})
    response = cloud.request('a-member', 'POST', path, json={
        'replaces': node})
    contract.check(response, 422)
    assert response.json()['explanation'] == {
        'considered': 0, 'eliminated': []}
