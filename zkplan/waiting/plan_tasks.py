"""Find out which tasks of one plan have completed, with one watch for all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ..connection import Connection
from ..errors import PlanError
from ..protocol.control import PlanStatus
from ..protocol.control import status as read_status
from ..protocol.requests import ReadChildren, ReadData, ReadMany
from ..protocol.shared import READS_PER_REQUEST
from ..protocol.unproven import require_proven
from .patience import Patience

#: So few tasks are watched one by one, since a result that is not kept shows in no list of results.
WATCHED_TASKS = 4
#: A listing of the plan names all unfinished tasks. It is read if no more than so many times the
#: tasks that are waited for are unfinished; otherwise each of these is looked for.
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
    """The tasks of one plan that are waited for.

    A task has completed when it has finished, when it is out of attempts, and when it can never
    finish. The list of kept outcomes says what is new. A task whose outcome is not kept has left
    the plan, which is read only when the plan's counters show that there is such a task.
    """

    def __init__(self, client: Connection, plan_path: str) -> None:
        self._client, self._plan = client, plan_path
        #: The numbers of the tasks that have not completed, as far as is known.
        self.open: set[str] = set()
        self.patience = Patience(client, plan_path, None, f"tasks of {plan_path} are waited for")
        #: How many finished tasks had no kept outcome when the open ones were last looked for.
        self._unkept = -1

    def add(self, numbers: Iterable[str]) -> None:
        self.open.update(numbers)
        self._unkept = -1  # one of them may have left the plan before

    def why(self) -> str:
        """Why the open tasks have not completed, as far as this client knows."""
        return self.patience.why()

    def look(self) -> list[Completed]:
        """Return what has completed since the last look, and set the watches.

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

        The transaction that deletes a task also writes its outcome, if it is kept. So a task that
        is gone has its outcome by now, or never.
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
        # A removal cancels the plan before it deletes tasks. Those then complete as cancelled.
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
