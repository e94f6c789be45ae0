# SPDX-License-Identifier: Apache-2.0
"""What a node's state makes of its reservation, and who may release it."""

import pytest

POOL = [{}]

STATES = {
    'available': 'reserved', 'deploying': 'deploying',
    'wait call-back': 'deploying', 'deploy hold': 'deploying',
    'active': 'active', 'rescue': 'active', 'rescuing': 'active',
    'rescue wait': 'active', 'unrescuing': 'active', 'service': 'active',
    'servicing': 'active', 'service wait': 'active', 'deleting': 'releasing',
    'deploy failed': 'error', 'error': 'error', 'manageable': 'unavailable',
    'enroll': 'unavailable', 'verifying': 'unavailable',
    'cleaning': 'unavailable', 'clean wait': 'unavailable',
    'clean failed': 'unavailable', 'inspecting': 'unavailable',
    'inspect wait': 'unavailable', 'inspect failed': 'unavailable',
}

RELEASABLE = ('available', 'manageable', 'enroll', 'clean failed',
              'inspect failed')


@pytest.mark.parametrize('provision_state', STATES)
def test_state(ironic, pool, node_class, provision_state):
    state = STATES[provision_state]
    held = ironic.create(resource_class=node_class)
    ironic.set_node(held['node_uuid'], provision_state=provision_state)
    found = ironic.show(held['instance_uuid'])
    assert found['state'] == state
    assert found['provision_state'] == provision_state
    for other in ('reserved', 'deploying', 'active', 'releasing', 'error',
                  'unavailable'):
        assert ironic.listed(state=other, resource_class=node_class) == (
            [found] if other == state else [])


@pytest.mark.parametrize('provision_state', STATES)
@pytest.mark.parametrize('maintenance', [False, True])
@pytest.mark.parametrize('lock', [None, 'conductor-1'])
def test_release(ironic, pool, node_class, provision_state, maintenance,
                 lock):
    held = ironic.create(resource_class=node_class)
    ironic.set_node(held['node_uuid'], provision_state=provision_state,
                    maintenance=maintenance, reservation=lock)
    allowed = lock is None and (
        maintenance or provision_state in RELEASABLE)
    ironic.delete(held['instance_uuid'], 204 if allowed else 409)
    assert ironic.carried(held['node_uuid']) == (
        None if allowed else held['instance_uuid'])
    ironic.show(held['instance_uuid'], 404 if allowed else 200)
