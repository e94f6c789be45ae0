# SPDX-License-Identifier: Apache-2.0
"""What happens to the lease of a compute host between two statements."""

import contextlib
import uuid

from oslo_db import exception as db_exc
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations.db import models
from ironic_reservations.matching import request_spec
from ironic_reservations.reservations import adoption
from ironic_reservations.reservations import holds
from ironic_reservations.reservations import host_leases
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import updates
from ironic_reservations.reservations import values
from tests.db import conftest

pytestmark = pytest.mark.on('server')

ONE, OTHER = str(uuid.uuid4()), str(uuid.uuid4())
HOST = 'compute-1'
#: The instance that a node carries without a reservation.
OF_A_NODE = str(uuid.uuid4())
LOST = db_exc.DBConnectionError()


@pytest.fixture
def fleet(fleet):
    for table in models.host_leases, models.standbys:
        fleet.execute(sa.delete(table))
    fleet.add(*[{}] * 4, {'instance_uuid': OF_A_NODE,
                          'provision_state': 'active'})
    yield fleet
    fleet.execute(sa.delete(models.host_leases))


@pytest.fixture
def held(fleet):
    """What compute-1 holds, whose lease is one's."""
    host_leases.acquire_lease(HOST, ONE, 30)
    return fleet.hold(conftest.INSTANCE)[0]


def end(fleet):
    """Let all leases of hosts be over for long."""
    fleet.execute(sa.update(models.host_leases).values(
        expires_at=sa.text("'2001-01-01 00:00:00.000000'")))


def take_over(fleet):
    """What the successor does."""
    end(fleet)
    assert host_leases.acquire_lease(HOST, OTHER, 30).holder == OTHER


def test_host_that_comes_back_is_not_forgotten(fleet):
    """Between the look and the DELETE."""
    host_leases.acquire_lease(HOST, ONE, 30)
    end(fleet)
    with fleet.before('DELETE FROM reservations_hosts',
                      lambda: host_leases.acquire_lease(HOST, ONE, 30)):
        with pytest.raises(exception.Conflict):
            host_leases.delete_expired_lease(HOST)
    assert holder(fleet) == ONE


def test_two_requests_note_a_process_at_once(fleet):
    host_leases.acquire_lease(HOST, ONE, 30)

    def note():
        with pytest.raises(exception.Conflict):
            host_leases.acquire_lease(HOST, OTHER, 30)

    with fleet.before('INSERT INTO reservations_standbys', note):
        note()
    assert host_leases.find_leases(1)[0].standbys == 1


def test_renewal_waits_for_nothing_that_others_note(fleet, database):
    """Those that wait write a table of their own."""
    host_leases.acquire_lease(HOST, ONE, 30)
    with database.engine.begin() as connection:
        connection.execute(sa.insert(models.standbys).values(
            host=HOST, holder=OTHER, expires_at=sa.func.utc_timestamp()))
        host_leases.acquire_lease(HOST, ONE, 30)


def holder(fleet):
    row, = fleet.execute(sa.select(models.host_leases.c.holder))
    return row.holder


# A takeover between the check and the fence

def hold(held):
    return holds.hold_node(
        conftest.matcher(resource_class='gold'), obtain.Request(
            (str(uuid.uuid4()),), values.Assignment(HOST), holder=ONE))


def renew(held):
    return holds.hold_node(
        conftest.matcher(resource_class='gold'), obtain.Request(
            (held.instance_uuid,), values.Assignment(HOST), 60, holder=ONE))


def adopt(held):
    """What a node carries already, again."""
    return adoption.adopt_instance(
        held.instance_uuid, request_spec.RequestSpec.from_server({}),
        values.Assignment(HOST), holder=ONE)


def adopt_new(held):
    """What a node carries, with nothing of ours."""
    return adoption.adopt_instance(
        OF_A_NODE, request_spec.RequestSpec.from_server({}),
        values.Assignment(HOST), holder=ONE)


def change(held):
    return updates.update_reservation(held.instance_uuid, {'lease': 60},
                          actor=values.Actor(HOST, ONE))


def move(held):
    return updates.update_reservation(
        held.instance_uuid, {'host': 'compute-2'},
        actor=values.Actor(HOST, ONE))


def release(held):
    return releases.release_reservation(held.instance_uuid,
                            actor=values.Actor(HOST, ONE))


WRITES = pytest.mark.parametrize('write, first', [
    (hold, 'UPDATE nodes'), (renew, 'UPDATE reservations SET'),
    (adopt, 'UPDATE reservations SET'),
    (adopt_new, 'INSERT INTO reservations'),
    (change, 'UPDATE reservations SET'), (move, 'UPDATE reservations SET'),
    (release, 'UPDATE nodes')], ids=lambda each: getattr(
        each, '__name__', ''))


@pytest.mark.on('sqlite', 'server')
@WRITES
def test_takeover_after_the_check(fleet, held, write, first):
    before = fleet.rows, fleet.carried
    with fleet.before(first, lambda: take_over(fleet)), \
            pytest.raises(exception.PreconditionFailed):
        write(held)
    assert (fleet.rows, fleet.carried) == before
    assert holder(fleet) == OTHER


def test_host_is_given_up_after_the_check(fleet, held):
    before = fleet.rows, fleet.carried
    with fleet.before('UPDATE nodes',
                      lambda: host_leases.give_up_lease(HOST, ONE)), \
            pytest.raises(exception.PreconditionFailed):
        hold(held)
    assert (fleet.rows, fleet.carried) == before


def test_takeover_while_a_host_adopts_what_no_host_has(fleet, held):
    adoption.adopt_instance(
        OF_A_NODE, request_spec.RequestSpec.from_server({}),
        values.Assignment())
    before = fleet.rows, fleet.carried
    with fleet.before('UPDATE reservations SET', lambda: take_over(fleet)), \
            pytest.raises(exception.PreconditionFailed):
        adopt_new(held)
    assert (fleet.rows, fleet.carried) == before


@WRITES
def test_fence_is_written_and_is_the_last(fleet, held, write, first):
    """A row that stays as it was would not meet another on Galera."""
    serial, = fleet.execute(sa.select(models.host_leases.c.serial))
    with fleet.statements() as found:
        write(held)
    writes = [text for text in found if not text.startswith('SELECT')]
    assert writes[-1].startswith('UPDATE reservations_hosts SET serial=')
    after, = fleet.execute(sa.select(models.host_leases.c.serial))
    assert after.serial == serial.serial + 1


@WRITES
def test_who_does_not_say_it_pays_nothing(fleet, held, write, first,
                                          monkeypatch):
    monkeypatch.setitem(globals(), 'ONE', None)
    with fleet.statements('reservations_hosts') as found:
        write(held)
    assert not found


@pytest.mark.on('sqlite', 'server')
def test_takeover_waits_for_the_commit_of_a_write(database, fleet, held):
    """Who has come through the fence is done before another is the host."""
    tried = []
    another = sa.create_engine(database.url, poolclass=sa.pool.NullPool)

    def attempt():
        with another.connect() as connection:
            connection.exec_driver_sql(
                'PRAGMA busy_timeout = 1' if another.name == 'sqlite'
                else 'SET SESSION innodb_lock_wait_timeout = 1')
            tried.append(connection)
            with pytest.raises(sa.exc.OperationalError, match='(?i)lock'):
                connection.execute(sa.update(models.host_leases).values(
                    holder=OTHER))

    with fleet.commit_fails(LOST, then=attempt):
        hold(held)
    assert tried


@WRITES
def test_takeover_after_a_commit_whose_answer_is_lost(fleet, held, write,
                                                      first):
    """It was done in time, and 412 would mean that nothing has changed."""
    before = len(fleet.rows)
    with fleet.commit_fails(LOST, after=True, then=lambda: take_over(fleet)), (
            pytest.raises(exception.OutcomeUnknown)
            if write in (adopt, adopt_new, change)
            else contextlib.nullcontext()):
        write(held)
    assert len(fleet.rows) == before + {
        hold: 1, adopt_new: 1, release: -1}.get(write, 0)
    assert holder(fleet) == OTHER


# The lease itself

def take(fleet):
    host_leases.acquire_lease(HOST, OTHER, 30)


def test_two_come_at_once_where_nobody_was(fleet):
    with fleet.before('INSERT INTO reservations_hosts', lambda: take(fleet)), \
            pytest.raises(exception.Conflict):
        host_leases.acquire_lease(HOST, ONE, 30)
    assert holder(fleet) == OTHER


def test_two_come_at_once_when_it_is_over(fleet):
    host_leases.acquire_lease(HOST, 'third', 30)
    end(fleet)
    with fleet.before('UPDATE reservations_hosts', lambda: take(fleet)), \
            pytest.raises(exception.Conflict):
        host_leases.acquire_lease(HOST, ONE, 30)
    assert holder(fleet) == OTHER


def test_renewal_comes_too_late(fleet, held):
    with fleet.before('UPDATE reservations_hosts',
                      lambda: take_over(fleet)), \
            pytest.raises(exception.Conflict):
        host_leases.acquire_lease(HOST, ONE, 30)
    assert holder(fleet) == OTHER


def test_renewal_comes_before_the_takeover(fleet, held):
    end(fleet)
    with fleet.before('UPDATE reservations_hosts',
                      lambda: host_leases.acquire_lease(HOST, ONE, 30)), \
            pytest.raises(exception.Conflict):
        host_leases.acquire_lease(HOST, OTHER, 30)
    assert holder(fleet) == ONE


def test_host_is_given_up_while_it_is_renewed(fleet, held):
    """As it was not there any more, it is leased anew."""
    with fleet.before('UPDATE reservations_hosts',
                      lambda: host_leases.give_up_lease(HOST, ONE)):
        assert host_leases.acquire_lease(HOST, ONE, 30).updated_at is None
    assert holder(fleet) == ONE


def test_host_is_taken_while_it_is_given_up(fleet, held):
    with fleet.before('DELETE FROM reservations_hosts',
                      lambda: take_over(fleet)), \
            pytest.raises(exception.PreconditionFailed):
        host_leases.give_up_lease(HOST, ONE)
    assert holder(fleet) == OTHER


def test_who_waits_for_a_lease_does_not_write_it(fleet, held):
    """It asks all the time, and is noted seldom, in another table."""
    for written in ['INSERT', 'DELETE'], []:
        with fleet.statements() as found, pytest.raises(exception.Conflict):
            host_leases.acquire_lease(HOST, OTHER, 30)
        assert [text.split()[0] for text in found] == [
            'SELECT', 'SELECT', *written]
        for text in found[2:]:
            assert 'reservations_hosts' not in text


# The connection is lost

@pytest.mark.parametrize('after', [False, True])
def test_lease_whose_commit_is_lost(fleet, after):
    with fleet.commit_fails(LOST, after=after):
        assert host_leases.acquire_lease(HOST, ONE, 30).holder == ONE
    assert holder(fleet) == ONE


@pytest.mark.parametrize('after', [False, True])
def test_end_whose_commit_is_lost(fleet, held, after):
    with fleet.commit_fails(LOST, after=after):
        host_leases.give_up_lease(HOST, ONE)
    assert fleet.execute(sa.select(models.host_leases)) == []


def test_end_whose_commit_is_lost_before_another_comes(fleet, held):
    with fleet.commit_fails(LOST, after=True, then=lambda: take(fleet)):
        host_leases.give_up_lease(HOST, ONE)
    assert holder(fleet) == OTHER
