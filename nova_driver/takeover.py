# SPDX-License-Identifier: Apache-2.0
"""A host takes over servers that it was given, from another that is down.

Who holds a server's machine in Ironic is whose the server is: whoever writes
another host into the reservation has decided it. That host then brings the
allocation and the instance to its own row. Nothing of the machine changes.
"""

import time

from nova import availability_zones
from nova import context as nova_context
from nova import objects
from nova import servicegroup
from oslo_log import log as logging

from . import adoption
from . import client
from . import placement

LOG = logging.getLogger(__name__)

#: Seconds after which all reservations of the host are looked at again, and
#: not only those that have changed since the last look. It finds what a
#: database has written whose clock was set back.
ALL_AGAIN = 600


class Takeover:
    """Brings the instances whose machines a host was given to this host.

    :param host: the name of the compute host.
    :param report: report.Report.
    :param reservations: client.Client.
    :param manager: nova.compute.manager.ComputeManager.
    """

    def __init__(self, host, report, reservations, manager):
        self._host = host
        self._report = report
        self._client = reservations
        self._manager = manager
        self._services = servicegroup.API()
        # What was read last: the time of the newest change, and the changes
        # of that second.
        self._since, self._seen, self._all = None, set(), 0
        #: UUIDs of instances that are still to be taken over.
        self._left = set()

    def go_on(self):
        """One round: take over what another host has left."""
        try:
            self._go_on(nova_context.get_admin_context())
        except (client.Failure, *adoption.PASSING) as e:
            LOG.warning('Host %s takes nothing over for now: %s', self._host,
                        e)

    def _go_on(self, ctxt):
        self._left |= self._changed()
        if not self._left:
            return
        known = {each.uuid: each.host
                 for each in objects.InstanceList.get_by_filters(
                     ctxt, {'uuid': list(self._left)}, expected_attrs=[])}
        for uuid in self._left - known.keys():
            LOG.warning('Host %s holds the machine of instance %s, which is '
                        'deleted, or in another cell and not taken over.',
                        self._host, uuid)
        others = {uuid: host for uuid, host in known.items()
                  if host not in (None, self._host)}
        self._left = set(others)
        down = {host for host in set(others.values())
                if self._is_down(ctxt, host)}
        for host in set(others.values()) - down:
            LOG.warning('Host %s was given servers of host %s, which is up: '
                        'it takes them over when that is down.', self._host,
                        host)
        ready = [uuid for uuid, host in others.items() if host in down]
        if not ready:
            return
        row = objects.ComputeNode.get_by_host_and_nodename(
            ctxt, self._host, self._host)
        # Only a new count has room for what was given to the host.
        self._report.look(None, fresh=True)
        placement.publish(self._manager.reportclient, row,
                          self._report.inventory)
        for uuid in ready:
            if adoption.bring(self._take, ctxt, uuid, row):
                self._left.discard(uuid)
                # What the other host was doing when it died ends as it would
                # have ended at its next start.
                self._manager._init_instance(
                    ctxt, objects.Instance.get_by_uuid(
                        ctxt, uuid, expected_attrs=[
                            'info_cache', 'metadata', 'numa_topology']))

    def _changed(self):
        """UUIDs of instances whose reservations are new to this host."""
        if time.monotonic() > self._all:
            self._since, self._seen = None, set()
            self._all = time.monotonic() + ALL_AGAIN
        found = self._client.changed(self._host, self._since)
        if not found:
            return set()
        new = set(found) - self._seen
        self._since = max(when for _, when in found)
        self._seen = {each for each in found if each[1] == self._since}
        return {uuid for uuid, _ in new}

    def _is_down(self, ctxt, host):
        service = objects.Service.get_by_compute_host(ctxt, host)
        return (service is None
                or not self._services.service_is_up(service))

    def _take(self, ctxt, instance, row):
        """Bring an instance to this host; the caller has its lock.

        :returns: whether it was done.
        """
        if not self._is_down(ctxt, instance.host):
            return False
        held = self._client.get(instance.uuid)
        if not held or held['host'] != self._host:
            return False
        if not placement.allocate(self._manager.reportclient, ctxt, instance,
                                  row.uuid):
            LOG.warning('Placement has no room for the instance yet',
                        instance=instance)
            return False
        LOG.info('Host %s takes the instance over from host %s', self._host,
                 instance.host, instance=instance)
        instance.host = instance.launched_on = self._host
        instance.node, instance.compute_id = row.hypervisor_hostname, row.id
        zone = self._zone(ctxt)
        if zone is not None:
            instance.availability_zone = zone
        instance.save()
        return True

    def _zone(self, ctxt):
        """The host's availability zone; None where it cannot be asked.

        Zones are in Nova's API database, which a cell may not know.
        """
        try:
            return availability_zones.get_host_availability_zone(
                ctxt, self._host)
        except Exception as e:
            LOG.info('The availability zone stays as it is: %s', e)
            return None
