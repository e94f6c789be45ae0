# SPDX-License-Identifier: Apache-2.0
"""What a nova-compute costs, by size of the fleet and by driver.

    python -m tests.benchmark.computes --nodes 100 1000 10000

A real Ironic with the plugin on a private MariaDB, and Nova's services with a
real Placement in this process, as the tests have them. For each size one
nova-compute is started, and its periodic task is run once more, with Nova's
own Ironic driver (a row per node) and with ours (one row). Seconds are those
of nova-compute and of all that it calls; calls are those to Ironic's API.
"""

import argparse
import logging
import multiprocessing
import os
import time

import fixtures
import openstack.proxy
from rich import console
from rich import table
import testtools

from tests.benchmark import fleet
from tests.nova import base
from tests.nova import ironic as ironics
from tools import services


class Cloud(base.TestCase):
    """Nova's services, without a compute at first."""

    hosts = ()

    def enrol(self):
        pass  # The fleet is there for all runs.

    remove_all_nodes = enrol

    def measure(self):
        """Tell names, and seconds and calls."""
        calls = []
        request = openstack.proxy.Proxy.request

        def counted(proxy, *args, **kwargs):
            calls.append(args)
            return request(proxy, *args, **kwargs)

        self.useFixture(fixtures.MonkeyPatch(
            'openstack.proxy.Proxy.request', counted))
        [host] = base.HOSTS[:1]
        for name, step in (
                ('start', lambda: self.start_compute(host)),
                ('periodic task', lambda: self.run_periodic(host))):
            calls.clear()
            began = time.perf_counter()
            step()
            self.tell(name, (time.perf_counter() - began, len(calls)))
        self.tell('rows and providers', len(self.providers()))


def measure(ironic, driver, limit, cloud_class=Cloud):
    """Figures by name, for one driver, as far as it comes in this time."""
    def run():
        # This is no test, which would have hung by then.
        os.environ['OS_TEST_TIMEOUT'] = '0'
        cloud = cloud_class('measure')
        cloud.ironic, cloud.compute_driver = ironic, driver
        cloud.tell = lambda *figure: told.put(figure)
        result = testtools.TestResult()
        cloud.run(result)
        for _, text in result.errors + result.failures:
            raise SystemExit(text)

    # Nova's services cannot be stopped half-way; a process can.
    fork = multiprocessing.get_context('fork')
    told = fork.SimpleQueue()
    process = fork.Process(target=run)
    process.start()
    process.join(limit)
    process.kill()
    process.join()
    figures = {}
    while not told.empty():
        name, figure = told.get()
        figures[name] = figure
    return figures


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--nodes', nargs='+', type=int,
                        default=[100, 1000, 10000])
    parser.add_argument('--limit', type=int, default=3600,
                        help='seconds for each driver and size (default: '
                             '%(default)s)')
    args = parser.parse_args()
    services.stop_on_signal()
    # Nova's fixtures leave the log of everything switched on.
    logging.getLogger('pifpaf').setLevel('ERROR')
    shown = table.Table('nodes', 'what', 'row per node', 'one row', 'ratio')
    with services.mariadb() as server:
        for size in args.nodes:
            with fleet.ironic(server, size) as service:
                ironic = ironics.Ironic(service)
                drivers = [measure(ironic, driver, args.limit)
                           for driver in (base.STOCK, base.OURS)]
            for name in ('start', 'periodic task', 'rows and providers'):
                shown.add_row(f'{size:,}', name, *row(
                    args.limit, *(each.get(name) for each in drivers)))
            console.Console().print(shown)


def row(limit, *figures):
    """Cells for the two drivers and their ratio."""
    for figure in figures:
        match figure:
            case None:
                yield f'not within {limit:,} s'
            case seconds, calls:
                yield f'{seconds:.2f} s, {calls} calls'
            case number:
                yield f'{number:,}'
    match figures:
        case (before, _), (now, _):
            yield f'{before / now:.0f}'


if __name__ == '__main__':
    main()
