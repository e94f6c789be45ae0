# SPDX-License-Identifier: Apache-2.0
"""From Nova's own driver, with a row per node, to one row per host."""

import functools

import pytest

from tests.cloud import operator
from tests.cloud.operator import eventually
from tools import cloud as tools_cloud

NOVAS = 'ironic.IronicDriver'


def restart(cloud, hosts):
    """Start nova-compute anew; what each host logs from then on."""
    before = {host: cloud.cloud.log(host).stat().st_size for host in hosts}
    reported = cloud.reported()
    cloud.cloud.stop(*hosts)
    cloud.cloud.start(*hosts)
    # A server of a host that seems to be down is deleted without it, and its
    # node stays as it is.
    eventually(functools.partial(reports, cloud, hosts, reported))
    return lambda host: cloud.cloud.log(
        host).read_bytes()[before[host]:].decode()


def reports(cloud, hosts, reported):
    now = cloud.reported()
    assert all(now[host] > reported[host] for host in hosts)


def logs(said, host, text):
    assert text in said(host)


def stays(host, said):
    logs(said, host, f'Host {host} has rows or instances of ')
    logs(said, host, 'stays with a row per node, which is deprecated')
    logs(said, host, 'delete its compute service')


def as_expected(cloud, expected):
    assert hypervisors(cloud) == expected


def has_status(cloud, server, status):
    assert cloud.openstack('server', 'show', server)['status'] == status


def hypervisors(cloud):
    return {row['Hypervisor Hostname']
            for row in cloud.openstack('hypervisor', 'list')}


def with_rows_of_nodes(cloud):
    """Hosts that have such rows."""
    return {each.service_details['host'] for each in
            cloud.connection.compute.hypervisors(details=True)
            if each.name not in cloud.cloud.hosts}


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_from_rows_of_nodes_to_rows_of_hosts(cloud):
    nodes = {node.id for node in cloud.nodes()}
    cloud.switch(NOVAS)
    eventually(functools.partial(as_expected, cloud, nodes))

    servers = cloud.boot_many(10)
    assert set(cloud.settled(servers).values()) == {'ACTIVE'}
    assert not cloud.reservations()

    # Our driver alone changes nothing.
    cloud.configure(tools_cloud.DRIVER, 'per_node')
    said = restart(cloud, cloud.cloud.hosts)
    for host in cloud.cloud.hosts:
        eventually(functools.partial(
            logs, said, host, f'Host {host} has a row per node'))
    eventually(functools.partial(as_expected, cloud, nodes))

    # With servers: as it was, and it is said why.
    used = with_rows_of_nodes(cloud)
    cloud.configure(tools_cloud.DRIVER)
    said = restart(cloud, cloud.cloud.hosts)
    for host in used:
        eventually(functools.partial(stays, host, said))
    # A host that had no rows of nodes has its own.
    eventually(functools.partial(
        as_expected, cloud, nodes | (set(cloud.cloud.hosts) - used)))
    cloud.act('server', 'stop', servers[0])
    eventually(functools.partial(has_status, cloud, servers[0], 'SHUTOFF'))
    cloud.act('server', 'delete', '--wait', servers[1])
    assert cloud.boot('--wait')['status'] == 'ACTIVE'

    # Rows alone hold it, too. Others take them when it is down for long.
    cloud.delete_all()
    eventually(cloud.drained)
    host = with_rows_of_nodes(cloud).pop()
    eventually(functools.partial(stays, host, restart(cloud, [host])))

    cloud.act('aggregate', 'create', 'rack')
    for host in cloud.cloud.hosts:
        cloud.act('aggregate', 'add', 'host', 'rack', host)
    deleted = cloud.switch(tools_cloud.DRIVER)
    eventually(functools.partial(as_expected, cloud, set(cloud.cloud.hosts)))
    assert {row['Status'] for row in cloud.compute_services()} == {'enabled'}
    assert deleted
    assert set(cloud.openstack('aggregate', 'show', 'rack')['hosts']
               ) == set(cloud.cloud.hosts) - deleted
    cloud.act('aggregate', 'add', 'host', 'rack', deleted.pop())
    server = cloud.boot('--wait')
    assert server['status'] == 'ACTIVE'
    [held] = cloud.reservations()
    assert held['instance_uuid'] == server['id']
    # Nothing is left of the rows.
    assert {each.name for each in
            cloud.connection.placement.resource_providers()} == set(
        cloud.cloud.hosts)
    eventually(cloud.agree, 2 * operator.SOON)
