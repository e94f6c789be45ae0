# SPDX-License-Identifier: Apache-2.0
"""A host is restarted in the middle of what it does."""

import collections
import contextlib
import functools
import itertools
import random
import signal
import time

import pytest

from tests.cloud import conftest
from tests.cloud import test_lost_host
from tests.cloud import test_standby
from tests.cloud.operator import eventually

pytestmark = pytest.mark.timeout(900)

#: What is begun in each round, and how many there are of it.
BUILDS, REBUILDS, DELETIONS = 6, 2, 2

#: Seconds, and some, for which Nova waits for what is in progress when it is
#: told to stop.
NOVA_WAITS = 200

#: What a server's fault says that was not built, or not rebuilt.
REASONS = ('nova-compute was restarted before deployment began',
           'the request to build it was lost')

standby = test_standby.standby


@pytest.fixture
def slow_cloud(cloud):
    """Most of ten builds are begun before the first of them is done."""
    let_deploy(cloud, 10)
    yield cloud
    let_deploy(cloud, conftest.DEPLOY)


def let_deploy(cloud, seconds):
    """Have each half of a deploy take so long."""
    def is_there():
        assert list(cloud.system.baremetal.conductors())

    cloud.cloud.deploy_delay = seconds
    cloud.cloud.configure()
    cloud.cloud.stop('ironic-conductor')
    cloud.cloud.start('ironic-conductor')
    eventually(is_there)


def begin(cloud, host, count):
    """Have a host build servers, all at once; their IDs."""
    wanted = cloud.wanted()
    return [cloud.connection.compute.create_server(
        name=f'server-{number}', availability_zone=f'nova:{host}', **wanted
    ).id for number in range(count)]


def deploying(cloud, count):
    """How many are, once Ironic has accepted all of them."""
    states = [each['state'] for each in cloud.reservations()]
    assert len(states) == count
    assert set(states) <= {'deploying', 'active'}, states
    return states.count('deploying')


@contextlib.contextmanager
def halted_conductor(cloud):
    """Whatever is deployed takes as long as the body of the ``with``."""
    cloud.cloud.signal('ironic-conductor', signal.SIGSTOP)
    try:
        yield
    finally:
        cloud.cloud.signal('ironic-conductor', signal.SIGCONT)


def end(cloud, name, number, timeout=NOVA_WAITS):
    """Send a signal, and wait until the process has ended.

    Not by supervisord, which sends SIGKILL after ten seconds.
    """
    def has_ended():
        assert 'EXITED' in cloud.cloud.control('status', name).stdout

    cloud.cloud.signal(name, number)
    eventually(has_ended, timeout)


@pytest.mark.parametrize('number', [
    signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.long)])
def test_ten_builds(slow_cloud, number):
    """None is lost."""
    cloud = slow_cloud
    host = cloud.cloud.hosts[0]
    servers = begin(cloud, host, 10)
    eventually(functools.partial(deploying, cloud, 10))
    began = time.monotonic()
    with halted_conductor(cloud):
        left = deploying(cloud, 10)
        assert left
        # It waits for none of them, as Nova would.
        end(cloud, host, number, NOVA_WAITS / 2)
        assert deploying(cloud, 10) == left
    print(f'Ended {time.monotonic() - began:.0f} s after {number.name}')
    cloud.cloud.start(host)
    assert set(cloud.settled(servers).values()) == {'ACTIVE'}
    print(f'Ten servers are built {time.monotonic() - began:.0f} s after it')
    eventually(cloud.finds_nothing)
    eventually(cloud.agree)


def test_rebuild_that_waits(cloud):
    """What was asked for while its host was restarted is done then."""
    host = cloud.cloud.hosts[0]
    [server] = cloud.boot_on(host, 1)
    compute = cloud.connection.compute
    end(cloud, host, signal.SIGTERM)
    image = cloud.wanted()['image_id']
    compute.rebuild_server(server, image=image)
    cloud.cloud.start(host)
    assert cloud.settled([server]) == {server: 'ACTIVE'}
    [rebuild] = [each.request_id for each in compute.server_actions(server)
                 if each.action == 'rebuild']
    assert set(cloud.results(server, rebuild)) == {'Success'}
    eventually(cloud.finds_nothing)


@pytest.mark.long
@pytest.mark.parametrize('has_standby, patience', [
    # Nova ends it itself, with an alarm.
    (False, {'manager_shutdown_timeout': 25,
             'graceful_shutdown_timeout': 30}),
    # Nothing but the end of its lease does, for which Nova does not wait.
    (True, {'graceful_shutdown_timeout': 0})])
def test_tear_down_that_outlives_its_process(cloud, has_standby, patience):
    """The standby completes it, or the next start of the host."""
    host = cloud.cloud.hosts[0]
    cloud.reconfigure(standby=has_standby or None, compute=patience)
    try:
        if has_standby:
            holder = test_standby.wait_for_host(cloud)
            test_standby.stand_by(cloud, test_standby.SECOND)
        [server] = cloud.boot_on(host, 1)
        cloud.connection.compute.delete_server(server)
        eventually(functools.partial(is_torn_down, cloud, server))
        with halted_conductor(cloud):
            began = time.monotonic()
            end(cloud, host, signal.SIGTERM, 60)
            print(f'Ended {time.monotonic() - began:.0f} s after SIGTERM')
            if has_standby:
                test_standby.taken_over(cloud, holder, began)
            is_torn_down(cloud, server)
        if not has_standby:
            cloud.cloud.start(host)
        eventually(cloud.all_free)
        eventually(cloud.finds_nothing)
    finally:
        cloud.reconfigure(standby=None, compute={})


def is_torn_down(cloud, server):
    assert [each.provision_state for each in cloud.nodes()
            if each.instance_id == server] == ['deleting']


class Round:
    """Builds, rebuilds and deletions at once, and what has become of them."""

    def __init__(self, cloud, host):
        self._cloud, compute = cloud, cloud.connection.compute
        old = cloud.boot_on(host, REBUILDS + DELETIONS)
        self.deleted = set(old[REBUILDS:])
        image = cloud.wanted()['image_id']
        for each in self.deleted:
            compute.delete_server(each)
        for each in old[:REBUILDS]:
            compute.rebuild_server(each, image=image)
        self.what = {**dict.fromkeys(begin(cloud, host, BUILDS), 'build'),
                     **dict.fromkeys(old[:REBUILDS], 'rebuild'),
                     **dict.fromkeys(self.deleted, 'deletion')}

    def is_over(self):
        left = {each.id: each for each in self._cloud.servers()}
        assert {(each.status, each.task_state) for each in left.values()
                } <= {('ACTIVE', None), ('ERROR', None)}, left
        assert all(left[each].status == 'ERROR'
                   for each in self.deleted & left.keys())
        return left

    def outcomes(self, moved):
        """Count what has become of each.

        :param moved: whether builds that had not begun were ended without a
            reason of their own, by the command that moves servers.
        """
        left = eventually(self.is_over, 600)
        found = collections.Counter()
        for each, what in self.what.items():
            status = left[each].status if each in left else 'gone'
            if status == 'ERROR' and what != 'deletion':
                fault = self._cloud.connection.compute.get_server(each).fault
                if fault:
                    assert any(known in fault['message']
                               for known in REASONS), (what, fault)
                else:
                    # Nova ends rebuilds in this way that wait in a queue.
                    assert moved or what == 'rebuild'
                    status = 'ERROR without a reason'
            found[f'{what}: {status}'] += 1
        return found


def stop_and_start(cloud, number, source, target):
    end(cloud, source, number)
    cloud.cloud.start(source)


def move(cloud, number, source, target):
    if number == signal.SIGSTOP:
        cloud.cloud.signal(source, number)
    else:
        end(cloud, source, number)
    eventually(functools.partial(test_lost_host.has_state, cloud, source,
                                 'down'))
    results, _ = test_lost_host.move(cloud, source, target)
    compute = cloud.connection.compute
    for each, result in results.items():
        if result.startswith('stays'):
            # Its machine is released, and who asks Nova again has it deleted.
            assert compute.get_server(each).task_state == 'deleting', result
            compute.delete_server(each)


def hand_over(cloud, number, works, waits):
    holder, began = test_standby.lease(cloud)['holder'], time.monotonic()
    cloud.cloud.signal(works, number)
    test_standby.taken_over(cloud, holder, began)


def come_back(cloud, number, source):
    """The process goes on, and then a new one works or waits.

    Where it was the host by a lease, the kernel may have killed it meanwhile.
    """
    if number == signal.SIGSTOP:
        cloud.cloud.control('signal', 'CONT', source)
        time.sleep(10)
        cloud.cloud.control('signal', 'KILL', source)
    cloud.cloud.control('start', source)


WAYS = {'restart': (stop_and_start, 7, (signal.SIGKILL, signal.SIGTERM)),
        'move': (move, 6, (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)),
        'standby': (hand_over, 7, (signal.SIGKILL, signal.SIGTERM,
                                   signal.SIGSTOP))}


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize('way', WAYS)
def test_at_random_moments(request, way):
    """Twenty of them, in all three ways."""
    cloud = request.getfixturevalue(
        'standby' if way == 'standby' else 'cloud')
    interrupt, rounds, signals = WAYS[way]
    source, target = ((test_standby.FIRST, test_standby.SECOND)
                      if way == 'standby' else cloud.cloud.hosts[:2])
    total = collections.Counter()
    for number in itertools.islice(itertools.cycle(signals), rounds):
        begun = Round(cloud, cloud.cloud.hosts[0])
        moment = random.uniform(0, 15)
        time.sleep(moment)
        interrupt(cloud, number, source, target)
        found = begun.outcomes(moved=way == 'move')
        print(f'{way}, {number.name} after {moment:.1f} s: {dict(found)}',
              flush=True)
        total += found
        come_back(cloud, number, source)
        if way == 'standby':
            source, target = target, source
        else:
            eventually(cloud.hosts_are_up)
        eventually(cloud.finds_nothing)
        cloud.empty()
    print(f'{way}: {dict(total)}')
