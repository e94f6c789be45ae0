# SPDX-License-Identifier: Apache-2.0
"""Which of several processes is a compute host: who holds the host's lease.

Ironic's database keeps the lease, and decides whose it is. This process goes
by its own clock between two answers: it writes to Ironic only as long as
nobody else can have been given the lease.
"""

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

#: Seconds until a process asks again that was not given the lease.
PAUSE = 2

#: After how many tries in vain it is logged again that a process waits.
REMINDER = 300

#: The part of a lease in which this process no longer writes, because its
#: clock may be slower than the database's, which cuts off parts of seconds.
_MARGIN = 1 / 5

#: Seconds between two looks whether this process was away.
_LOOK = 1


class Lease:
    """A host's lease, as one process knows it. All of its threads share it.

    :param host: the name of the compute host.
    :param reservations: client.Client.
    """

    def __init__(self, host, reservations):
        self._host = host
        self._client = reservations
        self._holder = str(uuid.uuid4())
        self._ttl = CONF.reservations.standby_ttl
        # When this process stops to write and when another may be the host,
        # by now(), and since when it is the host, as Ironic tells it.
        self._until = self._over = -math.inf
        self._since = None
        # When this process was seen to go on last, see _notice.
        self._seen = math.inf
        self._deadline = None
        self._renewed = threading.Condition()
        # Held while the lease is renewed or given up, so that it is not
        # renewed after it was given up.
        self._asking = threading.Lock()
        self._given_up = threading.Event()

    def win(self):
        """Wait until this process is the host, and then stay it.

        Nova calls the driver before it listens to the message bus and tells
        that the host is up, so a process that waits here does nothing else.
        """
        new = self._service() is None
        waited = self._wait_for_lease()
        LOG.info('This process is host %s from now on', self._host)
        self._seen, self._deadline = now(), deadline.Deadline()
        for each in self._keep, self._watch:
            threading.Thread(target=each, name='lease', daemon=True).start()
        # Nova has looked for the service before it called the driver. If
        # another process has made it since, Nova would take what this host
        # has for what is left of another one.
        if waited and new and self._service() is not None:
            self.give_up()
            self.end('Nova did not know the host yet when it began to wait')

    def _service(self):
        return objects.Service.get_by_host_and_binary(
            nova_context.get_admin_context(), self._host, 'nova-compute')

    def _wait_for_lease(self):
        """:returns: whether it was not had at once."""
        before = None
        for tries in itertools.count():
            try:
                self._ask()
                return tries > 0
            except client.Failure as e:
                if type(e) is not before or tries % REMINDER == 0:
                    LOG.warning('This process waits until it can be host %s: '
                                '%s', self._host, e)
                before = type(e)
            time.sleep(PAUSE)

    def _ask(self):
        """Be the host for some time from now.

        :raises: client.Conflict while another process is it; other
            client.Failure when that is not known.
        """
        asked = now()
        self._client.be_host(self._host, self._holder, self._ttl)
        # Another process may have been the host meanwhile, and have left. The
        # clock here need not tell so: it stands while a machine is paused.
        since = self._client.host_since(self._host)
        if self._since not in (None, since):
            with contextlib.suppress(client.Failure):
                self._client.leave_host(self._host, self._holder)
            self.end('another process was it meanwhile')
        self._since = since
        with self._renewed:
            # The database counts from a later moment.
            self._until = asked + self._ttl * (1 - _MARGIN)
            # It cuts off parts of seconds.
            self._over = asked + self._ttl - 1
            self._renewed.notify_all()

    def _keep(self):
        """What a thread of its own does: renew the lease in time."""
        pause = self._ttl / 3
        while not self._given_up.wait(pause):
            try:
                pause = self._ttl / 3 if self.renew() else PAUSE
            except Exception:
                LOG.exception('The lease of host %s is not renewed',
                              self._host)

    def _watch(self):
        """What another thread does: see that the process goes on.

        The kernel kills the process when this thread has not gone on for a
        third of the ttl, and the lease is over.
        """
        while not self._given_up.is_set():
            self._notice()
            self._deadline.put_off(max(self._over, now() + self._ttl / 3))
            self._given_up.wait(_LOOK)
        self._deadline.put_off(0)

    def _notice(self):
        """End this process, before it asks anybody, if it was away too long.

        While it was stopped, or its machine was asleep, another process may
        have become the host. The threads of this one would go on with what
        they were doing, and save it in Nova's database, until the first answer
        of Ironic's. An Ironic that cannot be reached stops no process, hence
        what counts is that the thread that watches was not called in time.
        It matters where the kernel does not kill the process before.
        """
        before, self._seen = self._seen, now()
        if self._seen - before > self._ttl / 3 and self._seen > self._over:
            self.end(f'it was stopped for {self._seen - before:.0f} seconds')

    def renew(self):
        """Renew the lease; end this process if another has taken it.

        :returns: whether it was renewed.
        """
        self._notice()
        with self._asking:
            if self._given_up.is_set():
                return False
            try:
                self._ask()
                return True
            except client.Conflict as e:
                self.end(e)
            except client.Failure as e:
                LOG.warning('The lease of host %s is not renewed: %s',
                            self._host, e)
        return False

    def lapse(self):
        """Stop renewing the lease.

        :returns: seconds for which this process may still write to Ironic.
        """
        self._given_up.set()
        return max(self._until - now(), 0)

    def give_up(self):
        """Be the host no longer, so that another process need not wait.

        Threads that are about to write to Ironic wait from then on, until
        the process ends.
        """
        if self._until == -math.inf:
            return  # It has not been the host.
        self._given_up.set()
        with self._asking:
            with self._renewed:
                self._until = -math.inf
            try:
                self._client.leave_host(self._host, self._holder)
            except client.Failure as e:
                LOG.warning('The lease of host %s ends by itself, because it '
                            'cannot be given up: %s', self._host, e)

    @property
    def holder(self):
        """UUID of this process, by which Ironic knows it."""
        return self._holder

    def renew_or_wait(self):
        """Be the host again, after Ironic has said that this is not certain.

        The process ends if another one is it.
        """
        if not self.renew():
            with self._renewed:
                self._until = now()
            self.wait()

    def wait(self):
        """Wait until this process is certainly the host."""
        with self._renewed:
            if not self.is_live():
                LOG.warning('The lease of host %s is over: writing to Ironic '
                            'waits until it is renewed.', self._host)
                self._renewed.wait_for(self.is_live)

    def is_live(self):
        """Whether certainly nobody else is the host, by this clock."""
        return now() < self._until

    def end(self, why):
        """End this process at once, because another one is the host.

        Nothing that it does may go on, so no thread is waited for.
        """
        LOG.critical('This process is not host %s any more, and ends: %s',
                     self._host, why)
        os._exit(1)


def now():
    """Return seconds on a clock that goes on while the machine is asleep.

    Otherwise it is the clock of time.monotonic().
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)
