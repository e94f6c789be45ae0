# SPDX-License-Identifier: Apache-2.0
"""Decides when the fleet is counted, and which count a request uses."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import dataclasses
import functools
import gc
import math
import threading
import time

from oslo_log import log

from ironic_reservations import matching
from ironic_reservations.db import engine
from ironic_reservations.db import node_counts
from ironic_reservations.fleet import profiles

LOG = log.getLogger(__name__)

#: ``get_recent`` recounts when the last count is older than this multiple of
#: its duration, so that counting takes at most a fiftieth of the time.
AGE_TO_COST = 50

#: Time budget of one request for counting, in seconds. ``get_recent`` leaves
#: the rest of the count to the next request.
AT_ONCE = 1

#: Seconds between the checks of a request that waits for the first part of
#: the first count.
WAIT = 0.1

#: For each part of a count: a function that returns the fleet that was
#: counted so far, and whether more parts follow.
Parts = Iterator[tuple[Callable[[], profiles.Fleet], bool]]


@contextlib.contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Do not collect garbage while a function makes many objects.

    Python would visit those of a large fleet several times, which takes as
    long as making them. The first thread that ends resumes it for all.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def count_parts(scope: node_counts.Scope = node_counts.DEFAULT) -> Parts:
    """Count the fleet, part by part; see ``db.node_counts``."""
    rows: list[node_counts.NodeCount] = []
    for page, more in node_counts.count_pages(scope):
        rows += page
        yield functools.partial(profiles.Fleet.from_counts, rows), more


@dataclasses.dataclass(frozen=True)
class _Count:
    """A Fleet, and when it was counted.

    :param fleet: a part of the fleet until the first count is complete.
    :param began: time.monotonic(); long ago for a part of the fleet.
    :param cost: duration in seconds.
    """

    fleet: profiles.Fleet
    began: float = -math.inf
    cost: float = 0

    @property
    def is_old(self) -> bool:
        return time.monotonic() - self.began > self.cost * AGE_TO_COST


# The count of a process before the first part of its first count.
_UNCOUNTED = _Count(profiles.Fleet(()))


class _Counting:
    """A count in progress, which several requests may continue.

    :param parts: counts the fleet, part by part.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._began, self._cost = time.monotonic(), 0.0

    @pause_garbage_collection()
    def count_more(self) -> bool:
        """Count at least one part, for at most the time of a request.

        :returns: whether the count is complete.
        """
        began = time.monotonic()
        try:
            for make_fleet, more in self._parts:
                self._make_fleet = make_fleet
                if more and time.monotonic() - began > AT_ONCE:
                    return False
            return True
        finally:
            self._cost += time.monotonic() - began

    @pause_garbage_collection()
    def finish(self) -> _Count:
        """Return the complete count."""
        began = time.monotonic()
        fleet = self._make_fleet()
        cost = self._cost + time.monotonic() - began
        LOG.debug('Counted %(nodes)d nodes of %(groups)d profile groups in '
                  '%(seconds).3f s', {'nodes': fleet.total,
                                      'groups': len(fleet.groups),
                                      'seconds': cost})
        return _Count(fleet, self._began, cost)

    def make_part(self) -> _Count:
        """Return the part of the fleet that was counted so far."""
        return _Count(self._make_fleet())


class Latest:
    """The newest count of this process.

    One request at a time counts. The requests that wait for it use its count
    if it is recent enough for them, and wait no longer than their deadline:
    see ``engine.acquire_lock``.

    :param parts: counts the fleet, part by part.
    """

    def __init__(self, parts: Callable[[], Parts] = count_parts) -> None:
        self._parts = parts
        self._lock = threading.Lock()
        self._newest = _UNCOUNTED
        self._counting: _Counting | None = None
        # time.monotonic() of the last change of a pool by this process.
        self._pool_change = -math.inf

    def record_holds(self, nodes: Iterable[matching.Node]) -> None:
        """Store in the newest count that this process has held nodes.

        A count that is too old will not be used again.
        """
        newest = self._newest
        if not newest.is_old:
            newest.fleet.holds.update({node.id: node for node in nodes})

    def record_release(self, node_id: int | None) -> None:
        """Store in the newest count that a node is free again."""
        if node_id is not None:
            self._newest.fleet.holds.pop(node_id, None)

    def record_pools(self) -> None:
        """Store that this process has changed the nodes of a pool.

        The newest count is too old from now on.
        """
        self._pool_change = time.monotonic()

    def get_recent(self) -> tuple[profiles.Fleet, bool]:
        """Return a Fleet of at most ``AGE_TO_COST`` times its cost in age.

        While one request recounts, the other requests use the old count. If a
        recount takes longer than ``AT_ONCE``, this request also uses the old
        count, and the next one continues. Until the first count is complete,
        the parts that were counted are used.

        :returns: Fleet, and whether this request has completed its count.
        """
        complete = False
        if self._is_old() and self._acquire_turn():
            try:
                # Another request may have counted before this one's turn.
                complete = self._is_old() and self._count_more()
            finally:
                self._lock.release()
        return self._newest.fleet, complete

    def _is_old(self) -> bool:
        return self._newest.is_old or self._newest.began < self._pool_change

    def _acquire_turn(self) -> bool:
        """Acquire the lock. Wait for it only if nothing was counted yet."""
        while not self._lock.acquire(
                timeout=WAIT if self._newest is _UNCOUNTED else 0):
            if self._newest is not _UNCOUNTED:
                return False
            engine.check_deadline()
        return True

    def _count_more(self) -> bool:
        """Continue the count in progress, or start one.

        :returns: whether the count is complete.
        """
        count = self._counting or _Counting(self._parts())
        # A count that raises an exception is not continued.
        self._counting = None
        complete = count.count_more()
        if complete:
            self._newest = count.finish()
        else:
            self._counting = count
            if self._newest.began == -math.inf:
                self._newest = count.make_part()
        return complete

    def get_fleet(self, max_age: float) -> tuple[profiles.Fleet, float]:
        """Return a Fleet of at most this age in seconds, and its age.

        With a ``max_age`` of 0, the count begins after the call.

        :raises: DeadlineExceeded; ``get_recent`` then continues the count.
        """
        start = time.monotonic()
        if start - self._newest.began > max_age:
            with engine.acquire_lock(self._lock):
                if start - self._newest.began > max_age:
                    # The count in progress may have begun too early.
                    self._counting = None
                    _complete(self._count_more)
        newest = self._newest
        return newest.fleet, max(start - newest.began, 0)


def _complete(count_more: Callable[[], bool]) -> None:
    """Count until the count is complete.

    :raises: DeadlineExceeded.
    """
    while not count_more():
        engine.check_deadline('The fleet cannot be counted within the '
                              'time limit of a request; try again.')


_latest = Latest()
# The nodes that a host holds and the free nodes are counted together, because
# a node that changes between two counts would count twice. For example,
# deployment sets the project of the instance as the lessee of the node.
_latest_with_hosts = Latest(functools.partial(
    count_parts, node_counts.Scope(with_hosts=True)))
_latest_with_projects = Latest(functools.partial(
    count_parts, node_counts.Scope(with_hosts=True, with_projects=True)))


def record_holds(nodes: Iterable[matching.Node]) -> None:
    """See ``Latest.record_holds``."""
    _latest.record_holds(nodes)


def record_release(node_id: int | None) -> None:
    """See ``Latest.record_release``."""
    _latest.record_release(node_id)


def record_pools() -> None:
    """See ``Latest.record_pools``."""
    _latest.record_pools()


def get_recent_fleet() -> tuple[profiles.Fleet, bool]:
    """Return a Fleet that may be outdated; see ``Latest.get_recent``."""
    return _latest.get_recent()


@engine.retry
def get_fleet(max_age: float,
              with_hosts: bool = False, with_projects: bool = False
              ) -> tuple[profiles.Fleet, float]:
    """Return a Fleet of at most this age in seconds, and its age.

    :param with_hosts: see ``node_counts.Scope``; also ``with_projects``.
    """
    latest = (_latest_with_projects if with_projects
              else _latest_with_hosts if with_hosts else _latest)
    return latest.get_fleet(max_age)


def get_fresh_fleet(candidates: Collection[Collection[str]] = (),
                    since: float | None = None,
                    use: matching.Use = matching.TO_HOLD) -> profiles.Fleet:
    """Return a Fleet that was counted after a moment.

    :param candidates: see ``node_counts.Scope``. With candidates, and for
        another use than to hold nodes, it is counted for this request only.
    :param since: the moment, on time.monotonic(); None for now.
    """
    if candidates or use != matching.TO_HOLD:
        return _count_alone(node_counts.Scope(candidates, use))
    return get_fleet(0 if since is None else time.monotonic() - since)[0]


@engine.retry
def _count_alone(scope: node_counts.Scope) -> profiles.Fleet:
    count = _Counting(count_parts(scope))
    _complete(count.count_more)
    return count.finish().fleet
