# SPDX-License-Identifier: Apache-2.0
"""What users and operators do with servers, with the real command."""

import functools

import pytest

from tests.cloud.operator import eventually
from tools import cloud as tools_cloud

pytestmark = pytest.mark.timeout(900)


def test_hypervisors_are_hosts(cloud):
    rows = cloud.openstack('hypervisor', 'list')
    assert {row['Hypervisor Hostname'] for row in rows} == set(
        cloud.cloud.hosts)
    assert {row['Hypervisor Type'] for row in rows} == {'ironic'}
    assert {row['State'] for row in rows} == {'up'}


def rack(node):
    return node.properties['capabilities'].partition(':')[2]


def test_fleet_is_used_up_and_free_again(cloud):
    """The servers of the first rack are in a server group, of affinity."""
    count, in_rack = cloud.cloud.nodes, cloud.cloud.nodes // tools_cloud.RACKS
    group = cloud.openstack('server', 'group', 'create', '--policy',
                            'affinity', 'group', user='demo')['id']
    member = {'by': cloud.demo, 'scheduler_hints': {'group': group}}
    eventually(cloud.finds_nothing)
    servers = cloud.boot_many(in_rack, **member)
    # Also while they are built.
    cloud.finds_nothing()
    assert set(cloud.settled(servers).values()) == {'ACTIVE'}
    racks = [rack(node) for node in cloud.nodes() if node.instance_id]
    assert len(racks) == in_rack and len(set(racks)) == 1
    # The weigher has spread them, which Nova's own filter does not allow.
    assert len({each['host'] for each in cloud.reservations()}) > 1
    assert ('no free node matches group:pack=capability:rack'
            in cloud.fault(**member))
    failed, = {each.id for each in cloud.servers()} - set(servers)
    cloud.act('server', 'delete', '--wait', failed)
    eventually(cloud.agree)
    eventually(cloud.finds_nothing)
    servers += cloud.built(count - in_rack)
    eventually(cloud.agree)
    assert len({each['node_uuid'] for each in cloud.reservations()}) == count
    # Spread by the weigher, not all on one host.
    assert {each['host'] for each in cloud.reservations()} == set(
        cloud.cloud.hosts)

    assert cloud.fault().startswith('No valid host was found')
    eventually(cloud.agree)
    # It has taken nothing from the others.
    assert set(cloud.settled(servers).values()) == {'ACTIVE'}

    failed, = {each.id for each in cloud.servers()} - set(servers)
    cloud.act('server', 'delete', '--wait', failed, *servers[:3])
    eventually(cloud.agree)
    assert len(cloud.reservations()) == count - 3

    # What came back can be had at once.
    cloud.built(1)
    eventually(cloud.agree)

    cloud.delete_all()
    eventually(cloud.all_free)


def test_life_of_a_server(cloud):
    server = cloud.create()['id']
    [held] = cloud.reservations()

    def node():
        return cloud.system.baremetal.get_node(held['node_uuid'])

    def same():
        [now] = cloud.reservations()
        assert now['state'] == 'active'
        assert now['node_uuid'] == held['node_uuid']
        cloud.agree()

    def reached(status, power):
        assert cloud.connection.compute.get_server(server).status == status
        assert node().power_state == power

    # A fake deploy leaves the power off.
    for command, status, power in [
            (('reboot', '--hard', '--wait'), 'ACTIVE', 'power on'),
            (('stop',), 'SHUTOFF', 'power off'),
            (('start',), 'ACTIVE', 'power on'),
            (('reboot', '--wait'), 'ACTIVE', 'power on'),
            (('rebuild', '--wait', '--image', tools_cloud.IMAGE), 'ACTIVE',
             'power on')]:
        cloud.act('server', *command, server)
        eventually(functools.partial(reached, status, power))
        eventually(same)
    events = cloud.openstack('server', 'event', 'list', '--long', server)
    assert sorted(row['Action'] for row in events) == [
        'create', 'reboot', 'reboot', 'rebuild', 'start', 'stop']
    assert not any(row['Message'] for row in events)

    cloud.act('server', 'delete', '--wait', server)
    eventually(cloud.all_free)


def test_what_a_user_sees(cloud):
    [theirs] = cloud.built(1)

    def ask(*args):
        return cloud.openstack(*args, user='demo', check=False)

    for command in 'show', 'delete':
        assert ask('baremetal', 'reservation', command, theirs).returncode
    for command in 'list', 'capacity':
        assert cloud.openstack('baremetal', 'reservation', command,
                               user='demo') == []
    # Nor do the others tell.
    assert list(cloud.demo.compute.servers()) == []
    assert list(cloud.demo.baremetal.nodes()) == []
    for service, path in (('compute', '/os-hypervisors'),
                          ('placement', '/resource_providers')):
        assert getattr(cloud.demo, service).get(path).status_code == 403
    # Who does not see all of it is not told that all is well.
    refused = ask('baremetal', 'reservation', 'audit')
    assert (refused.returncode, refused.stdout) == (1, '')

    mine = cloud.create(user='demo')
    assert not {mine['OS-EXT-SRV-ATTR:host'],
                mine['OS-EXT-SRV-ATTR:hypervisor_hostname']} - {None, ''}
    # A server's reservation is its project's.
    [row] = cloud.openstack('baremetal', 'reservation', 'list', user='demo')
    assert row['Instance UUID'] == mine['id']
    assert ask('baremetal', 'reservation', 'delete', mine['id']).returncode
    eventually(cloud.agree)
    assert {each['instance_uuid'] for each in cloud.reservations()} == {
        theirs, mine['id']}
