"""Find out which tasks of any number of plans have completed."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from ..errors import PlanError, ZkplanError
from ..protocol.core.plan_life import PlanStatus
from ..protocol.core.plan_life import status as read_status
from ..protocol.fields import require_proven
from ..protocol.requests import ReadChildren, ReadData, ReadMany
from ..protocol.transactions import READS_PER_REQUEST
from ..values.connection import Connection
from . import patience
from .patience import Patience, wake_up

#: The most tasks that are watched one by one, because the list of results lacks those that are not
#: kept.
WATCHED_TASKS = 4
#: All tasks of the plan are listed if at most this many are unfinished per awaited task. Otherwise
#: each awaited task is looked up.
LISTED_PER_TASK = 20


class Completed(NamedTuple):
    """A task that has completed.

    Either its outcome is `kept`, or it went to the task's dependents. `error` says why the task can
    never finish: its plan was cancelled or removed, or has failed.
    """

    number: str
    kept: bool
    error: Exception | None = None


class PlanTasks:
    """The awaited tasks of one plan.

    A task has completed when it has finished, when it is out of attempts, and when it can never
    finish. The list of kept outcomes shows most completed tasks. A task whose outcome is not kept
    only disappears from the plan; such tasks are searched for when the plan's counters show that
    there are any.
    """

    def __init__(self, client: Connection, plan_path: str) -> None:
        self._client, self._plan = client, plan_path
        #: The numbers of the tasks that are not known to have completed.
        self.open: set[str] = set()
        self.patience = Patience(client, plan_path, None, f"tasks of {plan_path} are waited for")
        #: How many finished tasks had no kept outcome at the last search for the open tasks.
        self._unkept = -1

    def add(self, numbers: Iterable[str]) -> None:
        self.open.update(numbers)
        self._unkept = -1  # one of them may have left the plan before

    def why(self) -> str:
        """Why the open tasks have not completed, as far as this client knows."""
        return self.patience.why()

    @property
    def left_s(self) -> float:
        """Seconds until the next look without a watch."""
        # Of many tasks, no watch announces the end of those whose outcomes are not kept.
        longest = patience.LOOK_S if len(self.open) > WATCHED_TASKS else math.inf
        return min(longest, self.patience.left_s)

    def look(self) -> list[Completed]:
        """Return the tasks that have completed since the last look, and set the watches.

        Raises ZooKeeperError.
        """
        found: list[Completed] = []

        def look() -> tuple[bool, Any]:
            found.extend(self._close(self._kept()))
            if not self.open:
                return True, None
            status = self._client.transport.run(read_status(self._plan))
            found.extend(self._close(self._gone(status)))
            return bool(found), status

        try:
            looked, status = look()
            if not looked:
                self.patience.judge(status, look)
        except PlanError as error:
            found += self._close([Completed(number, False, error) for number in sorted(self.open)])
        return found

    def _close(self, found: list[Completed]) -> list[Completed]:
        self.open.difference_update(completed.number for completed in found)
        return found

    def _kept(self) -> list[Completed]:
        """The open tasks that have a kept outcome. Sets the watches."""
        ask = self._client.transport.ask
        for name in ("done", "ready"):
            node = ask(ReadData(f"{self._plan}/{name}", watch=True))
            require_proven(node.data if node is not None else b"")
        if len(self.open) <= WATCHED_TASKS:
            for number in self.open:
                ask(ReadData(f"{self._plan}/task-{number}", watch=True))
        names = ask(ReadChildren(f"{self._plan}/results", watch=True)) or ()
        return [Completed(number, True) for number in sorted(self.open.intersection(names))]

    def _gone(self, status: PlanStatus) -> list[Completed]:
        """The other open tasks that have left the plan.

        The transaction that deletes a task also writes its outcome, if that is kept. So a deleted
        task has its outcome by now, or never.
        """
        unkept = status.finished - (status.outcomes - status.dead)
        if unkept == self._unkept and status.ended is None:
            return []
        self._unkept = unkept
        gone = self._missing(status)
        if not gone:
            return []
        transport = self._client.transport
        kept = gone.intersection(transport.ask(ReadChildren(f"{self._plan}/results")) or ())
        found = [Completed(number, True) for number in sorted(kept)]
        # A removal cancels the plan before it deletes tasks, which then complete as cancelled.
        now = transport.run(read_status(self._plan))
        if now.state != "cancelled":
            found += [Completed(number, False) for number in sorted(gone - kept)]
        return found

    def _missing(self, status: PlanStatus) -> set[str]:
        ask = self._client.transport.ask
        if status.tasks <= LISTED_PER_TASK * len(self.open):
            listed = ask(ReadChildren(self._plan)) or ()
            return self.open.difference(name.removeprefix("task-") for name in listed)
        missing, numbers = set(), sorted(self.open)
        for start in range(0, len(numbers), READS_PER_REQUEST):
            batch = numbers[start : start + READS_PER_REQUEST]
            reads = [ReadChildren(f"{self._plan}/task-{number}") for number in batch]
            answers = ask(ReadMany(reads, strict=True))
            pairs = zip(batch, answers, strict=True)
            missing |= {number for number, names in pairs if names is None}
        return missing


# ---- Wait for tasks of any number of plans, in the thread of the caller.


#: The largest share of the time that is spent on looks, because a look at a large plan takes long.
LOOKING_SHARE = 0.25
#: The least seconds between two looks.
GAP_S = 0.005
#: The most plans that the log names at Ctrl-C.
NAMED_MAX = 3


class Waited(Protocol):
    """A task to wait for. Task implements this."""

    def _waited_for(self) -> tuple[Connection, str, str]:
        """Client, path of the plan, and number. Raises PlanError where a wait would never end."""


T = TypeVar("T", bound=Waited)


def tasks_in(given: Iterable[T], call: str) -> list[T]:
    """The tasks in `given`, an argument of `call`. Raises ZkplanError for anything else."""
    is_one = hasattr(type(given), "_waited_for")
    # Iterating over the results of a map would wait for each.
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
            instead = "wait for a plan with `plan.wait()`, or for its results with `plan.results()`"
        elif hasattr(each, "tasks"):
            instead = "pass its `tasks`"
        elif hasattr(each, "add_done_callback"):
            instead = "wait for futures with concurrent.futures or asyncio"
        else:
            instead = "add_task returns a task"
        raise ZkplanError(f"{call} takes a list of zkplan tasks, not {name}: {instead}")
    return cast("list[T]", found)


class Group(Generic[T]):
    """A context manager that waits for tasks of several plans together. It is for one thread.

    Any thread may set `woken`: the wait then looks early.
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
            for plan in waiting[:NAMED_MAX]:
                plan.patience.log_that_it_goes_on()

    def add(self, tasks: Iterable[T]) -> None:
        """Add tasks to wait for. Duplicates count once."""
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
        """The tasks that are not known to have completed, in the order given."""
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
        """Wait until a task completes. Returns an empty list after the monotonic time `deadline`.

        Looks at least once. Raises ZooKeeperError.
        """
        while True:
            self.woken.clear()  # before the look, so that later changes set the event again
            found = self.look()
            if found or not any(plan.open for plan in self._plans.values()):
                return found
            if deadline is not None and time.monotonic() >= deadline:
                return []
            self.pause(deadline)

    def hurry(self) -> None:
        """Look again at once. Any thread may call this."""
        self._hurried.set()
        self.woken.set()

    def pause(self, deadline: float | None = None) -> None:
        """Wait until the next look is due or a watch fires."""
        left = min((plan.left_s for plan in self._plans.values() if plan.open), default=0.0)
        if deadline is not None:
            left = min(left, deadline - time.monotonic())
        if left > 0 and self.woken.wait(left):
            # More changes tend to follow shortly, and one later look finds all of them.
            until = self._next_look if deadline is None else min(self._next_look, deadline)
            self._hurried.wait(max(0.0, until - time.monotonic()))
        self._hurried.clear()
