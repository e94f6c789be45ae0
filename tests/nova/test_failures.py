# SPDX-License-Identifier: Apache-2.0
"""Builds during which something fails."""

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
        self.assertEqual(1, len(self.wire.bodies(*faults.HOLD)))
        self.delete(server)
        # Malformed extra specs.
        for field, value, reason in (
                ('trait:CUSTOM_X', 'maybe', 'must be required or forbidden; '
                 'got "maybe"'),
                ('reservations:candidate_node', 'x', 'not one of '
                 'reservations:candidate_nodes, '
                 'reservations:candidates, reservations:match, '
                 'reservations:trait:T; did you mean '
                 'reservations:candidate_nodes?'),
                ('capabilities:ram', '>= x', 'must be a value or an '
                 'expression such as ">= 4", "<in> word" or "<or> a <or> b"; '
                 'got ">= x"')):
            self.wire.requests.clear()
            server = self.boot(self.unchecked_flavor(**{field: value}),
                               'ERROR')
            self.assert_aborted(server, f'extra_specs.{field}: {reason}')
            self.assertEqual(1, len(self.wire.bodies(*faults.HOLD)))
            self.delete(server)
        self.assert_nothing_left()

    def test_locked_nodes(self):
        for host in base.HOSTS[:2]:
            self.start_compute(host)
        flavor = self.flavor()

        def lock(by):
            self.sql('UPDATE nodes SET reservation = :by', by=by)

        lock('conductor')
        server = self.boot(flavor, None)
        # The conductor unlocks the nodes after some attempts.
        self.wait_for(lambda: self.assertLess(
            1, len(self.wire.bodies(*faults.HOLD))))
        lock(None)
        server = self.wait_for_status(server, 'ACTIVE')
        self.assertEqual({server['OS-EXT-SRV-ATTR:host']}, {
            body['host'] for body in self.wire.bodies(*faults.HOLD)})
        self.delete(server)
        # The nodes stay locked.
        self.disable_retries()
        self.wire.requests.clear()
        lock('conductor')
        server = self.boot(flavor, 'ERROR')
        self.assertIn('Exhausted all hosts', server['fault']['message'])
        self.assertEqual(set(base.HOSTS[:2]), {
            body['host'] for body in self.wire.bodies(*faults.HOLD)})
        lock(None)
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
        # The first host also asks for the whole fleet.
        self.assertEqual(['compute-1', 'compute-1', 'compute-2'], [
            body['host'] for body in self.wire.bodies(*faults.HOLD)])
        self.delete(server)
        # No node matches, so no other host is tried.
        self.wire.requests.clear()
        server = self.boot(self.flavor(capabilities='slow'), 'ERROR')
        self.assert_aborted(server, 'no free node matches capabilities:slow')
        first, everywhere = self.wire.bodies(*faults.HOLD)
        self.assertEqual(first['host'], everywhere['host'])
        self.assertIsNone(everywhere['shard'])
        self.delete(server)
        # If that request fails, the next host is tried.
        self.disable_retries()
        self.wire.on(*faults.HOLD, lambda send: send())
        self.wire.on(*faults.HOLD, faults.cut, times=999)
        server = self.boot(self.flavor(capabilities='slow'), 'ERROR')
        self.assertIn('Exhausted all hosts', server['fault']['message'])
        self.wire.heal()
        self.delete(server)
        self.assert_nothing_left()

    def test_claims_in_other_shards(self):
        self.flags(group='reservations', server_metadata=['claim'])
        self.ironic.remove(self.ironic.nodes())
        # Nova tries the host with the most memory first.
        self.enrol({**faults.NODE, 'shard': 'a', 'properties': {
            **faults.NODE['properties'], 'memory_mb': 65536}},
            {**faults.NODE, 'shard': 'b', 'name': 'mine'})
        for host, shard in ('compute-1', 'a'), ('compute-2', 'b'):
            self.start_compute(host, ironic={'shard': shard})
        claim = self.hold(candidate_nodes=['mine'],
                          project_id=faults.PROJECT)['instance_uuid']
        self.run_periodic()
        self.wire.requests.clear()
        metadata = {'reservations:claim': claim}
        # No host could claim it for this request, so no other one is tried.
        server = self.boot(self.flavor(capabilities='slow'), 'ERROR',
                           metadata=metadata)
        self.assert_aborted(server, 'no free node matches capabilities:slow')
        self.assertEqual(['a', None], [
            body['shard'] for body in self.wire.bodies(*faults.HOLD)])
        self.delete(server)
        server = self.boot(self.flavor(), metadata=metadata)
        self.assertEqual('compute-2', server['OS-EXT-SRV-ATTR:host'])
        self.delete(server)
        self.assert_nothing_left()

    def test_unavailable_ironic(self):
        for host in base.HOSTS[:2]:
            self.start_compute(host)
        flavor = self.flavor()

        def rename(old, new):
            return faults.before(lambda: self.sql(
                f'ALTER TABLE {old} RENAME TO {new}'))

        # Ironic is available again while the first host retries.
        self.wire.on(*faults.HOLD, faults.cut)
        self.wire.on(*faults.HOLD, faults.lose_response)
        self.wire.on(*faults.HOLD, rename('reservations', 'hidden'))
        self.wire.on(*faults.HOLD, rename('hidden', 'reservations'))
        server = self.boot(flavor)
        [reservation] = self.ironic.reservations()
        self.assertEqual(server['id'], reservation['instance_uuid'])
        self.assertEqual({(server['id'], reservation['host'])}, {
            (body['instance_uuid'], body['host'])
            for body in self.wire.bodies(*faults.HOLD)})
        self.delete(server)
        # Only the next host can reach it.
        self.disable_retries()
        self.wait_for_free_nodes()
        self.wire.requests.clear()
        self.wire.on(*faults.HOLD, faults.cut)
        server = self.boot(flavor)
        first, *_, last = self.wire.bodies(*faults.HOLD)
        self.assertNotEqual(first['host'], last['host'])
        self.assertEqual(last['host'], server['OS-EXT-SRV-ATTR:host'])
        self.delete(server)
        # No host can.
        self.wait_for_free_nodes()
        self.wire.on('.*', '.*', faults.cut, times=999)
        server = self.boot(flavor, 'ERROR')
        self.wire.heal()
        self.assertIn('Exhausted all hosts', server['fault']['message'])
        self.assertIn('node reservation service did not serve', self.log)
        self.assertEqual({}, self.allocations(server))
        self.assert_nothing_left()
        self.delete(server)

    def test_unavailable_during_cleanup(self):
        self.disable_retries()
        self.start_compute('compute-1')
        self.wire.on(*faults.HOLD, faults.after(
            lambda: self.wire.on('.*', '.*', faults.cut, times=999)))
        server = self.boot(self.flavor(), 'ERROR')
        self.wire.heal()
        [reservation] = self.ironic.reservations()
        self.assertEqual(server['id'], reservation['instance_uuid'])
        self.delete(server)
        # Released before its lease expires.
        self.run_periodic(task='_cleanup_running_deleted_instances')
        self.assert_nothing_left()

    def test_conflicting_hold(self):
        self.disable_retries()
        for host in base.HOSTS[:2]:
            self.start_compute(host)
        flavor = self.flavor()

        def hold(host):
            body = self.wire.bodies(*faults.HOLD)[-1]
            reservations.append(self.hold(
                instance_uuid=body['instance_uuid'], memory_mb=1,
                host=host or body['host']))

        # An earlier build of this host has left a hold.
        reservations = []
        self.wire.on(*faults.HOLD, faults.before(lambda: hold(None)))
        server = self.boot(flavor)
        [now] = self.ironic.reservations()
        self.assertEqual((server['id'], reservations[0]['host']),
                         (now['instance_uuid'], now['host']))
        self.assertNotEqual(reservations[0]['request_spec'],
                            now['request_spec'])
        self.delete(server)
        # Another host holds one for it.
        self.wire.on(*faults.HOLD, faults.before(lambda: hold('another')))
        server = self.boot(flavor, 'ERROR')
        self.assertIn('Exhausted all hosts', server['fault']['message'])
        self.assertIn('already has another reservation', self.log)
        self.assertEqual([reservations[1]], self.ironic.reservations())
        self.delete(server)
        self.ironic.http.delete(f'/v1/reservations/{server["id"]}')
        self.assert_nothing_left()


class TestLease(faults.TestCase):
    fleet = [faults.NODE] * 2

    def test_lease_renewals(self):
        self.start_compute('compute-1')
        slow, renewal = self.gate(), self.gate()
        self.wire.on('PATCH', '/v1/nodes/.*', faults.cut_after(slow))
        server = self.boot(self.flavor(), None)
        slow.wait()
        # The lease is renewed during the build.
        self.sql("UPDATE reservations SET expires_at = "
                 "datetime('now', '+60 seconds')")
        [before] = self.ironic.reservations()
        self.run_periodic()
        [after] = self.ironic.reservations()
        self.assertGreater(after['expires_at'], before['expires_at'])
        self.assertEqual(before['node_uuid'], after['node_uuid'])
        # The build fails during the next renewal, which must not hold again.
        self.wire.on(*faults.RENEW, faults.before(renewal))
        periodic = threading.Thread(target=self.run_periodic)
        periodic.start()
        renewal.wait()
        slow.open()
        # Long enough for anything that must not happen.
        time.sleep(1)
        renewal.open()
        periodic.join()
        self.wait_for_status(server, 'ERROR')
        self.run_periodic()
        self.assert_nothing_left()
        self.delete(server)
        # No lease is renewed after a deployment or a deletion.
        server = self.boot(self.flavor())
        self.wire.requests.clear()
        self.run_periodic()
        self.delete(server)
        self.run_periodic()
        self.assertEqual([], self.wire.bodies(*faults.RENEW))
        self.assert_nothing_left()

    def test_moved_reservation_is_not_renewed(self):
        """It stays with its new host."""
        self.start_compute('compute-1')
        slow = self.gate()
        self.wire.on('PATCH', '/v1/nodes/.*', faults.cut_after(slow))
        server = self.boot(self.flavor(), None)
        slow.wait()
        self.assign(server, 'another')
        [before] = self.ironic.reservations()
        self.run_periodic()
        self.assertEqual([before], self.ironic.reservations())
        slow.open()
        self.wait_for_status(server, 'ERROR')
        self.assertEqual([before], self.ironic.reservations())
        self.assertEqual(1, len(self.wire.bodies(*faults.HOLD)))
        self.delete(server)
        self.ironic.http.delete(f'/v1/reservations/{server["id"]}')


class TestHost(faults.TestCase):
    fleet = [faults.NODE]

    def test_compute_id(self):
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
            error = self.assertRaises(
                exception.InvalidConfiguration,
                self.start_compute, 'compute-1')
            self.assertIn(message, str(error))
            self.assertEqual(before, self._compute_ids)
        # No new ID is generated for a host that has lost its file.
        del self._compute_ids['compute-1']
        error = self.assertRaises(exception.InvalidConfiguration,
                                  self.start_compute, 'compute-1')
        self.assertIn(f'{ours} in the database, but none here', str(error))
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
        self.take_down('compute-1')
        self.delete(server)
        self.assertEqual('active',
                         self.ironic.node_of(server).provision_state)
        self.bring_back('compute-1')
        self.run_periodic(task='_cleanup_running_deleted_instances')
        self.assert_nothing_left()

    def test_reservation_is_lost(self):
        """Nova does not delete a server whose node still runs."""
        self.start_compute('compute-1')
        server = self.boot(self.flavor())
        node = self.ironic.node_of(server)
        self.sql('DELETE FROM reservations')
        # Also in an unknown state of a later Ironic.
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
