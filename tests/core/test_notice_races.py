# SPDX-License-Identifier: Apache-2.0
"""Projects that move notices and give machines back, with other requests."""

import datetime
import time

from oslo_db import exception as db_exc
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import models
from ironic_reservations.reservations import notice_updates
from ironic_reservations.reservations import notices
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import targets
from tests.common import fleets
from tests.core.test_notices import HOUR
from tests.core.test_notices import OPERATOR
from tests.core.test_notices import create
from tests.core.test_notices import from_now
from tests.core.test_notices import make_request
from tests.core.test_notices import update

pytestmark = pytest.mark.on('sqlite', 'server')

#: Members of project p, who are neither operators nor owners.
TENANT = targets.Authority(
    lambda target: False, lambda target: True, fleets.reach('p'))

#: The first write of a schedule with a cordon, the second read of each one, and
#: the first write of a project's cordon. SQLite lets nobody write after these.
TOUCH = 'UPDATE nodes SET updated_at'
READ_NODES = 'SELECT nodes.id, nodes.uuid, nodes.name, nodes.owner'
WRITE_PROJECT = 'UPDATE reservations_projects'
REPORTS = 16


def deploy(fleet, node_id, project='p'):
    """Give a project a server on a node; return its instance."""
    reservation, _ = fleet.hold(
        owner=values.Assignment(project_id=project),
        candidate_nodes=[fleet[node_id].uuid])
    fleet.set_node(node_id, provision_state='active')
    return reservation.instance_uuid


def deliver(fleet, number=1):
    """Return the ids of new nodes with servers of project p."""
    ids = fleet.add(*({},) * number)
    for node_id in ids:
        deploy(fleet, node_id)
    return ids


def plan(fleet, *node_ids, **fields):
    """Plan work from one hour on, to be moved within ten."""
    return create(fleet, *node_ids, **{
        'starts_at': HOUR, 'due_at': 2 * HOUR, 'ends_at': 3 * HOUR,
        'latest_start': 10 * HOUR, **fields})


def schedule(name, start, node=None):
    return notice_updates.update_notices(
        name, node, {'starts_at': start}, TENANT)


def report(fleet, *node_ids, cordon=True):
    request = make_request(fleet, *node_ids, kind='fault', cordon=cordon)
    return notices.create_notices(request, TENANT)[0]


def cordon(name):
    return notice_updates.update_notices(name, None, {'cordon': True}, TENANT)


def read(fleet):
    return fleet.execute(sa.select(models.notices).order_by(
        models.notices.c.id))


def check_times(row):
    """Check that all times of a notice have moved together."""
    assert (row.due_at - row.starts_at, row.ends_at - row.due_at) == (
        HOUR, HOUR)


@pytest.fixture(autouse=True)
def three_cordons(option):
    option(project_cordons=3)


# The limit of a project

def count_results(futures):
    """Return how many calls have succeeded, and how many were refused."""
    errors = [future.exception(120) for future in futures]
    assert all(error is None or isinstance(error, exception.Conflict)
               for error in errors), errors
    return errors.count(None), len(errors) - errors.count(None)


@pytest.mark.on('server')
@pytest.mark.parametrize('has_row', [False, True])
@pytest.mark.parametrize('is_patch', [False, True])
def test_concurrent_cordons_of_a_project(isolation, executor, option, is_patch,
                                         has_row):
    """Three succeed, also if the project has no row yet."""
    option(deadline=100)
    ids = deliver(isolation, REPORTS)
    names = [report(isolation, node_id, cordon=False)[0].uuid
             for node_id in ids] if is_patch else []
    isolation.execute(sa.delete(models.projects))
    if has_row:
        isolation.execute(sa.insert(models.projects).values(
            project_id='p', serial=0))
    futures = ([executor.submit(cordon, name) for name in names]
               or [executor.submit(report, isolation, node_id)
                   for node_id in ids])
    assert count_results(futures) == (3, REPORTS - 3)
    assert [row.cordon for row in read(isolation)].count(True) == 3
    assert len(read(isolation)) == (REPORTS if is_patch else 3)


@pytest.mark.on('server')
def test_concurrent_cordons_of_two_projects(isolation, executor, option):
    """Each has its own limit."""
    option(deadline=100)
    ids = deliver(isolation, 6)
    others = isolation.add(*({},) * 6)
    for node_id in others:
        deploy(isolation, node_id, 'q')
    other = targets.Authority(TENANT.may_write, TENANT.may_report,
                              fleets.reach('q'))
    futures = [executor.submit(
        notices.create_notices,
        make_request(isolation, node_id, kind='fault'), authority)
        for pair in zip(ids, others, strict=True)
        for node_id, authority in zip(pair, (TENANT, other), strict=True)]
    assert count_results(futures) == (6, 6)
    assert sorted(row.project_id for row in read(isolation)) == [
        *'pppqqq']


# A machine that the project loses

def lose(fleet, node_id):
    """Let another project get a node instead of project p."""
    fleet.set_node(node_id, provision_state='available')
    releases.release_reservation(fleet[node_id].instance_uuid)
    deploy(fleet, node_id, 'q')


def test_machine_that_is_lost_before_a_report(fleet):
    node_id, = deliver(fleet)
    with fleet.before(WRITE_PROJECT, lambda: lose(fleet, node_id)):
        with pytest.raises(exception.InvalidInput):
            report(fleet, node_id)
    assert read(fleet) == []


def test_machine_that_is_lost_before_its_cordon(fleet):
    node_id, = deliver(fleet)
    name = report(fleet, node_id, cordon=False)[0].uuid
    with fleet.before(WRITE_PROJECT, lambda: lose(fleet, node_id)):
        with pytest.raises(exception.NotAuthorized):
            cordon(name)
    assert not read(fleet)[0].cordon


def test_machine_that_is_lost_before_its_notice_moves(fleet):
    node_id, = deliver(fleet)
    name = plan(fleet, node_id)
    before = read(fleet)
    with fleet.before(TOUCH, lambda: lose(fleet, node_id)):
        with pytest.raises(exception.NotFound):
            schedule(name, 2 * HOUR)
    assert read(fleet) == before


# A notice that changes between read and write

def before_write(fleet, is_cordon, action):
    """Run an action between the first read of a schedule and its first write.
    """
    return fleet.before(TOUCH if is_cordon else READ_NODES, action)


@pytest.mark.parametrize('is_cordon', [True, False])
def test_shorter_window(fleet, is_cordon):
    name = plan(fleet, *deliver(fleet), cordon=is_cordon)
    last = from_now(7200)
    with before_write(fleet, is_cordon, lambda: update(
            name, latest_start=last)):
        with pytest.raises(exception.InvalidInput) as error:
            schedule(name, 5 * HOUR)
    assert str(error.value).startswith(
        f'starts_at: must be from now to latest_start, {last.isoformat()}Z')
    [row] = read(fleet)
    assert (row.latest_start, row.scheduled_at) == (last, None)


@pytest.mark.parametrize('is_cordon', [True, False])
@pytest.mark.parametrize('changes', [
    {'latest_start': None}, {'starts_at': notices.AT_ONCE},
    {'ends_at': notices.AT_ONCE}], ids=['fixed', 'open', 'closed'])
def test_operator_comes_first(fleet, is_cordon, changes):
    name = plan(fleet, *deliver(fleet), cordon=is_cordon)
    with before_write(fleet, is_cordon, lambda: update(name, **changes)):
        with pytest.raises(exception.Conflict):
            schedule(name, 5 * HOUR)
    [row] = read(fleet)
    assert row.scheduled_at is None


@pytest.mark.parametrize('is_cordon', [True, False])
@pytest.mark.parametrize('changes', [
    {'starts_at': from_now(1800)}, {'cordon': None}, {'due_at': None},
    {'ends_at': None}], ids=lambda changes: next(iter(changes)))
def test_change_of_an_operator_stays(fleet, is_cordon, changes):
    """The due time and the end move from where the operator put them."""
    changes = {name: not is_cordon if name == 'cordon' else value
               for name, value in changes.items()}
    name = plan(fleet, *deliver(fleet), cordon=is_cordon)
    [first] = read(fleet)
    with before_write(fleet, is_cordon, lambda: update(name, **changes)):
        schedule(name, 5 * HOUR)
    [row] = read(fleet)
    assert row.cordon == changes.get('cordon', is_cordon)
    assert row.scheduled_at is not None
    shift = row.starts_at - changes.get('starts_at', first.starts_at)
    for column in 'due_at', 'ends_at':
        assert getattr(row, column) == (
            None if column in changes else getattr(first, column) + shift)


@pytest.mark.parametrize('is_cordon', [True, False])
def test_operator_comes_second(fleet, is_cordon):
    """Its time stays, and nothing says that a project has chosen it."""
    name = plan(fleet, *deliver(fleet), cordon=is_cordon)
    start = from_now(1800)
    with fleet.before(TOUCH if is_cordon else 'UPDATE reservations_notices',
                      lambda: schedule(name, HOUR / 4)):
        update(name, starts_at=start)
    [row] = read(fleet)
    assert (row.starts_at, row.scheduled_at) == (start, None)


@pytest.mark.parametrize('is_cordon', [True, False])
def test_two_schedules(fleet, is_cordon):
    """The second one moves from where the first one has put it."""
    name = plan(fleet, *deliver(fleet), cordon=is_cordon)
    start = from_now(9 * 3600)
    with before_write(fleet, is_cordon, lambda: schedule(name, 5 * HOUR)):
        notice, = schedule(name, start)
    [row] = read(fleet)
    assert row.starts_at == notice.starts_at == start
    check_times(row)


@pytest.mark.on('server')
def test_many_schedules(isolation, executor, option):
    """Whichever is the last, all times of all notices have moved together."""
    option(deadline=100)
    name = plan(isolation, *deliver(isolation, 3))
    for future in [executor.submit(schedule, name, number * HOUR)
                   for number in range(1, 9)]:
        future.result(120)
    rows = read(isolation)
    assert len({row.starts_at for row in rows}) == 1
    for row in rows:
        check_times(row)


@pytest.mark.parametrize('start', [notices.AT_ONCE, 5 * HOUR])
def test_start_between_read_and_write(fleet, monkeypatch, option, start):
    """It has opened by the clock, which no write shows."""
    option(schedule_ahead=0)
    name = plan(fleet, *deliver(fleet), starts_at=from_now(2))
    before = read(fleet)
    find_nodes = notice_updates._find_nodes

    def find_late(*args):
        time.sleep(max(0, (before[0].starts_at - from_now(-1)
                           ).total_seconds()))
        return find_nodes(*args)

    monkeypatch.setattr(notice_updates, '_find_nodes', find_late)
    with pytest.raises(exception.Conflict):
        schedule(name, start)
    assert read(fleet) == before


# Order with holds

@pytest.mark.parametrize('start', [notices.AT_ONCE, HOUR / 2, 5 * HOUR])
def test_schedule_changes_its_node(fleet, start):
    """So a concurrent hold waits, or starts over: section "Ordering"."""
    first, second = deliver(fleet, 2)
    plan(fleet, second)
    name = plan(fleet, first)
    for node_id in first, second:
        fleet.set_node(node_id, updated_at=None)
    schedule(name, start)
    assert fleet[first].updated_at is not None
    assert fleet[second].updated_at is None


@pytest.mark.parametrize('is_patch', [False, True])
def test_cordon_of_a_project_changes_its_node(fleet, is_patch):
    node_id, = deliver(fleet)
    fleet.set_node(node_id, updated_at=None)
    name = report(fleet, node_id, cordon=not is_patch)[0].uuid
    if is_patch:
        assert fleet[node_id].updated_at is None
        cordon(name)
    assert fleet[node_id].updated_at is not None


@pytest.mark.on('server')
@pytest.mark.parametrize('kind', ['schedule', 'report', 'cordon'])
def test_hold_waits_for_a_project(isolation, executor, monkeypatch, kind):
    """The node of a pool, that the project gives back while it is free."""
    node_id = isolation.add_node()
    isolation.add_pool('p', node_id)
    name = {'schedule': lambda: plan(isolation, node_id),
            'report': lambda: None,
            'cordon': lambda: report(isolation, node_id, cordon=False)[0].uuid
            }[kind]()
    futures = []
    read_back = notices._read_back

    def hold_before_the_commit(*args):
        futures.append(executor.submit(
            isolation.hold, owner=values.Assignment(project_id='p'),
            ownership=values.Ownership('p')))
        isolation.wait_for_lock(futures[0])
        assert not futures[0].done(), futures[0].result()
        return read_back(*args)

    monkeypatch.setattr(notices, '_read_back', hold_before_the_commit)
    {'schedule': lambda: schedule(name, notices.AT_ONCE),
     'report': lambda: report(isolation, node_id),
     'cordon': lambda: cordon(name)}[kind]()
    with pytest.raises(exception.NoMatchingNode):
        futures[0].result(60)
    assert isolation.holds == {}


# Several nodes

def test_one_of_two_was_moved_before(fleet):
    first, second = deliver(fleet, 2)
    name = plan(fleet, first, second)
    notice, = schedule(name, notices.AT_ONCE, fleet[first].uuid)
    before = read(fleet)[0]
    assert (notice.node_id, before.scheduled_at) == (first, before.starts_at)
    for start in 5 * HOUR, notices.AT_ONCE:
        notice, = schedule(name, start)
        assert notice.node_id == second
    assert read(fleet)[0] == before
    with pytest.raises(exception.Conflict):
        schedule(name, notices.AT_ONCE)


def test_one_of_two_is_moved_at_the_same_time(fleet):
    first, second = deliver(fleet, 2)
    name = plan(fleet, first, second)
    with fleet.before(TOUCH, lambda: schedule(
            name, notices.AT_ONCE, fleet[first].uuid)):
        notice, = schedule(name, 5 * HOUR)
    assert notice.node_id == second
    one, other = read(fleet)
    assert other.starts_at - one.starts_at > datetime.timedelta(hours=4)
    for row in one, other:
        check_times(row)


# Lost responses

@pytest.mark.parametrize('start, state', [
    (notices.AT_ONCE, 'open'), (5 * HOUR, 'planned'),
    (datetime.timedelta(0, 60), 'planned')], ids=['now', 'later', 'soon'])
def test_lost_response_to_a_schedule(fleet, caplog, start, state):
    """It has succeeded, although the notice is open or opens soon."""
    name = plan(fleet, *deliver(fleet))
    with fleet.fail_commit(db_exc.DBConnectionError(), after=True):
        notice, = schedule(name, start)
    assert notice.state == state
    assert f'what was committed for notice {name}\n' in caplog.text
    [row] = read(fleet)
    check_times(row)
    assert row.scheduled_at is not None


def test_lost_response_to_two_schedules(fleet):
    """One of the two notices was open before."""
    first, second = deliver(fleet, 2)
    name = plan(fleet, first, second)
    schedule(name, notices.AT_ONCE, fleet[first].uuid)
    with fleet.fail_commit(db_exc.DBConnectionError(), after=True):
        rows = schedule(name, notices.AT_ONCE)
    assert second in [row.node_id for row in rows]
    assert {row.state for row in rows} == {'open'}


def test_lost_connection_before_the_commit(fleet):
    name = plan(fleet, *deliver(fleet))
    with fleet.fail_commit(db_exc.DBConnectionError()):
        notice, = schedule(name, notices.AT_ONCE)
    assert notice.state == 'open'
    check_times(read(fleet)[0])


@pytest.mark.parametrize('is_patch', [False, True])
def test_lost_response_to_a_cordon(fleet, option, is_patch):
    """At the limit, which the cordon itself has reached."""
    option(project_cordons=1)
    node_id, = deliver(fleet)
    name = is_patch and report(fleet, node_id, cordon=False)[0].uuid
    request = make_request(fleet, node_id, kind='fault')
    with fleet.fail_commit(db_exc.DBConnectionError(), after=True):
        notice, = (cordon(name) if is_patch
                   else notices.create_notices(request, TENANT)[0])
    assert notice.cordon and len(read(fleet)) == 1


def test_operator_is_not_bound(fleet):
    """An operator changes what a project has promised."""
    name = plan(fleet, *deliver(fleet))
    schedule(name, 5 * HOUR)
    notice_updates.update_notices(name, None, {
        'starts_at': 20 * HOUR, 'latest_start': None, 'due_at': None,
        'ends_at': None}, OPERATOR)
    assert read(fleet)[0].scheduled_at is None
