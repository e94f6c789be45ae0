# SPDX-License-Identifier: Apache-2.0
"""What is wanted: the request spec, parsed once into a frozen value."""

import dataclasses
import functools
import json
import math
import re
import threading

import os_resource_classes as orc
from oslo_utils import specs_matcher
from oslo_utils import uuidutils
import pyparsing

from ironic_reservations import exception

#: The largest number that a request may give, as large as Ironic's ids get.
MAX_INT = 2 ** 31 - 1

#: Keys of the body that say for whom and how long, not what: two requests
#: that differ only in these ask for the same node.
ENVELOPE = ('instance_uuid', 'host', 'expires_in', 'project_id', 'user_id',
            'holder', 'claim')

#: One of these says what is wanted; a body with none of them would match
#: any node of the fleet.
WANTED = ('memory_mb', 'vcpus', 'root_gb', 'resource_class',
          'candidate_nodes', 'extra_specs')

MATCH_WORDS = ('exact', 'at_least')

#: The most words in the values of all capabilities that a request asks for,
#: where one without a word counts as one, and the most traits. To parse an
#: expression takes 40 microseconds for each of its words, and each of these is
#: asked of every hardware profile.
MAX_WORDS = 256

#: The most nodes that a request names. Each is several values of a statement,
#: of which SQLite takes but so many.
MAX_CANDIDATES = 1024

#: What absent and null stand for, where that is not "nothing".
_DEFAULTS = {'ephemeral_gb': 0, 'swap': 0, 'rxtx_factor': 1, 'min_ram': 0,
             'min_disk': 0, 'extra_specs': {}, 'image': {}, 'properties': {},
             'ownership': 'any'}

# Nova's syntax: "resources", "resources1", "resources_NET" ... A bare metal
# node is one provider, so all groups mean the same node.
_GROUP = r'(?:[a-zA-Z0-9_-]{1,64})?'
_RESOURCES = re.compile(rf'resources{_GROUP}:(.+)')
_TRAIT = re.compile(rf'(?:trait{_GROUP}|reservations:trait):(.*)')
_TRAIT_NAME = re.compile(r'[A-Z0-9_]{1,255}')
_SIZES = {orc.MEMORY_MB: 'memory_mb', orc.VCPU: 'vcpus',
          orc.DISK_GB: 'local_gb'}

_OPERATOR = re.compile(
    r'\s*(?:s?(?:[<>!=]=|[<>])|=|<(?:in|or|all-in|range-in)>)')
# What the grammar of expressions skips, one character after the other, for
# each of its alternatives.
_BLANKS = re.compile(r'[ \t\r\n]++')
_NUMERIC = ('=', '==', '!=', '<', '<=', '>', '>=')

# Nova's canonical names (nova.objects.fields.Architecture.canonicalize).
_ARCHITECTURES = {'amd64': 'x86_64', 'i386': 'i686', 'i486': 'i686',
                  'i586': 'i686', 'x86_32': 'i686', 'x86_32p': 'i686'}


def canonical_architecture(name):
    """The name Nova uses for an architecture: ``amd64`` is ``x86_64``."""
    name = name.strip().lower()
    return _ARCHITECTURES.get(name, name)


@functools.lru_cache(maxsize=1024)
def normalize_resource_class(name):
    """A node's resource class as Placement knows it.

    ``baremetal.gold`` is ``CUSTOM_BAREMETAL_GOLD``, as in Nova's Ironic
    driver; a name that is already normal stays itself.
    """
    if name in orc.STANDARDS or name.startswith(orc.CUSTOM_NAMESPACE):
        return name
    return orc.normalize_name(name)


class _Grammar(threading.local):
    """The grammar of expressions; a parser of it is not thread-safe."""

    def __init__(self):
        self.parse = specs_matcher.make_grammar().parse_string


_grammar = _Grammar()


@dataclasses.dataclass(frozen=True)
class Expression:
    """A wanted value: plain, or an operator of ``specs_matcher``.

    :param text: as the flavor has it, ``uefi`` or ``>= 4``.
    :param operator: the operator, or None for a plain value.
    :param operands: what stands behind the operator.
    """

    text: str
    operator: str | None = None
    operands: tuple[str, ...] = ()

    def __str__(self):
        return f' {self.text}' if self.operator else f'={self.text}'

    # Flavors are few, and to parse an expression takes long.
    @classmethod
    @functools.lru_cache(maxsize=1024)
    def parse(cls, field, text):
        """Read an expression.

        A value that does not begin with an operator is plain, spaces
        included; one that does must be understood to its end.

        :raises: InvalidInput when an operator's operands cannot be read.
        """
        if not _OPERATOR.match(text):
            return cls(text.strip())
        try:
            operator, *operands = _grammar.parse(
                _BLANKS.sub(' ', text), parse_all=True)
            if operator in _NUMERIC:
                float(operands[0])
            elif operator == '<range-in>':
                specs_matcher.op_methods[operator]('0', *operands)
        except (pyparsing.ParseException, ValueError, TypeError):
            raise exception.InvalidInput(
                field, f'must be a value or an expression such as ">= 4", '
                       f'"<in> word" or "<or> a <or> b", not "{text}"')
        return cls(text.strip(), operator, tuple(operands))


@dataclasses.dataclass(frozen=True)
class RequestSpec:
    """What is wanted of a node.

    :param sizes: ``memory_mb`` (MiB), ``vcpus``, ``local_gb`` (GiB) that the
        flavor gives, without those a ``resources:…=0`` override skips
        (``exact`` compares them all the same).
    :param minimums: ``memory_mb`` and ``local_gb`` that the image needs.
    :param exact: whether ``sizes`` must be equal, rather than at least that.
    :param resource_class: normalized, or None for any.
    :param capabilities: pairs of a name and its Expression; None for a name
        that must be there and not false. ``cpu_arch`` is among them, in
        canonical names, wherever it was asked for.
    :param boot_mode: of the image, lower case, or None.
    :param hypervisor_types: of the image, lower case.
    :param conductor_group: lower case; ``""`` is the default group and None
        any.
    :param candidate_nodes: sets of UUIDs and names; the node must be in each.
    :param canonical: the request spec's identity (``ENVELOPE`` left out) as
        JSON: null is absent is the default, 1 is 1.0.
    """

    sizes: tuple[tuple[str, int], ...]
    minimums: tuple[tuple[str, int], ...]
    exact: bool
    resource_class: str | None
    required_traits: frozenset[str]
    forbidden_traits: frozenset[str]
    capabilities: tuple[tuple[str, Expression | None], ...]
    boot_mode: str | None
    hypervisor_types: frozenset[str]
    conductor_group: str | None
    shard: str | None
    candidate_nodes: tuple[frozenset[str], ...]
    canonical: str

    @classmethod
    def from_dict(cls, body, match='at_least', found=False):
        """Parse a body that satisfies ``api.bodies.REQUEST_SPEC``.

        :param body: the request, a dict.
        :param match: ``exact`` or ``at_least``, for a request that does not
            say (``[reservations] match``).
        :param found: whether the node is found already, so that nothing need
            be said of it.
        :raises: InvalidInput, naming the field.
        """
        wanted = _canonical({key: value for key, value in body.items()
                             if key not in ENVELOPE})
        if not found and not any(
                wanted.get(key) is not None for key in WANTED):
            raise exception.InvalidInput(
                'body', 'must say what is wanted with one of '
                        + ', '.join(WANTED))
        specs = wanted.get('extra_specs', {})
        image = wanted.get('image', {})
        properties = image.get('properties', {})
        exact = _is_exact(specs, match)
        resource_class, skipped = _resources(wanted, specs)
        traits = _all_traits(specs, properties)
        return cls(
            sizes=tuple((name, size) for name, size in _sizes(wanted)
                        if exact or name not in skipped),
            minimums=tuple(
                (name, image[key]) for name, key in
                (('memory_mb', 'min_ram'), ('local_gb', 'min_disk'))
                if key in image),
            exact=exact,
            resource_class=resource_class,
            required_traits=traits['required'],
            forbidden_traits=traits['forbidden'],
            capabilities=_capabilities(specs, properties),
            boot_mode=_lower(properties.get('hw_firmware_type')),
            hypervisor_types=frozenset(
                _lower(properties[key])
                for key in ('img_hv_type', 'hypervisor_type')
                if key in properties),
            conductor_group=_lower(wanted.get('conductor_group')),
            shard=wanted.get('shard'),
            candidate_nodes=_candidates(wanted, specs),
            canonical=json.dumps(wanted, sort_keys=True),
        )


def _canonical(value):
    """One spelling for requests that mean the same."""
    if isinstance(value, dict):
        items = {key: _canonical(item) for key, item in value.items()}
        return {key: item for key, item in items.items()
                if item is not None and item != _DEFAULTS.get(key)}
    if isinstance(value, list):
        return sorted({_canonical(item) for item in value})
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _is_exact(specs, match):
    """Whether the sizes must be equal, by the flavor or else by ``match``."""
    match = specs.get('reservations:match', match)
    if match not in MATCH_WORDS:
        raise exception.InvalidInput(
            'extra_specs.reservations:match',
            f'must be one of {", ".join(MATCH_WORDS)}')
    return match == 'exact'


def _lower(text):
    return None if text is None else text.strip().lower()


def _sizes(wanted):
    """The sizes that the request gives: name, amount."""
    for name in ('memory_mb', 'vcpus'):
        if name in wanted:
            yield name, wanted[name]
    if wanted.keys() & {'root_gb', 'ephemeral_gb', 'swap'}:
        yield 'local_gb', (wanted.get('root_gb', 0)
                           + wanted.get('ephemeral_gb', 0)
                           + math.ceil(wanted.get('swap', 0) / 1024))


def _resources(wanted, specs):
    """The one resource class asked for, and the sizes not to compare."""
    classes, skipped = set(), set()
    if 'resource_class' in wanted:
        classes.add(normalize_resource_class(wanted['resource_class']))
    for key, amount in specs.items():
        found = _RESOURCES.fullmatch(key)
        if not found:
            continue
        name, field = found[1], f'extra_specs.{key}'
        if not amount.isascii() or not amount.isdecimal():
            raise exception.InvalidInput(field, 'must be a whole number')
        if name.startswith(orc.CUSTOM_NAMESPACE):
            if int(amount) > 1:
                raise exception.InvalidInput(
                    field, 'must be 0 or 1: a node is one unit of its class')
            if int(amount):
                classes.add(name)
        elif name in _SIZES and not int(amount):
            skipped.add(_SIZES[name])
    if len(classes) > 1:
        raise exception.InvalidInput(
            'resource_class', 'must be one class, not '
                              + ' and '.join(sorted(classes)))
    return (classes.pop() if classes else None), skipped


def _all_traits(specs, properties):
    """Those of flavor and image: a frozenset by ``required``/``forbidden``."""
    traits = (_traits('extra_specs', specs)
              + _traits('image.properties', properties))
    if len(traits) > MAX_WORDS:
        raise exception.InvalidInput(
            'extra_specs', f'must have at most {MAX_WORDS} traits')
    return {wanted: frozenset(name for name, word in traits if word == wanted)
            for wanted in ('required', 'forbidden')}


def _traits(where, specs):
    """Pairs of a trait and ``required`` or ``forbidden``."""
    traits = []
    for key, word in specs.items():
        found = _TRAIT.fullmatch(key)
        if not found:
            continue
        if not _TRAIT_NAME.fullmatch(found[1]):
            raise exception.InvalidInput(
                f'{where}.{key}', 'must name a trait: A-Z, 0-9 and _')
        if word not in ('required', 'forbidden'):
            raise exception.InvalidInput(
                f'{where}.{key}', 'must be required or forbidden')
        traits.append((found[1], word))
    return traits


def _capabilities(specs, properties):
    """Pairs of a capability and its Expression, None for a bare name."""
    texts = list(_capability_texts(specs, properties))
    if sum(len((text or '').split()) or 1
           for _, _, text in texts) > MAX_WORDS:
        raise exception.InvalidInput(
            'extra_specs',
            f'must have at most {MAX_WORDS} words in its capabilities')
    return tuple((name, None if text is None else _capability(
        field, name, text)) for field, name, text in texts)


def _capability_texts(specs, properties):
    """Triples of a field, a capability and its value, None without one."""
    field = 'extra_specs.capabilities'
    for item in specs.get('capabilities', '').split(','):
        name, colon, value = item.partition(':')
        if name.strip():
            yield field, name.strip(), value if colon else None
        elif item.strip():
            raise exception.InvalidInput(
                field, f'must be names or name:value pairs, not "{item}"')
    for key, value in specs.items():
        prefix, _, name = key.partition(':')
        if prefix == 'capabilities' and name:
            yield f'extra_specs.{key}', name, value
    for field, value in (
            ('extra_specs.cpu_arch', specs.get('cpu_arch')),
            ('image.properties.hw_architecture',
             properties.get('hw_architecture'))):
        if value is not None:
            yield field, 'cpu_arch', value


def _capability(field, name, text):
    if name == 'cpu_arch':
        text = ' '.join(map(canonical_architecture, text.split()))
    return Expression.parse(field, text)


def _candidates(wanted, specs):
    """The sets of nodes that are asked for."""
    candidates = []
    if 'candidate_nodes' in wanted:
        candidates.append(wanted['candidate_nodes'])
    if 'reservations:candidate_nodes' in specs:
        candidates.append(specs['reservations:candidate_nodes'].split(','))
    return tuple(
        frozenset(name.lower() if uuidutils.is_uuid_like(name) else name
                  for name in map(str.strip, names) if name)
        for names in candidates)
