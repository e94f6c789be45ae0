# SPDX-License-Identifier: Apache-2.0
"""What the tables of matching are made of: requests and nodes."""

import json

import pytest

from ironic_reservations import matching
from ironic_reservations.matching import request_spec

UUID = '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'


def make_spec(body, match='at_least'):
    """A request spec, which need not constrain the node."""
    return request_spec.RequestSpec.from_dict(body, match, required=False)


def make_node(properties=None, **fields):
    """A node; ``properties`` is a dict, or text as the column has it."""
    if isinstance(properties, dict):
        properties = json.dumps(properties)
    return matching.Node(**{'id': 1, 'uuid': UUID, 'properties': properties,
                            **fields})


def make_matcher(body, match='at_least'):
    return matching.Matcher(make_spec(body, match))


def matches(body, node, match='at_least'):
    return make_matcher(body, match).matches(node)


def table(*rows):
    """Rows of an id, a request's body, a node and whether it matches."""
    return pytest.mark.parametrize(
        'body, node, expected', [row[1:] for row in rows],
        ids=[row[0] for row in rows])


def specs(extra_specs, **body):
    """A request with these extra_specs that any size of node satisfies."""
    return {'memory_mb': 0, 'extra_specs': extra_specs, **body}


def image(**properties):
    return {'memory_mb': 0, 'image': {'properties': properties}}
