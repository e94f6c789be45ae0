# SPDX-License-Identifier: Apache-2.0
"""The openstack command: what is asked for, and what is told."""

import csv
import io
import json
import re

import pytest
import yaml

from ironic_reservations.osc import client
from tests.common import command
from tests.common import service
from tools import services

OURS = service.OURS
CLASS = 'baremetal.cli'
SHARD = 'cli-shard'

NODE = {'resource_class': CLASS, 'shard': SHARD, 'traits': ['CUSTOM_NVME'],
        'properties': {'memory_mb': 4096, 'cpus': 8, 'local_gb': 100,
                       'cpu_arch': 'x86_64',
                       'capabilities': 'gpus:4,boot_mode:uefi,fast:true'}}

NAMES = [f'cli-{number}' for number in range(5)]
UNKNOWN = '99999999-2222-4333-8444-555555555555'
OTHER = '99999999-2222-4333-8444-555555555556'
# The request ids in errors.
REQUEST_ID = re.compile(r' \(Request-ID: req-[0-9a-f-]+\)')


@pytest.fixture
def served(configured, fleet):
    """Pages are short, and counts old unless new ones are asked for."""
    with configured({'api': {'max_limit': 2},
                     'reservations': {'capacity_ttl': 3600}}) as served:
        yield served


@pytest.fixture
def cli(served):
    """Runs openstack baremetal reservation, with more of environment."""
    def run(*args, **env):
        # Debugging is an option of openstack itself.
        debug = ['--debug'] if '--debug' in args else []
        args = [arg for arg in args if arg != '--debug']
        return command.run(served.url, *debug, 'baremetal', 'reservation',
                           *args, **env)
    return run


@pytest.fixture
def fleet(ironic):
    """Five equal nodes."""
    with ironic.fleet(*({**NODE, 'name': name} for name in NAMES)) as nodes:
        yield nodes


@pytest.fixture
def held(ironic, fleet):
    """Reservations of all nodes, in the order of NAMES."""
    return [hold(ironic, candidate_nodes=[name], host=f'host-{number % 2}')
            for number, name in enumerate(NAMES)]


def hold(ironic, **body):
    return ironic.create(resource_class=CLASS, **body)


def instances(ironic):
    """UUIDs of all instances that hold a node."""
    return {instance for instance, in ironic.execute(
        'SELECT instance_uuid FROM nodes WHERE instance_uuid IS NOT NULL')}


def lock(ironic, conductor):
    ironic.execute('UPDATE nodes SET reservation = :c', c=conductor)


def output(result):
    """What a command that succeeded has printed, and nothing beside it."""
    assert result.returncode == 0, result.stderr
    assert not result.stderr
    return result.stdout


def data(result):
    return json.loads(output(result))


def refused(result):
    """What a command that failed has said."""
    assert result.returncode == 1, result.stdout + result.stderr
    assert not result.stdout
    assert 'Traceback' not in result.stderr
    return REQUEST_ID.sub('', result.stderr)


def posts(stderr):
    """How many POSTs have gone out, by the client's own debug output."""
    return len(re.findall(r'REQ: curl .*-X POST', stderr))


def test_create_as_people_see_it(ironic, fleet, cli):
    table = output(cli('create', '--resource-class', CLASS))
    instance_uuid, = instances(ironic)
    assert f'| instance_uuid   | {instance_uuid}' in table
    assert f"resource_class='{CLASS}'" in table


def test_exact(fleet, cli):
    create = ('create', '--match', 'exact', '--resource-class', CLASS,
              '--ram')
    assert 'memory_mb=4095' in refused(cli(*create, '4095'))
    output(cli(*create, '4096'))


# Why not


def test_nothing_matches(ironic, fleet, cli):
    told = refused(cli('create', '-f', 'json', '--resource-class', CLASS,
                       '--trait', 'CUSTOM_GPU'))
    assert told == '''\
5 nodes considered
+---------------------------+-------+
| Eliminated by             | Nodes |
+---------------------------+-------+
| trait:CUSTOM_GPU=required |     5 |
+---------------------------+-------+
5 could be held without trait:CUSTOM_GPU=required
No free node matches the request: of 5 nodes, trait:CUSTOM_GPU=required \
eliminates 5. (HTTP 422)
'''
    assert not instances(ironic)


def test_conflict_is_shown_once(ironic, fleet, cli):
    instance_uuid = hold(ironic)['instance_uuid']
    create = ('create', '--resource-class', CLASS, '--ram', '1',
              '--instance-uuid', instance_uuid)
    told = refused(cli(*create))
    assert told.endswith('(HTTP 409)\n')
    assert told.count('\n') == 1
    assert posts(cli(*create, '--debug').stderr) == 1


def test_locked_nodes_are_not_waited_for_long(ironic, fleet, cli):
    lock(ironic, 'conductor')
    result = cli('create', '--resource-class', CLASS, '--debug')
    assert result.returncode == 1
    assert 3 <= posts(result.stderr) <= 7
    assert re.search(r'\| locked +\| +5 \|\n', result.stderr)


def test_wrong_input(ironic, cli):
    wanted = ['create', '--resource-class', CLASS]
    rows = [
        (['create'], 'body: must say what is wanted with one of '),
        ([*wanted, '--vcpus', '2147483648'],
         'vcpus: must be at most 2147483647 '),
        ([*wanted, '--trait', 'gpu'], 'extra_specs.trait:gpu: must name a '),
        ([*wanted, '--trait', 'CUSTOM_A', '--forbidden-trait', 'CUSTOM_A'],
         'trait CUSTOM_A cannot be required and forbidden'),
        ([*wanted, '--capability', 'gpus>=4'],
         'capability "gpus>=4" must be <name> or <name>=<value>'),
        ([*wanted, '--capability', ''], 'capability "" must be <name> or '),
        ([*wanted, '--capability', 'a=1', '--capability', 'a=2'],
         'a capability can be asked for only once'),
        ([*wanted, '--instance-uuid', 'x'],
         'instance_uuid: must be a UUID such as '),
        # Not another path of the API.
        (['show', 'capacity'],
         'No reservation of node capacity could be found.'),
        (['show', ''], 'node: must be at least 1 '),
        (['show', UNKNOWN], f'No reservation of instance {UNKNOWN} could be '
                            'found. (HTTP 404)'),
        ([*wanted, '--claim', UNKNOWN], 'No reservation'),
        (['set', 'cli-0', '--no-expiry'], 'No reservation of '),
        (['set', 'cli-0'], 'Nothing to set: give --host, '),
        (['group', 'show', 'x'], '"x" is not a UUID'),
        (['group', 'delete', 'x'], 'x: "x" is not a UUID'),
        (['group', 'show', UNKNOWN], f'No group {UNKNOWN} could be found.'),
        ([*wanted, '--spread', 'shard'],
         '--spread is the policy of a group: name it with --group'),
        ([*wanted, '--group', UNKNOWN, '--pack', 'rack'],
         'group.by: must be '),
        ([*wanted, '--claim', UNKNOWN, '--dry-run'], 'claim: cannot be '),
        (['group', *wanted, '--members', '0'], 'members: must be at least 1'),
        (['list', '--sort', 'state'], 'sort_key: must be one of '),
        (['list', '--sort', 'host:up'], 'sort_dir: must be one of '),
        (['list', '--sort', 'host:'], 'sort_dir: must be one of '),
        (['list', '--sort', ''], 'sort_key: must be one of '),
        (['list', '--marker', UNKNOWN], 'marker: must be the instance UUID'),
        (['capacity', '--shard', ''], 'shard: must be at least 1 '),
    ]
    wrong = [(args, told) for (args, expected), told in
             zip(rows, map(refused, each(cli, [args for args, _ in rows])),
                 strict=True)
             if not told.startswith(expected) or told.count('\n') != 1]
    assert not wrong


def each(cli, commands):
    return [cli(*args) for args in commands]


def test_words_and_numbers_are_checked_at_once(cli):
    rows = [
        (['create', '--ram', '1GB'], "--ram: invalid int value: '1GB'"),
        (['list', '--state', 'gone'], "--state: invalid choice: 'gone'"),
        (['list', '--long', '--fields', 'host'],
         '--fields: not allowed with argument --long'),
        (['list', '--limit', '-1'], '--limit expected a non-negative integer'),
        (['create', '--property', 'x'], "Expected 'key=value' type, but got"),
        (['create', '--spread', 'shard', '--pack', 'shard'],
         '--pack: not allowed with argument --spread'),
        (['group', 'create', '--ram', '1'],
         'one of the arguments --members --instance-uuid is required'),
        (['set', 'x', '--no-expiry', '--expires-in', '1'],
         '--expires-in: not allowed with argument --no-expiry'),
        (['delete'], 'arguments are required: <instance-or-node>'),
    ]
    for (_, expected), result in zip(
            rows, each(cli, [args for args, _ in rows]), strict=True):
        assert result.returncode == 2
        assert expected in result.stderr.splitlines()[-1]


def test_unreachable_server(cli):
    url = f'http://127.0.0.1:{services.free_port()}'
    for told, lines in zip(map(refused, each(
            lambda *args: cli(*args, OS_ENDPOINT=url),
            [['create', '--ram', '1'], ['list'], ['delete', UNKNOWN]])),
            (2, 1, 1), strict=True):
        assert told.count('\n') == lines
        assert told.splitlines()[-1].startswith(
            f'Unable to establish connection to {url}')


# create --dry-run


def test_dry_run(ironic, fleet, cli):
    dry_run = ('create', '--dry-run', '--resource-class', CLASS,
               '--candidate-node', 'cli-1', '--trait', 'CUSTOM_NVME')
    table, found, nothing = each(cli, [
        dry_run, (*dry_run, '-f', 'json'), (*dry_run, '--ram', '4097')])
    assert output(table) == f'''\
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
|                | 5 could be held without candidate_nodes               |
+----------------+-------------------------------------------------------+
'''
    found = data(found)
    assert found['matching_nodes'] == 1
    assert found['explanation'] == {
        'considered': 5,
        'eliminated': [{'by': 'candidate_nodes', 'nodes': 4}],
        'nearest': {'by': 'candidate_nodes', 'nodes': 5}}
    profile, = found['profiles']
    assert profile['traits'] == ['CUSTOM_NVME']
    assert profile['capabilities'] == {
        'gpus': '4', 'boot_mode': 'uefi', 'fast': 'true'}
    # That nothing matches is what was asked, and no error.
    assert '| memory_mb>=4097 ' in output(nothing)
    assert not instances(ironic)


# Groups


RACKED = 'baremetal.racked'
RACKS = [{**NODE, 'name': f'rack-{number}', 'resource_class': RACKED,
          'properties': {
            **NODE['properties'], 'capabilities': f'rack:{rack}'}}
         for number, rack in enumerate('aab')]


@pytest.fixture
def racks(ironic, fleet):
    """The nodes differ in their rack, one of which is spelled evilly."""
    for name, rack in zip(NAMES, ('r1', 'r1', 'r1', 'r2', '\x1b[2J'),
                          strict=True):
        ironic.execute(
            'UPDATE nodes SET properties = :p WHERE name = :n', n=name,
            p=json.dumps({**NODE['properties'], 'capabilities':
                          f'boot_mode:uefi,rack:{rack}'}))


def test_rows_that_look_the_same_are_told_apart(racks, cli):
    args = ('capacity', '--no-cache')
    table, short = each(cli, [args, (*args, '-f', 'csv', '--quote', 'none')])
    header, *rows = [[cell.strip() for cell in line.split('|')[1:-1]]
                     for line in output(table).splitlines()
                     if line.startswith('|')]
    assert header[5:8] == ['Traits', 'Capabilities', 'Total']
    assert [row[6:8] for row in rows if '\x1b' not in row[6]] == [
        ["boot_mode='uefi', rack='r1'", '3'],
        ["boot_mode='uefi', rack='r2'", '1']]
    # A program gets the same columns whatever the fleet is.
    assert output(short).splitlines()[0].endswith(
        'CPU Arch,Traits,Total,Free,Held,Claimable')


@pytest.mark.parametrize('columns', [40, 100, 200])
def test_map(ironic, racks, cli, columns):
    hold(ironic, candidate_nodes=NAMES[:1])
    ironic.execute("UPDATE nodes SET provision_state = 'active', "
                   'instance_uuid = :i WHERE name = :n', i=UNKNOWN, n=NAMES[1])
    ironic.execute('UPDATE nodes SET maintenance = 1 WHERE name = :n',
                   n=NAMES[2])
    drawn = output(cli('capacity', '--no-cache', '--map', '--by',
                       'capability:rack', COLUMNS=str(columns)))
    legend, lines = drawn.replace('\n  ', ' ').split('service', 1)
    assert [int(each) for each in re.findall(r'\d+', legend)] == [2, 1, 1, 1]
    assert '\x1b' not in drawn and 'rack ?[2J' in drawn
    assert all(len(line) <= columns for line in drawn.splitlines())
    first, second = (line for line in lines.splitlines()
                     if re.match('rack r', line))
    assert first.endswith('0 of 3') and second.endswith('1 of 1')
    # The longest bar is what room there is, and shows each of its parts.
    bar = re.search('[█▓▒░]+', first)[0]
    assert set(bar) == set('▓▒░')
    assert len(first) == columns
    assert second.count('█') == pytest.approx(len(bar) / 3, abs=1)


def test_map_of_profiles(racks, cli):
    drawn = output(cli('capacity', '--no-cache', '--map', COLUMNS='120'))
    assert 'baremetal.cli, 4096 MiB, 8 CPUs, 100 GB' in drawn
    assert "rack='r2'" in drawn and 'owner' not in drawn


def test_map_of_nothing(cli):
    assert output(cli('capacity', '--map', '--resource-class', 'none',
                      COLUMNS='80')).split() == (
        '██ 0 free ▓▓ 0 held ▒▒ 0 taken ░░ 0 out of service'.split())
