# SPDX-License-Identifier: Apache-2.0
"""What a claim's UUID names, where another project uses the same UUID."""

import uuid

import pytest

from tests.common import personas

OURS = personas.OURS
GROUPS = f'{OURS}/groups'


@pytest.fixture
def group(cloud):
    """The UUID of A's group, whose only member nobody has claimed."""
    ident = str(uuid.uuid4())
    cloud.refused('a-member', 201, 'POST', GROUPS, json={
        'uuid': ident, 'members': 1, 'request': personas.ANY})
    return ident


@pytest.mark.parametrize('persona, more', [
    ('a-member', {}), ('system-service', {'host': 'compute-1'})])
@pytest.mark.parametrize('other', ['b', None])
def test_instance_of_another_project_hides_no_group(cloud, group, persona,
                                                    more, other):
    """Neither from the project nor from Nova, which claims in its name."""
    taken = cloud.hold('system-admin', instance_uuid=group,
                       project_id=cloud.projects.get(other))
    member, = cloud.get('a-member', f'{GROUPS}/{group}')['reservations']
    if persona != 'a-member':
        more = {**more, 'project_id': cloud.projects['a']}
    claimed = cloud.hold(persona, claim=group, **more)
    assert claimed['node_uuid'] == member['node_uuid'] != taken['node_uuid']
    assert cloud.get('system-admin', f'{OURS}/{group}') == taken


def test_group_of_another_project_hides_no_instance(cloud, group):
    held = cloud.hold('b-member', instance_uuid=group)
    claimed = cloud.hold('b-member', claim=group)
    assert claimed['node_uuid'] == held['node_uuid']
    cloud.refused('a-member', 200, 'GET', f'{GROUPS}/{group}')


def test_own_instance_goes_before_the_own_group(cloud, group):
    held = cloud.hold('a-member', instance_uuid=group)
    claimed = cloud.hold('a-member', claim=group)
    assert claimed['node_uuid'] == held['node_uuid']


def test_what_is_no_projects_is_claimed_for_none(cloud, group):
    """It is found by whoever names no project, and the rest is not."""
    ident = str(uuid.uuid4())
    cloud.refused('system-service', 404, 'POST', OURS, json={
        **personas.ANY, 'claim': ident})
    response = cloud.request('system-service', 'POST', GROUPS, json={
        'uuid': ident, 'members': 1, 'request': personas.ANY})
    assert response.json()['project_id'] is None
    cloud.refused('a-member', 404, 'POST', OURS, json={
        **personas.ANY, 'claim': ident})
    claimed = cloud.hold('system-service', claim=ident)
    assert claimed['project_id'] is None
    cloud.refused('system-service', 404, 'POST', OURS, json={
        **personas.ANY, 'claim': group})


def test_claim_need_not_constrain_the_node(cloud, group):
    assert cloud.request('a-member', 'POST', OURS, json={
        'claim': group}).json()['node_uuid']
