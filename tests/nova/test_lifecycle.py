# SPDX-License-Identifier: Apache-2.0
"""All operations on a server, from boot to deletion."""

import json
import urllib.parse
import uuid

import fixtures
from nova import exception
from openstack.baremetal.v1 import _proxy as openstack_baremetal

import tests.nova
from tests.nova import base
from tests.nova import faults
from tests.nova import networking


class TestRequests(base.TestCase):
    """The flavor and the image determine the node."""

    hosts = base.HOSTS[:2]
    fleet = [
        {'name': name, 'resource_class': 'gold', 'traits': traits,
         'properties': {'memory_mb': 1024, 'local_gb': 5, 'cpu_arch': cpu_arch,
                        'capabilities': capabilities}}
        for name, cpu_arch, capabilities, traits in (
            ('new', 'x86_64', 'gpu:a100,boot_mode:uefi', ['CUSTOM_FAST']),
            ('old', 'x86_64', 'gpu:v100,boot_mode:bios',
             ['CUSTOM_FAST', 'CUSTOM_OLD']),
            ('ssd', 'x86_64', '', ['CUSTOM_SSD']),
            ('arm', 'aarch64', '', []),
            ('any', None, '', []))]

    # Later versions refuse capabilities of Ironic's nodes in flavors.
    microversion = '2.85'

    def test_matching_node(self):
        servers = {
            'new': self.request(
                {'trait:CUSTOM_FAST': 'required',
                 'reservations:trait:CUSTOM_OLD': 'forbidden'}, {}),
            'old': self.request(
                {'capabilities:gpu': '<or> v100 <or> k80'},
                {'hw_firmware_type': 'bios'}),
            'ssd': self.request(
                {}, {'trait:CUSTOM_SSD': 'required',
                     'trait:CUSTOM_FAST': 'forbidden'}, host='compute-2'),
            'arm': self.request({}, {'hw_architecture': 'aarch64'})}
        self.assertEqual({name: name for name in servers}, {
            name: self.ironic.node_of(self.wait_for_status(
                server, 'ACTIVE')).name for name, server in servers.items()})
        server = self.wait_for_status(
            self.request({'capabilities:gpu': 's== h100'}, {}), 'ERROR')
        self.assertIn('no free node matches capabilities:gpu s== h100',
                      server['fault']['message'])

    def request(self, extra_specs, properties, host='compute-1'):
        return self.boot(self.flavor(**extra_specs), status=None, host=host,
                         image=self.image(**properties))

    @base.smoke
    def test_request_spec(self):
        flavor = self.api.post_flavor({'flavor': {
            'id': None, 'name': 'large', 'ram': 2048, 'vcpus': 4, 'disk': 20,
            'OS-FLV-EXT-DATA:ephemeral': 10, 'swap': 512,
            'rxtx_factor': 2.0}})['id']
        extra_specs = {'resources:CUSTOM_GOLD': '1', 'resources:VCPU': '0',
                       'resources:MEMORY_MB': '0', 'resources:DISK_GB': '0',
                       'capabilities:gpu': 'a100', 'hw:cpu_policy': 'shared'}
        self.api.post_extra_spec(flavor, {'extra_specs': extra_specs})
        properties = {'hw_architecture': 'amd64', 'os_distro': 'debian',
                      'trait:CUSTOM_FAST': 'required'}
        image = self.image(min_ram=1024, min_disk=5, **properties)
        server = self.boot(flavor, image=image, host='compute-1')
        [reservation] = self.ironic.reservations()
        self.assertEqual(
            {'memory_mb': 2048, 'vcpus': 4, 'root_gb': 20,
             'ephemeral_gb': 10, 'swap': 512, 'rxtx_factor': 2.0,
             'vcpu_weight': 0, 'name': 'large', 'flavorid': flavor,
             'extra_specs': extra_specs,
             'image': {'id': image, 'min_ram': 1024, 'properties': {
                 **properties, 'hw_architecture': 'x86_64',
                 'base_image_ref': image}}},
            reservation['request_spec'])
        self.assertEqual(
            (server['id'], server['OS-EXT-SRV-ATTR:host'],
             server['tenant_id'], server['user_id']),
            tuple(reservation[key] for key in (
                'instance_uuid', 'host', 'project_id', 'user_id')))
        # With a flavor without a disk, the image determines its size.
        other = self.boot(self.flavor(disk=0), image=image, host='compute-2')
        [reservation] = self.ironic.reservations(
            node=self.ironic.node_of(other).id)
        spec = reservation['request_spec']
        self.assertEqual((0, 5), (spec['root_gb'], spec['image']['min_disk']))
        self._check_lists([server, other])

    def _check_lists(self, servers):
        for host in self.hosts:
            driver = self.computes[host].manager.driver
            [server] = [
                server for server in servers
                if server['OS-EXT-SRV-ATTR:host'] == host]
            self.assertEqual([server['id']], driver.list_instance_uuids())
            self.assertEqual([server['OS-EXT-SRV-ATTR:instance_name']],
                             driver.list_instances())
            self.assertEqual(1, driver.get_num_instances())


class TestHardware(networking.Hardware):
    """The UUIDs of the nodes have no dashes."""

    fleet = [{**node, 'id': uuid.uuid4().hex}
             for node in networking.Hardware.fleet]

    def setUp(self):
        super().setUp()
        self.start_compute('compute-1')

    def assert_header(self, server):
        """Check that writes and requests for consoles name the server."""
        expected = f'instance={server["id"]}; host=compute-1'
        for method, path, header in self.wire.headers:
            if path.startswith(('/v1/nodes/', '/v1/volume/')) and (
                    method != 'GET' or path.endswith('/console')):
                value, _, node = (header or '').partition('; node=')
                self.assertEqual(expected, value, f'{method} {path}')
                self.assertEqual('/volume/' in path, bool(node))
        self.assertNotIn('does not check which host holds', self.log)

    # Power, rescue, consoles

    def test_power_rescue_and_consoles(self):
        server = self.boot(self.flavor())
        self._power(server)
        self._rescue(server)
        if tests.nova.NOVA >= 33:
            # Earlier drivers of Nova have no graphical console, and decide
            # by their own options about the serial one.
            self._vnc_console(server)
            self._serial_console(server)
        self.api.post_server_action(server['id'],
                                    {'trigger_crash_dump': None})
        self.wait_for(lambda: self.assertEqual(1, len(self.wire.bodies(
            'PUT', '.*/management/inject_nmi'))))
        self.assert_header(server)

    def power_state(self, server):
        return self.ironic.node_of(server).power_state

    def _power(self, server):
        self.act(server, 'reboot', 'ACTIVE', type='HARD')
        self.assertEqual('power on', self.power_state(server))
        self.act(server, 'os-stop', 'SHUTOFF')
        self.assertEqual('power off', self.power_state(server))
        self.act(server, 'os-start', 'ACTIVE')
        self.assertEqual('power on', self.power_state(server))
        self.act(server, 'reboot', 'ACTIVE', type='SOFT')
        self.assertIn('Successfully rebooted(type SOFT)', self.log)
        # Behind Nova's back.
        node = self.ironic.node_of(server)
        self.ironic.baremetal.set_node_power_state(node, 'power off')
        self.ironic.settle([node], power_state='power off')
        self.run_periodic(task='_sync_power_states')
        self.wait_for_status(server, 'SHUTOFF')
        # Ironic can be configured to notify Nova like this.
        self.ironic.baremetal.set_node_power_state(node, 'power on')
        self.ironic.settle([node], power_state='power on')
        self.api.create_server_external_events([{
            'name': 'power-update', 'server_uuid': server['id'],
            'tag': 'POWER_ON'}])
        self.wait_for_status(server, 'ACTIVE')

    def _rescue(self, server):
        def states():
            [reservation] = self.ironic.reservations()
            return (self.ironic.node_of(server).provision_state,
                    reservation['state'])

        self.act(server, 'rescue', 'RESCUE')
        self.assertEqual(('rescue', 'active'), states())
        self.act(server, 'unrescue', 'ACTIVE')
        self.assertEqual(('active', 'active'), states())

    def console(self, server, **console):
        """Return the console to which Nova's proxy would connect."""
        url = self.api.api_post(
            f'/servers/{server["id"]}/remote-consoles',
            {'remote_console': console}).body['remote_console']['url']
        token = urllib.parse.unquote(url).rpartition('token=')[2]
        return self.api.api_get(
            f'/os-console-auth-tokens/{token}').body['console']

    def _vnc_console(self, server):
        console = self.console(server, protocol='vnc', type='novnc')
        node = self.ironic.node_of(server)
        self.assertTrue(node.is_console_enabled)
        self.assertEqual(node.driver_internal_info['vnc_host'],
                         console['host'])
        self.assertEqual(node.driver_internal_info['vnc_port'],
                         console['port'])

    def _serial_console(self, server):
        # In Ironic only IPMI has a serial console.
        node = self.ironic.node_of(server)
        get_node_console = openstack_baremetal.Proxy.get_node_console

        def get_serial_console(proxy, node_id):
            console = get_node_console(proxy, node_id)
            if node_id == node.id and console['console_enabled']:
                console['console_info'] = {'type': 'socat',
                                           'url': 'tcp://192.0.2.2:1234'}
            return console

        self.flags(group='serial_console', enabled=True)
        with fixtures.MonkeyPatch(
                'openstack.baremetal.v1._proxy.Proxy.get_node_console',
                get_serial_console):
            console = self.console(server, protocol='serial', type='serial')
        self.assertEqual(('192.0.2.2', 1234),
                         (console['host'], console['port']))

    # Networks, config drive, volumes

    def vifs(self, server):
        """Return the VIFs on the server's node in Ironic."""
        return set(self.ironic.baremetal.list_node_vifs(
            self.ironic.node_of(server)))

    def test_interfaces_and_config_drive(self):
        self.flags(mkisofs_cmd=networking.MKISOFS)
        first, second = self.port(), self.port()
        server = self.boot(self.flavor(), config_drive=True,
                           networks=[{'port': first}])
        self.assertIn('configdrive',
                      self.ironic.node_of(server).instance_info)
        self.assertEqual({first}, self.vifs(server))
        self._attach_interface(server, second)
        self.assertEqual({first, second}, self.vifs(server))
        self._detach_interface(server, second)
        self.assertEqual({first}, self.vifs(server))
        # The port is deleted in Neutron.
        self.api.create_server_external_events([{
            'name': 'network-vif-deleted', 'server_uuid': server['id'],
            'tag': first}])
        self.wait_for(lambda: self.assertEqual(set(), self.vifs(server)))
        self.delete(server)
        self.assert_header(server)
        self.assert_nothing_left()

    def test_volumes_and_shelving(self):
        self.connect_volumes()
        self.flags(mkisofs_cmd=networking.MKISOFS)
        port = self.port()
        server = self.boot(
            self.flavor(disk=1000), config_drive=True,
            networks=[{'port': port}], **networking.FROM_VOLUME)
        self._check_volume(server)
        [reservation] = self.ironic.reservations()
        self.assertEqual(0, reservation['request_spec']['root_gb'])
        # A build would refuse the first key, and ignore the second one.
        self.api.api_post(f'/servers/{server["id"]}/metadata', {'metadata': {
            'reservations:candidate_nodes': 'x', 'reservations:nodes': 'x'}})
        self._shelve(server)
        self._fail_to_unshelve(server)
        node_id = self._fail_to_connect(server)
        self.act(server, 'unshelve', 'ACTIVE')
        self.assertNotIn('unknown metadata', self.log)
        self.assertEqual(node_id, self.ironic.node_of(server).id)
        self._check_volume(server)
        self.assertEqual({port}, self.vifs(server))
        # Nova's own driver cannot rebuild it either.
        self.act(server, 'rebuild', 'ERROR', imageRef=self.plain_image)
        self.assertEqual('active', self.ironic.node_of(server).provision_state)
        self.delete(server)
        self.assert_header(server)
        self.assert_nothing_left()

    def test_unshelve_with_a_pool(self):
        """The server gets a machine of the pool instead of its former one."""
        self.connect_volumes()
        small, large = self.ironic.nodes()
        for node, memory_mb in (small, 2048), (large, 4096):
            self.ironic.baremetal.update_node(
                node, properties={'memory_mb': memory_mb})
        server = self.boot(self.flavor(disk=1000), **networking.FROM_VOLUME)
        self.assertEqual(small.id, self.ironic.node_of(server).id)
        self._shelve(server)
        self.create_pool(large.id)
        self.wait_for_free_nodes()
        self.act(server, 'unshelve', 'ACTIVE')
        self.assertEqual(large.id, self.ironic.node_of(server).id)

    def _check_volume(self, server):
        """Check that the volume is connected to the server's node."""
        node = self.ironic.node_of(server)
        [target] = self.ironic.baremetal.volume_targets(details=True)
        self.assertEqual((node.id, networking.VOLUME, 0), (
            target.node_id, target.volume_id, target.boot_index))
        [attachment] = self.cinder.volume_to_attachment[
            networking.VOLUME].values()
        self.assertEqual(f'iqn.2026-01:{node.id}',
                         attachment['connector']['initiator'])

    def _shelve(self, server):
        self.act(server, 'shelve', 'SHELVED_OFFLOADED')
        self._delete_targets()
        self.assert_nothing_left()

    def _delete_targets(self):
        # The fake deploy interface does not do it in a tear-down.
        for target in self.ironic.baremetal.volume_targets():
            self.ironic.baremetal.delete_volume_target(target)

    def _fail_to_unshelve(self, server):
        # Ironic reads the config drive in the middle of the deployment.
        self.flags(mkisofs_cmd='true')
        self.act(server, 'unshelve', 'SHELVED_OFFLOADED')
        self.assertIn('Failed to prepare the configdrive', self.log)
        self._delete_targets()
        self.assert_nothing_left()
        self.flags(mkisofs_cmd=networking.MKISOFS)
        # Released nodes are offered after the next count.
        self.wait_for(lambda: (self.run_periodic(), self.assertEqual(
            0, self.inventories('compute-1')['CUSTOM_GOLD']['reserved'])))

    def _fail_to_connect(self, server):
        def fail(*args, **kwargs):
            raise exception.CinderConnectionFailed(reason='fault')

        with fixtures.MonkeyPatch(
                'nova.volume.cinder.API.attachment_update', fail):
            self.act(server, 'unshelve', 'SHELVED_OFFLOADED')
        # Nova does not call the driver: the lease expires, unless the next
        # attempt uses the reservation.
        [reservation] = self.ironic.reservations()
        self.assertEqual('reserved', reservation['state'])
        self.assertIsNotNone(reservation['expires_at'])
        return reservation['node_uuid']


class TestRebuild(base.TestCase):
    hosts = base.HOSTS[:1]
    fleet = [{'name': trait, 'resource_class': 'gold',
              'traits': [f'CUSTOM_{trait}']} for trait in ('RED', 'BLUE')]

    @base.smoke
    def test_rebuild(self):
        server = self.boot(self.flavor(**{'trait:CUSTOM_RED': 'required'}))
        node = self.ironic.node_of(server)
        self.assertEqual('RED', node.name)
        image = self.image()
        self.rebuild(server, image, preserve_ephemeral=True)
        self.check(server, image, preserve_ephemeral='True')
        # A stopped server, through an older version of the API.
        self.act(server, 'os-stop', 'SHUTOFF')
        self.api.microversion = '2.92'
        image = self.image(**{'trait:CUSTOM_RED': 'required'})
        self.rebuild(server, image, 'SHUTOFF')
        self.api.microversion = 'latest'
        self.check(server, image, preserve_ephemeral='False')
        self.assertEqual('power off', self.ironic.node_of(server).power_state)
        self._fail_to_rebuild(server, image)

    def check(self, server, image, **instance_info):
        node = self.ironic.node_of(server)
        instance_info['image_source'] = image
        self.assertEqual(('RED', 'active', instance_info), (
            node.name, node.provision_state,
            {key: node.instance_info.get(key) for key in instance_info}))
        [reservation] = self.ironic.reservations()
        self.assertEqual((node.id, 'active'), (
            reservation['node_uuid'], reservation['state']))

    def _fail_to_rebuild(self, server, image):
        other = self.image(**{'trait:CUSTOM_BLUE': 'required'})
        # To Nova the host has the trait, but it is on another node.
        server = self.rebuild(server, other, 'SHUTOFF')
        event = self._wait_for_instance_action_event(
            server, 'rebuild', 'compute_rebuild_instance', 'Error')
        self.assertIn('the node lacks CUSTOM_BLUE', event['details'])
        self.check(server, image)


class TestInventory(base.TestCase):
    """The host reports a fleet that changes."""

    hosts = ()

    def inventory(self, total, reserved=0, max_unit=1):
        return {'total': total, 'reserved': reserved, 'min_unit': 1,
                'max_unit': max_unit, 'step_size': 1, 'allocation_ratio': 1.0}

    def assert_inventories(self, **expected):
        self.assertEqual(expected, self.inventories('compute-1'))

    def test_standard_resources(self):
        self.flags(group='reservations', report_standard_resources=True)
        self.enrol({'resource_class': 'gold', 'properties': {
            'memory_mb': 4096, 'cpus': 4, 'local_gb': 100}},
            {'resource_class': 'gold', 'properties': {
                'memory_mb': 8192, 'cpus': 8, 'local_gb': 200}})
        self.start_compute('compute-1')
        self.assert_inventories(
            CUSTOM_GOLD=self.inventory(2),
            VCPU=self.inventory(12, max_unit=8),
            MEMORY_MB=self.inventory(12288, max_unit=8192),
            DISK_GB=self.inventory(300, max_unit=200))
        server = self.boot(self.flavor(None, 3000, 2, 50))
        self.assertEqual(
            {'VCPU': 2, 'MEMORY_MB': 3000, 'DISK_GB': 50},
            self.allocations(server)[self.providers()['compute-1']])
        # The larger node remains, and nothing of the smaller one.
        self.run_periodic()
        self.assert_inventories(
            CUSTOM_GOLD=self.inventory(2, 1), VCPU=self.inventory(12, 2, 8),
            MEMORY_MB=self.inventory(12288, 1096, 8192),
            DISK_GB=self.inventory(300, 50, 200))
        self._replace_by_extra_specs()
        # The scheduler compares the remaining disk space with the host's.
        self.assertNotIn('more disk space than database expected', self.log)
        self._clamp()

    def _replace_by_extra_specs(self):
        server = self.boot(self.flavor(None, 1024, 2, 50, **{
            'resources1:MEMORY_MB': '4000', 'resources:DISK_GB': '60'}))
        self.assertEqual(
            {'VCPU': 2, 'MEMORY_MB': 4000, 'DISK_GB': 60},
            self.allocations(server)[self.providers()['compute-1']])
        self.run_periodic()
        self.assert_inventories(
            CUSTOM_GOLD=self.inventory(2, 2), VCPU=self.inventory(12, 8, 8),
            MEMORY_MB=self.inventory(12288, 5288, 8192),
            DISK_GB=self.inventory(300, 190, 200))

    def _clamp(self):
        most = 2 ** 31 - 1
        self.enrol(*[{'resource_class': 'huge', 'properties': {
            'memory_mb': most, 'cpus': most, 'local_gb': most}}] * 2)
        self.run_periodic()
        inventories = self.inventories('compute-1')
        for name in ('VCPU', 'MEMORY_MB', 'DISK_GB'):
            self.assertEqual(self.inventory(most, 0, most), inventories[name])
        self.assertEqual([most] * 3, self._read_hypervisor(
            'vcpus', 'memory_mb', 'local_gb'))

    def _read_hypervisor(self, *names):
        self.api.microversion = '2.87'
        [hypervisor] = self.api.api_get(
            '/os-hypervisors/detail').body['hypervisors']
        return [hypervisor[name] for name in names]

    def test_available_disk(self):
        """Nova's scheduler warns if it is more than what servers leave."""
        self.enrol(*[faults.NODE] * 3)
        self.start_compute('compute-1')
        # The disks of free nodes; the second flavor is larger than its node.
        for disk, *expected in (1, 299, 200), (300, -1, -1), (1, -2, -2):
            self.boot(self.flavor(disk=disk))
            self.run_periodic()
            self.assertEqual(expected, self._read_hypervisor(
                'free_disk_gb', 'disk_available_least'))
        self.assertNotIn('has more disk space', self.log)

    def _configure_provider(self, provider, resource_class):
        """Write a provider.yaml; return the options that name it."""
        directory = self.useFixture(fixtures.TempDir())
        # JSON is YAML.
        with open(directory.join('provider.yaml'), 'w') as file:
            json.dump({'meta': {'schema_version': '1.0'}, 'providers': [{
                'identification': provider,
                'inventories': {'additional': [
                    {resource_class: self.inventory(8, max_unit=8)}]},
                'traits': {'additional': ['CUSTOM_LICENSED']}}]}, file)
        return {'provider_config_location': directory.path}

    def test_provider_configuration(self):
        """Nova keeps what provider.yaml adds, which no node has."""
        self.enrol({'resource_class': 'gold'})
        self.start_compute('compute-1', compute=self._configure_provider(
            {'uuid': '$COMPUTE_NODE'}, 'CUSTOM_LICENCE'))
        for _ in range(2):
            self.run_periodic()
            self.assert_inventories(
                CUSTOM_GOLD=self.inventory(1),
                CUSTOM_LICENCE=self.inventory(8, max_unit=8))
            self.assertIn('CUSTOM_LICENSED', self.traits('compute-1'))
        for request, error in (
                ({'resources:CUSTOM_LICENCE': '1'}, 'must be one class'),
                ({'trait:CUSTOM_LICENSED': 'required'}, 'no free node')):
            server = self.boot(self.flavor(**request), 'ERROR')
            self.assertIn(error, server['fault']['message'])
        # One that is being built has an allocation of it.
        self.placement.put(f'/allocations/{uuid.uuid4()}', {
            'allocations': {self.providers()['compute-1']: {
                'resources': {'CUSTOM_LICENCE': 1}}},
            'project_id': 'p', 'user_id': 'u', 'consumer_generation': None,
        }, version='1.28')
        self.run_periodic()
        self.boot(self.flavor())

    def test_classes_and_traits_change(self):
        _, silver = self.enrol(
            {'resource_class': 'gold', 'traits': ['CUSTOM_OLD']},
            {'resource_class': 'silver', 'traits': ['CUSTOM_NEW']})
        # What provider.yaml adds to another host does not matter here.
        self.start_compute('compute-1', compute=self._configure_provider(
            {'name': 'compute-2'}, 'CUSTOM_SILVER'))
        server = self.boot(self.flavor('silver'))
        self.ironic.remove([silver])
        for _ in range(3):
            self.run_periodic()
            self.assert_inventories(CUSTOM_GOLD=self.inventory(1),
                                    CUSTOM_SILVER=self.inventory(1, 1))
        self.assertNotIn('CUSTOM_NEW', self.traits('compute-1'))
        # Otherwise Placement would refuse, and Nova would not start.
        self.restart_compute('compute-1')
        self.assertEqual(1, self.usages('compute-1')['CUSTOM_SILVER'])
        self.delete(server)
        self.enrol({'resource_class': 'bronze', 'traits': ['CUSTOM_NEW']})
        for _ in range(3):
            self.run_periodic()
        self.assert_inventories(CUSTOM_GOLD=self.inventory(1),
                                CUSTOM_BRONZE=self.inventory(1))
        self.assertLessEqual({'CUSTOM_OLD', 'CUSTOM_NEW'},
                             self.traits('compute-1'))

    @base.smoke
    def test_other_traits_are_kept(self):
        """Traits that operators or Nova have added to the host."""
        node, = self.enrol({'resource_class': 'gold',
                            'traits': ['CUSTOM_OLD']})
        self.start_compute('compute-1')
        path = f'/resource_providers/{self.providers()["compute-1"]}/traits'
        self.placement.put('/traits/CUSTOM_HALL', {}, version='1.6')
        body = self.placement.get(path, version='1.6').body
        body['traits'].append('CUSTOM_HALL')
        self.placement.put(path, body, version='1.6')
        others = {'CUSTOM_HALL'}
        if tests.nova.NOVA >= 34:
            others.add('OWNER_NOVA')
        self.restart_compute('compute-1')
        self.assertLessEqual({*others, 'CUSTOM_OLD'},
                             self.traits('compute-1'))
        self.ironic.baremetal.remove_node_trait(node, 'CUSTOM_OLD')
        self.run_periodic()
        self.assertLessEqual(others, self.traits('compute-1'))
        self.assertNotIn('CUSTOM_OLD', self.traits('compute-1'))
        # Also one that leaves the fleet while the host is down.
        self.ironic.baremetal.add_node_trait(node, 'CUSTOM_OLD')
        self.run_periodic()
        self.assertIn('CUSTOM_OLD', self.traits('compute-1'))
        self.stop_compute('compute-1')
        self.ironic.baremetal.remove_node_trait(node, 'CUSTOM_OLD')
        self.start_compute('compute-1')
        self.run_periodic()
        self.assertLessEqual(others, self.traits('compute-1'))
        self.assertNotIn('CUSTOM_OLD', self.traits('compute-1'))

    @base.smoke
    def test_node_in_cleaning_is_not_offered(self):
        [node] = self.enrol({'resource_class': 'gold'})
        self.start_compute('compute-1')
        server = self.boot(self.flavor())
        # After cleaning it is not available to other instances.
        self.ironic.baremetal.update_node(node, is_retired=True)
        self.delete(server, wait=False)

        # Polled in this order: at no moment it counts as neither.
        while self.usages('compute-1')['CUSTOM_GOLD']:
            pass
        self.assert_inventories(CUSTOM_GOLD=self.inventory(1, 1))
        server = self.boot(self.flavor(), 'ERROR')
        self.assertIn('No valid host', server['fault']['message'])
        self.run_periodic()
        self.assert_inventories(CUSTOM_GOLD=self.inventory(1, 1))
