# SPDX-License-Identifier: Apache-2.0
"""One row per compute host, on top of Nova's Ironic driver.

On such a row ``instance.node`` is the name of the host. Those methods of the
parent that expect the UUID of the Ironic node there are given a view of the
instance that has it (ownership.OnNode). The parent's other methods find the
node by the instance's UUID. Instances on a row per node have the UUID of
their Ironic node in ``instance.node``, and the parent's methods serve them.
"""

import contextlib
import copy
import threading

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
from oslo_log import log as logging
import tenacity

from . import adoption
from . import builds
from . import client
from . import conf
from . import endings
from . import fence
from . import lease
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

#: Seconds between two tries to reach Ironic when nova-compute starts.
START_PAUSE = 5

#: Seconds between two rounds of the driver's own thread.
INTERVAL = 5

#: The tasks of instances that a user has asked for, and no host has begun.
ASKED = (task_states.REBOOTING, task_states.REBOOTING_HARD,
         task_states.REBUILDING)

#: The requests for these tasks come out of the host's queue within so many
#: seconds after a start. A request that has not come by then was lost, for
#: example with a message bus that died.
ASKED_FOR = 300

_EVACUATION = (
    'a bare metal server is its machine, and cannot be evacuated to another; '
    'to have another compute host manage it, use "openstack baremetal '
    'reservation move"')


class ReservationsDriver(ironic_driver.IronicDriver):
    """A driver that asks Ironic for a node when it builds an instance."""

    def __init__(self, virtapi, read_only=False):
        super().__init__(virtapi, read_only)
        self.host = None
        self.reservations = client.Client(lambda: self.ironic_connection)
        self.fence = fence.Fence(self.reservations)
        # For whom this object writes to Ironic: for nobody, but see _bound.
        self._binding = None
        self.builds = self.mode = self.ownership = self.report = None
        self.adoption = self.takeover = self.unfinished = self.lease = None
        self.stopping = self.row = None
        self.worker = reconciler.Worker(self._work)
        # Set once Nova has initialized the instances that it found when it
        # started.
        self._started = threading.Event()
        self.power_states = power.PowerStates(self._read_power_states)

    # Start

    def init_host(self, host):
        # Not CONF.host, because tests run several hosts in one process.
        self.host = self.fence.host = host
        if CONF.reservations.standby:
            self.lease = lease.Lease(host, self.reservations)
        self.stopping = stopping.Stopping(
            host, self.reservations, self.virtapi._compute, self.lease)
        if self.lease is not None:
            self.lease.win()
            self.fence.lease = self.lease
        self.builds = builds.Builds(self.reservations, host)
        self.mode = mode.Mode(host, self.reservations)
        self.ownership = ownership.Ownership(host, self.reservations,
                                             self.mode, self.fence)
        self.report = report.Report(host, self.reservations)
        # The resource tracker is reachable in this way only.
        tracker = self.virtapi._compute.rt
        self.row = mode.OneRow(
            host, self.reservations, self.builds, self.report,
            self.power_states, self._started)
        if CONF.reservations.mode != 'per_node':
            self.row.adapt_tracker(tracker)
        try:
            self._rows.init_host(host)
        except exception.VirtDriverNotReady:
            pass  # The error is logged, and the periodic task asks again.
        if CONF.reservations.adopt:
            self.adoption = adoption.Adoption(
                host, lambda: self.mode.known, self.report,
                self.reservations, tracker.reportclient, self._carriers)
        self.unfinished = restart.Unfinished(
            host, self.reservations, lambda: self.ironic_connection,
            self.virtapi._compute, self._wait_for_lease)
        self.takeover = takeover.Takeover(
            host, self.report, self.reservations, self.virtapi._compute,
            self._wait_for_lease, self.unfinished)
        self.stopping.watch()
        self.worker.start(host, INTERVAL)

    def _work(self):
        """Do one round of the driver's own work."""
        if not self._started.is_set():
            return
        self._wait_for_lease()
        if self.adoption:
            self.adoption.go_on()
        if self.mode.known:
            self.takeover.go_on()
            self.unfinished.go_on(self.row.allocations.read)
            self.row.restore_allocations()

    def _wait_for_lease(self):
        # If another process has been the host since, this one must not do
        # again what that one has done.
        if self.lease is not None:
            self.lease.wait()

    def cleanup_host(self, host):
        self.worker.stop()
        if self.unfinished is not None:
            self.unfinished.stop()
        try:
            super().cleanup_host(host)
            self.stopping.give_up_lease()
        finally:
            self.fence.cleaned_up.set()

    def _carriers(self):
        """Return the UUIDs of the nodes with a row, by their instances."""
        return {node.instance_id: node.id
                for node in list(self.node_cache.values())
                if node.instance_id}

    @property
    def _rows(self):
        """What answers for the rows of this host: for one row, or as Nova's.

        :raises: VirtDriverNotReady while it cannot be decided which.
        """
        return self.row if self.mode.one_row else super()

    def process_instances_at_startup(self, context, instances):
        """Wait for Ironic, and read the power states of all instances at once.

        Nova asks for each of them twice when it starts, one by one, and ends
        if Ironic does not answer. Before Nova 34 it does not call this.
        """
        # The requests for these tasks wait in the host's queue. Nova would
        # reset the tasks now, and then refuse the requests. Without a lease
        # it may ask for reboots again by itself.
        asked = ASKED if self.lease is not None else ()
        if self.mode.known:
            asked = asked or (task_states.REBUILDING,)
            instances = objects.InstanceList(
                context, objects=self.unfinished.keep_back(instances))
            self.unfinished.wait_for_queue(self.row.allocations.read() or ())
            if instances:
                self._wait_for_ironic(len(instances))
        if asked:
            self.takeover.end_later([
                each for each in instances if each.task_state in asked],
                ASKED_FOR)
            instances = objects.InstanceList(context, objects=[
                each for each in instances if each.task_state not in asked])
        return super().process_instances_at_startup(context, instances)

    def _wait_for_ironic(self, instances):
        """Read all power states, as soon as Ironic answers.

        :param instances: the number of this host's instances, for the log.
        """
        tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(
                (exception.VirtDriverNotReady, exception.ServiceUnavailable,
                 ksa_exc.ClientException, sdk_exc.SDKException)),
            wait=tenacity.wait_fixed(START_PAUSE),
            before_sleep=lambda _: LOG.warning(
                'Ironic does not answer, so nova-compute waits with the '
                '%d instances that it has.', instances),
        )(self.power_states.read)

    def _read_power_states(self):
        # Nodes that have left this part of the fleet are missing here.
        return {node.instance_id: hardware.InstanceInfo(
                    state=ironic_driver.map_power_state(node.power_state))
                for node in self._get_node_list(
                    associated=True, fields=('instance_uuid', 'power_state'),
                    **{name: value for name, value in
                       report.partition().items() if value is not None})}

    # For whom it writes to Ironic

    @property
    def ironic_connection(self):
        return self.fence.before(super().ironic_connection, self._binding)

    @contextlib.contextmanager
    def _bound(self, instance, building=False):
        """Yield the parent's methods, which write for an instance.

        They are those of a copy of this object, because they start threads,
        and write in them.

        :param instance: ownership.OnNode; for anything else there is no
            reservation.
        :param building: see fence.Held.
        :raises: fence.Refused when the host does not hold the node any more.
        """
        own, binding = copy.copy(self), fence.WITHOUT
        if (isinstance(instance, ownership.OnNode)
                and not isinstance(instance, ownership.Unheld)):
            binding = fence.Held(instance, instance.node, building)
        own._binding = binding
        self.power_states.forget(instance)
        try:
            yield super(ReservationsDriver, own)
        except Exception:
            if binding is not fence.WITHOUT and binding.refused:
                raise binding.refused
            raise
        finally:
            self.power_states.forget(instance)

    @contextlib.contextmanager
    def _on_node(self, instance, building=False):
        """Yield the same, and the view of the instance that they need.

        :raises: what Ownership.on_node does, too.
        """
        instance = self.ownership.on_node(instance, building)
        with self._bound(instance, building) as parent:
            yield parent, instance

    # What the host reports

    def get_available_nodes(self, refresh=False):
        if not self._started.is_set():
            self._started.set()
            self.power_states.forget_all()
        # Nova asks this of drivers at its start, to tear down what was
        # evacuated. Later it asks only before it has ``instance_exists``
        # called, which refuses an evacuation with a reason.
        self.capabilities = {**self.capabilities, 'supports_evacuate': True}
        return self._rows.get_available_nodes(refresh)

    def get_nodenames_by_uuid(self, refresh=False):
        return self._rows.get_nodenames_by_uuid(refresh)

    def _row_named(self, nodename):
        return self.row if nodename == self.host else super()

    def get_available_resource(self, nodename):
        return self._row_named(nodename).get_available_resource(nodename)

    def update_provider_tree(self, provider_tree, nodename, allocations=None):
        self._row_named(nodename).update_provider_tree(
            provider_tree, nodename, allocations)

    def node_is_available(self, nodename):
        return self._rows.node_is_available(nodename)

    def is_node_deleted(self, nodename):
        """Say whether Nova shall delete a row that is not reported any more.

        Nova deletes the row's provider and all of its allocations with it, so
        the answer is no as long as instances are on the row.
        """
        if objects.InstanceList.get_by_host_and_node(
                nova_context.get_admin_context(), self.host, nodename,
                expected_attrs=[]):
            return False
        if self.mode.one_row == (nodename == self.host):
            return self._rows.is_node_deleted(nodename)
        # An instance that is between two rows has its allocation here.
        row = mode.row(self.host, nodename)
        return row is None or placement.read(
            self.virtapi._compute.reportclient, row.uuid) == {}

    def get_host_ip_addr(self):
        return CONF.my_ip

    # What the host holds

    def list_instance_uuids(self):
        return self._rows.list_instance_uuids()

    def list_instances(self):
        return self._rows.list_instances()

    def get_num_instances(self):
        return self._rows.get_num_instances()

    def get_info(self, instance, use_cache=True):
        if self.mode.known is False and not self.ownership.is_ours(instance):
            return super().get_info(instance, use_cache)
        # Without its cache Nova asks before it stops a machine, and when it
        # starts. The parent's cache of nodes is kept fresh only on hosts with
        # a row per node.
        found = (self.power_states.get(instance)
                 if use_cache or not self._started.is_set() else None)
        return found or super().get_info(instance, use_cache=False)

    def instance_exists(self, instance):
        """Refuse an evacuation.

        Nova calls this on the host to which a server is to be evacuated,
        when it has changed nothing but the allocation there. After this
        exception it deletes the allocation, and leaves the server as it was.

        :raises: ComputeResourcesUnavailable.
        """
        if instance.host == self.host:
            return super().instance_exists(instance)
        if self.mode.known is False and instance.node != instance.host:
            # A host with a row per node refuses as Nova's own driver does.
            raise exception.InstanceEvacuateNotSupported()
        raise exception.ComputeResourcesUnavailable(reason=_EVACUATION)

    # From hold to release

    def prepare_for_spawn(self, instance):
        """Hold a node for the instance.

        Nova calls this first in a build. With a row per node the scheduler
        has chosen the node, and the parent prepares it.
        """
        if not self.ownership.is_ours(instance):
            with self._bound(instance) as parent:
                return parent.prepare_for_spawn(instance)
        self._hold(instance)

    def _hold(self, instance):
        self.builds.begin(
            instance, self.report.partition or report.partition())

    def prepare_networks_before_block_device_mapping(self, instance,
                                                     network_info):
        if self.ownership.is_ours(instance):
            # Neutron may need long to make the ports. Wait for it before the
            # lease is renewed, because the node is touched only after that.
            network_info.wait()
            instance = self._renew(instance)
        self._attach_networks(instance, network_info)

    def _renew(self, instance):
        """Renew the lease of an instance's node.

        :returns: the view of the instance that the parent's methods need.
        """
        return ownership.OnNode(instance, self.builds.renew(instance))

    def _attach_networks(self, instance, network_info):
        with self._bound(instance, building=True) as parent:
            parent.prepare_networks_before_block_device_mapping(
                instance, network_info)

    def spawn(self, context, instance, image_meta, injected_files,
              admin_password, allocations, network_info=None,
              block_device_info=None, power_on=True, accel_info=None):
        def deploy(instance):
            with self._bound(instance, building=True) as parent:
                parent.spawn(
                    context, instance, image_meta, injected_files,
                    admin_password, allocations, network_info,
                    block_device_info, power_on, accel_info)

        if not self.ownership.is_ours(instance):
            return deploy(instance)
        unshelved = instance.uuid not in self.builds
        try:
            if unshelved:
                # Nova spawns an instance that is unshelved without calling
                # the two methods that prepare it before.
                self._hold(instance)
                if network_info is not None:
                    network_info.wait()
                    self._attach_networks(self._renew(instance), network_info)
            deploy(self._renew(instance))
        except Exception as e:
            if unshelved:
                # Nova does not call failed_spawn_cleanup for it, either.
                try:
                    self.destroy(context, instance, network_info,
                                 block_device_info)
                except Exception:
                    LOG.exception('Cleaning up after a failed unshelving has '
                                  'failed', instance=instance)
            if isinstance(e, exception.InstanceUnacceptable):
                # In spawn Nova would try the next host after this
                # exception; BuildAbortException ends the build.
                raise exception.BuildAbortException(
                    instance_uuid=instance.uuid, reason=e.format_message())
            if isinstance(e, exception.InstanceNotFound):
                raise builds.lost_node(instance)
            raise
        finally:
            self.builds.end(instance)
            self.ownership.stay_if_anothers(instance, restart.is_ended)

    def failed_spawn_cleanup(self, instance):
        if not self.ownership.is_ours(instance):
            with self._bound(instance) as parent:
                return parent.failed_spawn_cleanup(instance)
        self.builds.end(instance)
        try:
            held = self.fence.stay_if_anothers(instance)
            if held:
                on_node = ownership.OnNode(instance, held['node_uuid'])
                with self._bound(on_node, building=True) as parent:
                    parent.failed_spawn_cleanup(on_node)
            self.reservations.release(instance.uuid, self.host)
        except (client.Failure, sdk_exc.SDKException, fence.Refused) as e:
            # It is only logged, because an exception would hide why the build
            # has failed. The node is not lost: the host that builds the
            # instance next is given the same one, else its lease ends.
            LOG.warning('The node is not released: %s', e, instance=instance)

    def destroy(self, context, instance, network_info,
                block_device_info=None, destroy_disks=True,
                destroy_secrets=True):
        def tear_down(instance):
            with self._bound(instance) as parent:
                parent.destroy(context, instance, network_info,
                               block_device_info, destroy_disks,
                               destroy_secrets)

        if not self.ownership.is_ours(instance) and not self.mode.known:
            return tear_down(instance)
        self.builds.end(instance)
        try:
            try:
                self._destroy(instance, tear_down)
            except (fence.Refused, sdk_exc.BadRequestException) as e:
                # The node is torn down already if an answer was lost, and the
                # same request sent again. Otherwise another host may have it.
                LOG.info('Looking again at what is left to do: %s', e,
                         instance=instance)
                self._destroy(instance, tear_down)
        except (client.Failure, fence.Refused, ksa_exc.ClientException,
                sdk_exc.SDKException) as e:
            LOG.error('The node is not released: %s', e, instance=instance)
            # After any other error Nova would free the ports, but the node
            # has them still, and may be another host's by now.
            raise exception.InstancePowerOffFailure(
                reason='whether its node is released is not known')

    def _destroy(self, instance, tear_down):
        """Tear down the node that is held for an instance, and release it.

        :param tear_down: function of the view of the instance.
        """
        held = self.reservations.get(instance.uuid)
        if not self.ownership.may_destroy(
                instance, held, not self._started.is_set()):
            return
        view = self.ownership.view(instance, held)
        if held is None or held['state'] != 'releasing':
            tear_down(view)
        if view is instance:
            # It was built when the host had a row per node.
            self.row.left_behind.discard(instance.uuid)
            return
        if held and held['state'] != 'reserved':
            self.report.note_release(held)
        # A tear-down that an earlier attempt has begun may still go on; it is
        # waited for as long as the parent waits for its own.
        self.reservations.release(
            instance.uuid, self.host,
            CONF.ironic.api_max_retries * CONF.ironic.api_retry_interval)

    def _unprovision(self, instance, node):
        """Tear a node down, unless this host does not hold it.

        A node that nobody holds carries an instance only after a database was
        restored or edited by hand. Nova must not forget an instance that runs
        there.

        :raises: NovaException.
        """
        if isinstance(instance, ownership.Unheld):
            LOG.error('Node %s carries this instance, but is not reserved: '
                      'undeploy it.', node.id, instance=instance)
            raise exception.NovaException(
                f'The node of instance {instance.uuid} is not reserved.')
        super()._unprovision(instance, node)

    def _cleanup_deploy(self, node, instance, network_info=None):
        """Clean up a node as the parent does, but leave its instance_uuid.

        The parent clears that too, which would free the node without its
        reservation. Here the DELETE of the reservation does both.
        """
        if isinstance(instance, ownership.Unheld):
            return
        if not isinstance(instance, ownership.OnNode):
            return super()._cleanup_deploy(node, instance, network_info)
        self._cleanup_volume_target_info(instance)
        # All VIFs of the node are detached, not only those that Nova knows,
        # because nova-compute may have been killed between attaching one and
        # storing that.
        for vif in self.ironic_connection.list_node_vifs(node.id):
            self.ironic_connection.detach_vif_from_node(node.id, vif)
        # A node that has instance_info keeps its reservation even after its
        # lease, so until this call no other instance can have it.
        node = self.ironic_connection.get_node(
            node.id, fields=('uuid', 'instance_uuid', 'instance_info'))
        if node.instance_id == instance.uuid and node.instance_info:
            self.ironic_connection.update_node(node, instance_info={})

    # In these methods the parent finds the node by the instance's UUID, or by
    # instance.node, and changes it, or shows its console. This host must hold
    # the node, and _on_node checks that: Nova's request may have been queued
    # before the instance went to another host.

    def reboot(self, context, instance, network_info, reboot_type,
               block_device_info=None, bad_volumes_callback=None,
               accel_info=None, share_info=None):
        with self._on_node(instance) as (parent, instance):
            parent.reboot(context, instance, network_info, reboot_type,
                          block_device_info, bad_volumes_callback, accel_info,
                          share_info)

    def power_off(self, instance, timeout=0, retry_interval=0):
        with self._on_node(instance) as (parent, instance):
            parent.power_off(instance, timeout, retry_interval)

    def power_on(self, context, instance, network_info,
                 block_device_info=None, accel_info=None, share_info=None):
        with self._on_node(instance) as (parent, instance):
            parent.power_on(context, instance, network_info,
                            block_device_info, accel_info, share_info)

    def trigger_crash_dump(self, instance):
        with self._on_node(instance) as (parent, instance):
            parent.trigger_crash_dump(instance)

    def get_serial_console(self, context, instance):
        with self._on_node(instance) as (parent, instance):
            return parent.get_serial_console(context, instance)

    def get_vnc_console(self, context, instance):
        with self._on_node(instance) as (parent, on_node):
            console = parent.get_vnc_console(context, on_node)
        # The parent reads last where it is, by the node, and anybody may read
        # that. The node may have been given to another meanwhile.
        self.ownership.on_node(instance)
        return console

    def rescue(self, context, instance, network_info, image_meta,
               rescue_password, block_device_info, share_info):
        with self._on_node(instance) as (parent, instance):
            parent.rescue(context, instance, network_info, image_meta,
                          rescue_password, block_device_info, share_info)

    def unrescue(self, context, instance):
        with self._on_node(instance) as (parent, instance):
            parent.unrescue(context, instance)

    def attach_interface(self, context, instance, image_meta, vif):
        with self._on_node(instance) as (parent, instance):
            parent.attach_interface(context, instance, image_meta, vif)

    def detach_interface(self, context, instance, vif):
        with self._on_node(instance) as (parent, instance):
            parent.detach_interface(context, instance, vif)

    def unplug_vifs(self, instance, network_info):
        """Detach the VIFs of an instance that is not built.

        It is the last call before Nova frees the ports.
        """
        if isinstance(instance, ownership.OnNode):
            # The parent's detach_interface calls it.
            return super().unplug_vifs(instance, network_info)
        if self.ownership.is_ours(instance):
            self.ownership.stay_if_anothers(instance, restart.is_ended)
        try:
            with self._on_node(instance, building=True) as (parent, instance):
                parent.unplug_vifs(instance, network_info)
        except exception.InstanceNotFound:
            pass  # Nova calls this also when no node could be held.

    def get_volume_connector(self, instance):
        if (instance.task_state == task_states.SPAWNING
                and instance.vm_state == vm_states.SHELVED_OFFLOADED
                and self.ownership.is_ours(instance)):
            # When an instance is unshelved, Nova connects its volumes before
            # it calls any other method. It does not tell the driver when
            # that fails, so the build is not kept: its lease is not renewed
            # until spawn, and ends if that never comes.
            self._hold(instance)
            self.builds.end(instance)
        return super().get_volume_connector(self.ownership.on_node(instance))

    def rebuild(self, context, instance, image_meta, injected_files,
                admin_password, allocations, bdms, detach_block_devices,
                attach_block_devices, network_info=None,
                evacuate=False, block_device_info=None,
                preserve_ephemeral=False, accel_uuids=None,
                reimage_boot_volume=False):
        if evacuate and self.mode.known is not False:
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
        held = isinstance(instance, ownership.OnNode)
        if held:
            wanted.check_traits(self._get_node(instance.node).traits,
                                image_meta)
            # The parent saves it together with the task state that says that
            # Ironic is about to be asked.
            instance.system_metadata[endings.REBUILT_FROM] = str(
                restart.facts(self.ironic_connection, instance.node)[
                    'provision_updated_at'])
        try:
            with self._bound(instance, building=True) as parent:
                parent.rebuild(
                    context, instance, image_meta, injected_files,
                    admin_password, allocations, bdms, detach_block_devices,
                    attach_block_devices, network_info, evacuate,
                    block_device_info, preserve_ephemeral, accel_uuids,
                    reimage_boot_volume)
        except exception.InstanceNotFound:
            raise builds.lost_node(instance)
        finally:
            if held:
                self.ownership.stay_if_anothers(instance, restart.is_ended)
                # Nova saves the instance next, whatever has become of it.
                instance.system_metadata.pop(endings.REBUILT_FROM, None)
