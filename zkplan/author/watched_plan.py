"""The half of a Plan that only looks: its state, its tasks, its results, and its end."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Literal

from ..basics.cron import zone_of
from ..basics.notebook_html import Picture, plan_picture, readable
from ..basics.public_calls import Duration, told_to_caller
from ..errors import PlanError, ZkplanError
from ..protocol.core import plan_life
from ..protocol.core.plan_life import PlanStatus
from ..protocol.core.plans_and_queues import plan_record
from ..protocol.features.plan_check import Report, check
from ..protocol.layout import number_of
from ..protocol.records import Dead, PlanRecord
from ..values.check_blobs import check_blobs
from ..values.check_seals import find_unsealed
from ..values.connection import Connection
from ..values.guard import reported
from ..views.deadlock import dead_letters, status_of
from ..views.graph import PlanGraph, plan_graph
from ..views.notebook import graph_svg, show_live
from ..views.task_lists import (
    OutcomeSummary,
    PlanProgress,
    TaskSummary,
    kept_outcomes,
    plan_progress,
    unfinished_tasks,
)
from ..views.why import why_plan
from ..views.why_facts import Why
from .completion import tasks_in
from .results import Asked, kept_results, results_of
from .waiting import end_if_drained, in_thread, wait_for_plan

#: In a notebook the graph of so many tasks is drawn: it is read anew whenever something changes.
DRAWN_MAX = 200


class WatchedPlan:
    """The half of a plan's handle that changes nothing, and the check, which repairs."""

    def __init__(self, client: Connection, path: str, record: PlanRecord | None = None) -> None:
        self._client = client
        self.path = path
        self._record = record
        #: The thread that is inside the plan's `with` block.
        self._opened_by = 0

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

    @property
    def due(self) -> datetime | None:
        """The time for which a schedule made the plan, in the schedule's time zone; None for a plan
        of no schedule."""
        record = self.record
        if record.due is None:
            return None
        return datetime.fromtimestamp(record.due, zone_of(record.timezone))

    def dead(self) -> Iterator[tuple[str, Dead]]:
        """Iterate over the tasks that are out of attempts: number and dead letter. Raises
        PlanNotFound.

        The iterator reads in batches as it goes on. `dict(plan.dead())` makes a mapping of all.
        """
        return dead_letters(self._client.transport, self.path)

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

    def graph(self, sample: int | None = None) -> PlanGraph:
        """All unfinished tasks, alike ones in one box. Raises PlanNotFound.

        With `sample` only so many tasks are read, spread evenly over the plan, with 20 edges of
        each at most: the numbers of tasks and edges are then estimates.
        """
        return plan_graph(self._client, self.path, sample)

    def is_drained(self) -> bool:
        """Whether it has ended: every task has finished, or has failed for good where failures
        cascade. Raises PlanNotFound."""
        status = self._client.transport.run(plan_life.status(self.path))
        if status.state == "running" and status.tasks == status.dead:
            return end_if_drained(self._client, self.path)
        return status.ended is not None

    @told_to_caller
    def wait(
        self, timeout: Duration | None = None, progress: bool = False, fail_fast: bool = False
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
        tasks: Iterable[Asked] | None = None,
        timeout: Duration | None = None,
        on_error: Literal["raise", "return"] = "raise",
    ) -> list[Any]:
        """Wait for the results of many tasks and return them, in the order asked.

        They are read in batches while the plan runs. Without `tasks`, this waits until the plan has
        ended, and returns all kept results by task number. `timeout` is in seconds.

        The first task that fails raises as `Task.result` does. With `on_error="return"` its
        exception stands in the list in place of its value, and so does the PlanFailed or
        PlanCancelled of tasks that can never finish. A task whose result will not be kept raises
        ResultNotKept before the wait; with `on_error="return"` only if that is so of all of them.
        Without `tasks`, a plan that goes on and keeps nothing raises it. Raises ForeignTask for a
        task of another plan, WaitTimeout, ZooKeeperUnavailable, and PlanError as `wait`.
        """
        if on_error not in ("raise", "return"):
            raise ZkplanError(f'on_error must be "raise" or "return", not {on_error!r}')
        self._refuse_to_wait_inside()
        raises = on_error == "raise"
        if tasks is None:
            return kept_results(self._client, self.path, timeout, raises)
        return results_of(self._client, self.path, tasks_in(tasks, "results"), timeout, raises)

    def _refuse_to_wait_inside(self) -> None:
        """Raise PlanError inside the plan's own `with` block while the plan is not marked ready.

        Another thread may wait: this one will end the block.
        """
        if self._opened_by != threading.get_ident():
            return
        if self._client.transport.run(plan_life.status(self.path)).state == "defining":
            raise PlanError(
                self.path,
                f"{self.path} is marked ready at the end of its `with` block, and its tasks run "
                "only after it: wait for them below the block",
            )

    def check(self, repair: bool = True) -> Report:
        """Check the whole plan against the invariants, and its values in the store: up to 1 GiB of
        them are read, to find damaged ones. With keys, read all that is sealed, and report what is
        not sealed for its place. With `repair`, repair what may be repaired, and delete values that
        nothing needs. Raises StoreUnavailable."""
        client = self._client
        with reported(self.path):
            report = client.transport.run(check(client.paths, self.number, repair))
            if client.guard is not None:
                unsealed = find_unsealed(client.guard, client.paths, self.number)
                report.problems += client.transport.run(unsealed)
            check_blobs(client.transport, client.paths, client.values, self.number, repair, report)
        return report

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
        return plan_picture(status, self.progress(), graph)
