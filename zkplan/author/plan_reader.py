"""Read one plan: its state, tasks, results, history and end. Nothing here changes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Literal

from ..basics.cron import zone_of
from ..basics.notebook_html import COLOURS, Picture, plan_html, readable
from ..basics.public_calls import Duration, told_to_caller
from ..errors import ZkplanError
from ..protocol.core import plan_life
from ..protocol.core.plan_life import PlanStatus
from ..protocol.core.plans_and_queues import plan_record
from ..protocol.layout import number_of
from ..protocol.records import Dead, PlanRecord
from ..values.connection import Connection
from ..views.deadlock import dead_letters, status_of
from ..views.find import find_task
from ..views.graph import PlanGraph, plan_graph
from ..views.history import Event, read
from ..views.notebook import graph_svg, show_live
from ..views.outcomes import OutcomeSummary, kept_outcomes
from ..views.progress import PlanProgress, plan_progress
from ..views.unfinished import TaskSummary, unfinished_tasks
from ..views.why import why_plan
from ..views.why_facts import Why
from .completion import tasks_in
from .futures import Watcher
from .handles import TaskHandle
from .results import kept_results, results_of
from .waiting import EventStream, end_if_drained, in_thread, wait_for_plan

#: A notebook draws the graph of at most this many tasks: it is read anew at each change.
DRAWN_MAX = 200


class PlanReader:
    """A thread-safe handle that only reads a plan. Its subclass Plan also changes the plan."""

    def __init__(self, client: Connection, path: str, record: PlanRecord | None = None) -> None:
        self._client = client
        self.path = path
        self._record = record
        self._watcher = Watcher()

    @property
    def client(self) -> Any:
        """The Client of this plan. (The type is Any because the module of Client imports this
        one.)"""
        return self._client

    @property
    def number(self) -> str:
        """The ten digits in the name of the plan's znode, as a text. `int(plan.number)` is the
        number that commands print."""
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

    @property
    def due(self) -> datetime | None:
        """The due time for which a schedule made the plan, in the schedule's time zone; None if no
        schedule made it."""
        record = self.record
        if record.due is None:
            return None
        return datetime.fromtimestamp(record.due, zone_of(record.timezone))

    # ---- its tasks

    def dead(self) -> Iterator[tuple[str, Dead]]:
        """Iterate over the tasks that are out of attempts: number and dead letter. Raises
        PlanNotFound.

        The iterator reads in batches as it goes on. `dict(plan.dead())` makes a mapping.
        """
        return dead_letters(self._client.transport, self.path)

    def tasks(self) -> Iterator[TaskSummary]:
        """Iterate over all unfinished tasks, oldest first. Raises PlanNotFound.

        The iterator reads in batches as it goes on, so the tasks are not all of one moment.
        """
        return unfinished_tasks(self._client, self.path)

    def outcomes(self) -> Iterator[OutcomeSummary]:
        """Iterate over all kept results and failures, by task number. Raises PlanNotFound.

        The iterator reads in batches as it goes on. `task(number).result()` returns a value.
        """
        return kept_outcomes(self._client, self.path)

    # ---- its state

    def status(self) -> PlanStatus:
        """The plan in numbers. Raises PlanNotFound.

        This costs one batch of reads, however large the plan is. If tasks are dead and none is
        runnable, about nine more batches prove whether the plan has failed; they include the claims
        of all workers.
        """
        return status_of(self._client, self.path)

    def progress(self) -> PlanProgress:
        """The number of tasks in each state. This reads the plan's indexes and the claims of all
        workers. Raises PlanNotFound."""
        return plan_progress(self._client, self.path)

    def why(self) -> Why:
        """Why the plan has not ended: exact causes, with what to do. The number of reads is
        bounded, however large the plan is; the causes are not all of one moment. Raises
        PlanNotFound."""
        return why_plan(self._client, self.path)

    def graph(self, sample: int | None = None) -> PlanGraph:
        """The graph of all unfinished tasks, with similar tasks in one box. Raises PlanNotFound.

        With `sample` this reads only that many tasks, spread evenly over the plan, and at most 20
        edges of each task. The numbers of tasks and edges are then estimates.
        """
        return plan_graph(self._client, self.path, sample)

    def is_drained(self) -> bool:
        """Whether the plan has ended: every task has finished, or has failed for good if
        `on_failure` is "cascade". Raises PlanNotFound."""
        status = self._client.transport.run(plan_life.status(self.path))
        if status.state == "running" and status.tasks == status.dead:
            return end_if_drained(self._client, self.path)
        return status.ended is not None

    def history(
        self, task: TaskHandle | str | int | None = None, since: datetime | float | None = None
    ) -> list[Event]:
        """The events of one task, or of all tasks, in the order in which ZooKeeper applied them.

        `since` is a datetime with a zone, or seconds since 1970. A history is bounded: the oldest
        events of a plan with many tasks move to the store, or are deleted if workers have no store.
        Raises HistoryNotKept, PayloadUndecodable.
        """
        after = since.timestamp() if isinstance(since, datetime) else since or 0.0
        events = read(self._client.values, self.path)[0]
        number = ""
        if isinstance(task, TaskHandle):
            number = task.number
        elif task is not None:
            number = find_task(self._client, self.path, task)[0]
        return [each for each in events if each.when >= after and number in ("", each.task)]

    def events(self, *, follow: bool = True) -> EventStream:
        """Iterate over the events from the first on, with `for` or `async for`. With `follow` the
        iterator waits for further events, by a watch, until the plan has ended.

        Iterating raises as `history`.
        """
        read = None if follow else self.history
        return EventStream(self._client.values, self.path, read)

    # ---- its end and its results

    @told_to_caller
    def wait(
        self, timeout: Duration | None = None, progress: bool = False, fail_fast: bool = False
    ) -> PlanStatus:
        """Wait until the plan is drained. `timeout` is in seconds.

        With `progress`, a terminal shows a progress bar. With `fail_fast`, the first task that
        fails for good raises PlanFailed, while the other tasks go on. Without `fail_fast`,
        PlanFailed is raised when tasks are dead and no other task can run, or when the plan has
        drained with failures.

        Also raises PlanCancelled, PlanStuck, PlanNotFound and WaitTimeout; PlanError inside the
        plan's own `with` block, where the wait would never end; and ZkplanError for a time below 0.
        When the time is over, the plan is read once more. So even with `timeout=0` a plan that
        cannot go on raises PlanFailed or PlanStuck.
        """
        self._refuse_to_wait_inside()
        return wait_for_plan(self._client, self.path, timeout, progress, fail_fast)

    async def wait_async(
        self, timeout: Duration | None = None, fail_fast: bool = False
    ) -> PlanStatus:
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
        tasks: Iterable[TaskHandle] | None = None,
        timeout: Duration | None = None,
        on_error: Literal["raise", "return"] = "raise",
    ) -> list[Any]:
        """Wait for the results of many tasks and return them, in the order asked.

        The results are read in batches while the plan runs. Without `tasks`, this waits until the
        plan has ended, and returns all kept results, in the order of the task numbers. `timeout` is
        in seconds.

        The first task that fails raises as `Task.result` does. With `on_error="return"` the list
        has its exception in place of its value, and PlanFailed or PlanCancelled for each task that
        can never finish. Raises ResultNotKept before the wait if the result of any task will not be
        kept; with `on_error="return"` only if no result will be kept; without `tasks` only if the
        plan has not ended and keeps nothing. Raises ForeignTask for a task of another plan,
        WaitTimeout, ZooKeeperUnavailable, and PlanError as `wait`.
        """
        if on_error not in ("raise", "return"):
            raise ZkplanError(f'on_error must be "raise" or "return", not {on_error!r}')
        self._refuse_to_wait_inside()
        raises = on_error == "raise"
        if tasks is None:
            return kept_results(self._client, self.path, timeout, raises)
        return results_of(self._client, self.path, tasks_in(tasks, "results"), timeout, raises)

    def flush(self) -> None:
        """Send the adds that a `with` block has kept back. Only Plan has such adds."""

    def _refuse_to_wait_inside(self) -> None:
        """Raise PlanError where a wait would never end: in the `with` block of a Plan."""

    def __repr__(self) -> str:
        return f"<Plan {self.path}>"

    def _repr_html_(self) -> str:
        return self._picture().html

    def _ipython_display_(self) -> None:
        if not show_live(repr(self), self._picture):
            raise NotImplementedError  # no notebook: IPython goes on with its other ways

    def _picture(self) -> Picture:
        return readable(repr(self), self._draw)

    def _draw(self) -> Picture:
        status = self.status()
        graph = ""
        if 0 < status.tasks <= DRAWN_MAX:
            found = self.graph()
            graph = graph_svg(found.boxes, found.edges)
        progress = self.progress()
        counts = {state: getattr(progress, state) for state in COLOURS}
        html = plan_html(status.name, status.path, status.state, status.added, counts)
        return Picture(html + graph, status.has_ended)
