# SPDX-License-Identifier: Apache-2.0
"""The limits of a project.

The limits are given here; Keystone is in tests.functional.test_keystone.
"""

import concurrent.futures
import dataclasses
import functools
import json
import time
import uuid

from oslo_db import exception as db_exc
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.api import resources
from ironic_reservations.api import responses
from ironic_reservations.db import models
from ironic_reservations.fleet import counts
from ironic_reservations.reservations import adoption
from ironic_reservations.reservations import dry_runs
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import holds
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import quotas
from ironic_reservations.reservations import releases
from tests.common import fleets

A, B = 'a' * 32, 'b' * 32
TOTAL = 'baremetal_reservations'
GOLD, SILVER = f'{TOTAL}:CUSTOM_GOLD', f'{TOTAL}:CUSTOM_SILVER'


def matcher(**body):
    return fleets.matcher(A, **body or {'memory_mb': 1})


def hold_node(limits, instance_uuid=None, expect_new=True, **body):
    """Hold a node like a POST of a member of project A.

    :returns: the resource class of the node.
    """
    reservation, is_new = holds.hold_node(
        matcher(**body), obtain.Request(
            (instance_uuid or str(uuid.uuid4()),),
            values.Assignment(project_id=A), limits=quotas.Limits(A, limits)))
    assert is_new == (instance_uuid is None and expect_new)
    return reservation.resource_class


def create(limits, members, policy=None, uuid_=None, expect_new=True, **body):
    """Do the same for a group.

    :returns: the resource classes of the nodes, sorted, and the UUID.
    """
    group, is_new = groups.create_group(matcher(**body), obtain.Request(
        tuple(str(uuid.uuid4()) for _ in range(members)),
        values.Assignment(project_id=A),
        group=values.GroupRequest(uuid_ or str(uuid.uuid4()), policy,
                                  policy and 'capability:rack',
                                  project_id=A),
        digest=json.dumps([members, body]),
        limits=quotas.Limits(A, limits)))
    assert is_new == (uuid_ is None and expect_new)
    classes = sorted(member.resource_class for member in group.members)
    return classes, group.uuid


def refuse(call, *args, **kwargs):
    """Return the quota of the error: name, limit, used, requested."""
    with pytest.raises(exception.QuotaExceeded) as error:
        call(*args, **kwargs)
    return dataclasses.astuple(error.value.quota)


def dry_run(limits, members=None, group=None, **body):
    return resources.present_dry_run(dry_runs.dry_run(
        matcher(**body), quotas.Limits(A, limits), group, members))


@pytest.fixture
def add_nodes(fleet):
    """Add nodes of project A: gold=2, silver=1; in racks=(...)."""
    def add(racks=('r1',), owner=A, **numbers):
        fleet.add(*(
            {'resource_class': name, 'owner': owner,
             'properties': {'memory_mb': memory,
                            'capabilities': f'rack:{rack}'}}
            for memory, (name, number) in enumerate(numbers.items(), 1000)
            for rack in racks for _ in range(number)))
    yield add
    fleet.execute(sa.delete(models.projects))


def hold_for_hosts(fleet, number, project=A, **owner):
    """Hold nodes as compute services do."""
    for _ in range(number):
        fleet.hold(owner=values.Assignment(project_id=project, **owner))


@pytest.mark.on('sqlite', 'server')
def test_total_limit(fleet, add_nodes):
    add_nodes(gold=3, silver=3)
    limits = {TOTAL: 2}
    assert {hold_node(limits), hold_node(limits)} == {'gold'}
    assert refuse(hold_node, limits) == (TOTAL, 2, 2, 1)
    assert refuse(hold_node, limits, resource_class='silver') == (
        TOTAL, 2, 2, 1)
    assert len(fleet.holds) == 2


@pytest.mark.parametrize('limits', [{TOTAL: -1}, {TOTAL: -1, GOLD: -1}])
def test_no_limit(add_nodes, limits):
    add_nodes(gold=3)
    assert [hold_node(limits) for _ in range(3)] == ['gold'] * 3
    with pytest.raises(exception.NoMatchingNode):
        hold_node(limits)


def test_unregistered_total_is_zero(add_nodes):
    add_nodes(gold=1)
    assert refuse(hold_node, {GOLD: 5}) == (TOTAL, 0, 0, 1)


def test_full_class_is_skipped(fleet, add_nodes):
    add_nodes(gold=5, silver=2, bronze=5)
    limits = {TOTAL: 9, GOLD: 1, SILVER: 0}
    # The smallest node fits best.
    assert [hold_node(limits) for _ in range(3)] == [
        'gold', 'bronze', 'bronze']
    assert refuse(hold_node, limits, resource_class='gold') == (GOLD, 1, 1, 1)
    assert refuse(hold_node, limits, resource_class='silver') == (
        SILVER, 0, 0, 1)
    assert len(fleet.holds) == 3


def test_all_classes_are_full(add_nodes):
    add_nodes(gold=1, silver=1)
    assert refuse(hold_node, {TOTAL: 9, GOLD: 0, SILVER: 0})[0] in (
        GOLD, SILVER)


@pytest.mark.on('sqlite', 'server')
def test_class_is_compared_by_its_name_in_placement(fleet, add_nodes):
    fleet.add(*({'owner': A, 'resource_class': name} for name in (
        'baremetal.gold', 'BareMetal-gold') for _ in range(3)))
    resource = f'{TOTAL}:CUSTOM_BAREMETAL_GOLD'
    assert refuse(create, {TOTAL: 9, resource: 3}, 4) == (resource, 3, 0, 4)
    limits = {TOTAL: 9, resource: 1}
    hold_node(limits)
    assert refuse(hold_node, limits) == (resource, 1, 1, 1)
    assert refuse(create, limits, 2) == (resource, 1, 1, 2)


def test_node_without_a_class(fleet, add_nodes):
    fleet.add(*[{'owner': A, 'resource_class': None}] * 2)
    hold_node({TOTAL: 1, GOLD: 0})
    assert refuse(hold_node, {TOTAL: 1, GOLD: 0}) == (TOTAL, 1, 1, 1)


def test_other_causes_are_reported(add_nodes):
    add_nodes(gold=1)
    for limits in {TOTAL: 0}, {TOTAL: 9, GOLD: 0}:
        with pytest.raises(exception.NoMatchingNode):
            hold_node(limits, memory_mb=10 ** 6)
        with pytest.raises(exception.NoMatchingNode) as error:
            create(limits, 2)
        # A limit would not be the only cause.
        assert fleets.present(error)['members'] == {
            'wanted': 2, 'available': 1}


def test_repeat_is_not_counted(fleet, add_nodes):
    add_nodes(gold=2)
    instance = str(uuid.uuid4())
    hold_node({TOTAL: 1}, resource_class='gold')
    [row] = fleet.rows
    for limits in {TOTAL: 1}, {TOTAL: 0}, {TOTAL: 9, GOLD: 0}:
        hold_node(limits, row.instance_uuid, resource_class='gold')
        assert refuse(hold_node, limits, instance_uuid=instance,
                      resource_class='gold')
    _, group = create({TOTAL: 2}, 1)
    assert create({TOTAL: 0}, 1, uuid_=group) == (['gold'], group)
    assert len(fleet.holds) == 2


@pytest.mark.on('server')
def test_commit_without_a_response_is_counted_once(fleet, add_nodes):
    add_nodes(gold=2)
    for call in hold_node, create_one:
        number = len(fleet.holds) + 1
        with fleet.fail_commit(db_exc.DBConnectionError(), after=True):
            call({TOTAL: number}, expect_new=False)
        assert len(fleet.holds) == number


@pytest.mark.on('sqlite', 'server')
def test_reservations_that_count(fleet, add_nodes):
    add_nodes(gold=9)
    hold_for_hosts(fleet, 2, host='compute-1')
    hold_for_hosts(fleet, 2, B)
    # An expired reservation, a stale one, and an adoption.
    fleet.hold(owner=values.Assignment(project_id=A), lease=1)
    fleet.execute(sa.update(models.reservations).where(
        models.reservations.c.expires_at.is_not(None)).values(
            expires_at=sa.text("'2020-01-01 00:00:00.000000'")))
    fleet.add_stale_row(project_id=A, node_id=fleet.add_node(maintenance=True))
    assert dry_run({TOTAL: 2})['quota']['used'] == 2
    fleet.add_node(resource_class='gold', instance_uuid=str(uuid.uuid4()))
    assert refuse(hold_node, {TOTAL: 2}) == (TOTAL, 2, 2, 1)
    [instance] = set(fleet.instances.values()) - {
        row.instance_uuid for row in fleet.rows}
    adoption.adopt_instance(instance, matcher().spec,
                            values.Assignment('compute-1', project_id=A))
    assert refuse(hold_node, {TOTAL: 3}) == (TOTAL, 3, 3, 1)
    assert refuse(hold_node, {TOTAL: 2}) == (TOTAL, 2, 3, 1)
    hold_node({TOTAL: 4})


def test_released_reservation_does_not_count(fleet, add_nodes):
    add_nodes(gold=2)
    hold_node({TOTAL: 1})
    releases.release_reservation(fleet.rows[0].instance_uuid)
    hold_node({TOTAL: 1})


def test_members_one_by_one(fleet, add_nodes):
    add_nodes(gold=2, silver=2, racks=('r1', 'r2'))
    group = values.GroupRequest(
        str(uuid.uuid4()), 'spread', 'capability:rack', project_id=A)

    def join(limits):
        reservation, _ = holds.hold_node(matcher(), obtain.Request(
            (str(uuid.uuid4()),), values.Assignment(project_id=A),
            group=group, limits=quotas.Limits(A, limits)))
        return reservation.resource_class

    limits = {TOTAL: 9, GOLD: 1}
    assert [join(limits), join(limits)] == ['gold', 'silver']
    # The cause is the policy, not the quota.
    with pytest.raises(exception.NoMatchingNode):
        join({TOTAL: 2})


def test_group_total(fleet, add_nodes):
    add_nodes(gold=5)
    hold_for_hosts(fleet, 1)
    assert refuse(create, {TOTAL: 3}, 3) == (TOTAL, 3, 1, 3)
    assert len(fleet.holds) == 1
    assert create({TOTAL: 3}, 2)[0] == ['gold'] * 2


@pytest.mark.parametrize('policy', [None, 'pack', 'soft-spread', 'soft-pack'])
def test_group_uses_classes_with_room_for_all(fleet, add_nodes, policy):
    add_nodes(gold=4, silver=3)
    limits = {TOTAL: 9, GOLD: 2}
    assert refuse(create, limits, 3, policy, resource_class='gold') == (
        GOLD, 2, 0, 3)
    # There is room for two and two, but for four of no class.
    assert refuse(create, limits | {SILVER: 3}, 4, policy)[1:] in (
        (2, 0, 4), (3, 0, 4))
    assert fleet.holds == {}
    # Without limits, the smaller gold nodes would fit best.
    assert create(limits, 3, policy)[0] == ['silver'] * 3
    assert create(limits, 2, policy)[0] == ['gold'] * 2


@pytest.mark.parametrize('policy', ['spread', 'soft-spread', 'soft-pack',
                                    'pack', None])
def test_full_class_fits_best_in_most_racks(fleet, add_nodes, policy):
    add_nodes(gold=2, racks=('r1', 'r2'))
    # The first class has the smallest nodes.
    add_nodes(bronze=0, silver=2, racks=('r3', 'r4'))
    limits = {TOTAL: 9, GOLD: 1}
    group = values.GroupRequest(
        str(uuid.uuid4()), policy, policy and 'capability:rack', project_id=A)
    members = 4 if policy not in ('spread', 'pack') else 2
    result = dry_run(limits, members, group)
    assert result['members'] == {'wanted': members, 'available': members}
    assert {'by': f'quota:{GOLD}', 'nodes': 4} in (
        result['explanation']['eliminated'])
    assert create(limits, members, policy)[0] == ['silver'] * members


def test_segments_of_a_limited_class(fleet, add_nodes):
    add_nodes(gold=3, silver=2, racks=('r1', 'r2'))

    def create_segments(members):
        return groups.create_group(matcher(), obtain.Request(
            tuple(str(uuid.uuid4()) for _ in range(members)),
            values.Assignment(project_id=A),
            group=values.GroupRequest(
                str(uuid.uuid4()), project_id=A, segments=members // 2,
                segment_levels=json.dumps([{
                    'by': 'capability:rack', 'policy': 'pack',
                    'segment': 2}])),
            digest=str(members),
            limits=quotas.Limits(A, {TOTAL: 9, GOLD: 2})))[0]

    with pytest.raises(exception.QuotaExceeded):
        create_segments(6)
    assert sorted(member.resource_class for member in
                  create_segments(4).members) == ['silver'] * 4


def test_malformed_node_that_a_limit_excludes(fleet, add_nodes):
    """The quota is not the only cause."""
    fleet.add_node(resource_class='gold', owner=A,
                   properties='{"cpu_arch": 64}')
    with pytest.raises(exception.NoMatchingNode) as error:
        hold_node({TOTAL: 9, GOLD: 0},
                  extra_specs={'capabilities:cpu_arch': '64'})
    assert fleets.present(error)['explanation']['eliminated'] == [
        {'by': 'malformed properties', 'nodes': 1}]


@pytest.mark.parametrize('call', [
    hold_node, functools.partial(create, members=1)], ids=['one', 'group'])
def test_full_class_and_a_node_taken_after_each_count(fleet, add_nodes,
                                                      monkeypatch, call):
    add_nodes(gold=1, silver=1)
    node_id, = fleet.execute(sa.text(
        "SELECT id FROM nodes WHERE resource_class = 'silver'"))[0]
    fresh = counts.get_fresh_fleet

    def count(candidates, *args, **kwargs):
        fleet.set_node(node_id, reservation=None)
        try:
            return fresh(candidates)
        finally:
            fleet.set_node(node_id, reservation='conductor-1')

    monkeypatch.setattr(counts, 'get_fresh_fleet', count)
    fleet.set_node(node_id, reservation='conductor-1')
    with pytest.raises(exception.NoMatchingNode) as error:
        call({TOTAL: 9, GOLD: 0})
    assert error.value.verdict.retry
    assert {step['by']: step['nodes'] for step in
            fleets.present(error)['explanation']['eliminated']} == {
                f'quota:{GOLD}': 1, 'locked': 1}
    # Without the silver node, nothing but the quota prevents it.
    fleet.set_node(node_id, maintenance=True)
    assert refuse(call, {TOTAL: 9, GOLD: 0}) == (GOLD, 0, 0, 1)


@pytest.mark.on('server')
@pytest.mark.parametrize('error', [db_exc.DBDeadlock(),
                                   db_exc.DBConnectionError()], ids=repr)
def test_group_whose_first_attempt_is_aborted(fleet, add_nodes, error):
    """The silver nodes, which fit best, are not free when it is retried."""
    add_nodes(silver=2, gold=2)
    aborts = []

    def maintain():
        if aborts:
            fleet.execute(sa.text('UPDATE nodes SET maintenance = 1 '
                                  "WHERE resource_class = 'silver'"))

    with fleet.fail_commit(error, then=lambda: aborts.append(error)), \
            fleet.before('SELECT', maintain, times=99):
        assert refuse(create, {TOTAL: 9, GOLD: 0}, 2) == (GOLD, 0, 0, 2)
    assert fleet.holds == {}


def test_spread_skips_a_domain_with_a_full_class(add_nodes):
    add_nodes(gold=1)
    add_nodes(bronze=0, silver=1, racks=('r2', 'r3'))
    assert create({TOTAL: 9, GOLD: 0}, 2, 'spread')[0] == ['silver'] * 2


def test_pack_skips_a_full_class(add_nodes):
    add_nodes(gold=3)
    add_nodes(silver=4, racks=('r2',))
    # Without limits, the room in r1 would fit best.
    assert create({TOTAL: 9, GOLD: 2}, 3, 'pack')[0] == ['silver'] * 3


def test_dry_run(fleet, add_nodes):
    add_nodes(gold=2, silver=1)
    result = dry_run({TOTAL: 1})
    assert (result['matching_nodes'], 'quota' in result) == (3, False)
    hold_node({TOTAL: 9})
    result = dry_run({TOTAL: 9, GOLD: 1})
    assert (result['matching_nodes'], 'quota' in result) == (1, False)
    assert {'by': f'quota:{GOLD}', 'nodes': 2} in (
        result['explanation']['eliminated'])
    assert result['explanation']['nearest'] == {
        'by': f'quota:{GOLD}', 'nodes': 2}
    for limits, body, quota_ in (
            ({TOTAL: 1}, {}, (TOTAL, 1, 1, 1)),
            ({TOTAL: 9, GOLD: 1}, {'resource_class': 'gold'},
             (GOLD, 1, 1, 1))):
        result = dry_run(limits, **body)
        assert result['matching_nodes'] == 0
        assert tuple(result['quota'].values()) == quota_
    assert 'quota' not in dry_run({TOTAL: 1}, memory_mb=10 ** 6)
    assert len(fleet.holds) == 1


def test_dry_run_without_the_quota_as_the_cause(fleet, add_nodes):
    """It gives the reason for which the request is refused."""
    add_nodes(gold=1)
    limits = {TOTAL: 9, GOLD: 1}
    hold_node(limits)
    result = dry_run(limits)
    assert result['explanation']['eliminated'] == [
        {'by': 'reserved', 'nodes': 1}]
    with pytest.raises(exception.NoMatchingNode) as error:
        hold_node(limits)
    assert responses.present_verdict(error.value.verdict) == {
        'explanation': result['explanation']}


@pytest.mark.parametrize('limits, members, available, expected', [
    ({TOTAL: 9}, 4, 4, None),
    ({TOTAL: 3}, 4, 0, (TOTAL, 3, 0, 4)),
    ({TOTAL: 9, GOLD: 2}, 4, 1, (GOLD, 2, 0, 4)),
    ({TOTAL: 9, GOLD: 3}, 3, 4, None),
    ({TOTAL: 3}, 5, 4, None),
    ({TOTAL: 9, GOLD: 0}, 4, 1, (GOLD, 0, 0, 4)),
])
def test_dry_run_of_a_group(fleet, add_nodes, limits, members, available,
                            expected):
    add_nodes(gold=3, silver=1)
    result = dry_run(limits, members, values.GroupRequest(
        str(uuid.uuid4()), project_id=A))
    assert result['members'] == {'wanted': members, 'available': available}
    assert tuple(result.get('quota', {}).values()) == (expected or ())
    assert fleet.holds == {}
    if members > 4:
        with pytest.raises(exception.NoMatchingNode) as error:
            create(limits, members)
        refusal = responses.present_verdict(error.value.verdict)
        assert refusal == {name: result[name] for name in refusal}
        assert refusal['members'] == result['members']


create_one = functools.partial(create, members=1)


@pytest.mark.on('server')
@pytest.mark.parametrize('first', [hold_node, create_one],
                         ids=['one', 'group'])
@pytest.mark.parametrize('second', [hold_node, create_one],
                         ids=['one', 'group'])
def test_concurrent_requests_of_a_project_run_in_turn(fleet, add_nodes, first,
                                                      second):
    add_nodes(gold=2, silver=1)
    hold_node({TOTAL: 2})
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        futures = []

        def begin():
            futures.append(executor.submit(refuse, second, {TOTAL: 2},
                                           resource_class='silver'))
            time.sleep(0.5)

        with fleet.before('SELECT nodes.resource_class, count', begin):
            first({TOTAL: 2})
        assert futures[0].result() == (TOTAL, 2, 2, 1)
    assert len(fleet.holds) == 2


@pytest.mark.parametrize('call', [hold_node, create_one],
                         ids=['one', 'group'])
def test_refusal_does_not_count_the_fleet(add_nodes, fleet, call):
    add_nodes(gold=1, silver=1)
    for limits, body in (({TOTAL: 0}, {}), ({TOTAL: 9, GOLD: 0}, {
            'resource_class': 'gold'})):
        with fleet.statements('AS column_0') as statements:
            refuse(call, limits, **body)
        # This count is for the search; a service uses its cache.
        assert len(statements) == 1


def test_no_queries_without_a_quota(fleet, add_nodes):
    add_nodes(gold=3)
    with fleet.statements('reservations_projects') as statements:
        fleet.hold(project=A)
    assert statements == []


@pytest.mark.on('sqlite', 'server')
def test_project_is_written_first(fleet, add_nodes):
    """The row locks other requests out before the reservations are counted."""
    add_nodes(gold=3)
    hold_node({TOTAL: 3})
    assert fleet.execute(sa.select(models.projects)) == [(A, 0)]
    with fleet.statements() as statements:
        hold_node({TOTAL: 3})
    writes = [text.split()[:2] for text in statements
              if text.split()[0] in ('UPDATE', 'INSERT')]
    assert writes[0] == ['UPDATE', 'reservations_projects']
    assert statements[-1].startswith('SELECT nodes.resource_class')


def test_group_does_not_mix_classes_without_room_for_all(fleet, add_nodes):
    """Not even at the first attempt, before anything was refused."""
    add_nodes(gold=2, silver=2)
    limits = {TOTAL: 9, GOLD: 3, SILVER: 3}
    result = dry_run(limits, 4, values.GroupRequest(
        str(uuid.uuid4()), project_id=A))
    assert result['members'] == {'wanted': 4, 'available': 0}
    assert result['quota']['requested'] == 4
    assert refuse(create, limits, 4)[1:] == (3, 0, 4)
    add_nodes(bronze=4)
    assert create(limits, 4)[0] == ['bronze'] * 4
