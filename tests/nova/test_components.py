# SPDX-License-Identifier: Apache-2.0
"""Unit tests of parts of the driver."""

import io
import json
import threading
import types
import uuid

import fixtures
from nova import exception
from nova import objects
from nova import test
from nova.compute import utils
from nova.virt.ironic_reservations import builds
from nova.virt.ironic_reservations import client
from nova.virt.ironic_reservations import driver
from nova.virt.ironic_reservations import host_lease
from nova.virt.ironic_reservations import node_faults
from nova.virt.ironic_reservations import ownership
import requests
import testtools

from tests.nova import standbys

VERSION = {'X-OpenStack-Ironic-API-Version': '1.1'}
PROVISION = '/nodes/n/states/provision'
INSTANCE = '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'


class Ironic:
    """An adapter of openstacksdk with a constant response."""

    def __init__(self, status, body, headers):
        self._response = requests.Response()
        self._response.status_code = status
        self._response.headers.update(headers)
        self._response.raw = io.BytesIO(json.dumps(body).encode())

    def request(self, url, method, **kwargs):
        return self._response


def fault(**more):
    return {'error_message': json.dumps({'faultstring': 'the reason'}), **more}


class TestResponses(testtools.TestCase):

    def adopt(self, status, body, headers=VERSION):
        return client.Client(lambda: Ironic(status, body, headers)).adopt({})

    def test_successful_responses(self):
        for status in 200, 201:
            self.assertEqual({'a': 1}, self.adopt(status, {'a': 1}))

    def test_failed_responses(self):
        for status, headers, kind, busy in (
                (400, VERSION, client.Refused, False),
                (401, VERSION, client.Unavailable, False),
                (404, VERSION, client.NotFound, False),
                (404, {}, client.NoEndpoint, True),
                (409, VERSION, client.Conflict, False),
                (413, VERSION, client.Refused, False),
                (422, VERSION, client.NoNode, False),
                (422, {**VERSION, 'Retry-After': '1'}, client.NoNode, True),
                (503, VERSION, client.Unavailable, True)):
            failure = self.assertRaises(
                client.Failure, self.adopt, status, fault(), headers)
            self.assertEqual((kind, busy), (type(failure), failure.busy))
            if kind is not client.NoEndpoint:
                self.assertIn('the reason', str(failure))

    def test_explanation_of_a_refusal(self):
        explanation = {'considered': 1, 'eliminated': [], 'nearest': None}
        failure = self.assertRaises(client.NoNode, self.adopt, 422,
                                    fault(explanation=explanation))
        self.assertEqual(explanation, failure.explanation)


class Reservations:
    """Replaces the client.

    :ivar node: the node that the instance holds, or None
    """

    node = 'first'

    def hold(self, request):
        return {'node_uuid': self.node, 'state': 'reserved',
                'expires_at': None}

    def renew(self, instance_uuid, host, seconds):
        if self.node is None:
            raise client.NotFound('no reservation')
        return {'node_uuid': self.node}

    renew_now = renew


class TestRenewals(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.FakeLogger())
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.wanted.make_build_request',
            lambda instance, host, partition: {
                'instance_uuid': instance.uuid, 'expires_in': 60}))
        self.instance = objects.Instance(uuid=INSTANCE, metadata={},
                                         vm_state='building')
        self.reservations = Reservations()
        self.builds = builds.Builds(self.reservations, 'compute-1')
        self.builds.begin(self.instance, {}, None)

    def renew(self):
        return self.builds.renew(self.instance)

    def test_renewal_returns_the_node(self):
        self.builds.renew_all()
        self.assertEqual('first', self.renew())

    def test_another_node_or_none(self):
        """A lost node is not used again, even if it is held again."""
        for node in 'second', None:
            for renew in self.builds.renew_all, lambda: self.assertRaises(
                    exception.InstanceUnacceptable, self.renew):
                self.builds.begin(self.instance, {}, None)
                self.reservations.node = node
                renew()
                self.reservations.node = 'first'
                self.assertRaises(exception.InstanceUnacceptable, self.renew)

    def test_after_the_end(self):
        self.builds.end(self.instance)
        self.assertRaises(exception.InstanceUnacceptable, self.renew)


class TestRefusals(testtools.TestCase):
    """The messages for a user whose request Ironic refuses."""

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.request = {'instance_uuid': INSTANCE, 'name': 'bm.gold',
                        'conductor_group': None, 'shard': None}
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.wanted.make_build_request',
            lambda instance, host, partition: self.request))

    def begin(self, status, body, **metadata):
        instance = objects.Instance(uuid=INSTANCE, vm_state='building',
                                    metadata=metadata)
        builds.Builds(client.Client(lambda: Ironic(status, body, VERSION)),
                      'compute-1').begin(instance, {}, None)

    def fault(self, reason, **metadata):
        """Return the message that Nova stores."""
        error = self.assertRaises(
            exception.InstanceUnacceptable, self.begin, 400,
            {'error_message': json.dumps({'faultstring': reason})},
            **metadata)
        return utils.exception_to_dict(exception.BuildAbortException(
            instance_uuid=INSTANCE, reason=error.format_message()))['message']

    def test_message_is_complete(self):
        reason = ('extra_specs.reservations:candidate_node: not one of '
                  'reservations:candidate_nodes, reservations:candidates, '
                  'reservations:match, reservations:trait:T; did you mean '
                  'reservations:candidate_nodes?')
        prefix = f'Build of instance {INSTANCE} aborted: '
        self.assertEqual(prefix + reason, self.fault(reason))
        self.assertEqual(
            f'{prefix}Instance {INSTANCE} is unacceptable: short',
            self.fault('short'))
        self.assertTrue(self.fault(reason, **{'reservations:x': '1'}
                                   ).startswith(prefix + reason[:190]))

    def test_misspelt_extra_specs(self):
        """One warning for each flavor and key that is similar to a valid one.
        """
        ignored = ['capabilites:rack', 'hw:cpu_policy']
        reservation = {'node_uuid': 'first', 'state': 'reserved',
                       'expires_at': None, 'ignored': ignored}
        warning = ('Extra spec capabilites:rack of flavor {} is not compared '
                   'with nodes; did you mean capabilities:rack?')
        for flavor in 'bm.gold', 'bm.silver', 'bm.gold':
            self.request['name'] = flavor
            self.begin(201, reservation)
        for flavor in 'bm.gold', 'bm.silver':
            self.assertEqual(1, self.log.output.count(warning.format(flavor)))
        self.request['name'] = 'bm.bronze'
        self.assertRaises(
            exception.InstanceUnacceptable, self.begin, 422,
            fault(explanation={'eliminated': []}, ignored=ignored))
        self.assertIn(warning.format('bm.bronze'), self.log.output)
        self.assertEqual(3, self.log.output.count('is not compared'))


class TestView(testtools.TestCase):

    def test_node_of_an_instance(self):
        """The parent reads it in both ways; the instance is unchanged."""
        instance = objects.Instance(uuid=INSTANCE, host='compute-1',
                                    node='compute-1')
        view = ownership.OnNode(instance, 'first')
        self.assertEqual(('first', 'first'), (view.node, view.get('node')))
        self.assertEqual((INSTANCE, 'compute-1', 'compute-1'), (
            view.uuid, view.get('host'), instance.node))


class TestEvacuation(test.NoDBTestCase):

    def test_refused(self):
        host = driver.ReservationsDriver(None)
        host.host = 'compute-2'
        host.ownership = types.SimpleNamespace(
            is_reserved=lambda instance: True)
        error = self.assertRaises(
            exception.ComputeResourcesUnavailable, host.instance_exists,
            objects.Instance(uuid=INSTANCE, host='compute-1',
                             node='compute-1'))
        self.assertIn('openstack baremetal reservation move', str(error))


class TestHostLease(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.FakeLogger())
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.host_lease.os._exit',
            standbys.exit_process))

    def renew(self, failure):
        def acquire_host_lease(host, holder, ttl):
            raise failure

        return host_lease.HostLease('compute-1', types.SimpleNamespace(
            acquire_host_lease=acquire_host_lease), None).renew()

    def test_another_process_has_it(self):
        self.assertRaises(standbys.Exit, self.renew,
                          client.Conflict('another process'))

    def test_unavailable_ironic(self):
        self.assertFalse(self.renew(client.Unavailable('timeout')))

    def test_wait_after_giving_it_up(self):
        """The thread ends the process, instead of waiting forever."""
        cleanup = threading.Event()
        cleanup.set()
        lease = host_lease.HostLease('compute-1', types.SimpleNamespace(
            acquire_host_lease=lambda *_: None,
            get_host_lease_start=lambda _: 'then',
            give_up_host_lease=lambda *_: None), cleanup)
        self.assertTrue(lease.renew())
        lease.wait()
        lease.give_up()
        self.assertRaises(standbys.Exit, lease.wait)
        self.assertRaises(standbys.Exit, lease.renew_or_wait)


class Baremetal:
    """Replaces the SDK for a node, and records writes."""

    def __init__(self):
        self.writes = []

    def volume_targets(self, **query):
        return []

    def ports(self, node, fields):
        return [types.SimpleNamespace(internal_info=info, extra=extra)
                for info, extra in (({}, {}), (
                    {'tenant_vif_port_id': 'new'}, {'vif_port_id': 'new'}))]

    def port_groups(self, node, fields):
        return [types.SimpleNamespace(
            internal_info={'cleaning_vif_port_id': 'cleaning'},
            extra={'vif_port_id': 'old'})]

    def detach_vif_from_node(self, node, vif, **kwargs):
        self.writes.append(vif)

    def get_node(self, node, fields):
        return types.SimpleNamespace(id=node, instance_id=INSTANCE,
                                     instance_info={'image_source': 'x'},
                                     reservation=None)

    def update_node(self, node, *patch, **fields):
        self.writes.append(fields or patch)


class TestTearDown(test.NoDBTestCase):

    def test_instance_stays_on_its_node(self):
        """Only a release removes the instance from its node."""
        baremetal = Baremetal()
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic.driver.IronicDriver.ironic_connection',
            baremetal))
        driver.ReservationsDriver(None)._cleanup_deploy(
            baremetal.get_node('first', ()), ownership.OnNode(
                objects.Instance(uuid=INSTANCE), 'first'))
        self.assertEqual(['new', 'old', {'instance_info': {}}],
                         baremetal.writes)


class TestNodeFaults(test.NoDBTestCase):
    """Which responses in a build are faults of its node."""

    def fault(self, method, path, status, body=None):
        attempt = node_faults.Attempt()
        attempt.note(method, path, Ironic(
            status, fault() if body is None else body,
            {'Content-Type': 'application/json'}).request('', ''))
        self.assertEqual(
            (method, path, status < 300) == ('PUT', PROVISION, True),
            attempt.is_accepted)
        return attempt.fault

    def validation(self, **reasons):
        return {name: {'result': name not in reasons,
                       'reason': reasons.get(name, '')}
                for name in ('boot', 'deploy', 'power', 'storage')}

    def test_requests_and_statuses(self):
        for status in (200, 202, 204, 400, 401, 403, 404, 406, 409, 412, 413,
                       500, 502, 503, 504):
            counts = 'the reason' if status in (400, 404, 500) else None
            for method, path in (
                    ('POST', '/nodes/n/vifs'), ('PATCH', 'nodes/n'),
                    ('PUT', PROVISION), ('GET', '/nodes/n/validate')):
                self.assertEqual(counts, self.fault(
                    method, path, status,
                    self.validation() if status < 300 else None), path)
            for method, path in (
                    ('GET', '/nodes/n'), ('DELETE', '/nodes/n/vifs/v'),
                    ('POST', '/volume/targets'), ('GET', '/nodes/n/vifs'),
                    ('GET', '/volume/connectors'), ('PUT', '/nodes/n'),
                    ('PUT', '/nodes/n/states/power')):
                self.assertIsNone(self.fault(method, path, status), path)

    def test_words_of_a_reason(self):
        """They do not matter."""
        for reason in ('network', 'no such image', 'a volume of Cinder'):
            self.assertEqual(reason, self.fault(
                'PATCH', '/nodes/n', 400,
                {'error_message': json.dumps({'faultstring': reason})}))

    def test_validation(self):
        for expected, reasons in (
                (None, {'storage': 'no', 'boot': 'no'}),
                ('deploy: a', {'deploy': 'a', 'storage': 'no'}),
                ('deploy: a; power: b', {'deploy': 'a', 'power': 'b'})):
            self.assertEqual(expected, self.fault(
                'GET', '/nodes/n/validate', 200, self.validation(**reasons)))

    def test_last_nodes(self):
        """The value fits into Nova's column."""
        instance = objects.Instance(uuid=INSTANCE, system_metadata={})
        uuids = [str(uuid.uuid4()) for _ in range(8)]
        for node in [*uuids, uuids[3]]:
            node_faults.remember(instance, node)
        self.assertEqual([uuids[2], *uuids[4:], uuids[3]],
                         node_faults.list_nodes(instance))
        [value] = instance.system_metadata.values()
        self.assertLessEqual(len(value), 255)
        node_faults.forget(instance)
        self.assertEqual([], node_faults.list_nodes(instance))
