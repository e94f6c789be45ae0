# SPDX-License-Identifier: Apache-2.0
"""What is done with a cloud of "make cloud", and asked of it.

Commands are the real ``openstack``, with real tokens. What no test is about,
and what is asked until it is so, goes through the SDK, which need not start
Python anew: a command takes two seconds of a processor.
"""

import json
import os
import subprocess
import time
import uuid

from keystoneauth1 import exceptions as ksa_exc
from openstack import exceptions as sdk_exc
import tenacity

from tools import cloud as tools_cloud
from tools import services

#: Seconds until everybody knows.
SOON = 90
CLASS = 'CUSTOM_BAREMETAL_GOLD'


def eventually(assertion, timeout=SOON):
    """What an assertion returns as soon as it holds; its error otherwise.

    Whom it asks may not answer, after a fault.
    """
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(
            (AssertionError, sdk_exc.SDKException,
             ksa_exc.ClientException)),
        wait=tenacity.wait_fixed(0.5), reraise=True,
        stop=tenacity.stop_after_delay(timeout))(assertion)


class Operator:

    def __init__(self, cloud):
        self.cloud = cloud
        self.connection = cloud.connect()
        self.system = cloud.connect(system_scope='all')
        self.demo = cloud.connect(username='demo', project_name='demo',
                                  project_domain_name='Default')

    def openstack(self, *args, user='admin', check=True, environment=()):
        """Run the command; what it answered in JSON, or the process."""
        done = subprocess.run(
            [services.program('openstack'), *args,
             *(['-f', 'json'] if check else [])],
            env={**{name: value for name, value in os.environ.items()
                    if not name.startswith('OS_')},
                 **self.cloud.environment(user), **dict(environment)},
            capture_output=True, text=True, timeout=300)
        if not check:
            return done
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def audit(self, *args):
        """What the audit finds, as the kind and the instance."""
        done = self.openstack('baremetal', 'reservation', 'audit', '-f',
                              'json', *args, check=False)
        assert done.stdout, done.stderr
        found = json.loads(done.stdout)
        assert done.returncode == (1 if found else 0)
        return {(row['Kind'], row['Instance']) for row in found}

    def finds_nothing(self):
        assert self.audit() == set()

    def act(self, *args, user='admin'):
        """Run a command that answers nothing."""
        done = self.openstack(*args, user=user, check=False)
        assert done.returncode == 0, done.stderr

    def create(self, *args, user='admin'):
        """Create a server with the command, and wait until it is built."""
        server = self.openstack(
            'server', 'create', '--flavor', tools_cloud.FLAVOR, '--image',
            tools_cloud.IMAGE, '--network', tools_cloud.NETWORK, '--wait',
            *args, 'server', user=user)
        assert server['status'] == 'ACTIVE'
        return server

    def boot_many(self, count, by=None, **options):
        """Create servers with one call to Nova; their IDs.

        :param by: a connection; None is the administrator's.
        :param options: more keys of the request
        """
        name = f'many-{uuid.uuid4().hex[:8]}'
        (by or self.connection).compute.create_server(
            name=name, min_count=count, max_count=count, **self.wanted(),
            **options)
        return [each.id for each in self.servers() if name in each.name]

    def built(self, count, **options):
        """Servers that are created with one call and are built; their IDs."""
        servers = self.boot_many(count, **options)
        assert set(self.settled(servers).values()) == {'ACTIVE'}
        return servers

    def boot_on(self, host, count):
        """Have servers on one host; their IDs."""
        return self.built(count, availability_zone=f'nova:{host}')

    def fault(self, **options):
        """Why a server cannot be built."""
        [server] = self.boot_many(1, **options)
        assert self.settled([server]) == {server: 'ERROR'}
        return self.connection.compute.get_server(server).fault['message']

    def wanted(self):
        """What the SDK needs to create a server."""
        cloud = self.connection
        flavor, image, network = [
            find(name, ignore_missing=False).id for find, name in (
                (cloud.compute.find_flavor, tools_cloud.FLAVOR),
                (cloud.image.find_image, tools_cloud.IMAGE),
                (cloud.network.find_network, tools_cloud.NETWORK))]
        return {'flavor_id': flavor, 'image_id': image,
                'networks': [{'uuid': network}]}

    def servers(self):
        return list(self.connection.compute.servers(all_projects=True))

    def settled(self, servers, timeout=240):
        """Statuses by server, when none of them changes by itself any more."""
        def done():
            status = {each.id: each.status for each in self.servers()
                      if each.id in servers}
            assert set(status) == set(servers)
            assert set(status.values()) <= {'ACTIVE', 'ERROR'}, status
            return status
        return eventually(done, timeout)

    def rebooted(self, servers, since):
        """Reboot servers, all at once.

        :param since: a time of time.monotonic().
        :returns: after how many seconds each of them has done it, in order.
        """
        before = {each: self.reboots(each) for each in servers}
        left, seconds = set(servers), []
        for server in servers:
            self.connection.compute.reboot_server(server, 'HARD')

        def done():
            for each in self.servers():
                if (each.id in left and each.status == 'ACTIVE'
                        and not each.task_state):
                    new, = set(self.reboots(each.id)) - set(before[each.id])
                    assert self.results(each.id, new) == ['Success']
                    left.remove(each.id)
                    seconds.append(round(time.monotonic() - since))
            assert not left

        eventually(done, 240)
        return seconds

    def reboots(self, server):
        """The requests to reboot a server."""
        return [each.request_id for each in
                self.connection.compute.server_actions(server)
                if each.action == 'reboot']

    def results(self, server, request):
        """What has become of a request: a word for each thing done."""
        return [each['result'] for each in
                self.connection.compute.get_server_action(
                    request, server).events]

    def delete_all(self):
        for each in self.servers():
            if each.task_state != 'deleting':
                self.connection.compute.delete_server(each)

    def empty(self):
        """Delete all servers, again what Nova could not do at once."""
        eventually(self._emptied, 240)

    def _emptied(self):
        self.delete_all()
        self.all_free()

    def reservations(self):
        response = self.system.baremetal.get('/reservations')
        sdk_exc.raise_from_response(response)
        return response.json()['reservations']

    def capacity(self):
        """How many nodes are free, and how many there are, counted now."""
        response = self.system.baremetal.get(
            '/reservations/capacity', headers={'Cache-Control': 'no-cache'})
        sdk_exc.raise_from_response(response)
        rows = response.json()['capacity']
        return tuple(sum(row[name] for row in rows)
                     for name in ('free', 'total'))

    def nodes(self):
        return list(self.system.baremetal.nodes(details=True))

    def hosts_are_up(self):
        assert {each.host: each.state for each in self.compute_services()
                } == dict.fromkeys(self.cloud.hosts, 'up')

    def compute_services(self):
        return list(self.connection.compute.services(binary='nova-compute'))

    def reported(self):
        """When each host has told last that it is up."""
        return {each.host: each.updated_at
                for each in self.compute_services()}

    def reconfigure(self, **options):
        """Give Cloud other attributes, and its Nova what follows of them."""
        nova = 'nova', 'nova-scheduler', 'nova-conductor'
        self.cloud.stop(*self.cloud.computes)
        before = self.reported()
        self.cloud.stop(*nova)
        for name, value in options.items():
            setattr(self.cloud, name, value)
        self.cloud.configure()
        self.cloud.control('update')
        self.cloud.start(*nova, *self.cloud.hosts)
        for host in self.cloud.hosts:
            eventually(lambda of=host: self.has_reported(of, before[of]))

    def has_reported(self, host, since):
        assert self.reported()[host] > since

    def configure(self, driver, mode=None, adopt=None):
        self.cloud.driver = driver
        self.cloud.mode, self.cloud.adopt = mode, adopt
        self.cloud.configure()

    def switch(self, driver):
        """Give the hosts, which have no servers, another kind of rows.

        :returns: the hosts whose services were deleted for that.
        """
        for host in self.cloud.hosts:
            self.act('compute', 'service', 'set', '--disable', host,
                     'nova-compute')
        self.cloud.stop(*self.cloud.hosts)
        having_rows = {
            each.service_details['host'] for each in
            self.connection.compute.hypervisors(details=True)}
        for each in self.compute_services():
            if each.host in having_rows:
                self.act('compute', 'service', 'delete', each.id)
            else:
                # Nova cannot delete it, and there is nothing to delete.
                self.act('compute', 'service', 'set', '--enable',
                         each.host, 'nova-compute')
        self.configure(driver)
        self.cloud.start_computes()
        return having_rows

    def sweep(self):
        """Give back the nodes whose lease is over."""
        self.cloud.run(
            'ironic-reservations-manage', '--config-file',
            self.cloud.folder / 'ironic' / 'ironic.conf', 'sweep')

    def placement(self, host):
        """Inventory and consumers of a host's provider."""
        placement = self.connection.placement
        providers = list(placement.resource_providers(name=host))
        assert len(providers) == 1
        inventory = [
            each for each in
            placement.resource_provider_inventories(providers[0])
            if each.resource_class == CLASS]
        assert len(inventory) == 1
        response = placement.get(
            f'/resource_providers/{providers[0].id}/allocations')
        sdk_exc.raise_from_response(response)
        return inventory[0], set(response.json()['allocations'])

    def agree(self):
        """Servers, Ironic, reservations and Placement tell the same."""
        free, total = self.capacity()
        hosts = {each['instance_uuid']: each['host']
                 for each in self.reservations()}
        # Those without a host never came to one, or have left it.
        servers = {each.id: each.compute_host for each in self.servers()
                   if each.compute_host}
        assert hosts == servers
        nodes = self.nodes()
        assert len(nodes) == total
        assert set(servers) == {
            node.instance_id for node in nodes if node.instance_id}
        assert free == total - len(servers)
        for host in self.cloud.hosts:
            held = {server for server in hosts if hosts[server] == host}
            inventory, consumers = self.placement(host)
            assert consumers == held
            assert inventory.total == total
            assert inventory.reserved == total - free - len(held)

    def all_free(self):
        self.drained()
        assert not self.reservations()
        self.agree()

    def drained(self):
        """The same, as far as it does not matter what rows hosts have."""
        assert not self.servers()
        assert all(node.provision_state == 'available'
                   and not node.instance_id for node in self.nodes())
