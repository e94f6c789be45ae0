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

    The collector would visit the new objects of the function several times.
    If they are more than ``MANY``, collect once at the end: otherwise a later
    request would wait for that.

    Apply the decorator to functions that do not wait for a lock.
    """
    @functools.wraps(function)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if not gc.isenabled():
            # Another thread has paused it, and will enable it for all.
            return function(*args, **kwargs)
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            # gc.get_count() is less by all objects that were freed.
            is_large = len(gc.get_objects(generation=0)) > MANY
            gc.enable()
            if is_large:
                gc.collect()
    return wrapper
