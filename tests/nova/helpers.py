# SPDX-License-Identifier: Apache-2.0
"""Helpers of tests for Nova's API and Placement."""

import copy
import urllib.parse
import uuid

from nova import context
from nova import objects
from nova.compute import vm_states
from nova.tests.functional.api import client
import tenacity
from tooz import hashring


def compute_nodes():
    """Return all compute nodes: ``{hypervisor_hostname: host}``."""
    return {row.hypervisor_hostname: row.host
            for row in objects.ComputeNodeList.get_all(
                context.get_admin_context())}


def hash_ring(nodes, *hosts):
    """Return the compute nodes of hosts that have a row per node."""
    ring = hashring.HashRing(hosts, partitions=32)  # as Nova's
    return {node.id: host for node in nodes
            for host in ring.get_nodes(node.id.encode())}


class Helpers:
    """Mixed into base.TestCase, whose fixtures they use."""

    def flavor(self, resource_class='gold', memory_mb=1024, vcpus=1, disk=1,
               **extra_specs):
        """Create a flavor of a resource class; None for the standard classes.

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
        """Create an image and return its id."""
        return self.glance.create(None, {
            **copy.deepcopy(self.glance.image1), 'id': str(uuid.uuid4()),
            'min_ram': min_ram, 'min_disk': min_disk,
            'properties': properties})['id']

    def port(self):
        """Create a port for ``networks=[{'port': id}]``; return its id."""
        return self.neutron.create_port()['port']['id']

    def server_group(self, policy):
        """Create a server group and return its id."""
        return self.api.post_server_groups(
            {'name': policy, 'policy': policy})['id']

    def boot(self, flavor, status='ACTIVE', group=None, **server):
        """Create a server and wait for it.

        :param status: None not to wait
        :param group: id of a server group
        :param server: more keys of the request, such as ``networks`` and
            ``host``; ``image`` is an image's id
        """
        server.setdefault('networks', 'none')
        server['imageRef'] = server.pop('image', self.plain_image)
        hints = {'os:scheduler_hints': {'group': group}} if group else {}
        server = self.api.post_server({**hints, 'server': {
            'name': 'server', 'flavorRef': flavor, **server}})
        return self.wait_for_status(server, status) if status else server

    def boot_many(self, count, flavor, **server):
        """Create equal servers concurrently, and wait for them."""
        servers = [self.boot(flavor, status=None, **server)
                   for _ in range(count)]
        return [self.wait_for_status(server, 'ACTIVE') for server in servers]

    def act(self, server, action, status=None, **arguments):
        """Request an action: act(server, 'rebuild', 'ACTIVE', imageRef=…)."""
        self.api.post_server_action(server['id'],
                                    {action: arguments or None})
        return self.wait_for_status(server, status) if status else server

    def action_events(self, server, *actions):
        """Return the events of these actions on a server, newest first."""
        return [(action['action'], event['event'], event['result'],
                 event['host']) for action in self.instance_actions(server)
                if action['action'] in actions for event in action['events']]

    def instance_actions(self, server):
        """Return all actions on a server with their events, newest first."""
        return [self.api.api_get(
            f'/servers/{server["id"]}/os-instance-actions/'
            f'{action["request_id"]}').body['instanceAction']
            for action in self.api.get_instance_actions(server['id'])]

    def rebuild(self, server, image, status='ACTIVE', **arguments):
        # There is no Glance: Ironic 39 fails to rebuild unless it knows the
        # type of the image.
        node = self.ironic.node_of(server)
        self.ironic.baremetal.patch_node(node, [
            {'op': 'add', 'path': '/instance_info/image_type',
             'value': 'whole-disk'}])
        return self.act(server, 'rebuild', status, imageRef=image,
                        **arguments)

    def wait_for_status(self, server, status, timeout=60):
        """Wait until a server is at rest in a status, and return it."""
        def check():
            # A request to the API costs five times as much as a query, and
            # slows down the operation that we wait for.
            record = self._record(server)
            self.assertTrue(
                record and record.task_state is None
                and record.vm_state != vm_states.BUILDING, record)
            now = self.api.get_server(server['id'])
            # Nova sets the status, then the fault.
            at_rest = (not now['OS-EXT-STS:task_state']
                       and (now['status'] != 'ERROR' or 'fault' in now))
            self.assertTrue(at_rest and now['status'] in (status, 'ERROR'),
                            now)
            return now
        now = self.wait_for(check, timeout)
        self.assertEqual(status, now['status'], now.get('fault'))
        return now

    def _record(self, server):
        """Return a server's record in its cell; None if it is in none yet."""
        ctxt = context.get_admin_context(read_deleted='yes')
        cell = objects.InstanceMapping.get_by_instance_uuid(
            ctxt, server['id']).cell_mapping
        if cell is None:
            return None
        with context.target_cell(ctxt, cell) as ctxt:
            return objects.Instance.get_by_uuid(ctxt, server['id'],
                                                expected_attrs=[])

    def delete(self, *servers, wait=True):
        """Delete servers, and wait until their allocations are deleted."""
        for server in servers:
            self.api.delete_server(server['id'])
        for server in servers if wait else ():
            self._wait_until_deleted(server)

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

        The intervals grow, because checks slow down the work that we wait for.
        """
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(AssertionError),
            wait=tenacity.wait_incrementing(0.1, 0.1, max=0.5),
            stop=tenacity.stop_after_delay(timeout), reraise=True)(check)

    def instance(self, server):
        """Return Nova's record of a server, even if it is deleted."""
        return objects.Instance.get_by_uuid(
            context.get_admin_context(read_deleted='yes'), server['id'])

    def save(self, server, **values):
        """Write Nova's record of a server."""
        instance = self.instance(server)
        for name, value in values.items():
            setattr(instance, name, value)
        instance.save()

    def force_down(self, host, down=True):
        """Mark a host as down."""
        service, = self.api.get_services(host=urllib.parse.quote(host),
                                         binary='nova-compute')
        self.api.put_service_force_down(service['id'], down)

    def assign(self, server, to, by=None):
        """Assign a server's reservation to another host.

        :param by: require that this host holds it.
        """
        self.ironic.http.patch(
            f'/v1/reservations/{server["id"]}', params={'host': by},
            json=[{'op': 'replace', 'path': '/host', 'value': to}],
        ).raise_for_status()

    # Placement names providers after compute nodes.

    def providers(self):
        return {provider['name']: provider['uuid']
                for provider in self._get_all_providers()}

    def inventories(self, provider):
        return self._get_provider_inventory(self.providers()[provider])

    def traits(self, provider):
        return set(self._get_provider_traits(self.providers()[provider]))

    def usages(self, provider):
        return self._get_provider_usages(self.providers()[provider])

    def allocations(self, server):
        """Return ``{provider's uuid: {resource class: amount}}``."""
        allocations = self._get_allocations_by_server_uuid(server['id'])
        return {provider: allocation['resources']
                for provider, allocation in allocations.items()}
