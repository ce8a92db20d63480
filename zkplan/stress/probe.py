"""What a worker runs in a stress run: a task that checks itself and records what it saw."""

from __future__ import annotations

import os
import time
import uuid

from ..runtime.execution import current
from .history import recorder_here
from .locks import locks_here
from .workload import digest_of, value_of


class StressViolation(AssertionError):
    """A task found a promise of zkplan broken while it ran."""


def run_task(
    task: int, arguments: dict[int, str], *, expected: str, folder: str, sleep_s: float
) -> str:
    """Compute the task's value from `arguments`, whose digest must be `expected`.

    Raises StressViolation for wrong arguments. That a living process runs the same task, or that an
    attempt number was used before, is for the checker of the whole history: the first is allowed
    where that process has lost its session.
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
    with locks_here(folder).hold(task) as alone:
        recorder.write("start", **facts, digest=digest, alone=alone)
        try:
            if digest != expected:
                raise StressViolation(f"task {task} has wrong arguments: {arguments!r}")
            time.sleep(sleep_s)
            value = value_of(task, arguments)
        except BaseException as error:
            recorder.write("failed", **facts, error=f"{type(error).__name__}: {error}")
            raise
        recorder.write("end", **facts, value=value)
    return value
