"""Log for zkplan, and keep anybody who writes the tree from forging a line.

Names, errors and reasons in a line come from the tree, from tasks and from servers. Each record is
made one printable line where it is logged, so the user's own logging configuration gets it so, too.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Any, Protocol

from .text import formatted, frames_of, kind_of, one_line, printable

#: Before each line of a traceback, so that none of them looks like a line of the log.
CONTINUED = "  | "

#: What a record of a task has besides its text.
TASK_FIELDS = ("plan", "task", "attempt", "worker")


class OfTask(Protocol):
    """What belongs to a task: `log_fields` has a value for each of TASK_FIELDS. `add_output` gets
    what its function prints and logs, `pass_on` writes it to a stream, each line with the task.
    `worker` is the ID of the worker that runs it."""

    @property
    def worker(self) -> str: ...

    @property
    def log_fields(self) -> dict[str, Any]: ...

    def add_output(self, text: str) -> None: ...
    def pass_on(self, out: Any, data: Any) -> int: ...


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
        record.msg, record.args = one_line(_message_of(record)), ()
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            # A formatter takes this text instead of making its own.
            record.exc_text = continued(exception_text(record))
        if record.stack_info:
            record.stack_info = continued(record.stack_info)
        return True


_ONE_LINE = _OneLine()


def _message_of(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except BaseException as broken:
        # An argument of it is of a user's class. A filter that raises would end whoever logs.
        return f"{record.msg} (its arguments cannot be shown: {kind_of(broken)})"


def exception_text(record: logging.LogRecord) -> str:
    """The traceback of the record's exception, as a formatter writes it. Never raises."""
    error = record.exc_info[1] if record.exc_info else None
    return "" if error is None else formatted(error, frames_of(error)).removesuffix("\n")


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
