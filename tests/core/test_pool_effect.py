# SPDX-License-Identifier: Apache-2.0
"""What pools do to new reservations."""

import contextlib
import functools

import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.fleet import counts
from ironic_reservations.reservations import updates
from tests.common import fleets
from tests.common.fleets import HOLD
from tests.core import test_groups

pytestmark = pytest.mark.on('sqlite', 'server')

EAST = values.Assignment(project_id='east')


def hold(fleet, project_id=None, **body):
    """Hold a node for a project, like a compute service."""
    return fleet.hold(
        owner=values.Assignment('compute-1', project_id=project_id),
        ownership=values.Ownership(project_id), **body)[0]


def refuse(fleet, by, *args, **kwargs):
    """Check that a hold is refused, and why."""
    with pytest.raises(exception.NoMatchingNode) as error:
        hold(fleet, *args, **kwargs)
    assert fleets.present(error)['explanation']['eliminated'] == [
        {'by': by, 'nodes': 1}]


@pytest.mark.parametrize('body', [
    {}, {'candidate_nodes': ['gold-1']}, {'memory_mb': 1024}],
    ids=['class', 'candidate', 'size'])
def test_only_the_project_of_a_pool_gets_its_nodes(fleet, body):
    node_id = fleet.add_node(name='gold-1')
    fleet.add_pool('east', node_id)
    for project_id in ('west', 'East', 'east ', None):
        refuse(fleet, 'pool', project_id, **body)
    assert hold(fleet, 'east', **body).node_id == node_id


def test_expired_pool_has_no_effect(fleet):
    fleet.add_pool('east', fleet.add_node(), seconds=0)
    assert hold(fleet, 'west')


def test_pool_of_a_deleted_node_has_no_effect(fleet):
    """SQLite gives its id to a new node."""
    fleet.add_pool('east', fleet.add_node(), node_uuid=fleets.GROUP)
    assert hold(fleet)


@pytest.fixture
def reads(fleet):
    """Counters of rows that were read, before and after each hold."""
    counters = []

    def count(connection, cursor, text, *args):
        if text.startswith('UPDATE nodes'):
            # Rows that an index condition rejects would not be counted.
            connection.execute(sa.text(
                "SET optimizer_switch = 'index_condition_pushdown=off'"))
            counters.append(sum(
                int(number) for _, number in connection.execute(sa.text(
                    "SHOW SESSION STATUS LIKE 'Handler_read_%'"))))

    with contextlib.ExitStack() as stack:
        # Otherwise other tests would use these connections.
        stack.callback(fleet.engine.dispose)
        for event in 'before_cursor_execute', 'after_cursor_execute':
            sa.event.listen(fleet.engine, event, count)
            stack.callback(sa.event.remove, fleet.engine, event, count)
        yield counters


@pytest.mark.on('server')
@pytest.mark.parametrize('project', ['east', 'west'])
def test_guard_reads_few_rows(fleet, reads, project):
    """Their number depends neither on the fleet nor on the pool."""
    numbers = []
    for size in 2, 200:
        fleet.clear()
        reads.clear()
        ids = fleet.add(*({},) * size)
        add_pool = functools.partial(fleet.add_pool, 'east', *ids)
        with fleet.before(HOLD, add_pool), \
                fleet.row_counts(HOLD) as row_counts, \
                contextlib.suppress(exception.NoMatchingNode):
            hold(fleet, project, candidate_nodes=[fleet[ids[-1]].uuid])
        assert row_counts == [project == 'east']
        before, after = reads
        numbers.append(after - before)
    assert abs(numbers[1] - numbers[0]) < 50


def test_project_uses_nodes_of_its_pools_like_its_own(fleet):
    node_id = fleet.add_node(owner='owner', lessee='lessee')
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold(project='east')
    fleet.add_pool('east', node_id)
    for project in ('owner', 'lessee'):
        with pytest.raises(exception.NoMatchingNode) as error:
            fleet.hold(project=project)
        assert fleets.present(error)['explanation']['eliminated'] == [
            {'by': 'pool', 'nodes': 1}]
    assert fleet.hold(project='east')[0].node_id == node_id


def test_node_of_a_pool_is_not_unowned(fleet):
    node_id = fleet.add_node()
    fleet.add_pool('east', node_id)
    with pytest.raises(exception.NoMatchingNode) as error:
        fleet.hold(project='west', unowned=True)
    assert fleets.present(error)['explanation']['considered'] == 0


def test_only_a_project_scoped_caller_needs_the_pool_for_a_renewal(fleet):
    node_id = fleet.add_node(owner='owner')
    fleet.add_pool('east', node_id)
    reservation, _ = fleet.hold(project='east', lease=60, owner=EAST)
    reach = fleets.reach('east')

    def renew(reach):
        updates.update_reservation(
            reservation.instance_uuid, {'lease': 60}, reach=reach)

    renew(reach)
    fleet.delete_pools()
    fleet.add_pool('west', node_id)
    with pytest.raises(exception.Conflict, match='may no longer use'):
        renew(reach)
    renew(values.ALL)


def test_claim_of_a_node_that_has_joined_a_pool(fleet):
    node_id = fleet.add_node()
    reservation, _ = fleet.hold(owner=values.Assignment())
    fleet.add_pool('east', node_id)
    instance, _ = fleet.claim(reservation.instance_uuid)
    assert instance.node_id == node_id


# Order

SMALL, LARGE = ({'properties': {'memory_mb': size}} for size in (1024, 4096))


def test_project_uses_its_pools_first(fleet):
    small, large, suspect = fleet.add(SMALL, LARGE, SMALL)
    fleet.add_notice(suspect)
    fleet.add_pool('east', large, suspect)
    assert [hold(fleet, 'east', memory_mb=1).node_id for _ in range(3)] == [
        large, small, suspect]


@pytest.mark.parametrize('names', [['small', 'large']], ids=['names'])
def test_candidates_of_the_pools_come_first(fleet, names):
    _, large = fleet.add({**SMALL, 'name': 'small'},
                         {**LARGE, 'name': 'large'})
    fleet.add_pool('east', large)
    assert hold(fleet, 'east', memory_mb=1,
                candidate_nodes=names).node_id == large


def test_process_that_changes_a_pool_uses_it_at_once(fleet, monkeypatch):
    latest = counts.Latest()
    monkeypatch.setattr(counts, 'AGE_TO_COST', 10 ** 6)
    monkeypatch.setattr(counts, '_latest', latest)
    monkeypatch.setattr(counts, 'get_recent_fleet', latest.get_recent)
    small, large = fleet.add(SMALL, LARGE)
    engine.retry(counts.get_recent_fleet)()
    fleet.add_pool('east', large)
    counts.record_pools()
    with fleet.statements('AS column_0') as statements:
        assert hold(fleet, 'east', memory_mb=1).node_id == large
        # A slow server is counted in several parts.
        number = len(statements)
        assert number > 0
        assert hold(fleet, 'east', memory_mb=1).node_id == small
    assert len(statements) == number


def create_pack(fleet, members, project):
    """Hold a group for a project, in one rack; return its rack."""
    group, _ = test_groups.create(
        fleet, members, 'pack', project=project,
        ownership=values.Ownership(project))
    return {*test_groups.count_domains(group)}


@pytest.mark.parametrize('members, rack', [(2, 'r2'), (3, 'r3')])
def test_group_is_planned_with_the_pools_if_they_suffice(
        fleet, members, rack):
    """The tightest rack of all would be r1."""
    test_groups.add_racks(fleet, r1=2, r2=2, r3=4)
    rows = fleet.execute(sa.text(
        "SELECT id FROM nodes WHERE properties LIKE '%r2%'"))
    fleet.add_pool('east', *(node_id for node_id, in rows))
    assert create_pack(fleet, members, 'east') == {rack}
    with pytest.raises(exception.Conflict):
        create_pack(fleet, members, 'west')


def test_group_of_another_project_gets_no_node_of_a_pool(fleet):
    test_groups.add_racks(fleet, r1=3)
    [(node_id,)] = fleet.execute(sa.text('SELECT MIN(id) FROM nodes'))
    fleet.add_pool('east', node_id)
    with pytest.raises(exception.NoMatchingNode) as error:
        create_pack(fleet, 3, 'west')
    verdict = fleets.present(error)
    assert verdict['members'] == {'wanted': 3, 'available': 2}
    assert {'by': 'pool', 'nodes': 1} in verdict['explanation']['eliminated']
    assert create_pack(fleet, 3, 'east') == {'r1'}
