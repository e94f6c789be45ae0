# SPDX-License-Identifier: Apache-2.0
"""A sweep that takes longer than a request may."""

import contextlib
import time

from oslo_db import exception as db_exc
import pytest
import sqlalchemy as sa

from ironic_reservations.db import models
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import membership
from tests.db import conftest

GROUP = membership.GroupRequest(
    '9a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e', 'spread', 'conductor_group', None)

deadlock = conftest.failing(db_exc.DBDeadlock())

#: A statement of each step of a sweep.
STEPS = ('UPDATE reservations SET', 'UPDATE nodes SET',
         'DELETE FROM reservations WHERE', 'DELETE FROM reservations_groups')


def test_deadlocks_after_the_deadline_of_a_request(fleet, option):
    """Each step is tried again, and what was done is counted once."""
    active = fleet.node()
    fleet.hold(conftest.INSTANCE)
    for _ in range(3):
        fleet.node()
        fleet.hold()
    fleet.node(conductor_group='rack-7')
    member, _ = fleet.hold(group=GROUP)
    fleet.lapse()
    fleet.edit(active, provision_state='active')
    # Its reservation is finished business, and the group has no other.
    fleet.edit(member.node_id, instance_uuid=None)
    option(deadline=1)
    with contextlib.ExitStack() as stack:
        # The first statement of the sweep outlasts the deadline.
        stack.enter_context(
            fleet.before('SELECT', lambda: time.sleep(1.1)))
        for step in STEPS:
            stack.enter_context(fleet.before(step, deadlock))
        assert expiry.sweep() == (3, 1)
    assert fleet.held == {active: conftest.INSTANCE}
    assert fleet.execute(sa.select(models.groups)) == []


def test_deadlock_that_never_ends(fleet, option):
    """Another transaction has the node for good: the sweep says so."""
    fleet.node()
    fleet.hold(conftest.INSTANCE)
    fleet.lapse()
    option(deadline=1)
    with fleet.before('UPDATE nodes SET', deadlock, times=10000):
        with pytest.raises(db_exc.DBDeadlock):
            expiry.sweep()
