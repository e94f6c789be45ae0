# SPDX-License-Identifier: Apache-2.0
"""The fleet, counted by hardware profile.

A hardware profile is a set of nodes that no request can tell apart. A fleet
of 100,000 nodes has tens of them. A search tries them in turn, an explanation
speaks of them, and the capacity lists them.

Counts are values: they never change, and they may be old. That makes no wrong
answer, because whether a node is free is decided on its current row.
"""

import collections
import contextlib
import dataclasses
import functools
import json
import threading
import time

from oslo_log import log

from ironic_reservations import matching
from ironic_reservations.db import counting
from ironic_reservations.db import engine
from ironic_reservations.db import functions
from ironic_reservations.db import queries

LOG = log.getLogger(__name__)

#: ``recent`` counts again when the last count is older than this many times
#: what it took, so that counting takes at most a fiftieth of the time.
AGE_TO_COST = 50

#: Seconds for which a worker that is counting has the others wait at most.
LONGEST_COUNT = 10

#: Characters of a count that is shared. In a fleet of very many profiles each
#: worker counts for itself, rather than read megabytes.
LARGEST_SHARED = 4 * 2 ** 20


@dataclasses.dataclass(frozen=True, eq=False)
class Profile:
    """Nodes that no request can tell apart.

    :param facts: what they have in common as the database spells it, by the
        names of ``queries.PROFILE``.
    :param node: a matching.Node that stands for each of them.
    :param counts: numbers of nodes by why they cannot be held (one of
        ``matching.REASONS``); None: they can.
    :param first: the least id of these nodes. Nodes that were enrolled
        together are near each other.
    :param last: the greatest id.
    :param held: numbers of nodes by the host that holds them, where that was
        asked for.
    """

    facts: dict
    node: matching.Node
    counts: dict
    first: int
    last: int
    held: dict

    @classmethod
    def of(cls, facts, counts, first, last, held=None, uuid=None, name=None):
        """A profile whose ``node`` is made of the facts.

        :param uuid: of the node, if the profile is one node's alone,
        :param name: and its name.
        """
        properties = facts['irregular_properties'] or json.dumps(
            {key: facts[key] for key in ('memory_mb', 'cpus', 'local_gb',
                                         'cpu_arch', 'capabilities')
             if facts[key] is not None})
        node = matching.Node(
            id=0, uuid=uuid, name=name, properties=properties,
            traits=frozenset(
                facts['traits'].split(',') if facts['traits'] else ()),
            **{key: facts[key] for key in
               ('resource_class', 'conductor_group', 'shard', 'owner',
                'lessee')})
        return cls(facts, node, counts, first, last, held or {})

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

    @classmethod
    def from_json(cls, text):
        """A Fleet that ``to_json`` has written."""
        return cls(tuple(
            Profile.of(facts, dict(counts), first, last)
            for facts, counts, first, last in json.loads(text)))

    def to_json(self):
        """The profiles as text, without the hosts that hold nodes."""
        return json.dumps([
            (profile.facts, list(profile.counts.items()), profile.first,
             profile.last) for profile in self.profiles])

    @functools.cached_property
    def total(self):
        """How many nodes there are."""
        return sum(profile.total for profile in self.profiles)


@engine.retry
def count(candidates=(), with_hosts=False):
    """Count the fleet as it is now: see ``db.counting``.

    :param candidates: sets of UUIDs and names; a node that is in one of them
        becomes a profile of its own, with its uuid and name.
    :param with_hosts: whether to count, too, which host holds how many.
    :returns: Fleet.
    """
    began = time.monotonic()
    kinds = collections.defaultdict(list)
    for kind in counting.rows(candidates, with_hosts):
        kinds[tuple(kind.facts.items()), kind.candidate].append(kind)
    fleet = Fleet(tuple(map(_profile, kinds.values())))
    LOG.debug('Counted %(nodes)d nodes in %(profiles)d hardware profiles '
              'within %(seconds).3f s',
              {'nodes': fleet.total, 'profiles': len(fleet.profiles),
               'seconds': time.monotonic() - began})
    return fleet


def _profile(kinds):
    """A Profile of the kinds that differ in their reason and host alone."""
    counts, held = collections.Counter(), collections.Counter()
    for kind in kinds:
        counts[kind.reason] += kind.nodes
        if kind.host is not None:
            held[kind.host] += kind.nodes
    uuid, name = kinds[0].candidate or (None, None)
    return Profile.of(
        kinds[0].facts, counts, min(kind.first for kind in kinds),
        max(kind.last for kind in kinds), held, uuid, name)


class Latest:
    """The newest count that this process has.

    One request at a time counts. Those that wait for it meanwhile take what
    it has counted, if that is fresh enough for them.

    :param count: function that returns a Fleet.
    :param shared: Shared, where the workers exchange their counts; None
        where each counts for itself.
    """

    def __init__(self, count=count, shared=None):
        self._count_fleet, self._shared = count, shared
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
                    self._renew()
            finally:
                self._lock.release()
        return self._fleet

    def at_most(self, max_age):
        """A Fleet that is at most so many seconds old, and its age.

        For a ``max_age`` of 0 it is counted after the call has begun, by
        this process.
        """
        asked = time.monotonic()
        if asked - self._began > max_age:
            with self._lock:
                if asked - self._began > max_age:
                    self._count()
        return self._fleet, max(asked - self._began, 0)

    def _is_old(self):
        return time.monotonic() - self._began > self._cost * AGE_TO_COST

    def _renew(self):
        """Take what another worker has counted; if that is old, too, count.

        While another worker is counting, an old count will do.
        """
        if self._shared is None:
            self._count()
            return
        fleet, age, cost = self._shared.newest()
        if fleet and time.monotonic() - age > self._began:
            self._fleet, self._cost = fleet, cost
            self._began = time.monotonic() - age
        if not self._is_old():
            return
        with self._shared.counting() as publish:
            if publish:
                self._count()
                publish(self._fleet, self._cost)
            elif self._fleet is None:
                self._count()

    def _count(self):
        began = time.monotonic()
        self._fleet = self._count_fleet()
        self._began, self._cost = began, time.monotonic() - began


class Shared:
    """The count that all workers of all API hosts share: a row of our own.

    Without it each of them would take a fiftieth of a core of the database
    for counting. A worker that is killed while it counts has the others wait
    for ``LONGEST_COUNT`` seconds, in which they go on with what they have.
    """

    def __init__(self):
        # The count that this process has read last.
        self._counted_at, self._fleet = None, None

    def newest(self):
        """The newest count: a Fleet or None, its age and its cost.

        Ages and costs are in seconds.
        """
        for row in engine.rows(queries.shared_count(LONGEST_COUNT)):
            # A count of the future was made before the clock was set back.
            if not row.cost or row.age < 0:
                break
            if row.counted_at != self._counted_at:
                [(self._counted_at, text)] = engine.rows(
                    queries.shared_profiles())
                self._fleet = Fleet.from_json(text)
            return self._fleet, row.age, row.cost
        return None, 0, 0

    @contextlib.contextmanager
    def counting(self):
        """Be the one worker that counts.

        :returns: a function of a Fleet and its cost that publishes them;
            None when another worker is counting.
        """
        with engine.transaction() as connection:
            begun = connection.execute(
                queries.begin_count(LONGEST_COUNT)).rowcount
        if not begun:
            yield None
            return
        found = {}

        def publish(fleet, cost):
            text = fleet.to_json()
            if len(text) <= LARGEST_SHARED:
                found.update(profiles=text, cost=cost,
                             counted_at=functions.epoch() - cost)

        try:
            yield publish
        finally:
            with engine.transaction() as connection:
                connection.execute(queries.end_count(**found))


_latest = Latest(shared=Shared())
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
