# SPDX-License-Identifier: Apache-2.0
"""Hardware profiles: what is counted is what matching sees of the nodes.

The database reads the properties with its own JSON functions, matching with
Python's: here they are held against each other. A profile may promise too
much, since every node is looked at again; it must never hide a node.
"""

import collections
import contextlib
import dataclasses
import json
import random
import threading
import uuid

import hypothesis
from hypothesis import strategies as st
import pytest
import sqlalchemy as sa

from ironic_reservations import capacity
from ironic_reservations import exception
from ironic_reservations import matching
from ironic_reservations import request_spec
from ironic_reservations import reservations
from ironic_reservations import search
from ironic_reservations.db import engine
from ironic_reservations.db import models


@pytest.fixture(autouse=True)
def nothing_counted_yet(monkeypatch):
    """What a process has just after its start."""
    for name in ('_fleet', '_fleet_with_hosts'):
        monkeypatch.setattr(capacity, name, capacity._Shared(
            getattr(capacity, name)._compute))


@pytest.fixture
def fleet(fleet):
    yield fleet
    # What conftest's fleet does not clear: it references nodes.
    with fleet.engine.begin() as connection:
        for table in (models.ports, models.portgroups,
                      models.volume_targets):
            connection.execute(sa.delete(table))


def rows(**query):
    """Capacity as it is now."""
    return capacity.capacity(max_age=0, **query)[0]


def counts(found, *names):
    """Rows as {values of some columns: (total, free, held)}."""
    counted = {tuple(row[name] for name in names):
               (row['total'], row['free'], row['held']) for row in found}
    assert len(counted) == len(found)
    return counted


def parse(body):
    try:
        return request_spec.RequestSpec.from_dict(body)
    except exception.InvalidInput:
        hypothesis.reject()


def found_by_search(spec, limited_to=None):
    """The ids of all nodes that a search gives, none of them taken."""
    found = set()
    with contextlib.suppress(exception.NoMatchingNode):
        for node in search.search(spec, limited_to):
            found.add(node.id)
    return found


def as_matching_sees(node_id, fields):
    return matching.Node(**{
        'id': node_id, 'uuid': '', 'resource_class': 'gold',
        **{name: value for name, value in fields.items()
           if name in ('name', 'resource_class', 'properties',
                       'conductor_group', 'shard', 'owner', 'lessee')},
        'traits': frozenset(fields.get('traits', ()))})


def told_apart(node):
    """All that a request can tell of a node."""
    return (node.resource_class, *node.sizes.values(), node.cpu_arch,
            tuple(sorted(node.capabilities.items())),
            tuple(sorted(node.traits)), node.conductor_group, node.shard,
            node.owner, node.lessee)


# A small pool of everything, so that requests and nodes meet.
SIZES = [0, 1, 3, 1024, 4096, 2 ** 31 - 1]
TRAITS = ['CUSTOM_A', 'CUSTOM_B', 'HW_CPU_X86_VMX']
CLASSES = ['gold', 'Gold', 'gold ', 'g\u00f6ld', 'CUSTOM_GOLD', 'silver',
           'baremetal.gold', 'baremetal-gold', '']
GROUPS = ['', ' ', 'rack', 'Rack', 'rack ', 'r\u00e4ck']
SHARDS = ['a', 'A', 'a ', '\u00e4', 'b']
PROJECTS = ['p', 'P', 'p ', 'q']
ITEMS = ['gpu', 'gpu:false', 'gpu:1', 'GPU:1', 'gpu: 1', 'ssd:4', 'ssd:abc',
         'boot_mode:uefi', 'boot_mode:BIOS', 'gpu:a b', '', ',', ':',
         'k\u00e9y:1', 'key:1', 'key:1 ', 'ssd:\u2003', "o'k:'", 'a"b:\\',
         '\U0001f600:\U0001f600', 'x:' + 'y' * 1500]

_sizes = st.sampled_from(SIZES) | st.integers(0, 9000)
_numbers = st.one_of(
    _sizes.map(str),
    _sizes.map('"{}"'.format),
    _sizes.map('"{}.0"'.format),
    _sizes.map('{}.5'.format),
    _sizes.map('"{}abc"'.format),
    _sizes.map('-{}'.format),
    _sizes.map('"+{}"'.format),
    _sizes.map('{}e0'.format),
    _sizes.map('"{}e1"'.format),
    _sizes.map('"000{}"'.format),
    st.tuples(st.sampled_from([' ', r'\t', r'\n', r'\u000b', r'\u00a0']),
              _sizes).map(lambda pair: '"{0}{1}{0}"'.format(*pair)),
    st.sampled_from(['null', '""', '" "', '[4096]', '{"a": 4096}', '-0',
                     '1e400', '9' * 17, '9' * 19, '9' * 25, '9' * 70,
                     '"' + '9' * 19 + '"', '"0x1000"', '"4_096"', '".5"',
                     '"4096."', '"\\u0664"', '"\\u0034096"', '"NaN"']),
    st.text(st.characters(exclude_categories=['Cs', 'Cc']),
            max_size=6).map(json.dumps))
_capabilities = st.lists(st.sampled_from(ITEMS), max_size=4).map(
    ','.join).flatmap(lambda text: st.sampled_from(
        [json.dumps(text), json.dumps(text, ensure_ascii=False)
         if text.isascii() else json.dumps(text)]))
_architectures = st.sampled_from(
    ['"x86_64"', '"amd64"', '"AMD64"', '" x86_64 "', '"aarch64"', '""',
     '"\\u00e4"', 'null'])
_others = st.tuples(
    st.sampled_from(['MEMORY_MB', 'memory_mb ', '', '$.cpus', 'a.b', 'a"b',
                     'root_device']),
    _numbers | st.sampled_from(['true', '"\\ud800"', '"\\u0000"',
                                '{"memory_mb": 9999, "cpus": 9999}',
                                '[{"memory_mb": 9999}]']))


@st.composite
def _objects(draw):
    known = {'memory_mb': _numbers, 'cpus': _numbers, 'local_gb': _numbers,
             'capabilities': _capabilities, 'cpu_arch': _architectures}
    names = draw(st.permutations(sorted(known)))[:draw(st.integers(0, 5))]
    pairs = {name: draw(known[name]) for name in names}
    pairs.update(draw(st.lists(_others, max_size=2)))
    text = '{' + ', '.join(f'{json.dumps(name)}: {value}'
                           for name, value in pairs.items()) + '}'
    return draw(st.sampled_from([text, f'  {text}\n']))


nodes = st.fixed_dictionaries({
    'properties': st.one_of(
        st.fixed_dictionaries(dict.fromkeys(
            ['memory_mb', 'cpus', 'local_gb'], _sizes)).map(json.dumps),
        _objects(), _objects(),
        st.sampled_from([None, '', '{}', 'null', '[]', '"', '{'])),
    'traits': st.sets(st.sampled_from(TRAITS)),
    'resource_class': st.none() | st.sampled_from(CLASSES),
    'conductor_group': st.sampled_from(GROUPS),
    'shard': st.none() | st.sampled_from(SHARDS),
    'owner': st.none() | st.sampled_from(PROJECTS),
    'lessee': st.none() | st.sampled_from(PROJECTS),
})

#: What may become of nodes, and why it keeps them from being held.
CONDITIONS = {
    'free': ({}, None),
    'held': ({'instance_uuid': 'x'}, 'reserved'),
    'locked': ({'reservation': 'conductor-1'}, 'locked'),
    'maintenance': ({'maintenance': True, 'reservation': 'c'},
                    'maintenance'),
    'busy': ({'provision_state': 'cleaning', 'retired': True},
             'not available'),
    'retired': ({'retired': True}, 'retired'),
    'unknown power': ({'power_state': None}, 'power state unknown'),
    'child': ({'parent_node': 'x'}, 'child node'),
}
_conditions = st.just('free') | st.sampled_from(sorted(CONDITIONS))


def _some(values):
    """Mostly not asked for: else nothing would ever match."""
    return st.one_of(st.none(), st.none(), values)


_requests = st.fixed_dictionaries({
    'memory_mb': _sizes | st.just(0),
    'vcpus': _some(_sizes), 'root_gb': _some(_sizes),
    'resource_class': _some(st.sampled_from(list(filter(None, CLASSES)))),
    'conductor_group': _some(st.sampled_from(GROUPS)),
    'shard': _some(st.sampled_from(SHARDS)),
    'extra_specs': _some(st.fixed_dictionaries({}, optional={
        'reservations:match': st.sampled_from(['exact', 'at_least']),
        'resources:MEMORY_MB': st.just('0'),
        'trait:CUSTOM_A': st.sampled_from(['required', 'forbidden']),
        'trait:CUSTOM_B': st.sampled_from(['required', 'forbidden']),
        'capabilities': st.sampled_from(
            ['gpu', 'gpu:1', 'k\u00e9y:1', '\U0001f600:\U0001f600']),
        'capabilities:ssd': st.sampled_from(['>= 4', '4', 's!= x']),
        'capabilities:cpu_arch': st.sampled_from(['x86_64', '<or> amd64']),
    })),
    'image': _some(st.fixed_dictionaries({}, optional={
        'min_ram': _sizes, 'min_disk': _sizes,
        'properties': st.fixed_dictionaries({}, optional={
            'hw_firmware_type': st.sampled_from(['uefi', 'bios'])})})),
})

_settings = hypothesis.settings(
    deadline=None, max_examples=30, suppress_health_check=[
        hypothesis.HealthCheck.function_scoped_fixture,
        hypothesis.HealthCheck.too_slow])


def add(fleet, batch):
    """Add nodes in some conditions; pairs of a matching.Node and reason."""
    fleet.clear()
    written = []
    for fields, condition in batch:
        more = dict(CONDITIONS[condition][0])
        for name in more.keys() & {'instance_uuid', 'parent_node'}:
            more[name] = str(uuid.uuid4())
        written.append({**fields, **more})
    ids = fleet.add(*written)
    return [(as_matching_sees(node_id, fields), CONDITIONS[condition][1])
            for node_id, (fields, condition) in zip(ids, batch, strict=True)]


@hypothesis.given(st.lists(st.tuples(nodes, _conditions), min_size=1,
                           max_size=25))
@_settings
def test_profiles_are_the_nodes_as_matching_sees_them(fleet, batch):
    expected = collections.Counter(
        (told_apart(node), reason) for node, reason in add(fleet, batch))
    found = collections.Counter()
    for profile in capacity.count():
        for reason, number in profile.counts.items():
            found[told_apart(profile.node), reason] += number
    assert found == expected


@hypothesis.given(st.lists(st.tuples(nodes, _conditions), min_size=1,
                           max_size=25),
                  st.lists(_requests, min_size=1, max_size=4),
                  st.none() | st.sampled_from(PROJECTS))
@_settings
def test_search_finds_what_matching_accepts(fleet, batch, bodies, project):
    fleet_now = add(fleet, batch)
    for body in bodies:
        spec = parse(body)
        asked = matching.constraints(spec)
        visible = [(node, reason) for node, reason in fleet_now
                   if project in (None, node.owner, node.lessee)]
        expected = {node.id for node, reason in visible
                    if not reason and matching.matches(asked, node)}
        assert found_by_search(spec, project) == expected, body
        verdict = search.dry_run(spec, project)
        explanation = verdict['explanation']
        assert verdict['matching_nodes'] == len(expected)
        assert explanation['considered'] == len(visible)
        assert sum(each['nodes'] for each in explanation['eliminated']) == (
            len(visible) - len(expected))
        names = [name for name, _ in asked] + list(matching.REASONS)
        order = [names.index(each['by'])
                 for each in explanation['eliminated']]
        assert order == sorted(order) and len(order) == len(set(order))


@hypothesis.given(
    st.lists(nodes, min_size=1, max_size=12), st.integers(1, 12),
    st.lists(st.sampled_from(['n', 'N', 'n ', '\u00f1', 'node-1', '0', "n'",
                              '\U0001f600', 'uuid', 'UUID']),
             min_size=1, max_size=4), _requests)
@_settings
def test_candidates_are_found_and_explained(fleet, batch, number, wanted,
                                            body):
    fleet.clear()
    names = ['n', 'node-1', '0', "n'"]
    batch = [{**fields, 'name': name, 'uuid': str(uuid.uuid4())}
             for fields, name in zip(batch, names + [None] * 12,
                                     strict=False)]
    ids = fleet.add(*batch)
    ident = batch[number % len(batch)]['uuid']
    spec = parse({**body, 'candidate_nodes': [
        {'uuid': ident, 'UUID': ident.upper()}.get(each, each)
        for each in wanted]})
    asked = matching.constraints(spec)
    seen = [matching.Node(**{**as_matching_sees(node_id, fields).__dict__,
                             'uuid': fields['uuid']})
            for node_id, fields in zip(ids, batch, strict=True)]
    expected = {node.id for node in seen if matching.matches(asked, node)}
    assert found_by_search(spec) == expected
    verdict = search.dry_run(spec, None)
    assert verdict['matching_nodes'] == len(expected)
    assert verdict['explanation'] == matching.explain(
        asked, ((node, None, 1) for node in seen))


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
]


@pytest.mark.parametrize('text, body', HOSTILE,
                         ids=lambda value: str(value)[:60])
def test_hostile_properties_do_not_hide_their_node(fleet, text, body):
    spec = request_spec.RequestSpec.from_dict(body)
    assert matching.matches(matching.constraints(spec),
                            matching.Node(1, '', properties=text))
    node_id = fleet.node(properties=text)
    assert found_by_search(spec) == {node_id}
    assert search.dry_run(spec, None)['matching_nodes'] == 1


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


def test_empty_fleet(fleet):
    assert rows() == [] == rows(host='compute-1')


# What is free, what is held

@pytest.mark.parametrize('condition', CONDITIONS)
def test_free(fleet, condition):
    fields, reason = CONDITIONS[condition]
    fleet.node(**{name: str(uuid.uuid4()) if value == 'x' else value
                  for name, value in fields.items()})
    row, = rows()
    assert row['total'] == 1
    assert row['free'] == (reason in (None, 'locked'))


def test_allocated_is_not_free(fleet):
    fleet.node(allocation_id=fleet.allocation())
    row, = rows()
    assert (row['total'], row['free']) == (1, 0)


def lapse(fleet, **where):
    """Let leases be over for a second."""
    fleet.execute(sa.update(models.reservations).values(
        expires_at=sa.text(
            "strftime('%Y-%m-%d %H:%M:%S.000000', 'now', '-1 second')"
            if fleet.engine.name == 'sqlite' else
            'DATE_SUB(UTC_TIMESTAMP(), INTERVAL 1 SECOND)')))


def test_lapsed_counts_as_free_and_not_as_held(fleet):
    fleet.node()
    fleet.hold()
    assert counts(rows(host='compute-1'), 'shard') == {(None,): (1, 0, 1)}
    lapse(fleet)
    assert counts(rows(host='compute-1'), 'shard') == {(None,): (1, 1, 0)}


TOUCHES = {
    'instance_info': lambda fleet, node_id: fleet.edit(
        node_id, instance_info='{"image_source": "x"}'),
    'lock': lambda fleet, node_id: fleet.edit(node_id, reservation='c'),
    'state': lambda fleet, node_id: fleet.edit(
        node_id, provision_state='deploying'),
    'volume': lambda fleet, node_id: insert(
        fleet, 'volume_targets', node_id, volume_type='iscsi',
        boot_index=0, volume_id='x'),
    **{f'{table}.{column}': lambda fleet, node_id, table=table, column=column:
       insert(fleet, table, node_id, address=str(uuid.uuid4())[:17],
              **{column: '{"tenant_vif_port_id": "x"}'
                 if column == 'internal_info' else '{"vif_port_id": "x"}'})
       for table in ('ports', 'portgroups')
       for column in ('internal_info', 'extra')},
}


def insert(fleet, table, node_id, **values):
    """A row of one of Ironic's tables."""
    values.update(uuid=str(uuid.uuid4()), node_id=node_id)
    fleet.execute(sa.insert(sa.table(table, *map(sa.column, values))).values(
        **values))


@pytest.mark.parametrize('touch', TOUCHES)
def test_touched_stays_held_whatever_the_lease(fleet, touch):
    node_id = fleet.node()
    held, _ = fleet.hold()
    TOUCHES[touch](fleet, node_id)
    lapse(fleet)
    assert counts(rows(host='compute-1'), 'shard') == {(None,): (1, 0, 1)}
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold()
    assert reservations.sweep() == (0, 0)
    assert reservations.get(held.instance_uuid).node_id == node_id
    assert fleet.held == {node_id: held.instance_uuid}
    overdue = [each.instance_uuid for each in reservations.overdue()]
    assert overdue == ([] if touch == 'state' else [held.instance_uuid])


@pytest.mark.parametrize('fields', [
    {'instance_info': None}, {'instance_info': ''}, {'instance_info': '{}'},
    {'maintenance': True}, {'retired': True}, {'power_state': 'power on'}],
    ids=str)
def test_untouched_is_given_back(fleet, fields):
    node_id = fleet.node()
    held, _ = fleet.hold()
    insert(fleet, 'ports', node_id, address='x', internal_info='{}',
           extra='{"physnet": "vif"}')
    fleet.edit(node_id, **fields)
    lapse(fleet)
    with pytest.raises(exception.NotFound):
        reservations.get(held.instance_uuid)
    assert reservations.overdue() == []
    assert reservations.sweep() == (1, 0)
    assert fleet.held == {}


INSTANCE = str(uuid.uuid4())
#: The first statement of a give-back.
LET_GO = 'UPDATE nodes SET instance_uuid'


def renewed(fleet):
    fleet.execute(sa.update(models.reservations).values(
        expires_at=sa.text("'2999-01-01 00:00:00.000000'")))


@pytest.mark.parametrize('again', [
    reservations.sweep, lambda: reservations.release(INSTANCE),
    lambda: hold_of_another()], ids=['sweep', 'release', 'hold'])
def test_renewal_that_is_faster_than_the_give_back(fleet, again):
    node_id = fleet.node()
    fleet.hold(INSTANCE)
    lapse(fleet)
    with fleet.before(LET_GO, lambda: renewed(fleet)):
        with contextlib.suppress(exception.NotFound,
                                 exception.NoMatchingNode):
            again()
    assert fleet.held == {node_id: INSTANCE}
    assert reservations.get(INSTANCE).node_id == node_id


def hold_of_another():
    reservations.hold(str(uuid.uuid4()), request_spec.RequestSpec.from_dict(
        {'resource_class': 'gold'}), reservations.Owner('compute-2'))


@pytest.mark.parametrize('touch', TOUCHES)
def test_touch_that_is_faster_than_the_give_back(fleet, touch):
    node_id = fleet.node()
    fleet.hold(INSTANCE)
    lapse(fleet)
    with fleet.before(LET_GO, lambda: TOUCHES[touch](fleet, node_id)):
        assert reservations.sweep() == (0, 0)
    assert fleet.held == {node_id: INSTANCE}
    assert reservations.get(INSTANCE).node_id == node_id


def test_give_back_that_is_faster_than_the_renewal(fleet):
    node_id = fleet.node()
    first, _ = fleet.hold(INSTANCE, owner=reservations.Owner('compute-1'))

    def over():
        lapse(fleet)
        assert reservations.sweep() == (1, 0)

    with fleet.before('UPDATE reservations SET host', over):
        held, created = fleet.hold(INSTANCE,
                                   owner=reservations.Owner('compute-2'))
    assert created
    assert held.id > first.id
    assert held.host == 'compute-2'
    assert fleet.held == {node_id: INSTANCE}


def test_two_sweeps_at_once(fleet):
    fleet.node()
    fleet.hold(INSTANCE)
    lapse(fleet)
    with fleet.before(LET_GO, reservations.sweep):
        assert reservations.sweep() == (0, 0)
    assert fleet.held == {}


def test_another_holds_the_node_before_the_second_give_back(fleet):
    node_id = fleet.node()
    fleet.hold(INSTANCE)
    lapse(fleet)
    with fleet.before(LET_GO, hold_of_another):
        assert reservations.sweep()[0] == 0
    (held_node, instance), = fleet.held.items()
    assert held_node == node_id and instance != INSTANCE


def test_many_lapsed_are_given_back_as_they_are_wanted(fleet):
    fleet.add(*[{}] * 40)
    for _ in range(40):
        fleet.hold()
    before = set(fleet.held.values())
    lapse(fleet)
    assert counts(rows(), 'shard') == {(None,): (40, 40, 0)}
    for _ in range(40):
        fleet.hold()
    assert len(fleet.held) == 40 and not before & set(fleet.held.values())


def test_another_gives_back_the_lapsed_node_that_is_wanted(fleet, monkeypatch):
    fleet.node()
    fleet.hold()
    lapse(fleet)
    give_back = reservations._give_back_lapsed

    def meanwhile(limit=None):
        if limit is None:
            give_back()
        return 0

    monkeypatch.setattr(reservations, '_give_back_lapsed', meanwhile)
    assert fleet.hold()[1]
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold()


def test_held_by_a_host_wherever_its_nodes_are(fleet):
    ids = fleet.add(*[{'shard': 'a', 'conductor_group': 'rack'}] * 4)
    for host in ('compute-1', 'compute-1', 'compute-2'):
        fleet.hold(owner=reservations.Owner(host))
    mine, another, = [node_id for node_id, instance in fleet.held.items()
                      if reservations.get(instance).host == 'compute-1']
    fleet.edit(mine, shard='b', conductor_group='other')
    for query in ({'shard': 'a'}, {'conductor_group': 'RACK'},
                  {'shard': 'a', 'conductor_group': 'rack'}):
        assert counts(rows(host='compute-1', **query), 'shard') == {
            ('a',): (3, 1, 1), ('b',): (1, 0, 1)}
        assert counts(rows(**query), 'shard') == {('a',): (3, 1, 0)}
        assert counts(rows(host='compute-2', **query), 'shard') == {
            ('a',): (3, 1, 1)}
        assert counts(rows(host='nobody', **query), 'shard') == {
            ('a',): (3, 1, 0)}
    assert len(ids) == 4 and another in ids


def test_node_that_changes_between_two_calls_counts_once(fleet):
    """A deployed node has its instance's project as lessee."""
    fleet.add({}, {}, {})
    fleet.hold(owner=reservations.Owner('compute-1'))
    [node_id] = fleet.held
    rows()
    fleet.edit(node_id, lessee='mine')
    # Of both ages: what is at hand, and what is counted now.
    found = capacity.capacity(max_age=60, host='compute-1')[0]
    assert counts(found, 'lessee') == {(None,): (2, 2, 0),
                                       ('mine',): (1, 0, 1)}
    fleet.edit(node_id, lessee=None)
    found = capacity.capacity(max_age=60, host='compute-2')[0]
    assert sum(row['total'] for row in found) == 3


# For a project

@pytest.fixture
def owned(fleet):
    fleet.add({'owner': 'mine'}, {'lessee': 'mine', 'owner': 'yours'},
              {'owner': 'yours'}, {'owner': 'MINE'}, {},
              {'owner': 'mine', 'maintenance': True})
    return fleet


def test_capacity_for_a_project(owned):
    assert counts(rows(limited_to='mine'), 'owner', 'lessee') == {
        ('mine', None): (2, 1, 0), ('yours', 'mine'): (1, 1, 0)}
    assert rows(limited_to='nobody') == rows(limited_to='') == []
    assert sum(row['total'] for row in rows()) == 6


def test_held_for_a_project(owned):
    for _ in range(5):
        owned.hold(owner=reservations.Owner('compute-1', 'mine'))
    assert counts(rows(limited_to='mine', host='compute-1'),
                  'owner', 'lessee') == {
        ('mine', None): (2, 0, 1), ('yours', 'mine'): (1, 0, 1)}
    assert sum(row['held'] for row in rows(host='compute-1')) == 5


def test_dry_run_for_a_project(owned):
    spec = request_spec.RequestSpec.from_dict({'resource_class': 'gold'})
    verdict = search.dry_run(spec, limited_to='mine')
    assert verdict['matching_nodes'] == 2
    assert verdict['explanation'] == {
        'considered': 3, 'eliminated': [{'by': 'maintenance', 'nodes': 1}],
        'nearest': None}
    assert counts(verdict['profiles'], 'owner', 'lessee') == {
        ('mine', None): (2, 1, 0), ('yours', 'mine'): (1, 1, 0)}
    assert search.dry_run(spec, limited_to='nobody') == {
        'matching_nodes': 0, 'profiles': [], 'explanation': {
            'considered': 0, 'eliminated': [], 'nearest': None}}


def test_refusal_for_a_project(owned):
    with pytest.raises(exception.NoMatchingNode) as caught:
        owned.hold(limited_to='mine', memory_mb=2048)
    assert caught.value.explanation == {
        'considered': 3,
        'eliminated': [{'by': 'memory_mb>=2048', 'nodes': 3}],
        'nearest': {'by': 'memory_mb>=2048', 'nodes': 2}}


def test_candidates_of_another_project_are_not_told_of(fleet):
    fleet.node(owner='yours', name='theirs')
    with pytest.raises(exception.NoMatchingNode) as caught:
        fleet.hold(limited_to='mine', candidate_nodes=['theirs'])
    assert caught.value.explanation['considered'] == 0
    assert 'theirs' not in str(caught.value)


# One computation at a time

@contextlib.contextmanager
def counting(fleet, gate=None):
    """The aggregate queries that are run; each waits for the gate."""
    executed = []

    def count(connection, cursor, text, *args):
        if 'profile_memory_mb' in text:
            executed.append(text)
            if gate is not None:
                assert gate.wait(60)

    sa.event.listen(fleet.engine, 'before_cursor_execute', count)
    try:
        yield executed
    finally:
        sa.event.remove(fleet.engine, 'before_cursor_execute', count)


def in_threads(number, function):
    """Run it in threads; they are all on their way when this returns."""
    found = []
    begun = threading.Barrier(number + 1)

    def run():
        begun.wait(60)
        found.append(function())

    threads = [threading.Thread(target=run) for _ in range(number)]
    for thread in threads:
        thread.start()
    begun.wait(60)
    return threads, found


def test_one_query_and_no_other(fleet):
    fleet.add(*({'shard': shard, 'traits': ['CUSTOM_A']}
                for shard in 'abc'))
    texts = []

    def note(connection, cursor, text, *args):
        if text != 'BEGIN':
            texts.append(text)

    sa.event.listen(fleet.engine, 'before_cursor_execute', note)
    try:
        rows()
    finally:
        sa.event.remove(fleet.engine, 'before_cursor_execute', note)
    assert len(texts) == 1, texts


@pytest.mark.parametrize('max_age, host, most', [
    (3600, None, 1), (3600, 'compute-1', 2), (0, None, 3)])
def test_many_requests_at_once_count_once(fleet, max_age, host, most):
    """Those that ask for a fresh one may not take one begun before."""
    fleet.node()
    gate = threading.Event()
    with counting(fleet, gate) as executed:
        threads, found = in_threads(12, lambda: capacity.capacity(
            max_age, host=host))
        while not executed:
            threads[0].join(0.01)
        # All of the others wait for the one that is at it.
        threads[0].join(0.3)
        assert len(executed) == 1
        gate.set()
        for thread in threads:
            thread.join(60)
    assert len(found) == 12
    assert all(each == found[0][0] for each, _ in found)
    assert len(executed) <= most + (max_age == 0)


def test_fresh_is_counted_after_the_question(fleet):
    assert rows() == []
    fleet.node()
    assert capacity.capacity(max_age=3600)[0] == []
    found, age = capacity.capacity(max_age=0)
    assert [row['total'] for row in found] == [1]
    assert age == 0
    assert capacity.capacity(max_age=3600)[0] == found


def test_failure_to_count_is_not_kept(fleet, monkeypatch):
    fleet.node()

    def fail():
        raise ZeroDivisionError

    monkeypatch.setattr(capacity._fleet, '_compute', fail)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            rows()
        with pytest.raises(ZeroDivisionError):
            capacity.at_hand()
    monkeypatch.setattr(capacity._fleet, '_compute', capacity.count)
    assert len(rows()) == len(capacity.at_hand()) == 1


# Which of several

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
@pytest.mark.parametrize('first', [True, False])
def test_better_fit_is_held_first(fleet, better, worse, first):
    asked = {'memory_mb': 2048}
    if 'cpus' in better['properties']:
        asked['vcpus'] = 8
    pair = fleet.add(*((better, worse) if first else (worse, better)))
    held = [fleet.hold(**asked)[0].node_id for _ in range(2)]
    assert held == (pair if first else pair[::-1])


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


# An old or a wrong list of profiles

def remembered(fleet):
    """The profiles as they are now; from now on they are all there is."""
    profiles = capacity.count()
    return lambda: profiles


WRONG = {
    'empty': lambda profiles: [],
    'reversed': lambda profiles: profiles[::-1],
    'twice': lambda profiles: profiles * 2,
    'nothing free': lambda profiles: [dataclasses.replace(
        each, counts={'reserved': each.total}) for each in profiles],
    'other ids': lambda profiles: [dataclasses.replace(
        each, first=each.first + 10 ** 6, last=each.last + 10 ** 6)
        for each in profiles],
    'few ids': lambda profiles: [dataclasses.replace(each, last=each.first)
                                 for each in profiles],
    'other facts': lambda profiles: [dataclasses.replace(one, node=other.node)
                                     for one, other in zip(
        profiles, profiles[1:] + profiles[:1], strict=True)],
}


@pytest.mark.parametrize('wrong', WRONG)
def test_wrong_profiles_hide_nothing(fleet, monkeypatch, wrong):
    batch = [{**sized(1024 * size), 'shard': shard,
              'traits': ['CUSTOM_A'] * (shard == 'a')}
             for size in (1, 2, 4) for shard in 'ab' for _ in range(3)]
    ids = fleet.add(*batch)
    profiles = capacity.Profiles(WRONG[wrong](capacity.count()))
    monkeypatch.setattr(capacity._fleet, 'at_hand', lambda: profiles)
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


def test_node_that_has_changed_since_is_held_as_it_is_now(fleet,
                                                          monkeypatch):
    node_id = fleet.node(**sized(1024), shard='a')
    profiles = capacity.count()
    monkeypatch.setattr(capacity._fleet, 'at_hand', lambda: profiles)
    fleet.edit(node_id, shard='b', properties={'memory_mb': 4096})
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold(memory_mb=0, shard='a')
    assert fleet.hold(memory_mb=4096, shard='b')[0].node_id == node_id


def test_best_fit_that_came_free_since_the_count(fleet, monkeypatch):
    """Whether a profile has a free node is decided on current rows."""
    good, *_ = fleet.add(sized(1024), *[sized(65536)] * 5)
    held, _ = fleet.hold(memory_mb=1024)
    assert held.node_id == good
    profiles = capacity.count()
    monkeypatch.setattr(capacity._fleet, 'at_hand', lambda: profiles)
    reservations.release(held.instance_uuid)
    assert fleet.hold(memory_mb=1024)[0].node_id == good


def test_many_profiles_used_up_lend_no_worse_node(fleet):
    """They are too many for one statement to tell them from others."""
    used_up = [sized(1024 + number) for number in range(25)]
    *_, good = fleet.add(*used_up[:12], sized(90000), *used_up[12:],
                         sized(1100))
    for _ in used_up:
        fleet.hold(memory_mb=1000)
    capacity.fresh()
    assert fleet.hold(memory_mb=1000)[0].node_id == good


def test_used_up_is_remembered_for_a_while_in_a_large_fleet(fleet,
                                                            monkeypatch):
    """Else each hold would read the free nodes that stand among them."""
    monkeypatch.setattr(search, 'SMALL', 5)
    monkeypatch.setattr(capacity, 'AGE_TO_COST', 10 ** 6)
    good, *large = fleet.add(sized(1024), *[sized(65536)] * 5)
    used_up, _ = fleet.hold(memory_mb=1024)
    assert used_up.node_id == good
    profiles = capacity.fresh()
    with fleet.counted('SELECT') as first:
        assert fleet.hold(memory_mb=1024)[0].node_id in large
    reservations.release(used_up.instance_uuid)
    with fleet.counted('SELECT') as second:
        assert fleet.hold(memory_mb=1024)[0].node_id in large
    # And a page that the first one has left to the second.
    assert len(first) - len(second) == 2
    for profile in profiles:
        profile.used_up_until = 0
    assert fleet.hold(memory_mb=1024)[0].node_id == good


def test_small_fleet_is_looked_at_each_time(fleet, monkeypatch):
    monkeypatch.setattr(search, 'SMALL', 6)
    monkeypatch.setattr(capacity, 'AGE_TO_COST', 10 ** 6)
    good, *large = fleet.add(sized(1024), *[sized(65536)] * 5)
    used_up, _ = fleet.hold(memory_mb=1024)
    capacity.fresh()
    assert fleet.hold(memory_mb=1024)[0].node_id in large
    reservations.release(used_up.instance_uuid)
    assert fleet.hold(memory_mb=1024)[0].node_id == good


def test_used_up_comes_last(fleet, monkeypatch):
    """Nothing is counted for want of what a search has passed over."""
    fleet.add({}, {})
    monkeypatch.setattr(capacity, 'AGE_TO_COST', 10 ** 6)
    for profile in capacity.fresh():
        profile.used_up_until = float('inf')
    monkeypatch.setattr(capacity, 'fresh', None)
    fleet.hold()
    fleet.hold()
    assert len(fleet.held) == 2


def test_sparse_profile_is_read_at_once(fleet, monkeypatch):
    """Looks near by that find nothing are not made for ever."""
    monkeypatch.setattr(search, 'FEW', 0)
    monkeypatch.setattr(search, 'NEAR', 1)
    monkeypatch.setattr(search, 'MISSES', 2)
    monkeypatch.setattr(capacity, 'AGE_TO_COST', 10 ** 6)
    monkeypatch.setattr(search.random, 'randint', lambda first, last: first)
    first, second = fleet.add({}, {})
    free = fleet.add(*[{}] * 90)
    [profile] = capacity.fresh()
    engine.has_index('')  # The names of indexes are asked for once.

    def looks():
        del profile.spare[:]
        with fleet.counted('SELECT nodes') as found:
            held, _ = fleet.hold()
        return len(found) - 1, held.node_id

    mysql = fleet.engine.dialect.name == 'mysql'
    fleet.edit(second, maintenance=True)
    profile.misses = 1
    if mysql:
        assert looks() == (0, first)
        assert profile.misses == 0
    fleet.edit(first, maintenance=True)
    for expected in (mysql, mysql, 0):
        extra, node_id = looks()
        assert extra == expected and node_id in free
    assert profile.misses == (2 if mysql else 1)


def test_best_fit_among_very_many_candidates(fleet):
    names = [f'n{number}' for number in range(search.LARGEST_PAGE + 2)]
    ids = fleet.add(*[{**sized(4096 - (number == len(names) - 1)),
                       'name': name} for number, name in enumerate(names)])
    held, _ = fleet.hold(memory_mb=1000, candidate_nodes=names)
    assert held.node_id == ids[-1]


def test_what_a_page_has_left_is_no_promise(fleet):
    """It is used as long as it is still as it was read."""
    ids = fleet.add(*[{}] * 6)
    profiles = capacity.at_hand()
    taken = {fleet.hold()[0].node_id}
    [profile] = profiles
    left = {node.id for node in profile.spare}
    assert left == set(ids) - taken
    for node_id in sorted(left)[:4]:
        fleet.edit(node_id, maintenance=True)
    capacity._fleet._cost = 10 ** 6  # Nothing is counted anew.
    taken.add(fleet.hold()[0].node_id)
    assert len(fleet.held) == 2 and not taken & set(sorted(left)[:4])
    with pytest.raises(exception.NoMatchingNode) as caught:
        fleet.hold()
    assert caught.value.explanation['considered'] == 6


@pytest.fixture
def in_haste(fleet, monkeypatch):
    """A hold has just looked, and has left something of its page."""
    monkeypatch.setattr(capacity, 'AGE_TO_COST', 10 ** 6)
    monkeypatch.setattr(reservations, '_HASTE', 1000)
    monkeypatch.setattr(reservations, '_looked_at', -float('inf'))
    fleet.add(*[sized(65536)] * 4)
    fleet.hold(memory_mb=1024)
    fleet.add(*[sized(1024)] * 3)
    capacity.fresh()
    fleet.hold(memory_mb=65536)
    return fleet


def looks(fleet, **body):
    """What a hold reads before it writes, and what it holds."""
    with fleet.counted('SELECT EXISTS') as found, fleet.counted(
            'SELECT nodes') as pages:
        held, created = fleet.hold(**body)
    assert created
    memory = json.loads(fleet[held.node_id].properties)['memory_mb']
    return len(found), len(pages), memory


def test_what_is_at_hand_is_held_at_once(in_haste):
    assert looks(in_haste, memory_mb=65536) == (0, 0, 65536)


def test_what_is_at_hand_is_not_held_where_something_fits_better(in_haste):
    assert looks(in_haste, memory_mb=1024) == (0, 1, 1024)
    assert looks(in_haste, memory_mb=1024) == (0, 0, 1024)


def test_haste_is_no_reason_to_say_that_there_is_none(in_haste):
    found = [looks(in_haste, memory_mb=1024)[2] for _ in range(5)]
    assert found == [1024, 1024, 1024, 65536, 65536]
    assert len(in_haste.held) == 7
    with pytest.raises(exception.NoMatchingNode):
        in_haste.hold(memory_mb=1024)


def test_haste_does_not_last(in_haste, monkeypatch):
    """What lapses meanwhile is given back soon, however many holds come."""
    lapse(in_haste)
    looked_at = reservations._looked_at
    assert looks(in_haste, memory_mb=65536)[0] == 0
    assert len(in_haste.rows) == 3
    assert reservations._looked_at == looked_at
    monkeypatch.setattr(reservations, '_looked_at', looked_at - 1000)
    assert looks(in_haste, memory_mb=65536)[0] == 1
    assert len(in_haste.rows) == 2


def test_no_haste_while_leases_lapse(in_haste, monkeypatch):
    """Each hold gives back some of them, until none is left."""
    in_haste.add(*[sized(2048)] * 3)
    capacity.fresh()
    in_haste.hold(memory_mb=1024)
    assert len(in_haste.rows) == 3
    lapse(in_haste)
    monkeypatch.setattr(reservations, '_IN_PASSING', 1)
    monkeypatch.setattr(reservations, '_looked_at', -float('inf'))
    found = [(looks(in_haste, memory_mb=2048)[0], len(in_haste.rows))
             for _ in range(5)]
    assert found == [(1, 3), (1, 3), (1, 3), (1, 4), (0, 5)]


def test_fleet_is_counted_on_the_connection_of_the_hold(in_haste,
                                                        monkeypatch):
    """Others wait for the count and keep theirs."""
    connections = []

    def count():
        connections.append(engine._open.connection)
        return capacity.count()

    monkeypatch.setattr(capacity, '_fleet', capacity._Shared(count))
    assert looks(in_haste, memory_mb=1024)[0] == 0
    assert len(connections) == 1 and connections[0]


def test_fits_are_forgotten_with_their_profiles(fleet):
    fleet.add(*[{}] * 3)
    fleet.hold()
    profiles = capacity.at_hand()
    assert len(profiles.fits) == 1
    fleet.hold()
    assert len(profiles.fits) == 1
    fleet.hold(memory_mb=0, resource_class='gold')
    assert len(profiles.fits) == 2
    assert not capacity.fresh().fits
