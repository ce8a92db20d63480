"""A server process that dies at a chosen system call, or whose disk fails at one."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import NamedTuple

from zkplan.testing.server_process import LOOPBACK, ServerDidNotStart, ServerProcess

STOP_S_MAX = 10.0
TICK_MS = 100
_SERVER = (sys.executable, "-m", "zkplan")


class Fault(NamedTuple):
    """What happens at the `when`-th of these system calls; `file` in the data folder, '' any.

    `what` is strace's: `signal=SIGKILL` dies before the call is made, `error=EIO` fails it.
    """

    calls: str
    what: str
    when: str
    file: str = ""

    def command(self, data: Path) -> list[str]:
        # With -D the server is the direct child: its id and its exit code are the server's own.
        only = ["-P", str(data / self.file)] if self.file else []
        inject = f"inject={self.calls}:{self.what}:when={self.when}"
        # Stops at no other calls, which is faster; signals are not sent that way.
        quick = [] if "signal" in self.what else ["--seccomp-bpf"]
        return [
            *("strace", "-D", "-f", "-qq", "-o", os.devnull, *quick, *only),
            *("-e", f"trace={self.calls}", "-e", inject),
        ]


def random_kill(rng: random.Random) -> tuple[str, Fault | None, float]:
    """What kind of kill, the system call at which it comes, and after how many seconds of load."""
    kill = "signal=SIGKILL"
    match rng.choice(["any moment"] * 5 + ["commit"] * 2 + ["checkpoint"] * 2 + ["start", "end"]):
        case "commit":
            call = rng.choice(["fdatasync", "pwrite64"])
            most = 100 if call == "fdatasync" else 1200
            return "commit", Fault(call, kill, str(rng.randint(4, most)), "zkplan.db-wal"), 1.5
        case "checkpoint":
            call = rng.choice(["pwrite64", "pwrite64", "fdatasync"])
            # The first writes to the database are those of the start.
            when = rng.randint(4, 40) if call == "pwrite64" else rng.randint(2, 3)
            return "checkpoint", Fault(call, kill, str(when), "zkplan.db"), 3.0
        case "start":
            calls = "pwrite64,fdatasync,unlink,ftruncate,rename"
            return "start", Fault(calls, kill, str(rng.randint(1, 12))), 0.1
        case "end":
            # The last user of the log copies it into the database and removes it.
            calls = rng.choice(["unlink,ftruncate", "pwrite64,fdatasync"])
            file = "zkplan.db" if calls.startswith("pwrite64") else ""
            return "end", Fault(calls, kill, str(rng.randint(1, 8)), file), rng.uniform(0.1, 0.3)
        case _:
            return "any moment", None, rng.uniform(0.02, 0.4)


class CrashServer(ServerProcess):
    """One server on a port and a folder of its own, started again and again."""

    def __init__(
        self, folder: Path, *, durability: str = "durable", program: tuple[str, ...] = _SERVER
    ) -> None:
        super().__init__(None, folder)
        self.data = folder / "data"  # the log lies beside it
        self.address = (LOOPBACK, self.port)
        self._server = [
            *(*program, "server", "--listen", f"{LOOPBACK}:{self.port}"),
            *("--data", str(self.data), "--durability", durability, "--tick-time", str(TICK_MS)),
            "--open",
        ]
        self._log_start = 0

    @property
    def said(self) -> str:
        """What it printed since its last start."""
        return self.log.read_bytes()[self._log_start :].decode(errors="replace")

    def comes_up(self, fault: Fault | None = None, before: tuple[str, ...] = ()) -> bool:
        """Start it; whether it came to serve. `before` is put before its command."""
        self.kill()
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        prefix = [*before, *(fault.command(self.data) if fault is not None else ())]
        self._command = [*prefix, *self._server]
        try:
            self.start()
        except ServerDidNotStart:
            assert not self.is_running(), f"it serves nothing and does not end: {self.said}"
            return False
        return True

    def ends_within(self, timeout_s: float) -> bool:
        return self._process is None or self._process.wait_ended(timeout_s)

    def _end(self, grace_s: float) -> None:
        # The process is kept: how it ended is asked for.
        if self._process is not None:
            self._process.end(grace_s and STOP_S_MAX)
