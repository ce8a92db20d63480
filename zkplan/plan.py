"""The author's side: define a plan's tasks, mark it ready, control it, wait for it."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from .connection import Connection
from .errors import (
    InvalidTask,
    PayloadUndecodable,
    PlanCancelled,
    PlanError,
    PlanNotFound,
    ZkplanError,
)
from .inspect.dead_letters import dead_letters, retry_all
from .inspect.deadlock import status_of
from .inspect.outcomes import OutcomeSummary, kept_outcomes
from .inspect.unfinished import Listing, TaskSummary
from .inspect.waiting import wait_for_plan
from .protocol import control
from .protocol.adding import NewTask
from .protocol.author import Author
from .protocol.check import Report, check
from .protocol.control import PlanStatus
from .protocol.failure import retry
from .protocol.layout import number_of
from .protocol.records import Dead, PlanRecord
from .protocol.requests import ReadData
from .serialization.codec import function_name
from .task import Task, TaskSpec, define
from .text import count
from .tracebacks import told_to_caller

#: Adds kept back inside a `with` block before they are sent.
FLUSH_TASKS = 2000


class Plan:
    """A handle on a plan; any process may have one. Safe for several threads.

    As a `with` block it sends the adds in batches and marks the plan ready at the end; if the block
    raises, the plan is removed.
    """

    def __init__(
        self, client: Connection, path: str, record: PlanRecord | None = None, *, new: bool = False
    ) -> None:
        self.client = client
        self.path = path
        self._record = record
        self._author = Author(path)
        self._lock = threading.RLock()
        self._pending: list[NewTask] | None = None
        #: The thread that is inside the plan's `with` block.
        self._opened_by = 0
        self._new = new

    # ---- what it is

    @property
    def number(self) -> str:
        return number_of(self.path)

    @property
    def name(self) -> str:
        return self.record.name

    def _has_name(self, name: str) -> bool:
        """Whether it is called so, as far as this handle knows; asks nobody."""
        return self._record is not None and self._record.name == name

    @property
    def record(self) -> PlanRecord:
        """The plan's immutable record; raises PlanNotFound, PayloadUndecodable."""
        if self._record is None:
            node = self.client.transport.ask(ReadData(self.path))
            if node is None:
                raise PlanNotFound(self.path, f"there is no plan {self.path}")
            try:
                self._record = PlanRecord.from_bytes(node.data)
            except PayloadUndecodable as error:
                raise PayloadUndecodable(f"{self.path}: {error}") from None
        return self._record

    @told_to_caller
    def task(self, which: str | int) -> Task:
        """The handle of the task of that number (12, "12", "task-0000000012") or name.

        A name is looked for among the unfinished tasks, which reads all of them; where none has it,
        among the finished ones whose outcomes are kept. Raises InvalidTask where none or several
        have it.
        """
        text = str(which).removeprefix("task-")
        if text.isdecimal() and len(text) <= 10:
            return Task(self, f"{int(text):010d}")
        name = str(which)
        if not name:
            raise InvalidTask(name, "an empty text is neither the number nor the name of a task")
        found, unread = set(), 0
        for task in self.tasks():
            unread += task.name is None
            if task.name == name:
                found.add(task.number)
        found |= {number for number, dead in self.dead() if dead.name == name}
        if not found:
            for kept in self.outcomes():
                unread += kept.kind == "undecodable"
                if kept.name == name:
                    found.add(kept.number)
        if len(found) == 1:
            return Task(self, found.pop(), name)
        if not found and unread:
            raise InvalidTask(
                name,
                f"none of the names that can be read here is {name!r}, and those of "
                f"{count(unread, 'task')} of {self.path} cannot be: the secret (ZKPLAN_SECRET) may "
                "be missing or another one; by its number a task is found all the same",
            )
        if not found:
            raise InvalidTask(
                name,
                f"{self.path} has no unfinished task named {name!r}, and no kept outcome of one: a "
                "finished task whose result went to its dependents leaves nothing (keep=True)",
            )
        raise InvalidTask(
            name,
            f"{self.path} has {len(found)} tasks named {name!r}; say the number of one: "
            + ", ".join(sorted(found)[:5])
            + (", …" if len(found) > 5 else ""),
        )

    # ---- defining

    @told_to_caller
    def add_task(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        attempts: int | None = None,
        retry_delay: float | None = None,
        timeout: float | None = None,
        priority: int | None = None,
        keep: bool | None = None,
    ) -> Task:
        """Add one task. Arguments that are tasks of this plan, at any depth in lists, tuples, dicts
        and sets, are edges: the function gets their results.

        Atomic, and acknowledged when it returns (inside a `with` block: when the block ends).
        `timeout` in seconds, and `retry_delay`, which doubles with each failure and is shortened by
        up to 30 % by chance, so that what failed together is not tried together; a higher
        `priority` runs earlier; `keep` True keeps the result for `Task.result` (default: results
        that went to nobody). An option left at None takes the plan's default.

        Raises InvalidTask (also for arguments that do not fit the function), ForeignTask,
        NotSerialisable, PayloadTooLarge before anything is written; PlanDrained, PlanCancelled,
        PlanNotFound, ResultNotKept (a dependency has finished and its result is gone).
        """
        spec = TaskSpec(fn, args, kwargs, name, attempts, retry_delay, timeout, priority, keep)
        return self.add_tasks([spec])[0]

    @told_to_caller
    def add_tasks(self, specs: Sequence[TaskSpec]) -> list[Task]:
        """Add many tasks, in order, in pipelined batches: thousands a second. Raises as `add_task`.

        All of them are checked and serialised before the first is written. About a hundred tasks go
        in one transaction, a join of more than 1 200 edges in several. A plan that runs already may
        drain, or be cancelled, between two transactions: the `added` of the error says how many
        tasks, the first ones, were added before. Mark the plan ready after the add to rule that
        out.
        """
        functions: dict[int, bytes] = {}
        signatures: dict[int, inspect.Signature | None] = {}
        defaults, codec = self.record.defaults, self.client.codec
        made = [define(spec, self.path, codec, defaults, functions, signatures) for spec in specs]
        with self._lock:
            tasks = [
                Task(self, "", spec.name or function_name(spec.fn), new)
                for spec, new in zip(specs, made, strict=True)
            ]
            self._submit(made)
        for spec in specs:
            spec._new = None
        return tasks

    def _submit(self, tasks: list[NewTask]) -> None:
        if self._pending is None:
            self._send(tasks)
            return
        self._pending += tasks
        if len(self._pending) >= FLUSH_TASKS:
            self.flush()

    def _send(self, tasks: list[NewTask]) -> None:
        try:
            self.client.transport.run(self._author.add(tasks))
        except ZkplanError as error:
            error.added = sum(bool(task.number) for task in tasks)
            if error.added:
                told = f"{error.added} of the {len(tasks)} tasks of this add are in the plan"
                error.args = (f"{error}; the first {told}",)
            raise
        for task in tasks:
            # The handles live on with the author; the definitions need not.
            task.record, task.deps, task.known = b"", [], {}

    def flush(self) -> None:
        """Send the adds that a `with` block has kept back."""
        with self._lock:
            if self._pending:
                tasks, self._pending = self._pending, []
                self._send(tasks)

    def __enter__(self) -> Plan:
        if self._pending is not None:
            raise PlanError(self.path, f"{self.path} is already open in a `with` block")
        self._pending = []
        self._opened_by = threading.get_ident()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.flush()
                self.mark_ready()
                return
        except BaseException:
            self._abandon()
            raise
        finally:
            self._pending = None
            self._opened_by = 0
        self._abandon()

    def _abandon(self) -> None:
        """Leave nothing behind; a plan that existed before the block is left as it is."""
        if self._new:
            self.remove()

    # ---- control

    def mark_ready(self) -> None:
        """Let the plan run. Tasks may be added before and after. Harmless when repeated."""
        self.flush()
        self.client.transport.run(control.mark_ready(self.path))
        self._new = False

    def pause(self) -> None:
        """Nothing more is claimed until `resume`; running tasks go on.

        It and the next two raise PlanDrained, PlanCancelled, PlanNotFound; PlanError where the plan
        is not marked ready, except for `cancel`. Harmless when repeated.
        """
        self.client.transport.run(control.change_state(self.path, "paused"))

    def resume(self) -> None:
        """Let a paused plan go on."""
        self.client.transport.run(control.change_state(self.path, "running"))

    def cancel(self) -> None:
        """Nothing more is claimed, ever; running tasks see `current().cancelled`."""
        self.client.transport.run(control.change_state(self.path, "cancelled"))

    def remove(self) -> int:
        """Cancel the plan and delete all of it; gives the number of unfinished tasks deleted."""
        return self.client.transport.run(control.remove(self.path))

    def retry(self) -> int:
        """Give all dead tasks their attempts again; gives how many. Raises as `retry_task`.

        The failures of a plan whose `on_failure` is "cascade" are final, for they are results.
        PayloadUndecodable, of damaged dead letters, only when all others are retried.
        """
        self._refuse_if_cancelled()
        return retry_all(self.client.transport, self.path)

    def dead(self) -> Iterator[tuple[str, Dead]]:
        """The number and dead letter of each task that is out of attempts. Raises PlanNotFound.

        Read in batches as the iterator goes on; `dict` makes a mapping of all.
        """
        return dead_letters(self.client.transport, self.path)

    def retry_task(self, number: str) -> bool:
        """Give the dead task of that number its attempts again; False where it is not dead.

        Raises PlanNotFound; PlanCancelled, for nothing of the plan would be claimed;
        PayloadUndecodable where its dead letter is damaged.
        """
        self._refuse_if_cancelled()
        return self.client.transport.run(retry(self.path, number))

    def _refuse_if_cancelled(self) -> None:
        if self._state() == "cancelled":
            raise PlanCancelled(
                self.path, f"{self.path} was cancelled: none of its tasks would run again"
            )

    # ---- watching

    def tasks(self) -> Iterator[TaskSummary]:
        """All unfinished tasks, oldest first. Raises PlanNotFound.

        Read in batches as the iterator goes on, so each is true of its own moment.
        """
        return Listing(self.client, self.path).tasks()

    def outcomes(self) -> Iterator[OutcomeSummary]:
        """All kept results and failures, by number. Raises PlanNotFound.

        Read in batches as the iterator goes on. `task(number).result()` gives the value of one.
        """
        return kept_outcomes(self.client, self.path)

    def status(self) -> PlanStatus:
        """The plan in numbers: one batch of reads, whatever its size. Raises PlanNotFound.

        Up to nine more, of the claims of all workers among others, where tasks are dead and none is
        runnable: to prove that the plan has failed.
        """
        return status_of(self.client, self.path)

    def _state(self) -> str:
        """The state as its control znodes say it: a plan that has failed is `running`."""
        return self.client.transport.run(control.status(self.path)).state

    def is_drained(self) -> bool:
        """Whether every task has finished. Raises PlanNotFound."""
        status = self.client.transport.run(control.status(self.path))
        if status.state == "done":
            return True
        if status.tasks or status.state != "running":
            return False
        return self.client.transport.run(control.finish(self.path, time.time()))

    @told_to_caller
    def wait(
        self, timeout: float | None = None, progress: bool = False, fail_fast: bool = False
    ) -> PlanStatus:
        """Wait until the plan is drained; `timeout` in seconds; `progress`: a bar on a terminal.

        With `fail_fast` the first task that fails for good raises PlanFailed; the others go on.
        Else raises PlanFailed when tasks are dead and nothing else can run (or it drained with
        failures), PlanCancelled, PlanStuck, PlanNotFound, WaitTimeout; PlanError inside the
        plan's own `with` block, where it would wait for ever; ZkplanError for a time below 0. The
        last look is at the end of the time: with `timeout=0` too, a plan that cannot go on raises
        PlanFailed or PlanStuck.
        """
        self._refuse_to_wait_inside()
        return wait_for_plan(self.client, self.path, timeout, progress, fail_fast)

    def _refuse_to_wait_inside(self) -> None:
        """Raise PlanError inside the plan's own `with` block while the plan is not marked ready.

        Another thread may wait there: this one will end the block.
        """
        inside = self._opened_by == threading.get_ident()
        if inside and self._state() == "defining":
            raise PlanError(
                self.path,
                f"{self.path} is marked ready at the end of its `with` block, and its tasks run "
                "only after it: wait for them below the block",
            )

    def check(self, repair: bool = True) -> Report:
        """Read the whole plan and report (and mend) what the invariants forbid."""
        return self.client.transport.run(check(self.client.paths, self.number, repair))

    def __repr__(self) -> str:
        return f"<Plan {self.path}>"
