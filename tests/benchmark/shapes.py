# SPDX-License-Identifier: Apache-2.0
"""What calls cost by the shape of a fleet, where its size says little.

    python -m tests.benchmark.shapes
    python -m tests.benchmark.shapes --large

Fleets of many hardware profiles, because a capability names each node's rack:
2,500 racks of 40 nodes that are alike, enrolled one rack after the other or in
any order, or of mixed hardware; racks of 5 nodes that are alike; and with
``--large`` one of a million nodes, too, whose 40 profiles are those of all
other benchmarks. Our application has one worker. Of each call the median is
told of some in a row, and in brackets the milliseconds of the worker's
processor and of MariaDB's; these hardly depend on what else the machine does,
as times do. The eight holds of the same run are their reference.
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

from tests.benchmark import clients
from tests.benchmark import fleet
from tools import services

#: How many nodes there are, in which order those of a rack were enrolled, and
#: in SQL which rack a node is in, if not as ``fleet`` has it; None where racks
#: have no names.
SHAPES = {'40 profiles': (100_000, None, None),
          '2,500 racks': (100_000, fleet.ORDERED, None),
          'in any order': (100_000, fleet.SCATTERED, None),
          'mixed hardware': (100_000, fleet.ORDERED, 'id MOD 2500'),
          '4,000 profiles': (20_000, fleet.ORDERED, '(id - 1) DIV 5'),
          '20,000 profiles': (100_000, fleet.ORDERED, '(id - 1) DIV 5')}
LARGE = {'a million nodes': (1_000_000, None, None)}

#: More are copied from these within the database, which is quicker.
ENROLLED = 100_000

OURS, RACK = '/v1/reservations', 'capability:rack'
NOW = {'Cache-Control': 'no-cache'}


@contextlib.contextmanager
def fleet_of(server, size, racks, rack):
    """A fleet of a shape: a tools.services.Service."""
    with fleet.ironic(server, min(size, ENROLLED), racks=racks) as ironic:
        fleet.end(ironic)
        with fleet.connected(ironic.database_url) as connection, \
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


def _copy(cursor, more):
    """Enrol the first nodes once more, so many ids later."""
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


class Calls:
    """Calls to our application on a fleet, and what each has taken.

    :ivar found: milliseconds by the name of the call: of time, of the
        worker's processor and of MariaDB's.
    """

    def __init__(self, service, database_url):
        self._request = clients.Http(service.port).request
        self._url, self.found = database_url, {}
        # The worker, and the router before it, which takes little.
        self._service = psutil.Process(service.process.pid).children(
            recursive=True)
        self._server = [child for child in psutil.Process().children(
            recursive=True) if child.name() in ('mysqld', 'mariadbd')]

    def _spent(self):
        return [sum(sum(each.cpu_times()[:2]) for each in processes) * 1000
                for processes in (self._service, self._server)]

    def time(self, name, times, call):
        """Make a call so many times on a fleet of which all is free."""
        taken, spent = [], [0, 0]
        for _ in range(times):
            before, began = self._spent(), time.perf_counter()
            call()
            taken.append((time.perf_counter() - began) * 1000)
            spent = [total + after - each for total, after, each in zip(
                spent, self._spent(), before, strict=True)]
            self.free_all()
        self.found[name] = (statistics.median(taken),
                            *(each / times for each in spent))

    def free_all(self):
        with fleet.connected(self._url) as connection, \
                connection.cursor() as cursor:
            for statement in (
                    'UPDATE nodes SET instance_uuid = NULL '
                    'WHERE instance_uuid IS NOT NULL',
                    'DELETE FROM reservations',
                    'DELETE FROM reservations_groups'):
                cursor.execute(statement)
            connection.commit()

    def hold(self, **body):
        self._request('POST', OURS, 201, {
            'resource_class': random.choice(fleet.PROFILES)[0], **body})

    def eight_holds(self):
        for _ in range(8):
            self.hold()

    def group(self, members, policy, by):
        return lambda: self._request('POST', f'{OURS}/groups', 201, {
            'uuid': str(uuid.uuid4()), 'members': members, 'policy': policy,
            'by': by, 'request': {
                'resource_class': random.choice(fleet.PROFILES)[0]}})

    @tenacity.retry(reraise=True, stop=tenacity.stop_after_attempt(10),
                    retry=tenacity.retry_if_exception_message(
                        match='.*: 503 '))
    def _counted(self, *args, **headers):
        """Ask again if told to: what was counted within a deadline is kept."""
        return self._request(*args, **headers)

    def capacity(self, query='', headers=None):
        return lambda: self._counted('GET', f'{OURS}/capacity{query}', 200,
                                     **(headers or {}))

    def none(self):
        self._counted('POST', OURS, 422, {'memory_mb': 2 ** 30})

    def all(self, by):
        """All calls that are measured.

        :param by: the domain of groups.
        """
        self.time('first hold of a process', 1, self.hold)
        # It may have counted only a part so far.
        self.capacity(headers=NOW)()
        for _ in range(3):
            self.eight_holds()
        self.free_all()
        self.time('eight holds', 10, self.eight_holds)
        self.time('422 and why', 3, self.none)
        self.time('capacity, counted', 3, self.capacity(headers=NOW))
        self.time('capacity, kept', 3, self.capacity())
        self.time('a page of 100, kept', 3, self.capacity('?limit=100'))
        self.time('sums by rack, kept', 3, self.capacity(f'?by={by}'))
        for members, policy in ((8, 'spread'), (8, 'soft-pack'),
                                (64, 'soft-pack'), (64, 'pack')):
            # Fewer domains than members are refused, and racks that are too
            # small for them.
            if policy == 'soft-pack' or (policy == 'spread') == (by == RACK):
                self.time(f'group of {members}, {policy}', 5,
                          self.group(members, policy, by))


def show(chosen, path=None):
    """Measure fleets of some shapes, and print what was found.

    :param path: where to draw it; None to print it only.
    """
    found, memory = {}, []
    with services.mariadb() as server:
        for name in chosen:
            size, racks, rack = (SHAPES | LARGE)[name]
            with fleet_of(server, size, racks, rack) as ironic, services.uwsgi(
                    'ironic_reservations.wsgi:application', ironic.conf_file,
                    services.free_port(), processes=1,
                    keepalive=True) as service:
                calls = Calls(service, ironic.database_url)
                calls.all(RACK if racks else 'capability:gpus')
                memory.append(fleet.peak_memory(service.process.pid))
            found[name] = calls.found
    shown = table.Table('ms (CPU-ms of the worker, of MariaDB)', *chosen)
    for call in dict.fromkeys(call for figures in found.values()
                              for call in figures):
        shown.add_row(call, *(
            '{:,.0f} ({:,.0f}, {:,.0f})'.format(*figures[call])
            if call in figures else '' for figures in found.values()))
    shown.add_row('worker, MiB', *(f'{each:,.0f}' for each in memory))
    console.Console(width=140).print(shown)
    if path:
        from tests.benchmark import draw
        draw.draw_shapes(path, found)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--large', action='store_true',
                        help='a million nodes, too')
    parser.add_argument('--shapes', nargs='+', choices=SHAPES | LARGE,
                        help='which of them (default: all)')
    parser.add_argument('--draw', type=pathlib.Path,
                        help='where to draw it, which takes matplotlib')
    args = parser.parse_args()
    services.stop_on_signal()
    logging.getLogger('pifpaf').setLevel('ERROR')
    show(args.shapes or [*SHAPES, *(LARGE if args.large else ())], args.draw)


if __name__ == '__main__':
    main()
