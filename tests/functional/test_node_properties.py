# SPDX-License-Identifier: Apache-2.0
"""No property that a real Ironic accepts breaks the service."""

import pytest

from tests.common import contract

OURS = '/v1/reservations'

# The database parses the properties.
pytestmark = pytest.mark.parametrize('ironic', ['server'], indirect=True)

TEXTS = [r'"\ud800"', r'"a:\u0000,b"', 'NaN', '["a"]', '{"a": 1}', '7',
         'true', '"a:\U0001f600"']

POOL = [*[{'properties': {'memory_mb': 131072}}] * 2,
        {'traits': ['CUSTOM_A']}, *[{}] * len(TEXTS)]


def test_odd_properties(ironic, pool, node_class):
    """A user who may edit some nodes must not be able to stop the service."""
    large, odd = pool[:2], pool[3:]
    try:
        for node, text in zip(odd, TEXTS, strict=True):
            response = ironic.http.patch(
                f'/v1/nodes/{node.id}',
                headers={'Content-Type': 'application/json'},
                data=('[{"op": "add", "path": "/properties/capabilities", '
                      f'"value": {text}}}]').encode())
            # Ironic accepts most of them, and refuses some.
            assert response.status_code in (200, 400), response.text
        rows = ironic.capacity(resource_class=node_class)
        assert sum(row['total'] for row in rows) == len(pool)
        hold = ironic.create(resource_class=node_class, memory_mb=8192)
        assert hold['node_uuid'] in {node.id for node in large}
        response = ironic.http.post(OURS, json={
            'resource_class': node_class, 'memory_mb': 999999})
        contract.check(response, 422)
        assert response.json()['explanation']['considered'] >= len(pool)
    finally:
        for node in odd:
            ironic.set_node(node.id, properties='{}')
