# SPDX-License-Identifier: Apache-2.0
"""Which of several processes is a compute host: who holds the host's lease.

Ironic's database keeps the lease, and decides whose it is. This process goes
by its own clock between two answers: it writes to Ironic only as long as
nobody else can have been given the lease.
"""

import contextlib
import functools
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

CONF = conf.CONF
LOG = logging.getLogger(__name__)

#: Seconds until a process asks again that was not given the lease.
PAUSE = 2

#: After how many tries in vain it is logged again that a process waits.
REMINDER = 300

#: The part of a lease in which this process no longer writes, because its
#: clock may be slower than the database's, which cuts off parts of seconds.
_MARGIN = 1 / 5


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
        # When this process stops to write, on time.monotonic(), and since
        # when it is the host, as Ironic tells it.
        self._until, self._since = -math.inf, None
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
        threading.Thread(target=self._keep, name='lease', daemon=True).start()
        # Nova has looked for the service before it called the driver. If
        # another process has made it since, Nova would take what this host
        # has for what is left of another one.
        if waited and new and self._service() is not None:
            self.give_up()
            self._end('Nova did not know the host yet when it began to wait')

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
        asked = time.monotonic()
        self._client.be_host(self._host, self._holder, self._ttl)
        # Another process may have been the host meanwhile, and have left. The
        # clock here need not tell so: it stands while a machine is paused.
        since = self._client.host_since(self._host)
        if self._since not in (None, since):
            with contextlib.suppress(client.Failure):
                self._client.leave_host(self._host, self._holder)
            self._end('another process was it meanwhile')
        self._since = since
        with self._renewed:
            # The database counts from a later moment.
            self._until = asked + self._ttl * (1 - _MARGIN)
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

    def renew(self):
        """Renew the lease; end this process if another has taken it.

        :returns: whether it was renewed.
        """
        with self._asking:
            if self._given_up.is_set():
                return False
            try:
                self._ask()
                return True
            except client.Conflict as e:
                self._end(e)
            except client.Failure as e:
                LOG.warning('The lease of host %s is not renewed: %s',
                            self._host, e)
        return False

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

    def fence(self, connection):
        """Let a connection to Ironic write only while this process is host.

        What is written through the API that keeps the lease names its
        holder, too, and is refused there after a takeover.

        :param connection: the SDK's proxy for Ironic.
        """
        send = connection.request

        def waited_for(prepared):
            self.wait()
            return prepared

        @functools.wraps(send)
        def request(url, method, *args, **kwargs):
            fenced = url.startswith(client.RESERVATIONS)
            if (method in ('GET', 'HEAD')
                    or url.startswith(client.RESERVATIONS + client.HOSTS)):
                return send(url, method, *args, **kwargs)
            if fenced:
                where = 'json' if method == 'POST' else 'params'
                kwargs[where] = {**kwargs[where], 'holder': self._holder}
            # keystoneauth repeats requests by itself, and calls this before
            # each of them. It does not for those that it sends to Keystone.
            do = functools.partial(send, url, method, *args,
                                   requests_auth=waited_for, **kwargs)
            response = do()
            # It came when the lease was over. That it can be renewed says
            # that nobody has taken it.
            if fenced and response.status_code == 412 and self.renew():
                response = do()
            return response

        connection.request = request

    def wait(self):
        """Wait until this process is certainly the host."""
        with self._renewed:
            if not self.is_live():
                LOG.warning('The lease of host %s is over: writing to Ironic '
                            'waits until it is renewed.', self._host)
                self._renewed.wait_for(self.is_live)

    def is_live(self):
        """Whether certainly nobody else is the host, by this clock."""
        return time.monotonic() < self._until

    def _end(self, why):
        """End this process at once, because another one is the host.

        Nothing that it does may go on, so no thread is waited for.
        """
        LOG.critical('This process is not host %s any more, and ends: %s',
                     self._host, why)
        os._exit(1)
