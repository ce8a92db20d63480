"""The two servers that are compared, with the same limits and clocks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from zkplan.embedded import EmbeddedServer
from zkplan.testing.servers import ZooKeeperServer

Address = tuple[str, int]
TICK_MS = 50
MIN_TIMEOUT_MS, MAX_TIMEOUT_MS = 100, 60_000
#: Containers and nodes with a time to live are swept at moments no program can know.
NO_SWEEP_MS = 10**9
_JAVA = (
    "-Dzookeeper.extendedTypesEnabled=true",
    f"-Dznode.container.checkIntervalMs={NO_SWEEP_MS}",
    # Nothing is killed here: what only durability needs would cost most of the time.
    "-Dzookeeper.forceSync=no",
)


@contextmanager
def java_server() -> Iterator[Address]:
    """A ZooKeeper of its own."""
    with ZooKeeperServer(
        tick_time_ms=TICK_MS,
        min_session_timeout_ms=MIN_TIMEOUT_MS,
        jvm_options=_JAVA,
        config={"maxSessionTimeout": str(MAX_TIMEOUT_MS)},
    ) as server:
        yield "127.0.0.1", server.port


@contextmanager
def two_servers() -> Iterator[dict[str, Address]]:
    """Both; with ZKPLAN_DIFFERENTIAL_JAVA_TWICE set, ZooKeeper and ZooKeeper."""
    with java_server() as java:
        if os.environ.get("ZKPLAN_DIFFERENTIAL_JAVA_TWICE"):
            with java_server() as again:
                yield {"ZooKeeper": java, "ZooKeeper again": again}
        else:
            with embedded_server() as embedded:
                yield {"ZooKeeper": java, "embedded": embedded}


@contextmanager
def embedded_server() -> Iterator[Address]:
    """The embedded server, in memory."""
    with EmbeddedServer(
        tick_time_ms=TICK_MS,
        min_session_timeout_ms=MIN_TIMEOUT_MS,
        max_session_timeout_ms=MAX_TIMEOUT_MS,
        sweep_s=NO_SWEEP_MS / 1000,
        is_open=True,
    ) as server:
        yield server.host, server.port
