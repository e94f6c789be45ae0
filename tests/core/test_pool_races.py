# SPDX-License-Identifier: Apache-2.0
"""Writes of pools with concurrent holds, and in processes that are killed."""

import datetime
import functools
import os
import signal
import traceback

import pytest
import sqlalchemy as sa

from ironic_reservations import exception
from ironic_reservations import values
from ironic_reservations.db import models
from ironic_reservations.reservations import pool_nodes
from ironic_reservations.reservations import pools
from tests.common.fleets import from_now
from tests.core import test_pools
from tests.core.test_pools import allow

pytestmark = pytest.mark.on('server')

LATER = datetime.datetime(2999, 1, 1)


# Each prepares a fleet in which one free node is in no pool, or in the pool of
# project p. Returns the write, and the name of that node or of one of the
# pool.

def make_pool(fleet, *names, expires_at=None):
    """Create a pool of project p with these nodes, and return it."""
    fleet.add(*({'name': name} for name in names))
    return test_pools.create(len(names), expires_at=expires_at)


def create(fleet):
    fleet.add({'name': 'a'}, {'name': 'b'})
    return functools.partial(
        pools.create_pool, test_pools.make_matcher(),
        test_pools.make_request(2)), 'b'


def add(fleet):
    pool = make_pool(fleet, 'a')
    fleet.add_node(name='b')
    return functools.partial(
        pool_nodes.add_node, pool.uuid, 'b', allow), 'b'


def replace(fleet):
    pool = make_pool(fleet, 'a', 'b')
    fleet.add_node(name='c')
    return functools.partial(
        pool_nodes.replace_node, pool, 'a', test_pools.make_matcher()), 'c'


def set_expiry(later, fleet):
    pool = make_pool(fleet, 'a', expires_at=from_now(3600))
    return functools.partial(
        pools.update_pool, pool.uuid, {'expires_at': later}, allow), 'a'


def remove(fleet):
    pool = make_pool(fleet, 'a', 'b')
    return functools.partial(
        pool_nodes.remove_node, pool.uuid, 'a', allow), 'a'


def remove_last(fleet):
    pool = make_pool(fleet, 'a')
    return functools.partial(
        pool_nodes.remove_node, pool.uuid, 'a', allow), 'a'


def delete(fleet):
    pool = make_pool(fleet, 'a', 'b')
    return functools.partial(pools.delete_pool, pool.uuid, allow), 'a'


#: Writes that let a node join, and writes that keep one longer.
JOINS = {'create': create, 'add': add, 'replace': replace}
LONGER = {'forever': functools.partial(set_expiry, None),
          'postpone': functools.partial(set_expiry, LATER)}
WRITES = {**JOINS, **LONGER, 'remove': remove, 'remove last': remove_last,
          'delete': delete}


# Concurrent holds

def hold(fleet, project, name):
    return fleet.hold(owner=values.Assignment(project_id=project),
                      ownership=values.Ownership(project),
                      resource_class='gold', candidate_nodes=[name])


@pytest.mark.parametrize('kind', [*JOINS, *LONGER])
def test_hold_waits_for_a_pool(isolation, executor, monkeypatch, set_clock,
                               kind):
    """It ends after the pool, and so finds what the pool has committed."""
    write, name = WRITES[kind](isolation)
    futures = []
    read_back = pools.read_back

    def hold_before_the_commit(*args, **kwargs):
        if kind in LONGER:
            # The pool has expired when the hold begins.
            set_clock()
        futures.append(executor.submit(hold, isolation, 'q', name))
        isolation.wait_for_lock(futures[0])
        assert not futures[0].done()
        return read_back(*args, **kwargs)

    monkeypatch.setattr(pools, 'read_back', hold_before_the_commit)
    write()
    with pytest.raises(exception.NoMatchingNode):
        futures[0].result(60)
    assert isolation.holds == {}


@pytest.mark.parametrize('kind', [*JOINS, *LONGER])
def test_pool_waits_for_a_hold(isolation, executor, kind):
    """Otherwise the hold would end after the response to the pool."""
    write, name = WRITES[kind](isolation)
    futures = []

    def write_before_the_commit():
        futures.append(executor.submit(write))
        isolation.wait_for_lock(futures[0])
        assert not futures[0].done()

    with isolation.before('INSERT INTO reservations', write_before_the_commit):
        hold(isolation, 'p' if kind in LONGER else 'q', name)
    if kind in LONGER:
        futures[0].result(60)
    else:
        with pytest.raises((exception.NoMatchingNode, exception.Conflict)):
            futures[0].result(60)
    assert len(isolation.holds) == 1


# Killed processes

def run_until(fleet, number, write):
    """Run a write in a process that is killed before its statement.

    :param number: of the statement. The end of a COMMIT counts, too.
    :returns: the statement; None if the write was completed.
    """
    reader, writer = os.pipe()
    if not (pid := os.fork()):
        # The connections are those of the parent.
        fleet.engine.dispose(close=False)
        remaining = [number]

        def note(statement):
            remaining[0] -= 1
            if remaining[0] < 0:
                os.write(writer, statement.encode())
                os.kill(os.getpid(), signal.SIGKILL)

        sa.event.listen(fleet.engine, 'before_cursor_execute',
                        lambda _, __, statement, *args: note(statement))
        commit = fleet.engine.dialect.do_commit

        def do_commit(connection):
            note('COMMIT')
            commit(connection)
            note('after COMMIT')

        fleet.engine.dialect.do_commit = do_commit
        try:
            write()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    os.close(writer)
    with os.fdopen(reader) as file:
        statement = file.read()
    assert os.waitstatus_to_exitcode(status) == (
        -signal.SIGKILL if statement else 0)
    return statement or None


def read_state(fleet):
    """Return when pools expire, the nodes in pools, and the changed nodes."""
    names = sa.select(models.nodes.c.name).order_by(models.nodes.c.name)
    return (
        [row.expires_at for row in fleet.execute(sa.select(models.pools))],
        [row.name for row in fleet.execute(names.select_from(
            models.pool_nodes).outerjoin(models.nodes, models.nodes.c.id
                                         == models.pool_nodes.c.node_id))],
        [row.name for row in fleet.execute(
            names.where(models.nodes.c.updated_at.is_not(None)))])


@pytest.mark.long
@pytest.mark.parametrize('kind, after', [
    ('create', ([None], ['a', 'b'], ['a', 'b'])),
    ('add', ([None], ['a', 'b'], ['b'])),
    ('replace', ([None], ['b', 'c'], ['c'])),
    ('forever', ([None], ['a'], ['a'])),
    ('postpone', ([LATER], ['a'], ['a'])),
    ('remove', ([None], ['b'], [])),
    ('remove last', ([], [], [])),
    ('delete', ([], [], [])),
], ids=lambda value: value if isinstance(value, str) else '')
def test_process_is_killed_at_each_statement(fleet, kind, after):
    """All is written or nothing, and the next process need not wait."""
    statements = ['']
    while statements[-1] is not None:
        fleet.clear()
        write, _ = WRITES[kind](fleet)
        fleet.execute(sa.update(models.nodes).values(updated_at=None))
        before = read_state(fleet)
        statements.append(run_until(fleet, len(statements) - 1, write))
        if statements[-1] not in ('after COMMIT', None):
            assert read_state(fleet) == before != after, statements[-1]
            write()
        assert read_state(fleet) == after, statements[-1]
    assert statements[-3:-1] == ['COMMIT', 'after COMMIT']
