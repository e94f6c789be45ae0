# SPDX-License-Identifier: Apache-2.0
"""The constraints of a request.

Each constraint checks one property of a node, and has a name that explanations
show to operators.
"""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import re

from oslo_utils import specs_matcher
from oslo_utils import strutils

from ironic_reservations import values
from ironic_reservations.matching import nodes
from ironic_reservations.matching import operators
from ironic_reservations.matching import request_spec
from ironic_reservations.shared import resources
from ironic_reservations.shared import text

# Values that specs_matcher evaluates as a Python literal: a number or a word,
# and a flat list of these. Nested values are rejected, because the recursive
# parser would overflow the small stacks of Ironic's API threads. All
# quantifiers are possessive. Otherwise backtracking could take quadratic time,
# and block the other threads of the process.
_ITEM = r"""(?:'[^'\\]*+'|"[^"\\]*+"|-?+[\w.]++)"""
_LITERALS = {
    '<range-in>': re.compile(r'\s*+-?+[\w.]++\s*+', re.ASCII),
    '<all-in>': re.compile(
        rf'\s*+\[\s*+(?:{_ITEM}(?:\s*+,\s*+{_ITEM})*+(?:\s*+,)?+)?+\s*+\]\s*+',
        re.ASCII)}


# Attributes that Nova's own Ironic driver reports for every host, and that
# flavors of other clouds require as capabilities.
_HOST_ATTRIBUTES = {'hypervisor_type': 'ironic', 'hypervisor_version': '1'}


def satisfies(expression: operators.Expression | None,
              value: str | None) -> bool:
    """Return whether the value of a capability satisfies an expression.

    A value that the operator cannot parse does not.

    :param expression: None for any value that is not false.
    :param value: None if the node does not have the capability.
    """
    if value is None:
        return False
    if expression is None:
        return strutils.bool_from_string(value, default=True)
    if expression.operator is None:
        return value == expression.text
    literal = _LITERALS.get(expression.operator)
    if literal and not literal.fullmatch(value):
        return False
    try:
        return bool(specs_matcher.op_methods[expression.operator](
            value, *expression.operands))
    except (ValueError, TypeError, SyntaxError, OverflowError):
        return False


@dataclasses.dataclass(frozen=True)
class Constraint:
    """A condition on a node.

    :param name: name in explanations.
    :param allows: function that returns whether a node satisfies it. Its
        argument is the Node or, with ``capability``, the value of that
        capability, which is None if the node does not have it.
    :param capability: name of a capability. The values of other capabilities
        make no difference.
    """

    name: str
    allows: Callable[..., bool]
    capability: str | None = None

    def is_satisfied_by(self, node: nodes.Node) -> bool:
        """Return whether a node satisfies it."""
        return self.allows(
            node if self.capability is None
            else node.capabilities.get(self.capability))

    def list_unmet(self, node: nodes.Node) -> list[str]:
        """Return its name if a node does not satisfy it."""
        return [] if self.is_satisfied_by(node) else [self.name]


@dataclasses.dataclass(frozen=True)
class Dedicated(Constraint):
    """The constraint that the request requires each dedicated trait of a node.

    Explanations name these traits, so it has several names.

    :param find_traits: function that returns such traits of a node.
    """

    find_traits: Callable[[nodes.Node], list[str]] = lambda node: []

    @classmethod
    def from_patterns(cls, patterns: tuple[str, ...],
                      required: frozenset[str]) -> 'Dedicated':
        """Return the constraint.

        :param patterns: traits, or prefixes that end with ``*``.
        :param required: traits that the request requires.
        """
        is_dedicated = re.compile('|'.join(
            re.escape(pattern).replace(r'\*', '.*') for pattern in patterns))

        def find_traits(node: nodes.Node) -> list[str]:
            return sorted(trait for trait in node.traits - required
                          if is_dedicated.fullmatch(trait))
        return cls('dedicated', lambda node: not find_traits(node),
                   find_traits=find_traits)

    def list_unmet(self, node: nodes.Node) -> list[str]:
        """Return names with the traits of a node."""
        return [f'{self.name}:{trait}' for trait in self.find_traits(node)]


def list_constraints(spec: request_spec.RequestSpec) -> list[Constraint]:
    """Return the constraints of a request spec, always in the same order."""
    constraints = []

    def add(name: str, allows: Callable[..., bool]) -> None:
        constraints.append(Constraint(text.escape_controls(name), allows))

    for candidates in spec.candidate_nodes:
        uuids = frozenset(map(str.lower, candidates))
        add('candidate_nodes',
            lambda node, names=candidates, uuids=uuids: (
                str(node.uuid).lower() in uuids or node.name in names))
    if spec.conductor_group is not None:
        add(f'conductor_group={spec.conductor_group}',
            lambda node: node.conductor_group.lower() == spec.conductor_group)
    if spec.shard is not None:
        add(f'shard={spec.shard}', lambda node: node.shard == spec.shard)
    if spec.resource_class is not None:
        add(f'resource_class={spec.resource_class}',
            lambda node: nodes.has_class(node.resource_class,
                                         spec.resource_class))
    if spec.hypervisor_types - {'baremetal', 'ironic'}:
        add('hypervisor_type=' + ','.join(sorted(spec.hypervisor_types)),
            lambda node: False)
    for name, amount in spec.resources:
        add(f'resources:{name}={amount}', lambda node: False)
    for name, allows in _compare_sizes(spec):
        add(name, allows)
    for trait in sorted(spec.required_traits):
        add(f'trait:{trait}=required',
            lambda node, trait=trait: trait in node.traits)
    for trait in sorted(spec.forbidden_traits):
        add(f'trait:{trait}=forbidden',
            lambda node, trait=trait: trait not in node.traits)
    return constraints + _compare_capabilities(spec)


def _compare_sizes(spec: request_spec.RequestSpec) -> Iterator[
        tuple[str, Callable[..., bool]]]:
    """Yield a name, and a function of a node, for each size."""
    for name, size in spec.sizes:
        if spec.exact:
            yield (f'{name}={size}', lambda node, name=name, size=size:
                   node.sizes[name] == size)
        else:
            yield (f'{name}>={size}', lambda node, name=name, size=size:
                   node.sizes[name] >= size)
    for name, size in spec.minimums:
        # Nodes need not have sizes; inspection, for example, may not set them.
        yield (f'image:{name}>={size}', lambda node, name=name, size=size:
               not node.sizes[name] or node.sizes[name] >= size)


def _compare_capabilities(spec: request_spec.RequestSpec) -> list[Constraint]:
    constraints = []
    for name, expression in spec.capabilities:
        label = text.escape_controls(f'capabilities:{name}{expression or ""}')
        if name == 'cpu_arch':
            # The architecture is a property, not a capability.
            constraints.append(Constraint(
                label, lambda node, expression=expression:
                satisfies(expression, node.cpu_arch)))
        elif name in nodes.SIZES:
            constraints += _compare_size_as_capability(label, name, expression)
        else:
            default = _HOST_ATTRIBUTES.get(name)
            constraints.append(Constraint(
                label, lambda value, expression=expression, default=default:
                satisfies(expression, default if value is None
                          else nodes.drop_long_value(value)), name))
    if spec.boot_mode is not None:
        constraints.append(Constraint(
            text.escape_controls(f'capabilities:boot_mode={spec.boot_mode}'),
            lambda value: value is None or value.lower() == spec.boot_mode,
            'boot_mode'))
    return constraints


def _compare_size_as_capability(
        label: str, name: str, expression: operators.Expression | None
        ) -> list[Constraint]:
    """Return the constraints on a size that is requested as a capability.

    If a node has a capability of that name, its value counts, otherwise the
    size. Either all nodes of a profile group have it or none, so one
    constraint is on the node and the other on the capability.
    """
    return [
        Constraint(label, lambda node: name in node.capabilities or satisfies(
            expression, nodes.format_size(node.sizes[name]))),
        Constraint(label, lambda value: value is None or satisfies(
            expression, nodes.drop_long_value(value)), name)]


def make_lessee(project_id: str) -> Constraint:
    """Return the constraint that no other project leases the node."""
    return Constraint('lessee',
                      lambda node: node.lessee in (None, project_id))


def make_quota(name: str) -> Constraint:
    """Return the constraint that a node does not count against a limit.

    :param name: see ``resources.limit_names``.
    """
    return Constraint(
        f'quota:{name}', lambda node:
        name not in resources.limit_names(node.resource_class))


def make_ownership(ownership: values.Ownership) -> Constraint:
    """Return the constraint that a node is one of those of an ownership."""
    return Constraint(
        f'ownership={ownership.kind}',
        lambda node: ownership.covers(*node.projects))


def make_pool(project_id: str | None) -> Constraint:
    """Return the constraint that a node is in no pool of another project."""
    return Constraint(
        'pool', lambda node: node.pool_project_id in (None, project_id))
