# SPDX-License-Identifier: Apache-2.0
"""What goes wrong between a host and Ironic, on purpose."""

import json
import re
import threading
import urllib.parse

import fixtures
from nova.virt.ironic_reservations import fence
import requests
import sqlalchemy as sa
import tenacity

from tests.nova import base

NODE = {'resource_class': 'gold', 'properties': {
    'memory_mb': 4096, 'cpus': 4, 'local_gb': 100, 'cpu_arch': 'x86_64'}}

HOLD = 'POST', '/v1/reservations'
RENEW = 'PATCH', '/v1/reservations/.*'


class Wire(fixtures.Fixture):
    """The wire from Nova to Ironic, for faults on the way.

    Nova has an address of Ironic that nobody else uses.

    :ivar requests: what Nova has sent: method, path and body
    :ivar calls: the same, with the parameters of the query
    :ivar said: the method, the path, and for whom the request says it is
    """

    def __init__(self, ironic):
        self.url = f'http://localhost:{ironic.port}'
        self.requests, self.calls, self.said = [], [], []
        self._faults = []

    def _setUp(self):
        really_send = requests.adapters.HTTPAdapter.send

        def send(adapter, request, *args, **kwargs):
            def go_on():
                return really_send(adapter, request, *args, **kwargs)

            if not request.url.startswith(self.url):
                return go_on()
            return self._fault(request)(go_on)

        self.useFixture(fixtures.MonkeyPatch(
            'requests.adapters.HTTPAdapter.send', send))

    def _fault(self, request):
        url = urllib.parse.urlsplit(request.url)
        path, body = url.path, json.loads(request.body or 'null')
        self.requests.append((request.method, path, body))
        self.calls.append((request.method, path, body,
                           dict(urllib.parse.parse_qsl(url.query))))
        self.said.append((request.method, path,
                          request.headers.get(fence.HEADER)))
        for fault in self._faults:
            method, pattern, host, do, left = fault
            if (re.fullmatch(method, request.method)
                    and re.fullmatch(pattern, path)
                    and (host is None or body['host'] == host) and left):
                fault[-1] -= 1
                return do
        return lambda go_on: go_on()

    def on(self, method, path, do, host=None, times=1):
        """Let something happen to requests.

        :param method: a regular expression, as is the path
        :param do: called instead of sending a request, with a function
            that sends it
        :param host: only to requests whose body names this host
        :param times: to the next so many of them
        """
        self._faults.append([method, path, host, do, times])

    def heal(self):
        self._faults.clear()

    def sent(self, method, path):
        """The bodies of such requests up to now."""
        return [body for each, where, body in list(self.requests)
                if each == method and re.fullmatch(path, where)]


def cut(go_on):
    """It does not get there."""
    raise requests.ConnectionError('the wire is cut')


def lose_answer(go_on):
    go_on()
    cut(None)


def before(do):
    def faulty(go_on):
        do()
        return go_on()
    return faulty


def after(do):
    def faulty(go_on):
        response = go_on()
        do()
        return response
    return faulty


class Gate:
    """Requests wait before it until it is opened."""

    def __init__(self):
        self._reached, self._opened = threading.Event(), threading.Event()

    def __call__(self):
        self._reached.set()
        assert self._opened.wait(60)

    @property
    def reached(self):
        return self._reached.is_set()

    def wait(self):
        assert self._reached.wait(60)

    def open(self):
        self._opened.set()


def gated_cut(gate):
    def faulty(go_on):
        gate()
        cut(go_on)
    return faulty


class TestCase(base.TestCase):
    hosts = ()

    def setUp(self):
        super().setUp()
        self.wire = self.useFixture(Wire(self.ironic))
        self.database = sa.create_engine(self.ironic.database_url)
        self.addCleanup(self.database.dispose)

    def start_compute(self, host, ironic=None, **config):
        return super().start_compute(host, ironic={
            'endpoint_override': self.wire.url, **(ironic or {})}, **config)

    def sql(self, statement, **values):
        """Do to Ironic's database what nobody asks an API for."""
        with self.database.begin() as connection:
            connection.execute(sa.text(statement), values)

    def written(self):
        """What was asked of Ironic but to show something."""
        return {(method, path) for method, path, _ in self.wire.requests
                if method != 'GET'}

    def lapse(self, server_id):
        self.sql("UPDATE reservations SET expires_at = '2000-01-01 00:00:00' "
                 "WHERE instance_uuid = :i", i=server_id)

    def gate(self):
        gate = Gate()
        self.addCleanup(gate.open)
        return gate

    def hold(self, **body):
        """Hold a node, as some other client of Ironic."""
        response = self.ironic.http.post('/v1/reservations', json=body)
        response.raise_for_status()
        return response.json()

    def wait_for_free_nodes(self):
        """Until all hosts report again what was released."""
        def check():
            self.run_periodic()
            for host in self.computes:
                self.assertEqual(
                    0, self.inventories(host)['CUSTOM_GOLD']['reserved'])
        self.wait_for(check)

    def be_impatient(self):
        """Let the driver not try again."""
        for name in 'hold', 'get':
            self.useFixture(fixtures.MonkeyPatch(
                'nova.virt.ironic_reservations.client.Client.'
                f'{name}.retry.stop', tenacity.stop_after_attempt(1)))

    def unchecked_flavor(self, **extra_specs):
        # Nova itself checks flavors since 2.86.
        latest = self.api.microversion
        self.api.microversion = '2.85'
        flavor = self.flavor(**extra_specs)
        self.api.microversion = latest
        return flavor

    def fault_of(self, server):
        return self.wait_for_status(server, 'ERROR')['fault']['message']

    def assert_aborted(self, server, reason):
        """Not a second host was asked, and the user reads why."""
        aborted = f'Build of instance {server["id"]} aborted: '
        whole = f'{aborted}Instance {server["id"]} is unacceptable: {reason}'
        # Nova keeps so many characters.
        self.assertEqual(whole if len(whole) <= 255 else aborted + reason,
                         self.fault_of(server))
