# SPDX-License-Identifier: Apache-2.0
"""Does this node satisfy the request, and how well: no database, no client.

``constraints`` is the whole of matching: each asks one question about one
node, by a name that an operator can read. A ``Matcher`` carries them through
a request, together with the project to which the caller is bound.
"""

import collections
import dataclasses
import functools
import itertools
import json
import re

from oslo_utils import specs_matcher
from oslo_utils import strutils

from ironic_reservations import placing
from ironic_reservations import request_spec
from ironic_reservations import text

#: Why a node that satisfies a request cannot be held. An explanation tells
#: them in this order, and for each node only the first that applies.
CLAIMABLE, RESERVED, LOCKED = 'claimable', 'reserved', 'locked'
REASONS = ('allocated', CLAIMABLE, RESERVED, 'maintenance', 'not available',
           'retired', 'power state unknown', 'child node', LOCKED)

#: What the unified limits of Keystone call the reservations of a project.
TOTAL = 'baremetal_reservations'

_NUMBER = re.compile(r'\s*\d{1,18}(?:\.\d+)?(?:[eE][+-]?\d{1,2})?\s*',
                     re.ASCII)

#: The most characters of a capability's value that is read, as many as a
#: request may ask for. A node's owner may state any number.
LONGEST_VALUE = 1024

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


@dataclasses.dataclass(frozen=True)
class Node:
    """What matching knows of a node, as Ironic has it.

    :param id: primary key in Ironic's database.
    :param properties: the JSON text of the column, unparsed, or None.
    :param traits: names.
    :param failed: whether something has gone wrong on it lately.
    """

    id: int
    uuid: str
    name: str | None = None
    resource_class: str | None = None
    properties: str | None = None
    traits: frozenset[str] = frozenset()
    conductor_group: str = ''
    shard: str | None = None
    owner: str | None = None
    lessee: str | None = None
    failed: bool = False

    @functools.cached_property
    def _properties(self):
        try:
            properties = json.loads(self.properties or '{}')
        except (ValueError, RecursionError):
            return {}
        return properties if isinstance(properties, dict) else {}

    @functools.cached_property
    def sizes(self):
        """``memory_mb`` (MiB), ``vcpus`` and ``local_gb`` (GiB)."""
        return {name: _number(self._properties.get(key)) for name, key in
                (('memory_mb', 'memory_mb'), ('vcpus', 'cpus'),
                 ('local_gb', 'local_gb'))}

    @functools.cached_property
    def capabilities(self):
        """Names and values; a name without a value is ``true``."""
        given = self._properties.get('capabilities')
        if not isinstance(given, str):
            return {}
        pairs = (item.partition(':') for item in given.split(','))
        return {name.strip(): value.strip() if colon else 'true'
                for name, colon, value in pairs if name.strip()}

    @functools.cached_property
    def cpu_arch(self):
        """Canonical name, or None when the node states none."""
        given = self._properties.get('cpu_arch')
        if not isinstance(given, str) or not given.strip():
            return None
        return request_spec.canonical_architecture(given)

    def capability(self, name):
        """A capability's value, or None when the node states none.

        One that is longer than ``LONGEST_VALUE`` counts as none.
        """
        value = (self.cpu_arch if name == 'cpu_arch'
                 else self.capabilities.get(name))
        return (None if value is None or len(value) > LONGEST_VALUE
                else value)


def _number(value):
    """A size as Ironic or an old row may hold it; 0 when it is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return 0
    digits = str(value)
    if not _NUMBER.fullmatch(digits):
        return 0
    number = int(digits) if digits.strip().isdecimal() else float(digits)
    # Beyond that, databases write a number otherwise than they read it.
    return number if number < 10 ** 18 else 0


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


def constraints(spec):
    """The questions that a request asks of a node, in a stable order.

    :param spec: a RequestSpec.
    :returns: list of pairs: a name such as ``trait:CUSTOM_GPU=required``, and
        a function of a Node that is true when the node satisfies it.
    """
    return _of_all_but_capabilities(spec) + _of_capabilities(spec)


def _of_all_but_capabilities(spec):
    asked = []

    def ask(name, satisfied):
        asked.append((text.printable(name), satisfied))

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
            lambda node: has_class(node.resource_class, spec.resource_class))
    if spec.hypervisor_types - {'baremetal', 'ironic'}:
        ask('hypervisor_type=' + ','.join(sorted(spec.hypervisor_types)),
            lambda node: False)
    for name, size in spec.sizes:
        if spec.exact:
            ask(f'{name}={size}',
                lambda node, name=name, size=size: node.sizes[name] == size)
        else:
            ask(f'{name}>={size}',
                lambda node, name=name, size=size: node.sizes[name] >= size)
    for name, size in spec.minimums:
        ask(f'image:{name}>={size}',
            lambda node, name=name, size=size: node.sizes[name] >= size)
    for trait in sorted(spec.required_traits):
        ask(f'trait:{trait}=required',
            lambda node, trait=trait: trait in node.traits)
    for trait in sorted(spec.forbidden_traits):
        ask(f'trait:{trait}=forbidden',
            lambda node, trait=trait: trait not in node.traits)
    return asked


def _of_capabilities(spec):
    asked = [(text.printable(f'capabilities:{name}{wanted or ""}'),
              lambda node, name=name, wanted=wanted: satisfies(
                  wanted, node.capability(name)))
             for name, wanted in spec.capabilities]
    if spec.boot_mode is not None:
        asked.append((
            text.printable(f'capabilities:boot_mode={spec.boot_mode}'),
            lambda node: node.capabilities.get(
                'boot_mode', spec.boot_mode).lower() == spec.boot_mode))
    return asked


def limited(resource_class):
    """What limits of a project a reservation of a node counts against.

    :param resource_class: of the node, in any spelling, or None.
    :returns: tuple of names, such as ``baremetal_reservations`` and
        ``baremetal_reservations:CUSTOM_BAREMETAL_GOLD``.
    """
    if resource_class is None:
        return (TOTAL,)
    normalized = request_spec.normalize_resource_class(resource_class)
    return (TOTAL, f'{TOTAL}:{normalized}')


def has_class(resource_class, normalized):
    """Whether a node's class is the normalized one."""
    return (resource_class is not None and
            request_spec.normalize_resource_class(resource_class)
            == normalized)


@dataclasses.dataclass(frozen=True)
class Ownership:
    """That a node must be a project's own, by its owner or its lessee.

    :param project_id: the project.
    :param or_none: whether a node will do, too, that has neither.
    """

    project_id: str
    or_none: bool = False

    @property
    def name(self):
        """What an explanation calls it."""
        return f'ownership={"project_or_none" if self.or_none else "project"}'

    def allows(self, node):
        """Whether a node may be used."""
        return (visible(node.owner, node.lessee, self.project_id)
                or self.or_none and node.owner is None
                and node.lessee is None)


@dataclasses.dataclass(frozen=True)
class Matcher:
    """What a request wants of a node, and for whom: pure, and hashable.

    :param spec: RequestSpec.
    :param restricted_to: the project to which the caller is bound, who may
        then use only the nodes that it owns or leases; None for a caller who
        may use all nodes.
    :param ownership: Ownership, for a caller who may use all nodes and wants
        but some; else None.
    :param used_up: names of what the caller's project may have no more of:
        see ``limited``.
    :param placing: placing.Placing where the node is to be one of a group
        that has a policy; else None.
    """

    spec: request_spec.RequestSpec
    restricted_to: str | None = None
    ownership: Ownership | None = None
    used_up: frozenset[str] = frozenset()
    placing: 'placing.Placing | None' = None

    @functools.cached_property
    def constraints(self):
        """See the function of that name."""
        return constraints(self.spec) + [
            (each.name, each.allows)
            for each in (self.ownership, self.placing) if each is not None
        ] + self._of_quota

    @functools.cached_property
    def _of_quota(self):
        """Those that pass over what the project may have no more of."""
        return [(f'quota:{name}', lambda node, name=name: name not in limited(
            node.resource_class)) for name in sorted(self.used_up)]

    @functools.cached_property
    def _capabilities(self):
        """Names of the capabilities asked for."""
        names = {name for name, _ in self.spec.capabilities}
        return names | {'boot_mode'} if self.spec.boot_mode else names

    def visible(self, node):
        """Whether the caller may use a node, and may know of it."""
        return visible(node.owner, node.lessee, self.restricted_to)

    def matches(self, node):
        """Whether a node satisfies all that the request asks for."""
        for _, satisfied in self.constraints:
            if not satisfied(node):
                return False
        return True

    @functools.cached_property
    def _of_kinds(self):
        """The constraints that profiles of a kind satisfy alike."""
        return [('', self.visible), *_of_all_but_capabilities(self.spec)] + [
            (each.name, each.allows) for each in (self.ownership,) if each
        ] + self._of_quota

    @functools.cached_property
    def _of_profiles(self):
        """The others."""
        return _of_capabilities(self.spec) + [
            (each.name, each.allows) for each in (self.placing,) if each]

    def matching_kinds(self, fleet):
        """The profiles whose nodes the caller may use and that match.

        Constraint by constraint, because the first ones leave few.

        :param fleet: fleet.Fleet.
        :returns: list of lists: see fleet.Fleet.kinds.
        """
        kinds = fleet.kinds
        for _, satisfied in self._of_kinds:
            kinds = [kind for kind in kinds if satisfied(kind[0].node)]
        for _, satisfied in self._of_profiles:
            kinds = [[each for each in kind if satisfied(each.node)]
                     for kind in kinds]
        return list(filter(None, kinds))

    def matching(self, fleet):
        """The same in one list."""
        return list(itertools.chain(*self.matching_kinds(fleet)))

    def fit(self, node):
        """How badly a node fits: of several, the one with the least is best.

        :returns: tuple of the sum of (have - asked) / asked over the sizes
            asked for, the number of traits and capabilities that were not
            asked for, and the node's memory, CPUs and disk; before and after
            those, how well it suits the group, if it is for one.
        """
        return self.fit_in_group(node, self.fit_alone(node))

    def fit_alone(self, node):
        """The same without a group: equal for all profiles of a kind."""
        oversize = sum((node.sizes[name] - size) / size
                       for name, size in self.spec.sizes if size)
        unasked = (len(node.traits - self.spec.required_traits)
                   + len(node.capabilities.keys() - self._capabilities))
        return (oversize, unasked, *node.sizes.values())

    def fit_in_group(self, node, alone):
        """The ``fit``, of what ``fit_alone`` returns."""
        if self.placing is None:
            return alone
        return (*self.placing.rank(node), *alone,
                *self.placing.rank_among_equals(node))

    def explain(self, groups):
        """Why nodes do not match, as data for people and programs.

        :param groups: triples of a Node, why nodes like it cannot be held
            (one of ``REASONS``; None when they can), and how many they are.
            Groups that the caller may not see are left out.
        :returns: dict of ``considered``, ``eliminated`` (each node counted
            once, for the first constraint that it does not satisfy or else
            for why it cannot be held) and ``nearest`` (the one constraint
            without which most nodes could be held, and how many these would
            be in all; None when no more could).
        """
        names = list(dict.fromkeys(name for name, _ in self.constraints))
        eliminated, nearest = collections.Counter(), collections.Counter()
        considered = matching = 0
        last, unmet = None, []
        for node, reason, count in groups:
            if not self.visible(node):
                continue
            considered += count
            # A profile is one group after the other, for each reason.
            if node is not last:
                last, unmet = node, list(dict.fromkeys(
                    name for name, satisfied in self.constraints
                    if not satisfied(node)))
            if reason == CLAIMABLE:
                # Whoever asks for a free node is not told who may claim it.
                reason = RESERVED
            if unmet or reason:
                eliminated[unmet[0] if unmet else reason] += count
            else:
                matching += count
            if len(unmet) == 1 and not reason:
                nearest[unmet[0]] += count
        order = [*names, *sorted(eliminated.keys() - set(names),
                                 key=REASONS.index)]
        best = max(names, key=lambda name: nearest[name], default=None)
        return {
            'considered': considered,
            'eliminated': [{'by': name, 'nodes': eliminated[name]}
                           for name in order if eliminated[name]],
            'nearest': ({'by': best, 'nodes': matching + nearest[best]}
                        if nearest[best] else None),
        }


def visible(owner, lessee, restricted_to):
    """Whether a node is owned or leased by a project; for None all are."""
    return restricted_to is None or restricted_to in (owner, lessee)
