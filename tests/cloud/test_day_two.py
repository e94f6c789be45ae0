# SPDX-License-Identifier: Apache-2.0
"""The questions of an operator's day, asked with the command."""

import json

import pytest

from tools import cloud as tools_cloud

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
    flavor = flavors(FLAVORS['trait'][0])
    server = cloud.connection.compute.create_server(
        name='day-two', flavor_id=cloud.connection.compute.find_flavor(
            flavor).id, **{name: value for name, value in
                           cloud.wanted().items() if name != 'flavor_id'})
    assert cloud.settled([server.id]) == {server.id: 'ERROR'}
    found = explain(cloud, server.id)
    assert 'No valid host was found' in found['fault']
    assert found['placement'] == FLAVORS['trait'][1]
    assert found['matching_nodes'] == 0
    assert found['explanation']['nearest']['by'] == (
        'trait:CUSTOM_GPUU=required')
    # The user who is left with "No valid host was found" is told, too.
    found = explain(cloud, '--flavor', flavor, user='demo')
    assert found['matching_nodes'] == 0


@pytest.mark.parametrize('name', FLAVORS)
def test_why_a_flavor_would_not_start(cloud, flavors, name):
    specs, why = FLAVORS[name]
    found = explain(cloud, '--flavor', flavors(specs), '--image',
                    tools_cloud.IMAGE, '--project', 'demo')
    assert why in json.dumps(found)
    assert ('placement' in found) == (name != 'rack')


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
    assert 'that project admin sees; --all-projects shows all' in part.stderr
    for args in (['list'], ['show', server], ['capacity', 'list'],
                 ['group', 'list'], ['host', 'list']):
        whole = cloud.openstack(*command, *args, '--all-projects',
                                check=False)
        assert (whole.returncode, whole.stderr) == (0, '')
    assert server in {row['Instance UUID'] for row in cloud.openstack(
        *command, 'list', '--all-projects')}
    # Somebody without an admin role is told nothing of others.
    assert not cloud.openstack(*command, 'list', user='demo',
                               check=False).stderr
