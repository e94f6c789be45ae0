# SPDX-License-Identifier: Apache-2.0
"""Reads the extra specs of a flavor: resources, traits and our own keys."""

import collections
from collections.abc import Mapping
import dataclasses
import re

import os_resource_classes as orc

from ironic_reservations import exception
from ironic_reservations.shared import constants
from ironic_reservations.shared import resources
from ironic_reservations.shared import spelling

#: The largest number that a request may contain, and that Ironic's ids reach.
MAX_INT = 2 ** 31 - 1

#: The prefix of our own keys.
_OURS = 'reservations:'

#: Keys without a variable part that are compared with nodes.
_COMPARED = ('cpu_arch', 'reservations:candidate_nodes',
             'reservations:candidates', 'reservations:match')

# Nova's syntax: "resources", "resources1", "resources_NET" ... All groups are
# for the same node, because a bare metal node is one provider.
_GROUP = r'(?:[a-zA-Z0-9_-]{1,64})?'
RESOURCES = re.compile(rf'resources{_GROUP}:(.*)', re.DOTALL)
_TRAIT = re.compile(rf'(?:trait{_GROUP}|reservations:trait):(.*)', re.DOTALL)
_CAPABILITY = re.compile('capabilities:.+', re.DOTALL)
_TRAIT_NAME = re.compile(r'[A-Z0-9_]{1,255}')
# Prefixes of custom and standard traits.
_TRAIT_PREFIXES = ('CUSTOM_', 'COMPUTE_', 'HW_', 'MISC_', 'OWNER_', 'STORAGE_')
_CUSTOM_CLASS = re.compile(rf'{orc.CUSTOM_NAMESPACE}[A-Z0-9_]{{1,248}}')


@dataclasses.dataclass(frozen=True)
class Resources:
    """The sums of the ``resources:`` keys over all groups.

    :param classes: custom resource classes, each with the amount 1.
    :param sizes: amounts by the names of sizes. 0: the size is not compared.
    :param others: standard classes with an amount above 0. No node has them,
        so such a request matches no node.
    """

    classes: frozenset[str]
    sizes: dict[str, int]
    others: tuple[tuple[str, int], ...]


def read_resources(specs: Mapping[str, str]) -> Resources:
    """Return the resources in extra specs.

    :raises: InvalidInput.
    """
    amounts: collections.Counter[str] = collections.Counter()
    fields: dict[str, str] = {}
    for key, text in specs.items():
        match = RESOURCES.fullmatch(key)
        if match and not resources.is_blazar_class(match[1]):
            fields[match[1]] = f'extra_specs.{key}'
            amounts[match[1]] += _parse_amount(fields[match[1]], text)
    for name, amount in amounts.items():
        if amount > MAX_INT:
            raise exception.InvalidInput(fields[name],
                                         f'must be at most {MAX_INT}',
                                         got=amount)
        if amount and not _is_class(name):
            raise exception.InvalidInput(
                fields[name], 'must name a standard resource class, or a '
                'custom one in upper case that begins with CUSTOM_' + _hint(
                    name.removeprefix(orc.CUSTOM_NAMESPACE), 'resources:' + (
                        spelling.find_closest(name, orc.STANDARDS)
                        or _normalize_name(name))))
        if amount > 1 and orc.is_custom(name):
            raise exception.InvalidInput(
                fields[name], 'must be 0 or 1, because a node is one unit of '
                              'its class', got=amount)
    return Resources(
        frozenset(name for name, amount in amounts.items()
                  if amount and orc.is_custom(name)),
        {resources.SIZES[name]: amount for name, amount in amounts.items()
         if name in resources.SIZES},
        tuple(sorted((name, amount) for name, amount in amounts.items()
                     if amount and name not in resources.SIZES
                     and not orc.is_custom(name))))


def _parse_amount(field: str, text: str) -> int:
    """Return an amount as Nova reads it."""
    try:
        amount = int(text)
    except ValueError:
        raise exception.InvalidInput(field, 'must be an integer', got=text)
    if amount < 0:
        raise exception.InvalidInput(field, 'must be at least 0', got=text)
    return amount


def _is_class(name: str) -> bool:
    """Return whether a name is valid for a class in Placement."""
    return name in orc.STANDARDS or bool(_CUSTOM_CLASS.fullmatch(name))


def _normalize_name(name: str, prefixes: tuple[str, ...] = (
        orc.CUSTOM_NAMESPACE,)) -> str:
    """Return the name that a malformed class or trait probably means."""
    name = re.sub('[^A-Z0-9]', '_', name.upper())
    return name if name.startswith(prefixes) else orc.CUSTOM_NAMESPACE + name


def _hint(name: str, proposal: str) -> str:
    """Return the end of a message that proposes a name.

    It is empty if the name has neither letters nor digits.
    """
    if not re.search('[a-zA-Z0-9]', name):
        return ''
    return f'; did you mean {proposal}?'


def read_traits(field: str,
                specs: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return each trait with ``required`` or ``forbidden``.

    :param field: field of the request that contains the specs.
    :param specs: extra specs, or the properties of an image.
    :raises: InvalidInput.
    """
    traits = []
    for key, word in specs.items():
        match = _TRAIT.fullmatch(key)
        if not match:
            continue
        name = match[1]
        if not _TRAIT_NAME.fullmatch(name):
            raise exception.InvalidInput(
                f'{field}.{key}', 'must name a trait: A-Z, 0-9 and _'
                + _hint(name, _normalize_name(name, _TRAIT_PREFIXES)))
        if word not in ('required', 'forbidden'):
            raise exception.InvalidInput(
                f'{field}.{key}', 'must be required or forbidden', got=word)
        traits.append((name, word))
    return traits


def is_exact(specs: Mapping[str, str], default: str) -> bool:
    """Return whether the sizes of a node must equal those of the request.

    :param default: ``exact`` or ``at_least``, unless the specs override it.
    :raises: InvalidInput.
    """
    match = specs.get('reservations:match', default)
    if match not in constants.MATCHES:
        raise exception.InvalidInput(
            'extra_specs.reservations:match',
            f'must be one of {", ".join(constants.MATCHES)}', got=match)
    return match == 'exact'


def is_ordered(specs: Mapping[str, str]) -> bool:
    """Return whether candidate nodes are tried in the order given.

    :raises: InvalidInput.
    """
    word = specs.get('reservations:candidates')
    if word not in (None, 'ordered'):
        raise exception.InvalidInput(
            'extra_specs.reservations:candidates', 'must be ordered',
            got=word)
    return word is not None


def list_ignored(specs: Mapping[str, str]) -> tuple[str, ...]:
    """Return the sorted keys that are not compared with nodes.

    :raises: InvalidInput for an unknown key that begins with
        ``reservations:``, because no other service uses such keys.
    """
    return tuple(sorted(key for key, text in specs.items()
                        if not _is_compared(key, text)))


def has_our_prefix(key: str) -> bool:
    """Return whether a key is one of ours, which only extra specs can have."""
    return key.startswith(_OURS)


def check_image(properties: Mapping[str, str]) -> None:
    """Check that the properties of an image are none of our keys.

    :raises: InvalidInput.
    """
    for key in filter(has_our_prefix, properties):
        raise exception.InvalidInput(
            f'image.properties.{key}',
            'is not allowed; only extra specs of a flavor may begin with '
            'reservations:')


def _is_compared(key: str, text: str) -> bool:
    match = RESOURCES.fullmatch(key)
    if match:
        # The amount of an invalid class is 0, as others are refused before.
        return (_is_class(match[1])
                and not resources.is_blazar_class(match[1]))
    if key == 'capabilities':
        return bool(text.strip(', '))
    if (key in _COMPARED or _TRAIT.fullmatch(key)
            or _CAPABILITY.fullmatch(key)):
        return True
    if has_our_prefix(key):
        similar = spelling.find_closest_key(key)
        raise exception.InvalidInput(
            f'extra_specs.{key}',
            'not one of ' + ', '.join(spelling.EXTRA_SPECS)
            + (f'; did you mean {similar}?' if similar else ''))
    return False
