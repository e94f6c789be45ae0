# SPDX-License-Identifier: Apache-2.0
"""Repeat, renewal and release of existing reservations, by caller."""

import uuid

import pytest

from tests.common import application
from tests.common import contract
from tests.common import personas

OURS, ANY = personas.OURS, personas.ANY
GROUPS = f'{OURS}/groups'
LEASED = 'leased-to-a-1'
SERVICES = ('system-admin', 'system-service', 'elevated-service')
POOL = [{'name': f'pool-{number}', 'resource_class': 'pool', 'properties': {
    'memory_mb': 1024, 'capabilities': 'gpus:4,uefi'}} for number in range(2)]
SPEC = {'memory_mb': 512, 'extra_specs': {'capabilities': 'uefi'}}


def url(reservation):
    return f'{OURS}/{reservation["instance_uuid"]}'


# Repeats

@pytest.fixture
def body(node_class):
    return {**SPEC, 'resource_class': node_class, 'host': 'compute-1',
            'instance_uuid': str(uuid.uuid4()), 'project_id': 'p',
            'user_id': 'u', 'expires_in': 3600}


def test_repeat_moves_to_the_last_host(ironic, pool, body):
    del body['expires_in']
    first = ironic.create(**body)
    repeat = ironic.create(200, **body | {'host': 'compute-2'})
    changes = {'host': 'compute-2', 'updated_at': repeat['updated_at']}
    assert repeat == first | changes and repeat['updated_at']
    assert ironic.show(body['instance_uuid']) == repeat
    # Without a host, or with another user, the host stays.
    for more in ({}, {'host': None}, {'expires_in': 60},
                 {'expires_in': None}, {'project_id': None},
                 {'user_id': 'other'}, {'swap': 0, 'shard': None}):
        assert ironic.create(200, **body | {'host': None} | more)[
            'host'] == 'compute-2'
    # A late clean-up by the first host does not find the reservation.
    ironic.delete(body['instance_uuid'], 404, host='compute-1')
    assert ironic.show(body['instance_uuid'])['host'] == 'compute-2'
    ironic.delete(body['instance_uuid'], host='compute-2')
    assert ironic.rows() == []


def test_release_for_a_host_without_one(ironic, pool, body):
    ironic.create(**body | {'host': None})
    ironic.delete(body['instance_uuid'], 404, host='compute-1')
    ironic.delete(body['instance_uuid'])
    # After a release, another request for the instance is allowed.
    ironic.create(**body | {'memory_mb': 1})


@pytest.mark.parametrize('change', [
    {'name': 'other'}, {'memory_mb': None}, {'memory_mb': 9999999}], ids=str)
def test_another_spec_of_the_same_instance(ironic, pool, body, change):
    reservation = ironic.create(**body)
    # The lease is not renewed.
    ironic.create(409, **body | change | {'expires_in': 9})
    assert ironic.show(body['instance_uuid']) == reservation


def test_all_conflicts_have_one_error(ironic, pool, body, node_class):
    body |= {'host': 'secret-host', 'project_id': 'secret-project'}
    reservation = ironic.create(**body)
    texts = {ironic.create(409, **body | {'name': 'other'}),
             ironic.create(409, **body | {'project_id': 'other'})}
    for state in ('deploying', 'active'):
        ironic.set_node(reservation['node_uuid'], provision_state=state)
        ironic.create(200, **body)
        ironic.create(200, **body | {'host': None})
        texts.add(ironic.create(409, **body | {'host': 'compute-2'}))
    for state in ('deleting', 'deploy failed', 'manageable', 'cleaning'):
        ironic.set_node(reservation['node_uuid'], provision_state=state)
        texts.add(ironic.create(409, **body))
    # The node carries the instance without a reservation.
    ironic.set_node(reservation['node_uuid'], provision_state='available')
    ironic.execute('DELETE FROM reservations WHERE instance_uuid = :i',
                   i=body['instance_uuid'])
    texts.add(ironic.create(409, **body))
    text, = texts
    for secret in ('secret', reservation['node_uuid'],
                   reservation['node_name'], node_class):
        assert secret not in text


def test_stale_reservation_stays_stale(ironic, pool, body):
    """Not even when an operator puts the instance back onto its node."""
    reservation = ironic.create(**body)
    instance_uuid, node_uuid = (
        reservation[name] for name in ('instance_uuid', 'node_uuid'))
    ironic.set_node(node_uuid, instance_uuid=None)
    ironic.show(instance_uuid, 404)
    ironic.set_node(node_uuid, instance_uuid=instance_uuid)
    ironic.show(instance_uuid, 404)
    ironic.delete(instance_uuid, 404)
    assert ironic.list(resource_class=body['resource_class']) == []
    assert ironic.find_instance(node_uuid) == instance_uuid


# Repeats by Nova for a project

@pytest.mark.parametrize('persona', SERVICES)
def test_repeat_by_a_service(cloud, persona):
    """A user cannot have Nova deploy another project's server to a node."""
    body = {**ANY, 'instance_uuid': str(uuid.uuid4()), 'host': 'compute-1'}
    reservation = cloud.hold('a-member', instance_uuid=body['instance_uuid'])
    before = cloud.ironic.state()
    fault = cloud.call(persona, 409, 'POST', OURS, json={
        **body, 'project_id': cloud.projects['b']})
    assert cloud.ironic.state() == before
    for secret in cloud.projects['a'], reservation['node_uuid']:
        assert secret not in fault
    # A request without a project leaves the project.
    for host, project in (('compute-1', 'a'), ('compute-2', None)):
        response = cloud.request(persona, 'POST', OURS, json={
            **body, 'host': host, 'project_id': cloud.projects.get(project)})
        contract.check(response, 200)
        assert response.json() == {
            **reservation, 'host': host,
            'updated_at': response.json()['updated_at']}


# The owner and the lessee of a node

def uuids(cloud, persona, **query):
    return [row['instance_uuid'] for row in cloud.get(
        persona, OURS, **query)['reservations']]


def test_owner_of_the_node(cloud):
    reservation = cloud.hold('system-admin', project_id=cloud.projects['a'],
                             candidate_nodes=['of-b-2'])
    assert cloud.get('b-member', url(reservation)) == reservation
    rows = uuids(cloud, 'b-member')
    assert set(rows) == {reservation['instance_uuid'],
                         cloud.holds['b']['instance_uuid']}
    first, = uuids(cloud, 'b-member', limit=1)
    second, = uuids(cloud, 'b-member', limit=1, marker=first)
    assert {first, second} == set(rows)
    assert uuids(cloud, 'b-member', marker=second) == []
    # The project of the reservation also sees it.
    assert cloud.get('a-reader', url(reservation)) == reservation
    assert reservation['instance_uuid'] in uuids(cloud, 'a-reader')
    # The owner may release the reservation, but not take it over.
    before = cloud.ironic.state()
    cloud.call('b-member', 409, 'POST', OURS, json={
        **ANY, 'candidate_nodes': ['of-b-2'],
        'instance_uuid': reservation['instance_uuid']})
    assert cloud.ironic.state() == before
    cloud.call('b-member', 204, 'DELETE', url(reservation))
    cloud.call('a-member', 404, 'GET', url(reservation))


def test_lessee_does_not_see_reservations_of_others(cloud):
    reservation = cloud.hold(
        'system-admin', project_id=cloud.projects['b'],
        candidate_nodes=['leased-to-a-2'])
    for method in 'GET', 'DELETE':
        cloud.call('a-member', 404, method, url(reservation))
    assert reservation['instance_uuid'] not in uuids(cloud, 'a-member')


@pytest.mark.parametrize('lessee, persona, expected', [
    ('a', 'a-member', 1), ('a', 'b-member', 0), ('b', 'b-member', 1),
    ('b', 'a-member', 0), ('a', 'system-reader', 1), ('b', 'b-reader', 1)])
def test_project_sees_the_machines_of_its_servers(cloud, lessee, persona,
                                                  expected):
    """A row does not show their lessee, which decides who sees them."""
    cloud.set_node('free-2', provision_state='active',
                   lessee=cloud.projects[lessee])
    try:
        response = cloud.request(persona, 'GET', f'{OURS}/capacity',
                                 headers={'Cache-Control': 'no-cache'})
        contract.check(response, 200)
    finally:
        cloud.set_node('free-2', provision_state='available', lessee=None)
    rows = response.json()['capacity']
    assert sum(row['taken'] for row in rows) == expected
    assert all(row['lessee'] is None for row in rows if row['taken'])


# A project that may no longer use the node

@pytest.fixture
def set_leased(cloud):
    """Set columns of the node that A leases; restored at the end."""
    yield lambda **columns: cloud.set_node(LEASED, **columns)
    cloud.set_node(LEASED, owner='lessor', lessee=cloud.projects['a'])


def change(op, **value):
    return lambda reservation, group: (
        'PATCH', url(reservation),
        [{'op': op, 'path': '/expires_in', **value}])


#: Renewals of A's reservation of a leased node, and of A's group with it.
RENEWALS = {
    'add': change('add', value=3600),
    'replace': change('replace', value=3600),
    'remove': change('remove'),
    'repeat': lambda reservation, group: ('POST', OURS, {
        **reservation['request_spec'], 'expires_in': 3600,
        'instance_uuid': reservation['instance_uuid']}),
    'repeat of the group': lambda reservation, group: (
        'POST', GROUPS, {**group, 'expires_in': 3600}),
}
#: Nodes that a request with this ownership may use.
ALLOWED = {'project': {'ours'}, 'project_or_none': {'ours', 'nobodys'}}


@pytest.mark.parametrize('renewal', RENEWALS)
@pytest.mark.parametrize('ownership', ALLOWED)
def test_former_lessee_does_not_renew(cloud, policy, set_leased, ownership,
                                      renewal):
    policy({'baremetal:reservation:create_unowned': 'role:member'})
    a, b = cloud.projects['a'], cloud.projects['b']
    spec = {'candidate_nodes': [LEASED], 'ownership': ownership}
    if 'group' in renewal:
        group = {'uuid': str(uuid.uuid4()), 'members': 2, 'expires_in': 60,
                 'request': {**spec, 'candidate_nodes': ['of-a-2', LEASED]}}
        cloud.call('a-member', 201, 'POST', GROUPS, json=group)
        reservation = None
    else:
        group, reservation = None, cloud.hold('a-member', expires_in=60,
                                              **spec)
    method, path, body = RENEWALS[renewal](reservation, group)
    for case, columns in {
            'lessors': {'lessee': None}, 'leased to B': {'lessee': b},
            'nobodys': {'owner': None, 'lessee': None},
            'of B': {'owner': b}, 'ours': {'owner': a}}.items():
        set_leased(**columns)
        before = cloud.ironic.state()
        is_allowed = case in ALLOWED[ownership]
        fault = cloud.call('a-member', 200 if is_allowed else 409, method,
                           path, json=body)
        if not is_allowed:
            assert cloud.ironic.state() == before
            assert b not in fault
            assert (method == 'PATCH') == (
                reservation is not None and reservation['node_uuid'] in fault)
        # The services that reserve any node for a project renew it, too.
        if method == 'PATCH':
            cloud.call('system-service', 200, method, path, json=body)


@pytest.mark.parametrize('owner, status', [
    (None, 409), ('a', 200), ('b', 409)])
def test_renewal_of_a_reservation_of_any_node(cloud, set_leased, owner,
                                              status):
    reservation = cloud.hold('system-service', candidate_nodes=[LEASED],
                             ownership='any', expires_in=600,
                             project_id=cloud.projects['a'])
    set_leased(owner=cloud.projects.get(owner), lessee=None)
    method, path, body = RENEWALS['replace'](reservation, None)
    cloud.call('a-member', status, method, path, json=body)


@pytest.mark.parametrize('is_group', [False, True])
def test_former_lessee_releases(cloud, set_leased, is_group):
    reservation = cloud.hold('a-member', candidate_nodes=[LEASED],
                             group={'uuid': str(uuid.uuid4())})
    path = (f'{GROUPS}/{reservation["group"]["uuid"]}' if is_group
            else url(reservation))
    before = cloud.get('a-member', path)
    set_leased(lessee=None)
    assert cloud.get('a-member', path) == before
    cloud.call('a-member', 204, 'DELETE', path)
    cloud.call('a-member', 404, 'GET', path)


# A build that may be in progress

@pytest.mark.parametrize('persona', ['a-member', 'b-member'])
def test_project_does_not_release_a_reservation_with_a_host(cloud, persona):
    reservation = cloud.hold(
        'system-service', project_id=cloud.projects['a'],
        host='compute-1', candidate_nodes=['of-b-2'])
    cloud.call(persona, 409, 'DELETE', url(reservation))
    assert cloud.get('a-reader', url(reservation)) == reservation
    # No build can be in progress there.
    cloud.set_node('of-b-2', provision_state='manageable')
    cloud.call(persona, 204, 'DELETE', url(reservation))


@pytest.mark.parametrize('persona', ['a-member', 'a-admin'])
def test_project_does_not_change_the_lease_of_a_build(cloud, persona):
    """A short lease would free the node, and none would block it."""
    body = {**ANY, 'candidate_nodes': ['of-a-2'],
            'instance_uuid': str(uuid.uuid4())}
    reservation = cloud.hold('system-service', **body, host='compute-1',
                             expires_in=3600, project_id=cloud.projects['a'])
    for more in {'expires_in': 1}, {}:
        cloud.call(persona, 200, 'POST', OURS, json={**body, **more})
        assert cloud.get(persona, url(reservation)) == reservation


def test_service_releases_a_reservation_with_a_host(cloud):
    reservation = cloud.hold(
        'system-service', project_id=cloud.projects['a'], host='compute-1')
    cloud.set_node(reservation['node_name'], instance_info='{"a": "b"}')
    cloud.call('system-service', 204, 'DELETE', url(reservation))


def test_require_lease(cloud):
    with application.set_options({'reservations': {'require_lease': True}}):
        for more in {}, {'expires_in': None}:
            for query in '', '?dry_run=true':
                assert cloud.call(
                    'a-member', 400, 'POST', f'{OURS}{query}',
                    json={**ANY, **more}) == (
                        'expires_in: is required, because [reservations] '
                        'require_lease is set; it must be at most 2592000 '
                        '(30d), see [reservations] max_lease')
        assert cloud.hold('a-member', expires_in=60)['expires_at']
        assert cloud.hold('system-service')['expires_at'] is None
