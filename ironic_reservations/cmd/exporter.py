# SPDX-License-Identifier: Apache-2.0
"""ironic-reservations-exporter: exports node counts to Prometheus."""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import os
import signal
import socket
import sys
import threading
import time
import typing
from typing import Any
from wsgiref import simple_server

from oslo_config import cfg
from oslo_log import log
import prometheus_client
from prometheus_client import core
from prometheus_client import exposition
from prometheus_client import multiprocess
import sqlalchemy as sa

from ironic_reservations import cmd
from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations import metrics
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import functions
from ironic_reservations.db import host_rows
from ironic_reservations.db import node_counts
from ironic_reservations.fleet import profiles
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import host_leases
from ironic_reservations.reservations import notice_lookup
from ironic_reservations.reservations import pools
from ironic_reservations.shared import constants

if typing.TYPE_CHECKING:
    from _typeshed import wsgi

LOG = log.getLogger(__name__)

OPTIONS = (
    cfg.HostAddressOpt(
        'listen-address', default='127.0.0.1',
        help='The address to listen on. Every client that can reach it may '
             'read the metrics.'),
    cfg.PortOpt('port', default=6387, help='The TCP port to listen on.'),
)

#: Seconds for which a scrape waits for another scrape.
PATIENCE = 5

#: Seconds after which an idle connection is closed.
IDLE_TIMEOUT = 10


class Collector:
    """Collects the metrics of a scrape; counts the fleet every time."""

    def collect(self) -> Iterator[core.Metric]:
        """Yield all metrics."""
        start = time.monotonic()
        try:
            gauges = _count()
        except Exception as error:
            # No numbers are better than old ones.
            LOG.error('Cannot count the fleet: %s', error)
            gauges = []
        yield from gauges
        yield _gauge('up', 'Whether the fleet could be counted',
                     {(): int(bool(gauges))})
        yield _gauge('scrape_seconds', 'Seconds that counting took',
                     {(): time.monotonic() - start})
        yield from _worker_metrics()


@engine.retry
def _count() -> list[core.Metric]:
    """Return the gauges of the fleet."""
    nodes: collections.Counter[tuple[Any, ...]] = collections.Counter()
    reservations: collections.Counter[tuple[Any, ...]] = collections.Counter()
    # Series at 0 are exported as well, because a series that vanishes keeps
    # its last value in a graph.
    for *partition, reason, is_taken, number in (
            node_counts.count_by_partition()):
        nodes.update({(*partition, name): 0
                      for name in constants.NODE_STATES})
        nodes[*partition, profiles.classify_node(reason, is_taken)] += number
    for host, provision_state, number in host_rows.count_by_host():
        reservations.update({(host, name): 0 for name in constants.STATES})
        reservations[host, values.find_state(provision_state)] += number
    leases = host_leases.find_leases(limit=None)
    all_pools = pools.count_pools()
    notice_counts = {(kind, state): 0 for kind in constants.NOTICE_KINDS
                     for state in ('planned', 'open')}
    overdue_notices = notice_lookup.count_overdue()
    [[now]] = engine.fetch_rows(sa.select(functions.utcnow()))
    return [
        _gauge('nodes', 'Nodes that are free, reserved, taken or out of '
               'service', nodes,
               'resource_class', 'conductor_group', 'shard', 'state'),
        _gauge('reservations', 'Reservations by compute host and state',
               reservations, 'host', 'state'),
        _gauge('overdue', 'Reservations whose lease has expired, but whose '
               'node is in use',
               {(): len(expiry.find_overdue())}),
        _gauge('host_lease_seconds', "Seconds until the host's lease expires; "
               'negative once expired',
               {(lease.host,): (lease.expires_at - now).total_seconds()
                for lease in leases}, 'host'),
        _gauge('host_since_seconds',
               'Seconds since the active process acquired the host lease',
               {(lease.host,): (now - lease.since).total_seconds()
                for lease in leases if lease.since}, 'host'),
        _gauge('host_standbys', 'Standby processes of the host',
               {(lease.host,): lease.standbys or 0 for lease in leases},
               'host'),
        _gauge('pool_nodes', 'Nodes of pools', {
            (pool.uuid, pool.project_id, state): pool.summary[state]
            for pool in all_pools for state in constants.NODE_STATES},
            'pool', 'project_id', 'state'),
        _gauge('pool_healthy', 'Healthy nodes of pools',
               {(pool.uuid, pool.project_id): pool.summary['healthy']
                for pool in all_pools}, 'pool', 'project_id'),
        _gauge('pool_expires_seconds', 'Seconds until the pool expires',
               {(pool.uuid, pool.project_id):
                (pool.expires_at - now).total_seconds()
                for pool in all_pools if pool.expires_at},
               'pool', 'project_id'),
        _gauge('failed_builds', 'Nodes with an open notice of a failed build',
               {(): notice_lookup.count_failed_builds()}),
        _gauge('notices', 'Planned and open notices',
               notice_counts | notice_lookup.count_notices(),
               'kind', 'state'),
        _gauge('notices_overdue', 'Open notices whose due time has passed',
               {(kind,): overdue_notices.get(kind, 0)
                for kind in constants.NOTICE_KINDS}, 'kind'),
    ]


def _gauge(name: str, description: str,
           samples: Mapping[tuple[Any, ...], float],
           *labels: str) -> core.Metric:
    """Return a gauge.

    :param samples: values by labels. None becomes an empty label; Prometheus
        would keep only one of two samples with equal labels, so they are
        added.
    """
    sums: dict[tuple[str, ...], float] = collections.defaultdict(float)
    for key, value in samples.items():
        sums[tuple(label or '' for label in key)] += value
    gauge = core.GaugeMetricFamily(f'ironic_reservations_{name}', description,
                                   labels=labels)
    for key, value in sums.items():
        gauge.add_metric(key, value)
    return gauge


def _worker_metrics() -> Iterable[core.Metric]:
    """Return the sums of the counters of the API's workers on this host.

    They include workers that have exited, so that no counter decreases.
    """
    folder = os.environ.get(metrics.VARIABLE, '')
    if not os.path.isdir(folder):
        # The API creates it when it starts.
        return ()
    try:
        counters: Iterable[core.Metric] = multiprocess.MultiProcessCollector(
            None, folder).collect()
        return counters
    except (OSError, ValueError, RuntimeError) as error:
        # Files vanish while we read them when the API restarts.
        LOG.error("Cannot read the API's counters: %s", error)
        return ()


def serialize_scrapes(app: 'wsgi.WSGIApplication',
                      patience: float = PATIENCE) -> 'wsgi.WSGIApplication':
    """Wrap a WSGI application, so that it handles one request at a time.

    Concurrent counts of the fleet would only slow each other down.

    :param patience: seconds for which a request waits for another request,
        before the response is 503.
    """
    lock = threading.Lock()

    def scrape(environ: 'wsgi.WSGIEnvironment',
               start_response: 'wsgi.StartResponse') -> Iterable[bytes]:
        if not lock.acquire(timeout=patience):
            start_response('503 Service Unavailable', [
                ('Content-Type', 'text/plain'), ('Retry-After', '5')])
            return [b'Another scrape is in progress.\n']
        try:
            # The response is complete when this returns, so a slow client
            # does not hold the lock.
            return app(environ, start_response)
        finally:
            lock.release()
    return scrape


class _Handler(simple_server.WSGIRequestHandler):

    def handle(self) -> None:
        with contextlib.suppress(TimeoutError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, as there would be a line for each scrape."""


def make_server(address: str, port: int, app: 'wsgi.WSGIApplication',
                timeout: float = IDLE_TIMEOUT) -> simple_server.WSGIServer:
    """Return a WSGI server with a thread for each client.

    :param address: IPv4 or IPv6 address to listen on.
    :param timeout: timeout of each read and write, in seconds.
    """
    family, *_ = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM,
                                    flags=socket.AI_PASSIVE)[0]
    server = type('Server', (exposition.ThreadingWSGIServer,),
                  {'address_family': family})
    handler = type('Handler', (_Handler,), {'timeout': timeout})
    return simple_server.make_server(address, port, app, server, handler)


@cmd.command
def main() -> None:
    conf.CONF.register_cli_opts(OPTIONS)
    conf.load(sys.argv[1:], prog='ironic-reservations-exporter')
    address, port = conf.CONF.listen_address, conf.CONF.port
    registry = prometheus_client.CollectorRegistry()
    registry.register(Collector())
    signals = {signal.SIGTERM, signal.SIGINT}
    # Threads inherit the mask, so that only sigwait() receives them.
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        server = make_server(address, port, serialize_scrapes(
            prometheus_client.make_wsgi_app(registry)))
    except OSError as error:
        raise exception.ReservationsError(
            f'Cannot listen on {address}:{port}: {error.strerror}')
    threading.Thread(target=server.serve_forever, daemon=True).start()
    LOG.info('Serving metrics at http://%s:%d/metrics', address, port)
    signal.sigwait(signals)


if __name__ == '__main__':
    sys.exit(main())
