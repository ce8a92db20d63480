"""Threads that are not waited for without a bound, where they end before they have begun."""

from __future__ import annotations

import threading
from collections.abc import Callable

#: So often, so long a start waits. In parts: while a process is stopped, or a task holds the
#: interpreter, the time of one part passes at most.
_PARTS, _PART_S = 30, 1.0


class _Started(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        if timeout is not None:
            return super().wait(timeout)
        for _ in range(_PARTS):
            if super().wait(_PART_S):
                return True
        raise MemoryError("a thread was started, and never began: it lacked memory, most likely")


class DaemonThread(threading.Thread):
    """Its start raises MemoryError where it never begins.

    For want of memory a thread ends before it has said that it began. The start of a Thread waits
    for that for ever: a worker would stand still, and as its session goes on, nobody would take
    over what it holds.
    """

    def __init__(
        self, target: Callable[..., object], name: str, args: tuple[object, ...] = ()
    ) -> None:
        super().__init__(target=target, name=name, args=args, daemon=True)
        self._started = _Started()
