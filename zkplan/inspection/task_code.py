"""Which code runs when a task is retried: what was sent with its plan, or what workers have loaded.

Whoever fixes a function and retries its task expects the new code to run. This says where it does
not.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ..basics.text import one_line
from ..connection import Connection
from ..errors import InvalidTask, PlanNotFound
from ..log import get_logger
from ..protocol.worker_record import WorkerRecord
from .task_info import TaskInfo, task_info
from .workers import living_workers

logger = get_logger("zkplan.plan")
#: The most tasks of a plan whose code is looked at.
LOOKED_AT = 5
#: The most characters of the names of modules that a sentence has.
NAMES_CHARS_MAX = 300


class CodeNote(NamedTuple):
    """A sentence about the code of tasks. `is_sure`: a fix certainly does not run as things are."""

    text: str
    is_sure: bool


def code_notes(tasks: Iterable[TaskInfo], workers: Sequence[WorkerRecord]) -> list[CodeNote]:
    """What to know before one of these failed tasks is tried again, each thing once."""
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
    """The same for the first of the tasks with these numbers, as they stand now."""
    tasks = []
    # Others may write strange names into the tree: whoever retries those says so.
    for number in islice(filter(str.isdecimal, numbers), LOOKED_AT):
        try:
            tasks.append(task_info(client, plan_path, number))
        except (InvalidTask, PlanNotFound):
            continue  # whoever retries it says so
    return code_notes(tasks, living_workers(client)) if tasks else []


def log_code_notes(notes: Iterable[CodeNote]) -> None:
    """Say them in the log, which commands print."""
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
