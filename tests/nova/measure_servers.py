# SPDX-License-Identifier: Apache-2.0
"""What it takes to switch, start and take over a host of many servers.

It is no test. With the environment of the tests it prints a table::

    SERVERS="10 100 1000" python -m testtools.run tests.nova.measure_servers

Nova is that of its fixtures, with a real Placement and all services in one
process; Ironic is a real one beside it, with SQLite. One server is built, and
the others are copies of it in the three databases.
"""

import copy
import os
import resource
import sys
import time
import uuid

import fixtures
from nova import context
from nova import objects
from nova.scheduler.client import report
from nova.virt.ironic_reservations import reconciler
import sqlalchemy as sa

from tests.nova import faults

FIRST, SECOND = 'compute-1', 'compute-2'
ONE_ROW = {'mode': 'reservations', 'adopt': True}


def say(*words):
    print(*words, file=sys.__stdout__, flush=True)


class Measure(faults.TestCase):

    fleet = [faults.NODE]

    def setUp(self):
        self.useFixture(fixtures.EnvironmentVariable('OS_TEST_TIMEOUT', '0'))
        super().setUp()
        self.placement_calls = 0
        for method in 'get', 'put', 'post', 'delete':
            self._count(method)

    def _count(self, method):
        call = getattr(report.SchedulerReportClient, method)

        def counted(*args, **kwargs):
            self.placement_calls += 1
            return call(*args, **kwargs)

        self.useFixture(fixtures.MonkeyPatch(
            f'nova.scheduler.client.report.SchedulerReportClient.{method}',
            counted))

    def measured(self, words, do):
        self.wire.requests.clear()
        self.placement_calls = 0
        wall, cpu = time.monotonic(), time.process_time()
        result = do()
        say(f'{self.count:5} {words:40}'
            f' {time.monotonic() - wall:8.1f} s'
            f' {time.process_time() - cpu:8.1f} s of CPU'
            f' {len(self.wire.requests):6} calls of Ironic'
            f' {self.placement_calls:6} of Placement'
            f' {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024:6}'
            f' MiB at most; load {os.getloadavg()[0]:.0f}')
        return result

    def test_servers(self):
        for self.count in map(int, os.environ.get(
                'SERVERS', '10 100 1000').split()):
            self._measure()
            self._clear()

    def _measure(self):
        driver = self.start_compute(
            FIRST, reservations={'mode': 'per_node'}).manager.driver
        server = self.boot(self.flavor(), host=FIRST)
        self.act(server, 'reboot', 'ACTIVE', type='HARD')
        nodes = self._copy_node(server)
        self.measured('rows per node', lambda: self.run_periodic(FIRST))
        self._copy_server(server, nodes)
        self.stop_compute(FIRST)

        driver = self.measured(
            'start of the host that is to be one row',
            lambda: self.start_compute(FIRST, reservations=ONE_ROW)
        ).manager.driver
        self.measured('switch', lambda: self._until(
            FIRST, driver, lambda: not driver.adoption.round()[1]))
        self.measured('old rows go', lambda: self.run_periodic(FIRST))
        self.stop_compute(FIRST)
        driver = self.measured('start', lambda: self.start_compute(
            FIRST, reservations={'mode': 'reservations', 'adopt': False})
        ).manager.driver
        self.measured('periodic task', lambda: self.run_periodic(FIRST))
        self.measured('power sync', lambda: self._sync(driver))
        self.stop_compute(FIRST)
        self.force_down(FIRST)
        # Only now, because a host of one row is a member of the hash ring.
        self.start_compute(SECOND, reservations={'mode': 'reservations'})
        self.measured('move: the reservations', self._give)
        driver = self.computes[SECOND].manager.driver
        self.measured('move: takeover', lambda: self._until(
            SECOND, driver, lambda: self.instances(SECOND) == self.count))

    def _until(self, host, driver, is_done):
        while True:
            with self.as_host(host):
                driver.worker.work()
                if is_done():
                    return

    def _sync(self, driver):
        count = driver.get_num_instances()
        assert count == self.count, count
        for each in objects.InstanceList.get_by_host(
                context.get_admin_context(), FIRST, expected_attrs=[]):
            assert driver.get_info(each).state == 1

    def _give(self):
        for each in self.ironic.reservations(host=FIRST, limit=1000):
            self.give({'id': each['instance_uuid']}, SECOND, FIRST)

    def instances(self, host):
        return len(objects.InstanceList.get_by_host(
            context.get_admin_context(), host, expected_attrs=[]))

    # Copies

    def _copy_node(self, server):
        """Nodes that are free, beside the one of the server."""
        with self.database.begin() as connection:
            nodes = sa.Table('nodes', sa.MetaData(),
                             autoload_with=connection)
            row = connection.execute(sa.select(nodes).where(
                nodes.c.instance_uuid == server['id'])).mappings().one()
            made = [str(uuid.uuid4()) for _ in range(self.count - 1)]
            for each in made:
                connection.execute(nodes.insert().values(**{
                    **row, 'id': None, 'uuid': each, 'name': None,
                    'instance_uuid': None, 'instance_info': '{}',
                    'provision_state': 'available',
                    'target_provision_state': None}))
        return made

    def _copy_server(self, server, nodes):
        ctxt = context.get_admin_context()
        first = objects.Instance.get_by_uuid(ctxt, server['id'],
                                             expected_attrs=[
                                                 'flavor', 'system_metadata'])
        for node in nodes:
            row = objects.ComputeNode.get_by_uuid(ctxt, node)
            instance = objects.Instance(
                ctxt, uuid=str(uuid.uuid4()), host=FIRST, launched_on=FIRST,
                node=node, compute_id=row.id, vm_state='active',
                power_state=1, user_id=first.user_id,
                project_id=first.project_id, image_ref=first.image_ref,
                flavor=copy.deepcopy(first.flavor),
                system_metadata=dict(first.system_metadata),
                instance_type_id=first.instance_type_id,
                memory_mb=first.memory_mb, vcpus=first.vcpus,
                root_gb=first.root_gb, ephemeral_gb=0,
                display_name='server', availability_zone='nova')
            instance.create()
            self.placement.put(f'/allocations/{instance.uuid}', {
                'allocations': {node: {'resources': {'CUSTOM_GOLD': 1}}},
                'project_id': instance.project_id,
                'user_id': instance.user_id, 'consumer_generation': None},
                version='1.28')
            self.sql("UPDATE nodes SET instance_uuid = :i, "
                     "provision_state = 'active' WHERE uuid = :n",
                     i=instance.uuid, n=node)

    def _clear(self):
        """As it was before."""
        ctxt = context.get_admin_context()
        for each in objects.InstanceList.get_by_host(ctxt, SECOND):
            each.destroy()
            self.placement.delete(f'/allocations/{each.uuid}')
        for host in list(self.computes):
            self.stop_compute(host)
        for service in self.api.get_services(binary='nova-compute'):
            self.api.api_delete(f'/os-services/{service["id"]}')
        self.host_mappings.clear()
        self.sql('DELETE FROM reservations')
        self.sql('DELETE FROM nodes')
        self._compute_ids.clear()
        self.enrol(*self.fleet)


# Rounds are due whenever the loop says so.
assert reconciler.LONGEST
