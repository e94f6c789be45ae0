# SPDX-License-Identifier: Apache-2.0
"""Finds the known name that is closest to a misspelt one.

The API, the commands, the panels and the virt driver share this module, so it
imports nothing of theirs.
"""

import difflib
import re

#: Keys below ``reservations:`` that an extra spec may have; T is a trait.
EXTRA_SPECS = ('reservations:candidate_nodes', 'reservations:match',
               'reservations:trait:T')

#: The same for the metadata of a server.
METADATA = ('reservations:candidate_nodes', 'reservations:claim',
            'reservations:trait:T')

#: Extra specs that are compared with nodes: the part before the colon.
_NAMESPACES = ('capabilities', 'reservations', 'resources', 'trait')

#: Extra specs without a colon that are compared with nodes.
_PLAIN = ('capabilities', 'cpu_arch')

# Nova's numbered groups: "resources1", "trait_NET" ...
_GROUP = re.compile(r'(?:resources|trait)[\w-]*', re.ASCII)

#: How similar two names must be, from 0 to 1.
_SIMILAR = 0.8


def closest(name, known):
    """Return the known name that a misspelt name most probably means.

    Case, punctuation and the prefix ``CUSTOM_`` make no difference.

    :param known: iterable of names.
    :returns: None if the name is known, or resembles no known one.
    """
    known = set(known)
    if name in known:
        return None
    # Sorted, so that of equally similar names always the same is returned.
    by_spelling = {_simplify(each): each for each in sorted(known, key=str)}
    simple = _simplify(name)
    similar = difflib.get_close_matches(simple, by_spelling, 1, _SIMILAR) or [
        # In a short name, two letters that are swapped are a quarter of it.
        each for each in by_spelling if sorted(each) == sorted(simple)]
    return by_spelling[similar[0]] if similar else None


def closest_key(key, known=EXTRA_SPECS):
    """Return the known extra spec that a misspelt one most probably means.

    :param known: ``EXTRA_SPECS``, or ``METADATA`` for a key of a server's
        metadata.
    :returns: ``capabilities:rack`` for ``capabilites:rack``; None if the key
        resembles no known one.
    """
    namespace, colon, name = key.partition(':')
    if not colon:
        return closest(key, _PLAIN)
    if not _GROUP.fullmatch(namespace):
        namespace = closest(namespace, _NAMESPACES) or (
            namespace if namespace in _NAMESPACES else None)
    if namespace is None or not name:
        return None
    similar = (_closest_of_ours(name, known) if namespace == 'reservations'
               else f'{namespace}:{name}')
    return None if similar == key else similar


def with_hint(key, known=EXTRA_SPECS):
    """Return a key, followed by the closest known one if there is one.

    :param known: see ``closest_key``.
    """
    similar = closest_key(key, known)
    return f'{key} (did you mean {similar}?)' if similar else key


def _closest_of_ours(name, known):
    kind, colon, rest = name.partition(':')
    names = {each.split(':')[1] for each in known}
    kind = kind if kind in names else closest(kind, names)
    if kind is None:
        return None
    if kind == 'trait':
        return f'reservations:trait:{rest or "T"}'
    return f'reservations:{kind}'


def _simplify(name):
    return re.sub('[^A-Z0-9]', '_', name.upper()).removeprefix('CUSTOM_')
