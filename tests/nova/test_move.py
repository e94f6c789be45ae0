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
        servers = self.boot_many(3, self.gold, host=FIRST)
        own = self.boot(self.gold, host=SECOND)
        self.die()
        for _ in range(2):
            self.assertEqual({each['id']: f'moved to {SECOND}'
                              for each in servers}, self.move())
        self.assert_found(*(
            ('wrong-host', each['id'], self.ironic.node_of(each).id, FIRST)
            for each in servers))
        self.work()
        self.assert_with(SECOND, *servers, own)
        self.assertEqual({}, self.move())
        self.assert_found()

    def test_lost_builds(self):
        """Nobody would begin them, and the dead host's provider would stay.

        Of the one its host has held a node, and has died before that was
        deployed, and its lease is over. The other had not come to the host.
        """
        begun = self.boot(self.gold, host=FIRST)
        self.stop_compute(FIRST)
        queued = self.boot(self.gold, host=FIRST, status=None)
        self.wait_for(lambda: self.assertTrue(self.allocations(queued)))
        self.wait_for(lambda: self.assertTrue(self._record(queued)))
        self.force_down(FIRST)
        self.set(begun, vm_state='building', task_state='networking')
        self.sql("UPDATE nodes SET instance_uuid = NULL, instance_info = '{}',"
                 "provision_state = 'available' WHERE instance_uuid = :i",
                 i=begun['id'])
        self.sql('DELETE FROM reservations')
        lost = begun, queued
        self.assert_found(*(('lost-build', each['id'], None, FIRST)
                            for each in lost))
        self.assertEqual(
            {each['id']: 'set to ERROR: its build had not started'
             for each in lost}, self.move())
        self.assert_found()
        for each in lost:
            self.assertEqual({}, self.allocations(each))
            self.assertEqual('ERROR', self.api.get_server(
                each['id'])['status'])
        # Nova knows of no host of the other one.
        self.delete(begun)
        service, = self.api.get_services(host=FIRST, binary='nova-compute')
        self.api.api_delete(f'/os-services/{service["id"]}')
        self.assertEqual({SECOND}, set(self.providers()))
        self.delete(queued)
        self.assert_nothing_left()

    def test_wait_for_one(self):
        first, second = self.boot_many(2, self.gold, host=FIRST)
        self.die()
        with self.working():
            self.assertEqual(
                {first['id']: f'taken over by {SECOND}'},
                self.move('--instance', first['id'], '--wait'))
        self.assert_with(SECOND, first)
        self.assert_with(FIRST, second)

    def test_what_stays(self):
        lost, moved, deleted, others = self.boot_many(4, self.gold, host=FIRST)
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
        given, others, released = self.boot_many(3, self.gold, host=FIRST)
        self.die()
        request = client.request_ironic

        def meanwhile(cmd, method, url, **kwargs):
            for server, to in (given, SECOND), (others, THIRD):
                if method == 'PATCH' and server['id'] in url:
                    self.give(server, to)
            if method == 'PATCH' and released['id'] in url:
                self.sql('DELETE FROM reservations WHERE instance_uuid = :i',
                         i=released['id'])
            return request(cmd, method, url, **kwargs)

        with fixtures.MonkeyPatch(
                'ironic_reservations.osc.client.request_ironic', meanwhile):
            self.assertEqual(
                {given['id']: f'moved to {SECOND}',
                 others['id']: f'stays: host {THIRD} holds it',
                 released['id']: 'released concurrently'}, self.move(status=1))
        self.assertEqual(
            {given['id']: f'moved to {SECOND}'},
            self.move('--instance', given['id']))

    def test_refused(self):
        """And so is "set --host", which asks the same."""
        server = self.boot(self.gold, host=FIRST)
        for args, words in (
                ({}, f'Compute service on {FIRST} is up'),
                ({'target': FIRST}, f'Both hosts are {FIRST}'),
                ({'source': 'nobody'},
                 'Nova has no compute service on host nobody')):
            self.assertIn(words, self.move(status=1, **args))
        is_up = f'Compute service on {FIRST} is up'
        self.assert_not_set(server, SECOND, is_up)
        self.assert_not_set(server, 'nobody', is_up)
        # What is forced down may run.
        self.force_down(FIRST)
        heart = self.beat(FIRST)
        self.assertIn(is_up, self.move(status=1))
        heart.set()
        self.die()
        self.assertIn('Compute service on nobody is not up',
                      self.move(status=1, target='nobody'))
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
        self.assertEqual([FIRST], [each['host'] for each in
                                   self.ironic.reservations()])
        self.assertEqual({server['id']: f'moved to {SECOND}'},
                         self.move('--force'))
        self.give(server, FIRST, SECOND)
        self.api.post_aggregate_action(zone['id'], {
            'remove_host': {'host': SECOND}})
        done = self.set_host(server, SECOND)
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        self.work()
        self.assert_with(SECOND, server)

    def set_host(self, server, host):
        return self.command('set', server['id'], '--host', host,
                            as_json=False)

    def assert_not_set(self, server, host, words):
        done = self.set_host(server, host)
        self.assertEqual(1, done.returncode)
        self.assertIn(words, done.stderr)

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
        self.assertEqual({server['id']: f'moved to {THIRD}'},
                         self.move(target=THIRD))
        self.work(THIRD)
        self.assertIn(
            f'Instance {server["id"]} was not moved; will retry: host {THIRD} '
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
