# SPDX-License-Identifier: Apache-2.0
"""The properties of a node that matching compares."""

import dataclasses
import functools
import json
import re
from typing import Any

from ironic_reservations.matching import request_spec
from ironic_reservations.shared import resources

#: Why a node that satisfies a request cannot be held. An explanation lists
#: them in this order, and counts a node for the first that applies.
ALLOCATED, CLAIMABLE, RESERVED, PREPARED, POOLED, LOCKED = (
    'allocated', 'claimable', 'reserved', 'prepared', 'pool', 'locked')
REASONS = (ALLOCATED, CLAIMABLE, RESERVED, 'maintenance', 'not available',
           'retired', 'power state unknown', 'child node', 'health',
           'deferred action', 'cordoned', PREPARED, POOLED, LOCKED)

#: Why a node cannot be held whose properties Python and the database read
#: differently.
MALFORMED = 'malformed properties'


@dataclasses.dataclass(frozen=True)
class Use:
    """What a request needs nodes for.

    :param exceptions: those of ``REASONS`` that do not prevent it.
    :param pool_project: project of the pool that the nodes are to join; None
        to hold or claim them. A node that another project leases does not
        match.
    """

    exceptions: tuple[str, ...]
    pool_project: str | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why a node cannot be used so: the first that applies counts."""
        return tuple(reason for reason in REASONS
                     if reason not in self.exceptions)


#: Hold free nodes. They may be in a pool.
TO_HOLD = Use((POOLED,))

#: Claim nodes that are reserved. They may have joined a pool since.
TO_CLAIM = Use((CLAIMABLE, RESERVED, PREPARED, POOLED))


def to_join(project_id: str) -> Use:
    """Let nodes join a pool of a project. A conductor may have locked them."""
    return Use((LOCKED,), project_id)


#: The reasons of a node that carries an instance.
WITH_INSTANCE = (ALLOCATED, CLAIMABLE, RESERVED)

#: The names of a node's sizes: memory in MiB, CPUs, disk in GiB.
SIZES = ('memory_mb', 'vcpus', 'local_gb')

#: Maximum length of a capability's value, which is also the limit of requests.
#: Nodes may have longer values.
LONGEST_VALUE = 1024


_NUMBER = re.compile(r'\s*\d{1,18}(?:\.\d+)?(?:[eE][+-]?\d{1,2})?\s*',
                     re.ASCII)


@dataclasses.dataclass(frozen=True)
class Node:
    """The properties of a node that matching compares.

    :param id: primary key in Ironic's database.
    :param properties: JSON text of the column.
    :param pool_project_id: project that has it in a pool, or None.
    :param suspect: whether it should be held after all others: it has a
        planned or open notice, its health is not ``OK``, or a recent
        deployment failed.
    :param health: to show it; no request compares it.
    :param mentions_vif: whether its ports have texts that may name a VIF.
    """

    id: int
    uuid: str
    name: str | None = None
    resource_class: str | None = None
    properties: str | None = None
    traits: frozenset[str] = frozenset()
    conductor_group: str = ''
    shard: str | None = None
    owner: str | None = None
    lessee: str | None = None
    pool_project_id: str | None = None
    suspect: bool = False
    health: str | None = None
    mentions_vif: bool = False

    @property
    def projects(self) -> tuple[str | None, ...]:
        """Return the projects that own it, lease it, and have it in a pool."""
        return self.owner, self.lessee, self.pool_project_id

    @functools.cached_property
    def _properties(self) -> dict[str, Any]:
        try:
            properties = json.loads(self.properties or '{}')
        except (ValueError, RecursionError):
            return {}
        return properties if isinstance(properties, dict) else {}

    @functools.cached_property
    def sizes(self) -> dict[str, int | float]:
        """Return ``memory_mb`` (MiB), ``vcpus`` and ``local_gb`` (GiB)."""
        return {name: _parse_size(self._properties.get(key)) for name, key in
                zip(SIZES, ('memory_mb', 'cpus', 'local_gb'), strict=True)}

    @functools.cached_property
    def capabilities(self) -> dict[str, str]:
        """Return the values of capabilities by name."""
        text = self._properties.get('capabilities')
        return parse_capabilities(text) if isinstance(text, str) else {}

    @functools.cached_property
    def cpu_arch(self) -> str | None:
        """Return the canonical name of the architecture, or None."""
        name = self._properties.get('cpu_arch')
        if not isinstance(name, str) or not name.strip():
            return None
        return request_spec.canonical_architecture(name)

    def capability(self, name: str) -> str | None:
        """Return the value of a capability, or None if there is none.

        A value that is longer than ``LONGEST_VALUE`` is ignored.
        """
        return drop_long_value(self.cpu_arch if name == 'cpu_arch'
                               else self.capabilities.get(name))


def parse_capabilities(text: str | None) -> dict[str, str]:
    """Return the values in a text such as ``a,b:c`` by name.

    A name without a value has the value ``true``.
    """
    pairs = (item.partition(':') for item in (text or '').split(','))
    return {name.strip(): value.strip() if colon else 'true'
            for name, colon, value in pairs if name.strip()}


def drop_long_value(value: str | None) -> str | None:
    """Return the value of a capability, or None if it is too long."""
    return None if value is None or len(value) > LONGEST_VALUE else value


def format_size(size: int | float) -> str:
    """Return a size as the value of a capability: 4096, not 4096.0."""
    return str(int(size) if size == int(size) else size)


def _parse_size(value: Any) -> int | float:
    """Return a size in the properties of a node; 0 if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return 0
    digits = str(value)
    if not _NUMBER.fullmatch(digits):
        return 0
    number = int(digits) if digits.strip().isdecimal() else float(digits)
    # Larger values count as 0, because databases lose precision above this.
    return number if number < 10 ** 18 else 0


def has_class(resource_class: str | None,
              normal_class: str | None) -> bool:
    """Return whether the class of a node is a class in normal form."""
    return (resource_class is not None
            and resources.normalize_class(resource_class) == normal_class)
