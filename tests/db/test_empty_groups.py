# SPDX-License-Identifier: Apache-2.0
"""A group's row goes with the row of its last member."""

import concurrent.futures

import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations.db import models
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import group_releases
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import releases
from tests.db import conftest


@pytest.fixture
def group(fleet):
    """Two members, whose leases last for a minute, and a free node."""
    fleet.add({}, {}, {})
    return fleet.group(2, lease=60)


def release(fleet, group):
    """Each by itself."""
    for member in group.members:
        releases.release_reservation(member.instance_uuid)


def release_group(fleet, group):
    group_releases.release_group(conftest.GROUP, lambda group: None,
                           is_restricted=False)


def lapse(fleet, group):
    """Their leases end, and another request meets them."""
    fleet.lapse()
    fleet.hold()


def lapse_each(fleet, group):
    """The same, met by a request about each."""
    fleet.lapse()
    for member in group.members:
        with pytest.raises(exception.NotFound):
            releases.release_reservation(member.instance_uuid)


def tear_down(fleet, group):
    """Ironic clears the nodes, and somebody asks for the instances."""
    fleet.execute(sa.update(models.nodes).values(instance_uuid=None))
    for member in group.members:
        with pytest.raises(exception.NotFound):
            expiry.get_or_purge(member.instance_uuid)


def hold_again(fleet, group):
    """Ironic clears the nodes, and they are held for other instances."""
    fleet.execute(sa.update(models.nodes).values(instance_uuid=None))
    for _ in range(3):
        fleet.hold()


@pytest.mark.parametrize('end', [release, release_group, lapse, lapse_each,
                                 tear_down, hold_again])
def test_group_goes_with_its_last_member(fleet, group, end):
    end(fleet, group)
    assert fleet.groups == []
    assert not [row for row in fleet.rows if row.group_id]


def test_group_stays_while_a_member_is_left(fleet, group):
    first, other = group.members
    releases.release_reservation(first.instance_uuid)
    assert [each.id for each in groups.get_group(conftest.GROUP).members] == [
        row.id for row in fleet.rows]
    assert len(fleet.groups) == 1
    claimed, _ = fleet.claim(conftest.GROUP)
    assert claimed.node_id == other.node_id and len(fleet.groups) == 1
    releases.release_reservation(claimed.instance_uuid)
    assert fleet.groups == []


def test_all_members_go_at_the_same_moment(fleet):
    """None of them leaves the group to another."""
    fleet.add(*[{}] * 4)
    names = [member.instance_uuid for member in fleet.group(4).members]
    with concurrent.futures.ThreadPoolExecutor(4) as executor:
        list(executor.map(releases.release_reservation, names))
    assert not fleet.held and fleet.groups == []
