"""Capture the output of tasks: keep its end, record it while they run, and bound it."""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ..basics.log import task_here
from ..protocol.core.claim import record_printed
from ..protocol.transactions import REQUEST_BYTES_MAX

if TYPE_CHECKING:
    from .job import Job
    from .slots import Slots
    from .steps import Steps

#: Seconds between two looks at the output of running tasks.
LIVE_PERIOD_S = 1.0
#: The most bytes of an outcome and the output together in one transaction: a whole request, less
#: room for the other operations and for a failure.
PRINTED_ROOM = REQUEST_BYTES_MAX - 24 * 1024


@dataclass(eq=False)
class LiveOutput:
    """A maintenance duty: record the output of long tasks in the history while they run. Short
    tasks, and tasks that print nothing, cost no request. `output_max` is how many bytes of output
    to keep of each attempt; if it is 0, the duty is never due."""

    steps: Steps
    pool: Slots
    output_max: int
    at: float = 0.0

    def run(self, now: float) -> None:
        self.at = now + LIVE_PERIOD_S if self.output_max else float("inf")
        # A copy: the slots' threads add and remove jobs meanwhile.
        for job in list(self.pool.running):
            tail = job.output
            if tail is None or job.abandoned:
                continue
            printed = tail.live(now - job.started)
            if printed is not None:
                what = f"what {job.claim.task_path} prints is not told while it runs"
                step, done = record_printed(job.claim, printed), partial(tail.told, printed)
                self.steps.start_contained(step, done, what, instead=None)


def note_printed(job: Job, room: int) -> None:
    """Record the end of the output of `job` in the transaction that ends its claim. There are
    `room` bytes for it, and JSON may need two bytes for one."""
    if job.output is not None and room > 0:
        job.claim.fact = job.claim.fact._replace(printed=job.output.rest(room // 2))


# ---- capture the output in this process

#: The parent of zkplan's own loggers, whose records do not come from a task.
_OWN = "zkplan"
_KEPT_ALREADY = "zkplan_kept_already"
_lock = threading.Lock()
_count = 0
#: In a process that a task has forked, nothing is captured: a lock may stay held for ever.
_is_fork = False


@contextmanager
def captured() -> Iterator[None]:
    """Within the block, add what tasks in this process print and log to their output, too."""
    global _count
    with _lock:
        _count += 1
        if _count == 1:
            # A _Tee may be left: a task had replaced the stream while the last worker stopped.
            if not isinstance(sys.stdout, _Tee):
                sys.stdout = _Tee(sys.stdout)
            if not isinstance(sys.stderr, _Tee):
                sys.stderr = _Tee(sys.stderr)
            root = logging.getLogger()
            # Without other handlers, this one would turn off `logging.lastResort` and
            # `logging.basicConfig` for the whole program. The _Tee of stderr catches their output.
            if root.handlers:
                root.addHandler(_HANDLER)
    try:
        yield
    finally:
        with _lock:
            _count -= 1
            if not _count:
                logging.getLogger().removeHandler(_HANDLER)
                # A task may have replaced the stream.
                if isinstance(sys.stdout, _Tee):
                    sys.stdout = sys.stdout._to
                if isinstance(sys.stderr, _Tee):
                    sys.stderr = sys.stderr._to


class _Tee:
    """Replaces a stream of this process: passes writes on to it, and gives the task that runs here
    a copy. Each line of a task names the task, because several may run at once. `to` is None if
    the process was started with that descriptor closed; then only the task gets the output."""

    def __init__(self, to: Any) -> None:
        self._to = to
        self._out: Any = _Nowhere() if to is None else to

    def write(self, data: Any) -> Any:
        here = task_here.get()
        if here is None or not data or _is_fork:
            return self._out.write(data)
        text = data if isinstance(data, str) else bytes(data).decode(errors="backslashreplace")
        here.add_output(text)
        return here.pass_on(self._out, data)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> Any:
        return _Tee(self._out.buffer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)


class _Nowhere(io.TextIOBase):
    """A stream that drops its output."""

    def write(self, data: str) -> int:
        return len(data)


class _Handler(logging.Handler):
    """Gives each record to the task that logs it."""

    def emit(self, record: logging.LogRecord) -> None:
        here = task_here.get()
        is_own = record.name == _OWN or record.name.startswith(f"{_OWN}.")
        if here is None or is_own or _is_fork or hasattr(record, _KEPT_ALREADY):
            return
        if _goes_to_tee(record):
            return  # the _Tee has caught it
        try:
            here.add_output(f"{self.format(record)}\n")
        except Exception:
            self.handleError(record)


def _goes_to_tee(record: logging.LogRecord) -> bool:
    """Whether a handler made while the worker runs writes `record` to a _Tee."""
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        for handler in logger.handlers:
            stream = getattr(handler, "stream", None)
            if record.levelno >= handler.level and isinstance(stream, _Tee):
                return True
        logger = logger.parent if logger.propagate else None
    return False


def _note_fork() -> None:
    global _is_fork
    _is_fork = True


os.register_at_fork(after_in_child=_note_fork)
_HANDLER = _Handler()
_HANDLER.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
#: The `extra` of log records whose text the task has already, through the pipe of its process.
KEPT_ALREADY = {_KEPT_ALREADY: True}


# ---- Log the stderr of commands line by line in the worker's log, within bounds.


#: The most lines that one command may log, and the bytes after which a longer line is cut.
LINES_MAX, LINE_BYTES_MAX = 1000, 2000


class StderrLog:
    """The lines of one command. Not thread-safe."""

    def __init__(
        self,
        logger: logging.Logger,
        name: str,
        what: str = "its stderr",
        extra: dict[str, Any] | None = None,
    ) -> None:
        """`name` begins each record; `what` names the output; `extra` are fields of records."""
        self._logger, self._name, self._what, self._extra = logger, name, what, extra
        self._partial, self._lines = b"", 0

    def add(self, data: bytes) -> None:
        if self._lines > LINES_MAX:
            return
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._tell(line)
        while len(self._partial) > LINE_BYTES_MAX:
            self._tell(self._partial[:LINE_BYTES_MAX])
            self._partial = self._partial[LINE_BYTES_MAX:]

    def close(self) -> None:
        """Log the last line if it has no end."""
        if self._partial:
            self._tell(self._partial)
            self._partial = b""

    def _tell(self, line: bytes) -> None:
        self._lines += 1
        if self._lines == LINES_MAX + 1:
            self._logger.warning(
                "%s: only the first %d lines of %s are logged",
                *(self._name, LINES_MAX, self._what),
                extra=self._extra,
            )
        elif self._lines <= LINES_MAX:
            text = line[:LINE_BYTES_MAX].decode(errors="replace")
            self._logger.info("%s: %s", self._name, text, extra=self._extra)
