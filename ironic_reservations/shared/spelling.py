# SPDX-License-Identifier: Apache-2.0
"""Finds the existing name that is closest to a misspelt one.

The API, the commands, the panels and the virt driver share this module, so it
imports nothing of theirs.
"""

from collections.abc import Iterable
import difflib
import re

#: Extra specs of our own. T is a trait.
EXTRA_SPECS = ('reservations:candidate_nodes', 'reservations:candidates',
               'reservations:match', 'reservations:trait:T')

#: Keys of our own in the metadata of a server.
METADATA = ('reservations:candidate_nodes', 'reservations:claim',
            'reservations:trait:T')

#: The part before the colon, in extra specs that are compared with nodes.
_NAMESPACES = ('capabilities', 'reservations', 'resources', 'trait')

#: Extra specs without a colon that are compared with nodes.
_PLAIN = ('capabilities', 'cpu_arch')

# Nova's numbered groups: "resources1", "trait_NET" ...
_GROUP = re.compile(r'(?:resources|trait)[\w-]*', re.ASCII)

#: How similar two names must be, from 0 to 1.
_SIMILAR = 0.8


def find_closest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that a misspelt name most probably means.

    Case, punctuation and the prefix ``CUSTOM_`` make no difference.

    :returns: None if the name is a candidate, or resembles none.
    """
    candidates = set(candidates)
    if name in candidates:
        return None
    # Sorted, so that the choice between equally similar names is stable.
    by_spelling = {_simplify(candidate): candidate
                   for candidate in sorted(candidates, key=str)}
    simple = _simplify(name)
    similar = difflib.get_close_matches(simple, by_spelling, 1, _SIMILAR) or [
        # In a short name, two letters that are swapped are a quarter of it.
        candidate for candidate in by_spelling
        if sorted(candidate) == sorted(simple)]
    return by_spelling[similar[0]] if similar else None


def find_closest_key(key: str,
                     our_keys: Iterable[str] = EXTRA_SPECS) -> str | None:
    """Return the extra spec that a misspelt one most probably means.

    :param our_keys: ``EXTRA_SPECS``, or ``METADATA`` for a key of a server's
        metadata.
    :returns: ``capabilities:rack`` for ``capabilites:rack``; None if the key
        resembles none that we read.
    """
    namespace, colon, name = key.partition(':')
    if not colon:
        return find_closest(key, _PLAIN)
    if not _GROUP.fullmatch(namespace):
        namespace = find_closest(namespace, _NAMESPACES) or (
            namespace if namespace in _NAMESPACES else '')
    if not namespace or not name:
        return None
    similar = (_find_our_key(name, our_keys) if namespace == 'reservations'
               else f'{namespace}:{name}')
    return None if similar == key else similar


def add_hint(key: str, our_keys: Iterable[str] = EXTRA_SPECS) -> str:
    """Return a key, followed by the closest one if there is one.

    :param our_keys: see ``find_closest_key``.
    """
    similar = find_closest_key(key, our_keys)
    return f'{key} (did you mean {similar}?)' if similar else key


def _find_our_key(name: str, our_keys: Iterable[str]) -> str | None:
    """Return the key below ``reservations:`` that a name probably means."""
    word, _colon, rest = name.partition(':')
    kinds = {key.split(':')[1] for key in our_keys}
    kind = word if word in kinds else find_closest(word, kinds)
    if kind is None:
        return None
    if kind == 'trait':
        return f'reservations:trait:{rest or "T"}'
    return f'reservations:{kind}'


def _simplify(name: str) -> str:
    return re.sub('[^A-Z0-9]', '_', name.upper()).removeprefix('CUSTOM_')
