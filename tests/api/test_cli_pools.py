# SPDX-License-Identifier: Apache-2.0
"""The commands for pools."""

import re

import pytest

from tests.common import command
from tests.common import service
from tests.common.command import get_data
from tests.common.command import get_error
from tests.common.command import get_output

CLASS = 'baremetal.pools'
NAMES = [f'pn-{number}' for number in range(4)]
UNKNOWN = '99999999-2222-4333-8444-555555555555'


@pytest.fixture
def nodes(ironic):
    with ironic.fleet(*({'name': name, 'resource_class': CLASS,
                         'properties': {'capabilities': 'rack:r1'}}
                        for name in NAMES)) as nodes:
        yield nodes


@pytest.fixture
def cli(ironic, nodes):
    def run(*args):
        return command.run(ironic.url, 'baremetal', 'reservation', 'pool',
                           *args)
    return run


@pytest.fixture
def create(cli):
    def create(*args, members='2'):
        return cli('create', '--resource-class', CLASS, '--project', 'p',
                   '--members', members, *args)
    return create


def get_pools(ironic):
    return ironic.http.get(f'{service.OURS}/pools').json()['pools']


def test_life_of_a_pool(ironic, cli, create):
    pool = get_data(create('--uuid', UNKNOWN, '--description', 'Q1',
                           '--expires-in', '30d', '-f', 'json'))
    assert (pool['uuid'], pool['project_id'], pool['description'],
            pool['total'], pool['free']) == (UNKNOWN, 'p', 'Q1', 2, 2)
    days = ironic.seconds_left(pool) / 86400
    assert 29.9 < days < 30.1
    row, = get_data(cli('list', '--node', pool['nodes'][0]['name'],
                        '--project', 'p', '-f', 'json'))
    assert (row['UUID'], row['Total'], row['Healthy']) == (UNKNOWN, 2, 2)
    get_output(cli('set', UNKNOWN, '--no-expiry', '--description', ''))
    pool_now = get_data(cli('show', UNKNOWN, '-f', 'json'))
    assert (pool_now['expires_at'], pool_now['description']) == (None, None)
    get_output(cli('set', UNKNOWN, '--expires-at', '2040-01-01T00:00Z'))
    assert get_pools(ironic)[0]['expires_at'] == '2040-01-01T00:00:00+00:00'
    rest = [name for name in NAMES if name not in [
        node['name'] for node in pool['nodes']]]
    assert get_output(cli('add', UNKNOWN, *rest)) == (
        f'Added node {rest[0]}\nAdded node {rest[1]}\n')
    assert get_output(cli('remove', UNKNOWN, rest[0])) == (
        f'Removed node {rest[0]}\n')
    replacement = get_data(cli('replace', UNKNOWN, rest[1], '-f', 'json'))
    names = [node['name'] for node in replacement['nodes']]
    assert rest[0] in names and rest[1] not in names
    assert rest[0] in get_output(cli('show', UNKNOWN))
    assert get_output(cli('delete', UNKNOWN)) == f'Deleted pool {UNKNOWN}\n'
    assert get_pools(ironic) == []


def test_refusals(ironic, cli, create):
    error = get_error(create(members='5'))
    assert '4 of 5 members' in error
    assert 'Eliminated by' in error
    assert get_error(cli('set', UNKNOWN)).startswith('Nothing to set')
    assert get_error(cli('add', UNKNOWN, NAMES[0])).startswith(
        f'{NAMES[0]}: No pool {UNKNOWN} could be found.')
    assert re.search('expires.at', get_error(create(
        '--expires-at', '2001-01-01T00:00Z')))
    # The option, not the key of the body.
    result = cli('create', '--resource-class', CLASS, '--members', '1')
    assert result.returncode == 2 and '--project' in result.stderr
    assert get_pools(ironic) == []


def test_replace_without_a_match(ironic, cli, create):
    """The error comes after a table of the reasons."""
    pool = get_data(create('-f', 'json', members='4'))
    error = get_error(cli('replace', pool['uuid'], NAMES[0]))
    assert re.search(r'\| pool +\| +4 \|', error)
    assert len(ironic.http.get(f'{service.OURS}/pools/{pool["uuid"]}').json()[
        'nodes']) == 4


def test_levels(create):
    table = get_output(create(
        '--level', 'by=capability:rack,policy=pack,segment=1'))
    assert "by='capability:rack', policy='pack', segment='1'" in table
    assert re.search(r'pn-[0-3] +\| r1 +\| 1 ', table)


def test_dry_run(ironic, create):
    assert get_data(create('--dry-run', '-f', 'json'))['matching_nodes'] == 4
    assert get_pools(ironic) == []
