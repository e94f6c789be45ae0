# SPDX-License-Identifier: Apache-2.0
"""Every option of every command of the client.

``audit`` and ``move`` need all of Nova: see ``tests/nova``. Lookups in a real
Nova, Glance and Keystone are in tests/functional/test_cli.py and
test_keystone.py.
"""

import configparser
import json
import pathlib
import pkgutil
import re
import shlex
import subprocess

import pytest

from ironic_reservations import constants
from ironic_reservations.osc import output
from ironic_reservations.osc import reservation
from tests.common import command
from tests.common import programs
from tests.common import service
from tools import services

ROOT = pathlib.Path(__file__).parents[2]
OURS = service.OURS
CLASS = 'baremetal.options'
# Nodes with a reservation, see World.
HELD = [f'node-{number}' for number in range(5)]
FREE = [f'node-{number}' for number in range(5, 9)]
OWNED = FREE[-1]
NEW = '99999999-2222-4333-8444-00000000000'


class World:
    """Nodes and reservations.

    :ivar names: of the placeholders in the rows below.
    """

    def __init__(self, ironic):
        self.ironic = ironic
        self._before = None

    def reset(self):
        if self._before == self.ironic.state():
            return
        self.ironic.free_nodes(CLASS)
        for table in 'groups', 'hosts':
            self.ironic.execute(f'DELETE FROM reservations_{table}')
        self.names = {'group': NEW + '8', 'new': NEW + '9',
                      'newer': NEW + '7'}
        group = {'group': {'uuid': self.names['group'],
                           'policy': 'soft-spread', 'by': 'capability:rack'}}
        for number, more in enumerate([
                {'host': 'host-0', 'project_id': 'east'},
                {'host': 'host-1', 'project_id': 'west', 'expires_in': 600},
                {}, group, group]):
            hold = self.ironic.create(resource_class=CLASS,
                                      candidate_nodes=[HELD[number]], **more)
            self.names |= {f'i{number}': hold['instance_uuid'],
                           f'n{number}': hold['node_uuid']}
        for host in 'host-0', 'host-1':
            assert self.ironic.http.put(f'{OURS}/hosts/{host}', json={
                'holder': NEW + '0', 'ttl': 600}).status_code == 200
        self.ironic.execute("UPDATE nodes SET shard = 'rack-7' "
                            'WHERE resource_class = :c', c=CLASS)
        self._before = self.ironic.state()


@pytest.fixture(scope='module')
def world_of_module(ironic):
    with ironic.fleet(*({
            'name': name, 'resource_class': CLASS, 'traits': ['CUSTOM_NVME'],
            'properties': {'memory_mb': 4096, 'cpus': 8, 'local_gb': 100,
                           'cpu_arch': 'x86_64',
                           'capabilities': f'gpus:4,rack:{rack}'},
            'owner': 'east' if name == OWNED else None}
            for name, rack in zip([*HELD, *FREE], 'aaaabbbbb', strict=True))):
        yield World(ironic)


@pytest.fixture
def world(world_of_module):
    world_of_module.reset()
    return world_of_module.names


# The expectation of a row is a function of the output of the command as data,
# of the names of the world, and of the service.


def spec(**fields):
    """Check the request spec of the reservation, or of each member."""
    def check(result, world, ironic):
        for member in result.get('reservations', [result]):
            reservation = ironic.show(member['instance_uuid'])
            assert reservation['request_spec'] == json.loads(json.dumps(
                {'resource_class': CLASS, **fields}) % world)
    return check


def extra(**specs):
    return spec(extra_specs=specs)


def has(**fields):
    """Check attributes of the reservation, or of each member."""
    def check(result, world, ironic):
        for member in result.get('reservations', [result]):
            assert {name: member[name] for name in fields} == {
                name: value % world if isinstance(value, str) else value
                for name, value in fields.items()}
    return check


def describes(text):
    """Check the description of the reservation, or of the group."""
    def check(result, world, ironic):
        assert result['description'] == text
    return check


def lease(result, world, ironic):
    for member in result.get('reservations', [result]):
        assert 500 < ironic.seconds_left(member) <= 600


def changes_group(has_lease, description):
    """Check the lease of all members of the group, and its description."""
    def check(result, world, ironic):
        group = ironic.show(f'groups/{world["group"]}')
        assert group['description'] == description
        assert {bool(member['expires_at'])
                for member in group['reservations']} == {has_lease}
    return check


def is_dry_run(result, world, ironic):
    assert result['matching_nodes'] == 4
    assert len(ironic.list()) == 5


def group(**fields):
    """Check the group of the new reservation."""
    def check(result, world, ironic):
        assert {name: result['group'][name] for name in fields} == {
            name: value and value % world for name, value in fields.items()}
    return check


def policy(name, by, domains):
    """Check the policy of a group, and the members of each domain."""
    def check(result, world, ironic):
        assert (result['policy'], result['by']) == (name, by)
        assert sorted(row['nodes'] for row in result['domains']) == domains
    return check


def members(number):
    def check(result, world, ironic):
        assert len(result['reservations']) == number
    return check


def rows(*names, column='Node'):
    """Check a column of the table."""
    def check(result, world, ironic):
        assert [row[column] for row in result] == [
            name % world for name in names]
    return check


def columns(text):
    def check(result, world, ironic):
        assert [','.join(row) for row in result][0] == text
    return check


def counts(**sums):
    """Check the sums of columns over all rows."""
    def check(result, world, ironic):
        assert {name: sum(row[name] for row in result)
                for name in sums} == sums
    return check


def says(text):
    def check(result, world, ironic):
        assert result == text % world
    return check


def then(name, **fields):
    """Check a reservation afterwards; the command prints nothing."""
    def check(result, world, ironic):
        assert result == ''
        reservation = ironic.show(world[name])
        assert {name: reservation[name] for name in fields} == fields
    return check


def all_of(*checks):
    def check(result, world, ironic):
        for check_part in checks:
            check_part(result, world, ironic)
    return check


# For both commands that hold nodes, always with the resource class.
HOLD = [
    ('', spec()),
    ('--ram 1024 --vcpus 2 --disk 20 --ephemeral 10 --swap 512',
     spec(memory_mb=1024, vcpus=2, root_gb=20, ephemeral_gb=10, swap=512)),
    ("--trait CUSTOM_NVME --forbidden-trait CUSTOM_A "
     "--forbidden-trait CUSTOM_B --capability rack "
     "--capability 'gpus=>= 2'",
     extra(**{'trait:CUSTOM_NVME': 'required',
              'trait:CUSTOM_A': 'forbidden', 'trait:CUSTOM_B': 'forbidden',
              'capabilities': 'rack', 'capabilities:gpus': '>= 2'})),
    ("--property 'capabilities:gpus=s== 4' --property cpu_arch=x86_64",
     extra(**{'capabilities:gpus': 's== 4', 'cpu_arch': 'x86_64'})),
    ('--capability rack --property capabilities=gpus',
     extra(capabilities='gpus,rack')),
    ('--capability gpus --property capabilities=gpus:4',
     extra(capabilities='gpus:4,gpus')),
    ("--conductor-group '' --shard rack-7 --candidate-node node-6 "
     '--candidate-node elsewhere',
     spec(conductor_group='', shard='rack-7',
          candidate_nodes=['elsewhere', 'node-6'])),
    ('--match exact --ram 4096', spec(
        memory_mb=4096, extra_specs={'reservations:match': 'exact'})),
    ('--match at_least', extra(**{'reservations:match': 'at_least'})),
    ('--ownership any', spec()),
    ('--ownership project --project east', has(node_name=OWNED)),
    ('--ownership project_or_none --project east',
     spec(ownership='project_or_none')),
    ('--expires-in 600 --host host-9', all_of(lease, has(host='host-9'))),
    # Without a Keystone these are used as ids.
    ('--project west --project-domain a --user ann --user-domain b',
     has(project_id='west', user_id='ann')),
    ("--description 'for Friday'", describes('for Friday')),
    ('--dry-run', is_dry_run),
]

RACK = 'capability:rack'

#: Commands with arguments, and the expectations.
TABLE = [
    *((f'{verb} --resource-class {CLASS} {args}', expected)
      for verb in ('create', 'group create --members 1')
      for args, expected in HOLD),

    (f'create --resource-class {CLASS} --instance-uuid %(new)s',
     has(instance_uuid='%(new)s')),
    ('create --claim %(i2)s', has(node_name='node-2')),
    ('create --swap 100 --dry-run', is_dry_run),
    (f'create --resource-class {CLASS} --claim %(group)s',
     group(uuid='%(group)s')),
    (f'create --resource-class {CLASS} --group %(group)s '
     f'--soft-spread {RACK}', group(uuid='%(group)s')),
    (f'create --resource-class {CLASS} --group %(new)s',
     group(uuid='%(new)s', policy=None)),
    *((f'create --resource-class {CLASS} --group %(new)s --{name} {RACK}',
       group(uuid='%(new)s', policy=name, by=RACK))
      for name in ('spread', 'pack', 'soft-spread', 'soft-pack')),

    (f'group create --resource-class {CLASS} --members 3', members(3)),
    (f'group create --resource-class {CLASS} --instance-uuid %(new)s '
     '--instance-uuid %(newer)s', members(2)),
    (f'group create --resource-class {CLASS} --members 1 --uuid %(new)s',
     lambda result, world, ironic: result['uuid'] == world['new']),
    (f'group create --resource-class {CLASS} --members 1 --spread {RACK}',
     policy('spread', RACK, [1])),
    *((f'group create --resource-class {CLASS} --members 3 --{name} {RACK}',
       policy(name, RACK, [3])) for name in ('pack', 'soft-pack')),
    (f'group create --resource-class {CLASS} --members 2 --soft-spread '
     'shard', policy('soft-spread', 'shard', [2])),
    (f'group create --resource-class {CLASS} --members 4 --level '
     f'by=shard,policy=pack --level by={RACK},policy=pack,segment=2',
     lambda result, world, ironic: [row['value'] for row in result['domains']
                                    ] == [['rack-7', 'b']]),
    ('group list', rows('%(group)s', column='UUID')),
    ('group list --limit 1', rows('%(group)s', column='UUID')),
    ('group list --marker %(group)s', rows(column='UUID')),
    ('group show %(group)s', policy('soft-spread', RACK, [1, 1])),
    ('group delete %(group)s', says('Deleted group %(group)s\n')),

    ('list', rows(*HELD)),
    ('list --host host-1', rows('node-1')),
    ('list --node node-2', rows('node-2')),
    ('list --node %(n2)s', rows('node-2')),
    (f'list --resource-class {CLASS}', rows(*HELD)),
    ('list --state reserved', rows(*HELD)),
    *((f'list --state {state}', rows()) for state in constants.STATES[1:]),
    ('list --project west --project-domain a', rows('node-1')),
    ('list --limit 2', rows(*HELD[:2])),
    ('list --limit 2 --marker %(i2)s', rows(*HELD[3:])),
    ('list --sort host:desc,id', rows(
        'node-1', 'node-0', 'node-2', 'node-3', 'node-4')),
    ('list --sort host,id:desc', rows(
        'node-4', 'node-3', 'node-2', 'node-0', 'node-1')),
    ('list --group %(group)s', rows('node-3', 'node-4')),
    ('list --expires-before 1d', rows('node-1')),
    ('list --expires-before 10s', rows()),
    ('list --expires-before 9999-12-31', rows('node-1')),
    ('list --long', columns(
        'Instance UUID,Node UUID,Node Name,Host,State,Provision State,'
        'Resource Class,Project ID,Description,User ID,Request Spec,Group,'
        'Expires At,Created At,Updated At')),
    ('list --fields host updated_at', columns('Host,Updated At')),
    (f'list --fields {" ".join(reservation.DETAILS)}', columns(
        ','.join(output.format_headers(reservation.DETAILS)))),

    *((f'show {ident}', has(node_name='node-1', host='host-1'))
      for ident in ('%(i1)s', '%(n1)s', 'node-1')),

    ('set node-2 --host host-7', then('i2', host='host-7')),
    ('set node-2 --host host-8 --force', then('i2', host='host-8')),
    ('set %(i1)s --no-expiry', then('i1', expires_at=None)),
    ('set %(n2)s --expires-in 600', lambda result, world, ironic: lease(
        ironic.show(world['i2']), world, ironic)),
    ('set %(i2)s --host host-7 --expires-in 600',
     then('i2', host='host-7')),
    ('set node-1 --description burn-in', then('i1', description='burn-in')),
    ("set node-1 --description ''", then('i1', description=None)),

    ('group set %(group)s --expires-in 7d --description burn-in',
     changes_group(True, 'burn-in')),
    ('group set %(group)s --no-expiry', changes_group(False, None)),

    ('delete node-2', says(
        'Deleted reservation of instance %(i2)s, node node-2\n')),
    ('delete %(i2)s %(n3)s', says(
        'Deleted reservation of instance %(i2)s, node node-2\n'
        'Deleted reservation of instance %(i3)s, node node-3\n')),
    ('delete node-1 --all-projects', says(
        'Deleted reservation of instance %(i1)s, node node-1\n')),
    ('delete node-0 --host host-0', says(
        'Deleted reservation of instance %(i0)s, node node-0\n')),

    *((f'{verb} --no-cache --resource-class {CLASS} {args}', expected)
      for verb in ('capacity list', 'capacity') for args, expected in [
          ('', all_of(counts(Total=9, Free=4, Reserved=5), columns(
              'Resource Class,Memory MB,VCPUs,Local GB,CPU Arch,Traits,'
              'Total,Free,Reserved,Taken,Out Of Service'))),
          ('--trait CUSTOM_NVME', counts(Total=9)),
          ('--trait CUSTOM_NVME --trait CUSTOM_X', counts(Total=0)),
          ("--conductor-group ''", counts(Total=9)),
          ('--shard rack-7', counts(Total=9)),
          ('--shard other', counts(Total=0)),
          ('--host host-0', counts(Total=9, Held=1)),
          ('--all-projects', counts(Total=9)),
          ('--long', columns(
              'Resource Class,Memory MB,VCPUs,Local GB,CPU Arch,Traits,'
              'Capabilities,Conductor Group,Shard,Owner,Lessee,Total,Free,'
              'Reserved,Taken,Out Of Service,Claimable')),
          ('--by capability:rack --by owner', all_of(
              columns('capability:rack,Owner,Total,Free,Reserved,Taken,'
                      'Out Of Service'),
              rows('a', 'b', 'b', column='capability:rack'),
              counts(Total=9, Free=4, Reserved=5))),
          ('--by shard --long --host host-0', all_of(
              columns('Shard,Total,Free,Reserved,Taken,Out Of Service,Held,'
                      'Claimable'),
              counts(Held=1, Claimable=3))),
          ('--map', counts(Total=9, Free=4, Reserved=5, Taken=0))]),

    ('host list', rows('host-0', 'host-1', column='Host')),
    ('host list --host host-1', rows('host-1', column='Host')),
    ('host list --limit 1', rows('host-0', column='Host')),
    ('host list --marker host-0', rows('host-1', column='Host')),
    ('host list --all-projects', rows('host-0', 'host-1', column='Host')),
    ('list --all-projects', rows(*HELD)),
    ('list --usage', columns('Project ID,Resource Class,Reservations,Limit')),
    ('show node-1 --all-projects', has(node_name='node-1', host='host-1')),
    ('group list --all-projects', columns(
        'UUID,Policy,By,Segments,Members,Domains,Project ID,Description,'
        'Created At')),
    ('host list --long', columns(
        'Host,Live,Since,Standbys,Reservations,Expires At,Holder,Created At,'
        'Updated At')),
]

#: Commands that exit with status 1, and a part of their output.
FAILING = [
    ('show %(group)s', 'belongs to a group'),
    ('group set %(group)s', 'Nothing to set: give --expires-in, '),
    ('host delete host-0', 'only expired leases can be deleted'),
    (f'create --resource-class {CLASS} --group %(group)s --segment 0',
     'has no segment 0'),
    ('explain', 'Nothing constrains the node: give a server, '),
    (f'explain --resource-class {CLASS} --ram 999999', 'memory_mb>=999999'),
]


@pytest.mark.parametrize(('args', 'expected'), TABLE,
                         ids=[args for args, _ in TABLE])
def test_option(ironic, world, args, expected):
    verb = args.partition(' ')[0]
    prints = verb in ('set', 'delete') or args.startswith((
        'group set', 'group delete'))
    result = command.run(
        ironic.url, 'baremetal', 'reservation', *shlex.split(args % world),
        *([] if prints else ['-f', 'json']))
    assert result.returncode == 0, result.stderr
    data = result.stdout if prints else json.loads(result.stdout)
    # For an empty list the filters are printed.
    assert bool(result.stderr) == (data == []), result.stderr
    assert expected(data, world, ironic) is not False


@pytest.mark.parametrize(('args', 'expected'), FAILING,
                         ids=[args for args, _ in FAILING])
def test_failure(ironic, world, args, expected):
    result = command.run(ironic.url, 'baremetal', 'reservation',
                         *shlex.split(args % world))
    assert result.returncode == 1
    assert expected in result.stdout + result.stderr


def make_parsers():
    """Yield the parsers of our commands, by the words after "reservation"."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / 'setup.cfg')
    for line in setup['options.entry_points'][
            'openstack.baremetal.v1'].strip().splitlines():
        name, _, value = line.partition(' = ')
        yield (name.removeprefix('baremetal_reservation_').replace('_', ' '),
               pkgutil.resolve_name(value)(None, None).get_parser(name))


PARSERS = dict(make_parsers())


def find_command(args):
    return max((name for name in PARSERS
                if f'{args} '.startswith(f'{name} ')), key=len)


def find_missing(parser, rows):
    """Yield options, and choices of options, that no row has."""
    words = {word for row in rows for word in shlex.split(row)}
    # The options of cliff, such as --format, are in other groups.
    for action in parser._optionals._group_actions:
        if '--help' not in action.option_strings:
            yield from {*action.option_strings,
                        *(action.choices or ())} - words


#: Other tests of the options of a command.
ELSEWHERE = {'audit': 'tests/nova/test_audit.py',
             'move': 'tests/nova/test_move.py',
             'create': 'tests/functional/test_cli.py',
             'explain': 'tests/cloud/test_day_two.py',
             'group create': 'tests/functional/test_cli.py'}


@pytest.mark.parametrize('name', PARSERS)
def test_no_option_is_missing(name):
    # explain shares the options of create.
    names = {name, 'create'} if name == 'explain' else {name}
    rows = [args for args, _ in TABLE + FAILING if find_command(args) in names]
    if path := ELSEWHERE.get(name):
        # These tests have lists of words.
        rows.append(re.sub('["#].*', '', re.sub(
            r"[',\[\]()]", ' ', (ROOT / path).read_text())))
    assert rows
    assert [*find_missing(PARSERS[name], rows)] == []


# Completion by bash

COMPLETION = r"""
# A substitute for the function of the package bash-completion.
_get_comp_words_by_ref() {
  cur=${COMP_WORDS[COMP_CWORD]}
  words=("${COMP_WORDS[@]}")
}
. "$1"
COMP_WORDS=(openstack $2 "$3") COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
$(complete -p openstack | sed 's/.*-F \([^ ]*\) .*/\1/')
echo ${COMPREPLY[@]}
"""


@pytest.fixture(scope='module')
def completion(tmp_path_factory):
    """A script with the completions that the command prints."""
    path = tmp_path_factory.mktemp('bash') / 'complete'
    # In a process, because the script contains the name of the program.
    path.write_text(programs.run(services.program('openstack'), 'complete'))
    return path


@pytest.mark.parametrize(('words', 'prefix', 'expected'), [
    ('baremetal', 'res', 'reservation'),
    ('baremetal reservation', 'de', 'delete'),
    ('baremetal reservation', 'g', 'group'),
    ('baremetal reservation group', '', 'create delete list set show'),
    ('baremetal reservation host', '', 'delete list'),
    ('baremetal reservation create', '--soft', '--soft-spread --soft-pack'),
    ('baremetal reservation group create', '--me', '--members'),
    ('baremetal reservation set', '--no', '--no-expiry'),
    ('baremetal reservation capacity', '--no-c', '--no-cache'),
    ('baremetal reservation capacity list', '--no-c', '--no-cache'),
])
def test_bash_completes(completion, words, prefix, expected):
    result = subprocess.run(
        ['bash', '-c', COMPLETION, 'bash', str(completion), words, prefix],
        capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.split()) == sorted(expected.split())
