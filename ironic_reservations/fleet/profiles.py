# SPDX-License-Identifier: Apache-2.0
"""The counted fleet: hardware profiles and profile groups.

A hardware profile is a set of nodes that no request can tell apart. Profiles
that differ only in the values of capabilities form a *profile group*. Where a
capability names the rack, there are thousands of profiles, but only one
profile group for each model of machine. So a request is compared with the
profile groups first, and with their profiles only in the capabilities that it
requires.

The numbers of a counted fleet never change; only its caches do. It may be
outdated. That causes no wrong result, because a hold checks the current row of
the node.
"""

import array
from collections.abc import Iterable
import dataclasses
import functools
import json
from typing import Any

from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.db import node_counts
from ironic_reservations.fleet import shelf
from ironic_reservations.matching import group_policy
from ironic_reservations.shared import constants


def classify_node(reason: str | None, taken: int | bool) -> str:
    """Return the number of the capacity that a node belongs to.

    :param reason: why it cannot be held, one of ``matching.REASONS``; None if
        it can.
    :param taken: whether it is being deployed, in use or being torn down.
    :returns: one of ``constants.NODE_STATES``.
    """
    if taken:
        return 'taken'
    if reason in matching.WITH_INSTANCE:
        return 'reserved'
    return ('free' if reason in (None, matching.LOCKED, matching.POOLED)
            else 'out_of_service')


@dataclasses.dataclass(frozen=True, eq=False)
class SharedFacts:
    """The facts that are equal for all nodes of a profile group.

    Profiles refer to these facts instead of their group: without a reference
    cycle, Python frees a large fleet as soon as the next one replaces it.

    :param facts: as the database spells them, by the names of
        ``expressions.PROFILE`` without ``capabilities``.
    :param candidate: UUID and name, if it is a single node.
    :param text: capabilities of one of the nodes.
    """

    facts: dict[str, str | None]
    candidate: tuple[str, str | None] | None
    text: str | None

    @functools.cached_property
    def node(self) -> matching.Node:
        """Return a Node that stands for all nodes, but for capabilities."""
        return self._make_node(self.text)

    def get_node(self, text: str | None) -> matching.Node:
        """Return a Node with these facts.

        :param text: its capabilities.
        """
        return self.node if text == self.text else self._make_node(text)

    def _make_node(self, text: str | None) -> matching.Node:
        facts, (uuid, name) = self.facts, self.candidate or (None, None)
        spelling = {**facts, 'capabilities': text}
        properties = facts['irregular_properties'] or json.dumps(
            {key: spelling[key] for key in ('memory_mb', 'cpus', 'local_gb',
                                            'cpu_arch', 'capabilities')
             if spelling[key] is not None})
        columns: dict[str, Any] = {'uuid': uuid, **{
            key: facts[key] for key in ('resource_class', 'conductor_group',
                                        'shard', 'owner', 'lessee',
                                        'pool_project_id')}}
        return matching.Node(
            id=0, name=name, properties=properties,
            traits=frozenset(
                facts['traits'].split(',') if facts['traits'] else ()),
            **columns)


@dataclasses.dataclass(eq=False, slots=True)
class Profile:
    """Nodes that no request can tell apart.

    :param facts: those of its profile group.
    :param text: their capabilities as the database spells them; None if they
        have none.
    :param capabilities: values by name. Profiles may share this dict.
    :param counts: numbers of nodes by the reason why they cannot be held (one
        of ``matching.REASONS``; None if they can).
    :param reserved: number of nodes with a reservation or an allocation on
        which no work has begun.
    :param taken: number of nodes in use, being deployed or being torn down.
    :param ids: ids of the nodes that can be held.
    :param other_ids: ids of the other nodes.
    :param held: numbers of nodes by host and ``classify_node``, if the count
        includes hosts.
    """

    facts: SharedFacts
    text: str | None
    capabilities: dict[str, str]
    counts: dict[str | None, int]
    reserved: int
    taken: int
    ids: 'array.array[int]'
    other_ids: 'array.array[int]'
    held: dict[tuple[str, str], int]

    def make_count(self, reason: str | None, number: int
                   ) -> node_counts.NodeCount:
        """Return a count of nodes with these facts."""
        return node_counts.NodeCount(
            self.facts.facts, self.text, self.facts.candidate, reason, 0, None,
            number, array.array('I'))

    def add_count(self, count: node_counts.NodeCount) -> None:
        """Add nodes that are equal in all facts."""
        reason, number = count.reason, count.nodes
        state = classify_node(reason, count.taken)
        self.counts[reason] = self.counts.get(reason, 0) + number
        self.reserved += number if state == 'reserved' else 0
        self.taken += number if state == 'taken' else 0
        ids = self.ids if reason is None else self.other_ids
        ids += count.ids
        if count.host is not None:
            key = count.host, state
            self.held[key] = self.held.get(key, 0) + number

    def add(self, other: 'Profile') -> None:
        """Add the nodes of another profile."""
        for reason, number in other.counts.items():
            self.counts[reason] = self.counts.get(reason, 0) + number
        self.reserved += other.reserved
        self.taken += other.taken
        self.ids += other.ids
        self.other_ids += other.other_ids
        for key, number in other.held.items():
            self.held[key] = self.held.get(key, 0) + number

    @property
    def node(self) -> matching.Node:
        """Return a Node that stands for each of its nodes."""
        return self.facts.get_node(self.text)

    @property
    def total(self) -> int:
        """Return the number of its nodes."""
        return sum(self.counts.values())

    @property
    def free(self) -> int:
        """Return how many nodes can be held, now or after a short lock."""
        return self.available + sum(
            self.counts.get(reason, 0)
            for reason in (matching.LOCKED, matching.POOLED))

    @property
    def claimable(self) -> int:
        """Return how many nodes have a reservation that can be claimed."""
        return self.counts.get(matching.CLAIMABLE, 0)

    @property
    def available(self) -> int:
        """Return how many nodes can be held now."""
        return self.counts.get(None, 0)

    def count_states(self) -> dict[str, int]:
        """Return the numbers of nodes by ``constants.NODE_STATES``."""
        free, reserved, taken = self.free, self.reserved, self.taken
        return dict(zip(constants.NODE_STATES, (
            free, reserved, taken, self.total - free - reserved - taken),
            strict=True))

    def find_domain(self, levels: group_policy.Levels) -> group_policy.Domain:
        """Return the outer and the inner domain of these nodes."""
        return self._find_domain(levels.by), self._find_domain(levels.inner_by)

    def _find_domain(self, by: str | None) -> str | None:
        name = group_policy.find_capability(by)
        return (group_policy.find_domain(self.facts.node, by) if name is None
                else group_policy.parse_domain(self.capabilities.get(name)))


class ProfileGroup:
    """Profiles that differ only in the values of capabilities.

    :ivar whole: all nodes as one Profile, for requests that fit them all.
    """

    def __init__(self, facts: SharedFacts, profiles: list[Profile]) -> None:
        self.facts, self.profiles = facts, profiles
        self._values: dict[str, set[str | None]] = {}
        # Threads that share a fleet recognize it by its identity.
        self.whole = _make_empty_profile(facts, profiles[0].text,
                                         profiles[0].capabilities)
        for profile in profiles:
            self.whole.add(profile)

    @property
    def node(self) -> matching.Node:
        """Return a Node that stands for all nodes, but for capabilities."""
        return self.facts.node

    def values(self, name: str) -> set[str | None]:
        """Return the values of a capability that its nodes have."""
        if name not in self.node.capabilities:
            return {None}
        if name not in self._values:
            self._values[name] = {profile.capabilities[name]
                                  for profile in self.profiles}
        return self._values[name]


class Fleet:
    """All profile groups, counted at the same moment.

    :ivar total: number of all nodes.
    :ivar matches: cache of ``search`` for this count: by Matcher, the fits
        with the profiles that match.
    :ivar shelves: nodes that ``search`` has read.
    :ivar domains: cache of ``domains``.
    :ivar suspects: ids of nodes that ``domains`` has read as suspect.
    :ivar holds: nodes that this process has held since the count, and not
        released, by id.
    """

    def __init__(self, groups: Iterable[ProfileGroup]) -> None:
        self.groups = tuple(groups)
        # Threads share the fleet, and profiles are compared by identity, so
        # each group has one "whole" from the beginning.
        self.total = sum(group.whole.total for group in self.groups)
        self._pool_projects = {group.facts.facts.get('pool_project_id')
                               for group in self.groups}
        self.holds: dict[int, matching.Node] = {}
        self.suspects: set[int] = set()
        self.shelves = shelf.Shelves()
        self.domains: dict[Any, Any] = {}
        self.matches: dict[
            matching.Matcher, list[tuple[Any, list[Profile]]]] = {}

    @classmethod
    def from_counts(cls, counts: Iterable[node_counts.NodeCount]) -> 'Fleet':
        """Return the fleet of the counts of its nodes."""
        parse = functools.cache(_parse_capabilities)
        groups: dict[tuple[Any, ...], tuple[SharedFacts, list[Profile]]] = {}
        profiles: dict[tuple[Any, ...], Profile] = {}
        for count in counts:
            # Counts share the facts that are equal.
            text, facts = count.capabilities, count.facts
            key = id(facts), count.candidate, text
            profile = profiles.get(key)
            if profile is None:
                capabilities, names = parse(text,
                                            facts['irregular_properties'])
                group_key = id(facts), count.candidate, names
                group = groups.get(group_key)
                if group is None:
                    group = groups[group_key] = (
                        SharedFacts(facts, count.candidate, text), [])
                profile = profiles[key] = _make_empty_profile(
                    group[0], text, capabilities)
                group[1].append(profile)
            profile.add_count(count)
        return cls(ProfileGroup(*group) for group in groups.values())

    def has_pool(self, project_id: str | None) -> bool:
        """Return whether a project has nodes in pools."""
        return project_id is not None and project_id in self._pool_projects

    def make_key(self, matcher: matching.Matcher) -> matching.Matcher:
        """Return a Matcher that finds the same profiles, for caches.

        It is equal for requests of projects between which this fleet does not
        distinguish, whatever nodes they avoid.
        """
        if matcher.avoid:
            matcher = dataclasses.replace(matcher, avoid=frozenset())
        ownership = matcher.ownership
        if ownership.is_limited or self.has_pool(ownership.project_id):
            return matcher
        return dataclasses.replace(matcher, ownership=values.ALL)

    @property
    def profiles(self) -> list[Profile]:
        """Return the profiles of all profile groups."""
        return [profile for group in self.groups for profile in group.profiles]


def _parse_capabilities(text: str | None, irregular: str | None
                        ) -> tuple[dict[str, str], frozenset[str]]:
    """Return the capabilities in a text, and their names."""
    capabilities = (
        matching.parse_capabilities(text) if irregular is None
        else matching.Node(0, '', properties=irregular).capabilities)
    return capabilities, frozenset(capabilities)


def _make_empty_profile(facts: SharedFacts, text: str | None,
                        capabilities: dict[str, str]) -> Profile:
    return Profile(facts, text, capabilities, {}, 0, 0, array.array('I'),
                   array.array('I'), {})
