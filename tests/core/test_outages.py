# SPDX-License-Identifier: Apache-2.0
"""Holds, releases and sweeps while the database fails."""

import concurrent.futures
import contextlib
import time
from unittest import mock
import uuid

from oslo_db import exception as db_exc
import pytest
import sqlalchemy as sa

from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import models
from ironic_reservations.fleet import counts
from ironic_reservations.matching import request_spec
from ironic_reservations.reservations import adoption
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import host_leases
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import updates
from tests.common import fleets
from tests.common.fleets import GOLD
from tests.common.fleets import HOLD
from tests.common.fleets import INSTANCE
from tests.core import test_groups

pytestmark = pytest.mark.on('server')

ONE = '11111111-1111-4111-8111-111111111111'
HOST_1 = values.Assignment(host='compute-1')
HOST_2 = values.Assignment(host='compute-2')

LOST, DEADLOCK = db_exc.DBConnectionError(), db_exc.DBDeadlock()

#: Errors of a statement.
ERRORS = pytest.mark.parametrize('error', [LOST, DEADLOCK], ids=repr)
#: Errors of a COMMIT, and whether it was effective nevertheless.
COMMITS = pytest.mark.parametrize('error, after', [
    (LOST, True), (LOST, False), (DEADLOCK, False)])


@pytest.mark.on('sqlite', 'server')
@COMMITS
def test_commit_of_a_hold_fails(fleet, error, after):
    fleet.add(*({} for _ in range(5)))
    with fleet.fail_commit(error, after), \
            fleet.statements('SET instance_uuid') as statements:
        reservation, is_new = fleet.hold(INSTANCE, **GOLD)
    # The retry reads before it writes.
    assert is_new == (not after) and len(statements) == (1 if after else 2)
    assert fleet.holds == {reservation.node_id: INSTANCE}


@COMMITS
def test_commit_of_a_release_fails(busy_fleet, error, after):
    with busy_fleet.fail_commit(error, after):
        releases.release_reservation(INSTANCE)
    assert busy_fleet.holds == {}


def test_commit_of_a_move_without_a_response(busy_fleet):
    with busy_fleet.fail_commit(LOST, after=True):
        reservation, is_new = busy_fleet.hold(INSTANCE, owner=HOST_2, **GOLD)
    assert not is_new and reservation.host == 'compute-2'
    assert busy_fleet.holds == {busy_fleet.node_id: INSTANCE}


@pytest.fixture
def snapshots(fleet, database, monkeypatch):
    """Refuse writes to rows that have changed since the transaction began.

    This is the default since MariaDB 11.8; MySQL has no such option.
    """
    repeatable = database.engine.execution_options(
        isolation_level='REPEATABLE READ')
    monkeypatch.setattr(engine, 'get_engine', lambda: repeatable)

    def set_(value):
        database.engine.dispose()
        with database.engine.begin() as connection:
            connection.exec_driver_sql(
                f'SET GLOBAL innodb_snapshot_isolation = {value}')
        database.engine.dispose()

    set_('ON')
    yield
    set_('OFF')


@pytest.mark.on('mariadb')
def test_row_that_changes_before_it_is_written(snapshots, fleet):
    node_id, names = fleet.add_node(), []

    @engine.retry
    def write():
        with engine.transaction() as connection:
            names.append(connection.scalar(sa.select(models.nodes.c.name)))
            if len(names) == 1:
                with concurrent.futures.ThreadPoolExecutor(1) as executor:
                    executor.submit(fleet.set_node, node_id, name='a').result()
            connection.execute(sa.update(models.nodes).values(name='b'))

    write()
    assert names == [None, 'a'] and fleet[node_id].name == 'b'


@pytest.mark.on('mariadb')
def test_row_that_vanishes_while_it_is_read(fleet):
    """The server's error occurs by chance, so the statement raises it."""
    attempts = []

    @engine.retry
    def read():
        with engine.transaction() as connection:
            attempts.append(connection)
            if len(attempts) == 1:
                connection.exec_driver_sql(
                    "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1032")

    read()
    assert len(attempts) == 2


def test_commit_is_lost_and_another_releases(fleet):
    """The retry does not find the reservation, and creates it again."""
    fleet.add({}, {})
    with fleet.fail_commit(LOST, after=True, then=fleet.release_all):
        reservation, is_new = fleet.hold(INSTANCE, **GOLD)
    assert is_new and fleet.holds == {reservation.node_id: INSTANCE}


def test_commit_is_lost_and_another_holds(fleet):
    """The retry finds a reservation that this request has not created."""
    def again():
        fleet.release_all()
        fleet.hold(INSTANCE, **GOLD)

    fleet.add({}, {})
    with fleet.fail_commit(LOST, after=True, then=again):
        reservation, is_new = fleet.hold(INSTANCE, **GOLD)
    assert not is_new and fleet.holds == {reservation.node_id: INSTANCE}


@pytest.mark.parametrize('statement', [
    HOLD, 'INSERT INTO reservations', 'SELECT'])
@ERRORS
def test_statement_of_a_hold_that_fails(fleet, statement, error):
    fleet.add(*({} for _ in range(5)))

    with fleet.before(statement, fleets.raising(error), times=2):
        reservation, is_new = fleet.hold(INSTANCE, **GOLD)
    assert is_new
    assert fleet.holds == {reservation.node_id: INSTANCE}


def test_idle_connection_that_was_lost(fleet, option):
    """One retry on a new connection is allowed after the deadline."""
    option(deadline=1)
    fleet.add({})

    def fail():
        time.sleep(1.1)
        raise LOST

    with fleet.before('SELECT', fail):
        assert fleet.hold(INSTANCE, **GOLD)[1]
    with fleet.before('SELECT', fail, times=2), pytest.raises(type(LOST)):
        fleet.hold(INSTANCE, **GOLD)


def test_deadlocks_until_the_deadline(fleet, option):
    option(deadline=1)
    fleet.add({})

    began = time.monotonic()
    with fleet.before(HOLD, fleets.raising(DEADLOCK),
                      times=10000) as statements:
        with pytest.raises(db_exc.DBDeadlock):
            fleet.hold(INSTANCE, **GOLD)
    assert 1 <= time.monotonic() - began < 5
    assert len(statements) > 3
    assert fleet.holds == {}


def test_unreachable_database(fleet):
    """The request fails soon, because waiting clients occupy workers."""
    fleet.add({})

    with fleet.before(HOLD, fleets.raising(LOST), times=100) as statements:
        with pytest.raises(db_exc.DBConnectionError):
            fleet.hold(INSTANCE, **GOLD)
    assert 1 < len(statements) < 10
    assert fleet.holds == {}


@ERRORS
def test_statement_of_a_repeat_that_fails(busy_fleet, error):
    """The result does not become a new reservation."""
    with busy_fleet.before('UPDATE', fleets.raising(error)):
        reservation, is_new = busy_fleet.hold(INSTANCE, owner=HOST_1,
                                              lease=600, **GOLD)
    assert not is_new and reservation.expires_at
    assert busy_fleet.holds == {busy_fleet.node_id: INSTANCE}


@pytest.mark.parametrize('statement', [
    HOLD, 'DELETE FROM reservations', 'SELECT'])
@ERRORS
def test_statement_of_a_release_that_fails(busy_fleet, statement, error):
    with busy_fleet.before(statement, fleets.raising(error), times=2):
        releases.release_reservation(INSTANCE)
    assert busy_fleet.holds == {}


@pytest.mark.on('sqlite', 'server')
def test_rollback_that_fails(fleet, monkeypatch):
    """The connection returns to the pool without an open transaction.

    SQLite has no pool; its connection is closed.
    """
    node_id = fleet.add_node()
    dialect, error = fleet.engine.dialect, db_exc.DBDataError()
    rollback = dialect.do_rollback

    def fail_once(connection):
        monkeypatch.setattr(dialect, 'do_rollback', rollback)
        raise error

    def fail():
        monkeypatch.setattr(dialect, 'do_rollback', fail_once)
        raise error

    with fleet.before('INSERT INTO reservations', fail):
        with pytest.raises(db_exc.DBDataError):
            fleet.hold(INSTANCE, **GOLD)
    # The transaction has left no lock.
    fleet.set_node(node_id, maintenance=True)
    assert fleet.holds == {}


def test_permanent_error_leaves_no_hold(fleet):
    fleet.add_node()

    with fleet.before('INSERT INTO reservations',
                      fleets.raising(db_exc.DBDataError())):
        with pytest.raises(db_exc.DBDataError):
            fleet.hold(INSTANCE, **GOLD)
    assert fleet.holds == {}


def event_lines(caplog):
    """Return the log lines about reservations."""
    return [record.getMessage() for record in caplog.records
            if record.name == 'ironic_reservations.events']


@pytest.mark.parametrize('after', [True, False])
def test_commit_of_an_adoption_is_lost(fleet, caplog, after):
    node_id = fleet.add_node(instance_uuid=INSTANCE, provision_state='active')
    spec = request_spec.RequestSpec.from_server({})
    with fleet.fail_commit(LOST, after=after), caplog.at_level('INFO'):
        reservation, is_new = adoption.adopt_instance(INSTANCE, spec,
                                                      values.Assignment())
    assert is_new == (not after) and reservation.node_id == node_id
    [line] = event_lines(caplog)
    assert ('is changed' if after else 'is adopted') in line


@pytest.mark.parametrize('after', [True, False])
def test_commit_of_a_repeated_adoption_is_lost(busy_fleet, after):
    """The row existed before, so the retry compares its new values."""
    spec = request_spec.RequestSpec.from_server({'name': 'new'})
    with busy_fleet.fail_commit(LOST, after=after):
        reservation, is_new = adoption.adopt_instance(
            INSTANCE, spec, values.Assignment('compute-1'))
    assert not is_new and reservation.request_spec == spec.canonical
    assert busy_fleet.rows[0].request_spec == spec.canonical


@pytest.mark.parametrize('after', [True, False])
def test_commit_of_a_claim_is_lost(fleet, caplog, after):
    fleet.add_node()
    old, _ = fleet.hold(owner=values.Assignment(), lease=600)
    with fleet.fail_commit(LOST, after=after), caplog.at_level('INFO'):
        reservation, is_new = fleet.claim(old.instance_uuid)
    assert is_new == (not after) and reservation.node_id == old.node_id
    assert fleet.holds == {old.node_id: reservation.instance_uuid}
    assert [old.instance_uuid in line for line in event_lines(caplog)] == (
        [] if after else [True, False])
    assert names_instance(reservation.instance_uuid, caplog)


@pytest.mark.parametrize('after', [True, False])
def test_commit_of_a_lease_is_lost(busy_fleet, caplog, after):
    with busy_fleet.fail_commit(LOST, after=after), caplog.at_level('INFO'):
        reservation = updates.update_reservation(INSTANCE, {'lease': 600})
    assert reservation.expires_at is not None
    assert busy_fleet.rows[0].expires_at == reservation.expires_at
    [line] = event_lines(caplog)
    assert 'is renewed' in line


@pytest.mark.parametrize('after', [False, True])
def test_commit_of_a_repeated_request_is_lost(busy_fleet, after):
    """Whether or not it was effective, the retry renews the lease."""
    with busy_fleet.fail_commit(LOST, after):
        reservation, is_new = busy_fleet.hold(INSTANCE, lease=600, **GOLD)
    [row] = busy_fleet.rows
    assert not is_new and reservation.expires_at == row.expires_at
    assert row.expires_at is not None


@pytest.mark.parametrize('after', [False, True])
def test_commit_of_a_repeated_group_is_lost(fleet, after):
    """It is that of the first member; the retry renews all."""
    fleet.add({}, {}, {})
    members = [str(uuid.uuid4()) for _ in range(3)]
    test_groups.create(fleet, members, None)
    with fleet.fail_commit(LOST, after):
        group, is_new = test_groups.create(fleet, members, None, lease=600)
    assert not is_new
    assert None not in [row.expires_at for row in fleet.rows]
    assert {member.expires_at for member in group.members} == {
        row.expires_at for row in fleet.rows}


def test_commit_of_a_hold_is_lost_and_another_renews(fleet, caplog):
    """Concurrent changes do not matter: this request created the row."""
    node_id = fleet.add_node()
    with caplog.at_level('INFO'), fleet.fail_commit(
            LOST, after=True, then=fleet.renew_leases):
        reservation, is_new = fleet.hold(INSTANCE, **GOLD)
    assert not is_new and reservation.node_id == node_id
    assert names_instance(INSTANCE, caplog)


def names_instance(instance_uuid, caplog):
    """Return whether one line about the retry names an instance."""
    return [instance_uuid in record.getMessage() for record in caplog.records
            if 'COMMIT' in record.getMessage()] == [True]


def test_commit_of_a_move_is_lost_and_another_renews(busy_fleet):
    """The retry compares only the values that the request has written."""
    with busy_fleet.fail_commit(LOST, after=True,
                                then=busy_fleet.renew_leases):
        reservation = updates.update_reservation(
            INSTANCE, {'host': 'compute-2'},
            actor=values.Actor('compute-1'))
    assert reservation.host == 'compute-2'


def test_host_lease_is_written_before_the_transaction_reads(busy_fleet):
    """Otherwise two requests of a host would abort each other.

    See ``snapshots``.
    """
    host_leases.acquire_lease('compute-1', ONE, 30)
    with busy_fleet.statements() as statements:
        updates.update_reservation(INSTANCE, {'lease': 600},
                                   actor=values.Actor('compute-1', ONE))
    first = next(number for number, text in enumerate(statements)
                 if text.startswith('UPDATE reservations SET'))
    assert [text.split()[:2] for text in statements[first + 1:]] == [
        ['UPDATE', 'reservations_hosts'], ['SELECT', mock.ANY]]


@ERRORS
def test_statement_of_a_count_that_fails(fleet, error):
    fleet.add({})
    recent = engine.retry(counts.Latest().get_recent)
    with fleet.before('SELECT', fleets.raising(error),
                      containing='AS column_0'):
        assert recent()[0].total == 1


def test_sweep_that_takes_longer_than_a_request(fleet, option):
    """Each step is retried, and counted once."""
    active = fleet.add_node()
    fleet.hold(INSTANCE)
    for _ in range(3):
        fleet.add_node()
        fleet.hold()
    fleet.add_node(conductor_group='rack-7')
    member, _ = fleet.hold(group=values.GroupRequest(
        fleets.GROUP, 'spread', 'conductor_group'))
    fleet.expire_leases()
    fleet.set_node(active, provision_state='active')
    # The reservation is stale, and its group has no other.
    fleet.set_node(member.node_id, instance_uuid=None)
    option(deadline=1)
    with contextlib.ExitStack() as stack:
        # The first statement takes longer than the deadline.
        stack.enter_context(
            fleet.before('SELECT', lambda: time.sleep(1.1)))
        for statement in (
                'UPDATE reservations SET', 'UPDATE nodes SET',
                'DELETE FROM reservations WHERE',
                'DELETE FROM reservations_groups'):
            stack.enter_context(
                fleet.before(statement, fleets.raising(DEADLOCK)))
        assert expiry.sweep() == (3, 1)
    assert fleet.holds == {active: INSTANCE}
    assert fleet.group_rows == []


def test_sweep_and_a_permanent_deadlock(fleet, option):
    """The sweep fails while another transaction keeps the node locked."""
    fleet.add_node()
    fleet.hold(INSTANCE)
    fleet.expire_leases()
    option(deadline=1)
    with fleet.before('UPDATE nodes SET', fleets.raising(DEADLOCK),
                      times=10000):
        with pytest.raises(db_exc.DBDeadlock):
            expiry.sweep()
