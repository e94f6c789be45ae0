# SPDX-License-Identifier: Apache-2.0
"""Chooses the order in which nodes are tried.

The search only reads: a concurrent request may take or change a node at any
moment, and the guarded update of the hold notices that. So the search may use
an outdated count, and leaves nodes that it has read to the next request: see
``shelf``.
"""

import collections
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import itertools
import operator
import random
import re
import typing
from typing import Any

import sqlalchemy as sa

from ironic_reservations import conf
from ironic_reservations import matching
from ironic_reservations.db import engine
from ironic_reservations.db import node_rows
from ironic_reservations.fleet import profiles
from ironic_reservations.fleet import shelf

if typing.TYPE_CHECKING:
    from ironic_reservations.matching import matcher as matchers

#: Maximum number of requests whose matching profiles are cached per count.
MAX_CACHED_MATCHES = 256

#: Pairs of a fit and the profiles that fit equally well, best fit first.
ByFit = list[tuple[tuple[Any, ...], list[profiles.Profile]]]


def find_nodes(matcher: matching.Matcher, fleet: profiles.Fleet | None
               ) -> Iterator[matching.Node]:
    """Yield free nodes that satisfy a request, best fit first.

    Stop iterating after taking a node. Requesting the next one means that the
    last was lost to another request.

    :param fleet: determines the order. Nodes that are not in it, or that did
        not match when they were counted, are not found. None if the request
        names its nodes.
    """
    if matcher.spec.candidate_nodes or fleet is None:
        return iter(_sort_nodes(matcher, _fetch_nodes(
            node_rows.select_candidates, matcher.spec.candidate_nodes)))
    return _search_fleet(matcher, fleet)


def read_nodes(matcher: matching.Matcher,
               ids: Collection[int]) -> list[matching.Node]:
    """Return those of some nodes that are free and match, best fit first."""
    return _sort_nodes(matcher, _read_page(ids)) if ids else []


def _search_fleet(matcher: matching.Matcher,
                  fleet: profiles.Fleet) -> Iterator[matching.Node]:
    """Yield nodes that were free when the fleet was counted, then others.

    If the nodes that fit best are used up, some of them are read again before
    those that fit worse, because they may be free by now. In the end, those
    that were free are read again, and some of the others.
    """
    by_fit, is_first = _get_matches(matcher, fleet), True
    current: set[int] = set()

    def read(ids: Iterable[int]) -> list[matching.Node]:
        # A search may read many pages of nodes that are taken by now.
        if current:
            engine.check_deadline()
        current.update(ids)
        return _read_page(ids)

    for number, (fit, equals) in enumerate(by_fit):
        stock = fleet.shelves.list_stock(equals)
        if not stock:
            continue
        if number and is_first:
            is_first = False
            better = itertools.islice(itertools.chain(
                _list_ids(by_fit[:number], 'ids'),
                _list_ids(by_fit[:number], 'other_ids')), shelf.LARGE_PAGE)
            for node in read_nodes(matcher, {*better} - current):
                if matcher.fit(node) < fit:
                    yield node
        for node in fleet.shelves.take_nodes(
                stock, _list_profiles(by_fit, number), read):
            # A node that has changed may fit worse than when it was counted.
            if matcher.matches(node) and matcher.fit(node) <= fit:
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

    Those of equals begin at a random place, because the caller may not read
    all of them.

    :param name: ``ids`` or ``other_ids``.
    """
    for _, equals in by_fit:
        text = ','.join(str(ids) for profile in equals
                        for ids in getattr(profile, name))
        start = text.find(',', random.randint(0, len(text))) + 1
        for part in text[start:], text[:start]:
            # Lazily, because there may be 100,000 of them.
            for match in re.finditer(r'\d+', part):
                yield int(match[0])


def _get_matches(matcher: matching.Matcher, fleet: profiles.Fleet) -> ByFit:
    """Return the profiles of a fleet that match, cached for equal requests.

    There are few flavors, and many requests for each of them per count.
    """
    if matcher.policy is not None:
        # The members of its group change with each hold.
        return _group_by_fit(
            matcher, matcher.find_profiles(fleet, *matcher.policy.levels.keys))
    cache = fleet.matches
    by_fit = cache.get(matcher)
    if by_fit is None:
        if len(cache) >= MAX_CACHED_MATCHES:
            cache.clear()
        by_fit = cache[matcher] = _group_by_fit(
            matcher, matcher.find_profiles(fleet))
    return by_fit


def _group_by_fit(matcher: matching.Matcher,
                  matches: 'list[matchers.Match]') -> ByFit:
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
    """Return those of some nodes that are free, in random order."""
    return _fetch_nodes(node_rows.select_by_ids, ids)


def _fetch_nodes(select: Callable[..., tuple[sa.Select[Any], dict[str, Any]]],
                 names: Iterable[Any]) -> list[matching.Node]:
    nodes = [make_node(row._mapping) for row in engine.fetch_rows(
        *select(names, conf.CONF.reservations.avoid_failed))]
    random.shuffle(nodes)
    return nodes


def _sort_nodes(matcher: matching.Matcher, nodes: Iterable[matching.Node]
                ) -> list[matching.Node]:
    """Return the nodes that match, best fit first."""
    return sorted((node for node in nodes
                   if matcher.is_visible(node) and matcher.matches(node)),
                  key=lambda node: (matcher.fit(node), node.failed))


def make_node(row: Mapping[Any, Any]) -> matching.Node:
    """Return the Node of a row with all of ``expressions.FACTS``."""
    facts = dict(row)
    traits = facts.pop('traits')
    return matching.Node(
        **facts, traits=frozenset(traits.split(',') if traits else ()))
