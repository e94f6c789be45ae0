# SPDX-License-Identifier: Apache-2.0
"""The counted fleet: hardware profiles and profile groups.

A hardware profile is a set of nodes that no request can tell apart. Profiles
that differ only in the values of capabilities form a *profile group*. Where a
capability names the rack, there are thousands of profiles, but only one
profile group for each model of machine. So a request is compared with the
profile groups first, and with their profiles only in the capabilities that it
requires.

A counted fleet never changes, and it may be outdated. That causes no wrong
result, because a hold checks the current row of the node.
"""

import collections
from collections.abc import Iterable
import dataclasses
import functools
import json
from typing import Any

from ironic_reservations import matching
from ironic_reservations.db import counting
from ironic_reservations.matching import group_policy


def classify_node(reason: str | None, taken: int | bool) -> str:
    """Return the number of the capacity that a node belongs to.

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

    :param text: their capabilities as the database spells them; None if they
        have none.
    :param capabilities: values by name. Profiles may share this dict.
    :param counts: numbers of nodes by the reason why they cannot be held (one
        of ``matching.REASONS``; None if they can).
    :param reserved: number of nodes with a reservation or an allocation on
        which no work has begun.
    :param taken: number of nodes in use, being deployed or being torn down.
    :param first: lowest id of these nodes. Nodes that were enrolled together
        have similar ids.
    :param last: highest id.
    :param held: numbers of nodes by host and ``classify_node``, if the count
        includes hosts.
    """

    group: 'ProfileGroup'
    text: str | None
    capabilities: dict[str, str]
    counts: dict[str | None, int]
    reserved: int
    taken: int
    first: int
    last: int
    held: dict[tuple[str, str], int]

    @property
    def is_whole(self) -> bool:
        """Return whether it stands for its whole profile group."""
        return self is self.group.whole

    @property
    def facts(self) -> dict[str, str | None]:
        """Return the facts of its nodes, as the database spells them.

        :returns: values by the names of ``expressions.PROFILE``; without
            ``capabilities`` for a whole profile group.
        """
        facts = self.group.facts
        return facts if self.is_whole else {**facts, 'capabilities': self.text}

    @property
    def node(self) -> matching.Node:
        """Return a Node that stands for each of its nodes."""
        return (self.group.node if self.is_whole
                else self.group.make_node(self.text))

    @property
    def total(self) -> int:
        """Return the number of its nodes."""
        return sum(self.counts.values())

    @property
    def free(self) -> int:
        """Return how many nodes can be held, now or after a short lock."""
        return self.available + self.counts.get(matching.LOCKED, 0)

    @property
    def claimable(self) -> int:
        """Return how many nodes have a reservation that can be claimed."""
        return self.counts.get(matching.CLAIMABLE, 0)

    @property
    def available(self) -> int:
        """Return how many nodes can be held now."""
        return self.counts.get(None, 0)

    def find_domain(self, by: str | None) -> str | None:
        """Return the domain of these nodes; see ``group_policy``."""
        name = group_policy.find_capability(by)
        return (group_policy.find_domain(self.group.node, by) if name is None
                else group_policy.parse_domain(self.capabilities.get(name)))


class ProfileGroup:
    """Profiles that differ only in the values of capabilities.

    :param facts: facts of their nodes as the database spells them, by the
        names of ``expressions.PROFILE`` without ``capabilities``.
    :param candidate: UUID and name, if it is a single node.
    :param text: capabilities of the first profile.
    """

    def __init__(self, facts: dict[str, str | None],
                 candidate: tuple[str, str | None] | None,
                 text: str | None) -> None:
        self.facts, self._candidate = facts, candidate or (None, None)
        self.node = self.make_node(text)
        self.profiles: list[Profile] = []
        self._values: dict[str, set[str | None]] = {}

    def make_node(self, text: str | None) -> matching.Node:
        """Return a Node with these facts.

        :param text: its capabilities.
        """
        facts, (uuid, name) = self.facts, self._candidate
        spelling = {**facts, 'capabilities': text}
        properties = facts['irregular_properties'] or json.dumps(
            {key: spelling[key] for key in ('memory_mb', 'cpus', 'local_gb',
                                            'cpu_arch', 'capabilities')
             if spelling[key] is not None})
        columns: dict[str, Any] = {'uuid': uuid, **{
            key: facts[key] for key in ('resource_class', 'conductor_group',
                                        'shard', 'owner', 'lessee')}}
        return matching.Node(
            id=0, name=name, properties=properties,
            traits=frozenset(
                facts['traits'].split(',') if facts['traits'] else ()),
            **columns)

    def values(self, name: str) -> set[str | None]:
        """Return the values of a capability that its nodes have."""
        if name not in self.node.capabilities:
            return {None}
        if name not in self._values:
            self._values[name] = {profile.capabilities[name]
                                  for profile in self.profiles}
        return self._values[name]

    @functools.cached_property
    def whole(self) -> Profile:
        """Return all nodes as one Profile, for requests that fit them all."""
        counts: collections.Counter[str | None] = collections.Counter()
        hosts: collections.Counter[tuple[str, str]] = collections.Counter()
        for profile in self.profiles:
            counts.update(profile.counts)
            hosts.update(profile.held)
        return Profile(
            self, None, self.node.capabilities, counts,
            sum(profile.reserved for profile in self.profiles),
            sum(profile.taken for profile in self.profiles),
            min(profile.first for profile in self.profiles),
            max(profile.last for profile in self.profiles), hosts)


class Fleet:
    """All profile groups, counted at the same moment.

    :ivar matches: cache of ``search`` for this count: by Matcher, the fits
        with the profiles that match.
    """

    def __init__(self, groups: Iterable[ProfileGroup]) -> None:
        self.groups = tuple(groups)
        self.matches: dict[
            matching.Matcher, list[tuple[Any, list[Profile]]]] = {}

    @classmethod
    def from_counts(cls, counts: Iterable[counting.NodeCount]) -> 'Fleet':
        """Return the fleet of the counts of its nodes."""
        parse = functools.cache(_parse_capabilities)
        groups: dict[tuple[Any, ...], ProfileGroup] = {}
        rows = collections.defaultdict(list)
        for count in counts:
            names = parse(count.capabilities,
                          count.facts['irregular_properties'])
            key = (*count.facts.values(), count.candidate, frozenset(names))
            if key not in groups:
                groups[key] = ProfileGroup(count.facts, count.candidate,
                                           count.capabilities)
            rows[key, count.capabilities].append(count)
        for (key, text), profile_rows in rows.items():
            group = groups[key]
            group.profiles.append(_make_profile(
                group, text, parse(text, group.facts['irregular_properties']),
                profile_rows))
        return cls(groups.values())

    @property
    def profiles(self) -> list[Profile]:
        """Return the profiles of all profile groups."""
        return [profile for group in self.groups for profile in group.profiles]

    @functools.cached_property
    def total(self) -> int:
        """Return the number of all nodes."""
        return sum(group.whole.total for group in self.groups)


def _parse_capabilities(text: str | None,
                        irregular: str | None) -> dict[str, str]:
    return matching.parse_capabilities(text) if irregular is None else (
        matching.Node(0, '', properties=irregular).capabilities)


def _make_profile(group: ProfileGroup, text: str | None,
                  capabilities: dict[str, str],
                  rows: list[counting.NodeCount]) -> Profile:
    """Return a Profile of counts that differ only in reason and host."""
    counts: dict[str | None, int] = {}
    states: collections.Counter[str] = collections.Counter()
    hosts: dict[tuple[str, str], int] = {}
    for row in rows:
        state = classify_node(row.reason, row.taken)
        states[state] += row.nodes
        counts[row.reason] = counts.get(row.reason, 0) + row.nodes
        if row.host is not None:
            hosts[row.host, state] = hosts.get((row.host, state), 0) + (
                row.nodes)
    return Profile(group, text, capabilities, counts,
                   states['reserved'], states['taken'],
                   min(row.first for row in rows),
                   max(row.last for row in rows), hosts)
