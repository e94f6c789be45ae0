# SPDX-License-Identifier: Apache-2.0
import pytest

from ironic_reservations.shared import spelling


@pytest.mark.parametrize('key, in_flavor, in_metadata', [
    ('capabilites:rack', 'capabilities:rack', 'capabilities:rack'),
    ('capability:rack', 'capabilities:rack', 'capabilities:rack'),
    ('Capabilities:rack', 'capabilities:rack', 'capabilities:rack'),
    ('resource:CUSTOM_X', 'resources:CUSTOM_X', 'resources:CUSTOM_X'),
    ('trai:CUSTOM_X', 'trait:CUSTOM_X', 'trait:CUSTOM_X'),
    ('cpuarch', 'cpu_arch', 'cpu_arch'),
    ('reservations:candidate_node', 'reservations:candidate_nodes',
     'reservations:candidate_nodes'),
    ('reservations:traits:X', 'reservations:trait:X', 'reservations:trait:X'),
    ('reservation:claim', None, 'reservations:claim'),
    ('reservations:macth', 'reservations:match', None),
    # Known keys, and keys of other services.
    ('reservations:candidate_nodes', None, None),
    ('reservations:trait:CUSTOM_X', None, None),
    ('capabilities:rack', None, None),
    ('trait1:CUSTOM_X', None, None),
    ('resources_NET:CUSTOM_X', None, None),
    ('hw:cpu_policy', None, None),
    ('quota:cpu_shares', None, None),
    ('reservations:exclude_nodes', None, None),
    ('capabilites:', None, None),
    ('foo', None, None),
])
def test_closest_key(key, in_flavor, in_metadata):
    assert spelling.find_closest_key(key) == in_flavor
    assert spelling.find_closest_key(key, spelling.METADATA) == in_metadata


@pytest.mark.parametrize('name, names, expected', [
    ('GPU', ['CUSTOM_GPU', 'CUSTOM_NVME'], 'CUSTOM_GPU'),
    ('nvme', ['CUSTOM_GPU', 'CUSTOM_NVME'], 'CUSTOM_NVME'),
    ('CUSTOM_NVEM', ['CUSTOM_GPU', 'CUSTOM_NVME'], 'CUSTOM_NVME'),
    ('gold-99', ['gold-9', 'silver-9'], 'gold-9'),
    ('rak', ['rack', 'gpus'], 'rack'),
    ('rack', ['rack', 'racks'], None),
    ('r9', ['r1', 'r2'], None),
    ('rack', [], None),
])
def test_closest_name(name, names, expected):
    assert spelling.find_closest(name, names) == expected


def test_hint_for_a_misspelled_key():
    assert spelling.add_hint('foo') == 'foo'
    assert spelling.add_hint('capabilites:rack') == (
        'capabilites:rack (did you mean capabilities:rack?)')
