"""ZooKeeper servers on loopback that a test or a demonstration starts, kills and restarts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from zkplan.testing.java import NO_JAVA, find_java, find_zookeeper
from zkplan.testing.loopback import LOOPBACK, free_port, server_version
from zkplan.testing.server_process import ServerDidNotStart, ServerProcess

_LEADER_DEADLINE_S = 60.0
# ZooKeeper's own default is 20 ticks, which with short ticks would cut ordinary session timeouts.
_MAX_SESSION_TIMEOUT_MS = 60_000
_POLL_S = 0.02

#: A server of a test ends before code that Java compiles to its best is worth the time: it took
#: twice the processor time. A benchmark gives no such option.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1",)


class ZooKeeperServer(ServerProcess):
    """One ZooKeeper server in Java; it writes ahead with fsync and has no admin server."""

    def __init__(
        self,
        *,
        tick_time_ms: int = 2000,
        min_session_timeout_ms: int = 1000,
        heap: str = "512m",
        jvm_options: Sequence[str] = SHORT_LIVED,
        config: Mapping[str, str] | None = None,
        server_id: int | None = None,
        port: int | None = None,
        data: Path | None = None,
    ) -> None:
        """Prepare a server; nothing is started yet.

        A session expires at the first multiple of `tick_time_ms` after its timeout: tests of expiry
        set both times small. `config` adds lines to zoo.cfg, `server_id` makes it a member of an
        ensemble. `data` is a folder that outlives the server; without it the data go with `close`.
        Raises ServerDidNotStart where no ZooKeeper is installed.
        """
        java, class_path = find_java(), find_zookeeper()
        if java is None or class_path is None:
            raise ServerDidNotStart(NO_JAVA)
        super().__init__(port, data)
        settings = {
            "tickTime": str(tick_time_ms),
            "minSessionTimeout": str(min_session_timeout_ms),
            "maxSessionTimeout": str(_MAX_SESSION_TIMEOUT_MS),
            "dataDir": str(self.data / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": LOOPBACK,
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,srvr",
            **(config or {}),
        }
        (self.data / "data").mkdir(parents=True, exist_ok=True)
        if server_id is not None:
            (self.data / "data" / "myid").write_text(f"{server_id}\n")
        cfg = self.data / "zoo.cfg"
        cfg.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._command = [
            java,
            f"-Xmx{heap}",
            "-XX:+UseSerialGC",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            *jvm_options,
            "-cp",
            os.pathsep.join(class_path),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(cfg),
        ]


class PeerPorts(NamedTuple):
    """Where a member of an ensemble is reached by the others, on loopback."""

    quorum: int
    election: int


#: Gives the ports by which a member reaches another one: member, other, the other's own ports.
Detour = Callable[[int, int, PeerPorts], PeerPorts]


class ZooKeeperEnsemble:
    """Three (or more) servers on loopback that form one ensemble.

    `servers` are its members, each with the methods of ZooKeeperServer.
    """

    def __init__(
        self,
        size: int = 3,
        *,
        tick_time_ms: int = 2000,
        min_session_timeout_ms: int = 1000,
        detour: Detour | None = None,
        jvm_options: Sequence[str] = (),
        config: Callable[[int], Mapping[str, str]] | None = None,
    ) -> None:
        """Prepare the members; nothing is started yet. Raises ServerDidNotStart as servers do.

        With `detour` members reach each other by the ports that it gives, say of proxies. `config`
        gives more lines of zoo.cfg for each member, by its number from 1 on.
        """
        numbers = range(1, size + 1)
        ports = {number: PeerPorts(free_port(), free_port()) for number in numbers}
        # Deadlines in ticks: with a small tick a busy machine still gets 10 s to form a quorum.
        ticks = str(max(5, 10_000 // tick_time_ms))
        self.servers = []
        for number in numbers:
            lines = {"initLimit": ticks, "syncLimit": ticks, **(config(number) if config else {})}
            for other, own in ports.items():
                way = detour(number, other, own) if detour and other != number else own
                lines[f"server.{other}"] = f"{LOOPBACK}:{way.quorum}:{way.election}"
            self.servers.append(
                ZooKeeperServer(
                    tick_time_ms=tick_time_ms,
                    min_session_timeout_ms=min_session_timeout_ms,
                    heap="256m",
                    jvm_options=jvm_options,
                    config=lines,
                    server_id=number,
                )
            )

    @property
    def hosts(self) -> str:
        """The connection string with every member."""
        return ",".join(server.hosts for server in self.servers)

    @property
    def version(self) -> str:
        """The version of the members that answer; `unknown` where none does."""
        return server_version(self.hosts)

    def start(self) -> ZooKeeperEnsemble:
        """Start or resume every member that does not serve, and wait until all do."""
        for server in self.servers:
            server.resume()
            server.start(wait=False)
        for server in self.servers:
            server.wait_serving()
        return self

    def leader(self, timeout_s: float = _LEADER_DEADLINE_S) -> ZooKeeperServer:
        """The member that leads; waits for an election under way; raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for server in self.servers:
                if server.is_running() and server.mode == "leader":
                    return server
            time.sleep(_POLL_S)
        raise TimeoutError(f"no member of {self.hosts} led within {timeout_s} s")

    def close(self) -> None:
        """End every member and remove the data."""
        with ExitStack() as stack:
            for server in self.servers:
                stack.callback(server.close)

    def __enter__(self) -> ZooKeeperEnsemble:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()
