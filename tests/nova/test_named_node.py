# SPDX-License-Identifier: Apache-2.0
"""Servers whose request names a node of Ironic, through Nova's API."""

import json

import fixtures
from nova import context
from nova import exception
from nova.tests.functional.api import client
from nova.virt.ironic_reservations import named_node
import webob

from tests.nova import base
from tests.nova import faults
from tools import trial_cloud

KEY = 'reservations:candidate_nodes'
HOST = 'OS-EXT-SRV-ATTR:host'


class TestNamedNode(faults.TestCase):

    fleet = [{**faults.NODE, 'name': name} for name in ('one', 'two', 'three')]

    def setUp(self):
        self.paste_config = trial_cloud.write_paste_config(
            self.useFixture(fixtures.TempDir()).path)
        super().setUp()
        for host in base.HOSTS[:2]:
            self.start_compute(host)
        self.flags(group='reservations',
                   server_metadata=['claim', 'candidate_nodes'])
        self.gold = self.flavor()

    def refuse(self, code, text, **server):
        error = self.assertRaises(client.OpenStackApiException, self.boot,
                                  self.gold, **server)
        self.assertEqual(code, error.response.status_code)
        self.assertIn(text, error.response.text)

    def assert_on(self, node, server):
        self.assertEqual(node, self.ironic.node_of(server).name)
        self.assertEqual({KEY: node}, server['metadata'])

    @base.smoke
    def test_zone(self):
        self.api.microversion = '2.73'
        server = self.boot(self.gold, availability_zone='nova::two')
        self.assert_on('two', server)
        # The node is taken, and no other is used instead.
        error = self.boot(self.gold, 'ERROR', availability_zone='nova::two')
        self.assertIn('no matching node is free (candidate_nodes)',
                      error['fault']['message'])
        # No node has this name, or the project may not know one that has it.
        self.create_pool('three', project_id=faults.OTHER_PROJECT)
        for name in 'node-999', 'three':
            error = self.boot(self.gold, 'ERROR',
                              availability_zone=f'nova::{name}')
            self.assertEqual(
                f'Build of instance {error["id"]} aborted: Instance '
                f'{error["id"]} is unacceptable: no node has the name or UUID '
                f'{name}', error['fault']['message'])
        self.refuse(400, 'Additional properties', hypervisor_hostname='one')
        self.refuse(400, 'zone is not available',
                    availability_zone='cellar::one')

    def test_zone_with_a_host(self):
        for zone, host, node in (('nova', 'compute-2', 'three'),
                                 ('', 'compute-1', 'one')):
            server = self.boot(self.gold,
                               availability_zone=f'{zone}:{host}:{node}')
            self.assert_on(node, server)
            self.assertEqual(host, server[HOST])
        self.assert_on('two', self.boot(self.gold, availability_zone='::two'))

    def test_hypervisor(self):
        for node, more in (('two', {}), ('three', {'host': 'compute-2'})):
            server = self.boot(self.gold, hypervisor_hostname=node, **more)
            self.assert_on(node, server)
            self.assertEqual(more.get('host', server[HOST]), server[HOST])
        self.refuse(400, 'mutually exclusive', hypervisor_hostname='one',
                    availability_zone='nova::one')
        self.refuse(400, 'mutually exclusive', hypervisor_hostname='one',
                    availability_zone='nova:compute-2')

    def test_user_is_not_allowed(self):
        self.api = self.api_fixture.api
        self.api.microversion = '2.74'
        requests = {
            'os_compute_api:servers:create:forced_host':
                {'availability_zone': 'nova::one'},
            'compute:servers:create:requested_destination':
                {'hypervisor_hostname': 'one'}}
        for ours in None, *requests:
            if ours:
                self.policy.set_rules({
                    name: 'project_id:%(project_id)s' if name == ours
                    else '!' for name in requests}, overwrite=False)
            for name, request in requests.items():
                if name == ours:
                    server = self.boot(self.gold, **request)
                    self.assert_on('one', server)
                    self.delete(server)
                else:
                    self.refuse(403, name, **request)

    @base.smoke
    def test_metadata_needs_the_policy_of_a_forced_host(self):
        """A user cannot name a node later, either, and then unshelve."""
        user = self.api_fixture.api
        user.microversion = '2.74'
        metadata = {KEY: 'one'}
        server = self.boot(self.gold, metadata=metadata)
        request = {'name': 'server', 'flavorRef': self.gold,
                   'imageRef': self.plain_image, 'networks': 'none',
                   'availability_zone': 'nova::one'}
        own = f'/servers/{server["id"]}'

        def refuse(path, send=user.api_post, **body):
            response = send(path, body, check_response_status=[403])
            return response.body, {
                name: value for name, value in response.headers.items()
                if not name.lower().endswith('request-id')}

        refusal = refuse('/servers', server=request)
        for path, body in (
                ('/servers', {'server': {**request, 'metadata': metadata}}),
                ('/servers', {'server': {
                    **request, 'availability_zone': 'nova',
                    'metadata': metadata}}),
                (f'{own}/metadata', {'metadata': metadata}),
                (f'{own}/action', {'rebuild': {
                    'imageRef': self.plain_image, 'metadata': metadata}})):
            self.assertEqual(refusal, refuse(path, **body), path)
        self.assertEqual(refusal, refuse(
            f'{own}/metadata/{KEY}', user.api_put, meta=metadata))
        # This is metadata of an image.
        self.assertFalse(named_node.has_nodes({
            'createImage': {'name': 'x', 'metadata': metadata}}))
        user.api_post(f'{own}/metadata', {'metadata': {'other': 'one'}})
        self.assertEqual({**metadata, 'other': 'one'},
                         self.api.get_server(server['id'])['metadata'])

    def test_compute_node(self):
        for request in ({'availability_zone': 'nova::compute-2'},
                        {'hypervisor_hostname': 'compute-2'}):
            server = self.boot(self.gold, **request)
            self.assertEqual(('compute-2', {}),
                             (server[HOST], server['metadata']))

    def forward(self, body, path='/servers', method='POST', version='2.74'):
        """Return the body that the filter sends to Nova."""
        bodies = []

        @webob.dec.wsgify
        def record(request):
            bodies.append(request.body)

        request = webob.Request.blank(
            path, method=method, body=body, headers={
                'OpenStack-API-Version': f'compute {version}'}, environ={
                'nova.context': context.RequestContext(
                    'admin', 'project', is_admin=True, roles=['admin'])})
        request.get_response(named_node.NamedNode(record))
        return bodies[0]

    def assert_unchanged(self, body, *args, **kwargs):
        self.assertEqual(body, self.forward(body, *args, **kwargs))

    def test_what_passes_unchanged(self):
        zone = b'{"server":  {"availability_zone": "z::one", "x": [1]}}'
        self.assertEqual(
            {'server': {'availability_zone': 'z', 'x': [1],
                        'metadata': {KEY: 'one'}}},
            json.loads(self.forward(zone)))
        self.assertNotEqual(zone, self.forward(
            zone, f'/{faults.PROJECT}/servers'))
        self.assertNotEqual(zone, self.forward(zone, '/os-volumes_boot'))
        for path, method in (('/servers/x/action', 'POST'),
                             ('/flavors', 'POST'), ('/servers', 'PUT')):
            self.assert_unchanged(zone, path, method)
        for body in (b'', b'{', b'\xff\xfe', b'[]', b'{"server": []}',
                     b'{"x":  {"availability_zone": "z::one"}}'):
            self.assert_unchanged(body)
        for server in (
                {}, {'availability_zone': 'z'}, {'availability_zone': 1},
                {'availability_zone': None}, {'availability_zone': 'z:h'},
                {'availability_zone': 'z:h:'}, {'availability_zone': ':::'},
                {'availability_zone': 'z::one:two'},
                {'availability_zone': 'z::one,two'},
                {'availability_zone': 'z::one', 'host': 'h'},
                {'availability_zone': 'z::one', 'metadata': None},
                {'metadata': {KEY: 'one'}}, {'metadata': [KEY]},
                {'availability_zone': 'z::one', 'metadata': {KEY: 'two'}},
                {'availability_zone': 'z:h', 'hypervisor_hostname': 'one'},
                {'hypervisor_hostname': 1}, {'hypervisor_hostname': None},
                {'hypervisor_hostname': 'compute-1'}):
            self.assert_unchanged(json.dumps(
                {'server': server}, indent=1).encode())
        hypervisor = b'{"server":  {"hypervisor_hostname": "one"}}'
        self.assertNotEqual(hypervisor, self.forward(hypervisor))
        for version in '2.73', '2.1', 'x', '99.9':
            self.assert_unchanged(hypervisor, version=version)

    def test_cell_is_down(self):
        """The node may be one of its compute nodes."""
        body = b'{"server":  {"availability_zone": "z::one"}}'
        self.assertNotEqual(body, self.forward(body))
        for error in exception.CellTimeout(), OSError():
            with fixtures.MonkeyPatch(
                    'nova.db.main.api.compute_node_get_by_nodename',
                    lambda *_, error=error: (_ for _ in ()).throw(error)):
                self.assert_unchanged(body)
