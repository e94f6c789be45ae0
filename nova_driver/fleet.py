# SPDX-License-Identifier: Apache-2.0
"""What a host reports of the nodes that it may use: sums, no list."""

import collections
import contextlib
import dataclasses
import math
import re

from nova import exception
from nova import utils
from nova.objects import fields
import os_resource_classes as orc
import os_traits

#: The most that Nova's compute_nodes and Placement's inventories can take.
MAX_INT = 2 ** 31 - 1

#: What a hardware profile calls Placement's standard resource classes.
STANDARD = {orc.VCPU: 'vcpus', orc.MEMORY_MB: 'memory_mb',
            orc.DISK_GB: 'local_gb'}


def normalize(resource_class):
    """A node's resource class as Placement knows it, and as it is matched.

    :returns: None for a node that has none, or one that no request can name:
        with it, Placement would refuse all of the host's inventory.
    """
    if not resource_class or resource_class in orc.STANDARDS:
        return None
    name = (resource_class
            if resource_class.startswith(orc.CUSTOM_NAMESPACE)
            else utils.normalize_rc_name(resource_class))
    return name if re.fullmatch('CUSTOM_[A-Z0-9_]+', name) else None


def allocated(request):
    """What Placement has allocated for a request.

    :param request: the request spec that a node is held for, a dict.
    :returns: amounts by resource class.
    """
    sizes = {
        orc.VCPU: request.get('vcpus', 0),
        orc.MEMORY_MB: request.get('memory_mb', 0),
        orc.DISK_GB: (request.get('root_gb', 0)
                      + request.get('ephemeral_gb', 0)
                      + math.ceil(request.get('swap', 0) / 1024))}
    asked = {key.partition(':')[2]: int(amount)
             for key, amount in request.get('extra_specs', {}).items()
             if key.startswith('resources:')}
    return collections.Counter({**sizes, **asked})


@dataclasses.dataclass(frozen=True)
class Fleet:
    """The nodes that a host may use and those that it holds.

    :param rows: hardware profiles, as the capacity call gives them.
    :param taken: what this host's instances have allocated, in sum; None
        where each has one of its node's class, as the standard resource
        classes are not reported.
    """

    rows: list
    taken: collections.Counter | None = None

    def resources(self):
        """Sums for ``compute_nodes``: MiB, CPUs, GiB.

        Nova itself sums up what its instances use.
        """
        sums = {size: _clamp(sum(row['total'] * row[size]
                                 for row in self.rows))
                for size in STANDARD.values()}
        return {**sums, **{f'{size}_used': 0 for size in sums},
                'disk_available_least': sums['local_gb'],
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
        """Those of all nodes: the hold matches them exactly.

        Without standard ones that are newer than this Nova, as a trait that
        Placement does not know would make it refuse the host's inventory.
        """
        found = set().union(*(row['traits'] for row in self.rows))
        return {each for each in found if os_traits.is_custom(each)
                or each in os_traits.get_traits()}

    def inventory(self, released):
        """Placement's inventory of the host's provider.

        ``total`` counts every node, ``reserved`` those that are neither free
        nor held by this host, so that each host offers at most what is free.
        What the host holds itself since the profiles were counted changes
        nothing of that: it was free, and is held.

        :param released: amounts by resource class that this host has let go
            since the profiles were counted: its nodes are being cleaned.
        """
        total, usable = collections.Counter(), collections.Counter()
        for row in self.rows:
            name = normalize(row['resource_class'])
            total[name] += row['total']
            usable[name] += row['free']
            if self.taken is None:
                usable[name] += row['held']
        largest = dict.fromkeys(total, 1)
        if self.taken is not None:
            for name, size in STANDARD.items():
                total[name] = sum(row['total'] * row[size]
                                  for row in self.rows)
                usable[name] = sum(row['free'] * row[size]
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
            # Nodes without a class, and a total of 0, have no place there.
            for name, amount in total.items() if name and amount}


def _clamp(amount):
    return min(amount, MAX_INT)
