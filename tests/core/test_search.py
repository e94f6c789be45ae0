# SPDX-License-Identifier: Apache-2.0
"""The choice of a node, with current, outdated and wrong counts."""

import json

import pytest

from ironic_reservations import exception
from ironic_reservations.fleet import counts
from ironic_reservations.fleet import search
from ironic_reservations.fleet import shelf
from ironic_reservations.reservations import releases
from tests.common import fleets


def make_node(memory, **more):
    return {'properties': {'memory_mb': memory, **more}}


def test_rare_best_fit(fleet):
    ids = fleet.add(*[make_node(65536)] * 1500, make_node(8192),
                    make_node(4096),
                    *[make_node(65536, cpus=2)] * 1500)
    node_ids = [fleet.hold(memory_mb=4000)[0].node_id for _ in range(2)]
    assert node_ids == [ids[1501], ids[1500]]


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('better, worse', [
    # tests/unit/test_fit.py has all kinds of differences.
    (make_node(2048, cpus=9), make_node(2560, cpus=8)),
    (make_node(2048, cpus=8, local_gb=500),
     {**make_node(2048, cpus=8, local_gb=10), 'traits': ['CUSTOM_A']}),
    (make_node(2048, cpus=8, capabilities='gpu'),
     make_node(2048, cpus=8, capabilities='gpu,ssd')),
    (make_node(2048, cpus=8, local_gb=10),
     make_node(2048, cpus=8, local_gb=11)),
], ids=str)
def test_better_fit_is_held_first(fleet, better, worse):
    worse, better = fleet.add(worse, better)
    node_ids = [fleet.hold(memory_mb=2048, vcpus=8)[0].node_id
                for _ in range(2)]
    assert node_ids == [better, worse]


@pytest.mark.parametrize('batch', [
    [{}] * 8,
    # Several profiles of the same fit.
    [{'shard': shard} for shard in 'abcdefgh'],
    [{'properties': {'memory_mb': size}} for size in (1024, '1024.0')] * 4,
], ids=['profile', 'shards', 'spellings'])
def test_equal_nodes_are_held_at_random(fleet, batch):
    fleet.add(*batch)
    choices = set()
    for _ in range(40):
        node_id = fleet.hold()[0].node_id
        choices.add(repr(fleet[node_id].properties)
                    if 'properties' in batch[0] else node_id)
        fleet.release_all()
    assert len(choices) > 1


# A fleet whose count is outdated or wrong

def _change(fleet, **changes):
    """Change attributes of each profile; values are functions of it."""
    for profile in fleet.profiles:
        for name, value in changes.items():
            setattr(profile, name, value(profile))


def _mix_up(fleet):
    facts = [kind.facts for kind in fleet.groups]
    for kind, other in zip(fleet.groups, facts[1:] + facts[:1], strict=True):
        kind.facts = other


WRONG = {
    'empty': lambda fleet: setattr(fleet, 'groups', ()),
    'reversed': lambda fleet: setattr(fleet, 'groups', fleet.groups[::-1]),
    'nothing free': lambda fleet: _change(
        fleet, counts=lambda profile: {'reserved': profile.total}),
    'other ids': lambda fleet: _change(fleet, ids=lambda profile: [10 ** 6]),
    'no ids': lambda fleet: _change(fleet, ids=lambda profile: []),
    'taken': lambda fleet: _change(
        fleet, other_ids=lambda profile: profile.ids,
        ids=lambda profile: []),
    'other facts': _mix_up,
}


@pytest.mark.parametrize('wrong', WRONG)
def test_wrong_counts_hide_no_node(fleet, use_count, wrong):
    batch = [{**make_node(1024 * size), 'shard': shard,
              'traits': ['CUSTOM_A'] * (shard == 'a')}
             for size in (1, 2, 4) for shard in 'ab' for _ in range(3)]
    ids = fleet.add(*batch)
    wrong_count = counts.get_fresh_fleet()
    WRONG[wrong](wrong_count)
    use_count(wrong_count)
    expected = {node_id for node_id, node in zip(ids, batch, strict=True)
                if node['shard'] == 'a'
                and node['properties']['memory_mb'] >= 2048}
    node_ids = set()
    with pytest.raises(exception.NoMatchingNode) as error:
        while True:
            node_ids.add(fleet.hold(
                memory_mb=2048,
                extra_specs={'trait:CUSTOM_A': 'required'})[0].node_id)
    assert node_ids == expected
    assert fleets.present(error)['explanation'] == {
        'considered': 18, 'eliminated': [
            {'by': 'memory_mb>=2048', 'nodes': 6},
            {'by': 'trait:CUSTOM_A=required', 'nodes': 6},
            {'by': 'reserved', 'nodes': 6}],
        'nearest': {'by': 'trait:CUSTOM_A=required', 'nodes': 6}}


def test_node_that_has_changed_since_the_count(fleet, use_count):
    node_id = fleet.add_node(**make_node(1024), shard='a')
    use_count(counts.get_fresh_fleet())
    fleet.set_node(node_id, shard='b', properties={'memory_mb': 4096})
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold(memory_mb=0, shard='a')
    assert fleet.hold(memory_mb=4096, shard='b')[0].node_id == node_id


def test_best_fit_that_is_free_since_the_count(fleet, use_count):
    """Current rows decide whether a profile has a free node."""
    good, *_ = fleet.add(make_node(1024), *[make_node(65536)] * 5)
    reservation, _ = fleet.hold(memory_mb=1024)
    assert reservation.node_id == good
    use_count(counts.get_fresh_fleet())
    releases.release_reservation(reservation.instance_uuid)
    assert fleet.hold(memory_mb=1024)[0].node_id == good


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('make, worse, good', [
    (lambda number: make_node(1024 + number), make_node(90000),
     make_node(3000)),
    (lambda number: make_node(1024, capabilities=f'rack:r{number}'),
     make_node(1024, capabilities='rack:r1,a,b'),
     make_node(1024, capabilities='rack:r1,a'))],
    ids=['sizes', 'racks'])
def test_best_fit_behind_many_exhausted_profiles(fleet, use_count, make,
                                                 worse, good):
    """One statement searches all of them, and may return other nodes."""
    batch = [{**make(number), 'maintenance': True} for number in range(1100)]
    *_, good = fleet.add(*batch[:9], worse, *batch[9:], good)
    use_count(counts.get_fresh_fleet())
    assert fleet.hold(memory_mb=1000)[0].node_id == good


@pytest.fixture
def used_up(fleet, use_count):
    """The nodes that fit best are held; others are too large."""
    fleet.best = fleet.add(*[make_node(1024)] * 6)
    fleet.others = fleet.add(*[make_node(65536)] * 3)
    fleet.best_holds = [fleet.hold(memory_mb=1024)[0] for _ in fleet.best]
    assert {one.node_id for one in fleet.best_holds} == {*fleet.best}
    use_count(counts.get_fresh_fleet())
    return fleet


def test_used_up_profiles_take_one_statement(used_up):
    """With the page of the next profile, which serves further holds."""
    reads = []
    for _ in used_up.others:
        with used_up.statements('SELECT nodes') as statements:
            assert used_up.hold(memory_mb=1024)[0].node_id in used_up.others
        reads.append(len(statements))
    assert reads == [2, 1, 1]


def test_part_of_a_large_profile_is_read_before_worse_ones(
        used_up, monkeypatch):
    """Otherwise each hold would read all nodes that fit better."""
    monkeypatch.setattr(shelf, 'LARGE_PAGE', 1)
    for reservation in used_up.best_holds:
        releases.release_reservation(reservation.instance_uuid)
    # One of them is read before the rest.
    assert used_up.hold(memory_mb=1024)[0].node_id in used_up.best
    used_up.release_all()
    for node_id in used_up.best[1:]:
        used_up.set_node(node_id, maintenance=True)
    node_ids = [used_up.hold(memory_mb=1024)[0].node_id for _ in range(4)]
    # The rest is read before the fleet is counted again.
    assert {*node_ids} == {used_up.best[0], *used_up.others}


def test_nodes_that_are_free_since_the_count_need_no_other_count(used_up):
    for _ in used_up.others:
        used_up.hold(memory_mb=1024)
    with used_up.statements('AS column_0') as statements:
        for reservation in used_up.best_holds:
            releases.release_reservation(reservation.instance_uuid)
            assert (used_up.hold(memory_mb=1024)[0].node_id
                    == reservation.node_id)
    assert statements == []


def test_refusal_reads_one_page_of_taken_nodes(
        used_up, use_count, monkeypatch):
    """A fleet in which all nodes are taken may be large."""
    monkeypatch.setattr(shelf, 'LARGE_PAGE', 2)
    for _ in used_up.others:
        used_up.hold(memory_mb=1024)
    use_count(counts.get_fresh_fleet())
    with used_up.statements('AS suspect') as statements:
        with pytest.raises(exception.NoMatchingNode):
            used_up.hold(memory_mb=1024)
    assert len(statements) == 1


def test_node_that_is_enrolled_after_the_count(fleet, use_count):
    fleet.add(make_node(1024))
    use_count(counts.get_fresh_fleet())
    fleet.hold()
    node_id = fleet.add_node(**make_node(4096))
    assert fleet.hold()[0].node_id == node_id


def test_better_node_that_is_free_since_the_count(fleet, use_count):
    """Also if the count names another node, which is taken by now."""
    busy = fleet.add_node(**make_node(1024))
    other, _ = fleet.add(make_node(1024), make_node(4096))
    fleet.set_node(busy, maintenance=True)
    use_count(counts.get_fresh_fleet())
    fleet.set_node(other, maintenance=True)
    fleet.set_node(busy, maintenance=False)
    assert fleet.hold()[0].node_id == busy


def test_search_ends_at_the_deadline(fleet, use_count, monkeypatch):
    fleet.add(*[make_node(1024)] * 40)
    use_count(counts.get_fresh_fleet())
    pages = []
    monkeypatch.setattr(search.engine, 'fetch_rows',
                        lambda *args: pages.append(args) or [])
    monkeypatch.setattr(search.engine, 'check_deadline',
                        lambda: pages and 1 / 0)
    with pytest.raises(ZeroDivisionError):
        fleet.hold()
    assert len(pages) == 1


def test_node_that_fits_worse_since_the_count(fleet, use_count):
    """It is compared with the current rows of the other nodes."""
    large = fleet.add(*[make_node(1024)] * 2)
    good = fleet.add_node(**make_node(1024))
    worse = fleet.add(*[make_node(2048)] * 3)
    use_count(counts.get_fresh_fleet())
    for node_id in large:
        fleet.set_node(node_id, properties={'memory_mb': 4096})
    node_ids = [fleet.hold(memory_mb=1024)[0].node_id for _ in range(6)]
    assert node_ids[0] == good
    assert {*node_ids[1:4]} == {*worse} and {*node_ids[4:]} == {*large}


@pytest.mark.on('sqlite', 'server')
def test_best_fit_of_many_candidates(fleet):
    names = [f'n{number}' for number in range(1000)]
    ids = fleet.add(*[{**make_node(4096 - (number == len(names) - 1)),
                       'name': name} for number, name in enumerate(names)])
    reservation, _ = fleet.hold(memory_mb=1000, candidate_nodes=names)
    assert reservation.node_id == ids[-1]


def test_candidate_that_has_failed_comes_last(fleet):
    names = [f'n{number}' for number in range(6)]
    ids = fleet.add(*[{'name': name} for name in names])
    for node_id in ids[:5]:
        fleet.set_node(node_id, health='Warning')
    reservation, _ = fleet.hold(candidate_nodes=names)
    assert reservation.node_id == ids[5]


@pytest.mark.parametrize('places', [[0], [0, 4, 7], [7], [4, 5, 6]], ids=str)
def test_rare_profiles_are_read_together(fleet, use_count, places):
    """Most nodes are no longer free since the count."""
    ids = fleet.add(*[make_node(1024 * size) for size in range(1, 9)])
    use_count(counts.get_fresh_fleet())
    for node_id in set(ids) - {ids[place] for place in places}:
        fleet.set_node(node_id, maintenance=True)
    with fleet.statements('SELECT nodes') as statements:
        assert fleet.hold()[0].node_id == ids[places[0]]
    assert len(statements) == 1


def test_suspects_of_any_fit_come_last(fleet, use_count):
    fits = [make_node(1024), make_node(2048), make_node(2048, cpus=4)]
    ids = fleet.add(*[fit for fit in fits for _ in range(2)])
    use_count(counts.get_fresh_fleet())
    for node_id in ids[::2]:
        fleet.set_node(node_id, health='Warning')
    node_ids = [fleet.hold()[0].node_id for _ in ids]
    assert node_ids == [ids[place] for place in (1, 3, 5, 0, 2, 4)]


# Shelves

def test_page_serves_several_holds(fleet, use_count):
    fleet.add(*[{}] * (2 * shelf.PAGE))
    use_count(counts.get_fresh_fleet())
    reads = []
    for _ in range(2 * shelf.PAGE):
        with fleet.statements('SELECT nodes') as statements:
            fleet.hold()
        reads.append(len(statements))
    assert sum(reads) == 2 and reads[0] == 1
    assert len(fleet.holds) == 2 * shelf.PAGE


def in_racks(racks, size):
    """Return nodes in racks; each rack has its own profile."""
    return [make_node(1024, capabilities=f'rack:r{number % racks}')
            for number in range(racks * size)]


def test_page_of_a_rack_serves_several_holds(fleet, use_count):
    """If there are many racks, all are equally good."""
    fleet.add(*in_racks(shelf.PAGE + 1, shelf.PAGE))
    use_count(counts.get_fresh_fleet())
    with fleet.statements('SELECT nodes') as reads:
        for _ in range(shelf.PAGE):
            fleet.hold()
    assert len(reads) <= 2


def test_exhausted_racks_are_not_read(fleet, use_count):
    ids = fleet.add(*in_racks(12, 2))
    for node_id in ids:
        if node_id % 12 != ids[3] % 12:
            fleet.set_node(node_id, maintenance=True)
    use_count(counts.get_fresh_fleet())
    with fleet.statements('SELECT nodes') as reads:
        assert fleet.hold()[0].node_id in ids[3::12]
    assert len(reads) == 1


@pytest.mark.on('sqlite', 'server')
def test_hold_from_the_shelf_takes_three_statements(fleet, use_count):
    """A hold needs at least UPDATE, INSERT and COMMIT.

    SQLite needs another statement for the time, which costs no round trip
    there.
    """
    fleet.add(*[{}] * 4)
    use_count(counts.get_fresh_fleet())
    fleet.hold()
    with fleet.statements() as statements:
        fleet.hold()
    selects = ['SELECT'] if fleet.engine.name == 'sqlite' else []
    assert [text.split()[0] for text in statements] == [
        'UPDATE', *selects, 'INSERT']


def test_node_on_the_shelf_that_has_changed(fleet, use_count):
    """It is held only while it is as it was read."""
    ids = fleet.add(*[{}] * 6)
    use_count(counts.get_fresh_fleet())
    node_ids = {fleet.hold()[0].node_id}
    others = [node_id for node_id in ids if node_id not in node_ids][:4]
    for node_id in others:
        fleet.set_node(node_id, maintenance=True)
    node_ids.add(fleet.hold()[0].node_id)
    assert len(fleet.holds) == 2 and not node_ids.intersection(others)
    with pytest.raises(exception.NoMatchingNode) as error:
        fleet.hold()
    assert fleets.present(error)['explanation']['considered'] == 6


def test_better_fit_comes_before_a_node_on_the_shelf(fleet, use_count):
    fleet.add(*[make_node(65536)] * 4, *[make_node(1024)] * 2)
    use_count(counts.get_fresh_fleet())
    fleet.hold(memory_mb=65536)
    sizes = [json.loads(fleet[fleet.hold(memory_mb=1024)[0].node_id]
                        .properties)['memory_mb'] for _ in range(4)]
    assert sizes == [1024, 1024, 65536, 65536]


# The first request of a worker

@pytest.fixture
def new_worker(fleet, monkeypatch):
    """A worker that has counted nothing."""
    latest = counts.Latest()
    monkeypatch.setattr(counts, '_latest', latest)
    monkeypatch.setattr(counts, 'get_recent_fleet', latest.get_recent)
    monkeypatch.setattr(counts, 'AGE_TO_COST', 10 ** 6)


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('names, resource_class, number', [
    (['custom_gold', 'CUSTOM_GOLD'], 'gold', 1),
    (['custom_gold', 'CUSTOM_GOLD'], 'custom_gold', 1),
    (['gold', 'gold '], 'gold', 1), (['gold', 'gold '], 'gold ', 1),
    (['g\u00f6ld', 'gold'], 'gold', 1),
    (['baremetal.gold', 'CUSTOM_BAREMETAL_GOLD', 'Baremetal-Gold'],
     'BAREMETAL.GOLD', 3)], ids=str)
def test_all_spellings_of_a_class_are_counted(
        fleet, new_worker, names, resource_class, number):
    """The database may regard other names as equal."""
    fleet.add({'resource_class': 'silver'},
              *({'resource_class': name} for name in names))
    with fleet.statements('AS column_0') as statements:
        for _ in range(number):
            fleet.hold(resource_class=resource_class)
    # The first request counts all nodes once; ids may have several pages.
    with fleet.statements('AS column_0') as count, pytest.raises(
            exception.NoMatchingNode):
        fleet.hold(resource_class=resource_class)
    assert len(statements) == len(count)


def test_first_request_is_refused_after_a_count_of_all(fleet, new_worker):
    fleet.add({'resource_class': 'silver'}, {'resource_class': 'gold'})
    with pytest.raises(exception.NoMatchingNode) as refusal:
        fleet.hold(resource_class='gold', memory_mb=2 ** 30)
    assert fleets.present(refusal)['explanation']['considered'] == 2


def test_first_request_expires_leases(fleet, new_worker):
    _, exact = fleet.add(make_node(4096), make_node(1024))
    assert fleet.hold(resource_class='gold', memory_mb=1024)[
        0].node_id == exact
    fleet.expire_leases()
    counts._latest.__init__()
    assert fleet.hold(resource_class='gold', memory_mb=1024)[
        0].node_id == exact
