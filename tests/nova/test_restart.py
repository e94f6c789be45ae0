# SPDX-License-Identifier: Apache-2.0
"""Builds, rebuilds and deletions in progress when a host is killed."""

import threading
import unittest

import fixtures
from nova import context
from nova import objects
from nova.virt.ironic_reservations import endings
from nova.virt.ironic_reservations import restart
from oslo_config import fixture as config_fixture
import testtools

from tests.nova import base
from tests.nova import faults
from tests.nova import networking
from tests.nova import restarting
from tests.nova.restarting import DEPLOY
from tests.nova.restarting import FIRST
from tests.nova.restarting import NOT_STARTED
from tests.nova.restarting import SECOND

INSTANCE = '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'
OTHER = '0c9c5f3e-7a52-4b0e-9c85-3f6a1d2b4e70'
EXITS = 'This process of host compute-1 exits: all operations'
IS_ENDED = 'nova.virt.ironic_reservations.restart.is_complete'


def load_tests(loader, tests, pattern):
    """Select by Nova's release: before 34 Nova gives up unfinished builds."""
    def is_selected(test):
        if isinstance(test, TestOlderNova):
            return not restart.SUPPORTED
        return restart.SUPPORTED or isinstance(
            test, (TestOutcome, TestCredentials))

    return unittest.TestSuite(test for suite in tests for test in suite
                              if is_selected(test))


class TestOlderNova(restarting.TestCase):
    """Nova does not let the driver resume a build."""

    def test_build(self):
        self.die_at(*DEPLOY)
        server = self.boot_with_port(status=None)
        self.restart()
        self.assertEqual(('ERROR', None), self.state(server))
        self.wait_for_node(server, 'active')
        self.work()
        self.assertEqual(('ERROR', None), self.state(server))
        self.delete(server)
        self.wait_for(self.assert_nothing_left)

    def test_queued_build(self):
        """Nova sets it to ERROR when it starts, and then builds it."""
        self.kill()
        server = self.boot_with_port(status=None)
        self.wait_for_task(server, 'scheduling')
        self.wait_for(lambda: self.assertTrue(self.allocations(server)))
        self.start_compute(FIRST)
        self.wait_for_status(server, 'ACTIVE')
        self.assert_built(server)


class RebuildCase(restarting.TestCase):

    def interrupt_rebuild(self, server, arrives=True):
        self.notifier.reset()
        self.new_image = self.image()
        self.die_at(*DEPLOY, arrives=arrives)
        self.rebuild(server, self.new_image, status=None)
        self.restart()
        self.assertEqual(('REBUILD', 'rebuild_spawning'), self.state(server))

    def assert_rebuilt(self, server):
        self.assertNotIn('reservations_rebuilt_from',
                         self.full_instance(server).system_metadata)
        self.assertEqual(self.new_image, self.api.get_server(
            server['id'])['image']['id'])
        self.assertEqual({self.providers()[FIRST]: {'CUSTOM_GOLD': 1}},
                         self.allocations(server))
        self.assertEqual('active',
                         self.ironic.node_of(server).provision_state)
        self.assertEqual(('Success', True),
                         self.events(server)['compute_rebuild_instance'])
        self.assertEqual(['instance.rebuild.end'],
                         self.notifications('instance.rebuild.end'))


class TestDuringDeployment(RebuildCase):
    """The deployment takes longer than the restart."""

    ironic_config = {'fake': {'deploy_delay': '3'}}

    @base.smoke
    def test_build(self):
        self.die_at(*DEPLOY)
        server = self.boot_with_port(status=None)
        self.restart()
        self.assertEqual(('BUILD', 'spawning'), self.state(server))
        self.work_to_rest()
        self.run_periodic()
        self.assertEqual(('BUILD', 'spawning'), self.state(server))
        self.work_until_status(server, 'ACTIVE')
        self.assert_built(server)
        # It behaves like any server.
        self.act(server, 'reboot', 'ACTIVE', type='HARD')
        self.act(server, 'os-stop', 'SHUTOFF')
        self.delete(server)
        self.wait_for(self.assert_nothing_left)

    def test_rebuild_of_a_stopped_server(self):
        server = self.boot_with_port()
        self.act(server, 'os-stop', 'SHUTOFF')
        self.interrupt_rebuild(server)
        self.work_to_rest()
        self.assertEqual('REBUILD', self.state(server)[0])
        self.work_until_status(server, 'SHUTOFF')
        self.assertEqual('power off', self.ironic.node_of(server).power_state)
        self.assert_rebuilt(server)

    def test_deletion(self):
        """It waits for the node's lock; Nova alone would lose it."""
        self.die_at(*DEPLOY)
        server = self.boot_with_port(status=None)
        self.wait_for_deaths()
        self.api.delete_server(server['id'])
        # The process has taken it off the queue.
        self.wait_for(lambda: self.assertIn('compute_terminate_instance',
                                            self.events(server)))
        self.restart()
        self.work_to_rest()
        self.assertEqual(('BUILD', 'deleting'), self.state(server))
        self.assert_deleted(server)

    def count_polls(self):
        """Return the number of polls of deployments by the host."""
        return sum(method == 'GET' and path == '/v1/reservations'
                   and query.get('state') == 'deploying'
                   for method, path, _, query in self.wire.calls)

    def test_stop_of_the_process(self):
        """It stops as by SIGTERM, and does not wait for deployments."""
        gate = self.gate()

        def deploy(send):
            gate()
            send()
            # The thread ends with its process.
            self._wait_for_the_end()

        self.wire.on(*DEPLOY, deploy)
        self.flags(manager_shutdown_timeout=3600)
        server = self.boot_with_port(status=None)
        gate.wait()
        service = self.computes.pop(FIRST)
        thread = threading.Thread(target=service.stop, daemon=True)
        thread.start()
        self.wait_for(lambda: self.assertIn('waiting up to', self.log))
        # Ironic has not accepted it yet. The first poll may have started
        # before the stop, and the second is complete when the third starts.
        before = self.count_polls()
        self.wait_for(lambda: self.assertLess(before + 2, self.count_polls()))
        self.assertNotIn(EXITS, self.log)
        gate.open()
        self.wait_for(lambda: self.assertIn(EXITS, self.log))
        # Nova still waits.
        self.assertTrue(thread.is_alive())
        service.manager.driver.worker.stop()
        self.assertEqual('deploying',
                         self.ironic.node_of(server).provision_state)


class TestAfterDeployment(restarting.TestCase):

    def test_server_that_nova_gave_up(self):
        """The server boots from a volume; the host is restarted twice.

        Between the restarts Nova sets the server to ERROR.
        """
        self.die_at(*DEPLOY)
        server = self.boot_with_port(status=None, **networking.FROM_VOLUME)
        self.kill()
        self.wait_for_node(server, 'active')
        self.start_compute(FIRST)
        self.assertIn(server['id'], self.unfinished())
        self.flags(instance_build_timeout=1)
        self.wait_for(lambda: (
            self.run_periodic(task='_check_instance_build_time'),
            self.assertEqual('error', self.instance(server).vm_state)))
        self.flags(instance_build_timeout=0)
        self.restart()
        self.work_until_status(server, 'ACTIVE')
        self.assert_built(server)
        bdm, = objects.BlockDeviceMappingList.get_by_instance_uuid(
            context.get_admin_context(), server['id'])
        attachment, = self.cinder.volume_to_attachment[
            networking.VOLUME].values()
        self.assertEqual(bdm.attachment_id, attachment['id'])
        self.delete(server)


class TestFailures(restarting.TestCase):

    def test_deploy_failed(self):
        """The server has a volume; a failed tear-down is retried."""
        self.die_at(*DEPLOY)
        server = self.boot_with_port(status=None, **networking.FROM_VOLUME)
        self.kill()
        self.wait_for_node(server, 'active')
        self.set_node(server, 'deploy failed',
                      error='The disk is full of eels')
        self.start_compute(FIRST)
        self.wire.on('PUT', '/v1/nodes/.*', faults.cut, times=50)
        self.work_until(lambda: self.assertIn(
            'Could not complete the operation', self.log))
        self.assertEqual(('BUILD', 'spawning'), self.state(server))
        self.assertTrue(self.allocations(server))
        self.wire.heal()
        self.assert_not_built(server, 'The disk is full of eels')

    def test_ironic_is_unavailable(self):
        self.die_at(*DEPLOY)
        server = self.boot_with_port(status=None)
        self.restart()
        self.wait_for_node(server, 'active')
        self.disable_retries()
        self.wire.on('GET', '/v1/.*', faults.cut, times=1000)
        for _ in range(3):
            self.work()
        self.assertIn(server['id'], self.unfinished())
        self.wire.heal()
        self.work_until_status(server, 'ACTIVE')
        self.assert_built(server)

    def test_never_accepted(self):
        """It fails after the grace period; a late request is refused."""
        requests = []

        def hold_back(send):
            requests.append(send)
            self.deaths.release()
            self._wait_for_the_end()

        self.wire.on(*DEPLOY, hold_back)
        self.expected_deaths += 1
        server = self.boot_with_port(status=None, **networking.FROM_VOLUME)
        self.restart()
        self.shorten_waits(GRACE=3600)
        self.work_to_rest()
        self.work_to_rest()
        self.assertEqual(('BUILD', 'spawning'), self.state(server))
        self.shorten_waits(GRACE=0)
        self.assert_not_built(server, NOT_STARTED)
        self.assertEqual(412, requests[0]().status_code)
        self.assertEqual({'available'}, {
            node.provision_state for node in self.ironic.nodes()})

    def test_never_requested(self):
        """The host is killed before it asks Ironic to deploy the node."""
        vifs = 'POST', '/v1/nodes/.*/vifs'
        target = 'POST', '/v1/volume/targets'
        for request, arrives, expires in ((faults.HOLD, False, False),
                                          (vifs, True, False),
                                          (vifs, False, True),
                                          (target, True, True)):
            self.die_at(*request, arrives=arrives)
            server = self.boot_with_port(status=None,
                                         **networking.FROM_VOLUME)
            self.kill()
            if expires:
                self.expire(server['id'])
            self.start_compute(FIRST)
            self.assert_not_built(server, NOT_STARTED)
            self.assert_no_volume_targets()


class TestRebuilds(RebuildCase):

    def test_never_accepted(self):
        """The node stays active, too."""
        server = self.boot_with_port()
        self.interrupt_rebuild(server, arrives=False)
        self.assertEqual('active',
                         self.ironic.node_of(server).provision_state)
        server = self.work_until_status(server, 'ERROR')
        self.assertIn(NOT_STARTED, server['fault']['message'])
        self.assertEqual(('Error', True),
                         self.events(server)['compute_rebuild_instance'])
        self.assertEqual({self.providers()[FIRST]: {'CUSTOM_GOLD': 1}},
                         self.allocations(server))
        # It can be rebuilt then, with and without another interruption.
        self.interrupt_rebuild(server)
        self.work_until_status(server, 'ACTIVE')
        self.assert_rebuilt(server)
        self.notifier.reset()
        self.new_image = self.image()
        self.rebuild(server, self.new_image)
        self.assert_rebuilt(server)
        self.delete(server)


class TestDeletions(restarting.TestCase):

    def test_before_the_restart(self):
        """The host does not wait for it when it starts."""
        server = self.boot_with_port()
        self.die_at(*DEPLOY, arrives=False)
        self.delete(server, wait=False)
        self.kill()
        self.wire.requests.clear()
        self.start_compute(FIRST)
        self.assertEqual([], self.wire.bodies(*DEPLOY))
        self.assert_deleted(server)

    def test_during_a_deployment(self):
        """A user deletes a server whose node is in "wait call-back"."""
        self.die_at(*DEPLOY)
        server = self.boot_with_port(status=None)
        self.kill()
        self.wait_for_node(server, 'active')
        self.set_node(server, 'wait call-back')
        self.start_compute(FIRST)
        self.work()
        self.delete(server, wait=False)
        self.assert_deleted(server)

    def test_while_the_node_is_locked(self):
        """It fails as without a restart, and ACTIVE is not set later."""
        self.die_at(*DEPLOY)
        server = self.boot_with_port(status=None)
        self.kill()
        self.wait_for_node(server, 'active')
        self.set_node(server, 'deploying', lock='conductor')
        # The SDK tries six times; otherwise it would wait half a minute.
        self.start_compute(FIRST, ironic={
            'endpoint_override': self.wire.url,
            'status_code_retry_delay': 0.1})
        self.api.delete_server(server['id'])
        self.work_until_status(server, 'ERROR')
        self.set_node(server, 'active')
        self.work_to_rest()
        self.assertEqual(('ERROR', None), self.state(server))
        self.assertEqual(FIRST, self.instance(server).host)
        self.delete(server)
        self.wait_for(self.assert_nothing_left)


class TestMove(restarting.TestCase):

    def test_build(self):
        self.start_compute(SECOND)
        self.die_at(*DEPLOY)
        server = self.boot_with_port(status=None)
        self.kill()
        self.force_down(FIRST)
        self.assign(server, SECOND, FIRST)
        self.work_until_status(server, 'ACTIVE', SECOND)
        self.assert_built(server, SECOND)
        self.delete(server)
        self.wait_for(self.assert_nothing_left)

    def test_build_that_ironic_has_not_accepted(self):
        self.start_compute(SECOND)
        self.die_at('POST', '/v1/volume/targets')
        server = self.boot_with_port(status=None, **networking.FROM_VOLUME)
        self.kill()
        self.force_down(FIRST)
        self.assign(server, SECOND, FIRST)
        self.assert_not_built(server, NOT_STARTED, SECOND)
        self.assert_no_volume_targets()


class TestOutcome(testtools.TestCase):

    def outcome(self, task, state, before=None, now='b'):
        instance = objects.Instance(
            uuid=INSTANCE, task_state=task, system_metadata={
                endings.REBUILT_FROM: before} if before else {})
        return restart.find_outcome(instance, state and {
            'provision_state': state, 'provision_updated_at': now,
            'last_error': 'eels'})

    def test_outcome_of_builds(self):
        for task, state, expected, reason in (
                ('spawning', 'active', 'DONE', None),
                ('spawning', 'deploying', 'OPEN', None),
                ('spawning', 'wait call-back', 'OPEN', None),
                ('spawning', 'service wait', 'OPEN', None),
                ('spawning', 'deploy failed', 'FAILED', 'eels'),
                ('spawning', 'error', 'FAILED', 'eels'),
                ('spawning', None, 'FAILED', 'taken away'),
                ('spawning', 'available', 'NOT_BEGUN', NOT_STARTED),
                ('spawning', 'manageable', 'NOT_BEGUN', NOT_STARTED),
                ('block_device_mapping', 'active', 'NOT_BEGUN', NOT_STARTED),
                ('networking', 'available', 'NOT_BEGUN', NOT_STARTED),
                (None, None, 'NOT_BEGUN', NOT_STARTED)):
            self.assert_outcome(expected, reason, self.outcome(task, state))

    def test_outcome_of_rebuilds(self):
        """A state from before the rebuild is no outcome."""
        for state, before, expected, reason in (
                ('active', 'a', 'DONE', None),
                ('active', 'b', 'NOT_BEGUN', NOT_STARTED),
                ('active', None, 'FAILED', 'it is not known'),
                ('deploying', 'b', 'OPEN', None),
                ('deploying', None, 'OPEN', None),
                ('deploy failed', 'a', 'FAILED', 'eels'),
                ('deploy failed', 'b', 'NOT_BEGUN', NOT_STARTED),
                (None, 'a', 'FAILED', 'taken away')):
            self.assert_outcome(expected, reason, self.outcome(
                'rebuild_spawning', state, before))

    def assert_outcome(self, expected, reason, outcome):
        self.assertEqual(restart.Outcome[expected], outcome[0])
        if reason is None:
            self.assertIsNone(outcome[1])
        else:
            self.assertIn(reason, outcome[1])

    def test_unfinished_states(self):
        for vm_state, task, expected in (
                ('building', None, True), ('building', 'spawning', True),
                ('building', 'deleting', True), ('error', 'spawning', True),
                ('active', 'rebuild_spawning', True),
                ('stopped', 'rebuild_spawning', True),
                ('error', 'rebuild_spawning', True),
                ('active', 'deleting', True), ('error', 'deleting', True),
                ('error', None, False), ('active', None, False),
                ('active', 'rebuilding', False),
                ('active', 'powering-off', False),
                ('shelved_offloaded', 'spawning', False)):
            self.assertIs(expected, restart.is_unfinished(objects.Instance(
                vm_state=vm_state, task_state=task)), (vm_state, task))


class TestCredentials(testtools.TestCase):

    def test_missing_credentials(self):
        log = self.useFixture(fixtures.FakeLogger())
        conf = self.useFixture(config_fixture.Config(restart.CONF))
        conf.config(auth_type='password', group='neutron')
        conf.config(auth_type=None, group='cinder')
        restart.check_credentials()
        self.assertNotIn('[neutron]', log.output)
        self.assertIn('Section [cinder] of nova.conf has no credentials',
                      log.output)


class TestUnfinished(testtools.TestCase):

    def test_instances_wait_independently(self):
        """A repeated failure of one does not delay the other."""
        operations = restart.Completer(FIRST, None, None, None, None)
        self.addCleanup(operations.stop)
        self.assertEqual([], operations.hide([
            objects.Instance(uuid=uuid, host=FIRST, node=FIRST,
                             vm_state='building', task_state='spawning')
            for uuid in (INSTANCE, OTHER)]))
        self.assertIsNot(operations._instances[INSTANCE],
                         operations._instances[OTHER])


class TestFormerProcess(restarting.TestCase):
    """A stopped process resumes when the next one has finished its work.

    Both are the same host, without a host lease.
    """

    def freeze_after_deploy(self, start):
        """Start an operation, and stop the process after the deploy."""
        gate = self.gate()
        self.wire.on(*DEPLOY, faults.after(gate))
        server = start()
        gate.wait()
        self.kill()
        self.start_compute(FIRST)
        return server, gate

    def boot_one(self):
        return self.boot_with_port(status=None)

    def assert_kept(self, server, gate):
        gate.open()
        self.wait_for(lambda: self.assertIn(
            'This thread waits until the process ends: another process '
            'of compute-1 has instance', self.log))
        self.assert_built(server)
        self.assertEqual(1, len(self.api.get_port_interfaces(server['id'])))

    def test_build(self):
        server, gate = self.freeze_after_deploy(self.boot_one)
        self.work_until_status(server, 'ACTIVE')
        self.assert_kept(server, gate)

    def test_build_that_has_been_checked(self):
        """Nova saves that it is built, and cleans up when that fails."""
        is_ended, gate = restart.is_complete, self.gate()

        def check_and_stop(instance):
            self.useFixture(fixtures.MonkeyPatch(IS_ENDED, is_ended))
            result = is_ended(instance)
            gate()
            return result

        self.useFixture(fixtures.MonkeyPatch(IS_ENDED, check_and_stop))
        server = self.boot_one()
        gate.wait()
        self.kill()
        self.start_compute(FIRST)
        self.work_until_status(server, 'ACTIVE')
        self.assert_kept(server, gate)

    def test_rebuild(self):
        def rebuild():
            self.rebuild(server, self.image(), status=None)
            return server

        server = self.boot_with_port()
        _, gate = self.freeze_after_deploy(rebuild)
        self.work_until_status(server, 'ACTIVE')
        self.assert_kept(server, gate)


class TestQueue(restarting.TestCase):
    """Nova has sent builds to a host that is down."""

    def setUp(self):
        super().setUp()
        self.kill()
        self.server = self.boot_with_port(status=None)
        self.wait_for(lambda: self.assertTrue(self.allocations(self.server)))
        self.wait_for_task(self.server, 'scheduling')

    def test_waits_for_builds(self):
        states, save = [], objects.Instance.save

        def record_and_save(instance, *args, **kwargs):
            if instance.uuid == self.server['id']:
                states.append(instance.vm_state)
            return save(instance, *args, **kwargs)

        self.useFixture(fixtures.MonkeyPatch(
            'nova.objects.Instance.save', record_and_save))
        self.start_compute(FIRST)
        self.wait_for_status(self.server, 'ACTIVE')
        self.assertNotIn('error', states)
        self.assert_built(self.server)

    def test_lost_build(self):
        """It fails with a reason, but not while it waits for a thread."""
        self.lose_casts()
        manager = self.start_compute(FIRST).manager
        self.work_to_rest()
        self.assertEqual(('BUILD', 'scheduling'), self.state(self.server))
        self.shorten_waits(QUEUED=-1)
        manager.driver.completer._queue_end = 0
        task = manager._record_task_start(
            'build_instance', self.server['id'])
        self.work_to_rest()
        self.assertEqual(('BUILD', 'scheduling'), self.state(self.server))
        manager._record_task_end(task)
        self.work_to_rest()
        self.assertIn('the request to build it was lost',
                      self.fault_of(self.server))
        self.assertEqual({}, self.allocations(self.server))
        self.delete(self.server)

    def lose_casts(self):
        """Drop the requests, as if the message bus had lost them."""
        self.useFixture(fixtures.MonkeyPatch(
            'nova.compute.manager.ComputeManager.build_and_run_instance',
            lambda *args, **kwargs: None))
