# SPDX-License-Identifier: Apache-2.0
"""Hardware profiles of the fleet.

A hardware profile is a set of nodes that no request can tell apart. A fleet
of 100,000 nodes has tens of them: they are what is counted, what a search
tries in turn and what an explanation speaks of.
"""

import collections
import dataclasses
import functools
import json
import threading
import time

from ironic_reservations import matching
from ironic_reservations import request_spec
from ironic_reservations.db import engine
from ironic_reservations.db import functions
from ironic_reservations.db import queries

#: Holds order their search by profiles whose age is at most this many times
#: what it took to count them. Old ones make no wrong answer, and counting
#: takes at most a fiftieth of a process's time at any size of the fleet.
_AGE_TO_COST = 50


@dataclasses.dataclass(frozen=True)
class Profile:
    """Nodes alike.

    :param raw: the facts as the database spells them (``queries.PROFILE``).
    :param node: a matching.Node that stands for each of them.
    :param counts: numbers of nodes by why they cannot be held; None: they
        can.
    :param first: the least id of these nodes; nodes that were enrolled
        together are near each other.
    :param last: the greatest.
    """

    raw: dict
    node: matching.Node
    counts: dict
    first: int
    last: int

    @property
    def total(self):
        return sum(self.counts.values())

    @property
    def free(self):
        """Nodes that could be held now; a passing lock does not count."""
        return self.counts.get(None, 0) + self.counts.get(matching.LOCKED, 0)

    @functools.cached_property
    def key(self):
        """What a request can tell of it."""
        node = self.node
        return (node.resource_class, *node.sizes.values(), node.cpu_arch,
                tuple(sorted(node.capabilities.items())),
                tuple(sorted(node.traits)), node.conductor_group, node.shard,
                node.owner, node.lessee)

    def visible_to(self, project_id):
        """Whether a project may use these nodes; None may use all."""
        return project_id is None or project_id in (self.node.owner,
                                                    self.node.lessee)


def count(candidates=()):
    """The fleet's profiles as they are now: one aggregate query.

    :param candidates: sets of UUIDs and names; a node that is in one of them
        is a profile of its own, with its uuid and name.
    :returns: list of Profile.
    """
    return _profiles(queries.fleet(candidates))


def _profiles(query):
    rows = collections.defaultdict(list)
    with engine.get_engine().connect() as connection:
        for row in connection.execute(query):
            facts = tuple((name, functions.as_text(value))
                          for name, value in row._mapping.items()
                          if name.startswith(('profile_', 'candidate_')))
            rows[facts].append(row._mapping)
    return [_profile(dict(facts), alike) for facts, alike in rows.items()]


def _profile(facts, rows):
    """A Profile of the rows that differ in ``reason`` alone."""
    raw = {name: facts[f'profile_{name}'] for name in queries.PROFILE}
    properties = raw['unlike_others'] or json.dumps(
        {name: raw[name] for name in ('memory_mb', 'cpus', 'local_gb',
                                      'cpu_arch', 'capabilities')
         if raw[name] is not None})
    node = matching.Node(
        id=0, uuid=facts.get('candidate_uuid'),
        name=facts.get('candidate_name'), properties=properties,
        traits=frozenset(raw['traits'].split(',') if raw['traits'] else ()),
        **{name: raw[name] for name in
           ('resource_class', 'conductor_group', 'shard', 'owner',
            'lessee')})
    return Profile(
        raw, node, {row.get('reason'): row['nodes'] for row in rows},
        min(row['first'] for row in rows), max(row['last'] for row in rows))


class _Shared:
    """A result that the requests of a process share.

    It is computed by one request at a time; those that wait for it take what
    was computed meanwhile, if that is fresh enough for them.
    """

    def __init__(self, compute):
        self._compute = compute
        self._lock = threading.Lock()
        self._result, self._started, self._cost = None, -float('inf'), 0

    def get(self, max_age):
        """The result, at most so many seconds old now, and its age."""
        asked = time.monotonic()
        if asked - self._started > max_age:
            with self._lock:
                if asked - self._started > max_age:
                    self._renew()
        return self._result, max(asked - self._started, 0)

    def at_hand(self):
        """The result, of an age that is in proportion to its cost."""
        # While one request computes it, the others go on with the old one;
        # the first of all have none to go on with.
        if self._is_old() and self._lock.acquire(
                blocking=self._result is None):
            try:
                if self._is_old():
                    self._renew()
            finally:
                self._lock.release()
        return self._result

    def _is_old(self):
        return (time.monotonic() - self._started
                > self._cost * _AGE_TO_COST)

    def _renew(self):
        started = time.monotonic()
        self._result = self._compute()
        self._started, self._cost = started, time.monotonic() - started


_fleet = _Shared(count)


@functools.lru_cache(maxsize=4096)
def _held(host):
    return _Shared(lambda: _profiles(queries.held_by(host)))


def at_hand():
    """Profiles to order a search by; current rows decide."""
    return _fleet.at_hand()


def fresh():
    """Profiles that were counted after the call."""
    return _fleet.get(max_age=0)[0]


@engine.retry
def capacity(max_age, host=None, limited_to=None, resource_class=None,
             traits=(), conductor_group=None, shard=None):
    """What the fleet can give, profile by profile.

    :param max_age: seconds that the counts may be old.
    :param host: whose holds are counted as ``held``. They are, wherever
        their nodes are now: a node with an instance stays its host's when
        its conductor group changes.
    :param limited_to: a project: only nodes that it owns or leases.
    :param resource_class: only of this class, in any spelling.
    :param traits: only with all of these.
    :param conductor_group: only in this group; ``""`` is the default one.
    :param shard: only in this shard.
    :returns: list of dicts, and the age of the counts in seconds.
    """
    def of_interest(profile):
        node = profile.node
        return (profile.visible_to(limited_to)
                and node.traits.issuperset(traits)
                and (resource_class is None or matching.has_class(
                    node.resource_class,
                    request_spec.normalize_resource_class(resource_class))))

    def inside(profile):
        node = profile.node
        return ((conductor_group is None or node.conductor_group.lower()
                 == conductor_group.lower())
                and shard in (None, node.shard))

    profiles, age = _fleet.get(max_age)
    rows = _rows(profile for profile in profiles
                 if of_interest(profile) and inside(profile))
    if host is not None:
        held, held_age = _held(host).get(max_age)
        age = max(age, held_age)
        for profile in filter(of_interest, held):
            row = _row(rows, profile)
            row['held'] += profile.total
            row['total'] = max(row['total'], row['held'])
    return _ordered(rows), age


def present(profiles):
    """The profiles as ``capacity`` gives them, with nothing held."""
    return _ordered(_rows(profiles))


def _rows(profiles):
    """Rows by what a request can tell of them."""
    rows = {}
    for profile in profiles:
        row = _row(rows, profile)
        row['total'] += profile.total
        row['free'] += profile.free
    return rows


def _ordered(rows):
    return [rows[key] for key in sorted(rows, key=repr)]


def _row(rows, profile):
    """The row of a profile; spellings that mean the same share one."""
    node = profile.node
    return rows.setdefault(profile.key, {
        'resource_class': node.resource_class, **node.sizes,
        'cpu_arch': node.cpu_arch, 'capabilities': dict(node.capabilities),
        'traits': sorted(node.traits),
        'conductor_group': node.conductor_group, 'shard': node.shard,
        'owner': node.owner, 'lessee': node.lessee,
        'total': 0, 'free': 0, 'held': 0})
