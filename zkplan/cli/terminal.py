"""What somebody wrote into the tree, made fit for a terminal.

Names, errors and tracebacks are the words of whoever may write the tree. As they are they could
move the cursor, recolour or retitle the terminal, or pretend to be other lines.
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
