# SPDX-License-Identifier: Apache-2.0
"""Converts a request into sizes of a node and resources of Placement.

The API, the commands and the virt driver share this module, so it imports
nothing of theirs.
"""

import collections
from collections.abc import Mapping
import contextlib
import functools
import math
import re
from typing import Any
from typing import Literal

import os_resource_classes as orc

from ironic_reservations.shared import constants

#: Sizes of a node by the resource class that overrides them.
SIZES: dict[str, Literal['memory_mb', 'vcpus', 'local_gb']] = {
    orc.MEMORY_MB: 'memory_mb', orc.VCPU: 'vcpus', orc.DISK_GB: 'local_gb'}

# Blazar's name of the class of a lease.
_BLAZAR = re.compile('CUSTOM_RESERVATION_[0-9A-F]{8}(?:_[0-9A-F]{4}){3}'
                     '_[0-9A-F]{12}')

# Nova's syntax: "resources", "resources1", "resources_NET" ...
_KEY = re.compile('resources(?:[a-zA-Z0-9_-]{1,64})?:([A-Z0-9_]+)')


@functools.lru_cache(maxsize=1024)
def normalize_class(name: str) -> str:
    """Return a node's resource class as Placement spells it.

    As in Nova's Ironic driver, ``baremetal.gold`` becomes
    ``CUSTOM_BAREMETAL_GOLD``. Names that Placement accepts are not changed.
    """
    if name in orc.STANDARDS or orc.is_custom(name):
        return name
    placement_name: str = orc.normalize_name(name)
    return placement_name


def is_blazar_class(name: str) -> bool:
    """Return whether Blazar has added a resource class to its flavor.

    In Placement, a child of the compute node's provider offers the class. No
    node has it.
    """
    return _BLAZAR.fullmatch(name) is not None


def limit_names(resource_class: str | None) -> tuple[str, ...]:
    """Return the names of Keystone's limits that a node counts towards.

    :param resource_class: resource class of the node, in any spelling.
    :returns: for example ``baremetal_reservations`` and
        ``baremetal_reservations:CUSTOM_BAREMETAL_GOLD``.
    """
    total = constants.TOTAL_LIMIT
    if resource_class is None:
        return (total,)
    return total, f'{total}:{normalize_class(resource_class)}'


def read_sizes(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes in a request spec, except in its extra specs.

    :param spec: request spec of the API; memory and swap in MiB, disks in
        GiB. An absent size and None count as 0.
    """
    memory, vcpus, root, ephemeral, swap = (spec.get(key) or 0 for key in (
        'memory_mb', 'vcpus', 'root_gb', 'ephemeral_gb', 'swap'))
    return {'memory_mb': memory, 'vcpus': vcpus,
            'local_gb': root + ephemeral + math.ceil(swap / 1024)}


def sum_amounts(spec: Mapping[str, Any]) -> collections.Counter[str]:
    """Return the resources that Nova requests from Placement for a request.

    The rules are those of ``ResourceRequest`` in
    https://opendev.org/openstack/nova/src/branch/master/nova/scheduler/utils.py
    Amounts of one class are summed over all groups, and replace that size of
    the flavor. A malformed amount is skipped, because the flavor of a running
    server may have one.

    :param spec: see ``read_sizes``.
    :returns: amounts above 0 by resource class.
    """
    amounts: collections.Counter[str] = collections.Counter()
    for key, text in spec.get('extra_specs', {}).items():
        match = _KEY.fullmatch(key)
        with contextlib.suppress(ValueError):
            if match and int(text) >= 0:
                amounts[match[1]] += int(text)
    sizes = read_sizes(spec)
    return +collections.Counter(
        {**{name: sizes[size] for name, size in SIZES.items()}, **amounts})
