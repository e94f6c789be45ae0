# SPDX-License-Identifier: Apache-2.0
"""Commands of operators' scripts, as the guide "scripts" describes them."""

import contextlib
import functools
import json
import subprocess
import uuid

import pytest

from tests.cloud import test_switching
from tests.cloud.operator import eventually
from tests.common import exporting
from tools import services
from tools import trial_cloud

pytestmark = pytest.mark.timeout(900)

RESERVATION = 'baremetal', 'reservation'


def refuse(cloud, *options, user='admin'):
    """Return the error with which Nova refuses to create a server."""
    process = cloud.openstack(
        'server', 'create', '--flavor', trial_cloud.FLAVOR, '--image',
        trial_cloud.IMAGE, *options, 'server', user=user, check=False)
    assert process.returncode == 1
    return process.stderr


@contextlib.contextmanager
def configured(cloud, host, **sections):
    """Add options to the nova.conf of a host for a while."""
    path = cloud.cloud.folder / host / 'nova.conf'
    text, conf = path.read_text(), services.read_conf(path)
    for section, options in sections.items():
        conf.setdefault(section, {}).update(options)
    services.write_conf(path, conf)
    try:
        cloud.restart_host(host)
        yield
    finally:
        path.write_text(text)
        cloud.restart_host(host)


def create_on_hypervisor(cloud, name, connection):
    """Request a server on a named hypervisor; return Nova's response.

    The command cannot with openstacksdk before 4.19.
    """
    options = cloud.server_options()
    return connection.compute.post('/servers', microversion='2.74', json={
        'server': {'name': 'server', 'hypervisor_hostname': name,
                   'flavorRef': options['flavor_id'],
                   'imageRef': options['image_id'],
                   'networks': options['networks']}})


def assert_only(cloud, server, node):
    """Check that a server is the only one, and on which node it is."""
    [reservation] = cloud.reservations()
    assert (reservation['instance_uuid'], reservation['node_uuid']) == (
        server, node.id)


def test_node_is_named_in_zone(cloud):
    node = cloud.nodes()[-1]
    options = '--availability-zone', f'nova::{node.name}'
    server = cloud.create(*options)
    assert_only(cloud, server['id'], node)
    assert 'Policy doesn\'t allow' in refuse(cloud, *options, user='demo')


@pytest.mark.long
def test_node_is_named_as_hypervisor(cloud):
    node = cloud.nodes()[-1]
    response = create_on_hypervisor(cloud, node.name, cloud.connection)
    server = response.json()['server']['id']
    assert cloud.settle([server]) == {server: 'ACTIVE'}
    assert_only(cloud, server, node)
    assert create_on_hypervisor(
        cloud, node.name, cloud.demo).status_code == 403


@pytest.fixture
def without_filter(cloud):
    """The cloud without the driver's filter in Nova's API."""
    path = cloud.cloud.folder / 'nova' / 'api-paste.ini'
    text = path.read_text()

    def restart(text):
        path.write_text(text)
        cloud.cloud.stop('nova')
        cloud.cloud.start('nova')

    restart(text.replace(' named_node ', ' '))
    yield cloud
    restart(text)


@pytest.mark.long
def test_node_without_the_filter(without_filter):
    """A reservation of the node, or the metadata, names it."""
    cloud = without_filter
    first, second = cloud.nodes()[-2:]
    assert f'Compute host {first.name} could not be found' in (
        create_on_hypervisor(cloud, first.name, cloud.connection).text)
    assert 'No such host' in cloud.fail_to_boot(
        availability_zone=f'nova::{first.name}')
    [server] = cloud.servers()
    process = cloud.openstack(*RESERVATION, 'explain', server.id, check=False)
    assert (f'The request names {first.name}, which is no compute node of '
            f'Nova') in process.stderr
    cloud.act('server', 'delete', '--wait', server.id)
    hold = cloud.openstack(
        *RESERVATION, 'create', '--candidate-node', first.name, '--project',
        'demo', '--expires-in', '10m', user='system')
    for node, key, value in (
            (first, 'claim', hold['instance_uuid']),
            (second, 'candidate_nodes', second.name)):
        server = cloud.create('--property', f'reservations:{key}={value}',
                              user='demo')
        assert {row['node_uuid'] for row in cloud.reservations()
                if row['instance_uuid'] == server['id']} == {node.id}


@pytest.mark.long
def test_machines_of_another_system(cloud, reservations):
    """Ironic shows it those of its project, which others can leave out."""
    node = cloud.nodes()[-1]
    project = cloud.demo.current_project_id
    cloud.act('baremetal', 'node', 'set', '--owner', project, node.id,
              user='system')
    try:
        assert [row.id for row in cloud.demo.baremetal.nodes()] == [node.id]
        for ownership, number in ('any', 1), ('project_or_none', 0):
            assert reservations.dry_run(
                candidate_nodes=[node.id], project_id=uuid.uuid4().hex,
                ownership=ownership)['matching_nodes'] == number
    finally:
        cloud.act('baremetal', 'node', 'unset', '--owner', node.id,
                  user='system')


@pytest.mark.long
def test_machine_of_a_server(cloud):
    """Hypervisors are compute hosts; reservations name the machine."""
    server = cloud.create()
    [reservation] = cloud.reservations()
    host, node = reservation['host'], reservation['node_name']
    assert server['OS-EXT-SRV-ATTR:hypervisor_hostname'] == host
    hypervisor = cloud.openstack('hypervisor', 'show', host,
                                 '--os-compute-api-version', '2.87')
    nodes = cloud.nodes()
    assert (hypervisor['hypervisor_hostname'], hypervisor['memory_mb']) == (
        host, sum(node.properties['memory_mb'] for node in nodes))
    assert 'memory_mb' not in cloud.openstack('hypervisor', 'show', host)
    process = cloud.openstack('hypervisor', 'show', node, check=False)
    assert process.returncode == 1
    for reference in server['id'], node:
        row = cloud.openstack(*RESERVATION, 'show', '--all-projects',
                              reference)
        assert (row['instance_uuid'], row['node_name']) == (
            server['id'], node)
    [row] = cloud.openstack(*RESERVATION, 'list', '--all-projects', '--host',
                            host)
    assert (row['Instance UUID'], row['Node']) == (server['id'], node)
    # Ironic leases the machine to the project of its server.
    [row] = cloud.openstack('baremetal', 'node', 'list')
    assert row['name'] == node
    assert {row['name']: row['instance_uuid'] for row in cloud.openstack(
        'baremetal', 'node', 'list', user='system')} == {
            row.name: server['id'] if row.name == node else None
            for row in nodes}
    row = cloud.openstack('baremetal', 'node', 'show', node, user='system')
    assert row['instance_uuid'] == server['id']
    [allocation] = cloud.openstack('resource', 'provider', 'allocation',
                                   'show', server['id'])
    provider = cloud.openstack('resource', 'provider', 'show',
                               allocation['resource_provider'])
    assert provider['name'] == host


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
            *RESERVATION, 'capacity', 'list', '--all-projects', '--no-cache',
            '--trait', 'CUSTOM_NVME')
        assert [row['Free'] for row in rows] == [1]

        def assert_reported():
            for host in cloud.cloud.hosts:
                assert 'CUSTOM_NVME' in read_traits(cloud, host)
        eventually(assert_reported)
    finally:
        cloud.act('baremetal', 'node', 'remove', 'trait', node.id,
                  'CUSTOM_NVME', user='system')


def read_traits(cloud, host):
    """Return the traits of a host's provider."""
    placement = cloud.connection.placement
    provider, = placement.resource_providers(name=host)
    return placement.get(f'/resource_providers/{provider.id}/traits',
                         microversion='1.6').json()['traits']


@pytest.mark.long
def test_trait_of_a_provider(cloud):
    """Placement then offers the host, but no machine has the trait."""
    host = cloud.cloud.hosts[0]
    [provider] = cloud.openstack('resource', 'provider', 'list', '--name',
                                 host)
    version = '--os-placement-api-version', '1.6'

    def set_traits(traits):
        cloud.act('resource', 'provider', 'trait', 'set', provider['uuid'],
                  *[f'--trait={name}' for name in traits], *version)

    before = read_traits(cloud, host)
    cloud.act('trait', 'create', 'CUSTOM_VIP', *version)
    set_traits([*before, 'CUSTOM_VIP'])
    try:
        process = cloud.openstack(
            *RESERVATION, 'explain', '--flavor', trial_cloud.FLAVOR,
            '--trait', 'CUSTOM_VIP', '-f', 'json', check=False)
        row = json.loads(process.stdout)
        assert 'placement' not in row
        assert row['matching_nodes'] == 0
        assert 'CUSTOM_VIP' in read_traits(cloud, host)
    finally:
        set_traits(before)
        cloud.act('trait', 'delete', 'CUSTOM_VIP', *version)


@pytest.mark.long
def test_heal_allocations(cloud):
    [server] = cloud.boot_active(1)
    [reservation] = cloud.reservations()
    path = f'/allocations/{server}'

    def heal():
        return subprocess.run(
            [services.program('nova-manage'), '--config-file',
             cloud.cloud.folder / 'nova' / 'nova.conf', 'placement',
             'heal_allocations', '--verbose'],
            capture_output=True, text=True, timeout=120).returncode

    # Nothing had to be healed.
    assert heal() == 4
    eventually(cloud.assert_consistent)
    # A running host restores a lost allocation by itself.
    cloud.connection.placement.delete(path)
    eventually(cloud.assert_consistent)
    cloud.cloud.stop(reservation['host'])
    cloud.connection.placement.delete(path)
    assert heal() == 0
    cloud.start_host(reservation['host'])
    eventually(cloud.assert_consistent)
    test_switching.assert_no_orphans(cloud)


@pytest.fixture
def lease(cloud):
    """A flavor of a lease of Blazar, for one server on the first host."""
    compute, placement = cloud.connection.compute, cloud.connection.placement
    name = f'CUSTOM_RESERVATION_{uuid.uuid4()}'.replace('-', '_').upper()
    [host] = placement.resource_providers(name=cloud.cloud.hosts[0])
    with contextlib.ExitStack() as stack:
        placement.create_resource_class(name=name)
        stack.callback(placement.delete_resource_class, name)
        provider = placement.create_resource_provider(
            name=f'blazar_{host.name}', parent_provider_id=host.id)
        stack.callback(placement.delete_resource_provider, provider)
        placement.create_resource_provider_inventory(provider, name, total=1)
        stack.callback(cloud.empty)
        flavor = cloud.cloud.create_flavor(f'lease-{name}')
        stack.callback(compute.delete_flavor, flavor)
        compute.create_flavor_extra_specs(flavor, {f'resources:{name}': '1'})
        yield flavor


def test_lease_of_blazar(cloud, lease):
    """Its allocation is from a provider below that of the host."""
    host, other, *_ = cloud.cloud.hosts
    server = cloud.connection.compute.create_server(name='server', **{
        **cloud.server_options(), 'flavor_id': lease.id}).id
    assert cloud.settle([server]) == {server: 'ACTIVE'}
    assert len(cloud.connection.placement.get(
        f'/allocations/{server}').json()['allocations']) == 2
    cloud.assert_no_findings()
    results, status = cloud.move(host, other, '--dry-run')
    assert status == 1 and f'provider blazar_{host}' in results[server]


def assert_no_servers(cloud):
    assert cloud.servers() == []


@contextlib.contextmanager
def zone(cloud, name, host):
    """Put a host into a zone for a while; yield the aggregate."""
    compute = cloud.connection.compute
    aggregate = compute.create_aggregate(name=name, availability_zone=name)
    compute.add_host_to_aggregate(aggregate, host)
    try:
        yield aggregate
    finally:
        # Nova keeps a host with servers in its zone.
        cloud.delete_all()
        eventually(functools.partial(assert_no_servers, cloud))
        compute.remove_host_from_aggregate(aggregate, host)
        compute.delete_aggregate(aggregate)


@pytest.mark.long
def test_zone_of_a_host(cloud):
    with zone(cloud, 'attic', 'compute-2') as aggregate:
        server = cloud.create('--availability-zone', 'attic')
        assert server['OS-EXT-SRV-ATTR:host'] == 'compute-2'
        # Nova has added the provider to an aggregate of Placement.
        rows = cloud.openstack(
            'resource', 'provider', 'list', '--member-of', aggregate.uuid,
            '--os-placement-api-version', '1.3')
        assert [row['name'] for row in rows] == ['compute-2']


@pytest.mark.long
def test_zone_of_machines(cloud):
    """The host of a zone uses one shard."""
    nodes = cloud.nodes()[:2]
    baremetal, host = cloud.system.baremetal, 'compute-2'
    for node in nodes:
        baremetal.update_node(node, shard='attic')
    try:
        with configured(cloud, host, ironic={'shard': 'attic'}), \
                zone(cloud, 'attic', host):
            def assert_part():
                assert cloud.placement(host)[0].total == len(nodes)
            eventually(assert_part)
            # Other hosts use all machines.
            assert cloud.placement('compute-1')[0].total == cloud.cloud.nodes
            for _ in nodes:
                cloud.create('--availability-zone', 'attic')
            assert {row['node_uuid'] for row in cloud.reservations()} == {
                node.id for node in nodes}
            assert cloud.fail_to_boot(
                availability_zone='attic').startswith('No valid host')
    finally:
        for node in nodes:
            baremetal.update_node(node, shard=None)


@pytest.mark.long
def test_exporter_and_billing(cloud, tmp_path):
    host = cloud.cloud.hosts[0]
    path = cloud.cloud.folder / 'ironic' / 'ironic.conf'
    with configured(cloud, host,
                    oslo_messaging_notifications={'driver': 'log'}), \
            exporting.exporter(path, tmp_path) as exporter:
        server = cloud.create('--availability-zone', f'nova:{host}')['id']
        usage = cloud.openstack('usage', 'show', '--project', 'admin')
        assert [(row['flavor'], row['memory_mb']) for row in usage['Servers']
                if row['instance_id'] == server] == [
                    (trial_cloud.FLAVOR, 65536)]

        def read_notification():
            lines = [line for line in
                     cloud.cloud.log(host).read_text().splitlines()
                     if 'compute.instance.create.end' in line
                     and server in line]
            assert lines
            return json.loads(lines[0][lines[0].index('{'):])['payload']

        payload = eventually(read_notification)
        assert (payload['instance_id'], payload['host'], payload['node'],
                payload['memory_mb']) == (server, host, host, 65536)
        labels = {'conductor_group': '', 'shard': '',
                  'resource_class': 'baremetal.gold'}
        assert [exporter.value('nodes', **labels, state=state)
                for state in ('free', 'taken')] == [cloud.cloud.nodes - 1, 1]
