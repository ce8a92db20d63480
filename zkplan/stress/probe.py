"""The task function of a stress run: it checks itself and records what it saw."""

from __future__ import annotations

import os
import time
import uuid

from ..runtime.context import current
from .history import recorder_here
from .locks import locks_here
from .workload import digest_of, key_of, value_of

#: What a task returns: its value, and the execution that made it.
Result = tuple[str, str]


class StressViolation(AssertionError):
    """A task found out while it ran that zkplan had broken a promise."""


def run_task(
    task: int, arguments: dict[int, Result], *, expected: str, folder: str, sleep_s: float
) -> Result:
    """Compute the task's value from those of `arguments`, whose digest must be `expected`.

    Raises StressViolation for wrong arguments. Whether another process runs the same task, or an
    attempt number was used before, is checked later in the whole history: the first is allowed if
    that process has lost its session.
    """
    context = current()
    recorder = recorder_here(folder)
    uid = uuid.uuid4().hex[:16]
    values = {other: value for other, (value, _) in arguments.items()}
    digest = digest_of(values)
    with locks_here(folder).hold(task) as alone:
        recorder.write(
            "begin",
            uid=uid,
            key=key_of(task),
            n=context.attempt,
            worker=context.worker,
            pid=os.getpid(),
            digest=digest,
            got=[maker for _, (_, maker) in sorted(arguments.items())],
            alone=alone,
        )
        try:
            if digest != expected:
                raise StressViolation(f"task {task} has wrong arguments: {arguments!r}")
            time.sleep(sleep_s)
            value = value_of(task, values)
        except BaseException as error:
            recorder.write("raised", uid=uid, error=f"{type(error).__name__}: {error}")
            raise
        recorder.write("end", uid=uid, value=value)
    return value, uid
