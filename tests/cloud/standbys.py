# SPDX-License-Identifier: Apache-2.0
"""A compute host with two processes: one serves it, the other is a standby."""

import contextlib
import os
import subprocess
import time

from tests.cloud.operator import eventually

HOST = FIRST = 'compute-1'
SECOND = 'compute-1b'
#: Seconds of a host lease, and from a death until the takeover.
TTL = 30


def get_lease(cloud, host=HOST):
    leases = {lease['host']: lease for lease in cloud.system.baremetal.get(
        '/reservations/hosts').json()['hosts']}
    assert host in leases and leases[host]['live']
    return leases[host]


def wait_for_host(cloud):
    """Wait until the host is served and reports to Nova; return its holder."""
    holder = eventually(lambda: get_lease(cloud)['holder'])
    cloud.wait_for_report(HOST, cloud.report_times().get(HOST, ''))
    return holder


def follow_log(cloud, name):
    """Return a function that waits for a new text in a process's log."""
    log = cloud.cloud.log(name)
    before = len(log.read_text()) if log.exists() else 0

    def wait(text):
        def check():
            assert text in log.read_text()[before:]
        eventually(check)

    return wait


def start_standby(cloud, name):
    wait = follow_log(cloud, name)
    cloud.cloud.start(name)
    wait('waits for the lease of host')


@contextlib.contextmanager
def run_standby(cloud, name, **environment):
    """Run a process that was stopped as a standby, with more variables.

    Yields a subprocess.Popen, since supervisord does not know it.
    """
    command, own = {program: rest for program, *rest
                    in cloud.cloud.programs()}[name]
    variables = {**os.environ, **own, **environment}
    wait = follow_log(cloud, name)
    with cloud.cloud.log(name).open('a') as log, subprocess.Popen(
            [*map(str, command)], stdout=log, stderr=log, env={
                key: str(value) for key, value in variables.items()}
    ) as process:
        try:
            wait('waits for the lease of host')
            yield process
        finally:
            process.kill()


def wait_for_takeover(cloud, holder, since, host=HOST):
    """Return the successor of a holder, and the seconds until its takeover."""
    def check():
        successor = get_lease(cloud, host)['holder']
        assert successor != holder
        return successor
    return eventually(check), time.monotonic() - since


def wait_for_exit(cloud, name, timeout=90):
    """Wait until a process has exited by itself."""
    def check():
        assert cloud.cloud.state(name) == 'EXITED'
    eventually(check, timeout)
