# SPDX-License-Identifier: Apache-2.0
"""Schedules of two and three writes on a database server.

``python -m tests.core.schedules`` runs all of them; these are one of each pair
of writes that meet, those that have found a fault, and those that find a
mutation.
"""

import contextlib
import threading
from unittest import mock

import pytest
import sqlalchemy as sa

from ironic_reservations.db import engine
from ironic_reservations.reservations import membership
from ironic_reservations.reservations import quotas
from ironic_reservations.reservations import transaction
from tests.core import schedules
from tests.core import test_pairs
from tests.core import writes
from tests.core.schedules import Schedule

# On MySQL, "tox -e pairs" runs all pairs.
pytestmark = [pytest.mark.long, pytest.mark.on('mariadb')]

NAMES = list(writes.WRITES)


@pytest.fixture(scope='module')
def scheduler(simulator, new_database):
    with new_database(complete=True) as database, \
            schedules.Scheduler(simulator, database.engine) as scheduler:
        yield scheduler


@pytest.mark.parametrize('first', NAMES)
def test_pairs_that_meet(scheduler, first):
    """The first write has written all its rows, and the second comes."""
    faults = [scheduler.check(schedule) for schedule in (
        scheduler.choose(first, second)
        for second in NAMES[NAMES.index(first):]
        # Races of Ironic with itself are its own.
        if not (first.startswith('Ironic')
                and second.startswith('Ironic'))) if schedule]
    assert not any(faults), faults


@pytest.mark.parametrize('pair', test_pairs.FAULTS, ids='-'.join)
def test_pair_that_found_a_fault(scheduler, pair):
    faults = [fault for names in (pair, pair[::-1])
              for _, fault in scheduler.check_pair(*names, preemptions=1)]
    assert not any(faults), faults


@pytest.mark.parametrize('names', schedules.THREES, ids='-'.join)
def test_three(scheduler, names):
    faults = [fault for _, fault in scheduler.check_three(*names)]
    assert not any(faults), faults


# Mutations. Each is found by the schedule next to it.

def skip(method):
    return mock.patch.object(transaction.Transaction, method,
                             lambda *args: None)


def replace_execution(begin, function):
    """Call a function before each UPDATE or DELETE that begins with a text."""
    original = transaction.Transaction.execute

    def execute(tx, statement, *args):
        if isinstance(statement, sa.Update | sa.Delete) and str(
                statement).startswith(begin):
            statement = function(tx, statement)
        return original(tx, statement, *args)

    return mock.patch.object(transaction.Transaction, 'execute', execute)


def only_read(begin):
    """Check the condition of an UPDATE, and write nothing."""
    return replace_execution(begin, lambda tx, statement: sa.select(
        statement.table.c.id).where(*statement._where_criteria))


def split(begin):
    """Begin another transaction at a statement."""
    def commit(tx, statement):
        tx.connection.exec_driver_sql(schedules.COMMIT)
        return statement

    return replace_execution(begin, commit)


@contextlib.contextmanager
def count_first():
    """Count the reservations of a project before its row is written."""
    lock, count = quotas.Limits.lock, quotas.Limits.count_usage
    usages = threading.local()

    def count_and_lock(limits, tx):
        usages.value = count(limits, tx.execute)
        lock(limits, tx)

    def get_usage(limits, execute=engine.fetch_rows, requested=()):
        return usages.value if requested else count(limits, execute)

    with mock.patch.multiple(quotas.Limits, lock=count_and_lock,
                             count_usage=get_usage):
        yield


@contextlib.contextmanager
def without_keys(database, table, **keys):
    """Drop unique keys of our tables, by column."""
    with database.begin() as connection:
        for key in keys.values():
            connection.exec_driver_sql(f'ALTER TABLE {table} DROP KEY {key}')
    try:
        yield
    finally:
        with database.begin() as connection:
            for column, key in keys.items():
                connection.exec_driver_sql(
                    f'ALTER TABLE {table} ADD UNIQUE KEY {key} ({column})')


TOUCH = 'UPDATE nodes SET updated_at'

# No schedule needs the write of a group's row before its last members go. On
# MariaDB the condition of the DELETE locks the rows of the members; on another
# member of a cluster, the deletion of such a row aborts the transaction.
MUTATIONS = {
    'new cordon': ('hold/cordon:4', lambda _: skip('touch_nodes')),
    'changed cordon': ('hold a suspect/begin a notice:4',
                       lambda _: skip('touch_nodes')),
    'new pool': ('hold/create a pool:4', lambda _: only_read(TOUCH)),
    'joining node': ('hold/add to the pool:4', lambda _: only_read(TOUCH)),
    'replacement': ('hold/replace in the pool:4', lambda _: only_read(TOUCH)),
    'quota': ('hold with a limit/hold another with a limit:5',
              lambda _: skip('write_project')),
    'count before the lock': (
        'hold with a limit/hold another with a limit:5',
        lambda _: count_first()),
    'reports of a project': ('report/report again:7',
                             lambda _: skip('write_project')),
    'generation': ('join apart/join apart, too:5', lambda _: mock.patch.object(
        membership.group_rows, 'GROW', test_pairs.without(
            membership.group_rows.GROW, 'generation'))),
    # Each of the two keys of this table alone is enough.
    'keys of reservations': (
        'adopt/adopt into the group:4', lambda database: without_keys(
            database, 'reservations',
            instance_uuid='uniq_reservations0instance_uuid',
            node_id='uniq_reservations0node_id')),
    'key of groups': (
        'begin a group/join the new group:4', lambda database: without_keys(
            database, 'reservations_groups',
            uuid='uniq_reservations_groups0uuid')),
    'two transactions of a release': (
        'release/release:5', lambda _: split('DELETE FROM reservations ')),
    'two transactions of a claim': (
        'claim/release:7', lambda _: split('DELETE FROM reservations ')),
    'two transactions of a removal': (
        'remove from the pool/remove the other from the pool:4',
        lambda _: split('UPDATE reservations_pools SET')),
}


@pytest.mark.parametrize('name', MUTATIONS)
def test_mutation(scheduler, name):
    text, make = MUTATIONS[name]
    schedule = Schedule.parse(text)
    assert not scheduler.check(schedule)
    assert scheduler.check(schedule, make(scheduler.database))


def test_schedule():
    text = 'hold, old count/Ironic: deploy:3,5'
    schedule = Schedule.parse(text)
    assert str(schedule) == text
    assert schedule == Schedule(('hold, old count', 'Ironic: deploy'), (3, 5))
