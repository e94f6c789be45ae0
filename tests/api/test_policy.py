# SPDX-License-Identifier: Apache-2.0
"""Every request with the token of every caller."""

import collections
import re
import uuid

import pytest

from ironic_reservations import policy as rules
from ironic_reservations.api import routes
from tests.common import command
from tests.common import contract
from tests.common import personas

OURS, ANY = personas.OURS, personas.ANY


@pytest.mark.parametrize('persona, call, status', personas.rows())
def test_each_call_of_each_caller(cloud, persona, call, status):
    method, path, *body = personas.CALLS[call]
    response = cloud.request(persona, method, path,
                             json=body[0] if body else None)
    contract.check(response, status)
    assert (cloud.ironic.state() != cloud.before) == (
        method != 'GET' and call != 'dry-run' and status < 300)


@pytest.mark.parametrize('persona', personas.NODES)
def test_capacity(cloud, persona):
    kinds = personas.NODES[persona]
    capacity = cloud.request(persona, 'GET', f'{OURS}/capacity', headers={
        'Cache-Control': 'no-cache'}).json()['capacity']
    assert sum(row['total'] for row in capacity) == 2 * len(kinds)
    assert len(capacity) == len(kinds)
    # Also from the cache, which was filled for another caller.
    assert cloud.get(persona, f'{OURS}/capacity')['capacity'] == capacity


def test_capacity_by_project(cloud):
    """A project gets its own row: its reservations, of whichever nodes."""
    a, b = cloud.projects['a'], cloud.projects['b']
    cloud.hold('system-admin', project_id=a, candidate_nodes=['of-b-2'])
    cloud.set_node('of-b-1', maintenance=True)

    def count(persona, **query):
        return {row['project_id']: (row['total'], row['free'], row['healthy'])
                for row in cloud.request(
                    persona, 'GET', f'{OURS}/capacity', params={
                        'by': 'project_id', **query},
                    headers={'Cache-Control': 'no-cache'}).json()['capacity']}

    # There are open notices of the nodes reserved for A and for no project.
    everything = {a: (2, 0, 1), b: (1, 0, 0), None: (5, 4, 4)}
    own = {'a-admin': {a: (2, 0, 1)}, 'a-member': {a: (2, 0, 1)},
           'a-reader': {a: (2, 0, 1)}, 'b-member': {b: (1, 0, 0)},
           'service': {}}
    for persona in personas.NODES:
        assert count(persona) == own.get(persona, everything), persona
    assert count('a-member', resource_class='other') == {}
    assert count('system-reader', resource_class='other') == {}
    # From the cache, too, which was filled for another caller.
    row, = cloud.get('b-member', f'{OURS}/capacity', by='project_id')[
        'capacity']
    assert row['project_id'] == b
    cloud.set_node('of-b-1', maintenance=False)


def test_node_that_the_project_may_not_see(cloud):
    """A node of B is shown to A only as hardware."""
    a, b = cloud.projects['a'], cloud.projects['b']
    cloud.hold('system-admin', project_id=a, candidate_nodes=['of-b-2'])
    cloud.set_node('of-b-2', shard='s1', conductor_group='g1', properties=(
        '{"memory_mb": 1024, "capabilities": "rack:r1"}'))
    keys = ['project_id', 'owner', 'lessee', 'shard', 'conductor_group',
            'pool_project_id', 'capability:rack', 'resource_class']

    def count(persona, **query):
        return sorted((row['owner'] or '', *(row[key] for key in keys[3:-1]),
                       row['total'])
                      for row in cloud.request(
                          persona, 'GET', f'{OURS}/capacity', params={
                              'by': keys, **query},
                          headers={'Cache-Control': 'no-cache'}
                          ).json()['capacity'] if row['project_id'] == a)

    visible = (a, None, '', None, None, 1)
    assert count('system-reader', shard='s1') == [
        (b, 's1', 'g1', None, 'r1', 1)]
    assert count('a-member') == [('', None, None, None, 'r1', 1), visible]
    for query in {'shard': 's1'}, {'conductor_group': 'g1'}:
        assert count('a-member', **query) == []
    assert count('a-member', conductor_group='') == [visible]
    cloud.set_node('of-b-2', shard=None, conductor_group='',
                   properties='{"memory_mb": 1024}')


@pytest.mark.parametrize('persona', [
    persona for persona in personas.NODES
    if persona not in ('system-reader', 'a-reader', 'service')])
def test_all_nodes_of_a_caller(cloud, persona):
    kinds = personas.NODES[persona]
    dry_run = cloud.request(persona, 'POST', f'{OURS}?dry_run=true',
                            json=ANY).json()
    holds = []
    while True:
        response = cloud.callers[persona].post(OURS, json=ANY)
        if response.status_code != 201:
            break
        holds.append(response.json())
    contract.check(response, 422)
    number = sum(kind in kinds for kind in ('free', 'of-a', 'of-b'))
    assert len(holds) == dry_run['matching_nodes'] == 2 * len(kinds) - number
    assert cloud.kinds(hold['node_uuid'] for hold in holds) == kinds
    assert response.json()['explanation'] == {
        'considered': 2 * len(kinds),
        'eliminated': [{'by': 'reserved', 'nodes': 2 * len(kinds)}]}
    role, scope = personas.PERSONAS.get(persona, ('service', 'service'))
    for hold in holds:
        assert hold['project_id'] == cloud.projects.get(scope)
        assert hold['user_id'] == cloud.users[persona]
        assert hold['host'] is None


# host, project_id and user_id

@pytest.mark.parametrize('persona', ['a-admin', 'a-member', 'b-member'])
@pytest.mark.parametrize('key', ['host', 'project_id', 'user_id'])
def test_project_cannot_set_host_project_or_user(cloud, persona, key):
    before = cloud.ironic.state()
    own = {'project_id': cloud.projects[persona[0]],
           'user_id': cloud.users[persona]}
    for value in 'x', own.get(key, 'h'):
        for query in '', '?dry_run=true':
            fault = cloud.call(persona, 403, 'POST', f'{OURS}{query}',
                               json={**ANY, key: value})
            assert key in fault
    assert cloud.ironic.state() == before
    # null has no effect.
    assert cloud.hold(persona, **{key: None})['user_id'] == own['user_id']


@pytest.mark.parametrize('persona', ['a-admin', 'a-member'])
def test_project_cannot_avoid_nodes(cloud, persona):
    assert cloud.call(persona, 403, 'POST', OURS, json={
        **ANY, 'avoid': []}).startswith('avoid: ')
    cloud.hold(persona, avoid=None)


@pytest.mark.parametrize('persona', [
    'system-member', 'system-service', 'elevated-service'])
def test_compute_service_sets_host_project_and_user(cloud, persona):
    project, user = cloud.projects['a'], cloud.users['a-member']
    hold = cloud.hold(persona, host='compute-1', project_id=project,
                      user_id=user, candidate_nodes=['free-2'],
                      avoid=[user])
    assert (hold['host'], hold['project_id'], hold['user_id']) == (
        'compute-1', project, user)
    # The project sees the reservation, but not its node.
    path = f'{OURS}/{hold["instance_uuid"]}'
    assert cloud.get('a-reader', path)['node_name'] == 'free-2'
    cloud.call('b-member', 404, 'GET', path)
    cloud.call('a-member', 409, 'DELETE', path)
    cloud.call(persona, 204, 'DELETE', path)


def test_reservation_of_a_service_without_a_project(cloud):
    hold = cloud.hold('elevated-service')
    assert hold['project_id'] == cloud.projects['service']
    assert hold['user_id'] == cloud.users['service']
    # Even without elevated access, the service sees its own reservation.
    rows = cloud.get('service', OURS)['reservations']
    assert [row['instance_uuid'] for row in rows] == [
        hold['instance_uuid']]
    cloud.call('service', 403, 'DELETE', rows[0]['links'][0]['href'])


# Nodes in maintenance

@pytest.mark.parametrize('persona, status', [
    ('system-admin', 204), ('system-member', 204), ('system-service', 204),
    ('elevated-service', 204), ('system-reader', 403), ('a-admin', 409),
    ('a-member', 409), ('a-reader', 403), ('b-member', 404),
    ('service', 404)])
def test_active_node_in_maintenance(cloud, persona, status):
    cloud.set_node('of-a-1', provision_state='active', maintenance=True)
    cloud.call(persona, status, 'DELETE', f'{OURS}/{{a}}')


def test_active_node_is_not_released(cloud):
    cloud.set_node('of-a-1', provision_state='active')
    for persona in 'system-admin', 'elevated-service', 'a-member':
        cloud.call(persona, 409, 'DELETE', f'{OURS}/{{a}}')


# The policy file of Ironic

def test_policy_without_create(cloud, policy):
    policy({'baremetal:reservation:create': '!'})
    for persona in 'system-admin', 'system-service', 'a-member':
        for query in '', '?dry_run=true':
            cloud.call(persona, 403, 'POST', f'{OURS}{query}', json=ANY)
        cloud.get(persona, OURS)
    policy({})
    cloud.hold('a-member')


def test_command_without_permission_to_list(cloud, policy):
    policy({'baremetal:reservation:list': '!'})
    caller = cloud.callers['a-member']
    unknown = str(uuid.uuid4())
    result = command.run(
        caller.url, 'baremetal', 'reservation', 'group', 'show', unknown,
        OS_AUTH_TYPE='admin_token', OS_TOKEN=caller.headers['X-Auth-Token'])
    assert result.returncode == 1
    # The error is not that Ironic lacks the plugin.
    assert result.stderr.startswith(f'No group {unknown} could be found.')


def test_policy_with_more_permissions(cloud, policy):
    policy({f'baremetal:reservation:{rule}': 'role:admin'
            for rule in ('list_all', 'get', 'create_restricted')})
    assert len(cloud.get('a-admin', OURS)['reservations']) == 3
    assert cloud.get('a-admin', OURS, project_id=cloud.projects['b'])
    assert cloud.get('a-admin', f'{OURS}/{{b}}')
    assert cloud.hold('a-admin', host='x', project_id='p',
                      candidate_nodes=['of-b-2'])['project_id'] == 'p'
    # The admin sees it, but may not release it.
    cloud.call('a-admin', 403, 'DELETE', f'{OURS}/{{b}}')
    cloud.call('a-member', 403, 'GET', f'{OURS}/{{a}}')
    cloud.call('a-member', 404, 'GET', f'{OURS}/{{b}}')


@pytest.mark.parametrize('persona', ['service-admin', 'a-member'])
def test_hint_about_system_scope(cloud, persona):
    """A compute service whose user has project scope, not system scope."""
    fault = contract.check(cloud.request(
        persona, 'POST', OURS, json={'memory_mb': 2 ** 30}), 422)
    assert ('compute services need a user with system scope' in fault) == (
        persona == 'service-admin')


# How often oslo.policy is asked

CALLS = personas.CALLS | {
    'adopt': ('POST', f'{OURS}?adopt=true', {'instance_uuid': str(
        uuid.uuid4()), 'host': 'h'})}


def find_route(method, path):
    """Return the route of a request, as the table of routes chooses it."""
    return method, next(route for route in routes.ROUTES if re.fullmatch(
        re.sub(r'{\w+}', '[^/]+', route), path.partition('?')[0]))


def test_every_route_has_a_call():
    assert {find_route(*call[:2]) for call in CALLS.values()} == {
        (method, route) for route, handlers in routes.ROUTES.items()
        for method in handlers}


@pytest.mark.parametrize('persona', ['system-member', 'a-member'])
@pytest.mark.parametrize('call', CALLS)
def test_each_rule_is_enforced_once(cloud, monkeypatch, persona, call):
    """At most once in general, and once about each node or reservation."""
    enforcer, counts = rules.get_enforcer(), collections.Counter()
    enforce = enforcer.enforce

    def count(rule, target, *args, **kwargs):
        counts[rule, *map(target.get, (
            'reservation.project_id', 'node.owner'))] += 1
        return enforce(rule, target, *args, **kwargs)

    monkeypatch.setattr(enforcer, 'enforce', count)
    method, path, *body = CALLS[call]
    cloud.request(persona, method, path, json=body[0] if body else None)
    assert set(counts.values()) <= {1}, counts
    # An unknown pool is a 404 for everybody.
    assert counts or '/pools/' in path
