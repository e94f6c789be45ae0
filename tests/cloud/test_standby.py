# SPDX-License-Identifier: Apache-2.0
"""Two nova-compute are one host: one works, and the other takes its place."""

import contextlib
import os
import signal
import time

import pytest

from tests.cloud.operator import eventually
from tests.cloud.test_faults import stopped

pytestmark = pytest.mark.timeout(900)

HOST = FIRST = 'compute-1'
SECOND = 'compute-1b'
#: Seconds of a lease, and from a death until its successor is the host.
TTL = 30


@pytest.fixture
def standby(cloud):
    """A cloud whose first host has two processes; the first of them works."""
    def configure(wanted):
        cloud.cloud.stop(*cloud.cloud.computes)
        cloud.cloud.standby = wanted
        cloud.cloud.configure()
        cloud.cloud.control('update')
        cloud.cloud.start(*cloud.cloud.hosts)

    configure(True)
    wait_for_host(cloud)
    stand_by(cloud, SECOND)
    yield cloud
    configure(None)
    eventually(cloud.hosts_are_up)


def lease(cloud):
    found = {each['host']: each for each in cloud.system.baremetal.get(
        '/reservations/hosts').json()['hosts']}
    assert HOST in found and found[HOST]['live']
    return found[HOST]


def wait_for_host(cloud):
    """Until somebody is the host: its holder, and Nova knows it."""
    holder = eventually(lambda: lease(cloud)['holder'])
    before = cloud.reported().get(HOST, '')
    eventually(lambda: has_reported(cloud, before))
    return holder


def has_reported(cloud, before):
    assert cloud.reported()[HOST] > before


def following(cloud, name):
    """A function that waits until a process has logged something new."""
    log = cloud.cloud.log(name)
    before = len(log.read_text()) if log.exists() else 0

    def logged(text):
        def seen():
            assert text in log.read_text()[before:]
        eventually(seen)

    return logged


def stand_by(cloud, name):
    logged = following(cloud, name)
    cloud.cloud.start(name)
    logged('waits until it can be host')


def taken_over(cloud, holder, since):
    """:returns: the successor, and after how many seconds it is the host."""
    def seen():
        now = lease(cloud)['holder']
        assert now != holder
        return now
    now = eventually(seen)
    return now, time.monotonic() - since


def ended(cloud, name):
    """Until the process has ended by itself."""
    def seen():
        assert 'EXITED' in cloud.cloud.control('status', name).stdout
    eventually(seen)


def boot_on_host(cloud, count):
    """Servers on the host that has a standby."""
    servers = [cloud.boot('--availability-zone', f'nova:{HOST}')['id']
               for _ in range(count)]
    assert set(cloud.settled(servers).values()) == {'ACTIVE'}
    return servers


def reboot(cloud, *servers):
    """Reboot servers, each as soon as that is possible."""
    for server in servers:
        cloud.act('server', 'reboot', '--hard', '--wait', server)


@pytest.mark.long
@pytest.mark.parametrize('servers', [1, 4])
def test_dead_host(standby, servers):
    servers = boot_on_host(standby, servers)
    holder = lease(standby)['holder']
    rows = hypervisors(standby)
    died = time.monotonic()
    standby.cloud.signal(FIRST, signal.SIGKILL)
    # It waits in the queue of the host.
    standby.act('server', 'reboot', '--hard', servers[0])
    _, seconds = taken_over(standby, holder, died)
    assert set(standby.settled(servers).values()) == {'ACTIVE'}
    print(f'Host taken over after {seconds:.0f} s; queued reboot done after '
          f'{time.monotonic() - died:.0f} s')
    for server in servers:
        reboot(standby, server)
        print(f'Rebooted after {time.monotonic() - died:.0f} s')
    assert hypervisors(standby) == rows
    assert {each.compute_host for each in standby.servers()} == {HOST}
    # The dead one, started again, waits.
    stand_by(standby, FIRST)
    eventually(standby.agree)


def hypervisors(cloud):
    return {(row['ID'], row['Hypervisor Hostname'])
            for row in cloud.openstack('hypervisor', 'list')}


@pytest.mark.long
def test_clean_stop(standby):
    """The successor need not wait, nor does who stops a waiting process."""
    server, = boot_on_host(standby, 1)
    holder, began = lease(standby)['holder'], time.monotonic()
    standby.cloud.stop(FIRST)
    _, seconds = taken_over(standby, holder, began)
    print(f'Host taken over {seconds:.0f} s after SIGTERM')
    reboot(standby, server)
    stand_by(standby, FIRST)
    began = time.monotonic()
    os.kill(standby.cloud.pid(FIRST), signal.SIGTERM)
    ended(standby, FIRST)
    print(f'The process that waited ended after '
          f'{time.monotonic() - began:.0f} s')


@pytest.mark.long
def test_stale_process_at_rest(standby):
    server, = boot_on_host(standby, 1)
    holder, since = lease(standby)['holder'], time.monotonic()
    with stopped(standby, FIRST):
        successor, _ = taken_over(standby, holder, since)
        standby.act('server', 'delete', server)
        eventually(lambda: is_gone(standby, server))
        held = standby.reservations()
    ended(standby, FIRST)
    assert standby.reservations() == held
    assert lease(standby)['holder'] == successor


def is_gone(cloud, server):
    assert server not in {each.id for each in cloud.servers()}


@pytest.mark.long
def test_stale_process_in_a_write(standby):
    """What it asked for when its lease was not over yet, it does not get."""
    holder, since = lease(standby)['holder'], time.monotonic()
    logged = following(standby, FIRST)
    with contextlib.ExitStack() as frozen:
        with stopped(standby, 'ironic'):
            server = standby.boot('--availability-zone', f'nova:{HOST}')['id']
            logged('Claim successful on node')
            time.sleep(5)
            # The request to hold a node is under way.
            frozen.enter_context(stopped(standby, FIRST))
            time.sleep(TTL)
        taken_over(standby, holder, since)
        assert standby.settled([server]) == {server: 'ERROR'}
    ended(standby, FIRST)
    assert standby.reservations() == []
    assert not any(node.instance_id for node in standby.nodes())
