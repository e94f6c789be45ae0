# SPDX-License-Identifier: Apache-2.0
"""The samples of the API reference are responses of the application.

``make api-ref`` writes them.
"""

import datetime
import json
import os
import pathlib
import random
import sqlite3
import uuid

from keystonemiddleware import fixture as auth_fixture
from oslo_utils import uuidutils
import pytest
import sqlalchemy as sa

from ironic_reservations.db import engine
from tests.api import conftest
from tests.common import application
from tests.common import contract
from tests.common import databases
from tests.common import keystones
from tests.common import service
from tools import openapi

SAMPLES = openapi.SOURCE / 'samples'
OURS = service.OURS
PROJECT = '9f4e2f7c8a1b4d0e9c3b5a6d7e8f9012'
USER = '1c2d3e4f5a6b4c7d8e9f0a1b2c3d4e5f'
NOW = datetime.datetime(2026, 11, 20, 11, 33, 1)
OTHER = 'e8d1f0a4-27b3-4c95-a6de-0f9b8c7d6e52'
LIMIT = 'baremetal_reservations:CUSTOM_BAREMETAL_GOLD'


def make_uuid(name):
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def make_nodes(prefix, *nodes):
    """Return the fields of nodes, with fixed names and UUIDs."""
    return [{**node, 'name': f'{prefix}-{number}',
             'id': make_uuid(f'{prefix}-{number}')}
            for number, node in enumerate(nodes, 1)]


def gold(memory_mb=131072, vcpus=64, local_gb=2000, **more):
    return {'resource_class': 'baremetal.gold', 'shard': 'rack-7',
            'traits': ['CUSTOM_NVME'], **more, 'properties': {
                'memory_mb': memory_mb, 'cpus': vcpus, 'local_gb': local_gb,
                'cpu_arch': 'x86_64', 'capabilities': 'boot_mode:uefi'}}


def place(capabilities, resource_class='baremetal.ghost'):
    return {'resource_class': resource_class,
            'properties': {'capabilities': capabilities}}


GOLD = make_nodes(
    'node', gold(), gold(), gold(), gold(262144, 96, 4000), gold(traits=[]),
    gold(shard='rack-8'))
GHOSTS = make_nodes('ghost', *map(place, (
    ['rack:r1'] * 5 + ['rack:r2'] * 4 + ['rack:r3'] * 3)))
GPUS = make_nodes('gpu', *(
    place(f'pod:pod-{pod},nvlink:nv-{number}', 'baremetal.gpu')
    for number in (1, 2, 3, 4) for pod in (1, 2) for _ in range(16)))
#: These have room for three segments of a group in each pod.
FEWER_GPUS = GPUS[:96]


class Clock:
    """The time of the database, which stands still."""

    def __init__(self):
        self.now = NOW
        self._sqlite = sqlite3.connect(':memory:', check_same_thread=False)

    def install(self, connection, *args):
        connection.create_function('strftime', -1, self._strftime)

    def _strftime(self, *args):
        values = [self.now.isoformat() if value == 'now' else value
                  for value in args]
        marks = ', '.join('?' * len(values))
        return self._sqlite.execute(
            f'SELECT strftime({marks})', values).fetchone()[0]


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def empty(configuration, shared_directory, tmp_path, monkeypatch, clock):
    """The application on an empty database, whose ids begin with 1."""
    url = databases.create_sqlite(shared_directory, tmp_path / 'ironic.sqlite')
    with application.serve_database(url, configuration) as (ironic, database):
        sa.event.listen(database, 'checkout', clock.install)
        monkeypatch.setattr(engine, 'get_engine', lambda: database)
        ironic.capacity()  # Or the count of another database is used.
        yield ironic
        random.seed()


class Recorder:
    """Sends requests, and compares the responses with samples."""

    def __init__(self, callers):
        self._callers = callers

    def send(self, sample, method, path, body=None, status=200,
             caller='system'):
        """Send a request.

        :param sample: name of the sample of the response, or None.
        """
        # The choice among equal nodes is random.
        random.seed(1)
        response = self._callers[caller].request(
            method, f'{OURS}{path}', json=body)
        contract.check(response, status)
        if sample is None:
            return response
        path = SAMPLES / f'reservation-{sample}.json'
        text = json.dumps(response.json(), indent=4) + '\n'
        if os.environ.get('IRONIC_RESERVATIONS_RECORD'):
            path.write_text(text)
        assert path.read_text() == text
        return response


@pytest.fixture
def recorder(empty, keystone, monkeypatch):
    numbers = iter(range(1000))
    monkeypatch.setattr(uuidutils, 'generate_uuid', lambda *args: make_uuid(
        f'instance-{next(numbers)}'))
    keystone.reglimits, keystone.projlimits = {
        keystones.TOTAL: -1, LIMIT: 2}, {}
    with auth_fixture.AuthTokenFixture() as auth, application.set_options({
            'DEFAULT': {'auth_strategy': 'keystone'},
            'api': {'public_endpoint': 'http://127.0.0.1:6385'},
            'reservations': {'quota': 'unified_limits'},
            'oslo_limit': {'endpoint_service_type': 'baremetal'}}), \
            application.serve() as url:
        callers = {scope: service.Http(url) for scope in ('system', 'p')}
        for scope, caller in callers.items():
            caller.headers['X-Auth-Token'] = auth.add_token(
                conftest.make_token(USER, {'p': PROJECT}, 'admin' if
                                    scope == 'system' else 'member', scope))
        yield Recorder(callers)


def read(name):
    return json.loads((SAMPLES / f'reservation-{name}-request.json')
                      .read_text())


def test_samples_of_reservations(empty, recorder):
    send, request = recorder.send, read('create')
    instance = request['instance_uuid']
    with empty.fleet(*GOLD) as nodes:
        send('create-dry-run-response', 'POST', '?dry_run=true', request)
        send('create-no-match', 'POST', '', request | {'extra_specs': {
            'trait:CUSTOM_FPGA': 'required',
            'hw:cpu_policy': 'dedicated'}}, 422)
        send('create-response', 'POST', '', request, 201)
        send(None, 'POST', '', {'resource_class': 'baremetal.gold',
                                'project_id': PROJECT}, 201)
        send('list-response', 'GET', '?limit=1')
        send('capacity-response', 'GET',
             '/capacity?resource_class=baremetal.gold&host=compute-1')
        empty.set_node(nodes[-1].id, owner=PROJECT)
        send('create-quota', 'POST', '', {'resource_class': 'baremetal.gold'},
             403, 'p')
        node = send(None, 'PATCH', f'/{instance}', read('update')).json()
        empty.set_node(node['node_uuid'], provision_state='active')
        send('show-response', 'GET', f'/{instance}')


def test_samples_of_hosts(empty, recorder, clock):
    send, request = recorder.send, read('host')
    with empty.fleet(*GOLD):
        clock.now = NOW - datetime.timedelta(hours=2)
        send(None, 'PUT', '/hosts/compute-2', {**request, 'holder': OTHER})
        clock.now = NOW - datetime.timedelta(days=1)
        send(None, 'PUT', '/hosts/compute-1', request)
        clock.now = NOW
        send('host-response', 'PUT', '/hosts/compute-1', request)
        # A standby.
        send(None, 'PUT', '/hosts/compute-1', {
            **request, 'holder': OTHER}, 409)
        for _ in range(2):
            send(None, 'POST', '', {'host': 'compute-1',
                                    'resource_class': 'baremetal.gold'}, 201)
        send('hosts-response', 'GET', '/hosts')


def test_samples_of_groups(empty, recorder, clock):
    send, request = recorder.send, read('group-create')
    levels = read('group-create-levels')
    with empty.fleet(*FEWER_GPUS):
        send('group-create-levels-no-match', 'POST', '/groups', levels, 422)
    with empty.fleet(*GHOSTS):
        send(None, 'POST', '', {'candidate_nodes': ['ghost-6']}, 201)
        send('group-create-no-match', 'POST', '/groups',
             request | {'members': 8}, 422)
        send('group-create-response', 'POST', '/groups', request, 201)
        with empty.fleet(*GPUS):
            clock.now += datetime.timedelta(minutes=7)
            group = send(None, 'POST', '/groups', levels, 201).json()
            send(None, 'DELETE',
                 f'/{group["reservations"][-1]["instance_uuid"]}', status=204)
            send(None, 'POST', '/groups', {'members': 1, 'request': {
                'resource_class': 'baremetal.ghost'}}, 201)
            send('group-list-response', 'GET', '/groups?limit=2')
        send(None, 'PATCH', f'/groups/{request["uuid"]}', read('group-update'))


def test_samples_of_the_history(empty, recorder, clock):
    send, request = recorder.send, read('create')
    with empty.fleet(*GOLD):
        node = send(None, 'POST', '', request, 201).json()['node_uuid']
        clock.now += datetime.timedelta(hours=3)
        empty.set_node(node, instance_uuid=None, owner=PROJECT)
        # Purges the reservation of a server that was deleted.
        send(None, 'GET', f'/{request["instance_uuid"]}', status=404)
        send(None, 'POST', '', {'candidate_nodes': [node]}, 201)
        send('history-response', 'GET', '/history?node=node-2')


def test_samples_of_notices(empty, recorder):
    send, request = recorder.send, read('notice-create')
    with empty.fleet(*GOLD[:2]):
        send('notices-response', 'POST', '/notices', request, 201)
        send(None, 'PATCH', f'/notices/{request["uuid"]}?node=node-1',
             read('notice-update'))


def test_samples_of_pools(empty, recorder):
    send, request = recorder.send, read('pool-create')
    with empty.fleet(*GHOSTS):
        pool = send('pool-create-response', 'POST', '/pools', request,
                    201).json()
        send('pool-list-response', 'GET', '/pools?limit=1')
        path = f'/pools/{request["uuid"]}'
        send(None, 'PATCH', path, read('pool-update'))
        body = read('pool-replace')
        assert body['replaces'] in [node['name'] for node in pool['nodes']]
        send(None, 'POST', f'{path}/nodes', body)


def test_samples_are_responses():
    """Each sample is tested above, or is a request that is sent there."""
    source = pathlib.Path(__file__).read_text()
    for path in SAMPLES.iterdir():
        name = path.stem.removeprefix('reservation-')
        assert f"'{name.removesuffix('-request')}'" in source, name
