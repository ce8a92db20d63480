"""The embedded server as a process that a test or a demonstration starts, kills and restarts."""

from __future__ import annotations

import sys
from pathlib import Path

from zkplan.testing.loopback import LOOPBACK
from zkplan.testing.server_process import ServerProcess


class EmbeddedServerProcess(ServerProcess):
    """One `zkplan server` with a data folder: all that `ZooKeeperServer` can, without Java."""

    def __init__(
        self,
        *,
        tick_time_ms: int = 500,
        durability: str = "durable",
        port: int | None = None,
        data: Path | None = None,
    ) -> None:
        """Prepare a server; nothing is started yet.

        A session ends at most `tick_time_ms` after its time-out. `data` is a folder that outlives
        the server; without it the data go with `close`.
        """
        super().__init__(port, data)
        self._command = [
            *(sys.executable, "-m", "zkplan", "server"),
            *("--listen", f"{LOOPBACK}:{self.port}", "--data", str(self.data / "data")),
            *("--durability", durability, "--tick-time", str(tick_time_ms)),
        ]
