"""Pass on the output of a process line by line, and keep its last lines for messages."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from ..log import get_logger

logger = get_logger("zkplan.processes")

_TAIL_LINES = 25
#: How long to wait for the end of the output of a dead process: its own children may go on writing.
_READ_S = 1.0

#: Called with each line, and with "stdout" or "stderr".
Show = Callable[[str, str], None]


def log_tail(log: Path) -> str:
    """The last lines of a log file, as the end of a message."""
    return _told(log.read_text(errors="replace").splitlines() if log.exists() else ())


def show(line: str, stream: str) -> None:
    """Write it to this process's stream of that name, as far as the stream can show it."""
    # Looked up for each line, because a notebook and pytest replace the stream.
    out = getattr(sys, stream)
    try:
        encoding = out.encoding or "utf-8"
        out.write(line.encode(encoding, "backslashreplace").decode(encoding))
        out.flush()
    except (AttributeError, OSError, ValueError):
        pass  # there is no stream, or it is closed: nobody reads it


def append(file: Path, line: str, stream: str) -> None:
    """Write it to the end of a file."""
    with file.open("a", encoding="utf-8") as log:
        log.write(line)


def drop(line: str, stream: str) -> None:
    """Ignore a line: only the end of the output is wanted, for a message."""


class Relay:
    """The two pipes that one process writes into, and a thread of this process to read each."""

    def __init__(self, show: Show = drop) -> None:
        self._show = show
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._threads: list[threading.Thread] = []

    @contextmanager
    def ends(self) -> Iterator[list[int]]:
        """Yield the descriptors for standard output and error of the process; closes them here
        afterwards.

        Raises OSError, and RuntimeError if no more threads can be started.
        """
        with ExitStack() as stack:
            yield [self._end(stream, stack) for stream in ("stdout", "stderr")]

    def _end(self, stream: str, stack: ExitStack) -> int:
        read, write = os.pipe()
        # The read ends when the last writer closes this end.
        stack.callback(os.close, write)
        # Pass on the text unchanged, also lines that end with a carriage return, as those of
        # progress bars do.
        lines = open(read, errors="replace", newline="")  # noqa: SIM115
        thread = threading.Thread(target=self._read, args=[lines, stream], daemon=True)
        try:
            thread.start()
        except BaseException:
            lines.close()
            raise
        self._threads.append(thread)
        return write

    def finish(self) -> None:
        """Wait until everything that the dead process wrote is passed on."""
        deadline = time.monotonic() + _READ_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def tail(self) -> str:
        """The last lines, as the end of a message."""
        return _told(list(self._tail))

    def _read(self, lines: IO[str], stream: str) -> None:
        with lines:
            for line in lines:
                self._tail.append(line.rstrip())
                try:
                    self._show(line, stream)
                except OSError as error:
                    # For example a full disk. The process must not fail or wait because nobody
                    # reads.
                    logger.warning(
                        "the output of worker processes is dropped from now on: %s", error
                    )
                    self._show = drop


def _told(lines: Iterable[str]) -> str:
    """
    >>> _told(["no such module"]), _told([])
    (' The end of its log:\\nno such module', ' It wrote no log.')
    """
    last = [*lines][-_TAIL_LINES:]
    return "\n".join([" The end of its log:", *last]) if last else " It wrote no log."
