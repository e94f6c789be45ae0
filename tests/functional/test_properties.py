# SPDX-License-Identifier: Apache-2.0
"""Properties that a real Ironic takes stop nobody."""

import pytest

from tests.common import answers

OURS = '/v1/reservations'

# What reads them is the database.
pytestmark = pytest.mark.parametrize(
    'ironic', ['sqlite', 'server'], indirect=True)

POOL = [{'properties': {'memory_mb': 131072}},
        {'properties': {'memory_mb': 131072}}, {'traits': ['CUSTOM_A']}, {}]

HOSTILE = [r'"\ud800"', r'"a:\u0000,b"', 'NaN', '["a"]', '{"a": 1}', '7',
           'true', '"a:\U0001f600"']


@pytest.mark.parametrize('text', HOSTILE)
def test_properties_that_ironic_takes_stop_nobody(ironic, pool, node_class,
                                                  text):
    """Whoever may edit one node must not stop the service for all."""
    path = f'/v1/nodes/{pool[3].id}'
    response = ironic.http.patch(
        path, headers={'Content-Type': 'application/json'},
        data=('[{"op": "add", "path": "/properties/capabilities", '
              f'"value": {text}}}]').encode())
    try:
        # Ironic takes most of it, and answers 400 to some.
        assert response.status_code in (200, 400), response.text
        rows = ironic.capacity(resource_class=node_class)
        assert sum(row['total'] for row in rows) == 4
        held = ironic.create(resource_class=node_class, memory_mb=8192)
        assert held['node_uuid'] in (pool[0].id, pool[1].id)
        response = ironic.http.post(OURS, json={
            'resource_class': node_class, 'memory_mb': 999999})
        answers.check(response, 422)
        assert response.json()['explanation']['considered'] >= 4
    finally:
        ironic.set_node(pool[3].id, properties='{}')


def test_long_lists_of_traits(ironic, resource_class):
    """MySQL cuts GROUP_CONCAT at 1,024 bytes."""
    traits = [f'CUSTOM_{number:02}_{"X" * 100}' for number in range(30)]
    with ironic.fleet({'resource_class': resource_class, 'traits': traits}):
        row, = ironic.capacity(trait=traits[-1])
        assert row['traits'] == traits
