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
from ironic_reservations.db import counting
from ironic_reservations.db import engine

LOG = log.getLogger(__name__)

#: ``recent`` counts again when the last count is older than this many times
#: what it took, so that counting takes at most a fiftieth of the time.
AGE_TO_COST = 50


@dataclasses.dataclass(frozen=True, eq=False)
class Profile:
    """Nodes that no request can tell apart.

    :param facts: what they have in common as the database spells it, by the
        names of ``expressions.PROFILE``.
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
    def claimable(self):
        """How many are held for instances that may take them over."""
        return self.counts.get(matching.CLAIMABLE, 0)

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
    def kinds(self):
        """Lists of profiles that differ in the values of capabilities alone.

        Where a capability names the rack there are thousands of profiles, but
        no more of these lists than there are kinds of machines.
        """
        found = collections.defaultdict(list)
        for profile in self.profiles:
            node = profile.node
            found[node.uuid, node.resource_class, *node.sizes.values(),
                  node.cpu_arch, frozenset(node.capabilities), node.traits,
                  node.conductor_group, node.shard, node.owner,
                  node.lessee].append(profile)
        return list(found.values())

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


@dataclasses.dataclass(frozen=True)
class _Count:
    """A Fleet, when it began to be counted, and how long that took.

    :param began: on time.monotonic().
    :param cost: seconds.
    """

    fleet: Fleet | None = None
    began: float = -float('inf')
    cost: float = 0

    @property
    def is_old(self):
        return time.monotonic() - self.began > self.cost * AGE_TO_COST


class Latest:
    """The newest count that this process has.

    One request at a time counts. Those that wait for it meanwhile take what
    it has counted, if that is fresh enough for them, and wait until their
    deadline only: see ``engine.locked``.

    :param count: function that returns a Fleet.
    """

    def __init__(self, count=count):
        self._count_fleet = count
        self._lock = threading.Lock()
        self._newest = _Count()

    def recent(self):
        """A Fleet whose age is at most ``AGE_TO_COST`` times its cost.

        While one request counts again, the others go on with the old count;
        only the very first have none to go on with, and wait.

        :returns: Fleet, and whether this request has counted it.
        """
        counted = False
        if self._newest.fleet is None:
            with engine.locked(self._lock):
                counted = self._renew()
        elif self._newest.is_old and self._lock.acquire(blocking=False):
            try:
                counted = self._renew()
            finally:
                self._lock.release()
        return self._newest.fleet, counted

    def at_most(self, max_age):
        """A Fleet that is at most so many seconds old, and its age.

        For a ``max_age`` of 0 it was counted after the call has begun.
        """
        asked = time.monotonic()
        if asked - self._newest.began > max_age:
            with engine.locked(self._lock):
                if asked - self._newest.began > max_age:
                    self._count()
        newest = self._newest
        return newest.fleet, max(asked - newest.began, 0)

    def _renew(self):
        # Another request may have counted before this one had the lock.
        if not self._newest.is_old:
            return False
        self._count()
        return True

    def _count(self):
        began = time.monotonic()
        fleet = self._count_fleet()
        self._newest = _Count(fleet, began, time.monotonic() - began)


_latest = Latest()
# What a host holds and what is free are counted at the same moment, because a
# node that changes in between would count twice: a node gets its instance's
# project as lessee when it is deployed, for example.
_latest_with_hosts = Latest(functools.partial(count, with_hosts=True))


def recent():
    """A Fleet to order a search by; it may be old: see ``Latest.recent``."""
    return _latest.recent()


@engine.retry
def at_most(max_age, with_hosts=False):
    """A Fleet that is at most so many seconds old, and its age in seconds.

    :param with_hosts: see ``count``.
    """
    latest = _latest_with_hosts if with_hosts else _latest
    return latest.at_most(max_age)


def fresh(candidates=(), since=None):
    """A Fleet that was counted after a moment.

    :param candidates: see ``count``.
    :param since: the moment, on time.monotonic(); None for now.
    """
    if candidates:
        return count(candidates)
    return at_most(0 if since is None else time.monotonic() - since)[0]
