# SPDX-License-Identifier: Apache-2.0
"""What holds cost where nearly all nodes are taken, and who waits how long.

    python -m tests.benchmark.scarce --clients 8 32 128

Of 1,000 nodes 50 are free, and any of them does. Clients hold one and release
it again, without a pause, on connections of their own, for some seconds. Our
application has two workers for each core. A client that is told to try again
does so after a second, as it is told; that there is no node is an answer like
any other.

Statements are MariaDB's own count of them, on which it has little influence
what else the machine does. Calls per second and seconds depend on it; their
reference is the one client of the same run.
"""

import argparse
import collections
import contextlib
import http.client
import json
import logging
import multiprocessing
import os
import random
import statistics
import time

from rich import console
from rich import table

from tests.benchmark import fleet
from tools import services

NODES, FREE, CLIENTS = 1000, 50, (1, 8, 32, 128)
TOTALS = ('Com_select', 'Com_rollback', 'Com_update')

_fork = multiprocessing.get_context('fork')


def call(port, method, path, body=None):
    """One request; its status and its seconds."""
    began = time.monotonic()
    with contextlib.closing(http.client.HTTPConnection(
            '127.0.0.1', port)) as connection:
        connection.request(method, f'/v1/reservations{path}',
                           body and json.dumps(body),
                           {'Content-Type': 'application/json'})
        answer = connection.getresponse()
        answer.read()
        return answer.status, time.monotonic() - began


def any_node(profile):
    """What is asked: all profiles suit, one better than the other."""
    return {'memory_mb': 1024}


def work(port, seed, until, results):
    """Hold and release until a moment."""
    told = []
    for request in fleet.requests([any_node], seed):
        if time.monotonic() > until:
            return results.put(told)
        status, taken = call(port, 'POST', '', request)
        told.append(('hold', status, taken))
        if status == 201:
            path = f'/{request["instance_uuid"]}'
            while time.monotonic() < until + 60:
                status, taken = call(port, 'DELETE', path)
                told.append(('release', status, taken))
                if status == 204:
                    break
                time.sleep(1)
        elif status == 503:
            time.sleep(1)


def totals(cursor):
    cursor.execute(f'SHOW GLOBAL STATUS WHERE Variable_name IN {TOTALS}')
    return collections.Counter({name: int(total) for name, total
                                in cursor.fetchall()})


def measure(cursor, port, number, seconds):
    """What so many clients are told, and the statements meanwhile."""
    results, before = _fork.SimpleQueue(), totals(cursor)
    until = time.monotonic() + seconds
    processes = [_fork.Process(target=work, args=(
        port, random.randrange(2 ** 32), until, results))
        for _ in range(number)]
    for process in processes:
        process.start()
    told = sum((results.get() for _ in processes), [])
    for process in processes:
        process.join()
    return told, totals(cursor) - before


def row(number, seconds, told, statements):
    holds = [each for each in told if each[0] == 'hold']
    held = sum(status == 201 for _, status, _ in holds)
    taken = sorted(seconds for *_, seconds in told)
    statuses = collections.Counter(status for _, status, _ in told)
    return (f'{number}', f'{len(told) / seconds:.0f}',
            *(f'{statements[name] / max(held, 1):.1f}' for name in TOTALS),
            f'{statistics.median(taken):.3f}',
            f'{taken[int(len(taken) * 0.99)]:.2f}', f'{taken[-1]:.2f}',
            ', '.join(f'{status}: {times}' for status, times
                      in sorted(statuses.items())))


def show(numbers, seconds, workers):
    """Measure so many clients at a time, and print what was found."""
    shown = table.Table('clients', 'calls/s', 'SELECT a hold', 'ROLLBACK',
                        'UPDATE', 'median, s', 'p99, s', 'longest', 'answers')
    with services.mariadb() as server, fleet.ironic(
            server, NODES) as ironic, fleet.connected(
                ironic.database_url) as connection, \
            connection.cursor() as cursor, services.uwsgi(
                'ironic_reservations.wsgi:application', ironic.conf_file,
                services.free_port(), processes=workers) as service:
        cursor.execute('UPDATE nodes SET instance_uuid = uuid')
        free = random.sample(range(1, NODES + 1), FREE)
        cursor.execute('UPDATE nodes SET instance_uuid = NULL '
                       f'WHERE id IN {(*free,)}')
        connection.commit()
        for number in numbers:
            shown.add_row(*row(number, seconds, *measure(
                cursor, service.port, number, seconds)))
    console.Console(width=140).print(shown)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--clients', nargs='+', type=int, default=CLIENTS)
    parser.add_argument('--seconds', type=int, default=15)
    parser.add_argument('--workers', type=int, default=2 * os.cpu_count())
    args = parser.parse_args()
    services.stop_on_signal()
    logging.getLogger('pifpaf').setLevel('ERROR')
    show(args.clients, args.seconds, args.workers)


if __name__ == '__main__':
    main()
