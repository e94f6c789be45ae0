# SPDX-License-Identifier: Apache-2.0
"""Several processes of one host, of which one has the host lease."""

import threading
import time
import types
import uuid

import fixtures
from nova import context
from nova import objects
from nova.virt import node as virt_node
from nova.virt.ironic_reservations import restart
from nova.virt.ironic_reservations import takeover
import testtools

from tests.nova import base
from tests.nova import faults
from tests.nova import standbys
from tests.nova.helpers import compute_nodes
from tests.nova.standbys import ACQUIRE
from tests.nova.standbys import GIVE_UP
from tests.nova.standbys import HOST
from tests.nova.standbys import WRITE

WAITS = 'write to Ironic wait until it is renewed'
POWER = 'PUT', '/v1/nodes/.*/states/power'


class TestStandby(standbys.TestCase):

    # Acquire the lease

    def test_without_standby(self):
        self.start_compute(HOST)
        self.delete(self.boot(self.gold))
        self.stop_compute(HOST)
        self.assertEqual([], self.host_leases())
        for _, path, body, query in self.write_calls():
            self.assertNotIn('/hosts', path)
            self.assertNotIn('holder', query)
            self.assertFalse(isinstance(body, dict) and 'holder' in body)

    def test_every_write_names_the_holder(self):
        driver = self.start()
        server = self.boot(self.gold)
        self.act(server, 'reboot', 'ACTIVE', type='HARD')
        driver.reservations.adopt({'instance_uuid': server['id'],
                                   'host': HOST})
        self.delete(server)
        self.assert_nothing_left()
        lease, = self.host_leases()
        self.assertTrue(lease['live'])
        method, path, body, _ = self.write_calls()[0]
        self.assertEqual(ACQUIRE, (method, path))
        self.assertEqual({'holder': lease['holder'], 'ttl': 600}, body)
        methods = set()
        for method, path, body, query in self.write_calls()[1:]:
            if path.startswith('/v1/reservations'):
                methods.add(method)
                self.assertEqual(lease['holder'], (
                    body if method == 'POST' else query)['holder'])
            else:
                self.assertNotIn(lease['holder'], (body, query))
        self.assertEqual({'POST', 'PATCH', 'DELETE'}, methods)

    def test_waits_for_the_expiry_of_the_others_lease(self):
        self.acquire_as_another()
        other = self.holder()
        self.wire.on(*ACQUIRE, lambda send: send(), times=2)
        self.wire.on(*ACQUIRE, faults.before(self.expire_host_lease))
        driver = self.start()
        self.assertEqual(3, len(self.wire.bodies(*ACQUIRE)))
        # Until then it requested nothing else except the versions.
        requests = [(method, path) for method, path, _ in self.wire.requests]
        self.assertEqual({ACQUIRE}, {
            request for request in requests[:requests.index(ACQUIRE) + 3]
            if request[1] not in ('/', '/v1', '/v1/')})
        self.assertNotEqual(other, self.holder())
        self.assertTrue(driver.host_lease.is_live())
        self.assertEqual(1, self.log.count('waits for the lease of host'))

    def test_waits_for_ironic(self):
        # The second request acquires the lease; its response is lost.
        self.wire.on(*ACQUIRE, faults.cut)
        self.wire.on(*ACQUIRE, faults.lose_response)
        self.wire.on(*ACQUIRE, faults.cut)
        self.start()
        self.assertEqual(4, len(self.wire.bodies(*ACQUIRE)))
        self.assertEqual(1, self.log.count('waits for the lease of host'))
        self.boot(self.gold)

    # Renew the lease

    def test_renews_in_time(self):
        driver = self.start(ttl=10)
        self.wait_for(lambda: self.assertIsNotNone(
            self.host_leases()[0]['updated_at']))
        self.assertTrue(driver.host_lease.renew())

    def test_renews_an_expired_lease(self):
        driver = self.start()
        row, = objects.ComputeNodeList.get_all(context.get_admin_context())
        self.assertEqual(self._compute_ids[HOST], row.uuid)
        self.expire_host_lease()
        self.assertTrue(driver.host_lease.renew())
        self.assertTrue(self.host_leases()[0]['live'])
        # Another process's lease is not renewed.
        self.take_over()
        self.assertRaises(standbys.Exit, driver.host_lease.renew)
        self.assertIn('lost the lease of host compute-1', self.log)

    def test_another_was_the_host_and_has_left(self):
        """It does not renew the lease, although it is free."""
        driver = self.start()
        self.sql("UPDATE reservations_hosts SET created_at = "
                 "'2000-01-01 00:00:00'")
        self.assertRaises(standbys.Exit, driver.host_lease.renew)
        self.assertIn('another process has served it', self.log)
        # The next process need not wait.
        self.assertEqual([], self.host_leases())

    def test_late_write(self):
        """It is sent again, because nobody has taken the lease."""
        self.start()
        server = self.boot(self.gold)
        self.wire.on('DELETE', f'/v1/reservations/{server["id"]}',
                     faults.before(self.expire_host_lease))
        self.delete(server)
        self.assert_nothing_left()
        self.assertTrue(self.host_leases()[0]['live'])

    def test_ironic_is_unavailable_for_longer_than_the_lease(self):
        driver = self.start(ttl=10, ironic={
            'connect_retries': 3, 'connect_retry_delay': 0.1})
        server, another = self.boot_many(2, self.gold)
        # Otherwise threads would wait forever if the test fails.
        self.addCleanup(driver.host_lease.renew)
        self.addCleanup(self.wire.heal)
        gate = self.gate()

        def late(send):
            self.wait_for(
                lambda: self.assertFalse(driver.host_lease.is_live()))
            faults.cut(send)

        self.wire.on(*ACQUIRE, faults.cut, times=1000)
        # The lease expires during the first attempt.
        self.wire.on(*WRITE, late)
        self.wire.on(*WRITE, faults.before(gate), times=2)
        self.act(server, 'os-stop')
        self.wait_for(lambda: self.assertEqual(1, self.log.count(WAITS)))
        self.act(another, 'os-stop')
        self.wait_for(lambda: self.assertEqual(2, self.log.count(WAITS)))
        # The driver's own thread also waits.
        threading.Thread(target=driver.worker.work, daemon=True).start()
        self.wait_for(lambda: self.assertEqual(3, self.log.count(WAITS)))
        # None of them has sent a request, but reads continue.
        self.assertFalse(gate.is_reached())
        self.assertEqual(server['id'], driver.reservations.get(
            server['id'])['instance_uuid'])
        gate.open()
        self.wire.heal()
        for stopping in server, another:
            self.wait_for_status(stopping, 'SHUTOFF')
        self.assertEqual(HOST, self.ironic.reservations()[0]['host'])
        # The process does not exit because Ironic is unavailable.
        self.assertTrue(driver.host_lease.is_live())
        self.assertNotIn('exiting: ', self.log)

    # Take over from another process

    @base.smoke
    def test_takeover(self):
        self.start()
        server = self.boot(self.gold)
        before = objects.Instance.get_by_uuid(
            context.get_admin_context(), server['id'])
        stale_driver = self.freeze()
        self.expire_host_lease()
        self.start()
        self.act(server, 'reboot', 'ACTIVE', type='HARD')
        after = objects.Instance.get_by_uuid(
            context.get_admin_context(), server['id'])
        self.assertEqual((before.host, before.node, before.compute_id),
                         (after.host, after.node, after.compute_id))
        self.assertEqual({HOST: HOST}, compute_nodes())
        reservations = self.ironic.reservations()
        client, other = stale_driver.reservations, str(uuid.uuid4())
        for write in (
                lambda: client.hold({'instance_uuid': other, 'host': HOST,
                                     'resource_class': 'gold'}),
                lambda: client.adopt({'instance_uuid': server['id'],
                                      'host': HOST}),
                lambda: client.renew(server['id'], HOST, 60),
                lambda: client.release(server['id'], HOST),
                stale_driver.host_lease.renew):
            self.assertRaises(standbys.Exit, write)
        self.assertEqual(reservations, self.ironic.reservations())
        self.delete(server)
        self.assert_nothing_left()

    def report_power_states(self):
        """Report a power state of each server, as Ironic may do to Nova."""
        for row in self.ironic.reservations():
            objects.InstanceAction.action_start(
                context.get_admin_context(), row['instance_uuid'], 'start',
                want_result=False)

    def test_queue(self):
        """The successor executes the requests in the queue.

        Nova would repeat the reboot of a machine that is off when it starts.
        """
        self.start()
        servers = off, rebooting, rebuilding, stopping = self.boot_many(
            4, self.gold)
        for server in servers[1:]:
            self.act(server, 'reboot', 'ACTIVE', type='HARD')
        self.freeze()
        for server in off, rebooting:
            self.act(server, 'reboot', type='HARD')
        self.wire.on(*POWER, faults.before(self.report_power_states), times=9)
        self.rebuild(rebuilding, self.image(), status=None)
        self.act(stopping, 'os-stop')
        self.expire_host_lease()
        self.start()
        events = [
            (stopping, 'stop', 'compute_stop_instance', 'SHUTOFF'),
            (off, 'reboot', 'compute_reboot_instance', 'ACTIVE'),
            (rebooting, 'reboot', 'compute_reboot_instance', 'ACTIVE'),
            (rebuilding, 'rebuild', 'compute_rebuild_instance', 'ACTIVE')]
        for server, action, event, status in events:
            self._wait_for_instance_action_event(
                server, action, event, 'Success')
            self.wait_for_status(server, status)
        self.delete(*servers)
        self.assert_nothing_left()

    def test_lost_queue(self):
        """Tasks that are not started end, as at a start without standby."""
        self.start()
        server = self.boot(self.gold)
        self.act(server, 'reboot', 'ACTIVE', type='HARD')
        self.freeze()
        instance = objects.Instance.get_by_uuid(
            context.get_admin_context(), server['id'])
        instance.task_state = 'rebooting_hard'
        instance.save()
        self.expire_host_lease()
        driver = self.start()
        driver.worker.work()
        self.assertEqual('HARD_REBOOT',
                         self.api.get_server(server['id'])['status'])
        with fixtures.MonkeyPatch(
                'nova.virt.ironic_reservations.takeover.time',
                types.SimpleNamespace(monotonic=lambda: (
                    time.monotonic() + takeover.QUEUE_TIMEOUT + 1))):
            driver.worker.work()
        self.wait_for_status(server, 'ACTIVE')
        self.delete(server)
        self.assert_nothing_left()

    def test_power_event_during_a_reboot(self):
        """Without standby Nova repeats the reboot, and starts."""
        self.start_compute(HOST)
        servers = self.boot_many(2, self.gold)
        self.stop_compute(HOST)
        for server in servers:
            self.save(server, task_state='rebooting_hard')
        self.wire.on(*POWER, faults.before(self.report_power_states), times=9)
        self.start_compute(HOST)
        for server in servers:
            self.wait_for_status(server, 'ACTIVE')
            self.assertEqual('power on',
                             self.ironic.node_of(server).power_state)

    def test_compute_id(self):
        """Read from the database, otherwise from the file, or generated."""
        def uuids():
            return [row.uuid for row in objects.ComputeNodeList.get_all(
                context.get_admin_context())]

        self._compute_ids[HOST] = first = str(uuid.uuid4())
        self.start()
        self.assertEqual([first], uuids())
        for file in None, first, str(uuid.uuid4()):
            self.stop_compute(HOST)
            self._compute_ids[HOST] = file
            virt_node.LOCAL_NODE_UUID = None
            self.assertNotIn('Ignored ', self.log)
            self.start()
            self.assertEqual([first], uuids())
            self.assertEqual(first, virt_node.LOCAL_NODE_UUID)
            self.assertEqual({HOST: first}, self.providers())
        self.assertIn(f'Ignored {file} in the file compute_id: host {HOST} '
                      f'has the compute_id {first}', self.log)
        self.boot(self.gold)

    def create_service(self):
        objects.Service(context.get_admin_context(), host=HOST,
                        binary='nova-compute', topic='compute').create()

    def test_service_is_created_during_the_wait(self):
        """Nova has looked for it before it called the driver."""
        self.acquire_as_another()

        def finish_other():
            self.create_service()
            self.expire_host_lease()

        self.wire.on(*ACQUIRE, faults.after(finish_other))
        self.assertRaises(standbys.Exit, self.start)
        self.assertEqual([], self.host_leases())
        # The service manager restarts the process.
        self.start()
        self.boot(self.gold)

    def test_service_is_created_before_the_wait(self):
        self.create_service()
        self.acquire_as_another()
        self.wire.on(*ACQUIRE, faults.after(self.expire_host_lease))
        self.start()
        self.assertEqual(1, len(self.host_leases()))

    def test_clean_stop(self):
        driver = self.start()
        before = self.holder()
        self.stop_compute(HOST)
        # Nova's fixtures do not wait for the end of the stop.
        self.wait_for(lambda: self.assertEqual([], self.host_leases()))
        # A late renewal does not acquire the lease again.
        self.assertFalse(driver.host_lease.renew())
        self.assertEqual([], self.host_leases())
        self.wire.requests.clear()
        self.start()
        self.assertEqual(1, len(self.wire.bodies(*ACQUIRE)))
        self.assertNotEqual(before, self.holder())

    @testtools.skipUnless(
        restart.SUPPORTED, 'Nova before 34 waits for operations in progress.')
    def test_stop_in_a_tear_down(self):
        """It exits when its lease expires, and the next process continues."""
        def hang(send):
            arrival.release()
            # The thread ends with its process.
            self._wait_for_the_end()

        driver, arrival = self.start(ttl=10), threading.Semaphore(0)
        server = self.boot(self.gold)
        self.wire.on('PUT', '/v1/nodes/.*/states/provision', hang)
        self.delete(server, wait=False)
        self.assertTrue(arrival.acquire(timeout=60))
        self.flags(manager_shutdown_timeout=1)
        threading.Thread(target=self.computes.pop(HOST).stop,
                         daemon=True).start()
        self.wait_for(lambda: self.assertIn(
            'This process of host compute-1 exits: its lease has expired',
            self.log))
        self.assertFalse(driver.host_lease.is_live())
        self.assertEqual([], self.wire.bodies(*GIVE_UP))
        self.useFixture(base.separate_locks())
        self.start().worker.work()
        self._wait_until_deleted(server)
        self.assert_nothing_left()

    def test_stop_while_ironic_is_unavailable(self):
        self.start()
        self.wire.on(*GIVE_UP, faults.cut)
        self.stop_compute(HOST)
        self.wait_for(lambda: self.assertIn(
            'Could not give up the lease', self.log))
        self.assertEqual(1, len(self.host_leases()))

    def stop_while_waiting(self, acquire):
        """Stop a process that is trying to acquire the lease.

        :param acquire: sends its last request.
        """
        def stop(send):
            response = acquire(send)
            self.wire.requests.clear()
            waiting.cleanup_host(HOST)
            return response

        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.host_lease.end_process',
            lambda: standbys.exit_process(0)))
        self.acquire_as_another()
        driver = self.start_compute('compute-2').manager.driver
        waiting = type(driver)(driver.virtapi)
        self.wire.on(*ACQUIRE, stop)
        self._config[HOST] = {'reservations': {'standby': True},
                              'ironic': {'endpoint_override': self.wire.url}}
        with self.as_host(HOST):
            status = self.assertRaises(
                standbys.Exit, waiting.init_host, HOST).args
        self.assertEqual((0,), status)

    def test_stop_while_waiting(self):
        """It has no lease to give up, and sends no request to Ironic."""
        self.stop_while_waiting(lambda send: send())
        self.assertEqual([], self.wire.requests)
        self.assertTrue(self.host_leases()[0]['live'])

    def test_stop_while_acquiring(self):
        """It gives up the lease that it has just acquired."""
        self.stop_while_waiting(faults.before(self.expire_host_lease))
        self.assertEqual([], self.host_leases())
