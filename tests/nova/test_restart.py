# SPDX-License-Identifier: Apache-2.0
"""Builds, rebuilds and deletions that are in flight when a host is killed."""

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

FIRST, SECOND = restarting.FIRST, restarting.SECOND
INSTANCE = '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'
OTHER = '0c9c5f3e-7a52-4b0e-9c85-3f6a1d2b4e70'
DEPLOY, NOT_BEGUN = restarting.DEPLOY, restarting.NOT_BEGUN
ENDS = 'This process of host compute-1 exits: all operations'
IS_ENDED = 'nova.virt.ironic_reservations.restart.is_complete'


def load_tests(loader, tests, pattern):
    """Before release 34 Nova gives up what is in flight, which is tested."""
    def is_to_run(test):
        if isinstance(test, TestOlderNova):
            return not restart.SUPPORTED
        return restart.SUPPORTED or isinstance(
            test, (TestOutcome, TestCredentials))

    return unittest.TestSuite(each for suite in tests for each in suite
                              if is_to_run(each))


class TestOlderNova(restarting.TestCase):
    """It does not let the driver take a build up."""

    def test_build(self):
        self.die_at(*DEPLOY)
        server = self.boot_full(status=None)
        self.restart()
        self.assertEqual(('ERROR', None), self.state(server))
        self.wait_for_node(server, 'active')
        self.work()
        self.assertEqual(('ERROR', None), self.state(server))
        self.delete(server)
        self.wait_for(self.assert_nothing_left)


class RebuildCase(restarting.TestCase):

    def rebuild_killed(self, server, sent=True):
        self.notifier.reset()
        self.image_now = self.image()
        self.die_at(*DEPLOY, sent=sent)
        self.rebuild(server, self.image_now, status=None)
        self.restart()
        self.assertEqual(('REBUILD', 'rebuild_spawning'), self.state(server))

    def assert_rebuilt(self, server):
        self.assertNotIn('reservations_rebuilt_from',
                         self.full(server).system_metadata)
        self.assertEqual(self.image_now, self.api.get_server(
            server['id'])['image']['id'])
        self.assertEqual({self.providers()[FIRST]: {'CUSTOM_GOLD': 1}},
                         self.allocations(server))
        self.assertEqual('active',
                         self.ironic.node_of(server).provision_state)
        self.assertEqual(('Success', True),
                         self.events(server)['compute_rebuild_instance'])
        self.assertEqual(['instance.rebuild.end'],
                         self.notified('instance.rebuild.end'))


class TestWhileIronicDeploys(RebuildCase):
    """Ironic is at it for longer than the restart takes."""

    ironic_config = {'fake': {'deploy_delay': '3'}}

    @base.smoke
    def test_build(self):
        self.die_at(*DEPLOY)
        server = self.boot_full(status=None)
        self.restart()
        self.assertEqual(('BUILD', 'spawning'), self.state(server))
        self.look()
        self.run_periodic()
        self.assertEqual(('BUILD', 'spawning'), self.state(server))
        self.work_until_status(server, 'ACTIVE')
        self.assert_built(server)
        # It is a server as any.
        self.act(server, 'reboot', 'ACTIVE', type='HARD')
        self.act(server, 'os-stop', 'SHUTOFF')
        self.delete(server)
        self.wait_for(self.assert_nothing_left)

    def test_rebuild_of_a_stopped_server(self):
        server = self.boot_full()
        self.act(server, 'os-stop', 'SHUTOFF')
        self.rebuild_killed(server)
        self.look()
        self.assertEqual('REBUILD', self.state(server)[0])
        self.work_until_status(server, 'SHUTOFF')
        self.assertEqual('power off', self.ironic.node_of(server).power_state)
        self.assert_rebuilt(server)

    def test_deletion(self):
        """Nova would have lost it; it waits for the node's lock."""
        self.die_at(*DEPLOY)
        server = self.boot_full(status=None)
        self.died()
        self.api.delete_server(server['id'])
        # It is lost with the process once that has taken it off the queue.
        self.wait_for(lambda: self.assertIn('compute_terminate_instance',
                                            self.events(server)))
        self.restart()
        self.look()
        self.assertEqual(('BUILD', 'deleting'), self.state(server))
        self.assert_deleted(server)

    def looks(self):
        """How often it was looked what Ironic deploys."""
        return sum(method == 'GET' and path == '/v1/reservations'
                   and query.get('state') == 'deploying'
                   for method, path, _, query in self.wire.calls)

    @base.smoke
    def test_stop_of_the_process(self):
        """As by SIGTERM: deployments do not keep it."""
        gate = self.gate()

        def deploy(go_on):
            gate()
            go_on()
            # The thread ends with its process.
            self._wait_for_the_end()

        self.wire.on(*DEPLOY, deploy)
        self.flags(manager_shutdown_timeout=3600)
        server = self.boot_full(status=None)
        gate.wait()
        service = self.computes.pop(FIRST)
        stopping = threading.Thread(target=service.stop, daemon=True)
        stopping.start()
        self.wait_for(lambda: self.assertIn('waiting up to', self.log))
        # Ironic has not accepted it yet. The first look may have begun before
        # the process was told to stop, and the second has ended by the third.
        before = self.looks()
        self.wait_for(lambda: self.assertLess(before + 2, self.looks()))
        self.assertNotIn(ENDS, self.log)
        gate.open()
        self.wait_for(lambda: self.assertIn(ENDS, self.log))
        # Nova would wait on.
        self.assertTrue(stopping.is_alive())
        service.manager.driver.worker.stop()
        self.assertEqual('deploying',
                         self.ironic.node_of(server).provision_state)


class TestDeployed(restarting.TestCase):

    def test_before_the_restart(self):
        """From a volume; the host is restarted twice.

        Between the two Nova gives the server up, and would leave it where it
        is for ever.
        """
        self.die_at(*DEPLOY)
        server = self.boot_full(status=None, **networking.FROM_VOLUME)
        self.kill()
        self.wait_for_node(server, 'active')
        self.start_compute(FIRST)
        self.assertIn(server['id'], self.left())
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
        """With a volume; what cannot be torn down is tried again."""
        self.die_at(*DEPLOY)
        server = self.boot_full(status=None, **networking.FROM_VOLUME)
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

    def test_ironic_is_away(self):
        self.die_at(*DEPLOY)
        server = self.boot_full(status=None)
        self.restart()
        self.wait_for_node(server, 'active')
        self.be_impatient()
        self.wire.on('GET', '/v1/.*', faults.cut, times=1000)
        for _ in range(3):
            self.work()
        self.assertIn(server['id'], self.left())
        self.wire.heal()
        self.work_until_status(server, 'ACTIVE')
        self.assert_built(server)

    def test_never_accepted(self):
        """Not before the grace is over; what comes later is refused."""
        late = []

        def hold_back(go_on):
            late.append(go_on)
            self.buried.release()
            self._wait_for_the_end()

        self.wire.on(*DEPLOY, hold_back)
        self.dying += 1
        server = self.boot_full(status=None, **networking.FROM_VOLUME)
        self.restart()
        self.be_quick(GRACE=3600)
        self.look()
        self.look()
        self.assertEqual(('BUILD', 'spawning'), self.state(server))
        self.be_quick(GRACE=0)
        self.assert_not_built(server, NOT_BEGUN)
        self.assertEqual(412, late[0]().status_code)
        self.assertEqual({'available'}, {
            each.provision_state for each in self.ironic.nodes()})

    def test_never_begun(self):
        """The host dies before it asks Ironic to deploy the node."""
        vifs = 'POST', '/v1/nodes/.*/vifs'
        for last, is_sent, lapses in ((faults.HOLD, False, False),
                                      (vifs, True, False),
                                      (vifs, False, True)):
            self.die_at(*last, sent=is_sent)
            server = self.boot_full(status=None)
            self.kill()
            if lapses:
                self.lapse(server['id'])
            self.start_compute(FIRST)
            self.assert_not_built(server, NOT_BEGUN)


class TestRebuilds(RebuildCase):

    def test_never_accepted(self):
        """Its node is active then, too."""
        server = self.boot_full()
        self.rebuild_killed(server, sent=False)
        self.assertEqual('active',
                         self.ironic.node_of(server).provision_state)
        found = self.work_until_status(server, 'ERROR')
        self.assertIn(NOT_BEGUN, found['fault']['message'])
        self.assertEqual(('Error', True),
                         self.events(server)['compute_rebuild_instance'])
        self.assertEqual({self.providers()[FIRST]: {'CUSTOM_GOLD': 1}},
                         self.allocations(server))
        # It may be rebuilt from that, and killed again; or not.
        self.rebuild_killed(server)
        self.work_until_status(server, 'ACTIVE')
        self.assert_rebuilt(server)
        self.notifier.reset()
        self.image_now = self.image()
        self.rebuild(server, self.image_now)
        self.assert_rebuilt(server)
        self.delete(server)


class TestDeletions(restarting.TestCase):

    def test_of_a_server(self):
        """The host does not wait for it when it starts."""
        server = self.boot_full()
        self.die_at(*DEPLOY, sent=False)
        self.delete(server, wait=False)
        self.kill()
        self.wire.requests.clear()
        self.start_compute(FIRST)
        self.assertEqual([], self.wire.sent(*DEPLOY))
        self.assert_deleted(server)

    def test_meanwhile(self):
        """A user deletes what the host has taken up, in "wait call-back"."""
        self.die_at(*DEPLOY)
        server = self.boot_full(status=None)
        self.kill()
        self.wait_for_node(server, 'active')
        self.set_node(server, 'wait call-back')
        self.start_compute(FIRST)
        self.work()
        self.delete(server, wait=False)
        self.assert_deleted(server)

    def test_while_the_node_is_locked(self):
        """It fails as without a restart, and is not made ACTIVE after it."""
        self.die_at(*DEPLOY)
        server = self.boot_full(status=None)
        self.kill()
        self.wait_for_node(server, 'active')
        self.set_node(server, 'deploying', lock='conductor')
        # The SDK asks six times, and would wait for half a minute meanwhile.
        self.start_compute(FIRST, ironic={
            'endpoint_override': self.wire.url,
            'status_code_retry_delay': 0.1})
        self.api.delete_server(server['id'])
        self.work_until_status(server, 'ERROR')
        self.set_node(server, 'active')
        self.look()
        self.assertEqual(('ERROR', None), self.state(server))
        self.assertEqual(FIRST, self.instance(server).host)
        self.delete(server)
        self.wait_for(self.assert_nothing_left)


class TestMoved(restarting.TestCase):

    def setUp(self):
        super().setUp()
        self.start_compute(SECOND)

    def test_build(self):
        self.die_at(*DEPLOY)
        server = self.boot_full(status=None)
        self.kill()
        self.force_down(FIRST)
        self.give(server, SECOND, FIRST)
        self.work_until_status(server, 'ACTIVE', SECOND)
        self.assert_built(server, SECOND)
        self.delete(server)
        self.wait_for(self.assert_nothing_left)


class TestOutcome(testtools.TestCase):
    """No cloud is needed."""

    def outcome(self, task, state, before=None, now='b'):
        instance = objects.Instance(
            uuid=INSTANCE, task_state=task, system_metadata={
                endings.REBUILT_FROM: before} if before else {})
        return restart.find_outcome(instance, state and {
            'provision_state': state, 'provision_updated_at': now,
            'last_error': 'eels'})

    def test_builds(self):
        for task, state, expected, reason in (
                ('spawning', 'active', 'DONE', None),
                ('spawning', 'deploying', 'OPEN', None),
                ('spawning', 'wait call-back', 'OPEN', None),
                ('spawning', 'service wait', 'OPEN', None),
                ('spawning', 'deploy failed', 'FAILED', 'eels'),
                ('spawning', 'error', 'FAILED', 'eels'),
                ('spawning', None, 'FAILED', 'taken away'),
                ('spawning', 'available', 'NOT_BEGUN', NOT_BEGUN),
                ('spawning', 'manageable', 'NOT_BEGUN', NOT_BEGUN),
                ('block_device_mapping', 'active', 'NOT_BEGUN', NOT_BEGUN),
                ('networking', 'available', 'NOT_BEGUN', NOT_BEGUN),
                (None, None, 'NOT_BEGUN', NOT_BEGUN)):
            self.assert_outcome(expected, reason, self.outcome(task, state))

    def test_rebuilds(self):
        """What a node was before is no outcome."""
        for state, before, expected, reason in (
                ('active', 'a', 'DONE', None),
                ('active', 'b', 'NOT_BEGUN', NOT_BEGUN),
                ('active', None, 'FAILED', 'it is not known'),
                ('deploying', 'b', 'OPEN', None),
                ('deploying', None, 'OPEN', None),
                ('deploy failed', 'a', 'FAILED', 'eels'),
                ('deploy failed', 'b', 'NOT_BEGUN', NOT_BEGUN),
                (None, 'a', 'FAILED', 'taken away')):
            self.assert_outcome(expected, reason, self.outcome(
                'rebuild_spawning', state, before))

    def assert_outcome(self, expected, reason, found):
        self.assertEqual(restart.Outcome[expected], found[0])
        if reason is None:
            self.assertIsNone(found[1])
        else:
            self.assertIn(reason, found[1])

    def test_what_is_unfinished(self):
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
    """No cloud is needed."""

    def test_which_are_missing(self):
        log = self.useFixture(fixtures.FakeLogger())
        conf = self.useFixture(config_fixture.Config(restart.CONF))
        conf.config(auth_type='password', group='neutron')
        conf.config(auth_type=None, group='cinder')
        restart.check_credentials()
        self.assertNotIn('[neutron]', log.output)
        self.assertIn('Section [cinder] of nova.conf has no credentials',
                      log.output)


class TestUnfinished(testtools.TestCase):
    """No cloud is needed."""

    def test_each_waits_alone(self):
        """What fails again and again does not keep the others waiting."""
        unfinished = restart.Completer(FIRST, None, None, None, None)
        self.addCleanup(unfinished.stop)
        self.assertEqual([], unfinished.hide([
            objects.Instance(uuid=each, host=FIRST, node=FIRST,
                             vm_state='building', task_state='spawning')
            for each in (INSTANCE, OTHER)]))
        self.assertIsNot(unfinished._instances[INSTANCE],
                         unfinished._instances[OTHER])


class TestFormer(restarting.TestCase):
    """A process was stopped, and goes on when the next one has finished.

    There is no lease, and both are the same host.
    """

    def frozen(self, method, path, begin):
        """Begin something, and stop the process after a request."""
        gate = self.gate()
        self.wire.on(method, path, faults.after(gate))
        server = begin()
        gate.wait()
        self.kill()
        self.start_compute(FIRST)
        return server, gate

    def boot_one(self):
        return self.boot_full(status=None)

    def assert_kept(self, server, gate):
        gate.open()
        self.wait_for(lambda: self.assertIn(
            'This thread waits until the process ends: another process '
            'of compute-1 has instance', self.log))
        self.assert_built(server)
        self.assertEqual(1, len(self.api.get_port_interfaces(server['id'])))

    def test_build(self):
        server, gate = self.frozen(*DEPLOY, self.boot_one)
        self.work_until_status(server, 'ACTIVE')
        self.assert_kept(server, gate)

    def test_build_that_has_been_looked_at(self):
        """Nova saves that it is built, and cleans up when that fails."""
        looked, gate = restart.is_complete, self.gate()

        def look_and_stop(instance):
            self.useFixture(fixtures.MonkeyPatch(IS_ENDED, looked))
            found = looked(instance)
            gate()
            return found

        self.useFixture(fixtures.MonkeyPatch(IS_ENDED, look_and_stop))
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

        server = self.boot_full()
        _, gate = self.frozen(*DEPLOY, rebuild)
        self.work_until_status(server, 'ACTIVE')
        self.assert_kept(server, gate)


class TestQueue(restarting.TestCase):
    """Nova has asked a host that was down to build servers."""

    def setUp(self):
        super().setUp()
        self.kill()
        self.server = self.boot_full(status=None)
        self.wait_for(lambda: self.assertTrue(self.allocations(self.server)))
        self.wait_for_task(self.server, 'scheduling')

    def statuses(self):
        """What Nova saves of the server from now on."""
        statuses, save = [], objects.Instance.save

        def saved(instance, *args, **kwargs):
            if instance.uuid == self.server['id']:
                statuses.append(instance.vm_state)
            return save(instance, *args, **kwargs)

        self.useFixture(fixtures.MonkeyPatch('nova.objects.Instance.save',
                                             saved))
        return statuses

    @base.smoke
    def test_builds_are_waited_for(self):
        statuses = self.statuses()
        self.start_compute(FIRST)
        self.wait_for_status(self.server, 'ACTIVE')
        self.assertNotIn('error', statuses)
        self.assert_built(self.server)

    def test_build_that_is_lost(self):
        """It ends, with a reason; one that waits for a thread does not."""
        self.lose_casts()
        manager = self.start_compute(FIRST).manager
        self.look()
        self.assertEqual(('BUILD', 'scheduling'), self.state(self.server))
        self.be_quick(QUEUED=-1)
        manager.driver.completer._queue_end = 0
        waiting = manager._record_task_start(
            'build_instance', self.server['id'])
        self.look()
        self.assertEqual(('BUILD', 'scheduling'), self.state(self.server))
        manager._record_task_end(waiting)
        self.look()
        found = self.wait_for_status(self.server, 'ERROR')
        self.assertIn('the request to build it was lost',
                      found['fault']['message'])
        self.assertEqual({}, self.allocations(self.server))
        self.delete(self.server)

    def lose_casts(self):
        """Let the message bus have died meanwhile."""
        self.useFixture(fixtures.MonkeyPatch(
            'nova.compute.manager.ComputeManager.build_and_run_instance',
            lambda *args, **kwargs: None))
