"""The memory that this process uses, by its own account: allocated blocks after a collection.

Freed memory is given back to the system then, so that the resident size does not show past peaks.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import time

#: Seldom, for workers do not collect garbage explicitly by themselves.
_EVERY_S = 60.0


class Footprint:
    """Counts the blocks for whoever writes a journal; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next_at = 0.0

    def noted(self) -> dict[str, int]:
        """A fact for a line of the journal; empty where it was counted less than a minute ago."""
        with self._lock:
            if time.monotonic() < self._next_at:
                return {}
            self._next_at = time.monotonic() + _EVERY_S
        # Cycles of objects, of exceptions and their frames above all, are no leak.
        gc.collect()
        _give_back()
        return {"blocks": sys.getallocatedblocks()}


def _give_back() -> None:
    """Have the C library return freed memory to the system, where it can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


FOOTPRINT = Footprint()
