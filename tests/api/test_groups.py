# SPDX-License-Identifier: Apache-2.0
"""Groups of reservations: create, join, list, release, claim."""

import collections
import uuid

import pytest

from tests.common import application
from tests.common import bad_requests
from tests.common import contract
from tests.common import service

OURS = service.OURS
GROUPS = f'{OURS}/groups'
RACK = 'capability:rack'


def node(rack=None, **columns):
    capabilities = f'rack:{rack}' if rack else ''
    return {'properties': {'memory_mb': 1024, 'capabilities': capabilities},
            **columns}


#: Three free nodes in r1, two in r2 and one in no rack.
POOL = [node('r1'), node('r1'), node('r1'), node('r2'), node('r2'), node()]


@pytest.fixture(autouse=True)
def no_groups(ironic):
    yield
    ironic.execute('DELETE FROM reservations_groups')


def new_uuid():
    return str(uuid.uuid4())


def create(ironic, node_class, members, status=201, query='', **more):
    """Create a group; return it, or the text of the error."""
    response = ironic.http.post(GROUPS + query, json={
        'members': members, 'request': {'resource_class': node_class},
        **more})
    fault = contract.check(response, status)
    return response.json() if fault is None else fault


def show(ironic, group, status=200):
    return ironic.show(f'groups/{group}', status)


def release(ironic, group, status=204):
    return ironic.delete(f'groups/{group}', status)


def domains(reservations):
    """Count the members of each domain."""
    return collections.Counter(row['group']['domain']
                               for row in reservations)


def is_empty(ironic):
    return not ironic.rows() and not ironic.execute(
        'SELECT uuid FROM nodes WHERE instance_uuid IS NOT NULL')


# Create

def test_group(ironic, pool, node_class):
    response = ironic.http.post(GROUPS, json={
        'members': 2, 'policy': 'pack', 'by': RACK, 'expires_in': 600,
        'host': 'compute-1', 'project_id': 'p', 'user_id': 'u',
        'description': 'd', 'request': {'resource_class': node_class}})
    contract.check(response, 201)
    group = response.json()
    assert response.headers['Location'] == (
        f'{ironic.url}{GROUPS}/{group["uuid"]}')
    assert list(group) == ['uuid', 'policy', 'by', 'project_id',
                           'description', 'created_at', 'health',
                           'reservations']
    assert (group['policy'], group['by'], group['project_id'],
            group['description']) == ('pack', RACK, 'p', 'd')
    one, other = group['reservations']
    assert one['group'] == {'uuid': group['uuid'], 'policy': 'pack',
                            'by': RACK, 'domain': 'r2'}
    assert other['group'] == one['group']
    for member in one, other:
        whole = ironic.show(member['instance_uuid'])
        assert whole.pop('request_spec') == {'resource_class': node_class}
        assert (whole.pop('notices'), whole.pop('more_notices')) == ([], 0)
        assert member == whole
        assert (member['host'], member['project_id'], member['user_id']) == (
            'compute-1', 'p', 'u')
        # The description is the group's.
        assert member['description'] is None
        seconds = ironic.seconds_left(member)
        assert 590 <= seconds <= 600
        assert (ironic.find_instance(member['node_uuid'])
                == member['instance_uuid'])
    assert show(ironic, group['uuid']) == group


def test_instances_of_the_caller(ironic, pool, node_class):
    instances = [new_uuid(), new_uuid()]
    group = create(ironic, node_class,
                   [instances[0].upper(), instances[1]])
    assert {member['instance_uuid'] for member in group['reservations']} == {
        *instances}
    # A group without a policy has no domains.
    for member in group['reservations']:
        assert member['group'] == {'uuid': group['uuid'], 'policy': None,
                                   'by': None, 'domain': None}


@pytest.mark.parametrize('policy, members, available, by, nearest', [
    ('pack', 4, 3, f'group:pack={RACK}', {
        'by': RACK, 'value': 'r1', 'nodes': 3}),
    (None, 7, 6, 'members=7', None)])
def test_refusal(ironic, pool, node_class, policy, members, available, by,
                 nearest):
    before = ironic.state()
    response = ironic.http.post(GROUPS, json={
        'members': members, 'policy': policy, 'by': policy and RACK,
        'request': {'resource_class': node_class}})
    text = contract.check(response, 422)
    assert f'{available} of {members} members' in text
    body = response.json()
    assert body['members'] == {'wanted': members, 'available': available}
    explanation = body['explanation']
    assert by in [row['by'] for row in explanation['eliminated']]
    assert explanation.get('nearest') == nearest
    assert ironic.state() == before and is_empty(ironic)
    assert ironic.execute('SELECT * FROM reservations_groups') == []


def test_refusal_for_the_request(ironic, pool, node_class):
    response = ironic.http.post(GROUPS, json={
        'members': 2, 'policy': 'pack', 'by': RACK,
        'request': {'resource_class': node_class, 'memory_mb': 4096}})
    contract.check(response, 422)
    body = response.json()
    assert body['members'] == {'wanted': 2, 'available': 0}
    # Without this constraint three of the six nodes could be members.
    assert body['explanation']['nearest'] == {'by': 'memory_mb>=4096',
                                              'nodes': 3}


def test_nearest_of_a_spread_counts_members(ironic, node_class):
    own_class, other_class = f'{node_class}.near', f'{node_class}.far'
    with ironic.fleet(*(
            {**node(rack), 'resource_class': name}
            for name in (own_class, other_class)
            for rack in ('r1', 'r1', 'r1', 'r2'))):
        body = {'members': 3, 'policy': 'spread', 'by': RACK}
        # Without the class there are four more nodes, and no more racks.
        explanation = check_refusal(ironic, {**body, 'request': {
            'resource_class': own_class}})['explanation']
        assert explanation['eliminated'][-1] == {
            'by': f'group:spread={RACK}', 'nodes': 4}
        assert 'nearest' not in explanation
        explanation = check_refusal(ironic, {**body, 'request': {
            'resource_class': own_class,
            'extra_specs': {'capabilities:rack': 'r2'}}})['explanation']
        assert explanation['nearest'] == {'by': 'capabilities:rack=r2',
                                          'nodes': 2}


def check_refusal(ironic, body):
    response = ironic.http.post(GROUPS, json=body)
    contract.check(response, 422)
    dry_run = ironic.http.post(f'{GROUPS}?dry_run=true', json=body).json()
    assert dry_run['explanation'] == response.json()['explanation']
    return response.json()


def test_dry_run(ironic, pool, node_class):
    result = create(ironic, node_class, 4, 200, '?dry_run=true', policy='pack',
                    by=RACK)
    assert result['members'] == {'wanted': 4, 'available': 3}
    assert result['domains'] == [{'value': 'r1', 'nodes': 3},
                                 {'value': 'r2', 'nodes': 2},
                                 {'value': None, 'nodes': 1}]
    assert result['matching_nodes'] == 6
    assert is_empty(ironic)


def test_repeat(ironic, pool, node_class):
    group = new_uuid()
    first = create(ironic, node_class, 5, uuid=group.upper(), expires_in=60,
                   policy='soft-pack', by=RACK)
    assert first['uuid'] == group
    repeat = create(ironic, node_class, 5, 200, uuid=group, expires_in=600,
                    policy='soft-pack', by=RACK)
    assert [member['node_uuid'] for member in repeat['reservations']] == [
        member['node_uuid'] for member in first['reservations']]
    for member in repeat['reservations']:
        assert ironic.seconds_left(member) > 500


@pytest.mark.parametrize('change', [
    {'policy': 'soft-spread'}, {'by': 'shard'}, {'project_id': 'q'},
    {'members': 3}, {'policy': None, 'by': None},
    {'request': {'memory_mb': 1}}], ids=str)
def test_another_request(ironic, pool, node_class, change):
    body = {'uuid': new_uuid(), 'members': 2, 'policy': 'soft-pack',
            'by': RACK, 'project_id': 'p',
            'request': {'resource_class': node_class}}
    contract.check(ironic.http.post(GROUPS, json=body), 201)
    before = ironic.state()
    text = contract.check(ironic.http.post(GROUPS, json=body | change), 409)
    assert body['uuid'] in text
    assert ironic.state() == before


def test_repeat_after_a_release(ironic, pool, node_class):
    group = create(ironic, node_class, 2)
    ironic.delete(group['reservations'][0]['instance_uuid'])
    create(ironic, node_class, 2, 409, uuid=group['uuid'])


def test_member_that_holds_a_node(ironic, pool, node_class):
    hold = ironic.create(resource_class=node_class)
    before = ironic.state()
    text = create(ironic, node_class, [hold['instance_uuid'], new_uuid()], 409)
    assert hold['instance_uuid'] in text
    assert ironic.state() == before


# Join

def test_members_one_by_one(ironic, pool, node_class):
    group = {'uuid': new_uuid(), 'policy': 'spread', 'by': RACK}

    def join(status=201, **more):
        return ironic.create(status, resource_class=node_class, group=group,
                             **more)

    one, other = join(), join()
    assert domains([one, other]) == {'r1': 1, 'r2': 1}
    response = ironic.http.post(OURS, json={
        'resource_class': node_class, 'group': group})
    contract.check(response, 422)
    assert response.json()['explanation']['nearest'] == {
        'by': f'group:spread={RACK}', 'nodes': 4}
    # They are in the order of the fleet.
    order = [node.id for node in pool]
    assert [member['node_uuid'] for member in show(
        ironic, group['uuid'])['reservations']] == sorted(
            (one['node_uuid'], other['node_uuid']), key=order.index)
    # The same request again.
    again = join(200, instance_uuid=one['instance_uuid'])
    assert again['node_uuid'] == one['node_uuid']
    ironic.delete(one['instance_uuid'])
    assert join()['group'] == one['group']


def test_dry_run_of_one_more(ironic, pool, node_class):
    group = {'uuid': new_uuid(), 'policy': 'pack', 'by': RACK}
    first = ironic.create(resource_class=node_class, group=group)
    assert first['group']['domain'] == 'r1'
    response = ironic.http.post(f'{OURS}?dry_run=true', json={
        'resource_class': node_class, 'group': group})
    contract.check(response, 200)
    assert response.json()['matching_nodes'] == 2


@pytest.mark.parametrize('change', [
    {'policy': 'soft-spread'}, {'by': 'shard'}, {'policy': None, 'by': None}],
    ids=str)
def test_first_member_sets_the_policy(ironic, pool, node_class, change):
    group = {'uuid': new_uuid(), 'policy': 'spread', 'by': RACK}
    ironic.create(resource_class=node_class, group=group)
    text = ironic.create(409, resource_class=node_class,
                         group={**group, **change})
    assert text == ironic.create(409, resource_class=node_class, group=group,
                                 project_id='another')


def test_group_without_members(ironic, pool, node_class):
    group = {'uuid': new_uuid(), 'policy': 'spread', 'by': RACK}
    hold = ironic.create(resource_class=node_class, group=group)
    ironic.delete(hold['instance_uuid'])
    show(ironic, group['uuid'], 404)
    release(ironic, group['uuid'], 404)
    again = ironic.create(resource_class=node_class,
                          group={**group, 'policy': 'pack'})
    assert again['group']['policy'] == 'pack'


@pytest.mark.parametrize('by, columns, domain', [
    ('conductor_group', {'conductor_group': 'Rack-1'}, 'rack-1'),
    ('shard', {'shard': 'Shard-1'}, 'Shard-1')])
def test_other_domains(ironic, node_class, by, columns, domain):
    with ironic.fleet(node(resource_class=node_class, **columns),
                      node(resource_class=node_class)):
        group = {'uuid': new_uuid(), 'policy': 'spread', 'by': by}
        hold = ironic.create(resource_class=node_class, group=group)
        assert hold['group']['domain'] == domain
        # The other node has no domain.
        ironic.create(422, resource_class=node_class, group=group)


# Lists and release

def test_list(ironic, pool, node_class):
    groups = [create(ironic, node_class, number) for number in (1, 2, 3)]
    rows = [{**{name: group[name] for name in (
        'uuid', 'policy', 'by', 'project_id', 'description',
        'created_at', 'health')},
        'members': number, 'domains': []}
        for number, group in enumerate(groups, 1)]

    def page(**query):
        response = ironic.http.get(GROUPS, params=query)
        contract.check(response, 200)
        return response.json()

    assert page() == {'groups': rows}
    first = page(limit=2)
    assert first['groups'] == rows[:2]
    assert first['next'].startswith(f'{ironic.url}{GROUPS}?limit=2&marker=')
    assert ironic.http.get(first['next']).json() == page(
        limit=2, marker=groups[1]['uuid'].upper()) == {'groups': rows[2:]}
    ironic.delete(groups[0]['reservations'][0]['instance_uuid'])
    assert page() == {'groups': rows[1:]}


def test_release(ironic, pool, node_class):
    group = create(ironic, node_class, 3)
    release(ironic, group['uuid'].upper())
    assert is_empty(ironic)
    assert ironic.execute('SELECT * FROM reservations_groups') == []
    release(ironic, group['uuid'], 404)


def test_partial_release(ironic, pool, node_class):
    group = create(ironic, node_class, 3)
    ironic.set_node(group['reservations'][1]['node_uuid'],
                    provision_state='active')
    text = release(ironic, group['uuid'], 409)
    assert '1 of 3 members' in text
    member, = show(ironic, group['uuid'])['reservations']
    assert member['node_uuid'] == group['reservations'][1]['node_uuid']


# Change

def change(ironic, group, status, *ops, **query):
    """Return the group, or the text of the error."""
    response = ironic.http.patch(f'{GROUPS}/{group}', json=list(ops),
                                 params=query)
    fault = contract.check(response, status)
    return response.json() if fault is None else fault


def test_change(ironic, pool, node_class):
    group = create(ironic, node_class, 3, expires_in=60, description='old')
    uuid_, (first, *_) = group['uuid'], group['reservations']
    ironic.set_node(first['node_uuid'], provision_state='active')
    now = change(ironic, uuid_.upper(), 200, bad_requests.lease(3600),
                 bad_requests.op('replace', '/description', 'new'))
    assert now == show(ironic, uuid_) and list(now) == list(group)
    assert now['description'] == 'new'
    with_lease = [member for member in now['reservations']
                  if member['expires_at']]
    assert first['instance_uuid'] not in {
        member['instance_uuid'] for member in with_lease}
    assert len(with_lease) == 2 and all(
        ironic.seconds_left(member) > 3500 for member in with_lease)
    assert {member['description'] for member in now['reservations']} == {None}
    now = change(ironic, uuid_, 200, bad_requests.op('remove', '/expires_in'),
                 bad_requests.op('remove', '/description'))
    assert now['description'] is None
    assert not any(member['expires_at'] for member in now['reservations'])


def test_change_without_free_members(ironic, pool, node_class):
    group = create(ironic, node_class, 2, host='compute-1')
    before = ironic.state()
    assert 'No member' in change(ironic, group['uuid'], 409,
                                 bad_requests.lease(60))
    assert ironic.state() == before
    change(ironic, group['uuid'], 200,
           bad_requests.op('add', '/description', 'x'))
    change(ironic, new_uuid(), 404, bad_requests.lease(60))
    change(ironic, group['uuid'], 400, bad_requests.lease(60), host='h')


# Claim

@pytest.mark.parametrize('by_group', [False, True])
def test_claim(ironic, pool, node_class, by_group):
    group = create(ironic, node_class, 2, policy='pack', by=RACK,
                   project_id='p', expires_in=60)
    members = {member['instance_uuid']: member
               for member in group['reservations']}
    instance = new_uuid()
    claim = group['uuid'] if by_group else next(iter(members))
    body = {'claim': claim.upper(), 'instance_uuid': instance,
            'project_id': 'p', 'host': 'compute-1',
            'resource_class': node_class, 'expires_in': 3600,
            'description': 'claimed'}
    response = ironic.http.post(OURS, json=body)
    contract.check(response, 201)
    reservation = response.json()
    assert reservation['description'] == 'claimed'
    assert response.headers['Location'] == f'{ironic.url}{OURS}/{instance}'
    member, = (member for member in members.values()
               if member['node_uuid'] == reservation['node_uuid'])
    if not by_group:
        assert member['instance_uuid'] == claim
    assert reservation['instance_uuid'] == instance
    assert reservation['host'] == 'compute-1'
    assert reservation['group'] == member['group']
    assert ironic.seconds_left(reservation) > 3000
    assert ironic.find_instance(reservation['node_uuid']) == instance
    ironic.show(member['instance_uuid'], 404)
    assert len(show(ironic, group['uuid'])['reservations']) == 2
    assert ironic.create(200, **body)['node_uuid'] == reservation['node_uuid']


@pytest.mark.parametrize(('description', 'expected'), [
    ({}, 'for demo'), ({'description': None}, 'for demo'),
    ({'description': 'server-1'}, 'server-1')])
def test_claim_keeps_the_description(ironic, pool, node_class, description,
                                     expected):
    first = ironic.create(resource_class=node_class, description='for demo')
    claim = ironic.create(resource_class=node_class,
                          claim=first['instance_uuid'], **description)
    assert claim['description'] == expected
    assert ironic.show(claim['instance_uuid'])['description'] == expected


@pytest.mark.parametrize('body, status', [
    ({}, 201), ({'memory_mb': 4096}, 422), ({'project_id': 'other'}, 404)],
    ids=str)
def test_claim_must_match(ironic, pool, node_class, body, status):
    first = ironic.create(resource_class=node_class)
    before = ironic.state()
    ironic.create(status, resource_class=node_class,
                  claim=first['instance_uuid'], **body)
    assert (ironic.state() == before) == (status != 201)


def test_claim_names_another_node(ironic, pool, node_class):
    """The node exists, although the claim could not take it."""
    hold = ironic.create(resource_class=node_class)
    [other] = [node.id for node in pool if node.id != hold['node_uuid']][:1]
    response = ironic.http.post(OURS, json={
        'claim': hold['instance_uuid'], 'candidate_nodes': [other]})
    contract.check(response, 422)
    assert 'unknown_nodes' not in response.json()['explanation']


def test_claim_of_a_reservation_with_a_host(ironic, pool, node_class):
    first = ironic.create(resource_class=node_class, host='compute-1')
    ironic.create(409, resource_class=node_class,
                  claim=first['instance_uuid'])
    group = create(ironic, node_class, 2, host='compute-1')
    ironic.create(409, resource_class=node_class, claim=group['uuid'])
    ironic.create(404, resource_class=node_class, claim=new_uuid())


# Ownership

@pytest.fixture
def own_class(ironic):
    """The resource class of four nodes."""
    mine = f'test.{new_uuid()}'
    with ironic.fleet(*(
            node(name=name, resource_class=mine, **whose)
            for name, whose in (('free', {}), ('own', {'owner': 'p'}),
                                ('leased', {'owner': 'q', 'lessee': 'p'}),
                                ('other', {'owner': 'q'})))):
        yield mine


@pytest.mark.parametrize('ownership, nodes', [
    (None, {'free', 'own', 'leased', 'other'}),
    ('any', {'free', 'own', 'leased', 'other'}),
    ('project', {'own', 'leased'}),
    ('project_or_none', {'free', 'own', 'leased'})])
def test_ownership(ironic, own_class, ownership, nodes):
    names = set()
    for _ in nodes:
        names.add(ironic.create(resource_class=own_class, project_id='p',
                                ownership=ownership)['node_name'])
    assert names == nodes
    if len(nodes) < 4:
        ironic.create(422, resource_class=own_class, project_id='p',
                      ownership=ownership)


# Callers

def test_group_of_a_project(cloud):
    response = cloud.callers['a-member'].post(GROUPS, json={
        'members': 2, 'request': {'memory_mb': 1}})
    contract.check(response, 201)
    group = response.json()
    assert group['project_id'] == cloud.projects['a']
    kinds = cloud.kinds(row['node_uuid'] for row in group['reservations'])
    assert kinds <= {'of-a', 'leased-to-a'}
    for persona, sees in (('a-reader', True), ('b-member', False),
                          ('system-reader', True)):
        rows = cloud.get(persona, GROUPS)['groups']
        assert (group['uuid'] in {row['uuid'] for row in rows}) == sees
    # Other callers: tests/api/test_policy.py.
    cloud.call('a-member', 204, 'DELETE', f'{GROUPS}/{group["uuid"]}')


def test_change_of_a_project(cloud):
    group = cloud.callers['a-member'].post(GROUPS, json={
        'members': 1, 'request': {'memory_mb': 1}}).json()
    path, body = f'{GROUPS}/{group["uuid"]}', [bad_requests.lease(60)]
    for persona, status in (('a-member', 200), ('a-reader', 403),
                            ('b-member', 404), ('system-reader', 403),
                            ('system-member', 200)):
        cloud.call(persona, status, 'PATCH', path, json=body)
    cloud.call('a-member', 204, 'DELETE', path)


def test_project_must_keep_a_lease(cloud):
    group = cloud.callers['a-member'].post(GROUPS, json={
        'members': 1, 'request': {'memory_mb': 1}, 'expires_in': 60}).json()
    path, body = f'{GROUPS}/{group["uuid"]}', [
        bad_requests.op('remove', '/expires_in')]
    with application.set_options({'reservations': {'require_lease': True}}):
        for method, url, data in (('PATCH', path, body), ('POST', GROUPS, {
                'members': 1, 'request': {'memory_mb': 1}})):
            assert '[reservations] require_lease' in cloud.call(
                'a-member', 400, method, url, json=data)
        cloud.call('system-member', 200, 'PATCH', path, json=body)
    cloud.call('a-member', 204, 'DELETE', path)


def test_claim_for_a_project(cloud):
    """Nova claims for the server's project."""
    hold = cloud.hold('a-member')
    body = {'memory_mb': 1, 'claim': hold['instance_uuid'],
            'host': 'compute-1'}
    for project, status in (('b', 404), ('a', 201)):
        contract.check(cloud.request('system-admin', 'POST', OURS, json={
            **body, 'project_id': cloud.projects[project]}), status)


@pytest.fixture
def a_group(cloud):
    """A group of project A with two segments, which have one member left."""
    for name in 'of-a-2', 'leased-to-a-2':
        cloud.set_node(name, shard='s')
    group = cloud.callers['a-member'].post(GROUPS, json={
        'members': 2, 'request': {'shard': 's', 'memory_mb': 1}, 'levels': [
            {'by': 'shard', 'policy': 'pack', 'segment': 1}]}).json()
    cloud.call('a-member', 204, 'DELETE',
               f'{OURS}/{group["reservations"][0]["instance_uuid"]}')
    yield group
    for name in 'of-a-2', 'leased-to-a-2':
        cloud.set_node(name, shard=None)


def make_requests(group, ident):
    """Return the queries and bodies of requests that name a group.

    :param group: its first member was released.
    :param ident: the UUID to name instead.
    """
    number, member = (row['group']['segment'] for row in group['reservations'])
    repair = {'memory_mb': 1, 'group': {'uuid': ident, 'segment': number}}
    return {'repair': ('', repair), 'dry run': ('?dry_run=true', repair),
            'claim': ('', {'claim': ident}),
            'claim of a segment': ('', {'claim': f'{ident}:{member}'})}


@pytest.mark.parametrize('name', make_requests({'reservations': [
    {'group': {'segment': 0}}, {'group': {'segment': 1}}]}, ''))
@pytest.mark.parametrize('persona, more, explains', [
    ('system-admin', {}, True), ('elevated-service', {}, True),
    # Nova requests this for a user of B.
    ('system-service', {'project_id': 'b'}, False),
    ('b-member', {}, False)], ids=str)
def test_group_of_another_project(cloud, a_group, name, persona, more,
                                  explains):
    more = {key: cloud.projects[value] for key, value in more.items()}
    faults = []
    for ident in a_group['uuid'], new_uuid():
        query, body = make_requests(a_group, ident)[name]
        faults.append(cloud.call(persona, 404, 'POST', f'{OURS}{query}',
                                 json={**body, **more}).replace(ident, 'U'))
    a = cloud.projects['a']
    assert (faults[0] == (
        f'Group U belongs to another project, {a}: name it with project_id '
        f'(--project in the command).')) == explains
    assert (faults[0] == faults[1]) == (not explains)
    if explains:
        query, body = make_requests(a_group, a_group['uuid'])[name]
        cloud.call(persona, 200 if query else 201, 'POST', f'{OURS}{query}',
                   json={**body, 'project_id': a})


def test_claim_of_a_reservation_of_another_project(cloud):
    hold = cloud.hold('a-member')
    body = {'claim': hold['instance_uuid']}
    assert cloud.call('system-admin', 404, 'POST', OURS, json=body).startswith(
        f'Reservation {hold["instance_uuid"]} belongs to another project, '
        f'{cloud.projects["a"]}: ')
    assert cloud.call('b-member', 404, 'POST', OURS, json=body) == (
        f'No reservation or group {hold["instance_uuid"]} could be found.')


def test_claim_needs_delete(cloud, policy):
    hold = cloud.hold('a-member')
    policy({'baremetal:reservation:delete': '!'})
    cloud.call('a-member', 403, 'POST', OURS, json={
        'memory_mb': 1, 'claim': hold['instance_uuid']})
