# SPDX-License-Identifier: Apache-2.0
"""The openstack command: arguments, output and errors."""

import datetime
import json
import re

import pytest
import yaml

from tests.common import command
from tests.common import service
from tests.common.command import get_data
from tests.common.command import get_error
from tests.common.command import get_output
from tools import services

OURS = service.OURS
CLASS = 'baremetal.cli'
SHARD = 'cli-shard'

NODE = {'resource_class': CLASS, 'shard': SHARD, 'traits': ['CUSTOM_NVME'],
        'properties': {'memory_mb': 4096, 'cpus': 8, 'local_gb': 100,
                       'cpu_arch': 'x86_64',
                       'capabilities': 'gpus:4,boot_mode:uefi,fast:true'}}

NAMES = [f'cli-{number}' for number in range(5)]
# Request IDs in errors.
REQUEST_ID = re.compile(r' \(Request-ID: req-[0-9a-f-]+\)')

UNKNOWN = '99999999-2222-4333-8444-555555555555'
OTHER = '99999999-2222-4333-8444-555555555556'


@pytest.fixture
def app(start, fleet):
    """The application with short pages, and counts that never expire."""
    with start({'api': {'max_limit': 2},
                'reservations': {'capacity_ttl': 3600}}) as app:
        yield app


@pytest.fixture
def cli(app):
    """Runs openstack baremetal reservation, with environment variables."""
    def run(*args, **env):
        # --debug is an option of openstack itself.
        debug = ['--debug'] if '--debug' in args else []
        args = [arg for arg in args if arg != '--debug']
        return command.run(app.url, *debug, 'baremetal', 'reservation',
                           *args, **env)
    return run


@pytest.fixture
def fleet(ironic):
    """Five equal nodes."""
    with ironic.fleet(*({**NODE, 'name': name} for name in NAMES)) as nodes:
        yield nodes


@pytest.fixture
def holds(ironic, fleet):
    """Reservations of all nodes, in the order of NAMES."""
    return [reserve(ironic, candidate_nodes=[name], host=f'host-{number % 2}')
            for number, name in enumerate(NAMES)]


def reserve(ironic, **body):
    return ironic.create(resource_class=CLASS, **body)


def instances(ironic):
    """Return the UUIDs of all instances that hold a node."""
    return {instance for instance, in ironic.execute(
        'SELECT instance_uuid FROM nodes WHERE instance_uuid IS NOT NULL')}


def lock(ironic, conductor):
    ironic.execute('UPDATE nodes SET reservation = :c', c=conductor)


def posts(stderr):
    """Count the POSTs in the client's debug output."""
    return len(re.findall(r'REQ: curl .*-X POST', stderr))


def test_create_prints_a_table(ironic, fleet, cli):
    table = get_output(cli('create', '--resource-class', CLASS))
    instance_uuid, = instances(ironic)
    assert f'| instance_uuid   | {instance_uuid}' in table
    assert f"resource_class='{CLASS}'" in table


# Errors

def test_no_match(ironic, fleet, cli):
    error = get_error(cli('create', '-f', 'json', '--resource-class', CLASS,
                          '--trait', 'CUSTOM_GPU'))
    assert error == '''\
5 nodes considered
+---------------------------+-------+
| Eliminated by             | Nodes |
+---------------------------+-------+
| trait:CUSTOM_GPU=required |     5 |
+---------------------------+-------+
5 could be held without trait:CUSTOM_GPU=required
No node has the trait CUSTOM_GPU. Known: CUSTOM_NVME.
No free node matches the request: of 5 nodes, trait:CUSTOM_GPU=required \
eliminates 5. (HTTP 422)
'''
    assert not instances(ironic)


def test_conflict_is_shown_once(ironic, fleet, cli):
    instance_uuid = reserve(ironic)['instance_uuid']
    create = ('create', '--resource-class', CLASS, '--ram', '1',
              '--instance-uuid', instance_uuid)
    error = get_error(cli(*create))
    assert error.endswith('(HTTP 409)\n')
    assert error.count('\n') == 1
    assert posts(cli(*create, '--debug').stderr) == 1


def test_limited_retries_for_locked_nodes(ironic, fleet, cli):
    lock(ironic, 'conductor')
    result = cli('create', '--resource-class', CLASS, '--debug')
    assert result.returncode == 1
    assert 3 <= posts(result.stderr) <= 7
    assert re.search(r'\| locked +\| +5 \|\n', result.stderr)


def test_wrong_input(ironic, cli):
    create = ['create', '--resource-class', CLASS]
    rows = [
        (['create'], 'Nothing constrains the node: give --flavor, '),
        (['group', 'create', '--members', '2'],
         'Nothing constrains the node: give --flavor, '),
        (['create', '--shard', 'a'], 'Nothing constrains the node: '),
        # The API decides whether these suffice.
        (['create', '--ram', '0'], 'body: must constrain '),
        (['group', 'create', '--members', '2', '--ram', '0'],
         'request: must constrain '),
        (['create', '--match', 'exact'], 'body: must constrain '),
        ([*create, '--trait', 'gpu'],
         'extra_specs.trait:gpu: must name a trait: A-Z, 0-9 and _; did you '
         'mean CUSTOM_GPU?'),
        ([*create, '--trait', 'CUSTOM_A', '--forbidden-trait', 'CUSTOM_A'],
         '--trait CUSTOM_A contradicts --forbidden-trait CUSTOM_A'),
        ([*create, '--capability', 'gpus>=4'],
         'capability "gpus>=4" must be <name> or <name>=<value>'),
        *(([*create, *options, '--property', text],
           f'--property {text} contradicts {" ".join(options)}: ')
          for options, text in (
              (['--capability', 'gpus=4'], 'capabilities:gpus=8'),
              (['--capability', 'gpus=4'], 'capabilities=rack,gpus:8'),
              (['--trait', 'CUSTOM_A'], 'trait:CUSTOM_A=forbidden'),
              (['--trait', 'CUSTOM_A'],
               'reservations:trait:CUSTOM_A=forbidden'),
              (['--forbidden-trait', 'CUSTOM_A'],
               'trait1:CUSTOM_A=required'),
              (['--match', 'exact'], 'reservations:match=at_least'),
              (['--capability', 'cpu_arch=arm'], 'cpu_arch=x86'))),
        *(([*create, option, '1024', '--property', text],
           f'--property {text} contradicts {option}: ')
          for option, text in (('--ram', 'resources:MEMORY_MB=2048'),
                               ('--swap', 'resources1:DISK_GB=0'))),
        ([*create, '--capability', 'a=1', '--capability', 'a=2'],
         '--capability a is given more than once'),
        ([*create, '--instance-uuid', 'x'],
         'instance_uuid: must be a UUID such as '),
        # "capacity" must not become a path of the API.
        (['show', 'capacity'],
         'No reservation of node capacity could be found.'),
        (['show', UNKNOWN], f'No reservation of instance {UNKNOWN} could be '
                            'found. (HTTP 404)'),
        ([*create, '--claim', UNKNOWN], 'No reservation'),
        (['set', 'cli-0', '--no-expiry'], 'No reservation of '),
        (['set', 'cli-0'], 'Nothing to set: give --host, '),
        (['group', 'show', 'x'], '"x" is not a UUID'),
        (['group', 'delete', 'x'], 'x: "x" is not a UUID'),
        (['group', 'show', UNKNOWN], f'No group {UNKNOWN} could be found.'),
        ([*create, '--spread', 'shard'],
         '--spread is the policy of a group: name it with --group'),
        ([*create, '--group', UNKNOWN, '--pack', 'rack'],
         'group.by: must be '),
        ([*create, '--claim', UNKNOWN, '--dry-run'], 'No reservation'),
        (['group', *create, '--members', '0'], 'members: must be at least 1'),
        (['list', '--sort', 'state'], 'sort_key: must be one of '),
        (['list', '--sort', 'host:up'], 'sort_dir: must be one of '),
        (['list', '--sort', 'host:'], 'sort_dir: must be one of '),
        (['list', '--marker', UNKNOWN], 'marker: must be the instance UUID'),
    ]
    errors = map(get_error, run_all(cli, [args for args, _ in rows]))
    wrong = [(args, error) for (args, expected), error in
             zip(rows, errors, strict=True)
             if not error.startswith(expected) or error.count('\n') != 1]
    assert not wrong


def run_all(cli, commands):
    return [cli(*args) for args in commands]


def test_argument_errors_are_short(cli):
    """One case for each type of tests/unit/test_units.py."""
    rows = [
        (['create', '--ram', '64Gib'],
         'argument --ram: "64Gib" is not a valid size: give a number of MiB, '
         'or a size such as 512M or 64GiB'),
        (['create', '--disk', '512M'],
         'argument --disk: "512M" is not a whole number of GiB: '),
        (['create', '--swap', '-1'], 'argument --swap: '),
        (['create', '--vcpus', '1.5'],
         'argument --vcpus: "1.5" is not a whole number'),
        (['set', 'x', '--expires-in', 'tomorrow'],
         'argument --expires-in: "tomorrow" is not a valid time: '),
        *((['create', option, 'a,b'],
           f'argument {option}: "a,b" contains a comma: ') for option in (
               '--candidate-node', '--trait', '--forbidden-trait')),
        (['host', 'list', '--gone'], 'unrecognized arguments: --gone'),
        (['list', '--state', 'gone'], "--state: invalid choice: 'gone'"),
        (['list', '--long', '--fields', 'host'],
         '--fields: not allowed with argument --long'),
        (['list', '--limit', '-1'], '--limit: "-1" is not a whole number'),
        (['cordon', '--by', 'shard=a', '--b', 'shard=b'],
         'argument --by: is given more than once'),
        *(([*verb, option, 'd'], f'argument {option}: requires --{kind}')
          for verb, option, kind in (
              (['list'], '--project-domain', 'project'),
              (['explain', 'x'], '--project-domain', 'project'),
              (['create'], '--user-domain', 'user'))),
        (['pool', 'create', '--members', '1', '--project', ' '],
         'argument --project: must not be blank'),
        (['cordon', 'x', ' '], 'argument <node>: must not be blank'),
        (['create', '--property', 'x'], "Expected 'key=value' type, but got"),
        (['create', '--spread', 'shard', '--pack', 'shard'],
         '--pack: not allowed with argument --spread'),
        (['group', 'create', '--ram', '1'],
         'one of the arguments --members --instance-uuid is required'),
        (['set', 'x', '--no-expiry', '--expires-in', '1'],
         '--expires-in: not allowed with argument --no-expiry'),
        (['delete'], 'arguments are required: <instance-or-node>'),
        *(([*verb, '--property', 'a=b', '--property', 'c=', '--property',
            'a=c'], 'argument --property: a is given more than once')
          for verb in (['create'], ['explain'],
                       ['group', 'create', '--members', '1'])),
    ]
    for (_, expected), result in zip(
            rows, run_all(cli, [args for args, _ in rows]), strict=True):
        assert result.returncode == 2
        error, reference = result.stderr.splitlines()
        program = re.match(
            r'See "(\S+ baremetal reservation [a-z ]+) --help"\.$',
            reference)[1]
        assert error.startswith(f'{program}: error: ')
        assert expected in error


def test_unreachable_server(cli):
    url = f'http://127.0.0.1:{services.free_port()}'
    for error, lines in zip(map(get_error, run_all(
            lambda *args: cli(*args, OS_ENDPOINT=url),
            [['create', '--ram', '1'], ['list'], ['delete', UNKNOWN]])),
            (2, 1, 1), strict=True):
        assert error.count('\n') == lines
        assert error.splitlines()[-1].startswith(
            f'Unable to establish connection to {url}/v1/')
        assert 'Caused by' not in error


def test_units(fleet, cli):
    """Sizes and times with units become numbers."""
    reservation = get_data(cli(
        'create', '-f', 'json', '--resource-class', CLASS, '--ram', '4g',
        '--disk', '1024M', '--swap', '1024', '--expires-in', '1h30m'))
    spec = reservation['request_spec']
    assert [spec[key] for key in ('memory_mb', 'root_gb', 'swap')] == [
        4096, 1, 1024]
    created_at, expires_at = (
        datetime.datetime.fromisoformat(reservation[key])
        for key in ('created_at', 'expires_at'))
    assert abs(expires_at - created_at - datetime.timedelta(minutes=90)
               ) < datetime.timedelta(seconds=5)


@pytest.mark.parametrize(('option', 'value', 'hint'), [
    ('resource-class', 'baremetal.ctl',
     f'resource class baremetal.ctl. Did you mean {CLASS}?'),
    ('property', 'resources:CUSTOM_BAREMETAL_CIL=1',
     'resource class CUSTOM_BAREMETAL_CIL. Did you mean '
     'CUSTOM_BAREMETAL_CLI?'),
    ('trait', 'CUSTOM_NVEM',
     'trait CUSTOM_NVEM. Did you mean CUSTOM_NVME?'),
    ('trait', 'NVME', 'trait NVME. Did you mean CUSTOM_NVME?'),
    ('trait', 'CUSTOM_OTHER', 'trait CUSTOM_OTHER. Known: CUSTOM_NVME.'),
    ('capability', 'gpu=4', 'capability gpu. Did you mean gpus?'),
    ('capability', 'gpu', 'capability gpu. Did you mean gpus?'),
    ('capability', 'gpus=5', 'capability gpus with the value 5. Known: 4.'),
    ('shard', 'cli-shart', 'shard cli-shart. Did you mean cli-shard?'),
    ('conductor-group', 'rack-7', 'conductor group rack-7.'),
])
def test_hints(fleet, cli, option, value, hint):
    args = ['--ram', '1024', f'--{option}', value]
    hint = f'No node has the {hint}\n'
    assert hint in get_error(cli('create', *args))
    assert hint in get_error(cli('group', 'create', '--members', '1', *args))
    assert cli('create', '--dry-run', *args).stderr == hint


def test_hints_for_bad_requests(app, fleet, cli):
    app.capacity()
    for args, hint in (
            (['group', 'create', '--resource-class', CLASS, '--members', '2',
              '--pack', 'gpus'],
             'There is no key gpus. Did you mean capability:gpus?'),
            (['create', '--resource-class', CLASS, '--group', UNKNOWN,
              '--pack', 'boot-mode', '--dry-run'],
             'There is no key boot-mode. Did you mean capability:boot_mode?'),
            (['capacity', '--by', 'gpus'],
             'There is no key gpus. Did you mean capability:gpus?'),
            (['capacity', '--by', 'class', '--by', 'resource-class'],
             'There is no key resource-class. Did you mean '
             'resource_class?'),
            (['capacity', '--trait', 'nvme'],
             'No node has the trait nvme. Did you mean CUSTOM_NVME?')):
        first, error = get_error(cli(*args)).splitlines()
        assert first == hint
        assert error.endswith('(HTTP 400)')


def test_no_hints(fleet, cli):
    for args in (['--ram', '9999999'], ['--forbidden-trait', 'CUSTOM_NVME'],
                 ['--capability', 'gpus=>= 5'],
                 ['--property', 'resources:CUSTOM_OTHER=0', '--ram',
                  '9999999']):
        assert 'No node has' not in get_error(cli(
            'create', '--resource-class', CLASS, *args))
    assert 'No node has' not in get_error(cli(
        'create', '--resource-class', 'BAREMETAL_CLI', '--ram', '9999999'))


IGNORED = ('--property', 'capabilites:rack=r1', '--property', 'hw:a=b',
           '--property', 'foo=bar')


@pytest.mark.parametrize('args', [
    ['create'], ['create', '--dry-run'], ['create', '--ram', '999999'],
    ['group', 'create', '--members', '1'],
    ['group', 'create', '--members', '1', '--dry-run'],
    ['group', 'create', '--members', '9'],
    ['explain']])
def test_ignored_extra_specs(fleet, cli, args):
    error = cli(*args, '--resource-class', CLASS, *IGNORED).stderr
    assert error.splitlines().count(
        'Not compared with nodes: capabilites:rack (did you mean '
        'capabilities:rack?), foo, hw:a') == 1


# create --dry-run

def test_dry_runs_of_a_claim(ironic, fleet, cli):
    hold = reserve(ironic, candidate_nodes=['cli-1'])
    claim = ('--claim', hold['instance_uuid'], '--resource-class', CLASS)
    for result in run_all(cli, [
            ('create', '--dry-run', *claim, '-c', 'profiles', '-f', 'value'),
            ('explain', *claim, '-c', 'profiles', '-f', 'value')]):
        assert get_output(result).startswith('1 claimable of 1: ')
    for verb in 'create', 'explain':
        more = ['--dry-run'] if verb == 'create' else []
        result = cli(verb, *more, *claim, '--trait', 'CUSTOM_NONE',
                     '-f', 'json')
        assert result.returncode == 1
        assert json.loads(result.stdout)['matching_nodes'] == 0


def test_dry_run(ironic, fleet, cli):
    dry_run = ('create', '--dry-run', '--resource-class', CLASS,
               '--candidate-node', 'cli-1', '--trait', 'CUSTOM_NVME')
    table, as_json, nothing = run_all(cli, [
        dry_run, (*dry_run, '-f', 'json'), (*dry_run, '--ram', '4097')])
    assert get_output(table) == f'''\
+----------------+-------------------------------------------------------+
| Field          | Value                                                 |
+----------------+-------------------------------------------------------+
| matching_nodes | 1                                                     |
| profiles       | 1 free of 1: {CLASS}, 4096 MiB, 8 CPUs, 100 GiB |
| explanation    | 5 nodes considered                                    |
|                | +-----------------+-------+                           |
|                | | Eliminated by   | Nodes |                           |
|                | +-----------------+-------+                           |
|                | | candidate_nodes |     4 |                           |
|                | +-----------------+-------+                           |
+----------------+-------------------------------------------------------+
'''
    as_json = get_data(as_json)
    assert as_json['matching_nodes'] == 1
    assert as_json['explanation'] == {
        'considered': 5,
        'eliminated': [{'by': 'candidate_nodes', 'nodes': 4}],
        'nearest': {'by': 'candidate_nodes', 'nodes': 5}}
    profile, = as_json['profiles']
    assert profile['traits'] == ['CUSTOM_NVME']
    assert profile['capabilities'] == {
        'gpus': '4', 'boot_mode': 'uefi', 'fast': 'true'}
    assert nothing.returncode == 1
    assert '| memory_mb>=4097 ' in nothing.stdout
    assert ' 1 could be held without memory_mb>=4097 ' in nothing.stdout
    assert not nothing.stderr
    assert not instances(ironic)


# Groups

RACKED = 'baremetal.racked'
RACKS = [{**NODE, 'name': f'rack-{number}', 'resource_class': RACKED,
          'properties': {
            **NODE['properties'], 'capabilities': f'rack:{rack}'}}
         for number, rack in enumerate('aab')]


@pytest.fixture
def racks(ironic):
    with ironic.fleet(*RACKS) as nodes:
        yield nodes


def test_group_prints_a_table(racks, cli):
    group = ('group', 'create', '--resource-class', RACKED, '--uuid', UNKNOWN,
             '--spread', 'capability:rack', '--members')
    table = get_output(cli(*group, '2'))
    assert re.search(r'\| domains +\| a: 1 +\|\n\| +\| b: 1 ', table)
    assert re.search(r'\| Instance UUID +\| Node +\| Domain \| Host \| State '
                     r' +\| Expires At \|', table)
    assert re.search(r'\| rack-2 \| b +\| +\| reserved \| +\| \|\n', table)
    assert get_output(cli(*group, '2')) == table
    assert get_output(cli('group', 'show', UNKNOWN)) == table
    rows = get_output(cli('group', 'list'))
    assert re.search(rf'\| {UNKNOWN} \| spread \| capability:rack +\| '
                     r'None +\| +2 \| a: 1 +\| None +\| ', rows)


def test_group_does_not_fit(ironic, racks, cli):
    create = ('group', 'create', '--resource-class', RACKED, '--members')
    group = (*create, '3', '--pack', 'capability:rack')
    fewer = get_output(cli(*create, '2', *group[-2:], '--dry-run'))
    assert '| members        | 2 wanted, 2 can be held ' in fewer
    assert 'No node has the capability rak. Did you mean rack?\n' in get_error(
        cli(*create, '3', '--pack', 'capability:rak'))
    error = get_error(cli(*group))
    assert error == '''\
8 nodes considered
+----------------------------------------+-------+
| Eliminated by                          | Nodes |
+----------------------------------------+-------+
| resource_class=CUSTOM_BAREMETAL_RACKED |     5 |
| group:pack=capability:rack             |     3 |
+----------------------------------------+-------+
2 could be held in capability:rack a
2 of 3 members can be held at once: of 8 nodes, \
resource_class=CUSTOM_BAREMETAL_RACKED eliminates 5, \
group:pack=capability:rack eliminates 3. (HTTP 422)
'''
    table, as_text, as_json = run_all(cli, [
        (*group, '--dry-run', *more) for more in (
            [], ['-f', 'value', '-c', 'domains'], ['-f', 'json'])])
    for line in ('| matching_nodes | 3 ',
                 '| members        | 3 wanted, 2 can be held ',
                 '| domains        | a: 2 ', '|                | b: 1 ',
                 '| profiles       | 3 free of 3: baremetal.racked, 4096 ',
                 '| 2 could be held in capability:rack a '):
        assert line in table.stdout
    for result in table, as_text, as_json:
        assert (result.returncode, result.stderr) == (1, '')
    assert as_text.stdout == 'a: 2\nb: 1\n'
    answer = json.loads(as_json.stdout)
    assert answer['members'] == {'wanted': 3, 'available': 2}
    assert answer['domains'] == [{'value': 'a', 'nodes': 2},
                                 {'value': 'b', 'nodes': 1}]
    assert not instances(ironic)


def test_many_domains_are_abbreviated(ironic, cli):
    with ironic.fleet(*({**RACKS[0], 'name': None, 'properties': {
            **NODE['properties'], 'capabilities': f'rack:{number:03}'}}
            for number in range(30))):
        table = get_output(cli('create', '--resource-class', RACKED,
                               '--dry-run'))
        assert '| 30 free of 30: ' in table
        table = get_output(cli('group', 'create', '--resource-class', RACKED,
                               '--soft-spread', 'capability:rack', '--members',
                               '30'))
    assert '| 019: 1 ' in table
    assert '| and 10 more ' in table
    assert '| 020: 1 ' not in table


def test_delete_several_groups(ironic, racks, cli):
    group, _ = run_all(cli, [
        ['group', 'create', '--resource-class', RACKED, '--members', '1',
         '--uuid', uuid, '-f', 'json'] for uuid in (UNKNOWN, OTHER)])
    node, = get_data(group)['reservations']
    ironic.set_node(node['node_uuid'], provision_state='active')
    result = cli('group', 'delete', UNKNOWN, OTHER)
    assert result.returncode == 1
    assert result.stdout == f'Deleted group {OTHER}\n'
    assert result.stderr.startswith(f'{UNKNOWN}: 1 of 1 members ')
    assert instances(ironic) == {node['instance_uuid']}


def test_delete_a_part_of_a_group(ironic, racks, cli):
    group = get_data(cli('group', 'create', '--resource-class', RACKED,
                         '--members', '2', '--uuid', UNKNOWN, '-f', 'json'))
    member, _ = group['reservations']
    ironic.set_node(member['node_uuid'], provision_state='active')
    result = cli('group', 'delete', UNKNOWN)
    assert result.returncode == 1
    assert result.stdout == (
        f'Released 1 of 2 reservations of group {UNKNOWN}\n')
    assert '(HTTP 409)' in result.stderr


# list, show, set

def test_list_reads_all_pages(app, holds, cli):
    assert 'next' in app.http.get(OURS).json()
    rows = get_data(cli('list', '-f', 'json'))
    assert sorted(rows, key=lambda row: row['Node']) == [
        {'Instance UUID': hold['instance_uuid'], 'Node': hold['node_name'],
         'Host': hold['host'], 'State': 'reserved', 'Resource Class': CLASS,
         'Expires At': None}
        for hold in holds]


def test_limit_over_several_pages(holds, cli):
    results = run_all(cli, [['list', '-f', 'value', '-c', 'Node', *args]
                            for args in (
            ['--limit', '1'], ['--limit', '3'], ['--limit', '9'],
            ['--limit', '0'],
            ['--limit', '3', '--marker', holds[0]['instance_uuid'].upper()])])
    assert [get_output(result).split() for result in results] == [
        NAMES[:1], NAMES[:3], NAMES, NAMES, NAMES[1:4]]


def test_sort_over_several_pages(holds, cli):
    by_node, by_both = run_all(cli, [
        ['list', '-f', 'value', '-c', 'Node', '--sort', keys]
        for keys in ('node_uuid:desc', 'host:desc,id,created_at')])
    assert get_output(by_node).split() == [
        hold['node_name'] for hold in sorted(
            holds, key=lambda hold: hold['node_uuid'], reverse=True)]
    assert get_output(by_both).split() == [
        'cli-1', 'cli-3', 'cli-0', 'cli-2', 'cli-4']


def test_list_columns(holds, cli):
    fields, long, table = run_all(cli, [
        ['list', '-f', 'json', '--fields', 'request_spec', 'node_name'],
        ['list', '-f', 'json', '--long', '--sort', 'id'],
        ['list', '--long']])
    assert get_data(fields)[0].keys() == {'Request Spec', 'Node Name'}
    assert {'Request Spec': holds[1]['request_spec'],
            'Node Name': 'cli-1'} in get_data(fields)
    first = get_data(long)[0]
    assert list(first) == [
        'Instance UUID', 'Node UUID', 'Node Name', 'Host', 'State',
        'Provision State', 'Resource Class', 'Health', 'Maintenance',
        'Notices', 'Project ID', 'Description', 'User ID',
        'Request Spec', 'Group', 'Expires At', 'Created At', 'Updated At']
    assert list(first.values()) == [
        holds[0].get(name) for name in (
            'instance_uuid', 'node_uuid', 'node_name', 'host', 'state',
            'provision_state', 'resource_class', 'health', 'maintenance',
            'notices', 'project_id', 'description', 'user_id', 'request_spec',
            'group', 'expires_at', 'created_at', 'updated_at')]
    assert '| Request Spec ' in get_output(table)
    assert "candidate_nodes='[\'cli-0\']'" in get_output(table)


@pytest.mark.parametrize(('args', 'message'), [
    (['list'], 'No reservations found.'),
    (['host', 'list'], 'No compute hosts found.'),
    (['group', 'list'], 'No groups found.')])
def test_nothing_to_list(cli, args, message):
    table, as_json = run_all(cli, [args, [*args, '-f', 'json']])
    assert not table.stdout.strip()
    assert json.loads(as_json.stdout) == []
    for result in table, as_json:
        assert (result.returncode, result.stderr) == (0, message + '\n')


@pytest.mark.parametrize(('args', 'message'), [
    ('list --host hots-1 --state active',
     'No reservations found with host hots-1 (did you mean host-1?), state '
     'active.'),
    ('list --resource-class baremetal.clii',
     f'No reservations found with resource class baremetal.clii (did you '
     f'mean {CLASS}?).'),
    # The class exists, and its other spelling is no error.
    ('list --resource-class CUSTOM_BAREMETAL_CLI --state error',
     'No reservations found with resource class CUSTOM_BAREMETAL_CLI, state '
     'error.'),
    ('list --expires-before 1h',
     'No reservations found with expires before 3600 seconds.'),
    ('capacity --resource-class baremetal.clii --trait CUSTOM_NVEM',
     f'No nodes found with resource class baremetal.clii (did you mean '
     f'{CLASS}?), trait CUSTOM_NVEM (did you mean CUSTOM_NVME?).'),
    ('capacity --shard cli-sard --conductor-group x --map',
     'No nodes found with conductor group x, shard cli-sard (did you mean '
     'cli-shard?).'),
    ('capacity --resource-class gold',
     f'No nodes found with resource class gold (existing: {CLASS}).'),
    ('host list --host hots-3',
     'No compute hosts found with host hots-3 (did you mean host-3?).'),
])
def test_empty_list_prints_its_filters(app, holds, leases, cli, args, message):
    app.capacity()  # Hints may be as old as the counts.
    result = cli(*args.split())
    assert (result.returncode, result.stderr) == (0, message + '\n')


def test_capability_without_nodes(app, fleet, cli):
    app.capacity()
    result = cli('capacity', '--resource-class', CLASS, '--by',
                 'capability:gpu', '--by', 'capability:gpus', '-f', 'value',
                 '-c', 'Total')
    assert (result.returncode, result.stdout) == (0, '5\n')
    assert result.stderr == (
        'No node has the capability gpu. Did you mean gpus?\n')


@pytest.fixture
def leases(ironic):
    """The leases of five hosts, sorted by name; two are expired."""
    for number in range(5):
        assert ironic.http.put(
            f'{OURS}/hosts/host-{number}',
            json={'holder': UNKNOWN, 'ttl': 30}).status_code == 200
    ironic.execute(f'UPDATE reservations_hosts SET expires_at = '
                   f"{ironic.clock()} WHERE host > 'host-2'")
    yield ironic.http.get(f'{OURS}/hosts').json()['hosts']
    ironic.execute('DELETE FROM reservations_hosts')


def test_hosts(leases, cli):
    whole, long, one = run_all(cli, [
        ['host', 'list', '-f', 'json', *args] for args in (
            [], ['--long'], ['--host', 'host-3'])])
    names = ['host', 'live', 'since', 'standbys', 'reservations',
             'expires_at', 'holder', 'created_at', 'updated_at']
    headers = ['Host', 'Live', 'Since', 'Standbys', 'Reservations',
               'Expires At', 'Holder', 'Created At', 'Updated At']
    assert get_data(long) == [
        {header: lease[name] for header, name in zip(
            headers, names, strict=True)} for lease in leases]
    assert get_data(whole) == [{name: lease[name] for name in headers[:6]}
                               for lease in get_data(long)]
    assert [lease['Live'] for lease in get_data(whole)] == [
        True, True, True, False, False]
    assert get_data(one) == [get_data(whole)[3]]


def test_delete_hosts(ironic, leases, cli):
    result = cli('host', 'delete', 'host-3', 'host-0', 'host-4', 'host-9')
    assert result.returncode == 1
    assert result.stdout == 'Deleted host host-3\nDeleted host host-4\n'
    for host, why in ('host-0', 'only expired leases can be deleted'), (
            'host-9', 'There is no lease of host host-9'):
        assert f'{host}: ' in result.stderr and why in result.stderr
    assert [host for host, in ironic.execute(
        'SELECT host FROM reservations_hosts ORDER BY host')] == [
        'host-0', 'host-1', 'host-2']


def test_show_formats(holds, cli):
    reservation = {**holds[0], 'group': None}
    # The table says whether there are more notices.
    del reservation['links'], reservation['more_notices']
    as_json, as_yaml, shell, value, table = run_all(cli, [
        ['show', reservation['instance_uuid'].upper(), '-f', *name]
        for name in (['json'], ['yaml'], ['shell'],
                     ['value', '-c', 'node_name'], ['table'])])
    assert get_data(as_json) == reservation
    assert yaml.safe_load(get_output(as_yaml)) == reservation
    assert 'node_name="cli-0"' in get_output(shell).splitlines()
    assert get_output(value) == 'cli-0\n'
    assert re.search(r'\| state +\| reserved +\|', get_output(table))


def test_set(ironic, holds, cli):
    ironic.set_node(holds[0]['node_uuid'], provision_state='active')
    # Nova would have to look up the hosts.
    assert get_error(cli('set', 'cli-0', '--host', 'host-9')) == (
        'There is no Nova here.\n')
    assert ironic.show(holds[0]['instance_uuid'])['host'] == 'host-0'
    assert not get_output(cli('set', 'cli-0', '--host', 'host-0'))
    assert not get_output(cli('set', 'cli-1', '--host', 'host-9'))
    assert ironic.show(holds[1]['instance_uuid'])['host'] == 'host-9'
    assert not get_output(cli('set', 'cli-0', '--host', 'host-9', '--force'))
    assert ironic.show(holds[0]['instance_uuid'])['host'] == 'host-9'
    assert 'HTTP 409' in get_error(cli('set', 'cli-0', '--no-expiry'))


# delete

def test_delete_several(ironic, holds, cli):
    active, first, second, *others = (
        hold['instance_uuid'] for hold in holds)
    ironic.execute("UPDATE nodes SET provision_state = 'active' "
                   'WHERE instance_uuid = :i', i=active)
    result = cli('delete', UNKNOWN, active, 'cli-9', first, second)
    assert result.returncode == 1
    assert result.stdout == ''.join(
        f'Deleted reservation of instance {hold["instance_uuid"]}, node '
        f'{hold["node_name"]}\n' for hold in holds[1:3])
    unknown, in_use, nowhere = REQUEST_ID.sub(
        '', result.stderr).splitlines()
    assert unknown == (f'{UNKNOWN}: No reservation of instance {UNKNOWN} '
                       'could be found. (HTTP 404)')
    assert in_use.startswith(f'{active}: ')
    assert in_use.endswith('(HTTP 409)')
    assert nowhere.startswith('cli-9: No reservation ')
    assert instances(ironic) == {active, *others}


def test_delete_for_a_host(ironic, holds, cli):
    instance_uuid = holds[0]['instance_uuid']
    assert 'HTTP 404' in get_error(cli('delete', instance_uuid,
                                       '--host', 'host-1'))
    assert instance_uuid in instances(ironic)
    get_output(cli('delete', instance_uuid, '--host', 'host-0'))
    assert instance_uuid not in instances(ironic)


# capacity

def test_capacity(ironic, app, fleet, cli):
    assert app.http.get(f'{OURS}/capacity').status_code == 200
    reserve(ironic, host='host-0')
    args = ('capacity', '--no-cache')
    table, short, long, as_csv = run_all(cli, [
        args,
        (*args, '--host', 'host-0', '-f', 'json'),
        (*args, '--host', 'host-0', '--long', '-f', 'json'),
        (*args, '--long', '-f', 'csv', '-c', 'Traits', '-c', 'Capabilities',
         '-c', 'Shard', '-c', 'Owner')])
    assert re.search(r'\| baremetal\.cli +\| +4096 \| +8 \| +100 \| x86_64 '
                     r' +\| CUSTOM_NVME \| +5 \| +4 \| +1 \| +0 \| +0 \|\n'
                     r'\+', get_output(table))
    short, = get_data(short)
    assert short == {
        'Resource Class': CLASS, 'Memory MB': 4096, 'VCPUs': 8,
        'Local GB': 100, 'CPU Arch': 'x86_64', 'Traits': ['CUSTOM_NVME'],
        'Total': 5, 'Free': 4, 'Reserved': 1, 'Taken': 0,
        'Out Of Service': 0, 'Held': 1}
    answer, = app.http.get(
        f'{OURS}/capacity?host=host-0').json()['capacity']
    long, = get_data(long)
    assert list(long.values()) == [answer[name] for name in (
        'resource_class', 'memory_mb', 'vcpus', 'local_gb', 'cpu_arch',
        'traits', 'capabilities', 'conductor_group', 'shard', 'owner',
        'lessee', 'pool_project_id', 'total', 'free', 'reserved', 'taken',
        'out_of_service', 'held', 'claimable')]
    assert get_output(as_csv).splitlines()[1] == (
        '"CUSTOM_NVME","boot_mode=\'uefi\', fast=\'true\', gpus=\'4\'",'
        '"cli-shard",""')


@pytest.fixture
def split(ironic, fleet):
    """The nodes differ in their rack; one rack has control characters."""
    for name, rack in zip(NAMES, ('r1', 'r1', 'r1', 'r2', '\x1b[2J'),
                          strict=True):
        ironic.execute(
            'UPDATE nodes SET properties = :p WHERE name = :n', n=name,
            p=json.dumps({**NODE['properties'], 'capabilities':
                          f'boot_mode:uefi,rack:{rack}'}))


def test_control_characters(ironic, cli):
    """In a table they are escaped; programs get them as they are."""
    wild = {**NODE, 'name': 'wild', 'owner': 'o\x07', 'properties': {
        'capabilities': 'rack:\x1b[2J,pod:\x9b31m,row:a\nb'}}
    pack = ['--resource-class', CLASS, '--pack', 'capability:rack']
    group = ['group', 'create', '--members', '1', *pack]
    with ironic.fleet(wild):
        tables = [
            cli('capacity', '--no-cache', '--long'),
            cli('capacity', '--by', 'capability:rack'),
            cli(*group, '--dry-run'), cli(*group, '--uuid', UNKNOWN),
            cli('group', 'list'), cli('group', 'show', UNKNOWN)]
        # The API refuses these, but a database may have them.
        description = 'd\x1b[2J\n| state | active |'
        ironic.execute('UPDATE reservations SET host = :h, description = :d',
                       h='h\x1b[2J', d=description)
        tables += [cli('list'), cli('list', '--long'), cli('show', 'wild')]
        errors = [
            cli(*group), cli(*group, '--capability', 'pod'),
            cli('list', '--host', 'x\x1b[2J'),
            cli('capacity', '--by', 'capability:x\x1b[2J')]
        for result in tables + errors:
            assert set('\x1b\x9b\x07').isdisjoint(
                result.stdout + result.stderr), result
            assert '\n| state | active |' not in result.stdout
        for result in tables:
            assert r'\x1b[2J' in result.stdout, result
        assert all(text in tables[0].stdout for text in (
            r'\x9b31m', r'a\nb', r'o\x07'))
        row, = get_data(cli('list', '-f', 'json', '--long'))
        assert (row['Description'], row['Host']) == (description, 'h\x1b[2J')


def test_columns_that_distinguish_rows(split, cli):
    args = ('capacity', '--no-cache')
    table, short = run_all(cli, [
        args, (*args, '-f', 'csv', '--quote', 'none')])
    header, *rows = [[cell.strip() for cell in line.split('|')[1:-1]]
                     for line in get_output(table).splitlines()
                     if line.startswith('|')]
    assert header[5:8] == ['Traits', 'Capabilities', 'Total']
    assert [row[6:8] for row in rows if r'\x1b' not in row[6]] == [
        ["boot_mode='uefi', rack='r1'", '3'],
        ["boot_mode='uefi', rack='r2'", '1'], ['', '5']]
    assert rows[-1] == ['Sum', *[''] * 6, '5', '5', '0', '0', '0']
    # Other formats have the same columns for any fleet.
    assert get_output(short).splitlines()[0].endswith(
        'CPU Arch,Traits,Total,Free,Reserved,Taken,Out Of Service')
    assert len(get_output(short).splitlines()) == 4


def test_sum_of_the_capacity(split, cli):
    """Tables have it as their last row in any order; other formats do not."""
    by = 'capacity', '--no-cache', '--by', 'capability:rack'
    table, counts, one, as_json = run_all(cli, [
        [*by, '--sort-column', 'Total', '-c', 'capability:rack', '-c', 'Free'],
        [*by, '-c', 'Free'],
        ['capacity', '--no-cache', '--by', 'resource_class'],
        [*by, '-f', 'json']])
    lines = re.sub('[^\n0-9a-zA-Z]+', ' ', get_output(table)).split('\n')
    assert lines[-4:-2] == [' r1 3 ', ' Sum 5 ']
    assert ' Sum 5 ' in get_output(counts)
    assert 'Sum' not in get_output(one)
    assert [row['Total'] for row in get_data(as_json)] == [1, 3, 1]


@pytest.mark.parametrize('columns', [40, 100, 200])
def test_map(ironic, split, cli, columns):
    reserve(ironic, candidate_nodes=NAMES[:1])
    ironic.execute("UPDATE nodes SET provision_state = 'active', "
                   'instance_uuid = :i WHERE name = :n', i=UNKNOWN, n=NAMES[1])
    ironic.execute('UPDATE nodes SET maintenance = 1 WHERE name = :n',
                   n=NAMES[2])
    text = get_output(cli('capacity', '--no-cache', '--map', '--by',
                          'capability:rack', COLUMNS=str(columns)))
    legend, lines = text.replace('\n  ', ' ').split('service', 1)
    assert [*map(int, re.findall(r'\d+', legend))] == [2, 1, 1, 1]
    assert '\x1b' not in text and 'rack ?[2J' in text
    assert all(len(line) <= columns for line in text.splitlines())
    first, second = (line for line in lines.splitlines()
                     if re.match('rack r', line))
    assert first.endswith('0 of 3') and second.endswith('1 of 1')
    # The longest bar fills the line, and shows all of its parts.
    bar = re.search('[█▓▒░]+', first)[0]
    assert set(bar) == set('▓▒░')
    assert len(first) == columns
    assert second.count('█') == pytest.approx(len(bar) / 3, abs=1)


def test_map_of_profiles(split, cli):
    drawn = get_output(cli('capacity', '--no-cache', '--map', COLUMNS='120'))
    assert 'baremetal.cli, 4096 MiB, 8 CPUs, 100 GB' in drawn
    assert "rack='r2'" in drawn and 'owner' not in drawn


def test_map_of_nothing(cli):
    result = cli('capacity', '--map', '--resource-class', 'none',
                 COLUMNS='80')
    assert result.stdout.split() == (
        '██ 0 free ▓▓ 0 reserved ▒▒ 0 taken ░░ 0 out of service'.split())
