# SPDX-License-Identifier: Apache-2.0
"""``explain`` of a server with a claim agrees with the claim.

tests.nova.test_explain runs the command with servers of Nova.
"""

import logging
import types
import uuid

from ironicclient import exc
import pytest

from ironic_reservations.osc import claims
from ironic_reservations.osc import client
from tests.common import application
from tests.common import contract

OURS = '/v1/reservations'


@pytest.fixture
def explain(ironic, monkeypatch):
    """Return a function that explains a claim of project p."""
    def request_ironic(cmd, method, url, body=None, **kwargs):
        response = ironic.http.request(method, url, json=body)
        if response.status_code == 404:
            raise exc.NotFound()
        contract.check(response, 200)
        return response.json()

    monkeypatch.setattr(client, 'request_ironic', request_ironic)
    cmd = types.SimpleNamespace(
        app=types.SimpleNamespace(stderr=None), log=logging.getLogger())

    # The project of the user's token.
    monkeypatch.setattr(client, 'get_access', lambda cmd:
                        types.SimpleNamespace(project_id='q'))

    def explain(claim, auth=None, **body):
        return claims.explain_claim(cmd, claim, {'project_id': 'p', **body},
                                    auth=auth)
    return explain


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


def post(ironic, node_class, claim, status):
    contract.check(ironic.http.post(OURS, json={
        'resource_class': node_class, 'project_id': 'p', 'claim': claim}),
        status)


@pytest.mark.parametrize('cause', ['cordon', 'health', 'maintenance'])
def test_unusable_node(ironic, node, node_class, claim, explain, cause):
    notice = {'nodes': ['claimed'], 'kind': 'maintenance'}
    later = {'starts_at': '9999-01-01T00:00Z'}
    for body in {**notice, 'cordon': False}, {**notice, **later}:
        contract.check(ironic.http.post(f'{OURS}/notices', json=body), 201)
    assert explain(claim, resource_class=node_class) == {
        'claim': 'Can be claimed: claimed; 1 of 1 match', 'matching_nodes': 1}
    if cause == 'cordon':
        contract.check(ironic.http.post(f'{OURS}/notices', json=notice), 201)
    else:
        ironic.set_node(node.id, **{
            'health': {'health': 'Critical'},
            'maintenance': {'maintenance': True}}[cause])
    assert explain(claim, resource_class=node_class) == {
        'claim': 'Can be claimed: claimed; in maintenance or retired, with an '
                 'open cordon or critical health: claimed',
        'matching_nodes': 0}
    post(ironic, node_class, claim, 422)


def test_project_of_the_token(node_class, claim, explain):
    """A user may see a reservation on its node, and cannot claim it."""
    request = {'project_id': None, 'resource_class': node_class}
    assert explain(claim, **request) == {
        'claim': f'The project has no reservation and no group {claim}',
        'matching_nodes': 0}
    assert explain(claim, auth='system', **request)['matching_nodes'] == 1


def test_causes_that_claims_are_not_checked_against(ironic, node, node_class,
                                                    claim, explain):
    # A node with a reservation can join only a pool of the same project.
    response = ironic.http.post(f'{OURS}/pools', json={
        'project_id': 'p', 'members': 1,
        'request': {'candidate_nodes': ['another']}})
    contract.check(response, 201)
    contract.check(ironic.http.post(
        f'{OURS}/pools/{response.json()["uuid"]}/nodes',
        json={'node': 'claimed'}), 200)
    ironic.execute("UPDATE reservations_pools SET project_id = 'other'")
    matches = {'claim': 'Can be claimed: claimed; 1 of 1 match',
               'matching_nodes': 1}
    assert explain(claim, resource_class=node_class) == matches
    with application.set_options({'reservations': {
            'dedicated_traits': ['CUSTOM_BURN_IN']}}):
        assert explain(claim, resource_class=node_class) == matches
        post(ironic, node_class, claim, 201)
