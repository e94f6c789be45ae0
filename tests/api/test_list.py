# SPDX-License-Identifier: Apache-2.0
"""Lists: filters, pages, fields."""

import datetime
import uuid

import pytest

from tests.common import contract
from tests.common import service

OURS = service.OURS
KEYS = ['instance_uuid', 'node_uuid', 'node_name', 'host', 'state',
        'provision_state', 'resource_class', 'health', 'maintenance',
        'project_id', 'user_id', 'request_spec', 'expires_at', 'description',
        'created_at', 'updated_at', 'links', 'notices']

POOL = [{'name': f'pool-{number}'} for number in range(5)]


@pytest.fixture
def five(ironic, pool, node_class):
    """Five reservations as a list shows them, different for each filter."""
    reservations = [ironic.create(resource_class=node_class,
                                  candidate_nodes=[f'pool-{number}'], **body)
                    for number, body in enumerate((
                        {'host': 'b', 'project_id': 'p1', 'user_id': 'u2'},
                        {'host': 'a', 'project_id': 'p2', 'user_id': 'u1'},
                        {'host': 'B', 'project_id': 'p1'},
                        {'host': 'a', 'user_id': 'u2'},
                        {}))]
    return [{name: value for name, value in reservation.items()
             if name not in ('request_spec', 'notices', 'more_notices')}
            for reservation in reservations]


@pytest.mark.on('sqlite', 'server')
def test_expires_before(ironic, pool, node_class):
    """Seconds from now, or a time; only reserved nodes have a lease."""
    soon, later, in_use, endless = (
        ironic.create(resource_class=node_class, expires_in=seconds)
        for seconds in (600, 7200, 600, None))
    ironic.set_node(in_use['node_uuid'], provision_state='active')

    def find(moment):
        return [row['instance_uuid'] for row in ironic.list(
            resource_class=node_class, expires_before=moment)]

    assert find('300') == find('0') == find('2001-01-01T00:00Z') == []
    both = [soon['instance_uuid'], later['instance_uuid']]
    assert find('3600') == both[:1] and find('86400') == both
    moment = datetime.datetime.fromisoformat(later['expires_at'])
    assert find(moment.isoformat()) == both[:1]
    east = moment.astimezone(datetime.timezone(datetime.timedelta(hours=5)))
    for later_moment in (
            (east + datetime.timedelta(seconds=1)).isoformat(),
            f'{moment + datetime.timedelta(seconds=1):%Y%m%dT%H%M%SZ}',
            '9999-12-31T00:00Z'):
        assert find(later_moment) == both
    assert endless['expires_at'] is None


def test_members_of_a_group(ironic, pool, node_class):
    group, other = str(uuid.uuid4()), str(uuid.uuid4())
    members = [ironic.create(resource_class=node_class, group={'uuid': name})
               for name in (group, other, group)]
    ironic.create(resource_class=node_class)
    assert [row['instance_uuid'] for row in ironic.list(
        group=group.upper(), limit=1)] == [members[0]['instance_uuid']]
    assert [row['instance_uuid'] for row in ironic.list(group=group)] == [
        member['instance_uuid'] for member in members[::2]]
    assert ironic.list(group=str(uuid.uuid4())) == []


@pytest.mark.on('sqlite', 'server')
def test_list_filters(ironic, five, node_class):
    def indexes(**query):
        reservations = ironic.list(resource_class=node_class, **query)
        return [five.index(reservation) for reservation in reservations]

    assert indexes() == [0, 1, 2, 3, 4]
    assert indexes(host='a') == [1, 3]
    assert indexes(host='b') == [0]
    assert indexes(host='B') == [2]
    assert indexes(host='c') == indexes(node='pool') == []
    assert indexes(host='a ') == []
    assert indexes(project_id='p1') == [0, 2]
    assert indexes(project_id='P1') == []
    assert indexes(project_id='p1', host='b') == [0]
    assert indexes(node='pool-4') == [4]
    assert indexes(node=five[3]['node_uuid']) == [3]
    assert indexes(node='nobody') == []
    assert indexes(state='reserved') == [0, 1, 2, 3, 4]
    ironic.set_node(five[1]['node_uuid'], provision_state='active')
    assert [reservation['instance_uuid'] for reservation in ironic.list(
        state='active', resource_class=node_class, host='a')] == [
            five[1]['instance_uuid']]
    assert ironic.list(resource_class='elsewhere') == []
    assert ironic.list() == ironic.list(resource_class=node_class)


@pytest.mark.on('sqlite', 'server')
def test_filters_are_normalized(ironic, five, node_class):
    """Like the same values in a request."""
    for name in 'Gold.1', 'gold-1', ' góld 1':
        ironic.set_node(five[0]['node_uuid'], resource_class=name)
        classes = {'CUSTOM_GOLD_1': 1, 'gold.1': 1, 'GOLD 1': 1,
                   'CUSTOM_GOLD_2': 0, node_class.upper(): 4}
        if 'ó' in name:
            classes = {name: 1, 'CUSTOM_GOLD_1': 0, 'CUSTOM_G_LD_1': 0,
                       '_G_LD_1': 1}
        for text, number in classes.items():
            assert len(ironic.list(resource_class=text)) == number, text
    assert ironic.list(node=' pool-4 ') == five[4:]
    ironic.set_node(five[0]['node_uuid'], resource_class=node_class)


def test_list_is_sorted_by_several_keys(ironic, five, node_class):
    expected = sorted(range(5), reverse=True)
    expected.sort(key=lambda number: five[number]['host'] or '')
    result = ironic.pages(
        OURS, 'reservations', resource_class=node_class, limit=2,
        sort_key='host,created_at,id', sort_dir='asc,desc')
    assert [five.index(row) for page in result for row in page] == expected


def test_next_keeps_the_query(ironic, five, node_class):
    response = ironic.http.get(OURS, params={
        'resource_class': node_class, 'limit': 1, 'host': 'a',
        'fields': 'host,node_name', 'sort_dir': 'desc'})
    page = response.json()
    assert page['next'].startswith(f'{ironic.url}{OURS}?')
    last = ironic.http.get(page['next']).json()
    assert 'next' not in last
    assert set(last['reservations'][0]) == {'host', 'node_name', 'links'}
    assert last['reservations'][0]['links'] == five[1]['links']


def test_marker_and_limit(ironic, five, node_class):
    rows = ironic.list(resource_class=node_class,
                       marker=five[2]['instance_uuid'])
    assert rows == five[3:]
    assert ironic.list(resource_class=node_class,
                       marker=five[2]['instance_uuid'].upper()) == five[3:]


@pytest.mark.parametrize('fields', [
    *KEYS, 'host,state', 'state, host', ','.join(KEYS)])
def test_fields(ironic, five, node_class, fields):
    # Ironic's own resources also always show their links.
    names = {field.strip() for field in fields.split(',')} | {'links'}
    if 'notices' in names:
        names.add('more_notices')
    whole = ironic.show(five[0]['instance_uuid'])
    expected = {key: whole[key] for key in names}
    assert ironic.list(host='b', fields=fields) == [expected]
    response = ironic.http.get(f'{OURS}/{whole["instance_uuid"]}',
                               params={'fields': fields})
    contract.check(response, 200)
    assert response.json() == expected


def test_max_limit(start, five, node_class):
    with start({'api': {'max_limit': 3}}) as application:
        for query in {}, {'limit': 1000}:
            result = list(application.pages(
                OURS, 'reservations', resource_class=node_class, **query))
            assert [len(page) for page in result] == [3, 2]
