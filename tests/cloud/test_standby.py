# SPDX-License-Identifier: Apache-2.0
"""A host with two nova-compute processes: one takes over from the other."""

import concurrent.futures
import contextlib
import random
import signal
import threading
import time

import pytest

from tests.cloud import standbys
from tests.cloud.operator import COMPLETES
from tests.cloud.operator import eventually
from tests.cloud.standbys import FIRST
from tests.cloud.standbys import HOST
from tests.cloud.standbys import SECOND
from tests.cloud.standbys import TTL
from tools import services

pytestmark = pytest.mark.timeout(900)

SERVERS, DEATHS = 4, 20
#: Further faults during a takeover, in turn: none, or the successor or a
#: service is killed.
FAULTS = None, None, 'successor', 'ironic', 'rabbitmq'

#: Python runs it when it starts. At a signal, a call of the C library blocks
#: the main thread, which is that of all green threads.
BLOCK = """
import ctypes, signal
signal.signal(signal.SIGRTMIN, lambda *_: ctypes.{library}(None).sleep({time}))
"""


@pytest.mark.long
@pytest.mark.parametrize('servers', [1, 4])
def test_dead_host(standby, servers):
    servers = standby.boot_on(HOST, servers)
    holder = standbys.get_lease(standby)['holder']
    rows = hypervisors(standby)
    before = show_host(standby)
    assert (before['Live'], before['Standbys'], before['Reservations']) == (
        True, 1, len(servers))
    start = time.monotonic()
    standby.cloud.signal(FIRST, signal.SIGKILL)
    # The first request waits in the queue of the host.
    waits = standby.reboot(servers[:1], start)
    _, seconds = standbys.wait_for_takeover(standby, holder, start)
    print(f'Host taken over after {seconds:.0f} s at most, a queued reboot '
          f'done after {waits} s, servers rebooted after '
          f'{standby.reboot(servers, start)} s')
    assert hypervisors(standby) == rows
    assert {server.compute_host for server in standby.servers()} == {HOST}
    # There is no standby until the first process was started again.
    eventually(lambda: assert_standbys(standby, 0))
    assert show_host(standby)['Since'] > before['Since']
    standbys.start_standby(standby, FIRST)
    eventually(lambda: assert_standbys(standby, 1))
    eventually(standby.assert_consistent)


def show_host(cloud):
    """Return the row of the host in the output of the command."""
    [row] = cloud.openstack('baremetal', 'reservation', 'host', 'list',
                            '--host', HOST, '--all-projects')
    return row


def assert_standbys(cloud, number):
    assert show_host(cloud)['Standbys'] == number


def hypervisors(cloud):
    return {(row['ID'], row['Hypervisor Hostname'])
            for row in cloud.openstack('hypervisor', 'list')}


@pytest.mark.long
@pytest.mark.timeout(5400)
def test_deaths(patient_cloud, standby):
    """The active process dies twenty times, with further faults."""
    cloud = standby
    servers = cloud.boot_on(HOST, SERVERS)
    nodes = {node.instance_id: node.id for node in cloud.nodes()}
    works, waits = FIRST, SECOND
    for number in range(DEATHS):
        fault = FAULTS[number % len(FAULTS)]
        holder = standbys.get_lease(cloud)['holder']
        start = time.monotonic()
        cloud.cloud.signal(works, signal.SIGKILL)
        before = cloud.report_times()[HOST]
        if fault == 'successor':
            holder, _ = standbys.wait_for_takeover(cloud, holder, start)
            standbys.start_standby(cloud, works)
            time.sleep(random.uniform(0, 5))
            cloud.cloud.signal(waits, signal.SIGKILL)
            # The successor may have reported.
            before = cloud.report_times()[HOST]
        else:
            if fault:
                # The service is down when the lease expires.
                time.sleep(random.uniform(TTL / 2, TTL - 5))
                cloud.cloud.signal(fault, signal.SIGKILL)
                time.sleep(15)
                cloud.cloud.start(fault)
            works, waits = waits, works
        _, seconds = standbys.wait_for_takeover(cloud, holder, start)
        # A process that starts while RabbitMQ is down may exit.
        with (restart_on_exit(cloud, works) if fault == 'rabbitmq'
              else contextlib.nullcontext()):
            # RabbitMQ drops messages until the successor listens. Before 34,
            # Nova refuses requests that waited until it started.
            if fault == 'rabbitmq' or not COMPLETES:
                cloud.wait_for_report(HOST, before, 180)
            reboots = cloud.reboot(servers, start)
        print(f'{number + 1} ({fault or "no"} further fault): taken over '
              f'after {seconds:.0f} s, servers rebooted after {reboots} s',
              flush=True)
        standbys.start_standby(cloud, waits)
        eventually(cloud.assert_no_findings)
    assert {node.instance_id: node.id for node in cloud.nodes()} == nodes
    eventually(cloud.assert_consistent)


@contextlib.contextmanager
def restart_on_exit(cloud, name):
    """Restart a process when it exits, like systemd."""
    stop = threading.Event()

    def keep():
        while not stop.wait(2):
            # It may exit again.
            with contextlib.suppress(services.StartError):
                cloud.cloud.start(name)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        future = pool.submit(keep)
        try:
            yield
        finally:
            stop.set()
    future.result()


@pytest.mark.long
def test_clean_stop(standby):
    """The successor takes over at once, and a standby exits at once."""
    server, = standby.boot_on(HOST, 1)
    holder, start = standbys.get_lease(standby)['holder'], time.monotonic()
    standby.cloud.stop(FIRST)
    _, seconds = standbys.wait_for_takeover(standby, holder, start)
    print(f'Host taken over {seconds:.0f} s after SIGTERM')
    reboot(standby, server, start)
    standbys.start_standby(standby, FIRST)
    start = time.monotonic()
    standby.cloud.signal(FIRST, signal.SIGTERM)
    standbys.wait_for_exit(standby, FIRST)
    print(f'The standby exited after '
          f'{time.monotonic() - start:.0f} s')


def reboot(cloud, server, since):
    """Reboot a server after a takeover.

    Before 34, Nova refuses a reboot that was requested before it has started.
    """
    if not COMPLETES:
        standbys.wait_for_host(cloud)
    cloud.reboot([server], since)


@pytest.mark.long
def test_stale_process_at_rest(standby):
    server, = standby.boot_on(HOST, 1)
    holder, since = standbys.get_lease(standby)['holder'], time.monotonic()
    with standby.freeze(FIRST):
        successor, _ = standbys.wait_for_takeover(standby, holder, since)
        standby.act('server', 'delete', server)
        eventually(lambda: standby.assert_deleted(server))
        reservations = standby.reservations()
    standbys.wait_for_exit(standby, FIRST)
    assert standby.reservations() == reservations
    assert standbys.get_lease(standby)['holder'] == successor


@pytest.mark.long
@pytest.mark.parametrize('library', ['PyDLL', 'CDLL'])
def test_blocked_process(standby, tmp_path, library):
    """The kernel kills a process that cannot renew its lease.

    Threads that are not green renew it during a call that, like most calls,
    releases Python's lock.
    """
    (tmp_path / 'sitecustomize.py').write_text(
        BLOCK.format(library=library, time=3 * TTL))
    server, = standby.boot_on(HOST, 1)
    holder, since = standbys.get_lease(standby)['holder'], time.monotonic()
    standby.cloud.stop(FIRST)
    holder, _ = standbys.wait_for_takeover(standby, holder, since)
    with standbys.run_standby(standby, FIRST,
                              PYTHONPATH=tmp_path) as process:
        standby.cloud.stop(SECOND)
        holder, _ = standbys.wait_for_takeover(standby, holder, since)
        standbys.start_standby(standby, SECOND)
        reservations = standby.reservations()
        since = time.monotonic()
        process.send_signal(signal.SIGRTMIN)
        if library == 'CDLL' and not standby.is_green():
            time.sleep(2 * TTL)
            assert process.poll() is None
            successor = holder
        else:
            successor, seconds = standbys.wait_for_takeover(
                standby, holder, since)
            assert process.wait(TTL) == -signal.SIGKILL
            print(f'Host taken over {seconds:.0f} s after the call')
        reboot(standby, server, since)
        assert standby.reservations() == reservations
        assert standbys.get_lease(standby)['holder'] == successor


@pytest.mark.long
def test_stale_process_in_a_write(standby):
    """A request sent with a valid lease is refused after the takeover."""
    cloud, options = standby.connection.compute, standby.server_options()
    holder = standbys.get_lease(standby)['holder']
    wait_for_log = standbys.follow_log(standby, FIRST)
    wait_for_access = standbys.follow_log(standby, 'ironic')
    with contextlib.ExitStack() as stack:
        # No renewal must wait with the request, and be served before it.
        wait_for_renewal(standby)
        since = time.monotonic()
        with standby.freeze('ironic'):
            server = cloud.create_server(
                name='server', availability_zone=f'nova:{HOST}', **options).id
            wait_for_log('Claim successful on node')
            time.sleep(2 if COMPLETES else 5)
            # The request to hold a node was sent.
            stack.enter_context(standby.freeze(FIRST))
            assert time.monotonic() < since + TTL / 3, 'Too slow a machine'
            time.sleep(TTL)
        standbys.wait_for_takeover(standby, holder, since)
        wait_for_access('POST /v1/reservations - 412')
        assert standby.settle([server]) == {server: 'ERROR'}
    standbys.wait_for_exit(standby, FIRST)
    assert standby.reservations() == []
    assert not any(node.instance_id for node in standby.nodes())


def wait_for_renewal(cloud):
    before = standbys.get_lease(cloud)['expires_at']

    def check():
        assert standbys.get_lease(cloud)['expires_at'] != before

    eventually(check)
