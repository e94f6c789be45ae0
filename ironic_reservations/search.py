# SPDX-License-Identifier: Apache-2.0
"""Which node to hold: profiles order the search, current rows decide."""

import itertools
import random

from ironic_reservations import capacity
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import request_spec
from ironic_reservations.db import engine
from ironic_reservations.db import queries

#: How many nodes are read at once, at first and at most.
PAGE, LARGEST_PAGE = 16, 1024

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
    profiles = capacity.at_hand() if not spec.candidate_nodes else ()
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
        yield from _nodes(spec, asked, limited_to,
                          list(map(queries.are, spec.candidate_nodes)),
                          [(0, request_spec.MAX_INT)], LARGEST_PAGE)
        return
    fitting = [profile for profile in profiles
               if profile.visible_to(limited_to)
               and matching.matches(asked, profile.node)]
    # Equals in random order here and below, or every process would want the
    # same.
    random.shuffle(fitting)
    fitting.sort(key=lambda profile: matching.fit(spec, profile.node))
    for has_free, group in itertools.groupby(
            fitting, key=lambda profile: bool(profile.free)):
        if has_free:
            for profile in group:
                yield from _of(spec, asked, limited_to, [profile], PAGE)
        else:
            # They had no free node when they were counted. One may have come
            # free since: look through all of them at once.
            yield from _of(spec, asked, limited_to, list(group), LARGEST_PAGE)


def _of(spec, asked, limited_to, profiles, size):
    """Yield the free nodes of some profiles."""
    first = min(profile.first for profile in profiles)
    last = max(profile.last for profile in profiles)
    # From a random id on and round, so that many processes do not meet.
    start = random.randint(first, last)
    yield from _nodes(spec, asked, limited_to,
                      [queries.like([profile.raw for profile in profiles])],
                      [(start, last), (first, start - 1)], size)


def _nodes(spec, asked, limited_to, where, ranges, size):
    """Yield the free nodes that match, each page's best fit first.

    :param where: what narrows the search in SQL.
    :param ranges: of ids, pairs, to be read in this order.
    :param size: of the first page; they grow when nothing comes of them.
    """
    where = [*queries.FREE, queries.UNLOCKED, *where,
             *queries.visible_to(limited_to)]
    rows = []
    while ranges:
        first, last = ranges[0]
        got = _read(queries.page(where, first, last, size - len(rows)))
        if len(got) < size - len(rows):
            ranges.pop(0)
        else:
            ranges[0] = got[-1].id + 1, last
        rows += got
        if rows and (len(rows) == size or not ranges):
            page = [node for node in _facts(rows)
                    if matching.matches(asked, node)]
            random.shuffle(page)
            page.sort(key=lambda node: matching.fit(spec, node))
            yield from page
            rows, size = [], min(size * 4, LARGEST_PAGE)


def _facts(rows):
    """The nodes of a page with their traits."""
    traits = {row.id: set() for row in rows}
    for node_id, trait in _read(queries.traits_of(traits)):
        traits[node_id].add(trait)
    return [matching.Node(**row._mapping, traits=frozenset(traits[row.id]))
            for row in rows]


def _read(query):
    with engine.get_engine().connect() as connection:
        return connection.execute(query).all()
