# SPDX-License-Identifier: Apache-2.0
"""Rows and tables that other transactions have locked for long."""

import concurrent.futures
import contextlib
import functools
import threading
import time
import uuid

from oslo_db import exception as db_exc
import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import models
from ironic_reservations.db import row_locks
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import groups
from ironic_reservations.reservations import notices
from ironic_reservations.reservations import obtain
from ironic_reservations.reservations import pools
from ironic_reservations.reservations import releases
from tests.common import application
from tests.common import fleets
from tests.core import test_notices
from tests.core import test_pools

pytestmark = pytest.mark.on('server')

#: The size of the nodes that fit best, and that of the others.
BEST, OTHER = {'memory_mb': 1024}, {'memory_mb': 2048}
#: The exceptions of a response 503.
REFUSALS = exception.DeadlineExceeded, db_exc.DBDeadlock
#: Seconds after which a statement of these tests has waited in vain, and that
#: a request may take that does not wait.
WAIT, AT_ONCE = 2, 1.9


@pytest.fixture(autouse=True)
def short_waits(database, monkeypatch):
    """Statements wait for a row or a table for two seconds."""
    monkeypatch.setattr(engine, '_LOCK_WAIT', WAIT)
    monkeypatch.setattr(engine, '_TABLE_WAIT', WAIT)
    monkeypatch.setattr(row_locks, '_ends', {})
    database.engine.dispose()
    yield
    database.engine.dispose()


@pytest.fixture
def stop(fleet, executor):
    """Stop a write before its COMMIT: a context manager."""
    thread, futures = threading.local(), []

    @contextlib.contextmanager
    def stop(write):
        is_stopped, thread_may_go = threading.Event(), threading.Event()

        def run():
            thread.events = is_stopped, thread_may_go
            return write()

        future = executor.submit(run)
        futures.append(future)
        future.add_done_callback(lambda _: is_stopped.set())
        assert is_stopped.wait(60) and not future.done(), future.result()
        try:
            yield future
        finally:
            thread_may_go.set()

    def wait(connection):
        is_stopped, may_go = thread.__dict__.pop('events', (None, None))
        if is_stopped:
            is_stopped.set()
            assert may_go.wait(60)

    sa.event.listen(fleet.engine, 'commit', wait)
    yield stop
    concurrent.futures.wait(futures)
    sa.event.remove(fleet.engine, 'commit', wait)


@contextlib.contextmanager
def lasting(least, most):
    """Check how many seconds a context takes."""
    start = time.monotonic()
    yield
    assert least <= time.monotonic() - start < most


def add_rack(fleet, best=40, others=2):
    """Add nodes that fit best, and others; return the ids of both."""
    ids = fleet.add(*[{'properties': BEST}] * best,
                    *[{'properties': OTHER}] * others)
    return ids[:best], ids[best:]


def cordon(fleet, nodes):
    """Return the write of a cordon."""
    return functools.partial(notices.create_notices, test_notices.make_request(
        fleet, *nodes), test_notices.OPERATOR)


def hold(fleet, **body):
    return fleet.hold(**fleets.GOLD, **body)[0].node_id


def create_group(members=2):
    group = groups.create_group(
        fleets.matcher(resource_class='gold'), obtain.Request(
            tuple(str(uuid.uuid4()) for _ in range(members)),
            values.Assignment(), digest='digest',
            group=values.GroupRequest(str(uuid.uuid4()))))[0]
    return {member.node_id for member in group.members}


# Other nodes are free

@pytest.mark.parametrize('act', [
    lambda fleet: {hold(fleet)}, lambda fleet: create_group(),
    lambda fleet: {node.id for node in test_pools.create(2).nodes},
], ids=['hold', 'group', 'pool'])
def test_rack_is_locked(fleet, stop, act):
    """A request waits for one node, and the next request for none."""
    rack, others = add_rack(fleet, others=4)
    with stop(cordon(fleet, rack)):
        with lasting(WAIT, 10 * WAIT):
            first = act(fleet)
        with lasting(0, AT_ONCE):
            again = act(fleet)
    assert not first & again and first | again <= {*others}


def test_nodes_of_a_new_pool_are_locked(fleet, stop):
    rack, [other] = add_rack(fleet, 3, 1)
    with stop(lambda: test_pools.create(3)) as pool, lasting(WAIT, 3 * WAIT):
        assert hold(fleet) == other
    assert {node.id for node in pool.result(60).nodes} == {*rack}


def test_row_of_a_pool_is_locked(fleet, stop):
    """A hold reads it without a lock."""
    rack, _ = add_rack(fleet, 2)
    pool = fleet.add_pool('p', *rack)
    with stop(lambda: pools.update_pool(
            pool, {'description': 'd'}, test_pools.allow)), \
            lasting(0, AT_ONCE):
        reservation, _ = fleet.hold(
            ownership=values.Ownership('p'), **fleets.GOLD)
    assert reservation.node_id in rack


def test_expired_reservation_is_locked(fleet, stop):
    """It is not released, and other nodes can be held."""
    rack, [other] = add_rack(fleet, 2, 1)
    fleet.hold(lease=60, **fleets.GOLD)
    fleet.hold(lease=60, **fleets.GOLD)
    fleet.expire_leases()
    with stop(cordon(fleet, rack)) as future:
        with lasting(WAIT, 3 * WAIT):
            assert hold(fleet) == other
        with pytest.raises(exception.DeadlineExceeded), lasting(0, AT_ONCE):
            hold(fleet)
    future.result(60)
    with pytest.raises(exception.NoMatchingNode):
        hold(fleet)


def test_locked_node_that_does_not_match(fleet, stop):
    """A request that nothing matches is refused, not asked to try again."""
    node_id = fleet.add_node(resource_class='silver')
    fleet.hold(lease=60, resource_class='silver')
    fleet.expire_leases()
    with stop(cordon(fleet, [node_id])), \
            pytest.raises(exception.NoMatchingNode):
        hold(fleet)


@pytest.mark.parametrize('name', [
    'ports', 'portgroups', 'volume_targets', 'node_traits', 'cordon', 'pool'])
def test_others_do_not_wait_for_a_hold(fleet, database, stop, name):
    """It locks no gap into which they insert a row of another node."""
    node_id, other = fleet.add({}, {'resource_class': 'silver'})
    ironic = fleets.Fleet(sa.create_engine(database.url))
    acts = {'cordon': cordon(fleet, [other]), 'node_traits': lambda: (
        ironic.set_traits(other, 'CUSTOM_A')), 'pool': lambda: (
        pools.create_pool(test_pools.make_matcher(resource_class='silver'),
                          test_pools.make_request()))}
    with stop(fleet.hold) as future, lasting(0, AT_ONCE):
        acts.get(name, lambda: ironic.insert_row(name, other))()
    ironic.engine.dispose()
    future.result(60)
    assert [*fleet.holds] == [node_id]


# No other node is free

@pytest.mark.parametrize('candidates', [False, True])
def test_only_locked_nodes_are_left(fleet, stop, candidates):
    rack, others = add_rack(fleet, 3, 0)
    body = {'candidate_nodes': [
        fleet[node_id].uuid for node_id in rack]} if candidates else {}
    with stop(cordon(fleet, rack[:2])):
        assert hold(fleet, **body) == rack[2]
        for least in WAIT, 0:
            with pytest.raises(exception.DeadlineExceeded, match='locked'), \
                    lasting(least, least + 2 * WAIT):
                hold(fleet, **body)


@pytest.mark.parametrize('act', [
    lambda fleet, instance: fleet.claim(instance),
    lambda fleet, instance: releases.release_reservation(instance),
], ids=['claim', 'release'])
def test_reservation_on_a_locked_node(fleet, stop, option, act):
    option(deadline=2)
    [node_id], _ = add_rack(fleet, 1, 1)
    instance = fleet.hold(lease=60, owner=values.Assignment(),
                          **fleets.GOLD)[0].instance_uuid
    with stop(cordon(fleet, [node_id])), lasting(1, 4 * WAIT), \
            pytest.raises(REFUSALS):
        act(fleet, instance)


def test_claim_waits_for_its_node(fleet, stop, executor, option):
    """There is no other node, also if this process has just lost it."""
    option(deadline=5)
    node_id = fleet.add_node()
    instance = fleet.hold(lease=60, owner=values.Assignment(),
                          **fleets.GOLD)[0].instance_uuid
    row_locks.record(node_id)
    with stop(cordon(fleet, [node_id])):
        future = executor.submit(fleet.claim, instance)
        time.sleep(1.5 * WAIT)
    assert isinstance(future.exception(60), exception.NoMatchingNode)


@pytest.mark.parametrize('deadline', [1, 3])
def test_no_wait_is_longer_than_the_deadline(
        fleet, stop, option, monkeypatch, deadline):
    """MySQL waits for a second at least."""
    monkeypatch.setattr(engine, '_LOCK_WAIT', 30)
    option(deadline=deadline)
    [node_id], _ = add_rack(fleet, 1, 0)
    instance = fleet.hold(**fleets.GOLD)[0].instance_uuid
    with stop(cordon(fleet, [node_id])), lasting(0, deadline + 9), \
            pytest.raises(db_exc.DBDeadlock):
        releases.release_reservation(instance)
    # The next request waits for longer again.
    with fleet.engine.connect() as connection:
        assert connection.scalar(sa.text(
            'SELECT @@innodb_lock_wait_timeout')) == 30


@pytest.mark.on('mariadb')
def test_stopped_process_loses_its_locks(fleet, monkeypatch):
    monkeypatch.setattr(engine, '_IDLE', WAIT)
    fleet.engine.dispose()
    node_id, runs = fleet.add_node(), []

    @engine.retry
    def write():
        with engine.transaction() as connection:
            connection.execute(sa.update(models.nodes).values(name='a'))
            runs.append(node_id)
            if len(runs) == 1:
                time.sleep(WAIT + 1)
                fleet.set_node(node_id, name='b')

    write()
    assert len(runs) == 2 and fleet[node_id].name == 'a'


def test_connection_is_lost_before_a_shorter_wait(fleet, monkeypatch):
    """The variable is set on the lost connection, which is replaced."""
    monkeypatch.setattr(engine, '_LOCK_WAIT', 2)
    seconds = iter([2, 1])
    monkeypatch.setattr(engine, '_get_seconds_left', lambda: next(seconds, 2))

    @engine.retry
    def read():
        [[number]] = engine.fetch_rows(sa.text('SELECT CONNECTION_ID()'))
        return number

    number = read()
    other = sa.create_engine(fleet.engine.url)
    with other.connect() as connection:
        connection.exec_driver_sql(f'KILL {number}')
    other.dispose()
    assert read() != number


# Locked tables

@pytest.fixture
def connection(database):
    """A connection of another program."""
    other = sa.create_engine(database.url, isolation_level='AUTOCOMMIT')
    with other.connect() as connection:
        yield connection
    other.dispose()


@pytest.fixture(params=['LOCK TABLES nodes READ',
                        'FLUSH TABLES WITH READ LOCK', 'ALTER TABLE'])
def locked_tables(request, database, connection, executor):
    """Lock tables: a context manager."""
    def alter():
        other = sa.create_engine(database.url)
        with other.connect() as second, contextlib.suppress(
                sa.exc.OperationalError):
            second.exec_driver_sql('SET SESSION lock_wait_timeout = 30')
            second.exec_driver_sql("ALTER TABLE nodes COMMENT ''")
        other.dispose()

    @contextlib.contextmanager
    def lock():
        if request.param != 'ALTER TABLE':
            connection.exec_driver_sql(request.param)
            yield
            return
        # A forgotten transaction.
        connection.exec_driver_sql('BEGIN')
        connection.exec_driver_sql('SELECT COUNT(*) FROM nodes')
        executor.submit(alter)
        while not connection.scalar(sa.text(
                'SELECT COUNT(*) FROM information_schema.processlist '
                "WHERE state LIKE 'Waiting for table metadata lock%'")):
            time.sleep(0.05)
        yield

    @contextlib.contextmanager
    def lock_for_a_while():
        try:
            with lock():
                yield
        finally:
            connection.exec_driver_sql('ROLLBACK')
            connection.exec_driver_sql('UNLOCK TABLES')
    lock_for_a_while.blocks_reads = request.param == 'ALTER TABLE'
    return lock_for_a_while


def test_tables_are_locked(fleet, option, locked_tables):
    option(deadline=1)
    fleet.add_node()
    with locked_tables():
        for act in [fleet.hold] + [
                expiry.find_overdue] * locked_tables.blocks_reads:
            with lasting(WAIT, 4 * WAIT), pytest.raises(REFUSALS):
                act()
        assert count_open_writes(fleet) == 0
    assert fleet.hold()[1]


def count_open_writes(fleet):
    """Return the number of transactions that have changed something."""
    return fleet.execute(sa.text(
        'SELECT COUNT(*) FROM information_schema.innodb_trx '
        'WHERE trx_rows_modified > 0'))[0][0]


def test_commit_waits_in_vain(fleet, stop, connection):
    """It is rolled back, and the request starts over."""
    fleet.add_node()
    instance = fleet.hold()[0].instance_uuid
    with fleet.statements('DELETE FROM reservations') as deletions:
        with stop(lambda: releases.release_reservation(instance)) as future:
            connection.exec_driver_sql('FLUSH TABLES WITH READ LOCK')
        time.sleep(2 * WAIT)
        assert count_open_writes(fleet) == 0
        connection.exec_driver_sql('UNLOCK TABLES')
        future.result(60)
    assert len(deletions) > 1 and fleet.holds == {}


@pytest.mark.parametrize('waits', [False, True])
def test_wait_for_tables(database, waits):
    with application.set_options({'database': {'connection': database.url}}):
        own = engine.create_engine(waits_for_tables=waits)
    with own.connect() as connection:
        usual, actual = connection.execute(sa.text(
            'SELECT @@GLOBAL.lock_wait_timeout, @@lock_wait_timeout')).one()
    assert usual > 60 and actual == (usual if waits else WAIT)
    own.dispose()
