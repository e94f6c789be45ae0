# SPDX-License-Identifier: Apache-2.0
"""Several processes with the name of one host, of which one is it."""

import threading
import time
import types
import uuid

import fixtures
from nova import context
from nova import objects
from nova.virt import driver as virt_driver
from nova.virt import node as virt_node
from nova.virt.ironic_reservations import driver as driver_module
from oslo_concurrency import lockutils
import testtools

from tests.nova import base
from tests.nova import faults
from tests.nova.rows import rows

HOST = 'compute-1'
LEASE = f'/v1/reservations/hosts/{HOST}'
ASK, GIVE_UP = ('PUT', LEASE), ('DELETE', LEASE)
#: Whatever is written to Ironic, but for its own lease.
WRITE = 'POST|PUT|PATCH|DELETE', f'(?!{LEASE}).*'
WAITS = 'writing to Ironic waits'
#: Nova before 34 takes reboots and rebuilds that have not begun back when it
#: starts, and does not ask the driver.
KEEPS = hasattr(virt_driver.ComputeDriver, 'process_instances_at_startup')


class Ended(BaseException):
    """The process would have ended here."""


def end(status):
    raise Ended(status)


class TestCase(faults.TestCase):
    """A host whose processes take its place one after the other."""

    fleet = [faults.NODE] * 3

    def setUp(self):
        super().setUp()
        self.addCleanup(self.sql, 'DELETE FROM reservations_hosts')
        for name, value in (('host_lease.PAUSE', 0.1),
                            ('host_lease.os._exit', end)):
            self.useFixture(fixtures.MonkeyPatch(
                f'nova.virt.ironic_reservations.{name}', value))
        # What a process has read stays in it.
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.node.LOCAL_NODE_UUID', None))
        self.gold = self.flavor()

    def start(self, ttl=600, **config):
        """A process; with this ttl it does not renew by itself in a test."""
        return self.start_compute(HOST, reservations={
            'standby': True, 'standby_ttl': ttl}, **config).manager.driver

    def die(self):
        """The process answers nobody any more, but believes to be the host."""
        driver = self.silence(HOST, wait=True).manager.driver
        # Not to end what the next test does.
        self.addCleanup(driver.cleanup_host, HOST)
        return driver

    def be_another(self):
        """Another process is the host."""
        self.ironic.http.put(LEASE, json={
            'holder': str(uuid.uuid4()), 'ttl': 600}).raise_for_status()

    def lapse_host(self):
        self.sql("UPDATE reservations_hosts "
                 "SET expires_at = '2000-01-01 00:00:00'")

    def taken_over(self):
        self.lapse_host()
        self.be_another()

    def leases(self):
        response = self.ironic.http.get('/v1/reservations/hosts')
        response.raise_for_status()
        return response.json()['hosts']

    def holder(self):
        lease, = self.leases()
        return lease['holder']

    def writes(self):
        """Writes to Ironic that were sent: method, path, body and query."""
        return [each for each in self.wire.calls if each[0] != 'GET']


class TestStandby(TestCase):

    # Winning

    def test_without_standby(self):
        self.start_compute(HOST)
        self.delete(self.boot(self.gold))
        self.stop_compute(HOST)
        self.assertEqual([], self.leases())
        for _, path, body, query in self.writes():
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
        lease, = self.leases()
        self.assertTrue(lease['live'])
        method, path, body, _ = self.writes()[0]
        self.assertEqual(ASK, (method, path))
        self.assertEqual({'holder': lease['holder'], 'ttl': 600}, body)
        seen = set()
        for method, path, body, query in self.writes()[1:]:
            if path.startswith('/v1/reservations'):
                seen.add(method)
                self.assertEqual(lease['holder'], (
                    body if method == 'POST' else query)['holder'])
            else:
                self.assertNotIn(lease['holder'], (body, query))
        self.assertEqual({'POST', 'PATCH', 'DELETE'}, seen)

    def test_waits_for_the_end_of_the_others_lease(self):
        self.be_another()
        other = self.holder()
        self.wire.on(*ASK, lambda go_on: go_on(), times=2)
        self.wire.on(*ASK, faults.before(self.lapse_host))
        driver = self.start()
        self.assertEqual(3, len(self.wire.sent(*ASK)))
        # Nothing else was asked of Ironic before, but what it is.
        asked = [(method, path) for method, path, _ in self.wire.requests]
        self.assertEqual({ASK}, {
            each for each in asked[:asked.index(ASK) + 3]
            if each[1] not in ('/', '/v1', '/v1/')})
        self.assertNotEqual(other, self.holder())
        self.assertTrue(driver.host_lease.is_live())
        self.assertEqual(1, self.log.count('waits for the lease of host'))

    def test_waits_for_ironic(self):
        # The second answer is lost on the way, and the lease is its own.
        self.wire.on(*ASK, faults.cut)
        self.wire.on(*ASK, faults.lose_answer)
        self.wire.on(*ASK, faults.cut)
        self.start()
        self.assertEqual(4, len(self.wire.sent(*ASK)))
        self.assertEqual(1, self.log.count('waits for the lease of host'))
        self.boot(self.gold)

    # Staying the host

    def test_renews_in_time(self):
        driver = self.start(ttl=10)
        self.wait_for(lambda: self.assertIsNotNone(
            self.leases()[0]['updated_at']))
        self.assertTrue(driver.host_lease.renew())

    def test_renews_what_was_over(self):
        driver = self.start()
        row, = objects.ComputeNodeList.get_all(context.get_admin_context())
        self.assertEqual(self._compute_ids[HOST], row.uuid)
        self.lapse_host()
        self.assertTrue(driver.host_lease.renew())
        self.assertTrue(self.leases()[0]['live'])
        # But not what is another's.
        self.taken_over()
        self.assertRaises(Ended, driver.host_lease.renew)
        self.assertIn('lost the lease of host compute-1', self.log)

    def test_another_was_the_host_and_has_left(self):
        """Nobody has the lease, and yet it is not this process's own."""
        driver = self.start()
        self.sql("UPDATE reservations_hosts SET created_at = "
                 "'2000-01-01 00:00:00'")
        self.assertRaises(Ended, driver.host_lease.renew)
        self.assertIn('another process has served it', self.log)
        # Whoever is started in its place need not wait.
        self.assertEqual([], self.leases())

    def test_write_that_is_late(self):
        """It is sent again, because nobody has taken the lease."""
        self.start()
        server = self.boot(self.gold)
        self.wire.on('DELETE', f'/v1/reservations/{server["id"]}',
                     faults.before(self.lapse_host))
        self.delete(server)
        self.assert_nothing_left()
        self.assertTrue(self.leases()[0]['live'])

    def test_ironic_is_away_for_longer_than_the_lease(self):
        driver = self.start(ttl=10, ironic={
            'connect_retries': 3, 'connect_retry_delay': 0.1})
        server, another = self.boot_many(2, self.gold)
        # What waits would wait forever when the test has failed.
        self.addCleanup(driver.host_lease.renew)
        self.addCleanup(self.wire.heal)
        healed = self.gate()

        def late(go_on):
            self.wait_for(
                lambda: self.assertFalse(driver.host_lease.is_live()))
            faults.cut(go_on)

        self.wire.on(*ASK, faults.cut, times=1000)
        # Its first try is under way when the lease ends.
        self.wire.on(*WRITE, late)
        self.wire.on(*WRITE, faults.before(healed))
        self.wire.on(*WRITE, faults.before(healed))
        self.act(server, 'os-stop')
        self.wait_for(lambda: self.assertEqual(1, self.log.count(WAITS)))
        self.act(another, 'os-stop')
        self.wait_for(lambda: self.assertEqual(2, self.log.count(WAITS)))
        # Nor does the driver's own thread go on.
        threading.Thread(target=driver.worker.work, daemon=True).start()
        self.wait_for(lambda: self.assertEqual(3, self.log.count(WAITS)))
        # Neither has come to the wire; reading goes on.
        self.assertFalse(healed.reached)
        self.assertEqual(server['id'], driver.reservations.get(
            server['id'])['instance_uuid'])
        healed.open()
        self.wire.heal()
        for each in server, another:
            self.wait_for_status(each, 'SHUTOFF')
        self.assertEqual(HOST, self.ironic.reservations()[0]['host'])
        # That Ironic is away ends no process.
        self.assertTrue(driver.host_lease.is_live())
        self.assertNotIn('exiting: ', self.log)

    # Being another's successor

    @base.smoke
    def test_takeover(self):
        self.start()
        server = self.boot(self.gold)
        before = objects.Instance.get_by_uuid(
            context.get_admin_context(), server['id'])
        stale = self.die()
        self.lapse_host()
        self.start()
        self.act(server, 'reboot', 'ACTIVE', type='HARD')
        after = objects.Instance.get_by_uuid(
            context.get_admin_context(), server['id'])
        self.assertEqual((before.host, before.node, before.compute_id),
                         (after.host, after.node, after.compute_id))
        self.assertEqual({HOST: HOST}, rows())
        held = self.ironic.reservations()
        client, other = stale.reservations, str(uuid.uuid4())
        for write in (
                lambda: client.hold({'instance_uuid': other, 'host': HOST,
                                     'resource_class': 'gold'}),
                lambda: client.adopt({'instance_uuid': server['id'],
                                      'host': HOST}),
                lambda: client.renew(server['id'], HOST, 60),
                lambda: client.release(server['id'], HOST),
                stale.host_lease.renew):
            self.assertRaises(Ended, write)
        self.assertEqual(held, self.ironic.reservations())
        self.delete(server)
        self.assert_nothing_left()

    def test_queue(self):
        """What was asked of the dead one is done, and done by its cast."""
        self.start()
        servers = rebooting, rebuilding, stopping = self.boot_many(
            3, self.gold)
        for server in servers:
            self.act(server, 'reboot', 'ACTIVE', type='HARD')
        self.die()
        self.act(rebooting, 'reboot', type='HARD')
        self.rebuild(rebuilding, self.image(), status=None)
        self.act(stopping, 'os-stop')
        self.lapse_host()
        self.start()
        done = [
            (stopping, 'stop', 'compute_stop_instance', 'SHUTOFF'),
            (rebooting, 'reboot', 'compute_reboot_instance', 'ACTIVE'),
            (rebuilding, 'rebuild', 'compute_rebuild_instance', 'ACTIVE')]
        for server, action, event, status in done[:None if KEEPS else 1]:
            self._wait_for_instance_action_event(
                server, action, event, 'Success')
            self.wait_for_status(server, status)
        self.delete(*servers)
        self.assert_nothing_left()

    def test_queue_that_is_lost(self):
        """What nobody begins ends, as at a start without a standby."""
        self.start()
        server = self.boot(self.gold)
        self.act(server, 'reboot', 'ACTIVE', type='HARD')
        self.die()
        instance = objects.Instance.get_by_uuid(
            context.get_admin_context(), server['id'])
        instance.task_state = 'rebooting_hard'
        instance.save()
        self.lapse_host()
        driver = self.start()
        driver.worker.work()
        self.assertEqual('HARD_REBOOT' if KEEPS else 'ACTIVE',
                         self.api.get_server(server['id'])['status'])
        with fixtures.MonkeyPatch(
                'nova.virt.ironic_reservations.takeover.time',
                types.SimpleNamespace(monotonic=lambda: (
                    time.monotonic() + driver_module.QUEUE_TIMEOUT + 1))):
            driver.worker.work()
        self.wait_for_status(server, 'ACTIVE')
        self.delete(server)
        self.assert_nothing_left()

    def test_compute_id(self):
        """It is that in the database, else the file's, else a new one."""
        def uuids():
            return [each.uuid for each in objects.ComputeNodeList.get_all(
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

    def test_host_that_is_new_to_nova_since(self):
        """Nova has looked for its service before it called the driver."""
        self.be_another()

        def other_was_there():
            self.create_service()
            self.lapse_host()

        self.wire.on(*ASK, faults.after(other_was_there))
        self.assertRaises(Ended, self.start)
        self.assertEqual([], self.leases())
        # As it is started anew.
        self.start()
        self.boot(self.gold)

    def test_host_that_nova_knew_when_it_began_to_wait(self):
        self.create_service()
        self.be_another()
        self.wire.on(*ASK, faults.after(self.lapse_host))
        self.start()
        self.assertEqual(1, len(self.leases()))

    def test_clean_stop(self):
        driver = self.start()
        before = self.holder()
        self.stop_compute(HOST)
        # Nova's fixtures do not wait until it has stopped.
        self.wait_for(lambda: self.assertEqual([], self.leases()))
        # A renewal that is late does not take the lease again.
        self.assertFalse(driver.host_lease.renew())
        self.assertEqual([], self.leases())
        self.wire.requests.clear()
        self.start()
        self.assertEqual(1, len(self.wire.sent(*ASK)))
        self.assertNotEqual(before, self.holder())

    @testtools.skipUnless(KEEPS, 'Nova before 34 waits for what is begun.')
    def test_stop_in_a_tear_down(self):
        """It ends with its lease, and the next process goes on."""
        def never(go_on):
            hangs.release()
            # The thread ends with its process.
            self._wait_for_the_end()

        driver, hangs = self.start(ttl=10), threading.Semaphore(0)
        server = self.boot(self.gold)
        self.wire.on('PUT', '/v1/nodes/.*/states/provision', never)
        self.delete(server, wait=False)
        self.assertTrue(hangs.acquire(timeout=60))
        self.flags(manager_shutdown_timeout=1)
        threading.Thread(target=self.computes.pop(HOST).stop,
                         daemon=True).start()
        self.wait_for(lambda: self.assertIn(
            'This process of host compute-1 exits: its lease has expired',
            self.log))
        self.assertFalse(driver.host_lease.is_live())
        self.assertEqual([], self.wire.sent(*GIVE_UP))
        self.useFixture(fixtures.MonkeyPatch(
            'oslo_concurrency.lockutils._semaphores', lockutils.Semaphores()))
        self.start().worker.work()
        self._wait_until_deleted(server)
        self.assert_nothing_left()

    def test_stop_while_ironic_is_away(self):
        self.start()
        self.wire.on(*GIVE_UP, faults.cut)
        self.stop_compute(HOST)
        self.wait_for(lambda: self.assertIn(
            'Could not give up the lease', self.log))
        self.assertEqual(1, len(self.leases()))

    def test_stop_while_waiting(self):
        """It has no lease to give up, and asks nothing of Ironic."""
        self.be_another()

        def stop(go_on):
            go_on()
            self.wire.requests.clear()
            waiting.cleanup_host(HOST)
            end(0)

        driver = self.start_compute('compute-2').manager.driver
        waiting = type(driver)(driver.virtapi)
        self.wire.on(*ASK, stop)
        self._config[HOST] = {'reservations': {'standby': True},
                              'ironic': {'endpoint_override': self.wire.url}}
        with self.as_host(HOST):
            self.assertRaises(Ended, waiting.init_host, HOST)
        self.assertEqual([], self.wire.requests)
        self.assertTrue(self.leases()[0]['live'])
