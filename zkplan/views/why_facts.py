"""Read the facts that `why` needs once: the plan, its indexes, the workers and their code."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from ..basics.log import get_logger
from ..basics.text import one_line
from ..errors import InvalidTask, PlanNotFound
from ..protocol.core.workers import WorkerRecord
from ..protocol.features.decisions import CUT
from ..protocol.features.limits import LimitStatus, list_limits
from ..protocol.features.task_place import Place, placed
from ..protocol.layout import number_of
from ..protocol.requests import ReadData
from ..values.connection import Connection
from .deadlock import status_of
from .task_info import TaskInfo, task_info
from .workers import living_workers


class Cause(NamedTuple):
    """One reason why something does not run now.

    `code` is one word for programs, `text` one sentence. `advice` says what to do, and is empty if
    nothing has to be done. `task` is the number of the task concerned, empty if the cause concerns
    the plan. `worker` is the worker concerned. `when` is when the cause began, in wall-clock
    seconds since 1970; for a delay when it ends, for a gate when a worker last looked at it.
    """

    code: str
    text: str
    advice: str = ""
    task: str = ""
    worker: str = ""
    when: float | None = None


class Why(NamedTuple):
    """Why a plan or a task does not run now. `path` and `state` are those of the plan or task. In
    `causes`, those that hold back the whole plan come first."""

    path: str
    state: str
    causes: list[Cause]

    def __str__(self) -> str:
        return "\n".join(f"{each.text} {each.advice}".rstrip() for each in self.causes)


class View:
    """The facts of one plan for one `why`. Each is read once, so all causes see the same state."""

    def __init__(self, client: Connection, plan_path: str) -> None:
        self.client, self.plan_path = client, plan_path
        self.status = status_of(client, plan_path)
        self._tasks: dict[str, TaskInfo] = {}

    @cached_property
    def places(self) -> dict[str, Place]:
        return self.client.transport.run(placed(self.client.paths, number_of(self.plan_path)))

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


# ---- Say which code a retry runs: code sent with the plan, or modules that workers have loaded.
#
# A user retries a task to run its fixed function. These notes say when the old one would run.


logger = get_logger("zkplan.plan")
#: The most tasks of a plan whose code is examined.
LOOKED_AT = 5
#: The most characters of the names of modules that a sentence has.
NAMES_CHARS_MAX = 300


class CodeNote(NamedTuple):
    """A sentence about the code of tasks. `is_sure`: a retry now would certainly run old code."""

    text: str
    is_sure: bool


def code_notes(tasks: Iterable[TaskInfo], workers: Sequence[WorkerRecord]) -> list[CodeNote]:
    """The notes to read before a retry of these failed tasks, each note once."""
    found: dict[str, CodeNote] = {}
    for task in tasks:
        for kind, note in _notes(task, workers):
            found.setdefault(kind, note)
    if any(note.is_sure for kind, note in found.items() if kind != "sent"):
        found.pop("loaded", None)
    return list(found.values())


def notes_before_retry(
    client: Connection, plan_path: str, numbers: Iterable[str]
) -> list[CodeNote]:
    """The `code_notes` for the first LOOKED_AT tasks of these `numbers`, as they are now."""
    tasks = []
    # Another writer of the tree may have made strange names: the retry reports them.
    for number in islice(filter(str.isdecimal, numbers), LOOKED_AT):
        try:
            tasks.append(task_info(client, plan_path, number))
        except (InvalidTask, PlanNotFound):
            continue  # the retry reports it
    return code_notes(tasks, living_workers(client)) if tasks else []


def log_code_notes(notes: Iterable[CodeNote]) -> None:
    """Log the notes. Commands print this log."""
    for note in notes:
        logger.log(logging.WARNING if note.is_sure else logging.INFO, "%s", note.text)


def _notes(task: TaskInfo, workers: Sequence[WorkerRecord]) -> Iterator[tuple[str, CodeNote]]:
    if task.is_code_sent:
        name = f"task {int(task.number)}" + (f" ({task.name})" if task.name else "")
        text = (
            f"The code of {name} was sent with its plan, so a fix in your file does not reach it: "
            "add the task anew, with a function that workers import from a module."
        )
        yield "sent", CodeNote(text, True)
    last = task._last_failure
    worker = next((each for each in workers if last and each.id == last.worker), None)
    if last is not None and last.stale and worker is not None:
        modules = one_line(", ".join(last.stale))[:NAMES_CHARS_MAX]
        files = "its file has" if len(last.stale) == 1 else "their files have"
        text = (
            f"Worker {worker.id} runs an older state of {modules} than {files}: restart it, or let "
            f"it load the new code with `kill -HUP {worker.pid}` on {worker.host}."
        )
        yield f"stale {worker.id}", CodeNote(text, True)
    elif not task.is_code_sent and workers and not _is_of_python(task):
        text = (
            "Workers keep the code that they have loaded: if you have fixed a module, restart them "
            "first, or send each SIGHUP (`kill -HUP PID`)."
        )
        yield "loaded", CodeNote(text, False)


def _is_of_python(task: TaskInfo) -> bool:
    return (task.function or "").partition(".")[0] in sys.stdlib_module_names
