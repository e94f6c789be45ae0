# SPDX-License-Identifier: Apache-2.0
"""How long concurrent boots take, with Nova's own Ironic driver and ours.

    PATH=$PWD/.tox/py3/bin:$PATH \\
        python -m tests.benchmark.boots --deploy-delay 10,20

A whole cloud as "make cloud" has it, whose nodes take a while to deploy, as
hardware does. So many servers are asked for at once, each by a call of its
own, and waited for until all are ACTIVE or ERROR; then they are deleted, and
the same cloud is switched to the other driver. Seconds are from the request
to ACTIVE, as whoever asks every half second sees it. Retries are builds that
had to go on to another host. The status is 1 if a server did not get there, or
two of them are on one node.

    --only-ours --set filter_scheduler.host_subset_size=1 --rounds 3

tries other options of Nova's scheduler than those of the documentation.
"""

import argparse
import collections
import concurrent.futures
import functools
import pathlib
import statistics
import sys
import tempfile
import time

from openstack import exceptions as sdk_exc
from rich import console
from rich import table

from tests.cloud import operator as operators
from tools import cloud as tools_cloud
from tools import services

TIMEOUT = 1800
DRIVERS = {'row per node': 'ironic.IronicDriver',
           'row per host': tools_cloud.DRIVER}


def boot(operator, count):
    """Ask for so many servers at once, and wait for them.

    :returns: seconds to ACTIVE of each server that got there, distinct nodes,
        and numbers of servers by host.
    """
    wanted = operator.wanted()
    asked, active = {}, {}

    def ask(number):
        began = time.monotonic()
        server = operator.connection.compute.create_server(
            name=f'server-{number}', **wanted)
        asked[server.id] = began

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        list(pool.map(ask, range(count)))
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        time.sleep(0.5)
        try:
            servers = operator.servers()
        except sdk_exc.SDKException:
            continue  # A busy API of a small machine.
        now = time.monotonic()
        for each in servers:
            if each.status == 'ACTIVE':
                active.setdefault(each.id, now - asked[each.id])
        if all(each.status in ('ACTIVE', 'ERROR') for each in servers):
            break
    return sorted(active.values()), len({
        node.id for node in operator.nodes() if node.instance_id in active}), (
            collections.Counter(each.compute_host for each in servers
                                if each.id in active))


def failed_holds(cloud):
    """How many builds have gone on to another host up to now."""
    return sum(path.read_text(errors='replace').count('No node is reserved')
               for host in cloud.hosts
               for path in (cloud.folder / 'logs').glob(f'{host}*'))


def ready(operator, rows):
    """Nova knows its rows, and Placement has all nodes to give."""
    assert len(list(operator.connection.compute.hypervisors())) == rows
    placement = operator.connection.placement
    offered = sum(each.total - each.reserved
                  for provider in placement.resource_providers()
                  for each in placement.resource_provider_inventories(provider)
                  if each.resource_class == operators.CLASS)
    assert offered >= operator.cloud.nodes


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--boots', type=int, default=40)
    parser.add_argument('--nodes', type=int, default=48)
    parser.add_argument('--computes', type=int, default=3)
    parser.add_argument('--deploy-delay', default='20,40',
                        help='seconds, "FROM,TO" (default: %(default)s)')
    parser.add_argument('--rounds', type=int, default=1,
                        help='each driver in turn, so often')
    parser.add_argument('--only-ours', action='store_true')
    parser.add_argument('--set', metavar='SECTION.OPTION=VALUE', nargs='+',
                        default=[], help='of Nova\'s scheduler')
    args = parser.parse_args()
    scheduler = services.read_conf(
        tools_cloud.DOCUMENTED / 'nova-scheduler.conf')
    for each in args.set:
        name, _, value = each.partition('=')
        section, _, option = name.partition('.')
        scheduler.setdefault(section, {})[option] = value
    drivers = [each for each in DRIVERS.items()
               if not args.only_ours or each[1] == tools_cloud.DRIVER]
    lost = False
    shown = table.Table('driver', 'asked', 'ACTIVE', 'on nodes', 'first',
                        'median', 'last', 'by host', 'retries',
                        title='Seconds to ACTIVE')
    services.stop_on_signal()
    with tempfile.TemporaryDirectory() as folder:
        cloud = tools_cloud.Cloud(
            pathlib.Path(folder, 'run'), services.free_ports(9),
            args.computes, args.nodes, deploy_delay=args.deploy_delay,
            scheduler=scheduler)
        cloud.up()
        try:
            operator = operators.Operator(cloud)
            for name, driver in drivers * args.rounds:
                if len(drivers) > 1:
                    operator.switch(driver)
                operators.eventually(functools.partial(
                    ready, operator, args.computes if driver
                    == tools_cloud.DRIVER else args.nodes), TIMEOUT)
                failed = failed_holds(cloud)
                seconds, nodes, hosts = boot(operator, args.boots)
                shown.add_row(
                    name, str(args.boots), str(len(seconds)), str(nodes),
                    *(f'{each(seconds):.1f}' if seconds else '-'
                      for each in (min, statistics.median, max)),
                    '/'.join(str(hosts[host]) for host in cloud.hosts),
                    str(failed_holds(cloud) - failed))
                lost = lost or {len(seconds), nodes} != {args.boots}
                operator.delete_all()
                operators.eventually(operator.drained, TIMEOUT)
        finally:
            cloud.down()
    console.Console().print(shown)
    return int(lost)


if __name__ == '__main__':
    sys.exit(main())
