# SPDX-License-Identifier: Apache-2.0
"""Who may do what, with the tokens of a real Keystone.

The nodes, two of each kind: nobody's, of project A, leased to A, of project
B. Three are held before each test: one for A, one for B, one for no project.
"""

import configparser
import contextlib
import json
import os
import pathlib
import subprocess
import uuid

import bcrypt
from keystoneauth1 import session as ks_session
from keystoneauth1.identity import v3
import openstack
import pytest

from tests.functional import answers
from tests.functional import conftest
from tools import services

OURS = '/v1/reservations'
ORIGIN = 'http://dashboard.example'
PAGE = {'Origin': ORIGIN}

# Roles and what they are on; one user has one of them.
PERSONAS = {
    'system-admin': ('admin', 'system'),
    'system-member': ('member', 'system'),
    'system-reader': ('reader', 'system'),
    'system-service': ('service', 'system'),
    'a-admin': ('admin', 'a'),
    'a-member': ('member', 'a'),
    'a-reader': ('reader', 'a'),
    'b-member': ('member', 'b'),
    'service': ('service', 'service'),
    'domain-admin': ('admin', 'domain'),
    'unscoped': ('admin', None),
}

# What each gets of Ironic's own node list, and may therefore reserve.
ALL = {'free', 'of-a', 'leased-to-a', 'of-b'}
NODES = {
    'system-admin': ALL,
    'system-member': ALL,
    'system-reader': ALL,
    'system-service': ALL,
    'a-admin': {'of-a', 'leased-to-a'},
    'a-member': {'of-a', 'leased-to-a'},
    'a-reader': {'of-a', 'leased-to-a'},
    'b-member': {'of-b'},
    'service': set(),
    'elevated-service': ALL,
}

# {a}, {b}, {none}: the instances held for A, for B and for no project.
ANY = {'memory_mb': 1}
CALLS = {
    'list': ('GET', OURS),
    'list-b': ('GET', f'{OURS}?project_id={{project_b}}'),
    'capacity': ('GET', f'{OURS}/capacity'),
    'show-a': ('GET', f'{OURS}/{{a}}'),
    'show-b': ('GET', f'{OURS}/{{b}}'),
    'show-none': ('GET', f'{OURS}/{{none}}'),
    'dry-run': ('POST', f'{OURS}?dry_run=true', ANY),
    'create': ('POST', OURS, ANY),
    'create-for': ('POST', OURS, {**ANY, 'host': 'h', 'project_id': 'p',
                                  'user_id': 'u'}),
    'delete-a': ('DELETE', f'{OURS}/{{a}}'),
    'delete-b': ('DELETE', f'{OURS}/{{b}}'),
    'delete-none': ('DELETE', f'{OURS}/{{none}}'),
}

MATRIX = """
                       capacity            dry-run              delete-a
                  list   |          show     |  create            |   -b
                   |  list-b  -a  -b  -none  |   |  create-for    |   |  -none
                   |   |   |   |   |   |     |   |   |            |   |   |
no-token          401 401 401 401 401 401   401 401 401          401 401 401
bad-token         401 401 401 401 401 401   401 401 401          401 401 401
unscoped          403 403 403 404 404 404   403 403 403          404 404 404
domain-admin      403 403 403 404 404 404   403 403 403          404 404 404
system-admin      200 200 200 200 200 200   200 201 201          204 204 204
system-member     200 200 200 200 200 200   200 201 201          204 204 204
system-service    200 200 200 200 200 200   200 201 201          204 204 204
system-reader     200 200 200 200 200 200   403 403 403          403 403 403
a-admin           200 403 200 200 404 404   200 201 403          204 404 404
a-member          200 403 200 200 404 404   200 201 403          204 404 404
a-reader          200 403 200 200 404 404   403 403 403          403 404 404
b-member          200 200 200 404 200 404   200 201 403          404 204 404
service           200 403 200 404 404 404   403 403 403          404 404 404
elevated-service  200 200 200 200 200 200   200 201 201          204 204 204
"""


def rows():
    return [pytest.param(persona, call, int(status), id=f'{persona}-{call}')
            for persona, *statuses in map(str.split, MATRIX.split('\n')[5:-1])
            for call, status in zip(CALLS, statuses, strict=True)]


class Cloud:
    """Keystone and Ironic, our users and nodes."""

    def __init__(self, auth, ironic, elevated):
        self.auth = auth
        self.ironic = ironic
        self.elevated = elevated
        self.projects, self.users, self.callers = {}, {}, {}
        self._before = None

    def _admin(self):
        return openstack.connect(
            load_envvars=False, load_yaml_config=False,
            auth={**self.auth, 'system_scope': 'all'})

    def populate(self):
        identity = self._admin().identity
        baremetal = identity.create_service(type='baremetal', name='ironic')
        identity.create_endpoint(service_id=baremetal.id, interface='public',
                                 url=self.ironic.url)
        for name in 'a', 'b', 'service':
            self.projects[name] = identity.create_project(
                name=name, domain_id='default').id
        roles = {role.name: role for role in identity.roles()}
        for persona, (role, on) in PERSONAS.items():
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
        http = conftest.Http(ironic.url)
        if token:
            http.headers['X-Auth-Token'] = token
        return http

    def enrol(self):
        a, b = self.projects['a'], self.projects['b']
        kinds = {'free': {}, 'of-a': {'owner': a},
                 'leased-to-a': {'owner': 'lessor', 'lessee': a},
                 'of-b': {'owner': b}}
        nodes = services.enrol(self._admin().baremetal, [
            {'name': f'{kind}-{number}', 'resource_class': 'gold',
             'properties': {'memory_mb': 1024}, **whose}
            for kind, whose in kinds.items() for number in (1, 2)])
        self.nodes = {node.id: node.name for node in nodes}

    def reset(self):
        """Have the three nodes held again that tests begin with."""
        if self._before == self.state():
            return
        answers.execute(self.ironic, 'DELETE FROM reservations')
        answers.execute(
            self.ironic, "UPDATE nodes SET instance_uuid = NULL, "
            "reservation = NULL, provision_state = 'available', "
            'maintenance = :no', no=False)
        self.held = {
            whose: self.hold('system-admin', candidate_nodes=[node],
                             project_id=self.projects.get(whose), host='h')
            for whose, node in (('a', 'of-a-1'), ('b', 'of-b-1'),
                                ('none', 'free-1'))}
        self.names = {
            **{whose: each['instance_uuid']
               for whose, each in self.held.items()},
            **{f'project_{name}': each
               for name, each in self.projects.items()}}
        self._before = self.state()

    def state(self):
        """What a refused request must leave as it was."""
        return (answers.execute(
            self.ironic, 'SELECT uuid, instance_uuid, provision_state, '
            'maintenance FROM nodes ORDER BY id'),
            answers.execute(
                self.ironic, 'SELECT * FROM reservations ORDER BY id'))

    def request(self, persona, method, path, **kwargs):
        return self.callers[persona].request(
            method, path.format(**self.names), **kwargs)

    def get(self, persona, path, **params):
        """The answer's content."""
        response = self.request(persona, 'GET', path, params=params)
        answers.check(response, 200)
        return response.json()

    def refused(self, persona, status, method, path, **kwargs):
        """The error's text."""
        return answers.check(
            self.request(persona, method, path, **kwargs), status)

    def hold(self, persona, **body):
        response = self.callers[persona].post(OURS, json={**ANY, **body})
        answers.check(response, 201)
        return response.json()

    def kinds(self, node_uuids):
        """Whose the nodes are: of-b-1 is of-b."""
        return {self.nodes[each].rpartition('-')[0] for each in node_uuids}

    def set_node(self, name, **values):
        for column, value in values.items():
            answers.execute(
                self.ironic, f'UPDATE nodes SET {column} = :value '
                'WHERE name = :name', value=value, name=name)


def config(auth):
    """What an operator adds to ironic.conf."""
    return {
        'DEFAULT': {'auth_strategy': 'keystone'},
        'cors': {'allowed_origin': ORIGIN},
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
                        processes=1) as service:
        yield conftest.Ironic(service)


@pytest.fixture(scope='module')
def running(start_ironic, tmp_path_factory):
    with services.keystone(tmp_path_factory.mktemp('keystone'),
                           services.free_port()) as auth, \
            start_ironic(config=config(auth)) as ironic, \
            alone(ironic, tmp_path_factory.mktemp('elevated'), {'DEFAULT': {
                'rbac_service_role_elevated_access': 'true'}}) as elevated:
        cloud = Cloud(auth, ironic, elevated)
        cloud.populate()
        cloud.enrol()
        yield cloud


@pytest.fixture
def cloud(running):
    running.reset()
    return running


# Who may call what

@pytest.mark.parametrize('persona, call, status', rows())
def test_call(cloud, persona, call, status):
    method, path, *body = CALLS[call]
    before = cloud.state()
    response = cloud.request(persona, method, path,
                             json=body[0] if body else None)
    answers.check(response, status)
    assert (cloud.state() != before) == (status in (201, 204))


@pytest.mark.parametrize('persona', NODES)
def test_nodes_to_be_had_are_those_that_ironic_shows(cloud, persona):
    kinds = NODES[persona]
    if persona != 'elevated-service':
        nodes = cloud.request(persona, 'GET', '/v1/nodes').json()['nodes']
        assert cloud.kinds(node['uuid'] for node in nodes) == kinds
        assert len(nodes) == 2 * len(kinds)
    capacity = cloud.request(persona, 'GET', f'{OURS}/capacity', headers={
        'Cache-Control': 'no-cache'}).json()['capacity']
    assert sum(each['total'] for each in capacity) == 2 * len(kinds)
    assert len(capacity) == len(kinds)
    # All again, from what has been counted for another.
    assert cloud.get(persona, f'{OURS}/capacity')['capacity'] == capacity


@pytest.mark.parametrize('persona', [
    persona for persona in NODES
    if persona not in ('system-reader', 'a-reader', 'service')])
def test_nodes_that_a_caller_gets_until_there_are_none(cloud, persona):
    kinds = NODES[persona]
    dry_run = cloud.request(persona, 'POST', f'{OURS}?dry_run=true',
                            json=ANY).json()
    got = []
    while True:
        response = cloud.callers[persona].post(OURS, json=ANY)
        if response.status_code != 201:
            break
        got.append(response.json())
    answers.check(response, 422)
    held = sum(kind in kinds for kind in ('free', 'of-a', 'of-b'))
    assert len(got) == dry_run['matching_nodes'] == 2 * len(kinds) - held
    assert cloud.kinds(each['node_uuid'] for each in got) == kinds
    assert response.json()['explanation'] == {
        'considered': 2 * len(kinds), 'nearest': None,
        'eliminated': [{'by': 'reserved', 'nodes': 2 * len(kinds)}]}
    role, on = PERSONAS.get(persona, ('service', 'service'))
    for each in got:
        assert each['project_id'] == cloud.projects.get(on)
        assert each['user_id'] == cloud.users[persona]
        assert each['host'] is None


# For whom

@pytest.mark.parametrize('persona', ['a-admin', 'a-member', 'b-member'])
@pytest.mark.parametrize('key', ['host', 'project_id', 'user_id'])
def test_project_cannot_say_for_whom(cloud, persona, key):
    before = cloud.state()
    own = {'project_id': cloud.projects[persona[0]],
           'user_id': cloud.users[persona]}
    for value in 'x', own.get(key, 'h'):
        for query in '', '?dry_run=true':
            fault = cloud.refused(persona, 403, 'POST', f'{OURS}{query}',
                                  json={**ANY, key: value})
            assert key in fault
    assert cloud.state() == before
    # Absent is null.
    assert cloud.hold(persona, **{key: None})['user_id'] == own['user_id']


@pytest.mark.parametrize('persona', [
    'system-member', 'system-service', 'elevated-service'])
def test_compute_service_says_for_whom(cloud, persona):
    project, user = cloud.projects['a'], cloud.users['a-member']
    held = cloud.hold(persona, host='compute-1', project_id=project,
                      user_id=user, candidate_nodes=['free-2'])
    assert (held['host'], held['project_id'], held['user_id']) == (
        'compute-1', project, user)
    # Its project sees it, on a node that it does not see.
    path = f'{OURS}/{held["instance_uuid"]}'
    assert cloud.get('a-reader', path)['node_name'] == 'free-2'
    cloud.refused('b-member', 404, 'GET', path)
    cloud.refused('a-member', 204, 'DELETE', path)


def test_services_own_hold_is_its_projects(cloud):
    held = cloud.hold('elevated-service')
    assert held['project_id'] == cloud.projects['service']
    assert held['user_id'] == cloud.users['service']
    # Also where the role alone gives nothing.
    listed = cloud.get('service', OURS)['reservations']
    assert [each['instance_uuid'] for each in listed] == [
        held['instance_uuid']]
    cloud.refused('service', 403, 'DELETE', listed[0]['links'][0]['href'])


# What is another's

@pytest.mark.parametrize('persona, whose', [
    ('system-reader', {'a', 'b', 'none'}), ('system-service',
                                            {'a', 'b', 'none'}),
    ('elevated-service', {'a', 'b', 'none'}), ('a-admin', {'a'}),
    ('a-reader', {'a'}), ('b-member', {'b'}), ('service', set())])
def test_list(cloud, persona, whose):
    def listed(**query):
        return {each['instance_uuid']
                for each in cloud.get(persona, OURS, **query)['reservations']}
    uuids = {cloud.names[each] for each in whose}
    assert listed() == uuids
    for query in ({'host': 'h'}, {'state': 'reserved'},
                  {'resource_class': 'gold'}, {'sort_key': 'project_id'}):
        assert listed(**query) == uuids
    for name, node in (('a', 'of-a-1'), ('b', 'of-b-1'), ('none', 'free-1')):
        assert listed(node=node) == {cloud.names[name]} & uuids


def test_list_one_page_after_the_other(cloud):
    for _ in range(2):
        cloud.hold('a-member')
    found, url = [], f'{OURS}?limit=1&sort_key=created_at&sort_dir=desc'
    while url:
        page = cloud.get('a-reader', url)
        assert len(page['reservations']) == 1
        found += page['reservations']
        url = page.get('next')
    assert {each['project_id'] for each in found} == {cloud.projects['a']}
    assert len(found) == 3


@pytest.mark.parametrize('persona', ['a-admin', 'a-reader', 'service'])
def test_list_of_another_project(cloud, persona):
    for project in '{project_b}', 'unknown':
        cloud.refused(persona, 403, 'GET', f'{OURS}?project_id={project}')
    own = PERSONAS[persona][1]
    cloud.get(persona, OURS, project_id=cloud.projects[own])


def same(cloud, persona, status, method, path, **kwargs):
    """The texts for others' instances, and for one that is unknown."""
    unknown = str(uuid.uuid4())
    others = {'a-member': ('b', 'none'), 'b-member': ('a', 'none'),
              'domain-admin': ('a', 'b', 'none'),
              'service': ('a', 'b', 'none'),
              'unscoped': ('a', 'b', 'none')}[persona]
    return {cloud.refused(persona, status, method,
                          path.format(instance=each), **kwargs
                          ).replace(each, 'UUID')
            for each in (unknown, *(cloud.names[name] for name in others))}


@pytest.mark.parametrize('persona', [
    'a-member', 'b-member', 'service', 'domain-admin', 'unscoped'])
@pytest.mark.parametrize('method, query', [
    ('GET', ''), ('GET', '?fields=host'), ('DELETE', ''),
    ('DELETE', '?host=h')])
def test_anothers_is_like_none(cloud, persona, method, query):
    before = cloud.state()
    assert len(same(cloud, persona, 404, method,
                    f'{OURS}/{{instance}}{query}')) == 1
    assert cloud.state() == before


def test_anothers_is_no_marker(cloud):
    assert len(same(cloud, 'a-member', 400, 'GET',
                    f'{OURS}?marker={{instance}}')) == 1


def test_post_says_the_same_whoever_holds_it(cloud):
    spec = cloud.held['b']['request_spec']
    carried = str(uuid.uuid4())
    cloud.set_node('free-2', instance_uuid=carried)
    before = cloud.state()
    faults = {
        cloud.refused('a-member', 409, 'POST', OURS, json={
            **body, 'instance_uuid': instance}).replace(instance, 'UUID')
        for instance, body in [
            (cloud.names['a'], {'memory_mb': 2}),
            (cloud.names['b'], {'memory_mb': 2}), (cloud.names['b'], spec),
            (cloud.names['none'], ANY), (carried, ANY)]}
    assert cloud.state() == before
    fault, = faults
    for hint in (*cloud.nodes, *cloud.nodes.values(),
                 *cloud.projects.values()):
        assert hint not in fault


def test_anothers_node_is_like_none(cloud):
    """Neither a refusal nor a dry run tells that there is such a node."""
    def verdict(query, node):
        response = cloud.callers['a-member'].post(
            f'{OURS}{query}', json={'candidate_nodes': [node]})
        return response.status_code, response.text.replace(node, 'NODE')
    b_uuid = next(each for each, name in cloud.nodes.items()
                  if name == 'of-b-2')
    for query in '', '?dry_run=true':
        verdicts = {verdict(query, node) for node in (
            'unknown', str(uuid.uuid4()), 'of-b-1', 'of-b-2', b_uuid,
            'free-2')}
        assert len(verdicts) == 1


@pytest.mark.parametrize('persona, considered, free', [
    ('system-admin', 8, 5), ('elevated-service', 8, 5), ('a-member', 4, 3),
    ('b-member', 2, 1)])
def test_explanation_counts_what_the_caller_may_see(cloud, persona,
                                                    considered, free):
    fault = cloud.request(persona, 'POST', OURS, json={'memory_mb': 1025})
    answers.check(fault, 422)
    dry_run = cloud.request(persona, 'POST', f'{OURS}?dry_run=true',
                            json={'memory_mb': 1025})
    explanation = fault.json()['explanation']
    assert explanation == dry_run.json()['explanation']
    assert explanation['considered'] == considered
    assert sum(each['nodes'] for each in explanation['eliminated']) == (
        considered)
    assert explanation['nearest']['nodes'] == free
    assert f'of {considered} nodes' in json.loads(
        fault.json()['error_message'])['faultstring']


@pytest.mark.parametrize('persona, held', [
    ('system-reader', 3), ('a-reader', 1), ('b-member', 1), ('service', 0)])
def test_capacity_counts_a_hosts_nodes_that_the_caller_may_see(
        cloud, persona, held):
    response = cloud.request(persona, 'GET', f'{OURS}/capacity?host=h',
                             headers={'Cache-Control': 'no-cache'})
    answers.check(response, 200)
    assert sum(each['held']
               for each in response.json()['capacity']) == held


def test_dry_run_shows_own_profiles(cloud):
    dry_run = cloud.request('a-member', 'POST', f'{OURS}?dry_run=true',
                            json=ANY).json()
    a = cloud.projects['a']
    assert {(each['owner'], each['lessee'])
            for each in dry_run['profiles']} == {(a, None), ('lessor', a)}


def test_repeat_is_for_the_same_project(cloud):
    held = cloud.hold('a-member')
    body = {**ANY, 'instance_uuid': held['instance_uuid']}
    for persona in 'a-member', 'a-admin', 'system-member':
        again = cloud.request(persona, 'POST', OURS, json=body)
        answers.check(again, 200)
        assert {**again.json(), 'updated_at': None} == held
    cloud.refused('b-member', 409, 'POST', OURS, json=body)


# A node in maintenance

@pytest.mark.parametrize('persona, status', [
    ('system-admin', 204), ('system-member', 204), ('system-service', 204),
    ('elevated-service', 204), ('system-reader', 403), ('a-admin', 409),
    ('a-member', 409), ('a-reader', 403), ('b-member', 404),
    ('service', 404)])
def test_active_node_in_maintenance(cloud, persona, status):
    cloud.set_node('of-a-1', provision_state='active', maintenance=True)
    cloud.refused(persona, status, 'DELETE', f'{OURS}/{{a}}')


def test_active_node_is_not_released(cloud):
    cloud.set_node('of-a-1', provision_state='active')
    for persona in 'system-admin', 'elevated-service', 'a-member':
        cloud.refused(persona, 409, 'DELETE', f'{OURS}/{{a}}')


# Without an identity

@pytest.mark.parametrize('persona', ['no-token', 'bad-token'])
@pytest.mark.parametrize('method, path', [
    ('GET', OURS), ('HEAD', OURS), ('POST', OURS), ('PUT', OURS),
    ('GET', f'{OURS}/'), ('GET', f'{OURS}/not-a-uuid'),
    ('GET', f'{OURS}/capacity'), ('DELETE', f'{OURS}/{{a}}'),
    ('GET', f'{OURS}/{{a}}/more'), ('GET', f'{OURS}?foo=bar')])
def test_refusal(cloud, persona, method, path):
    response = cloud.request(persona, method, path, headers=PAGE)
    answers.check(response, 401)
    assert response.headers['WWW-Authenticate'] == (
        f'Keystone uri="{cloud.auth["auth_url"]}"')
    # A page can read it.
    assert response.headers['Access-Control-Allow-Origin'] == ORIGIN
    assert response.headers['X-OpenStack-Ironic-API-Version'] != '1.1'


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


def test_body_of_a_stranger_is_not_read(cloud):
    cloud.refused('no-token', 401, 'POST', OURS, data=b'[' * 60000)


def test_preflight_needs_no_token(cloud):
    response = cloud.request('no-token', 'OPTIONS', OURS, headers={
        **PAGE, 'Access-Control-Request-Method': 'POST',
        'Access-Control-Request-Headers': 'X-Auth-Token'})
    assert response.status_code == 200
    assert response.headers['Access-Control-Allow-Origin'] == ORIGIN


FORGED = {'X-Identity-Status': 'Confirmed', 'X-Roles': 'admin,member,reader',
          'OpenStack-System-Scope': 'all', 'X-Is-Admin-Project': 'True',
          'X-User-Id': 'forged', 'X-Project-Id': 'forged',
          'X-Service-Roles': 'service'}


def test_claims_are_not_believed(cloud):
    cloud.refused('no-token', 401, 'GET', OURS, headers=FORGED)
    cloud.refused('a-reader', 403, 'POST', OURS, headers=FORGED, json=ANY)
    cloud.refused('a-member', 404, 'GET', f'{OURS}/{{b}}', headers=FORGED)
    held = cloud.request('a-member', 'POST', OURS, headers=FORGED, json=ANY)
    answers.check(held, 201)
    assert held.json()['project_id'] == cloud.projects['a']
    assert held.json()['user_id'] == cloud.users['a-member']


def test_noauth_does_not_believe_claims(cloud, tmp_path):
    with alone(cloud.ironic, tmp_path,
               {'DEFAULT': {'auth_strategy': 'noauth'}}) as noauth:
        for headers in {}, FORGED, {**FORGED, 'X-Auth-Token': 'nonsense',
                                    'X-Roles': '', 'X-User': 'forged'}:
            response = noauth.http.post(OURS, headers=headers, json=ANY)
            answers.check(response, 201)
            assert response.json()['project_id'] is None
            assert response.json()['user_id'] is None
            # Every caller is an admin.
            assert len(noauth.http.get(OURS, headers=headers).json()
                       ['reservations']) > 3


def test_http_basic(cloud, tmp_path):
    users = tmp_path / 'htpasswd'
    users.write_text('nova:' + bcrypt.hashpw(
        b'secret', bcrypt.gensalt(4)).decode() + '\n')
    with alone(cloud.ironic, tmp_path, {'DEFAULT': {
            'auth_strategy': 'http_basic',
            'http_basic_auth_user_file': users}}) as basic:
        for auth in None, ('nova', 'wrong'), ('other', 'secret'):
            response = basic.http.post(OURS, auth=auth, json=ANY)
            answers.check(response, 401)
        challenge = response.headers.get('WWW-Authenticate')
        response = basic.http.post(
            OURS, auth=('nova', 'secret'), headers=FORGED,
            json={**ANY, 'host': 'h'})
        answers.check(response, 201)
        assert response.json()['host'] == 'h'
        assert response.json()['project_id'] is None
        assert response.json()['user_id'] != 'forged'
        listed = basic.http.get(OURS, auth=('nova', 'secret'))
        answers.check(listed, 200)
        assert len(listed.json()['reservations']) == 4
    # As Ironic's.
    assert challenge == 'Basic realm="Baremetal API"'


def test_keystone_cannot_be_reached(cloud, tmp_path):
    nowhere = f'http://127.0.0.1:{services.free_port()}/v3'
    with alone(cloud.ironic, tmp_path, {'keystone_authtoken': {
            'auth_url': nowhere, 'http_request_max_retries': 0}}) as lost:
        answers.check(lost.http.get(OURS), 401)
        answers.check(lost.http.get(
            OURS, headers={'X-Auth-Token': 'unknown'}), 503)


# The policy file, Ironic's own

@pytest.fixture
def policy(cloud):
    """Writes policy.yaml beside ironic.conf; it is read while we run."""
    path = pathlib.Path(cloud.ironic.conf_file).parent / 'policy.yaml'

    def write(rules):
        # JSON is YAML.
        path.write_text(json.dumps(rules))
    yield write
    write({})


def test_policy_forbids_to_create(cloud, policy):
    policy({'baremetal:reservation:create': '!'})
    for persona in 'system-admin', 'system-service', 'a-member':
        for query in '', '?dry_run=true':
            cloud.refused(persona, 403, 'POST', f'{OURS}{query}', json=ANY)
        cloud.get(persona, OURS)
    # Ironic's own rules are as they were.
    response = cloud.request('a-member', 'GET', '/v1/nodes')
    assert len(response.json()['nodes']) == 4
    policy({})
    cloud.hold('a-member')


def test_policy_gives_a_project_more(cloud, policy):
    policy({f'baremetal:reservation:{rule}': 'role:admin'
            for rule in ('list_all', 'get', 'create_restricted')})
    assert len(cloud.get('a-admin', OURS)['reservations']) == 3
    assert cloud.get('a-admin', OURS, project_id=cloud.projects['b'])
    assert cloud.get('a-admin', f'{OURS}/{{b}}')
    assert cloud.hold('a-admin', host='x', project_id='p',
                      candidate_nodes=['of-b-2'])['project_id'] == 'p'
    # Shown, but not its own to release.
    cloud.refused('a-admin', 403, 'DELETE', f'{OURS}/{{b}}')
    cloud.refused('a-member', 403, 'GET', f'{OURS}/{{a}}')
    cloud.refused('a-member', 404, 'GET', f'{OURS}/{{b}}')


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


# Ironic's own routes

@pytest.mark.parametrize('path, no_token, a_reader', [
    ('/', 200, 200), ('/v1', 200, 200), ('/v1/nodes', 401, 200),
    ('/v1/nodes/of-a-1', 401, 200), ('/v1/nodes/of-b-1', 401, 404),
    ('/v1/allocations', 401, 200),
    ('/v1/reservationsandmore', 401, 404)])
def test_ironics_own(cloud, path, no_token, a_reader):
    assert cloud.request('no-token', 'GET', path).status_code == no_token
    assert cloud.request('a-reader', 'GET', path).status_code == a_reader


def test_openstack_command_with_a_password(cloud):
    environment = {
        **services.cli_environment(cloud.ironic.url),
        **{f'OS_{name.upper()}': value for name, value in cloud.auth.items()},
        'OS_AUTH_TYPE': 'password', 'OS_USERNAME': 'a-reader',
        'OS_PROJECT_ID': cloud.projects['a']}
    del environment['OS_ENDPOINT']
    listed = subprocess.run(
        [services.program('openstack'), 'baremetal', 'reservation', 'list',
         '-f', 'json'], capture_output=True, text=True, timeout=60,
        env=environment, check=True)
    assert [each['Instance UUID'] for each in json.loads(listed.stdout)] == [
        cloud.names['a']]


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
