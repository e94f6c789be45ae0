# SPDX-License-Identifier: Apache-2.0
"""Which node to hold: profiles order the search, current rows decide."""

import dataclasses
import functools
import itertools
import random
import time

import sqlalchemy as sa

from ironic_reservations import capacity
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import request_spec
from ironic_reservations.db import engine
from ironic_reservations.db import queries

#: How many nodes are read at once, at first and at most.
PAGE, LARGEST_PAGE = 16, 1024

#: How many ids the first look is at.
NEAR = 2048

#: Of a profile with so few free nodes all are read at once.
FEW = 16

#: In a fleet of so many nodes each search looks at the best fit first.
SMALL = 2000

#: Seconds for which a profile comes last, at most, after a look in vain.
PASSED_OVER = 5

#: After how many looks in vain in a row none is made at ids near by.
MISSES = 4

#: For how many requests it is remembered which profiles fit.
REMEMBERED = 256

#: How often a search begins anew because all that it found was taken.
_SEARCHES = 5


def search(spec, limited_to):
    """Yield nodes that satisfy a request, the best fit first.

    Whoever takes a node stops; to go on says that it was lost to another.

    :param spec: RequestSpec.
    :param limited_to: a project: only nodes that it owns or leases.
    :returns: iterator of matching.Node.
    :raises: NoMatchingNode when the fleet as it is now has none.
    """
    asked = matching.constraints(spec)
    profiles = _at_hand(spec)
    for counted in range(_SEARCHES):
        lost = False
        for node in _candidates(spec, asked, limited_to, profiles):
            lost = True
            yield node
        # All of what was counted before is gone. Count the fleet as it is:
        # only that may say that there is none.
        profiles = _count(spec)
        verdict = explain(asked, limited_to, profiles)
        if not verdict['matching_nodes'] or (counted > 1 and not lost):
            # Or else what counts as matching is not to be had: a lapsed
            # reservation holds it, or matching reads it another way.
            raise _none(verdict)
    raise exception.NoMatchingNode(
        'The nodes that match the request are being taken or changed at the '
        'moment; try again.', verdict['explanation'], retry=True)


def first_look(spec, limited_to):
    """Yield what ``search`` finds before it counts the fleet, or nothing."""
    yield from _candidates(spec, matching.constraints(spec), limited_to,
                           _at_hand(spec))


def explain(asked, limited_to, profiles):
    """What matches, and why the rest does not.

    :returns: dict of ``matching_nodes`` (how many could be held this very
        moment), ``profiles`` (those of the matching nodes, with all of their
        nodes) and ``explanation`` (see matching.explain).
    """
    visible = [profile for profile in profiles
               if profile.visible_to(limited_to)]
    fitting = [profile for profile in visible
               if matching.matches(asked, profile.node)]
    return {
        'matching_nodes': sum(profile.counts.get(None, 0)
                              for profile in fitting),
        'profiles': capacity.present(fitting),
        'explanation': matching.explain(asked, (
            (profile.node, reason, nodes) for profile in visible
            for reason, nodes in profile.counts.items())),
    }


@engine.retry
def dry_run(spec, limited_to):
    """``explain`` for a request, on the fleet as it is now."""
    return explain(matching.constraints(spec), limited_to, _count(spec))


def _at_hand(spec):
    return () if spec.candidate_nodes else capacity.at_hand()


def _count(spec):
    if spec.candidate_nodes:
        return capacity.count(spec.candidate_nodes)
    return capacity.fresh()


def _none(verdict):
    """The error that says why there is no node."""
    explanation = verdict['explanation']
    eliminated = explanation['eliminated']
    told = ', '.join(f'{each["by"]} eliminates {each["nodes"]}'
                     for each in eliminated[:5])
    return exception.NoMatchingNode(
        f'No free node matches the request: of {explanation["considered"]} '
        f'nodes, {told or "none can be seen"}'
        + (', and more.' if len(eliminated) > 5 else '.'),
        explanation,
        # Locks are the last obstacle: whom they eliminate matched otherwise.
        retry=any(each['by'] == matching.LOCKED for each in eliminated))


def _candidates(spec, asked, limited_to, profiles):
    """Yield the free nodes that match: profile after profile."""
    if spec.candidate_nodes:
        named = sa.and_(*map(queries.are, spec.candidate_nodes))
        yield from _any(spec, asked, limited_to, named,
                        0, request_spec.MAX_INT, request_spec.MAX_INT)
        return
    last = []
    for looked_at, nodes in _looks(spec, asked, limited_to, profiles):
        began = time.monotonic()
        if all(began < profile.used_up_until for profile in looked_at):
            last.append(nodes)
            continue
        found = False
        for node in nodes:
            found = True
            yield node
        if not found and profiles.total > SMALL:
            took = time.monotonic() - began
            # The rule for counting them holds for looking in vain, too.
            again = began + min(took * capacity.AGE_TO_COST, PASSED_OVER)
            for profile in looked_at:
                profile.used_up_until = again
    yield from itertools.chain.from_iterable(last)


def _looks(spec, asked, limited_to, profiles):
    """Yield what to look through: profiles, and their free nodes.

    The nodes are an iterator, of those that match.
    """
    fits = _fits(spec, asked, limited_to, profiles)
    # Equals in random order here and below, or every process would want the
    # same.
    fitting = random.sample(list(fits), len(fits))
    fitting.sort(key=fits.get)
    for has_free, group in itertools.groupby(
            fitting, key=lambda profile: bool(profile.free)):
        if has_free:
            for profile in group:
                yield [profile], _alike(asked, limited_to, profile)
        else:
            group = list(group)
            yield group, _come_free(spec, asked, limited_to, group,
                                    fits[group[-1]])


def _come_free(spec, asked, limited_to, profiles, worst):
    """Yield nodes of profiles that had no free one when they were counted.

    All of them are looked through at once.

    :param worst: how badly the last of them fits.
    """
    like = queries.like([profile.raw for profile in profiles])
    for node in _any(spec, asked, limited_to, like,
                     min(profile.first for profile in profiles),
                     max(profile.last for profile in profiles),
                     LARGEST_PAGE):
        # Among so many profiles there are others: their turn comes.
        if matching.fit(spec, node) <= worst:
            yield node


def _fits(spec, asked, limited_to, profiles):
    """The profiles that match, and how badly they fit.

    Most requests ask for what others have asked for, of the same profiles.
    """
    known = profiles.fits.get((spec, limited_to))
    if known is None:
        known = {profile: matching.fit(spec, profile.node)
                 for profile in profiles if profile.visible_to(limited_to)
                 and matching.matches(asked, profile.node)}
        if len(profiles.fits) < REMEMBERED:
            profiles.fits[spec, limited_to] = known
    return known


def _alike(asked, limited_to, profile):
    """Yield the free nodes of a profile, which all fit as well."""
    page = functools.partial(queries.page_like, profile.raw, limited_to)
    pages = (_pages(page, profile.first, profile.last, FEW)
             if profile.free <= FEW else _round(page, profile))
    yield from _offer(asked, profile, profile.spare)
    for rows in pages:
        yield from _offer(asked, profile, [
            dataclasses.replace(profile.node, **row._mapping)
            for row in rows])


def _offer(asked, profile, nodes):
    """Yield nodes of a profile; who needs no more leaves the next ones some.

    The guard of the hold knows whether such a node is still as it was read.
    """
    nodes, profile.spare = nodes[:], []
    random.shuffle(nodes)
    try:
        while nodes:
            node = nodes.pop()
            if matching.matches(asked, node):
                yield node
    finally:
        profile.spare = nodes[:FEW]


def _round(page, profile):
    """Pages from a random id on, so that many processes do not meet."""
    start = random.randint(profile.first, profile.last)
    before = start
    if (profile.misses < MISSES
            and engine.has_index(queries.CLASS_INDEX)):
        # Mostly there is a free one near by.
        before = min(start + NEAR, profile.last) + 1
        near = functools.partial(page, near=True)
        profile.misses += 1
        for rows in _pages(near, start, before - 1, PAGE):
            profile.misses = 0
            yield rows
    yield from _pages(page, before, profile.last, PAGE)
    yield from _pages(page, profile.first, start - 1, PAGE)


def _any(spec, asked, limited_to, where, first, last, size):
    """Yield the free nodes that match, each page's best fit first."""
    page = functools.partial(queries.page, where, limited_to)
    for rows in _pages(page, first, last, size):
        nodes = [node for node in map(_node, rows)
                 if matching.matches(asked, node)]
        random.shuffle(nodes)
        nodes.sort(key=lambda node: matching.fit(spec, node))
        yield from nodes


def _node(row):
    facts = dict(row._mapping)
    traits = facts.pop('traits')
    return matching.Node(
        **facts, traits=frozenset(traits.split(',') if traits else ()))


def _pages(page, first, last, size):
    """Yield lists of rows, ever longer ones.

    :param page: the query of a page, a function of its ids and its size.
    """
    while first <= last:
        rows = engine.rows(*page(first, last, size))
        if not rows:
            return
        first = rows[-1].id + 1 if len(rows) == size else last + 1
        size = min(size * 4, LARGEST_PAGE)
        yield rows
