# SPDX-License-Identifier: Apache-2.0
"""A real Ironic with the plugin, and a machine with an emulated BMC."""

import pytest

from tests.common import databases
from tests.common import service
from tests.redfish import emulator
from tools import services

CONFIG = {
    'DEFAULT': {
        'enabled_hardware_types': 'fake-hardware,redfish',
        'enabled_boot_interfaces': 'fake,redfish-virtual-media',
        'enabled_deploy_interfaces': 'fake,ramdisk',
        'enabled_management_interfaces': 'fake,redfish',
        'enabled_power_interfaces': 'fake,redfish',
    },
    # Read health and power states continuously.
    'conductor': {'sync_power_state_interval': 1},
}


@pytest.fixture(scope='session')
def bmc(tmp_path_factory):
    bmc = emulator.BMC(tmp_path_factory.mktemp('bmc'))
    with bmc.serve():
        yield bmc


@pytest.fixture(scope='session')
def ironic(tmp_path_factory, shared_directory):
    directory = tmp_path_factory.mktemp('ironic')
    url = databases.create_sqlite(shared_directory,
                                  directory / 'ironic.sqlite')
    with services.ironic(directory, url, services.free_port(), CONFIG,
                         kill=True, empty=False) as running:
        yield service.Ironic(running)


@pytest.fixture(scope='module')
def nodes_of_module(ironic, bmc, node_class):
    """The machine's node, which Ironic reports as healthy, and a fake one."""
    machine = {'driver': 'redfish', 'driver_info': bmc.driver_info}
    with ironic.fleet(*({**spec, 'resource_class': node_class}
                        for spec in (machine, {}))) as nodes:
        ironic.settle(nodes[:1], health='OK')
        yield nodes
