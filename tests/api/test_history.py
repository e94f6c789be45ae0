# SPDX-License-Identifier: Apache-2.0
"""GET /v1/reservations/history"""

import uuid

import pytest

from tests.common import service

OURS = service.OURS
HISTORY = f'{OURS}/history'
CLASS = 'baremetal.history'
LATER = '2999-12-31T18:00:00Z'


@pytest.fixture
def ends(ironic):
    """Three instances that were on one node, the last one first."""
    with ironic.fleet({'name': 'history-1', 'resource_class': CLASS,
                       'owner': 'o'}):
        holds = []
        for number in range(3):
            holds.append(ironic.create(resource_class=CLASS, project_id='p',
                                       description=f'{number}'))
            response = ironic.http.delete(
                f'{OURS}/{holds[-1]["instance_uuid"]}')
            assert response.status_code == 204
        yield holds[::-1]


def read(ironic, status=200, **query):
    response = ironic.http.get(HISTORY, params=query)
    assert response.status_code == status, response.text
    return response.json()


def descriptions(ironic, **query):
    return [row['description'] for row in read(ironic, **query)['history']]


def test_keys(ironic, ends):
    """Those of a listed reservation, except for those of its state."""
    row = read(ironic)['history'][0]
    expected = {name: value for name, value in ends[0].items() if name not in (
        'state', 'provision_state', 'links', 'request_spec', 'notices',
        'more_notices')}
    assert expected.items() <= row.items()
    assert {*row} - {*expected} == {'ended_at', 'ended_by', 'node_owner'}
    assert (row['ended_by'], row['node_owner']) == ('release', 'o')
    assert row['ended_at'].endswith('+00:00')


def test_member_of_a_group(ironic):
    name, by = str(uuid.uuid4()), 'capability:rack'
    with ironic.fleet({'resource_class': CLASS, 'properties': {
            'capabilities': 'rack:r1'}}):
        hold = ironic.create(resource_class=CLASS, group={
            'uuid': name, 'policy': 'pack', 'by': by})
        ironic.http.delete(f'{OURS}/groups/{name}')
        [row] = read(ironic)['history']
        assert row['group'] == hold['group'] == {
            'uuid': name, 'policy': 'pack', 'by': by, 'domain': 'r1'}


def test_filters(ironic, ends):
    everything = ['2', '1', '0']
    for query in ({}, {'node': ' history-1 '}, {'project_id': 'p'},
                  {'node': ends[0]['node_uuid'].upper()},
                  {'ended_after': '3600'},
                  {'ended_after': '2001-01-01T00:00Z'}):
        assert descriptions(ironic, **query) == everything, query
    for query in ({'node': 'history-2'}, {'project_id': 'o'},
                  {'instance_uuid': str(uuid.uuid4())},
                  {'ended_after': LATER}):
        assert descriptions(ironic, **query) == [], query
    assert descriptions(
        ironic, instance_uuid=ends[1]['instance_uuid'].upper()) == ['1']


@pytest.mark.parametrize('query', [
    {'instance_uuid': 'x'}, {'ended_after': 'x'},
    {'ended_after': '2030-12-31'}, {'host': 'x'}, {'marker': 'x'},
    {'marker': '00000000-0000-4000-8000-000000000000'},
    {'limit': 0}], ids=str)
def test_invalid_query(ironic, query):
    read(ironic, 400, **query)


def test_pages(ironic, ends):
    """A marker stays valid when its row is deleted."""
    page = read(ironic, limit=1)
    assert [row['description'] for row in page['history']] == ['2']
    ironic.execute("DELETE FROM reservations_history WHERE description = '2'")
    page = ironic.http.get(page['next']).json()
    assert [row['description'] for row in page['history']] == ['1']
    assert descriptions(ironic, marker=ends[1]['instance_uuid']) == ['0']


def test_purge_after_a_tear_down(ironic):
    with ironic.fleet({'resource_class': CLASS}):
        hold = ironic.create(resource_class=CLASS)
        ironic.set_node(hold['node_uuid'], instance_uuid=None)
        assert descriptions(ironic) == []
        assert ironic.http.get(
            f'{OURS}/{hold["instance_uuid"]}').status_code == 404
        [row] = read(ironic)['history']
        assert row['ended_by'] == 'purge'


def test_owner_sees_what_ended_on_its_nodes(cloud):
    """Other projects do not, not even those of the reservations."""
    cloud.ironic.execute('DELETE FROM reservations_history')
    a, b = cloud.projects['a'], cloud.projects['b']
    for owner, holder in (b, a), (a, b):
        cloud.set_node('of-a-2', owner=owner)
        hold = cloud.hold('system-admin', project_id=holder,
                          candidate_nodes=['of-a-2'])
        cloud.call('system-admin', 204, 'DELETE',
                   f'{OURS}/{hold["instance_uuid"]}')

    def see(persona, **query):
        return [row['project_id'] for row in cloud.get(
            persona, HISTORY, **query)['history']]

    assert see('system-reader') == see('elevated-service') == [b, a]
    assert see('a-reader') == see('a-member', project_id=b) == [b]
    assert see('b-reader') == [a]
    assert see('a-reader', project_id=a) == see('service') == []
    cloud.call('a-service', 200, 'GET', HISTORY)
    cloud.call('unscoped', 403, 'GET', HISTORY)
