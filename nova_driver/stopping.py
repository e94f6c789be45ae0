# SPDX-License-Identifier: Apache-2.0
"""A process that is told to stop ends as soon as another can go on.

Nova stops to listen, and waits for what it has begun, up to two minutes
(``[DEFAULT] manager_shutdown_timeout``). A deployment may take longer, and
needs nobody who waits for it: the next process of the host takes it up.
"""

import os
import threading
import time

from oslo_log import log as logging

from . import restart

LOG = logging.getLogger(__name__)

#: Seconds between two looks whether only deployments are in progress.
PAUSE = 1

#: What Nova calls the tasks that deploy.
_DEPLOYING = 'build_instance', 'rebuild_instance'


class Stopping:
    """Looks at what a process does that is told to stop.

    Nova has no hook for that, so two attributes of the manager are read,
    which endings.PRIVATE names.

    :param host: the name of the compute host.
    :param reservations: client.Client.
    :param manager: nova.compute.manager.ComputeManager.
    :param lease: lease.Lease, or None without a standby.
    """

    def __init__(self, host, reservations, manager, lease):
        self._host = host
        self._client = reservations
        self._manager = manager
        self._lease = lease

    def watch(self):
        """Have a thread wait until the process is told to stop."""
        if restart.SUPPORTED:
            threading.Thread(target=self._watch, name='stopping',
                             daemon=True).start()

    def give_up_lease(self):
        """Let another process be the host, when Nova has waited enough.

        What is still in progress may write to Ironic until the lease expires,
        and only then may another process acquire it. The process ends at that
        moment: its threads would wait for a lease, and Nova for them.
        """
        if self._lease is None:
            return
        if not (restart.SUPPORTED and self._tasks()):
            self._lease.give_up()
            return
        timer = threading.Timer(self._lease.lapse(), self._end,
                                ['its lease has expired'])
        timer.daemon = True
        timer.start()

    def _watch(self):
        self._manager._shutdown_in_progress.wait()
        while not self._may_end():
            time.sleep(PAUSE)
        if self._lease is not None:
            self._lease.give_up()
        self._end('Ironic deploys what is in progress, and the next process '
                  'takes it up.')

    def _end(self, why):
        LOG.info('This process of host %s ends: %s', self._host, why)
        end()

    def _tasks(self):
        return list(self._manager._in_progress_tasks.values())

    def _may_end(self):
        """Whether all that is in progress was accepted by Ironic.

        Where nothing is in progress, Nova itself ends.
        """
        tasks = self._tasks()
        if not tasks or any(each['name'] not in _DEPLOYING for each in tasks):
            return False
        try:
            deploying = restart.deploying(self._client, self._host)
        # The thread must not end, whatever Ironic answers.
        except Exception as e:
            LOG.debug('What host %s deploys is not known: %r', self._host, e)
            return False
        return all(each['instance_uuid'] in deploying for each in tasks)


def end():
    """End the process, without an error and without waiting."""
    os._exit(0)
