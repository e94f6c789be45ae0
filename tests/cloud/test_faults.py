# SPDX-License-Identifier: Apache-2.0
"""Processes are killed while servers are built."""

import contextlib
import functools
import signal
import time

import pytest

from tests.cloud.operator import COMPLETES
from tests.cloud.operator import LEASE
from tests.cloud.operator import eventually

pytestmark = pytest.mark.timeout(900)


def wait_for_reservation(cloud, server, state):
    def check():
        reservations = [reservation for reservation in cloud.reservations()
                        if reservation['instance_uuid'] == server]
        assert [reservation['state'] for reservation in reservations] == [
            state]
        return reservations[0]
    return eventually(check)


def assert_deploying(cloud, servers):
    assert {(reservation['instance_uuid'], reservation['state'])
            for reservation in cloud.reservations()} == {
        (server, 'deploying') for server in servers}


def hold_and_kill(cloud):
    """Kill a host after it has held a node; return the reservation."""
    with contextlib.ExitStack() as stack:
        with cloud.freeze('nova-scheduler'):
            [server] = cloud.boot_many(1)
            # The hold needs no network, but the next step does.
            stack.enter_context(cloud.freeze('neutron'))
        reservation = wait_for_reservation(cloud, server, 'reserved')
        cloud.cloud.signal(reservation['host'], signal.SIGKILL)
    return reservation


def restart(cloud, reservation, status='ERROR'):
    """Start the host, and check the status of its interrupted build."""
    cloud.cloud.start(reservation['host'])
    server = reservation['instance_uuid']
    assert cloud.settle([server]) == {server: status}


@pytest.mark.long
def test_compute_is_killed_between_hold_and_deploy(cloud):
    """The node becomes free without the host."""
    reservation = hold_and_kill(cloud)

    def assert_released():
        assert not cloud.reservations()
        free, total = cloud.capacity()
        assert free == total
    eventually(assert_released, LEASE + 20)
    cloud.sweep()
    assert not any(node.instance_id for node in cloud.nodes())
    restart(cloud, reservation)


@pytest.mark.long
def test_compute_is_killed_when_it_prepares_the_node(cloud):
    """A touched node stays reserved until it was cleaned."""
    reservation = hold_and_kill(cloud)
    # The first change of a node by a host.
    cloud.system.baremetal.patch_node(reservation['node_uuid'], [
        {'op': 'add', 'path': '/instance_info/image_source', 'value': 'x'}])
    time.sleep(LEASE + 5)
    cloud.sweep()
    [now] = cloud.reservations()
    assert now['node_uuid'] == reservation['node_uuid']
    restart(cloud, reservation)
    cloud.delete_all()
    eventually(cloud.assert_all_free)
    assert not cloud.system.baremetal.get_node(
        reservation['node_uuid']).instance_info


@pytest.mark.long
def test_compute_is_killed_during_deploy(cloud):
    [server] = cloud.boot_many(1)
    reservation = wait_for_reservation(cloud, server, 'deploying')
    cloud.cloud.signal(reservation['host'], signal.SIGKILL)
    # Ironic continues; the server keeps its node.
    now = wait_for_reservation(cloud, server, 'active')
    assert now['node_uuid'] == reservation['node_uuid']
    restart(cloud, reservation, 'ACTIVE' if COMPLETES else 'ERROR')
    cloud.delete_all()
    eventually(cloud.assert_all_free)


@pytest.mark.long
@pytest.mark.parametrize('name', [
    'ironic', 'ironic-conductor', 'rabbitmq', 'mariadb'])
def test_service_is_killed_during_deploys(cloud, name):
    servers = cloud.boot_many(4)
    eventually(functools.partial(assert_deploying, cloud, servers))
    # Let Nova receive the responses: if one is lost, it repeats the request,
    # which Ironic refuses, and gives up.
    time.sleep(1)
    cloud.cloud.signal(name, signal.SIGKILL)
    time.sleep(5)
    cloud.cloud.start(name)

    status = cloud.settle(servers)
    print(name, sorted(status.values()))
    if name == 'ironic':
        assert set(status.values()) == {'ACTIVE'}
    instances = [node.instance_id for node in cloud.nodes()
                 if node.instance_id]
    assert len(set(instances)) == len(instances)
    assert {server for server in servers if status[server] == 'ACTIVE'
            } <= set(instances) <= set(servers)

    if name == 'mariadb':
        # A conductor that could not write keeps its locks until it restarts.
        cloud.cloud.stop('ironic-conductor')
        cloud.cloud.start('ironic-conductor')
    cloud.empty()
    # The cloud works as before.
    eventually(cloud.assert_hosts_up)
    cloud.boot_active(3)
    eventually(cloud.assert_consistent)
