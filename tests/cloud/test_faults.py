# SPDX-License-Identifier: Apache-2.0
"""What dies while servers are built, and what is left of it."""

import contextlib
import functools
import os
import signal
import time

import pytest

from tests.cloud import conftest
from tests.cloud.operator import eventually

pytestmark = pytest.mark.timeout(900)


def reservation(cloud, server, state):
    """The server's reservation once it is in a state."""
    def seen():
        found = [each for each in cloud.reservations()
                 if each['instance_uuid'] == server]
        assert [each['state'] for each in found] == [state]
        return found[0]
    return eventually(seen)


def all_deploying(cloud, servers):
    assert {(each['instance_uuid'], each['state'])
            for each in cloud.reservations()} == {
        (server, 'deploying') for server in servers}


@contextlib.contextmanager
def stopped(cloud, name):
    """A service, with its workers, that answers nobody for a while."""
    group = cloud.cloud.pid(name)
    os.killpg(group, signal.SIGSTOP)
    try:
        yield
    finally:
        # A host that was replaced is not there any more.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGCONT)


def killed_with_a_hold(cloud):
    """A server whose host has died after it held a node: its reservation."""
    with contextlib.ExitStack() as stack:
        with stopped(cloud, 'nova-scheduler'):
            [server] = cloud.boot_many(1)
            # The hold needs no network; what the host does next does.
            stack.enter_context(stopped(cloud, 'neutron'))
        held = reservation(cloud, server, 'reserved')
        cloud.cloud.signal(held['host'], signal.SIGKILL)
    return held


def back(cloud, held, status='ERROR'):
    """The host again, and what it makes of a build that it finds."""
    cloud.cloud.start(held['host'])
    server = held['instance_uuid']
    assert cloud.settled([server]) == {server: status}


@pytest.mark.long
def test_compute_dies_between_hold_and_deploy(cloud):
    """Nobody needs that host to get its node back."""
    held = killed_with_a_hold(cloud)

    def given_back():
        assert not cloud.reservations()
        free, total = cloud.capacity()
        assert free == total
    eventually(given_back, conftest.LEASE + 20)
    cloud.sweep()
    assert not any(node.instance_id for node in cloud.nodes())
    back(cloud, held)


@pytest.mark.long
def test_compute_dies_when_it_prepares_the_node(cloud):
    """A touched node is nobody's until it was cleaned up."""
    held = killed_with_a_hold(cloud)
    # What the host does first to a node.
    cloud.system.baremetal.patch_node(held['node_uuid'], [
        {'op': 'add', 'path': '/instance_info/image_source', 'value': 'x'}])
    time.sleep(conftest.LEASE + 5)
    cloud.sweep()
    assert [each['node_uuid'] for each in cloud.reservations()] == [
        held['node_uuid']]
    back(cloud, held)
    cloud.delete_all()
    eventually(cloud.all_free)
    assert not cloud.system.baremetal.get_node(
        held['node_uuid']).instance_info


def test_compute_dies_during_deploy(cloud):
    [server] = cloud.boot_many(1)
    held = reservation(cloud, server, 'deploying')
    cloud.cloud.signal(held['host'], signal.SIGKILL)
    # Ironic goes on; the node stays the server's.
    assert reservation(cloud, server, 'active')['node_uuid'] == held[
        'node_uuid']
    back(cloud, held, 'ACTIVE')
    cloud.delete_all()
    eventually(cloud.all_free)


@pytest.mark.long
@pytest.mark.parametrize('name', [
    'ironic', 'ironic-conductor', 'rabbitmq', 'mariadb'])
def test_service_dies_during_deploys(cloud, name):
    servers = cloud.boot_many(4)
    eventually(functools.partial(all_deploying, cloud, servers))
    # Nova has been told so: should the answer be lost it asks again, is told
    # that a node cannot be deployed twice, and gives up.
    time.sleep(1)
    cloud.cloud.signal(name, signal.SIGKILL)
    time.sleep(5)
    cloud.cloud.start(name)

    status = cloud.settled(servers)
    print(name, sorted(status.values()))
    if name == 'ironic':
        assert set(status.values()) == {'ACTIVE'}
    carried = [node.instance_id for node in cloud.nodes() if node.instance_id]
    assert len(set(carried)) == len(carried)
    assert {server for server in servers if status[server] == 'ACTIVE'
            } <= set(carried) <= set(servers)

    if name == 'mariadb':
        # A conductor that could not write keeps its locks until it is
        # started anew.
        cloud.cloud.stop('ironic-conductor')
        cloud.cloud.start('ironic-conductor')
    cloud.empty()
    # And it works as before.
    eventually(cloud.hosts_are_up)
    assert set(cloud.settled(cloud.boot_many(3)).values()) == {'ACTIVE'}
    eventually(cloud.agree)
