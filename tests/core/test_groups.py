# SPDX-License-Identifier: Apache-2.0
"""Groups on both databases: one at a time, all or none, and claims."""

import collections
import json
import uuid as uuid_

from oslo_db import exception as db_exc
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import models
from ironic_reservations.fleet import capacity
from ironic_reservations.fleet import counts
from ironic_reservations.fleet import profiles
from ironic_reservations.reservations import adoption
from ironic_reservations.reservations import claims
from ironic_reservations.reservations import group_releases
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import releases
from tests.common import fleets

A, B = 'a' * 32, 'b' * 32


def add_racks(fleet, **free):
    """Add free nodes to racks: r1=2, r2=1; nodes of ``none`` have no rack."""
    for rack, number in free.items():
        properties = {'memory_mb': 1024}
        if rack != 'none':
            properties['capabilities'] = f'rack:{rack}'
        fleet.add(*[{'properties': properties}] * number)


def name_group(policy, uuid=fleets.GROUP, project=None, by='capability:rack'):
    return values.GroupRequest(uuid, policy, policy and by,
                               project_id=project)


def join(fleet, policy, expect_new=True, **more):
    """Hold one node for the group, and return its rack."""
    reservation, is_new = fleet.hold(
        group=name_group(policy), owner=values.Assignment(**more))
    assert is_new == expect_new
    return reservation.domain


def create(fleet, members, policy, uuid=fleets.GROUP, by='capability:rack',
           project=None, lease=None, ownership=None, **body):
    """Hold all members at once."""
    if isinstance(members, int):
        members = [str(uuid_.uuid4()) for _ in range(members)]
    return groups.create_group(
        fleets.matcher(ownership=ownership,
                       **body or {'resource_class': 'gold'}),
        obtain.Request(
            tuple(members), values.Assignment(project_id=project), lease,
            group=name_group(policy, uuid, project, by),
            digest=json.dumps([len(members), body])))


def count_members():
    """Return the number of members in each rack."""
    return count_domains(groups.get_group(fleets.GROUP))


def count_domains(group):
    return collections.Counter(member.domain for member in group.members)


# One at a time

def test_pack(fleet):
    add_racks(fleet, r1=1, r2=3, r3=2, none=4)
    # The first member is placed in the rack with the most room.
    assert [join(fleet, 'pack') for _ in range(3)] == ['r2'] * 3
    with pytest.raises(exception.NoMatchingNode):
        join(fleet, 'pack')


def test_soft_spread(fleet):
    add_racks(fleet, r1=3, r2=1, none=1)
    domains = [join(fleet, 'soft-spread') for _ in range(5)]
    assert set(domains[:2]) == {'r1', 'r2'}
    assert domains[2:] == ['r1', 'r1', None]


def test_soft_pack(fleet):
    add_racks(fleet, r1=1, r2=2, none=3)
    assert [join(fleet, 'soft-pack') for _ in range(4)] == [
        'r2', 'r2', 'r1', None]


def test_policy_comes_before_the_fit(fleet):
    add_racks(fleet, r1=1)
    fleet.add(*({'properties': {'memory_mb': memory,
                                'capabilities': f'rack:{rack}'}}
                for memory, rack in ((64, 'r2'), (9000, 'r1'))))
    group = name_group('pack')
    first, _ = fleet.hold(group=group, memory_mb=1024)
    assert first.domain == 'r1'
    second, _ = fleet.hold(group=group, memory_mb=1)
    assert second.domain == 'r1'


def test_domains_of_members_are_fixed(fleet):
    """Updates of a node do not change its member's domain."""
    add_racks(fleet, r1=1, r2=1)
    first = join(fleet, 'spread')
    [node_id] = fleet.holds
    fleet.set_node(node_id, properties={'capabilities': 'rack:elsewhere'})
    assert join(fleet, 'spread') != first
    assert count_members() == {'r1': 1, 'r2': 1}


@pytest.mark.on('server')
def test_node_that_moves_to_another_rack(fleet):
    node_id = fleet.add_node(properties={'capabilities': 'rack:r1'})

    def move():
        fleet.set_node(node_id, properties={'capabilities': 'rack:r2'})
    with fleet.before('UPDATE nodes', move):
        assert join(fleet, 'spread') == 'r2'


@pytest.mark.parametrize('how', ['expired', 'stale'])
def test_expired_and_stale_members(fleet, how):
    """They are deleted before the group is is_new again."""
    add_racks(fleet, r1=2, r2=2)
    fleet.hold(group=name_group('spread'), lease=60)
    before = groups.get_group(fleets.GROUP).id
    if how == 'expired':
        fleet.expire_leases()
    else:
        fleet.execute(sa.update(models.nodes).values(instance_uuid=None))
    with pytest.raises(exception.NotFound):
        groups.get_group(fleets.GROUP)
        groups.get_group(fleets.GROUP)
    join(fleet, 'pack')
    assert groups.get_group(fleets.GROUP).policy == 'pack'
    assert groups.get_group(fleets.GROUP).id != before
    assert len(fleet.rows) == 1 and len(fleet.group_rows) == 1


@pytest.mark.parametrize('back', [{'reservation': 'conductor'},
                                  {'instance_info': '{"a": 1}'}], ids=str)
def test_expired_member_is_not_revived(fleet, use_count, back):
    """A change of the node after the lease would make it count again."""
    add_racks(fleet, r1=2)
    first, _ = fleet.hold(group=name_group('spread'), lease=60)
    add_racks(fleet, r2=1)
    assert join(fleet, 'spread') == 'r2'
    fleet.expire_leases()
    fleet.execute(sa.update(models.reservations).where(
        models.reservations.c.id != first.id).values(expires_at=None))
    assert join(fleet, 'spread') == 'r1'
    fleet.set_node(first.node_id, **back)
    assert count_members() == {'r1': 1, 'r2': 1}


def test_stale_member_is_not_revived(fleet):
    add_racks(fleet, r1=2)
    first, _ = fleet.hold(group=name_group('spread'))
    add_racks(fleet, r2=1)
    assert join(fleet, 'spread') == 'r2'
    fleet.set_node(first.node_id, instance_uuid=None, maintenance=True)
    assert join(fleet, 'spread') == 'r1'
    fleet.set_node(first.node_id, instance_uuid=first.instance_uuid)
    assert count_members() == {'r1': 1, 'r2': 1}


@pytest.mark.on('server')
@pytest.mark.parametrize('after', [False, True])
def test_commit_without_a_response(fleet, after):
    add_racks(fleet, r1=2, r2=2)
    with fleet.fail_commit(db_exc.DBConnectionError(), after):
        join(fleet, 'spread', expect_new=not after)
    assert len(groups.get_group(fleets.GROUP).members) == 1


# All or none

@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('policy, free, members, expected', [
    ('pack', {'r1': 5, 'r2': 3, 'r3': 2}, 3, {'r2': 3}),
    ('spread', {'r1': 5, 'r2': 3, 'r3': 1}, 3, {'r1': 1, 'r2': 1, 'r3': 1}),
    ('soft-pack', {'r1': 3, 'r2': 2, 'r3': 1}, 4, {'r1': 3, 'r3': 1}),
    ('soft-spread', {'r1': 3, 'r2': 1, 'none': 2}, 5,
     {'r1': 3, 'r2': 1, None: 1}),
    (None, {'r1': 1, 'none': 1}, 2, {None: 2}),
])
def test_all_at_once(fleet, policy, free, members, expected):
    add_racks(fleet, **free)
    group, is_new = create(fleet, members, policy)
    assert is_new
    assert count_domains(group) == expected
    assert len(fleet.holds) == members
    result = groups.get_group(fleets.GROUP)
    assert count_domains(result) == expected
    assert {member.instance_uuid for member in result.members} == {
        member.instance_uuid for member in group.members}
    for name in 'uuid', 'policy', 'by', 'project_id', 'created_at':
        assert getattr(result, name) == getattr(group, name)


@pytest.mark.on('sqlite', 'server')
def test_node_taken_while_all_are_held(fleet):
    add_racks(fleet, r1=3)
    node_ids = []

    def other():
        node_ids.append(fleet.hold()[0].node_id)
    # The last of three updates finds its node taken.
    with fleet.before('UPDATE nodes', other), \
            pytest.raises(exception.NoMatchingNode) as error:
        create(fleet, 3, 'pack')
    assert fleets.present(error)['members'] == {'wanted': 3, 'available': 2}
    assert list(fleet.holds) == node_ids


def test_nodes_taken_during_each_search(fleet, monkeypatch):
    """Each count shows enough nodes; concurrent requests then take some."""
    add_racks(fleet, r1=4)
    recount, others, turns = counts.get_fresh_fleet, [], []

    def fresh(candidates, since, use):
        while len(others) > len(turns) % 2:
            releases.release_reservation(others.pop())
        turns.append(recount(candidates, since))
        while len(others) < 2 and len(turns) < 6:
            others.append(fleet.hold()[0].instance_uuid)
        return turns[-1]
    monkeypatch.setattr(counts, 'get_fresh_fleet', fresh)
    # The first search uses an outdated count.
    recent = iter([profiles.Fleet(())])
    monkeypatch.setattr(counts, 'get_recent_fleet',
                        lambda *_: (next(recent, None) or recount(), True))


def test_conflict_does_not_repeat_the_count(fleet, use_count, monkeypatch):
    """The fleet is counted once, for the search that finds nothing."""
    add_racks(fleet, r1=2, r2=2)
    join(fleet, 'soft-spread')
    use_count(profiles.Fleet(()))
    fresh, recounts = counts.get_fresh_fleet, []
    monkeypatch.setattr(
        counts, 'get_fresh_fleet',
        lambda *args: recounts.append(args) or fresh(*args))

    def change():
        fleet.execute(sa.update(models.groups).values(
            generation=models.groups.c.generation + 1))

    with fleet.before('UPDATE nodes', change, times=4) as statements:
        join(fleet, 'soft-spread')
    assert len(statements) == 4 and len(recounts) == 1


def test_malformed_properties(fleet):
    """The database reads a size in them, but Python does not."""
    fleet.add_node(properties='{"memory_mb": 4096, "cpu_arch": 64}')
    with pytest.raises(exception.NoMatchingNode) as error:
        create(fleet, 1, None, extra_specs={'capabilities:cpu_arch': '64'})
    assert fleets.present(error)['explanation']['eliminated'] == [
        {'by': 'malformed properties', 'nodes': 1}]


@pytest.mark.on('server')
def test_rack_that_has_become_too_small(fleet):
    add_racks(fleet, r1=2, r2=3)

    def other():
        fleet.hold(extra_specs={'capabilities:rack': 'r1'})
    with fleet.before('UPDATE nodes', other):
        group, _ = create(fleet, 2, 'pack')
    assert len(fleet.holds) == 3
    assert count_domains(group) == {'r2': 2}


def test_nodes_are_locked_in_the_order_of_their_ids(fleet):
    add_racks(fleet, r1=9)
    for _ in range(3):
        group, _ = create(fleet, 3, None, uuid=str(uuid_.uuid4()))
        order = [member.node_id for member in group.members]
        assert order == sorted(order)


@pytest.mark.parametrize('is_expired', [False, True])
def test_repeat(fleet, is_expired):
    add_racks(fleet, r1=2)
    first, _ = create(fleet, 2, 'pack', lease=60)
    second, is_new = create(fleet, 2, 'pack', lease=600)
    assert not is_new
    assert {member.id for member in second.members} == {
        member.id for member in groups.get_group(fleets.GROUP).members}
    assert all(new.expires_at > old.expires_at
               for new, old in zip(second.members, first.members,
                                   strict=True))
    if is_expired:
        fleet.expire_leases()
        third, is_new = create(fleet, 2, 'pack')
        assert is_new and third.id != first.id


def test_stale_rows_of_members_do_not_matter(fleet):
    add_racks(fleet, r1=2)
    instance = str(uuid_.uuid4())
    fleet.add_stale_row(instance_uuid=instance)
    group, _ = create(fleet, [instance, str(uuid_.uuid4())], 'pack')
    assert len(group.members) == len(fleet.holds) == 2


@pytest.mark.on('server')
@pytest.mark.parametrize('after', [False, True])
def test_commit_of_all_without_a_response(fleet, after):
    add_racks(fleet, r1=2)
    with fleet.fail_commit(db_exc.DBConnectionError(), after):
        group, is_new = create(fleet, 2, 'pack')
    assert is_new == (not after)
    assert len(group.members) == len(fleet.holds) == 2


def test_repeat_after_the_group_has_grown(fleet):
    add_racks(fleet, r1=4, r2=9)
    create(fleet, 2, 'pack')
    assert join(fleet, 'pack') == 'r1'
    # A group may have more members than the request.
    assert not create(fleet, 2, 'pack')[1]


@pytest.mark.on('sqlite', 'server')
def test_find_groups(fleet):
    add_racks(fleet, r1=9)
    for number in range(3):
        create(fleet, 2, 'pack', uuid=fleets.GROUP[:-1] + str(number),
               project=A if number else B)
    all_groups = groups.find_groups(9)
    assert [group.uuid[-1] for group in all_groups] == ['0', '1', '2']
    assert [group.domains for group in all_groups] == [{'r1': 2}] * 3
    assert [group.uuid[-1] for group in groups.find_groups(1)] == ['0']
    assert [group.uuid[-1] for group in groups.find_groups(
        9, after=groups.find_position(all_groups[0].uuid)[0])] == ['1', '2']
    assert [group.uuid[-1] for group in groups.find_groups(
        9, fleets.reach(A))] == ['1', '2']
    assert groups.find_position(all_groups[0].uuid, fleets.reach(A)) == []


@pytest.mark.on('server')
def test_release_during_claims_and_joins(fleet):
    """The release succeeds only when no member is left."""
    add_racks(fleet, r1=4)
    group, _ = create(fleet, 3, 'pack')
    others = []

    def other():
        others.append(claim(group.members[2].instance_uuid)[0])
        others.append(fleet.hold(group=name_group('pack'))[0])
    with fleet.before('UPDATE nodes', other):
        group_releases.release_group(fleets.GROUP, lambda group: None,
                                     values.ALL)
    assert len(others) == 2 and not fleet.holds


@pytest.mark.on('server')
def test_page_is_full_although_a_group_is_deleted(fleet):
    add_racks(fleet, r1=4)
    first, *others = [create(fleet, 1, None, uuid=str(uuid_.uuid4()))[0]
                      for _ in range(4)]

    def release_first():
        releases.release_reservation(first.members[0].instance_uuid)
    # This statement follows the one that selects the groups of the page.
    with fleet.before('SELECT reservations.', release_first):
        page = groups.find_groups(2)
    assert [group.uuid for group in page] == [
        group.uuid for group in others[:2]]


def test_repeat_keeps_the_lease_of_a_claimed_member(fleet):
    add_racks(fleet, r1=2)
    group, _ = create(fleet, 2, None, lease=60)
    reservation, _ = claim(group.members[0].instance_uuid, lease=600)
    again, is_new = create(
        fleet, [member.instance_uuid for member in group.members], None)
    assert not is_new
    leases = {member.instance_uuid: member.expires_at
              for member in again.members}
    assert leases.pop(reservation.instance_uuid) == reservation.expires_at
    assert list(leases.values()) == [None]


@pytest.mark.on('server')
def test_group_is_created_again_while_it_is_requested_again(fleet):
    add_racks(fleet, r1=3)
    group, _ = create(fleet, 2, None)
    names = [member.instance_uuid for member in group.members]

    def create_again():
        for name in names:
            releases.release_reservation(name)
        create(fleet, 1, None, project=B)
    with fleet.before('SELECT reservations.', create_again), \
            pytest.raises(exception.Conflict):
        create(fleet, names, None)


# Claims

def claim(uuid, instance=None, project=None, host='compute-1', lease=None,
          authorize=lambda reservation: None, **body):
    return claims.claim_reservation(
        uuid, fleets.matcher(**body or {'resource_class': 'gold'}),
        obtain.Request(
            (instance or str(uuid_.uuid4()),),
            values.Assignment(host, project_id=project), lease), authorize)


@pytest.mark.on('sqlite', 'server')
def test_claim_of_a_reservation(fleet):
    add_racks(fleet, r1=1)
    old, _ = fleet.hold(owner=values.Assignment(), lease=60)
    reservation, is_new = claim(old.instance_uuid, lease=600)
    assert is_new
    assert reservation.node_id == old.node_id and reservation.id != old.id
    assert reservation.host == 'compute-1'
    assert reservation.expires_at > old.expires_at
    assert fleet.holds == {old.node_id: reservation.instance_uuid}
    again, is_new = claim(old.instance_uuid, reservation.instance_uuid)
    assert not is_new and again.node_id == old.node_id


def test_claim_of_the_member_that_fits_best(fleet):
    fleet.add(*({'properties': {'memory_mb': memory}}
                for memory in (4096, 1024, 2048)))
    create(fleet, 3, None)
    reservation, _ = claim(fleets.GROUP, memory_mb=1500)
    assert fleet[reservation.node_id].properties == '{"memory_mb": 2048}'


def test_claim_that_does_not_match(fleet):
    add_racks(fleet, r1=2)
    reservation, _ = fleet.hold(owner=values.Assignment())
    with pytest.raises(exception.NoMatchingNode) as error:
        claim(reservation.instance_uuid, memory_mb=4096)
    assert fleets.present(error)['explanation'] == {
        'considered': 1,
        'eliminated': [{'by': 'memory_mb>=4096', 'nodes': 1}],
        'nearest': {'by': 'memory_mb>=4096', 'nodes': 1}}
    assert list(fleet.holds) == [reservation.node_id]


@pytest.mark.parametrize('change, error', [
    ({'provision_state': 'deploying'}, exception.Conflict),
    ({'maintenance': True}, exception.NoMatchingNode),
    ({'reservation': 'conductor'}, exception.NoMatchingNode),
])
def test_claim_of_an_unusable_node(fleet, change, error):
    add_racks(fleet, r1=1)
    reservation, _ = fleet.hold(owner=values.Assignment())
    fleet.set_node(reservation.node_id, **change)
    with pytest.raises(error) as error_info:
        claim(reservation.instance_uuid)
    if error is exception.NoMatchingNode:
        assert error_info.value.verdict.retry == ('reservation' in change)
    assert fleet.holds == {reservation.node_id: reservation.instance_uuid}


@pytest.mark.parametrize('owner, claimant', [(A, B), (None, B), (A, None)])
def test_claim_by_another_project(fleet, owner, claimant):
    add_racks(fleet, r1=1)
    reservation, _ = fleet.hold(owner=values.Assignment(project_id=owner))
    with pytest.raises(exception.NotFound):
        claim(reservation.instance_uuid, project=claimant)


@pytest.mark.on('sqlite', 'server')
def test_claim_of_a_lease_that_expires_while_another_node_has_a_port(fleet):
    """Only a port of the node itself keeps the lease from expiring."""
    add_racks(fleet, r1=1)
    reservation, _ = fleet.hold(owner=values.Assignment(), lease=600)
    fleet.insert_row('ports', fleet.add_node(resource_class='silver'),
                     address='52:54:00:00:00:01',
                     internal_info='{"tenant_vif_port_id": "x"}')
    with fleet.before('UPDATE nodes SET', fleet.expire_leases), \
            pytest.raises(exception.NotFound):
        claim(reservation.instance_uuid)
    # The expired reservation has not been released yet.
    assert fleet.holds == {reservation.node_id: reservation.instance_uuid}


@pytest.mark.on('sqlite', 'server')
def test_capacity_counts_claimable_nodes(fleet):
    add_racks(fleet, none=6)
    fleet.hold(owner=values.Assignment())
    fleet.hold(owner=values.Assignment('compute-1'))
    for change in {'maintenance': True}, {'provision_state': 'active'}:
        reservation, _ = fleet.hold(owner=values.Assignment())
        fleet.set_node(reservation.node_id, **change)
    [(_, row)] = capacity.list_rows(0, capacity.Filter())[0]
    assert (row['total'], row['free'], row['claimable']) == (6, 2, 1)
    claim(next(row.instance_uuid for row in fleet.rows if not row.host))
    [(_, row)] = capacity.list_rows(0, capacity.Filter())[0]
    assert (row['free'], row['claimable']) == (2, 0)


# Adoption

def test_adoption_overrides_the_policy(fleet):
    add_racks(fleet, r1=2)
    join(fleet, 'spread')
    node_id, = fleet.execute(sa.select(models.nodes.c.id).where(
        models.nodes.c.instance_uuid.is_(None)))[0]
    instance = str(uuid_.uuid4())
    fleet.set_node(node_id, instance_uuid=instance, provision_state='active')
    spec = fleets.matcher(memory_mb=1).spec
    for _ in range(2):
        reservation, _ = adoption.adopt_instance(
            instance, spec, values.Assignment('compute-1'),
            group=name_group('spread'))
        assert reservation.domain == 'r1'
    assert count_members() == {'r1': 2}
    with pytest.raises(exception.NoMatchingNode):
        join(fleet, 'spread')


def deploy(fleet):
    """Let compute-1 hold a node of rack r1, and deploy an instance on it."""
    add_racks(fleet, r1=1)
    reservation, _ = fleet.hold(owner=values.Assignment('compute-1'))
    fleet.set_node(reservation.node_id, provision_state='active')
    return reservation


def adopt(reservation, uuid=fleets.GROUP):
    return adoption.adopt_instance(
        reservation.instance_uuid, fleets.matcher(memory_mb=1).spec,
        values.Assignment('compute-1'), group=name_group('spread', uuid))[0]


def test_repeated_adoption_changes_no_domain(fleet):
    reservation = deploy(fleet)
    assert adopt(reservation).domain == 'r1'
    fleet.set_node(reservation.node_id, properties={
        'memory_mb': 1024, 'capabilities': 'rack:r9'})
    assert adopt(reservation).domain == 'r1'
    other = adopt(reservation, str(uuid_.uuid4()))
    assert (other.group_uuid, other.domain) == (fleets.GROUP, 'r1')
