"""Start threads without waiting for ever if a thread ends before it has begun."""

from __future__ import annotations

import threading
from collections.abc import Callable

#: A start waits this many times, for this long. It waits in parts, because only one part passes
#: while the process is stopped or a task holds the interpreter.
_PARTS, _PART_S = 30, 1.0


class _Started(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        if timeout is not None:
            return super().wait(timeout)
        for _ in range(_PARTS):
            if super().wait(_PART_S):
                return True
        raise MemoryError(
            "a thread was started but never began: most likely there is no memory left"
        )


class DaemonThread(threading.Thread):
    """A thread whose `start` raises MemoryError if the thread never begins.

    Without memory a thread can end before it reports that it began. `Thread.start` waits for that
    report for ever. Then the worker would hang while its session goes on, and nobody would take
    over its tasks.
    """

    def __init__(
        self, target: Callable[..., object], name: str, args: tuple[object, ...] = ()
    ) -> None:
        super().__init__(target=target, name=name, args=args, daemon=True)
        self._started = _Started()
