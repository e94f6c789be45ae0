# SPDX-License-Identifier: Apache-2.0
"""Another host takes over the servers of a host that is down."""

import threading
import time

import fixtures
from nova import availability_zones
from nova import context
from nova import objects
from nova.virt.ironic_reservations import reconciler
from nova.virt.ironic_reservations import restart

from tests.nova import base
from tests.nova import takeovers
from tests.nova.helpers import compute_nodes
from tests.nova.takeovers import FIRST
from tests.nova.takeovers import SECOND
from tests.nova.takeovers import THIRD


class TestTakeover(takeovers.TestCase):

    def test_servers_of_a_dead_host(self):
        servers = self.boot_many(3, self.gold, host=FIRST)
        own = self.boot(self.gold, host=SECOND)
        self.work()
        # Without work a round is one request for any number of servers.
        self.wire.requests.clear()
        for _ in range(3):
            self.work()
        self.assertEqual([('GET', '/v1/reservations', None)] * 3,
                         self.wire.requests)
        self.take_down()
        self.wire.requests.clear()
        for server in servers:
            self.assign(server)
        self.work()
        self.assert_on(SECOND, *servers, own)
        for server in servers:
            self.assertEqual(
                [('takeover', 'compute_takeover', 'Success', SECOND)],
                self.action_events(server, 'takeover'))
        self.assertEqual([], self.action_events(own, 'takeover'))
        # Servers at rest have no unfinished operation.
        self.assertFalse([path for _, path, _ in self.wire.requests
                          if path.startswith('/v1/nodes')])
        self.run_periodic()
        self.assertEqual(4, self.usages(SECOND)['CUSTOM_GOLD'])
        self.assertEqual({'CUSTOM_GOLD': 0}, self.usages(FIRST))
        # The takeover and the returning host do not write to Ironic.
        self.bring_back()
        self.run_periodic()
        for task in '_sync_power_states', '_cleanup_running_deleted_instances':
            self.run_periodic(FIRST, task=task)
        self.assertEqual(set(), self.writes())
        self.act(servers[0], 'reboot', 'ACTIVE', type='HARD')
        self.act(servers[1], 'os-stop', 'SHUTOFF')
        self.act(servers[1], 'os-start', 'ACTIVE')
        # The first host can be removed completely.
        self.stop_compute(FIRST)
        service, = self.api.get_services(host=FIRST, binary='nova-compute')
        self.api.api_delete(f'/os-services/{service["id"]}')
        self.assertEqual({SECOND: SECOND}, compute_nodes())
        self.assertEqual({SECOND}, set(self.providers()))
        self.delete(*servers, own)
        self.assert_nothing_left()

    def test_host_that_is_up(self):
        """It keeps its servers until it is down."""
        server = self.boot(self.gold, host=FIRST)
        self.assign(server)
        self.work()
        self.assert_on(FIRST, server)
        self.assertIn('it was moved to host compute-2, but host compute-1 '
                      'is up', self.log)
        # Assigned back, there is nothing to do.
        self.assign(server, FIRST, SECOND)
        self.work()
        self.wire.requests.clear()
        self.work()
        self.assertEqual([('GET', '/v1/reservations', None)],
                         self.wire.requests)
        self.assign(server)
        self.take_down()
        self.work()
        self.assert_on(SECOND, server)

    def test_there_and_back(self):
        server = self.boot(self.gold, host=FIRST)
        self.take_down()
        self.assign(server)
        self.assign(server, FIRST, SECOND)
        self.work()
        self.assert_on(FIRST, server)
        self.assign(server)
        self.work()
        self.bring_back()
        self.take_down(SECOND)
        self.assign(server, FIRST, SECOND)
        self.work(FIRST)
        self.assert_on(FIRST, server)

    def test_states(self):
        """Operations in progress end as if the host had restarted.

        With Nova 34 that depends on the state in Ironic: test_restart.
        """
        servers = building, rebuilding, rebooting, deleting, bare = (
            self.boot_many(5, self.gold, host=FIRST))
        self.take_down()
        self.save(building, vm_state='building', task_state='spawning')
        self.save(rebuilding, task_state='rebuild_spawning')
        self.save(rebooting, task_state='rebooting_hard')
        self.save(deleting, task_state='deleting')
        # Its allocation is missing, as after a refused rebuild.
        self.placement.delete(f'/allocations/{bare["id"]}')
        for server in servers:
            self.assign(server)
        self.work()
        self.assert_on(SECOND, bare)
        self.wait_for_status(rebooting, 'ACTIVE')
        # Its node is active, but so it was before a rebuild.
        self.work_until_status(
            building, 'ACTIVE' if restart.SUPPORTED else 'ERROR')
        self.work_until_status(rebuilding, 'ERROR')
        self.assert_on(SECOND, building, rebuilding, rebooting)
        self.wait_for(lambda: (
            self.work(),
            self.assertTrue(self.instance(deleting).deleted)))
        self.delete(building, rebuilding, rebooting, bare)
        self.assert_nothing_left()

    def test_task_that_has_begun_since(self):
        """A request to the new host is not an unfinished one of the old."""
        server = self.boot(self.gold, host=FIRST)
        self.take_down()
        self.assign(server)
        lock = reconciler.Reconciler.call_with_lock

        def begin(*args):
            result = lock(*args)
            self.save(server, task_state='rebuilding')
            return result

        with fixtures.MonkeyPatch(
                'nova.virt.ironic_reservations.reconciler.Reconciler.'
                'call_with_lock', begin):
            self.work()
        self.assert_on(SECOND, server)
        self.assertEqual('rebuilding', self.instance(server).task_state)

    def test_deleted_while_the_host_was_down(self):
        """The host that holds the node then tears it down."""
        server = self.boot(self.gold, host=FIRST)
        self.take_down()
        self.api.delete_server(server['id'])
        self.wait_for(lambda: self.assertTrue(self.instance(server).deleted))
        self.assign(server)
        self.work()
        self.run_periodic(SECOND, task='_cleanup_running_deleted_instances')
        self.bring_back()
        self.run_periodic()
        self.run_periodic(FIRST, task='_cleanup_running_deleted_instances')
        self.assert_nothing_left()

    def interrupt_takeover(self, path, function):
        """Stop the second host in its takeover, and let the third take over.

        :param path: where to patch the function of Nova in which it stops.
        :param function: the original function.
        """
        self.start_compute(THIRD)
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.takeover.ALL_AGAIN', 0))
        server = self.boot(self.gold, host=FIRST)
        self.take_down()
        self.assign(server)
        gate = self.gate()

        def stop(*args, **kwargs):
            if threading.current_thread() is thread and not gate.is_reached():
                gate()
            return function(*args, **kwargs)

        thread = threading.Thread(target=self.work, daemon=True)
        self.useFixture(fixtures.MonkeyPatch(path, stop))
        thread.start()
        gate.wait()
        self.force_down(SECOND)
        self.assign(server, THIRD, SECOND)
        with base.separate_locks():
            self.work(THIRD)
        self.assert_on(THIRD, server)
        gate.open()
        thread.join(60)
        self.force_down(SECOND, False)
        return server

    def test_reassigned_before_the_save(self):
        server = self.interrupt_takeover(
            'nova.availability_zones.get_host_availability_zone',
            availability_zones.get_host_availability_zone)
        self.assert_on(THIRD, server)

    def test_reassigned_at_the_save(self):
        """The host that holds it corrects the late save."""
        server = self.interrupt_takeover(
            'nova.objects.instance.Instance.save', objects.Instance.save)
        self.assertEqual(SECOND, self.instance(server).host)
        self.assertIn('it was moved to another host during the takeover',
                      self.log)
        for host in SECOND, THIRD:
            self.work(host)
        self.assert_on(THIRD, server)

    def test_host_lease_is_checked_for_each_server(self):
        """A round may take longer than the lease."""
        servers = self.boot_many(3, self.gold, host=FIRST)
        self.take_down()
        for server in servers:
            self.assign(server)
        checks = []
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.fence.Fence.wait',
            lambda fence: checks.append(1)))
        self.restart_compute(SECOND)
        self.work()
        self.assert_on(SECOND, *servers)
        self.assertLess(3 * len(servers), len(checks))

    def test_requested_zone(self):
        """The zone in a server's request spec changes to the new one."""
        zone = self.api.post_aggregate({'aggregate': {
            'name': 'zone', 'availability_zone': 'zone'}})
        self.api.post_aggregate_action(zone['id'], {
            'add_host': {'host': SECOND}})
        first, second = self.boot_many(2, self.gold, host=FIRST)
        spec = objects.RequestSpec.get_by_instance_uuid(
            context.get_admin_context(), first['id'])
        spec.availability_zone = 'nova'
        spec.save()
        self.take_down()
        for server in first, second:
            self.assign(server)
        self.work()
        self.assert_on(SECOND, first, second)
        for server, expected in (first, 'zone'), (second, None):
            self.assertEqual(
                'zone', self.instance(server).availability_zone)
            self.assertEqual(expected, objects.RequestSpec.
                             get_by_instance_uuid(
                                 context.get_admin_context(), server['id'],
                             ).availability_zone)

    def test_task_is_reset_under_the_lock(self):
        """A concurrent request of a user waits."""
        server = self.boot(self.gold, host=FIRST)
        self.take_down()
        self.save(server, task_state='rebuilding')
        self.assign(server)
        gate = self.gate()
        driver = self.computes[SECOND].manager.driver
        init = driver.takeover._init_instance

        def stop(*args):
            gate()
            return init(*args)

        driver.takeover._init_instance = stop
        thread = threading.Thread(target=self.work, daemon=True)
        thread.start()
        gate.wait()
        self.delete(server, wait=False)
        time.sleep(1)
        self.assertEqual('active', self.instance(server).vm_state)
        gate.open()
        thread.join(60)
        self.wait_for(lambda: self.assertTrue(self.instance(server).deleted))

    def test_queue(self):
        """Requests that the host received before it was marked as down."""
        servers = rebooting, stopping, rebuilding = self.boot_many(
            3, self.gold, host=FIRST)
        self.stop_compute(FIRST)
        self.act(rebooting, 'reboot', type='HARD')
        self.act(stopping, 'os-stop')
        self.act(rebuilding, 'rebuild', imageRef=self.image())
        self.force_down(FIRST)
        for server in servers:
            self.assign(server)
        self.work()
        self.wait_for_status(rebooting, 'ACTIVE')
        self.wait_for_status(stopping, 'SHUTOFF')
        self.wait_for(lambda: self.assertEqual(
            'ERROR', self.api.get_server(rebuilding['id'])['status']))
        self.wire.requests.clear()
        self.bring_back()
        # Its queue is empty when this request completes.
        self.boot(self.gold, host=FIRST)
        paths = {path for method, path in self.writes()
                 if any(self.ironic.node_of(server).id in path
                        or server['id'] in path for server in servers)}
        self.assertEqual(set(), paths)
        self.assert_on(SECOND, *servers)
