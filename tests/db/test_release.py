# SPDX-License-Identifier: Apache-2.0
"""What is let go, and what is not."""

import uuid

import pytest

from ironic_reservations import exception
from ironic_reservations import reservations
from tests.db import states

INSTANCE = '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'
OTHER = '1be26c0b-03f2-4d2e-ae87-c02d7f33c123'
HOST_2 = reservations.Owner(host='compute-2')
GOLD = {'resource_class': 'gold', 'memory_mb': 1000}

#: The statement that makes a node somebody's, or lets it go.
HOLD = 'UPDATE nodes SET instance_uuid'


RELEASABLE = ('available', 'manageable', 'enroll', 'clean failed',
              'inspect failed')


@pytest.mark.parametrize('forced', [False, True])
@pytest.mark.parametrize('maintenance', [False, True, None])
@pytest.mark.parametrize('provision_state', states.STATES)
def test_release(held, provision_state, maintenance, forced):
    held.edit(held.node_id, provision_state=provision_state,
              maintenance=maintenance)
    if provision_state in RELEASABLE or forced and maintenance:
        reservations.release(INSTANCE, forced=forced)
        assert held.held == {}
        with pytest.raises(exception.NotFound):
            reservations.release(INSTANCE, forced=forced)
    else:
        with pytest.raises(exception.Conflict):
            reservations.release(INSTANCE, forced=forced)
        assert held.held == {held.node_id: INSTANCE}
    assert held[held.node_id].provision_state == provision_state


@pytest.mark.parametrize('forced', [False, True])
@pytest.mark.parametrize('maintenance', [False, True])
@pytest.mark.parametrize('provision_state', ['available', 'active'])
def test_locked_node_is_not_released(held, provision_state, maintenance,
                                     forced):
    held.edit(held.node_id, provision_state=provision_state,
              maintenance=maintenance, reservation='conductor-1')
    with pytest.raises(exception.Conflict):
        reservations.release(INSTANCE, forced=forced)
    assert held.held == {held.node_id: INSTANCE}


def test_release_of_nothing(held):
    with pytest.raises(exception.NotFound):
        reservations.release(str(uuid.uuid4()))
    assert held.held == {held.node_id: INSTANCE}


def test_release_by_a_host_that_holds_it(held):
    reservations.release(INSTANCE, host='compute-1')
    assert held.held == {}


@pytest.mark.parametrize('host', ['compute-2', 'Compute-1', 'compute-1 ', ''])
def test_release_by_a_host_that_does_not_hold_it(held, host):
    with pytest.raises(exception.NotFound):
        reservations.release(INSTANCE, host=host)
    assert held.held == {held.node_id: INSTANCE}


def test_late_release_by_a_host_that_held_it(held):
    held.hold(INSTANCE, owner=HOST_2, **GOLD)
    with pytest.raises(exception.NotFound):
        reservations.release(INSTANCE, host='compute-1')
    assert held.held == {held.node_id: INSTANCE}


@pytest.mark.parametrize('fields, error', [
    ({'provision_state': 'deploying'}, exception.Conflict),
    ({'reservation': 'conductor-1'}, exception.Conflict),
    ({'instance_uuid': None}, exception.NotFound),
    ({'instance_uuid': OTHER}, exception.NotFound)], ids=str)
def test_node_that_changes_is_not_released(held, fields, error):
    before = held.rows
    with held.before(HOLD, lambda: held.edit(held.node_id, **fields)):
        with pytest.raises(error):
            reservations.release(INSTANCE)
    assert held[held.node_id].instance_uuid == fields.get('instance_uuid',
                                                          INSTANCE)
    assert held.rows == (before if error is exception.Conflict else [])


def test_host_moves_while_the_other_releases(held):
    """The node's update is undone when the row is no longer the host's."""
    with held.before(HOLD, lambda: held.hold(INSTANCE, owner=HOST_2, **GOLD)):
        with pytest.raises(exception.NotFound):
            reservations.release(INSTANCE, host='compute-1')
    assert held.held == {held.node_id: INSTANCE}
    assert reservations.get(INSTANCE).host == 'compute-2'


def test_node_can_be_held_again(held):
    reservations.release(INSTANCE)
    assert held.node_id in {held.hold(**GOLD)[0].node_id for _ in range(2)}
