# SPDX-License-Identifier: Apache-2.0
"""A time at which the kernel kills this process, unless that is put off.

A process that is stopped does not notice how long; the kernel does. It kills
the process while it is stopped, so that none of its threads goes on then. It
does not kill the first process of a container, which no signal ends.
"""

import ctypes
import os
import signal
import time

#: The flag of timer_settime(2) for a point in time instead of a span.
_ABSTIME = 1


class _Event(ctypes.Structure):
    """``struct sigevent``, see sigevent(7); a notify of 0 is a signal."""

    _fields_ = [('value', ctypes.c_void_p), ('signo', ctypes.c_int),
                ('notify', ctypes.c_int), ('rest', ctypes.c_char * 48)]


class _Spec(ctypes.Structure):
    """``struct itimerspec``, see timer_settime(2)."""

    _fields_ = [(name, ctypes.c_long) for name in (
        'interval', 'interval_ns', 'seconds', 'nanoseconds')]


class Deadline:
    """There is none until it is put off for the first time."""

    def __init__(self):
        # Python has this timer with SIGALRM only, which oslo.service takes.
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()
        self._check(self._libc.timer_create(
            time.CLOCK_BOOTTIME, ctypes.byref(_Event(signo=signal.SIGKILL)),
            ctypes.byref(self._timer)))

    def put_off(self, until):
        """Have the process killed then, and not before.

        :param until: a time of CLOCK_BOOTTIME in seconds; 0 for never.
        """
        self._check(self._libc.timer_settime(
            self._timer, _ABSTIME, ctypes.byref(_Spec(
                seconds=int(until), nanoseconds=int(until % 1 * 10 ** 9))),
            None))

    @staticmethod
    def _check(failed):
        if failed:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
