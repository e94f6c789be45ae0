# SPDX-License-Identifier: Apache-2.0
"""Whether what something costs grows in proportion to a text."""

import gc
import time

#: Twice the text may cost this many times as much: what is quadratic costs
#: four times as much, what is not twice as much and some noise.
MOST = 3

#: Seconds of processor time that are too few to be told from noise.
FLOOR = 0.02

#: Bytes, from few to as many as a request may have.
SHORT, LONG = 4 * 1024, 64 * 1024

#: Rounds that are measured in any case, and rounds in all until a text is
#: said to cost too much. The least counts: it was disturbed least.
FEW, MANY = 4, 40


def check(prepare):
    """Fail where twice the text costs more than ``MOST`` times as much.

    It begins with short texts, so that one that takes long need not be waited
    for. The two texts take turns, because the machine may be busier for a
    while, and both are then measured while it is not.

    :param prepare: function of the length of a text, which returns the call.
    """
    length = SHORT
    while length < LONG:
        length *= 2
        half = whole = float('inf')
        for number in range(MANY):
            whole = min(whole, cost(prepare(length), 1))
            if whole <= FLOOR:
                break
            half = min(half, cost(prepare(length // 2), 1))
            if number >= FEW - 1 and whole <= MOST * half:
                break
        assert whole <= max(FLOOR, MOST * half), (
            f'{length // 2} bytes cost {1000 * half:.1f} ms, {length} bytes '
            f'{1000 * whole:.1f} ms')


def cost(call, times=FEW):
    """Seconds of processor time that a call takes in this thread, at least.

    :param times: how often it is called.
    """
    least = float('inf')
    # Garbage is collected when much was made, whoever has made it.
    gc.disable()
    try:
        for _ in range(times):
            before = time.thread_time()
            call()
            least = min(least, time.thread_time() - before)
    finally:
        gc.enable()
    return least
