"""What an operator decides about single tasks: which are meant; skip, cancel, retry, priority."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from typing import Any, Protocol

from ..connection import Connection
from ..errors import InvalidTask, PayloadTooLarge, PlanNotFound, TaskCancelled
from ..inspection.across import Filter, FoundTask, find_tasks
from ..inspection.dead_letters import retry_task
from ..inspection.task_code import LOOKED_AT, CodeNote, log_code_notes, notes_before_retry
from ..inspection.task_info import require_task
from ..protocol.decide import decide
from ..protocol.layout import PRIORITY_MAX, PRIORITY_MIN, number_of
from ..protocol.places import Place, find_place, placed
from ..protocol.priority import set_priority
from ..protocol.records import OPERATOR, Failure, PlanRecord
from ..protocol.requests import ReadData
from ..protocol.retry import run_now
from ..protocol.shared import REQUEST_BYTES_MAX
from ..serialization.codec import FAILURE, JSON_ONLY

#: The most bytes of the value of a skipped task. It does not go to the store.
VALUE_BYTES_MAX = REQUEST_BYTES_MAX - 64 * 1024


def select(
    client: Connection, plan_path: str, state: str | None, error: str | None, name: str | None
) -> Iterator[FoundTask]:
    """See Plan.select."""
    found = find_tasks(client, Filter(state, None, name, error), [number_of(plan_path)])
    if client.transport.ask(ReadData(plan_path)) is None:
        raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
    return found


def check_priority(priority: int, task: str, where: str = "") -> None:
    """Raises InvalidTask."""
    if type(priority) is not int or not PRIORITY_MIN <= priority <= PRIORITY_MAX:
        told = f"priority must be {PRIORITY_MIN} to {PRIORITY_MAX}, not {priority!r:.50}"
        raise InvalidTask(task, f"task {task}{where}: {told}")


class DecidedPlan(Protocol):
    """What decisions need from the plan of their tasks. Plan implements it."""

    path: str

    @property
    def client(self) -> Any: ...

    @property
    def record(self) -> PlanRecord: ...


class Decisions:
    """What an operator decides about tasks of one plan.

    Each method returns where the task stood, or an empty text if nothing was to be done. It raises
    InvalidTask for a number that never was a task. Where many tasks are meant, `look` reads the
    places of all of them together first.
    """

    def __init__(self, plan: DecidedPlan) -> None:
        self._of, self._path, self._plan = plan, plan.path, number_of(plan.path)
        self._client: Connection = plan.client
        self._places: dict[str, Place] = {}
        #: What was said of the code of retried tasks, of the first of them.
        self._told: set[CodeNote] = set()
        self._retries = 0

    def look(self) -> None:
        self._places = self._client.transport.run(placed(self._client.paths, self._plan))

    def skip(self, task: str, value: Any, name: str = "") -> str:
        """Raises as Task.skip."""
        return self._decide(task, self.skipped(task, value, name), skips=True)

    def skipped(self, task: str, value: Any, name: str = "") -> bytes:
        """The outcome of a task that is skipped. Raises NotSerialisable, PayloadTooLarge."""
        # Eight random bytes make it unique to this call.
        mark = os.urandom(8)
        sealed = self._client.codec.seal_skipped(value, name, self._is_json(), mark)
        if len(sealed) > VALUE_BYTES_MAX:
            raise PayloadTooLarge(f"the value of task {task}", len(sealed), VALUE_BYTES_MAX)
        return sealed

    def cancel(self, task: str, name: str = "") -> str:
        """Raises as Task.cancel."""
        return self._decide(task, self.cancelled(task, name), skips=False)

    def cancelled(self, task: str, name: str = "") -> bytes:
        """The outcome of a task that is cancelled."""
        host = socket.gethostname()
        who = f"{OPERATOR}{host.split('.')[0][:20]}-{os.getpid()}-{os.urandom(4).hex()}"
        message = f"cancelled by an operator on {host}"
        error = TaskCancelled(name or task, f"task {name or task} of {self._path} was {message}")
        codec = self._client.codec
        dumped = codec.dump_exception(error, self._is_json())
        failure = Failure("TaskCancelled", message, "", who, 0, time.time(), dumped)
        return codec.seal(FAILURE, failure.to_bytes())

    def _is_json(self) -> bool:
        """Whether those that take the outcome decode JSON alone."""
        return self._of.record.serializer == JSON_ONLY

    def _decide(self, task: str, sealed: bytes, *, skips: bool) -> str:
        step = decide(
            self._client.paths, self._plan, task, sealed, skips=skips, hint=self._places.get(task)
        )
        return self._stood(task, self._client.transport.run(step))

    def _stood(self, task: str, stood: str) -> str:
        if not stood:
            require_task(self._client, self._path, task)
        return stood

    def retry(self, task: str) -> str:
        """Raises as Task.retry."""
        self._retries += 1
        first = [task] if self._retries <= LOOKED_AT else ()
        notes = {*notes_before_retry(self._client, self._path, first)}
        stood = self._retry(task)
        if stood:
            log_code_notes(notes - self._told)
            self._told |= notes
        return stood

    def _retry(self, task: str) -> str:
        transport = self._client.transport
        if retry_task(transport, self._path, task):
            return "dead"
        place = transport.run(find_place(self._client.paths, self._plan, task))
        if place is None or place.state != "delayed":
            return self._stood(task, "")
        return "delayed" if transport.run(run_now(self._path, place)) else ""

    def set_priority(self, task: str, priority: int) -> str:
        """Raises as Task.set_priority."""
        check_priority(priority, task, f" of {self._path}")
        hint = self._places.get(task)
        step = set_priority(self._client.paths, self._plan, task, priority, hint)
        return self._stood(task, self._client.transport.run(step))
