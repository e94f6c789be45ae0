# SPDX-License-Identifier: Apache-2.0
"""What "openstack baremetal reservation audit" finds in a real cloud."""

import json
import uuid
import warnings

import fixtures
from nova import context
from nova import objects
import openstack.proxy
import requests

from ironic_reservations.osc.audit import repairs
from tests.common import command
from tests.nova import base
from tests.nova import faults
from tools import services

_get_endpoint = openstack.proxy.Proxy.get_endpoint


class Command:
    """The command, for a TestCase."""

    #: Who calls Nova and Placement.
    user = {'X-Auth-Token': 'admin', 'X-Auth-User': 'admin',
            'X-Roles': 'admin', 'X-Auth-Project-Id': 'admin'}

    def command(self, *args, verbose=(), as_json=True, **env):
        return self.openstack(
            *verbose, 'baremetal', 'reservation', *args,
            *(['-f', 'json'] if as_json else []), **env)

    def openstack(self, *args, **env):
        with fixtures.MonkeyPatch('keystoneauth1.noauth.NoAuth.get_headers',
                                  lambda *args: self.user), \
             fixtures.MonkeyPatch('openstack.proxy.Proxy.get_endpoint',
                                  _get_endpoint), \
             warnings.catch_warnings():
            # The client's own, which Python does not show by default.
            warnings.simplefilter('ignore')
            return command.run(self.ironic.url, *args, **{
                'OS_COMPUTE_ENDPOINT_OVERRIDE': self.api.base_url,
                'OS_PLACEMENT_ENDPOINT_OVERRIDE':
                    self.placement.fixture.endpoint, **env})

    def assert_found(self, *expected, host=None):
        """Each as the kind, the server's UUID, the node and the host."""
        done = self.command('audit', *(['--host', host] if host else []))
        self.assertTrue(done.stdout, done.stderr)
        found = json.loads(done.stdout)
        for each in found:
            self.assertTrue(each.pop('What to Do'))
        self.assertEqual(sorted(expected, key=str), sorted(
            (tuple(each.values()) for each in found), key=str))
        self.assertEqual(1 if found else 0, done.returncode)


class TestCase(Command, faults.TestCase):

    def repair(self, *args):
        """What was done, by kind, the instance's UUID and the node.

        No machine is told of it, and a second time there is nothing to do.
        """
        wire = faults.Wire(self.ironic)
        wire.url = self.ironic.url
        with wire:
            done = self.command('audit', '--repair', *args)
            self.assertTrue(done.stdout, done.stderr)
            before = self.everything()
            again = self.command('audit', '--repair', *args)
            self.assertEqual(before, self.everything())
        self.assertEqual(set(), {
            (method, path) for method, path, _ in wire.requests
            if method != 'GET' and not path.startswith('/v1/reservations')})
        found = json.loads(done.stdout)
        left = [each for each in found if each['What to Do'] != 'nothing']
        for each in done, again:
            self.assertEqual(1 if left else 0, each.returncode)
        self.assertEqual(
            [each['Kind'] for each in left],
            [each['Kind'] for each in json.loads(again.stdout)])
        return {(each['Kind'], each['Instance'], each['Node']):
                each['Repair'] for each in found}

    def everything(self):
        """All of Ironic's nodes, the reservations and the allocations."""
        # Conductors write these of nodes that are at rest, too.
        passing = 'updated_at', 'power_state', 'reservation'
        return ([{name: value for name, value in node.to_dict().items()
                  if name not in passing} for node in self.ironic.nodes()],
                self.ironic.reservations(),
                {name: self.placement.get(
                    f'/resource_providers/{provider}/allocations').body
                 for name, provider in self.providers().items()})

    def name(self, server):
        return self.ironic.node_of(server).name

    def touch(self, held):
        """Begin with the node of a reservation, as a host does."""
        self.ironic.baremetal.patch_node(held['node_uuid'], [
            {'op': 'add', 'path': '/instance_info/image_source',
             'value': 'x'}])

    def allocate(self, consumer, *hosts):
        """Give a consumer an allocation of these hosts' providers alone."""
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
        servers = forgotten, bare, moved = self.boot_many(
            3, flavor, host='compute-1')
        self.run_periodic()
        allocations = [self.allocations(each) for each in servers]
        spec = self.spec(forgotten)
        self.sql('DELETE FROM reservations WHERE instance_uuid = :i',
                 i=forgotten['id'])
        self.placement.delete(f'/allocations/{bare["id"]}')
        self.allocate(moved['id'], 'compute-2')
        gone = str(uuid.uuid4())
        self.allocate(gone, 'compute-1')
        held = self.hold(resource_class='gold', host='compute-2')
        free = next(node for node in self.ironic.nodes()
                    if not node.instance_id)
        self.provide(free)
        self.assert_found(
            ('no-reservation', forgotten['id'], self.name(forgotten),
             'compute-1'),
            ('no-allocation', bare['id'], self.name(bare), 'compute-1'),
            ('wrong-allocation', moved['id'], self.name(moved), 'compute-1'),
            ('wrong-allocation', gone, None, 'compute-1'), host='compute-1')
        self.assertEqual({
            ('no-reservation', forgotten['id'], self.name(forgotten)):
                'done: host compute-1 holds it again',
            ('no-allocation', bare['id'], self.name(bare)):
                'done: allocated from the provider of host compute-1',
            ('wrong-allocation', moved['id'], self.name(moved)):
                'done: allocated from the provider of host compute-1',
            ('wrong-allocation', gone, None): 'done: deleted',
            ('no-server', held['instance_uuid'], held['node_name']):
                'done: lease expired',
            ('stale-row', None, free.name): 'done: provider deleted',
        }, self.repair())
        self.assertEqual(allocations, [self.allocations(each)
                                       for each in servers])
        # What the API does not show of the image and the flavor is not there.
        again = self.spec(forgotten)
        self.assertEqual({'id': self.plain_image}, again['image'])
        self.assertEqual({}, {
            name: value for name, value in again.items()
            if value != spec.get(name) and name != 'image'})
        self.act(forgotten, 'reboot', 'ACTIVE', type='HARD')
        self.delete(*servers)
        self.hold(candidate_nodes=[held['node_uuid']])

    def test_left(self):
        """Somebody must have a look at it first."""
        flavor = self.flavor()
        failed, lost, between, taken, deleted = self.boot_many(
            5, flavor, host='compute-1')
        self.act(taken, 'os-stop', 'SHUTOFF')
        self.run_periodic()
        self.assert_found()

        self.sql("UPDATE nodes SET provision_state = 'deploy failed' "
                 'WHERE instance_uuid = :i', i=failed['id'])
        self.sql('DELETE FROM reservations WHERE instance_uuid = :i',
                 i=lost['id'])
        self.sql("UPDATE nodes SET instance_uuid = NULL, provision_state = "
                 "'available' WHERE instance_uuid = :i", i=lost['id'])
        self.allocate(between['id'], 'compute-1', 'compute-2')
        self.give(taken, 'compute-2')
        name = self.name(deleted)
        self.die('compute-1')
        self.delete(deleted)
        lapsed = self.hold(resource_class='gold', expires_in=60)
        self.lapse(lapsed['instance_uuid'])
        self.touch(lapsed)
        unavailable = self.hold(resource_class='gold')
        self.ironic.baremetal.set_node_provision_state(
            unavailable['node_uuid'], 'manage')
        baremetal = self.ironic.baremetal
        # These two are somebody's, and no finding.
        reserved = self.hold(resource_class='gold')
        allocated = baremetal.wait_for_allocation(
            baremetal.create_allocation(resource_class='gold'))
        orphan = next(node for node in self.ironic.nodes()
                      if not node.instance_id)
        deployed = [baremetal.get_node(node) for node in (
            reserved['node_uuid'], allocated.node_id, orphan.id)]
        for node in deployed:
            baremetal.set_node_provision_state(node, 'active')
        self.ironic.settle(deployed, provision_state='active')
        wrong_host = 'wrong-host', taken['id'], self.name(taken), 'compute-1'
        of_the_host = [
            ('failed', failed['id'], self.name(failed), 'compute-1'),
            ('no-reservation', lost['id'], None, 'compute-1'),
            ('no-server', deleted['id'], name, 'compute-1'), wrong_host]
        found = [
            *of_the_host,
            # Of one host alone it is not seen what is allocated of others.
            ('wrong-allocation', between['id'], self.name(between),
             'compute-1'),
            ('lapsed-touched', lapsed['instance_uuid'], lapsed['node_name'],
             None),
            ('unavailable', unavailable['instance_uuid'],
             unavailable['node_name'], None),
            ('orphan-node', None, orphan.name, None)]
        for host, expected in (
                (None, found), ('compute-1', of_the_host),
                ('compute-2', [wrong_host]), ('compute-3', [])):
            self.assert_found(*expected, host=host)
        before = self.everything()
        self.assertEqual(dict.fromkeys((each[:3] for each in found), 'left'),
                         self.repair())
        self.assertEqual(before, self.everything())

    def test_refused(self):
        """By the services, as long as something is in the way."""
        flavor = self.flavor()
        locked, bare = self.boot_many(2, flavor, host='compute-1')
        self.run_periodic()
        self.sql('DELETE FROM reservations WHERE instance_uuid = :i',
                 i=locked['id'])
        lock = 'UPDATE nodes SET reservation = :by WHERE instance_uuid = :i'
        self.sql(lock, by='conductor', i=locked['id'])
        self.addCleanup(self.sql, lock, by=None, i=locked['id'])
        self.placement.delete(f'/allocations/{bare["id"]}')
        # A touched one stays.
        held = self.hold(resource_class='gold', host='compute-2')
        self.touch(held)
        free = next(node for node in self.ironic.nodes()
                    if not node.instance_id)
        self.provide(free)
        self.allocate(str(uuid.uuid4()), free.name)
        # Its consumer is a migration, in the middle of which Nova may be.
        moving = str(uuid.uuid4())
        objects.Migration(
            context.get_admin_context(), uuid=moving, status='migrating',
            migration_type='migration', instance_uuid=bare['id'],
            source_compute='compute-2', dest_compute='compute-1',
            project_id='project', user_id='user').create()
        self.allocate(moving, 'compute-2')
        really = repairs.sum_resources

        def sum_resources(server):
            # Its host is a moment quicker.
            self.allocate(bare['id'], 'compute-1')
            return really(server)

        self.useFixture(fixtures.MockPatchObject(
            repairs, 'sum_resources', sum_resources))
        results = self.repair()
        no_server = 'no-server', held['instance_uuid'], held['node_name']
        self.assertEqual('done: lease expired', results.pop(no_server))
        for what, words in (
                (('no-reservation', locked['id'], self.name(locked)),
                 'is locked by a conductor'),
                (('no-allocation', bare['id'], self.name(bare)),
                 'consumer generation conflict'),
                (('wrong-allocation', moving, None), 'belongs to a migration'),
                (('stale-row', None, free.name),
                 'Unable to delete resource provider')):
            result = results.pop(what)
            self.assertTrue(result.startswith('failed: '), result)
            self.assertIn(words, result)
        self.assertEqual({}, results)
        self.assertEqual(
            'failed: its lease has expired, but a deployment was prepared '
            'on the node',
            self.repair('--host', 'compute-2')[no_server])
        self.sql(lock, by=None, i=locked['id'])
        self.assertEqual(
            {('no-reservation', locked['id'], self.name(locked)):
                'done: host compute-1 holds it again'},
            self.repair('--host', 'compute-1'))

    def test_repair_of_what_changes(self):
        """It is left alone, and what was done is said whatever happens."""
        servers = second, first = [
            self.boot(self.flavor(), host='compute-1') for _ in range(2)]
        self.sql('DELETE FROM reservations')
        wire = faults.Wire(self.ironic)
        wire.url = self.ironic.url

        def adopt():
            # Somebody else does it, on another wire.
            requests.post(
                f'{self.wire.url}/v1/reservations?adopt=true',
                json={'instance_uuid': first['id'], 'host': 'compute-1'},
                timeout=60).raise_for_status()

        self.useFixture(wire).on('GET', f'/v1/reservations/{first["id"]}',
                                 faults.before(adopt))
        # Then Ironic does not answer any more.
        wire.on('POST', '/v1/reservations', faults.after(
            lambda: wire.on('GET', '/v1/reservations', faults.cut, times=99)))
        done = self.command('audit', '--repair')
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        for server, result in (
                (first, 'gone'),
                (second, 'done: host compute-1 holds it again')):
            self.assertIn(
                f'no-reservation, instance {server["id"]}, node '
                f'{self.ironic.node_of(server).id}: {result}', done.stderr)
        wire.heal()
        self.assert_found()
        self.assertEqual({each['id'] for each in servers}, {
            each['instance_uuid'] for each in self.ironic.reservations()})

    def spec(self, server):
        response = self.ironic.http.get(f'/v1/reservations/{server["id"]}')
        response.raise_for_status()
        return response.json()['request_spec']

    def provide(self, node):
        """A provider as Nova makes one for a row of a node."""
        for method, path, body in (
                ('post', '', {'uuid': node.id, 'name': node.name}),
                ('put', f'/{node.id}/inventories', {
                    'resource_provider_generation': 0,
                    'inventories': {'CUSTOM_GOLD': {'total': 1}}})):
            response = getattr(self.placement, method)(
                f'/resource_providers{path}', body, version='1.28')
            self.assertEqual(200, response.status, response.content)

    def test_virtual_machines(self):
        """They need no machine."""
        self.flags(compute_driver='fake.SmallFakeDriver')
        self.start_compute('compute-3')
        self.boot(self.flavor(None), host='compute-3')
        self.assert_found()

    def test_what_changes_while_it_is_read(self):
        flavor = self.flavor()
        server = self.boot(flavor)
        wire = faults.Wire(self.ironic)
        wire.url = self.ironic.url

        def change():
            nonlocal server
            self.delete(server)
            server = self.boot(flavor)

        # Between the reservations and the servers, and again when it seems
        # that something disagrees.
        step = 'GET', '/v1/allocations'
        self.useFixture(wire).on(*step, faults.after(change), times=2)
        self.assert_found()
        self.assertEqual(2, len(wire.sent(*step)))

    def test_progress(self):
        self.useFixture(fixtures.MonkeyPatch(
            'ironic_reservations.osc.audit.reader.STEP', 2))
        *_, deleted = self.boot_many(3, self.flavor())
        # It can be restored, and keeps its machine.
        self.flags(reclaim_instance_interval=3600)
        self.api.delete_server(deleted['id'])
        self.wait_for(lambda: self.assertEqual(
            'SOFT_DELETED', self.api.get_server(deleted['id'])['status']))
        done = self.command('audit', verbose=['-v'])
        self.assertEqual('[]', done.stdout.strip())
        for line in ('2 servers read', '3 servers read', '9 nodes read',
                     '10 nodes read', '3 reservations read',
                     '2 hypervisors read'):
            self.assertIn(line + '\n', done.stderr)
        self.assertNotIn('read again', done.stderr)

    def test_host_that_nobody_knows(self):
        """Perhaps a typing error: what is found of it says nothing."""
        for host, known in ((base.HOSTS[0], True), ('compute-11', False)):
            done = self.command('audit', '--host', host)
            self.assertEqual((0, '[]'), (done.returncode, done.stdout.strip()))
            self.assertEqual('' if known else (
                f'No server, reservation or compute node of Nova names host '
                f'{host}.\n'
            ), done.stderr)

    def test_nova_or_placement_cannot_be_read(self):
        gone = f'http://127.0.0.1:{services.free_port()}'
        for name, url in (('COMPUTE', gone), ('PLACEMENT', gone),
                          # It answers 404.
                          ('PLACEMENT', self.ironic.url)):
            self.assert_refused('Nova or Placement cannot be read: ', **{
                f'OS_{name}_ENDPOINT_OVERRIDE': url})
        self.user = {**self.user, 'X-Auth-User': 'user', 'X-Roles': 'reader'}
        self.assert_refused('Nova and Placement require the admin role in '
                            'a project: ')

    def assert_refused(self, reason, **env):
        done = self.command('audit', **env)
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        self.assertTrue(done.stderr.startswith(reason), done.stderr)
        self.assertEqual(1, done.stderr.count('\n'), done.stderr)


class TestRowPerNode(TestCase):

    fleet = [{**faults.NODE, 'name': f'node-{number}'} for number in range(3)]

    def test_before_and_after_a_switch(self):
        self.start_compute('compute-1', reservations={'mode': 'per_node'})
        # Rows without servers are no obstacle.
        self.assert_found()
        deleted, server = self.boot_many(2, self.flavor())
        expected = [
            ('per-node-row', each['id'], self.name(each), 'compute-1')
            for each in (deleted, server)]
        self.assert_found(*expected)
        self.assert_found(*expected, host='compute-1')
        self.assert_found(host='compute-2')
        before = self.everything()
        self.assertEqual(dict.fromkeys((each[:3] for each in expected),
                                       'left'), self.repair())
        self.assertEqual(before, self.everything())

        # Nova deletes it from its database alone.
        self.die('compute-1')
        self.delete(deleted)
        orphan = 'orphan-node', deleted['id'], expected[0][2], 'compute-1'
        self.assert_found(orphan, *expected[1:])

        # As if the host, one row now, had not finished.
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
        self.assert_found(stale, host='compute-2')
        self.assert_found(stale, orphan, *expected[1:])
        # The host itself does it.
        self.assertEqual('left', self.repair()[stale[:3]])
        # Its row has gone, and its provider has not.
        [row] = [row for row in objects.ComputeNodeList.get_all(ctxt)
                 if row.hypervisor_hostname == free]
        row.destroy()
        self.assert_found(('stale-row', None, name, None), orphan,
                          *expected[1:])
        left = {each[:3]: 'left' for each in (orphan, *expected[1:])}
        self.assertEqual({stale[:3]: 'done: provider deleted', **left},
                         self.repair())
