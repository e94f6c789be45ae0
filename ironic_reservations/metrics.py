# SPDX-License-Identifier: Apache-2.0
"""Counts requests, refusals, conflicts and holds for Prometheus.

Each worker of the API writes files into the directory that the environment
variable PROMETHEUS_MULTIPROC_DIR names, and ``ironic-reservations-exporter``
adds them up. Without the variable, nothing is counted.
"""

from collections.abc import Callable
from collections.abc import Iterable
import os
from typing import Any

from oslo_log import log

LOG = log.getLogger(__name__)

#: The environment variable of prometheus_client.
VARIABLE = 'PROMETHEUS_MULTIPROC_DIR'

#: Methods with their own series. Clients may send any word.
METHODS = ('GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS')

#: Seconds, from the usual duration of a hold to beyond its deadline.
BUCKETS = (.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30)


class _Book:
    """The counters of this process.

    After a fork, prometheus_client creates new files on the first count.
    """

    def __init__(self, causes: Iterable[str]) -> None:
        # Imported here, because most processes count nothing.
        import prometheus_client as client

        # Without a registry, because the exporter reads the files.
        self.requests = client.Counter(
            'ironic_reservations_requests_total',
            'Responses of the API, by method and status',
            ('method', 'code'), registry=None)
        self.refusals = client.Counter(
            'ironic_reservations_refusals_total',
            'Requests refused for lack of a node, by cause',
            ('by',), registry=None)
        for cause in causes:
            # Prometheus sees no increase in a counter that starts at 1.
            self.refusals.labels(cause)
        self.conflicts = client.Counter(
            'ironic_reservations_conflicts_total',
            'Retries after a conflict with a concurrent request',
            registry=None)
        self.holds = client.Histogram(
            'ironic_reservations_hold_seconds',
            'Duration of requests that held a node', buckets=BUCKETS,
            registry=None)


#: The counters of this process; None if nothing is counted.
book: _Book | None = None


def start_counting(causes: Iterable[str]) -> None:
    """Start counting, if the environment names a directory.

    :param causes: all causes of refusals.
    """
    global book
    folder = os.environ.get(VARIABLE)
    if folder and book is None:
        try:
            os.makedirs(folder, exist_ok=True)
            book = _Book(causes)
        except (OSError, ValueError) as error:
            _give_up(error)


def _count(event: Callable[[_Book], Any]) -> None:
    """Count an event, by a function that writes it to the counters."""
    if counters := book:
        try:
            event(counters)
        except (OSError, ValueError) as error:
            # For example, the directory is gone when a worker starts.
            _give_up(error)


def _give_up(error: Exception) -> None:
    """Stop counting; requests must not fail because of that."""
    global book
    book = None
    LOG.error('Process %(pid)s stopped counting for Prometheus: %(error)s',
              {'pid': os.getpid(), 'error': error})


def count_request(method: str, status: str | None) -> None:
    """Count a response.

    :param method: as the client sent it.
    :param status: HTTP status; None if the connection broke first.
    """
    _count(lambda book: book.requests.labels(
        method if method in METHODS else 'other', status or 'none').inc())


def count_refusal(cause: str) -> None:
    """Count a refusal for lack of a node.

    :param cause: one of the ``causes`` of ``start_counting``.
    """
    _count(lambda book: book.refusals.labels(cause).inc())


def count_conflict() -> None:
    """Count a retry after a conflict with a concurrent request."""
    _count(lambda book: book.conflicts.inc())


def record_hold(seconds: float) -> None:
    """Record how long it took to hold a node."""
    _count(lambda book: book.holds.observe(seconds))
