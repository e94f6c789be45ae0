# SPDX-License-Identifier: Apache-2.0
"""Rows of the tables of matching: requests and nodes."""

import json

import pytest

from ironic_reservations import matching
from ironic_reservations.matching import request_spec

#: A request with all kinds of constraints.
FULL_BODY = {'memory_mb': 1024, 'vcpus': 8, 'root_gb': 20, 'ephemeral_gb': 5,
             'resource_class': 'gold',
             'conductor_group': 'Rack', 'shard': 'a',
             'candidate_nodes': ['node-1'],
             'image': {'min_ram': 512, 'min_disk': 10, 'properties': {
                 'hw_firmware_type': 'uefi', 'img_hv_type': 'qemu'}},
             'extra_specs': {'resources:VGPU': '1', 'resources1:VGPU': '2',
                             'capabilities:hypervisor_type': 's== ironic',
                             'capabilities:memory_mb': '>= 512',
                             'trait:CUSTOM_B': 'required',
                             'trait:CUSTOM_A': 'required',
                             'trait:CUSTOM_C': 'forbidden',
                             'capabilities': 'gpu,ssd:4',
                             'capabilities:maker': 'Dell Inc.',
                             'capabilities:raid': '>= 2',
                             'cpu_arch': 'amd64'}}

UUID = '5a4ac6d9-0c1a-4b6d-8d6b-0b6f0e8a2c1e'

#: A resource class of a lease of Blazar.
BLAZAR = 'CUSTOM_RESERVATION_5F0E8D3C_1B2A_4C6D_8E9F_0A1B2C3D4E5F'


def make_spec(body, match='at_least'):
    """Return a request spec, which may have no constraint."""
    return request_spec.RequestSpec.from_dict(body, match, required=False)


def make_node(properties=None, **fields):
    """Return a node; ``properties`` is a dict, or the text of the column."""
    if isinstance(properties, dict):
        properties = json.dumps(properties)
    return matching.Node(**{'id': 1, 'uuid': UUID, 'properties': properties,
                            **fields})


def make_matcher(body, match='at_least'):
    return matching.Matcher(make_spec(body, match))


def matches(body, node, match='at_least'):
    return make_matcher(body, match).matches(node)


def table(*rows):
    """Parametrize rows of an ID, a request body, a node and the result."""
    return pytest.mark.parametrize(
        'body, node, expected', [row[1:] for row in rows],
        ids=[row[0] for row in rows])


def specs(extra_specs, **body):
    """Return a request with these extra_specs and without sizes."""
    return {'memory_mb': 0, 'extra_specs': extra_specs, **body}


def image(**properties):
    return {'memory_mb': 0, 'image': {'properties': properties}}
