# SPDX-License-Identifier: Apache-2.0
"""Reservations of a node that Ironic manages by Redfish."""

from tests.common import contract
from tests.common import service

FENCE = 'X-OpenStack-Ironic-Reservation'


def set_power(ironic, node, target, **headers):
    """Request a power state from Ironic; return the response."""
    return ironic.http.put(f'/v1/nodes/{node.id}/states/power',
                           json={'target': target}, headers=headers)


def check_refusal(ironic, cause, **body):
    """Check that one node matches but is refused; return the response."""
    response = ironic.http.post(service.OURS, json=body)
    contract.check(response, 422)
    assert {'by': cause, 'nodes': 1} in response.json()[
        'explanation']['eliminated']
    return response


def test_power(ironic, bmc, pool):
    machine, _ = pool
    hold = ironic.create(candidate_nodes=[machine.id], host='compute-1')

    def switch(target, host):
        return set_power(ironic, machine, target, **{
            FENCE: f'instance={hold["instance_uuid"]}; host={host}'})

    assert switch('power on', 'compute-1').status_code == 202
    ironic.settle([machine], power_state='power on')
    assert bmc.power_state == 'On'
    contract.check(switch('power off', 'compute-2'), 412)
    assert switch('power off', 'compute-1').status_code == 202
    ironic.settle([machine], power_state='power off')
    assert bmc.power_state == 'Off'
    ironic.delete(hold['instance_uuid'])


def test_health(ironic, bmc, pool, node_class):
    machine, other = pool
    bmc.health = 'Critical'
    ironic.settle([machine], health='Critical')
    hold = ironic.create(resource_class=node_class)
    assert hold['node_uuid'] == other.id
    check_refusal(ironic, 'health', resource_class=node_class)
    bmc.health = 'OK'
    ironic.settle([machine], health='OK')
    hold = ironic.create(resource_class=node_class)
    assert hold['node_uuid'] == machine.id


def test_hanging_bmc(ironic, bmc, pool, node_class):
    """Each response arrives although the BMC does not respond before it."""
    machine, other = pool
    with bmc.hang() as requested:
        # Ironic reads the power state, without the node's lock.
        assert requested.wait(60)
        hold = ironic.create(candidate_nodes=[machine.id])
        ironic.delete(hold['instance_uuid'])
        # It keeps the lock while it waits for the BMC.
        assert set_power(ironic, machine, 'power off').status_code == 202
        hold = ironic.create(resource_class=node_class)
        assert hold['node_uuid'] == other.id
        response = check_refusal(ironic, 'locked', resource_class=node_class)
        assert response.headers['Retry-After'] == '1'
    ironic.settle([machine], power_state='power off')
    hold = ironic.create(resource_class=node_class)
    assert hold['node_uuid'] == machine.id
