# SPDX-License-Identifier: Apache-2.0
"""Hardware profiles: what is counted is what matching sees of the nodes.

The database reads the properties with its own JSON functions, matching with
Python's: here they are held against each other. A profile may promise too
much, since every node is looked at again; it must never hide a node.
"""

import random
import uuid

import hypothesis
from hypothesis import strategies as st
import pytest

from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations.db import engine
from ironic_reservations.fleet import capacity
from ironic_reservations.fleet import count as fleets
from ironic_reservations.fleet import search
from ironic_reservations.reservations import dry_runs
from ironic_reservations.reservations import quotas
from ironic_reservations.reservations import values
from tests.db import conftest
from tests.db import strategies


def dry_run(matcher):
    """For a caller without limits."""
    return dry_runs.dry_run(matcher, quotas.Quota())


def rows(**query):
    """Capacity as it is now."""
    return [row.shown for row in capacity.capacity(
        0, capacity.Filter(**query))[0]]


def counts(found, *names):
    """Rows as {values of some columns: (total, free, held)}."""
    counted = {tuple(row[name] for name in names):
               (row['total'], row['free'], row.get('held', 0))
               for row in found}
    assert len(counted) == len(found)
    return counted


@engine.retry
def found_by_search(matcher):
    """The ids of all nodes that a search gives, none of them taken."""
    return {node.id for node in search.search(matcher, fleets.fresh())}


@pytest.mark.on('sqlite', 'server')
@hypothesis.given(st.lists(st.tuples(strategies.nodes,
                                     strategies.conditions),
                           min_size=1, max_size=25),
                  st.lists(strategies.requests, min_size=1, max_size=4),
                  st.none() | st.sampled_from(strategies.PROJECTS))
@strategies.settings
def test_search_finds_what_matching_accepts(fleet, batch, bodies, project):
    fleet_now = strategies.add(fleet, batch)
    for body in bodies:
        matcher = strategies.parse(body, project)
        visible = [(node, reason) for node, reason in fleet_now
                   if project in (None, node.owner, node.lessee)]
        expected = {node.id for node, reason in visible
                    if not reason and matcher.matches(node)}
        assert found_by_search(matcher) == expected, body
        verdict = dry_run(matcher)
        told = verdict['explanation']
        assert verdict['matching_nodes'] == len(expected)
        assert told['considered'] == len(visible)
        assert sum(each['nodes'] for each in told['eliminated']) == (
            len(visible) - len(expected))
        names = [*(each.name for each in matcher.constraints),
                 *matching.REASONS]
        order = [names.index(each['by'])
                 for each in told['eliminated']]
        assert order == sorted(order) and len(order) == len(set(order))


@pytest.mark.on('sqlite', 'server')
@hypothesis.given(
    st.lists(strategies.nodes, min_size=1, max_size=12), st.integers(1, 12),
    st.lists(st.sampled_from(['n', 'N', 'n ', '\u00f1', 'node-1', '0', "n'",
                              '\U0001f600', 'uuid', 'UUID']),
             min_size=1, max_size=4), strategies.requests)
@strategies.settings
def test_candidates_are_found_and_explained(fleet, batch, number, wanted,
                                            body):
    fleet.clear()
    names = ['n', 'node-1', '0', "n'"]
    batch = [{**fields, 'name': name, 'uuid': str(uuid.uuid4())}
             for fields, name in zip(batch, names + [None] * 12,
                                     strict=False)]
    ids = fleet.add(*batch)
    ident = batch[number % len(batch)]['uuid']
    matcher = strategies.parse({**body, 'candidate_nodes': [
        {'uuid': ident, 'UUID': ident.upper()}.get(each, each)
        for each in wanted]})
    seen = [matching.Node(**{
                **strategies.as_matching_sees(node_id, fields).__dict__,
                'uuid': fields['uuid']})
            for node_id, fields in zip(ids, batch, strict=True)]
    expected = {node.id for node in seen if matcher.matches(node)}
    assert found_by_search(matcher) == expected
    verdict = dry_run(matcher)
    assert verdict['matching_nodes'] == len(expected)
    assert verdict['explanation'] == matcher.explain(
        (node, None, 1) for node in seen)


# What hypothesis would take long to find, or what it has found.

NUMBER = {'memory_mb': 4096}
HOSTILE = [
    # What Ironic's API takes as JSON, and Python reads.
    (r'{"memory_mb": 4096, "capabilities": "\ud800"}', NUMBER),
    (r'{"memory_mb": 4096, "cpu_arch": "\ud800"}', NUMBER),
    (r'{"memory_mb": 4096, "cpus": "\ud800"}', NUMBER),
    (r'{"capabilities": "gpu:1,x:\ud800"}',
     {'extra_specs': {'capabilities': 'gpu:1'}}),
    (r'{"capabilities": "x:\u0000,gpu:1"}',
     {'extra_specs': {'capabilities': 'gpu:1'}}),
    (r'{"capabilities": "x:\ud83d\ude00,gpu:1"}',
     {'extra_specs': {'capabilities': 'gpu:1'}}),
    ('{"memory_mb": 4096, "a": NaN}', NUMBER),
    ('{"a": NaN, "memory_mb": 4096}', NUMBER),
    ('{"a": -Infinity, "memory_mb": 4096}', NUMBER),
    ('{"cpus": Infinity, "memory_mb": 4096}', NUMBER),
    ('{"memory_mb": true, "cpus": 4}', {'vcpus': 4}),
    ('{"capabilities": ["x,boot_mode:bios,y"], "memory_mb": 4096}',
     {**NUMBER, 'image': {'properties': {'hw_firmware_type': 'uefi'}}}),
    ('{"capabilities": {"a": ",boot_mode:bios,"}, "memory_mb": 4096}',
     {**NUMBER, 'image': {'properties': {'hw_firmware_type': 'uefi'}}}),
    ('{"capabilities": true, "memory_mb": 4096}', NUMBER),
    ('{"cpu_arch": 64, "memory_mb": 4096}', NUMBER),
    ('{"cpu_arch": ["x86_64"], "memory_mb": 4096}', NUMBER),
    ('{"memory_mb": 4096.0000000000009}', NUMBER),
    (r'{"memory\u005fmb": 4096}', NUMBER),
    (r'{"memory_mb": 4096, "a": "\u0061"}', NUMBER),
]


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('text, body', HOSTILE,
                         ids=lambda value: str(value)[:60])
def test_hostile_properties_do_not_hide_their_node(fleet, text, body):
    matcher = conftest.matcher(**body)
    assert matcher.matches(matching.Node(1, '', properties=text))
    node_id = fleet.node(properties=text)
    assert found_by_search(matcher) == {node_id}
    assert dry_run(matcher)['matching_nodes'] == 1


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('text', [text for text, _ in HOSTILE]
                         + [r'{"memory_mb": "\u0000"}', '{"memory_mb":'],
                         ids=lambda value: value[:60])
def test_hostile_properties_of_one_node_harm_no_other(fleet, text):
    fleet.node(properties=text)
    node_id = fleet.node(properties={'memory_mb': 8192})
    assert sum(row['total'] for row in rows()) == 2
    assert fleet.hold(memory_mb=8000)[0].node_id == node_id
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold(memory_mb=8000)


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('field, values', [
    ('resource_class', ['gold', 'GOLD', 'gold ', 'g\u00f6ld', None, '']),
    ('conductor_group', ['', ' ', 'rack', 'Rack', 'r\u00e4ck']),
    ('shard', [None, '', 'a', 'A', 'a ', '\u00e4']),
    ('owner', [None, 'p', 'P', 'p ']),
    ('lessee', [None, 'p', 'P', 'p ']),
    ('traits', [[], ['CUSTOM_A'], ['CUSTOM_A', 'CUSTOM_B'],
                ['CUSTOM_A_B']]),
    ('capabilities', ['', 'gpu:a', 'gpu:A', 'GPU:a', 'gpu:\u00e4',
                      'gpu:a,ssd', 'gpu:a b']),
    ('cpu_arch', ['', 'x86_64', 'aarch64', 'x86_6\u2074']),
])
def test_what_a_collation_takes_for_equal_stays_apart(fleet, field, values):
    numbers = range(1, len(values) + 1)
    for number, value in zip(numbers, values, strict=True):
        fields = ({'properties': {field: value}}
                  if field in ('capabilities', 'cpu_arch')
                  else {field: value})
        fleet.add(*[fields] * number)
    found = [(row[field], row['total'], row['free']) for row in rows()]
    assert len(found) == len(values)
    assert sorted(total for _, total, _ in found) == list(numbers)
    assert all(total == free for _, total, free in found)


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('field', ['traits', 'capabilities'])
def test_long_values_that_differ_at_the_end_alone(fleet, field):
    """MySQL sorts by 1,024 bytes, and cuts GROUP_CONCAT there."""
    common = [f'CUSTOM_{number:03}_{"X" * 200}' for number in range(40)]
    ends = [f'CUSTOM_Z{number}' for number in range(4)]
    batch = []
    for number, end in enumerate(ends, start=1):
        names = [*common, end]
        batch += number * 10 * [
            {'traits': names} if field == 'traits' else
            {'properties': {'capabilities': ','.join(names)}}]
    random.shuffle(batch)
    # And a condition, which splits the groups once more.
    fleet.add(*({**fields, 'maintenance': bool(place % 2)}
                for place, fields in enumerate(batch)))
    found = {end: row for row in rows() for end in ends
             if end in row[field]}
    assert {end: row['total'] for end, row in found.items()} == dict(
        zip(ends, (10, 20, 30, 40), strict=True))
    assert sum(row['free'] for row in found.values()) == 50
    assert all(len(row[field]) == 41 for row in found.values())
    assert len(rows()) == 4


@pytest.mark.on('sqlite', 'server')
def test_spellings_of_a_size_share_a_row(fleet):
    fleet.add(*({'properties': {'memory_mb': size}} for size in (
        4096, '4096', ' 4096 ', '4096.0', 4096.0, '04096')))
    assert counts(rows(), 'memory_mb', 'vcpus', 'local_gb') == {
        (4096, 0, 0): (6, 6, 0)}


def test_capabilities_in_another_order_share_a_row(fleet):
    fleet.add(*({'properties': {'capabilities': text}}
                for text in ('a:1,b', 'b:true, a:1', ',b,a:1,')))
    row, = rows()
    assert row['capabilities'] == {'a': '1', 'b': 'true'}
    assert row['total'] == 3


# What is free, what is held

@pytest.mark.parametrize('condition', strategies.CONDITIONS)
def test_free(fleet, condition):
    fields, reason = strategies.CONDITIONS[condition]
    fleet.node(**{name: str(uuid.uuid4()) if value == 'x' else value
                  for name, value in fields.items()})
    row, = rows()
    assert row['total'] == 1
    assert row['free'] == (reason in (None, 'locked'))
    assert eliminated() == ([{'by': reason, 'nodes': 1}] if reason else [])


@pytest.mark.parametrize('instance_uuid', [None, conftest.INSTANCE])
def test_allocated_is_not_free(fleet, instance_uuid):
    fleet.node(allocation_id=fleet.allocation(), instance_uuid=instance_uuid)
    row, = rows()
    assert (row['total'], row['free']) == (1, 0)
    assert eliminated() == [{'by': 'allocated', 'nodes': 1}]


def eliminated():
    """What keeps the only node from being held, and nothing is near."""
    told = dry_run(conftest.matcher(resource_class='gold'))['explanation']
    assert 'nearest' not in told
    return told['eliminated']


def test_node_that_changes_between_two_calls_counts_once(fleet):
    """A deployed node has its instance's project as lessee."""
    fleet.add({}, {}, {})
    fleet.hold(owner=values.Assignment('compute-1'))
    [node_id] = fleet.held
    rows()
    fleet.edit(node_id, lessee='mine')
    # What is free and what is held comes from one count.
    found = rows(host='compute-1')
    assert counts(found, 'lessee') == {(None,): (2, 2, 0),
                                       ('mine',): (1, 0, 1)}
    fleet.edit(node_id, lessee=None)
    found = rows(host='compute-2')
    assert sum(row['total'] for row in found) == 3


# For a project

@pytest.fixture
def owned(fleet):
    fleet.add({'owner': 'mine'}, {'lessee': 'mine', 'owner': 'yours'},
              {'owner': 'yours'}, {'owner': 'MINE'}, {},
              {'owner': 'mine', 'maintenance': True})
    return fleet


@pytest.mark.on('sqlite', 'server')
def test_capacity_for_a_project(owned):
    assert counts(rows(restricted_to='mine'), 'owner', 'lessee') == {
        ('mine', None): (2, 1, 0), ('yours', 'mine'): (1, 1, 0)}
    assert rows(restricted_to='nobody') == rows(restricted_to='') == []
    assert sum(row['total'] for row in rows()) == 6
