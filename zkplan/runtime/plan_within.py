"""The plan as a running task sees it: tasks that it adds become part of its commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..basics.durations import Duration
from ..connection import Connection
from ..errors import InvalidTask, PlanError
from ..plan import Plan
from ..protocol.adding import NewTask
from ..protocol.control import PlanStatus
from ..protocol.records import PlanRecord
from ..tasks import MapResults, Task


def returned(result: Any, adds: Sequence[NewTask], is_taken: bool) -> Any:
    """What counts as the result of a function that has added `adds`: None in place of these tasks.

    A function that builds a plan may end with `return plan.add_task(...)`. Where a task takes its
    result, or it is to be kept, handles are refused as anywhere: their readers would miss a value.
    """
    handles = result.tasks if type(result) is MapResults else result
    handles = [handles] if type(handles) is Task else handles
    if is_taken or type(handles) is not list or not handles:
        return result
    own = set(map(id, adds))
    is_own = all(type(each) is Task and id(each._new) in own for each in handles)
    return None if is_own else result


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
        self._adds += tasks

    def flush(self) -> None:
        """Do nothing: the adds are sent with the commit."""

    def mark_ready(self) -> None:
        """Do nothing: the plan runs already."""

    def wait(
        self, timeout: Duration | None = None, progress: bool = False, fail_fast: bool = False
    ) -> PlanStatus:
        raise PlanError(self.path, "a task cannot wait for its own plan: it is part of it")
