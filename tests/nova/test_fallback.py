# SPDX-License-Identifier: Apache-2.0
"""The choice between one row and a row per node, and its duration."""

import collections
import http.server
import itertools
import json
import sys
import threading

import fixtures
from nova import exception
import requests
import tenacity

from tests.nova import base
from tests.nova.helpers import compute_nodes
from tests.nova.helpers import hash_ring
from tools import services

NODE = {'resource_class': 'gold'}


class Response:
    """A response of a Gateway instead of Ironic."""

    def __init__(self, status, content, content_type='application/json'):
        self.status_code = status
        self.content = content.encode()
        self.headers = {'Content-Type': content_type}

    @classmethod
    def error(cls, status):
        """Return an error of Ironic."""
        return cls(status, json.dumps({'error_message': json.dumps({
            'faultcode': 'Client', 'faultstring': 'no', 'debuginfo': None})}))


class Gateway(http.server.ThreadingHTTPServer):
    """A proxy of Ironic.

    :ivar fault: returns the response for a path; None: ask Ironic.
    """

    daemon_threads = True

    def __init__(self, ironic, port):
        super().__init__(('127.0.0.1', port), _Handler)
        self.url = f'http://127.0.0.1:{self.server_port}'
        self.ironic = ironic
        self.fault = lambda path: None

    def break_all(self, response):
        self.fault = lambda path: response

    def break_reservations(self, response, times=sys.maxsize):
        """Set the response for a number of requests to the endpoint."""
        responses = itertools.repeat(response, times)
        self.fault = lambda path: (
            next(responses, None) if path.startswith('/v1/reservations')
            else None)

    def remove_endpoint(self):
        """Respond like an Ironic without the plugin."""
        self.break_reservations(self.ironic.http.get('/v1/unknown'))

    def heal(self):
        self.fault = lambda path: None


class _Handler(http.server.BaseHTTPRequestHandler):

    def _respond(self):
        body = self.rfile.read(int(self.headers.get('Content-Length', 0)))
        response = self.server.fault(self.path)
        if response is None:
            # With the same Host, which Ironic uses in links.
            response = requests.request(
                self.command, self.server.ironic.url + self.path, data=body,
                headers=dict(self.headers), timeout=60)
        self.send_response(response.status_code)
        for name, value in response.headers.items():
            if name not in ('Connection', 'Transfer-Encoding'):
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(response.content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _respond

    def log_message(self, *args):
        pass


class TestCase(base.TestCase):
    hosts = ()

    def gateway(self, port=0):
        gateway = Gateway(self.ironic, port)
        self.addCleanup(gateway.server_close)
        self.addCleanup(gateway.shutdown)
        threading.Thread(target=gateway.serve_forever, daemon=True).start()
        return gateway

    def start_behind(self, port, host):
        return self.start_compute(host, ironic={
            'endpoint_override': f'http://127.0.0.1:{port}'})

    def register(self, host):
        """Register a host in Nova, without compute nodes."""
        self.start_compute(host, ironic={'shard': 'nobody'},
                           reservations={'mode': 'per_node'})
        self.stop_compute(host)
        self.assertEqual({}, compute_nodes())
        del self._config[host]

    def assert_not_ready(self, host, reason):
        before = self.log.count('Virt driver is not ready')
        self.run_periodic(host)
        self.assertEqual({}, compute_nodes(), reason)
        self.assertEqual(
            before + 1, self.log.count('Virt driver is not ready'), reason)


class TestWithoutReservations(TestCase):
    """Ironic does not have the plugin."""

    plugin = False
    fleet = [NODE] * 6

    def name_hosts(self, nodes):
        """Return names with which the ring assigns enough nodes to hosts."""
        for number in itertools.count():
            a, b, c = [f'compute-{number}-{letter}' for letter in 'abc']
            counts = collections.Counter(hash_ring(nodes, a, b, c).values())
            if counts[a] and counts[b] and counts[c] >= 3:
                return a, b, c

    def settle(self):
        # The ring contains a host after its first compute node is created,
        # and then another host may have to delete one.
        for _ in range(2):
            self.run_periodic()

    def test_row_per_node(self):
        """Three hosts on a hash ring, by Nova's own driver."""
        nodes = self.ironic.nodes()
        a, b, c = self.name_hosts(nodes)
        flavor = self.flavor()
        for host in a, b:
            self.start_compute(host)
        self.settle()
        self.assertEqual(hash_ring(nodes, a, b), compute_nodes())
        self.assertIn(f'Host {a} has a compute node per node, which is '
                      'deprecated, because this Ironic has no '
                      '/v1/reservations', self.log)
        # A third host gets its share, except a node with another's instance.
        name = next(name for name, host in hash_ring(nodes, a, b, c).items()
                    if host == c)
        other = self.boot(flavor, hypervisor_hostname=name)
        self.assertEqual({name: {'CUSTOM_GOLD': 1}}, self.allocations(other))
        self.assertEqual(hash_ring(nodes, a, b)[name],
                         other['OS-EXT-SRV-ATTR:host'])
        self.start_compute(c)
        self.settle()
        exceptions = {name: other['OS-EXT-SRV-ATTR:host']}
        self.assertEqual({**hash_ring(nodes, a, b, c), **exceptions},
                         compute_nodes())
        # When it is down, the others take its free nodes only.
        server = self.boot(flavor, host=c)
        exceptions[server['OS-EXT-SRV-ATTR:hypervisor_hostname']] = c
        self.assertEqual(
            server['OS-EXT-SRV-ATTR:hypervisor_hostname'],
            self.ironic.node_of(server).id)
        self.take_down(c)
        self.settle()
        self.assertEqual({**hash_ring(nodes, a, b), **exceptions},
                         compute_nodes())
        # They can be used there.
        name = next(name for name, host in hash_ring(nodes, a, b, c).items()
                    if host == c and name not in exceptions)
        self.delete(self.boot(flavor, hypervisor_hostname=name))
        # When it is up again, it takes them back.
        self.bring_back(c)
        self.settle()
        self.assertEqual({**hash_ring(nodes, a, b, c), **exceptions},
                         compute_nodes())
        self.delete(other, server)
        self.settle()
        self.assertEqual(hash_ring(nodes, a, b, c), compute_nodes())
        self.assert_nothing_left()
        # A node is removed from Ironic.
        self.ironic.remove(nodes[:1])
        self.run_periodic()
        self.assertEqual(hash_ring(nodes[1:], a, b, c), compute_nodes())
        self.assertEqual(set(compute_nodes()), set(self.providers()))

    @base.smoke
    def test_unavailable_is_not_present(self):
        self.register('compute-1')
        gateway = self.gateway()
        gateway.break_all(Response.error(503))
        self.start_behind(gateway.server_port, 'compute-1')
        self.assert_not_ready('compute-1', '503')
        gateway.heal()
        self.run_periodic()
        self.assertEqual(hash_ring(self.ironic.nodes(), 'compute-1'),
                         compute_nodes())


class TestNotReady(TestCase):
    """It is not known whether Ironic has reservations."""

    fleet = [NODE] * 3

    #: Responses of proxies, for all of Ironic or for the endpoint.
    FAULTS = {
        '401': Response(401, json.dumps({'error': {
            'code': 401, 'title': 'Unauthorized',
            'message': 'The request you have made requires authentication.',
        }})),
        **{str(status): Response.error(status)
           for status in (403, 406, 500, 503)},
        'a page': Response(404, '<html>No such page</html>', 'text/html'),
        'a page with 200': Response(200, '<html>Hello</html>', 'text/html'),
        'JSON of another': Response(404, '{"message": "no route matched"}'),
    }

    def test_unavailable_is_not_absent(self):
        self.register('compute-1')
        port = services.free_port()
        self.start_behind(port, 'compute-1')
        self.assert_not_ready('compute-1', 'no connection')
        gateway = self.gateway(port)
        for name, response in self.FAULTS.items():
            gateway.break_all(response)
            self.assert_not_ready('compute-1', f'all: {name}')
            gateway.break_reservations(response)
            self.assert_not_ready('compute-1', f'reservations: {name}')
        # The endpoint is absent, but this is not a working Ironic.
        not_found = self.ironic.http.get('/v1/unknown')
        for name, response in (('no versions', Response(200, '{}')),
                               ('503', Response.error(503))):
            gateway.fault = lambda path, response=response: {
                'reservations': not_found, '': response}.get(
                    path.removeprefix('/v1/').partition('?')[0])
            self.assert_not_ready('compute-1', f'/v1: {name}')
        gateway.heal()
        self.run_periodic('compute-1')
        self.assertEqual({'compute-1': 'compute-1'}, compute_nodes())
        self.delete(self.boot(self.flavor()))
        self.assert_nothing_left()

    def test_new_host_does_not_start(self):
        gateway = self.gateway()
        gateway.break_all(Response.error(503))
        # The same as with Nova's own driver.
        for driver in base.OURS, base.STOCK:
            self.flags(compute_driver=driver)
            self.assertRaises(exception.VirtDriverNotReady, self.start_behind,
                              gateway.server_port, 'compute-1')
        self.assertEqual([], self.api.get_services(binary='nova-compute'))
        self.flags(compute_driver=base.OURS)
        gateway.heal()
        # Some of Ironic's processes may not have the plugin yet.
        gateway.break_reservations(self.ironic.http.get('/v1/unknown'),
                                   times=2)
        self.start_behind(gateway.server_port, 'compute-1')
        self.assertEqual({'compute-1': 'compute-1'}, compute_nodes())


class TestExistingHost(TestCase):
    """A host keeps its kind of compute nodes, unless adopt is set."""

    fleet = [NODE] * 3

    def assert_no_migration(self):
        self.assertIsNone(self.computes['compute-1'].manager.driver.migration)

    def test_one_row_stays(self):
        gateway = self.gateway()
        one_row = {'compute-1': 'compute-1'}
        self.start_compute('compute-1',
                           ironic={'endpoint_override': gateway.url})
        self.assertEqual(one_row, compute_nodes())
        server = self.boot(self.flavor())
        self.run_periodic()
        before = self.inventories('compute-1')
        gateway.remove_endpoint()
        self.restart_compute('compute-1')
        self.run_periodic()
        self.assertEqual(one_row, compute_nodes())
        self.assertEqual(set(one_row), set(self.providers()))
        self.assertEqual(before, self.inventories('compute-1'))
        self.assertIn('Virt driver is not ready', self.log)
        # Its reservations are kept.
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic_reservations.client.Client.get.retry.stop',
            tenacity.stop_after_attempt(2)))
        self.api.delete_server(server['id'])
        self.wait_for_status(server, 'ERROR')
        self.assertEqual(server['id'],
                         self.ironic.node_of(server).instance_id)
        gateway.heal()
        self.run_periodic()
        self.delete(server)
        self.assert_nothing_left()

    def test_row_per_node_stays(self):
        names = {node.id: 'compute-1' for node in self.ironic.nodes()}
        self.start_compute('compute-1', reservations={'mode': 'per_node'})
        self.assertEqual(names, compute_nodes())
        self.assertIn('deprecated, because mode = per_node. To migrate it to '
                      'one compute node, set mode = reservations', self.log)
        server = self.boot(self.flavor())
        self.restart_compute('compute-1', reservations={'mode': 'auto'})
        self.run_periodic()
        self.assert_no_migration()
        self.assertEqual(names, compute_nodes())
        self.assertIn(
            'Host compute-1 has compute nodes or instances of 3 nodes and '
            'keeps a compute node per node, which is deprecated. To migrate '
            'it to one compute node while ',
            self.log)
        self.delete(server)
        # A host without servers does not change either.
        self.restart_compute('compute-1')
        self.assertEqual(names, compute_nodes())
        self.stop_compute('compute-1')
        [service] = self.api.get_services(binary='nova-compute')
        self.api.api_delete(f'/os-services/{service["id"]}')
        # That also deletes the host mapping.
        del self.host_mappings['compute-1']
        self.start_compute('compute-1')
        self.assertEqual({'compute-1': 'compute-1'}, compute_nodes())
        self.assertEqual({'compute-1'}, set(self.providers()))
        self.delete(self.boot(self.flavor()))
        self.assert_nothing_left()

    def test_mode_reservations_of_rows_per_node(self):
        """Compute nodes without instances are deleted."""
        self.start_compute('compute-1', reservations={'mode': 'per_node'})
        server = self.boot(self.flavor())
        allocations = self.allocations(server)
        row = server['OS-EXT-SRV-ATTR:hypervisor_hostname']
        self.restart_compute('compute-1',
                             reservations={'mode': 'reservations'})
        self.run_periodic()
        self.assert_no_migration()
        rows = {'compute-1': 'compute-1', row: 'compute-1'}
        self.assertEqual(rows, compute_nodes())
        self.assertEqual(set(rows), set(self.providers()))
        self.assertEqual(allocations, self.allocations(server))
        self.assertIn('Host compute-1 has one compute node, but also compute '
                      'nodes or instances of 3 nodes', self.log)
        self.assertIn('to migrate them to the one compute node', self.log)
        other = self.boot(self.flavor())
        self.assertEqual('compute-1',
                         other['OS-EXT-SRV-ATTR:hypervisor_hostname'])
        self.act(server, 'os-stop', 'SHUTOFF')
        self.act(server, 'os-start', 'ACTIVE')
        self.delete(server)
        self.run_periodic()
        self.assertEqual({'compute-1': 'compute-1'}, compute_nodes())
        self.assertEqual({'compute-1'}, set(self.providers()))
        inventory = self.inventories('compute-1')['CUSTOM_GOLD']
        self.assertEqual((3, 0),
                         (inventory['total'], inventory['reserved']))
        self.delete(other)
        self.assert_nothing_left()

    def test_mode_per_node_of_one_row(self):
        """The one row is deleted when it has no instances."""
        self.start_compute('compute-1')
        server = self.boot(self.flavor())
        allocations = self.allocations(server)
        names = {node.id: 'compute-1' for node in self.ironic.nodes()}
        self.restart_compute('compute-1', reservations={'mode': 'per_node'})
        self.run_periodic()
        self.assertEqual({**names, 'compute-1': 'compute-1'}, compute_nodes())
        self.assertEqual(allocations, self.allocations(server))
        other = self.boot(self.flavor())
        self.assertEqual(self.ironic.node_of(other).id,
                         other['OS-EXT-SRV-ATTR:hypervisor_hostname'])
        self.act(server, 'os-stop', 'SHUTOFF')
        self.act(server, 'os-start', 'ACTIVE')
        self.delete(server)
        self.run_periodic()
        self.assertEqual(names, compute_nodes())
        self.assertEqual(set(names), set(self.providers()))
        self.delete(other)
        self.assert_nothing_left()
