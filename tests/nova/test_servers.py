# SPDX-License-Identifier: Apache-2.0
"""Servers on a cloud of three hosts, from request to deletion."""

import collections

from tests.nova import base


class TestServers(base.TestCase):
    fleet = [{'resource_class': 'gold', 'properties': {
        'memory_mb': 4096, 'cpus': 4, 'local_gb': 100,
        'cpu_arch': 'x86_64'}}] * 12

    def test_one_row_per_host(self):
        self.assertEqual(set(base.HOSTS), set(self.providers()))
        for host in base.HOSTS:
            self.assertEqual({'CUSTOM_GOLD': {
                'total': 12, 'reserved': 0, 'min_unit': 1, 'max_unit': 1,
                'step_size': 1, 'allocation_ratio': 1.0}},
                self.inventories(host))

    def test_boot_and_delete(self):
        server = self.boot(self.flavor())
        host = server['OS-EXT-SRV-ATTR:host']
        self.assertEqual(
            host, server['OS-EXT-SRV-ATTR:hypervisor_hostname'])
        node = self.ironic.node_of(server)
        self.assertEqual('active', node.provision_state)
        [reservation] = self.ironic.reservations()
        self.assertEqual((server['id'], node.id, host, 'active'), tuple(
            reservation[key] for key in ('instance_uuid', 'node_uuid', 'host',
                                         'state')))
        self.assertEqual({self.providers()[host]: {'CUSTOM_GOLD': 1}},
                         self.allocations(server))
        self.delete(server)
        self.assert_nothing_left()

    def test_sixteen_at_once_on_twelve_nodes(self):
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
        for each in servers:
            self.delete(each)
        self.assert_nothing_left()
        self.run_periodic()
        for host in base.HOSTS:
            self.assertEqual(0,
                             self.inventories(host)['CUSTOM_GOLD']['reserved'])
