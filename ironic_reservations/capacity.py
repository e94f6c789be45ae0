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
AGE_TO_COST = 50


@dataclasses.dataclass(eq=False)
class Profile:
    """Nodes alike.

    :param raw: the facts as the database spells them (``queries.PROFILE``).
    :param node: a matching.Node that stands for each of them.
    :param counts: numbers of nodes by why they cannot be held; None: they
        can.
    :param held: numbers of nodes by the host that holds them.
    :param first: the least id of these nodes; nodes that were enrolled
        together are near each other.
    :param last: the greatest.

    What searches have found out since it was counted:

    :param spare: matching.Nodes that were read and not needed.
    :param misses: looks at a part of the ids, in a row, without a free node.
    :param used_up_until: when to look again, where no id had a free node.
    """

    raw: dict
    node: matching.Node
    counts: dict
    held: dict
    first: int
    last: int
    spare: list = dataclasses.field(default_factory=list, repr=False)
    misses: int = 0
    used_up_until: float = -float('inf')

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


class Profiles(list):
    """Profiles that were counted at once.

    :ivar total: nodes in all of them.
    :ivar fits: what is worth remembering as long as they last: see search.
    """

    def __init__(self, profiles=()):
        super().__init__(profiles)
        self.total = sum(profile.total for profile in self)
        self.fits = {}


def count(candidates=(), with_hosts=False):
    """The fleet's profiles as they are now: one aggregate query.

    :param candidates: sets of UUIDs and names; a node that is in one of them
        is a profile of its own, with its uuid and name.
    :param with_hosts: count, too, which host holds how many.
    :returns: Profiles.
    """
    rows = collections.defaultdict(list)
    for row in engine.rows(queries.fleet(candidates, with_hosts)):
        facts = tuple((name, functions.as_text(value))
                      for name, value in row._mapping.items()
                      if name.startswith(('profile_', 'candidate_')))
        rows[facts].append(row._mapping)
    return Profiles(_profile(dict(facts), alike)
                    for facts, alike in rows.items())


def _profile(facts, rows):
    """A Profile of the rows that differ in ``reason`` and ``host`` alone."""
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
    counts, held = collections.Counter(), collections.Counter()
    for row in rows:
        counts[row['reason']] += row['nodes']
        if row.get('host') is not None:
            held[functions.as_text(row['host'])] += row['nodes']
    return Profile(
        raw, node, counts, held,
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
            # Others wait for the lock and keep their connections: whoever has
            # the lock must not wait for one.
            with engine.connection(), self._lock:
                if asked - self._started > max_age:
                    self._renew()
        return self._result, max(asked - self._started, 0)

    def at_hand(self):
        """The result, of an age that is in proportion to its cost."""
        # While one request computes it, the others go on with the old one;
        # the first of all have none to go on with.
        if self._is_old():
            with engine.connection():
                if self._lock.acquire(blocking=self._result is None):
                    try:
                        if self._is_old():
                            self._renew()
                    finally:
                        self._lock.release()
        return self._result

    def _is_old(self):
        return (time.monotonic() - self._started
                > self._cost * AGE_TO_COST)

    def _renew(self):
        started = time.monotonic()
        self._result = self._compute()
        self._started, self._cost = started, time.monotonic() - started


_fleet = _Shared(count)
# What a host holds and what is free are counted at once: a node that changes
# in between, as its lessee does when it is deployed, would count twice.
_fleet_with_hosts = _Shared(functools.partial(count, with_hosts=True))


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

    profiles, age = (_fleet if host is None else _fleet_with_hosts
                     ).get(max_age)
    rows = {}
    for profile in filter(of_interest, profiles):
        held = profile.held.get(host, 0)
        if inside(profile):
            _add(rows, profile, held)
        elif held:
            row = _row(rows, profile)
            row['total'] += held
            row['held'] += held
    return _ordered(rows), age


def present(profiles):
    """The profiles as ``capacity`` gives them, with nothing held."""
    rows = {}
    for profile in profiles:
        _add(rows, profile)
    return _ordered(rows)


def _add(rows, profile, held=0):
    row = _row(rows, profile)
    row['total'] += profile.total
    row['free'] += profile.free
    row['held'] += held


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
