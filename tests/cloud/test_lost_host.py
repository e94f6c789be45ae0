# SPDX-License-Identifier: Apache-2.0
"""A compute host is killed, and another takes over its servers."""

import functools
import random
import signal
import time

import pytest

from tests.cloud.operator import eventually

pytestmark = pytest.mark.timeout(1200)

SERVERS, DEATHS = 4, 20
#: Further faults during the takeovers, in turn: none, or the new host or a
#: service is killed.
FAULTS = None, None, 'target', 'ironic', 'rabbitmq'


def kill(cloud, host):
    """Kill a host, and wait until Nova sees it as down."""
    cloud.cloud.signal(host, signal.SIGKILL)
    eventually(functools.partial(cloud.assert_state, host, 'down'))


def assert_on(cloud, servers, host):
    assert {server.compute_host for server in cloud.servers()
            if server.id in servers} == {host}


def map_nodes(cloud):
    """Return the nodes of all servers."""
    return {node.instance_id: node.id for node in cloud.nodes()
            if node.instance_id}


def test_move(cloud):
    source, target, other = cloud.cloud.hosts
    servers = cloud.boot_on(source, SERVERS)
    nodes = map_nodes(cloud)
    process = cloud.openstack(
        'baremetal', 'reservation', 'move', '--from', source, '--to', target,
        check=False)
    assert process.returncode == 1
    assert f'Compute service on {source} is up' in process.stderr
    kill(cloud, source)
    start = time.monotonic()
    assert cloud.move(source, target, '--wait') == (
        dict.fromkeys(servers, f'taken over by {target}'), 0)
    print(f'{SERVERS} servers taken over {time.monotonic() - start:.0f} s '
          f'after the command')
    # The history of each server contains the takeover.
    for server in servers:
        [request] = cloud.request_ids(server, 'takeover')
        assert request.startswith('req-')
    cloud.reboot(servers, start)
    eventually(cloud.assert_no_findings)
    assert map_nodes(cloud) == nodes
    # The returning host changes nothing, and can be removed.
    cloud.cloud.start(source)
    eventually(functools.partial(cloud.assert_state, source, 'up'))
    cloud.reboot(servers[:1], start)
    cloud.assert_no_findings()
    kill(cloud, source)
    service, = (service.id for service in cloud.compute_services()
                if service.host == source)
    cloud.act('compute', 'service', 'delete', service)
    assert source not in {
        provider.name for provider in
        cloud.connection.placement.resource_providers()}
    cloud.assert_no_findings()
    assert_on(cloud, servers, target)


@pytest.mark.long
@pytest.mark.timeout(5400)
def test_deaths(patient_cloud):
    """Servers move 20 times, while others are built on other hosts."""
    cloud = patient_cloud
    source, target, _ = cloud.cloud.hosts
    servers = cloud.boot_on(source, SERVERS)
    nodes = map_nodes(cloud)
    for number in range(DEATHS):
        fault = FAULTS[number % len(FAULTS)]
        kill(cloud, source)
        others = cloud.boot_many(2)
        start = time.monotonic()
        if fault is None:
            results, status = cloud.move(source, target, '--wait')
            assert status == 0, results
        else:
            victim = target if fault == 'target' else fault
            assert cloud.move(source, target)[1] == 0
            # A takeover takes a few seconds, and starts within five.
            time.sleep(random.uniform(0, 3))
            cloud.cloud.signal(victim, signal.SIGKILL)
            time.sleep(5)
            cloud.cloud.start(victim)
            eventually(functools.partial(assert_on, cloud, servers, target),
                       240)
        seconds = time.monotonic() - start
        print(f'{number + 1} ({fault or "nothing else"} killed): taken over '
              f'{seconds:.0f} s after the command, servers rebooted '
              f'{cloud.reboot(servers, start)} s after it', flush=True)
        before = cloud.report_times()
        cloud.cloud.start(source)
        # A deletion on a host that is down would be completed much later.
        # The next report of a host may be late after RabbitMQ was killed.
        for host in cloud.cloud.hosts:
            cloud.wait_for_report(host, before[host], 180)
        cloud.settle(others)
        for server in others:
            cloud.act('server', 'delete', '--wait', server)
        eventually(cloud.assert_no_findings)
        assert map_nodes(cloud) == nodes
        source, target = target, source
    eventually(cloud.assert_consistent)
