# SPDX-License-Identifier: Apache-2.0
"""What is late, and what a host does that another has the server of.

In all of them a real Ironic has the fence at its door.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import types

import fixtures
from nova import context
from nova import exception
from nova import objects
from nova import test
from nova.virt.ironic import driver as parent
from nova.virt.ironic_reservations import driver
from nova.virt.ironic_reservations import fence
from nova.virt.ironic_reservations import host_lease
from nova.virt.ironic_reservations import ownership
from nova.virt.ironic_reservations import restart
from oslo_concurrency import lockutils
import oslo_messaging as messaging
import testtools

from tests.nova import base
from tests.nova import faults
from tests.nova import networking
from tests.nova import test_lifecycle
from tests.nova import test_standby
from tests.nova import test_takeover

FIRST, SECOND = test_takeover.FIRST, test_takeover.SECOND
PROVISION, POWER = '/v1/nodes/.*/states/provision', '/v1/nodes/.*/states/power'
VIFS, CONSOLE = '/v1/nodes/.*/vifs', '/v1/nodes/.*/states/console'
TARGETS = '/v1/volume/targets'
#: Where the driver looks whose an instance is, or renews a build's lease.
LOOK = '/v1/reservations/[^/]*'
#: The bytes of a config drive that Ironic is sent 60 MiB of.
LONG = 45 * 2 ** 20
GONE = exception.InstanceNotFound
STAYS = 'This thread waits until the process ends'
INSTANCE = '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'
NODE = '0b6f0e8a-8d6b-4b6d-9c1a-5a4ac6d95a4a'


def other_process():
    """Locks are not shared with another process."""
    return fixtures.MonkeyPatch(
        'oslo_concurrency.lockutils._semaphores', lockutils.Semaphores())


class Ironic:
    """An adapter of openstacksdk that notes what it is asked."""

    def __init__(self, *statuses, headers=()):
        self.statuses, self.headers = list(statuses), dict(headers)
        self.asked = []

    def request(self, url, method, headers=None, **kwargs):
        self.asked.append((headers or {}).get(fence.HEADER))
        return types.SimpleNamespace(
            status_code=self.statuses.pop(0) if self.statuses else 202,
            headers=self.headers)


class TestHeader(testtools.TestCase):
    """No cloud is needed."""

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.held = None
        self.fence = fence.Fence(self)
        self.fence.host = 'rack 1;x=é'
        self.binding = fence.Held(objects.Instance(uuid=INSTANCE), NODE)

    def get(self, instance_uuid):
        """As the client of reservations does."""
        return self.held

    def said(self, binding, url, method, *answers, **kwargs):
        ironic = Ironic(*answers, **kwargs)
        self.fence.wrap_connection(ironic, binding).request(url, method)
        return ironic.asked

    def test_for_whom(self):
        held = f'instance={INSTANCE}; host=rack%201%3Bx%3D%C3%A9'
        for url, method, expected in (
                ('nodes/x/states/power', 'PUT', held),
                ('/nodes/x/vifs/y', 'DELETE', held),
                ('/volume/targets', 'POST', f'{held}; node={NODE}'),
                ('volume/targets/y', 'DELETE', f'{held}; node={NODE}'),
                ('nodes/x/states/console', 'GET', held),
                ('nodes/x', 'GET', None)):
            for binding, header in (
                    (self.binding, expected), (fence.WITHOUT, None)):
                self.assertEqual([header], self.said(binding, url, method))

    def test_for_nobody(self):
        for url, method in (('/nodes/x', 'PATCH'), ('nodes/x', 'DELETE'),
                            ('/nodes/x/states/console', 'GET')):
            self.assertIn('is for no instance', str(self.assertRaises(
                RuntimeError, self.said, None, url, method)))
        # What has a reservation in its path says it there.
        for url, method in (('/reservations/x', 'DELETE'), ('/nodes', 'GET')):
            self.assertEqual([None], self.said(None, url, method))

    def test_door_without_a_fence(self):
        """It is said once, and not of what is answered on the way."""
        url, once = '/nodes/x', 'does not check which host holds'
        self.said(self.binding, url, 'PATCH', 503)
        self.said(fence.WITHOUT, url, 'PATCH')
        self.said(self.binding, url, 'PATCH', headers={fence.FENCE: '1'})
        self.assertNotIn(once, self.log.output)
        for _ in range(2):
            self.said(self.binding, url, 'PATCH')
        self.assertEqual(1, self.log.output.count(once))

    def test_refused(self):
        self.assertRaises(exception.InstanceNotFound, self.said,
                          self.binding, '/nodes/x', 'PATCH', 412)
        self.assertIsInstance(self.binding.refusal, fence.Refused)

    def be_one_of_several(self, *renewed):
        """The host has a standby.

        :param renewed: whether its lease is renewed when it asks for that.
        """
        self.asked = []
        answers = list(renewed)
        self.fence.host_lease = types.SimpleNamespace(
            holder=NODE, wait=lambda: None,
            renew_or_wait=lambda: self.asked.append(answers.pop(0)))

    def test_lease_was_over(self):
        self.be_one_of_several(True)
        header, again = self.said(self.binding, '/nodes/x', 'PATCH', 412)
        self.assertEqual(header, again)
        self.assertEqual(f'holder={NODE}', header.rpartition('; ')[2])
        self.assertEqual([True], self.asked)

    def test_lease_is_its_own(self):
        self.be_one_of_several(True)
        self.assertRaises(fence.Refused, self.said, self.binding, '/nodes/x',
                          'PATCH', 412, 412)

    def test_reservation_is_gone_in_a_build(self):
        """The build fails as before."""
        self.binding.building = True
        self.assertRaises(fence.Refused, self.said, self.binding, '/nodes/x',
                          'PATCH', 412)

    def test_another_host_has_it_in_a_build(self):
        class Gone(BaseException):
            """The thread would never have come back."""

        def never(*_):
            raise Gone

        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.host_lease.wait_for_process_end',
            never))
        self.held = {'host': 'compute-2', 'state': 'active'}
        self.binding.building = True
        self.assertRaises(Gone, self.said, self.binding, '/nodes/x', 'PATCH',
                          412)
        self.assertEqual(1, self.log.output.count(STAYS))
        # With a standby the process ends.
        self.be_one_of_several(True)
        self.fence.host_lease.end = lambda why: never()
        self.assertRaises(Gone, self.said, self.binding, '/nodes/x', 'PATCH',
                          412, 412)
        self.assertEqual(1, self.log.output.count(STAYS))


class TestStopping(testtools.TestCase):
    """Each in a process of its own; no cloud is needed."""

    PROCESS = f'''
import types
import futurist
from nova import objects
from nova.virt.ironic_reservations import client, fence

def get(uuid):
    {{answer}}

def build(instance):
    try:
        host.block_if_lost(instance, certain=True)
    finally:
        print('It has come back to Nova')

host = fence.Fence(types.SimpleNamespace(get=get))
host.host = 'compute-1'
pool = futurist.ThreadPoolExecutor(1)
pool.submit(build, objects.Instance(uuid='{INSTANCE}'))
host.cleanup.set()
# As Nova does it next.
pool.shutdown(wait=True)
'''

    def test_ends_while_a_thread_stays(self):
        """Another host has the instance, or Ironic does not tell."""
        for answer in (
                "return {'host': 'compute-2', 'state': 'active'}",
                "raise client.Unavailable('it is away', busy=True)"):
            process = subprocess.run(
                [sys.executable, '-c', self.PROCESS.format(answer=answer)],
                timeout=60, stdout=subprocess.PIPE, text=True)
            self.assertEqual((0, ''), (process.returncode, process.stdout))


#: Public methods of Nova's Ironic driver that ours leaves as they are.
SAFE = {
    'clean_networks_preparation': 'calls unplug_vifs',
    'manages_network_binding_host_id': 'is a constant',
    'network_binding_host_id': 'is a constant',
    'plug_vifs': 'does nothing',
    'power_update_event': 'saves that Ironic has told it, which asks for the '
                          'task that the instance has',
}


class TestOverrides(test.NoDBTestCase):

    def test_each_method_looks_whose_an_instance_is(self):
        theirs = {name for name in vars(parent.IronicDriver)
                  if not name.startswith('_') and callable(
                      getattr(parent.IronicDriver, name))}
        ours = theirs & vars(driver.ReservationsDriver).keys()
        self.assertEqual(set(SAFE), theirs - ours)


class TestBound(test.NoDBTestCase):

    def test_copy_writes_for_an_instance(self):
        """In threads that the parent starts for it, too, and there alone."""
        ironic, host = Ironic(), driver.ReservationsDriver(None)
        host.fence.host = FIRST
        host.ownership = types.SimpleNamespace(
            on_node=lambda instance, building: ownership.OnNode(
                instance, NODE))
        write = 'nodes/x', 'PUT'

        def dump(its, instance):
            thread = threading.Thread(
                target=lambda: its.ironic_connection.request(*write))
            thread.start()
            thread.join()
            self.assertRaises(RuntimeError, host.ironic_connection.request,
                              *write)

        for name, value in (('ironic_connection', ironic),
                            ('trigger_crash_dump', dump)):
            self.useFixture(fixtures.MonkeyPatch(
                f'nova.virt.ironic.driver.IronicDriver.{name}', value))
        host.trigger_crash_dump(objects.Instance(uuid=INSTANCE))
        self.assertEqual([f'instance={INSTANCE}; host={FIRST}'], ironic.asked)


class TestCase(test_takeover.TestCase):
    """The first host goes on, and the second has been given its server."""

    def cut_off(self, *servers):
        """The first hears nothing any more, and the second takes over."""
        service = self.silence(FIRST)
        self.addCleanup(service.manager.driver.cleanup_host, FIRST)
        self.force_down(FIRST)
        self.useFixture(other_process())
        for server in servers:
            self.give(server)
        self.work()
        return service.manager

    def stop_in_build(self, method, path, when, **server):
        gate = self.gate()
        self.wire.on(method, path, when(gate))
        self.stop(gate, networks=[{'port': self.port()}], **server)

    def stop(self, gate, status='BUILD', **server):
        """Build a server; the second host takes it over at a gate.

        Whatever the first does then leaves the server as it is.

        :param status: what the second host makes of it; before release 34
            Nova gives it up there.
        """
        server = self.boot(self.gold, status=None, host=FIRST, **server)
        gate.wait()
        self.cut_off(server)

        def work_and_check():
            self.work()
            self.assertEqual(status if restart.SUPPORTED else 'ERROR',
                             self.api.get_server(server['id'])['status'])

        self.wait_for(work_and_check)
        ports = self.api.get_port_interfaces(server['id'])
        before = self.traces(server)
        self.wire.heal()
        gate.open()
        self.wait_for(lambda: self.assertIn(STAYS, self.log))
        self.assertEqual(1, self.log.count(STAYS))
        self.assertEqual(1, len(ports))
        self.assertEqual(ports, self.api.get_port_interfaces(server['id']))
        self.assertEqual(before, self.traces(server))

    def traces(self, server):
        node = self.ironic.node_of(server)
        found = self.api.get_server(server['id'])
        return (node.provision_state, node.instance_info,
                set(self.ironic.baremetal.list_node_vifs(node)),
                {each.id for each in self.ironic.baremetal.volume_targets()},
                found['status'], found['OS-EXT-SRV-ATTR:host'])


class TestLate(TestCase):

    @base.smoke
    def test_hard_power_off_after_a_soft_one(self):
        """The guest takes its time, and the server is moved meanwhile."""
        server = self.boot(self.gold, host=FIRST)
        self.act(server, 'reboot', 'ACTIVE', type='HARD')
        gate = self.gate()
        self.wire.on('PUT', POWER, faults.before(gate))
        self.act(server, 'os-stop')
        gate.wait()
        self.cut_off(server)
        self.wait_for_status(server, 'SHUTOFF')
        self.act(server, 'os-start', 'ACTIVE')
        gate.open()
        self.wait_for(lambda: self.assertIn(
            'Ironic refused a request', self.log))
        self.assertEqual('power on', self.ironic.node_of(server).power_state)
        self.assert_with(SECOND, server)

    def test_deploy(self):
        """The build that has lost its machine frees nothing of it."""
        self.stop_in_build('PUT', PROVISION, faults.before)

    def test_deploy_before_the_look(self):
        self.stop_in_build('PATCH', LOOK, faults.before)

    def test_deploy_inside_the_look(self):
        self.stop_in_build('PATCH', LOOK, faults.after)

    def test_vif_of_a_build(self):
        self.stop_in_build('POST', VIFS, faults.before)

    def test_end_of_a_deployment(self):
        """No request is refused: spawn looks before it returns."""
        gate = self.gate()
        self.wire.on('PUT', PROVISION, faults.after(
            lambda: self.wire.on('GET', '/v1/nodes', faults.after(gate))))
        self.stop(gate, 'ACTIVE', networks=[{'port': self.port()}])
        # Nova would find that somebody else has ended its build.
        self.assertNotIn('Unexpected build failure', self.log)

    def test_rebuild(self):
        self.stop_in_rebuild('PUT', PROVISION, faults.before)

    def test_rebuild_before_the_look(self):
        self.stop_in_rebuild('GET', LOOK, faults.before)

    def test_rebuild_inside_the_look(self):
        self.stop_in_rebuild('GET', LOOK, faults.after)

    def stop_in_rebuild(self, method, path, when):
        server = self.boot(self.gold, host=FIRST)
        gate = self.gate()
        self.wire.on(method, path, when(gate))
        self.rebuild(server, self.image(), status=None)
        gate.wait()
        self.cut_off(server)
        before = self.traces(server)
        allocations = self.allocations(server)
        gate.open()
        self.wait_for(lambda: self.assertIn(STAYS, self.log))
        self.assertEqual(before, self.traces(server))
        self.assertEqual(allocations, self.allocations(server))

    def test_undeploy(self):
        """The other host tears the server's machine down, and not this one."""
        server = self.boot(self.gold, host=FIRST)
        gate = self.gate()
        self.wire.on('PUT', PROVISION, faults.before(gate))
        self.delete(server, wait=False)
        gate.wait()
        self.force_down(FIRST)
        self.give(server)
        gate.open()
        # Nova keeps the ports after no other error.
        self.wait_for(lambda: self.assertIn(
            'Failed to power off instance: it is now on host compute-2',
            self.log))
        self.assertEqual('active',
                         self.ironic.node_of(server).provision_state)

    def test_undeploy_that_is_refused_for_a_reason_unknown(self):
        """Ironic cannot be asked whose the server is."""
        self.be_impatient()
        server = self.boot(self.gold, host=FIRST,
                           networks=[{'port': self.port()}])

        def give():
            self.give(server)
            self.wire.on('GET', '/v1/reservations/.*', faults.cut, times=1000)

        self.wire.on('PUT', PROVISION, faults.before(give))
        self.delete(server, wait=False)
        self.wait_for(lambda: self.assertIn(
            'it is not known whether its node is released', self.log))
        self.wait_for(lambda: self.assertEqual(
            'ERROR', self.api.get_server(server['id'])['status']))
        self.assertEqual(1, len(self.api.get_port_interfaces(server['id'])))

    def test_undeploy_that_does_not_arrive(self):
        """The machine has its ports still, and so has the server."""
        server = self.boot(self.gold, host=FIRST,
                           networks=[{'port': self.port()}])
        self.wire.on('PUT', PROVISION, faults.cut)
        self.delete(server, wait=False)
        self.wait_for(lambda: self.assertEqual(
            'ERROR', self.api.get_server(server['id'])['status']))
        self.assertEqual(1, len(self.api.get_port_interfaces(server['id'])))
        self.delete(server)
        self.assert_nothing_left()

    @base.smoke
    def test_undeploy_whose_answer_was_lost(self):
        """Its own success is not an error."""
        self.restart_compute(FIRST, ironic={
            'endpoint_override': self.wire.url, 'connect_retries': 3,
            'connect_retry_delay': 0.1})
        server = self.boot(self.gold, host=FIRST)
        node = self.ironic.node_of(server)

        def torn_down(go_on):
            go_on()
            self.ironic.settle([node], provision_state='available')
            faults.cut(None)

        self.wire.on('PUT', PROVISION, torn_down)
        self.delete(server)
        self.assertEqual(
            ['active', 'deleted', 'deleted'],
            [body['target'] for body in self.wire.sent('PUT', PROVISION)])
        self.assert_nothing_left()


class TestHardware(TestCase, test_lifecycle.Hardware):
    """The same on nodes with networks, consoles and volume connectors."""

    fleet = test_lifecycle.Hardware.fleet

    def test_volume_target_of_a_build(self):
        self.connect_volumes()
        self.flags(mkisofs_cmd=test_lifecycle.MKISOFS)
        self.stop_in_build(
            'POST', TARGETS, faults.before, **networking.FROM_VOLUME)

    def test_deploy_with_a_long_config_drive(self):
        """All of it is sent before the answer is read."""
        def make_drive(builder, path):
            with open(path, 'wb') as drive:
                drive.write(random.randbytes(LONG))

        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.configdrive.ConfigDriveBuilder.make_drive',
            make_drive))
        self.stop_in_build('PUT', PROVISION, faults.before,
                           config_drive=True)
        deploy, = self.wire.sent('PUT', PROVISION)
        self.assertLess(60 * 2 ** 20, len(deploy['configdrive']))

    @base.smoke
    def test_each_write(self):
        """Another host is given the server before, inside, after the look."""
        attached, other = self.port(), self.port()
        server = self.boot(self.gold, host=FIRST,
                           networks=[{'port': attached}])
        instance = self.instance(server)
        host = self.computes[FIRST].manager.driver
        ctxt = context.get_admin_context()
        before = self.all_of(server)
        for method, path, do, error in (
                ('PUT', POWER, lambda: host.power_off(instance), GONE),
                ('PUT', POWER, lambda: host.power_off(instance, 60), GONE),
                ('PUT', POWER, lambda: host.power_on(ctxt, instance, []),
                 GONE),
                ('PUT', POWER, lambda: host.reboot(
                    ctxt, instance, [], 'SOFT'), GONE),
                ('PUT', PROVISION, lambda: host.rescue(
                    ctxt, instance, [], None, 'secret', None, None), GONE),
                ('PUT', PROVISION, lambda: host.unrescue(ctxt, instance),
                 GONE),
                ('PUT', PROVISION, lambda: host.destroy(ctxt, instance, []),
                 exception.InstancePowerOffFailure),
                ('PUT', '/v1/nodes/.*/inject_nmi',
                 lambda: host.trigger_crash_dump(instance), GONE),
                ('POST', VIFS, lambda: host.attach_interface(
                    ctxt, instance, None, {'id': other}), GONE),
                ('DELETE', f'{VIFS}/.*', lambda: host.detach_interface(
                    ctxt, instance, {'id': attached}), GONE),
                ('GET', CONSOLE, lambda: host.get_serial_console(
                    ctxt, instance), GONE),
                ('PUT', CONSOLE, lambda: host.get_vnc_console(
                    ctxt, instance), GONE)):
            for fault in (('GET', LOOK, faults.before),
                          ('GET', LOOK, faults.after),
                          (method, path, faults.before)):
                before = self.given_away(server, before, fault, do, error)

    def test_console_that_is_anothers_by_then(self):
        """Where it is is read by the node, after all requests."""
        server = self.boot(self.gold, host=FIRST)
        host = self.computes[FIRST].manager.driver
        instance = self.instance(server)
        ctxt = context.get_admin_context()
        self.assertTrue(host.get_vnc_console(ctxt, instance).port)
        self.given_away(
            server, self.all_of(server),
            ('GET', '/v1/nodes/[^/]*', faults.before),
            lambda: host.get_vnc_console(ctxt, instance), GONE)

    def given_away(self, server, before, fault, do, error):
        """Nothing is done to the server by a host that has lost it.

        :param before: what there was of the server; returned as it is now.
        """
        method, path, when = fault
        self.wire.on(method, path, when(lambda: self.give(server)))
        with self.as_host(FIRST):
            self.assertRaises(error, do)
        self.wire.heal()
        now = self.all_of(server)
        self.assertEqual(before, now, fault)
        self.give(server, FIRST, SECOND)
        return now

    def all_of(self, server):
        return self.traces(server), self.ironic.node_of(server).to_dict()


class TestFormer(TestCase):
    """A host that is back is asked for what was queued before."""

    def setUp(self):
        super().setUp()
        self.port_id = self.port()
        self.server = self.boot(self.gold, host=FIRST,
                                networks=[{'port': self.port_id}])
        self.before = self.instance(self.server)
        self.die()
        self.give(self.server)
        self.work()
        self.assert_with(SECOND, self.server)
        self.come_back()
        self.wire.requests.clear()
        self.wire.said.clear()

    def raised(self, cast):
        """What a cast ends with."""
        try:
            cast()
        except messaging.ExpectedException as e:
            return e.exc_info[1]
        except exception.NovaException as e:
            return e
        return None

    @base.smoke
    def test_it_touches_and_shows_nothing(self):
        ctxt = context.get_admin_context()
        self.flags(group='serial_console', enabled=True)
        manager = self.computes[FIRST].manager
        vif, = self.before.get_network_info()
        with self.as_host(FIRST):
            for cast in (
                    lambda: manager.trigger_crash_dump(ctxt, self.before),
                    lambda: manager.get_serial_console(
                        ctxt, 'serial', self.before),
                    lambda: manager.driver.attach_interface(
                        ctxt, self.before, None, vif),
                    lambda: manager.driver.detach_interface(
                        ctxt, self.before, vif)):
                self.assertIsInstance(self.raised(cast),
                                      exception.InstanceNotFound)
            self.assertIsInstance(
                self.raised(lambda: manager.detach_interface(
                    ctxt, self.before, self.port_id)),
                exception.InterfaceDetachFailed)
        self.assertEqual(set(), self.written())
        self.assertEqual([], [path for _, path, _ in self.wire.requests
                              if path.endswith('/console')])
        # Nova has not freed the port.
        self.assertEqual(self.server['id'], self.neutron.show_port(
            self.port_id)['port']['device_id'])
        # Nor does it end, reboot or stop what is not its own.
        bdms = objects.BlockDeviceMappingList.get_by_instance_uuid(
            ctxt, self.before.uuid)
        with self.as_host(FIRST):
            for cast in (
                    lambda: manager.terminate_instance(
                        ctxt, self.before, bdms),
                    lambda: manager.reboot_instance(
                        ctxt, self.before, None, 'HARD'),
                    lambda: manager.stop_instance(ctxt, self.before, True)):
                self.raised(cast)
                self.assertEqual(set(), self.written())
        self.assert_with(SECOND, self.server)
        self.assertEqual(self.server['id'], self.ironic.node_of(
            self.server).instance_id)
        self.assertFalse(self.instance(self.server).deleted)


class TestAway(testtools.TestCase):
    """A process that was stopped; no cloud is needed."""

    def setUp(self):
        super().setUp()
        self.asked = 0
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.host_lease.os._exit',
            test_standby.end))
        self.lease = host_lease.HostLease(
            test_standby.HOST, self, threading.Event())

    def acquire_host_lease(self, host, holder, ttl):
        """As the client of reservations does."""
        self.asked += 1

    def get_host_lease_start(self, host):
        return 'then'

    def be_away(self, seconds):
        now = host_lease.now
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.host_lease.now',
            lambda: now() + seconds))

    def test_it_ends_before_it_asks(self):
        self.assertTrue(self.lease.renew())
        self.be_away(31)
        self.assertRaises(test_standby.Ended, self.lease.renew)
        self.assertEqual(1, self.asked)

    def test_the_database_counts_whole_seconds(self):
        """Another process may be the host up to a second earlier."""
        self.assertTrue(self.lease.renew())
        self.be_away(29.5)
        self.assertRaises(test_standby.Ended, self.lease.renew)

    def test_it_asks_while_the_lease_lasts(self):
        self.assertTrue(self.lease.renew())
        self.be_away(28)
        self.assertTrue(self.lease.renew())


class TestDeadline(testtools.TestCase):
    """Each in a process of its own; no cloud is needed."""

    def process(self, does, before=''):
        """A process with a deadline in a second, after its end."""
        return subprocess.run(
            [sys.executable, '-c', 'import deadline, os, signal, sys, time\n'
             f'{before}\nit = deadline.Deadline()\n'
             'it.postpone(time.clock_gettime(time.CLOCK_BOOTTIME) + 1)\n'
             + does], cwd=os.path.dirname(fence.__file__), timeout=30,
            stderr=subprocess.PIPE, text=True)

    def test_stopped(self):
        self.assertEqual(-signal.SIGKILL, self.process(
            'os.kill(os.getpid(), signal.SIGSTOP)').returncode)

    def test_traced(self):
        """By ptrace(2), as with gdb: its parent is told, and does nothing."""
        self.assertEqual(signal.SIGKILL, self.process(
            'deadline.ctypes.CDLL(None).ptrace(PTRACE_TRACEME, 0, 0, 0)\n'
            'os.kill(os.getpid(), signal.SIGSTOP)',
            'PTRACE_TRACEME = 0\nchild = os.fork()\nif child:\n'
            '    assert os.WIFSTOPPED(os.waitpid(child, 0)[1])\n'
            '    sys.exit(os.WTERMSIG(os.waitpid(child, 0)[1]))').returncode)

    def test_busy(self):
        self.assertEqual(-signal.SIGKILL,
                         self.process('while True: pass').returncode)

    def test_postpone(self):
        self.assertEqual(0, self.process(
            'time.sleep(0.5); it.postpone(0); time.sleep(1)').returncode)

    def test_child(self):
        """What nova-compute starts, such as its privileged daemon, lives."""
        self.assertEqual(0, self.process(
            'if not os.fork():\n    time.sleep(2)\n    os._exit(0)\n'
            'it.postpone(0)\nsys.exit(os.wait()[1])').returncode)

    def test_where_it_cannot_be(self):
        """The process is as it was without a deadline, and says so."""
        for cannot in ('os.getpid = lambda: 1',
                       'deadline.ctypes.CDLL = lambda *_, **__: object()'):
            ended = self.process('time.sleep(1.5)', cannot)
            self.assertEqual(0, ended.returncode)
            self.assertIn('The kernel will not kill this process',
                          ended.stderr)


class TestProcess(test_standby.TestCase):
    """Two processes that are one host."""

    fleet = [faults.NODE]

    @base.smoke
    def test_undeploy_that_meets_another_server(self):
        """The node was cleaned meanwhile, and is in the same state again."""
        self.start()
        first = self.boot(self.gold)
        gate = self.gate()
        self.wire.on('PUT', PROVISION, faults.before(gate))
        self.delete(first, wait=False)
        gate.wait()
        self.die_asleep()
        self.lapse_host()
        self.useFixture(other_process())
        self.start().worker.work()
        self.wait_for(lambda: self.assertIsNone(self.ironic.node_of(first)))
        self.wait_for_free_nodes()
        second = self.boot(self.gold)
        self.wire.heal()
        gate.open()
        self.wait_for(lambda: self.assertIn('lost the lease of host compute-1',
                                            self.log))
        node = self.ironic.node_of(second)
        self.assertEqual('active', node.provision_state)
        self.assertEqual('ACTIVE', self.api.get_server(
            second['id'])['status'])

    def die_asleep(self):
        """As die, of a process that does not come to its end."""
        service = self.silence(test_standby.HOST)
        self.addCleanup(service.manager.driver.cleanup_host,
                        test_standby.HOST)

    @base.smoke
    def test_process_that_was_stopped_asks_nobody(self):
        self.start()
        self.taken_over()
        self.wire.requests.clear()
        now = host_lease.now
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.host_lease.now',
            lambda: now() + 601))
        self.wait_for(lambda: self.assertIn(
            'exiting: it was stopped for 60', self.log))
        self.assertEqual([], [each for each in self.wire.requests
                              if each[:2] == test_standby.ASK])

    def test_deadline_follows_the_lease(self):
        """And not an Ironic that is away, nor is there one after the end."""
        put_off = []
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.deadline.Deadline',
            lambda: types.SimpleNamespace(postpone=put_off.append)))
        process = self.start()
        self.wait_for(lambda: self.assertEqual(2, len(put_off)))
        over = host_lease.now() + 600
        self.assertTrue(all(over - 60 < each < over for each in put_off))
        process.host_lease.give_up()
        self.wait_for(lambda: self.assertEqual(0, put_off[-1]))
