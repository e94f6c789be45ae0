# SPDX-License-Identifier: Apache-2.0
"""Health, maintenance and notices of reservations and groups."""

import uuid

import pytest

from tests.common import application
from tests.common import contract

OURS = '/v1/reservations'
NOTICES = f'{OURS}/notices'

POOL = [{}] * 4


@pytest.fixture
def hold(ironic, pool, node_class):
    """The reservation of a node; notices are deleted at the end."""
    yield ironic.create(resource_class=node_class)
    ironic.execute('DELETE FROM reservations_notices')


def notify(ironic, node_uuid, **body):
    response = ironic.http.post(NOTICES, json={
        'kind': 'fault', 'nodes': [node_uuid], **body})
    contract.check(response, 201)
    notice, = response.json()['notices']
    return notice


def close(ironic, notice):
    contract.check(ironic.http.patch(f'{NOTICES}/{notice["uuid"]}', json=[
        {'op': 'add', 'path': '/ends_at', 'value': 'now'}]), 200)


@pytest.mark.on('sqlite', 'server')
def test_health_and_maintenance(ironic, hold):
    """They are read from Ironic each time."""
    instance = hold['instance_uuid']
    assert (hold['health'], hold['maintenance']) == (None, False)
    for health, maintenance in ('OK', True), ('Warning', None), (None, False):
        ironic.set_node(hold['node_uuid'], health=health,
                        maintenance=maintenance)
        expected = health, bool(maintenance)
        row = ironic.show(instance)
        assert (row['health'], row['maintenance']) == expected
        row, = ironic.list(node=hold['node_uuid'])
        assert (row['health'], row['maintenance']) == expected


@pytest.mark.on('sqlite', 'server')
def test_health_in_the_first_response(ironic, node_class):
    """That of a hold, a group and a claim."""
    with ironic.fleet({'resource_class': node_class}) as [node]:
        ironic.set_node(node.id, health='Warning')
        spec = {'candidate_nodes': [node.id]}
        hold = ironic.create(**spec)
        assert hold['health'] == 'Warning'
        claim = ironic.create(**spec, host='h', claim=hold['instance_uuid'])
        assert claim['health'] == 'Warning'
        ironic.delete(claim['instance_uuid'], host='h')
        response = ironic.http.post(f'{OURS}/groups', json={
            'members': 1, 'request': spec})
        contract.check(response, 201)
        assert response.json()['health'] == {'Warning': 1}
        ironic.delete(response.json()['reservations'][0]['instance_uuid'])


@pytest.mark.on('sqlite', 'server')
def test_notices(ironic, hold, node_class):
    instance = hold['instance_uuid']
    assert hold['notices'] == []
    old, now, later = (
        notify(ironic, hold['node_uuid'], **body) for body in (
            {}, {'ticket': 'T'}, {'starts_at': '9999-01-01T00:00Z'}))
    close(ironic, old)
    other = ironic.create(resource_class=node_class)
    assert later['state'] == 'planned'
    assert ironic.show(instance)['notices'] == [later, now]
    assert ironic.show(other['instance_uuid'])['notices'] == []
    # Each response with the whole reservation has them.
    assert ironic.create(200, resource_class=node_class,
                         instance_uuid=instance)['notices'] == [later, now]
    response = ironic.http.patch(f'{OURS}/{instance}', json=[
        {'op': 'add', 'path': '/description', 'value': 'x'}])
    contract.check(response, 200)
    assert response.json()['notices'] == [later, now]
    # In a list only on request.
    assert all('notices' not in row
               for row in ironic.list(resource_class=node_class))
    assert ironic.list(resource_class=node_class,
                       fields='node_uuid,notices') == [
        {'node_uuid': row['node_uuid'], 'links': row['links'],
         'notices': notices, 'more_notices': 0}
        for row, notices in ((hold, [later, now]), (other, []))]
    assert ironic.list(fields='health', node=hold['node_uuid'])[0].keys() == {
        'health', 'links'}


def test_notices_of_a_claim_and_an_adoption(ironic, hold, node_class):
    notice = notify(ironic, hold['node_uuid'])
    claim = ironic.create(claim=hold['instance_uuid'], host='compute-1')
    assert claim['notices'] == [notice]
    ironic.set_node(hold['node_uuid'], provision_state='active')
    ironic.execute('DELETE FROM reservations')
    response = ironic.http.post(f'{OURS}?adopt=true', json={
        'instance_uuid': claim['instance_uuid']})
    contract.check(response, 201)
    assert response.json()['notices'] == [notice]
    ironic.set_node(hold['node_uuid'], provision_state='available')


def test_notice_of_a_deleted_node(ironic, hold):
    """SQLite gives its id to a new node."""
    notify(ironic, hold['node_uuid'])
    ironic.execute('UPDATE reservations_notices SET node_uuid = :u',
                   u=str(uuid.uuid4()))
    assert ironic.show(hold['instance_uuid'])['notices'] == []


def test_many_notices(ironic, hold):
    """As after the limit was lowered."""
    notice = notify(ironic, hold['node_uuid'], cordon=True)
    columns = ', '.join((
        'node_id', 'node_uuid', 'kind', 'cordon', 'starts_at', 'description',
        'ticket', 'is_failed_build', 'request_digest', 'created_at'))
    for number in range(1, 12):
        ironic.execute(
            f'INSERT INTO reservations_notices (uuid, number, {columns}) '
            f"SELECT uuid, number + {2 ** (number - 1)}, {columns} "
            f'FROM reservations_notices')
    ironic.execute('UPDATE reservations_notices SET cordon = false '
                   'WHERE number > 0')
    row, = ironic.list(node=hold['node_uuid'], fields='notices')
    del row['links']
    assert row.items() <= ironic.show(hold['instance_uuid']).items()
    assert row['notices'][0] == notice and len(row['notices']) == 32
    assert row['more_notices'] == 2 ** 11 - 32


def test_statements_without_notices(ironic, hold):
    """Notices are read only if the node has any."""
    def count():
        with application.record_statements() as statements:
            ironic.show(hold['instance_uuid'])
        return sum('FROM reservations_notices' in statement
                   for statement in statements)

    # Each SELECT of reservations finds out whether there are any.
    before = count()
    notice = notify(ironic, hold['node_uuid'])
    assert count() == before + 1
    close(ironic, notice)
    assert count() == before


@pytest.mark.on('sqlite', 'server')
def test_health_of_a_group(ironic, pool, node_class):
    def post(**body):
        response = ironic.http.post(f'{OURS}/groups', json={
            'members': 3, 'request': {'resource_class': node_class}, **body})
        contract.check(response, 201)
        return response.json()

    group = post()
    assert group['health'] == {}
    for member, health in zip(group['reservations'],
                              ('OK', 'Warning', 'OK'), strict=True):
        ironic.set_node(member['node_uuid'], health=health)
    group = ironic.show(f'groups/{group["uuid"]}')
    assert group['health'] == {'OK': 2, 'Warning': 1}
    assert [member['health'] for member in group['reservations']] == [
        'OK', 'Warning', 'OK']
    assert all('notices' not in member for member in group['reservations'])
    ironic.set_node(group['reservations'][0]['node_uuid'], health=None)
    post(members=1)
    numbers = {row['members']: row['health'] for page in ironic.pages(
        f'{OURS}/groups', 'groups') for row in page}
    assert numbers == {3: {'OK': 1, 'Warning': 1}, 1: {}}


# With tokens

def test_what_each_caller_sees(cloud):
    """The same notices as in their list."""
    everything = {'report of A', 'build', 'operator'}
    seen = {'system-admin': everything, 'system-reader': set(),
            'a-member': {'report of A', 'operator'},
            'a-reader': {'report of A', 'operator'}}
    hold = cloud.hold('system-admin', project_id=cloud.projects['a'],
                      candidate_nodes=['free-2'])
    path = f'{OURS}/{hold["instance_uuid"]}'
    for persona, status, body in (
            ('a-member', 201, {'description': 'report of A'}),
            ('system-service', 201, {'category': 'build',
                                     'description': 'build'}),
            ('system-admin', 201, {'kind': 'maintenance',
                                   'description': 'operator'})):
        cloud.call(persona, status, 'POST', NOTICES, json={
            'kind': 'fault', 'nodes': ['free-2'], **body})

    def see(persona, instance=path):
        return {notice['description']: notice['created_by'] for notice in
                cloud.get(persona, instance)['notices']}

    for persona, descriptions in seen.items():
        assert see(persona).keys() == descriptions, persona
        row, = cloud.get(persona, OURS, node='free-2',
                         fields='notices')['reservations']
        assert {notice['description']
                for notice in row['notices']} == descriptions
    assert see('a-reader')['operator'] is None
    assert see('a-reader')['report of A'] == cloud.users['a-member']
    assert see('system-admin')['operator'] == cloud.users['system-admin']
    # The owner of the node, who has not reserved it.
    cloud.set_node('free-2', owner=cloud.projects['b'])
    assert see('b-member').keys() == everything
    assert see('b-member')['operator'] == cloud.users['system-admin']
    cloud.set_node('free-2', owner=None)
    # The next tenant, in the response to its own request, too.
    cloud.call('system-admin', 200, 'PATCH', f'{NOTICES}/'
               + cloud.get('system-admin', NOTICES, node='free-2',
                           kind='maintenance')['notices'][0]['uuid'],
               json=[{'op': 'add', 'path': '/cordon', 'value': False}])
    cloud.call('system-admin', 204, 'DELETE', path)
    cloud.set_node('free-2', owner=cloud.projects['b'])
    response = cloud.request('b-member', 'POST', OURS, json={
        'candidate_nodes': ['free-2']})
    contract.check(response, 201)
    cloud.set_node('free-2', owner=None)
    instance = f'{OURS}/{response.json()["instance_uuid"]}'
    assert see('b-member', instance) == {'operator': None}
    assert see('system-admin', instance).keys() == everything


def test_owners_do_not_prevent_a_cordon(cloud):
    """Only an operator's limit is higher."""
    body = {'kind': 'maintenance', 'nodes': ['of-a-2']}
    with application.set_options({'reservations': {'max_notices': 1}}):
        for persona, status in (('a-member', 201), ('a-member', 409),
                                ('system-member', 201),
                                ('system-member', 409)):
            cloud.call(persona, status, 'POST', NOTICES, json=body)
