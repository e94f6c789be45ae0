# SPDX-License-Identifier: Apache-2.0
"""A host takes over servers that it was given, from another that is down.

A server belongs to the host that holds its machine in Ironic: when another
host is written into the reservation, the move is decided. That host then
brings the allocation and the instance to its own row. The machine itself does
not change.
"""

import datetime
import time

from nova import availability_zones
from nova import context as nova_context
from nova import exception
from nova import objects
from nova import servicegroup
from nova import utils
from nova.compute import task_states
from nova.compute import vm_states
from oslo_log import log as logging

from . import client
from . import mode
from . import placement
from . import reconciler

LOG = logging.getLogger(__name__)

#: Seconds after which all reservations of the host are looked at again, and
#: not only those that have changed since the last look. It finds what a
#: database has written whose clock was set back.
ALL_AGAIN = 600

#: What has changed is read so far back, because a change is seen some time
#: after the time that it bears: when its transaction is over, and on a member
#: of a cluster that lags behind.
LAG = datetime.timedelta(seconds=30)

# Nova's own methods that end these tasks take the lock of the instance.
_LOCKING = {task_states.POWERING_OFF, *task_states.soft_reboot_states,
            *task_states.hard_reboot_states}


class Takeover(reconciler.Reconciler):
    """Brings the instances whose machines a host was given to this host.

    The other parameters are those of Reconciler.

    :param manager: nova.compute.manager.ComputeManager.
    :param wait: function without arguments that returns when this process is
        certainly the host.
    :param unfinished: restart.Unfinished.
    """

    def __init__(self, host, report, reservations, manager, wait, unfinished):
        super().__init__(host, report, reservations, manager.reportclient)
        self._manager = manager
        self._wait = wait
        self._unfinished = unfinished
        self._services = servicegroup.API()
        # The changes that were seen of late, and when all are read again.
        self._seen, self._all = {}, 0
        #: UUIDs of instances that are to be taken over, and by UUID the
        #: ``_state`` of those that were, and whose interrupted tasks are to be
        #: ended unless that has changed.
        self._left, self._taken = set(), {}
        # The same of instances whose tasks this host may still begin, and
        # until when.
        self._later, self._late = {}, 0

    def end_later(self, instances, seconds):
        """End the tasks of instances that this host has not begun by then."""
        self._later = {each.uuid: _state(each) for each in instances}
        self._late = time.monotonic() + seconds

    def go_on(self):
        if self._later and time.monotonic() > self._late:
            self._taken |= self._later
            self._later = {}
        try:
            self._look()
        except client.Failure as e:
            # The periodic task says so, too, and less often.
            LOG.debug('What host %s was given is not known: %s', self._host,
                      e)
        if self._left or self._taken:
            super().go_on()

    def _look(self):
        """Note the instances whose reservations are new to this host.

        A round that has something new is due at once.
        """
        if time.monotonic() > self._all:
            self._seen, self._all = {}, time.monotonic() + ALL_AGAIN
        newest = max(self._seen.values(), default=None)
        found = dict(self._client.changed(
            self._host, newest and newest - LAG))
        new = {uuid for uuid, when in found.items()
               if self._seen.get(uuid) != when}
        self._seen = found
        if new - self._left:
            self._next = self._pause = 0
        self._left |= new

    def round(self):
        """Take over what another host has left.

        :returns: how many instances were taken over, and how many are left.
        """
        ctxt = nova_context.get_admin_context()
        known = {each.uuid: each.host
                 for each in objects.InstanceList.get_by_filters(
                     ctxt, {'uuid': list(self._left)}, expected_attrs=[])
                 } if self._left else {}
        self._left = {uuid for uuid in self._left
                      if known.get(uuid, '') not in (None, self._host)
                      and self._is_ours(uuid, uuid in known)}
        down = {host for host in {known[uuid] for uuid in self._left}
                if self._is_down(ctxt, host)}
        # What is allocated here already was taken over, and another host has
        # saved afterwards that it has it: see _take.
        row = self._left and mode.row(self._host, self._host)
        here = (placement.read(self._reportclient, row.uuid) or {}
                if row else {})
        ready = [uuid for uuid in self._left
                 if known[uuid] in down or uuid in here]
        for uuid in self._left.difference(ready):
            self.tell(uuid, f'its machine was given to host {self._host}, '
                            f'but host {known[uuid]} is up')
        done = self._take_all(ctxt, ready, row, here) if ready else 0
        self._end_tasks(ctxt)
        return done, len(self._left) + len(self._taken)

    def _is_ours(self, uuid, known):
        """Say whether the host is to have an instance.

        :param known: whether this cell of Nova has the instance.
        """
        held = self._client.get_now(uuid)
        if not held or held['host'] != self._host:
            return False
        if not known and held['state'] != 'releasing':
            self.tell(uuid, f'host {self._host} holds its machine, but it is '
                            f'deleted, or in another cell')
        return known

    def _take_all(self, ctxt, ready, row, here):
        self.make_room(row)
        done = {uuid for uuid in ready
                if self.locked(ctxt, uuid, self._take, row, here)}
        self._left -= done
        return len(done)

    def _end_tasks(self, ctxt):
        """End what the other host was doing to instances when it died.

        It ends as it would have at that host's next start. That may take as
        long as a tear-down, so all instances are brought over before it.
        """
        for uuid, before in list(self._taken.items()):
            end = self._end_task
            if before[1] not in _LOCKING:
                end = utils.synchronized(uuid)(end)
            try:
                self._wait()
                end(ctxt, uuid, before)
            except exception.InstanceNotFound:
                pass  # It has been deleted meanwhile.
            except Exception as e:
                self.tell(uuid, f'its task is not ended: {e!r}')
                continue
            del self._taken[uuid]

    def _end_task(self, ctxt, uuid, before):
        instance = objects.Instance.get_by_uuid(
            ctxt, uuid, expected_attrs=[
                'info_cache', 'metadata', 'numa_topology'])
        # What a user has begun since is this host's own.
        if _state(instance) == before:
            for each in self._unfinished.keep_back([instance]):
                self._manager._init_instance(ctxt, each)

    def _is_down(self, ctxt, host):
        try:
            return not self._services.service_is_up(
                objects.Service.get_by_compute_host(ctxt, host))
        except exception.ComputeHostNotFound:
            return True  # Nova does not know it any more.

    def _take(self, ctxt, instance, row, here):
        """Bring an instance to this host.

        This process may be stopped between any two steps, and the instance
        given to another host meanwhile. What is saved then nevertheless, that
        host mends: it finds that the instance is allocated to itself.

        :param here: UUIDs of what was allocated to this host before.
        :returns: whether it was done.
        """
        self._wait()
        if (instance.host is None or not self._holds(instance)
                or not (instance.uuid in here
                        or self._is_down(ctxt, instance.host))):
            return False
        if not self.put_on_row(ctxt, instance, row):
            return False
        zone = self._zone(ctxt)
        if not self._holds(instance):
            return False
        LOG.info('Host %s takes the instance over from host %s', self._host,
                 instance.host, instance=instance, context=ctxt)
        instance.host = instance.launched_on = self._host
        if zone is not None:
            instance.availability_zone = zone
        with self.recorded(ctxt, instance, 'takeover'):
            instance.save()
        # At rest there is nothing to end, and Nova would ask Ironic for the
        # power state of each.
        if (not placement.is_at_rest(instance)
                or instance.vm_state == vm_states.DELETED):
            self._taken[instance.uuid] = _state(instance)
        if not self._holds(instance):
            self._taken.pop(instance.uuid, None)
            self.tell(instance.uuid, 'it was given to another host while '
                                     'this one took it over')
            return False
        self._change_zone_asked_for(ctxt, instance.uuid, zone)
        return True

    def _holds(self, instance):
        """Whether this process holds an instance's machine for its host."""
        self._wait()
        held = self._client.get_now(instance.uuid)
        return bool(held) and held['host'] == self._host

    def _change_zone_asked_for(self, ctxt, uuid, zone):
        """Have Nova look for hosts in the zone that the server is in now.

        A user who has asked for a zone gets it until the end of the server,
        but an operator has moved this one to another zone with --force.
        """
        if zone is None:
            return
        try:
            asked = objects.RequestSpec.get_by_instance_uuid(ctxt, uuid)
            if asked.availability_zone not in (None, zone):
                asked.availability_zone = zone
                asked.save()
        except Exception as e:
            LOG.info('The availability zone that was asked for instance %s '
                     'stays as it is: %s', uuid, e)

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


def _state(instance):
    """By which it is seen that something was begun with an instance."""
    return instance.vm_state, instance.task_state
