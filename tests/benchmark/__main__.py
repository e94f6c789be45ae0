# SPDX-License-Identifier: Apache-2.0
"""What a hold costs, by size of the fleet, against what it cannot do without.

    make bench
    make bench ARGS="--nodes 1000 10000 --rounds 3"
    make bench ARGS="--steps groups --nodes 1000 100000 --without-peers"
    make bench ARGS="--server mysql --draw mysql.svg"
    make bench ARGS="--shapes"

A private MariaDB, or MySQL, at default durability; our application alone under
uWSGI with two workers for each core, all of them warm; clients on kept-alive
connections. Every answer is checked. The fleets take turns, and each figure is
the median of the rounds. "Floor" is the guarded UPDATE of a hold, an INSERT
and a COMMIT by raw PyMySQL, in the same round on the same database; "bare
floor" finds the node by its id alone. "Racks" are fleets in which a capability
names each node's rack, 40 nodes of one kind, enrolled one rack after the other
or in no order. Milliseconds are those of one client,
rates and processor times (CPU-ms a call) those of eight.
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
import tempfile
import time
from unittest import mock
import uuid

import psutil
from rich import console
from rich import progress
from rich import table
import sqlalchemy as sa

from tests.benchmark import beside
from tests.benchmark import clients
from tests.benchmark import fleet
from tests.benchmark import peers
from tests.benchmark import scarce
from tests.benchmark import shapes
from tools import services

#: The database servers on which it can be measured.
SERVERS = {'mariadb': services.mariadb, 'mysql': services.mysql}

#: Fleets of more nodes than this are measured once where it takes minutes.
LARGE = 20000


#: What is measured of each fleet, and of those with racks.
STEPS = ('few', 'many', 'used_up', 'none', 'capacity', 'taken', 'groups')
OF_RACKS = ('few', 'none', 'capacity', 'groups')

GROUPS = ('eight holds', 'group of 8, soft-pack', 'group of 8, spread',
          'group of 64, soft-pack', 'eight holds in a group, soft-pack',
          'eight holds in a group, spread')

#: How often several holds are compared with one group, in each round.
PAIRS = 8

#: What requests leave to the next ones; see ``without``.
STATES = ('shelves', 'rest')

#: Seconds of processor time that each worker spends before it is measured.
WARM = 0.5


class Measures:
    """One fleet, and our application on it.

    :param tell: function of a figure's name and the figure.
    :param without: one of ``STATES`` that the application goes without.
    :param racks: one of ``fleet.RACKS`` where the fleet has such; else None.
    :param counters: the folder in which it counts for Prometheus, where it
        is asked to; see ``counted``.
    :param headers: more that the clients send.
    """

    def __init__(self, size, ironic, processes, tell, without='', racks=None,
                 counters='', headers=None):
        self.size, self.racks, self._url = size, racks, ironic.database_url
        self._check, self._tell = fleet.checker(size, racks), tell
        self._conf_file, self._processes = ironic.conf_file, processes
        self._without, self._counters = without, counters
        self._headers = headers or {}
        self._port = self._process = None

    @contextlib.contextmanager
    def serving(self, keep=True):
        """Our application, warm; its process.

        :param keep: else nodes are rare, and none is kept for long.
        """
        application = ('tests.benchmark.without' if self._without else
                       'tests.benchmark.counted' if self._counters else
                       'ironic_reservations.wsgi')
        with mock.patch.dict(
                os.environ, WITHOUT=self._without,
                PROMETHEUS_MULTIPROC_DIR=self._counters), \
                services.uwsgi(
                    f'{application}:application', self._conf_file,
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
        """Seconds of processor time of each worker, by its process id."""
        return {child.pid: sum(child.cpu_times()[:2]) for child in
                psutil.Process(self._process.pid).children(recursive=True)}

    def _mariadb(self):
        """Seconds of processor time of the database."""
        path = sa.make_url(self._url).query['unix_socket']
        [server] = [child for child in psutil.Process().children(
            recursive=True) if f'--socket={path}' in child.cmdline()]
        return sum(server.cpu_times()[:2])

    def _sql(self, *statements):
        with fleet.connected(self._url) as connection:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
            connection.commit()

    def free_all(self):
        self._sql('UPDATE nodes SET instance_uuid = NULL '
                  'WHERE instance_uuid IS NOT NULL',
                  'DELETE FROM reservations',
                  'DELETE FROM reservations_groups')

    def _run(self, client, times, number=1):
        result = clients.run(client, times, number)
        self.free_all()
        return result

    def _holding(self, kinds=fleet.MIX, keep=True):
        return clients.holding(self._port, kinds, self._check, keep,
                               **self._headers)

    def warm_up(self, keep=True):
        """Let every worker hold nodes, however the router shares them out."""
        begun = self._workers()
        # One of the processes is the router, which takes less.
        while sum(spent - begun.get(pid, 0) > WARM for pid, spent
                  in self._workers().items()) < self._processes:
            if keep:
                self._run(self._holding(), min(20, self.size // 40),
                          clients.MANY)
            else:
                # One client, because two may want the same last node.
                clients.run(self._holding(fleet.WITH_CLASS, keep), 20)

    def few(self, floor=True):
        """One client."""
        times = min(100, self.size // 10)
        if floor and not self.racks:
            self._tell('bare floor', self._run(
                clients.bare(self._url, guarded=False), times).median)
            self._tell('floor',
                       self._run(clients.bare(self._url), times).median)
        for name, kinds in (('hold, mix', fleet.MIX),
                            ('hold, class given', fleet.WITH_CLASS),
                            ('hold, sizes alone', [fleet.sizes])):
            self._tell(name, self._run(self._holding(kinds), times).median)

    def many(self, floor=True):
        """Many clients, for some seconds if the fleet is large enough.

        The profiles are counted before; a process counts them anew for a
        fiftieth of its time at most.
        """
        if floor:
            for name, guarded in (('bare floor', False), ('floor', True)):
                self._rate(name, clients.bare(self._url, guarded),
                           min(800, self.size // 10))
        self.warm_up()
        self._rate('hold', self._holding(), min(400, self.size // 40))

    def _rate(self, name, client, times):
        """What many clients get, and what it costs the processors."""
        workers, mariadb = sum(self._workers().values()), self._mariadb()
        result = clients.run(client, times, clients.MANY)
        calls = times * clients.MANY
        self._tell(f'{name} rate', result.rate)
        self._tell(f'{name}, CPU of MariaDB',
                   (self._mariadb() - mariadb) * 1000 / calls)
        workers = sum(self._workers().values()) - workers
        self._tell(f'{name}, CPU of workers', workers * 1000 / calls)
        self._tell(f'{name}, CPU of clients', result.cpu)
        self.free_all()

    def counted(self):
        """With and without counting for Prometheus, in turn."""
        times = min(400, self.size // 2)
        for counted in random.sample(('yes', 'no'), 2):
            workers = sum(self._workers().values())
            result = self._run(clients.holding(
                self._port, fleet.MIX, self._check, counted=counted), times)
            self._tell(f'hold, counted: {counted}', result.median)
            self._tell(f'hold, counted: {counted}, CPU of workers', (
                sum(self._workers().values()) - workers) * 1000 / times)

    def taken(self):
        """Nodes are rare: one in 1,000, one of each profile at least.

        The service starts on such a fleet: one that has counted another
        goes by that for fifty times as long as counting takes.
        """
        left = ', '.join(map(str, fleet.scattered(self.size)))
        self._sql('UPDATE nodes SET instance_uuid = uuid',
                  'UPDATE nodes SET instance_uuid = NULL '
                  f'WHERE id IN ({left})')
        with self.serving(keep=False):
            self._tell('hold, 99.9 % taken', self._run(
                self._holding(fleet.WITH_CLASS, keep=False), 100).median)

    def used_up(self):
        """The nodes that fit best are taken; larger ones are left."""
        taken = fleet.of_profile(self.size, fleet.SMALLEST)
        self._sql('UPDATE nodes SET instance_uuid = uuid '
                  f'WHERE id IN ({", ".join(map(str, taken))})')

        def smallest(profile):
            return fleet.sizes(fleet.SMALLEST)

        self._tell('hold, best fit used up',
                   self._run(self._holding([smallest]), 100).median)

    def groups(self):
        """Several at once, against one after the other: pairs, one client.

        Each begins on a fleet in which all nodes are free.
        """
        request = clients.Http(self._port).request
        by = f'capability:{"rack" if self.racks else "gpus"}'

        def post(path='', **body):
            began = time.perf_counter()
            request('POST', f'/v1/reservations{path}', 201, body)
            return (time.perf_counter() - began) * 1000

        def at_once(members, policy):
            return lambda asked: post('/groups', members=members, by=by,
                                      policy=policy, request=asked)

        def one_by_one(policy):
            def hold(asked):
                group = {'uuid': str(uuid.uuid4()), 'policy': policy,
                         'by': by}
                return sum(post(**asked, group=group) for _ in range(8))
            return hold

        ways = {'eight holds': lambda asked: sum(
                    post(**asked) for _ in range(8)),
                'group of 64, soft-pack': at_once(64, 'soft-pack')}
        for policy in ('soft-pack', 'spread') if self.racks else (
                'soft-pack',):
            ways |= {f'group of 8, {policy}': at_once(8, policy),
                     f'eight holds in a group, {policy}': one_by_one(policy)}
        taken = collections.defaultdict(list)
        for _ in range(PAIRS):
            asked = {'resource_class': random.choice(fleet.PROFILES)[0]}
            for name, hold in random.sample([*ways.items()], len(ways)):
                taken[name].append(hold(asked))
                self.free_all()
        for name, figures in taken.items():
            self._tell(name, statistics.median(figures))
            self._tell(f'{name}: eight holds', statistics.median(
                figure / holds for figure, holds in zip(
                    figures, taken['eight holds'], strict=True)))

    def none(self):
        """No node matches."""
        request = clients.Http(self._port).request
        self._tell('422 and why', 1000 * peers.seconds(lambda: request(
            'POST', '/v1/reservations', 422, {'memory_mb': 2 ** 30}), 3))

    def capacity(self):
        """The fleet counted, and the least that can be asked of all nodes."""
        def scan():
            with fleet.connected(self._url) as connection:
                connection.cursor().execute(
                    'SELECT resource_class, provision_state, COUNT(*) '
                    'FROM nodes GROUP BY 1, 2')

        self._tell('smallest scan', 1000 * peers.seconds(scan, 3))
        request = clients.Http(self._port).request
        self._tell('capacity, counted', 1000 * peers.seconds(
            lambda: request('GET', '/v1/reservations/capacity', 200, **{
                'Cache-Control': 'no-cache'}), 3))


def serve(stack, *args, **kwargs):
    """Our application on a fleet; Measures, and its process."""
    measures = Measures(*args, **kwargs)
    return measures, stack.enter_context(measures.serving())


def main():
    parser = argparse.ArgumentParser(
        prog='python -m tests.benchmark', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--nodes', nargs='+', type=int,
                        default=[1000, 10000, 100000])
    parser.add_argument('--server', choices=SERVERS, default='mariadb')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--workers', type=int, default=2 * os.cpu_count())
    parser.add_argument('--steps', nargs='+', choices=STEPS, default=STEPS,
                        help='what to measure (default: all)')
    parser.add_argument('--without-peers', action='store_true',
                        help='not Ironic and the list of nodes, which take '
                             'most of the time')
    parser.add_argument('--draw', type=pathlib.Path,
                        default=pathlib.Path('doc/source/performance.svg'),
                        help='where to draw it (default: %(default)s)')
    parser.add_argument('--shapes', action='store_true',
                        help='fleets of many profiles and one of a million '
                             'nodes, and clients where nodes are rare, too')
    args = parser.parse_args()
    services.stop_on_signal()
    # It tells of each process that has ended.
    logging.getLogger('pifpaf').setLevel('ERROR')
    found = measure(args)
    show(args.nodes, found)
    if len(args.nodes) > 1 and args.steps is STEPS:
        from tests.benchmark import draw
        draw.draw(args.draw, args.nodes, found)
        console.Console().print(f'drawn: {args.draw}')
    if args.shapes:
        scarce.show(scarce.CLIENTS, 15, args.workers)
        shapes.show(shapes.SHAPES | shapes.LARGE,
                    args.draw.with_stem('shapes'))


def measure(args):
    """Figures by name and size: a median of the rounds each."""
    figures = collections.defaultdict(list)
    with SERVERS[args.server]() as server, progress.Progress() as bar, \
            contextlib.ExitStack() as stack:
        def tells(size, more=''):
            def tell(name, figure):
                name += more
                figures[name, size].append(figure)
                bar.console.print(f'{size:,} nodes: {name}: {figure:.2f}')
            return tell

        served = []
        # Those with racks first: what follows the fleets is of the last.
        for size, racks in itertools.product(args.nodes,
                                             (*fleet.RACKS, None)):
            ironic = stack.enter_context(fleet.ironic(
                server, size, lambda steps, size=size: bar.track(
                    steps, description=f'enrolling {size:,} nodes'), racks))
            if not (args.without_peers or racks):
                task = bar.add_task(f'Ironic with {size:,} nodes', total=None)
                for name, figure in peers.measure(
                        ironic, 1 if size > LARGE else 3):
                    tells(size)(name, figure)
                bar.remove_task(task)
            # It may have grown large.
            fleet.end(ironic)
            with fleet.connected(ironic.database_url) as connection:
                connection.cursor().execute(
                    'UPDATE nodes SET instance_uuid = NULL, '
                    'allocation_id = NULL, reservation = NULL')
                connection.commit()
            served.append(serve(
                stack, size, ironic, args.workers,
                tells(size, racks and f', {racks} racks' or ''), '', racks))
        others = {}
        for name, elsewhere in beside.ALL.items():
            try:
                other, headers = stack.enter_context(elsewhere(ironic, size))
            except services.NotInstalled as e:
                bar.console.print(f'{e}: not measured')
                continue
            others[name], _ = serve(stack, size, other, args.workers,
                                    tells(size, f', {name}'),
                                    headers=headers)
        work = [(step, each) for _ in range(args.rounds)
                for step in args.steps
                for each, _ in random.sample(served, len(served))
                if step in OF_RACKS or not each.racks]
        for step, each in bar.track(work, description='rounds'):
            getattr(each, step)()
            if step in ('few', 'many') and each is served[-1][0]:
                for name, other in others.items():
                    getattr(other, step)(floor=name == 'MySQL')
        for each, process in served:
            if not each.racks:
                tells(each.size)('worker memory',
                                 peers.peak_memory(process.pid))
        if args.steps is STEPS:
            with tempfile.TemporaryDirectory() as counters:
                measures = Measures(size, ironic, 1, tells(size),
                                    counters=counters)
                with measures.serving():
                    for _ in range(10 * args.rounds):
                        measures.counted()
        for state in STATES if args.steps is STEPS else ():
            measures = Measures(size, ironic, args.workers,
                                tells(size, f', without {state}'), state)
            with measures.serving():
                for _ in range(args.rounds):
                    measures.few(floor=False)
                    measures.many(floor=False)
                    measures.used_up()
    return {key: statistics.median(values)
            for key, values in figures.items()}


def show(sizes, found):
    def print_table(title, rows):
        """Rows of a figure's name, its digits, and what it is compared to.

        The last is a function of the name: a pair of names to divide.
        """
        shown = table.Table(title, *(f'{size:,} nodes' for size in sizes))
        for name, digits, compare in rows:
            cells = []
            for size in sizes:
                above, below = ((each, size) for each in compare(name))
                cells.append('' if (name, size) not in found else (
                    f'{found[name, size]:,.{digits}f}' + (
                        f' ({found[above] / found[below]:.2f})'
                        if above in found and below in found else '')))
            if any(cells):
                shown.add_row(name, *cells)
        console.Console().print(shown)

    few = ('bare floor', 'floor', 'hold, mix', 'hold, class given',
           'hold, sizes alone', 'hold, best fit used up',
           'hold, 99.9 % taken', 'hold, mix, mysqlclient',
           'hold, mix, with Keystone', 'floor, MySQL', 'hold, mix, MySQL',
           'hold, counted: yes', 'hold, counted: no', '422 and why',
           'capacity, counted', 'smallest scan')

    def floor(name, of='floor'):
        """The floor on the same database server."""
        return f'{of}, MySQL' if name.endswith(', MySQL') else of

    print_table('one client: ms (times the floor)',
                [(name, 2, lambda name: (name, floor(name))) for name in few])
    print_table('eight clients: calls per second (the floor is times that)', [
        (name, 0, lambda name: (floor(name, 'floor rate'), name)) for name in
        ('bare floor rate', 'floor rate', 'hold rate',
         'hold rate, mysqlclient', 'hold rate, with Keystone',
         'floor rate, MySQL', 'hold rate, MySQL')])
    # What a client of the bare database does, a worker does in a hold.
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
    for state in STATES:
        print_table(f'without {state} (times that with it)', [
            (f'{what}, without {state}', digits,
             lambda name: (name, name.rpartition(', without')[0]))
            for what, digits in (
                ('hold, mix', 2), ('hold, best fit used up', 2),
                ('hold rate', 0), ('hold, CPU of workers', 2),
                ('hold, CPU of MariaDB', 2))])
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
    print_table('Ironic itself (times ours)', [
        ('allocation', 0, lambda name: (name, 'hold, mix')),
        ('allocation rate', 2, lambda name: (name, '')),
        ('node list', 0, lambda name: (name, 'capacity, counted')),
        ('allocation memory', 0, lambda name: (name, 'worker memory')),
        ('worker memory', 0, lambda name: (name, ''))])
    goals = table.Table('', 'measured', 'wanted')
    small, large = min(sizes), max(sizes)
    for title, above, below, wanted in (
            ('hold, times the floor, one client', 'hold, mix', 'floor', 4),
            ('floor, times the holds, eight clients', 'floor rate',
             'hold rate', 4),
            ('sizes alone, times class given', 'hold, sizes alone',
             'hold, class given', 3),
            ('99.9 % taken, times class given', 'hold, 99.9 % taken',
             'hold, class given', 2),
            ('counted for Prometheus, CPU of workers, times not counted',
             'hold, counted: yes, CPU of workers',
             'hold, counted: no, CPU of workers', 1.01),
            ('422, times the smallest scan', '422 and why', 'smallest scan',
             4)):
        if {(above, large), (below, large)} <= found.keys():
            figure = found[above, large] / found[below, large]
            goals.add_row(title, f'{figure:.2f}', f'at most {wanted}')
    given = 'hold, class given'
    if (given, large) in found:
        goals.add_row(
            f'class given, times that at {small:,} nodes',
            f'{found[given, large] / found[given, small]:.2f}', 'at most 1.2')
    for name, wanted in (('group of 8, soft-pack', 1.5),
                         ('eight holds in a group, soft-pack', 1.3)):
        if (name, large) in found:
            goals.add_row(f'{name}, times eight holds',
                          f'{found[f"{name}: eight holds", large]:.2f}',
                          f'at most {wanted}')
    goals.title = f'at {large:,} nodes'
    console.Console().print(goals)


if __name__ == '__main__':
    main()
