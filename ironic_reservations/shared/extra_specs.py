# SPDX-License-Identifier: Apache-2.0
"""Reads what an extra spec of a flavor constrains.

The commands and the panels share this module, so it imports nothing of theirs.
"""

from collections.abc import Iterator
import re
from typing import NamedTuple

_DISKS = re.compile(r'resources[\w-]*:DISK_GB')

#: Patterns of extra specs that constrain the same as a key of a request spec,
#: by that key.
KEYS = {'memory_mb': re.compile(r'resources[\w-]*:MEMORY_MB'),
        'vcpus': re.compile(r'resources[\w-]*:VCPU'),
        'root_gb': _DISKS, 'ephemeral_gb': _DISKS, 'swap': _DISKS,
        'resource_class': re.compile(r'resources[\w-]*:CUSTOM_.*'),
        'candidate_nodes': re.compile('reservations:candidate_nodes')}

#: Likewise of extra specs that constrain a trait or a capability; the group is
#: its name.
_NAMED = {'trait': re.compile(r'(?:trait[\w-]*|reservations:trait):(.+)'),
          'capability': re.compile(r'(cpu_arch)|capabilities:(.+)')}


class Constraint(NamedTuple):
    """What an extra spec constrains.

    :ivar kind: one of ``KEYS``, ``trait`` or ``capability``.
    :ivar name: name of a trait or a capability, otherwise empty.
    :ivar value: None for a capability that may have any value.
    """

    kind: str
    name: str
    value: str | None


def read_constraints(key: str, value: str) -> Iterator[Constraint]:
    """Yield the constraints of an extra spec; none if it is not compared."""
    if key == 'capabilities':
        # This key may name several capabilities: "a,b:c".
        for item in value.split(','):
            name, colon, text = item.partition(':')
            if name.strip():
                yield Constraint('capability', name.strip(),
                                 text if colon else None)
    for kind, pattern in (KEYS | _NAMED).items():
        if match := pattern.fullmatch(key):
            yield Constraint(kind, ''.join(filter(None, match.groups())),
                             value)
