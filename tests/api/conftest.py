# SPDX-License-Identifier: Apache-2.0
"""The application in the process of its tests, on Ironic's real schema.

It is the whole of it, as ``[api] middleware`` loads it, behind a client that
believes to speak HTTP. Ironic itself is not there: what it would write, tests
write into its tables. Nothing of the application is called or replaced but
the engine, since a process has one and these tests have two.
"""

import contextlib
import json
import pathlib
import types
import uuid

from keystoneauth1 import fixture as tokens
from keystonemiddleware import fixture as auth_fixture
from oslo_limit import fixture as limit_fixture
from oslo_utils import timeutils
import pytest
import sqlalchemy as sa
import webob.exc
from wsgi_intercept import interceptor

from ironic_reservations import conf
from ironic_reservations import middleware
from ironic_reservations.db import engine as db_engine
from tests.common import databases
from tests.common import personas
from tests.common import service
from tools import services


class Application(service.Service):
    """The application, and nodes as Ironic has them."""

    def __init__(self, url, database_url, conf_file):
        super().__init__(url, database_url, conf_file)
        self._tables = sa.MetaData()
        self._tables.reflect(self.engine, only=['nodes', 'node_traits'])

    @contextlib.contextmanager
    def fleet(self, *nodes):
        """Free nodes, deleted at the end with what is held of them."""
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

    def note(self, node, severity='ERROR', ago=0, state='deploy failed'):
        """Note something in a node's history, so many seconds ago."""
        self.execute(
            'INSERT INTO node_history (uuid, node_id, severity, state, '
            f'created_at) SELECT :u, id, :s, :t, {self.clock(-ago)} '
            'FROM nodes WHERE uuid = :n', u=str(uuid.uuid4()), s=severity,
            t=state, n=node.id)

    def allocate(self, node):
        """Give a node an allocation of Ironic's."""
        ident = str(uuid.uuid4())
        self.execute(
            'INSERT INTO allocations (uuid, name, state, resource_class) '
            "VALUES (:u, :u, 'active', :c)", u=ident, c=node.resource_class)
        (allocation_id,), = self.execute(
            'SELECT id FROM allocations WHERE uuid = :u', u=ident)
        self.set_node(node.id, allocation_id=allocation_id,
                      instance_uuid=ident)

    def _delete(self, node_uuids):
        table, traits = (self._tables.tables[name]
                         for name in ('nodes', 'node_traits'))
        ours = table.c.uuid.in_(node_uuids)
        with self.engine.begin() as connection:
            for each in ('node_history', 'reservations_hosts',
                         'reservations_standbys'):
                connection.execute(sa.text(f'DELETE FROM {each}'))
            connection.execute(sa.delete(traits).where(traits.c.node_id.in_(
                sa.select(table.c.id).where(ours))))
            connection.execute(sa.delete(table).where(ours))
            connection.execute(sa.text(
                'DELETE FROM reservations WHERE node_uuid NOT IN '
                '(SELECT uuid FROM nodes)'))
            connection.execute(sa.text(
                'DELETE FROM reservations_groups WHERE id NOT IN (SELECT '
                'group_id FROM reservations WHERE group_id IS NOT NULL)'))


@pytest.fixture(scope='session')
def configuration(tmp_path_factory):
    """ironic.conf of everything here, and the values that it has."""
    conf.register_opts()
    path = services.write_conf(
        tmp_path_factory.mktemp('api') / 'ironic.conf',
        {'DEFAULT': {'auth_strategy': 'noauth'},
         'cors': {'allowed_origin': personas.ORIGIN},
         # It has no need of a Keystone that knows the tokens below.
         'keystone_authtoken': {
             'auth_type': 'password', 'auth_url': personas.KEYSTONE,
             'www_authenticate_uri': personas.KEYSTONE}})
    conf.CONF([], project='ironic', default_config_files=[path])
    yield path
    conf.CONF.reset()


@contextlib.contextmanager
def options(changes):
    """Other values of options while it lasts: {group: {option: value}}."""
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


@pytest.fixture
def configured(ironic):
    """Starts the application with other options: a context manager."""
    @contextlib.contextmanager
    def start(changes, of_ironic=None):
        with options(changes), serving(of_ironic) as url:
            yield service.Service(url, ironic.database_url, ironic.conf_file)
    return start


@contextlib.contextmanager
def serving(of_ironic=None):
    """The application's URL while it answers there.

    :param of_ironic: WSGI application; one that has nothing at any path
        unless it is given.
    """
    application = middleware.ReservationsMiddleware(
        of_ironic or webob.exc.HTTPNotFound())
    with interceptor.RequestsInterceptor(
            lambda: application, f'{uuid.uuid4()}.test', 80) as url:
        yield url


@contextlib.contextmanager
def started(url, conf_file):
    """The application on a database, and the engine that it has there."""
    with options({'database': {'connection': url}}):
        engine = db_engine.checked()
    databases.hurry(engine)
    try:
        with serving() as address:
            yield Application(address, url, conf_file), engine
    finally:
        engine.dispose()


@pytest.fixture(scope='session')
def ironic_sqlite(configuration, tmp_path_factory, shared_directory):
    url = databases.create_sqlite(
        shared_directory, tmp_path_factory.mktemp('sqlite') / 'ironic.sqlite')
    with started(url, configuration) as application:
        yield application


@pytest.fixture(scope='session')
def ironic_server(configuration, shared_directory, server_url):
    with databases.on_server(shared_directory, server_url) as url, \
            started(url, configuration) as application:
        yield application


@pytest.fixture(scope='session')
def ironic_utf8(ironic_server):
    """With the character set of the URL in Ironic's install guide."""
    mariadb, _ = ironic_server
    with started(f'{mariadb.database_url}&charset=utf8',
                 mariadb.conf_file) as application:
        yield application


def pytest_generate_tests(metafunc):
    databases.choose(metafunc, 'ironic', 'module')


@pytest.fixture(scope='module')
def ironic(request):
    """The application on a database; see the class above."""
    application, engine = request.getfixturevalue(f'ironic_{request.param}')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(db_engine, 'get_engine', lambda: engine)
        # What it has counted in the other database is no good in this one.
        application.capacity()
        yield application


@contextlib.contextmanager
def statements(with_commits=False):
    """What the application asks its database, as it comes."""
    found = []

    def note(connection, cursor, statement, *args):
        found.append(statement)

    def commit(connection):
        found.append('COMMIT')

    listeners = {'before_cursor_execute': note}
    if with_commits:
        listeners['commit'] = commit
    engine = db_engine.get_engine()
    with contextlib.ExitStack() as stack:
        for event, listener in listeners.items():
            sa.event.listen(engine, event, listener)
            stack.callback(sa.event.remove, engine, event, listener)
        yield found


# Callers with tokens

class Elevated(service.Http):
    """A caller where the service role has Ironic's elevated access."""

    def request(self, *args, **kwargs):
        with options({'DEFAULT': {'rbac_service_role_elevated_access': True}}):
            return super().request(*args, **kwargs)


@pytest.fixture(scope='module')
def cloud_of_module(ironic):
    """See tests.common.personas; what Keystone says of tokens is made up."""
    projects = {name: uuid.uuid4().hex for name in ('a', 'b', 'service')}
    users = {persona: uuid.uuid4().hex for persona in personas.PERSONAS}
    users['elevated-service'] = users['service']
    with auth_fixture.AuthTokenFixture() as keystone, \
            options({'DEFAULT': {'auth_strategy': 'keystone'}}), \
            serving() as url:
        callers = {persona: service.Http(url) for persona in (
            'no-token', 'bad-token', *personas.PERSONAS)}
        callers['elevated-service'] = Elevated(url)
        for persona, user in users.items():
            callers[persona].headers['X-Auth-Token'] = keystone.add_token(
                token(user, projects, *personas.PERSONAS.get(
                    persona, personas.PERSONAS['service'])))
        callers['bad-token'].headers['X-Auth-Token'] = 'nonsense'
        cloud = personas.Cloud(ironic, projects, users, callers)
        with ironic.fleet(*cloud.fleet()) as nodes:
            cloud.has(nodes)
            yield cloud


def token(user, projects, role, on):
    data = tokens.V3Token(user_id=user, user_domain_id='default')
    if on == 'system':
        data.set_system_scope()
    elif on == 'domain':
        data.set_domain_scope(id='default')
    elif on is not None:
        data.set_project_scope(id=projects[on], name=on, domain_id='default')
    if on is not None:
        # Keystone's roles imply those behind them.
        roles = ['admin', 'manager', 'member', 'reader']
        for each in roles[roles.index(role):] if role in roles else [role]:
            data.add_role(name=each)
    return data


@pytest.fixture
def cloud(cloud_of_module):
    cloud_of_module.reset()
    return cloud_of_module


@pytest.fixture(scope='session')
def keystone():
    """The limits in it; one for all, because a process looks it up once."""
    with limit_fixture.LimitFixture({}, {}) as keystone:
        yield keystone


@pytest.fixture
def policy(configuration):
    """Writes policy.yaml beside ironic.conf; it is read while we run."""
    path = pathlib.Path(configuration).parent / 'policy.yaml'

    def write(rules):
        # JSON is YAML.
        path.write_text(json.dumps(rules))
    yield write
    write({})
