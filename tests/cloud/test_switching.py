# SPDX-License-Identifier: Apache-2.0
"""From a row per node to one row per host, and back, while servers run."""

import collections
import functools
import os
import random
import signal
import subprocess
import time

import pytest
import sqlalchemy as sa

from tests.cloud.operator import eventually
from tools import cloud as tools_cloud
from tools import services

NOVAS = 'ironic.IronicDriver'
KILLS = 10

#: What a switch must leave as it is, but for when it was written.
KEPT = {
    'ironic': ('nodes', 'ports', 'node_traits', 'volume_targets'),
    'nova': ('block_device_mapping', 'virtual_interfaces',
             'instance_info_caches'),
    'nova_api': ('request_specs', 'instance_mappings'),
    'neutron': ('ports', 'ml2_port_bindings'),
}
#: What Ironic writes by itself, and a lock.
VOLATILE = {'updated_at', 'reservation', 'provision_updated_at',
            'inspection_finished_at', 'driver_internal_info'}


@functools.cache
def engine(url):
    return sa.create_engine(url)


def rows(cloud, database, statement, **values):
    """Ask a database of the cloud, or write to it."""
    with engine(cloud.cloud.database_url(database)).begin() as connection:
        found = connection.execute(sa.text(statement), values)
        return found.mappings().all() if found.returns_rows else None


def kept(cloud, but):
    """What must stay: all rows that name none of the things in ``but``."""
    return [
        (database, table, {name: value for name, value in row.items()
                           if name not in VOLATILE})
        for database, tables in KEPT.items() for table in tables
        for row in rows(cloud, database, f'SELECT * FROM {table}')
        if not any(each in str(value)
                   for value in row.values() for each in but)]


def things_of(cloud, *servers):
    """UUIDs of servers, their nodes and ports."""
    return [*servers,
            *(node.id for node in cloud.nodes()
              if node.instance_id in servers),
            *(port.id for port in cloud.connection.network.ports()
              if port.device_id in servers)]


def restart(cloud, host):
    """Start nova-compute anew, and wait until it has told that it is up."""
    before = cloud.reported()[host]
    cloud.cloud.stop(host)
    cloud.cloud.start(host)
    eventually(lambda: cloud.has_reported(host, before))


def places(cloud):
    """By server: its host, and where the server and its allocation are."""
    allocated = collections.defaultdict(set)
    for each in rows(cloud, 'placement',
                     'SELECT DISTINCT consumer_id, p.name FROM allocations '
                     'JOIN resource_providers p '
                     'ON p.id = resource_provider_id'):
        allocated[each['consumer_id']].add(each['name'])
    return {each.id: (each.compute_host, each.hypervisor_hostname,
                      *allocated[each.id]) for each in cloud.servers()}


def hypervisors(cloud):
    return {row['Hypervisor Hostname']
            for row in cloud.openstack('hypervisor', 'list')}


def on_one_row(cloud, *hosts):
    for host, node, *providers in places(cloud).values():
        if host in hosts:
            assert (node, providers) == (host, [host])


def on_one_row_each(cloud):
    """All are, and nobody knows of anything else."""
    on_one_row(cloud, *cloud.cloud.hosts)
    assert hypervisors(cloud) == set(cloud.cloud.hosts)
    assert {each.name for each in
            cloud.connection.placement.resource_providers()} == set(
        cloud.cloud.hosts)
    cloud.agree()
    audited(cloud)
    assert cloud.audit() == set()


def on_rows_of_nodes(cloud):
    nodes = {node.id: node.instance_id for node in cloud.nodes()}
    carriers = {server: node for node, server in nodes.items()}
    for server, (_, node, *providers) in places(cloud).items():
        assert [node, *providers] == [carriers[server]] * 2
    assert hypervisors(cloud) == set(nodes)
    assert {each.name for each in
            cloud.connection.placement.resource_providers()} == set(nodes)
    audited(cloud)


def audited(cloud):
    """Nova finds no allocation that is nobody's."""
    done = subprocess.run(
        [services.program('nova-manage'), '--config-file',
         cloud.cloud.folder / 'nova' / 'nova.conf', 'placement', 'audit',
         '--verbose'], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def has_status(cloud, server, status):
    assert cloud.connection.compute.get_server(server).status == status


def is_gone(cloud, server):
    assert server not in {each.id for each in cloud.servers()}


def use(cloud, first, second):
    """All that a user does; the second is deleted, and there is a new one."""
    cloud.act('server', 'stop', first)
    eventually(functools.partial(has_status, cloud, first, 'SHUTOFF'))
    cloud.act('server', 'start', first)
    eventually(functools.partial(has_status, cloud, first, 'ACTIVE'))
    cloud.act('server', 'reboot', '--hard', '--wait', first)
    cloud.act('server', 'rebuild', '--wait', '--image', tools_cloud.IMAGE,
              first)
    has_status(cloud, first, 'ACTIVE')
    cloud.act('server', 'delete', '--wait', second)
    cloud.built(1)


def boot_on_nodes(cloud):
    """Ten servers on rows of nodes, as Nova's own driver has them."""
    cloud.switch(NOVAS)
    eventually(lambda: on_rows_of_nodes(cloud))
    servers = [*cloud.boot_many(1, config_drive=True), *cloud.boot_many(9)]
    assert set(cloud.settled(servers).values()) == {'ACTIVE'}
    # There is no Cinder: a row of a volume is what Nova has of one.
    rows(cloud, 'nova',
         'INSERT INTO block_device_mapping (created_at, device_name, '
         'source_type, destination_type, volume_id, volume_size, '
         'instance_uuid, deleted, boot_index, delete_on_termination, uuid) '
         "VALUES (NOW(), '/dev/sdb', 'volume', 'volume', UUID(), 1, :i, 0, "
         'NULL, 0, UUID())', i=servers[0])
    return servers


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_living_cloud(cloud):
    volume, rebooted, deleted, *others = boot_on_nodes(cloud)
    busy = places(cloud)
    # What a switch will do.
    assert cloud.audit() == {('per-node-row', server) for server in busy}
    at_work = things_of(cloud, rebooted, deleted)
    before = kept(cloud, at_work)
    assert len(before) > 3 * 8

    # A host that is one row serves beside those that are not yet.
    cloud.configure(tools_cloud.DRIVER, 'reservations', adopt=True)
    hosts = list(cloud.cloud.hosts)
    for number, host in enumerate(hosts, 1):
        cloud.cloud.stop(host)
        # They wait in the queue of the host that has just gone.
        if busy[rebooted][0] == host:
            cloud.act('server', 'reboot', '--hard', rebooted)
        if busy[deleted][0] == host:
            cloud.act('server', 'delete', deleted)
        cloud.cloud.start(host)
        eventually(lambda done=hosts[:number]: on_one_row(cloud, *done))
    eventually(lambda: has_status(cloud, rebooted, 'ACTIVE'))
    eventually(lambda: is_gone(cloud, deleted))
    eventually(lambda: on_one_row_each(cloud))
    assert [each for each in kept(cloud, at_work) if each not in before
            ] == []
    assert len(kept(cloud, at_work)) == len(before)
    use(cloud, others[0], others[1])

    cloud.configure(tools_cloud.DRIVER, 'per_node', adopt=True)
    for host in hosts:
        restart(cloud, host)
    eventually(lambda: on_rows_of_nodes(cloud))
    use(cloud, others[0], others[2])
    # Nobody is told to switch again what was just switched back.
    reserved = {each['instance_uuid'] for each in cloud.reservations()}
    assert reserved and not reserved & {
        server for _, server in cloud.audit()}

    killed = []
    for number in range(KILLS):
        host = random.choice(sorted({each[0] for each in
                                     places(cloud).values()}))
        one_row = number % 2 == 0
        cloud.configure(tools_cloud.DRIVER,
                        'reservations' if one_row else 'per_node', adopt=True)
        for each in hosts:
            if each != host:
                restart(cloud, each)
        cloud.cloud.stop(host)
        cloud.cloud.start(host)
        killed.append(kill_in_the_middle(cloud, host))
        cloud.cloud.start(host)
        eventually(lambda to=one_row: (
            on_one_row_each if to else on_rows_of_nodes)(cloud), 180)
    print('Killed after', killed)
    # It was among the first to be brought over, and all is as it was.
    assert [row['volume_size'] for row in rows(
        cloud, 'nova', 'SELECT * FROM block_device_mapping WHERE '
        "source_type = 'volume' AND instance_uuid = :i", i=volume)] == [1]
    rows(cloud, 'nova', 'DELETE FROM block_device_mapping WHERE '
         "source_type = 'volume' AND instance_uuid = :i", i=volume)

    cloud.configure(tools_cloud.DRIVER, 'reservations', adopt=True)
    for host in hosts:
        restart(cloud, host)
    eventually(lambda: on_one_row_each(cloud))
    # What is there is one row for good, whatever the configuration says.
    cloud.configure(tools_cloud.DRIVER)
    for host in hosts:
        restart(cloud, host)
    on_one_row_each(cloud)
    use(cloud, others[0], others[3])


def kill_in_the_middle(cloud, host):
    """SIGKILL a host at an instant of its switch.

    :returns: how many of its servers were on other rows by then, of how many.
    """
    def where():
        return {row['uuid']: row['node'] for row in rows(
            cloud, 'nova', 'SELECT uuid, node FROM instances '
            'WHERE deleted = 0 AND host = :h', h=host)}

    def begun():
        return (rows(cloud, 'placement', 'SELECT MAX(id) FROM allocations'),
                rows(cloud, 'ironic', 'SELECT MAX(updated_at) '
                     'FROM reservations WHERE host = :h', h=host))

    pid, at_first = cloud.cloud.pid(host), begun()
    before, deadline = where(), time.monotonic() + 40
    # The first adoption, or the first allocation that moves.
    while begun() == at_first and time.monotonic() < deadline:
        pass
    time.sleep(random.uniform(0, 0.5))
    os.killpg(pid, signal.SIGKILL)
    now = where()
    return sum(now[each] != before[each] for each in before), len(before)
