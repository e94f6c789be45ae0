# SPDX-License-Identifier: Apache-2.0
"""The questions of an operator's day, asked with the command."""

import json
import re
import shlex
import subprocess
import textwrap

import pytest

from tests.cloud import test_switching
from tests.cloud.operator import CLASS
from tests.cloud.operator import eventually
from tools import cloud as tools_cloud
from tools import services

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

#: Nothing of these is asked of Placement.
NO_SIZES = {f'resources:{name}': '0'
            for name in ('VCPU', 'MEMORY_MB', 'DISK_GB')}
GOLD = {**NO_SIZES, 'resources:CUSTOM_BAREMETAL_GOLD': '1'}

#: Extra specs of flavors, and what is said of each. Placement refuses the
#: first three before any compute host is asked.
FLAVORS = {
    'plain': ({}, 'no compute host offers VCPU'),
    'class': ({**NO_SIZES, 'resources:CUSTOM_BAREMETAL_GLOD': '1'},
              'no compute host offers the resource class '
              'CUSTOM_BAREMETAL_GLOD'),
    'trait': ({**GOLD, 'trait:CUSTOM_GPUU': 'required'},
              'no compute host that has room has the trait CUSTOM_GPUU'),
    'rack': ({**GOLD, 'capabilities:rack': 'r9'}, 'capabilities:rack=r9'),
}


@pytest.fixture
def flavors(cloud):
    """Makes a flavor of a size that machines have; its name."""
    made, compute = [], cloud.connection.compute

    def make(specs):
        flavor = compute.create_flavor(
            name=f'day-two-{len(made)}', ram=1024, vcpus=1, disk=1)
        made.append(flavor)
        compute.create_flavor_extra_specs(flavor, specs)
        return flavor.name
    yield make
    for each in made:
        compute.delete_flavor(each)


def explain(cloud, *args, user='admin', status=1):
    done = cloud.openstack('baremetal', 'reservation', 'explain', *args,
                           '-f', 'json', user=user, check=False)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def test_why_a_server_does_not_start(cloud, flavors):
    compute = cloud.connection.compute
    flavor = compute.find_flavor(flavors(FLAVORS['trait'][0]),
                                 ignore_missing=False)
    server = compute.create_server(name='day-two', **{
        **cloud.wanted(), 'flavor_id': flavor.id})
    assert cloud.settled([server.id]) == {server.id: 'ERROR'}
    found = explain(cloud, server.id)
    assert 'No valid host was found' in found['fault']
    assert found['placement'] == FLAVORS['trait'][1]
    assert found['matching_nodes'] == 0
    assert found['explanation']['nearest']['by'] == (
        'trait:CUSTOM_GPUU=required')
    # The user who is left with "No valid host was found" is told, too.
    found = explain(cloud, '--flavor', flavor.name, user='demo')
    assert found['matching_nodes'] == 0


@pytest.mark.parametrize('name', FLAVORS)
def test_why_a_flavor_would_not_start(cloud, flavors, name):
    specs, why = FLAVORS[name]
    found = explain(cloud, '--flavor', flavors(specs), '--image',
                    tools_cloud.IMAGE, '--project', 'demo')
    assert why in json.dumps(found)
    assert ('placement' in found) == (name != 'rack')


def test_why_it_would_not_start_in_a_zone(cloud):
    def asked(zone, status):
        return explain(cloud, '--flavor', tools_cloud.FLAVOR,
                       '--availability-zone', zone, status=status)
    assert asked('cellar', 1)['placement'] == (
        'there is no availability zone cellar')
    compute = cloud.connection.compute
    attic = compute.create_aggregate(name='attic', availability_zone='attic')
    try:
        assert asked('attic', 1)['placement'] == (
            'no compute host that has room is in the availability zone attic')
        compute.add_host_to_aggregate(attic, 'compute-1')
        assert 'placement' not in asked('attic', 0)
        compute.remove_host_from_aggregate(attic, 'compute-1')
    finally:
        compute.delete_aggregate(attic)
    # Nova's own, of the hosts that are in no other.
    assert 'placement' not in asked('nova', 0)


def test_what_would_start(cloud):
    found = explain(cloud, '--flavor', tools_cloud.FLAVOR, '--project',
                    'demo', status=0)
    assert found['matching_nodes'] == sum(
        each['free'] for each in found['profiles']) == 12
    assert 'placement' not in found


def test_what_has_started_and_is_that_all(cloud):
    server = cloud.create()['id']
    found = explain(cloud, server, status=0)
    assert found['instance_uuid'] == server and found['state'] == 'active'
    # The project of the admin sees its own; a part is called a part.
    command = ['baremetal', 'reservation']
    part = cloud.openstack(*command, 'list', check=False)
    assert 'Only reservations visible to project admin ' in part.stderr
    # What the project does not see is not said to be missing.
    other = cloud.openstack('baremetal', 'reservation', 'create',
                            '--resource-class', 'baremetal.gold',
                            '--expires-in', '10m', user='system')
    node = other['node_name']
    for verb, about in ('show', ''), ('delete', f'{node}: '):
        hidden = cloud.openstack(*command, verb, node, check=False)
        assert (hidden.returncode, hidden.stderr) == (
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
    # A user without an admin role is not offered all projects.
    assert cloud.openstack(
        *command, 'list', user='demo', check=False).stderr == (
        'No reservations found. Project demo can see only its own '
        'reservations and those on its nodes.\n')
    cloud.act(*command, 'delete', '--all-projects', other['instance_uuid'])


def obey(cloud):
    """Run each command that the audit says; the kinds of its lines."""
    done = cloud.openstack('baremetal', 'reservation', 'audit', '-f', 'json',
                           check=False)
    assert done.returncode == 1, done.stderr
    rows = json.loads(done.stdout)
    instances = [row['Instance'] for row in rows if row['Instance']]
    assert len(instances) == len(set(instances)), 'two lines for one server'
    for command in dict.fromkeys(
            found for row in rows
            for found in re.findall(r'openstack (.*?)(?:;|$)',
                                    row['What to Do'])):
        # Ironic's own commands see all nodes in system scope alone. --repair
        # says with its status what is left to the other commands.
        mended = cloud.openstack(
            *shlex.split(command), check=False,
            user='system' if command.startswith('baremetal node') else
            'admin')
        assert not mended.returncode or '--repair' in command, mended.stderr
    return {(row['Kind'], row['Instance'] or row['Node']) for row in rows}


def test_what_the_audit_says_is_done(cloud):
    taken, forgotten, doubled = servers = cloud.built(3)
    held = {each['instance_uuid']: each for each in cloud.reservations()}
    other = next(each for each in cloud.cloud.hosts
                 if each != held[taken]['host'])
    response = cloud.system.baremetal.patch(
        f'/reservations/{taken}',
        json=[{'op': 'replace', 'path': '/host', 'value': other}])
    assert response.status_code == 200, response.text
    test_switching.rows(cloud, 'ironic', 'DELETE FROM reservations '
                        'WHERE instance_uuid = :i', i=forgotten)
    created = [cloud.openstack(
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
    allocate_twice(cloud, doubled)
    found = obey(cloud)
    assert found >= {
        ('wrong-host', taken), ('no-reservation', forgotten),
        ('wrong-allocation', doubled),
        *(('no-server', each['instance_uuid']) for each in created),
        ('unavailable', unavailable['instance_uuid']),
        ('orphan-node', orphan.name)}
    eventually(cloud.finds_nothing)
    assert {each['instance_uuid']: each['host']
            for each in cloud.reservations()} == {
        each: held[each]['host'] for each in servers} | {
        unavailable['instance_uuid']: None}
    # It is said in words that all is well.
    done = cloud.openstack('baremetal', 'reservation', 'audit', check=False)
    assert done.stdout == (
        'Nothing disagrees: 3 servers, 4 reservations, 12 nodes.\n')
    cloud.act('baremetal', 'reservation', 'delete', '--all-projects',
              unavailable['instance_uuid'])
    # A lease that --repair has ended is over, and its node is to be free.
    cloud.sweep()


def allocate_twice(cloud, server):
    """Have a server allocated of another host, too, as an evacuation may."""
    placement = cloud.connection.placement
    url = f'/allocations/{server}'
    found = placement.get(url, microversion='1.28').json()
    [provider] = found['allocations']
    other = next(each.id for each in placement.resource_providers()
                 if each.id != provider)
    response = placement.put(url, microversion='1.28', json={
        **{name: found[name] for name in (
            'consumer_generation', 'project_id', 'user_id')},
        'allocations': {each: {'resources': {CLASS: 1}}
                        for each in (provider, other)}})
    assert response.status_code == 204, response.text


def reservation(cloud, *args, **options):
    return cloud.openstack('baremetal', 'reservation', *args, **options)


def told(cloud, *args, user='admin', status=1):
    """What a command that fails says."""
    done = reservation(cloud, *args, user=user, check=False)
    assert (done.returncode, done.stdout) == (status, '')
    return done.stderr


def test_what_is_free(cloud):
    rows = reservation(cloud, 'capacity', 'list', '--all-projects', '--by',
                       'capability:rack')
    assert {row['capability:rack']: row['Free'] for row in rows} == {
        f'r{number}': 3 for number in range(1, 5)}


def test_what_the_project_holds(cloud):
    cloud.openstack('registered', 'limit', 'create', '--service', 'ironic',
                    '--default-limit', '5', 'baremetal_reservations',
                    user='system')
    limit, = (each['ID'] for each in cloud.openstack(
        'registered', 'limit', 'list', '--resource-name',
        'baremetal_reservations', user='system'))
    held = reservation(cloud, 'create', '--resource-class', 'baremetal.gold',
                       '--project', 'demo', '--expires-in', '10m',
                       user='system')
    try:
        rows = reservation(cloud, 'list', '--usage', user='demo')
        assert [list(row.values())[1:] for row in rows] == [
            [None, 1, 5], [CLASS, 1, None]]
        assert rows[0]['Project ID'] == held['project_id']
        everybody = reservation(cloud, 'list', '--usage', '--all-projects')
        assert all(row in everybody for row in rows)
        # The admin's own has none.
        assert [0, 5] in [list(row.values())[2:] for row in everybody]
    finally:
        cloud.act('baremetal', 'reservation', 'delete', '--all-projects',
                  held['instance_uuid'])
        cloud.act('registered', 'limit', 'delete', limit, user='system')


def test_why_was_it_put_on_a_sick_machine(cloud):
    """It was not."""
    sick = cloud.nodes()[0]

    def health(value):
        test_switching.rows(cloud, 'ironic', 'UPDATE nodes SET health = :h '
                            'WHERE uuid = :n', h=value, n=sick.id)
    wanted = ('create', '--candidate-node', sick.id, '--expires-in', '10m')
    health('Critical')
    try:
        why = told(cloud, *wanted, user='system')
        assert re.search(r'\| health +\| +1 \|\n', why)
        [row] = reservation(cloud, 'capacity', 'list', '--by',
                            'resource_class', '--long', '--no-cache',
                            user='system')
        assert (row['Free'], row['Out Of Service']) == (11, 1)
        health('Warning')
        held = reservation(cloud, *wanted, user='system')
        assert held['node_uuid'] == sick.id
    finally:
        health(None)
        cloud.act('baremetal', 'reservation', 'delete', sick.id,
                  user='system')


def test_may_my_project_hold_from_the_pool(cloud):
    wanted = ('create', '--resource-class', 'baremetal.gold', '--expires-in',
              '10m', '--ownership', 'project_or_none')
    rules = cloud.cloud.folder / 'ironic' / 'policy.yaml'
    assert '(HTTP 403)' in told(cloud, *wanted, user='demo')
    rules.write_text('"baremetal:reservation:create_unowned": "role:member"')
    try:
        held = eventually(lambda: reservation(cloud, *wanted, user='demo'))
        assert [row['Node'] for row in reservation(
            cloud, 'list', user='demo')] == [held['node_name']]
        cloud.act('baremetal', 'reservation', 'delete',
                  held['instance_uuid'], user='demo')
    finally:
        rules.unlink()
    eventually(lambda: told(cloud, *wanted, '--dry-run', user='demo'))


def test_what_is_wrong_with_my_command(cloud):
    assert told(cloud, 'create').startswith(
        'Nothing constrains the node: give --flavor, --resource-class, ')
    why = told(cloud, 'create', '--resource-class', 'baremetal.glod',
               '--trait', 'CUSTOM_NVEM', user='system')
    assert ('No node has the resource class baremetal.glod. Did you mean '
            'baremetal.gold?\n') in why
    why = told(cloud, 'create', '--ram', 'much', status=2)
    assert 'argument --ram: "much" is not a valid size' in why
    assert why.count('\n') == 2
    url = f'http://127.0.0.1:{services.free_port()}'
    done = reservation(cloud, 'list', check=False, environment={
        'OS_BAREMETAL_ENDPOINT_OVERRIDE': url})
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith(f'Unable to establish connection to {url}/')
    # What is to be checked before it is begun is well in this cloud.
    done = subprocess.run(
        [services.program('ironic-reservations-status'), '--config-file',
         cloud.cloud.folder / 'ironic' / 'ironic.conf', 'upgrade', 'check'],
        capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    # And so the documentation has it.
    assert textwrap.indent(done.stdout, ' ' * 6) in (
        tools_cloud.DOCUMENTED / 'install.rst').read_text()
