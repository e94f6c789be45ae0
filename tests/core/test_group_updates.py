# SPDX-License-Identifier: Apache-2.0
"""A lease applies to all members of a group that nobody uses, or to none."""

import pytest

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.reservations import group_updates
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import updates
from tests.common import fleets

pytestmark = pytest.mark.on('sqlite', 'server')

DAY = 86400


@pytest.fixture
def members(fleet):
    """Four members without a lease, in the order of their nodes."""
    fleet.add(*[{}] * 4)
    return fleet.hold_group(4).members


def update(reach=values.ALL, **changes):
    return group_updates.update_group(
        fleets.GROUP, changes, lambda group: None, reach)


def find_renewed():
    """Return the nodes of the members that have a lease."""
    return {member.node_id for member in groups.get_group(fleets.GROUP).members
            if member.expires_at}


def test_lease(fleet, members, caplog):
    caplog.set_level('INFO')
    in_use, deploying, *others = members
    updates.update_reservation(in_use.instance_uuid, {'host': 'compute-1'})
    fleet.set_node(deploying.node_id, provision_state='deploying')
    nodes = {member.node_id for member in others}
    with fleet.row_counts('UPDATE reservations SET') as counts:
        group = update(lease=DAY)
    assert counts == [2] and find_renewed() == nodes
    assert {member.node_id for member in group.members
            if member.expires_at} == nodes
    assert len({member.expires_at for member in group.members}) == 2
    assert sum('is renewed (' in record.getMessage()
               for record in caplog.records) == 2
    update(lease=None)
    assert not find_renewed()


def test_description(fleet, members):
    fleet.set_node(members[0].node_id, provision_state='active')
    for text in ('for Friday', '', None):
        group = update(description=text)
        assert group == groups.get_group(fleets.GROUP)
        assert group.description == text and len(group.members) == 4
    assert not find_renewed()


def test_no_member_without_a_host(fleet, members):
    for member in members:
        updates.update_reservation(member.instance_uuid, {'host': 'h'})
    with pytest.raises(exception.Conflict, match='^No member of group'):
        update(lease=DAY, description='new')
    group = groups.get_group(fleets.GROUP)
    assert group.description is None and not find_renewed()


def test_deadline(fleet, members, monkeypatch):
    """At each write of the lease, another member has gone."""
    def expire():
        raise exception.DeadlineExceeded('too late')
    monkeypatch.setattr(engine, 'check_deadline', expire)
    with fleet.before('UPDATE reservations SET', lambda: (
            releases.release_reservation(members[0].instance_uuid))), \
            pytest.raises(exception.DeadlineExceeded):
        update(lease=DAY)
    assert not find_renewed()


def test_former_lessee(fleet):
    """A project cannot renew a group with a node that it may no longer use."""
    fleet.add(*[{'lessee': 'p'}] * 2)
    for _ in range(2):
        fleet.hold(project='p', owner=values.Assignment(project_id='p'),
                   group=values.GroupRequest(
                       fleets.GROUP, project_id='p'))
    first, _ = groups.get_group(fleets.GROUP).members
    update(fleets.reach('p'), lease=DAY)
    fleet.set_node(first.node_id, lessee='q')
    with pytest.raises(exception.Conflict, match='may no longer use node'):
        update(fleets.reach('p'), lease=None)
    assert len(find_renewed()) == 2
    update(fleets.reach('p'), description='new')
    update(lease=None)
    assert not find_renewed()
