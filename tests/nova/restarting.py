# SPDX-License-Identifier: Apache-2.0
"""A host whose process is killed, and started again, in tests of one."""

import threading

import fixtures
from nova import context
from nova import objects
from oslo_service import service as oslo_service

from tests.nova import base
from tests.nova import faults
from tests.nova import networking
from tests.nova.test_fence import other_process

FIRST, SECOND = base.HOSTS[:2]
DEPLOY = 'PUT', '/v1/nodes/.*/states/provision'
NOT_BEGUN = 'nova-compute was restarted before deployment began'

_BUILD = 'compute__do_build_and_run_instance'


class TestCase(networking.Networks, faults.TestCase):
    """A host, ports, a volume, and deployments that take two seconds."""

    ironic_config = {'fake': {'deploy_delay': '1'}}
    fleet = [{**faults.NODE, 'network_interface': 'flat'}] * 4

    def setUp(self):
        super().setUp()
        self.connect_volumes()
        self.buried = threading.Semaphore(0)
        self.dying = 0
        self.flags(default_access_ip_network_name='private')
        self.be_quick(GRACE=0)
        self.start_compute(FIRST)
        self.gold = self.flavor()

    def be_quick(self, **seconds):
        for name, value in {'LONGEST': 0, **seconds}.items():
            self.useFixture(fixtures.MonkeyPatch(
                f'nova.virt.ironic_reservations.restart.{name}', value))

    # The process dies

    def die_at(self, method, path, sent=True, times=1, **kwargs):
        """Let requests be the last that their threads do.

        :param sent: whether they arrive.
        """
        def die(go_on):
            if sent:
                go_on()
            self.buried.release()
            self._wait_for_the_end()

        self.wire.on(method, path, die, times=times, **kwargs)
        self.dying += times

    def died(self):
        """Wait until they were sent."""
        for _ in range(self.dying):
            assert self.buried.acquire(timeout=60)
        self.dying = 0

    def kill(self, host=FIRST):
        """End a host as SIGKILL does, which waits for nothing."""
        self.died()
        service = self.silence(host)
        service.manager.driver.worker.stop()
        oslo_service.Service.stop(service)
        self.wire.heal()
        self.useFixture(other_process())
        return service

    def restart(self, host=FIRST):
        self.kill(host)
        return self.start_compute(host)

    def look(self):
        """Work, and wait until its threads have looked at everything."""
        self.work()
        unfinished = self.computes[FIRST].manager.driver.completer
        self.wait_for(lambda: self.assertEqual(set(), unfinished._busy))

    def work_until(self, check, host=FIRST):
        def work_and_check():
            self.work(host)
            check()
        return self.wait_for(work_and_check)

    def work_until_status(self, server, status, host=FIRST):
        def check():
            found, task = self.state(server)
            self.assertTrue(task is None and found in (status, 'ERROR'),
                            (found, task))
        self.work_until(check, host)
        found = self.wait_for_status(server, status)
        self.work(host)
        self.assertNotIn(server['id'], self.left(host))
        return found

    # What is seen

    def left(self, host=FIRST):
        return self.computes[host].manager.driver.completer._instances

    def full(self, server):
        return objects.Instance.get_by_uuid(
            context.get_admin_context(read_deleted='yes'), server['id'],
            expected_attrs=['info_cache', 'system_metadata'])

    def state(self, server):
        record = self._record(server)
        if record is None or record.deleted:
            return None, None
        found = self.api.get_server(server['id'])
        return found['status'], found['OS-EXT-STS:task_state']

    def wait_for_task(self, server, task):
        self.wait_for(lambda: self.assertEqual(task, self.state(server)[1]))

    def wait_for_node(self, server, state):
        self.wait_for(lambda: self.assertEqual(
            state, self.ironic.node_of(server).provision_state), timeout=180)

    def set_node(self, server, state, lock=None, error=None):
        """Let Ironic have come to a state; it is at rest."""
        self.sql("UPDATE nodes SET provision_state = :s, "
                 "target_provision_state = 'active', reservation = :l, "
                 "last_error = :e WHERE uuid = :u", s=state, l=lock, e=error,
                 u=self.ironic.node_of(server).id)

    def events(self, server):
        """``{event: (its result, whether it is over)}``, the newest."""
        found = {}
        for action in self.api.get_instance_actions(server['id']):
            detail = self.api.api_get(
                f'/servers/{server["id"]}/os-instance-actions/'
                f'{action["request_id"]}').body['instanceAction']
            for event in detail['events']:
                found.setdefault(event['event'], (
                    event['result'], event['finish_time'] is not None))
        return found

    def notified(self, *types):
        return [each['event_type'] for each in
                self.notifier.versioned_notifications
                if each['event_type'] in types]

    # What is begun

    def boot_full(self, **server):
        """With a port of the user's."""
        self.mine = self.port()
        return self.boot(self.gold, networks=[{'port': self.mine}],
                         host=FIRST, **server)

    # What must be true in the end

    def assert_built(self, server, host=FIRST):
        found = self.api.get_server(server['id'])
        instance = self.full(server)
        node = self.ironic.node_of(server)
        self.assertEqual(('ACTIVE', None), self.state(server))
        self.assertEqual((host, host, host), (
            instance.host, instance.node, instance.launched_on))
        self.assertIsNotNone(instance.launched_at)
        # Fake hardware is not switched on by its deployment.
        self.assertEqual(4, instance.power_state)
        self.assertNotIn('network_allocated', instance.system_metadata)
        self.assertEqual([self.mine], [
            vif['id'] for vif in instance.info_cache.network_info])
        self.assertEqual([self.mine],
                         list(self.ironic.baremetal.list_node_vifs(node.id)))
        self.assertTrue(found['accessIPv4'])
        self.assertEqual({self.providers()[host]: {'CUSTOM_GOLD': 1}},
                         self.allocations(server))
        self.assertEqual('active', node.provision_state)
        held, = self.ironic.reservations()
        self.assertEqual((server['id'], node.id, host, 'active'), (
            held['instance_uuid'], held['node_uuid'], held['host'],
            held['state']))
        self.assertEqual(('Success', True), self.events(server)[_BUILD])
        self.assertEqual(['instance.create.start', 'instance.create.end'],
                         self.notified('instance.create.start',
                                       'instance.create.end',
                                       'instance.create.error'))

    def assert_deleted(self, server):
        self.work_until(lambda: self.assertTrue(
            self.instance(server).deleted))
        self.wait_for(lambda: self.assertEqual({}, self.allocations(server)))
        self.wait_for(self.assert_nothing_left)
        self.work()
        self.assertEqual({}, self.left())

    def assert_not_built(self, server, reason, host=FIRST):
        """It has failed for good, and nothing of it is left."""
        found = self.work_until_status(server, 'ERROR', host)
        self.assertIn(reason, found['fault']['message'])
        instance = self.instance(server)
        self.assertEqual((None, None), (instance.host, instance.node))
        self.wait_for(self.assert_nothing_left)
        self.assertEqual({}, self.allocations(server))
        self.assertEqual(('Error', True), self.events(server)[_BUILD])
        port = self.neutron.show_port(self.mine)['port']
        self.assertFalse(port['device_id'])
        self.assertEqual({}, self.cinder.volume_to_attachment.get(
            networking.VOLUME, {}))
        self.delete(server)
