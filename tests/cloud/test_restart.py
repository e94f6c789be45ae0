# SPDX-License-Identifier: Apache-2.0
"""A host is restarted during its operations."""

import collections
import contextlib
import functools
import itertools
import random
import signal
import time

import pytest

from tests.cloud import conftest
from tests.cloud import operator
from tests.cloud import standbys
from tests.cloud.operator import eventually
from tools import services

pytestmark = pytest.mark.timeout(900)

#: Numbers of operations that are started in each round.
BUILDS, REBUILDS, DELETIONS = 6, 2, 2

#: Seconds that Nova waits for operations in progress on SIGTERM, and some
#: more.
NOVA_WAITS = 200

#: Faults of servers that were not built or rebuilt.
REASONS = ('nova-compute was restarted before deployment began',
           'the request to build it was lost')


@pytest.fixture
def slow_cloud(cloud):
    """A cloud in which ten deployments overlap."""
    set_deploy_delay(cloud, 10)
    yield cloud
    set_deploy_delay(cloud, operator.DEPLOY_DELAY)


def set_deploy_delay(cloud, seconds):
    """Set the duration of each half of a deployment."""
    def check():
        assert list(cloud.system.baremetal.conductors())

    cloud.cloud.deploy_delay = seconds
    cloud.cloud.configure()
    cloud.cloud.stop('ironic-conductor')
    cloud.cloud.start('ironic-conductor')
    eventually(check)


def count_deploying(cloud, count):
    """Return how many servers are deploying, after Ironic accepted all."""
    states = [row['state'] for row in cloud.reservations()]
    assert len(states) == count
    assert set(states) <= {'deploying', 'active'}, states
    return states.count('deploying')


def stop(cloud, name, number, timeout=NOVA_WAITS):
    """Send a signal, and wait until the process has exited.

    Supervisord would send SIGKILL after ten seconds.
    """
    cloud.cloud.signal(name, number)
    standbys.wait_for_exit(cloud, name, timeout)


@pytest.mark.parametrize('number', [
    signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.long)])
def test_ten_builds(slow_cloud, number):
    """No build is lost, unless Nova gives it up."""
    cloud = slow_cloud
    host = cloud.cloud.hosts[0]
    servers = cloud.boot_one_each(host, 10)
    eventually(functools.partial(count_deploying, cloud, 10))
    start = time.monotonic()
    with cloud.freeze('ironic-conductor'):
        before = count_deploying(cloud, 10)
        assert before
        # It waits for none of them, unlike Nova.
        stop(cloud, host, number, NOVA_WAITS / 2)
        assert count_deploying(cloud, 10) == before
    print(f'Exited {time.monotonic() - start:.0f} s after {number.name}')
    cloud.cloud.start(host)
    if not operator.COMPLETES:
        # Some may have been built before.
        assert [*cloud.settle(servers).values()].count('ERROR') >= before
        return
    assert set(cloud.settle(servers).values()) == {'ACTIVE'}
    print(f'Ten servers are built {time.monotonic() - start:.0f} s after it')
    eventually(cloud.assert_no_findings)
    eventually(cloud.assert_consistent)


@pytest.mark.long
def test_rebuild_that_waits(cloud):
    """A rebuild that was requested during a restart."""
    host = cloud.cloud.hosts[0]
    [server] = cloud.boot_on(host, 1)
    compute = cloud.connection.compute
    stop(cloud, host, signal.SIGTERM)
    image = cloud.server_options()['image_id']
    compute.rebuild_server(server, image=image)
    cloud.cloud.start(host)
    if not operator.COMPLETES:
        assert cloud.settle([server]) == {server: 'ERROR'}
        return
    assert cloud.settle([server]) == {server: 'ACTIVE'}
    [rebuild] = cloud.request_ids(server, 'rebuild')
    assert set(cloud.results(server, rebuild)) == {'Success'}
    eventually(cloud.assert_no_findings)


#: Options with which an alarm ends a process that does not stop in time.
ALARM = {'manager_shutdown_timeout': 25, 'graceful_shutdown_timeout': 30}


@pytest.mark.long
@pytest.mark.parametrize('has_standby, patience', [
    (False, ALARM),
    # From Nova 34, the expiry of its lease ends it, too.
    (True, {'graceful_shutdown_timeout': 0} if operator.COMPLETES else ALARM)])
def test_tear_down_that_outlives_its_process(cloud, has_standby, patience):
    """The standby completes it, or the next start of the host."""
    host = cloud.cloud.hosts[0]
    cloud.reconfigure(standby=has_standby or None, compute=patience)
    try:
        if has_standby:
            holder = standbys.wait_for_host(cloud)
            standbys.start_standby(cloud, standbys.SECOND)
        [server] = cloud.boot_on(host, 1)
        cloud.connection.compute.delete_server(server)
        eventually(functools.partial(assert_deleting, cloud, server))
        with cloud.freeze('ironic-conductor'):
            start = time.monotonic()
            stop(cloud, host, signal.SIGTERM, 60)
            print(f'Exited {time.monotonic() - start:.0f} s after SIGTERM')
            if has_standby:
                standbys.wait_for_takeover(cloud, holder, start)
            assert_deleting(cloud, server)
        if not has_standby:
            cloud.cloud.start(host)
        eventually(cloud.assert_all_free)
        eventually(cloud.assert_no_findings)
    finally:
        cloud.reconfigure(standby=None, compute=conftest.STOP)


def assert_deleting(cloud, server):
    assert [node.provision_state for node in cloud.nodes()
            if node.instance_id == server] == ['deleting']


class Round:
    """Concurrent builds, rebuilds and deletions, and their results."""

    def __init__(self, cloud, host):
        self._cloud, compute = cloud, cloud.connection.compute
        old = cloud.boot_on(host, REBUILDS + DELETIONS)
        self.deletions = set(old[REBUILDS:])
        image = cloud.server_options()['image_id']
        for server in self.deletions:
            compute.delete_server(server)
        for server in old[:REBUILDS]:
            compute.rebuild_server(server, image=image)
        builds = cloud.boot_one_each(host, BUILDS)
        self.operations = {
            **dict.fromkeys(builds, 'build'),
            **dict.fromkeys(old[:REBUILDS], 'rebuild'),
            **dict.fromkeys(self.deletions, 'deletion')}

    def check_finished(self):
        servers = {server.id: server for server in self._cloud.servers()}
        assert {(server.status, server.task_state)
                for server in servers.values()
                } <= {('ACTIVE', None), ('ERROR', None)}, servers
        assert all(servers[server].status == 'ERROR'
                   for server in self.deletions & servers.keys())
        return servers

    def count_results(self, with_move):
        """Return the numbers of operations by result.

        :param with_move: whether servers were moved, which ends builds that
            had not started without a reason.
        """
        servers = eventually(self.check_finished, 600)
        results = collections.Counter()
        for server, operation in self.operations.items():
            status = (servers[server].status if server in servers
                      else 'deleted')
            if status == 'ERROR' and operation != 'deletion':
                fault = self._cloud.connection.compute.get_server(
                    server).fault
                if fault:
                    assert any(reason in fault['message']
                               for reason in REASONS), (operation, fault)
                else:
                    # Nova ends rebuilds in a queue in this way, and before
                    # 34 builds too.
                    assert (with_move or operation == 'rebuild'
                            or not operator.COMPLETES)
                    status = 'ERROR without a reason'
            results[f'{operation}: {status}'] += 1
        return results


def stop_and_start(cloud, number, source, target):
    stop(cloud, source, number)
    cloud.cloud.start(source)


def move(cloud, number, source, target):
    if number == signal.SIGSTOP:
        cloud.cloud.signal(source, number)
    else:
        stop(cloud, source, number)
    eventually(functools.partial(cloud.assert_state, source, 'down'))
    results, _ = cloud.move(source, target, '--wait')
    compute = cloud.connection.compute
    for server, result in results.items():
        if result.startswith('stays'):
            # Its node is released, and a repeated request deletes it.
            current = compute.get_server(server)
            assert (current.task_state == 'deleting'
                    or current.status == 'DELETED'
                    or not operator.COMPLETES and current.status == 'ERROR'
                    ), result
            compute.delete_server(server)


def hand_over(cloud, number, works, waits):
    holder, start = standbys.get_lease(cloud)['holder'], time.monotonic()
    cloud.cloud.signal(works, number)
    standbys.wait_for_takeover(cloud, holder, start)


def come_back(cloud, number, source):
    """Resume a stopped process, and start a new one.

    The kernel may have killed it if it had a host lease.
    """
    if number == signal.SIGSTOP:
        with contextlib.suppress(services.StartError):
            cloud.cloud.signal(source, signal.SIGCONT)
            time.sleep(10)
            stop(cloud, source, signal.SIGKILL)
    cloud.cloud.start(source)


WAYS = {'restart': (stop_and_start, 7, (signal.SIGKILL, signal.SIGTERM)),
        'move': (move, 6, (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)),
        'standby': (hand_over, 7, (signal.SIGKILL, signal.SIGTERM,
                                   signal.SIGSTOP))}


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize('way', WAYS)
def test_at_random_moments(request, way):
    """Interrupt a host in three ways, twenty times in all."""
    cloud = request.getfixturevalue(
        'standby' if way == 'standby' else 'cloud')
    interrupt, rounds, signals = WAYS[way]
    source, target = ((standbys.FIRST, standbys.SECOND)
                      if way == 'standby' else cloud.cloud.hosts[:2])
    total = collections.Counter()
    for number in itertools.islice(itertools.cycle(signals), rounds):
        operations = Round(cloud, cloud.cloud.hosts[0])
        moment = random.uniform(0, 15)
        time.sleep(moment)
        interrupt(cloud, number, source, target)
        results = operations.count_results(with_move=way == 'move')
        print(f'{way}, {number.name} after {moment:.1f} s: {dict(results)}',
              flush=True)
        total += results
        come_back(cloud, number, source)
        if way == 'standby':
            source, target = target, source
        # Nova releases no node of a server whose host is down.
        eventually(cloud.assert_hosts_up)
        if operator.COMPLETES:
            eventually(cloud.assert_no_findings)
        else:
            # Nova leaves allocations and leases of the builds that it ends.
            cloud.delete_all()
            time.sleep(operator.LEASE)
            cloud.sweep()
        cloud.empty()
        eventually(cloud.assert_no_findings)
    print(f'{way}: {dict(total)}')
