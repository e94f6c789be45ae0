# SPDX-License-Identifier: Apache-2.0
"""Nodes whose build or host fails."""

import itertools
import threading
import uuid

import fixtures
from nova import context
from nova import exception
from nova import objects
from nova.tests.functional.api import client as api
from nova.virt.ironic_reservations import restart

from tests.nova import base
from tests.nova import faults
from tests.nova import networking


class Killed(BaseException):
    """Ends a thread without the clean-up that follows an error."""


def kill_thread(*_):
    raise Killed


class TestNode(networking.Networks, faults.TestCase):
    """Nodes have networks; deployments take long or fail."""

    fleet = [{**faults.NODE, 'network_interface': 'flat'}]
    ironic_config = {
        # custom-agent waits for an agent that never responds.
        'DEFAULT': {'enabled_deploy_interfaces': 'fake,custom-agent'},
        'conductor': {'deploy_callback_timeout': 2,
                      'check_provision_state_interval': 1},
        'agent': {'manage_agent_boot': 'false'}}

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.restart.GRACE', 0))
        [self.node] = self.ironic.nodes()

    def change(self, **fields):
        self.ironic.baremetal.update_node(self.node, **fields)

    def boot_with_port(self, status='ACTIVE', **server):
        return self.boot(self.flavor(), status,
                         networks=[{'port': self.port()}], **server)

    def test_deploy_fails(self):
        self.start_compute('compute-1')
        root_device = {**faults.NODE['properties'],
                       'root_device': {'no': 'hint'}}
        on_deploy = 'PUT', '.*/states/provision'
        for prepare, log in (
                # Its validation fails.
                (lambda: self.change(deploy_interface='custom-agent',
                                     network_interface='noop',
                                     properties=root_device),
                 'failed to validate'),
                # The deployment fails.
                (lambda: self.change(properties=faults.NODE['properties']),
                 'Failed to provision instance'),
                # The node is undeployed.
                (lambda: self.wire.on('GET', '/v1/nodes',
                                      faults.before(self.undeploy)),
                 'was taken away'),
                # Ironic refuses the deployment.
                (lambda: self.wire.on(*on_deploy, faults.before(
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
        """Check that the node is free, also in Placement."""
        self.assertEqual({}, self.allocations(server))
        self.assert_nothing_left()
        self.ironic.settle([self.node], provision_state='available',
                           last_error=None)

    def test_lease_expires(self):
        self.start_compute('compute-1')
        self.add_ports(self.enrol(*self.fleet))
        snapshots = {}

        def snapshot(node_uuid):
            baremetal = self.ironic.baremetal
            return [baremetal.get_node(node_uuid).to_dict(),
                    baremetal.list_node_vifs(node_uuid)]

        def take():
            """Another client holds the node, and prepares it."""
            server_id = self.wire.bodies(*faults.HOLD)[-1]['instance_uuid']
            [node] = [reservation['node_uuid']
                      for reservation in self.ironic.reservations()
                      if reservation['instance_uuid'] == server_id]
            self.expire(server_id)
            self.hold(candidate_nodes=[node])
            self.ironic.baremetal.update_node(
                node, instance_info={'owner': 'another client'})
            self.ironic.baremetal.attach_vif_to_node(node, self.port())
            snapshots[node] = snapshot(node)

        # First before VIFs are attached, while another node is free; then
        # before the deployment, while none is.
        self.wire.on(*faults.HOLD, faults.after(take))
        servers = [self.boot_with_port('ERROR')]
        self.wire.on(*faults.RENEW, faults.after(take))
        servers.append(self.boot(self.flavor(), 'ERROR'))
        for server in servers:
            self.assert_aborted(server,
                                'its node is no longer reserved for it')
            self.assertEqual({}, self.allocations(server))
            self.delete(server)
        self.assertEqual(snapshots, {
            reservation['node_uuid']: snapshot(reservation['node_uuid'])
            for reservation in self.ironic.reservations()})
        self.assertEqual(set(), {
            method for method, path, _ in self.wire.requests
            if path.startswith('/v1/nodes')} - {'GET', 'DELETE'})

    # nova-compute is killed

    def kill_at(self, method, path, do):
        """Kill the compute after a request of an operation.

        :param do: starts the operation; its result is returned
        """
        death = threading.Event()

        def kill(send):
            send()
            death.set()
            raise Killed

        self.useFixture(fixtures.MonkeyPatch(
            'nova.compute.claims.Claim.abort', lambda claim: None))
        self.wire.on(method, path, kill)
        result = do()
        assert death.wait(60)
        self.silence('compute-1')
        return result

    def assert_interrupted(self, server, status='ERROR'):
        """Check the status of an interrupted build.

        :param status: expected status with release 34; before that Nova sets
            all interrupted builds to ERROR.
        """
        def check():
            self.work()
            now = self.api.get_server(server['id'])
            self.assertEqual(
                (status if restart.SUPPORTED else 'ERROR', None),
                (now['status'], now['OS-EXT-STS:task_state']))

        self.wait_for(check)

    def test_killed_after_the_hold(self):
        self.start_compute('compute-1')
        server = self.kill_at(*faults.HOLD, lambda: self.boot_with_port(None))
        [reservation] = self.ironic.reservations()
        self.assertEqual((server['id'], 'compute-1', 'reserved'), tuple(
            reservation[key] for key in ('instance_uuid', 'host', 'state')))
        # When the lease has expired, the node is available to others.
        self.expire(server['id'])
        self.assertEqual([], self.ironic.reservations())
        other = self.hold(candidate_nodes=[self.node.id])
        self.start_compute('compute-1')
        self.assert_interrupted(server)
        self.run_periodic()
        self.delete(server)
        self.assertEqual([other], self.ironic.reservations())
        self.ironic.http.delete(f'/v1/reservations/{other["instance_uuid"]}')
        self.assert_free(server)

    def test_killed_after_the_start(self):
        self.start_compute('compute-1')
        for method, path, fields, states, status in (
                ('POST', '.*/vifs', {}, ['reserved'], 'ERROR'),
                ('PATCH', '/v1/nodes/.*', {}, ['reserved'], 'ERROR'),
                ('PUT', '.*/states/provision', {}, ['active'], 'ACTIVE'),
                # The deployment fails after the restart.
                ('PUT', '.*/states/provision', {
                    'deploy_interface': 'custom-agent',
                    'network_interface': 'noop'}, ['deploying', 'error'],
                 'ERROR')):
            self.change(**fields)
            server = self.kill_at(method, path,
                                  lambda: self.boot_with_port(None))
            # A touched node is not available to others.
            self.expire(server['id'])
            self.start_compute('compute-1')
            self.assert_interrupted(server, status)
            # Nova does not retry if a node is locked.
            self.ironic.settle([self.node])
            if not restart.SUPPORTED:
                [reservation] = self.ironic.reservations()
                self.assertIn(reservation['state'], states)
            self.delete(server)
            self.assert_free(server)
            self.wait_for_free_nodes()

    def test_killed_during_a_deletion(self):
        self.start_compute('compute-1')
        server = self.boot_with_port()
        gate, update_port = self.gate(), self.neutron.update_port

        def wait_and_update(*args):
            gate()
            return update_port(*args)

        self.neutron.update_port = wait_and_update
        self.kill_at('PUT', '.*/states/provision',
                     lambda: self.delete(server, wait=False))
        # The host restarts while Ironic still tears the node down.
        gate.wait()
        [reservation] = self.ironic.reservations()
        self.assertEqual('releasing', reservation['state'])
        threading.Timer(2, gate.open).start()
        self.start_compute('compute-1')
        self.wait_for(lambda: (self.work(), self.assertRaises(
            api.OpenStackApiNotFoundException,
            self.api.get_server, server['id'])))
        self.assert_free(server)

    # Another host has continued with an instance

    def traces(self):
        """Return everything that a host may have written about the node."""
        baremetal = self.ironic.baremetal
        return [resource.to_dict() for resource in itertools.chain(
            baremetal.nodes(details=True), baremetal.ports(details=True),
            baremetal.volume_targets(details=True))
        ] + self.ironic.reservations()

    def test_late_cleanup(self):
        for host in base.HOSTS[:2]:
            self.start_compute(host)
        gate, snapshots = self.gate(), []
        self.wire.on('PATCH', '/v1/nodes/.*', faults.cut_after(gate))
        server = self.boot_with_port(None)
        gate.wait()
        [reservation] = self.ironic.reservations()
        first = reservation['host']
        [second] = set(base.HOSTS[:2]) - {first}
        self.change(instance_info={'owner': 'the second'})
        self.ironic.baremetal.create_volume_target(
            node_id=self.node.id, volume_type='iscsi', properties={},
            boot_index=0, volume_id=str(uuid.uuid4()))
        self.hold(**{**self.wire.bodies(*faults.HOLD)[0], 'host': second})
        traces = self.traces()
        # The first fails and cleans up, and Nova tries the second.
        self.wire.on(*faults.HOLD, faults.before(
            lambda: snapshots.append(self.traces())), host=second)
        gate.open()
        server = self.wait_for_status(server, 'ACTIVE')
        self.assertEqual(second, server['OS-EXT-SRV-ATTR:host'])
        self.assertEqual([traces], snapshots)
        # The first does not change a deployed node, either, by any clean-up of
        # Nova.
        traces = self.traces()
        driver = self.computes[first].manager.driver
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.host_lease.wait_for_process_end',
            kill_thread))
        ctxt = context.get_admin_context()
        with context.target_cell(ctxt, self.cell_mappings['cell1']) as ctxt:
            instance = objects.Instance.get_by_uuid(ctxt, server['id'])
            instance.host = instance.node = first
            vifs = instance.get_network_info()
            # Nova would unbind the ports after any of these.
            for clean_up in (
                    lambda: driver.clean_networks_preparation(instance, vifs),
                    lambda: driver.failed_spawn_cleanup(instance),
                    lambda: driver.unplug_vifs(instance, vifs)):
                self.assertRaises(Killed, clean_up)
            # After this error Nova also keeps its ports.
            self.assertRaises(exception.InstancePowerOffFailure,
                              driver.destroy, ctxt, instance, vifs)
        self.assertEqual(traces, self.traces())
        self.delete(server)
        self.assert_free(server)
