# SPDX-License-Identifier: Apache-2.0
"""Builds, rebuilds and deletions that are in flight when a host is killed."""

from nova import context
from nova import objects
import testtools

from tests.nova import base
from tests.nova import faults
from tests.nova import restarting

FIRST, SECOND = restarting.FIRST, restarting.SECOND
DEPLOY, NOT_BEGUN = restarting.DEPLOY, restarting.NOT_BEGUN


class TestBuilds(restarting.TestCase):
    """Ironic had accepted the deployment."""

    @base.smoke
    def test_deployed_after_the_restart(self):
        self.die_at(*DEPLOY)
        server = self.boot_full(status=None)
        self.restart()
        self.assertEqual(('BUILD', 'spawning'), self.state(server))
        self.work()
        self.run_periodic()
        self.assertEqual(('BUILD', 'spawning'), self.state(server))
        self.work_until_status(server, 'ACTIVE')
        self.assert_built(server)
        # It is a server as any.
        self.act(server, 'reboot', 'ACTIVE', type='HARD')
        self.act(server, 'os-stop', 'SHUTOFF')
        self.delete(server)
        self.wait_for(self.assert_nothing_left)

    def test_deployed_before_it(self):
        """And restarted twice."""
        self.die_at(*DEPLOY)
        server = self.boot_full(status=None)
        self.kill()
        self.wait_for_node(server, 'active')
        self.start_compute(FIRST)
        self.assertIn(server['id'], self.left())
        self.restart()
        self.work_until_status(server, 'ACTIVE')
        self.assert_built(server)

    def test_volume(self):
        self.die_at(*DEPLOY)
        server = self.from_volume()
        self.restart()
        self.work_until_status(server, 'ACTIVE')
        self.assert_built(server)
        bdm, = objects.BlockDeviceMappingList.get_by_instance_uuid(
            context.get_admin_context(), server['id'])
        attachment, = self.cinder.volume_to_attachment[
            restarting.VOLUME].values()
        self.assertEqual(bdm.attachment_id, attachment['id'])
        self.delete(server)

    def test_build_timeout(self):
        """Nova leaves such a server where it is, for ever."""
        self.die_at(*DEPLOY)
        server = self.boot_full(status=None)
        self.restart()
        self.flags(instance_build_timeout=1)
        self.wait_for(lambda: (
            self.run_periodic(task='_check_instance_build_time'),
            self.assertEqual('error', self.instance(server).vm_state)))
        self.flags(instance_build_timeout=0)
        self.restart()
        self.work_until_status(server, 'ACTIVE')
        self.assert_built(server)


class TestFailures(restarting.TestCase):

    def fail(self, server, error='The disk is full of eels'):
        """Let Ironic have failed."""
        self.wait_for_node(server, 'active')
        self.sql("UPDATE nodes SET provision_state = 'deploy failed', "
                 "target_provision_state = 'active', last_error = :e "
                 "WHERE uuid = :u", u=self.ironic.node_of(server).id, e=error)

    def test_deploy_failed(self):
        """With a volume; what cannot be torn down is tried again."""
        self.die_at(*DEPLOY)
        server = self.from_volume()
        self.kill()
        self.fail(server)
        self.start_compute(FIRST)
        self.wire.on('PUT', '/v1/nodes/.*', faults.cut, times=50)
        self.work_until(lambda: self.assertIn('is taken up again later',
                                              self.log))
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

    def test_never_accepted(self):
        """Not before the grace is over; what comes later is refused."""
        late = []

        def hold_back(go_on):
            late.append(go_on)
            self.buried.release()
            self._wait_for_the_end()

        self.wire.on(*DEPLOY, hold_back)
        self.dying += 1
        server = self.from_volume()
        self.restart()
        self.be_quick(GRACE=3600)
        self.work()
        self.work()
        self.assertEqual(('BUILD', 'spawning'), self.state(server))
        self.be_quick(GRACE=0)
        self.assert_not_built(server, NOT_BEGUN)
        self.assertEqual(412, late[0]().status_code)
        self.assertEqual({'available'}, {
            each.provision_state for each in self.ironic.nodes()})

    def test_before_it_is_spawned(self):
        """While Nova makes the networks, which is earlier."""
        self.die_at('POST', '/v1/nodes/.*/vifs')
        server = self.boot_full(status=None)
        self.restart()
        self.assert_not_built(server, NOT_BEGUN)

    def test_before_the_hold(self):
        self.die_at(*faults.HOLD, sent=False)
        server = self.boot_full(status=None)
        self.restart()
        self.assert_not_built(server, NOT_BEGUN)

    def test_lease_is_over(self):
        self.die_at('POST', '/v1/nodes/.*/vifs', sent=False)
        server = self.boot_full(status=None)
        self.kill()
        self.lapse(server['id'])
        self.start_compute(FIRST)
        self.assert_not_built(server, NOT_BEGUN)


class TestRebuilds(restarting.TestCase):

    def rebuilding(self, sent=True, stop=False):
        server = self.boot_full()
        if stop:
            self.act(server, 'os-stop', 'SHUTOFF')
        self.rebuild_killed(server, sent)
        return server

    def rebuild_killed(self, server, sent=True):
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

    def test_accepted(self):
        server = self.rebuilding()
        self.work()
        self.assertEqual('REBUILD', self.state(server)[0])
        self.work_until_status(server, 'ACTIVE')
        self.assert_rebuilt(server)

    def test_stopped_server(self):
        server = self.rebuilding(stop=True)
        self.work_until_status(server, 'SHUTOFF')
        self.assertEqual('power off', self.ironic.node_of(server).power_state)
        self.assert_rebuilt(server)

    def test_never_accepted(self):
        """Its node is active then, too."""
        server = self.rebuilding(sent=False)
        self.assertEqual('active',
                         self.ironic.node_of(server).provision_state)
        found = self.work_until_status(server, 'ERROR')
        self.assertIn(NOT_BEGUN, found['fault']['message'])
        self.assertEqual(('Error', True),
                         self.events(server)['compute_rebuild_instance'])
        self.assertEqual({self.providers()[FIRST]: {'CUSTOM_GOLD': 1}},
                         self.allocations(server))
        # It may be rebuilt from that, and killed again.
        self.rebuild_killed(server)
        self.work_until_status(server, 'ACTIVE')
        self.assert_rebuilt(server)
        self.delete(server)

    def test_not_killed(self):
        server = self.boot_full()
        self.image_now = self.image()
        self.rebuild(server, self.image_now)
        self.assert_rebuilt(server)


class TestDeletions(restarting.TestCase):

    def assert_deleted(self, server):
        self.work_until(lambda: self.assertTrue(
            self.instance(server).deleted))
        self.wait_for(lambda: self.assertEqual({}, self.allocations(server)))
        self.wait_for(self.assert_nothing_left)
        self.work()
        self.assertEqual({}, self.left())

    def test_of_a_build(self):
        """Nova would have lost it; it waits for the node's lock."""
        self.die_at(*DEPLOY)
        server = self.boot_full(status=None)
        self.died()
        self.api.delete_server(server['id'])
        self.wait_for_task(server, 'deleting')
        self.restart()
        self.work()
        self.assertEqual(('BUILD', 'deleting'), self.state(server))
        self.assert_deleted(server)

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
        self.sql("UPDATE nodes SET provision_state = 'wait call-back', "
                 "target_provision_state = 'active' WHERE uuid = :u",
                 u=self.ironic.node_of(server).id)
        self.start_compute(FIRST)
        self.work()
        self.delete(server, wait=False)
        self.assert_deleted(server)


class TestLockedNode(restarting.TestCase):

    # Longer than the SDK asks a node for that is locked.
    delay = 40

    def test_deleted_while_its_node_is_locked(self):
        """It fails as without a restart, and is not made ACTIVE after it."""
        self.die_at(*DEPLOY)
        server = self.boot_full(status=None)
        self.restart()
        self.api.delete_server(server['id'])
        self.work_until_status(server, 'ERROR')
        self.wait_for_node(server, 'active')
        self.work()
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
