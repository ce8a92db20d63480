"""What the functions of tasks print and log: the last of it is kept, and told while they run."""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ..log import task_here
from ..protocol.requests import Printed
from ..protocol.running import tell_printed
from ..protocol.shared import REQUEST_BYTES_MAX

if TYPE_CHECKING:
    from .job import Job
    from .steps import Steps
    from .thread_pool import ThreadPool

#: Seconds between two looks at what has been printed.
PERIOD_S = 1.0
#: A running task is told of after so many seconds; then each time that it has run a tenth longer,
#: within these bounds.
FIRST_S, EVERY_MIN_S, EVERY_MAX_S, EVERY_SHARE = 2.0, 2.0, 15.0, 0.1
#: While it runs, besides what is kept of an attempt anyway: so many bytes for each second.
BYTES_PER_S = 16
#: Less room than that is not worth a request.
LIVE_BYTES_MIN = 64
#: What the end of an attempt and what it has printed may take together, with some to spare for the
#: operations of its transaction, and for its failure.
PRINTED_ROOM = REQUEST_BYTES_MAX - 24 * 1024
#: Characters that are encoded at a time: a text of 100 MB is not copied as a whole.
_CHARS = 64 * 1024


class Tail:
    """The last bytes of what one attempt has printed, at most `most`. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most, self._kept, self._lock = most, bytearray(), threading.Lock()
        #: How many bytes were printed.
        self._end = 0
        #: Up to this byte they are told.
        self._told = 0
        #: From this byte on they are told without a gap.
        self._whole_from = 0
        #: How many bytes were told while the task ran.
        self._live_bytes = 0
        #: After so many seconds of its run it is told of again.
        self._due_s = FIRST_S
        #: Whether that is under way.
        self._is_under_way = False

    def add(self, text: str) -> None:
        """What was just printed."""
        for start in range(0, len(text), _CHARS):
            data = text[start : start + _CHARS].encode(errors="backslashreplace")
            with self._lock:
                self._end += len(data)
                self._kept += data
                if len(self._kept) > 2 * self._most + len(data):
                    del self._kept[: -self._most]

    def rest(self, room: int) -> Printed | None:
        """What the end of the attempt tells, at most `room` bytes: the last of it, as far as that
        was not told; None if there is nothing."""
        with self._lock:
            start = max(0, self._end - min(room, self._most))
            if self._whole_from <= start:
                start = max(start, self._told)
            return self._from(start)

    def live(self, ran_s: float) -> Printed | None:
        """What is told now that the task has run for so long; None if nothing is. `told` says what
        came of it, and until then nothing more is."""
        with self._lock:
            room = int(self._most + BYTES_PER_S * ran_s) - self._live_bytes
            is_due = ran_s >= self._due_s and not self._is_under_way
            if not is_due or self._told == self._end or room < LIVE_BYTES_MIN:
                return None
            self._due_s = ran_s + min(EVERY_MAX_S, max(EVERY_MIN_S, EVERY_SHARE * ran_s))
            printed = self._from(max(self._told, self._end - min(room, self._most)))
            self._is_under_way = printed is not None
            return printed

    def told(self, printed: Printed, is_told: bool | None) -> None:
        """Whether what `live` gave is in the history."""
        with self._lock:
            self._is_under_way = False
            if is_told:
                if printed.at > self._told:
                    self._whole_from = printed.at
                self._told = printed.end
                self._live_bytes += self._told - printed.at

    def _from(self, start: int) -> Printed | None:
        data = self._kept[len(self._kept) - (self._end - start) :] if start < self._end else b""
        cut = 0
        while cut < len(data) and data[cut] & 0xC0 == 0x80:
            cut += 1  # the rest of a character
        return Printed(start + cut, data[cut:].decode()) if data[cut:] else None


@dataclass(eq=False)
class LiveOutput:
    """A maintenance duty: tell what long tasks print while they run. One that prints nothing costs
    no request, and no short one does. `keeps` says how much is kept of each attempt; where that is
    nothing, it is never due."""

    steps: Steps
    pool: ThreadPool
    keeps: Callable[[], int]
    _due: float = 0.0

    @property
    def at(self) -> float:
        return self._due if self.keeps() else float("inf")

    def run(self, now: float) -> None:
        self._due = now + PERIOD_S
        # A copy: the slots' threads add and remove jobs meanwhile.
        for job in list(self.pool.running):
            tail = job.output
            if tail is None or job.abandoned:
                continue
            printed = tail.live(time.monotonic() - job.started)
            if printed is not None:
                what = f"what {job.claim.task_path} prints is not told while it runs"
                step, done = tell_printed(job.claim, printed), partial(tail.told, printed)
                self.steps.start_contained(step, done, what, instead=None)


def note_printed(job: Job, room: int) -> None:
    """Have the transaction that ends the claim of `job` tell what it has printed last. There is
    `room` for that, also where JSON needs two bytes for one."""
    if job.output is not None and room > 0:
        job.claim.fact = job.claim.fact._replace(printed=job.output.rest(room // 2))


# ---- what is printed in this process

#: Loggers whose records are not of a task: zkplan's own.
_OWN = "zkplan"
_KEPT_ALREADY = "zkplan_kept_already"
_lock = threading.Lock()
_count = 0
#: In a process that a task has forked, another thread may have held a lock for ever.
_is_fork = False


@contextmanager
def captured() -> Iterator[None]:
    """Within the block, what tasks of this process print and log goes to their output, too."""
    global _count
    with _lock:
        _count += 1
        if _count == 1:
            # One may be left: while the last worker stopped, a task had something else there.
            if not isinstance(sys.stdout, _Tee):
                sys.stdout = _Tee(sys.stdout)
            if not isinstance(sys.stderr, _Tee):
                sys.stderr = _Tee(sys.stderr)
            root = logging.getLogger()
            # A first handler there would turn off `logging.lastResort` and `logging.basicConfig`
            # for the whole program. What these write to stderr is caught there.
            if root.handlers:
                root.addHandler(_HANDLER)
    try:
        yield
    finally:
        with _lock:
            _count -= 1
            if not _count:
                logging.getLogger().removeHandler(_HANDLER)
                # A task may have put something else there.
                if isinstance(sys.stdout, _Tee):
                    sys.stdout = sys.stdout._to
                if isinstance(sys.stderr, _Tee):
                    sys.stderr = sys.stderr._to


class _Tee:
    """In place of a stream of this process: it is written to as before, and the task that runs here
    gets a copy. Python has None there if the process was started with that descriptor closed; then
    it goes to the task alone."""

    def __init__(self, to: Any) -> None:
        self._to = to
        self._out: Any = _Nowhere() if to is None else to

    def write(self, data: Any) -> Any:
        written = self._out.write(data)
        here = task_here.get()
        if here is not None and data and not _is_fork:
            text = data if isinstance(data, str) else bytes(data).decode(errors="backslashreplace")
            here.add_output(text)
        return written

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> Any:
        return _Tee(self._out.buffer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)


class _Nowhere(io.TextIOBase):
    """Drops what is written."""

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
            return  # it is caught there
        try:
            here.add_output(f"{self.format(record)}\n")
        except Exception:
            self.handleError(record)


def _goes_to_tee(record: logging.LogRecord) -> bool:
    """Whether a handler that was made while the worker runs writes it to one of its streams."""
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
#: The `extra` of records whose text is kept with the task already: it came through the pipe of its
#: process.
KEPT_ALREADY = {_KEPT_ALREADY: True}
