# SPDX-License-Identifier: Apache-2.0
"""Faults between a host and Ironic."""

import json
import re
import threading
import urllib.parse
import uuid

import fixtures
from nova.tests import fixtures as nova_fixtures
from nova.virt.ironic_reservations import fence
import requests
import sqlalchemy as sa
import tenacity

from tests.nova import base

NODE = {'resource_class': 'gold', 'properties': {
    'memory_mb': 4096, 'cpus': 4, 'local_gb': 100, 'cpu_arch': 'x86_64'}}

PROJECT, OTHER_PROJECT = nova_fixtures.PROJECT_ID, uuid.uuid4().hex

HOLD = 'POST', '/v1/reservations'
RENEW = 'PATCH', '/v1/reservations/.*'


def rack_node(rack=None, **fields):
    """Return a node to enrol in a rack."""
    return {**NODE, **fields, 'properties': {
        **NODE['properties'],
        **({'capabilities': f'rack:{rack}'} if rack else {})}}


class Wire(fixtures.Fixture):
    """Record Nova's requests to Ironic, and make some of them fail.

    Recognizes them by a URL of Ironic that only Nova uses.

    :ivar requests: method, path and body
    :ivar calls: the same, and the parameters of the query
    :ivar headers: method, path and the value of the fence header
    """

    def __init__(self, ironic):
        self.url = f'http://localhost:{ironic.port}'
        self.requests, self.calls, self.headers = [], [], []
        self._faults = []

    def _setUp(self):
        really_send = requests.adapters.HTTPAdapter.send

        def send(adapter, request, *args, **kwargs):
            def forward():
                return really_send(adapter, request, *args, **kwargs)

            if not request.url.startswith(self.url):
                return forward()
            response = self._fault(request)(forward)
            # That of a fault has no request.
            response.request = request
            return response

        self.useFixture(fixtures.MonkeyPatch(
            'requests.adapters.HTTPAdapter.send', send))

    def _fault(self, request):
        url = urllib.parse.urlsplit(request.url)
        path, body = url.path, json.loads(request.body or 'null')
        self.requests.append((request.method, path, body))
        self.calls.append((request.method, path, body,
                           dict(urllib.parse.parse_qsl(url.query))))
        self.headers.append((request.method, path,
                             request.headers.get(fence.HEADER)))
        for fault in self._faults:
            method, pattern, host, do, times = fault
            if (re.fullmatch(method, request.method)
                    and re.fullmatch(pattern, path)
                    and (host is None or body['host'] == host) and times):
                fault[-1] -= 1
                return do
        return lambda send: send()

    def on(self, method, path, do, host=None, times=1):
        """Intercept requests.

        :param method: a regular expression, as is the path
        :param do: called instead of sending a request, with a function
            that sends it
        :param host: intercept only requests whose body names this host
        :param times: number of requests to intercept
        """
        self._faults.append([method, path, host, do, times])

    def heal(self):
        self._faults.clear()

    def bodies(self, method, path):
        """Return the bodies of matching requests so far."""
        return [body for verb, url, body in list(self.requests)
                if verb == method and re.fullmatch(path, url)]


def cut(send):
    """Lose a request."""
    raise requests.ConnectionError('the wire is cut')


def lose_response(send):
    send()
    cut(None)


def before(do):
    def intercept(send):
        do()
        return send()
    return intercept


def after(do):
    def intercept(send):
        response = send()
        do()
        return response
    return intercept


class Gate:
    """Blocks its callers until it is opened."""

    def __init__(self):
        self._arrival, self._opening = threading.Event(), threading.Event()

    def __call__(self):
        self._arrival.set()
        assert self._opening.wait(60)

    def is_reached(self):
        return self._arrival.is_set()

    def wait(self):
        assert self._arrival.wait(60)

    def open(self):
        self._opening.set()


def cut_after(gate):
    def intercept(send):
        gate()
        cut(send)
    return intercept


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
        """Change Ironic's database in a way that the API does not offer."""
        with self.database.begin() as connection:
            connection.execute(sa.text(statement), values)

    def writes(self):
        """Return method and path of all requests that were no GET."""
        return {(method, path) for method, path, _ in self.wire.requests
                if method != 'GET'}

    def expire(self, server_id):
        self.sql("UPDATE reservations SET expires_at = '2000-01-01 00:00:00' "
                 "WHERE instance_uuid = :i", i=server_id)

    def gate(self):
        gate = Gate()
        self.addCleanup(gate.open)
        return gate

    def failed_builds(self, node):
        """Return the reasons of the failed builds that a node has notices of.
        """
        response = self.ironic.http.get('/v1/reservations/notices', params={
            'node': node.id, 'kind': 'fault'})
        response.raise_for_status()
        return [notice['description'] for notice in response.json()['notices']
                if notice['category'] == 'build']

    def hold(self, **body):
        """Hold a node, as another client of Ironic."""
        response = self.ironic.http.post('/v1/reservations', json=body)
        response.raise_for_status()
        return response.json()

    def create_pool(self, *nodes, project_id=PROJECT):
        """Create a pool of these nodes, by name or UUID."""
        response = self.ironic.http.post('/v1/reservations/pools', json={
            'project_id': project_id, 'members': len(nodes),
            'request': {'candidate_nodes': nodes}})
        response.raise_for_status()
        self.addCleanup(self.ironic.http.delete, '/v1/reservations/pools/'
                        + response.json()['uuid'])

    def wait_for_free_nodes(self):
        """Wait until all hosts report released nodes as free."""
        def check():
            self.run_periodic()
            for host in self.computes:
                self.assertEqual(
                    0, self.inventories(host)['CUSTOM_GOLD']['reserved'])
        self.wait_for(check)

    def disable_retries(self):
        """Have the driver try each request once."""
        for name in 'hold', 'get':
            self.useFixture(fixtures.MonkeyPatch(
                'nova.virt.ironic_reservations.client.Client.'
                f'{name}.retry.stop', tenacity.stop_after_attempt(1)))

    def unchecked_flavor(self, **extra_specs):
        # Nova checks flavors since 2.86.
        latest = self.api.microversion
        self.api.microversion = '2.85'
        flavor = self.flavor(**extra_specs)
        self.api.microversion = latest
        return flavor

    def fault_of(self, server):
        return self.wait_for_status(server, 'ERROR')['fault']['message']

    def assert_aborted(self, server, reason):
        """Check that the build failed for good, and the user sees why."""
        prefix = f'Build of instance {server["id"]} aborted: '
        whole = f'{prefix}Instance {server["id"]} is unacceptable: {reason}'
        # Nova stores at most 255 characters.
        self.assertEqual(whole if len(whole) <= 255 else prefix + reason,
                         self.fault_of(server))
