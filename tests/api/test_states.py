# SPDX-License-Identifier: Apache-2.0
"""What a node's state makes of its reservation, and who may release it."""

import pytest

from ironic_reservations import constants
from tests.common import states

POOL = [{}]

#: One provision state for each state of a reservation; the others, and what
#: is released in which of them, are in tests/db.
ONE_OF_EACH = {state: provision_state
               for provision_state, state in states.STATES.items()}


@pytest.mark.parametrize('state', ONE_OF_EACH)
def test_state(ironic, pool, node_class, state):
    provision_state = ONE_OF_EACH[state]
    held = ironic.create(resource_class=node_class)
    ironic.set_node(held['node_uuid'], provision_state=provision_state)
    found = ironic.show(held['instance_uuid'])
    assert found['state'] == state
    assert found['provision_state'] == provision_state
    del found['request_spec']
    for other in constants.STATES:
        assert ironic.listed(state=other, resource_class=node_class) == (
            [found] if other == state else [])


@pytest.mark.parametrize('provision_state, maintenance, lock, status', [
    ('available', False, None, 204), ('available', False, 'conductor-1', 409),
    ('clean failed', False, None, 204), ('active', False, None, 409),
    ('active', True, None, 204), ('active', True, 'conductor-1', 409)])
def test_release(ironic, pool, node_class, provision_state, maintenance,
                 lock, status):
    held = ironic.create(resource_class=node_class)
    ironic.set_node(held['node_uuid'], provision_state=provision_state,
                    maintenance=maintenance, reservation=lock)
    ironic.delete(held['instance_uuid'], status)
    assert ironic.carried(held['node_uuid']) == (
        None if status == 204 else held['instance_uuid'])
    ironic.show(held['instance_uuid'], 404 if status == 204 else 200)
