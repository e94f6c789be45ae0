# SPDX-License-Identifier: Apache-2.0
"""Options of commands override the flavor.

Lookups in a real Nova are in tests/functional/test_cli.py.
"""

from openstack.compute.v2 import flavor
from osc_lib import exceptions
import pytest

from ironic_reservations.osc import client
from ironic_reservations.osc import create
from ironic_reservations.osc import options


@pytest.fixture
def build(monkeypatch):
    """Return a function that returns the request spec of a command."""
    def build(extra_specs, *args):
        row = flavor.Flavor(
            id='7', name='bm', ram=64, vcpus=1, disk=7, ephemeral=6, swap=5,
            rxtx_factor=1.0, extra_specs=extra_specs)
        monkeypatch.setattr(client, 'find_resource', lambda *_, **__: row)
        parser = create.CreateReservation(None, None).get_parser('create')
        return options.build_request_spec(
            None, parser.parse_args(['--flavor', 'bm', *args]))
    return build


def test_options_override_the_flavor(build):
    assert build(
        {'resources:MEMORY_MB': '0', 'resources1:VCPU': '0',
         'resources:DISK_GB': '0', 'resources:CUSTOM_OTHER': '1',
         'trait1:CUSTOM_NVME': 'forbidden',
         'reservations:trait:CUSTOM_GPU': 'required',
         'trait:HW_CPU_X86_AVX': 'forbidden',
         'capabilities': 'fast:false,gpus:9,boot_mode:uefi',
         'capabilities:gpus': '9', 'cpu_arch': 'aarch64',
         'reservations:candidate_nodes': 'elsewhere',
         'reservations:match': 'exact'},
        '--ram', '2048', '--vcpus', '2', '--disk', '10', '--ephemeral', '0',
        '--swap', '0', '--resource-class', 'gold', '--trait', 'CUSTOM_NVME',
        '--forbidden-trait', 'CUSTOM_GPU', '--capability', 'fast',
        '--capability', 'gpus=4', '--capability', 'cpu_arch=x86_64',
        '--candidate-node', 'cli-3', '--match', 'at_least') == {
            'memory_mb': 2048, 'vcpus': 2, 'root_gb': 10, 'ephemeral_gb': 0,
            'swap': 0, 'rxtx_factor': 1.0, 'name': 'bm', 'flavorid': '7',
            'resource_class': 'gold', 'candidate_nodes': ['cli-3'],
            'extra_specs': {
                # Extra specs without an option remain.
                'trait:HW_CPU_X86_AVX': 'forbidden',
                'capabilities': 'boot_mode:uefi,fast',
                'capabilities:gpus': '4', 'capabilities:cpu_arch': 'x86_64',
                'trait:CUSTOM_NVME': 'required',
                'trait:CUSTOM_GPU': 'forbidden',
                'reservations:match': 'at_least'}}


@pytest.mark.parametrize('key, value, option, text', [
    ('resources:MEMORY_MB', '0', '--ram', '65536'),
    ('resources:VCPU', '0', '--vcpus', '64'),
    ('resources:DISK_GB', '0', '--disk', '500'),
    ('reservations:candidate_nodes', 'cli-1', '--candidate-node', 'cli-2'),
    ('resources:CUSTOM_OTHER', '1', '--resource-class', 'gold')])
def test_option_overrides_the_only_extra_spec(build, key, value, option, text):
    assert build({key: value})['extra_specs'] == {key: value}
    assert 'extra_specs' not in build({key: value}, option, text)


@pytest.mark.parametrize('option', ['--swap', '--ephemeral'])
def test_part_of_a_disk_whose_total_the_flavor_sets(build, option):
    total = {'resources:DISK_GB': '50'}
    with pytest.raises(exceptions.CommandError) as error:
        build(total, option, '1G')
    assert str(error.value) == (
        f'{option} contradicts resources:DISK_GB=50 of the flavor, which is '
        'the total of all disks: give --disk, too')
    spec = build(total, option, '1G', '--disk', '5')
    assert spec['root_gb'] == 5 and 'extra_specs' not in spec
