# SPDX-License-Identifier: Apache-2.0
"""Projects that may hold nodes which nobody owns: what they see, and get.

The nodes are those of tests.common.personas. Two are nobody's, one of which is
held for no project; two are leased to A by a lessor.
"""

import uuid

import pytest

from tests.common import answers
from tests.common import personas

OURS, ANY = personas.OURS, personas.ANY
GROUPS = f'{OURS}/groups'
RULE = 'baremetal:reservation:create_unowned'
UNOWNED = {**ANY, 'ownership': 'project_or_none'}


@pytest.fixture
def open_rule(cloud, policy):
    policy({RULE: 'role:member'})


def post(cloud, persona, status, body, path=OURS):
    response = cloud.request(persona, 'POST', path, json=body)
    answers.check(response, status)
    return response.json()


def exhaust(cloud, persona, body):
    """The kinds of the nodes that it gets, and the last answer."""
    got = []
    while True:
        response = cloud.request(persona, 'POST', OURS, json=body)
        if response.status_code != 201:
            return cloud.kinds(got), response
        got.append(response.json()['node_uuid'])


# Closed, as it is by default


@pytest.mark.parametrize('persona', ['a-admin', 'a-member', 'b-member',
                                     'service-admin'])
def test_nobody_may_by_default(cloud, persona):
    before = cloud.ironic.state()
    for path, body in ((OURS, UNOWNED), (f'{OURS}?dry_run=true', UNOWNED),
                       (GROUPS, {'members': 1, 'request': UNOWNED})):
        fault = cloud.refused(persona, 403, 'POST', path, json=body)
        assert 'create_unowned' in fault
    assert cloud.ironic.state() == before


@pytest.mark.parametrize('persona, body', [
    ('a-reader', UNOWNED), ('a-member', {**ANY, 'ownership': 'any'}),
    # Its role is not enough.
    ('service', UNOWNED), ('domain-member', UNOWNED), ('unscoped', UNOWNED),
])
def test_the_rule_gives_nothing_else(cloud, open_rule, persona, body):
    before = cloud.ironic.state()
    cloud.refused(persona, 403, 'POST', OURS, json=body)
    assert cloud.ironic.state() == before


# Open


def test_what_it_sees(cloud, open_rule):
    capacity = cloud.request('a-member', 'GET', f'{OURS}/capacity', headers={
        'Cache-Control': 'no-cache'}).json()['capacity']
    assert {(row['owner'], row['lessee']) for row in capacity} == {
        (None, None), (cloud.projects['a'], None),
        ('lessor', cloud.projects['a'])}
    # A reader does not have the role that the rule wants.
    assert len(cloud.get('a-reader', f'{OURS}/capacity')['capacity']) == 2
    dry_run = post(cloud, 'a-member', 200, ANY, f'{OURS}?dry_run=true')
    assert dry_run['explanation']['considered'] == 6
    assert {'by': 'ownership=project', 'nodes': 2} in (
        dry_run['explanation']['eliminated'])
    assert dry_run['matching_nodes'] == 3
    dry_run = post(cloud, 'a-member', 200, UNOWNED, f'{OURS}?dry_run=true')
    assert dry_run['matching_nodes'] == 4
    # Nothing of those who hold them.
    for held in cloud.held['none'], cloud.held['b']:
        cloud.refused('a-member', 404, 'GET',
                      f'{OURS}/{held["instance_uuid"]}')


@pytest.mark.parametrize('persona, body, kinds', [
    ('a-member', UNOWNED, {'free', 'of-a', 'leased-to-a'}),
    ('a-member', ANY, {'of-a', 'leased-to-a'}),
    ('a-member', {**ANY, 'ownership': 'project'}, {'of-a', 'leased-to-a'}),
    ('b-member', UNOWNED, {'free', 'of-b'}),
    ('service-member', UNOWNED, {'free'}),
    ('service-member', ANY, set()),
])
def test_what_it_gets_until_there_is_none(cloud, open_rule, persona, body,
                                          kinds):
    got, last = exhaust(cloud, persona, body)
    assert got == kinds
    answers.check(last, 422)


@pytest.mark.parametrize('name, status', [
    ('free-2', 201), ('of-b-2', 422), ('of-a-2', 201)])
def test_node_by_its_name(cloud, open_rule, name, status):
    post(cloud, 'a-member', status, {**UNOWNED, 'candidate_nodes': [name]})


@pytest.fixture
def free_2(cloud):
    yield lambda **columns: cloud.set_node('free-2', **columns)
    cloud.set_node('free-2', owner=None, lessee=None)


@pytest.mark.parametrize('column', ['owner', 'lessee'])
def test_node_that_somebody_owns_or_leases(cloud, open_rule, free_2, column):
    """However little that owner's name is."""
    for whose in 'b', '':
        free_2(**{column: whose})
        post(cloud, 'a-member', 422,
             {**UNOWNED, 'candidate_nodes': ['free-2']})


def test_again_and_another_lease(cloud, open_rule, free_2):
    body = {**UNOWNED, 'candidate_nodes': ['free-2'], 'expires_in': 60,
            'instance_uuid': str(uuid.uuid4())}
    held = post(cloud, 'a-member', 201, body)
    body['expires_in'] = 600
    renewed = post(cloud, 'a-member', 200, body)
    assert renewed['node_uuid'] == held['node_uuid']
    assert renewed['expires_at'] > held['expires_at']
    # The ownership is a part of what was asked for.
    post(cloud, 'a-member', 409, {**body, 'ownership': 'project'})
    path = f'{OURS}/{held["instance_uuid"]}'
    change = [{'op': 'replace', 'path': '/expires_in', 'value': 900}]
    cloud.refused('a-member', 200, 'PATCH', path, json=change)
    # It is another's from now on.
    free_2(owner=cloud.projects['b'])
    post(cloud, 'a-member', 409, body)
    cloud.refused('a-member', 409, 'PATCH', path, json=change)
    cloud.refused('a-member', 204, 'DELETE', path)


def test_where_the_rule_is_closed_again(cloud, policy, open_rule):
    body = {**UNOWNED, 'candidate_nodes': ['free-2'],
            'instance_uuid': str(uuid.uuid4())}
    held = post(cloud, 'a-member', 201, body)
    policy({})
    post(cloud, 'a-member', 403, body)
    # What it has it keeps, and may let go.
    cloud.refused('a-member', 204, 'DELETE',
                  f'{OURS}/{held["instance_uuid"]}')


def test_group_and_claim(cloud, open_rule, free_2):
    group = {'uuid': str(uuid.uuid4()), 'members': 2, 'expires_in': 60,
             'request': {**UNOWNED,
                         'candidate_nodes': ['free-2', 'of-a-2']}}
    post(cloud, 'a-member', 201, group, GROUPS)
    post(cloud, 'a-member', 200, {**group, 'expires_in': 600}, GROUPS)
    # Another project claims nothing of it, and is told nothing of it.
    post(cloud, 'b-member', 404, {**UNOWNED, 'claim': group['uuid']})
    for _ in range(2):
        post(cloud, 'a-member', 201, {**UNOWNED, 'claim': group['uuid']})


def test_group_whose_node_is_another_projects_by_now(cloud, open_rule,
                                                     free_2):
    group = {'uuid': str(uuid.uuid4()), 'members': 1, 'expires_in': 60,
             'request': {**UNOWNED, 'candidate_nodes': ['free-2']}}
    post(cloud, 'a-member', 201, group, GROUPS)
    free_2(owner=cloud.projects['b'])
    post(cloud, 'a-member', 409, {**group, 'expires_in': 600}, GROUPS)
