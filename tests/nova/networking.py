# SPDX-License-Identifier: Apache-2.0
"""Neutron for a real Ironic, with the ports of Nova's Neutron fixture."""

import functools
import http.server
import itertools
import json
import selectors
import socketserver
import threading
import urllib.parse

from nova.tests import fixtures

from tests.nova import faults
from tools import services

#: Makes config drives; installed with Ironic.
MKISOFS = services.program('pycdlib-genisoimage')
#: A volume of Nova's Cinder fixture, and a request to boot from it.
VOLUME = fixtures.CinderFixture.IMAGE_BACKED_VOL
FROM_VOLUME = {'image': '', 'block_device_mapping_v2': [{
    'boot_index': 0, 'uuid': VOLUME, 'source_type': 'volume',
    'destination_type': 'volume'}]}


class _Handler(http.server.BaseHTTPRequestHandler):

    def do_GET(self):
        path, _, query = self.path.partition('?')
        if path == '/v2.0/ports':
            filters = urllib.parse.parse_qs(query)
            filters.pop('fields', None)
            return self._send(200, {'ports': [
                port for port in self.server.neutron.list_ports(True)['ports']
                if all(port.get(name) in values
                       for name, values in filters.items())]})
        if self.path == '/':
            return self._send(200, {'versions': [{
                'id': 'v2.0', 'status': 'CURRENT', 'links': [{
                    'rel': 'self', 'href': self.server.url + '/v2.0/'}]}]})
        kind, name = self.path.rsplit('/', 2)[1:]
        self._answer(f'show_{kind[:-1]}', name)

    def do_PUT(self):
        body = json.loads(self.rfile.read(int(
            self.headers['Content-Length'])))
        port = body['port']
        # Neutron generates an address then.
        if 'mac_address' in port and port['mac_address'] is None:
            del port['mac_address']
        # The fixture expects None for an unbound port.
        if port.get('binding:host_id') == '':
            port['binding:host_id'] = None
        self._answer('update_port', self.path.rpartition('/')[2], body)

    def _answer(self, method, *args):
        try:
            response = getattr(self.server.neutron, method)(*args)
        except Exception as e:
            status = getattr(e, 'status_code', 404)
            return self._send(status, {'NeutronError': {
                'type': 'NotFound', 'detail': '', 'message': repr(e)}})
        self._send(200, response)

    def _send(self, status, body):
        body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Neutron(http.server.ThreadingHTTPServer):
    """Shows, lists and updates ports, and shows networks.

    :ivar neutron: the fixture of the current test.
    """

    neutron = None

    @property
    def url(self):
        return f'http://127.0.0.1:{self.server_port}'

    @property
    def ironic_options(self):
        """Options for ironic.conf; nodes need network_interface='flat'."""
        return {
            'DEFAULT': {'enabled_network_interfaces': 'noop,flat'},
            'neutron': {
                'auth_type': 'none', 'endpoint_override': self.url,
                'cleaning_network': fixtures.NeutronFixture.network_1['id']}}


@functools.cache
def neutron():
    """Return the server of this process."""
    # The default selector would block the whole process where eventlet has
    # replaced threads, as it does before Nova 33.
    socketserver._ServerSelector = selectors.SelectSelector
    server = Neutron(('127.0.0.1', 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class Networks:
    """Mixed into a TestCase; gives nodes networks and two ports each.

    A subclass may add options to ironic_config.
    """

    ironic_config = {}

    @classmethod
    def setUpClass(cls):
        cls.network = neutron()
        options = cls.network.ironic_options
        cls.ironic_config = {
            **options, **cls.ironic_config,
            'DEFAULT': {**options['DEFAULT'],
                        **cls.ironic_config.get('DEFAULT', {})}}
        super().setUpClass()

    def setUp(self):
        self._addresses = (f'52:54:00:00:00:{n:02}' for n in itertools.count())
        super().setUp()
        self.network.neutron = self.neutron
        self.add_ports(self.ironic.nodes())

    def add_ports(self, nodes):
        for node in nodes:
            for _ in range(2):
                self.ironic.baremetal.create_port(
                    node_id=node.id, address=next(self._addresses))

    def connect_volumes(self):
        """Give the nodes volume connectors, with a Cinder for the test."""
        self.cinder = self.useFixture(fixtures.CinderFixture(self))
        for node in self.ironic.nodes():
            self.ironic.baremetal.create_volume_connector(
                node_id=node.id, type='iqn',
                connector_id=f'iqn.2026-01:{node.id}')

    def assert_no_volume_targets(self):
        """Check nodes that were not deployed.

        The fake deploy interface deletes none in a tear-down.
        """
        self.assertEqual([], list(self.ironic.baremetal.volume_targets()))


class Hardware(Networks, faults.TestCase):
    """Nodes with networks, consoles, volume connectors and rescue."""

    fleet = [{'resource_class': 'gold', 'network_interface': 'flat',
              'console_interface': 'fake-graphical'}] * 2

    ironic_config = {'DEFAULT': {
        'enabled_rescue_interfaces': 'no-rescue,fake',
        'default_rescue_interface': 'fake',
        'enabled_console_interfaces': 'no-console,fake-graphical'}}
