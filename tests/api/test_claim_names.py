# SPDX-License-Identifier: Apache-2.0
"""Claims by a UUID that another project also uses."""

import uuid

import pytest

from tests.common import personas

OURS = personas.OURS
GROUPS = f'{OURS}/groups'


@pytest.fixture
def group(cloud):
    """The UUID of A's group, whose only member is not claimed."""
    group_uuid = str(uuid.uuid4())
    cloud.call('a-member', 201, 'POST', GROUPS, json={
        'uuid': group_uuid, 'members': 1, 'request': personas.ANY})
    return group_uuid


@pytest.mark.parametrize('persona, more', [
    ('a-member', {}), ('system-service', {'host': 'compute-1'})])
@pytest.mark.parametrize('other', ['b', None])
def test_instance_of_another_project_hides_no_group(cloud, group, persona,
                                                    more, other):
    """Neither from the project nor from Nova, which claims for it."""
    taken = cloud.hold('system-admin', instance_uuid=group,
                       project_id=cloud.projects.get(other))
    member, = cloud.get('a-member', f'{GROUPS}/{group}')['reservations']
    if persona != 'a-member':
        more = {**more, 'project_id': cloud.projects['a']}
    claim = cloud.hold(persona, claim=group, **more)
    assert claim['node_uuid'] == member['node_uuid'] != taken['node_uuid']
    assert cloud.get('system-admin', f'{OURS}/{group}') == taken


def test_group_of_another_project_hides_no_instance(cloud, group):
    hold = cloud.hold('b-member', instance_uuid=group)
    claim = cloud.hold('b-member', claim=group)
    assert claim['node_uuid'] == hold['node_uuid']
    cloud.call('a-member', 200, 'GET', f'{GROUPS}/{group}')


def test_instance_comes_before_the_group(cloud, group):
    hold = cloud.hold('a-member', instance_uuid=group)
    claim = cloud.hold('a-member', claim=group)
    assert claim['node_uuid'] == hold['node_uuid']


def test_group_without_a_project(cloud, group):
    """A claim without a project finds only groups without a project."""
    group_uuid = str(uuid.uuid4())
    cloud.call('system-service', 404, 'POST', OURS, json={
        **personas.ANY, 'claim': group_uuid})
    response = cloud.request('system-service', 'POST', GROUPS, json={
        'uuid': group_uuid, 'members': 1, 'request': personas.ANY})
    assert response.json()['project_id'] is None
    cloud.call('a-member', 404, 'POST', OURS, json={
        **personas.ANY, 'claim': group_uuid})
    claim = cloud.hold('system-service', claim=group_uuid)
    assert claim['project_id'] is None
    cloud.call('system-service', 404, 'POST', OURS, json={
        **personas.ANY, 'claim': group})


def test_claim_without_constraints(cloud, group):
    assert cloud.request('a-member', 'POST', OURS, json={
        'claim': group}).json()['node_uuid']
