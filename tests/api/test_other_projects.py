# SPDX-License-Identifier: Apache-2.0
"""Reservations and nodes of other projects, and unowned nodes.

The nodes are defined in tests.common.personas.
"""

import json
import uuid

import pytest

from tests.common import application
from tests.common import contract
from tests.common import personas

OURS, ANY = personas.OURS, personas.ANY
GROUPS = f'{OURS}/groups'
RENEW = [{'op': 'replace', 'path': '/expires_in', 'value': 60}]


@pytest.mark.parametrize('persona, projects', [
    ('system-reader', {'a', 'b', 'none'}), ('system-service',
                                            {'a', 'b', 'none'}),
    ('elevated-service', {'a', 'b', 'none'}), ('a-admin', {'a'}),
    ('a-reader', {'a'}), ('b-member', {'b'}), ('service', set())])
def test_list(cloud, persona, projects):
    def list_uuids(**query):
        return {row['instance_uuid']
                for row in cloud.get(persona, OURS, **query)['reservations']}
    uuids = {cloud.names[name] for name in projects}
    assert list_uuids() == uuids
    for query in ({'host': 'h'}, {'state': 'reserved'},
                  {'resource_class': 'gold'}, {'sort_key': 'project_id'}):
        assert list_uuids(**query) == uuids
    for name, node in (('a', 'of-a-1'), ('b', 'of-b-1'), ('none', 'free-1')):
        assert list_uuids(node=node) == {cloud.names[name]} & uuids


# Neither a response nor its time may depend on whether a UUID exists. The
# time depends on the statements, which must be the same.

INSTANCES = {
    'show': ('GET', '/{}', None),
    'show a field': ('GET', '/{}?fields=host', None),
    'renew': ('PATCH', '/{}', RENEW),
    'renew of a host': ('PATCH', '/{}?host=h', RENEW),
    'release': ('DELETE', '/{}', None),
    'release of a host': ('DELETE', '/{}?host=h', None),
    'list': ('GET', '?marker={}', None),
    'claim': ('POST', '', {**ANY, 'claim': '{}'}),
}
GROUP = {
    'show group': ('GET', '/groups/{}', None),
    'release group': ('DELETE', '/groups/{}', None),
    'list groups': ('GET', '/groups?marker={}', None),
    'claim': INSTANCES['claim'],
}


def observe(cloud, persona, call, uuid):
    """Return status, error and statements of a request, without the UUID."""
    method, path, body = call
    if isinstance(body, dict):
        body = {**body, 'claim': uuid}
    with application.record_statements() as statements:
        response = cloud.request(persona, method, OURS + path.format(uuid),
                                 json=body)
    status = response.status_code
    assert status in (400, 404) and statements or status == 403
    return status, contract.check(response, status).replace(
        uuid, 'UUID'), statements


@pytest.mark.parametrize('persona, others', [
    ('a-member', ['b', 'none']), ('b-member', ['a', 'none']),
    ('service', ['a', 'b', 'none']), ('domain-admin', ['a', 'b', 'none']),
    ('unscoped', ['a', 'b', 'none'])])
@pytest.mark.parametrize('call', INSTANCES.values(), ids=INSTANCES)
def test_instance_of_another_project(cloud, persona, others, call):
    instances = [cloud.names[name] for name in others]
    if 'a' in others:
        instances.append(
            cloud.hold('a-member', expires_in=600)['instance_uuid'])
    before = cloud.ironic.state()
    expected = observe(cloud, persona, call, str(uuid.uuid4()))
    for instance in instances:
        assert observe(cloud, persona, call, instance) == expected
    assert cloud.ironic.state() == before


@pytest.mark.parametrize('call', GROUP.values(), ids=GROUP)
def test_group_of_another_project(cloud, call):
    group_uuid = str(uuid.uuid4())
    cloud.call('a-member', 201, 'POST', GROUPS, json={
        'uuid': group_uuid, 'members': 2, 'request': ANY})
    before = cloud.ironic.state()
    assert (observe(cloud, 'b-member', call, group_uuid)
            == observe(cloud, 'b-member', call, str(uuid.uuid4())))
    assert cloud.ironic.state() == before


def test_all_conflicts_have_one_error(cloud):
    reservation = cloud.hold('b-member')
    other = str(uuid.uuid4())
    cloud.set_node('free-2', instance_uuid=other)
    before = cloud.ironic.state()
    faults = {
        cloud.call('a-member', 409, 'POST', OURS, json={
            **body, 'instance_uuid': instance}).replace(instance, 'UUID')
        for instance, body in [
            (cloud.names['a'], {'memory_mb': 2}),
            (cloud.names['b'], {'memory_mb': 2}),
            (reservation['instance_uuid'], reservation['request_spec']),
            (cloud.names['none'], ANY), (other, ANY)]}
    assert cloud.ironic.state() == before
    fault, = faults
    for hint in (*cloud.nodes, *cloud.nodes.values(),
                 *cloud.projects.values()):
        assert hint not in fault


def test_node_of_another_project(cloud):
    """Neither a refusal nor a dry run depends on whether a node exists."""
    def verdict(query, node):
        response = cloud.callers['a-member'].post(
            f'{OURS}{query}', json={'candidate_nodes': [node]})
        return response.status_code, response.text.replace(node, 'NODE')
    b_uuid = next(ident for ident, name in cloud.nodes.items()
                  if name == 'of-b-2')
    for query in '', '?dry_run=true':
        verdicts = {verdict(query, node) for node in (
            'nobody', str(uuid.uuid4()), 'of-b-1', 'of-b-2', b_uuid,
            'free-2')}
        assert len(verdicts) == 1


@pytest.mark.parametrize('persona, considered, free', [
    ('system-admin', 8, 5), ('elevated-service', 8, 5), ('a-member', 4, 3),
    ('b-member', 2, 1)])
def test_explanation_counts_what_the_caller_may_see(cloud, persona,
                                                    considered, free):
    fault = cloud.request(persona, 'POST', OURS, json={'memory_mb': 1025})
    contract.check(fault, 422)
    dry_run = cloud.request(persona, 'POST', f'{OURS}?dry_run=true',
                            json={'memory_mb': 1025})
    explanation = fault.json()['explanation']
    assert explanation == dry_run.json()['explanation']
    assert explanation['considered'] == considered
    assert sum(row['nodes'] for row in explanation['eliminated']) == considered
    assert explanation['nearest']['nodes'] == free
    assert f'of {considered} nodes' in json.loads(
        fault.json()['error_message'])['faultstring']


@pytest.mark.parametrize('persona, nodes', [
    ('system-reader', 3), ('a-reader', 1), ('b-member', 1), ('service', 0)])
def test_capacity_of_a_host(
        cloud, persona, nodes):
    response = cloud.request(persona, 'GET', f'{OURS}/capacity?host=h',
                             headers={'Cache-Control': 'no-cache'})
    contract.check(response, 200)
    assert sum(row['held'] for row in response.json()['capacity']) == nodes


def test_dry_run_shows_own_profiles(cloud):
    dry_run = cloud.request('a-member', 'POST', f'{OURS}?dry_run=true',
                            json=ANY).json()
    a = cloud.projects['a']
    assert {(row['owner'], row['lessee'])
            for row in dry_run['profiles']} == {(a, None), ('lessor', a)}


# Projects that may hold unowned nodes

UNOWNED = {**ANY, 'ownership': 'project_or_none'}


@pytest.fixture
def open_rule(cloud, policy):
    policy({'baremetal:reservation:create_unowned': 'role:member'})


def post(cloud, persona, status, body, path=OURS):
    response = cloud.request(persona, 'POST', path, json=body)
    contract.check(response, status)
    return response.json()


@pytest.mark.parametrize('persona', ['a-admin', 'a-member', 'b-member',
                                     'service-admin'])
def test_unowned_nodes_are_refused_by_default(cloud, persona):
    before = cloud.ironic.state()
    for path, body in ((OURS, UNOWNED), (f'{OURS}?dry_run=true', UNOWNED),
                       (GROUPS, {'members': 1, 'request': UNOWNED})):
        fault = cloud.call(persona, 403, 'POST', path, json=body)
        assert 'create_unowned' in fault
    assert cloud.ironic.state() == before


@pytest.mark.parametrize('persona, body', [
    ('a-reader', UNOWNED), ('a-member', {**ANY, 'ownership': 'any'}),
    # Its role is not enough.
    ('service', UNOWNED), ('domain-member', UNOWNED), ('unscoped', UNOWNED),
])
def test_unowned_rule_allows_nothing_else(cloud, open_rule, persona, body):
    before = cloud.ironic.state()
    cloud.call(persona, 403, 'POST', OURS, json=body)
    assert cloud.ironic.state() == before


def test_unowned_nodes_are_visible(cloud, open_rule):
    capacity = cloud.request('a-member', 'GET', f'{OURS}/capacity', headers={
        'Cache-Control': 'no-cache'}).json()['capacity']
    assert {(row['owner'], row['lessee']) for row in capacity} == {
        (None, None), (cloud.projects['a'], None),
        ('lessor', cloud.projects['a'])}
    # A reader does not have the role that the rule requires.
    assert len(cloud.get('a-reader', f'{OURS}/capacity')['capacity']) == 2
    dry_run = post(cloud, 'a-member', 200, ANY, f'{OURS}?dry_run=true')
    assert dry_run['explanation']['considered'] == 6
    # One of the two unowned nodes is reserved, as is one of the project's.
    assert dry_run['explanation']['eliminated'] == [
        {'by': 'ownership=project', 'nodes': 1},
        {'by': 'reserved', 'nodes': 2}]
    assert dry_run['matching_nodes'] == 3
    dry_run = post(cloud, 'a-member', 200, UNOWNED, f'{OURS}?dry_run=true')
    assert dry_run['matching_nodes'] == 4
    # Their reservations are not visible.
    cloud.call('a-member', 404, 'GET', f'{OURS}/{{none}}')


@pytest.mark.parametrize('persona, body, kinds', [
    ('a-member', UNOWNED, {'free', 'of-a', 'leased-to-a'}),
    ('a-member', ANY, {'of-a', 'leased-to-a'}),
    ('a-member', {**ANY, 'ownership': 'project'}, {'of-a', 'leased-to-a'}),
    ('b-member', UNOWNED, {'free', 'of-b'}),
    ('service-member', UNOWNED, {'free'}),
    ('service-member', ANY, set()),
])
def test_all_unowned_nodes_can_be_held(cloud, open_rule, persona, body, kinds):
    nodes = []
    while (response := cloud.request(persona, 'POST', OURS, json=body)
           ).status_code == 201:
        nodes.append(response.json()['node_uuid'])
    contract.check(response, 422)
    assert cloud.kinds(nodes) == kinds


@pytest.fixture
def set_free(cloud):
    yield lambda **columns: cloud.set_node('free-2', **columns)
    cloud.set_node('free-2', owner=None, lessee=None)


@pytest.mark.parametrize('column', ['owner', 'lessee'])
@pytest.mark.parametrize('project', ['b', ''])
def test_node_with_an_owner_or_a_lessee_is_not_unowned(
        cloud, open_rule, set_free, column, project):
    set_free(**{column: project})
    post(cloud, 'a-member', 422, {**UNOWNED, 'candidate_nodes': ['free-2']})


def test_reservation_outlasts_the_unowned_rule(cloud, policy, open_rule):
    body = {**UNOWNED, 'candidate_nodes': ['free-2'],
            'instance_uuid': str(uuid.uuid4())}
    post(cloud, 'a-member', 201, body)
    # The ownership is part of the request.
    post(cloud, 'a-member', 409, {**body, 'ownership': 'project'})
    policy({})
    post(cloud, 'a-member', 403, body)
    cloud.call('a-member', 204, 'DELETE',
               f'{OURS}/{body["instance_uuid"]}')


def test_unowned_group_and_claim(cloud, open_rule):
    group = {'uuid': str(uuid.uuid4()), 'members': 2,
             'request': {**UNOWNED, 'candidate_nodes': ['free-2', 'of-a-2']}}
    post(cloud, 'a-member', 201, group, GROUPS)
    post(cloud, 'b-member', 404, {**UNOWNED, 'claim': group['uuid']})
    for _ in range(2):
        post(cloud, 'a-member', 201, {**UNOWNED, 'claim': group['uuid']})
