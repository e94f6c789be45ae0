# SPDX-License-Identifier: Apache-2.0
"""Ironic's API in a process that stops itself where a test chooses.

A file ``stop`` next to ``ironic.conf`` says where: before, inside or after the
fence's check. The file is deleted when that point is reached.
"""

import functools
import os
import pathlib
import signal
import threading

from ironic_reservations.api import fence
from ironic_reservations.reservations import lookup

STOP = pathlib.Path(
    os.environ['OS_IRONIC_RESERVATIONS_CONFIG_FILES']).with_name('stop')


def stop(where):
    if STOP.exists() and STOP.read_text() == where:
        STOP.unlink()
        # With os.kill, this thread could run on for a moment.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def stop_around(function, before, after):
    @functools.wraps(function)
    def call(*args, **kwargs):
        stop(before)
        result = function(*args, **kwargs)
        stop(after)
        return result
    return call


# Before: the request has arrived. Inside: the caller is known, and the
# database has not been queried. After: the database has responded.
fence.Fence.__call__ = stop_around(fence.Fence.__call__, 'before', '')
lookup.find_fenced = stop_around(lookup.find_fenced, 'inside', 'after')

from ironic.wsgi import application  # noqa: E402,F401
