"""One server that kazoo's harness can stop and start, in place of the three it would start."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from zkplan.testing.loopback import LOOPBACK, free_port
from zkplan.testing.servers import ZooKeeperServer

_CHECKOUT = Path(__file__).parents[2]
_STOP_S_MAX = 10


class Startable(Protocol):
    """What both kinds of servers can do."""

    port: int

    def start(self) -> object: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...


class EmbeddedProcess:
    """The embedded server in a process of its own; its data outlive a stop."""

    def __init__(self) -> None:
        self.port = free_port()
        self._data = tempfile.mkdtemp(prefix="zkplan-kazoo-suite-")
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> EmbeddedProcess:
        """Start it and wait until it serves."""
        command = [sys.executable, "-m", "tests.kazoo_suite.serve", str(self.port), self._data]
        self._process = subprocess.Popen(command, cwd=_CHECKOUT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError(f"the server ended with {self._process.wait()} before it served")
        return self

    def stop(self) -> None:
        """End its process; it can be started again on the same port and data."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def close(self) -> None:
        """End it and remove its data."""
        self.stop()
        shutil.rmtree(self._data, ignore_errors=True)


class Member:
    """A server as kazoo's harness knows one: `run`, `stop`, `running`, `address`."""

    def __init__(self, server: Startable) -> None:
        self._server = server
        self.running = False

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self._server.port}"

    @property
    def client_port(self) -> int:
        return self._server.port

    def run(self) -> None:
        if not self.running:
            self._server.start()
            self.running = True

    def stop(self) -> None:
        if self.running:
            self._server.stop()
            self.running = False

    def close(self) -> None:
        self.running = False
        self._server.close()


class Cluster:
    """The cluster of one that kazoo's harness gets. Every class of tests finds it running."""

    def __init__(self, kind: str) -> None:
        server: Startable = (
            EmbeddedProcess()
            if kind == "embedded"
            else ZooKeeperServer(
                tick_time_ms=2000,
                min_session_timeout_ms=4000,
                config={"4lw.commands.whitelist": "*"},
            )
        )
        self._members = [Member(server)]

    def __getitem__(self, index: int) -> Member:
        return self._members[index]

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members)

    def start(self) -> None:
        for member in self._members:
            member.run()

    def stop(self) -> None:
        for member in self._members:
            member.stop()

    def terminate(self) -> None:
        """Nothing: kazoo ends its cluster after every class, though each test has its own root."""

    def reset(self) -> None:
        self.stop()

    def get_logs(self) -> list[str]:
        return []

    def close(self) -> None:
        for member in self._members:
            member.close()
