# SPDX-License-Identifier: Apache-2.0
"""Hosts for a part of the fleet: ``[ironic] conductor_group`` and ``shard``.

Both can be changed by Ironic's API, also on nodes with instances.
"""

import contextlib
import sqlite3
from urllib import parse

from nova import exception
from nova import utils

from tests.nova import base
from tests.nova.helpers import compute_nodes
from tests.nova.helpers import hash_ring
from tools import services

GROUP = 'rack-7'


def make_node(trait, **fields):
    return {'resource_class': 'gold', 'traits': [trait], 'properties': {
        'memory_mb': 4096, 'cpus': 4, 'local_gb': 100}, **fields}


def add_conductor(ironic, group):
    """Add a conductor to this group, so that nodes can be added.

    It is a second row of the existing conductor.
    """
    path = parse.urlsplit(ironic.database_url).path
    with contextlib.closing(sqlite3.connect(path, timeout=30)) as db, db:
        row = db.execute(
            'INSERT INTO conductors (hostname, conductor_group, drivers, '
            'online, updated_at) SELECT ?, ?, drivers, online, updated_at '
            'FROM conductors', ('127.0.0.1', group))
        columns = 'hardware_type, interface_type, interface_name, "default"'
        db.execute(
            f'INSERT INTO conductor_hardware_interfaces (conductor_id, '
            f'{columns}) SELECT ?, {columns} '
            f'FROM conductor_hardware_interfaces', (row.lastrowid,))


class TestPartition(base.TestCase):
    hosts = ()

    @classmethod
    def setUpClass(cls):
        cls.ironic_config = {
            # Two conductors need an RPC that addresses them by name.
            'DEFAULT': {'host': 'localhost', 'rpc_transport': 'json-rpc'},
            'json_rpc': {'auth_strategy': 'noauth', 'host_ip': '127.0.0.1',
                         'port': services.free_port()},
            'reservations': {'capacity_ttl': 0},
        }
        super().setUpClass()
        add_conductor(cls.ironic, GROUP)

    def assert_reports(self, host, nodes, traits, reserved=0):
        """Check that the host reports this number of equal nodes."""
        if nodes:
            [(name, inventory)] = self.inventories(host).items()
            self.assertEqual(('CUSTOM_GOLD', nodes, reserved), (
                name, inventory['total'], inventory['reserved']))
        else:
            self.assertEqual({}, self.inventories(host))
        self.assertEqual(traits, {
            trait for trait in self.traits(host)
            if trait.startswith('CUSTOM_')})
        # Later versions of the API do not show these columns.
        with utils.temporary_mutation(self.api, microversion='2.87'):
            [row] = [row for row in self.api.api_get(
                '/os-hypervisors/detail').body['hypervisors']
                if row['hypervisor_hostname'] == host]
        self.assertEqual(
            (nodes * 4096, nodes * 4, nodes * 100),
            (row['memory_mb'], row['vcpus'], row['local_gb']))

    def check_hosts(self, option, ours, theirs, config):
        """Test two hosts for a part of the fleet, and one for all of it."""
        self.enrol(make_node('CUSTOM_OURS', **{option: ours}),
                   make_node('CUSTOM_OURS', **{option: ours}),
                   make_node('CUSTOM_THEIRS', **{option: theirs}))
        for host in 'compute-1', 'compute-2':
            self.start_compute(host, ironic={option: config})
        self.start_compute('compute-3')
        self.assertEqual({host: host for host in base.HOSTS}, compute_nodes())
        for host in 'compute-1', 'compute-2':
            self.assert_reports(host, 2, {'CUSTOM_OURS'})
        self.assert_reports('compute-3', 3, {'CUSTOM_OURS', 'CUSTOM_THEIRS'})
        flavor = self.flavor()
        for host in 'compute-1', 'compute-2':
            server = self.boot(flavor, host=host)
            self.assertEqual(['CUSTOM_OURS'],
                             self.ironic.node_of(server).traits)
            [reservation] = self.ironic.reservations(host=host)
            self.assertEqual(server['id'], reservation['instance_uuid'])
            self.assertEqual(ours,
                             reservation['request_spec'][option].lower())
        # The host does not know the other's server yet, but Ironic does.
        self.boot(flavor, host='compute-1', status='ERROR')
        self.run_periodic()
        for host in 'compute-1', 'compute-2':
            self.assert_reports(host, 2, {'CUSTOM_OURS'}, reserved=1)
        self.boot(flavor)
        self.assertEqual(1, len(self.ironic.reservations(host='compute-3')))

    def check_moves(self, option, ours, theirs):
        """Test nodes that change from one host's part to another's."""
        self.enrol(*[make_node('CUSTOM_OURS', **{option: ours})] * 2)
        self.start_compute('compute-1', ironic={option: ours})
        self.start_compute('compute-2', ironic={option: theirs})
        flavor = self.flavor()
        server = self.boot(flavor)
        self.assertEqual('compute-1', server['OS-EXT-SRV-ATTR:host'])
        self.assert_reports('compute-1', 2, {'CUSTOM_OURS'})
        self.assert_reports('compute-2', 0, set())
        for node in self.ironic.nodes():
            self.ironic.baremetal.update_node(node, **{option: theirs})
        self.run_periodic()
        self.assert_reports('compute-1', 1, {'CUSTOM_OURS'})
        self.assert_reports('compute-2', 2, {'CUSTOM_OURS'}, reserved=1)
        # Each host can use its nodes.
        self.act(server, 'os-stop', 'SHUTOFF')
        self.assertEqual('power off',
                         self.ironic.node_of(server).power_state)
        self.act(server, 'os-start', 'ACTIVE')
        other = self.boot(flavor)
        self.assertEqual('compute-2', other['OS-EXT-SRV-ATTR:host'])
        self.delete(server)
        # The first round checks that the class has no allocations, the next
        # one removes it. The node may take a moment to become available.
        self.wait_for(self._check_moved)
        self.delete(other)
        self.assert_nothing_left()

    def _check_moved(self):
        self.run_periodic()
        self.assert_reports('compute-1', 0, set())
        self.assert_reports('compute-2', 2, {'CUSTOM_OURS'})

    def test_shard(self):
        self.check_hosts('shard', 'a', 'b', config='a')

    def test_node_changes_its_shard(self):
        self.check_moves('shard', 'a', 'b')

    def test_conductor_group(self):
        # Without a peer_list.
        self.check_hosts('conductor_group', GROUP, '', config='Rack-7')

    def test_node_changes_its_conductor_group(self):
        self.check_moves('conductor_group', '', GROUP)

    def test_default_conductor_group_is_not_all(self):
        self.enrol(make_node('CUSTOM_GROUP', conductor_group=GROUP),
                   make_node('CUSTOM_DEFAULT'))
        self.start_compute('compute-1', ironic={'conductor_group': ''})
        self.assert_reports('compute-1', 1, {'CUSTOM_DEFAULT'})
        self.start_compute('compute-2', ironic={'conductor_group': None})
        self.assert_reports('compute-2', 2,
                            {'CUSTOM_DEFAULT', 'CUSTOM_GROUP'})
        self.start_compute('compute-3', ironic={
            'conductor_group': GROUP, 'shard': 'a'})
        self.assert_reports('compute-3', 0, set())

    def test_row_per_node(self):
        self.flags(group='reservations', mode='per_node')
        group = self.enrol(
            *[make_node('CUSTOM_GROUP', conductor_group=GROUP)] * 4)
        shard = self.enrol(*[make_node('CUSTOM_SHARD', shard='a')] * 2)
        peers = 'compute-1', 'compute-2'
        for host in peers:
            self.start_compute(host, ironic={
                'conductor_group': GROUP, 'peer_list': peers})
        self.start_compute('compute-3', ironic={'shard': 'a'})
        self.assertRaises(
            exception.InvalidPeerList, self.start_compute, 'compute-4',
            ironic={'conductor_group': GROUP, 'peer_list': peers})
        for _ in range(2):
            self.run_periodic()
        rows = {**hash_ring(group, *peers), **hash_ring(shard, 'compute-3')}
        self.assertEqual(rows, compute_nodes())
        self.assertIn('Host compute-1 has a compute node per node, which is '
                      'deprecated. To migrate', self.log)
        flavor = self.flavor()
        for server in [self.boot(flavor, host=host)
                       for host in set(rows.values())]:
            name = server['OS-EXT-SRV-ATTR:hypervisor_hostname']
            self.assertEqual(self.ironic.node_of(server).id, name)
            self.assertEqual(server['OS-EXT-SRV-ATTR:host'],
                             compute_nodes()[name])
            self.delete(server)
        self.assert_nothing_left()
