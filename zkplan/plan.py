"""A handle on one plan: add tasks, mark it ready, pause, cancel, retry or remove it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from .author.constants import Constants
from .author.definition import Checker, Definer
from .author.functions import open_plans
from .author.new_plans import check_share
from .author.operator_actions import retry_all, retry_task, select
from .author.plan_reader import PlanReader
from .author.task_specs import AddOptions, TaskSpec, shows, specs_for
from .basics import tracing
from .basics.public_calls import told_to_caller
from .errors import InvalidTask, PlanError, PlanExists
from .gates import When
from .protocol.core import plan_life
from .protocol.core.add import NewTask
from .protocol.core.plan_life import change_share
from .protocol.features.author import Author, first_task
from .protocol.features.gates import ensure_gates
from .protocol.features.limits import missing_limits
from .protocol.features.plan_check import Report, check
from .protocol.layout import OWN_LIMIT, limits_in
from .protocol.records import PlanRecord, Share
from .tasks import MapResults, Task
from .values.check_blobs import check_blobs
from .values.check_seals import find_unsealed
from .values.connection import Connection
from .values.guard import reported
from .values.store_maintenance import remove
from .views.find import find_task
from .views.why_facts import LOOKED_AT, log_code_notes, notes_before_retry

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: A `with` block sends its adds when this many tasks have been kept back.
FLUSH_TASKS = 2000


class Plan(PlanReader):
    """A handle on a plan. Any process may have one, and it is thread-safe.

    A `with` block sends the adds in batches and marks the plan ready at its end. If the block
    raises, a plan that `create_plan` has just made is removed. A plan that `create_plan` has found
    by its key (`is_new` is False) is marked ready only if the block has added tasks with keys.
    """

    def __init__(
        self, client: Connection, path: str, record: PlanRecord | None = None, *, new: bool = False
    ) -> None:
        super().__init__(client, path, record)
        #: Whether `create_plan` made this plan, instead of finding it by its key.
        self.is_new = new
        #: The thread that is inside the `with` block of this plan.
        self._opened_by = 0
        #: Whether `create_plan` found this plan by its key, so that its tasks may exist already.
        self._found = False
        self._has_added = False
        self._author = Author(path, first_task(self.record) if new else None)
        self._checker: Checker | None = None
        #: None: nothing is shared.
        self._constants: Constants | None = Constants(path, client.values)
        self._lock = threading.RLock()
        self._pending: list[NewTask] | None = None
        self._new = new
        #: Limits that this handle knows to exist.
        self._limits: set[str] = set()

    @told_to_caller
    def task(self, which: str | int) -> Task:
        """Find a task by its number (12, "12", "task-0000000012"), its key or its name.

        A key takes one read. It finds a task until the plan is removed, finished or not, whether
        its result is kept or not. Any other text is searched for as a name: first among the
        unfinished tasks, which reads all of them, then among the finished tasks whose outcomes are
        kept, and in the history that is left. Raises InvalidTask if no task or several tasks have
        the name.
        """
        number, name = find_task(self._client, self.path, which)
        return Task(self, number, name)

    @told_to_caller
    def select(
        self, *, state: str | None = None, error: str | None = None, name: str | None = None
    ) -> list[Task]:
        """The unfinished tasks with this state, last error and name, oldest first.

        `state` is one that `tasks` lists, such as "dead". `error` and `name` are patterns as for
        file names: `error` matches the type of the last exception, such as "Timeout*", and `name`
        matches the name of the task. The call reads all unfinished tasks. Raises PlanNotFound, and
        InvalidTask for an unknown state.
        """
        found = select(self._client, self.path, state, error, name)
        return [Task(self, each.number, each.name or "") for each in found]

    # ---- defining

    @told_to_caller
    @shows(AddOptions, after=())
    def add_task(
        self,
        fn: Callable[..., Any] | When,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[AddOptions],
    ) -> Task:
        """Add one task.

        Arguments that are tasks of this plan, at any depth in lists, tuples, dicts and sets, become
        edges: the function gets their results. The task runs after the tasks in `after`, without
        their results. A gate (`zkplan.when`) may be an argument, an entry of `after`, or take the
        place of `fn`. The add is atomic, and acknowledged when the call, or the `with` block, ends.

        `attempts` is how often the task may run. `retry_delay` is the delay before the second
        attempt, in seconds. The delay doubles with each failure, less a random part of up to 30 %,
        so that tasks that failed together are not retried together. `timeout` limits one attempt,
        in seconds. A task with a higher `priority` runs earlier. `keep=True` keeps the result for
        `Task.result`; by default a result is kept if no other task takes it. Only workers that
        serve its `queue` run the task, while each of its `limits` has a permit
        (docs/start/guide.md). `pure=True` promises that the same arguments give the same result,
        and that nothing else depends on how often the function runs: chains of such tasks cost
        little more than their functions. With `isolation="process"` the task runs in a process of
        its own. A crash, a time-out, or use of more than `memory_limit` ends that process, and
        costs one attempt of this task alone. `memory_limit` (bytes, or a text such as "2GB")
        implies such a process. With "thread" the task never gets one.

        `fatal` names exceptions that use up all attempts at once: a class, several, or their names
        ("ValueError", "my.module:MyError"). `retry_if` names the only exceptions that are retried,
        or is a function that gets the exception, where the task ran, and returns whether to retry.

        `run_if` decides on which outcomes of its predecessors (the tasks that it takes or comes
        after) the task runs. With "all_succeeded" (the default) all must succeed. With
        "all_finished" it runs also if some have failed for good; its arguments then hold
        `zkplan.Failure` values for them. With "any_failed" it runs only if some have failed;
        otherwise it is skipped, and its result is None. An option left at None takes the plan's.

        A plan has at most one task with a given `key`. If it has one already, running or finished,
        the call returns that task and adds nothing. The task does not run before `not_before`. If
        it has not ended by `deadline`, it fails for good: a running task ends as at a time-out, any
        other when a worker takes it up. Both are a datetime with a zone, or a delay from now, in
        seconds or as a timedelta. The clock of the ZooKeeper server decides.

        Raises InvalidTask (also if the arguments do not fit the function, or a limit does not
        exist), ForeignTask, NotSerialisable and PayloadTooLarge before anything is written; and
        PlanDrained, PlanCancelled, PlanNotFound, and ResultNotKept if the result of an argument was
        not kept.
        """
        return self.add_tasks([TaskSpec(fn, args, kwargs, **options)])[0]

    @told_to_caller
    def add_tasks(self, specs: Iterable[TaskSpec]) -> list[Task]:
        """Add many tasks, in order, in pipelined batches: thousands a second. Raises as `add_task`.

        All tasks are checked and serialised before the first one is written. One transaction adds
        about a hundred tasks; a join of more than 1 200 edges takes several transactions. A plan
        that runs already may drain or be cancelled between two transactions. The attribute `added`
        of the error is then the number of tasks, from the first on, that are in the plan. To avoid
        such a partial add, mark the plan ready after the add.
        """
        specs = list(specs)
        if self._found and not all(spec.key for spec in specs):
            raise PlanExists(
                self.path,
                f"{self.path} with this key existed already (is_new is False), and so may its "
                "tasks: give each task a key, or add tasks only if is_new is True. To add tasks "
                "without keys all the same, get a handle from client.plan(key=…)",
            )
        gates, made = self._define(specs)
        with self._lock:
            tasks = [
                Task(self, "", spec.called, new) for spec, new in zip(specs, made, strict=True)
            ]
            self._submit([*gates, *made])
            self._has_added = True
        return tasks

    def _define(self, specs: Sequence[TaskSpec]) -> tuple[list[NewTask], list[NewTask]]:
        """Check and serialise tasks. Returns the gates that they need, and the new tasks. Raises as
        `add_task`, before anything of the plan is written."""
        record = self.record
        as_json = record.serializer == "json"
        if self._client.values.codec.is_json_only and not as_json:
            raise PlanError(
                self.path,
                f"{self.path} is a plan with serializer pickle, and this client writes and reads "
                'only JSON: connect with serializer="pickle", or create another plan',
            )
        defaults = record.defaults
        if author := tracing.author():
            defaults = replace(defaults, traceparent=author)
        checker = self._checker
        if checker is None or checker.defaults != defaults:
            checker = self._checker = Checker(defaults, as_json)
        definer = Definer(
            self.path,
            self._client.values,
            checker=checker,
            defaults=defaults,
            as_json=as_json,
            own_limit=record.max_running > 0,
            constants=self._constants,
        )
        try:
            made = [definer.define(spec) for spec in specs]
        finally:
            if self._pending is None and self._constants is not None:
                self._constants.forget_arguments()
        gates = definer.gates
        self._check_limits(made)
        if gates or any(new.gate for new in made):
            self._client.transport.run(ensure_gates(self._client.root))
        return gates, made

    def constant(self, value: Any) -> Any:
        """Return an argument that gives `value` to each task that takes it, at any depth in lists,
        tuples, dicts and sets. However many tasks take it, it lies in the plan once.

        The value is encoded now: later changes of it do not count. It is written with the first
        task that takes it (to a store at once), and deleted when the plan ends without failed
        tasks, or with the plan. Raises NotSerialisable, StoreUnavailable, and InvalidTask if it is
        too large, or holds tasks.
        """
        if self._constants is None:
            return value
        return self._constants.of(value, as_json=self.record.serializer == "json")

    @shows(AddOptions, after=())
    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        chunksize: int | Literal["auto"] = "auto",
        **options: Unpack[AddOptions],
    ) -> MapResults:
        """Add calls of `fn` with the items of the iterables, as the built-in `map` makes them.
        Returns the sequence of results.

        One task makes `chunksize` calls, so that tiny calls need not be tasks of their own: with
        "auto" there are at most 500 tasks. If one call of a task fails, all calls of that task are
        tried again. The iterables are read to the end of the shortest one before anything is
        written; more than five million calls are refused. `options` are those of `add_task`; the
        results are kept. Raises as `add_tasks`, and ZkplanError for a wrong `chunksize` and for too
        many calls.
        """
        specs, size, calls = specs_for(fn, iterables, chunksize, options)
        return MapResults(self.add_tasks(specs), size, calls)

    def _check_limits(self, tasks: list[NewTask]) -> None:
        """Raise InvalidTask if a task names a limit that does not exist."""
        limited = [task for task in tasks if "~" in task.queue]
        named = {name: task for task in limited for name in limits_in(task.queue)}
        unknown = set(named) - self._limits - {OWN_LIMIT}
        if not unknown:
            return
        missing = self._client.transport.run(missing_limits(self._client.paths, unknown))
        if missing:
            label, name = named[missing[0]].label, missing[0]
            command = self._client.command(f"limit set {name} SIZE")
            raise InvalidTask(
                label, f"{label}: there is no limit {name!r}; set it first: `{command}`"
            )
        self._limits |= unknown

    def _submit(self, tasks: list[NewTask]) -> None:
        if self._pending is None:
            self._send(tasks)
            return
        self._pending += tasks
        if len(self._pending) >= FLUSH_TASKS:
            self.flush()

    def _send(self, tasks: list[NewTask]) -> None:
        if self._constants is not None:
            self._client.transport.run(self._constants.write(self._author.explain_plan))
        self._author.cascades = self.record.on_failure == "cascade"
        self._client.transport.run(self._author.add(tasks))
        for task in tasks:
            # The author keeps the handles, which do not need the definitions any more.
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
            if kind is None and (self._has_added or not self._found):
                self.mark_ready()
        finally:
            self._pending, self._opened_by = None, 0
            if self._constants is not None:
                self._constants.forget_arguments()
            open_plans.set(tuple(plan for plan in open_plans.get() if plan is not self))
            if self._new:  # the block or one of its adds failed
                self.remove()

    def _refuse_to_wait_inside(self) -> None:
        """Raise PlanError inside the plan's own `with` block while the plan is not marked ready.

        Another thread may wait, because this thread will end the block.
        """
        if self._opened_by != threading.get_ident():
            return
        if self._client.transport.run(plan_life.status(self.path)).state == "defining":
            raise PlanError(
                self.path,
                f"{self.path} is marked ready at the end of its `with` block, and its tasks run "
                "only then: wait for them after the block",
            )

    # ---- control

    def mark_ready(self) -> None:
        """Let the plan run. Tasks may be added before and after. Repeating the call does no harm.

        Raises PlanNotFound, PlanCancelled, and PayloadUndecodable if the plan's record is not
        sealed with a key that this client has.
        """
        self.flush()
        known = self.record if self._new else None
        self._client.transport.run(plan_life.mark_ready(self.path, known))
        if self.is_new:
            self._client.authors.let_go(self.path, self.record.uid)
        self._new = False

    def pause(self) -> None:
        """Stop claiming tasks of this plan until `resume`. Running tasks go on.

        Raises PlanDrained, PlanCancelled, PlanNotFound, PlanError if the plan is not marked ready,
        and PayloadUndecodable if its record is not sealed with a key that this client has.
        Repeating the call does no harm.
        """
        self._client.transport.run(plan_life.change_state(self.path, "paused"))

    def resume(self) -> None:
        """Let a paused plan run again. Raises as `pause`."""
        self._client.transport.run(plan_life.change_state(self.path, "running"))

    def cancel(self) -> None:
        """Stop the plan for good, ready or not. Running tasks see `current().cancelled`."""
        self._client.transport.run(plan_life.change_state(self.path, "cancelled"))

    @told_to_caller
    def set(self, *, weight: int | None = None, priority: int | None = None) -> None:
        """Change the share of a plan that runs or is paused. None leaves a value as it is.

        While several plans have work of the same priority, each worker divides the time of its
        slots among these plans by `weight` (1 to 1000, 1 by default). A higher `priority` (-4999 to
        5000) goes first. It replaces the priority in the plan's defaults: all tasks of the plan
        move by the difference, also those that wait already. Workers follow within about a second;
        tasks that they have claimed go on.

        Raises InvalidTask for a value out of range, and as `pause`.
        """
        check_share(weight, priority)
        self._client.transport.run(change_share(self.path, Share(weight, priority)))

    def check(self, repair: bool = True) -> Report:
        """Check the whole plan against the invariants, and its values in the store for damage (up
        to 1 GiB of them are read). With keys, also report data that no key has sealed for its
        place. With `repair`, repair damage where that is safe, and delete values that nothing
        needs. Raises StoreUnavailable."""
        client = self._client
        with reported(self.path):
            report = client.transport.run(check(client.paths, self.number, repair))
            if client.guard is not None:
                unsealed = find_unsealed(client.guard, client.paths, self.number)
                report.problems += client.transport.run(unsealed)
            check_blobs(client.transport, client.paths, client.values, self.number, repair, report)
        return report

    def remove(self) -> int:
        """Cancel and delete the plan and its values in the store. Returns how many tasks were
        unfinished."""
        return remove(self._client.transport, self._client.values, self.path) or 0

    def retry(self) -> int:
        """Run all failed tasks again, with all their attempts. Returns how many.

        A plan whose `on_failure` is "cascade" can be retried only after its end (`wait`); before,
        this raises PlanError. The failed tasks and those that failed because of them run again,
        with the results that other tasks have delivered. Tasks that have run on a failure
        (`run_if`) do not. This undoes the end of the plan. All tasks are put back, or none: if this
        process dies halfway, call `retry` again to go on.

        Tasks that were cancelled while they waited for others are passed over. Raises as
        `retry_task`. Damaged dead letters raise PayloadUndecodable only after all other tasks were
        retried. Logs a note where a fix of the code would not run, because the code was sent with
        the plan, or because workers have loaded an older version of it.
        """
        numbers = [number for number, _ in islice(self.dead(), LOOKED_AT)]
        notes = notes_before_retry(self._client, self.path, numbers)
        retried = retry_all(self._client.transport, self.path)
        log_code_notes(notes if retried else ())
        return retried

    def retry_task(self, number: str) -> bool:
        """Make the dead task with this number runnable again. Returns False if it is not dead.

        The task gets all its attempts again. Raises PlanNotFound, PlanCancelled (no task of a
        cancelled plan would run), and PayloadUndecodable if the dead letter is damaged. Logs as
        `retry`.
        """
        notes = notes_before_retry(self._client, self.path, [number])
        is_retried = retry_task(self._client.transport, self.path, number)
        log_code_notes(notes if is_retried else ())
        return is_retried
