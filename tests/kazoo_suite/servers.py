"""One server that kazoo's harness can stop and start, in place of the three it would start."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.embedded.servers import ServerProcess
from zkplan.testing.loopback import LOOPBACK, free_port
from zkplan.testing.servers import ZooKeeperServer

#: As kazoo's own harness configures ZooKeeper: its tests count on these times.
TICK_MS, MIN_TIMEOUT_MS = 2000, 4000


class EmbeddedProcess:
    """The embedded server in a process of its own; its data outlive a stop."""

    def __init__(self) -> None:
        self.port = free_port()
        self._data = tempfile.mkdtemp(prefix="zkplan-kazoo-suite-")
        self._process: ServerProcess | None = None

    def start(self) -> None:
        """Start it and wait until it serves."""
        self._process = ServerProcess(
            Path(self._data),
            port=self.port,
            durability="fast",
            tick_time_ms=TICK_MS,
            min_session_timeout_ms=MIN_TIMEOUT_MS,
        ).__enter__()

    def stop(self) -> None:
        """End its process; it can be started again on the same port and data."""
        process, self._process = self._process, None
        if process is not None:
            process.__exit__(None, None, None)

    def close(self) -> None:
        """End it and remove its data."""
        self.stop()
        shutil.rmtree(self._data, ignore_errors=True)


class Member:
    """A server as kazoo's harness knows one: `run`, `stop`, `running`, `address`."""

    def __init__(self, server: EmbeddedProcess | ZooKeeperServer) -> None:
        self._server = server
        self.running = False
        self.client_port = server.port
        self.address = f"{LOOPBACK}:{server.port}"

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
        server = (
            EmbeddedProcess()
            if kind == "embedded"
            else ZooKeeperServer(
                tick_time_ms=TICK_MS,
                min_session_timeout_ms=MIN_TIMEOUT_MS,
                config={"4lw.commands.whitelist": "*"},
            )
        )
        self._member = Member(server)
        self.start, self.stop, self.close = self._member.run, self._member.stop, self._member.close
        self.reset = self._member.stop

    def __getitem__(self, index: int) -> Member:
        return (self._member,)[index]

    def __iter__(self) -> Iterator[Member]:
        yield self._member

    def terminate(self) -> None:
        """Nothing: kazoo ends its cluster after every class, though each test has its own root."""

    def get_logs(self) -> list[str]:
        return []
