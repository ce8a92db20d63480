"""Which worker ran which task, and when: a line per execution, in one file per process.

ZooKeeper keeps no history of a plan that went well. The demonstration wants to show that the tasks
of a killed worker were run again by others, so each execution writes itself down before it works.
A line is one write to a file of its own process: a kill leaves whole lines or none.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import zkplan

T = TypeVar("T")


class Execution(NamedTuple):
    """The start of one execution of a task.

    `attempt` is the fencing number, `at` the monotonic clock in seconds, which the processes of one
    machine share.
    """

    task: str
    attempt: int
    worker: str
    pid: int
    at: float


def recorded(journal: str, function: Callable[..., T], *arguments: object) -> T:
    """Call `function` inside a task, after noting the execution in the folder `journal`."""
    context = zkplan.current()
    pid = os.getpid()
    execution = Execution(context.name, context.attempt, context.worker, pid, time.monotonic())
    line = json.dumps(execution._asdict()).encode() + b"\n"
    file = os.open(Path(journal, f"{pid}.jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)
    return function(*arguments)


def executions(journal: Path) -> list[Execution]:
    """What was recorded so far, in the order of time."""
    lines = [line for file in journal.glob("*.jsonl") for line in file.read_text().splitlines()]
    return sorted((Execution(**json.loads(line)) for line in lines), key=lambda e: e.at)


def taken_over(history: list[Execution], held: set[str], pid: int, since: float) -> list[Execution]:
    """The first execution elsewhere of each task that the killed process `pid` held at `since`."""
    first: dict[str, Execution] = {}
    for execution in history:
        if execution.task in held and execution.pid != pid and execution.at >= since:
            first.setdefault(execution.task, execution)
    return list(first.values())
