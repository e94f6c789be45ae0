# SPDX-License-Identifier: Apache-2.0
"""The base class of tests in which nova-compute is killed and restarted."""

import threading

import fixtures
from nova import context
from nova import objects
from oslo_service import service as oslo_service

from tests.nova import base
from tests.nova import faults
from tests.nova import networking

FIRST, SECOND = base.HOSTS[:2]
DEPLOY = 'PUT', '/v1/nodes/.*/states/provision'
NOT_STARTED = 'nova-compute was restarted before deployment began'

_BUILD = 'compute__do_build_and_run_instance'


class TestCase(networking.Networks, faults.TestCase):
    """A host, ports, a volume, and deployments of two seconds."""

    ironic_config = {'fake': {'deploy_delay': '1'}}
    fleet = [{**faults.NODE, 'network_interface': 'flat'}] * 4

    def setUp(self):
        super().setUp()
        self.connect_volumes()
        self.deaths = threading.Semaphore(0)
        self.expected_deaths = 0
        self.flags(default_access_ip_network_name='private')
        self.shorten_waits(GRACE=0)
        self.start_compute(FIRST)
        self.gold = self.flavor()

    def shorten_waits(self, **seconds):
        for name, value in seconds.items():
            self.useFixture(fixtures.MonkeyPatch(
                f'nova.virt.ironic_reservations.restart.{name}', value))

    def die_at(self, method, path, arrives=True, times=1, **kwargs):
        """Block the threads that send matching requests.

        :param arrives: whether the requests arrive.
        """
        def die(send):
            if arrives:
                send()
            self.deaths.release()
            self._wait_for_the_end()

        self.wire.on(method, path, die, times=times, **kwargs)
        self.expected_deaths += times

    def wait_for_deaths(self):
        for _ in range(self.expected_deaths):
            assert self.deaths.acquire(timeout=60)
        self.expected_deaths = 0

    def kill(self, host=FIRST):
        """Stop a host as SIGKILL does, which waits for nothing."""
        self.wait_for_deaths()
        service = self.silence(host)
        service.manager.driver.worker.stop()
        oslo_service.Service.stop(service)
        self.wire.heal()
        self.useFixture(base.separate_locks())
        return service

    def restart(self, host=FIRST):
        self.kill(host)
        return self.start_compute(host)

    def work_to_rest(self):
        """Work, and wait until the threads of the driver are idle."""
        self.work()
        operations = self.computes[FIRST].manager.driver.completer
        self.wait_for(lambda: self.assertEqual(set(), operations._busy))

    def work_until(self, check, host=FIRST):
        def work_and_check():
            self.work(host)
            check()
        return self.wait_for(work_and_check)

    def work_until_status(self, server, status, host=FIRST):
        def check():
            now, task = self.state(server)
            self.assertTrue(task is None and now in (status, 'ERROR'),
                            (now, task))
        self.work_until(check, host)
        server = self.wait_for_status(server, status)
        self.work(host)
        self.assertNotIn(server['id'], self.unfinished(host))
        return server

    def unfinished(self, host=FIRST):
        return self.computes[host].manager.driver.completer._instances

    def full_instance(self, server):
        return objects.Instance.get_by_uuid(
            context.get_admin_context(read_deleted='yes'), server['id'],
            expected_attrs=['info_cache', 'system_metadata'])

    def state(self, server):
        record = self._record(server)
        if record is None or record.deleted:
            return None, None
        server = self.api.get_server(server['id'])
        return server['status'], server['OS-EXT-STS:task_state']

    def wait_for_task(self, server, task):
        self.wait_for(lambda: self.assertEqual(task, self.state(server)[1]))

    def wait_for_node(self, server, state):
        self.wait_for(lambda: self.assertEqual(
            state, self.ironic.node_of(server).provision_state), timeout=180)

    def set_node(self, server, state, lock=None, error=None):
        """Set the state of a node, which is at rest."""
        self.sql("UPDATE nodes SET provision_state = :s, "
                 "target_provision_state = 'active', reservation = :l, "
                 "last_error = :e WHERE uuid = :u", s=state, l=lock, e=error,
                 u=self.ironic.node_of(server).id)

    def events(self, server):
        """Return ``{event: (result, whether it has finished)}``, newest."""
        events = {}
        for action in self.instance_actions(server):
            for event in action['events']:
                events.setdefault(event['event'], (
                    event['result'], event['finish_time'] is not None))
        return events

    def notifications(self, *types):
        return [notification['event_type'] for notification in
                self.notifier.versioned_notifications
                if notification['event_type'] in types]

    def boot_with_port(self, **server):
        self.user_port = self.port()
        return self.boot(self.gold, networks=[{'port': self.user_port}],
                         host=FIRST, **server)

    def assert_built(self, server, host=FIRST):
        instance = self.full_instance(server)
        node = self.ironic.node_of(server)
        self.assertEqual(('ACTIVE', None), self.state(server))
        self.assertEqual((host, host, host), (
            instance.host, instance.node, instance.launched_on))
        self.assertIsNotNone(instance.launched_at)
        # Deploying fake hardware does not switch it on.
        self.assertEqual(4, instance.power_state)
        self.assertNotIn('network_allocated', instance.system_metadata)
        self.assertEqual([self.user_port], [
            vif['id'] for vif in instance.info_cache.network_info])
        self.assertEqual([self.user_port],
                         list(self.ironic.baremetal.list_node_vifs(node.id)))
        self.assertTrue(self.api.get_server(server['id'])['accessIPv4'])
        self.assertEqual({self.providers()[host]: {'CUSTOM_GOLD': 1}},
                         self.allocations(server))
        self.assertEqual('active', node.provision_state)
        reservation, = self.ironic.reservations()
        self.assertEqual((server['id'], node.id, host, 'active'), (
            reservation['instance_uuid'], reservation['node_uuid'],
            reservation['host'], reservation['state']))
        self.assertEqual(('Success', True), self.events(server)[_BUILD])
        self.assertEqual(['instance.create.start', 'instance.create.end'],
                         self.notifications('instance.create.start',
                                            'instance.create.end',
                                            'instance.create.error'))

    def assert_deleted(self, server):
        self.work_until(lambda: self.assertTrue(
            self.instance(server).deleted))
        self.wait_for(lambda: self.assertEqual({}, self.allocations(server)))
        self.wait_for(self.assert_nothing_left)
        self.work()
        self.assertEqual({}, self.unfinished())

    def assert_not_built(self, server, reason, host=FIRST):
        """Check that the build has failed and was cleaned up."""
        server = self.work_until_status(server, 'ERROR', host)
        self.assertIn(reason, server['fault']['message'])
        instance = self.instance(server)
        self.assertEqual((None, None), (instance.host, instance.node))
        self.wait_for(self.assert_nothing_left)
        self.assertEqual({}, self.allocations(server))
        self.assertEqual(('Error', True), self.events(server)[_BUILD])
        port = self.neutron.show_port(self.user_port)['port']
        self.assertFalse(port['device_id'])
        self.assertEqual({}, self.cinder.volume_to_attachment.get(
            networking.VOLUME, {}))
        self.delete(server)
