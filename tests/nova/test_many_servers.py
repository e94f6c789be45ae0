# SPDX-License-Identifier: Apache-2.0
"""Costs do not grow with the number of servers of a host."""

import contextlib
import itertools
import threading
import time
import types
import uuid

import fixtures
from nova import context
from nova import exception
from nova import objects
from nova.compute import power_state
from nova.scheduler.client import report
from nova.virt.ironic_reservations import mode

import tests.nova
from tests.nova import base
from tests.nova import faults


class TestCalls(faults.TestCase):
    fleet = [faults.NODE] * 6

    def setUp(self):
        super().setUp()
        self.placement_calls = []
        for method in 'get', 'put', 'post', 'delete':
            self._count(method)

    def _count(self, method):
        call = getattr(report.SchedulerReportClient, method)

        def count(client, url, *args, **kwargs):
            self.placement_calls.append(f'{method} {url}')
            return call(client, url, *args, **kwargs)

        self.useFixture(fixtures.MonkeyPatch(
            'nova.scheduler.client.report.SchedulerReportClient.' + method,
            count))

    def count_calls(self, do):
        """Count requests for allocations, and those to Ironic except polls."""
        self.placement_calls.clear()
        self.wire.requests.clear()
        do()
        return (sum(call.startswith('get /allocations/')
                    for call in self.placement_calls),
                sum(not path.startswith('/v1/nodes')
                    for _, path, _ in self.wire.requests))

    def boot_and_delete(self):
        server = self.boot(self.flavor_id)
        self.run_periodic()
        self.delete(server)

    def test_number_of_requests_is_constant(self):
        self.start_compute('compute-1')
        self.flavor_id = self.flavor()
        # Some requests are sent only once.
        self.delete(self.boot(self.flavor_id))
        self.wait_for_free_nodes()
        rounds = []
        for _ in range(3):
            life = self.count_calls(self.boot_and_delete)
            self.boot(self.flavor_id)
            self.wait_for_free_nodes()
            rounds.append((*life, *self.count_calls(self.run_periodic)))
        # A request is repeated if the node is locked or a generation has
        # changed. With a request for each server, every round would have more
        # requests than the previous one.
        for counts in zip(*rounds, strict=True):
            self.assertNotEqual(sorted(set(counts)), list(counts), rounds)
        least = [min(counts) for counts in zip(*rounds, strict=True)]
        self.assertEqual((2, 0), (least[0], least[2]), rounds)

    def test_requests_of_one_life(self):
        self.start_compute('compute-1')
        flavor, port = self.flavor(), self.port()
        self.delete(self.boot(flavor))
        self.wait_for_free_nodes()
        self.wire.requests.clear()
        server = self.boot(flavor, networks=[{'port': port}])
        reservation, = self.ironic.reservations()
        self.delete(server)
        self.wait_for(lambda: self.assertEqual('DELETE',
                                               self.wire.requests[-1][0]))
        names = {server['id']: 'SERVER', reservation['node_uuid']: 'NODE'}
        requests = [
            f'{method} ' + '/'.join(
                names.get(part, part)
                for part in path.removeprefix('/v1').split('/'))
            for method, path, _ in self.wire.requests]
        # Nova's driver polls the node several times.
        self.assertEqual([
            'POST /reservations',
            'PATCH /reservations/SERVER',
            'POST /nodes/NODE/vifs',
            'PATCH /reservations/SERVER',
            'GET /nodes/NODE',
            'PATCH /nodes/NODE',
            'GET /nodes/NODE/validate',
            'PUT /nodes/NODE/states/provision',
            'GET /nodes/NODE',
            'GET /nodes',  # until it is active
            'GET /reservations/SERVER',
            'GET /nodes',  # the power state, for Nova's record
            'GET /reservations/SERVER',
            'PUT /nodes/NODE/states/provision',
            'GET /nodes/NODE',
            'GET /nodes',  # until it is available
            'DELETE /reservations/SERVER',
        ], [request for request, _ in itertools.groupby(requests)])


class TestCase(faults.TestCase):

    @contextlib.contextmanager
    def cell(self):
        with context.target_cell(context.get_admin_context(),
                                 self.cell_mappings['cell1']) as ctxt:
            yield ctxt


class TestPowerStates(TestCase):
    """Queries of power states, with three running servers."""

    fleet = [faults.NODE] * 3

    def setUp(self):
        super().setUp()
        self.driver = self.start_compute('compute-1').manager.driver
        flavor = self.flavor()
        self.servers = self.boot_many(3, flavor)
        # Deploying fake hardware does not switch it on.
        self.sql("UPDATE nodes SET power_state = 'power on'")
        for server in self.servers:
            self.save(server, power_state=power_state.RUNNING)
        self.wire.calls.clear()

    def node_queries(self):
        """Return the queries of nodes since the last call."""
        queries = ['one' if 'instance_uuid' in query else 'all'
                   for _, path, _, query in self.wire.calls
                   if path == '/v1/nodes']
        self.wire.calls.clear()
        return queries

    def sync(self):
        semaphore = threading.Semaphore(0)
        sync = type(self.computes['compute-1'].manager
                    )._query_driver_power_state_and_sync

        def count(*args):
            sync(*args)
            semaphore.release()

        with fixtures.MonkeyPatch(
                'nova.compute.manager.ComputeManager.'
                '_query_driver_power_state_and_sync', count):
            self.run_periodic(task='_sync_power_states')
            for _ in self.servers:
                assert semaphore.acquire(timeout=60)

    @base.smoke
    def test_one_list_serves_a_sync(self):
        self.sync()
        self.assertEqual(['all'], self.node_queries())
        # Nova reads the state again before it stops a server.
        self.ironic.baremetal.set_node_power_state(
            self.ironic.node_of(self.servers[0]), 'power off', wait=True)
        self.sync()
        self.wait_for_status(self.servers[0], 'SHUTOFF')
        self.assertIn('one', self.node_queries())

    def test_uuids_in_capitals(self):
        """Ironic stores UUIDs as its clients have sent them."""
        server = self.servers[0]['id']
        self.sql('UPDATE nodes SET instance_uuid = upper(:i) '
                 'WHERE instance_uuid = :i', i=server)
        self.addCleanup(
            self.sql, 'UPDATE nodes SET instance_uuid = lower(instance_uuid)')
        self.assertIn(server, self.driver.list_instance_uuids())
        self.assertIn(server, self.driver.power_states.fetch())

    def test_further_power_state_queries(self):
        self._change_after_the_list()
        self._change_during_the_list()
        self._query_in_a_large_fleet()

    def _change_after_the_list(self):
        second = self.instance(self.servers[1])
        self.assertEqual(3, self.driver.get_num_instances())
        self.act(self.servers[0], 'os-stop', 'SHUTOFF')
        first = self.instance(self.servers[0])
        self.node_queries()
        self.assertEqual((4, 1), (self.driver.get_info(first).state,
                                  self.driver.get_info(second).state))
        self.assertEqual(['one'], self.node_queries())
        # The list serves only the sync.
        self.driver.get_info(second, use_cache=False)
        self.assertEqual(['one'], self.node_queries())

    def _change_during_the_list(self):
        def change(send):
            response = send()
            self.driver.power_states.forget(self.instance(self.servers[0]))
            return response

        self.wire.on('GET', '/v1/nodes', change)
        self.driver.get_num_instances()
        self.node_queries()
        for server in self.servers:
            self.driver.get_info(self.instance(server))
        self.assertEqual(['one'], self.node_queries())

    def _query_in_a_large_fleet(self):
        """A list would cost more than separate queries."""
        self.useFixture(fixtures.MonkeyPatch(
            mode.__name__ + '.LISTED', 0.5))
        self.run_periodic()
        self.node_queries()
        self.sync()
        self.assertEqual(['one'] * 3, self.node_queries())


class TestStart(TestCase):
    fleet = [faults.NODE] * 3

    @base.smoke
    def test_start_lists_nodes_once(self):
        self.start_compute('compute-1')
        flavor, nodes = self.flavor(), []
        for _ in range(2):
            self.boot(flavor)
            self.stop_compute('compute-1')
            self.wire.requests.clear()
            self.start_compute('compute-1')
            nodes.append([path for _, path, _ in self.wire.requests
                          if path.startswith('/v1/nodes')])
        self.assertEqual([['/v1/nodes']] * 2, nodes)

    def test_deleted_servers(self):
        """Those on one row are not read, because there are many."""
        self.start_compute('compute-1')
        self.delete(self.boot(self.flavor()))
        pages, get_by_filters = [], objects.InstanceList.get_by_filters

        def record(*args, **kwargs):
            pages.append(get_by_filters(*args, **kwargs))
            return pages[-1]

        with fixtures.MonkeyPatch('nova.objects.InstanceList.get_by_filters',
                                  staticmethod(record)):
            mode.find_left_behind('compute-1', dict)
        self.assertEqual([0], [len(page) for page in pages])

    def test_deleted_server_of_a_node_without_dashes(self):
        self.start_compute('compute-1')
        server = self.boot(self.flavor())
        self.delete(server)
        instance = objects.Instance.get_by_uuid(
            context.get_admin_context(read_deleted='yes'), server['id'])
        instance.node, instance.compute_id = uuid.uuid4().hex, 0
        instance.save()
        self.assertEqual({server['id']}, mode.find_left_behind(
            'compute-1', lambda: {server['id']}))

    def test_power_states_after_the_start(self):
        """An interrupted stop is completed, and its result is read."""
        self.start_compute('compute-1')
        server = self.boot(self.flavor())
        self.stop_compute('compute-1')
        self.save(server, task_state='powering-off')
        self.start_compute('compute-1')
        server = self.wait_for_status(server, 'SHUTOFF')
        self.assertEqual(4, server['OS-EXT-STS:power_state'])

    def test_waits_for_ironic(self):
        self.set_timing(start_pause=0.1)
        self.start_compute('compute-1')
        server = self.boot(self.flavor())
        self.stop_compute('compute-1')
        self.wire.on('.*', '.*', faults.cut, times=10 ** 6)
        start = threading.Thread(
            target=self.start_compute, args=['compute-1'])
        start.start()
        self.wait_for(lambda: self.assertIn(
            'nova-compute waits before it initializes 1 instances', self.log))
        self.assertTrue(start.is_alive())
        self.wire.heal()
        start.join()
        self.run_periodic()
        self.act(server, 'os-stop', 'SHUTOFF')
        self.delete(server)
        self.assert_nothing_left()


if tests.nova.NOVA < 34:
    # Nova does not pass all instances to the driver at once.
    del TestStart.test_start_lists_nodes_once
    del TestStart.test_waits_for_ironic


class TestServersAreKept(TestCase):
    """A host keeps servers that Nova would move or delete."""

    fleet = [{**faults.NODE, 'name': trait, 'traits': [f'CUSTOM_{trait}']}
             for trait in ('RED', 'BLUE', 'GREEN')]

    def snapshot(self, server):
        server = self.api.get_server(server['id'])
        ports = self.neutron.list_ports(
            True, device_id=server['id'])['ports']
        nodes = [{name: value for name, value in node.to_dict().items()
                  if name != 'updated_at'} for node in self.ironic.nodes()]
        return ({name: server[name] for name in (
            'status', 'OS-EXT-SRV-ATTR:host', 'OS-EXT-STS:task_state',
            'OS-EXT-STS:vm_state', 'OS-EXT-SRV-ATTR:hypervisor_hostname')},
            ports, nodes, self.ironic.reservations(),
            self.allocations(server))

    @base.smoke
    def test_evacuation(self):
        self.start_compute('compute-1')
        server = self.boot(self.flavor(), networks=[{'port': self.port()}])
        self.start_compute('compute-2')
        self.take_down('compute-1')
        before = self.snapshot(server)
        for target in {}, {'host': 'compute-2'}:
            self.api.post_server_action(server['id'], {'evacuate': target})
            event = self._wait_for_instance_action_event(
                server, 'evacuate', 'compute_rebuild_instance', 'Error')
            self.assertIn('"openstack baremetal reservation move"',
                          event['details'])
            self.wait_for(lambda: self.assertEqual(
                before, self.snapshot(server)))
        self.assertEqual(['failed', 'failed'], [
            migration['status'] for migration in self.api.api_get(
                '/os-migrations').body['migrations']])
        # Its host is up again, and has lost nothing.
        self.bring_back('compute-1')
        self.run_periodic()
        self.assertEqual(before, self.snapshot(server))
        self.act(server, 'os-stop', 'SHUTOFF')
        self.delete(server)
        self.assert_nothing_left()

    def test_unfinished_evacuation(self):
        """Nova before 34 destroys servers with such a record at its start."""
        self.start_compute('compute-1')
        server = self.boot(self.flavor())
        before = self.snapshot(server)
        self.stop_compute('compute-1')
        with self.cell() as ctxt:
            objects.Migration(
                ctxt, instance_uuid=server['id'], status='accepted',
                migration_type='evacuation', source_compute='compute-1',
                source_node='compute-1', dest_compute='compute-2').create()
        self.start_compute('compute-1')
        self.restore_allocations()
        self.assertEqual(before, self.snapshot(server))

    def test_evacuation_to_a_row_per_node(self):
        """Some hosts have one row, and others a row per node."""
        self.start_compute('compute-1')
        server = self.boot(self.flavor())
        self.start_compute('compute-2', reservations={'mode': 'per_node'})
        before = self.snapshot(server)
        driver = self.computes['compute-2'].manager.driver
        self.assertTrue(driver.capabilities['supports_evacuate'])
        with self.cell() as ctxt:
            instance = objects.Instance.get_by_uuid(ctxt, server['id'])
            self.assertRaises(exception.ComputeResourcesUnavailable,
                              driver.instance_exists, instance)
            # Nova decides about other rows per node.
            instance.node = self.ironic.node_of(server).id
            self.assertRaises(exception.InstanceEvacuateNotSupported,
                              driver.instance_exists, instance)
            # Nova also asks about its own servers, when it detaches a volume.
            self.assertTrue(self.computes['compute-1'].manager.driver
                            .instance_exists(objects.Instance.get_by_uuid(
                                ctxt, server['id'])))
        self.assertEqual(before, self.snapshot(server))

    def test_requests_before_a_move(self):
        self.start_compute('compute-1')
        server = self.boot(self.flavor())
        self.assign(server, 'another')
        before = self.snapshot(server)
        for action, method in (
                ('os-stop', 'compute_stop_instance'),
                ('reboot', 'compute_reboot_instance')):
            self.act(server, action, **(
                {'type': 'HARD'} if action == 'reboot' else {}))
            self._wait_for_instance_action_event(
                server, action.removeprefix('os-'), method, 'Error')
            # Nova's record may change, but not the node or its reservation.
            self.assertEqual(before[2:4], self.snapshot(server)[2:4])
            self.save(server, task_state=None, vm_state='active')
        self.delete(server, wait=False)
        self.wait_for_status(server, 'ERROR')
        self.assertEqual(before[2:], self.snapshot(server)[2:])

    def test_allocation_is_restored(self):
        self.start_compute('compute-1')
        server = self.boot(self.flavor(**{'trait:CUSTOM_RED': 'required'}))
        before = self.allocations(server)
        image = self.image(**{'trait:CUSTOM_BLUE': 'required'})
        self.rebuild(server, image, status=None)
        self._wait_for_instance_action_event(
            server, 'rebuild', 'compute_rebuild_instance', 'Error')
        # Nova has deleted it; otherwise this would test nothing.
        self.wait_for(lambda: self.assertEqual({}, self.allocations(server)))
        self.wait_for_status(server, 'ACTIVE')
        self.restore_allocations()
        self.assertEqual(before, self.allocations(server))
        self.assertIn('Restored a missing allocation',
                      self.log)
        # The allocation of a server that another host holds is not restored.
        self.sql("UPDATE reservations SET host = 'another'")
        self.placement.delete(f'/allocations/{server["id"]}')
        self.restore_allocations()
        self.assertEqual({}, self.allocations(server))
        self.sql("UPDATE reservations SET host = 'compute-1'")
        # The reservation is not read in every periodic task.
        self.wire.requests.clear()
        self.restore_allocations()
        self.assertNotIn(f'/v1/reservations/{server["id"]}',
                         [path for _, path, _ in self.wire.requests])
        self.assertEqual({}, self.allocations(server))
        with fixtures.MonkeyPatch(
                'nova.virt.ironic_reservations.placement.time',
                types.SimpleNamespace(
                    monotonic=lambda: time.monotonic() + 601)):
            self.restore_allocations()
        self.assertEqual(before, self.allocations(server))
        self.delete(server)
        self.assert_nothing_left()

    def restore_allocations(self):
        """Find missing allocations in a periodic task, and restore them."""
        self.run_periodic()
        self.work()

    def test_sums_of_32_bits(self):
        self.start_compute('compute-1')
        self.run_periodic()
        tracker = self.computes['compute-1'].manager.rt
        flavor = {'memory_mb': 2 ** 21, 'root_gb': 2 ** 21, 'vcpus': 2 ** 21}
        for _ in range(1100):
            tracker._update_usage(flavor, 'compute-1')
        row = tracker.compute_nodes['compute-1']
        with self.as_host('compute-1'):
            tracker._update(context.get_admin_context(), row)
        most = 2 ** 31 - 1
        self.assertEqual([most] * 3 + [-most] * 2, [
            row.memory_mb_used, row.local_gb_used, row.vcpus_used,
            row.free_ram_mb, row.free_disk_gb])
        self.run_periodic()
        # Nova counts 512 MiB for the host itself.
        self.assertEqual(512, row.memory_mb_used)
