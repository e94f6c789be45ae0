# SPDX-License-Identifier: Apache-2.0
"""Queries about many reservations do not read the request specs.

A request spec may have 63 KB; a group of 256 has 16 MB of them.
"""

import pytest

from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import membership
from tests.common import fleets


@pytest.fixture
def group(fleet):
    """Two members whose leases expire, and a free node."""
    fleet.add({}, {}, {})
    return fleet.hold_group(2, lease=60)


def claim(fleet, group):
    fleet.claim(fleets.GROUP)


def expire(fleet, group):
    fleet.expire_leases()
    assert expiry.sweep() == (2, 0)


def purge(fleet, group):
    for member in group.members:
        fleet.set_node(member.node_id, instance_uuid=None)
    assert expiry.purge() == 2


def be_overdue(fleet, group):
    for member in group.members:
        fleet.set_node(member.node_id, provision_state='deploy failed')
    fleet.expire_leases()
    assert len(expiry.overdue()) == 2


def join_the_rest(fleet, group):
    fleet.set_node(group.members[0].node_id, instance_uuid=None)
    fleet.hold(group=membership.Named(fleets.GROUP, None, None, None))


@pytest.mark.on('sqlite')
@pytest.mark.parametrize('act', [
    claim, expire, purge, be_overdue, join_the_rest])
def test_request_specs_stay_unread(fleet, group, act):
    with fleet.statements('reservations.host') as statements:
        act(fleet, group)
    assert statements
    # The reservation of one instance is found through the node's row.
    assert not [statement for statement in statements
                if 'reservations.request_spec' in statement
                and 'FROM nodes LEFT OUTER JOIN reservations' not in statement]
