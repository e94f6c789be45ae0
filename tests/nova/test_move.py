# SPDX-License-Identifier: Apache-2.0
"""The command "openstack baremetal reservation move" in a cloud."""

import contextlib
import json
import threading
import uuid

import fixtures
from ironicclient import exc
from openstack import exceptions as sdk_exc

from ironic_reservations.osc import client
from tests.nova import audits
from tests.nova import base
from tests.nova import takeovers
from tests.nova.takeovers import FIRST
from tests.nova.takeovers import SECOND
from tests.nova.takeovers import THIRD


class TestCase(audits.Command, takeovers.TestCase):

    def setUp(self):
        super().setUp()
        # Hosts that are forced down do not run, except in test_refused.
        self.useFixture(fixtures.MonkeyPatch(
            'ironic_reservations.osc.compute_hosts.HEARTBEAT', 1))

    def move(self, *args, status=0, source=FIRST, target=SECOND):
        """Return the results by server, or the error; keep the latter."""
        result = self.command('move', '--from', source, '--to', target, *args)
        self.assertEqual(status, result.returncode, result.stderr)
        self.hint = result.stderr
        if not result.stdout:
            return result.stderr
        return {row['Instance']: row['Result']
                for row in json.loads(result.stdout)}

    def release(self, server):
        """Delete its reservation, as if its lease had expired."""
        self.sql('DELETE FROM reservations WHERE instance_uuid = :i',
                 i=server['id'])

    @contextlib.contextmanager
    def run_worker(self, host=SECOND):
        """Run the host's driver thread."""
        stop = threading.Event()

        def work():
            while not stop.wait(0.5):
                self.computes[host].manager.driver.worker.work()

        worker = threading.Thread(target=work)
        worker.start()
        try:
            yield
        finally:
            stop.set()
            worker.join()


class TestMove(TestCase):

    @base.smoke
    def test_all_of_a_host(self):
        servers = self.boot_many(3, self.gold, host=FIRST)
        own = self.boot(self.gold, host=SECOND)
        self.take_down()
        for _ in range(2):
            self.assertEqual({server['id']: f'moved to {SECOND}'
                              for server in servers}, self.move())
        self.assert_findings(*(
            ('wrong-host', server['id'], self.ironic.node_of(server).id,
             FIRST) for server in servers))
        self.work()
        self.assert_on(SECOND, *servers, own)
        for args in (), ('--force',):
            result = self.command('move', '--from', FIRST, '--to', SECOND,
                                  *args)
            self.assertEqual(
                (0, '[]\n', f'Host {FIRST} has no servers.\n'),
                (result.returncode, result.stdout, result.stderr))
        self.assertEqual(f'No reservations found with host {FIRST}.\n',
                         self.command('list', '--host', FIRST).stderr)
        self.assert_findings()

    def test_name_of_the_host(self):
        """Queries quote it."""
        source = 'a+b&c#d'
        # oslo.config refuses it in nova.conf, the API does not.
        self.useFixture(fixtures.MonkeyPatch(
            'oslo_config.types.HostDomain.DOMAIN_REGEX', '.*'))
        self.start_compute(source)
        options = {'availability_zone': f'nova:{source}'}
        server = self.boot(self.gold, **options)
        self.hold(resource_class='gold', host=source)
        result = self.command('audit', '--repair')
        self.assertIn('done: lease expired', result.stdout)
        self.stop_compute(source)
        waiting = self.boot(self.gold, status=None, **options)
        self.wait_for(lambda: self.assertTrue(self._record(waiting)))
        self.force_down(source)
        self.assertEqual(
            {server['id']: f'moved to {SECOND}',
             waiting['id']: 'set to ERROR: its build had not started'},
            self.move(source=source))

    def test_instance_in_capitals(self):
        """Ironic stores its UUID so; the user may type it so."""
        first, second = self.boot_many(2, self.gold, host=FIRST)
        self.take_down()
        self.sql('UPDATE nodes SET instance_uuid = UPPER(instance_uuid)')
        for instance in first['id'].upper(), first['id']:
            self.assertEqual({first['id']: f'moved to {SECOND}'},
                             self.move('--instance', instance))
        self.assertEqual({server['id']: f'moved to {SECOND}'
                          for server in (first, second)}, self.move())

    def test_lost_builds(self):
        """Nobody would start them, and the host's provider would remain.

        For one the host had held a node, and the lease has expired before the
        deployment. The other had not reached the host.
        """
        building = self.boot(self.gold, host=FIRST)
        self.stop_compute(FIRST)
        waiting = self.boot(self.gold, host=FIRST, status=None)
        self.wait_for(lambda: self.assertTrue(self.allocations(waiting)))
        self.wait_for(lambda: self.assertTrue(self._record(waiting)))
        self.force_down(FIRST)
        self.save(building, vm_state='building', task_state='networking')
        self.sql("UPDATE nodes SET instance_uuid = NULL, instance_info = '{}',"
                 "provision_state = 'available' WHERE instance_uuid = :i",
                 i=building['id'])
        self.sql('DELETE FROM reservations')
        servers = building, waiting
        self.assert_findings(*(('lost-build', server['id'], None, FIRST)
                               for server in servers))
        self.assertEqual(
            {server['id']: 'set to ERROR: its build had not started'
             for server in servers}, self.move())
        self.assert_findings()
        for server in servers:
            self.assertEqual({}, self.allocations(server))
            self.assertEqual('ERROR', self.api.get_server(
                server['id'])['status'])
        # The other server has no host in Nova.
        self.delete(building)
        service, = self.api.get_services(host=FIRST, binary='nova-compute')
        self.api.api_delete(f'/os-services/{service["id"]}')
        self.assertEqual({SECOND}, set(self.providers()))
        self.delete(waiting)
        self.assert_nothing_left()

    def test_return_after_a_build_was_ended(self):
        """The host begins only the build that no move has ended."""
        self.stop_compute(FIRST)
        servers = error, elsewhere, build = [
            self.boot(self.gold, host=FIRST, status=None) for _ in range(3)]
        self.wait_for(lambda: self.assertTrue(all(
            self._record(server) and self.allocations(server)
            for server in servers)))
        self.force_down(FIRST)
        self.assertEqual(
            {error['id']: 'set to ERROR: its build had not started'},
            self.move('--instance', error['id']))
        self.save(elsewhere, host=SECOND)
        self.bring_back()
        self.wait_for_status(build, 'ACTIVE')
        self.assertEqual(('ERROR', {}), (
            self.api.get_server(error['id'])['status'],
            self.allocations(error)))
        self.assertEqual(SECOND, self.instance(elsewhere).host)
        self.assertEqual([build['id']], [
            row['instance_uuid'] for row in self.ironic.reservations()])
        self.assertEqual(2, self.log.count('does not begin this build'))

    def test_wait_for_one(self):
        first, second = self.boot_many(2, self.gold, host=FIRST)
        self.take_down()
        with self.run_worker():
            self.assertEqual(
                {first['id']: f'taken over by {SECOND}'},
                self.move('--instance', first['id'], '--wait'))
        self.assert_on(SECOND, first)
        self.assert_on(FIRST, second)

    def test_servers_that_no_host_holds(self):
        active, error, build, server = self.boot_many(
            4, self.gold, host=FIRST)
        self.take_down()
        self.sql('UPDATE reservations SET host = NULL')
        for row in active, error, build:
            self.release(row)
        self.save(error, vm_state='error')
        # It was built when the host had a compute node per node.
        self.save(build, vm_state='building', task_state='spawning',
                  node=self.ironic.node_of(build).id, compute_id=None)
        for options in (), ('--dry-run',):
            self.assertEqual({
                active['id']: 'stays: it has no reservation; see audit',
                error['id']: 'stays: it has no reservation; delete it unless '
                             'audit lists it',
                build['id']: 'stays: it has no reservation; see audit',
                server['id']: 'stays: no host holds it; see audit'},
                self.move(*options, status=1))
        self.assertTrue(self.allocations(build))
        self.save(active, task_state='deleting')
        self.assertEqual(
            {active['id']: 'stays: it has no reservation; delete it unless '
                           'audit lists it'},
            self.move('--instance', active['id'], status=1))

    def test_servers_that_stay(self):
        server, build, zombie, others = self.boot_many(
            4, self.gold, host=FIRST)
        self.take_down()
        self.api.delete_server(zombie['id'])
        self.wait_for(lambda: self.assertTrue(self.instance(zombie).deleted))
        self.useFixture(fixtures.MonkeyPatch(
            'ironic_reservations.osc.move.PATIENCE', 3))
        self.assign(others, THIRD)
        for row in build, others:
            self.save(row, vm_state='building', task_state='networking')
        stays = (f'stays: {SECOND} has not taken it over; see the log of its '
                 f'nova-compute')
        self.assertEqual(
            {server['id']: stays, build['id']: stays,
             others['id']: f'stays: host {THIRD} holds it',
             zombie['id']: f'deleted: {SECOND} tears it down'},
            self.move('--wait', status=1))
        for row in build, others:
            self.assertEqual('BUILD', self.api.get_server(row['id'])['status'])

    def test_lease_that_expires_before_the_takeover(self):
        build, other, server = self.boot_many(3, self.gold, host=FIRST)
        self.take_down()
        self.save(build, vm_state='building', task_state='networking')
        request = client.request_ironic

        def request_and_expire(cmd, method, url, **kwargs):
            response = request(cmd, method, url, **kwargs)
            for row in build, other:
                if method == 'PATCH' and row['id'] in url:
                    self.release(row)
            return response

        with fixtures.MonkeyPatch(
                'ironic_reservations.osc.client.request_ironic',
                request_and_expire), self.run_worker():
            self.assertEqual(
                {build['id']: 'set to ERROR: its build had not started',
                 other['id']: 'stays: it has no reservation; see audit',
                 server['id']: f'taken over by {SECOND}'},
                self.move('--wait', status=1))
        self.assertEqual({}, self.allocations(build))
        self.assertEqual('ERROR', self.api.get_server(build['id'])['status'])

    def test_concurrent_changes(self):
        ours, others, third, error = self.boot_many(
            4, self.gold, host=FIRST)
        self.take_down()
        request = client.request_ironic

        def change_and_request(cmd, method, url, **kwargs):
            for server, to in (ours, SECOND), (others, THIRD):
                if method == 'PATCH' and server['id'] in url:
                    self.assign(server, to)
            for server in third, error:
                if method == 'PATCH' and server['id'] in url:
                    self.release(server)
            if method == 'PATCH' and error['id'] in url:
                self.save(error, vm_state='error', host=None, node=None,
                          compute_id=None)
            return request(cmd, method, url, **kwargs)

        with fixtures.MonkeyPatch(
                'ironic_reservations.osc.client.request_ironic',
                change_and_request):
            self.assertEqual(
                {ours['id']: f'moved to {SECOND}',
                 others['id']: f'stays: host {THIRD} holds it',
                 third['id']: 'stays: it has no reservation; see audit',
                 error['id']: 'its build has failed'},
                self.move(status=1))
        self.assertEqual(
            {ours['id']: f'moved to {SECOND}'},
            self.move('--instance', ours['id']))

    def test_errors_of_ironic(self):
        """They concern one server, and the command goes on."""
        first, second, third, server = self.boot_many(
            4, self.gold, host=FIRST)
        self.take_down()
        self.release(third)
        request = client.request_ironic

        def release_or_fail(cmd, method, url, **kwargs):
            if method == 'PATCH' and second['id'] in url:
                self.release(second)
            elif any(row['id'] in url for row in (first, second, third)):
                raise exc.ServiceUnavailable('busy')
            response = request(cmd, method, url, **kwargs)
            if method == 'PATCH' and server['id'] in url:
                raise exc.GatewayTimeout('late')
            return response

        with fixtures.MonkeyPatch(
                'ironic_reservations.osc.client.request_ironic',
                release_or_fail):
            self.assertEqual(
                {server['id']: f'moved to {SECOND}', **dict.fromkeys(
                    [row['id'] for row in (first, second, third)],
                    'stays: busy (HTTP 503)')}, self.move(status=1))

    def test_errors_during_the_wait(self):
        """They are shown, instead of the advice to look at the new host."""
        build, server = self.boot_many(2, self.gold, host=FIRST)
        self.take_down()
        self.save(build, vm_state='building', task_state='networking')
        self.useFixture(fixtures.MonkeyPatch(
            'ironic_reservations.osc.move.PATIENCE', 3))
        request, lists = client.request_ironic, []

        def fail(cmd, method, url, **kwargs):
            lists.extend([url] if f'reservations?host={SECOND}' in url else [])
            # The first two belong to the move.
            if len(lists) > 2:
                raise exc.ServiceUnavailable('busy')
            return request(cmd, method, url, **kwargs)

        def release(cmd, method, url, **kwargs):
            lists.extend([url] if f'reservations?host={SECOND}' in url else [])
            if len(lists) == 3:
                self.release(build)
            return request(cmd, method, url, **kwargs)

        def refuse(*args, **kwargs):
            raise sdk_exc.ConflictException('another generation')

        for during, error in ((fail, 'busy (HTTP 503)'),
                              (release, 'another generation')):
            lists.clear()
            with fixtures.MonkeyPatch(
                    'ironic_reservations.osc.client.request_ironic', during), \
                 fixtures.MonkeyPatch(
                     'ironic_reservations.osc.move.MoveReservation._end_build',
                     refuse):
                results = self.move('--wait', status=1)
            self.assertIn(error, results[build['id']])
            self.assertEqual('stays: busy (HTTP 503)' if during == fail else
                             f'stays: {SECOND} has not taken it over; see the '
                             f'log of its nova-compute', results[server['id']])

    def test_changes_of_builds(self):
        """A build in the host's queue is deleted, and another one changes."""
        server = self.boot(self.gold, host=FIRST)
        self.stop_compute(FIRST)
        first, second = [self.boot(self.gold, host=FIRST, status=None)
                         for _ in range(2)]
        self.wait_for(lambda: self.assertTrue(
            self._record(first) and self._record(second)))
        self.force_down(FIRST)
        request = client.request_placement

        def delete_or_refuse(cmd, url, method='GET', **kwargs):
            response = request(cmd, url, method, **kwargs)
            if first['id'] in url:
                self.api.delete_server(first['id'])
                self.wait_for(lambda: self.assertTrue(
                    self._record(first).deleted))
            elif method == 'PUT':
                raise sdk_exc.ConflictException('another generation')
            return response

        with fixtures.MonkeyPatch(
                'ironic_reservations.osc.client.request_placement',
                delete_or_refuse):
            results = self.move(status=1)
        self.assertIn('another generation', results.pop(second['id']))
        self.assertEqual({first['id']: 'deleted concurrently',
                          server['id']: f'moved to {SECOND}'}, results)

    def test_refused_moves(self):
        """"set --host" has the same conditions."""
        server = self.boot(self.gold, host=FIRST)
        self.assertIn(f'on {FIRST} is up: disable it first, and stop',
                      self.move(status=1))
        for args, words in (
                ({'target': FIRST}, f'Both hosts are {FIRST}'),
                ({'target': 'nobody'}, 'Compute service on nobody is not up'),
                ({'source': 'nobody'},
                 'Nova has no compute service on host nobody')):
            for options in (), ('--dry-run',):
                self.assertIn(words, self.move(*options, status=1, **args))
        is_up = f'Compute service on {FIRST} is up'
        self.assert_not_set(server, SECOND, is_up)
        # A host that is forced down may still run.
        self.force_down(FIRST)
        stop = self.send_heartbeats(FIRST)
        self.assertIn(f'{FIRST} is forced down, but still reports',
                      self.move(status=1))
        stop.set()
        self.take_down()
        self.assert_not_set(server, 'nobody', 'on nobody is not up')
        self.force_down(SECOND)
        self.assertIn(f'Compute service on {SECOND} is not up',
                      self.move(status=1))
        self.force_down(SECOND, False)
        zone = self.api.post_aggregate({'aggregate': {
            'name': 'zone', 'availability_zone': 'zone'}})
        self.api.post_aggregate_action(zone['id'], {
            'add_host': {'host': SECOND}})
        self.assertIn('is in availability zone zone, and compute-1 in nova',
                      self.move(status=1))
        [reservation] = self.ironic.reservations()
        self.assertEqual(FIRST, reservation['host'])
        self.assertEqual({server['id']: f'moved to {SECOND}'},
                         self.move('--force'))
        self.assign(server, FIRST, SECOND)
        self.api.post_aggregate_action(zone['id'], {
            'remove_host': {'host': SECOND}})
        result = self.set_host(server, SECOND)
        self.assertEqual((0, ''), (result.returncode, result.stderr))
        self.work()
        self.assert_on(SECOND, server)

    def test_drain(self):
        """Nothing moves while the host runs, and --wait waits for its end."""
        self.assertEqual({}, self.move('--dry-run'))
        server, bare = self.boot_many(2, self.gold, host=FIRST)
        self.release(bare)
        stays = {bare['id']: 'stays: it has no reservation; see audit'}
        stay = 'All servers stay until the host is stopped: '
        then = ' Then this would happen:\n'
        is_up = f'Compute service on {FIRST} is up: '
        stop = (f'stop nova-compute on {FIRST}. If it has just died, Nova '
                f'shows it as down within a minute.')
        self.assertIn('disable it first', self.move('--wait', status=1))
        moves = {server['id']: f'would move to {SECOND}'}
        for args, status, expected in (
                ((), 1, moves | stays),
                (['--instance', server['id']], 0, moves)):
            self.assertEqual(expected, self.move('--dry-run', *args,
                                                 status=status))
            self.assertEqual(
                f'{stay}{is_up}disable it first, and {stop}{then}', self.hint)
        service, = self.api.get_services(host=FIRST, binary='nova-compute')
        self.api.put_service(service['id'], {'status': 'disabled'})
        self.assertEqual({server['id']: f'stays: {is_up}{stop}', **stays},
                         self.move(status=1))
        self.assertEqual(moves | stays,
                         self.move('--dry-run', '--wait', status=1))
        self.assertEqual(f'{stay}{is_up}{stop}{then}', self.hint)
        with fixtures.MonkeyPatch(
                'ironic_reservations.osc.move.DOWN_PATIENCE', 1):
            self.assertIn(stop, self.move('--wait', status=1))
        [reservation] = self.ironic.reservations()
        self.assertEqual(FIRST, reservation['host'])
        timer = threading.Timer(3, self.take_down)
        timer.start()
        self.addCleanup(timer.join)
        with self.run_worker():
            self.assertEqual(
                {server['id']: f'taken over by {SECOND}'},
                self.move('--wait', '--instance', server['id']))
        self.assert_on(SECOND, server)

    def test_dry_run(self):
        first, second = self.boot_many(2, self.gold, host=FIRST)
        other = self.boot(self.gold, host=SECOND)
        self.take_down()
        self.assertEqual(
            {server['id']: f'would move to {SECOND}'
             for server in (first, second)}, self.move('--dry-run'))
        self.assertEqual(
            {first['id']: f'would move to {SECOND}'},
            self.move('--dry-run', '--wait', '--instance', first['id']))
        self.assertEqual({FIRST, SECOND}, {
            row['host'] for row in self.ironic.reservations()})
        self.assert_on(FIRST, first, second)
        self.assert_on(SECOND, other)

    def test_instance_of_another_host(self):
        server = self.boot(self.gold, host=SECOND)
        self.assign(server, THIRD, SECOND)
        self.take_down()
        self.assertIn('invalid UUID value: \'server\'',
                      self.move('--instance', 'server', status=2))
        for options in (), ('--dry-run',):
            self.assertEqual(
                {server['id']: f'stays: not on host {FIRST}'},
                self.move('--instance', server['id'], *options, status=1))
        [reservation] = self.ironic.reservations()
        self.assertEqual(THIRD, reservation['host'])
        self.assertEqual({}, self.move())

    def test_server_of_a_blazar_lease(self):
        """Its allocation is from two providers, of which one cannot move."""
        lease = 'CUSTOM_RESERVATION_5F0E8D3C_1B2A_4C6D_8E9F_0A1B2C3D4E5F'
        child = str(uuid.uuid4())
        self.placement.put(f'/resource_classes/{lease}', None, version='1.7')
        self.placement.post('/resource_providers', {
            'name': f'blazar_{FIRST}', 'uuid': child,
            'parent_provider_uuid': self.providers()[FIRST]}, version='1.20')
        self._update_inventory(child, {
            'resource_provider_generation': 0,
            'inventories': {lease: {'total': 1}}})
        flavor = self.flavor(**{f'resources:{lease}': '1'})
        server = self.boot(flavor)
        allocations = {self.providers()[FIRST]: {'CUSTOM_GOLD': 1},
                       child: {lease: 1}}
        self.run_periodic()
        self.assertEqual(allocations, self.allocations(server))
        self.assert_findings()
        self.assert_findings(host=FIRST)
        self.take_down()
        stays = (f'it has an allocation from provider blazar_{FIRST}, which '
                 f'no other host can take over; if it belongs to a lease of '
                 f'Blazar, end the lease first')
        for options in (), ('--dry-run',):
            self.assertEqual({server['id']: f'stays: {stays}'},
                             self.move(*options, status=1))
        self.assert_not_set(server, SECOND, stays)
        # A host that got it all the same leaves the allocation alone.
        self.assign(server)
        self.work()
        self.assertIn(f'Instance {server["id"]} was not moved; will retry: '
                      f'it has allocations of the providers', self.log)
        self.assign(server, FIRST, SECOND)
        self.bring_back()
        self.assertEqual(allocations, self.allocations(server))
        # When Nova has lost it, the part from the host's provider returns.
        self.placement.delete(f'/allocations/{server["id"]}')
        self.run_periodic()
        self.work(FIRST)
        self.assertEqual({self.providers()[FIRST]: {'CUSTOM_GOLD': 1}},
                         self.allocations(server))
        self.delete(server)
        self.assert_nothing_left()

    def set_host(self, server, host):
        return self.command('set', server['id'], '--host', host,
                            as_json=False)

    def assert_not_set(self, server, host, words):
        result = self.set_host(server, host)
        self.assertEqual(1, result.returncode)
        self.assertIn(words, result.stderr)

    def send_heartbeats(self, host):
        stop = threading.Event()
        service = self.computes[host]

        def report():
            while not stop.wait(0.3):
                service.servicegroup_api._driver._report_state(service)

        threading.Thread(target=report, daemon=True).start()
        self.addCleanup(stop.set)
        return stop


class TestCells(TestCase):

    NUMBER_OF_CELLS = 2

    def test_server_of_another_cell(self):
        """It stays unchanged, which is logged, and can be given back."""
        server = self.boot(self.gold, host=FIRST)
        self.stop_compute(SECOND)
        self.take_down()
        self.switch_cell('cell2')
        self.start_compute(THIRD, cell='cell2')
        self.assertEqual({server['id']: f'moved to {THIRD}'},
                         self.move(target=THIRD))
        self.work(THIRD)
        self.assertIn(
            f'Instance {server["id"]} was not moved; will retry: host {THIRD} '
            'holds its machine, but it is deleted, or in another cell',
            self.log)
        result = self.command('set', server['id'], '--host', FIRST, '--force',
                              as_json=False)
        self.assertEqual((0, ''), (result.returncode, result.stderr))
        # When the other host is down, the server can also be moved back.
        self.assign(server, THIRD)
        self.take_down(THIRD)
        self.switch_cell('cell1')
        self.assert_on(FIRST, server)
        self.bring_back()
        with self.run_worker(FIRST):
            self.assertEqual(
                {server['id']: f'taken over by {FIRST}'},
                self.move('--wait', source=THIRD, target=FIRST))
        self.act(server, 'reboot', 'ACTIVE', type='HARD')
        self.delete(server)
        self.assert_nothing_left()
