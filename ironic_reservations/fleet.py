# SPDX-License-Identifier: Apache-2.0
"""The fleet, counted by hardware profile.

A hardware profile is a set of nodes that no request can tell apart. A fleet
of 100,000 nodes has tens of them. A search tries them in turn, an explanation
speaks of them, and the capacity lists them.

Counts are values: they never change, and they may be old. That makes no wrong
answer, because whether a node is free is decided on its current row.
"""

import collections
import dataclasses
import functools
import json
import threading
import time

from oslo_log import log

from ironic_reservations import matching
from ironic_reservations.db import engine
from ironic_reservations.db import functions
from ironic_reservations.db import queries

LOG = log.getLogger(__name__)

#: ``recent`` counts again when the last count is older than this many times
#: what it took, so that counting takes at most a fiftieth of the time.
AGE_TO_COST = 50


@dataclasses.dataclass(frozen=True, eq=False)
class Profile:
    """Nodes that no request can tell apart.

    :param facts: what they have in common as the database spells it, by the
        names of ``queries.PROFILE``.
    :param node: a matching.Node that stands for each of them.
    :param counts: numbers of nodes by why they cannot be held (one of
        ``matching.REASONS``); None: they can.
    :param held: numbers of nodes by the host that holds them, where that was
        asked for.
    :param first: the least id of these nodes. Nodes that were enrolled
        together are near each other.
    :param last: the greatest id.
    """

    facts: dict
    node: matching.Node
    counts: dict
    held: dict
    first: int
    last: int

    @property
    def total(self):
        return sum(self.counts.values())

    @property
    def free(self):
        """How many nodes could be held, were it not for a passing lock."""
        return self.available + self.counts.get(matching.LOCKED, 0)

    @property
    def available(self):
        """How many nodes could be held this very moment."""
        return self.counts.get(None, 0)

    @functools.cached_property
    def key(self):
        """All that a request can tell of these nodes."""
        node = self.node
        return (node.resource_class, *node.sizes.values(), node.cpu_arch,
                tuple(sorted(node.capabilities.items())),
                tuple(sorted(node.traits)), node.conductor_group, node.shard,
                node.owner, node.lessee)


@dataclasses.dataclass(frozen=True, eq=False)
class Fleet:
    """All profiles, counted at the same moment."""

    profiles: tuple[Profile, ...]

    @functools.cached_property
    def total(self):
        """How many nodes there are."""
        return sum(profile.total for profile in self.profiles)


@engine.retry
def count(candidates=(), with_hosts=False):
    """Count the fleet as it is now: one aggregate query.

    :param candidates: sets of UUIDs and names; a node that is in one of them
        becomes a profile of its own, with its uuid and name.
    :param with_hosts: whether to count, too, which host holds how many.
    :returns: Fleet.
    """
    began = time.monotonic()
    rows = collections.defaultdict(list)
    for row in engine.rows(queries.fleet(candidates, with_hosts)):
        facts = tuple((name, functions.as_text(value))
                      for name, value in row._mapping.items()
                      if name.startswith(('profile_', 'candidate_')))
        rows[facts].append(row._mapping)
    fleet = Fleet(tuple(_profile(dict(facts), alike)
                        for facts, alike in rows.items()))
    LOG.debug('Counted %(nodes)d nodes in %(profiles)d hardware profiles '
              'within %(seconds).3f s',
              {'nodes': fleet.total, 'profiles': len(fleet.profiles),
               'seconds': time.monotonic() - began})
    return fleet


def _profile(labelled, rows):
    """A Profile of the rows that differ in ``reason`` and ``host`` alone."""
    facts = {name: labelled[f'profile_{name}'] for name in queries.PROFILE}
    properties = facts['irregular_properties'] or json.dumps(
        {name: facts[name] for name in ('memory_mb', 'cpus', 'local_gb',
                                        'cpu_arch', 'capabilities')
         if facts[name] is not None})
    node = matching.Node(
        id=0, uuid=labelled.get('candidate_uuid'),
        name=labelled.get('candidate_name'), properties=properties,
        traits=frozenset(
            facts['traits'].split(',') if facts['traits'] else ()),
        **{name: facts[name] for name in
           ('resource_class', 'conductor_group', 'shard', 'owner',
            'lessee')})
    counts, held = collections.Counter(), collections.Counter()
    for row in rows:
        counts[row['reason']] += row['nodes']
        if row.get('host') is not None:
            held[functions.as_text(row['host'])] += row['nodes']
    return Profile(
        facts, node, counts, held,
        min(row['first'] for row in rows), max(row['last'] for row in rows))


class Latest:
    """The newest count of this process.

    One request at a time counts. Those that wait for it meanwhile take what
    it has counted, if that is fresh enough for them.

    :param compute: returns a Fleet.
    """

    def __init__(self, compute=count):
        self._compute = compute
        self._lock = threading.Lock()
        self._fleet, self._began, self._cost = None, -float('inf'), 0

    def recent(self):
        """A Fleet whose age is at most ``AGE_TO_COST`` times its cost.

        While one request counts again, the others go on with the old count;
        only the very first have none to go on with, and wait.
        """
        if self._is_old() and self._lock.acquire(blocking=not self._fleet):
            try:
                if self._is_old():
                    self._count()
            finally:
                self._lock.release()
        return self._fleet

    def at_most(self, max_age):
        """A Fleet that is at most so many seconds old, and its age.

        For a ``max_age`` of 0 it is counted after the call has begun.
        """
        asked = time.monotonic()
        if asked - self._began > max_age:
            with self._lock:
                if asked - self._began > max_age:
                    self._count()
        return self._fleet, max(asked - self._began, 0)

    def _is_old(self):
        return time.monotonic() - self._began > self._cost * AGE_TO_COST

    def _count(self):
        began = time.monotonic()
        self._fleet = self._compute()
        self._began, self._cost = began, time.monotonic() - began


_latest = Latest()
# What a host holds and what is free are counted at the same moment, because a
# node that changes in between would count twice: a node gets its instance's
# project as lessee when it is deployed, for example.
_latest_with_hosts = Latest(functools.partial(count, with_hosts=True))


def recent():
    """A Fleet to order a search by; it may be old."""
    return _latest.recent()


@engine.retry
def at_most(max_age, with_hosts=False):
    """A Fleet that is at most so many seconds old, and its age in seconds.

    :param with_hosts: see ``count``.
    """
    latest = _latest_with_hosts if with_hosts else _latest
    return latest.at_most(max_age)


def fresh(candidates=()):
    """A Fleet that was counted after the call has begun.

    :param candidates: see ``count``.
    """
    return count(candidates) if candidates else at_most(0)[0]
