# SPDX-License-Identifier: Apache-2.0
"""Something that a request does in passing, but not each request."""

import threading
import time


class Interval:
    """Tells the requests of a process when it is time to do something again.

    :param seconds: between two times; 0 for every request.
    """

    def __init__(self, seconds):
        self.seconds = seconds
        self._due_at = -float('inf')
        self._lock = threading.Lock()

    def due(self):
        """Whether the caller is to do it now; the others then are not."""
        with self._lock:
            now = time.monotonic()
            if now < self._due_at:
                return False
            self._due_at = now + self.seconds
            return True

    def again(self):
        """Let the next request do it, because there is more to be done."""
        self._due_at = -float('inf')
