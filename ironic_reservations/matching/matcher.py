# SPDX-License-Identifier: Apache-2.0
"""Does a node satisfy a request, how well, and if not, why: a pure value."""

import collections
import dataclasses
import functools
import itertools

from ironic_reservations.matching import constraints
from ironic_reservations.matching import group_policy
from ironic_reservations.matching import node as nodes
from ironic_reservations.matching import request_spec


@dataclasses.dataclass(frozen=True)
class Matcher:
    """What a request wants of a node, and for whom: pure, and hashable.

    :param spec: RequestSpec.
    :param restricted_to: the project to which the caller is bound, who may
        then use only the nodes that it owns or leases; None for a caller who
        may use all nodes.
    :param ownership: constraints.Ownership, for a caller who may use all
        nodes and wants only some; else None.
    :param used_up: names of what the caller's project may have no more of:
        see ``counted_as``.
    :param policy: group_policy.Policy where the node is to be one of a group
        that has a policy; else None.
    """

    spec: request_spec.RequestSpec
    restricted_to: str | None = None
    ownership: constraints.Ownership | None = None
    used_up: frozenset[str] = frozenset()
    policy: group_policy.Policy | None = None

    @functools.cached_property
    def constraints(self):
        """All that the request asks of a node: see the module of that name."""
        return constraints.of_kind(self.spec) + constraints.of_capabilities(
            self.spec) + [
            (each.name, each.allows)
            for each in (self.ownership, self.policy) if each is not None
        ] + self._of_quota

    @functools.cached_property
    def _of_quota(self):
        """Constraints that exclude classes whose quota is used up."""
        return [(f'quota:{name}', lambda node, name=name:
                 name not in nodes.counted_as(node.resource_class))
                for name in sorted(self.used_up)]

    @functools.cached_property
    def _capabilities(self):
        """Names of the capabilities asked for."""
        names = {name for name, _ in self.spec.capabilities}
        return names | {'boot_mode'} if self.spec.boot_mode else names

    def visible(self, node):
        """Whether the caller may use a node, and may know of it."""
        return nodes.visible(node.owner, node.lessee, self.restricted_to)

    def matches(self, node):
        """Whether a node satisfies all that the request asks for."""
        for _, satisfied in self.constraints:
            if not satisfied(node):
                return False
        return True

    @functools.cached_property
    def _of_kinds(self):
        """The constraints that profiles of a kind satisfy alike."""
        return [('', self.visible), *constraints.of_kind(self.spec)] + [
            (each.name, each.allows) for each in (self.ownership,) if each
        ] + self._of_quota

    @functools.cached_property
    def _of_profiles(self):
        """The others."""
        return constraints.of_capabilities(self.spec) + [
            (each.name, each.allows) for each in (self.policy,) if each]

    def matching_kinds(self, fleet):
        """The profiles whose nodes the caller may use and that match.

        Constraint by constraint, because the first ones leave few.

        :param fleet: count.Fleet.
        :returns: list of lists: see count.Fleet.kinds.
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
        if self.policy is None:
            return alone
        return (*self.policy.rank(node), *alone,
                *self.policy.rank_among_equals(node))

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
            if reason == nodes.CLAIMABLE:
                # A request for a free node is not told which may be claimed.
                reason = nodes.RESERVED
            if unmet or reason:
                eliminated[unmet[0] if unmet else reason] += count
            else:
                matching += count
            if len(unmet) == 1 and not reason:
                nearest[unmet[0]] += count
        order = [*names, *sorted(eliminated.keys() - set(names),
                                 key=nodes.REASONS.index)]
        best = max(names, key=lambda name: nearest[name], default=None)
        return {
            'considered': considered,
            'eliminated': [{'by': name, 'nodes': eliminated[name]}
                           for name in order if eliminated[name]],
            'nearest': ({'by': best, 'nodes': matching + nearest[best]}
                        if nearest[best] else None),
        }
