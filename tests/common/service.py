# SPDX-License-Identifier: Apache-2.0
"""Clients of a service and of its database, for tests."""

import contextlib
import datetime
import functools
import subprocess
import urllib.parse

import psutil
import requests
import sqlalchemy as sa

from tests.common import contract
from tests.common import databases
from tools import services

OURS = '/v1/reservations'
API_VERSION = 'X-OpenStack-Ironic-API-Version'
FRESH = {'Cache-Control': 'no-cache'}

#: The columns of a node that tests change, as a free node has them.
FREE = {'provision_state': 'available', 'power_state': 'power off',
        'instance_uuid': None, 'allocation_id': None, 'reservation': None,
        'parent_node': None, 'maintenance': False, 'retired': False,
        'instance_info': '{}', 'conductor_group': '', 'shard': None}


class Http(requests.Session):
    """A session that takes paths, without retries.

    It keeps no connection, because Ironic's server closes one after ten idle
    seconds, and a request sent at that moment gets no response.
    """

    def __init__(self, url):
        super().__init__()
        self.url = url
        self.headers.update({API_VERSION: 'latest', 'Connection': 'close'})

    def request(self, method, url, **kwargs):
        return super().request(
            method, urllib.parse.urljoin(self.url, url),
            **{'timeout': 60, **kwargs})


def send(method, url, body=None):
    """Send a request of the latest API version, from any thread."""
    return requests.request(method, url, json=body, timeout=120,
                            headers={API_VERSION: 'latest'})


def make_patch(**values):
    """Return a JSON patch that sets keys; None removes a key."""
    return [{'op': 'add', 'path': f'/{name}', 'value': value}
            if value is not None else {'op': 'remove', 'path': f'/{name}'}
            for name, value in values.items()]


@functools.cache
def engine(database_url):
    engine = sa.create_engine(database_url)
    databases.skip_fsync(engine)
    return engine


class Service:
    """The API of a service, and its database."""

    def __init__(self, url, database_url, conf_file):
        self.url = url
        self.database_url = database_url
        self.conf_file = conf_file
        self.http = Http(url)

    # The API

    def create(self, status=201, **body):
        """Create a reservation; return it, or the text of the error."""
        response = self.http.post(OURS, json=body)
        fault = contract.check(response, status)
        return response.json() if fault is None else fault

    def show(self, instance_uuid, status=200):
        response = self.http.get(f'{OURS}/{instance_uuid}')
        fault = contract.check(response, status)
        return response.json() if fault is None else fault

    def delete(self, instance_uuid, status=204, **query):
        return contract.check(self.http.delete(
            f'{OURS}/{instance_uuid}', params=query), status)

    def list(self, **query):
        response = self.http.get(OURS, params=query)
        contract.check(response, 200)
        return response.json()['reservations']

    def pages(self, path, key, **query):
        """Yield the items of a list, page by page."""
        while path:
            response = self.http.get(path, params=query, headers=FRESH)
            contract.check(response, 200)
            yield response.json()[key]
            path, query = response.json().get('next'), {}

    def capacity(self, **query):
        """Return the capacity rows, counted now."""
        response = self.http.get(f'{OURS}/capacity', params=query,
                                 headers=FRESH)
        contract.check(response, 200)
        assert response.headers['Age'] == '0'
        return response.json()['capacity']

    # The database

    @property
    def engine(self):
        return engine(self.database_url)

    @property
    def is_sqlite(self):
        return self.engine.dialect.name == 'sqlite'

    def execute(self, statement, **values):
        """Run SQL, and return the rows of a SELECT."""
        with self.engine.begin() as connection:
            result = connection.execute(sa.text(statement), values)
            return result.all() if result.returns_rows else None

    def state(self):
        """Return all that a refused request must not change."""
        return (self.execute('SELECT uuid, instance_uuid, provision_state, '
                             'maintenance FROM nodes ORDER BY id'),
                self.rows(), self.execute(
                    'SELECT host, holder, expires_at FROM reservations_hosts '
                    'ORDER BY host'), self.execute(
                    'SELECT uuid, generation, description '
                    'FROM reservations_groups ORDER BY id'), self.execute(
                    'SELECT * FROM reservations_notices ORDER BY id'))

    def rows(self):
        """Return the rows of our table, including expired and stale rows."""
        return self.execute('SELECT * FROM reservations ORDER BY id')

    def find_instance(self, node_uuid):
        """Return the instance that a node carries."""
        (instance_uuid,), = self.execute(
            'SELECT instance_uuid FROM nodes WHERE uuid = :u', u=node_uuid)
        return instance_uuid

    def set_node(self, node_uuid, **columns):
        """Put a node into a state that is hard to reach otherwise."""
        for name, value in columns.items():
            self.execute(f'UPDATE nodes SET {name} = :value '
                         'WHERE uuid = :uuid', value=value, uuid=node_uuid)

    def free_nodes(self, resource_class):
        """Free all nodes of a class, and delete all reservations."""
        self.execute(
            'UPDATE nodes SET '
            + ', '.join(f'{name} = :{name}' for name in FREE)
            + ' WHERE resource_class = :c', c=resource_class, **FREE)
        for table in 'reservations', 'reservations_groups':
            self.execute(f'DELETE FROM {table}')

    # Time: the database's, in whole seconds

    def clock(self, seconds=0):
        """Return an SQL expression for the database's time."""
        if self.is_sqlite:
            return (f"strftime('%Y-%m-%d %H:%M:%S.000000', 'now', "
                    f"'{seconds} seconds')")
        return f'DATE_ADD(UTC_TIMESTAMP(), INTERVAL {seconds} SECOND)'

    def now(self):
        (text,), = self.execute(f'SELECT {self.clock()}')
        return datetime.datetime.fromisoformat(str(text)).replace(
            tzinfo=datetime.UTC)

    def from_now(self, seconds=3600):
        """Return a time in a request, some seconds from now."""
        return (self.now() + datetime.timedelta(0, seconds)).isoformat()

    def seconds_left(self, lease):
        """Return for how long a reservation or a host lease lasts."""
        return (get_expiry(lease) - self.now()).total_seconds()

    def expire(self, instance_uuid):
        """Let a reservation expire this second."""
        self.execute(f'UPDATE reservations SET expires_at = {self.clock()} '
                     'WHERE instance_uuid = :i', i=instance_uuid)


class Ironic(Service):
    """A running server."""

    def __init__(self, server):
        super().__init__(server.url, server.database_url, server.conf_file)
        self.port = server.port
        self.log = server.log
        self.process = server.process

    @functools.cached_property
    def baremetal(self):
        return services.connect(self.url)

    def enrol(self, specs):
        """Create nodes that are available and off, and return them.

        It takes a third of the time of services.enrol(): Ironic creates each
        node in one request, and SQL makes it available and switches it off.

        :param specs: dicts of Ironic's node fields, and ``traits``.
        """
        nodes = []
        for fields in specs:
            fields = dict(fields)
            traits = fields.pop('traits', None)
            # Without authentication, Ironic creates no node with an owner.
            owner = fields.pop('owner', None)
            node = self.baremetal.create_node(
                **{'driver': 'fake-hardware', **fields})
            if owner:
                self.baremetal.update_node(node, owner=owner)
            if traits:
                self.baremetal.set_node_traits(node, traits)
            nodes.append(node)
        for node in nodes:
            self.set_node(node.id, provision_state='available',
                          power_state='power off')
        return self.settle(nodes, power_state='power off')

    def settle(self, nodes, **fields):
        return services.settle(self.baremetal, nodes, **fields)

    def remove(self, nodes):
        """Delete nodes in any state."""
        for node in nodes:
            # Ironic deletes any node in maintenance.
            self.set_node(node.id, maintenance=True)
            self.baremetal.delete_node(node)

    @contextlib.contextmanager
    def fleet(self, *specs):
        """Enrol nodes; delete them and their reservations at exit."""
        nodes = self.enrol(specs)
        try:
            yield nodes
        finally:
            self.remove(nodes)
            self.execute('DELETE FROM reservations WHERE node_uuid NOT IN '
                         '(SELECT uuid FROM nodes)')

    def manage(self, *args):
        """Run ironic-reservations-manage, and return its result."""
        return subprocess.run(
            [services.program('ironic-reservations-manage'), '--config-file',
             self.conf_file, *args], capture_output=True, text=True,
            timeout=120)

    def workers(self):
        """Return process ids; a worker that dies is replaced."""
        return {child.pid for child in psutil.Process(
            self.process.pid).children(recursive=True)}


def get_expiry(reservation):
    return datetime.datetime.fromisoformat(reservation['expires_at'])
