# SPDX-License-Identifier: Apache-2.0
"""Measure calls by the shape of a fleet, which matters more than its size.

    python -m benchmark.shapes
    python -m benchmark.shapes --large

Fleets have many hardware profiles, because a capability names each node's
rack: 2,500 racks of 40 equal nodes, enrolled rack by rack or in random order,
or of mixed hardware; racks of 5 equal nodes; and with ``--large`` a million
nodes, with the 40 profiles of all other benchmarks. Our application has one
worker. The output is the median of several calls in a row, and in brackets the
milliseconds of the worker's processor and of MariaDB's, which hardly depend on
other load of the machine. Compare with the eight holds and the smallest query
about all nodes of the same run.
"""

import argparse
import contextlib
import logging
import pathlib
import random
import statistics
import time
import uuid

import psutil
from rich import console
from rich import table
import tenacity

from benchmark import clients
from benchmark import fleet
from tools import services

#: Number of nodes, order of enrolment, and SQL for the rack of a node, if it
#: differs from ``fleet``. The order is None if racks have no names.
SHAPES = {'40 profiles': (100_000, None, None),
          '2,500 racks': (100_000, fleet.ORDERED, None),
          'in any order': (100_000, fleet.SCATTERED, None),
          'mixed hardware': (100_000, fleet.ORDERED, 'id MOD 2500'),
          '4,000 profiles': (20_000, fleet.ORDERED, '(id - 1) DIV 5'),
          '20,000 profiles': (100_000, fleet.ORDERED, '(id - 1) DIV 5')}
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
def run_ironic(server, size, racks, rack):
    """Run a fleet of a shape; yield a tools.services.Service."""
    with fleet.ironic(server, min(size, ENROLLED), racks=racks) as ironic:
        fleet.stop(ironic)
        with fleet.connect(ironic.database_url) as connection, \
                connection.cursor() as cursor:
            if rack:
                cursor.execute(
                    "UPDATE nodes SET properties = REGEXP_REPLACE(properties, "
                    f"'rack:r[0-9]+', CONCAT('rack:r', {rack}))")
            for more in range(ENROLLED, size, ENROLLED):
                _copy(cursor, more)
            connection.commit()
            cursor.execute('ANALYZE TABLE nodes, node_traits')
        yield ironic


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
        self.time('first hold of a process', 1, self.hold)
        self.time('smallest scan', 3, lambda: fleet.execute(self._url, SCAN))
        for _ in range(3):
            self.eight_holds()
        fleet.free_all(self._url)
        self.time('eight holds', 10, self.eight_holds)
        self.time('422 and why', 3, self.none)
        self.time('capacity, counted', 3, self.capacity(headers=NOW))
        self.time('capacity, kept', 3, self.capacity())
        self.time('a page of 100, kept', 3, self.capacity('?limit=100'))
        self.time('sums by rack, kept', 3, self.capacity(f'?by={by}'))
        for members, policy in ((8, 'spread'), (8, 'soft-pack'),
                                (64, 'soft-pack'), (64, 'pack')):
            # Groups larger than the number of domains or racks are refused.
            if policy == 'soft-pack' or (policy == 'spread') == (by == RACK):
                self.time(f'group of {members}, {policy}', 5,
                          self.group(members, policy, by))


def show(names, path=None):
    """Measure fleets of some shapes, and print the results.

    :param path: file for a picture, or None.
    """
    results, memory = {}, []
    with services.mariadb() as server:
        for name in names:
            size, racks, rack = (SHAPES | LARGE)[name]
            with run_ironic(server, size, racks, rack) as ironic:
                with run_api(ironic, 1) as service:
                    calls = Calls(service, ironic.database_url)
                    calls.all(RACK if racks else 'capability:gpus')
                    memory.append(fleet.peak_memory(service.process.pid))
            results[name] = calls.figures
    output = table.Table('ms (CPU-ms of the worker, of MariaDB)', *names)
    for call in dict.fromkeys(call for figures in results.values()
                              for call in figures):
        output.add_row(call, *(
            '{:,.0f} ({:,.0f}, {:,.0f})'.format(*figures[call])
            if call in figures else '' for figures in results.values()))
    output.add_row('worker, MiB', *(f'{size:,.0f}' for size in memory))
    console.Console(width=140).print(output)
    if path:
        from benchmark import draw
        draw.draw_shapes(path, results)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--large', action='store_true',
                        help='also a million nodes')
    parser.add_argument('--shapes', nargs='+', choices=SHAPES | LARGE,
                        help='names of shapes (default: all)')
    parser.add_argument('--draw', type=pathlib.Path,
                        help='file for a picture; needs matplotlib')
    args = parser.parse_args()
    services.stop_on_signal()
    logging.getLogger('pifpaf').setLevel('ERROR')
    show(args.shapes or [*SHAPES, *(LARGE if args.large else ())], args.draw)


if __name__ == '__main__':
    main()
