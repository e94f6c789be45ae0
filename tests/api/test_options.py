# SPDX-License-Identifier: Apache-2.0
"""Every option of every command of the client.

``audit`` and ``move`` need all of Nova: see ``tests/nova``. Lookups in a real
Nova, Glance and Keystone are in tests/functional/test_cli.py and
test_keystone.py.
"""

import configparser
import contextlib
import json
import pathlib
import pkgutil
import re
import shlex
import sqlite3
import subprocess

import pytest

from ironic_reservations.osc import output
from ironic_reservations.osc import reservation
from ironic_reservations.shared import constants
from tests.common import command
from tests.common import programs
from tests.common import request_keys
from tests.common import service
from tools import services

ROOT = pathlib.Path(__file__).parents[2]
OURS = service.OURS
KEYS = request_keys.KEYS
CLASS = 'baremetal.options'
# Nodes with a reservation, see World.
HELD = [f'node-{number}' for number in range(5)]
FREE = [f'node-{number}' for number in range(5, 9)]
OWNED = FREE[-1]
NEW = '99999999-2222-4333-8444-00000000000'
LATER = '2999-12-31T18:00:00+00:00'


class World:
    """Nodes and reservations, created once and copied for each test.

    :ivar names: of the placeholders in the rows below.
    """

    def __init__(self, ironic, database, copy):
        self.ironic = ironic
        self._database, self._copy = database, copy
        self._before = None
        self._create()
        database.backup(copy)

    def reset(self):
        if self._before == self._read():
            return
        self._copy.backup(self._database)
        # The lease of a host cannot last as long as all tests.
        for host in 'host-0', 'host-1':
            assert self.ironic.http.put(f'{OURS}/hosts/{host}', json={
                'holder': NEW + '0', 'ttl': 600}).status_code == 200
        self._before = self._read()

    def _create(self):
        self.ironic.free_nodes(CLASS)
        for table in ('groups', 'history', 'hosts', 'notices', 'pool_nodes',
                      'pools'):
            self.ironic.execute(f'DELETE FROM reservations_{table}')
        self.names = {'group': NEW + '8', 'new': NEW + '9',
                      'newer': NEW + '7'}
        self.names['pool'] = self.ironic.http.post(f'{OURS}/pools', json={
            'project_id': 'east', 'members': 1, 'description': 'Q1',
            'request': {'candidate_nodes': [HELD[0], FREE[0]], 'extra_specs': {
                'reservations:candidates': 'ordered'}}}).json()['uuid']
        for name in 'older', 'old':
            self.names[name] = self.ironic.create(
                resource_class=CLASS, candidate_nodes=[HELD[3]],
                project_id='west')['instance_uuid']
            assert self.ironic.http.delete(
                f'{OURS}/{self.names[name]}').status_code == 204
        group = {'group': {'uuid': self.names['group'],
                           'policy': 'soft-spread', 'by': 'capability:rack'}}
        for number, more in enumerate([
                {'host': 'host-0', 'project_id': 'east'},
                {'host': 'host-1', 'project_id': 'west', 'expires_in': 86400},
                {}, group, group]):
            hold = self.ironic.create(resource_class=CLASS,
                                      candidate_nodes=[HELD[number]], **more)
            self.names |= {f'i{number}': hold['instance_uuid'],
                           f'I{number}': hold['instance_uuid'].upper(),
                           f'n{number}': hold['node_uuid']}
        self.ironic.execute("UPDATE nodes SET shard = 'rack-7' "
                            'WHERE resource_class = :c', c=CLASS)
        for number, more in enumerate([
                {'kind': 'maintenance', 'ticket': 'RMA-0'},
                {'kind': 'fault', 'starts_at': LATER}]):
            self.names[f'u{number}'] = self.ironic.http.post(
                f'{OURS}/notices', json={'nodes': [HELD[number]], **more}
            ).json()['notices'][0]['uuid']

    def _read(self):
        return self.ironic.state(), *(
            self.ironic.execute(f'SELECT * FROM reservations_{table}')
            for table in ('history', 'notices', 'pools', 'pool_nodes'))


@pytest.fixture(scope='module')
def world_of_module(ironic):
    with contextlib.closing(
            sqlite3.connect(ironic.engine.url.database)) as database, \
            contextlib.closing(sqlite3.connect(':memory:')) as copy, \
            ironic.fleet(*({
                'name': name, 'resource_class': CLASS,
                'traits': ['CUSTOM_NVME'], 'properties': {
                    'memory_mb': 4096, 'cpus': 8, 'local_gb': 100,
                    'cpu_arch': 'x86_64',
                    'capabilities': f'gpus:4,rack:{rack}'},
                'owner': 'east' if name == OWNED else None}
                for name, rack in zip([*HELD, *FREE], 'aaaabbbbb',
                                      strict=True))):
        yield World(ironic, database, copy)
        for table in 'notices', 'pool_nodes', 'pools':
            ironic.execute(f'DELETE FROM reservations_{table}')


@pytest.fixture
def world(world_of_module):
    world_of_module.reset()
    return world_of_module.names


# The expectation of a row is a function of the output of the command as data,
# of the names of the world, and of the service.


def spec(**fields):
    """Check the request spec of the reservation, each member or the pool."""
    def check(result, world, ironic):
        for member in result.get('reservations', [result]):
            request = result.get('request') or ironic.show(
                member['instance_uuid'])['request_spec']
            assert request == json.loads(json.dumps(
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


def shows(key, value):
    """Check a key of the request spec or of the reservation.

    The description is the group's, if there is one. Without a Keystone the
    project and the user are used as IDs.
    """
    if KEYS[key].is_in_spec:
        return spec(**{key: value})
    if key != 'description':
        return has(**{key: value})

    def check(result, world, ironic):
        assert result[key] == value
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


def pool(number, **fields):
    """Check the number of nodes of a pool, and some of its columns."""
    def check(result, world, ironic):
        assert len(result['nodes']) == result['total'] == number
        assert {name: result[name] for name in fields} == fields
    return check


def changes_pool(*nodes, **fields):
    """Check a pool afterwards."""
    def check(result, world, ironic):
        pool = ironic.show(f'pools/{world["pool"]}')
        assert [node['name'] for node in pool['nodes']] == [*nodes]
        assert {name: pool[name] for name in fields} == fields
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


def notices(*nodes, **fields):
    """Check the columns of the notices in the table."""
    def check(result, world, ironic):
        assert sorted(row['Node'] for row in result) == [*nodes]
        for row in result:
            assert {name: row[name] for name in fields} == {
                name: value % world if isinstance(value, str) else value
                for name, value in fields.items()}
    return check


def changes_notice(uuid, **fields):
    """Check a notice afterwards; the command prints nothing."""
    def check(result, world, ironic):
        assert result == ''
        [notice] = ironic.http.get(
            f'{OURS}/notices?uuid={world[uuid]}').json()['notices']
        assert {name: notice[name] for name in fields} == fields
    return check


def is_within(result, world, ironic):
    """Check that the notice is planned for the next hours."""
    [row] = result
    assert row['State'] == 'planned'
    for name, hours in ('Starts At', 1), ('Ends At', 2):
        assert abs(ironic.seconds_left({'expires_at': row[name]})
                   - hours * 3600) < 60


def all_of(*checks):
    def check(result, world, ironic):
        for check_part in checks:
            check_part(result, world, ironic)
    return check


# For both commands that hold nodes, always with the resource class.
HOLD = [
    ('', spec()),
    (' '.join(KEYS[name].option for name in request_keys.SIZES),
     spec(**{name: KEYS[name].value for name in request_keys.SIZES})),
    *((key.option, shows(name, key.value)) for name, key in KEYS.items()
      if key.option and name not in request_keys.SIZES),
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
    ('--candidate-node node-6 --candidate-node elsewhere',
     spec(candidate_nodes=['elsewhere', 'node-6'])),
    ('--candidate-node node-6 --candidate-node elsewhere --ordered',
     spec(candidate_nodes=['node-6', 'elsewhere'],
          extra_specs={'reservations:candidates': 'ordered'})),
    ('--match exact --ram 4096', spec(
        memory_mb=4096, extra_specs={'reservations:match': 'exact'})),
    ('--match at_least', extra(**{'reservations:match': 'at_least'})),
    ('--ownership any', spec()),
    ('--ownership project --project east', has(node_name=OWNED)),
    ('--ownership project_or_none --project east',
     spec(ownership='project_or_none')),
    ("--description ''", shows('description', None)),
    ('--expires-in 600', lease),
    ('--dry-run', is_dry_run), ('--dry-run --all-projects', is_dry_run),
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
    ('group show %(group)s --all-projects', policy('soft-spread', RACK,
                                                   [1, 1])),
    ('group show %(group)s', policy('soft-spread', RACK, [1, 1])),
    *((f'group delete %(group)s {args}', says('Deleted group %(group)s\n'))
      for args in ('', '--all-projects')),

    *((f'pool create --resource-class {CLASS} --members 1 {args}'
       + ' --project p' * ('--project ' not in args), expected)
      for args, expected in HOLD
      if not args.startswith(('--user', '--host', '--ownership project '))),
    (f'pool create --resource-class {CLASS} --members 1 --project east '
     '--ownership project --uuid %(new)s',
     lambda result, world, ironic: (
         result['uuid'] == world['new']
         and result['nodes'][0]['name'] == OWNED)),
    (f'pool create --resource-class {CLASS} --members 3 --project p '
     f'--expires-at {LATER} --description Q2',
     pool(3, project_id='p', description='Q2', expires_at=LATER)),
    *((f'pool create --resource-class {CLASS} --members 1 --project p '
       f'--{name} {RACK}', pool(1, policy=name, by=RACK))
      for name in ('spread', 'pack', 'soft-spread', 'soft-pack')),
    (f'pool create --resource-class {CLASS} --members 4 --project p --level '
     f'by={RACK},policy=pack,segment=2', pool(4, policy=None, levels=[
         {'by': RACK, 'policy': 'pack', 'segment': 2}])),
    (f'pool create --resource-class {CLASS} --members 1 --project p '
     '--all-projects', pool(1, project_id='p')),
    ('pool list', rows('%(pool)s', column='UUID')),
    ('pool list --limit 1 --all-projects', rows('%(pool)s', column='UUID')),
    ('pool list --marker %(pool)s', rows(column='UUID')),
    ('pool list --node node-0', rows('%(pool)s', column='UUID')),
    ('pool list --node node-5', rows(column='UUID')),
    ('pool list --project west --project-domain a', rows(column='UUID')),
    ('list --usage --project north', rows()),
    ('pool list', columns(
        'UUID,Project ID,Description,Total,Free,Reserved,Taken,'
        'Out Of Service,Healthy,Expires At')),
    *((f'pool show %(pool)s {args}', pool(1, description='Q1', reserved=1))
      for args in ('', '--all-projects')),
    (f'pool set %(pool)s --expires-at {LATER} --description Q2',
     changes_pool('node-0', expires_at=LATER, description='Q2')),
    ("pool set %(pool)s --no-expiry --description ''",
     changes_pool('node-0', expires_at=None, description=None)),
    ('pool set %(pool)s --expires-in 30d --all-projects',
     changes_pool('node-0', description='Q1')),
    *((f'pool add %(pool)s node-6 {args}', changes_pool('node-0', 'node-6'))
      for args in ('', '--all-projects')),
    ('pool replace %(pool)s node-0 --all-projects', pool(1, free=1)),
    ('pool replace %(pool)s node-0', changes_pool('node-5')),
    *((f'pool remove %(pool)s node-0 {args}', says('Removed node node-0\n'))
      for args in ('', '--all-projects')),
    *((f'pool delete %(pool)s {args}', says('Deleted pool %(pool)s\n'))
      for args in ('', '--all-projects')),

    ('history', rows('node-3', 'node-3')),
    ('history node-3', rows('%(i3)s', '%(old)s', '%(older)s',
                            column='Instance UUID')),
    ('history %(n3)s --limit 1', rows('%(i3)s', column='Instance UUID')),
    ('history node-3 --limit 2', rows('%(i3)s', '%(old)s',
                                      column='Instance UUID')),
    ('history node-3 --limit 0', rows('node-3', 'node-3', 'node-3')),
    ('history node-3 --ended-after 1d', rows('%(old)s', '%(older)s',
                                             column='Instance UUID')),
    ('history --limit 1', rows('%(old)s', column='Instance UUID')),
    ('history node-3 --instance-uuid %(i3)s', rows('node-3')),
    ('history node-3 --instance-uuid %(I3)s', rows('node-3')),
    ('history node-3 --instance-uuid %(old)s', rows(
        'release', column='Ended By')),
    ('history --project west --project-domain a', rows('node-3', 'node-3')),
    ('history --project east', rows()),
    ('history --ended-after 1d --all-projects', rows('node-3', 'node-3')),
    ('history --ended-after 2999-01-01T00:00Z', rows()),
    ('history', columns('Node,Instance UUID,Project ID,Description,'
                        'Created At,Ended At,Ended By')),
    ('history node-3 --long', columns(
        'Node UUID,Node Name,Node Owner,Instance UUID,Host,Resource Class,'
        'Health,Maintenance,Project ID,Description,User ID,Group,Expires At,'
        'Created At,Updated At,Ended At,Ended By')),

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
    ('list --expires-before 9999-12-31T00:00Z', rows('node-1')),
    ('list --long', columns(
        'Instance UUID,Node UUID,Node Name,Host,State,Provision State,'
        'Resource Class,Health,Maintenance,Notices,Project ID,Description,'
        'User ID,Request Spec,Group,Expires At,Created At,Updated At')),
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
    ('set node-1 --description burn-in --all-projects',
     then('i1', description='burn-in')),
    ("set node-1 --description ''", then('i1', description=None)),

    ('group set %(group)s --expires-in 7d --description burn-in',
     changes_group(True, 'burn-in')),
    ('group set %(group)s --no-expiry', changes_group(False, None)),
    ('group set %(group)s --no-expiry --all-projects',
     changes_group(False, None)),

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
              'Capabilities,Conductor Group,Shard,Owner,Lessee,'
              'Pool Project ID,Total,Free,Reserved,Taken,Out Of Service,'
              'Claimable')),
          ('--by capability:rack --by owner', all_of(
              columns('capability:rack,Owner,Total,Free,Reserved,Taken,'
                      'Out Of Service'),
              rows('a', 'b', 'b', column='capability:rack'),
              counts(Total=9, Free=4, Reserved=5))),
          ('--by project_id', all_of(
              columns('Project ID,Total,Free,Reserved,Taken,Out Of Service,'
                      'Healthy'),
              counts(Total=9, Free=4, Reserved=5))),
          ('--by shard --long --host host-0', all_of(
              columns('Shard,Total,Free,Reserved,Taken,Out Of Service,Held,'
                      'Claimable'),
              counts(Held=1, Claimable=3))),
          ('--map', counts(Total=9, Free=4, Reserved=5, Taken=0))]),

    ('notice list', notices('node-0', 'node-1')),
    ('notice list --limit 1', notices('node-0')),
    ('notice list --all-projects', notices('node-0', 'node-1')),
    ('notice list --uuid %(u1)s', notices('node-1', UUID='%(u1)s')),
    ('notice list --node node-1', notices('node-1')),
    ('notice list --node %(n0)s --ticket RMA-0', notices(
        'node-0', Kind='maintenance', Cordon=True, State='open',
        Ticket='RMA-0', Category=None, **{'Ends At': None})),
    ('notice list --kind maintenance', notices('node-0')),
    ('notice list --kind fault', notices('node-1', Cordon=False)),
    ('notice list --kind retirement', rows()),
    ('notice list --state open', notices('node-0')),
    ('notice list --state planned', notices('node-1', State='planned')),
    ('notice list --state closed', rows()),
    ('notice list --overdue', rows()),
    *((f'notice list {args}', rows()) for args in (
        '--project east', '--project east --project-domain a')),
    ('notice list', columns('UUID,Node,Kind,Cordon,State,Overdue,Starts At,'
                            'Due At,Ends At,Category,Ticket')),
    ('notice list --long', columns(
        'UUID,Node UUID,Node Name,Kind,Cordon,State,Overdue,Starts At,Due At,'
        'Ends At,Category,Ticket,Latest Start,Scheduled At,Description,Action,'
        'Project ID,Created By,Created At,Updated At')),

    ('notice create --kind maintenance node-5', notices(
        'node-5', Kind='maintenance', Cordon=True, State='open')),
    ('notice create --kind retirement --no-cordon node-5 node-6', notices(
        'node-5', 'node-6', Kind='retirement', Cordon=False)),
    ('notice create --kind fault --cordon --by capability:rack=a',
     notices(*HELD[:4], Kind='fault', Cordon=True)),
    ('notice create --kind fault --all-projects --uuid %(new)s %(n2)s',
     notices('node-2', UUID='%(new)s')),
    ('cordon node-5 node-6', notices(
        'node-5', 'node-6', Kind='maintenance', Cordon=True)),
    ('cordon --by shard=rack-7 --all-projects', notices(*HELD, *FREE)),
    *((f'cordon --kind {kind} node-5', notices(
        'node-5', Kind=kind, Cordon=True))
      for kind in ('maintenance', 'retirement', 'fault')),
    *((f'{verb} node-5 {args}', expected)
      for verb in ('cordon', 'notice create --kind fault')
      for args, expected in [
          (f'--starts-at {LATER}', notices(
              'node-5', **{'Starts At': LATER, 'Ends At': None})),
          ('--starts-at 1h --ends-at 2h', is_within),
          (f'--due-at {LATER}', notices(
              'node-5', Overdue=False, **{'Due At': LATER})),
          (f'--latest-start {LATER}', notices('node-5')),
          ('--category gpu --description x --ticket T --uuid %(new)s',
           notices('node-5', UUID='%(new)s', Category='gpu', Ticket='T'))]),
    ("report node-2 --category gpu --description 'XID 79' --ticket T "
     '--uuid %(new)s', notices('node-2', UUID='%(new)s', Kind='fault',
                               Cordon=False, Category='gpu', Ticket='T')),
    ('report %(i2)s', notices('node-2')),
    ('report %(n2)s --all-projects', notices('node-2')),
    ('report node-2 --cordon', notices('node-2', Kind='fault', Cordon=True)),

    ('notice set %(u0)s --ticket RMA-1 --category gpu --description x '
     '--action y', changes_notice('u0', ticket='RMA-1', category='gpu',
                                  description='x', action='y')),
    ("notice set %(u0)s --ticket ''", changes_notice('u0', ticket=None)),
    ("notice set %(u0)s --category '' --description '' --action ''",
     changes_notice('u0', ticket='RMA-0', category=None)),
    ('notice set %(u0)s --no-cordon --node node-0',
     changes_notice('u0', cordon=False)),
    ('notice set %(u1)s --cordon --all-projects',
     changes_notice('u1', cordon=True)),
    (f'notice set %(u0)s --ends-at {LATER}',
     changes_notice('u0', ends_at=LATER)),
    ('notice set %(u1)s --no-end', changes_notice('u1', ends_at=None)),
    (f'notice set %(u0)s --due-at {LATER} --latest-start {LATER}',
     changes_notice('u0', due_at=LATER, latest_start=LATER)),
    ('notice set %(u0)s --no-due-at --no-latest-start',
     changes_notice('u0', due_at=None, latest_start=None)),
    ('notice schedule %(u1)s --at now', notices('node-1', State='open')),
    ('notice schedule %(u1)s --at 1h --node %(n1)s --all-projects',
     notices('node-1', State='planned')),
    (f'notice set %(u0)s --starts-at {LATER}',
     changes_notice('u0', state='planned')),
    ('notice close %(u0)s %(u1)s --all-projects', says(
        'Closed notice %(u0)s, node node-0\n'
        'Closed notice %(u1)s, node node-1\n')),
    ('notice close %(u0)s --node node-0 --action fan', says(
        'Closed notice %(u0)s, node node-0\n')),
    ('uncordon node-0 --action fan', says(
        'Uncordoned node node-0, closed notice %(u0)s\n')),
    ('uncordon %(n0)s --all-projects', says(
        'Uncordoned node %(n0)s, closed notice %(u0)s\n')),

    ('host list', rows('host-0', 'host-1', column='Host')),
    ('host list --host host-1', rows('host-1', column='Host')),
    ('host list --limit 1', rows('host-0', column='Host')),
    ('host list --marker host-0', rows('host-1', column='Host')),
    ('host list --all-projects', rows('host-0', 'host-1', column='Host')),
    ('list --all-projects', rows(*HELD)),
    ('list --usage', columns(
        'Project ID,Project Name,Resource Class,Reservations,Limit')),
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
    ('host delete host-0 --all-projects',
     'only expired leases can be deleted'),
    (f'create --resource-class {CLASS} --group %(group)s --segment 0',
     'has no segment 0'),
    ('notice set %(u0)s --node node-1 --no-cordon', 'No notice '),
    ('notice set %(u0)s', 'Nothing to set: give --cordon, '),
    ('pool set %(pool)s', 'Nothing to set: give --expires-at, '),
    ('pool add %(pool)s node-0', 'node-0: Node node-0 is already in pool '),
    ('pool remove %(pool)s node-5', 'node-5: Node node-5 is not in pool '),
    ('pool remove %(pool)s ..', '..: ".." is not a name'),
    ('host delete ..', '..: ".." is not a name'),
    ('uncordon node-5', 'node-5: It has no open cordon.'),
    ('list --usage --limit 1', '--usage counts all reservations: omit '),
    ('list --usage --marker %(i0)s', '--usage counts all reservations: '),
    ('explain', 'Nothing constrains the node: give a server, '),
    (f'explain --resource-class {CLASS} --ram 999999', 'memory_mb>=999999'),
]


@pytest.mark.parametrize(('args', 'expected'), TABLE,
                         ids=[args for args, _ in TABLE])
def test_each_option(ironic, world, args, expected):
    prints = '-f' not in PARSERS[find_command(args)]._option_string_actions
    result = command.run(
        ironic.url, 'baremetal', 'reservation', *shlex.split(args % world),
        *([] if prints else ['-f', 'json']))
    assert result.returncode == 0, result.stderr
    data = result.stdout if prints else json.loads(result.stdout)
    # For an empty list the filters are printed.
    assert bool(result.stderr) == (data == []), result.stderr
    assert expected(data, world, ironic) is not False


@pytest.mark.parametrize('args', [
    'list', 'list --long', 'history', 'history --long', 'group list',
    'pool list', 'notice list', 'notice list --long', 'host list',
    'capacity list --no-cache', 'capacity list --no-cache --long',
    'cordon node-6'])
def test_tables_fit_a_terminal(ironic, world, args):
    table = command.get_output(command.run(
        ironic.url, 'baremetal', 'reservation', *args.split(), '--max-width',
        '80'))
    assert max(map(len, table.splitlines())) <= 80
    # Rows of many columns are shown one below another.
    assert ('| Field ' in table) == (args not in ('list', 'host list')), table


@pytest.mark.parametrize(('args', 'expected'), FAILING,
                         ids=[args for args, _ in FAILING])
def test_failed_command(ironic, world, args, expected):
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
             'group create': 'tests/functional/test_cli.py',
             'pool create': 'tests/functional/test_cli.py'}


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


#: Words that a command requires in addition to its arguments.
REQUIRED = {'move': ['--from', 'a', '--to', 'b'],
            'notice create': ['--kind', 'fault'],
            'notice schedule': ['--at', 'now'],
            'group create': ['--members', '1'],
            'pool create': ['--members', '1', '--project', 'a']}


#: Options of these commands that may be empty; other options have defaults.
MAY_BE_EMPTY = {
    'notice set': ['--category', '--description', '--ticket', '--action'],
    'notice create': [], 'cordon': [], 'report': []}


def list_empty_values():
    """Yield commands, and words with an empty option or argument."""
    for name, parser in PARSERS.items():
        positionals = parser._positionals._group_actions
        arguments = ['a'] * sum(action.nargs != '?' for action in positionals)
        if positionals:
            yield name, [*REQUIRED.get(name, []), *arguments[1:], '']
        # The members of a group have two options, of which one is required.
        for action in parser._optionals._group_actions:
            option = action.option_strings[0]
            required = REQUIRED.get(name, [])[
                2 * (option == '--instance-uuid'):]
            if action.nargs != 0:
                yield name, [*arguments, *required, option, '']


@pytest.mark.parametrize(('name', 'words'), [*list_empty_values()])
def test_empty_value(capsys, name, words):
    """For example that of an unset variable in a script."""
    if words[-2:-1] and words[-2] in MAY_BE_EMPTY.get(name, [
            '--conductor-group', '--shard', '--description']):
        PARSERS[name].parse_args(words)
        return
    with pytest.raises(SystemExit) as error:
        PARSERS[name].parse_args(words)
    message = capsys.readouterr().err
    assert error.value.code == 2 and 'required' not in message
    argument = next((word for word in words[-2:-1] if word[0] == '-'), '<')
    assert f'error: argument {argument}' in message


#: Two values of options that do not accept "1" twice.
VALUES = {'--level': ['by=shard,policy=pack'] * 2, '--by': ['shard=a'] * 2,
          '--property': ['a=1', 'b=1'], '--instance': [NEW + '0'] * 2}


def list_own_options():
    """Yield commands, an option of each, and what else is required."""
    for name, parser in PARSERS.items():
        arguments = ['a'] * sum(action.nargs != '?' for action
                                in parser._positionals._group_actions)
        for action in parser._optionals._group_actions[1:]:
            # Each of these replaces what is required otherwise.
            words = [] if action.dest in ('by', 'instances') else [
                *REQUIRED.get(name, []), *arguments]
            for option in action.option_strings:
                place = slice(0, 0) if option not in words else slice(
                    words.index(option), words.index(option) + 2)
                yield name, option, [*words[:place.start],
                                     *words[place.stop:]]


@pytest.mark.parametrize(('name', 'option', 'required'), [
    pytest.param(*row, id=' '.join(row[:2])) for row in list_own_options()])
def test_repeated_option(capsys, name, option, required):
    """A value must not replace another one that the user has typed."""
    parser = PARSERS[name]
    action = parser._option_string_actions[option]
    first, second = ([[]] * 2 if action.nargs == 0 else
                     [[value] for value in VALUES.get(option, (
                         [*(action.choices or '1')][:1] * 2))])
    short = option[:-1] if sum(
        other.startswith(option[:-1])
        for other in parser._option_string_actions) == 1 else option
    words = [*required, option, *first, short, *second]
    if action.nargs == 0:
        assert getattr(parser.parse_args(words), action.dest) is not None
    elif '(repeat for' in action.help:
        assert len(getattr(parser.parse_args(words), action.dest)) == 2
    else:
        with pytest.raises(SystemExit):
            parser.parse_args(words)
        assert (f'error: argument {option}: is given more than once'
                in capsys.readouterr().err)


@pytest.mark.parametrize('args', [
    'set a --expires-in 1 --no-expiry',
    'group set a --expires-in 1 --no-expiry',
    'pool set a --expires-at 2999-12-31T18:00Z --no-expiry',
    'pool set a --expires-in 1 --no-expiry',
    'notice set a --ends-at 1 --no-end',
    'notice set a --due-at 1 --no-due-at',
    'notice set a --latest-start 1 --no-latest-start',
    'notice set a --cordon --no-cordon',
    'notice create --kind fault a --no-cordon --cordon',
])
def test_option_and_its_negation(capsys, args):
    name = find_command(args)
    with pytest.raises(SystemExit):
        PARSERS[name].parse_args(args.removeprefix(name).split())
    assert ': not allowed with argument ' in capsys.readouterr().err


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
    ('baremetal reservation notice', '', 'close create list schedule set'),
    ('baremetal reservation', 'p', 'pool'),
    ('baremetal reservation pool', '',
     'add create delete list remove replace set show'),
    ('baremetal reservation pool create', '--expires',
     '--expires-at --expires-in'),
    ('baremetal reservation cordon', '--starts', '--starts-at'),
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
