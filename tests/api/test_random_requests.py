# SPDX-License-Identifier: Apache-2.0
"""Random requests are granted, or refused with the name of the key."""

import json
import string

import hypothesis
from hypothesis import strategies as st
import pytest

from tests.common import bad_requests
from tests.common import contract
from tests.common import request_keys

OURS, ITEM, CLASS = bad_requests.OURS, bad_requests.ITEM, bad_requests.CLASS
HELD, UNKNOWN = bad_requests.HELD, bad_requests.UNKNOWN


@pytest.fixture(scope='module')
def fleet(ironic):
    with bad_requests.fleet(ironic) as nodes:
        yield nodes


BOUNDED = hypothesis.settings(
    max_examples=60, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(hypothesis.HealthCheck))

VALID = {
    **request_keys.values(), **dict.fromkeys(request_keys.SIZES, 0),
    'resource_class': CLASS, 'shard': None, 'instance_uuid': UNKNOWN,
    'rxtx_factor': 1.0,
    'extra_specs': {'capabilities:x': '<or> a <or> b',
                    'resources:CUSTOM_TEST_INPUT': '1',
                    'resources:VCPU': '0', 'trait:CUSTOM_X': 'forbidden',
                    'reservations:match': 'at_least'},
    'image': {'id': 'i', 'min_ram': 0, 'min_disk': 0,
              'properties': {'hw_architecture': 'x86_64',
                             'trait:CUSTOM_Y': 'forbidden'}},
    'ownership': 'any', 'claim': None,
    'group': {'uuid': UNKNOWN, 'policy': 'soft-pack', 'by': 'shard'},
}
GROUP = {
    'uuid': UNKNOWN, 'members': 1, 'policy': 'soft-spread',
    'by': 'capability:rack', **request_keys.values(is_in_spec=False),
    'request': {name: VALID[name] for name in (
        'memory_mb', 'resource_class', 'extra_specs', 'image', 'ownership')},
}

# Surrogates too: json.dumps writes them as escapes.
TEXT = st.text(st.characters(), max_size=20)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT
    | st.sampled_from(['required', '>= 3', '<in> x', HELD, 10 ** 400, '']),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(TEXT | st.sampled_from(sorted(VALID | GROUP)), inner,
                      max_size=5),
    max_leaves=12)


def find_objects(value):
    """Yield all objects in a value, and the value itself."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from find_objects(inner)


@st.composite
def mutate(draw, valid):
    """Change a valid body in one or two places."""
    body = json.loads(json.dumps(valid))
    for _ in range(draw(st.integers(1, 2))):
        inside = draw(st.sampled_from(list(find_objects(body))))
        key = draw(st.sampled_from(sorted(inside) or ['x']) | TEXT)
        if draw(st.booleans()) and key in inside:
            del inside[key]
        else:
            inside[key] = draw(JSON)
    return json.dumps(body).encode()


@st.composite
def garble(draw, valid):
    """Remove and insert bytes in the text of a valid body."""
    body = json.dumps(valid).encode()
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(body)))
        end = draw(st.integers(start, min(start + 5, len(body))))
        body = body[:start] + draw(
            st.binary(max_size=3) | st.sampled_from(
                [b'"', b'\\', b'{', b'[', b'}', b',', b'\\ud800', b'9'])
        ) + body[end:]
    return body


def check_response(ironic, response, before):
    """Check a response, release the reservation, and compare the state."""
    fault = contract.check(response)
    if response.status_code == 400:
        assert ': ' in fault
    if response.request.method == 'POST' and response.ok:
        contract.check(ironic.http.delete(response.headers['Location']), 204)
    assert ironic.state() == before


@pytest.mark.parametrize('path, valid', [(OURS, VALID),
                                         (f'{OURS}/groups', GROUP)])
# Any JSON and any bytes are in tests/unit/test_schema.py.
@pytest.mark.parametrize('bodies', [mutate, garble])
def test_random_bodies(ironic, fleet, bodies, path, valid):
    before = ironic.state()

    @BOUNDED
    @hypothesis.given(bodies(valid))
    def run(body):
        check_response(ironic, ironic.http.post(
            path, data=body, headers={'Content-Type': 'application/json'}),
            before)

    run()


def test_random_queries(ironic, fleet):
    before = ironic.state()
    names = st.sampled_from(
        ['host', 'node', 'state', 'limit', 'marker', 'sort_key', 'sort_dir',
         'fields', 'project_id', 'resource_class']) | st.text(max_size=5)
    values = st.sampled_from(
        ['1', 'h', HELD, 'reserved', 'asc', 'created_at', 'host,state']
    ) | st.text(max_size=10)
    raw = st.text(string.printable.replace('#', ''), max_size=30)

    @BOUNDED
    @hypothesis.given(
        st.sampled_from([OURS, ITEM]),
        st.lists(st.tuples(names, values), max_size=4) | raw)
    def run(path, query):
        check_response(ironic, ironic.http.get(path, params=query), before)

    run()


def test_random_paths(ironic, fleet):
    before = ironic.state()
    segments = (st.text(max_size=10) | st.binary(max_size=5)
                | st.sampled_from([UNKNOWN, '.', '..', 'index', '', 'get']))

    @BOUNDED
    @hypothesis.given(
        st.sampled_from(['GET', 'DELETE', 'PUT', 'PATCH', 'FOO']),
        st.lists(segments, min_size=1, max_size=3))
    def run(method, path):
        suffix = ''.join(f'/{quote(segment)}' for segment in path)
        check_response(ironic, ironic.http.request(method, OURS + suffix),
                       before)

    run()


def quote(segment):
    """Quote every byte of a path's segment."""
    if isinstance(segment, str):
        segment = segment.encode()
    return ''.join(f'%{byte:02x}' for byte in segment)
