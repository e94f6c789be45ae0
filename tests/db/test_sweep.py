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
from tests.common import fleets

GROUP = membership.Named('9a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e', 'spread',
                          'conductor_group', None)

deadlock = fleets.raising(db_exc.DBDeadlock())

#: A statement of each step of a sweep.
STEPS = ('UPDATE reservations SET', 'UPDATE nodes SET',
         'DELETE FROM reservations WHERE', 'DELETE FROM reservations_groups')


def test_deadlocks_after_the_deadline_of_a_request(fleet, option):
    """Each step is retried, and counted once."""
    active = fleet.add_node()
    fleet.hold(fleets.INSTANCE)
    for _ in range(3):
        fleet.add_node()
        fleet.hold()
    fleet.add_node(conductor_group='rack-7')
    member, _ = fleet.hold(group=GROUP)
    fleet.expire_leases()
    fleet.set_node(active, provision_state='active')
    # The reservation is stale, and its group has no other.
    fleet.set_node(member.node_id, instance_uuid=None)
    option(deadline=1)
    with contextlib.ExitStack() as stack:
        # The first statement takes longer than the deadline.
        stack.enter_context(
            fleet.before('SELECT', lambda: time.sleep(1.1)))
        for step in STEPS:
            stack.enter_context(fleet.before(step, deadlock))
        assert expiry.sweep() == (3, 1)
    assert fleet.holds == {active: fleets.INSTANCE}
    assert fleet.execute(sa.select(models.groups)) == []


def test_permanent_deadlock(fleet, option):
    """The sweep fails while another transaction keeps the node locked."""
    fleet.add_node()
    fleet.hold(fleets.INSTANCE)
    fleet.expire_leases()
    option(deadline=1)
    with fleet.before('UPDATE nodes SET', deadlock, times=10000):
        with pytest.raises(db_exc.DBDeadlock):
            expiry.sweep()
