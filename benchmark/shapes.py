# SPDX-License-Identifier: Apache-2.0
"""Measure calls by the shape of a fleet.

    python -m benchmark.shapes
    python -m benchmark.shapes --large

Fleets have many hardware profiles, because a capability names each node's
rack: 2,500 racks of 40 equal nodes, enrolled rack by rack or in random order,
or of mixed hardware; racks of 5 equal nodes; and with ``--large`` a million
nodes, with the 40 profiles of all other benchmarks. Our application has one
worker. The output is the median of several calls in a row, and in brackets the
milliseconds of processor time of worker and MariaDB, which hardly depend on
other load of the machine. Compare with the eight holds and the smallest query
about all nodes of the same run.
"""

import argparse
import contextlib
import itertools
import logging
import random
import statistics
import time
import uuid

import psutil
import tenacity

from benchmark import clients
from benchmark import fleet
from benchmark import page
from tools import services

#: Number of nodes, order of enrolment, and SQL for the rack of a node. The
#: order is None if racks have no names, except those of the SQL.
SHAPES = {'40 profiles': (100_000, None, None),
          '2,500 racks': (100_000, None, '(id - 1) DIV 40'),
          'mixed hardware': (100_000, None, 'id MOD 2500'),
          '20,000 profiles': (100_000, None, '(id - 1) DIV 5'),
          'in any order': (100_000, fleet.SCATTERED, None),
          '4,000 profiles': (20_000, None, '(id - 1) DIV 5')}
LARGE = {'a million nodes': (1_000_000, None, None)}

#: Further nodes are copied from these by the database, which is quicker.
ENROLLED = 100_000

OURS, RACK = '/v1/reservations', 'capability:rack'
GROUPS = f'{OURS}/groups'
NOW = {'Cache-Control': 'no-cache'}

#: The smallest query about all nodes.
SCAN = ('SELECT resource_class, provision_state, instance_uuid IS NULL, '
        'COUNT(*) FROM nodes GROUP BY 1, 2, 3')


@contextlib.contextmanager
def run_ironic(server, size, order):
    """Run a fleet; yield a tools.services.Service."""
    with fleet.ironic(server, min(size, ENROLLED), racks=order) as ironic:
        fleet.stop(ironic)
        with fleet.connect(ironic.database_url) as connection, \
                connection.cursor() as cursor:
            for more in range(ENROLLED, size, ENROLLED):
                _copy(cursor, more)
            connection.commit()
        yield ironic


def name_racks(url, rack):
    """Name the racks of a fleet.

    :param rack: SQL for the rack of a node, or None.
    """
    name = f"CONCAT('rack:r', {rack}, ',boot')" if rack else "'boot'"
    fleet.execute(
        url, 'UPDATE nodes SET properties = REGEXP_REPLACE(properties, '
        f"'(rack:r[0-9]+,)?boot', {name})",
        'ANALYZE TABLE nodes, node_traits')


def run_api(ironic, processes):
    """Run our application on a fleet; yield a tools.services.Service."""
    return services.uwsgi('ironic_reservations.wsgi:application',
                          ironic.conf_file, services.free_port(),
                          processes=processes, keepalive=True)


def _copy(cursor, more):
    """Copy the first nodes, with IDs that are higher by a number."""
    for name, own in (('nodes', {
            'id': f'id + {more}', 'uuid': 'UUID()',
            'name': f"CONCAT('node-', id + {more})"}),
            ('node_traits', {'node_id': f'node_id + {more}'})):
        cursor.execute(f'SELECT * FROM {name} LIMIT 0')
        columns = [column[0] for column in cursor.description]
        cursor.execute(
            f'INSERT INTO {name} ({", ".join(columns)}) SELECT '
            + ', '.join(own.get(column, column) for column in columns)
            + f' FROM {name} WHERE {next(iter(own))} <= {ENROLLED}')


def make_group(members, policy, by, request):
    """Return the body of a request for a new group."""
    return {'uuid': str(uuid.uuid4()), 'members': members, 'policy': policy,
            'by': by, 'request': request}


@tenacity.retry(reraise=True, stop=tenacity.stop_after_attempt(10),
                retry=tenacity.retry_if_exception_message(match='.*: 503 '))
def repeat(request, *args, **headers):
    """Repeat a request after a 503: the service continues its count."""
    return request(*args, **headers)


class Calls:
    """Calls to our application on a fleet, and their figures.

    :ivar figures: milliseconds by the name of the call: duration, processor
        time of the worker, and of MariaDB.
    """

    def __init__(self, service, database_url):
        self._request = clients.Http(service.port).request
        self._url, self.figures = database_url, {}
        # The worker, and its router, which uses little.
        self._service = psutil.Process(service.process.pid).children(
            recursive=True)
        self._server = [child for child in psutil.Process().children(
            recursive=True) if child.name() in ('mysqld', 'mariadbd')]

    def _spent(self):
        return [1000 * sum(sum(process.cpu_times()[:2])
                           for process in processes)
                for processes in (self._service, self._server)]

    def time(self, name, times, call):
        """Repeat a call on a fleet in which all nodes are free."""
        durations, spent = [], [0, 0]
        for _ in range(times):
            before, began = self._spent(), time.perf_counter()
            call()
            durations.append((time.perf_counter() - began) * 1000)
            spent = [total + after - start for total, after, start in zip(
                spent, self._spent(), before, strict=True)]
            fleet.free_all(self._url)
        self.figures[name] = (statistics.median(durations),
                              *(total / times for total in spent))
        print(f'{name}: {self.figures[name][0]:,.0f} ms', flush=True)

    def hold(self, **body):
        self._request('POST', OURS, 201, {
            'resource_class': random.choice(fleet.PROFILES)[0], **body})

    def eight_holds(self):
        for _ in range(8):
            self.hold()

    def group(self, members, policy, by):
        return lambda: self._request('POST', GROUPS, 201, make_group(
            members, policy, by,
            {'resource_class': random.choice(fleet.PROFILES)[0]}))

    def capacity(self, query='', headers=None):
        return lambda: repeat(self._request, 'GET', f'{OURS}/capacity{query}',
                              200, **(headers or {}))

    def none(self):
        repeat(self._request, 'POST', OURS, 422, {'memory_mb': 2 ** 30})

    def all(self, by):
        """Measure all other calls.

        :param by: the domain of groups.
        """
        self.time('first hold of a worker', 1, self.hold)
        self.time('smallest query about all nodes', 3,
                  lambda: fleet.execute(self._url, SCAN))
        for _ in range(3):
            self.eight_holds()
        fleet.free_all(self._url)
        self.time('eight holds', 10, self.eight_holds)
        self.time('refusal with its explanation', 3, self.none)
        self.time('capacity, not cached', 3, self.capacity(headers=NOW))
        self.time('capacity, cached', 3, self.capacity())
        self.time('a page of 100 rows', 3, self.capacity('?limit=100'))
        self.time('sums by rack', 3, self.capacity(f'?by={by}'))
        for members, policy in ((8, 'spread'), (8, 'soft-pack'),
                                (64, 'soft-pack'), (64, 'pack')):
            # Groups larger than the number of domains or racks are refused.
            if policy == 'soft-pack' or (policy == 'spread') == (by == RACK):
                self.time(f'group of {members}, {policy}', 5,
                          self.group(members, policy, by))


def measure(names, output):
    """Measure fleets of some shapes.

    :param output: a page.Page.
    """
    shapes, results, memory = SHAPES | LARGE, {}, []
    with services.mariadb() as server:
        # Shapes that differ only by the names of racks share a fleet.
        for fleet_, group in itertools.groupby(
                names, key=lambda name: shapes[name][:2]):
            print(f'enrolling {fleet_[0]:,} nodes', flush=True)
            with run_ironic(server, *fleet_) as ironic:
                for name in group:
                    print(f'-- {name}', flush=True)
                    *_, order, rack = shapes[name]
                    if not order:
                        name_racks(ironic.database_url, rack)
                    with run_api(ironic, 1) as service:
                        calls = Calls(service, ironic.database_url)
                        calls.all(RACK if order or rack
                                  else 'capability:gpus')
                        memory.append(fleet.peak_memory(service.process.pid))
                    results[name] = calls.figures
                note = page.describe('one worker of the API',
                                     ironic.database_url)
    rows = [[call, *(
        f'{figures[call][0]:,.0f} ({sum(figures[call][1:]):,.0f})'
        if call in figures else '–' for figures in results.values())]
            for call in dict.fromkeys(call for figures in results.values()
                                      for call in figures)]
    rows.append(['memory of the worker, MiB',
                 *(f'{size:,.0f}' for size in memory)])
    output.show('shapes', 'Milliseconds (CPU time of worker and database)',
                ['', *names], rows, note)
    output.draw('shapes', results)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--large', action='store_true',
                        help='also a million nodes')
    parser.add_argument('--shapes', nargs='+', choices=SHAPES | LARGE,
                        help='names of shapes (default: all)')
    page.add_argument(parser)
    args = parser.parse_args()
    services.stop_on_signal()
    logging.getLogger('pifpaf').setLevel('ERROR')
    measure(args.shapes or [*SHAPES, *(LARGE if args.large else ())],
            page.Page(args.write))


if __name__ == '__main__':
    main()
