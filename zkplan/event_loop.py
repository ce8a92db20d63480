"""The event loop in which the coroutines of a worker's tasks run, on a thread of its own."""

from __future__ import annotations

import asyncio
import threading

from .threads import DaemonThread

#: What cancelled coroutines may take to end when the loop is closed.
_END_S = 5.0


class EventLoop:
    """Started by the first coroutine. Thread-safe."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def ensure_running(self) -> asyncio.AbstractEventLoop:
        """The loop; raises what keeps its thread from starting, and the next call tries again."""
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                try:
                    DaemonThread(_serve, "zkplan-asyncio", (loop,)).start()
                except BaseException:
                    loop.close()  # there may be a thread for the next coroutine
                    raise
                self._loop = loop
            return self._loop

    def close(self) -> None:
        """What still runs in it is cancelled; returns at once."""
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._loop = None


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        while True:
            try:
                loop.run_forever()
                return
            except (SystemExit, KeyboardInterrupt):
                # A task's: asyncio keeps it as that task's outcome, and raises it here as well.
                continue
            except MemoryError:
                continue  # it passes; ended, the loop would leave all coroutines waiting for ever
    finally:
        try:
            _cancel_all(loop)
        finally:
            loop.close()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Let what runs give back what it holds, as `asyncio.run` does, but not for ever."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=_END_S))
