# SPDX-License-Identifier: Apache-2.0
"""Hosts migrate to one row and back while their servers run."""

import pkgutil
import threading

import fixtures
from nova import context
from nova import exception
from nova import objects
from nova.scheduler.client import report
from nova.virt.ironic_reservations import reconciler

from tests.nova import base
from tests.nova import faults
from tests.nova.helpers import compute_nodes
from tests.nova.helpers import hash_ring

OURS = 'nova.virt.ironic_reservations'
ONE_ROW = {'mode': 'reservations', 'adopt': True}
PER_NODE = {'mode': 'per_node', 'adopt': True}


class TestCase(faults.TestCase):
    """A cloud whose first host has one row per node."""

    fleet = [faults.NODE] * 5

    def setUp(self):
        super().setUp()
        self.start_compute('compute-1', reservations={'mode': 'per_node'})
        self.gold = self.flavor()

    def migration(self, host='compute-1'):
        return self.computes[host].manager.driver.migration

    def continue_work(self, host='compute-1'):
        with self.as_host(host):
            self.migration(host).continue_work()

    def migrate(self, to, host='compute-1'):
        """Run all rounds of a migration."""
        self.restart_compute(host, reservations=to)
        self.continue_work(host)
        self.run_periodic(host)
        # The driver's thread restores allocations that Placement has lost.
        self.work(host)

    def places(self, server):
        """Return the server's node, compute node and providers, by name."""
        instance = self.instance(server)
        names = {uuid: name for name, uuid in self.providers().items()}
        row = objects.ComputeNode.get_by_id(context.get_admin_context(),
                                            instance.compute_id)
        return (instance.node, row.hypervisor_hostname,
                *(names[provider] for provider in self.allocations(server)))

    def assert_on_one_row(self, *servers, host='compute-1'):
        for server in servers:
            self.assertEqual((host,) * 3, self.places(server))
        self.assertEqual(
            {(server['id'], host) for server in servers},
            {(reservation['instance_uuid'], reservation['host'])
             for reservation in self.ironic.reservations()})

    def assert_on_nodes(self, *servers):
        for server in servers:
            node = self.ironic.node_of(server).id
            self.assertEqual((node,) * 3, self.places(server))

    def assert_consistent(self):
        """Check the result of "nova-manage placement audit", and providers."""
        self.assertEqual(set(compute_nodes()), set(self.providers()))
        instances = objects.InstanceList.get_all(context.get_admin_context())
        client = report.report_client_singleton()
        for name, uuid in self.providers().items():
            self.assertEqual(
                {instance.uuid for instance in instances
                 if instance.node == name},
                set(client.get_allocations_for_resource_provider(
                    context.get_admin_context(), uuid).allocations))


class TestMigration(TestCase):

    def test_with_a_standby(self):
        """As in a new container, which has lost the compute_id."""
        self.addCleanup(self.sql, 'DELETE FROM reservations_hosts')
        server = None
        for mode in PER_NODE, ONE_ROW, ONE_ROW, PER_NODE:
            self._compute_ids.clear()
            self.migrate({**mode, 'standby': True})
            server = server or self.boot(self.gold)
            if mode is ONE_ROW:
                self.assert_on_one_row(server)
            else:
                self.assert_on_nodes(server)
            self.assert_consistent()

    def test_repeated_migrations(self):
        # First without servers.
        self.migrate(ONE_ROW)
        self.assertEqual({'compute-1': 'compute-1'}, compute_nodes())
        self.migrate(PER_NODE)
        self.assertEqual(5, len(compute_nodes()))
        self.assert_consistent()
        # A hold would refuse the second extra spec.
        servers = self.boot_many(2, self.flavor(**{
            'capabilites:rack': 'r1', 'reservations:nodes': 'x'}))
        self.assert_on_nodes(*servers)
        self.wire.requests.clear()
        for _ in range(2):
            self.migrate(ONE_ROW)
            self.assert_on_one_row(*servers)
            self.assertEqual({'compute-1': 'compute-1'}, compute_nodes())
            gold = self.inventories('compute-1')['CUSTOM_GOLD']
            self.assertEqual((5, 0), (gold['total'], gold['reserved']))
            self.assert_consistent()

            self.migrate(PER_NODE)
            self.assert_on_nodes(*servers)
            self.assertEqual({node.id for node in self.ironic.nodes()},
                             set(compute_nodes()))
            for _ in range(2):
                self.run_periodic()
            for name in compute_nodes():
                gold = self.inventories(name)['CUSTOM_GOLD']
                self.assertEqual(
                    int(self.ironic.baremetal.get_node(name).instance_id
                        is not None), gold['reserved'])
            self.assert_consistent()
        self.assertEqual({faults.HOLD}, self.writes())
        self.assertEqual(1, self.log.count(
            'Extra spec capabilites:rack of flavor'))
        for server in servers:
            self.assertEqual(
                [(action, f'compute_{action.replace("-", "_")}', 'Success',
                  'compute-1') for action in ('switch-back', 'adopt') * 2],
                self.action_events(server, 'adopt', 'switch-back'))
            self.delete(server)
        self.run_periodic()
        self.assert_nothing_left()

    def test_earlier_cast_for_a_server(self):
        """It names the former compute node of the server."""
        server = self.boot(self.gold)
        before = self.instance(server)
        self.migrate(ONE_ROW)
        self.assert_on_one_row(server)
        self.wire.headers.clear()
        host = self.computes['compute-1'].manager.driver
        host.power_on(context.get_admin_context(), before, [])
        self.assertEqual(
            [f'instance={server["id"]}; host=compute-1'],
            [header for method, _, header in self.wire.headers
             if method == 'PUT'])
        self.assign(server, 'compute-2')
        self.wire.requests.clear()
        self.assertRaises(exception.InstanceNotFound, host.power_off, before)
        self.assertEqual(set(), self.writes())

    def test_missing_compute_node(self):
        """A server in a restored database is on a deleted compute node."""
        servers = server, _ = self.boot_many(2, self.gold)
        before = self.instance(server)
        self.migrate(ONE_ROW)
        self.assert_on_one_row(*servers)
        self.continue_work()
        self.save(server, node=before.node, compute_id=before.compute_id)
        # It was checked a short while ago.
        self.continue_work()
        self.assertEqual(before.node, self.instance(server).node)
        self.restart_compute('compute-1')
        self.continue_work()
        self.assert_on_one_row(*servers)

    def test_server_groups(self):
        self.flags(group='reservations',
                   server_group_by='capability:rack')
        group = self.server_group('affinity')
        # No node has a rack: with one row the build would fail.
        member, other = self.boot(self.gold, group=group), self.boot(self.gold)
        self.migrate(ONE_ROW)
        self.assert_on_one_row(member, other)
        self.assertEqual(
            {member['id']: {'uuid': group, 'policy': 'pack',
                            'by': 'capability:rack', 'domain': None},
             other['id']: None},
            {reservation['instance_uuid']: reservation.get('group')
             for reservation in self.ironic.reservations()})

    def test_servers_are_usable_afterwards(self):
        first, second, third = self.boot_many(3, self.gold)
        self.migrate(ONE_ROW)
        self.act(first, 'os-stop', 'SHUTOFF')
        self.act(first, 'os-start', 'ACTIVE')
        self.act(first, 'reboot', 'ACTIVE', type='HARD')
        self.rebuild(second, self.image())
        self.delete(third)
        fourth = self.boot(self.gold)
        self.assert_on_one_row(first, second, fourth)
        self.migrate(PER_NODE)
        self.assert_on_nodes(first, second, fourth)
        self.act(first, 'reboot', 'ACTIVE', type='HARD')
        self.rebuild(second, self.image())
        self.run_periodic()
        fifth = self.boot(self.gold)
        self.delete(first, second, fourth, fifth)
        self.run_periodic()
        self.assert_nothing_left()

    @base.smoke
    def test_migration_thread(self):
        """The driver's thread migrates by itself."""
        server = self.boot(self.gold)
        self.set_timing(interval=0.2)
        self.restart_compute('compute-1', reservations=ONE_ROW)
        self.wait_for(lambda: self.assert_on_one_row(server))
        # A process whose start fails must be able to exit.
        self.assertEqual({True}, {
            thread.daemon for thread in threading.enumerate()
            if thread.name == 'reservations'})


class TestConflicts(TestCase):
    """Servers that cannot be migrated at once."""

    def test_retry_in_the_next_round(self):
        servers = busy, lock, nodeless, others, idle = self.boot_many(
            5, self.gold)
        nodes = {server['id']: self.ironic.node_of(server).id
                 for server in servers}
        self.restart_compute('compute-1', reservations=ONE_ROW)
        self.save(busy, task_state='rebooting')
        self.sql("UPDATE nodes SET reservation = 'conductor' "
                 'WHERE instance_uuid = :i', i=lock['id'])
        self.sql('UPDATE nodes SET instance_uuid = NULL '
                 'WHERE instance_uuid = :i', i=nodeless['id'])
        self.ironic.http.post('/v1/reservations?adopt=true', json={
            'instance_uuid': others['id'], 'host': 'compute-2',
        }).raise_for_status()
        for _ in range(2):
            self.continue_work()
            self.run_periodic()
        self.assertEqual(('compute-1',) * 3, self.places(idle))
        self.assertEqual(
            {'compute-1', *(nodes[server['id']] for server in servers[:-1])},
            set(compute_nodes()))
        for server in servers[:-1]:
            self.assertEqual((nodes[server['id']],) * 3, self.places(server))
        for server, reason in (
                (busy, 'Nova is working on it (rebooting)'),
                (lock, 'its node could not be adopted: The node of instance '
                       f'{lock["id"]} is locked by a conductor'),
                (nodeless, 'no node carries it: delete it'),
                (others, 'its node could not be adopted: Instance '
                         f'{others["id"]} already holds a node')):
            # Logged once in two rounds.
            self.assertEqual(1, self.log.count(
                f'Instance {server["id"]} was not moved; will retry: '
                f'{reason}'))
        self.assertIn('Host compute-1 has migrated 1 instances to its one '
                      'compute node; 4 are left', self.log)
        self.assertEqual(
            {idle['id']: 'compute-1', others['id']: 'compute-2'},
            {reservation['instance_uuid']: reservation['host']
             for reservation in self.ironic.reservations()})
        self.sql('UPDATE nodes SET reservation = NULL')
        self.save(busy, task_state=None)
        self.continue_work()
        for server in busy, lock:
            self.assertEqual(('compute-1',) * 3, self.places(server))

    def test_concurrent_deletion(self):
        first, second = self.boot_many(2, self.gold)
        self.restart_compute('compute-1', reservations=ONE_ROW)
        lock = reconciler.Reconciler.call_with_lock

        def delete_and_lock(*args):
            if not self.instance(first).deleted:
                self.delete(first)
            return lock(*args)

        with fixtures.MonkeyPatch(
                f'{OURS}.reconciler.Reconciler.call_with_lock',
                delete_and_lock):
            self.continue_work()
        self.run_periodic()
        self.assert_on_one_row(second)
        self.assert_consistent()

    def test_malformed_instance(self):
        first, second = self.boot_many(2, self.gold)
        self.restart_compute('compute-1', reservations=ONE_ROW)
        # Saved after the start, because Nova 33 does not start with it.
        instance = self.instance(first)
        instance.system_metadata['image_min_ram'] = 'much'
        instance.save()
        self.continue_work()
        self.assertEqual(('compute-1',) * 3, self.places(second))
        self.assertIn(f"Instance {first['id']} was not moved; will retry: "
                      "invalid literal for int() with base 10: 'much'",
                      self.log)

    def test_deleted_while_the_host_is_down(self):
        """The migrated host tears its node down."""
        first, second = self.boot_many(2, self.gold)
        self.take_down('compute-1')
        self.delete(first, wait=False)
        self.wait_for(lambda: self.assertTrue(self.instance(first).deleted))
        self.bring_back('compute-1', reservations=ONE_ROW)
        self.continue_work()
        for _ in range(2):
            self.run_periodic()
            self.run_periodic(task='_cleanup_running_deleted_instances')
        self.assert_on_one_row(second)
        self.assertEqual({second['id'], None}, {
            node.instance_id for node in self.ironic.nodes()})
        # The next round is one request.
        self.wire.requests.clear()
        self.run_periodic(task='_cleanup_running_deleted_instances')
        self.assertEqual([('GET', '/v1/reservations')], [
            request[:2] for request in self.wire.requests])


class Killed(BaseException):
    """The process is killed; nothing catches this."""


class TestInterruptions(TestCase):
    """The host continues where it was killed."""

    #: The functions after which the host is killed.
    STEPS = {
        ONE_ROW['mode']: ['client.Client.adopt', 'placement.update_inventory',
                          'placement.allocate'],
        PER_NODE['mode']: ['placement.update_inventory', 'placement.allocate'],
    }

    def die_after(self, name, to):
        """Restart the host; kill it after the first call of a function."""
        function = pkgutil.resolve_name(f'{OURS}.{name}')

        def call_and_die(*args, **kwargs):
            function(*args, **kwargs)
            raise Killed

        self.restart_compute('compute-1', reservations=to)
        with fixtures.MonkeyPatch(f'{OURS}.{name}', call_and_die):
            self.assertRaises(Killed, self.continue_work)

    def test_killed_migration(self):
        servers = self.boot_many(2, self.gold)
        for name in self.STEPS['reservations']:
            self.die_after(name, ONE_ROW)
            self.run_periodic()
        self.migrate(ONE_ROW)
        self.assert_on_one_row(*servers)
        self.assert_consistent()
        for name in self.STEPS['per_node']:
            self.die_after(name, PER_NODE)
            self.run_periodic()
        self.migrate(PER_NODE)
        self.assert_on_nodes(*servers)
        self.assert_consistent()

    def test_reversed_migration(self):
        """It is killed after an allocation, and migrated back."""
        servers = self.boot_many(2, self.gold)
        self.die_after('placement.allocate', ONE_ROW)
        self.migrate(PER_NODE)
        self.assert_on_nodes(*servers)
        self.assert_consistent()
        self.migrate(ONE_ROW)
        self.die_after('placement.allocate', PER_NODE)
        self.migrate(ONE_ROW)
        self.assert_on_one_row(*servers)
        self.assert_consistent()

    def test_ironic_is_unavailable(self):
        server = self.boot(self.gold)
        self.restart_compute('compute-1', reservations=ONE_ROW)
        self.wire.on('POST', '.*', faults.cut)
        self.continue_work()
        self.assertEqual(self.ironic.node_of(server).id,
                         self.instance(server).node)
        self.continue_work()
        self.assert_on_one_row(server)


class TestThreeHosts(TestCase):

    fleet = [faults.NODE] * 9

    def test_one_after_another(self):
        for host in base.HOSTS[1:]:
            self.start_compute(host, reservations={'mode': 'per_node'})
        self.run_periodic()
        servers = self.boot_many(6, self.gold)
        for number, host in enumerate(base.HOSTS, 1):
            self.migrate(ONE_ROW, host)
            self.run_periodic()
            servers.append(self.boot(self.gold, host=host))
            self.run_periodic()
            migrated_hosts = base.HOSTS[:number]
            nodes = self.ironic.nodes()
            free = [node for node in nodes if node.instance_id is None]
            hosts = {server['id']: self.instance(server).host
                     for server in servers}
            carriers = {node.id: hosts[node.instance_id] for node in nodes
                        if node.instance_id}
            # The ring also has hosts with one row: the nodes that it assigns
            # to them have no compute node, but are in their inventory.
            self.assertEqual({**{host: host for host in migrated_hosts}, **{
                node: owner for node, owner in {
                    **hash_ring(free, *base.HOSTS), **carriers}.items()
                if owner not in migrated_hosts}}, {
                    # Other hosts keep compute nodes that a migrated host uses.
                    row: owner for row, owner in compute_nodes().items()
                    if carriers.get(row) not in migrated_hosts})
            gold = self.inventories(host)['CUSTOM_GOLD']
            self.assertEqual((9, len(free)), (
                gold['total'], gold['total'] - gold['reserved']
                - self.usages(host)['CUSTOM_GOLD']))
            self.assert_consistent()
        self.assertEqual({host: host for host in base.HOSTS}, compute_nodes())
        self.delete(*servers)
        self.run_periodic()
        self.assert_nothing_left()
