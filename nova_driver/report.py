# SPDX-License-Identifier: Apache-2.0
"""The cached capacity of the fleet, as one host reports it.

Nova calls the driver's methods that report it under the resource tracker's
lock. So they send no requests, and use the last snapshot.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import threading
import time
from typing import Any

from nova import exception
from oslo_log import log as logging

from ironic_reservations.shared import resources

from . import client
from . import conf
from . import fleet

CONF = conf.CONF
LOG = logging.getLogger(__name__)


def get_partition() -> dict[str, str | None]:
    """Return the part of the fleet that this host uses; None means any."""
    return {'conductor_group': CONF.ironic.conductor_group,
            'shard': CONF.ironic.shard or None}


@dataclasses.dataclass(frozen=True)
class _Snapshot:
    """The capacity of the fleet at some time.

    :param start: when the request was sent, on time.monotonic().
    :param used_classes: names of the resource classes of which the host's
        provider has allocations; None if they are unknown.
    """

    start: float
    partition: dict[str, str | None]
    fleet: fleet.Fleet
    used_classes: set[str] | None


class _ReportedTraits:
    """The names of the traits that a host has reported, in a file.

    Without the file, for example on another machine, they are unknown, and no
    trait is removed that was reported before.

    :param host: the name of the compute host.
    """

    def __init__(self, host: str):
        self._path = os.path.join(
            CONF.state_path, f'reservations-traits-{host}.json')
        self._names: set[str] | None = None

    def read(self) -> set[str]:
        if self._names is None:
            try:
                with open(self._path) as file:
                    self._names = set(json.load(file))
            except FileNotFoundError:
                self._names = set()
            except (OSError, ValueError, TypeError) as e:
                LOG.warning('Could not read %s: %s', self._path, e)
                self._names = set()
        return self._names

    def write(self, names: set[str]) -> None:
        """Store the names, before they are reported to Placement."""
        if names == self._names:
            return
        self._names = names
        try:
            # A process that is killed must not leave half of the file.
            with open(f'{self._path}.new', 'w') as file:
                json.dump(sorted(names), file)
            os.replace(file.name, self._path)
        except OSError as e:
            LOG.warning('Could not write %s, so traits that leave the fleet '
                        'while nova-compute is down will not be removed from '
                        'the host: %s', self._path, e)


class Report:
    """Reports the capacity of the fleet for one host, thread-safe.

    :param host: the name of the compute host.
    """

    def __init__(self, host: str, reservations: client.Client):
        self._host = host
        self._client = reservations
        self._snapshot: _Snapshot | None = None
        self._reported_traits = _ReportedTraits(host)
        self._refresh_lock = threading.Lock()
        # Times (time.monotonic) and amounts by resource class of nodes that
        # the host has released, and that the snapshot may count as free, by
        # the UUIDs of their instances.
        self._releases: dict[
            str, tuple[float, collections.Counter[Any]]] = {}
        self._releases_lock = threading.Lock()

    def refresh(self, used_classes: set[str] | None,
                fresh: bool = False) -> None:
        """Read the capacity of the fleet for the methods below.

        A thread that waits while another reads uses that snapshot, if its
        request was sent after this call.

        :param used_classes: names of the resource classes of which the
            host's provider has allocations; None if they are unknown.
        :param fresh: bypass the cache of the API.
        :raises: VirtDriverNotReady when the capacity cannot be read now.
        """
        start = time.monotonic()
        with self._refresh_lock:
            if fresh or self._snapshot is None or self._snapshot.start < start:
                try:
                    self._refresh(used_classes, fresh)
                except client.Failure as e:
                    LOG.error('Could not read the capacity of the fleet: %s',
                              e)
                    raise exception.VirtDriverNotReady()

    def _refresh(self, used_classes: set[str] | None, fresh: bool) -> None:
        # Builds request a node of the reported partition, even when the
        # configuration has changed since.
        partition, start, taken = get_partition(), time.monotonic(), None
        rows, age = self._client.capacity(self._host, fresh, **partition)
        if not any(row['total'] for row in rows):
            LOG.warning(
                'Ironic shows no nodes to host %s, so no instance can be '
                'built here. Check that the user of [ironic] has system scope '
                '(system_scope = all, without project_name) or the service '
                'role that Ironic requires, and that there are nodes in the '
                'host\'s part of the fleet: conductor_group %s, shard %s.',
                self._host, *('any' if value is None else repr(value)
                              for value in partition.values()))
        if CONF.reservations.report_standard_resources:
            taken = sum((resources.sum_amounts(reservation['request_spec'])
                         for reservation in self._client.list_by_host(
                             self._host, ['request_spec'])),
                        collections.Counter())
        snapshot = _Snapshot(start, partition, fleet.Fleet(rows, taken),
                             used_classes)
        # The age is in whole seconds, rounded down, so subtract one more.
        counting_time = start - age - 1
        with self._releases_lock:
            # The counts already include earlier releases.
            self._releases = {
                uuid: release for uuid, release in self._releases.items()
                if release[0] >= counting_time}
            self._snapshot = snapshot

    def _get_snapshot(self) -> _Snapshot:
        if self._snapshot is None:
            raise exception.VirtDriverNotReady()
        return self._snapshot

    @property
    def in_use(self) -> int:
        """The number of nodes that are not free; 0 before any snapshot."""
        return self._snapshot.fleet.in_use if self._snapshot else 0

    @property
    def partition(self) -> dict[str, str | None] | None:
        """The reported part of the fleet; None before any snapshot."""
        return self._snapshot.partition if self._snapshot else None

    def resources(self) -> dict[str, Any]:
        """See fleet.Fleet.resources.

        :raises: VirtDriverNotReady before the first snapshot.
        """
        return self._get_snapshot().fleet.resources()

    def traits(self, before: set[str]) -> set[str]:
        """Return the traits of the host's provider in Placement.

        Adds the traits of the fleet, and removes the traits that this host has
        reported and that no node has any longer. Keeps the traits of operators
        and of Nova, which marks its own providers with a trait.

        :param before: the traits that Placement has now.
        """
        traits, ours = (self._get_snapshot().fleet.traits(),
                        self._reported_traits.read())
        # A trait that was removed may be set by an operator later.
        self._reported_traits.write(traits | ours.intersection(before))
        return traits | set(before) - ours

    def inventory(self, before: dict[str, Any]) -> dict[str, Any]:
        """Return the inventory of the host's provider in Placement.

        A class that no node has any longer must stay in the inventory while it
        has allocations, because Placement refuses to remove it.

        :param before: the inventory that Placement has now.
        """
        with self._releases_lock:
            snapshot = self._get_snapshot()
            releases = sum(
                (amounts for _, amounts in self._releases.values()),
                collections.Counter())
        inventory: dict[str, Any] = snapshot.fleet.inventory(releases)
        for name, old in before.items():
            if name not in inventory and (
                    snapshot.used_classes is None
                    or name in snapshot.used_classes):
                inventory[name] = {**old, 'reserved': old['total']}
        return inventory

    def note_release(self, reservation: client.Reservation) -> None:
        """Offer less, because the node of a reservation is being cleaned.

        This may be called again while a tear-down is in progress.

        Nova updates the inventory before it deletes the instance's
        allocation, so no other instance can take its place in between.
        """
        amounts: collections.Counter[Any] = resources.sum_amounts(
            reservation['request_spec'])
        if not CONF.reservations.report_standard_resources:
            amounts = collections.Counter(
                {fleet.normalize(reservation['resource_class']): 1})
        with self._releases_lock:
            self._releases[reservation['instance_uuid']] = (
                time.monotonic(), amounts)
