"""The embedded server as a process that a test or a demonstration starts, kills and restarts."""

from __future__ import annotations

import sys
from pathlib import Path

from zkplan.testing.loopback import LOOPBACK, is_serving
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
        is_open: bool = True,
    ) -> None:
        """Prepare a server; nothing is started yet.

        A session ends at most `tick_time_ms` after its time-out. `data` is a folder that outlives
        the server; without it the data go with `close`. It is open to every user of the machine,
        for tests with clients of other kinds, unless `is_open` is False: then `zkplan.connect` logs
        in to it.
        """
        super().__init__(port, data)
        self._command = [
            *(sys.executable, "-m", "zkplan", "server"),
            *("--listen", f"{LOOPBACK}:{self.port}", "--data", str(self.data / "data")),
            *("--durability", durability, "--tick-time", str(tick_time_ms)),
            *(["--open"] if is_open else []),
        ]

    @property
    def mode(self) -> str | None:
        """See ServerProcess. A closed server tells strangers only that it serves."""
        return "standalone" if is_serving(self.hosts) else None
