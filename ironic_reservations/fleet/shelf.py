# SPDX-License-Identifier: Apache-2.0
"""Keeps free nodes of hardware profiles between reading and holding them.

Reading nodes takes a round trip to the database. So a page of them is read
once for several requests of a process, and each of them takes a node from the
shelf of a profile. A node on a shelf may no longer be free: the guarded update
that holds it decides.
"""

import array
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import random
import threading
import typing

from ironic_reservations import matching

#: Number of nodes to read at first, and at most.
PAGE, LARGE_PAGE = 16, 256

#: Returns the nodes with some ids that are free, in random order.
Reader = Callable[[Iterable[int]], list[matching.Node]]


class Profile(typing.Protocol):
    """A ``profiles.Profile``, as far as shelves know it."""

    ids: 'array.array[int]'


class _Shelf:
    """The nodes of one profile that no request has taken yet.

    :ivar ids: ids of nodes to read, by whether they were suspect when they
        were read before.
    :ivar nodes: nodes that were read, by the same.
    """

    def __init__(self, ids: 'array.array[int]') -> None:
        self.ids = {False: ids, True: array.array('I')}
        self.nodes: dict[bool, list[matching.Node]] = {False: [], True: []}

    def choose_ids(self, number: int, suspect: bool) -> Iterator[int]:
        """Yield random ids of nodes to read, and remove them."""
        ids = self.ids[suspect]
        for _ in range(min(number, len(ids))):
            place = random.randrange(len(ids))
            ids[place], ids[-1] = ids[-1], ids[place]
            yield ids.pop()


class Shelves:
    """The nodes of a counted fleet that were free when it was counted.

    The nodes of a profile are read once, in random order, so that processes do
    not compete for the same nodes. Suspect nodes are read again when all
    others are used up. Threads may share it.
    """

    def __init__(self) -> None:
        self._shelves: dict[Profile, _Shelf] = {}
        self._lock = threading.Lock()

    def _get_shelf(self, profile: Profile) -> _Shelf:
        shelf = self._shelves.get(profile)
        return shelf or self._shelves.setdefault(
            profile, _Shelf(profile.ids[:]))

    def list_stock(self, equals: Sequence[Profile],
                   suspect: bool = False) -> list[Profile]:
        """Return the profiles that are not used up, in random order.

        Profiles with nodes on their shelf come first, so that one page serves
        several requests.

        :param suspect: whether they have nodes that are known as suspect;
            otherwise, whether they may have others.
        """
        in_stock, unread = [], []
        for profile in random.sample(equals, len(equals)):
            shelf = self._shelves.get(profile)
            if shelf is not None and shelf.nodes[suspect]:
                in_stock.append(profile)
            elif (shelf.ids[suspect] if shelf is not None
                  else profile.ids and not suspect):
                unread.append(profile)
        return in_stock + unread

    def take_nodes(self, equals: Iterable[Profile],
                   others: Iterator[Profile], read: Reader,
                   suspect: bool = False) -> Iterator[matching.Node]:
        """Yield nodes of some profiles.

        Each node goes to one request only. A search that reads many suspect
        nodes leaves the rest to the next one.

        :param others: profiles to read in the same statement if these have
            few nodes. The iterator is consumed: each profile is considered
            once, because there may be thousands.
        :param suspect: whether to yield the nodes that are known as suspect;
            otherwise all others.
        """
        size, suspects = PAGE, 0
        for shelf in map(self._get_shelf, equals):
            while True:
                with self._lock:
                    nodes = shelf.nodes[suspect]
                    node = nodes.pop() if nodes else None
                    page = {} if node or suspects >= LARGE_PAGE else (
                        self._choose_page(shelf, suspect, others, size))
                if node is not None:
                    yield node
                elif page:
                    suspects += self._read_page(page, read, suspect)
                    # Other processes have taken most of the nodes.
                    size = min(2 * size, LARGE_PAGE)
                else:
                    break

    def _choose_page(self, shelf: _Shelf, suspect: bool,
                     others: Iterator[Profile],
                     size: int) -> dict[int, _Shelf]:
        """Return the shelves of the nodes to read, by id.

        :returns: an empty dict if this shelf has nothing to read.
        """
        page = dict.fromkeys(shelf.choose_ids(size, suspect), shelf)
        while page and len(page) < size and not suspect:
            other = next(others, None)
            if other is None:
                break
            if other.ids:
                shelf = self._get_shelf(other)
                page |= dict.fromkeys(
                    shelf.choose_ids(size - len(page), suspect), shelf)
        return page

    def _read_page(self, page: dict[int, _Shelf], read: Reader,
                   suspect: bool) -> int:
        """Read nodes without the lock: other threads may read more of them.

        :returns: the number of nodes that were not known as suspect.
        """
        try:
            nodes = read(page)
        except Exception:
            with self._lock:
                for node_id, shelf in page.items():
                    shelf.ids[suspect].append(node_id)
            raise
        suspects = 0
        with self._lock:
            for node in nodes:
                if node.suspect and not suspect:
                    page[node.id].ids[True].append(node.id)
                    suspects += 1
                else:
                    page[node.id].nodes[suspect].append(node)
        return suspects
