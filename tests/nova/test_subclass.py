# SPDX-License-Identifier: Apache-2.0
"""The driver on top of an operator's subclass of Nova's driver."""

import base64
import gzip

import fixtures
from nova.virt.ironic import driver as ironic_driver
import nova.virt.ironic_reservations as ours

from tests.nova import base
from tests.nova import faults
from tests.nova import networking


class Theirs(ironic_driver.IronicDriver):

    spawned = []

    def __init__(self, virtapi, read_only=False):
        super().__init__(virtapi, read_only)
        self.ironic = self.ironic_connection

    def spawn(self, context, instance, *args, **kwargs):
        # As Nova's driver, it reads the node of the instance and its own
        # connection.
        for ironic, uuid in (
                (self.ironic_connection, instance.node),
                (self.ironic, instance['node'])):
            node = ironic.get_node(uuid)
            self.spawned.append((instance.uuid, node.name))
        super().spawn(context, instance, *args, **kwargs)

    def _get_network_metadata(self, node, network_info):
        metadata = super()._get_network_metadata(node, network_info)
        return {**metadata, 'services': [f'storage of {node.name}']}


class Ours(ours.ReservationsMixin, Theirs):
    pass


class TestSubclass(faults.TestCase):

    compute_driver = 'ironic_reservations.Ours'
    fleet = [{**faults.NODE, 'name': 'one'}]

    def setUp(self):
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.Ours', Ours))
        self.addCleanup(Theirs.spawned.clear)
        super().setUp()

    @base.smoke
    def test_their_methods(self):
        self.flags(mkisofs_cmd=networking.MKISOFS)
        self.start_compute(base.HOSTS[0])
        server = self.boot(self.flavor(), config_drive=True,
                           networks=[{'port': self.port()}])
        self.assertEqual([(server['id'], 'one')] * 2, Theirs.spawned)
        [deployment] = self.wire.bodies('PUT', '.*/states/provision')
        self.assertIn(b'storage of one', gzip.decompress(
            base64.b64decode(deployment['configdrive'])))
        # The rest is as with our driver.
        self.assertEqual([base.HOSTS[0]], list(self.providers()))
        [reservation] = self.ironic.reservations()
        self.assertEqual((server['id'], base.HOSTS[0]), (
            reservation['instance_uuid'], reservation['host']))
        self.delete(server)
        self.assert_nothing_left()
