"""Escape text from the tree before a terminal shows it.

Whoever may write the tree chooses the names, errors and tracebacks in it. Unescaped, such a text
could move the cursor, change the colours or the title of the terminal, or pretend to be other
lines.
"""

from __future__ import annotations

import logging


def printable(text: str) -> str:
    """Control characters as Python writes them, but for line ends and tabs."""
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode()
        for each in text
    )


class PrintableFormatter(logging.Formatter):
    """Log lines, with their tracebacks, as printable text."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))
