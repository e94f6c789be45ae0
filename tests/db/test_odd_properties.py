# SPDX-License-Identifier: Apache-2.0
"""Nodes whose properties a database reads otherwise than Python does.

None of them is hidden, and none hides the others.
"""

import json

import pytest

from ironic_reservations import exception

pytestmark = pytest.mark.on('sqlite', 'server')

#: What a text has beside the sizes that are asked for.
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
def test_is_found_and_counted(fleet, odd):
    node_id, _ = fleet.add(
        {'properties': f'{{"memory_mb": 2048, "cpus": "8", {odd}}}'}, {})
    held, _ = fleet.hold(memory_mb=2000, vcpus=8, resource_class='gold',
                         **UEFI)
    assert held.node_id == node_id
    assert fleet.count_nodes(host='compute-1') == (2, 1, 1)


@pytest.mark.parametrize('text', [
    None, '', ' ', '{', 'null', '[1]', '3', '{"memory_mb": [2048]}',
    '{"memory_mb": {"a": 2048}}', '{"memory_mb": true}', '[' * 120,
    '[' * 120 + ']' * 120], ids=str)
def test_has_no_size(fleet, text):
    fleet.add({'properties': text}, {'properties': {'memory_mb': 1024}})
    with pytest.raises(exception.NoMatchingNode):
        fleet.hold(resource_class='gold', memory_mb=2000)
    assert fleet.count_nodes(host='compute-1') == (2, 2, 0)
    fleet.hold(resource_class='gold', memory_mb=1000)
    # It can be had by whoever asks for no size.
    fleet.hold()
    assert fleet.count_nodes(host='compute-1') == (2, 0, 2)


def test_long_values_are_told_apart(fleet):
    """They differ behind the 512th character."""
    racks = {rack: json.dumps({
        'capabilities': 'a:b,' * 500 + f'rack:{rack}'}) for rack in 'rs'}
    ids = dict(zip(racks, fleet.add(*(
        {'properties': text} for text in racks.values())), strict=True))
    for rack, node_id in ids.items():
        held, _ = fleet.hold(resource_class='gold',
                             extra_specs={'capabilities:rack': rack})
        assert held.node_id == node_id
