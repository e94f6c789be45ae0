# SPDX-License-Identifier: Apache-2.0
"""Host leases: concurrent changes between two statements."""

import contextlib
import uuid

from oslo_db import exception as db_exc
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import models
from ironic_reservations.matching import request_spec
from ironic_reservations.reservations import adoption
from ironic_reservations.reservations import holds
from ironic_reservations.reservations import host_leases
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import releases
from ironic_reservations.reservations import updates
from tests.common import fleets

pytestmark = pytest.mark.on('server')

ONE, OTHER = str(uuid.uuid4()), str(uuid.uuid4())
HOST = 'compute-1'
#: The instance that a node carries without a reservation.
UNRESERVED = str(uuid.uuid4())
LOST = db_exc.DBConnectionError()


@pytest.fixture
def fleet(fleet):
    for table in models.host_leases, models.standbys:
        fleet.execute(sa.delete(table))
    fleet.add(*[{}] * 4, {'instance_uuid': UNRESERVED,
                          'provision_state': 'active'})
    yield fleet
    fleet.execute(sa.delete(models.host_leases))


@pytest.fixture
def reservation(fleet):
    """A hold of compute-1, whose host lease the process ONE has."""
    host_leases.acquire_lease(HOST, ONE, 30)
    return fleet.hold(fleets.INSTANCE)[0]


def expire_host_leases(fleet):
    fleet.execute(sa.update(models.host_leases).values(
        expires_at=sa.text("'2001-01-01 00:00:00.000000'")))


def take_over(fleet):
    """Let the other process acquire the expired host lease."""
    expire_host_leases(fleet)
    assert host_leases.acquire_lease(HOST, OTHER, 30).holder == OTHER


def test_renewal_does_not_wait_for_a_standby(fleet, database):
    """Standbys are written to a table of their own."""
    host_leases.acquire_lease(HOST, ONE, 30)
    with database.engine.begin() as connection:
        connection.execute(sa.insert(models.standbys).values(
            host=HOST, holder=OTHER, expires_at=sa.func.utc_timestamp()))
        host_leases.acquire_lease(HOST, ONE, 30)


def read_holder(fleet):
    row, = fleet.execute(sa.select(models.host_leases.c.holder))
    return row.holder


# A takeover between the check and the fence

def hold_node(reservation):
    return holds.hold_node(
        fleets.matcher(resource_class='gold'), obtain.Request(
            (str(uuid.uuid4()),), values.Assignment(HOST), holder=ONE))


def renew(reservation):
    return holds.hold_node(
        fleets.matcher(resource_class='gold'), obtain.Request(
            (reservation.instance_uuid,), values.Assignment(HOST), 60,
            holder=ONE))


def adopt(reservation):
    """Adopt the reserved instance again."""
    return adoption.adopt_instance(
        reservation.instance_uuid, request_spec.RequestSpec.from_server({}),
        values.Assignment(HOST), holder=ONE)


def adopt_new(reservation):
    """Adopt the instance that has no reservation."""
    return adoption.adopt_instance(
        UNRESERVED, request_spec.RequestSpec.from_server({}),
        values.Assignment(HOST), holder=ONE)


def change(reservation):
    return updates.update_reservation(reservation.instance_uuid, {'lease': 60},
                                      actor=values.Actor(HOST, ONE))


def move(reservation):
    return updates.update_reservation(
        reservation.instance_uuid, {'host': 'compute-2'},
        actor=values.Actor(HOST, ONE))


def release(reservation):
    return releases.release_reservation(reservation.instance_uuid,
                                        actor=values.Actor(HOST, ONE))


WRITES = pytest.mark.parametrize('write, first', [
    (hold_node, 'UPDATE nodes'), (renew, 'UPDATE reservations SET'),
    (adopt, 'UPDATE reservations SET'),
    (adopt_new, 'INSERT INTO reservations'),
    (change, 'UPDATE reservations SET'), (move, 'UPDATE reservations SET'),
    (release, 'UPDATE nodes')], ids=lambda value: getattr(
        value, '__name__', ''))


@pytest.mark.on('sqlite', 'server')
@WRITES
def test_takeover_after_the_check(fleet, reservation, write, first):
    before = fleet.rows, fleet.instances
    with fleet.before(first, lambda: take_over(fleet)), \
            pytest.raises(exception.PreconditionFailed):
        write(reservation)
    assert (fleet.rows, fleet.instances) == before
    assert read_holder(fleet) == OTHER


def test_takeover_during_adoption_of_a_reservation_without_a_host(
        fleet, reservation):
    adoption.adopt_instance(
        UNRESERVED, request_spec.RequestSpec.from_server({}),
        values.Assignment())
    before = fleet.rows, fleet.instances
    with fleet.before('UPDATE reservations SET', lambda: take_over(fleet)), \
            pytest.raises(exception.PreconditionFailed):
        adopt_new(reservation)
    assert (fleet.rows, fleet.instances) == before


@WRITES
def test_fence_is_the_last_write(fleet, reservation, write, first):
    """Galera detects a conflict only if the row changes."""
    before, = fleet.execute(sa.select(models.host_leases.c.serial))
    with fleet.statements() as statements:
        write(reservation)
    writes = [text for text in statements if not text.startswith('SELECT')]
    assert writes[-1].startswith('UPDATE reservations_hosts SET serial=')
    after, = fleet.execute(sa.select(models.host_leases.c.serial))
    assert after.serial == before.serial + 1


@WRITES
def test_write_without_a_fence(fleet, reservation, write, first,
                               monkeypatch):
    monkeypatch.setitem(globals(), 'ONE', None)
    with fleet.statements('reservations_hosts') as statements:
        write(reservation)
    assert not statements


@pytest.mark.on('sqlite', 'server')
def test_takeover_waits_for_the_commit_of_a_write(database, fleet,
                                                  reservation):
    """A write that has passed the fence is complete before the takeover."""
    attempts = []
    another = sa.create_engine(database.url, poolclass=sa.pool.NullPool)

    def attempt():
        with another.connect() as connection:
            connection.exec_driver_sql(
                'PRAGMA busy_timeout = 1' if another.name == 'sqlite'
                else 'SET SESSION innodb_lock_wait_timeout = 1')
            attempts.append(connection)
            with pytest.raises(sa.exc.OperationalError, match='(?i)lock'):
                connection.execute(sa.update(models.host_leases).values(
                    holder=OTHER))

    with fleet.fail_commit(LOST, then=attempt):
        hold_node(reservation)
    assert attempts


@WRITES
def test_takeover_after_a_commit_without_a_response(fleet, reservation, write,
                                                    first):
    """The change is complete; status 412 would deny that."""
    before = len(fleet.rows)
    with fleet.fail_commit(LOST, after=True, then=lambda: take_over(fleet)), (
            pytest.raises(exception.OutcomeUnknown)
            if write in (adopt, adopt_new, change, renew)
            else contextlib.nullcontext()):
        write(reservation)
    assert len(fleet.rows) == before + {
        hold_node: 1, adopt_new: 1, release: -1}.get(write, 0)
    assert read_holder(fleet) == OTHER


# The lease itself

# Concurrent requests for the lease itself

def acquire(fleet):
    host_leases.acquire_lease(HOST, OTHER, 30)


def renew_lease(fleet):
    return host_leases.acquire_lease(HOST, ONE, 30)


def give_up(fleet):
    host_leases.give_up_lease(HOST, ONE)


@pytest.mark.parametrize('holder, is_expired, statement, first, second', [
    (None, False, 'INSERT INTO', acquire, renew_lease),
    ('third', True, 'UPDATE', acquire, renew_lease),
    (ONE, False, 'DELETE FROM', take_over, give_up)],
    ids=['new', 'expired', 'given up after takeover'])
def test_concurrent_lease_requests(fleet, holder, is_expired, statement,
                                   first, second):
    """The second request has read the lease before the first is complete."""
    if holder:
        host_leases.acquire_lease(HOST, holder, 30)
    if is_expired:
        expire_host_leases(fleet)
    with fleet.before(f'{statement} reservations_hosts',
                      lambda: first(fleet)), \
            pytest.raises(exception.PreconditionFailed if second == give_up
                          else exception.Conflict):
        second(fleet)
    assert read_holder(fleet) == (ONE if first == renew_lease else OTHER)


def test_standby_does_not_write_the_lease(fleet, reservation):
    """It polls often, and seldom writes to another table."""
    for writes in ['INSERT', 'DELETE'], []:
        with fleet.statements() as statements, \
                pytest.raises(exception.Conflict):
            host_leases.acquire_lease(HOST, OTHER, 30)
        assert [text.split()[0] for text in statements] == [
            'SELECT', 'SELECT', *writes]
        for text in statements[2:]:
            assert 'reservations_hosts' not in text


# The connection is lost

@pytest.mark.parametrize('after', [False, True])
def test_acquisition_without_a_response(fleet, after):
    with fleet.fail_commit(LOST, after=after):
        assert host_leases.acquire_lease(HOST, ONE, 30).holder == ONE
    assert read_holder(fleet) == ONE


@pytest.mark.parametrize('after', [False, True])
def test_lease_given_up_without_a_response(fleet, reservation, after):
    with fleet.fail_commit(LOST, after=after):
        host_leases.give_up_lease(HOST, ONE)
    assert fleet.execute(sa.select(models.host_leases)) == []


def test_lease_given_up_without_a_response_before_a_takeover(
        fleet, reservation):
    with fleet.fail_commit(LOST, after=True, then=lambda: acquire(fleet)):
        host_leases.give_up_lease(HOST, ONE)
    assert read_holder(fleet) == OTHER
