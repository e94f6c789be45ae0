# SPDX-License-Identifier: Apache-2.0
"""What the fence costs a request to Ironic.

    python -m tests.benchmark.fence

A node of fake hardware is powered on by Ironic without the plugin, with it,
and with it and the header that has it ask for whom; one client over HTTP,
without Keystone, a request of each kind in turn. Medians in milliseconds.
"""

import contextlib
import itertools
import logging
import statistics
import time
import uuid

import requests
from rich import console
from rich import table

from tests.benchmark import fleet
from tools import services

NODES, REQUESTS, WARM = 100, 300, 20
#: Seconds in which Ironic does what it was told, which is not measured.
PAUSE = 0.05
HOST, HOLDER = 'compute-1', str(uuid.uuid4())
OURS = '/v1/reservations'


def nodes(url):
    """UUIDs."""
    answer = requests.get(f'{url}/v1/nodes')
    return [node['uuid'] for node in answer.json()['nodes']]


def held(url):
    """What the header says for each node, by its UUID."""
    answer = requests.put(f'{url}{OURS}/hosts/{HOST}',
                          json={'holder': HOLDER, 'ttl': 600})
    answer.raise_for_status()
    found = {}
    for node in nodes(url):
        answer = requests.post(url + OURS, json={
            'candidate_nodes': [node], 'host': HOST})
        answer.raise_for_status()
        found[node] = (f'instance={answer.json()["instance_uuid"]}; '
                       f'host={HOST}; holder={HOLDER}')
    return found


def power_on(session, url, node, headers):
    """Milliseconds."""
    began = time.perf_counter()
    answer = session.put(f'{url}/v1/nodes/{node}/states/power',
                         json={'target': 'power on'}, headers=headers)
    taken = 1000 * (time.perf_counter() - began)
    fenced = 'X-OpenStack-Ironic-Reservations-Fence' in answer.headers
    if answer.status_code != 202 or fenced != bool(headers):
        raise fleet.WrongAnswer(answer.text)
    time.sleep(PAUSE)
    return taken


def main():
    services.stop_on_signal()
    logging.getLogger('pifpaf').setLevel('ERROR')
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(services.mariadb())
        bare, ours = (stack.enter_context(fleet.ironic(
            server, NODES, plugin=plugin)).url for plugin in (False, True))
        said = held(ours)
        kinds = {'without the plugin': (bare, lambda node: {}),
                 'without the header': (ours, lambda node: {}),
                 'with the header': (ours, lambda node: {
                     'X-OpenStack-Ironic-Reservation': said[node]})}
        session = stack.enter_context(requests.Session())
        turns = {name: itertools.cycle(nodes(url))
                 for name, (url, _) in kinds.items()}
        # Nobody waits for a node that another kind has just powered on.
        for _ in range(NODES // 2):
            next(turns['with the header'])
        taken = {name: [] for name in kinds}
        for _ in range(WARM + REQUESTS):
            for name, (url, headers) in kinds.items():
                node = next(turns[name])
                taken[name].append(power_on(session, url, node,
                                            headers(node)))
    shown = table.Table('power-on', 'median, ms', 'times bare')
    first = statistics.median(taken['without the plugin'][WARM:])
    for name, each in taken.items():
        median = statistics.median(each[WARM:])
        shown.add_row(name, f'{median:.2f}', f'{median / first:.2f}')
    console.Console().print(shown)


if __name__ == '__main__':
    main()
