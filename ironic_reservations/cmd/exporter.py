# SPDX-License-Identifier: Apache-2.0
"""ironic-reservations-exporter: tell Prometheus of the fleet."""

import collections
import os
import signal
import sys
import time

from oslo_config import cfg
from oslo_log import log
import prometheus_client
from prometheus_client import core
from prometheus_client import multiprocess

from ironic_reservations import cmd
from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import metrics
from ironic_reservations import reservations
from ironic_reservations.db import counting
from ironic_reservations.db import engine

LOG = log.getLogger(__name__)

OPTIONS = (
    cfg.HostAddressOpt(
        'listen-address', default='127.0.0.1',
        help='The address to listen on. Whoever reaches it may read how many '
             'nodes there are, and the names of hosts.'),
    cfg.PortOpt('port', default=6387, help='The TCP port to listen on.'),
)

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
        yield from _of_workers(began)


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
        held.update({(host, each): 0 for each in reservations.STATES})
        held[host, reservations.state_of(provision_state)] += number
    return [
        _gauge('nodes', 'Nodes by whether they can be held, or why not', nodes,
               'resource_class', 'conductor_group', 'shard', 'state'),
        _gauge('reservations', 'Reservations by the host that holds them',
               held, 'host', 'state'),
        _gauge('overdue', 'Reservations past their lease that are kept',
               {(): len(reservations.overdue())}),
    ]


def _gauge(name, description, values, *labels):
    """A gauge; what has no host, shard and so on has an empty label."""
    gauge = core.GaugeMetricFamily(f'ironic_reservations_{name}', description,
                                   labels=labels)
    for key, value in values.items():
        gauge.add_metric([each or '' for each in key], value)
    return gauge


def _of_workers(until):
    """What the workers of the API on this host have counted, added up.

    Those that are dead count on: the sum of a counter does not fall.

    :param until: what has happened until then is among it.
    """
    folder = os.environ.get(metrics.VARIABLE, '')
    if not os.path.isdir(folder):
        # The API makes it, or is yet to be started.
        return ()
    time.sleep(max(0, until + metrics.DELAY + 0.1 - time.monotonic()))
    try:
        return multiprocess.MultiProcessCollector(None, folder).collect()
    except (OSError, ValueError, RuntimeError) as error:
        # The folder is emptied when the API starts anew, as we read it.
        LOG.error('What the API counts cannot be read: %s', error)
        return ()


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
        prometheus_client.start_http_server(port, address, registry)
    except OSError as error:
        raise exception.ReservationsError(
            f'{address}:{port} cannot be listened on: {error.strerror}')
    LOG.info('Serving metrics at http://%s:%d/metrics', address, port)
    signal.sigwait(ends)


if __name__ == '__main__':
    sys.exit(main())
