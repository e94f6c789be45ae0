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

# Each is measured so often; the least is the one that was disturbed least.
_TIMES = 4


def cost(call, most=float('inf')):
    """Seconds of processor time that a call takes.

    It is called again only as long as it has always taken more than ``most``.
    """
    least = float('inf')
    # Garbage is collected when much was made, whoever has made it.
    gc.disable()
    try:
        for _ in range(_TIMES):
            before = time.process_time()
            call()
            least = min(least, time.process_time() - before)
            if least <= most:
                break
    finally:
        gc.enable()
    return least


def check(prepare):
    """Fail where twice the text costs more than ``MOST`` times as much.

    It begins with short texts, so that one that takes long need not be waited
    for.

    :param prepare: function of the length of a text, which returns the call.
    """
    length = SHORT
    while length < LONG:
        length *= 2
        whole = prepare(length)
        if cost(whole, FLOOR) <= FLOOR:
            continue
        half = cost(prepare(length // 2))
        # The machine may have been busier with the one than with the other.
        spent = cost(whole, MOST * half)
        assert spent <= MOST * half, (
            f'{length // 2} bytes cost {1000 * half:.1f} ms, {length} bytes '
            f'{1000 * spent:.1f} ms')
