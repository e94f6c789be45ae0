# SPDX-License-Identifier: Apache-2.0
"""The tokens of a real Keystone, and policies as a real Ironic reads them."""

import configparser
import contextlib
import json
import os
import pathlib
import subprocess

from keystoneauth1 import session as ks_session
from keystoneauth1.identity import v3
import openstack
import pytest

from tests.common import answers
from tests.common import command
from tests.common import personas
from tests.common import service
from tools import services

OURS, ANY = personas.OURS, personas.ANY


class Keystone:
    """Makes in a real Keystone what personas need."""

    def __init__(self, auth, ironic, elevated):
        self.auth = auth
        self.ironic = ironic
        self.elevated = elevated
        self.projects, self.users, self.callers = {}, {}, {}

    def admin(self):
        return openstack.connect(
            load_envvars=False, load_yaml_config=False,
            auth={**self.auth, 'system_scope': 'all'})

    def populate(self):
        identity = self.admin().identity
        baremetal = identity.create_service(type='baremetal', name='ironic')
        identity.create_endpoint(service_id=baremetal.id, interface='public',
                                 url=self.ironic.url)
        for name in 'a', 'b', 'service':
            self.projects[name] = identity.create_project(
                name=name, domain_id='default').id
        roles = {role.name: role for role in identity.roles()}
        for persona, (role, on) in personas.PERSONAS.items():
            user = identity.create_user(
                name=persona, password=self.auth['password'],
                domain_id='default')
            self.users[persona] = user.id
            self._assign(identity, user, roles[role], on)
            self.callers[persona] = self._caller(
                self.ironic, self._token(persona, on))
        self.callers['elevated-service'] = self._caller(
            self.elevated, self._token('service', 'service'))
        self.users['elevated-service'] = self.users['service']
        self.callers['no-token'] = self._caller(self.ironic)
        self.callers['bad-token'] = self._caller(self.ironic, 'nonsense')

    def _assign(self, identity, user, role, on):
        if on in self.projects:
            identity.assign_project_role_to_user(self.projects[on], user,
                                                 role)
        elif on == 'system':
            identity.assign_system_role_to_user(user, role, 'all')
        else:
            identity.assign_domain_role_to_user('default', user, role)

    def _token(self, persona, on):
        scope = {'system': {'system_scope': 'all'},
                 'domain': {'domain_id': 'default'},
                 None: {'unscoped': True}}.get(on)
        return ks_session.Session(v3.Password(
            **{**self.auth, 'username': persona},
            **scope or {'project_id': self.projects[on]})).get_token()

    @staticmethod
    def _caller(ironic, token=None):
        http = service.Http(ironic.url)
        if token:
            http.headers['X-Auth-Token'] = token
        return http


def config(auth):
    """What an operator adds to ironic.conf."""
    return {
        'DEFAULT': {'auth_strategy': 'keystone'},
        'cors': {'allowed_origin': personas.ORIGIN},
        'keystone_authtoken': {
            'auth_type': 'password', 'www_authenticate_uri': auth['auth_url'],
            'project_name': 'admin', 'project_domain_id': 'default', **auth},
    }


@contextlib.contextmanager
def alone(ironic, directory, changes):
    """The application alone on an Ironic's database, configured otherwise."""
    conf = configparser.RawConfigParser()
    conf.read(ironic.conf_file)
    conf.read_dict(changes)
    conf_file = directory / 'ironic.conf'
    with open(conf_file, 'w') as f:
        conf.write(f)
    with services.uwsgi('ironic_reservations.wsgi:application',
                        str(conf_file), services.free_port(),
                        processes=1) as running:
        yield service.Ironic(running)


@pytest.fixture(scope='module')
def running(start_ironic, tmp_path_factory):
    with services.keystone(tmp_path_factory.mktemp('keystone'),
                           services.free_port()) as auth, \
            start_ironic(config=config(auth)) as ironic, \
            alone(ironic, tmp_path_factory.mktemp('elevated'), {'DEFAULT': {
                'rbac_service_role_elevated_access': 'true'}}) as elevated:
        keystone = Keystone(auth, ironic, elevated)
        keystone.populate()
        cloud = personas.Cloud(ironic, keystone.projects, keystone.users,
                               keystone.callers)
        cloud.has(services.enrol(keystone.admin().baremetal, cloud.fleet()))
        yield cloud, auth


@pytest.fixture
def cloud(running):
    cloud, _ = running
    cloud.reset()
    return cloud


# The same as in process, with real tokens

@pytest.mark.parametrize('persona, call, status', [
    pytest.param(*row, marks=[] if row[1] == 'create' else pytest.mark.long)
    for row in personas.rows()])
def test_call(cloud, persona, call, status):
    method, path, *body = personas.CALLS[call]
    before = cloud.ironic.state()
    response = cloud.request(persona, method, path,
                             json=body[0] if body else None)
    answers.check(response, status)
    assert (cloud.ironic.state() != before) == (
        method != 'GET' and call != 'dry-run' and status < 300)


@pytest.mark.parametrize('persona', personas.NODES)
def test_nodes_to_be_had_are_those_that_ironic_shows(cloud, persona):
    kinds = personas.NODES[persona]
    if persona != 'elevated-service':
        nodes = cloud.request(persona, 'GET', '/v1/nodes').json()['nodes']
        assert cloud.kinds(node['uuid'] for node in nodes) == kinds
        assert len(nodes) == 2 * len(kinds)
    capacity = cloud.request(persona, 'GET', f'{OURS}/capacity', headers={
        'Cache-Control': 'no-cache'}).json()['capacity']
    assert sum(each['total'] for each in capacity) == 2 * len(kinds)


# As Ironic does

def test_refusal_is_ironics(cloud):
    ironics, ours = (cloud.request('no-token', 'GET', path)
                     for path in ('/v1/allocations', OURS))
    assert ironics.status_code == ours.status_code
    assert (ironics.headers['WWW-Authenticate']
            == ours.headers['WWW-Authenticate'])
    ironics = cloud.request('a-reader', 'POST', '/v1/allocations',
                            json={'resource_class': 'gold'})
    assert ironics.status_code == 403
    ours = cloud.refused('a-reader', 403, 'POST', OURS, json=ANY)
    assert ours.replace('reservation', 'allocation') in ironics.text


def test_claims_are_not_believed(cloud):
    forged = personas.FORGED
    cloud.refused('no-token', 401, 'GET', OURS, headers=forged)
    cloud.refused('a-reader', 403, 'POST', OURS, headers=forged, json=ANY)
    cloud.refused('a-member', 404, 'GET', f'{OURS}/{{b}}', headers=forged)
    held = cloud.request('a-member', 'POST', OURS, headers=forged, json=ANY)
    answers.check(held, 201)
    assert held.json()['project_id'] == cloud.projects['a']
    assert held.json()['user_id'] == cloud.users['a-member']


def test_keystone_cannot_be_reached(cloud, tmp_path):
    nowhere = f'http://127.0.0.1:{services.free_port()}/v3'
    with alone(cloud.ironic, tmp_path, {'keystone_authtoken': {
            'auth_url': nowhere, 'http_request_max_retries': 0}}) as lost:
        answers.check(lost.http.get(OURS), 401)
        answers.check(lost.http.get(
            OURS, headers={'X-Auth-Token': 'unknown'}), 503)


@pytest.fixture
def policy(cloud):
    """Writes policy.yaml beside ironic.conf; it is read while we run."""
    path = pathlib.Path(cloud.ironic.conf_file).parent / 'policy.yaml'

    def write(rules):
        # JSON is YAML.
        path.write_text(json.dumps(rules))
    yield write
    write({})


def test_policy_of_service_role_is_ironics(cloud, policy):
    """One line gives the role the same in both."""
    def nodes():
        return cloud.request('service', 'GET', '/v1/nodes').json()['nodes']
    assert nodes() == []
    cloud.refused('service', 403, 'POST', OURS, json=ANY)
    policy({'service_role': 'role:service'})
    assert len(nodes()) == 8
    cloud.hold('service', host='h')
    assert len(cloud.get('service', OURS)['reservations']) == 4


def test_policy_of_ironic_is_left_to_it(cloud, policy):
    policy({'baremetal:node:list': '!', 'baremetal:node:list_all': '!',
            'baremetal:allocation:create': 'rule:is_admin'})
    response = cloud.request('system-admin', 'GET', '/v1/nodes')
    assert response.status_code == 403
    cloud.hold('a-member')


@pytest.mark.parametrize('path, no_token, a_reader', [
    ('/', 200, 200), ('/v1', 200, 200), ('/v1/nodes', 401, 200),
    ('/v1/nodes/of-a-1', 401, 200), ('/v1/nodes/of-b-1', 401, 404),
    ('/v1/allocations', 401, 200),
    ('/v1/reservationsandmore', 401, 404)])
def test_ironics_own(cloud, path, no_token, a_reader):
    assert cloud.request('no-token', 'GET', path).status_code == no_token
    assert cloud.request('a-reader', 'GET', path).status_code == a_reader


def test_openstack_command_with_a_password(running, cloud):
    _, auth = running
    environment = {
        **services.cli_environment(cloud.ironic.url),
        **{f'OS_{name.upper()}': value for name, value in auth.items()},
        'OS_AUTH_TYPE': 'password', 'OS_USERNAME': 'a-reader',
        'OS_PROJECT_ID': cloud.projects['a']}
    del environment['OS_ENDPOINT']
    listed = subprocess.run(
        [services.program('openstack'), 'baremetal', 'reservation', 'list',
         '-f', 'json'], capture_output=True, text=True, timeout=60,
        env=environment, check=True)
    assert [each['Instance UUID'] for each in json.loads(listed.stdout)] == [
        cloud.names['a']]


@pytest.mark.parametrize('user, project, told', [
    # Who is logged in for a project, and has a role on the system, too.
    ('admin', 'admin', 'Nova or Placement cannot be read: '),
    ('a-admin', 'a', 'Ironic does not show this user all reservations'),
])
def test_audit_sees_all_of_ironic(running, cloud, user, project, told):
    auth = {**running[1], 'username': user}
    refused = command.run(
        cloud.ironic.url, 'baremetal', 'reservation', 'audit',
        **{f'OS_{name.upper()}': value for name, value in auth.items()},
        OS_AUTH_TYPE='password', OS_ENDPOINT='',
        OS_PROJECT_NAME=project, OS_PROJECT_DOMAIN_ID='default')
    assert (refused.returncode, refused.stdout) == (1, '')
    assert refused.stderr.startswith(told)


# What operators generate

@pytest.mark.parametrize('generator, wanted', [
    ('oslo-config-generator', ['[reservations]', '#default_lease = 0']),
    ('oslopolicy-sample-generator',
     [f'#"baremetal:reservation:{rule}": ' for rule in (
         'create', 'create_restricted', 'get', 'list', 'list_all', 'delete',
         'capacity')])])
def test_generator(generator, wanted):
    sample = subprocess.run(
        [services.program(generator), '--namespace', 'ironic_reservations'],
        capture_output=True, text=True, timeout=60, check=True,
        env={name: value for name, value in os.environ.items()
             if name != 'COLUMNS'})
    for each in wanted:
        assert each in sample.stdout
