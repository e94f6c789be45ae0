# SPDX-License-Identifier: Apache-2.0
"""Two nova-compute are one host: one works, and the other takes its place."""

import concurrent.futures
import contextlib
import functools
import os
import random
import signal
import threading
import time

import pytest

from tests.cloud.operator import eventually
from tests.cloud.test_faults import stopped

pytestmark = pytest.mark.timeout(900)

HOST = FIRST = 'compute-1'
SECOND = 'compute-1b'
#: Seconds of a lease, and from a death until its successor is the host.
TTL = 30
SERVERS, DEATHS = 4, 20
#: What else dies, one after the other in each death's turn: nothing, the
#: successor when it has just become the host, or a service.
FAULTS = None, None, 'successor', 'ironic', 'rabbitmq'


@pytest.fixture
def standby(cloud):
    """A cloud whose first host has two processes; the first of them works."""
    cloud.reconfigure(standby=True)
    wait_for_host(cloud)
    stand_by(cloud, SECOND)
    yield cloud
    cloud.reconfigure(standby=None)
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
    eventually(lambda: cloud.has_reported(HOST, before))
    return holder


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
    logged('waits for the lease of host')


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


@pytest.mark.long
@pytest.mark.parametrize('servers', [1, 4])
def test_dead_host(standby, servers):
    servers = standby.boot_on(HOST, servers)
    holder = lease(standby)['holder']
    rows = hypervisors(standby)
    before = spare(standby)
    assert (before['Live'], before['Standbys'], before['Reservations']) == (
        True, 1, len(servers))
    died = time.monotonic()
    standby.cloud.signal(FIRST, signal.SIGKILL)
    # The first waits in the queue of the host.
    queued = standby.rebooted(servers[:1], died)
    _, seconds = taken_over(standby, holder, died)
    print(f'Host taken over after {seconds:.0f} s at most, a queued reboot '
          f'done after {queued} s, servers rebooted after '
          f'{standby.rebooted(servers, died)} s')
    assert hypervisors(standby) == rows
    assert {each.compute_host for each in standby.servers()} == {HOST}
    # There is no spare until the dead one, started again, waits.
    eventually(lambda: has_spares(standby, 0))
    assert spare(standby)['Since'] > before['Since']
    stand_by(standby, FIRST)
    eventually(lambda: has_spares(standby, 1))
    eventually(standby.agree)


def spare(cloud):
    """What the command says of the host that has a standby."""
    [row] = cloud.openstack('baremetal', 'reservation', 'host', 'list',
                            '--host', HOST, '--all-projects')
    return row


def has_spares(cloud, number):
    assert spare(cloud)['Standbys'] == number


def hypervisors(cloud):
    return {(row['ID'], row['Hypervisor Hostname'])
            for row in cloud.openstack('hypervisor', 'list')}


@pytest.mark.long
@pytest.mark.timeout(5400)
def test_deaths(patient_cloud, standby):
    """Twenty of the process that is the host, and of what it stands on."""
    cloud = standby
    servers = cloud.boot_on(HOST, SERVERS)
    machines = {node.instance_id: node.id for node in cloud.nodes()}
    works, waits = FIRST, SECOND
    for number in range(DEATHS):
        fault = FAULTS[number % len(FAULTS)]
        holder, died = lease(cloud)['holder'], time.monotonic()
        cloud.cloud.signal(works, signal.SIGKILL)
        before = cloud.reported()[HOST]
        if fault == 'successor':
            holder, _ = taken_over(cloud, holder, died)
            stand_by(cloud, works)
            time.sleep(random.uniform(0, 5))
            cloud.cloud.signal(waits, signal.SIGKILL)
        else:
            if fault:
                # It is away when the lease ends.
                time.sleep(random.uniform(TTL / 2, TTL - 5))
                cloud.cloud.signal(fault, signal.SIGKILL)
                time.sleep(15)
                cloud.cloud.start(fault)
            works, waits = waits, works
        _, seconds = taken_over(cloud, holder, died)
        # RabbitMQ's death may end what begins beside it.
        with (kept_running(cloud, works) if fault == 'rabbitmq'
              else contextlib.nullcontext()):
            if fault == 'rabbitmq':
                # It forgets what it is told before the successor listens.
                eventually(functools.partial(
                    cloud.has_reported, HOST, before), 180)
            rebooted = cloud.rebooted(servers, died)
        print(f'{number + 1} ({fault or "no"} fault beside it): taken over '
              f'after {seconds:.0f} s, servers rebooted after {rebooted} s',
              flush=True)
        stand_by(cloud, waits)
        eventually(cloud.finds_nothing)
    assert {node.instance_id: node.id for node in cloud.nodes()} == machines
    eventually(cloud.agree)


@contextlib.contextmanager
def kept_running(cloud, name):
    """Start a process again that ends, as systemd does."""
    done = threading.Event()

    def keep():
        while not done.wait(2):
            cloud.cloud.control('start', name)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        kept = pool.submit(keep)
        try:
            yield
        finally:
            done.set()
    kept.result()


@pytest.mark.long
def test_clean_stop(standby):
    """The successor need not wait, nor does who stops a waiting process."""
    server, = standby.boot_on(HOST, 1)
    holder, began = lease(standby)['holder'], time.monotonic()
    standby.cloud.stop(FIRST)
    _, seconds = taken_over(standby, holder, began)
    print(f'Host taken over {seconds:.0f} s after SIGTERM')
    standby.rebooted([server], began)
    stand_by(standby, FIRST)
    began = time.monotonic()
    os.kill(standby.cloud.pid(FIRST), signal.SIGTERM)
    ended(standby, FIRST)
    print(f'The process that waited ended after '
          f'{time.monotonic() - began:.0f} s')


@pytest.mark.long
def test_stale_process_at_rest(standby):
    server, = standby.boot_on(HOST, 1)
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
    cloud, wanted = standby.connection.compute, standby.wanted()
    holder, logged = lease(standby)['holder'], following(standby, FIRST)
    answered = following(standby, 'ironic')
    with contextlib.ExitStack() as frozen:
        # No renewal is to wait beside the request, and be answered before it.
        just_renewed(standby)
        since = time.monotonic()
        with stopped(standby, 'ironic'):
            server = cloud.create_server(
                name='server', availability_zone=f'nova:{HOST}', **wanted).id
            logged('Claim successful on node')
            time.sleep(2)
            # The request to hold a node is under way.
            frozen.enter_context(stopped(standby, FIRST))
            assert time.monotonic() < since + TTL / 3, 'Too slow a machine'
            time.sleep(TTL)
        taken_over(standby, holder, since)
        answered('POST /v1/reservations - 412')
        assert standby.settled([server]) == {server: 'ERROR'}
    ended(standby, FIRST)
    assert standby.reservations() == []
    assert not any(node.instance_id for node in standby.nodes())


def just_renewed(cloud):
    before = lease(cloud)['expires_at']

    def renewed():
        assert lease(cloud)['expires_at'] != before

    eventually(renewed)
