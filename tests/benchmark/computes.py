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
import contextlib
import logging
import tempfile
import time

import fixtures
import openstack.proxy
import pymysql
from rich import console
from rich import table
import sqlalchemy as sa
import testtools

from tests.benchmark import costs
from tests.nova import base
from tools import services

# Ironic's own periodic work on its fleet is none of nova-compute's.
IRONIC = {'conductor': {'automated_clean': 'false',
                        'sync_power_state_interval': 0},
          'sensor_data': {'send_sensor_data': 'false'}}


class Cloud(base.TestCase):
    """Nova's services, without a compute at first."""

    hosts = ()

    def enrol(self):
        pass  # The fleet is there for all runs.

    _remove_all_nodes = enrol

    def measure(self):
        """Set figures by name: seconds and calls."""
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
            self.figures[name] = (time.perf_counter() - began, len(calls))
        self.figures['rows'] = (len(self.providers()), None)


def measure(ironic, driver):
    """Figures by name, for one driver."""
    cloud, figures = Cloud('measure'), {}
    cloud._ironic, cloud.compute_driver, cloud.figures = (
        ironic, driver, figures)
    result = testtools.TestResult()
    cloud.run(result)
    if not result.wasSuccessful():
        raise SystemExit('\n'.join(
            text for _, text in result.errors + result.failures))
    return figures


@contextlib.contextmanager
def fleet(server, size):
    """An Ironic with so many nodes."""
    with services.database(server) as url, \
            tempfile.TemporaryDirectory() as directory, \
            services.ironic(directory, url, services.free_port(),
                            config=IRONIC) as service:
        parts = sa.make_url(url)
        with contextlib.closing(pymysql.connect(
                unix_socket=parts.query['unix_socket'], user=parts.username,
                database=parts.database)) as connection:
            ironic = base.Ironic(service)
            # One through the API, for what Ironic wants to see in its rows.
            [pattern] = ironic.enrol([{'traits': ['CUSTOM_A']}])
            with connection.cursor() as cursor:
                cursor.execute('SELECT nodes.version, node_traits.version '
                               'FROM nodes, node_traits')
                versions = cursor.fetchone()
                ironic.remove([pattern])
                connection.rollback()
                costs.fill(connection, size, iter)
                for name, version in zip(('nodes', 'node_traits'), versions,
                                         strict=True):
                    cursor.execute(f'UPDATE {name} SET version = %s',
                                   (version,))
            connection.commit()
        yield ironic


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--nodes', nargs='+', type=int,
                        default=[100, 1000, 10000])
    args = parser.parse_args()
    # Nova's fixtures leave the log of everything switched on.
    logging.getLogger('pifpaf').setLevel('ERROR')
    shown = table.Table('nodes', 'what', 'row per node', 'one row', 'ratio')
    screen = console.Console()
    with services.mariadb() as server:
        for size in args.nodes:
            with fleet(server, size) as ironic:
                stock, ours = (measure(ironic, driver)
                               for driver in (base.STOCK, base.OURS))
            for name in ('start', 'periodic task'):
                (before, asked), (now, asks) = stock[name], ours[name]
                shown.add_row(
                    f'{size:,}', name, f'{before:.2f} s, {asked} calls',
                    f'{now:.2f} s, {asks} calls', f'{before / now:.0f}')
            shown.add_row(f'{size:,}', 'rows and providers',
                          str(stock['rows'][0]), str(ours['rows'][0]), '')
            screen.print(shown)


if __name__ == '__main__':
    main()
