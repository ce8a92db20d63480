"""A plan for its author: add tasks, mark it ready, control it, and wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from .connection import Connection
from .errors import PlanError, ZkplanError
from .functions.decorator import open_plans
from .functions.definition import define_all
from .functions.mapping import MapResults, specs_for
from .inspection.dead_letters import dead_letters, retry_all, retry_task
from .inspection.deadlock import status_of
from .inspection.find import find_task
from .inspection.graph import PlanGraph, plan_graph
from .inspection.outcomes import OutcomeSummary, kept_outcomes
from .inspection.plan_progress import PlanProgress, plan_progress
from .inspection.unfinished import TaskSummary, unfinished_tasks
from .inspection.view import Why
from .inspection.why import why_plan
from .protocol import control
from .protocol.adding import NewTask
from .protocol.author import Author
from .protocol.check import Report, check
from .protocol.control import PlanStatus
from .protocol.layout import number_of
from .protocol.look import plan_record
from .protocol.records import Dead, PlanRecord
from .store.compare import check_blobs
from .store.end import remove
from .tasks import Task, TaskSpec
from .tracebacks import told_to_caller
from .waiting.plan_async import in_thread
from .waiting.plan_end import end_if_drained, wait_for_plan
from .waiting.results import kept_results, results_of
from .waiting.watcher import Watcher

#: A `with` block sends its adds when this many tasks have been kept back.
FLUSH_TASKS = 2000


class Plan:
    """A handle on a plan. Any process may have one, and it is thread-safe.

    A `with` block sends the adds in batches and marks the plan ready at its end. If the block
    raises, a plan that `create_plan` has just made is removed.
    """

    def __init__(
        self, client: Connection, path: str, record: PlanRecord | None = None, *, new: bool = False
    ) -> None:
        self._client = client
        self.path = path
        self._record = record
        self._author = Author(path)
        self._lock = threading.RLock()
        self._pending: list[NewTask] | None = None
        #: The thread that is inside the plan's `with` block.
        self._opened_by = 0
        self._new = new
        self._watcher = Watcher[Task]()

    @property
    def client(self) -> Any:
        """The Client of this plan. (The type is Any because the module of Client imports this
        one.)"""
        return self._client

    @property
    def number(self) -> str:
        """The ten digits in the name of its znode, a text. `int(plan.number)` is the number that
        commands print."""
        return number_of(self.path)

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def record(self) -> PlanRecord:
        """The plan's record, which never changes. Raises PlanNotFound, PayloadUndecodable."""
        if self._record is None:
            self._record = self._client.transport.run(plan_record(self.path))
        return self._record

    @told_to_caller
    def task(self, which: str | int) -> Task:
        """Find a task by its number (12, "12", "task-0000000012") or its name.

        A name is searched for among the unfinished tasks, which reads all of them. If none has it,
        it is searched for among the finished tasks whose outcomes are kept. Raises InvalidTask if
        no task or several tasks have the name.
        """
        number, name = find_task(self._client, self.path, which)
        return Task(self, number, name)

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
        pure: bool | None = None,
        after: Sequence[Task] = (),
    ) -> Task:
        """Add one task.

        Arguments that are tasks of this plan, at any depth in lists, tuples, dicts and sets, become
        edges: the function gets their results. The add is atomic. It is acknowledged when the call
        returns, or inside a `with` block when the block ends.

        `attempts` is how often the task may run. `retry_delay` is the delay before the second
        attempt, in seconds. It doubles with each failure, and each delay is shortened by a random
        part of up to 30 %, so that tasks that failed together are not retried together. `timeout`
        limits one attempt, in seconds. A task with a higher `priority` runs earlier. `keep=True`
        keeps the result for `Task.result`; by default a result is kept if no other task takes it.
        `pure=True` promises that the same arguments give the same result, and that nothing else
        depends on how often the function runs. Chains of such tasks cost a worker little more than
        their functions. The task runs after those in `after`, whose results it does not take.
        An option left at None takes the plan's default.

        Raises InvalidTask (also if the arguments do not fit the function), ForeignTask,
        NotSerialisable and PayloadTooLarge before anything is written. Raises PlanDrained,
        PlanCancelled, PlanNotFound, and ResultNotKept if a dependency has finished and its result
        is gone.
        """
        spec = TaskSpec(
            fn, args, kwargs, name, attempts, retry_delay, timeout, priority, keep, pure, after
        )
        return self.add_tasks([spec])[0]

    @told_to_caller
    def add_tasks(self, specs: Sequence[TaskSpec]) -> list[Task]:
        """Add many tasks, in order, in pipelined batches: thousands a second. Raises as `add_task`.

        All tasks are checked and serialised before the first one is written. One transaction adds
        about a hundred tasks; a join of more than 1 200 edges takes several transactions. A plan
        that runs already may drain or be cancelled between two transactions. Then `added` of the
        error says how many of the tasks, from the first on, are in the plan. To rule that out, mark
        the plan ready after the add.
        """
        made = define_all(specs, self.path, self._client.values, self.record.defaults)
        with self._lock:
            tasks = [
                Task(self, "", spec.called, new) for spec, new in zip(specs, made, strict=True)
            ]
            self._submit(made)
        return tasks

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        chunksize: int | Literal["auto"] = "auto",
        **options: Any,
    ) -> MapResults:
        """Add calls of `fn` with the items of the iterables, as `map` would call it. Returns the
        sequence of results.

        One task makes `chunksize` calls, so that tiny calls are not a task each: with "auto" there
        are at most 500 tasks. If one call of a task fails, the task is tried again as a whole. The
        iterables are read to the shortest one's end before anything is written; without an end
        within five million calls they are refused. `options` are those of `add_task`; the results
        are kept. Raises as `add_tasks`, and ZkplanError for a wrong `chunksize` and for too many
        calls.
        """
        specs, size, calls = specs_for(fn, iterables, chunksize, options)
        return MapResults(self.add_tasks(specs), size, calls)

    def _submit(self, tasks: list[NewTask]) -> None:
        if self._pending is None:
            self._send(tasks)
            return
        self._pending += tasks
        if len(self._pending) >= FLUSH_TASKS:
            self.flush()

    def _send(self, tasks: list[NewTask]) -> None:
        self._client.transport.run(self._author.add(tasks))
        for task in tasks:
            # The author keeps the handles; the definitions are not needed any more.
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
        open_plans.set((*open_plans.get(), self))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.mark_ready()
        finally:
            self._pending, self._opened_by = None, 0
            open_plans.set(tuple(plan for plan in open_plans.get() if plan is not self))
            if self._new:  # the block or its adds have failed
                self.remove()

    # ---- control

    def mark_ready(self) -> None:
        """Let the plan run. Tasks may be added before and after. Repeating the call does no
        harm."""
        self.flush()
        self._client.transport.run(control.mark_ready(self.path))
        self._new = False

    def pause(self) -> None:
        """Stop claiming tasks of this plan until `resume`. Running tasks go on.

        Raises PlanDrained, PlanCancelled, PlanNotFound, and PlanError if the plan is not marked
        ready. Repeating the call does no harm.
        """
        self._client.transport.run(control.change_state(self.path, "paused"))

    def resume(self) -> None:
        """Let a paused plan run again. Raises as `pause`."""
        self._client.transport.run(control.change_state(self.path, "running"))

    def cancel(self) -> None:
        """Stop the plan for good, ready or not. Running tasks see `current().cancelled`."""
        self._client.transport.run(control.change_state(self.path, "cancelled"))

    def remove(self) -> int:
        """Cancel and delete it, also its values in the store. Returns how many tasks were left."""
        return remove(self._client.transport, self._client.values, self.path)

    def retry(self) -> int:
        """Make all dead tasks runnable again, with all their attempts. Returns how many.

        Raises as `retry_task`. Damaged dead letters raise PayloadUndecodable only after all other
        tasks were retried. In a plan whose `on_failure` is "cascade" no task is dead: its failures
        are final outcomes.
        """
        return retry_all(self._client.transport, self.path)

    def dead(self) -> Iterator[tuple[str, Dead]]:
        """Iterate over the tasks that are out of attempts: number and dead letter. Raises
        PlanNotFound.

        The iterator reads in batches as it goes on. `dict(plan.dead())` makes a mapping of all.
        """
        return dead_letters(self._client.transport, self.path)

    def retry_task(self, number: str) -> bool:
        """Make the dead task of that number runnable again. Returns False if it is not dead.

        The task gets all its attempts again. Raises PlanNotFound, PlanCancelled (no task of a
        cancelled plan would run), and PayloadUndecodable if the dead letter is damaged.
        """
        return retry_task(self._client.transport, self.path, number)

    # ---- watching

    def tasks(self) -> Iterator[TaskSummary]:
        """Iterate over all unfinished tasks, oldest first. Raises PlanNotFound.

        The iterator reads in batches as it goes on, so each task is shown as it was at its own
        moment.
        """
        return unfinished_tasks(self._client, self.path)

    def outcomes(self) -> Iterator[OutcomeSummary]:
        """Iterate over all kept results and failures, by task number. Raises PlanNotFound.

        The iterator reads in batches as it goes on. `task(number).result()` returns the value of
        one.
        """
        return kept_outcomes(self._client, self.path)

    def status(self) -> PlanStatus:
        """The plan in numbers. Raises PlanNotFound.

        This costs one batch of reads, however large the plan is. If tasks are dead and none is
        runnable, it costs about nine more, which prove whether the plan has failed: they read the
        claims of all workers, among others.
        """
        return status_of(self._client, self.path)

    def progress(self) -> PlanProgress:
        """The tasks counted by state. It reads the plan's indexes and the claims of all workers.
        Raises PlanNotFound."""
        return plan_progress(self._client, self.path)

    def why(self) -> Why:
        """Why it has not ended: exact causes, with what to do. The reads are bounded, however large
        the plan is; the causes are not all of one moment. Raises PlanNotFound."""
        return why_plan(self._client, self.path)

    def graph(self) -> PlanGraph:
        """All unfinished tasks, alike ones in one box. Raises PlanNotFound."""
        return plan_graph(self._client, self.path)

    def is_drained(self) -> bool:
        """Whether every task has finished. Raises PlanNotFound."""
        status = self._client.transport.run(control.status(self.path))
        if status.state == "running" and not status.tasks:
            return end_if_drained(self._client, self.path)
        return status.state == "done"

    @told_to_caller
    def wait(
        self, timeout: float | None = None, progress: bool = False, fail_fast: bool = False
    ) -> PlanStatus:
        """Wait until the plan is drained. `timeout` is in seconds.

        With `progress`, a terminal shows a progress bar. With `fail_fast`, the first task that
        fails for good raises PlanFailed, while the other tasks go on. Without it, PlanFailed is
        raised when tasks are dead and nothing else can run, or when the plan has drained with
        failures.

        Raises PlanCancelled, PlanStuck, PlanNotFound and WaitTimeout, too; PlanError inside the
        plan's own `with` block, where the wait would never end; ZkplanError for a time below 0. The
        plan is looked at once more when the time is over. So even with `timeout=0` a plan that
        cannot go on raises PlanFailed or PlanStuck.
        """
        self._refuse_to_wait_inside()
        return wait_for_plan(self._client, self.path, timeout, progress, fail_fast)

    async def wait_async(self, timeout: float | None = None, fail_fast: bool = False) -> PlanStatus:
        """`wait` for coroutines: `await plan.wait_async()`. It uses one thread while it waits."""
        self._refuse_to_wait_inside()
        return await in_thread(
            lambda given_up: wait_for_plan(
                self._client, self.path, timeout, False, fail_fast, given_up
            )
        )

    @told_to_caller
    def results(
        self,
        tasks: Iterable[Task] | None = None,
        timeout: float | None = None,
        on_error: Literal["raise", "return"] = "raise",
    ) -> list[Any]:
        """Wait for the results of many tasks and return them, in the order asked.

        They are read in batches while the plan runs. Without `tasks`, this waits until the plan has
        ended, and returns all kept results by task number. `timeout` is in seconds.

        The first task that fails raises as `Task.result` does. With `on_error="return"` its
        exception stands in the list in place of its value, and so does the PlanFailed or
        PlanCancelled of tasks that can never finish. A task whose result will not be kept raises
        ResultNotKept before the wait. Raises ForeignTask for a task of another plan, WaitTimeout,
        ZooKeeperUnavailable, and PlanError as `wait`.
        """
        if on_error not in ("raise", "return"):
            raise ZkplanError(f'on_error must be "raise" or "return", not {on_error!r}')
        self._refuse_to_wait_inside()
        raises = on_error == "raise"
        if tasks is None:
            return kept_results(self._client, self.path, timeout, raises)
        return results_of(self._client, self.path, list(tasks), timeout, raises)

    def _refuse_to_wait_inside(self) -> None:
        """Raise PlanError inside the plan's own `with` block while the plan is not marked ready.

        Another thread may wait: this one will end the block.
        """
        if self._opened_by != threading.get_ident():
            return
        if self._client.transport.run(control.status(self.path)).state == "defining":
            raise PlanError(
                self.path,
                f"{self.path} is marked ready at the end of its `with` block, and its tasks run "
                "only after it: wait for them below the block",
            )

    def check(self, repair: bool = True) -> Report:
        """Check the whole plan against the invariants, and its values in the store: up to 1 GiB of
        them are read, to find damaged ones. With `repair`, repair what may be repaired, and delete
        values that nothing needs. Raises StoreUnavailable."""
        client = self._client
        report = client.transport.run(check(client.paths, self.number, repair))
        check_blobs(client.transport, client.paths, client.values, self.number, repair, report)
        return report

    def __repr__(self) -> str:
        return f"<Plan {self.path}>"
