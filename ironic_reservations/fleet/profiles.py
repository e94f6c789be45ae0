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

from collections.abc import Iterable
import dataclasses
import functools
import json
from typing import Any

from ironic_reservations import matching
from ironic_reservations.db import counting
from ironic_reservations.fleet import shelf
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


class SharedFacts:
    """The facts that are equal for all nodes of a profile group.

    Profiles refer to these, and not to their group: Python frees a fleet
    without such a cycle when the next one replaces it, and does not wait for
    the garbage collector.

    :param facts: as the database spells them, by the names of
        ``expressions.PROFILE`` without ``capabilities``.
    :param candidate: UUID and name, if it is a single node.
    :param text: capabilities of one of the nodes.
    :ivar node: a Node that stands for all nodes, but for capabilities.
    """

    def __init__(self, facts: dict[str, str | None],
                 candidate: tuple[str, str | None] | None,
                 text: str | None) -> None:
        self._facts, self._candidate = facts, candidate or (None, None)
        self.node = self.make_node(text)

    def make_node(self, text: str | None) -> matching.Node:
        """Return a Node with these facts.

        :param text: its capabilities.
        """
        facts, (uuid, name) = self._facts, self._candidate
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
    :param ids: ids of the nodes that can be held; see ``parse_ids``.
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
    ids: list[str | int]
    other_ids: list[str | int]
    held: dict[tuple[str, str], int]

    def add_count(self, count: counting.NodeCount) -> None:
        """Add nodes that are equal in all facts."""
        reason, number = count.reason, count.nodes
        state = classify_node(reason, count.taken)
        self.add({reason: number}, number if state == 'reserved' else 0,
                 number if state == 'taken' else 0,
                 *([count.ids], []) if reason is None else ([], [count.ids]))
        if count.host is not None:
            key = count.host, state
            self.held[key] = self.held.get(key, 0) + number

    def add(self, counts: dict[str | None, int], reserved: int, taken: int,
            ids: list[str | int], other_ids: list[str | int]) -> None:
        """Add nodes; the parameters are those of the class."""
        for reason, number in counts.items():
            self.counts[reason] = self.counts.get(reason, 0) + number
        self.reserved += reserved
        self.taken += taken
        self.ids += ids
        self.other_ids += other_ids

    @property
    def node(self) -> matching.Node:
        """Return a Node that stands for each of its nodes."""
        return self.facts.make_node(self.text)

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

    def list_free(self) -> list[int]:
        """Return the ids of the nodes that can be held."""
        return parse_ids(self.ids)

    def find_domain(self, levels: group_policy.Levels) -> group_policy.Domain:
        """Return the outer and the inner domain of these nodes."""
        return self._find_domain(levels.by), self._find_domain(levels.inner_by)

    def _find_domain(self, by: str | None) -> str | None:
        name = group_policy.find_capability(by)
        return (group_policy.find_domain(self.facts.node, by) if name is None
                else group_policy.parse_domain(self.capabilities.get(name)))


class ProfileGroup:
    """Profiles that differ only in the values of capabilities."""

    def __init__(self, facts: SharedFacts) -> None:
        self.facts = facts
        self.profiles: list[Profile] = []
        self._values: dict[str, set[str | None]] = {}

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

    @functools.cached_property
    def whole(self) -> Profile:
        """Return all nodes as one Profile, for requests that fit them all."""
        first = self.profiles[0]
        whole = _make_empty_profile(self.facts, first.text, first.capabilities)
        for profile in self.profiles:
            whole.add(profile.counts, profile.reserved, profile.taken,
                      profile.ids, profile.other_ids)
            for key, number in profile.held.items():
                whole.held[key] = whole.held.get(key, 0) + number
        return whole


class Fleet:
    """All profile groups, counted at the same moment.

    :ivar matches: cache of ``search`` for this count: by Matcher, the fits
        with the profiles that match.
    :ivar shelves: nodes that ``search`` has read.
    :ivar domains: cache of ``domains``.
    :ivar holds: nodes that this process has held since the count, and not
        released, by id.
    """

    def __init__(self, groups: Iterable[ProfileGroup]) -> None:
        self.groups = tuple(groups)
        self.holds: dict[int, matching.Node] = {}
        self.shelves = shelf.Shelves()
        self.domains: dict[Any, Any] = {}
        self.matches: dict[
            matching.Matcher, list[tuple[Any, list[Profile]]]] = {}

    @classmethod
    def from_counts(cls, counts: Iterable[counting.NodeCount]) -> 'Fleet':
        """Return the fleet of the counts of its nodes."""
        parse = functools.cache(_parse_capabilities)
        groups: dict[tuple[Any, ...], ProfileGroup] = {}
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
                    group = groups[group_key] = ProfileGroup(
                        SharedFacts(facts, count.candidate, text))
                profile = profiles[key] = _make_empty_profile(
                    group.facts, text, capabilities)
                group.profiles.append(profile)
            profile.add_count(count)
        return cls(groups.values())

    @property
    def profiles(self) -> list[Profile]:
        """Return the profiles of all profile groups."""
        return [profile for group in self.groups for profile in group.profiles]

    @functools.cached_property
    def total(self) -> int:
        """Return the number of all nodes."""
        return sum(group.whole.total for group in self.groups)


def parse_ids(texts: Iterable[str | int]) -> list[int]:
    """Return the ids in texts such as ``3,4``; a single id may be a number."""
    return [int(number) for text in texts for number in str(text).split(',')]


def _parse_capabilities(text: str | None, irregular: str | None
                        ) -> tuple[dict[str, str], frozenset[str]]:
    """Return the capabilities in a text, and their names."""
    capabilities = (
        matching.parse_capabilities(text) if irregular is None
        else matching.Node(0, '', properties=irregular).capabilities)
    return capabilities, frozenset(capabilities)


def _make_empty_profile(facts: SharedFacts, text: str | None,
                        capabilities: dict[str, str]) -> Profile:
    return Profile(facts, text, capabilities, {}, 0, 0, [], [], {})
