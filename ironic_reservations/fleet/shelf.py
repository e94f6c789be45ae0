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
import itertools
import random
import threading
import typing

from ironic_reservations import matching

if typing.TYPE_CHECKING:
    from ironic_reservations.fleet import profiles

#: How many nodes are read at once.
PAGE = 16

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
            if profile.ids:
                shelf = self._get_shelf(profile)
                if shelf.nodes[False]:
                    in_stock.append(profile)
                elif shelf.unread or shelf.nodes[True]:
                    unread.append(profile)
        return in_stock + unread

    def take_nodes(self, equals: Iterable['profiles.Profile'],
                   worse: Callable[[], Iterable['profiles.Profile']],
                   read: Reader) -> Iterator[matching.Node]:
        """Yield nodes of some profiles, those that failed recently last.

        Each node goes to one request only.

        :param worse: returns profiles to read in the same statement if the
            others have few nodes.
        """
        for is_failed in False, True:
            for profile in equals:
                while (node := self._take_node(profile, worse, read,
                                               is_failed)) is not None:
                    yield node

    def _take_node(self, profile: 'profiles.Profile',
                   worse: Callable[[], Iterable['profiles.Profile']],
                   read: Reader, is_failed: bool) -> matching.Node | None:
        shelf, size = self._get_shelf(profile), PAGE
        page: dict[int, _Shelf] = {}
        nodes: list[matching.Node] = []
        while True:
            with self._lock:
                for node in nodes:
                    page[node.id].nodes[bool(node.failed)].append(node)
                if shelf.nodes[is_failed]:
                    return shelf.nodes[is_failed].pop()
                page = self._choose_page(profile, worse, size)
            if not page:
                return None
            # Other threads may read further pages at the same time.
            nodes = read(page)
            # Other processes have taken most of the nodes.
            size *= 2

    def _choose_page(self, profile: 'profiles.Profile',
                     worse: Callable[[], Iterable['profiles.Profile']],
                     size: int) -> dict[int, _Shelf]:
        """Return the shelves of the nodes to read, by id.

        :returns: an empty dict if all nodes of the profile were read.
        """
        page: dict[int, _Shelf] = {}
        if self._get_shelf(profile).unread:
            for other in itertools.chain([profile], worse()):
                if len(page) >= size:
                    break
                if other.ids:
                    shelf = self._get_shelf(other)
                    page |= dict.fromkeys(
                        shelf.choose_ids(size - len(page)), shelf)
        return page
