# SPDX-License-Identifier: Apache-2.0
"""Shelves: which nodes they yield, and when they read further ones."""

import threading
import time
import types

import pytest

from ironic_reservations.fleet import shelf


class Free:
    """The IDs of the free nodes of a profile, and how they were read."""

    def __init__(self, *ids):
        self.ids = list(ids)
        self.reads = []

    def __call__(self, first, last, limit):
        self.reads.append((first, last))
        return [types.SimpleNamespace(id=node_id) for node_id in
                sorted(self.ids) if first <= node_id <= last][:limit]


@pytest.fixture(autouse=True)
def small_page(monkeypatch):
    monkeypatch.setattr(shelf, 'PAGE', 2)


def ids(nodes):
    return [node.id for node in nodes]


def make_shelf(first, last, start):
    """Return a shelf whose reading starts at an ID."""
    while True:
        new, free = shelf.Shelf(first, last), Free()
        list(new.nodes(free))
        if free.reads[0][0] == start:
            return new


@pytest.mark.parametrize('free, first, last, start, reads', [
    # Without free nodes: one turn, in two parts.
    ((), 1, 9, 4, [(4, 9), (1, 3)]),
    ((), 1, 9, 1, [(1, 9)]),
    ((), 5, 5, 5, [(5, 5)]),
    # A page that is not full has reached the last ID.
    ((5,), 1, 9, 4, [(4, 9), (1, 3)]),
    # The next read starts after a full page.
    ((5, 6), 1, 9, 4, [(4, 9), (7, 9), (1, 3)]),
    ((1, 5, 6, 9), 1, 9, 4, [(4, 9), (7, 9), (1, 3)]),
    ((8, 9), 1, 9, 4, [(4, 9), (1, 3)]),
    # Nodes before the start come last.
    ((1, 2, 3), 1, 9, 4, [(4, 9), (1, 3), (3, 3)]),
])
def test_one_turn(free, first, last, start, reads):
    full_shelf, free = make_shelf(first, last, start), Free(*free)
    assert sorted(ids(full_shelf.nodes(free))) == sorted(free.ids)
    assert free.reads == reads


def test_next_request_takes_the_rest_of_the_page():
    one_shelf, free = make_shelf(1, 9, 1), Free(3, 4, 7, 8)
    node_ids = [next(one_shelf.nodes(free)).id for _ in range(4)]
    assert {*node_ids[:2]} == {3, 4} and {*node_ids[2:]} == {7, 8}
    assert free.reads == [(1, 9), (5, 9)]


def test_reading_continues_where_it_stopped():
    one_shelf, free = make_shelf(1, 9, 1), Free(3, 4, 7, 8)
    next(one_shelf.nodes(free))
    free.ids = [2, 9]
    # The rest of the first page, then one turn that starts after it.
    first, *others = ids(one_shelf.nodes(free))
    assert first in (3, 4) and others == [9, 2]
    assert free.reads == [(1, 9), (5, 9), (1, 4)]


def test_concurrent_reads_count_for_the_turn_of_a_request():
    """Otherwise each request would read all IDs by itself."""
    one_shelf, free = make_shelf(1, 9, 1), Free(1, 2)
    one, two = one_shelf.nodes(free), one_shelf.nodes(free)
    assert {next(one).id, next(two).id} == {1, 2}
    free.ids = []
    assert ids(one) == []
    assert ids(two) == []
    # The second request started after the first page, and reads up to it.
    assert free.reads == [(1, 9), (3, 9), (1, 2)]


def test_few_nodes_are_read_from_the_first_id():
    """One page has room for all of them and completes the turn."""
    for _ in range(20):
        one_shelf, free = shelf.Shelf(1, 1000, few=True), Free(700)
        assert ids(one_shelf.nodes(free)) == [700]
        assert free.reads == [(1, 1000)]


def test_reading_starts_at_a_random_id():
    starts = set()
    for _ in range(50):
        free = Free()
        list(shelf.Shelf(1, 1000).nodes(free))
        starts.add(free.reads[0][0])
    assert len(starts) > 10


def test_page_is_in_random_order(monkeypatch):
    """Another process may have read the same page."""
    monkeypatch.setattr(shelf, 'PAGE', 8)
    free = Free(*range(1, 8))
    orders = {tuple(ids(shelf.Shelf(1, 9, few=True).nodes(free)))
              for _ in range(10)}
    assert len(orders) > 1


def test_rest():
    one_shelf = shelf.Shelf(1, 9)
    assert not one_shelf.empty
    one_shelf.rest(1000)
    assert one_shelf.empty
    one_shelf.rest(0)
    assert not one_shelf.empty


def test_rest_takes_a_limited_time():
    one_shelf = shelf.Shelf(1, 9)
    one_shelf.rest(0.5)
    assert one_shelf.empty
    time.sleep(0.51)
    assert not one_shelf.empty


def test_nodes_of_a_concurrent_read_end_a_rest():
    one_shelf, free = shelf.Shelf(1, 9, few=True), Free(1, 2)
    next(one_shelf.nodes(free))
    one_shelf.rest(1000)
    assert not one_shelf.empty
    next(one_shelf.nodes(free))
    assert one_shelf.empty


def test_error_of_a_read_leaves_the_shelf_usable():
    def fail(*_):
        raise ZeroDivisionError

    one_shelf = shelf.Shelf(1, 9, few=True)
    with pytest.raises(ZeroDivisionError):
        next(one_shelf.nodes(fail))
    assert ids(one_shelf.nodes(Free(5))) == [5]


def test_each_node_goes_to_one_thread(monkeypatch):
    monkeypatch.setattr(shelf, 'PAGE', 16)
    one_shelf, free = shelf.Shelf(1, 2000), Free(*range(1, 2001))
    barrier, node_ids = threading.Barrier(8), []

    def take():
        barrier.wait(60)
        for _ in range(200):
            node_ids.append(next(one_shelf.nodes(free)).id)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(node_ids) == len(set(node_ids)) == 1600
    # A page for sixteen of them, and one more where the IDs start again.
    assert len(free.reads) <= 1600 // 16 + 1


def test_shelf_belongs_to_its_profile():
    class Profile:
        first, last, free = 1, 9, 5

    one, two = Profile(), Profile()
    assert shelf.get_shelf(one) is shelf.get_shelf(one)
    assert shelf.get_shelf(one) is not shelf.get_shelf(two)
