# SPDX-License-Identifier: Apache-2.0
"""The audit of a real Ironic: pools, notices, and expired reservations."""

import json
import shlex
import time
from unittest import mock
import uuid

import pytest

from ironic_reservations.osc import client
from ironic_reservations.osc.audit import command as audit
from ironic_reservations.osc.audit import reader
from tests.common import command
from tests.common import contract
from tests.common import service

CLASS = 'baremetal.audit'


@pytest.fixture
def fleet(ironic):
    with ironic.fleet(*({'name': f'audit-{number}', 'resource_class': CLASS}
                        for number in range(5))) as nodes:
        yield nodes


@pytest.fixture
def run_audit(ironic, monkeypatch):
    """Return a function that runs the audit in this process."""
    monkeypatch.setattr(audit, 'PAUSE', 0)

    def run(*args):
        return command.run(ironic.url, 'baremetal', 'reservation', 'audit',
                           *args)
    return run


@pytest.fixture
def find(run_audit):
    """Return a function that runs the audit and returns its only finding."""
    def find():
        result = run_audit('-f', 'json')
        assert result.returncode == 1, result.stderr
        row, = json.loads(result.stdout)
        return row
    return find


def add_pool(ironic, node):
    """Create a pool of project east with one node; return its UUID."""
    response = ironic.http.post(f'{service.OURS}/pools', json={
        'project_id': 'east', 'members': 1,
        'request': {'candidate_nodes': [node.id]}})
    contract.check(response, 201)
    return response.json()['uuid']


@pytest.mark.parametrize('maximum, requests', [(1000, 1), (2, 3)])
def test_expired_leases(ironic, fleet, run_audit, monkeypatch, maximum,
                        requests):
    """A dry run finds that their nodes are free, for all of them at once."""
    monkeypatch.setattr(reader, 'DRY_RUN_NODES', maximum)
    for node in fleet:
        hold = ironic.create(candidate_nodes=[node.id], expires_in=3600)
        ironic.expire(hold['instance_uuid'])
    with mock.patch.object(client, 'request_ironic',
                           wraps=client.request_ironic) as request:
        result = run_audit()
    assert result.stdout == 'Nothing disagrees: 0 reservations, 5 nodes.\n'
    assert [call.args[1] for call in request.mock_calls].count(
        'POST') == requests


def test_instance_in_a_pool(ironic, fleet, find):
    """To other projects, a node of a pool does not look reserved."""
    node, *_ = fleet
    add_pool(ironic, node)
    ironic.set_node(node.id, instance_uuid=str(uuid.uuid4()))
    row = find()
    assert (row['Kind'], row['Node']) == ('unknown-instance', node.name)


def test_dedicated_nodes(ironic, find):
    """They match only dry runs that require their traits."""
    both = ['CUSTOM_DEDICATED_A', 'CUSTOM_DEDICATED_B']
    traits = [[], both[:1], both, both]
    with ironic.fleet(*({'name': f'dedicated-{number}',
                         'resource_class': CLASS, 'traits': traits[number]}
                        for number in range(4))) as nodes:
        for node, required in zip(nodes[:3], traits[:3], strict=True):
            hold = ironic.create(
                candidate_nodes=[node.id], expires_in=3600, extra_specs={
                    f'trait:{trait}': 'required' for trait in required})
            ironic.expire(hold['instance_uuid'])
        ironic.set_node(nodes[3].id, instance_uuid=str(uuid.uuid4()))
        row = find()
        assert (row['Kind'], row['Node']) == ('unknown-instance',
                                              nodes[3].name)


def test_conflict_with_a_pool(ironic, fleet, run_audit, find):
    """Ironic's own API deploys a node of a pool for another project."""
    first, second, *_ = fleet
    instance = str(uuid.uuid4())
    pool, _ = add_pool(ironic, first), add_pool(ironic, second)
    ironic.create(candidate_nodes=[second.id], project_id='east')
    ironic.set_node(first.id, instance_uuid=instance, lessee='west',
                    provision_state='active')
    row = find()
    assert (row['Kind'], row['Instance'], row['Node']) == (
        'pool-conflict', instance, first.name)
    _, _, advice = row['What to Do'].partition(': ')
    assert advice == (f'openstack baremetal reservation pool replace '
                      f'{pool} {first.name}')
    for table in 'pool_nodes', 'pools':
        ironic.execute(f'DELETE FROM reservations_{table}')
    assert run_audit().stdout.startswith('Nothing disagrees: ')


def test_notices(ironic, fleet, run_audit):
    """Overdue work, and a machine that a project has given back as broken."""
    late, faulty, later, *_ = fleet
    for kind, node, due_at in (('maintenance', late, 1),
                               ('maintenance', later, 3600),
                               ('fault', faulty, 3600)):
        contract.check(ironic.http.post(f'{service.OURS}/notices', json={
            'kind': kind, 'nodes': [node.id], 'cordon': True,
            'due_at': {'in': due_at}}), 201)
    ironic.execute("UPDATE reservations_notices SET project_id = 'east' "
                   "WHERE kind = 'fault'")
    time.sleep(2)
    for options in [], ['--repair']:
        result = run_audit('-f', 'json', *options)
        assert result.returncode == 1
        rows = json.loads(result.stdout)
        assert [(row['Kind'], row['Instance'], row['Node'])
                for row in rows] == [('overdue-notice', None, late.name),
                                     ('project-cordon', None, faulty.name)]
        for row in rows:
            _, _, advice = row['What to Do'].partition(': ')
            # It shows the notice.
            assert f' {row["Node"]} ' in command.get_output(command.run(
                ironic.url, *shlex.split(advice)[1:]))
    ironic.execute('DELETE FROM reservations_notices')
    assert run_audit().stdout.startswith('Nothing disagrees: ')
