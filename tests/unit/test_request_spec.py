# SPDX-License-Identifier: Apache-2.0
"""What a request means, when two are the same, and what is no request."""

import copy
import json

import hypothesis
from hypothesis import strategies as st
import pytest

from ironic_reservations import exception
from ironic_reservations.api import bodies
from ironic_reservations.matching import request_spec
from tests.unit import strategies
from tests.unit.tables import make_spec
from tests.unit.tables import specs

BODY = {
    'memory_mb': 1024, 'vcpus': 8, 'root_gb': 20,
    'extra_specs': {'capabilities': 'gpu', 'hw:x': 'y'},
    'image': {'id': 'i', 'properties': {'hw_architecture': 'x86_64'}},
    'candidate_nodes': ['a', 'b'],
}


def parse(body):
    return request_spec.RequestSpec.from_dict(body)


def identity(body):
    return parse(body).canonical


# Identity

@pytest.mark.parametrize('more', [
    {'shard': None}, {'conductor_group': None}, {'resource_class': None},
    {'name': None}, {'vcpu_weight': None},
    {'ephemeral_gb': 0}, {'ephemeral_gb': None}, {'swap': 0}, {'swap': 0.0},
    {'rxtx_factor': 1.0}, {'rxtx_factor': 1}, {'rxtx_factor': None},
    {'memory_mb': 1024.0},
    {'candidate_nodes': ['b', 'a', 'b']},
    {'instance_uuid': '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'},
    {'host': 'compute-1'}, {'project_id': 'p'}, {'user_id': 'u'},
    {'expires_in': 600},
], ids=str)
def test_requests_that_are_the_same(more):
    assert identity({**BODY, **more}) == identity(BODY)


@pytest.mark.parametrize('where, key, value', [
    ('extra_specs', 'more', None),
    ('image', 'min_ram', 0), ('image', 'min_ram', None),
    ('image', 'min_disk', 0),
    ('properties', 'more', None),
], ids=str)
def test_requests_that_are_the_same_inside(where, key, value):
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


def test_order_of_keys_is_no_difference():
    reordered = dict(reversed(BODY.items()))
    reordered['extra_specs'] = dict(reversed(BODY['extra_specs'].items()))
    assert identity(reordered) == identity(BODY)


@pytest.mark.parametrize('change', [
    {'memory_mb': 1025}, {'memory_mb': 0}, {'memory_mb': None},
    {'vcpu_weight': 0}, {'rxtx_factor': 1.5}, {'name': 'bm.small'},
    {'flavorid': '7'}, {'ephemeral_gb': 1}, {'swap': 1},
    {'resource_class': 'gold'}, {'conductor_group': ''},
    {'conductor_group': 'rack'}, {'shard': 'a'}, {'extra_specs': {}},
    {'extra_specs': {**BODY['extra_specs'], 'hw:x': ''}},
    {'image': {**BODY['image'], 'min_ram': 1}},
    {'image': {**BODY['image'], 'id': 'j'}}, {'candidate_nodes': ['a']},
], ids=str)
def test_requests_that_differ(change):
    assert identity({**BODY, **change}) != identity(BODY)


def test_identity_is_what_was_asked_for():
    assert json.loads(identity({**BODY, 'swap': None, 'host': 'h'})) == BODY


def test_request_spec_is_a_value():
    assert parse(BODY) == parse(copy.deepcopy(BODY))
    assert hash(parse(BODY)) == hash(parse(copy.deepcopy(BODY)))
    with pytest.raises(AttributeError):
        parse(BODY).exact = True


# What is wanted

@pytest.mark.parametrize('body', [
    {'memory_mb': 0}, {'vcpus': 0}, {'root_gb': 0}, {'resource_class': 'a'},
    {'candidate_nodes': ['a']}, {'extra_specs': {'hw:x': 'y'}}], ids=str)
def test_one_key_says_what_is_wanted(body):
    assert parse(body)


@pytest.mark.parametrize('body', [
    {}, {'extra_specs': {}}, {'extra_specs': {'a': None}},
    {'memory_mb': None, 'vcpus': None, 'root_gb': None},
    {'resource_class': None}, {'candidate_nodes': None},
    {'ephemeral_gb': 10, 'swap': 2, 'shard': 'a', 'conductor_group': '',
     'name': 'bm.small', 'image': {'min_ram': 9}},
    {'host': 'h', 'project_id': 'p',
     'instance_uuid': '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'},
], ids=str)
def test_nothing_says_what_is_wanted(body):
    with pytest.raises(exception.InvalidInput) as caught:
        parse(body)
    assert caught.value.field == 'body'


# What cannot be understood

@pytest.mark.parametrize('key, value', [
    ('reservations:match', 'bigger'), ('reservations:match', ''),
    ('reservations:match', 'EXACT'),
    ('trait:CUSTOM_X', 'wanted'), ('trait:CUSTOM_X', 'Required'),
    ('trait:CUSTOM_X', ''), ('trait1:CUSTOM_X', 'preferred'),
    ('reservations:trait:CUSTOM_X', 'none'),
    ('trait:', 'required'), ('trait:custom_x', 'required'),
    ('trait:CUSTOM X', 'required'),
    ('resources:VCPU', 'four'), ('resources:CUSTOM_X', '2'),
    ('resources:CUSTOM_X', '1.0'), ('resources:MEMORY_MB', '-1'),
    ('capabilities:x', '>= '), ('capabilities:x', '>='),
    ('capabilities:x', '>= x'), ('capabilities:x', '>= 4 5'),
    ('capabilities:x', '= four'), ('capabilities:x', '== 4x'),
    ('capabilities:x', 's== '), ('capabilities:x', 's== a b'),
    ('capabilities:x', '<in>'), ('capabilities:x', '<in> a b'),
    ('capabilities:x', '<or>'), ('capabilities:x', '<or> a b'),
    ('capabilities:x', '<or> a <or>'), ('capabilities:x', '<all-in>'),
    ('capabilities:x', '<range-in> [ 1 ]'),
    ('capabilities:x', '<range-in> [ 2 1 ]'),
    ('capabilities:x', '<range-in> [ a b ]'),
    ('capabilities:x', '<range-in> { 1 2 }'),
    ('capabilities:cpu_arch', '<or>'), ('cpu_arch', '<in>'),
    ('capabilities', ':value'), ('capabilities', 'a,:b'),
    ('capabilities', 'a:>= x'),
], ids=repr)
def test_extra_spec_that_cannot_be_understood(key, value):
    with pytest.raises(exception.InvalidInput) as caught:
        parse({'memory_mb': 1, 'extra_specs': {key: value}})
    assert caught.value.field == f'extra_specs.{key}'
    assert 'must' in str(caught.value)


@pytest.mark.parametrize('key, value', [
    ('trait:CUSTOM_X', 'wanted'), ('trait:', 'required'),
    ('trait:x', 'forbidden'), ('hw_architecture', '<in>')], ids=repr)
def test_image_property_that_cannot_be_understood(key, value):
    with pytest.raises(exception.InvalidInput) as caught:
        parse({'memory_mb': 1, 'image': {'properties': {key: value}}})
    assert caught.value.field == f'image.properties.{key}'


@pytest.mark.parametrize('value', [
    'plain', 'a b', 'Dell Inc.', '', ' ', '4', 'servers', 's', '~',
    '>= 4', '= 4.5', '== -4', '!= 1e3', 's== a', '<in> a', '<or> a <or> b',
    '<all-in> a b', '<range-in> ( 1 2.5 ]'], ids=repr)
def test_capability_that_is_understood(value):
    assert parse({'extra_specs': {'capabilities:x': value}})


@hypothesis.given(strategies.requests())
@hypothesis.settings(deadline=None, max_examples=1000)
def test_valid_body_is_parsed_or_refused(body):
    """And what is parsed stands for itself."""
    bodies.create(body)
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
    absent = sorted(bodies.REQUEST_SPEC['properties'].keys() - body.keys())
    chosen = data.draw(st.sets(st.sampled_from(absent)) if absent
                       else st.just(()))
    assert identity({**body, **dict.fromkeys(chosen)}) == expected


# What cannot be asked

@pytest.mark.parametrize('body, field', [
    (specs({'resources:CUSTOM_GOLD': '2'}),
     'extra_specs.resources:CUSTOM_GOLD'),
    (specs({'resources:CUSTOM_GOLD': '-1'}),
     'extra_specs.resources:CUSTOM_GOLD'),
    (specs({'resources:CUSTOM_GOLD': 'one'}),
     'extra_specs.resources:CUSTOM_GOLD'),
    (specs({'resources:CUSTOM_GOLD': ''}),
     'extra_specs.resources:CUSTOM_GOLD'),
    (specs({'resources2:CUSTOM_GOLD': '2'}),
     'extra_specs.resources2:CUSTOM_GOLD'),
    (specs({'resources:VCPU': '\u0664'}), 'extra_specs.resources:VCPU'),
    (specs({'resources:CUSTOM_GOLD': '1', 'resources:CUSTOM_SILVER': '1'}),
     'resource_class'),
    (specs({'resources:CUSTOM_GOLD': '1', 'resources1:CUSTOM_SILVER': '1'}),
     'resource_class'),
    (specs({'resources:CUSTOM_GOLD': '1'}, resource_class='silver'),
     'resource_class'),
], ids=str)
def test_node_is_one_unit_of_one_class(body, field):
    with pytest.raises(exception.InvalidInput) as caught:
        make_spec(body)
    assert caught.value.field == field
