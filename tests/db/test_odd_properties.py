# SPDX-License-Identifier: Apache-2.0
"""Nodes whose properties a database reads differently from Python.

None of them is hidden, and none hides others.
"""

import json

import pytest

from ironic_reservations import exception

pytestmark = pytest.mark.on('sqlite', 'server')

#: Parts of the text besides the requested sizes.
ODD = {
    'deep': '"a": ' + '[' * 99 + ']' * 99,
    'deeper': '"a": ' + '[' * 120 + ']' * 120,
    'deepest': '"a": ' + '{"a": ' * 400 + '1' + '}' * 400,
    'wide': '"a": [' + ', '.join(['{}'] * 300) + ']',
    'long': '"capabilities": "' + 'a:b,' * 500 + 'rack:r1"',
    'too large a number': '"a": 1e999',
    'null for a text': '"capabilities": null, "cpu_arch": null',
}
UEFI = {'image': {'properties': {'hw_firmware_type': 'uefi'}}}


@pytest.mark.parametrize('odd', ODD.values(), ids=ODD)
def test_node_with_odd_properties(fleet, odd):
    node_id, _ = fleet.add(
        {'properties': f'{{"memory_mb": 2048, "cpus": "8", {odd}}}'}, {})
    reservation, _ = fleet.hold(memory_mb=2000, vcpus=8,
                                resource_class='gold', **UEFI)
    assert reservation.node_id == node_id
    assert fleet.count_nodes(host='compute-1') == (2, 1, 1)


@pytest.mark.parametrize('text', [
    None, '', ' ', '{', 'null', '[1]', '3', '{"memory_mb": [2048]}',
    '{"memory_mb": {"a": 2048}}', '{"memory_mb": true}', '[' * 120,
    '[' * 120 + ']' * 120], ids=str)
def test_node_without_a_size(fleet, text):
    fleet.add({'properties': text}, {'properties': {'memory_mb': 1024}})
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold(resource_class='gold', memory_mb=2000)
    assert fleet.count_nodes(host='compute-1') == (2, 2, 0)
    fleet.hold(resource_class='gold', memory_mb=1000)
    # A request without sizes gets the other node.
    fleet.hold()
    assert fleet.count_nodes(host='compute-1') == (2, 0, 2)


def test_long_values_are_distinguished(fleet):
    """They differ after the 512th character."""
    racks = {rack: json.dumps({
        'capabilities': 'a:b,' * 500 + f'rack:{rack}'}) for rack in 'rs'}
    ids = dict(zip(racks, fleet.add(*(
        {'properties': text} for text in racks.values())), strict=True))
    for rack, node_id in ids.items():
        reservation, _ = fleet.hold(resource_class='gold', extra_specs={
            'capabilities:rack': rack})
        assert reservation.node_id == node_id
