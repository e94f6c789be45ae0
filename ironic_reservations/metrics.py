# SPDX-License-Identifier: Apache-2.0
"""What the workers of the API count for Prometheus.

Only where PROMETHEUS_MULTIPROC_DIR names a folder: each worker has files in
it, and ``ironic-reservations-exporter`` adds them. Without it nothing is
counted and nothing is imported.
"""

import os

from oslo_log import log

LOG = log.getLogger(__name__)

#: The environment variable of prometheus_client.
VARIABLE = 'PROMETHEUS_MULTIPROC_DIR'

#: Methods that are told apart: a client may send any word.
METHODS = ('GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS')

#: Seconds, from what a hold takes to the deadline and beyond.
BUCKETS = (.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30)

#: The counters of this process; None while nothing is counted.
book = None


class _Book:
    """The counters of this process.

    prometheus_client begins new files in a process that was forked, when it
    counts something there for the first time.
    """

    def __init__(self, causes):
        # A process that counts nothing need not wait for the import.
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


def begin(causes):
    """Count from now on, if the environment says where.

    :param causes: all that a request may be refused for.
    """
    global book
    folder = os.environ.get(VARIABLE)
    if folder and book is None:
        try:
            os.makedirs(folder, exist_ok=True)
            book = _Book(causes)
        except (OSError, ValueError) as error:
            _give_up(error)


def _count(event):
    """Count an event, if anything is counted.

    :param event: function that writes it into a _Book.
    """
    if counters := book:
        try:
            event(counters)
        except (OSError, ValueError) as error:
            # A new worker finds the folder gone, for example.
            _give_up(error)


def _give_up(error):
    """Go on without: that something cannot be counted hinders nothing."""
    global book
    book = None
    LOG.error('Nothing is counted for Prometheus by process %(pid)s: '
              '%(error)s', {'pid': os.getpid(), 'error': error})


def request(method, status):
    """A request was answered.

    :param method: as the client has sent it.
    :param status: text; None if the connection broke before.
    """
    _count(lambda book: book.requests.labels(
        method if method in METHODS else 'other', status or 'none').inc())


def refusal(cause):
    """A request was told that there is no node.

    :param cause: one of ``causes``.
    """
    _count(lambda book: book.refusals.labels(cause).inc())


def conflict():
    """Something is done again, because another request was faster."""
    _count(lambda book: book.conflicts.inc())


def held(seconds):
    """A node was held."""
    _count(lambda book: book.holds.observe(seconds))
