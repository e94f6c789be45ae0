# SPDX-License-Identifier: Apache-2.0
"""A group is released in pages, many members in one transaction."""

import time

from oslo_db import exception as db_exc
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.reservations import group_releases
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import updates
from tests.common import fleets

#: The number of members in one transaction, and of all.
PAGE = 64
MEMBERS = 2 * PAGE + 2


@pytest.fixture
def group(fleet):
    """Two pages of members and two more."""
    fleet.add(*[{}] * MEMBERS)
    fleet.hold_group(MEMBERS)
    return groups.get_group(fleets.GROUP)


def release(reach=values.ALL):
    group_releases.release_group(
        fleets.GROUP, lambda group: None, reach)


def count_log_lines(caplog):
    """Return the number of releases in the log."""
    return sum('is released (' in record.message for record in caplog.records)


def test_release(fleet, group, caplog):
    caplog.set_level('INFO')
    with fleet.statements('UPDATE reservations_groups') as transactions, \
            fleet.row_counts('UPDATE nodes') as row_counts:
        release()
    assert len(transactions) == 3 and sum(row_counts) == MEMBERS
    assert not fleet.holds and not fleet.group_rows
    assert count_log_lines(caplog) == MEMBERS


@pytest.mark.parametrize('reach', [values.ALL, fleets.reach('p')])
def test_members_that_cannot_be_released_stay(fleet, group, reach):
    busy = group.members[::PAGE]
    for member in busy:
        fleet.set_node(member.node_id, provision_state='active')
    with pytest.raises(exception.Conflict, match=(
            f'^3 of {MEMBERS} members of group {fleets.GROUP} cannot be '
            'released: Node .* is active')):
        release(reach)
    assert list(fleet.holds) == [member.node_id for member in busy]
    assert len(fleet.group_rows) == 1
    for member in busy:
        fleet.set_node(member.node_id, provision_state='available')
    release(reach)
    assert not fleet.holds and not fleet.group_rows


def test_concurrent_changes_are_read_again(fleet, group):
    """In each transaction a member has changed since it was read."""
    _, moving, deploying, *_, last = group.members

    def change():
        updates.update_reservation(moving.instance_uuid, {'host': 'compute-1'})
        fleet.set_node(deploying.node_id, provision_state='deploying')
        releases.release_reservation(last.instance_uuid)
    with fleet.before('UPDATE nodes', change), \
            pytest.raises(exception.Conflict, match='^2 of') as error:
        release(fleets.reach('p'))
    assert f'of {MEMBERS} members' in str(error.value)
    assert set(fleet.holds) == {moving.node_id, deploying.node_id}


@pytest.mark.parametrize('after', [False, True])
def test_commit_without_a_response(fleet, group, after, caplog):
    caplog.set_level('INFO')
    with fleet.fail_commit(db_exc.DBConnectionError(), after):
        release()
    assert not fleet.holds and not fleet.group_rows
    # One line names the members of the transaction whose response was lost.
    line, = [record.getMessage() for record in caplog.records
             if 'COMMIT' in record.getMessage()]
    page = group_releases.PAGE
    assert count_log_lines(caplog) == MEMBERS - (page if after else 0)
    assert page == sum(member.instance_uuid in line
                       for member in group.members)


@pytest.mark.parametrize('error', [db_exc.DBDeadlock(),
                                   db_exc.DBConnectionError()], ids=str)
def test_concurrent_release_is_logged_once(fleet, group, error, caplog):
    """It happens between a COMMIT that fails and the next attempt."""
    caplog.set_level('INFO')
    due = []

    def change():
        if due:
            due.clear()
            releases.release_reservation(group.members[0].instance_uuid)
    with fleet.before('SELECT', change, 10 ** 6), \
            fleet.fail_commit(error, then=lambda: due.append(True)):
        release()
    assert not fleet.holds and not fleet.group_rows
    assert count_log_lines(caplog) == MEMBERS


@pytest.mark.parametrize('error', [
    db_exc.DBConnectionError(), sa.exc.TimeoutError(),
    sa.exc.OperationalError('SELECT', {}, Exception())], ids=repr)
@pytest.mark.parametrize('number', [0, PAGE])
def test_database_that_fails(fleet, group, error, number, caplog):
    """The error says how many members are left after the first page."""
    caplog.set_level('INFO')

    def fail():
        if count_log_lines(caplog) >= number:
            raise error
    with fleet.before('UPDATE nodes', fail, 10 ** 6), \
            pytest.raises(Exception) as error_info:
        release()
    assert len(fleet.holds) == MEMBERS - number
    if number:
        assert error_info.type is exception.DeadlineExceeded
        assert str(error_info.value).startswith(
            f'{MEMBERS - number} of {MEMBERS} members of group '
            f'{fleets.GROUP} are left')
        assert error_info.value.__cause__ is error
    else:
        assert error_info.value is error


@pytest.mark.parametrize('statement, number', [
    # The transaction of the page fails.
    ('UPDATE nodes', 0),
    # The transaction is complete, and the next one does not start.
    ('DELETE FROM reservations_groups', PAGE)])
def test_release_stops_at_the_deadline(fleet, group, option, statement,
                                       number):
    """Repeating the request releases the remaining members."""
    option(deadline=1)
    left_over = MEMBERS - number
    with fleet.before(statement, lambda: time.sleep(1)), \
            pytest.raises(exception.DeadlineExceeded, match=(
                f'^{left_over} of {MEMBERS} members of group '
                f'{fleets.GROUP} are left')):
        release()
    assert len(fleet.holds) == left_over
    option(deadline=10)
    release()
    assert not fleet.holds and not fleet.group_rows
