# SPDX-License-Identifier: Apache-2.0
"""What becomes of a build when something goes wrong on its way."""

import threading
import time
import uuid

from nova import exception

from tests.nova import base
from tests.nova import faults


class TestHold(faults.TestCase):
    fleet = [faults.NODE] * 2

    @base.smoke
    def test_no_node_anywhere(self):
        for host in base.HOSTS:
            self.start_compute(host)
        server = self.boot(self.flavor(
            capabilities='gpu', **{'capabilites:rack': 'r1'}), 'ERROR')
        self.assert_aborted(server, 'no free node matches capabilities:gpu')
        self.assertIn('Extra spec capabilites:rack of flavor', self.log)
        self.assertIn("'considered': 2, 'eliminated': [{'by': "
                      "'capabilities:gpu', 'nodes': 2}]", self.log)
        self.assertEqual(1, len(self.wire.sent(*faults.HOLD)))
        self.delete(server)
        # What nobody can understand.
        for field, value, reason in (
                ('trait:CUSTOM_X', 'maybe', 'must be required or forbidden'),
                ('reservations:candidate_node', 'x', 'is not allowed; '
                 'allowed: reservations:candidate_nodes, reservations:match, '
                 'reservations:trait:T; did you mean '
                 'reservations:candidate_nodes?'),
                ('capabilities:ram', '>= x', 'must be a value or an '
                 'expression such as ">= 4", "<in> word" or "<or> a <or> b", '
                 'not ">= x"')):
            self.wire.requests.clear()
            server = self.boot(self.unchecked_flavor(**{field: value}),
                               'ERROR')
            self.assert_aborted(server, f'extra_specs.{field}: {reason}')
            self.assertEqual(1, len(self.wire.sent(*faults.HOLD)))
            self.delete(server)
        self.assert_nothing_left()

    def test_locked(self):
        for host in base.HOSTS[:2]:
            self.start_compute(host)
        flavor = self.flavor()

        def locked(by):
            self.sql('UPDATE nodes SET reservation = :by', by=by)

        locked('conductor')
        server = self.boot(flavor, None)
        # Until a conductor lets go.
        self.wait_for(lambda: self.assertLess(
            1, len(self.wire.sent(*faults.HOLD))))
        locked(None)
        server = self.wait_for_status(server, 'ACTIVE')
        self.assertEqual({server['OS-EXT-SRV-ATTR:host']}, {
            body['host'] for body in self.wire.sent(*faults.HOLD)})
        self.delete(server)
        # None does.
        self.be_impatient()
        self.wire.requests.clear()
        locked('conductor')
        server = self.boot(flavor, 'ERROR')
        self.assertIn('Exhausted all hosts', server['fault']['message'])
        self.assertEqual(set(base.HOSTS[:2]), {
            body['host'] for body in self.wire.sent(*faults.HOLD)})
        locked(None)
        self.delete(server)
        self.assert_nothing_left()

    def test_other_shards(self):
        self.ironic.remove(self.ironic.nodes())
        fast = {**faults.NODE, 'properties': {**faults.NODE['properties'],
                                              'capabilities': 'fast:true'}}
        large = {**faults.NODE, 'properties': {**faults.NODE['properties'],
                                               'memory_mb': 65536}}
        # Nova tries the host with the most memory first.
        self.enrol({**large, 'shard': 'a'}, {**fast, 'shard': 'b'})
        for host, shard in ('compute-1', 'a'), ('compute-2', 'b'):
            self.start_compute(host, ironic={'shard': shard})
        server = self.boot(self.flavor(capabilities='fast'))
        self.assertEqual('compute-2', server['OS-EXT-SRV-ATTR:host'])
        # The first one asks whether the whole fleet has any.
        self.assertEqual(['compute-1', 'compute-1', 'compute-2'], [
            body['host'] for body in self.wire.sent(*faults.HOLD)])
        self.delete(server)
        # No host has what this one wants, so none but the first is asked.
        self.wire.requests.clear()
        server = self.boot(self.flavor(capabilities='slow'), 'ERROR')
        self.assert_aborted(server, 'no free node matches capabilities:slow')
        first, everywhere = self.wire.sent(*faults.HOLD)
        self.assertEqual(first['host'], everywhere['host'])
        self.assertIsNone(everywhere['shard'])
        self.delete(server)
        # Where that cannot be asked, the next one is tried.
        self.be_impatient()
        self.wire.on(*faults.HOLD, lambda go_on: go_on())
        self.wire.on(*faults.HOLD, faults.cut, times=999)
        server = self.boot(self.flavor(capabilities='slow'), 'ERROR')
        self.assertIn('Exhausted all hosts', server['fault']['message'])
        self.wire.heal()
        self.delete(server)
        self.assert_nothing_left()

    def test_unreachable(self):
        for host in base.HOSTS[:2]:
            self.start_compute(host)
        flavor = self.flavor()

        def rename(old, new):
            return faults.before(lambda: self.sql(
                f'ALTER TABLE {old} RENAME TO {new}'))

        # It is back within the patience of one host.
        self.wire.on(*faults.HOLD, faults.cut)
        self.wire.on(*faults.HOLD, faults.lose_answer)
        self.wire.on(*faults.HOLD, rename('reservations', 'hidden'))
        self.wire.on(*faults.HOLD, rename('hidden', 'reservations'))
        server = self.boot(flavor)
        [held] = self.ironic.reservations()
        self.assertEqual(server['id'], held['instance_uuid'])
        self.assertEqual({(server['id'], held['host'])}, {
            (body['instance_uuid'], body['host'])
            for body in self.wire.sent(*faults.HOLD)})
        self.delete(server)
        # It is not, but the next host can reach it.
        self.be_impatient()
        self.wait_for_free_nodes()
        self.wire.requests.clear()
        self.wire.on(*faults.HOLD, faults.cut)
        server = self.boot(flavor)
        first, *_, last = self.wire.sent(*faults.HOLD)
        self.assertNotEqual(first['host'], last['host'])
        self.assertEqual(last['host'], server['OS-EXT-SRV-ATTR:host'])
        self.delete(server)
        # None can.
        self.wait_for_free_nodes()
        self.wire.on('.*', '.*', faults.cut, times=999)
        server = self.boot(flavor, 'ERROR')
        self.wire.heal()
        self.assertIn('Exhausted all hosts', server['fault']['message'])
        self.assertIn('node reservation service did not serve', self.log)
        self.assertEqual({}, self.allocations(server))
        self.assert_nothing_left()
        self.delete(server)

    def test_unreachable_at_cleanup(self):
        self.be_impatient()
        self.start_compute('compute-1')
        self.wire.on(*faults.HOLD, faults.after(
            lambda: self.wire.on('.*', '.*', faults.cut, times=999)))
        server = self.boot(self.flavor(), 'ERROR')
        self.wire.heal()
        [held] = self.ironic.reservations()
        self.assertEqual(server['id'], held['instance_uuid'])
        self.delete(server)
        # Before its lease ends.
        self.run_periodic(task='_cleanup_running_deleted_instances')
        self.assert_nothing_left()

    def test_conflict(self):
        self.be_impatient()
        for host in base.HOSTS[:2]:
            self.start_compute(host)
        flavor = self.flavor()

        def hold(host):
            body = self.wire.sent(*faults.HOLD)[-1]
            held.append(self.hold(
                instance_uuid=body['instance_uuid'], memory_mb=1,
                host=host or body['host']))

        # An earlier build of this host has left a hold.
        held = []
        self.wire.on(*faults.HOLD, faults.before(lambda: hold(None)))
        server = self.boot(flavor)
        [now] = self.ironic.reservations()
        self.assertEqual((server['id'], held[0]['host']),
                         (now['instance_uuid'], now['host']))
        self.assertNotEqual(held[0]['request_spec'], now['request_spec'])
        self.delete(server)
        # Another host holds one for it.
        self.wire.on(*faults.HOLD, faults.before(lambda: hold('another')))
        server = self.boot(flavor, 'ERROR')
        self.assertIn('Exhausted all hosts', server['fault']['message'])
        self.assertIn('already has another reservation', self.log)
        [now] = self.ironic.reservations()
        self.assertEqual(held[1], now)
        self.delete(server)
        self.ironic.http.delete(f'/v1/reservations/{server["id"]}')
        self.assert_nothing_left()


class TestLease(faults.TestCase):
    fleet = [faults.NODE] * 2

    def test_renewals(self):
        self.start_compute('compute-1')
        slow, renewal = self.gate(), self.gate()
        self.wire.on('PATCH', '/v1/nodes/.*', faults.gated_cut(slow))
        server = self.boot(self.flavor(), None)
        slow.wait()
        # The build goes on, and so does its lease.
        self.sql("UPDATE reservations SET expires_at = "
                 "datetime('now', '+60 seconds')")
        [short] = self.ironic.reservations()
        self.run_periodic()
        [renewed] = self.ironic.reservations()
        self.assertGreater(renewed['expires_at'], short['expires_at'])
        self.assertEqual(short['node_uuid'], renewed['node_uuid'])
        # It fails while it is renewed again: what is released stays so.
        self.wire.on(*faults.RENEW, faults.before(renewal))
        periodic = threading.Thread(target=self.run_periodic)
        periodic.start()
        renewal.wait()
        slow.open()
        # Long enough for all that must not be done meanwhile.
        time.sleep(1)
        renewal.open()
        periodic.join()
        self.wait_for_status(server, 'ERROR')
        self.run_periodic()
        self.assert_nothing_left()
        self.delete(server)
        # Nor is anything renewed after a server was deployed or deleted.
        server = self.boot(self.flavor())
        self.wire.requests.clear()
        self.run_periodic()
        self.delete(server)
        self.run_periodic()
        self.assertEqual([], self.wire.sent(*faults.RENEW))
        self.assert_nothing_left()

    def test_renewal_takes_nothing_back(self):
        """A hold that has moved to another host is not renewed or moved."""
        self.start_compute('compute-1')
        slow = self.gate()
        self.wire.on('PATCH', '/v1/nodes/.*', faults.gated_cut(slow))
        server = self.boot(self.flavor(), None)
        slow.wait()
        self.give(server, 'another')
        [before] = self.ironic.reservations()
        self.run_periodic()
        self.assertEqual([before], self.ironic.reservations())
        slow.open()
        self.wait_for_status(server, 'ERROR')
        self.assertEqual([before], self.ironic.reservations())
        self.assertEqual(1, len(self.wire.sent(*faults.HOLD)))
        self.delete(server)
        self.ironic.http.delete(f'/v1/reservations/{server["id"]}')


class TestService(faults.TestCase):
    fleet = [faults.NODE]

    def test_identity(self):
        for host in base.HOSTS[:2]:
            self.start_compute(host)
        for host in base.HOSTS[:2]:
            self.stop_compute(host)
        ours, others = [self._compute_ids[host] for host in base.HOSTS[:2]]
        for wrong, message in (
                (others, f'compute_id {others} belongs to host compute-2'),
                (str(uuid.uuid4()), f'has the compute_id {ours} in the')):
            self._compute_ids['compute-1'] = wrong
            before = dict(self._compute_ids)
            refused = self.assertRaises(
                exception.InvalidConfiguration,
                self.start_compute, 'compute-1')
            self.assertIn(message, str(refused))
            self.assertEqual(before, self._compute_ids)
        # A host that has lost its file is not given another one.
        del self._compute_ids['compute-1']
        refused = self.assertRaises(exception.InvalidConfiguration,
                                    self.start_compute, 'compute-1')
        self.assertIn(f'{ours} in the database, but none here', str(refused))
        self.assertNotIn('compute-1', self._compute_ids)
        self._compute_ids['compute-1'] = ours
        self.start_compute('compute-1')
        self.assertEqual({'compute-1', 'compute-2'}, set(self.providers()))

    def test_started_before_ironic(self):
        self.start_compute('compute-1')
        self.stop_compute('compute-1')
        self.wire.on('.*', '.*', faults.cut, times=999)
        self.start_compute('compute-1')
        self.run_periodic()
        self.wire.heal()
        self.run_periodic()
        server = self.boot(self.flavor())
        self.delete(server)
        self.assert_nothing_left()

    def test_deleted_while_down(self):
        self.start_compute('compute-1')
        server = self.boot(self.flavor())
        self.die('compute-1')
        self.delete(server)
        self.assertEqual('active',
                         self.ironic.node_of(server).provision_state)
        self.come_back('compute-1')
        self.run_periodic(task='_cleanup_running_deleted_instances')
        self.assert_nothing_left()


    def test_row_is_lost(self):
        """Nova does not forget a server whose node runs on unreserved."""
        self.start_compute('compute-1')
        server = self.boot(self.flavor())
        node = self.ironic.node_of(server)
        self.sql('DELETE FROM reservations')
        # Also in a state that a later Ironic brings.
        for state in 'new', 'active':
            self.sql('UPDATE nodes SET provision_state = :s', s=state)
            self.delete(server, wait=False)
            self.wait_for_status(server, 'ERROR')
            self.assertIn('is not reserved', self.fault_of(server))
            self.assertEqual(state,
                             self.ironic.node_of(server).provision_state)
        self.ironic.baremetal.set_node_provision_state(node, 'deleted')
        self.ironic.settle([node], provision_state='available')
        self.delete(server)
        self.assert_nothing_left()
