# SPDX-License-Identifier: Apache-2.0
"""The openstack command for groups with segments."""

import json
import re

import pytest

from tests.api import test_cli
from tests.api import test_segments
from tests.common.command import get_data
from tests.common.command import get_error
from tests.common.command import get_output

GROUP, OTHER = test_cli.UNKNOWN, test_cli.OTHER
CLASS = 'baremetal.segments'
POD, RACK = test_segments.POD, test_segments.RACK
LEVELS = ('--level', f'by={POD},policy=pack',
          '--level', f'by={RACK},policy=pack,segment=2')
CREATE = ('group', 'create', '--resource-class', CLASS)

app, cli = test_cli.app, test_cli.cli


@pytest.fixture
def fleet(ironic):
    """The nodes of test_segments, of which pod p1 has room for three."""
    with ironic.fleet(*(
            {**node, 'name': f'seg-{number}', 'resource_class': CLASS}
            for number, node in enumerate(test_segments.POOL))) as nodes:
        yield nodes


@pytest.fixture
def group(cli):
    """A group of two segments, in both racks of the first pod."""
    return get_data(cli(*CREATE, '--members', '6', *LEVELS, '--uuid', GROUP,
                        '-f', 'json'))


def test_group_is_a_tree(cli, group):
    table = get_output(cli('group', 'show', GROUP))
    lines = [line.split('|')[2][1:].rstrip() for line in table.splitlines()
             if line.startswith('|')]
    start = lines.index('p1')
    # Any nodes of a rack are a segment.
    assert [re.sub(r'seg-\d', 'node', line)
            for line in lines[start:start + 12]] == [
        'p1',
        '├── r1',
        '│   ├── segment 1',
        '│   │   ├── node reserved',
        '│   │   └── node reserved',
        '│   └── segment 2',
        '│       ├── node reserved',
        '│       └── node reserved',
        '└── r2',
        '    └── segment 0',
        '        ├── node reserved',
        '        └── node reserved']
    assert 'p1 / r1: 4' in lines and 'p1 / r2: 2' in lines
    assert f"by='{RACK}', policy='pack', segment='2'" in lines
    response = get_data(cli('group', 'show', GROUP, '-f', 'json'))
    assert response == group
    assert response['levels'] == test_segments.LEVELS
    assert response['domains'] == [{'value': ['p1', 'r1'], 'nodes': 4},
                                   {'value': ['p1', 'r2'], 'nodes': 2}]
    assert {row['group']['segment'] for row in response['reservations']} == {
        0, 1, 2}


def test_tree_in_ascii(cli, group, monkeypatch):
    monkeypatch.setattr('rich.console.Console.encoding', 'ascii')
    assert get_output(cli('group', 'show', GROUP, '-f', 'value', '-c',
                          'reservations')).isascii()


def test_list(cli, group):
    get_output(cli(*CREATE, '--members', '1', '--uuid', OTHER))
    rows = get_data(cli('group', 'list', '-f', 'json'))
    assert [(row['Segments'], row['Policy'], row['By']) for row in rows] == [
        (3, ['pack', 'pack'], [POD, RACK]), (None, None, None)]
    assert rows[0]['Domains'][0] == {'value': ['p1', 'r1'], 'nodes': 4}
    table = get_output(cli('group', 'list'))
    assert f'| pack   | {POD}  |        3 |' in table
    assert f'| pack   | {RACK} |' in table


def test_refusal(cli, fleet):
    *_, nearest, segments, error = get_error(
        cli(*CREATE, '--members', '8', *LEVELS)).splitlines()
    assert nearest == f'3 segments, 6 nodes, could be held in {POD} p1'
    assert segments == f'Segments: 4 wanted, 3 can be held, limited by {POD}'
    assert error.startswith('6 of 8 members can be held at once: ')


def test_dry_run(cli, fleet):
    args = *CREATE, '--members', '8', *LEVELS, '--dry-run'
    result = cli(*args)
    assert result.returncode == 1
    for line in ('| members        | 8 wanted, 6 can be held ',
                 '| segments       | 4 wanted, 3 can be held ',
                 f'| level          | {POD} ',
                 '| domains        | p1 / r1: 4 ',
                 f'| 3 segments, 6 nodes, could be held in {POD} p1 '):
        assert line in result.stdout
    response = json.loads(cli(*args, '-f', 'json').stdout)
    assert response['segments'] == {'wanted': 4, 'available': 3}
    assert response['level'] == POD
    enough = get_data(cli(*CREATE, '--members', '6', *LEVELS, '--dry-run',
                          '-f', 'json'))
    assert 'level' not in enough


def test_repair_and_claim(cli, group):
    member = next(row for row in group['reservations']
                  if row['group']['segment'] == 0)
    get_output(cli('delete', member['node_name']))
    repair = ('create', '--resource-class', CLASS, '--group', GROUP,
              '--segment', '0')
    assert get_data(cli(*repair, '-f', 'json'))['group'] == member['group']
    assert 'already has' in get_error(cli(*repair))
    claim = get_data(cli('create', '--claim', f'{GROUP}:0', '-f', 'json'))
    assert claim['group'] == member['group']
    assert get_error(cli('create', '--claim', f'{GROUP}:x')).startswith(
        'claim: must be a UUID, or the UUID of a group, ":" and ')


def test_wrong_input(app, cli, fleet):
    app.capacity()
    one, other = LEVELS[1::2]
    for args, expected in (
            (['--level', f'{one},size=2'],
             '--level: Invalid keys size specified. Valid keys are: '),
            (['--level', f'by={POD}'],
             '--level: Missing required keys policy. Required keys are: '),
            (['--level', POD], "--level: Expected comma separated "
             f"'key=value' pairs, but got: {POD}"),
            (['--level', f'{one},segment=x'],
             '--level: segment "x" is not a whole number'),
            (['--level', f'{one},by={RACK}'],
             '--level: a key is given more than once'),
            (['--level', one, '--pack', RACK],
             '--pack: not allowed with argument --level')):
        result = cli(*CREATE, '--members', '2', *args)
        assert result.returncode == 2
        error, reference = result.stderr.splitlines()
        assert expected in error and reference.startswith('See "')
    for args, expected in (
            ([*CREATE, '--members', '3', *LEVELS],
             'levels.1.segment: must divide the number of members, 3; '),
            ([*CREATE, '--members', '2', '--level', f'by={POD},policy=near'],
             'levels.0.policy: must be one of '),
            (['create', '--resource-class', CLASS, '--segment', '1'],
             '--segment is a part of a group: name it with --group'),
            (['create', '--resource-class', CLASS, '--segment', '1',
              '--group', GROUP], f'No group {GROUP} could be found.')):
        assert get_error(cli(*args)).startswith(expected)
    hint, error = get_error(cli(*CREATE, '--members', '2', '--level', other,
                                '--level', 'by=pod,policy=pack')).splitlines()
    assert hint == f'There is no key pod. Did you mean {POD}?'
    assert error.startswith('levels.1.by: must be one of ')
    assert 'No node has the capability rak. Did you mean rack?\n' in (
        get_error(cli(*CREATE, '--members', '2', '--level', one, '--level',
                      'by=capability:rak,policy=pack,segment=2')))


def test_member_is_shown_without_the_levels(cli, group):
    table = get_output(cli('create', '--resource-class', CLASS, '--claim',
                           f'{GROUP}:2'))
    assert re.search(rf"domain='p1 / r\d', segment='2', uuid='{GROUP}'", table)
