"""One server that kazoo's harness can stop and start, in place of the three it would start."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.embedded.servers import ServerProcess
from zkplan.testing.server_process import LOOPBACK
from zkplan.testing.servers import ZooKeeperServer

#: As kazoo's own harness configures ZooKeeper: its tests count on these times.
TICK_MS, MIN_TIMEOUT_MS = 2000, 4000


class EmbeddedProcess(ServerProcess):
    """The embedded server in a process of its own; its data outlive a stop."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="zkplan-kazoo-suite-")
        super().__init__(
            Path(self._folder.name),
            durability="fast",
            tick_time_ms=TICK_MS,
            min_session_timeout_ms=MIN_TIMEOUT_MS,
        )

    def close(self) -> None:
        """End it and remove its data."""
        super().close()
        self._folder.cleanup()


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
