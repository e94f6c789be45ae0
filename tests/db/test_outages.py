# SPDX-License-Identifier: Apache-2.0
"""What is held and let go when the database fails."""

import concurrent.futures
import time
from unittest import mock

from oslo_db import exception as db_exc
import pytest
import sqlalchemy as sa

from ironic_reservations.db import engine
from ironic_reservations.db import models
from ironic_reservations.matching import request_spec
from ironic_reservations.reservations import adoption
from ironic_reservations.reservations import host_leases
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import updates
from ironic_reservations.reservations import values
from tests.db import conftest

pytestmark = pytest.mark.on('server')

INSTANCE = '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'
ONE = '11111111-1111-4111-8111-111111111111'
HOST_1 = values.Assignment(host='compute-1')
HOST_2 = values.Assignment(host='compute-2')
GOLD = {'resource_class': 'gold', 'memory_mb': 1000}

#: The statement that makes a node somebody's, or lets it go.
HOLD = 'UPDATE nodes SET instance_uuid'


LOST, DEADLOCK = db_exc.DBConnectionError(), db_exc.DBDeadlock()

#: What a statement fails with.
ERRORS = pytest.mark.parametrize('error', [LOST, DEADLOCK], ids=repr)
#: What a COMMIT fails with, and whether it has gone through all the same.
COMMITS = pytest.mark.parametrize('error, after', [
    (LOST, True), (LOST, False), (DEADLOCK, False)])


@pytest.mark.on('sqlite', 'server')
@COMMITS
def test_commit_of_a_hold_fails(fleet, error, after):
    fleet.add(*({} for _ in range(5)))
    with fleet.commit_fails(error, after), \
            fleet.statements('SET instance_uuid') as tried:
        held, created = fleet.hold(INSTANCE, **GOLD)
    # The retry reads before it writes.
    assert created == (not after) and len(tried) == (1 if after else 2)
    assert fleet.held == {held.node_id: INSTANCE}


@COMMITS
def test_commit_of_a_release_fails(held, error, after):
    with held.commit_fails(error, after):
        releases.release_reservation(INSTANCE)
    assert held.held == {}


def test_commit_of_a_move_whose_answer_is_lost(held):
    with held.commit_fails(LOST, after=True):
        found, created = held.hold(INSTANCE, owner=HOST_2, **GOLD)
    assert not created and found.host == 'compute-2'
    assert held.held == {held.node_id: INSTANCE}


@pytest.fixture
def snapshots(database):
    """A transaction does not write what was changed since it has read it.

    It is the default from MariaDB 11.8 on, and MySQL has no such option.
    """
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
def test_what_was_read_is_changed_before_it_is_written(snapshots, fleet):
    node_id, names = fleet.node(), []

    @engine.retry
    def write():
        with engine.transaction() as connection:
            names.append(connection.scalar(sa.select(models.nodes.c.name)))
            if len(names) == 1:
                with concurrent.futures.ThreadPoolExecutor(1) as executor:
                    executor.submit(fleet.edit, node_id, name='a').result()
            connection.execute(sa.update(models.nodes).values(name='b'))

    write()
    assert names == [None, 'a'] and fleet[node_id].name == 'b'


def test_commit_is_lost_and_another_releases(fleet):
    """Read back, it is not there: the hold is made once more."""
    fleet.add({}, {})
    with fleet.commit_fails(LOST, after=True, then=fleet.free):
        held, created = fleet.hold(INSTANCE, **GOLD)
    assert created and fleet.held == {held.node_id: INSTANCE}


def test_commit_is_lost_and_another_holds(fleet):
    """Read back, it is another's: this request has not made it."""
    def again():
        fleet.free()
        fleet.hold(INSTANCE, **GOLD)

    fleet.add({}, {})
    with fleet.commit_fails(LOST, after=True, then=again):
        held, created = fleet.hold(INSTANCE, **GOLD)
    assert not created and fleet.held == {held.node_id: INSTANCE}


@pytest.mark.parametrize('statement', [
    HOLD, 'INSERT INTO reservations', 'SELECT'])
@ERRORS
def test_statement_of_a_hold_that_fails(fleet, statement, error):
    fleet.add(*({} for _ in range(5)))

    with fleet.before(statement, conftest.failing(error), times=2):
        held, created = fleet.hold(INSTANCE, **GOLD)
    assert created
    assert fleet.held == {held.node_id: INSTANCE}


def test_connection_lost_while_it_lay_idle(fleet, option):
    """A new one may do, however long it takes to find that out."""
    option(deadline=1)
    fleet.add({})

    def fail():
        time.sleep(1.1)
        raise LOST

    with fleet.before('SELECT', fail):
        assert fleet.hold(INSTANCE, **GOLD)[1]
    with fleet.before('SELECT', fail, times=2), pytest.raises(type(LOST)):
        fleet.hold(INSTANCE, **GOLD)


def test_deadlocks_end_at_the_deadline(fleet, option):
    option(deadline=1)
    fleet.add({})

    began = time.monotonic()
    with fleet.before(HOLD, conftest.failing(DEADLOCK),
                      times=10000) as tried:
        with pytest.raises(db_exc.DBDeadlock):
            fleet.hold(INSTANCE, **GOLD)
    assert 1 <= time.monotonic() - began < 5
    assert len(tried) > 3
    assert fleet.held == {}


def test_database_is_away(fleet):
    """Who asks is told soon: workers are not to be kept by waiting."""
    fleet.add({})

    with fleet.before(HOLD, conftest.failing(LOST), times=100) as tried:
        with pytest.raises(db_exc.DBConnectionError):
            fleet.hold(INSTANCE, **GOLD)
    assert 1 < len(tried) < 10
    assert fleet.held == {}


@ERRORS
def test_statement_of_a_repeat_that_fails(held, error):
    """What was held before is no hold of this request."""
    with held.before('UPDATE', conftest.failing(error)):
        found, created = held.hold(INSTANCE, owner=HOST_1, lease=600, **GOLD)
    assert not created and found.expires_at
    assert held.held == {held.node_id: INSTANCE}


@pytest.mark.parametrize('statement', [
    HOLD, 'DELETE FROM reservations', 'SELECT'])
@ERRORS
def test_statement_of_a_release_that_fails(held, statement, error):
    with held.before(statement, conftest.failing(error), times=2):
        releases.release_reservation(INSTANCE)
    assert held.held == {}


@pytest.mark.on('sqlite', 'server')
def test_rollback_that_fails(fleet, monkeypatch):
    """Nothing stays open on a connection that goes back to the pool.

    (SQLite's has no pool: it is closed.)
    """
    node_id = fleet.node()
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
    # No lock of it is left.
    fleet.edit(node_id, maintenance=True)
    assert fleet.held == {}


def test_error_that_no_retry_helps_leaves_nothing(fleet):
    fleet.node()

    with fleet.before('INSERT INTO reservations',
                      conftest.failing(db_exc.DBDataError())):
        with pytest.raises(db_exc.DBDataError):
            fleet.hold(INSTANCE, **GOLD)
    assert fleet.held == {}


def lines(caplog):
    """What the log tells of reservations."""
    return [record.getMessage() for record in caplog.records
            if record.name == 'ironic_reservations.events']


@pytest.mark.parametrize('after', [True, False])
def test_commit_of_an_adoption_is_lost(fleet, caplog, after):
    node_id = fleet.node(instance_uuid=INSTANCE, provision_state='active')
    spec = request_spec.RequestSpec.from_server({})
    with fleet.commit_fails(LOST, after=after), caplog.at_level('INFO'):
        adopted, created = adoption.adopt_instance(
            INSTANCE, spec, values.Assignment())
    assert created == (not after) and adopted.node_id == node_id
    [line] = lines(caplog)
    assert ('is replaced' if after else 'is adopted') in line


@pytest.mark.parametrize('after', [True, False])
def test_commit_of_another_adoption_is_lost(held, after):
    """What it has changed is looked at, because the row was there before."""
    spec = request_spec.RequestSpec.from_server({'name': 'new'})
    with held.commit_fails(LOST, after=after):
        adopted, created = adoption.adopt_instance(
            INSTANCE, spec, values.Assignment('compute-1'))
    assert not created and adopted.request_spec == spec.canonical
    assert held.rows[0].request_spec == spec.canonical


@pytest.mark.parametrize('after', [True, False])
def test_commit_of_a_claim_is_lost(fleet, caplog, after):
    fleet.node()
    free, _ = fleet.hold(owner=values.Assignment(), lease=600)
    with fleet.commit_fails(LOST, after=after), caplog.at_level('INFO'):
        claimed, created = fleet.claim(free.instance_uuid)
    assert created == (not after) and claimed.node_id == free.node_id
    assert fleet.held == {free.node_id: claimed.instance_uuid}
    assert [free.instance_uuid in line for line in lines(caplog)] == (
        [] if after else [True, False])
    assert tells_of(claimed.instance_uuid, caplog)


@pytest.mark.parametrize('after', [True, False])
def test_commit_of_a_lease_is_lost(held, caplog, after):
    with held.commit_fails(LOST, after=after), caplog.at_level('INFO'):
        changed = updates.update_reservation(INSTANCE, {'lease': 600})
    assert changed.expires_at is not None
    assert held.rows[0].expires_at == changed.expires_at
    [line] = lines(caplog)
    assert 'is renewed' in line


def test_commit_of_a_hold_is_lost_and_another_renews(fleet, caplog):
    """The row is this request's own, whatever others have written into it."""
    node_id = fleet.node()
    with caplog.at_level('INFO'), fleet.commit_fails(
            LOST, after=True, then=lambda: fleet.renew()):
        held, created = fleet.hold(INSTANCE, **GOLD)
    assert not created and held.node_id == node_id
    assert tells_of(INSTANCE, caplog)


def tells_of(instance_uuid, caplog):
    """Whether one line of the retry names an instance."""
    return [instance_uuid in record.getMessage() for record in caplog.records
            if 'COMMIT' in record.getMessage()] == [True]


def test_commit_of_a_move_is_lost_and_another_renews(held):
    """What is compared is what the request has written."""
    with held.commit_fails(LOST, after=True, then=held.renew):
        changed = updates.update_reservation(INSTANCE, {'host': 'compute-2'},
                                 actor=values.Actor('compute-1'))
    assert changed.host == 'compute-2'


def test_lease_of_the_host_is_written_before_a_transaction_reads(held):
    """Else two of one host's would abort each other: see ``snapshots``."""
    host_leases.acquire_lease('compute-1', ONE, 30)
    with held.statements() as found:
        updates.update_reservation(INSTANCE, {'lease': 600},
                       actor=values.Actor('compute-1', ONE))
    first = next(number for number, text in enumerate(found)
                 if text.startswith('UPDATE reservations SET'))
    assert [text.split()[:2] for text in found[first + 1:]] == [
        ['UPDATE', 'reservations_hosts'], ['SELECT', mock.ANY]]
