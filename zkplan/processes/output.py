"""What a process prints and logs: passed on line by line, and its last lines for a message."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

logger = logging.getLogger("zkplan.processes")

_TAIL_LINES = 25
#: What is written by then is shown; later only where a process of the process goes on writing.
_READ_S = 1.0

#: Gets each line, and "stdout" or "stderr".
Show = Callable[[str, str], None]


def log_tail(log: Path) -> str:
    """The last lines of a log file, as the end of a message."""
    return _told(log.read_text(errors="replace").splitlines() if log.exists() else ())


def show(line: str, stream: str) -> None:
    """Write it to the stream of that name of this process, as far as that can."""
    # Looked up for each line: a notebook and pytest replace it.
    out = getattr(sys, stream)
    try:
        encoding = out.encoding or "utf-8"
        out.write(line.encode(encoding, "backslashreplace").decode(encoding))
        out.flush()
    except (AttributeError, OSError, ValueError):
        pass  # there is none, or it is closed: nobody wants to see it


def append(file: Path, line: str, stream: str) -> None:
    """Write it to the end of a file."""
    with file.open("a", encoding="utf-8") as log:
        log.write(line)


def drop(line: str, stream: str) -> None:
    """For those of whose output only the end is wanted, where something goes wrong."""


class Relay:
    """The two pipes into which one process writes, and a thread of this process for each."""

    def __init__(self, show: Show = drop) -> None:
        self._show = show
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._threads: list[threading.Thread] = []

    @contextmanager
    def ends(self) -> Iterator[list[int]]:
        """What the process must have as its standard output and error; closed here afterwards.

        Raises OSError, and RuntimeError where there can be no more threads.
        """
        with ExitStack() as stack:
            yield [self._end(stream, stack) for stream in ("stdout", "stderr")]

    def _end(self, stream: str, stack: ExitStack) -> int:
        read, write = os.pipe()
        # The last who closes this end ends the reading here.
        stack.callback(os.close, write)
        # As it is, also where a line ends with a carriage return, as those of progress bars do.
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
        """The process is dead: wait until all that it wrote is passed on."""
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
                    # Say a full disk. The process must not fail, nor wait, because nobody reads.
                    logger.warning("what worker processes say is dropped from here on: %s", error)
                    self._show = drop


def _told(lines: Iterable[str]) -> str:
    """
    >>> _told(["no such module"]), _told([])
    (' The end of its log:\\nno such module', ' It wrote no log.')
    """
    last = [*lines][-_TAIL_LINES:]
    return "\n".join([" The end of its log:", *last]) if last else " It wrote no log."
