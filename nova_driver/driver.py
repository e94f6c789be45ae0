# SPDX-License-Identifier: Apache-2.0
"""One row per compute host, on top of Nova's Ironic driver.

On such a row ``instance.node`` is the name of the host. Those methods of the
parent that expect the UUID of the Ironic node there are given a view of the
instance that has it (OnNode); those that look the node up by the instance's
UUID are not overridden. Instances on a row per node have the UUID of their
Ironic node in ``instance.node``, and the parent's methods serve them.
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
from . import conf
from . import fleet

CONF = conf.CONF
LOG = logging.getLogger(__name__)


class OnNode(wrapt.ObjectProxy):
    """A view of an instance whose ``node`` is the UUID of its Ironic node.

    The parent's methods read the node there. The instance itself must keep
    the name of its row.
    """

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
    """Return the part of the fleet that this host uses; None means any."""
    return {'conductor_group': CONF.ironic.conductor_group,
            'shard': CONF.ironic.shard or None}


class ReservationsDriver(ironic_driver.IronicDriver):
    """A driver that asks Ironic for a node when it builds an instance."""

    # Nova asks this of drivers that move rows between hosts, which one row
    # per host does not need.
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
        # What this host has released and may still be counted as free: pairs
        # of a time (time.monotonic) and amounts by resource class.
        self._released = collections.deque()
        # Resource classes in the provider's inventory that no node has any
        # more: those whose allocations are still to be looked up, and those
        # that have none and may go.
        self._vanished, self._unused = set(), set()

    # Whether the host is one row, or a row per node

    def init_host(self, host):
        # Not CONF.host, because tests run several hosts in one process.
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
            pass  # It is logged, and asked again by the periodic task.

    def _check_identity(self):
        """Refuse to be another host than the one that the database knows.

        Nova checks this for other drivers, but not for one that has "ironic"
        in its name (``_ensure_existing_node_identity`` in
        ``nova/compute/manager.py``), because Nova's own has many rows.

        :raises: InvalidConfiguration, which ends nova-compute.
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
        """The rows of this host in Nova's table of compute nodes."""
        try:
            return objects.ComputeNodeList.get_all_by_host(
                nova_context.get_admin_context(), self.host)
        except exception.NotFound:
            return []

    @property
    def one_row(self):
        """Whether this host is one row, rather than a row per node.

        It is decided once in the life of the process.

        :raises: VirtDriverNotReady while it cannot be decided.
        """
        if self._one_row is None:
            with self._deciding:
                if self._one_row is None:
                    self._one_row = self._decide()
        return self._one_row

    def _decide(self):
        """Decide it by [reservations] mode, the rows there are, and Ironic."""
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
        """Say whether an instance is on the one row, its node reserved.

        An instance without a node is being built, and goes where this host
        builds now.
        """
        return instance.node == self.host or (
            not instance.node and self.one_row)

    def _held(self, instance):
        """Return the reservation of an instance if this host holds it."""
        held = self.reservations.get(instance.uuid)
        if held and held['host'] != self.host:
            LOG.warning('Host %s holds node %s for this instance; it is left '
                        'alone.', held['host'], held['node_uuid'],
                        instance=instance)
            return None
        return held

    def _on_node(self, instance):
        """Return the view of an instance that the parent's methods need.

        :raises: InstanceNotFound when this host holds no node for it;
            NovaException when that cannot be known now.
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
        """Return the host alone, after renewing leases and counting nodes.

        Nova's periodic task begins with this call, before it takes the
        resource tracker's lock. The methods below are called under that lock,
        so they send no requests and use what was read here.
        """
        if not self.one_row:
            return super().get_available_nodes(refresh)
        self.builds.renew_all()
        self._look()
        return [self.host]

    def _look(self):
        """Read what the fleet can give, for the methods below.

        :raises: VirtDriverNotReady when it cannot be read now.
        """
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
        # Builds ask for a node of the partition that was reported, even when
        # the configuration has changed since.
        self._partition = partition
        self._fleet = fleet.Fleet(rows, taken)
        # What was released before the profiles were counted is in them. The
        # age is in whole seconds, rounded down, so one more is allowed for.
        while self._released and self._released[0][0] < asked - age - 1:
            self._released.popleft()
        vanished, self._vanished = self._vanished, set()
        if vanished:
            try:
                self._unused |= vanished - self._allocated_classes()
            except (exception.ResourceProviderAllocationRetrievalFailed,
                    ksa_exc.ClientException) as e:
                # update_provider_tree finds these classes again.
                LOG.warning('Whether %s are used is not known: %s',
                            vanished, e)

    def _allocated_classes(self):
        """The resource classes that the provider has allocations of."""
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
        # A class that no node has any more must stay in the inventory while
        # it has allocations, because Placement refuses to remove it. _look
        # asks for them, because here the resource tracker's lock is held.
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
        """Say whether Nova shall delete a row that is not reported any more.

        Nova deletes the row's provider and all of its allocations with it, so
        the answer is no as long as instances are on the row.
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
        # The parent's cache of nodes is kept fresh only on hosts with a row
        # per node.
        return super().get_info(
            instance, use_cache and self._one_row is False
            and not self._is_ours(instance))

    # From hold to release

    def prepare_for_spawn(self, instance):
        """Hold a node for the instance.

        Nova calls this first in a build. With a row per node the scheduler
        has chosen the node, and the parent prepares it.
        """
        if not self._is_ours(instance):
            return super().prepare_for_spawn(instance)
        self.builds.begin(instance, self._partition)

    def prepare_networks_before_block_device_mapping(self, instance,
                                                     network_info):
        if self._is_ours(instance):
            # Neutron may need long to make the ports. Wait for it before the
            # lease is renewed, because the node is touched only after that.
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
                # Nova spawns an instance that is unshelved without calling
                # the two methods that prepare it before.
                self.prepare_for_spawn(instance)
                if network_info is not None:
                    self.prepare_networks_before_block_device_mapping(
                        instance, network_info)
            deploy(OnNode(instance, self.builds.renew(instance)))
        except Exception as e:
            if unshelved:
                # Nor does Nova call failed_spawn_cleanup for it.
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
                raise self._lost_node(instance)
            raise
        finally:
            self.builds.end(instance)

    @staticmethod
    def _lost_node(instance):
        """Return the error for a node that has lost its instance.

        :raises: InstanceNotFound when the instance itself has been deleted,
            because Nova then ends its work on it without an error.
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
            # It is only logged, because an exception would hide why the build
            # has failed. The node is not lost: the host that builds the
            # instance next is given the same one, else its lease ends.
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
            # A tear-down that an earlier attempt has begun may still go on;
            # it is waited for as long as the parent waits for its own.
            self.reservations.release(
                instance.uuid, self.host,
                CONF.ironic.api_max_retries * CONF.ironic.api_retry_interval)
        except client.Failure as e:
            LOG.error('The node is not released: %s', e, instance=instance)
            raise exception.NovaException(
                f'The node of instance {instance.uuid} is not released.')

    def _check_unreserved(self, instance):
        """Refuse to forget an instance that runs on an unreserved node.

        That happens only after a database was restored or edited by hand.

        :raises: NovaException.
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
        """Note that a node is being cleaned, so that less is offered.

        Nova updates the inventory before it deletes the instance's
        allocation, so no other instance can take its place in between.
        """
        amounts = fleet.allocated(held['request_spec'])
        if not CONF.reservations.report_standard_resources:
            amounts = collections.Counter(
                {fleet.normalize(held['resource_class']): 1})
        self._released.append((time.monotonic(), amounts))

    def _cleanup_deploy(self, node, instance, network_info=None):
        """Clean up a node as the parent does, but leave its instance_uuid.

        The parent clears that too, which would free the node without its
        reservation. Here the DELETE of the reservation does both.
        """
        if not isinstance(instance, OnNode):
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

    # Methods of the parent that read instance.node

    def unplug_vifs(self, instance, network_info):
        try:
            instance = self._on_node(instance)
        except exception.InstanceNotFound:
            return  # Nova calls this also when no node could be held.
        super().unplug_vifs(instance, network_info)

    def attach_interface(self, context, instance, image_meta, vif):
        super().attach_interface(context, self._on_node(instance),
                                 image_meta, vif)

    def get_volume_connector(self, instance):
        if (instance.task_state == task_states.SPAWNING
                and instance.vm_state == vm_states.SHELVED_OFFLOADED
                and self._is_ours(instance)):
            # When an instance is unshelved, Nova connects its volumes before
            # it calls any other method. It does not tell the driver when
            # that fails, so the build is not kept: its lease is not renewed
            # until spawn, and ends if that never comes.
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
            # Since API version 2.93 Nova sets it for every instance, but the
            # parent refuses a rebuild with it:
            # https://opendev.org/openstack/nova/src/branch/master/nova/api/openstack/compute/servers.py
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
        """Check that the instance's node has the traits of a new image.

        Nova has checked only that the host has them, and a host has the
        traits of all of its nodes together.

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
