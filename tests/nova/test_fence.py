# SPDX-License-Identifier: Apache-2.0
"""Requests that arrive late, or from a host that has lost the server.

The fence of a real Ironic refuses them.
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
from nova.virt.ironic_reservations import reserved
from nova.virt.ironic_reservations import restart
import oslo_messaging as messaging
import testtools

from tests.nova import base
from tests.nova import faults
from tests.nova import networking
from tests.nova import standbys
from tests.nova import takeovers
from tests.nova.takeovers import FIRST
from tests.nova.takeovers import SECOND

PROVISION, POWER = '/v1/nodes/.*/states/provision', '/v1/nodes/.*/states/power'
VIFS, CONSOLE = '/v1/nodes/.*/vifs', '/v1/nodes/.*/states/console'
#: The driver looks an instance's host up, or renews the lease of a build.
LOOKUP = '/v1/reservations/[^/]*'
#: Bytes of a config drive that is sent to Ironic as 60 MiB.
LONG = 45 * 2 ** 20
GONE = exception.InstanceNotFound
BLOCKS = 'This thread waits until the process ends'
INSTANCE = '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'
NODE = '0b6f0e8a-8d6b-4b6d-9c1a-5a4ac6d95a4a'


class Ironic:
    """An adapter of openstacksdk 4.14 that records requests.

    :ivar values: the fence headers of requests.
    :ivar retries: how often each request may be repeated.
    """

    connect_retries = None

    def __init__(self, *statuses, headers=()):
        self.statuses, self.headers = list(statuses), dict(headers)
        self.values, self.retries = [], []

    def request(self, url, method, headers=None, connect_retries=1, **kwargs):
        self.values.append((headers or {}).get(fence.HEADER))
        self.retries.append(connect_retries)
        return types.SimpleNamespace(
            status_code=self.statuses.pop(0) if self.statuses else 202,
            headers=self.headers)


class TestHeader(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.reservation = None
        self.fence = fence.Fence(self)
        self.fence.host = 'rack 1;x=é'
        self.binding = fence.Held(objects.Instance(uuid=INSTANCE), NODE)

    def get(self, instance_uuid):
        """Replaces the method of the client of reservations."""
        return self.reservation

    def headers(self, binding, url, method, *statuses, **kwargs):
        ironic = Ironic(*statuses, **kwargs)
        self.fence.wrap_connection(ironic, binding).request(url, method)
        return ironic.values

    def test_header_value(self):
        value = f'instance={INSTANCE}; host=rack%201%3Bx%3D%C3%A9'
        for url, method, expected in (
                ('nodes/x/states/power', 'PUT', value),
                ('/nodes/x/vifs/y', 'DELETE', value),
                ('/volume/targets', 'POST', f'{value}; node={NODE}'),
                ('volume/targets/y', 'DELETE', f'{value}; node={NODE}'),
                ('nodes/x/states/console', 'GET', value),
                ('nodes/x', 'GET', None)):
            for binding, header in (
                    (self.binding, expected), (fence.NO_RESERVATION, None)):
                self.assertEqual([header], self.headers(binding, url, method))

    def test_without_an_instance(self):
        for url, method in (('/nodes/x', 'PATCH'), ('nodes/x', 'DELETE'),
                            ('/nodes/x/states/console', 'GET')):
            self.assertIn('is not bound to an instance', str(self.assertRaises(
                RuntimeError, self.headers, None, url, method)))
        # The path of a reservation names the instance.
        for url, method in (('/reservations/x', 'DELETE'), ('/nodes', 'GET')):
            self.assertEqual([None], self.headers(None, url, method))

    def test_ironic_without_a_fence(self):
        """It is logged once, and not for responses of a proxy."""
        url, message = '/nodes/x', 'does not check which host holds'
        self.headers(self.binding, url, 'PATCH', 503)
        self.headers(fence.NO_RESERVATION, url, 'PATCH')
        self.headers(self.binding, url, 'PATCH', headers={fence.FENCE: '1'})
        self.assertNotIn(message, self.log.output)
        for _ in range(2):
            self.headers(self.binding, url, 'PATCH')
        self.assertEqual(1, self.log.output.count(message))

    def test_connection_is_refused(self):
        """The option of [ironic] has an effect with each openstacksdk."""
        ironic = Ironic()
        request = self.fence.wrap_connection(ironic, self.binding).request
        request('/nodes', 'GET')
        ironic.connect_retries = 10
        for options in {}, {'connect_retries': 0}:
            request('/nodes', 'GET', **options)
            request('/nodes/x', 'PATCH', **options)
        self.assertEqual([1, 10, 10, 0, 0], ironic.retries)

    def assert_raises(self, error, *statuses):
        self.assertRaises(error, self.headers, self.binding, '/nodes/x',
                          'PATCH', *statuses)

    def test_refused_request(self):
        self.assert_raises(exception.InstanceNotFound, 412)
        self.assertIsInstance(self.binding.refusal, fence.Refused)

    def use_standby(self):
        """Give the host a lease that can be renewed once."""
        results, self.renewals = [True], []
        self.fence.host_lease = types.SimpleNamespace(
            holder=NODE, wait=lambda: None,
            renew_or_wait=lambda: self.renewals.append(results.pop(0)))

    def test_host_lease_had_expired(self):
        self.use_standby()
        first, second = self.headers(self.binding, '/nodes/x', 'PATCH', 412)
        self.assertEqual(first, second)
        self.assertEqual(f'holder={NODE}', first.rpartition('; ')[2])
        self.assertEqual([True], self.renewals)

    def test_host_lease_is_its_own(self):
        self.use_standby()
        self.assert_raises(fence.Refused, 412, 412)

    def test_reservation_is_released_during_a_build(self):
        """The build fails as before."""
        self.binding.building = True
        self.assert_raises(fence.Refused, 412)

    def test_reservation_is_reassigned_during_a_build(self):
        class Blocked(BaseException):
            """The thread would never return."""

        def block(*_):
            raise Blocked

        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.host_lease.wait_for_process_end',
            block))
        self.reservation = {'host': 'compute-2', 'state': 'active'}
        self.binding.building = True
        self.assert_raises(Blocked, 412)
        self.assertEqual(1, self.log.output.count(BLOCKS))
        # With a standby the process exits.
        self.use_standby()
        self.fence.host_lease.end = lambda why: block()
        self.assert_raises(Blocked, 412, 412)
        self.assertEqual(1, self.log.output.count(BLOCKS))


class TestStopping(testtools.TestCase):
    """Runs each test in a separate process."""

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
        print('It has returned to Nova')

host = fence.Fence(types.SimpleNamespace(get=get))
host.host = 'compute-1'
pool = futurist.ThreadPoolExecutor(1)
pool.submit(build, objects.Instance(uuid='{INSTANCE}'))
host.cleanup.set()
# As Nova does it next.
pool.shutdown(wait=True)
'''

    def test_process_exits_while_a_thread_is_blocked(self):
        """Another host has the instance, or Ironic is unavailable."""
        for answer in (
                "return {'host': 'compute-2', 'state': 'active'}",
                "raise client.Unavailable('timeout', busy=True)"):
            process = subprocess.run(
                [sys.executable, '-c', self.PROCESS.format(answer=answer)],
                timeout=60, stdout=subprocess.PIPE, text=True)
            self.assertEqual((0, ''), (process.returncode, process.stdout))


#: Public methods of Nova's Ironic driver that ours does not override.
SAFE = {
    'clean_networks_preparation': 'calls unplug_vifs',
    'manages_network_binding_host_id': 'is a constant',
    'network_binding_host_id': 'is a constant',
    'plug_vifs': 'does nothing',
    'power_update_event': 'saves a notification by Ironic, and requires the '
                          'current task of the instance',
}


class TestOverrides(test.NoDBTestCase):

    def test_each_method_checks_the_host_of_an_instance(self):
        theirs = {name for name in vars(parent.IronicDriver)
                  if not name.startswith('_') and callable(
                      getattr(parent.IronicDriver, name))}
        ours = theirs & vars(driver.ReservationsMixin).keys()
        self.assertEqual(set(SAFE), theirs - ours)


class TestBound(test.NoDBTestCase):

    def test_copy_writes_for_an_instance(self):
        """Also in threads of the parent, and only there."""
        ironic, host = Ironic(), driver.ReservationsDriver(None)
        host.fence.host = FIRST
        host.ownership = types.SimpleNamespace(
            is_reserved=lambda instance: True,
            on_node=lambda instance, building: ownership.OnNode(
                instance, NODE))
        host.reserved = reserved.Reserved(
            None, host._bind, None, host.fence, None, host.ownership, None,
            host.power_states, None)
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
        self.assertEqual([f'instance={INSTANCE}; host={FIRST}'],
                         ironic.values)


class TestCase(takeovers.TestCase):
    """The first host continues to work after the second has taken over."""

    def cut_off(self, *servers):
        """Silence the first host, and let the second take over."""
        service = self.silence(FIRST)
        self.addCleanup(service.manager.driver.cleanup_host, FIRST)
        self.force_down(FIRST)
        self.useFixture(base.separate_locks())
        for server in servers:
            self.assign(server)
        self.work()
        return service.manager

    def stop_in_build(self, method, path, when, **server):
        gate = self.gate()
        self.wire.on(method, path, when(gate))
        self.stop(gate, networks=[{'port': self.port()}], **server)

    def stop(self, gate, status='BUILD', **server):
        """Build a server; the second host takes it over at a gate.

        Check that the first host does not change the server afterwards.

        :param status: status on the second host; before release 34 it is
            always ERROR.
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
        self.wait_for(lambda: self.assertIn(BLOCKS, self.log))
        self.assertEqual(1, self.log.count(BLOCKS))
        self.assertEqual(1, len(ports))
        self.assertEqual(ports, self.api.get_port_interfaces(server['id']))
        self.assertEqual(before, self.traces(server))

    def traces(self, server):
        node = self.ironic.node_of(server)
        server = self.api.get_server(server['id'])
        return (node.provision_state, node.instance_info,
                set(self.ironic.baremetal.list_node_vifs(node)),
                {target.id
                 for target in self.ironic.baremetal.volume_targets()},
                server['status'], server['OS-EXT-SRV-ATTR:host'])


class TestLate(TestCase):

    @base.smoke
    def test_hard_power_off_after_a_soft_one(self):
        """The server is moved while the guest shuts down."""
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
        self.assert_on(SECOND, server)

    def test_deploy(self):
        """A build that has lost its node does not clean it up."""
        self.stop_in_build('PUT', PROVISION, faults.before)

    def test_deploy_before_the_lookup(self):
        self.stop_in_build('PATCH', LOOKUP, faults.before)

    def test_deploy_after_the_lookup(self):
        self.stop_in_build('PATCH', LOOKUP, faults.after)

    def test_vif_of_a_build(self):
        self.stop_in_build('POST', VIFS, faults.before)

    def test_end_of_a_deployment(self):
        """No request is refused: spawn checks before it returns."""
        gate = self.gate()
        self.wire.on('PUT', PROVISION, faults.after(
            lambda: self.wire.on('GET', '/v1/nodes', faults.after(gate))))
        self.stop(gate, 'ACTIVE', networks=[{'port': self.port()}])
        # Nova would find that another host has finished its build.
        self.assertNotIn('Unexpected build failure', self.log)

    def test_rebuild(self):
        self.stop_in_rebuild('PUT', PROVISION, faults.before)

    def test_rebuild_before_the_lookup(self):
        self.stop_in_rebuild('GET', LOOKUP, faults.before)

    def test_rebuild_after_the_lookup(self):
        self.stop_in_rebuild('GET', LOOKUP, faults.after)

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
        self.wait_for(lambda: self.assertIn(BLOCKS, self.log))
        self.assertEqual(before, self.traces(server))
        self.assertEqual(allocations, self.allocations(server))

    def test_undeploy(self):
        """Only the other host tears the server's node down."""
        server = self.boot(self.gold, host=FIRST)
        gate = self.gate()
        self.wire.on('PUT', PROVISION, faults.before(gate))
        self.delete(server, wait=False)
        gate.wait()
        self.force_down(FIRST)
        self.assign(server)
        gate.open()
        # Nova keeps the ports only after this error.
        self.wait_for(lambda: self.assertIn(
            'Failed to power off instance: it is now on host compute-2',
            self.log))
        self.assertEqual('active',
                         self.ironic.node_of(server).provision_state)

    def fail_to_undeploy(self, do):
        server = self.boot(self.gold, host=FIRST,
                           networks=[{'port': self.port()}])
        self.wire.on('PUT', PROVISION, do)
        self.delete(server, wait=False)
        self.wait_for(lambda: self.assertEqual(
            'ERROR', self.api.get_server(server['id'])['status']))
        self.assertEqual(1, len(self.api.get_port_interfaces(server['id'])))
        return server

    def test_undeploy_is_refused_for_an_unknown_reason(self):
        """The host of the server cannot be looked up."""
        def refuse(send):
            [reservation] = self.ironic.reservations()
            self.assign({'id': reservation['instance_uuid']})
            self.wire.on('GET', '/v1/reservations/.*', faults.cut, times=1000)
            return send()

        self.disable_retries()
        self.fail_to_undeploy(refuse)
        self.assertIn('its node may not have been released', self.log)

    def test_undeploy_does_not_arrive(self):
        """The node and the server keep their ports."""
        server = self.fail_to_undeploy(faults.cut)
        self.delete(server)
        self.assert_nothing_left()

    @base.smoke
    def test_response_to_undeploy_is_lost(self):
        """Its own success is not an error."""
        self.restart_compute(FIRST, ironic={
            'endpoint_override': self.wire.url, 'connect_retries': 3,
            'connect_retry_delay': 0.1})
        server = self.boot(self.gold, host=FIRST)
        node = self.ironic.node_of(server)

        def tear_down(send):
            send()
            self.ironic.settle([node], provision_state='available')
            faults.cut(None)

        self.wire.on('PUT', PROVISION, tear_down)
        self.delete(server)
        self.assertEqual(
            ['active', 'deleted', 'deleted'],
            [body['target'] for body in self.wire.bodies('PUT', PROVISION)])
        self.assert_nothing_left()


class TestHardware(TestCase, networking.Hardware):
    """The same on nodes with networks, consoles and volume connectors."""

    fleet = networking.Hardware.fleet

    def test_volume_target_of_a_build(self):
        self.connect_volumes()
        self.flags(mkisofs_cmd=networking.MKISOFS)
        self.stop_in_build('POST', '/v1/volume/targets', faults.before,
                           **networking.FROM_VOLUME)

    def test_deploy_with_a_long_config_drive(self):
        """It is sent completely before the response is read."""
        def make_drive(builder, path):
            with open(path, 'wb') as drive:
                drive.write(random.randbytes(LONG))

        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.configdrive.ConfigDriveBuilder.make_drive',
            make_drive))
        self.stop_in_build('PUT', PROVISION, faults.before,
                           config_drive=True)
        deploy, = self.wire.bodies('PUT', PROVISION)
        self.assertLess(60 * 2 ** 20, len(deploy['configdrive']))

    def test_each_late_write(self):
        """The server is reassigned before, during and after the lookup."""
        port, other_port = self.port(), self.port()
        server = self.boot(self.gold, host=FIRST, networks=[{'port': port}])
        instance = self.instance(server)
        host = self.computes[FIRST].manager.driver
        ctxt = context.get_admin_context()
        before = self.snapshot(server)
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
                    ctxt, instance, None, {'id': other_port}), GONE),
                ('DELETE', f'{VIFS}/.*', lambda: host.detach_interface(
                    ctxt, instance, {'id': port}), GONE),
                ('GET', CONSOLE, lambda: host.get_serial_console(
                    ctxt, instance), GONE),
                ('PUT', CONSOLE, lambda: host.get_vnc_console(
                    ctxt, instance), GONE)):
            for fault in (('GET', LOOKUP, faults.before),
                          ('GET', LOOKUP, faults.after),
                          (method, path, faults.before)):
                before = self.assert_refused(server, before, fault, do, error)

    def test_console_of_a_reassigned_server(self):
        """Its address is read from the node, after all requests."""
        server = self.boot(self.gold, host=FIRST)
        host = self.computes[FIRST].manager.driver
        instance = self.instance(server)
        ctxt = context.get_admin_context()
        self.assertTrue(host.get_vnc_console(ctxt, instance).port)
        self.assert_refused(
            server, self.snapshot(server),
            ('GET', '/v1/nodes/[^/]*', faults.before),
            lambda: host.get_vnc_console(ctxt, instance), GONE)

    def assert_refused(self, server, before, fault, do, error):
        """Check that a host that has lost a server does not change it.

        :param before: snapshot of the server; a new one is returned.
        """
        method, path, when = fault
        self.wire.on(method, path, when(lambda: self.assign(server)))
        with self.as_host(FIRST):
            self.assertRaises(error, do)
        self.wire.heal()
        now = self.snapshot(server)
        self.assertEqual(before, now, fault)
        self.assign(server, FIRST, SECOND)
        return now

    def snapshot(self, server):
        return self.traces(server), self.ironic.node_of(server).to_dict()


class TestFormerHost(TestCase):
    """A returning host receives requests that were queued before."""

    def setUp(self):
        super().setUp()
        self.port_id = self.port()
        self.server = self.boot(self.gold, host=FIRST,
                                networks=[{'port': self.port_id}])
        self.before = self.instance(self.server)
        self.take_down()
        self.assign(self.server)
        self.work()
        self.assert_on(SECOND, self.server)
        self.bring_back()
        self.wire.requests.clear()
        self.wire.headers.clear()

    def error(self, cast):
        """Return the exception that a cast raises, or None."""
        try:
            cast()
        except messaging.ExpectedException as e:
            return e.exc_info[1]
        except exception.NovaException as e:
            return e
        return None

    @base.smoke
    def test_writes_and_shows_nothing(self):
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
                self.assertIsInstance(self.error(cast),
                                      exception.InstanceNotFound)
            self.assertIsInstance(
                self.error(lambda: manager.detach_interface(
                    ctxt, self.before, self.port_id)),
                exception.InterfaceDetachFailed)
        self.assertEqual(set(), self.writes())
        self.assertEqual([], [path for _, path, _ in self.wire.requests
                              if path.endswith('/console')])
        # Nova has not unbound the port.
        self.assertEqual(self.server['id'], self.neutron.show_port(
            self.port_id)['port']['device_id'])
        # It does not terminate, reboot or stop the server either.
        bdms = objects.BlockDeviceMappingList.get_by_instance_uuid(
            ctxt, self.before.uuid)
        with self.as_host(FIRST):
            for cast in (
                    lambda: manager.terminate_instance(
                        ctxt, self.before, bdms),
                    lambda: manager.reboot_instance(
                        ctxt, self.before, None, 'HARD'),
                    lambda: manager.stop_instance(ctxt, self.before, True)):
                self.error(cast)
                self.assertEqual(set(), self.writes())
        self.assert_on(SECOND, self.server)
        self.assertEqual(self.server['id'], self.ironic.node_of(
            self.server).instance_id)
        self.assertFalse(self.instance(self.server).deleted)


class TestStoppedProcess(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.requests = 0
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.host_lease.os._exit',
            standbys.exit_process))
        self.lease = host_lease.HostLease(
            standbys.HOST, self, threading.Event())

    def acquire_host_lease(self, host, holder, ttl):
        """Replaces the method of the client of reservations."""
        self.requests += 1

    def get_host_lease_start(self, host):
        return 'then'

    def advance_clock(self, seconds):
        now = host_lease.now
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.host_lease.now',
            lambda: now() + seconds))

    def test_exits_without_a_request(self):
        """Up to a second early, because the database has whole seconds."""
        self.assertTrue(self.lease.renew())
        self.advance_clock(29.5)
        self.assertRaises(standbys.Exit, self.lease.renew)
        self.assertEqual(1, self.requests)

    def test_renews_until_the_lease_expires(self):
        self.assertTrue(self.lease.renew())
        self.advance_clock(28)
        self.assertTrue(self.lease.renew())


class TestDeadline(testtools.TestCase):
    """Runs each test in a separate process."""

    def run_process(self, code, before=''):
        """Run a process with a deadline in a second; return its result."""
        return subprocess.run(
            [sys.executable, '-c', 'import deadline, os, signal, sys, time\n'
             f'{before}\nit = deadline.Deadline()\n'
             'it.postpone(time.clock_gettime(time.CLOCK_BOOTTIME) + 1)\n'
             + code], cwd=os.path.dirname(fence.__file__), timeout=30,
            stderr=subprocess.PIPE, text=True)

    def test_stopped_process(self):
        self.assertEqual(-signal.SIGKILL, self.run_process(
            'os.kill(os.getpid(), signal.SIGSTOP)').returncode)

    def test_traced_process(self):
        """By ptrace(2), as with gdb; its parent does not resume it."""
        self.assertEqual(signal.SIGKILL, self.run_process(
            'deadline.ctypes.CDLL(None).ptrace(PTRACE_TRACEME, 0, 0, 0)\n'
            'os.kill(os.getpid(), signal.SIGSTOP)',
            'PTRACE_TRACEME = 0\nchild = os.fork()\nif child:\n'
            '    assert os.WIFSTOPPED(os.waitpid(child, 0)[1])\n'
            '    sys.exit(os.WTERMSIG(os.waitpid(child, 0)[1]))').returncode)

    def test_busy_process(self):
        self.assertEqual(-signal.SIGKILL,
                         self.run_process('while True: pass').returncode)

    def test_blocked_eventlet(self):
        """A call that does not yield stops the thread that postpones it."""
        self.assertEqual(-signal.SIGKILL, self.run_process(
            'threading.Thread(target=postpone, daemon=True).start()\n'
            'time.sleep(2)\nblock(10)',
            'block = time.sleep\nimport eventlet\neventlet.monkey_patch()\n'
            'import threading\ndef postpone():\n    while True:\n'
            '        it.postpone(time.clock_gettime(time.CLOCK_BOOTTIME) + 1)'
            '\n        time.sleep(0.1)').returncode)

    def test_postponed_deadline(self):
        self.assertEqual(0, self.run_process(
            'time.sleep(0.5); it.postpone(0); time.sleep(1)').returncode)

    def test_child_process(self):
        """Children, such as Nova's privileged daemon, are not killed."""
        self.assertEqual(0, self.run_process(
            'if not os.fork():\n    time.sleep(2)\n    os._exit(0)\n'
            'it.postpone(0)\nsys.exit(os.wait()[1])').returncode)

    def test_unsupported_kernel(self):
        """The process has no deadline, and logs that."""
        for reason in ('os.getpid = lambda: 1',
                       'deadline.ctypes.CDLL = lambda *_, **__: object()'):
            result = self.run_process('time.sleep(1.5)', reason)
            self.assertEqual(0, result.returncode)
            self.assertIn('The kernel cannot kill this process',
                          result.stderr)


class TestTwoProcesses(standbys.TestCase):

    fleet = [faults.NODE]

    def test_late_undeploy_meets_another_server(self):
        """The node was cleaned, and is in the same state again."""
        self.start()
        first = self.boot(self.gold)
        gate = self.gate()
        self.wire.on('PUT', PROVISION, faults.before(gate))
        self.delete(first, wait=False)
        gate.wait()
        self.silence_host()
        self.expire_host_lease()
        self.useFixture(base.separate_locks())
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

    def silence_host(self):
        service = self.silence(standbys.HOST)
        self.addCleanup(service.manager.driver.cleanup_host, standbys.HOST)

    @base.smoke
    def test_stopped_process_sends_no_request(self):
        self.start()
        self.take_over()
        self.wire.requests.clear()
        now = host_lease.now
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.host_lease.now',
            lambda: now() + 601))
        self.wait_for(lambda: self.assertIn(
            'exiting: it was stopped for 60', self.log))
        self.assertEqual([], [request for request in self.wire.requests
                              if request[:2] == standbys.ACQUIRE])

    def test_deadline_follows_the_host_lease(self):
        """It is the same if Ironic is unavailable, and removed at the end."""
        deadlines = []
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.deadline.Deadline',
            lambda: types.SimpleNamespace(postpone=deadlines.append)))
        driver = self.start()
        self.wait_for(lambda: self.assertEqual(2, len(deadlines)))
        latest = host_lease.now() + 600
        self.assertTrue(all(
            latest - 60 < deadline < latest for deadline in deadlines))
        driver.host_lease.give_up()
        self.wait_for(lambda: self.assertEqual(0, deadlines[-1]))
