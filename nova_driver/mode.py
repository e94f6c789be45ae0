# SPDX-License-Identifier: Apache-2.0
"""Whether a compute host is one row, or a row per node; and which host it is.

Both are read from Nova's database when nova-compute starts. OneRow answers
Nova's questions about a host that is one row.
"""

import threading

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

from . import client
from . import conf
from . import placement
from . import restart

CONF = conf.CONF
LOG = logging.getLogger(__name__)

#: How many deleted instances are read at once. They may be those of years.
_PAGE = 1000

#: Reading this many nodes in a list takes about as long as reading one alone.
LISTED = 50

#: What the name of a row per node begins with, as a regular expression of the
#: database: a host that never had such rows reads no deleted instance.
_UUID = '^[0-9a-f]{8}-[0-9a-f]{4}-'


class Mode:
    """Whether a host is one row; decided once in the life of the process.

    :param host: the name of the compute host.
    :param reservations: a client.Client.
    """

    def __init__(self, host, reservations):
        self._host = host
        self._client = reservations
        self._one_row = None
        self._deciding = threading.Lock()

    @property
    def known(self):
        """Whether the host is one row; None as long as it is not decided."""
        return self._one_row

    @property
    def one_row(self):
        """Whether the host is one row, rather than a row per node.

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
        used = {row.hypervisor_hostname for row in rows(self._host)} | {
            instance.node for instance in objects.InstanceList.get_by_host(
                ctxt, self._host, expected_attrs=[]) if instance.node}
        per_node = used - {self._host}
        mode, adopt = CONF.reservations.mode, CONF.reservations.adopt
        if mode == 'auto' and self._host in used or mode == 'reservations':
            if per_node:
                LOG.warning(
                    'Host %s is one row, but has rows or instances of %d '
                    'nodes: %s', self._host, len(per_node),
                    'they are brought to the one row.' if adopt else
                    'set [reservations] adopt = true in nova.conf to have '
                    'the one row adopt them.')
            return True
        if mode == 'auto' and per_node:
            LOG.warning(
                'Host %s has rows or instances of %d nodes and stays with a '
                'row per node, which is deprecated. To make it one row while '
                'its instances run, set mode = reservations and adopt = true '
                'in section [reservations] of nova.conf, and restart '
                'nova-compute.', self._host, len(per_node))
            return False
        if mode == 'auto' and self._endpoint_is_present():
            LOG.info('Ironic reserves nodes: host %s is one row', self._host)
            return True
        LOG.warning(
            'Host %s has a row per node, which is deprecated%s. To make it '
            'one row, install ironic-reservations on the hosts of Ironic\'s '
            'API, add "reservations" to [api] middleware in ironic.conf, and '
            'set mode = reservations and adopt = true in section '
            '[reservations] of nova.conf. peer_list cannot be changed '
            'without a restart any more.',
            self._host, '' if mode == 'per_node' else
            ', as this Ironic has no /v1/reservations')
        if self._host in used:
            LOG.warning('Host %s was one row; nothing can be built on that '
                        'row, and it goes when its instances are gone%s.',
                        self._host, ': they are brought to the rows of their '
                        'nodes' if adopt else '')
        return False

    def _endpoint_is_present(self):
        try:
            return self._client.is_present()
        except client.Failure as e:
            LOG.error('Whether Ironic has /v1/reservations is not known: %s',
                      e)
            raise exception.VirtDriverNotReady()


class OneRow:
    """Answers Nova's questions about a host that is one row.

    The methods that Nova's driver has, too, have the same parameters there.

    :param host: the name of the compute host.
    :param reservations: a client.Client.
    :param builds: a builds.Builds.
    :param report: a report.Report.
    :param power_states: a power.PowerStates.
    :param started: threading.Event that is set once Nova has initialized the
        instances that it found when it started.
    :ivar allocations: placement.Allocations, after ``adapt_tracker``.
    :ivar left_behind: UUIDs of instances that Nova deleted while this host
        was down, and whose nodes were not torn down at its next start,
        because it has been one row since.
    """

    def __init__(self, host, reservations, builds, report, power_states,
                 started):
        self._host = host
        self._client = reservations
        self._builds = builds
        self._report = report
        self._power_states = power_states
        self._started = started
        self._compute_id = self.allocations = None
        # The allocations that the last periodic task read, until the driver's
        # thread has restored those that are missing.
        self._present = None
        self.left_behind, self._left_behind_is_read = set(), False

    def adapt_tracker(self, tracker):
        """Identify the host, and adapt Nova's resource tracker.

        :raises: InvalidConfiguration, which ends nova-compute.
        """
        self._compute_id = identify(self._host)
        placement.adapt_tracker(tracker, self._host)
        self.allocations = placement.Allocations(
            tracker.reportclient, self._host, self._compute_id)

    def restore_allocations(self):
        """Restore the allocations that the last periodic task has missed."""
        present, self._present = self._present, None
        if present is not None:
            self.allocations.put_back(present, self._client)

    def init_host(self, host):
        """Do nothing: only a host with a row per node has a hash ring."""

    def get_available_nodes(self, refresh):
        """Return the host alone, after renewing leases and counting nodes.

        Nova's periodic task begins with this call, before it takes the
        resource tracker's lock. The methods below are called under that lock,
        so they send no requests and use what was read here.
        """
        self._builds.renew_all()
        allocations = self.allocations.read()
        self._report.look(placement.classes(allocations))
        # RPC threads that have Nova's lock of an instance come here, too, so
        # that nothing is waited for.
        self._present = allocations
        return [self._host]

    def get_nodenames_by_uuid(self, refresh):
        if restart.SUPPORTED and not self._started.is_set():
            # Nova asks only for this, at its start: to set those builds to
            # ERROR that wait in the host's queue. They are waited for.
            return {}
        return {self._compute_id: self._host}

    def get_available_resource(self, nodename):
        return {'uuid': self._compute_id, 'hypervisor_hostname': self._host,
                'hypervisor_type': fields.HVType.IRONIC,
                'hypervisor_version': ironic_driver.IRONIC_API_VERSION[0],
                'cpu_info': None, 'numa_topology': None, 'stats': {},
                **self._report.resources()}

    def update_provider_tree(self, provider_tree, nodename, allocations):
        provider_tree.update_inventory(nodename, self._report.inventory(
            provider_tree.data(nodename).inventory))
        provider_tree.update_traits(nodename, self._report.traits(
            provider_tree.data(nodename).traits))

    def node_is_available(self, nodename):
        return nodename == self._host

    def is_node_deleted(self, nodename):
        return False

    def list_instance_uuids(self):
        try:
            # Nova does not start a new service on a host that lists any
            # instances, so those left behind are listed only after the start.
            if not self._left_behind_is_read and self._started.is_set():
                self.left_behind = deleted_per_node(
                    self._host, self._power_states.fetch)
                self._left_behind_is_read = True
            return [*self.left_behind, *(
                each['instance_uuid']
                for each in self._client.held_by(self._host, []))]
        except (client.Failure, messaging.MessagingException,
                ksa_exc.ClientException, sdk_exc.SDKException) as e:
            LOG.error('What host %s holds is not known: %s', self._host, e)
            raise exception.VirtDriverNotReady()

    def list_instances(self):
        return [instance.name for instance in
                objects.InstanceList.get_by_filters(
                    nova_context.get_admin_context(),
                    {'uuid': self.list_instance_uuids()}, expected_attrs=[])]

    def get_num_instances(self):
        """Count instances, and read their power states.

        Nova asks this only when it is about to compare the power states of
        all instances, for which it calls get_info.
        """
        count = len(self.list_instance_uuids())
        self._power_states.forget_all()
        # A list has the instances of all hosts of this part of the fleet.
        if self._report.in_use <= LISTED * count:
            try:
                self._power_states.read()
            except (exception.NovaException, ksa_exc.ClientException,
                    sdk_exc.SDKException) as e:
                LOG.warning('The power states are read one by one: %s', e)
        return count


def identify(host):
    """Return the UUID of a host's one row: Nova's own ``compute_id``.

    Nova checks for other drivers that the host is the one that the database
    knows, but not for one that has "ironic" in its name
    (``_ensure_existing_node_identity`` in ``nova/compute/manager.py``),
    because Nova's own has many rows. A host that has no ``compute_id`` yet is
    given one only after it was checked.

    With a standby the host is where its process is, and its ``compute_id``
    is that in the database, whatever file the machine has.

    :raises: InvalidConfiguration, which ends nova-compute.
    """
    compute_id = virt_node.read_local_node_uuid()
    own = row(host, host)
    known = own and own.uuid
    if known and CONF.reservations.standby:
        if compute_id not in (None, known):
            LOG.warning('The file compute_id has %s, and is ignored: host %s '
                        'has the compute_id %s.', compute_id, host, known)
        # Nova keeps there what it has read from the file.
        virt_node.LOCAL_NODE_UUID = known
        return known
    if compute_id:
        _check_not_of_another(compute_id, host)
    if known not in (None, compute_id):
        raise exception.InvalidConfiguration(
            f'Host {host} has the compute_id {known} in the database, but '
            f'{compute_id or "none"} here: restore the file compute_id.')
    return virt_node.get_local_node_uuid()


def _check_not_of_another(compute_id, host):
    try:
        row = objects.ComputeNode.get_by_uuid(
            nova_context.get_admin_context(), compute_id)
    except exception.ComputeHostNotFound:
        return
    if row.host != host:
        raise exception.InvalidConfiguration(
            f'compute_id {compute_id} is of host {row.host}, but this host is '
            f'{host}: either [DEFAULT] host has changed, or the file is '
            f'another host\'s.')


def rows(host):
    """The rows of a host in Nova's table of compute nodes."""
    try:
        return objects.ComputeNodeList.get_all_by_host(
            nova_context.get_admin_context(), host)
    except exception.NotFound:
        return []


def row(host, name):
    """The row of that name of a host; None if there is none."""
    try:
        return objects.ComputeNode.get_by_host_and_nodename(
            nova_context.get_admin_context(), host, name)
    except exception.NotFound:
        return None


def deleted_per_node(host, carried):
    """Return the instances that a host has left behind on rows per node.

    What is deleted while its host is down is torn down when the host is up
    again. A host that has become one row meanwhile does not look at the rows
    that it had before, so it looks here, once.

    :param carried: function without arguments that returns the instances
        that Ironic's nodes carry, a container of UUIDs. It is called only
        where there are any to be looked for.
    :returns: set of UUIDs of instances that Nova has deleted.
    """
    ctxt = nova_context.get_admin_context(read_deleted='yes')
    deleted, page, last = set(), [None], None
    while page:
        page = objects.InstanceList.get_by_filters(
            ctxt, {'host': host, 'deleted': True, 'node': _UUID},
            expected_attrs=[], limit=_PAGE, marker=last)
        deleted |= {instance.uuid for instance in page
                    if instance.node not in (None, host)}
        last = page[-1].uuid if page else None
    return deleted.intersection(carried()) if deleted else set()
