# SPDX-License-Identifier: Apache-2.0
"""Migration from a row per node to one row per host and back."""

import collections
import functools
import random
import signal
import subprocess
import time

import pytest

from tests.cloud.operator import eventually
from tools import services
from tools import trial_cloud

NOVAS = 'ironic.IronicDriver'
KILLS = 10

#: Tables whose rows a migration must not change, except their times.
TABLES = {
    'ironic': ('nodes', 'ports', 'node_traits', 'volume_targets'),
    'nova': ('block_device_mapping', 'virtual_interfaces',
             'instance_info_caches'),
    'nova_api': ('request_specs', 'instance_mappings'),
    'neutron': ('ports', 'ml2_port_bindings'),
}
#: Columns that Ironic writes by itself, and a lock.
VOLATILE = {'updated_at', 'reservation', 'provision_updated_at',
            'inspection_finished_at', 'driver_internal_info'}


def read_rows(cloud, ignore):
    """Return all rows that must not change.

    :param ignore: rows with one of these UUIDs are left out.
    """
    return [
        (database, table, {name: value for name, value in row.items()
                           if name not in VOLATILE})
        for database, tables in TABLES.items() for table in tables
        for row in cloud.sql(database, f'SELECT * FROM {table}')
        if not any(name in str(value)
                   for value in row.values() for name in ignore)]


def find_uuids(cloud, *servers):
    """Return the UUIDs of servers, their nodes and ports."""
    return [*servers,
            *(node.id for node in cloud.nodes()
              if node.instance_id in servers),
            *(port.id for port in cloud.connection.network.ports()
              if port.device_id in servers)]


def places(cloud):
    """Return by server its host, its compute node, and its providers."""
    providers = collections.defaultdict(set)
    for row in cloud.sql(
            'placement', 'SELECT DISTINCT consumer_id, p.name '
            'FROM allocations JOIN resource_providers p '
            'ON p.id = resource_provider_id'):
        providers[row['consumer_id']].add(row['name'])
    return {server.id: (server.compute_host, server.hypervisor_hostname,
                        *providers[server.id])
            for server in cloud.servers()}


def hypervisors(cloud):
    return {row['Hypervisor Hostname']
            for row in cloud.openstack('hypervisor', 'list')}


def assert_on_one_row(cloud, *hosts):
    for host, node, *providers in places(cloud).values():
        if host in hosts:
            assert (node, providers) == (host, [host])


def assert_all_on_one_row(cloud):
    """Check that all hosts have one row, in all services."""
    assert_on_one_row(cloud, *cloud.cloud.hosts)
    assert hypervisors(cloud) == set(cloud.cloud.hosts)
    assert provider_names(cloud) == set(cloud.cloud.hosts)
    cloud.assert_consistent()
    assert_no_orphans(cloud)
    assert cloud.audit() == set()


def assert_on_rows_of_nodes(cloud):
    nodes = {node.id: node.instance_id for node in cloud.nodes()}
    carriers = {server: node for node, server in nodes.items()}
    for server, (_, node, *providers) in places(cloud).items():
        assert [node, *providers] == [carriers[server]] * 2
    assert hypervisors(cloud) == set(nodes)
    assert provider_names(cloud) == set(nodes)
    assert_no_orphans(cloud)


def provider_names(cloud):
    return {provider.name for provider in
            cloud.connection.placement.resource_providers()}


def assert_no_orphans(cloud):
    """Check with Nova that no allocation is orphaned."""
    process = subprocess.run(
        [services.program('nova-manage'), '--config-file',
         cloud.cloud.folder / 'nova' / 'nova.conf', 'placement', 'audit',
         '--verbose'], capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stdout + process.stderr


def assert_status(cloud, server, status):
    assert cloud.connection.compute.get_server(server).status == status


def use(cloud, first, second):
    """Use a server in all ways, delete another, and create a new one."""
    cloud.act('server', 'stop', first)
    eventually(functools.partial(assert_status, cloud, first, 'SHUTOFF'))
    cloud.act('server', 'start', first)
    eventually(functools.partial(assert_status, cloud, first, 'ACTIVE'))
    cloud.act('server', 'reboot', '--hard', '--wait', first)
    cloud.act('server', 'rebuild', '--wait', '--image', trial_cloud.IMAGE,
              first)
    assert_status(cloud, first, 'ACTIVE')
    cloud.act('server', 'delete', '--wait', second)
    cloud.boot_active(1)


def boot_on_nodes(cloud):
    """Create ten servers with Nova's own driver."""
    cloud.switch(NOVAS)
    eventually(lambda: assert_on_rows_of_nodes(cloud))
    servers = [*cloud.boot_many(1, config_drive=True), *cloud.boot_many(9)]
    assert set(cloud.settle(servers).values()) == {'ACTIVE'}
    # There is no Cinder: add only Nova's row of a volume.
    cloud.sql('nova',
              'INSERT INTO block_device_mapping (created_at, device_name, '
              'source_type, destination_type, volume_id, volume_size, '
              'instance_uuid, deleted, boot_index, delete_on_termination, '
              "uuid) VALUES (NOW(), '/dev/sdb', 'volume', 'volume', UUID(), "
              '1, :i, 0, NULL, 0, UUID())', i=servers[0])
    return servers


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_running_cloud(cloud):
    volume, reboot, deletion, *others = boot_on_nodes(cloud)
    busy = places(cloud)
    # The audit lists the servers to migrate.
    assert cloud.audit() == {('per-node-row', server) for server in busy}
    busy_uuids = find_uuids(cloud, reboot, deletion)
    before = read_rows(cloud, busy_uuids)
    assert len(before) > 3 * 8

    # A host of one row works with hosts that were not migrated yet.
    cloud.configure(trial_cloud.DRIVER, 'reservations', adopt=True)
    hosts = list(cloud.cloud.hosts)
    for number, host in enumerate(hosts, 1):
        cloud.cloud.stop(host)
        # The requests wait in the queue of the stopped host.
        if busy[reboot][0] == host:
            cloud.act('server', 'reboot', '--hard', reboot)
        if busy[deletion][0] == host:
            cloud.act('server', 'delete', deletion)
        cloud.cloud.start(host)
        eventually(lambda names=hosts[:number]:
                   assert_on_one_row(cloud, *names))
    eventually(lambda: assert_status(cloud, reboot, 'ACTIVE'))
    eventually(lambda: cloud.assert_deleted(deletion))
    eventually(lambda: assert_all_on_one_row(cloud))
    after = read_rows(cloud, busy_uuids)
    assert [row for row in after if row not in before] == []
    assert len(after) == len(before)
    use(cloud, others[0], others[1])

    cloud.configure(trial_cloud.DRIVER, 'per_node', adopt=True)
    for host in hosts:
        cloud.restart_host(host)
    eventually(lambda: assert_on_rows_of_nodes(cloud))
    use(cloud, others[0], others[2])
    # The audit does not list servers that were migrated back.
    instances = {row['instance_uuid'] for row in cloud.reservations()}
    assert instances and not instances & {
        server for _, server in cloud.audit()}

    kills = []
    for number in range(KILLS):
        host = random.choice(sorted({place[0] for place in
                                     places(cloud).values()}))
        one_row = number % 2 == 0
        cloud.configure(trial_cloud.DRIVER,
                        'reservations' if one_row else 'per_node', adopt=True)
        for other in hosts:
            if other != host:
                cloud.restart_host(other)
        cloud.cloud.stop(host)
        cloud.cloud.start(host)
        kills.append(kill_during_migration(cloud, host))
        cloud.cloud.start(host)
        check = assert_all_on_one_row if one_row else assert_on_rows_of_nodes
        eventually(functools.partial(check, cloud), 180)
    print('Killed after', kills)
    # The volume of the first server is unchanged.
    assert [row['volume_size'] for row in cloud.sql(
        'nova', 'SELECT * FROM block_device_mapping WHERE '
        "source_type = 'volume' AND instance_uuid = :i", i=volume)] == [1]
    cloud.sql('nova', 'DELETE FROM block_device_mapping WHERE '
              "source_type = 'volume' AND instance_uuid = :i", i=volume)

    cloud.configure(trial_cloud.DRIVER, 'reservations', adopt=True)
    for host in hosts:
        cloud.restart_host(host)
    eventually(lambda: assert_all_on_one_row(cloud))
    # A host with one row keeps it, regardless of the configuration.
    cloud.configure(trial_cloud.DRIVER)
    for host in hosts:
        cloud.restart_host(host)
    assert_all_on_one_row(cloud)
    use(cloud, others[0], others[3])


def kill_during_migration(cloud, host):
    """Kill a host with SIGKILL during its migration.

    :returns: how many servers were migrated by then, and how many it has.
    """
    def find_rows():
        return {row['uuid']: row['node'] for row in cloud.sql(
            'nova', 'SELECT uuid, node FROM instances '
            'WHERE deleted = 0 AND host = :h', h=host)}

    def find_progress():
        return (cloud.sql('placement', 'SELECT MAX(id) FROM allocations'),
                cloud.sql('ironic', 'SELECT MAX(updated_at) '
                          'FROM reservations WHERE host = :h', h=host))

    at_first, before = find_progress(), find_rows()
    deadline = time.monotonic() + 40
    # Wait for the first adoption or moved allocation.
    while find_progress() == at_first and time.monotonic() < deadline:
        pass
    time.sleep(random.uniform(0, 0.5))
    cloud.cloud.signal(host, signal.SIGKILL)
    now = find_rows()
    return (sum(now[server] != before[server] for server in before),
            len(before))
