# SPDX-License-Identifier: Apache-2.0
"""What tests do with Nova's API and with Placement, in few words."""

import copy
import uuid

from nova import context
from nova import objects
from nova.compute import vm_states
from nova.tests.functional.api import client
import tenacity


class Helpers:
    """Mixed into base.TestCase, whose fixtures they use."""

    def flavor(self, resource_class='gold', memory_mb=1024, vcpus=1, disk=1,
               **extra_specs):
        """Create a flavor of a resource class, or, if that is None, of sizes.

        :param extra_specs: as keywords, or as ``**{'trait:X': 'required'}``
        :returns: its id
        """
        if resource_class:
            extra_specs = {
                f'resources:CUSTOM_{resource_class.upper()}': '1',
                **{f'resources:{standard}': '0' for standard in (
                    'VCPU', 'MEMORY_MB', 'DISK_GB')}, **extra_specs}
        return self._create_flavor(
            memory_mb=memory_mb, vcpu=vcpus, disk=disk, ephemeral=0,
            extra_spec=extra_specs or None)

    def image(self, min_ram=0, min_disk=0, **properties):
        """Create an image; returns its id."""
        return self.glance.create(None, {
            **copy.deepcopy(self.glance.image1), 'id': str(uuid.uuid4()),
            'min_ram': min_ram, 'min_disk': min_disk,
            'properties': properties})['id']

    def port(self):
        """Create a port, for ``networks=[{'port': id}]``; returns its id."""
        return self.neutron.create_port()['port']['id']

    def boot(self, flavor, status='ACTIVE', group=None, **server):
        """Create a server and wait for it.

        :param status: None not to wait
        :param group: id of a server group
        :param server: more keys of the request, as ``networks``, ``host``;
            ``image`` is an image's id
        """
        server.setdefault('networks', 'none')
        server['imageRef'] = server.pop('image', self.plain_image)
        hints = {'os:scheduler_hints': {'group': group}} if group else {}
        server = self.api.post_server({**hints, 'server': {
            'name': 'server', 'flavorRef': flavor, **server}})
        return self.wait_for_status(server, status) if status else server

    def boot_many(self, count, flavor, **server):
        """Create servers that are alike, all at once, and wait for them."""
        begun = [self.boot(flavor, status=None, **server)
                 for _ in range(count)]
        return [self.wait_for_status(each, 'ACTIVE') for each in begun]

    def act(self, server, action, status=None, **arguments):
        """``act(server, 'rebuild', 'ACTIVE', imageRef=...)``."""
        self.api.post_server_action(server['id'],
                                    {action: arguments or None})
        return self.wait_for_status(server, status) if status else server

    def happened(self, server, *actions):
        """What Nova's history of a server has of these, the latest first."""
        found = [self.api.api_get(
            f'/servers/{server["id"]}/os-instance-actions/'
            f'{each["request_id"]}').body['instanceAction']
            for each in self.api.get_instance_actions(server['id'])
            if each['action'] in actions]
        return [(each['action'], event['event'], event['result'],
                 event['host']) for each in found for event in each['events']]

    def rebuild(self, server, image, status='ACTIVE', **arguments):
        # Ironic 39 stumbles when it rebuilds and cannot look the image up,
        # and there is no Glance: an image of a known type it does not.
        node = self.ironic.node_of(server)
        self.ironic.baremetal.patch_node(node, [
            {'op': 'add', 'path': '/instance_info/image_type',
             'value': 'whole-disk'}])
        return self.act(server, 'rebuild', status, imageRef=image,
                        **arguments)

    def wait_for_status(self, server, status, timeout=60):
        """Returns the server once it is at rest in that status."""
        def check():
            # To ask the API costs five times as much as to look at the
            # record, and it takes that time from what is waited for.
            record = self._record(server)
            self.assertTrue(
                record and record.task_state is None
                and record.vm_state != vm_states.BUILDING, record)
            found = self.api.get_server(server['id'])
            # Nova sets the status, then the fault.
            at_rest = (not found['OS-EXT-STS:task_state']
                       and (found['status'] != 'ERROR' or 'fault' in found))
            self.assertTrue(at_rest and found['status'] in (status, 'ERROR'),
                            found)
            return found
        found = self.wait_for(check, timeout)
        self.assertEqual(status, found['status'], found.get('fault'))
        return found

    def _record(self, server):
        """Nova's record of a server in its cell; None if it is in none yet."""
        ctxt = context.get_admin_context(read_deleted='yes')
        cell = objects.InstanceMapping.get_by_instance_uuid(
            ctxt, server['id']).cell_mapping
        if cell is None:
            return None
        with context.target_cell(ctxt, cell) as ctxt:
            return objects.Instance.get_by_uuid(ctxt, server['id'],
                                                expected_attrs=[])

    def delete(self, *servers, wait=True):
        """Delete servers and wait until their allocations are gone too."""
        for each in servers:
            self.api.delete_server(each['id'])
        for each in servers if wait else ():
            self._wait_until_deleted(each)

    def _wait_until_deleted(self, server):
        def check():
            record = self._record(server)
            self.assertTrue(record is None or record.deleted, record)
        self.wait_for(check)
        self.wait_for(lambda: self.assertRaises(
            client.OpenStackApiNotFoundException,
            self.api.get_server, server['id']))
        self.wait_for(lambda: self.assertEqual({}, self.allocations(server)))

    def wait_for(self, check, timeout=60):
        """Call a function until it raises no assertion error.

        The longer it takes the less often, because to look takes a processor
        from what is waited for.
        """
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(AssertionError),
            wait=tenacity.wait_incrementing(0.1, 0.1, max=0.5),
            stop=tenacity.stop_after_delay(timeout), reraise=True)(check)

    # What goes on behind users' backs

    def instance(self, server):
        """Nova's record of a server, deleted ones included."""
        return objects.Instance.get_by_uuid(
            context.get_admin_context(read_deleted='yes'), server['id'])

    def set(self, server, **values):
        """Put that record into a state that is hard to come by."""
        instance = self.instance(server)
        for name, value in values.items():
            setattr(instance, name, value)
        instance.save()

    def force_down(self, host, down=True):
        """Say that a host is down, sooner than its silence would."""
        service, = self.api.get_services(host=host, binary='nova-compute')
        self.api.put_service_force_down(service['id'], down)

    def give(self, server, to, by=None):
        """Have another host hold a server's machine.

        :param by: the host that holds it; None does not say which.
        """
        self.ironic.http.patch(
            f'/v1/reservations/{server["id"]}', params={'host': by},
            json=[{'op': 'replace', 'path': '/host', 'value': to}],
        ).raise_for_status()

    # Placement, where providers are called as the compute's rows

    def providers(self):
        return {each['name']: each['uuid']
                for each in self._get_all_providers()}

    def inventories(self, provider):
        return self._get_provider_inventory(self.providers()[provider])

    def traits(self, provider):
        return set(self._get_provider_traits(self.providers()[provider]))

    def usages(self, provider):
        return self._get_provider_usages(self.providers()[provider])

    def allocations(self, server):
        """``{provider's uuid: {resource class: amount}}``"""
        found = self._get_allocations_by_server_uuid(server['id'])
        return {provider: each['resources']
                for provider, each in found.items()}
