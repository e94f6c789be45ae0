# SPDX-License-Identifier: Apache-2.0
"""What the workers of the API count for Prometheus.

Only where PROMETHEUS_MULTIPROC_DIR names a folder: each worker has files in
it, and ``ironic-reservations-exporter`` adds them. Without it nothing is
counted and nothing is imported.
"""

import atexit
import collections
import contextlib
import os
import threading
import time

from oslo_log import log

LOG = log.getLogger(__name__)

#: The environment variable of prometheus_client.
VARIABLE = 'PROMETHEUS_MULTIPROC_DIR'

#: Seconds after which an event is in the files.
DELAY = 0.2

#: So many events are not kept for later.
MANY = 1000

#: Methods that are told apart: a client may send any word.
METHODS = ('GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS')

#: Seconds, from what a hold takes to the deadline and beyond.
BUCKETS = (.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30)

# None while nothing is counted.
_book = None


class _Book:
    """Writes down the events of this process, from a thread of its own.

    To write one takes ten times as long right after a request, whose code and
    data have filled the processor's caches, as it takes right after another.
    So a request only notes what has happened.
    """

    def __init__(self, causes):
        # Whoever needs no metrics need not wait for the import.
        import prometheus_client as client

        # No registry, because the exporter reads the files.
        self.requests = client.Counter(
            'ironic_reservations_requests_total',
            'Requests that were answered, by method and status',
            ('method', 'code'), registry=None)
        self.refusals = client.Counter(
            'ironic_reservations_refusals_total',
            'Requests that were given no node, by what left none',
            ('by',), registry=None)
        for cause in causes:
            # Where a counter begins with 1, Prometheus sees no increase.
            self.refusals.labels(cause)
        self.conflicts = client.Counter(
            'ironic_reservations_conflicts_total',
            'What was done again because another request was faster',
            registry=None)
        self.holds = client.Histogram(
            'ironic_reservations_hold_seconds',
            'Seconds that it took to hold a node', buckets=BUCKETS,
            registry=None)
        self._noted = collections.deque()
        self._beginning = threading.Lock()

    def note(self, *event):
        """Have an event written down soon.

        :param event: a method of this book, and its arguments.
        """
        self._noted.append(event)
        # The first event of a worker, because threads do not survive a fork.
        if self._beginning.acquire(blocking=False):
            atexit.register(self._write_all)
            threading.Thread(target=self._write, daemon=True).start()
        if len(self._noted) >= MANY:
            self._write_all()

    def _write(self):
        while _book is self:
            time.sleep(DELAY)
            self._write_all()

    def _write_all(self):
        events = collections.Counter()
        with contextlib.suppress(IndexError):
            while True:
                events[self._noted.popleft()] += 1
        try:
            for (write, *args), times in events.items():
                write(times, *args)
        except (OSError, ValueError) as error:
            # A new worker finds the folder gone, for example.
            _give_up(error)

    def request(self, times, method, status):
        self.requests.labels(method if method in METHODS else 'other',
                             status or 'none').inc(times)

    def refusal(self, times, cause):
        self.refusals.labels(cause).inc(times)

    def held(self, times, seconds):
        for _ in range(times):
            self.holds.observe(seconds)


def begin(causes):
    """Count from now on, if the environment says where.

    :param causes: all that a request may be refused for.
    """
    global _book
    folder = os.environ.get(VARIABLE)
    if folder and _book is None:
        try:
            os.makedirs(folder, exist_ok=True)
            _book = _Book(causes)
        except (OSError, ValueError) as error:
            _give_up(error)


def _give_up(error):
    """Go on without: that something cannot be counted hinders nothing."""
    global _book
    _book = None
    LOG.error('Nothing is counted for Prometheus by process %(pid)s: '
              '%(error)s', {'pid': os.getpid(), 'error': error})


def request(method, status):
    """A request was answered.

    :param method: as the client has sent it.
    :param status: text; None if the connection broke before.
    """
    if book := _book:
        book.note(book.request, method, status)


def refusal(cause):
    """A request was told that there is no node.

    :param cause: one of ``causes``.
    """
    if book := _book:
        book.note(book.refusal, cause)


def conflict():
    """Something is done again, because another request was faster."""
    if book := _book:
        book.note(book.conflicts.inc)


def held(seconds):
    """A node was held."""
    if book := _book:
        book.note(book.held, seconds)
