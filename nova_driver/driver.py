# SPDX-License-Identifier: Apache-2.0
"""Overrides methods of Nova's Ironic driver.

Each method is that of another object: ``mode.OneComputeNode`` or
``reserved.Reserved`` in one-row mode, otherwise the parent.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import copy
import threading
from typing import Any

from nova import context as nova_context
from nova import exception
from nova import objects
from nova.compute import task_states
from nova.compute import utils as compute_utils
from nova.virt import hardware
from nova.virt.ironic import driver as ironic_driver
from openstack.baremetal.v1 import node as sdk_node

from . import builds
from . import client
from . import conf
from . import fence
from . import host_lease
from . import migration
from . import mode
from . import node_faults
from . import ownership
from . import placement
from . import power
from . import reconciler
from . import report
from . import reserved
from . import restart
from . import stopping
from . import takeover
from . import timing

CONF = conf.CONF


class ReservationsMixin(ironic_driver.IronicDriver):
    """Adds reservations of nodes to Nova's driver, or to a subclass of it."""

    capabilities: dict[str, bool]

    def __init__(self, virtapi: Any, read_only: bool = False):
        self.reservations = client.Client(lambda: self.ironic_connection)
        self.fence = fence.Fence(self.reservations)
        # None forbids writes to Ironic; a copy of this object has another.
        self._binding: fence.Binding | None = None
        # A parent may use ironic_connection, which needs these.
        super().__init__(virtapi, read_only)
        self.host_lease: host_lease.HostLease | None = None
        self.migration: migration.Migration | None = None
        self.completer: restart.Completer | None = None
        self.worker = reconciler.Worker(self._work)
        # Set once Nova has initialized the instances that it found when it
        # started.
        self._start = threading.Event()
        self.power_states = power.PowerStates(self._read_power_states)

    # Start

    def init_host(self, host: str) -> None:
        # Not CONF.host, because tests run several hosts in one process.
        self.host = self.fence.host = host
        if CONF.reservations.standby:
            self.host_lease = host_lease.HostLease(
                host, self.reservations, self.fence.cleanup)
        self.stopping = stopping.Stopping(
            host, self.reservations, self.virtapi._compute, self.host_lease)
        if self.host_lease is not None:
            self.host_lease.acquire()
            self.fence.host_lease = self.host_lease
        self.builds = builds.Builds(self.reservations, host)
        self.mode = mode.Mode(host, self.reservations)
        self.ownership = ownership.Ownership(host, self.reservations,
                                             self.mode, self.fence)
        self.report = report.Report(host, self.reservations)
        # The only way to reach the resource tracker.
        tracker = self.virtapi._compute.rt
        self.compute_node = mode.OneComputeNode(
            host, self.reservations, self.builds, self.report,
            self.power_states, self._start)
        self.reserved = reserved.Reserved(
            super(), self._bind, self.reservations, self.fence, self.builds,
            self.ownership, self.report, self.power_states, self._start)
        if CONF.reservations.mode != 'per_node':
            self.compute_node.adapt_tracker(tracker)
        # The error is logged, and the periodic task retries.
        with contextlib.suppress(exception.VirtDriverNotReady):
            self._driver_of_host.init_host(host)
        if CONF.reservations.adopt:
            self.migration = migration.Migration(
                host, lambda: self.mode.decision, self.report,
                self.reservations, tracker.reportclient, self._find_carriers)
        self.completer = restart.Completer(
            host, self.reservations, lambda: self.ironic_connection,
            self.virtapi._compute, self.fence.wait)
        self.takeover = takeover.Takeover(
            host, self.report, self.reservations, self.virtapi._compute,
            self.fence.wait, self.completer)
        # Later Nova calls process_instances_at_startup for that.
        self.takeover.adapt_manager(
            () if restart.SUPPORTED else self._queued_tasks)
        self.stopping.watch()
        self.worker.start(host, timing.TIMING.interval)

    def _work(self) -> None:
        """Run one round of the driver's thread."""
        if not self._start.is_set():
            return
        # If another process has served the host since, this one must not
        # repeat its operations.
        self.fence.wait()
        if self.migration:
            self.migration.continue_work()
        # While the mode cannot be decided, asking for the host's driver would
        # raise an error.
        if self.mode.decision:
            self.takeover.continue_work()
            if self.completer:
                self.completer.continue_work(
                    self.compute_node.allocations.read)
            self.compute_node.restore_allocations()

    def cleanup_host(self, host: str) -> None:
        self.worker.stop()
        if self.completer is not None:
            self.completer.stop()
        try:
            super().cleanup_host(host)
            self.stopping.give_up_lease()
        finally:
            self.fence.cleanup.set()

    def _find_carriers(self) -> dict[str, str]:
        """Return the UUIDs of this host's nodes, by their instances."""
        return {node.instance_id.lower(): node.id
                for node in list(self.node_cache.values())
                if node.instance_id}

    @property
    def _driver_of_host(self) -> Any:
        """The object that has the driver's methods for the host.

        :raises: VirtDriverNotReady while the mode cannot be decided.
        """
        return self.compute_node if self.mode.one_row else super()

    def process_instances_at_startup(
            self, context: nova_context.RequestContext,
            instances: objects.InstanceList) -> objects.InstanceList:
        """Wait for Ironic, and read the power states of all instances at once.

        When Nova starts, it reads each power state twice, one by one, and
        exits if Ironic does not respond. Before Nova 34 it does not call this.
        """
        tasks = self._queued_tasks
        # Nova starts even while the mode cannot be decided.
        if self.mode.decision and self.completer:
            tasks = tasks or (task_states.REBUILDING,)
            instances = objects.InstanceList(
                context, objects=self.completer.hide(instances))
            self.completer.wait_for_queue(
                self.compute_node.allocations.read() or ())
            if instances:
                self.power_states.wait_and_read(len(instances))
        instances = objects.InstanceList(
            context, objects=self.takeover.wait_for_tasks(instances, tasks))
        return super().process_instances_at_startup(context, instances)

    @property
    def _queued_tasks(self) -> tuple[str, ...]:
        """Tasks whose requests wait in the host's queue when Nova starts.

        Nova would reset these tasks, and then refuse the requests. Without a
        host lease Nova repeats reboots itself.
        """
        return () if self.host_lease is None else takeover.QUEUED_TASKS

    def _read_power_states(self) -> dict[str, hardware.InstanceInfo]:
        # Nodes that have left this part of the fleet are missing.
        return {node.instance_id.lower(): hardware.InstanceInfo(
                    state=ironic_driver.map_power_state(node.power_state))
                for node in self._get_node_list(
                    associated=True, fields=('instance_uuid', 'power_state'),
                    **{name: value for name, value in
                       report.get_partition().items() if value is not None})}

    # Writing to Ironic

    @property
    def ironic_connection(self) -> Any:
        return self.fence.wrap_connection(
            super().ironic_connection, self._binding)

    def _validate_instance_and_node(
            self, instance: objects.Instance) -> sdk_node.Node:
        node = self._binding and self._binding.take_node()
        return node or super()._validate_instance_and_node(instance)

    def _make_writer(self, binding: fence.Binding) -> Any:
        """Return the parent's methods, which write to Ironic.

        These are the methods of a copy of this object, because they start
        threads that also write.
        """
        clone = copy.copy(self)
        clone._binding = binding
        return super(ReservationsMixin, clone)

    @contextlib.contextmanager
    def _bind(self, instance: objects.Instance, building: bool = False,
              node: sdk_node.Node | None = None,
              attempt: node_faults.Attempt | None = None) -> Iterator[Any]:
        """Yield the parent's methods, which write to Ironic for an instance.

        :param instance: an ownership.OnNode, unless there is no reservation.
        :param building: see fence.Held, as for the other parameters.
        :raises: fence.Refused when the host no longer holds the node.
        """
        binding = fence.NO_RESERVATION
        if (isinstance(instance, ownership.OnNode)
                and not isinstance(instance, ownership.Unheld)):
            binding = fence.Held(instance, instance.node, building, node,
                                 attempt)
        self.power_states.forget(instance)
        try:
            yield self._make_writer(binding)
        except Exception:
            if isinstance(binding, fence.Held) and binding.refusal:
                raise binding.refusal
            raise
        finally:
            self.power_states.forget(instance)

    def _driver_of(self, instance: objects.Instance) -> Any:
        """Return the object that has the driver's methods for an instance.

        :returns: the parent for an instance on the compute node of an Ironic
            node, and for a view, with which it calls a method of its own.
        """
        if isinstance(instance, ownership.OnNode):
            return super()
        if self.ownership.is_reserved(instance):
            return self.reserved
        return self._make_writer(fence.NO_RESERVATION)

    # Reports to Nova

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        if not self._start.is_set():
            self._start.set()
            self.power_states.forget_all()
        # At its start Nova would tear down evacuated instances of a driver
        # with this capability. Later it checks it only before it calls
        # ``instance_exists``, which refuses an evacuation with a reason.
        self.capabilities = {**self.capabilities, 'supports_evacuate': True}
        return self._driver_of_host.get_available_nodes(refresh)

    def get_nodenames_by_uuid(self, refresh: bool = False) -> dict[str, str]:
        return self._driver_of_host.get_nodenames_by_uuid(refresh)

    def _driver_of_node(self, nodename: str) -> Any:
        return self.compute_node if nodename == self.host else super()

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        return self._driver_of_node(nodename).get_available_resource(nodename)

    def update_provider_tree(self, provider_tree: Any, nodename: str,
                             allocations: Any = None) -> None:
        self._driver_of_node(nodename).update_provider_tree(
            provider_tree, nodename, allocations)

    def node_is_available(self, nodename: str) -> bool:
        return self._driver_of_host.node_is_available(nodename)

    def is_node_deleted(self, nodename: str) -> bool:
        """Return whether Nova may delete an unreported compute node.

        Nova deletes its provider with all allocations, so this is false while
        instances are on it.
        """
        if objects.InstanceList.get_by_host_and_node(
                nova_context.get_admin_context(), self.host, nodename,
                expected_attrs=[]):
            return False
        if self.mode.one_row == (nodename == self.host):
            return self._driver_of_host.is_node_deleted(nodename)
        # The compute node is of the other mode, so neither driver knows it. An
        # instance that is being migrated may have its allocation here.
        compute_node = mode.find_compute_node(self.host, nodename)
        return compute_node is None or placement.read_allocations(
            self.virtapi._compute.reportclient, compute_node.uuid) == {}

    def get_host_ip_addr(self) -> str:
        return CONF.my_ip

    def list_instance_uuids(self) -> list[str]:
        return self._driver_of_host.list_instance_uuids()

    def list_instances(self) -> list[str]:
        return self._driver_of_host.list_instances()

    def get_num_instances(self) -> int:
        return self._driver_of_host.get_num_instances()

    # Instances

    def get_info(self, instance: objects.Instance,
                 use_cache: bool = True) -> hardware.InstanceInfo:
        if self.ownership.is_reserved(instance):
            return self.reserved.get_info(instance, use_cache)
        # A copy of this object would refresh its own cache of nodes.
        return super().get_info(instance, use_cache)

    def instance_exists(self, instance: objects.Instance) -> bool:
        """Refuse an evacuation.

        Nova calls this on the host to which a server is to be evacuated, when
        it has only created an allocation there. After an exception it deletes
        the allocation, and leaves the server unchanged.
        """
        if instance.host == self.host:
            return super().instance_exists(instance)
        if not self.ownership.is_reserved(instance):
            # As Nova's own driver does, which cannot tell the reason.
            raise exception.InstanceEvacuateNotSupported()
        raise exception.ComputeResourcesUnavailable(reason=reserved.EVACUATION)

    def prepare_for_spawn(self, instance: objects.Instance) -> None:
        self._driver_of(instance).prepare_for_spawn(instance)

    def prepare_networks_before_block_device_mapping(
            self, instance: objects.Instance, network_info: Any) -> None:
        self._driver_of(
            instance).prepare_networks_before_block_device_mapping(
                instance, network_info)

    def spawn(self, context: nova_context.RequestContext,
              instance: objects.Instance, image_meta: objects.ImageMeta,
              injected_files: Any, admin_password: Any, allocations: Any,
              network_info: Any = None, block_device_info: Any = None,
              power_on: bool = True, accel_info: Any = None) -> None:
        self._driver_of(instance).spawn(
            context, instance, image_meta, injected_files, admin_password,
            allocations, network_info, block_device_info, power_on,
            accel_info)

    def failed_spawn_cleanup(self, instance: objects.Instance) -> None:
        self._driver_of(instance).failed_spawn_cleanup(instance)

    def destroy(self, context: nova_context.RequestContext,
                instance: objects.Instance, network_info: Any,
                block_device_info: Any = None, destroy_disks: bool = True,
                destroy_secrets: bool = True) -> None:
        self._driver_of(instance).destroy(
            context, instance, network_info, block_device_info,
            destroy_disks, destroy_secrets)
        self.compute_node.left_behind.discard(instance.uuid)

    def _unprovision(self, instance: objects.Instance, node: Any) -> None:
        ownership.check_is_held(instance, node)
        super()._unprovision(instance, node)

    def _cleanup_deploy(self, node: Any, instance: objects.Instance,
                        network_info: Any = None) -> None:
        # Nova's driver calls this with what spawn() was called with, which
        # only a driver for reservations wraps.
        if not isinstance(instance, ownership.OnNode):
            super()._cleanup_deploy(node, instance, network_info)
        elif not isinstance(instance, ownership.Spawning | ownership.Unheld):
            builds.clean_node(self.ironic_connection, instance)

    def reboot(self, context: nova_context.RequestContext,
               instance: objects.Instance, network_info: Any,
               reboot_type: str, block_device_info: Any = None,
               bad_volumes_callback: Any = None, accel_info: Any = None,
               share_info: Any = None) -> None:
        self._driver_of(instance).reboot(
            context, instance, network_info, reboot_type, block_device_info,
            bad_volumes_callback, accel_info, share_info)

    def power_off(self, instance: objects.Instance, timeout: int = 0,
                  retry_interval: int = 0) -> None:
        self._driver_of(instance).power_off(instance, timeout, retry_interval)

    def power_on(self, context: nova_context.RequestContext,
                 instance: objects.Instance, network_info: Any,
                 block_device_info: Any = None, accel_info: Any = None,
                 share_info: Any = None) -> None:
        self._driver_of(instance).power_on(
            context, instance, network_info, block_device_info, accel_info,
            share_info)

    def trigger_crash_dump(self, instance: objects.Instance) -> None:
        self._driver_of(instance).trigger_crash_dump(instance)

    def get_serial_console(self, context: nova_context.RequestContext,
                           instance: objects.Instance) -> Any:
        return self._driver_of(instance).get_serial_console(context, instance)

    def get_vnc_console(self, context: nova_context.RequestContext,
                        instance: objects.Instance) -> Any:
        return self._driver_of(instance).get_vnc_console(context, instance)

    def rescue(self, context: nova_context.RequestContext,
               instance: objects.Instance, network_info: Any,
               image_meta: objects.ImageMeta, rescue_password: Any,
               block_device_info: Any, share_info: Any) -> None:
        self._driver_of(instance).rescue(
            context, instance, network_info, image_meta, rescue_password,
            block_device_info, share_info)

    def unrescue(self, context: nova_context.RequestContext,
                 instance: objects.Instance) -> None:
        self._driver_of(instance).unrescue(context, instance)

    def attach_interface(self, context: nova_context.RequestContext,
                         instance: objects.Instance,
                         image_meta: objects.ImageMeta, vif: Any) -> None:
        self._driver_of(instance).attach_interface(
            context, instance, image_meta, vif)

    def detach_interface(self, context: nova_context.RequestContext,
                         instance: objects.Instance, vif: Any) -> None:
        self._driver_of(instance).detach_interface(context, instance, vif)

    def unplug_vifs(self, instance: objects.Instance,
                    network_info: Any) -> None:
        self._driver_of(instance).unplug_vifs(instance, network_info)

    def get_volume_connector(self, instance: objects.Instance) -> Any:
        return self._driver_of(instance).get_volume_connector(instance)

    def rebuild(self, context: nova_context.RequestContext,
                instance: objects.Instance, image_meta: objects.ImageMeta,
                injected_files: Any, admin_password: Any, allocations: Any,
                bdms: Any, detach_block_devices: Any,
                attach_block_devices: Any, network_info: Any = None,
                evacuate: bool = False, block_device_info: Any = None,
                preserve_ephemeral: bool = False, accel_uuids: Any = None,
                reimage_boot_volume: bool = False) -> None:
        if reimage_boot_volume:
            # Since API version 2.93 Nova sets it for every instance (in
            # servers.py of its API), but the parent refuses such a rebuild.
            reimage_boot_volume = compute_utils.is_volume_backed_instance(
                context, instance, bdms)
        self._driver_of(instance).rebuild(
            context, instance, image_meta, injected_files, admin_password,
            allocations, bdms, detach_block_devices, attach_block_devices,
            network_info, evacuate=evacuate,
            block_device_info=block_device_info,
            preserve_ephemeral=preserve_ephemeral, accel_uuids=accel_uuids,
            reimage_boot_volume=reimage_boot_volume)


class ReservationsDriver(ReservationsMixin, ironic_driver.IronicDriver):
    """Nova's own driver, with reservations of nodes."""
