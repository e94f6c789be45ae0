# SPDX-License-Identifier: Apache-2.0
"""A host that has servers costs no more than one that has none."""

import contextlib
import threading
import time
import types

import fixtures
from nova import context
from nova import exception
from nova import objects
from nova.compute import power_state
from nova.scheduler.client import report
from nova.virt.ironic_reservations import driver as ours
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

        def counted(client, url, *args, **kwargs):
            self.placement_calls.append(f'{method} {url}')
            return call(client, url, *args, **kwargs)

        self.useFixture(fixtures.MonkeyPatch(
            'nova.scheduler.client.report.SchedulerReportClient.' + method,
            counted))

    def calls(self, do):
        """What it does, and how many calls that makes.

        :returns: the result; calls of allocations in Placement, and calls of
            Ironic beside those that poll a node.
        """
        self.placement_calls.clear()
        self.wire.requests.clear()
        result = do()
        return result, (
            sum(each.startswith('get /allocations/')
                for each in self.placement_calls),
            sum(not path.startswith('/v1/nodes')
                for _, path, _ in self.wire.requests))

    def life(self):
        """Of a server, until Nova has deleted it."""
        server = self.boot(self.flavor_id)
        self.run_periodic()
        self.delete(server)

    def test_constant(self):
        self.start_compute('compute-1')
        self.flavor_id = self.flavor()
        # What is asked once in a life is asked now.
        self.delete(self.boot(self.flavor_id))
        self.wait_for_free_nodes()
        rounds = []
        for _ in range(3):
            _, life = self.calls(self.life)
            self.boot(self.flavor_id)
            self.wait_for_free_nodes()
            _, periodic = self.calls(self.run_periodic)
            rounds.append((*life, *periodic))
        # One that was refused, because the conductor still has the node or a
        # generation has changed, is sent again. With a call for each server
        # there would be more in each round than in the one before.
        for kind in zip(*rounds, strict=True):
            self.assertNotEqual(sorted(set(kind)), list(kind), rounds)
        least = [min(kind) for kind in zip(*rounds, strict=True)]
        self.assertEqual((2, 0), (least[0], least[2]), rounds)


class TestCase(faults.TestCase):

    @contextlib.contextmanager
    def cell(self):
        with context.target_cell(context.get_admin_context(),
                                 self.cell_mappings['cell1']) as ctxt:
            yield ctxt


class TestPowerStates(TestCase):
    """How often the host asks Ironic for them; three servers that run."""

    fleet = [faults.NODE] * 3

    def setUp(self):
        super().setUp()
        self.driver = self.start_compute('compute-1').manager.driver
        flavor = self.flavor()
        self.servers = self.boot_many(3, flavor)
        # Fake hardware is not switched on by its deployment.
        self.sql("UPDATE nodes SET power_state = 'power on'")
        for server in self.servers:
            self.set(server, power_state=power_state.RUNNING)
        self.wire.calls.clear()

    def looks(self):
        """The queries of nodes since the last call of this."""
        queries = [query for _, path, _, query in self.wire.calls
                   if path == '/v1/nodes']
        self.wire.calls.clear()
        return ['one' if 'instance_uuid' in each else 'all'
                for each in queries]

    def sync(self):
        synced = threading.Semaphore(0)
        sync = type(self.computes['compute-1'].manager
                    )._query_driver_power_state_and_sync

        def count(*args):
            sync(*args)
            synced.release()

        with fixtures.MonkeyPatch(
                'nova.compute.manager.ComputeManager.'
                '_query_driver_power_state_and_sync', count):
            self.run_periodic(task='_sync_power_states')
            for _ in self.servers:
                assert synced.acquire(timeout=60)

    @base.smoke
    def test_one_list_serves_a_sync(self):
        self.sync()
        self.assertEqual(['all'], self.looks())
        # Nova looks again at the machine before it has it stopped.
        self.ironic.baremetal.set_node_power_state(
            self.ironic.node_of(self.servers[0]), 'power off', wait=True)
        self.sync()
        self.wait_for_status(self.servers[0], 'SHUTOFF')
        self.assertIn('one', self.looks())

    def test_what_is_read_again(self):
        self._what_was_changed_since()
        self._what_changes_while_the_list_is_read()
        self._all_of_a_large_fleet()

    def _what_was_changed_since(self):
        second = self.instance(self.servers[1])
        self.assertEqual(3, self.driver.get_num_instances())
        self.act(self.servers[0], 'os-stop', 'SHUTOFF')
        first = self.instance(self.servers[0])
        self.looks()
        self.assertEqual((4, 1), (self.driver.get_info(first).state,
                                  self.driver.get_info(second).state))
        self.assertEqual(['one'], self.looks())
        # Nor is a list used for anything else.
        self.driver.get_info(second, use_cache=False)
        self.assertEqual(['one'], self.looks())

    def _what_changes_while_the_list_is_read(self):
        listed = []

        def change(go_on):
            listed.append(go_on())
            self.driver.power_states.forget(self.instance(self.servers[0]))
            return listed[0]

        self.wire.on('GET', '/v1/nodes', change)
        self.driver.get_num_instances()
        self.looks()
        for each in self.servers:
            self.driver.get_info(self.instance(each))
        self.assertEqual(['one'], self.looks())

    def _all_of_a_large_fleet(self):
        """A list of all would cost more than what is read of it."""
        self.useFixture(fixtures.MonkeyPatch(
            mode.__name__ + '.LISTED', 0.5))
        self.run_periodic()
        self.looks()
        self.sync()
        self.assertEqual(['one'] * 3, self.looks())


class TestStart(TestCase):
    fleet = [faults.NODE] * 3

    @base.smoke
    def test_one_list(self):
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
        """Those of a host that is one row are not read, for they are many."""
        self.start_compute('compute-1')
        self.delete(self.boot(self.flavor()))
        pages, read = [], objects.InstanceList.get_by_filters

        def recorded(*args, **kwargs):
            pages.append(read(*args, **kwargs))
            return pages[-1]

        with fixtures.MonkeyPatch('nova.objects.InstanceList.get_by_filters',
                                  staticmethod(recorded)):
            mode.find_left_behind('compute-1', dict)
        self.assertEqual([0], [len(page) for page in pages])

    def test_what_it_has_done_itself_is_read_again(self):
        """A stop that was interrupted is done, and its end is known."""
        self.start_compute('compute-1')
        server = self.boot(self.flavor())
        self.stop_compute('compute-1')
        self.set(server, task_state='powering-off')
        self.start_compute('compute-1')
        server = self.wait_for_status(server, 'SHUTOFF')
        self.assertEqual(4, server['OS-EXT-STS:power_state'])

    def test_waits_for_ironic(self):
        self.useFixture(fixtures.MonkeyPatch(
            ours.__name__ + '.START_PAUSE', 0.1))
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
    # Nova does not hand the driver all instances at once.
    del TestStart.test_one_list, TestStart.test_waits_for_ironic


class TestStays(TestCase):
    """What a host keeps of servers that others would take from it."""

    fleet = [{**faults.NODE, 'name': trait, 'traits': [f'CUSTOM_{trait}']}
             for trait in ('RED', 'BLUE', 'GREEN')]

    def everything(self, server):
        found = self.api.get_server(server['id'])
        ports = self.neutron.list_ports(
            True, device_id=server['id'])['ports']
        nodes = [{name: value for name, value in node.to_dict().items()
                  if name != 'updated_at'} for node in self.ironic.nodes()]
        return ({name: found[name] for name in (
            'status', 'OS-EXT-SRV-ATTR:host', 'OS-EXT-STS:task_state',
            'OS-EXT-STS:vm_state', 'OS-EXT-SRV-ATTR:hypervisor_hostname')},
            ports, nodes, self.ironic.reservations(),
            self.allocations(server))

    @base.smoke
    def test_evacuation(self):
        self.start_compute('compute-1')
        server = self.boot(self.flavor(), networks=[{'port': self.port()}])
        self.start_compute('compute-2')
        self.die('compute-1')
        before = self.everything(server)
        for target in {}, {'host': 'compute-2'}:
            self.api.post_server_action(server['id'], {'evacuate': target})
            event = self._wait_for_instance_action_event(
                server, 'evacuate', 'compute_rebuild_instance', 'Error')
            self.assertIn('"openstack baremetal reservation move"',
                          event['details'])
            self.wait_for(lambda: self.assertEqual(
                before, self.everything(server)))
        self.assertEqual(['failed', 'failed'], [
            each['status'] for each in self.api.api_get(
                '/os-migrations').body['migrations']])
        # Its host is back, and has lost nothing.
        self.come_back('compute-1')
        self.run_periodic()
        self.assertEqual(before, self.everything(server))
        self.act(server, 'os-stop', 'SHUTOFF')
        self.delete(server)
        self.assert_nothing_left()

    def test_unfinished_evacuation(self):
        """Nova before 34 destroys at its start what has such a record."""
        self.start_compute('compute-1')
        server = self.boot(self.flavor())
        before = self.everything(server)
        self.stop_compute('compute-1')
        with self.cell() as ctxt:
            objects.Migration(
                ctxt, instance_uuid=server['id'], status='accepted',
                migration_type='evacuation', source_compute='compute-1',
                source_node='compute-1', dest_compute='compute-2').create()
        self.start_compute('compute-1')
        self.put_back()
        self.assertEqual(before, self.everything(server))

    def test_evacuation_to_a_row_per_node(self):
        """While some hosts are one row and others are not."""
        self.start_compute('compute-1')
        server = self.boot(self.flavor())
        self.start_compute('compute-2', reservations={'mode': 'per_node'})
        before = self.everything(server)
        driver = self.computes['compute-2'].manager.driver
        self.assertTrue(driver.capabilities['supports_evacuate'])
        with self.cell() as ctxt:
            instance = objects.Instance.get_by_uuid(ctxt, server['id'])
            self.assertRaises(exception.ComputeResourcesUnavailable,
                              driver.instance_exists, instance)
            # Another row per node is Nova's own business.
            instance.node = self.ironic.node_of(server).id
            self.assertRaises(exception.InstanceEvacuateNotSupported,
                              driver.instance_exists, instance)
            # Nova asks for its own servers, too, when it detaches a volume.
            self.assertTrue(self.computes['compute-1'].manager.driver
                            .instance_exists(objects.Instance.get_by_uuid(
                                ctxt, server['id'])))
        self.assertEqual(before, self.everything(server))

    def test_queued_since_before_it_went_to_another_host(self):
        self.start_compute('compute-1')
        server = self.boot(self.flavor())
        self.give(server, 'another')
        before = self.everything(server)
        for action, method in (
                ('os-stop', 'compute_stop_instance'),
                ('reboot', 'compute_reboot_instance')):
            self.act(server, action, **(
                {'type': 'HARD'} if action == 'reboot' else {}))
            self._wait_for_instance_action_event(
                server, action.removeprefix('os-'), method, 'Error')
            # What Nova says of it may differ; the machine may not.
            self.assertEqual(before[2:4], self.everything(server)[2:4])
            self.set(server, task_state=None, vm_state='active')
        self.delete(server, wait=False)
        self.wait_for_status(server, 'ERROR')
        self.assertEqual(before[2:], self.everything(server)[2:])

    def test_allocation_is_put_back(self):
        self.start_compute('compute-1')
        server = self.boot(self.flavor(**{'trait:CUSTOM_RED': 'required'}))
        before = self.allocations(server)
        image = self.image(**{'trait:CUSTOM_BLUE': 'required'})
        self.rebuild(server, image, status=None)
        self._wait_for_instance_action_event(
            server, 'rebuild', 'compute_rebuild_instance', 'Error')
        # Nova has deleted it. Should it not, this test says nothing.
        self.wait_for(lambda: self.assertEqual({}, self.allocations(server)))
        self.wait_for_status(server, 'ACTIVE')
        self.put_back()
        self.assertEqual(before, self.allocations(server))
        self.assertIn('Restored a missing allocation', self.log)
        # Whose machine another host holds is not this one's business.
        self.sql("UPDATE reservations SET host = 'another'")
        self.placement.delete(f'/allocations/{server["id"]}')
        self.put_back()
        self.assertEqual({}, self.allocations(server))
        self.sql("UPDATE reservations SET host = 'compute-1'")
        # It is not asked for in every periodic task.
        self.wire.requests.clear()
        self.put_back()
        self.assertNotIn(f'/v1/reservations/{server["id"]}',
                         [path for _, path, _ in self.wire.requests])
        self.assertEqual({}, self.allocations(server))
        with fixtures.MonkeyPatch(
                'nova.virt.ironic_reservations.placement.time',
                types.SimpleNamespace(
                    monotonic=lambda: time.monotonic() + 601)):
            self.put_back()
        self.assertEqual(before, self.allocations(server))
        self.delete(server)
        self.assert_nothing_left()

    def put_back(self):
        """A periodic task finds what is missing, another thread mends it."""
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
        self.assertEqual([2 ** 31 - 1] * 3, [
            row.memory_mb_used, row.local_gb_used, row.vcpus_used])
        row.save()
        self.run_periodic()
        # Nova counts 512 MiB for the host itself.
        self.assertEqual(512, row.memory_mb_used)
