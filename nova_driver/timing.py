# SPDX-License-Identifier: Apache-2.0
"""Decides how long the driver waits between attempts."""

from collections.abc import Callable
import dataclasses
import time


@dataclasses.dataclass(frozen=True)
class Timing:
    """Pauses in seconds.

    :param interval: between two rounds of the driver's thread.
    :param pause: between two attempts of a request, or two checks of a state.
    :param start_pause: between two attempts to reach Ironic when nova-compute
        starts.
    :param longest: the longest pause between two attempts that make no
        progress.
    :param sleep: waits that long, in a thread that is otherwise idle.
    """

    interval: float = 5
    pause: float = 1
    start_pause: float = 5
    longest: float = 60
    sleep: Callable[[float], None] = time.sleep


#: The pauses of this process; tests replace them.
TIMING = Timing()


class Pacer:
    """Decides when the next attempt is due, at longer and longer intervals."""

    def __init__(self) -> None:
        self._next: float = 0
        self._pause: float = 0

    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def reset(self) -> None:
        """Make the next attempt due at once."""
        self._next = self._pause = 0

    def wait(self, has_stalled: bool) -> None:
        """Plan the next attempt.

        :param has_stalled: whether this attempt made no progress.
        """
        self._pause = (min(2 * self._pause + 1, TIMING.longest)
                       if has_stalled else 0)
        self._next = time.monotonic() + self._pause
