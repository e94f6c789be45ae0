# SPDX-License-Identifier: Apache-2.0
"""Hardware profiles: the counts agree with how matching reads the nodes.

The database reads the properties with its own JSON functions, matching with
Python's. A profile may promise too much, since every node is checked again; it
must never hide a node.
"""

import random
import uuid

import hypothesis
from hypothesis import strategies as st
import pytest

from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import values
from ironic_reservations.api import resources
from ironic_reservations.api import responses
from ironic_reservations.db import engine
from ironic_reservations.fleet import capacity
from ironic_reservations.fleet import counts
from ironic_reservations.fleet import search
from ironic_reservations.reservations import dry_runs
from ironic_reservations.reservations import quotas
from tests.common import fleets
from tests.core import strategies


def dry_run(matcher):
    """Dry-run a request without limits."""
    return resources.present_dry_run(
        dry_runs.dry_run(matcher, quotas.Limits()))


def rows(project=None, **query):
    """Return the current capacity rows."""
    return [row.content for row in capacity.list_rows(
        0, capacity.Filter(
            fleets.reach(project), **query))[0]]


def index_rows(capacity_rows, *names):
    """Return {values of some columns: (total, free, held)}."""
    numbers = {tuple(row[name] for name in names):
               (row['total'], row['free'], row.get('held', 0))
               for row in capacity_rows}
    assert len(numbers) == len(capacity_rows)
    return numbers


@engine.retry
def search_all(matcher):
    """Return the IDs of all nodes that a search yields, without a hold."""
    return {node.id for node in search.find_nodes(
        matcher, counts.get_fresh_fleet())}


@pytest.mark.on('sqlite', 'server')
@hypothesis.given(st.lists(st.tuples(strategies.nodes,
                                     strategies.conditions),
                           min_size=1, max_size=25),
                  st.lists(strategies.requests, min_size=1, max_size=4),
                  st.none() | st.sampled_from(strategies.PROJECTS))
@strategies.settings
def test_search_finds_what_matching_accepts(fleet, batch, bodies, project):
    nodes = strategies.add(fleet, batch)
    for body in bodies:
        matcher = strategies.parse(body, project)
        visible = [(node, reason) for node, reason in nodes
                   if project in (None, node.owner, node.lessee)]
        expected = {node.id for node, reason in visible
                    if not reason and matcher.matches(node)}
        assert search_all(matcher) == expected, body
        verdict = dry_run(matcher)
        explanation = verdict['explanation']
        assert verdict['matching_nodes'] == len(expected)
        assert explanation['considered'] == len(visible)
        assert sum(entry['nodes'] for entry in explanation['eliminated']) == (
            len(visible) - len(expected))
        names = [*(constraint.name for constraint in matcher.constraints),
                 *matching.REASONS]
        order = [names.index(entry['by'])
                 for entry in explanation['eliminated']]
        assert order == sorted(order) and len(order) == len(set(order))


@pytest.mark.on('sqlite', 'server')
@hypothesis.given(
    st.lists(strategies.nodes, min_size=1, max_size=12), st.integers(1, 12),
    st.lists(st.sampled_from(['n', 'N', 'n ', '\u00f1', 'node-1', '0', "n'",
                              '\U0001f600', 'uuid', 'UUID']),
             min_size=1, max_size=4), strategies.requests)
@strategies.settings
def test_candidates_are_found_and_explained(fleet, batch, number, candidates,
                                            body):
    fleet.clear()
    names = ['n', 'node-1', '0', "n'"]
    batch = [{**fields, 'name': name, 'uuid': str(uuid.uuid4())}
             for fields, name in zip(batch, names + [None] * 12,
                                     strict=False)]
    ids = fleet.add(*batch)
    ident = batch[number % len(batch)]['uuid']
    matcher = strategies.parse({**body, 'candidate_nodes': [
        {'uuid': ident, 'UUID': ident.upper()}.get(candidate, candidate)
        for candidate in candidates]})
    nodes = [matching.Node(**{
                 **strategies.make_node(node_id, fields).__dict__,
                 'uuid': fields['uuid']})
             for node_id, fields in zip(ids, batch, strict=True)]
    expected = {node.id for node in nodes if matcher.matches(node)}
    assert search_all(matcher) == expected
    verdict = dry_run(matcher)
    assert verdict['matching_nodes'] == len(expected)
    assert verdict['explanation'] == responses.present_explanation(
        matcher.explain((node, None, 1) for node in nodes))


# Rare cases, some of which hypothesis has discovered.

NUMBER = {'memory_mb': 4096}
HOSTILE = [
    # Ironic's API and Python accept these as JSON.
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
    *((f'{{"memory_mb": 2048, "cpus": "8", {text}}}', {
        'memory_mb': 2000, 'vcpus': 8,
        'image': {'properties': {'hw_firmware_type': 'uefi'}}}) for text in (
            '"a": ' + '[' * 99 + ']' * 99, '"a": ' + '[' * 120 + ']' * 120,
            '"a": ' + '{"a": ' * 400 + '1' + '}' * 400,
            '"a": [' + ', '.join(['{}'] * 300) + ']',
            '"capabilities": "' + 'a:b,' * 500 + 'rack:r1"', '"a": 1e999',
            '"capabilities": null, "cpu_arch": null')),
]
WITHOUT_SIZE = [
    None, '', ' ', '{', 'null', '[1]', '3', '{"memory_mb": [2048]}',
    '{"memory_mb": {"a": 2048}}', '{"memory_mb": true}', '[' * 120,
    '[' * 120 + ']' * 120, r'{"memory_mb": "\u0000"}', '{"memory_mb":']


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('text, body', HOSTILE,
                         ids=lambda value: str(value)[:60])
def test_hostile_properties_do_not_hide_their_node(fleet, text, body):
    matcher = fleets.matcher(**body)
    assert matcher.matches(matching.Node(1, '', properties=text))
    node_id = fleet.add_node(properties=text)
    assert search_all(matcher) == {node_id}
    assert dry_run(matcher)['matching_nodes'] == 1


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize(
    'text', [text for text, _ in HOSTILE] + WITHOUT_SIZE,
    ids=lambda value: str(value)[:60])
def test_hostile_properties_of_one_node_harm_no_other(fleet, text):
    hostile_id = fleet.add_node(properties=text)
    node_id = fleet.add_node(properties={'memory_mb': 8192})
    assert fleet.count_nodes(host='compute-1') == (2, 2, 0)
    assert fleet.hold(memory_mb=8000)[0].node_id == node_id
    for size in (8000,) if text not in WITHOUT_SIZE else (8000, 1):
        with pytest.raises(exception.NoMatchingNode):
            fleet.hold(memory_mb=size)
    # A request without sizes gets the other node.
    assert fleet.hold()[0].node_id == hostile_id
    assert fleet.count_nodes(host='compute-1') == (2, 0, 2)


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
def test_values_that_a_collation_equates(fleet, field, values):
    numbers = range(1, len(values) + 1)
    for number, value in zip(numbers, values, strict=True):
        fields = ({'properties': {field: value}}
                  if field in ('capabilities', 'cpu_arch')
                  else {field: value})
        fleet.add(*[fields] * number)
    totals = [(row[field], row['total'], row['free']) for row in rows()]
    assert len(totals) == len(values)
    assert sorted(total for _, total, _ in totals) == list(numbers)
    assert all(total == free for _, total, free in totals)


@pytest.mark.on('sqlite', 'server')
@pytest.mark.parametrize('field', ['traits', 'capabilities'])
def test_long_values_that_differ_only_at_the_end(fleet, field):
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
    # A condition divides each group further.
    fleet.add(*({**fields, 'maintenance': bool(place % 2)}
                for place, fields in enumerate(batch)))
    row_by_end = {end: row for row in rows() for end in ends
                  if end in row[field]}
    assert {end: row['total'] for end, row in row_by_end.items()} == dict(
        zip(ends, (10, 20, 30, 40), strict=True))
    assert sum(row['free'] for row in row_by_end.values()) == 50
    assert all(len(row[field]) == 41 for row in row_by_end.values())
    assert len(rows()) == 4


@pytest.mark.on('sqlite', 'server')
def test_spellings_of_a_size_share_a_row(fleet):
    fleet.add(*({'properties': {'memory_mb': size}} for size in (
        4096, '4096', ' 4096 ', '4096.0', 4096.0, '04096')))
    assert index_rows(rows(), 'memory_mb', 'vcpus', 'local_gb') == {
        (4096, 0, 0): (6, 6, 0)}


def test_capabilities_in_another_order_share_a_row(fleet):
    fleet.add(*({'properties': {'capabilities': text}}
                for text in ('a:1,b', 'b:true, a:1', ',b,a:1,')))
    row, = rows()
    assert row['capabilities'] == {'a': '1', 'b': 'true'}
    assert row['total'] == 3


# Free and held nodes

@pytest.mark.parametrize('condition', strategies.CONDITIONS)
def test_free_and_eliminated(fleet, condition):
    fields, reason = strategies.CONDITIONS[condition]
    fleet.add_node(**{name: str(uuid.uuid4()) if value == 'x' else value
                      for name, value in fields.items()})
    row, = rows()
    assert row['total'] == 1
    assert row['free'] == (reason in (None, 'locked'))
    assert eliminated() == ([{'by': reason, 'nodes': 1}] if reason else [])


@pytest.mark.parametrize('instance_uuid', [None, fleets.INSTANCE])
def test_allocated_is_not_free(fleet, instance_uuid):
    fleet.add_node(allocation_id=fleet.add_allocation(),
                   instance_uuid=instance_uuid)
    row, = rows()
    assert (row['total'], row['free']) == (1, 0)
    assert eliminated() == [{'by': 'allocated', 'nodes': 1}]


def eliminated():
    """Return why the only node cannot be held; no other is near."""
    explanation = dry_run(
        fleets.matcher(resource_class='gold'))['explanation']
    assert 'nearest' not in explanation
    return explanation['eliminated']


def test_node_that_changes_between_two_calls_counts_once(fleet):
    """A deployed node has its instance's project as lessee."""
    fleet.add({}, {}, {})
    fleet.hold(owner=values.Assignment('compute-1'))
    [node_id] = fleet.holds
    rows()
    fleet.set_node(node_id, lessee='mine')
    # Free and held nodes come from one count.
    assert index_rows(rows(host='compute-1'), 'lessee') == {
        (None,): (2, 2, 0), ('mine',): (1, 0, 1)}
    fleet.set_node(node_id, lessee=None)
    assert sum(row['total'] for row in rows(host='compute-2')) == 3


@pytest.mark.on('sqlite', 'server')
def test_capacity_for_a_project(fleet):
    fleet.add({'owner': 'mine'}, {'lessee': 'mine', 'owner': 'yours'},
              {'owner': 'yours'}, {'owner': 'MINE'}, {},
              {'owner': 'mine', 'maintenance': True})
    assert index_rows(rows(project='mine'), 'owner', 'lessee') == {
        ('mine', None): (2, 1, 0), ('yours', 'mine'): (1, 1, 0)}
    assert rows(project='nobody') == rows(project='') == []
    assert sum(row['total'] for row in rows()) == 6


def test_pools_divide_profiles(fleet):
    first, second, _ = fleet.add({}, {}, {})
    fleet.add_pool('east', first)
    fleet.add_pool('west', second)
    assert index_rows(rows(), 'pool_project_id') == {
        (None,): (1, 1, 0), ('east',): (1, 1, 0), ('west',): (1, 1, 0)}
    # A project sees the nodes of its pools.
    assert index_rows(rows('east'), 'pool_project_id') == {
        ('east',): (1, 1, 0)}
    sums = capacity.list_rows(
        0, capacity.Filter(), by=['pool_project_id'])[0]
    assert [(row.content['pool_project_id'], row.content['total'])
            for row in sums] == [(None, 1), ('east', 1), ('west', 1)]
    sums = capacity.list_rows(0, capacity.Filter(), by=['project_id'])[0]
    assert [row.content['project_id'] for row in sums] == [
        None, 'east', 'west']
