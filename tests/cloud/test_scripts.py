# SPDX-License-Identifier: Apache-2.0
"""Commands of operators' scripts, as the guide "scripts" describes them."""

import subprocess

import pytest

from tests.cloud.operator import eventually
from tools import services
from tools import trial_cloud

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize('options', [
    ('--availability-zone', 'nova::{}'),
    ('--hypervisor-hostname', '{}', '--os-compute-api-version', '2.74'),
], ids=('zone', 'hypervisor'))
def test_node_is_named(cloud, options):
    node = cloud.nodes()[-1]
    options = [option.format(node.name) for option in options]
    server = cloud.create(*options)
    [reservation] = cloud.reservations()
    assert (reservation['instance_uuid'], reservation['node_uuid']) == (
        server['id'], node.id)
    process = cloud.openstack(
        'server', 'create', '--flavor', trial_cloud.FLAVOR, '--image',
        trial_cloud.IMAGE, *options, 'server', user='demo', check=False)
    assert process.returncode == 1
    assert 'Policy doesn\'t allow' in process.stderr


@pytest.mark.long
def test_node_without_the_filter(cloud):
    """A reservation of the node, or the metadata, names it."""
    first, second = cloud.nodes()[-2:]
    hold = cloud.openstack(
        'baremetal', 'reservation', 'create', '--candidate-node', first.name,
        '--project', 'demo', '--expires-in', '10m', user='system')
    for node, key, value in (
            (first, 'claim', hold['instance_uuid']),
            (second, 'candidate_nodes', second.name)):
        server = cloud.create('--property', f'reservations:{key}={value}',
                              user='demo')
        assert {row['node_uuid'] for row in cloud.reservations()
                if row['instance_uuid'] == server['id']} == {node.id}


@pytest.mark.long
def test_machine_of_a_server(cloud):
    """Hypervisors are compute hosts; reservations name the machine."""
    server = cloud.create()['id']
    [reservation] = cloud.reservations()
    host, node = reservation['host'], reservation['node_name']
    hypervisor = cloud.openstack('hypervisor', 'show', host)
    assert hypervisor['hypervisor_hostname'] == host
    process = cloud.openstack('hypervisor', 'show', node, check=False)
    assert process.returncode == 1
    command = 'baremetal', 'reservation'
    for reference in server, node:
        row = cloud.openstack(*command, 'show', '--all-projects', reference)
        assert (row['instance_uuid'], row['node_name']) == (server, node)
    [row] = cloud.openstack(*command, 'list', '--all-projects', '--host',
                            host)
    assert (row['Instance UUID'], row['Node']) == (server, node)


@pytest.mark.long
def test_traits_and_numbers(cloud):
    """Placement knows the sums of a host, Ironic each node."""
    node = cloud.nodes()[0]
    cloud.act('baremetal', 'node', 'add', 'trait', node.id, 'CUSTOM_NVME',
              user='system')
    try:
        rows = cloud.openstack('baremetal', 'node', 'trait', 'list', node.id,
                               user='system')
        assert rows == [{'traits': 'CUSTOM_NVME'}]
        rows = cloud.openstack(
            'baremetal', 'reservation', 'capacity', 'list', '--all-projects',
            '--no-cache', '--trait', 'CUSTOM_NVME')
        assert [row['Free'] for row in rows] == [1]

        def assert_reported():
            placement = cloud.connection.placement
            for host in cloud.cloud.hosts:
                provider, = placement.resource_providers(name=host)
                traits = placement.get(
                    f'/resource_providers/{provider.id}/traits',
                    microversion='1.6').json()
                assert 'CUSTOM_NVME' in traits['traits']
        eventually(assert_reported)
    finally:
        cloud.act('baremetal', 'node', 'remove', 'trait', node.id,
                  'CUSTOM_NVME', user='system')


@pytest.mark.long
def test_heal_allocations(cloud):
    cloud.boot_active(1)
    process = subprocess.run(
        [services.program('nova-manage'), '--config-file',
         cloud.cloud.folder / 'nova' / 'nova.conf', 'placement',
         'heal_allocations', '--verbose'],
        capture_output=True, text=True, timeout=120)
    # Nothing had to be healed.
    assert process.returncode == 4, process.stdout + process.stderr
    eventually(cloud.assert_consistent)


@pytest.mark.long
def test_zone_of_a_host(cloud):
    compute = cloud.connection.compute
    attic = compute.create_aggregate(name='attic', availability_zone='attic')
    compute.add_host_to_aggregate(attic, 'compute-2')
    try:
        server = cloud.create('--availability-zone', 'attic')
        assert server['OS-EXT-SRV-ATTR:host'] == 'compute-2'
        cloud.act('server', 'delete', '--wait', server['id'])
    finally:
        compute.remove_host_from_aggregate(attic, 'compute-2')
        compute.delete_aggregate(attic)
