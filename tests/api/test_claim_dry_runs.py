# SPDX-License-Identifier: Apache-2.0
"""A dry run of a claim says what the claim does, and holds nothing."""

import uuid

import pytest

from tests.common import application
from tests.common import contract
from tests.common import personas

OURS = '/v1/reservations'


@pytest.fixture
def node(ironic, node_class):
    with ironic.fleet({'name': 'claimed', 'resource_class': node_class,
                       'traits': ['CUSTOM_BURN_IN']},
                      {'name': 'another', 'resource_class': node_class}
                      ) as [node, _]:
        yield node
    for table in 'groups', 'notices', 'pools', 'pool_nodes':
        ironic.execute(f'DELETE FROM reservations_{table}')


@pytest.fixture(params=['reservation', 'group'])
def claim(request, ironic, node, node_class):
    """A reservation of the node, or the group of one."""
    body = {'uuid': str(uuid.uuid4())} if request.param == 'group' else None
    hold = ironic.create(candidate_nodes=['claimed'], project_id='p',
                         group=body)
    return body['uuid'] if body else hold['instance_uuid']


def post(ironic, status, dry_run=False, **body):
    """POST a claim for project p; return the data of the response."""
    response = ironic.http.post(
        OURS, params={'dry_run': 'true'} if dry_run else {},
        json={'project_id': 'p', **body})
    contract.check(response, status)
    return response.json()


def add_notice(ironic, **more):
    contract.check(ironic.http.post(f'{OURS}/notices', json={
        'nodes': ['claimed'], 'kind': 'maintenance', **more}), 201)


@pytest.mark.parametrize('cause, columns', [
    ('cordoned', {}), ('maintenance', {'maintenance': True}),
    ('health', {'health': 'Critical'}), ('retired', {'retired': True}),
    ('locked', {'reservation': 'conductor-1'})])
def test_node_that_cannot_be_claimed(ironic, node, node_class, claim, cause,
                                     columns):
    request = {'claim': claim, 'resource_class': node_class}
    add_notice(ironic, cordon=False)
    add_notice(ironic, starts_at='9999-01-01T00:00Z')
    holds = ironic.execute('SELECT * FROM reservations')
    result = post(ironic, 200, dry_run=True, **request)
    assert result['matching_nodes'] == 1
    [profile] = result['profiles']
    assert {name: profile[name] for name in (
        'total', 'free', 'reserved', 'claimable')} == {
            'total': 1, 'free': 0, 'reserved': 1, 'claimable': 1}
    assert result['explanation'] == {'considered': 1, 'eliminated': []}
    ironic.set_node(node.id, **columns)
    if cause == 'cordoned':
        add_notice(ironic)
    result = post(ironic, 200, dry_run=True, **request)
    assert (result['matching_nodes'], result['profiles']) == (0, [])
    refusal = post(ironic, 422, **request)
    assert result['explanation'] == refusal['explanation'] == {
        'considered': 1, 'eliminated': [{'by': cause, 'nodes': 1}]}
    ironic.set_node(node.id, **dict.fromkeys(columns))
    assert ironic.execute('SELECT * FROM reservations') == holds


@pytest.mark.parametrize('bad_health, health, status', [
    ([], 'Critical', 201), (['Warning', 'Critical'], 'Warning', 422)])
def test_health(ironic, node, node_class, claim, bad_health, health, status):
    """The dry run depends on the option as the claim does."""
    ironic.set_node(node.id, health=health)
    request = {'claim': claim, 'resource_class': node_class}
    with application.set_options({'reservations': {
            'refuse_health': bad_health}}):
        result = post(ironic, 200, dry_run=True, **request)
        assert result['matching_nodes'] == (status == 201)
        post(ironic, status, **request)


def test_request_that_does_not_match(ironic, node, node_class, claim):
    for more, by in (
            ({'extra_specs': {'trait:CUSTOM_X': 'required'}},
             'trait:CUSTOM_X=required'),
            ({'candidate_nodes': ['another']}, 'candidate_nodes')):
        request = {'claim': claim, 'resource_class': node_class, **more}
        result = post(ironic, 200, dry_run=True, **request)
        refusal = post(ironic, 422, **request)
        assert result['explanation'] == refusal['explanation']
        assert result['explanation']['eliminated'] == [{'by': by, 'nodes': 1}]


def test_candidate_that_matches(ironic, node, node_class, claim):
    result = post(ironic, 200, dry_run=True, claim=claim,
                  resource_class=node_class, candidate_nodes=['claimed'])
    assert result['matching_nodes'] == 1
    assert [profile['claimable'] for profile in result['profiles']] == [1]


def test_members_of_a_group(ironic, node, node_class):
    """Only those that can be claimed and match count."""
    group = str(uuid.uuid4())
    contract.check(ironic.http.post(f'{OURS}/groups', json={
        'uuid': group, 'members': 2, 'project_id': 'p',
        'request': {'resource_class': node_class}}), 201)
    ironic.set_node(node.id, reservation='conductor-1')
    result = post(ironic, 200, dry_run=True, claim=group,
                  resource_class=node_class)
    assert result['matching_nodes'] == 1
    assert result['explanation'] == {
        'considered': 2, 'eliminated': [{'by': 'locked', 'nodes': 1}]}
    # The instance of the request may have a reservation.
    post(ironic, 201, claim=group, resource_class=node_class, host='compute-1')
    result = post(ironic, 200, dry_run=True, claim=group,
                  resource_class=node_class)
    assert result['explanation'] == {
        'considered': 1, 'eliminated': [{'by': 'locked', 'nodes': 1}]}


def test_errors_of_the_claim(ironic, node_class, claim, node):
    missing = str(uuid.uuid4())
    for status, request in (
            (404, {'claim': missing}),
            (404, {'claim': claim, 'project_id': 'q'}),
            (400, {'claim': claim, 'group': {'uuid': missing}}),
            (400, {'claim': 'mine'})):
        faults = [post(ironic, status, dry_run, resource_class=node_class,
                       **request) for dry_run in (False, True)]
        assert faults[0] == faults[1]
    ironic.execute("UPDATE reservations SET host = 'compute-1'")
    faults = [post(ironic, 409, dry_run, claim=claim,
                   resource_class=node_class) for dry_run in (False, True)]
    assert faults[0] == faults[1]


def test_causes_that_claims_are_not_checked_against(ironic, node, node_class,
                                                    claim):
    # A node with a reservation can join only a pool of the same project.
    response = ironic.http.post(f'{OURS}/pools', json={
        'project_id': 'p', 'members': 1,
        'request': {'candidate_nodes': ['another']}})
    contract.check(response, 201)
    contract.check(ironic.http.post(
        f'{OURS}/pools/{response.json()["uuid"]}/nodes',
        json={'node': 'claimed'}), 200)
    ironic.execute("UPDATE reservations_pools SET project_id = 'other'")
    request = {'claim': claim, 'resource_class': node_class}
    with application.set_options({'reservations': {
            'dedicated_traits': ['CUSTOM_BURN_IN']}}):
        result = post(ironic, 200, dry_run=True, **request)
        assert result['matching_nodes'] == 1
        post(ironic, 201, **request)


def test_dry_run_needs_delete(cloud, policy):
    hold = cloud.hold('a-member')
    body = {'memory_mb': 1, 'claim': hold['instance_uuid']}
    path = f'{personas.OURS}?dry_run=true'
    cloud.call('a-member', 200, 'POST', path, json=body)
    cloud.call('b-member', 404, 'POST', path, json=body)
    policy({'baremetal:reservation:delete': '!'})
    cloud.call('a-member', 403, 'POST', path, json=body)
    cloud.call('a-member', 403, 'POST', personas.OURS, json=body)
