# SPDX-License-Identifier: Apache-2.0
"""Validation of requests: valid input, and messages about invalid input.

Invalid input, field by field, is a table, tests/common/bad_requests.py, from
which tests/api/test_refusals.py sends it.
"""

import io
import json
import re

import hypothesis
from hypothesis import strategies as st
import pytest
import webob
from wsme.rest import json as wsme_json

from ironic_reservations import exception
from ironic_reservations.api import capacity
from ironic_reservations.api import fence
from ironic_reservations.api import groups
from ironic_reservations.api import history
from ironic_reservations.api import hosts
from ironic_reservations.api import limits
from ironic_reservations.api import notices
from ironic_reservations.api import pools
from ironic_reservations.api import requests
from ironic_reservations.api import reservations
from ironic_reservations.api import routes
from ironic_reservations.api import schema
from ironic_reservations.api import specs
from tests.common import request_keys
from tests.unit import strategies

UUID = '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'
#: Keys whose values are names or IDs of hosts, nodes, projects and users.
IDENTS = {'project_id', 'user_id', 'host', 'node', 'nodes', 'replaces',
          'candidate_nodes'}


def validate(body):
    """Parse and validate the bytes of a body as the controller does."""
    return reservations.CREATE_BODY(requests.parse_json(body))


def refuse(function, *args):
    with pytest.raises(exception.InvalidInput) as error:
        function(*args)
    message = str(error.value)
    assert message.startswith(f'{error.value.field}: ')
    # It becomes part of a response and of a log line.
    assert message.isprintable() and len(message) < 2000
    return error.value.field


VALIDATORS = {
    f'{module.__name__}.{name}': value for module in (
        reservations, groups, hosts, capacity, routes, notices, pools,
        history, fence)
    for name, value in vars(module).items()
    if isinstance(value, schema.Validator)}


def keywords(part):
    """Yield the keywords of a schema that can refuse input, with values."""
    for keyword, value in part.items():
        if keyword == 'properties':
            for inner in value.values():
                yield from keywords(inner)
        elif isinstance(value, dict):
            yield from keywords(value)
        elif keyword != 'additionalProperties':
            yield keyword, value


@pytest.mark.parametrize('name', VALIDATORS)
def test_every_keyword_has_a_message(name):
    for keyword, value in keywords(VALIDATORS[name].schema):
        assert schema.describe_requirement(keyword, value), (keyword, value)


def named_parts(part, name=None):
    """Yield the schemas inside a schema with the names of their keys."""
    yield name, part
    for key, inner in part.get('properties', {}).items():
        yield from named_parts(inner, key)
    for keyword in 'items', 'propertyNames', 'additionalProperties':
        if isinstance(part.get(keyword), dict):
            yield from named_parts(part[keyword], name)


@pytest.mark.parametrize('name', VALIDATORS)
def test_every_text(name):
    """None has NUL or lone surrogates, and no ID or name is blank."""
    for key, part in named_parts(VALIDATORS[name].schema):
        if 'string' in part.get('type', ()):
            blank = [' ', '\u3000'] if key in IDENTS else []
            for text in ('a\0b', '2030-01-01\x0000:00:00Z', '\ud800', *blank):
                assert not re.search(part['pattern'], text), (key, text)


@pytest.mark.parametrize('keyword, value', [('multipleOf', 2),
                                            ('pattern', '^a')])
def test_keyword_without_a_message(keyword, value):
    validate_one = schema.Validator(
        {'properties': {'name': {keyword: value}}}, 'body')
    bad, json_text = (3, '3') if keyword == 'multipleOf' else ('b', '"b"')
    with pytest.raises(exception.InvalidInput) as error:
        validate_one({'name': bad})
    assert str(error.value) == (
        f'name: must satisfy "{keyword}" of its schema; got {json_text}')


def test_unknown_key_is_escaped_in_the_message():
    body = br'{"a\nb\u0000\ud800": 1}'
    assert refuse(validate, body) == r'a\nb\x00\ud800'


@pytest.mark.parametrize('body', [
    {}, {'memory_mb': 0}, {'memory_mb': 2 ** 31 - 1}, {'memory_mb': None},
    {'rxtx_factor': 1.5}, {'rxtx_factor': 0}, {'name': ''},
    {'name': 'x' * 255}, {'name': '\U0001f600' * 255},
    {'conductor_group': ''}, {'instance_uuid': UUID},
    {'instance_uuid': UUID.upper()}, {'instance_uuid': None},
    {'extra_specs': {'key': 'x' * 1024}}, {'extra_specs': {'key': None}},
    {'extra_specs': {'x' * 255: ''}}, {'extra_specs': None},
    {'image': None}, {'image': {'properties': {'key': 'x' * 1024}}},
    {'candidate_nodes': ['a'] * 1000}, {'candidate_nodes': None},
], ids=lambda body: str(body)[:40])
def test_good_body(body):
    assert validate(json.dumps(body).encode()) == body


def test_table_of_request_keys_is_complete():
    assert reservations.CREATE_BODY.schema['properties'].keys() - (
        request_keys.KEYS) == {
            'instance_uuid', 'rxtx_factor', 'extra_specs', 'image',
            'candidate_nodes', 'ownership', 'group', 'claim', 'holder',
            'avoid'}


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats()
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(list(specs.REQUEST_SPEC['properties']))
        | st.text(st.characters()), inner, max_size=4),
    max_leaves=12)
# JSON in which at most one value is invalid.
nearly = st.builds(
    lambda body, key, value: {**body, key: value}, strategies.requests(),
    st.sampled_from(list(specs.REQUEST_SPEC['properties'])), anything)


@hypothesis.given(anything | nearly)
@hypothesis.settings(deadline=None, max_examples=200)
def test_any_json_is_valid_or_refused(value):
    try:
        validate(json.dumps(value).encode())
    except exception.InvalidInput as error:
        assert error.field


@hypothesis.given(st.binary() | st.text().map(str.encode))
@hypothesis.settings(deadline=None)
def test_any_bytes_are_valid_or_refused(body):
    try:
        validate(body)
    except exception.InvalidInput as error:
        assert error.field


@hypothesis.given(strategies.requests())
@hypothesis.settings(deadline=None)
def test_validation_does_not_change_the_body(body):
    assert validate(json.dumps(body).encode()) == body


# The reason for a schema: WSME accepts these.

@pytest.mark.parametrize('value, number', [(True, True), ('3', 3), (1.5, 1)],
                         ids=repr)
def test_wsme_accepts_values_that_are_no_integers(value, number):
    assert wsme_json.fromjson(int, value) == number
    assert refuse(
        reservations.CREATE_BODY, {'memory_mb': value}) == 'memory_mb'


@pytest.mark.parametrize('body', [b'[]', b'null'])
def test_wsme_fails_on_a_body_that_is_no_object(body):
    with pytest.raises(Exception) as error:
        wsme_json.parse(body.decode(), {'memory_mb': None}, False)
    assert not isinstance(error.value, ValueError)
    assert refuse(validate, body) == 'body'


# Queries

@pytest.mark.parametrize('query', [
    {}, {'limit': '1'}, {'limit': '007'}, {'limit': '999999999'},
    {'marker': UUID}, {'sort_key': 'host', 'sort_dir': 'desc'},
    {'sort_key': 'host,id,created_at', 'sort_dir': 'desc,asc'},
    {'state': 'reserved'}, {'state': 'unavailable'},
    {'host': 'a', 'node': 'b', 'resource_class': 'c', 'project_id': 'd'}],
    ids=str)
def test_good_list_query(query):
    assert reservations.LIST_QUERY(query) == query


@pytest.mark.parametrize('keys, directions, order', [
    (None, None, [('id', 'asc')]), (None, 'desc', [('id', 'desc')]),
    ('host,id', None, [('host', 'asc'), ('id', 'asc')]),
    ('host,id', 'desc', [('host', 'desc'), ('id', 'desc')]),
    ('id,host,user_id', 'desc,asc',
     [('id', 'desc'), ('host', 'asc'), ('user_id', 'asc')]),
])
def test_order(keys, directions, order):
    query = {'limit': '1', 'sort_key': keys, 'sort_dir': directions}
    query = {name: value for name, value in query.items() if value}
    assert [*reservations.pop_order(query).items()] == order
    assert query == {'limit': '1'}


@pytest.mark.parametrize('keys, directions, field', [
    ('host,host', 'asc', 'sort_key'), ('host', 'asc,desc', 'sort_dir'),
    (None, 'asc,asc', 'sort_dir')])
def test_bad_order(keys, directions, field):
    query = {'sort_key': keys, 'sort_dir': directions}
    assert refuse(reservations.pop_order, {
        name: value for name, value in query.items() if value}) == field


@pytest.mark.parametrize('text, names', [
    (None, None), ('host', ['host']), ('host, state', ['host', 'state'])])
def test_good_fields(text, names):
    assert reservations.pop_fields({'fields': text}) == names


# Limits that are checked before the body is parsed

def pass_limits(body, content_type='application/json', length=True):
    """Return the body behind the limits."""
    def app(environ, start_response):
        bodies.append(limits.get_body(webob.Request(environ)))
        return []
    bodies = []
    request = webob.Request.blank('/v1/reservations', method='POST',
                                  content_type=content_type)
    request.body_file = io.BytesIO(body)
    request.content_length = len(body) if length else None
    limits.BodyLimits(app)(request.environ, lambda status, headers: None)
    return bodies[0]


@pytest.mark.parametrize('length', [True, False])
def test_body_of_64_kib_passes(length):
    body = b'"' + b'x' * (64 * 1024 - 2) + b'"'
    assert pass_limits(body, length=length) == body


@pytest.mark.parametrize('content_type', [
    'application/json', 'application/json; charset=utf-8'])
def test_content_type_of_json(content_type):
    assert pass_limits(b'{}', content_type) == b'{}'


def depth(value):
    """Return the number of levels of a parsed JSON value."""
    inner = (value if isinstance(value, list)
             else value.values() if isinstance(value, dict) else None)
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


# Brackets, quotes and backslashes in strings and in keys form no levels.
_tricky = st.text('[]{}"\\/u05bd,: \n\U0001f600', max_size=12)
_levels = st.lists(st.sampled_from('[]{}') | _tricky, max_size=26)


def _wrap(value, levels):
    for level in levels:
        value = [value] if level in ('[', ']') else {level: value}
    return value


deep = st.builds(_wrap, _tricky | st.lists(_tricky, max_size=2)
                 | st.dictionaries(_tricky, _tricky, max_size=2), _levels)


@hypothesis.given(deep | st.lists(deep, max_size=3), st.booleans(),
                  st.sampled_from([None, 1]))
@hypothesis.settings(deadline=None, max_examples=200)
def test_at_most_20_levels(value, ascii_only, indent):
    body = json.dumps(value, ensure_ascii=ascii_only,
                      indent=indent).encode('utf-8')
    if depth(value) <= 20:
        assert pass_limits(body) == body
    else:
        assert refuse(pass_limits, body) == 'body'


@pytest.mark.parametrize('levels, passes', [(20, True), (21, False)])
@pytest.mark.parametrize('pattern', [b'[', b'{"a":', b'[{"a":'])
def test_levels_of_an_incomplete_body(pattern, levels, passes):
    count = pattern.count(b'[') + pattern.count(b'{')
    body = pattern * (levels // count) + b'[' * (levels % count)
    if passes:
        assert pass_limits(body) == body
    else:
        assert refuse(pass_limits, body) == 'body'


@pytest.mark.timeout(60)
@pytest.mark.parametrize('pattern', [
    b'[', b'{"":', b']', b'[]', b'"', b'\\', b'\\"', b'"\\', b'"\\"', b'"\\\\',
    b'"[', b'["', b'"a', b'a', b' ', b'\\u', b'\xff', b'\x00', b'"\n',
    b'-', b'1', b',', b'"a":'], ids=repr)
@pytest.mark.parametrize('before', [b'', b'"', b'["'], ids=repr)
def test_hostile_body_takes_linear_time(before, pattern):
    """A body within the limits can be parsed."""
    body = (before + pattern * limits.MAX_BODY)[:limits.MAX_BODY]
    try:
        validate(pass_limits(body))
    except exception.InvalidInput as error:
        assert error.field


@pytest.mark.parametrize('by, message', [
    ({}, 'by: must not be empty; got {}'),
    ({'shard': 'a', 'conductor_group': 'b'},
     'by: must have at most 1 key; got 2')], ids=['none', 'two'])
def test_number_of_keys(by, message):
    with pytest.raises(exception.InvalidInput) as error:
        notices.CREATE_BODY({'kind': 'fault', 'by': by})
    assert str(error.value) == message
