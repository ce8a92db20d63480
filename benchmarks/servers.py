"""The measured servers: a real ZooKeeper and zkplan's own, each in a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from zkplan.testing import find_zookeeper
from zkplan.testing.server_process import (
    LOOPBACK,
    EmbeddedServerProcess,
    ServerProcess,
    is_serving,
    server_version,
)
from zkplan.testing.servers import ZooKeeperServer

ZOOKEEPER, EMBEDDED, BOTH = "zookeeper", "embedded", "both"
#: The heap of the Java virtual machine, above its default, so that it does not limit the figures.
_HEAP = "1g"


@dataclass(frozen=True)
class Served:
    """A running server. Without a `pid` it was not started here, and may be anywhere."""

    name: str
    hosts: str
    pid: int | None
    version: str


def names(wanted: str | None, hosts: str | None) -> list[str]:
    """The servers to measure: as `wanted`; else the one at `hosts`; else all that can start."""
    if wanted is None:
        wanted = ZOOKEEPER if hosts else BOTH if find_zookeeper() is not None else EMBEDDED
    return [ZOOKEEPER, EMBEDDED] if wanted == BOTH else [wanted]


@contextmanager
def served(name: str, hosts: str | None) -> Iterator[Served]:
    """The server with this name for the block. `hosts`, if given, is a real ZooKeeper to use.

    A server that is started here flushes each write to the disk of the temporary files. Raises
    ServerDidNotStart.
    """
    if name == ZOOKEEPER and hosts:
        yield Served(name, hosts, None, server_version(hosts))
        return
    process = (
        ZooKeeperServer(heap=_HEAP, jvm_options=())
        if name == ZOOKEEPER
        else EmbeddedServerProcess()
    )
    with process as server:
        yield Served(name, server.hosts, server.pid, server.version)


class InMemoryServer(ServerProcess):
    """A `zkplan server` without a data folder. If it is not open, clients have to log in."""

    def __init__(self, is_open: bool = True) -> None:
        super().__init__(None, None)
        self._command = [
            *(sys.executable, "-m", "zkplan", "server", "--listen", f"{LOOPBACK}:{self.port}"),
            *(["--open"] if is_open else []),
        ]

    @property
    def mode(self) -> str | None:
        """See ServerProcess. A closed server tells clients without a login only that it serves."""
        return "standalone" if is_serving(self.hosts) else None
