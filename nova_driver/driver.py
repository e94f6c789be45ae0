# SPDX-License-Identifier: Apache-2.0
"""One row per compute host, on top of Nova's Ironic driver.

``instance.node`` is the host. The parent's methods that want the Ironic node
there are given a view of the instance that has it; those that look it up by
the instance's UUID are left alone. Instances that are on a row per node have
their Ironic node in ``instance.node``, and everything is the parent's.
"""

import collections
import contextlib
import threading
import time

from keystoneauth1 import exceptions as ksa_exc
from nova import context as nova_context
from nova import exception
from nova import objects
from nova.compute import task_states
from nova.compute import utils as compute_utils
from nova.compute import vm_states
from nova.scheduler.client import report
from nova.virt import node as virt_node
from nova.virt.ironic import driver as ironic_driver
from openstack import exceptions as sdk_exc
from oslo_log import log as logging
import wrapt

from . import builds
from . import client
from . import fleet
from .conf import CONF

LOG = logging.getLogger(__name__)


class OnNode(wrapt.ObjectProxy):
    """An instance as the parent knows it: its node is the Ironic node."""

    def __init__(self, instance, node_uuid):
        super().__init__(instance)
        self._self_node = node_uuid

    @property
    def node(self):
        return self._self_node

    def get(self, key, *default):
        return (self.node if key == 'node'
                else self.__wrapped__.get(key, *default))


def _partition():
    """The part of the fleet that is this host's; None stands for any."""
    return {'conductor_group': CONF.ironic.conductor_group,
            'shard': CONF.ironic.shard or None}


class ReservationsDriver(ironic_driver.IronicDriver):
    """Asks Ironic for a node when it builds an instance."""

    # There is nothing to move between hosts.
    rebalances_nodes = False

    def __init__(self, virtapi, read_only=False):
        super().__init__(virtapi, read_only)
        self.host = None
        self.reservations = client.Client(lambda: self.ironic_connection)
        self.builds = None
        self._one_row = None
        self._deciding = threading.Lock()
        self._partition = None
        self._fleet = None
        # What this host has let go: when, and amounts by resource class.
        self._released = collections.deque()
        # Resource classes of the provider that no node has any more: those
        # to look into, and those that no allocation is of.
        self._vanished, self._unused = set(), set()

    # One row, or a row per node

    def init_host(self, host):
        # CONF.host would do, were there one host per process always.
        self.host = host
        self.builds = builds.Builds(self.reservations, host)
        self._partition = _partition()
        if CONF.reservations.mode != 'per_node':
            self._compute_id = virt_node.get_local_node_uuid()
            self._check_identity()
        try:
            if not self.one_row:
                super().init_host(host)
        except exception.VirtDriverNotReady:
            pass  # Logged; asked again when it matters.

    def _check_identity(self):
        """Refuse to be another host than the one that the database knows.

        Nova does so itself, but not for drivers of Ironic.
        """
        ctxt = nova_context.get_admin_context()
        try:
            row = objects.ComputeNode.get_by_uuid(ctxt, self._compute_id)
        except exception.ComputeHostNotFound:
            row = None
        if row and row.host != self.host:
            raise exception.InvalidConfiguration(
                f'compute_id {self._compute_id} is of host {row.host}, but '
                f'this host is {self.host}: either [DEFAULT] host has '
                f'changed, or the file is another host\'s.')
        for row in self._rows():
            if (row.hypervisor_hostname == self.host
                    and row.uuid != self._compute_id):
                raise exception.InvalidConfiguration(
                    f'Host {self.host} has the compute_id {row.uuid} in the '
                    f'database, but {self._compute_id} here: restore the '
                    f'file compute_id.')

    def _rows(self):
        try:
            return objects.ComputeNodeList.get_all_by_host(
                nova_context.get_admin_context(), self.host)
        except exception.NotFound:
            return []

    @property
    def one_row(self):
        """Whether this host is one row; once that is known, for good.

        :raises: VirtDriverNotReady while it cannot be known.
        """
        if self._one_row is None:
            with self._deciding:
                if self._one_row is None:
                    self._one_row = self._decide()
        return self._one_row

    def _decide(self):
        ctxt = nova_context.get_admin_context()
        used = {row.hypervisor_hostname for row in self._rows()} | {
            instance.node for instance in objects.InstanceList.get_by_host(
                ctxt, self.host, expected_attrs=[]) if instance.node}
        per_node = used - {self.host}
        mode = CONF.reservations.mode
        if mode == 'auto' and self.host in used or mode == 'reservations':
            if per_node:
                LOG.warning(
                    'Host %s is one row, but has rows or instances of %d '
                    'nodes: delete these instances.', self.host,
                    len(per_node))
            return True
        if mode == 'auto' and per_node:
            LOG.warning(
                'Host %s has rows or instances of %d nodes and stays with a '
                'row per node, which is deprecated. To make it one row: '
                'delete its instances, stop nova-compute, delete its compute '
                'service ("openstack compute service delete"), and start '
                'nova-compute again.', self.host, len(per_node))
            return False
        if mode == 'auto' and self._endpoint_is_present():
            LOG.info('Ironic reserves nodes: host %s is one row', self.host)
            return True
        LOG.warning(
            'Host %s has a row per node, which is deprecated%s. To make it '
            'one row, install ironic-reservations on the hosts of Ironic\'s '
            'API, add "reservations" to [api] middleware in ironic.conf, '
            'leave [reservations] mode in nova.conf at its default, and '
            'delete this compute service while nova-compute is stopped. '
            'peer_list cannot be changed without a restart any more.',
            self.host, '' if mode == 'per_node' else
            ', as this Ironic has no /v1/reservations')
        if self.host in used:
            LOG.warning('Host %s was one row; nothing can be built on that '
                        'row, and it goes when its instances are gone.',
                        self.host)
        return False

    def _endpoint_is_present(self):
        try:
            return self.reservations.is_present()
        except client.Failure as e:
            LOG.error('Whether Ironic has /v1/reservations is not known: %s',
                      e)
            raise exception.VirtDriverNotReady()

    def _is_ours(self, instance):
        """Whether the instance is on the one row: its node is reserved."""
        return instance.node == self.host or (
            not instance.node and self.one_row)

    def _held(self, instance):
        """The reservation of an instance, if this host holds it."""
        held = self.reservations.get(instance.uuid)
        if held and held['host'] != self.host:
            LOG.warning('Host %s holds node %s for this instance; it is left '
                        'alone.', held['host'], held['node_uuid'],
                        instance=instance)
            return None
        return held

    def _on_node(self, instance):
        """The instance as the parent's methods want it.

        :raises: InstanceNotFound when this host holds no node for it.
        """
        if isinstance(instance, OnNode) or not self._is_ours(instance):
            return instance
        try:
            held = self._held(instance)
        except client.Failure as e:
            LOG.error('The node is not known: %s', e, instance=instance)
            raise exception.NovaException(
                f'The node of instance {instance.uuid} is not known now.')
        if held is None:
            raise exception.InstanceNotFound(instance_id=instance.uuid)
        return OnNode(instance, held['node_uuid'])

    # What the host reports

    def get_available_nodes(self, refresh=False):
        """The host itself; what it reports of its nodes is read anew.

        This is where a periodic task begins, outside of the resource
        tracker's lock: the methods below call nobody.
        """
        if not self.one_row:
            return super().get_available_nodes(refresh)
        self.builds.renew_all()
        self._look()
        return [self.host]

    def _look(self):
        partition = _partition()
        asked, taken = time.monotonic(), None
        try:
            rows, age = self.reservations.capacity(self.host, **partition)
            if CONF.reservations.report_standard_resources:
                taken = sum((fleet.allocated(each['request_spec'])
                             for each in self.reservations.held_by(
                                 self.host, ['request_spec'])),
                            collections.Counter())
        except client.Failure as e:
            LOG.error('What the fleet can give is not known: %s', e)
            raise exception.VirtDriverNotReady()
        # What this host asks for is what it has reported.
        self._partition = partition
        self._fleet = fleet.Fleet(rows, taken)
        # Ages are whole seconds, rounded down.
        while self._released and self._released[0][0] < asked - age - 1:
            self._released.popleft()
        vanished, self._vanished = self._vanished, set()
        if vanished:
            try:
                self._unused |= vanished - self._allocated_classes()
            except (exception.ResourceProviderAllocationRetrievalFailed,
                    ksa_exc.ClientException) as e:
                # They are found again when the provider is updated.
                LOG.warning('Whether %s are used is not known: %s',
                            vanished, e)

    def _allocated_classes(self):
        found = report.report_client_singleton(
        ).get_allocations_for_resource_provider(
            nova_context.get_admin_context(), self._compute_id).allocations
        return {name for each in found.values() for name in each['resources']}

    def get_nodenames_by_uuid(self, refresh=False):
        if not self.one_row:
            return super().get_nodenames_by_uuid(refresh)
        return {self._compute_id: self.host}

    def get_available_resource(self, nodename):
        if nodename != self.host:
            return super().get_available_resource(nodename)
        return {'uuid': self._compute_id, 'hypervisor_hostname': self.host,
                'hypervisor_type': self._get_hypervisor_type(),
                'hypervisor_version': self._get_hypervisor_version(),
                'cpu_info': None, 'numa_topology': None, 'stats': {},
                **self._known_fleet().resources()}

    def _known_fleet(self):
        if self._fleet is None:
            raise exception.VirtDriverNotReady()
        return self._fleet

    def update_provider_tree(self, provider_tree, nodename, allocations=None):
        if nodename != self.host:
            return super().update_provider_tree(provider_tree, nodename,
                                                allocations)
        known = self._known_fleet()
        inventory = known.inventory(
            sum((amounts for _, amounts in list(self._released)),
                collections.Counter()))
        # A class that still has allocations must stay; whether it has is
        # asked outside of the resource tracker's lock.
        self._unused.difference_update(inventory)
        for name, before in provider_tree.data(nodename).inventory.items():
            if name not in inventory and name not in self._unused:
                inventory[name] = {**before, 'reserved': before['total']}
                self._vanished.add(name)
        provider_tree.update_inventory(nodename, inventory)
        provider_tree.update_traits(nodename, known.traits())

    def node_is_available(self, nodename):
        if not self.one_row:
            return super().node_is_available(nodename)
        return nodename == self.host

    def is_node_deleted(self, nodename):
        """Whether Nova shall delete a row that is not reported any more.

        With it go its provider and all allocations: never while instances
        are on it.
        """
        if objects.InstanceList.get_by_host_and_node(
                nova_context.get_admin_context(), self.host, nodename,
                expected_attrs=[]):
            return False
        if self.one_row:
            return nodename != self.host
        return nodename == self.host or super().is_node_deleted(nodename)

    def get_host_ip_addr(self):
        return CONF.my_ip

    # What the host holds

    def list_instance_uuids(self):
        if not self.one_row:
            return super().list_instance_uuids()
        try:
            return [each['instance_uuid'] for each in
                    self.reservations.held_by(self.host, [])]
        except client.Failure as e:
            LOG.error('What host %s holds is not known: %s', self.host, e)
            raise exception.VirtDriverNotReady()

    def list_instances(self):
        if not self.one_row:
            return super().list_instances()
        return [instance.name for instance in
                objects.InstanceList.get_by_filters(
                    nova_context.get_admin_context(),
                    {'uuid': self.list_instance_uuids()}, expected_attrs=[])]

    def get_info(self, instance, use_cache=True):
        # Nothing keeps the parent's cache fresh, but with a row per node.
        return super().get_info(
            instance, use_cache and self._one_row is False
            and not self._is_ours(instance))

    # From hold to release

    def prepare_for_spawn(self, instance):
        """Hold a node; with a row per node the scheduler has chosen one."""
        if not self._is_ours(instance):
            return super().prepare_for_spawn(instance)
        self.builds.begin(instance, self._partition)

    def prepare_networks_before_block_device_mapping(self, instance,
                                                     network_info):
        if self._is_ours(instance):
            # Neutron may take its time, and only then is a node touched.
            network_info.wait()
            instance = OnNode(instance, self.builds.renew(instance))
        super().prepare_networks_before_block_device_mapping(
            instance, network_info)

    def spawn(self, context, instance, image_meta, injected_files,
              admin_password, allocations, network_info=None,
              block_device_info=None, **kwargs):
        def deploy(instance):
            super(ReservationsDriver, self).spawn(
                context, instance, image_meta, injected_files,
                admin_password, allocations, network_info, block_device_info,
                **kwargs)

        if not self._is_ours(instance):
            return deploy(instance)
        unshelved = instance.uuid not in self.builds
        try:
            if unshelved:
                # It comes without a hold, and without VIFs.
                self.prepare_for_spawn(instance)
                if network_info is not None:
                    self.prepare_networks_before_block_device_mapping(
                        instance, network_info)
            deploy(OnNode(instance, self.builds.renew(instance)))
        except Exception as e:
            if unshelved:
                # Nobody cleans up behind it either.
                try:
                    self.destroy(context, instance, network_info,
                                 block_device_info)
                except Exception:
                    LOG.exception('Cleaning up after a failed unshelving has '
                                  'failed', instance=instance)
            if isinstance(e, exception.InstanceUnacceptable):
                # Here, too, it is not for the next host to try.
                raise exception.BuildAbortException(
                    instance_uuid=instance.uuid, reason=e.format_message())
            if isinstance(e, exception.InstanceNotFound):
                raise self._lost_node(instance)
            raise
        finally:
            self.builds.end(instance)

    @staticmethod
    def _lost_node(instance):
        """The error for a node that does not carry its instance any more.

        :raises: InstanceNotFound when it is the instance that is gone: then
            Nova does nothing more about it, and need not.
        """
        instance.refresh()
        return exception.InstanceDeployFailure(
            f'The node of instance {instance.uuid} was taken away.')

    def failed_spawn_cleanup(self, instance):
        if not self._is_ours(instance):
            return super().failed_spawn_cleanup(instance)
        self.builds.end(instance)
        try:
            held = self._held(instance)
            if held:
                super().failed_spawn_cleanup(
                    OnNode(instance, held['node_uuid']))
            self.reservations.release(instance.uuid, self.host)
        except (client.Failure, sdk_exc.SDKException) as e:
            # Why the build failed must not be lost over this. Whoever builds
            # the instance next gets the same node; else the lease ends.
            LOG.warning('The node is not released: %s', e, instance=instance)

    def destroy(self, context, instance, network_info,
                block_device_info=None, destroy_disks=True,
                destroy_secrets=True):
        if not self._is_ours(instance):
            return super().destroy(
                context, instance, network_info, block_device_info,
                destroy_disks, destroy_secrets)
        self.builds.end(instance)
        try:
            held = self._held(instance)
            if held is None:
                self._check_unreserved(instance)
            elif held['state'] != 'releasing':
                super().destroy(
                    context, OnNode(instance, held['node_uuid']),
                    network_info, block_device_info, destroy_disks,
                    destroy_secrets)
            if held and held['state'] != 'reserved':
                self._note_release(held)
            # What an earlier attempt has begun is waited for, as the parent
            # waits for its own.
            self.reservations.release(
                instance.uuid, self.host,
                CONF.ironic.api_max_retries * CONF.ironic.api_retry_interval)
        except client.Failure as e:
            LOG.error('The node is not released: %s', e, instance=instance)
            raise exception.NovaException(
                f'The node of instance {instance.uuid} is not released.')

    def _check_unreserved(self, instance):
        """Forget no instance that runs on a node without a reservation.

        There is none, unless a database was restored or edited by hand.
        """
        with contextlib.suppress(exception.InstanceNotFound):
            node = self._validate_instance_and_node(instance)
            if (node.provision_state in ironic_driver._UNPROVISION_STATES
                    and self.reservations.get(instance.uuid) is None):
                LOG.error('Node %s carries this instance, but is not '
                          'reserved: undeploy it.', node.id,
                          instance=instance)
                raise exception.NovaException(
                    f'The node of instance {instance.uuid} is not reserved.')

    def _note_release(self, held):
        """Offer less by this node: it is being cleaned.

        Nova reports the inventory before it takes the allocation away, so
        that nothing else is put in its place meanwhile.
        """
        amounts = fleet.allocated(held['request_spec'])
        if not CONF.reservations.report_standard_resources:
            amounts = collections.Counter(
                {fleet.normalize(held['resource_class']): 1})
        self._released.append((time.monotonic(), amounts))

    def _cleanup_deploy(self, node, instance, network_info=None):
        """The parent's, but only a DELETE clears the node's instance_uuid."""
        if not isinstance(instance, OnNode):
            return super()._cleanup_deploy(node, instance, network_info)
        self._cleanup_volume_target_info(instance)
        # All of them: one that was attached before nova-compute was killed
        # may not be written down in Nova.
        for vif in self.ironic_connection.list_node_vifs(node.id):
            self.ironic_connection.detach_vif_from_node(node.id, vif)
        # A node with instance_info cannot go to another instance meanwhile.
        node = self.ironic_connection.get_node(
            node.id, fields=('uuid', 'instance_uuid', 'instance_info'))
        if node.instance_id == instance.uuid and node.instance_info:
            self.ironic_connection.update_node(node, instance_info={})

    # What reads instance.node

    def unplug_vifs(self, instance, network_info):
        try:
            instance = self._on_node(instance)
        except exception.InstanceNotFound:
            return  # Nova unplugs after a hold that failed, too.
        super().unplug_vifs(instance, network_info)

    def attach_interface(self, context, instance, image_meta, vif):
        super().attach_interface(context, self._on_node(instance),
                                 image_meta, vif)

    def get_volume_connector(self, instance):
        if (instance.task_state == task_states.SPAWNING
                and instance.vm_state == vm_states.SHELVED_OFFLOADED
                and self._is_ours(instance)):
            # Volumes of an unshelved instance are connected before anything
            # else is done; nobody tells us when that fails, so the lease is
            # not renewed before it is spawned.
            self.prepare_for_spawn(instance)
            self.builds.end(instance)
        return super().get_volume_connector(self._on_node(instance))

    def get_vnc_console(self, context, instance):
        return super().get_vnc_console(context, self._on_node(instance))

    def rescue(self, context, instance, *args, **kwargs):
        super().rescue(context, self._on_node(instance), *args, **kwargs)

    def unrescue(self, context, instance):
        super().unrescue(context, self._on_node(instance))

    def rebuild(self, context, instance, image_meta, injected_files,
                admin_password, allocations, bdms, *args,
                reimage_boot_volume=False, **kwargs):
        if reimage_boot_volume:
            # Nova says so for every instance since API version 2.93.
            reimage_boot_volume = compute_utils.is_volume_backed_instance(
                context, instance, bdms)
        if self._is_ours(instance):
            try:
                instance = self._on_node(instance)
            except exception.NovaException as e:
                raise exception.InstanceFaultRollback(e)
            self._check_traits(instance, image_meta)
        try:
            super().rebuild(
                context, instance, image_meta, injected_files,
                admin_password, allocations, bdms, *args,
                reimage_boot_volume=reimage_boot_volume, **kwargs)
        except exception.InstanceNotFound:
            raise self._lost_node(instance)

    def _check_traits(self, instance, image_meta):
        """Check what Nova has checked against all nodes' traits in one.

        :raises: InstanceFaultRollback, which leaves the instance as it is.
        """
        has = self._get_node(instance.node).traits
        wanted = image_meta.properties.get('traits_required', [])
        missing = sorted(set(wanted) - set(has))
        if missing:
            raise exception.InstanceFaultRollback(
                exception.ImageUnacceptable(
                    image_id=image_meta.id,
                    reason=f'the node lacks {", ".join(missing)}'))
