# SPDX-License-Identifier: Apache-2.0
"""Runs several writes at once on a database server, as a schedule says.

Each write has a thread, a connection and a count of the fleet, as if it had a
process of its own. One thread runs at a time: up to the point at which the
schedule stops it, to its end, or until one of its statements waits for a lock.
The result is the same each time, unless a lock depends on whether the server
has purged the rows of the run before.

The points of a write are numbered: each use of the database outside of a
transaction, each BEGIN, each statement of a transaction, and each COMMIT. The
schedule "hold/sweep:9,4" runs the hold up to its point 9, the sweep up to its
point 4, the hold to its end, and the sweep to its end.
"""

import argparse
import collections
import contextlib
import dataclasses
import itertools
import random
import re
import sqlite3
import sys
import tempfile
import threading
import time
from unittest import mock

import sqlalchemy as sa

from ironic_reservations.db import engine
from ironic_reservations.db import row_locks
from ironic_reservations.fleet import counts
from ironic_reservations.fleet import profiles
from tests.common import databases
from tests.common import fleets
from tests.common import servers
from tests.core import interleaving
from tests.core import writes
from tools import services

#: Seconds for which a statement runs before it is checked whether it waits for
#: a lock, and between two checks. They decide only how long a run takes.
PATIENCE, PAUSE = 0.004, 0.001

_TABLES = interleaving.TABLES
_WORDS = re.compile(rf'\b({"|".join(_TABLES)})\b')
_TARGET = re.compile(
    r'(?:UPDATE|INSERT(?: IGNORE)? INTO|DELETE FROM|DELETE)\s+[`"]?(\w+)')

COMMIT = 'COMMIT'


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Writes, and the points at which they are stopped, in turn.

    :param names: of the writes, in the order in which they begin.
    :param stops: numbers of points, of the first writes.
    """

    names: tuple[str, ...]
    stops: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text):
        names, _, stops = text.rpartition(':')
        return cls(tuple(names.split('/')),
                   tuple(int(stop) for stop in stops.split(',') if stop))

    def __str__(self):
        return f'{"/".join(self.names)}:{",".join(map(str, self.stops))}'


@dataclasses.dataclass(frozen=True)
class Result:
    """What the callers of the writes have seen, and the rows at the end.

    :param points: texts of the points of each write.
    :param has_stopped: whether each write has reached the point at which the
        schedule stops it.
    """

    seen: list[tuple]
    after: interleaving.Snapshot
    points: list[list[str]]
    has_stopped: list[bool]


class _Cancelled(BaseException):
    """The run of a schedule has failed."""


class _Actor(threading.Thread):
    """Runs one write, and stops at its points.

    :param steps: of the write.
    :param fleet: the count of its process.
    """

    def __init__(self, steps, fleet, database):
        super().__init__(daemon=True)
        self._steps, self.database = steps, database
        self.latest = counts.Latest()
        self.latest._newest = counts._Count(
            profiles.Fleet(fleet.groups), time.monotonic(), 1e6)
        self.seen, self.points, self.error = [], [], None
        self.reads, self.writes = set(), set()
        self.stop = self.began = None
        self.is_waiting = self.has_ended = self.is_cancelled = False
        self.in_transaction = False
        self.may_go = threading.Semaphore(0)
        self.has_stopped = threading.Semaphore(0)

    def run(self):
        try:
            self._wait_for_turn()
            for step in self._steps:
                try:
                    self.seen.append(repr(step()))
                except Exception as error:
                    self.seen.append(interleaving.make_response(error))
                    break
        except BaseException as error:
            self.error = error
        self.has_ended = True
        self.has_stopped.release()

    def _wait_for_turn(self):
        self.may_go.acquire()
        if self.is_cancelled:
            raise _Cancelled()

    def reach(self, point):
        """Stop at a point if the schedule says so, or after a wait."""
        self.points.append(point)
        self.began = None
        if self.is_waiting or self.is_at_stop:
            self.has_stopped.release()
            self._wait_for_turn()

    @property
    def is_at_stop(self):
        return self.stop is not None and len(self.points) > self.stop

    def execute(self, statement):
        """Note a statement that is about to run."""
        tables = {*_WORDS.findall(statement)}
        if tables:
            if self.in_transaction:
                self.reach(statement)
            self.reads |= tables
            self.writes |= {*_TARGET.findall(statement)} & tables
        elif statement == COMMIT:
            self.reach(COMMIT)
        self.began = time.monotonic()

    def has_patience(self):
        began = self.began
        return began is None or time.monotonic() - began < PATIENCE


def _get_actor():
    thread = threading.current_thread()
    return thread if isinstance(thread, _Actor) else None


class _Latest:
    """The counts.Latest of the actor that uses it."""

    def __getattr__(self, name):
        return getattr(_get_actor().latest, name)


class Scheduler:
    """Runs schedules on a server.

    :param simulator: has the rows of the fleet, and the serial orders.
    :param databases: the engine of each actor in turn; all of one cluster,
        with the schema and without nodes.
    """

    def __init__(self, simulator, *databases):
        self._simulator, self._databases = simulator, databases
        self._stack = contextlib.ExitStack()
        self._alone = {}
        self.waits = 0

    @property
    def database(self):
        return self._databases[0]

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            fleet = fleets.Fleet(self.database)
            fleet.add_allocation()
            stack.callback(fleet.clear)
            self._controls = [self._connect(stack, database)
                              for database in self._databases]
            for database in self._databases:
                self._listen(stack, database)
            self._install(stack)
            self._columns = {
                name: [row[1] for row in self._simulator._raw.execute(
                    f'PRAGMA table_info({name})')] for name in _TABLES}
            self._inserts = dict(self._make_inserts())
            self._restore(_TABLES)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc_info):
        self._stack.close()

    @staticmethod
    def _connect(stack, database):
        """Return a connection for the rows, and to look for waits."""
        control = sa.create_engine(
            database.url, isolation_level='AUTOCOMMIT',
            poolclass=sa.NullPool)
        connection = stack.enter_context(control.connect())
        connection.exec_driver_sql('SET SESSION foreign_key_checks = 0')
        return connection

    @staticmethod
    def _listen(stack, database):
        """Let statements and commits be points."""
        def execute(connection, cursor, statement, *args):
            if actor := _get_actor():
                actor.execute(statement)

        def end(*args):
            if actor := _get_actor():
                actor.began = None

        def commit(connection):
            if actor := _get_actor():
                actor.execute(COMMIT)

        for name, function in {'before_cursor_execute': execute,
                               'after_cursor_execute': end,
                               'commit': commit}.items():
            sa.event.listen(database, name, function)
            stack.callback(sa.event.remove, database, name, function)

    @staticmethod
    def _install(stack):
        """Let the functions of ``engine`` use the actor's database."""
        get_engine, use_connection = engine.get_engine, engine._use_connection
        transaction = engine.transaction

        def use():
            actor = _get_actor()
            if actor and not actor.in_transaction:
                actor.reach('')
            return use_connection()

        @contextlib.contextmanager
        def begin():
            actor = _get_actor()
            with transaction() as connection:
                if actor:
                    actor.in_transaction = True
                try:
                    yield connection
                except BaseException:
                    if actor:
                        actor.in_transaction = False
                    raise
            if actor:
                actor.in_transaction = False

        for name, function in {
                'get_engine': lambda: (
                    actor.database if (actor := _get_actor())
                    else get_engine()),
                '_use_connection': use, 'transaction': begin}.items():
            stack.enter_context(mock.patch.object(engine, name, function))

    # Rows

    def _make_inserts(self):
        """Yield each table with the SQL that inserts its first rows."""
        cursor = self._controls[0].connection.cursor()
        for name, rows in self._simulator.initial.rows:
            if name in self._columns and rows:
                columns = ', '.join(f'`{column}`'
                                    for column in self._columns[name])
                marks = ', '.join(['%s'] * len(rows[0]))
                yield name, f'INSERT INTO {name} ({columns}) VALUES ' + (
                    ', '.join(cursor.mogrify(f'({marks})', row)
                              for row in rows))

    def _restore(self, tables):
        cursor = self._controls[0].connection.cursor()
        cursor.execute('BEGIN')
        for name in tables:
            cursor.execute(f'DELETE FROM {name}')
            if name in self._inserts:
                cursor.execute(self._inserts[name])
        cursor.execute('COMMIT')

    def _purge(self):
        """Wait a tenth of a second, until MariaDB has purged deleted rows.

        Until then, an INSERT of the same key also locks its neighbours.
        """
        if self.database.dialect.is_mariadb:
            self._controls[0].exec_driver_sql(
                'SET GLOBAL innodb_max_purge_lag_wait = 0')

    def _read(self, name):
        """Return the rows of a table as SQLite has them."""
        columns = ', '.join(f'`{column}`' for column in self._columns[name])
        cursor = self._controls[0].connection.cursor()
        cursor.execute(f'SELECT {columns} FROM {name}')
        return [tuple(f'{value:%Y-%m-%d %H:%M:%S.%f}'
                      if hasattr(value, 'tzinfo') else value
                      for value in row) for row in cursor.fetchall()]

    # Runs

    def run(self, schedule):
        """Run a schedule on the first rows; return its Result."""
        simulator = self._simulator
        actors = [_Actor(
            interleaving.make_steps(name, self._translate(name)),
            simulator.get_count(name), database)
            for name, database in zip(schedule.names, itertools.cycle(
                self._databases))]
        for actor in actors:
            actor.start()
        # The serial orders must not know which nodes were locked.
        with mock.patch.object(counts, '_latest', _Latest()), \
                mock.patch.object(row_locks, '_ends', {}):
            try:
                has_stopped = self._follow(actors, schedule.stops)
            finally:
                for actor in actors:
                    actor.is_cancelled = True
                    actor.may_go.release()
                    actor.join()
                tables = {name: self._read(name) for name in set().union(
                    *(actor.writes for actor in actors))}
                self._restore(tables)
        for actor in actors:
            if actor.error:
                raise actor.error
        self._tables = [(actor.reads, actor.writes) for actor in actors]
        return Result([tuple(actor.seen) for actor in actors],
                      simulator.load(tables),
                      [actor.points for actor in actors], has_stopped)

    def _translate(self, name):
        """Return the statements of Ironic's write for the server.

        MySQL does not know RETURNING, which SQLite does.
        """
        return [[(statement.partition(' RETURNING ')[0]
                  .replace('?', '%s').replace('"', '`'), parameters)
                 for statement, parameters in call]
                for call in self._simulator.get_records(name)]

    def _follow(self, actors, stops):
        """Let the actors run in turn; return which have reached their stops.
        """
        has_stopped = []
        for actor, stop in zip(actors, stops, strict=False):
            self._advance(actors, actor, stop)
            has_stopped.append(actor.is_at_stop and not actor.has_ended)
        # The next one is that after the last that was stopped.
        number = len(stops) % len(actors)
        while not all(actor.has_ended for actor in actors):
            for actor in actors[number:] + actors[:number]:
                self._advance(actors, actor)
        return has_stopped

    def _advance(self, actors, actor, stop=None):
        """Let an actor run to a point, to its end, or until it waits."""
        if not (actor.is_waiting or actor.has_ended):
            actor.stop = stop
            actor.may_go.release()
            while not actor.has_stopped.acquire(timeout=PAUSE):
                for other in actors:
                    if other.is_waiting and other.has_stopped.acquire(False):
                        other.is_waiting = False
                if not actor.has_patience() and self._is_waiting(
                        actors, actor, 1):
                    actor.is_waiting = True
                    self.waits += 1
                    return
        # A COMMIT may have ended a wait.
        for other in actors:
            while other.is_waiting:
                if other.has_stopped.acquire(timeout=PAUSE):
                    other.is_waiting = False
                elif self._is_waiting(actors, other, 0):
                    break

    def _is_waiting(self, actors, actor, more):
        """Return whether the actors' statements, and more, wait for a row.

        It looks twice, because a statement that causes a deadlock waits for a
        moment.
        """
        number = more + sum(other.is_waiting for other in actors
                            if other.database is actor.database)
        control = self._controls[self._databases.index(actor.database)]
        cursor = control.connection.cursor()
        for pause in PAUSE, 0:
            cursor.execute(
                "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")
            [(_, waits)] = cursor.fetchall()
            if int(waits) < number:
                return False
            time.sleep(pause)
        return True

    # Schedules

    def _run_alone(self, name):
        """Return the points of a write, and the tables that it uses."""
        if name not in self._alone:
            result = self.run(Schedule((name,)))
            self._alone[name] = (result.points[0], *self._tables[0])
        return self._alone[name]

    def meet(self, first, second):
        """Return whether two writes change rows of the same node, and so on.
        """
        return not self._simulator.find_objects(first).isdisjoint(
            self._simulator.find_objects(second))

    def find_places(self, name, other):
        """Return the points of a write at which another one matters.

        :returns: numbers of those before a COMMIT, and before a statement of a
            transaction whose tables the other one writes, or that writes what
            the other one reads.
        """
        points, *_ = self._run_alone(name)
        _, reads, changes = self._run_alone(other)
        return [number for number, text in enumerate(points)
                if text == COMMIT or text and (
                    changes & {*_WORDS.findall(text)}
                    or reads & {*_TARGET.findall(text)})]

    def count_schedules(self, first, second):
        """Return two numbers of schedules that stop inside of transactions.

        :returns: that of all, and that of those whose tables are related.
        """
        return tuple(
            len(first_places) * (1 + len(second_places))
            for first_places, second_places in (
                ([text for text in self._run_alone(name)[0] if text]
                 for name in (first, second)),
                (self.find_places(first, second),
                 self.find_places(second, first))))

    def choose(self, first, second):
        """Return one Schedule of two writes, or None.

        The first stops before its last COMMIT. There is none if both have no
        transaction, or do not meet.
        """
        for names in (first, second), (second, first):
            points, *_ = self._run_alone(names[0])
            if COMMIT in points and self.meet(*names):
                return Schedule(names, (
                    len(points) - 1 - points[::-1].index(COMMIT),))
        return None

    def check_pair(self, first, second, preemptions=2, mutation=None):
        """Run all schedules of two writes, of which ``first`` begins.

        If the second has ended or waits before the point at which it is to
        stop, the later ones make no difference.

        :yields: Schedule, and its violations.
        """
        places = (self.find_places(first, second),
                  self.find_places(second, first))
        for stop in places[0]:
            for stops in [(stop,), *((stop, other) for other in (
                    places[1] if preemptions > 1 else ()))]:
                schedule = Schedule((first, second), stops)
                yield schedule, self.check(schedule, mutation)
                if not all(self.last.has_stopped):
                    break

    def check_three(self, *names, at_commits=True):
        """Run three writes in each order, and stop the first two.

        :param at_commits: whether to stop only before a COMMIT, and otherwise
            before each statement of a transaction. A reader stops before each
            read.
        :yields: Schedule, and its violations.
        """
        places = {}
        for name in names:
            points, *_ = self._run_alone(name)
            places[name] = [
                number for number, text in enumerate(points)
                if text == COMMIT or COMMIT not in points
                or text and not at_commits]
        for order in itertools.permutations(names):
            for stops in itertools.product(*(
                    places[name] for name in order[:-1])):
                schedule = Schedule(order, stops)
                yield schedule, self.check(schedule)

    # Results

    def check(self, schedule, mutation=None):
        """Run a schedule.

        :param mutation: a context in which the writes run.
        :returns: how the result differs from those of the serial orders; empty
            if it does not.
        """
        if mutation:
            self._purge()
        with mutation or contextlib.nullcontext():
            try:
                self.last = result = self.run(schedule)
            except sqlite3.IntegrityError as error:
                return [f'{schedule}: {error}']
        if self._is_explained(schedule.names, result):
            return []
        return self._describe(schedule, result)

    def _is_explained(self, names, result):
        simulator = self._simulator
        outcomes = [interleaving.Outcome(seen, result.after, [])
                    for seen in result.seen]
        if len(names) == 2:
            return simulator._is_explained(*names, *outcomes)
        after = simulator._clean(result.after)
        # A caller that has lost the race has changed nothing.
        losers = [number for number, outcome in enumerate(outcomes)
                  if outcome.is_lost]
        return any(
            state == after for left_out in itertools.chain.from_iterable(
                itertools.combinations(losers, size)
                for size in range(len(losers) + 1))
            for order in itertools.permutations(
                {*range(len(names))} - {*left_out})
            for state in self._find_states(names, order, result.seen))

    def _find_states(self, names, order, answers):
        """Yield the states of a serial order in which the callers see this."""
        simulator = self._simulator
        for counts_first in False, True:
            state, seen, states = simulator.initial, {}, []
            for number in order:
                outcome = simulator._run_once(
                    names[number], state,
                    *[None, None, simulator.initial] * counts_first)
                state, seen[number] = outcome.after, outcome.seen
                states.append(state)
            # A GET may come after the next writes.
            if all(answers[number] in [seen[number], *(
                    simulator._get(names[number], seen[number], later)
                    for later in states[place:])]
                    for place, number in enumerate(order)):
                yield simulator._clean(state)

    def _describe(self, schedule, result):
        return [f'{schedule}: {result.seen}', *(
            f'{text} {sorted(map(repr, rows))}' for text, rows in (
                ('more than at the begin:',
                 result.after.state - self._simulator.initial.state),
                ('less than at the begin:',
                 self._simulator.initial.state - result.after.state)))]


# All schedules of all pairs

#: Three writes, or a reader next to two.
THREES = [
    ('hold another with a limit', 'join with a limit', 'release a member'),
    ('create a pool', 'cordon', 'hold'),
    ('adopt, fenced', 'give up a host', 'release of a host'),
    ('adopt, fenced', 'switch to a standby', 'release of a host'),
    ('list reservations', 'claim', 'release'),
    ('get the group', 'join', 'release a member'),
]


def run_all(scheduler, seconds):
    """Run all schedules; print the violations, and what was left out.

    Pairs that change no common row stop only once. All are in random order, so
    that those that a run has no time for are others each time.

    :returns: whether there was no violation.
    """
    end, numbers = time.monotonic() + seconds, collections.Counter()

    def run(checks):
        for _, faults in checks:
            numbers['schedules'] += 1
            if faults:
                numbers['violations'] += 1
                print(*faults, sep='\n    ', flush=True)

    for names in THREES:
        run(scheduler.check_three(*names, at_commits=False))
    pairs = [pair for pair in itertools.product(writes.WRITES, repeat=2)
             # Races of Ironic with itself are its own.
             if not all(name.startswith('Ironic') for name in pair)]
    random.shuffle(pairs)
    for pair in pairs:
        if time.monotonic() > end:
            numbers['pairs left out for lack of time'] += 1
            continue
        numbers['pairs'] += 1
        total, relevant = scheduler.count_schedules(*pair)
        numbers['left out, the tables are not related'] += total - relevant
        preemptions = 1 + scheduler.meet(*pair)
        if preemptions == 1:
            places = len(scheduler.find_places(*pair))
            numbers['left out, no common row: two stops'] += relevant - places
            relevant = places
        before = numbers['schedules']
        run(scheduler.check_pair(*pair, preemptions))
        numbers['left out, the second has ended or waits'] += (
            relevant - numbers['schedules'] + before)
    print(*(f'{name}: {number}' for name, number in numbers.items()),
          f'waits: {scheduler.waits}', sep='\n')
    return not numbers['violations']


@contextlib.contextmanager
def _start(start_server, *options, isolation='READ COMMITTED'):
    """Run a server; yield its engine in a tuple."""
    with tempfile.TemporaryDirectory() as directory, \
            start_server('--loose-debug-no-sync', *options) as server, \
            databases.on_server(directory, server) as url:
        database = fleets.connect(url)
        yield database.execution_options(isolation_level=isolation),
        database.dispose()


@contextlib.contextmanager
def _start_galera():
    """Run two members of a cluster; yield the engines of both.

    A read waits for the commits of the other member.
    """
    with tempfile.TemporaryDirectory() as directory, \
            servers.galera(2) as members:
        databases.create(directory, members[0].url)
        engines = [fleets.connect(member.url) for member in members]
        for database in engines:
            with database.connect() as connection:
                connection.exec_driver_sql('SET GLOBAL wsrep_sync_wait = 1')
            # Connections in the pool do not have it.
            database.dispose()
        yield engines
        for database in engines:
            database.dispose()


#: Context managers that start the servers, by the names of the settings.
SETTINGS = {
    'mariadb': lambda: _start(services.mariadb),
    'repeatable-read': lambda: _start(
        services.mariadb, isolation='REPEATABLE READ'),
    'snapshot-isolation': lambda: _start(
        services.mariadb, '--innodb-snapshot-isolation=ON',
        isolation='REPEATABLE READ'),
    'mysql': lambda: _start(services.mysql),
    'galera': _start_galera,
}


def main():
    parser = argparse.ArgumentParser(
        description='Run the schedules of all pairs of writes on a server.')
    parser.add_argument('--setting', choices=SETTINGS, default='mariadb')
    parser.add_argument('--minutes', type=float, default=120,
                        help='after which the rest of the pairs is left out')
    parser.add_argument('schedules', nargs='*', type=Schedule.parse,
                        metavar='SCHEDULE', help='run these alone, such as '
                        '"hold/sweep:3,5", as a run prints them')
    args = parser.parse_args()
    services.stop_on_signal()
    print(f'Setting {args.setting}', flush=True)
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() \
            as stack:
        database = fleets.connect(databases.create_sqlite(
            directory, f'{directory}/sqlite'))
        simulator = stack.enter_context(interleaving.Simulator(database))
        scheduler = stack.enter_context(Scheduler(
            simulator, *stack.enter_context(SETTINGS[args.setting]())))
        if not args.schedules:
            return not run_all(scheduler, 60 * args.minutes)
        faults = [scheduler.check(schedule) for schedule in args.schedules]
        for fault in faults:
            print(*fault or ['no violation'], sep='\n    ')
        return any(faults)


if __name__ == '__main__':
    sys.exit(main())
