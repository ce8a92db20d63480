"""The loggers of zkplan: whoever formats their lines, nobody who writes the tree can forge one.

Names, errors and reasons in a line come from the tree, from tasks and from servers. Each record is
made one printable line where it is logged, so the user's own logging configuration gets it so, too.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Any, Protocol

from .basics.text import one_line, printable

#: Before each line of a traceback, so that none of them looks like a line of the log.
CONTINUED = "  | "
_PLAIN = logging.Formatter()


#: What a record of a task has besides its text.
TASK_FIELDS = ("plan", "task", "attempt", "worker")


class OfTask(Protocol):
    """What belongs to a task: `log_fields` has a value for each of TASK_FIELDS. `add_output` gets
    what its function prints and logs. `worker` is the ID of the worker that runs it."""

    @property
    def worker(self) -> str: ...

    @property
    def log_fields(self) -> dict[str, Any]: ...

    def add_output(self, text: str) -> None: ...


#: Whose code runs in this thread, or in this coroutine.
task_here: ContextVar[OfTask | None] = ContextVar("zkplan_task_here", default=None)


def note_task(record: logging.LogRecord) -> None:
    """Give the record the fields of the task that logs it; those that it has already stay."""
    here = task_here.get()
    if here is not None:
        for name, value in here.log_fields.items():
            record.__dict__.setdefault(name, value)


class _OneLine(logging.Filter):
    """Escapes the text of each record, and marks each line of its traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        note_task(record)
        record.msg, record.args = one_line(record.getMessage()), ()
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            # A formatter takes this text instead of making its own.
            record.exc_text = continued(_PLAIN.formatException(record.exc_info))
        if record.stack_info:
            record.stack_info = continued(record.stack_info)
        return True


_ONE_LINE = _OneLine()


def get_logger(name: str) -> logging.Logger:
    """The logger of that name below `zkplan`. Each of our modules gets its logger here."""
    logger = logging.getLogger(name)
    logger.addFilter(_ONE_LINE)  # a logger takes the same filter only once
    return logger


def continued(text: str) -> str:
    """The lines of `text`, printable, and marked as no lines of the log."""
    return "\n".join(CONTINUED + printable(line) for line in text.split("\n"))


def without_values(value: Any) -> Any:
    """What a log may show of an argument of kazoo's: no request, no answer, no login.

    >>> without_values(7), without_values(["pickle"]), without_values(None)
    (7, 'list', None)
    """
    shown = value is None or isinstance(value, int | float | BaseException)
    return value if shown else type(value).__name__
