# SPDX-License-Identifier: Apache-2.0
"""What is stored of a request, and shown of it, has a bound."""

import json
import urllib.parse
import uuid

import pytest

from ironic_reservations.matching import node as nodes
from tests.common import answers
from tests.common import application
from tests.common import service

OURS = service.OURS
GROUPS = f'{OURS}/groups'
RACK = 'capability:rack'

#: The most bytes of an answer.
MOST = 4 * 2 ** 20

#: Nodes of two racks.
POOL = [{'properties': {'memory_mb': 1024,
                        'capabilities': f'rack:r{each % 2}'}}
        for each in range(100)]

#: With it a request is as long as it may be.
LONG = {f'quota:{number}': 'x' * 1000 for number in range(60)}


@pytest.fixture(autouse=True)
def no_groups(ironic):
    yield
    ironic.execute('DELETE FROM reservations_groups')


def create(ironic, node_class, members, status=201, **more):
    """POST of a group whose members' request is long."""
    response = ironic.http.post(GROUPS, json={
        'members': members, **more,
        'request': {'resource_class': node_class, 'extra_specs': LONG}})
    answers.check(response, status)
    return response


def get(ironic, url, **query):
    response = ironic.http.get(url, params=query)
    answers.check(response, 200)
    assert len(response.content) <= MOST
    return response.json()


def pages(ironic, url, key, **query):
    """What a list has, page by page."""
    page = get(ironic, url, **query)
    yield page[key]
    while 'next' in page:
        page = get(ironic, page['next'])
        yield page[key]


def instances(rows):
    return [each['instance_uuid'] for each in rows]


def test_little_is_stored_of_a_group(ironic, pool, node_class):
    """Enough to tell the same request from another one."""
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
    answers.check(response, 409)


def test_group_does_not_repeat_its_request(ironic, pool, node_class):
    made = create(ironic, node_class, 100, policy='soft-spread', by=RACK)
    assert len(made.content) < 100_000
    again = create(ironic, node_class, 100, 200, uuid=made.json()['uuid'],
                   policy='soft-spread', by=RACK)
    shown = get(ironic, f'{GROUPS}/{made.json()["uuid"]}')
    assert again.json() == made.json() == {**shown, 'ignored': sorted(LONG)}
    assert 'next' not in shown and len(shown['reservations']) == 100
    assert not any('request_spec' in each for each in shown['reservations'])
    listed, = get(ironic, GROUPS)['groups']
    del shown['reservations']
    assert listed == {**shown, 'members': 100, 'domains': [
        {'value': 'r0', 'nodes': 50}, {'value': 'r1', 'nodes': 50}]}


def test_page_ends_before_it_is_too_long(ironic, pool, node_class):
    made = instances(create(ironic, node_class, 100).json()['reservations'])
    short, = pages(ironic, OURS, 'reservations', resource_class=node_class)
    assert instances(short) == made
    assert not any('request_spec' in each for each in short)
    query = {'resource_class': node_class, 'sort_dir': 'desc',
             'fields': 'instance_uuid,request_spec'}
    for limit in {}, {'limit': 1000}:
        found = list(pages(ironic, OURS, 'reservations', **query, **limit))
        assert len(found) == 2
        # There is room for most of them on the first.
        assert len(json.dumps(found[0])) > MOST / 2
        rows = sum(found, [])
        assert instances(rows) == made[::-1]
        assert all(each['request_spec']['extra_specs'] == LONG
                   for each in rows)
    ten = get(ironic, OURS, **query, limit=10)
    assert instances(ten['reservations']) == made[:-11:-1]


def test_group_too_large_for_an_answer(ironic, pool, node_class):
    """As one that many have joined, one by one."""
    host = '\U0001F600' * 250
    response = create(ironic, node_class, 100, host=host)
    made = response.json()
    ironic.execute('UPDATE reservations SET domain = :d', d='x' * 60_000)
    url = f'{GROUPS}/{made["uuid"]}'
    found = list(pages(ironic, url, 'reservations'))
    assert len(found) > 1
    assert instances(sum(found, [])) == instances(made['reservations'])
    more = get(ironic, url, marker=instances(found[0])[0].upper())
    assert instances(more['reservations'])[0] == instances(found[0])[1]
    response = ironic.http.get(url, params={'marker': str(uuid.uuid4())})
    assert answers.check(response, 400).startswith('marker: ')
    again = create(ironic, node_class, 100, 200, uuid=made['uuid'], host=host)
    assert len(again.content) <= MOST
    shown = get(ironic, url)
    assert again.json() == {**shown, 'ignored': sorted(LONG)}
    assert urllib.parse.urlsplit(again.json()['next']).path == url


def state_domains(ironic):
    """Let each member be in a domain of its own, with a very long name."""
    ironic.execute('UPDATE reservations SET domain = ' + (
        "printf('%d%.*c', id, 60000, 'x')"
        if 'sqlite' in ironic.database_url else
        "CONCAT(id, REPEAT('x', 60000))"))


def test_list_of_groups_in_many_domains(ironic, pool, node_class):
    made = [create(ironic, node_class, 20, policy='soft-spread', by=RACK
                   ).json()['uuid'] for _ in range(5)]
    state_domains(ironic)
    found = list(pages(ironic, GROUPS, 'groups'))
    assert [len(page) for page in found] == [3, 2]
    groups = sum(found, [])
    assert [each['uuid'] for each in groups] == made
    assert [(each['members'], len(each['domains']))
            for each in groups] == [(20, 20)] * 5


def test_group_in_too_many_domains(ironic, pool, node_class):
    create(ironic, node_class, 100, policy='soft-spread', by=RACK)
    state_domains(ironic)
    group, = get(ironic, GROUPS)['groups']
    assert group['members'] == 100 and 60 < len(group['domains']) < 100


def test_dry_run_of_many_long_profiles(ironic, node_class):
    """Each node has a profile, with a very long capability."""
    spec = {'resource_class': f'{node_class}.long'}
    nodes = [{**spec, 'properties': {
        'memory_mb': 1024, 'capabilities': f'rack:{each}{"x" * 60_000}'}}
        for each in range(100, 200)]
    with ironic.fleet(*nodes):
        for url, body in (OURS, spec), (GROUPS, {
                'members': 2, 'policy': 'soft-spread', 'by': RACK,
                'request': spec}):
            response = ironic.http.post(url, json=body,
                                        params={'dry_run': 'true'})
            answers.check(response, 200)
            assert MOST / 2 < len(response.content) <= MOST
            found = response.json()
            assert found['matching_nodes'] == 100
            assert 10 < len(found['profiles']) < 100


@pytest.mark.parametrize('url, query, left_out', [
    (OURS, {}, ['request_spec', 'maintenance', 'volume_targets']),
    (OURS, {'fields': 'host,node_uuid'}, ['request_spec', 'user_id', 'lock']),
    (GROUPS, {}, ['request_spec', 'host', 'user_id', 'updated_at'])], ids=str)
def test_list_reads_what_it_shows(ironic, pool, node_class, url, query,
                                  left_out):
    create(ironic, node_class, 3, policy='pack', by=RACK)
    with application.record_statements() as found:
        assert get(ironic, url, **query)
    read = ' '.join(each.partition('FROM')[0] for each in found)
    assert 'reservations' in read
    assert not [name for name in left_out if f'.{name}' in read]


# Queries, headers and what a node's owner writes

@pytest.mark.parametrize('more, matching_nodes', [(0, 1), (1, 0)])
def test_longest_value_of_a_node(ironic, node_class, more, matching_nodes):
    spec = {'resource_class': f'{node_class}.value'}
    value = 'a' * (nodes.LONGEST_VALUE + more)
    with ironic.fleet({**spec, 'properties': {'capabilities': f'k:{value}'}}):
        response = ironic.http.post(f'{OURS}?dry_run=true', json={
            **spec, 'extra_specs': {'capabilities:k': '<in> a'}})
    answers.check(response, 200)
    assert response.json()['matching_nodes'] == matching_nodes


@pytest.mark.parametrize('length, field', [(16384, 'a'), (16385, 'query')])
def test_query_is_bounded(ironic, length, field):
    fault = answers.check(
        ironic.http.get(f'{OURS}?a='.ljust(length + len(OURS) + 1, 'b')), 400)
    assert fault.startswith(f'{field}: ')


@pytest.mark.parametrize('header', ['Content-Type', 'Accept', 'X-Whatever'])
def test_header_is_bounded(ironic, header):
    fault = answers.check(ironic.http.get(
        OURS, headers={header: 'a' * 16385}), 400)
    assert fault.startswith(f'{header}: must be at most 16384')
    answers.check(ironic.http.get(OURS, headers={header: 'a' * 16384}), 200)
