# SPDX-License-Identifier: Apache-2.0
"""Parses a request once into a frozen value, the request spec."""

import dataclasses
import json

from oslo_utils import uuidutils

from ironic_reservations import exception
from ironic_reservations import resources
from ironic_reservations.matching import expression
from ironic_reservations.matching import extra_specs

#: The largest number that a request may give.
MAX_INT = extra_specs.MAX_INT

#: Keys of the body that are no part of what is requested: two requests that
#: differ only in these are the same.
ENVELOPE = ('instance_uuid', 'host', 'expires_in', 'project_id', 'user_id',
            'holder', 'claim')

#: The most words in the values of all capabilities that a request asks for,
#: where one without a word counts as one, and the most traits. To parse an
#: expression takes 40 microseconds for each of its words, and each of these is
#: compared with every hardware profile.
MAX_WORDS = 256

#: The most nodes that a request names. Each is several values of a statement,
#: and SQLite limits their number.
MAX_CANDIDATES = 1024

#: What absent and null stand for, where that is not "nothing".
_DEFAULTS = {'ephemeral_gb': 0, 'swap': 0, 'rxtx_factor': 1, 'min_ram': 0,
             'min_disk': 0, 'extra_specs': {}, 'image': {}, 'properties': {},
             'ownership': 'any'}

# Nova's canonical names (nova.objects.fields.Architecture.canonicalize).
_ARCHITECTURES = {'amd64': 'x86_64', 'i386': 'i686', 'i486': 'i686',
                  'i586': 'i686', 'x86_32': 'i686', 'x86_32p': 'i686'}


def canonical_architecture(name):
    """The name Nova uses for an architecture: ``amd64`` is ``x86_64``."""
    name = name.strip().lower()
    return _ARCHITECTURES.get(name, name)


@dataclasses.dataclass(frozen=True)
class RequestSpec:
    """What a request requires of a node.

    :param sizes: ``memory_mb`` (MiB), ``vcpus``, ``local_gb`` (GiB) that are
        compared, each above 0: those of the flavor, unless a ``resources:``
        key overrides them.
    :param minimums: ``memory_mb`` and ``local_gb`` that the image needs.
    :param exact: whether ``sizes`` must be equal, rather than at least that.
    :param resource_class: normalized, or None for any.
    :param resources: pairs of a standard resource class and an amount, which
        no node offers.
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
    :param ignored: keys of extra specs that are not compared with nodes.
    """

    sizes: tuple[tuple[str, int], ...]
    minimums: tuple[tuple[str, int], ...]
    exact: bool
    resource_class: str | None
    resources: tuple[tuple[str, int], ...]
    required_traits: frozenset[str]
    forbidden_traits: frozenset[str]
    capabilities: tuple[tuple[str, expression.Expression | None], ...]
    boot_mode: str | None
    hypervisor_types: frozenset[str]
    conductor_group: str | None
    shard: str | None
    candidate_nodes: tuple[frozenset[str], ...]
    canonical: str
    ignored: tuple[str, ...] = dataclasses.field(compare=False)

    @classmethod
    def from_dict(cls, body, match='at_least', required=True):
        """Parse a body that satisfies ``api.bodies.REQUEST_SPEC``.

        :param body: the request, a dict.
        :param match: ``exact`` or ``at_least``, for a request that does not
            say (``[reservations] match``).
        :param required: whether the request must constrain the node.
        :raises: InvalidInput, naming the field.
        """
        wanted = _identity(body)
        specs = wanted.get('extra_specs', {})
        image = wanted.get('image', {})
        properties = image.get('properties', {})
        ignored = extra_specs.ignored(specs)
        exact = extra_specs.is_exact(specs, match)
        overrides = extra_specs.read_resources(specs)
        traits = _all_traits(specs, properties)
        spec = cls(
            sizes=tuple(_compared_sizes(wanted, overrides.sizes, exact)),
            minimums=tuple(
                (name, image[key]) for name, key in
                (('memory_mb', 'min_ram'), ('local_gb', 'min_disk'))
                if key in image and overrides.sizes.get(name) != 0),
            exact=exact,
            resource_class=_resource_class(wanted, overrides.classes),
            resources=overrides.others,
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
            candidate_nodes=tuple(_candidates(wanted, specs)),
            canonical=json.dumps(wanted, sort_keys=True),
            ignored=ignored,
        )
        if required and not spec._constrains:
            raise exception.InvalidInput(
                'body', 'must constrain the node: by a size above 0, a '
                        'resource class, a trait, a capability, candidate '
                        'nodes, or a property of the image that is compared')
        return spec

    @property
    def _constrains(self):
        return bool(
            self.sizes or self.resource_class or self.resources
            or self.required_traits or self.forbidden_traits
            or self.capabilities or self.boot_mode is not None
            or self.hypervisor_types or self.candidate_nodes)

    @classmethod
    def adopted(cls, body):
        """Parse the request of a server that has its node already.

        Extra specs that a hold would refuse are ignored, because a running
        server may have them. They stay part of the identity.

        :raises: InvalidInput for anything but an extra spec.
        """
        specs = {key: value for key, value in
                 (body.get('extra_specs') or {}).items() if value is not None}
        refused = {key for key, value in specs.items()
                   if not cls._is_accepted({'extra_specs': {key: value}})}
        accepted = specs.keys() - refused
        # Each key alone is valid, but two of them may contradict each other.
        if not cls._is_accepted({
                'resource_class': body.get('resource_class'),
                'extra_specs': {key: specs[key] for key in accepted}}):
            refused |= {key for key in accepted
                        if extra_specs.RESOURCES.fullmatch(key)}
        if not cls._is_accepted({
                'image': body.get('image'),
                'extra_specs': {key: specs[key]
                                for key in specs.keys() - refused}}):
            refused = specs.keys()
        spec = cls.from_dict({**body, 'extra_specs': {
            key: value for key, value in specs.items() if key not in refused}},
            required=False)
        return dataclasses.replace(
            spec, canonical=json.dumps(_identity(body), sort_keys=True),
            ignored=tuple(sorted({*spec.ignored, *refused})))

    @classmethod
    def _is_accepted(cls, body):
        try:
            cls.from_dict(body, required=False)
        except exception.InvalidInput:
            return False
        return True


def _identity(body):
    """Return what makes a request the same as another one, a dict."""
    return _canonical({key: value for key, value in body.items()
                       if key not in ENVELOPE})


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


def _lower(text):
    return None if text is None else text.strip().lower()


def _compared_sizes(wanted, overrides, exact):
    """Yield the sizes to compare with a node: name, amount above 0.

    :param overrides: see extra_specs.Resources.
    """
    for name, size in resources.read_sizes(wanted).items():
        override = overrides.get(name)
        # With "exact" an override of 0 does not count.
        if override or override == 0 and not exact:
            size = override
        if size:
            yield name, size


def _resource_class(wanted, classes):
    """Return the one resource class that is requested, or None for any."""
    if 'resource_class' in wanted:
        classes = classes | {resources.normalize_class(
            wanted['resource_class'])}
    if len(classes) > 1:
        raise exception.InvalidInput(
            'resource_class', 'must be one class, not '
                              + ' and '.join(sorted(classes)))
    return next(iter(classes), None)


def _all_traits(specs, properties):
    """Those of flavor and image: a frozenset by ``required``/``forbidden``."""
    traits = (extra_specs.read_traits('extra_specs', specs)
              + extra_specs.read_traits('image.properties', properties))
    if len(traits) > MAX_WORDS:
        raise exception.InvalidInput(
            'extra_specs', f'must have at most {MAX_WORDS} traits')
    return {wanted: frozenset(name for name, word in traits if word == wanted)
            for wanted in ('required', 'forbidden')}


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
    return expression.Expression.parse(field, text)


def _candidates(wanted, specs):
    """Yield the sets of nodes that the node must be in."""
    for field, names in (
            ('candidate_nodes', wanted.get('candidate_nodes')),
            ('extra_specs.reservations:candidate_nodes', _split(
                specs.get('reservations:candidate_nodes')))):
        if names is None:
            continue
        nodes = frozenset(
            name.lower() if uuidutils.is_uuid_like(name) else name
            for name in map(str.strip, names) if name)
        if not nodes:
            raise exception.InvalidInput(field, 'must name a node')
        yield nodes


def _split(text):
    return None if text is None else text.split(',')
