"""The failure of a task as a value: what a task with `run_if` gets in place of a result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Failure:
    """Why a task has failed for good.

    `type` is the name of the exception, such as `ValueError`, or `TimeoutError`, `WorkerLost`,
    `TaskCancelled`, `UpstreamFailed`. `message` is its text, `traceback` that of the worker, empty
    where there is none. `attempt` is the fencing number of the attempt, on the worker with the ID
    `worker`.
    """

    type: str
    message: str
    traceback: str = ""
    attempt: int = 0
    worker: str = ""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type
