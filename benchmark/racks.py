# SPDX-License-Identifier: Apache-2.0
"""Measure groups in many racks, compared with holds of one node.

    python -m benchmark.racks
    python -m benchmark.racks --nodes 20000 --fleets "mixed, in order"

Racks have 40 nodes of one hardware profile; or mixed nodes, ten of one profile
and 30 of others. They are enrolled rack by rack, or round robin: one node of
each rack after the other. A group is requested by its resource class, or by
one profile. Two nodes in five are in use, from none to 80 % of a rack. Several
equal groups are created in a row, because an outdated count may lead the
second one to the rack of the first; then all are released, and the fleet is
counted. Our application has one worker.

Groups are compared with the median hold of one node by class, and what counts
the fleet with the smallest query about all nodes; each is of the same fleet in
the same run. The latter is measured while all nodes are free. "SELECTs" and
"counts" of the whole fleet are means of a group. Finally, clients race for the
equal racks of one class, with several workers.
"""

import argparse
import collections
import contextlib
import logging
import os
import pathlib
import random
import statistics
import tempfile
import time

import prometheus_client
from prometheus_client import multiprocess

from benchmark import clients
from benchmark import fleet
from benchmark import page
from benchmark import shapes
from ironic_reservations import metrics
from tools import services

#: Order of enrolment, and whether racks are mixed.
FLEETS = {'equal, in order': (fleet.ORDERED, False),
          'equal, round robin': (fleet.ROUND_ROBIN, False),
          'mixed, in order': (fleet.ORDERED, True),
          'mixed, round robin': (fleet.ROUND_ROBIN, True)}

#: Those in the documentation.
SHORT = 'equal, in order', 'mixed, in order'

REQUESTS = {
    'resource class': lambda profile: {'resource_class': profile[0]},
    'profile': fleet.exact,
}

#: In place of a policy: a group whose segments of 16 are in one rack each. A
#: mixed rack has no room for one.
SEGMENTS = 'segments of 16'

#: Policy, members, and a name of ``REQUESTS``.
GROUPS = [*((policy, 8, request) for request in REQUESTS
            for policy in ('pack', 'soft-pack', 'spread')),
          ('soft-pack', 64, 'resource class'),
          (SEGMENTS, 64, 'resource class')]

#: Clients that race, for how many racks of one class, and its class.
CLIENTS, RACKS, CLASS = 16, 100, fleet.PROFILES[0][0]

#: Number of workers in the race.
WORKERS = 2 * os.cpu_count()

# Logs each count of the fleet.
_CONFIG = {'DEFAULT': {'default_log_levels': (
    'sqlalchemy=WARN,ironic_reservations.fleet.counts=DEBUG')}}


def make_group(policy, members, spec):
    group = shapes.make_group(members, policy, shapes.RACK, spec)
    if policy == SEGMENTS:
        del group['policy'], group['by']
        group['levels'] = [
            {'policy': 'pack', 'by': shapes.RACK, 'segment': 16}]
    return group


class Counters:
    """Numbers of SELECT statements, and of counts of the fleet."""

    def __init__(self, connection, log):
        self._cursor, self._log = connection.cursor(), pathlib.Path(log)

    def read(self):
        self._cursor.execute("SHOW GLOBAL STATUS LIKE 'Com_select'")
        return (int(self._cursor.fetchone()[1]),
                self._log.read_text().count('Counted '))

    @contextlib.contextmanager
    def counting(self):
        """Yield a list, to which the increases are added at the end."""
        before, numbers = self.read(), []
        yield numbers
        numbers += [after - start for after, start in zip(
            self.read(), before, strict=True)]


class Calls(shapes.Calls):
    """Calls to one worker on a fleet.

    :ivar groups: the items of ``GROUPS`` for which the racks have room.
    :ivar durations: milliseconds of each call, by its name.
    :ivar numbers: see ``Counters``, of each call.
    """

    def __init__(self, service, ironic, connection, is_mixed):
        super().__init__(service, ironic.database_url)
        self.groups = [kind for kind in GROUPS
                       if not (is_mixed and kind[0] == SEGMENTS)]
        self._cursor = connection.cursor()
        self._counters = Counters(connection, service.log)
        self.durations = collections.defaultdict(list)
        self.numbers = collections.defaultdict(list)

    def time(self, name, call, *args):
        with self._counters.counting() as numbers:
            began = time.perf_counter()
            call(*args)
            duration = time.perf_counter() - began
        self.durations[name].append(duration * 1000)
        self.numbers[name].append(numbers)

    def reset(self):
        """Release all reservations, and let the worker count the fleet."""
        release(self._url)
        self.capacity(headers=shapes.NOW)()

    def count(self, times):
        """Measure requests that count the whole fleet."""
        self.reset()
        for _ in range(times):
            self.time('smallest query about all nodes',
                      self._cursor.execute, shapes.SCAN)
            self.time('refusal of a group', shapes.repeat, self._request,
                      'POST', shapes.GROUPS, 422,
                      make_group('pack', 64, {'resource_class': CLASS}))
            self.time('capacity, not cached',
                      self.capacity(headers=shapes.NOW))

    def create_groups(self, times, length):
        """Measure single holds and groups.

        :param length: number of equal groups of eight in a row.
        """
        for _ in range(times):
            for kind in random.sample(self.groups, len(self.groups)):
                policy, members, request = kind
                spec = REQUESTS[request](random.choice(fleet.PROFILES))
                self.reset()
                for _ in range(16):
                    self.time('hold', self.hold)
                self.reset()
                for _ in range(length if members == 8 else 3):
                    self.time(kind, shapes.repeat, self._request, 'POST',
                              shapes.GROUPS, 201,
                              make_group(policy, members, spec))


def release(url):
    """Release all reservations, but not the other nodes in use."""
    fleet.execute(url, 'UPDATE nodes JOIN reservations '
                  'ON nodes.id = reservations.node_id '
                  'SET nodes.instance_uuid = NULL',
                  'DELETE FROM reservations',
                  'DELETE FROM reservations_groups')


def show(output, results, size, note):
    """Show the figures of all fleets.

    :param results: ``Calls`` by the name of the fleet.
    """
    for name, calls in results.items():
        rows = []
        for kind in calls.groups:
            selects, counts = zip(*calls.numbers[kind], strict=True)
            rows.append([
                name_group(kind), f'{statistics.mean(selects):.1f}',
                str(max(selects)), f'{statistics.mean(counts):.2f}'])
        output.show(None, name, ['a group', 'SELECTs', 'most', 'counts'],
                    rows, note)

    def compare(kind, calls, unit):
        """Return the median and the worst duration of a call, in units."""
        one = statistics.median(calls.durations[unit])
        durations = calls.durations.get(kind)
        return [f'{value / one:.1f}' for value in (
            statistics.median(durations), max(durations))] if durations else [
                '–', '–']

    for name, unit, kinds in (
            ('racks', 'hold', [kind for kind in GROUPS if any(
                kind in calls.groups for calls in results.values())]),
            ('racks-counts', 'smallest query about all nodes',
             ['refusal of a group', 'capacity, not cached'])):
        output.show(
            name, f'{size:,} nodes in racks: times the {unit}, median and '
            'worst', ['', *(title for fleet_ in results
                            for title in (fleet_, 'worst'))],
            [[kind if isinstance(kind, str) else name_group(kind),
              *(cell for calls in results.values()
                for cell in compare(kind, calls, unit))] for kind in kinds],
            note)


def name_group(kind):
    return '{}, {} nodes, by {}'.format(*kind)


def race(ironic, processes, size, output):
    """Let clients race for racks of one class, and show the figures."""
    racks = min(RACKS, size // 400)
    # A pack finds room for three groups in a rack on average. Two are held,
    # with those by which the clients connect.
    times = racks * 2 // CLIENTS - 1
    total = CLIENTS * (times + 1)
    rows = []
    for policy in ('pack', 'soft-pack', 'spread'):
        def client(seed, policy=policy):
            request = clients.Http(service.port).request
            while True:
                began = time.perf_counter()
                shapes.repeat(
                    request, 'POST', shapes.GROUPS, 201,
                    make_group(policy, 8, {'resource_class': CLASS}))
                yield time.perf_counter() - began

        release(ironic.database_url)
        fleet.execute(
            ironic.database_url, 'UPDATE nodes SET instance_uuid = uuid '
            f"WHERE resource_class = '{CLASS}' AND id > (SELECT MAX(id) FROM "
            f"(SELECT id FROM nodes WHERE resource_class = '{CLASS}' "
            f'ORDER BY id LIMIT {racks * 40}) AS some)')
        with tempfile.TemporaryDirectory() as folder:
            os.environ[metrics.VARIABLE] = folder
            with shapes.run_api(ironic, processes) as service, fleet.connect(
                    ironic.database_url) as connection, Counters(
                        connection, service.log).counting() as numbers:
                result = clients.run(client, times, CLIENTS)
            del os.environ[metrics.VARIABLE]
            registry = prometheus_client.CollectorRegistry()
            multiprocess.MultiProcessCollector(registry, folder)
            conflicts = registry.get_sample_value(
                'ironic_reservations_conflicts_total') or 0
        rows.append([
            f'{policy}, 8 nodes', f'{result.median:,.1f}',
            f'{result.worst:,.1f}', f'{result.rate:,.1f}',
            f'{1 + conflicts / total:.2f}',
            *(f'{number / total:.2f}' for number in numbers)])
    output.show(
        'race', f'{CLIENTS} clients race for groups in {racks} racks',
        ['', 'ms', 'worst', 'groups per second', 'attempts', 'SELECTs',
         'counts'], rows, page.describe(
             f'{processes} workers of the API', ironic.database_url))


def measure(output, fleets=SHORT, size=100_000, series=1, length=6,
            workers=WORKERS):
    """Measure some fleets.

    :param output: a page.Page.
    :param series, length: see the help of the options.
    :param workers: workers of the race, or 0.
    """
    results = {}
    with services.mariadb() as server:
        for name in fleets:
            print(f'-- {size:,} nodes, {name}', flush=True)
            racks, is_mixed = FLEETS[name]
            with fleet.ironic(server, size, racks=racks, is_mixed=is_mixed,
                              config=_CONFIG) as ironic:
                fleet.stop(ironic)
                with shapes.run_api(ironic, 1) as service, fleet.connect(
                        ironic.database_url) as connection:
                    calls = Calls(service, ironic, connection, is_mixed)
                    calls.count(3)
                    ids = fleet.find_in_use(size, racks)
                    fleet.execute(
                        ironic.database_url, 'UPDATE nodes SET instance_uuid '
                        "= uuid, provision_state = 'active' "
                        f'WHERE id IN ({", ".join(map(str, ids))})')
                    calls.create_groups(series, length)
                results[name] = calls
                if workers and not is_mixed and racks == fleet.ORDERED:
                    race(ironic, workers, size, output)
                note = page.describe('one worker of the API',
                                     ironic.database_url)
    show(output, results, size, note)


def main():
    parser = argparse.ArgumentParser(
        prog='python -m benchmark.racks', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--nodes', type=int, default=100_000,
                        help='at least 20000 (default: %(default)s)')
    parser.add_argument('--fleets', nargs='+', choices=FLEETS, default=FLEETS,
                        help='names of fleets (default: all)')
    parser.add_argument('--series', type=int, default=3,
                        help='how often each is measured (default: '
                             '%(default)s)')
    parser.add_argument('--length', type=int, default=6,
                        help='groups in a row (default: %(default)s)')
    parser.add_argument('--workers', type=int, default=WORKERS,
                        help='workers of the race; 0: no race')
    page.add_argument(parser)
    args = parser.parse_args()
    services.stop_on_signal()
    logging.getLogger('pifpaf').setLevel('ERROR')
    measure(page.Page(args.write), args.fleets, args.nodes, args.series,
            args.length, args.workers)


if __name__ == '__main__':
    main()
