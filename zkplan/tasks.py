"""A handle on one task, and on the results of a map: wait, inspect, skip, cancel or retry."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, overload

from .author.futures import completion
from .author.handles import TaskHandle
from .author.operator_actions import Decisions
from .author.plan_reader import PlanReader
from .author.results import (
    failure_in,
    has_completed,
    not_kept,
    open_outcome,
    read_outcomes,
    refuse_unkept,
    wait_for_outcome,
    with_reads,
)
from .author.waiting import in_thread
from .basics.notebook_html import Picture, readable, task_picture
from .basics.public_calls import Duration, told_to_caller
from .basics.text import count
from .errors import NotSerialisable, PlanError, ResultNotKept
from .protocol.core.add import NewTask
from .values import codec as codecs
from .values.blobs import Read
from .values.connection import Connection
from .views.notebook import show_live
from .views.task_info import TaskInfo, task_info, task_state
from .views.task_logs import TaskLog, follow_logs, read_logs
from .views.why import why_task
from .views.why_facts import Why

if TYPE_CHECKING:
    from .author.handles import Callback

#: The most tasks, and the most bytes, that iterating over results reads ahead.
AHEAD, AHEAD_BYTES = 100, 8 * 1024 * 1024


class Task(TaskHandle):
    """A handle on a task. As an argument of another task, the handle stands for the result."""

    __slots__ = (
        "_defined",
        "_feeds",
        "_keep",
        "_new",
        "_number",
        "_outcome",
        "_plan",
        "_reads",
        "name",
    )

    def __init__(
        self, plan: PlanReader, number: str = "", name: str = "", new: NewTask | None = None
    ) -> None:
        self._plan = plan
        self.name = name
        self._number = number
        self._new = new
        #: Whether this handle comes from the add of the task, so that it knows the option `keep`.
        self._defined = new is not None
        self._keep = None if new is None else new.keep
        #: Whether another task takes the result, as far as this handle knows.
        self._feeds = False
        #: The sealed outcome that was read together with others, until `result` takes it.
        self._outcome: bytes | None = None
        #: Gives the blob of the value where blobs are read together.
        self._reads: Read | None = None

    @property
    def plan(self) -> Any:
        """The plan of this task. (The type is Any because the module of Plan imports this one.)"""
        return self._plan

    @property
    def number(self) -> str:
        """The ten digits in the name of the task's znode. Inside a `with` block this sends the adds
        made so far."""
        if not self._number and self._new is not None:
            if not self._new.number:  # else a `with` block would send its adds one by one
                self._plan.flush()
            self._number = self._new.number
            if self._number:
                # Another author may have added it under the same key, with other options.
                self._defined = not self._new.existed
                self._feeds, self._new = self._feeds or self._new.feeds, None
        return self._number

    @property
    def is_new(self) -> bool:
        """Whether the add that returned this handle made the task, instead of finding it by its
        key. Inside a `with` block this sends the adds made so far."""
        return bool(self.number) and self._defined

    @property
    def path(self) -> str:
        return f"{self._plan.path}/task-{self.number}"

    # ---- its outcome

    @told_to_caller
    def result(self, timeout: Duration | None = None) -> Any:
        """Wait for the result and return it. `timeout` is in seconds.

        If the task is out of attempts, this raises the function's own exception, or TaskFailed if
        that exception cannot be restored or the last attempt ran out of time. If the result will
        not be kept, this raises ResultNotKept before the wait. Raises WaitTimeout after `timeout`,
        and as `Plan.wait` if the result can never come. Raises PlanError where the wait would never
        end: inside the plan's own `with` block, and for a task that the running task has just
        added.
        """
        outcome, self._outcome = self._wait(timeout, value=True), None
        read, self._reads = self._reads, None
        return open_outcome(self._plan.client.values, outcome, self.path, self.name, read)

    @told_to_caller
    def exception(self, timeout: Duration | None = None) -> Exception | None:
        """Wait as `result` does, and return the exception that `result` would raise, or None if the
        task has succeeded.

        Returns PlanCancelled, PlanFailed, PlanStuck or PlanNotFound if the task can never finish.
        Raises WaitTimeout, ZooKeeperUnavailable, and PlanError where the wait would never end.
        """
        self._waited_for()
        try:
            self._outcome = self._wait(timeout, value=False)
        except PlanError as error:
            return error
        except ResultNotKept:
            return None
        codec = self._plan.client.codec
        kind, body = codec.open(codecs.VALUE + codecs.FAILURE, self._outcome)
        return failure_in(codec, body, self.path, self.name) if kind == codecs.FAILURE else None

    def done(self) -> bool:
        """Whether the task has finished, is out of attempts, or was cancelled with its plan."""
        client, plan_path, number = self._waited_for()
        return self._outcome is not None or has_completed(client, plan_path, number)

    def running(self) -> bool:
        """Whether a worker has claimed the task."""
        return self.state() == "running"

    def add_done_callback(self, fn: Callable[[Task], object]) -> None:
        """Call `fn(task)` once when the task has completed (see `as_completed`), or at once.

        The call comes from a thread that serves all tasks of this plan, so `fn` must not block. An
        exception of `fn` is logged. `task.result()` inside `fn` needs no request.
        """

        def callback(_: object, outcome: bytes | None) -> None:
            self._bring(outcome)
            fn(self)

        self._watch(callback)

    def __await__(self) -> Generator[Any, None, Any]:
        """`await task` gives the result, or raises as `result` does. All awaited tasks of this plan
        share one thread."""
        return self._awaited().__await__()

    async def _awaited(self) -> Any:
        client, plan_path, number = self._waited_for()
        if self._outcome is None and self._is_kept() is not True:
            await in_thread(lambda _: refuse_unkept(client, plan_path, {number: self}))
        completed, outcome = await completion(self)
        if completed.error is not None:
            raise completed.error
        if outcome is None:
            raise not_kept(self.path, self.name)
        return open_outcome(self._plan.client.values, outcome, self.path, self.name)

    def _wait(self, timeout: Duration | None, value: bool) -> bytes:
        client, plan_path, number = self._waited_for()
        if self._outcome is not None:
            return self._outcome
        return wait_for_outcome(client, plan_path, number, self, timeout, value)

    def _waited_for(self) -> tuple[Connection, str, str]:
        self._plan._refuse_to_wait_inside()
        self._refuse_unsent()
        return self._plan.client, self._plan.path, self.number

    def _refuse_unsent(self) -> None:
        if not self.number:
            raise PlanError(
                self._plan.path,
                f"{self!r} is added only when the task that adds it commits, so the adding task "
                "cannot wait for it: give it to another task as an argument",
            )

    def _bring(self, outcome: bytes | None, read: Read | None = None) -> None:
        self._outcome, self._reads = outcome, read

    def _is_taken(self) -> bool:
        return self._outcome is None

    def _watch(self, callback: Callback) -> Callable[[], None]:
        self._plan._watcher.add(self, callback)
        return lambda: self._plan._watcher.discard(self, callback)

    def _is_kept(self) -> bool | None:
        if self._feeds or (self._new is not None and self._new.feeds):
            return bool(self._keep) if self._defined else None
        return self._keep is not False if self._defined else None

    # ---- its state, and control

    def state(self) -> str:
        """`finished`, or the state that `Plan.tasks` lists for the task. Raises InvalidTask if the
        task never existed, or was removed with its plan."""
        client, plan_path, number = self._waited_for()
        return task_state(client, plan_path, number, self._defined)

    def info(self) -> TaskInfo:
        """What is known of the task now: state, attempts, worker, last error, progress. Raises as
        `state`."""
        client, plan_path, number = self._waited_for()
        return task_info(client, plan_path, number)

    def why(self) -> Why:
        """Why the task does not run now, or has not ended: exact causes, with what to do.

        For a waiting task, the search follows its edges to the tasks that keep it waiting in the
        end, 100 levels and 2 000 tasks at most. If there may be more causes, one cause says that.
        Raises as `state`.
        """
        return why_task(*self._waited_for())

    def logs(self, *, follow: bool = False) -> Iterator[TaskLog]:
        """The output and logs of the task's attempts: of each attempt, also a running one, the end
        that the plan's history has kept.

        With `follow` the iterator waits for further output until the task has ended or is dead.
        Raises HistoryNotKept, PlanNotFound, PayloadUndecodable.
        """
        client, plan_path, number = self._waited_for()
        if follow:
            return follow_logs(client.values, plan_path, number)
        return iter(read_logs(client.values, plan_path, number)[0])

    @told_to_caller
    def skip(self, value: Any = None) -> bool:
        """Skip the task: instead of its result, its dependents and `task.result()` get `value`.

        When this returns, no earlier attempt of the task can give a result any more. A worker then
        delivers `value`, even if a function that was running goes on. A running function sees
        `current().cancelled`. Returns False if the task has finished, or was skipped or cancelled
        before.

        A waiting task is cut from the tasks that it waits for, 1 500 at most. `value` does not go
        to the store. Raises PlanCancelled, PlanNotFound, InvalidTask, NotSerialisable,
        PayloadTooLarge, TransactionRejected, and TaskError if the task is still being defined.
        """
        return bool(self._decisions().skip(self.number, value, self.name))

    @told_to_caller
    def cancel(self) -> bool:
        """Make the task fail for good with TaskCancelled, whether it runs, waits, or is delayed.

        `on_failure` of the plan decides what follows, as for any task that fails for good. With
        "hold" the task is dead, and can be retried unless it was still waiting for other tasks.
        When this returns, no earlier attempt can give a result any more. A running function sees
        `current().cancelled`. Returns False if the task has finished, is dead, or was skipped or
        cancelled before. Raises as `skip`.
        """
        return bool(self._decisions().cancel(self.number, self.name))

    @told_to_caller
    def retry(self) -> bool:
        """Make a dead task runnable again, with all its attempts, or let a delayed task run now.
        Returns False if the task is neither.

        Raises TaskError for a task that was cancelled while it waited for others, and as
        `Plan.retry_task`.
        """
        return bool(self._decisions().retry(self.number))

    @told_to_caller
    def set_priority(self, priority: int) -> bool:
        """Set the priority (see `Plan.add_task`) of a waiting, runnable or delayed task.

        Returns False if the task is claimed, gated, dead or finished. Raises as `skip`.
        """
        return bool(self._decisions().set_priority(self.number, priority))

    def _decisions(self) -> Decisions:
        self._refuse_unsent()
        return Decisions(self._plan)

    def _taken(self) -> str | NewTask:
        # The number, or the definition of a task that has no number yet.
        self._feeds = True
        if self._new is not None and not self._new.number:
            return self._new
        return self.number

    def __repr__(self) -> str:
        number = self._number or (self._new.number if self._new is not None else "")
        return f"<Task {self.name or number or '(not sent yet)'} of {self._plan.path}>"

    def _repr_html_(self) -> str | None:
        return self._picture().html if self._is_sent() else None

    def _ipython_display_(self) -> None:
        if not (self._is_sent() and show_live(repr(self), self._picture)):
            raise NotImplementedError  # no notebook: IPython goes on with its other ways

    def _is_sent(self) -> bool:
        # To look at a task must not send the adds of a `with` block.
        return bool(self._number or (self._new is not None and self._new.number))

    def _picture(self) -> Picture:
        return readable(repr(self), self._draw)

    def _draw(self) -> Picture:
        known = self.info()
        used = "" if known.attempts is None else f"{known.attempts_used} of {known.attempts} used"
        facts = [
            ("name", known.name or self.name),
            ("state", known.state),
            ("worker", known.worker or ""),
            ("attempts", used),
            ("waits for", count(known.waits_for, "result") if known.waits_for else ""),
            ("last error", known.last_error),
        ]
        return task_picture(self.path, known.state, facts)

    def __reduce__(self) -> Any:
        raise NotSerialisable(
            f"{self!r} is a handle, which becomes an edge only as an argument of a task (at any "
            "depth in lists, tuples, dicts and sets). A handle cannot be a result or be part of a "
            "closure: add a task that takes it as an argument"
        )


class MapResults(Sequence[Any]):
    """The results of `Plan.map`, in the order of the calls. Reading a result waits for its task.

    Iterating reads many results at once, and keeps none. Raises as `Task.result`.
    """

    def __init__(self, tasks: list[Task], size: int, calls: int) -> None:
        #: The tasks, each of which makes `chunksize` of the calls (the last one perhaps fewer).
        self.tasks = tasks
        self.chunksize = size
        self._calls = calls
        self._last: tuple[int, list[Any]] | None = None

    def __len__(self) -> int:
        return self._calls

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"{index} of {len(self)} results")
        chunk = at // self.chunksize
        if self._last is None or self._last[0] != chunk:
            self._last = chunk, self._values(self.tasks[chunk])
        return self._last[1][at % self.chunksize]

    def __iter__(self) -> Iterator[Any]:
        at = 0
        while at < len(self.tasks):
            ahead = self.tasks[at : at + AHEAD]
            if ahead[0]._outcome is None:
                self._read_ahead(ahead)
            # If the first task has not ended yet, the loop waits for that one alone.
            there = ahead[:1] + list(takewhile(lambda task: task._outcome is not None, ahead[1:]))
            outcomes = ((task, task._outcome) for task in there)
            for task, outcome, read in with_reads(outcomes, lambda task: task._waited_for()[:2]):
                task._bring(outcome, read)
                yield from self._values(task)
            at += len(there)

    def __repr__(self) -> str:
        return f"<MapResults of {len(self)} calls in {len(self.tasks)} tasks>"

    def __reduce__(self) -> Any:
        raise NotSerialisable(
            f"{self!r} cannot be an argument or a result: pass its `tasks`, each of which becomes "
            f"{'a value' if self.chunksize == 1 else f'a list of {self.chunksize} values'}"
        )

    def _values(self, task: Task) -> list[Any]:
        value = task.result()
        return [value] if self.chunksize == 1 else value

    def _read_ahead(self, tasks: list[Task]) -> None:
        """Read the existing outcomes in batches, which takes a tenth of the time."""
        by_number = {task.number: task for task in tasks}
        client, plan_path, _ = tasks[0]._waited_for()
        size = 0
        for number, outcome in read_outcomes(client.transport, plan_path, list(by_number)):
            by_number[number]._bring(outcome)
            size += len(outcome or b"")
            if size > AHEAD_BYTES:
                return
