# SPDX-License-Identifier: Apache-2.0
"""A nova-compute that stops itself right before it saves instances.

It is started as nova-compute is. A file ``stop`` beside its ``nova.conf`` has
in JSON before which ``save`` from then on, counted for each of ``servers``.
The threads wait there for one another, so that all of them are stopped at
once. Then the file ``stop`` is gone, and ``stopped`` names those servers; each
of its threads that did anything afterwards leaves a file ``went-on-UUID``.
With LIKE_PROCESS_1 in its environment the kernel does not kill it.
"""

import collections
import json
import os
import pathlib
import signal
import sys
import threading

from nova.cmd import compute
from nova.objects import instance
from nova.virt.ironic_reservations import deadline

STOP = pathlib.Path(sys.argv[-1]).with_name('stop')
LOCK = threading.Lock()
#: Seconds that a thread waits for the others, of which one may have failed.
PATIENCE = 20

really_save = instance.Instance.save


class Stop:
    """What the file says, and who has come so far."""

    def __init__(self, text):
        wanted = json.loads(text)
        self.text, self.number = text, wanted['save']
        self.servers = set(wanted['servers'])
        self.saves, self.waiting = collections.Counter(), set()
        self.done = threading.Event()

    def is_next(self, uuid):
        """Whether the thread of this server has come there."""
        self.saves[uuid] += uuid in self.servers
        if self.saves[uuid] == self.number:
            self.waiting.add(uuid)
        return self.saves[uuid] == self.number

    def stop(self):
        if not self.done.is_set():
            STOP.with_name('stopped').write_text(json.dumps([*self.waiting]))
            STOP.unlink(missing_ok=True)
            self.done.set()
            # Of this thread, because others would be stopped a little later
            # than they are told, and this one would go on until then.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


current = None


def asked():
    """The Stop that is asked for at the moment, or None."""
    global current
    try:
        text = STOP.read_text()
    except FileNotFoundError:
        return None
    if current is None or current.text != text:
        current = Stop(text)
    return current


def save(self, *args, **kwargs):
    with LOCK:
        stop = asked()
        waits = stop and stop.is_next(self.uuid)
        if waits and stop.waiting == stop.servers:
            stop.stop()
    if waits:
        if not stop.done.wait(PATIENCE):
            with LOCK:
                stop.stop()
        STOP.with_name(f'went-on-{self.uuid}').touch()
    return really_save(self, *args, **kwargs)


if __name__ == '__main__':
    if 'LIKE_PROCESS_1' in os.environ:
        deadline.Deadline.put_off = lambda self, until: None
    instance.Instance.save = save
    compute.main()
