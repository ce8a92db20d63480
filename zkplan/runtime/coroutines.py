"""The event loop in which the coroutines of a worker's tasks run, on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

from ..errors import ZkplanError
from .threads import DaemonThread

#: What cancelled coroutines may take to end when the loop is closed.
_END_S = 5.0


class EventLoop:
    """Started by the first coroutine. Thread-safe."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._lock = threading.Lock()

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run it there. Where that fails it is closed, and the next one may fare better.

        Raises what keeps the loop from starting, and ZkplanError after `close`.
        """
        # Scheduled under the lock: `close` comes before it, or cancels it. In between the loop
        # would take it in and stop, and whoever waits for it would wait for ever.
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
        """What still runs in it is cancelled; returns at once. It does not start again."""
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
