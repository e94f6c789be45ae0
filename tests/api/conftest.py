# SPDX-License-Identifier: Apache-2.0
"""The application on two databases, and its callers with tokens."""

import contextlib
import json
import pathlib
import uuid

from keystoneauth1 import fixture as tokens
from keystonemiddleware import fixture as auth_fixture
from oslo_limit import fixture as limit_fixture
from oslo_log import log
import pytest

from ironic_reservations import conf
from ironic_reservations.db import engine
from tests.common import application
from tests.common import databases
from tests.common import personas
from tests.common import service
from tools import services


@pytest.fixture(scope='session')
def configuration(tmp_path_factory):
    """The path of ironic.conf, whose values are loaded."""
    log.register_options(conf.CONF)
    conf.register_opts()
    path = services.write_conf(
        tmp_path_factory.mktemp('api') / 'ironic.conf',
        {'DEFAULT': {'auth_strategy': 'noauth'},
         'cors': {'allowed_origin': personas.ORIGIN},
         # No Keystone runs there: its fixture knows the tokens.
         'keystone_authtoken': {
             'auth_type': 'password', 'auth_url': personas.KEYSTONE,
             'www_authenticate_uri': personas.KEYSTONE}})
    conf.CONF([], project='ironic', default_config_files=[path])
    yield path
    conf.CONF.reset()


@pytest.fixture
def start(ironic):
    """Starts the application with other options: a context manager."""
    @contextlib.contextmanager
    def start(changes, ironic_app=None):
        with application.set_options(changes), \
                application.serve(ironic_app) as url:
            yield service.Service(url, ironic.database_url, ironic.conf_file)
    return start


@pytest.fixture(scope='session')
def ironic_sqlite(configuration, tmp_path_factory, shared_directory):
    url = databases.create_sqlite(
        shared_directory, tmp_path_factory.mktemp('sqlite') / 'ironic.sqlite')
    with application.serve_database(url, configuration) as pair:
        yield pair


@pytest.fixture(scope='session')
def ironic_server(configuration, shared_directory, server_url):
    with databases.on_server(shared_directory, server_url) as url, \
            application.serve_database(url, configuration) as pair:
        yield pair


@pytest.fixture(scope='session')
def ironic_utf8(ironic_server):
    """With the character set of the URL in Ironic's install guide."""
    mariadb, _ = ironic_server
    with application.serve_database(f'{mariadb.database_url}&charset=utf8',
                                    mariadb.conf_file) as pair:
        yield pair


def pytest_generate_tests(metafunc):
    databases.choose(metafunc, 'ironic', 'module')


@pytest.fixture(scope='module')
def ironic(request):
    """The Application on the database that the test's mark names."""
    ironic, database = request.getfixturevalue(f'ironic_{request.param}')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, 'get_engine', lambda: database)
        # Cached counts may be from the other database.
        ironic.capacity()
        yield ironic


class Elevated(service.Http):
    """A caller where the service role has Ironic's elevated access."""

    def request(self, *args, **kwargs):
        with application.set_options(
                {'DEFAULT': {'rbac_service_role_elevated_access': True}}):
            return super().request(*args, **kwargs)


@pytest.fixture(scope='module')
def module_cloud(ironic):
    """A Cloud of tests.common.personas, with tokens of a fake Keystone."""
    projects = {name: uuid.uuid4().hex for name in ('a', 'b', 'service')}
    users = {persona: uuid.uuid4().hex for persona in personas.PERSONAS}
    users['elevated-service'] = users['service']
    with auth_fixture.AuthTokenFixture() as keystone, \
            application.set_options(
                {'DEFAULT': {'auth_strategy': 'keystone'}}), \
            application.serve() as url:
        callers = {persona: service.Http(url) for persona in (
            'no-token', 'bad-token', *personas.PERSONAS)}
        callers['elevated-service'] = Elevated(url)
        for persona, user in users.items():
            callers[persona].headers['X-Auth-Token'] = keystone.add_token(
                make_token(user, projects, *personas.PERSONAS.get(
                    persona, personas.PERSONAS['service'])))
        callers['bad-token'].headers['X-Auth-Token'] = 'nonsense'
        cloud = personas.Cloud(ironic, projects, users, callers)
        with ironic.fleet(*cloud.fleet()) as nodes:
            cloud.set_nodes(nodes)
            yield cloud


def make_token(user, projects, role, scope):
    data = tokens.V3Token(user_id=user, user_domain_id='default')
    if scope == 'system':
        data.set_system_scope()
    elif scope == 'domain':
        data.set_domain_scope(id='default')
    elif scope is not None:
        data.set_project_scope(id=projects[scope], name=scope,
                               domain_id='default')
    if scope is not None:
        # Each of Keystone's roles implies the roles after it.
        roles = ['admin', 'manager', 'member', 'reader']
        for name in roles[roles.index(role):] if role in roles else [role]:
            data.add_role(name=name)
    return data


@pytest.fixture
def cloud(module_cloud):
    module_cloud.reset()
    return module_cloud


@pytest.fixture(scope='session')
def keystone():
    """The limits in Keystone; a process looks its endpoint up only once."""
    with limit_fixture.LimitFixture({}, {}) as keystone:
        yield keystone


@pytest.fixture
def policy(configuration):
    """Writes policy.yaml next to ironic.conf; it is reloaded on change."""
    path = pathlib.Path(configuration).parent / 'policy.yaml'

    def write(rules):
        # JSON is YAML.
        path.write_text(json.dumps(rules))
    yield write
    write({})
