# SPDX-License-Identifier: Apache-2.0
"""Overrides methods of Nova's Ironic driver, for one row per compute host.

On such a row ``instance.node`` is the name of the host. Methods of the parent
that expect the UUID of the Ironic node there get a view of the instance that
has it (ownership.OnNode). Other methods find the node by the instance's UUID.
Instances on a row per node have the UUID of their Ironic node in
``instance.node``, and the parent's methods handle them.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import copy
import threading
from typing import Any

from keystoneauth1 import exceptions as ksa_exc
from nova import context as nova_context
from nova import exception
from nova import objects
from nova.compute import task_states
from nova.compute import utils as compute_utils
from nova.compute import vm_states
from nova.virt import hardware
from nova.virt.ironic import driver as ironic_driver
from openstack import exceptions as sdk_exc
from openstack.baremetal.v1 import node as sdk_node
from oslo_log import log as logging
import tenacity

from . import builds
from . import client
from . import conf
from . import endings
from . import fence
from . import host_lease
from . import migration
from . import mode
from . import ownership
from . import placement
from . import power
from . import reconciler
from . import report
from . import restart
from . import stopping
from . import takeover
from . import wanted

CONF = conf.CONF
LOG = logging.getLogger(__name__)

#: Seconds between two attempts to reach Ironic when nova-compute starts.
START_PAUSE = 5

#: Seconds between two rounds of the driver's thread.
INTERVAL = 5

#: Tasks that users have requested, and no host has begun.
QUEUED_TASKS = (task_states.REBOOTING, task_states.REBOOTING_HARD,
                task_states.REBUILDING)

#: Seconds after a start within which the requests for these tasks are
#: received from the host's queue. Later, the request is considered lost, for
#: example because the message bus has failed.
QUEUE_TIMEOUT = 300

_EVACUATION = (
    'a bare metal server cannot leave its machine; to have another compute '
    'host manage it, use "openstack baremetal reservation move"')


class ReservationsDriver(ironic_driver.IronicDriver):
    """Reserves a node in Ironic when it builds an instance."""

    host: str
    capabilities: dict[str, bool]
    builds: builds.Builds
    row: mode.OneRow
    mode: mode.Mode
    ownership: ownership.Ownership
    report: report.Report
    stopping: stopping.Stopping
    takeover: takeover.Takeover

    def __init__(self, virtapi: Any, read_only: bool = False):
        super().__init__(virtapi, read_only)
        self.reservations = client.Client(lambda: self.ironic_connection)
        self.fence = fence.Fence(self.reservations)
        # None forbids writes to Ironic; _bind() sets it on a copy.
        self._binding: fence.Binding | None = None
        self._known_node: sdk_node.Node | None = None
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
        self.row = mode.OneRow(
            host, self.reservations, self.builds, self.report,
            self.power_states, self._start)
        if CONF.reservations.mode != 'per_node':
            self.row.adapt_tracker(tracker)
        try:
            self._rows.init_host(host)
        except exception.VirtDriverNotReady:
            pass  # The error is logged, and the periodic task retries.
        if CONF.reservations.adopt:
            self.migration = migration.Migration(
                host, lambda: self.mode.decision, self.report,
                self.reservations, tracker.reportclient, self._find_carriers)
        self.completer = restart.Completer(
            host, self.reservations, lambda: self.ironic_connection,
            self.virtapi._compute, self._wait_for_lease)
        self.takeover = takeover.Takeover(
            host, self.report, self.reservations, self.virtapi._compute,
            self._wait_for_lease, self.completer)
        self.stopping.watch()
        self.worker.start(host, INTERVAL)

    def _work(self) -> None:
        """Run one round of the driver's thread."""
        if not self._start.is_set():
            return
        self._wait_for_lease()
        if self.migration:
            self.migration.continue_work()
        if self.mode.decision:
            self.takeover.continue_work()
            if self.completer:
                self.completer.continue_work(self.row.allocations.read)
            self.row.restore_allocations()

    def _wait_for_lease(self) -> None:
        # If another process has served the host since, this one must not
        # repeat its operations.
        if self.host_lease is not None:
            self.host_lease.wait()

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
        """Return the UUIDs of the nodes with a row, by their instances."""
        return {node.instance_id: node.id
                for node in list(self.node_cache.values())
                if node.instance_id}

    @property
    def _rows(self) -> Any:
        """The methods for one row, or the parent's for a row per node.

        :raises: VirtDriverNotReady while the mode cannot be decided.
        """
        return self.row if self.mode.one_row else super()

    def process_instances_at_startup(
            self, context: nova_context.RequestContext,
            instances: objects.InstanceList) -> objects.InstanceList:
        """Wait for Ironic, and read the power states of all instances at once.

        When Nova starts, it reads each power state twice, one by one, and
        exits if Ironic does not respond. Before Nova 34 it does not call this.
        """
        # The requests for these tasks wait in the host's queue. Nova would
        # reset the tasks now, and then refuse the requests. Without a host
        # lease Nova repeats reboots itself.
        tasks: tuple[str, ...] = (
            () if self.host_lease is None else QUEUED_TASKS)
        if self.mode.decision and self.completer:
            tasks = tasks or (task_states.REBUILDING,)
            instances = objects.InstanceList(
                context, objects=self.completer.hide(instances))
            self.completer.wait_for_queue(self.row.allocations.read() or ())
            if instances:
                self._wait_for_ironic(len(instances))
        if tasks:
            self.takeover.end_later(
                [instance for instance in instances
                 if instance.task_state in tasks], QUEUE_TIMEOUT)
            instances = objects.InstanceList(context, objects=[
                instance for instance in instances
                if instance.task_state not in tasks])
        return super().process_instances_at_startup(context, instances)

    def _wait_for_ironic(self, count: int) -> None:
        """Read all power states, as soon as Ironic responds.

        :param count: the number of this host's instances, for the log.
        """
        tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(
                (exception.VirtDriverNotReady, exception.ServiceUnavailable,
                 ksa_exc.ClientException, sdk_exc.SDKException)),
            wait=tenacity.wait_fixed(START_PAUSE),
            before_sleep=lambda _: LOG.warning(
                'Ironic does not respond. nova-compute waits before it '
                'initializes %d instances.', count),
        )(self.power_states.read)

    def _read_power_states(self) -> dict[str, hardware.InstanceInfo]:
        # Nodes that have left this part of the fleet are missing.
        return {node.instance_id: hardware.InstanceInfo(
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
        node, self._known_node = self._known_node, None
        return node or super()._validate_instance_and_node(instance)

    @contextlib.contextmanager
    def _bind(self, instance: objects.Instance, building: bool = False,
              node: sdk_node.Node | None = None) -> Iterator[Any]:
        """Yield the parent's methods, which write to Ironic for an instance.

        These are the methods of a copy of this object, because they start
        threads that write, too.

        :param instance: an ownership.OnNode, unless there is no reservation.
        :param building: see fence.Held.
        :param node: the node of the instance, as far as the parent needs it;
            the first lookup returns it instead of a request's response.
        :raises: fence.Refused when the host no longer holds the node.
        """
        clone, binding = copy.copy(self), fence.NO_RESERVATION
        if (isinstance(instance, ownership.OnNode)
                and not isinstance(instance, ownership.Unheld)):
            binding = fence.Held(instance, instance.node, building)
        clone._binding, clone._known_node = binding, node
        self.power_states.forget(instance)
        try:
            yield super(ReservationsDriver, clone)
        except Exception:
            if isinstance(binding, fence.Held) and binding.refusal:
                raise binding.refusal
            raise
        finally:
            self.power_states.forget(instance)

    @contextlib.contextmanager
    def _bind_on_node(
            self, instance: objects.Instance, building: bool = False,
            ) -> Iterator[tuple[Any, objects.Instance]]:
        """Yield the parent's methods, and the view that they need.

        :raises: also the errors of Ownership.on_node.
        """
        instance = self.ownership.on_node(instance, building)
        with self._bind(instance, building) as parent:
            yield parent, instance

    # Reports to Nova

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        if not self._start.is_set():
            self._start.set()
            self.power_states.forget_all()
        # At its start Nova would tear down evacuated instances of a driver
        # with this capability. Later it checks it only before it calls
        # ``instance_exists``, which refuses an evacuation with a reason.
        self.capabilities = {**self.capabilities, 'supports_evacuate': True}
        return self._rows.get_available_nodes(refresh)

    def get_nodenames_by_uuid(self, refresh: bool = False) -> dict[str, str]:
        return self._rows.get_nodenames_by_uuid(refresh)

    def _get_row(self, nodename: str) -> Any:
        return self.row if nodename == self.host else super()

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        return self._get_row(nodename).get_available_resource(nodename)

    def update_provider_tree(self, provider_tree: Any, nodename: str,
                             allocations: Any = None) -> None:
        self._get_row(nodename).update_provider_tree(
            provider_tree, nodename, allocations)

    def node_is_available(self, nodename: str) -> bool:
        return self._rows.node_is_available(nodename)

    def is_node_deleted(self, nodename: str) -> bool:
        """Return whether Nova may delete a row that is no longer reported.

        Nova deletes the row's provider with all allocations, so this is false
        while instances are on the row.
        """
        if objects.InstanceList.get_by_host_and_node(
                nova_context.get_admin_context(), self.host, nodename,
                expected_attrs=[]):
            return False
        if self.mode.one_row == (nodename == self.host):
            return self._rows.is_node_deleted(nodename)
        # An instance that is being migrated may have its allocation here.
        row = mode.find_compute_node(self.host, nodename)
        return row is None or placement.read_allocations(
            self.virtapi._compute.reportclient, row.uuid) == {}

    def get_host_ip_addr(self) -> str:
        return CONF.my_ip

    # Instances of the host

    def list_instance_uuids(self) -> list[str]:
        return self._rows.list_instance_uuids()

    def list_instances(self) -> list[str]:
        return self._rows.list_instances()

    def get_num_instances(self) -> int:
        return self._rows.get_num_instances()

    def get_info(self, instance: objects.Instance,
                 use_cache: bool = True) -> hardware.InstanceInfo:
        if (self.mode.decision is False
                and not self.ownership.is_ours(instance)):
            return super().get_info(instance, use_cache)
        # Nova sets use_cache to False before it stops a machine, and at its
        # start. The parent's cache of nodes is refreshed only on hosts with a
        # row per node.
        info = (self.power_states.get(instance)
                if use_cache or not self._start.is_set() else None)
        return info or super().get_info(instance, use_cache=False)

    def instance_exists(self, instance: objects.Instance) -> bool:
        """Refuse an evacuation.

        Nova calls this on the host to which a server is to be evacuated, when
        it has only created an allocation there. After this exception it
        deletes the allocation, and leaves the server unchanged.

        :raises: ComputeResourcesUnavailable.
        """
        if instance.host == self.host:
            return super().instance_exists(instance)
        if self.mode.decision is False and instance.node != instance.host:
            # A host with a row per node refuses as Nova's own driver does.
            raise exception.InstanceEvacuateNotSupported()
        raise exception.ComputeResourcesUnavailable(reason=_EVACUATION)

    # From hold to release

    def prepare_for_spawn(self, instance: objects.Instance) -> None:
        """Hold a node for the instance.

        Nova calls this first in a build. With a row per node the scheduler
        has chosen the node, and the parent prepares it.
        """
        if not self.ownership.is_ours(instance):
            with self._bind(instance) as parent:
                return parent.prepare_for_spawn(instance)
        self._hold(instance)

    def _hold(self, instance: objects.Instance) -> None:
        self.builds.begin(
            instance, self.report.partition or report.get_partition())

    def prepare_networks_before_block_device_mapping(
            self, instance: objects.Instance, network_info: Any) -> None:
        if not self.ownership.is_ours(instance):
            with self._bind(instance, building=True) as parent:
                return parent.prepare_networks_before_block_device_mapping(
                    instance, network_info)
        self._attach_networks(instance, network_info)

    def _renew(self, instance: objects.Instance) -> objects.Instance:
        """Renew the lease of an instance's node.

        :returns: the view of the instance that the parent's methods need.
        """
        return ownership.OnNode(instance, self.builds.renew(instance))

    def _attach_networks(self, instance: objects.Instance,
                         network_info: Any) -> None:
        # Neutron may take long to create the ports. Wait for it before
        # renewing the lease, because the node is changed only after that.
        network_info.wait()
        instance = self._renew(instance)
        with self._bind(instance, building=True) as parent:
            # The method above would read the node first, only for its UUID.
            parent._plug_vifs(sdk_node.Node(id=instance.node), instance,
                              network_info)

    def spawn(self, context: nova_context.RequestContext,
              instance: objects.Instance, image_meta: objects.ImageMeta,
              injected_files: Any, admin_password: Any, allocations: Any,
              network_info: Any = None, block_device_info: Any = None,
              power_on: bool = True, accel_info: Any = None) -> None:
        def deploy(instance: objects.Instance) -> None:
            with self._bind(instance, building=True) as parent:
                parent.spawn(
                    context, instance, image_meta, injected_files,
                    admin_password, allocations, network_info,
                    block_device_info, power_on, accel_info)

        if not self.ownership.is_ours(instance):
            return deploy(instance)
        is_unshelve = instance.uuid not in self.builds
        try:
            if is_unshelve:
                # In an unshelve Nova does not call the two methods above.
                self._hold(instance)
                if network_info is not None:
                    self._attach_networks(instance, network_info)
            deploy(self._renew(instance))
        except Exception as e:
            if is_unshelve:
                # Nova does not call failed_spawn_cleanup, either.
                try:
                    self.destroy(context, instance, network_info,
                                 block_device_info)
                except Exception:
                    LOG.exception('Could not clean up after a failed '
                                  'unshelve', instance=instance)
            if isinstance(e, exception.InstanceUnacceptable):
                # After this exception of spawn Nova would try the next host;
                # BuildAbortException aborts the build.
                raise exception.BuildAbortException(
                    instance_uuid=instance.uuid, reason=e.format_message())
            if isinstance(e, exception.InstanceNotFound):
                raise builds.make_lost_node_error(instance)
            raise
        finally:
            self.builds.end(instance)
            self.ownership.block_if_lost(instance, restart.is_complete)

    def failed_spawn_cleanup(self, instance: objects.Instance) -> None:
        if not self.ownership.is_ours(instance):
            with self._bind(instance) as parent:
                return parent.failed_spawn_cleanup(instance)
        self.builds.end(instance)
        try:
            reservation = self.fence.block_if_lost(instance)
            if reservation:
                on_node = ownership.OnNode(instance, reservation['node_uuid'])
                with self._bind(on_node, building=True) as parent:
                    parent.failed_spawn_cleanup(on_node)
            self.reservations.release(instance.uuid, self.host)
        except (client.Failure, sdk_exc.SDKException, fence.Refused) as e:
            # An exception would hide why the build has failed. The node is
            # not lost: the next host that builds the instance gets the same
            # one, otherwise its lease expires.
            LOG.warning('Could not release the node: %s', e,
                        instance=instance)

    def destroy(self, context: nova_context.RequestContext,
                instance: objects.Instance, network_info: Any,
                block_device_info: Any = None, destroy_disks: bool = True,
                destroy_secrets: bool = True) -> None:
        def tear_down(instance: objects.Instance,
                      node: sdk_node.Node | None = None) -> None:
            with self._bind(instance, node=node) as parent:
                parent.destroy(context, instance, network_info,
                               block_device_info, destroy_disks,
                               destroy_secrets)

        if not self.ownership.is_ours(instance) and not self.mode.decision:
            return tear_down(instance)
        self.builds.end(instance)
        try:
            try:
                self._destroy(instance, tear_down)
            except (fence.Refused, sdk_exc.BadRequestException) as e:
                # If a response was lost and the request repeated, the node
                # is already torn down. Otherwise another host may have it.
                LOG.info('Retrying the tear-down of the node: %s', e,
                         instance=instance)
                self._destroy(instance, tear_down)
        except (client.Failure, fence.Refused, ksa_exc.ClientException,
                sdk_exc.SDKException) as e:
            LOG.error('Could not release the node: %s', e, instance=instance)
            # After any other error Nova would free the ports, but the node
            # still has them, and another host may have the node by now.
            raise exception.InstancePowerOffFailure(
                reason='its node may not have been released')

    def _destroy(self, instance: objects.Instance,
                 tear_down: Callable[..., None]) -> None:
        """Tear down the node that is held for an instance, and release it.

        :param tear_down: its parameters are the view of the instance, and the
            node if it is known.
        """
        reservation = self.reservations.get(instance.uuid)
        if not self.ownership.may_destroy(
                instance, reservation, not self._start.is_set()):
            return
        view = self.ownership.view(instance, reservation)
        if reservation is None:
            tear_down(view)
        elif reservation['state'] != 'releasing':
            tear_down(view, sdk_node.Node(
                id=reservation['node_uuid'],
                provision_state=reservation['provision_state']))
        if view is instance:
            # It was built when the host had a row per node.
            self.row.left_behind.discard(instance.uuid)
            return
        if reservation and reservation['state'] != 'reserved':
            self.report.note_release(reservation)
        # The tear-down of an earlier attempt may still be in progress. Wait as
        # long as the parent waits for its own.
        self.reservations.release(
            instance.uuid, self.host,
            CONF.ironic.api_max_retries * CONF.ironic.api_retry_interval)

    def _unprovision(self, instance: objects.Instance, node: Any) -> None:
        """Tear down a node if this host holds it.

        A node without a reservation carries an instance only after a database
        was restored or edited manually. Nova must not delete an instance that
        runs there.

        :raises: NovaException.
        """
        if isinstance(instance, ownership.Unheld):
            LOG.error('Node %s carries this instance, but is not reserved: '
                      'undeploy it.', node.id, instance=instance)
            raise exception.NovaException(
                f'The node of instance {instance.uuid} is not reserved.')
        super()._unprovision(instance, node)

    def _cleanup_deploy(self, node: Any, instance: objects.Instance,
                        network_info: Any = None) -> None:
        """Clean up a node as the parent does, but keep its instance_uuid.

        The parent clears that too, which would free the node without its
        reservation. Here the DELETE of the reservation does both.
        """
        if isinstance(instance, ownership.Unheld):
            return
        if not isinstance(instance, ownership.OnNode):
            return super()._cleanup_deploy(node, instance, network_info)
        self._cleanup_volume_target_info(instance)
        # Detach all VIFs of the node, not only those in Nova's database,
        # because nova-compute may have been killed between attaching and
        # storing one.
        for vif in self.ironic_connection.list_node_vifs(node.id):
            self.ironic_connection.detach_vif_from_node(node.id, vif)
        # A node with instance_info keeps its reservation even after the lease
        # has expired, so until this call no other instance can get it.
        node = self.ironic_connection.get_node(
            node.id, fields=('uuid', 'instance_uuid', 'instance_info'))
        if node.instance_id == instance.uuid and node.instance_info:
            self.ironic_connection.update_node(node, instance_info={})

    # In these methods the parent finds the node by the instance's UUID or by
    # instance.node, and changes it or returns its console. This host must hold
    # the node, and _bind_on_node checks that: Nova's request may have been
    # queued before the instance moved to another host.

    def reboot(self, context: nova_context.RequestContext,
               instance: objects.Instance, network_info: Any,
               reboot_type: str, block_device_info: Any = None,
               bad_volumes_callback: Any = None, accel_info: Any = None,
               share_info: Any = None) -> None:
        with self._bind_on_node(instance) as (parent, instance):
            parent.reboot(context, instance, network_info, reboot_type,
                          block_device_info, bad_volumes_callback, accel_info,
                          share_info)

    def power_off(self, instance: objects.Instance, timeout: int = 0,
                  retry_interval: int = 0) -> None:
        with self._bind_on_node(instance) as (parent, instance):
            parent.power_off(instance, timeout, retry_interval)

    def power_on(self, context: nova_context.RequestContext,
                 instance: objects.Instance, network_info: Any,
                 block_device_info: Any = None, accel_info: Any = None,
                 share_info: Any = None) -> None:
        with self._bind_on_node(instance) as (parent, instance):
            parent.power_on(context, instance, network_info,
                            block_device_info, accel_info, share_info)

    def trigger_crash_dump(self, instance: objects.Instance) -> None:
        with self._bind_on_node(instance) as (parent, instance):
            parent.trigger_crash_dump(instance)

    def get_serial_console(self, context: nova_context.RequestContext,
                           instance: objects.Instance) -> Any:
        with self._bind_on_node(instance) as (parent, instance):
            return parent.get_serial_console(context, instance)

    def get_vnc_console(self, context: nova_context.RequestContext,
                        instance: objects.Instance) -> Any:
        with self._bind_on_node(instance) as (parent, on_node):
            console = parent.get_vnc_console(context, on_node)
        # Finally the parent reads the console's address by node, without the
        # fence, and another instance may have got the node in between.
        self.ownership.on_node(instance)
        return console

    def rescue(self, context: nova_context.RequestContext,
               instance: objects.Instance, network_info: Any,
               image_meta: objects.ImageMeta, rescue_password: Any,
               block_device_info: Any, share_info: Any) -> None:
        with self._bind_on_node(instance) as (parent, instance):
            parent.rescue(context, instance, network_info, image_meta,
                          rescue_password, block_device_info, share_info)

    def unrescue(self, context: nova_context.RequestContext,
                 instance: objects.Instance) -> None:
        with self._bind_on_node(instance) as (parent, instance):
            parent.unrescue(context, instance)

    def attach_interface(self, context: nova_context.RequestContext,
                         instance: objects.Instance,
                         image_meta: objects.ImageMeta, vif: Any) -> None:
        with self._bind_on_node(instance) as (parent, instance):
            parent.attach_interface(context, instance, image_meta, vif)

    def detach_interface(self, context: nova_context.RequestContext,
                         instance: objects.Instance, vif: Any) -> None:
        with self._bind_on_node(instance) as (parent, instance):
            parent.detach_interface(context, instance, vif)

    def unplug_vifs(self, instance: objects.Instance,
                    network_info: Any) -> None:
        """Detach the VIFs of an instance that is not built.

        This is the last call before Nova frees the ports.
        """
        if isinstance(instance, ownership.OnNode):
            # Called by the parent's detach_interface.
            return super().unplug_vifs(instance, network_info)
        if self.ownership.is_ours(instance):
            self.ownership.block_if_lost(instance, restart.is_complete)
        try:
            with self._bind_on_node(instance, building=True) as (
                    parent, instance):
                parent.unplug_vifs(instance, network_info)
        except exception.InstanceNotFound:
            pass  # Nova calls this also when no node could be held.

    def get_volume_connector(self, instance: objects.Instance) -> Any:
        if (instance.task_state == task_states.SPAWNING
                and instance.vm_state == vm_states.SHELVED_OFFLOADED
                and self.ownership.is_ours(instance)):
            # In an unshelve Nova connects the volumes before it calls any
            # other method, and does not notify the driver when that fails.
            # So forget the build: its lease is not renewed until spawn, and
            # expires if Nova never calls that.
            self._hold(instance)
            self.builds.end(instance)
        return super().get_volume_connector(self.ownership.on_node(instance))

    def rebuild(self, context: nova_context.RequestContext,
                instance: objects.Instance, image_meta: objects.ImageMeta,
                injected_files: Any, admin_password: Any, allocations: Any,
                bdms: Any, detach_block_devices: Any,
                attach_block_devices: Any, network_info: Any = None,
                evacuate: bool = False, block_device_info: Any = None,
                preserve_ephemeral: bool = False, accel_uuids: Any = None,
                reimage_boot_volume: bool = False) -> None:
        if evacuate and self.mode.decision is not False:
            raise exception.InstanceFaultRollback(
                exception.ComputeResourcesUnavailable(reason=_EVACUATION))
        if reimage_boot_volume:
            # Since API version 2.93 Nova sets it for every instance, but the
            # parent refuses a rebuild with it:
            # https://opendev.org/openstack/nova/src/branch/master/nova/api/openstack/compute/servers.py
            reimage_boot_volume = compute_utils.is_volume_backed_instance(
                context, instance, bdms)
        try:
            instance = self.ownership.on_node(instance, building=True)
        except exception.NovaException as e:
            raise exception.InstanceFaultRollback(e)
        is_held = isinstance(instance, ownership.OnNode)
        if is_held:
            wanted.check_traits(self._get_node(instance.node).traits,
                                image_meta)
            # The parent saves this together with the task state, right before
            # the request to Ironic.
            instance.system_metadata[endings.REBUILT_FROM] = str(
                restart.get_node_facts(
                    self.ironic_connection, instance.node)[
                        'provision_updated_at'])
        try:
            with self._bind(instance, building=True) as parent:
                parent.rebuild(
                    context, instance, image_meta, injected_files,
                    admin_password, allocations, bdms, detach_block_devices,
                    attach_block_devices, network_info, evacuate,
                    block_device_info, preserve_ephemeral, accel_uuids,
                    reimage_boot_volume)
        except exception.InstanceNotFound:
            raise builds.make_lost_node_error(instance)
        finally:
            if is_held:
                self.ownership.block_if_lost(instance, restart.is_complete)
                # Nova saves the instance next, after success and failure.
                instance.system_metadata.pop(endings.REBUILT_FROM, None)
