# SPDX-License-Identifier: Apache-2.0
"""A time at which the kernel kills this process, unless it is postponed.

A stopped process cannot exit, and when it is continued, all its threads are at
once. So the kernel kills it while it is stopped, by a POSIX timer whose signal
is SIGKILL. Child processes do not inherit the timer, and unlike SIGALRM, which
oslo.service uses, it interrupts no system call.
"""

import ctypes
import os
import signal
import time
from typing import Any

from oslo_log import log as logging

LOG = logging.getLogger(__name__)

#: The flag of timer_settime(2) for a point in time instead of a span.
_ABSTIME = 1


class _Event(ctypes.Structure):
    """``struct sigevent``, see sigevent(7); a notify of 0 is a signal."""

    _fields_ = [('value', ctypes.c_void_p), ('signo', ctypes.c_int),
                ('notify', ctypes.c_int), ('rest', ctypes.c_char * 52)]


class _Spec(ctypes.Structure):
    """``struct itimerspec``, see timer_settime(2)."""

    _fields_ = [(name, ctypes.c_long) for name in (
        'interval', 'interval_ns', 'seconds', 'nanoseconds')]


class Deadline:
    """A deadline of this process; none before the first ``postpone``.

    If the kernel does not support it, a warning is logged and no deadline is
    set.
    """

    def __init__(self) -> None:
        self._timer: ctypes.c_void_p | None = None
        try:
            if os.getpid() == 1:
                raise OSError('its own signals cannot kill the first process '
                              'of a container')
            self._libc = ctypes.CDLL(None, use_errno=True)
            timer = ctypes.c_void_p()
            self._call('timer_create', time.CLOCK_BOOTTIME, ctypes.byref(
                _Event(signo=signal.SIGKILL)), ctypes.byref(timer))
            self._timer = timer
        except (AttributeError, OSError) as e:
            LOG.warning('The kernel cannot kill this process if it is '
                        'frozen when its host lease expires: %s', e)

    def postpone(self, until: float) -> None:
        """Kill the process at this time, and not before.

        :param until: a time of CLOCK_BOOTTIME in seconds; 0 for never.
        """
        if self._timer is not None:
            self._call('timer_settime', self._timer, _ABSTIME, ctypes.byref(
                _Spec(seconds=int(until),
                      nanoseconds=int(until % 1 * 10 ** 9))), None)

    def _call(self, name: str, *args: Any) -> None:
        if getattr(self._libc, name)(*args):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
