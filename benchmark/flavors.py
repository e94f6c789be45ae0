# SPDX-License-Identifier: Apache-2.0
"""Compare holds on MySQL with those on MariaDB, by the order of flavors.

    python -m benchmark.flavors
    python -m benchmark.flavors --nodes 10000 --rounds 1
    python -m benchmark.flavors --write

Both servers run at the same time, each with the fleet of the other benchmarks,
and take turns. "First hold" is that of a worker, which counts the fleet.
"Another profile" are the next holds of the only worker, each of a profile that
it has not held before; "alternating" are requests for random profiles, to two
warm workers per core. The mean and 99 % are of all calls in all rounds, rates
and the ratios to the floor are medians of the rounds.
"""

import argparse
import collections
import contextlib
import itertools
import logging
import os
import random
import statistics

from benchmark import clients
from benchmark import fleet
from benchmark import page
from benchmark import shapes
from tools import services

SERVERS = {'MariaDB': services.mariadb, 'MySQL': services.mysql}

#: Calls of one client, and of each of eight.
TIMES, TIMES_OF_MANY = 400, 300


class Figures:
    """Figures of one server.

    :ivar durations: seconds of all calls by name.
    :ivar rates: calls per second of eight clients by name, in each round.
    :ivar medians: milliseconds by name, in each round.
    """

    def __init__(self):
        self.durations = collections.defaultdict(list)
        self.rates = collections.defaultdict(list)
        self.medians = collections.defaultdict(list)

    def add(self, name, result):
        self.durations[name] += result.durations
        self.medians[name].append(result.median)

    def describe(self, name):
        """Return the median, the mean and the 99th percentile in ms."""
        durations = sorted(self.durations[name])
        return [1000 * value for value in (
            statistics.median(durations), statistics.mean(durations),
            durations[len(durations) * 99 // 100])]

    def compare_with_floor(self):
        """Return the times of the floor, and the part of its rate."""
        return (statistics.median(map(
            lambda hold, floor: hold / floor,
            self.medians['alternating'], self.medians['floor'])),
            statistics.median(map(
                lambda hold, floor: hold / floor,
                self.rates['alternating'], self.rates['floor'])))


def measure(ironic, size, workers, figures):
    """Measure one round on one server."""
    url, check = ironic.database_url, fleet.checker(size)

    def run(name, client, times, number=1):
        result = clients.run(client, times, number)
        fleet.free_all(url)
        if number == 1:
            figures.add(name, result)
        else:
            figures.rates[name].append(result.rate)

    with shapes.run_api(ironic, 1) as service:
        request = clients.Http(service.port).request

        def hold(profile):
            body = next(fleet.requests([lambda _: fleet.exact(profile)], 1))
            check(body, request('POST', '/v1/reservations', 201, body))

        def call(seed):
            yield
            for profile in random.sample(fleet.PROFILES, len(fleet.PROFILES)):
                yield clients.seconds(lambda profile=profile: hold(profile), 1)

        figures.durations['first hold'].append(clients.seconds(
            lambda: hold(fleet.SMALLEST), 1))
        run('another profile', call, len(fleet.PROFILES))
    with shapes.run_api(ironic, workers) as service:
        client = clients.holding(service.port, [fleet.exact], check)
        # The first holds of each worker count the fleet.
        clients.run(client, 100, clients.MANY)
        clients.run(client, 20 * workers)
        fleet.free_all(url)
        floor = clients.bare(url)
        for name, way, times in (
                ('floor', floor, min(TIMES, 100)),
                ('alternating', client, TIMES)):
            run(name, way, times)
            run(name, way, times if way is floor else TIMES_OF_MANY,
                clients.MANY)


def show(figures, output, note):
    first, second = figures.values()
    rows = []
    for name in first.durations:
        pair = first.describe(name), second.describe(name)
        rows.append([f'{name}, ms: median, mean, 99 %', *(
            ', '.join(f'{value:.2f}' for value in values)
            for values in (*pair, [above / below for below, above in zip(
                *pair, strict=True)]))])
    for name in first.rates:
        pair = [statistics.median(one.rates[name]) for one in (first, second)]
        rows.append([f'{name}, eight clients: calls per second', *(
            f'{rate:,.0f}' for rate in pair), f'{pair[1] / pair[0]:.2f}'])
    rows.append(['alternating: times the floor, part of its rate', *(
        '{:.2f}, {:.2f}'.format(*one.compare_with_floor())
        for one in (first, second)), '–'])
    output.show('mysql', 'Holds on MySQL and on MariaDB',
                ['', *figures, 'MySQL, times MariaDB'], rows, note)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--nodes', type=int, default=100_000)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--workers', type=int, default=2 * os.cpu_count())
    page.add_argument(parser)
    args = parser.parse_args()
    services.stop_on_signal()
    logging.getLogger('pifpaf').setLevel('ERROR')
    figures = {name: Figures() for name in SERVERS}
    with contextlib.ExitStack() as stack:
        fleets = {}
        for name, run in SERVERS.items():
            ironic = stack.enter_context(fleet.ironic(
                stack.enter_context(run()), args.nodes))
            fleet.stop(ironic)
            fleets[name] = ironic
        for _, (name, ironic) in itertools.product(
                range(args.rounds), fleets.items()):
            measure(ironic, args.nodes, args.workers, figures[name])
        note = page.describe(
            f'{args.nodes:,} nodes, rounds: {args.rounds}',
            *(ironic.database_url for ironic in fleets.values()))
    show(figures, page.Page(args.write), note)


if __name__ == '__main__':
    main()
