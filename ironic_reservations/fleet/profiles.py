# SPDX-License-Identifier: Apache-2.0
"""The counted fleet: hardware profiles and profile groups.

A hardware profile is a set of nodes that no request can tell apart. Profiles
that differ only in the values of capabilities form a *profile group*
(``ProfileGroup``). Where a capability names the rack there are thousands of
profiles, but only as many profile groups as models of machines. So a request
is compared with the profile groups first, and with their profiles only in the
capabilities that it requires.

These are values: they never change once they are counted, and they may be
old. That makes no wrong answer, because whether a node is free is decided on
its current row.
"""

import collections
import dataclasses
import functools
import json

from ironic_reservations import matching
from ironic_reservations.matching import group_policy


def classify_node(reason, taken):
    """Return which number of the capacity a node counts to.

    :param reason: why it cannot be held, one of ``matching.REASONS``; None if
        it can.
    :param taken: whether it is being deployed, in use or being torn down.
    :returns: one of ``constants.NODE_STATES``.
    """
    if taken:
        return 'taken'
    if reason in (matching.ALLOCATED, matching.CLAIMABLE, matching.RESERVED):
        return 'reserved'
    return 'free' if reason in (None, matching.LOCKED) else 'out_of_service'


@dataclasses.dataclass(eq=False, slots=True, weakref_slot=True)
class Profile:
    """Nodes that no request can tell apart.

    :param group: the profile group, a ProfileGroup.
    :param text: their capabilities as the database spells them; None where
        they have none.
    :param capabilities: names and values. Profiles may share this dict.
    :param counts: numbers of nodes by why they cannot be held (one of
        ``matching.REASONS``); None: they can.
    :param reserved: how many have a reservation or an allocation, and no
        work has begun on them.
    :param taken: how many are in use, being deployed or being torn down.
    :param first: the least id of these nodes. Nodes that were enrolled
        together are near each other.
    :param last: the greatest id.
    :param held: numbers of nodes by the host that holds them and by ``state``,
        where that was asked for.
    """

    group: 'ProfileGroup'
    text: str | None
    capabilities: dict
    counts: dict
    reserved: int
    taken: int
    first: int
    last: int
    held: dict

    @property
    def is_whole(self):
        """Whether it stands for its whole profile group."""
        return self is self.group.whole

    @property
    def facts(self):
        """The facts that the nodes have in common, as the database has them.

        :returns: dict by the names of ``expressions.PROFILE``; of a whole
            group without ``capabilities``.
        """
        facts = self.group.facts
        return facts if self.is_whole else {**facts, 'capabilities': self.text}

    @property
    def node(self):
        """A matching.Node that stands for each of them."""
        return self.group.node if self.is_whole else self.group.node_with(
            self.text)

    @property
    def total(self):
        return sum(self.counts.values())

    @property
    def free(self):
        """How many nodes could be held, were it not for a passing lock."""
        return self.available + self.counts.get(matching.LOCKED, 0)

    @property
    def claimable(self):
        """How many are held for instances that may take them over."""
        return self.counts.get(matching.CLAIMABLE, 0)

    @property
    def available(self):
        """How many nodes could be held this very moment."""
        return self.counts.get(None, 0)

    def find_domain(self, by):
        """The domain of these nodes: see group_policy."""
        name = group_policy.find_capability(by)
        return (group_policy.find_domain(self.group.node, by) if name is None
                else group_policy.parse_domain(self.capabilities.get(name)))


class ProfileGroup:
    """A profile group: profiles that differ only in values of capabilities.

    :param facts: what their nodes have in common as the database spells it,
        by the names of ``expressions.PROFILE`` without ``capabilities``.
    :param candidate: UUID and name, if it is one node alone.
    :param text: the capabilities of the first profile.
    """

    def __init__(self, facts, candidate, text):
        self.facts, self._candidate = facts, candidate or (None, None)
        self.node = self.node_with(text)
        self.profiles, self._values = [], {}

    def node_with(self, text):
        """A matching.Node with these facts and these capabilities."""
        facts, (uuid, name) = self.facts, self._candidate
        stated = {**facts, 'capabilities': text}
        properties = facts['irregular_properties'] or json.dumps(
            {key: stated[key] for key in ('memory_mb', 'cpus', 'local_gb',
                                          'cpu_arch', 'capabilities')
             if stated[key] is not None})
        return matching.Node(
            id=0, uuid=uuid, name=name, properties=properties,
            traits=frozenset(
                facts['traits'].split(',') if facts['traits'] else ()),
            **{key: facts[key] for key in
               ('resource_class', 'conductor_group', 'shard', 'owner',
                'lessee')})

    def values(self, name):
        """The values that its nodes have of a capability, a set."""
        if name not in self.node.capabilities:
            return {None}
        if name not in self._values:
            self._values[name] = {each.capabilities[name]
                                  for each in self.profiles}
        return self._values[name]

    @functools.cached_property
    def whole(self):
        """All nodes as one Profile, for requests that do not divide them."""
        counts, held = collections.Counter(), collections.Counter()
        for profile in self.profiles:
            counts.update(profile.counts)
            held.update(profile.held)
        return Profile(
            self, None, self.node.capabilities, counts,
            sum(each.reserved for each in self.profiles),
            sum(each.taken for each in self.profiles),
            min(each.first for each in self.profiles),
            max(each.last for each in self.profiles), held)


class Fleet:
    """All profile groups, counted at the same moment.

    :param groups: iterable of ProfileGroup.
    :ivar remembered: what a search has found to match, by the Matcher: see
        ``search``.
    """

    def __init__(self, groups):
        self.groups = tuple(groups)
        self.remembered = {}

    @classmethod
    def from_counts(cls, counted):
        """The fleet of counts.

        :param counted: iterable of counting.NodeCount.
        """
        capabilities = functools.cache(_parse_capabilities)
        groups, rows = {}, collections.defaultdict(list)
        for each in counted:
            names = capabilities(each.capabilities,
                                 each.facts['irregular_properties'])
            key = (*each.facts.values(), each.candidate, frozenset(names))
            if key not in groups:
                groups[key] = ProfileGroup(each.facts, each.candidate,
                                  each.capabilities)
            rows[key, each.capabilities].append(each)
        for (key, text), of_profile in rows.items():
            group = groups[key]
            group.profiles.append(_make_profile(group, text, capabilities(
                text, group.facts['irregular_properties']), of_profile))
        return cls(groups.values())

    @property
    def profiles(self):
        """All profiles of all profile groups, a list."""
        return [profile for group in self.groups for profile in group.profiles]

    @functools.cached_property
    def total(self):
        """How many nodes there are."""
        return sum(group.whole.total for group in self.groups)


def _parse_capabilities(text, irregular):
    return matching.parse_capabilities(text) if irregular is None else (
        matching.Node(0, '', properties=irregular).capabilities)


def _make_profile(group, text, capabilities, rows):
    """A Profile of rows that differ in their reason and host alone."""
    counts, states, held = {}, collections.Counter(), {}
    for row in rows:
        name = classify_node(row.reason, row.taken)
        states[name] += row.nodes
        counts[row.reason] = counts.get(row.reason, 0) + row.nodes
        if row.host is not None:
            held[row.host, name] = held.get((row.host, name), 0) + row.nodes
    return Profile(group, text, capabilities, counts,
                   states['reserved'], states['taken'],
                   min(row.first for row in rows),
                   max(row.last for row in rows), held)
