# SPDX-License-Identifier: Apache-2.0
"""Members of groups: the last one is released; queries about many members."""

import concurrent.futures

import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import models
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import group_releases
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import releases
from tests.common import fleets


@pytest.fixture
def group(fleet):
    """Two members, whose leases last for a minute, and a free node."""
    fleet.add({}, {}, {})
    return fleet.hold_group(2, lease=60)


def release(fleet, group):
    """Release the members one by one."""
    for member in group.members:
        releases.release_reservation(member.instance_uuid)


def release_group(fleet, group):
    group_releases.release_group(fleets.GROUP, lambda group: None,
                                 values.ALL)


def expire(fleet, group):
    """Let their leases expire, and let another request release them."""
    fleet.expire_leases()
    fleet.hold()


def sweep(fleet, group):
    fleet.expire_leases()
    assert expiry.sweep() == (2, 0)


def expire_one_by_one(fleet, group):
    """Let their leases expire, and request the release of each."""
    fleet.expire_leases()
    for member in group.members:
        with pytest.raises(exception.NotFound):
            releases.release_reservation(member.instance_uuid)
            releases.release_reservation(member.instance_uuid)


def tear_down(fleet, group):
    """Let Ironic clear the nodes, and look up the instances."""
    fleet.execute(sa.update(models.nodes).values(instance_uuid=None))
    for member in group.members:
        with pytest.raises(exception.NotFound):
            expiry.get_or_purge(member.instance_uuid)


def hold_again(fleet, group):
    """Let Ironic clear the nodes, and hold them for other instances."""
    fleet.execute(sa.update(models.nodes).values(instance_uuid=None))
    for _ in range(3):
        fleet.hold()


@pytest.mark.parametrize('end', [
    release, release_group, expire, sweep, expire_one_by_one, tear_down,
    hold_again])
def test_group_is_deleted_with_its_last_member(fleet, group, end):
    end(fleet, group)
    assert fleet.group_rows == []
    assert not [row for row in fleet.rows if row.group_id]


def test_group_stays_while_it_has_a_member(fleet, group):
    first, other = group.members
    releases.release_reservation(first.instance_uuid)
    group = groups.get_group(fleets.GROUP)
    assert [member.id for member in group.members] == [
        row.id for row in fleet.rows]
    assert len(fleet.group_rows) == 1
    reservation, _ = fleet.claim(fleets.GROUP)
    assert reservation.node_id == other.node_id and len(fleet.group_rows) == 1
    releases.release_reservation(reservation.instance_uuid)
    assert fleet.group_rows == []


def test_all_members_are_released_at_once(fleet):
    """None of them leaves the group for another to delete."""
    fleet.add(*[{}] * 4)
    names = [member.instance_uuid for member in fleet.hold_group(4).members]
    with concurrent.futures.ThreadPoolExecutor(4) as executor:
        list(executor.map(releases.release_reservation, names))
    assert not fleet.holds and fleet.group_rows == []


# Request specs

def claim(fleet, group):
    fleet.claim(fleets.GROUP)


def purge(fleet, group):
    for member in group.members:
        fleet.set_node(member.node_id, instance_uuid=None)
    assert expiry.purge() == 2


def be_overdue(fleet, group):
    for member in group.members:
        fleet.set_node(member.node_id, provision_state='deploy failed')
    fleet.expire_leases()
    assert len(expiry.find_overdue()) == 2


def join_the_rest(fleet, group):
    fleet.set_node(group.members[0].node_id, instance_uuid=None)
    fleet.hold(group=values.GroupRequest(fleets.GROUP))


@pytest.mark.parametrize('act', [
    claim, sweep, purge, be_overdue, join_the_rest])
def test_request_specs_stay_unread(fleet, group, act):
    """A request spec may have 63 KB; a group of 256 has 16 MB of them."""
    with fleet.statements('reservations.host') as statements:
        act(fleet, group)
    assert statements
    # The reservation of one instance is found through the node's row.
    assert not [statement for statement in statements
                if 'reservations.request_spec' in statement
                and 'FROM nodes LEFT OUTER JOIN reservations' not in statement]
