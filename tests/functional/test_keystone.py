# SPDX-License-Identifier: Apache-2.0
"""A real Keystone with a real Ironic: its tokens, limits and names.

Their effects are tested in process: each call of each caller in
tests/api/test_policy.py, limits in tests/api/test_quota.py and
tests/core/test_quota.py.
"""

import collections
import concurrent.futures
import http.server
import json
import pathlib
import re
import shlex
import socket
import subprocess
import threading
import time

import pytest

from tests.common import command
from tests.common import contract
from tests.common import databases
from tests.common import keystones
from tests.common import personas
from tests.common import service
from tools import services

pytestmark = pytest.mark.long

OURS, ANY = personas.OURS, personas.ANY
TOTAL = keystones.TOTAL
GOLD = f'{TOTAL}:CUSTOM_GOLD'
CLIENTS = 8
SCRIPTS = (pathlib.Path(__file__).parents[2]
           / 'doc/source/examples/nvidia')


@pytest.fixture(scope='module')
def auth(tmp_path_factory):
    with services.keystone(tmp_path_factory.mktemp('keystone'),
                           services.free_port()) as auth:
        yield auth


@pytest.fixture(scope='module')
def ironic(auth, start_ironic, shared_directory, server_url):
    with databases.on_server(shared_directory, server_url) as url, \
            start_ironic(url, config=keystones.config(auth)) as ironic:
        yield ironic


@pytest.fixture(scope='module')
def keystone(auth, ironic):
    keystone = keystones.Keystone(auth, ironic.url)
    keystone.user('ironic-quota', 'reader', 'system')
    ironic.baremetal = keystone.admin().baremetal
    return keystone


@pytest.fixture(scope='module')
def module_cloud(ironic, keystone):
    keystone.register({TOTAL: -1})
    users, callers = {}, {}
    for persona in *personas.NODES, 'domain-admin', 'unscoped':
        # Elevation comes from an option, not from Keystone.
        if persona != 'elevated-service':
            role, on = personas.PERSONAS[persona]
            users[persona] = keystone.user(persona, role, on)
            callers[persona] = caller(ironic, keystone.token(persona, on))
    callers |= {'no-token': caller(ironic),
                'bad-token': caller(ironic, 'nonsense')}
    cloud = personas.Cloud(ironic, keystone.projects, users, callers)
    with ironic.fleet(*cloud.fleet()) as nodes:
        cloud.set_nodes(nodes)
        yield cloud


def caller(ironic, token=None):
    http = service.Http(ironic.url)
    if token:
        http.headers['X-Auth-Token'] = token
    return http


@pytest.fixture
def cloud(module_cloud):
    module_cloud.reset()
    return module_cloud


# Tokens

STATUSES = {persona: status for persona, call, status in personas.rows()
            if call == 'create'}


@pytest.mark.parametrize('persona', [
    'no-token', 'bad-token', 'unscoped', 'domain-admin',
    *(persona for persona in personas.NODES
      if persona != 'elevated-service')])
def test_create(cloud, persona):
    before = cloud.ironic.state()
    response = cloud.request(persona, 'POST', OURS, json=ANY)
    contract.check(response, STATUSES[persona])
    assert (cloud.ironic.state() != before) == (response.status_code == 201)


@pytest.mark.parametrize('persona', [
    persona for persona in personas.NODES if persona != 'elevated-service'])
def test_nodes_are_those_that_ironic_shows(cloud, persona):
    kinds = personas.NODES[persona]
    nodes = cloud.request(persona, 'GET', '/v1/nodes').json()['nodes']
    assert cloud.kinds(node['uuid'] for node in nodes) == kinds
    assert len(nodes) == 2 * len(kinds)
    capacity = cloud.request(persona, 'GET', f'{OURS}/capacity', headers={
        'Cache-Control': 'no-cache'}).json()['capacity']
    assert sum(row['total'] for row in capacity) == 2 * len(kinds)


def test_refusals_equal_those_of_ironic(cloud):
    ironics, ours = (cloud.request('no-token', 'GET', path)
                     for path in ('/v1/allocations', OURS))
    assert ironics.status_code == ours.status_code
    assert (ironics.headers['WWW-Authenticate']
            == ours.headers['WWW-Authenticate'])
    ironics = cloud.request('a-reader', 'POST', '/v1/allocations',
                            json={'resource_class': 'gold'})
    assert ironics.status_code == 403
    ours = cloud.call('a-reader', 403, 'POST', OURS, json=ANY)
    assert ours.replace('reservation', 'allocation') in ironics.text


def test_forged_headers(cloud):
    headers = personas.FORGED
    cloud.call('no-token', 401, 'GET', OURS, headers=headers)
    cloud.call('a-reader', 403, 'POST', OURS, headers=headers, json=ANY)
    response = cloud.request('a-member', 'POST', OURS, headers=headers,
                             json=ANY)
    contract.check(response, 201)
    assert response.json()['project_id'] == cloud.projects['a']
    assert response.json()['user_id'] == cloud.users['a-member']


def test_keystone_cannot_be_reached(ironic, start_uwsgi):
    nowhere = f'http://127.0.0.1:{services.free_port()}/v3'
    with start_uwsgi(ironic, processes=1, changes={'keystone_authtoken': {
            'auth_url': nowhere, 'http_request_max_retries': 0}}) as app:
        contract.check(app.http.get(OURS), 401)
        contract.check(app.http.get(
            OURS, headers={'X-Auth-Token': 'unknown'}), 503)


@pytest.fixture
def policy(cloud):
    """Return a function that writes policy.yaml, which Ironic reloads."""
    path = pathlib.Path(cloud.ironic.conf_file).parent / 'policy.yaml'

    def write(rules):
        # JSON is YAML.
        path.write_text(json.dumps(rules))
    yield write
    write({})


def test_service_role_is_defined_once(cloud, policy):
    """One line grants the role the same in Ironic and in our API."""
    def list_nodes():
        return cloud.request('service', 'GET', '/v1/nodes').json()['nodes']
    assert list_nodes() == []
    cloud.call('service', 403, 'POST', OURS, json=ANY)
    policy({'service_role': 'role:service'})
    assert len(list_nodes()) == 8
    cloud.hold('service', host='h')
    assert len(cloud.get('service', OURS)['reservations']) == 4


def test_rules_of_ironic_do_not_apply_to_reservations(cloud, policy):
    policy({'baremetal:node:list': '!', 'baremetal:node:list_all': '!',
            'baremetal:allocation:create': 'rule:is_admin'})
    response = cloud.request('system-admin', 'GET', '/v1/nodes')
    assert response.status_code == 403
    cloud.hold('a-member')


@pytest.mark.parametrize('path, no_token, a_reader', [
    ('/', 200, 200), ('/v1', 200, 200), ('/v1/nodes', 401, 200),
    ('/v1/nodes/of-b-1', 401, 404), ('/v1/reservationsandmore', 401, 404)])
def test_other_paths_are_ironics(cloud, path, no_token, a_reader):
    assert cloud.request('no-token', 'GET', path).status_code == no_token
    assert cloud.request('a-reader', 'GET', path).status_code == a_reader


# Limits

@pytest.fixture
def limits(keystone, cloud):
    """Return a function that registers limits of all and of some projects."""
    yield keystone.register
    keystone.register({TOTAL: -1})


def get_refusal(cloud, **body):
    """Return the values of the quota in a refusal."""
    response = cloud.request('a-member', 'POST', OURS, json={**ANY, **body})
    contract.check(response, 403)
    return tuple(response.json()['quota'].values())


def test_limits_are_read_for_each_request(cloud, limits):
    """The role that the documentation names suffices."""
    limits({TOTAL: 1})
    assert get_refusal(cloud) == (TOTAL, 1, 1, 1)
    limits({TOTAL: 1}, b={TOTAL: 9})
    assert get_refusal(cloud) == (TOTAL, 1, 1, 1)
    limits({TOTAL: 1, GOLD: 9}, a={TOTAL: 2})
    cloud.hold('a-member')
    assert get_refusal(cloud) == (TOTAL, 2, 2, 1)
    limits({TOTAL: 9, GOLD: 2})
    assert get_refusal(cloud, resource_class='gold') == (GOLD, 2, 2, 1)
    limits({TOTAL: -1})
    cloud.hold('a-member')
    limits({})
    assert get_refusal(cloud) == (TOTAL, 0, 3, 1)


@pytest.fixture
def silent():
    """Yield the URL of a server that accepts requests, but never responds."""
    with socket.create_server(('127.0.0.1', 0)) as server:
        yield f'http://127.0.0.1:{server.getsockname()[1]}/v3'


@pytest.mark.parametrize('wrong', [
    'silent', {'auth_url': 'http://127.0.0.1:1/v3'}, {'password': 'wrong'},
    {'endpoint_region_name': 'elsewhere'},
    # This user may not read the endpoints.
    {'username': 'b-member', 'system_scope': '', 'project_name': 'b',
     'project_domain_id': 'default'}])
def test_limits_cannot_be_read(request, cloud, start_uwsgi, wrong):
    if wrong == 'silent':
        wrong = {'auth_url': request.getfixturevalue('silent'), 'timeout': 1}
    with start_uwsgi(cloud.ironic, processes=1,
                     changes={'oslo_limit': wrong}) as app:
        for _ in range(2):
            response = app.http.post(
                OURS, json=ANY, headers=cloud.callers['a-member'].headers)
            contract.check(response, 503)
            assert response.headers['Retry-After']
        result = upgrade_check(app)
        assert result.returncode == 2
        assert 'Check: Quota' in result.stdout


def upgrade_check(ironic):
    return subprocess.run(
        [services.program('ironic-reservations-status'), '--config-file',
         ironic.conf_file, 'upgrade', 'check'],
        capture_output=True, text=True, timeout=60)


def test_upgrade_check(cloud):
    assert re.search(r'Check: Quota *\|\n\| Result: Success',
                     upgrade_check(cloud.ironic).stdout)


@pytest.fixture
def start_clients(cloud, start_uwsgi):
    """Return a function that calls another function in CLIENTS threads.

    The application runs in several processes. Project A has free nodes in two
    classes.
    """
    # No project has a row at first.
    cloud.ironic.execute('DELETE FROM reservations_projects')
    cloud.ironic.free_nodes('gold')
    barrier = threading.Barrier(CLIENTS, timeout=120)
    token = cloud.callers['a-member'].headers['X-Auth-Token']
    with cloud.ironic.fleet(*(
            {'owner': cloud.projects['a'], 'resource_class': name,
             'properties': {'memory_mb': 2048}}
            for name in ['gold'] * 4 + ['silver'] * 6)), \
            start_uwsgi(cloud.ironic) as alone, \
            concurrent.futures.ThreadPoolExecutor(CLIENTS) as executor:
        yield lambda call, *args: [
            executor.submit(call, caller(alone, token), barrier, *args)
            for _ in range(CLIENTS)]


def post_until_refused(http, barrier, bodies):
    """POST each body until the quota is reached; count the statuses."""
    barrier.wait()
    statuses = collections.Counter()
    for path, body in bodies:
        while True:
            response = http.post(path, json=body)
            statuses[response.status_code] += 1
            if response.status_code != 201:
                assert response.json().get('quota'), response.text
                break
    return statuses


ONE = (OURS, ANY)
TWO = (f'{OURS}/groups', {'members': 2, 'request': ANY})


def test_race_ends_at_the_limit(ironic, limits, start_clients):
    """Requests for one and for two nodes compete, with a limit for a class."""
    limits({TOTAL: 7, GOLD: 3})

    def count_nodes():
        return collections.Counter(resource_class for resource_class, in (
            ironic.execute('SELECT resource_class FROM nodes '
                           'WHERE instance_uuid IS NOT NULL')))
    jobs = start_clients(post_until_refused, [TWO, ONE])
    while not all(job.done() for job in jobs):
        seen = count_nodes()
        assert seen.total() <= 7 and seen['gold'] <= 3, seen
        time.sleep(0.01)
    statuses = sum((job.result() for job in jobs), collections.Counter())
    assert set(statuses) == {201, 403}
    seen = count_nodes()
    assert (seen['gold'], seen['silver']) == (3, 4)
    assert len(ironic.rows()) == 7


# The command

@pytest.fixture
def openstack(auth, cloud):
    """Return a function that runs the command with a password."""
    def run(*args, username, **env):
        login = {f'OS_{name.upper()}': value
                 for name, value in {**auth, 'username': username}.items()}
        return command.run(
            cloud.ironic.url, 'baremetal', 'reservation', *args, **login,
            **env, OS_AUTH_TYPE='password', OS_ENDPOINT='')
    return run


def test_openstack_command_with_a_password(cloud, openstack):
    result = openstack('list', '-f', 'json', username='a-reader',
                       OS_PROJECT_ID=cloud.projects['a'])
    assert [row['Instance UUID'] for row in json.loads(result.stdout)] == [
        cloud.names['a']]


@pytest.mark.parametrize('user, project, error', [
    # The scope is the project, although the user has a role on the system.
    ('admin', 'admin', 'Nova or Placement cannot be read: '),
    ('a-admin', 'a', 'Ironic does not show all reservations to this user'),
])
def test_audit_needs_all_of_ironic(openstack, user, project, error):
    result = openstack('audit', username=user, OS_PROJECT_NAME=project,
                       OS_PROJECT_DOMAIN_ID='default')
    assert (result.returncode, result.stdout) == (1, '')
    assert result.stderr.startswith(error)


@pytest.mark.parametrize(('args', 'user', 'status', 'message'), [
    # Invisible names are not reported as missing.
    ('list --state active', 'a-reader', 0,
     'No reservations found with state active. Project a can see only its '
     'own reservations and those on its nodes.'),
    ('capacity --shard x', 'a-reader', 0,
     'No nodes found with shard x. Project a can see only nodes that it '
     'owns, leases or has in a pool.'),
    ('list --state active', 'a-admin', 0,
     'Only reservations visible to project a are shown; use --all-projects '
     'to show all.\nNo reservations found with state active.'),
    ('list --host x', 'system-reader', 0,
     'No reservations found with host x.'),
    # The name may be that of a node that is not visible.
    ('history of-a-9', 'a-reader', 1,
     'No node of-a-9 was found. Project a can see only what ended on nodes '
     'while it owned them.'),
    ('show of-a-9', 'a-reader', 1, 'No node of-a-9 was found.'),
    ('notice list --ticket x', 'a-reader', 0,
     'No notices found with ticket x. Project a can see only notices of nodes '
     'that it owns, has reserved or has in a pool.'),
    ('uncordon of-a-1', 'a-admin', 1,
     'of-a-1: No open cordon is visible to project a; use --all-projects to '
     'see all.'),
    ('cordon --by shard=none', 'a-admin', 1,
     'No node has the shard none.\nProject a can use only its own nodes and '
     'reservations; use --all-projects for all.\nby: must name a shard with '
     'nodes for which you may create notices; got "none" (HTTP 400)'),
    ('host list', 'a-admin', 1,
     'The request was limited to project a; use --all-projects for system '
     'scope.\nAccess was denied to the following resource: '
     'baremetal:reservation:hosts (HTTP 403)'),
    ('host list', 'a-reader', 1,
     'Access was denied to the following resource: '
     'baremetal:reservation:hosts (HTTP 403)'),
])
def test_hints_about_the_scope(cloud, openstack, args, user, status, message):
    where = ({'OS_SYSTEM_SCOPE': 'all'} if user.startswith('system') else
             {'OS_PROJECT_ID': cloud.projects['a']})
    result = openstack(*args.split(), username=user, **where)
    assert (result.returncode, result.stdout.strip()) == (status, '')
    assert re.sub(
        r' \(Request-ID: [^)]*\)', '', result.stderr) == message + '\n'


POOL = 'cccccccc-2222-4333-8444-555555555555'


@pytest.fixture
def pool(cloud):
    contract.check(cloud.callers['system-admin'].post(f'{OURS}/pools', json={
        'uuid': POOL, 'project_id': cloud.projects['b'], 'members': 1,
        'request': {**ANY, 'candidate_nodes': ['of-b-2']}}), 201)
    yield
    for table in 'pool_nodes', 'pools':
        cloud.ironic.execute(f'DELETE FROM reservations_{table}')


def test_scripts_for_a_machine_without_a_server(auth, cloud, pool):
    """It is in a pool; the scripts are those for NVIDIA's suite."""
    def run(script, *args):
        result = command.run_script(SCRIPTS / f'{script}.py', {
            'OS_SYSTEM_SCOPE': 'all',
            **{f'OS_{name.upper()}': value for name, value in auth.items()}},
            *args)
        return json.loads(result.stdout)

    projects = {row['node_id']: row['project_id'] for row in run(
        'query_fleet_inventory')['nodes']}
    ids = {node.name: node.id for node in cloud.ironic.baremetal.nodes()}
    assert projects[ids['of-b-2']] == cloud.projects['b']
    assert projects[ids['free-2']] == ''
    for script in 'request_host_replacement', 'cordon_node':
        assert run(script, '--machine-id', 'of-b-2')['error'] == (
            'Machine of-b-2 is not reserved, or its reservation is not '
            'visible to this login')


@pytest.mark.parametrize('args', [
    'set of-b-1 --description x', f'group show {personas.GROUP_B}',
    f'group set {personas.GROUP_B} --description x', f'pool show {POOL}',
    f'pool set {POOL} --description x', f'pool add {POOL} free-2',
    'pool create --resource-class gold --members 1 --project a',
    'create --candidate-node free-2 --project b --dry-run',
    'group create --candidate-node free-2 --members 1 --project b --dry-run',
    'host delete h'])
def test_all_projects_with_the_login_of_a_project(cloud, openstack, pool,
                                                  args):
    refusal, result = (
        openstack(*args.split(), *option, username='admin',
                  OS_PROJECT_NAME='admin', OS_PROJECT_DOMAIN_ID='default')
        for option in ([], ['--all-projects']))
    assert refusal.returncode == 1
    assert refusal.stderr.count('use --all-projects ') == 1
    assert 'No node' not in refusal.stderr
    if args.startswith('host'):
        assert 'only expired leases can be deleted' in result.stderr
    else:
        assert (result.returncode, result.stderr) == (0, '')


@pytest.mark.parametrize('command', ['add', 'remove'])
def test_pool_that_is_invisible(openstack, pool, command):
    """There is one hint, and the nodes are not called unknown."""
    result = openstack('pool', command, POOL, 'free-1', 'free-2',
                       username='admin', OS_PROJECT_NAME='admin',
                       OS_PROJECT_DOMAIN_ID='default')
    hint, *errors = result.stderr.splitlines()
    assert 'project admin; use --all-projects ' in hint
    assert [error.partition(' could ')[0] for error in errors] == [
        f'free-1: No pool {POOL}', f'free-2: No pool {POOL}']


def test_message_about_the_group_of_another_project(openstack, cloud):
    result = openstack('show', personas.GROUP_B, '--all-projects',
                       username='admin', OS_PROJECT_NAME='admin',
                       OS_PROJECT_DOMAIN_ID='default')
    assert (result.returncode, result.stdout) == (1, '')
    assert f'{personas.GROUP_B} --all-projects"' in result.stderr


@pytest.fixture(scope='module')
def names(keystone):
    """Create equal names of projects and users in two domains; return IDs."""
    ids = {}
    for name in 'east', 'west':
        domain = ids[name] = keystone.identity.create_domain(name=name).id
        ids[f'demo-{name}'] = keystone.identity.create_project(
            name='demo', domain_id=domain).id
        ids[f'ann-{name}'] = keystone.identity.create_user(
            name='ann', domain_id=domain, password='secret').id
    return ids


@pytest.mark.parametrize('args, field, key', [
    ('create --project demo --project-domain west', 'project_id',
     'demo-west'),
    ('group create --members 1 --project %(demo-west)s', 'project_id',
     'demo-west'),
    ('create --user ann --user-domain %(east)s', 'user_id', 'ann-east')])
def test_names_are_looked_up(cloud, openstack, names, args, field, key):
    result = openstack(*shlex.split(args % names), '--ram', '1', '-f', 'json',
                       username='admin', OS_SYSTEM_SCOPE='all')
    assert (result.returncode, result.stderr) == (0, '')
    output = json.loads(result.stdout)
    for reservation in output.get('reservations', [output]):
        assert reservation[field] == names[key]


def test_list_of_a_project_by_name(cloud, openstack, names):
    hold = cloud.hold('system-admin', project_id=names['demo-west'])
    for project in ('demo', '--project-domain', 'west'), (
            names['demo-west'],):
        result = openstack('list', '-f', 'json', '--project', *project,
                           username='admin', OS_SYSTEM_SCOPE='all')
        assert [row['Instance UUID'] for row in json.loads(
            result.stdout)] == [hold['instance_uuid']]


@pytest.mark.parametrize(('args', 'error'), [
    ('list --project demo', 'Cannot look up project "demo": More than one '),
    ('list --project serviec', 'Cannot look up project "serviec": No Project '
                               'found for serviec (did you mean service?)\n'),
    ('list --project demo --project-domain none',
     'Cannot look up domain "none": No '),
    ('create --ram 1 --user none', 'Cannot look up user "none": No '),
    (f'create --ram 1 --project {"f" * 32}',
     f'Cannot look up project "{"f" * 32}": No '),
    # The paths of these exist in Keystone.
    *((f'{args} {name}', f'Cannot look up {args.split("--")[-1]} "{name}": ')
      for args, name in (
          ('create --ram 1 --user', '.'),
          ('create --ram 1 --project', '?x'),
          ('pool create --ram 1 --members 1 --project', '..')))])
def test_failed_lookups(openstack, names, args, error):
    result = openstack(*args.split(), username='admin', OS_SYSTEM_SCOPE='all')
    assert (result.returncode, result.stdout) == (1, '')
    assert result.stderr.startswith(error)
    assert result.stderr.count('\n') == 1


class Nova(http.server.BaseHTTPRequestHandler):
    """Answers as Nova does in system scope, to requests for extra specs."""

    def do_GET(self):
        is_root = self.path == '/'
        body = json.dumps({'version': {
            'id': 'v2.1', 'status': 'CURRENT', 'version': '2.96',
            'min_version': '2.1', 'links': [{
                'rel': 'self', 'href': f'http://{self.headers["Host"]}/'}],
        }} if is_root else {
                'forbidden': {'code': 403, 'message': 'Policy'}}).encode()
        self.send_response(200 if is_root else 403)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def test_flavor_in_system_scope(openstack):
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Nova) as nova:
        threading.Thread(target=nova.serve_forever).start()
        for scope, error in (
                ({'OS_SYSTEM_SCOPE': 'all'},
                 'in system scope. Log in to a project.\n'),
                ({'OS_PROJECT_NAME': 'admin',
                  'OS_PROJECT_DOMAIN_ID': 'default'}, 'to this user.\n')):
            result = openstack(
                'create', '--flavor', 'bm', username='admin', **scope,
                OS_COMPUTE_ENDPOINT_OVERRIDE=(
                    f'http://127.0.0.1:{nova.server_port}/'))
            assert result.stderr == (
                'Cannot look up flavor "bm": the compute service does not '
                f'allow it {error}')
        nova.shutdown()


def test_project_id_without_permission_to_look_up(cloud, openstack):
    result = openstack(
        'list', '--project', cloud.projects['a'], '-f', 'value', '-c', 'Node',
        username='a-reader', OS_PROJECT_ID=cloud.projects['a'])
    assert (result.stderr, result.stdout) == ('', 'of-a-1\n')


@pytest.mark.parametrize(('args', 'node'), [
    ('', 'of-a-1'), ('--project-domain Default', 'of-a-1'),
    ('--project-domain default', 'of-a-1'), ('--project-domain east', None)])
def test_name_of_the_own_project(cloud, openstack, args, node):
    """Keystone does not let the user look it up."""
    result = openstack('list', '--project', 'a', *args.split(), '-f', 'value',
                       '-c', 'Node', username='a-reader',
                       OS_PROJECT_ID=cloud.projects['a'])
    if node:
        assert (result.stderr, result.stdout) == ('', f'{node}\n')
    else:
        assert '(HTTP 403)' in result.stderr


def test_usage_names_projects(cloud, openstack):
    def read_names(username, **env):
        result = openstack('list', '--usage', '-f', 'json', username=username,
                           **env)
        return {row['Project ID']: row['Project Name']
                for row in json.loads(result.stdout)}

    a, b = cloud.projects['a'], cloud.projects['b']
    assert read_names('system-reader', OS_SYSTEM_SCOPE='all') == {
        a: 'a', b: 'b', None: None}
    # Keystone does not list projects to this user.
    assert read_names('a-reader', OS_PROJECT_ID=a) == {a: 'a'}


@pytest.fixture
def homonym(keystone):
    """A project in another domain that has the name of project b."""
    domain = keystone.identity.create_domain(name='homonyms')
    keystone.identity.create_project(name='b', domain_id=domain.id)
    yield
    # Deletes the project, too.
    keystone.identity.update_domain(domain, is_enabled=False)
    keystone.identity.delete_domain(domain)


@pytest.fixture
def owners(cloud):
    """A pool and an ended reservation of each project."""
    pools = []
    for name in 'a', 'b':
        cloud.call('system-admin', 201, 'POST', OURS, json={
            **ANY, 'candidate_nodes': [f'of-{name}-2'],
            'project_id': cloud.projects[name]})
        hold, = cloud.get('system-admin', OURS,
                          node=f'of-{name}-2')['reservations']
        cloud.call('system-admin', 204, 'DELETE',
                   f'{OURS}/{hold["instance_uuid"]}')
        pools.append(cloud.request('system-admin', 'POST', f'{OURS}/pools',
                                   json={
            'project_id': cloud.projects[name], 'members': 1,
            'request': {'candidate_nodes': [f'of-{name}-2']}}).json()['uuid'])
    yield
    for uuid in pools:
        cloud.call('system-admin', 204, 'DELETE', f'{OURS}/pools/{uuid}')


LISTS_OF_PROJECTS = (
    'list --long', 'history', 'pool list', 'group list',
    'capacity list --no-cache --by project_id')


@pytest.mark.parametrize('args', LISTS_OF_PROJECTS)
def test_tables_name_projects(cloud, openstack, owners, args):
    a, b = cloud.projects['a'], cloud.projects['b']

    def read(username, *options, column='Project ID'):
        return set(openstack(
            *args.split(), *options, '-c', column, username=username,
            OS_SYSTEM_SCOPE='all').stdout.replace('|', '').split()) - {
                '+---------+', f'+{"-" * 34}+', 'None', 'Sum'}

    assert read('system-reader') == {'Project', 'a', 'b'}
    # Keystone does not list projects to this user.
    assert read('system-service') == {'Project', a, b}
    assert {a, b} <= read('system-reader', '-f', 'value')
    assert {a, b} <= read('system-reader', '-f', 'value', column='Project')


def test_ambiguous_name_is_an_id(cloud, openstack, owners, homonym):
    result = openstack('pool', 'list', '-c', 'Project ID', username='admin',
                       OS_SYSTEM_SCOPE='all')
    assert {'a', cloud.projects['b']} <= {*result.stdout.split()}
