"""What the commands write on a terminal: log lines of any logger, made printable."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from typing import Any

from ..basics.text import printable
from ..log import CONTINUED, TASK_FIELDS, continued, exception_text, note_task

__all__ = ["JsonFormatter", "PrintableFormatter", "printable"]


class PrintableFormatter(logging.Formatter):
    """Printable log lines; each further line of a record is marked.

    So what tasks and libraries log cannot forge a line of zkplan's either.
    """

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return _time_of(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = _fields_of(record)
        if "attempt" in fields:
            fields["attempt"] += 1  # people count attempts from 1: see docs/start/reference.md
        found = " ".join(f"{name}={value}" for name, value in fields.items())
        line = super().formatMessage(record)
        if not found:
            return line
        first, *more = line.split("\n")
        return "\n".join([f"{first} [{found}]", *more])

    def format(self, record: logging.LogRecord) -> str:
        first, *more = super().format(record).split("\n")
        rest = continued("\n".join(line.removeprefix(CONTINUED) for line in more))
        return f"{printable(first)}\n{rest}" if more else printable(first)


class JsonFormatter(logging.Formatter):
    """One JSON object for each record, on one line: for programs that collect logs."""

    def format(self, record: logging.LogRecord) -> str:
        value: dict[str, Any] = {
            "time": _time_of(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields_of(record),
        }
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            record.exc_text = exception_text(record)
        if record.exc_text:
            lines = record.exc_text.split("\n")
            value["traceback"] = "\n".join(line.removeprefix(CONTINUED) for line in lines)
        return json.dumps(value, default=str)


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of the task that the record belongs to; none if it belongs to no task."""
    note_task(record)
    found = {name: record.__dict__[name] for name in TASK_FIELDS if name in record.__dict__}
    return found if len(found) == len(TASK_FIELDS) else {}


def _time_of(record: logging.LogRecord) -> str:
    """Date and time with the offset of the zone: those of several machines are compared."""
    return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")
