# SPDX-License-Identifier: Apache-2.0
"""A project whose lease of a machine has ended does not keep it by renewing.

It sees its reservation as before, and may release it.
"""

import uuid

import pytest

from tests.common import answers
from tests.common import personas

OURS = personas.OURS
GROUPS = f'{OURS}/groups'
LEASED = 'leased-to-a-1'

#: What may be done to the lease of a reservation.
CHANGES = {
    'add': {'op': 'add', 'path': '/expires_in', 'value': 3600},
    'replace': {'op': 'replace', 'path': '/expires_in', 'value': 3600},
    'remove': {'op': 'remove', 'path': '/expires_in'},
}


@pytest.fixture
def set_leased(cloud):
    """Writes columns of the node that A leases; restored at the end."""
    yield lambda **columns: cloud.set_node(LEASED, **columns)
    cloud.set_node(LEASED, owner='lessor', lessee=cloud.projects['a'])


@pytest.fixture
def group(cloud):
    """The body of A's group of a node of its own and one that it leases."""
    body = {'uuid': str(uuid.uuid4()), 'members': 2, 'expires_in': 600,
            'request': {'candidate_nodes': ['of-a-2', LEASED]}}
    cloud.refused('a-member', 201, 'POST', GROUPS, json=body)
    return body


def patch(cloud, persona, held, status, change):
    return cloud.refused(persona, status, 'PATCH',
                         f'{OURS}/{held["instance_uuid"]}', json=[change])


@pytest.mark.parametrize('change', CHANGES.values(), ids=CHANGES)
def test_lease_of_one(cloud, set_leased, change):
    held = cloud.hold('a-member', candidate_nodes=[LEASED], expires_in=600)
    for lessee in None, cloud.projects['b']:
        set_leased(lessee=lessee)
        before = cloud.ironic.state()
        fault = patch(cloud, 'a-member', held, 409, change)
        assert held['node_uuid'] in fault
        assert cloud.projects['b'] not in fault
        assert cloud.ironic.state() == before
    # The services that reserve any node for a project renew it, too.
    patch(cloud, 'system-service', held, 200, change)
    # As the owner of the machine the project may.
    set_leased(owner=cloud.projects['a'])
    patch(cloud, 'a-member', held, 200, change)


def test_repeat(cloud, set_leased):
    """The same request again, with another lease."""
    body = {'candidate_nodes': [LEASED], 'expires_in': 60}
    held = cloud.hold('a-member', **body)
    body |= {**personas.ANY, 'instance_uuid': held['instance_uuid'],
             'expires_in': 3600}
    for lessee in None, cloud.projects['b']:
        set_leased(lessee=lessee)
        before = cloud.ironic.state()
        fault = cloud.refused('a-member', 409, 'POST', OURS, json=body)
        assert cloud.ironic.state() == before
        assert LEASED not in fault
    # As its owner it may.
    set_leased(owner=cloud.projects['a'])
    renewed = cloud.request('a-member', 'POST', OURS, json=body)
    answers.check(renewed, 200)
    assert renewed.json()['expires_at'] > held['expires_at']


def test_release_of_one(cloud, set_leased):
    held = cloud.hold('a-member', candidate_nodes=[LEASED], expires_in=600)
    set_leased(lessee=None)
    path = f'{OURS}/{held["instance_uuid"]}'
    assert cloud.get('a-member', path) == held
    cloud.refused('a-member', 204, 'DELETE', path)


@pytest.mark.parametrize('ownership, statuses', [
    ('project', (409, 200, 409)), ('project_or_none', (200, 200, 409)),
    ('any', (409, 200, 409))])
def test_stored_ownership(cloud, set_leased, ownership, statuses):
    """What was asked for decides whether a node of nobody is enough."""
    held = cloud.hold('system-service', candidate_nodes=[LEASED],
                      ownership=ownership, project_id=cloud.projects['a'],
                      expires_in=600)
    none, ours, others = statuses
    for status, whose in ((none, {'owner': None, 'lessee': None}),
                          (ours, {'owner': cloud.projects['a']}),
                          (others, {'owner': cloud.projects['b']})):
        set_leased(**whose)
        patch(cloud, 'a-member', held, status, CHANGES['replace'])


def test_group(cloud, group, set_leased):
    """One node that may be used no longer, and no lease begins anew."""
    for lessee in None, cloud.projects['b']:
        set_leased(lessee=lessee)
        before = cloud.ironic.state()
        cloud.refused('a-member', 409, 'POST', GROUPS,
                      json={**group, 'expires_in': 3600})
        assert cloud.ironic.state() == before
    set_leased(lessee=cloud.projects['a'])
    cloud.refused('a-member', 200, 'POST', GROUPS,
                  json={**group, 'expires_in': 3600})
    assert cloud.ironic.state() != before


def test_group_that_is_left(cloud, group, set_leased):
    set_leased(lessee=None)
    path = f'{GROUPS}/{group["uuid"]}'
    held = cloud.get('a-member', path)
    assert len(held['reservations']) == 2
    cloud.refused('a-member', 204, 'DELETE', path)
    answers.check(cloud.request('a-member', 'GET', path), 404)
