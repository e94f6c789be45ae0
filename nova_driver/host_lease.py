# SPDX-License-Identifier: Apache-2.0
"""Acquires and renews the host lease: one process at a time serves a host.

The lease is in Ironic's database. Between two responses a process relies on
its own clock: it writes to Ironic only as long as no other process can have
acquired the lease.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import threading
import time
import uuid

from nova import context as nova_context
from nova import objects
from oslo_log import log as logging

from . import client
from . import conf
from . import deadline

CONF = conf.CONF
LOG = logging.getLogger(__name__)

#: Seconds between two attempts to acquire the lease.
PAUSE = 2

#: After how many failed attempts to log again that a process waits.
REMINDER = 300

#: The last part of the lease, during which this process no longer writes,
#: because its clock may be slower than the database's, which truncates to
#: seconds.
_MARGIN = 1 / 5

#: Seconds between two checks whether this process was stopped.
_CHECK_INTERVAL = 1


class HostLease:
    """The host lease of this process, shared by its threads.

    :param host: the name of the compute host.
    :param cleanup: set once Nova has called ``cleanup_host``.
    """

    def __init__(self, host: str, reservations: client.Client,
                 cleanup: threading.Event):
        self._host = host
        self._client = reservations
        self._cleanup = cleanup
        self._holder = str(uuid.uuid4())
        self._ttl = CONF.reservations.standby_ttl
        # Until when this process may write and until when no other process
        # can acquire the lease, by now(); and when it was acquired, by Ironic.
        self._until = self._expiry = -math.inf
        self._start: str | None = None
        # When this process was last seen running, see _check_pause.
        self._last_check = math.inf
        self._renewal = threading.Condition()
        # Prevents a renewal after the lease was given up.
        self._request_lock = threading.Lock()
        # Set when the lease is given up, or must no longer be renewed.
        self._stop = threading.Event()

    def acquire(self) -> None:
        """Wait for the lease, acquire it, and keep renewing it.

        Nova calls the driver before it listens to the message bus and reports
        the host as up, so a process that waits here does nothing else.
        """
        is_new = self._find_service() is None
        has_waited = self._wait_for_lease()
        LOG.info('This process now serves host %s', self._host)
        self._last_check = now()
        for method, *args in (self._keep_renewing,), (
                self._watch, deadline.Deadline()):
            threading.Thread(target=method, args=args, name='lease',
                             daemon=True).start()
        # Nova has looked for the service before it called the driver. If
        # another process has created it since, Nova would mistake instances
        # of this host for those of an earlier one.
        if has_waited and is_new and self._find_service() is not None:
            self.give_up()
            self.end('the host was not in Nova\'s database when this process '
                     'started to wait')

    def _find_service(self) -> objects.Service | None:
        return objects.Service.get_by_host_and_binary(
            nova_context.get_admin_context(), self._host, 'nova-compute')

    def _wait_for_lease(self) -> bool:
        """Acquire the lease; return whether this had to wait."""
        last_error = None
        for attempts in itertools.count():
            pause = 0
            try:
                self._acquire_or_renew()
            except client.Failure as e:
                if type(e) is not last_error or attempts % REMINDER == 0:
                    LOG.warning('This process waits for the lease of host %s: '
                                '%s', self._host, e)
                last_error, pause = type(e), PAUSE
            if self._cleanup.wait(pause):
                # Before release 34, Nova does not end a process whose service
                # has not started.
                self.give_up()
                end_process()
            if not pause:
                return attempts > 0
        raise AssertionError('unreachable')

    def _acquire_or_renew(self) -> None:
        """Acquire or renew the lease.

        :raises: client.Conflict while another process holds it; another
            client.Failure when Ironic does not respond.
        """
        request_time = now()
        self._client.acquire_host_lease(self._host, self._holder, self._ttl)
        # Another process may have held the lease since, and given it up. This
        # clock need not show that: it stops while a virtual machine is paused.
        start = self._client.get_host_lease_start(self._host)
        if self._start not in (None, start):
            with contextlib.suppress(client.Failure):
                self._client.give_up_host_lease(self._host, self._holder)
            self.end('another process has served it since the last renewal')
        self._start = start
        with self._renewal:
            # The lease in the database starts later.
            self._until = request_time + self._ttl * (1 - _MARGIN)
            # The database truncates to seconds.
            self._expiry = request_time + self._ttl - 1
            self._renewal.notify_all()

    def _keep_renewing(self) -> None:
        """Renew the lease in time; run by a thread."""
        pause = self._ttl / 3
        while not self._stop.wait(pause):
            try:
                pause = self._ttl / 3 if self.renew() else PAUSE
            except Exception:
                LOG.exception('Could not renew the lease of host %s',
                              self._host)

    def _watch(self, process_deadline: deadline.Deadline) -> None:
        """Check that the process is running; run by another thread.

        The kernel kills the process when this thread has not run for a third
        of the ttl, and the lease has expired.
        """
        while not self._stop.is_set():
            self._check_pause()
            process_deadline.postpone(
                max(self._expiry, now() + self._ttl / 3))
            self._stop.wait(_CHECK_INTERVAL)
        process_deadline.postpone(0)

    def _check_pause(self) -> None:
        """End this process, before it sends any request, after a long pause.

        While it was stopped, or its machine was asleep, another process may
        have acquired the lease. Until the first response of Ironic, the
        threads of this process would continue and save in Nova's database. An
        unreachable Ironic is no reason to end, so only the pause of the thread
        that calls this counts. It matters where the kernel does not kill the
        process earlier.
        """
        last_check, self._last_check = self._last_check, now()
        pause = self._last_check - last_check
        if pause > self._ttl / 3 and self._last_check > self._expiry:
            self.end(f'it was stopped for {pause:.0f} seconds')

    def renew(self) -> bool:
        """Renew the lease; end this process if another holds it.

        :returns: whether it was renewed.
        """
        self._check_pause()
        with self._request_lock:
            if self._stop.is_set():
                return False
            try:
                self._acquire_or_renew()
                return True
            except client.Conflict as e:
                self.end(e)
            except client.Failure as e:
                LOG.warning('Could not renew the lease of host %s: %s',
                            self._host, e)
        return False

    def stop_renewing(self) -> float:
        """Let the lease expire.

        :returns: seconds for which this process may still write to Ironic.
        """
        self._stop.set()
        return max(self._until - now(), 0)

    def give_up(self) -> None:
        """Give up the lease, so that a standby can take over at once.

        Threads that are about to write to Ironic wait from then on, and end
        the process once Nova has cleaned up.
        """
        if self._until == -math.inf:
            return  # It was not acquired.
        self._stop.set()
        with self._request_lock:
            with self._renewal:
                self._until = -math.inf
                self._renewal.notify_all()
            try:
                self._client.give_up_host_lease(self._host, self._holder)
            except client.Failure as e:
                LOG.warning('Could not give up the lease of host %s; a '
                            'standby must wait until it expires: %s',
                            self._host, e)

    @property
    def holder(self) -> str:
        """UUID of this process in Ironic."""
        return self._holder

    def renew_or_wait(self) -> None:
        """Renew the lease after Ironic has refused a request.

        The process ends if another process holds the lease.
        """
        if not self.renew():
            with self._renewal:
                self._until = min(self._until, now())
            self.wait()

    def wait(self) -> None:
        """Wait until this process certainly holds the lease.

        If the lease was given up, this ends the process after Nova's cleanup:
        Nova does not track all threads, and some would wait forever.
        """
        with self._renewal:
            if self.is_live():
                return
            LOG.warning('The lease of host %s has expired: requests that '
                        'write to Ironic wait until it is renewed.',
                        self._host)
            self._renewal.wait_for(
                lambda: self.is_live() or self._until == -math.inf)
        if self._until == -math.inf:
            wait_for_process_end(self._cleanup)

    def is_live(self) -> bool:
        """Return whether certainly no other process holds the lease."""
        return now() < self._until

    def end(self, reason: object) -> None:
        """End this process at once, because another process serves the host.

        None of its operations may continue, so do not wait for any thread.
        """
        LOG.critical('This process lost the lease of host %s, exiting: %s',
                     self._host, reason)
        os._exit(1)


def wait_for_process_end(cleanup: threading.Event) -> None:
    """Block this thread, and end the process once ``cleanup`` is set.

    Nova joins its threads then, and would wait for this one. The stack is not
    unwound: even after SystemExit Nova would abort its claim, which unsets
    the host of an instance that another host has (Claim.__exit__).
    """
    cleanup.wait()
    end_process()


def end_process() -> None:
    """End the process, without an error and without waiting."""
    os._exit(0)


def now() -> float:
    """Return seconds on a clock that runs while the machine is asleep.

    Otherwise it is the clock of time.monotonic().
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)
