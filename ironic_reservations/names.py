# SPDX-License-Identifier: Apache-2.0
"""Compares the names in a request with those that nodes have.

The commands and the panels share this module, so it imports nothing of
theirs.
"""

import re

import os_resource_classes as orc

from ironic_reservations import resources
from ironic_reservations import spelling

#: Kinds of names, and the keys that requests and capacity rows have for them.
KEYS = {'resource class': 'resource_class', 'shard': 'shard',
        'conductor group': 'conductor_group'}

#: Capabilities that need not be stated: see Node.capabilities in matching.
_IMPLICIT = {'cpu_arch', 'hypervisor_type', 'hypervisor_version',
             'memory_mb', 'vcpus', 'local_gb'}

# A value that is an expression, see oslo_utils.specs_matcher.
_OPERATOR = re.compile(r'\s*(?:<|>|=|!=|s[!=<>])')


def in_request(spec):
    """Return the names that a node must have, a list of kinds and names.

    :param spec: dict, the body of a request.
    """
    pairs = [(kind, spec[key]) for kind, key in KEYS.items() if spec.get(key)]
    specs = {**spec.get('image', {}).get('properties', {}),
             **spec.get('extra_specs', {})}
    for key, value in specs.items():
        group, _, name = key.removeprefix('reservations:').partition(':')
        if group.startswith('resources') and name.startswith('CUSTOM_'):
            pairs += [('resource class', name)] * (str(value) != '0')
        elif group.startswith('trait'):
            pairs += [('trait', name)] * (value != 'forbidden')
        elif group == 'capabilities':
            texts = ([f'{name}:{value}'] if name
                     else map(str.strip, str(value).split(',')))
            for text in texts:
                pairs += _capability(*text.partition(':')[::2])
    return list(dict.fromkeys(pairs))


def candidates(spec):
    """Return the candidate nodes in a request, a list of names and UUIDs."""
    nodes = spec.get('candidate_nodes') or spec.get('extra_specs', {}).get(
        'reservations:candidate_nodes', '').split(',')
    return [node for node in map(str.strip, nodes) if node]


def _capability(name, value):
    if name and name not in _IMPLICIT:
        yield 'capability', name
        if value and not _OPERATOR.match(value):
            yield _value_of(name), value


def _value_of(name):
    """Return the kind of the values of a capability."""
    return f'capability {name} with the value'


def in_capacity(rows):
    """Return the names that nodes have, a dict of sets by kind.

    :param rows: list of capacity rows, dicts.
    """
    names = {kind: {row[key] for row in rows if row[key]}
             for kind, key in KEYS.items()}
    names['trait'] = {trait for row in rows for trait in row['traits']}
    names['capability'] = set()
    for row in rows:
        for name, value in row['capabilities'].items():
            names['capability'].add(name)
            names.setdefault(_value_of(name), set()).add(str(value))
    return names


def unknown(pairs, names):
    """Return the names that no node has.

    :param pairs: what ``in_request`` returns.
    :param names: what ``in_capacity`` returns.
    :returns: list of tuples of a kind, a name, and the closest name of that
        kind that nodes have, or None.
    """
    return [(kind, name, closest(kind, name, names[kind]))
            for kind, name in pairs
            if kind in names and fold(kind, name) not in {
                fold(kind, other) for other in names[kind]}]


def closest(kind, name, known):
    """Return the closest name of a kind, or None: see ``spelling.closest``."""
    similar = spelling.closest(name, known)
    if similar and kind == 'resource class' and orc.is_custom(name):
        # The name may be of a key such as "resources:CUSTOM_GOLD", which
        # takes no other spelling.
        return resources.normalize_class(similar)
    return similar


def fold(kind, name):
    """Return a name without the differences that the API disregards."""
    if kind == 'resource class':
        return resources.normalize_class(name)
    return name.lower() if kind == 'conductor group' else name
