# SPDX-License-Identifier: Apache-2.0
"""What a node's owner writes, and what a client sends, stalls nobody.

Which texts are bad is decided in tests/unit: see worst_texts there.
"""

import json

import pytest

from ironic_reservations.matching import node as nodes
from tests.common import answers
from tests.common import growth

OURS = '/v1/reservations'
DRY_RUN = f'{OURS}?dry_run=true'
POOL = [{'properties': {'memory_mb': 1}}]


def asks(ironic, node_class, wanted):
    """A dry run of nodes whose capability k is what is wanted."""
    response = ironic.http.post(DRY_RUN, json={
        'resource_class': node_class, 'memory_mb': 1,
        'extra_specs': {'capabilities:k': wanted}})
    answers.check(response, 200)
    return response.json()['matching_nodes']


def test_value_of_a_node_does_not_stall_the_process(ironic, pool,
                                                    node_class):
    [node] = pool

    def prepare(length):
        # The column has room for 64 KiB.
        blanks = ' ' * (length - 2048)
        ironic.set_node(node.id, properties=json.dumps(
            {'memory_mb': 1, 'capabilities': f'k:[a{blanks}x'}))
        return lambda: asks(ironic, node_class, '<all-in> a')

    growth.check(prepare)
    assert asks(ironic, node_class, '<all-in> a') == 0


@pytest.mark.parametrize('more, matching_nodes', [(0, 1), (1, 0)])
def test_longest_value_of_a_node(ironic, pool, node_class, more,
                                 matching_nodes):
    [node] = pool
    value = 'a' * (nodes.LONGEST_VALUE + more)
    ironic.set_node(node.id, properties=json.dumps(
        {'memory_mb': 1, 'capabilities': f'k:{value}'}))
    assert asks(ironic, node_class, '<in> a') == matching_nodes


@pytest.mark.parametrize('length, field', [(16384, 'a'), (16385, 'query')])
def test_query_is_bounded(ironic, length, field):
    found = answers.check(
        ironic.http.get(f'{OURS}?a='.ljust(length + len(OURS) + 1, 'b')), 400)
    assert found.startswith(f'{field}: ')


@pytest.mark.parametrize('header', ['Content-Type', 'Accept', 'X-Whatever'])
def test_header_is_bounded(ironic, header):
    found = answers.check(ironic.http.get(
        OURS, headers={header: 'a' * 16385}), 400)
    assert found.startswith(f'{header}: must be at most 16384')
    answers.check(ironic.http.get(OURS, headers={header: 'a' * 16384}), 200)
