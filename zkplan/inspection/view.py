"""What the causes of `why` are found from: a plan, its indexes, the workers, each read once."""

from __future__ import annotations

import time
from functools import cached_property
from typing import NamedTuple

from ..connection import Connection
from ..protocol.decide import CUT
from ..protocol.layout import number_of
from ..protocol.limits import LimitStatus, list_limits
from ..protocol.requests import ReadData
from ..protocol.worker_record import WorkerRecord
from .deadlock import status_of
from .task_info import TaskInfo, task_info
from .unfinished import Place, places_of
from .workers import living_workers


class Cause(NamedTuple):
    """One reason why something does not run now.

    `code` is one word for programs, `text` one sentence, and `advice` says what to do; it is empty
    if nothing has to be done. `task` is the number of the task that the cause is about, empty if it
    is the plan. `worker` is the worker concerned. `when` is when it began (for a gate: when
    it was looked at last), or, for a delayed task, when it ends, in wall-clock seconds since 1970.
    """

    code: str
    text: str
    advice: str = ""
    task: str = ""
    worker: str = ""
    when: float | None = None


class Why(NamedTuple):
    """Why a plan or a task does not run now. The first cause comes first. `state` is its state."""

    path: str
    state: str
    causes: list[Cause]

    def __str__(self) -> str:
        return "\n".join(f"{each.text} {each.advice}".rstrip() for each in self.causes)


class View:
    """One plan while `why` looks at it. What is read is kept, so all causes see the same."""

    def __init__(self, client: Connection, plan_path: str) -> None:
        self.client, self.plan_path = client, plan_path
        self.status = status_of(client, plan_path)
        self._tasks: dict[str, TaskInfo] = {}

    @cached_property
    def places(self) -> dict[str, Place]:
        return self.client.transport.run(places_of(self.client.paths, self.plan_path))

    @cached_property
    def workers(self) -> list[WorkerRecord]:
        return living_workers(self.client)

    @cached_property
    def limits(self) -> list[LimitStatus]:
        return self.client.transport.run(list_limits(self.client.paths, time.time()))

    @property
    def runs(self) -> bool:
        """Whether workers claim tasks of the plan."""
        return self.status.state in ("running", "failed") and self.status.ended is None

    def task(self, number: str) -> TaskInfo:
        """Raises InvalidTask if it never existed."""
        if number not in self._tasks:
            self._tasks[number] = task_info(self.client, self.plan_path, number)
        return self._tasks[number]

    def in_state(self, state: str) -> list[str]:
        """The numbers of the tasks that the indexes show in that state, sorted."""
        return sorted(number for number, place in self.places.items() if place.state == state)

    def lacks_arguments(self, number: str) -> bool:
        """Whether the task was cancelled while it waited for others, so that no retry can run
        it."""
        cut = ReadData(f"{self.plan_path}/task-{number}/{CUT}")
        return self.client.transport.ask(cut) is not None

    def label(self, number: str) -> str:
        """How a sentence names a task, such as `task 12 (load)`."""
        name = self.task(number).name
        return f"task {int(number)} ({name})" if name else f"task {int(number)}"

    def command(self, words: str, task: str = "") -> str:
        """A command about the plan, or about that task, ready to type."""
        which = f" {int(task)}" if task else ""
        return f"`{self.client.command(f'{words} {int(number_of(self.plan_path))}{which}')}`"
