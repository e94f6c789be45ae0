# SPDX-License-Identifier: Apache-2.0
"""Sums over the nodes that a host may use, as reported to Nova."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import re
from typing import Any

from nova import exception
from nova.objects import fields
import os_resource_classes as orc
import os_traits

from ironic_reservations.shared import resources

from . import client

#: The largest number in Nova's compute_nodes and in Placement's inventories.
MAX_INT = 2 ** 31 - 1


def normalize(resource_class: str | None) -> str | None:
    """Return a node's resource class in the spelling of Placement.

    :returns: None for a node without a class and for a class that no request
        can name: with it Placement would refuse the host's whole inventory.
    """
    if not resource_class or resource_class in orc.STANDARDS:
        return None
    name = resources.normalize_class(resource_class)
    return name if re.fullmatch('CUSTOM_[A-Z0-9_]+', name) else None


@dataclasses.dataclass(frozen=True)
class Fleet:
    """The nodes that a host may use and the nodes that it holds.

    :param rows: capacity rows by hardware profile, from
        ``client.Client.capacity``.
    :param taken: sum of the allocations of this host's instances; None when
        the standard resource classes are not reported, because then each
        instance has 1 of its node's class.
    """

    rows: list[client.CapacityRow]
    taken: collections.Counter[str] | None = None

    @property
    def in_use(self) -> int:
        """The number of nodes that are not free."""
        return sum(row['total'] - row['free'] for row in self.rows)

    def resources(self) -> dict[str, Any]:
        """Return the sums for Nova's ``compute_nodes``, in MiB, CPUs and GiB.

        The amounts used are 0, because Nova adds these up itself.
        """
        sums: dict[str, int] = {
            size: _clamp(sum(row['total'] * row[size] for row in self.rows))
            for size in resources.SIZES.values()}
        return {**sums, **{f'{size}_used': 0 for size in sums},
                'disk_available_least': _clamp(sum(
                    row['free'] * row['local_gb'] for row in self.rows)),
                'supported_instances': [
                    (architecture, fields.HVType.BAREMETAL, fields.VMMode.HVM)
                    for architecture in self._architectures()]}

    def _architectures(self) -> list[str]:
        names = set()
        for name in {row['cpu_arch'] for row in self.rows} - {None}:
            with contextlib.suppress(exception.InvalidArchitectureName):
                names.add(fields.Architecture.canonicalize(name))
        return sorted(names)

    def traits(self) -> set[str]:
        """Return the union of all nodes' traits.

        A host is then a candidate if any of its nodes has a required trait;
        the hold checks that one node has all of them. Standard traits that
        are newer than this Nova are left out, because Placement would refuse
        the host's inventory for an unknown trait.
        """
        names = set().union(*(row['traits'] for row in self.rows))
        return {name for name in names if os_traits.is_custom(name)
                or name in os_traits.get_traits()}

    def inventory(self, releases: collections.Counter[str],
                  ) -> dict[str, dict[str, int | float]]:
        """Return the inventory of the host's provider in Placement.

        ``total`` counts every node. ``reserved`` counts the nodes that are
        neither free nor held by this host nor claimable, so that each host
        offers at most the nodes that an instance can get. A node that the host
        has held since the count was free then, which makes no difference here.

        :param releases: amounts by resource class of the nodes that this
            host has released since the count, and that are being cleaned.
        """
        # A node without a class has the name None.
        total: collections.Counter[str | None] = collections.Counter()
        usable: collections.Counter[str | None] = collections.Counter()
        for row in self.rows:
            name = normalize(row['resource_class'])
            total[name] += row['total']
            usable[name] += _count_available(row)
            if self.taken is None:
                usable[name] += row['held']
        largest = dict.fromkeys(total, 1)
        if self.taken is not None:
            for name, size in resources.SIZES.items():
                total[name] = sum(row['total'] * row[size]
                                  for row in self.rows)
                usable[name] = sum(_count_available(row) * row[size]
                                   for row in self.rows)
                largest[name] = max((row[size] for row in self.rows),
                                    default=0)
            usable.update(self.taken)
        usable.subtract(releases)
        return {
            name: {'total': _clamp(amount),
                   'reserved': _clamp(amount) - min(
                       max(usable[name], 0), _clamp(amount)),
                   'min_unit': 1, 'max_unit': _clamp(largest[name]),
                   'step_size': 1, 'allocation_ratio': 1.0}
            # Placement refuses an inventory without a class or of total 0.
            for name, amount in total.items() if name and amount}


def _count_available(row: client.CapacityRow) -> int:
    """Return how many nodes of a row an instance may hold or claim."""
    return row['free'] + row['claimable']


def _clamp(amount: int) -> int:
    return min(amount, MAX_INT)
