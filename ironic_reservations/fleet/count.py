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


@engine.retry
def count(candidates=(), with_hosts=False):
    """Count the fleet as it is now: see ``db.counting``.

    :param candidates: sets of UUIDs and names; a node that is in one of them
        becomes a profile of its own, with its uuid and name.
    :param with_hosts: whether to count, too, which host holds how many.
    :returns: profiles.Fleet.
    """
    began = time.monotonic()
    fleet = profiles.Fleet.of(counting.rows(candidates, with_hosts))
    LOG.debug('Counted %(nodes)d nodes of %(kinds)d kinds within '
              '%(seconds).3f s',
              {'nodes': fleet.total, 'kinds': len(fleet.kinds),
               'seconds': time.monotonic() - began})
    return fleet


@dataclasses.dataclass(frozen=True)
class _Count:
    """A Fleet, when it began to be counted, and how long that took.

    :param began: on time.monotonic().
    :param cost: seconds.
    """

    fleet: profiles.Fleet | None = None
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
