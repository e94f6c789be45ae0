# SPDX-License-Identifier: Apache-2.0
"""Operations on a cloud of "make cloud", and checks of its state.

Tested commands are the real ``openstack``, with real tokens. Other requests,
and repeated ones, use the SDK, because a command takes two seconds of CPU
time.
"""

import contextlib
import functools
import importlib.metadata
import json
import os
import signal
import subprocess
import time
import uuid

from keystoneauth1 import exceptions as ksa_exc
from openstack import exceptions as sdk_exc
import sqlalchemy as sa
import tenacity

from tools import services
from tools import trial_cloud

#: Default timeout in seconds.
SOON = 90
#: Lease of reservations in seconds: several times [DEFAULT]
#: update_resources_interval.
LEASE = 25
#: Seconds of each half of a deployment: long enough to kill something.
DEPLOY_DELAY = 4
CLASS = 'CUSTOM_BAREMETAL_GOLD'
#: Whether a host completes its builds and rebuilds when it starts. Before 34
#: Nova sets these servers to ERROR.
COMPLETES = int(importlib.metadata.version('nova').partition('.')[0]) >= 34


@functools.cache
def get_engine(url):
    # Tests kill the server.
    return sa.create_engine(url, pool_pre_ping=True)


def eventually(assertion, timeout=SOON):
    """Call an assertion until it holds, and return its result.

    Also retries if a service is unavailable, after a fault.
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

    def is_green(self):
        """Return whether nova-compute runs with eventlet."""
        return (self.cloud.concurrency
                or ('threading' if COMPLETES else 'eventlet')) == 'eventlet'

    def openstack(self, *args, user='admin', check=True, environment=()):
        """Run the command; return its output as JSON.

        :param check: False: return the completed process instead.
        """
        process = subprocess.run(
            [services.program('openstack'), *args,
             *(['-f', 'json'] if check else [])],
            env={**{name: value for name, value in os.environ.items()
                    if not name.startswith('OS_')},
                 **self.cloud.environment(user), **dict(environment)},
            capture_output=True, text=True, timeout=300)
        if not check:
            return process
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)

    def audit(self, *args):
        """Return kind and instance of the audit's findings."""
        process = self.openstack('baremetal', 'reservation', 'audit', '-f',
                                 'json', *args, check=False)
        assert process.stdout, process.stderr
        rows = json.loads(process.stdout)
        assert process.returncode == (1 if rows else 0)
        return {(row['Kind'], row['Instance']) for row in rows}

    def assert_no_findings(self):
        findings = self.audit()
        assert not findings, findings

    def act(self, *args, user='admin'):
        """Run a command without output."""
        process = self.openstack(*args, user=user, check=False)
        assert process.returncode == 0, process.stderr

    def move(self, source, target, *args):
        """Move servers; return the results, by server, and the exit status."""
        process = self.openstack(
            'baremetal', 'reservation', 'move', '--from', source, '--to',
            target, *args, '-f', 'json', check=False)
        assert process.stdout, process.stderr
        return {row['Instance']: row['Result']
                for row in json.loads(process.stdout)}, process.returncode

    def sql(self, database, statement, **values):
        """Read or write a database of the cloud; return the rows."""
        url = self.cloud.database_url(database)
        with get_engine(url).begin() as connection:
            result = connection.execute(sa.text(statement), values)
            return result.mappings().all() if result.returns_rows else None

    @contextlib.contextmanager
    def freeze(self, name):
        """Stop a service and its workers with SIGSTOP for a while."""
        group = self.cloud.pid(name)
        os.killpg(group, signal.SIGSTOP)
        try:
            yield
        finally:
            # A host may have exited because it was replaced.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGCONT)

    def create(self, *args, user='admin'):
        """Create a server with the command, and wait until it is built."""
        server = self.openstack(
            'server', 'create', '--flavor', trial_cloud.FLAVOR, '--image',
            trial_cloud.IMAGE, '--network', trial_cloud.NETWORK, '--wait',
            *args, 'server', user=user)
        assert server['status'] == 'ACTIVE'
        return server

    def boot_many(self, count, by=None, **options):
        """Create servers with one request to Nova; return their IDs.

        :param by: a connection; None is the administrator's.
        :param options: more keys of the request
        """
        name = f'many-{uuid.uuid4().hex[:8]}'
        (by or self.connection).compute.create_server(
            name=name, min_count=count, max_count=count,
            **self.server_options(), **options)
        return [server.id for server in self.servers()
                if name in server.name]

    def boot_active(self, count, **options):
        """Create servers with one request, and wait until all are active."""
        servers = self.boot_many(count, **options)
        assert set(self.settle(servers).values()) == {'ACTIVE'}
        return servers

    def boot_on(self, host, count):
        """Create servers on one host; return their IDs."""
        return self.boot_active(count, availability_zone=f'nova:{host}')

    def boot_one_each(self, host, count):
        """Create servers on one host, with a request for each."""
        options = self.server_options()
        return [self.connection.compute.create_server(
            name=f'server-{number}', availability_zone=f'nova:{host}',
            **options).id for number in range(count)]

    def fail_to_boot(self, **options):
        """Create a server that cannot be built; return its fault."""
        [server] = self.boot_many(1, **options)
        assert self.settle([server]) == {server: 'ERROR'}
        return self.connection.compute.get_server(server).fault['message']

    def server_options(self):
        """Return the options with which the SDK creates a server."""
        cloud = self.connection
        flavor, image, network = [
            find(name, ignore_missing=False).id for find, name in (
                (cloud.compute.find_flavor, trial_cloud.FLAVOR),
                (cloud.image.find_image, trial_cloud.IMAGE),
                (cloud.network.find_network, trial_cloud.NETWORK))]
        return {'flavor_id': flavor, 'image_id': image,
                'networks': [{'uuid': network}]}

    def servers(self):
        return list(self.connection.compute.servers(all_projects=True))

    def settle(self, servers, timeout=240):
        """Wait until servers are active or failed; return their statuses."""
        def check():
            status = {server.id: server.status for server in self.servers()
                      if server.id in servers}
            assert set(status) == set(servers)
            assert set(status.values()) <= {'ACTIVE', 'ERROR'}, status
            return status
        return eventually(check, timeout)

    def reboot(self, servers, since, result='Success'):
        """Reboot servers concurrently.

        :param since: a time of time.monotonic().
        :param result: of each reboot; that of all events which have ended.
        :returns: sorted seconds until the end of each reboot.
        """
        before = {server: self.request_ids(server, 'reboot')
                  for server in servers}
        pending, seconds = set(servers), []
        for server in servers:
            self.connection.compute.reboot_server(server, 'HARD')

        def check():
            for server in self.servers():
                if (server.id in pending and server.status == 'ACTIVE'
                        and not server.task_state):
                    request, = (set(self.request_ids(server.id, 'reboot'))
                                - set(before[server.id]))
                    # Before 34, a host that starts also begins an event, and
                    # Nova finishes only one of the two.
                    assert {*self.results(server.id, request)} - {None} == {
                        result}
                    pending.remove(server.id)
                    seconds.append(round(time.monotonic() - since))
            assert not pending

        eventually(check, 240)
        return seconds

    def request_ids(self, server, name):
        """Return the requests of an action on a server."""
        return [action.request_id for action in
                self.connection.compute.server_actions(server)
                if action.action == name]

    def results(self, server, request):
        """Return the results of a request's events."""
        return [event['result'] for event in
                self.connection.compute.get_server_action(
                    request, server).events]

    def delete_all(self):
        for server in self.servers():
            if server.task_state != 'deleting':
                self.connection.compute.delete_server(server)

    def empty(self):
        """Delete all servers, and retry if Nova fails."""
        eventually(self._delete_and_check, 240)

    def _delete_and_check(self):
        self.delete_all()
        self.assert_all_free()

    def assert_deleted(self, server):
        assert server not in {server.id for server in self.servers()}

    def reservations(self):
        response = self.system.baremetal.get('/reservations')
        sdk_exc.raise_from_response(response)
        return response.json()['reservations']

    def capacity(self):
        """Return the number of free nodes, and of all, without the cache."""
        response = self.system.baremetal.get(
            '/reservations/capacity', headers={'Cache-Control': 'no-cache'})
        sdk_exc.raise_from_response(response)
        rows = response.json()['capacity']
        return tuple(sum(row[name] for row in rows)
                     for name in ('free', 'total'))

    def nodes(self):
        return list(self.system.baremetal.nodes(details=True))

    def assert_hosts_up(self):
        assert self.host_states() == dict.fromkeys(self.cloud.hosts, 'up')

    def assert_state(self, host, state):
        assert self.host_states()[host] == state

    def host_states(self):
        return {service.host: service.state
                for service in self.compute_services()}

    def compute_services(self):
        return list(self.connection.compute.services(binary='nova-compute'))

    def report_times(self):
        """Return the time of each host's last report to Nova."""
        return {service.host: service.updated_at
                for service in self.compute_services()}

    def reconfigure(self, **options):
        """Set attributes of Cloud, and configure Nova accordingly."""
        nova = 'nova', 'nova-scheduler', 'nova-conductor'
        self.cloud.stop(*self.cloud.computes)
        before = self.report_times()
        self.cloud.stop(*nova)
        for name, value in options.items():
            setattr(self.cloud, name, value)
        self.cloud.configure()
        self.cloud.update()
        self.cloud.start(*nova, *self.cloud.hosts)
        for host in self.cloud.hosts:
            self.wait_for_report(host, before[host])

    def start_host(self, host):
        """Start nova-compute, and wait until it reports to Nova."""
        before = self.report_times()[host]
        self.cloud.start(host)
        self.wait_for_report(host, before)

    def restart_host(self, host):
        # The old process reports until it has ended.
        self.cloud.stop(host)
        self.start_host(host)

    def wait_for_report(self, host, since, timeout=SOON):
        def check():
            # None if it has just been started for the first time.
            latest = self.report_times()[host]
            assert latest and (since is None or latest > since)
        eventually(check, timeout)

    def configure(self, driver, mode=None, adopt=None):
        self.cloud.driver = driver
        self.cloud.mode, self.cloud.adopt = mode, adopt
        self.cloud.configure()

    def switch(self, driver):
        """Change the driver of the hosts, which have no servers.

        :returns: the hosts whose services were deleted for that.
        """
        for host in self.cloud.hosts:
            self.act('compute', 'service', 'set', '--disable', host,
                     'nova-compute')
        self.cloud.stop(*self.cloud.hosts)
        hosts = {hypervisor.service_details['host'] for hypervisor in
                 self.connection.compute.hypervisors(details=True)}
        for service in self.compute_services():
            if service.host in hosts:
                self.act('compute', 'service', 'delete', service.id)
            else:
                # Nova cannot delete a service without compute nodes.
                self.act('compute', 'service', 'set', '--enable',
                         service.host, 'nova-compute')
        self.configure(driver)
        self.cloud.start_computes()
        return hosts

    def sweep(self):
        """Purge expired reservations."""
        self.cloud.run(
            'ironic-reservations-manage', '--config-file',
            self.cloud.folder / 'ironic' / 'ironic.conf', 'sweep')

    def placement(self, host):
        """Return the inventory and the consumers of a host's provider."""
        placement = self.connection.placement
        providers = list(placement.resource_providers(name=host))
        assert len(providers) == 1
        inventory = [
            inventory for inventory in
            placement.resource_provider_inventories(providers[0])
            if inventory.resource_class == CLASS]
        assert len(inventory) == 1
        response = placement.get(
            f'/resource_providers/{providers[0].id}/allocations')
        sdk_exc.raise_from_response(response)
        return inventory[0], set(response.json()['allocations'])

    def assert_consistent(self):
        """Compare servers, Ironic, reservations and Placement."""
        free, total = self.capacity()
        hosts = {reservation['instance_uuid']: reservation['host']
                 for reservation in self.reservations()}
        # Servers without a host never reached one, or have left it.
        servers = {server.id: server.compute_host
                   for server in self.servers() if server.compute_host}
        assert hosts == servers
        nodes = self.nodes()
        assert len(nodes) == total
        assert set(servers) == {
            node.instance_id for node in nodes if node.instance_id}
        assert free == total - len(servers)
        for host in self.cloud.hosts:
            ours = {server for server in hosts if hosts[server] == host}
            inventory, consumers = self.placement(host)
            assert consumers == ours
            assert inventory.total == total
            assert inventory.reserved == total - free - len(ours)

    def assert_all_free(self):
        self.assert_unused()
        assert not self.reservations()
        self.assert_consistent()

    def assert_unused(self):
        """Check for no servers, with any driver."""
        assert not self.servers()
        assert all(node.provision_state == 'available'
                   and not node.instance_id for node in self.nodes())
