# SPDX-License-Identifier: Apache-2.0
"""The newest count of a process: who counts, and who waits for it."""

import dataclasses
import functools
import threading
import time

import pytest

from ironic_reservations import matching
from ironic_reservations.db import counting
from ironic_reservations.fleet import count as fleet
from ironic_reservations.fleet import profiles
from ironic_reservations.matching import group_policy
from tests.unit import tables


class Counter:
    """Counts how often the fleet is counted.

    :param seconds: that counting takes.
    :param gate: an Event that every count waits for, if any.
    """

    def __init__(self, seconds=0, gate=None):
        self.seconds, self.gate = seconds, gate
        self.counts = []

    def __call__(self):
        counted = profiles.Fleet(())
        self.counts.append(counted)
        time.sleep(self.seconds)
        if self.gate is not None:
            assert self.gate.wait(60)
        return counted


def latest_of(count):
    """A Latest whose fleets are counted in one part, by a function."""
    return fleet.Latest(lambda: iter([(count, False)]))


def in_threads(number, function):
    """Run it in threads that have all begun; these, and what they find."""
    found, begun = [], threading.Barrier(number + 1)

    def run():
        begun.wait(60)
        found.append(function())

    threads = [threading.Thread(target=run) for _ in range(number)]
    for thread in threads:
        thread.start()
    begun.wait(60)
    return threads, found


def wait_for(threads, gate):
    gate.set()
    for thread in threads:
        thread.join(60)


def test_recent_counts_again_in_proportion_to_what_it_took(monkeypatch):
    monkeypatch.setattr(fleet, 'AGE_TO_COST', 4)
    count = Counter(seconds=0.1)
    latest = latest_of(count)
    began = time.monotonic()
    first, _ = latest.recent()
    assert [latest.recent()[0] for _ in range(3)] == [first] * 3
    while (second := latest.recent()[0]) is first:
        time.sleep(0.01)
    # The count itself, and what is left of four times that.
    assert time.monotonic() - began >= 0.4
    assert count.counts == [first, second]


def test_request_that_has_counted_is_told_so(monkeypatch):
    monkeypatch.setattr(fleet, 'AGE_TO_COST', 10 ** 6)
    latest = latest_of(lambda: time.sleep(0.01) or profiles.Fleet(()))
    assert [latest.recent()[1] for _ in range(3)] == [True, False, False]
    monkeypatch.setattr(fleet, 'AGE_TO_COST', 0)
    assert latest.recent()[1]


def test_first_requests_wait_for_the_count():
    gate = threading.Event()
    count = Counter(gate=gate)
    latest = latest_of(count)
    threads, found = in_threads(8, latest.recent)
    time.sleep(0.1)
    assert found == []
    wait_for(threads, gate)
    assert all(found) and len(found) == 8


def test_others_go_on_with_the_old_count(monkeypatch):
    monkeypatch.setattr(fleet, 'AGE_TO_COST', 0)
    gate = threading.Event()
    gate.set()
    count = Counter(gate=gate)
    latest = latest_of(count)
    old, _ = latest.recent()
    gate.clear()
    threads, found = in_threads(8, latest.recent)
    while len(found) < 7:
        threads[0].join(0.01)
    assert found == [(old, False)] * 7 and len(count.counts) == 2
    wait_for(threads, gate)
    assert found[7] == (count.counts[1], True)


@pytest.mark.parametrize('max_age, counts', [(3600, 1), (0, 2)])
def test_many_requests_at_once_count_once(max_age, counts):
    """Those that want a fresh count do not take one that began before."""
    gate = threading.Event()
    count = Counter(gate=gate)
    latest = latest_of(count)
    one, _ = in_threads(1, lambda: latest.at_most(max_age))
    while not count.counts:
        one[0].join(0.01)
    threads, found = in_threads(11, lambda: latest.at_most(max_age))
    threads[0].join(0.2)
    assert len(count.counts) == 1
    wait_for([*one, *threads], gate)
    assert len(found) == 11 and len(count.counts) == counts
    assert {each for each, _ in found} == {count.counts[-1]}


def test_fresh_is_counted_after_the_question():
    count = Counter()
    latest = latest_of(count)
    assert latest.at_most(0) == (count.counts[0], 0)
    assert latest.at_most(0) == (count.counts[1], 0)
    time.sleep(0.05)
    found, age = latest.at_most(3600)
    assert found is count.counts[1] and 0.05 <= age < 60
    assert latest.recent()[0] is not count.counts[0]


def test_failure_to_count_is_not_kept():
    def fail():
        raise ZeroDivisionError

    latest = latest_of(fail)
    for ask in (latest.recent, lambda: latest.at_most(0)) * 2:
        with pytest.raises(ZeroDivisionError):
            ask()


# Parts

class Parts:
    """A fleet that is counted in some parts, each with one kind more.

    :param number: how many parts there are.
    :param seconds: that each takes.
    :ivar counted: how many were counted, of all counts.
    """

    def __init__(self, number, seconds=0):
        self.number, self.seconds, self.counted = number, seconds, 0

    def __call__(self):
        rows = []
        for number in range(self.number):
            time.sleep(self.seconds)
            self.counted += 1
            rows.append(profile(resource_class=f'c{number}'))
            yield (functools.partial(profiles.Fleet.of, list(rows)),
                   number + 1 < self.number)


@pytest.fixture
def share(monkeypatch):
    """A request counts one part."""
    monkeypatch.setattr(fleet, 'AT_ONCE', 0)
    monkeypatch.setattr(fleet, 'AGE_TO_COST', 10 ** 6)


def test_requests_count_a_large_fleet_one_after_the_other(share):
    """None waits for all of it, and each has something to search by."""
    parts = Parts(3, 0.001)
    latest = fleet.Latest(parts)
    found = [latest.recent() for _ in range(5)]
    assert [(counted.total, whole) for counted, whole in found] == [
        (1, False), (2, False), (3, True), (3, False), (3, False)]
    assert parts.counted == 3 and found[2][0] is found[4][0]


def test_old_count_serves_while_a_large_fleet_is_counted_again(
        share, monkeypatch):
    parts = Parts(3, 0.001)
    latest = fleet.Latest(parts)
    old, _ = latest.at_most(0)
    monkeypatch.setattr(fleet, 'AGE_TO_COST', 0)
    assert [latest.recent() for _ in range(2)] == [(old, False)] * 2
    new, whole = latest.recent()
    assert whole and new is not old and parts.counted == 6


def test_fresh_count_does_not_go_on_with_an_old_one(share):
    """Nor does its end make what was counted before any younger."""
    parts = Parts(3)
    latest = fleet.Latest(parts)
    latest.recent()
    assert latest.at_most(0)[0].total == 3
    assert parts.counted == 4 and latest.recent()[0].total == 3


def test_count_that_fails_in_its_middle_begins_anew(share):
    parts = Parts(2)

    def fail():
        yield next(parts())
        raise ZeroDivisionError

    latest = fleet.Latest(fail)
    assert latest.recent()[0].total == 1
    with pytest.raises(ZeroDivisionError):
        latest.recent()
    # The part that is known still serves whoever only wants to search, and is
    # not taken for all of it.
    counted, whole = latest.recent()
    assert (counted.total, whole) == (1, False)


def test_hold_goes_on_while_another_request_counts_all(share):
    """It does not wait for the end of a count that it need not have."""
    gate = threading.Event()

    def slow():
        yield functools.partial(profiles.Fleet.of, [profile()]), True
        assert gate.wait(60)
        yield (functools.partial(profiles.Fleet.of, [profile(), profile()]),
               False)

    latest = fleet.Latest(slow)
    threads, found = in_threads(1, lambda: latest.at_most(0))
    assert latest.recent()[0].total == 1
    assert not found
    wait_for(threads, gate)
    assert found[0][0].total == 2


# Kinds

def profile(**fields):
    names = ('resource_class', 'conductor_group', 'shard', 'owner', 'lessee',
             'traits', 'irregular_properties', 'memory_mb', 'cpus',
             'local_gb', 'cpu_arch', 'capabilities')
    facts = dict.fromkeys(names) | {'conductor_group': '', **fields}
    capabilities = facts.pop('capabilities')
    return counting.Counted(facts, capabilities, None, None, 0, None, 1, 1, 1)


#: All that profiles may differ in, each once from the first of them.
PROFILES = [profile(**{**fields, 'capabilities': capabilities})
            for fields in ({}, *({name: value} for name, value in (
                ('resource_class', 'gold'), ('conductor_group', 'rack-7'),
                ('shard', 'a'), ('owner', 'p'), ('lessee', 'p'),
                ('traits', 'CUSTOM_A'), ('memory_mb', '1024'),
                ('cpus', '8'), ('local_gb', '100'),
                ('cpu_arch', 'x86_64'))))
            for capabilities in (None, 'rack:r1', 'rack:r2', 'gpu,rack:r1')]

REQUESTS = [
    {'resource_class': 'gold'}, {'memory_mb': 1000}, {'vcpus': 8},
    {'root_gb': 1}, {'memory_mb': 0, 'conductor_group': 'rack-7'},
    {'memory_mb': 0, 'shard': 'a'},
    *map(tables.specs, (
        {'trait:CUSTOM_A': 'required'}, {'trait:CUSTOM_A': 'forbidden'},
        {'capabilities:rack': 'r1'}, {'capabilities': 'gpu'},
        {'capabilities:cpu_arch': 'x86_64'})),
    tables.image(hw_firmware_type='uefi'), tables.image(img_hv_type='qemu')]


@pytest.mark.parametrize('more', [
    {}, {'restricted_to': 'p'}, {'ownership': matching.Ownership('p')},
    {'policy': group_policy.Policy('spread', 'capability:rack',
                                     (('r1', 1),))},
    {'policy': group_policy.Policy('pack', 'shard')}], ids=str)
@pytest.mark.parametrize('body', REQUESTS, ids=str)
def test_what_matches_of_a_fleet_matches_one_by_one(body, more):
    matcher = dataclasses.replace(tables.make_matcher(body), **more)
    counted = profiles.Fleet.of(PROFILES)
    expected = {each for each in counted.profiles
                if matcher.is_visible(each.node)
                and matcher.matches(each.node)}
    for by in (None, 'shard', 'capability:rack'):
        found = set()
        for kind, matches in matcher.find_profiles(counted, by):
            if matches == [kind.whole]:
                assert by != 'capability:rack' or len(kind.profiles) == 1
                matches = kind.profiles
            found.update(matches)
            assert len({matcher.fit_alone(each.node) for each in matches}) == 1
        assert found == expected
    assert matcher.explain_fleet(counted) == matcher.explain(
        (each.node, None, 1) for each in counted.profiles)


def test_racks_are_no_kinds():
    racks = [profile(resource_class=name, capabilities=f'rack:r{number}')
             for name in ('gold', 'silver') for number in range(9)]
    kinds = profiles.Fleet.of(racks).kinds
    assert [len(kind.profiles) for kind in kinds] == [9, 9]
    assert [kind.whole.available for kind in kinds] == [9, 9]
