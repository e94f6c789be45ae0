# SPDX-License-Identifier: Apache-2.0
"""A failed build leaves nothing on its node, whichever step fails.

A free node that carries anything of an instance is not held again.
"""

import threading

import fixtures
from nova import exception
import requests

from tests.nova import faults
from tests.nova import networking

HOST = 'compute-1'
VIFS = 'POST', '/v1/nodes/.*/vifs'
CONNECTOR = 'GET', '/v1/volume/connectors'
INSTANCE_INFO = 'PATCH', '/v1/nodes/[^/]*'
TARGET = 'POST', '/v1/volume/targets'
VALIDATE = 'GET', '/v1/nodes/.*/validate'
DEPLOY = 'PUT', '/v1/nodes/.*/states/provision'

#: Requests of a build until Ironic accepts the deployment.
STEPS = faults.RENEW, VIFS, CONNECTOR, INSTANCE_INFO, TARGET, VALIDATE, DEPLOY


def fail(*args, **kwargs):
    raise exception.CinderConnectionFailed(reason='fault')


def refuse(send, status=500, content=b'{}'):
    """Respond as an API without a working conductor does."""
    response = requests.Response()
    response.status_code = status
    response.headers['Content-Type'] = 'application/json'
    response._content = content
    return response


class TestCase(networking.Networks, faults.TestCase):
    """A node with two ports and a volume connector."""

    ironic_config = {'DEFAULT': {
        'enabled_deploy_interfaces': 'fake,custom-agent'}}
    fleet = [{**faults.NODE, 'network_interface': 'flat'}]

    def setUp(self):
        super().setUp()
        self.connect_volumes()
        # A failed build is not repeated.
        self.flags(group='scheduler', max_attempts=1)
        self.start_compute(HOST)
        self.gold = self.flavor()
        self.without_volume = {'image': self.plain_image,
                               'block_device_mapping_v2': []}
        [self.node] = self.ironic.nodes()

    def build(self, status='ERROR', ports=1, **server):
        """Build a server that has a volume, and ports."""
        return self.boot(
            self.gold, status,
            networks=[{'port': self.port()} for _ in range(ports)],
            **{**networking.FROM_VOLUME, **server})

    def assert_nothing_left(self):
        super().assert_nothing_left()
        self.assert_no_volume_targets()

    def assert_released(self, server):
        self.wait_for(self.assert_nothing_left)
        self.delete(server)
        self.wait_for_free_nodes()

    def assert_left(self):
        """Check that the node is still held, because it carries something."""
        self.assertEqual([self.node.id], [
            reservation['node_uuid']
            for reservation in self.ironic.reservations()])
        self.assertRaises(AssertionError, self.assert_nothing_left)

    def assert_cleaned_later(self, server):
        """Check that nothing is left when the server is deleted."""
        self.wire.heal()
        self.delete(server)
        self.run_periodic(task='_cleanup_running_deleted_instances')
        self.assert_nothing_left()


class TestSteps(TestCase):

    def test_requests_are_lost(self):
        for step in STEPS:
            # The client of reservations retries.
            self.wire.on(*step, faults.cut, times=1 + 20 * (
                step == faults.RENEW))
            self.disable_renewals()
            server = self.build()
            self.wire.heal()
            self.assert_released(server)
        self.assertEqual([], self.failed_builds(self.node))

    def disable_renewals(self):
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.client.Client.renew',
            lambda client, *args: client.renew_now(*args)))

    def test_responses_are_lost(self):
        for step in VIFS, INSTANCE_INFO, TARGET:
            self.wire.on(*step, faults.lose_response)
            self.assert_released(self.build())

    def test_refused_requests(self):
        """The node is the cause, unless it is about a volume."""
        for step, number in (TARGET, 0), (VIFS, 1), (VALIDATE, 1), (DEPLOY, 1):
            self.wire.on(*step, refuse)
            self.assert_released(self.build())
            self.assertEqual(number, len(self.failed_builds(self.node)), step)

    def test_deleted_by_the_user(self):
        """The fake deploy interface deletes no volume targets."""
        for step in faults.RENEW, VIFS, CONNECTOR, INSTANCE_INFO, VALIDATE:
            self.wire.on(*step, faults.before(self.delete_last_server))
            server = self.build(status=None, **(
                {} if step == CONNECTOR else self.without_volume))
            self._wait_until_deleted(server)
            self.wait_for(self.assert_nothing_left)
            self.wait_for_free_nodes()
        self.assertEqual([], self.failed_builds(self.node))

    def delete_last_server(self):
        self.api.delete_server(
            self.wire.bodies(*faults.HOLD)[-1]['instance_uuid'])

    def test_refused_image(self):
        """Nova refuses it because of the message of Ironic."""
        self.wire.on(*DEPLOY, lambda send: refuse(
            send, 400, b'{"error_message": "InvalidImage"}'))
        server = self.build()
        self.assertIn('aborted', server['fault']['message'])
        self.assert_released(server)
        self.assertEqual([], self.failed_builds(self.node))

    def test_too_few_ports(self):
        """Some VIFs are attached."""
        self.assert_released(self.build(ports=3))
        [reason] = self.failed_builds(self.node)
        self.assertIn('not enough free physical ports', reason)

    def test_volume_cannot_be_connected(self):
        with fixtures.MonkeyPatch('nova.volume.cinder.API.attachment_update',
                                  fail):
            self.assert_released(self.build())
        self.assertEqual([], self.failed_builds(self.node))

    def test_config_drive(self):
        self.flags(mkisofs_cmd='false')
        self.assert_released(self.build(config_drive=True))
        self.assertEqual([], self.failed_builds(self.node))

    def test_network_fails(self):
        """Ironic cannot update the port in Neutron."""
        self.network.neutron = None
        server = self.build()
        self.assertIn('Insufficient compute resources',
                      server['fault']['message'])
        self.assert_released(server)
        self.assertEqual(1, len(self.failed_builds(self.node)))

    def test_fault_cannot_be_recorded(self):
        """An API of an older version has no notices."""
        self.wire.on('POST', '/v1/reservations/notices', refuse)
        self.assert_released(self.build(ports=3))
        self.assertIn('Could not record the fault of node', self.log)

    def test_failed_validation(self):
        self.ironic.baremetal.update_node(
            self.node, deploy_interface='custom-agent', properties={
                **faults.NODE['properties'], 'root_device': {'no': 'hint'}})
        server = self.build()
        self.assertIn('failed to validate', self.log)
        self.assert_released(server)

    def test_nova_does_not_destroy_it(self):
        """Nova cannot reach Neutron when it cleans up."""
        self.wire.on(*DEPLOY, refuse)
        with fixtures.MonkeyPatch(
                'nova.network.neutron.API.get_instance_nw_info', fail):
            server = self.boot(self.gold, 'ERROR', **networking.FROM_VOLUME)
        self.assertIn('Could not clean up failed build', self.log)
        self.assert_released(server)

    def test_running_machine(self):
        """Ironic deletes volume targets only while the machine is off."""
        self.ironic.baremetal.set_node_power_state(self.node, 'power on')
        self.ironic.settle([self.node], power_state='power on')
        self.wire.on(*VALIDATE, refuse)
        self.assert_released(self.build())

    def test_slow_request(self):
        """The request for a VIF times out, but Ironic continues."""
        gate, update_port = self.gate(), self.neutron.update_port

        def wait_and_update(*args):
            gate()
            return update_port(*args)

        def time_out(send):
            self.neutron.update_port = wait_and_update
            threading.Thread(target=send, daemon=True).start()
            gate.wait()
            self.neutron.update_port = update_port
            threading.Timer(3, gate.open).start()
            raise requests.ReadTimeout('no response')

        self.wire.on(*VIFS, time_out)
        server = self.build()
        self.assertTrue(gate.is_reached())
        self.assert_released(server)


class TestCleaning(TestCase):
    """The node cannot be cleaned at first, and stays held."""

    def setUp(self):
        super().setUp()
        self.disable_retries()

    def test_volume_target(self):
        self.wire.on(*VALIDATE, refuse)
        self.wire.on('DELETE', '/v1/volume/targets/.*', refuse, times=99)
        server = self.build()
        self.assert_left()
        self.assert_cleaned_later(server)

    def test_reason_of_the_build_is_kept(self):
        """An error of the clean-up does not replace that of the build."""
        self.wire.on(*DEPLOY, refuse)
        self.wire.on('DELETE', '/v1/volume/targets/.*', refuse, times=99)
        server = self.build()
        self.assertIn('Failed to set provision state',
                      self.fault_of(server))
        self.assert_cleaned_later(server)

    def test_ironic_is_unavailable(self):
        for step in VIFS, TARGET:
            self.wire.on(*step, faults.after(
                lambda: self.wire.on('.*', '.*', faults.cut, times=999)))
            server = self.build()
            self.wire.heal()
            self.assert_left()
            self.assert_cleaned_later(server)
            self.wait_for_free_nodes()

    def test_earlier_build_of_this_host(self):
        """It has left its node with a VIF, for another request."""
        vif = self.port()

        def prepare():
            body = self.wire.bodies(*faults.HOLD)[-1]
            self.hold(instance_uuid=body['instance_uuid'], memory_mb=1,
                      host=HOST)
            self.ironic.baremetal.attach_vif_to_node(self.node, vif)
            self.ironic.baremetal.update_node(
                self.node, instance_info={'image_source': 'earlier'})

        self.wire.on(*faults.HOLD, faults.before(prepare))
        holds = []
        self.wire.on(*faults.HOLD, faults.before(
            lambda: holds.append(self.traces())))
        server = self.build('ACTIVE', **self.without_volume)
        self.assertEqual([([], {}, None)], holds)
        self.delete(server)
        self.assert_nothing_left()

    def traces(self):
        [node] = self.ironic.nodes()
        return (self.ironic.baremetal.list_node_vifs(node),
                node.instance_info, node.instance_id)
