# SPDX-License-Identifier: Apache-2.0
"""Behaviour of Nova that the driver depends on.

test_seams checks names and signatures.
"""

import inspect

import fixtures
from nova import service
from nova import test
from nova.compute import manager
from nova.virt import driver as virt_driver
from nova.virt import node as virt_node
from nova.virt.ironic import driver as ironic_driver
import nova.virt.ironic_reservations as ours
import testtools

PARENT = ironic_driver.IronicDriver


class TestAssumptions(testtools.TestCase):

    def test_way_to_the_resource_tracker(self):
        for owner, line in (
                (manager.ComputeVirtAPI, 'self._compute = compute'),
                (manager.ComputeManager,
                 'self.rt = resource_tracker.ResourceTracker(')):
            self.assertIn(line, inspect.getsource(owner.__init__))

    def test_waiting_host_does_nothing_else(self):
        """See host_lease.HostLease.acquire."""
        start = inspect.getsource(service.Service.start)
        for later in 'rpc.get_server(', 'servicegroup_api.join(':
            self.assertLess(start.index('self.manager.init_host('),
                            start.index(later))
        self.assertLess(start.index('.get_by_host_and_binary('),
                        start.index('self.manager.init_host('))
        init_host = inspect.getsource(manager.ComputeManager.init_host)
        self.assertLess(init_host.index('self.driver.init_host('),
                        init_host.index('InstanceList.get_by_host('))

    def test_source_of_the_compute_id(self):
        """See mode.identify."""
        self.assertIn('return LOCAL_NODE_UUID', inspect.getsource(
            virt_node.get_local_node_uuid))

    def test_calls_for_an_evacuation(self):
        """See ReservationsMixin.instance_exists."""
        self.assertIn('self.driver.instance_exists(', inspect.getsource(
            manager.ComputeManager._check_instance_exists))
        self.assertIn('self._check_instance_exists(', inspect.getsource(
            manager.ComputeManager._do_rebuild_instance))

    def test_private_overrides(self):
        """The parent still calls the private methods that we override."""
        for name in ('_cleanup_deploy', '_unprovision',
                     '_validate_instance_and_node'):
            self.assertIn(f'self.{name}(', inspect.getsource(PARENT))
            self.assertIn(name, vars(ours.ReservationsMixin))


class TestSignatures(test.NoDBTestCase):

    def test_public_methods(self):
        """The same check as for Nova's own drivers."""
        # The check reads this property, which would connect to Ironic.
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.ironic.driver.IronicDriver.ironic_connection', None))
        base = virt_driver.ComputeDriver(None)
        driver = ours.ReservationsDriver(None)
        if not hasattr(base, 'process_instances_at_startup'):
            # Nova before 34 never calls it.
            type(base).process_instances_at_startup = (
                lambda self, context, instances: instances)
            self.addCleanup(
                delattr, type(base), 'process_instances_at_startup')
        self.assertPublicAPISignatures(base, driver)
