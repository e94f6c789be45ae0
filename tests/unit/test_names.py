# SPDX-License-Identifier: Apache-2.0
import pytest

from ironic_reservations.shared import names
from tests.unit.tables import BLAZAR

ROWS = [{'resource_class': 'baremetal.gold', 'shard': 'east',
         'conductor_group': 'Rack', 'traits': ['CUSTOM_NVME'],
         'capabilities': {'rack': 'r1', 'gpus': '4'}},
        {'resource_class': None, 'shard': None, 'conductor_group': '',
         'traits': [], 'capabilities': {}}]


@pytest.mark.parametrize('spec, unknown', [
    ({'resource_class': 'baremetal.golf'},
     [('resource class', 'baremetal.golf', 'baremetal.gold')]),
    ({'resource_class': 'CUSTOM_BAREMETAL_GOLD'}, []),
    ({'extra_specs': {'resources:CUSTOM_BAREMETAL_GLD': '1'}},
     [('resource class', 'CUSTOM_BAREMETAL_GLD', 'CUSTOM_BAREMETAL_GOLD')]),
    ({'shard': 'eastt', 'conductor_group': 'rack'},
     [('shard', 'eastt', 'east')]),
    ({'conductor_group': 'pack'}, [('conductor group', 'pack', None)]),
    ({'extra_specs': {'resources:CUSTOM_GOLD': '1',
                      'resources1:CUSTOM_SILVER': '0',
                      f'resources:{BLAZAR}': '1'}},
     [('resource class', 'CUSTOM_GOLD', None)]),
    ({'extra_specs': {'trait:CUSTOM_NVM': 'required',
                      'reservations:trait:CUSTOM_GPU': 'required',
                      'trait:CUSTOM_FPGA': 'forbidden'}},
     [('trait', 'CUSTOM_NVM', 'CUSTOM_NVME'), ('trait', 'CUSTOM_GPU', None)]),
    ({'image': {'properties': {'trait:CUSTOM_NVM': 'required'}}},
     [('trait', 'CUSTOM_NVM', 'CUSTOM_NVME')]),
    ({'extra_specs': {'capabilities': 'gpu,rack:r1', 'capabilities:gpus':
                      '>= 8', 'capabilities:cpu_arch': 'aarch64'}},
     [('capability', 'gpu', 'gpus')]),
    ({'extra_specs': {'capabilities:rack': 'r-1'}},
     [('capability rack with the value', 'r-1', 'r1')]),
], ids=str)
def test_unknown_names(spec, unknown):
    assert names.find_unknown(names.list_requirements(spec),
                              names.collect_names(ROWS)) == unknown
