# SPDX-License-Identifier: Apache-2.0
"""Runs two writes, one of them inside of the other, on SQLite.

The first is interrupted before one of its reads outside of a transaction, or
before one of its transactions, and the second then runs to its end. Nothing
waits, so the result is the same each time.
"""

import contextlib
import dataclasses
import itertools
import json
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time

from ironic_reservations import conf
from ironic_reservations.api import errors
from ironic_reservations.db import engine
from ironic_reservations.fleet import counts
from ironic_reservations.fleet import profiles
from ironic_reservations.reservations import host_leases
from tests.common import fleets
from tests.core import writes

ALL = {**writes.WRITES, **writes.PARTS, **writes.CHANGES}

TABLES = (
    'nodes', 'ports', 'node_traits', 'volume_targets', 'reservations',
    'reservations_groups', 'reservations_projects', 'reservations_hosts',
    'reservations_standbys', 'reservations_notices', 'reservations_pools',
    'reservations_pool_nodes', 'reservations_history')

#: The column of each table that names the node, group, pool, project or host
#: to which a row belongs.
_OBJECTS = {
    'nodes': ('node', 'id'), 'ports': ('node', 'node_id'),
    'reservations': ('node', 'node_id'),
    'reservations_notices': ('node', 'node_id'),
    'reservations_pool_nodes': ('node', 'node_id'),
    'reservations_groups': ('group', 'uuid'),
    'reservations_pools': ('pool', 'uuid'),
    'reservations_projects': ('project', 'project_id'),
    'reservations_hosts': ('host', 'host'),
    'reservations_standbys': ('host', 'host'),
}

# The columns to compare: all except times, ids and generations. Times that a
# request sets are compared in days from now.
_STATE = {
    'nodes': '''SELECT uuid, name, instance_uuid, provision_state, maintenance,
        reservation, resource_class, instance_info FROM nodes''',
    'ports': 'SELECT uuid, internal_info FROM ports',
    'reservations': '''SELECT r.instance_uuid, n.uuid, r.node_uuid, r.host,
        r.project_id, r.request_spec, r.description, g.uuid, r.domain,
        r.segment, {days:r.expires_at} FROM reservations r
        LEFT JOIN nodes n ON n.id = r.node_id
        LEFT JOIN reservations_groups g ON g.id = r.group_id''',
    'groups': '''SELECT uuid, policy, project_id, description, request_digest
        FROM reservations_groups''',
    'hosts': '''SELECT host, holder, {days:expires_at}
        FROM reservations_hosts''',
    'standbys': 'SELECT host, holder FROM reservations_standbys',
    'notices': '''SELECT t.uuid, number, kind, cordon, n.uuid, t.node_uuid,
        category, project_id, is_failed_build, {days:starts_at},
        {days:ends_at}, {days:due_at}, {days:latest_start},
        {days:scheduled_at} FROM reservations_notices t
        LEFT JOIN nodes n ON n.id = t.node_id''',
    'pools': '''SELECT uuid, project_id, {days:expires_at}
        FROM reservations_pools''',
    'pool nodes': '''SELECT p.uuid, n.uuid, m.node_uuid, domain, segment,
        reason, replaces
        FROM reservations_pool_nodes m
        LEFT JOIN nodes n ON n.id = m.node_id
        LEFT JOIN reservations_pools p ON p.id = m.pool_id''',
    'history': '''SELECT instance_uuid, node_uuid, host, project_id,
        group_uuid, ended_by FROM reservations_history''',
}


def _round(text):
    """Expand {days:COLUMN} to the number of days from now."""
    head, *parts = text.split('{days:')
    return head + ''.join(
        f"ROUND(julianday({column}) - julianday('now')){rest}"
        for column, _, rest in (part.partition('}') for part in parts))


_STATE = {name: _round(' '.join(text.split()))
          for name, text in _STATE.items()}


@dataclasses.dataclass(frozen=True, eq=False)
class Snapshot:
    """The rows of all tables, and the state that they are compared by."""

    rows: tuple
    state: frozenset


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What the caller of a write has seen, and the states.

    :param states: at each place.
    """

    seen: tuple
    after: Snapshot
    states: list

    @property
    def is_refused(self):
        """Whether the last response is an error."""
        return isinstance(self.seen[-1], tuple)

    @property
    def is_lost(self):
        """Whether the response says that the caller lost a race."""
        status, retry = self.seen[-1] if self.is_refused else (0, False)
        return status == 409 or retry


def record_ironic(path):
    """Return the statements of Ironic's writes, by their names.

    :param path: the database, which is copied.
    """
    with tempfile.TemporaryDirectory() as directory:
        return json.loads(subprocess.run(
            [sys.executable, '-m', 'tests.core.record_ironic',
             shutil.copy(path, directory)],
            input=json.dumps({name: write.calls
                              for name, write in ALL.items() if write.calls}),
            cwd=pathlib.Path(__file__).parents[2], check=True, text=True,
            stdout=subprocess.PIPE).stdout)


def make_steps(name, records):
    """Return the steps of a write; see ``Simulator.get_records``."""
    write = ALL[name]
    return write.steps(records) if write.calls else write.steps()


def make_response(error):
    """Return the status of an error, and whether it says when to retry.

    :raises: the error itself if it is none that a client may see.
    """
    response = errors.make_response(error)
    if response.status_code == 500:
        raise error
    return response.status_code, response.retry_after is not None


class Simulator:
    """Runs writes on a database of SQLite.

    :param database: the engine of an empty database.
    :param with_ironic: whether Ironic's writes can be run; recording them
        takes ten seconds.
    """

    def __init__(self, database, with_ironic=True):
        fleet = fleets.Fleet(database)
        self._engine, path = database, database.url.database
        self._raw = sqlite3.connect(path, isolation_level=None)
        self._raw.execute('PRAGMA synchronous = OFF')
        self._hook = self._current = None
        self._counts, self._snapshots, self._runs = {}, {}, {}
        self._objects = {}
        self._rows = {}
        with self._install():
            writes.fill(fleet, with_nodes_alone=True)
            self._old_count = self._count()
            fleet.clear()
        writes.fill(fleet)
        self.initial = self.save()
        self._ironic = record_ironic(path) if with_ironic else {}

    def __enter__(self):
        self._stack = contextlib.ExitStack()
        self._stack.callback(self._raw.close)
        self._stack.enter_context(self._install())
        return self

    def __exit__(self, *exc_info):
        self._stack.close()

    # Rows

    def save(self):
        """Return the present rows; the same object for the same rows."""
        rows = tuple((name, self._intern(tuple(map(
            self._intern, self._raw.execute(f'SELECT * FROM {name}')))))
            for name in (*TABLES, 'sqlite_sequence'))
        if rows not in self._snapshots:
            self._snapshots[rows] = Snapshot(rows, frozenset(
                (name, row) for name, query in _STATE.items()
                for row in self._raw.execute(query).fetchall()))
        return self._snapshots[rows]

    def load(self, tables):
        """Return the Snapshot of rows of another database.

        :param tables: lists of rows by table; the others are as at the begin.
        """
        snapshot = Snapshot(tuple(
            (name, self._intern(tuple(map(self._intern, tables[name])))
             if name in tables else rows)
            for name, rows in self.initial.rows), frozenset())
        self.restore(snapshot, self._current)
        self._current = self.save()
        return self._current

    def _intern(self, rows):
        """Return an equal object that needs no more memory."""
        return self._rows.setdefault(rows, rows)

    def restore(self, snapshot, current=None):
        """Restore the rows.

        :param current: the present rows, if they are known.
        """
        with contextlib.ExitStack() as stack:
            cursor = self._raw.cursor()
            cursor.execute('BEGIN')
            stack.callback(cursor.execute, 'ROLLBACK')
            for number, (name, rows) in enumerate(snapshot.rows):
                if current and current.rows[number][1] is rows:
                    continue
                cursor.execute(f'DELETE FROM {name}')
                if rows:
                    marks = ', '.join('?' * len(rows[0]))
                    cursor.executemany(
                        f'INSERT INTO {name} VALUES ({marks})', rows)
            cursor.execute('COMMIT')
            stack.pop_all()

    # Counts

    @staticmethod
    @engine.retry
    def _count():
        return counts.Latest().get_fleet(0)[0]

    def _count_once(self, snapshot):
        if snapshot not in self._counts:
            self._counts[snapshot] = self._count()
        return self._counts[snapshot]

    @contextlib.contextmanager
    def _process(self, fleet):
        """Act as another process, which has counted the fleet."""
        latest = counts.Latest()
        latest._newest = counts._Count(
            profiles.Fleet(fleet.groups), time.monotonic(), 1e6)
        before = engine._thread, counts._latest, self._hook
        engine._thread, counts._latest = engine._ThreadState(), latest
        self._hook = None
        try:
            yield
        finally:
            engine._thread, counts._latest, self._hook = before

    def get_count(self, name, snapshot=None):
        """Return the count that the process of a write has made.

        :param snapshot: the state at that time, if it is not an old count.
        """
        return self._old_count if ALL[name].has_old_count else (
            self._count_once(snapshot or self.initial))

    # Writes

    def get_records(self, name):
        """Return the statements of a write of Ironic's."""
        return self._ironic.get(name, [])

    def run(self, name, before, place=None, after=None, count_state=None):
        """Run a write.

        :param before: the state at its begin.
        :param place: number of the place at which it is interrupted.
        :param after: the state after the interruption.
        :param count_state: the state at which its process has counted the
            fleet; by default at its begin.
        :returns: Outcome; its ``states`` are those at its places.
        """
        self.restore(before, self._current)
        self._current = None
        fleet = self.get_count(name, count_state or before)
        states = []

        def hook():
            if len(states) == place:
                self.restore(after, states_of_run[place])
            states.append(self.save() if place is None else None)

        states_of_run = place is not None and self._run_once(
            name, before).states
        seen = []
        with self._process(fleet):
            self._hook = hook
            for step in make_steps(name, self.get_records(name)):
                try:
                    seen.append(repr(step()))
                except Exception as error:
                    self._hook = None
                    seen.append(make_response(error))
                    break
        self._current = self.save()
        return Outcome(tuple(seen), self._current, states)

    def _run_once(self, *args):
        """Run a write, or return the result of the same run before."""
        if args not in self._runs:
            self._runs[args] = self.run(*args)
        return self._runs[args]

    def find_objects(self, name):
        """Return the nodes, groups and so on whose rows a write changes."""
        if name not in self._objects:
            after = self._run_once(name, self.initial).after
            self._objects[name] = {
                (kind, row[self._find_column(table, column)])
                for (table, rows), (_, before) in zip(
                    after.rows, self.initial.rows, strict=True)
                if table in _OBJECTS for kind, column in [_OBJECTS[table]]
                for row in {*rows} ^ {*before}}
        return self._objects[name]

    def _find_column(self, table, column):
        return [row[1] for row in self._raw.execute(
            f'PRAGMA table_info({table})')].index(column)

    def find_orders(self, first, second):
        """Yield the results of the serial orders, the simplest first.

        A count may be older than the other write, and an expired or stale row
        may be removed by either write, in a separate transaction.

        :returns: what the callers have seen, and the state.
        """
        for cleans, counts_first, gets_last, is_swapped in itertools.product(
                [(), (0,), (1,), (0, 1)], [False, True], [False, True],
                [False, True]):
            state, seen = self.initial, [(), ()]
            order = [(0, first), (1, second)]
            for number, (index, name) in enumerate(
                    reversed(order) if is_swapped else order):
                if number in cleans:
                    state = self._run_once('sweep', state).after
                outcome = self._run_once(
                    name, state, *[None, None, self.initial] * counts_first)
                state, seen[index] = outcome.after, outcome.seen
            if gets_last:
                seen = [self._get(name, answers, state) for name, answers
                        in zip((first, second), seen, strict=True)]
            yield seen, state
        for index, (split, other) in enumerate(
                [(first, second), (second, first)]):
            parts = ALL[split].parts
            for number in range(1, len(parts)):
                # It goes on, or finds the change and starts over.
                for rest in parts[number:], (split,):
                    *seen, state = self._split(
                        split, (*parts[:number], other, *rest), other)
                    yield seen[::-1] if index else seen, state

    def _split(self, split, names, other):
        """Run a write between two parts of another.

        :param names: of the parts, and of the other write.
        :returns: what the callers have seen, and the state.
        """
        state, answers = self.initial, []
        for name in names:
            outcome = self._run_once(name, state)
            state = outcome.after
            if name == other:
                inner = outcome
            elif ALL[split].shows_last:
                answers = outcome.seen
            else:
                answers = (*answers, *outcome.seen)
        return answers, inner.seen, state

    @staticmethod
    def _get(name, seen, snapshot):
        """Return what the caller has seen if its GET came last."""
        node = ALL[name].then
        if node is None or isinstance(seen[-1], tuple):
            return seen
        reserved = {row[1]: row[0] for kind, row in snapshot.state
                    if kind == 'reservations'}
        return seen[:-1] + (repr([
            (row[2], reserved.get(row[0])) for kind, row in snapshot.state
            if kind == 'nodes' and row[0] == writes.ident(node)]),)

    def _clean(self, snapshot):
        return self._run_once('sweep', snapshot).after.state

    def check(self, first, second, mutation=None):
        """Interrupt a write at each place by another.

        :param mutation: a context in which the writes run, but not those of
            the serial orders.
        :returns: the violations, by the number of the place.
        """
        if mutation:
            runs, self._runs = self._runs, {}
            try:
                with mutation:
                    outcomes = list(self._interrupt(first, second))
            finally:
                self._runs = runs
        else:
            # Before the first place, the first has read nothing but its count,
            # as in one of the serial orders.
            outcomes = self._interrupt(first, second, 1)
        return {place: self._describe(first, second, outcome, inner)
                for place, outcome, inner in outcomes
                if not self._is_explained(first, second, outcome, inner)}

    def _interrupt(self, first, second, start=0):
        """Yield the number of each place, and the Outcomes of two writes.

        :param start: number of the first of these places.
        """
        alone = self._run_once(first, self.initial)
        for place, state in enumerate(alone.states[start:], start):
            inner, outcome = self._run_once(second, state), alone
            if inner.after is not state:
                key = first, place, inner.after
                if key not in self._runs:
                    self._runs[key] = self.run(
                        first, self.initial, place, inner.after)
                outcome = self._runs[key]
            yield place, outcome, inner

    def _describe(self, first, second, outcome, inner):
        """Return how the result differs from those of the serial orders."""
        after = self._clean(outcome.after)
        return [f'{first}: {outcome.seen}; {second}: {inner.seen}', *(
            f'order with {seen}: without {sorted(map(repr, after - other))}, '
            f'but with {sorted(map(repr, other - after))}'
            for seen, other in [
                (seen, self._clean(state)) for seen, state
                in itertools.islice(self.find_orders(first, second), 2)])]

    def _is_explained(self, first, second, outcome, inner):
        seen = [outcome.seen, inner.seen]
        orders = self.find_orders(first, second)
        # Most need neither an old count nor a sweep.
        if any(order[0] == seen and order[1].state == outcome.after.state
               for order in itertools.islice(orders, 4)):
            return True
        after = self._clean(outcome.after)
        # A caller that has lost the race has changed nothing.
        for loser, winner, name in ((outcome, inner, second),
                                    (inner, outcome, first)):
            if loser.is_lost:
                alone = self._run_once(name, self.initial)
                if winner.seen == alone.seen and (
                        after == self._clean(alone.after)):
                    return True
        return any(order[0] == seen and self._clean(order[1]) == after
                   for order in self.find_orders(first, second))

    @contextlib.contextmanager
    def _install(self):
        """Let all uses of the database be places."""
        use_connection = engine._use_connection

        def use():
            if self._hook:
                self._hook()
            return use_connection()

        with contextlib.ExitStack() as stack:
            for module, name, value in (
                    (engine, 'get_engine', lambda: self._engine),
                    (engine, '_use_connection', use),
                    (counts, 'get_recent_fleet',
                     lambda: counts._latest.get_recent()),
                    # So that no lease expires while the tests run.
                    (host_leases, 'MAX_TTL', 10 ** 8)):
                stack.callback(setattr, module, name, getattr(module, name))
                setattr(module, name, value)
            conf.CONF.set_override('project_cordons', 1, 'reservations')
            stack.callback(conf.CONF.clear_override, 'project_cordons',
                           'reservations')
            yield

    def forget(self, first):
        """Forget the runs in which a write was interrupted."""
        self._runs = {key: outcome for key, outcome in self._runs.items()
                      if not (key[0] == first and isinstance(key[1], int))}
