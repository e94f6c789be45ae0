# SPDX-License-Identifier: Apache-2.0
"""Pauses Python's garbage collector."""

from collections.abc import Callable
import functools
import gc
from typing import ParamSpec
from typing import TypeVar

_P = ParamSpec('_P')
_R = TypeVar('_R')

#: Number of new objects after which ``pause_collection`` collects at once.
MANY = 100_000


def pause_collection(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Pause the garbage collector of the process while a function runs.

    The collector visits all objects again and again while a function creates
    many that stay: in a fleet with 55,000 hardware profiles that takes as long
    as all else. If there are ``MANY`` in the end, it visits them once, so that
    later requests need not wait for that.

    Apply the decorator to functions that do not wait for other requests.
    """
    @functools.wraps(function)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        is_enabled = gc.isenabled()
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            # If threads overlap, the first one that ends enables it for all.
            if is_enabled:
                gc.enable()
                if gc.get_count()[0] > MANY:
                    gc.collect()
    return wrapper
