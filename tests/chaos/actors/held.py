"""What this process holds by its own account: the blocks in use when its garbage is collected.

And what the C library keeps of a peak is given back then, so that the resident size shows the same.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import time

#: Seldom: a worker that nobody watches collects no garbage on purpose, and this one is to be alike.
_EVERY_S = 60.0


class Held:
    """Counts them for whoever writes to a journal; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next_at = 0.0

    def noted(self) -> dict[str, int]:
        """As a fact of a journal's line; empty where it was counted a moment ago."""
        with self._lock:
            if time.monotonic() < self._next_at:
                return {}
            self._next_at = time.monotonic() + _EVERY_S
        # Rings of objects, of exceptions and their frames above all, are no leak: they go here.
        gc.collect()
        _give_back()
        return {"blocks": sys.getallocatedblocks()}


def _give_back() -> None:
    """Freed memory to the system; where it cannot be told to, the C library does as it likes."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


HELD = Held()
