"""A process that a task forks ends where the task's code ends, as one that a program forks does.

Otherwise it would go on in zkplan's code as a copy of its worker, without its other threads and
with its sockets: it would wait for ever, and so would a task that waits for it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn

from ..basics.exceptions import formatted, frames_of


class EndingForks:
    """Around code of a task: in a process that it has forked, nothing behind the block runs.

    Where each task passes, `leave_fork` is called instead: blocks took a tenth of a worker's time.
    """

    __slots__ = ("_pid",)

    def __enter__(self) -> None:
        self._pid = os.getpid()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        leave_fork(self._pid, error)


def leave_fork(pid: int, error: BaseException | None = None) -> None:
    """End this process if it is another one than `pid`, in which code of a task began."""
    if os.getpid() != pid:
        leave(error)


def leave(error: BaseException | None) -> NoReturn:
    """End this process as Python ends one, but for `atexit`: those are the worker's."""
    code = 1
    try:
        if error is None:
            code = 0
        elif not issubclass(type(error), SystemExit):
            sys.stderr.write(formatted(error, frames_of(error)))
        else:
            told = error.args[0] if error.args else None
            if told is None or isinstance(told, int):
                code = (told or 0) & 0xFF
            else:
                sys.stderr.write(f"{told}\n")
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):  # the task may have closed it
                stream.flush()
        os._exit(code)
