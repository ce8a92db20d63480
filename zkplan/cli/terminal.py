"""What the commands write on a terminal: log lines of any logger, made printable."""

from __future__ import annotations

import logging

from ..log import CONTINUED, continued
from ..text import printable

__all__ = ["PrintableFormatter", "printable"]


class PrintableFormatter(logging.Formatter):
    """Printable log lines; each further line of a record is marked.

    So what tasks and libraries log cannot forge a line of zkplan's either.
    """

    def format(self, record: logging.LogRecord) -> str:
        first, *more = super().format(record).split("\n")
        rest = continued("\n".join(line.removeprefix(CONTINUED) for line in more))
        return f"{printable(first)}\n{rest}" if more else printable(first)
