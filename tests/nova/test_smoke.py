# SPDX-License-Identifier: Apache-2.0
"""The harness itself, with Nova's own driver."""

from tests.nova import base


class TestStockDriver(base.TestCase):
    compute_driver = base.STOCK
    plugin = False
    fleet = [{'resource_class': 'gold'}] * 3

    def test_server_comes_and_goes(self):
        # The first host saw the nodes alone: now they are spread.
        self.run_periodic()
        self.assertEqual({node.id for node in self.ironic.nodes()},
                         set(self.providers()))
        server = self.boot(self.flavor())
        node = self.ironic.node_of(server)
        self.assertEqual('active', node.provision_state)
        self.assertEqual({node.id: {'CUSTOM_GOLD': 1}},
                         self.allocations(server))
        self.assertIn(server['OS-EXT-SRV-ATTR:host'], base.HOSTS)
        self.delete(server)
        self.assert_nothing_left()
