"""Wait for a plan to end, or for its events, in a thread or in a coroutine."""

from __future__ import annotations

import contextvars
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

from ..basics.log import get_logger
from ..basics.public_calls import Duration
from ..basics.text import count
from ..errors import WaitTimeout
from ..protocol.core.plan_life import PlanStatus, finish
from ..protocol.core.plan_life import status as read_status
from ..protocol.fields import require_proven
from ..protocol.requests import ReadData
from ..values.connection import Connection
from ..values.plan_values import Values
from ..views.deadlock import failed
from ..views.history import Event, Follower, follow
from ..views.progress import progress_bar
from .patience import Patience

R = TypeVar("R")


async def in_thread(wait: Callable[[threading.Event], R]) -> R:
    """Run `wait(given_up)` in a thread of its own. Sets the event if the coroutine is cancelled.

    The loop's executor is not used, because it has few threads and a wait may be long.
    """
    import asyncio  # here: most programs have no coroutines

    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()
    given_up = threading.Event()
    context = contextvars.copy_context()

    def end(result: R | None, error: BaseException | None) -> None:
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
            loop.call_soon_threadsafe(end, result, failed)
        except RuntimeError:
            if not loop.is_closed():  # else nobody waits any more
                raise

    threading.Thread(target=run, name="zkplan-wait", daemon=True).start()
    try:
        return await future
    finally:
        given_up.set()


# ---- Wait until a plan has ended. Watches wake the waiter, and each look costs the same.


logger = get_logger("zkplan.plan")
PROGRESS_LOOK_S = 0.2


def end_if_drained(client: Connection, plan_path: str) -> bool:
    """End the plan if no task is left that may run. Returns whether the plan is done.

    A client that can only read (ed25519-public) leaves this to others.
    """
    if client.keys and not client.keys[0].can_seal:
        return False
    done = bool(client.transport.run(finish(plan_path, time.time())))
    if done:
        client.sweeper.plan_is_done(plan_path)
    return done


def wait_for_plan(
    client: Connection,
    plan_path: str,
    timeout: Duration | None,
    progress: bool = False,
    fail_fast: bool = False,
    given_up: threading.Event | None = None,
) -> PlanStatus:
    """See Plan.wait. Soon after `given_up` is set, this raises WaitTimeout."""
    transport = client.transport
    patience = Patience(client, plan_path, timeout, f"{plan_path} is not done")
    name = transport.run(read_status(plan_path)).name if progress else ""
    with patience.log_ctrl_c(), progress_bar(name or plan_path, progress) as show:

        def look() -> tuple[bool, PlanStatus]:
            if given_up is not None and given_up.is_set():
                raise WaitTimeout(f"nobody waits for {plan_path} any more")
            for name in ("done", "ready"):
                node = transport.ask(ReadData(f"{plan_path}/{name}", watch=True))
                require_proven(node.data if node is not None else b"")
            patience.watch_the_dead()
            status = transport.run(read_status(plan_path))
            if status.ended is not None:
                # No further change will trigger these watches, so they would stay for ever.
                transport.unwatch(f"{plan_path}/{name}" for name in ("done", "ready", "dead"))
            if show is not None:
                dead = f", {status.dead} dead" if status.dead else ""
                show(status.finished, status.added, f"{status.runnable} runnable{dead}")
            if fail_fast and status.dead and status.ended is None:
                what = f"{count(status.dead, 'task')} of {plan_path} failed"
                raise failed(client, plan_path, f"{what}; the others go on")
            if status.ended is not None and status.dead:
                what = f"{plan_path} has ended; {count(status.dead, 'task')} failed"
                raise failed(client, plan_path, what)
            # If failures cascade, a plan may end with failed tasks.
            is_left = status.state == "running" and status.tasks == status.dead
            if is_left and end_if_drained(client, plan_path):
                return look()
            return status.ended is not None, status

        ended: PlanStatus = patience.wait(
            look, math.inf if show is None else PROGRESS_LOOK_S, given_up
        )
        return ended


# ---- The events of a plan as they come, for `for` and for `async for`.


class EventStream(Iterator[Event]):
    """What `Plan.events` returns. Each `async for` begins with the first event, and uses one thread
    of its own while it waits."""

    def __init__(
        self, values: Values, plan_path: str, read: Callable[[], list[Event]] | None = None
    ) -> None:
        """With `read`, yield the events that it returns instead of following the plan."""
        self._values, self._plan_path, self._read = values, plan_path, read
        self._events: Iterator[Event] | None = None

    def __next__(self) -> Event:
        if self._events is None:
            read = self._read
            self._events = iter(read()) if read else follow(self._values, self._plan_path)
        return next(self._events)

    async def __aiter__(self) -> AsyncIterator[Event]:
        read = self._read
        if read is not None:
            for event in await in_thread(lambda _: read()):
                yield event
            return
        follower = Follower(self._values, self._plan_path)
        try:
            while found := await in_thread(lambda _: follower.read_on()):
                for event in found:
                    yield event
        finally:
            follower.close()  # so that its thread ends if the coroutine was cancelled
