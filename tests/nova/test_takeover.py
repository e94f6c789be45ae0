# SPDX-License-Identifier: Apache-2.0
"""What a dead host has left, and another is given."""

import contextlib

import fixtures
from nova import context
from nova import exception
from nova import objects
from nova.virt.ironic_reservations import reconciler

from tests.nova import faults
from tests.nova.rows import rows

FIRST, SECOND = 'compute-1', 'compute-2'


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
        with self.as_host(host):
            self.computes[host].manager.driver.worker.work()

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
        servers = [self.boot(self.gold, host=FIRST) for _ in range(3)]
        own = self.boot(self.gold, host=SECOND)
        self.work()
        self.die()
        self.wire.requests.clear()
        for server in servers:
            self.give(server)
        self.work()
        self.assert_with(SECOND, *servers, own)
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
        for server in [*servers, own]:
            self.delete(server)
        self.assert_nothing_left()

    def test_looks_without_work_are_one_call(self):
        for _ in range(2):
            self.boot(self.gold, host=SECOND)
        self.work()
        self.wire.requests.clear()
        for _ in range(3):
            self.work()
        self.assertEqual([('GET', '/v1/reservations', None)] * 3,
                         self.wire.requests)

    def test_host_that_is_up(self):
        """It keeps what it has until it is down."""
        server = self.boot(self.gold, host=FIRST)
        self.give(server)
        self.work()
        self.assert_with(FIRST, server)
        self.assertIn('its machine was given to host compute-2, but host '
                      'compute-1 is up', self.log)
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
        """What the host was doing ends as at its own next start."""
        servers = building, rebuilding, rebooting, deleting, lost = [
            self.boot(self.gold, host=FIRST) for _ in range(5)]
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
        for server in building, rebuilding:
            found = self.api.get_server(server['id'])
            self.assertEqual(('ERROR', None), (
                found['status'], found['OS-EXT-STS:task_state']))
        self.assert_with(SECOND, building, rebuilding, rebooting)
        self.wait_for(lambda: self.assertTrue(self.instance(deleting).deleted))
        for server in building, rebuilding, rebooting, lost:
            self.delete(server)
        self.assert_nothing_left()

    def test_task_that_has_begun_since(self):
        """What a user asks of the new host is not the old one's."""
        server = self.boot(self.gold, host=FIRST)
        self.die()
        self.give(server)
        locked = reconciler.Reconciler.locked

        def begin(*args):
            done = locked(*args)
            self.set(server, task_state='rebuilding')
            return done

        with fixtures.MonkeyPatch(
                'nova.virt.ironic_reservations.reconciler.Reconciler.locked',
                begin):
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

    def test_queue(self):
        """What users asked of the host before it was known to be down."""
        servers = rebooting, stopping, rebuilding = [
            self.boot(self.gold, host=FIRST) for _ in range(3)]
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

    def test_casts_of_before(self):
        """The host that is back deletes and touches nothing."""
        server = self.boot(self.gold, host=FIRST)
        instance = self.instance(server)
        self.die()
        self.give(server)
        self.work()
        self.come_back()
        self.wire.requests.clear()
        ctxt = context.get_admin_context()
        manager = self.computes[FIRST].manager
        bdms = objects.BlockDeviceMappingList.get_by_instance_uuid(
            ctxt, instance.uuid)
        with self.as_host(FIRST):
            for cast in (
                    lambda: manager.terminate_instance(ctxt, instance, bdms),
                    lambda: manager.reboot_instance(ctxt, instance, None,
                                                    'HARD'),
                    lambda: manager.stop_instance(ctxt, instance, True)):
                with contextlib.suppress(exception.NovaException):
                    cast()
                self.assertEqual(set(), self.written())
        self.assert_with(SECOND, server)
        self.assertEqual(server['id'],
                         self.ironic.node_of(server).instance_id)
        self.assertFalse(self.instance(server).deleted)
