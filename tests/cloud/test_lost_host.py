# SPDX-License-Identifier: Apache-2.0
"""A compute host dies with its servers, and another takes them over."""

import functools
import json
import random
import signal
import time

import pytest

from tests.cloud.operator import eventually

pytestmark = pytest.mark.timeout(1200)

SERVERS, DEATHS = 4, 20
#: What dies, too, one after the other in each death's turn: nothing, or the
#: new host or a service while the new host takes over.
FAULTS = None, None, 'target', 'ironic', 'rabbitmq'


def has_state(cloud, host, state):
    assert {each.host: each.state for each in cloud.compute_services()
            }[host] == state


def die(cloud, host):
    """SIGKILL, and until Nova knows."""
    cloud.cloud.signal(host, signal.SIGKILL)
    eventually(functools.partial(has_state, cloud, host, 'down'))


def move(cloud, source, target, *args):
    """The results, by server, and the exit status."""
    done = cloud.openstack('baremetal', 'reservation', 'move', '--from',
                           source, '--to', target, *args, '-f', 'json',
                           check=False)
    assert done.stdout, done.stderr
    return {row['Instance']: row['Result']
            for row in json.loads(done.stdout)}, done.returncode


def hosts_of(cloud, servers):
    return {each.compute_host for each in cloud.servers()
            if each.id in servers}


def test_move(cloud):
    source, target, other = cloud.cloud.hosts
    servers = cloud.boot_on(source, SERVERS)
    machines = {node.instance_id: node.id for node in cloud.nodes()}
    refused = cloud.openstack(
        'baremetal', 'reservation', 'move', '--from', source, '--to', target,
        check=False)
    assert refused.returncode == 1
    assert f'Compute service on {source} is up' in refused.stderr
    die(cloud, source)
    began = time.monotonic()
    assert move(cloud, source, target, '--wait') == (
        dict.fromkeys(servers, f'taken over by {target}'), 0)
    print(f'{SERVERS} servers taken over {time.monotonic() - began:.0f} s '
          f'after the command')
    # It stands in the history of each, with the ID of a request.
    for server in servers:
        [event] = [each for each in cloud.openstack(
            'server', 'event', 'list', server)
            if each['Action'] == 'takeover']
        assert event['Request ID'].startswith('req-')
    cloud.rebooted(servers, began)
    eventually(cloud.finds_nothing)
    assert {node.instance_id: node.id for node in cloud.nodes()} == machines
    # The host that is back touches nothing, and can be removed.
    cloud.cloud.start(source)
    eventually(functools.partial(has_state, cloud, source, 'up'))
    cloud.rebooted(servers[:1], began)
    cloud.finds_nothing()
    die(cloud, source)
    service, = (each.id for each in cloud.compute_services()
                if each.host == source)
    cloud.act('compute', 'service', 'delete', service)
    assert source not in {each.name for each in
                          cloud.connection.placement.resource_providers()}
    cloud.finds_nothing()
    assert hosts_of(cloud, servers) == {target}


@pytest.mark.long
@pytest.mark.timeout(5400)
def test_deaths(patient_cloud):
    """Twenty, there and back, while servers are built on the other hosts."""
    cloud = patient_cloud
    source, target, _ = cloud.cloud.hosts
    servers = cloud.boot_on(source, SERVERS)
    machines = {node.instance_id: node.id for node in cloud.nodes()
                if node.instance_id}
    for number in range(DEATHS):
        fault = FAULTS[number % len(FAULTS)]
        die(cloud, source)
        more = cloud.boot_many(2)
        began = time.monotonic()
        if fault is None:
            results, status = move(cloud, source, target, '--wait')
            assert status == 0, results
        else:
            victim = target if fault == 'target' else fault
            assert move(cloud, source, target)[1] == 0
            # It takes over within five seconds and a few more.
            time.sleep(random.uniform(0, 3))
            cloud.cloud.signal(victim, signal.SIGKILL)
            time.sleep(5)
            cloud.cloud.start(victim)
            eventually(lambda to=target: are_on(cloud, servers, to), 240)
        seconds = time.monotonic() - began
        print(f'{number + 1} ({fault or "nothing"} died, too): taken over '
              f'{seconds:.0f} s after the command, servers rebooted '
              f'{cloud.rebooted(servers, began)} s after it', flush=True)
        cloud.cloud.start(source)
        # What is deleted on a host that is down is torn down much later.
        eventually(cloud.hosts_are_up)
        cloud.settled(more)
        for each in more:
            cloud.act('server', 'delete', '--wait', each)
        eventually(cloud.finds_nothing)
        assert {node.instance_id: node.id for node in cloud.nodes()
                if node.instance_id} == machines
        source, target = target, source
    eventually(cloud.agree)


def are_on(cloud, servers, host):
    assert hosts_of(cloud, servers) == {host}
