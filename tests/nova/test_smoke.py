# SPDX-License-Identifier: Apache-2.0
"""Three computes, a real Ironic, and a server that comes and goes."""

from tests.nova import base


class TestReservationsDriver(base.TestCase):
    fleet = [{'resource_class': 'gold',
              'properties': {'cpu_arch': 'x86_64'}}] * 3

    @base.smoke
    def test_server_comes_and_goes(self):
        rows = self.providers()
        self.assertEqual(set(base.HOSTS), set(rows))
        server = self.boot(self.flavor())
        host = server['OS-EXT-SRV-ATTR:host']
        self.assertEqual(
            host, server['OS-EXT-SRV-ATTR:hypervisor_hostname'])
        self.assertEqual({rows[host]: {'CUSTOM_GOLD': 1}},
                         self.allocations(server))
        self.restart_compute(host)
        self.assertEqual(rows, self.providers())
        node = self.ironic.node_of(server)
        self.assertEqual('active', node.provision_state)
        self.assertEqual(
            [(server['id'], node.id, host)],
            [(each['instance_uuid'], each['node_uuid'], each['host'])
             for each in self.ironic.reservations()])
        # The host has its server still.
        self.assertRaises(AssertionError, self.assert_nothing_left)
        self.delete(server)
        self.assert_nothing_left()
