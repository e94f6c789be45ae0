# SPDX-License-Identifier: Apache-2.0
"""The command "openstack baremetal reservation audit" in a cloud."""

import json
import uuid

import fixtures
from nova import context
from nova import objects
import requests

from ironic_reservations.osc.audit import repairs
from tests.nova import audits
from tests.nova import base
from tests.nova import faults
from tools import services


class TestCase(audits.Command, faults.TestCase):

    def repair(self, *args):
        """Return the results by kind, instance's UUID and node.

        Check that no node was changed, and that a repetition changes nothing.
        """
        wire = faults.Wire(self.ironic)
        wire.url = self.ironic.url
        with wire:
            first = self.command('audit', '--repair', *args)
            self.assertTrue(first.stdout, first.stderr)
            before = self.snapshot()
            second = self.command('audit', '--repair', *args)
            self.assertEqual(before, self.snapshot())
        self.assertEqual(set(), {
            (method, path) for method, path, _ in wire.requests
            if method != 'GET' and not path.startswith('/v1/reservations')})
        findings = json.loads(first.stdout)
        remaining = [finding['Kind'] for finding in findings
                     if finding['What to Do'] != 'nothing']
        for result in first, second:
            self.assertEqual(1 if remaining else 0, result.returncode)
        self.assertEqual(remaining, [
            finding['Kind'] for finding in json.loads(second.stdout)])
        return {(finding['Kind'], finding['Instance'], finding['Node']):
                finding['Repair'] for finding in findings}

    def snapshot(self):
        """Return all nodes of Ironic, the reservations and allocations."""
        # Conductors also write these for nodes that are at rest.
        volatile = 'updated_at', 'power_state', 'reservation'
        return ([{name: value for name, value in node.to_dict().items()
                  if name not in volatile} for node in self.ironic.nodes()],
                self.ironic.reservations(),
                {name: self.placement.get(
                    f'/resource_providers/{provider}/allocations').body
                 for name, provider in self.providers().items()})

    def assert_no_repair(self, findings):
        before = self.snapshot()
        self.assertEqual(
            {finding[:3]: 'left' for finding in findings}, self.repair())
        self.assertEqual(before, self.snapshot())

    def name(self, server):
        return self.ironic.node_of(server).name

    def touch(self, reservation):
        """Change the node of a reservation, as a host does first."""
        self.ironic.baremetal.patch_node(reservation['node_uuid'], [
            {'op': 'add', 'path': '/instance_info/image_source',
             'value': 'x'}])

    def allocate(self, consumer, *hosts):
        """Set a consumer's allocation to these hosts' providers."""
        path = f'/allocations/{consumer}'
        before = self.placement.get(path, version='1.28').body
        body = {'allocations': {self.providers()[host]: {
                    'resources': {'CUSTOM_GOLD': 1}} for host in hosts},
                'consumer_generation': before.get('consumer_generation'),
                'project_id': before.get('project_id', 'project'),
                'user_id': before.get('user_id', 'user')}
        response = self.placement.put(path, body, version='1.28')
        self.assertEqual(204, response.status, response.content)


class TestOneRow(TestCase):

    # Lists have several pages.
    ironic_config = {'api': {'max_limit': 3}}
    fleet = [{**faults.NODE, 'name': f'node-{number}'}
             for number in range(10)]

    def setUp(self):
        super().setUp()
        for host in base.HOSTS[:2]:
            self.start_compute(host)

    def test_repair(self):
        flavor = self.flavor()
        servers = no_reservation, no_allocation, wrong = self.boot_many(
            3, flavor, host='compute-1')
        self.run_periodic()
        allocations = [self.allocations(server) for server in servers]
        spec = self.spec(no_reservation)
        self.delete_reservation(no_reservation)
        self.placement.delete(f'/allocations/{no_allocation["id"]}')
        self.allocate(wrong['id'], 'compute-2')
        consumer = str(uuid.uuid4())
        self.allocate(consumer, 'compute-1')
        reservation = self.hold(resource_class='gold', host='compute-2')
        free = self.create_provider()
        self.assert_findings(
            ('no-reservation', no_reservation['id'],
             self.name(no_reservation), 'compute-1'),
            ('no-allocation', no_allocation['id'], self.name(no_allocation),
             'compute-1'),
            ('wrong-allocation', wrong['id'], self.name(wrong), 'compute-1'),
            ('wrong-allocation', consumer, None, 'compute-1'),
            host='compute-1')
        self.assertEqual({
            ('no-reservation', no_reservation['id'],
             self.name(no_reservation)): 'done: host compute-1 holds it again',
            ('no-allocation', no_allocation['id'], self.name(no_allocation)):
                'done: allocated from the provider of host compute-1',
            ('wrong-allocation', wrong['id'], self.name(wrong)):
                'done: allocated from the provider of host compute-1',
            ('wrong-allocation', consumer, None): 'done: deleted',
            ('no-server', reservation['instance_uuid'],
             reservation['node_name']): 'done: lease expired',
            ('stale-row', None, free.name): 'done: provider deleted',
        }, self.repair())
        self.assertEqual(allocations, [
            self.allocations(server) for server in servers])
        # The API shows only a part of the image and the flavor.
        new_spec = self.spec(no_reservation)
        self.assertEqual({'id': self.plain_image}, new_spec.pop('image'))
        self.assertLessEqual(new_spec.items(), spec.items())
        self.act(no_reservation, 'reboot', 'ACTIVE', type='HARD')
        self.delete(*servers)
        self.hold(candidate_nodes=[reservation['node_uuid']])

    def test_instance_in_capitals(self):
        """Nova and Placement spell its UUID in small letters."""
        server = self.boot(self.flavor(), host='compute-1')
        name = self.name(server)
        self.sql('UPDATE nodes SET instance_uuid = UPPER(instance_uuid)')
        self.assert_findings()
        self.placement.delete(f'/allocations/{server["id"]}')
        self.assertEqual(
            {('no-allocation', server['id'], name):
             'done: allocated from the provider of host compute-1'},
            self.repair())

    def test_findings_that_need_an_operator(self):
        flavor = self.flavor()
        failure, nodeless, split, guest, zombie = self.boot_many(
            5, flavor, host='compute-1')
        self.act(guest, 'os-stop', 'SHUTOFF')
        self.run_periodic()
        self.assert_findings()

        self.sql("UPDATE nodes SET provision_state = 'deploy failed' "
                 'WHERE instance_uuid = :i', i=failure['id'])
        self.delete_reservation(nodeless)
        self.allocate(split['id'], 'compute-1', 'compute-2')
        self.assign(guest, 'compute-2')
        name = self.name(zombie)
        self.take_down('compute-1')
        self.delete(zombie)
        stale = self.hold(resource_class='gold', expires_in=60)
        self.expire(stale['instance_uuid'])
        self.touch(stale)
        unavailable = self.hold(resource_class='gold')
        self.ironic.baremetal.set_node_provision_state(
            unavailable['node_uuid'], 'manage')
        baremetal = self.ironic.baremetal
        # These two have an owner, and are no finding.
        reservation = self.hold(resource_class='gold')
        allocation = baremetal.wait_for_allocation(
            baremetal.create_allocation(resource_class='gold'))
        orphan = self.free_node()
        nodes = [baremetal.get_node(node) for node in (
            reservation['node_uuid'], allocation.node_id, orphan.id)]
        for node in nodes:
            baremetal.set_node_provision_state(node, 'active')
        self.ironic.settle(nodes, provision_state='active')
        # It still has the VIF and the instance_info of the server.
        dirty = self.name(nodeless)
        self.sql("UPDATE nodes SET instance_uuid = NULL, provision_state = "
                 "'available' WHERE instance_uuid = :i", i=nodeless['id'])
        wrong_host = 'wrong-host', guest['id'], self.name(guest), 'compute-1'
        findings_of_first = [
            ('failed', failure['id'], self.name(failure), 'compute-1'),
            ('no-reservation', nodeless['id'], None, 'compute-1'),
            ('no-server', zombie['id'], name, 'compute-1'), wrong_host]
        findings = [
            *findings_of_first,
            # An audit of one host does not read the allocations of other
            # hosts.
            ('wrong-allocation', split['id'], self.name(split),
             'compute-1'),
            ('lapsed-touched', stale['instance_uuid'], stale['node_name'],
             None),
            ('unavailable', unavailable['instance_uuid'],
             unavailable['node_name'], None),
            ('orphan-node', None, orphan.name, None),
            ('prepared', None, dirty, None)]
        for host, expected in (
                (None, findings), ('compute-1', findings_of_first),
                ('compute-2', [wrong_host]), ('compute-3', [])):
            self.assert_findings(*expected, host=host)
        self.assert_no_repair(findings)

    def test_refused_repairs(self):
        """Services refuse repairs until a conflict is resolved."""
        flavor = self.flavor()
        server, bare = self.boot_many(2, flavor, host='compute-1')
        self.run_periodic()
        self.delete_reservation(server)
        lock = 'UPDATE nodes SET reservation = :by WHERE instance_uuid = :i'
        self.sql(lock, by='conductor', i=server['id'])
        self.addCleanup(self.sql, lock, by=None, i=server['id'])
        self.placement.delete(f'/allocations/{bare["id"]}')
        # A touched node stays reserved.
        reservation = self.hold(resource_class='gold', host='compute-2')
        self.touch(reservation)
        free = self.create_provider()
        self.allocate(str(uuid.uuid4()), free.name)
        # The consumer is a migration, which may be in progress.
        migration = str(uuid.uuid4())
        objects.Migration(
            context.get_admin_context(), uuid=migration, status='migrating',
            migration_type='migration', instance_uuid=bare['id'],
            source_compute='compute-2', dest_compute='compute-1',
            project_id='project', user_id='user').create()
        self.allocate(migration, 'compute-2')
        original = repairs.sum_resources

        def sum_resources(server):
            # The host allocates first.
            self.allocate(bare['id'], 'compute-1')
            return original(server)

        self.useFixture(fixtures.MockPatchObject(
            repairs, 'sum_resources', sum_resources))
        results = self.repair()
        no_server = ('no-server', reservation['instance_uuid'],
                     reservation['node_name'])
        self.assertEqual('done: lease expired', results.pop(no_server))
        for finding, reason in (
                (('no-reservation', server['id'], self.name(server)),
                 'is locked by a conductor'),
                (('no-allocation', bare['id'], self.name(bare)),
                 'consumer generation conflict'),
                (('wrong-allocation', migration, None),
                 'belongs to a migration'),
                (('stale-row', None, free.name),
                 'Unable to delete resource provider')):
            result = results.pop(finding)
            self.assertTrue(result.startswith('failed: '), result)
            self.assertIn(reason, result)
        self.assertEqual({}, results)
        self.assertEqual(
            'failed: its lease has expired, but a deployment was prepared '
            'on the node',
            self.repair('--host', 'compute-2')[no_server])
        self.sql(lock, by=None, i=server['id'])
        self.assertEqual(
            {('no-reservation', server['id'], self.name(server)):
                'done: host compute-1 holds it again'},
            self.repair('--host', 'compute-1'))

    def test_concurrent_repairs(self):
        """They are left alone; completed repairs are always shown."""
        servers = second, first = [
            self.boot(self.flavor(), host='compute-1') for _ in range(2)]
        self.sql('DELETE FROM reservations')
        wire = faults.Wire(self.ironic)
        wire.url = self.ironic.url

        def adopt():
            # Another client adopts it, by another URL.
            requests.post(
                f'{self.wire.url}/v1/reservations?adopt=true',
                json={'instance_uuid': first['id'], 'host': 'compute-1'},
                timeout=60).raise_for_status()

        self.useFixture(wire).on('GET', f'/v1/reservations/{first["id"]}',
                                 faults.before(adopt))
        # Then Ironic becomes unavailable.
        wire.on('POST', '/v1/reservations', faults.after(
            lambda: wire.on('GET', '/v1/reservations', faults.cut, times=99)))
        result = self.command('audit', '--repair')
        self.assertEqual((1, ''), (result.returncode, result.stdout))
        for server, text in (
                (first, 'gone'),
                (second, 'done: host compute-1 holds it again')):
            self.assertIn(
                f'no-reservation, instance {server["id"]}, node '
                f'{self.ironic.node_of(server).id}: {text}', result.stderr)
        wire.heal()
        self.assert_findings()
        self.assertEqual({server['id'] for server in servers}, {
            reservation['instance_uuid']
            for reservation in self.ironic.reservations()})

    def delete_reservation(self, server):
        self.sql('DELETE FROM reservations WHERE instance_uuid = :i',
                 i=server['id'])

    def free_node(self):
        return next(node for node in self.ironic.nodes()
                    if not node.instance_id)

    def spec(self, server):
        response = self.ironic.http.get(f'/v1/reservations/{server["id"]}')
        response.raise_for_status()
        return response.json()['request_spec']

    def create_provider(self):
        """Create a provider for a free node, as a compute node of Nova."""
        node = self.free_node()
        for method, path, body in (
                ('post', '', {'uuid': node.id, 'name': node.name}),
                ('put', f'/{node.id}/inventories', {
                    'resource_provider_generation': 0,
                    'inventories': {'CUSTOM_GOLD': {'total': 1}}})):
            response = getattr(self.placement, method)(
                f'/resource_providers{path}', body, version='1.28')
            self.assertEqual(200, response.status, response.content)
        return node

    def test_virtual_machines(self):
        self.flags(compute_driver='fake.SmallFakeDriver')
        self.start_compute('compute-3')
        self.boot(self.flavor(None), host='compute-3')
        self.assert_findings()

    def test_concurrent_changes(self):
        flavor = self.flavor()
        server = self.boot(flavor)
        wire = faults.Wire(self.ironic)
        wire.url = self.ironic.url

        def change():
            nonlocal server
            self.delete(server)
            server = self.boot(flavor)

        # Between reading reservations and servers, and again in the second
        # attempt.
        step = 'GET', '/v1/allocations'
        self.useFixture(wire).on(*step, faults.after(change), times=2)
        self.assert_findings()
        self.assertEqual(2, len(wire.bodies(*step)))

    def test_progress(self):
        self.useFixture(fixtures.MonkeyPatch(
            'ironic_reservations.osc.audit.reader.STEP', 2))
        *_, last = self.boot_many(3, self.flavor())
        # It can be restored, and keeps its node.
        self.flags(reclaim_instance_interval=3600)
        self.api.delete_server(last['id'])
        self.wait_for(lambda: self.assertEqual(
            'SOFT_DELETED', self.api.get_server(last['id'])['status']))
        result = self.command('audit', verbose=['-v'])
        self.assertEqual('[]', result.stdout.strip())
        for line in ('2 servers read', '3 servers read', '9 nodes read',
                     '10 nodes read', '3 reservations read',
                     '2 hypervisors read'):
            self.assertIn(line + '\n', result.stderr)
        self.assertNotIn('read again', result.stderr)

    def test_unknown_host(self):
        """The name may be misspelt, so the command prints a hint."""
        for host, message in (
                (base.HOSTS[0], ''),
                ('compute-11', 'No server, reservation or compute node of '
                               'Nova names host compute-11.\n')):
            result = self.command('audit', '--host', host)
            self.assertEqual((0, '[]', message), (
                result.returncode, result.stdout.strip(), result.stderr))

    def test_nova_or_placement_is_unavailable(self):
        nowhere = f'http://127.0.0.1:{services.free_port()}'
        for name, url in (('COMPUTE', nowhere), ('PLACEMENT', nowhere),
                          # Its response is 404.
                          ('PLACEMENT', self.ironic.url)):
            self.assert_refused('Nova or Placement cannot be read: ', **{
                f'OS_{name}_ENDPOINT_OVERRIDE': url})
        self.user = {**self.user, 'X-Auth-User': 'user', 'X-Roles': 'reader'}
        self.assert_refused('Nova and Placement require the admin role in '
                            'a project: ')

    def assert_refused(self, reason, **env):
        result = self.command('audit', **env)
        self.assertEqual((1, ''), (result.returncode, result.stdout))
        self.assertTrue(result.stderr.startswith(reason), result.stderr)
        self.assertEqual(1, result.stderr.count('\n'), result.stderr)


class TestRowPerNode(TestCase):

    fleet = [{**faults.NODE, 'name': f'node-{number}'} for number in range(3)]

    def test_before_and_after_a_migration(self):
        self.start_compute('compute-1', reservations={'mode': 'per_node'})
        # Compute nodes without servers are no finding.
        self.assert_findings()
        servers = first, _ = self.boot_many(2, self.flavor())
        expected = [
            ('per-node-row', server['id'], self.name(server), 'compute-1')
            for server in servers]
        self.assert_findings(*expected)
        self.assert_findings(*expected, host='compute-1')
        self.assert_findings(host='compute-2')
        self.assert_no_repair(expected)

        # Nova deletes it only from its database.
        self.take_down('compute-1')
        self.delete(first)
        orphan = 'orphan-node', first['id'], expected[0][2], 'compute-1'
        self.assert_findings(orphan, *expected[1:])

        # As if the host's migration to one row were incomplete.
        self.start_compute('compute-2')
        ctxt = context.get_admin_context()
        [free] = [node.id for node in self.ironic.nodes()
                  if not node.instance_id]
        for row in objects.ComputeNodeList.get_all_by_host(ctxt, 'compute-1'):
            if row.hypervisor_hostname == free:
                row.host = 'compute-2'
                row.save()
        name = self.ironic.baremetal.get_node(free).name
        stale = 'stale-row', None, name, 'compute-2'
        self.assert_findings(stale, host='compute-2')
        self.assert_findings(stale, orphan, *expected[1:])
        # The host itself repairs it.
        self.assertEqual('left', self.repair()[stale[:3]])
        # The compute node is deleted, and its provider is not.
        [row] = [row for row in objects.ComputeNodeList.get_all(ctxt)
                 if row.hypervisor_hostname == free]
        row.destroy()
        self.assert_findings(('stale-row', None, name, None), orphan,
                             *expected[1:])
        self.assertEqual({
            stale[:3]: 'done: provider deleted', orphan[:3]: 'left',
            expected[1][:3]: 'left'}, self.repair())
