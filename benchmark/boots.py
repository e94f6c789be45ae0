# SPDX-License-Identifier: Apache-2.0
"""Measure concurrent boots with Nova's own Ironic driver and with ours.

    PATH=$PWD/.tox/py3/bin:$PATH \\
        python -m benchmark.boots --deploy-delay 10,20

A whole cloud as in "make cloud", whose nodes take a while to deploy, like
hardware. All servers are requested at once, each by its own call. When all are
ACTIVE or ERROR, they are deleted, and the same cloud changes to the other
driver. Seconds are from the request to ACTIVE, as seen by a client
that polls every half second. Retries are builds that continued on another
host. The exit status is 1 if a server did not become ACTIVE, or if two servers
share a node.

    --only-ours --set filter_scheduler.host_subset_size=1 --rounds 3

uses other scheduler options than the documentation.

    --lives --write

measures the lives of servers instead, in five rounds on one compute host, and
writes the table of the documentation: each client boots a server, waits until
it is ACTIVE, deletes it, and waits until it is gone. Nodes deploy at once, and
Nova's periodic tasks run every minute, as they do by default. CPU times and
requests to Ironic include these tasks. A client polls ten times a second.
"""

import argparse
import collections
import concurrent.futures
import functools
import json
import pathlib
import socket
import statistics
import sys
import tempfile
import time

from openstack import exceptions as sdk_exc
import psutil
from rich import console
from rich import table

from benchmark import page
from tests.cloud import operator as operators
from tools import services
from tools import trial_cloud

TIMEOUT = 1800
DRIVERS = {'row per node': 'ironic.IronicDriver',
           'row per host': trial_cloud.DRIVER}
#: Numbers of clients that boot and delete servers.
CLIENTS = 1, 8


def boot(operator, count):
    """Request servers at once, and wait for them.

    :returns: sorted seconds to ACTIVE of the active servers, the number of
        their nodes, and the numbers of servers by host.
    """
    body = operator.server_options()
    starts, active = {}, {}

    def ask(number):
        began = time.monotonic()
        server = operator.connection.compute.create_server(
            name=f'server-{number}', **body)
        starts[server.id] = began

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        list(pool.map(ask, range(count)))
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        time.sleep(0.5)
        try:
            servers = operator.servers()
        except sdk_exc.SDKException:
            continue  # The API is busy.
        now = time.monotonic()
        for server in servers:
            if server.status == 'ACTIVE':
                active.setdefault(server.id, now - starts[server.id])
        if all(server.status in ('ACTIVE', 'ERROR') for server in servers):
            break
    return sorted(active.values()), len({
        node.id for node in operator.nodes() if node.instance_id in active}), (
            collections.Counter(server.compute_host for server in servers
                                if server.id in active))


def count_retries(cloud):
    """Return the number of builds that have continued on another host."""
    return sum(
        path.read_text(errors='replace').count('Could not reserve a node')
        for host in cloud.hosts
        for path in (cloud.folder / 'logs').glob(f'{host}*'))


def live(operator, clients, count):
    """Boot and delete servers; return the costs of one life by name."""
    compute, body = operator.connection.compute, operator.server_options()

    def boot_and_delete(_):
        began = time.monotonic()
        server = compute.create_server(name='server', **body)
        compute.wait_for_server(server, interval=0.1, wait=TIMEOUT)
        compute.delete_server(server)
        compute.wait_for_delete(server, interval=0.1, wait=TIMEOUT)
        return time.monotonic() - began

    before = read_costs(operator.cloud)
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        seconds = list(pool.map(boot_and_delete, range(count)))
    after = read_costs(operator.cloud)
    return {'seconds': statistics.median(seconds), **{
        name: (after[name] - before[name]) / count for name in before}}


def read_costs(cloud):
    """Return what the services have used since they were started."""
    costs = {}
    for title, names in (('nova-compute', cloud.hosts),
                         ('Ironic\'s API', ['ironic']),
                         ('Placement', ['placement'])):
        parents = [psutil.Process(cloud.pid(name)) for name in names]
        costs[f'CPU seconds of {title}'] = sum(
            sum(process.cpu_times()[:2]) for parent in parents
            for process in (parent, *parent.children(recursive=True)))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(cloud.stats))
        workers = json.load(connection.makefile())['workers']
    return {**costs, 'requests to Ironic': sum(
        worker['requests'] for worker in workers)}


def show_lives(output, lives, note):
    """Show medians and spread of the rounds, and the ratios to Nova's own.

    :param lives: the costs of each round, by number of clients and driver.
    """
    own, ours = DRIVERS
    rows = []
    for clients in CLIENTS:
        for name in lives[clients, ours][0]:
            pairs = [[cost[name] for cost in lives[clients, driver]]
                     for driver in (own, ours)]
            rows.append([
                f'{name}, {clients} client{"s" if clients > 1 else ""}',
                *(f'{statistics.median(values):.2f} ({min(values):.2f} to '
                  f'{max(values):.2f})' for values in (*pairs, [
                      above / below for below, above in zip(
                          *pairs, strict=True)]))])
    output.show(
        'boots', 'One server, booted and deleted: medians of the rounds '
        '(smallest to largest)', [
            '', "Nova's own driver", 'this driver', 'ratio of a round'],
        rows, note)


def ready(operator, rows):
    """Check that Nova has its rows, and Placement all nodes."""
    assert len(list(operator.connection.compute.hypervisors())) == rows
    placement = operator.connection.placement
    available = sum(
        inventory.total - inventory.reserved
        for provider in placement.resource_providers()
        for inventory in placement.resource_provider_inventories(provider)
        if inventory.resource_class == operators.CLASS)
    assert available >= operator.cloud.nodes


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--boots', type=int, default=40)
    parser.add_argument('--nodes', type=int, default=48)
    parser.add_argument('--computes', type=int,
                        help='number of hosts (default: 3, of --lives: 1)')
    parser.add_argument('--deploy-delay', default='20,40',
                        help='seconds, "FROM,TO" (default: %(default)s)')
    parser.add_argument('--lives', type=int, nargs='?', const=16,
                        help='number of servers that each number of clients '
                             'boots and deletes (default: %(const)s)')
    parser.add_argument('--rounds', type=int,
                        help='number of rounds of all drivers (default: 1, '
                             'of --lives: 5)')
    parser.add_argument('--only-ours', action='store_true')
    parser.add_argument('--set', metavar='SECTION.OPTION=VALUE', nargs='+',
                        default=[], help='options of Nova\'s scheduler')
    page.add_argument(parser)
    args = parser.parse_args()
    if args.lives and args.only_ours:
        parser.error('--lives compares both drivers')
    args.computes = args.computes or (1 if args.lives else 3)
    args.rounds = args.rounds or (5 if args.lives else 1)
    return args


def main():
    args = parse_arguments()
    scheduler = services.read_conf(
        trial_cloud.EXAMPLES / 'nova-scheduler.conf')
    for setting in args.set:
        name, _, value = setting.partition('=')
        section, _, option = name.partition('.')
        scheduler.setdefault(section, {})[option] = value
    drivers = [item for item in DRIVERS.items()
               if not args.only_ours or item[1] == trial_cloud.DRIVER]
    is_incomplete, lives = False, collections.defaultdict(list)
    output = table.Table('driver', 'requested', 'ACTIVE', 'on nodes', 'first',
                         'median', 'last', 'by host', 'retries',
                         title='Seconds to ACTIVE')
    services.stop_on_signal()
    with tempfile.TemporaryDirectory() as folder:
        cloud = trial_cloud.Cloud(
            pathlib.Path(folder, 'run'), services.free_ports(9),
            args.computes, args.nodes, scheduler=scheduler,
            deploy_delay='0' if args.lives else args.deploy_delay)
        cloud.quick = not args.lives
        cloud.up()
        try:
            operator = operators.Operator(cloud)
            note = page.describe(
                f'{args.nodes} nodes, {args.rounds} rounds of {args.lives} '
                f'servers, compute hosts: {args.computes}',
                cloud.database_url('nova'))
            for name, driver in drivers * args.rounds:
                if len(drivers) > 1:
                    operator.switch(driver)
                operators.eventually(functools.partial(
                    ready, operator, args.computes if driver
                    == trial_cloud.DRIVER else args.nodes), TIMEOUT)
                if args.lives:
                    live(operator, 1, 1)  # Not measured.
                    for clients in CLIENTS:
                        costs = live(operator, clients, args.lives)
                        lives[clients, name].append(costs)
                        print(f'{name}, {clients} clients: {costs}',
                              flush=True)
                    continue
                before = count_retries(cloud)
                seconds, nodes, hosts = boot(operator, args.boots)
                output.add_row(
                    name, str(args.boots), str(len(seconds)), str(nodes),
                    *(f'{statistic(seconds):.1f}' if seconds else '-'
                      for statistic in (min, statistics.median, max)),
                    '/'.join(str(hosts[host]) for host in cloud.hosts),
                    str(count_retries(cloud) - before))
                is_incomplete = is_incomplete or (
                    {len(seconds), nodes} != {args.boots})
                operator.delete_all()
                operators.eventually(operator.assert_unused, TIMEOUT)
        finally:
            cloud.down()
    if args.lives:
        show_lives(page.Page(args.write), lives, note)
    else:
        console.Console().print(output)
    return int(is_incomplete)


if __name__ == '__main__':
    sys.exit(main())
