# SPDX-License-Identifier: Apache-2.0
"""Notices and cordons: /v1/reservations/notices."""

import concurrent.futures
import datetime
import threading
import uuid

import pytest

from ironic_reservations.reservations import targets
from tests.common import application
from tests.common import contract

OURS = '/v1/reservations'
NOTICES = f'{OURS}/notices'
RACK = 'capability:rack'


@pytest.fixture
def nodes(ironic, node_class):
    """Three equal nodes, two of them in rack r1 and one in r2."""
    with ironic.fleet(*(
            {'name': f'{node_class}-{number}', 'resource_class': node_class,
             'properties': {'memory_mb': 1024,
                            'capabilities': f'rack:{rack}'}}
            for number, rack in enumerate(('r1', 'r1', 'r2')))) as nodes:
        yield nodes
    ironic.execute('DELETE FROM reservations_notices')


def post(ironic, status=201, **body):
    response = ironic.http.post(NOTICES, json={'kind': 'maintenance', **body})
    fault = contract.check(response, status)
    return response.json()['notices'] if fault is None else fault


def patch(ironic, uuid, status=200, query='', **values):
    response = ironic.http.patch(f'{NOTICES}/{uuid}{query}', json=[
        {'op': 'add', 'path': f'/{name}', 'value': value}
        if value is not None else {'op': 'remove', 'path': f'/{name}'}
        for name, value in values.items()])
    fault = contract.check(response, status)
    return response.json()['notices'] if fault is None else fault


def get(ironic, **query):
    response = ironic.http.get(NOTICES, params=query)
    contract.check(response, 200)
    return response.json()['notices']


def set_time(ironic, column, seconds=0):
    """Let all notices begin or end some seconds from now."""
    ironic.execute(f'UPDATE reservations_notices SET {column} = '
                   + ironic.clock(seconds))


def count(ironic, node_class):
    row, = ironic.capacity(resource_class=node_class, by='resource_class')
    return row


def from_now(ironic, seconds):
    return (ironic.now() + datetime.timedelta(0, seconds)).isoformat()


def test_notice(ironic, nodes):
    notice, = post(ironic, nodes=[nodes[0].name], ticket='RMA-1',
                   category='gpu', description='Replace a fan')
    assert notice == {
        'uuid': notice['uuid'], 'kind': 'maintenance', 'cordon': True,
        'state': 'open', 'node_uuid': nodes[0].id, 'node_name': nodes[0].name,
        'starts_at': notice['created_at'], 'ends_at': None,
        'category': 'gpu', 'description': 'Replace a fan', 'ticket': 'RMA-1',
        'action': None, 'created_by': None,
        'created_at': notice['created_at'], 'updated_at': None}
    assert get(ironic, uuid=notice['uuid'].upper()) == [notice]


@pytest.mark.parametrize('kind, cordon', [
    ('maintenance', True), ('retirement', True), ('fault', False)])
def test_default_of_cordon(ironic, nodes, kind, cordon):
    notice, = post(ironic, kind=kind, nodes=[nodes[0].id.upper()])
    assert notice['cordon'] is cordon
    notice, = post(ironic, kind=kind, nodes=[nodes[0].id],
                   cordon=not cordon)
    assert notice['cordon'] is not cordon


@pytest.mark.on('sqlite', 'server')
def test_cordon_keeps_holds_off(ironic, nodes, node_class):
    hold = ironic.create(resource_class=node_class,
                         candidate_nodes=[nodes[2].id])
    cordons = post(ironic, nodes=[node.id for node in nodes])
    response = ironic.http.post(OURS, json={'resource_class': node_class})
    contract.check(response, 422)
    assert response.json()['explanation']['eliminated'][-2:] == [
        {'by': 'reserved', 'nodes': 1}, {'by': 'cordoned', 'nodes': 2}]
    row = count(ironic, node_class)
    assert (row['free'], row['reserved'], row['out_of_service'],
            row['claimable']) == (0, 1, 2, 0)
    # The reservation continues, but cannot be claimed.
    repeat = {'resource_class': node_class, 'expires_in': 60,
              'candidate_nodes': [nodes[2].id]}
    ironic.create(200, instance_uuid=hold['instance_uuid'], **repeat)
    response = ironic.http.post(OURS, json={'claim': hold['instance_uuid']})
    contract.check(response, 422)
    assert response.json()['explanation']['eliminated'] == [
        {'by': 'cordoned', 'nodes': 1}]
    patch(ironic, cordons[0]['uuid'], ends_at='now')
    ironic.create(claim=hold['instance_uuid'])
    for _ in range(2):
        ironic.create(resource_class=node_class)


@pytest.mark.on('sqlite', 'server')
def test_states_follow_the_clock(ironic, nodes, node_class):
    notice, = post(ironic, nodes=[nodes[0].id], ends_at=from_now(
        ironic, 3600), starts_at=from_now(ironic, 1800))
    assert notice['state'] == 'planned'
    assert not get(ironic, state='open', node=nodes[0].id)
    assert get(ironic, state='planned', node=nodes[0].name) == [notice]
    row = count(ironic, node_class)
    assert row['free'] == 3
    set_time(ironic, 'starts_at')
    assert get(ironic, node=nodes[0].id)[0]['state'] == 'open'
    row = count(ironic, node_class)
    assert (row['free'], row['out_of_service']) == (2, 1)
    set_time(ironic, 'ends_at')
    assert get(ironic, state='closed', kind='maintenance',
               node=nodes[0].id)[0]['state'] == 'closed'
    row = count(ironic, node_class)
    assert row['free'] == 3


def test_domain(ironic, nodes):
    notices = post(ironic, by={RACK: 'r1'})
    assert {notice['node_uuid'] for notice in notices} == {
        nodes[0].id, nodes[1].id}
    assert {notice['uuid'] for notice in notices} == {notices[0]['uuid']}
    text = post(ironic, 400, by={RACK: 'r9'})
    assert text.startswith('by: ') and '"r9"' in text


@pytest.mark.parametrize('properties, by', [
    ({'capabilities': 'gpu,uefi'}, {'capability:gpu': 'true'}),
    ({'cpu_arch': 'amd64'}, {'capability:cpu_arch': 'x86_64'})],
    ids=['no-value', 'architecture'])
def test_value_that_the_node_does_not_state(ironic, nodes, node_class,
                                            properties, by):
    with ironic.fleet({'resource_class': node_class,
                       'properties': properties}) as [node]:
        assert [notice['node_uuid'] for notice in post(ironic, by=by)] == [
            node.id]


@pytest.mark.on('sqlite', 'server')
def test_repeat(ironic, nodes):
    body = {'uuid': str(uuid.uuid4()), 'ends_at': from_now(ironic, 60),
            'nodes': [nodes[1].id, nodes[0].name, nodes[0].id]}
    notices = post(ironic, **body)
    assert [notice['node_uuid'] for notice in notices] == [
        nodes[0].id, nodes[1].id]
    set_time(ironic, 'ends_at', -5)
    repeat = post(ironic, 200, **{**body, 'uuid': body['uuid'].upper()},
                  cordon=True)
    assert [notice['created_at'] for notice in repeat] == [
        notice['created_at'] for notice in notices]
    assert {notice['state'] for notice in repeat} == {'closed'}
    for change in ({'nodes': [nodes[2].id]}, {'cordon': False},
                   {'ticket': 'T'}, {'ends_at': None}):
        assert body['uuid'] in post(ironic, 409, **{**body, **change})
    assert len(get(ironic)) == 2


@pytest.mark.on('server')
def test_one_request_with_a_uuid_at_the_same_time(ironic, nodes):
    """All read that there is none, and one of them may create notices."""
    barrier = threading.Barrier(len(nodes), timeout=60)

    def create(node, name):
        barrier.wait()
        return ironic.http.post(NOTICES, json={
            'uuid': name, 'kind': 'fault', 'nodes': [node.id]}).status_code

    with concurrent.futures.ThreadPoolExecutor(len(nodes)) as executor:
        for _ in range(10):
            statuses = list(executor.map(
                create, nodes, [str(uuid.uuid4())] * len(nodes)))
            assert sorted(statuses) == [201, 409, 409]


def test_all_nodes_or_none(ironic, nodes):
    text = post(ironic, 400, nodes=[nodes[0].id, 'nonsense'])
    assert text.startswith('nodes.1: ') and 'nonsense' in text
    assert not get(ironic)


def test_times_in_the_wrong_order(ironic, nodes):
    for times in ({'ends_at': from_now(ironic, -1)},
                  {'starts_at': from_now(ironic, 60),
                   'ends_at': from_now(ironic, 60)}):
        assert post(ironic, 400, nodes=[nodes[0].id], **times).startswith(
            'ends_at: must be later than starts_at and than now')


@pytest.mark.on('sqlite', 'server')
def test_update(ironic, nodes):
    notices = post(ironic, by={RACK: 'r1'}, cordon=False)
    name = notices[0]['uuid']
    notices = patch(ironic, name, ticket='T', action='Replaced', cordon=True)
    assert [(notice['ticket'], notice['action'], notice['cordon'])
            for notice in notices] == [('T', 'Replaced', True)] * 2
    one, = patch(ironic, name, query=f'?node={nodes[0].name}', ends_at='now')
    assert (one['node_uuid'], one['state']) == (nodes[0].id, 'closed')
    # All change, or none.
    assert nodes[0].id in patch(ironic, name, 409, cordon=False, ticket='U')
    assert {notice['ticket'] for notice in get(ironic, uuid=name)} == {'T'}
    # The texts of a closed notice change.
    patch(ironic, name, ticket=None)
    assert get(ironic, ticket='T') == []
    patch(ironic, str(uuid.uuid4()), 404, ticket='T')
    patch(ironic, name, 404, query='?node=nonsense', ticket='T')
    for values in ({'cordon': None}, {'starts_at': None},
                   {'ends_at': from_now(ironic, -60)}, {'kind': 'fault'}):
        patch(ironic, name, 400, query=f'?node={nodes[1].id}', **values)


def test_pages(ironic, nodes):
    notices = [post(ironic, nodes=[nodes[0].id])[0] for _ in range(5)]
    pages = list(ironic.pages(NOTICES, 'notices', limit=2))
    assert [len(page) for page in pages] == [2, 2, 1]
    assert sum(pages, []) == notices
    assert get(ironic, marker=notices[2]['uuid'].upper()) == notices[3:]


@pytest.mark.on('sqlite', 'server')
def test_notices_outlive_their_node(ironic, node_class):
    with ironic.fleet({'name': 'gone-1', 'resource_class': node_class}):
        notice, = post(ironic, nodes=['gone-1'])
        ironic.execute("DELETE FROM nodes WHERE name = 'gone-1'")
        for node in 'gone-1', notice['node_uuid'], notice['node_uuid'].upper():
            assert get(ironic, node=node) == [notice]
        # SQLite gives the id of the deleted node to the new one.
        with ironic.fleet({'name': 'new', 'resource_class': node_class}):
            assert get(ironic, node='new') == []
            assert get(ironic, node='gone-1') == [notice]
            ironic.create(resource_class=node_class)
            patch(ironic, notice['uuid'], action='Scrapped', ends_at='now')


# Failed builds

@pytest.mark.on('sqlite', 'server')
def test_failed_build(ironic, nodes, start):
    notice, = post(ironic, kind='fault', category='build',
                   nodes=[nodes[0].id], description='No port')
    ends_at = datetime.datetime.fromisoformat(notice['ends_at'])
    assert 3500 < (ends_at - ironic.now()).total_seconds() <= 3600
    set_time(ironic, 'ends_at', 5)
    again, = post(ironic, 200, kind='fault', category='build',
                  nodes=[nodes[0].id], description='No port again')
    assert again['uuid'] == notice['uuid']
    assert again['description'] == 'No port again'
    ends_at = datetime.datetime.fromisoformat(again['ends_at'])
    assert 3500 < (ends_at - ironic.now()).total_seconds() <= 3600
    with start({'reservations': {'avoid_failed': 0}}) as other:
        assert post(other, 200, kind='fault', category='build',
                    nodes=[nodes[1].id]) == []
    assert len(get(ironic)) == 1


def test_failed_build_ends_no_notice_of_an_operator(ironic, nodes):
    """Notices that an operator has prolonged or cordoned stay unchanged."""
    build = {'kind': 'fault', 'category': 'build', 'nodes': [nodes[0].id]}
    notice, = post(ironic, **build)
    patch(ironic, notice['uuid'], ends_at=from_now(ironic, 86400))
    again, = post(ironic, 200, **build)
    ends_at = datetime.datetime.fromisoformat(again['ends_at'])
    assert (ends_at - ironic.now()).total_seconds() > 80000
    patch(ironic, notice['uuid'], ends_at='now')
    cordon, = post(ironic, **build, cordon=True)
    assert cordon['ends_at'] is None
    other, = post(ironic, **build)
    assert other['uuid'] != cordon['uuid']
    assert get(ironic, uuid=cordon['uuid']) == [cordon]


@pytest.mark.parametrize('limit, pages', [(1, 2), (2, 3)])
def test_domain_is_read_page_by_page(ironic, nodes, monkeypatch, limit,
                                     pages):
    """Not further than to the first node that is too many."""
    monkeypatch.setattr(targets, 'NODES_AT_ONCE', 1)
    with application.set_options({'reservations': {'max_members': limit}}), \
            application.record_statements() as statements:
        result = post(ironic, 400 if limit == 1 else 201, by={RACK: 'r1'})
    assert [' LIMIT ' in text and 'conductor_group' in text
            for text in statements].count(True) == pages
    if limit == 1:
        assert result == ('by: must be at most 1 nodes, see [reservations] '
                          'max_members')
    else:
        assert [notice['node_name'] for notice in result] == [
            node.name for node in nodes[:2]]


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('by', [
    'shard', 'conductor_group', RACK, 'trait:CUSTOM_'])
def test_domain_without_nodes(ironic, nodes, by):
    """Old databases refuse to compare this character."""
    assert 'must name a' in post(ironic, 400, by={by: '\U0001f600'})
