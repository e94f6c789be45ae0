# SPDX-License-Identifier: Apache-2.0
"""What can be done to a server, from its boot to its end."""

import urllib.parse

import fixtures
from nova import exception
from openstack.baremetal.v1 import _proxy as openstack_baremetal

import tests.nova
from tests.nova import base
from tests.nova import faults
from tests.nova import networking
from tools import services

#: What makes config drives; comes with Ironic.
MKISOFS = services.program('pycdlib-genisoimage')


class TestRequests(base.TestCase):
    """What of a flavor and an image decides upon the node."""

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

    # Later ones do not let flavors have capabilities of Ironic's nodes.
    microversion = '2.85'

    def test_node_is_the_one_that_matches(self):
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
    def test_every_field_arrives(self):
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
        # A flavor without a disk leaves that to the image.
        other = self.boot(self.flavor(disk=0), image=image, host='compute-2')
        [reservation] = self.ironic.reservations(
            node=self.ironic.node_of(other).id)
        spec = reservation['request_spec']
        self.assertEqual((0, 5), (spec['root_gb'], spec['image']['min_disk']))
        self._check_lists([server, other])

    def _check_lists(self, servers):
        found = [self.api.get_server(each['id']) for each in servers]
        for host in self.hosts:
            driver = self.computes[host].manager.driver
            mine = [each for each in found
                    if each['OS-EXT-SRV-ATTR:host'] == host]
            self.assertTrue(mine)
            self.assertEqual({each['id'] for each in mine},
                             set(driver.list_instance_uuids()))
            self.assertEqual(
                {each['OS-EXT-SRV-ATTR:instance_name'] for each in mine},
                set(driver.list_instances()))
            self.assertEqual(len(mine), driver.get_num_instances())


class Hardware(networking.Networks, faults.TestCase):
    """Nodes with networks, consoles, volume connectors and rescue."""

    fleet = [{'resource_class': 'gold', 'network_interface': 'flat',
              'console_interface': 'fake-graphical'}] * 2

    ironic_config = {'DEFAULT': {
        'enabled_rescue_interfaces': 'no-rescue,fake',
        'default_rescue_interface': 'fake',
        'enabled_console_interfaces': 'no-console,fake-graphical'}}


class TestHardware(Hardware):

    def setUp(self):
        super().setUp()
        self.start_compute('compute-1')

    def assert_said(self, *servers):
        """Whatever was written for servers, and their consoles, says so."""
        held = {f'instance={server["id"]}; host=compute-1'
                for server in servers}
        for method, path, said in self.wire.said:
            if path.startswith(('/v1/nodes/', '/v1/volume/')) and (
                    method != 'GET' or path.endswith('/console')):
                whom, _, node = (said or '').partition('; node=')
                self.assertIn(whom, held, f'{method} {path}')
                self.assertEqual('/volume/' in path, bool(node))
        self.assertNotIn('does not check which host holds', self.log)

    # Power, rescue, consoles

    def test_power_rescue_and_consoles(self):
        server = self.boot(self.flavor())
        self._power(server)
        self._rescue(server)
        if tests.nova.NOVA >= 33:
            # Before, Nova's own driver has no graphical console, and the
            # serial one goes by what that has enabled.
            self._vnc_console(server)
            self._serial_console(server)
        self.api.post_server_action(server['id'],
                                    {'trigger_crash_dump': None})
        self.wait_for(lambda: self.assertEqual(1, len(self.wire.sent(
            'PUT', '.*/management/inject_nmi'))))
        self.assert_said(server)

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
        # As Ironic tells Nova by itself, if configured so.
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
        """Where Nova's proxy would connect to for a console."""
        url = self.api.api_post(
            f'/servers/{server["id"]}/remote-consoles',
            {'remote_console': console}).body['remote_console']['url']
        token = urllib.parse.unquote(url).rpartition('token=')[2]
        found = self.api.api_get(f'/os-console-auth-tokens/{token}')
        return found.body['console']

    def _vnc_console(self, server):
        console = self.console(server, protocol='vnc', type='novnc')
        node = self.ironic.node_of(server)
        self.assertTrue(node.is_console_enabled)
        self.assertEqual(node.driver_internal_info['vnc_host'],
                         console['host'])
        self.assertEqual(node.driver_internal_info['vnc_port'],
                         console['port'])

    def _serial_console(self, server):
        # Hardware without a screen: only IPMI has such a console in Ironic.
        node = self.ironic.node_of(server)
        get_node_console = openstack_baremetal.Proxy.get_node_console

        def get_serial_console(proxy, asked):
            found = get_node_console(proxy, asked)
            if asked == node.id and found['console_enabled']:
                found['console_info'] = {'type': 'socat',
                                         'url': 'tcp://192.0.2.2:1234'}
            return found

        self.flags(group='serial_console', enabled=True)
        with fixtures.MonkeyPatch(
                'openstack.baremetal.v1._proxy.Proxy.get_node_console',
                get_serial_console):
            console = self.console(server, protocol='serial', type='serial')
        self.assertEqual(('192.0.2.2', 1234),
                         (console['host'], console['port']))

    # Networks, config drive, volumes

    def vifs(self, server):
        """Those on the server's node, as Ironic knows them."""
        return set(self.ironic.baremetal.list_node_vifs(
            self.ironic.node_of(server)))

    def test_interfaces_and_config_drive(self):
        self.flags(mkisofs_cmd=MKISOFS)
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
        # Somebody has deleted it in Neutron.
        self.api.create_server_external_events([{
            'name': 'network-vif-deleted', 'server_uuid': server['id'],
            'tag': first}])
        self.wait_for(lambda: self.assertEqual(set(), self.vifs(server)))
        self.delete(server)
        self.assert_said(server)
        self.assert_nothing_left()

    def test_volumes_and_shelving(self):
        self.connect_volumes()
        self.flags(mkisofs_cmd=MKISOFS)
        port = self.port()
        server = self.boot(
            self.flavor(disk=1000), config_drive=True,
            networks=[{'port': port}], **networking.FROM_VOLUME)
        self._check_volume(server)
        [reservation] = self.ironic.reservations()
        self.assertEqual(0, reservation['request_spec']['root_gb'])
        # No build is allowed the first of them, and none knows the second.
        self.api.api_post(f'/servers/{server["id"]}/metadata', {'metadata': {
            'reservations:candidate_nodes': 'x', 'reservations:nodes': 'x'}})
        self._shelve(server)
        self._fail_to_unshelve(server)
        held = self._fail_to_connect(server)
        self.act(server, 'unshelve', 'ACTIVE')
        self.assertNotIn('unknown metadata', self.log)
        self.assertEqual(held, self.ironic.node_of(server).id)
        self._check_volume(server)
        self.assertEqual({port}, self.vifs(server))
        # Nova's own driver cannot do that either.
        self.act(server, 'rebuild', 'ERROR', imageRef=self.plain_image)
        self.assertEqual('active', self.ironic.node_of(server).provision_state)
        self.delete(server)
        self.assert_said(server)
        self.assert_nothing_left()

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
        self._forget_volumes()
        self.assert_nothing_left()

    def _forget_volumes(self):
        # Every deploy interface but the fake one does so when it tears down.
        for target in self.ironic.baremetal.volume_targets():
            self.ironic.baremetal.delete_volume_target(target)

    def _fail_to_unshelve(self, server):
        # Ironic looks into it, in the middle of the deploy.
        self.flags(mkisofs_cmd='true')
        self.act(server, 'unshelve', 'SHELVED_OFFLOADED')
        self.assertIn('Failed to prepare the configdrive', self.log)
        self._forget_volumes()
        self.assert_nothing_left()
        self.flags(mkisofs_cmd=MKISOFS)
        # What was given back is not offered before it is counted anew.
        self.wait_for(lambda: (self.run_periodic(), self.assertEqual(
            0, self.inventories('compute-1')['CUSTOM_GOLD']['reserved'])))

    def _fail_to_connect(self, server):
        def fail(*args, **kwargs):
            raise exception.CinderConnectionFailed(reason='fault')

        with fixtures.MonkeyPatch(
                'nova.volume.cinder.API.attachment_update', fail):
            self.act(server, 'unshelve', 'SHELVED_OFFLOADED')
        # Nobody tells the driver: the lease ends, or the next one takes it.
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
        # Stopped, through an older version of the API.
        self.act(server, 'os-stop', 'SHUTOFF')
        self.api.microversion = '2.92'
        image = self.image(**{'trait:CUSTOM_RED': 'required'})
        self.rebuild(server, image, 'SHUTOFF')
        self.api.microversion = 'latest'
        self.check(server, image, preserve_ephemeral='False')
        self.assertEqual('power off', self.ironic.node_of(server).power_state)
        self._refused(server, image)

    def check(self, server, image, **instance_info):
        node = self.ironic.node_of(server)
        instance_info['image_source'] = image
        self.assertEqual(('RED', 'active', instance_info), (
            node.name, node.provision_state,
            {key: node.instance_info.get(key) for key in instance_info}))
        [reservation] = self.ironic.reservations()
        self.assertEqual((node.id, 'active'), (
            reservation['node_uuid'], reservation['state']))

    def _refused(self, server, image):
        other = self.image(**{'trait:CUSTOM_BLUE': 'required'})
        # Another node of the host has it, and Nova sees no more than that.
        server = self.rebuild(server, other, 'SHUTOFF')
        event = self._wait_for_instance_action_event(
            server, 'rebuild', 'compute_rebuild_instance', 'Error')
        self.assertIn('the node lacks CUSTOM_BLUE', event['details'])
        self.check(server, image)


class TestInventory(base.TestCase):
    """What the host reports of a fleet that changes."""

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
        # What the larger node has is left, and nothing of the smaller one.
        self.run_periodic()
        found = self.inventories('compute-1')
        self.assertEqual(
            [self.inventory(12, 2, 8), self.inventory(12288, 1096, 8192),
             self.inventory(300, 50, 200)],
            [found[name] for name in ('VCPU', 'MEMORY_MB', 'DISK_GB')])
        self._counts_what_extra_specs_replace()
        # The scheduler compares what is left of the disks with what the host
        # says of them.
        self.assertNotIn('more disk space than database expected', self.log)
        self._clamps()

    def _counts_what_extra_specs_replace(self):
        server = self.boot(self.flavor(None, 1024, 2, 50, **{
            'resources1:MEMORY_MB': '4000', 'resources:DISK_GB': '60'}))
        self.assertEqual(
            {'VCPU': 2, 'MEMORY_MB': 4000, 'DISK_GB': 60},
            self.allocations(server)[self.providers()['compute-1']])
        self.run_periodic()
        found = self.inventories('compute-1')
        self.assertEqual(
            [self.inventory(12, 8, 8), self.inventory(12288, 5288, 8192),
             self.inventory(300, 190, 200)],
            [found[name] for name in ('VCPU', 'MEMORY_MB', 'DISK_GB')])

    def _clamps(self):
        most = 2 ** 31 - 1
        self.enrol(*[{'resource_class': 'huge', 'properties': {
            'memory_mb': most, 'cpus': most, 'local_gb': most}}] * 2)
        self.run_periodic()
        found = self.inventories('compute-1')
        for name in ('VCPU', 'MEMORY_MB', 'DISK_GB'):
            self.assertEqual(self.inventory(most, 0, most), found[name])
        self.api.microversion = '2.87'
        [row] = self.api.api_get('/os-hypervisors/detail').body['hypervisors']
        self.assertEqual((most, most, most), (
            row['vcpus'], row['memory_mb'], row['local_gb']))

    def test_classes_and_traits_come_and_go(self):
        _, silver = self.enrol(
            {'resource_class': 'gold', 'traits': ['CUSTOM_OLD']},
            {'resource_class': 'silver', 'traits': ['CUSTOM_NEW']})
        self.start_compute('compute-1')
        server = self.boot(self.flavor('silver'))
        self.ironic.remove([silver])
        for _ in range(3):
            self.run_periodic()
            self.assert_inventories(CUSTOM_GOLD=self.inventory(1),
                                    CUSTOM_SILVER=self.inventory(1, 1))
        self.assertNotIn('CUSTOM_NEW', self.traits('compute-1'))
        # Placement would not let the class go, and Nova would not start.
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
    def test_traits_of_others_stay(self):
        """Those that an operator gives to the host, and Nova's own."""
        node, = self.enrol({'resource_class': 'gold',
                            'traits': ['CUSTOM_OLD']})
        self.start_compute('compute-1')
        path = f'/resource_providers/{self.providers()["compute-1"]}/traits'
        self.placement.put('/traits/CUSTOM_HALL', {}, version='1.6')
        known = self.placement.get(path, version='1.6').body
        known['traits'].append('CUSTOM_HALL')
        self.placement.put(path, known, version='1.6')
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

    @base.smoke
    def test_node_that_is_cleaned_is_not_offered(self):
        [node] = self.enrol({'resource_class': 'gold'})
        self.start_compute('compute-1')
        server = self.boot(self.flavor())
        # It leaves cleaning, but not for the next instance.
        self.ironic.baremetal.update_node(node, is_retired=True)
        self.delete(server, wait=False)

        # Read in this order: no moment at which it is neither.
        while self.usages('compute-1')['CUSTOM_GOLD']:
            pass
        self.assert_inventories(CUSTOM_GOLD=self.inventory(1, 1))
        server = self.boot(self.flavor(), 'ERROR')
        self.assertIn('No valid host', server['fault']['message'])
        self.run_periodic()
        self.assert_inventories(CUSTOM_GOLD=self.inventory(1, 1))
