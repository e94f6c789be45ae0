# SPDX-License-Identifier: Apache-2.0
"""A compute host dies with its servers, and another takes them over."""

import functools
import json
import os
import random
import signal
import time

import pytest

from tests.cloud.operator import eventually

pytestmark = pytest.mark.timeout(1200)

SERVERS, DEATHS = 4, 20


def boot_on(cloud, host, count=SERVERS):
    servers = [cloud.boot('--availability-zone', f'nova:{host}')['id']
               for _ in range(count)]
    assert set(cloud.settled(servers).values()) == {'ACTIVE'}
    return servers


def has_state(cloud, host, state):
    assert {row['Host']: row['State'] for row in cloud.compute_services()
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


def finds_nothing(cloud):
    assert cloud.audit() == set()


def answers(cloud, server):
    """A reboot works."""
    cloud.act('server', 'reboot', '--hard', '--wait', server)
    assert cloud.openstack('server', 'show', server)['status'] == 'ACTIVE'


def hosts_of(cloud, servers):
    return {each.compute_host for each in cloud.servers()
            if each.id in servers}


def test_move(cloud):
    source, target, other = cloud.cloud.hosts
    servers = boot_on(cloud, source)
    machines = {node.instance_id: node.id for node in cloud.nodes()}
    refused = cloud.openstack(
        'baremetal', 'reservation', 'move', '--from', source, '--to', target,
        check=False)
    assert refused.returncode == 1
    assert f'Host {source} is up' in refused.stderr
    die(cloud, source)
    began = time.monotonic()
    assert move(cloud, source, target, '--wait') == (
        dict.fromkeys(servers, f'taken over by {target}'), 0)
    print(f'{SERVERS} servers taken over {time.monotonic() - began:.0f} s '
          f'after the command')
    for server in servers:
        answers(cloud, server)
    eventually(functools.partial(finds_nothing, cloud))
    assert {node.instance_id: node.id for node in cloud.nodes()} == machines
    # The host that is back touches nothing, and can be removed.
    cloud.cloud.start(source)
    eventually(functools.partial(has_state, cloud, source, 'up'))
    answers(cloud, servers[0])
    finds_nothing(cloud)
    die(cloud, source)
    service, = (row['ID'] for row in cloud.compute_services()
                if row['Host'] == source)
    cloud.act('compute', 'service', 'delete', service)
    assert source not in {each.name for each in
                          cloud.connection.placement.resource_providers()}
    finds_nothing(cloud)
    assert hosts_of(cloud, servers) == {target}


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_deaths(cloud):
    """Twenty, some of them while others boot, or of the new host, too."""
    host = cloud.cloud.hosts[0]
    servers = boot_on(cloud, host)
    times = []
    for number in range(DEATHS):
        target = random.choice([each for each in cloud.cloud.hosts
                                if each != host])
        more = cloud.boot_many(1) if number % 4 == 0 else []
        die(cloud, host)
        began = time.monotonic()
        if number % 5 == 4:
            # The new host dies when it has begun.
            pid = cloud.cloud.pid(target)
            move(cloud, host, target)
            time.sleep(random.uniform(0, 6))
            os.killpg(pid, signal.SIGKILL)
            cloud.cloud.start(target)
            eventually(lambda to=target: assert_with(cloud, servers, to))
        else:
            results, status = move(cloud, host, target, '--wait')
            assert status == 0, results
            times.append(time.monotonic() - began)
        for server in servers:
            answers(cloud, server)
        cloud.cloud.start(host)
        eventually(functools.partial(has_state, cloud, host, 'up'))
        cloud.settled([*servers, *more])
        eventually(functools.partial(finds_nothing, cloud))
        for each in more:
            cloud.act('server', 'delete', '--wait', each)
        host = target
    print(f'{len(times)} moves: {min(times):.0f} to {max(times):.0f} s '
          f'after the command')


def assert_with(cloud, servers, host):
    assert hosts_of(cloud, servers) == {host}
