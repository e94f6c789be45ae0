# SPDX-License-Identifier: Apache-2.0
"""The questions that a request asks of a node: no database, no client.

Each constraint asks one question about one node, and has a name that an
operator can read.
"""

import dataclasses
import re
import typing

from oslo_utils import specs_matcher
from oslo_utils import strutils

from ironic_reservations import text
from ironic_reservations.matching import node as nodes

# What specs_matcher evaluates as a Python literal: a number or a word, and a
# flat list of such. Anything deeper is kept from the parser, whose recursion
# would overflow the small stacks of Ironic's API threads. All quantifiers are
# possessive, so that no value makes the match go back and take quadratic
# time, in which the other threads of the process would stand still.
_ITEM = r"""(?:'[^'\\]*+'|"[^"\\]*+"|-?+[\w.]++)"""
_LITERALS = {
    '<range-in>': re.compile(r'\s*+-?+[\w.]++\s*+', re.ASCII),
    '<all-in>': re.compile(
        rf'\s*+\[\s*+(?:{_ITEM}(?:\s*+,\s*+{_ITEM})*+(?:\s*+,)?+)?+\s*+\]\s*+',
        re.ASCII)}


# What Nova's own Ironic driver says of each host, which flavors of other
# clouds require as capabilities.
_HOST_ATTRIBUTES = {'hypervisor_type': 'ironic', 'hypervisor_version': '1'}


def satisfies(expression, value):
    """Whether a capability's value is what an Expression wants.

    A value that the operator cannot read does not match.
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
        return specs_matcher.op_methods[expression.operator](
            value, *expression.operands)
    except (ValueError, TypeError, SyntaxError, OverflowError):
        return False


@dataclasses.dataclass(frozen=True)
class Constraint:
    """One question about a node.

    :param name: what an explanation calls it.
    :param allows: a function that is true when the node satisfies it: of the
        Node, or else of the value of one of its capabilities, None where it
        states none.
    :param capability: the name of that capability. Two nodes that differ in
        nothing but the values of other capabilities give the same answer.
    """

    name: str
    allows: typing.Callable
    capability: str | None = None

    def satisfied(self, node):
        """Whether a Node satisfies it."""
        return self.allows(
            node if self.capability is None
            else node.capabilities.get(self.capability))


def of_request(spec):
    """All that a request spec asks of a node.

    :param spec: a RequestSpec.
    :returns: list of Constraint, always in the same order.
    """
    questions = []

    def ask(name, allows):
        questions.append(Constraint(text.escape_controls(name), allows))

    for candidates in spec.candidate_nodes:
        ask('candidate_nodes',
            lambda node, these=candidates: (node.uuid in these
                                            or node.name in these))
    if spec.conductor_group is not None:
        ask(f'conductor_group={spec.conductor_group}',
            lambda node: node.conductor_group.lower() == spec.conductor_group)
    if spec.shard is not None:
        ask(f'shard={spec.shard}', lambda node: node.shard == spec.shard)
    if spec.resource_class is not None:
        ask(f'resource_class={spec.resource_class}',
            lambda node: nodes.has_class(node.resource_class,
                                         spec.resource_class))
    if spec.hypervisor_types - {'baremetal', 'ironic'}:
        ask('hypervisor_type=' + ','.join(sorted(spec.hypervisor_types)),
            lambda node: False)
    for name, amount in spec.resources:
        ask(f'resources:{name}={amount}', lambda node: False)
    for name, allows in _of_sizes(spec):
        ask(name, allows)
    for trait in sorted(spec.required_traits):
        ask(f'trait:{trait}=required',
            lambda node, trait=trait: trait in node.traits)
    for trait in sorted(spec.forbidden_traits):
        ask(f'trait:{trait}=forbidden',
            lambda node, trait=trait: trait not in node.traits)
    return questions + _of_capabilities(spec)


def _of_sizes(spec):
    """Yield names and functions of a node for the sizes."""
    for name, size in spec.sizes:
        if spec.exact:
            yield (f'{name}={size}', lambda node, name=name, size=size:
                   node.sizes[name] == size)
        else:
            yield (f'{name}>={size}', lambda node, name=name, size=size:
                   node.sizes[name] >= size)
    for name, size in spec.minimums:
        # Nodes need not state their sizes: inspection, for example, does not.
        yield (f'image:{name}>={size}', lambda node, name=name, size=size:
               not node.sizes[name] or node.sizes[name] >= size)


def _of_capabilities(spec):
    questions = []
    for name, wanted in spec.capabilities:
        label = text.escape_controls(f'capabilities:{name}{wanted or ""}')
        if name == 'cpu_arch':
            # It is a property of its own.
            questions.append(Constraint(label, lambda node, wanted=wanted:
                                    satisfies(wanted, node.cpu_arch)))
        elif name in nodes.SIZES:
            questions += _of_size_as_capability(label, name, wanted)
        else:
            default = _HOST_ATTRIBUTES.get(name)
            questions.append(Constraint(
                label, lambda value, wanted=wanted, default=default:
                satisfies(wanted, default if value is None
                          else nodes.readable(value)), name))
    if spec.boot_mode is not None:
        questions.append(Constraint(
            text.escape_controls(f'capabilities:boot_mode={spec.boot_mode}'),
            lambda value: value is None or value.lower() == spec.boot_mode,
            'boot_mode'))
    return questions


def _of_size_as_capability(label, name, wanted):
    """The constraints on a size that is requested as a capability.

    A node may state a capability of that name, whose value then counts. As
    the nodes of a hardware profile group either all state it or none does,
    one constraint is on the node and the other on the capability.
    """
    return [
        Constraint(label, lambda node: name in node.capabilities or satisfies(
            wanted, nodes.as_text(node.sizes[name]))),
        Constraint(label, lambda value: value is None or satisfies(
            wanted, nodes.readable(value)), name)]


@dataclasses.dataclass(frozen=True)
class Ownership:
    """That a node must be a project's own, by its owner or its lessee.

    :param project_id: the project.
    :param or_none: whether a node will do, too, that has neither.
    """

    project_id: str
    or_none: bool = False

    @property
    def constraint(self):
        """The Constraint that it is."""
        return Constraint(
            f'ownership={"project_or_none" if self.or_none else "project"}',
            self.allows)

    def allows(self, node):
        """Whether a node may be used."""
        return self.covers(node.owner, node.lessee)

    def covers(self, owner, lessee):
        """Whether a node of this owner and this lessee may be used."""
        return nodes.visible(owner, lessee, self.project_id, self.or_none)
