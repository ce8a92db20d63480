"""Servers for these tests: in a thread with quick clocks, or as a process that can be stopped."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.tools.support import IN_CHECKOUT
from zkplan.embedded import EmbeddedServer, Limits
from zkplan.embedded.storage import Storage
from zkplan.testing import server_process

from . import planted_bugs  # noqa: F401  # so that they are known in the process too
from .planting import now_planted, planted

WAIT_S_MAX = 10.0
QUICK = {"tick_time_ms": 50, "min_session_timeout_ms": 100, "max_session_timeout_ms": 60_000}


def serving(data: Path | None = None, **options: Any) -> EmbeddedServer:
    """A server with time-outs from 100 ms; `with` starts it in a thread."""
    return EmbeddedServer(data, **{**QUICK, "is_open": True, **options})


class Gate:
    """While it is shut, every commit of every server in this process waits before it writes."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._one = threading.Semaphore(0)
        self.waits = threading.Event()

    def shut(self) -> None:
        self.waits.clear()
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def let_one_through(self) -> None:
        """The commit that waits now goes on, the next one waits again."""
        self.waits.clear()
        self._one.release()

    def wait(self) -> None:
        if self._open.is_set():
            return
        self.waits.set()
        end = time.monotonic() + WAIT_S_MAX
        while not self._open.is_set() and not self._one.acquire(timeout=0.01):
            assert time.monotonic() < end, "nobody opened the gate"


@contextmanager
def gated_commits() -> Iterator[Gate]:
    """The disk under the test's control; open at first."""
    gate = Gate()
    gate.open()
    commit = Storage.commit

    def gated(self: Storage, **changes: Any) -> None:
        gate.wait()
        commit(self, **changes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Storage, "commit", gated)
        try:
            yield gate
        finally:
            gate.open()


class ServerProcess(server_process.ServerProcess):
    """A server in a process of its own, with the bug of the moment; in memory without `data`."""

    def __init__(
        self, data: Path | None = None, *, port: int | None = None, **options: Any
    ) -> None:
        super().__init__(port, None)
        options["port"] = self.port
        settings = {"data": data and str(data), "bug": now_planted(), "options": options}
        program = (sys.executable, "-m", "tests.embedded.servers")
        self._command = [*IN_CHECKOUT, *program, json.dumps(settings)]
        self._last_errors = ""

    def close(self) -> None:
        self.stop()
        self._last_errors = self.errors()
        super().close()

    def errors(self) -> str:
        """What it wrote to stderr: asyncio reports there what nobody caught."""
        return self.log.read_text(errors="replace") if self.log.exists() else self._last_errors

    def memory_mib(self) -> float:
        """Its resident memory; that it has ended is a finding of the test."""
        assert self.is_running(), f"the server has ended: {self.errors()}"
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _main(settings: str) -> int:
    wanted = json.loads(settings)
    options = dict(wanted["options"])
    if "limits" in options:
        options["limits"] = Limits(**options["limits"])
    with planted(wanted["bug"]):
        return serving(wanted["data"], **options).run()


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
