# SPDX-License-Identifier: Apache-2.0
"""How long concurrent boots take, with Nova's own Ironic driver and ours.

    PATH=$PWD/.tox/py3/bin:$PATH \\
        python -m tests.benchmark.boots --deploy-delay 10,20

A whole cloud as "make cloud" has it, whose nodes take a while to deploy, as
hardware does. So many servers are asked for at once, each by a call of its
own, and waited for until all are ACTIVE or ERROR; then they are deleted, and
the same cloud is switched to the other driver. Seconds are from the request
to ACTIVE, as whoever asks every half second sees it. The status is 1 if a
server did not get there, or two of them are on one node.
"""

import argparse
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
    """Seconds to ACTIVE of each server that got there, and distinct nodes."""
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
        node.id for node in operator.nodes() if node.instance_id in active})


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
    args = parser.parse_args()
    lost = False
    shown = table.Table('driver', 'asked', 'ACTIVE', 'on nodes', 'first',
                        'median', 'last', title='Seconds to ACTIVE')
    services.stop_on_signal()
    with tempfile.TemporaryDirectory() as folder:
        cloud = tools_cloud.Cloud(
            pathlib.Path(folder, 'run'), services.free_ports(9),
            args.computes, args.nodes, deploy_delay=args.deploy_delay)
        cloud.up()
        try:
            operator = operators.Operator(cloud)
            for name, driver in list(DRIVERS.items()) * args.rounds:
                operator.switch(driver)
                operators.eventually(functools.partial(
                    ready, operator, args.computes if driver
                    == tools_cloud.DRIVER else args.nodes), TIMEOUT)
                seconds, nodes = boot(operator, args.boots)
                shown.add_row(
                    name, str(args.boots), str(len(seconds)), str(nodes),
                    *(f'{each(seconds):.1f}' if seconds else '-'
                      for each in (min, statistics.median, max)))
                lost = lost or {len(seconds), nodes} != {args.boots}
                operator.delete_all()
                operators.eventually(operator.drained, TIMEOUT)
        finally:
            cloud.down()
    console.Console().print(shown)
    return int(lost)


if __name__ == '__main__':
    sys.exit(main())
