# SPDX-License-Identifier: Apache-2.0
"""Hosts that have servers become one row, and go back, while these run."""

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
from tests.nova.rows import ring
from tests.nova.rows import rows

OURS = 'nova.virt.ironic_reservations'
ONE_ROW = {'mode': 'reservations', 'adopt': True}
PER_NODE = {'mode': 'per_node', 'adopt': True}


class TestCase(faults.TestCase):
    """A cloud whose first host has a row per node."""

    fleet = [faults.NODE] * 5

    def setUp(self):
        super().setUp()
        self.start_compute('compute-1', reservations={'mode': 'per_node'})
        self.gold = self.flavor()

    def migration(self, host='compute-1'):
        return self.computes[host].manager.driver.migration

    def go_on(self, host='compute-1'):
        with self.as_host(host):
            self.migration(host).continue_work()

    def switch(self, to, host='compute-1'):
        """All rounds that it takes."""
        self.restart_compute(host, reservations=to)
        self.go_on(host)
        self.run_periodic(host)
        # What Placement has lost is put back by a thread of the driver's own.
        self.work(host)

    def places(self, server):
        """The names of its row, of that's id and of its provider."""
        instance = self.instance(server)
        names = {uuid: name for name, uuid in self.providers().items()}
        row = objects.ComputeNode.get_by_id(context.get_admin_context(),
                                            instance.compute_id)
        return (instance.node, row.hypervisor_hostname,
                *(names[each] for each in self.allocations(server)))

    def assert_on_one_row(self, *servers, host='compute-1'):
        for server in servers:
            self.assertEqual((host,) * 3, self.places(server))
        self.assertEqual(
            {(server['id'], host) for server in servers},
            {(each['instance_uuid'], each['host'])
             for each in self.ironic.reservations()})

    def assert_on_nodes(self, *servers):
        for server in servers:
            node = self.ironic.node_of(server).id
            self.assertEqual((node,) * 3, self.places(server))

    def no_disagreement(self):
        """What nova-manage placement audit looks for, and rows for nobody."""
        names = rows()
        self.assertEqual(set(names), set(self.providers()))
        instances = objects.InstanceList.get_all(context.get_admin_context())
        known = {each.uuid for each in instances}
        client = report.report_client_singleton()
        for name, uuid in self.providers().items():
            held = client.get_allocations_for_resource_provider(
                context.get_admin_context(), uuid).allocations
            self.assertEqual(
                {each.uuid for each in instances if each.node == name},
                set(held) & known)
            self.assertLessEqual(set(held), known)


class TestThereAndBack(TestCase):

    def test_there_and_back_and_there(self):
        # Without servers, first.
        self.switch(ONE_ROW)
        self.assertEqual({'compute-1': 'compute-1'}, rows())
        self.switch(PER_NODE)
        self.assertEqual(5, len(rows()))
        self.no_disagreement()
        # A hold would refuse the second of them.
        servers = self.boot_many(2, self.flavor(**{
            'capabilites:rack': 'r1', 'reservations:nodes': 'x'}))
        self.assert_on_nodes(*servers)
        self.wire.requests.clear()
        for _ in range(2):
            self.switch(ONE_ROW)
            self.assert_on_one_row(*servers)
            self.assertEqual({'compute-1': 'compute-1'}, rows())
            gold = self.inventories('compute-1')['CUSTOM_GOLD']
            self.assertEqual((5, 0), (gold['total'], gold['reserved']))
            self.no_disagreement()

            self.switch(PER_NODE)
            self.assert_on_nodes(*servers)
            self.assertEqual({node.id for node in self.ironic.nodes()},
                             set(rows()))
            for _ in range(2):
                self.run_periodic()
            for name in rows():
                gold = self.inventories(name)['CUSTOM_GOLD']
                self.assertEqual(
                    int(self.ironic.baremetal.get_node(name).instance_id
                        is not None), gold['reserved'])
            self.no_disagreement()
        self.assertEqual({faults.HOLD}, self.written())
        self.assertEqual(1, self.log.count(
            'Extra spec capabilites:rack of flavor'))
        for server in servers:
            self.assertEqual(
                [(action, f'compute_{action.replace("-", "_")}', 'Success',
                  'compute-1') for action in ('switch-back', 'adopt') * 2],
                self.happened(server, 'adopt', 'switch-back'))
            self.delete(server)
        self.run_periodic()
        self.assert_nothing_left()

    def test_cast_of_before(self):
        """It has the server on the row of its node, where it is no more."""
        server = self.boot(self.gold)
        before = self.instance(server)
        self.switch(ONE_ROW)
        self.assert_on_one_row(server)
        self.wire.said.clear()
        host = self.computes['compute-1'].manager.driver
        host.power_on(context.get_admin_context(), before, [])
        self.assertEqual(
            [f'instance={server["id"]}; host=compute-1'],
            [said for method, _, said in self.wire.said if method == 'PUT'])
        self.give(server, 'compute-2')
        self.wire.requests.clear()
        self.assertRaises(exception.InstanceNotFound, host.power_off, before)
        self.assertEqual(set(), self.written())

    def test_row_that_has_gone(self):
        """A database that was restored has a server on it, and no such row."""
        servers = lost, _ = self.boot_many(2, self.gold)
        gone = self.instance(lost)
        self.switch(ONE_ROW)
        self.assert_on_one_row(*servers)
        self.go_on()
        self.set(lost, node=gone.node, compute_id=gone.compute_id)
        # It was looked at a short while ago.
        self.go_on()
        self.assertEqual(gone.node, self.instance(lost).node)
        self.restart_compute('compute-1')
        self.go_on()
        self.assert_on_one_row(*servers)

    def test_server_groups(self):
        self.flags(group='reservations',
                   server_group_by='capability:rack')
        group = self.api.post_server_groups(
            {'name': 'near', 'policy': 'affinity'})['id']
        # No node states a rack, and no such server could be built now.
        member, other = self.boot(self.gold, group=group), self.boot(self.gold)
        self.switch(ONE_ROW)
        self.assert_on_one_row(member, other)
        self.assertEqual(
            {member['id']: {'uuid': group, 'policy': 'pack',
                            'by': 'capability:rack', 'domain': None},
             other['id']: None},
            {each['instance_uuid']: each.get('group')
             for each in self.ironic.reservations()})

    def test_servers_are_used_after_it(self):
        first, second, third = self.boot_many(3, self.gold)
        self.switch(ONE_ROW)
        self.act(first, 'os-stop', 'SHUTOFF')
        self.act(first, 'os-start', 'ACTIVE')
        self.act(first, 'reboot', 'ACTIVE', type='HARD')
        self.rebuild(second, self.image())
        self.delete(third)
        fourth = self.boot(self.gold)
        self.assert_on_one_row(first, second, fourth)
        self.switch(PER_NODE)
        self.assert_on_nodes(first, second, fourth)
        self.act(first, 'reboot', 'ACTIVE', type='HARD')
        self.rebuild(second, self.image())
        self.run_periodic()
        fifth = self.boot(self.gold)
        self.delete(first, second, fourth, fifth)
        self.run_periodic()
        self.assert_nothing_left()

    @base.smoke
    def test_by_itself(self):
        """The worker thread does it, without anybody's call."""
        server = self.boot(self.gold)
        self.useFixture(fixtures.MonkeyPatch(
            f'{OURS}.driver.INTERVAL', 0.2))
        self.restart_compute('compute-1', reservations=ONE_ROW)
        self.wait_for(lambda: self.assert_on_one_row(server))
        # A process whose start fails must be able to end.
        self.assertEqual({True}, {each.daemon for each in threading.enumerate()
                                  if each.name == 'reservations'})


class TestAtWork(TestCase):
    """What cannot be brought over at once."""

    def test_left_for_the_next_round(self):
        servers = busy, locked, gone, others, idle = self.boot_many(
            5, self.gold)
        nodes = {server['id']: self.ironic.node_of(server).id
                 for server in servers}
        self.restart_compute('compute-1', reservations=ONE_ROW)
        self.set(busy, task_state='rebooting')
        self.sql("UPDATE nodes SET reservation = 'conductor' "
                 'WHERE instance_uuid = :i', i=locked['id'])
        self.sql('UPDATE nodes SET instance_uuid = NULL '
                 'WHERE instance_uuid = :i', i=gone['id'])
        self.ironic.http.post('/v1/reservations?adopt=true', json={
            'instance_uuid': others['id'], 'host': 'compute-2',
        }).raise_for_status()
        for _ in range(2):
            self.go_on()
            self.run_periodic()
        self.assertEqual(('compute-1',) * 3, self.places(idle))
        left = [nodes[server['id']] for server in servers[:-1]]
        self.assertEqual({'compute-1', *left}, set(rows()))
        for server in servers[:-1]:
            self.assertEqual((nodes[server['id']],) * 3, self.places(server))
        for server, why in (
                (busy, 'Nova is working on it (rebooting)'),
                (locked, 'its node could not be adopted: The node of instance '
                         f'{locked["id"]} is locked by a conductor'),
                (gone, 'no node carries it: delete it'),
                (others, 'its node could not be adopted: Instance '
                         f'{others["id"]} already holds a node')):
            # Once, although it was looked at twice.
            self.assertEqual(1, self.log.count(
                f'Instance {server["id"]} was not moved; will retry: {why}'))
        self.assertIn('Host compute-1 has migrated 1 instances to its one '
                      'row; 4 are left', self.log)
        held = {each['instance_uuid']: each['host']
                for each in self.ironic.reservations()}
        self.assertEqual({idle['id']: 'compute-1', others['id']: 'compute-2'},
                         held)
        self.sql('UPDATE nodes SET reservation = NULL')
        self.set(busy, task_state=None)
        self.go_on()
        for server in busy, locked:
            self.assertEqual(('compute-1',) * 3, self.places(server))

    def test_deleted_meanwhile(self):
        first, second = self.boot_many(2, self.gold)
        self.restart_compute('compute-1', reservations=ONE_ROW)
        locked = reconciler.Reconciler.call_with_lock

        def late(*args):
            if not self.instance(first).deleted:
                self.delete(first)
            return locked(*args)

        with fixtures.MonkeyPatch(
                f'{OURS}.reconciler.Reconciler.call_with_lock', late):
            self.go_on()
        self.run_periodic()
        self.assert_on_one_row(second)
        self.no_disagreement()

    def test_one_that_cannot_be_understood(self):
        first, second = self.boot_many(2, self.gold)
        self.restart_compute('compute-1', reservations=ONE_ROW)
        # Not before: Nova 33 does not start with it.
        instance = self.instance(first)
        instance.system_metadata['image_min_ram'] = 'much'
        instance.save()
        self.go_on()
        self.assertEqual(('compute-1',) * 3, self.places(second))
        self.assertIn(f"Instance {first['id']} was not moved; will retry: "
                      "invalid literal for int() with base 10: 'much'",
                      self.log)

    def test_deleted_while_the_host_is_down(self):
        """Its machine is torn down by the host that is one row now."""
        first, second = self.boot_many(2, self.gold)
        self.die('compute-1')
        self.delete(first, wait=False)
        self.wait_for(lambda: self.assertTrue(self.instance(first).deleted))
        self.come_back('compute-1', reservations=ONE_ROW)
        self.go_on()
        for _ in range(2):
            self.run_periodic()
            self.run_periodic(task='_cleanup_running_deleted_instances')
        self.assert_on_one_row(second)
        self.assertEqual({second['id'], None}, {
            node.instance_id for node in self.ironic.nodes()})
        # It is looked for once.
        self.wire.requests.clear()
        self.run_periodic(task='_cleanup_running_deleted_instances')
        self.assertEqual([('GET', '/v1/reservations')], [
            each[:2] for each in self.wire.requests])


class Killed(BaseException):
    """Nothing catches it."""


class TestInterrupted(TestCase):
    """The host goes on wherever it was killed."""

    #: What a step calls first, and after which calls of it the host dies.
    STEPS = {
        ONE_ROW['mode']: ['client.Client.adopt', 'placement.update_inventory',
                          'placement.allocate'],
        PER_NODE['mode']: ['placement.update_inventory', 'placement.allocate'],
    }

    def die_after(self, name, to):
        """Restart the host; it dies behind the first call of a function."""
        real = pkgutil.resolve_name(f'{OURS}.{name}')

        def dying(*args, **kwargs):
            real(*args, **kwargs)
            raise Killed

        self.restart_compute('compute-1', reservations=to)
        with fixtures.MonkeyPatch(f'{OURS}.{name}', dying):
            self.assertRaises(Killed, self.go_on)

    def test_killed(self):
        servers = self.boot_many(2, self.gold)
        for name in self.STEPS['reservations']:
            self.die_after(name, ONE_ROW)
            self.run_periodic()
        self.switch(ONE_ROW)
        self.assert_on_one_row(*servers)
        self.no_disagreement()
        for name in self.STEPS['per_node']:
            self.die_after(name, PER_NODE)
            self.run_periodic()
        self.switch(PER_NODE)
        self.assert_on_nodes(*servers)
        self.no_disagreement()

    def test_turned_round(self):
        """It is killed between allocation and instance, and sent back."""
        servers = self.boot_many(2, self.gold)
        self.die_after('placement.allocate', ONE_ROW)
        self.switch(PER_NODE)
        self.assert_on_nodes(*servers)
        self.no_disagreement()
        self.switch(ONE_ROW)
        self.die_after('placement.allocate', PER_NODE)
        self.switch(ONE_ROW)
        self.assert_on_one_row(*servers)
        self.no_disagreement()

    def test_ironic_is_away(self):
        server = self.boot(self.gold)
        self.restart_compute('compute-1', reservations=ONE_ROW)
        self.wire.on('POST', '.*', faults.cut)
        self.go_on()
        self.assertEqual(self.ironic.node_of(server).id,
                         self.instance(server).node)
        self.go_on()
        self.assert_on_one_row(server)


class TestMixed(TestCase):
    """Three hosts, one after the other."""

    fleet = [faults.NODE] * 9

    def test_one_after_the_other(self):
        for host in base.HOSTS[1:]:
            self.start_compute(host, reservations={'mode': 'per_node'})
        self.run_periodic()
        servers = self.boot_many(6, self.gold)
        for number, host in enumerate(base.HOSTS, 1):
            self.switch(ONE_ROW, host)
            self.run_periodic()
            # Whoever is asked for builds, whatever the others are.
            servers.append(self.boot(self.gold, host=host))
            self.run_periodic()
            done = base.HOSTS[:number]
            nodes = self.ironic.nodes()
            free = [node for node in nodes if node.instance_id is None]
            hosts = {server['id']: self.instance(server).host
                     for server in servers}
            carriers = {node.id: hosts[node.instance_id] for node in nodes
                        if node.instance_id}
            # The ring counts those that are one row, too: what it gives to
            # them has no row, but is in what they offer.
            self.assertEqual({**dict(zip(done, done, strict=True)), **{
                node: owner for node, owner in {
                    **ring(free, *base.HOSTS), **carriers}.items()
                if owner not in done}}, {
                    # Others keep the rows of what one row has taken.
                    row: owner for row, owner in rows().items()
                    if carriers.get(row) not in done})
            gold = self.inventories(host)['CUSTOM_GOLD']
            self.assertEqual((9, len(free)), (
                gold['total'], gold['total'] - gold['reserved']
                - self.usages(host)['CUSTOM_GOLD']))
            self.no_disagreement()
        self.assertEqual({host: host for host in base.HOSTS}, rows())
        self.delete(*servers)
        self.run_periodic()
        self.assert_nothing_left()
