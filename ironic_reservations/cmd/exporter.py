# SPDX-License-Identifier: Apache-2.0
"""ironic-reservations-exporter: tell Prometheus of the fleet."""

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
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import metrics
from ironic_reservations.db import counting
from ironic_reservations.db import engine
from ironic_reservations.db import functions
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

#: Of nodes that can be held, a passing lock notwithstanding.
FREE = 'free'

#: Why a node is not free is told in the words of an explanation.
NODE_STATES = (FREE, *(reason for reason in matching.REASONS
                       if reason != matching.LOCKED))


class Collector:
    """What is told in a scrape: counted anew each time."""

    def collect(self):
        began = time.monotonic()
        try:
            counted = _count()
        except Exception as error:
            # Nothing is told of a fleet that cannot be seen, rather than what
            # it was before.
            LOG.error('The fleet cannot be counted: %s', error)
            counted = ()
        yield from counted
        yield _gauge('up', 'Whether the fleet could be counted',
                     {(): int(bool(counted))})
        yield _gauge('scrape_seconds', 'Seconds that it took to count it',
                     {(): time.monotonic() - began})
        yield from _of_workers()


@engine.retry
def _count():
    """The gauges of the fleet, a list."""
    nodes, held = collections.Counter(), collections.Counter()
    for *partition, reason, number in counting.by_partition():
        state = reason if reason in NODE_STATES else FREE
        # A number that falls to 0 is told, too.
        nodes.update({(*partition, each): 0 for each in NODE_STATES})
        nodes[*partition, state] += number
    for host, provision_state, number in counting.by_host():
        held.update({(host, each): 0 for each in values.STATES})
        held[host, values.state_of(provision_state)] += number
    leases = hosts.find(limit=None)
    [[now]] = engine.rows(sa.select(functions.utcnow()))
    return [
        _gauge('nodes', 'Nodes by whether they can be held, or why not', nodes,
               'resource_class', 'conductor_group', 'shard', 'state'),
        _gauge('reservations', 'Reservations by the host that holds them',
               held, 'host', 'state'),
        _gauge('overdue', 'Reservations past their lease that are kept',
               {(): len(expiry.overdue())}),
        _gauge('host_lease_seconds',
               'Seconds until the lease of a host ends; less than 0: since',
               {(each.host,): (each.expires_at - now).total_seconds()
                for each in leases}, 'host'),
        _gauge('host_since_seconds',
               'Seconds since another process has become the host',
               {(each.host,): (now - each.since).total_seconds()
                for each in leases}, 'host'),
        _gauge('host_standbys', 'Processes that wait to be the host',
               {(each.host,): each.standbys for each in leases}, 'host'),
    ]


def _gauge(name, description, values, *labels):
    """A gauge; what has no host, shard and so on has an empty label."""
    gauge = core.GaugeMetricFamily(f'ironic_reservations_{name}', description,
                                   labels=labels)
    for key, value in values.items():
        gauge.add_metric([each or '' for each in key], value)
    return gauge


def _of_workers():
    """What the workers of the API on this host have counted, added up.

    Those that are dead count on: the sum of a counter does not fall.
    """
    folder = os.environ.get(metrics.VARIABLE, '')
    if not os.path.isdir(folder):
        # The API makes it, or is yet to be started.
        return ()
    try:
        return multiprocess.MultiProcessCollector(None, folder).collect()
    except (OSError, ValueError, RuntimeError) as error:
        # The folder is emptied when the API starts anew, as we read it.
        LOG.error('What the API counts cannot be read: %s', error)
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
