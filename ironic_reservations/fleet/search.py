# SPDX-License-Identifier: Apache-2.0
"""Chooses the order in which nodes are tried.

The search only reads: a concurrent request may take or change a node at any
moment, and the guarded update of the hold notices that. So the search may use
an outdated count, and leaves nodes that it has read to the next request: see
``shelf``.
"""

import array
import collections
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import functools
import itertools
import operator
import random
from typing import Any

import sqlalchemy as sa

from ironic_reservations import conf
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations.db import engine
from ironic_reservations.db import node_counts
from ironic_reservations.db import node_rows
from ironic_reservations.db import row_locks
from ironic_reservations.fleet import comparison
from ironic_reservations.fleet import profiles
from ironic_reservations.fleet import shelf

#: Maximum number of requests whose matching profiles are cached per count.
MAX_CACHED_MATCHES = 256

#: Number of nodes whose reasons are read at once before a refusal.
REASONS_PAGE = 2048

#: Why nodes cannot be held that concurrent requests or conductors have taken.
TAKEN = {matching.ALLOCATED, matching.CLAIMABLE, matching.RESERVED,
         matching.LOCKED}

#: Pairs of a fit and the profiles that fit equally well, best fit first.
ByFit = list[tuple[tuple[Any, ...], list[profiles.Profile]]]


def find_nodes(matcher: matching.Matcher, fleet: profiles.Fleet
               ) -> Iterator[matching.Node]:
    """Yield free nodes that satisfy a request, suspects last, by fit.

    Stop iterating after taking a node. Requesting the next one means that the
    last was lost to another request.

    :param fleet: determines the order. Nodes that are not in it, or that did
        not match when they were counted, are not found, unless the request
        names its nodes.
    """
    if matcher.spec.candidate_nodes:
        return iter(_sort_nodes(matcher, _fetch_nodes(
            node_rows.select_candidates, matcher.spec.candidate_nodes,
            matcher.use)))
    return _search_fleet(matcher, fleet)


def read_nodes(matcher: matching.Matcher,
               ids: Collection[int]) -> list[matching.Node]:
    """Return nodes with these ids that are free and match, in search order.

    The one with the best rank comes first.
    """
    if not ids:
        return []
    return _sort_nodes(matcher, _fetch_nodes(
        node_rows.select_by_ids, ids, matcher.use))


def correct_count(matcher: matching.Matcher,
                  limited_matcher: matching.Matcher, fleet: profiles.Fleet
                  ) -> tuple[profiles.Fleet, bool]:
    """Read the nodes that a count calls free and matching, as they are now.

    Nodes have *malformed* properties if they are free and match as the
    database reads their properties, but not as Python does. There may be many
    nodes that are not free, of which only the reason is read.

    :param limited_matcher: without the nodes that the limits exclude.
    :returns: the count with these nodes as they are now; and whether a
        concurrent request or conductor has taken or locked one of them that
        the limits allow.
    """
    free = {node_id: profile for profile in _list_matches(matcher, fleet)
            for node_id in profile.ids}
    matches = set(map(id, free.values()))
    usable = set(map(id, _list_matches(limited_matcher, fleet)))
    numbers = collections.Counter[tuple[profiles.Profile, str | None]]()
    for profile in fleet.profiles:
        for reason, number in profile.counts.items():
            if reason is not None or id(profile) not in matches:
                numbers[profile, reason] += number
    nodes: list[node_counts.NodeCount] = []
    is_taken, ids = False, iter(free)
    while page := list(itertools.islice(ids, REASONS_PAGE)):
        engine.check_deadline()
        still_free = []
        for node_id, reason in node_counts.read_reasons(page, matcher.use):
            is_taken = is_taken or (
                reason in TAKEN and id(free[node_id]) in usable)
            if reason is None:
                still_free.append(node_id)
            else:
                numbers[free[node_id], reason] += 1
        nodes += map(functools.partial(_parse, matcher),
                     node_counts.read_counts(still_free, matcher.use)
                     if still_free else ())
    return profiles.Fleet.from_counts([*nodes, *(
        profile.make_count(reason, number)
        for (profile, reason), number in numbers.items())]), is_taken


def _list_matches(matcher: matching.Matcher, fleet: profiles.Fleet
                  ) -> Iterator[profiles.Profile]:
    """Yield the profiles that match, none of which stands for others."""
    for group, batch in comparison.find_profiles(matcher, fleet):
        yield from group.profiles if batch == [group.whole] else batch


def _parse(matcher: matching.Matcher,
           row: tuple[node_counts.NodeCount, str | None]
           ) -> node_counts.NodeCount:
    """Return the count of a node whose properties Python parses."""
    count, properties = row
    node = count._replace(capabilities=None, facts={
        **count.facts, 'irregular_properties': properties or '{}'})
    if (count.reason is None and _matches(matcher, count)
            and not _matches(matcher, node)):
        return count._replace(reason=matching.MALFORMED)
    return node


def _matches(matcher: matching.Matcher, count: node_counts.NodeCount) -> bool:
    return bool(comparison.find_profiles(
        matcher, profiles.Fleet.from_counts([count])))


def _search_fleet(matcher: matching.Matcher,
                  fleet: profiles.Fleet) -> Iterator[matching.Node]:
    """Yield nodes that were free when the fleet was counted, then others.

    If the nodes that fit best are used up, some of them are read again before
    those that fit worse, because they may be free by now; and some of all
    before suspect ones. In the end, those that were free are read again, and
    some of the others.
    """
    by_fit = _get_matches(matcher, fleet)
    current: set[int] = set()

    def read(ids: Iterable[int]) -> list[matching.Node]:
        # A search may read many pages of nodes that are taken by now.
        if current:
            engine.check_deadline()
        current.update(ids)
        return _fetch_nodes(node_rows.select_by_ids, ids, matcher.use)

    for suspect in False, True:
        is_first = True
        for number, (fit, equals) in enumerate(by_fit):
            stock = fleet.shelves.list_stock(equals, suspect)
            if not stock:
                continue
            others = by_fit if suspect else by_fit[:number]
            if others and is_first:
                is_first = False
                better = itertools.islice(itertools.chain(
                    _list_ids(others, 'ids'),
                    _list_ids(others, 'other_ids')), shelf.LARGE_PAGE)
                for node in read_nodes(matcher, {*better} - current):
                    if rank(matcher, node) < (False, suspect, fit):
                        yield node
            for node in fleet.shelves.take_nodes(
                    stock, _list_profiles(by_fit, number), read, suspect):
                # A node that has changed may fit worse than when it was
                # counted.
                if (matcher.matches(node)
                        and rank(matcher, node) <= (False, suspect, fit)):
                    yield node
    ids = itertools.chain(
        _list_ids(by_fit, 'ids'),
        itertools.islice(_list_ids(by_fit, 'other_ids'), shelf.LARGE_PAGE))
    while page := list(itertools.islice(ids, shelf.LARGE_PAGE)):
        yield from _sort_nodes(matcher, read(page))


def _list_profiles(by_fit: ByFit, number: int) -> Iterator[profiles.Profile]:
    """Yield profiles in order of fit, from a number of fits on."""
    for _, equals in itertools.islice(by_fit, number, None):
        yield from equals


def _list_ids(by_fit: ByFit, name: str) -> Iterator[int]:
    """Yield the ids of nodes of some profiles, best fit first.

    The ids of profiles that fit equally begin at a random place, because the
    caller may not read all of them.

    :param name: ``ids`` or ``other_ids``.
    """
    for _, equals in by_fit:
        ids = array.array('I')
        for profile in equals:
            ids.extend(getattr(profile, name))
        start = random.randrange(len(ids)) if ids else 0
        for place in itertools.chain(range(start, len(ids)), range(start)):
            yield ids[place]


def _get_matches(matcher: matching.Matcher, fleet: profiles.Fleet) -> ByFit:
    """Return the profiles of a fleet that match, cached for equal requests.

    There are few flavors, and many requests for each of them per count.
    """
    if matcher.policy is not None:
        # The members of its group change with each hold.
        return _group_by_fit(matcher, comparison.find_profiles(
            matcher, fleet, *matcher.policy.levels.keys))
    cache, key = fleet.matches, fleet.make_key(matcher)
    by_fit = cache.get(key)
    if by_fit is None:
        if len(cache) >= MAX_CACHED_MATCHES:
            cache.clear()
        by_fit = cache[key] = _group_by_fit(
            key, comparison.find_profiles(key, fleet))
    return by_fit


def _group_by_fit(matcher: matching.Matcher,
                  matches: list[comparison.Match]) -> ByFit:
    by_fit: dict[tuple[Any, ...], list[profiles.Profile]] = (
        collections.defaultdict(list))
    for group, batch in matches:
        alone = matcher.fit_alone(group.node)
        if matcher.policy is None:
            by_fit[alone] += batch
            continue
        for profile in batch:
            domain = profile.find_domain(matcher.policy.levels)
            by_fit[matcher.fit_in(domain, alone)].append(profile)
    return sorted(by_fit.items(), key=operator.itemgetter(0))


def _fetch_nodes(select: Callable[..., tuple[sa.Select[Any], dict[str, Any]]],
                 names: Iterable[Any], use: matching.Use
                 ) -> list[matching.Node]:
    """Return nodes that are free, in random order."""
    nodes = [make_node(row._mapping) for row in engine.fetch_rows(
        *select(names, conf.CONF.reservations.avoid_failed, use))]
    random.shuffle(nodes)
    return nodes


def _sort_nodes(matcher: matching.Matcher, nodes: Iterable[matching.Node]
                ) -> list[matching.Node]:
    """Return the nodes that match and are not lost, best rank first."""
    lost_nodes = engine.get_lost_nodes()
    return sorted((node for node in nodes
                   if node.id not in lost_nodes
                   and matcher.is_visible(node) and matcher.matches(node)),
                  key=functools.partial(rank, matcher))


def check_lost(matcher: matching.Matcher) -> None:
    """Raise an exception if the request has lost a node that matches.

    Call it when no other node is left; see ``row_locks``.

    :raises: DeadlineExceeded.
    """
    lost_nodes = engine.get_lost_nodes()
    if lost_nodes and any(
            matcher.is_visible(node) and matcher.matches(node)
            for node in (make_node(row._mapping) for row in engine.fetch_rows(
                node_rows.select_nodes(lost_nodes)))):
        raise exception.DeadlineExceeded(
            'Other transactions have locked the nodes that are left; try '
            'again.')


def rank(matcher: matching.Matcher, node: matching.Node) -> tuple[Any, ...]:
    """Return the rank of a node that matches; see ``matching.Matcher``.

    Nodes whose rows are locked come last.
    """
    return (row_locks.is_avoided(node.id), *matcher.rank(node))


def make_node(row: Mapping[Any, Any]) -> matching.Node:
    """Return the Node of a row with all of ``expressions.FACTS``."""
    facts = dict(row)
    traits = facts.pop('traits')
    return matching.Node(
        **facts, traits=frozenset(traits.split(',') if traits else ()))
