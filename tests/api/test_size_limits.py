# SPDX-License-Identifier: Apache-2.0
"""Limits of the size of requests, rows and responses."""

import json
import urllib.parse
import uuid

import pytest

from ironic_reservations.matching import nodes
from tests.common import application
from tests.common import command
from tests.common import contract
from tests.common import service

OURS = service.OURS
GROUPS = f'{OURS}/groups'
RACK = 'capability:rack'

#: Maximum size of a response in bytes.
MAX_BYTES = 4 * 2 ** 20

#: Nodes of two racks.
POOL = [{'properties': {'memory_mb': 1024,
                        'capabilities': f'rack:r{number % 2}'}}
        for number in range(100)]

#: Makes a request as long as it may be.
LONG = {f'quota:{number}': 'x' * 1000 for number in range(60)}


@pytest.fixture(autouse=True)
def no_groups(ironic):
    yield
    for table in 'groups', 'pools', 'pool_nodes', 'notices':
        ironic.execute(f'DELETE FROM reservations_{table}')


def create(ironic, node_class, members, status=201, **more):
    """Create a group with a long request; return the response."""
    response = ironic.http.post(GROUPS, json={
        'members': members, **more,
        'request': {'resource_class': node_class, 'extra_specs': LONG}})
    contract.check(response, status)
    return response


def get(ironic, url, **query):
    response = ironic.http.get(url, params=query)
    contract.check(response, 200)
    assert len(response.content) <= MAX_BYTES
    return response.json()


def pages(ironic, url, key, **query):
    """Yield the items of a list, page by page."""
    page = get(ironic, url, **query)
    yield page[key]
    while 'next' in page:
        page = get(ironic, page['next'])
        yield page[key]


def instances(rows):
    return [row['instance_uuid'] for row in rows]


def test_group_stores_a_digest_of_its_request(ironic, pool, node_class):
    group = str(uuid.uuid4())
    create(ironic, node_class, 1, uuid=group)
    (digest,), = ironic.execute(
        'SELECT request_digest FROM reservations_groups WHERE uuid = :u',
        u=group)
    assert len(digest) == 64
    create(ironic, node_class, 1, 200, uuid=group)
    response = ironic.http.post(GROUPS, json={
        'uuid': group, 'members': 1, 'request': {
            'resource_class': node_class,
            'extra_specs': {**LONG, 'quota:0': 'y'}}})
    contract.check(response, 409)


def test_group_does_not_repeat_its_request(ironic, pool, node_class):
    response = create(ironic, node_class, 100, policy='soft-spread', by=RACK)
    assert len(response.content) < 100_000
    repeat = create(ironic, node_class, 100, 200, uuid=response.json()['uuid'],
                    policy='soft-spread', by=RACK)
    group = get(ironic, f'{GROUPS}/{response.json()["uuid"]}')
    assert repeat.json() == response.json() == {
        **group, 'ignored': sorted(LONG)}
    assert 'next' not in group and len(group['reservations']) == 100
    assert not any('request_spec' in row for row in group['reservations'])
    row, = get(ironic, GROUPS)['groups']
    del group['reservations']
    assert row == {**group, 'members': 100, 'domains': [
        {'value': 'r0', 'nodes': 50}, {'value': 'r1', 'nodes': 50}]}


def test_long_page_is_cut(ironic, pool, node_class):
    group = create(ironic, node_class, 100).json()
    expected = instances(group['reservations'])
    short, = pages(ironic, OURS, 'reservations', resource_class=node_class)
    assert instances(short) == expected
    assert not any('request_spec' in row for row in short)
    query = {'resource_class': node_class, 'sort_dir': 'desc',
             'fields': 'instance_uuid,request_spec'}
    for limit in {}, {'limit': 1000}:
        result = list(pages(ironic, OURS, 'reservations', **query, **limit))
        assert len(result) == 2
        # The first page is used for the most part.
        assert len(json.dumps(result[0])) > MAX_BYTES / 2
        rows = sum(result, [])
        assert instances(rows) == expected[::-1]
        assert all(row['request_spec']['extra_specs'] == LONG
                   for row in rows)
    page = get(ironic, OURS, **query, limit=10)
    assert instances(page['reservations']) == expected[:-11:-1]


def test_group_too_large_for_a_response(ironic, pool, node_class):
    """Such a group arises when many members join one by one."""
    host = '\U0001F600' * 250
    response = create(ironic, node_class, 100, host=host)
    group = response.json()
    ironic.execute('UPDATE reservations SET domain = :d', d='x' * 60_000)
    url = f'{GROUPS}/{group["uuid"]}'
    result = list(pages(ironic, url, 'reservations'))
    assert len(result) > 1
    assert instances(sum(result, [])) == instances(group['reservations'])
    page = get(ironic, url, marker=instances(result[0])[0].upper())
    assert instances(page['reservations'])[0] == instances(result[0])[1]
    response = ironic.http.get(url, params={'marker': str(uuid.uuid4())})
    assert contract.check(response, 400).startswith('marker: ')
    repeat = create(ironic, node_class, 100, 200, uuid=group['uuid'],
                    host=host)
    assert len(repeat.content) <= MAX_BYTES
    first_page = get(ironic, url)
    assert repeat.json() == {**first_page, 'ignored': sorted(LONG)}
    assert urllib.parse.urlsplit(repeat.json()['next']).path == url


def test_pool_too_large_for_a_response(ironic, pool, node_class):
    """Users write long texts about its nodes."""
    url = f'{OURS}/pools'
    response = ironic.http.post(url, json={
        'project_id': 'p', 'members': 100,
        'request': {'resource_class': node_class}})
    contract.check(response, 201)
    nodes, url = response.json()['nodes'], f'{url}/{response.json()["uuid"]}'
    text = '\U0001F600' * 255
    for _ in range(10):
        contract.check(ironic.http.post(f'{OURS}/notices', json={
            'kind': 'fault', 'nodes': [node['uuid'] for node in nodes],
            'description': text, 'ticket': text}), 201)
    result = list(pages(ironic, url, 'nodes'))
    assert len(result) == 2
    assert [node['uuid'] for node in sum(result, [])] == [
        node['uuid'] for node in nodes]
    page = get(ironic, url, marker=nodes[49]['uuid'].upper())
    assert page['nodes'][0]['uuid'] == nodes[50]['uuid']
    assert page['summary']['total'] == 100
    assert command.get_data(command.run(
        ironic.url, 'baremetal', 'reservation', 'pool', 'show',
        response.json()['uuid'], '-f', 'json'))['nodes'] == sum(result, [])
    response = ironic.http.get(url, params={'marker': str(uuid.uuid4())})
    assert contract.check(response, 400).startswith('marker: ')


def test_many_notices_of_a_pool_node(ironic, pool, node_class):
    response = ironic.http.post(f'{OURS}/pools', json={
        'project_id': 'p', 'members': 2,
        'request': {'resource_class': node_class}})
    contract.check(response, 201)
    nodes = [node['uuid'] for node in response.json()['nodes']]
    contract.check(ironic.http.post(f'{OURS}/notices', json={
        'kind': 'fault', 'nodes': nodes[:1]}), 201)
    columns = ', '.join((
        'node_id', 'node_uuid', 'kind', 'cordon', 'starts_at',
        'is_failed_build', 'request_digest', 'created_at'))
    for number in range(6):
        ironic.execute(
            f'INSERT INTO reservations_notices (uuid, number, {columns}) '
            f'SELECT uuid, number + {2 ** number}, {columns} '
            f'FROM reservations_notices')
    result = sum(pages(ironic, f'{OURS}/pools/{response.json()["uuid"]}',
                       'nodes'), [])
    assert [node['uuid'] for node in result] == nodes
    assert [(len(node['notices']), node['more_notices'])
            for node in result] == [(32, 32), (0, 0)]


def lengthen_domains(ironic):
    """Put each member into its own domain, with a very long name."""
    ironic.execute('UPDATE reservations SET domain = ' + (
        "printf('%d%.*c', id, 60000, 'x')"
        if 'sqlite' in ironic.database_url else
        "CONCAT(id, REPEAT('x', 60000))"))


def test_list_of_groups_in_many_domains(ironic, pool, node_class):
    uuids = [create(ironic, node_class, 20, policy='soft-spread', by=RACK
                    ).json()['uuid'] for _ in range(5)]
    lengthen_domains(ironic)
    result = list(pages(ironic, GROUPS, 'groups'))
    assert [len(page) for page in result] == [3, 2]
    groups = sum(result, [])
    assert [group['uuid'] for group in groups] == uuids
    assert [(group['members'], len(group['domains']))
            for group in groups] == [(20, 20)] * 5


def test_group_in_too_many_domains(ironic, pool, node_class):
    create(ironic, node_class, 100, policy='soft-spread', by=RACK)
    lengthen_domains(ironic)
    group, = get(ironic, GROUPS)['groups']
    assert group['members'] == 100 and 60 < len(group['domains']) < 100


def test_dry_run_of_many_long_profiles(ironic, node_class):
    """Each node has a profile, with a very long capability."""
    spec = {'resource_class': f'{node_class}.long'}
    nodes = [{**spec, 'properties': {
        'memory_mb': 1024, 'capabilities': f'rack:{number}{"x" * 60_000}'}}
        for number in range(100, 200)]
    with ironic.fleet(*nodes):
        for url, body in (OURS, spec), (GROUPS, {
                'members': 2, 'policy': 'soft-spread', 'by': RACK,
                'request': spec}):
            response = ironic.http.post(url, json=body,
                                        params={'dry_run': 'true'})
            contract.check(response, 200)
            assert MAX_BYTES / 2 < len(response.content) <= MAX_BYTES
            verdict = response.json()
            assert verdict['matching_nodes'] == 100
            assert 10 < len(verdict['profiles']) < 100


@pytest.mark.parametrize('url, query, unread', [
    (OURS, {}, ['request_spec', 'notices', 'volume_targets']),
    (OURS, {'fields': 'host,node_uuid'}, ['request_spec', 'user_id', 'lock']),
    (GROUPS, {}, ['request_spec', 'host', 'user_id', 'updated_at'])], ids=str)
def test_list_reads_only_its_fields(ironic, pool, node_class, url, query,
                                    unread):
    create(ironic, node_class, 3, policy='pack', by=RACK)
    with application.record_statements() as statements:
        assert get(ironic, url, **query)
    read = ' '.join(statement.partition('FROM')[0] for statement in statements)
    assert 'reservations' in read
    assert not [name for name in unread if f'.{name}' in read]


# Queries, headers and values of nodes

@pytest.mark.parametrize('more, matching_nodes', [(0, 1), (1, 0)])
def test_longest_value_of_a_node(ironic, node_class, more, matching_nodes):
    spec = {'resource_class': f'{node_class}.value'}
    value = 'a' * (nodes.LONGEST_VALUE + more)
    with ironic.fleet({**spec, 'properties': {'capabilities': f'k:{value}'}}):
        response = ironic.http.post(f'{OURS}?dry_run=true', json={
            **spec, 'extra_specs': {'capabilities:k': '<in> a'}})
    contract.check(response, 200)
    assert response.json()['matching_nodes'] == matching_nodes


@pytest.mark.parametrize('length, field', [(16384, 'a'), (16385, 'query')])
def test_limit_of_a_query(ironic, length, field):
    fault = contract.check(
        ironic.http.get(f'{OURS}?a='.ljust(length + len(OURS) + 1, 'b')), 400)
    assert fault.startswith(f'{field}: ')


@pytest.mark.parametrize('header', ['Content-Type', 'Accept', 'X-Whatever'])
def test_limit_of_a_header(ironic, header):
    fault = contract.check(ironic.http.get(
        OURS, headers={header: 'a' * 16385}), 400)
    assert fault.startswith(f'{header}: must be at most 16384')
    contract.check(ironic.http.get(OURS, headers={header: 'a' * 16384}), 200)


@pytest.mark.parametrize('number, status, matching', [
    (1023, 200, 1), (1024, 400, None)])
def test_longest_list_of_candidates(ironic, pool, number, status, matching):
    """The database accepts it."""
    body = {'candidate_nodes': [pool[0].id, *map(str, range(number))]}
    response = ironic.http.post(f'{OURS}?dry_run=true', json=body)
    contract.check(response, status)
    assert response.json().get('matching_nodes') == matching
    if matching:
        assert ironic.create(**body)['node_uuid'] == pool[0].id
