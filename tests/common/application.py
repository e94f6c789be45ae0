# SPDX-License-Identifier: Apache-2.0
"""The whole application in the process of its tests, on Ironic's schema.

It runs as ``[api] middleware`` loads it, behind an intercepted HTTP client.
Ironic itself is missing: tests write to its tables in its place. Only the
engine is replaced, since a process has one and these tests use two databases.
"""

import contextlib
import json
import types
import uuid

from oslo_utils import timeutils
import sqlalchemy as sa
import webob.exc
from wsgi_intercept import interceptor

from ironic_reservations import conf
from ironic_reservations import middleware
from ironic_reservations.db import engine as db_engine
from tests.common import databases
from tests.common import service


class Application(service.Service):
    """The application, and nodes as Ironic stores them."""

    def __init__(self, url, database_url, conf_file):
        super().__init__(url, database_url, conf_file)
        self._tables = sa.MetaData()
        self._tables.reflect(self.engine, only=['nodes', 'node_traits'])

    @contextlib.contextmanager
    def fleet(self, *nodes):
        """Create free nodes; delete them and their reservations at exit."""
        nodes = [types.SimpleNamespace(**{
            'id': str(uuid.uuid4()), 'name': None, 'properties': {},
            'traits': [], **node}) for node in nodes]
        self._insert(nodes)
        try:
            yield nodes
        finally:
            self._delete([node.id for node in nodes])

    def _insert(self, nodes):
        table, traits = (self._tables.tables[name]
                         for name in ('nodes', 'node_traits'))
        with self.engine.begin() as connection:
            for node in nodes:
                row = {**vars(node), 'uuid': node.id,
                       'properties': json.dumps(node.properties)}
                del row['id'], row['traits']
                node_id, = connection.execute(sa.insert(table).values(
                    **{**service.FREE, 'created_at': timeutils.utcnow(),
                       'driver': 'fake-hardware', **row}
                )).inserted_primary_key
                for trait in node.traits:
                    connection.execute(sa.insert(traits).values(
                        node_id=node_id, trait=trait, version='1.0'))

    def add_history(self, node, severity='ERROR', ago=0,
                    state='deploy failed', event_type='deploying'):
        """Add an event to a node's history.

        :param ago: age of the event in seconds.
        :param state: None for an event that Ironic has recorded before 39.
        """
        self.execute(
            'INSERT INTO node_history (uuid, node_id, severity, state, '
            'event_type, created_at) SELECT :u, id, :s, :t, :e, '
            f'{self.clock(-ago)} FROM nodes WHERE uuid = :n',
            u=str(uuid.uuid4()), s=severity, t=state, e=event_type, n=node.id)

    def allocate(self, node):
        """Give a node an allocation of Ironic's."""
        allocation_uuid = str(uuid.uuid4())
        self.execute(
            'INSERT INTO allocations (uuid, name, state, resource_class) '
            "VALUES (:u, :u, 'active', :c)", u=allocation_uuid,
            c=node.resource_class)
        (allocation_id,), = self.execute(
            'SELECT id FROM allocations WHERE uuid = :u', u=allocation_uuid)
        self.set_node(node.id, allocation_id=allocation_id,
                      instance_uuid=allocation_uuid)

    def _delete(self, node_uuids):
        table, traits = (self._tables.tables[name]
                         for name in ('nodes', 'node_traits'))
        ours = table.c.uuid.in_(node_uuids)
        with self.engine.begin() as connection:
            for name in ('node_history', 'reservations_hosts',
                         'reservations_standbys', 'reservations_notices',
                         'reservations_pools', 'reservations_pool_nodes',
                         'reservations_history'):
                connection.execute(sa.text(f'DELETE FROM {name}'))
            connection.execute(sa.delete(traits).where(traits.c.node_id.in_(
                sa.select(table.c.id).where(ours))))
            connection.execute(sa.delete(table).where(ours))
            connection.execute(sa.text(
                'DELETE FROM reservations WHERE node_uuid NOT IN '
                '(SELECT uuid FROM nodes)'))
            connection.execute(sa.text(
                'DELETE FROM reservations_groups WHERE id NOT IN (SELECT '
                'group_id FROM reservations WHERE group_id IS NOT NULL)'))


@contextlib.contextmanager
def set_options(changes):
    """Change options of ironic.conf: {group: {option: value}}."""
    changes = [(None if group == 'DEFAULT' else group, name, value)
               for group, values in changes.items()
               for name, value in values.items()]
    before = [(group, name, conf.CONF[group][name] if group
               else conf.CONF[name]) for group, name, _ in changes]
    for group, name, value in changes:
        conf.CONF.set_override(name, value, group)
    try:
        yield
    finally:
        for group, name, value in before:
            conf.CONF.set_override(name, value, group)


@contextlib.contextmanager
def serve(ironic_app=None):
    """Serve the application; yields its URL.

    :param ironic_app: WSGI application in place of Ironic; by default one
        that answers every request with 404.
    """
    app = middleware.ReservationsMiddleware(
        ironic_app or webob.exc.HTTPNotFound())
    with interceptor.RequestsInterceptor(
            lambda: app, f'{uuid.uuid4()}.test', 80) as url:
        yield url


@contextlib.contextmanager
def serve_database(url, conf_file):
    """Serve a database; yields the Application and its engine."""
    with set_options({'database': {'connection': url}}), \
            databases.keep_connections():
        engine = db_engine.create_checked_engine()
    databases.skip_fsync(engine)
    try:
        with serve() as address:
            yield Application(address, url, conf_file), engine
    finally:
        engine.dispose()


@contextlib.contextmanager
def record_statements(with_commits=False):
    """Record the SQL of the application; yields the list, which grows."""
    statements = []

    def record(connection, cursor, statement, *args):
        statements.append(statement)

    def record_commit(connection):
        statements.append('COMMIT')

    listeners = {'before_cursor_execute': record}
    if with_commits:
        listeners['commit'] = record_commit
    engine = db_engine.get_engine()
    with contextlib.ExitStack() as stack:
        for event, listener in listeners.items():
            sa.event.listen(engine, event, listener)
            stack.callback(sa.event.remove, engine, event, listener)
        yield statements
