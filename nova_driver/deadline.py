# SPDX-License-Identifier: Apache-2.0
"""A time at which the kernel kills this process, unless that is put off.

A process that is stopped cannot end itself, and when it goes on, all of its
threads do at once. The kernel kills it while it is stopped, so that none of
them goes on. That is a timer of POSIX, whose signal is SIGKILL: it belongs to
this process alone, because fork(2) does not hand timers on, and it interrupts
no call and no handler of signals, unlike SIGALRM, which oslo.service takes.
"""

import ctypes
import os
import signal
import time

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
    """There is none until it is put off for the first time.

    Where the kernel does not do that, the log says so, and there is none.
    """

    def __init__(self):
        self._timer = None
        try:
            if os.getpid() == 1:
                raise OSError('it is the first process of its container, '
                              'which none of its own signals ends')
            self._libc = ctypes.CDLL(None, use_errno=True)
            timer = ctypes.c_void_p()
            self._call('timer_create', time.CLOCK_BOOTTIME, ctypes.byref(
                _Event(signo=signal.SIGKILL)), ctypes.byref(timer))
            self._timer = timer
        except (AttributeError, OSError) as e:
            LOG.warning('The kernel will not kill this process if it is '
                        'stopped until another one is the host: %s', e)

    def put_off(self, until):
        """Have the process killed then, and not before.

        :param until: a time of CLOCK_BOOTTIME in seconds; 0 for never.
        """
        if self._timer is not None:
            self._call('timer_settime', self._timer, _ABSTIME, ctypes.byref(
                _Spec(seconds=int(until),
                      nanoseconds=int(until % 1 * 10 ** 9))), None)

    def _call(self, name, *args):
        if getattr(self._libc, name)(*args):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
