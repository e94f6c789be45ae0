# SPDX-License-Identifier: Apache-2.0
"""Compares the names in a request with the names of nodes.

The commands and the panels share this module, so it imports nothing of
theirs.
"""

from collections.abc import Iterable
from collections.abc import Iterator
import re
from typing import Any

import os_resource_classes as orc

from ironic_reservations.shared import extra_specs
from ironic_reservations.shared import resources
from ironic_reservations.shared import spelling

#: Kinds of names, and the keys that requests and capacity rows have for them.
KEYS = {'resource class': 'resource_class', 'shard': 'shard',
        'conductor group': 'conductor_group'}

#: Sets of names by kind, such as "resource class".
Names = dict[str, set[str]]

#: A kind, a name that no node has, and the closest name of that kind, if any.
Unknown = tuple[str, str, str | None]

#: Capabilities that every node has: see Node.capabilities in matching.
_IMPLICIT = {'cpu_arch', 'hypervisor_type', 'hypervisor_version',
             'memory_mb', 'vcpus', 'local_gb'}

# A value that is an expression, see oslo_utils.specs_matcher.
_OPERATOR = re.compile(r'\s*(?:<|>|=|!=|s[!=<>])')


def list_requirements(spec: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the kinds and names that a request requires of a node.

    :param spec: body of the request.
    """
    pairs = [(kind, spec[key]) for kind, key in KEYS.items() if spec.get(key)]
    specs = {**spec.get('image', {}).get('properties', {}),
             **spec.get('extra_specs', {})}
    for key, value in specs.items():
        for kind, name, text in extra_specs.read_constraints(key, str(value)):
            if kind == 'resource_class' and text != '0':
                name = key.partition(':')[2]
                pairs += [('resource class', name)] * (
                    not resources.is_blazar_class(name))
            elif kind == 'trait' and text != 'forbidden':
                pairs.append((kind, name))
            elif kind == 'capability':
                pairs += _list_capability(name, (text or '').rstrip())
    return list(dict.fromkeys(pairs))


def list_candidates(spec: dict[str, Any]) -> list[str]:
    """Return the names and UUIDs of candidate nodes in a request."""
    nodes = spec.get('candidate_nodes') or spec.get('extra_specs', {}).get(
        'reservations:candidate_nodes', '').split(',')
    return [node for node in map(str.strip, nodes) if node]


def _list_capability(name: str, value: str) -> Iterator[tuple[str, str]]:
    if name and name not in _IMPLICIT:
        yield 'capability', name
        if value and not _OPERATOR.match(value):
            yield _name_values(name), value


def _name_values(name: str) -> str:
    """Return the kind of the values of a capability."""
    return f'capability {name} with the value'


def collect_names(rows: list[dict[str, Any]]) -> Names:
    """Return the names in capacity rows."""
    names = {kind: {row[key] for row in rows if row[key]}
             for kind, key in KEYS.items()}
    names['trait'] = {trait for row in rows for trait in row['traits']}
    names['capability'] = set()
    for row in rows:
        for name, value in row['capabilities'].items():
            names['capability'].add(name)
            names.setdefault(_name_values(name), set()).add(str(value))
    return names


def find_unknown(pairs: Iterable[tuple[str, str]],
                 names: Names) -> list[Unknown]:
    """Return the names that no node has.

    :param pairs: see ``list_requirements``.
    :param names: see ``collect_names``.
    """
    return [(kind, name, find_closest(kind, name, names[kind]))
            for kind, name in pairs
            if kind in names and fold_name(kind, name) not in {
                fold_name(kind, other) for other in names[kind]}]


def find_closest(kind: str, name: str,
                 candidates: Iterable[str]) -> str | None:
    """Return the closest name of a kind; see ``spelling.find_closest``."""
    similar = spelling.find_closest(name, candidates)
    if similar and kind == 'resource class' and orc.is_custom(name):
        # The name may belong to a key such as "resources:CUSTOM_GOLD", which
        # requires this spelling.
        return resources.normalize_class(similar)
    return similar


def fold_name(kind: str, name: str) -> str:
    """Return a name without the differences that the API ignores."""
    if kind == 'resource class':
        return resources.normalize_class(name)
    return name.strip().lower() if kind == 'conductor group' else name
