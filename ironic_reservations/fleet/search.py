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
from ironic_reservations import matching
from ironic_reservations.db import engine
from ironic_reservations.db import node_counts
from ironic_reservations.db import node_rows
from ironic_reservations.fleet import comparison
from ironic_reservations.fleet import profiles
from ironic_reservations.fleet import shelf

#: Maximum number of requests whose matching profiles are cached per count.
MAX_CACHED_MATCHES = 256

#: Number of nodes whose reasons are read at once before a refusal.
REASONS_PAGE = 2048

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
            node_rows.select_candidates, matcher.spec.candidate_nodes)))
    return _search_fleet(matcher, fleet)


def read_nodes(matcher: matching.Matcher,
               ids: Collection[int]) -> list[matching.Node]:
    """Return nodes with these ids that are free and match, in search order.

    The one with the best rank comes first.
    """
    if not ids:
        return []
    select = functools.partial(node_rows.select_by_ids,
                               for_pool=matcher.pool_project is not None)
    return _sort_nodes(matcher, _fetch_nodes(select, ids))


def read_matches(matcher: matching.Matcher, fleet: profiles.Fleet
                 ) -> tuple[profiles.Fleet, int]:
    """Read the nodes that a count calls free and matching, as they are now.

    Nodes have *malformed* properties if they are free and match as the
    database reads their properties, but not as Python does. There may be many
    nodes that are not free, of which only the reason is read.

    :returns: the other nodes, as Python reads their properties; and the
        number of malformed ones.
    """
    nodes: list[node_counts.NodeCount] = []
    mismatches, for_pool = 0, matcher.pool_project is not None
    others: collections.Counter[tuple[profiles.Profile, str]] = (
        collections.Counter())
    ids = ((node_id, profile)
           for _, batch in comparison.find_profiles(matcher, fleet)
           for profile in batch for node_id in profile.ids)
    while page := dict(itertools.islice(ids, REASONS_PAGE)):
        engine.check_deadline()
        free = []
        for node_id, reason in node_counts.read_reasons(page, for_pool):
            if reason is None:
                free.append(node_id)
            else:
                others[page[node_id], reason] += 1
        for count, properties in (
                node_counts.read_counts(free, for_pool) if free else ()):
            # Python parses the properties that are irregular.
            node = count._replace(capabilities=None, facts={
                **count.facts, 'irregular_properties': properties or '{}'})
            if (count.reason is None and _matches(matcher, count)
                    and not _matches(matcher, node)):
                mismatches += 1
            else:
                nodes.append(node)
    nodes += [profile.make_count(reason, number)
              for (profile, reason), number in others.items()]
    return profiles.Fleet.from_counts(nodes), mismatches


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
        return _read_page(ids)

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
                    if matcher.rank(node) < (suspect, fit):
                        yield node
            for node in fleet.shelves.take_nodes(
                    stock, _list_profiles(by_fit, number), read, suspect):
                # A node that has changed may fit worse than when it was
                # counted.
                if (matcher.matches(node)
                        and matcher.rank(node) <= (suspect, fit)):
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


def _read_page(ids: Iterable[int]) -> list[matching.Node]:
    """Return the nodes with these ids that are free, in random order."""
    return _fetch_nodes(node_rows.select_by_ids, ids)


def _fetch_nodes(select: Callable[..., tuple[sa.Select[Any], dict[str, Any]]],
                 names: Iterable[Any]) -> list[matching.Node]:
    nodes = [make_node(row._mapping) for row in engine.fetch_rows(
        *select(names, conf.CONF.reservations.avoid_failed))]
    random.shuffle(nodes)
    return nodes


def _sort_nodes(matcher: matching.Matcher, nodes: Iterable[matching.Node]
                ) -> list[matching.Node]:
    """Return the nodes that match, best rank first."""
    return sorted((node for node in nodes
                   if matcher.is_visible(node) and matcher.matches(node)),
                  key=matcher.rank)


def make_node(row: Mapping[Any, Any]) -> matching.Node:
    """Return the Node of a row with all of ``expressions.FACTS``."""
    facts = dict(row)
    traits = facts.pop('traits')
    return matching.Node(
        **facts, traits=frozenset(traits.split(',') if traits else ()))
