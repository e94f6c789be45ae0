# SPDX-License-Identifier: Apache-2.0
"""What a hold, a refusal and the capacity cost, by size of the fleet.

    python -m tests.benchmark.costs --nodes 1000 10000 100000

Ironic's real schema on a private MariaDB at default durability, our
application alone under uWSGI with one process, one client over HTTP. Each
figure is the median of several requests, each checked for its status, in
milliseconds. The reference of the same run is what a hold cannot do without:
guarded UPDATE, INSERT and COMMIT by raw PyMySQL on the same database.

The fleet: 40 hardware profiles in 10 resource classes, 0 to 3 traits, a
tenth of the nodes with a root_device of their own.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
import uuid

import pymysql
import requests
from rich import console
from rich import progress
from rich import table
import sqlalchemy as sa

from tools import services

PROFILES, CLASSES = 40, 10


def fill(connection, size, track):
    """Enrol nodes by SQL: through the API it would take hours."""
    pick = random.Random(1)
    profiles = [
        (f'baremetal.c{number % CLASSES}',
         {'memory_mb': 2 ** pick.randint(14, 19),
          'cpus': 2 ** pick.randint(3, 7),
          'local_gb': pick.choice([200, 500, 2000]), 'cpu_arch': 'x86_64',
          'capabilities': f'boot_mode:uefi,gpus:{number % 5}'},
         [f'CUSTOM_T{trait}' for trait in range(number % 4)])
        for number in range(PROFILES)]
    nodes, traits = [], []
    for number in range(1, size + 1):
        resource_class, properties, names = profiles[
            number * PROFILES // (size + 1)]
        if number % 10 == 0:
            properties = {**properties,
                          'root_device': {'serial': uuid.uuid4().hex}}
        nodes.append((number, str(uuid.uuid4()), f'node-{number}',
                      resource_class, json.dumps(properties)))
        traits += [(number, name) for name in names]
    with connection.cursor() as cursor:
        for first in track(range(0, size, 1000)):
            cursor.executemany(
                'INSERT INTO nodes (id, uuid, name, resource_class, '
                'properties, provision_state, power_state, maintenance, '
                "conductor_group, driver, instance_info) VALUES (%s, %s, %s, "
                "%s, %s, 'available', 'power off', 0, '', 'fake-hardware', "
                "'{}')", nodes[first:first + 1000])
        for first in range(0, len(traits), 5000):
            cursor.executemany(
                'INSERT INTO node_traits (node_id, trait) VALUES (%s, %s)',
                traits[first:first + 5000])
    connection.commit()
    with connection.cursor() as cursor:
        cursor.execute('ANALYZE TABLE nodes, node_traits')


def milliseconds(function, times, afterwards=lambda result: None):
    """Median of what a function takes; what follows it is not timed."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        result = function()
        taken.append((time.perf_counter() - began) * 1000)
        afterwards(result)
    return statistics.median(taken)


class Measures:
    """The figures for one fleet, in the order in which they are taken."""

    def __init__(self, connection, url, size):
        self._connection, self._url, self._size = connection, url, size
        self._session = requests.Session()

    def _request(self, method, path, expected, **kwargs):
        answer = self._session.request(method, self._url + path, **kwargs)
        if answer.status_code != expected:
            raise SystemExit(f'{method} {path}: {answer.status_code}, '
                             f'{expected} expected: {answer.text}')
        return answer

    def _sql(self, statement, *values):
        with self._connection.cursor() as cursor:
            cursor.execute(statement, values)
        self._connection.commit()

    def _hold(self, **request):
        answer = self._request('POST', '/v1/reservations', 201, json=request)
        return answer.json()['instance_uuid']

    def _floor(self, node):
        instance = str(uuid.uuid4())
        with self._connection.cursor() as cursor:
            cursor.execute(
                'UPDATE nodes SET instance_uuid = %s WHERE id = %s AND '
                'instance_uuid IS NULL', (instance, node))
            cursor.execute(
                'INSERT INTO reservations (instance_uuid, node_id, '
                "node_uuid, request_spec, created_at) VALUES (%s, %s, %s, "
                "'{}', UTC_TIMESTAMP())", (instance, node, instance))
        self._connection.commit()

    def _free_all(self):
        self._sql('UPDATE nodes SET instance_uuid = NULL '
                  'WHERE instance_uuid IS NOT NULL')
        self._sql('DELETE FROM reservations')

    def _release(self, instance):
        self._request('DELETE', f'/v1/reservations/{instance}', 204)

    def take(self):
        """Yield names and milliseconds."""
        self._hold(resource_class='baremetal.c1')  # Nothing is cold.
        self._free_all()
        nodes = iter(random.sample(range(1, self._size + 1), 100))
        yield 'reference: UPDATE, INSERT, COMMIT', milliseconds(
            lambda: self._floor(next(nodes)), 100)
        self._free_all()
        yield 'hold, class', milliseconds(
            lambda: self._hold(resource_class='baremetal.c3'), 50)
        yield 'hold, class and trait', milliseconds(
            lambda: self._hold(resource_class='baremetal.c3', extra_specs={
                'trait:CUSTOM_T1': 'required'}), 25)
        yield 'hold, sizes alone', milliseconds(
            lambda: self._hold(memory_mb=20000, vcpus=8, root_gb=100), 50)
        self._free_all()
        self._sql("UPDATE nodes SET instance_uuid = uuid WHERE "
                  "resource_class = 'baremetal.c3'")
        self._sql("UPDATE nodes SET instance_uuid = NULL WHERE "
                  "resource_class = 'baremetal.c3' ORDER BY RAND() LIMIT 1")
        yield 'hold, class, one matching node left', milliseconds(
            lambda: self._hold(resource_class='baremetal.c3'), 25,
            afterwards=self._release)
        self._free_all()
        yield '422 with its explanation', milliseconds(
            lambda: self._request('POST', '/v1/reservations', 422,
                                  json={'memory_mb': 2 ** 30}), 7)
        yield 'capacity, cold', milliseconds(
            lambda: self._request('GET', '/v1/reservations/capacity', 200,
                                  headers={'Cache-Control': 'no-cache'}), 7)
        yield 'capacity, cached', milliseconds(
            lambda: self._request('GET', '/v1/reservations/capacity', 200),
            50)


def measure(server, size, bar):
    with services.database(server) as url, \
            tempfile.TemporaryDirectory() as directory:
        parts = sa.make_url(url)
        with services.ironic(directory, url, services.free_port()) as ironic:
            conf_file = ironic.conf_file
            # Its schema is all that is wanted of it: stop it again.
        connection = pymysql.connect(
            unix_socket=parts.query['unix_socket'], user=parts.username,
            database=parts.database)
        fill(connection, size, lambda steps: bar.track(
            steps, description=f'{size} nodes'))
        with services.uwsgi('ironic_reservations.wsgi:application',
                            conf_file, services.free_port(),
                            processes=1) as alone:
            yield from Measures(connection, alone.url, size).take()
        connection.close()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--nodes', nargs='+', type=int,
                        default=[1000, 10000, 100000])
    args = parser.parse_args()
    results = {}
    with services.mariadb() as server, progress.Progress() as bar:
        for size in args.nodes:
            for name, figure in measure(server, size, bar):
                results.setdefault(name, []).append(figure)
                bar.console.print(f'{size} nodes: {name}: {figure:.2f} ms')
    shown = table.Table('median, ms (times the reference)',
                        *(f'{size:,} nodes' for size in args.nodes))
    reference = next(iter(results.values()))
    for name, figures in results.items():
        shown.add_row(name, *(
            f'{figure:.2f} ({figure / floor:.1f})'
            for figure, floor in zip(figures, reference, strict=True)))
    console.Console().print(shown)


if __name__ == '__main__':
    main()
