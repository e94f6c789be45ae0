# SPDX-License-Identifier: Apache-2.0
"""Groups on both databases: one at a time, all or none, and claims."""

import collections
import contextlib
import json
import uuid as uuid_

from oslo_db import exception as db_exc
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations.db import models
from ironic_reservations.fleet import capacity
from ironic_reservations.fleet import count as fleets
from ironic_reservations.fleet import profiles
from ironic_reservations.reservations import adoption
from ironic_reservations.reservations import claims
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import group_releases
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import updates
from ironic_reservations.reservations import values
from tests.db import conftest

GROUP = '11111111-2222-4333-8444-555555555555'
A, B = 'a' * 32, 'b' * 32


def racks(fleet, **free):
    """So many free nodes in each rack: r1=2, r2=1; ``none`` states none."""
    for rack, number in free.items():
        properties = {'memory_mb': 1024}
        if rack != 'none':
            properties['capabilities'] = f'rack:{rack}'
        fleet.add(*[{'properties': properties}] * number)


def wanted(policy, uuid=GROUP, project=None, by='capability:rack'):
    return membership.GroupRequest(uuid, policy, policy and by, project)


def join(fleet, policy, lost=False, **more):
    """Hold one node for the group; its rack."""
    reservation, created = fleet.hold(
        group=wanted(policy), owner=values.Assignment(**more))
    assert created == (not lost)
    return reservation.domain


def create(fleet, members, policy, uuid=GROUP, by='capability:rack',
           project=None, lease=None, asked=None, **body):
    """Hold all members at once."""
    if isinstance(members, int):
        members = [str(uuid_.uuid4()) for _ in range(members)]
    return groups.create_group(
        conftest.matcher(**body or {'resource_class': 'gold'}),
        obtain.Request(
            tuple(members), values.Assignment(project_id=project), lease,
            group=wanted(policy, uuid, project, by),
            digest=json.dumps([asked or len(members), body])))


def of(group):
    """How many members are in each rack."""
    return collections.Counter(each.domain for each in group.members)


def rows(fleet):
    """How many rows of groups there are."""
    [(number,)] = fleet.execute(
        sa.select(sa.func.count()).select_from(models.groups))
    return number


# One at a time

def test_pack(fleet):
    racks(fleet, r1=1, r2=3, r3=2, none=4)
    # It begins where there is most room for it to grow.
    assert [join(fleet, 'pack') for _ in range(3)] == ['r2'] * 3
    with pytest.raises(exception.NoMatchingNode):
        join(fleet, 'pack')


def test_soft_spread(fleet):
    racks(fleet, r1=3, r2=1, none=1)
    found = [join(fleet, 'soft-spread') for _ in range(5)]
    assert set(found[:2]) == {'r1', 'r2'}
    assert found[2:] == ['r1', 'r1', None]


def test_soft_pack(fleet):
    racks(fleet, r1=1, r2=2, none=3)
    assert [join(fleet, 'soft-pack') for _ in range(4)] == [
        'r2', 'r2', 'r1', None]


def test_policy_comes_before_the_fit(fleet):
    racks(fleet, r1=1)
    fleet.add(*({'properties': {'memory_mb': memory,
                                'capabilities': f'rack:{rack}'}}
                for memory, rack in ((64, 'r2'), (9000, 'r1'))))
    group = wanted('pack')
    first, _ = fleet.hold(group=group, memory_mb=1024)
    assert first.domain == 'r1'
    second, _ = fleet.hold(group=group, memory_mb=1)
    assert second.domain == 'r1'


def test_members_of_later_do_not_move(fleet):
    """Edits of a node change no member's domain."""
    racks(fleet, r1=1, r2=1)
    first = join(fleet, 'spread')
    [held] = fleet.held
    fleet.edit(held, properties={'capabilities': 'rack:elsewhere'})
    assert join(fleet, 'spread') != first
    assert {each.domain for each in groups.get_group(GROUP).members} == {
        'r1', 'r2'}


@pytest.mark.on('server')
def test_node_whose_rack_has_changed_is_not_held(fleet):
    racks(fleet, r1=1)
    node_id, = (row.id for row in fleet.execute(
        sa.select(models.nodes.c.id)))

    def move():
        fleet.edit(node_id, properties={'memory_mb': 1024,
                                        'capabilities': 'rack:r2'})
    with fleet.before('UPDATE nodes', move):
        assert join(fleet, 'spread') == 'r2'


@pytest.mark.parametrize('how', ['lapsed', 'torn down'])
def test_members_that_ended_by_themselves(fleet, how):
    """What is left of them is deleted before the group begins again."""
    racks(fleet, r1=2, r2=2)
    fleet.hold(group=wanted('spread'), lease=60)
    before = groups.get_group(GROUP).id
    if how == 'lapsed':
        fleet.lapse()
    else:
        fleet.execute(sa.update(models.nodes).values(instance_uuid=None))
    with pytest.raises(exception.NotFound):
        groups.get_group(GROUP)
    join(fleet, 'pack')
    assert groups.get_group(GROUP).policy == 'pack'
    assert groups.get_group(GROUP).id != before
    assert len(fleet.rows) == 1 and rows(fleet) == 1


@pytest.mark.parametrize('back', [{'reservation': 'conductor'},
                                  {'instance_info': '{"a": 1}'}], ids=str)
def test_member_that_has_lapsed_does_not_come_back(fleet, go_by, back):
    """A node that is touched after its lease counts again."""
    racks(fleet, r1=2)
    first, _ = fleet.hold(group=wanted('spread'), lease=60)
    racks(fleet, r2=1)
    assert join(fleet, 'spread') == 'r2'
    fleet.lapse()
    fleet.execute(sa.update(models.reservations).where(
        models.reservations.c.id != first.id).values(expires_at=None))
    assert join(fleet, 'spread') == 'r1'
    fleet.edit(first.node_id, **back)
    assert of(groups.get_group(GROUP)) == {'r1': 1, 'r2': 1}


def test_member_that_was_torn_down_does_not_come_back(fleet):
    racks(fleet, r1=2)
    first, _ = fleet.hold(group=wanted('spread'))
    racks(fleet, r2=1)
    assert join(fleet, 'spread') == 'r2'
    fleet.edit(first.node_id, instance_uuid=None, maintenance=True)
    assert join(fleet, 'spread') == 'r1'
    fleet.edit(first.node_id, instance_uuid=first.instance_uuid)
    assert of(groups.get_group(GROUP)) == {'r1': 1, 'r2': 1}


def test_sweep_deletes_empty_groups(fleet):
    racks(fleet, r1=2)
    fleet.hold(group=wanted('spread'), lease=60)
    fleet.lapse()
    fleet.hold(group=wanted('pack', str(uuid_.uuid4())))
    expiry.sweep()
    assert rows(fleet) == len(groups.find_groups(9)) == 1


@pytest.mark.on('sqlite', 'server')
def test_two_at_the_same_moment(fleet):
    """The one that finds the other one there searches again."""
    racks(fleet, r1=2, r2=1)
    join(fleet, 'spread')
    racks(fleet, r3=2)
    others = []

    def other():
        others.append(join(fleet, 'spread'))
    with fleet.before('UPDATE nodes', other):
        found = join(fleet, 'spread')
    assert found not in others
    assert max(of(groups.get_group(GROUP)).values()) == 1
    assert len(fleet.held) == 3


@pytest.mark.on('server')
def test_two_at_the_same_moment_in_the_only_rack(fleet):
    """Either there is another rack for the second one, or there is none."""
    racks(fleet, r1=1)
    join(fleet, 'spread')
    racks(fleet, r2=2)
    with fleet.before('UPDATE nodes', lambda: join(fleet, 'spread')), \
            pytest.raises(exception.NoMatchingNode):
        join(fleet, 'spread')
    assert of(groups.get_group(GROUP)) == {'r1': 1, 'r2': 1}


@pytest.mark.on('server')
def test_two_first_members_at_the_same_moment(fleet):
    racks(fleet, r1=9)
    racks(fleet, r2=1)
    others = []

    def other():
        others.append(join(fleet, 'spread'))
    with fleet.before('UPDATE nodes', other):
        found = join(fleet, 'spread')
    assert {found, *others} == {'r1', 'r2'}
    assert rows(fleet) == 1


@pytest.mark.on('server')
def test_group_ends_while_it_is_joined(fleet):
    racks(fleet, r1=2, r2=2)
    first, _ = fleet.hold(group=wanted('spread'))

    def end():
        releases.release_reservation(first.instance_uuid)
    with fleet.before('UPDATE nodes', end):
        join(fleet, 'spread')
    assert len(groups.get_group(GROUP).members) == 1


@pytest.mark.on('server')
@pytest.mark.parametrize('after', [False, True])
def test_commit_whose_answer_is_lost(fleet, after):
    racks(fleet, r1=2, r2=2)
    with fleet.commit_fails(db_exc.DBConnectionError(), after):
        join(fleet, 'spread', lost=after)
    assert len(groups.get_group(GROUP).members) == 1


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
    racks(fleet, **free)
    group, created = create(fleet, members, policy)
    assert created
    assert of(group) == expected
    assert len(fleet.held) == members
    read = groups.get_group(GROUP)
    assert of(read) == expected
    assert {each.instance_uuid for each in read.members} == {
        each.instance_uuid for each in group.members}
    for name in 'uuid', 'policy', 'by', 'project_id', 'created_at':
        assert getattr(read, name) == getattr(group, name)


@pytest.mark.on('sqlite', 'server')
def test_node_lost_while_all_are_held(fleet):
    racks(fleet, r1=3)
    lost = []

    def other():
        lost.append(fleet.hold()[0].node_id)
    # The last of three updates finds that its node has gone.
    with fleet.before('UPDATE nodes', other), \
            pytest.raises(exception.NoMatchingNode) as caught:
        create(fleet, 3, 'pack')
    assert caught.value.members == {'wanted': 3, 'available': 2}
    assert list(fleet.held) == lost


def test_nodes_lost_while_they_are_searched_for(fleet, monkeypatch):
    """Each time that they are counted there are enough, for a moment."""
    racks(fleet, r1=4)
    count, others, turns = fleets.fresh, [], []

    def fresh(candidates, since):
        while len(others) > len(turns) % 2:
            releases.release_reservation(others.pop())
        counted = count(candidates, since)
        turns.append(counted)
        while len(others) < 2 and len(turns) < 6:
            others.append(fleet.hold()[0].instance_uuid)
        return counted
    monkeypatch.setattr(fleets, 'fresh', fresh)
    # Its first search goes by a count that is old.
    recent = iter([profiles.Fleet(())])
    monkeypatch.setattr(fleets, 'recent',
                        lambda: (next(recent, None) or count(), True))
    group, _ = create(fleet, 3, 'pack')
    assert len(group.members) == 3 and len(turns) == 6


def test_search_that_a_change_has_ended_was_not_in_vain(
        fleet, go_by, monkeypatch):
    """The fleet is counted once, for the search that has found nothing."""
    racks(fleet, r1=2, r2=2)
    join(fleet, 'soft-spread')
    go_by(profiles.Fleet(()))
    fresh, counts = fleets.fresh, []
    monkeypatch.setattr(
        fleets, 'fresh', lambda *args: counts.append(args) or fresh(*args))

    def change():
        fleet.execute(sa.update(models.groups).values(
            generation=models.groups.c.generation + 1))

    with fleet.before('UPDATE nodes', change, times=4) as changed:
        join(fleet, 'soft-spread')
    assert len(changed) == 4 and len(counts) == 1


def test_malformed_properties_end_it(fleet):
    """The database reads a size in them, and Python none."""
    fleet.node(properties='{"memory_mb": 4096, "cpu_arch": 64}')
    with pytest.raises(exception.NoMatchingNode) as caught:
        create(fleet, 1, None, extra_specs={'capabilities:cpu_arch': '64'})
    assert caught.value.explanation['eliminated'] == [
        {'by': 'malformed properties', 'nodes': 1}]


@pytest.mark.on('server')
def test_another_rack_after_a_loss(fleet):
    racks(fleet, r1=2, r2=3)

    def other():
        fleet.hold(extra_specs={'capabilities:rack': 'r1'})
    with fleet.before('UPDATE nodes', other):
        group, _ = create(fleet, 2, 'pack')
    assert len(fleet.held) == 3
    assert of(group).total() == 2 and len(of(group)) == 1


def test_nodes_are_locked_in_the_order_of_their_ids(fleet):
    racks(fleet, r1=9)
    for _ in range(3):
        order = []
        group, _ = create(fleet, 3, None, uuid=str(uuid_.uuid4()))
        order = [each.node_id for each in group.members]
        assert order == sorted(order)


@pytest.mark.parametrize('lapse', [False, True])
def test_repeat(fleet, lapse):
    racks(fleet, r1=4)
    first, _ = create(fleet, 2, 'pack', lease=60)
    second, created = create(fleet, 2, 'pack', lease=600)
    assert not created
    assert {each.id for each in second.members} == {
        each.id for each in groups.get_group(GROUP).members}
    assert all(new.expires_at > old.expires_at
               for new, old in zip(second.members, first.members,
                                   strict=True))
    if lapse:
        fleet.lapse()
        third, created = create(fleet, 2, 'pack')
        assert created and third.id != first.id


def test_repeat_when_no_node_is_left(fleet):
    racks(fleet, r1=2)
    create(fleet, 2, 'pack')
    assert not create(fleet, 2, 'pack')[1]


def test_stale_rows_of_members_are_in_nobodys_way(fleet):
    racks(fleet, r1=2)
    instance = str(uuid_.uuid4())
    fleet.stale(instance_uuid=instance)
    group, _ = create(fleet, [instance, str(uuid_.uuid4())], 'pack')
    assert len(group.members) == len(fleet.held) == 2


@pytest.mark.on('server')
@pytest.mark.parametrize('after', [False, True])
def test_commit_of_all_whose_answer_is_lost(fleet, after):
    racks(fleet, r1=2)
    with fleet.commit_fails(db_exc.DBConnectionError(), after):
        group, created = create(fleet, 2, 'pack')
    assert created == (not after)
    assert len(group.members) == len(fleet.held) == 2


@pytest.mark.on('sqlite', 'server')
def test_the_same_group_twice_at_once(fleet):
    racks(fleet, r1=9)
    others = []

    def other():
        others.append(create(fleet, 2, 'pack'))
    with fleet.before('UPDATE nodes', other):
        group, created = create(fleet, 2, 'pack')
    [(first, first_created)] = others
    assert first_created and not created
    assert group.id == first.id
    assert len(fleet.held) == 2


def test_a_group_grows(fleet):
    racks(fleet, r1=4, r2=9)
    create(fleet, 2, 'pack')
    assert join(fleet, 'pack') == 'r1'
    # More members than wanted are enough.
    assert not create(fleet, 2, 'pack')[1]


@pytest.mark.on('sqlite', 'server')
def test_find(fleet):
    racks(fleet, r1=9)
    for number in range(3):
        create(fleet, 2, 'pack', uuid=GROUP[:-1] + str(number),
               project=A if number else B)
    found = groups.find_groups(9)
    assert [group.uuid[-1] for group in found] == ['0', '1', '2']
    assert [group.domains for group in found] == [{'r1': 2}] * 3
    assert [group.uuid[-1] for group in groups.find_groups(1)] == ['0']
    assert [group.uuid[-1] for group in groups.find_groups(
        9, after=groups.find_group_id(found[0].uuid))] == ['1', '2']
    assert [group.uuid[-1] for group in groups.find_groups(
        9, restricted_to=A)] == ['1', '2']
    with pytest.raises(exception.InvalidInput):
        groups.find_group_id(found[0].uuid, restricted_to=A)


@pytest.mark.on('server')
def test_release_beside_claims_and_joins(fleet):
    """204 is the answer only when no member is left."""
    racks(fleet, r1=4)
    group, _ = create(fleet, 3, 'pack')
    others = []

    def other():
        others.append(claim(group.members[2].instance_uuid)[0])
        others.append(fleet.hold(group=wanted('pack'))[0])
    with fleet.before('UPDATE nodes', other):
        group_releases.release_group(
            GROUP, lambda group: None, is_restricted=False)
    assert len(others) == 2 and not fleet.held


@pytest.mark.on('server')
def test_page_is_full_while_groups_end(fleet):
    racks(fleet, r1=4)
    made = [create(fleet, 1, None, uuid=str(uuid_.uuid4()))[0]
            for _ in range(4)]

    def end():
        releases.release_reservation(made[0].members[0].instance_uuid)
    # Behind the statement that has found the groups of the page.
    with fleet.before('SELECT reservations.', end):
        found = groups.find_groups(2)
    assert [group.uuid for group in found] == [
        group.uuid for group in made[1:3]]


def test_repeat_leaves_the_lease_of_a_host(fleet):
    racks(fleet, r1=2)
    group, _ = create(fleet, 2, None, lease=60)
    claimed, _ = claim(group.members[0].instance_uuid, lease=600)
    again, created = create(
        fleet, [member.instance_uuid for member in group.members], None)
    assert not created
    leases = {member.instance_uuid: member.expires_at
              for member in again.members}
    assert leases.pop(claimed.instance_uuid) == claimed.expires_at
    assert list(leases.values()) == [None]


@pytest.mark.on('server')
@pytest.mark.parametrize('begun', [False, True])
def test_group_goes_while_it_is_asked_for_again(fleet, begun):
    racks(fleet, r1=3)
    group, _ = create(fleet, 2, None)
    names = [member.instance_uuid for member in group.members]

    def end():
        for name in names:
            releases.release_reservation(name)
        if begun:
            create(fleet, 1, None, project=B)
    with fleet.before('SELECT reservations.', end):
        if begun:
            with pytest.raises(exception.Conflict):
                create(fleet, names, None)
        else:
            again, created = create(fleet, names, None)
            assert created and again.id != group.id


# Claims

def claim(uuid, instance=None, project=None, host='compute-1', lease=None,
          authorize=lambda held: None, **body):
    return claims.claim_reservation(
        uuid, conftest.matcher(**body or {'resource_class': 'gold'}),
        obtain.Request(
            (instance or str(uuid_.uuid4()),),
            values.Assignment(host, project), lease), authorize)


@pytest.mark.on('sqlite', 'server')
def test_claim_of_a_reservation(fleet):
    racks(fleet, r1=1)
    held, _ = fleet.hold(owner=values.Assignment(), lease=60)
    claimed, created = claim(held.instance_uuid, lease=600)
    assert created
    assert claimed.node_id == held.node_id and claimed.id != held.id
    assert claimed.host == 'compute-1'
    assert claimed.expires_at > held.expires_at
    assert fleet.held == {held.node_id: claimed.instance_uuid}
    again, created = claim(held.instance_uuid, claimed.instance_uuid)
    assert not created and again.node_id == held.node_id


def test_claim_of_the_member_that_fits_best(fleet):
    fleet.add(*({'properties': {'memory_mb': memory}}
                for memory in (4096, 1024, 2048)))
    create(fleet, 3, None)
    assert fleet[claim(GROUP, memory_mb=1500)[0].node_id].properties == (
        '{"memory_mb": 2048}')


def test_claim_that_does_not_match(fleet):
    racks(fleet, r1=2)
    held, _ = fleet.hold(owner=values.Assignment())
    with pytest.raises(exception.NoMatchingNode) as caught:
        claim(held.instance_uuid, memory_mb=4096)
    assert caught.value.explanation == {
        'considered': 1,
        'eliminated': [{'by': 'memory_mb>=4096', 'nodes': 1}],
        'nearest': {'by': 'memory_mb>=4096', 'nodes': 1}}
    assert list(fleet.held) == [held.node_id]


@pytest.mark.parametrize('change, error', [
    ({'provision_state': 'deploying'}, exception.Conflict),
    ({'maintenance': True}, exception.NoMatchingNode),
    ({'reservation': 'conductor'}, exception.NoMatchingNode),
])
def test_claim_of_a_node_that_is_not_to_be_had(fleet, change, error):
    racks(fleet, r1=1)
    held, _ = fleet.hold(owner=values.Assignment())
    fleet.edit(held.node_id, **change)
    with pytest.raises(error) as caught:
        claim(held.instance_uuid)
    assert getattr(caught.value, 'retry', False) == (
        'reservation' in change)
    assert fleet.held == {held.node_id: held.instance_uuid}


@pytest.mark.parametrize('whose, by', [(A, B), (None, B), (A, None)])
def test_claim_of_another_projects(fleet, whose, by):
    racks(fleet, r1=1)
    held, _ = fleet.hold(owner=values.Assignment(project_id=whose))
    with pytest.raises(exception.NotFound):
        claim(held.instance_uuid, project=by)


def release(held):
    releases.release_reservation(held.instance_uuid)


def take_by_a_host(held):
    updates.update_reservation(held.instance_uuid, {'host': 'compute-2'})


def claim_it(held):
    claim(held.instance_uuid)


@pytest.mark.on('server')
@pytest.mark.parametrize('statement', ['SELECT nodes.id, ', 'UPDATE nodes'])
@pytest.mark.parametrize('meanwhile, error', [
    (release, exception.NotFound), (take_by_a_host, exception.Conflict),
    (claim_it, exception.NotFound)])
def test_claim_beside_others(fleet, meanwhile, error, statement):
    racks(fleet, r1=1)
    held, _ = fleet.hold(owner=values.Assignment())
    with fleet.before(statement, lambda: meanwhile(held)), \
            pytest.raises(error):
        claim(held.instance_uuid)
    assert len(fleet.carried) == (0 if meanwhile is release else 1)


@pytest.mark.on('sqlite', 'server')
def test_claim_of_a_lease_that_ends_while_another_node_has_a_port(fleet):
    """What keeps a lease from ending is on the node itself."""
    racks(fleet, r1=1)
    held, _ = fleet.hold(owner=values.Assignment(), lease=600)
    fleet.insert('ports', fleet.node(resource_class='silver'),
                 address='52:54:00:00:00:01',
                 internal_info='{"tenant_vif_port_id": "x"}')
    with fleet.before('UPDATE nodes SET', fleet.lapse), \
            pytest.raises(exception.NotFound):
        claim(held.instance_uuid)
    # Nobody has given the node back yet.
    assert fleet.held == {held.node_id: held.instance_uuid}


@pytest.mark.on('sqlite', 'server')
def test_capacity_counts_what_can_be_claimed(fleet):
    racks(fleet, none=6)
    fleet.hold(owner=values.Assignment())
    fleet.hold(owner=values.Assignment('compute-1'))
    for change in {'maintenance': True}, {'provision_state': 'active'}:
        held, _ = fleet.hold(owner=values.Assignment())
        fleet.edit(held.node_id, **change)
    [(_, row)] = capacity.capacity(0, capacity.Filter())[0]
    assert (row['total'], row['free'], row['claimable']) == (6, 2, 1)
    claim(next(each.instance_uuid for each in fleet.rows if not each.host))
    [(_, row)] = capacity.capacity(0, capacity.Filter())[0]
    assert (row['free'], row['claimable']) == (2, 0)


# Adoption

def test_adoption_is_recorded_whatever_the_policy_says(fleet):
    racks(fleet, r1=2)
    join(fleet, 'spread')
    node_id, = fleet.execute(sa.select(models.nodes.c.id).where(
        models.nodes.c.instance_uuid.is_(None)))[0]
    instance = str(uuid_.uuid4())
    fleet.edit(node_id, instance_uuid=instance, provision_state='active')
    spec = conftest.matcher(memory_mb=1).spec
    for _ in range(2):
        adopted, _ = adoption.adopt_instance(
            instance, spec, values.Assignment('compute-1'),
            group=wanted('spread'))
        assert adopted.domain == 'r1'
    assert of(groups.get_group(GROUP)) == {'r1': 2}
    with contextlib.suppress(exception.NoMatchingNode):
        join(fleet, 'spread')
        raise AssertionError('two in one rack')


def carry(fleet):
    """An instance that compute-1 holds, deployed on a node of rack r1."""
    racks(fleet, r1=1)
    held, _ = fleet.hold(owner=values.Assignment('compute-1'))
    fleet.edit(held.node_id, provision_state='active')
    return held


def adopt_again(held, uuid=GROUP):
    return adoption.adopt_instance(
        held.instance_uuid, conftest.matcher(memory_mb=1).spec,
        values.Assignment('compute-1'), group=wanted('spread', uuid))[0]


def test_member_that_is_adopted_again_stays_where_it_was(fleet):
    held = carry(fleet)
    assert adopt_again(held).domain == 'r1'
    fleet.edit(held.node_id,
               properties={'memory_mb': 1024, 'capabilities': 'rack:r9'})
    assert adopt_again(held).domain == 'r1'
    other = adopt_again(held, str(uuid_.uuid4()))
    assert (other.group_uuid, other.domain) == (GROUP, 'r1')


@pytest.mark.on('server')
def test_group_begins_while_a_reservation_is_adopted_again(fleet):
    held, another = carry(fleet), carry(fleet)
    with fleet.before('INSERT INTO reservations_groups',
                      lambda: adopt_again(another)):
        adopt_again(held)
    assert of(groups.get_group(GROUP)) == {'r1': 2}
