"""What a worker runs in a stress run: a task that checks itself and records what it saw."""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..execution import current
from .history import recorder_here
from .workload import digest_of, value_of


class StressViolation(AssertionError):
    """A task found a promise of zkplan broken while it ran."""


def run_task(
    task: int, arguments: dict[int, str], *, expected: str, folder: str, sleep_s: float
) -> str:
    """Compute the task's value from `arguments`, whose digest must be `expected`.

    Raises StressViolation for wrong arguments and for an attempt number that another execution has
    had. That a living process runs the same task is recorded, not raised: it is allowed where that
    process has lost its session, and only the checker of the whole history can tell.
    """
    context = current()
    recorder = recorder_here(folder)
    facts = {
        "task": task,
        "n": context.attempt,
        "worker": context.worker,
        "pid": os.getpid(),
        "execution": uuid.uuid4().hex,
    }
    digest = digest_of(arguments)
    with _running(folder, task) as alone:
        fresh = _take_attempt(folder, task, context.attempt)
        recorder.write("start", **facts, digest=digest, alone=alone, fresh=fresh)
        try:
            if not fresh:
                raise StressViolation(f"attempt {context.attempt} of task {task} runs twice")
            if digest != expected:
                raise StressViolation(f"task {task} has wrong arguments: {arguments!r}")
            time.sleep(sleep_s)
            value = value_of(task, arguments)
        except BaseException as error:
            recorder.write("failed", **facts, error=f"{type(error).__name__}: {error}")
            raise
        recorder.write("end", **facts, value=value)
    return value


@contextmanager
def _running(folder: str, task: int) -> Iterator[bool]:
    """Hold the task's lock for the block; False where a living process or another thread holds it.

    The kernel gives the lock back with the process, so a killed worker never blocks the next one.
    """
    with (Path(folder) / f"task-{task}.lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _take_attempt(folder: str, task: int, n: int) -> bool:
    """Whether no execution had this attempt number before: its file is made only once."""
    try:
        (Path(folder) / f"task-{task}.{n}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
