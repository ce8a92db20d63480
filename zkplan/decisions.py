"""What an operator decides about single tasks: which are meant; skip, cancel, retry, priority."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from .connection import Connection
from .errors import InvalidTask, NotSerialisable, PayloadTooLarge, TaskCancelled
from .inspection.dead_letters import dead_letters, retry_task
from .inspection.task_info import task_info
from .inspection.unfinished import TaskSummary, unfinished_tasks
from .protocol.decide import decide
from .protocol.layout import PRIORITY_MAX, PRIORITY_MIN, number_of
from .protocol.places import Place, find_place, placed
from .protocol.priority import set_priority
from .protocol.records import Failure
from .protocol.retry import run_now
from .protocol.shared import REQUEST_BYTES_MAX
from .serialization.codec import FAILURE, VALUE, dump, named, skipped

#: The states that a filter may ask for: those of unfinished tasks.
STATES = ("being defined", "waiting", "gated", "runnable", "delayed", "claimed", "dead", "decided")
#: The most bytes of the value of a skipped task. It does not go to the store.
VALUE_BYTES_MAX = REQUEST_BYTES_MAX - 64 * 1024


def select(
    client: Connection, plan_path: str, state: str | None, error: str | None, name: str | None
) -> Iterator[TaskSummary]:
    """See Plan.select."""
    if state is not None and state not in STATES:
        raise InvalidTask("", f"state is one of {', '.join(STATES)}, not {state!r:.50}")
    letters = dict(dead_letters(client.transport, plan_path)) if error is not None else {}
    for task in unfinished_tasks(client, plan_path):
        if state is not None and task.state != state:
            continue
        if name is not None and not fnmatchcase(task.name or "", name):
            continue
        if error is not None:
            letter = letters.get(task.number)
            told = letter.error if letter else _last_error(client, plan_path, task)
            if not fnmatchcase(told.partition(":")[0], error):
                continue
        yield task


def _last_error(client: Connection, plan_path: str, task: TaskSummary) -> str:
    if not task.attempts:
        return ""  # nothing of it has failed: its znodes need not be read
    return task_info(client, plan_path, task.number).last_error


class Decisions:
    """What an operator decides about tasks of one plan.

    Each method returns where the task stood, or an empty text if nothing was to be done. Where many
    tasks are meant, `look` reads the places of all of them together first.
    """

    def __init__(self, client: Connection, plan_path: str) -> None:
        self._client, self._path, self._plan = client, plan_path, number_of(plan_path)
        self._places: dict[str, Place] = {}

    def look(self) -> None:
        self._places = self._client.transport.run(placed(self._client.paths, self._plan))

    def skip(self, task: str, value: Any, name: str = "") -> str:
        """Raises as Task.skip."""
        try:
            body = dump(value)
        except Exception as error:
            raise NotSerialisable(
                f"the value of task {task}, of type {type(value).__qualname__}, cannot be "
                f"serialised: {type(error).__name__}: {error}"
            ) from error
        if len(body) > VALUE_BYTES_MAX:
            raise PayloadTooLarge(f"the value of task {task}", len(body), VALUE_BYTES_MAX)
        # Eight random bytes make it unique to this call.
        body = skipped(named(body, name) if name else body, os.urandom(8))
        return self._decide(task, self._client.codec.seal(VALUE, body), skips=True)

    def cancel(self, task: str, name: str = "") -> str:
        """Raises as Task.cancel."""
        host = socket.gethostname()
        who = f"operator-{host.split('.')[0][:20]}-{os.getpid()}-{os.urandom(4).hex()}"
        message = f"cancelled by an operator on {host}"
        error = TaskCancelled(name or task, f"task {name or task} of {self._path} was {message}")
        failure = Failure("TaskCancelled", message, "", who, 0, time.time(), dump(error))
        return self._decide(task, self._client.codec.seal(FAILURE, failure.to_bytes()), skips=False)

    def _decide(self, task: str, sealed: bytes, *, skips: bool) -> str:
        step = decide(
            self._client.paths, self._plan, task, sealed, skips=skips, hint=self._places.get(task)
        )
        return self._client.transport.run(step)

    def retry(self, task: str) -> str:
        """Raises as Task.retry."""
        transport = self._client.transport
        if retry_task(transport, self._path, task):
            return "dead"
        place = transport.run(find_place(self._client.paths, self._plan, task))
        if place is None or place.state != "delayed":
            return ""
        return "delayed" if transport.run(run_now(self._path, place)) else ""

    def set_priority(self, task: str, priority: int) -> str:
        """Raises as Task.set_priority."""
        if type(priority) is not int or not PRIORITY_MIN <= priority <= PRIORITY_MAX:
            told = f"priority must be {PRIORITY_MIN} to {PRIORITY_MAX}, not {priority!r:.50}"
            raise InvalidTask(task, f"task {task} of {self._path}: {told}")
        hint = self._places.get(task)
        step = set_priority(self._client.paths, self._plan, task, priority, hint)
        return self._client.transport.run(step)
