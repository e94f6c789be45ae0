# SPDX-License-Identifier: Apache-2.0
"""When the fleet is counted, and which count serves which request.

A search goes by the profiles of a count in turn, an explanation speaks of
them, and the capacity lists them: see ``profiles``.
"""

import dataclasses
import functools
import threading
import time

from oslo_log import log

from ironic_reservations.db import counting
from ironic_reservations.db import engine
from ironic_reservations.fleet import profiles

LOG = log.getLogger(__name__)

#: ``recent`` counts again when the last count is older than this many times
#: what it took, so that counting takes at most a fiftieth of the time.
AGE_TO_COST = 50

#: Seconds after which ``recent`` leaves what is not yet counted to the next
#: request. The part that is being counted then is finished.
AT_ONCE = 1

#: Seconds after which a request looks again whether another has counted
#: something, where nothing was counted before.
WAIT = 0.1


def count_parts(candidates=(), with_hosts=False):
    """Count the fleet, part by part: see ``db.counting``.

    :param candidates: sets of UUIDs and names; a node that is in one of them
        becomes a profile of its own, with its uuid and name.
    :param with_hosts: whether to count, too, which host holds how many.
    :returns: iterator of pairs: a function that makes the profiles.Fleet of
        all that was counted so far; and whether there is more.
    """
    rows = []
    for page, more in counting.count_pages(candidates, with_hosts):
        rows += page
        yield functools.partial(profiles.Fleet.from_counts, rows), more


@dataclasses.dataclass(frozen=True)
class _Count:
    """A Fleet, when it began to be counted, and how long that took.

    :param fleet: while nothing else was counted, of a part of the nodes.
    :param began: on time.monotonic(); of a part of the nodes long ago.
    :param cost: seconds.
    """

    fleet: profiles.Fleet | None = None
    began: float = -float('inf')
    cost: float = 0

    @property
    def is_old(self):
        return time.monotonic() - self.began > self.cost * AGE_TO_COST


class _Counting:
    """A count that is under way, from one request to the next if need be.

    :param parts: what ``parts`` returns.
    """

    def __init__(self, parts):
        self._parts = parts
        self._began, self._cost = time.monotonic(), 0

    def go_on(self):
        """Count for so long as a request may; a part at least.

        :returns: whether all is counted.
        """
        began = time.monotonic()
        try:
            for make, more in self._parts:
                self._make = make
                if more and time.monotonic() - began > AT_ONCE:
                    return False
            return True
        finally:
            self._cost += time.monotonic() - began

    def counted(self):
        """The _Count, once all is counted."""
        began = time.monotonic()
        fleet = self._make()
        cost = self._cost + time.monotonic() - began
        LOG.debug('Counted %(nodes)d nodes of %(groups)d profile groups in '
                  '%(seconds).3f s', {'nodes': fleet.total,
                                      'groups': len(fleet.groups),
                                      'seconds': cost})
        return _Count(fleet, self._began, cost)

    def so_far(self):
        """The same of what is counted so far."""
        return _Count(self._make())


class Latest:
    """The newest count that this process has.

    One request at a time counts. Those that wait for it meanwhile take what
    it has counted, if that is fresh enough for them, and wait until their
    deadline only: see ``engine.locked``.

    :param parts: see the function of this name.
    """

    def __init__(self, parts=count_parts):
        self._parts = parts
        self._lock = threading.Lock()
        self._newest, self._under_way = _Count(), None

    def get_recent(self):
        """A Fleet whose age is at most ``AGE_TO_COST`` times its cost.

        While one request counts again, the others go on with the old count.
        If there is more to count than one request may, it goes on with the
        old count, too, and the next request counts on. Before the first count
        is whole, a part of it serves.

        :returns: Fleet, and whether this request has counted it.
        """
        counted = False
        if self._newest.is_old and self._is_ours():
            try:
                # Another request may have counted before this one's turn.
                counted = self._newest.is_old and self._count_on()
            finally:
                self._lock.release()
        return self._newest.fleet, counted

    def _is_ours(self):
        """Have the lock, if nobody has it or nothing is counted yet."""
        while not self._lock.acquire(timeout=(
                WAIT if self._newest.fleet is None else 0)):
            if self._newest.fleet is not None:
                return False
            engine.check_deadline()
        return True

    def _count_on(self):
        """Go on with the count that is under way, or begin one.

        :returns: whether all is counted.
        """
        counting = self._under_way or _Counting(self._parts())
        # What has raised an exception is not gone on with.
        self._under_way = None
        whole = counting.go_on()
        if whole:
            self._newest = counting.counted()
        else:
            self._under_way = counting
            if self._newest.began == _Count.began:
                self._newest = counting.so_far()
        return whole

    def get_fleet(self, max_age):
        """A Fleet that is at most so many seconds old, and its age.

        For a ``max_age`` of 0 it was counted after the call has begun.

        :raises: DeadlineExceeded; ``recent`` goes on with what is counted
            until then.
        """
        asked = time.monotonic()
        if asked - self._newest.began > max_age:
            with engine.acquire_lock(self._lock):
                if asked - self._newest.began > max_age:
                    self._count_all()
        newest = self._newest
        return newest.fleet, max(asked - newest.began, 0)

    def _count_all(self):
        # The one that is under way may have begun too early.
        self._under_way = None
        while not self._count_on():
            engine.check_deadline('The fleet cannot be counted within the '
                                  'time that a request has; try again.')


_latest = Latest()
# What a host holds and what is free are counted at the same moment, because a
# node that changes in between would count twice: a node gets its instance's
# project as lessee when it is deployed, for example.
_latest_with_hosts = Latest(functools.partial(count_parts, with_hosts=True))


def get_recent_fleet():
    """A Fleet to order a search by; see ``Latest.get_recent``."""
    return _latest.get_recent()


@engine.retry
def get_fleet(max_age, with_hosts=False):
    """A Fleet that is at most so many seconds old, and its age in seconds.

    :param with_hosts: see ``parts``.
    """
    latest = _latest_with_hosts if with_hosts else _latest
    return latest.get_fleet(max_age)


def get_fresh_fleet(candidates=(), since=None):
    """A Fleet that was counted after a moment.

    :param candidates: see ``parts``. With some it is counted for this request
        alone.
    :param since: the moment, on time.monotonic(); None for now.
    """
    if candidates:
        latest = Latest(functools.partial(count_parts, candidates))
        return engine.retry(latest.get_fleet)(0)[0]
    return get_fleet(0 if since is None else time.monotonic() - since)[0]
