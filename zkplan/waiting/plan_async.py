"""Wait for a plan in a coroutine, in one thread that ends when the coroutine is cancelled."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")


async def in_thread(wait: Callable[[threading.Event], R]) -> R:
    """Run `wait(given_up)` in a thread of its own. The event is set if the coroutine is cancelled.

    It is not a thread of the loop's executor: those are few, and a wait may be long.
    """
    import asyncio  # here: most programs have no coroutines

    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()
    given_up = threading.Event()
    context = contextvars.copy_context()

    def tell(result: R | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: R | None = None
        failed: BaseException | None = None
        try:
            result = context.run(wait, given_up)
        except BaseException as error:
            failed = error
        try:
            loop.call_soon_threadsafe(tell, result, failed)
        except RuntimeError:
            if not loop.is_closed():  # nobody is left to tell
                raise

    threading.Thread(target=run, name="zkplan-wait", daemon=True).start()
    try:
        return await future
    finally:
        given_up.set()
