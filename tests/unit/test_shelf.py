# SPDX-License-Identifier: Apache-2.0
"""What lies on a shelf, and when it is read on: tables, no database."""

import threading
import time
import types

import pytest

from ironic_reservations.fleet import shelf


class Free:
    """The ids of the free nodes of a profile, and what was read of them."""

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


def beginning_at(first, last, start):
    """A shelf whose reading begins at an id."""
    while True:
        made, free = shelf.Shelf(first, last), Free()
        list(made.nodes(free))
        if free.reads[0][0] == start:
            return made


@pytest.mark.parametrize('free, first, last, start, reads', [
    # Nothing is free: one turn, in two parts.
    ((), 1, 9, 4, [(4, 9), (1, 3)]),
    ((), 1, 9, 1, [(1, 9)]),
    ((), 5, 5, 5, [(5, 5)]),
    # A page that is not full has come to the last id.
    ((5,), 1, 9, 4, [(4, 9), (1, 3)]),
    # A full one is followed by what stands behind it.
    ((5, 6), 1, 9, 4, [(4, 9), (7, 9), (1, 3)]),
    ((1, 5, 6, 9), 1, 9, 4, [(4, 9), (7, 9), (1, 3)]),
    ((8, 9), 1, 9, 4, [(4, 9), (1, 3)]),
    # What is free before the start comes last.
    ((1, 2, 3), 1, 9, 4, [(4, 9), (1, 3), (3, 3)]),
])
def test_one_turn(free, first, last, start, reads):
    made, free = beginning_at(first, last, start), Free(*free)
    assert sorted(ids(made.nodes(free))) == sorted(free.ids)
    assert free.reads == reads


def test_next_request_takes_what_the_last_has_left():
    made, free = beginning_at(1, 9, 1), Free(3, 4, 7, 8)
    found = [next(made.nodes(free)).id for _ in range(4)]
    assert {*found[:2]} == {3, 4} and {*found[2:]} == {7, 8}
    assert free.reads == [(1, 9), (5, 9)]


def test_reading_goes_on_where_it_stopped():
    made, free = beginning_at(1, 9, 1), Free(3, 4, 7, 8)
    next(made.nodes(free))
    free.ids = [2, 9]
    # The rest of the first page, then one turn from behind it.
    left, *others = ids(made.nodes(free))
    assert left in (3, 4) and others == [9, 2]
    assert free.reads == [(1, 9), (5, 9), (1, 4)]


def test_turn_of_a_request_counts_what_others_read_meanwhile():
    """Else each of many would read all ids for itself."""
    made, free = beginning_at(1, 9, 1), Free(1, 2)
    one, two = made.nodes(free), made.nodes(free)
    assert {next(one).id, next(two).id} == {1, 2}
    free.ids = []
    assert ids(one) == []
    assert ids(two) == []
    # The second one came when the first page was read, and reads up to it.
    assert free.reads == [(1, 9), (3, 9), (1, 2)]


def test_few_are_read_from_the_first_id_on():
    """One page has room for all of them, so it ends the turn."""
    for _ in range(20):
        made, free = shelf.Shelf(1, 1000, few=True), Free(700)
        assert ids(made.nodes(free)) == [700]
        assert free.reads == [(1, 1000)]


def test_reading_begins_anywhere():
    starts = set()
    for _ in range(50):
        free = Free()
        list(shelf.Shelf(1, 1000).nodes(free))
        starts.add(free.reads[0][0])
    assert len(starts) > 10


def test_page_is_given_out_in_random_order(monkeypatch):
    """Another process may have read the same page."""
    monkeypatch.setattr(shelf, 'PAGE', 8)
    free = Free(*range(1, 8))
    found = {tuple(ids(shelf.Shelf(1, 9, few=True).nodes(free)))
             for _ in range(10)}
    assert len(found) > 1


def test_rest():
    made = shelf.Shelf(1, 9)
    assert not made.empty
    made.rest(1000)
    assert made.empty
    made.rest(0)
    assert not made.empty


def test_rest_is_over_in_time():
    made = shelf.Shelf(1, 9)
    made.rest(0.5)
    assert made.empty
    time.sleep(0.51)
    assert not made.empty


def test_what_was_read_meanwhile_ends_a_rest():
    made, free = shelf.Shelf(1, 9, few=True), Free(1, 2)
    next(made.nodes(free))
    made.rest(1000)
    assert not made.empty
    next(made.nodes(free))
    assert made.empty


def test_error_of_a_read_leaves_the_shelf_usable():
    def fail(*_):
        raise ZeroDivisionError

    made = shelf.Shelf(1, 9, few=True)
    with pytest.raises(ZeroDivisionError):
        next(made.nodes(fail))
    assert ids(made.nodes(Free(5))) == [5]


def test_each_node_goes_to_one_thread_only(monkeypatch):
    monkeypatch.setattr(shelf, 'PAGE', 16)
    made, free = shelf.Shelf(1, 2000), Free(*range(1, 2001))
    begin, found = threading.Barrier(8), []

    def take():
        begin.wait(60)
        for _ in range(200):
            found.append(next(made.nodes(free)).id)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == len(set(found)) == 1600
    # A page for sixteen of them, and one more where the ids begin again.
    assert len(free.reads) <= 1600 // 16 + 1


def test_shelf_lasts_as_long_as_its_profile():
    class Profile:
        first, last, free = 1, 9, 5

    one, two = Profile(), Profile()
    assert shelf.of(one) is shelf.of(one)
    assert shelf.of(one) is not shelf.of(two)
