# SPDX-License-Identifier: Apache-2.0
"""What "openstack baremetal reservation move" does in a real cloud."""

import contextlib
import json
import threading

import fixtures

from ironic_reservations.osc import client
from tests.nova import base
from tests.nova import test_audit
from tests.nova import test_takeover

FIRST, SECOND, THIRD = base.HOSTS


class TestCase(test_audit.Command, test_takeover.TestCase):

    def setUp(self):
        super().setUp()
        # What is forced down here runs no more, unless a test lets it.
        self.useFixture(fixtures.MonkeyPatch(
            'ironic_reservations.osc.move.HEARTBEAT', 1))

    def move(self, *args, status=0, source=FIRST, target=SECOND):
        """The results, by server; or what was said instead."""
        done = self.command('move', '--from', source, '--to', target, *args)
        self.assertEqual(status, done.returncode, done.stderr)
        if not done.stdout:
            return done.stderr
        return {each['Instance']: each['Result']
                for each in json.loads(done.stdout)}

    @contextlib.contextmanager
    def working(self, host=SECOND):
        """A host looks for work all the time."""
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
        servers = [self.boot(self.gold, host=FIRST) for _ in range(3)]
        own = self.boot(self.gold, host=SECOND)
        self.die()
        for _ in range(2):
            self.assertEqual({each['id']: f'given to {SECOND}'
                              for each in servers}, self.move())
        self.assert_found(*(
            ('wrong-host', each['id'], self.ironic.node_of(each).id, FIRST)
            for each in servers))
        self.work()
        self.assert_with(SECOND, *servers, own)
        self.assertEqual({}, self.move())
        self.assert_found()

    def assert_lost_build_is_settled(self, server):
        self.assert_found(('lost-build', server['id'], None, FIRST))
        self.assertEqual(
            {server['id']: 'set to ERROR: its build had not begun'},
            self.move())
        self.assertEqual({}, self.allocations(server))
        self.assert_found()
        self.assertEqual('ERROR', self.api.get_server(
            server['id'])['status'])

    def test_build_that_has_not_begun(self):
        """Nobody would begin it, and the dead host's provider would stay."""
        self.stop_compute(FIRST)
        server = self.boot(self.gold, host=FIRST, status=None)
        self.wait_for(lambda: self.assertTrue(self.allocations(server)))
        self.wait_for(lambda: self.assertTrue(self._record(server)))
        self.force_down(FIRST)
        self.assert_lost_build_is_settled(server)
        service, = self.api.get_services(host=FIRST, binary='nova-compute')
        self.api.api_delete(f'/os-services/{service["id"]}')
        self.assertEqual({SECOND}, set(self.providers()))
        self.delete(server)

    def test_build_whose_lease_is_over(self):
        """Its host has died before the node was deployed."""
        server = self.boot(self.gold, host=FIRST)
        self.die()
        self.set(server, vm_state='building', task_state='networking')
        self.sql("UPDATE nodes SET instance_uuid = NULL, instance_info = '{}',"
                 "provision_state = 'available' WHERE instance_uuid = :i",
                 i=server['id'])
        self.sql('DELETE FROM reservations')
        self.assert_lost_build_is_settled(server)
        self.delete(server)
        self.assert_nothing_left()

    def test_wait_for_one(self):
        first, second = (self.boot(self.gold, host=FIRST) for _ in range(2))
        self.die()
        with self.working():
            self.assertEqual(
                {first['id']: f'taken over by {SECOND}'},
                self.move('--instance', first['id'], '--wait'))
        self.assert_with(SECOND, first)
        self.assert_with(FIRST, second)

    def test_what_stays(self):
        lost, moved, deleted, others = (
            self.boot(self.gold, host=FIRST) for _ in range(4))
        self.die()
        self.sql('DELETE FROM reservations WHERE instance_uuid = :i',
                 i=lost['id'])
        self.api.delete_server(deleted['id'])
        self.wait_for(lambda: self.assertTrue(self.instance(deleted).deleted))
        self.useFixture(fixtures.MonkeyPatch(
            'ironic_reservations.osc.move.PATIENCE', 3))
        self.give(others, THIRD)
        self.assertEqual(
            {lost['id']: 'stays: it has no reservation, see audit',
             others['id']: 'stays: it has no reservation, see audit',
             moved['id']: f'stays: {SECOND} has not taken it over; is it in '
                          'another cell?',
             deleted['id']: f'deleted: {SECOND} tears it down'},
            self.move('--wait', status=1))

    def test_beside_another_move(self):
        given, others, released = (
            self.boot(self.gold, host=FIRST) for _ in range(3))
        self.die()
        request = client.request

        def meanwhile(cmd, method, url, **kwargs):
            for server, to in (given, SECOND), (others, THIRD):
                if method == 'PATCH' and server['id'] in url:
                    self.give(server, to)
            if method == 'PATCH' and released['id'] in url:
                self.sql('DELETE FROM reservations WHERE instance_uuid = :i',
                         i=released['id'])
            return request(cmd, method, url, **kwargs)

        with fixtures.MonkeyPatch(
                'ironic_reservations.osc.client.request', meanwhile):
            self.assertEqual(
                {given['id']: f'given to {SECOND}',
                 others['id']: f'stays: host {THIRD} has it',
                 released['id']: 'released meanwhile'}, self.move(status=1))
        self.assertEqual(
            {given['id']: f'given to {SECOND}'},
            self.move('--instance', given['id']))

    def test_set_host_asks_what_move_asks(self):
        server = self.boot(self.gold, host=FIRST)
        for host, words in ((SECOND, f'Host {FIRST} is up'),
                            ('nobody', f'Host {FIRST} is up')):
            done = self.command('set', server['id'], '--host', host,
                                as_json=False)
            self.assertEqual(1, done.returncode)
            self.assertIn(words, done.stderr)
        self.die()
        done = self.command('set', server['id'], '--host', 'nobody',
                            as_json=False)
        self.assertIn('Host nobody is not up', done.stderr)
        self.assertEqual([FIRST], [each['host'] for each in
                                   self.ironic.reservations()])
        done = self.command('set', server['id'], '--host', SECOND,
                            as_json=False)
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        self.work()
        self.assert_with(SECOND, server)

    def test_refused(self):
        server = self.boot(self.gold, host=FIRST)
        for args, words in (
                ({}, f'Host {FIRST} is up'),
                ({'target': FIRST}, 'The two hosts are the same'),
                ({'source': 'nobody'},
                 'Nova has no compute service on host nobody')):
            self.assertIn(words, self.move(status=1, **args))
        # What is forced down may run.
        self.force_down(FIRST)
        heart = self.beat(FIRST)
        self.assertIn(f'Host {FIRST} is up', self.move(status=1))
        heart.set()
        self.die()
        self.assertIn('Host nobody is not up',
                      self.move(status=1, target='nobody'))
        self.force_down(SECOND)
        self.assertIn(f'Host {SECOND} is not up', self.move(status=1))
        self.force_down(SECOND, False)
        zone = self.api.post_aggregate({'aggregate': {
            'name': 'zone', 'availability_zone': 'zone'}})
        self.api.post_aggregate_action(zone['id'], {
            'add_host': {'host': SECOND}})
        self.assertIn('is in availability zone zone, and compute-1 in nova',
                      self.move(status=1))
        self.assertEqual([FIRST], [each['host'] for each in
                                   self.ironic.reservations()])
        self.assertEqual({server['id']: f'given to {SECOND}'},
                         self.move('--force'))

    def beat(self, host):
        """Let a service tell that it runs."""
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
        """It stays as it is, is told of, and can be given back."""
        server = self.boot(self.gold, host=FIRST)
        self.stop_compute(SECOND)
        self.die()
        self.be_in_cell('cell2')
        self.start_compute(THIRD, cell='cell2')
        self.assertEqual({server['id']: f'given to {THIRD}'},
                         self.move(target=THIRD))
        self.work(THIRD)
        self.assertIn(
            f'Instance {server["id"]} stays where it is for now: host {THIRD} '
            'holds its machine, but it is deleted, or in another cell',
            self.log)
        self.die(THIRD)
        self.be_in_cell('cell1')
        self.assert_with(FIRST, server)
        self.come_back()
        with self.working(FIRST):
            self.assertEqual(
                {server['id']: f'taken over by {FIRST}'},
                self.move('--wait', source=THIRD, target=FIRST))
        self.act(server, 'reboot', 'ACTIVE', type='HARD')
        self.delete(server)
        self.assert_nothing_left()
