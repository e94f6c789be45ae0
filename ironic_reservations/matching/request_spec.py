# SPDX-License-Identifier: Apache-2.0
"""Parses a request once into a frozen value, the request spec."""

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import json
from typing import Any

from ironic_reservations import exception
from ironic_reservations.matching import extra_specs
from ironic_reservations.matching import operators
from ironic_reservations.shared import resources
from ironic_reservations.shared import spelling

#: The largest number in a request.
MAX_INT = extra_specs.MAX_INT

#: Maximum number of traits, and of words in the values of all capabilities,
#: where an empty value counts as one. Parsing an expression takes 40
#: microseconds a word, and each is compared with every hardware profile.
MAX_WORDS = 256

#: Maximum number of candidate nodes. Each becomes several parameters of a
#: statement, and SQLite limits their number.
MAX_CANDIDATES = 1024

# Maximum number of ignored keys in an error.
_MAX_IGNORED = 8

#: Default values of keys, which absent keys and null have. Keys of extra specs
#: and of the properties of an image have none.
_DEFAULTS = {'ephemeral_gb': 0, 'swap': 0, 'rxtx_factor': 1, 'min_ram': 0,
             'min_disk': 0, 'extra_specs': {}, 'image': {}, 'properties': {},
             'ownership': 'any'}
_FREE = ('extra_specs', 'properties')

# Nova's canonical names (nova.objects.fields.Architecture.canonicalize).
_ARCHITECTURES = {'amd64': 'x86_64', 'i386': 'i686', 'i486': 'i686',
                  'i586': 'i686', 'x86_32': 'i686', 'x86_32p': 'i686'}


def canonical_architecture(name: str) -> str:
    """Return Nova's name of an architecture, ``x86_64`` for ``amd64``."""
    name = name.strip().lower()
    return _ARCHITECTURES.get(name, name)


@dataclasses.dataclass(frozen=True)
class RequestSpec:
    """The requirements of a request.

    :param sizes: ``memory_mb`` (MiB), ``vcpus``, ``local_gb`` (GiB), each
        above 0. They come from the flavor, unless a ``resources:`` key
        overrides them.
    :param minimums: ``memory_mb`` and ``local_gb`` that the image needs.
    :param exact: whether sizes must be equal instead of at least as large.
    :param resource_class: in normal form; None for any.
    :param resources: standard resource classes with amounts. No node has
        them.
    :param capabilities: names with expressions. None requires that the
        capability exists and is not false. Includes ``cpu_arch``, with
        canonical names, from any field of the request.
    :param boot_mode: boot mode of the image, in lower case.
    :param hypervisor_types: types in the image, in lower case.
    :param conductor_group: in lower case; ``""`` is the default group, None
        any group.
    :param candidate_nodes: sets of UUIDs and names. The node must be in each.
    :param candidate_order: the names and UUIDs of one of these sets in the
        order in which the request tries the nodes; empty to try them by fit.
    :param canonical: JSON text that is equal for equal requests. Absent, null
        and default values are equal, and so are 1 and 1.0.
    :param ignored: keys of extra specs that are not compared with nodes.
    """

    sizes: tuple[tuple[str, int], ...]
    minimums: tuple[tuple[str, int], ...]
    exact: bool
    resource_class: str | None
    resources: tuple[tuple[str, int], ...]
    required_traits: frozenset[str]
    forbidden_traits: frozenset[str]
    capabilities: tuple[tuple[str, operators.Expression | None], ...]
    boot_mode: str | None
    hypervisor_types: frozenset[str]
    conductor_group: str | None
    shard: str | None
    candidate_nodes: tuple[frozenset[str], ...]
    candidate_order: tuple[str, ...]
    canonical: str
    ignored: tuple[str, ...] = dataclasses.field(compare=False)

    @classmethod
    def from_dict(cls, body: Mapping[str, Any], match: str = 'at_least',
                  required: bool = True) -> 'RequestSpec':
        """Parse the keys of ``api.specs.REQUEST_SPEC``.

        :param match: ``exact`` or ``at_least``, unless the request overrides
            it (``[reservations] match``).
        :param required: whether the request must constrain the node.
        :raises: InvalidInput.
        """
        request = _normalize_request(body)
        specs = request.get('extra_specs', {})
        image = request.get('image', {})
        properties = image.get('properties', {})
        ignored = extra_specs.list_ignored(specs)
        extra_specs.check_image(properties)
        exact = extra_specs.is_exact(specs, match)
        overrides = extra_specs.read_resources(specs)
        traits = _read_traits(specs, properties)
        spec = cls(
            sizes=tuple(_list_sizes(request, overrides.sizes, exact)),
            minimums=tuple(
                (name, image[key]) for name, key in
                (('memory_mb', 'min_ram'), ('local_gb', 'min_disk'))
                if key in image and overrides.sizes.get(name) != 0),
            exact=exact,
            resource_class=_find_class(request, overrides.classes),
            resources=overrides.others,
            required_traits=traits['required'],
            forbidden_traits=traits['forbidden'],
            capabilities=_read_capabilities(specs, properties),
            boot_mode=_lower(properties.get('hw_firmware_type')),
            hypervisor_types=frozenset(
                properties[key].strip().lower()
                for key in ('img_hv_type', 'hypervisor_type')
                if key in properties),
            conductor_group=_lower(request.get('conductor_group')),
            shard=request.get('shard'),
            candidate_nodes=tuple(_list_candidates(request, specs)),
            candidate_order=_list_in_order(request, specs),
            canonical=json.dumps(request, sort_keys=True),
            ignored=ignored,
        )
        if required and not spec._is_constraint:
            raise exception.InvalidInput(
                'body', 'must constrain the node: by a size above 0, a '
                        'resource class, a trait, a capability, candidate '
                        'nodes, or a property of the image that is compared'
                        + spec._format_ignored())
        return spec

    def _format_ignored(self) -> str:
        """Return the end of an error that names the first ignored keys."""
        keys = [*map(spelling.add_hint, self.ignored[:_MAX_IGNORED]),
                *['...'] * (len(self.ignored) > _MAX_IGNORED)]
        return f'; not compared with nodes: {", ".join(keys)}' if keys else ''

    @property
    def _is_constraint(self) -> bool:
        return bool(
            self.sizes or self.resource_class or self.resources
            or self.required_traits or self.forbidden_traits
            or self.capabilities or self.boot_mode is not None
            or self.hypervisor_types or self.candidate_nodes)

    @classmethod
    def from_server(cls, body: Mapping[str, Any]) -> 'RequestSpec':
        """Parse the request of a server that has a node already.

        Invalid extra specs are ignored, because a running server may have
        them, and so are properties of the image with our prefix. They remain
        in ``canonical``.

        :raises: InvalidInput for everything else.
        """
        canonical = json.dumps(_normalize_request(body), sort_keys=True)
        image = body.get('image') or {}
        properties = {key: value for key, value in
                      (image.get('properties') or {}).items()
                      if value is not None}
        invalid_properties = set(filter(extra_specs.has_our_prefix,
                                        properties))
        body = {**body, 'image': {**image, 'properties': {
            key: value for key, value in properties.items()
            if key not in invalid_properties}}}
        specs = {key: value for key, value in
                 (body.get('extra_specs') or {}).items() if value is not None}
        invalid_keys = {
            key for key, value in specs.items()
            if not cls._is_valid({'extra_specs': {key: value}})}
        valid_keys = specs.keys() - invalid_keys
        # Keys that are valid on their own may contradict each other.
        if not cls._is_valid({
                'resource_class': body.get('resource_class'),
                'extra_specs': {key: specs[key] for key in valid_keys}}):
            invalid_keys |= {key for key in valid_keys
                             if extra_specs.RESOURCES.fullmatch(key)}
        if not cls._is_valid({
                'image': body.get('image'),
                'extra_specs': {key: specs[key]
                                for key in specs.keys() - invalid_keys}}):
            invalid_keys = set(specs)
        spec = cls.from_dict({**body, 'extra_specs': {
            key: value for key, value in specs.items()
            if key not in invalid_keys}}, required=False)
        return dataclasses.replace(
            spec, canonical=canonical, ignored=tuple(sorted(
                {*spec.ignored, *invalid_keys, *invalid_properties})))

    @classmethod
    def _is_valid(cls, body: Mapping[str, Any]) -> bool:
        try:
            cls.from_dict(body, required=False)
        except exception.InvalidInput:
            return False
        return True


def _normalize_request(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the normal form of a request, see ``_normalize``.

    The order of candidates makes a difference if they are tried in it.
    """
    request: dict[str, Any] = _normalize(body)
    if (request.get('extra_specs', {}).get('reservations:candidates')
            == 'ordered' and 'candidate_nodes' in request):
        request['candidate_nodes'] = list(dict.fromkeys(
            body['candidate_nodes']))
    return request


def _normalize(value: Any, defaults: Mapping[str, Any] = _DEFAULTS) -> Any:
    """Return the normal form of a JSON value, equal for equal requests.

    :param defaults: default values of its keys.
    """
    if isinstance(value, dict):
        items = {key: _normalize(item, {} if key in _FREE else defaults)
                 for key, item in value.items()}
        return {key: item for key, item in items.items()
                if item is not None and item != defaults.get(key)}
    if isinstance(value, list):
        return sorted({_normalize(item) for item in value})
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _lower(text: str | None) -> str | None:
    return None if text is None else text.strip().lower()


def _list_sizes(request: Mapping[str, Any], overrides: Mapping[str, int],
                exact: bool) -> Iterator[tuple[str, int]]:
    """Yield the sizes to compare with a node, each above 0.

    :param overrides: ``extra_specs.Resources.sizes``.
    """
    for name, size in resources.read_sizes(request).items():
        override = overrides.get(name)
        # With "exact", an override of 0 is ignored.
        if override or override == 0 and not exact:
            size = override
        if size:
            yield name, size


def _find_class(request: Mapping[str, Any],
                classes: frozenset[str]) -> str | None:
    """Return the resource class that a request requires, or None for any.

    :param classes: custom resource classes in its extra specs.
    """
    if 'resource_class' in request:
        classes = classes | {resources.normalize_class(
            request['resource_class'])}
    if len(classes) > 1:
        raise exception.InvalidInput(
            'resource_class', 'must be one class; got '
                              + ' and '.join(sorted(classes)))
    return next(iter(classes), None)


def _read_traits(specs: Mapping[str, str], properties: Mapping[str, str]
                 ) -> dict[str, frozenset[str]]:
    """Return the traits of flavor and image by ``required``/``forbidden``."""
    traits = (extra_specs.read_traits('extra_specs', specs)
              + extra_specs.read_traits('image.properties', properties))
    if len(traits) > MAX_WORDS:
        raise exception.InvalidInput(
            'extra_specs', f'must have at most {MAX_WORDS} traits',
            got=len(traits))
    return {key: frozenset(name for name, word in traits if word == key)
            for key in ('required', 'forbidden')}


def _read_capabilities(
        specs: Mapping[str, str], properties: Mapping[str, str]
        ) -> tuple[tuple[str, operators.Expression | None], ...]:
    """Return capabilities with expressions; None for a name without value."""
    texts = list(_list_capabilities(specs, properties))
    count = sum(len((text or '').split()) or 1 for _, _, text in texts)
    if count > MAX_WORDS:
        raise exception.InvalidInput(
            'extra_specs',
            f'must have at most {MAX_WORDS} words in its capabilities',
            got=count)
    return tuple((name, None if text is None else _parse_capability(
        field, name, text)) for field, name, text in texts)


def _list_capabilities(
        specs: Mapping[str, str], properties: Mapping[str, str]
        ) -> Iterator[tuple[str, str, str | None]]:
    """Yield the field, name and value of each capability."""
    field = 'extra_specs.capabilities'
    for item in specs.get('capabilities', '').split(','):
        name, colon, value = item.partition(':')
        if name.strip():
            yield field, name.strip(), value if colon else None
        elif item.strip():
            raise exception.InvalidInput(
                field, 'must be names or name:value pairs', got=item)
    for key, value in specs.items():
        prefix, _, name = key.partition(':')
        if prefix == 'capabilities' and name:
            yield f'extra_specs.{key}', name, value
    for field, architecture in (
            ('extra_specs.cpu_arch', specs.get('cpu_arch')),
            ('image.properties.hw_architecture',
             properties.get('hw_architecture'))):
        if architecture is not None:
            yield field, 'cpu_arch', architecture


def _parse_capability(field: str, name: str,
                      text: str) -> operators.Expression:
    if name == 'cpu_arch':
        text = ' '.join(map(canonical_architecture, text.split()))
    return operators.Expression.parse(field, text)


def _list_candidates(request: Mapping[str, Any], specs: Mapping[str, str]
                     ) -> Iterator[frozenset[str]]:
    """Yield sets of names and UUIDs. The node must be in each of them."""
    for field, names in (
            ('candidate_nodes', request.get('candidate_nodes')),
            ('extra_specs.reservations:candidate_nodes', _split(
                specs.get('reservations:candidate_nodes')))):
        if names is None:
            continue
        nodes = frozenset(filter(None, map(str.strip, names)))
        if not nodes:
            raise exception.InvalidInput(field, 'must name a node', got=names)
        yield nodes


def _list_in_order(request: Mapping[str, Any],
                   specs: Mapping[str, str]) -> tuple[str, ...]:
    """Return the candidates if they are tried in the order given.

    With two lists, that of the request itself counts.
    """
    if not extra_specs.is_ordered(specs):
        return ()
    names = request.get('candidate_nodes') or _split(
        specs.get('reservations:candidate_nodes')) or ()
    return tuple(filter(None, map(str.strip, names)))


def _split(text: str | None) -> list[str] | None:
    return None if text is None else text.split(',')
