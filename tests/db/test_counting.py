# SPDX-License-Identifier: Apache-2.0
"""The counting of nodes, by the text of their properties or by their facts.

What is counted in the one way, what is counted in the other, and what Python
makes of the same nodes is the same.
"""

import collections
import json
import threading
from unittest import mock
import uuid

import hypothesis
from hypothesis import strategies as st
import pytest
import sqlalchemy as sa

from ironic_reservations import matching
from ironic_reservations.db import counting
from ironic_reservations.db import engine
from ironic_reservations.db import models
from ironic_reservations.fleet import profiles
from ironic_reservations.reservations import lookup
from ironic_reservations.reservations import values
from tests.db import strategies

pytestmark = pytest.mark.on('sqlite', 'server')


def rows(candidates=(), with_hosts=False):
    """What is counted, of all pages."""
    return [each for page, _ in counting.pages(candidates, with_hosts)
            for each in page]


@engine.retry
def found(candidates=(), with_hosts=False):
    """What is counted, the same in both ways."""
    counted = []
    for way in (True, False):
        with mock.patch.object(counting, 'texts_repeat', lambda way=way: way):
            counted.append(merged(rows(candidates, with_hosts)))
    by_text, by_facts = counted
    assert sorted(by_text, key=repr) == sorted(by_facts, key=repr)
    return by_text


def merged(counted):
    """The same, those that differ in nothing but their nodes together."""
    found = {}
    for each in counted:
        key = repr(each._replace(nodes=0, first=0, last=0))
        before = found.get(key, each._replace(nodes=0))
        found[key] = each._replace(
            nodes=before.nodes + each.nodes,
            first=min(before.first, each.first),
            last=max(before.last, each.last))
    return list(found.values())


def kinds(counted):
    """How many nodes there are of what Python can tell apart."""
    kinds = collections.Counter()
    for each in counted:
        [profile] = profiles.Fleet.of([each]).profiles
        node = profile.node
        kinds[strategies.told_apart(node), each.reason,
              each.host] += each.nodes
    return kinds


batches = st.lists(st.tuples(strategies.nodes, strategies.conditions),
                   min_size=1, max_size=25)


@hypothesis.given(batches)
@strategies.settings
def test_what_is_counted_is_what_matching_sees(fleet, batch):
    nodes = strategies.add(fleet, batch)
    counted = found()
    assert kinds(counted) == collections.Counter(
        (strategies.told_apart(node), reason, None) for node, reason in nodes)
    assert min(each.first for each in counted) == nodes[0][0].id
    assert max(each.last for each in counted) == nodes[-1][0].id


@pytest.mark.parametrize('name', ['memory_mb', 'cpus', 'local_gb'])
@pytest.mark.parametrize('value', [True, False])
def test_boolean_is_no_size(fleet, name, value):
    """For a database true may be 1."""
    fleet.node(properties=json.dumps({'capabilities': 'a:b', name: value}))
    [profile] = profiles.Fleet.of(found()).profiles
    assert set(profile.node.sizes.values()) == {0}
    # The node is found by these facts.
    fleet.hold()


@hypothesis.given(batches, st.lists(st.sets(st.integers(0, 24)), min_size=1,
                                    max_size=2))
@strategies.settings
def test_candidates_are_counted_by_themselves(fleet, batch, places):
    ids = [node.id for node, _ in strategies.add(fleet, batch)]
    uuids = [fleet[node_id].uuid for node_id in ids]
    candidates = [{uuids[place] for place in chosen if place < len(ids)}
                  for chosen in places]
    counted = found(candidates)
    alone = [each for each in counted if each.candidate]
    assert {each.candidate for each in alone} == {
        (ident, None) for ident in set().union(*candidates)}
    for each in alone:
        assert each.nodes == 1
        assert each.candidate[0] == uuids[ids.index(each.first)]
    assert sum(each.nodes for each in counted) == len(ids)


def test_candidate_by_its_name(fleet):
    node_id = fleet.node(name='node-1')
    fleet.node()
    ident = fleet[node_id].uuid
    assert collections.Counter(
        (each.candidate, each.nodes)
        for each in found([{'node-1', 'node-2'}])
    ) == {((ident, 'node-1'), 1): 1, (None, 1): 1}


#: Reservations: when they lapse, whether their host has the node, and why
#: that cannot be held. A stale one is of an instance that has gone.
RESERVATIONS = {
    None: (None, False, None),
    'endless': (None, True, 'reserved'),
    'leased': ('2999-01-01 00:00:00.000000', True, 'reserved'),
    'lapsed': ('2001-01-01 00:00:00.000000', False, None),
    'stale': (None, False, 'reserved'),
}
# As text, because SQLite's times have a form of their own.
_INSERT = sa.text(
    'INSERT INTO reservations (node_id, node_uuid, instance_uuid, host, '
    "expires_at, request_spec, created_at) VALUES (:node_id, '', "
    ":instance_uuid, :host, :expires_at, '{}', '2001-01-01 00:00:00.000000')")


@hypothesis.given(st.lists(st.tuples(
    strategies.nodes, st.sampled_from(list(RESERVATIONS)),
    st.sampled_from(['compute-1', 'Compute-1', 'compute-1 ', 'h\u00f6st',
                     None])), min_size=1, max_size=15))
@strategies.settings
def test_hosts_hold_what_they_have_reserved(fleet, batch):
    fleet.clear()
    expected = collections.Counter()
    for fields, reservation, host in batch:
        lapses, is_holder, reason = RESERVATIONS[reservation]
        instance = str(uuid.uuid4()) if reservation else None
        node_id = fleet.node(**fields, instance_uuid=instance)
        if reservation == 'stale':
            instance = str(uuid.uuid4())
        if reservation:
            fleet.execute(_INSERT, {
                'node_id': node_id, 'instance_uuid': instance, 'host': host,
                'expires_at': lapses})
        node = strategies.as_matching_sees(node_id, fields)
        if is_holder and host is None:
            reason = 'claimable'
        expected[strategies.told_apart(node), reason,
                 host if is_holder else None] += 1
    assert kinds(found(with_hosts=True)) == expected


@hypothesis.given(batches)
@strategies.settings
def test_parts_of_the_fleet_are_sums(fleet, batch):
    strategies.add(fleet, batch)
    parts, hosts = collections.Counter(), collections.Counter()
    for each in found():
        parts[each.facts['resource_class'], each.facts['conductor_group'],
              each.facts['shard'], each.reason, each.taken] += each.nodes
    for held in lookup.find_reservations():
        hosts[held.host, held.provision_state] += 1
    for sums, count in (parts, counting.by_partition), (
            hosts, counting.by_host):
        counted = engine.retry(count)()
        assert {tuple(key): number for *key, number in counted} == sums
        assert len(counted) == len(sums)


def test_hosts_that_hold_alike_nodes(fleet):
    for host in ('compute-1', 'compute-2', 'compute-2'):
        fleet.node()
        fleet.hold(owner=values.Assignment(host, None))
    assert {each.host: each.nodes for each in found(with_hosts=True)} == {
        'compute-1': 1, 'compute-2': 2}


T = ['CUSTOM_T0', 'CUSTOM_T1', 'CUSTOM_T2', 'CUSTOM_T3']

#: Two nodes each that differ in what is easily taken for the same.
PAIRS = [
    ({'resource_class': 'ab', 'conductor_group': 'c'},
     {'resource_class': 'a', 'conductor_group': 'bc'}),
    ({'owner': 'p', 'lessee': None}, {'owner': None, 'lessee': 'p'}),
    ({'shard': 'a', 'owner': None}, {'shard': None, 'owner': 'a'}),
    ({'shard': ''}, {'shard': None}),
    ({'shard': 'NULL'}, {'shard': None}),
    ({'shard': "NULL','NULL"}, {'shard': 'NULL', 'owner': 'NULL'}),
    ({'shard': "a','b", 'owner': 'c'}, {'shard': 'a', 'owner': "b','c"}),
    ({'shard': "a\\"}, {'shard': "a\\\\"}),
    ({'shard': 'a'}, {'shard': 'A'}),
    ({'shard': 'a'}, {'shard': 'a '}),
    ({'shard': 'a'}, {'shard': '\u00e4'}),
    # Plain checksums are linear: these two sets have the same sum of them.
    ({'traits': [T[0], T[3]]}, {'traits': [T[1], T[2]]}),
    ({'traits': T}, {'traits': []}),
    ({'traits': T[:1]}, {'traits': []}),
    ({'properties': None}, {'properties': ''}),
    ({'properties': ''}, {'properties': ' '}),
    ({'properties': '{"cpus": 4}'}, {'properties': '{"CPUS": 4}'}),
    ({'properties': '{"capabilities": "a"}'},
     {'properties': '{"capabilities": "A"}'}),
    ({'properties': '{"cpu_arch": "x"}'}, {'properties': '{"cpu_arch": ""}'}),
    ({'properties': '{"root_device": {"size": 1}, "a": {}, "cpus": 4}'},
     {'properties': '{"root_device": {"size": 1}, "a": {}, "cpus": 8}'}),
    ({'reservation': 'conductor-1'}, {'retired': True}),
]


@pytest.mark.parametrize('pair', PAIRS, ids=str)
def test_nodes_that_differ_are_told_apart(fleet, pair):
    one, other = ids = fleet.add(*pair)
    assert sorted((each.nodes, each.first, each.last)
                  for each in found()) == [(1, one, one),
                                                (1, other, other)], ids


@pytest.mark.parametrize('template', [
    '{{"root_device": {}, "cpus": 4}}',
    '{{"cpus": 4, "a": [{{"root_device": {}}}]}}',
    '{{"root_device": {}, "cpus": 4, "a": "\\u0061"}}',
    '{{"root_device": {}, "cpus": 4',
    '{{"root_device": {}, "cpus": NaN}}',
    '{{"cpus": 4, "a": "root_device": {}}}',
    '{{"cpus": 4, "a": "b"root_device": {}}}',
    '["cpus", "root_device": {}]',
    '"root_device": {}',
    '{{"cpus": 4}}"root_device": {}',
    '{{"cpus": 4, "a": \'"root_device": {}\'}}',
], ids=str)
def test_root_devices_change_nothing(fleet, template):
    texts = [template.format(device) for device in (
        *strategies.ROOT_DEVICES, '{"serial": "' + 20000 * 'x' + '"}',
        '{' + ', '.join(f'"{number}": "x"' for number in range(2000)) + '}')]
    fleet.add(*({'properties': text} for text in texts))
    assert kinds(found()) == collections.Counter(
        (strategies.told_apart(matching.Node(
            0, '', resource_class='gold', properties=text)), None, None)
        for text in texts)


@pytest.mark.parametrize('differing, repeat', [
    ({'cpus': 4}, True),
    ({'root_device': {'serial': '{}'}}, False),
    ({'memory_mb': '{}'}, False),
], ids=str)
def test_texts_that_repeat_are_counted_by(fleet, differing, repeat):
    assert not engine.retry(counting.texts_repeat)()
    # Few nodes are not looked at, and it is the ids that tell how many.
    apart = counting.FEW // 99 + 1
    fleet.add(*({'id': 1 + number * apart, 'properties': json.dumps(
        differing).replace('{}', str(number))} for number in range(100)))
    assert engine.retry(counting.texts_repeat)() == repeat
    assert sum(each.nodes for each in found()) == 100


@pytest.mark.parametrize('page', [1, 2, 7])
def test_pages_of_ids(fleet, page, monkeypatch):
    """However the ids are cut, what is counted is the same."""
    fleet.add(*({'id': number * number, 'resource_class': f'c{number % 3}',
                 'traits': ['CUSTOM_A'] * (number % 2)}
                for number in range(1, 8)))
    whole = found(with_hosts=True)
    monkeypatch.setattr(counting, 'PAGE', page)
    paged = found(with_hosts=True)
    assert sorted(paged, key=repr) == sorted(whole, key=repr)
    assert sum(each.nodes for each in paged) == 7


def test_gaps_between_ids_are_not_read(fleet):
    fleet.add({'id': 1}, {'id': 2 ** 30}, {'id': 2 ** 30 + 1})
    assert [([each.nodes for each in page], more) for page, more
            in engine.retry(lambda: [*counting.pages()])()] == [
                ([1], True), ([2], False)]


@pytest.mark.on('server')
def test_a_page_is_counted_at_one_moment(fleet):
    """Each transaction makes all nodes of another kind."""
    fleet.add(*[{'shard': 'a'}] * 30)
    done = threading.Event()

    def edit():
        while not done.is_set():
            for shard in 'ab':
                with fleet.engine.begin() as connection:
                    connection.execute(sa.update(models.nodes).values(
                        shard=shard, properties=json.dumps(
                            {'capabilities': shard})))

    editor = threading.Thread(target=edit)
    editor.start()
    try:
        for _ in range(100):
            [counted] = merged(engine.retry(rows)())
            assert counted.nodes == 30
            assert counted.capabilities in (None, counted.facts['shard'])
    finally:
        done.set()
        editor.join()
