"""Run the coroutines of a worker's tasks in an event loop on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

from ..errors import ZkplanError
from .threads import DaemonThread

#: Seconds that cancelled coroutines have to end when the loop is closed.
_END_S = 5.0


class EventLoop:
    """The event loop. The first coroutine starts it. Thread-safe."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._lock = threading.Lock()

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run the coroutine in the loop. If the loop cannot start, the coroutine is closed.

        Raises why the loop cannot start; the next coroutine tries again. Raises ZkplanError after
        `close`.
        """
        # Scheduled under the lock, so that `close` comes before it, or cancels it. Otherwise the
        # loop could stop right after taking it, and its caller would wait for ever.
        with self._lock:
            try:
                return asyncio.run_coroutine_threadsafe(coroutine, self._running())
            except BaseException:
                coroutine.close()  # else Python complains that nobody awaited it
                raise

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise ZkplanError("the worker has ended: it starts no coroutine any more")
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
        """Cancel what still runs in the loop, and never start it again. Returns at once."""
        with self._lock:
            self._closed = True
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
                continue  # ignored: without the loop all coroutines would wait for ever
    finally:
        try:
            _cancel_all(loop)
        finally:
            loop.close()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Let running coroutines clean up, as `asyncio.run` does, but only for a limited time."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=_END_S))
