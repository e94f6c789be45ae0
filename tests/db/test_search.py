# SPDX-License-Identifier: Apache-2.0
"""Which of several nodes is held, whatever the search goes by."""

import json
import random
import time

import pytest

from ironic_reservations import exception
from ironic_reservations.fleet import count as fleets
from ironic_reservations.fleet import search
from ironic_reservations.fleet import shelf
from ironic_reservations.reservations import releases


def sized(memory, **more):
    return {'properties': {'memory_mb': memory, **more}}


def test_the_rare_good_fit_among_many(fleet):
    ids = fleet.add(*[sized(65536)] * 1500, sized(8192), sized(4096),
                    *[sized(65536, cpus=2)] * 1500)
    good = [fleet.hold(memory_mb=4000)[0].node_id for _ in range(2)]
    assert good == [ids[1501], ids[1500]]


@pytest.mark.parametrize('better, worse', [
    (sized(2048), sized(4096)),
    # Relative to what is asked: 1/8 more CPUs is less than 1/4 more memory.
    (sized(2048, cpus=9), sized(2560, cpus=8)),
    (sized(2048, cpus=8, local_gb=99999), sized(2049, cpus=8)),
    (sized(4096, cpus=8), sized(2048, cpus=24)),
    # All sizes together.
    (sized(3072, cpus=8), sized(2560, cpus=12)),
    ({**sized(2048, cpus=8)}, {**sized(2048, cpus=8),
                               'traits': ['CUSTOM_A']}),
    ({**sized(2048, cpus=8), 'traits': ['CUSTOM_A']},
     {**sized(2048, cpus=8), 'traits': ['CUSTOM_A', 'CUSTOM_B']}),
    (sized(2048, cpus=8), sized(2048, cpus=8, capabilities='gpu')),
    (sized(2048, cpus=8, capabilities='gpu'),
     sized(2048, cpus=8, capabilities='gpu,ssd')),
    # Traits and capabilities go before what nobody asked for in size.
    (sized(2048, cpus=8, local_gb=500),
     {**sized(2048, cpus=8, local_gb=10), 'traits': ['CUSTOM_A']}),
    (sized(2048, cpus=8, local_gb=10), sized(2048, cpus=8, local_gb=11)),
], ids=str)
def test_better_fit_is_held_first(fleet, better, worse):
    asked = {'memory_mb': 2048}
    if 'cpus' in better['properties']:
        asked['vcpus'] = 8
    worse, better = fleet.add(worse, better)
    held = [fleet.hold(**asked)[0].node_id for _ in range(2)]
    assert held == [better, worse]


@pytest.mark.on('sqlite', 'server')
def test_tie_is_broken_by_memory_then_cpus_then_disk(fleet):
    batch = [sized(memory, cpus=cpus, local_gb=disk)
             for memory in (1024, 2048) for cpus in (2, 4)
             for disk in (10, 20)]
    order = list(range(len(batch)))
    random.shuffle(order)
    ids = fleet.add(*(batch[place] for place in order))
    held = [fleet.hold(resource_class='gold')[0].node_id for _ in batch]
    assert [order[ids.index(node_id)] for node_id in held] == list(
        range(len(batch)))


def test_asked_for_traits_and_capabilities_do_not_count(fleet):
    plain, rich = fleet.add(
        {**sized(1024, capabilities='gpu:1,boot_mode:uefi'),
         'traits': ['CUSTOM_A', 'CUSTOM_B']},
        {**sized(1024, capabilities='gpu:1,boot_mode:uefi,x'),
         'traits': ['CUSTOM_A']})
    body = {'memory_mb': 1024,
            'extra_specs': {'trait:CUSTOM_A': 'required',
                            'trait:CUSTOM_B': 'required'}}
    assert fleet.hold(**body)[0].node_id == plain
    fleet.free()
    body = {'memory_mb': 1024, 'extra_specs': {
        'capabilities': 'gpu:1,x', 'trait:CUSTOM_A': 'required'},
        'image': {'properties': {'hw_firmware_type': 'uefi'}}}
    assert fleet.hold(**body)[0].node_id == rich


@pytest.mark.parametrize('batch', [
    [{}] * 8,
    # Of several profiles, which fit the same.
    [{'shard': shard} for shard in 'abcdefgh'],
    [{'properties': {'memory_mb': size}} for size in (1024, '1024.0')] * 4,
], ids=['profile', 'shards', 'spellings'])
def test_equals_are_held_at_random(fleet, batch):
    fleet.add(*batch)
    chosen = set()
    for _ in range(40):
        node_id = fleet.hold()[0].node_id
        chosen.add(repr(fleet[node_id].properties) if 'properties' in batch[0]
                   else node_id)
        fleet.free()
    assert len(chosen) > 1


# A fleet that was counted long ago, or wrongly

def _change(fleet, **changes):
    """Change what was counted of each profile, by functions of it."""
    for profile in fleet.profiles:
        for name, value in changes.items():
            setattr(profile, name, value(profile))


def _mix_up(fleet):
    nodes = [kind.node for kind in fleet.kinds]
    for kind, node in zip(fleet.kinds, nodes[1:] + nodes[:1], strict=True):
        kind.node = node


WRONG = {
    'empty': lambda fleet: setattr(fleet, 'kinds', ()),
    'reversed': lambda fleet: setattr(fleet, 'kinds', fleet.kinds[::-1]),
    'nothing free': lambda fleet: _change(
        fleet, counts=lambda each: {'reserved': each.total}),
    'other ids': lambda fleet: _change(
        fleet, first=lambda each: each.first + 10 ** 6,
        last=lambda each: each.last + 10 ** 6),
    'few ids': lambda fleet: _change(fleet, last=lambda each: each.first),
    'other facts': _mix_up,
}


@pytest.mark.parametrize('wrong', WRONG)
def test_wrong_profiles_hide_nothing(fleet, go_by, wrong):
    batch = [{**sized(1024 * size), 'shard': shard,
              'traits': ['CUSTOM_A'] * (shard == 'a')}
             for size in (1, 2, 4) for shard in 'ab' for _ in range(3)]
    ids = fleet.add(*batch)
    counted = fleets.fresh()
    WRONG[wrong](counted)
    go_by(counted)
    expected = {node_id for node_id, node in zip(ids, batch, strict=True)
                if node['shard'] == 'a'
                and node['properties']['memory_mb'] >= 2048}
    held = set()
    with pytest.raises(exception.NoMatchingNode) as caught:
        while True:
            held.add(fleet.hold(
                memory_mb=2048,
                extra_specs={'trait:CUSTOM_A': 'required'})[0].node_id)
    assert held == expected
    assert caught.value.explanation == {
        'considered': 18, 'eliminated': [
            {'by': 'memory_mb>=2048', 'nodes': 6},
            {'by': 'trait:CUSTOM_A=required', 'nodes': 6},
            {'by': 'reserved', 'nodes': 6}],
        'nearest': {'by': 'trait:CUSTOM_A=required', 'nodes': 6}}


def test_node_that_has_changed_since_is_held_as_it_is_now(fleet, go_by):
    node_id = fleet.node(**sized(1024), shard='a')
    go_by(fleets.fresh())
    fleet.edit(node_id, shard='b', properties={'memory_mb': 4096})
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold(memory_mb=0, shard='a')
    assert fleet.hold(memory_mb=4096, shard='b')[0].node_id == node_id


def test_best_fit_that_came_free_since_the_count(fleet, go_by):
    """Whether a profile has a free node is decided on current rows."""
    good, *_ = fleet.add(sized(1024), *[sized(65536)] * 5)
    held, _ = fleet.hold(memory_mb=1024)
    assert held.node_id == good
    go_by(fleets.fresh())
    releases.release_reservation(held.instance_uuid)
    assert fleet.hold(memory_mb=1024)[0].node_id == good


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('kind, worse, good', [
    (lambda number: sized(1024 + number), sized(90000), sized(3000)),
    (lambda number: sized(1024, capabilities=f'rack:r{number}'),
     sized(1024, capabilities='rack:r1,a,b'),
     sized(1024, capabilities='rack:r1,a'))],
    ids=['sizes', 'racks'])
def test_many_profiles_used_up_lend_no_worse_node(fleet, go_by, kind, worse,
                                                  good):
    """One statement asks for all of them, and may find other nodes, too."""
    used_up = [{**kind(number), 'maintenance': True}
               for number in range(1100)]
    *_, good = fleet.add(*used_up[:9], worse, *used_up[9:], good)
    go_by(fleets.fresh())
    assert fleet.hold(memory_mb=1000)[0].node_id == good


@pytest.fixture
def large_fleet(fleet, go_by, monkeypatch):
    """One node that fits best and is held, and five that are too large."""
    monkeypatch.setattr(search, 'SMALL', 5)
    monkeypatch.setattr(search, 'REST_TO_COST', 10 ** 6)
    fleet.good, *fleet.others = fleet.add(sized(1024), *[sized(65536)] * 5)
    fleet.used_up, _ = fleet.hold(memory_mb=1024)
    assert fleet.used_up.node_id == fleet.good
    go_by(fleets.fresh())
    return fleet


def test_used_up_is_remembered_for_a_while_in_a_large_fleet(large_fleet,
                                                            go_by):
    """Else each hold would read the free nodes that stand among them."""
    with large_fleet.statements('SELECT nodes') as first:
        assert large_fleet.hold(
            memory_mb=1024)[0].node_id in large_fleet.others
    releases.release_reservation(large_fleet.used_up.instance_uuid)
    with large_fleet.statements('SELECT nodes') as second:
        assert large_fleet.hold(
            memory_mb=1024)[0].node_id in large_fleet.others
    # One look at what is used up, and a page that the first left the second.
    assert (len(first), len(second)) == (2, 0)
    # It is remembered as long as the count lasts.
    go_by(fleets.fresh())
    assert large_fleet.hold(memory_mb=1024)[0].node_id == large_fleet.good


def test_used_up_is_not_remembered_for_long(large_fleet, monkeypatch):
    monkeypatch.setattr(search, 'LONGEST_REST', 0.1)
    large_fleet.hold(memory_mb=1024)
    releases.release_reservation(large_fleet.used_up.instance_uuid)
    time.sleep(0.11)
    assert large_fleet.hold(memory_mb=1024)[0].node_id == large_fleet.good


def test_small_fleet_is_looked_at_each_time(large_fleet, monkeypatch):
    monkeypatch.setattr(search, 'SMALL', 6)
    assert large_fleet.hold(memory_mb=1024)[0].node_id in large_fleet.others
    releases.release_reservation(large_fleet.used_up.instance_uuid)
    assert large_fleet.hold(memory_mb=1024)[0].node_id == large_fleet.good


def test_used_up_comes_last(large_fleet):
    """What rests is looked at before the fleet is counted again."""
    for _ in large_fleet.others:
        large_fleet.hold(memory_mb=1024)
    releases.release_reservation(large_fleet.used_up.instance_uuid)
    with large_fleet.statements('AS alike') as counts:
        assert large_fleet.hold(
            memory_mb=1024)[0].node_id == large_fleet.good
    assert counts == []


@pytest.mark.on('sqlite', 'server')
def test_best_fit_among_very_many_candidates(fleet):
    names = [f'n{number}' for number in range(search.LARGE_PAGE + 2)]
    ids = fleet.add(*[{**sized(4096 - (number == len(names) - 1)),
                       'name': name} for number, name in enumerate(names)])
    held, _ = fleet.hold(memory_mb=1000, candidate_nodes=names)
    assert held.node_id == ids[-1]


@pytest.mark.parametrize('left, found', [
    # The best is looked at alone, because it serves others, too.
    ([0], 1), ([0, 4, 7], 1),
    # All others that were rare are looked at together, wherever one is left.
    ([1], 2), ([7], 2), ([4, 5, 6], 2)], ids=str)
def test_rare_nodes_are_looked_for_together(fleet, go_by, left, found):
    """Most of those that were counted are taken by now."""
    ids = fleet.add(*[sized(1024 * number) for number in range(1, 9)])
    go_by(fleets.fresh())
    for node_id in set(ids) - {ids[place] for place in left}:
        fleet.edit(node_id, maintenance=True)
    with fleet.statements('SELECT nodes') as reads:
        assert fleet.hold()[0].node_id == ids[left[0]]
    assert len(reads) == found


def test_rare_nodes_in_the_order_of_fit_and_failures(fleet, go_by):
    fits = [sized(1024), sized(2048), sized(2048, cpus=4)]
    ids = fleet.add(*[each for each in fits for _ in range(2)])
    go_by(fleets.fresh())
    for node_id in ids[::2]:
        fleet.edit(node_id, health='Warning')
    held = [fleet.hold()[0].node_id for _ in ids]
    assert held == [ids[place] for place in (1, 0, 3, 2, 5, 4)]


# What lies on the shelves

def test_page_serves_several_holds(fleet, go_by):
    fleet.add(*[{}] * (2 * shelf.PAGE))
    go_by(fleets.fresh())
    reads = []
    for _ in range(2 * shelf.PAGE):
        with fleet.statements('SELECT nodes') as found:
            fleet.hold()
        reads.append(len(found))
    # The reading begins anywhere, so that a page may be cut in two.
    assert sum(reads) <= 3 and reads[0] == 1
    assert len(fleet.held) == 2 * shelf.PAGE


def in_racks(racks, size):
    """Nodes in racks, each of which is a profile of its own."""
    return [sized(1024, capabilities=f'rack:r{number % racks}')
            for number in range(racks * size)]


def test_page_of_a_rack_serves_several_holds(fleet, go_by):
    """Where there are many racks it is all the same which they come from."""
    fleet.add(*in_racks(shelf.PAGE + 1, shelf.PAGE))
    go_by(fleets.fresh())
    with fleet.statements('SELECT nodes') as reads:
        for _ in range(shelf.PAGE):
            fleet.hold()
    assert len(reads) <= 2


def test_racks_that_were_used_up_are_not_looked_at(fleet, go_by):
    ids = fleet.add(*in_racks(12, 2))
    for node_id in ids:
        if node_id % 12 != ids[3] % 12:
            fleet.edit(node_id, maintenance=True)
    go_by(fleets.fresh())
    with fleet.statements('SELECT nodes') as reads:
        assert fleet.hold()[0].node_id in ids[3::12]
    assert len(reads) == 1


@pytest.mark.on('sqlite', 'server')
def test_hold_of_what_lies_on_the_shelf_takes_three_statements(fleet, go_by):
    """UPDATE, INSERT and COMMIT: what no hold can do without.

    SQLite is asked for the time, too, which costs no round trip there.
    """
    fleet.add(*[{}] * 4)
    go_by(fleets.fresh())
    fleet.hold()
    with fleet.statements() as found:
        fleet.hold()
    asked = ['SELECT'] if fleet.engine.name == 'sqlite' else []
    assert [text.split()[0] for text in found] == ['UPDATE', *asked, 'INSERT']


def test_what_a_page_has_left_is_no_promise(fleet, go_by):
    """A node on the shelf is held only while it is as it was read."""
    ids = fleet.add(*[{}] * 6)
    go_by(fleets.fresh())
    taken = {fleet.hold()[0].node_id}
    changed = [node_id for node_id in ids if node_id not in taken][:4]
    for node_id in changed:
        fleet.edit(node_id, maintenance=True)
    taken.add(fleet.hold()[0].node_id)
    assert len(fleet.held) == 2 and not taken.intersection(changed)
    with pytest.raises(exception.NoMatchingNode) as caught:
        fleet.hold()
    assert caught.value.explanation['considered'] == 6


def test_better_fit_goes_before_what_lies_on_a_shelf(fleet, go_by):
    fleet.add(*[sized(65536)] * 4, *[sized(1024)] * 2)
    go_by(fleets.fresh())
    fleet.hold(memory_mb=65536)
    found = [json.loads(fleet[fleet.hold(memory_mb=1024)[0].node_id]
                        .properties)['memory_mb'] for _ in range(4)]
    assert found == [1024, 1024, 65536, 65536]
