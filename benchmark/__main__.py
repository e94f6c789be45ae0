# SPDX-License-Identifier: Apache-2.0
"""Measure holds by the size of the fleet, compared with their minimum cost.

    make bench
    make bench ARGS="--nodes 1000 10000 --rounds 3"
    make bench ARGS="--steps groups --nodes 1000 100000"
    make bench ARGS="--server mysql --draw mysql.svg"
    make bench ARGS="--shapes"

A private MariaDB, or MySQL, with default durability; our application alone
under uWSGI with two workers per core, all of them warm; clients on keep-alive
connections. Every response is checked. The fleets take turns, and each figure
is the median of the rounds. "Floor" is the guarded UPDATE of a hold, an INSERT
and a COMMIT by raw PyMySQL, in the same round on the same database; "bare
floor" finds the node only by its ID. In fleets with "racks" a capability names
the rack of each node; racks have 40 nodes of one profile, enrolled rack by
rack or in random order. Milliseconds are for one client; rates and processor
times (CPU-ms per call) for eight.
"""

import argparse
import collections
import contextlib
import itertools
import logging
import os
import pathlib
import random
import statistics
import time
import uuid

import psutil
from rich import console
from rich import progress
from rich import table
import sqlalchemy as sa

from benchmark import clients
from benchmark import fleet
from benchmark import shapes
from tools import services

#: Database servers for the benchmark.
SERVERS = {'mariadb': services.mariadb, 'mysql': services.mysql}

#: Steps for each fleet, and for those with racks.
STEPS = ('few', 'many', 'used_up', 'none', 'capacity', 'taken', 'pools',
         'groups')
RACK_STEPS = ('few', 'none', 'capacity', 'groups')

GROUPS = ('eight holds', 'group of 8, soft-pack', 'group of 8, spread',
          'group of 64, soft-pack', 'eight holds in a group, soft-pack',
          'eight holds in a group, spread')

#: Shares of the nodes that are in a pool of the first of two projects.
POOLED, PROJECTS = (0, 0.01, 0.5), ('east', 'west')

#: Number of comparisons of several holds with one group, per round.
PAIRS = 8

#: Seconds of processor time of each worker before a measurement.
WARM = 0.5


class Measures:
    """One fleet, and our application on it.

    :param tell: function of a figure's name and the figure.
    :param racks: an item of ``fleet.RACKS``, or None without racks.
    """

    def __init__(self, size, ironic, processes, tell, racks=None):
        self.size, self.racks, self._url = size, racks, ironic.database_url
        self._check, self._tell = fleet.checker(size, racks), tell
        self._conf_file, self._processes = ironic.conf_file, processes
        self._port = self._process = None

    @contextlib.contextmanager
    def serving(self, keep=True):
        """Run our application, warm; yield its process.

        :param keep: False if nodes are rare, so that each is soon released.
        """
        with services.uwsgi(
                'ironic_reservations.wsgi:application', self._conf_file,
                services.free_port(), processes=self._processes,
                keepalive=True) as service:
            before = self._port, self._process
            self._port, self._process = service.port, service.process
            try:
                self.warm_up(keep)
                yield service.process
            finally:
                self._port, self._process = before

    def _workers(self):
        """Return the seconds of processor time of each worker, by PID."""
        return {child.pid: sum(child.cpu_times()[:2]) for child in
                psutil.Process(self._process.pid).children(recursive=True)}

    def _mariadb(self):
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

    def few(self):
        """One client."""
        times = min(100, self.size // 10)
        if not self.racks:
            self._tell('bare floor', self._run(
                clients.bare(self._url, has_guard=False), times).median)
            self._tell('floor',
                       self._run(clients.bare(self._url), times).median)
        for name, kinds in (('hold, mix', fleet.MIX),
                            ('hold, class given', fleet.WITH_CLASS),
                            ('hold, sizes alone', [fleet.sizes])):
            self._tell(name, self._run(self._holding(kinds), times).median)

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
        workers, mariadb = sum(self._workers().values()), self._mariadb()
        result = clients.run(client, times, clients.MANY)
        calls = times * clients.MANY
        self._tell(f'{name} rate', result.rate)
        self._tell(f'{name}, CPU of MariaDB',
                   (self._mariadb() - mariadb) * 1000 / calls)
        workers = sum(self._workers().values()) - workers
        self._tell(f'{name}, CPU of workers', workers * 1000 / calls)
        self._tell(f'{name}, CPU of clients', result.cpu)
        fleet.free_all(self._url)

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
            self._tell('hold, 99.9 % taken', self._run(
                self._holding(fleet.WITH_CLASS, keep=False), 100).median)

    def pools(self):
        """Nodes are in a pool of one of two projects.

        The service is started on each of these fleets, as in ``taken``.
        """
        for share in random.sample(POOLED, len(POOLED)):
            fleet.execute(
                self._url, 'INSERT INTO reservations_pools (id, uuid, '
                'project_id, request_spec, request_digest, generation, '
                "created_at) VALUES (1, UUID(), 'east', '{}', '', 0, NOW())",
                'INSERT INTO reservations_pool_nodes (node_id, node_uuid, '
                'pool_id, created_at) SELECT id, uuid, 1, NOW() FROM nodes '
                f'ORDER BY RAND() LIMIT {int(share * self.size)}')
            with self.serving():
                for project in PROJECTS:
                    kinds = [lambda profile, kind=kind, project=project: {
                        **kind(profile), 'project_id': project}
                        for kind in fleet.MIX]
                    self.warm_up(kinds=kinds)
                    self._tell(f'hold, {share:.0%} in pools, {project}',
                               self._run(self._holding(kinds), min(
                                   100, self.size // 10)).median)
            fleet.execute(self._url, 'DELETE FROM reservations_pool_nodes',
                          'DELETE FROM reservations_pools')

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
        by = f'capability:{"rack" if self.racks else "gpus"}'

        def post(path='', **body):
            began = time.perf_counter()
            request('POST', f'/v1/reservations{path}', 201, body)
            return (time.perf_counter() - began) * 1000

        def at_once(members, policy):
            return lambda spec: post('/groups', members=members, by=by,
                                     policy=policy, request=spec)

        def one_by_one(policy):
            def hold(spec):
                group = {'uuid': str(uuid.uuid4()), 'policy': policy,
                         'by': by}
                return sum(post(**spec, group=group) for _ in range(8))
            return hold

        ways = {'eight holds': lambda spec: sum(
                    post(**spec) for _ in range(8)),
                'group of 64, soft-pack': at_once(64, 'soft-pack')}
        for policy in ('soft-pack', 'spread') if self.racks else (
                'soft-pack',):
            ways |= {f'group of 8, {policy}': at_once(8, policy),
                     f'eight holds in a group, {policy}': one_by_one(policy)}
        times = collections.defaultdict(list)
        for _ in range(PAIRS):
            spec = {'resource_class': random.choice(fleet.PROFILES)[0]}
            for name, hold in random.sample([*ways.items()], len(ways)):
                times[name].append(hold(spec))
                fleet.free_all(self._url)
        for name, figures in times.items():
            self._tell(name, statistics.median(figures))
            self._tell(f'{name}: eight holds', statistics.median(
                figure / holds for figure, holds in zip(
                    figures, times['eight holds'], strict=True)))

    def none(self):
        """No node matches."""
        request = clients.Http(self._port).request
        self._tell('422 and why', 1000 * clients.seconds(lambda: request(
            'POST', '/v1/reservations', 422, {'memory_mb': 2 ** 30}), 3))

    def capacity(self):
        """Count the fleet, and run the smallest query about all nodes."""
        def scan():
            with fleet.connect(self._url) as connection:
                connection.cursor().execute(
                    'SELECT resource_class, provision_state, COUNT(*) '
                    'FROM nodes GROUP BY 1, 2')

        self._tell('smallest scan', 1000 * clients.seconds(scan, 3))
        request = clients.Http(self._port).request
        self._tell('capacity, counted', 1000 * clients.seconds(
            lambda: request('GET', '/v1/reservations/capacity', 200, **{
                'Cache-Control': 'no-cache'}), 3))


def serve(stack, *args, **kwargs):
    """Run our application on a fleet; return its Measures and process."""
    measures = Measures(*args, **kwargs)
    return measures, stack.enter_context(measures.serving())


def main():
    parser = argparse.ArgumentParser(
        prog='python -m benchmark', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--nodes', nargs='+', type=int,
                        default=[1000, 10000, 100000])
    parser.add_argument('--server', choices=SERVERS, default='mariadb')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--workers', type=int, default=2 * os.cpu_count())
    parser.add_argument('--steps', nargs='+', choices=STEPS, default=STEPS,
                        help='what to measure (default: all)')
    parser.add_argument('--draw', type=pathlib.Path,
                        default=pathlib.Path(
                            'doc/source/_images/performance.svg'),
                        help='where to draw it (default: %(default)s)')
    parser.add_argument('--shapes', action='store_true',
                        help='also measure fleets of many profiles and one '
                             'of a million nodes')
    args = parser.parse_args()
    services.stop_on_signal()
    # It logs the end of each process.
    logging.getLogger('pifpaf').setLevel('ERROR')
    figures = measure(args)
    show(args.nodes, figures)
    if len(args.nodes) > 1 and args.steps is STEPS:
        from benchmark import draw
        draw.draw(args.draw, args.nodes, figures)
        console.Console().print(f'drawn: {args.draw}')
    if args.shapes:
        shapes.show(shapes.SHAPES | shapes.LARGE,
                    args.draw.with_stem('shapes'))


def measure(args):
    """Return the medians of all rounds, by name and size."""
    figures = collections.defaultdict(list)
    with SERVERS[args.server]() as server, progress.Progress() as bar, \
            contextlib.ExitStack() as stack:
        def tells(size, more=''):
            def tell(name, figure):
                name += more
                figures[name, size].append(figure)
                bar.console.print(f'{size:,} nodes: {name}: {figure:.2f}')
            return tell

        services_ = []
        for size, racks in itertools.product(args.nodes,
                                             (*fleet.RACKS, None)):
            ironic = stack.enter_context(fleet.ironic(
                server, size, lambda steps, size=size: bar.track(
                    steps, description=f'enrolling {size:,} nodes'), racks))
            # Its memory may have grown.
            fleet.stop(ironic)
            services_.append(serve(
                stack, size, ironic, args.workers,
                tells(size, racks and f', {racks} racks' or ''), racks))
        work = [(step, measures) for _ in range(args.rounds)
                for step in args.steps
                for measures, _ in random.sample(services_, len(services_))
                if step in RACK_STEPS or not measures.racks]
        for step, measures in bar.track(work, description='rounds'):
            getattr(measures, step)()
        for measures, process in services_:
            if not measures.racks:
                tells(measures.size)('worker memory',
                                     fleet.peak_memory(process.pid))
    return {key: statistics.median(values)
            for key, values in figures.items()}


def show(sizes, figures):
    def print_table(title, rows):
        """Print a table.

        :param rows: the name of a figure, its digits, and a function of the
            name that returns the names of two figures to divide.
        """
        output = table.Table(title, *(f'{size:,} nodes' for size in sizes))
        for name, digits, compare in rows:
            cells = []
            for size in sizes:
                above, below = ((part, size) for part in compare(name))
                cells.append('' if (name, size) not in figures else (
                    f'{figures[name, size]:,.{digits}f}' + (
                        f' ({figures[above] / figures[below]:.2f})'
                        if above in figures and below in figures else '')))
            if any(cells):
                output.add_row(name, *cells)
        console.Console().print(output)

    few = ('bare floor', 'floor', 'hold, mix', 'hold, class given',
           'hold, sizes alone', 'hold, best fit used up',
           'hold, 99.9 % taken', *(
               f'hold, {share:.0%} in pools, {project}'
               for share in POOLED for project in PROJECTS),
           '422 and why', 'capacity, counted', 'smallest scan')

    print_table('one client: ms (times the floor)',
                [(name, 2, lambda name: (name, 'floor')) for name in few])
    print_table('eight clients: calls per second (the floor is times that)', [
        (name, 0, lambda name: ('floor rate', name)) for name in
        ('bare floor rate', 'floor rate', 'hold rate')])
    # In a hold, the worker does the work of a client of the bare database.
    print_table('eight clients: CPU-ms a call (times the floor)', [
        (f'{name}, CPU of {whose}', 2,
         lambda name, floor=floor: (name, f'floor, CPU of {floor}'))
        for name, whose, floor in (
            ('bare floor', 'clients', 'clients'),
            ('floor', 'clients', 'clients'), ('hold', 'workers', 'clients'),
            ('hold', 'clients', 'clients'),
            ('bare floor', 'MariaDB', 'MariaDB'),
            ('floor', 'MariaDB', 'MariaDB'),
            ('hold', 'MariaDB', 'MariaDB'))])
    fleets = ['', *(f', {racks} racks' for racks in fleet.RACKS)]
    print_table('groups, one client: ms', [
        (f'{name}{which}', 1, lambda name: (name, ''))
        for which in fleets for name in GROUPS])
    print_table('groups: times eight holds, of pairs', [
        (f'{name}: eight holds{which}', 2, lambda name: (name, ''))
        for which in fleets for name in GROUPS[1:]])
    print_table('racks (times the fleet without): ms', [
        (f'{name}{which}', 1,
         lambda name: (name, name.partition(', ordered')[0].partition(
             ', scattered')[0]))
        for name in ('hold, mix', 'hold, class given', 'hold, sizes alone',
                     '422 and why', 'capacity, counted')
        for which in fleets])
    print_table('memory: MiB', [
        ('worker memory', 0, lambda name: (name, ''))])
    goals = table.Table('', 'measured', 'goal')
    small, large = min(sizes), max(sizes)
    for title, above, below, goal in (
            ('sizes alone, times class given', 'hold, sizes alone',
             'hold, class given', 3),
            ('99.9 % taken, times class given', 'hold, 99.9 % taken',
             'hold, class given', 2),
            *((f'{share:.0%} in pools, times none, {project}',
               f'hold, {share:.0%} in pools, {project}',
               f'hold, 0% in pools, {project}', 1.1)
              for share in POOLED[1:] for project in PROJECTS),
            ('422, times the smallest scan', '422 and why', 'smallest scan',
             8),
            ('capacity, times the smallest scan', 'capacity, counted',
             'smallest scan', 8)):
        if {(above, large), (below, large)} <= figures.keys():
            figure = figures[above, large] / figures[below, large]
            goals.add_row(title, f'{figure:.2f}', f'at most {goal}')
    name = 'hold, class given'
    if (name, large) in figures:
        goals.add_row(
            f'class given, times that at {small:,} nodes',
            f'{figures[name, large] / figures[name, small]:.2f}',
            'at most 1.2')
    for name, goal in (('group of 8, soft-pack', 1.5),
                       ('eight holds in a group, soft-pack', 1.3)):
        if (name, large) in figures:
            goals.add_row(f'{name}, times eight holds',
                          f'{figures[f"{name}: eight holds", large]:.2f}',
                          f'at most {goal}')
    goals.title = f'at {large:,} nodes'
    console.Console().print(goals)


if __name__ == '__main__':
    main()
