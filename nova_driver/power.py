# SPDX-License-Identifier: Apache-2.0
"""Power states of many instances, read in one list instead of one by one."""

from __future__ import annotations

from collections.abc import Callable
import threading

from keystoneauth1 import exceptions as ksa_exc
from nova import exception
from nova import objects
from nova.virt import hardware
from openstack import exceptions as sdk_exc
from oslo_log import log as logging
import tenacity

from . import timing

LOG = logging.getLogger(__name__)


class PowerStates:
    """Caches the power states of instances until the driver changes them.

    :ivar fetch: returns the InstanceInfo of instances by their UUIDs. It may
        raise any error.
    """

    def __init__(
            self, fetch: Callable[[], dict[str, hardware.InstanceInfo]]):
        self.fetch = fetch
        self._cache: dict[str, hardware.InstanceInfo] = {}
        self._changes: set[str] = set()
        self._lock = threading.Lock()

    def read(self) -> None:
        """Fetch all power states."""
        self.forget_all()
        states = self.fetch()
        with self._lock:
            # The list may be older than changes that were made since.
            self._cache = {uuid: info for uuid, info in states.items()
                           if uuid not in self._changes}

    def wait_and_read(self, count: int) -> None:
        """Fetch all power states, as soon as Ironic responds.

        :param count: the number of this host's instances, for the log.
        """
        tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(
                (exception.VirtDriverNotReady, exception.ServiceUnavailable,
                 ksa_exc.ClientException, sdk_exc.SDKException)),
            wait=tenacity.wait_fixed(timing.TIMING.start_pause),
            before_sleep=lambda _: LOG.warning(
                'Ironic does not respond. nova-compute waits before it '
                'initializes %d instances.', count),
        )(self.read)

    def forget_all(self) -> None:
        with self._lock:
            self._cache, self._changes = {}, set()

    def forget(self, instance: objects.Instance) -> None:
        """Remove an instance that is, or was, written to."""
        with self._lock:
            self._changes.add(instance.uuid)
            self._cache.pop(instance.uuid, None)

    def get(self, instance: objects.Instance) -> hardware.InstanceInfo | None:
        """Return the power state of an instance, if it is cached.

        Nova may be changing the power of an instance that has a task.
        """
        return (self._cache.get(instance.uuid)
                if instance.task_state is None else None)
