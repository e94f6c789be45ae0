# SPDX-License-Identifier: Apache-2.0
"""Lists: filters, pages, fields."""

import pytest

from tests.common import answers
from tests.common import service

OURS = service.OURS
KEYS = ['instance_uuid', 'node_uuid', 'node_name', 'host', 'state',
        'provision_state', 'resource_class', 'project_id', 'user_id',
        'request_spec', 'expires_at', 'created_at', 'updated_at', 'links']

POOL = [{'name': f'pool-{number}'} for number in range(5)]


@pytest.fixture
def five(ironic, pool, node_class):
    """Reservations that differ in what a list can ask for, as it has them."""
    made = [ironic.create(resource_class=node_class,
                          candidate_nodes=[f'pool-{number}'], **body)
            for number, body in enumerate((
                {'host': 'b', 'project_id': 'p1', 'user_id': 'u2'},
                {'host': 'a', 'project_id': 'p2', 'user_id': 'u1'},
                {'host': 'B', 'project_id': 'p1'},
                {'host': 'a', 'user_id': 'u2'},
                {}))]
    return [{name: value for name, value in each.items()
             if name != 'request_spec'} for each in made]


@pytest.mark.on('sqlite', 'server')
def test_list_filters(ironic, five, node_class):
    def found(**query):
        reservations = ironic.list(resource_class=node_class, **query)
        return [five.index(each) for each in reservations]

    assert found() == [0, 1, 2, 3, 4]
    assert found(host='a') == [1, 3]
    assert found(host='b') == [0]
    assert found(host='B') == [2]
    assert found(host='c') == found(node='pool') == []
    assert found(host='a ') == []
    assert found(project_id='p1') == [0, 2]
    assert found(project_id='P1') == []
    assert found(project_id='p1', host='b') == [0]
    assert found(node='pool-4') == [4]
    assert found(node=five[3]['node_uuid']) == [3]
    assert found(node='nobody') == []
    assert found(state='reserved') == [0, 1, 2, 3, 4]
    ironic.set_node(five[1]['node_uuid'], provision_state='active')
    assert [each['instance_uuid'] for each in ironic.list(
        state='active', resource_class=node_class, host='a')] == [
            five[1]['instance_uuid']]
    assert ironic.list(resource_class='elsewhere') == []
    assert ironic.list() == ironic.list(resource_class=node_class)


def test_list_is_sorted_by_several_keys(ironic, five, node_class):
    expected = sorted(range(5), reverse=True)
    expected.sort(key=lambda number: five[number]['host'] or '')
    found = ironic.pages(
        OURS, 'reservations', resource_class=node_class, limit=2,
        sort_key='host,created_at,id', sort_dir='asc,desc')
    assert [five.index(each) for page in found for each in page] == expected


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
    found = ironic.list(resource_class=node_class,
                          marker=five[2]['instance_uuid'])
    assert found == five[3:]
    assert ironic.list(resource_class=node_class,
                         marker=five[2]['instance_uuid'].upper()) == five[3:]


@pytest.mark.parametrize('fields', [
    *KEYS, 'host,state', 'state, host', ','.join(KEYS)])
def test_fields(ironic, five, node_class, fields):
    # Ironic's own resources always show their links, too.
    wanted = {field.strip() for field in fields.split(',')} | {'links'}
    whole = ironic.show(five[0]['instance_uuid'])
    expected = {key: whole[key] for key in wanted}
    assert ironic.list(host='b', fields=fields) == [expected]
    response = ironic.http.get(f'{OURS}/{whole["instance_uuid"]}',
                               params={'fields': fields})
    answers.check(response, 200)
    assert response.json() == expected


def test_limit_is_capped(start, five, node_class):
    with start({'api': {'max_limit': 3}}) as capped:
        for query in {}, {'limit': 1000}:
            found = list(capped.pages(
                OURS, 'reservations', resource_class=node_class, **query))
            assert [len(page) for page in found] == [3, 2]
