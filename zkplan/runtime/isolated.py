"""An attempt in a process of its own, as its worker sees it: what goes there, what comes back.

The worker decodes neither the function nor a value. It reads and writes the store, signs what the
process has made, and asks ZooKeeper for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ..errors import PayloadUndecodable
from ..log import get_logger
from ..protocol.adding import NewTask
from ..protocol.options import TaskOptions
from ..protocol.records import Failure, TaskRecord
from ..serialization.codec import LOG, Codec
from ..serialization.functions import split_name
from ..store.ahead import side_by_side
from ..store.blob import Bytes
from ..store.values import Values
from .context import Context
from .job import Ended, Job
from .retry_rules import is_final

logger = get_logger("zkplan.worker")


@dataclass(slots=True)
class Work:
    """What the process of a task gets: whether each of its bodies is a blob, and the bodies: the
    function, the arguments, and the results of other tasks. `logs` are those of earlier
    attempts."""

    job: Job
    bodies: list[tuple[bool, Bytes]]
    logs: list[bytes]
    inline_limit: int | None


@dataclass(slots=True)
class Came:
    """What came of it. The first that is set counts."""

    #: The process died, for this reason.
    lost: Failure | None = None
    #: What the runner found just before the call.
    refused: Ended | None = None
    cannot_run: str = ""
    shown: str = ""
    is_coroutine: bool = False
    needs_claim: bool = False
    #: What the function raised: the failure record as bytes.
    failure: bytes = b""
    was_cancelled: bool = False
    #: No other attempt can help, by its `fatal` or `retry_if`.
    is_final: bool = False
    server_full: bool = False
    #: Whether the result is a blob, its bytes, and the tasks that it adds.
    is_blob: bool = False
    result: Bytes = b""
    adds: tuple[NewTask, ...] = ()


class Isolation(Protocol):
    """The processes of a worker's tasks. `zkplan.isolation` has the real one."""

    @property
    def default(self) -> str:
        """Where a task runs that does not say: `thread` or `process`."""
        ...

    def takes(self, options: TaskOptions) -> bool:
        """Whether such a task runs in a process of its own."""
        ...

    def run(
        self, work: Work, start: Callable[[], Ended | None], log: Callable[[bytes], None]
    ) -> Came:
        """Run it. `start` is called once all is decoded; `log` stores a value, and may raise.
        Never raises for what the process does."""
        ...

    def close(self) -> None:
        """End all processes."""
        ...


class IsolatedAttempts:
    """Attempts in processes, for the runner of one worker. Thread-safe."""

    def __init__(self, isolation: Isolation, values: Values) -> None:
        self._isolation, self._values, self._codec = isolation, values, values.codec
        self._told = False

    def came(
        self,
        job: Job,
        record: TaskRecord,
        bodies: list[bytes],
        start: Callable[[], Ended | None],
        context: Context,
    ) -> Came:
        """Run the function of `job` in a process. Raises StoredValueLost and StoreUnavailable."""
        plan_path, values = job.claim.plan_path, self._values
        store = values.store
        carried = [values.carried(plan_path, body) for body in (record.function, record.arguments)]
        plain = [split_name(body)[1] for body in bodies]
        reads = side_by_side(values.reading(plan_path, body) for body in plain)
        carried += [values.carried(plan_path, *each) for each in zip(plain, reads, strict=True)]
        logs = list(_opened(self._codec, job.loaded.logs))
        limit = None if store is None else store.inline_limit
        came = self._isolation.run(Work(job, carried, logs, limit), start, context._log_body)
        if came.is_coroutine and not self._told:
            self._told = True
            logger.info(
                "%s is a coroutine: coroutines run in the loop of the worker, and not in a process "
                "of their own (said once)",
                job.name,
            )
        return came

    def ended(self, job: Job, came: Came) -> Ended | None:
        """How the attempt ended; None if the function has succeeded, or is a coroutine."""
        if came.lost is not None:
            # Only a process that was ended at its limit stands for an exception.
            at_limit = came.lost.kind == "MemoryError"
            is_last = at_limit and is_final(job.options, MemoryError())
            return Ended(job, failure=came.lost, final=is_last)
        if came.refused is not None:
            return came.refused
        if came.cannot_run:
            return Ended(job, cannot_run=came.cannot_run, shown=came.shown)
        if came.needs_claim:
            return Ended(job, needs_claim=True)
        if came.failure:
            if came.server_full:
                return Ended(job, server_full=True)
            if came.was_cancelled and job.is_unwanted():
                job.heeded = True
                return Ended(job, stopped=True)
            return Ended(job, failure=Failure.from_bytes(came.failure), final=came.is_final)
        return None


def _opened(codec: Codec, logs: list[bytes]) -> Any:
    for sealed in logs:
        try:
            yield codec.open(LOG, sealed)[1]
        except PayloadUndecodable:
            continue
