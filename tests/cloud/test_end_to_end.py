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


def test_fleet_is_used_up_and_free_again(cloud):
    count = cloud.cloud.nodes
    servers = []
    for _ in range(3):
        server = cloud.boot('--wait')
        assert server['status'] == 'ACTIVE'
        servers.append(server['id'])
        eventually(cloud.agree)

    rest = str(count - 3)
    cloud.boot('--min', rest, '--max', rest)
    servers = [each.id for each in cloud.servers()]
    assert len(servers) == count
    assert set(cloud.settled(servers).values()) == {'ACTIVE'}
    eventually(cloud.agree)
    assert len({each['node_uuid'] for each in cloud.reservations()}) == count
    # Spread by the weigher, not all on one host.
    assert {each['host'] for each in cloud.reservations()} == set(
        cloud.cloud.hosts)

    failed = cloud.boot()
    assert cloud.settled([failed['id']]) == {failed['id']: 'ERROR'}
    shown = cloud.openstack('server', 'show', failed['id'])
    assert shown['fault']['message'].startswith('No valid host was found')
    eventually(cloud.agree)
    # It has taken nothing from the others.
    assert set(cloud.settled(servers).values()) == {'ACTIVE'}

    cloud.act('server', 'delete', '--wait', failed['id'], *servers[:3])
    eventually(cloud.agree)
    assert len(cloud.reservations()) == count - 3

    # What came back can be had at once.
    assert cloud.boot('--wait')['status'] == 'ACTIVE'
    eventually(cloud.agree)

    cloud.delete_all()
    eventually(cloud.all_free)


def test_life_of_a_server(cloud):
    server = cloud.boot('--wait')['id']
    [held] = cloud.reservations()

    def node():
        return cloud.system.baremetal.get_node(held['node_uuid'])

    def same():
        [now] = cloud.reservations()
        assert now['state'] == 'active'
        assert now['node_uuid'] == held['node_uuid']
        cloud.agree()

    def reached(status, power):
        assert cloud.openstack('server', 'show', server)['status'] == status
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
    theirs = cloud.boot('--wait')['id']

    def ask(*args):
        return cloud.openstack(*args, user='demo', check=False)

    for args in (('hypervisor', 'list'),
                 ('baremetal', 'reservation', 'show', theirs),
                 ('baremetal', 'reservation', 'delete', theirs),
                 ('server', 'show', theirs)):
        assert ask(*args).returncode, args
    for command in (('baremetal', 'reservation', 'list'),
                    ('baremetal', 'reservation', 'capacity'),
                    ('baremetal', 'node', 'list'), ('server', 'list')):
        assert cloud.openstack(*command, user='demo') == [], command
    assert cloud.cloud.connect(
        username='demo', project_name='demo', project_domain_name='Default'
    ).placement.get('/resource_providers').status_code == 403

    mine = cloud.boot('--wait', user='demo')
    assert mine['status'] == 'ACTIVE'
    assert not {mine['OS-EXT-SRV-ATTR:host'],
                mine['OS-EXT-SRV-ATTR:hypervisor_hostname']} - {None, ''}
    # A server's reservation is its project's.
    [row] = cloud.openstack('baremetal', 'reservation', 'list', user='demo')
    assert row['Instance UUID'] == mine['id']
    assert ask('baremetal', 'reservation', 'delete', mine['id']).returncode
    eventually(cloud.agree)
    assert {each['instance_uuid'] for each in cloud.reservations()} == {
        theirs, mine['id']}
