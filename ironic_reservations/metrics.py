# SPDX-License-Identifier: Apache-2.0
"""What the workers of the API count for Prometheus.

Only where PROMETHEUS_MULTIPROC_DIR names a folder: each worker has files in
it, and ``ironic-reservations-exporter`` adds them. Without it nothing is
counted and nothing is imported.
"""

import functools
import os

from oslo_log import log

LOG = log.getLogger(__name__)

#: The environment variable of prometheus_client.
VARIABLE = 'PROMETHEUS_MULTIPROC_DIR'

#: Kinds of requests. A client may send any word as its method.
METHODS = ('GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS')
OTHER = 'other'

#: Seconds, from what a hold takes to the deadline and beyond.
BUCKETS = (.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30)

# None while nothing is counted.
_counters = None


class _Counters:
    """The counters of this process and of those that it forks."""

    def __init__(self, causes):
        # Whoever needs no metrics need not wait for the import.
        import prometheus_client as client

        # The folder is read by the exporter: no registry is asked.
        self.requests = client.Counter(
            'ironic_reservations_requests_total',
            'Requests that were answered, by method and status',
            ('method', 'code'), registry=None)
        self.refusals = client.Counter(
            'ironic_reservations_refusals_total',
            'Requests for which there was no node, by what left none',
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
    global _counters
    folder = os.environ.get(VARIABLE)
    if folder and _counters is None:
        try:
            os.makedirs(folder, exist_ok=True)
            _counters = _Counters(causes)
        except (OSError, ValueError) as error:
            _give_up(error)


def _give_up(error):
    """Go on without: to count is no reason to fail a request."""
    global _counters
    _counters = None
    LOG.error('Nothing is counted for Prometheus by process %(pid)s: '
              '%(error)s', {'pid': os.getpid(), 'error': error})


def _counting(function):
    """Do nothing where nothing is counted."""
    @functools.wraps(function)
    def wrapper(*args):
        if _counters is not None:
            try:
                function(*args)
            except (OSError, ValueError) as error:
                # A worker finds its folder gone, for example.
                _give_up(error)
    return wrapper


@_counting
def request(method, status):
    """A request was answered.

    :param method: as the client has sent it.
    :param status: text; None if the connection broke before.
    """
    _counters.requests.labels(
        method if method in METHODS else OTHER, status or 'none').inc()


@_counting
def refusal(cause):
    """A request was told that there is no node.

    :param cause: one of ``causes``.
    """
    _counters.refusals.labels(cause).inc()


@_counting
def conflict():
    """Something is done again, because another request was faster."""
    _counters.conflicts.inc()


@_counting
def held(seconds):
    """A node was held."""
    _counters.holds.observe(seconds)
