"""The embedded server as a process: python -m tests.kazoo_suite.serve PORT FOLDER."""

from __future__ import annotations

import sys

from zkplan.embedded import EmbeddedServer

#: As kazoo's own harness configures ZooKeeper: its tests count on these times.
TICK_MS, MIN_TIMEOUT_MS = 2000, 4000


def tell(server: EmbeddedServer) -> None:
    """A line that says: clients can connect."""
    sys.stdout.write(f"{server.hosts}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    server = EmbeddedServer(
        sys.argv[2],
        port=int(sys.argv[1]),
        durability="fast",
        tick_time_ms=TICK_MS,
        min_session_timeout_ms=MIN_TIMEOUT_MS,
    )
    sys.exit(server.run(tell))
