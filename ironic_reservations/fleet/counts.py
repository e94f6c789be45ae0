# SPDX-License-Identifier: Apache-2.0
"""Decides when the fleet is counted, and which count a request uses."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses
import functools
import threading
import time

from oslo_log import log

from ironic_reservations import garbage
from ironic_reservations import matching
from ironic_reservations.db import counting
from ironic_reservations.db import engine
from ironic_reservations.fleet import profiles

LOG = log.getLogger(__name__)

#: ``get_recent`` recounts when the last count is older than this multiple of
#: its duration, so that counting takes at most a fiftieth of the time.
AGE_TO_COST = 50

#: Seconds after which ``get_recent`` leaves the rest of a count to the next
#: request. It finishes the current part first.
AT_ONCE = 1

#: Seconds between the checks of a request that waits for the first part of
#: the first count.
WAIT = 0.1

#: For each part of a count: a function that returns the fleet that was
#: counted so far, and whether more parts follow.
Parts = Iterator[tuple[Callable[[], profiles.Fleet], bool]]


def count_parts(candidates: Collection[Collection[str]] = (),
                with_hosts: bool = False, resource_class: str | None = None
                ) -> Parts:
    """Count the fleet, part by part; see ``db.counting``.

    :param candidates: sets of UUIDs and names. A node in one of them becomes a
        profile with its UUID and name.
    :param with_hosts: whether to count the nodes that each host holds.
    :param resource_class: in normal form; count only the nodes of this class.
    """
    rows: list[counting.NodeCount] = []
    for page, more in counting.count_pages(candidates, with_hosts,
                                           resource_class):
        rows += page
        yield functools.partial(profiles.Fleet.from_counts, rows), more


# The fleet before the first part of the first count.
_UNCOUNTED = profiles.Fleet(())


@dataclasses.dataclass(frozen=True)
class _Count:
    """A Fleet, and when it was counted.

    :param fleet: a part of the fleet until the first count is complete.
    :param began: time.monotonic(); long ago for a part of the fleet.
    :param cost: duration in seconds.
    """

    fleet: profiles.Fleet = _UNCOUNTED
    began: float = -float('inf')
    cost: float = 0

    @property
    def is_old(self) -> bool:
        return time.monotonic() - self.began > self.cost * AGE_TO_COST


class _Counting:
    """A count in progress, which several requests may continue.

    :param parts: see ``count_parts``.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._began, self._cost = time.monotonic(), 0.0

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

    One request at a time counts. Others that wait for it use its count, if
    that is recent enough for them, and wait until their deadline only: see
    ``engine.acquire_lock``.

    :param parts: see ``count_parts``.
    """

    def __init__(self, parts: Callable[..., Parts] = count_parts) -> None:
        self._parts = parts
        self._lock = threading.Lock()
        self._newest = _Count()
        self._counting: _Counting | None = None
        # The class that the first request named, and its count, which is used
        # until the fleet is counted.
        self._class: str | None = None
        self._count_of_class = _Count()

    def record_holds(self, nodes: Iterable[matching.Node]) -> None:
        """Store in the newest count that this process has held nodes.

        A count that is too old will not be used again.
        """
        holds = {node.id: node for node in nodes}
        for count in self._newest, self._count_of_class:
            if not count.is_old:
                count.fleet.holds.update(holds)

    def record_release(self, node_id: int | None) -> None:
        """Store in the newest count that a node is free again."""
        if node_id is not None:
            for count in self._newest, self._count_of_class:
                count.fleet.holds.pop(node_id, None)

    def get_recent(self, resource_class: str | None = None
                   ) -> tuple[profiles.Fleet, bool]:
        """Return a Fleet of at most ``AGE_TO_COST`` times its cost in age.

        The first request counts only the nodes of the class that it names.
        Others for this class use that count, until it is too old.

        While one request recounts, others use the old count. If a recount
        takes longer than ``AT_ONCE``, the request uses the old count, too, and
        the next request continues. Until the first count is complete, the
        parts that were counted are used.

        :param resource_class: the class of all nodes that match the request,
            in normal form, or None.
        :returns: Fleet, and whether this request has completed its count.
        """
        complete = False
        if (self._find_count(resource_class).is_old
                and self._acquire_turn(resource_class)):
            try:
                # Another request may have counted before this one's turn.
                if self._find_count(resource_class).is_old:
                    complete = self._count_for(resource_class)
            finally:
                self._lock.release()
        return self._find_count(resource_class).fleet, complete

    def _find_count(self, resource_class: str | None) -> _Count:
        """Return the newest count that has all nodes of a class."""
        # In this order, because another thread may replace both.
        count, newest = self._count_of_class, self._newest
        return (count if newest.began < count.began
                and resource_class == self._class else newest)

    def _acquire_turn(self, resource_class: str | None) -> bool:
        """Acquire the lock. Wait for it only if nothing was counted yet."""
        def is_counted() -> bool:
            return self._find_count(resource_class).fleet is not _UNCOUNTED

        while not self._lock.acquire(timeout=0 if is_counted() else WAIT):
            if is_counted():
                return False
            engine.check_deadline()
        return True

    @garbage.pause_collection
    def _count_for(self, resource_class: str | None) -> bool:
        """Count the class of the first request, or more of the fleet.

        :returns: whether the count is complete.
        """
        is_first = (self._newest.fleet is _UNCOUNTED
                    and self._counting is None and self._class is None)
        if is_first and resource_class is not None:
            self._class = resource_class
            count = _Counting(self._parts(resource_class=resource_class))
            # If that takes too long, count the fleet: it can be continued.
            if count.count_more():
                self._count_of_class = count.finish()
                return True
        return self._count_more()

    def _count_more(self) -> bool:
        """Continue the count in progress, or start one.

        :returns: whether the count is complete.
        """
        count = self._counting or _Counting(self._parts())
        # A count that raises an exception is not continued.
        self._counting = None
        complete = count.count_more()
        if complete:
            self._newest, self._count_of_class = count.finish(), _Count()
        else:
            self._counting = count
            if self._newest.began == _Count.began:
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
                    self._count_all()
        newest = self._newest
        return newest.fleet, max(start - newest.began, 0)

    @garbage.pause_collection
    def _count_all(self) -> None:
        # The count in progress may have begun too early.
        self._counting = None
        while not self._count_more():
            engine.check_deadline('The fleet cannot be counted within the '
                                  'time limit of a request; try again.')


_latest = Latest()
# The nodes that a host holds and the free nodes are counted together, because
# a node that changes between two counts would count twice. For example,
# deployment sets the project of the instance as the lessee of the node.
_latest_with_hosts = Latest(functools.partial(count_parts, with_hosts=True))


def record_holds(nodes: Iterable[matching.Node]) -> None:
    """See ``Latest.record_holds``."""
    _latest.record_holds(nodes)


def record_release(node_id: int | None) -> None:
    """See ``Latest.record_release``."""
    _latest.record_release(node_id)


def get_recent_fleet(resource_class: str | None = None
                     ) -> tuple[profiles.Fleet, bool]:
    """Return a Fleet that may be outdated; see ``Latest.get_recent``."""
    return _latest.get_recent(resource_class)


@engine.retry
def get_fleet(max_age: float,
              with_hosts: bool = False) -> tuple[profiles.Fleet, float]:
    """Return a Fleet of at most this age in seconds, and its age.

    :param with_hosts: see ``count_parts``.
    """
    latest = _latest_with_hosts if with_hosts else _latest
    return latest.get_fleet(max_age)


def get_fresh_fleet(candidates: Collection[Collection[str]] = (),
                    since: float | None = None) -> profiles.Fleet:
    """Return a Fleet that was counted after a moment.

    :param candidates: see ``count_parts``. With candidates, the fleet is
        counted for this request only.
    :param since: the moment, on time.monotonic(); None for now.
    """
    if candidates:
        latest = Latest(functools.partial(count_parts, candidates))
        return engine.retry(latest.get_fleet)(0)[0]
    return get_fleet(0 if since is None else time.monotonic() - since)[0]
