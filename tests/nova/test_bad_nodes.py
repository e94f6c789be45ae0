# SPDX-License-Identifier: Apache-2.0
"""A node that cannot be deployed does not get every request.

Its flavors are smaller than all nodes, and it fits best.
"""

import json

from neutronclient.common import exceptions as neutron_exc
from nova import context
from nova import objects
from nova.virt.ironic_reservations import node_faults

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
            **self.bad.properties, 'root_device': {'volume_name': 'raid1'}})
        self.check_boots('deploy: ')

    def test_no_port(self):
        for port in self.ironic.baremetal.ports(node=self.bad.id):
            self.ironic.baremetal.delete_port(port)
        self.check_boots('not enough free physical ports')

    def test_network(self):
        ports = list(self.ironic.baremetal.ports(details=True,
                                                 node=self.bad.id))
        for prepare in self.take_addresses, self.split_port_group:
            prepare(ports)
            server = self.boot(self.tiny, networks=[{'port': self.port()}])
            self.assertNotEqual(self.bad.id, self.ironic.node_of(server).id)
            [reason] = self.failed_builds(self.bad)
            self.assertRegex(reason, 'etwork|hysical')
            self.sql('DELETE FROM reservations_notices')
            self.delete(server)

    def take_addresses(self, ports):
        """An earlier build has left ports with the MAC addresses."""
        update_port = self.neutron.update_port

        def refuse(port, body):
            if body['port'].get('mac_address') in [
                    port.address for port in ports]:
                raise neutron_exc.MacAddressInUseClient()
            return update_port(port, body)

        self.neutron.update_port = refuse

    def split_port_group(self, ports):
        """The ports of a port group are on two physical networks."""
        network = self.neutron.network_1['id']
        self.neutron._networks[network]['provider:physical_network'] = 'p0'
        group = self.ironic.baremetal.create_port_group(node_id=self.bad.id)
        for number, port in enumerate(ports):
            self.sql('UPDATE ports SET physical_network = :n, portgroup_id = '
                     '(SELECT id FROM portgroups WHERE uuid = :g) '
                     'WHERE uuid = :u', n=f'p{number}', g=group.id, u=port.id)

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


class TestRequest(networking.Networks, faults.TestCase):
    """No node can satisfy the request: a server with three ports."""

    fleet = [make_node(1024)] * 11 + [make_node(65536)]
    ironic_config = {'reservations': {'avoid_failed_nodes': '3'}}

    def setUp(self):
        super().setUp()
        for host in base.HOSTS:
            self.start_compute(host)
        self.tiny = self.flavor(memory_mb=1)

    def fail(self):
        return self.boot(self.tiny, 'ERROR', networks=[
            {'port': self.port()} for _ in range(3)])

    def marked_nodes(self):
        return [node.id for node in self.ironic.nodes()
                if self.failed_builds(node)]

    def test_first_node_is_marked(self):
        self.fail()
        first, second, third = [
            body.get('avoid', []) for body in self.wire.bodies(*faults.HOLD)]
        self.assertEqual([[], third[:1], 2], [first, second, len({*third})])
        self.assertEqual(third[:1], self.marked_nodes())
        # Ironic's history has the errors, as releases before 39 show them.
        self.sql('UPDATE node_history SET state = NULL')
        small = self.boot(self.tiny)
        self.assertEqual(
            1024, self.ironic.node_of(small).properties['memory_mb'])
        self.assertNotIn('avoid', self.wire.bodies(*faults.HOLD)[-1])
        self.assertEqual(12, sum(
            row['healthy'] for row in self.ironic.http.get(
                '/v1/reservations/capacity?by=project_id').json()['capacity']))

    def test_servers_of_a_project(self):
        self.flags(group='scheduler', max_attempts=1)
        for _ in range(5):
            self.fail()
        self.assertEqual(3, len(self.marked_nodes()))


class TestBadNodes(networking.Networks, faults.TestCase):
    """Three bad nodes fit best."""

    fleet = [make_node(memory_mb) for memory_mb in (1024, 1024, 1024, 2048)]

    def test_attempts_of_a_server(self):
        for host in *base.HOSTS, 'compute-4':
            self.start_compute(host)
        nodes = self.ironic.nodes()
        for node in nodes:
            if node.properties['memory_mb'] == 1024:
                for port in self.ironic.baremetal.ports(node=node.id):
                    self.ironic.baremetal.delete_port(port)
        tiny = self.flavor(memory_mb=1)
        for attempts, failures, marks in (1, 3, 3), (3, 1, 2), (5, 0, 1):
            self.flags(group='scheduler', max_attempts=attempts)
            servers = [self.boot(tiny, status, networks=[
                {'port': self.port()}])
                for status in (*['ERROR'] * failures, 'ACTIVE')]
            self.assertEqual(marks, sum(
                len(self.failed_builds(node)) for node in nodes))
            self.assertEqual(2048, self.ironic.node_of(
                servers[-1]).properties['memory_mb'])
            self.assertEqual([], node_faults.list_nodes(
                objects.Instance.get_by_uuid(
                    context.get_admin_context(), servers[-1]['id'],
                    expected_attrs=['system_metadata'])))
            self.delete(*servers)
            self.sql('DELETE FROM reservations_notices')
            self.wait_for_free_nodes()
