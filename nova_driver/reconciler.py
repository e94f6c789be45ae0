# SPDX-License-Identifier: Apache-2.0
"""What a thread of the driver does again and again, until it is done."""

import contextlib
import threading
import time

from nova import exception
from nova import objects
from nova import utils
from nova.compute import utils as compute_utils
from oslo_log import log as logging

from . import placement

LOG = logging.getLogger(__name__)

#: The longest pause between two rounds that bring nothing, in seconds.
LONGEST = 60


class Worker:
    """A thread of the driver's own that calls a function at intervals.

    :ivar work: the function, without arguments. A caller that cannot wait
        for the thread may call it, too; tests do so.
    """

    def __init__(self, work):
        self.work = work
        self._stopped = threading.Event()

    def start(self, host, interval):
        """Start the thread.

        :param host: the compute host, for the log.
        :param interval: seconds between two calls.
        """
        # A daemon, because a process whose start has failed must end; a
        # looping call of oslo.service would keep it alive.
        threading.Thread(target=self._keep_working, args=[host, interval],
                         name='reservations', daemon=True).start()

    def stop(self):
        self._stopped.set()

    def _keep_working(self, host, interval):
        while not self._stopped.wait(interval):
            try:
                self.work()
            except Exception:
                LOG.exception('Host %s goes on after this', host)


class Reconciler:
    """Rounds of bringing instances somewhere; subclasses have ``round``.

    What fails is left to a later round, what is left is said once, and rounds
    that bring nothing come less and less often.

    :param host: the name of the compute host.
    :param report: report.Report.
    :param reservations: client.Client.
    :param reportclient: nova.scheduler.client.report.SchedulerReportClient.
    """

    def __init__(self, host, report, reservations, reportclient):
        self._host = host
        self._report = report
        self._client = reservations
        self._reportclient = reportclient
        self._next = self._pause = 0
        # What was said of each instance in the round before, and in this one.
        self._said, self._saying = {}, {}

    def go_on(self):
        """Do a round, if one is due."""
        if time.monotonic() < self._next:
            return
        self._saying = {}
        try:
            done, left = self.round()
        # Whatever it is must not end the thread, and passes in most cases.
        except Exception as e:
            done, left = 0, True
            self._tell_error(None, e)
        self._said = self._saying
        self._pause = min(2 * self._pause + 1, LONGEST) if (
            left and not done) else 0
        self._next = time.monotonic() + self._pause

    def tell(self, instance_uuid, why):
        """Say why an instance stays where it is, or, for None, all do."""
        self._saying[instance_uuid] = why
        if self._said.get(instance_uuid) != why:
            LOG.warning('%s where it is for now: %s', 'Everything stays'
                        if instance_uuid is None else
                        f'Instance {instance_uuid} stays', why)

    def _tell_error(self, instance_uuid, error):
        self.tell(instance_uuid, str(error) or repr(error))
        LOG.debug('Where it was raised:', exc_info=True)

    def make_room(self, row):
        """Report what the host holds since, so that Placement allocates it.

        Only a new count has it.

        :param row: nova.objects.ComputeNode of the host.
        """
        self._report.look(None, fresh=True)
        placement.publish(self._reportclient, row, self._report.inventory)

    def put_on_row(self, ctxt, instance, row, resources=None):
        """Have an instance allocated on a row and know that row, unsaved.

        :param resources: see placement.allocate.
        :returns: whether it is; if not, it is said why.
        """
        refusal = placement.allocate(self._reportclient, ctxt, instance,
                                     row.uuid, resources)
        if refusal:
            self.tell(instance.uuid, refusal)
            return False
        instance.node, instance.compute_id = row.hypervisor_hostname, row.id
        return True

    @contextlib.contextmanager
    def recorded(self, ctxt, instance, action):
        """Have Nova tell in its history of the server what is done here.

        That is ``openstack server event list``; the request ID is that of the
        context, which the line of the log has, too.

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

    def locked(self, ctxt, instance_uuid, do, *args):
        """Do something to an instance under Nova's own lock of it.

        :param do: function of the context, of the instance as it is then, and
            of ``args``.
        :returns: what it returns; False when it fails.
        :raises: client.Failure when Ironic does not answer, because then it
            answers for no other instance either.
        """
        @utils.synchronized(instance_uuid)
        def with_lock():
            return do(ctxt, objects.Instance.get_by_uuid(
                ctxt, instance_uuid,
                expected_attrs=['flavor', 'system_metadata']), *args)

        try:
            return with_lock()
        except exception.InstanceNotFound:
            return False  # It has just been deleted.
        except Exception as e:
            if getattr(e, 'busy', False):
                raise
            # One instance must not keep the others from going on.
            self._tell_error(instance_uuid, e)
            return False
