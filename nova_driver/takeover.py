# SPDX-License-Identifier: Apache-2.0
"""Takes over servers that were moved to this host from one that is down.

A server belongs to the host in its reservation: writing another host there
decides the move. That host then moves the allocation and the instance to its
own compute node. The machine itself does not change.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
import datetime
import functools
import time
from typing import TYPE_CHECKING
from typing import Any

from nova import availability_zones
from nova import context as nova_context
from nova import exception
from nova import objects
from nova import servicegroup
from nova import utils
from nova.compute import build_results
from nova.compute import task_states
from nova.compute import vm_states
from oslo_log import log as logging

from . import client
from . import mode
from . import placement
from . import reconciler
from . import report
from . import restart

if TYPE_CHECKING:
    from nova.compute import manager as compute_manager

LOG = logging.getLogger(__name__)

#: Seconds between two checks of all reservations of the host, not only of the
#: recent changes. The recent changes are incomplete if the database's clock
#: was set back.
ALL_AGAIN = 600

#: How far back to read changes: a change becomes visible after its timestamp,
#: when its transaction is committed and the member of the cluster has it.
LAG = datetime.timedelta(seconds=30)

#: Seconds after a start within which requests are received from the host's
#: queue. Later, a request is considered lost, for example because the message
#: bus has failed.
QUEUE_TIMEOUT = 300

#: Tasks that users have requested, and no host has begun.
QUEUED_TASKS = (task_states.REBOOTING, task_states.REBOOTING_HARD,
                task_states.REBUILDING)

#: The ``vm_state`` and ``task_state`` of an instance: they change when a new
#: operation begins.
State = tuple[str, str | None]

# Nova's methods that end these tasks acquire the lock of the instance.
_LOCKING = {task_states.POWERING_OFF, *task_states.soft_reboot_states,
            *task_states.hard_reboot_states}


class Takeover(reconciler.Reconciler):
    """Moves instances that this host now holds to its compute node.

    :param wait: returns when this process certainly serves the host.
    """

    def __init__(self, host: str, host_report: report.Report,
                 reservations: client.Client,
                 manager: compute_manager.ComputeManager,
                 wait: Callable[[], None], completer: restart.Completer):
        super().__init__(host, host_report, reservations,
                         manager.reportclient)
        self._manager = manager
        self._init_instance = manager._init_instance
        self._wait = wait
        self._completer = completer
        self._services = servicegroup.API()
        # Time of the last change by instance, and when to read all
        # reservations again.
        self._changes: dict[str, datetime.datetime] = {}
        self._next_full_read: float = 0
        # UUIDs of instances to take over.
        self._candidates: set[str] = set()
        # Instances that were taken over. Their interrupted tasks have to be
        # ended, unless their state changes.
        self._interrupts: dict[str, State] = {}
        # Instances whose tasks this host may still begin, and until when.
        self._waiting: dict[str, State] = {}
        self._waiting_end: float = 0

    def adapt_manager(self, tasks: Collection[str]) -> None:
        """Patch how Nova's manager begins builds, and initializes instances.

        When Nova initializes an instance, it may repeat a reboot. If Ironic
        reports the new power state of the machine then, Nova looks for the
        event of the reboot in the action of that report, and would exit.

        :param tasks: see ``wait_for_tasks``.
        """
        init_instance = self._init_instance
        build = self._manager._do_build_and_run_instance

        @functools.wraps(init_instance)
        def _init_instance(context: nova_context.RequestContext,
                           instance: objects.Instance) -> None:
            for visible in self.wait_for_tasks([instance], tasks):
                try:
                    init_instance(context, visible)
                except exception.InstanceActionEventNotFound as e:
                    LOG.warning('Could not record the end of a reboot: %s', e,
                                instance=instance)

        @functools.wraps(build)
        def _do_build_and_run_instance(
                context: nova_context.RequestContext,
                instance: objects.Instance, *args: Any, **kwargs: Any) -> str:
            if self._is_ended(instance.uuid):
                LOG.warning('Host %s does not begin this build, which a move '
                            'has ended', self._host, instance=instance)
                # Nova neither deletes an allocation, nor counts a failure.
                return build_results.FAILED_BY_POLICY
            result: str = build(context, instance, *args, **kwargs)
            return result

        self._manager._init_instance = _init_instance
        self._manager._do_build_and_run_instance = _do_build_and_run_instance

    def _is_ended(self, uuid: str) -> bool:
        """Return whether a build was ended while it was in the host's queue.

        Nova before 34 also sets such a build to ERROR when it starts, but does
        not delete its allocation.
        """
        ctxt = nova_context.get_admin_context()
        try:
            instance = objects.Instance.get_by_uuid(ctxt, uuid,
                                                    expected_attrs=[])
        except exception.InstanceNotFound:
            return False  # Nova handles that.
        if instance.host is not None or instance.vm_state != vm_states.ERROR:
            return instance.host not in (None, self._host)
        compute_node = mode.find_compute_node(self._host, self._host)
        try:
            return (compute_node is not None and compute_node.uuid not in
                    self._reportclient.get_allocs_for_consumer(
                        ctxt, uuid)['allocations'])
        except exception.ConsumerAllocationRetrievalFailed:
            # Do not begin a build that may have been ended.
            return True

    def wait_for_tasks(self, instances: Collection[objects.Instance],
                       tasks: Collection[str]) -> list[objects.Instance]:
        """Wait for the requests for tasks that no host has begun.

        Tasks that this host does not begin in time are ended.

        :returns: the instances without these tasks.
        """
        self._waiting |= {instance.uuid: _get_state(instance)
                          for instance in instances
                          if instance.task_state in tasks}
        self._waiting_end = time.monotonic() + QUEUE_TIMEOUT
        return [instance for instance in instances
                if instance.uuid not in self._waiting]

    def continue_work(self) -> None:
        if self._waiting and time.monotonic() > self._waiting_end:
            self._interrupts |= self._waiting
            self._waiting = {}
        try:
            self._read_changes()
        except client.Failure as e:
            # The periodic task logs it at a higher level, less often.
            LOG.debug('Could not read the changes of host %s: %s',
                      self._host, e)
        if self._candidates or self._interrupts:
            super().continue_work()

    def _read_changes(self) -> None:
        """Add the instances whose reservations have changed.

        A round with a new instance is due at once.
        """
        if time.monotonic() > self._next_full_read:
            self._changes = {}
            self._next_full_read = time.monotonic() + ALL_AGAIN
        newest = max(self._changes.values(), default=None)
        changes = dict(self._client.list_changes(
            self._host, newest and newest - LAG))
        new = {uuid for uuid, when in changes.items()
               if self._changes.get(uuid) != when}
        self._changes = changes
        if new - self._candidates:
            self.pacer.reset()
        self._candidates |= new

    def run_round(self) -> tuple[int, int]:
        """Take over instances of hosts that are down.

        :returns: how many instances were taken over, and how many are left.
        """
        ctxt = nova_context.get_admin_context()
        hosts = {instance.uuid: instance.host
                 for instance in objects.InstanceList.get_by_filters(
                     ctxt, {'uuid': list(self._candidates)}, expected_attrs=[])
                 } if self._candidates else {}
        self._candidates = {
            uuid for uuid in self._candidates
            if hosts.get(uuid, '') not in (None, self._host)
            and self._is_ours(uuid, uuid in hosts)}
        down = {host for host in {hosts[uuid] for uuid in self._candidates}
                if self._is_down(ctxt, host)}
        # An instance with an allocation here was taken over before, but then
        # its earlier host saved itself as the host: see _take_over.
        compute_node = self._candidates and mode.find_compute_node(
            self._host, self._host)
        consumers = (placement.read_allocations(
            self._reportclient, compute_node.uuid) or {}
            if compute_node else {})
        ready = [uuid for uuid in self._candidates
                 if hosts[uuid] in down or uuid in consumers]
        for uuid in self._candidates.difference(ready):
            self.log_reason(uuid, f'it was moved to host {self._host}, but '
                                  f'host {hosts[uuid]} is up')
        moves = self._take_over_all(ctxt, ready, compute_node, consumers
                                    ) if ready else 0
        self._end_tasks(ctxt)
        return moves, len(self._candidates) + len(self._interrupts)

    def _is_ours(self, uuid: str, exists: bool) -> bool:
        """Return whether this host is to take over an instance.

        :param exists: whether the instance is in this cell of Nova.
        """
        reservation = self._client.get_now(uuid)
        if not reservation or reservation['host'] != self._host:
            return False
        if not exists and reservation['state'] != 'releasing':
            self.log_reason(uuid, f'host {self._host} holds its machine, but '
                                  f'it is deleted, or in another cell')
        return exists

    def _take_over_all(self, ctxt: nova_context.RequestContext,
                       uuids: list[str], compute_node: objects.ComputeNode,
                       consumers: Collection[str]) -> int:
        self.report_capacity(compute_node)
        moves = {uuid for uuid in uuids
                 if self.call_with_lock(ctxt, uuid, self._take_over,
                                        compute_node, consumers)}
        self._candidates -= moves
        return len(moves)

    def _end_tasks(self, ctxt: nova_context.RequestContext) -> None:
        """End tasks that the other host was working on when it died.

        They end as they would have at that host's next start. That may take
        as long as a tear-down, so all instances are moved first.
        """
        for uuid, before in list(self._interrupts.items()):
            end = self._end_task
            if before[1] not in _LOCKING:
                end = utils.synchronized(uuid)(end)
            try:
                self._wait()
                end(ctxt, uuid, before)
            except exception.InstanceNotFound:
                pass  # It has been deleted.
            except Exception as e:
                self.log_reason(uuid, f'its task could not be ended: {e!r}')
                continue
            del self._interrupts[uuid]

    def _end_task(self, ctxt: nova_context.RequestContext, uuid: str,
                  before: State) -> None:
        instance = objects.Instance.get_by_uuid(
            ctxt, uuid, expected_attrs=[
                'info_cache', 'metadata', 'numa_topology'])
        # If it has changed, this host is working on another task.
        if _get_state(instance) == before:
            for rest in self._completer.hide([instance]):
                self._init_instance(ctxt, rest)

    def _is_down(self, ctxt: nova_context.RequestContext, host: str) -> bool:
        try:
            return not self._services.service_is_up(
                objects.Service.get_by_compute_host(ctxt, host))
        except exception.ComputeHostNotFound:
            return True  # It was deleted from Nova.

    def _take_over(self, ctxt: nova_context.RequestContext,
                   instance: objects.Instance,
                   compute_node: objects.ComputeNode,
                   consumers: Collection[str]) -> bool:
        """Move an instance to this host.

        This process may be stopped between any two steps, and the instance
        moved to another host. If this process then saves itself as the host,
        the other host repairs that, because it has the allocation.

        :param consumers: UUIDs of consumers with earlier allocations of this
            host.
        :returns: whether it was moved.
        """
        self._wait()
        if (instance.host is None or not self._is_held_here(instance)
                or not (instance.uuid in consumers
                        or self._is_down(ctxt, instance.host))):
            return False
        if not self.move_allocation(ctxt, instance, compute_node):
            return False
        zone = self._get_zone(ctxt)
        if not self._is_held_here(instance):
            return False
        LOG.info('Host %s takes over the instance from host %s', self._host,
                 instance.host, instance=instance, context=ctxt)
        instance.host = instance.launched_on = self._host
        if zone is not None:
            instance.availability_zone = zone
        with self.record_action(ctxt, instance, 'takeover'):
            instance.save()
        # An instance at rest has no task to end, and Nova would read its
        # power state from Ironic.
        if (not placement.is_at_rest(instance)
                or instance.vm_state == vm_states.DELETED):
            self._interrupts[instance.uuid] = _get_state(instance)
        if not self._is_held_here(instance):
            self._interrupts.pop(instance.uuid, None)
            self.log_reason(instance.uuid, 'it was moved to another host '
                                           'during the takeover')
            return False
        self._update_requested_zone(ctxt, instance.uuid, zone)
        return True

    def _is_held_here(self, instance: objects.Instance) -> bool:
        """Return whether this process's host holds an instance's machine."""
        self._wait()
        reservation = self._client.get_now(instance.uuid)
        return reservation is not None and reservation['host'] == self._host

    def _update_requested_zone(self, ctxt: nova_context.RequestContext,
                               uuid: str, zone: str | None) -> None:
        """Replace the zone that the user requested by the server's new zone.

        Nova keeps a server in the requested zone, but an operator has moved
        this server to another zone with --force.
        """
        if zone is None:
            return
        try:
            spec = objects.RequestSpec.get_by_instance_uuid(ctxt, uuid)
            if spec.availability_zone not in (None, zone):
                spec.availability_zone = zone
                spec.save()
        except Exception as e:
            LOG.info('Could not update the requested availability zone of '
                     'instance %s: %s', uuid, e)

    def _get_zone(self, ctxt: nova_context.RequestContext) -> str | None:
        """Return the host's availability zone, or None.

        Zones are in Nova's API database, which a cell may not have access to.
        """
        try:
            return availability_zones.get_host_availability_zone(
                ctxt, self._host)
        except Exception as e:
            LOG.info('Could not read the availability zone: %s', e)
            return None


def _get_state(instance: objects.Instance) -> State:
    return instance.vm_state, instance.task_state
