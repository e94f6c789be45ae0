# SPDX-License-Identifier: Apache-2.0
"""Does a node satisfy a request, how well, and if not, why: a pure value."""

import collections
import dataclasses
import functools
import itertools
import operator

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
    :param unowned: whether a caller who is bound to a project may use nodes,
        too, that nobody owns or leases.
    :param ownership: constraints.Ownership, for a caller who wants only some
        of the nodes that it may use; else None.
    :param used_up: set of quota.UsedUp, the limits that the caller's project
        has reached.
    :param policy: group_policy.Policy where the node is to be one of a group
        that has a policy; else None.
    """

    spec: request_spec.RequestSpec
    restricted_to: str | None = None
    unowned: bool = False
    ownership: constraints.Ownership | None = None
    used_up: frozenset = frozenset()
    policy: group_policy.Policy | None = None

    @functools.cached_property
    def constraints(self):
        """All that the request asks of a node, a list of Constraint."""
        asked = constraints.of_request(self.spec)
        if self.ownership is not None:
            asked.append(self.ownership.constraint)
        if self.policy is not None:
            asked.append(self.policy.constraint)
        return asked + [limit.constraint for limit in sorted(self.used_up)]

    @functools.cached_property
    def _of_kinds(self):
        """The functions of those that do not divide a profile group."""
        return [each.allows for each in self.constraints
                if each.capability is None]

    @functools.cached_property
    def _capabilities(self):
        """Names of the capabilities asked for."""
        names = {name for name, _ in self.spec.capabilities}
        return names | {'boot_mode'} if self.spec.boot_mode else names

    def visible(self, node):
        """Whether the caller may use a node, and may know of it."""
        return nodes.visible(node.owner, node.lessee, self.restricted_to,
                             self.unowned)

    @property
    def holds_unowned(self):
        """Whether a caller who is bound to a project wants unowned nodes, too.

        With the ownership ``project`` it sees them, and does not want them.
        """
        return self.unowned and self.ownership is None

    def matches(self, node):
        """Whether a node satisfies all that the request asks for."""
        for each in self.constraints:
            if not each.satisfied(node):
                return False
        return True

    def matching(self, fleet, by=None):
        """What of a fleet the caller may use and matches.

        :param fleet: profiles.Fleet.
        :param by: the domains that matter, of a group; see group_policy.
        :returns: list of pairs: a Kind, and those of its profiles that match.
            Where all of them match, and their domains do not matter, it is
            the one profile of the whole profile group.
        """
        found, asked = [], self._asked()
        for kind in fleet.kinds:
            if self.visible(kind.node) and all(
                    allows(kind.node) for allows in self._of_kinds):
                found += [(kind, _by_domain(kind, profiles, by))
                          for answers, profiles in _parts(kind, asked)
                          if all(answers)]
        return found

    def nearly_matching(self, fleet, by=None):
        """What would match without a single constraint, by its name.

        :param by: see ``matching``.
        :returns: dict of lists of pairs as ``matching`` returns them, in the
            order of the constraints.
        """
        asked = self._asked()
        names = [each.name for each in self.constraints
                 if each.capability is not None]
        nearly = {each.name: [] for each in self.constraints}
        for kind in fleet.kinds:
            if not self.visible(kind.node):
                continue
            unmet = {each.name for each in self.constraints
                     if each.capability is None
                     and not each.allows(kind.node)}
            if len(unmet) > 1:
                continue
            for answers, profiles in _parts(kind, asked):
                only = unmet.union(itertools.compress(
                    names, map(operator.not_, answers)))
                if len(only) == 1:
                    nearly[only.pop()].append(
                        (kind, _by_domain(kind, profiles, by)))
        return nearly

    def _asked(self):
        """The constraints on capabilities: pairs of the name and the answer.
        """
        return [(each.capability, functools.cache(each.allows))
                for each in self.constraints if each.capability is not None]

    def fit(self, node):
        """How badly a node fits: of several, the one with the least is best.

        :returns: tuple of the sum of (have - asked) / asked over the sizes
            asked for, the number of traits and capabilities that were not
            asked for, and the node's memory, CPUs and disk; before and after
            those, how well it suits the group, if it is for one.
        """
        return self.fit_in(
            self.policy and group_policy.domain(node, self.policy.by),
            self.fit_alone(node))

    def fit_alone(self, node):
        """The same without a group: equal for all nodes of a profile group."""
        oversize = sum((node.sizes[name] - size) / size
                       for name, size in self.spec.sizes if size)
        unasked = (len(node.traits - self.spec.required_traits)
                   + len(node.capabilities.keys() - self._capabilities))
        return (oversize, unasked, *node.sizes.values())

    def fit_in(self, domain, alone):
        """The ``fit`` of a node of a domain, from what ``fit_alone`` says."""
        if self.policy is None:
            return alone
        return (*self.policy.rank(domain), *alone,
                *self.policy.rank_among_equals(domain))

    def explain_fleet(self, fleet):
        """Why nodes of a fleet do not match: see ``explain``."""
        asked = self._asked()
        return self.explain(
            (node, reason, number)
            for kind in fleet.kinds if self.visible(kind.node)
            for _, profiles in _parts(kind, asked)
            # Any of them stands for the others.
            for node in [profiles[0].node] for profile in profiles
            for reason, number in profile.counts.items())

    def explain(self, groups):
        """Why nodes do not match, as data for people and programs.

        :param groups: triples of a Node, why nodes like it cannot be held
            (one of ``REASONS``; None when they can), and how many they are.
            Groups that the caller may not see are left out.
        :returns: dict of ``considered``, ``eliminated`` (each node counted
            once, for the first constraint that it does not satisfy or else
            for why it cannot be held) and ``nearest`` (the one constraint
            without which most nodes could be held, and how many these would
            be in all; absent when no more could).
        """
        names = list(dict.fromkeys(each.name for each in self.constraints))
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
                    each.name for each in self.constraints
                    if not each.satisfied(node)))
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
        explanation = {
            'considered': considered,
            'eliminated': [{'by': name, 'nodes': eliminated[name]}
                           for name in order if eliminated[name]]}
        best = max(names, key=lambda name: nearest[name], default=None)
        if nearest[best]:
            explanation['nearest'] = {'by': best,
                                      'nodes': matching + nearest[best]}
        return explanation


def _by_domain(kind, profiles, by):
    """Return profiles, apart where their domains may differ."""
    if profiles == [kind.whole] and group_policy.capability_of(by):
        return kind.profiles
    return profiles


def _parts(kind, asked):
    """The profiles of a profile group, divided by their answers.

    :param asked: see Matcher._asked.
    :returns: pairs of the answers, and a list of profiles: of one alone where
        all of them answer alike, that of the whole profile group.
    """
    parts = collections.defaultdict(list)
    apart = any(len(kind.values(name)) > 1 for name, _ in asked)
    for profile in kind.profiles if apart else [kind.whole]:
        parts[tuple(allows(profile.capabilities.get(name))
                    for name, allows in asked)].append(profile)
    if len(parts) == 1:
        return [(answers, [kind.whole]) for answers in parts]
    return parts.items()
