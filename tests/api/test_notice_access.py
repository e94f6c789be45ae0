# SPDX-License-Identifier: Apache-2.0
"""What projects do and see: /v1/reservations/notices with tokens."""

import concurrent.futures

import pytest

from tests.common import contract

OURS = '/v1/reservations'
NOTICES = f'{OURS}/notices'


@pytest.fixture
def tenant(cloud):
    """The Cloud without notices; A has reserved free-2, which nobody owns."""
    cloud.ironic.execute('DELETE FROM reservations_notices')
    cloud.hold('system-admin', project_id=cloud.projects['a'],
               candidate_nodes=['free-2'])
    yield cloud
    cloud.ironic.execute('UPDATE nodes SET shard = NULL')
    cloud.set_node('of-a-2', owner=cloud.projects['a'])


def report(cloud, persona, status, node, **body):
    return cloud.call(persona, status, 'POST', NOTICES, json={
        'kind': 'fault', 'nodes': [node], **body})


def change(cloud, persona, status, notice, name, value):
    return cloud.call(
        persona, status, 'PATCH', f'{NOTICES}/{notice["uuid"]}',
        json=[{'op': 'add', 'path': f'/{name}', 'value': value}])


def see(cloud, persona, **query):
    return cloud.get(persona, NOTICES, **query)['notices']


def test_holder_reports_a_fault(tenant):
    report(tenant, 'a-member', 201, 'free-2', category='gpu')
    notice, = see(tenant, 'a-reader')
    assert (notice['category'], notice['cordon']) == ('gpu', False)
    assert notice['created_by'] == tenant.users['a-member']
    assert see(tenant, 'system-admin') == [notice]
    for persona in 'b-member', 'service', 'system-reader':
        assert see(tenant, persona) == []
    # One planned or open report of a project on a node.
    report(tenant, 'a-member', 409, 'free-2')
    report(tenant, 'a-member', 403, 'free-2', cordon=True)
    report(tenant, 'a-member', 403, 'free-2', kind='maintenance',
           cordon=False)
    report(tenant, 'a-reader', 403, 'free-2')
    report(tenant, 'b-member', 400, 'free-2')
    change(tenant, 'b-member', 404, notice, 'ends_at', 'now')
    change(tenant, 'a-reader', 403, notice, 'ends_at', 'now')
    assert 'cordon' in change(tenant, 'a-member', 403, notice, 'cordon', True)
    change(tenant, 'a-member', 200, notice, 'cordon', False)
    # An operator may make a cordon of it, which the project may not end.
    change(tenant, 'system-member', 200, notice, 'cordon', True)
    for name, value in ('ends_at', 'now'), ('cordon', False), (
            'starts_at', '2999-01-01T00:00:00Z'):
        change(tenant, 'a-member', 403, notice, name, value)
    change(tenant, 'a-member', 200, notice, 'category', 'memory')
    change(tenant, 'system-member', 200, notice, 'cordon', False)
    change(tenant, 'a-member', 200, notice, 'ends_at', 'now')
    report(tenant, 'a-member', 201, 'free-2')


@pytest.mark.on('server')
def test_one_report_at_the_same_time(tenant):
    with concurrent.futures.ThreadPoolExecutor(4) as executor:
        statuses = list(executor.map(lambda _: tenant.request(
            'a-member', 'POST', NOTICES, json={
                'kind': 'fault', 'nodes': ['free-2']}).status_code, range(4)))
    assert sorted(statuses) == [201, 409, 409, 409]


def test_lessee_without_a_reservation(tenant):
    report(tenant, 'a-member', 403, 'leased-to-a-1')
    tenant.call('a-member', 400, 'POST', NOTICES, json={
        'kind': 'fault', 'by': {'conductor_group': 'nonsense'}})


def test_domain_means_the_nodes_that_the_caller_may_change(tenant):
    tenant.ironic.execute("UPDATE nodes SET shard = 'S'")
    tenant.call('a-member', 201, 'POST', NOTICES, json={
        'kind': 'maintenance', 'cordon': False, 'by': {'shard': 'S'}})
    assert {notice['node_name'] for notice in see(tenant, 'a-member')} == {
        'of-a-1', 'of-a-2'}
    tenant.call('a-member', 201, 'POST', NOTICES, json={
        'kind': 'fault', 'by': {'shard': 'S'}})
    assert {notice['node_name'] for notice in see(
        tenant, 'a-member', kind='fault')} == {'of-a-1', 'of-a-2', 'free-2'}


def test_holder_sees_notices_of_operators(tenant):
    report(tenant, 'system-member', 201, 'free-2', kind='maintenance',
           ticket='T')
    notice, = see(tenant, 'a-member')
    assert (notice['ticket'], notice['created_by']) == ('T', None)
    change(tenant, 'a-member', 403, notice, 'ticket', 'U')
    assert see(tenant, 'b-member') == []
    change(tenant, 'b-member', 404, notice, 'ticket', 'U')


@pytest.mark.parametrize('more', [
    {'ticket': 'T-1'}, {'cordon': True}, {'ends_at': '2999-01-01T00:00:00Z'}],
    ids=str)
def test_notice_of_an_operator_with_the_category_build(tenant, more):
    """Unlike a failed build, it stays open, and the project sees it."""
    report(tenant, 'system-admin', 201, 'free-2', category='build', **more)
    notice, = see(tenant, 'a-member')
    assert (notice['category'], notice['ends_at'] is None) == (
        'build', 'ends_at' not in more)


def test_next_project_sees_no_former_reports(tenant):
    """It sees no notices of the former project, and no failed builds."""
    report(tenant, 'a-member', 201, 'free-2', description='secret')
    report(tenant, 'system-service', 201, 'free-2', category='build')
    report(tenant, 'system-member', 201, 'free-2', kind='retirement',
           cordon=False)
    kinds = {persona: [notice['kind'] for notice in see(tenant, persona)]
             for persona in ('a-member', 'b-member', 'system-member')}
    assert kinds == {'a-member': ['fault', 'retirement'], 'b-member': [],
                     'system-member': ['fault', 'fault', 'retirement']}
    mine, theirs = see(tenant, 'a-member')
    for (instance_uuid,) in tenant.ironic.execute(
            'SELECT r.instance_uuid FROM reservations r JOIN nodes n '
            "ON n.id = r.node_id WHERE n.name = 'free-2'"):
        tenant.call('system-admin', 204, 'DELETE', f'{OURS}/{instance_uuid}')
    tenant.hold('system-admin', project_id=tenant.projects['b'],
                candidate_nodes=['free-2'])
    assert [notice['kind'] for notice in see(tenant, 'b-member')] == [
        'retirement']
    for query in ({'uuid': mine['uuid']}, {'kind': 'fault'},
                  {'ticket': 'secret'}):
        assert see(tenant, 'b-member', **query) == []
    assert see(tenant, 'b-member', node='free-2', limit=1) == [theirs]
    change(tenant, 'b-member', 404, mine, 'ticket', 'T')
    # A UUID that it has guessed reveals nothing, either.
    assert 'of another request' in report(
        tenant, 'b-member', 409, 'free-2', uuid=mine['uuid'])
    report(tenant, 'b-member', 201, 'free-2')
    # The former one sees the outcome of its report, and no more.
    assert see(tenant, 'a-member') == [mine]


def test_former_owner_sees_no_notices(tenant):
    report(tenant, 'a-member', 201, 'of-a-2', kind='maintenance')
    tenant.set_node('of-a-2', owner=tenant.projects['b'])
    assert see(tenant, 'a-member') == []
    assert len(see(tenant, 'b-member')) == 1


def test_owner_writes_notices(tenant):
    report(tenant, 'a-member', 201, 'of-a-2', kind='maintenance')
    report(tenant, 'a-reader', 403, 'of-a-2')
    report(tenant, 'a-member', 400, 'of-b-1')
    notice, = see(tenant, 'a-member')
    assert notice['node_name'] == 'of-a-2'
    assert notice['created_by'] == tenant.users['a-member']
    for persona in 'a-admin', 'a-reader', 'system-member':
        assert see(tenant, persona) == [notice]
    change(tenant, 'a-member', 200, notice, 'cordon', True)
    tenant.call('a-member', 422, 'POST', OURS, json={
        'candidate_nodes': ['of-a-2']})
    change(tenant, 'a-member', 200, notice, 'ends_at', 'now')
    tenant.hold('a-member', candidate_nodes=['of-a-2'])


def test_cordon_of_another_project_is_explained(tenant):
    report(tenant, 'system-member', 201, 'leased-to-a-1', kind='maintenance')
    response = tenant.request('a-member', 'POST', OURS, json={
        'candidate_nodes': ['leased-to-a-1']})
    contract.check(response, 422)
    assert response.json()['explanation']['eliminated'][-1] == {
        'by': 'cordoned', 'nodes': 1}
