# SPDX-License-Identifier: Apache-2.0
"""Keeps free nodes of a hardware profile between reading and holding them.

Reading a page of free nodes takes longer than holding one of them. So a page
is read once for several requests of a process, and each of them takes a node
from the shelf. A node on a shelf may no longer be free: the guarded update
that holds it decides.
"""

from collections.abc import Callable
from collections.abc import Iterator
import random
import threading
import time
import weakref

from ironic_reservations import matching
from ironic_reservations.db import engine
from ironic_reservations.fleet import profiles

#: How many nodes are read at once.
PAGE = 16

#: A function of the first id, the last id and the maximum number of nodes. It
#: returns free nodes in order of id.
Reader = Callable[[int, int, int], list[matching.Node]]


class Shelf:
    """Free nodes of one hardware profile.

    The ids of the profile are read like a ring: each page begins where the
    last one stopped. Threads may share a shelf.

    :param first: lowest id that a node of the profile may have.
    :param last: highest id.
    :param few: whether a page has room for all free nodes of the profile.
        They are read from the first id on, because a page that is not full
        ends the search. Otherwise reading begins at a random id, so that
        processes do not compete for the same nodes.
    """

    def __init__(self, first: int, last: int, few: bool = False) -> None:
        self.first, self.last = first, last
        self._next = first if few else random.randint(first, last)
        # Number of ids that were read since the beginning.
        self._position = 0
        self._nodes: list[matching.Node] = []
        self._lock = threading.Lock()
        self._empty_until = -float('inf')

    @property
    def in_stock(self) -> bool:
        """Return whether the shelf has a node, so that none must be read."""
        return bool(self._nodes)

    @property
    def empty(self) -> bool:
        """Return whether a recent search found nothing; see ``rest``."""
        return not self._nodes and time.monotonic() < self._empty_until

    def nodes(self, read: Reader) -> Iterator[matching.Node]:
        """Yield nodes, each of them to one request only.

        Ends when all ids were read once since the first node was requested,
        by this request or by concurrent ones.

        :param read: called under the shelf's lock, so the request must have
            its connection already: see ``engine.retry``.
        :raises: DeadlineExceeded when another request is still reading.
        """
        end = self._position + self.last - self.first + 1
        while (node := self._take_node(read, end)) is not None:
            yield node

    def _take_node(self, read: Reader, end: int) -> matching.Node | None:
        with engine.acquire_lock(self._lock):
            while not self._nodes and self._position < end:
                self._read_page(read, end - self._position)
            return self._nodes.pop() if self._nodes else None

    def _read_page(self, read: Reader, ids: int) -> None:
        """Read a page of free nodes among the next ids, or up to the last."""
        last = min(self._next + ids - 1, self.last)
        page = read(self._next, last, PAGE)
        # A page that is not full reaches the last of these ids.
        after = page[-1].id + 1 if len(page) == PAGE else last + 1
        self._position += after - self._next
        self._next = after if after <= self.last else self.first
        # Nodes that were enrolled together are in the same page, and other
        # processes may read it at the same time.
        self._nodes = random.sample(page, len(page))

    def rest(self, seconds: float) -> None:
        """Count as empty for some time, unless another request reads nodes."""
        self._empty_until = time.monotonic() + seconds


# A shelf lasts as long as the count of the fleet to which its profile belongs.
_shelves: weakref.WeakKeyDictionary[
    profiles.Profile, dict[bool | None, Shelf]] = weakref.WeakKeyDictionary()


def get_shelf(profile: profiles.Profile,
              is_failed: bool | None = None) -> Shelf:
    """Return the shelf of a profile in this process.

    :param is_failed: whether it is for nodes that failed recently, which
        have their own shelf; None for all nodes.
    """
    shelves = _shelves.setdefault(profile, {})
    if is_failed not in shelves:
        shelves[is_failed] = Shelf(profile.first, profile.last,
                                few=profile.free <= PAGE)
    return shelves[is_failed]


def has_stock(profile: profiles.Profile,
              is_failed: bool | None = None) -> bool:
    """Return whether the shelf of a profile exists and has a node."""
    shelves = _shelves.get(profile, {})
    return is_failed in shelves and shelves[is_failed].in_stock
