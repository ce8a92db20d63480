"""A process that gets ready before a measurement begins, measures, and reports the result."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from types import TracebackType
from typing import Any

_END_TIMEOUT_S = 120.0


class ClientProcess:
    """A module of this package: it prints `ready`, waits for a line, measures, and prints JSON.

    `python` is the interpreter that runs the module. The process ends when this process ends,
    because then its input ends.
    """

    def __init__(self, module: str, *arguments: str, python: str = sys.executable) -> None:
        self._module = f"{__package__}.{module}"
        self._process = subprocess.Popen(
            [python, "-m", self._module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_ready(self) -> None:
        """Wait until the process is prepared. Raises RuntimeError if it has ended."""
        self._line()

    def begin(self, request: str = "begin") -> None:
        """Let the process measure as `request` asks. Raises RuntimeError if it has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{request}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def result(self) -> dict[str, Any]:
        """Wait for the figures, and return them. Raises RuntimeError if the process ends before."""
        found: dict[str, Any] = json.loads(self._line())
        return found

    def __enter__(self) -> ClientProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # the process has ended, as an error has told
                    pipe.close()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        return line

    def _ended(self) -> RuntimeError:
        return RuntimeError(f"{self._module} ended; its error is above")
