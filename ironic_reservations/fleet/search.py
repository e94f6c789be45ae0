# SPDX-License-Identifier: Apache-2.0
"""Chooses the order in which nodes are tried.

The search only reads: a concurrent request may take or change a node at any
moment, and the guarded update of the hold notices that. So the search may use
outdated data, and leaves nodes that it has read to the next request: see
``shelf``.
"""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import functools
import itertools
import operator
import random
import time
import typing
from typing import Any

from oslo_log import log
import sqlalchemy as sa

from ironic_reservations import conf
from ironic_reservations import matching
from ironic_reservations.db import engine
from ironic_reservations.db import expressions
from ironic_reservations.db import node_rows
from ironic_reservations.fleet import profiles
from ironic_reservations.fleet import shelf
from ironic_reservations.matching import request_spec

if typing.TYPE_CHECKING:
    from ironic_reservations.matching import matcher as matchers

LOG = log.getLogger(__name__)

#: Maximum number of requests whose matching profiles are cached per count.
MAX_CACHED_MATCHES = 256

#: Number of nodes to read at once if most of them may not match.
LARGE_PAGE = 1024

#: In a fleet of at most this number of nodes, each search starts with the best
#: fitting profiles, even if another search has just found no node there.
SMALL_FLEET = 2000

#: After a search found nothing in a profile, others search it last for this
#: multiple of its duration, and for at most this number of seconds.
REST_TO_COST, LONGEST_REST = 50, 5

#: Pairs of a fit and the profiles that fit equally well, best fit first.
ByFit = list[tuple[tuple[Any, ...], list[profiles.Profile]]]

#: Profiles, and whether to search for nodes that failed recently; None for all
#: nodes.
Turn = tuple[list[profiles.Profile], bool | None]


def find_nodes(matcher: matching.Matcher, fleet: profiles.Fleet | None,
               thorough: bool = False) -> Iterator[matching.Node]:
    """Yield free nodes that satisfy a request, best fit first.

    Stop iterating after taking a node. Requesting the next one means that the
    last was lost to another request.

    :param fleet: determines the order. Nodes of profiles that are not in it
        are not found. None if the request names its nodes.
    :param thorough: whether to read all nodes for this request only. Otherwise
        nodes on shelves are used, which may be given to other requests that
        then do not take them.
    """
    if matcher.spec.candidate_nodes or fleet is None:
        return _find_candidates(matcher)
    return _search_turns(matcher, _get_matches(matcher, fleet), thorough,
                         small=fleet.total <= SMALL_FLEET)


def read_nodes(matcher: matching.Matcher,
               ids: Iterable[int]) -> list[matching.Node]:
    """Return those of some nodes that are free and match, best fit first."""
    return _sort_nodes(matcher, engine.fetch_rows(
        *node_rows.select_by_ids(ids, _get_avoid_failed())))


def _find_candidates(matcher: matching.Matcher) -> Iterator[matching.Node]:
    is_candidate = sa.and_(
        *map(expressions.is_named, matcher.spec.candidate_nodes))
    # All of them in one page, so that the best fit comes first.
    return _read_nodes(matcher, is_candidate, limit=request_spec.MAX_INT)


def _search_turns(matcher: matching.Matcher, by_fit: ByFit, thorough: bool,
                  small: bool) -> Iterator[matching.Node]:
    last: list[Turn] = []
    others: list[matching.Node] = []
    for batch, is_failed in _list_turns(by_fit, small):
        if thorough:
            yield from _search_together(matcher, batch, is_failed, others)
            continue
        shelves = [shelf.get_shelf(profile, is_failed) for profile in batch]
        if all(profile_shelf.empty for profile_shelf in shelves):
            last.append((batch, is_failed))
            continue
        began, has_nodes = time.monotonic(), False
        for node in _search_turn(matcher, batch, is_failed, others):
            has_nodes = True
            yield node
        if not has_nodes and not small:
            cost = time.monotonic() - began
            for profile_shelf in shelves:
                profile_shelf.rest(min(cost * REST_TO_COST, LONGEST_REST))
    for batch, is_failed in last:
        yield from _search_turn(matcher, batch, is_failed, others)
    yield from others


def _list_turns(by_fit: ByFit, small: bool) -> Iterator[Turn]:
    """Yield the profiles that match, in the order in which to search them.

    A profile that had many free nodes when it was counted has its own turn.
    After all profiles that fit equally well, it has another turn for its nodes
    that failed recently or are unhealthy. Profiles without free nodes are
    searched together with their neighbors in the order of fit, because that
    takes one query, and there may be thousands of them. In a small fleet the
    same applies to profiles with few free nodes, except the best of them:
    where nodes are rare, most of them may be taken by now.
    """
    few = shelf.PAGE if small else 0
    for has_many, pairs in itertools.groupby(
            _order_profiles(by_fit), key=lambda pair: pair[0].free > few):
        if not has_many:
            batch = [profile for profile, _ in pairs]
            if batch[0].free:
                yield batch[:1], False
            yield batch, None
            continue
        for _, equal_pairs in itertools.groupby(
                pairs, key=operator.itemgetter(1)):
            equals = [profile for profile, _ in equal_pairs]
            for is_failed in False, True:
                if len(equals) > shelf.PAGE:
                    # Where each rack is a profile, there are many equals, and
                    # a page of each would serve one request only.
                    equals.sort(key=lambda profile:
                                not shelf.has_stock(profile, is_failed))
                for profile in equals:
                    yield [profile], is_failed


def _order_profiles(by_fit: ByFit) -> Iterator[
        tuple[profiles.Profile, tuple[Any, ...]]]:
    """Yield profiles and their fits, best fit first."""
    for fit, equals in by_fit:
        # Equals come in random order, so that processes do not compete for the
        # same nodes. Those without free nodes come last.
        equals = random.sample(equals, len(equals))
        equals.sort(key=lambda profile: not profile.free)
        for profile in equals:
            yield profile, fit


def _get_matches(matcher: matching.Matcher, fleet: profiles.Fleet) -> ByFit:
    """Return the profiles of a fleet that match, cached for equal requests.

    There are few flavors, and many requests for each of them per count.
    """
    if matcher.policy is not None:
        # The members of its group change with each hold.
        return _group_by_fit(
            matcher, matcher.find_profiles(fleet, *matcher.policy.levels.keys))
    cache = fleet.matches
    if matcher not in cache:
        if len(cache) >= MAX_CACHED_MATCHES:
            cache.clear()
        cache[matcher] = _group_by_fit(matcher, matcher.find_profiles(fleet))
    return cache[matcher]


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


def _get_avoid_failed() -> int:
    return conf.CONF.reservations.avoid_failed


def _search_turn(matcher: matching.Matcher, batch: list[profiles.Profile],
                 is_failed: bool | None,
                 others: list[matching.Node]) -> Iterator[matching.Node]:
    """Yield the free nodes of one turn that match.

    :param others: receives nodes that match and must come last.
    """
    if is_failed is None:
        yield from _search_together(matcher, batch, is_failed, others)
        return
    best, = batch
    for node in shelf.get_shelf(best, is_failed).nodes(
            functools.partial(_read_profile, best, is_failed)):
        # The node's properties are matched again, because the database may
        # read a number differently than Python.
        if not matcher.matches(node):
            continue
        # A statement that does not compare capabilities also finds nodes of
        # other profile groups, which have more of them, and usually their own
        # turn.
        if not best.is_whole or (
                node.capabilities.keys() <= best.capabilities.keys()):
            yield node
        else:
            others.append(node)


def _search_together(matcher: matching.Matcher,
                     batch: list[profiles.Profile], is_failed: bool | None,
                     others: list[matching.Node]) -> Iterator[matching.Node]:
    """Yield the free nodes of some profiles that match, without shelves.

    :param others: receives nodes that match and must come last.
    """
    nodes = _read_nodes(
        matcher,
        node_rows.is_in_profiles([profile.facts for profile in batch]),
        min(profile.first for profile in batch),
        max(profile.last for profile in batch), is_failed=is_failed)
    worst_fit = matcher.fit(batch[-1].node)
    for node in nodes:
        # The statement may find nodes of other profiles, too. Those with a
        # worse fit usually have a later turn, except if the database reads
        # their properties differently than Python.
        if matcher.fit(node) <= worst_fit:
            yield node
        else:
            others.append(node)


def _read_profile(profile: profiles.Profile, is_failed: bool, first: int,
                  last: int, limit: int) -> list[matching.Node]:
    """Return a page of the free nodes of a profile, in order of id."""
    return [dataclasses.replace(profile.node, **row._mapping)
            for row in engine.fetch_rows(*node_rows.select_profile_page(
                profile.facts, first, last, limit, is_failed,
                _get_avoid_failed()))]


def _read_nodes(matcher: matching.Matcher, where: sa.ColumnElement[bool],
                first: int = 0, last: int = request_spec.MAX_INT,
                limit: int = LARGE_PAGE,
                is_failed: bool | None = None) -> Iterator[matching.Node]:
    """Yield the free nodes that match, best fit of each page first.

    :param where: further condition.
    :param is_failed: whether to yield only nodes that failed recently, or
        only others; None for all.
    """
    while first <= last:
        rows = engine.fetch_rows(*node_rows.select_page(
            where, matcher, first, last, limit, is_failed,
            _get_avoid_failed()))
        LOG.debug('Read %d free nodes, starting at id %d', len(rows), first)
        yield from _sort_nodes(matcher, rows)
        # A page that is not full reaches the last id.
        first = rows[-1].id + 1 if len(rows) == limit else last + 1


def _sort_nodes(matcher: matching.Matcher, rows: Iterable[sa.Row[Any]]
                ) -> list[matching.Node]:
    """Return the nodes of rows that match, best fit first."""
    nodes = [node for node in (make_node(row._mapping) for row in rows)
             if matcher.is_visible(node) and matcher.matches(node)]
    random.shuffle(nodes)
    nodes.sort(key=lambda node: (matcher.fit(node), node.failed))
    return nodes


def make_node(row: Mapping[Any, Any]) -> matching.Node:
    """Return the Node of a row with all of ``expressions.FACTS``."""
    facts = dict(row)
    traits = facts.pop('traits')
    return matching.Node(
        **facts, traits=frozenset(traits.split(',') if traits else ()))
