"""Wait for tasks of any number of plans, in the thread of the caller."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Generic, Protocol, TypeVar, cast

from ..connection import Connection
from ..errors import ZkplanError
from . import patience
from .patience import wake_up
from .plan_tasks import Completed, PlanTasks

#: At most this part of the time goes into looking: a look at a large plan takes longer.
LOOKING_SHARE = 0.25
#: Seconds between two looks at least.
GAP_S = 0.005
#: At Ctrl-C so many of the plans are named.
TOLD_MAX = 3


class Waited(Protocol):
    """A task that may be waited for. Task implements it."""

    def _waited_for(self) -> tuple[Connection, str, str]:
        """Its client, the path of its plan, and its number. Raises PlanError where a wait would
        never end."""


T = TypeVar("T", bound=Waited)


def tasks_in(given: Iterable[T], call: str) -> list[T]:
    """The tasks that `call` was given. Raises ZkplanError, which says what else it was given."""
    is_one = hasattr(type(given), "_waited_for")
    # The results of a map are waited for when they are taken.
    are_tasks = isinstance(given, Iterable) and not hasattr(given, "tasks") and not is_one
    found = list(given) if are_tasks else [given]
    for each in found:
        kind = type(each)
        if hasattr(kind, "_waited_for") and not is_one:
            continue
        name = f"{kind.__module__}.{kind.__qualname__}"
        if is_one:
            instead = "put it into a list"
        elif callable(getattr(each, "tasks", None)):
            instead = "wait for a plan by its `wait`, for all of its results by its `results`"
        elif hasattr(each, "tasks"):
            instead = "pass its `tasks`"
        elif hasattr(each, "add_done_callback"):
            instead = "wait for futures by concurrent.futures or asyncio"
        else:
            instead = "add_task returns one"
        raise ZkplanError(f"{call} takes a list of zkplan tasks, not {name}: {instead}")
    return cast("list[T]", found)


class Group(Generic[T]):
    """Tasks that are waited for together. It is a context manager, used by one thread.

    `woken` may be set by any thread: the wait then returns early.
    """

    def __init__(self) -> None:
        self.woken = threading.Event()
        self._hurried = threading.Event()
        self._plans: dict[tuple[int, str], PlanTasks] = {}
        self._tasks: dict[tuple[int, str], dict[str, T]] = {}
        self._stack = ExitStack()
        self._next_look = 0.0

    def __enter__(self) -> Group[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            waiting = [plan for plan in self._plans.values() if plan.open]
            for plan in waiting[:TOLD_MAX]:
                plan.patience.tell_that_it_goes_on()

    def add(self, tasks: Iterable[T]) -> None:
        """Wait for these tasks, too. A task that is given twice is waited for once."""
        fresh: dict[tuple[int, str], dict[str, T]] = {}
        clients: dict[tuple[int, str], Connection] = {}
        for task in tasks:
            client, plan_path, number = task._waited_for()
            key = (id(client), plan_path)
            clients[key] = client
            fresh.setdefault(key, {}).setdefault(number, task)
        for key, found in fresh.items():
            if key not in self._plans:
                self._stack.enter_context(wake_up(clients[key], key[1], self.woken))
                self._plans[key] = PlanTasks(clients[key], key[1])
                self._tasks[key] = {}
            self._tasks[key] = found | self._tasks[key]
            self._plans[key].add(found)

    @property
    def open(self) -> list[T]:
        """The tasks that have not completed, as far as is known, in the order given."""
        return [
            task
            for key, tasks in self._tasks.items()
            for number, task in tasks.items()
            if number in self._plans[key].open
        ]

    def why(self) -> str:
        """Why the open tasks have not completed."""
        return next(plan.why() for plan in self._plans.values() if plan.open)

    def look(self) -> list[tuple[T, Completed]]:
        """The tasks that have completed since the last look. Raises ZooKeeperError."""
        started = time.monotonic()
        found = []
        for key, plan in self._plans.items():
            if plan.open:
                tasks = self._tasks[key]
                found += [(tasks.pop(each.number), each) for each in plan.look()]
        now = time.monotonic()
        self._next_look = now + max(GAP_S, (now - started) / LOOKING_SHARE)
        return found

    def wait(self, deadline: float | None) -> list[tuple[T, Completed]]:
        """Wait until a task completes. Empty when the monotonic time `deadline` is over.

        It looks at least once. Raises ZooKeeperError.
        """
        while True:
            self.woken.clear()  # before the look: what happens after it sets the event again
            found = self.look()
            if found or not any(plan.open for plan in self._plans.values()):
                return found
            if deadline is not None and time.monotonic() >= deadline:
                return []
            self.pause(deadline)

    def hurry(self) -> None:
        """Have the next look come at once. Any thread may call it."""
        self._hurried.set()
        self.woken.set()

    def pause(self, deadline: float | None = None) -> None:
        """Wait until the next look is due or a watch fires."""
        left = patience.LOOK_S
        if deadline is not None:
            left = min(left, deadline - time.monotonic())
        if left > 0 and self.woken.wait(left):
            # So soon after the last look more is about to change: one look serves for all of it.
            until = self._next_look if deadline is None else min(self._next_look, deadline)
            self._hurried.wait(max(0.0, until - time.monotonic()))
        self._hurried.clear()
