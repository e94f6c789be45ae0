# SPDX-License-Identifier: Apache-2.0
"""Which nodes to try, and in which turn: profiles by fit, then their shelves.

The search reads, and decides nothing: a node that it gives may be taken or
changed at any moment, and the guarded update of the hold finds that out. So
what a search goes by may be old. What it leaves to the next one lies on the
shelves.
"""

import collections
import dataclasses
import functools
import itertools
import operator
import random
import time

from oslo_log import log
import sqlalchemy as sa

from ironic_reservations import conf
from ironic_reservations import matching
from ironic_reservations.db import engine
from ironic_reservations.db import expressions
from ironic_reservations.db import node_rows
from ironic_reservations.fleet import shelf
from ironic_reservations.matching import request_spec

LOG = log.getLogger(__name__)

#: Of how many requests it is remembered what matches in a count.
FLAVORS = 256

#: How many nodes are read at once where most of them may be of no use.
LARGE_PAGE = 1024

#: In a fleet of at most so many nodes, each search looks at the best fitting
#: profiles first, however lately another has found nothing there.
SMALL = 2000

#: A profile in which nothing was found is looked at last for so many times
#: the seconds that the look took, and for so many seconds at most.
REST_TO_COST, LONGEST_REST = 50, 5


def find_nodes(matcher, fleet, thorough=False):
    """Free nodes that satisfy a request, the best fitting ones first.

    Stop iterating once you have taken a node; asking for the next one says
    that the last was lost to somebody else.

    :param matcher: matching.Matcher.
    :param fleet: profiles.Fleet by which the search goes. A node of a profile
        that was not counted is not found.
    :param thorough: whether to read all nodes for this request alone, rather
        than to go by what others have read. A node on a shelf goes to one
        request only, which may then not take it.
    :returns: iterator of matching.Node.
    """
    if matcher.spec.candidate_nodes:
        return _find_candidates(matcher)
    return _search_in_turn(matcher, _get_by_fit(matcher, fleet), thorough,
                    small=fleet.total <= SMALL)


def find_nodes_among(matcher, matches, thorough=False):
    """The same among profiles that are known to match, in a small fleet.

    :param matches: what Matcher.find_profiles returns.
    """
    if matcher.spec.candidate_nodes:
        return _find_candidates(matcher)
    return _search_in_turn(matcher, _group_by_fit(matcher, matches), thorough,
                           small=True)


def _find_candidates(matcher):
    named = sa.and_(*map(expressions.is_named, matcher.spec.candidate_nodes))
    # All of them in one page, so that the best fit comes first.
    return _read_nodes(matcher, named, limit=request_spec.MAX_INT)


def _search_in_turn(matcher, by_fit, thorough, small):
    last, others = [], []
    for profiles, failed in _list_turns(by_fit, small):
        if thorough:
            yield from _search_together(matcher, profiles, failed, others)
            continue
        shelves = [shelf.get_shelf(profile, failed) for profile in profiles]
        if all(each.empty for each in shelves):
            last.append((profiles, failed))
            continue
        began, found = time.monotonic(), False
        for node in _search_profile(matcher, profiles, failed, others):
            found = True
            yield node
        if not found and not small:
            took = time.monotonic() - began
            for each in shelves:
                each.rest(min(took * REST_TO_COST, LONGEST_REST))
    for profiles, failed in last:
        yield from _search_profile(matcher, profiles, failed, others)
    yield from others


def _list_turns(by_fit, small):
    """Yield lists of profiles that match, to be looked through in turn.

    A profile that had many free nodes when it was counted has a turn of its
    own, and after all that fit as well another one, for those of its nodes
    that have failed lately or are not well. Profiles that had none are looked
    through together with their neighbours in the order of fit, because it
    takes one query for all of them, and there may be thousands. In a small
    fleet so are those that had few, after the best of them: where nodes are
    rare, most of those that were counted are taken by now.

    :param by_fit: what ``_by_fit`` returns.
    :returns: iterator of pairs of profiles, and whether to look for nodes
        that have failed lately; None for all nodes.
    """
    few = shelf.PAGE if small else 0
    for has_many, found in itertools.groupby(
            _order_profiles(by_fit), key=lambda pair: pair[0].free > few):
        if not has_many:
            found = [profile for profile, _ in found]
            if found[0].free:
                yield found[:1], False
            yield found, None
            continue
        for _, equals in itertools.groupby(found, key=lambda pair: pair[1]):
            equals = [profile for profile, _ in equals]
            for failed in False, True:
                if len(equals) > shelf.PAGE:
                    # Where each rack is a profile of its own there are many
                    # equals. A page of each would serve one request only.
                    equals.sort(key=lambda each:
                                not shelf.has_stock(each, failed))
                for profile in equals:
                    yield [profile], failed


def _order_profiles(by_fit):
    """Yield profiles and their fits, the best first."""
    for fit, equals in by_fit:
        # Equally good ones come in random order, or every process would want
        # the same nodes; those last in which nothing was free.
        equals = random.sample(equals, len(equals))
        equals.sort(key=lambda profile: not profile.free)
        for profile in equals:
            yield profile, fit


def _get_by_fit(matcher, fleet):
    """What ``_by_fit`` says of a fleet, worked out once for each request.

    Flavors are few, and a count serves many requests of each.
    """
    known = fleet.remembered
    if matcher.policy is not None:
        # The members of its group change with each hold.
        return _group_by_fit(
            matcher, matcher.find_profiles(fleet, matcher.policy.by))
    if matcher not in known:
        if len(known) >= FLAVORS:
            known.clear()
        known[matcher] = _group_by_fit(matcher, matcher.find_profiles(fleet))
    return known[matcher]


def _group_by_fit(matcher, matches):
    """Pairs of a fit and the profiles that fit so, the best first: a list."""
    by_fit = collections.defaultdict(list)
    for group, profiles in matches:
        alone = matcher.fit_alone(group.node)
        if matcher.policy is None:
            by_fit[alone] += profiles
            continue
        for profile in profiles:
            by_fit[matcher.fit_in(profile.find_domain(matcher.policy.by),
                                  alone)].append(profile)
    return sorted(by_fit.items(), key=operator.itemgetter(0))


def _get_avoid_failed():
    return conf.CONF.reservations.avoid_failed


def _search_profile(matcher, profiles, failed, others):
    """Yield the free nodes of one turn that match.

    :param others: a list for those that match and are to come last of all.
    """
    if failed is None:
        yield from _search_together(matcher, profiles, failed, others)
        return
    best, = profiles
    for node in shelf.get_shelf(best, failed).nodes(
            functools.partial(_read_profile, best, failed)):
        # Matching reads the node's own properties once more, because the
        # database may read a number otherwise than Python does.
        if not matcher.matches(node):
            continue
        # Where the database has not compared the capabilities it also finds
        # nodes of other profile groups, which have more of them, and usually
        # a turn of their own.
        if not best.is_whole or (
                node.capabilities.keys() <= best.capabilities.keys()):
            yield node
        else:
            others.append(node)


def _search_together(matcher, profiles, failed, others):
    """Yield the free nodes of some profiles that match, without shelves.

    :param others: a list for those that match and are to come last of all.
    """
    found = _read_nodes(
        matcher, node_rows.is_in_profiles([each.facts for each in profiles]),
        min(each.first for each in profiles),
        max(each.last for each in profiles), failed=failed)
    worst_fit = matcher.fit(profiles[-1].node)
    for node in found:
        # The statement may find nodes of other profiles, too. Those that fit
        # worse than all of these have a turn later, as a rule: not those whose
        # properties the database reads otherwise than Python does.
        if matcher.fit(node) <= worst_fit:
            yield node
        else:
            others.append(node)


def _read_profile(profile, failed, first, last, limit):
    """A page of the free nodes of a profile, in order of id."""
    return [dataclasses.replace(profile.node, **row._mapping)
            for row in engine.fetch_rows(*node_rows.select_profile_page(
                profile.facts, first, last, limit, failed,
                _get_avoid_failed()))]


def _read_nodes(matcher, where, first=0, last=request_spec.MAX_INT,
          limit=LARGE_PAGE, failed=None):
    """Yield the free nodes that match, the best fitting of each page first.

    :param where: what else is asked of them, in SQL.
    :param failed: only those that have failed lately, or only the others;
        None for all.
    """
    while first <= last:
        rows = engine.fetch_rows(*node_rows.select_page(
            where, matcher, first, last, limit, failed, _get_avoid_failed()))
        LOG.debug('Read %d free nodes from id %d on', len(rows), first)
        found = [node for node in (make_node(row._mapping) for row in rows)
                 if matcher.matches(node)]
        random.shuffle(found)
        found.sort(key=lambda node: (matcher.fit(node), node.failed))
        yield from found
        # A page that is not full has come to the last id.
        first = rows[-1].id + 1 if len(rows) == limit else last + 1


def make_node(row):
    """A matching.Node of a row that has all of ``expressions.FACTS``.

    :param row: a mapping.
    """
    facts = dict(row)
    traits = facts.pop('traits')
    return matching.Node(
        **facts, traits=frozenset(traits.split(',') if traits else ()))
