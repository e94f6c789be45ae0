# SPDX-License-Identifier: Apache-2.0
"""Keeps free nodes of hardware profiles between reading and holding them.

Reading nodes takes a round trip to the database. So a page of them is read
once for several requests of a process, and each of them takes a node from the
shelf of a profile. A node on a shelf may no longer be free: the guarded update
that holds it decides.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import random
import threading
import typing

from ironic_reservations import matching

if typing.TYPE_CHECKING:
    from ironic_reservations.fleet import profiles

#: Number of nodes to read at first, and at most.
PAGE, LARGE_PAGE = 16, 256

#: Returns those of some nodes that are free, in random order.
Reader = Callable[[Iterable[int]], list[matching.Node]]


class _Shelf:
    """The nodes of one profile that no request has taken yet.

    :ivar unread: ids of nodes that were not read since they were counted.
    :ivar nodes: nodes that were read, by whether they failed recently.
    """

    def __init__(self, unread: list[int]) -> None:
        self.unread = unread
        self.nodes: dict[bool, list[matching.Node]] = {False: [], True: []}

    def choose_ids(self, number: int) -> Iterator[int]:
        """Yield random unread ids, and remove them."""
        ids = self.unread
        for _ in range(min(number, len(ids))):
            place = random.randrange(len(ids))
            ids[place], ids[-1] = ids[-1], ids[place]
            yield ids.pop()


class Shelves:
    """The nodes of a counted fleet that were free when it was counted.

    Those of a profile are read in random order, so that processes do not
    compete for the same nodes, and each of them once. Threads may share it.
    """

    def __init__(self) -> None:
        self._shelves: dict[profiles.Profile, _Shelf] = {}
        self._lock = threading.Lock()

    def _get_shelf(self, profile: 'profiles.Profile') -> _Shelf:
        shelf = self._shelves.get(profile)
        return shelf or self._shelves.setdefault(
            profile, _Shelf(profile.list_free()))

    def list_stock(self, equals: Sequence['profiles.Profile']
                   ) -> list['profiles.Profile']:
        """Return the profiles that are not used up, in random order.

        Those come first whose nodes were read, so that a page serves several
        requests.
        """
        in_stock, unread = [], []
        for profile in random.sample(equals, len(equals)):
            shelf = self._shelves.get(profile)
            if shelf is not None and shelf.nodes[False]:
                in_stock.append(profile)
            elif (profile.ids if shelf is None
                  else shelf.unread or shelf.nodes[True]):
                unread.append(profile)
        return in_stock + unread

    def take_nodes(self, equals: Iterable['profiles.Profile'],
                   others: Iterator['profiles.Profile'],
                   read: Reader) -> Iterator[matching.Node]:
        """Yield nodes of some profiles, those that failed recently last.

        Each node goes to one request only.

        :param others: profiles to read in the same statement if these have
            few nodes. Each is considered once, because there may be
            thousands.
        """
        size = PAGE
        for is_failed in False, True:
            for shelf in map(self._get_shelf, equals):
                while True:
                    with self._lock:
                        nodes = shelf.nodes[is_failed]
                        node = nodes.pop() if nodes else None
                        page = {} if node else self._choose_page(
                            shelf, is_failed, others, size)
                    if node is not None:
                        yield node
                    elif page:
                        self._read_page(page, read)
                        # Other processes have taken most of the nodes.
                        size = min(2 * size, LARGE_PAGE)
                    else:
                        break

    def _choose_page(self, shelf: _Shelf, is_failed: bool,
                     others: Iterator['profiles.Profile'],
                     size: int) -> dict[int, _Shelf]:
        """Return the shelves of the nodes to read, by id.

        :returns: an empty dict if nothing is to be read for this shelf: it has
            no unread nodes, or a full page of free nodes that all failed.
        """
        if not is_failed and len(shelf.nodes[True]) >= LARGE_PAGE:
            return {}
        page = dict.fromkeys(shelf.choose_ids(size), shelf)
        while page and len(page) < size:
            other = next(others, None)
            if other is None:
                break
            if other.ids:
                shelf = self._get_shelf(other)
                page |= dict.fromkeys(
                    shelf.choose_ids(size - len(page)), shelf)
        return page

    def _read_page(self, page: dict[int, _Shelf], read: Reader) -> None:
        """Read nodes without the lock: other threads may read more of them."""
        try:
            nodes = read(page)
        except Exception:
            with self._lock:
                for node_id, shelf in page.items():
                    shelf.unread.append(node_id)
            raise
        with self._lock:
            for node in nodes:
                page[node.id].nodes[bool(node.failed)].append(node)
