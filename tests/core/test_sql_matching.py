# SPDX-License-Identifier: Apache-2.0
"""SQL and Python agree on the nodes that satisfy a request.

SQL may return nodes that matching then refuses; it must never leave out a node
that matching accepts. A test repeats a request until it is refused, and
compares the held nodes with the nodes that matching accepts. Nodes have
properties as old, hand-edited and hostile rows may contain them.
"""

import json

import hypothesis
from hypothesis import strategies as st
import pytest

from ironic_reservations import exception
from ironic_reservations import matching
from tests.core import strategies

pytestmark = pytest.mark.on('sqlite', 'server')

CAPABILITIES = ['gpu', 'gpu:false', 'gpu:1', 'ssd:4', 'ssd:abc',
                'boot_mode:uefi', 'boot_mode:BIOS', 'gpu:a b', '', ',', ':']
ARCHITECTURES = ['x86_64', 'amd64', 'AMD64', 'aarch64', '', None, 64]
_numbers = strategies.numbers | st.text(max_size=6).map(json.dumps)

_KEYS = ['memory_mb', 'cpus', 'local_gb']


def nest(levels):
    return '{"a":' * levels + '1' + '}' * levels


_more = st.one_of(
    st.builds(lambda capabilities: (
        'capabilities', json.dumps(','.join(capabilities))),
        st.lists(st.sampled_from(CAPABILITIES), max_size=3)),
    st.sampled_from(['{"gpu": true}', '7', '["gpu"]', 'null', '"\\u0067pu"']
                    ).map(lambda value: ('capabilities', value)),
    st.builds(lambda name: ('cpu_arch', json.dumps(name)),
              st.sampled_from(ARCHITECTURES)),
    # Values that may confuse a parser before or after the sizes.
    st.builds(lambda key, value: (key, value),
              st.sampled_from(['MEMORY_MB', 'Cpus', 'memory_mb ', '',
                               '$.memory_mb', 'a.b', 'a"b', 'root_device']),
              _numbers | st.sampled_from([
                  nest(2), nest(31), nest(32), nest(33), nest(200),
                  '"\\ud800"', '"\\ud83d\\ude00"', '"\\u0000"', '"\u00e4"',
                  '{"memory_mb": 9999, "cpus": 9999, "local_gb": 9999}',
                  '[{"memory_mb": 9999}]'])),
)


def _object(sizes, more):
    pairs = [*sizes, *more]
    return ('{' + ', '.join(f'{json.dumps(key)}: {value}'
                            for key, value in pairs) + '}')


_objects = st.builds(
    _object,
    st.permutations(_KEYS).flatmap(lambda keys: st.tuples(*(
        _numbers.map(lambda text, key=key: (key, text)) for key in keys))),
    st.lists(_more, max_size=3))
# Objects in other notations, and with keys of another spelling.
_variants = st.builds(
    lambda text, how: how(text), _objects, st.sampled_from([
        lambda text: f'  {text}\n',
        lambda text: f'[{text}]',
        lambda text: text[:-1],
        lambda text: text + '}',
        lambda text: text.replace('memory', 'MEMORY'),
        lambda text: text.replace('cpus', '\\u0063pus'),
        lambda text: text.replace('{', "{'").replace('"', "'"),
        lambda text: text[:-1] + ',}',
        lambda text: '{"a": ' + nest(40) + ', ' + text[1:],
    ]))

# Objects as Ironic writes them, large enough for most requests.
_usual = st.builds(
    lambda sizes, more: _object(sizes.items(), more),
    st.fixed_dictionaries(dict.fromkeys(
        _KEYS, st.sampled_from(['4096', '9000', '2147483647']))),
    st.lists(_more, max_size=3))

properties = st.one_of(
    _usual, _usual, _objects, _variants,
    st.sampled_from([None, '', '{}', 'null', '[]', '"', '{', 'memory_mb']))

nodes = st.builds(lambda node, text: {**node, 'properties': text},
                  strategies.nodes, properties)


def find_matching(body, ids, batch):
    """Return the IDs of the nodes that matching accepts."""
    matcher = strategies.parse(body)
    return {node_id for node_id, node in zip(ids, batch, strict=True)
            if matcher.matches(strategies.make_node(node_id, node))}


def hold_all(fleet, **body):
    """Repeat a request until it is refused; return the IDs of its nodes."""
    node_ids = set()
    while True:
        try:
            reservation, is_new = fleet.hold(**body)
        except exception.NoMatchingNode:
            assert node_ids == fleet.holds.keys()
            return node_ids
        assert is_new
        node_ids.add(reservation.node_id)


@hypothesis.given(st.lists(nodes, min_size=1, max_size=25),
                  st.lists(strategies.requests, min_size=1, max_size=4))
@hypothesis.settings(
    deadline=None, max_examples=20,
    # Shrinking takes minutes on a database; the message names the node.
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.reuse,
            hypothesis.Phase.generate],
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture,
                           hypothesis.HealthCheck.too_slow])
def test_holds_are_the_matching_nodes(fleet, batch, bodies):
    fleet.clear()
    ids = fleet.add(*batch)
    for body in bodies:
        expected = find_matching(body, ids, batch)
        hypothesis.event(f'matching: {len(expected)}')
        node_ids = hold_all(fleet, **body)
        assert node_ids == expected, (body, [
            batch[ids.index(node_id)] for node_id in node_ids ^ expected])
        fleet.release_all()


# Rare cases, some of which hypothesis has discovered.

def test_capabilities_that_the_database_does_not_read(fleet):
    """Rare profiles are searched together, in order of their fit.

    The second node fits worse than the database assumes.
    """
    alone, twice = (
        '{"memory_mb": 4096, "cpus": 9000, "local_gb": 9000}',
        '{"memory_mb": 4096, "cpus": 9000, "local_gb": 9000, '
        '"capabilities": 7, "capabilities": "gpu,boot_mode:uefi"}')
    first, second = fleet.add({'properties': alone}, {'properties': twice})
    assert hold_all(fleet, vcpus=2549) == {first, second}


@pytest.mark.parametrize('text', [
    '{"memory_mb": 4096}', '{"memory_mb": "4096"}', '{"memory_mb": " 4096 "}',
    '{"memory_mb": "4096.0"}', '{"memory_mb": 4.096e3}',
    '{"memory_mb": 4096, "MEMORY_MB": 1}',
    '{"MEMORY_MB": 1, "memory_mb": 4096}',
    '{"memory\\u005fmb": 4096}', '{"memory_mb": "\\u0034096"}',
    '{"memory_mb": "\\t4096\\n"}', '{"memory_mb": "\\f4096"}',
    '{"memory_mb": "\\u000b4096"}',
    '{"memory_mb": 4095.99999999999999999}',
    '{"memory_mb": "4095.999999999999999999"}',
    '{"a": ' + nest(40) + ', "memory_mb": 4096}',
    '{"memory_mb": 4096, "a": ' + nest(40) + '}',
    '{"a": "\\ud800", "memory_mb": 4096}',
    '{"a": NaN, "memory_mb": 4096}', '{"a": Infinity, "memory_mb": 4096}',
    '\t{"memory_mb":4096}\n',
], ids=lambda text: text.replace(nest(40), 'deep'))
@pytest.mark.parametrize('match', ['exact', 'at_least'])
def test_spellings_of_4096(fleet, text, match):
    assert matching.Node(1, '', properties=text).sizes['memory_mb'] == 4096
    node_id = fleet.add_node(properties=text)
    reservation, _ = fleet.hold(memory_mb=4096,
                                extra_specs={'reservations:match': match})
    assert reservation.node_id == node_id


@pytest.mark.parametrize('match', ['exact', 'at_least'])
def test_huge_numbers_hide_no_other_node(fleet, match):
    """Some numbers exceed every column type and float."""
    fleet.add(*({'properties': f'{{"memory_mb": {"9" * digits}}}'}
                for digits in (19, 25, 41, 66, 400)))
    node_id = fleet.add_node(properties={'memory_mb': 4096})
    reservation, _ = fleet.hold(memory_mb=4096,
                                extra_specs={'reservations:match': match})
    assert reservation.node_id == node_id


@pytest.mark.parametrize('field, value, others', [
    ('resource_class', 'gold', ['gold ', 'g\u00f6ld', 'gold\t']),
    ('conductor_group', 'rack', ['rack ', 'r\u00e4ck']),
    ('shard', 'a', ['A', 'a ', '\u00e4']),
])
@pytest.mark.parametrize('first', [True, False])
def test_collation_makes_no_difference(fleet, field, value, others, first):
    """MariaDB treats these as equal, also in DISTINCT; Ironic does not."""
    names = [value, *others] if first else [*others, value]
    ids = dict(zip(names, fleet.add(*({field: name} for name in names)),
                   strict=True))
    assert hold_all(fleet, **{'memory_mb': 0, field: value}) == {ids[value]}


def test_spellings_of_a_class(fleet):
    ids = fleet.add(*({'resource_class': name} for name in (
        'baremetal.gold', 'Baremetal.Gold', 'baremetal-gold',
        'CUSTOM_BAREMETAL_GOLD', 'BAREMETAL GOLD')))
    fleet.add({'resource_class': 'baremetal.silver'},
              {'resource_class': None})
    assert hold_all(fleet, resource_class='baremetal_gold') == set(ids)


def test_spellings_of_a_group(fleet):
    ids = fleet.add({'conductor_group': 'rack'}, {'conductor_group': 'Rack'})
    fleet.add({'conductor_group': ''}, {'conductor_group': 'rack2'})
    assert hold_all(fleet, memory_mb=0, conductor_group='RACK') == set(ids)


def test_long_capabilities_are_distinguished(fleet):
    """They differ after the 512th character."""
    racks = {rack: json.dumps({
        'capabilities': 'a:b,' * 500 + f'rack:{rack}'}) for rack in 'rs'}
    ids = dict(zip(racks, fleet.add(*(
        {'properties': text} for text in racks.values())), strict=True))
    for rack, node_id in ids.items():
        reservation, _ = fleet.hold(resource_class='gold', extra_specs={
            'capabilities:rack': rack})
        assert reservation.node_id == node_id
