# SPDX-License-Identifier: Apache-2.0
"""A server on three computes and a real Ironic."""

from tests.nova import base


class TestReservationsDriver(base.TestCase):
    fleet = [{'resource_class': 'gold',
              'properties': {'cpu_arch': 'x86_64'}}] * 3

    @base.smoke
    def test_boot_and_delete(self):
        providers = self.providers()
        self.assertEqual(set(base.HOSTS), set(providers))
        server = self.boot(self.flavor())
        host = server['OS-EXT-SRV-ATTR:host']
        self.assertEqual(
            host, server['OS-EXT-SRV-ATTR:hypervisor_hostname'])
        self.assertEqual({providers[host]: {'CUSTOM_GOLD': 1}},
                         self.allocations(server))
        self.restart_compute(host)
        self.assertEqual(providers, self.providers())
        node = self.ironic.node_of(server)
        self.assertEqual('active', node.provision_state)
        [reservation] = self.ironic.reservations()
        self.assertEqual((server['id'], node.id, host), tuple(
            reservation[key] for key in ('instance_uuid', 'node_uuid',
                                         'host')))
        # The check after the deletion fails before it.
        self.assertRaises(AssertionError, self.assert_nothing_left)
        self.delete(server)
        self.assert_nothing_left()
