# SPDX-License-Identifier: Apache-2.0
"""Ends a stopping process as soon as another process can take over.

When Nova is stopped, it takes no more requests, and waits up to two minutes
for those in progress (``[DEFAULT] manager_shutdown_timeout``). A deployment
may take longer, but no process has to wait for it: the next process of the
host completes it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from typing import Any

from oslo_log import log as logging

from . import client
from . import host_lease
from . import restart
from . import timing

if TYPE_CHECKING:
    from nova.compute import manager as compute_manager

LOG = logging.getLogger(__name__)

#: Nova's names of the tasks that deploy.
_DEPLOYING = 'build_instance', 'rebuild_instance'


class Stopping:
    """Watches the operations in progress of a stopping process.

    Nova has no hook for that, so this reads two attributes of the manager,
    which are in endings.PRIVATE.

    :param host: the name of the compute host.
    :param lease: None without a standby.
    """

    def __init__(self, host: str, reservations: client.Client,
                 manager: compute_manager.ComputeManager,
                 lease: host_lease.HostLease | None):
        self._host = host
        self._client = reservations
        self._manager = manager
        self._lease = lease

    def watch(self) -> None:
        """Start a thread that waits until the process is stopped."""
        if restart.SUPPORTED:
            threading.Thread(target=self._watch, name='stopping',
                             daemon=True).start()

    def give_up_lease(self) -> None:
        """Give up the host lease, when Nova has waited long enough.

        Operations in progress may write to Ironic until the lease expires,
        and only then may another process acquire it. The process ends at that
        moment: its threads would wait for a lease, and Nova for them.
        """
        if self._lease is None:
            return
        if not (restart.SUPPORTED and self._tasks()):
            self._lease.give_up()
            return
        timer = threading.Timer(self._lease.stop_renewing(), self._end,
                                ['its lease has expired'])
        timer.daemon = True
        timer.start()

    def _watch(self) -> None:
        self._manager._shutdown_in_progress.wait()
        while not self._may_end():
            timing.TIMING.sleep(timing.TIMING.pause)
        if self._lease is not None:
            self._lease.give_up()
        self._end('all operations in progress are deployments, which the '
                  'next process completes')

    def _end(self, reason: str) -> None:
        LOG.info('This process of host %s exits: %s', self._host, reason)
        host_lease.end_process()

    def _tasks(self) -> list[dict[str, Any]]:
        return list(self._manager._in_progress_tasks.values())

    def _may_end(self) -> bool:
        """Return whether Ironic has accepted all operations in progress.

        Without any, Nova itself ends.
        """
        tasks = self._tasks()
        if not tasks or any(task['name'] not in _DEPLOYING for task in tasks):
            return False
        try:
            states = restart.find_deployments(self._client, self._host)
        # The thread must survive any response of Ironic.
        except Exception as e:
            LOG.debug('Could not list the deployments of host %s: %r',
                      self._host, e)
            return False
        return all(task['instance_uuid'] in states for task in tasks)
