# SPDX-License-Identifier: Apache-2.0
"""Nodes of a hardware profile that were read and not yet given out.

Reading a page of free nodes takes longer than holding one of them. So a page
is read once for several requests of a process, and each of them takes a node
from the shelf. A node on a shelf is no promise: whether it is still free, and
still what was read, is decided by the guarded update that holds it.
"""

import random
import threading
import time
import weakref

from ironic_reservations.db import engine

#: How many nodes are read at once.
PAGE = 16


class Shelf:
    """The free nodes of one hardware profile, as far as they were read.

    The ids of the profile are read like a ring: each page begins where the
    last one stopped. Threads may share a shelf.

    :param first: the least id that a node of the profile may have.
    :param last: the greatest id.
    :param few: whether the profile has so few free nodes that one page has
        room for all of them. They are read from the first id on, because a
        page that is not full ends the turn; otherwise the reading begins at
        a random id, so that many processes do not want the same nodes.
    """

    def __init__(self, first, last, few=False):
        self.first, self.last = first, last
        self._next = first if few else random.randint(first, last)
        # How many ids were read over since the beginning.
        self._travelled = 0
        self._nodes = []
        self._lock = threading.Lock()
        self._empty_until = -float('inf')

    @property
    def in_stock(self):
        """Whether a node lies on it, so that none need be read."""
        return bool(self._nodes)

    @property
    def empty(self):
        """Whether a look in vain is so young that another will not help."""
        return not self._nodes and time.monotonic() < self._empty_until

    def nodes(self, read):
        """Yield nodes, each of them to one request only.

        It ends when all ids were read once since the first node was asked
        for, by this request or by others meanwhile.

        :param read: function of the first id, the last id and the most nodes
            to read; it returns a list of free nodes in the order of their
            ids. It is called under the shelf's lock, so the request must have
            its connection already: see ``engine.retry``.
        :raises: DeadlineExceeded when another request is still reading.
        """
        end = self._travelled + self.last - self.first + 1
        while (node := self._take(read, end)) is not None:
            yield node

    def _take(self, read, end):
        with engine.acquire_lock(self._lock):
            while not self._nodes and self._travelled < end:
                self._read_page(read, end - self._travelled)
            return self._nodes.pop() if self._nodes else None

    def _read_page(self, read, ids):
        """Read a page of free nodes among so many ids, or up to the last."""
        last = min(self._next + ids - 1, self.last)
        page = read(self._next, last, PAGE)
        # A page that is not full has come to the last of these ids.
        after = page[-1].id + 1 if len(page) == PAGE else last + 1
        self._travelled += after - self._next
        self._next = after if after <= self.last else self.first
        # Nodes that were enrolled together are in the same page, and other
        # processes may just read it too: they should not take the same.
        self._nodes = random.sample(page, len(page))

    def rest(self, seconds):
        """Remember that there was nothing to be had, for so long."""
        self._empty_until = time.monotonic() + seconds


# A shelf lasts as long as the count of the fleet to which its profile belongs.
_shelves = weakref.WeakKeyDictionary()


def get_shelf(profile, failed=None):
    """The shelf of a profiles.Profile in this process.

    :param failed: whether of the nodes that have failed lately. They have a
        shelf of their own, so that nobody has to sort them out.
    """
    shelves = _shelves.setdefault(profile, {})
    if failed not in shelves:
        shelves[failed] = Shelf(profile.first, profile.last,
                                few=profile.free <= PAGE)
    return shelves[failed]


def has_stock(profile, failed=None):
    """Whether there is such a shelf of a profile already, with a node on it.
    """
    shelves = _shelves.get(profile, {})
    return failed in shelves and shelves[failed].in_stock
