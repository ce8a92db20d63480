"""The event loop in which the coroutines of a worker's tasks run, on a thread of its own."""

from __future__ import annotations

import asyncio
import threading

from .threads import DaemonThread


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
        """What still runs in it is dropped where it stands."""
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
        loop.close()
