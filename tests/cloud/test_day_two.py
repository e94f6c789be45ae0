# SPDX-License-Identifier: Apache-2.0
"""Daily tasks of an operator, with the real command."""

import json
import re
import shlex
import subprocess

import pytest

from tests.cloud.operator import CLASS
from tests.cloud.operator import eventually
from tools import services
from tools import trial_cloud

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

#: Extra specs of a flavor without sizes.
NO_SIZES = {f'resources:{name}': '0'
            for name in ('VCPU', 'MEMORY_MB', 'DISK_GB')}
GOLD = {**NO_SIZES, 'resources:CUSTOM_BAREMETAL_GOLD': '1'}

#: Extra specs of flavors, and their explanations. Placement refuses the first
#: three.
FLAVORS = {
    'plain': ({}, 'no compute host offers MEMORY_MB'),
    'class': ({**NO_SIZES, 'resources:CUSTOM_BAREMETAL_GLOD': '1'},
              'no compute host offers the resource class '
              'CUSTOM_BAREMETAL_GLOD'),
    'trait': ({**GOLD, 'trait:CUSTOM_GPUU': 'required'},
              'no compute host that has room has the trait CUSTOM_GPUU'),
    'rack': ({**GOLD, 'capabilities:rack': 'r9'}, 'capabilities:rack=r9'),
}


@pytest.fixture
def flavors(cloud):
    """Return a function that creates a flavor and returns its name."""
    flavors, compute = [], cloud.connection.compute

    def make(specs):
        flavor = compute.create_flavor(
            name=f'day-two-{len(flavors)}', ram=1024, vcpus=1, disk=1)
        flavors.append(flavor)
        compute.create_flavor_extra_specs(flavor, specs)
        return flavor.name
    yield make
    for flavor in flavors:
        compute.delete_flavor(flavor)


def explain(cloud, *args, user='admin', status=1):
    process = cloud.openstack('baremetal', 'reservation', 'explain', *args,
                              '-f', 'json', user=user, check=False)
    assert process.returncode == status, process.stderr
    return json.loads(process.stdout)


def test_why_a_server_does_not_start(cloud, flavors):
    compute = cloud.connection.compute
    flavor = compute.find_flavor(flavors(FLAVORS['trait'][0]),
                                 ignore_missing=False)
    server = compute.create_server(name='day-two', **{
        **cloud.server_options(), 'flavor_id': flavor.id})
    assert cloud.settle([server.id]) == {server.id: 'ERROR'}
    result = explain(cloud, server.id)
    assert 'No valid host was found' in result['fault']
    assert result['placement'] == FLAVORS['trait'][1]
    assert result['matching_nodes'] == 0
    assert result['explanation']['nearest']['by'] == (
        'trait:CUSTOM_GPUU=required')
    # The command also explains it to the user.
    result = explain(cloud, '--flavor', flavor.name, user='demo')
    assert result['matching_nodes'] == 0


@pytest.mark.parametrize('name', FLAVORS)
def test_why_a_flavor_would_not_start(cloud, flavors, name):
    specs, reason = FLAVORS[name]
    result = explain(cloud, '--flavor', flavors(specs), '--image',
                     trial_cloud.IMAGE, '--project', 'demo')
    assert reason in json.dumps(result)
    assert ('placement' in result) == (name != 'rack')


def test_why_it_would_not_start_in_a_zone(cloud):
    def explain_zone(zone, status):
        return explain(cloud, '--flavor', trial_cloud.FLAVOR,
                       '--availability-zone', zone, status=status)
    assert explain_zone('cellar', 1)['placement'] == (
        'there is no availability zone cellar')
    compute = cloud.connection.compute
    attic = compute.create_aggregate(name='attic', availability_zone='attic')
    try:
        assert explain_zone('attic', 1)['placement'] == (
            'no compute host that has room is in the availability zone attic')
        compute.add_host_to_aggregate(attic, 'compute-1')
        assert 'placement' not in explain_zone('attic', 0)
        compute.remove_host_from_aggregate(attic, 'compute-1')
    finally:
        compute.delete_aggregate(attic)
    # Nova's own zone has the hosts that are in no other.
    assert 'placement' not in explain_zone('nova', 0)


def test_what_would_start(cloud):
    result = explain(cloud, '--flavor', trial_cloud.FLAVOR, '--project',
                     'demo', status=0)
    assert result['matching_nodes'] == sum(
        row['free'] for row in result['profiles']) == 12
    assert 'placement' not in result


def test_what_has_started_and_what_is_visible(cloud):
    server = cloud.create()['id']
    result = explain(cloud, server, status=0)
    assert result['instance_uuid'] == server and result['state'] == 'active'
    # The output says that the admin's project sees only a part.
    command = ['baremetal', 'reservation']
    part = cloud.openstack(*command, 'list', check=False)
    assert 'Only reservations visible to project admin ' in part.stderr
    # An invisible reservation is not reported as missing.
    other = cloud.openstack('baremetal', 'reservation', 'create',
                            '--resource-class', 'baremetal.gold',
                            '--expires-in', '10m', user='system')
    node = other['node_name']
    for verb, about in ('show', ''), ('delete', f'{node}: '):
        process = cloud.openstack(*command, verb, node, check=False)
        assert (process.returncode, process.stderr) == (
            1, f'{about}No reservation of {node} is visible to project '
               f'admin; use --all-projects to search all projects.\n')
    for args in (['list'], ['show', server], ['capacity', 'list'],
                 ['group', 'list'], ['host', 'list']):
        whole = cloud.openstack(*command, *args, '--all-projects',
                                check=False)
        assert whole.returncode == 0
        assert whole.stderr == {
            'group': 'No groups found.\n',
            'host': 'No compute hosts found.\n'}.get(args[0], '')
    assert server in {row['Instance UUID'] for row in cloud.openstack(
        *command, 'list', '--all-projects')}
    # The output does not suggest --all-projects without the admin role.
    assert cloud.openstack(
        *command, 'list', user='demo', check=False).stderr == (
        'No reservations found. Project demo can see only its own '
        'reservations and those on its nodes.\n')
    cloud.act(*command, 'delete', '--all-projects', other['instance_uuid'])


def follow_advice(cloud):
    """Run each command of the audit, and return the kinds of its rows."""
    process = cloud.openstack('baremetal', 'reservation', 'audit', '-f',
                              'json', check=False)
    assert process.returncode == 1, process.stderr
    rows = json.loads(process.stdout)
    instances = [row['Instance'] for row in rows if row['Instance']]
    assert len(instances) == len(set(instances)), 'two rows for one server'
    for command in dict.fromkeys(
            advice for row in rows
            for advice in re.findall(r'openstack (.*?)(?:;|$)',
                                     row['What to Do'])):
        # Ironic's own commands need system scope to see all nodes. The status
        # of --repair is 1 if other commands are needed.
        process = cloud.openstack(
            *shlex.split(command), check=False,
            user='system' if command.startswith('baremetal node') else
            'admin')
        assert not process.returncode or '--repair' in command, (
            process.stderr)
    return {(row['Kind'], row['Instance'] or row['Node']) for row in rows}


def test_what_the_audit_says_is_done(cloud):
    first, second, third = servers = cloud.boot_active(3)
    hosts = {row['instance_uuid']: row['host']
             for row in cloud.reservations()}
    other = next(host for host in cloud.cloud.hosts if host != hosts[first])
    response = cloud.system.baremetal.patch(
        f'/reservations/{first}',
        json=[{'op': 'replace', 'path': '/host', 'value': other}])
    assert response.status_code == 200, response.text
    cloud.sql('ironic', 'DELETE FROM reservations '
              'WHERE instance_uuid = :i', i=second)
    extra = [cloud.openstack(
        'baremetal', 'reservation', 'create', '--resource-class',
        'baremetal.gold', '--host', host, user='system')
        for host in (other, 'elsewhere')]
    unavailable = cloud.openstack(
        'baremetal', 'reservation', 'create', '--resource-class',
        'baremetal.gold', user='system')
    cloud.act('baremetal', 'node', 'manage', '--wait', '--',
              unavailable['node_uuid'], user='system')
    orphan = next(node for node in cloud.nodes() if not node.instance_id)
    cloud.act('baremetal', 'node', 'deploy', orphan.id, '--wait',
              user='system')
    allocate_twice(cloud, third)
    rows = follow_advice(cloud)
    assert rows >= {
        ('wrong-host', first), ('no-reservation', second),
        ('wrong-allocation', third),
        *(('no-server', reservation['instance_uuid'])
          for reservation in extra),
        ('unavailable', unavailable['instance_uuid']),
        ('orphan-node', orphan.name)}
    eventually(cloud.assert_no_findings)
    assert {row['instance_uuid']: row['host']
            for row in cloud.reservations()} == {
        server: hosts[server] for server in servers} | {
        unavailable['instance_uuid']: None}
    # Without findings, the output is a sentence.
    process = cloud.openstack('baremetal', 'reservation', 'audit',
                              check=False)
    assert process.stdout == (
        'Nothing disagrees: 3 servers, 4 reservations, 12 nodes.\n')
    cloud.act('baremetal', 'reservation', 'delete', '--all-projects',
              unavailable['instance_uuid'])
    # Free the node of the lease that --repair has expired.
    cloud.sweep()


def allocate_twice(cloud, server):
    """Add an allocation of another host to a server, like an evacuation."""
    placement = cloud.connection.placement
    url = f'/allocations/{server}'
    body = placement.get(url, microversion='1.28').json()
    [provider] = body['allocations']
    other = next(row.id for row in placement.resource_providers()
                 if row.id != provider)
    response = placement.put(url, microversion='1.28', json={
        **{name: body[name] for name in (
            'consumer_generation', 'project_id', 'user_id')},
        'allocations': {name: {'resources': {CLASS: 1}}
                        for name in (provider, other)}})
    assert response.status_code == 204, response.text


def run(cloud, *args, **options):
    return cloud.openstack('baremetal', 'reservation', *args, **options)


def get_error(cloud, *args, user='admin', status=1):
    """Return the standard error of a command that fails."""
    process = run(cloud, *args, user=user, check=False)
    assert (process.returncode, process.stdout) == (status, '')
    return process.stderr


def test_what_is_free(cloud):
    rows = run(cloud, 'capacity', 'list', '--all-projects', '--by',
               'capability:rack')
    assert {row['capability:rack']: row['Free'] for row in rows} == {
        f'r{number}': 3 for number in range(1, 5)}


def test_segments(cloud):
    """Two racks of a pod: a machine is replaced, a server claims one."""
    group = run(cloud, 'group', 'create', '--resource-class',
                'baremetal.gold', '--members', '4', '--expires-in', '10m',
                '--level', 'by=capability:pod,policy=pack', '--level',
                'by=capability:rack,policy=pack,segment=2', '--project',
                'admin', user='system')
    try:
        pods, racks = zip(*(row['value'] for row in group['domains']),
                          strict=True)
        assert len(set(pods)) == 1
        assert set(racks) == {'p1': {'r1', 'r2'},
                              'p2': {'r3', 'r4'}}[pods[0]]
        member = group['reservations'][0]
        cloud.act('baremetal', 'reservation', 'delete', member['node_name'],
                  user='system')
        again = run(cloud, 'create', '--resource-class', 'baremetal.gold',
                    '--group', group['uuid'], '--segment',
                    str(member['group']['segment']), '--expires-in', '10m',
                    '--project', 'admin', user='system')
        assert again['group'] == member['group']
        server = cloud.create('--property', 'reservations:claim='
                              f'{group["uuid"]}:1')
        reservation = run(cloud, 'show', server['id'], user='system')
        places = {row['node_uuid']: row['group']
                  for row in [*group['reservations'], again]}
        assert reservation['group'] == places[reservation['node_uuid']]
        assert reservation['group']['segment'] == 1
        cloud.act('server', 'delete', '--wait', server['id'])
    finally:
        cloud.act('baremetal', 'reservation', 'group', 'delete',
                  group['uuid'], user='system')


def test_what_the_project_holds(cloud):
    cloud.openstack('registered', 'limit', 'create', '--service', 'ironic',
                    '--default-limit', '5', 'baremetal_reservations',
                    user='system')
    limit, = (row['ID'] for row in cloud.openstack(
        'registered', 'limit', 'list', '--resource-name',
        'baremetal_reservations', user='system'))
    reservation = run(cloud, 'create', '--resource-class', 'baremetal.gold',
                      '--project', 'demo', '--expires-in', '10m',
                      user='system')
    try:
        rows = run(cloud, 'list', '--usage', user='demo')
        assert [list(row.values())[1:] for row in rows] == [
            ['demo', None, 1, 5], ['demo', CLASS, 1, None]]
        assert rows[0]['Project ID'] == reservation['project_id']
        all_rows = run(cloud, 'list', '--usage', '--all-projects')
        assert all(row in all_rows for row in rows)
        # The admin's project has no reservations.
        assert ['admin', None, 0, 5] in [
            list(row.values())[1:] for row in all_rows]
    finally:
        cloud.act('baremetal', 'reservation', 'delete', '--all-projects',
                  reservation['instance_uuid'])
        cloud.act('registered', 'limit', 'delete', limit, user='system')


def test_unhealthy_machine(cloud):
    """A machine of critical health is not reserved."""
    node = cloud.nodes()[0]

    def health(value):
        cloud.sql('ironic', 'UPDATE nodes SET health = :h '
                            'WHERE uuid = :n', h=value, n=node.id)
    command = ('create', '--candidate-node', node.id, '--expires-in', '10m')
    health('Critical')
    try:
        error = get_error(cloud, *command, user='system')
        assert re.search(r'\| health +\| +1 \|\n', error)
        [row] = run(cloud, 'capacity', 'list', '--by',
                    'resource_class', '--long', '--no-cache',
                    user='system')
        assert (row['Free'], row['Out Of Service']) == (11, 1)
        health('Warning')
        reservation = run(cloud, *command, user='system')
        assert reservation['node_uuid'] == node.id
    finally:
        health(None)
        cloud.act('baremetal', 'reservation', 'delete', node.id,
                  user='system')


def test_may_my_project_hold_from_the_pool(cloud):
    command = ('create', '--resource-class', 'baremetal.gold',
               '--expires-in', '10m', '--ownership', 'project_or_none')
    rules = cloud.cloud.folder / 'ironic' / 'policy.yaml'
    assert '(HTTP 403)' in get_error(cloud, *command, user='demo')
    rules.write_text('"baremetal:reservation:create_unowned": "role:member"')
    try:
        reservation = eventually(lambda: run(cloud, *command, user='demo'))
        assert [row['Node'] for row in run(cloud, 'list', user='demo')
                ] == [reservation['node_name']]
        cloud.act('baremetal', 'reservation', 'delete',
                  reservation['instance_uuid'], user='demo')
    finally:
        rules.unlink()
    eventually(lambda: get_error(
        cloud, *command, '--dry-run', user='demo'))


def test_what_is_wrong_with_my_command(cloud):
    assert get_error(cloud, 'create').startswith(
        'Nothing constrains the node: give --flavor, --resource-class, ')
    error = get_error(cloud, 'create', '--resource-class', 'baremetal.glod',
                      '--trait', 'CUSTOM_NVEM', user='system')
    assert ('No node has the resource class baremetal.glod. Did you mean '
            'baremetal.gold?\n') in error
    error = get_error(cloud, 'create', '--ram', 'much', status=2)
    assert 'argument --ram: "much" is not a valid size' in error
    assert error.count('\n') == 2
    url = f'http://127.0.0.1:{services.free_port()}'
    process = run(cloud, 'list', check=False, environment={
        'OS_BAREMETAL_ENDPOINT_OVERRIDE': url})
    assert process.returncode == 1
    [line] = process.stderr.splitlines()
    assert line.startswith(f'Unable to establish connection to {url}/')
    # The checks before an upgrade succeed in this cloud.
    process = subprocess.run(
        [services.program('ironic-reservations-status'), '--config-file',
         cloud.cloud.folder / 'ironic' / 'ironic.conf', 'upgrade', 'check'],
        capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stdout
