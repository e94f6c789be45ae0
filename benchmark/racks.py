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

"Holds" are times the median hold of one node by class, and "scans" are times
the smallest query about all nodes; each is of the same fleet in the same run.
What is compared with scans is measured while all nodes are free. "SELECTs" and
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
from rich import console
from rich import table

from benchmark import clients
from benchmark import fleet
from benchmark import shapes
from ironic_reservations import metrics
from tools import services

#: Order of enrolment, and whether racks are mixed.
FLEETS = {'equal, in order': (fleet.ORDERED, False),
          'equal, round robin': (fleet.ROUND_ROBIN, False),
          'mixed, in order': (fleet.ORDERED, True),
          'mixed, round robin': (fleet.ROUND_ROBIN, True)}

REQUESTS = {
    'class': lambda profile: {'resource_class': profile[0]},
    'profile': fleet.exact,
}

#: In place of a policy: a group whose segments of 16 are in one rack each. A
#: mixed rack has no room for one.
SEGMENTS = 'segments'

#: Policy, members, and a name of ``REQUESTS``.
GROUPS = [*((policy, 8, request) for request in REQUESTS
            for policy in ('pack', 'soft-pack', 'spread')),
          ('soft-pack', 64, 'class'), (SEGMENTS, 64, 'class')]

#: Clients that race, for how many racks of one class, and its class.
CLIENTS, RACKS, CLASS = 16, 100, fleet.PROFILES[0][0]

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
            self.time('scan', self._cursor.execute, shapes.SCAN)
            self.time('422 of a pack', shapes.repeat, self._request, 'POST',
                      shapes.GROUPS, 422,
                      make_group('pack', 64, {'resource_class': CLASS}))
            self.time('capacity', self.capacity(headers=shapes.NOW))

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


def show(name, calls):
    """Print the figures of a fleet."""
    hold, scan = (statistics.median(calls.durations[unit])
                  for unit in ('hold', 'scan'))
    output = table.Table(
        name, 'ms', 'worst', 'holds', 'worst', 'SELECTs', 'most', 'counts',
        title=f'hold: {hold:.2f} ms, smallest scan: {scan:.1f} ms')
    for kind in calls.groups:
        durations = calls.durations[kind]
        selects, counts = zip(*calls.numbers[kind], strict=True)
        median, worst = statistics.median(durations), max(durations)
        output.add_row(
            '{} of {}, by {}'.format(*kind),
            f'{median:,.1f}', f'{worst:,.1f}', f'{median / hold:.1f}',
            f'{worst / hold:.1f}', f'{statistics.mean(selects):.1f}',
            str(max(selects)), f'{statistics.mean(counts):.2f}')
    console.Console(width=110).print(output)
    output = table.Table('', 'ms', 'worst', 'scans')
    for kind in ('422 of a pack', 'capacity'):
        durations = calls.durations[kind]
        median = statistics.median(durations)
        output.add_row(kind, f'{median:,.1f}', f'{max(durations):,.1f}',
                       f'{median / scan:.1f}')
    console.Console(width=110).print(output)


def race(ironic, processes, size):
    """Let clients race for racks of one class, and print the figures."""
    racks = min(RACKS, size // 400)
    # A pack finds room for three groups in a rack on average. Two are held,
    # with those by which the clients connect.
    times = racks * 2 // CLIENTS - 1
    total = CLIENTS * (times + 1)
    output = table.Table(
        f'{CLIENTS} clients, {processes} workers, {racks} racks', 'ms',
        'worst', 'groups/s', 'attempts', 'SELECTs', 'counts')
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
        output.add_row(
            f'{policy} of 8, by class', f'{result.median:,.1f}',
            f'{result.worst:,.1f}', f'{result.rate:,.1f}',
            f'{1 + conflicts / total:.2f}',
            *(f'{number / total:.2f}' for number in numbers))
    console.Console(width=110).print(output)


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
    parser.add_argument('--workers', type=int, default=2 * os.cpu_count(),
                        help='workers of the race; 0: no race')
    args = parser.parse_args()
    services.stop_on_signal()
    logging.getLogger('pifpaf').setLevel('ERROR')
    with services.mariadb() as server:
        for name in args.fleets:
            racks, is_mixed = FLEETS[name]
            with fleet.ironic(server, args.nodes, racks=racks,
                              is_mixed=is_mixed, config=_CONFIG) as ironic:
                fleet.stop(ironic)
                with shapes.run_api(ironic, 1) as service, fleet.connect(
                        ironic.database_url) as connection:
                    calls = Calls(service, ironic, connection, is_mixed)
                    calls.count(5)
                    ids = fleet.find_in_use(args.nodes, racks)
                    fleet.execute(
                        ironic.database_url, 'UPDATE nodes SET instance_uuid '
                        "= uuid, provision_state = 'active' "
                        f'WHERE id IN ({", ".join(map(str, ids))})')
                    calls.create_groups(args.series, args.length)
                show(f'{args.nodes:,} nodes, {name}', calls)
                if args.workers and not is_mixed and racks == fleet.ORDERED:
                    race(ironic, args.workers, args.nodes)


if __name__ == '__main__':
    main()
