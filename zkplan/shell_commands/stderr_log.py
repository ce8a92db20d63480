"""What a command writes to stderr, line by line in the worker's log, as far as that is bearable."""

from __future__ import annotations

import logging
from typing import Any

#: A command logs at most so many lines; a longer line is cut into parts of so many bytes.
LINES_MAX, LINE_BYTES_MAX = 1000, 2000


class StderrLog:
    """The lines of one command. Not thread-safe."""

    def __init__(
        self,
        logger: logging.Logger,
        name: str,
        what: str = "its stderr",
        extra: dict[str, Any] | None = None,
    ) -> None:
        """`extra` are fields of its records."""
        self._logger, self._name, self._what, self._extra = logger, name, what, extra
        self._partial, self._lines = b"", 0

    def add(self, data: bytes) -> None:
        if self._lines > LINES_MAX:
            return
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._tell(line)
        while len(self._partial) > LINE_BYTES_MAX:
            self._tell(self._partial[:LINE_BYTES_MAX])
            self._partial = self._partial[LINE_BYTES_MAX:]

    def close(self) -> None:
        """Log the last line if it has no end."""
        if self._partial:
            self._tell(self._partial)
            self._partial = b""

    def _tell(self, line: bytes) -> None:
        self._lines += 1
        if self._lines == LINES_MAX + 1:
            self._logger.warning(
                "%s: only the first %d lines of %s are logged",
                *(self._name, LINES_MAX, self._what),
                extra=self._extra,
            )
        elif self._lines <= LINES_MAX:
            text = line[:LINE_BYTES_MAX].decode(errors="replace")
            self._logger.info("%s: %s", self._name, text, extra=self._extra)
