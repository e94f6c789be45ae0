# SPDX-License-Identifier: Apache-2.0
"""Implements the driver's methods for instances on reserved nodes.

In one-row mode ``instance.node`` is the name of the host. Methods of the
parent that expect the UUID of the Ironic node there get a view of the instance
that has it (ownership.OnNode). Other methods find the node by the instance's
UUID.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import threading
from typing import Any

from keystoneauth1 import exceptions as ksa_exc
from nova import context as nova_context
from nova import exception
from nova import objects
from nova.compute import task_states
from nova.compute import vm_states
from nova.virt import hardware
from openstack import exceptions as sdk_exc
from openstack.baremetal.v1 import node as sdk_node
from oslo_log import log as logging

from . import builds
from . import client
from . import conf
from . import endings
from . import fence
from . import node_faults
from . import ownership
from . import power
from . import report
from . import restart
from . import wanted

CONF = conf.CONF
LOG = logging.getLogger(__name__)

#: Why an instance cannot be evacuated.
EVACUATION = (
    'a bare metal server cannot leave its machine; to have another compute '
    'host manage it, use "openstack baremetal reservation move"')

#: The states of a reservation in which a build is not released, but its node
#: is torn down.
_DEPLOYMENT = 'deploying', 'active', 'error'

#: The errors of requests to Ironic.
_FAILURES = (client.Failure, fence.Refused, ksa_exc.ClientException,
             sdk_exc.SDKException)


@dataclasses.dataclass(frozen=True)
class Reserved:
    """Implements methods of the driver for instances of one compute node.

    Methods whose names Nova's driver has take the same parameters.

    :param parent: the parent's methods, which write nothing to Ironic.
    :param bind: returns the parent's methods, which write to Ironic for an
        instance: ReservationsMixin._bind.
    :param start: set once Nova has initialized the instances that it found
        when it started.
    """

    parent: Any
    bind: Callable[..., contextlib.AbstractContextManager[Any]]
    reservations: client.Client
    fence: fence.Fence
    builds: builds.Builds
    ownership: ownership.Ownership
    report: report.Report
    power_states: power.PowerStates
    start: threading.Event

    @contextlib.contextmanager
    def _bind_on_node(
            self, instance: objects.Instance, building: bool = False,
            ) -> Iterator[tuple[Any, objects.Instance]]:
        """Yield the parent's methods, and the view that they need.

        This host must hold the node of the instance: Nova's request may have
        been queued before the instance moved to another host.

        :raises: also the errors of Ownership.on_node.
        """
        view = self.ownership.on_node(instance, building)
        with self.bind(view, building) as parent:
            yield parent, view

    def get_info(self, instance: objects.Instance,
                 use_cache: bool) -> hardware.InstanceInfo:
        # Nova sets use_cache to False before it stops a machine, and at its
        # start. The parent's cache of nodes is refreshed only on hosts with a
        # compute node per node.
        info = (self.power_states.get(instance)
                if use_cache or not self.start.is_set() else None)
        return info or self.parent.get_info(instance, use_cache=False)

    # From hold to release

    def prepare_for_spawn(self, instance: objects.Instance) -> None:
        """Hold a node for the instance; Nova calls this first in a build."""
        try:
            self.builds.begin(
                instance, self.report.partition or report.get_partition(),
                lambda: self._clean_and_release(instance))
        except _FAILURES as e:
            LOG.warning('Could not release the node of an earlier build: %s',
                        e, instance=instance)
            raise exception.ComputeResourcesUnavailable(
                reason='the node of an earlier build could not be released')

    def _renew(self, instance: objects.Instance) -> objects.Instance:
        """Renew the lease of an instance's node.

        :returns: the view of the instance that the parent's methods need.
        """
        return ownership.OnNode(instance, self.builds.renew(instance))

    def prepare_networks_before_block_device_mapping(
            self, instance: objects.Instance, network_info: Any) -> None:
        # Neutron may take long to create the ports. Wait for it before
        # renewing the lease, because the node is changed only after that.
        network_info.wait()
        view, attempt = self._renew(instance), node_faults.Attempt()
        try:
            with self.bind(view, building=True, attempt=attempt) as parent:
                # The parent would read the node first, only for its UUID.
                parent._plug_vifs(
                    sdk_node.Node(id=view.node), view, network_info)
        except Exception:
            self.builds.end_attempt(view, attempt)
            if attempt.fault is not None:
                # After any other exception Nova would not try another host.
                raise exception.ComputeResourcesUnavailable(
                    reason=attempt.fault)
            raise

    def spawn(self, context: nova_context.RequestContext,
              instance: objects.Instance, image_meta: objects.ImageMeta,
              injected_files: Any, admin_password: Any, allocations: Any,
              network_info: Any, block_device_info: Any, *args: Any) -> None:
        is_unshelve = instance.uuid not in self.builds
        view, attempt = instance, node_faults.Attempt()
        try:
            if is_unshelve:
                # In an unshelve Nova does not call the two methods above.
                self.prepare_for_spawn(instance)
                if network_info is not None:
                    self.prepare_networks_before_block_device_mapping(
                        instance, network_info)
            view = ownership.Spawning(instance, self._renew(instance).node)
            with self.bind(view, building=True, attempt=attempt) as parent:
                parent.spawn(context, view, image_meta, injected_files,
                             admin_password, allocations, network_info,
                             block_device_info, *args)
            node_faults.forget(instance)
        except Exception as e:
            # After this exception Nova does not try another host: it refuses
            # the image.
            if not isinstance(e, exception.BuildAbortException):
                self.builds.end_attempt(view, attempt)
            if is_unshelve:
                self._destroy_unshelved(
                    context, instance, network_info, block_device_info)
            else:
                # Nova calls destroy only if it can reach Neutron.
                self.failed_spawn_cleanup(instance)
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

    def _destroy_unshelved(self, context: nova_context.RequestContext,
                           instance: objects.Instance, *args: Any) -> None:
        """Clean up after a failed unshelve; Nova does not call destroy."""
        try:
            self.destroy(context, instance, *args)
        except Exception:
            LOG.exception('Could not clean up after a failed unshelve',
                          instance=instance)

    def failed_spawn_cleanup(self, instance: objects.Instance) -> None:
        self.builds.end(instance)
        try:
            self._clean_and_release(instance)
        except _FAILURES as e:
            # An exception would hide why the build has failed. The node is
            # not lost: the next host that builds the instance gets the same
            # one, otherwise its lease expires. If anything was left on it, it
            # stays held until the server is deleted, or an audit repairs it.
            LOG.warning('Could not release the node: %s', e,
                        instance=instance)

    def _clean_and_release(self, instance: objects.Instance) -> None:
        """Release the node of a build, unless its deployment has begun.

        A node that is free must carry nothing of the instance, because no
        other instance would get it.
        """
        @self.reservations.retry_conflicts()
        def attempt() -> None:
            reservation = self.fence.block_if_lost(instance)
            if reservation:
                if reservation['state'] in _DEPLOYMENT:
                    return
                view = ownership.OnNode(instance, reservation['node_uuid'])
                with self.bind(view, building=True) as parent:
                    parent.failed_spawn_cleanup(view)
            self.reservations.release(instance.uuid, self.fence.host)

        attempt()

    def destroy(self, context: nova_context.RequestContext,
                instance: objects.Instance, *args: Any) -> None:
        def tear_down(view: objects.Instance,
                      node: sdk_node.Node | None = None) -> None:
            with self.bind(view, node=node) as parent:
                parent.destroy(context, view, *args)

        # The tear-down of an earlier attempt may still be in progress. Wait as
        # long as the parent waits for its own.
        @self.reservations.retry_conflicts(
            CONF.ironic.api_max_retries * CONF.ironic.api_retry_interval)
        def attempt() -> None:
            self._destroy(instance, tear_down)

        self.builds.end(instance)
        try:
            try:
                attempt()
            except (fence.Refused, sdk_exc.BadRequestException) as e:
                # If a response was lost and the request repeated, the node
                # is already torn down. Otherwise another host may have it.
                LOG.info('Retrying the tear-down of the node: %s', e,
                         instance=instance)
                attempt()
        except _FAILURES as e:
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
        :raises: client.Conflict when the node is locked, or is being torn
            down.
        """
        reservation = self.reservations.get(instance.uuid)
        if not self.ownership.may_destroy(
                instance, reservation, not self.start.is_set()):
            return
        view = self.ownership.view(instance, reservation)
        if reservation is None:
            tear_down(view)
        elif reservation['state'] != 'releasing':
            tear_down(view, sdk_node.Node(
                id=reservation['node_uuid'],
                provision_state=reservation['provision_state']))
        if view is instance:
            return  # It is still on the per-node compute node.
        if reservation and reservation['state'] != 'reserved':
            self.report.note_release(reservation)
        self.reservations.release(instance.uuid, self.fence.host)

    # Methods of the parent that change the node, or return its console

    def reboot(self, context: nova_context.RequestContext,
               instance: objects.Instance, *args: Any) -> None:
        with self._bind_on_node(instance) as (parent, view):
            parent.reboot(context, view, *args)

    def power_off(self, instance: objects.Instance, *args: Any) -> None:
        with self._bind_on_node(instance) as (parent, view):
            parent.power_off(view, *args)

    def power_on(self, context: nova_context.RequestContext,
                 instance: objects.Instance, *args: Any) -> None:
        with self._bind_on_node(instance) as (parent, view):
            parent.power_on(context, view, *args)

    def trigger_crash_dump(self, instance: objects.Instance) -> None:
        with self._bind_on_node(instance) as (parent, view):
            parent.trigger_crash_dump(view)

    def get_serial_console(self, context: nova_context.RequestContext,
                           instance: objects.Instance) -> Any:
        with self._bind_on_node(instance) as (parent, view):
            return parent.get_serial_console(context, view)

    def get_vnc_console(self, context: nova_context.RequestContext,
                        instance: objects.Instance) -> Any:
        with self._bind_on_node(instance) as (parent, view):
            console = parent.get_vnc_console(context, view)
        # Finally the parent reads the console's address by node, without the
        # fence, and another instance may have got the node in between.
        self.ownership.on_node(instance)
        return console

    def rescue(self, context: nova_context.RequestContext,
               instance: objects.Instance, *args: Any) -> None:
        with self._bind_on_node(instance) as (parent, view):
            parent.rescue(context, view, *args)

    def unrescue(self, context: nova_context.RequestContext,
                 instance: objects.Instance) -> None:
        with self._bind_on_node(instance) as (parent, view):
            parent.unrescue(context, view)

    def attach_interface(self, context: nova_context.RequestContext,
                         instance: objects.Instance, *args: Any) -> None:
        with self._bind_on_node(instance) as (parent, view):
            parent.attach_interface(context, view, *args)

    def detach_interface(self, context: nova_context.RequestContext,
                         instance: objects.Instance, vif: Any) -> None:
        with self._bind_on_node(instance) as (parent, view):
            parent.detach_interface(context, view, vif)

    def unplug_vifs(self, instance: objects.Instance,
                    network_info: Any) -> None:
        """Detach the VIFs of an instance that is not built.

        This is the last call before Nova frees the ports.
        """
        if self.ownership.is_ours(instance):
            self.ownership.block_if_lost(instance, restart.is_complete)
        try:
            with self._bind_on_node(instance, building=True) as (
                    parent, view):
                parent.unplug_vifs(view, network_info)
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
            self.prepare_for_spawn(instance)
            self.builds.end(instance)
        return self.parent.get_volume_connector(
            self.ownership.on_node(instance))

    def rebuild(self, context: nova_context.RequestContext,
                instance: objects.Instance, image_meta: objects.ImageMeta,
                *args: Any, evacuate: bool, **kwargs: Any) -> None:
        if evacuate:
            raise exception.InstanceFaultRollback(
                exception.ComputeResourcesUnavailable(reason=EVACUATION))
        try:
            view = self.ownership.on_node(instance, building=True)
        except exception.NovaException as e:
            raise exception.InstanceFaultRollback(e)
        is_held = isinstance(view, ownership.OnNode)
        if is_held:
            wanted.check_traits(self.parent._get_node(view.node).traits,
                                image_meta)
            # The parent saves this together with the task state, right before
            # the request to Ironic.
            view.system_metadata[endings.REBUILT_FROM] = str(
                restart.get_node_facts(
                    self.parent.ironic_connection, view.node)[
                        'provision_updated_at'])
        try:
            with self.bind(view, building=True) as parent:
                parent.rebuild(context, view, image_meta, *args, **kwargs)
        except exception.InstanceNotFound:
            raise builds.make_lost_node_error(view)
        finally:
            if is_held:
                self.ownership.block_if_lost(view, restart.is_complete)
                # Nova saves the instance next, after success and failure.
                view.system_metadata.pop(endings.REBUILT_FROM, None)
