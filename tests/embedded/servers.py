"""Servers for these tests: in a thread with quick clocks, or as a process that can be stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from zkplan.embedded import EmbeddedServer, Limits
from zkplan.embedded.storage import Storage

from . import planted_bugs  # noqa: F401  # so that they are known in the process too
from .planting import now_planted, planted

TOP = Path(__file__).parents[2]
WAIT_S_MAX = 10.0
QUICK = {"tick_time_ms": 50, "min_session_timeout_ms": 100, "max_session_timeout_ms": 60_000}


def serving(data: Path | None = None, **options: Any) -> EmbeddedServer:
    """A server with time-outs from 100 ms; `with` starts it in a thread."""
    return EmbeddedServer(data, **{**QUICK, **options})


def wait_until(condition: Callable[[], bool], what: str, within_s: float = WAIT_S_MAX) -> None:
    """Fail unless `condition` is soon true."""
    pause = threading.Event()
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, f"after {within_s} s not yet: {what}"
        pause.wait(0.01)


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


class ServerProcess:
    """A server in a process of its own; `with` starts and ends it."""

    def __init__(self, data: Path | None = None, **options: Any) -> None:
        bug = now_planted()
        self._settings = json.dumps(
            {"data": None if data is None else str(data), "bug": bug, "options": options}
        )
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed at the end
        self.process: subprocess.Popen[str] = None  # type: ignore[assignment]  # set at the start
        self.hosts = ""
        self._last_errors = ""

    def __enter__(self) -> ServerProcess:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.embedded.servers", self._settings],
            cwd=TOP,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        assert self.process.stdout is not None
        self.hosts = self.process.stdout.readline().strip()
        assert self.hosts, f"the server did not start: {self.errors()}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(WAIT_S_MAX)
        finally:
            self.process.kill()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self._last_errors = self.errors()
            self._errors.close()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def errors(self) -> str:
        """What it wrote to stderr: asyncio reports there what nobody caught."""
        if self._errors.closed:
            return self._last_errors
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), size, 0).decode(errors="replace")

    def memory_mib(self) -> float:
        """Its resident memory; that it has ended is a finding of the test."""
        assert self.is_alive(), f"the server has ended: {self.errors()}"
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _main(settings: str) -> int:
    wanted = json.loads(settings)
    options = dict(wanted["options"])
    if "limits" in options:
        options["limits"] = Limits(**options["limits"])

    def tell(server: EmbeddedServer) -> None:
        sys.stdout.write(f"{server.hosts}\n")
        sys.stdout.flush()

    with planted(wanted["bug"]):
        return serving(wanted["data"], **options).run(tell)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
