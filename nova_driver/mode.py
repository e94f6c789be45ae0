# SPDX-License-Identifier: Apache-2.0
"""Decides whether a compute host has one compute node, or one per node.

The decision, and the identity of a host with one compute node, are made when
nova-compute starts. OneComputeNode implements the driver's methods for such a
host.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
import threading
from typing import TYPE_CHECKING
from typing import Any

from keystoneauth1 import exceptions as ksa_exc
from nova import context as nova_context
from nova import exception
from nova import objects
from nova.objects import fields
from nova.virt import node as virt_node
from nova.virt.ironic import driver as ironic_driver
from openstack import exceptions as sdk_exc
from oslo_log import log as logging
import oslo_messaging as messaging

from . import builds
from . import client
from . import conf
from . import placement
from . import power
from . import report
from . import restart

if TYPE_CHECKING:
    from nova.compute import provider_tree as nova_tree
    from nova.compute import resource_tracker

CONF = conf.CONF
LOG = logging.getLogger(__name__)

#: How many deleted instances to read at once, because they accumulate.
_PAGE = 1000

#: Reading this many nodes in a list takes about as long as reading one alone.
LISTED = 50

#: Prefix of the names of compute nodes in per-node mode, as a regular
#: expression of the database: a host that never had any reads no deleted
#: instance. Ironic also accepts UUIDs without dashes.
_UUID = '^[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}'


class Mode:
    """Decides once per process whether a host has one compute node.

    :param host: the name of the compute host.
    """

    def __init__(self, host: str, reservations: client.Client):
        self._host = host
        self._client = reservations
        self._one_row: bool | None = None
        self._lock = threading.Lock()

    @property
    def decision(self) -> bool | None:
        """Whether it is in one-row mode; None until it is decided."""
        return self._one_row

    @property
    def one_row(self) -> bool:
        """Whether the host has one compute node, rather than one per node.

        :raises: VirtDriverNotReady while it cannot be decided.
        """
        if self._one_row is None:
            with self._lock:
                if self._one_row is None:
                    self._one_row = self._decide()
        return self._one_row

    def _decide(self) -> bool:
        """Decide by [reservations] mode, the compute nodes, and Ironic."""
        ctxt = nova_context.get_admin_context()
        used = {node.hypervisor_hostname
                for node in find_compute_nodes(self._host)} | {
            instance.node for instance in objects.InstanceList.get_by_host(
                ctxt, self._host, expected_attrs=[]) if instance.node}
        per_node = used - {self._host}
        mode, adopt = CONF.reservations.mode, CONF.reservations.adopt
        if mode == 'auto' and self._host in used or mode == 'reservations':
            if per_node:
                LOG.warning(
                    'Host %s has one compute node, but also compute nodes or '
                    'instances of %d nodes: %s', self._host, len(per_node),
                    'they are migrated to the one compute node.' if adopt
                    else 'set [reservations] adopt = true in nova.conf to '
                    'migrate them to the one compute node.')
            return True
        if mode == 'auto' and per_node:
            LOG.warning(
                'Host %s has compute nodes or instances of %d nodes and keeps '
                'a compute node per node, which is deprecated. To migrate it '
                'to one compute node while its instances run, set mode = '
                'reservations and adopt = true in section [reservations] of '
                'nova.conf, and restart nova-compute.',
                self._host, len(per_node))
            return False
        if mode == 'auto' and self._endpoint_is_present():
            LOG.info('Ironic reserves nodes: host %s has one compute node',
                     self._host)
            return True
        LOG.warning(
            'Host %s has a compute node per node, which is deprecated, '
            'because %s. To migrate it to one compute node, %sset mode = '
            'reservations and adopt = true in section [reservations] of '
            'nova.conf. peer_list can no longer be changed without a restart.',
            self._host, *(
                ('mode = per_node', '') if mode == 'per_node' else
                ('this Ironic has no /v1/reservations',
                 'install ironic-reservations on the hosts of Ironic\'s API, '
                 'add "reservations" to [api] middleware in ironic.conf, and '
                 )))
        if self._host in used:
            LOG.warning('Host %s still has the compute node of one-row mode. '
                        'Nothing is built on it; Nova deletes it after its '
                        'last instance%s.', self._host,
                        ': they are migrated to the compute nodes of their '
                        'nodes' if adopt else '')
        return False

    def _endpoint_is_present(self) -> bool:
        try:
            return self._client.is_present()
        except client.Failure as e:
            LOG.error('Could not look up /v1/reservations: %s', e)
            raise exception.VirtDriverNotReady()


class OneComputeNode:
    """Implements methods of the driver for a host that has one compute node.

    Methods whose names Nova's driver has take the same parameters.

    :param host: the name of the compute host.
    :param start: set once Nova has initialized the instances that it found
        when it started.
    :ivar allocations: placement.Allocations, after ``adapt_tracker``.
    :ivar left_behind: UUIDs of instances that Nova deleted while this host
        was down, and whose nodes were not torn down at its next start,
        because it has been in one-row mode since.
    """

    allocations: placement.Allocations

    def __init__(self, host: str, reservations: client.Client,
                 host_builds: builds.Builds, host_report: report.Report,
                 power_states: power.PowerStates, start: threading.Event):
        self._host = host
        self._client = reservations
        self._builds = host_builds
        self._report = host_report
        self._power_states = power_states
        self._start = start
        self._compute_id = ''
        # Resource classes of provider.yaml, which Nova adds to those that the
        # driver reports, and refuses if the driver reports them, too.
        self._configured_classes: set[str] = set()
        # The allocations that the last periodic task read, until the driver's
        # thread has restored the missing ones.
        self._present: Collection[str] | None = None
        self.left_behind: set[str] = set()
        self._left_behind_is_read = False

    def adapt_tracker(self, tracker: resource_tracker.ResourceTracker) -> None:
        """Identify the host, and adapt Nova's resource tracker.

        :raises: InvalidConfiguration, which ends nova-compute.
        """
        self._compute_id = identify(self._host)
        configs = tracker.provider_configs
        # An entry for this host takes the place of that for all hosts.
        config: dict[str, Any] = next((configs[name] for name in (
            self._host, self._compute_id, '$COMPUTE_NODE')
            if name in configs), {})
        self._configured_classes = {
            name for inventory in config.get('inventories', {}).get(
                'additional', ()) for name in inventory}
        placement.adapt_tracker(tracker, self._host)
        self.allocations = placement.Allocations(
            tracker.reportclient, self._host, self._compute_id)

    def restore_allocations(self) -> None:
        """Restore allocations that the last periodic task did not find."""
        present, self._present = self._present, None
        if present is not None:
            self.allocations.restore(present, self._client)

    def init_host(self, host: str) -> None:
        """Do nothing: only per-node mode has a hash ring."""

    def get_available_nodes(self, refresh: bool) -> list[str]:
        """Return this host as the only node.

        Also renews leases and refreshes the capacity.

        Nova's periodic task begins with this call, before it takes the
        resource tracker's lock. The methods below are called under that lock,
        so they send no requests and use the values that were read here.
        """
        self._builds.renew_all()
        allocations = self.allocations.read()
        self._report.refresh(placement.get_resource_classes(allocations))
        # RPC threads that hold Nova's lock of an instance also come here, so
        # the driver's thread restores the missing allocations.
        self._present = allocations
        return [self._host]

    def get_nodenames_by_uuid(self, refresh: bool) -> dict[str, str]:
        if restart.SUPPORTED and not self._start.is_set():
            # At its start Nova uses this only to set builds to ERROR that
            # are still in the host's queue, and would then build them.
            return {}
        return {self._compute_id: self._host}

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        return {'uuid': self._compute_id, 'hypervisor_hostname': self._host,
                'hypervisor_type': fields.HVType.IRONIC,
                'hypervisor_version': ironic_driver.IRONIC_API_VERSION[0],
                'cpu_info': None, 'numa_topology': None, 'stats': {},
                **self._report.resources()}

    def update_provider_tree(
            self, provider_tree: nova_tree.ProviderTree, nodename: str,
            allocations: Any) -> None:
        before = provider_tree.data(nodename).inventory
        for name in self._configured_classes:
            before.pop(name, None)
        provider_tree.update_inventory(
            nodename, self._report.inventory(before))
        provider_tree.update_traits(nodename, self._report.traits(
            provider_tree.data(nodename).traits))

    def node_is_available(self, nodename: str) -> bool:
        return nodename == self._host

    def is_node_deleted(self, nodename: str) -> bool:
        return False

    def list_instance_uuids(self) -> list[str]:
        try:
            # Nova does not start a new service on a host that lists any
            # instances, so the remaining instances are listed only after the
            # start.
            if not self._left_behind_is_read and self._start.is_set():
                self.left_behind = find_left_behind(
                    self._host, self._power_states.fetch)
                self._left_behind_is_read = True
            return [*self.left_behind, *(
                reservation['instance_uuid'] for reservation
                in self._client.list_by_host(self._host, []))]
        except (client.Failure, messaging.MessagingException,
                ksa_exc.ClientException, sdk_exc.SDKException) as e:
            LOG.error('Could not list the reservations of host %s: %s',
                      self._host, e)
            raise exception.VirtDriverNotReady()

    def list_instances(self) -> list[str]:
        return [instance.name for instance in
                objects.InstanceList.get_by_filters(
                    nova_context.get_admin_context(),
                    {'uuid': self.list_instance_uuids()}, expected_attrs=[])]

    def get_num_instances(self) -> int:
        """Count instances, and read their power states.

        Nova calls this only when it is about to compare the power states of
        all instances, for which it calls get_info.
        """
        count = len(self.list_instance_uuids())
        self._power_states.forget_all()
        # The list has the instances of all hosts of this part of the fleet.
        if self._report.in_use <= LISTED * count:
            try:
                self._power_states.read()
            except (exception.NovaException, ksa_exc.ClientException,
                    sdk_exc.SDKException) as e:
                LOG.warning('Could not list power states, reading them one '
                            'by one: %s', e)
        return count


def identify(host: str) -> str:
    """Return the UUID of a host's one compute node: Nova's ``compute_id``.

    For other drivers Nova checks that the host is the one in the database,
    but not for drivers with "ironic" in their names
    (``_ensure_existing_node_identity`` in ``nova/compute/manager.py``),
    because Nova's own has many compute nodes. A ``compute_id`` is generated
    only for a host that passes the check.

    With a standby, the ``compute_id`` in the database overrides the file of
    the machine, because the host's process may run on any machine.

    :raises: InvalidConfiguration, which ends nova-compute.
    """
    compute_id = virt_node.read_local_node_uuid()
    compute_node = find_compute_node(host, host)
    expected = compute_node and compute_node.uuid
    if expected and CONF.reservations.standby:
        if compute_id not in (None, expected):
            LOG.warning('Ignored %s in the file compute_id: host %s has the '
                        'compute_id %s.', compute_id, host, expected)
        # Where Nova caches the content of the file.
        virt_node.LOCAL_NODE_UUID = expected
        return expected
    if compute_id:
        _check_host_of_compute_id(compute_id, host)
    if expected not in (None, compute_id):
        raise exception.InvalidConfiguration(
            f'Host {host} has the compute_id {expected} in the database, but '
            f'{compute_id or "none"} here: restore the file compute_id.')
    return virt_node.get_local_node_uuid()


def _check_host_of_compute_id(compute_id: str, host: str) -> None:
    try:
        compute_node = objects.ComputeNode.get_by_uuid(
            nova_context.get_admin_context(), compute_id)
    except exception.ComputeHostNotFound:
        return
    if compute_node.host != host:
        raise exception.InvalidConfiguration(
            f'compute_id {compute_id} belongs to host {compute_node.host}, '
            f'but this host is {host}: either [DEFAULT] host has changed, or '
            f'the file is from another host.')


def find_compute_nodes(host: str) -> list[objects.ComputeNode]:
    """Return the compute nodes of a host."""
    try:
        return objects.ComputeNodeList.get_all_by_host(
            nova_context.get_admin_context(), host)
    except exception.NotFound:
        return []


def find_compute_node(host: str, name: str) -> objects.ComputeNode | None:
    """Return the compute node of a host with this name, if there is one."""
    try:
        return objects.ComputeNode.get_by_host_and_nodename(
            nova_context.get_admin_context(), host, name)
    except exception.NotFound:
        return None


def find_left_behind(
        host: str, find_carried: Callable[[], Collection[str]]) -> set[str]:
    """Return deleted instances of per-node mode that nodes still carry.

    When an instance is deleted while its host is down, Nova tears it down
    once the host is up. If the host is in one-row mode since, Nova does not
    check the earlier compute nodes, so this does, once.

    :param find_carried: returns the UUIDs of the instances that Ironic's nodes
        carry. It is called only if there are any such instances.
    :returns: UUIDs of instances that Nova has deleted.
    """
    ctxt = nova_context.get_admin_context(read_deleted='yes')
    uuids: set[str] = set()
    page, last = [None], None
    while page:
        page = objects.InstanceList.get_by_filters(
            ctxt, {'host': host, 'deleted': True, 'node': _UUID},
            expected_attrs=[], limit=_PAGE, marker=last)
        uuids |= {instance.uuid for instance in page
                  if instance.node not in (None, host)}
        last = page[-1].uuid if page else None
    return uuids.intersection(find_carried()) if uuids else set()
