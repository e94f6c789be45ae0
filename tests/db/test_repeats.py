# SPDX-License-Identifier: Apache-2.0
"""The same instance asks again."""

from ironic.common import states as ironic_states
import pytest

from ironic_reservations import constants
from ironic_reservations import exception
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import values
from tests.common import states

INSTANCE = '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'
HOST_2 = values.Assignment(host='compute-2')
GOLD = {'resource_class': 'gold', 'memory_mb': 1000}

#: The statement that makes a node somebody's, or lets it go.
HOLD = 'UPDATE nodes SET instance_uuid'


def test_every_state_of_ironics_is_in_the_tables():
    assert states.STATES.keys() == ironic_states.ALL_STATES
    assert set(states.STATES.values()) == set(constants.STATES)


@pytest.mark.parametrize('provision_state', states.STATES)
def test_state(held, provision_state):
    held.edit(held.node_id, provision_state=provision_state)
    assert lookup.get_reservation(
        INSTANCE).state == states.STATES[provision_state]
    for state in constants.STATES:
        assert len(lookup.find_reservations(lookup.Filters(state=state))) == (
            state == states.STATES[provision_state])


@pytest.mark.parametrize('provision_state', states.STATES)
@pytest.mark.parametrize('host', [None, 'compute-1', 'compute-2'])
def test_same_request_again(held, provision_state, host):
    held.edit(held.node_id, provision_state=provision_state)
    state = states.STATES[provision_state]
    allowed = state == 'reserved' or (
        state in ('deploying', 'active') and host != 'compute-2')
    before = held.rows
    if allowed:
        found, created = held.hold(
            INSTANCE, owner=values.Assignment(host=host), **GOLD)
        assert not created
        assert found.node_id == held.node_id
        assert found.host == (host or 'compute-1')
        assert found.id == before[0].id
        assert lookup.get_reservation(INSTANCE).host == found.host
    else:
        with pytest.raises(exception.Conflict):
            held.hold(INSTANCE, owner=values.Assignment(host=host), **GOLD)
        assert held.rows == before
    assert held.held == {held.node_id: INSTANCE}


@pytest.mark.on('sqlite', 'server')
def test_two_requests_for_one_instance_at_once(fleet):
    """The unique key on the node decides; both get the same node."""
    fleet.add(*({} for _ in range(5)))
    won = []
    with fleet.before(HOLD, lambda: won.append(fleet.hold(INSTANCE, **GOLD))):
        second, created = fleet.hold(INSTANCE, **GOLD)
    (first, first_created), = won
    assert first_created and not created
    assert first.id == second.id
    assert fleet.held == {first.node_id: INSTANCE}


@pytest.mark.on('sqlite', 'server')
def test_two_requests_for_one_node_at_once(fleet):
    node_id = fleet.node()
    with fleet.before(HOLD, lambda: fleet.hold(INSTANCE, **GOLD)):
        with pytest.raises(exception.NoMatchingNode):
            fleet.hold(**GOLD)
    assert fleet.held == {node_id: INSTANCE}


@pytest.mark.on('server')
def test_host_moves_while_the_deploy_begins(held):
    """The guarded update of our row looks at the node once more."""
    with held.before('UPDATE reservations', lambda: held.edit(
            held.node_id, provision_state='deploying')):
        with pytest.raises(exception.Conflict):
            held.hold(INSTANCE, owner=HOST_2, **GOLD)
    assert lookup.get_reservation(INSTANCE).host == 'compute-1'
