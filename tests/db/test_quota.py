# SPDX-License-Identifier: Apache-2.0
"""What a project may have no more of, on both databases.

What Keystone says of it is given here; see tests.functional.test_keystone.
"""

import concurrent.futures
import functools
import json
import time
import uuid

from oslo_db import exception as db_exc
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations.db import models
from ironic_reservations.reservations import adoption
from ironic_reservations.reservations import dry_runs
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import holds
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import quotas
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import values
from tests.db import conftest

A, B = 'a' * 32, 'b' * 32
TOTAL = 'baremetal_reservations'
GOLD, SILVER = f'{TOTAL}:CUSTOM_GOLD', f'{TOTAL}:CUSTOM_SILVER'


def matcher(**body):
    return conftest.matcher(A, **body or {'memory_mb': 1})


def hold(limits, instance_uuid=None, lost=False, **body):
    """What a POST of a member of project A does; the class of its node."""
    reservation, created = holds.hold_node(
        matcher(**body), obtain.Request(
            (instance_uuid or str(uuid.uuid4()),),
            values.Assignment(project_id=A), quota=quotas.Quota(A, limits)))
    assert created == (instance_uuid is None and not lost)
    return reservation.resource_class


def create(limits, members, policy=None, uuid_=None, lost=False, **body):
    """The same for a group; the classes of its nodes, sorted."""
    group, created = groups.create_group(matcher(**body), obtain.Request(
        tuple(str(uuid.uuid4()) for _ in range(members)),
        values.Assignment(project_id=A),
        group=membership.GroupRequest(uuid_ or str(uuid.uuid4()), policy,
                               policy and 'capability:rack', A),
        digest=json.dumps([members, body]), quota=quotas.Quota(A, limits)))
    assert created == (uuid_ is None and not lost)
    return sorted(each.resource_class for each in group.members), group.uuid


def refused(call, *args, **kwargs):
    """What the error says of the quota: limit, used, requested by name."""
    with pytest.raises(exception.QuotaExceeded) as caught:
        call(*args, **kwargs)
    return tuple(caught.value.quota.values())


def dry_run(limits, members=None, group=None, **body):
    return dry_runs.dry_run(matcher(**body), quotas.Quota(A, limits), group,
                               members)


@pytest.fixture
def nodes(fleet):
    """Adds nodes of project A: gold=2, silver=1; in racks=(...)."""
    def add(racks=('r1',), owner=A, **numbers):
        fleet.add(*({
            'resource_class': name, 'owner': owner,
            'properties': {'memory_mb': memory,
                           'capabilities': f'rack:{rack}'}}
            for memory, (name, number) in enumerate(numbers.items(), 1000)
            for rack in racks for _ in range(number)))
    yield add
    fleet.execute(sa.delete(models.projects))


def others(fleet, number, project=A, **owner):
    """Hold what compute services hold."""
    for _ in range(number):
        fleet.hold(owner=values.Assignment(project_id=project, **owner))


@pytest.mark.on('sqlite', 'server')
def test_total(fleet, nodes):
    nodes(gold=3, silver=3)
    limits = {TOTAL: 2}
    assert {hold(limits), hold(limits)} == {'gold'}
    assert refused(hold, limits) == (TOTAL, 2, 2, 1)
    assert refused(hold, limits, resource_class='silver') == (TOTAL, 2, 2, 1)
    assert len(fleet.held) == 2


@pytest.mark.parametrize('limits', [{TOTAL: -1}, {TOTAL: -1, GOLD: -1}])
def test_no_limit(nodes, limits):
    nodes(gold=3)
    assert [hold(limits) for _ in range(3)] == ['gold'] * 3
    with pytest.raises(exception.NoMatchingNode):
        hold(limits)


def test_total_that_is_not_registered_is_none_at_all(nodes):
    nodes(gold=1)
    assert refused(hold, {GOLD: 5}) == (TOTAL, 0, 0, 1)


def test_class_is_passed_over(fleet, nodes):
    nodes(gold=5, silver=2, bronze=5)
    limits = {TOTAL: 9, GOLD: 1, SILVER: 0}
    # The smallest is the best fit.
    assert [hold(limits) for _ in range(3)] == ['gold', 'bronze', 'bronze']
    assert refused(hold, limits, resource_class='gold') == (GOLD, 1, 1, 1)
    assert refused(hold, limits, resource_class='silver') == (SILVER, 0, 0, 1)
    assert len(fleet.held) == 3


def test_all_classes_are_used_up(nodes):
    nodes(gold=1, silver=1)
    assert refused(hold, {TOTAL: 9, GOLD: 0, SILVER: 0})[0] in (GOLD, SILVER)


@pytest.mark.on('sqlite', 'server')
def test_class_is_compared_as_placement_names_it(fleet, nodes):
    fleet.add(*({'owner': A, 'resource_class': name} for name in (
        'baremetal.gold', 'BareMetal-gold') for _ in range(3)))
    resource = f'{TOTAL}:CUSTOM_BAREMETAL_GOLD'
    assert refused(create, {TOTAL: 9, resource: 3}, 4) == (resource, 3, 0, 4)
    limits = {TOTAL: 9, resource: 1}
    hold(limits)
    assert refused(hold, limits) == (resource, 1, 1, 1)
    assert refused(create, limits, 2) == (resource, 1, 1, 2)


def test_node_without_a_class(fleet, nodes):
    fleet.add(*[{'owner': A, 'resource_class': None}] * 2)
    hold({TOTAL: 1, GOLD: 0})
    assert refused(hold, {TOTAL: 1, GOLD: 0}) == (TOTAL, 1, 1, 1)


def test_what_else_is_in_the_way_is_told(nodes):
    nodes(gold=1)
    for limits in {TOTAL: 0}, {TOTAL: 9, GOLD: 0}:
        with pytest.raises(exception.NoMatchingNode):
            hold(limits, memory_mb=10 ** 6)
        with pytest.raises(exception.NoMatchingNode) as caught:
            create(limits, 2)
        assert caught.value.members == {'wanted': 2, 'available': 1}


def test_repeat_is_not_counted(fleet, nodes):
    nodes(gold=2)
    instance = str(uuid.uuid4())
    hold({TOTAL: 1}, resource_class='gold')
    [row] = fleet.rows
    for limits in {TOTAL: 1}, {TOTAL: 0}, {TOTAL: 9, GOLD: 0}:
        hold(limits, row.instance_uuid, resource_class='gold')
        assert refused(hold, limits, instance_uuid=instance,
                       resource_class='gold')
    _, group = create({TOTAL: 2}, 1)
    assert create({TOTAL: 0}, 1, uuid_=group) == (['gold'], group)
    assert len(fleet.held) == 2


@pytest.mark.on('server')
def test_lost_commit_is_not_counted_twice(fleet, nodes):
    nodes(gold=2)
    for call in hold, create_one:
        number = len(fleet.held) + 1
        with fleet.commit_fails(db_exc.DBConnectionError(), after=True):
            call({TOTAL: number}, lost=True)
        assert len(fleet.held) == number


@pytest.mark.on('sqlite', 'server')
def test_what_counts(fleet, nodes):
    nodes(gold=9)
    others(fleet, 2, host='compute-1')
    others(fleet, 2, B)
    # A lease that is over, a node that has moved on, and an adoption.
    fleet.hold(owner=values.Assignment(project_id=A), lease=1)
    fleet.execute(sa.update(models.reservations).where(
        models.reservations.c.expires_at.is_not(None)).values(
            expires_at=sa.text("'2020-01-01 00:00:00.000000'")))
    fleet.stale(project_id=A, node_id=fleet.node(maintenance=True))
    assert dry_run({TOTAL: 2})['quota']['used'] == 2
    fleet.node(resource_class='gold', instance_uuid=str(uuid.uuid4()))
    assert refused(hold, {TOTAL: 2}) == (TOTAL, 2, 2, 1)
    [adopted] = [each for each in fleet.carried.values()
                 if each not in [row.instance_uuid for row in fleet.rows]]
    adoption.adopt_instance(adopted, matcher().spec,
                       values.Assignment('compute-1', A))
    assert refused(hold, {TOTAL: 3}) == (TOTAL, 3, 3, 1)
    assert refused(hold, {TOTAL: 2}) == (TOTAL, 2, 3, 1)
    hold({TOTAL: 4})


def test_released_is_free_again(fleet, nodes):
    nodes(gold=2)
    hold({TOTAL: 1})
    releases.release_reservation(fleet.rows[0].instance_uuid)
    hold({TOTAL: 1})


def test_one_at_a_time(fleet, nodes):
    nodes(gold=2, silver=2, racks=('r1', 'r2'))
    wanted = membership.GroupRequest(
        str(uuid.uuid4()), 'spread', 'capability:rack', A)

    def join(limits):
        reservation, _ = holds.hold_node(matcher(), obtain.Request(
            (str(uuid.uuid4()),), values.Assignment(project_id=A),
            group=wanted, quota=quotas.Quota(A, limits)))
        return reservation.resource_class

    limits = {TOTAL: 9, GOLD: 1}
    assert [join(limits), join(limits)] == ['gold', 'silver']
    # The policy is in the way, whatever the quota.
    with pytest.raises(exception.NoMatchingNode):
        join({TOTAL: 2})


def test_group_total(fleet, nodes):
    nodes(gold=5)
    others(fleet, 1)
    assert refused(create, {TOTAL: 3}, 3) == (TOTAL, 3, 1, 3)
    assert len(fleet.held) == 1
    assert create({TOTAL: 3}, 2)[0] == ['gold'] * 2


@pytest.mark.parametrize('policy', [None, 'pack', 'soft-spread', 'soft-pack'])
def test_group_takes_of_each_class_what_it_may(fleet, nodes, policy):
    nodes(gold=4, silver=2)
    limits = {TOTAL: 9, GOLD: 2}
    assert refused(create, limits, 3, policy, resource_class='gold') == (
        GOLD, 2, 0, 3)
    assert fleet.held == {}
    assert create(limits, 4, policy)[0] == ['gold'] * 2 + ['silver'] * 2
    assert refused(create, {TOTAL: 9, GOLD: 2, SILVER: 2}, 1, policy)[1:] == (
        2, 2, 1)


def test_group_is_spread_over_classes(nodes):
    nodes(gold=1, silver=1, racks=('r1', 'r2', 'r3'))
    assert create({TOTAL: 9, GOLD: 2}, 3, 'spread')[0] == [
        'gold', 'gold', 'silver']


def test_spread_leaves_out_a_domain_of_what_is_used_up(nodes):
    nodes(gold=1)
    nodes(bronze=0, silver=1, racks=('r2', 'r3'))
    assert create({TOTAL: 9, GOLD: 0}, 2, 'spread')[0] == ['silver'] * 2


def test_pack_goes_where_it_may(nodes):
    nodes(gold=3)
    nodes(silver=4, racks=('r2',))
    # Of one class, r1 has the room that fits best.
    assert create({TOTAL: 9, GOLD: 2}, 3, 'pack')[0] == ['silver'] * 3


def test_dry_run(fleet, nodes):
    nodes(gold=2, silver=1)
    found = dry_run({TOTAL: 1})
    assert (found['matching_nodes'], 'quota' in found) == (3, False)
    hold({TOTAL: 9})
    found = dry_run({TOTAL: 9, GOLD: 1})
    assert (found['matching_nodes'], 'quota' in found) == (1, False)
    assert {'by': f'quota:{GOLD}', 'nodes': 2} in (
        found['explanation']['eliminated'])
    assert found['explanation']['nearest'] == {'by': f'quota:{GOLD}',
                                               'nodes': 2}
    for limits, body, quota_ in (
            ({TOTAL: 1}, {}, (TOTAL, 1, 1, 1)),
            ({TOTAL: 9, GOLD: 1}, {'resource_class': 'gold'},
             (GOLD, 1, 1, 1))):
        found = dry_run(limits, **body)
        assert found['matching_nodes'] == 0
        assert tuple(found['quota'].values()) == quota_
    assert 'quota' not in dry_run({TOTAL: 1}, memory_mb=10 ** 6)
    assert len(fleet.held) == 1


@pytest.mark.parametrize('limits, members, available, told', [
    ({TOTAL: 9}, 4, 4, None),
    ({TOTAL: 3}, 4, 3, (TOTAL, 3, 0, 4)),
    ({TOTAL: 9, GOLD: 2}, 4, 3, (GOLD, 2, 0, 3)),
    ({TOTAL: 9, GOLD: 2}, 3, 3, None),
    ({TOTAL: 3}, 5, 3, None),
    ({TOTAL: 9, GOLD: 0}, 4, 1, (GOLD, 0, 0, 3)),
])
def test_dry_run_of_a_group(fleet, nodes, limits, members, available, told):
    nodes(gold=3, silver=1)
    found = dry_run(limits, members, membership.GroupRequest(
        str(uuid.uuid4()), None, None, A))
    assert found['members'] == {'wanted': members, 'available': available}
    assert tuple(found.get('quota', {}).values()) == (told or ())
    assert fleet.held == {}


create_one = functools.partial(create, members=1)


@pytest.mark.on('server')
@pytest.mark.parametrize('first', [hold, create_one], ids=['one', 'group'])
@pytest.mark.parametrize('second', [hold, create_one], ids=['one', 'group'])
def test_those_who_hold_at_once_follow_each_other(fleet, nodes, first,
                                                  second):
    nodes(gold=2, silver=1)
    hold({TOTAL: 2})
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        later = []

        def begin():
            later.append(executor.submit(refused, second, {TOTAL: 2},
                                         resource_class='silver'))
            time.sleep(0.5)

        with fleet.before('SELECT nodes.resource_class, count', begin):
            first({TOTAL: 2})
        assert later[0].result() == (TOTAL, 2, 2, 1)
    assert len(fleet.held) == 2


@pytest.mark.parametrize('call', [hold, create_one], ids=['one', 'group'])
def test_fleet_is_not_counted_for_a_refusal(nodes, fleet, call):
    nodes(gold=1, silver=1)
    for limits, body in (({TOTAL: 0}, {}), ({TOTAL: 9, GOLD: 0}, {
            'resource_class': 'gold'})):
        with fleet.statements('AS alike') as found:
            refused(call, limits, **body)
        # To search by it; a process has a count for that already.
        assert len(found) == 1


def test_nothing_is_asked_without_a_quota(fleet, nodes):
    nodes(gold=3)
    with fleet.statements('reservations_projects') as found:
        fleet.hold(restricted_to=A)
    assert found == []


@pytest.mark.on('sqlite', 'server')
def test_row_of_the_project_is_written_first(fleet, nodes):
    """Before anything that another waits for, and before what is counted."""
    nodes(gold=3)
    hold({TOTAL: 3})
    assert fleet.execute(sa.select(models.projects)) == [(A, 0)]
    with fleet.statements() as found:
        hold({TOTAL: 3})
    writes = [text.split()[:2] for text in found
              if text.split()[0] in ('UPDATE', 'INSERT')]
    assert writes[0] == ['UPDATE', 'reservations_projects']
    assert found[-1].startswith('SELECT nodes.resource_class')
