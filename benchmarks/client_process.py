"""A client process that is ready before the measurement begins, and tells what it measured."""

from __future__ import annotations

import json
import subprocess
import sys
from types import TracebackType
from typing import Any

_END_TIMEOUT_S = 120.0


class ClientProcess:
    """A module of this package: it says `ready`, waits for a line, measures, prints a JSON object.

    It ends by itself when this process does, for then its input ends.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_ready(self) -> None:
        """Until it is connected and has prepared everything; RuntimeError where it ended."""
        self._line()

    def begin(self) -> None:
        """Let it measure."""
        assert self._process.stdin is not None
        self._process.stdin.write("begin\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        """What it measured; waits for it. RuntimeError where it ended without."""
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
            raise RuntimeError("a client that measures the server ended; its error is above")
        return line
