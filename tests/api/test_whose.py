# SPDX-License-Identifier: Apache-2.0
"""Whose a reservation is, when the project, the lessee or the owner differ."""

import uuid

import pytest

from tests.api import conftest
from tests.common import answers
from tests.common import personas

OURS, ANY = personas.OURS, personas.ANY

SERVICES = ('system-admin', 'system-service', 'elevated-service')


@pytest.fixture
def body():
    """A request for an instance of its own."""
    return {**ANY, 'instance_uuid': str(uuid.uuid4())}


def repeat(cloud, persona, status, body, **more):
    response = cloud.request(persona, 'POST', OURS, json={**body, **more})
    fault = answers.check(response, status)
    return response.json() if fault is None else fault


# Repeats


@pytest.mark.parametrize('persona', SERVICES)
def test_instance_of_another_project(cloud, persona, body):
    """A user cannot have Nova deploy to a node that the user has held."""
    held = cloud.hold('a-member', **body)
    before = cloud.ironic.state()
    fault = repeat(cloud, persona, 409, body, host='compute-1',
                   project_id=cloud.projects['b'])
    assert cloud.ironic.state() == before
    for secret in cloud.projects['a'], held['node_uuid']:
        assert secret not in fault


@pytest.mark.parametrize('persona', SERVICES)
def test_instance_of_the_same_project(cloud, persona, body):
    held = cloud.hold('a-member', **body)
    moved = repeat(cloud, persona, 200, body, host='compute-1',
                   project_id=cloud.projects['a'])
    assert moved['node_uuid'] == held['node_uuid']
    # Who names no project does not change it.
    moved = repeat(cloud, persona, 200, body, host='compute-2')
    assert (moved['host'], moved['project_id']) == (
        'compute-2', cloud.projects['a'])


# The owner of a node


@pytest.fixture
def on_b(cloud):
    """A's reservation of a node that B owns."""
    held = cloud.hold('system-admin', project_id=cloud.projects['a'],
                      candidate_nodes=['of-b-2'])
    return f'{OURS}/{held["instance_uuid"]}'


def uuids(cloud, persona, **query):
    return [each['instance_uuid'] for each in cloud.get(
        persona, OURS, **query)['reservations']]


def test_owner_sees_who_is_on_its_node(cloud, on_b):
    instance_uuid = on_b.rpartition('/')[2]
    assert cloud.get('b-member', on_b)['project_id'] == cloud.projects['a']
    assert set(uuids(cloud, 'b-member')) == {
        instance_uuid, cloud.held['b']['instance_uuid']}
    # In pages, too, and each of them once.
    first, = uuids(cloud, 'b-member', limit=1)
    second, = uuids(cloud, 'b-member', limit=1, marker=first)
    assert {first, second} == set(uuids(cloud, 'b-member'))
    assert uuids(cloud, 'b-member', marker=second) == []
    # Whose the reservation is sees it as before.
    assert cloud.get('a-reader', on_b)
    assert instance_uuid in uuids(cloud, 'a-reader')


def test_owner_is_not_given_it(cloud, on_b):
    """It may use the node and knows the instance, whose it is not."""
    before = cloud.ironic.state()
    body = {**ANY, 'candidate_nodes': ['of-b-2'],
            'instance_uuid': on_b.rpartition('/')[2]}
    repeat(cloud, 'b-member', 409, body)
    assert cloud.ironic.state() == before


def test_owner_releases_its_node(cloud, on_b):
    cloud.refused('b-member', 204, 'DELETE', on_b)
    cloud.refused('a-member', 404, 'GET', on_b)


def test_lessee_does_not_see_others_on_its_node(cloud):
    held = cloud.hold('system-admin', project_id=cloud.projects['b'],
                      candidate_nodes=['leased-to-a-2'])
    path = f'{OURS}/{held["instance_uuid"]}'
    for method in 'GET', 'DELETE':
        cloud.refused('a-member', 404, method, path)
    assert held['instance_uuid'] not in uuids(cloud, 'a-member')


# A build may be on its way


@pytest.mark.parametrize('persona', ['a-member', 'b-member'])
def test_project_does_not_release_what_a_host_holds(cloud, persona):
    held = cloud.hold('system-service', project_id=cloud.projects['a'],
                      host='compute-1', candidate_nodes=['of-b-2'])
    path = f'{OURS}/{held["instance_uuid"]}'
    cloud.refused(persona, 409, 'DELETE', path)
    assert cloud.get('a-reader', path) == held
    # Nothing can be on its way there.
    cloud.set_node('of-b-2', provision_state='manageable')
    cloud.refused(persona, 204, 'DELETE', path)


@pytest.mark.parametrize('persona', ['a-member', 'a-admin'])
def test_project_does_not_change_the_lease_of_a_build(cloud, persona, body):
    """A short one would give the node to anybody, none would keep it."""
    body |= {'candidate_nodes': ['of-a-2']}
    held = repeat(cloud, 'system-service', 201, body, host='compute-1',
                  expires_in=3600, project_id=cloud.projects['a'])
    for more in {'expires_in': 1}, {}:
        assert repeat(cloud, persona, 200, body, **more) == held
    assert cloud.get(persona, f'{OURS}/{held["instance_uuid"]}') == held


def test_service_releases_what_a_host_holds(cloud):
    held = cloud.hold('system-service', project_id=cloud.projects['a'],
                      host='compute-1')
    cloud.set_node(held['node_name'], instance_info='{"a": "b"}')
    cloud.refused('system-service', 204, 'DELETE',
                  f'{OURS}/{held["instance_uuid"]}')


# A lease that must be


@pytest.fixture
def lease_required(configuration):
    with conftest.options({'reservations': {'require_lease': True}}):
        yield


def test_project_must_name_a_lease(cloud, lease_required):
    for more in {}, {'expires_in': None}:
        for query in '', '?dry_run=true':
            assert cloud.refused(
                'a-member', 400, 'POST', f'{OURS}{query}',
                json={**ANY, **more}) == (
                    'expires_in: must be given, at most 2592000 (30d), '
                    'see [reservations] max_lease')
    assert cloud.hold('a-member', expires_in=60)['expires_at']
    assert cloud.hold('system-service')['expires_at'] is None
