# SPDX-License-Identifier: Apache-2.0
"""Of many reservations nobody reads what each was asked for.

A request spec may have 63 KB; a group of 256 has 16 MB of them.
"""

import pytest

from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import membership
from tests.db import conftest


@pytest.fixture
def group(fleet):
    """Two members whose leases end, and a free node."""
    fleet.add({}, {}, {})
    return fleet.group(2, lease=60)


def claim(fleet, group):
    fleet.claim(conftest.GROUP)


def expire(fleet, group):
    fleet.lapse()
    assert expiry.sweep() == (2, 0)


def purge(fleet, group):
    for member in group.members:
        fleet.edit(member.node_id, instance_uuid=None)
    assert expiry.purge() == 2


def be_overdue(fleet, group):
    for member in group.members:
        fleet.edit(member.node_id, provision_state='deploy failed')
    fleet.lapse()
    assert len(expiry.find_overdue()) == 2


def join_what_remains(fleet, group):
    fleet.edit(group.members[0].node_id, instance_uuid=None)
    fleet.hold(group=membership.GroupRequest(conftest.GROUP, None, None, None))


@pytest.mark.on('sqlite')
@pytest.mark.parametrize('act', [
    claim, expire, purge, be_overdue, join_what_remains])
def test_request_specs_stay_unread(fleet, group, act):
    with fleet.statements('reservations.host') as read:
        act(fleet, group)
    assert read
    # What one instance has is found by way of the node that carries it.
    assert not [each for each in read if 'reservations.request_spec' in each
                and 'FROM nodes LEFT OUTER JOIN reservations' not in each]
