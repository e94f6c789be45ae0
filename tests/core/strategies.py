# SPDX-License-Identifier: Apache-2.0
"""Nodes with all kinds of values, to compare databases with Python."""

import json
import uuid

import hypothesis
from hypothesis import strategies as st

from ironic_reservations import exception
from ironic_reservations import matching
from tests.common import fleets


def make_node(node_id, fields):
    """Return the node of a row as matching sees it."""
    return matching.Node(**{
        'id': node_id, 'uuid': '', 'resource_class': 'gold',
        **{name: value for name, value in fields.items()
           if name in ('name', 'resource_class', 'properties',
                       'conductor_group', 'shard', 'owner', 'lessee')},
        'traits': frozenset(fields.get('traits', ()))})


def profile_key(node):
    """Return all values of a node that a request can distinguish."""
    return (node.resource_class, *node.sizes.values(), node.cpu_arch,
            tuple(sorted(node.capabilities.items())),
            tuple(sorted(node.traits)), node.conductor_group, node.shard,
            node.owner, node.lessee)


# A small pool of everything, so that requests and nodes meet.
SIZES = [0, 1, 3, 1024, 4096, 2 ** 31 - 1]
TRAITS = ['CUSTOM_A', 'CUSTOM_B', 'HW_CPU_X86_VMX']
CLASSES = ['gold', 'Gold', 'gold ', 'g\u00f6ld', 'GOLD.', 'CUSTOM_GOLD',
           'custom_gold', 'silver', 'baremetal.gold', 'baremetal-gold', '']
GROUPS = ['', ' ', 'rack', 'Rack', 'rack ', 'r\u00e4ck', 'rack-2']
SHARDS = ['a', 'A', 'a ', '\u00e4', 'b']
PROJECTS = ['p', 'P', 'p ', 'q']
ITEMS = ['gpu', 'gpu:false', 'gpu:1', 'GPU:1', 'gpu: 1', 'ssd:4', 'ssd:abc',
         'boot_mode:uefi', 'boot_mode:BIOS', 'gpu:a b', '', ',', ':',
         'k\u00e9y:1', 'key:1', 'key:1 ', 'ssd:\u2003', "o'k:'", 'a"b:\\',
         '\U0001f600:\U0001f600', 'x:' + 'y' * 1500]

sizes = st.sampled_from(SIZES) | st.integers(0, 9000)
# Texts that stand where a number should. Databases and Python have been at
# odds about a single one of these, so that all of them come often.
_with_a_number = st.tuples(st.sampled_from([
    '{}', '"{}"', '"{}.0"', '"{}.5"', '{}.5', '"{}abc"', '-{}', '"-{}"',
    '"+{}"', '{}.0', '{}e0', '{}e1', '"{}e1"', '0.{}E2', '"000{}"',
    *(f'"{space}{{}}{space}"' for space in (
        ' ', r'\t', r'\n', r'\f', r'\u000b', r'\r', r'\u00a0', r'\u2003'))
]), sizes).map(lambda pair: pair[0].format(pair[1]))
_others_than_numbers = st.sampled_from([
    'true', 'false', 'null', '""', '" "', '[4096]', '{"a": 4096}', 'NaN',
    'Infinity', '-Infinity', '1e400', '1e-400', '-0', '1e18',
    '9' * 17, '9' * 19, '9' * 20, '9' * 23, '9' * 25, '9' * 70, '9' * 400,
    '"' + '9' * 18 + '"', '"' + '9' * 19 + '"', '"0x1000"', '"4_096"',
    '"4,096"', '"."', '"4096."', '".5"', '"\\u0664"', '"NaN"', '"inf"',
    '4096.000000000000000001', '"4096.000000000000000001"'])
numbers = st.one_of(
    *[_with_a_number, _others_than_numbers] * 3,
    sizes.map(lambda size: f'"\\u003{str(size)[0]}{str(size)[1:]}"'),
    st.text(st.characters(exclude_categories=['Cs', 'Cc']),
            max_size=6).map(json.dumps))
_capabilities = st.lists(st.sampled_from(ITEMS), max_size=4).map(
    ','.join).flatmap(lambda text: st.sampled_from(
        [json.dumps(text), json.dumps(text, ensure_ascii=False)
         if text.isascii() else json.dumps(text)]))
_architectures = st.sampled_from(
    ['"x86_64"', '"amd64"', '"AMD64"', '" x86_64 "', '"aarch64"', '""',
     '"\\u00e4"', 'null'])
#: Values that describe a disk, and values that resemble one.
ROOT_DEVICES = [
    '{"serial": "a"}', '{"serial": "b"}', '{"size": 40}', '{}', '"a"',
    'null', '{"name": "{"}', '{"name": "}, "}', '{"name": "\\u0061"}',
    '{"name": "\\""}', '{"memory_mb": 9999, "cpus": 9999}',
    '{"a": {"cpus": 9999}}', '[{"cpus": 9999}]', '{"size": NaN}',
    '{"size": 40', '{"root_device": {"serial": "a"}, "cpus": 9999}']
_root_devices = st.sampled_from(ROOT_DEVICES)
_others = st.tuples(
    st.sampled_from(['MEMORY_MB', 'memory_mb ', '', '$.cpus', 'a.b', 'a"b',
                     'serial']),
    numbers | st.sampled_from(['"\\ud800"', '"\\u0000"',
                               '{"memory_mb": 9999, "cpus": 9999}',
                               '[{"memory_mb": 9999}]'])
) | st.tuples(st.just('root_device'), _root_devices) | st.tuples(
    st.sampled_from(['a', 'capabilities', 'xroot_device']),
    _root_devices.map('{{"root_device": {}}}'.format))


@st.composite
def _objects(draw):
    values = {'memory_mb': numbers, 'cpus': numbers, 'local_gb': numbers,
              'capabilities': _capabilities, 'cpu_arch': _architectures}
    names = draw(st.permutations(sorted(values)))[:draw(st.integers(0, 5))]
    pairs = {name: draw(values[name]) for name in names}
    pairs.update(draw(st.lists(_others, max_size=2)))
    text = '{' + ', '.join(f'{json.dumps(name)}: {value}'
                           for name, value in pairs.items()) + '}'
    return draw(st.sampled_from([text, f'  {text}\n']))


nodes = st.fixed_dictionaries({
    'properties': st.one_of(
        st.fixed_dictionaries(dict.fromkeys(
            ['memory_mb', 'cpus', 'local_gb'], sizes)).map(json.dumps),
        _objects(), _objects(),
        st.sampled_from([None, '', '{}', 'null', '[]', '"', '{'])),
    'traits': st.sets(st.sampled_from(TRAITS)),
    'resource_class': st.none() | st.sampled_from(CLASSES),
    'conductor_group': st.sampled_from(GROUPS),
    'shard': st.none() | st.sampled_from(SHARDS),
    'owner': st.none() | st.sampled_from(PROJECTS),
    'lessee': st.none() | st.sampled_from(PROJECTS),
})


def some(values):
    """Mostly return None, because nothing would match all values."""
    return st.one_of(st.none(), st.none(), st.none(), values)


_extra_specs = st.fixed_dictionaries({}, optional={
    'reservations:match': st.sampled_from(['exact', 'at_least']),
    'resources:MEMORY_MB': st.just('0'),
    'resources:CUSTOM_GOLD': st.sampled_from(['0', '1']),
    'trait:CUSTOM_A': st.sampled_from(['required', 'forbidden']),
    'trait1:CUSTOM_B': st.sampled_from(['required', 'forbidden']),
    'capabilities': st.sampled_from(
        ['gpu', 'gpu:1', 'k\u00e9y:1', '\U0001f600:\U0001f600']),
    'capabilities:ssd': st.sampled_from(['>= 4', '4', 's!= x']),
    'capabilities:cpu_arch': st.sampled_from(['x86_64', '<or> amd64']),
})
_image = st.fixed_dictionaries({}, optional={
    'min_ram': sizes, 'min_disk': sizes,
    'properties': st.fixed_dictionaries({}, optional={
        'hw_firmware_type': st.sampled_from(['uefi', 'bios']),
        'trait:HW_CPU_X86_VMX': st.sampled_from(['required', 'forbidden']),
    })})
#: Bodies of a POST.
requests = st.fixed_dictionaries({
    'memory_mb': sizes | st.just(0),
    'vcpus': some(sizes), 'root_gb': some(sizes), 'swap': some(sizes),
    'resource_class': some(st.sampled_from(list(filter(None, CLASSES)))),
    'conductor_group': some(st.sampled_from(GROUPS)),
    'shard': some(st.sampled_from([*SHARDS, '\U0001f600'])),
    'extra_specs': some(_extra_specs), 'image': some(_image),
})


def parse(body, project=None):
    """Return the matcher of a request, which has to be valid."""
    try:
        return fleets.matcher(project, **body)
    except exception.InvalidInput:
        hypothesis.reject()


#: Conditions of nodes, and why they keep nodes from being held.
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
    'sick': ({'health': 'Critical', 'reservation': 'c'}, 'health'),
}
conditions = st.just('free') | st.sampled_from(sorted(CONDITIONS))


settings = hypothesis.settings(
    deadline=None, max_examples=20, suppress_health_check=[
        hypothesis.HealthCheck.function_scoped_fixture,
        hypothesis.HealthCheck.too_slow])


def add(fleet, batch):
    """Add nodes in some conditions.

    :returns: pairs of a matching.Node and the reason.
    """
    fleet.clear()
    rows = []
    for fields, condition in batch:
        more = dict(CONDITIONS[condition][0])
        for name in more.keys() & {'instance_uuid', 'parent_node'}:
            more[name] = str(uuid.uuid4())
        rows.append({**fields, **more})
    ids = fleet.add(*rows)
    return [(make_node(node_id, fields), CONDITIONS[condition][1])
            for node_id, (fields, condition) in zip(ids, batch, strict=True)]
