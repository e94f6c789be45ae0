# SPDX-License-Identifier: Apache-2.0
"""A nova-compute that stops itself right before it saves an instance.

It is started as nova-compute is. A file ``stop`` beside its ``nova.conf`` says
before which save from then on; it is gone when the process has stopped. A file
``went-on`` is there if the thread that was to save did anything afterwards.
With LIKE_PROCESS_1 in its environment the kernel does not kill it.
"""

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

really_save = instance.Instance.save


def save(*args, **kwargs):
    with LOCK:
        left = int(STOP.read_text()) if STOP.exists() else 0
        if left > 1:
            STOP.write_text(str(left - 1))
        elif left:
            STOP.unlink()
            # Of this thread, because others would be stopped a little later
            # than they are told, and this one would go on until then.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            STOP.with_name('went-on').touch()
    return really_save(*args, **kwargs)


if __name__ == '__main__':
    if 'LIKE_PROCESS_1' in os.environ:
        deadline.Deadline.put_off = lambda self, until: None
    instance.Instance.save = save
    compute.main()
