# SPDX-License-Identifier: Apache-2.0
"""A node that cannot be deployed does not get every request.

Its flavors are smaller than all nodes, and it fits best.
"""

import json

from tests.nova import audits
from tests.nova import base
from tests.nova import faults
from tests.nova import networking

PROVISION = 'PUT', '/v1/nodes/.*/states/provision'
VALIDATE = 'GET', '/v1/nodes/.*/validate'
VIFS = 'POST', '/v1/nodes/.*/vifs'


def make_node(memory_mb):
    return {**faults.NODE, 'network_interface': 'flat', 'properties': {
        **faults.NODE['properties'], 'memory_mb': memory_mb}}


class TestBadNode(audits.Command, networking.Networks, faults.TestCase):
    """Ironic keeps no history; nobody repairs the node."""

    fleet = [make_node(memory_mb) for memory_mb in (1024, 2048, 2048)]
    ironic_config = {
        'DEFAULT': {'enabled_deploy_interfaces': 'fake,custom-agent'},
        'conductor': {'node_history': 'false'},
        'agent': {'manage_agent_boot': 'false'}}

    def setUp(self):
        super().setUp()
        [self.bad] = [node for node in self.ironic.nodes()
                      if node.properties['memory_mb'] == 1024]
        self.tiny = self.flavor(memory_mb=1)
        for host in base.HOSTS:
            self.start_compute(host)

    def change(self, **fields):
        self.ironic.baremetal.update_node(self.bad, **fields)

    def notices(self):
        """Return the notices of the node, as the command lists them."""
        return json.loads(self.command(
            'notice', 'list', '--long', '--node', self.bad.id).stdout)

    def check_boots(self, reason):
        """Boot three servers, one after the other, on the good nodes."""
        for _ in range(3):
            server = self.boot(self.tiny, networks=[{'port': self.port()}])
            self.assertEqual(
                2048, self.ironic.node_of(server).properties['memory_mb'])
            self.delete(server)
            self.wait_for_free_nodes()
        self.assertEqual(1, self.log.count(
            f'Node {self.bad.id} is reserved until'))
        [notice] = self.notices()
        self.assertEqual(
            ('fault', 'build', 'open', self.bad.id),
            tuple(notice[name] for name in (
                'Kind', 'Category', 'State', 'Node UUID')))
        self.assertIn(reason, notice['Description'])
        self.assertIsNotNone(notice['Ends At'])
        self.assert_nothing_left()

    def test_fails_validation(self):
        self.change(deploy_interface='custom-agent', properties={
            **self.bad.properties, 'root_device': {'no': 'hint'}})
        self.check_boots('deploy: ')

    def test_no_port(self):
        for port in self.ironic.baremetal.ports(node=self.bad.id):
            self.ironic.baremetal.delete_port(port)
        self.check_boots('not enough free physical ports')

    def test_no_conductor(self):
        self.addCleanup(self.set_conductor_group, '')
        self.set_conductor_group('nobody')
        self.check_boots('No conductor service registered')
        self.set_conductor_group('')
        # It is used again if no other node is left.
        servers = self.boot_many(3, self.tiny)
        self.assertIn(self.bad.id, {
            self.ironic.node_of(server).id for server in servers})

    def set_conductor_group(self, group):
        self.sql('UPDATE nodes SET conductor_group = :g WHERE uuid = :u',
                 g=group, u=self.bad.id)
