# SPDX-License-Identifier: Apache-2.0
"""The newest count of a process: which request counts, and which waits."""

import array
import contextlib
import dataclasses
import functools
import gc
import threading
import time
import weakref

import pytest

from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.db import node_counts
from ironic_reservations.fleet import capacity
from ironic_reservations.fleet import comparison
from ironic_reservations.fleet import counts
from ironic_reservations.fleet import domains
from ironic_reservations.fleet import profiles
from ironic_reservations.fleet import search
from ironic_reservations.matching import group_policy
from tests.unit import tables


class Counter:
    """A function that counts the fleet, and the number of its calls.

    :param seconds: duration of a count.
    :param gate: an Event that every count waits for.
    """

    def __init__(self, seconds=0, gate=None):
        self.seconds, self.gate = seconds, gate
        self.counts = []

    def __call__(self):
        new_fleet = profiles.Fleet(())
        self.counts.append(new_fleet)
        time.sleep(self.seconds)
        if self.gate is not None:
            assert self.gate.wait(60)
        return new_fleet


def make_latest(count):
    """Return a Latest of fleets that a function counts in one part."""
    return counts.Latest(lambda: iter([(count, False)]))


def start_threads(number, function):
    """Run a function in threads.

    :returns: the threads, which all have started, and the list of results.
    """
    results, barrier = [], threading.Barrier(number + 1)

    def run():
        barrier.wait(60)
        results.append(function())

    threads = [threading.Thread(target=run) for _ in range(number)]
    for thread in threads:
        thread.start()
    barrier.wait(60)
    return threads, results


def wait_for(threads, gate):
    gate.set()
    for thread in threads:
        thread.join(60)


def test_time_between_counts_is_proportional_to_their_duration(monkeypatch):
    monkeypatch.setattr(counts, 'AGE_TO_COST', 4)
    count = Counter(seconds=0.1)
    latest = make_latest(count)
    began = time.monotonic()
    first, _ = latest.get_recent()
    assert [latest.get_recent()[0] for _ in range(3)] == [first] * 3
    while (second := latest.get_recent()[0]) is first:
        time.sleep(0.01)
    # The count itself, and the rest of four times its duration.
    assert time.monotonic() - began >= 0.4
    assert count.counts == [first, second]


def test_result_says_whether_the_request_has_counted(monkeypatch):
    monkeypatch.setattr(counts, 'AGE_TO_COST', 10 ** 6)
    latest = make_latest(lambda: time.sleep(0.01) or profiles.Fleet(()))
    assert [latest.get_recent()[1] for _ in range(3)] == [True, False, False]
    monkeypatch.setattr(counts, 'AGE_TO_COST', 0)
    assert latest.get_recent()[1]


def test_first_requests_wait_for_the_count():
    gate = threading.Event()
    count = Counter(gate=gate)
    latest = make_latest(count)
    threads, results = start_threads(8, latest.get_recent)
    time.sleep(0.1)
    assert results == []
    wait_for(threads, gate)
    assert all(results) and len(results) == 8


def test_other_requests_use_the_old_count(monkeypatch):
    monkeypatch.setattr(counts, 'AGE_TO_COST', 0)
    gate = threading.Event()
    gate.set()
    count = Counter(gate=gate)
    latest = make_latest(count)
    old, _ = latest.get_recent()
    gate.clear()
    threads, results = start_threads(8, latest.get_recent)
    while len(results) < 7:
        threads[0].join(0.01)
    assert results == [(old, False)] * 7 and len(count.counts) == 2
    wait_for(threads, gate)
    assert results[7] == (count.counts[1], True)


@pytest.mark.parametrize('max_age, number', [(3600, 1), (0, 2)])
def test_concurrent_requests_share_a_count(max_age, number):
    """A request for a fresh count does not use one that started before."""
    gate = threading.Event()
    count = Counter(gate=gate)
    latest = make_latest(count)
    one, _ = start_threads(1, lambda: latest.get_fleet(max_age))
    while not count.counts:
        one[0].join(0.01)
    threads, results = start_threads(11, lambda: latest.get_fleet(max_age))
    threads[0].join(0.2)
    assert len(count.counts) == 1
    wait_for([*one, *threads], gate)
    assert len(results) == 11 and len(count.counts) == number
    assert {result for result, _ in results} == {count.counts[-1]}


def test_fresh_count_starts_after_the_request():
    count = Counter()
    latest = make_latest(count)
    assert latest.get_fleet(0) == (count.counts[0], 0)
    assert latest.get_fleet(0) == (count.counts[1], 0)
    time.sleep(0.05)
    result, age = latest.get_fleet(3600)
    assert result is count.counts[1] and 0.05 <= age < 60
    assert latest.get_recent()[0] is not count.counts[0]


def test_failed_count_is_not_cached():
    def fail():
        raise ZeroDivisionError

    latest = make_latest(fail)
    for ask in (latest.get_recent, lambda: latest.get_fleet(0)) * 2:
        with pytest.raises(ZeroDivisionError):
            ask()


# Parts

class Parts:
    """A fleet that is counted in parts, each with one more profile.

    :param number: number of parts.
    :param seconds: duration of the count of a part.
    :ivar calls: number of parts counted so far.
    """

    def __init__(self, number, seconds=0):
        self.number, self.seconds, self.calls = number, seconds, 0

    def __call__(self):
        rows = []
        for number in range(self.number):
            time.sleep(self.seconds)
            self.calls += 1
            rows.append(profile(resource_class=f'c{number}'))
            yield (functools.partial(profiles.Fleet.from_counts, list(rows)),
                   number + 1 < self.number)


@pytest.fixture
def share(monkeypatch):
    """Let a request count one part."""
    monkeypatch.setattr(counts, 'AT_ONCE', 0)
    monkeypatch.setattr(counts, 'AGE_TO_COST', 10 ** 6)


def test_requests_count_a_large_fleet_in_turn(share):
    """No request waits for the whole count, and each can search a part."""
    parts = Parts(3, 0.001)
    latest = counts.Latest(parts)
    results = [latest.get_recent() for _ in range(5)]
    assert [(part.total, is_whole) for part, is_whole in results] == [
        (1, False), (2, False), (3, True), (3, False), (3, False)]
    assert parts.calls == 3 and results[2][0] is results[4][0]


def test_old_count_is_used_while_a_large_fleet_is_counted(
        share, monkeypatch):
    parts = Parts(3, 0.001)
    latest = counts.Latest(parts)
    old, _ = latest.get_fleet(0)
    monkeypatch.setattr(counts, 'AGE_TO_COST', 0)
    assert [latest.get_recent() for _ in range(2)] == [(old, False)] * 2
    new, whole = latest.get_recent()
    assert whole and new is not old and parts.calls == 6


@pytest.mark.parametrize('before, number, after', [
    (1, 1, [True, False]),
    (3, 3, [False, False, True, False]),
    # The count in progress has begun before the change.
    (4, 3, [False, True, False, False, True, False]),
], ids=['small', 'large', 'in progress'])
def test_fleet_is_counted_in_turn_after_a_change_of_a_pool(
        share, monkeypatch, before, number, after):
    """No request waits for more than its part of the count.

    :param before: number of requests before the change.
    :param number: number of parts of a count.
    :param after: whether each request after it completes a count.
    """
    parts = Parts(number, 0.001)
    latest = counts.Latest(parts)
    for _ in range(number):
        latest.get_recent()
    if before > number:
        monkeypatch.setattr(counts, 'AGE_TO_COST', 0)
        latest.get_recent()
        monkeypatch.setattr(counts, 'AGE_TO_COST', 10 ** 6)
    latest.record_pools()
    assert [latest.get_recent()[1] for _ in after] == after


def test_fresh_count_does_not_continue_an_old_one(share):
    """The old count does not become newer when the fresh one is complete."""
    parts = Parts(3)
    latest = counts.Latest(parts)
    latest.get_recent()
    assert latest.get_fleet(0)[0].total == 3
    assert parts.calls == 4 and latest.get_recent()[0].total == 3


def test_count_that_fails_in_the_middle(share):
    parts = Parts(2)

    def fail():
        yield next(parts())
        raise ZeroDivisionError

    latest = counts.Latest(fail)
    assert latest.get_recent()[0].total == 1
    with pytest.raises(ZeroDivisionError):
        latest.get_recent()
    # The first part can still be searched, but is not regarded as complete.
    part, is_whole = latest.get_recent()
    assert (part.total, is_whole) == (1, False)


def test_hold_does_not_wait_for_the_whole_count_of_another_request(share):
    gate = threading.Event()

    def slow():
        yield functools.partial(profiles.Fleet.from_counts, [profile()]), True
        assert gate.wait(60)
        yield (functools.partial(profiles.Fleet.from_counts,
                                 [profile(), profile()]), False)

    latest = counts.Latest(slow)
    threads, results = start_threads(1, lambda: latest.get_fleet(0))
    assert latest.get_recent()[0].total == 1
    assert not results
    wait_for(threads, gate)
    assert results[0][0].total == 2


# Memory

class Failure(Exception):
    pass


@pytest.mark.parametrize('fails', [False, True])
def test_no_garbage_is_collected_during_a_count(fails):
    """Python would visit the objects of a large fleet several times."""
    def parts():
        yield make_fleet, True
        states.append(gc.isenabled())
        if fails:
            raise Failure
        yield make_fleet, False

    def make_fleet():
        states.append(gc.isenabled())
        return profiles.Fleet(())

    states = []
    with pytest.raises(Failure) if fails else contextlib.nullcontext():
        counts.Latest(parts).get_fleet(0)
    assert states == [False] * (1 if fails else 2)
    assert gc.isenabled()


def test_no_garbage_is_collected_while_the_capacity_is_listed(monkeypatch):
    class Filter(capacity.Filter):
        def matches(self, *args):
            states.append(gc.isenabled())
            return super().matches(*args)

    fleet, states = profiles.Fleet.from_counts([profile()]), []
    monkeypatch.setattr(counts, 'get_fleet', lambda *_, **__: (fleet, 0))
    [row], _ = capacity.list_rows(0, Filter())
    assert row.content['total'] == 1 and states == [False]
    assert gc.isenabled()


def test_fleet_is_freed_without_the_garbage_collector():
    """It is large, and the collector may run much later."""
    fleet = profiles.Fleet.from_counts([
        profile(capabilities='rack:r1'), profile(capabilities='rack:r2')])
    matcher = matching.Matcher(tables.make_spec({'resource_class': 'c1'}))
    levels = group_policy.Levels('pack', 'capability:rack')
    domains.get_domains(matcher, fleet, levels).count_room()
    assert [*search.find_nodes(matcher, fleet)] == []
    assert fleet.total == 2
    comparison.explain_fleet(matcher, fleet)
    weak = [weakref.ref(fleet), *map(weakref.ref, fleet.groups)]
    gc.disable()
    try:
        del fleet
        assert [reference() for reference in weak] == [None, None]
    finally:
        gc.enable()


# Profile groups

# Counts share facts that are equal.
_FACTS = {}


def profile(**fields):
    names = ('resource_class', 'conductor_group', 'shard', 'owner', 'lessee',
             'pool_project_id', 'traits', 'irregular_properties', 'memory_mb',
             'cpus', 'local_gb', 'cpu_arch', 'capabilities')
    facts = dict.fromkeys(names) | {'conductor_group': '', **fields}
    capabilities = facts.pop('capabilities')
    return node_counts.NodeCount(
        _FACTS.setdefault(str(facts), facts), capabilities,
        None, None, 0, None, 1, array.array('I', [1]))


#: Each property in which profiles differ, compared with the first one.
PROFILES = [profile(**{**fields, 'capabilities': capabilities})
            for fields in ({}, *({name: value} for name, value in (
                ('resource_class', 'gold'), ('conductor_group', 'rack-7'),
                ('pool_project_id', 'p'), ('pool_project_id', 'q'),
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
    {}, *({name: values.Ownership('p', 'project')}
          for name in ('reach', 'ownership')),
    {'ownership': values.Ownership('p')}, {'use': matching.TO_CLAIM},
    {'policy': group_policy.Policy(
        group_policy.Levels('spread', 'capability:rack'), (('r1', 1),))},
    {'policy': group_policy.Policy(group_policy.Levels('pack', 'shard'))}],
    ids=str)
@pytest.mark.parametrize('body', REQUESTS, ids=str)
def test_matching_profiles_are_the_ones_found_one_by_one(body, more):
    matcher = dataclasses.replace(tables.make_matcher(body), **more)
    whole_fleet = profiles.Fleet.from_counts(PROFILES)
    expected = {item for item in whole_fleet.profiles
                if matcher.is_visible(item.node)
                and matcher.matches(item.node)}
    for by in ([], ['shard'], ['shard', 'capability:rack']):
        results = set()
        for group, matches in comparison.find_profiles(
                matcher, whole_fleet, *by):
            if matches == [group.whole]:
                assert 'capability:rack' not in by or len(group.profiles) == 1
                matches = group.profiles
            results.update(matches)
            assert len({matcher.fit_alone(item.node) for item in matches}) == 1
        assert results == expected
    assert comparison.explain_fleet(matcher, whole_fleet) == matcher.explain(
        (item.node, None, 1) for item in whole_fleet.profiles)


def test_threads_do_not_compute_the_whole_of_a_group(monkeypatch):
    """Each would use another one; also in a part of the first count."""
    part = counts.Latest(lambda **_: iter([
        (functools.partial(profiles.Fleet.from_counts, PROFILES), True),
        (functools.partial(profiles.Fleet.from_counts, PROFILES), False)]))
    monkeypatch.setattr(counts, 'AT_ONCE', -1)
    fleet, is_complete = part.get_recent()
    assert not is_complete
    monkeypatch.setattr(profiles, '_make_empty_profile', None)
    assert sum(group.whole.total for group in fleet.groups) == len(PROFILES)


def test_racks_share_a_profile_group():
    racks = [profile(resource_class=name, capabilities=f'rack:r{number}')
             for name in ('gold', 'silver') for number in range(9)]
    groups = profiles.Fleet.from_counts(racks).groups
    assert [len(group.profiles) for group in groups] == [9, 9]
    assert [group.whole.available for group in groups] == [9, 9]
