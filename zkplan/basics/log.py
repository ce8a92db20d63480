"""Loggers whose lines cannot be forged by writing to the tree.

Names, errors and reasons in a line come from the tree, from tasks and from servers. The loggers
make each record one printable line, whatever the logging configuration of the user is.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Any, Protocol

from .text import formatted, frames_of, kind_of, one_line, printable

#: The prefix of each line of a traceback, so that none looks like a line of the log.
CONTINUED = "  | "

#: The fields that `note_task` adds to the records that tasks log.
TASK_FIELDS = ("plan", "task", "attempt", "worker")


class OfTask(Protocol):
    """A running task, for its logs and output.

    `worker` is the worker's ID. `log_fields` has a value for each of TASK_FIELDS. `add_output`
    keeps printed or logged `text`; `pass_on` writes printed `data` to `out`, naming the task.
    """

    @property
    def worker(self) -> str: ...

    @property
    def log_fields(self) -> dict[str, Any]: ...

    def add_output(self, text: str) -> None: ...
    def pass_on(self, out: Any, data: Any) -> int: ...


#: The task whose code runs in this thread, or in this coroutine.
task_here: ContextVar[OfTask | None] = ContextVar("zkplan_task_here", default=None)


def note_task(record: logging.LogRecord) -> None:
    """Add the fields of the running task to a record, except fields that the record already has."""
    here = task_here.get()
    if here is not None:
        for name, value in here.log_fields.items():
            record.__dict__.setdefault(name, value)


class _OneLine(logging.Filter):
    """Makes each record one printable line, and marks each line of its traceback."""

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
        # An argument may be of a user's class. If the filter raised, so would the logging call.
        return f"{record.msg} (its arguments cannot be shown: {kind_of(broken)})"


def exception_text(record: logging.LogRecord) -> str:
    """Format the exception of a record with its traceback. Never raises."""
    error = record.exc_info[1] if record.exc_info else None
    return "" if error is None else formatted(error, frames_of(error)).removesuffix("\n")


def get_logger(name: str) -> logging.Logger:
    """Return the logger `name`, with the filter for one line. All of zkplan gets loggers here."""
    logger = logging.getLogger(name)
    logger.addFilter(_ONE_LINE)  # adding the same filter again does nothing
    return logger


def continued(text: str) -> str:
    """Make the lines of `text` printable, and mark that each continues a line of the log."""
    return "\n".join(CONTINUED + printable(line) for line in text.split("\n"))


def without_values(value: Any) -> Any:
    """Return an argument of kazoo's log for our log: a request, an answer or a login as its type.

    >>> without_values(7), without_values(["pickle"]), without_values(None)
    (7, 'list', None)
    """
    shown = value is None or isinstance(value, int | float | BaseException)
    return value if shown else type(value).__name__
