# SPDX-License-Identifier: Apache-2.0
"""Reads the extra specs of a flavor: resources, traits and our own keys."""

import collections
import dataclasses
import re

import os_resource_classes as orc

from ironic_reservations import constants
from ironic_reservations import exception
from ironic_reservations import resources
from ironic_reservations import spelling

#: The largest number that a request may give, as large as Ironic's ids get.
MAX_INT = 2 ** 31 - 1

#: The prefix of our own keys.
_OURS = 'reservations:'

#: Keys without a variable part that are compared with nodes.
_COMPARED = ('cpu_arch', 'reservations:candidate_nodes',
             'reservations:match')

# Nova's syntax: "resources", "resources1", "resources_NET" ... A bare metal
# node is one provider, so all groups mean the same node.
_GROUP = r'(?:[a-zA-Z0-9_-]{1,64})?'
RESOURCES = re.compile(rf'resources{_GROUP}:(.*)', re.DOTALL)
_TRAIT = re.compile(rf'(?:trait{_GROUP}|reservations:trait):(.*)', re.DOTALL)
_CAPABILITY = re.compile('capabilities:.+', re.DOTALL)
_TRAIT_NAME = re.compile(r'[A-Z0-9_]{1,255}')
# How custom and standard traits begin.
_TRAIT_PREFIXES = ('CUSTOM_', 'COMPUTE_', 'HW_', 'MISC_', 'OWNER_', 'STORAGE_')
_CUSTOM_CLASS = re.compile(rf'{orc.CUSTOM_NAMESPACE}[A-Z0-9_]{{1,248}}')


@dataclasses.dataclass(frozen=True)
class Resources:
    """The sums of the ``resources:`` keys over all groups.

    :param classes: custom resource classes, each of amount 1.
    :param sizes: amounts by the names of sizes. 0: the size is not compared.
    :param others: pairs of a standard class and an amount above 0. A node
        offers none of these, so such a request matches no node.
    """

    classes: frozenset[str]
    sizes: dict[str, int]
    others: tuple[tuple[str, int], ...]


def read_resources(specs):
    """Return the Resources of extra specs.

    :param specs: dict.
    :raises: InvalidInput.
    """
    amounts, fields = collections.Counter(), {}
    for key, text in specs.items():
        match = RESOURCES.fullmatch(key)
        if match:
            fields[match[1]] = f'extra_specs.{key}'
            amounts[match[1]] += _amount(fields[match[1]], text)
    for name, amount in amounts.items():
        if amount > MAX_INT:
            raise exception.InvalidInput(fields[name],
                                         f'must be at most {MAX_INT}')
        if amount and not _is_class(name):
            raise exception.InvalidInput(
                fields[name], 'must name a standard resource class, or a '
                'custom one in upper case that begins with CUSTOM_' + _hint(
                    name.removeprefix(orc.CUSTOM_NAMESPACE), 'resources:' + (
                        spelling.find_closest(name, orc.STANDARDS)
                        or _normalized(name))))
        if amount > 1 and orc.is_custom(name):
            raise exception.InvalidInput(
                fields[name], 'must be 0 or 1: a node is one unit of its '
                              'class')
    return Resources(
        frozenset(name for name, amount in amounts.items()
                  if amount and orc.is_custom(name)),
        {resources.SIZES[name]: amount for name, amount in amounts.items()
         if name in resources.SIZES},
        tuple(sorted((name, amount) for name, amount in amounts.items()
                     if amount and name not in resources.SIZES
                     and not orc.is_custom(name))))


def _amount(field, text):
    """Return an amount as Nova reads it."""
    try:
        amount = int(text)
    except ValueError:
        raise exception.InvalidInput(field, 'must be a whole number')
    if amount < 0:
        raise exception.InvalidInput(field, 'must be at least 0')
    return amount


def _is_class(name):
    """Whether Placement knows such a class, or may know it."""
    return name in orc.STANDARDS or bool(_CUSTOM_CLASS.fullmatch(name))


def _normalized(name, prefixes=(orc.CUSTOM_NAMESPACE,)):
    """Return the name that a malformed class or trait probably means."""
    name = re.sub('[^A-Z0-9]', '_', name.upper())
    return name if name.startswith(prefixes) else orc.CUSTOM_NAMESPACE + name


def _hint(name, proposal):
    """Return the end of a message that proposes a name, if it can be one."""
    if not re.search('[a-zA-Z0-9]', name):
        return ''
    return f'; did you mean {proposal}?'


def read_traits(where, specs):
    """Return pairs of a trait and ``required`` or ``forbidden``, a list.

    :param where: the field of the request that has them.
    :param specs: dict: extra specs, or the properties of an image.
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
                f'{where}.{key}', 'must name a trait: A-Z, 0-9 and _'
                + _hint(name, _normalized(name, _TRAIT_PREFIXES)))
        if word not in ('required', 'forbidden'):
            raise exception.InvalidInput(
                f'{where}.{key}', 'must be required or forbidden')
        traits.append((name, word))
    return traits


def is_exact(specs, default):
    """Whether the sizes of a node must be equal to those of the request.

    :param default: ``exact`` or ``at_least``, for specs that do not say.
    :raises: InvalidInput.
    """
    match = specs.get('reservations:match', default)
    if match not in constants.MATCHES:
        raise exception.InvalidInput(
            'extra_specs.reservations:match',
            f'must be one of {", ".join(constants.MATCHES)}')
    return match == 'exact'


def ignored(specs):
    """Return the keys that are not compared with nodes, a sorted tuple.

    :raises: InvalidInput for an unknown key below ``reservations:``, which
        nobody else could mean anything by.
    """
    return tuple(sorted(key for key, text in specs.items()
                        if not _is_compared(key, text)))


def _is_compared(key, text):
    match = RESOURCES.fullmatch(key)
    if match:
        # Of another class the amount is 0, or the request was refused.
        return _is_class(match[1])
    if key == 'capabilities':
        return bool(text.strip(', '))
    if (key in _COMPARED or _TRAIT.fullmatch(key)
            or _CAPABILITY.fullmatch(key)):
        return True
    if key.startswith(_OURS):
        similar = spelling.find_closest_key(key)
        raise exception.InvalidInput(
            f'extra_specs.{key}',
            'is not allowed; allowed: ' + ', '.join(spelling.EXTRA_SPECS)
            + (f'; did you mean {similar}?' if similar else ''))
    return False
