# SPDX-License-Identifier: Apache-2.0
"""The scripts for NVIDIA's suite, with responses of the API.

On a cloud: tests/cloud/test_nvidia.py.
"""

import contextlib
import io
import json
import pathlib
import runpy
import sys
import types
from unittest import mock

import openstack
from openstack import exceptions
import pytest

from ironic_reservations import sdk

SCRIPTS = (pathlib.Path(__file__).parents[2]
           / 'doc/source/examples/nvidia')
PROJECT, NODE, OTHER, THIRD = (
    f'{digit}1111111-2222-4333-8444-555555555555' for digit in '1234')
NOTICE = {'uuid': THIRD, 'node_uuid': NODE, 'kind': 'fault', 'state': 'open',
          'cordon': True, 'created_by': None, 'description': 'XID 79',
          'starts_at': '2030-01-01T06:00:00Z', 'ends_at': None,
          'created_at': '2029-12-01T06:00:00Z'}


@pytest.fixture
def clouds(monkeypatch):
    """The connections by the names of their clouds, without calls."""
    monkeypatch.syspath_prepend(SCRIPTS)
    connections = {name: mock.Mock(spec_set=(
        'baremetal_reservations', 'compute', 'current_project_id'))
        for name in ('demo', 'system')}
    for conn in connections.values():
        conn.current_project_id = PROJECT
        conn.baremetal_reservations = mock.Mock(spec_set=sdk.Proxy)
    monkeypatch.setattr(openstack, 'connect',
                        lambda cloud: connections[cloud])
    monkeypatch.setattr(sdk, 'add_to', lambda conn: None)
    return types.SimpleNamespace(**connections)


def run(name, *args, status=0):
    """Run a script as the project, and return what it prints."""
    with mock.patch.object(sys, 'argv', [name, '--cloud', 'demo', *args]), \
            contextlib.redirect_stdout(io.StringIO()) as output, \
            pytest.raises(SystemExit) as end:
        runpy.run_path(SCRIPTS / f'{name}.py')
    assert end.value.code == status, output.getvalue()
    result = json.loads(output.getvalue())
    assert result.pop('success') == (status == 0)
    assert result.pop('platform') == 'openstack'
    return result


def make_pool(description, *nodes):
    return sdk.Pool(description=description, nodes=[
        {'uuid': uuid, 'reason': reason, 'replaces': replaces}
        for uuid, reason, replaces in nodes])


def test_discovery(clouds):
    calls = clouds.demo.baremetal_reservations
    before = make_pool('GB300', (NODE, 'create', None),
                       (THIRD, 'add', None))
    after = make_pool('GB300', (NODE, 'create', None),
                      (OTHER, 'replace', THIRD))
    calls.pools.return_value = [before]
    calls.show_pool.side_effect = [before, after]
    assert run('query_resource_discovery', '--poll-interval', '0') == {
        'polls': 2, 'poll_interval_seconds': 0, 'resources_checked': 2,
        'unstable_identifiers': [THIRD], 'resources': [
            {'resource_id': NODE, 'discovered': True,
             'delivery_reason': 'create: GB300'},
            {'resource_id': OTHER, 'discovered': True,
             'delivery_reason': f'replace {THIRD}: GB300'}]}
    pool = make_pool(None, (NODE, 'add', None))
    calls.pools.return_value, calls.show_pool.side_effect = [pool], [pool] * 2
    result = run('query_resource_discovery', '--poll-interval', '0')
    assert result['unstable_identifiers'] == []
    assert [row['delivery_reason'] for row in result['resources']] == ['add']
    calls.pools.return_value = []
    assert run('query_resource_discovery', '--poll-interval', '0') == {
        'skipped': True, 'skip_reason': 'The project has no pool'}


@pytest.mark.parametrize('operator', ['', 'system'])
@pytest.mark.parametrize(('state', 'matching_nodes', 'is_quarantined'), [
    ('open', 0, True), ('open', 1, False), ('closed', 0, False),
    (None, 0, False)])
def test_return(clouds, operator, state, matching_nodes, is_quarantined):
    calls = clouds.demo.baremetal_reservations
    calls.show.return_value = sdk.Reservation(
        instance_uuid=OTHER, node_uuid=NODE)
    server = clouds.demo.compute.get_server.return_value
    server.id = OTHER
    clouds.demo.compute.find_server.return_value = None
    # Who cordons the machine.
    calls = getattr(clouds, operator or 'demo').baremetal_reservations
    calls.create_notices.return_value = [sdk.Notice(**NOTICE)]
    calls.notices.return_value = [
        sdk.Notice(**{**NOTICE, 'state': state})] if state else []
    calls.dry_run.return_value = {'matching_nodes': matching_nodes}
    assert run('return_node_maintenance', '--instance-id', OTHER,
               '--operator-cloud', operator)['operation'] == {
        'requested': True, 'accepted': True, 'instance_deleted': True,
        'machine_quarantined': is_quarantined, 'instance_id': OTHER,
        'machine_id': NODE}
    (kind,), body = calls.create_notices.call_args
    assert (kind, body['nodes'], body['cordon']) == ('fault', [NODE], True)
    assert [call[0] for call in clouds.demo.compute.method_calls] == [
        'get_server', 'delete_server', 'wait_for_delete', 'find_server']


def test_return_without_a_cordon(clouds):
    """The server stays."""
    clouds.demo.baremetal_reservations.create_notices.side_effect = (
        exceptions.ForbiddenException('project_cordons'))
    result = run('return_node_maintenance', '--instance-id', OTHER,
                 '--operator-cloud', '', status=1)
    assert 'project_cordons' in result['error']
    assert not clouds.demo.compute.method_calls


def test_return_of_no_server(clouds):
    result = run('return_node_maintenance', '--instance-id', '',
                 '--operator-cloud', '')
    assert result == {'skipped': True, 'skip_reason':
                      'This deletes a server: set instance_id'}


def test_notifications(clouds, tmp_path):
    """Only those that were mailed to this project, and the first mail."""
    calls = clouds.demo.baremetal_reservations
    calls.notices.return_value = [
        sdk.Notice(**NOTICE),
        sdk.Notice(**{**NOTICE, 'node_uuid': OTHER})]
    path = tmp_path / 'deliveries'
    path.write_text(''.join(json.dumps({
        'delivered_at': f'2029-12-01T06:00:0{second}Z', 'uuid': THIRD,
        'node_uuid': NODE, 'project_id': project, 'kind': 'fault',
        'state': 'open', 'address': 'a@example.com'}) + '\n'
        for second, project in enumerate((OTHER, PROJECT, PROJECT))))
    mail = {'machine_id': NODE, 'message': 'XID 79',
            'notified_at': '2029-12-01T06:00:01Z'}
    assert run('query_failure_notifications', '--deliveries', str(path)) == {
        'notification_channel_observable': True, 'notifications': [
            {**mail, 'type': 'node_failure',
             'detected_at': '2029-12-01T06:00:00Z'}]}
    assert run('query_planned_notifications', '--deliveries', str(path)) == {
        'notification_channel_observable': True, 'notifications': [
            {**mail, 'type': 'planned_maintenance',
             'window_start': '2030-01-01T06:00:00Z'}]}
    # Its own report, and work without a lead time.
    calls.notices.return_value = [sdk.Notice(**{
        **NOTICE, 'created_by': 'u', 'starts_at': NOTICE['created_at']})]
    for name in 'failure', 'planned':
        assert run(f'query_{name}_notifications', '--deliveries',
                   str(path))['notifications'] == []
    path.unlink()
    result = run('query_failure_notifications', '--deliveries', str(path),
                 status=1)
    assert 'No such file' in result['error']
