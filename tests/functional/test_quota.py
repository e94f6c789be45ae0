# SPDX-License-Identifier: Apache-2.0
"""Limits in a real Keystone, read with the role that the documentation names.

What follows from them is in tests.db.test_quota.
"""

import collections
import concurrent.futures
import configparser
import contextlib
import multiprocessing
import socket
import subprocess
import time
import uuid

from keystoneauth1 import session as ks_session
from keystoneauth1.identity import v3
import openstack
import pytest

from tests.common import answers
from tests.common import command
from tests.common import service
from tests.functional import test_auth
from tools import services

OURS = service.OURS
TOTAL = 'baremetal_reservations'
GOLD = f'{TOTAL}:CUSTOM_GOLD'
REGION = 'RegionOne'
CLIENTS, ROUNDS = 8, 6


class Keystone:
    """A real one, with two projects and their limits."""

    def __init__(self, auth):
        self.auth = auth
        self.identity = identity = openstack.connect(
            load_envvars=False, load_yaml_config=False,
            auth={**auth, 'system_scope': 'all'}).identity
        self.service = identity.create_service(type='baremetal',
                                               name='ironic').id
        identity.create_endpoint(
            service_id=self.service, interface='public', region_id=REGION,
            url='http://127.0.0.1:1')
        self.projects = {name: identity.create_project(
            name=name, domain_id='default').id for name in ('a', 'b')}
        self.roles = {role.name: role for role in identity.roles()}
        for name in self.projects:
            identity.assign_project_role_to_user(
                self.projects[name], self._user(name), self.roles['member'])
        for name, role in ('compute', 'service'), ('ironic-quota', 'reader'):
            identity.assign_system_role_to_user(
                self._user(name), self.roles[role], 'all')
        self._users = {'compute': {'system_scope': 'all'},
                       **{name: {'project_id': each}
                          for name, each in self.projects.items()}}

    def _user(self, name):
        return self.identity.create_user(
            name=name, password=self.auth['password'], domain_id='default')

    def token(self, name):
        return ks_session.Session(v3.Password(**{
            **self.auth, 'username': name}, **self._users[name])).get_token()

    def register(self, limits, **of_projects):
        """Have these limits and no others.

        :param limits: of all projects,
        :param of_projects: and of some: register({TOTAL: 1}, a={TOTAL: 2}).
        """
        identity = self.identity
        for each in identity.limits():
            identity.delete_limit(each)
        for each in identity.registered_limits():
            identity.delete_registered_limit(each)
        where = {'service_id': self.service, 'region_id': REGION}
        for name, number in limits.items():
            identity.create_registered_limit(
                resource_name=name, default_limit=number, **where)
        for project, theirs in of_projects.items():
            for name, number in theirs.items():
                identity.create_limit(
                    project_id=self.projects[project], resource_name=name,
                    resource_limit=number, **where)

    def config(self, **oslo_limit):
        """What an operator adds to ironic.conf."""
        return {
            **test_auth.config(self.auth),
            'reservations': {'quota': 'unified_limits'},
            'oslo_limit': {
                'auth_type': 'password', **self.auth,
                'username': 'ironic-quota', 'system_scope': 'all',
                'endpoint_service_type': 'baremetal',
                'endpoint_region_name': REGION, **oslo_limit}}


@pytest.fixture(scope='module')
def keystone(tmp_path_factory):
    with services.keystone(tmp_path_factory.mktemp('keystone'),
                           services.free_port()) as auth:
        yield Keystone(auth)


@pytest.fixture(scope='module')
def start(ironic, tmp_path_factory):
    """Starts the application alone beside the Ironic: a context manager."""
    @contextlib.contextmanager
    def start(config, processes=1):
        conf = configparser.RawConfigParser()
        conf.read(ironic.conf_file)
        conf.read_dict(config)
        path = tmp_path_factory.mktemp('limited') / 'ironic.conf'
        with open(path, 'w') as f:
            conf.write(f)
        with services.uwsgi('ironic_reservations.wsgi:application', str(path),
                            services.free_port(), processes) as running:
            yield service.Ironic(running)
    return start


class Limited:
    """An application with limits, and who calls it."""

    def __init__(self, url, keystone):
        self.url, self._keystone = url, keystone

    def post(self, caller='a', path=OURS, **body):
        http = service.Http(self.url)
        http.headers['X-Auth-Token'] = self._keystone.token(caller)
        return http.post(path, json=body or {'memory_mb': 1})

    def status(self, *args, **kwargs):
        response = self.post(*args, **kwargs)
        answers.check(response)
        return response.status_code

    def refused(self, *args, **kwargs):
        """What a 403 says of the quota."""
        response = self.post(*args, **kwargs)
        told = answers.check(response, 403)
        quota = response.json()['quota']
        assert set(quota) == {'resource', 'limit', 'used', 'requested'}
        for each in quota.values():
            assert str(each) in told
        return tuple(quota.values())


@pytest.fixture(scope='module')
def running(start, keystone):
    with start(keystone.config(), processes=8) as running:
        yield running


@pytest.fixture(scope='module')
def nodes(ironic, keystone):
    classes = ['gold'] * 16 + ['silver'] * 8
    with ironic.fleet(*(
            {'owner': keystone.projects['a'], 'resource_class': each,
             'properties': {'memory_mb': 1024 if each == 'gold' else 2048}}
            for each in classes)):
        yield


@pytest.fixture
def limited(ironic, keystone, running, nodes):
    yield Limited(running.url, keystone)
    for each in 'gold', 'silver':
        ironic.give_back(each)


def test_limits_are_read_for_each_request(keystone, limited):
    keystone.register({TOTAL: 1})
    assert limited.status() == 201
    assert limited.refused() == (TOTAL, 1, 1, 1)
    keystone.register({TOTAL: 1}, b={TOTAL: 9})
    assert limited.refused() == (TOTAL, 1, 1, 1)
    keystone.register({TOTAL: 1}, a={TOTAL: 2})
    assert limited.status() == 201
    assert limited.refused() == (TOTAL, 2, 2, 1)
    keystone.register({TOTAL: -1})
    assert limited.status() == 201


def test_class(keystone, limited):
    keystone.register({TOTAL: 9, GOLD: 0}, a={GOLD: 1})
    held = [limited.post().json()['resource_class'] for _ in range(2)]
    assert held == ['gold', 'silver']
    assert limited.refused(resource_class='gold') == (GOLD, 1, 1, 1)


def test_nothing_is_registered(keystone, limited):
    keystone.register({})
    assert limited.refused() == (TOTAL, 0, 0, 1)


def test_group(keystone, limited):
    keystone.register({TOTAL: 3})
    groups, request = f'{OURS}/groups', {'memory_mb': 1}
    assert limited.refused(path=groups, members=4, request=request) == (
        TOTAL, 3, 0, 4)
    body = {'uuid': str(uuid.uuid4()), 'members': 2, 'request': request}
    assert limited.status(path=groups, **body) == 201
    keystone.register({TOTAL: 1})
    assert limited.status(path=groups, **body) == 200
    assert limited.refused() == (TOTAL, 1, 2, 1)


def test_dry_run(keystone, limited):
    keystone.register({TOTAL: 0})
    dry_run = limited.post(path=f'{OURS}?dry_run=true')
    answers.check(dry_run, 200)
    assert dry_run.json()['quota'] == {
        'resource': TOTAL, 'limit': 0, 'used': 0, 'requested': 1}
    keystone.register({TOTAL: 1})
    dry_run = limited.post(path=f'{OURS}?dry_run=true')
    assert 'quota' not in dry_run.json()
    assert dry_run.json()['matching_nodes'] == 24


def test_compute_service_is_counted_and_not_limited(keystone, limited):
    keystone.register({TOTAL: 1})
    nova = {'memory_mb': 1, 'host': 'compute-1',
            'project_id': keystone.projects['a']}
    assert limited.status('compute', **nova) == 201
    assert limited.status('compute', **nova) == 201
    assert limited.refused() == (TOTAL, 1, 2, 1)


def test_claim_and_repeat_are_not_limited(keystone, limited):
    keystone.register({TOTAL: 1})
    body = {'memory_mb': 1, 'instance_uuid': str(uuid.uuid4())}
    assert limited.status(**body) == 201
    keystone.register({TOTAL: 0})
    assert limited.status(**body) == 200
    assert limited.status(memory_mb=1, claim=body['instance_uuid']) == 201
    assert limited.status(**body) == 403


def test_openstack_command_says_it_in_one_sentence(keystone, limited):
    keystone.register({TOTAL: 0})
    done = command.run(
        limited.url, 'baremetal', 'reservation', 'create', '--ram', '1',
        OS_AUTH_TYPE='token', OS_TOKEN=keystone.token('a'),
        OS_AUTH_URL=keystone.auth['auth_url'], OS_ENDPOINT='',
        OS_PROJECT_ID=keystone.projects['a'],
        OS_BAREMETAL_ENDPOINT_OVERRIDE=limited.url)
    assert (done.returncode, done.stdout) == (1, '')
    told, = done.stderr.strip().splitlines()
    assert f'{TOTAL} is limited to 0' in told


# Keystone away

@pytest.fixture
def silent():
    """The URL of a Keystone that takes connections and never answers."""
    with socket.create_server(('127.0.0.1', 0)) as server:
        yield f'http://127.0.0.1:{server.getsockname()[1]}/v3'


@pytest.mark.parametrize('wrong', [
    {'auth_url': 'http://127.0.0.1:1/v3'}, 'silent',
    *(pytest.param(wrong, marks=pytest.mark.long) for wrong in (
        {'password': 'wrong'}, {'endpoint_region_name': 'elsewhere'},
        # Who may not read the endpoints.
        {'username': 'b', 'system_scope': '', 'project_name': 'b',
         'project_domain_id': 'default'}))])
def test_limits_cannot_be_read(request, ironic, keystone, start, nodes,
                               wrong):
    if wrong == 'silent':
        wrong = {'auth_url': request.getfixturevalue('silent'), 'timeout': 1}
    before = ironic.state()
    with start(keystone.config(**wrong)) as lost:
        caller = Limited(lost.url, keystone)
        for _ in range(2):
            began = time.monotonic()
            response = caller.post()
            answers.check(response, 503)
            assert response.headers['Retry-After']
            assert time.monotonic() - began < 8
        answers.check(caller.post(path=f'{OURS}?dry_run=true'), 503)
        assert ironic.state() == before
        # Those do not need them.
        assert caller.status('compute') == 201
        checked = check(lost)
        assert checked.returncode == 2
        assert 'Check: Quota' in checked.stdout
    ironic.give_back('gold')


def check(service_):
    return subprocess.run(
        [services.program('ironic-reservations-status'), '--config-file',
         service_.conf_file, 'upgrade', 'check'],
        capture_output=True, text=True, timeout=60)


def test_upgrade_check(keystone, running):
    def result():
        lines = check(running).stdout.splitlines()
        at = next(number for number, line in enumerate(lines)
                  if 'Check: Quota' in line)
        return ' '.join(lines[at + 1:at + 6])
    keystone.register({TOTAL: 1})
    assert 'Result: Success' in result()
    keystone.register({GOLD: 1})
    assert 'Result: Warning' in result()
    assert 'no registered limit' in result()


# Races

_barrier = None


def _join(barrier):
    global _barrier
    _barrier = barrier


def post_until_refused(url, token, bodies):
    """POST as long as something is held; how often each status came."""
    http = service.Http(url)
    http.headers['X-Auth-Token'] = token
    _barrier.wait(120)
    statuses = collections.Counter()
    for path, body in bodies:
        while True:
            response = http.post(path, json=body)
            statuses[response.status_code] += 1
            if response.status_code != 201:
                assert response.json().get('quota'), response.text
                break
    return statuses


def post_in_rounds(url, token, rounds):
    """POST once in each round, all at once; the statuses."""
    http = service.Http(url)
    http.headers['X-Auth-Token'] = token
    statuses = []
    for _ in range(rounds):
        _barrier.wait(120)
        response = http.post(OURS, json={'memory_mb': 1})
        assert response.status_code in (201, 403), response.text
        statuses.append(response.status_code)
        _barrier.wait(120)
        if response.status_code == 201:
            instance_uuid = response.json()['instance_uuid']
            assert http.delete(f'{OURS}/{instance_uuid}').status_code == 204
    return statuses


@pytest.fixture(scope='module')
def clients():
    context = multiprocessing.get_context('spawn')
    with concurrent.futures.ProcessPoolExecutor(
            CLIENTS, context, _join,
            [context.Barrier(CLIENTS)]) as executor:
        yield executor


ONE = (OURS, {'memory_mb': 1})
GOLD_ONE = (OURS, {'resource_class': 'gold'})
THREE = (f'{OURS}/groups', {'members': 3, 'request': {'memory_mb': 1}})


def test_race_for_the_last_one(keystone, limited, clients):
    keystone.register({TOTAL: 1})
    token = keystone.token('a')
    jobs = [clients.submit(post_in_rounds, limited.url, token, ROUNDS)
            for _ in range(CLIENTS)]
    for statuses in zip(*(job.result() for job in jobs), strict=True):
        assert sorted(statuses) == [201] + [403] * (CLIENTS - 1)


@pytest.mark.parametrize('limits, bodies, gold, silver', [
    ({TOTAL: 11, GOLD: 5}, [THREE, ONE], 5, 6),
    pytest.param({TOTAL: 11}, [THREE, ONE], None, None,
                 marks=pytest.mark.long),
    pytest.param({TOTAL: 99, GOLD: 5}, [GOLD_ONE], 5, 0,
                 marks=pytest.mark.long),
], ids=['classes', 'groups', 'class'])
def test_race_ends_at_the_limit(ironic, keystone, limited, clients, limits,
                                bodies, gold, silver):
    keystone.register(limits)
    token = keystone.token('a')
    # No project has a row at first.
    ironic.execute('DELETE FROM reservations_projects')

    def held():
        return collections.Counter(resource_class for resource_class, in (
            ironic.execute('SELECT resource_class FROM nodes '
                           'WHERE instance_uuid IS NOT NULL')))
    jobs = [clients.submit(post_until_refused, limited.url, token, bodies)
            for _ in range(CLIENTS)]
    while not all(job.done() for job in jobs):
        seen = held()
        assert seen.total() <= limits[TOTAL], seen
        assert seen['gold'] <= limits.get(GOLD, 99), seen
        time.sleep(0.01)
    statuses = sum((job.result() for job in jobs), collections.Counter())
    assert set(statuses) == {201, 403}
    seen = held()
    if gold is not None:
        assert (seen['gold'], seen['silver']) == (gold, silver)
    else:
        assert seen.total() == limits[TOTAL]
    assert len(ironic.rows()) == seen.total()
