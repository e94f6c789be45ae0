# SPDX-License-Identifier: Apache-2.0
"""Ironic's API, whose process stops itself where a test says.

A file ``stop`` next to ``ironic.conf`` says where: before, inside or after the
look whether a request may go on to Ironic. It is gone when that is reached.
"""

import functools
import os
import pathlib
import signal
import threading

from ironic_reservations import fence
from ironic_reservations.reservations import lookup

STOP = pathlib.Path(
    os.environ['OS_IRONIC_RESERVATIONS_CONFIG_FILES']).with_name('stop')


def stop(where):
    if STOP.exists() and STOP.read_text() == where:
        STOP.unlink()
        # A thread that has the process stopped would go on for a little.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def stopping(function, before, after):
    @functools.wraps(function)
    def call(*args, **kwargs):
        stop(before)
        result = function(*args, **kwargs)
        stop(after)
        return result
    return call


# The request has arrived, the caller is known and the database is not asked
# yet, the database has answered.
fence.Fence.__call__ = stopping(fence.Fence.__call__, 'before', '')
lookup.find_fenced = stopping(lookup.find_fenced, 'inside', 'after')

from ironic.wsgi import application  # noqa: E402,F401
