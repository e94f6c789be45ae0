# SPDX-License-Identifier: Apache-2.0
"""One row or a row per node: who decides, when, and what stays."""

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
from tests.nova.rows import ring
from tests.nova.rows import rows
from tools import services

NODE = {'resource_class': 'gold'}


class Answer:
    """What a Gateway says instead of Ironic."""

    def __init__(self, status, content, content_type='application/json'):
        self.status_code = status
        self.content = content.encode()
        self.headers = {'Content-Type': content_type}

    @classmethod
    def error(cls, status):
        """As Ironic says it."""
        return cls(status, json.dumps({'error_message': json.dumps({
            'faultcode': 'Client', 'faultstring': 'no', 'debuginfo': None})}))


class Gateway(http.server.ThreadingHTTPServer):
    """What stands before Ironic, as a proxy does.

    :ivar fault: a function of the path; what it returns, if anything, is the
        answer.
    """

    daemon_threads = True

    def __init__(self, ironic, port):
        super().__init__(('127.0.0.1', port), _Handler)
        self.url = f'http://127.0.0.1:{self.server_port}'
        self.ironic = ironic
        self.fault = lambda path: None

    def break_all(self, answer):
        self.fault = lambda path: answer

    def break_reservations(self, answer, times=sys.maxsize):
        """Let the endpoint be broken for so many calls."""
        left = itertools.repeat(answer, times)
        self.fault = lambda path: (
            next(left, None) if path.startswith('/v1/reservations') else None)

    def remove_endpoint(self):
        """Answer as this Ironic would without the plugin."""
        self.break_reservations(self.ironic.http.get('/v1/unknown'))

    def heal(self):
        self.fault = lambda path: None


class _Handler(http.server.BaseHTTPRequestHandler):

    def _answer(self):
        body = self.rfile.read(int(self.headers.get('Content-Length', 0)))
        answer = self.server.fault(self.path)
        if answer is None:
            # With the same Host: Ironic's links have it.
            answer = requests.request(
                self.command, self.server.ironic.url + self.path, data=body,
                headers=dict(self.headers), timeout=60)
        self.send_response(answer.status_code)
        for name, value in answer.headers.items():
            if name not in ('Connection', 'Transfer-Encoding'):
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

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

    def make_known(self, host):
        """Let Nova know a host, which has no rows yet."""
        self.start_compute(host, ironic={'shard': 'nobody'},
                           reservations={'mode': 'per_node'})
        self.stop_compute(host)
        self.assertEqual({}, rows())
        del self._config[host]

    def check_undecided(self, host, what):
        before = self.log.count('Virt driver is not ready')
        self.run_periodic(host)
        self.assertEqual({}, rows(), what)
        self.assertEqual(
            before + 1, self.log.count('Virt driver is not ready'), what)


class TestAbsent(TestCase):
    """With an Ironic that has no reservations."""

    plugin = False
    fleet = [NODE] * 6

    def name_hosts(self, nodes):
        """Names with which the ring gives each host what the test needs."""
        for number in itertools.count():
            a, b, c = [f'compute-{number}-{each}' for each in 'abc']
            owned = collections.Counter(ring(nodes, a, b, c).values())
            if owned[a] and owned[b] and owned[c] >= 3:
                return a, b, c

    def settle(self):
        # A host counts once it has a row, and another may have to let go.
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
        self.assertEqual(ring(nodes, a, b), rows())
        self.assertIn(f'Host {a} has a row per node, which is deprecated, '
                      'because this Ironic has no /v1/reservations', self.log)
        # A third host is started: it gets its share, but for the node with
        # another's instance.
        taken = next(name for name, host in ring(nodes, a, b, c).items()
                     if host == c)
        stays = self.boot(flavor, hypervisor_hostname=taken)
        self.assertEqual({taken: {'CUSTOM_GOLD': 1}}, self.allocations(stays))
        self.assertEqual(ring(nodes, a, b)[taken],
                         stays['OS-EXT-SRV-ATTR:host'])
        self.start_compute(c)
        self.settle()
        kept = {taken: stays['OS-EXT-SRV-ATTR:host']}
        self.assertEqual({**ring(nodes, a, b, c), **kept}, rows())
        # It goes down: its free nodes go to the others, those with its
        # instances do not.
        server = self.boot(flavor, host=c)
        kept[server['OS-EXT-SRV-ATTR:hypervisor_hostname']] = c
        self.assertEqual(
            server['OS-EXT-SRV-ATTR:hypervisor_hostname'],
            self.ironic.node_of(server).id)
        self.die(c)
        self.settle()
        self.assertEqual({**ring(nodes, a, b), **kept}, rows())
        # They are used there.
        moved = next(name for name, host in ring(nodes, a, b, c).items()
                     if host == c and name not in kept)
        self.delete(self.boot(flavor, hypervisor_hostname=moved))
        # It comes back.
        self.come_back(c)
        self.settle()
        self.assertEqual({**ring(nodes, a, b, c), **kept}, rows())
        self.delete(stays, server)
        self.settle()
        self.assertEqual(ring(nodes, a, b, c), rows())
        self.assert_nothing_left()
        # A node is removed from Ironic.
        self.ironic.remove(nodes[:1])
        self.run_periodic()
        self.assertEqual(ring(nodes[1:], a, b, c), rows())
        self.assertEqual(set(rows()), set(self.providers()))

    @base.smoke
    def test_unreachable_is_not_present(self):
        self.make_known('compute-1')
        gateway = self.gateway()
        gateway.break_all(Answer.error(503))
        self.start_behind(gateway.server_port, 'compute-1')
        self.check_undecided('compute-1', '503')
        gateway.heal()
        self.run_periodic()
        self.assertEqual(ring(self.ironic.nodes(), 'compute-1'), rows())


class TestUndecided(TestCase):
    """While Ironic does not say whether it has reservations."""

    fleet = [NODE] * 3

    #: What may stand in the way of all of Ironic or of the endpoint alone.
    FAULTS = {
        '401': Answer(401, json.dumps({'error': {
            'code': 401, 'title': 'Unauthorized',
            'message': 'The request you have made requires authentication.',
        }})),
        **{str(status): Answer.error(status)
           for status in (403, 406, 500, 503)},
        'a page': Answer(404, '<html>No such page</html>', 'text/html'),
        'a page with 200': Answer(200, '<html>Hello</html>', 'text/html'),
        'JSON of another': Answer(404, '{"message": "no route matched"}'),
    }

    def test_unreachable_is_not_absent(self):
        self.make_known('compute-1')
        port = services.free_port()
        self.start_behind(port, 'compute-1')
        self.check_undecided('compute-1', 'no connection')
        gateway = self.gateway(port)
        for what, answer in self.FAULTS.items():
            gateway.break_all(answer)
            self.check_undecided('compute-1', f'all answers {what}')
        for what, answer in self.FAULTS.items():
            gateway.break_reservations(answer)
            self.check_undecided('compute-1', f'reservations answer {what}')
        # Not Ironic, or not one that is well.
        denial = self.ironic.http.get('/v1/unknown')
        for what, answer in (('no versions', Answer(200, '{}')),
                             ('503', Answer.error(503))):
            gateway.fault = lambda path, answer=answer: {
                'reservations': denial, '': answer}.get(
                    path.removeprefix('/v1/').partition('?')[0])
            self.check_undecided('compute-1', f'/v1 answers {what}')
        gateway.heal()
        self.run_periodic('compute-1')
        self.assertEqual({'compute-1': 'compute-1'}, rows())
        self.delete(self.boot(self.flavor()))
        self.assert_nothing_left()

    def test_new_host_does_not_start(self):
        gateway = self.gateway()
        gateway.break_all(Answer.error(503))
        # As with Nova's own driver.
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
        self.assertEqual({'compute-1': 'compute-1'}, rows())


class TestDecided(TestCase):
    """A host that has rows keeps its kind, unless it is told to adopt."""

    fleet = [NODE] * 3

    def assert_adopts_nothing(self):
        self.assertIsNone(self.computes['compute-1'].manager.driver.migration)

    def test_one_row_stays(self):
        gateway = self.gateway()
        one_row = {'compute-1': 'compute-1'}
        self.start_compute('compute-1',
                           ironic={'endpoint_override': gateway.url})
        self.assertEqual(one_row, rows())
        server = self.boot(self.flavor())
        self.run_periodic()
        before = self.inventories('compute-1')
        gateway.remove_endpoint()
        self.restart_compute('compute-1')
        self.run_periodic()
        self.assertEqual(one_row, rows())
        self.assertEqual(set(one_row), set(self.providers()))
        self.assertEqual(before, self.inventories('compute-1'))
        self.assertIn('Virt driver is not ready', self.log)
        # What it holds is not forgotten.
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
        self.assertEqual(names, rows())
        server = self.boot(self.flavor())
        self.restart_compute('compute-1', reservations={'mode': 'auto'})
        self.run_periodic()
        self.assert_adopts_nothing()
        self.assertEqual(names, rows())
        self.assertIn(
            'Host compute-1 has rows or instances of 3 nodes and keeps a '
            'row per node, which is deprecated. To migrate it to one row '
            'while ',
            self.log)
        self.delete(server)
        # Nor does an empty one change by itself.
        self.restart_compute('compute-1')
        self.assertEqual(names, rows())
        self.stop_compute('compute-1')
        [service] = self.api.get_services(binary='nova-compute')
        self.api.api_delete(f'/os-services/{service["id"]}')
        # With it went what "nova-manage cell_v2 discover_hosts" makes.
        del self.host_mappings['compute-1']
        self.start_compute('compute-1')
        self.assertEqual({'compute-1': 'compute-1'}, rows())
        self.assertEqual({'compute-1'}, set(self.providers()))
        self.delete(self.boot(self.flavor()))
        self.assert_nothing_left()

    def test_mode_reservations_of_rows_per_node(self):
        """Rows are deleted once no instance is on them."""
        self.start_compute('compute-1', reservations={'mode': 'per_node'})
        server = self.boot(self.flavor())
        allocations = self.allocations(server)
        row = server['OS-EXT-SRV-ATTR:hypervisor_hostname']
        self.restart_compute('compute-1',
                             reservations={'mode': 'reservations'})
        self.run_periodic()
        self.assert_adopts_nothing()
        left = {'compute-1': 'compute-1', row: 'compute-1'}
        self.assertEqual(left, rows())
        self.assertEqual(set(left), set(self.providers()))
        self.assertEqual(allocations, self.allocations(server))
        self.assertIn('Host compute-1 is one row, but has rows or instances '
                      'of 3 nodes', self.log)
        self.assertIn('to migrate them to the one row', self.log)
        other = self.boot(self.flavor())
        self.assertEqual('compute-1',
                         other['OS-EXT-SRV-ATTR:hypervisor_hostname'])
        self.act(server, 'os-stop', 'SHUTOFF')
        self.act(server, 'os-start', 'ACTIVE')
        self.delete(server)
        self.run_periodic()
        self.assertEqual({'compute-1': 'compute-1'}, rows())
        self.assertEqual({'compute-1'}, set(self.providers()))
        inventory = self.inventories('compute-1')['CUSTOM_GOLD']
        self.assertEqual((3, 0),
                         (inventory['total'], inventory['reserved']))
        self.delete(other)
        self.assert_nothing_left()

    def test_mode_per_node_of_one_row(self):
        """It is deleted once no instance is on it."""
        self.start_compute('compute-1')
        server = self.boot(self.flavor())
        allocations = self.allocations(server)
        names = {node.id: 'compute-1' for node in self.ironic.nodes()}
        self.restart_compute('compute-1', reservations={'mode': 'per_node'})
        self.run_periodic()
        self.assertEqual({**names, 'compute-1': 'compute-1'}, rows())
        self.assertEqual(allocations, self.allocations(server))
        other = self.boot(self.flavor())
        self.assertEqual(self.ironic.node_of(other).id,
                         other['OS-EXT-SRV-ATTR:hypervisor_hostname'])
        self.act(server, 'os-stop', 'SHUTOFF')
        self.act(server, 'os-start', 'ACTIVE')
        self.delete(server)
        self.run_periodic()
        self.assertEqual(names, rows())
        self.assertEqual(set(names), set(self.providers()))
        self.delete(other)
        self.assert_nothing_left()
