# SPDX-License-Identifier: Apache-2.0
"""Use of servers by users and operators, with the real command."""

import functools

import pytest

from tests.cloud.operator import eventually
from tools import trial_cloud

pytestmark = pytest.mark.timeout(900)


def test_hypervisors_are_hosts(cloud):
    rows = cloud.openstack('hypervisor', 'list')
    assert {row['Hypervisor Hostname'] for row in rows} == set(
        cloud.cloud.hosts)
    assert {row['Hypervisor Type'] for row in rows} == {'ironic'}
    assert {row['State'] for row in rows} == {'up'}


def rack(node):
    return dict(text.split(':') for text in
                node.properties['capabilities'].split(','))['rack']


@pytest.mark.long
def test_fleet_is_used_up_and_free_again(cloud):
    """Servers of a group with affinity are in one rack."""
    count, in_rack = cloud.cloud.nodes, cloud.cloud.nodes // trial_cloud.RACKS
    group = cloud.openstack('server', 'group', 'create', '--policy',
                            'affinity', 'group', user='demo')['id']
    member = {'by': cloud.demo, 'scheduler_hints': {'group': group}}
    eventually(cloud.assert_no_findings)
    servers = cloud.boot_many(in_rack, **member)
    # The audit finds nothing during builds either.
    cloud.assert_no_findings()
    assert set(cloud.settle(servers).values()) == {'ACTIVE'}
    racks = [rack(node) for node in cloud.nodes() if node.instance_id]
    assert len(racks) == in_rack and len(set(racks)) == 1
    # The weigher spreads them over hosts, unlike Nova's own filter.
    assert len({row['host'] for row in cloud.reservations()}) > 1
    assert ('no free node matches group:pack=capability:rack'
            in cloud.fail_to_boot(**member))
    error, = {server.id for server in cloud.servers()} - set(servers)
    cloud.act('server', 'delete', '--wait', error)
    eventually(cloud.assert_consistent)
    eventually(cloud.assert_no_findings)
    servers += cloud.boot_active(count - in_rack)
    eventually(cloud.assert_consistent)
    assert len({row['node_uuid'] for row in cloud.reservations()}) == count
    # The weigher spreads them over all hosts.
    assert {row['host'] for row in cloud.reservations()} == set(
        cloud.cloud.hosts)

    assert cloud.fail_to_boot().startswith('No valid host was found')
    eventually(cloud.assert_consistent)
    # The other servers are not affected.
    assert set(cloud.settle(servers).values()) == {'ACTIVE'}

    error, = {server.id for server in cloud.servers()} - set(servers)
    cloud.act('server', 'delete', '--wait', error, *servers[:3])
    eventually(cloud.assert_consistent)
    assert len(cloud.reservations()) == count - 3

    # Released nodes can be used at once.
    cloud.boot_active(1)
    eventually(cloud.assert_consistent)

    cloud.delete_all()
    eventually(cloud.assert_all_free)


def test_life_of_a_server(cloud):
    server = cloud.create()['id']
    [reservation] = cloud.reservations()

    def node():
        return cloud.system.baremetal.get_node(reservation['node_uuid'])

    def assert_unchanged():
        [now] = cloud.reservations()
        assert now['state'] == 'active'
        assert now['node_uuid'] == reservation['node_uuid']
        cloud.assert_consistent()

    def assert_state(status, power):
        assert cloud.connection.compute.get_server(server).status == status
        assert node().power_state == power

    # A fake deploy leaves the power off.
    for command, status, power in [
            (('reboot', '--hard', '--wait'), 'ACTIVE', 'power on'),
            (('stop',), 'SHUTOFF', 'power off'),
            (('start',), 'ACTIVE', 'power on'),
            (('reboot', '--wait'), 'ACTIVE', 'power on'),
            (('rebuild', '--wait', '--image', trial_cloud.IMAGE), 'ACTIVE',
             'power on')]:
        cloud.act('server', *command, server)
        eventually(functools.partial(assert_state, status, power))
        eventually(assert_unchanged)
    events = cloud.openstack('server', 'event', 'list', '--long', server)
    assert sorted(row['Action'] for row in events) == [
        'create', 'reboot', 'reboot', 'rebuild', 'start', 'stop']
    assert not any(row['Message'] for row in events)

    cloud.act('server', 'delete', '--wait', server)
    eventually(cloud.assert_all_free)


def test_what_a_user_sees(cloud):
    [theirs] = cloud.boot_active(1)

    def ask(*args):
        return cloud.openstack(*args, user='demo', check=False)

    for command in 'show', 'delete':
        assert ask('baremetal', 'reservation', command, theirs).returncode
    for command in 'list', 'capacity':
        assert cloud.openstack('baremetal', 'reservation', command,
                               user='demo') == []
    # Other services show nothing either.
    assert list(cloud.demo.compute.servers()) == []
    assert list(cloud.demo.baremetal.nodes()) == []
    for service, path in (('compute', '/os-hypervisors'),
                          ('placement', '/resource_providers')):
        assert getattr(cloud.demo, service).get(path).status_code == 403
    # The audit fails without the right to see everything.
    process = ask('baremetal', 'reservation', 'audit')
    assert (process.returncode, process.stdout) == (1, '')

    mine = cloud.create(user='demo')
    assert not {mine['OS-EXT-SRV-ATTR:host'],
                mine['OS-EXT-SRV-ATTR:hypervisor_hostname']} - {None, ''}
    # The reservation of a server belongs to its project.
    [row] = cloud.openstack('baremetal', 'reservation', 'list', user='demo')
    assert row['Instance UUID'] == mine['id']
    assert ask('baremetal', 'reservation', 'delete', mine['id']).returncode
    eventually(cloud.assert_consistent)
    assert {row['instance_uuid'] for row in cloud.reservations()} == {
        theirs, mine['id']}
