# SPDX-License-Identifier: Apache-2.0
"""Measure everything that the page on performance shows, and write it.

    make bench
    make bench ARGS="--nodes 1000 10000 --rounds 3"
    make bench ARGS="--steps groups --nodes 1000 100000"
    make bench ARGS="--server mysql"
    make bench ARGS="--parts shapes racks --write"

Without arguments it measures fleets of four sizes, then ``shapes``, ``racks``
and ``logins``, and writes the tables and pictures of the documentation. With
arguments it measures what they name, and writes only with ``--write``.

The first part compares holds by the size of the fleet with their minimum cost.
A private MariaDB, or MySQL, with default durability; our application alone
under uWSGI with two workers per core, all of them warm; clients on keep-alive
connections. Every response is checked. The fleets take turns, and each figure
is the median of the rounds. "Floor" is the guarded UPDATE of a hold, an INSERT
and a COMMIT by raw PyMySQL, in the same round on the same database; "bare
floor" finds the node only by its ID. Milliseconds are for one client; rates
and processor times (CPU-ms per call) for eight.
"""

import argparse
import collections
import contextlib
import logging
import math
import os
import random
import statistics
import sys
import time
import traceback
import uuid

import psutil
from rich import progress
import sqlalchemy as sa

from benchmark import clients
from benchmark import fleet
from benchmark import logins
from benchmark import page
from benchmark import racks
from benchmark import shapes
from tools import services

#: Database servers for the benchmark.
SERVERS = {'mariadb': services.mariadb, 'mysql': services.mysql}

#: Steps for each fleet.
STEPS = ('first', 'few', 'many', 'at_once', 'flushed', 'used_up', 'none',
         'capacity', 'taken', 'pools', 'groups')

GROUPS = ('eight holds', 'group of 8, soft-pack', 'group of 64, soft-pack',
          'eight holds in a group, soft-pack')

#: Shares of the nodes that are in a pool of the first of two projects.
POOLED, PROJECTS = (0, 0.01, 0.5), ('project of the pool', 'another project')

#: Number of comparisons of several holds with one group, per round.
PAIRS = 8

#: Numbers of holds that are requested at once, and how often per round.
AT_ONCE, STARTS = {'one hold': 1, 'five holds at once': 5}, 20

#: Values of ``innodb_flush_log_at_trx_commit``, the default first.
FLUSHES = 1, 2, 0

#: Seconds of processor time of each worker before a measurement.
WARM = 0.5

#: Most calls of one client.
TIMES = 400

#: What the requests that count the fleet are compared with.
SCAN = 'smallest query about all nodes'

#: Figures by which an operator chooses the settings, and their digits.
SIZING = {
    'first hold of a worker, ms': ('first hold of a worker', 0),
    'hold, ms': ('hold, alternating requests', 1),
    'holds per second, eight clients': ('hold rate', 0),
    'refusal with its explanation, ms': ('refusal with its explanation', 0),
    'capacity, not cached, ms': ('capacity, not cached', 0),
    'memory of a worker, MiB': ('memory of a worker, MiB', 0)}

#: Servers of a compute host, and the part of a worker's time that the
#: periodic tasks of all hosts may take.
SERVERS_PER_HOST, SHARE = 5000, 0.1


def name_pooled(project, share):
    return f'{project}, {100 * share:.0f} % of the nodes in pools'


class Measures:
    """One fleet, and our application on it.

    :param tell: function of a figure's name and the figure.
    """

    def __init__(self, size, ironic, processes, tell):
        self.size, self._ironic, self._url = size, ironic, ironic.database_url
        self._check, self._tell = fleet.checker(size), tell
        self._processes, self._port, self._process = processes, None, None
        self._times = min(TIMES, size // 10)

    @contextlib.contextmanager
    def serving(self, keep=True, kinds=fleet.MIX):
        """Run our application, warm; yield its process.

        :param keep: False if nodes are rare, so that each is soon released.
        """
        with shapes.run_api(self._ironic, self._processes) as service:
            before = self._port, self._process
            self._port, self._process = service.port, service.process
            try:
                self.warm_up(keep, kinds)
                yield service.process
            finally:
                self._port, self._process = before

    def _workers(self):
        """Return the seconds of processor time of each worker, by PID."""
        return {child.pid: sum(child.cpu_times()[:2]) for child in
                psutil.Process(self._process.pid).children(recursive=True)}

    def _database(self):
        """Return the seconds of processor time of the database."""
        path = sa.make_url(self._url).query['unix_socket']
        [server] = [child for child in psutil.Process().children(
            recursive=True) if f'--socket={path}' in child.cmdline()]
        return sum(server.cpu_times()[:2])

    def _run(self, client, times, number=1):
        result = clients.run(client, times, number)
        fleet.free_all(self._url)
        return result

    def _holding(self, kinds=fleet.MIX, keep=True):
        return clients.holding(self._port, kinds, self._check, keep)

    def warm_up(self, keep=True, kinds=fleet.MIX):
        """Let every worker hold nodes, although the router picks workers."""
        before = self._workers()
        # One of the processes is the router, which takes less.
        while sum(spent - before.get(pid, 0) > WARM for pid, spent
                  in self._workers().items()) < self._processes:
            if keep:
                self._run(self._holding(kinds), min(20, self.size // 40),
                          clients.MANY)
            else:
                # One client, because two may compete for the last node.
                clients.run(self._holding(fleet.WITH_CLASS, keep), 20)

    def first(self):
        """The first hold of a process counts the fleet."""
        with shapes.run_api(self._ironic, 1) as service:
            request = clients.Http(service.port).request
            self._tell('first hold of a worker', 1000 * clients.seconds(
                lambda: request('POST', '/v1/reservations', 201, next(
                    fleet.requests(fleet.WITH_CLASS, None))), 1))
        fleet.free_all(self._url)

    def few(self):
        """One client."""
        self._tell('bare floor', self._run(
            clients.bare(self._url, has_guard=False), self._times).median)
        self._tell('floor',
                   self._run(clients.bare(self._url), self._times).median)
        for name, kinds in (('alternating requests', fleet.MIX),
                            ('by resource class', fleet.WITH_CLASS),
                            ('by sizes alone', [fleet.sizes])):
            self._tell(f'hold, {name}',
                       self._run(self._holding(kinds), self._times).median)

    def many(self):
        """Many clients, for some seconds if the fleet is large enough.

        The profiles are counted before; afterwards, a process spends at most
        a fiftieth of its time on counting.
        """
        for name, has_guard in (('bare floor', False), ('floor', True)):
            self._rate(name, clients.bare(self._url, has_guard),
                       min(800, self.size // 10))
        self.warm_up()
        self._rate('hold', self._holding(), min(400, self.size // 40))

    def _rate(self, name, client, times):
        """Measure the rate of many clients, and their processor time."""
        workers, database = sum(self._workers().values()), self._database()
        result = clients.run(client, times, clients.MANY)
        calls = times * clients.MANY
        self._tell(f'{name} rate', result.rate)
        self._tell(f'{name}, CPU of the database',
                   (self._database() - database) * 1000 / calls)
        workers = sum(self._workers().values()) - workers
        self._tell(f'{name}, CPU of workers', workers * 1000 / calls)
        self._tell(f'{name}, CPU of clients', result.cpu)
        fleet.free_all(self._url)

    def at_once(self):
        """Clients request one hold each, at the same moment."""
        for name, number in AT_ONCE.items():
            results = [self._run(self._holding(), 1, number)
                       for _ in range(STARTS)]
            self._tell(f'{name}, average', 1000 * statistics.mean(
                sum((result.durations for result in results), [])))
            self._tell(f'{name}, slowest',
                       max(result.worst for result in results))

    def flushed(self):
        """The database flushes its log at each COMMIT, or every second."""
        for value in random.sample(FLUSHES, len(FLUSHES)):
            fleet.execute(self._url, 'SET GLOBAL '
                          f'innodb_flush_log_at_trx_commit = {value}')
            self._tell(f'hold, {value}',
                       self._run(self._holding(), self._times).median)
            self._tell(f'hold rate, {value}', self._run(
                self._holding(), min(400, self.size // 40),
                clients.MANY).rate)
        self.reset()

    def taken(self):
        """Nodes are rare: one in 1,000, and at least one of each profile.

        The service is started on this fleet, because it would use an earlier
        count for fifty times its duration.
        """
        ids = ', '.join(map(str, fleet.sample_ids(self.size)))
        fleet.execute(
            self._url, 'UPDATE nodes SET instance_uuid = uuid',
            f'UPDATE nodes SET instance_uuid = NULL WHERE id IN ({ids})')
        with self.serving(keep=False):
            self._tell('hold, 99.9 % of the nodes taken', self._run(
                self._holding(fleet.WITH_CLASS, keep=False), 100).median)

    def pools(self):
        """Nodes are in a pool of one of two projects.

        The service is started on each of these fleets, as in ``taken``.
        """
        kinds = {project: [lambda profile, kind=kind, project=project: {
            **kind(profile), 'project_id': project} for kind in fleet.MIX]
            for project in PROJECTS}
        for share in random.sample(POOLED, len(POOLED)):
            fleet.execute(
                self._url, 'INSERT INTO reservations_pools (id, uuid, '
                'project_id, request_spec, request_digest, generation, '
                f"created_at) VALUES (1, UUID(), '{PROJECTS[0]}', '{{}}', "
                "'', 0, NOW())",
                'INSERT INTO reservations_pool_nodes (node_id, node_uuid, '
                'pool_id, created_at) SELECT id, uuid, 1, NOW() FROM nodes '
                f'ORDER BY RAND() LIMIT {int(share * self.size)}')
            with self.serving(kinds=sum(kinds.values(), [])):
                for project in PROJECTS:
                    self._tell(name_pooled(project, share), self._run(
                        self._holding(kinds[project]), self._times).median)
            self.reset()

    def reset(self):
        """Release all nodes, delete the pool, and flush each COMMIT."""
        fleet.free_all(self._url)
        fleet.execute(self._url, 'DELETE FROM reservations_pool_nodes',
                      'DELETE FROM reservations_pools',
                      'SET GLOBAL innodb_flush_log_at_trx_commit = 1')

    def used_up(self):
        """The nodes that fit best are taken; larger ones are left."""
        taken = fleet.find_ids(self.size, fleet.SMALLEST)
        fleet.execute(
            self._url, 'UPDATE nodes SET instance_uuid = uuid '
            f'WHERE id IN ({", ".join(map(str, taken))})')

        def smallest(profile):
            return fleet.sizes(fleet.SMALLEST)

        self._tell('hold, best fit used up',
                   self._run(self._holding([smallest]), 100).median)

    def groups(self):
        """Compare groups with single holds, in pairs, with one client.

        Each call starts on a fleet in which all nodes are free.
        """
        request = clients.Http(self._port).request
        policy = {'policy': 'soft-pack', 'by': 'capability:gpus'}

        def post(path='', **body):
            began = time.perf_counter()
            request('POST', f'/v1/reservations{path}', 201, body)
            return (time.perf_counter() - began) * 1000

        def at_once(members):
            return lambda spec: post('/groups', members=members, **policy,
                                     request=spec)

        def hold(spec, **more):
            return sum(post(**spec, **more) for _ in range(8))

        ways = dict(zip(GROUPS, (
            hold, at_once(8), at_once(64), lambda spec: hold(
                spec, group={'uuid': str(uuid.uuid4()), **policy})),
                        strict=True))
        times = collections.defaultdict(list)
        for _ in range(PAIRS):
            spec = {'resource_class': random.choice(fleet.PROFILES)[0]}
            for name, way in random.sample([*ways.items()], len(ways)):
                times[name].append(way(spec))
                fleet.free_all(self._url)
        for name, figures in times.items():
            self._tell(name, statistics.median(figures))
            self._tell(f'{name}, times eight holds', statistics.median(
                figure / holds for figure, holds in zip(
                    figures, times['eight holds'], strict=True)))

    def none(self):
        """No node matches."""
        request = clients.Http(self._port).request
        self._tell('refusal with its explanation', 1000 * clients.seconds(
            lambda: request('POST', '/v1/reservations', 422,
                            {'memory_mb': 2 ** 30}), 3))

    def capacity(self):
        """Count the fleet, and run the smallest query about all nodes."""
        def scan():
            with fleet.connect(self._url) as connection:
                connection.cursor().execute(
                    'SELECT resource_class, provision_state, COUNT(*) '
                    'FROM nodes GROUP BY 1, 2')

        self._tell(SCAN, 1000 * clients.seconds(scan, 3))
        request = clients.Http(self._port).request
        self._tell('capacity, not cached', 1000 * clients.seconds(
            lambda: request('GET', '/v1/reservations/capacity', 200, **{
                'Cache-Control': 'no-cache'}), 3))


def measure(args):
    """Measure fleets of some sizes.

    :returns: the medians of all rounds, by name and size; a note about them;
        and the steps that failed.
    """
    figures, failures = collections.defaultdict(list), set()
    with SERVERS[args.server]() as server, progress.Progress() as bar, \
            contextlib.ExitStack() as stack:
        def tells(size):
            def tell(name, figure):
                figures[name, size].append(figure)
                bar.console.print(f'{size:,} nodes: {name}: {figure:.2f}')
            return tell

        fleets = []
        for size in args.nodes:
            bar.console.print(f'{size:,} nodes: enrolling')
            ironic = stack.enter_context(fleet.ironic(
                server, size, lambda steps, size=size: bar.track(
                    steps, description=f'enrolling {size:,} nodes')))
            # Its memory may have grown.
            fleet.stop(ironic)
            measures = Measures(size, ironic, args.workers, tells(size))
            fleets.append((measures,
                           stack.enter_context(measures.serving())))
        note = page.describe(
            f'{args.workers} workers of the API, medians of {args.rounds} '
            'rounds', ironic.database_url)
        work = [(step, measures) for _ in range(args.rounds)
                for step in args.steps
                for measures, _ in random.sample(fleets, len(fleets))]
        for step, measures in bar.track(work, description='rounds'):
            try:
                getattr(measures, step)()
            except Exception:
                traceback.print_exc()
                failures.add(step)
                measures.reset()
        for measures, process in fleets:
            tells(measures.size)('memory of a worker, MiB',
                                 fleet.peak_memory(process.pid))
    return {key: statistics.median(values)
            for key, values in figures.items()}, note, failures


def list_settings(size, figures):
    """Return the settings that follow from the figures of a size."""
    count = figures['capacity, not cached', size] / 1000
    # While a worker counts, the others hold nodes.
    workers = 2 if count < 0.1 else 4
    memory = workers * figures['memory of a worker, MiB', size]
    # The others can carry the servers of one that is down.
    hosts = 1 + max(1, math.ceil(size / SERVERS_PER_HOST))
    interval = 60 * max(1, math.ceil(hosts * count / SHARE / 60))
    return {
        'workers, at least': f'{workers}',
        'their memory, MiB': f'{memory:,.0f}',
        'their connections to the database': f'{workers}',
        'compute hosts, at least': f'{hosts}',
        '``update_resources_interval``, seconds': f'{interval}',
        '``max_attempts``': f'{hosts + 2}',
        '``max_instances_per_host``': f'{math.ceil(size / (hosts - 1)):,}',
        '``host_subset_size``': f'{math.ceil(hosts / 2)}'}


def show(output, note, sizes, figures):
    """Print the tables, and write those that are complete."""
    header = ['', *(f'{size:,} nodes' for size in sizes)]

    def show_table(name, title, digits, rows):
        """Show a table.

        :param rows: names of figures, and of those that divide them, or None.
        """
        def show_cell(row, size):
            figure, divisor = figures[row, size], figures.get(
                (rows[row], size))
            return f'{figure:,.{digits}f}' + (
                f' ({figure / divisor:.2f})' if divisor else '')

        lines = [[row, *(show_cell(row, size) for size in sizes)]
                 for row in rows
                 if all((row, size) in figures for size in sizes)]
        output.show(name if len(lines) == len(rows) else None, title, header,
                    lines, note)

    show_table('holds', 'One client: milliseconds (times the floor)', 2,
               dict.fromkeys((
                   'bare floor', 'floor', 'hold, alternating requests',
                   'hold, by resource class', 'hold, by sizes alone',
                   'hold, best fit used up',
                   'hold, 99.9 % of the nodes taken'), 'floor'))
    show_table('rates', 'Eight clients: calls per second', 0, dict.fromkeys(
        ('bare floor rate', 'floor rate', 'hold rate')))
    show_table('at-once', 'Holds at once: milliseconds', 1, dict.fromkeys(
        f'{name}, {what}' for name in AT_ONCE
        for what in ('average', 'slowest')))
    show_table(
        'flushed', 'By innodb_flush_log_at_trx_commit: milliseconds with one '
        'client, holds per second with eight (times the default)', 1,
        {f'{name}, {value}': f'{name}, {FLUSHES[0]}'
         for name in ('hold', 'hold rate') for value in FLUSHES})
    # In a hold, the worker does the work of a client of the bare database.
    show_table(
        'processors',
        'Eight clients: milliseconds of CPU time per call (times the floor)',
        2, {f'{name}, CPU of {whose}': f'floor, CPU of {floor}'
            for name, whose, floor in (
                ('floor', 'clients', 'clients'),
                ('hold', 'workers', 'clients'),
                ('floor', 'the database', 'the database'),
                ('hold', 'the database', 'the database'))})
    show_table('pools', 'One client: milliseconds (times no nodes in pools)',
               2, {name_pooled(project, share): name_pooled(project, 0)
                   for project in PROJECTS for share in POOLED})
    show_table('counts', 'One client: milliseconds (times the smallest query)',
               1, dict.fromkeys((
                   SCAN, 'refusal with its explanation',
                   'capacity, not cached'), SCAN))
    show_table('groups', 'One client: milliseconds', 1,
               dict.fromkeys(GROUPS))
    show_table('pairs', 'One client: times eight holds, compared in pairs', 2,
               dict.fromkeys(f'{name}, times eight holds'
                             for name in GROUPS[1:]))
    if all((figure, size) in figures for figure, _ in SIZING.values()
           for size in sizes):
        settings = [list_settings(size, figures) for size in sizes]
        output.show('sizing', 'Costs, and the settings that follow', header, [
            *([row, *(f'{figures[figure, size]:,.{digits}f}'
                      for size in sizes)]
              for row, (figure, digits) in SIZING.items()),
            *([row, *(column[row] for column in settings)]
              for row in settings[0])], note)
    show_goals(output, note, min(sizes), max(sizes), figures)


def show_goals(output, note, small, large, figures):
    """Print what the largest fleet has to reach."""
    by_class = 'hold, by resource class'
    rows = []
    for above, below, goal in (
            ('hold, by sizes alone', by_class, 3),
            ('hold, 99.9 % of the nodes taken', by_class, 2),
            *((name_pooled(project, share), name_pooled(project, 0), 1.1)
              for project in PROJECTS for share in POOLED[1:]),
            ('refusal with its explanation', SCAN, 8),
            ('capacity, not cached', SCAN, 8)):
        if {(above, large), (below, large)} <= figures.keys():
            figure = figures[above, large] / figures[below, large]
            rows.append([f'{above}, times {below}', f'{figure:.2f}',
                         f'at most {goal}'])
    if {(by_class, small), (by_class, large)} <= figures.keys():
        figure = figures[by_class, large] / figures[by_class, small]
        rows.append([f'{by_class}, times that at {small:,} nodes',
                     f'{figure:.2f}', 'at most 1.2'])
    for name, goal in ((GROUPS[1], 1.5), (GROUPS[3], 1.3)):
        name += ', times eight holds'
        if (name, large) in figures:
            rows.append([name, f'{figures[name, large]:.2f}',
                         f'at most {goal}'])
    output.show(None, f'at {large:,} nodes', ['', 'measured', 'goal'], rows,
                note)


def measure_sizes(args, output):
    figures, note, failures = measure(args)
    show(output, note, args.nodes, figures)
    if len(args.nodes) > 1 and args.steps is STEPS:
        output.draw('performance', args.nodes, figures)
    if failures:
        raise RuntimeError(f'failed steps: {", ".join(failures)}')


PARTS = {'sizes': measure_sizes,
         'shapes': lambda args, output: shapes.measure(shapes.SHAPES, output),
         'racks': lambda args, output: racks.measure(output),
         'logins': lambda args, output: logins.measure(output)}


def main():
    parser = argparse.ArgumentParser(
        prog='python -m benchmark', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--parts', nargs='+', choices=PARTS,
                        default=['sizes'],
                        help='what to measure (default: sizes; without any '
                             'arguments: all)')
    parser.add_argument('--nodes', nargs='+', type=int,
                        default=[1000, 3000, 10000, 100000])
    parser.add_argument('--server', choices=SERVERS, default='mariadb')
    parser.add_argument('--rounds', type=int, default=2)
    parser.add_argument('--workers', type=int, default=2 * os.cpu_count())
    parser.add_argument('--steps', nargs='+', choices=STEPS, default=STEPS,
                        help='steps of "sizes" (default: all)')
    page.add_argument(parser)
    args = parser.parse_args()
    if len(sys.argv) == 1:
        args.parts, args.write = [*PARTS], page.SOURCE
    services.stop_on_signal()
    # It logs the end of each process.
    logging.getLogger('pifpaf').setLevel('ERROR')
    output, failures = page.Page(args.write), []
    for part in args.parts:
        # The other parts do not depend on it.
        try:
            PARTS[part](args, output)
        except Exception:
            traceback.print_exc()
            failures.append(part)
    if failures:
        sys.exit(f'Failed: {", ".join(failures)}')


if __name__ == '__main__':
    main()
