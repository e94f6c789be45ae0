# SPDX-License-Identifier: Apache-2.0
"""A group is released in pages, many members in one transaction."""

import time

from oslo_db import exception as db_exc
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations.reservations import group_releases
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import updates
from tests.db.conftest import GROUP

#: How many members go in one transaction, and how many there are.
PAGE = 64
MEMBERS = 2 * PAGE + 2


@pytest.fixture
def group(fleet):
    """Two pages of members and two more."""
    fleet.add(*[{}] * MEMBERS)
    fleet.group(MEMBERS)
    return groups.get_group(GROUP)


def release(is_restricted=False):
    group_releases.release_group(GROUP, lambda group: None, is_restricted)


def told(caplog):
    """How many releases the log has told of."""
    return sum('is released (' in each.message for each in caplog.records)


def test_release(fleet, group, caplog):
    caplog.set_level('INFO')
    with fleet.statements('UPDATE reservations_groups') as transactions, \
            fleet.counted('UPDATE nodes') as freed:
        release()
    assert len(transactions) == 3 and sum(freed) == MEMBERS
    assert not fleet.held and not fleet.groups
    assert told(caplog) == MEMBERS


@pytest.mark.parametrize('is_restricted', [False, True])
def test_what_may_not_be_released_stays(fleet, group, is_restricted):
    busy = group.members[::PAGE]
    for each in busy:
        fleet.edit(each.node_id, provision_state='active')
    with pytest.raises(exception.Conflict, match=(
            f'^3 of {MEMBERS} members of group {GROUP} cannot be released: '
            f'Node .* is active')):
        release(is_restricted)
    assert list(fleet.held) == [each.node_id for each in busy]
    assert len(fleet.groups) == 1
    for each in busy:
        fleet.edit(each.node_id, provision_state='available')
    release(is_restricted)
    assert not fleet.held and not fleet.groups


def test_what_changes_meanwhile_is_read_again(fleet, group):
    """In each transaction something is no longer as it was read."""
    _, claimed, built, *_, last = group.members

    def change():
        updates.update_reservation(
            claimed.instance_uuid, {'host': 'compute-1'})
        fleet.edit(built.node_id, provision_state='deploying')
        releases.release_reservation(last.instance_uuid)
    with fleet.before('UPDATE nodes', change), \
            pytest.raises(exception.Conflict, match='^2 of') as caught:
        release(is_restricted=True)
    assert f'of {MEMBERS} members' in str(caught.value)
    assert set(fleet.held) == {claimed.node_id, built.node_id}


@pytest.mark.parametrize('after', [False, True])
def test_commit_whose_answer_is_lost(fleet, group, after, caplog):
    caplog.set_level('INFO')
    with fleet.commit_fails(db_exc.DBConnectionError(), after):
        release()
    assert not fleet.held and not fleet.groups
    # Those of the transaction whose response was lost are named in one line.
    named, = [record.getMessage() for record in caplog.records
              if 'COMMIT' in record.getMessage()]
    page = group_releases.PAGE
    assert told(caplog) == MEMBERS - (page if after else 0)
    assert sum(each.instance_uuid in named for each in group.members) == page


@pytest.mark.parametrize('error', [db_exc.DBDeadlock(),
                                   db_exc.DBConnectionError()], ids=str)
def test_what_another_releases_is_told_once(fleet, group, error, caplog):
    """It comes between a COMMIT that fails and the next attempt."""
    caplog.set_level('INFO')
    due = []

    def change():
        if due:
            due.clear()
            releases.release_reservation(group.members[0].instance_uuid)
    with fleet.before('SELECT', change, 10 ** 6), \
            fleet.commit_fails(error, then=lambda: due.append(True)):
        release()
    assert not fleet.held and not fleet.groups
    assert told(caplog) == MEMBERS


@pytest.mark.parametrize('error', [
    db_exc.DBConnectionError(), sa.exc.TimeoutError(),
    sa.exc.OperationalError('SELECT', {}, Exception())], ids=repr)
@pytest.mark.parametrize('freed', [0, PAGE])
def test_database_that_fails(fleet, group, error, freed, caplog):
    """From then on; what was released before is told."""
    caplog.set_level('INFO')

    def fail():
        if told(caplog) >= freed:
            raise error
    with fleet.before('UPDATE nodes', fail, 10 ** 6), \
            pytest.raises(Exception) as caught:
        release()
    assert len(fleet.held) == MEMBERS - freed
    if freed:
        assert caught.type is exception.DeadlineExceeded
        assert str(caught.value).startswith(
            f'{MEMBERS - freed} of {MEMBERS} members of group {GROUP} are '
            f'left')
        assert caught.value.__cause__ is error
    else:
        assert caught.value is error


def test_it_ends_with_the_time_of_a_request(fleet, group, option):
    """What was released until then stays so, and the rest can be asked."""
    option(deadline=1)
    left = MEMBERS - PAGE
    with fleet.before('DELETE FROM reservations_groups',
                      lambda: time.sleep(1)), \
            pytest.raises(exception.DeadlineExceeded, match=(
                f'^{left} of {MEMBERS} members of group {GROUP} are left')):
        release()
    assert len(fleet.held) == left
    option(deadline=10)
    release()
    assert not fleet.held and not fleet.groups


def test_page_ends_with_the_time_of_a_request(fleet, group, option):
    """What is not done of a page by then is not done at all."""
    option(deadline=1)
    with fleet.before('UPDATE nodes', lambda: time.sleep(1)), \
            pytest.raises(exception.DeadlineExceeded, match=(
                f'^{MEMBERS} of {MEMBERS} members of group {GROUP} are left')):
        release()
    assert len(fleet.held) == MEMBERS
