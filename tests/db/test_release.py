# SPDX-License-Identifier: Apache-2.0
"""What is let go, and what is not."""

import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations.db import models
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import values
from tests.common import states

INSTANCE = '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'
OTHER = '1be26c0b-03f2-4d2e-ae87-c02d7f33c123'
HOST_2 = values.Assignment(host='compute-2')
GOLD = {'resource_class': 'gold', 'memory_mb': 1000}

#: The statement that makes a node somebody's, or lets it go.
HOLD = 'UPDATE nodes SET instance_uuid'


RELEASABLE = ('available', 'manageable', 'enroll', 'clean failed',
              'inspect failed')


def set_host(held, host):
    held.execute(sa.update(models.reservations).values(host=host))


@pytest.fixture
def unhosted(held):
    """A hold that no host has."""
    set_host(held, None)
    return held


@pytest.mark.parametrize('is_restricted', [False, True])
@pytest.mark.parametrize('maintenance', [False, True, None])
@pytest.mark.parametrize('provision_state', states.STATES)
def test_release(unhosted, provision_state, maintenance, is_restricted):
    held = unhosted
    held.edit(held.node_id, provision_state=provision_state,
              maintenance=maintenance)
    if provision_state in RELEASABLE or maintenance and not is_restricted:
        releases.release_reservation(INSTANCE, is_restricted=is_restricted)
        assert held.held == {}
        with pytest.raises(exception.NotFound):
            releases.release_reservation(INSTANCE, is_restricted=is_restricted)
    else:
        with pytest.raises(exception.Conflict):
            releases.release_reservation(INSTANCE, is_restricted=is_restricted)
        assert held.held == {held.node_id: INSTANCE}
    assert held[held.node_id].provision_state == provision_state


@pytest.mark.parametrize('is_restricted', [False, True])
@pytest.mark.parametrize('maintenance', [False, True])
@pytest.mark.parametrize('provision_state', ['available', 'active'])
@pytest.mark.parametrize('fields', [
    lambda held: {'reservation': 'conductor-1'},
    lambda held: {'allocation_id': held.allocation()}],
    ids=['locked', 'allocated'])
def test_locked_or_allocated_node_is_not_released(
        unhosted, provision_state, maintenance, is_restricted, fields):
    """Ironic would be left with an allocation of a node without instance."""
    held = unhosted
    held.edit(held.node_id, provision_state=provision_state,
              maintenance=maintenance, **fields(held))
    with pytest.raises(exception.Conflict):
        releases.release_reservation(INSTANCE, is_restricted=is_restricted)
    assert held.held == {held.node_id: INSTANCE}


# A build may be on its way


TOUCHED = {'instance_info': '{"image_source": "x"}'}


@pytest.mark.parametrize('provision_state', RELEASABLE)
@pytest.mark.parametrize('fields', [{}, TOUCHED], ids=str)
@pytest.mark.parametrize('host', [None, 'compute-1'])
def test_bound_caller_does_not_end_a_build(held, provision_state, fields,
                                           host):
    set_host(held, host)
    held.edit(held.node_id, provision_state=provision_state, **fields)
    if provision_state == 'available' and (fields or host):
        with pytest.raises(exception.Conflict):
            releases.release_reservation(INSTANCE, is_restricted=True)
        assert held.held == {held.node_id: INSTANCE}
    else:
        releases.release_reservation(INSTANCE, is_restricted=True)
        assert held.held == {}


@pytest.mark.on('server')
@pytest.mark.parametrize('change', [
    lambda held: held.edit(held.node_id, **TOUCHED),
    lambda held: set_host(held, 'compute-2')])
def test_build_that_begins_at_that_moment(unhosted, change):
    """After the reservation was read, before it is let go."""
    with unhosted.before(HOLD, lambda: change(unhosted)):
        with pytest.raises(exception.Conflict):
            releases.release_reservation(INSTANCE, is_restricted=True)
    assert unhosted.held == {unhosted.node_id: INSTANCE}


@pytest.mark.on('server')
@pytest.mark.parametrize('is_restricted', [False, True])
def test_allocation_that_comes_at_that_moment(unhosted, is_restricted):
    with unhosted.before(HOLD, lambda: unhosted.edit(
            unhosted.node_id, allocation_id=unhosted.allocation())):
        with pytest.raises(exception.Conflict):
            releases.release_reservation(INSTANCE, is_restricted=is_restricted)
    assert unhosted.held == {unhosted.node_id: INSTANCE}


def test_release_by_a_host_that_holds_it(held):
    releases.release_reservation(INSTANCE, actor=values.Actor('compute-1'))
    assert held.held == {}


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('host', ['compute-2', 'Compute-1', 'compute-1 ', ''])
def test_release_by_a_host_that_does_not_hold_it(held, host):
    with pytest.raises(exception.NotFound):
        releases.release_reservation(INSTANCE, actor=values.Actor(host))
    assert held.held == {held.node_id: INSTANCE}


def test_late_release_by_a_host_that_held_it(held):
    held.hold(INSTANCE, owner=HOST_2, **GOLD)
    with pytest.raises(exception.NotFound):
        releases.release_reservation(INSTANCE, actor=values.Actor('compute-1'))
    assert held.held == {held.node_id: INSTANCE}


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('fields, error', [
    ({'provision_state': 'deploying'}, exception.Conflict),
    ({'reservation': 'conductor-1'}, exception.Conflict),
    ({'instance_uuid': None}, exception.NotFound),
    ({'instance_uuid': OTHER}, exception.NotFound)], ids=str)
def test_node_that_changes_is_not_released(held, fields, error):
    before = held.rows
    with held.before(HOLD, lambda: held.edit(held.node_id, **fields)):
        with pytest.raises(error):
            releases.release_reservation(INSTANCE)
    assert held[held.node_id].instance_uuid == fields.get('instance_uuid',
                                                          INSTANCE)
    assert held.rows == (before if error is exception.Conflict else [])


@pytest.mark.on('server')
def test_host_moves_while_the_other_releases(held):
    """The node's update is undone when the row is no longer the host's."""
    with held.before(HOLD, lambda: held.hold(INSTANCE, owner=HOST_2, **GOLD)):
        with pytest.raises(exception.NotFound):
            releases.release_reservation(
                INSTANCE, actor=values.Actor('compute-1'))
    assert held.held == {held.node_id: INSTANCE}
    assert lookup.get_reservation(INSTANCE).host == 'compute-2'
