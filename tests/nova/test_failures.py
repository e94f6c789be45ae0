# SPDX-License-Identifier: Apache-2.0
"""What becomes of a build when something goes wrong on its way."""

import itertools
import json
import re
import threading
import time
import urllib.parse
import uuid

import fixtures
from nova import context
from nova import exception
from nova import objects
from nova.tests.functional.api import client as api
import requests
import sqlalchemy as sa
import tenacity

from tests.nova import base
from tests.nova import networking

NODE = {'resource_class': 'gold', 'properties': {
    'memory_mb': 4096, 'cpus': 4, 'local_gb': 100, 'cpu_arch': 'x86_64'}}

HOLD = 'POST', '/v1/reservations'


class Wire(fixtures.Fixture):
    """The wire from Nova to Ironic, for faults on the way.

    Nova has an address of Ironic that nobody else uses.

    :ivar requests: what Nova has sent: method, path and body
    """

    def __init__(self, ironic):
        self.url = f'http://localhost:{ironic.port}'
        self.requests = []
        self._faults = []

    def _setUp(self):
        really_send = requests.adapters.HTTPAdapter.send

        def send(adapter, request, *args, **kwargs):
            def go_on():
                return really_send(adapter, request, *args, **kwargs)

            if not request.url.startswith(self.url):
                return go_on()
            return self._fault(request)(go_on)

        self.useFixture(fixtures.MonkeyPatch(
            'requests.adapters.HTTPAdapter.send', send))

    def _fault(self, request):
        path = urllib.parse.urlsplit(request.url).path
        body = json.loads(request.body or 'null')
        self.requests.append((request.method, path, body))
        for fault in self._faults:
            method, pattern, host, do, left = fault
            if (re.fullmatch(method, request.method)
                    and re.fullmatch(pattern, path)
                    and (host is None or body['host'] == host) and left):
                fault[-1] -= 1
                return do
        return lambda go_on: go_on()

    def on(self, method, path, do, host=None, times=1):
        """Let something happen to requests.

        :param method: a regular expression, as is the path
        :param do: called instead of sending a request, with a function
            that sends it
        :param host: only to requests whose body names this host
        :param times: to the next so many of them
        """
        self._faults.append([method, path, host, do, times])

    def heal(self):
        self._faults.clear()

    def sent(self, method, path):
        """The bodies of such requests up to now."""
        return [body for each, where, body in list(self.requests)
                if each == method and re.fullmatch(path, where)]


def cut(go_on):
    """It does not get there."""
    raise requests.ConnectionError('the wire is cut')


def lose_answer(go_on):
    go_on()
    cut(None)


def before(do):
    def faulty(go_on):
        do()
        return go_on()
    return faulty


def after(do):
    def faulty(go_on):
        response = go_on()
        do()
        return response
    return faulty


class Gate:
    """Requests wait before it until it is opened."""

    def __init__(self):
        self._reached, self._opened = threading.Event(), threading.Event()

    def __call__(self):
        self._reached.set()
        assert self._opened.wait(60)

    def wait(self):
        assert self._reached.wait(60)

    def open(self):
        self._opened.set()


def gated_cut(gate):
    def faulty(go_on):
        gate()
        cut(go_on)
    return faulty


class TestCase(base.TestCase):
    hosts = ()

    def setUp(self):
        super().setUp()
        self.wire = self.useFixture(Wire(self.ironic))
        self.database = sa.create_engine(self.ironic.database_url)
        self.addCleanup(self.database.dispose)

    def start_compute(self, host, ironic=None, **config):
        return super().start_compute(host, ironic={
            'endpoint_override': self.wire.url, **(ironic or {})}, **config)

    def sql(self, statement, **values):
        """Do to Ironic's database what nobody asks an API for."""
        with self.database.begin() as connection:
            connection.execute(sa.text(statement), values)

    def lapse(self, server_id):
        self.sql("UPDATE reservations SET expires_at = '2000-01-01 00:00:00' "
                 "WHERE instance_uuid = :i", i=server_id)

    def gate(self):
        gate = Gate()
        self.addCleanup(gate.open)
        return gate

    def hold(self, **body):
        """Hold a node, as some other client of Ironic."""
        response = self.ironic.http.post('/v1/reservations', json=body)
        response.raise_for_status()
        return response.json()

    def wait_for_free_nodes(self):
        """Until all hosts report again what was released."""
        def check():
            self.run_periodic()
            for host in self.computes:
                self.assertEqual(
                    0, self.inventories(host)['CUSTOM_GOLD']['reserved'])
        self.wait_for(check)

    def be_impatient(self):
        """Let the driver not try again."""
        for name in 'hold', 'get':
            self.useFixture(fixtures.MonkeyPatch(
                'nova.virt.ironic_reservations.client.Client.'
                f'{name}.retry.stop', tenacity.stop_after_attempt(1)))

    def unchecked_flavor(self, **extra_specs):
        # Nova itself checks flavors since 2.86.
        latest = self.api.microversion
        self.api.microversion = '2.85'
        flavor = self.flavor(**extra_specs)
        self.api.microversion = latest
        return flavor

    def fault_of(self, server):
        return self.wait_for_status(server, 'ERROR')['fault']['message']

    def assert_aborted(self, server, reason):
        """Not a second host was asked, and the user reads why."""
        self.assertEqual(
            f'Build of instance {server["id"]} aborted: Instance '
            f'{server["id"]} is unacceptable: {reason}',
            self.fault_of(server))


class TestHold(TestCase):
    fleet = [NODE] * 2

    def test_no_node_anywhere(self):
        for host in base.HOSTS:
            self.start_compute(host)
        server = self.boot(self.flavor(capabilities='gpu'), 'ERROR')
        self.assert_aborted(server, 'no free node matches capabilities:gpu')
        self.assertIn("'considered': 2, 'eliminated': [{'by': "
                      "'capabilities:gpu', 'nodes': 2}]", self.log)
        self.assertEqual(1, len(self.wire.sent(*HOLD)))
        self.delete(server)
        # What nobody can understand.
        for field, value, reason in (
                ('trait:CUSTOM_X', 'maybe', 'must be required or forbidden'),
                ('capabilities:ram', '>= x', 'must be a value or an '
                 'expression such as ">= 4", "<in> word" or "<or> a <or> b", '
                 'not ">= x"')):
            self.wire.requests.clear()
            server = self.boot(self.unchecked_flavor(**{field: value}),
                               'ERROR')
            self.assert_aborted(server, f'extra_specs.{field}: {reason}')
            self.assertEqual(1, len(self.wire.sent(*HOLD)))
            self.delete(server)
        self.assert_nothing_left()

    @base.long
    def test_locked(self):
        for host in base.HOSTS[:2]:
            self.start_compute(host)
        flavor = self.flavor()

        def locked(by):
            self.sql('UPDATE nodes SET reservation = :by', by=by)

        locked('conductor')
        server = self.boot(flavor, None)
        # Until a conductor lets go.
        self.wait_for(lambda: self.assertLess(1, len(self.wire.sent(*HOLD))))
        locked(None)
        server = self.wait_for_status(server, 'ACTIVE')
        self.assertEqual([server['OS-EXT-SRV-ATTR:host']] * 3, [
            body['host'] for body in self.wire.sent(*HOLD)][:3])
        self.delete(server)
        # None does.
        self.be_impatient()
        self.wire.requests.clear()
        locked('conductor')
        server = self.boot(flavor, 'ERROR')
        self.assertIn('Exhausted all hosts', server['fault']['message'])
        self.assertEqual(set(base.HOSTS[:2]), {
            body['host'] for body in self.wire.sent(*HOLD)})
        locked(None)
        self.delete(server)
        self.assert_nothing_left()

    @base.long
    def test_other_shards(self):
        self.ironic.remove(self.ironic.nodes())
        fast = {**NODE, 'properties': {**NODE['properties'],
                                       'capabilities': 'fast:true'}}
        large = {**NODE, 'properties': {**NODE['properties'],
                                        'memory_mb': 65536}}
        # Nova tries the host with the most memory first.
        self.enrol({**large, 'shard': 'a'}, {**fast, 'shard': 'b'})
        for host, shard in ('compute-1', 'a'), ('compute-2', 'b'):
            self.start_compute(host, ironic={'shard': shard})
        server = self.boot(self.flavor(capabilities='fast'))
        self.assertEqual('compute-2', server['OS-EXT-SRV-ATTR:host'])
        self.assertEqual(['compute-1', 'compute-2'], [
            body['host'] for body in self.wire.sent(*HOLD)][:2])
        self.delete(server)
        self.assert_nothing_left()

    @base.long
    def test_unreachable(self):
        for host in base.HOSTS[:2]:
            self.start_compute(host)
        flavor = self.flavor()

        def rename(old, new):
            return before(lambda: self.sql(
                f'ALTER TABLE {old} RENAME TO {new}'))

        # It is back within the patience of one host.
        self.wire.on(*HOLD, cut)
        self.wire.on(*HOLD, lose_answer)
        self.wire.on(*HOLD, rename('reservations', 'hidden'))
        self.wire.on(*HOLD, rename('hidden', 'reservations'))
        server = self.boot(flavor)
        [held] = self.ironic.reservations()
        self.assertEqual(server['id'], held['instance_uuid'])
        self.assertEqual({(server['id'], held['host'])}, {
            (body['instance_uuid'], body['host'])
            for body in self.wire.sent(*HOLD)})
        self.delete(server)
        # It is not, but the next host can reach it.
        self.be_impatient()
        self.wait_for_free_nodes()
        self.wire.requests.clear()
        self.wire.on(*HOLD, cut)
        server = self.boot(flavor)
        first, *_, last = self.wire.sent(*HOLD)
        self.assertNotEqual(first['host'], last['host'])
        self.assertEqual(last['host'], server['OS-EXT-SRV-ATTR:host'])
        self.delete(server)
        # None can.
        self.wait_for_free_nodes()
        self.wire.on('.*', '.*', cut, times=999)
        server = self.boot(flavor, 'ERROR')
        self.wire.heal()
        self.assertIn('Exhausted all hosts', server['fault']['message'])
        self.assertIn('node reservation service did not serve', self.log)
        self.assertEqual({}, self.allocations(server))
        self.assert_nothing_left()
        self.delete(server)

    @base.long
    def test_unreachable_at_cleanup(self):
        self.be_impatient()
        self.start_compute('compute-1')
        self.wire.on(*HOLD, after(
            lambda: self.wire.on('.*', '.*', cut, times=999)))
        server = self.boot(self.flavor(), 'ERROR')
        self.wire.heal()
        [held] = self.ironic.reservations()
        self.assertEqual(server['id'], held['instance_uuid'])
        self.delete(server)
        # Before its lease ends.
        self.run_periodic(task='_cleanup_running_deleted_instances')
        self.assert_nothing_left()

    @base.long
    def test_conflict(self):
        self.be_impatient()
        for host in base.HOSTS[:2]:
            self.start_compute(host)
        flavor = self.flavor()

        def hold(host):
            body = self.wire.sent(*HOLD)[-1]
            held.append(self.hold(
                instance_uuid=body['instance_uuid'], memory_mb=1,
                host=host or body['host']))

        # An earlier build of this host has left a hold.
        held = []
        self.wire.on(*HOLD, before(lambda: hold(None)))
        server = self.boot(flavor)
        [now] = self.ironic.reservations()
        self.assertEqual((server['id'], held[0]['host']),
                         (now['instance_uuid'], now['host']))
        self.assertNotEqual(held[0]['request_spec'], now['request_spec'])
        self.delete(server)
        # Another host holds one for it.
        self.wire.on(*HOLD, before(lambda: hold('another')))
        server = self.boot(flavor, 'ERROR')
        self.assertIn('Exhausted all hosts', server['fault']['message'])
        self.assertIn('another reservation of this instance', self.log)
        [now] = self.ironic.reservations()
        self.assertEqual(held[1], now)
        self.delete(server)
        self.ironic.http.delete(f'/v1/reservations/{server["id"]}')
        self.assert_nothing_left()


class TestLease(TestCase):
    fleet = [NODE] * 2

    @base.long
    def test_renewals(self):
        self.start_compute('compute-1')
        slow, renewal = self.gate(), self.gate()
        self.wire.on('PATCH', '/v1/nodes/.*', gated_cut(slow))
        server = self.boot(self.flavor(), None)
        slow.wait()
        # The build goes on, and so does its lease.
        self.sql("UPDATE reservations SET expires_at = "
                 "datetime('now', '+60 seconds')")
        [short] = self.ironic.reservations()
        self.run_periodic()
        [renewed] = self.ironic.reservations()
        self.assertGreater(renewed['expires_at'], short['expires_at'])
        self.assertEqual(short['node_uuid'], renewed['node_uuid'])
        # It fails while it is renewed again: what is released stays so.
        self.wire.on(*HOLD, before(renewal))
        periodic = threading.Thread(target=self.run_periodic)
        periodic.start()
        renewal.wait()
        slow.open()
        # Long enough for all that must not be done meanwhile.
        time.sleep(1)
        renewal.open()
        periodic.join()
        self.wait_for_status(server, 'ERROR')
        self.run_periodic()
        self.assert_nothing_left()
        self.delete(server)
        # Nor is anything renewed after a server was deployed or deleted.
        server = self.boot(self.flavor())
        self.wire.requests.clear()
        self.run_periodic()
        self.delete(server)
        self.run_periodic()
        self.assertEqual([], self.wire.sent(*HOLD))
        self.assert_nothing_left()


class TestService(TestCase):
    fleet = [NODE]

    def test_identity(self):
        for host in base.HOSTS[:2]:
            self.start_compute(host)
        for host in base.HOSTS[:2]:
            self.stop_compute(host)
        ours, others = [self._compute_ids[host] for host in base.HOSTS[:2]]
        for wrong, message in (
                (others, f'compute_id {others} is of host compute-2'),
                (str(uuid.uuid4()), f'has the compute_id {ours} in the')):
            self._compute_ids['compute-1'] = wrong
            refused = self.assertRaises(
                exception.InvalidConfiguration,
                self.start_compute, 'compute-1')
            self.assertIn(message, str(refused))
        self._compute_ids['compute-1'] = ours
        self.start_compute('compute-1')
        self.assertEqual({'compute-1', 'compute-2'}, set(self.providers()))

    @base.long
    def test_started_before_ironic(self):
        self.start_compute('compute-1')
        self.stop_compute('compute-1')
        self.wire.on('.*', '.*', cut, times=999)
        self.start_compute('compute-1')
        self.run_periodic()
        self.wire.heal()
        self.run_periodic()
        server = self.boot(self.flavor())
        self.delete(server)
        self.assert_nothing_left()

    @base.long
    def test_deleted_while_down(self):
        self.start_compute('compute-1')
        server = self.boot(self.flavor())
        self.stop_compute('compute-1')
        service = self.api.get_services(binary='nova-compute')[0]['id']
        self.api.put_service_force_down(service, True)
        self.delete(server)
        self.assertEqual('active',
                         self.ironic.node_of(server).provision_state)
        self.api.put_service_force_down(service, False)
        self.start_compute('compute-1')
        self.run_periodic(task='_cleanup_running_deleted_instances')
        self.assert_nothing_left()


    @base.long
    def test_row_is_lost(self):
        """Nova does not forget a server whose node runs on unreserved."""
        self.start_compute('compute-1')
        server = self.boot(self.flavor())
        node = self.ironic.node_of(server)
        self.sql('DELETE FROM reservations')
        self.delete(server, wait=False)
        self.wait_for_status(server, 'ERROR')
        self.assertIn('is not reserved', self.fault_of(server))
        self.assertEqual('active',
                         self.ironic.node_of(server).provision_state)
        self.ironic.baremetal.set_node_provision_state(node, 'deleted')
        self.ironic.settle([node], provision_state='available')
        self.delete(server)
        self.assert_nothing_left()


class Killed(BaseException):
    """Ends a thread without any of the cleaning up that follows an error."""


class TestNode(TestCase):
    """With networks, and deployments that take long or fail."""

    fleet = [{**NODE, 'network_interface': 'flat'}]
    addresses = (f'52:54:00:00:00:{n:02}' for n in itertools.count())

    @classmethod
    def setUpClass(cls):
        cls.network = cls.enterClassContext(networking.neutron())
        cls.ironic_config = cls.network.ironic_options
        cls.ironic_config['DEFAULT']['enabled_deploy_interfaces'] = (
            # Waits for an agent, which does not come.
            'fake,custom-agent')
        cls.ironic_config['conductor'] = {
            'deploy_callback_timeout': 2, 'check_provision_state_interval': 1}
        cls.ironic_config['agent'] = {'manage_agent_boot': 'false'}
        super().setUpClass()

    def setUp(self):
        super().setUp()
        self.network.neutron = self.neutron
        [self.node] = self.ironic.nodes()
        self.add_port(self.node)

    def add_port(self, node):
        self.ironic.baremetal.create_port(
            node_id=node.id, address=next(self.addresses))

    def change(self, **fields):
        self.ironic.baremetal.update_node(self.node, **fields)

    def boot_with_port(self, status='ACTIVE', **server):
        return self.boot(self.flavor(), status,
                         networks=[{'port': self.port()}], **server)

    @base.long
    def test_deploy_fails(self):
        self.start_compute('compute-1')
        root_device = {**NODE['properties'], 'root_device': {'no': 'hint'}}
        on_deploy = 'PUT', '.*/states/provision'
        for prepare, log in (
                # Ironic says beforehand that it would.
                (lambda: self.change(deploy_interface='custom-agent',
                                     network_interface='noop',
                                     properties=root_device),
                 'failed to validate'),
                # It does so in the end.
                (lambda: self.change(properties=NODE['properties']),
                 'Failed to provision instance'),
                # Somebody undoes it.
                (lambda: self.wire.on('GET', '/v1/nodes',
                                      before(self.undeploy)),
                 'was taken away'),
                # Ironic refuses.
                (lambda: self.wire.on(*on_deploy, before(
                    lambda: self.ironic.baremetal.set_node_maintenance(
                        self.node))),
                 'in maintenance mode')):
            prepare()
            server = self.boot_with_port('ERROR')
            self.assertIn('Exhausted all hosts', server['fault']['message'])
            self.assertIn(log, self.log)
            self.ironic.baremetal.unset_node_maintenance(self.node)
            self.assert_free(server)
            self.delete(server)
            self.wait_for_free_nodes()

    def undeploy(self):
        self.wait_for(lambda: self.assertIn(
            self.ironic.nodes()[0].provision_state,
            ('wait call-back', 'deploy failed')))
        self.ironic.baremetal.set_node_provision_state(self.node, 'deleted')
        self.ironic.settle([self.node], provision_state='available')

    def assert_free(self, server):
        """Ironic's node is as it was, and Placement knows."""
        self.assertEqual({}, self.allocations(server))
        self.assert_nothing_left()
        self.ironic.settle([self.node], provision_state='available',
                           last_error=None)

    @base.long
    def test_lapsed(self):
        self.start_compute('compute-1')
        for node in self.enrol(*self.fleet):
            self.add_port(node)
        taken = {}

        def traces(node_uuid):
            baremetal = self.ironic.baremetal
            return [baremetal.get_node(node_uuid).to_dict(),
                    baremetal.list_node_vifs(node_uuid)]

        def take():
            """Somebody else gets the node, and begins with it."""
            server_id = self.wire.sent(*HOLD)[-1]['instance_uuid']
            [node] = [each['node_uuid'] for each in self.ironic.reservations()
                      if each['instance_uuid'] == server_id]
            self.lapse(server_id)
            self.hold(candidate_nodes=[node])
            self.ironic.baremetal.update_node(
                node, instance_info={'of': 'somebody else'})
            self.ironic.baremetal.attach_vif_to_node(node, self.port())
            taken[node] = traces(node)

        # Before VIFs are attached, while another node is free; then before
        # it is deployed, when none is.
        self.wire.on(*HOLD, after(take))
        servers = [self.boot_with_port('ERROR')]
        self.wire.on(*HOLD, after(lambda: None))
        self.wire.on(*HOLD, after(take))
        servers.append(self.boot(self.flavor(), 'ERROR'))
        for server in servers:
            self.assert_aborted(server,
                                'the reservation of its node has ended')
            self.assertEqual({}, self.allocations(server))
            self.delete(server)
        self.assertEqual(taken, {
            each['node_uuid']: traces(each['node_uuid'])
            for each in self.ironic.reservations()})
        self.assertEqual(set(), {
            method for method, path, _ in self.wire.requests
            if path.startswith('/v1/nodes')} - {'GET', 'DELETE'})

    # nova-compute is killed

    def kill_at(self, method, path, do):
        """Kill the compute when Ironic has answered to what is done.

        :param do: a function; its result is returned
        """
        done = threading.Event()

        def kill(go_on):
            go_on()
            done.set()
            raise Killed

        self.useFixture(fixtures.MonkeyPatch(
            'nova.compute.claims.Claim.abort', lambda claim: None))
        self.wire.on(method, path, kill)
        result = do()
        assert done.wait(60)
        service = self.computes.pop('compute-1')
        for name in 'rpcserver', 'rpcserver_alt':
            if hasattr(service, name):
                getattr(service, name).stop()
        return result

    def assert_interrupted(self, server):
        # Nova itself writes no fault then.
        self.wait_for(lambda: self.assertEqual(('ERROR', None), tuple(
            self.api.get_server(server['id'])[key]
            for key in ('status', 'OS-EXT-STS:task_state'))))

    def test_killed_when_held(self):
        self.start_compute('compute-1')
        server = self.kill_at(*HOLD, lambda: self.boot_with_port(None))
        self.start_compute('compute-1')
        self.assert_interrupted(server)
        [held] = self.ironic.reservations()
        self.assertEqual((server['id'], 'compute-1', 'reserved'), tuple(
            held[key] for key in ('instance_uuid', 'host', 'state')))
        # Once the lease has ended, the node is anybody's.
        self.run_periodic()
        self.lapse(server['id'])
        self.assertEqual([], self.ironic.reservations())
        other = self.hold(candidate_nodes=[self.node.id])
        self.delete(server)
        self.assertEqual([other], self.ironic.reservations())
        self.ironic.http.delete(f'/v1/reservations/{other["instance_uuid"]}')
        self.assert_free(server)

    @base.long
    def test_killed_when_begun(self):
        self.start_compute('compute-1')
        for method, path, fields, states in (
                ('POST', '.*/vifs', {}, ['reserved']),
                ('PATCH', '/v1/nodes/.*', {}, ['reserved']),
                ('PUT', '.*/states/provision', {}, ['active']),
                # While it is deployed, which fails after a while.
                ('PUT', '.*/states/provision', {
                    'deploy_interface': 'custom-agent',
                    'network_interface': 'noop'}, ['deploying', 'error'])):
            self.change(**fields)
            server = self.kill_at(method, path,
                                  lambda: self.boot_with_port(None))
            # A node that something has begun on does not go to others.
            self.lapse(server['id'])
            self.start_compute('compute-1')
            self.assert_interrupted(server)
            # Nova asks no second time for a node that is locked.
            self.ironic.settle([self.node])
            [held] = self.ironic.reservations()
            self.assertIn(held['state'], states)
            self.delete(server)
            self.assert_free(server)
            self.wait_for_free_nodes()

    @base.long
    def test_killed_when_deleting(self):
        self.start_compute('compute-1')
        server = self.boot_with_port()
        slow, update_port = self.gate(), self.neutron.update_port

        def gated_update(*args):
            slow()
            return update_port(*args)

        self.neutron.update_port = gated_update
        self.kill_at('PUT', '.*/states/provision',
                     lambda: self.delete(server, wait=False))
        # It starts while Ironic still tears the node down.
        slow.wait()
        [held] = self.ironic.reservations()
        self.assertEqual('releasing', held['state'])
        threading.Timer(2, slow.open).start()
        self.start_compute('compute-1')
        self.wait_for(lambda: self.assertRaises(
            api.OpenStackApiNotFoundException,
            self.api.get_server, server['id']))
        self.assert_free(server)

    # Another host has gone on with an instance

    def traces(self):
        """Everything of the node that a host may have left there."""
        baremetal = self.ironic.baremetal
        return [each.to_dict() for found in (
            baremetal.nodes(details=True), baremetal.ports(details=True),
            baremetal.volume_targets(details=True)) for each in found
        ] + self.ironic.reservations()

    def test_late_cleanup(self):
        for host in base.HOSTS[:2]:
            self.start_compute(host)
        slow, seen = self.gate(), []
        self.wire.on('PATCH', '/v1/nodes/.*', gated_cut(slow))
        server = self.boot_with_port(None)
        slow.wait()
        [held] = self.ironic.reservations()
        first = held['host']
        [second] = set(base.HOSTS[:2]) - {first}
        self.change(instance_info={'begun': 'by the second'})
        self.ironic.baremetal.create_volume_target(
            node_id=self.node.id, volume_type='iscsi', properties={},
            boot_index=0, volume_id=str(uuid.uuid4()))
        self.hold(**{**self.wire.sent(*HOLD)[0], 'host': second})
        traces = self.traces()
        # The first fails, cleans up, and Nova tries the second.
        self.wire.on(*HOLD, before(lambda: seen.append(self.traces())),
                     host=second)
        slow.open()
        server = self.wait_for_status(server, 'ACTIVE')
        self.assertEqual(second, server['OS-EXT-SRV-ATTR:host'])
        self.assertEqual([traces], seen)
        # When it is deployed, the same, and whatever Nova may call.
        traces = self.traces()
        driver = self.computes[first].manager.driver
        ctxt = context.get_admin_context()
        with context.target_cell(ctxt, self.cell_mappings['cell1']) as ctxt:
            instance = objects.Instance.get_by_uuid(ctxt, server['id'])
            instance.host = instance.node = first
            vifs = instance.get_network_info()
            driver.clean_networks_preparation(instance, vifs)
            driver.failed_spawn_cleanup(instance)
            driver.unplug_vifs(instance, vifs)
            driver.destroy(ctxt, instance, vifs)
        self.assertEqual(traces, self.traces())
        self.delete(server)
        self.assert_free(server)
