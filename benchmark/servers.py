# SPDX-License-Identifier: Apache-2.0
"""Measure a compute host that has many servers, by driver.

    python -m benchmark.servers --servers 0 100 1000 --write

One host, and nodes for that many servers and ten more. The servers are
written into the databases of Nova, Ironic and Placement, as their builds would
leave them. Then the host is started, its periodic task is run, and one more
server is built and deleted. This is done with our driver, which has one row,
and with Nova's own Ironic driver, which has a row per node, updated by one
thread or by four (``[compute] update_resources_max_workers``).

Claims and deletions are those of Nova's resource tracker, which handles them
one by one under a lock. Calls are those to Placement and to Ironic.
"""

import argparse
import functools
import json
import logging
import multiprocessing
import os
import re
import time

# This precedes Nova, because it decides how Nova is imported.
from tests.nova import base

# isort: split

import fixtures
from nova import context
from nova import objects
from nova.compute import resource_tracker
from nova.scheduler.client import report
import openstack.proxy
import testtools

from benchmark import fleet
from benchmark import page
from tests.nova import ironic as ironics
from tools import services

HOST = base.HOSTS[0]
SPARE = 10
STEPS = ('start', 'periodic task', 'claim', 'deletion')
DRIVERS = {"Nova's own driver": (base.STOCK, 1),
           'four threads': (base.STOCK, 4), 'this driver': (base.OURS, 1)}


class Cloud(base.TestCase):
    """Nova's services, and a host with servers."""

    hosts, servers, workers = (), 0, 1

    def enrol(self):
        pass  # All runs share the fleet.

    remove_all_nodes = enrol

    def measure(self):
        self.flags(group='compute', update_resources_max_workers=self.workers)
        self.calls = {'placement': 0, 'ironic': 0}
        for method in 'get', 'put', 'post', 'delete':
            self._count(report.SchedulerReportClient, method, 'placement')
        self._count(openstack.proxy.Proxy, 'request', 'ironic')
        self.start_compute(HOST)
        self._populate()
        self._time('start', lambda: self.restart_compute(HOST))
        self._time('periodic task', lambda: self.run_periodic(HOST))
        self._time_method('instance_claim', 'claim')
        server = self.boot(self.flavor(self.resource_class))
        self._time_method('update_usage', 'deletion')
        self.delete(server)

    def _count(self, owner, name, service):
        call = getattr(owner, name)

        @functools.wraps(call)
        def count(*args, **kwargs):
            self.calls[service] += 1
            return call(*args, **kwargs)

        self.useFixture(fixtures.MonkeyPatch(
            f'{owner.__module__}.{owner.__qualname__}.{name}', count))

    def _time(self, name, step):
        self.calls.update(placement=0, ironic=0)
        began = time.perf_counter()
        result = step()
        self.tell(name, (time.perf_counter() - began,
                         self.calls['placement'], self.calls['ironic']))
        return result

    def _time_method(self, method, name):
        """Time the next call of the resource tracker's method."""
        call = getattr(resource_tracker.ResourceTracker, method)
        names = [name]

        @functools.wraps(call)
        def time_first(*args, **kwargs):
            if not names:
                return call(*args, **kwargs)
            return self._time(names.pop(), lambda: call(*args, **kwargs))

        self.useFixture(fixtures.MonkeyPatch(
            'nova.compute.resource_tracker.ResourceTracker.' + method,
            time_first))

    def _populate(self):
        """Give the host its servers."""
        one_row = self.compute_driver == base.OURS
        ctxt = context.get_admin_context()
        flavor = objects.Flavor.get_by_flavor_id(
            ctxt, self.flavor(None, memory_mb=1))
        client = report.SchedulerReportClient()
        with fleet.connect(self.ironic.database_url) as connection, \
                connection.cursor() as cursor, context.target_cell(
                    ctxt, self.cell_mappings['cell1']) as cell:
            cursor.execute('SELECT id, uuid, resource_class FROM nodes '
                           'ORDER BY id')
            nodes = cursor.fetchall()
            self.resource_class = re.sub(
                r'\W', '_', nodes[self.servers][2]).upper()
            rows = {row.hypervisor_hostname: row for row in
                    objects.ComputeNodeList.get_all_by_host(cell, HOST)}
            for node_id, node_uuid, resource_class in nodes[:self.servers]:
                row = rows[HOST if one_row else node_uuid]
                instance = objects.Instance(
                    cell, project_id='p', user_id='u', host=HOST,
                    node=row.hypervisor_hostname, compute_id=row.id,
                    flavor=flavor, vm_state='active', power_state=1,
                    image_ref='', system_metadata={}, display_name='server',
                    instance_type_id=flavor.id)
                instance.create()
                cursor.execute(
                    "UPDATE nodes SET provision_state = 'active', "
                    "power_state = 'power on', instance_uuid = %s "
                    'WHERE id = %s', [instance.uuid, node_id])
                cursor.execute(
                    'INSERT INTO reservations (instance_uuid, node_id, '
                    'node_uuid, host, request_spec, created_at) VALUES '
                    '(%s, %s, %s, %s, %s, UTC_TIMESTAMP())',
                    [instance.uuid, node_id, node_uuid, HOST, json.dumps({})])
                name = re.sub(r'\W', '_', resource_class).upper()
                assert client.put_allocations(ctxt, instance.uuid, {
                    'allocations': {row.uuid: {'resources': {
                        f'CUSTOM_{name}': 1}}},
                    'project_id': 'p', 'user_id': 'u',
                    'consumer_generation': None})
            connection.commit()


def measure(ironic, driver, limit, cloud_class):
    """Return the figures of a driver that are complete in time, by name."""
    def run():
        # The timeout for tests does not apply.
        os.environ['OS_TEST_TIMEOUT'] = '0'
        cloud = cloud_class('measure')
        cloud.ironic, cloud.compute_driver = ironic, driver
        cloud.tell = lambda *figure: results.put(figure)
        result = testtools.TestResult()
        cloud.run(result)
        for _, text in result.errors + result.failures:
            raise SystemExit(text)

    # Nova's services cannot be stopped half-way; a process can.
    fork = multiprocessing.get_context('fork')
    results = fork.SimpleQueue()
    process = fork.Process(target=run)
    process.start()
    process.join(limit)
    process.kill()
    process.join()
    figures = {}
    while not results.empty():
        name, figure = results.get()
        figures[name] = figure
    return figures


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--servers', nargs='+', type=int,
                        default=[0, 100, 1000])
    parser.add_argument('--limit', type=int, default=3600,
                        help='seconds for each driver and number (default: '
                             '%(default)s)')
    page.add_argument(parser)
    args = parser.parse_args()
    services.stop_on_signal()
    logging.getLogger('pifpaf').setLevel('ERROR')
    rows = []
    with services.mariadb() as server:
        for count in args.servers:
            results = []
            for driver, workers in DRIVERS.values():
                # Each driver has its own fleet, free at first.
                with fleet.ironic(server, count + SPARE) as service:
                    cloud = type('Host', (Cloud,), {
                        'servers': count, 'workers': workers})
                    results.append(measure(
                        ironics.Ironic(service), driver, args.limit, cloud))
                    note = page.describe('Nova on SQLite',
                                         service.database_url)
            for step in STEPS:
                rows.append([f'{step}, {count:,} servers', *(
                    '{:.2f} ({:,}, {:,})'.format(*figures[step])
                    if step in figures else f'not within {args.limit:,}'
                    for figures in results)])
                print(rows[-1], flush=True)
    page.Page(args.write).show(
        'servers', 'Seconds (requests to Placement, to Ironic)',
        ['', *DRIVERS], rows, note)


if __name__ == '__main__':
    main()
