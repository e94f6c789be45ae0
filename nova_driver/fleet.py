# SPDX-License-Identifier: Apache-2.0
"""What a host reports of the nodes that it may use: their sums."""

import collections
import contextlib
import dataclasses
import re

from nova import exception
from nova.objects import fields
import os_resource_classes as orc
import os_traits

from ironic_reservations import resources

#: The largest number that fits in Nova's compute_nodes and in Placement's
#: inventories.
MAX_INT = 2 ** 31 - 1


def normalize(resource_class):
    """Return a node's resource class in the spelling of Placement.

    :returns: None for a node without a class and for a class that no request
        can name, because Placement would refuse the whole inventory of the
        host for it.
    """
    if not resource_class or resource_class in orc.STANDARDS:
        return None
    name = resources.normalize_class(resource_class)
    return name if re.fullmatch('CUSTOM_[A-Z0-9_]+', name) else None


@dataclasses.dataclass(frozen=True)
class Fleet:
    """The nodes that a host may use and those that it holds.

    :param rows: hardware profiles, as ``client.Client.capacity`` returns
        them.
    :param taken: Counter of what the instances of this host have allocated
        altogether; None when the standard resource classes are not reported,
        because then each has allocated 1 of its node's class.
    """

    rows: list
    taken: collections.Counter | None = None

    @property
    def in_use(self):
        """How many nodes are not free."""
        return sum(row['total'] - row['free'] for row in self.rows)

    def resources(self):
        """Return the sums for Nova's ``compute_nodes``, in MiB, CPUs and GiB.

        What is used is given as 0, because Nova adds that up by itself.
        """
        sums = {size: _clamp(sum(row['total'] * row[size]
                                 for row in self.rows))
                for size in resources.SIZES.values()}
        return {**sums, **{f'{size}_used': 0 for size in sums},
                # If this is more than is left of the host's disks, the
                # scheduler logs a warning for each request.
                'disk_available_least': None,
                'supported_instances': [
                    (each, fields.HVType.BAREMETAL, fields.VMMode.HVM)
                    for each in self._architectures()]}

    def _architectures(self):
        found = set()
        for name in {row['cpu_arch'] for row in self.rows} - {None}:
            with contextlib.suppress(exception.InvalidArchitectureName):
                found.add(fields.Architecture.canonicalize(name))
        return sorted(found)

    def traits(self):
        """Return the traits of all nodes together.

        A host is then a candidate if any of its nodes has a required trait;
        whether one node has all of them is decided by the hold. Standard
        traits that are newer than this Nova are left out, because Placement
        would refuse the host's inventory for a trait that it does not know.
        """
        found = set().union(*(row['traits'] for row in self.rows))
        return {each for each in found if os_traits.is_custom(each)
                or each in os_traits.get_traits()}

    def inventory(self, released):
        """Return the inventory of the host's provider in Placement.

        ``total`` counts every node, ``reserved`` those that are neither free
        nor held by this host nor to be claimed, so that each host offers at
        most what an instance can have.
        A node that the host has held since the profiles were counted was
        counted as free then, which makes no difference here.

        :param released: amounts by resource class of the nodes that this
            host has released since the profiles were counted, and that are
            being cleaned now.
        """
        total, usable = collections.Counter(), collections.Counter()
        for row in self.rows:
            name = normalize(row['resource_class'])
            total[name] += row['total']
            usable[name] += _to_be_had(row)
            if self.taken is None:
                usable[name] += row['held']
        largest = dict.fromkeys(total, 1)
        if self.taken is not None:
            for name, size in resources.SIZES.items():
                total[name] = sum(row['total'] * row[size]
                                  for row in self.rows)
                usable[name] = sum(_to_be_had(row) * row[size]
                                   for row in self.rows)
                largest[name] = max((row[size] for row in self.rows),
                                    default=0)
            usable.update(self.taken)
        usable.subtract(released)
        return {
            name: {'total': _clamp(amount),
                   'reserved': _clamp(amount) - min(
                       max(usable[name], 0), _clamp(amount)),
                   'min_unit': 1, 'max_unit': _clamp(largest[name]),
                   'step_size': 1, 'allocation_ratio': 1.0}
            # Placement refuses an inventory without a class or of total 0.
            for name, amount in total.items() if name and amount}


def _to_be_had(row):
    """How many nodes of a profile an instance may hold or claim."""
    # An Ironic that is not upgraded yet does not say what can be claimed.
    return row['free'] + row.get('claimable', 0)


def _clamp(amount):
    return min(amount, MAX_INT)
