# SPDX-License-Identifier: Apache-2.0
"""What others do for the same: Ironic's allocations, Nova's list of nodes."""

import concurrent.futures
import contextlib
import itertools
import pathlib
import re
import statistics
import time

import psutil
import requests

from tests.benchmark import fleet
from tools import services

# What nova-compute's own driver asks of each node.
_FIELDS = ('uuid', 'power_state', 'target_power_state', 'provision_state',
           'target_provision_state', 'last_error', 'maintenance',
           'properties', 'instance_uuid', 'traits', 'resource_class')


def seconds(function, times):
    """Median."""
    taken = []
    for _ in range(times):
        began = time.monotonic()
        function()
        taken.append(time.monotonic() - began)
    return statistics.median(taken)


def peak_memory(pid):
    """MiB that the largest process of a service has had at most."""
    service = psutil.Process(pid)
    return max(int(re.search(r'VmHWM:\s*(\d+) kB', pathlib.Path(
        f'/proc/{process.pid}/status').read_text())[1])
        for process in (service, *service.children(recursive=True))) / 1024


class Allocations:
    """A client of Ironic."""

    def __init__(self, url):
        self._url = f'{url}/v1/allocations'
        self._classes = itertools.cycle(
            {profile[0] for profile in fleet.PROFILES})

    def allocate(self):
        """From the POST until a node is held."""
        with requests.Session() as session:
            session.headers['X-OpenStack-Ironic-API-Version'] = 'latest'
            allocation = session.post(self._url, json={
                'resource_class': next(self._classes)}).json()
            while allocation['state'] == 'allocating':
                time.sleep(0.01)
                allocation = session.get(
                    f'{self._url}/{allocation["uuid"]}').json()
        if allocation['state'] != 'active':
            raise fleet.WrongAnswer(str(allocation))

    def rate(self, number):
        """Per second, with eight clients."""
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(8) as executor:
            for each in [executor.submit(self.allocate)
                         for _ in range(number)]:
                each.result()
        return number / (time.monotonic() - began)


def measure(ironic, times):
    """Yield names and figures.

    :param times: how often; with 1 it takes long, and only one client does.
    """
    listing = services.connect(ironic.url)
    yield 'node list', 1000 * seconds(
        lambda: list(listing.nodes(fields=_FIELDS)), times)
    allocations = Allocations(ironic.url)
    if times > 1:
        with contextlib.suppress(StopIteration):
            allocations.allocate()  # Nothing is cold.
    yield 'allocation', 1000 * seconds(allocations.allocate, times)
    if times > 1:
        yield 'allocation rate', allocations.rate(8)
    yield 'allocation memory', peak_memory(ironic.process.pid)
