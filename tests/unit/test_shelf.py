# SPDX-License-Identifier: Apache-2.0
"""Shelves: which nodes they yield, and when they read more nodes."""

import array
import threading
import types

import pytest

from ironic_reservations.fleet import shelf


class Profile:
    """A profile whose nodes have some ids."""

    def __init__(self, *ids):
        self.ids = array.array('I', ids)


class Free:
    """The ids of the free nodes, and of the nodes that were read."""

    def __init__(self, *ids, suspects=()):
        self.ids, self.suspects = ids, suspects
        self.reads = []

    def __call__(self, ids):
        page = {*ids}
        self.reads.append(page)
        return [types.SimpleNamespace(id=node_id, suspect=node_id in
                                      self.suspects)
                for node_id in self.ids if node_id in page]


@pytest.fixture
def shelves():
    return shelf.Shelves()


@pytest.fixture(autouse=True)
def small_page(monkeypatch):
    monkeypatch.setattr(shelf, 'PAGE', 2)


def take(shelves, read, *batch, worse=(), suspect=False):
    """Return the ids of the nodes of some profiles."""
    return [node.id for node in shelves.take_nodes(
        batch, iter([*batch, *worse]), read, suspect)]


def take_one(shelves, read, *batch, worse=()):
    return next(shelves.take_nodes(
        batch, iter([*batch, *worse]), read)).id


@pytest.mark.parametrize('ids, free, reads', [
    ((), (), []),
    ((1,), (1,), [1]),
    ((1, 2, 3), (1, 2, 3), [2, 1]),
    # Each further page is twice as large, up to a maximum.
    (range(20), (), [2, 4, 8, 6]),
    (range(1000), (), [2, 4, 8, 16, 32, 64, 128, 256, 256, 234]),
], ids=str)
def test_each_node_is_read_once(shelves, ids, free, reads):
    read = Free(*free)
    assert sorted(take(shelves, read, Profile(*ids))) == sorted(free)
    assert [len(page) for page in read.reads] == reads
    assert set().union(*read.reads) == {*ids}


def test_next_request_takes_the_rest_of_the_page(shelves):
    profile, read = Profile(*range(4)), Free(*range(4))
    node_ids = [take_one(shelves, read, profile) for _ in range(4)]
    assert sorted(node_ids) == [0, 1, 2, 3]
    assert read.reads == [{*node_ids[:2]}, {*node_ids[2:]}]
    assert take(shelves, read, profile) == []


def test_profiles_with_few_nodes_are_read_together(shelves):
    one, two, three, none = (
        Profile(1), Profile(2), Profile(3, 4), Profile())
    read = Free(2, 3, 4)
    assert take(shelves, read, one, worse=[none, two, three]) == []
    assert read.reads == [{1, 2}]
    assert take(shelves, read, two) == [2]
    assert len(read.reads) == 1


def test_suspect_nodes_are_taken_apart(shelves):
    one, two = Profile(1, 2), Profile(3, 4)
    read = Free(1, 2, 3, 4, suspects=[1, 2, 3])
    assert take(shelves, read, one, two) == [4]
    assert shelves.list_stock([one, two]) == []
    assert {*shelves.list_stock([one, two], suspect=True)} == {one, two}
    # They are read again, because they may be taken by now.
    read.ids = 1, 2, 4
    assert sorted(take(shelves, read, one, two, suspect=True)) == [1, 2]
    assert sum(map(len, read.reads)) == 7
    assert shelves.list_stock([one, two], suspect=True) == []


def test_search_reads_few_of_many_suspect_nodes(shelves):
    """The next request reads other nodes."""
    profile = Profile(*range(1000))
    read = Free(*range(1000), suspects=range(1000))
    assert take(shelves, read, profile) == []
    assert [len(page) for page in read.reads] == [2, 4, 8, 16, 32, 64, 128,
                                                  256]
    assert shelves.list_stock([profile]) == [profile]
    assert take(shelves, read, profile) == take(shelves, read, profile) == []
    assert sum(map(len, read.reads)) == len(set().union(*read.reads)) == 1000
    assert shelves.list_stock([profile]) == []


def test_cost_grows_with_the_number_of_profiles(shelves):
    """Not with its square: each is considered once for a page of another."""
    profiles = [Profile(number) for number in range(500)]
    others = Counted(profiles)
    assert [*shelves.take_nodes(profiles, others, read := Free())] == []
    assert others.number <= len(profiles)
    assert len(read.reads) < 20


class Counted:
    """An iterator that counts its items."""

    def __init__(self, items):
        self._items, self.number = iter(items), 0

    def __iter__(self):
        return self

    def __next__(self):
        item = next(self._items)
        self.number += 1
        return item


def test_order_of_equals(shelves):
    """Profiles with a node on the shelf come first, the rest at random."""
    batch = [Profile(*range(number, number + 3))
             for number in range(0, 30, 3)]
    firsts = {shelves.list_stock(batch)[0] for _ in range(50)}
    assert len(firsts) > 3
    take_one(shelves, Free(*range(30)), batch[4])
    assert {shelves.list_stock(batch)[0] for _ in range(20)} == {batch[4]}


def test_used_up_profiles(shelves):
    one, two, none = Profile(1), Profile(2), Profile()
    assert {*shelves.list_stock([one, two, none])} == {one, two}
    take(shelves, Free(1), one)
    assert shelves.list_stock([one, two, none]) == [two]


def test_nodes_are_read_in_random_order():
    """Another process may read the same profile."""
    pages = set()
    for _ in range(50):
        read = Free(*range(1000))
        take_one(shelf.Shelves(), read, Profile(*range(1000)))
        pages |= read.reads[0]
    assert len(pages) > 50


def test_nodes_are_read_again_after_an_error(shelves):
    def fail(_):
        raise ZeroDivisionError

    profile = Profile(1, 2, 3)
    with pytest.raises(ZeroDivisionError):
        take(shelves, fail, profile)
    assert sorted(take(shelves, Free(1, 2, 3), profile)) == [1, 2, 3]


def test_each_node_goes_to_one_thread(shelves, monkeypatch):
    monkeypatch.setattr(shelf, 'PAGE', 16)
    profile, read = Profile(*range(2000)), Free(*range(2000))
    barrier, node_ids = threading.Barrier(8), []

    def work():
        barrier.wait(60)
        for _ in range(200):
            node_ids.append(take_one(shelves, read, profile))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(node_ids) == len(set(node_ids)) == 1600
    assert len(read.reads) <= 2000 // 16
