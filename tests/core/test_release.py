# SPDX-License-Identifier: Apache-2.0
"""Releases, and reservations that cannot be released."""

import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import models
from ironic_reservations.reservations import releases
from tests.common import fleets
from tests.common import states
from tests.common.fleets import GOLD
from tests.common.fleets import HOLD
from tests.common.fleets import INSTANCE

OTHER = '1be26c0b-03f2-4d2e-ae87-c02d7f33c123'
HOST_2 = values.Assignment(host='compute-2')

#: The reach of a system-scope and of a project-scoped caller.
REACHES = [values.ALL, fleets.reach('p')]

RELEASABLE = ('available', 'manageable', 'enroll', 'clean failed',
              'inspect failed')


def set_host(fleet, host):
    fleet.execute(sa.update(models.reservations).values(host=host))


@pytest.fixture
def hostless(busy_fleet):
    """A hold without a host."""
    set_host(busy_fleet, None)
    return busy_fleet


@pytest.mark.parametrize('reach', REACHES)
@pytest.mark.parametrize('maintenance', [False, True, None])
@pytest.mark.parametrize('provision_state', states.STATES)
def test_release(hostless, provision_state, maintenance, reach):
    hostless.set_node(hostless.node_id, provision_state=provision_state,
                      maintenance=maintenance)
    if provision_state in RELEASABLE or maintenance and not reach.is_limited:
        releases.release_reservation(INSTANCE, reach=reach)
        assert hostless.holds == {}
        with pytest.raises(exception.NotFound):
            releases.release_reservation(INSTANCE, reach=reach)
    else:
        with pytest.raises(exception.Conflict):
            releases.release_reservation(INSTANCE, reach=reach)
        assert hostless.holds == {hostless.node_id: INSTANCE}
    assert hostless[hostless.node_id].provision_state == provision_state


@pytest.mark.parametrize('reach', REACHES)
@pytest.mark.parametrize('maintenance', [False, True])
@pytest.mark.parametrize('provision_state', ['available', 'active'])
@pytest.mark.parametrize('fields', [
    lambda fleet: {'reservation': 'conductor-1'},
    lambda fleet: {'allocation_id': fleet.add_allocation()}],
    ids=['locked', 'allocated'])
def test_locked_or_allocated_node_is_not_released(
        hostless, provision_state, maintenance, reach, fields):
    """Ironic's allocation would have a node without an instance."""
    hostless.set_node(hostless.node_id, provision_state=provision_state,
                      maintenance=maintenance, **fields(hostless))
    with pytest.raises(exception.Conflict):
        releases.release_reservation(INSTANCE, reach=reach)
    assert hostless.holds == {hostless.node_id: INSTANCE}


# A deployment may be about to start

TOUCHED = {'instance_info': '{"image_source": "x"}'}


@pytest.mark.parametrize('provision_state', RELEASABLE)
@pytest.mark.parametrize('fields', [{}, TOUCHED], ids=str)
@pytest.mark.parametrize('host', [None, 'compute-1'])
def test_restricted_caller_does_not_stop_a_build(busy_fleet, provision_state,
                                                 fields, host):
    set_host(busy_fleet, host)
    busy_fleet.set_node(busy_fleet.node_id, provision_state=provision_state,
                        **fields)
    if provision_state == 'available' and (fields or host):
        with pytest.raises(exception.Conflict):
            releases.release_reservation(INSTANCE, reach=REACHES[1])
        assert busy_fleet.holds == {busy_fleet.node_id: INSTANCE}
    else:
        releases.release_reservation(INSTANCE, reach=REACHES[1])
        assert busy_fleet.holds == {}


@pytest.mark.on('server')
@pytest.mark.parametrize('change, reach', [
    (lambda fleet: fleet.set_node(fleet.node_id, **TOUCHED), REACHES[1]),
    (lambda fleet: set_host(fleet, 'compute-2'), REACHES[1]),
    *((lambda fleet: fleet.set_node(
        fleet.node_id, allocation_id=fleet.add_allocation()), reach)
      for reach in REACHES)])
def test_use_of_the_node_before_its_release(hostless, change, reach):
    """The change is made after the reservation was read."""
    with hostless.before(HOLD, lambda: change(hostless)):
        with pytest.raises(exception.Conflict):
            releases.release_reservation(INSTANCE, reach=reach)
    assert hostless.holds == {hostless.node_id: INSTANCE}


def test_release_by_the_host(busy_fleet):
    releases.release_reservation(INSTANCE, actor=values.Actor('compute-1'))
    assert busy_fleet.holds == {}


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('host', ['compute-2', 'Compute-1', 'compute-1 ', ''])
def test_release_by_another_host(busy_fleet, host):
    with pytest.raises(exception.NotFound):
        releases.release_reservation(INSTANCE, actor=values.Actor(host))
    assert busy_fleet.holds == {busy_fleet.node_id: INSTANCE}


def test_release_by_a_previous_host(busy_fleet):
    busy_fleet.hold(INSTANCE, owner=HOST_2, **GOLD)
    with pytest.raises(exception.NotFound):
        releases.release_reservation(INSTANCE, actor=values.Actor('compute-1'))
    assert busy_fleet.holds == {busy_fleet.node_id: INSTANCE}


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('fields, error', [
    ({'provision_state': 'deploying'}, exception.Conflict),
    ({'reservation': 'conductor-1'}, exception.Conflict),
    ({'instance_uuid': None}, exception.NotFound),
    ({'instance_uuid': OTHER}, exception.NotFound)], ids=str)
def test_node_that_changes_is_not_released(busy_fleet, fields, error):
    before = busy_fleet.rows
    with busy_fleet.before(HOLD, lambda: busy_fleet.set_node(
            busy_fleet.node_id, **fields)):
        with pytest.raises(error):
            releases.release_reservation(INSTANCE)
    expected = fields.get('instance_uuid', INSTANCE)
    assert busy_fleet[busy_fleet.node_id].instance_uuid == expected
    assert busy_fleet.rows == (before if error is exception.Conflict else [])
