"""A call on a thread that nobody has to wait for, such as the wait for a plan."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_background(function: Callable[[], T]) -> Future[T]:
    """Call it on a daemon thread: the end of an interrupted program does not wait for it."""
    future: Future[T] = Future()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=call, name="zkplan-background", daemon=True).start()
    return future
