# SPDX-License-Identifier: Apache-2.0
"""The commands for notices. Their options are in test_options."""

import json
import re
import uuid

import pytest

from tests.common import command
from tests.common import service
from tests.common.command import get_data
from tests.common.command import get_error
from tests.common.command import get_output

OURS = service.OURS
CLASS = 'baremetal.notices'
NAMES = [f'nt-{number}' for number in range(4)]
UNKNOWN = '99999999-2222-4333-8444-555555555555'


@pytest.fixture
def nodes(ironic):
    """Two nodes in rack r1 and two in r2."""
    with ironic.fleet(*(
            {'name': name, 'resource_class': CLASS, 'shard': 'nt-shard',
             'properties': {'memory_mb': 1024,
                            'capabilities': f'rack:{rack}'}}
            for name, rack in zip(NAMES, ('r1', 'r1', 'r2', 'r2'),
                                  strict=True))) as nodes:
        yield nodes
    ironic.execute('DELETE FROM reservations_notices')


@pytest.fixture
def cli(ironic):
    def run(*args):
        return command.run(ironic.url, 'baremetal', 'reservation', *args)
    return run


def get_notices(ironic, **query):
    return ironic.http.get(f'{OURS}/notices', params=query).json()['notices']


def get_failure(result):
    """Return the output and the errors of a command that failed in part."""
    assert result.returncode == 1
    return result.stdout, re.sub(r' \(Request-ID: req-[0-9a-f-]+\)', '',
                                 result.stderr)


def test_failed_build_that_is_not_recorded(ironic, nodes, cli):
    error = get_error(cli('notice', 'create', NAMES[0], '--kind', 'fault',
                          '--category', 'build'))
    assert error.startswith('No notice was created')
    assert get_notices(ironic) == []


def test_cordon_and_uncordon(ironic, nodes, cli):
    cordons = get_data(cli('cordon', *NAMES[:2], '--ticket', 'RMA-1',
                           '-f', 'json'))
    assert len({row['UUID'] for row in cordons}) == 1
    assert [row['Node'] for row in cordons] == NAMES[:2]
    error = get_error(cli('create', '--resource-class', CLASS,
                          '--candidate-node', NAMES[0]))
    assert re.search(r'\| cordoned +\| +1 \|', error)
    table = get_output(cli('notice', 'list'))
    assert re.search(r'\| nt-1 +\| maintenance \| True +\| open ', table)
    ident = cordons[0]['UUID']
    assert get_output(cli('uncordon', 'nt-0')) == (
        f'Uncordoned node nt-0, closed notice {ident}\n')
    get_output(cli('create', '--resource-class', CLASS,
                   '--candidate-node', NAMES[0]))
    # Closing the others does not conflict with the closed one.
    assert get_output(cli('notice', 'close', ident, '--action', 'Fan')) == (
        f'Closed notice {ident}, node nt-1\n')
    assert [(row['state'], row['action'])
            for row in get_notices(ironic, uuid=ident)] == [
        ('closed', None), ('closed', 'Fan')]
    assert get_error(cli('notice', 'close', ident)) == (
        f'{ident}: It is closed already.\n')


def test_all_cordons_of_a_node_end(ironic, nodes, cli):
    for kind in 'maintenance', 'fault':
        get_output(cli('cordon', 'nt-0', '--kind', kind))
    # Neither keeps requests off the node now.
    get_output(cli('notice', 'create', '--kind', 'fault', 'nt-0'))
    # The clock of the client does not matter, so the second is a repeat.
    for _ in range(2):
        get_output(cli('cordon', 'nt-0', '--starts-at', '1h', '--uuid',
                       UNKNOWN))
    first, second, *others = get_notices(ironic, node='nt-0')
    [start] = (row['starts_at'] for row in others if row['uuid'] == UNKNOWN)
    output, error = get_failure(cli('uncordon', 'nt-1', 'nt-0'))
    assert output == (f'Uncordoned node nt-0, closed notices '
                      f'{first["uuid"]}, {second["uuid"]}; planned: {UNKNOWN} '
                      f'from {start}\n')
    assert error == 'nt-1: It has no open cordon.\n'
    assert get_notices(ironic, node='nt-0')[2:] == others
    # A planned cordon is named with the command that ends it.
    error = get_error(cli('uncordon', 'nt-0'))
    match = re.fullmatch(
        'nt-0: Its cordon has not started; use "openstack baremetal '
        'reservation (notice close .*)".\n', error)
    get_output(cli(*match[1].split()))
    assert not get_notices(ironic, node='nt-0', state='planned')


def test_all_nodes_or_none(ironic, nodes, cli):
    assert get_error(cli('cordon', 'nt-0', 'nt-9')).startswith('nodes.1: ')
    assert get_notices(ironic) == []


def test_rack(ironic, nodes, cli):
    rows = get_data(cli('cordon', '--by', 'capability:rack=r2',
                        '-f', 'json'))
    assert [row['Node'] for row in rows] == NAMES[2:]
    ironic.capacity()  # Hints may be as old as the counts.
    for by, hint in (
            ('capability:rack=r3', 'No node has the capability rack with the '
                                   'value r3. Known: r1, r2.'),
            ('capability:rak=r1', 'No node has the capability rak. Did you '
                                  'mean rack?'),
            ('rack=r1', 'There is no key rack. Did you mean capability:rack?'),
            ('shard=nt-shart', 'No node has the shard nt-shart. Did you mean '
                               'nt-shard?'),
            ('trait:CUSTOM_POD=CUSTOM_POD_1', 'No node has the trait '
                                              'CUSTOM_POD_1.')):
        first, error = get_error(cli('cordon', '--by', by)).splitlines()
        assert first == hint
        assert error.startswith('by')


def test_wrong_arguments(cli):
    for args, expected in (
            ('cordon', 'one of the arguments <node> --by is required'),
            ('cordon a --by shard=b', '--by: not allowed with argument'),
            ('cordon --by rack', '--by: "rack" is not <key>=<value>, such as '
                                 'capability:rack=r7'),
            ('cordon a --kind outage', "--kind: invalid choice: 'outage'"),
            ('cordon a --starts-at friday',
             '--starts-at: "friday" is not a valid time: give seconds, or a '
             'time such as 10m, 12h, 7d or 1h30m, or a time with a time zone '
             'such as 2030-12-31T18:00Z'),
            ('cordon a --starts-at 2030-01-01',
             '--starts-at: "2030-01-01": must be a time with a time zone'),
            ('cordon a --ends-at 2027-02-31T18:00Z',
             '--ends-at: "2027-02-31T18:00Z": there is no such day'),
            ('cordon a --ends-at 9999999w',
             '--ends-at: "9999999w" is too far in the future'),
            ('notice create a', 'arguments are required: --kind'),
            ('notice create a --kind fault --description ',
             '--description: must not be blank'),
            ('notice set a --no-end --ends-at 1h',
             '--ends-at: not allowed with argument --no-end'),
            ('notice list --ticket ', '--ticket: must not be blank'),
            ('uncordon', 'arguments are required: <node>'),
            ('report', 'arguments are required: <instance-or-node>')):
        result = cli(*args.split(' '))
        assert result.returncode == 2, args
        assert expected in result.stderr.splitlines()[0]


def test_wrong_input(ironic, nodes, cli):
    for args, expected in (
            # The error names the option, not the key of the request.
            (['cordon', 'nt-0', '--ends-at', '2020-01-01T00:00Z'],
             '--ends-at: must be later than '),
            (['cordon', 'nt-0', '--uuid', 'x'], 'uuid: must be a UUID'),
            (['notice', 'set', 'x', '--no-end'], '"x" is not a UUID'),
            (['notice', 'close', 'x'], 'x: uuid: must be a UUID'),
            (['notice', 'set', UNKNOWN, '--no-end'],
             f'No notice {UNKNOWN} could be found. (HTTP 404)'),
            (['notice', 'close', UNKNOWN],
             f'{UNKNOWN}: No notice {UNKNOWN} could be found. (HTTP 404)'),
            (['notice', 'close', UNKNOWN, '--node', 'nt-0'],
             f'{UNKNOWN}: No notice {UNKNOWN} of node nt-0 could be found.'),
            (['report', 'nt-0'], 'No reservation of node nt-0 could be '
                                 'found.')):
        error = get_error(cli(*args))
        assert error.startswith(expected), args
        assert error.count('\n') == 1, error
    assert get_notices(ironic) == []


def test_set_of_one_node(ironic, nodes, cli):
    ident = str(uuid.uuid4())
    get_output(cli('cordon', *NAMES, '--uuid', ident, '--ticket', 'A'))
    get_output(cli('notice', 'set', ident, '--node', nodes[1].id.upper(),
                   '--ticket', 'B', '--no-cordon'))
    assert [(row['ticket'], row['cordon'])
            for row in get_notices(ironic, uuid=ident)] == [
        ('A', True), ('B', False), ('A', True), ('A', True)]


def test_repeat(ironic, nodes, cli):
    cordon = 'cordon', *NAMES[:3], '--uuid', UNKNOWN, '-f', 'json'
    assert get_data(cli(*cordon)) == get_data(cli(*cordon))
    assert len(get_notices(ironic)) == 3
    assert get_error(cli(*cordon, '--ticket', 'T')).endswith('(HTTP 409)\n')
    # A repeat neither opens a notice nor cordons a node again.
    get_output(cli('notice', 'close', UNKNOWN, '--node', 'nt-0'))
    get_output(cli('notice', 'set', UNKNOWN, '--node', 'nt-1', '--no-cordon'))
    assert get_error(cli(*cordon)) == (
        f'Nothing was created: notice {UNKNOWN} exists already and has no '
        f'effect on nt-0 (closed), nt-1 (no cordon). Give another --uuid, or '
        f'none.\n')


def test_repeat_of_a_closed_report(ironic, nodes, cli):
    report = 'notice', 'create', '--kind', 'fault', 'nt-0', '--uuid', UNKNOWN
    get_output(cli(*report))
    get_output(cli('notice', 'close', UNKNOWN))
    assert 'has no effect on nt-0 (closed). ' in get_error(cli(*report))


def test_repeat_of_a_cordon_by_default(ironic, nodes, cli):
    create = ('notice', 'create', '--kind', 'maintenance', 'nt-0', '--uuid',
              UNKNOWN)
    get_output(cli(*create))
    get_output(cli('notice', 'set', UNKNOWN, '--no-cordon'))
    assert 'has no effect on nt-0 (no cordon). ' in get_error(cli(*create))


@pytest.mark.parametrize(('args', 'message'), [
    ('', 'No notices found.'),
    ('--state open --ticket T', 'No notices found with state open, ticket T.'),
    ('--node nt-0 --kind fault', 'No notices found with node nt-0, kind '
                                 'fault.')])
def test_empty_list_prints_its_filters(nodes, cli, args, message):
    result = cli('notice', 'list', *args.split(), '-f', 'json')
    assert (result.returncode, json.loads(result.stdout), result.stderr) == (
        0, [], message + '\n')


def test_control_characters(ironic, nodes, cli):
    get_output(cli('cordon', 'nt-0', '--ticket', 'T'))
    ironic.execute('UPDATE reservations_notices SET ticket = :t', t='t\x1b[2J')
    table = get_output(cli('notice', 'list'))
    assert '\x1b' not in table and r't\x1b[2J' in table
    row, = get_data(cli('notice', 'list', '-f', 'json'))
    assert row['Ticket'] == 't\x1b[2J'
    # These would reorder the rest of the line.
    ticket = ''.join(map(chr, (0x61c, 0x200e, 0x200f, *range(0x202a, 0x202f),
                               *range(0x2066, 0x206a))))
    get_output(cli('notice', 'set', row['UUID'], '--ticket', ticket))
    table = get_output(cli('notice', 'list'))
    assert ticket.encode('unicode_escape').decode() in table
    assert set(ticket).isdisjoint(table)
    row, = get_data(cli('notice', 'list', '-f', 'json'))
    assert row['Ticket'] == ticket


def test_reservation_with_notices(ironic, nodes, cli):
    hold = ironic.create(candidate_nodes=[NAMES[0]])
    ironic.set_node(hold['node_uuid'], health='Warning', maintenance=True)
    [row] = get_data(cli('cordon', NAMES[0], '--ticket', 'RMA-1', '--category',
                         'gpu', '--description', 'Fan 1', '-f', 'json'))
    get_output(cli('report', hold['instance_uuid']))
    notices = ironic.show(hold['instance_uuid'])['notices']
    assert [notice['kind'] for notice in notices] == ['maintenance', 'fault']
    data = get_data(cli('show', NAMES[0], '-f', 'json'))
    assert (data['health'], data['maintenance'], data['notices']) == (
        'Warning', True, notices)
    table = get_output(cli('show', NAMES[0]))
    assert re.search(
        r'\| notices +\| open maintenance, cordon, from \S+, gpu, Fan 1, '
        rf'ticket RMA-1, notice {row["UUID"]} +\|\n'
        r'\| +\| open fault, from \S+, notice \S+ +\|', table)
    [row] = get_data(cli('list', '--fields', 'health', 'notices', '--node',
                         NAMES[0], '-f', 'json'))
    assert row == {'Health': 'Warning', 'Notices': notices}
    [row] = get_data(cli('list', '--fields', 'notices', '--node', NAMES[0],
                         '-f', 'json'))
    assert row == {'Notices': notices}
    columns = ', '.join((
        'node_id', 'node_uuid', 'kind', 'cordon', 'starts_at',
        'is_failed_build', 'request_digest', 'created_at'))
    for number in range(5):
        ironic.execute(
            f'INSERT INTO reservations_notices (uuid, number, {columns}) '
            f'SELECT uuid, number + {2 ** number}, {columns} '
            f'FROM reservations_notices')
    assert re.search(r'\| +\| and 32 more +\|',
                     get_output(cli('show', NAMES[0])))


def test_group_with_health(ironic, nodes, cli):
    group = get_data(cli('group', 'create', '--members', '2',
                         '--resource-class', CLASS, '-f', 'json'))
    assert group['health'] == {}
    for member, health in zip(group['reservations'], ('OK', 'Critical'),
                              strict=True):
        ironic.set_node(member['node_uuid'], health=health)
    show = 'group', 'show', group['uuid']
    assert get_data(cli(*show, '-f', 'json'))['health'] == {
        'Critical': 1, 'OK': 1}
    assert re.search(r"\| health +\| Critical='1', OK='1' +\|",
                     get_output(cli(*show)))
