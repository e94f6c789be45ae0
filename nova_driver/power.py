# SPDX-License-Identifier: Apache-2.0
"""Power states of many instances, read in one list instead of one by one."""

import threading


class PowerStates:
    """What a list has shown of instances that were left alone since.

    :ivar fetch: function without arguments that returns a dict of
        nova.virt.hardware.InstanceInfo by the UUIDs of instances. It may
        raise any error.
    """

    def __init__(self, fetch):
        self.fetch = fetch
        self._known, self._changed = {}, set()
        self._changing = threading.Lock()

    def read(self):
        """Read them all anew."""
        self.forget_all()
        found = self.fetch()
        with self._changing:
            # What was changed while the list was read may be older in it.
            self._known = {uuid: info for uuid, info in found.items()
                           if uuid not in self._changed}

    def forget_all(self):
        with self._changing:
            self._known, self._changed = {}, set()

    def forget(self, instance):
        """Note that an instance is, or was, written to."""
        with self._changing:
            self._changed.add(instance.uuid)
            self._known.pop(instance.uuid, None)

    def get(self, instance):
        """Return the InstanceInfo of an instance; None if it is not known.

        Nova may be changing the power of an instance that has a task.
        """
        return (self._known.get(instance.uuid)
                if instance.task_state is None else None)
