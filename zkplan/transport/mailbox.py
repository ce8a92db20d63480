"""A queue with one reader, whose wait ends when its time is over."""

from __future__ import annotations

import threading
import time
from collections import deque
from queue import Empty
from typing import Generic, TypeVar

__all__ = ["Empty", "Mailbox"]

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Any thread may put, and a signal's handler; one thread gets.

    Not queue.SimpleQueue: up to Python 3.12 its `get(timeout=…)` may wait for ever. Where the queue
    is new, or its last item was taken without a wait, its lock is free: it takes that first, then
    counts what is left of the time, and a negative rest means "for ever" to the lock. A worker that
    was started beside three others on a busy machine never came out of its first wait. Nor
    queue.Queue: a handler that puts while its own thread does waits for itself.
    """

    __slots__ = ("_bell", "_items")

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        #: Free: it was rung since the reader last waited.
        self._bell = threading.Lock()
        self._bell.acquire()

    def put(self, item: T) -> None:
        self._items.append(item)  # first: who hears the bell looks here
        try:
            self._bell.release()
        except RuntimeError:
            pass  # rung already, and not heard yet

    def get(self, timeout: float | None = None) -> T:
        """The oldest item; waits for one up to `timeout` seconds, None: for ever.

        Raises Empty when the time is over.
        """
        if self._items:
            return self._items.popleft()
        until = None if timeout is None else time.monotonic() + timeout
        while not self._items:
            # A ring may be that of an item which was taken without a wait: it is looked again.
            if until is None:
                self._bell.acquire()
            elif (left := until - time.monotonic()) <= 0:
                raise Empty
            else:
                self._bell.acquire(timeout=min(left, threading.TIMEOUT_MAX))
        return self._items.popleft()

    def get_nowait(self) -> T:
        """The oldest item; raises Empty where there is none."""
        if not self._items:
            raise Empty
        return self._items.popleft()
