# SPDX-License-Identifier: Apache-2.0
"""States of reservations, and repeated requests for an instance."""

from ironic.common import states as ironic_states
import pytest

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.reservations import lookup
from ironic_reservations.shared import constants
from tests.common import states
from tests.common.fleets import GOLD
from tests.common.fleets import INSTANCE


def test_tables_have_every_state_of_ironic():
    assert states.STATES.keys() == ironic_states.ALL_STATES
    assert set(states.STATES.values()) == set(constants.STATES)


@pytest.mark.parametrize('provision_state', states.STATES)
def test_state_of_a_reservation(busy_fleet, provision_state):
    busy_fleet.set_node(busy_fleet.node_id, provision_state=provision_state)
    assert lookup.get_reservation(
        INSTANCE).state == states.STATES[provision_state]
    for state in constants.STATES:
        assert len(lookup.find_reservations(lookup.Filters(state=state))) == (
            state == states.STATES[provision_state])


@pytest.mark.parametrize('provision_state', states.STATES)
@pytest.mark.parametrize('host', [None, 'compute-1', 'compute-2'])
def test_repeated_hold(busy_fleet, provision_state, host):
    busy_fleet.set_node(busy_fleet.node_id, provision_state=provision_state)
    state = states.STATES[provision_state]
    succeeds = state == 'reserved' or (
        state in ('deploying', 'active') and host != 'compute-2')
    before = busy_fleet.rows
    assignment = values.Assignment(host=host)
    if succeeds:
        reservation, is_new = busy_fleet.hold(
            INSTANCE, owner=assignment, **GOLD)
        assert not is_new
        assert reservation.node_id == busy_fleet.node_id
        assert reservation.host == (host or 'compute-1')
        assert reservation.id == before[0].id
        assert lookup.get_reservation(INSTANCE).host == reservation.host
    else:
        with pytest.raises(exception.Conflict):
            busy_fleet.hold(INSTANCE, owner=assignment, **GOLD)
        assert busy_fleet.rows == before
    assert busy_fleet.holds == {busy_fleet.node_id: INSTANCE}
