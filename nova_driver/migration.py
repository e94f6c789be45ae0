# SPDX-License-Identifier: Apache-2.0
"""Migrates the servers of a host to its one compute node, and back.

The servers keep running, and Ironic's nodes are not changed. Three records
determine where an instance is. They change in this order, because each
requires the previous one:

1. The reservation. With it the host's inventory has room for the instance.
2. The allocation in Placement. Until it is moved, the instance must stay on
   the earlier compute node: Nova deletes one without instances together with
   their allocations.
3. The instance's ``node`` and ``compute_id``.

Each step can be repeated, so a host that was killed between two of them
continues when it is started again.
"""

from __future__ import annotations

from collections.abc import Callable
import time
from typing import Any

from nova import context as nova_context
from nova import objects
from nova.scheduler.client import report as report_client
from oslo_log import log as logging

from . import client
from . import mode
from . import placement
from . import reconciler
from . import report
from . import wanted

LOG = logging.getLogger(__name__)

#: Seconds between two checks of all instances, when the host has only its one
#: compute node.
ALL_AGAIN = 600


class Migration(reconciler.Reconciler):
    """Migrates the instances of a host to the compute nodes that it has now.

    :param get_mode: returns whether the host is in one-row mode; None while
        that is undecided.
    :param find_carriers: returns, in per-node mode, the UUIDs of nodes by the
        UUID of the instance that they carry.
    """

    def __init__(self, host: str, get_mode: Callable[[], bool | None],
                 host_report: report.Report, reservations: client.Client,
                 reportclient: report_client.SchedulerReportClient,
                 find_carriers: Callable[[], dict[str, str]]):
        super().__init__(host, host_report, reservations, reportclient)
        self._get_mode = get_mode
        self._find_carriers = find_carriers
        # When to check all instances again, on time.monotonic().
        self._next_check: float = 0

    def run_round(self) -> tuple[int, int]:
        """Migrate instances at rest, and leave the rest to the next round.

        :returns: how many instances were migrated, and how many are left.
        """
        ctxt, one_row = nova_context.get_admin_context(), self._get_mode()
        target = one_row is not None and mode.find_compute_node(
            self._host, self._host)
        if not target:
            return 0, 0
        consumers: dict[str, Any] = {}
        if one_row:
            # After a database was restored, an instance may be on a compute
            # node that does not exist, so check all of them from time to time.
            if (len(mode.find_compute_nodes(self._host)) == 1
                    and time.monotonic() < self._next_check):
                return 0, 0
        else:
            # An instance whose migration to the one compute node was
            # interrupted may have its allocation there. In the other
            # direction the driver restores it.
            consumers = placement.read_allocations(
                self._reportclient, target.uuid) or {}
        instances = [instance for instance in objects.InstanceList.get_by_host(
                         ctxt, self._host, expected_attrs=[])
                     if instance.node
                     and (instance.node != self._host) == one_row
                     or instance.uuid in consumers]
        if not instances:
            self._next_check = time.monotonic() + ALL_AGAIN
        ready = []
        for instance in instances:
            if placement.is_at_rest(instance):
                ready.append(instance.uuid)
            else:
                self.log_reason(
                    instance.uuid, f'Nova is working on it '
                    f'({instance.task_state or instance.vm_state})')
        if one_row:
            moves = self._migrate_to_host(ctxt, ready, target)
        else:
            moves = self._migrate_to_nodes(ctxt, ready)
        if moves:
            LOG.info('Host %s has migrated %d instances to %s; %d are left',
                     self._host, moves, 'its one compute node' if one_row
                     else 'the compute nodes of their nodes',
                     len(instances) - moves)
        return moves, len(instances) - moves

    def _migrate_to_host(
            self, ctxt: nova_context.RequestContext, uuids: list[str],
            compute_node: objects.ComputeNode) -> int:
        if self._report.partition is None:
            self._report.refresh(None)
        reserved = [uuid for uuid in uuids
                    if self.call_with_lock(ctxt, uuid, self._adopt)]
        if not reserved:
            return 0
        self.report_capacity(compute_node)
        return sum(self.call_with_lock(ctxt, uuid, self._move, compute_node)
                   for uuid in reserved)

    def _adopt(self, ctxt: nova_context.RequestContext,
               instance: objects.Instance) -> bool:
        """Reserve the node of an instance for the host."""
        partition = self._report.partition
        if partition is None or not self._is_ready(instance):
            return False
        request = wanted.make_adopt_request(instance, self._host, partition)
        try:
            reservation = self._client.adopt(request)
        except client.NotFound:
            self.log_reason(instance.uuid, 'no node carries it: delete it')
            return False
        except (client.Conflict, client.Refused) as e:
            self.log_reason(instance.uuid,
                            f'its node could not be adopted: {e}')
            return False
        wanted.warn_of_ignored_specs(request, reservation.get('ignored', ()))
        return True

    def _migrate_to_nodes(self, ctxt: nova_context.RequestContext,
                          uuids: list[str]) -> int:
        carriers, moves = self._find_carriers(), 0
        for uuid in uuids:
            compute_node = uuid in carriers and mode.find_compute_node(
                self._host, carriers[uuid])
            if compute_node:
                moves += self.call_with_lock(ctxt, uuid, self._move_to_node,
                                             compute_node)
            else:
                self.log_reason(
                    uuid, 'this host has no compute node of its node: has the '
                          'node left its conductor group or shard?')
        return moves

    def _move_to_node(self, ctxt: nova_context.RequestContext,
                      instance: objects.Instance,
                      compute_node: objects.ComputeNode) -> bool:
        """Move an instance to the compute node of its node.

        Nova reports a node that carries an instance as reserved, and Placement
        would refuse an allocation. Restore that afterwards, so that the node
        is not allocated while it is cleaned after the instance's end.
        """
        before = placement.update_inventory(
            self._reportclient, compute_node, _remove_reserved)
        try:
            return self._move(ctxt, instance, compute_node,
                              dict.fromkeys(before, 1))
        finally:
            placement.update_inventory(self._reportclient, compute_node,
                                       lambda _: before)

    def _move(self, ctxt: nova_context.RequestContext,
              instance: objects.Instance, compute_node: objects.ComputeNode,
              resources: dict[str, int] | None = None) -> bool:
        """Move an instance to a compute node.

        :param resources: see placement.allocate.
        """
        if not (self._is_ready(instance) and self.move_allocation(
                ctxt, instance, compute_node, resources)):
            return False
        with self.record_action(ctxt, instance, 'adopt' if instance.node
                                == self._host else 'switch-back'):
            instance.save(expected_task_state=[None])
        return True

    def _is_ready(self, instance: objects.Instance) -> bool:
        return (instance.host == self._host
                and placement.is_at_rest(instance))


def _remove_reserved(inventory: dict[str, Any]) -> dict[str, Any]:
    return {name: {**amounts, 'reserved': 0}
            for name, amounts in inventory.items()}
