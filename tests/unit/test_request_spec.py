# SPDX-License-Identifier: Apache-2.0
"""The meaning of a request, and when two requests are the same.

Invalid requests are a table, tests/common/bad_requests.py, from which
tests/api/test_refusals.py sends them.
"""

import copy
import json

import hypothesis
from hypothesis import strategies as st
import pytest

from ironic_reservations import exception
from ironic_reservations.api import reservations
from ironic_reservations.api import specs
from ironic_reservations.matching import request_spec
from tests.common import request_keys
from tests.unit import strategies
from tests.unit import tables

BODY = {
    'memory_mb': 1024, 'vcpus': 8, 'root_gb': 20,
    'extra_specs': {'capabilities': 'gpu', 'hw:x': 'y'},
    'image': {'id': 'i', 'properties': {'hw_architecture': 'x86_64'}},
    'candidate_nodes': ['a', 'b'],
}


def parse(body):
    return request_spec.RequestSpec.from_dict(specs.select_spec(body))


def identity(body):
    return parse(body).canonical


# Identity

@pytest.mark.parametrize('more', [
    *({key: None} for key in request_keys.KEYS if key not in BODY),
    *({key: value} for key, value in
      request_keys.values(is_in_spec=False).items()),
    {'ephemeral_gb': 0}, {'swap': 0}, {'swap': 0.0},
    {'rxtx_factor': 1.0}, {'rxtx_factor': 1}, {'rxtx_factor': None},
    {'memory_mb': 1024.0},
    {'candidate_nodes': ['b', 'a', 'b']},
    {'instance_uuid': '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'},
], ids=str)
def test_equal_requests(more):
    assert identity({**BODY, **more}) == identity(BODY)


@pytest.mark.parametrize('more', [
    {'extra_specs': {**BODY['extra_specs'], 'ownership': 'any'}},
    {'image': {'id': 'i', 'properties': {
        **BODY['image']['properties'], 'ownership': 'any'}}},
], ids=str)
def test_extra_specs_and_properties_have_no_defaults(more):
    spec = parse({**BODY, **more})
    assert json.loads(spec.canonical).items() >= more.items()
    assert ('ownership' in spec.ignored) == ('extra_specs' in more)


@pytest.mark.parametrize('where, key, value', [
    ('extra_specs', 'more', None),
    ('image', 'min_ram', 0), ('image', 'min_ram', None),
    ('image', 'min_disk', 0),
    ('properties', 'more', None),
], ids=str)
def test_equal_requests_with_other_inner_keys(where, key, value):
    body = copy.deepcopy(BODY)
    {'extra_specs': body['extra_specs'], 'image': body['image'],
     'properties': body['image']['properties']}[where][key] = value
    assert identity(body) == identity(BODY)


@pytest.mark.parametrize('empty', [
    {'extra_specs': {}}, {'extra_specs': None}, {'extra_specs': {'a': None}},
    {'image': {}}, {'image': None}, {'image': {'properties': {}}},
    {'image': {'properties': None, 'min_ram': 0}}], ids=str)
def test_empty_is_absent(empty):
    assert identity({'vcpus': 8, **empty}) == identity({'vcpus': 8})


def test_order_of_keys_does_not_matter():
    body = dict(reversed(BODY.items()))
    body['extra_specs'] = dict(reversed(BODY['extra_specs'].items()))
    assert identity(body) == identity(BODY)


@pytest.mark.parametrize('change', [
    *({key: value} for key, value in
      request_keys.values(is_in_spec=True).items()),
    {'memory_mb': 0}, {'memory_mb': None}, {'vcpu_weight': 0},
    {'rxtx_factor': 1.5}, {'conductor_group': 'rack'}, {'extra_specs': {}},
    {'extra_specs': {**BODY['extra_specs'], 'hw:x': ''}},
    {'image': {**BODY['image'], 'min_ram': 1}},
    {'image': {**BODY['image'], 'id': 'j'}}, {'candidate_nodes': ['a']},
], ids=str)
def test_different_requests(change):
    assert identity({**BODY, **change}) != identity(BODY)


def test_identity_is_the_request():
    assert json.loads(identity({**BODY, 'swap': None, 'host': 'h'})) == BODY


def test_request_spec_is_a_value():
    assert parse(BODY) == parse(copy.deepcopy(BODY))
    assert hash(parse(BODY)) == hash(parse(copy.deepcopy(BODY)))
    with pytest.raises(AttributeError):
        parse(BODY).exact = True


# Constraints

@pytest.mark.parametrize('body', [
    *({key: value} for key, value in
      request_keys.values(constrains=True).items()),
    {'candidate_nodes': ['a']},
    *({'extra_specs': {key: value}} for key, value in (
        ('capabilities', 'a'), ('capabilities:a', 'b'), ('cpu_arch', 'a'),
        ('trait:A', 'required'), ('trait:A', 'forbidden'),
        ('reservations:trait:A', 'forbidden'), ('resources:CUSTOM_A', '1'),
        ('resources:VCPU', '1'), ('resources:VGPU', '1'),
        ('reservations:candidate_nodes', 'a'))),
    *({'image': {'properties': {key: value}}} for key, value in (
        ('hw_architecture', 'a'), ('hypervisor_type', 'baremetal'),
        ('img_hv_type', 'ironic'), ('hw_firmware_type', 'uefi'),
        ('trait:A', 'required'))),
    # With "exact" the override does not count.
    {'vcpus': 1, 'extra_specs': {'resources:VCPU': '0',
                                 'reservations:match': 'exact'}},
], ids=str)
def test_one_constraint_is_enough(body):
    assert parse(body)


# Requests without a constraint are in tests/common/bad_requests.py.

def test_adopted_request_keeps_invalid_extra_specs():
    specs = {'reservations:foo': 'a', 'resources:VGPU': '-1',
             'resources:GOLD': '1', 'trait:A': 'maybe', 'hw:x': 'y',
             'capabilities:x': '>= x', 'capabilities:rack': 'r1',
             f'resources:{tables.BLAZAR}': '1'}
    spec = request_spec.RequestSpec.from_server({'extra_specs': specs})
    assert spec.ignored == tuple(sorted(
        specs.keys() - {'capabilities:rack'}))
    assert [name for name, _ in spec.capabilities] == ['rack']
    assert json.loads(spec.canonical) == {'extra_specs': specs}


@pytest.mark.parametrize('body', [
    {'extra_specs': {'resources:CUSTOM_A': '1', 'resources:CUSTOM_B': '1'}},
    {'extra_specs': {'resources:CUSTOM_A': '1', 'resources1:CUSTOM_A': '1'}},
    {'resource_class': 'b', 'extra_specs': {'resources:CUSTOM_A': '1'}},
    {'extra_specs': {f'trait:T{number}': 'required'
                     for number in range(request_spec.MAX_WORDS + 1)}},
    {'extra_specs': {f'trait:T{number}': 'required'
                     for number in range(request_spec.MAX_WORDS)},
     'image': {'properties': {'trait:A': 'required'}}},
], ids=['two-classes', 'amount-2', 'class-and-class', 'many-traits',
        'traits-of-the-image'])
def test_adopted_request_keeps_contradictions(body):
    spec = request_spec.RequestSpec.from_server(body)
    assert spec.ignored == tuple(sorted(body['extra_specs']))
    assert json.loads(spec.canonical) == body


# Expressions

@pytest.mark.parametrize('value', [
    'plain', 'a b', 'Dell Inc.', '', ' ', '4', 'servers', 's', '~',
    '>= 4', '= 4.5', '== -4', '!= 1e3', 's== a', '<in> a', '<or> a <or> b',
    '<all-in> a b', '<range-in> ( 1 2.5 ]'], ids=repr)
def test_valid_capability(value):
    assert parse({'extra_specs': {'capabilities:x': value}})


@hypothesis.given(strategies.requests())
@hypothesis.settings(deadline=None, max_examples=300)
def test_valid_body_is_parsed_or_refused(body):
    """The identity of a parsed request is a request with that identity."""
    reservations.CREATE_BODY(body)
    try:
        spec = parse(body)
    except exception.InvalidInput as error:
        assert error.field and str(error).startswith(error.field)
    else:
        assert identity(json.loads(spec.canonical)) == spec.canonical


@hypothesis.given(strategies.requests(), st.data())
@hypothesis.settings(deadline=None)
def test_null_is_absent(body, data):
    try:
        expected = identity(body)
    except exception.InvalidInput:
        hypothesis.assume(False)
    absent = sorted(
        specs.REQUEST_SPEC['properties'].keys() - body.keys())
    names = data.draw(st.sets(st.sampled_from(absent)) if absent
                      else st.just(()))
    assert identity({**body, **dict.fromkeys(names)}) == expected


@pytest.mark.parametrize('key, value, message', [
    ('resources:VCPU', '1.5', 'must be an integer; got "1.5"'),
    ('resources:VCPU', '-1', 'must be at least 0; got "-1"'),
    ('resources:CUSTOM_A', '2', 'must be 0 or 1, because a node is one unit '
                                'of its class; got 2'),
    ('trait:CUSTOM_X', 'maybe', 'must be required or forbidden; got "maybe"'),
    ('reservations:match', 'almost', 'must be one of exact, at_least; got '
                                     '"almost"'),
    ('reservations:candidates', 'first', 'must be ordered; got "first"'),
    ('reservations:candidate_nodes', ', ', 'must name a node; got ["", " "]'),
    ('capabilities', ':b', 'must be names or name:value pairs; got ":b"'),
    ('capabilities:x', '>= a', 'must be a value or an expression such as '
                               '">= 4", "<in> word" or "<or> a <or> b"; got '
                               '">= a"'),
])
def test_error_names_the_value(key, value, message):
    with pytest.raises(exception.InvalidInput) as error:
        parse({'extra_specs': {key: value}})
    assert str(error.value) == f'extra_specs.{key}: {message}'


# Ignored keys

@pytest.mark.parametrize('keys, end', [
    ([], 'compared'),
    (['capabilites:rack', 'hw:a'],
     'compared; not compared with nodes: capabilites:rack (did you mean '
     'capabilities:rack?), hw:a'),
    ([f'hw:{number}' for number in range(9)], 'hw:6, hw:7, ...')])
def test_error_names_ignored_keys(keys, end):
    with pytest.raises(exception.InvalidInput) as error:
        parse({'extra_specs': dict.fromkeys(keys, 'x')})
    assert str(error.value).endswith(end)
