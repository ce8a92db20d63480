"""The servers that are measured: a real ZooKeeper and zkplan's own, each a process of its own."""

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
#: Of the Java virtual machine: more than its default, so that it is not what limits the figures.
_HEAP = "1g"


@dataclass(frozen=True)
class Served:
    """A server that serves; without `pid` it is somebody else's and may be anywhere."""

    name: str
    hosts: str
    pid: int | None
    version: str


def names(wanted: str | None, hosts: str | None) -> list[str]:
    """The servers to measure: as `wanted`, else the one that is given, else all there are here."""
    if wanted is None:
        wanted = ZOOKEEPER if hosts else BOTH if find_zookeeper() is not None else EMBEDDED
    return [ZOOKEEPER, EMBEDDED] if wanted == BOTH else [wanted]


@contextmanager
def served(name: str, hosts: str | None) -> Iterator[Served]:
    """That server for the length of the block; `hosts` is a real ZooKeeper that is given.

    Those that are started here flush each write to the disk that temporary files are on. Raises
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
    """One `zkplan server` without a data folder. Unless it is open, one has to log in, as to that
    of `zkplan.local()`."""

    def __init__(self, is_open: bool = True) -> None:
        super().__init__(None, None)
        self._command = [
            *(sys.executable, "-m", "zkplan", "server", "--listen", f"{LOOPBACK}:{self.port}"),
            *(["--open"] if is_open else []),
        ]

    @property
    def mode(self) -> str | None:
        """See ServerProcess. A closed server tells strangers only that it serves."""
        return "standalone" if is_serving(self.hosts) else None
