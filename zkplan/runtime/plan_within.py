"""The plan as a running task sees it: tasks that it adds become part of its commit."""

from __future__ import annotations

from ..connection import Connection
from ..errors import InvalidTask, PayloadTooLarge, PlanError
from ..plan import Plan
from ..protocol.adding import NewTask
from ..protocol.control import PlanStatus
from ..protocol.records import PlanRecord
from ..protocol.shared import GROUP_BYTES_MAX

#: How many bytes the tasks that one running task adds may take: they share its commit's
#: transaction.
ADDS_BYTES_MAX = GROUP_BYTES_MAX


class PlanWithin(Plan):
    """The plan inside a running task. A task that runs again never adds its tasks twice.

    The plan cannot look empty between the end of the task and its adds. `adds` collects the tasks
    that the commit of `task` will add. Without `reads` nobody looks whether the limits that they
    name exist: they wait until these are set.
    """

    def __init__(
        self,
        client: Connection,
        path: str,
        record: PlanRecord | None,
        task: str,
        adds: list[NewTask],
        *,
        reads: bool = True,
    ) -> None:
        super().__init__(client, path, record)
        self._task, self._adds, self._reads = task, adds, reads

    def _check_limits(self, tasks: list[NewTask]) -> None:
        if self._reads:
            super()._check_limits(tasks)

    def _submit(self, tasks: list[NewTask]) -> None:
        keyed = next((task for task in tasks if task.key), None)
        if keyed is not None:
            raise InvalidTask(
                keyed.label,
                f"{keyed.label}: a task that a running task adds has no key: it is part of that "
                "task's commit, so it is added once in any case",
            )
        size = sum(task.size for task in [*self._adds, *tasks])
        if size > ADDS_BYTES_MAX:
            raise PayloadTooLarge(
                f"what task {self._task} adds (its adds are part of its commit; add the rest from "
                "several tasks)",
                size,
                ADDS_BYTES_MAX,
            )
        self._adds += tasks

    def flush(self) -> None:
        """Do nothing: the adds are sent with the commit."""

    def mark_ready(self) -> None:
        """Do nothing: the plan runs already."""

    def wait(
        self, timeout: float | None = None, progress: bool = False, fail_fast: bool = False
    ) -> PlanStatus:
        raise PlanError(self.path, "a task cannot wait for its own plan: it is part of it")
