# SPDX-License-Identifier: Apache-2.0
"""What a dead host has left, and another is given."""

import threading
import time
import types

import fixtures
from nova import availability_zones
from nova import context
from nova import objects
from nova.compute import manager
from nova.virt.ironic_reservations import reconciler
from nova.virt.ironic_reservations import restart
from oslo_concurrency import lockutils

from tests.nova import faults
from tests.nova.rows import rows

FIRST, SECOND, THIRD = 'compute-1', 'compute-2', 'compute-3'


class TestCase(faults.TestCase):
    """Two hosts, of which the first one dies."""

    fleet = [faults.NODE] * 5

    def setUp(self):
        super().setUp()
        for host in FIRST, SECOND:
            self.start_compute(host)
        self.gold = self.flavor()

    def die(self, host=FIRST):
        super().die(host)

    def come_back(self, host=FIRST):
        super().come_back(host)

    def give(self, server, to=SECOND, by=FIRST):
        super().give(server, to, by)

    def work(self, host=SECOND):
        super().work(host)

    def work_until_status(self, server, status):
        def check():
            self.work()
            found = self.api.get_server(server['id'])
            self.assertEqual((status, None), (
                found['status'], found['OS-EXT-STS:task_state']))
        self.wait_for(check)

    def assert_with(self, host, *servers):
        provider = self.providers()[host]
        row = objects.ComputeNode.get_by_host_and_nodename(
            context.get_admin_context(), host, host)
        for server in servers:
            instance = self.instance(server)
            self.assertEqual(
                (host, host, host, row.id),
                (instance.host, instance.node, instance.launched_on,
                 instance.compute_id))
            self.assertEqual([provider], list(self.allocations(server)))


class TestTakeover(TestCase):

    def test_servers_of_a_dead_host(self):
        servers = self.boot_many(3, self.gold, host=FIRST)
        own = self.boot(self.gold, host=SECOND)
        self.work()
        # Without work a look is one call, however many servers there are.
        self.wire.requests.clear()
        for _ in range(3):
            self.work()
        self.assertEqual([('GET', '/v1/reservations', None)] * 3,
                         self.wire.requests)
        self.die()
        self.wire.requests.clear()
        for server in servers:
            self.give(server)
        self.work()
        self.assert_with(SECOND, *servers, own)
        for server in servers:
            self.assertEqual([('takeover', 'compute_takeover', 'Success',
                               SECOND)], self.happened(server, 'takeover'))
        self.assertEqual([], self.happened(own, 'takeover'))
        # Nothing is to be ended of servers at rest.
        self.assertFalse([path for _, path, _ in self.wire.requests
                          if path.startswith('/v1/nodes')])
        self.run_periodic()
        self.assertEqual(4, self.usages(SECOND)['CUSTOM_GOLD'])
        self.assertEqual({'CUSTOM_GOLD': 0}, self.usages(FIRST))
        # Nothing was written to Ironic by that, nor by the host that is back.
        self.come_back()
        self.run_periodic()
        for task in '_sync_power_states', '_cleanup_running_deleted_instances':
            self.run_periodic(FIRST, task=task)
        self.assertEqual(set(), self.written())
        self.act(servers[0], 'reboot', 'ACTIVE', type='HARD')
        self.act(servers[1], 'os-stop', 'SHUTOFF')
        self.act(servers[1], 'os-start', 'ACTIVE')
        # Nothing is left of the host that was.
        self.stop_compute(FIRST)
        service, = self.api.get_services(host=FIRST, binary='nova-compute')
        self.api.api_delete(f'/os-services/{service["id"]}')
        self.assertEqual({SECOND: SECOND}, rows())
        self.assertEqual({SECOND}, set(self.providers()))
        self.delete(*servers, own)
        self.assert_nothing_left()

    def test_host_that_is_up(self):
        """It keeps what it has until it is down."""
        server = self.boot(self.gold, host=FIRST)
        self.give(server)
        self.work()
        self.assert_with(FIRST, server)
        self.assertIn('it was moved to host compute-2, but host compute-1 '
                      'is up', self.log)
        # Given back, it is nobody's business any more.
        self.give(server, FIRST, SECOND)
        self.work()
        self.wire.requests.clear()
        self.work()
        self.assertEqual([('GET', '/v1/reservations', None)],
                         self.wire.requests)
        self.give(server)
        self.die()
        self.work()
        self.assert_with(SECOND, server)

    def test_there_and_back(self):
        server = self.boot(self.gold, host=FIRST)
        self.die()
        self.give(server)
        self.give(server, FIRST, SECOND)
        self.work()
        self.assert_with(FIRST, server)
        self.give(server)
        self.work()
        self.come_back()
        self.die(SECOND)
        self.give(server, FIRST, SECOND)
        self.work(FIRST)
        self.assert_with(FIRST, server)

    def test_states(self):
        """What the host was doing ends as at its own next start.

        With Nova 34 that is where Ironic has come to: test_restart.
        """
        servers = building, rebuilding, rebooting, deleting, lost = (
            self.boot_many(5, self.gold, host=FIRST))
        self.die()
        self.set(building, vm_state='building', task_state='spawning')
        self.set(rebuilding, task_state='rebuild_spawning')
        self.set(rebooting, task_state='rebooting_hard')
        self.set(deleting, task_state='deleting')
        # Its allocation is gone, as that of a refused rebuild is.
        self.placement.delete(f'/allocations/{lost["id"]}')
        for server in servers:
            self.give(server)
        self.work()
        self.assert_with(SECOND, lost)
        self.wait_for_status(rebooting, 'ACTIVE')
        # Its node is active. That of the other was so before, too.
        self.work_until_status(
            building, 'ACTIVE' if restart.SUPPORTED else 'ERROR')
        self.work_until_status(rebuilding, 'ERROR')
        self.assert_with(SECOND, building, rebuilding, rebooting)
        self.wait_for(lambda: (
            self.work(),
            self.assertTrue(self.instance(deleting).deleted)))
        self.delete(building, rebuilding, rebooting, lost)
        self.assert_nothing_left()

    def test_task_that_has_begun_since(self):
        """What a user asks of the new host is not the old one's."""
        server = self.boot(self.gold, host=FIRST)
        self.die()
        self.give(server)
        locked = reconciler.Reconciler.call_with_lock

        def begin(*args):
            done = locked(*args)
            self.set(server, task_state='rebuilding')
            return done

        with fixtures.MonkeyPatch(
                'nova.virt.ironic_reservations.reconciler.Reconciler.'
                'call_with_lock', begin):
            self.work()
        self.assert_with(SECOND, server)
        self.assertEqual('rebuilding', self.instance(server).task_state)

    def test_deleted_while_the_host_was_down(self):
        """Whoever has the machine then tears it down."""
        server = self.boot(self.gold, host=FIRST)
        self.die()
        self.api.delete_server(server['id'])
        self.wait_for(lambda: self.assertTrue(self.instance(server).deleted))
        self.give(server)
        self.work()
        self.run_periodic(SECOND, task='_cleanup_running_deleted_instances')
        self.come_back()
        self.run_periodic()
        self.run_periodic(FIRST, task='_cleanup_running_deleted_instances')
        self.assert_nothing_left()

    def stopped(self, where, really):
        """Stop the second in its takeover, and let the third take over.

        :param where: the name of a function of Nova's in which it stops.
        :param really: that function.
        """
        self.start_compute(THIRD)
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.takeover.ALL_AGAIN', 0))
        server = self.boot(self.gold, host=FIRST)
        self.die()
        self.give(server)
        gate = self.gate()

        def stop(*args, **kwargs):
            if threading.current_thread() is frozen and not gate.reached:
                gate()
            return really(*args, **kwargs)

        frozen = threading.Thread(target=self.work, daemon=True)
        self.useFixture(fixtures.MonkeyPatch(where, stop))
        frozen.start()
        gate.wait()
        self.force_down(SECOND)
        self.give(server, THIRD, SECOND)
        with fixtures.MonkeyPatch('oslo_concurrency.lockutils._semaphores',
                                  lockutils.Semaphores()):
            self.work(THIRD)
        self.assert_with(THIRD, server)
        gate.open()
        frozen.join(60)
        self.force_down(SECOND, False)
        return server

    def test_given_away_before_the_save(self):
        server = self.stopped(
            'nova.availability_zones.get_host_availability_zone',
            availability_zones.get_host_availability_zone)
        self.assert_with(THIRD, server)

    def test_given_away_at_the_save(self):
        """The host that was given it mends what was saved too late."""
        server = self.stopped('nova.objects.instance.Instance.save',
                              objects.Instance.save)
        self.assertEqual(SECOND, self.instance(server).host)
        self.assertIn('it was moved to another host during the takeover',
                      self.log)
        for host in SECOND, THIRD:
            self.work(host)
        self.assert_with(THIRD, server)

    def test_lease_is_looked_at_for_each_server(self):
        """A round may take longer than the lease."""
        servers = self.boot_many(3, self.gold, host=FIRST)
        self.die()
        for server in servers:
            self.give(server)
        looks = []
        driver = self.computes[SECOND].manager.driver
        driver.host_lease = types.SimpleNamespace(
            wait=lambda: looks.append(1), give_up=lambda: None)
        self.work()
        self.assert_with(SECOND, *servers)
        self.assertLess(3 * len(servers), len(looks))

    def test_zone_that_was_asked_for(self):
        """A server that was forced into another zone is looked for there."""
        zone = self.api.post_aggregate({'aggregate': {
            'name': 'zone', 'availability_zone': 'zone'}})
        self.api.post_aggregate_action(zone['id'], {
            'add_host': {'host': SECOND}})
        asked, not_asked = self.boot_many(2, self.gold, host=FIRST)
        spec = objects.RequestSpec.get_by_instance_uuid(
            context.get_admin_context(), asked['id'])
        spec.availability_zone = 'nova'
        spec.save()
        self.die()
        for server in asked, not_asked:
            self.give(server)
        self.work()
        self.assert_with(SECOND, asked, not_asked)
        for server, expected in (asked, 'zone'), (not_asked, None):
            self.assertEqual(
                'zone', self.instance(server).availability_zone)
            self.assertEqual(expected, objects.RequestSpec.
                             get_by_instance_uuid(
                                 context.get_admin_context(), server['id'],
                             ).availability_zone)

    def test_task_is_ended_under_the_lock(self):
        """What a user begins meanwhile waits, or has begun before."""
        server = self.boot(self.gold, host=FIRST)
        self.die()
        self.set(server, task_state='rebuilding')
        self.give(server)
        gate = self.gate()
        init = manager.ComputeManager._init_instance

        def stop(*args):
            gate()
            return init(*args)

        self.useFixture(fixtures.MonkeyPatch(
            'nova.compute.manager.ComputeManager._init_instance', stop))
        working = threading.Thread(target=self.work, daemon=True)
        working.start()
        gate.wait()
        self.delete(server, wait=False)
        time.sleep(1)
        self.assertEqual('active', self.instance(server).vm_state)
        gate.open()
        working.join(60)
        self.wait_for(lambda: self.assertTrue(self.instance(server).deleted))

    def test_queue(self):
        """What users asked of the host before it was known to be down."""
        servers = rebooting, stopping, rebuilding = self.boot_many(
            3, self.gold, host=FIRST)
        self.stop_compute(FIRST)
        self.act(rebooting, 'reboot', type='HARD')
        self.act(stopping, 'os-stop')
        self.act(rebuilding, 'rebuild', imageRef=self.image())
        self.force_down(FIRST)
        for server in servers:
            self.give(server)
        self.work()
        self.wait_for_status(rebooting, 'ACTIVE')
        self.wait_for_status(stopping, 'SHUTOFF')
        self.wait_for(lambda: self.assertEqual(
            'ERROR', self.api.get_server(rebuilding['id'])['status']))
        self.wire.requests.clear()
        self.come_back()
        # It has worked through its queue when it has answered this.
        self.boot(self.gold, host=FIRST)
        touched = {path for method, path in self.written()
                   if any(self.ironic.node_of(server).id in path
                          or server['id'] in path for server in servers)}
        self.assertEqual(set(), touched)
        self.assert_with(SECOND, *servers)
