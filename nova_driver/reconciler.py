# SPDX-License-Identifier: Apache-2.0
"""The driver's thread, and rounds of moving instances to a compute node."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import threading
from typing import Any

from nova import context as nova_context
from nova import exception
from nova import objects
from nova import utils
from nova.compute import utils as compute_utils
from nova.scheduler.client import report as report_client
from oslo_log import log as logging

from . import client
from . import placement
from . import report
from . import timing

LOG = logging.getLogger(__name__)


class Worker:
    """A thread that calls a function at intervals.

    :ivar work: the function. Tests that do not wait for the thread call it.
    """

    def __init__(self, work: Callable[[], None]):
        self.work = work
        self._stop = threading.Event()

    def start(self, host: str, interval: float) -> None:
        """Start the thread.

        :param host: the compute host, for the log.
        :param interval: seconds between two calls.
        """
        # A daemon, because a process must end if its start fails; a looping
        # call of oslo.service would keep it alive.
        threading.Thread(target=self._keep_working, args=[host, interval],
                         name='reservations', daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def _keep_working(self, host: str, interval: float) -> None:
        while not self._stop.wait(interval):
            try:
                self.work()
            except Exception:
                LOG.exception('Error in the thread of host %s; will retry',
                              host)


class Reconciler:
    """Rounds of moving instances to a compute node, until none is left.

    Subclasses implement ``run_round``. Failures are retried in a later round,
    each reason is logged once, and the pauses between rounds without progress
    increase.

    :param host: the name of the compute host.
    :ivar pacer: decides when ``continue_work`` runs a round.
    """

    def __init__(self, host: str, host_report: report.Report,
                 reservations: client.Client,
                 reportclient: report_client.SchedulerReportClient):
        self._host = host
        self._report = host_report
        self._client = reservations
        self._reportclient = reportclient
        self.pacer = timing.Pacer()
        # Reasons by instance, logged in the last round and in this one.
        self._last_reasons: dict[str | None, str] = {}
        self._reasons: dict[str | None, str] = {}

    def run_round(self) -> tuple[int, int]:
        """Move instances.

        :returns: how many were moved, and how many are left.
        """
        raise NotImplementedError

    def continue_work(self) -> None:
        """Run a round, if one is due."""
        if not self.pacer.is_due():
            return
        self._reasons = {}
        try:
            moves, remainder = self.run_round()
        # No error may end the thread, and most are temporary.
        except Exception as e:
            moves, remainder = 0, 1
            self._log_error(None, e)
        self._last_reasons = self._reasons
        self.pacer.wait(has_stalled=bool(remainder and not moves))

    def log_reason(self, instance_uuid: str | None, reason: str) -> None:
        """Log why an instance was not moved.

        :param instance_uuid: None if no instance was moved.
        """
        self._reasons[instance_uuid] = reason
        if self._last_reasons.get(instance_uuid) != reason:
            LOG.warning('%s not moved; will retry: %s', 'Instances were'
                        if instance_uuid is None else
                        f'Instance {instance_uuid} was', reason)

    def _log_error(self, instance_uuid: str | None, error: Exception) -> None:
        self.log_reason(instance_uuid, str(error) or repr(error))
        LOG.debug('Traceback:', exc_info=True)

    def report_capacity(self, compute_node: objects.ComputeNode) -> None:
        """Report the nodes that the host now holds to Placement.

        Placement can then allocate them. The count must not be cached.

        :param compute_node: the host's.
        """
        self._report.refresh(None, fresh=True)
        placement.update_inventory(self._reportclient, compute_node,
                                   self._report.inventory)

    def move_allocation(self, ctxt: nova_context.RequestContext,
                        instance: objects.Instance,
                        compute_node: objects.ComputeNode,
                        resources: dict[str, int] | None = None) -> bool:
        """Move an instance's allocation, and set its compute node, unsaved.

        :param resources: see placement.allocate.
        :returns: whether it was moved; if not, the reason is logged.
        """
        refusal = placement.allocate(self._reportclient, ctxt, instance,
                                     compute_node.uuid, resources)
        if refusal:
            self.log_reason(instance.uuid, refusal)
            return False
        instance.node = compute_node.hypervisor_hostname
        instance.compute_id = compute_node.id
        return True

    @contextlib.contextmanager
    def record_action(self, ctxt: nova_context.RequestContext,
                      instance: objects.Instance,
                      action: str) -> Iterator[None]:
        """Record an action in Nova's history of the server.

        See ``openstack server event list``. The request ID is that of the
        context, as in the log.

        :param action: such as ``takeover``.
        """
        objects.InstanceAction.action_start(
            ctxt, instance.uuid, action, want_result=False)
        with compute_utils.EventReporter(
                ctxt, f'compute_{action.replace("-", "_")}', self._host,
                instance.uuid):
            yield
        objects.InstanceAction.action_finish(
            ctxt, instance.uuid, want_result=False)

    def call_with_lock(self, ctxt: nova_context.RequestContext,
                       instance_uuid: str, function: Callable[..., bool],
                       *args: Any) -> bool:
        """Call a function of an instance under Nova's lock of it.

        :param function: its parameters are the context, the instance, read
            under the lock, and ``args``.
        :returns: its result; False after an error.
        :raises: client.Failure when Ironic does not respond, because the calls
            for the other instances would also fail.
        """
        @utils.synchronized(instance_uuid)
        def with_lock() -> bool:
            return function(ctxt, objects.Instance.get_by_uuid(
                ctxt, instance_uuid,
                expected_attrs=['flavor', 'system_metadata']), *args)

        try:
            return with_lock()
        except exception.InstanceNotFound:
            return False  # It has just been deleted.
        except Exception as e:
            if getattr(e, 'busy', False):
                raise
            # A failing instance must not block other instances.
            self._log_error(instance_uuid, e)
            return False
