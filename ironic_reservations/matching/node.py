# SPDX-License-Identifier: Apache-2.0
"""What matching knows of a node, and what a request may be told of it."""

import dataclasses
import functools
import json
import re

from ironic_reservations import resources
from ironic_reservations.matching import request_spec

#: Why a node that satisfies a request cannot be held. An explanation tells
#: them in this order, and for each node only the first that applies.
ALLOCATED, CLAIMABLE, RESERVED, LOCKED = (
    'allocated', 'claimable', 'reserved', 'locked')
REASONS = (ALLOCATED, CLAIMABLE, RESERVED, 'maintenance', 'not available',
           'retired', 'power state unknown', 'child node', 'health',
           'deferred action', LOCKED)

#: The names of a node's sizes: memory in MiB, CPUs, disk in GiB.
SIZES = ('memory_mb', 'vcpus', 'local_gb')

#: The most characters of a capability's value that is read, as many as a
#: request may ask for. A node's owner may state any number.
LONGEST_VALUE = 1024


_NUMBER = re.compile(r'\s*\d{1,18}(?:\.\d+)?(?:[eE][+-]?\d{1,2})?\s*',
                     re.ASCII)


@dataclasses.dataclass(frozen=True)
class Node:
    """What matching knows of a node, as Ironic has it.

    :param id: primary key in Ironic's database.
    :param properties: the JSON text of the column, unparsed, or None.
    :param traits: names.
    :param failed: whether something has gone wrong on it lately, or its
        hardware is not well.
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
    failed: bool = False

    @functools.cached_property
    def _properties(self):
        try:
            properties = json.loads(self.properties or '{}')
        except (ValueError, RecursionError):
            return {}
        return properties if isinstance(properties, dict) else {}

    @functools.cached_property
    def sizes(self):
        """``memory_mb`` (MiB), ``vcpus`` and ``local_gb`` (GiB)."""
        return {name: _number(self._properties.get(key)) for name, key in
                zip(SIZES, ('memory_mb', 'cpus', 'local_gb'), strict=True)}

    @functools.cached_property
    def capabilities(self):
        """Names and values; a name without a value is ``true``."""
        given = self._properties.get('capabilities')
        return capabilities(given) if isinstance(given, str) else {}

    @functools.cached_property
    def cpu_arch(self):
        """Canonical name, or None when the node states none."""
        given = self._properties.get('cpu_arch')
        if not isinstance(given, str) or not given.strip():
            return None
        return request_spec.canonical_architecture(given)

    def capability(self, name):
        """A capability's value, or None when the node states none.

        One that is longer than ``LONGEST_VALUE`` counts as none.
        """
        return readable(self.cpu_arch if name == 'cpu_arch'
                        else self.capabilities.get(name))


def capabilities(text):
    """Names and values of capabilities such as ``a,b:c``, a dict.

    :param text: None for none. A name without a value is ``true``.
    """
    pairs = (item.partition(':') for item in (text or '').split(','))
    return {name.strip(): value.strip() if colon else 'true'
            for name, colon, value in pairs if name.strip()}


def readable(value):
    """A capability's value, or None where it is too long to be read."""
    return None if value is None or len(value) > LONGEST_VALUE else value


def as_text(size):
    """Return a size as a capability would state it: 4096, not 4096.0."""
    return str(int(size) if size == int(size) else size)


def _number(value):
    """A size as Ironic or an old row may hold it; 0 when it is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return 0
    digits = str(value)
    if not _NUMBER.fullmatch(digits):
        return 0
    number = int(digits) if digits.strip().isdecimal() else float(digits)
    # Databases lose precision above this, so larger values count as 0.
    return number if number < 10 ** 18 else 0


def visible(owner, lessee, restricted_to, unowned=False):
    """Whether a node is owned or leased by a project; for None all are.

    :param unowned: whether one that has neither owner nor lessee will do, too.
    """
    return (restricted_to is None or restricted_to in (owner, lessee)
            or unowned and owner is None and lessee is None)


def has_class(resource_class, normalized):
    """Whether a node's class is the normalized one."""
    return (resource_class is not None
            and resources.normalize_class(resource_class) == normalized)
