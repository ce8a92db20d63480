"""Run the coroutines of a worker's tasks in an event loop on a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from ..errors import ZkplanError
from .forks import leave
from .threads import DaemonThread

#: Seconds that cancelled coroutines have to end when the loop is closed.
_END_S = 5.0


#: What a coroutine returned, or the error that it ended with.
Outcome = tuple[Any, BaseException | None]


class EventLoop:
    """The event loop. The first coroutine starts it. Thread-safe."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._lock = threading.Lock()

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Outcome]:
        """Run the coroutine in the loop. If the loop cannot start, the coroutine is closed.

        Raises why the loop cannot start; the next coroutine tries again. Raises ZkplanError after
        `close`.
        """
        # Scheduled under the lock, so that `close` comes before it, or cancels it. Otherwise the
        # loop could stop right after taking it, and its caller would wait for ever.
        with self._lock:
            try:
                loop = self._running()
                return asyncio.run_coroutine_threadsafe(_EndsForks(_outcome(coroutine)), loop)
            except BaseException:
                coroutine.close()  # else Python complains that nobody awaited it
                raise

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise ZkplanError("the worker has ended: it starts no coroutine any more")
        if self._loop is None or self._loop.is_closed():
            loop = asyncio.new_event_loop()
            try:
                DaemonThread(self._serve, "zkplan-asyncio", (loop,)).start()
            except BaseException:
                loop.close()  # there may be a thread for the next coroutine
                raise
            self._loop = loop
        return self._loop

    def close(self) -> None:
        """Cancel what still runs in the loop, and never start it again. Returns at once."""
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
            if loop is not None:
                with suppress(RuntimeError):  # it has stopped by itself, and seen that it is closed
                    loop.call_soon_threadsafe(loop.stop)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the loop until `close`, whatever coroutines do: a stop of one, a SystemExit of one
        (which asyncio raises here as well), an error that asyncio cannot even log, a want of
        memory. All others would wait for ever on a loop that nobody runs."""
        try:
            while not (self._closed or loop.is_closed()):
                with suppress(BaseException):
                    loop.run_forever()
        finally:
            try:
                _cancel_all(loop)
            finally:
                loop.close()


async def _outcome(coroutine: Coroutine[Any, Any, Any]) -> Outcome:
    """Keep the error as it is: a future would replace a CancelledError by one without a message and
    a traceback."""
    try:
        return await coroutine, None
    except GeneratorExit:
        raise  # the loop is gone, and nobody waits
    except BaseException as error:
        return None, error


class _EndsForks(Coroutine[Any, Any, Any]):
    """A coroutine; a process that it forks ends with its step. It cannot await anything: the event
    loop there is a copy, which would run the other coroutines as well."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine, self._pid = coroutine, os.getpid()

    def send(self, value: Any) -> Any:
        return self._step(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._coroutine.throw, *error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Any:
        return self._coroutine.__await__()

    def _step(self, step: Callable[..., Any], *args: Any) -> Any:
        try:
            awaited = step(*args)
        except BaseException as error:
            if os.getpid() != self._pid:
                leave(error.value[1] if type(error) is StopIteration else error)  # see _outcome
            raise
        if os.getpid() != self._pid:
            leave(RuntimeError("a process that a coroutine has forked cannot await anything"))
        return awaited


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Let running coroutines clean up, as `asyncio.run` does, but only for a limited time."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=_END_S))
