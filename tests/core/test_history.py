# SPDX-License-Identifier: Apache-2.0
"""The history: what is kept of reservations that have ended."""

import collections
import concurrent.futures
import contextlib
import datetime
import random
import threading
import time
import uuid

from oslo_db import api as oslo_db_api
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.cmd import manage
from ironic_reservations.db import functions
from ironic_reservations.db import history_rows
from ironic_reservations.db import models
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import group_releases
from ironic_reservations.reservations import history
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import transaction
from ironic_reservations.shared import constants
from tests.common import fleets

pytestmark = pytest.mark.on('sqlite', 'server')

PROJECT, OWNER = 'p' * 32, 'o' * 32
HOLDER = values.Assignment(None, project_id=PROJECT, user_id='u',
                           description='RMA-4711')


def hold(fleet, lease=600):
    fleet.node_id = fleet.add_node(name='gpu-1', owner=OWNER)
    return fleet.hold(fleets.INSTANCE, owner=HOLDER, lease=lease)[0]


# Each ends the reservation of the only node.

def release(fleet):
    releases.release_reservation(fleets.INSTANCE)


def expire(fleet):
    fleet.expire_leases()
    assert expiry.expire_leases() == 1


def purge(fleet):
    fleet.set_node(fleet.node_id, instance_uuid=None)
    assert expiry.purge() == 1


def claim(fleet):
    fleet.claim(fleets.INSTANCE, str(uuid.uuid4()), PROJECT)


ENDS = pytest.mark.parametrize('end', [release, expire, purge, claim],
                               ids=lambda end: end.__name__)


def test_words(request):
    assert {end.__name__ for end in (release, expire, purge, claim)} == {
        *constants.ENDS}


@ENDS
def test_end(fleet, end):
    reservation = hold(fleet)
    expected = fleet.rows[0]
    end(fleet)
    row, = fleet.history
    assert (row.id, row.ended_by) == (reservation.id, end.__name__)
    assert (row.node_name, row.node_owner) == ('gpu-1', OWNER)
    for name in {*row._fields} & {*expected._fields} - {'expires_at'}:
        assert getattr(row, name) == getattr(expected, name), name
    assert row.expires_at and row.project_id == PROJECT
    now, = fleet.execute(sa.select(functions.utcnow()))[0]
    assert datetime.timedelta(0) <= now - row.ended_at < (
        datetime.timedelta(0, 60))
    assert reservation.id not in [item.id for item in fleet.rows]


@ENDS
def test_number_of_statements(fleet, option, end):
    numbers = []
    for days in 90, 0:
        option(history=days)
        hold(fleet)
        with fleet.statements() as statements:
            end(fleet)
        numbers.append(len(statements))
        assert len(fleet.history) == len(numbers) * bool(days)
        fleet.clear()
    assert numbers[0] == numbers[1] + 1


def test_hold_writes_no_history(fleet):
    with fleet.statements('reservations_history') as statements:
        hold(fleet)
        fleet.hold(fleets.INSTANCE, owner=HOLDER)
    assert statements == [] == fleet.history


def test_members_of_a_group(fleet):
    """Their group is deleted with the last one."""
    fleet.add({}, {}, {})
    group = fleet.hold_group(3)
    with fleet.statements('reservations_history') as statements:
        group_releases.release_group(group.uuid, lambda group: None,
                                     values.ALL)
    assert len(statements) == 1 and not fleet.group_rows
    rows = find()
    assert {row.group_uuid for row in rows} == {fleets.GROUP}
    assert sorted(row.instance_uuid for row in rows) == sorted(
        member.instance_uuid for member in group.members)
    assert [row.id for row in rows] == sorted(
        (row.id for row in rows), reverse=True)


def test_node_that_was_deleted(fleet):
    hold(fleet)
    fleet.delete_node(fleet.node_id)
    expiry.purge()
    row, = find()
    assert (row.node_name, row.node_owner, row.resource_class) == (
        None, None, None)


def test_node_with_the_id_of_a_deleted_one(fleet):
    hold(fleet)
    fleet.set_node(fleet.node_id, uuid=str(uuid.uuid4()), instance_uuid=None)
    expiry.purge()
    row, = find()
    assert (row.node_name, row.resource_class) == (None, None)


@ENDS
def test_copy_that_exists_already(fleet, end):
    """It stays as it is, and does not prevent the end."""
    reservation = hold(fleet)
    with fleet.engine.begin() as connection:
        connection.execute(history_rows.copy_rows([reservation], 'other'))
    end(fleet)
    row, = fleet.history
    assert row.ended_by == 'other'
    assert reservation.id not in [item.id for item in fleet.rows]


@ENDS
def test_end_that_fails(fleet, monkeypatch, end):
    """Nothing is recorded of a reservation that goes on."""
    reservation = hold(fleet)
    record = transaction.Transaction.record_end

    def record_and_fail(*args):
        record(*args)
        raise exception.Conflict('x')

    monkeypatch.setattr(transaction.Transaction, 'record_end',
                        record_and_fail)
    with pytest.raises(exception.Conflict):
        end(fleet)
    assert fleet.history == [] and fleet.rows[0].id == reservation.id


# The list

def find(after=None, limit=99, **filters):
    return history.find_ended(history.Filters(**filters), after, limit)


def test_owner_sees_what_ended_on_its_nodes(fleet):
    """Also when it has given the node away, but not what ended before."""
    for owner in 'a', 'b', 'a', None:
        hold(fleet)
        fleet.set_node(fleet.node_id, owner=owner)
        release(fleet)
        fleet.set_node(fleet.node_id, name=None, resource_class='used')
    reach = fleets.reach('a')
    assert [row.node_owner for row in find()] == [None, 'a', 'b', 'a']
    assert [row.node_owner for row in find(reach=reach)] == ['a', 'a']
    assert find(reach=fleets.reach('')) == []


def test_present_values_of_a_node_that_has_another_owner(fleet):
    hold(fleet)
    release(fleet)
    reach = fleets.reach(OWNER)
    assert [row.resource_class for row in find(reach=reach)] == ['gold']
    fleet.set_node(fleet.node_id, owner='x')
    assert [row.resource_class for row in find(reach=reach)] == [None]
    assert [row.resource_class for row in find()] == ['gold']


def end_one(fleet, name, seconds, **columns):
    """Add a reservation of a new node that ended some seconds ago."""
    hold(fleet)
    fleet.set_node(fleet.node_id, name=name)
    release(fleet)
    fleet.set_node(fleet.node_id, resource_class='used')
    fleet.execute(sa.update(models.history).where(
        models.history.c.id == fleet.history[-1].id).values(
            ended_at=functions.seconds_from_now(-seconds), **columns))
    return fleet.history[-1]


def test_filters(fleet):
    """A node is found by its present name, or by a former one."""
    other = str(uuid.uuid4())
    first = end_one(fleet, 'a', 300)
    first_node = fleet.node_id
    second = end_one(fleet, 'b', 200, project_id='P', instance_uuid=other)

    def ids(**filters):
        return [row.id for row in find(**filters)]

    both = [second.id, first.id]
    assert ids() == both
    assert ids(node='a') == ids(node=first.node_uuid.upper()) == [first.id]
    assert ids(node='A') == ids(node=str(uuid.uuid4())) == []
    assert ids(instance_uuid=other) == ids(project_id='P') == [second.id]
    assert ids(project_id='p') == ids(project_id='P ') == []
    assert ids(ended_after=400) == both
    assert ids(ended_after=250) == [second.id]
    assert ids(ended_after=datetime.datetime(2001, 1, 1)) == both
    assert ids(ended_after=datetime.datetime(2999, 1, 1)) == []
    fleet.set_node(first_node, name='c')
    assert ids(node='c') == ids(node='a') == [first.id]
    fleet.set_node(fleet.node_id, name='a')
    assert ids(node='a') == [second.id]
    fleet.delete_node(fleet.node_id)
    assert ids(node='b') == [second.id]


def test_name_of_another_node(fleet):
    """A node that the caller does not see hides none of its own rows."""
    row = end_one(fleet, 'a', 300)
    fleet.set_node(fleet.node_id, name='b')
    other = fleet.add_node(name='a')

    def is_hidden(**columns):
        fleet.set_node(other, **{'owner': None, 'lessee': None, **columns})
        assert find(node='a') == []
        results = [[item.id for item in find(node='a', reach=fleets.reach(
            OWNER, unowned))] for unowned in (False, True)]
        return [{(): True, (row.id,): False}[tuple(ids)] for ids in results]

    assert is_hidden() == [False, True]
    assert is_hidden(owner='x') == is_hidden(lessee='x') == [False, False]
    assert is_hidden(owner=OWNER) == is_hidden(lessee=OWNER) == [True, True]
    fleet.add_pool('x', other)
    assert is_hidden() == [False, False]
    fleet.execute(sa.update(models.pools).values(project_id=OWNER))
    assert is_hidden() == [True, True]


def test_pages(fleet):
    """The order is by the end, and by the id of what ended in one second."""
    rows = [end_one(fleet, f'n{number}', seconds)
            for number, seconds in enumerate((500, 300, 500, 400, 500))]
    order = [rows[number].id for number in (1, 3, 4, 2, 0)]
    after, pages = None, []
    # The times of rows with the same end may differ by a second.
    fleet.execute(sa.update(models.history).where(
        models.history.c.id.in_([rows[n].id for n in (0, 2, 4)])).values(
            ended_at=functions.seconds_from_now(-500)))
    for _ in range(3):
        page = find(after, 2)
        pages.append([row.id for row in page])
        after = page[-1].ended_at, page[-1].id
    assert pages == [order[:2], order[2:4], order[4:]]
    assert find(after) == []
    # All are of one instance: the page after its first end is empty.
    assert find(history.find_position(fleets.INSTANCE, values.ALL)) == []
    assert history.find_position(fleets.INSTANCE, fleets.reach('x')) == []


def test_sweep(fleet, option, monkeypatch, capsys):
    monkeypatch.setattr(transaction, 'DELETED_AT_ONCE', 1)
    for number, days in enumerate((89, 91, 92)):
        end_one(fleet, f'n{number}', days * 86400)
    manage.sweep()
    assert '2 old reservations deleted from' in capsys.readouterr().out
    assert len(fleet.history) == 1
    option(history=0)
    assert history.sweep() == 1


# Races

@pytest.mark.on('server')
def test_two_ends_do_not_deadlock(fleet, executor):
    """The second one waits for the first before it copies the row."""
    hold(fleet)
    fleet.set_node(fleet.node_id, instance_uuid=None)
    futures, deadlocks = [], []

    def purge_again():
        futures.append(executor.submit(expiry.purge))
        fleet.wait_for_lock(futures[0])

    def note(context):
        deadlocks.append(context.original_exception)

    sa.event.listen(fleet.engine, 'handle_error', note)
    try:
        with fleet.before('DELETE FROM reservations', purge_again):
            assert expiry.purge() == 1
        assert futures[0].result(60) == 0
    finally:
        sa.event.remove(fleet.engine, 'handle_error', note)
    assert not deadlocks and len(fleet.history) == 1


#: Repeats a plain UPDATE that a deadlock has undone, as Ironic does, too.
repeat = oslo_db_api.wrap_db_retry(retry_interval=0.1, retry_on_deadlock=True)


@repeat
def make_past(fleet):
    fleet.expire_leases()
    expiry.expire_leases()


@repeat
def tear_down(fleet):
    fleet.execute(sa.update(models.nodes).where(
        models.nodes.c.instance_uuid == fleets.INSTANCE).values(
            instance_uuid=None))
    expiry.purge()


@pytest.mark.on('server')
def test_ends_race(fleet, option):
    """Each reservation is in the history exactly once, or still there."""
    # A busy machine is slow.
    option(deadline=60)
    fleet.add_node()
    actions = release, claim, make_past, tear_down
    barrier, seen = threading.Barrier(4), collections.Counter()

    def act(action):
        with contextlib.suppress(exception.NotFound, exception.Conflict,
                                 exception.NoMatchingNode):
            action(fleet)

    def race(action):
        barrier.wait()
        # The end with the fewest statements would always be the first.
        time.sleep(random.uniform(0, 0.1))
        act(action)

    for turn in range(24):
        fleet.release_all()
        reservation, _ = fleet.hold(fleets.INSTANCE, owner=HOLDER)
        if turn < 4:
            # Each is surely the first once.
            act(actions[turn])
        with concurrent.futures.ThreadPoolExecutor(4) as executor:
            list(executor.map(race, actions))
        ends = [row.ended_by for row in fleet.history
                if row.id == reservation.id]
        assert len(ends) + sum(
            row.id == reservation.id for row in fleet.rows) == 1
        seen.update(ends)
    assert {*seen} == {*constants.ENDS}, seen
