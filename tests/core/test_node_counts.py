# SPDX-License-Identifier: Apache-2.0
"""The counting of nodes, by the text of their properties or by their facts.

Both ways agree with how Python reads the same nodes.
"""

import array
import collections
import itertools
import json
import threading
from unittest import mock
import uuid

import hypothesis
from hypothesis import strategies as st
import pytest
import sqlalchemy as sa

from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.db import engine
from ironic_reservations.db import host_rows
from ironic_reservations.db import models
from ironic_reservations.db import node_counts
from ironic_reservations.fleet import profiles
from ironic_reservations.reservations import lookup
from tests.core import strategies

pytestmark = pytest.mark.on('sqlite', 'server')


def count_pages(*args):
    """Count the nodes, page by page, and return all rows."""
    return [row for page, _ in node_counts.count_pages(*args) for row in page]


@engine.retry
def count_nodes(candidates=(), with_hosts=False):
    """Count the nodes in both ways, which must agree."""
    results = []
    for way in (True, False):
        with mock.patch.object(node_counts, 'texts_repeat',
                               lambda way=way: way):
            results.append(merge(count_pages(node_counts.Scope(
                candidates, with_hosts=with_hosts))))
    by_text, by_facts = results
    assert sorted(by_text, key=repr) == sorted(by_facts, key=repr)
    return by_text


def merge(rows):
    """Merge rows that differ only in the numbers and IDs of their nodes."""
    sums = {}
    for row in rows:
        key = repr(row._replace(nodes=0, ids=None))
        assert row.nodes == len(row.ids)
        before = sums.get(key, row._replace(nodes=0, ids=()))
        sums[key] = row._replace(
            nodes=before.nodes + row.nodes,
            ids=array.array('I', sorted([*before.ids, *row.ids])))
    return list(sums.values())


def count_profiles(rows):
    """Return the numbers of nodes by the facts that Python distinguishes."""
    numbers = collections.Counter()
    for row in rows:
        [profile] = profiles.Fleet.from_counts([row]).profiles
        none = array.array('I')
        assert (profile.ids, profile.other_ids) == (
            (row.ids, none) if row.reason is None else (none, row.ids))
        numbers[strategies.profile_key(profile.node), row.reason,
                row.host] += row.nodes
    return numbers


batches = st.lists(st.tuples(strategies.nodes, strategies.conditions),
                   min_size=1, max_size=25)


@hypothesis.given(batches)
@strategies.settings
def test_counts_agree_with_matching(fleet, batch):
    nodes = strategies.add(fleet, batch)
    rows = count_nodes()
    assert count_profiles(rows) == collections.Counter(
        (strategies.profile_key(node), reason, None) for node, reason in nodes)
    assert sorted(itertools.chain.from_iterable(
        row.ids for row in rows)) == [node.id for node, _ in nodes]


@pytest.mark.parametrize('name', ['memory_mb', 'cpus', 'local_gb'])
@pytest.mark.parametrize('value', [True, False])
def test_boolean_is_no_size(fleet, name, value):
    """For a database true may be 1."""
    fleet.add_node(properties=json.dumps({'capabilities': 'a:b', name: value}))
    [profile] = profiles.Fleet.from_counts(count_nodes()).profiles
    assert set(profile.node.sizes.values()) == {0}
    # The node is found by these facts.
    fleet.hold()


@hypothesis.given(batches, st.lists(st.sets(st.integers(0, 24)), min_size=1,
                                    max_size=2))
@strategies.settings
def test_candidates_are_counted_one_by_one(fleet, batch, places):
    ids = [node.id for node, _ in strategies.add(fleet, batch)]
    uuids = [fleet[node_id].uuid for node_id in ids]
    candidates = [{uuids[place] for place in request if place < len(ids)}
                  for request in places]
    rows = count_nodes(candidates)
    candidate_rows = [row for row in rows if row.candidate]
    assert {row.candidate for row in candidate_rows} == {
        (ident, None) for ident in set().union(*candidates)}
    for row in candidate_rows:
        assert row.nodes == 1
        assert row.candidate[0] == uuids[ids.index(*row.ids)]
    assert sum(row.nodes for row in rows) == len(ids)


def test_candidate_by_its_name(fleet):
    node_id = fleet.add_node(name='node-1')
    fleet.add_node()
    ident = fleet[node_id].uuid
    assert collections.Counter(
        (row.candidate, row.nodes)
        for row in count_nodes([{'node-1', 'node-2'}])
    ) == {((ident, 'node-1'), 1): 1, (None, 1): 1}


#: Reservations: when they expire, whether their host has the node, and why
#: the node cannot be held. The instance of a stale one no longer exists.
RESERVATIONS = {
    None: (None, False, None),
    'endless': (None, True, 'reserved'),
    'leased': ('2999-01-01 00:00:00.000000', True, 'reserved'),
    'expired': ('2001-01-01 00:00:00.000000', False, None),
    'stale': (None, False, 'reserved'),
}
# As text, because SQLite has its own format of times.
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
        expires_at, is_holder, reason = RESERVATIONS[reservation]
        instance = str(uuid.uuid4()) if reservation else None
        node_id = fleet.add_node(**fields, instance_uuid=instance)
        if reservation == 'stale':
            instance = str(uuid.uuid4())
        if reservation:
            fleet.execute(_INSERT, {
                'node_id': node_id, 'instance_uuid': instance, 'host': host,
                'expires_at': expires_at})
        node = strategies.make_node(node_id, fields)
        if is_holder and host is None:
            reason = 'claimable'
        expected[strategies.profile_key(node), reason,
                 host if is_holder else None] += 1
    assert count_profiles(count_nodes(with_hosts=True)) == expected


@hypothesis.given(batches)
@strategies.settings
def test_partitions_and_hosts_are_sums(fleet, batch):
    strategies.add(fleet, batch)
    parts, hosts = collections.Counter(), collections.Counter()
    for row in count_nodes():
        parts[row.facts['resource_class'], row.facts['conductor_group'],
              row.facts['shard'], row.reason, row.taken] += row.nodes
    for reservation in lookup.find_reservations():
        hosts[reservation.host, reservation.provision_state] += 1
    for expected, count in (parts, node_counts.count_by_partition), (
            hosts, host_rows.count_by_host):
        rows = engine.retry(count)()
        assert {tuple(key): number for *key, number in rows} == expected
        assert len(rows) == len(expected)


def test_hosts_that_hold_equal_nodes(fleet):
    for host in ('compute-1', 'compute-2', 'compute-2'):
        fleet.add_node()
        fleet.hold(owner=values.Assignment(host))
    assert {row.host: row.nodes for row in count_nodes(with_hosts=True)} == {
        'compute-1': 1, 'compute-2': 2}


T = ['CUSTOM_T0', 'CUSTOM_T1', 'CUSTOM_T2', 'CUSTOM_T3']

#: Pairs of nodes whose differences are easily missed.
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
def test_nodes_that_differ_have_their_own_rows(fleet, pair):
    one, other = ids = fleet.add(*pair)
    assert sorted(row.ids.tolist() for row in count_nodes()) == [
        [one], [other]], ids


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
    assert count_profiles(count_nodes()) == collections.Counter(
        (strategies.profile_key(matching.Node(
            0, '', resource_class='gold', properties=text)), None, None)
        for text in texts)


@pytest.mark.parametrize('differing, repeat', [
    ({'cpus': 4}, True),
    ({'root_device': {'serial': '{}'}}, False),
    ({'memory_mb': '{}'}, False),
], ids=str)
def test_counts_by_text_where_texts_repeat(fleet, differing, repeat):
    assert not engine.retry(node_counts.texts_repeat)()
    # Few nodes are not sampled, and their number is estimated by the IDs.
    apart = node_counts.FEW // 99 + 1
    fleet.add(*({'id': 1 + number * apart, 'properties': json.dumps(
        differing).replace('{}', str(number))} for number in range(100)))
    assert engine.retry(node_counts.texts_repeat)() == repeat
    assert sum(row.nodes for row in count_nodes()) == 100


@pytest.mark.parametrize('page', [1, 2, 7])
def test_pages_of_ids(fleet, page, monkeypatch):
    """The size of pages does not change the counts."""
    fleet.add(*({'id': number * number, 'resource_class': f'c{number % 3}',
                 'traits': ['CUSTOM_A'] * (number % 2)}
                for number in range(1, 8)))
    whole = count_nodes(with_hosts=True)
    monkeypatch.setattr(node_counts, 'PAGE', page)
    rows = count_nodes(with_hosts=True)
    assert sorted(rows, key=repr) == sorted(whole, key=repr)
    assert sum(row.nodes for row in rows) == 7


def test_gaps_between_ids_are_not_read(fleet):
    fleet.add({'id': 1}, {'id': 2 ** 30}, {'id': 2 ** 30 + 1})
    assert [(sum(row.nodes for row in page), more) for page, more
            in engine.retry(lambda: [*node_counts.count_pages()])()] == [
                (1, True), (2, False)]


@pytest.mark.on('server')
def test_page_is_one_snapshot(fleet):
    """Each transaction changes the profile of all nodes."""
    fleet.add(*[{'shard': 'a'}] * 30)
    is_stopping = threading.Event()

    def edit():
        while not is_stopping.is_set():
            for shard in 'ab':
                with fleet.engine.begin() as connection:
                    connection.execute(sa.update(models.nodes).values(
                        shard=shard, properties=json.dumps(
                            {'capabilities': shard})))

    thread = threading.Thread(target=edit)
    thread.start()
    try:
        for _ in range(100):
            [row] = merge(engine.retry(count_pages)())
            assert row.nodes == 30
            assert row.capabilities in (None, row.facts['shard'])
    finally:
        is_stopping.set()
        thread.join()
