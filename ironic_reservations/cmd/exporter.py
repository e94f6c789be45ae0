# SPDX-License-Identifier: Apache-2.0
"""ironic-reservations-exporter: exports node counts to Prometheus."""

import collections
import contextlib
import os
import signal
import socket
import socketserver
import sys
import threading
import time
from wsgiref import simple_server

from oslo_config import cfg
from oslo_log import log
import prometheus_client
from prometheus_client import core
from prometheus_client import multiprocess
import sqlalchemy as sa

from ironic_reservations import cmd
from ironic_reservations import conf
from ironic_reservations import constants
from ironic_reservations import exception
from ironic_reservations import metrics
from ironic_reservations.db import counting
from ironic_reservations.db import engine
from ironic_reservations.db import functions
from ironic_reservations.fleet import profiles
from ironic_reservations.reservations import expiry
from ironic_reservations.reservations import hosts
from ironic_reservations.reservations import values

LOG = log.getLogger(__name__)

OPTIONS = (
    cfg.HostAddressOpt(
        'listen-address', default='127.0.0.1',
        help='The address to listen on. A client that reaches it may read how '
             'many nodes there are, and the names of hosts.'),
    cfg.PortOpt('port', default=6387, help='The TCP port to listen on.'),
)

#: So many clients are served at once; more are cut off.
CLIENTS = 16

#: Seconds for which a scrape waits for another one.
PATIENCE = 5

#: Seconds after which a client is cut off that does nothing, and any client.
STALLED, LONGEST = 10, 120

class Collector:
    """Collects the metrics of a scrape; counts the fleet every time."""

    def collect(self):
        start = time.monotonic()
        try:
            gauges = _count()
        except Exception as error:
            # No numbers are better than those of the last scrape.
            LOG.error('Cannot count the fleet: %s', error)
            gauges = ()
        yield from gauges
        yield _gauge('up', 'Whether the fleet could be counted',
                     {(): int(bool(gauges))})
        yield _gauge('scrape_seconds', 'Seconds that counting took',
                     {(): time.monotonic() - start})
        yield from _worker_metrics()


@engine.retry
def _count():
    """Return the gauges of the fleet, a list."""
    nodes, reservations = collections.Counter(), collections.Counter()
    # Series at 0 are exported as well: one that is missing would keep its
    # last value in a graph.
    for *partition, reason, taken, number in counting.by_partition():
        nodes.update({(*partition, name): 0
                      for name in constants.NODE_STATES})
        nodes[*partition, profiles.state(reason, taken)] += number
    for host, provision_state, number in counting.by_host():
        reservations.update({(host, name): 0 for name in values.STATES})
        reservations[host, values.state_of(provision_state)] += number
    leases = hosts.find(limit=None)
    [[now]] = engine.rows(sa.select(functions.utcnow()))
    return [
        _gauge('nodes', 'Nodes that are free, reserved, taken or out of '
               'service', nodes,
               'resource_class', 'conductor_group', 'shard', 'state'),
        _gauge('reservations', 'Reservations by compute host and state',
               reservations, 'host', 'state'),
        _gauge('overdue', 'Reservations that are kept past their lease',
               {(): len(expiry.overdue())}),
        _gauge('host_lease_seconds', "Seconds until the host's lease expires; "
               'negative once expired',
               {(lease.host,): (lease.expires_at - now).total_seconds()
                for lease in leases}, 'host'),
        _gauge('host_since_seconds',
               'Seconds since the active process acquired the host lease',
               {(lease.host,): (now - lease.since).total_seconds()
                for lease in leases}, 'host'),
        _gauge('host_standbys', 'Standby processes of the host',
               {(lease.host,): lease.standbys for lease in leases}, 'host'),
    ]


def _gauge(name, description, samples, *labels):
    """Return a gauge.

    :param samples: values by tuples of labels. None becomes an empty label.
    """
    gauge = core.GaugeMetricFamily(f'ironic_reservations_{name}', description,
                                   labels=labels)
    for key, value in samples.items():
        gauge.add_metric([label or '' for label in key], value)
    return gauge


def _worker_metrics():
    """Return the sums of what the API's workers on this host have counted.

    They include dead workers, so that no counter falls.
    """
    folder = os.environ.get(metrics.VARIABLE, '')
    if not os.path.isdir(folder):
        # The API creates it when it starts.
        return ()
    try:
        return multiprocess.MultiProcessCollector(None, folder).collect()
    except (OSError, ValueError, RuntimeError) as error:
        # Files vanish while we read them when the API restarts.
        LOG.error('Cannot read what the API counts: %s', error)
        return ()


def one_at_a_time(app, patience=PATIENCE):
    """Wrap a WSGI application in which each request is a scrape.

    Each counts the fleet: several at once would only slow each other down.

    :param patience: seconds that one waits for another; then it gets 503.
    """
    scraping = threading.Lock()

    def scrape(environ, start_response):
        if not scraping.acquire(timeout=patience):
            start_response('503 Service Unavailable', [
                ('Content-Type', 'text/plain'), ('Retry-After', '5')])
            return [b'Another scrape is under way.\n']
        try:
            # The answer is whole then; to send it may take the client long.
            return app(environ, start_response)
        finally:
            scraping.release()
    return scrape


class _Handler(simple_server.WSGIRequestHandler):

    def setup(self):
        # For each time that it waits for the client.
        self.timeout = self.server.stalled
        super().setup()

    def log_message(self, format, *args):
        """Leave no line for each scrape."""


class Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    """Serves a few clients at once, and none of them for long.

    :param address: and ``port`` to listen on.
    :param app: WSGI application.
    :param stalled: seconds after which a client is cut off that sends
        nothing, or takes nothing of the answer.
    :param longest: seconds after which a client is cut off anyway.
    """

    daemon_threads = True

    def __init__(self, address, port, app, stalled=STALLED, longest=LONGEST):
        self.address_family, *_, found = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE)[0]
        self.stalled, self._longest = stalled, longest
        self._room = threading.BoundedSemaphore(CLIENTS)
        super().__init__(found[:2], _Handler)
        self.set_app(app)

    def process_request(self, request, client_address):
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            # There is no thread for it, which would do so in the end.
            self._room.release()
            raise

    def process_request_thread(self, request, client_address):
        # Who sends a byte now and then is never stalled.
        end = threading.Timer(self._longest, _cut_off, [request])
        end.daemon = True
        try:
            end.start()
        except RuntimeError:
            # There is no thread for it, and none is served without an end.
            self.handle_error(request, client_address)
            self.shutdown_request(request)
        else:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._room.release()

    def handle_error(self, request, client_address):
        LOG.info('Client %s is gone, or was cut off', client_address[0])


def _cut_off(request):
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


@cmd.command
def main():
    conf.CONF.register_cli_opts(OPTIONS)
    conf.load(sys.argv[1:], prog='ironic-reservations-exporter')
    address, port = conf.CONF.listen_address, conf.CONF.port
    registry = prometheus_client.CollectorRegistry()
    registry.register(Collector())
    ends = {signal.SIGTERM, signal.SIGINT}
    # The threads that serve are not to take them.
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    try:
        server = Server(address, port, one_at_a_time(
            prometheus_client.make_wsgi_app(registry)))
    except OSError as error:
        raise exception.ReservationsError(
            f'{address}:{port} cannot be listened on: {error.strerror}')
    threading.Thread(target=server.serve_forever, daemon=True).start()
    LOG.info('Serving metrics at http://%s:%d/metrics', address, port)
    signal.sigwait(ends)


if __name__ == '__main__':
    sys.exit(main())
