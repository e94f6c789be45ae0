# SPDX-License-Identifier: Apache-2.0
"""Servers on a cloud of three hosts, from request to deletion."""

import collections

from tests.nova import base


class TestServers(base.TestCase):
    fleet = [{'resource_class': 'gold', 'properties': {
        'memory_mb': 4096, 'cpus': 4, 'local_gb': 100,
        'cpu_arch': 'x86_64'}}] * 12

    def assert_reported(self, reserved):
        """Each host is one row, which has all nodes."""
        self.assertEqual(set(base.HOSTS), set(self.providers()))
        for host in base.HOSTS:
            self.assertEqual({'CUSTOM_GOLD': {
                'total': 12, 'reserved': reserved, 'min_unit': 1,
                'max_unit': 1, 'step_size': 1, 'allocation_ratio': 1.0}},
                self.inventories(host))

    def test_sixteen_at_once_on_twelve_nodes(self):
        self.assert_reported(reserved=0)
        flavor = self.flavor()
        servers = [self.boot(flavor, status=None) for _ in range(16)]
        self.wait_for(lambda: self.assertEqual(
            {'ACTIVE': 12, 'ERROR': 4}, collections.Counter(
                self.api.get_server(each['id'])['status']
                for each in servers)), timeout=120)
        found = [self.api.get_server(each['id']) for each in servers]
        active = {each['id'] for each in found if each['status'] == 'ACTIVE'}
        held = {each['instance_uuid']: each['node_uuid']
                for each in self.ironic.reservations()}
        self.assertEqual(active, set(held))
        self.assertEqual(12, len(set(held.values())))
        for each in found:
            if each['id'] in active:
                self.assertEqual(
                    {self.providers()[each['OS-EXT-SRV-ATTR:host']]:
                     {'CUSTOM_GOLD': 1}}, self.allocations(each))
            else:
                self.assertEqual({}, self.allocations(each))
                self.assertRegex(
                    each['fault']['message'],
                    r'no matching node is free \(reserved\)|No valid host')
        self.delete(*servers)
        self.assert_nothing_left()
        # The count of an answer may be a second older than it says: what was
        # released in this second is offered one periodic task later.
        self.wait_for(lambda: (self.run_periodic(),
                               self.assert_reported(reserved=0)))
