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
    is new, or its last item was taken without a wait, its lock is free. `get` takes the lock first,
    then counts what is left of the time, and the lock takes a negative rest for "for ever". So a
    worker that was started on a busy machine never came out of its first wait. Nor queue.Queue: a
    handler that interrupts a `put` of its own thread, and puts, waits for itself.
    """

    __slots__ = ("_bell", "_items")

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        #: Free: something was put since the reader last waited.
        self._bell = threading.Lock()
        self._bell.acquire()

    def put(self, item: T) -> None:
        self._items.append(item)  # before the bell: the reader looks here when it rings
        try:
            self._bell.release()
        except RuntimeError:
            pass  # it is ringing already

    def get(self, timeout: float | None = None) -> T:
        """The oldest item; waits for one up to `timeout` seconds, None: for ever.

        Raises Empty when the time is over.
        """
        if self._items:
            return self._items.popleft()
        until = None if timeout is None else time.monotonic() + timeout
        while not self._items:
            # The bell may have rung for an item that was taken without a wait: look again.
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
