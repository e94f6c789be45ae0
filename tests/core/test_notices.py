# SPDX-License-Identifier: Apache-2.0
"""Cordons and the transactions of holds."""

import datetime
import time
import uuid

from oslo_db import exception as db_exc
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.cmd import manage
from ironic_reservations.db import models
from ironic_reservations.db import notice_rows
from ironic_reservations.reservations import notice_lookup
from ironic_reservations.reservations import notice_updates
from ironic_reservations.reservations import notices
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import targets
from ironic_reservations.reservations import transaction
from tests.common import fleets
from tests.common.fleets import HOLD
from tests.common.fleets import from_now
from tests.common.fleets import present

pytestmark = pytest.mark.on('sqlite', 'server')

HOUR = datetime.timedelta(hours=1)
OPERATOR = targets.Authority(lambda node: True, lambda node: True, values.ALL)


def make_request(fleet, *node_ids, **fields):
    times = {name: fields.pop(name) for name in notices.TIMES & fields.keys()}
    return notices.Request(**{
        'uuid': str(uuid.uuid4()), 'kind': 'maintenance', 'cordon': True,
        'nodes': tuple(fleet[node_id].uuid for node_id in node_ids),
        'domain': None, 'times': times,
        'texts': values.NoticeTexts(), 'digest': '', 'created_by': None,
        **fields})


def create(fleet, *node_ids, **fields):
    """Create notices of nodes; return their UUID."""
    request = make_request(fleet, *node_ids, **fields)
    notices.create_notices(request, OPERATOR)
    return request.uuid


def update(name, **changes):
    return notice_updates.update_notices(name, None, changes, OPERATOR)


@pytest.mark.on('sqlite')
def test_notices_of_a_request_have_the_same_times(fleet):
    delays = [0, 1.1]
    request = make_request(fleet, *fleet.add({}, {}),
                           ends_at=datetime.timedelta(0, 600))
    with fleet.before('INSERT INTO reservations_notices',
                      lambda: time.sleep(delays.pop(0)), times=2):
        rows, _ = notices.create_notices(request, OPERATOR)
    assert len({(row.starts_at, row.ends_at) for row in rows}) == 1


@pytest.mark.on('server')
def test_times_by_the_clock_of_the_database(fleet, set_clock):
    request = make_request(fleet, fleet.add_node(), starts_at=HOUR)
    set_clock()
    [notice], _ = notices.create_notices(request, OPERATOR)
    assert notice.starts_at - notice.created_at == HOUR
    assert notice.created_at > from_now(3600)


def test_sum_that_no_date_can_hold():
    with pytest.raises(exception.InvalidInput) as error:
        transaction.find_time('ends_at', HOUR, datetime.datetime.max)
    assert str(error.value) == 'ends_at: is out of range'


@pytest.mark.parametrize('fields, is_held', [
    ({}, False), ({'ends_at': from_now(3600)}, False),
    ({'kind': 'fault'}, False), ({'kind': 'retirement'}, False),
    ({'cordon': False}, True), ({'starts_at': from_now(3600)}, True),
    ({'starts_at': from_now(-3600)}, False),
], ids=['open', 'ends', 'fault', 'retirement', 'no-cordon', 'planned',
        'began'])
def test_node_with_a_notice(fleet, fields, is_held):
    node_id = fleet.add_node()
    create(fleet, node_id, **fields)
    assert fleet.count_nodes()[:2] == (1, is_held)
    if is_held:
        fleet.hold()
        return
    with pytest.raises(exception.NoMatchingNode) as error:
        fleet.hold()
    assert present(error)['explanation']['eliminated'] == [
        {'by': 'cordoned', 'nodes': 1}]
    other = fleet.add_node()
    assert fleet.hold()[0].node_id == other


def test_clock_of_another_member(fleet):
    """A cordon has begun by the clock of the member that wrote it."""
    create(fleet, fleet.add_node())
    fleet.execute(sa.update(models.notices).values(
        dict.fromkeys(('starts_at', 'created_at'), from_now(60))))
    assert fleet.count_nodes()[:2] == (1, 0)
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold()


def test_end_of_a_cordon(fleet):
    node_id = fleet.add_node()
    name = create(fleet, node_id)
    for change in ({'cordon': False}, {'starts_at': from_now(3600)},
                   {'ends_at': notices.AT_ONCE}):
        update(name, **change)
        reservation, _ = fleet.hold()
        releases.release_reservation(reservation.instance_uuid)
        if 'ends_at' not in change:
            update(name, cordon=True, starts_at=from_now(-1))
            assert fleet.count_nodes()[:2] == (1, 0)


def test_reservations_of_a_cordoned_node_continue(fleet):
    fleet.add_node()
    reservation, _ = fleet.hold(lease=60)
    create(fleet, reservation.node_id)
    again, is_new = fleet.hold(reservation.instance_uuid, lease=600)
    assert not is_new and again.expires_at > reservation.expires_at
    releases.release_reservation(reservation.instance_uuid)
    assert fleet.count_nodes()[:2] == (1, 0)


# Between the search and the guarded UPDATE

def test_cordon_after_the_search_of_a_claim(fleet):
    node_id = fleet.add_node()
    reservation, _ = fleet.hold(owner=values.Assignment())
    with fleet.before(HOLD, lambda: create(fleet, node_id)), \
            fleet.row_counts(HOLD) as row_counts:
        with pytest.raises(exception.NoMatchingNode) as error:
            fleet.claim(reservation.instance_uuid)
    assert row_counts == [0]
    assert present(error)['explanation']['eliminated'] == [
        {'by': 'cordoned', 'nodes': 1}]
    assert fleet.holds == {node_id: reservation.instance_uuid}


# At the same time

@pytest.mark.on('server')
@pytest.mark.parametrize('is_claim', [False, True])
def test_hold_waits_for_a_cordon(isolation, executor, monkeypatch, is_claim):
    node_id = isolation.add_node()
    source = is_claim and isolation.hold(
        owner=values.Assignment())[0].instance_uuid
    before = isolation.holds
    futures = []
    read_back = notices._read_back

    def hold_before_the_commit(*args):
        futures.append(executor.submit(
            isolation.claim, source) if is_claim else executor.submit(
            isolation.hold))
        isolation.wait_for_lock(futures[0])
        assert not futures[0].done()
        return read_back(*args)

    monkeypatch.setattr(notices, '_read_back', hold_before_the_commit)
    create(isolation, node_id)
    with pytest.raises(exception.NoMatchingNode):
        futures[0].result(60)
    assert isolation.holds == before


@pytest.mark.on('server')
@pytest.mark.parametrize('fields, changes', [
    ({}, {}), ({'cordon': False}, {'cordon': True}),
    ({'starts_at': from_now(3600)}, {'starts_at': from_now(-1)}),
    ({'ends_at': from_now(3600)}, {'ends_at': None}),
], ids=['create', 'cordon', 'starts_at', 'ends_at'])
def test_cordon_waits_for_a_hold(isolation, executor, fields, changes):
    """Otherwise the hold would end after the response to the cordon."""
    node_id = isolation.add_node()
    name = create(isolation, node_id, **fields) if changes else None
    if 'ends_at' in changes:
        # The hold has read that the cordon does not begin yet.
        update(name, starts_at=from_now(1800))
    futures = []

    def cordon():
        futures.append(executor.submit(
            lambda: update(name, **changes) if name
            else create(isolation, node_id)))
        isolation.wait_for_lock(futures[0])
        assert not futures[0].done(), futures[0].result()

    with isolation.before('INSERT INTO reservations', cordon):
        isolation.hold()
    futures[0].result(60)
    assert list(isolation.holds) == [node_id]


def test_cordon_changes_its_nodes_each_time(fleet):
    """Galera replicates, and certifies, no UPDATE that changes nothing."""
    first, second = fleet.add({}, {})

    def read():
        return fleet[first].updated_at

    seen = [read()]
    name = create(fleet, first, cordon=False)
    update(name, ticket='T')
    assert read() == seen[0]
    for change in ({'cordon': True}, {'starts_at': from_now(-5)},
                   {'ends_at': from_now(60)}, {'ends_at': None}):
        update(name, **change)
        seen.append(read())
    create(fleet, first)
    seen.append(read())
    assert all(one != next_ for one, next_ in zip(
        seen, seen[1:], strict=False)), seen
    for change in ({'cordon': False}, {'description': 'x'},
                   {'starts_at': from_now(-6)}, {'ends_at': notices.AT_ONCE}):
        update(name, **change)
        assert read() == seen[-1]
    assert fleet[second].updated_at is None


def test_two_changes_of_a_notice(fleet, monkeypatch):
    """The second one reads again which nodes it has to touch."""
    node_id = fleet.add_node()
    name = create(fleet, node_id, cordon=False, starts_at=from_now(3600))
    others = [lambda: update(name, cordon=True)]
    check = notice_updates._check_change

    def check_before_the_other(*args):
        check(*args)
        if others:
            others.pop()()
            fleet.set_node(node_id, updated_at=None)

    monkeypatch.setattr(notice_updates, '_check_change',
                        check_before_the_other)
    update(name, starts_at=from_now(-1))
    assert fleet[node_id].updated_at is not None


def test_lost_response_to_a_commit(fleet, caplog):
    node_id = fleet.add_node()
    name = create(fleet, node_id)
    with fleet.fail_commit(db_exc.DBConnectionError(), after=True):
        notice, = update(name, ends_at=notices.AT_ONCE)
    assert notice.state == 'closed'
    assert f'what was committed for notice {name}\n' in caplog.text
    request = make_request(fleet, node_id)
    with fleet.fail_commit(db_exc.DBConnectionError(), after=True):
        notice, = notices.create_notices(request, OPERATOR)[0]
    assert notice_lookup.find_notices(
        {'uuid': request.uuid}, values.ALL, None, 9) == [
        notice]


# History

def test_sweep_of_notices(fleet, capsys, monkeypatch):
    monkeypatch.setattr(transaction, 'DELETED_AT_ONCE', 1)
    node_id = fleet.add_node()
    names = [create(fleet, node_id, starts_at=from_now(-500 * 86400))
             for _ in range(4)]
    for name in names[:3]:
        update(name, ends_at=notices.AT_ONCE)
    for name, days in zip(names, (401, 402, 399), strict=False):
        fleet.execute(sa.text(
            'UPDATE reservations_notices SET ends_at = :t WHERE uuid = :u'), {
                't': f'{from_now(-86400 * days)}.000000', 'u': name})
    manage.sweep()
    assert '2 old notices deleted, ' in capsys.readouterr().out
    assert [notice.uuid for notice in notice_lookup.find_notices(
        {}, values.ALL, None, 9)] == names[2:]


@pytest.mark.parametrize('project, names', [
    (None, 'gcfe'), ('owner', 'gcfe'), ('holder', 'gcfb'), ('other', 'd')])
def test_first_notices_of_nodes(fleet, monkeypatch, project, names):
    """Open cordons, and then the newest, of those that the caller sees."""
    monkeypatch.setattr(notice_rows, 'SHOWN', 4)
    node_id, other = fleet.add({'owner': 'owner'}, {})
    fleet.hold(candidate_nodes=[fleet[node_id].uuid],
               owner=values.Assignment(project_id='holder'))
    create(fleet, other)
    for name, columns in {
            'a': {}, 'b': {}, 'c': {'cordon': True},
            'd': {'project_id': 'other'}, 'e': {'is_failed_build': True},
            'f': {'cordon': True, 'starts_at': from_now(60)},
            'g': {'cordon': True}, 'h': {'ends_at': from_now(-1)}}.items():
        fleet.add_notice(node_id, description=name, **columns)
    result = notice_lookup.find_on_nodes(
        [node_id, other], fleets.reach(project))
    first = result[node_id]
    assert ''.join(notice.description for notice in first.shown) == names
    assert first.more == {'gcfe': 3, 'gcfb': 1, 'd': 0}[names]
    assert (other in result) is (project is None)


def test_notices_of_a_deleted_node(fleet, caplog):
    """A node that was enrolled again under its UUID is another node."""
    node_id, other = fleet.add({}, {})
    name = create(fleet, node_id)
    create(fleet, node_id, cordon=False)
    fleet.add_notice(node_id, project_id='p')
    uuid_of_node = fleet[node_id].uuid
    fleet.delete_node(node_id)
    fleet.add_node(uuid=uuid_of_node)
    assert notice_lookup.count_notices() == {}
    assert not fleet.execute(notice_rows.select_faults(
        'p', [uuid_of_node], ''))
    with pytest.raises(exception.Conflict):
        update(name, ends_at=notices.AT_ONCE)
    update(name, action='none')
    caplog.clear()
    for _ in range(2):
        notices.sweep()
    assert [row.ends_at is None for row in fleet.execute(
        sa.select(models.notices))] == [False] * 3
    assert [(record.levelname, record.getMessage())
            for record in caplog.records if name in record.getMessage()] == [
        ('WARNING', f'Node {uuid_of_node} no longer exists, so its cordon has '
                    f'ended: notice {name}')]
    assert not any(record.name.endswith('events')
                   for record in caplog.records)


def test_numbers_of_notices(fleet):
    nodes = fleet.add({}, {})
    create(fleet, *nodes)
    create(fleet, nodes[0], kind='fault', starts_at=from_now(60))
    update(create(fleet, nodes[0]), ends_at=notices.AT_ONCE)
    assert notice_lookup.count_notices() == {
        ('maintenance', 'open'): 2, ('fault', 'planned'): 1}
